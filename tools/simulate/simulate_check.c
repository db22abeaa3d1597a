/* The operations of the simulation, in the order in which the scheduler would call them, on a real
 * pool: every figure of pages must be the same. */
#include "tools/simulate/simulate_command.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = REPLAY_MAX_TENSORS, BASE_ALIGNMENT = 256 };

/* Everything on the device, of one stage. */
typedef struct machine {
    const simulate_job *job;
    const simulate_model *model;
    const simulate_stage *stage;
    pst_device *device;
    pst_stream stream;
    pst_group *rows;  /* a row is a page; NULL: the routing's group is used */
    pst_group *group; /* not owned */
    uint32_t num_counts;
    void *memory; /* what is stashed, and where it is restored to */
    void *bases[MAX_TENSORS];
    int32_t *counts, *pinned; /* on the device, and what is copied there */
    pst_pool *pool;
    pst_ticket *tickets; /* [layers][most slots] */
    uint32_t most_slots;
    uint64_t iteration;
    uint64_t num_operations;
    uint64_t num_differences;
    int code;
} machine;

/* ---- making it ---- */

static uint64_t most_pages(const simulate_stage *stage)
{
    uint64_t most = 1;
    for (size_t i = 0; i < (size_t)stage->num_layers * stage->num_usages; i++)
        most = stage->usages[i].pages > most ? stage->usages[i].pages : most;
    return most;
}

/* A group in which so many rows are so many pages. */
static int make_rows(machine *self, uint64_t *bytes_out)
{
    const uint64_t page_bytes = self->model->config.page_bytes;
    const uint64_t most = most_pages(self->stage);
    const pst_row_space space = {.kind = PST_ROWS_PREFIX,
                                 .count_type = PST_COUNT_INT32,
                                 .capacity = (int64_t)most,
                                 .num_segments = 1};
    const pst_tensor tensor = {.row_bytes = page_bytes};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = &tensor;
    config.num_tensors = 1;
    TOOL_PST(pst_group_create(&config, &self->rows));
    self->group = self->rows;
    self->num_counts = 1;
    *bytes_out = most * page_bytes;
    return TOOL_OK;
}

static int make_buffers(machine *self)
{
    const simulate_job *job = self->job;
    const replay_sizes *sizes = &job->routing.sizes;
    uint64_t bytes = sizes->set_bytes;
    if (job->has_routing) {
        self->group = job->routing.group;
        self->num_counts = job->routing.trace.num_counts;
    } else {
        TOOL_TRY(make_rows(self, &bytes));
    }
    const uint64_t count_bytes = self->num_counts * sizeof(int32_t);
    void *counts = NULL;
    void *pinned = NULL;
    TOOL_PST(pst_device_alloc(self->device, bytes + BASE_ALIGNMENT, &self->memory));
    TOOL_PST(pst_device_alloc(self->device, count_bytes, &counts));
    self->counts = counts;
    TOOL_PST(pst_device_alloc_pinned(self->device, count_bytes, &pinned));
    self->pinned = pinned;
    for (uint32_t t = 0; t < MAX_TENSORS; t++)
        self->bases[t] =
            (char *)self->memory + (t < sizes->num_tensors ? sizes->tensors[t].offset : 0);
    return tool_status(
        pst_device_fill(self->device, self->memory, REPLAY_POISON_SOURCE, bytes, self->stream));
}

static uint64_t pages_of(const machine *self, const pst_stage_result *result, int tier)
{
    const uint64_t asked = self->model->config.num_pages[tier];
    const bool offloads = self->model->input->num_offloads > 0;
    const uint64_t least = tier == 0 || offloads ? 1 : 0;
    if (asked != SIMULATE_AUTO)
        return asked;
    return result->high_water[tier] > least ? result->high_water[tier] : least;
}

static int make_pool(machine *self, const pst_stage_result *result)
{
    const simulate_stage *stage = self->stage;
    for (uint32_t c = 0; c < stage->num_chunks; c++)
        if (stage->chunks[c].num_slots > self->most_slots)
            self->most_slots = stage->chunks[c].num_slots;
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = self->model->config.page_bytes;
    config.num_pages = pages_of(self, result, 0);
    config.num_host_pages = pages_of(self, result, 1);
    config.mode = self->model->config.mode;
    config.max_tickets = stage->num_layers * self->most_slots + 1;
    return tool_status(pst_pool_create(self->device, &config, &self->pool));
}

static int make_tickets(machine *self)
{
    const simulate_stage *stage = self->stage;
    self->tickets = calloc((size_t)stage->num_layers * self->most_slots + 1, sizeof(pst_ticket));
    if (self->tickets == NULL)
        return tool_fail(TOOL_NO, "out of memory for the tickets of --check");
    for (uint32_t c = 0; c < stage->num_chunks; c++)
        for (uint32_t i = 0; i < stage->chunks[c].num_layers * stage->chunks[c].num_slots; i++) {
            const uint32_t layer = stage->chunks[c].first + i / stage->chunks[c].num_slots;
            const uint32_t slot = i % stage->chunks[c].num_slots;
            const pst_layer_policy *policy = &stage->layers[layer].policy;
            pst_ticket *ticket = &self->tickets[(size_t)layer * self->most_slots + slot];
            TOOL_PST(pst_ticket_create(self->pool, self->group, ticket));
            if (policy->host_den != 0 && policy->move == PST_MOVE_DIRECT)
                TOOL_PST(pst_ticket_set_offload(*ticket, policy->host_num, policy->host_den));
        }
    return TOOL_OK;
}

