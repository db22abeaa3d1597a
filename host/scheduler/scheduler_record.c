/* The first step of a scheduler without a schedule: any order of passes is taken and written down.
 * Every visit is stashed, and restored when its backward begins. */
#include "host/scheduler/record.h"

/* ---- operations of a visit, as a program has them ---- */

enum { MAX_OPERATIONS = 2 * PST_MAX_PARTS + 8 };

typedef struct operations {
    psti_operation each[MAX_OPERATIONS];
    uint32_t num;
    uint32_t seat;
} operations;

static void put_event(operations *ops, psti_act act, uint32_t stream, psti_event_kind event,
                      uint32_t seat)
{
    ops->each[ops->num++] = (psti_operation){
        .act = (uint8_t)act, .stream = (uint8_t)stream, .event = (uint8_t)event, .seat = seat};
}

static void put_part(operations *ops, psti_act act, uint32_t stream, uint32_t part, bool keeps)
{
    ops->each[ops->num++] = (psti_operation){.act = (uint8_t)act,
                                             .stream = (uint8_t)stream,
                                             .part = (uint8_t)part,
                                             .keeps = keeps,
                                             .seat = ops->seat};
}

/* Side streams of a layer: to the pages or the host, and back. */
static uint32_t side_of(const pst_scheduler *self, pst_keep keep, bool is_back)
{
    if (self->num_streams == 1)
        return PSTI_ON_SIDE;
    const uint32_t first = keep == PST_KEEP_SWAPPED && self->num_streams == 4 ? 2 : 0;
    return PSTI_ON_SIDE + first + (is_back ? 1 : 0);
}

/* Index into last_out of the set or buffer that a forward has. */
static uint32_t out_of(const psti_visit *visit)
{
    return visit->set + (visit->keep == PST_KEEP_SWAPPED ? PST_MAX_SETS : 0u);
}

static void forward_begin(const pst_scheduler *self, const psti_visit *visit, operations *ops)
{
    const uint32_t seat = self->recording->last_out[out_of(visit)];
    if (seat != PSTI_NO_SEAT)
        put_event(ops, PSTI_ACT_WAIT, PSTI_ON_MAIN, PSTI_EVENT_STASHED, seat);
}

static void forward_end(const pst_scheduler *self, const psti_visit *visit, operations *ops)
{
    const psti_scheduler_layer *layer = &self->layers[self->seats[visit->seat].layer];
    const uint32_t side = side_of(self, layer->keep, false);
    put_event(ops, PSTI_ACT_RECORD, PSTI_ON_MAIN, PSTI_EVENT_PRODUCED, visit->seat);
    put_event(ops, PSTI_ACT_WAIT, side, PSTI_EVENT_PRODUCED, visit->seat);
    for (uint32_t part = 0; part < layer->num_parts; part++)
        if (!layer->parts[part].is_glu)
            put_part(ops, PSTI_ACT_STASH, side, part, false);
    if (layer->keep == PST_KEEP_SWAPPED)
        put_part(ops, PSTI_ACT_SWAP_OUT, side, 0, false);
    put_event(ops, PSTI_ACT_RECORD, side, PSTI_EVENT_STASHED, visit->seat);
}

/* An input backward leaves in the pages what a weight pass may read. */
static void put_restores(const psti_scheduler_layer *layer, pst_pass_kind kind, uint32_t side,
                         operations *ops)
{
    for (uint32_t part = 0; part < layer->num_parts; part++) {
        const uint32_t uses = layer->parts[part].uses;
        const bool reads = kind == PST_PASS_BACKWARD ||
                           (kind == PST_PASS_BACKWARD_INPUT ? (uses & PST_USE_BACKWARD) != 0
                                                            : (uses & PST_USE_WEIGHT) != 0);
        const bool keeps = kind == PST_PASS_BACKWARD_INPUT && uses & PST_USE_WEIGHT;
        if (reads && !layer->parts[part].is_glu)
            put_part(ops, PSTI_ACT_RESTORE, side, part, keeps);
    }
    if (layer->keep == PST_KEEP_SWAPPED)
        put_part(ops, PSTI_ACT_SWAP_IN, side, 0, false);
}

