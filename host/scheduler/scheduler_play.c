/* Operations of a program as calls of the device. */
#include "host/scheduler/scheduler.h"

pst_status psti_scheduler_record(pst_scheduler *self, pst_event event, pst_stream stream)
{
    self->stats.records++;
    return self->device->ops->event_record(self->device, event, stream, false);
}

pst_status psti_scheduler_wait(pst_scheduler *self, pst_event event, pst_stream stream)
{
    self->stats.waits++;
    return self->device->ops->event_wait(self->device, event, stream, false);
}

static bool is_weight(const psti_visit *visit)
{
    return visit->kind == PST_PASS_BACKWARD_WEIGHT;
}

/* ---- stashes ---- */

static const pst_buffers *source_of(const pst_scheduler *self, const psti_hook *hook,
                                    const psti_seat *seat, const psti_operation *op,
                                    const psti_visit *visit)
{
    const psti_scheduler_part *part = &self->layers[seat->layer].parts[op->part];
    if (part->sources)
        return &part->sources[psti_set_of(seat, visit)];
    if (seat->own && seat->own[0].is_known)
        return seat->own[0].parts[op->part];
    return hook->sources ? hook->sources[op->part] : NULL;
}

static pst_status stash(pst_scheduler *self, const psti_hook *hook, const psti_operation *op,
                        const psti_visit *visit, pst_stream stream)
{
    const psti_seat *seat = &self->seats[op->seat];
    if (hook->announced >> op->part & 1)
        return PST_OK;
    return pst_ticket_stash(self->tickets[seat->first_ticket + op->part],
                            self->layers[seat->layer].parts[op->part].group,
                            source_of(self, hook, seat, op, visit), &self->stash_options, stream);
}

/* ---- restores ---- */

static pst_status restore_to(pst_scheduler *self, const psti_operation *op,
                             const pst_buffers *destination, pst_dirty *dirty, pst_stream stream)
{
    const psti_seat *seat = &self->seats[op->seat];
    pst_restore_options options = self->restore_options;
    options.pages = op->keeps ? PST_RESTORE_KEEP : PST_RESTORE_CONSUME;
    options.dirty = dirty;
    if (!dirty && options.tail == PST_TAIL_ZERO)
        options.tail = PST_TAIL_ZERO_ALL;
    self->stats.restores++;
    return pst_ticket_restore(self->tickets[seat->first_ticket + op->part],
                              self->layers[seat->layer].parts[op->part].group, destination,
                              &options, stream);
}

static pst_visit_key key_of(const pst_scheduler *self, const psti_hook *hook, uint32_t visit,
                            const psti_visit *planned)
{
    if (visit == hook->visit)
        return hook->key;
    const pst_pass *pass = &self->now.schedule->passes[planned->pass];
    return (pst_visit_key){.kind = pass->kind,
                           .chunk = pass->chunk,
                           .layer = planned->layer,
                           .micro_batch = pass->micro_batch};
}

/* The caller's own form: into what the callback hands out, once the hook's stream has come there. */
static pst_status restore_asked(pst_scheduler *self, const psti_hook *hook,
                                const psti_operation *op, const psti_visit *visit,
                                pst_stream stream)
{
    psti_seat *seat = &self->seats[op->seat];
    const uint32_t which = is_weight(visit) ? 1 : 0;
    const bool is_due = hook->is_begin && op->visit == hook->visit;
    const pst_visit_key key = key_of(self, hook, op->visit, visit);
    pst_buffers destination = PST_BUFFERS_INIT;
    /* a weight pass must not consume what its backward has not read */
    pst_status status = which && seat->deferred[0] ? PST_E_AGAIN : PST_OK;
    if (status == PST_OK) {
        PSTI_CHECK(self->destination, PST_E_INVALID, "destination is NULL");
        status = self->destination(self->user, &key, op->part, hook->stream, &destination);
    }
    if (status != PST_OK && is_due)
        return status;
    if (status != PST_OK) {
        seat->deferred[which] |= (uint8_t)(1u << op->part | (op->keeps ? 16u << op->part : 0));
        self->stats.deferred_restores++;
        return PST_OK;
    }
    PSTI_TRY(psti_scheduler_record(self, self->asked, hook->stream));
    PSTI_TRY(psti_scheduler_wait(self, self->asked, stream));
    return restore_to(self, op, &destination, NULL, stream);
}

static pst_status restore(pst_scheduler *self, const psti_hook *hook, const psti_operation *op,
                          const psti_visit *visit, pst_stream stream)
{
    const psti_seat *seat = &self->seats[op->seat];
    const psti_scheduler_part *part = &self->layers[seat->layer].parts[op->part];
    const uint8_t set = psti_set_of(seat, visit);
    /* a graph reads the source, and another schedule does not let it stay there */
    if (part->destinations && visit->set == PSTI_NO_SET && seat->in_place)
        return restore_to(self, op, &part->sources[set], NULL, stream);
    if (part->destinations)
        return restore_to(self, op, &part->destinations[set], part->dirty ? part->dirty[set] : NULL,
                          stream);
    if (seat->own && seat->own[visit->kind].is_known)
        return restore_to(self, op, seat->own[visit->kind].parts[op->part], NULL, stream);
    return restore_asked(self, hook, op, visit, stream);
}

