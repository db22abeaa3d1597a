/* What the scheduler hides on a device: the same layers kept in several ways, in turn, in one process.
 * A layer's work is a matrix product where cuBLAS is to be had, else a plain copy. */
#include "bench/schedule/schedule_bench.h"
#include "bench/stash/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STAGES = 4, ROW_BYTES = 4096, CAPACITY_FACTOR = 2, MAX_LAYERS = 256 };

typedef enum way_kind {
    WAY_NOTHING, /* the layers' work alone */
    WAY_INLINE,  /* stash and restore on the layers' own stream, no overlap */
    WAY_SCHEDULER
} way_kind;

typedef struct way {
    const char *name;
    way_kind kind;
    pst_keep keep;
    pst_restore_rule rule;
    uint32_t sources, destinations, streams;
} way;

/* The order of measuring, and of the report. */
static const way ways[] = {
    {.name = "nothing kept", .kind = WAY_NOTHING},
    {.name = "no overlap", .kind = WAY_INLINE},
    {"rule next, 2 + 2", WAY_SCHEDULER, PST_KEEP_PAGED, PST_RESTORE_NEXT, 2, 2, 1},
    {"2 + 2, one stream", WAY_SCHEDULER, PST_KEEP_PAGED, PST_RESTORE_ASAP, 2, 2, 1},
    {"2 + 2, two streams", WAY_SCHEDULER, PST_KEEP_PAGED, PST_RESTORE_ASAP, 2, 2, 2},
    {"2 + 3, two streams", WAY_SCHEDULER, PST_KEEP_PAGED, PST_RESTORE_ASAP, 2, 3, 2},
    {"pinned copies of static shapes", WAY_SCHEDULER, PST_KEEP_SWAPPED, PST_RESTORE_ASAP, 2, 2, 2},
};

enum { NUM_WAYS = sizeof(ways) / sizeof(ways[0]) };
_Static_assert((int)NUM_WAYS <= (int)BENCH_MAX_WAYS, "a way too many");

typedef struct scene {
    const bench_options *options;
    pst_device *device;
    pst_device_info info;
    pst_stream stream;
    pst_event begin, end;
    bench_gemm gemm;
    bool has_gemm;
    void *copy_from, *copy_to; /* what a layer's work copies without a GEMM */
    uint64_t live_bytes, static_bytes;
    pst_group *group;
    void *sets[2 * PST_MAX_SETS];
    void *count;
    pst_schedule *schedule;
    pst_pass *passes;
    uint64_t num_passes;
    uint64_t page_bytes, visit_pages;

    /* of a way */
    const way *way;
    pst_pool *pool;
    pst_scheduler *scheduler;
    pst_ticket tickets[MAX_LAYERS][STAGES];
} scene;

static int run_core(const scene *self)
{
    if (self->has_gemm)
        return bench_gemm_run(&self->gemm, 0);
    return tool_status(pst_device_copy(self->device, self->copy_to, self->copy_from,
                                       self->live_bytes, self->stream));
}

static void buffers_of(const scene *self, uint32_t set, const void **counts, void **base,
                       pst_buffers *out)
{
    *out = (pst_buffers)PST_BUFFERS_INIT;
    *counts = self->count;
    *base = self->sets[set];
    out->bases = base;
    out->counts = counts;
}

static int run_inline(const scene *self, const pst_pass *pass, uint32_t layer)
{
    const pst_ticket ticket = self->tickets[layer][pass->micro_batch % STAGES];
    const void *counts;
    void *base;
    pst_buffers buffers;
    buffers_of(self, pass->kind == PST_PASS_FORWARD ? 0 : 2, &counts, &base, &buffers);
    if (pass->kind == PST_PASS_FORWARD) {
        TOOL_TRY(run_core(self));
        return tool_status(pst_ticket_stash(ticket, self->group, &buffers, NULL, self->stream));
    }
    TOOL_PST(pst_ticket_restore(ticket, self->group, &buffers, NULL, self->stream));
    TOOL_TRY(run_core(self));
    return run_core(self);
}

