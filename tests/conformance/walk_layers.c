/* Graphs of single layers of a random program. */
#include "tests/conformance/walk.h"

#include <stdlib.h>

typedef struct captured {
    pst_pass_kind kind;
    uint32_t chunk, layer, slot;
} captured;

static walk_seat *seat_of(const walk *self, uint32_t chunk, uint32_t layer, uint32_t slot)
{
    return &self->seats[(size_t)(self->first_layer[chunk] + layer) * WALK_SLOTS + slot];
}

/* ---- capture ---- */

/* Memory of one part; the caller's own by its alias, of which those above PST_MAX_SETS are in the
 * destinations. */
static const walk_memory *memory_of(const walk *self, const captured *c, uint32_t part)
{
    const walk_seat *seat = seat_of(self, c->chunk, c->layer, c->slot);
    const pst_visit *said = &seat->said[c->kind];
    if (self->own) {
        const uint32_t alias = seat->alias[c->kind];
        return alias < PST_MAX_SETS ? &self->sources[part][alias]
                                    : &self->destinations[part][alias - PST_MAX_SETS];
    }
    return c->kind == PST_PASS_FORWARD || said->in_place ? &self->sources[part][said->set]
                                                         : &self->destinations[part][said->set];
}

const walk_memory *walk_graph_source(const walk *self, const pst_visit_key *key, uint32_t slot,
                                     uint32_t part)
{
    const captured forward = {PST_PASS_FORWARD, key->chunk, key->layer, slot};
    const bool has_graph =
        slot < WALK_SLOTS && seat_of(self, key->chunk, key->layer, slot)->graphs[PST_PASS_FORWARD];
    return has_graph ? memory_of(self, &forward, part) : NULL;
}

static pst_status begin(walk *self, const captured *c, walk_seat *seat)
{
    const uint32_t l = self->first_layer[c->chunk] + c->layer;
    walk_place places[PST_MAX_PARTS];
    const pst_buffers *buffers[PST_MAX_PARTS];
    pst_layer_buffers own = PST_LAYER_BUFFERS_INIT;
    own.alias = seat->alias[c->kind];
    own.buffers = buffers;
    for (uint32_t p = 0; p < self->layers[l].num_parts && self->own; p++) {
        const walk_memory *memory = memory_of(self, c, p);
        walk_set_place(self, self->group_of[l][p], memory->bytes, memory->counts, &places[p]);
        buffers[p] = &places[p].buffers;
    }
    const bool is_own = self->own && self->layers[l].keep == PST_KEEP_PAGED;
    return pst_scheduler_layer_capture_begin(self->scheduler, c->kind, c->chunk, c->layer, c->slot,
                                             is_own ? &own : NULL, self->streams[0],
                                             &seat->said[c->kind]);
}

static pst_status work(walk *self, const captured *c, walk_seat *seat)
{
    walk_place place;
    const walk_at at = {.key = {c->kind, c->chunk, c->layer, 0},
                        .layer = self->first_layer[c->chunk] + c->layer,
                        .said = &seat->said[c->kind],
                        .record = seat->record,
                        .stream = self->streams[0]};
    if (self->layers[at.layer].keep == PST_KEEP_SWAPPED)
        return walk_swap(self, &at);
    for (uint32_t p = 0; p < self->layers[at.layer].num_parts; p++) {
        const walk_memory *memory = NULL;
        if (c->kind != PST_PASS_FORWARD && !walk_reads(self, at.layer, c->kind, p))
            continue;
        memory = memory_of(self, c, p);
        if (c->kind == PST_PASS_FORWARD)
            WALK_TRY(walk_write(self, &at, p, memory, NULL, &place));
        else
            WALK_TRY(walk_read(self, &at, p, memory, NULL, false, false));
    }
    return PST_OK;
}

