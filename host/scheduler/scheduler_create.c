/* Makes a scheduler from a config. */
#include "host/base/structs.h"
#include "host/scheduler/scheduler.h"

#include "host/base/arith.h"

/* ---- memory that is freed with the scheduler ---- */

typedef struct psti_block_of_scheduler {
    struct psti_block_of_scheduler *next;
    uint64_t padding;
} block;

void *psti_scheduler_take(pst_scheduler *self, uint64_t count, uint64_t bytes)
{
    const uint64_t wanted = psti_plus(psti_times(count, bytes), sizeof(block));
    block *taken = wanted > SIZE_MAX / 2 ? NULL : psti_calloc(1, (size_t)wanted);
    if (!taken)
        return NULL;
    taken->next = self->blocks;
    self->blocks = taken;
    return taken + 1;
}

void psti_scheduler_free(pst_scheduler *self)
{
    psti_recording_close(self);
    psti_compiled_free(&self->base);
    for (uint32_t i = 0; i < PSTI_MAX_COMPILED; i++)
        psti_compiled_free(&self->others[i]);
    for (block *next, *each = self->blocks; each; each = next) {
        next = each->next;
        psti_free(each);
    }
    pthread_mutex_destroy(&self->lock);
    psti_handle_free(self);
}

/* ---- the config ---- */

static pst_status take_sets_and_streams(pst_scheduler *self, const pst_scheduler_config *config)
{
    const uint32_t f = config->num_sources ? config->num_sources : 2;
    const uint32_t d = config->num_destinations || config->one_ring ? config->num_destinations : 2;
    PSTI_CHECK(f <= PST_MAX_SETS && d <= PST_MAX_SETS, PST_E_INVALID,
               "num_sources %u, num_destinations %u: allowed are 1 to %d", f, d, PST_MAX_SETS);
    PSTI_CHECK(!config->one_ring || d == 0, PST_E_INVALID, "num_destinations %u: one ring has none",
               d);
    PSTI_CHECK(!config->one_ring || config->capture == PST_CAPTURE_ITERATION, PST_E_INVALID,
               "one_ring is for PST_CAPTURE_ITERATION");
    const bool is_ordered = !self->pool || !self->pool->view.concurrent;
    const uint32_t streams = config->num_streams ? config->num_streams : (is_ordered ? 1 : 2);
    PSTI_CHECK(streams == 1 || streams == 2 || streams == 4, PST_E_INVALID,
               "num_streams %u: allowed are 1, 2 and 4", streams);
    PSTI_CHECK(streams == 1 || !is_ordered, PST_E_INVALID,
               "num_streams %u: operations of an ordered pool need one", streams);
    PSTI_CHECK(config->rule == PST_RESTORE_ASAP || config->rule == PST_RESTORE_NEXT, PST_E_INVALID,
               "rule %d: allowed are asap and next", (int)config->rule);
    PSTI_CHECK(config->rule == PST_RESTORE_ASAP || streams == 1, PST_E_INVALID,
               "rule PST_RESTORE_NEXT has one stream, not %u", streams);
    self->num_sources = f;
    self->num_destinations = d;
    self->num_streams = streams;
    return PST_OK;
}