/* Frees in the reverse order of making; returns the first failure. */
static int dismantle(machine *self, int code)
{
    pst_device *device = self->device;
    const size_t num = (size_t)self->stage->num_layers * self->most_slots;
    pst_status first = PST_OK;
#define LET_GO(call)                               \
    do {                                           \
        const pst_status status_ = (call);         \
        first = first == PST_OK ? status_ : first; \
    } while (0)
    if (self->pool != NULL) {
        LET_GO(pst_pool_reset(self->pool, PST_RESET_ALL, self->stream));
        LET_GO(pst_stream_synchronize(device, self->stream));
    }
    for (size_t i = 0; self->tickets != NULL && i < num; i++)
        LET_GO(pst_ticket_destroy(self->tickets[i]));
    LET_GO(pst_pool_destroy(self->pool));
    LET_GO(pst_group_destroy(self->rows));
    if (device != NULL) {
        LET_GO(pst_device_free(device, self->memory));
        LET_GO(pst_device_free(device, self->counts));
        LET_GO(pst_device_free_pinned(device, self->pinned));
        LET_GO(pst_stream_destroy(device, self->stream));
        LET_GO(pst_device_close(device));
    }
#undef LET_GO
    free(self->tickets);
    return code != TOOL_OK || first == PST_OK ? code : tool_status(first);
}

/* ---- running it ---- */

static int differ(machine *self, const char *place, const char *figure, uint64_t simulated,
                  uint64_t real)
{
    if (simulated == real)
        return TOOL_OK;
    self->num_differences++;
    return tool_fail(
        TOOL_NO, "--check: rank %" PRIu32 "%s: %s: %" PRIu64 " simulated, %" PRIu64 " in the pool",
        self->stage->rank, place, figure, simulated, real);
}

static pst_ticket *ticket_of(const machine *self, const pst_visit_key *visit)
{
    const uint32_t layer = self->stage->chunks[visit->chunk].first + visit->layer;
    const uint32_t slot =
        pst_schedule_slot(self->stage->schedule, visit->chunk, visit->micro_batch);
    return &self->tickets[(size_t)layer * self->most_slots + slot];
}

static int write_counts(machine *self, const pst_visit_key *key)
{
    const simulate_stage *stage = self->stage;
    const simulate_chunk *chunk = &stage->chunks[key->chunk];
    const uint32_t of = stage->num_usages == 1 ? 0 : key->micro_batch;
    const size_t layer = chunk->first + key->layer;
    self->pinned[0] = (int32_t)stage->usages[layer * stage->num_usages + of].pages;
    if (self->job->has_routing) {
        const simulate_visit visit =
            simulate_make_visit(self->model, stage, key->chunk, key->layer, key->micro_batch);
        const int64_t *counts =
            simulate_routing_counts(&self->job->routing, self->iteration, &visit);
        for (uint32_t c = 0; c < self->num_counts; c++)
            self->pinned[c] = (int32_t)counts[c];
    }
    return tool_status(pst_device_copy(self->device, self->counts, self->pinned,
                                       self->num_counts * sizeof(int32_t), self->stream));
}

static int restore(machine *self, const pst_visit_key *key, const pst_buffers *buffers)
{
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    if (simulate_keeps(self->stage, key))
        options.pages = PST_RESTORE_KEEP;
    return tool_status(
        pst_ticket_restore(*ticket_of(self, key), self->group, buffers, &options, self->stream));
}

static int demote(machine *self, const pst_visit_key *key)
{
    const uint32_t layer = self->stage->chunks[key->chunk].first + key->layer;
    const uint64_t most = self->stage->layers[layer].max_demote_pages;
    pst_migrate_options options = PST_MIGRATE_OPTIONS_INIT;
    options.share = most > 0 ? PST_MIGRATE_UP_TO : PST_MIGRATE_REST;
    options.max_pages = most;
    return tool_status(pst_ticket_demote(*ticket_of(self, key), &options, self->stream));
}

static int promote(machine *self, const pst_visit_key *key)
{
    pst_migrate_options options = PST_MIGRATE_OPTIONS_INIT;
    options.share = PST_MIGRATE_REST;
    return tool_status(pst_ticket_promote(*ticket_of(self, key), &options, self->stream));
}

static int play(machine *self, const pst_simulated_event *event)
{
    const void *counts[] = {self->counts};
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = self->bases;
    buffers.counts = counts;
    switch (event->kind) {
    case PST_SIMULATED_DO_STASH:
        TOOL_TRY(write_counts(self, &event->visit));
        return tool_status(pst_ticket_stash(*ticket_of(self, &event->visit), self->group, &buffers,
                                            NULL, self->stream));
    case PST_SIMULATED_DO_RESTORE:
        return restore(self, &event->visit, &buffers);
    case PST_SIMULATED_DO_DEMOTE:
        return demote(self, &event->visit);
    default:
        return promote(self, &event->visit);
    }
}

