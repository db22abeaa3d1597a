/* Tickets for launches of the caller's: gated activations that stash and restore as they
 * compute. */
#include "host/scheduler/scheduler.h"

static const psti_visit *find_open(const pst_scheduler *self, pst_pass_kind kind, uint32_t seat)
{
    if (self->recording)
        return psti_recording_find_open(self, kind, seat);
    for (uint32_t i = 0; i < self->num_lanes; i++) {
        const psti_lane *lane = &self->lanes[i];
        const psti_visit *visit = &self->now.program->visits[lane->visit];
        if (lane->is_open && !lane->is_recomputing && visit->seat == seat && visit->kind == kind)
            return visit;
    }
    return NULL;
}

/* How many of the input's backwards of a slot have no weight pass, and how many have one. */
static void count_input_backwards(const pst_schedule *schedule, uint32_t c, uint32_t slot,
                                  uint32_t num_out[2])
{
    num_out[0] = num_out[1] = 0;
    if (c >= schedule->num_chunks || schedule->is_forward_only)
        return;
    const psti_schedule_chunk *chunk = &schedule->chunks[c];
    for (uint32_t m = 0; m < chunk->num_micro_batches; m++) {
        const psti_life *life = &chunk->lives[m];
        if (life->slot == slot &&
            schedule->passes[life->first_backward].kind == PST_PASS_BACKWARD_INPUT)
            num_out[life->first_backward != life->last_backward]++;
    }
}

/* A graph does the same at each launch: so its input's backwards have weight passes, all or
 * none. */
static pst_status check_graph_use(const pst_scheduler *self, const psti_seat *seat,
                                  bool *is_whole_out)
{
    const uint32_t chunk = self->layers[seat->layer].chunk;
    uint32_t num[2];
    count_input_backwards(self->now.schedule, chunk, seat->slot, num);
    PSTI_CHECK(
        num[0] == 0 || num[1] == 0, PST_E_INVALID,
        "chunk %u, slot %u: of its input backwards %u have a weight pass and %u have none: one "
        "graph with a GLU cannot be both",
        chunk, seat->slot, num[1], num[0]);
    *is_whole_out = num[0] > 0;
    return PST_OK;
}

pst_status psti_scheduler_check_glus(const pst_scheduler *self, const pst_schedule *schedule)
{
    for (uint32_t s = 0; s < self->num_seats; s++) {
        const psti_seat *seat = &self->seats[s];
        const psti_scheduler_layer *layer = &self->layers[seat->layer];
        uint32_t num[2];
        if (!seat->input_pages)
            continue;
        const bool keeps = seat->input_pages - 1 == PST_RESTORE_KEEP;
        count_input_backwards(schedule, layer->chunk, seat->slot, num);
        PSTI_CHECK(
            num[!keeps] == 0, PST_E_INVALID,
            "layer %u of chunk %u, slot %u: its graph of an input's backward was captured %s a "
            "weight pass, in this schedule %u are %s one",
            layer->layer, layer->chunk, seat->slot, keeps ? "with" : "without", num[!keeps],
            keeps ? "without" : "with");
    }
    return PST_OK;
}

pst_status psti_scheduler_drop_glus(pst_scheduler *self, uint32_t number, pst_stream stream)
{
    const psti_seat *seat = &self->seats[number];
    const psti_scheduler_layer *layer = &self->layers[seat->layer];
    psti_capture_of capture;
    if (!(seat->graphs >> PST_PASS_FORWARD & 1))
        return PST_OK;
    for (uint32_t p = 0; p < layer->num_parts; p++) {
        if (!layer->parts[p].is_glu)
            continue;
        PSTI_FIND_TICKET(ticket, self->tickets[seat->first_ticket + p]);
        PSTI_TRY(self->device->ops->capture_of(self->device, stream, &capture));
        PSTI_TRY(psti_ticket_clear(ticket, &capture, stream));
    }
    return PST_OK;
}

/* Whether a pass reads the part, and whether a weight pass reads it again. visit: NULL in a
 * capture. */
