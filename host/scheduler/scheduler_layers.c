/* Graphs of single layers: what is captured into them, and what is remembered of them. */
#include "host/base/structs.h"
#include "host/scheduler/scheduler.h"

#include <stdio.h>

typedef struct place {
    psti_seat *seat;
    uint32_t number; /* of the seat */
    pst_pass_kind kind;
    psti_event_kind wait, record;
} place;

pst_status psti_scheduler_check_place(const pst_scheduler *self, pst_pass_kind kind, uint32_t chunk,
                                      uint32_t layer, uint32_t slot)
{
    PSTI_CHECK(self->capture == PST_CAPTURE_LAYERS, PST_E_INVALID,
               "graphs of layers are for PST_CAPTURE_LAYERS");
    PSTI_CHECK(self->state == PSTI_SCHEDULER_IDLE, PST_E_ORDER, "a step is open");
    PSTI_CHECK(self->now.program, PST_E_ORDER,
               "no schedule yet: graphs are captured after the recorded step");
    PSTI_CHECK(kind >= PST_PASS_FORWARD && kind <= PST_PASS_BACKWARD_WEIGHT, PST_E_INVALID,
               "kind %d: allowed are 0 to 3", (int)kind);
    PSTI_CHECK(chunk < self->num_chunks && layer < self->layers_of[chunk] &&
                   slot < self->num_slots[chunk],
               PST_E_INVALID, "chunk %u, layer %u, slot %u: there is no such layer or slot", chunk,
               layer, slot);
    return PST_OK;
}

/* pre: it was checked */
static place place_of(const pst_scheduler *self, pst_pass_kind kind, uint32_t chunk, uint32_t layer,
                      uint32_t slot)
{
    static const psti_event_kind waits[] = {PSTI_EVENT_FREE, PSTI_EVENT_RESTORED,
                                            PSTI_EVENT_RESTORED, PSTI_EVENT_RESTORED_W};
    static const psti_event_kind records[] = {PSTI_EVENT_PRODUCED, PSTI_EVENT_CONSUMED,
                                              PSTI_EVENT_CONSUMED, PSTI_EVENT_CONSUMED_W};
    const uint32_t number = self->first_seat[chunk] + layer * self->num_slots[chunk] + slot;
    return (place){.seat = &self->seats[number],
                   .number = number,
                   .kind = kind,
                   .wait = waits[kind],
                   .record = records[kind]};
}

static bool has_events(const pst_scheduler *self, const place *at)
{
    const pst_keep keep = self->layers[at->seat->layer].keep;
    return keep == PST_KEEP_PAGED || keep == PST_KEEP_SWAPPED;
}

static pst_status check_captured(pst_scheduler *self, pst_stream stream)
{
    psti_capture_of capture;
    if (!self->device)
        return PST_OK;
    PSTI_TRY(self->device->ops->capture_of(self->device, stream, &capture));
    PSTI_CHECK(capture.id, PST_E_CAPTURE, "the stream is not captured");
    return psti_hold_in(self->device, &capture, &self->hold);
}

/* ---- the caller's own addresses ---- */

