/* The hooks: before and after a layer's forward and backward. */
#include "host/scheduler/scheduler.h"

#include <string.h>

#include "host/base/nvtx.h"

/* ---- around every hook ---- */

/* The step's captures: all hooks are in the one of step_begin, or in none. */
static pst_status check_capture(const pst_scheduler *self, pst_stream stream)
{
    psti_capture_of capture;
    if (!self->device)
        return PST_OK;
    PSTI_TRY(self->device->ops->capture_of(self->device, stream, &capture));
    if (capture.id == self->capture_id)
        return PST_OK;
    PSTI_CHECK(self->capture == PST_CAPTURE_ITERATION, PST_E_CAPTURE,
               "a hook on a captured stream: with PST_CAPTURE_LAYERS they come outside graphs");
    PSTI_CHECK(self->capture_id, PST_E_CAPTURE, "the step began outside this capture");
    /* a second stream joins by its first wait */
    for (uint32_t i = 0; i < self->num_lanes; i++)
        PSTI_CHECK(!self->lanes[i].has_stream || self->lanes[i].stream != stream, PST_E_CAPTURE,
                   "the capture that the step began in has ended");
    for (uint32_t i = 0; i < self->num_before; i++)
        PSTI_CHECK(self->before[i] != stream, PST_E_CAPTURE,
                   "the capture that the step began in has ended");
    PSTI_CHECK(capture.id == 0, PST_E_CAPTURE, "the step began in another capture");
    return PST_OK;
}

static pst_status enter(pst_scheduler *self, const pst_visit_key *key, pst_stream stream)
{
    char text[PSTI_KEY_TEXT_BYTES];
    PSTI_CHECK(self->state != PSTI_SCHEDULER_BROKEN, PST_E_ORDER,
               "%s: the step is broken by an earlier error: pst_scheduler_abort",
               psti_key_text(self, key, text));
    PSTI_CHECK(self->state == PSTI_SCHEDULER_OPEN, PST_E_ORDER, "%s: no step is open",
               psti_key_text(self, key, text));
    return self->is_evaluating ? PST_OK : check_capture(self, stream);
}

/* Gives the lock back; what failed breaks the step. */
static pst_status leave(pst_scheduler *self, pst_status status)
{
    if (status != PST_OK && self->state == PSTI_SCHEDULER_OPEN)
        self->state = PSTI_SCHEDULER_BROKEN;
    pthread_mutex_unlock(&self->lock);
    return status;
}

/* ---- what a hook says ---- */

static uint32_t set_of(const pst_scheduler *self, const psti_seat *seat, const psti_visit *visit)
{
    const bool is_fixed = visit->keep == PST_KEEP_SWAPPED || !self->is_own;
    const uint8_t set = psti_set_of(seat, visit);
    return set == PSTI_NO_SET || !is_fixed ? UINT32_MAX : set;
}

void psti_scheduler_tell(const pst_scheduler *self, const psti_seat *seat, const psti_visit *visit,
                         pst_visit *visit_out)
{
    const psti_scheduler_layer *layer = &self->layers[seat->layer];
    const bool is_forward = visit->kind == PST_PASS_FORWARD;
    visit_out->slot = seat->slot;
    visit_out->set = set_of(self, seat, visit);
    visit_out->in_place = visit->in_place || (self->is_frozen && !is_forward && seat->in_place);
    visit_out->is_live = true;
    visit_out->is_held = visit->is_held;
    visit_out->padding = 0;
    visit_out->num_freed = 0;
    visit_out->first_token = is_forward || visit->in_place ? UINT64_MAX : layer->first_token;
}

