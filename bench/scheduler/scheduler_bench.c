/* pagestash-scheduler-bench: what hooks of the scheduler cost the calling thread, beside an empty call.
 * The device is that of the host with a table whose launches, events and copies only count: first layers
 * of which nothing is kept, then layers that are stashed and restored, whose launches go through the
 * CUDA launcher up to the driver's call where the library has it. */
#include "bench/common/must.h"
#include "bench/common/samples.h"
#include "host/device/device.h"
#include "tools/common/flags.h"
#include "tools/common/json_out.h"
#include "tools/common/tool.h"

#include <stdio.h>
#include <string.h>

#if PSTI_HAVE_CUDA
#include "kernels/cuda/launch.h"
#endif

enum { MAX_LAYERS = 64, MAX_TENSORS = 16, SETS = 2, ROWS = 4096, ROW_BYTES = 1024, STAGES = 4 };

#define SCHEDULER_FLAGS(F)                                           \
    F(U32, layers, "N", 1, MAX_LAYERS, "32", "of one stage of four") \
    F(U32, tensors, "N", 1, MAX_TENSORS, "6", "of each layer")       \
    F(U32, samples, "N", 1, BENCH_MAX_SAMPLES, "21", "steps of each row")

typedef struct options {
    SCHEDULER_FLAGS(FLAG_MEMBER)
    const char *json;
} options;

static options chosen;
static json_t *rows;
static FILE *table; /* NULL when the report goes to stdout */
static uint64_t num_calls;

/* ---- a device that only counts ---- */

#if PSTI_HAVE_CUDA
static cudaError_t count_kernel(const cudaLaunchConfig_t *config, const void *kernel, void **args)
{
    (void)kernel, (void)args;
    num_calls += config->gridDim.x > 0;
    return cudaSuccess;
}

static pst_status count_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    static const psti_cuda_budget budget = {.num_sms = 132,
                                            .blocks_per_sm = {{0, 4, 1, 1}, {0, 4, 1, 1}}};
    (void)device;
    return psti_cuda_launch(&budget, count_kernel, op, args, stream) == cudaSuccess ? PST_OK
                                                                                    : PST_E_CUDA;
}
#else
static pst_status count_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    (void)device, (void)op, (void)args, (void)stream;
    num_calls++;
    return PST_OK;
}
#endif

static pst_status count_event(pst_device *device, pst_event event, pst_stream stream, bool external)
{
    (void)device, (void)event, (void)stream, (void)external;
    num_calls++;
    return PST_OK;
}

static pst_status count_query(pst_device *device, pst_stream stream, psti_capture_of *capture)
{
    (void)device, (void)stream;
    *capture = (psti_capture_of){.id = 0};
    return PST_OK;
}

/* ---- layers ---- */

typedef struct scene {
    pst_device *device;
    pst_pool *pool;
    pst_group *group;
    pst_schedule *schedule;
    pst_scheduler *scheduler;
    pst_layer layers[MAX_LAYERS];
    pst_buffers sets[2 * SETS];
    const pst_buffers *sources[SETS], *destinations[SETS];
    void *bases[MAX_TENSORS];
    const void *counts;
    pst_part part;
} scene;

static void open_parts(scene *self)
{
    /* as large as a tensor, so that no pool's pages are in it */
    static unsigned char base[ROWS * ROW_BYTES];
    static const int64_t count = ROWS;
    const pst_row_space space = {.count_type = PST_COUNT_INT64, .capacity = ROWS};
    pst_tensor tensors[MAX_TENSORS];
    pst_group_config group = PST_GROUP_CONFIG_INIT;
    for (uint32_t t = 0; t < chosen.tensors; t++) {
        tensors[t] = (pst_tensor){.row_bytes = ROW_BYTES};
        self->bases[t] = base;
    }
    group.spaces = &space;
    group.num_spaces = 1;
    group.tensors = tensors;
    group.num_tensors = chosen.tensors;
    bench_check_status(pst_group_create(&group, &self->group));
    self->counts = &count;
    for (uint32_t i = 0; i < 2 * SETS; i++) {
        self->sets[i] = (pst_buffers)PST_BUFFERS_INIT;
        self->sets[i].bases = self->bases;
        self->sets[i].counts = &self->counts;
    }
    for (uint32_t i = 0; i < SETS; i++) {
        self->sources[i] = &self->sets[i];
        self->destinations[i] = &self->sets[SETS + i];
    }
    self->part = (pst_part){
        .group = self->group, .sources = self->sources, .destinations = self->destinations};
}

