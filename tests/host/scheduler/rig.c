/* The model that tests of the scheduler drive: its memory, how it is opened and closed. */
#include "tests/host/scheduler/rig.h"

#include <stdlib.h>

#include "host/program/program.h"
#include "kernels/core/mix.h"

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

uint32_t rig_visit_of(const rig *self, uint32_t chunk, uint32_t layer, uint32_t micro_batch)
{
    return (self->first_layer[chunk] + layer) * self->num_micro_batches + micro_batch;
}

uint32_t rig_visit_number(const rig *self, const pst_visit_key *key)
{
    return rig_visit_of(self, key->chunk, key->layer, key->micro_batch);
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
                    counts[(size_t)rig_visit_of(self, c, l, m) * parts + p] =
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
uint32_t rig_take_cell(rig *self, uint32_t stream)
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

unsigned char *rig_cell_bytes(const rig *self, uint32_t cell)
{
    return self->cells + (size_t)cell * RIG_PART_BYTES;
}

/* What frees it overwrites it at once. */
pst_status rig_give_cell(rig *self, uint32_t *cell, uint32_t stream)
{
    if (*cell == RIG_NONE)
        return PST_OK;
    RIG_TRY(pst_device_fill(self->device, rig_cell_bytes(self, *cell), 0xdd, RIG_PART_BYTES,
                            self->streams[stream]));
    self->free_cells[stream][self->num_free[stream]++] = *cell;
    *cell = RIG_NONE;
    return PST_OK;
}

rig_cell *rig_cell_of(rig *self, const pst_visit_key *key, uint32_t part)
{
    return &self->cell_of[(size_t)rig_visit_of(self, key->chunk, key->layer, key->micro_batch) *
                              self->config.num_parts +
                          part];
}

static pst_status destination(void *user, const pst_visit_key *key, uint32_t part,
                              pst_stream stream, pst_buffers *destination_out)
{
    rig *self = user;
    rig_cell *mine = rig_cell_of(self, key, part);
    const uint32_t index = stream == self->streams[0] ? 0 : 1;
    const pst_visit_key *due = self->due; /* at its own begin there is no second chance */
    const bool is_due = due && memcmp(due, key, sizeof(*key)) == 0;
    if (!is_due && rig_draw(self, 100) < self->config.defers)
        return PST_E_DEVICE_NOMEM;
    uint32_t *into = &mine->destinations[key->kind == PST_PASS_BACKWARD_WEIGHT ? 1 : 0];
    if (*into != RIG_NONE)
        return PST_E_INVALID; /* asked twice */
    *into = rig_take_cell(self, index);
    self->asked_base = rig_cell_bytes(self, *into);
    destination_out->bases = &self->asked_base;
    return PST_OK;
}

pst_status rig_free_sources(rig *self, const pst_visit *visit, uint32_t stream)
{
    for (uint32_t i = 0; i < visit->num_freed; i++)
        for (uint32_t p = 0; p < self->config.num_parts; p++)
            RIG_TRY(rig_give_cell(self, &rig_cell_of(self, &visit->freed[i], p)->source, stream));
    return PST_OK;
}

/* ---- open and close ---- */

static void describe(rig *self)
{
    rig_config *config = &self->config;
    for (uint32_t p = 0; p < config->num_parts; p++) {
        pst_part *part = &self->parts[p];
        part->group = rig_is_glu(self, p) ? self->glu_group : self->group;
        part->uses = config->uses[p];
        part->sources = config->own ? NULL : self->source_list[p];
        part->destinations = config->own || config->scheduler.one_ring || rig_is_glu(self, p)
                                 ? NULL
                                 : self->destination_list[p];
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
    const pst_tensor glu_tensor = {.row_bytes = RIG_ROW, .written_by = PST_WRITTEN_BY_GLU};
    const pst_tensor swap_tensor = {.row_bytes = RIG_TOKEN};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.tensors = &tensor;
    config.num_spaces = config.num_tensors = 1;
    CHECK_OK(pst_group_create(&config, &self->group));
    config.tensors = &glu_tensor;
    CHECK_OK(pst_group_create(&config, &self->glu_group));
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
    CHECK_OK(pst_group_destroy(self->glu_group));
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
