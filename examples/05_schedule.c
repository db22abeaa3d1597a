/* One GPU of a pipeline under the scheduler: the first of 4 stages runs 1F1B over 8 micro-batches, its
 * MoE layers are paged, two dense ones swapped to pinned memory, one stays where it was planned. One
 * captured iteration is replayed with changing row counts, beside what the simulator says of it. */
#include <pagestash/pagestash.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"

enum {
    STAGES = 4,
    MICRO_BATCHES = 8,
    LAYERS = 5, /* dense, MoE, dense, MoE, dense */
    SETS = 2,   /* of sources, and of destinations */
    SLOTS = STAGES,
    CAPACITY = 600, /* rows of an expert layer's static buffers */
    ROW_BYTES = 512,
    TOKENS = 256, /* of a dense layer */
    INPUT_BYTES = 64,
    TOKEN_BYTES = 256,
    SWAPPED_TOKENS = 160, /* the others are computed again */
    DENSE_BYTES = TOKENS * (INPUT_BYTES + TOKEN_BYTES),
    PAGE_BYTES = 16 * 1024,
    STEPS = 4
};

static const pst_keep keeps[LAYERS] = {PST_KEEP_SWAPPED, PST_KEEP_PAGED, PST_KEEP_SWAPPED,
                                       PST_KEEP_PAGED, PST_KEEP_PLANNED};

typedef struct scene {
    pst_device *device;
    pst_stream stream;
    pst_pool *pool;
    pst_schedule *schedule;
    pst_scheduler *scheduler;
    uint64_t num_passes;
    /* forms: live rows of an MoE layer; of a dense one what is swapped, and what is computed again */
    pst_group *live, *kept, *rest;
    void *sources[SETS], *source_counts[SETS], *destinations[SETS];
    void *rounding[2];           /* MEMO's buffers of swapped layers */
    void *planned[SLOTS];        /* of the last layer */
    int64_t *counts;             /* [MICRO_BATCHES][LAYERS], on the device as all below */
    int64_t *tokens;             /* TOKENS, SWAPPED_TOKENS, the difference */
    uint64_t *step, *mismatches; /* words */
} scene;

static void *device_memory(const scene *self, size_t bytes)
{
    void *address = NULL;
    CHECK(pst_device_alloc(self->device, bytes, &address));
    CHECK(pst_device_fill(self->device, address, 0, bytes, self->stream));
    return address;
}

static pst_pattern pattern_of(const scene *self, const pst_visit_key *key, uint64_t part)
{
    const uint64_t place = key->micro_batch * (uint64_t)LAYERS + key->layer;
    return (pst_pattern){.seed = 5, .key = place * 2 + part, .step = self->step};
}

/* What a layer's kernels do here: write a pattern in the forward, compare it in the backward. */
static void work(const scene *self, const pst_group *group, void *const *bases,
                 const void *const *counts, const pst_visit_key *key, uint64_t part)
{
    const pst_pattern pattern = pattern_of(self, key, part);
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = bases;
    buffers.counts = counts;
    if (key->kind == PST_PASS_FORWARD)
        CHECK(pst_group_fill(self->device, group, &buffers, &pattern, self->stream));
    else
        CHECK(pst_group_verify(self->device, group, &buffers, &pattern, PST_VERIFY_ANY,
                               self->mismatches, self->stream));
}

/* A dense layer: an input, then a row for each token; rows from first_token on are the second part. */
static void dense_work(const scene *self, const pst_visit_key *key, char *base, bool only_rest)
{
    void *const kept[] = {base, base + TOKENS * INPUT_BYTES};
    void *const rest[] = {base + TOKENS * INPUT_BYTES + SWAPPED_TOKENS * TOKEN_BYTES};
    const void *const kept_counts[] = {self->tokens, self->tokens + 1};
    const void *const rest_counts[] = {self->tokens + 2};
    if (!only_rest)
        work(self, self->kept, kept, kept_counts, key, 0);
    work(self, self->rest, rest, rest_counts, key, 1);
}

/* The rows of an MoE layer, and in the forward their number, which a fixed set keeps beside them. */
static void moe_work(const scene *self, const pst_visit_key *key, const pst_visit *visit)
{
    const bool is_forward = key->kind == PST_PASS_FORWARD;
    const void *counts[] = {self->counts + (size_t)key->micro_batch * LAYERS + key->layer};
    void *base = self->sources[visit->set];
    if (!is_forward && !visit->in_place)
        base = self->destinations[visit->set];
    if (is_forward)
        CHECK(pst_device_copy(self->device, self->source_counts[visit->set], counts[0],
                              sizeof(int64_t), self->stream));
    work(self, self->live, &base, counts, key, 0);
}

