/* What the model of the scheduler's tests does in a step, layer by layer, and what must come out. */
#include "tests/host/scheduler/rig.h"
#include "tests/lazy/lazy_device.h"

#include "host/program/program.h"
#include "kernels/core/mix.h"

/* ---- what a layer does ---- */

static pst_buffers at_address(void *const *base, const void *const *count)
{
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = base;
    buffers.counts = count;
    return buffers;
}

static pst_pattern pattern_of(const rig *self, const pst_visit_key *key, uint32_t part)
{
    return (pst_pattern){
        .seed = 1,
        .key = (uint64_t)rig_visit_of(self, key->chunk, key->layer, key->micro_batch) * 8 + part,
        .step = self->step};
}

static int32_t *count_of(const rig *self, const pst_visit_key *key, uint32_t part)
{
    return self->counts +
           (size_t)rig_visit_of(self, key->chunk, key->layer, key->micro_batch) *
               self->config.num_parts +
           part;
}

bool rig_reads(const rig *self, pst_pass_kind kind, uint32_t part)
{
    const uint32_t uses = self->config.uses[part];
    return kind == PST_PASS_BACKWARD || uses == 0 ||
           uses & (kind == PST_PASS_BACKWARD_INPUT ? PST_USE_BACKWARD : PST_USE_WEIGHT);
}

/* ---- parts that a GLU writes: here by plain launches with their tickets ---- */

bool rig_is_glu(const rig *self, uint32_t part)
{
    return self->config.glus >> part & 1;
}

pst_status rig_stash_glu(rig *self, const pst_visit_key *key, uint32_t slot, uint32_t part,
                         const pst_buffers *source, pst_stream stream)
{
    pst_ticket ticket;
    RIG_TRY(pst_scheduler_get_ticket(self->scheduler, key->kind, key->chunk, key->layer, slot, part,
                                     &ticket, NULL));
    if (ticket.id == 0)
        return PST_OK;
    RIG_TRY(pst_ticket_stash(ticket, self->glu_group, source, NULL, stream));
    return pst_device_fill(self->device, source->bases[0], 0xee, RIG_PART_BYTES, stream);
}

pst_status rig_restore_glu(rig *self, const pst_visit_key *key, uint32_t slot, uint32_t part,
                           const pst_buffers *destination, bool *in_pages_out, pst_stream stream)
{
    pst_ticket ticket;
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    RIG_TRY(pst_scheduler_get_ticket(self->scheduler, key->kind, key->chunk, key->layer, slot, part,
                                     &ticket, &options.pages));
    *in_pages_out = ticket.id != 0;
    return ticket.id == 0
               ? PST_OK
               : pst_ticket_restore(ticket, self->glu_group, destination, &options, stream);
}

static pst_status write_part(rig *self, const pst_visit_key *key, uint32_t part,
                             const pst_visit *visit, pst_stream stream, void **base_out,
                             const void **count_out)
{
    const pst_pattern pattern = pattern_of(self, key, part);
    int32_t *count = count_of(self, key, part);
    *count_out = count;
    if (self->config.own) {
        *base_out = rig_cell_bytes(self, rig_cell_of(self, key, part)->source);
    } else {
        const rig_memory *set = &self->sources[part][visit->set];
        *base_out = set->bytes;
        RIG_TRY(pst_device_copy(self->device, set->count, count, sizeof(*count), stream));
    }
    const pst_buffers buffers = at_address(base_out, count_out);
    return pst_group_fill(self->device, self->group, &buffers, &pattern, stream);
}

static pst_status swap_rows(rig *self, const pst_visit_key *key, const pst_visit *visit,
                            bool writes, pst_stream stream)
{
    const pst_pattern pattern = pattern_of(self, key, 7);
    void *base = self->swap[visit->set];
    const void *count = self->swap_counts + RIG_TOKENS;
    const pst_buffers buffers = at_address(&base, &count);
    if (writes)
        return pst_group_fill(self->device, self->swap_group, &buffers, &pattern, stream);
    if (visit->first_token < RIG_TOKENS) /* the others are computed again */
        count = self->swap_counts + visit->first_token;
    RIG_TRY(pst_group_verify(self->device, self->swap_group, &buffers, &pattern, PST_VERIFY_ANY,
                             self->mismatches, stream));
    return pst_device_fill(self->device, base, 0xbb, RIG_SWAP_BYTES, stream);
}