/* Evaluation, and what is computed again. */
static void tell_not_live(const pst_scheduler *self, const psti_seat *seat, pst_visit *visit_out)
{
    const psti_scheduler_layer *layer = &self->layers[seat->layer];
    const bool by_slot = self->capture == PST_CAPTURE_LAYERS && self->now.program;
    const bool has_sets =
        layer->keep == PST_KEEP_SWAPPED || (layer->keep == PST_KEEP_PAGED && !self->is_own);
    const uint8_t set = by_slot ? seat->sets[0] : 0;
    *visit_out = (pst_visit){.slot = seat->slot,
                             .set = has_sets && set != PSTI_NO_SET ? set : UINT32_MAX,
                             .first_token = UINT64_MAX};
}

/* The source that the set of this visit held is no longer in use. */
static void tell_freed(pst_scheduler *self, const psti_visit *visit, pst_visit *visit_out)
{
    const psti_seat *seat = &self->seats[visit->seat];
    const bool is_forward = visit->kind == PST_PASS_FORWARD;
    if (visit->keep != PST_KEEP_PAGED || (visit->set == PSTI_NO_SET && !is_forward))
        return;
    if (!is_forward && (!self->one_ring || visit->in_place))
        return;
    if (seat->own && seat->own[0].is_known)
        return; /* a graph's, for good */
    uint32_t *pending =
        &self->pending[visit->set == PSTI_NO_SET ? psti_own_source(self, seat) : visit->set];
    if (*pending != PSTI_NO_VISIT) {
        const psti_visit *freed = &self->now.program->visits[*pending];
        const pst_pass *pass = &self->now.schedule->passes[freed->pass];
        visit_out->freed[visit_out->num_freed++] =
            (pst_visit_key){.kind = PST_PASS_FORWARD,
                            .chunk = pass->chunk,
                            .layer = freed->layer,
                            .micro_batch = pass->micro_batch};
    }
    *pending = PSTI_NO_VISIT;
    if (is_forward && !visit->in_place)
        *pending = (uint32_t)(visit - self->now.program->visits);
}

/* Of an input backward: whether its weight pass reads the same destination. */
static bool is_held_on(const pst_scheduler *self, const pst_visit_key *key)
{
    const psti_program *program = self->now.program;
    const psti_life *life = psti_schedule_life(self->now.schedule, key->chunk, key->micro_batch);
    if (life->last_backward == life->first_backward)
        return false;
    return program
        ->visits[program->first_visit[life->last_backward] + program->num_layers[key->chunk] - 1 -
                 key->layer]
        .is_held;
}

/* ---- evaluation ---- */

static uint32_t first_seat(const pst_scheduler *self, const pst_visit_key *key)
{
    return self->first_seat[key->chunk] + key->layer * self->num_slots[key->chunk];
}

static pst_status evaluate(const pst_scheduler *self, const pst_visit_key *key,
                           pst_visit *visit_out)
{
    char text[PSTI_KEY_TEXT_BYTES];
    PSTI_CHECK(key->kind == PST_PASS_FORWARD, PST_E_ORDER, "%s, in a forward-only step",
               psti_key_text(self, key, text));
    PSTI_CHECK(key->chunk < self->num_chunks && key->layer < self->layers_of[key->chunk],
               PST_E_ORDER, "%s: there is no such layer", psti_key_text(self, key, text));
    if (visit_out)
        tell_not_live(self, &self->seats[first_seat(self, key)], visit_out);
    return PST_OK;
}

static pst_status evaluate_end(pst_scheduler *self, const pst_visit_key *key, pst_stream stream)
{
    PSTI_TRY(evaluate(self, key, NULL));
    return psti_scheduler_drop_glus(self, first_seat(self, key), stream);
}

/* ---- begin ---- */

/* What the graph of a pass has inside. */
static const uint16_t graph_kinds[PSTI_NUM_PASS_KINDS] = {
    1u << PSTI_EVENT_FREE | 1u << PSTI_EVENT_PRODUCED,
    1u << PSTI_EVENT_RESTORED | 1u << PSTI_EVENT_CONSUMED,
    1u << PSTI_EVENT_RESTORED | 1u << PSTI_EVENT_CONSUMED,
    1u << PSTI_EVENT_RESTORED_W | 1u << PSTI_EVENT_CONSUMED_W,
};