static void layer_work(const scene *self, const pst_visit_key *key, const pst_visit *visit)
{
    if (keeps[key->layer] == PST_KEEP_PAGED) {
        moe_work(self, key, visit);
    } else if (keeps[key->layer] == PST_KEEP_PLANNED) {
        dense_work(self, key, self->planned[visit->slot], false);
    } else {
        char *base = self->rounding[visit->set];
        if (visit->first_token < TOKENS && key->kind != PST_PASS_FORWARD) {
            pst_visit_key again = *key; /* those tokens were dropped */
            again.kind = PST_PASS_FORWARD;
            dense_work(self, &again, base, true);
        }
        dense_work(self, key, base, false);
    }
}

static void run_visit(const scene *self, const pst_visit_key *key)
{
    pst_visit visit;
    if (key->kind == PST_PASS_FORWARD) {
        CHECK(pst_scheduler_forward_begin(self->scheduler, key->chunk, key->layer, key->micro_batch,
                                          self->stream, &visit));
        layer_work(self, key, &visit);
        CHECK(pst_scheduler_forward_end(self->scheduler, key->chunk, key->layer, key->micro_batch,
                                        NULL, self->stream));
    } else {
        CHECK(pst_scheduler_backward_begin(self->scheduler, key->kind, key->chunk, key->layer,
                                           key->micro_batch, self->stream, &visit));
        layer_work(self, key, &visit);
        CHECK(pst_scheduler_backward_end(self->scheduler, key->kind, key->chunk, key->layer,
                                         key->micro_batch, self->stream));
    }
}

static void run_iteration(const scene *self)
{
    CHECK(pst_scheduler_step_begin(self->scheduler, NULL, self->stream));
    for (uint64_t n = 0; n < self->num_passes; n++) {
        pst_pass pass;
        CHECK(pst_schedule_get_pass(self->schedule, n, &pass));
        for (uint32_t i = 0; i < LAYERS; i++) {
            const bool is_forward = pass.kind == PST_PASS_FORWARD;
            const pst_visit_key key = {.kind = pass.kind,
                                       .layer = is_forward ? i : LAYERS - 1 - i,
                                       .micro_batch = pass.micro_batch};
            run_visit(self, &key);
        }
    }
    CHECK(pst_scheduler_step_end(self->scheduler, self->stream));
}

/* ---- what the simulator says ---- */

static int64_t rows_of(uint64_t step, uint32_t layer, uint32_t micro_batch)
{
    return (int64_t)((step * 101 + layer * 211 + micro_batch * 37) % CAPACITY);
}

static pst_stage_result simulate(const scene *self, uint64_t step)
{
    pst_simulated_layer layers[LAYERS];
    pst_group_usage usages[LAYERS][MICRO_BATCHES] = {{{0}}};
    for (uint32_t i = 0; i < LAYERS; i++) {
        layers[i] = (pst_simulated_layer)PST_SIMULATED_LAYER_INIT;
        layers[i].layer = i;
        layers[i].keep = keeps[i];
        if (keeps[i] != PST_KEEP_PAGED)
            continue;
        layers[i].usages = usages[i];
        layers[i].num_usages = MICRO_BATCHES;
        for (uint32_t m = 0; m < MICRO_BATCHES; m++) {
            const int64_t rows = rows_of(step, i, m);
            CHECK(pst_group_measure(self->live, &rows, PAGE_BYTES, &usages[i][m]));
        }
    }
    const pst_schedule *schedule = self->schedule;
    const pst_simulated_layer *stage = layers;
    const uint32_t num_layers = LAYERS;
    pst_simulation simulation;
    pst_stage_result result;
    pst_simulation_config config = PST_SIMULATION_CONFIG_INIT;
    config.num_stages = 1;
    config.alone = true; /* one stage, which waits for no other */
    config.schedules = &schedule;
    config.layers = &stage;
    config.num_layers = &num_layers;
    config.num_sources = config.num_destinations = SETS;
    config.num_pages[0] = UINT64_MAX;
    config.page_bytes = PAGE_BYTES;
    CHECK(pst_simulate(&config, &simulation, &result));
    return result;
}

/* ---- running it ---- */

static void give_inputs(const scene *self, uint64_t step)
{
    int64_t rows[MICRO_BATCHES][LAYERS];
    for (uint32_t m = 0; m < MICRO_BATCHES; m++)
        for (uint32_t i = 0; i < LAYERS; i++)
            rows[m][i] = rows_of(step, i, m);
    CHECK(pst_device_copy(self->device, self->counts, rows, sizeof(rows), self->stream));
    CHECK(pst_device_copy(self->device, self->step, &step, sizeof(step), self->stream));
    CHECK(pst_stream_synchronize(self->device, self->stream));
}