static pst_status take_memory(pst_scheduler *self, const place *at, const pst_layer_buffers *own)
{
    const psti_scheduler_layer *layer = &self->layers[at->seat->layer];
    char what[64];
    if (!self->is_own || layer->keep != PST_KEEP_PAGED) {
        PSTI_CHECK(!own, PST_E_INVALID, "own: this layer's addresses are known");
        return PST_OK;
    }
    PSTI_TAKE(pst_layer_buffers, taken, own);
    PSTI_CHECK(taken.buffers, PST_E_INVALID, "own->buffers is NULL");
    PSTI_CHECK(taken.padding == 0, PST_E_INVALID, "own->padding %u: must be 0", taken.padding);
    PSTI_CHECK(taken.alias < UINT32_MAX / 2, PST_E_INVALID, "own->alias %u: allowed are 0 to %u",
               taken.alias, UINT32_MAX / 2 - 1);
    psti_layer_memory memory = {.is_known = true, .alias = taken.alias};
    for (uint32_t p = 0; p < layer->num_parts; p++) {
        const pst_group *group = layer->parts[p].group;
        if (layer->parts[p].is_glu && at->kind != PST_PASS_FORWARD)
            continue; /* read in pages */
        snprintf(what, sizeof(what), "own->buffers[%u]", p);
        PSTI_TRY(psti_scheduler_check_buffers(self, group, taken.buffers[p],
                                              at->kind == PST_PASS_FORWARD, what));
        memory.parts[p] = psti_scheduler_copy_buffers(self, group, taken.buffers[p]);
        PSTI_CHECK(memory.parts[p], PST_E_NOMEM, "no memory for a layer's addresses");
    }
    if (!at->seat->own)
        at->seat->own = psti_scheduler_take(self, PSTI_NUM_PASS_KINDS, sizeof(*at->seat->own));
    PSTI_CHECK(at->seat->own, PST_E_NOMEM, "no memory for a layer's addresses");
    for (uint32_t k = PST_PASS_BACKWARD; k < PSTI_NUM_PASS_KINDS; k++)
        PSTI_CHECK(at->kind == PST_PASS_FORWARD || at->kind == k || !at->seat->own[k].is_known ||
                       at->seat->own[k].alias == memory.alias,
                   PST_E_INVALID, "own->alias %u: another backward of this slot has %u",
                   memory.alias, at->seat->own[k].alias);
    at->seat->own[at->kind] = memory;
    self->is_stale = true;
    return PST_OK;
}

/* ---- public ---- */

static pst_status capture_begin(pst_scheduler *self, const place *at, const pst_layer_buffers *own,
                                pst_stream stream, pst_visit *visit_out)
{
    const psti_scheduler_layer *layer = &self->layers[at->seat->layer];
    const bool is_fixed = !self->is_own || layer->keep == PST_KEEP_SWAPPED;
    PSTI_TRY(check_captured(self, stream));
    psti_scheduler_freeze(self);
    const uint8_t set = at->seat->sets[at->kind];
    PSTI_TRY(take_memory(self, at, own));
    if (has_events(self, at))
        PSTI_TRY(pst_event_wait_external(
            self->device, *psti_scheduler_event(self, at->number, at->wait), stream));
    *visit_out = (pst_visit){
        .slot = at->seat->slot,
        .set = has_events(self, at) && is_fixed && set != PSTI_NO_SET ? set : UINT32_MAX,
        .in_place = has_events(self, at) && is_fixed && at->seat->in_place,
        .is_live = true,
        .first_token =
            at->kind != PST_PASS_FORWARD && !at->seat->in_place ? layer->first_token : UINT64_MAX};
    return PST_OK;
}

pst_status pst_scheduler_layer_capture_begin(pst_scheduler *self, pst_pass_kind kind,
                                             uint32_t chunk, uint32_t layer, uint32_t slot,
                                             const pst_layer_buffers *own, pst_stream stream,
                                             pst_visit *visit_out)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    PSTI_CHECK(visit_out, PST_E_INVALID, "visit_out is NULL");
    pthread_mutex_lock(&self->lock);
    pst_status status = psti_scheduler_check_place(self, kind, chunk, layer, slot);
    if (status == PST_OK) {
        const place at = place_of(self, kind, chunk, layer, slot);
        status = capture_begin(self, &at, own, stream, visit_out);
    }
    pthread_mutex_unlock(&self->lock);
    return status;
}

static pst_status capture_end(pst_scheduler *self, const place *at, pst_stream stream)
{
    PSTI_TRY(check_captured(self, stream));
    if (has_events(self, at))
        PSTI_TRY(pst_event_record_external(
            self->device, *psti_scheduler_event(self, at->number, at->record), stream));
    at->seat->graphs |= (uint8_t)(1u << at->kind);
    return PST_OK;
}

pst_status pst_scheduler_layer_capture_end(pst_scheduler *self, pst_pass_kind kind, uint32_t chunk,
                                           uint32_t layer, uint32_t slot, pst_stream stream)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    pthread_mutex_lock(&self->lock);
    pst_status status = psti_scheduler_check_place(self, kind, chunk, layer, slot);
    if (status == PST_OK) {
        const place at = place_of(self, kind, chunk, layer, slot);
        status = capture_end(self, &at, stream);
    }
    pthread_mutex_unlock(&self->lock);
    return status;
}
