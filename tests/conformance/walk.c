/* Memory, pool and scheduler of a random program. */
#include "tests/conformance/walk.h"

#include <stdlib.h>

/* ---- memory ---- */

static unsigned char *take(walk *self, uint64_t bytes)
{
    unsigned char *taken = (unsigned char *)self->block + self->used_bytes;
    self->used_bytes += (bytes + 255) & ~UINT64_C(255);
    if (self->used_bytes > self->block_bytes) {
        psti_test_fail(__FILE__, __LINE__, "too little memory");
        abort();
    }
    return taken;
}

static void write_to_device(walk *self, void *to, const void *from, size_t bytes)
{
    CHECK_OK(pst_device_copy(self->device, to, from, bytes, self->streams[0]));
    CHECK_OK(pst_stream_synchronize(self->device, self->streams[0]));
}

static void place_memory(walk *self, walk_memory *memory)
{
    memory->bytes = take(self, self->arena_bytes);
    memory->counts = take(self, self->count_bytes);
    for (uint32_t g = 0; g < WALK_GROUPS && self->config.tail == PST_TAIL_ZERO; g++)
        CHECK_OK(pst_dirty_create(self->device, self->groups[g], false, &memory->dirty[g]));
}

static void open_groups(walk *self)
{
    const pst_row_space space = {.capacity = WALK_WHOLE + WALK_TOKENS,
                                 .count_type = PST_COUNT_INT64};
    const pst_tensor tensor = {.row_bytes = WALK_TOKEN};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.tensors = &tensor;
    config.num_spaces = config.num_tensors = 1;
    CHECK_OK(pst_group_create(&config, &self->swap_group));
    for (uint32_t g = 0; g < WALK_GROUPS; g++) {
        const oracle_group *model = &self->shapes[g].group;
        config.spaces = model->spaces;
        config.num_spaces = model->num_spaces;
        config.tensors = model->tensors;
        config.num_tensors = model->num_tensors;
        CHECK_OK(pst_group_create(&config, &self->groups[g]));
    }
}

static void open_memory(walk *self)
{
    const uint64_t visits = (uint64_t)self->num_layers * self->num_micro_batches;
    const uint64_t seats = (uint64_t)self->num_layers * WALK_SLOTS;
    const uint32_t num_parts = self->wish.vector ? 1 : PST_MAX_PARTS;
    const uint32_t num_sets = self->wish.layers && self->own ? PST_MAX_SETS : WALK_SETS;
    const uint64_t sets = 2 * (uint64_t)num_parts * num_sets;
    int64_t swapped[WALK_TOKENS + 1];
    for (int64_t i = 0; i <= WALK_TOKENS; i++)
        swapped[i] = WALK_WHOLE + i;
    self->block_bytes = sets * (self->arena_bytes + self->count_bytes + 512) +
                        (visits + seats) * (self->record_bytes + 256) +
                        (self->own ? WALK_CELLS * self->arena_bytes : 0) + 2 * WALK_SWAP_BYTES +
                        4096;
    CHECK_OK(pst_device_alloc(self->device, (size_t)self->block_bytes, &self->block));
    CHECK_OK(pst_device_fill(self->device, self->block, 0xee, (size_t)self->block_bytes,
                             self->streams[0]));
    for (uint32_t p = 0; p < num_parts; p++)
        for (uint32_t i = 0; i < num_sets; i++) {
            place_memory(self, &self->sources[p][i]);
            place_memory(self, &self->destinations[p][i]);
        }
    self->swap[0] = take(self, WALK_SWAP_BYTES);
    self->swap[1] = take(self, WALK_SWAP_BYTES);
    self->swap_counts = (int64_t *)(void *)take(self, sizeof(swapped));
    write_to_device(self, self->swap_counts, swapped, sizeof(swapped));
    self->records = take(self, visits * self->record_bytes);
    self->cells = self->own ? take(self, WALK_CELLS * self->arena_bytes) : NULL;
    self->image = calloc(visits + 1, self->record_bytes);
    self->values = calloc(visits * PST_MAX_PARTS + 1, self->count_bytes);
    self->cells_of = calloc(visits * PST_MAX_PARTS + 1, sizeof(walk_cells));
    self->seats = calloc(seats, sizeof(*self->seats));
    for (uint64_t i = 0; i < seats; i++)
        self->seats[i].record = take(self, self->record_bytes);
    for (uint64_t i = 0; i < visits * PST_MAX_PARTS; i++)
        self->cells_of[i] = (walk_cells){WALK_NONE, {WALK_NONE, WALK_NONE}};
    for (uint32_t i = 0; self->own && i < WALK_CELLS; i++)
        self->free_cells[0][self->num_free[0]++] = i;
}

