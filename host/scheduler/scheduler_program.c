/* The schedules of a scheduler: the caller's or the recorded one, and the same with other numbers of
 * micro-batches, each with its program. */
#include "host/base/structs.h"
#include "host/scheduler/scheduler.h"

#include <string.h>

#include "kernels/core/mix.h"

void psti_compiled_free(psti_compiled *compiled)
{
    psti_program_free(compiled->program);
    pst_schedule_destroy(compiled->schedule);
    *compiled = (psti_compiled){NULL, NULL};
}

pst_status psti_scheduler_copy_schedule(const pst_schedule *from, pst_schedule **copy_out)
{
    pst_schedule_config config = from->config;
    config.passes = config.kind == PST_SCHEDULE_LIST ? from->passes : NULL;
    config.num_passes = config.kind == PST_SCHEDULE_LIST ? from->num_passes : 0;
    return pst_schedule_create(&config, copy_out);
}

pst_status psti_scheduler_check_slots(const pst_scheduler *self, const pst_schedule *schedule)
{
    for (uint32_t c = 0; c < self->num_chunks; c++) {
        if (self->layers_of[c] == 0)
            continue;
        PSTI_CHECK(c < schedule->num_chunks, PST_E_INVALID,
                   "layer 0 of chunk %u: the schedule has %u chunks", c, schedule->num_chunks);
        PSTI_CHECK(schedule->chunks[c].num_slots <= self->num_slots[c], PST_E_INVALID,
                   "chunk %u: the schedule needs %u slots, %u are allowed", c,
                   schedule->chunks[c].num_slots, self->num_slots[c]);
    }
    return PST_OK;
}

/* Whether a graph decides, and not the program. */
static bool is_frozen(const pst_scheduler *self, const psti_seat *seat)
{
    return self->is_frozen && self->layers[seat->layer].keep == PST_KEEP_PAGED;
}

/* Sets of a program by seat, where they belong to seats. */
static void seat_sets(pst_scheduler *self, const psti_compiled *compiled)
{
    const psti_program *program = compiled->program;
    for (uint32_t s = 0; s < self->num_seats; s++)
        if (!is_frozen(self, &self->seats[s]))
            memset(self->seats[s].sets, PSTI_NO_SET, sizeof(self->seats[s].sets));
    for (uint32_t v = 0; v < program->num_visits; v++) {
        const psti_visit *visit = &program->visits[v];
        psti_seat *seat = &self->seats[visit->seat];
        if (is_frozen(self, seat))
            continue;
        seat->sets[visit->kind] = visit->set;
        seat->in_place = visit->in_place;
    }
    /* what this schedule does not have of a seat would read the same destination */
    for (uint32_t s = 0; s < self->num_seats; s++) {
        uint8_t *sets = self->seats[s].sets;
        for (uint32_t a = PST_PASS_BACKWARD; a < PSTI_NUM_PASS_KINDS; a++)
            for (uint32_t b = PST_PASS_BACKWARD; b < PSTI_NUM_PASS_KINDS; b++)
                if (sets[a] == PSTI_NO_SET)
                    sets[a] = sets[b];
    }
}

void psti_scheduler_freeze(pst_scheduler *self)
{
    if (self->is_frozen || self->is_own)
        return;
    self->is_frozen = self->is_stale = true;
    for (uint32_t s = 0; s < self->num_seats; s++) {
        psti_seat *seat = &self->seats[s];
        const uint32_t number = seat->layer + seat->slot;
        for (uint32_t k = 0; k < PSTI_NUM_PASS_KINDS; k++) {
            const bool is_source = k == PST_PASS_FORWARD || seat->in_place;
            const uint32_t sets = is_source ? self->num_sources : self->num_destinations;
            if (seat->sets[k] == PSTI_NO_SET && is_frozen(self, seat))
                seat->sets[k] = (uint8_t)(number % sets);
        }
    }
}