static pst_status forward(rig *self, const pst_visit_key *key, uint32_t s)
{
    const pst_stream stream = self->streams[s];
    const pst_keep keep = self->config.keep[self->first_layer[key->chunk] + key->layer];
    const uint32_t parts = keep == PST_KEEP_PAGED ? self->config.num_parts : 0;
    pst_visit *visit = &self->visit;
    void *bases[PST_MAX_PARTS];
    const void *counts[PST_MAX_PARTS];
    pst_buffers buffers[PST_MAX_PARTS];
    const pst_buffers *sources[PST_MAX_PARTS];
    RIG_TRY(pst_scheduler_forward_begin(self->scheduler, key->chunk, key->layer, key->micro_batch,
                                        stream, visit));
    const pst_visit said = *visit;
    pst_status launched = PST_OK;
    RIG_TRY(rig_free_sources(self, &said, s));
    if (rig_launches(self, key, said.slot, stream, &launched)) {
        RIG_TRY(launched);
        return pst_scheduler_forward_end(self->scheduler, key->chunk, key->layer, key->micro_batch,
                                         NULL, stream);
    }
    for (uint32_t p = 0; p < parts && self->config.own; p++)
        rig_cell_of(self, key, p)->source = rig_take_cell(self, s);
    for (uint32_t p = 0; p < parts; p++) {
        RIG_TRY(write_part(self, key, p, &said, stream, &bases[p], &counts[p]));
        buffers[p] = at_address(&bases[p], &counts[p]);
        sources[p] = &buffers[p];
        if (rig_is_glu(self, p)) {
            RIG_TRY(rig_stash_glu(self, key, said.slot, p, sources[p], stream));
            sources[p] = NULL;
            continue;
        }
        if (rig_draw(self, 100) < self->config.announces)
            RIG_TRY(pst_scheduler_forward_part(self->scheduler, key->chunk, key->layer,
                                               key->micro_batch, p,
                                               self->config.own ? sources[p] : NULL, stream));
    }
    if (keep == PST_KEEP_SWAPPED)
        RIG_TRY(swap_rows(self, key, &said, true, stream));
    RIG_TRY(pst_scheduler_forward_end(self->scheduler, key->chunk, key->layer, key->micro_batch,
                                      self->config.own ? sources : NULL, stream));
    for (uint32_t p = 0; p < parts && self->config.own && !said.is_live; p++)
        RIG_TRY(rig_give_cell(self, &rig_cell_of(self, key, p)->source, s));
    return PST_OK;
}

static pst_status read_part(rig *self, const pst_visit_key *key, uint32_t part,
                            const pst_visit *visit, pst_stream stream)
{
    const pst_pattern pattern = pattern_of(self, key, part);
    const void *count = count_of(self, key, part);
    const bool is_source = visit->in_place || self->config.scheduler.one_ring;
    bool is_glu = rig_is_glu(self, part);
    void *base = self->destinations[part][0].bytes; /* nobody else's, if a GLU writes the part */
    if (is_glu) {
        const pst_buffers buffers = at_address(&base, &count);
        RIG_TRY(rig_restore_glu(self, key, visit->slot, part, &buffers, &is_glu, stream));
    }
    if (is_glu) {
    } else if (self->config.own) {
        const rig_cell *mine = rig_cell_of(self, key, part);
        const bool is_weight = key->kind == PST_PASS_BACKWARD_WEIGHT && !visit->is_held;
        base = rig_cell_bytes(self, visit->in_place ? mine->source
                                                    : mine->destinations[is_weight ? 1 : 0]);
    } else {
        base = (is_source ? self->sources : self->destinations)[part][visit->set].bytes;
    }
    const pst_buffers buffers = at_address(&base, &count);
    RIG_TRY(pst_group_verify(self->device, self->group, &buffers, &pattern, PST_VERIFY_ANY,
                             self->mismatches, stream));
    if (visit->is_held && key->kind == PST_PASS_BACKWARD_INPUT && !is_glu)
        return PST_OK;
    return pst_device_fill(self->device, base, 0xbb, RIG_PART_BYTES, stream);
}

