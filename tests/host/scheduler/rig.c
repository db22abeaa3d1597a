/* The model that tests of the scheduler drive. */
#include "tests/host/scheduler/rig.h"
#include "tests/lazy/lazy_device.h"

#include <stdlib.h>

#include "host/program/program.h"
#include "kernels/core/mix.h"

#define TRY(call)                        \
    do {                                 \
        const pst_status rig_s = (call); \
        if (rig_s != PST_OK)             \
            return rig_s;                \
    } while (0)

uint32_t rig_pages(uint32_t chunk, uint32_t layer, uint32_t micro_batch)
{
    return 1 + (5 * micro_batch + 3 * layer + 7 * chunk) % 3;
}

uint32_t rig_draw(rig *self, uint32_t below)
{
    return (uint32_t)(psti_mix_next(&self->random) % below);
}

/* ---- memory ---- */

static void *take(rig *self, uint64_t bytes)
{
    void *taken = self->block + self->used_bytes;
    self->used_bytes += (bytes + 255) & ~UINT64_C(255);
    if (self->used_bytes > self->block_bytes) {
        psti_test_fail(__FILE__, __LINE__, "the rig has too little memory");
        abort();
    }
    return taken;
}

static uint32_t visit_of(const rig *self, uint32_t chunk, uint32_t layer, uint32_t micro_batch)
{
    return (self->first_layer[chunk] + layer) * self->num_micro_batches + micro_batch;
}

uint32_t rig_visit_number(const rig *self, const pst_visit_key *key)
{
    return visit_of(self, key->chunk, key->layer, key->micro_batch);
}

static void write_to_device(rig *self, void *to, const void *from, size_t bytes)
{
    CHECK_OK(pst_device_copy(self->device, to, from, bytes, self->streams[0]));
    CHECK_OK(pst_stream_synchronize(self->device, self->streams[0]));
}

void rig_set_counts(rig *self, uint64_t seed)
{
    const uint32_t parts = self->config.num_parts;
    const size_t num = (size_t)self->num_layers * self->num_micro_batches * parts;
    int32_t *counts = calloc(num, sizeof(*counts));
    uint64_t state = seed;
    for (uint32_t c = 0; c < self->num_chunks; c++)
        for (uint32_t l = 0; l < self->config.num_layers[c]; l++)
            for (uint32_t m = 0; m < self->num_micro_batches; m++)
                for (uint32_t p = 0; p < parts; p++) {
                    const uint32_t pages =
                        seed ? 1 + (uint32_t)(psti_mix_next(&state) % RIG_MAX_PAGES)
                             : rig_pages(c, l, m);
                    const uint32_t less = (uint32_t)(psti_mix_next(&state) % RIG_ROWS_OF_PAGE);
                    counts[(size_t)visit_of(self, c, l, m) * parts + p] =
                        (int32_t)(pages * RIG_ROWS_OF_PAGE - less);
                }
    write_to_device(self, self->counts, counts, num * sizeof(*counts));
    free(counts);
}

static void place_set(rig *self, rig_memory *memory, pst_buffers *buffers, uint32_t n)
{
    memory->bytes = take(self, RIG_PART_BYTES);
    memory->count = take(self, sizeof(int32_t));
    self->bases[n] = memory->bytes;
    self->count_of[n] = memory->count;
    *buffers = (pst_buffers)PST_BUFFERS_INIT;
    buffers->bases = &self->bases[n];
    buffers->counts = &self->count_of[n];
}

static void place_sets(rig *self)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < self->config.num_parts; p++)
        for (uint32_t i = 0; i < PST_MAX_SETS; i++) {
            place_set(self, &self->sources[p][i], &self->source_buffers[p][i], n++);
            place_set(self, &self->destinations[p][i], &self->destination_buffers[p][i], n++);
            self->source_list[p][i] = &self->source_buffers[p][i];
            self->destination_list[p][i] = &self->destination_buffers[p][i];
        }
}

