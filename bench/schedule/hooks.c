/* What the hooks cost the calling thread: a device that only counts stands behind them. */
#include "bench/schedule/schedule_bench.h"
#include "bench/stash/counting.h"

enum { STAGES = 4, LAYERS = 32, TENSORS = 6, SETS = 2, ROWS = 4096, ROW_BYTES = 1024 };

static uint64_t num_edges;

static pst_status count_edge(pst_device *device, pst_event event, pst_stream stream, bool external)
{
    (void)device;
    (void)event;
    (void)stream;
    (void)external;
    num_edges++;
    return PST_OK;
}

typedef struct scene {
    pst_device *device;
    pst_pool *pool;
    pst_group *group;
    pst_schedule *schedule;
    pst_scheduler *scheduler;
    pst_pass *passes;
    uint64_t num_passes;
} scene;

static void open_pool(scene *self)
{
    const pst_row_space space = {.count_type = PST_COUNT_INT64, .capacity = ROWS};
    pst_tensor tensors[TENSORS] = {{0}};
    pst_group_config form = PST_GROUP_CONFIG_INIT;
    form.spaces = &space;
    form.num_spaces = 1;
    form.tensors = tensors;
    form.num_tensors = TENSORS;
    for (uint32_t t = 0; t < TENSORS; t++)
        tensors[t].row_bytes = ROW_BYTES;
    bench_check_status(pst_group_create(&form, &self->group));
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.num_pages = 1;
    bench_check_status(pst_pool_create(self->device, &config, &self->pool));
}

static void open_schedule(scene *self, uint32_t num_micro_batches)
{
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    pst_schedule_info info;
    config.num_stages = STAGES;
    config.num_micro_batches = num_micro_batches;
    bench_check_status(pst_schedule_create(&config, &self->schedule));
    bench_check_status(pst_schedule_get_info(self->schedule, &info));
    self->num_passes = info.num_passes;
    self->passes = bench_need(calloc(info.num_passes, sizeof(*self->passes)));
    for (uint64_t n = 0; n < info.num_passes; n++)
        bench_check_status(pst_schedule_get_pass(self->schedule, n, &self->passes[n]));
}

static void open_scheduler(scene *self, pst_keep keep)
{
    static const int64_t count = ROWS;
    static unsigned char memory[ROWS * ROW_BYTES]; /* nothing reads or writes it */
    void *const bases[TENSORS] = {memory, memory, memory, memory, memory, memory};
    const void *const counts[] = {&count};
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = bases;
    buffers.counts = counts;
    const pst_buffers *const sets[SETS] = {&buffers, &buffers};
    const pst_part part = {.group = self->group, .sources = sets, .destinations = sets};
    pst_layer layers[LAYERS] = {{0}};
    for (uint32_t i = 0; i < LAYERS; i++) {
        layers[i].layer = i;
        layers[i].keep = keep;
        if (keep == PST_KEEP_PAGED) {
            layers[i].parts = &part;
            layers[i].num_parts = 1;
        }
    }
    pst_scheduler_config config = PST_SCHEDULER_CONFIG_INIT;
    config.pool = self->pool;
    config.schedule = self->schedule;
    config.layers = layers;
    config.num_layers = LAYERS;
    bench_check_status(pst_scheduler_create(&config, &self->scheduler));
}

static void close_scene(scene *self)
{
    bench_check_status(pst_scheduler_destroy(self->scheduler));
    pst_schedule_destroy(self->schedule);
    bench_check_status(pst_pool_destroy(self->pool));
    bench_check_status(pst_group_destroy(self->group));
    free(self->passes);
}