static pst_status capture_one(walk *self, const captured *c)
{
    const pst_stream stream = self->streams[0];
    walk_seat *seat = seat_of(self, c->chunk, c->layer, c->slot);
    WALK_TRY(pst_graph_begin(self->device, stream));
    pst_status status = begin(self, c, seat);
    if (status == PST_OK)
        status = work(self, c, seat);
    if (status == PST_OK)
        status = pst_scheduler_layer_capture_end(self->scheduler, c->kind, c->chunk, c->layer,
                                                 c->slot, stream);
    const pst_status ended = pst_graph_end(self->device, stream, &seat->graphs[c->kind]);
    return status == PST_OK ? ended : status;
}

/* Passes that this micro-batch's slot has, of any micro-batch. */
static void find_kinds(const walk *self, bool seen[4])
{
    for (uint64_t i = 0; i < self->schedule->num_passes; i++)
        seen[self->schedule->passes[i].kind] = true;
}

/* What reads a destination of one slot has one alias; sometimes that of a source. */
static void draw_aliases(walk *self, walk_seat *seat)
{
    const uint32_t num = 1 + walk_below(self, PST_MAX_SETS);
    seat->alias[0] = walk_below(self, num);
    const uint32_t back = self->has_pairs || walk_below(self, 4)
                              ? PST_MAX_SETS + walk_below(self, num)
                              : walk_below(self, num);
    for (uint32_t k = 1; k < 4; k++)
        seat->alias[k] = back;
}

pst_status walk_capture_layers(walk *self)
{
    const uint32_t percent = walk_below(self, 3) ? 100 : 60;
    captured *all = calloc((size_t)self->num_layers * WALK_SLOTS * 4, sizeof(*all));
    uint32_t num = 0;
    bool seen[4] = {false, false, false, false};
    pst_status status = PST_OK;
    find_kinds(self, seen);
    for (uint32_t c = 0; c < self->num_chunks; c++)
        for (uint32_t l = 0; l < self->layers_of[c]; l++)
            for (uint32_t s = 0; s < self->schedule->chunks[c].num_slots && s < WALK_SLOTS; s++) {
                const pst_keep keep = self->layers[self->first_layer[c] + l].keep;
                draw_aliases(self, seat_of(self, c, l, s));
                const bool has_graph = keep == PST_KEEP_PAGED || keep == PST_KEEP_SWAPPED;
                if (!has_graph || walk_below(self, 100) >= percent)
                    continue;
                for (uint32_t k = 0; k < 4; k++)
                    if (seen[k])
                        all[num++] = (captured){(pst_pass_kind)k, c, l, s};
            }
    for (; num && status == PST_OK; num--) {
        const uint32_t i = walk_below(self, num);
        status = capture_one(self, &all[i]);
        all[i] = all[num - 1];
    }
    free(all);
    return status;
}

/* ---- launch ---- */

/* Word and counts go in before, what was found comes out behind. */
static pst_status launch(walk *self, const walk_seat *seat, const pst_visit_key *key,
                         pst_stream stream)
{
    unsigned char *record = self->records + walk_number(self, key) * self->record_bytes;
    const size_t in = sizeof(uint64_t) + PST_MAX_PARTS * self->count_bytes;
    const uint32_t first = key->kind == PST_PASS_BACKWARD_WEIGHT ? PST_MAX_PARTS + 1 : 0;
    const size_t out = in + first * sizeof(uint64_t);
    const size_t bytes = (PST_MAX_PARTS + 1) * sizeof(uint64_t);
    WALK_TRY(pst_device_copy(self->device, seat->record, record, in, stream));
    WALK_TRY(pst_device_fill(self->device, seat->record + out, 0, bytes, stream));
    WALK_TRY(pst_graph_launch(seat->graphs[key->kind], stream));
    return key->kind == PST_PASS_FORWARD
               ? PST_OK
               : pst_device_copy(self->device, record + out, seat->record + out, bytes, stream);
}

bool walk_launch(walk *self, const pst_visit_key *key, uint32_t slot, pst_stream stream,
                 pst_status *status_out)
{
    const walk_seat *seat = slot < WALK_SLOTS ? seat_of(self, key->chunk, key->layer, slot) : NULL;
    *status_out = PST_OK;
    if (!seat || !seat->graphs[key->kind])
        return false;
    *status_out = launch(self, seat, key, stream);
    return true;
}