static void put_count(unsigned char *to, const pst_row_space *space, uint32_t n, int64_t value)
{
    const int32_t narrow = (int32_t)value;
    if (space->count_type == PST_COUNT_INT32)
        memcpy(to + n * sizeof(narrow), &narrow, sizeof(narrow));
    else
        memcpy(to + n * sizeof(value), &value, sizeof(value));
}

static void draw_counts(walk *self, uint32_t layer, uint32_t part, uint64_t visit)
{
    const oracle_group *model = &self->shapes[self->group_of[layer][part]].group;
    int64_t *values = self->values + (visit * PST_MAX_PARTS + part) * self->num_inputs;
    unsigned char *to =
        self->image + visit * self->record_bytes + sizeof(uint64_t) + part * self->count_bytes;
    const walk_vector *vector = self->wish.vector;
    shape_counts(&self->random, model, (counts_kind)walk_below(self, COUNTS_GOOD), values);
    if (vector && vector->rows)
        values[0] = vector->rows(self->layers[layer].chunk, self->layers[layer].layer,
                                 (uint32_t)(visit % self->num_micro_batches));
    for (uint32_t s = 0; s < model->num_spaces; s++) {
        const uint32_t first = oracle_first_input(model, s);
        for (uint32_t i = 0; i < oracle_num_inputs(&model->spaces[s]); i++)
            put_count(to + first * sizeof(int64_t), &model->spaces[s], i, values[first + i]);
    }
}

void walk_new_counts(walk *self)
{
    const uint64_t visits = (uint64_t)self->num_layers * self->num_micro_batches;
    self->num_steps++;
    for (uint64_t v = 0; v < visits; v++) {
        const uint32_t layer = (uint32_t)(v / self->num_micro_batches);
        const uint64_t word = self->num_steps << 32 | v;
        memset(self->image + v * self->record_bytes, 0, self->record_bytes);
        memcpy(self->image + v * self->record_bytes, &word, sizeof(word));
        for (uint32_t p = 0; p < self->layers[layer].num_parts; p++)
            draw_counts(self, layer, p, v);
    }
    write_to_device(self, self->records, self->image, visits * self->record_bytes);
}

/* ---- open and close ---- */

/* The parts of all layers, over the sets. */
static void describe(walk *self, walk_place *places, const pst_buffers **lists, pst_dirty **dirty)
{
    for (uint32_t l = 0; l < self->num_layers; l++)
        for (uint32_t p = 0; p < self->layers[l].num_parts; p++) {
            pst_part *part = &self->parts[l][p];
            const uint32_t group = self->group_of[l][p];
            part->group = self->groups[group];
            if (self->own)
                continue;
            for (uint32_t i = 0; i < WALK_SETS; i++, places += 2) {
                const walk_memory *to = &self->destinations[p][i];
                walk_set_place(self, group, self->sources[p][i].bytes, self->sources[p][i].counts,
                               &places[0]);
                walk_set_place(self, group, to->bytes, to->counts, &places[1]);
                lists[i] = &places[0].buffers;
                lists[PST_MAX_SETS + i] = &places[1].buffers;
                dirty[i] = to->dirty[group];
            }
            part->sources = lists;
            part->destinations = self->config.one_ring ? NULL : lists + PST_MAX_SETS;
            part->dirty = dirty[0] ? dirty : NULL;
            lists += 2 * PST_MAX_SETS;
            dirty += PST_MAX_SETS;
        }
    for (uint32_t l = 0; l < self->num_layers; l++) {
        self->layers[l].buffers[0] = self->swap[0];
        self->layers[l].buffers[1] = self->swap[1];
        self->layers[l].whole_bytes = WALK_WHOLE * WALK_TOKEN;
        self->layers[l].token_bytes = WALK_TOKEN;
        self->layers[l].num_tokens = WALK_TOKENS;
    }
}