/* Returns whether bytes and pages are as they should be. */
static bool judge(const scene *self, uint64_t step, const char *how)
{
    uint64_t wrong = 0;
    pst_pool_status status;
    CHECK(pst_device_copy(self->device, &wrong, self->mismatches, sizeof(wrong), self->stream));
    CHECK(pst_stream_synchronize(self->device, self->stream));
    CHECK(pst_pool_poll(self->pool, &status));
    const pst_stage_result said = simulate(self, step);
    printf("  %s: most pages in use %" PRIu64 ", simulated %" PRIu64
           "; step_valid %d, differing bytes: %" PRIu64 "\n",
           how, status.step_demand, said.demand_high_water, status.step_valid, wrong);
    return wrong == 0 && status.step_valid && status.in_use[0] == 0 &&
           status.step_demand == said.demand_high_water;
}

static void print_stats(const scene *self, bool is_host)
{
    pst_scheduler_stats stats;
    CHECK(pst_scheduler_get_stats(self->scheduler, &stats));
    printf("  of %" PRIu64 " visits %" PRIu64 " stashed, %" PRIu64 " kept in place, %" PRIu64
           " swapped, %" PRIu64 " planned; %" PRIu64 " tickets\n",
           stats.visits, stats.stashed, stats.kept_in_place, stats.swapped, stats.planned,
           stats.num_tickets);
    if (stats.measured_steps != 0)
        printf("  exposed: %" PRIu64 " us forward, %" PRIu64 " us backward%s\n",
               stats.exposed_forward_ns / 1000, stats.exposed_backward_ns / 1000,
               is_host ? " (of a CPU, whose hooks copy themselves: nothing is left to wait for)"
                       : "");
}

/* ---- making it ---- */

static pst_group *make_group(const pst_row_space *spaces, uint32_t num_spaces,
                             const pst_tensor *tensors, uint32_t num_tensors)
{
    pst_group *group = NULL;
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = spaces;
    config.num_spaces = num_spaces;
    config.tensors = tensors;
    config.num_tensors = num_tensors;
    CHECK(pst_group_create(&config, &group));
    return group;
}

static void make_groups(scene *self)
{
    const pst_row_space live = {.count_type = PST_COUNT_INT64, .capacity = CAPACITY};
    const pst_row_space kept[] = {{.count_type = PST_COUNT_INT64, .capacity = TOKENS},
                                  {.count_type = PST_COUNT_INT64, .capacity = SWAPPED_TOKENS}};
    const pst_row_space rest = {.count_type = PST_COUNT_INT64, .capacity = TOKENS - SWAPPED_TOKENS};
    const pst_tensor row = {.row_bytes = ROW_BYTES};
    const pst_tensor token[] = {{.row_bytes = INPUT_BYTES}, {.row_bytes = TOKEN_BYTES, .space = 1}};
    const pst_tensor rest_token = {.row_bytes = TOKEN_BYTES};
    self->live = make_group(&live, 1, &row, 1);
    self->kept = make_group(kept, 2, token, 2);
    self->rest = make_group(&rest, 1, &rest_token, 1);
}

static void make_memory(scene *self)
{
    const int64_t tokens[] = {TOKENS, SWAPPED_TOKENS, TOKENS - SWAPPED_TOKENS};
    for (int i = 0; i < SETS; i++) {
        self->sources[i] = device_memory(self, CAPACITY * ROW_BYTES);
        self->destinations[i] = device_memory(self, CAPACITY * ROW_BYTES);
        self->source_counts[i] = device_memory(self, sizeof(int64_t));
        self->rounding[i] = device_memory(self, DENSE_BYTES);
    }
    for (int i = 0; i < SLOTS; i++)
        self->planned[i] = device_memory(self, DENSE_BYTES);
    self->counts = device_memory(self, sizeof(int64_t) * MICRO_BATCHES * LAYERS);
    self->tokens = device_memory(self, sizeof(tokens));
    self->step = device_memory(self, sizeof(uint64_t));
    self->mismatches = device_memory(self, sizeof(uint64_t));
    CHECK(pst_device_copy(self->device, self->tokens, tokens, sizeof(tokens), self->stream));
    CHECK(pst_stream_synchronize(self->device, self->stream));
}