static int run_visit(const scene *self, const pst_pass *pass, uint32_t layer)
{
    pst_visit visit;
    if (self->way->kind == WAY_INLINE)
        return run_inline(self, pass, layer);
    const bool has_hooks = self->way->kind == WAY_SCHEDULER;
    if (pass->kind == PST_PASS_FORWARD) {
        if (has_hooks)
            TOOL_PST(pst_scheduler_forward_begin(self->scheduler, 0, layer, pass->micro_batch,
                                                 self->stream, &visit));
        TOOL_TRY(run_core(self));
        if (has_hooks)
            TOOL_PST(pst_scheduler_forward_end(self->scheduler, 0, layer, pass->micro_batch, NULL,
                                               self->stream));
        return TOOL_OK;
    }
    if (has_hooks)
        TOOL_PST(pst_scheduler_backward_begin(self->scheduler, pass->kind, 0, layer,
                                              pass->micro_batch, self->stream, &visit));
    TOOL_TRY(run_core(self)); /* a backward is twice a forward */
    TOOL_TRY(run_core(self));
    if (has_hooks)
        TOOL_PST(pst_scheduler_backward_end(self->scheduler, pass->kind, 0, layer,
                                            pass->micro_batch, self->stream));
    return TOOL_OK;
}

static int run_iteration(const scene *self)
{
    const uint32_t layers = self->options->layers;
    if (self->way->kind == WAY_SCHEDULER)
        TOOL_PST(pst_scheduler_step_begin(self->scheduler, NULL, self->stream));
    for (uint64_t n = 0; n < self->num_passes; n++)
        for (uint32_t i = 0; i < layers; i++) {
            const bool is_forward = self->passes[n].kind == PST_PASS_FORWARD;
            TOOL_TRY(run_visit(self, &self->passes[n], is_forward ? i : layers - 1 - i));
        }
    if (self->way->kind == WAY_SCHEDULER)
        return tool_status(pst_scheduler_step_end(self->scheduler, self->stream));
    return self->pool != NULL ? tool_status(pst_pool_step(self->pool, self->stream)) : TOOL_OK;
}

/* ---- a way's pool and scheduler ---- */

static uint64_t visits_of(const scene *self)
{
    return self->num_passes * self->options->layers;
}

/* Pages are those of the rule with most. */
static int open_pool(scene *self)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = self->page_bytes;
    config.num_pages = self->visit_pages * self->options->layers * STAGES;
    config.mode = self->way->streams > 1 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    config.max_tickets = self->options->layers * STAGES;
    return tool_status(pst_pool_create(self->device, &config, &self->pool));
}

static int open_tickets(scene *self)
{
    for (uint32_t i = 0; i < self->options->layers; i++)
        for (uint32_t slot = 0; slot < STAGES; slot++)
            TOOL_PST(pst_ticket_create(self->pool, self->group, &self->tickets[i][slot]));
    return TOOL_OK;
}

static int open_scheduler(scene *self)
{
    const way *is = self->way;
    static pst_layer layers[MAX_LAYERS];
    const void *counts[2 * PST_MAX_SETS];
    void *bases[2 * PST_MAX_SETS];
    pst_buffers buffers[2 * PST_MAX_SETS];
    const pst_buffers *sources[PST_MAX_SETS], *destinations[PST_MAX_SETS];
    for (uint32_t i = 0; i < is->sources; i++) {
        buffers_of(self, i, &counts[i], &bases[i], &buffers[i]);
        sources[i] = &buffers[i];
    }
    for (uint32_t i = 0; i < is->destinations; i++) {
        const uint32_t set = is->sources + i;
        buffers_of(self, set, &counts[set], &bases[set], &buffers[set]);
        destinations[i] = &buffers[set];
    }
    const pst_part part = {.group = self->group, .sources = sources, .destinations = destinations};
    memset(layers, 0, sizeof(layers));
    for (uint32_t i = 0; i < self->options->layers; i++) {
        layers[i].layer = i;
        layers[i].keep = is->keep;
        if (is->keep == PST_KEEP_PAGED) {
            layers[i].parts = &part;
            layers[i].num_parts = 1;
            continue;
        }
        layers[i].buffers[0] = self->sets[0];
        layers[i].buffers[1] = self->sets[1];
        layers[i].whole_bytes = self->static_bytes;
    }
    pst_scheduler_config config = PST_SCHEDULER_CONFIG_INIT;
    config.pool = self->pool;
    config.schedule = self->schedule;
    config.layers = layers;
    config.num_layers = self->options->layers;
    config.num_sources = is->sources;
    config.num_destinations = is->destinations;
    config.num_streams = is->streams;
    config.rule = is->rule;
    config.measures = true;
    return tool_status(pst_scheduler_create(&config, &self->scheduler));
}

static int open_way(scene *self, const way *is)
{
    self->way = is;
    self->pool = NULL;
    self->scheduler = NULL;
    if (is->kind == WAY_NOTHING)
        return TOOL_OK;
    TOOL_TRY(open_pool(self));
    return is->kind == WAY_INLINE ? open_tickets(self) : open_scheduler(self);
}