static int read_status(machine *self, pst_pool_status *status_out)
{
    TOOL_PST(pst_pool_step(self->pool, self->stream));
    TOOL_PST(pst_stream_synchronize(self->device, self->stream));
    return tool_status(pst_pool_poll(self->pool, status_out));
}

static void on_event(void *user, const pst_simulated_event *event)
{
    machine *self = user;
    pst_pool_status status;
    char text[96];
    char place[128];
    if (event->kind < PST_SIMULATED_DO_STASH || event->kind > PST_SIMULATED_DO_PROMOTE ||
        self->code != TOOL_OK)
        return;
    self->num_operations++;
    self->code = play(self, event);
    if (self->code == TOOL_OK)
        self->code = read_status(self, &status);
    if (self->code != TOOL_OK || self->num_differences > 0)
        return;
    snprintf(place, sizeof(place), ", operation %" PRIu64 ", for the %s", self->num_operations - 1,
             simulate_visit_text(&event->visit, text));
    (void)differ(self, place, "pages in use", event->in_use[0], status.in_use[0]);
    (void)differ(self, place, "host pages in use", event->in_use[1], status.in_use[1]);
}

static int compare(machine *self, const pst_stage_result *result)
{
    pst_pool_status status;
    TOOL_TRY(read_status(self, &status));
    const struct {
        const char *name;
        uint64_t simulated, real;
    } figures[] = {
        {"high_water_pages", result->high_water[0], status.high_water[0]},
        {"high_water_host_pages", result->high_water[1], status.high_water[1]},
        {"demand_pages", result->demand_high_water, status.demand_high_water},
        {"spilled_pages", result->spilled_pages, status.spilled_pages},
        {"offloaded_pages", result->offloaded_pages, status.offloaded_pages},
        {"displaced_pages", result->displaced_pages, status.displaced_pages},
        {"demoted_pages", result->demoted_pages, status.demoted_pages},
        {"promoted_pages", result->promoted_pages, status.promoted_pages},
        {"stranded_pages", result->stranded_pages, status.stranded_pages},
        {"faults", result->num_faults, status.num_faults},
        {"pages in use at the end", result->in_use[0], status.in_use[0]},
        {"host pages in use at the end", result->in_use[1], status.in_use[1]},
        {"first fault", result->fault, status.fault},
        {"pages that it wanted", result->fault_wanted, status.fault_wanted},
        {"pages free then", result->fault_free[0], status.fault_free[0]},
        {"host pages free then", result->fault_free[1], status.fault_free[1]},
    };
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
        (void)differ(self, "", figures[i].name, figures[i].simulated, figures[i].real);
    if (result->num_faults > 0 && status.num_faults > 0)
        (void)differ(self, "", "ticket of the first fault",
                     pst_ticket_index(*ticket_of(self, &result->fault_visit)), status.fault_ticket);
    return TOOL_OK;
}

static int open_machine(machine *self, const char *device)
{
    const pst_status opened = pst_device_open(device, 0, &self->device);
    if (opened == PST_E_NO_DEVICE || opened == PST_E_UNSUPPORTED)
        return tool_fail(TOOL_DEVICE, "--check %s: %s", device, tool_last_message());
    TOOL_PST(opened);
    TOOL_PST(pst_stream_create(self->device, &self->stream));
    return make_buffers(self);
}

/* A stage by itself, in the order of calls: first to know how many pages, then on the pool. */
static int check_stage(machine *self, uint32_t s, const char *device)
{
    pst_simulation simulation;
    pst_stage_result result;
    pst_simulation_config config = self->model->config;
    config.num_stages = 1;
    config.alone = true;
    config.in_call_order = true;
    config.interference_per_mille = 0; /* time has no say in this order */
    config.steps = 1;
    config.chunk_order = self->model->order;
    config.schedules += s;
    config.layers += s;
    config.num_layers += s;
    config.on_event = NULL;
    TOOL_PST(pst_simulate(&config, &simulation, &result));
    TOOL_TRY(open_machine(self, device));
    TOOL_TRY(make_pool(self, &result));
    TOOL_TRY(make_tickets(self));
    config.on_event = on_event;
    config.user = self;
    TOOL_PST(pst_simulate(&config, &simulation, &result));
    TOOL_TRY(self->code);
    return compare(self, &result);
}

int simulate_check(const simulate_job *job, const simulate_model *model, simulate_result *result)
{
    static const char *const devices[] = {"host", "cuda"};
    for (uint32_t s = 0; s < model->num_stages; s++) {
        machine self = {
            .job = job, .model = model, .stage = &model->stages[s], .iteration = result->iteration};
        tool_progress("rank", s, model->num_stages);
        const int code = dismantle(&self, check_stage(&self, s, devices[job->options->check]));
        result->checked_operations += self.num_operations;
        result->num_differences += self.num_differences;
        TOOL_TRY(code);
    }
    tool_progress("rank", model->num_stages, model->num_stages);
    return TOOL_OK;
}
