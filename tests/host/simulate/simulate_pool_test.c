/* Random programs: the simulator counts what a pool on device `host` counts that is given the same
 * operations in the order of the list, after every operation and at the end. */
#include "tests/host/simulate/simulate_scene.h"
#include "tests/random.h"

#include <stdlib.h>

#include "host/program/program.h"
#include "host/stash/stash.h"
#include "kernels/core/pool.h"

enum { MOST_PAGES = 4, MOST_OPERATIONS = 20000 };

/* Operations of a run as the simulator told them. */
typedef struct told {
    pst_simulated_event *events;
    uint32_t num;
} told;

/* A pool, and a ticket for each seat and part. A group has a tensor for each page that it may take: a
 * live row makes a page. */
typedef struct machine {
    sim_scene scene;
    psti_program_config wanted;
    psti_program_layer program_layers[SIM_MAX_LAYERS];
    uint32_t chunk_layers[2];
    psti_program *program;
    pst_device *device;
    pst_pool *pool;
    pst_group *group;
    pst_ticket *tickets;
    told told;
    uint32_t at; /* event that comes next */
    int64_t counts[MOST_PAGES];
    unsigned char rows[MOST_PAGES][16];
} machine;

/* ---- a random scene ---- */

static const pst_schedule_kind kinds[] = {
    PST_SCHEDULE_1F1B,           PST_SCHEDULE_INTERLEAVED, PST_SCHEDULE_GPIPE,
    PST_SCHEDULE_GPIPE_REVERSED, PST_SCHEDULE_ZB_H1,       PST_SCHEDULE_ZB_H2,
    PST_SCHEDULE_ZB_V,           PST_SCHEDULE_DUALPIPE,    PST_SCHEDULE_DUALPIPE_V};

static sim_shape random_shape(uint64_t *seed)
{
    sim_shape shape = {.kind = kinds[random_below(seed, sizeof(kinds) / sizeof(kinds[0]))]};
    shape.p = 1 + (uint32_t)random_below(seed, 4);
    shape.m = shape.p + (uint32_t)random_below(seed, 6);
    shape.num_layers = 1 + (uint32_t)random_below(seed, 3);
    shape.v = 1;
    if (shape.kind == PST_SCHEDULE_INTERLEAVED) {
        shape.v = 2;
        shape.group = shape.p;
        shape.m = shape.p * (1 + (uint32_t)random_below(seed, 3));
    }
    if (shape.kind == PST_SCHEDULE_DUALPIPE)
        shape.p = 2 * (1 + (uint32_t)random_below(seed, 2));
    if (shape.kind == PST_SCHEDULE_DUALPIPE || shape.kind == PST_SCHEDULE_DUALPIPE_V)
        shape.m = 2 * shape.p + 2 * (uint32_t)random_below(seed, 3);
    if (shape.kind == PST_SCHEDULE_ZB_V || shape.kind == PST_SCHEDULE_DUALPIPE ||
        shape.kind == PST_SCHEDULE_DUALPIPE_V)
        shape.v = 2;
    return shape;
}

static bool splits(pst_schedule_kind kind)
{
    return kind >= PST_SCHEDULE_ZB_H1;
}

static bool has_pairs(pst_schedule_kind kind)
{
    return kind == PST_SCHEDULE_DUALPIPE || kind == PST_SCHEDULE_DUALPIPE_V;
}