static void open_memory(rig *self)
{
    const rig_config *config = &self->config;
    const uint32_t visits = self->num_layers * self->num_micro_batches;
    const uint64_t seats = (uint64_t)self->num_layers * RIG_SLOTS;
    int32_t swapped[RIG_TOKENS + 1];
    for (int32_t i = 0; i <= RIG_TOKENS; i++)
        swapped[i] = RIG_WHOLE_ROWS + i;
    self->num_cells = config->own ? (visits + 32) * config->num_parts : 0;
    self->block_bytes = (uint64_t)config->num_parts * PST_MAX_SETS * 2 * (RIG_PART_BYTES + 256) +
                        2 * (RIG_SWAP_BYTES + 256) + (uint64_t)visits * config->num_parts * 4 +
                        (uint64_t)self->num_cells * RIG_PART_BYTES + seats * 512 +
                        (uint64_t)visits * 8 + 8192;
    void *block = NULL;
    CHECK_OK(pst_device_alloc(self->device, (size_t)self->block_bytes, &block));
    self->block = block;
    CHECK_OK(
        pst_device_fill(self->device, block, 0xee, (size_t)self->block_bytes, self->streams[0]));
    place_sets(self);
    self->swap[0] = take(self, RIG_SWAP_BYTES);
    self->swap[1] = take(self, RIG_SWAP_BYTES);
    self->counts = take(self, (uint64_t)visits * config->num_parts * sizeof(int32_t));
    self->swap_counts = take(self, sizeof(swapped));
    self->step = take(self, sizeof(uint64_t));
    self->mismatches = take(self, sizeof(uint64_t));
    self->words = take(self, (uint64_t)visits * sizeof(uint64_t));
    for (uint64_t i = 0; i < visits; i++)
        write_to_device(self, &self->words[i], &i, sizeof(i));
    const uint64_t zero = 0;
    write_to_device(self, self->swap_counts, swapped, sizeof(swapped));
    write_to_device(self, self->mismatches, &zero, sizeof(zero));
    write_to_device(self, self->step, &zero, sizeof(zero));
    self->seats = calloc(seats, sizeof(*self->seats));
    for (uint64_t i = 0; i < seats; i++) {
        self->seats[i].word = take(self, sizeof(uint64_t));
        self->seats[i].counts = take(self, (PST_MAX_PARTS + 1) * sizeof(int32_t));
    }
    self->cells = self->num_cells ? take(self, (uint64_t)self->num_cells * RIG_PART_BYTES) : NULL;
    self->cell_of = calloc((size_t)visits * config->num_parts + 1, sizeof(rig_cell));
    for (uint32_t s = 0; s < RIG_STREAMS; s++)
        self->free_cells[s] = calloc(self->num_cells + 1, sizeof(uint32_t));
    for (uint32_t i = 0; i < visits * config->num_parts; i++)
        self->cell_of[i] = (rig_cell){RIG_NONE, {RIG_NONE, RIG_NONE}};
    for (uint32_t i = 0; i < self->num_cells; i++)
        self->free_cells[0][self->num_free[0]++] = i;
    rig_set_counts(self, 0);
}

/* ---- the caller's own memory ---- */

/* A stream without memory of its own waits for the other's. */
static uint32_t take_cell(rig *self, uint32_t stream)
{
    if (self->num_free[stream] == 0) {
        const uint32_t other = 1 - stream;
        pst_event event = NULL;
        if (self->num_free[other] == 0 || pst_event_create(self->device, &event) ||
            pst_event_record(self->device, event, self->streams[other]) ||
            pst_event_wait(self->device, event, self->streams[stream]) ||
            pst_event_destroy(self->device, event)) {
            psti_test_fail(__FILE__, __LINE__, "no memory of the caller's is free");
            return 0;
        }
        return self->free_cells[other][--self->num_free[other]];
    }
    return self->free_cells[stream][--self->num_free[stream]];
}

static unsigned char *cell_bytes(const rig *self, uint32_t cell)
{
    return self->cells + (size_t)cell * RIG_PART_BYTES;
}

/* What frees it overwrites it at once. */
static pst_status give_cell(rig *self, uint32_t *cell, uint32_t stream)
{
    if (*cell == RIG_NONE)
        return PST_OK;
    TRY(pst_device_fill(self->device, cell_bytes(self, *cell), 0xdd, RIG_PART_BYTES,
                        self->streams[stream]));
    self->free_cells[stream][self->num_free[stream]++] = *cell;
    *cell = RIG_NONE;
    return PST_OK;
}

static rig_cell *cell(rig *self, const pst_visit_key *key, uint32_t part)
{
    return &self->cell_of[(size_t)visit_of(self, key->chunk, key->layer, key->micro_batch) *
                              self->config.num_parts +
                          part];
}