static void fill_hook(const pst_scheduler *self, const pst_visit_key *key, pst_stream stream,
                      uint32_t visit, bool is_begin, psti_hook *hook)
{
    const uint32_t seat = self->now.program->visits[visit].seat;
    *hook = (psti_hook){
        .key = *key, .stream = stream, .visit = visit, .is_begin = is_begin, .seat = seat};
    if (self->seats[seat].graphs >> key->kind & 1)
        hook->graph_kinds = graph_kinds[key->kind];
}

static void count_visit(pst_scheduler *self, const psti_visit *visit)
{
    self->stats.visits++;
    switch ((pst_keep)visit->keep) {
    case PST_KEEP_PLANNED:
        self->stats.planned++;
        return;
    case PST_KEEP_RECOMPUTED:
        self->stats.recomputed++;
        return;
    case PST_KEEP_PAGED:
    case PST_KEEP_SWAPPED:
        break;
    }
    if (visit->in_place)
        self->stats.kept_in_place++;
    else if (visit->keep == PST_KEEP_SWAPPED)
        self->stats.swapped++;
    else
        self->stats.stashed++;
}

static pst_status recompute_begin(pst_scheduler *self, const pst_visit_key *key, psti_lane *lane,
                                  pst_visit *visit_out)
{
    char text[PSTI_KEY_TEXT_BYTES];
    PSTI_CHECK(!lane->is_recomputing, PST_E_ORDER, "%s: it is being computed again already",
               psti_key_text(self, key, text));
    lane->is_recomputing = true;
    tell_not_live(self, &self->seats[self->now.program->visits[lane->visit].seat], visit_out);
    return PST_OK;
}

static pst_status begin(pst_scheduler *self, const pst_visit_key *key, pst_stream stream,
                        pst_visit *visit_out)
{
    psti_hook hook;
    psti_lane *lane = NULL;
    uint32_t num = 0;
    PSTI_TRY(enter(self, key, stream));
    if (self->is_evaluating)
        return evaluate(self, key, visit_out);
    if (self->recording)
        return psti_recording_begin(self, key, stream, visit_out);
    if (key->kind == PST_PASS_FORWARD && (lane = psti_cursor_recomputes(self, key)) != NULL)
        return recompute_begin(self, key, lane, visit_out);
    PSTI_TRY(psti_cursor_find_begin(self, key, &lane));
    PSTI_TRY(psti_cursor_turn(self, lane, stream));
    lane->is_open = true;
    lane->announced = 0;
    const psti_visit *visits = self->now.program->visits;
    const psti_visit *visit = &visits[lane->visit];
    const psti_operation *operations = psti_begin_hook(self->now.program, lane->visit, &num);
    bool is_timed = false;
    if (num) {
        fill_hook(self, key, stream, lane->visit, true, &hook);
        if (self->measured)
            PSTI_TRY(psti_measures_begin(self, &hook, operations, num, &is_timed));
        PSTI_TRY(psti_scheduler_play(self, &hook, operations, num, visits));
    }
    const psti_seat *seat = &self->seats[visit->seat];
    if (seat->deferred[0] | seat->deferred[1] && key->kind != PST_PASS_FORWARD &&
        seat->deferred[key->kind == PST_PASS_BACKWARD_WEIGHT ? 1 : 0]) {
        fill_hook(self, key, stream, lane->visit, true, &hook);
        PSTI_TRY(psti_scheduler_restore_late(self, &hook, visits));
    }
    if (is_timed)
        PSTI_TRY(psti_measures_end(self, stream));
    if (visit->partner == PSTI_NO_VISIT) { /* a forward-only schedule */
        self->stats.visits++;
        tell_not_live(self, seat, visit_out);
        return PST_OK;
    }
    psti_scheduler_tell(self, seat, visit, visit_out);
    if (self->is_own)
        tell_freed(self, visit, visit_out);
    if (key->kind == PST_PASS_FORWARD)
        count_visit(self, visit);
    else if (key->kind == PST_PASS_BACKWARD_INPUT)
        visit_out->is_held = is_held_on(self, key);
    return PST_OK;
}

