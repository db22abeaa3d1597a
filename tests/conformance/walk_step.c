/* Steps of a random program through the hooks, and the memory that its caller hands out. */
#include "tests/conformance/walk.h"

/* ---- the caller's own memory ---- */

/* A stream without memory of its own waits for the other. WALK_NONE, and the test has failed: the
 * scheduler keeps more than it said. */
static uint32_t take_cell(walk *self, uint32_t stream)
{
    const uint32_t other = 1 - stream;
    if (self->num_free[stream] > 0)
        return self->free_cells[stream][--self->num_free[stream]];
    if (self->num_free[other] == 0 ||
        pst_event_record(self->device, self->turn, self->streams[other]) ||
        pst_event_wait(self->device, self->turn, self->streams[stream])) {
        psti_test_fail(__FILE__, __LINE__, "no memory of the caller's is free");
        return WALK_NONE;
    }
    return self->free_cells[other][--self->num_free[other]];
}

static unsigned char *cell_bytes(const walk *self, uint32_t cell)
{
    return self->cells + (size_t)cell * self->arena_bytes;
}

/* What frees it overwrites it at once. */
static pst_status give_cell(walk *self, uint32_t *cell, uint32_t stream)
{
    if (*cell == WALK_NONE)
        return PST_OK;
    WALK_TRY(pst_device_fill(self->device, cell_bytes(self, *cell), 0xcc, self->arena_bytes,
                             self->streams[stream]));
    self->free_cells[stream][self->num_free[stream]++] = *cell;
    *cell = WALK_NONE;
    return PST_OK;
}

static walk_cells *cells_of(walk *self, const pst_visit_key *key, uint32_t part)
{
    return &self->cells_of[(size_t)walk_number(self, key) * PST_MAX_PARTS + part];
}

pst_status walk_destination(void *user, const pst_visit_key *key, uint32_t part, pst_stream stream,
                            pst_buffers *destination_out)
{
    walk *self = user;
    const pst_visit_key *due = self->due; /* at its own begin there is no second chance */
    const bool is_due = due && memcmp(due, key, sizeof(*key)) == 0;
    const uint32_t layer = self->first_layer[key->chunk] + key->layer;
    uint32_t *mine =
        &cells_of(self, key, part)->destinations[key->kind == PST_PASS_BACKWARD_WEIGHT];
    if (!is_due && walk_below(self, 100) < self->defers)
        return PST_E_DEVICE_NOMEM;
    if (*mine == WALK_NONE)
        *mine = take_cell(self, stream == self->streams[0] ? 0 : 1);
    if (*mine == WALK_NONE)
        return PST_E_INVALID;
    unsigned char *bytes = cell_bytes(self, *mine);
    walk_set_place(self, self->group_of[layer][part], bytes, bytes, &self->asked);
    *destination_out = self->asked.buffers;
    destination_out->counts = NULL;
    return PST_OK;
}

static pst_status free_sources(walk *self, const pst_visit *said, uint32_t stream)
{
    self->num_sources -= self->own ? said->num_freed : 0;
    for (uint32_t i = 0; i < said->num_freed; i++)
        for (uint32_t p = 0; p < PST_MAX_PARTS; p++)
            WALK_TRY(give_cell(self, &cells_of(self, &said->freed[i], p)->source, stream));
    return PST_OK;
}

static pst_status free_all(walk *self)
{
    const size_t num = (size_t)self->num_layers * self->num_micro_batches * PST_MAX_PARTS;
    for (size_t i = 0; i < num && self->own; i++) {
        WALK_TRY(give_cell(self, &self->cells_of[i].source, 0));
        WALK_TRY(give_cell(self, &self->cells_of[i].destinations[0], 0));
        WALK_TRY(give_cell(self, &self->cells_of[i].destinations[1], 0));
    }
    self->num_sources = 0;
    return PST_OK;
}

void walk_drop(walk *self)
{
    CHECK_OK(free_all(self));
}

/* ---- forward ---- */

/* Parts that leave early: all in their order where the figures are to be those of the simulator. */
static bool announces(walk *self)
{
    return walk_below(self, 100) < self->announces;
}