static pst_status check_use(const pst_scheduler *self, const psti_scheduler_part *part,
                            const psti_seat *seat, pst_pass_kind kind, const psti_visit *visit,
                            pst_restore_pages *pages_out)
{
    bool is_whole = kind == PST_PASS_BACKWARD;
    if (!visit && kind == PST_PASS_BACKWARD_INPUT)
        PSTI_TRY(check_graph_use(self, seat, &is_whole));
    if (visit && !self->recording) { /* an input's backward without a weight pass */
        const pst_pass *pass = &self->now.schedule->passes[visit->pass];
        const psti_life *life =
            psti_schedule_life(self->now.schedule, pass->chunk, pass->micro_batch);
        is_whole = life->first_backward == life->last_backward;
    }
    const uint32_t use = kind == PST_PASS_BACKWARD_WEIGHT ? PST_USE_WEIGHT : PST_USE_BACKWARD;
    PSTI_CHECK(is_whole || part->uses & use, PST_E_INVALID,
               "uses is %u: a pass of kind %d does not read this part", part->uses, (int)kind);
    const bool is_read_again =
        !is_whole && kind == PST_PASS_BACKWARD_INPUT && part->uses & PST_USE_WEIGHT;
    *pages_out = is_read_again ? PST_RESTORE_KEEP : PST_RESTORE_CONSUME;
    return PST_OK;
}

static pst_status find(pst_scheduler *self, pst_pass_kind kind, uint32_t chunk,
                       uint32_t layer_number, uint32_t slot, uint32_t number,
                       pst_ticket *ticket_out, pst_restore_pages *pages_out)
{
    const psti_visit *visit = NULL;
    const bool is_captured = self->state == PSTI_SCHEDULER_IDLE;
    if (is_captured)
        PSTI_TRY(psti_scheduler_check_place(self, kind, chunk, layer_number, slot));
    PSTI_CHECK(chunk < self->num_chunks && layer_number < self->layers_of[chunk] &&
                   slot < self->num_slots[chunk],
               PST_E_INVALID, "chunk %u, layer %u, slot %u: there is no such layer or slot", chunk,
               layer_number, slot);
    const uint32_t seat = self->first_seat[chunk] + layer_number * self->num_slots[chunk] + slot;
    const psti_scheduler_layer *layer = &self->layers[self->seats[seat].layer];
    PSTI_CHECK(number < layer->num_parts && layer->parts[number].is_glu, PST_E_INVALID,
               "chunk %u, layer %u, part %u: no GLU writes it", chunk, layer_number, number);
    *ticket_out = (pst_ticket){0};
    *pages_out = PST_RESTORE_CONSUME;
    if (self->is_evaluating)
        return PST_OK;
    if (!is_captured)
        visit = find_open(self, kind, seat);
    PSTI_CHECK(is_captured || visit, PST_E_ORDER,
               "chunk %u, layer %u, slot %u: no such visit is open", chunk, layer_number, slot);
    const bool is_dead = visit && !self->recording && visit->partner == PSTI_NO_VISIT;
    if (visit && (visit->in_place || is_dead))
        return PST_OK;
    psti_seat *at = &self->seats[seat];
    if (kind != PST_PASS_FORWARD)
        PSTI_TRY(check_use(self, &layer->parts[number], at, kind, visit, pages_out));
    if (is_captured && kind == PST_PASS_BACKWARD_INPUT &&
        layer->parts[number].uses & PST_USE_WEIGHT)
        at->input_pages = (uint8_t)(1 + *pages_out);
    *ticket_out = self->tickets[at->first_ticket + number];
    return PST_OK;
}

pst_status pst_scheduler_get_ticket(pst_scheduler *self, pst_pass_kind kind, uint32_t chunk,
                                    uint32_t layer, uint32_t slot, uint32_t part,
                                    pst_ticket *ticket_out, pst_restore_pages *pages_out)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    PSTI_CHECK(ticket_out, PST_E_INVALID, "ticket_out is NULL");
    pst_ticket ticket = {0};
    pst_restore_pages pages = PST_RESTORE_CONSUME;
    pthread_mutex_lock(&self->lock);
    const pst_status status =
        self->state == PSTI_SCHEDULER_BROKEN
            ? PSTI_FAIL(PST_E_ORDER, "the step is broken by an earlier error: pst_scheduler_abort")
            : find(self, kind, chunk, layer, slot, part, &ticket, &pages);
    pthread_mutex_unlock(&self->lock);
    PSTI_TRY(status);
    *ticket_out = ticket;
    if (pages_out)
        *pages_out = pages;
    return PST_OK;
}
