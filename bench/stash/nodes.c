/* What a graph costs that does nothing: one empty kernel, and a chain of them. */
#include "bench/stash/measure.h"
#include "bench/stash/rig.h"

#include <stdlib.h>

enum { CHAIN = 101, LENGTHS = 2 };

static int enqueue_chain(const bench_timer *timer, uint32_t nodes)
{
    for (uint32_t i = 0; i < nodes; i++)
        BENCH_GPU(bench_gpu_idle(timer->stream));
    return TOOL_OK;
}

static int measure(const bench_timer *timer, uint32_t samples, bench_report *report)
{
    static const uint32_t lengths[LENGTHS] = {1, CHAIN};
    pst_graph *graphs[LENGTHS] = {NULL};
    static bench_series series[LENGTHS];
    TOOL_TRY(enqueue_chain(timer, 1)); /* outside capture, because that loads the kernel */
    TOOL_PST(pst_stream_synchronize(timer->device, timer->stream));
    for (int i = 0; i < LENGTHS; i++) {
        BENCH_RECORD(timer, enqueue_chain(timer, lengths[i]), &graphs[i]);
        TOOL_TRY(bench_replay(timer, graphs[i]));
    }
    for (uint32_t n = 0; n < samples; n++)
        for (int i = 0; i < LENGTHS; i++) {
            double seconds;
            TOOL_TRY(bench_time(timer, graphs[i], &seconds));
            bench_series_add(&series[i], seconds);
        }
    for (int i = 0; i < LENGTHS; i++) {
        const bench_anchor anchor = {.name = "empty_node_chain",
                                     .role = "nodes",
                                     .state = BENCH_WARM,
                                     .nodes = lengths[i],
                                     .seconds = bench_summary(&series[i])};
        int index;
        TOOL_TRY(bench_add_anchor(report, &anchor, &index));
        TOOL_PST(pst_graph_destroy(graphs[i]));
    }
    return TOOL_OK;
}

int bench_measure_nodes(pst_device *device, uint32_t samples, bench_report *report)
{
    bench_timer timer;
    if (report->machine.device.kind == PST_DEVICE_HOST)
        return TOOL_OK;
    TOOL_TRY(bench_timer_open(&timer, device));
    TOOL_TRY(measure(&timer, samples, report));
    return bench_timer_close(&timer);
}