static pst_status take_config(pst_scheduler *self, const pst_scheduler_config *config)
{
    PSTI_CHECK(config->capture == PST_CAPTURE_ITERATION || config->capture == PST_CAPTURE_LAYERS,
               PST_E_INVALID, "capture %d: allowed are iteration and layers", (int)config->capture);
    PSTI_CHECK(config->padding == 0, PST_E_INVALID, "padding: must be 0");
    PSTI_CHECK(config->num_layers > 0 && config->layers, PST_E_INVALID, "no layers");
    PSTI_CHECK(config->num_layers <= PSTI_MAX_SEATS, PST_E_INVALID, "num_layers %u: too many",
               config->num_layers);
    PSTI_CHECK(config->tail >= PST_TAIL_UNTOUCHED && config->tail <= PST_TAIL_ZERO_ALL,
               PST_E_INVALID, "tail %d: allowed are untouched, zero and zero all",
               (int)config->tail);
    PSTI_CHECK(config->failed == PST_FAILED_UNTOUCHED || config->failed == PST_FAILED_ZERO,
               PST_E_INVALID, "failed %d: allowed are untouched and zero", (int)config->failed);
    PSTI_CHECK(config->num_stages ? config->stage < config->num_stages : config->stage == 0,
               PST_E_INVALID, "stage %u of num_stages %u", config->stage, config->num_stages);
    self->ahead = config->ahead;
    self->one_ring = config->one_ring;
    self->keeps_nothing = config->keeps_nothing;
    self->measures = config->measures;
    self->rule = config->rule;
    self->max_slots = config->max_slots;
    self->num_stages = config->num_stages;
    self->stage = config->stage;
    self->capture = config->capture;
    self->destination = config->destination;
    self->user = config->user;
    self->stash_options = (pst_stash_options)PST_STASH_OPTIONS_INIT;
    self->stash_options.launch = config->launch[0];
    self->restore_options = (pst_restore_options)PST_RESTORE_OPTIONS_INIT;
    self->restore_options.launch = config->launch[1];
    self->restore_options.tail = config->tail;
    self->restore_options.failed = config->failed;
    for (uint32_t i = 0; self->device && i < 2; i++) {
        psti_launch launch;
        PSTI_TRY(psti_launch_make(self->device, &config->launch[i], &launch));
    }
    PSTI_TRY(take_sets_and_streams(self, config));
    return psti_scheduler_take_layers(self, config);
}

/* ---- seats ---- */

enum { SLOTS_WHILE_RECORDING = 8 };

static pst_status make_seats(pst_scheduler *self, const pst_schedule *schedule)
{
    uint64_t seats = 0, tickets = 0;
    for (uint32_t c = 0; c < self->num_chunks; c++) {
        const uint32_t wanted =
            schedule && c < schedule->num_chunks ? schedule->chunks[c].num_slots : 0;
        const uint32_t least = schedule ? wanted : SLOTS_WHILE_RECORDING;
        self->num_slots[c] = self->max_slots ? self->max_slots : (least ? least : 1);
        self->first_seat[c] = (uint32_t)seats;
        seats = psti_plus(seats, psti_times(self->layers_of[c], self->num_slots[c]));
        PSTI_CHECK(seats <= PSTI_MAX_SEATS, PST_E_INVALID,
                   "layers times slots are more than %u: fewer max_slots", PSTI_MAX_SEATS);
    }
    self->num_seats = (uint32_t)seats;
    self->seats = psti_scheduler_take(self, seats, sizeof(*self->seats));
    PSTI_CHECK(self->seats, PST_E_NOMEM, "no memory for a scheduler");
    for (uint32_t l = 0; l < self->num_layers; l++) {
        const psti_scheduler_layer *layer = &self->layers[l];
        const uint32_t slots = self->num_slots[layer->chunk];
        psti_seat *seat = self->seats + self->first_seat[layer->chunk] + layer->layer * slots;
        for (uint32_t slot = 0; slot < slots; slot++, tickets += layer->num_parts)
            seat[slot] = (psti_seat){.layer = l, .slot = slot, .first_ticket = (uint32_t)tickets};
    }
    self->num_tickets = (uint32_t)tickets;
    return PST_OK;
}

static pst_status check_handles(const pst_scheduler_config *config)
{
    pst_pool *const pool = config->pool;
    pst_arena *const arena = config->arena;
    const pst_schedule *const schedule = config->schedule;
    PSTI_TRY(PSTI_CHECK_SIZE_IN(pst_layer, config, layer_bytes));
    PSTI_TRY(PSTI_CHECK_SIZE_IN(pst_part, config, part_bytes));
    if (pool)
        PSTI_CHECK_HANDLE(pool, POOL);
    if (arena)
        PSTI_CHECK_HANDLE(arena, ARENA);
    if (schedule)
        PSTI_CHECK_HANDLE(schedule, SCHEDULE);
    return PST_OK;
}