static pst_status check_kind(pst_pass_kind kind)
{
    PSTI_CHECK(kind >= PST_PASS_BACKWARD && kind <= PST_PASS_BACKWARD_WEIGHT, PST_E_INVALID,
               "kind %d: allowed are the backwards, 1 to 3", (int)kind);
    return PST_OK;
}

static pst_status begin_hook(pst_scheduler *self, const pst_visit_key *key, bool is_backward,
                             pst_stream stream, pst_visit *visit_out)
{
    pst_visit said;
    said.num_freed = 0;
    pthread_mutex_lock(&self->lock);
    pst_status status = visit_out ? PST_OK : PSTI_FAIL(PST_E_INVALID, "visit_out is NULL");
    if (status == PST_OK && is_backward)
        status = check_kind(key->kind);
    if (status == PST_OK)
        status = begin(self, key, stream, &said);
    if (status == PST_OK && visit_out) {
        const size_t freed = said.num_freed * sizeof(said.freed[0]);
        memcpy(visit_out, &said, offsetof(pst_visit, freed) + freed);
    }
    return leave(self, status);
}

pst_status pst_scheduler_forward_begin(pst_scheduler *self, uint32_t chunk, uint32_t layer,
                                       uint32_t micro_batch, pst_stream stream,
                                       pst_visit *visit_out)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    PSTI_RANGE("pst_scheduler_forward_begin");
    const pst_visit_key key = {PST_PASS_FORWARD, chunk, layer, micro_batch};
    return begin_hook(self, &key, false, stream, visit_out);
}

pst_status pst_scheduler_backward_begin(pst_scheduler *self, pst_pass_kind kind, uint32_t chunk,
                                        uint32_t layer, uint32_t micro_batch, pst_stream stream,
                                        pst_visit *visit_out)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    PSTI_RANGE("pst_scheduler_backward_begin");
    const pst_visit_key key = {kind, chunk, layer, micro_batch};
    return begin_hook(self, &key, true, stream, visit_out);
}

/* ---- parts ---- */

/* Of an end hook: record and wait, then the stash of one part. */
static pst_status play_part(pst_scheduler *self, psti_hook *hook, uint32_t part)
{
    uint32_t num = 0, i = 0;
    const psti_visit *visits = self->now.program->visits;
    const psti_operation *operations = psti_end_hook(self->now.program, hook->visit, &num);
    while (i < num && operations[i].act != PSTI_ACT_STASH)
        i++;
    if (i == num)
        return PST_OK; /* kept in place */
    PSTI_TRY(psti_scheduler_play(self, hook, operations, i, visits));
    while (operations[i].part != part)
        i++;
    return psti_scheduler_play(self, hook, &operations[i], 1, visits);
}

static pst_status announce(pst_scheduler *self, const pst_visit_key *key, uint32_t part,
                           const pst_buffers *source, pst_stream stream)
{
    char text[PSTI_KEY_TEXT_BYTES];
    const pst_buffers *sources[PST_MAX_PARTS] = {NULL};
    psti_hook hook;
    psti_lane *lane = NULL;
    PSTI_TRY(enter(self, key, stream));
    PSTI_CHECK(part < PST_MAX_PARTS, PST_E_INVALID, "part %u: allowed are 0 to %d", part,
               PST_MAX_PARTS - 1);
    if (self->is_evaluating)
        return evaluate(self, key, NULL);
    if (self->recording)
        return psti_recording_part(self, key, part, source, stream);
    if ((lane = psti_cursor_recomputes(self, key)) != NULL && lane->is_recomputing)
        return PST_OK;
    PSTI_TRY(psti_cursor_find_open(self, key, stream, "part of ", &lane));
    const psti_visit *visit = &self->now.program->visits[lane->visit];
    const psti_scheduler_layer *layer = &self->layers[self->seats[visit->seat].layer];
    PSTI_CHECK(part < layer->num_parts, PST_E_INVALID, "%s: part %u: it has %u",
               psti_key_text(self, key, text), part, layer->num_parts);
    PSTI_CHECK(!layer->parts[part].is_glu, PST_E_INVALID, "%s: part %u: pst_glu_forward stashes it",
               psti_key_text(self, key, text), part);
    PSTI_CHECK(!(lane->announced >> part & 1), PST_E_ORDER, "%s: part %u was announced already",
               psti_key_text(self, key, text), part);
    fill_hook(self, key, stream, lane->visit, false, &hook);
    PSTI_CHECK(!hook.graph_kinds, PST_E_ORDER,
               "%s: part %u: its graph was captured, so its parts leave at the end",
               psti_key_text(self, key, text), part);
    sources[part] = source;
    hook.sources = sources;
    PSTI_TRY(play_part(self, &hook, part));
    lane->announced |= (uint8_t)(1u << part);
    return PST_OK;
}