static pst_status destination(void *user, const pst_visit_key *key, uint32_t part,
                              pst_stream stream, pst_buffers *destination_out)
{
    rig *self = user;
    rig_cell *mine = cell(self, key, part);
    const uint32_t index = stream == self->streams[0] ? 0 : 1;
    const pst_visit_key *due = self->due; /* at its own begin there is no second chance */
    const bool is_due = due && memcmp(due, key, sizeof(*key)) == 0;
    if (!is_due && rig_draw(self, 100) < self->config.defers)
        return PST_E_DEVICE_NOMEM;
    uint32_t *into = &mine->destinations[key->kind == PST_PASS_BACKWARD_WEIGHT ? 1 : 0];
    if (*into != RIG_NONE)
        return PST_E_INVALID; /* asked twice */
    *into = take_cell(self, index);
    self->asked_base = cell_bytes(self, *into);
    destination_out->bases = &self->asked_base;
    return PST_OK;
}

static pst_status free_sources(rig *self, const pst_visit *visit, uint32_t stream)
{
    for (uint32_t i = 0; i < visit->num_freed; i++)
        for (uint32_t p = 0; p < self->config.num_parts; p++)
            TRY(give_cell(self, &cell(self, &visit->freed[i], p)->source, stream));
    return PST_OK;
}

/* ---- open and close ---- */

static void describe(rig *self)
{
    rig_config *config = &self->config;
    for (uint32_t p = 0; p < config->num_parts; p++) {
        pst_part *part = &self->parts[p];
        part->group = self->group;
        part->uses = config->uses[p];
        part->sources = config->own ? NULL : self->source_list[p];
        part->destinations =
            config->own || config->scheduler.one_ring ? NULL : self->destination_list[p];
    }
    for (uint32_t c = 0; c < self->num_chunks; c++)
        for (uint32_t l = 0; l < config->num_layers[c]; l++) {
            const uint32_t at = self->first_layer[c] + l;
            pst_layer *layer = &self->layers[at];
            layer->chunk = c;
            layer->layer = l;
            layer->keep = config->keep[at];
            layer->policy = config->policy[at];
            if (layer->keep == PST_KEEP_PAGED) {
                layer->num_parts = config->num_parts;
                layer->parts = self->parts;
            }
            layer->buffers[0] = self->swap[0];
            layer->buffers[1] = self->swap[1];
            layer->whole_bytes = RIG_WHOLE_ROWS * RIG_TOKEN;
            layer->token_bytes = RIG_TOKEN;
            layer->num_tokens = RIG_TOKENS;
        }
}

static void open_groups(rig *self)
{
    const pst_row_space space = {.capacity = RIG_CAPACITY};
    const pst_row_space swap_space = {.capacity = RIG_WHOLE_ROWS + RIG_TOKENS};
    const pst_tensor tensor = {.row_bytes = RIG_ROW};
    const pst_tensor swap_tensor = {.row_bytes = RIG_TOKEN};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.tensors = &tensor;
    config.num_spaces = config.num_tensors = 1;
    CHECK_OK(pst_group_create(&config, &self->group));
    config.spaces = &swap_space;
    config.tensors = &swap_tensor;
    CHECK_OK(pst_group_create(&config, &self->swap_group));
}

static void open_pool(rig *self)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = PST_PAGE_BYTES_MIN;
    config.num_pages = self->config.num_pages ? self->config.num_pages : 4096;
    config.num_host_pages = self->config.num_host_pages;
    config.max_pages = self->config.max_pages;
    config.max_tickets = self->config.max_tickets;
    config.mode = self->config.mode;
    CHECK_OK(pst_pool_create(self->device, &config, &self->pool));
}

void rig_open(rig *self, const rig_config *given)
{
    memset(self, 0, sizeof(*self));
    self->config = *given;
    rig_config *config = &self->config;
    self->random = config->seed;
    self->device = config->device;
    if (!self->device)
        CHECK_OK(pst_device_open("host", 0, &self->device));
    if (config->num_parts == 0)
        config->num_parts = 1;
    CHECK_OK(pst_schedule_create(&config->schedule, &self->schedule));
    self->num_chunks = self->schedule->num_chunks;
    for (uint32_t c = 0; c < self->num_chunks; c++) {
        self->first_layer[c] = self->num_layers;
        self->num_layers += config->num_layers[c];
        if (self->num_micro_batches < 4 * self->schedule->chunks[c].num_micro_batches)
            self->num_micro_batches = 4 * self->schedule->chunks[c].num_micro_batches;
    }
    for (uint32_t i = 0; i < RIG_STREAMS; i++)
        CHECK_OK(pst_stream_create(self->device, &self->streams[i]));
    open_groups(self);
    open_memory(self);
    open_pool(self);
    describe(self);
    config->scheduler.pool = self->pool;
    config->scheduler.schedule = config->records ? NULL : self->schedule;
    config->scheduler.layers = self->layers;
    config->scheduler.num_layers = self->num_layers;
    if (config->own) {
        config->scheduler.destination = destination;
        config->scheduler.user = self;
    }
    if (!psti_test_failed() && !self->scheduler)
        CHECK_OK(pst_scheduler_create(&config->scheduler, &self->scheduler));
}

