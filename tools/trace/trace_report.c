/* What `pagestash trace` writes: the trace as CSV, and its summary. */
#include "tools/trace/trace_report.h"

#include "tools/common/json_out.h"
#include "tools/common/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { SCHEMA_VERSION = 1 };

static const char *const ops[] = {"malloc", "free", "mark"};
static const char *const phases[PST_NUM_PHASES] = {"", "forward", "backward", "weight", "other"};
static const char *const tags[PST_NUM_TAGS] = {"static", "dynamic", "iteration", "record",
                                               "wait",   "use",     "sync",      "grow"};

/* A number, or nothing for what is not said. */
static void put_optional(FILE *file, uint32_t value)
{
    if (value != PST_TRACE_NONE)
        fprintf(file, "%" PRIu32, value);
    putc(',', file);
}

static void put_row(FILE *file, const pst_trace_request *row)
{
    fprintf(file, "%s,%" PRIu64 ",", ops[row->op], row->id);
    if (row->bytes != 0)
        fprintf(file, "%" PRIu64, row->bytes);
    fprintf(file, ",%" PRIu32 ",%s,", row->stream, phases[row->phase]);
    put_optional(file, row->layer);
    put_optional(file, row->micro_batch);
    fprintf(file, "%" PRIu32 ",%s\n", row->rank, tags[row->tag]);
}

int trace_write_csv(const pst_trace *trace, const char *path)
{
    const pst_trace_request *rows = pst_trace_rows(trace);
    tool_output output;
    const uint64_t num_rows = pst_trace_num_rows(trace);
    if (rows == NULL && num_rows > 0)
        return tool_fail(TOOL_NO, "--out %s: out of memory for %" PRIu64 " rows", path, num_rows);
    TOOL_TRY(output_open(&output, "out", path));
    if (output.file != stdout || !isatty(STDOUT_FILENO)) /* the rows themselves show there */
        tool_clock_begin("writing the trace");
    fputs("op,id,size,stream,phase,layer,micro_batch,rank,tag\n", output.file);
    for (uint64_t i = 0; i < num_rows && !ferror(output.file); i++)
        put_row(output.file, &rows[i]);
    const int code = output_close(&output, TOOL_OK);
    tool_clock_end();
    return code;
}

static void collect(const pst_trace *trace, const pst_trace_summary *summary, metric_list *list)
{
    const double live = (double)summary->most_live_bytes;
    metrics_add_count(list, "requests", summary->num_requests);
    metrics_add_count(list, "marks", pst_trace_num_rows(trace) - summary->num_requests);
    metrics_add_count(list, "passes", pst_trace_num_passes(trace));
    metrics_add_count(list, "streams", pst_trace_num_streams(trace));
    metrics_add_count(list, "tensors", summary->num_tensors);
    metrics_add_count(list, "unfreed_tensors", summary->num_unfreed);
    metrics_add_count(list, "distinct_sizes", summary->num_sizes);
    metrics_add_count(list, "most_live_tensors", summary->most_live_tensors);
    metrics_add_count(list, "align_bytes", summary->align);
    metrics_add_bytes(list, "most_live_bytes", summary->most_live_bytes);
    metrics_add_count(list, "most_live_request", summary->most_live_instant);
    metrics_add_bytes(list, "online_peak_bytes", summary->online_peak);
    metrics_add_rare(list, "online_fragmentation",
                     live > 0.0 ? (double)summary->online_peak / live - 1.0 : NAN);
    metrics_add_count(list, "dynamic_tensors", summary->num_dynamic);
    metrics_add_bytes(list, "most_live_dynamic_bytes", summary->most_live_dynamic_bytes);
}

int trace_report(const trace_source *source, const pst_trace *trace,
                 const pst_trace_summary *summary, const char *json)
{
    metric_list list = {.num = 0};
    collect(trace, summary, &list);
    if (json != NULL) {
        json_t *object = json_begin("trace", SCHEMA_VERSION);
        json_put_text(&object, "trace", trace_source_name(source));
        json_put_metrics(&object, &list);
        TOOL_TRY(json_write(object, json));
    }
    if (json_is_stdout(json))
        return TOOL_OK;
    fputs("trace: ", stdout);
    tool_put(trace_source_name(source));
    putchar('\n');
    metrics_print_all(&list);
    return TOOL_OK;
}