/* On cuda a destroyed graph lets go a moment later. */
static int close_way(scene *self)
{
    TOOL_PST(pst_device_synchronize(self->device));
    if (self->way->kind == WAY_INLINE)
        for (uint32_t i = 0; i < self->options->layers; i++)
            for (uint32_t slot = 0; slot < STAGES; slot++)
                TOOL_PST(pst_ticket_destroy(self->tickets[i][slot]));
    for (double until = bench_now() + 5;;) {
        const pst_status status = pst_scheduler_destroy(self->scheduler);
        if (status == PST_OK)
            break;
        if (status != PST_E_BUSY || bench_now() > until)
            return tool_status(status);
    }
    return tool_status(pst_pool_destroy(self->pool));
}

/* ---- times ---- */

static int time_between(const scene *self, int (*enqueue)(const scene *), double scale,
                        bench_series *series)
{
    double seconds;
    TOOL_PST(pst_event_record(self->device, self->begin, self->stream));
    TOOL_TRY(enqueue(self));
    TOOL_PST(pst_event_record(self->device, self->end, self->stream));
    TOOL_PST(pst_stream_synchronize(self->device, self->stream));
    TOOL_PST(pst_event_elapsed(self->device, self->begin, self->end, &seconds));
    bench_series_add(series, seconds * scale);
    return TOOL_OK;
}

static pst_graph *launched;
static double launch_seconds;

static int launch(const scene *self)
{
    const double begin = bench_now();
    TOOL_PST(pst_graph_launch(launched, self->stream));
    launch_seconds = bench_now() - begin;
    return TOOL_OK;
}

static int check_step(const scene *self)
{
    pst_pool_status status;
    if (self->pool == NULL)
        return TOOL_OK;
    TOOL_PST(pst_pool_poll(self->pool, &status));
    if (!status.step_valid || status.in_use[0] != 0)
        return tool_fail(TOOL_NO, "%s: %u faults, %llu pages left", self->way->name,
                         status.num_faults, (unsigned long long)status.in_use[0]);
    return TOOL_OK;
}

static int time_eager(scene *self, bench_way *out)
{
    static bench_series series;
    series.num = 0;
    TOOL_TRY(run_iteration(self)); /* the first is not counted */
    TOOL_PST(pst_stream_synchronize(self->device, self->stream));
    for (uint32_t i = 0; i < self->options->samples; i++)
        TOOL_TRY(time_between(self, run_iteration, 1e3, &series));
    TOOL_TRY(check_step(self));
    out->eager_ms = bench_summary(&series);
    out->waited_us = NAN;
    if (self->scheduler == NULL)
        return TOOL_OK;
    pst_scheduler_stats stats;
    TOOL_PST(pst_scheduler_get_stats(self->scheduler, &stats));
    if (stats.measured_steps != 0)
        out->waited_us = (double)(stats.exposed_forward_ns + stats.exposed_backward_ns) / 1e3 /
                         (double)(stats.measured_steps * visits_of(self));
    return TOOL_OK;
}

static int time_graph(scene *self, bench_way *out)
{
    static bench_series series, launches;
    pst_graph_info info;
    series.num = launches.num = 0;
    TOOL_PST(pst_graph_begin(self->device, self->stream));
    TOOL_TRY(run_iteration(self));
    TOOL_PST(pst_graph_end(self->device, self->stream, &launched));
    TOOL_PST(pst_graph_get_info(launched, &info));
    TOOL_TRY(launch(self));
    TOOL_PST(pst_stream_synchronize(self->device, self->stream));
    for (uint32_t i = 0; i < self->options->samples; i++) {
        TOOL_TRY(time_between(self, launch, 1e3, &series));
        bench_series_add(&launches, launch_seconds * 1e6);
    }
    TOOL_TRY(check_step(self));
    out->graph_ms = bench_summary(&series);
    out->nodes = (double)info.num_nodes / (double)visits_of(self);
    out->launch_us = bench_summary(&launches).median / (double)visits_of(self);
    return tool_status(pst_graph_destroy(launched));
}

static int stash_alone(const scene *self)
{
    const void *counts;
    void *base;
    pst_buffers buffers;
    buffers_of(self, 0, &counts, &base, &buffers);
    return tool_status(
        pst_ticket_stash(self->tickets[0][0], self->group, &buffers, NULL, self->stream));
}

static int restore_alone(const scene *self)
{
    const void *counts;
    void *base;
    pst_buffers buffers;
    buffers_of(self, 2, &counts, &base, &buffers);
    return tool_status(
        pst_ticket_restore(self->tickets[0][0], self->group, &buffers, NULL, self->stream));
}