static pst_status recompute(rig *self, const pst_visit_key *key, pst_stream stream)
{
    pst_visit visit;
    RIG_TRY(pst_scheduler_forward_begin(self->scheduler, key->chunk, key->layer, key->micro_batch,
                                        stream, &visit));
    if (visit.is_live)
        return PST_E_INVALID;
    return pst_scheduler_forward_end(self->scheduler, key->chunk, key->layer, key->micro_batch,
                                     NULL, stream);
}

static pst_status backward(rig *self, const pst_visit_key *key, uint32_t s)
{
    const pst_stream stream = self->streams[s];
    const pst_keep keep = self->config.keep[self->first_layer[key->chunk] + key->layer];
    const uint32_t parts = keep == PST_KEEP_PAGED ? self->config.num_parts : 0;
    self->due = key;
    const pst_status begun = pst_scheduler_backward_begin(
        self->scheduler, key->kind, key->chunk, key->layer, key->micro_batch, stream, &self->visit);
    self->due = NULL;
    RIG_TRY(begun);
    const pst_visit said = self->visit;
    const bool holds = said.is_held && key->kind == PST_PASS_BACKWARD_INPUT;
    pst_status launched = PST_OK;
    RIG_TRY(rig_free_sources(self, &said, s));
    if (rig_launches(self, key, said.slot, stream, &launched)) {
        RIG_TRY(launched);
        return pst_scheduler_backward_end(self->scheduler, key->kind, key->chunk, key->layer,
                                          key->micro_batch, stream);
    }
    for (uint32_t p = 0; p < parts; p++)
        if (rig_reads(self, key->kind, p))
            RIG_TRY(read_part(self, key, p, &said, stream));
    if (keep == PST_KEEP_SWAPPED)
        RIG_TRY(swap_rows(self, key, &said, false, stream));
    if (keep == PST_KEEP_RECOMPUTED)
        RIG_TRY(recompute(self, key, stream));
    RIG_TRY(pst_scheduler_backward_end(self->scheduler, key->kind, key->chunk, key->layer,
                                       key->micro_batch, stream));
    for (uint32_t p = 0; p < parts && self->config.own && !holds; p++) {
        rig_cell *mine = rig_cell_of(self, key, p);
        if (key->kind != PST_PASS_BACKWARD_WEIGHT || said.is_held)
            RIG_TRY(rig_give_cell(self, &mine->destinations[0], s));
        if (key->kind == PST_PASS_BACKWARD_WEIGHT)
            RIG_TRY(rig_give_cell(self, &mine->destinations[1], s));
        if (said.in_place)
            RIG_TRY(rig_give_cell(self, &mine->source, s));
    }
    return PST_OK;
}

pst_status rig_visit(rig *self, const pst_pass *pass, uint32_t layer, uint32_t stream)
{
    const pst_visit_key key = {pass->kind, pass->chunk, layer, pass->micro_batch};
    return pass->kind == PST_PASS_FORWARD ? forward(self, &key, stream)
                                          : backward(self, &key, stream);
}

/* ---- steps ---- */

static uint32_t layer_at(const rig *self, const pst_pass *pass, uint32_t n)
{
    const uint32_t layers = self->config.num_layers[pass->chunk];
    return pass->kind == PST_PASS_FORWARD ? n : layers - 1 - n;
}