pst_status pst_scheduler_forward_part(pst_scheduler *self, uint32_t chunk, uint32_t layer,
                                      uint32_t micro_batch, uint32_t part,
                                      const pst_buffers *source, pst_stream stream)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    PSTI_RANGE("pst_scheduler_forward_part");
    const pst_visit_key key = {PST_PASS_FORWARD, chunk, layer, micro_batch};
    pthread_mutex_lock(&self->lock);
    return leave(self, announce(self, &key, part, source, stream));
}

/* ---- end ---- */

static pst_status end(pst_scheduler *self, const pst_visit_key *key,
                      const pst_buffers *const *sources, pst_stream stream)
{
    psti_hook hook;
    psti_lane *lane = NULL;
    uint32_t num = 0;
    PSTI_TRY(enter(self, key, stream));
    if (self->is_evaluating)
        return evaluate_end(self, key, stream);
    if (self->recording)
        return psti_recording_end(self, key, sources, stream);
    if (key->kind == PST_PASS_FORWARD && (lane = psti_cursor_recomputes(self, key)) != NULL &&
        lane->is_recomputing) {
        lane->is_recomputing = false;
        return PST_OK;
    }
    PSTI_TRY(psti_cursor_find_open(self, key, stream, "end of ", &lane));
    const psti_operation *operations = psti_end_hook(self->now.program, lane->visit, &num);
    if (num) {
        fill_hook(self, key, stream, lane->visit, false, &hook);
        hook.announced = lane->announced;
        hook.sources = sources;
        PSTI_TRY(psti_scheduler_play(self, &hook, operations, num, self->now.program->visits));
    }
    const psti_visit *visit = &self->now.program->visits[lane->visit];
    if (key->kind == PST_PASS_FORWARD && visit->partner == PSTI_NO_VISIT)
        PSTI_TRY(psti_scheduler_drop_glus(self, visit->seat, stream));
    psti_cursor_advance(self, lane);
    return PST_OK;
}

pst_status pst_scheduler_forward_end(pst_scheduler *self, uint32_t chunk, uint32_t layer,
                                     uint32_t micro_batch, const pst_buffers *const *sources,
                                     pst_stream stream)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    PSTI_RANGE("pst_scheduler_forward_end");
    const pst_visit_key key = {PST_PASS_FORWARD, chunk, layer, micro_batch};
    pthread_mutex_lock(&self->lock);
    return leave(self, end(self, &key, sources, stream));
}

pst_status pst_scheduler_backward_end(pst_scheduler *self, pst_pass_kind kind, uint32_t chunk,
                                      uint32_t layer, uint32_t micro_batch, pst_stream stream)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    PSTI_RANGE("pst_scheduler_backward_end");
    const pst_visit_key key = {kind, chunk, layer, micro_batch};
    pthread_mutex_lock(&self->lock);
    pst_status status = check_kind(kind);
    if (status == PST_OK)
        status = end(self, &key, NULL, stream);
    return leave(self, status);
}