static void open_scene(scene *self, pst_device *device, pst_keep keep, uint32_t micro_batches)
{
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    pst_schedule_config schedule = PST_SCHEDULE_CONFIG_INIT;
    pst_scheduler_config config = PST_SCHEDULER_CONFIG_INIT;
    *self = (scene){.device = device};
    open_parts(self);
    pool.num_pages = 1;
    bench_check_status(pst_pool_create(device, &pool, &self->pool));
    schedule.num_stages = STAGES;
    schedule.num_micro_batches = micro_batches;
    bench_check_status(pst_schedule_create(&schedule, &self->schedule));
    for (uint32_t l = 0; l < chosen.layers; l++)
        self->layers[l] =
            (pst_layer){.layer = l, .keep = keep, .num_parts = 1, .parts = &self->part};
    config.pool = self->pool;
    config.schedule = self->schedule;
    config.layers = self->layers;
    config.num_layers = chosen.layers;
    config.num_sources = config.num_destinations = SETS;
    bench_check_status(pst_scheduler_create(&config, &self->scheduler));
}

static void close_scene(const scene *self)
{
    bench_check_status(pst_scheduler_destroy(self->scheduler));
    pst_schedule_destroy(self->schedule);
    bench_check_status(pst_pool_destroy(self->pool));
    bench_check_status(pst_group_destroy(self->group));
}

/* ---- steps ---- */

static pst_status run_pass(const scene *self, const pst_pass *pass)
{
    pst_status status = PST_OK;
    pst_visit visit;
    const uint32_t m = pass->micro_batch;
    for (uint32_t n = 0; n < chosen.layers && status == PST_OK; n++) {
        const uint32_t back = chosen.layers - 1 - n;
        if (pass->kind == PST_PASS_FORWARD) {
            status = pst_scheduler_forward_begin(self->scheduler, 0, n, m, NULL, &visit);
            if (status == PST_OK)
                status = pst_scheduler_forward_end(self->scheduler, 0, n, m, NULL, NULL);
        } else {
            status =
                pst_scheduler_backward_begin(self->scheduler, pass->kind, 0, back, m, NULL, &visit);
            if (status == PST_OK)
                status = pst_scheduler_backward_end(self->scheduler, pass->kind, 0, back, m, NULL);
        }
    }
    return status;
}

/* Nanoseconds of a step, its begin and end left out. */
static double time_step(const scene *self, uint64_t num_passes)
{
    pst_status status = PST_OK;
    pst_pass pass = {0};
    double seconds = 0;
    bench_check_status(pst_scheduler_step_begin(self->scheduler, NULL, NULL));
    num_calls = 0;
    for (uint64_t i = 0; i < num_passes && status == PST_OK; i++) {
        bench_check_status(pst_schedule_get_pass(self->schedule, i, &pass));
        const double begin = bench_now();
        status = run_pass(self, &pass);
        seconds += bench_now() - begin;
    }
    bench_check_status(status);
    const uint64_t calls = num_calls;
    bench_check_status(pst_scheduler_step_end(self->scheduler, NULL));
    num_calls = calls;
    return seconds * 1e9;
}

static void report(const char *name, bench_times ns, double calls, double target)
{
    json_t *row = json_object();
    json_put(&row, "name", json_string(name));
    json_put(&row, "ns_median", json_real(ns.median));
    json_put(&row, "ns_min", json_real(ns.min));
    json_put(&row, "device_calls", json_real(calls));
    json_put(&row, "target_ns", target > 0 ? json_real(target) : json_null());
    json_array_append_new(rows, row);
    if (table == NULL)
        return;
    fprintf(table, "%-44s %8.1f ns %8.1f min %6.2f calls", name, ns.median, ns.min, calls);
    if (target > 0)
        fprintf(table, "   target %.0f: %s", target, ns.median <= target ? "met" : "MISSED");
    fprintf(table, "\n");
}