/* A graph of a layer keeps the set that it was captured with. */
static pst_status check_graphs(const pst_scheduler *self, const psti_program *program)
{
    for (uint32_t v = 0; v < program->num_visits; v++) {
        const psti_visit *visit = &program->visits[v];
        const psti_seat *seat = &self->seats[visit->seat];
        const psti_scheduler_layer *layer = &self->layers[seat->layer];
        if (!(seat->graphs >> visit->kind & 1) || layer->keep != PST_KEEP_SWAPPED)
            continue;
        PSTI_CHECK(seat->sets[visit->kind] == visit->set && seat->in_place == visit->in_place,
                   PST_E_INVALID,
                   "layer %u of chunk %u, slot %u: its graph was captured with set %u%s, this "
                   "schedule gives it set %u%s",
                   layer->layer, layer->chunk, seat->slot, seat->sets[visit->kind],
                   seat->in_place ? " in place" : "", visit->set,
                   visit->in_place ? " in place" : "");
    }
    return PST_OK;
}

/* The caller's own form: each captured seat has the alias that it was given; the others share as many
 * as there are sets, so that few of their sources wait and few of their restores are ahead. */
static void own_aliases(const pst_scheduler *self, uint32_t s, uint32_t *forward,
                        uint32_t *backward)
{
    const psti_seat *seat = &self->seats[s];
    const psti_layer_memory *own = seat->own;
    *forward = own && own[0].is_known ? own[0].alias : UINT32_MAX - 2 * psti_own_source(self, seat);
    *backward = UINT32_MAX - 2 * ((seat->layer + seat->slot) % self->num_destinations) - 1;
    for (uint32_t k = PST_PASS_BACKWARD; own && k < PSTI_NUM_PASS_KINDS; k++)
        if (own[k].is_known)
            *backward = own[k].alias;
}

/* Where graphs of layers have addresses. NULL: there are none. */
static pst_status make_aliases(const pst_scheduler *self, uint32_t **aliases_out)
{
    const uint32_t seats = self->num_seats;
    bool any = self->is_frozen;
    *aliases_out = NULL;
    for (uint32_t s = 0; s < seats; s++)
        any |= self->seats[s].own != NULL;
    if (!any)
        return PST_OK;
    uint32_t *aliases = psti_calloc((size_t)seats * 2, sizeof(*aliases));
    PSTI_CHECK(aliases, PST_E_NOMEM, "no memory for aliases");
    for (uint32_t s = 0; s < seats; s++) {
        const psti_seat *seat = &self->seats[s];
        const uint32_t first_destination = seat->in_place ? 0 : PST_MAX_SETS;
        aliases[s] = seat->sets[PST_PASS_FORWARD];
        aliases[seats + s] = first_destination + seat->sets[PST_PASS_BACKWARD];
        if (!self->is_frozen)
            own_aliases(self, s, &aliases[s], &aliases[seats + s]);
    }
    *aliases_out = aliases;
    return PST_OK;
}

pst_status psti_scheduler_compile(pst_scheduler *self, pst_schedule *schedule,
                                  psti_compiled *compiled_out)
{
    uint32_t *numbers = psti_calloc((size_t)schedule->num_chunks * 2, sizeof(*numbers));
    uint32_t *aliases = NULL;
    psti_program_config config = {
        .schedule = schedule,
        .num_layers = numbers,
        .layers = self->program_layers,
        .num_slots = numbers ? numbers + schedule->num_chunks : NULL,
        .num_sources = self->num_sources,
        .num_destinations = self->num_destinations,
        .ahead = self->ahead,
        .num_streams = self->num_streams,
        .one_ring = self->one_ring,
        .keeps_nothing = self->keeps_nothing,
        .by_slot = self->capture == PST_CAPTURE_LAYERS,
        .rule = self->rule,
    };
    psti_compiled made = {.schedule = schedule, .program = NULL};
    pst_status status = numbers ? PST_OK : PSTI_FAIL(PST_E_NOMEM, "no memory for a program");
    for (uint32_t c = 0; numbers && c < schedule->num_chunks; c++) {
        const bool has_layers = c < self->num_chunks && self->layers_of[c] > 0;
        const uint32_t wanted = schedule->chunks[c].num_slots;
        numbers[c] = has_layers ? self->layers_of[c] : 0;
        numbers[schedule->num_chunks + c] = has_layers ? self->num_slots[c] : (wanted ? wanted : 1);
    }
    if (status == PST_OK)
        status = make_aliases(self, &aliases);
    if (aliases) {
        config.forward_alias = aliases;
        config.backward_alias = aliases + self->num_seats;
    }
    if (status == PST_OK)
        status = psti_program_make(&config, &made.program);
#ifndef NDEBUG
    if (status == PST_OK)
        status = psti_program_check(&config, made.program);
#endif
    if (status == PST_OK)
        status = check_graphs(self, made.program);
    if (status == PST_OK)
        status = psti_scheduler_check_glus(self, schedule);
    psti_free(numbers);
    psti_free(aliases);
    if (status != PST_OK) {
        psti_compiled_free(&made);
        return status;
    }
    *compiled_out = made;
    return PST_OK;
}