pst_status psti_scheduler_restore_late(pst_scheduler *self, const psti_hook *hook,
                                       const psti_visit *visits)
{
    psti_seat *seat = &self->seats[hook->seat];
    const psti_visit *visit = &visits[hook->visit];
    const uint32_t which = is_weight(visit) ? 1 : 0;
    const uint8_t parts = seat->deferred[which];
    const pst_stream stream = self->side[self->num_streams > 1 ? 1 : 0];
    seat->deferred[which] = 0;
    for (uint32_t part = 0; part < PST_MAX_PARTS; part++) {
        const psti_operation op = {.act = PSTI_ACT_RESTORE,
                                   .part = (uint8_t)part,
                                   .keeps = (parts >> (part + 4) & 1) != 0,
                                   .seat = hook->seat,
                                   .visit = hook->visit};
        if (parts >> part & 1)
            PSTI_TRY(restore_asked(self, hook, &op, visit, stream));
    }
    PSTI_TRY(psti_scheduler_record(self, self->asked, stream));
    return psti_scheduler_wait(self, self->asked, hook->stream);
}

/* ---- swapped layers ---- */

static pst_status swap(pst_scheduler *self, const psti_operation *op, const psti_visit *visit,
                       pst_stream stream)
{
    const psti_seat *seat = &self->seats[op->seat];
    const psti_scheduler_layer *layer = &self->layers[seat->layer];
    void *buffer = layer->buffers[visit->set];
    const bool is_out = op->act == PSTI_ACT_SWAP_OUT;
    if (layer->swap_bytes == 0) /* and no host memory */
        return PST_OK;
    unsigned char *host = layer->host_memory + layer->swap_stride * seat->slot;
    return self->device->ops->copy(self->device, is_out ? (void *)host : buffer,
                                   is_out ? buffer : (const void *)host, (size_t)layer->swap_bytes,
                                   stream);
}

/* ---- all acts ---- */

/* The main stream waits for all that a side stream has. */
static pst_status join(pst_scheduler *self, uint32_t side, pst_stream main_stream)
{
    PSTI_TRY(psti_scheduler_record(self, self->join[side], self->side[side]));
    return psti_scheduler_wait(self, self->join[side], main_stream);
}

static pst_status migrate(pst_scheduler *self, const psti_operation *op, pst_stream stream)
{
    const psti_seat *seat = &self->seats[op->seat];
    const pst_ticket ticket = self->tickets[seat->first_ticket + op->part];
    static const pst_migrate_options rest = {.struct_size = sizeof(rest),
                                             .share = PST_MIGRATE_REST};
    if (op->act == PSTI_ACT_PROMOTE) {
        self->stats.promotes++;
        return pst_ticket_promote(ticket, &rest, stream);
    }
    self->stats.demotes++;
    return pst_ticket_demote(ticket, &self->layers[seat->layer].demote, stream);
}

/* Whether the graph of the hook's layer has this wait or record inside. */
static bool is_in_graph(const psti_hook *hook, const psti_operation *op)
{
    return op->stream == PSTI_ON_MAIN && op->seat == hook->seat &&
           hook->graph_kinds >> op->event & 1;
}

static pst_status play_one(pst_scheduler *self, const psti_hook *hook, const psti_operation *op,
                           const psti_visit *visits)
{
    const pst_stream stream =
        op->stream == PSTI_ON_MAIN ? hook->stream : self->side[op->stream - PSTI_ON_SIDE];
    switch ((psti_act)op->act) {
    case PSTI_ACT_WAIT:
        return is_in_graph(hook, op)
                   ? PST_OK
                   : psti_scheduler_wait(self, *psti_scheduler_event(self, op->seat, op->event),
                                         stream);
    case PSTI_ACT_RECORD:
        return is_in_graph(hook, op)
                   ? PST_OK
                   : psti_scheduler_record(self, *psti_scheduler_event(self, op->seat, op->event),
                                           stream);
    case PSTI_ACT_JOIN:
        return join(self, op->stream - PSTI_ON_SIDE, hook->stream);
    case PSTI_ACT_STASH:
        return stash(self, hook, op, &visits[op->visit], stream);
    case PSTI_ACT_RESTORE:
        return restore(self, hook, op, &visits[op->visit], stream);
    case PSTI_ACT_DEMOTE:
    case PSTI_ACT_PROMOTE:
        return migrate(self, op, stream);
    case PSTI_ACT_SWAP_OUT:
    case PSTI_ACT_SWAP_IN:
        return swap(self, op, &visits[op->visit], stream);
    case PSTI_ACT_GLU_STASH:
    case PSTI_ACT_GLU_RESTORE:
        return PST_OK; /* the caller has launched it */
    }
    return PST_OK;
}

pst_status psti_scheduler_play(pst_scheduler *self, const psti_hook *hook,
                               const psti_operation *operations, uint32_t num,
                               const psti_visit *visits)
{
    for (uint32_t i = 0; i < num; i++)
        PSTI_TRY(play_one(self, hook, &operations[i], visits));
    return PST_OK;
}
