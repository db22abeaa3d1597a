/* What a scheduler owns on its device: tickets, events, side streams, pinned memory of swapped layers,
 * and the word that says which schedule is in force. */
#include "host/scheduler/scheduler.h"

#include <inttypes.h>

#include "host/base/arith.h"

/* ---- events ---- */

static pst_status add_event(pst_scheduler *self, pst_event *event)
{
    if (*event)
        return PST_OK;
    PSTI_TRY(psti_part_event_create(self->device, event));
    self->num_events++;
    return PST_OK;
}

pst_status psti_scheduler_add_events(pst_scheduler *self, const uint16_t *kinds, uint16_t all)
{
    for (uint32_t seat = 0; self->device && seat < self->num_seats; seat++) {
        const pst_keep keep = self->layers[self->seats[seat].layer].keep;
        uint32_t wanted = kinds ? kinds[seat] : 0;
        if (keep == PST_KEEP_PAGED || keep == PST_KEEP_SWAPPED)
            wanted |= all;
        for (; wanted; wanted &= wanted - 1)
            PSTI_TRY(
                add_event(self, psti_scheduler_event(self, seat, (uint32_t)__builtin_ctz(wanted))));
    }
    return PST_OK;
}

/* What graphs of layers may name. */
#define GRAPH_EVENTS                                                                       \
    ((1u << PSTI_EVENT_FREE) | (1u << PSTI_EVENT_PRODUCED) | (1u << PSTI_EVENT_RESTORED) | \
     (1u << PSTI_EVENT_RESTORED_W) | (1u << PSTI_EVENT_CONSUMED) | (1u << PSTI_EVENT_CONSUMED_W))
#define RECORDING_EVENTS                                                                      \
    ((1u << PSTI_EVENT_PRODUCED) | (1u << PSTI_EVENT_STASHED) | (1u << PSTI_EVENT_RESTORED) | \
     (1u << PSTI_EVENT_CONSUMED))

static pst_status open_events(pst_scheduler *self)
{
    const uint32_t all = (self->capture == PST_CAPTURE_LAYERS ? GRAPH_EVENTS : 0) |
                         (self->recording ? RECORDING_EVENTS : 0);
    self->events = psti_scheduler_take(self, (uint64_t)self->num_seats * PSTI_NUM_EVENT_KINDS,
                                       sizeof(pst_event));
    PSTI_CHECK(self->events, PST_E_NOMEM, "no memory for a scheduler");
    PSTI_TRY(psti_scheduler_add_events(
        self, self->now.program ? self->now.program->event_kinds : NULL, (uint16_t)all));
    PSTI_TRY(add_event(self, &self->turn[0]));
    PSTI_TRY(add_event(self, &self->turn[1]));
    PSTI_TRY(add_event(self, &self->fork));
    PSTI_TRY(add_event(self, &self->asked));
    for (uint32_t i = 0; i < self->num_streams; i++)
        PSTI_TRY(add_event(self, &self->join[i]));
    return PST_OK;
}

/* ---- tickets ---- */

static pst_status open_tickets(pst_scheduler *self)
{
    pst_pool_info info = {0};
    PSTI_TRY(pst_pool_get_info(self->pool, &info));
    PSTI_CHECK(
        self->num_tickets <= info.max_tickets - info.num_tickets, PST_E_INVALID,
        "the layers need %u tickets, parts times slots; the pool has max_tickets %u, of which "
        "%u are in use",
        self->num_tickets, info.max_tickets, info.num_tickets);
    self->tickets = psti_scheduler_take(self, (uint64_t)self->num_tickets + 1, sizeof(pst_ticket));
    PSTI_CHECK(self->tickets, PST_E_NOMEM, "no memory for a scheduler");
    for (uint32_t s = 0; s < self->num_seats; s++) {
        const psti_seat *seat = &self->seats[s];
        const psti_scheduler_layer *layer = &self->layers[seat->layer];
        const pst_layer_policy *policy = &layer->policy;
        for (uint32_t p = 0; p < layer->num_parts; p++) {
            pst_ticket *ticket = &self->tickets[seat->first_ticket + p];
            PSTI_TRY(pst_ticket_create(self->pool, layer->parts[p].group, ticket));
            if (policy->host_num && policy->move == PST_MOVE_DIRECT)
                PSTI_TRY(pst_ticket_set_offload(*ticket, policy->host_num, policy->host_den));
        }
    }
    return PST_OK;
}

/* ---- streams, memory ---- */

static pst_status open_streams(pst_scheduler *self, const pst_scheduler_config *config)
{
    for (uint32_t i = 0; i < self->num_streams; i++) {
        self->side[i] = config->streams[i];
        if (self->side[i])
            continue;
        PSTI_TRY(psti_part_stream_create(self->device, &self->side[i]));
        self->owns_side[i] = true;
    }
    return PST_OK;
}

