/* Tickets for launches of the caller's: gated activations that stash and restore as they compute. */
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

/* Whether a pass reads the part, and whether a weight pass reads it again. visit: NULL in a capture. */
static pst_status check_use(const pst_scheduler *self, const psti_scheduler_part *part,
                            pst_pass_kind kind, const psti_visit *visit,
                            pst_restore_pages *pages_out)
{
    bool is_whole = kind == PST_PASS_BACKWARD;
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

static pst_status find(const pst_scheduler *self, pst_pass_kind kind, uint32_t chunk,
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
    if (kind != PST_PASS_FORWARD)
        PSTI_TRY(check_use(self, &layer->parts[number], kind, visit, pages_out));
    *ticket_out = self->tickets[self->seats[seat].first_ticket + number];
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
