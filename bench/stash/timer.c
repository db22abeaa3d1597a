#include "bench/stash/rig.h"

#include <time.h>

int bench_timer_open(bench_timer *timer, pst_device *device)
{
    pst_device_info info;
    BENCH_PST(pst_device_get_info(device, &info));
    *timer = (bench_timer){.device = device, .is_host = info.kind == PST_DEVICE_HOST};
    BENCH_PST(pst_stream_create(device, &timer->stream));
    BENCH_PST(pst_event_create(device, &timer->begin));
    return bench_status(pst_event_create(device, &timer->end));
}

int bench_timer_close(bench_timer *timer)
{
    if (timer->device == NULL)
        return BENCH_OK;
    BENCH_PST(pst_event_destroy(timer->device, timer->begin));
    BENCH_PST(pst_event_destroy(timer->device, timer->end));
    return bench_status(pst_stream_destroy(timer->device, timer->stream));
}

int bench_time(const bench_timer *timer, pst_graph *graph, double *seconds_out)
{
    if (!timer->is_host)
        BENCH_GPU(bench_gpu_hold(timer->stream));
    BENCH_PST(pst_event_record(timer->device, timer->begin, timer->stream));
    BENCH_PST(pst_graph_launch(graph, timer->stream));
    BENCH_PST(pst_event_record(timer->device, timer->end, timer->stream));
    BENCH_PST(pst_event_synchronize(timer->device, timer->end));
    return bench_status(pst_event_elapsed(timer->device, timer->begin, timer->end, seconds_out));
}

int bench_replay(const bench_timer *timer, pst_graph *graph)
{
    BENCH_PST(pst_graph_launch(graph, timer->stream));
    return bench_status(pst_stream_synchronize(timer->device, timer->stream));
}

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