/* All hooks of a step; the step's begin and end are not timed. */
static double run_step(scene *self)
{
    pst_status status = PST_OK;
    pst_visit visit;
    bench_check_status(pst_scheduler_step_begin(self->scheduler, NULL, NULL));
    counting_launches = num_edges = 0;
    const double begin = bench_now();
    for (uint64_t n = 0; n < self->num_passes; n++) {
        const pst_pass *pass = &self->passes[n];
        for (uint32_t i = 0; i < LAYERS; i++)
            if (pass->kind == PST_PASS_FORWARD) {
                status |= pst_scheduler_forward_begin(self->scheduler, 0, i, pass->micro_batch,
                                                      NULL, &visit);
                status |=
                    pst_scheduler_forward_end(self->scheduler, 0, i, pass->micro_batch, NULL, NULL);
            } else {
                status |=
                    pst_scheduler_backward_begin(self->scheduler, pass->kind, 0, LAYERS - 1 - i,
                                                 pass->micro_batch, NULL, &visit);
                status |= pst_scheduler_backward_end(self->scheduler, pass->kind, 0, LAYERS - 1 - i,
                                                     pass->micro_batch, NULL);
            }
    }
    const double seconds = bench_now() - begin;
    bench_check_status(status);
    bench_check_status(pst_scheduler_step_end(self->scheduler, NULL));
    return seconds;
}

static bench_times time_hooks(const bench_options *options, pst_device *device, pst_keep keep,
                              uint32_t num_micro_batches, double hooks_each, bench_hook_cost *out)
{
    static bench_series series;
    scene self = {.device = device};
    series.num = 0;
    open_pool(&self);
    open_schedule(&self, num_micro_batches);
    open_scheduler(&self, keep);
    const double hooks = 2.0 * (double)(self.num_passes * LAYERS);
    run_step(&self);
    for (uint32_t i = 0; i < options->samples; i++)
        bench_series_add(&series, run_step(&self) * 1e9 / (hooks / hooks_each));
    if (keep == PST_KEEP_PAGED) {
        out->launches = 2.0 * (double)counting_launches / hooks;
        out->edges = 2.0 * (double)num_edges / hooks;
    }
    close_scene(&self);
    return bench_summary(&series);
}

static pst_status empty_call(uint32_t chunk, uint32_t layer, uint32_t micro_batch,
                             pst_stream stream, pst_visit *visit_out)
{
    (void)chunk;
    (void)layer;
    (void)micro_batch;
    (void)stream;
    (void)visit_out;
    return PST_OK;
}

static bench_times time_empty(const bench_options *options)
{
    enum { CALLS = 1000 };
    static bench_series series;
    pst_status (*volatile call)(uint32_t, uint32_t, uint32_t, pst_stream, pst_visit *) = empty_call;
    pst_status status = PST_OK;
    for (uint32_t i = 0; i < options->samples; i++) {
        const double begin = bench_now();
        for (uint32_t k = 0; k < CALLS; k++)
            status |= call(0, 0, k, NULL, NULL);
        bench_series_add(&series, (bench_now() - begin) * 1e9 / CALLS);
    }
    bench_check_status(status);
    return bench_summary(&series);
}

int bench_measure_hooks(const bench_options *options, bench_hook_cost *out)
{
    pst_device *host = NULL;
    *out = (bench_hook_cost){.micro_batches = {8, 64, 512}, .has_cuda_path = PSTI_HAVE_CUDA != 0};
    TOOL_PST(pst_device_open("host", 0, &host));
    /* the memory of host, the launches of nobody */
    psti_device_ops ops = *host->ops;
    ops.launch = counting_launch;
    ops.capture_of = counting_capture_of;
    ops.event_record = count_edge;
    ops.event_wait = count_edge;
    pst_device device = *host;
    device.ops = &ops;
    if (PSTI_HAVE_CUDA) {
        device.info.kind = PST_DEVICE_CUDA;
        device.info.num_sms = COUNTING_SMS;
        device.info.backends = 1u << PST_BACKEND_LDG;
    }
    out->empty = time_empty(options);
    for (int i = 0; i < BENCH_HOOK_SIZES; i++) {
        tool_progress("hooks", (unsigned)i, BENCH_HOOK_SIZES);
        const uint32_t num = out->micro_batches[i];
        out->planned[i] = time_hooks(options, &device, PST_KEEP_PLANNED, num, 1, out);
        out->paged[i] = time_hooks(options, &device, PST_KEEP_PAGED, num, 2, out);
    }
    tool_progress("hooks", BENCH_HOOK_SIZES, BENCH_HOOK_SIZES);
    return tool_status(pst_device_close(host));
}
