/* What a stash call on the cuda device costs the calling thread before the launch: argument checks,
 * the parameter block, the grid. The launch itself is a function that only counts, so no GPU is
 * needed; neither that nor the runtime's answer to "is this stream captured?" is in the figure. */
#include "bench/stash/measure.h"
#include "bench/stash/rig.h"

#if PSTI_HAVE_CUDA

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

static pst_status stub_capture_of(pst_device *device, pst_stream stream,
                                  psti_capture_of *capture_out)
{
    (void)device;
    (void)stream;
    *capture_out = (psti_capture_of){.id = 0};
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
    for (uint32_t t = 0; t < num_tensors; t++)
        tensors[t] = (pst_tensor){.base = base, .row_bytes = ROW_BYTES};
    return bench_make_group(device, &space, tensors, num_tensors, group_out);
}

static int time_calls(pst_ticket *ticket, const pst_group *group, bench_times *ns)
{
    bench_series series = {.num = 0};
    for (int i = 0; i < SAMPLES; i++) {
        pst_status status = PST_OK;
        num_launches = 0;
        const double begin = bench_now();
        for (int call = 0; call < CALLS && status == PST_OK; call++)
            status = pst_ticket_stash(ticket, group, NULL, NULL);
        bench_series_add(&series, (bench_now() - begin) * 1e9 / CALLS);
        TOOL_PST(status);
        if (num_launches != CALLS)
            return tool_fail(TOOL_NO, "%d stash calls made %llu launches", CALLS,
                             (unsigned long long)num_launches);
    }
    *ns = bench_summary(&series);
    return TOOL_OK;
}

static int measure_group(pst_device *device, uint32_t num_tensors, bench_times *ns)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    pst_pool *pool = NULL;
    pst_group *group = NULL;
    pst_ticket *ticket = NULL;
    config.num_pages = 1;
    config.max_tickets = 1;
    TOOL_PST(pst_pool_create(device, &config, &pool));
    TOOL_TRY(make_group(device, num_tensors, &group));
    TOOL_PST(pst_ticket_create(pool, group, &ticket));
    TOOL_TRY(time_calls(ticket, group, ns));
    TOOL_PST(pst_ticket_destroy(ticket));
    TOOL_PST(pst_pool_destroy(pool));
    return tool_status(pst_group_destroy(group));
}

int bench_measure_calls(bench_call_cost *cost)
{
    pst_device *host = NULL;
    *cost = (bench_call_cost){.tensors = {1, 10, 64}};
    TOOL_PST(pst_device_open("host", 0, &host));
    /* the memory of host, the launches of cuda */
    psti_device_ops ops = *host->ops;
    ops.launch = stub_launch;
    ops.capture_of = stub_capture_of;
    pst_device device = *host;
    device.ops = &ops;
    device.info.kind = PST_DEVICE_CUDA;
    device.info.num_sms = NUM_SMS;
    device.info.backends = 1u << PST_BACKEND_LDG;
    for (int i = 0; i < BENCH_CALL_TENSORS; i++)
        TOOL_TRY(measure_group(&device, cost->tensors[i], &cost->ns[i]));
    return tool_status(pst_device_close(host));
}

#else

int bench_measure_calls(bench_call_cost *cost)
{
    *cost = (bench_call_cost){.unavailable = "this library was built without CUDA"};
    return TOOL_OK;
}

#endif