static void random_sets(sim_scene *scene, uint64_t *seed)
{
    static const uint32_t streams[] = {1, 1, 2, 4};
    pst_simulation_config *config = &scene->config;
    config->num_sources = 1 + (uint32_t)random_below(seed, 3);
    config->num_destinations = 1 + (uint32_t)random_below(seed, 3);
    config->ahead = (uint32_t)random_below(seed, 3);
    config->num_streams = streams[random_below(seed, 4)];
    config->keeps_nothing = random_below(seed, 8) == 0;
    config->by_slot = random_below(seed, 4) == 0;
    config->one_ring =
        !config->by_slot && !has_pairs(scene->shape.kind) && random_below(seed, 4) == 0;
    config->num_destinations = config->one_ring ? 0 : config->num_destinations;
    config->mode =
        config->num_streams > 1 || random_below(seed, 2) ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    config->in_call_order = true;
    if (config->num_streams == 1 && !config->by_slot && !config->one_ring &&
        !splits(scene->shape.kind) && random_below(seed, 3) == 0)
        config->rule = PST_RESTORE_NEXT;
    config->page_bytes = PST_PAGE_BYTES_MIN;
    config->num_pages[0] = 1 + random_below(seed, 40);
    config->num_pages[1] = random_below(seed, 2) ? random_below(seed, 30) : 0;
    config->rates = (pst_simulated_rates){.stash_fixed_ns = random_below(seed, 9),
                                          .restore_fixed_ns = random_below(seed, 9),
                                          .demote_fixed_ns = random_below(seed, 9),
                                          .stash_rate = 1000000000,
                                          .out_rate = 3000000000};
}

/* Some parts are written by a GLU, in concurrent pools. */
static void random_layer(sim_scene *scene, uint32_t n, uint64_t *seed)
{
    pst_simulated_layer *layer = &scene->layers[n];
    layer->num_parts = 1 + (uint32_t)random_below(seed, 3);
    layer->forward = (pst_times){1, 20, 1};
    layer->num_usages = scene->shape.m;
    layer->policy.holds = random_below(seed, 2);
    if (random_below(seed, 8) == 0)
        layer->keep = random_below(seed, 2) ? PST_KEEP_PLANNED : PST_KEEP_RECOMPUTED;
    if (scene->config.num_pages[1] > 0 && random_below(seed, 2)) {
        layer->policy.host_den = 1 + (uint32_t)random_below(seed, 4);
        layer->policy.host_num = (uint32_t)random_below(seed, layer->policy.host_den + 1);
        if (scene->config.num_streams > 1 && random_below(seed, 2)) {
            layer->policy.move = PST_MOVE_DEMOTE;
            layer->policy.promote_ahead = (uint32_t)random_below(seed, 4);
            layer->max_demote_pages = random_below(seed, 3);
        }
    }
    for (uint32_t part = 0; part < layer->num_parts; part++) {
        layer->uses[part] = (uint32_t)random_below(seed, 4);
        layer->part_ns[part] = random_below(seed, 3) ? 0 : 1 + random_below(seed, 20);
        if (random_below(seed, 4) == 0 && scene->config.mode == PST_POOL_CONCURRENT) {
            layer->glu_parts |= 1u << part;
            layer->part_ns[part] = 0;
        }
        for (uint32_t i = 0; i < scene->shape.m; i++) {
            const uint64_t pages = random_below(seed, MOST_PAGES + 1);
            scene->usages[n][part * scene->shape.m + i] = (pst_group_usage){
                pages * 16, pages ? (pages - 1) * PST_PAGE_BYTES_MIN + 16 : 0, pages};
        }
    }
}

/* ---- the same program, and its machine ---- */

static void compile(machine *self)
{
    const sim_scene *scene = &self->scene;
    const pst_simulation_config *config = &scene->config;
    for (uint32_t n = 0; n < scene->num_layers[0]; n++) {
        const pst_simulated_layer *from = &scene->layers[n];
        psti_program_layer *to = &self->program_layers[n];
        *to = (psti_program_layer){.keep = (uint8_t)from->keep, .holds = from->policy.holds};
        if (from->keep != PST_KEEP_PAGED)
            continue;
        to->num_parts = (uint8_t)from->num_parts;
        to->glus = (uint8_t)from->glu_parts;
        to->demotes = from->policy.move == PST_MOVE_DEMOTE && from->policy.host_num > 0;
        to->promotes = to->glus && from->policy.host_num > 0 && !to->demotes;
        to->promote_ahead = from->policy.promote_ahead ? from->policy.promote_ahead : 1;
        for (uint32_t part = 0; part < from->num_parts; part++)
            to->uses[part] = (uint8_t)(from->uses[part] ? from->uses[part] : 3);
    }
    for (uint32_t c = 0; c < scene->shape.v; c++)
        self->chunk_layers[c] = scene->shape.num_layers;
    self->wanted = (psti_program_config){.schedule = scene->schedules[0],
                                         .num_layers = self->chunk_layers,
                                         .layers = self->program_layers,
                                         .num_sources = config->num_sources,
                                         .num_destinations = config->num_destinations,
                                         .ahead = config->ahead,
                                         .num_streams = config->num_streams,
                                         .one_ring = config->one_ring,
                                         .keeps_nothing = config->keeps_nothing,
                                         .by_slot = config->by_slot,
                                         .rule = config->rule};
    CHECK_OK(psti_program_make(&self->wanted, &self->program));
}

