/* What a layer of a random program does. A record is the memory of one visit that the device reads and
 * writes: a word for the pattern, counts of each part, and how many bytes differed in each read. */
#include "tests/conformance/walk.h"

bool walk_reads(const walk *self, uint32_t layer, pst_pass_kind kind, uint32_t part)
{
    const uint32_t uses = part < PST_MAX_PARTS ? self->parts[layer][part].uses : 0;
    if (kind == PST_PASS_BACKWARD || uses == 0)
        return true;
    return uses & (kind == PST_PASS_BACKWARD_INPUT ? PST_USE_BACKWARD : PST_USE_WEIGHT);
}

unsigned char *walk_counts_of(const walk *self, unsigned char *record, uint32_t part)
{
    return record + sizeof(uint64_t) + part * self->count_bytes;
}

uint64_t *walk_mismatches_of(const walk *self, unsigned char *record, uint32_t part,
                             pst_pass_kind kind)
{
    const uint32_t place = part + (kind == PST_PASS_BACKWARD_WEIGHT ? PST_MAX_PARTS + 1 : 0);
    return (uint64_t *)(void *)(record + sizeof(uint64_t) + PST_MAX_PARTS * self->count_bytes) +
           place;
}

void walk_set_place(walk *self, uint32_t group, unsigned char *bytes, unsigned char *counts,
                    walk_place *place)
{
    const oracle_group *model = &self->shapes[group].group;
    memset(place, 0, sizeof(*place));
    for (uint32_t t = 0; t < model->num_tensors; t++)
        place->bases[t] = bytes + model->at[t];
    for (uint32_t s = 0; s < model->num_spaces; s++)
        place->counts[s] = counts + sizeof(int64_t) * oracle_first_input(model, s);
    place->buffers = (pst_buffers)PST_BUFFERS_INIT;
    place->buffers.bases = place->bases;
    place->buffers.counts = place->counts;
    place->buffers.capacities = model->capacities;
    place->buffers.row_strides = model->row_strides;
    place->buffers.segment_strides = model->segment_strides;
}

static pst_pattern pattern_of(unsigned char *record, uint32_t part)
{
    return (pst_pattern){.seed = 7, .key = part, .step = (const uint64_t *)(void *)record};
}

pst_status walk_write(walk *self, const walk_at *at, uint32_t part, const walk_memory *memory,
                      unsigned char *bytes, walk_place *place)
{
    const uint32_t group = self->group_of[at->layer][part];
    const pst_pattern pattern = pattern_of(at->record, part);
    unsigned char *counts = walk_counts_of(self, at->record, part);
    if (memory) {
        WALK_TRY(
            pst_device_copy(self->device, memory->counts, counts, self->count_bytes, at->stream));
        bytes = memory->bytes;
        counts = memory->counts;
    }
    WALK_TRY(pst_device_fill(self->device, bytes, 0xdd, self->arena_bytes, at->stream));
    walk_set_place(self, group, bytes, counts, place);
    return pst_group_fill(self->device, self->groups[group], &place->buffers, &pattern, at->stream);
}

pst_status walk_read(walk *self, const walk_at *at, uint32_t part, const walk_memory *memory,
                     unsigned char *bytes, bool stays, bool was_restored)
{
    const uint32_t group = self->group_of[at->layer][part];
    const pst_pattern pattern = pattern_of(at->record, part);
    const bool is_clear = was_restored && self->config.tail != PST_TAIL_UNTOUCHED;
    walk_place place;
    if (memory)
        bytes = memory->bytes;
    walk_set_place(self, group, bytes, walk_counts_of(self, at->record, part), &place);
    WALK_TRY(pst_group_verify(
        self->device, self->groups[group], &place.buffers, &pattern, is_clear ? 0 : PST_VERIFY_ANY,
        walk_mismatches_of(self, at->record, part, at->key.kind), at->stream));
    if (stays)
        return PST_OK;
    for (uint32_t g = 0; memory && g < WALK_GROUPS; g++)
        if (memory->dirty[g])
            WALK_TRY(pst_dirty_mark(memory->dirty[g], at->stream));
    return pst_device_fill(self->device, bytes, 0xbb, self->arena_bytes, at->stream);
}

pst_status walk_swap(walk *self, const walk_at *at)
{
    const pst_pattern pattern = pattern_of(at->record, PST_MAX_PARTS);
    const uint64_t tokens =
        at->said->first_token < WALK_TOKENS ? at->said->first_token : WALK_TOKENS;
    void *base = NULL;
    const void *counts = self->swap_counts + tokens;
    pst_buffers buffers = PST_BUFFERS_INIT;
    if (at->said->set == UINT32_MAX)
        return PST_OK;
    base = self->swap[at->said->set];
    buffers.bases = &base;
    buffers.counts = &counts;
    if (at->key.kind == PST_PASS_FORWARD) {
        WALK_TRY(pst_device_fill(self->device, base, 0xdd, WALK_SWAP_BYTES, at->stream));
        return pst_group_fill(self->device, self->swap_group, &buffers, &pattern, at->stream);
    }
    WALK_TRY(pst_group_verify(self->device, self->swap_group, &buffers, &pattern, PST_VERIFY_ANY,
                              walk_mismatches_of(self, at->record, PST_MAX_PARTS, at->key.kind),
                              at->stream));
    return pst_device_fill(self->device, base, 0xbb, WALK_SWAP_BYTES, at->stream);
}
