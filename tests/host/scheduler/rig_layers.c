/* The model's layers as graphs of their own. */
#include <stdlib.h>

#include "tests/host/scheduler/rig.h"

typedef struct captured {
    pst_pass_kind kind;
    uint32_t chunk, layer, slot;
} captured;

static uint32_t layer_index(const rig *self, uint32_t chunk, uint32_t layer)
{
    return self->first_layer[chunk] + layer;
}

static rig_seat *seat_of(const rig *self, uint32_t chunk, uint32_t layer, uint32_t slot)
{
    return &self->seats[layer_index(self, chunk, layer) * RIG_SLOTS + slot];
}

/* Memory of one part; the caller's own by its alias, whose numbers above PST_MAX_SETS are those of
 * destinations. */
static const rig_memory *memory_of(const rig *self, const captured *c, uint32_t part)
{
    const rig_seat *seat = seat_of(self, c->chunk, c->layer, c->slot);
    const pst_visit *visit = &seat->visits[c->kind];
    if (self->config.own) {
        const uint32_t alias = seat->aliases[c->kind];
        return alias < PST_MAX_SETS ? &self->sources[part][alias]
                                    : &self->destinations[part][alias - PST_MAX_SETS];
    }
    return c->kind == PST_PASS_FORWARD || visit->in_place ? &self->sources[part][visit->set]
                                                          : &self->destinations[part][visit->set];
}

static pst_status use_tensor(rig *self, const captured *c, pst_group *group, void *base,
                             int32_t *count, uint32_t key, pst_stream stream)
{
    const rig_seat *seat = seat_of(self, c->chunk, c->layer, c->slot);
    const uint32_t number = layer_index(self, c->chunk, c->layer) * RIG_SLOTS + c->slot;
    const pst_pattern pattern = {.seed = 2, .key = (uint64_t)number * 8 + key, .step = seat->word};
    const void *counts = count;
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = &base;
    buffers.counts = &counts;
    if (c->kind == PST_PASS_FORWARD)
        return pst_group_fill(self->device, group, &buffers, &pattern, stream);
    return pst_group_verify(self->device, group, &buffers, &pattern, PST_VERIFY_ANY,
                            self->mismatches, stream);
}

/* Of such a part nothing is in place. */
static pst_status use_glu(rig *self, const captured *c, uint32_t part, const rig_memory *memory,
                          pst_stream stream)
{
    const rig_seat *seat = seat_of(self, c->chunk, c->layer, c->slot);
    const pst_visit_key key = {c->kind, c->chunk, c->layer, 0};
    const bool is_forward = c->kind == PST_PASS_FORWARD;
    void *base = is_forward ? memory->bytes : self->destinations[part][0].bytes;
    const void *count = &seat->counts[part];
    bool in_pages = true;
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = &base;
    buffers.counts = &count;
    if (seat->visits[c->kind].in_place)
        return PST_E_INVALID;
    if (!is_forward)
        RIG_TRY(rig_restore_glu(self, &key, c->slot, part, &buffers, &in_pages, stream));
    RIG_TRY(use_tensor(self, c, self->group, base, &seat->counts[part], part, stream));
    return is_forward ? rig_stash_glu(self, &key, c->slot, part, &buffers, stream)
                      : pst_device_fill(self->device, base, 0xbb, RIG_PART_BYTES, stream);
}

static pst_status use_part(rig *self, const captured *c, uint32_t part, pst_stream stream)
{
    const rig_seat *seat = seat_of(self, c->chunk, c->layer, c->slot);
    const rig_memory *memory = memory_of(self, c, part);
    if (c->kind == PST_PASS_FORWARD)
        RIG_TRY(pst_device_copy(self->device, memory->count, &seat->counts[part], sizeof(int32_t),
                                stream));
    if (rig_is_glu(self, part))
        return use_glu(self, c, part, memory, stream);
    RIG_TRY(use_tensor(self, c, self->group, memory->bytes, &seat->counts[part], part, stream));
    const bool stays = c->kind == PST_PASS_FORWARD ||
                       (c->kind == PST_PASS_BACKWARD_INPUT && self->config.policy[0].holds);
    return stays ? PST_OK
                 : pst_device_fill(self->device, memory->bytes, 0xbb, RIG_PART_BYTES, stream);
}

static pst_status use_layer(rig *self, const captured *c, pst_stream stream)
{
    const rig_seat *seat = seat_of(self, c->chunk, c->layer, c->slot);
    const pst_visit *visit = &seat->visits[c->kind];
    const uint32_t l = layer_index(self, c->chunk, c->layer);
    if (self->config.keep[l] == PST_KEEP_SWAPPED) {
        const bool is_part = visit->first_token < RIG_TOKENS;
        const uint64_t tokens = is_part ? visit->first_token : RIG_TOKENS;
        return use_tensor(self, c, self->swap_group, self->swap[visit->set],
                          self->swap_counts + tokens, 7, stream);
    }
    for (uint32_t part = 0; part < self->config.num_parts; part++)
        if (c->kind == PST_PASS_FORWARD || rig_reads(self, c->kind, part))
            RIG_TRY(use_part(self, c, part, stream));
    return PST_OK;
}

/* ---- capture ---- */