static void open_pool(machine *self)
{
    const uint32_t num = self->program->num_seats * PST_MAX_PARTS;
    pst_row_space spaces[MOST_PAGES];
    pst_tensor tensors[MOST_PAGES];
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    pst_group_config group = PST_GROUP_CONFIG_INIT;
    for (uint32_t i = 0; i < MOST_PAGES; i++) {
        spaces[i] =
            (pst_row_space){.kind = PST_ROWS_PREFIX, .count_type = PST_COUNT_HOST, .capacity = 1};
        tensors[i] = (pst_tensor){.row_bytes = 16, .space = i};
    }
    group.spaces = spaces;
    group.tensors = tensors;
    group.num_spaces = group.num_tensors = MOST_PAGES;
    pool.page_bytes = PST_PAGE_BYTES_MIN;
    pool.num_pages = self->scene.config.num_pages[0];
    pool.num_host_pages = self->scene.config.num_pages[1];
    pool.mode = self->scene.config.mode;
    pool.max_tickets = num + 1;
    CHECK_OK(pst_pool_create(self->device, &pool, &self->pool));
    CHECK_OK(pst_group_create(&group, &self->group));
    self->tickets = calloc((size_t)num + 1, sizeof(pst_ticket));
    for (uint32_t i = 0; i < num; i++)
        CHECK_OK(pst_ticket_create(self->pool, self->group, &self->tickets[i]));
}

static void close_machine(machine *self)
{
    const uint32_t num = self->program->num_seats * PST_MAX_PARTS;
    for (uint32_t i = 0; i < num; i++)
        CHECK_OK(pst_ticket_destroy(self->tickets[i]));
    free(self->tickets);
    CHECK_OK(pst_group_destroy(self->group));
    CHECK_OK(pst_pool_destroy(self->pool));
    psti_program_free(self->program);
}

static const pst_simulated_layer *layer_of(const machine *self, const psti_visit *visit)
{
    const pst_pass *pass = &self->scene.schedules[0]->passes[visit->pass];
    return &self->scene.layers[self->program->first_layer[pass->chunk] + visit->layer];
}

/* ---- what the pool does ---- */

static pst_status stash(machine *self, pst_ticket ticket, const pst_simulated_layer *layer,
                        const pst_buffers *buffers, uint64_t pages)
{
    const bool demotes = layer->policy.move == PST_MOVE_DEMOTE;
    for (uint32_t i = 0; i < MOST_PAGES; i++)
        self->counts[i] = i < pages;
    pst_status status = PST_OK;
    if (layer->policy.host_den > 0 && !demotes)
        status = pst_ticket_set_offload(ticket, layer->policy.host_num, layer->policy.host_den);
    return status ? status : pst_ticket_stash(ticket, self->group, buffers, NULL, NULL);
}