/* ---- which one is in force ---- */

static void use(pst_scheduler *self, const psti_compiled *compiled)
{
    self->now = *compiled;
    self->stats.program_bytes = compiled->program->bytes;
    self->stats.conflicts =
        (uint64_t)compiled->program->conflicts[0] + compiled->program->conflicts[1];
    if (self->capture == PST_CAPTURE_LAYERS)
        seat_sets(self, compiled);
}

static void drop_others(pst_scheduler *self)
{
    for (uint32_t i = 0; i < PSTI_MAX_COMPILED; i++)
        psti_compiled_free(&self->others[i]);
    self->next_other = 0;
}

void psti_scheduler_adopt(pst_scheduler *self, const psti_compiled *compiled)
{
    drop_others(self);
    psti_compiled_free(&self->base);
    self->base = *compiled;
    use(self, compiled);
}

static uint32_t num_micro_batches(const pst_schedule *schedule)
{
    return schedule->config.num_micro_batches;
}

/* Events, and host memory of swapped layers that leave in this order and did not until now. */
static pst_status add_what_it_needs(pst_scheduler *self, const psti_program *program,
                                    bool is_captured)
{
    PSTI_TRY(psti_scheduler_add_events(self, program->event_kinds, 0));
    return psti_scheduler_add_swapped(self, program, is_captured);
}

static pst_status make_other(pst_scheduler *self, uint32_t wanted, bool is_captured,
                             psti_compiled *compiled_out)
{
    pst_schedule_config config = self->base.schedule->config;
    pst_schedule *schedule = NULL;
    config.num_micro_batches = wanted;
    PSTI_TRY(pst_schedule_create(&config, &schedule));
    pst_status status = psti_scheduler_check_slots(self, schedule);
    if (status != PST_OK) {
        pst_schedule_destroy(schedule);
        return status;
    }
    PSTI_TRY(psti_scheduler_compile(self, schedule, compiled_out));
    status = add_what_it_needs(self, compiled_out->program, is_captured);
    if (status != PST_OK)
        psti_compiled_free(compiled_out);
    return status;
}

/* With the addresses that captured layers have by now. */
static pst_status compile_anew(pst_scheduler *self, bool is_captured)
{
    pst_schedule *copy = NULL;
    psti_compiled made;
    PSTI_TRY(psti_scheduler_copy_schedule(self->base.schedule, &copy));
    PSTI_TRY(psti_scheduler_compile(self, copy, &made));
    const pst_status status = add_what_it_needs(self, made.program, is_captured);
    if (status != PST_OK) {
        psti_compiled_free(&made);
        return status;
    }
    psti_scheduler_adopt(self, &made);
    self->is_stale = false;
    return PST_OK;
}

pst_status psti_scheduler_choose(pst_scheduler *self, uint32_t wanted, bool is_captured)
{
    if (self->is_stale)
        PSTI_TRY(compile_anew(self, is_captured));
    const uint32_t own = num_micro_batches(self->base.schedule);
    if (wanted == 0 || wanted == own) {
        if (self->now.program != self->base.program)
            use(self, &self->base);
        return PST_OK;
    }
    PSTI_CHECK(self->base.schedule->config.kind != PST_SCHEDULE_LIST, PST_E_INVALID,
               "num_micro_batches %u: the schedule has %u micro-batches, and is a list", wanted,
               own);
    for (uint32_t i = 0; i < PSTI_MAX_COMPILED; i++)
        if (self->others[i].schedule && num_micro_batches(self->others[i].schedule) == wanted) {
            if (self->now.program != self->others[i].program)
                use(self, &self->others[i]);
            return PST_OK;
        }
    psti_compiled made;
    PSTI_TRY(make_other(self, wanted, is_captured, &made));
    psti_compiled *place = &self->others[self->next_other++ % PSTI_MAX_COMPILED];
    psti_compiled_free(place);
    *place = made;
    use(self, place);
    return PST_OK;
}