static pst_status write_parts(walk *self, const walk_at *at, uint32_t s, walk_place *places)
{
    const pst_layer *layer = &self->layers[at->layer];
    for (uint32_t p = 0; p < layer->num_parts; p++) {
        unsigned char *bytes = NULL;
        if (self->own) {
            uint32_t *cell = &cells_of(self, &at->key, p)->source;
            *cell = take_cell(self, s);
            if (*cell == WALK_NONE)
                return PST_E_INVALID;
            bytes = cell_bytes(self, *cell);
            WALK_TRY(walk_write(self, at, p, NULL, bytes, &places[p]));
        } else {
            const uint32_t set = at->said->set;
            WALK_TRY(walk_write(self, at, p, &self->sources[p][set], NULL, &places[p]));
        }
        if (announces(self))
            WALK_TRY(pst_scheduler_forward_part(self->scheduler, at->key.chunk, at->key.layer,
                                                at->key.micro_batch, p,
                                                self->own ? &places[p].buffers : NULL, at->stream));
    }
    return PST_OK;
}

/* Memory of what was never kept; and the number of sources that are in use at once is bounded. */
static pst_status after_forward(walk *self, const walk_at *at, uint32_t s)
{
    if (!self->own || self->layers[at->layer].keep != PST_KEEP_PAGED)
        return PST_OK;
    if (at->said->is_live) {
        self->num_sources++;
        if (self->wish.layers || self->num_sources <= self->config.num_sources)
            return PST_OK;
        psti_test_fail(__FILE__, __LINE__, "%u sources are in use at once", self->num_sources);
        return PST_E_INVALID;
    }
    for (uint32_t p = 0; p < PST_MAX_PARTS; p++)
        WALK_TRY(give_cell(self, &cells_of(self, &at->key, p)->source, s));
    return PST_OK;
}

static pst_status forward(walk *self, walk_at *at, uint32_t s)
{
    const pst_layer *layer = &self->layers[at->layer];
    walk_place places[PST_MAX_PARTS];
    const pst_buffers *sources[PST_MAX_PARTS];
    pst_visit said;
    pst_status status = PST_OK;
    WALK_TRY(pst_scheduler_forward_begin(self->scheduler, at->key.chunk, at->key.layer,
                                         at->key.micro_batch, at->stream, &said));
    at->said = &said;
    WALK_TRY(free_sources(self, &said, s));
    const bool is_graph = walk_launch(self, &at->key, said.slot, at->stream, &status);
    WALK_TRY(status);
    if (!is_graph && layer->keep == PST_KEEP_PAGED)
        WALK_TRY(write_parts(self, at, s, places));
    if (!is_graph && layer->keep == PST_KEEP_SWAPPED)
        WALK_TRY(walk_swap(self, at));
    for (uint32_t p = 0; p < PST_MAX_PARTS; p++)
        sources[p] = &places[p].buffers;
    const bool names = self->own && !is_graph && layer->keep == PST_KEEP_PAGED && said.is_live &&
                       !(said.in_place && walk_below(self, 2));
    WALK_TRY(pst_scheduler_forward_end(self->scheduler, at->key.chunk, at->key.layer,
                                       at->key.micro_batch, names ? sources : NULL, at->stream));
    return is_graph ? PST_OK : after_forward(self, at, s);
}

/* ---- backward ---- */

static uint32_t destination_cell(walk *self, const walk_at *at, uint32_t part)
{
    const walk_cells *mine = cells_of(self, &at->key, part);
    const bool is_weight = at->key.kind == PST_PASS_BACKWARD_WEIGHT;
    if (at->said->in_place)
        return mine->source;
    if (is_weight && at->said->is_held && mine->destinations[0] != WALK_NONE)
        return mine->destinations[0];
    return mine->destinations[is_weight];
}

/* Where no weight pass comes its parts are restored and not read: rows of one form are then in memory
 * that has dirty words of others, too. */
static pst_status leave_part(walk *self, const walk_at *at, uint32_t part)
{
    if (self->config.tail != PST_TAIL_ZERO || at->said->in_place || at->said->set == UINT32_MAX)
        return PST_OK;
    for (uint32_t g = 0; g < WALK_GROUPS; g++)
        WALK_TRY(pst_dirty_mark(self->destinations[part][at->said->set].dirty[g], at->stream));
    return PST_OK;
}