/* What reads the set before is on the caller's stream, which is behind it here. */
static void backward_begin(const pst_scheduler *self, const psti_visit *visit, operations *ops)
{
    const psti_scheduler_layer *layer = &self->layers[self->seats[visit->seat].layer];
    const uint32_t side = side_of(self, layer->keep, true);
    const uint32_t out = self->recording->last_out[PST_MAX_SETS + visit->set % 2];
    const uint32_t one_ring = self->recording->last_out[visit->set];
    put_event(ops, PSTI_ACT_RECORD, PSTI_ON_MAIN, PSTI_EVENT_CONSUMED, visit->seat);
    put_event(ops, PSTI_ACT_WAIT, side, PSTI_EVENT_CONSUMED, visit->seat);
    put_event(ops, PSTI_ACT_WAIT, side, PSTI_EVENT_STASHED, visit->seat);
    if (layer->keep == PST_KEEP_SWAPPED && out != PSTI_NO_SEAT)
        put_event(ops, PSTI_ACT_WAIT, side, PSTI_EVENT_STASHED, out);
    if (layer->keep == PST_KEEP_PAGED && self->one_ring && one_ring != PSTI_NO_SEAT)
        put_event(ops, PSTI_ACT_WAIT, side, PSTI_EVENT_STASHED, one_ring);
    put_restores(layer, (pst_pass_kind)visit->kind, side, ops);
    put_event(ops, PSTI_ACT_RECORD, side, PSTI_EVENT_RESTORED, visit->seat);
    put_event(ops, PSTI_ACT_WAIT, PSTI_ON_MAIN, PSTI_EVENT_RESTORED, visit->seat);
}

/* ---- hooks ---- */

static uint8_t next_set(pst_scheduler *self, pst_keep keep, bool is_forward)
{
    psti_recording *r = self->recording;
    if (keep == PST_KEEP_SWAPPED)
        return (uint8_t)(r->next_buffer++ % 2);
    if (keep != PST_KEEP_PAGED)
        return PSTI_NO_SET;
    if (is_forward || self->one_ring)
        return (uint8_t)(r->next_source++ % self->num_sources);
    return (uint8_t)(r->next_destination++ % self->num_destinations);
}

static bool is_kept(const psti_visit *visit)
{
    return visit->keep == PST_KEEP_PAGED || visit->keep == PST_KEEP_SWAPPED;
}

static pst_status play(pst_scheduler *self, const pst_visit_key *key, const psti_active *a,
                       const operations *ops, bool is_begin, const pst_buffers *const *sources,
                       pst_stream stream)
{
    const psti_hook hook = {.key = *key,
                            .stream = stream,
                            .is_begin = is_begin,
                            .announced = a->announced,
                            .seat = a->visit.seat,
                            .sources = sources};
    return psti_scheduler_play(self, &hook, ops->each, ops->num, &a->visit);
}

static psti_active *recomputes(const pst_scheduler *self, const pst_visit_key *key)
{
    psti_recording *r = self->recording;
    for (uint32_t i = 0; i < r->num_actives && key->kind == PST_PASS_FORWARD; i++) {
        psti_active *a = &r->actives[i];
        const pst_pass *pass = &r->passes[a->pass];
        if (a->is_open && pass->kind != PST_PASS_FORWARD && a->visit.keep == PST_KEEP_RECOMPUTED &&
            pass->chunk == key->chunk && pass->micro_batch == key->micro_batch &&
            a->visit.layer == key->layer)
            return a;
    }
    return NULL;
}

/* Of the caller's own form: whose set the new visit takes. */
static void tell_freed(pst_scheduler *self, const pst_visit_key *key, const psti_visit *visit,
                       pst_visit *visit_out)
{
    psti_recording *r = self->recording;
    if (!self->is_own || visit->keep != PST_KEEP_PAGED ||
        (key->kind != PST_PASS_FORWARD && !self->one_ring))
        return;
    if (r->is_pending[visit->set])
        visit_out->freed[visit_out->num_freed++] = r->pending[visit->set];
    r->is_pending[visit->set] = key->kind == PST_PASS_FORWARD;
    r->pending[visit->set] = *key;
}

static void count(pst_scheduler *self, pst_keep keep)
{
    self->stats.visits++;
    self->stats.stashed += keep == PST_KEEP_PAGED;
    self->stats.swapped += keep == PST_KEEP_SWAPPED;
    self->stats.planned += keep == PST_KEEP_PLANNED;
    self->stats.recomputed += keep == PST_KEEP_RECOMPUTED;
}

