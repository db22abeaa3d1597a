/* pagestash estimate --timeline STAGE: the schedule's events as CSV. */
#include "tools/estimate/estimate.h"
#include "tools/estimate/estimate_out.h"

#include <inttypes.h>
#include <stdio.h>

static bool put_event(void *user, const pst_estimate_event *event)
{
    (void)user;
    printf("%" PRIu64 ",%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
           "\n",
           event->number, event->is_backward ? "backward" : "forward", event->chunk,
           event->micro_batch, event->live_layers, event->saved_bytes, event->head_bytes,
           event->bytes);
    return !ferror(stdout);
}

int estimate_timeline(const estimate_options *options)
{
    uint64_t stage = 0;
    pst_estimate_memory memory;
    TOOL_PST(pst_estimate_check(&options->config));
    TOOL_TRY(estimate_stage_of(options, &stage));
    /* so that no event is refused behind the first lines */
    TOOL_PST(pst_estimate_get_memory(&options->config, stage, NULL, &memory));
    estimate_warn_unmodelled(options);
    puts("event,kind,chunk,micro_batch,live_layers,saved_bytes,head_bytes,bytes");
    TOOL_PST(pst_estimate_get_timeline(&options->config, stage, put_event, NULL));
    return TOOL_OK;
}