static pst_status read_parts(walk *self, const walk_at *at)
{
    const bool is_source = at->said->in_place || self->config.one_ring;
    const bool holds = at->said->is_held && at->key.kind == PST_PASS_BACKWARD_INPUT;
    for (uint32_t p = 0; p < self->layers[at->layer].num_parts; p++) {
        const walk_memory *memory = NULL;
        unsigned char *bytes = NULL;
        if (!walk_reads(self, at->layer, at->key.kind, p)) {
            WALK_TRY(leave_part(self, at, p));
            continue;
        }
        if (self->own) {
            const uint32_t cell = destination_cell(self, at, p);
            if (cell != WALK_NONE)
                bytes = cell_bytes(self, cell);
            else if (at->said->in_place) /* what the graph of its forward has written */
                memory = walk_graph_source(self, &at->key, at->said->slot, p);
            if (!bytes && !memory)
                return PST_E_INVALID;
        } else {
            memory = &(is_source ? self->sources : self->destinations)[p][at->said->set];
        }
        WALK_TRY(walk_read(self, at, p, memory, bytes, holds, !at->said->in_place));
    }
    return PST_OK;
}

static pst_status free_destinations(walk *self, const walk_at *at, uint32_t s)
{
    const bool is_weight = at->key.kind == PST_PASS_BACKWARD_WEIGHT;
    const bool holds = at->said->is_held && at->key.kind == PST_PASS_BACKWARD_INPUT;
    bool had_source = false;
    for (uint32_t p = 0; p < self->layers[at->layer].num_parts && self->own && !holds; p++) {
        walk_cells *mine = cells_of(self, &at->key, p);
        WALK_TRY(give_cell(self, &mine->destinations[is_weight], s));
        if (is_weight && at->said->is_held)
            WALK_TRY(give_cell(self, &mine->destinations[0], s));
        if (!at->said->in_place)
            continue;
        had_source |= mine->source != WALK_NONE;
        WALK_TRY(give_cell(self, &mine->source, s));
    }
    self->num_sources -= had_source;
    return PST_OK;
}

/* A RECOMPUTED layer's forward again, inside its backward. */
static pst_status recompute(walk *self, const walk_at *at)
{
    pst_visit said;
    const pst_visit_key *key = &at->key;
    WALK_TRY(pst_scheduler_forward_begin(self->scheduler, key->chunk, key->layer, key->micro_batch,
                                         at->stream, &said));
    if (said.is_live)
        psti_test_fail(__FILE__, __LINE__, "what is computed again is kept");
    return pst_scheduler_forward_end(self->scheduler, key->chunk, key->layer, key->micro_batch,
                                     NULL, at->stream);
}

static pst_status backward(walk *self, walk_at *at, uint32_t s)
{
    const pst_layer *layer = &self->layers[at->layer];
    const pst_visit_key *key = &at->key;
    pst_visit said;
    pst_status status = PST_OK;
    self->due = key;
    status = pst_scheduler_backward_begin(self->scheduler, key->kind, key->chunk, key->layer,
                                          key->micro_batch, at->stream, &said);
    self->due = NULL;
    WALK_TRY(status);
    at->said = &said;
    WALK_TRY(free_sources(self, &said, s));
    const bool is_graph = walk_launch(self, key, said.slot, at->stream, &status);
    WALK_TRY(status);
    if (!is_graph && layer->keep == PST_KEEP_PAGED)
        WALK_TRY(read_parts(self, at));
    if (!is_graph && layer->keep == PST_KEEP_SWAPPED)
        WALK_TRY(walk_swap(self, at));
    if (layer->keep == PST_KEEP_RECOMPUTED && walk_below(self, 2))
        WALK_TRY(recompute(self, at));
    WALK_TRY(pst_scheduler_backward_end(self->scheduler, key->kind, key->chunk, key->layer,
                                        key->micro_batch, at->stream));
    return layer->keep == PST_KEEP_PAGED ? free_destinations(self, at, s) : PST_OK;
}

/* ---- steps ---- */

