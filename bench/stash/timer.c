/* A stream with a clock: replays of graphs, and how long one takes. */
#include "bench/stash/rig.h"

int bench_timer_open(bench_timer *timer, pst_device *device)
{
    pst_device_info info;
    void *memory = NULL;
    TOOL_PST(pst_device_get_info(device, &info));
    *timer = (bench_timer){.device = device, .is_host = info.kind == PST_DEVICE_HOST};
    TOOL_PST(pst_stream_create(device, &timer->stream));
    TOOL_PST(pst_event_create(device, &timer->begin));
    TOOL_PST(pst_event_create(device, &timer->end));
    TOOL_PST(pst_device_alloc_pinned(device, sizeof(*timer->mismatches), &memory));
    timer->mismatches = memory;
    return TOOL_OK;
}

int bench_timer_close(bench_timer *timer)
{
    if (timer->device == NULL)
        return TOOL_OK;
    TOOL_PST(pst_device_free_pinned(timer->device, timer->mismatches));
    TOOL_PST(pst_event_destroy(timer->device, timer->begin));
    TOOL_PST(pst_event_destroy(timer->device, timer->end));
    return tool_status(pst_stream_destroy(timer->device, timer->stream));
}

int bench_gpu_status(const char *error)
{
    return error ? tool_fail(TOOL_DEVICE, "%s", error) : TOOL_OK;
}

int bench_time(const bench_timer *timer, pst_graph *graph, double *seconds_out)
{
    if (!timer->is_host)
        BENCH_GPU(bench_gpu_hold(timer->stream));
    TOOL_PST(pst_event_record(timer->device, timer->begin, timer->stream));
    TOOL_PST(pst_graph_launch(graph, timer->stream));
    TOOL_PST(pst_event_record(timer->device, timer->end, timer->stream));
    TOOL_PST(pst_event_synchronize(timer->device, timer->end));
    return tool_status(pst_event_elapsed(timer->device, timer->begin, timer->end, seconds_out));
}

int bench_replay(const bench_timer *timer, pst_graph *graph)
{
    TOOL_PST(pst_graph_launch(graph, timer->stream));
    return tool_status(pst_stream_synchronize(timer->device, timer->stream));
}

int bench_make_group(const pst_row_space *space, const pst_tensor *tensors, uint32_t num_tensors,
                     pst_group **group_out)
{
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = space;
    config.num_spaces = 1;
    config.tensors = tensors;
    config.num_tensors = num_tensors;
    return tool_status(pst_group_create(&config, group_out));
}

int bench_make_flat(uint64_t bytes, pst_group **group_out)
{
    const pst_row_space space = {.count_type = PST_COUNT_HOST, .capacity = 1};
    const pst_tensor tensor = {.row_bytes = bytes};
    return bench_make_group(&space, &tensor, 1, group_out);
}

pst_buffers bench_flat_at(void *const *base)
{
    static const int64_t one = 1;
    static const void *const count = &one;
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = base;
    buffers.counts = &count;
    return buffers;
}

static int fill_or_verify(const bench_timer *timer, void *base, uint64_t bytes, uint64_t key,
                          bool verify)
{
    const pst_pattern pattern = {.seed = BENCH_SEED, .key = key};
    const pst_buffers at = bench_flat_at(&base);
    pst_group *group = NULL;
    TOOL_TRY(bench_make_flat(bytes, &group));
    if (verify)
        TOOL_PST(pst_group_verify(timer->device, group, &at, &pattern, PST_VERIFY_ANY,
                                  timer->mismatches, timer->stream));
    else
        TOOL_PST(pst_group_fill(timer->device, group, &at, &pattern, timer->stream));
    TOOL_PST(pst_stream_synchronize(timer->device, timer->stream));
    return tool_status(pst_group_destroy(group));
}

int bench_fill_flat(const bench_timer *timer, void *base, uint64_t bytes, uint64_t key)
{
    return fill_or_verify(timer, base, bytes, key, false);
}

int bench_verify_flat(const bench_timer *timer, void *base, uint64_t bytes, uint64_t key,
                      uint64_t *mismatched_bytes)
{
    *timer->mismatches = 0;
    TOOL_TRY(fill_or_verify(timer, base, bytes, key, true));
    *mismatched_bytes += *timer->mismatches;
    return TOOL_OK;
}