static pst_status apply(machine *self, const psti_operation *op, uint32_t part)
{
    const psti_visit *visit = &self->program->visits[op->visit];
    const pst_simulated_layer *layer = layer_of(self, visit);
    const pst_ticket ticket = self->tickets[op->seat * PST_MAX_PARTS + part];
    const uint32_t i = self->scene.schedules[0]->passes[visit->pass].micro_batch;
    void *bases[MOST_PAGES];
    const void *counts[MOST_PAGES];
    pst_buffers buffers = PST_BUFFERS_INIT;
    pst_restore_options restore = PST_RESTORE_OPTIONS_INIT;
    pst_migrate_options migrate = PST_MIGRATE_OPTIONS_INIT;
    for (uint32_t t = 0; t < MOST_PAGES; t++) {
        bases[t] = self->rows[t];
        counts[t] = &self->counts[t];
    }
    buffers.bases = bases;
    buffers.counts = counts;
    restore.pages = op->keeps ? PST_RESTORE_KEEP : PST_RESTORE_CONSUME;
    migrate.share = PST_MIGRATE_REST;
    switch (op->act) {
    case PSTI_ACT_STASH:
    case PSTI_ACT_GLU_STASH:
        return stash(self, ticket, layer, &buffers,
                     layer->usages[part * layer->num_usages + i].pages);
    case PSTI_ACT_RESTORE:
    case PSTI_ACT_GLU_RESTORE:
        return pst_ticket_restore(ticket, self->group, &buffers, &restore, NULL);
    case PSTI_ACT_DEMOTE:
        if (layer->max_demote_pages > 0) {
            migrate.share = PST_MIGRATE_UP_TO;
            migrate.max_pages = layer->max_demote_pages;
        }
        return pst_ticket_demote(ticket, &migrate, NULL);
    default:
        return pst_ticket_promote(ticket, &migrate, NULL);
    }
}

static void tell(void *user, const pst_simulated_event *event)
{
    told *all = user;
    if (event->kind >= PST_SIMULATED_DO_STASH && all->num < MOST_OPERATIONS)
        all->events[all->num++] = *event;
}

/* One operation on the pool against what the simulator told of it. */
static void check_operation(machine *self, const psti_operation *op)
{
    const psti_pool_state *state = self->pool->view.state;
    const uint64_t faults = self->pool->view.status->num_faults;
    CHECK_MSG(self->at < self->told.num, "the simulator has told of %u operations only",
              self->told.num);
    const pst_simulated_event *event = &self->told.events[self->at++];
    const psti_visit *visit = &self->program->visits[op->visit];
    CHECK_EQ(event->visit.layer, visit->layer);
    CHECK_EQ(event->visit.kind, visit->kind);
    static const pst_simulated_kind told_kinds[] = {
        [PSTI_ACT_STASH] = PST_SIMULATED_DO_STASH,
        [PSTI_ACT_RESTORE] = PST_SIMULATED_DO_RESTORE,
        [PSTI_ACT_DEMOTE] = PST_SIMULATED_DO_DEMOTE,
        [PSTI_ACT_PROMOTE] = PST_SIMULATED_DO_PROMOTE,
        [PSTI_ACT_GLU_STASH] = PST_SIMULATED_DO_STASH,
        [PSTI_ACT_GLU_RESTORE] = PST_SIMULATED_DO_RESTORE,
    };
    CHECK_EQ(event->kind, told_kinds[op->act]);
    CHECK_EQ(event->stream == PST_SIMULATED_MAIN, op->act >= PSTI_ACT_GLU_STASH);
    CHECK_OK(apply(self, op, event->part));
    CHECK_EQ(self->pool->view.status->num_faults - faults, event->fault != PST_FAULT_NONE);
    for (uint32_t tier = 0; tier < 2; tier++)
        CHECK_EQ(event->in_use[tier], state->num_pages[tier] - psti_free_pages(state, tier));
    if (faults == 0 && event->fault != PST_FAULT_NONE) {
        CHECK_EQ(memcmp(&self->scene.stages[0].fault_visit, &event->visit, sizeof(pst_visit_key)),
                 0);
        CHECK_EQ(self->scene.stages[0].fault, event->fault);
    }
}