/* What the simulator is told. */
static int time_parts(scene *self, bench_hidden *out)
{
    static bench_series core, stash, restore;
    TOOL_TRY(open_way(self, &ways[1]));
    const uint32_t first = self->options->layers * STAGES; /* before, pages are new */
    for (uint32_t i = 0; i < first + self->options->samples; i++) {
        if (i == first)
            core.num = stash.num = restore.num = 0;
        TOOL_TRY(time_between(self, run_core, 1e6, &core));
        TOOL_TRY(time_between(self, stash_alone, 1e6, &stash));
        TOOL_TRY(time_between(self, restore_alone, 1e6, &restore));
    }
    out->core_us = bench_summary(&core);
    out->stash_us = bench_summary(&stash);
    out->restore_us = bench_summary(&restore);
    return close_way(self);
}

static int simulate(const scene *self, const bench_hidden *parts, bench_way *out)
{
    static pst_simulated_layer layers[MAX_LAYERS];
    const way *is = self->way;
    const uint32_t num_layers = self->options->layers;
    const uint64_t core = (uint64_t)(parts->core_us.median * 1e3);
    const pst_group_usage usage = {self->live_bytes, self->live_bytes, self->visit_pages};
    const pst_schedule *schedule = self->schedule;
    const pst_simulated_layer *stage = layers;
    pst_simulation simulation;
    pst_stage_result result;
    for (uint32_t i = 0; i < num_layers; i++) {
        layers[i] = (pst_simulated_layer)PST_SIMULATED_LAYER_INIT;
        layers[i].layer = i;
        layers[i].forward.core = core;
        layers[i].backward.core = 2 * core;
        layers[i].usages = &usage;
        layers[i].num_usages = 1;
    }
    pst_simulation_config config = PST_SIMULATION_CONFIG_INIT;
    config.num_stages = 1;
    config.alone = true;
    config.schedules = &schedule;
    config.layers = &stage;
    config.num_layers = &num_layers;
    config.num_sources = is->sources;
    config.num_destinations = is->destinations;
    config.num_streams = is->streams;
    config.rule = is->rule;
    config.mode = is->streams > 1 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    config.num_pages[0] = UINT64_MAX;
    config.page_bytes = self->page_bytes;
    config.rates.stash_fixed_ns = (uint64_t)(parts->stash_us.median * 1e3);
    config.rates.restore_fixed_ns = (uint64_t)(parts->restore_us.median * 1e3);
    config.in_call_order = self->info.kind == PST_DEVICE_HOST;
    TOOL_PST(pst_simulate(&config, &simulation, &result));
    out->simulated_us = (double)(result.exposed_forward_ns + result.exposed_backward_ns) / 1e3 /
                        (double)visits_of(self);
    out->simulated_high_water = result.demand_high_water;
    out->is_order_known = is->streams == 1 || config.in_call_order;
    return TOOL_OK;
}

static int judge_pages(const scene *self, bench_way *out)
{
    pst_pool_status status;
    TOOL_PST(pst_pool_poll(self->pool, &status));
    out->high_water = status.demand_high_water;
    if (out->is_order_known && out->high_water != out->simulated_high_water)
        return tool_fail(TOOL_NO, "%s: %llu pages, simulated %llu", out->name,
                         (unsigned long long)out->high_water,
                         (unsigned long long)out->simulated_high_water);
    return TOOL_OK;
}

static int measure_way(scene *self, const way *is, bench_hidden *out)
{
    bench_way *way_out = &out->ways[out->num_ways++];
    *way_out = (bench_way){.name = is->name, .simulated_us = NAN};
    TOOL_TRY(open_way(self, is));
    TOOL_TRY(time_eager(self, way_out));
    TOOL_TRY(time_graph(self, way_out));
    way_out->exposed_us =
        (way_out->graph_ms.median - out->ways[0].graph_ms.median) * 1e3 / (double)visits_of(self);
    if (is->kind == WAY_SCHEDULER && is->keep == PST_KEEP_PAGED) {
        TOOL_TRY(simulate(self, out, way_out));
        TOOL_TRY(judge_pages(self, way_out));
    }
    return close_way(self);
}

/* ---- the scene ---- */

static int take(scene *self, uint64_t bytes, void **out)
{
    TOOL_PST(pst_device_alloc(self->device, bytes, out));
    return tool_status(pst_device_fill(self->device, *out, 0x5a, bytes, self->stream));
}