static void close_seats(rig *self)
{
    for (uint32_t i = 0; i < self->num_layers * RIG_SLOTS; i++)
        for (uint32_t k = 0; k < 4; k++)
            pst_graph_destroy(self->seats[i].graphs[k]);
    free(self->seats);
}

void rig_close(rig *self)
{
    CHECK_OK(pst_device_synchronize(self->device));
    close_seats(self);
    CHECK_OK(pst_scheduler_destroy(self->scheduler));
    CHECK_OK(pst_pool_destroy(self->pool));
    CHECK_OK(pst_group_destroy(self->group));
    CHECK_OK(pst_group_destroy(self->swap_group));
    pst_schedule_destroy(self->schedule);
    free(self->cell_of);
    for (uint32_t s = 0; s < RIG_STREAMS; s++) {
        free(self->free_cells[s]);
        CHECK_OK(pst_stream_destroy(self->device, self->streams[s]));
    }
    CHECK_OK(pst_device_free(self->device, self->block));
    CHECK_EQ(self->device->live, 0);
    CHECK_OK(pst_device_close(self->device));
}

void rig_set_micro_batches(rig *self, uint32_t num)
{
    pst_schedule_config config = self->config.schedule;
    pst_schedule_destroy(self->schedule);
    self->schedule = NULL;
    config.num_micro_batches = num;
    CHECK_OK(pst_schedule_create(&config, &self->schedule));
}

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
        .key = (uint64_t)visit_of(self, key->chunk, key->layer, key->micro_batch) * 8 + part,
        .step = self->step};
}

static int32_t *count_of(const rig *self, const pst_visit_key *key, uint32_t part)
{
    return self->counts +
           (size_t)visit_of(self, key->chunk, key->layer, key->micro_batch) *
               self->config.num_parts +
           part;
}

bool rig_reads(const rig *self, pst_pass_kind kind, uint32_t part)
{
    const uint32_t uses = self->config.uses[part];
    return kind == PST_PASS_BACKWARD || uses == 0 ||
           uses & (kind == PST_PASS_BACKWARD_INPUT ? PST_USE_BACKWARD : PST_USE_WEIGHT);
}