void walk_open(walk *self)
{
    static walk_place places[WALK_LAYERS * PST_MAX_PARTS * PST_MAX_SETS * 2];
    static const pst_buffers *lists[WALK_LAYERS * PST_MAX_PARTS * PST_MAX_SETS * 2];
    static pst_dirty *dirty[WALK_LAYERS * PST_MAX_PARTS * PST_MAX_SETS];
    for (uint32_t i = 0; i < WALK_STREAMS; i++)
        CHECK_OK(pst_stream_create(self->device, &self->streams[i]));
    for (uint32_t i = 0; i < 4 && self->gives_streams; i++) {
        CHECK_OK(pst_stream_create(self->device, &self->side[i]));
        self->config.streams[i] = self->side[i];
    }
    CHECK_OK(pst_event_create(self->device, &self->turn));
    open_groups(self);
    open_memory(self);
    CHECK_OK(pst_pool_create(self->device, &self->pool_config, &self->pool));
    describe(self, places, lists, dirty);
    self->config.pool = self->pool;
    self->config.schedule = self->is_recorded ? NULL : self->schedule;
    self->config.layers = self->layers;
    self->config.num_layers = self->num_layers;
    if (self->own) {
        self->config.destination = walk_destination;
        self->config.user = self;
    }
    if (!psti_test_failed())
        CHECK_OK(pst_scheduler_create(&self->config, &self->scheduler));
}

static void close_dirty(walk_memory *memory)
{
    for (uint32_t g = 0; g < WALK_GROUPS; g++)
        CHECK_OK(pst_dirty_destroy(memory->dirty[g]));
}

void walk_close(walk *self)
{
    for (uint32_t i = 0; i < self->num_layers * WALK_SLOTS; i++)
        for (uint32_t k = 0; k < 4; k++)
            CHECK_OK(pst_graph_destroy(self->seats[i].graphs[k]));
    CHECK_OK(pst_scheduler_destroy(self->scheduler));
    CHECK_OK(pst_pool_destroy(self->pool));
    for (uint32_t p = 0; p < PST_MAX_PARTS; p++)
        for (uint32_t i = 0; i < PST_MAX_SETS; i++) {
            close_dirty(&self->sources[p][i]);
            close_dirty(&self->destinations[p][i]);
        }
    for (uint32_t g = 0; g < WALK_GROUPS; g++)
        CHECK_OK(pst_group_destroy(self->groups[g]));
    CHECK_OK(pst_group_destroy(self->swap_group));
    pst_schedule_destroy(self->schedule);
    free(self->image);
    free(self->values);
    free(self->cells_of);
    free(self->seats);
    CHECK_OK(pst_event_destroy(self->device, self->turn));
    for (uint32_t i = 0; i < WALK_STREAMS; i++)
        CHECK_OK(pst_stream_destroy(self->device, self->streams[i]));
    for (uint32_t i = 0; i < 4 && self->gives_streams; i++)
        CHECK_OK(pst_stream_destroy(self->device, self->side[i]));
    CHECK_OK(pst_device_free(self->device, self->block));
    CHECK_EQ(self->device->live, 0);
}