static pst_status begin_capture(rig *self, const captured *c, pst_stream stream)
{
    rig_seat *seat = seat_of(self, c->chunk, c->layer, c->slot);
    const bool is_paged =
        self->config.keep[layer_index(self, c->chunk, c->layer)] == PST_KEEP_PAGED;
    const pst_buffers *buffers[PST_MAX_PARTS];
    pst_layer_buffers own = PST_LAYER_BUFFERS_INIT;
    own.alias = seat->aliases[c->kind];
    own.buffers = buffers;
    for (uint32_t part = 0; part < self->config.num_parts; part++) {
        const uint32_t alias = own.alias;
        buffers[part] = rig_is_glu(self, part) && c->kind != PST_PASS_FORWARD ? NULL
                        : alias < PST_MAX_SETS
                            ? &self->source_buffers[part][alias]
                            : &self->destination_buffers[part][alias - PST_MAX_SETS];
    }
    return pst_scheduler_layer_capture_begin(self->scheduler, c->kind, c->chunk, c->layer, c->slot,
                                             self->config.own && is_paged ? &own : NULL, stream,
                                             &seat->visits[c->kind]);
}

static pst_status capture_one(rig *self, const captured *c)
{
    const pst_stream stream = self->streams[0];
    rig_seat *seat = seat_of(self, c->chunk, c->layer, c->slot);
    pst_graph *graph = NULL;
    RIG_TRY(pst_graph_begin(self->device, stream));
    pst_status status = begin_capture(self, c, stream);
    if (status == PST_OK)
        status = use_layer(self, c, stream);
    if (status == PST_OK)
        status = pst_scheduler_layer_capture_end(self->scheduler, c->kind, c->chunk, c->layer,
                                                 c->slot, stream);
    const pst_status ended = pst_graph_end(self->device, stream, &graph);
    if (status == PST_OK)
        status = ended;
    seat->graphs[c->kind] = graph;
    return status;
}

static uint32_t list_kinds(const rig *self, pst_pass_kind kinds[4])
{
    bool seen[4] = {false, false, false, false};
    uint32_t num = 0;
    for (uint64_t i = 0; i < self->schedule->num_passes; i++)
        seen[self->schedule->passes[i].kind] = true;
    for (int k = 0; k < 4; k++)
        if (seen[k])
            kinds[num++] = (pst_pass_kind)k;
    return num;
}

/* Forwards write to sources, backwards mostly read destinations; those of one slot are one set. */
static void draw_aliases(rig *self, rig_seat *seat)
{
    seat->aliases[0] = rig_draw(self, PST_MAX_SETS);
    const bool has_pairs = self->config.schedule.kind >= PST_SCHEDULE_DUALPIPE;
    const uint32_t back = has_pairs || rig_draw(self, 8)
                              ? PST_MAX_SETS + rig_draw(self, PST_MAX_SETS)
                              : seat->aliases[0];
    for (uint32_t k = 1; k < 4; k++)
        seat->aliases[k] = back;
}

pst_status rig_capture_layers(rig *self, uint32_t percent)
{
    pst_pass_kind kinds[4];
    const uint32_t num_kinds = list_kinds(self, kinds);
    captured *all = calloc((size_t)self->num_layers * RIG_SLOTS * 4, sizeof(*all));
    uint32_t num = 0;
    for (uint32_t c = 0; c < self->num_chunks; c++)
        for (uint32_t l = 0; l < self->config.num_layers[c]; l++)
            for (uint32_t s = 0; s < self->schedule->chunks[c].num_slots; s++) {
                const pst_keep keep = self->config.keep[layer_index(self, c, l)];
                draw_aliases(self, seat_of(self, c, l, s));
                if (keep == PST_KEEP_PLANNED || keep == PST_KEEP_RECOMPUTED ||
                    rig_draw(self, 100) >= percent)
                    continue;
                for (uint32_t k = 0; k < num_kinds; k++)
                    all[num++] = (captured){kinds[k], c, l, s};
            }
    pst_status status = PST_OK;
    for (; num && status == PST_OK; num--) {
        const uint32_t i = rig_draw(self, num);
        status = capture_one(self, &all[i]);
        all[i] = all[num - 1];
    }
    free(all);
    return status;
}

/* ---- launch ---- */

static pst_status tell_graph(rig *self, const rig_seat *seat, const pst_visit_key *key,
                             pst_stream stream)
{
    const uint32_t visit = rig_visit_number(self, key);
    const uint32_t parts = self->config.num_parts;
    RIG_TRY(
        pst_device_copy(self->device, seat->word, &self->words[visit], sizeof(uint64_t), stream));
    return pst_device_copy(self->device, seat->counts, &self->counts[(size_t)visit * parts],
                           parts * sizeof(int32_t), stream);
}

bool rig_launches(rig *self, const pst_visit_key *key, uint32_t slot, pst_stream stream,
                  pst_status *status_out)
{
    const rig_seat *seat = slot < RIG_SLOTS ? seat_of(self, key->chunk, key->layer, slot) : NULL;
    if (!seat || !seat->graphs[key->kind])
        return false;
    *status_out = key->kind == PST_PASS_FORWARD ? tell_graph(self, seat, key, stream) : PST_OK;
    if (*status_out == PST_OK)
        *status_out = pst_graph_launch(seat->graphs[key->kind], stream);
    return true;
}