/* per: hooks of which the time is said. */
static void run(pst_device *device, pst_keep keep, uint32_t micro_batches, uint32_t per,
                double target)
{
    static scene self;
    bench_series series = {.num = 0};
    char name[96];
    const uint64_t passes = 2 * (uint64_t)micro_batches;
    open_scene(&self, device, keep, micro_batches);
    const double units = (double)(passes * chosen.layers * 2) / per;
    time_step(&self, passes);
    for (uint32_t i = 0; i < chosen.samples; i++)
        bench_series_add(&series, time_step(&self, passes) / units);
    snprintf(name, sizeof(name), "%s, %u micro-batches",
             per == 1 ? "a hook that enqueues nothing" : "both hooks of a visit in pages",
             micro_batches);
    report(name, bench_summary(&series), (double)num_calls / units, target);
    close_scene(&self);
}

static void run_empty(void)
{
    enum { CALLS = 100000 };
    bench_series series = {.num = 0};
    int sum = 0;
    for (uint32_t i = 0; i < chosen.samples; i++) {
        const double begin = bench_now();
        for (int call = 0; call < CALLS; call++)
            sum += pst_version() != 0;
        bench_series_add(&series, (bench_now() - begin) * 1e9 / CALLS);
    }
    if (sum != (int)chosen.samples * CALLS)
        exit(tool_fail(TOOL_NO, "the calls were left out"));
    report("an empty call", bench_summary(&series), 0, 0);
}

static void run_all(void)
{
    static const uint32_t micro_batches[] = {8, 64, 512};
    pst_device *host = NULL;
    bench_check_status(pst_device_open("host", 0, &host));
    psti_device_ops ops = *host->ops;
    ops.launch = count_launch;
    ops.event_record = ops.event_wait = count_event;
    ops.capture_of = count_query;
    const psti_device_ops *real = host->ops;
    run_empty();
    host->ops = &ops;
#if PSTI_HAVE_CUDA
    host->info.num_sms = 132;
    host->info.backends = 1u << PST_BACKEND_LDG;
#endif
    for (uint32_t i = 0; i < 3; i++)
        run(host, PST_KEEP_PLANNED, micro_batches[i], 1, 150);
    for (uint32_t i = 0; i < 3; i++)
        run(host, PST_KEEP_PAGED, micro_batches[i], 2, 1500);
    host->ops = real;
    bench_check_status(pst_device_close(host));
}

int main(int argc, char **argv)
{
#define FLAG_OPTIONS options
    static const flag flags[] = {SCHEDULER_FLAGS(FLAG_ROW)};
    static const flag_table flag_list = {
        .command = "pagestash-scheduler-bench",
        .doc = "What hooks of the scheduler cost the calling thread.",
        .groups = {FLAG_GROUP(flags, 0)},
        .json = offsetof(options, json),
    };
    tool_name = "pagestash-scheduler-bench";
    TOOL_TRY(flags_parse(&flag_list, argc, argv, &chosen));
    rows = json_array();
    table = chosen.json != NULL && strcmp(chosen.json, "-") == 0 ? NULL : stdout;
    run_all();
    if (chosen.json != NULL) {
        json_t *out = json_begin("pagestash-scheduler-bench", 1);
        json_put_whole(&out, "layers", chosen.layers);
        json_put_whole(&out, "tensors", chosen.tensors);
        json_put_whole(&out, "samples", chosen.samples);
        json_put(&out, "with_cuda", json_boolean(PSTI_HAVE_CUDA));
        json_put(&out, "rows", rows);
        TOOL_TRY(json_write(out, chosen.json));
    }
    return tool_flush(TOOL_OK);
}