static pst_status fill(pst_scheduler *self, const pst_scheduler_config *config)
{
    self->pool = config->pool;
    self->arena = config->arena;
    self->device = self->pool ? self->pool->device : NULL;
    PSTI_TRY(take_config(self, config));
    PSTI_TRY(make_seats(self, config->schedule));
    return config->schedule ? psti_scheduler_check_slots(self, config->schedule) : PST_OK;
}

/* Everything that takes no device call. NULL: *status says why. */
static pst_scheduler *prepare(const pst_scheduler_config *config, pst_status *status)
{
    *status = check_handles(config);
    if (*status != PST_OK)
        return NULL;
    pst_scheduler *self = psti_handle_new(sizeof(*self), PSTI_KIND_SCHEDULER);
    if (!self) {
        *status = PSTI_FAIL(PST_E_NOMEM, "no memory for a scheduler");
        return NULL;
    }
    pthread_mutex_init(&self->lock, NULL);
    *status = fill(self, config);
    if (*status == PST_OK)
        return self;
    psti_scheduler_free(self);
    return NULL;
}

/* The program of a scheduler that has a schedule. */
static pst_status compile(pst_scheduler *self, const pst_schedule *schedule)
{
    pst_schedule *copy = NULL;
    psti_compiled compiled;
    if (!schedule)
        return psti_recording_open(self);
    PSTI_TRY(psti_scheduler_copy_schedule(schedule, &copy));
    PSTI_TRY(psti_scheduler_compile(self, copy, &compiled));
    psti_scheduler_adopt(self, &compiled);
    return PST_OK;
}

pst_status pst_scheduler_bytes(const pst_scheduler_config *given, uint64_t *device_bytes_out,
                               uint64_t *host_bytes_out)
{
    PSTI_CHECK(device_bytes_out && host_bytes_out, PST_E_INVALID, "an out parameter is NULL");
    PSTI_TAKE(pst_scheduler_config, config, given);
    pst_status status;
    pst_scheduler *self = prepare(&config, &status);
    if (!self)
        return status;
    uint64_t device_bytes = self->pool ? sizeof(uint64_t) : 0, host_bytes = 0;
    status = compile(self, config.schedule);
    for (uint32_t l = 0; l < self->num_layers && status == PST_OK; l++) {
        const psti_scheduler_layer *layer = &self->layers[l];
        const uint64_t slots = self->num_slots[layer->chunk];
        host_bytes =
            psti_plus(host_bytes, psti_scheduler_swapped_bytes(self, l, self->now.program));
        for (uint32_t p = 0; p < layer->num_parts && status == PST_OK; p++) {
            uint64_t bytes = 0;
            status = pst_ticket_bytes(self->pool, layer->parts[p].group, &bytes);
            device_bytes = psti_plus(device_bytes, psti_times(bytes, slots));
        }
    }
    if (self->now.program)
        host_bytes = psti_plus(host_bytes, self->now.program->bytes);
    psti_scheduler_free(self);
    PSTI_TRY(status);
    *device_bytes_out = device_bytes;
    *host_bytes_out = host_bytes;
    return PST_OK;
}

pst_status pst_scheduler_create(const pst_scheduler_config *given, pst_scheduler **scheduler_out)
{
    PSTI_CHECK(scheduler_out, PST_E_INVALID, "scheduler_out is NULL");
    PSTI_TAKE(pst_scheduler_config, config, given);
    pst_status status;
    pst_scheduler *self = prepare(&config, &status);
    if (!self)
        return status;
    status = compile(self, config.schedule);
    if (status == PST_OK)
        status = psti_scheduler_open(self, &config);
    if (status != PST_OK) {
        psti_scheduler_close(self);
        psti_scheduler_free(self);
        return status;
    }
    if (self->device)
        psti_device_retain(self->device, PSTI_LIVE_SCHEDULER);
    *scheduler_out = self;
    return PST_OK;
}