static pst_status write_part(rig *self, const pst_visit_key *key, uint32_t part,
                             const pst_visit *visit, pst_stream stream, void **base_out,
                             const void **count_out)
{
    const pst_pattern pattern = pattern_of(self, key, part);
    int32_t *count = count_of(self, key, part);
    *count_out = count;
    if (self->config.own) {
        *base_out = cell_bytes(self, cell(self, key, part)->source);
    } else {
        const rig_memory *set = &self->sources[part][visit->set];
        *base_out = set->bytes;
        TRY(pst_device_copy(self->device, set->count, count, sizeof(*count), stream));
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
    TRY(pst_group_verify(self->device, self->swap_group, &buffers, &pattern, PST_VERIFY_ANY,
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
    TRY(pst_scheduler_forward_begin(self->scheduler, key->chunk, key->layer, key->micro_batch,
                                    stream, visit));
    const pst_visit said = *visit;
    pst_status launched = PST_OK;
    TRY(free_sources(self, &said, s));
    if (rig_launches(self, key, said.slot, stream, &launched)) {
        TRY(launched);
        return pst_scheduler_forward_end(self->scheduler, key->chunk, key->layer, key->micro_batch,
                                         NULL, stream);
    }
    for (uint32_t p = 0; p < parts && self->config.own; p++)
        cell(self, key, p)->source = take_cell(self, s);
    for (uint32_t p = 0; p < parts; p++) {
        TRY(write_part(self, key, p, &said, stream, &bases[p], &counts[p]));
        buffers[p] = at_address(&bases[p], &counts[p]);
        sources[p] = &buffers[p];
        if (rig_draw(self, 100) < self->config.announces)
            TRY(pst_scheduler_forward_part(self->scheduler, key->chunk, key->layer,
                                           key->micro_batch, p,
                                           self->config.own ? sources[p] : NULL, stream));
    }
    if (keep == PST_KEEP_SWAPPED)
        TRY(swap_rows(self, key, &said, true, stream));
    TRY(pst_scheduler_forward_end(self->scheduler, key->chunk, key->layer, key->micro_batch,
                                  self->config.own ? sources : NULL, stream));
    for (uint32_t p = 0; p < parts && self->config.own && !said.is_live; p++)
        TRY(give_cell(self, &cell(self, key, p)->source, s));
    return PST_OK;
}

static pst_status read_part(rig *self, const pst_visit_key *key, uint32_t part,
                            const pst_visit *visit, pst_stream stream)
{
    const pst_pattern pattern = pattern_of(self, key, part);
    const void *count = count_of(self, key, part);
    const bool is_source = visit->in_place || self->config.scheduler.one_ring;
    void *base = NULL;
    if (self->config.own) {
        const rig_cell *mine = cell(self, key, part);
        const bool is_weight = key->kind == PST_PASS_BACKWARD_WEIGHT && !visit->is_held;
        base = cell_bytes(self,
                          visit->in_place ? mine->source : mine->destinations[is_weight ? 1 : 0]);
    } else {
        base = (is_source ? self->sources : self->destinations)[part][visit->set].bytes;
    }
    const pst_buffers buffers = at_address(&base, &count);
    TRY(pst_group_verify(self->device, self->group, &buffers, &pattern, PST_VERIFY_ANY,
                         self->mismatches, stream));
    if (visit->is_held && key->kind == PST_PASS_BACKWARD_INPUT)
        return PST_OK;
    return pst_device_fill(self->device, base, 0xbb, RIG_PART_BYTES, stream);
}

static pst_status recompute(rig *self, const pst_visit_key *key, pst_stream stream)
{
    pst_visit visit;
    TRY(pst_scheduler_forward_begin(self->scheduler, key->chunk, key->layer, key->micro_batch,
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
    TRY(begun);
    const pst_visit said = self->visit;
    const bool holds = said.is_held && key->kind == PST_PASS_BACKWARD_INPUT;
    pst_status launched = PST_OK;
    TRY(free_sources(self, &said, s));
    if (rig_launches(self, key, said.slot, stream, &launched)) {
        TRY(launched);
        return pst_scheduler_backward_end(self->scheduler, key->kind, key->chunk, key->layer,
                                          key->micro_batch, stream);
    }
    for (uint32_t p = 0; p < parts; p++)
        if (rig_reads(self, key->kind, p))
            TRY(read_part(self, key, p, &said, stream));
    if (keep == PST_KEEP_SWAPPED)
        TRY(swap_rows(self, key, &said, false, stream));
    if (keep == PST_KEEP_RECOMPUTED)
        TRY(recompute(self, key, stream));
    TRY(pst_scheduler_backward_end(self->scheduler, key->kind, key->chunk, key->layer,
                                   key->micro_batch, stream));
    for (uint32_t p = 0; p < parts && self->config.own && !holds; p++) {
        rig_cell *mine = cell(self, key, p);
        if (key->kind != PST_PASS_BACKWARD_WEIGHT || said.is_held)
            TRY(give_cell(self, &mine->destinations[0], s));
        if (key->kind == PST_PASS_BACKWARD_WEIGHT)
            TRY(give_cell(self, &mine->destinations[1], s));
        if (said.in_place)
            TRY(give_cell(self, &mine->source, s));
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
            TRY(rig_visit(self, &pass[k], layer_at(self, &pass[k], done[k]),
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
    TRY(pst_scheduler_step_end(self->scheduler, self->streams[0]));
    const uint32_t cells = self->num_layers * self->num_micro_batches * self->config.num_parts;
    for (uint32_t i = 0; i < cells && self->config.own; i++)
        TRY(give_cell(self, &self->cell_of[i].source, 0));
    return PST_OK;
}

pst_status rig_step(rig *self)
{
    TRY(rig_begin(self));
    TRY(rig_passes(self, 0, self->schedule->num_passes));
    return rig_end(self);
}

pst_status rig_capture(rig *self, pst_graph **graph_out)
{
    TRY(pst_graph_begin(self->device, self->streams[0]));
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