static pst_status visit(walk *self, const pst_pass *pass, uint32_t layer, uint32_t s)
{
    walk_at at = {.key = {pass->kind, pass->chunk, layer, pass->micro_batch},
                  .layer = self->first_layer[pass->chunk] + layer,
                  .stream = self->streams[s]};
    at.record = self->records + walk_number(self, &at.key) * self->record_bytes;
    return pass->kind == PST_PASS_FORWARD ? forward(self, &at, s) : backward(self, &at, s);
}

/* The n-th visit of a pass. */
static uint32_t layer_at(const walk *self, const pst_pass *pass, uint32_t n)
{
    return pass->kind == PST_PASS_FORWARD ? n : self->layers_of[pass->chunk] - 1 - n;
}

/* Of a pair the list has the forward first; other mixtures are right, too. */
static uint32_t choose_lane(walk *self, const pst_pass *pair, const uint32_t *done,
                            const uint32_t *all)
{
    uint32_t lane = pair[0].kind == PST_PASS_FORWARD ? 0 : 1;
    if (!self->in_order)
        lane = walk_below(self, 2);
    return done[lane] == all[lane] ? 1 - lane : lane;
}

static pst_status run_passes(walk *self, uint64_t num)
{
    for (uint64_t i = 0; i < num; i++) {
        const pst_pass *pass = &self->schedule->passes[i];
        const uint32_t lanes = pass->pairs && i + 1 < self->schedule->num_passes ? 2 : 1;
        uint32_t done[2] = {0, 0}, all[2] = {0, 0};
        for (uint32_t k = 0; k < lanes; k++)
            all[k] = self->layers_of[pass[k].chunk];
        while (done[0] < all[0] || done[1] < all[1]) {
            const uint32_t k = lanes == 2 ? choose_lane(self, pass, done, all) : 0;
            const uint32_t s = self->two_streams ? (lanes == 2 ? k : walk_below(self, 2)) : 0;
            WALK_TRY(visit(self, &pass[k], layer_at(self, &pass[k], done[k]), s));
            done[k]++;
        }
        i += lanes - 1;
    }
    return PST_OK;
}

static pst_status begin_step(walk *self)
{
    pst_step_options options = PST_STEP_OPTIONS_INIT;
    options.num_micro_batches = self->schedule->config.num_micro_batches;
    const bool is_other = !self->is_recorded &&
                          options.num_micro_batches != self->drawn.num_micro_batches &&
                          self->drawn.kind != PST_SCHEDULE_LIST;
    WALK_TRY(pst_pool_reset(self->pool, PST_RESET_FAULTS | PST_RESET_STATISTICS, self->streams[0]));
    return pst_scheduler_step_begin(self->scheduler, is_other ? &options : NULL, self->streams[0]);
}

pst_status walk_part_of_step(walk *self, uint64_t num_passes)
{
    WALK_TRY(begin_step(self));
    return run_passes(self, num_passes);
}

pst_status walk_step(walk *self)
{
    WALK_TRY(walk_part_of_step(self, self->schedule->num_passes));
    WALK_TRY(pst_scheduler_step_end(self->scheduler, self->streams[0]));
    return free_all(self);
}

pst_status walk_evaluate(walk *self)
{
    pst_step_options options = PST_STEP_OPTIONS_INIT;
    options.forward_only = true;
    WALK_TRY(pst_scheduler_step_begin(self->scheduler, &options, self->streams[0]));
    for (uint32_t c = 0; c < self->num_chunks; c++)
        for (uint32_t l = 0; l < self->layers_of[c]; l++) {
            const pst_pass pass = {.chunk = c, .kind = PST_PASS_FORWARD};
            walk_at at = {.key = {PST_PASS_FORWARD, c, l, 0}};
            pst_visit said;
            WALK_TRY(pst_scheduler_forward_begin(self->scheduler, pass.chunk, l, pass.micro_batch,
                                                 self->streams[0], &said));
            if (said.is_live || said.num_freed)
                psti_test_fail(__FILE__, __LINE__, "an evaluation step keeps layer %u",
                               at.key.layer);
            WALK_TRY(pst_scheduler_forward_end(self->scheduler, c, l, 0, NULL, self->streams[0]));
        }
    return pst_scheduler_step_end(self->scheduler, self->streams[0]);
}