static void check_status(const machine *self)
{
    const pst_stage_result *result = &self->scene.stages[0];
    pst_pool_status status;
    CHECK_OK(pst_pool_check(self->pool, NULL));
    CHECK_OK(pst_pool_step(self->pool, NULL));
    CHECK_OK(pst_pool_poll(self->pool, &status));
    CHECK_EQ(status.check_errors, 0);
    for (uint32_t tier = 0; tier < 2; tier++) {
        CHECK_EQ(result->high_water[tier], status.high_water[tier]);
        CHECK_EQ(result->in_use[tier], status.in_use[tier]);
        CHECK_EQ(result->fault_free[tier], status.fault_free[tier]);
    }
    CHECK_EQ(result->demand_high_water, status.demand_high_water);
    CHECK_EQ(result->spilled_pages, status.spilled_pages);
    CHECK_EQ(result->offloaded_pages, status.offloaded_pages);
    CHECK_EQ(result->displaced_pages, status.displaced_pages);
    CHECK_EQ(result->demoted_pages, status.demoted_pages);
    CHECK_EQ(result->promoted_pages, status.promoted_pages);
    CHECK_EQ(result->stranded_pages, status.stranded_pages);
    CHECK_EQ(result->num_faults, status.num_faults);
    CHECK_EQ(result->fault, status.fault);
    CHECK_EQ(result->fault_wanted, status.fault_wanted);
}

static bool is_of_pool(const psti_operation *op)
{
    return (op->act >= PSTI_ACT_STASH && op->act <= PSTI_ACT_PROMOTE) ||
           op->act >= PSTI_ACT_GLU_STASH;
}

/* Stashes of a forward that are announced within the core come before the GLU at its end. */
static uint32_t num_early(const machine *self, uint32_t hook)
{
    const psti_visit *visit = &self->program->visits[hook / 2];
    const pst_simulated_layer *layer = layer_of(self, visit);
    uint32_t num = 0;
    for (uint32_t part = 0; part < layer->num_parts && visit->kind == PST_PASS_FORWARD; part++)
        num += layer->keep == PST_KEEP_PAGED && layer->part_ns[part] > 0;
    return hook % 2 ? num : 0;
}

static void check_hook(machine *self, uint32_t hook)
{
    const psti_program *program = self->program;
    const uint32_t early = num_early(self, hook);
    for (uint32_t turn = 0; turn < 2; turn++)
        for (uint32_t i = program->hooks[hook], stashes = 0; i < program->hooks[hook + 1]; i++) {
            const psti_operation *op = &program->operations[i];
            const bool is_early = op->act == PSTI_ACT_STASH && stashes++ < early;
            if (is_of_pool(op) && is_early == (turn == 0) && !psti_test_failed())
                check_operation(self, op);
        }
}

static void run_case(machine *self, uint64_t seed)
{
    const sim_shape shape = random_shape(&seed);
    sim_open_alone(&self->scene, &shape, (uint32_t)random_below(&seed, shape.p));
    random_sets(&self->scene, &seed);
    for (uint32_t n = 0; n < self->scene.num_layers[0]; n++)
        random_layer(&self->scene, n, &seed);
    self->told.num = self->at = 0;
    self->scene.config.on_event = tell;
    self->scene.config.user = &self->told;
    sim_run(&self->scene);
    compile(self);
    if (psti_test_failed())
        return;
    open_pool(self);
    for (uint32_t hook = 0; hook < 2 * self->program->num_visits; hook++)
        check_hook(self, hook);
    CHECK_EQ(self->at, self->told.num);
    check_status(self);
    close_machine(self);
    sim_close(&self->scene);
}

PST_TEST(SimulatePool, CountsWhatAPoolCounts)
{
    static machine self;
    uint64_t faults = 0, moved = 0, operations = 0;
    self.told.events = calloc(MOST_OPERATIONS, sizeof(pst_simulated_event));
    CHECK_OK(pst_device_open("host", 0, &self.device));
    for (uint32_t i = 0; i < psti_test_cases(1000); i++) {
        run_case(&self, i);
        CHECK_MSG(!psti_test_failed(), "seed %u", i);
        faults += self.scene.stages[0].num_faults;
        moved += self.scene.stages[0].demoted_pages;
        operations += self.told.num;
    }
    CHECK_MSG(faults > 0 && moved > 0 && operations > 10000, "%llu faults, %llu moved, %llu ops",
              (unsigned long long)faults, (unsigned long long)moved,
              (unsigned long long)operations);
    CHECK_OK(pst_device_close(self.device));
    free(self.told.events);
}