uint64_t psti_scheduler_swapped_bytes(const pst_scheduler *self, uint32_t layer,
                                      const psti_program *program)
{
    const psti_scheduler_layer *of = &self->layers[layer];
    bool leaves = program == NULL;
    for (uint32_t v = 0; of->keep == PST_KEEP_SWAPPED && !leaves && v < program->num_visits; v++) {
        const psti_visit *visit = &program->visits[v];
        leaves = visit->kind == PST_PASS_FORWARD && visit->partner != PSTI_NO_VISIT &&
                 !visit->in_place && self->seats[visit->seat].layer == layer;
    }
    return leaves ? psti_times(of->swap_stride, self->num_slots[of->chunk]) : 0;
}

pst_status psti_scheduler_add_swapped(pst_scheduler *self, const psti_program *program,
                                      bool is_captured)
{
    for (uint32_t l = 0; self->device && l < self->num_layers; l++) {
        psti_scheduler_layer *layer = &self->layers[l];
        void *memory = NULL;
        const uint64_t bytes = psti_scheduler_swapped_bytes(self, l, program);
        if (bytes == 0 || layer->host_memory)
            continue;
        PSTI_CHECK(!is_captured, PST_E_CAPTURE,
                   "layer %u of chunk %u has no pinned memory, and leaves with this number of "
                   "micro-batches: run such a step outside captures first",
                   layer->layer, layer->chunk);
        PSTI_CHECK(bytes < SIZE_MAX, PST_E_NOMEM, "layer %u of chunk %u: too much to swap",
                   layer->layer, layer->chunk);
        PSTI_TRY(psti_part_alloc_pinned(self->device, (size_t)bytes, &memory));
        layer->host_memory = memory;
    }
    return PST_OK;
}

pst_status psti_scheduler_write_serial(pst_scheduler *self, uint64_t serial)
{
    if (!self->serial_word)
        return PST_OK;
    /* refused while this thread captures: before the word changes */
    PSTI_TRY(pst_stream_synchronize(self->device, self->side[0]));
    PSTI_TRY(
        pst_device_copy(self->device, self->serial_word, &serial, sizeof(serial), self->side[0]));
    return pst_stream_synchronize(self->device, self->side[0]);
}

pst_status psti_scheduler_open(pst_scheduler *self, const pst_scheduler_config *config)
{
    void *word = NULL;
    if (!self->device)
        return PST_OK;
    PSTI_TRY(open_streams(self, config));
    PSTI_TRY(open_events(self));
    PSTI_TRY(open_tickets(self));
    PSTI_TRY(psti_scheduler_add_swapped(self, self->now.program, false));
    PSTI_TRY(psti_measures_open(self));
    PSTI_TRY(psti_part_alloc(self->device, sizeof(uint64_t), &word));
    self->serial_word = word;
    self->serial = 1;
    psti_scheduler_look(self);
    self->stats.lost_steps = 0; /* what the pool lost before is nobody's here */
    return psti_scheduler_write_serial(self, self->serial);
}

static void note(pst_status *first, pst_status status)
{
    if (*first == PST_OK)
        *first = status;
}

pst_status psti_scheduler_close(pst_scheduler *self)
{
    pst_status status = PST_OK;
    if (!self->device)
        return PST_OK;
    for (uint32_t i = 0; self->tickets && i < self->num_tickets; i++) {
        const pst_status destroyed = pst_ticket_destroy(self->tickets[i]);
        if (!psti_is_gone(destroyed))
            return destroyed;
        self->tickets[i].id = 0;
        note(&status, destroyed);
    }
    psti_measures_close(self);
    const uint64_t num_events = (uint64_t)self->num_seats * PSTI_NUM_EVENT_KINDS;
    for (uint64_t i = 0; self->events && i < num_events; i++)
        note(&status, psti_part_event_destroy(self->device, self->events[i]));
    pst_event single[] = {self->turn[0], self->turn[1], self->fork,    self->asked,
                          self->join[0], self->join[1], self->join[2], self->join[3]};
    for (uint32_t i = 0; i < sizeof(single) / sizeof(single[0]); i++)
        note(&status, psti_part_event_destroy(self->device, single[i]));
    for (uint32_t l = 0; l < self->num_layers; l++)
        note(&status, psti_part_free_pinned(self->device, self->layers[l].host_memory));
    note(&status, psti_part_free(self->device, self->serial_word));
    for (uint32_t i = 0; i < PSTI_MAX_SIDES; i++)
        if (self->owns_side[i])
            note(&status, psti_part_stream_destroy(self->device, self->side[i]));
    return status;
}
