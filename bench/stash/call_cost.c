/* What a stash call on the cuda device costs the calling thread before the launch: argument checks,
 * the parameter block, the grid. The launch itself is a function that only counts, so no GPU is
 * needed; neither that nor the runtime's answer to "is this stream captured?" is in the figure. */
#include "bench/stash/bench.h"

#if PSTI_HAVE_CUDA

#include <time.h>

#include <pagestash/pagestash.h>

#include "host/stash/stash.h"
#include "kernels/cuda/launch.h"

enum { SAMPLES = 101, CALLS = 1000, ROWS = 4096, ROW_BYTES = 4096, NUM_SMS = 132 };

static const psti_cuda_budget budget = {.num_sms = NUM_SMS,
                                        .blocks_per_sm = {{0, 4, 1, 1}, {0, 4, 1, 1}}};
static uint64_t num_launches;

static cudaError_t count_launch(const cudaLaunchConfig_t *config, const void *kernel, void **args)
{
    (void)kernel;
    (void)args;
    num_launches += config->gridDim.x > 0;
    return cudaSuccess;
}

static pst_status stub_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    (void)device;
    return psti_cuda_launch(&budget, count_launch, op, args, stream) == cudaSuccess ? PST_OK
                                                                                    : PST_E_CUDA;
}

static pst_status stub_hold(pst_device *device, pst_stream stream, psti_hold *hold)
{
    (void)device;
    (void)stream;
    (void)hold;
    return PST_OK;
}

/* Nothing reads or writes the tensors. */
static int make_group(pst_device *device, uint32_t num_tensors, pst_group **group_out)
{
    static const int64_t count = ROWS;
    static unsigned char base[16];
    const pst_row_space space = {
        .counts = &count, .count_type = PST_COUNT_INT64, .capacity = ROWS, .num_segments = 1};
    pst_tensor tensors[PST_MAX_TENSORS] = {0};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    for (uint32_t t = 0; t < num_tensors; t++)
        tensors[t] = (pst_tensor){.base = base, .row_bytes = ROW_BYTES};
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = tensors;
    config.num_tensors = num_tensors;
    return bench_status(pst_group_create(device, &config, group_out));
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int time_calls(pst_ticket *ticket, const pst_group *group, bench_times *ns)
{
    bench_series series = {.num = 0};
    for (int i = 0; i < SAMPLES; i++) {
        pst_status status = PST_OK;
        num_launches = 0;
        const double begin = now();
        for (int call = 0; call < CALLS && status == PST_OK; call++)
            status = pst_ticket_stash(ticket, group, NULL, NULL);
        bench_series_add(&series, (now() - begin) / CALLS);
        BENCH_PST(status);
        if (num_launches != CALLS)
            return bench_fail(BENCH_NO, "%d stash calls made %llu launches", CALLS,
                              (unsigned long long)num_launches);
    }
    *ns = bench_summary(&series);
    return BENCH_OK;
}

static int measure_group(pst_device *device, uint32_t num_tensors, bench_times *ns)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    pst_pool *pool = NULL;
    pst_group *group = NULL;
    pst_ticket *ticket = NULL;
    config.num_pages = 1;
    config.max_tickets = 1;
    int code = bench_status(pst_pool_create(device, &config, &pool));
    if (code == BENCH_OK)
        code = make_group(device, num_tensors, &group);
    if (code == BENCH_OK)
        code = bench_status(pst_ticket_create(pool, group, &ticket));
    if (code == BENCH_OK)
        code = time_calls(ticket, group, ns);
    if (code == BENCH_OK)
        code = bench_status(pst_ticket_destroy(ticket));
    if (code == BENCH_OK)
        code = bench_status(pst_pool_destroy(pool));
    if (code == BENCH_OK)
        code = bench_status(pst_group_destroy(group));
    return code;
}

int bench_measure_calls(bench_call_cost *cost)
{
    pst_device *host = NULL;
    *cost = (bench_call_cost){.tensors = {1, 10, 64}};
    BENCH_PST(pst_device_open("host", 0, &host));
    /* the memory of host, the launches of cuda */
    psti_device_ops ops = *host->ops;
    ops.launch = stub_launch;
    ops.hold = stub_hold;
    pst_device device = *host;
    device.ops = &ops;
    device.info.kind = PST_DEVICE_CUDA;
    device.info.num_sms = NUM_SMS;
    device.info.backends = 1u << PST_BACKEND_LDG;
    for (int i = 0; i < BENCH_CALL_TENSORS; i++)
        BENCH_TRY(measure_group(&device, cost->tensors[i], &cost->ns[i]));
    return bench_status(pst_device_close(host));
}

#else

int bench_measure_calls(bench_call_cost *cost)
{
    *cost = (bench_call_cost){.unavailable = "this library was built without CUDA"};
    return BENCH_OK;
}

#endif