static int open_sizes(scene *self)
{
    const bool is_host = self->info.kind == PST_DEVICE_HOST;
    const uint64_t live =
        self->options->live != 0 ? self->options->live : (uint64_t)(is_host ? 4 : 256) << 20;
    const int64_t rows = (int64_t)(live / ROW_BYTES);
    self->live_bytes = (uint64_t)rows * ROW_BYTES;
    self->static_bytes = self->live_bytes * CAPACITY_FACTOR;
    self->page_bytes = PST_PAGE_BYTES_DEFAULT;
    const pst_row_space space = {.count_type = PST_COUNT_INT64, .capacity = rows * CAPACITY_FACTOR};
    const pst_tensor tensor = {.row_bytes = ROW_BYTES};
    pst_group_config form = PST_GROUP_CONFIG_INIT;
    pst_group_usage usage;
    form.spaces = &space;
    form.num_spaces = 1;
    form.tensors = &tensor;
    form.num_tensors = 1;
    TOOL_PST(pst_group_create(&form, &self->group));
    TOOL_PST(pst_group_measure(self->group, &rows, self->page_bytes, &usage));
    self->visit_pages = usage.pages;
    for (uint32_t i = 0; i < 5; i++)
        TOOL_TRY(take(self, self->static_bytes, &self->sets[i]));
    TOOL_TRY(take(self, self->live_bytes, &self->copy_from));
    TOOL_TRY(take(self, self->live_bytes, &self->copy_to));
    TOOL_TRY(take(self, sizeof(rows), &self->count));
    TOOL_PST(pst_device_copy(self->device, self->count, &rows, sizeof(rows), self->stream));
    return tool_status(pst_stream_synchronize(self->device, self->stream));
}

static int open_scene(scene *self, bench_hidden *out)
{
    static const char *const names[] = {"auto", "host", "cuda"};
    const char *missing = "not on host";
    pst_schedule_config order = PST_SCHEDULE_CONFIG_INIT;
    pst_schedule_info info;
    TOOL_PST(pst_device_open(names[self->options->device], 0, &self->device));
    TOOL_PST(pst_device_get_info(self->device, &self->info));
    TOOL_PST(pst_stream_create(self->device, &self->stream));
    TOOL_PST(pst_event_create(self->device, &self->begin));
    TOOL_PST(pst_event_create(self->device, &self->end));
    if (self->info.kind == PST_DEVICE_CUDA)
        TOOL_TRY(bench_gemm_open(&self->gemm, self->device, self->stream, &missing));
    self->has_gemm = missing == NULL;
    TOOL_TRY(open_sizes(self));
    order.num_stages = STAGES;
    order.num_micro_batches = self->options->micro_batches;
    TOOL_PST(pst_schedule_create(&order, &self->schedule));
    TOOL_PST(pst_schedule_get_info(self->schedule, &info));
    self->num_passes = info.num_passes;
    self->passes = bench_need(calloc(info.num_passes, sizeof(*self->passes)));
    for (uint64_t n = 0; n < info.num_passes; n++)
        TOOL_PST(pst_schedule_get_pass(self->schedule, n, &self->passes[n]));
    out->device = self->info;
    out->core =
        self->has_gemm ? "a product of bf16 matrices, 8192 cubed" : "a copy of the live bytes";
    out->live_bytes = self->live_bytes;
    out->visits = visits_of(self);
    return TOOL_OK;
}

static int close_scene(scene *self)
{
    TOOL_PST(pst_device_synchronize(self->device));
    if (self->has_gemm)
        TOOL_TRY(bench_gemm_close(&self->gemm));
    for (uint32_t i = 0; i < 5; i++)
        TOOL_PST(pst_device_free(self->device, self->sets[i]));
    TOOL_PST(pst_device_free(self->device, self->copy_from));
    TOOL_PST(pst_device_free(self->device, self->copy_to));
    TOOL_PST(pst_device_free(self->device, self->count));
    TOOL_PST(pst_group_destroy(self->group));
    pst_schedule_destroy(self->schedule);
    free(self->passes);
    TOOL_PST(pst_event_destroy(self->device, self->begin));
    TOOL_PST(pst_event_destroy(self->device, self->end));
    TOOL_PST(pst_stream_destroy(self->device, self->stream));
    return tool_status(pst_device_close(self->device));
}

int bench_measure_hidden(const bench_options *options, bench_hidden *out)
{
    static scene self;
    self = (scene){.options = options};
    *out = (bench_hidden){.num_ways = 0};
    TOOL_TRY(open_scene(&self, out));
    TOOL_TRY(time_parts(&self, out));
    for (uint32_t i = 0; i < NUM_WAYS; i++) {
        tool_progress("way", i, NUM_WAYS);
        TOOL_TRY(measure_way(&self, &ways[i], out));
    }
    tool_progress("way", NUM_WAYS, NUM_WAYS);
    return close_scene(&self);
}