pst_status psti_recording_begin(pst_scheduler *self, const pst_visit_key *key, pst_stream stream,
                                pst_visit *visit_out)
{
    const bool is_forward = key->kind == PST_PASS_FORWARD;
    psti_active *a = recomputes(self, key);
    operations ops = {.num = 0};
    if (a) {
        char text[PSTI_KEY_TEXT_BYTES];
        PSTI_CHECK(!a->is_recomputing, PST_E_ORDER, "%s: it is being computed again already",
                   psti_key_text(self, key, text));
        a->is_recomputing = true;
        psti_scheduler_tell(self, &self->seats[a->visit.seat], &a->visit, visit_out);
        visit_out->is_live = false;
        visit_out->first_token = UINT64_MAX;
        return PST_OK;
    }
    pst_status status;
    a = psti_recorded_next(self, key, &status);
    if (!a)
        return status;
    const uint32_t l = self->first_layer[key->chunk] + key->layer;
    const uint32_t *slot = psti_recorded_find_slot(self, key->chunk, key->micro_batch);
    const uint32_t at =
        (uint32_t)(slot - self->recording->owners) - self->recording->first_slot[key->chunk];
    ops.seat = self->first_seat[key->chunk] + key->layer * self->num_slots[key->chunk] + at;
    a->visit = (psti_visit){.layer = key->layer,
                            .seat = ops.seat,
                            .kind = (uint8_t)key->kind,
                            .keep = (uint8_t)self->layers[l].keep,
                            .set = next_set(self, self->layers[l].keep, is_forward)};
    a->announced = 0;
    a->is_open = true;
    a->stream = stream;
    PSTI_TRY(psti_scheduler_follow(self, self->before[0], stream));
    self->before[0] = stream;
    if (is_kept(&a->visit) && is_forward)
        forward_begin(self, &a->visit, &ops);
    else if (is_kept(&a->visit))
        backward_begin(self, &a->visit, &ops);
    PSTI_TRY(play(self, key, a, &ops, true, NULL, stream));
    psti_scheduler_tell(self, &self->seats[ops.seat], &a->visit, visit_out);
    tell_freed(self, key, &a->visit, visit_out);
    if (is_forward)
        count(self, self->layers[l].keep);
    return PST_OK;
}

const psti_visit *psti_recording_find_open(const pst_scheduler *self, pst_pass_kind kind,
                                           uint32_t seat)
{
    const psti_recording *r = self->recording;
    for (uint32_t i = 0; i < r->num_actives; i++) {
        const psti_active *a = &r->actives[i];
        if (a->is_open && !a->is_recomputing && a->visit.seat == seat && a->visit.kind == kind)
            return &a->visit;
    }
    return NULL;
}

static pst_status check_open(const pst_scheduler *self, const pst_visit_key *key, pst_stream stream,
                             const psti_active *a)
{
    char text[PSTI_KEY_TEXT_BYTES];
    PSTI_CHECK(a && a->is_open && a->visit.layer == key->layer, PST_E_ORDER,
               "end of %s: it has not begun; while recording", psti_key_text(self, key, text));
    PSTI_CHECK(!a->is_recomputing, PST_E_ORDER, "end of %s: its layer is being computed again",
               psti_key_text(self, key, text));
    PSTI_CHECK(a->stream == stream, PST_E_ORDER, "end of %s: it began on another stream",
               psti_key_text(self, key, text));
    return PST_OK;
}

pst_status psti_recording_part(pst_scheduler *self, const pst_visit_key *key, uint32_t part,
                               const pst_buffers *source, pst_stream stream)
{
    char text[PSTI_KEY_TEXT_BYTES];
    const pst_buffers *sources[PST_MAX_PARTS] = {NULL};
    psti_active *a = recomputes(self, key);
    if (a && a->is_recomputing)
        return PST_OK;
    a = psti_recorded_find_active(self, key);
    PSTI_TRY(check_open(self, key, stream, a));
    if (!a)
        return PST_E_ORDER;
    const psti_scheduler_layer *layer = &self->layers[self->seats[a->visit.seat].layer];
    PSTI_CHECK(part < layer->num_parts, PST_E_INVALID, "%s: part %u: it has %u",
               psti_key_text(self, key, text), part, layer->num_parts);
    PSTI_CHECK(!layer->parts[part].is_glu, PST_E_INVALID, "%s: part %u: pst_glu_forward stashes it",
               psti_key_text(self, key, text), part);
    PSTI_CHECK(!(a->announced >> part & 1), PST_E_ORDER, "%s: part %u was announced already",
               psti_key_text(self, key, text), part);
    operations ops = {.seat = a->visit.seat};
    const uint32_t side = side_of(self, PST_KEEP_PAGED, false);
    put_event(&ops, PSTI_ACT_RECORD, PSTI_ON_MAIN, PSTI_EVENT_PRODUCED, a->visit.seat);
    put_event(&ops, PSTI_ACT_WAIT, side, PSTI_EVENT_PRODUCED, a->visit.seat);
    put_part(&ops, PSTI_ACT_STASH, side, part, false);
    sources[part] = source;
    PSTI_TRY(play(self, key, a, &ops, false, sources, stream));
    a->announced |= (uint8_t)(1u << part);
    return PST_OK;
}