pst_status rig_passes(rig *self, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        const pst_pass *pass = &self->schedule->passes[i];
        const uint32_t lanes = pass->pairs && i + 1 < to ? 2 : 1;
        uint32_t done[2] = {0, 0}, all[2] = {0, 0};
        for (uint32_t k = 0; k < lanes; k++)
            all[k] = self->config.num_layers[pass[k].chunk];
        while (done[0] < all[0] || done[1] < all[1]) {
            uint32_t k = lanes == 2 ? rig_draw(self, 2) : 0;
            if (lanes == 2 && self->scheduler->recording) /* a pair must be seen as one */
                k = done[0] > done[1];
            if (done[k] == all[k])
                k = 1 - k;
            RIG_TRY(rig_visit(self, &pass[k], layer_at(self, &pass[k], done[k]),
                              self->config.two_streams ? k : 0));
            done[k]++;
        }
        i += lanes - 1;
    }
    return PST_OK;
}

pst_status rig_begin(rig *self)
{
    pst_step_options options = PST_STEP_OPTIONS_INIT;
    options.num_micro_batches = self->schedule->config.num_micro_batches;
    return pst_scheduler_step_begin(
        self->scheduler,
        self->config.records || options.num_micro_batches == self->config.schedule.num_micro_batches
            ? NULL
            : &options,
        self->streams[0]);
}

/* Every source is free behind it. */
pst_status rig_end(rig *self)
{
    RIG_TRY(pst_scheduler_step_end(self->scheduler, self->streams[0]));
    const uint32_t cells = self->num_layers * self->num_micro_batches * self->config.num_parts;
    for (uint32_t i = 0; i < cells && self->config.own; i++)
        RIG_TRY(rig_give_cell(self, &self->cell_of[i].source, 0));
    return PST_OK;
}

pst_status rig_step(rig *self)
{
    RIG_TRY(rig_begin(self));
    RIG_TRY(rig_passes(self, 0, self->schedule->num_passes));
    return rig_end(self);
}

pst_status rig_capture(rig *self, pst_graph **graph_out)
{
    RIG_TRY(pst_graph_begin(self->device, self->streams[0]));
    const pst_status status = rig_step(self);
    const pst_status ended = pst_graph_end(self->device, self->streams[0], graph_out);
    return status == PST_OK ? ended : status;
}

/* ---- what came out ---- */

pst_pool_status rig_status(rig *self)
{
    pst_pool_status status = {.check_errors = UINT32_MAX};
    if (pst_pool_check(self->pool, self->streams[0]) ||
        pst_pool_step(self->pool, self->streams[0]) || pst_device_synchronize(self->device) ||
        pst_pool_poll(self->pool, &status))
        psti_test_fail(__FILE__, __LINE__, "the pool cannot be asked: %s", pst_last_message());
    return status;
}

void rig_check(rig *self)
{
    pst_pool_status status;
    uint64_t mismatches = UINT64_MAX;
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_OK(pst_pool_poll(self->pool, &status));
    CHECK_MSG(status.step_valid == 1 && status.num_faults == 0, "%u faults, the first: %s",
              status.num_faults, pst_fault_text((pst_fault)status.fault));
    status = rig_status(self);
    CHECK_EQ(status.check_errors, 0);
    CHECK_EQ(status.in_use[0] + status.in_use[1], 0);
    CHECK_OK(pst_device_copy(self->device, &mismatches, self->mismatches, sizeof(mismatches),
                             self->streams[0]));
    CHECK_OK(pst_stream_synchronize(self->device, self->streams[0]));
    CHECK_MSG(mismatches == 0, "%llu bytes differ", (unsigned long long)mismatches);
}

rig_config rig_first_of_four(uint32_t micro_batches)
{
    rig_config config = RIG_CONFIG;
    config.schedule.num_stages = 4;
    config.schedule.num_micro_batches = micro_batches;
    return config;
}

void rig_make_lazy(rig_config *config, bool eager)
{
    const lazy_options options = {.seed = 1, .eager = eager};
    CHECK_OK(pst_device_open("host", 0, &config->device));
    lazy_make(config->device, &options);
}

void rig_is_right(rig *self)
{
    CHECK_OK(rig_step(self));
    rig_check(self);
}
