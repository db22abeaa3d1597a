#include "tools/common/json_out.h"
#include "tools/replay/report.h"

#include <stdio.h>

enum { SCHEMA_VERSION = 1 };

static void set_offload(json_t **object, const uint32_t *offload)
{
    char fraction[32];
    snprintf(fraction, sizeof(fraction), "%u/%u", offload[0], offload[1]);
    json_put_text(object, "offload_fraction", fraction);
}

static json_t *options_object(const replay_options *options, const replay_trace *trace,
                              const replay_result *result)
{
    static const char *const on_overflow[] = {"fail", "grow", "retry"};
    json_t *object = json_object();
    json_put_text(&object, "routing", options->routing);
    json_put_text(&object, "device", result->device.kind == PST_DEVICE_CUDA ? "cuda" : "host");
    json_put_text(&object, "device_name", result->device.name);
    json_put_whole(&object, "hidden", options->hidden);
    json_put_whole(&object, "ffn", options->ffn);
    json_put_text(&object, "dtype", options->dtype == REPLAY_MXFP8 ? "mxfp8" : "bf16");
    json_put_whole(&object, "experts", trace->num_experts);
    json_put_whole(&object, "ep", options->ep);
    json_put_whole(&object, "rank", options->rank);
    json_put_whole(&object, "layers", trace->layers);
    json_put_whole(&object, "num_micro_batches", options->num_micro_batches);
    json_put_whole(&object, "step_begin", trace->step_begin);
    json_put_whole(&object, "step_end", trace->step_begin + trace->steps);
    json_put_whole(&object, "page_bytes", options->page_bytes);
    json_put_whole(&object, "streams", options->streams);
    json_put(&object, "graph", json_boolean(!options->no_graph));
    json_put_whole(&object, "num_sms", options->num_sms);
    json_put_whole(&object, "seed", options->seed);
    json_put_text(&object, "layout", options->layout == PST_ROWS_PREFIX ? "prefix" : "segments");
    json_put_text(&object, "tail", options->tail == PST_TAIL_ZERO ? "zero" : "keep");
    json_put_text(&object, "restore", options->restore == PST_RESTORE_KEEP ? "keep" : "consume");
    json_put_text(&object, "mode", options->mode == PST_POOL_CONCURRENT ? "concurrent" : "ordered");
    json_put_text(&object, "backend", replay_backend_name(options->backend));
    set_offload(&object, options->offload);
    json_put_text(&object, "on_overflow", on_overflow[options->on_overflow]);
    json_put(&object, "scrub", json_boolean(options->scrub));
    return object;
}

int report_json(const replay_options *options, const replay_trace *trace,
                const replay_result *result, const metric_list *list)
{
    json_t *object = json_begin("replay", SCHEMA_VERSION);
    json_put(&object, "options", options_object(options, trace, result));
    json_put_metrics(&object, list);
    return json_write(object, options->json);
}