pst_status psti_recording_end(pst_scheduler *self, const pst_visit_key *key,
                              const pst_buffers *const *sources, pst_stream stream)
{
    psti_active *a = recomputes(self, key);
    if (a && a->is_recomputing) {
        a->is_recomputing = false;
        return PST_OK;
    }
    a = psti_recorded_find_active(self, key);
    PSTI_TRY(check_open(self, key, stream, a));
    if (!a)
        return PST_E_ORDER;
    operations ops = {.seat = a->visit.seat};
    if (key->kind == PST_PASS_FORWARD && is_kept(&a->visit)) {
        forward_end(self, &a->visit, &ops);
        PSTI_TRY(play(self, key, a, &ops, false, sources, stream));
        self->recording->last_out[out_of(&a->visit)] = a->visit.seat;
    }
    /* a pair's other pass may have come on another stream meanwhile */
    PSTI_TRY(psti_scheduler_follow(self, stream, self->before[0]));
    a->is_open = false;
    a->num_visits++;
    const bool is_last = key->kind == PST_PASS_BACKWARD || key->kind == PST_PASS_BACKWARD_WEIGHT;
    if (is_last && psti_recorded_is_done(self, a))
        *psti_recorded_find_slot(self, key->chunk, key->micro_batch) = PSTI_NO_MICRO_BATCH;
    return PST_OK;
}

/* ---- the schedule ---- */

/* Tickets of input backwards without a weight pass, and of forwards without a backward. */
static pst_status release_rest(pst_scheduler *self)
{
    const psti_recording *r = self->recording;
    psti_capture_of capture;
    for (uint32_t s = 0; s < self->num_seats; s++) {
        const psti_seat *seat = &self->seats[s];
        const psti_scheduler_layer *layer = &self->layers[seat->layer];
        const pst_stream side = self->side[side_of(self, PST_KEEP_PAGED, true) - PSTI_ON_SIDE];
        if (layer->num_parts == 0 ||
            r->owners[r->first_slot[layer->chunk] + seat->slot] == PSTI_NO_MICRO_BATCH)
            continue;
        PSTI_TRY(
            psti_scheduler_wait(self, *psti_scheduler_event(self, s, PSTI_EVENT_STASHED), side));
        PSTI_TRY(psti_scheduler_follow(self, self->before[0], side)); /* what a GLU has kept */
        PSTI_TRY(self->device->ops->capture_of(self->device, side, &capture));
        for (uint32_t p = 0; p < layer->num_parts; p++)
            PSTI_TRY(psti_ticket_clear(psti_ticket_find(self->tickets[seat->first_ticket + p]),
                                       &capture, side));
    }
    return PST_OK;
}

pst_status psti_recording_end_step(pst_scheduler *self, pst_stream stream)
{
    psti_recording *r = self->recording;
    pst_schedule *schedule = NULL;
    psti_compiled made = {NULL, NULL};
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    (void)stream;
    PSTI_TRY(psti_recorded_check_done(self));
    PSTI_TRY(release_rest(self));
    if (!psti_recorded_recognise(self, &config)) {
        config = (pst_schedule_config)PST_SCHEDULE_CONFIG_INIT;
        config.kind = PST_SCHEDULE_LIST;
        config.passes = r->passes;
        config.num_passes = r->num;
    }
    PSTI_TRY(pst_schedule_create(&config, &schedule));
    pst_status status = psti_scheduler_check_slots(self, schedule);
    if (status != PST_OK) {
        pst_schedule_destroy(schedule);
        return status;
    }
    PSTI_TRY(psti_scheduler_compile(self, schedule, &made));
    status = psti_scheduler_add_events(self, made.program->event_kinds, 0);
    if (status != PST_OK) {
        psti_compiled_free(&made);
        return status;
    }
    psti_recording_close(self);
    psti_scheduler_adopt(self, &made);
    self->was_recorded = true;
    return PST_OK;
}