/* ---- public ---- */

pst_status pst_scheduler_set_schedule(pst_scheduler *self, const pst_schedule *schedule)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    PSTI_CHECK_HANDLE(schedule, SCHEDULE);
    psti_compiled made = {NULL, NULL};
    pst_schedule *copy = NULL;
    pthread_mutex_lock(&self->lock);
    pst_status status = PST_OK;
    if (self->state != PSTI_SCHEDULER_IDLE)
        status = PSTI_FAIL(PST_E_BUSY, "a step is open: end or abort it first");
    if (status == PST_OK)
        status = psti_scheduler_check_slots(self, schedule);
    if (status == PST_OK)
        status = psti_scheduler_copy_schedule(schedule, &copy);
    if (status == PST_OK)
        status = psti_scheduler_compile(self, copy, &made);
    if (status == PST_OK)
        status = add_what_it_needs(self, made.program, false);
    if (status == PST_OK)
        status = psti_scheduler_write_serial(self, self->serial + 1);
    if (status == PST_OK) {
        self->serial++;
        psti_recording_close(self);
        self->was_recorded = false;
        psti_scheduler_adopt(self, &made);
    } else {
        psti_compiled_free(&made);
    }
    pthread_mutex_unlock(&self->lock);
    return status;
}

pst_status pst_scheduler_get_schedule_sized(const pst_scheduler *self,
                                            pst_schedule_config *config_out, size_t config_bytes)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    PSTI_CHECK(config_out, PST_E_INVALID, "config_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_schedule_config, config_bytes));
    pst_scheduler *mine = (pst_scheduler *)(uintptr_t)self;
    pst_status status = PST_OK;
    pthread_mutex_lock(&mine->lock);
    if (!self->base.schedule)
        status = PSTI_FAIL(PST_E_AGAIN, "no step was recorded yet");
    else
        memcpy(config_out, &self->base.schedule->info.config, config_bytes);
    pthread_mutex_unlock(&mine->lock);
    return status;
}

/* ---- what ranks must agree on ---- */

static void stir(uint64_t *digest, uint64_t value)
{
    *digest = psti_mix(*digest ^ value);
}

static void stir_layer(uint64_t *digest, const psti_scheduler_layer *layer)
{
    stir(digest, (uint64_t)layer->chunk << 32 | layer->layer);
    stir(digest, (uint64_t)layer->keep << 32 | layer->num_parts);
    for (uint32_t i = 0; i < layer->num_parts; i++) {
        stir(digest, layer->parts[i].uses | (layer->parts[i].is_glu ? 256u : 0u));
        stir(digest, layer->parts[i].group->form);
    }
    stir(digest, layer->whole_bytes);
    stir(digest, layer->token_bytes);
    stir(digest, layer->num_tokens);
    stir(digest, (uint64_t)layer->policy.host_num << 32 | layer->policy.host_den);
    stir(digest, (uint64_t)layer->policy.move << 32 | layer->policy.promote_ahead);
    stir(digest, layer->policy.swap_tokens);
    stir(digest, (layer->policy.recomputes ? 1u : 0u) | (layer->policy.holds ? 2u : 0u));
}

pst_status pst_scheduler_get_digest(const pst_scheduler *self, uint64_t *digest_out)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    PSTI_CHECK(digest_out, PST_E_INVALID, "digest_out is NULL");
    pst_scheduler *mine = (pst_scheduler *)(uintptr_t)self;
    uint64_t digest = 0;
    pthread_mutex_lock(&mine->lock);
    const bool is_known = self->base.schedule != NULL;
    if (is_known) {
        stir(&digest, self->base.schedule->info.digest);
        stir(&digest, (uint64_t)self->num_sources << 32 | self->num_destinations);
        stir(&digest, (uint64_t)self->ahead << 32 | self->num_streams);
        stir(&digest, (self->one_ring ? 1u : 0u) | (self->keeps_nothing ? 2u : 0u) |
                          (uint64_t)self->rule << 8 | (uint64_t)self->capture << 16);
        for (uint32_t l = 0; l < self->num_layers; l++)
            stir_layer(&digest, &self->layers[l]);
    }
    pthread_mutex_unlock(&mine->lock);
    PSTI_CHECK(is_known, PST_E_AGAIN, "no step was recorded yet");
    *digest_out = digest;
    return PST_OK;
}