static void make_scheduler(scene *self)
{
    pst_buffers buffers[2 * SETS]; /* of the MoE layers, which share them */
    const void *counts[SETS];
    const pst_buffers *sources[SETS], *destinations[SETS];
    for (int i = 0; i < SETS; i++) {
        buffers[i] = buffers[SETS + i] = (pst_buffers)PST_BUFFERS_INIT;
        counts[i] = self->source_counts[i];
        buffers[i].bases = &self->sources[i];
        buffers[i].counts = &counts[i];
        buffers[SETS + i].bases = &self->destinations[i];
        sources[i] = &buffers[i];
        destinations[i] = &buffers[SETS + i];
    }
    const pst_part part = {.group = self->live, .sources = sources, .destinations = destinations};
    pst_layer layers[LAYERS] = {{0}};
    for (uint32_t i = 0; i < LAYERS; i++) {
        layers[i].layer = i;
        layers[i].keep = keeps[i];
        if (keeps[i] == PST_KEEP_PAGED) {
            layers[i].parts = &part;
            layers[i].num_parts = 1;
        } else if (keeps[i] == PST_KEEP_SWAPPED) {
            layers[i].buffers[0] = self->rounding[0];
            layers[i].buffers[1] = self->rounding[1];
            layers[i].whole_bytes = TOKENS * INPUT_BYTES;
            layers[i].token_bytes = TOKEN_BYTES;
            layers[i].num_tokens = TOKENS;
            layers[i].policy.swap_tokens = SWAPPED_TOKENS;
        }
    }
    pst_scheduler_config config = PST_SCHEDULER_CONFIG_INIT;
    config.pool = self->pool;
    config.schedule = self->schedule;
    config.layers = layers;
    config.num_layers = LAYERS;
    config.num_sources = config.num_destinations = SETS;
    config.measures = true; /* of steps that are not captured */
    CHECK(pst_scheduler_create(&config, &self->scheduler));
}

static void make_pool(scene *self)
{
    uint64_t most = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        const pst_stage_result said = simulate(self, step);
        most = said.demand_high_water > most ? said.demand_high_water : most;
    }
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = PAGE_BYTES;
    config.num_pages = most; /* not one more */
    CHECK(pst_pool_create(self->device, &config, &self->pool));
}

static void make_schedule(scene *self)
{
    pst_schedule_config order = PST_SCHEDULE_CONFIG_INIT; /* 1F1B, and the first stage of it */
    pst_schedule_info info;
    order.num_stages = STAGES;
    order.num_micro_batches = MICRO_BATCHES;
    CHECK(pst_schedule_create(&order, &self->schedule));
    CHECK(pst_schedule_get_info(self->schedule, &info));
    self->num_passes = info.num_passes;
}

static void make(scene *self)
{
    make_groups(self);
    make_memory(self);
    make_schedule(self);
    make_pool(self);
    make_scheduler(self);
}

static void destroy(scene *self)
{
    CHECK(pst_scheduler_destroy(self->scheduler));
    CHECK(pst_pool_destroy(self->pool));
    pst_schedule_destroy(self->schedule);
    CHECK(pst_group_destroy(self->live));
    CHECK(pst_group_destroy(self->kept));
    CHECK(pst_group_destroy(self->rest));
    for (int i = 0; i < SETS; i++) {
        CHECK(pst_device_free(self->device, self->sources[i]));
        CHECK(pst_device_free(self->device, self->destinations[i]));
        CHECK(pst_device_free(self->device, self->source_counts[i]));
        CHECK(pst_device_free(self->device, self->rounding[i]));
    }
    for (int i = 0; i < SLOTS; i++)
        CHECK(pst_device_free(self->device, self->planned[i]));
    CHECK(pst_device_free(self->device, self->counts));
    CHECK(pst_device_free(self->device, self->tokens));
    CHECK(pst_device_free(self->device, self->step));
    CHECK(pst_device_free(self->device, self->mismatches));
    CHECK(pst_stream_destroy(self->device, self->stream));
    CHECK(pst_device_close(self->device));
}

int main(int argc, char **argv)
{
    scene self = {.device = NULL};
    pst_device_info info;
    CHECK(pst_device_open(argc > 1 ? argv[1] : "auto", 0, &self.device));
    CHECK(pst_device_get_info(self.device, &info));
    CHECK(pst_stream_create(self.device, &self.stream));
    make(&self);

    printf("an iteration of stage 0 of %d, %d micro-batches, %d layers\n", STAGES, MICRO_BATCHES,
           LAYERS);
    give_inputs(&self, 0);
    run_iteration(&self);
    bool is_good = judge(&self, 0, "enqueued");
    print_stats(&self, info.kind == PST_DEVICE_HOST);

    pst_graph *graph = NULL;
    pst_graph_info size;
    CHECK(pst_graph_begin(self.device, self.stream));
    run_iteration(&self);
    CHECK(pst_graph_end(self.device, self.stream, &graph));
    CHECK(pst_graph_get_info(graph, &size));
    printf("the same as one graph of %" PRIu64 " kernels, with other row counts\n",
           (uint64_t)size.num_kernels);
    for (uint64_t step = 1; step < STEPS; step++) {
        give_inputs(&self, step);
        CHECK(pst_graph_launch(graph, self.stream));
        is_good &= judge(&self, step, "replayed");
    }
    CHECK(pst_graph_destroy(graph));
    destroy(&self);
    return is_good ? 0 : 1;
}
