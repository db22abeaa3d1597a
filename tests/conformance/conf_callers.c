/* A training framework's way: one description for all layers; memory from malloc, anew in each step
 * and handed to the next tensor as soon as the stream is behind the stash; the step captured, its
 * tickets taken within, and replayed with other counts. By the public headers alone. */
#include "tests/conformance/conf.h"

#include <stdlib.h>

enum { TENSORS = 3, SPACES = 2, EXPERTS = 6, SEGMENTS = 3, MOST_UNITS = 64, BLOCKS = 2 };
enum {
    ROWS = 40,
    SEGMENT_ROWS = 20,
    MOST_PITCH = 1100,
    BLOCK_BYTES = ROWS * (MOST_PITCH + 40) + SEGMENTS * SEGMENT_ROWS * 120 + TENSORS * 64
};

/* What a framework counts on the device: of one layer of one micro-batch. */
typedef struct counts {
    int32_t tokens[EXPERTS]; /* their sum is the rows of a prefix */
    int64_t segments[SEGMENTS];
} counts;

/* Host arrays of one call. */
typedef struct call {
    void *bases[TENSORS];
    const void *counts[SPACES];
    uint64_t row_strides[TENSORS];
    pst_buffers buffers;
} call;

typedef struct caller {
    pst_device *device;
    pst_stream stream;
    pst_pool *pool;
    pst_group *group;
    oracle_random random;
    counts *counts[MOST_UNITS]; /* from malloc */
    pst_ticket tickets[MOST_UNITS];
    unsigned char *blocks[BLOCKS]; /* from malloc, of this step */
    uint64_t *words;               /* the step, and the mismatches */
} caller;

static void make_group(caller *self)
{
    const pst_row_space spaces[SPACES] = {
        {.kind = PST_ROWS_SUM, .capacity = ROWS, .num_segments = EXPERTS},
        {.kind = PST_ROWS_SEGMENTS,
         .count_type = PST_COUNT_INT64,
         .capacity = SEGMENT_ROWS,
         .num_segments = SEGMENTS}};
    const pst_tensor tensors[TENSORS] = {
        {.row_bytes = 512},
        {.row_bytes = 100, .space = 1},
        {.row_bytes = 16, .num = 1, .den = 4, .rounding = PST_ROUND_DOWN}};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = spaces;
    config.num_spaces = SPACES;
    config.tensors = tensors;
    config.num_tensors = TENSORS;
    CHECK_OK(pst_group_create(&config, &self->group));
}

static void set_up(caller *self, const conf_run *conf, pst_pool_mode mode, uint32_t num_tickets,
                   uint64_t seed)
{
    *self = (caller){.device = conf->device, .random = oracle_random_seeded(seed)};
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = PST_PAGE_BYTES_MIN;
    config.num_pages = 5u * num_tickets;
    config.mode = mode;
    config.slab_tickets = num_tickets;
    CHECK_OK(pst_stream_create(self->device, &self->stream));
    CHECK_OK(pst_pool_create(self->device, &config, &self->pool));
    for (uint32_t unit = 0; unit < MOST_UNITS; unit++)
        self->counts[unit] = oracle_calloc(1, sizeof(counts));
    self->words = oracle_calloc(2, sizeof(uint64_t));
}

static void tear_down(caller *self)
{
    pst_pool_status status;
    CHECK_OK(pst_pool_check(self->pool, self->stream));
    CHECK_OK(pst_pool_step(self->pool, self->stream));
    CHECK_OK(pst_stream_synchronize(self->device, self->stream));
    CHECK_OK(pst_pool_poll(self->pool, &status));
    CHECK_EQ(status.num_faults, 0);
    CHECK_EQ(status.in_use[0], 0);
    CHECK_OK(pst_pool_destroy(self->pool));
    CHECK_OK(pst_stream_destroy(self->device, self->stream));
    for (uint32_t unit = 0; unit < MOST_UNITS; unit++)
        free(self->counts[unit]);
    free(self->words);
}

/* ---- memory ---- */

static void allocate(caller *self)
{
    for (int i = 0; i < BLOCKS; i++) {
        self->blocks[i] = malloc(BLOCK_BYTES);
        if (!self->blocks[i])
            abort();
        memset(self->blocks[i], 0xee, BLOCK_BYTES);
    }
}

static void poison_and_free(caller *self)
{
    for (int i = 0; i < BLOCKS; i++) {
        memset(self->blocks[i], 0xdd, BLOCK_BYTES);
        free(self->blocks[i]);
        self->blocks[i] = NULL;
    }
}

/* Somewhere in a block, in any order, with any row stride. */
static void place(caller *self, uint32_t block, uint32_t unit, call *made)
{
    static const uint64_t pitches[] = {512, 513, 528, 1024, MOST_PITCH};
    const uint64_t bytes[TENSORS] = {(uint64_t)ROWS * MOST_PITCH,
                                     (uint64_t)SEGMENTS * SEGMENT_ROWS * 120, ROWS / 4 * 40};
    uint64_t at = oracle_random_below(&self->random, 64);
    *made = (call){.buffers = PST_BUFFERS_INIT};
    for (uint32_t i = 0; i < TENSORS; i++) {
        const uint32_t t = (i + unit) % TENSORS;
        made->bases[t] = self->blocks[block] + at;
        at += bytes[t] + oracle_random_below(&self->random, 64);
    }
    made->row_strides[0] = pitches[oracle_random_below(&self->random, 5)];
    made->row_strides[1] = 100 + oracle_random_below(&self->random, 20);
    made->row_strides[2] = oracle_random_below(&self->random, 2) * 40;
    made->counts[0] = self->counts[unit]->tokens;
    made->counts[1] = self->counts[unit]->segments;
    made->buffers.bases = made->bases;
    made->buffers.counts = made->counts;
    made->buffers.row_strides = made->row_strides;
}

/* Other rows than before; at least one. */
static void change_counts(caller *self)
{
    for (uint32_t unit = 0; unit < MOST_UNITS; unit++) {
        counts *now = self->counts[unit];
        for (int i = 0; i < EXPERTS; i++)
            now->tokens[i] = (int32_t)oracle_random_below(&self->random, ROWS / EXPERTS + 1);
        now->tokens[unit % EXPERTS] += now->tokens[unit % EXPERTS] == 0;
        for (int i = 0; i < SEGMENTS; i++)
            now->segments[i] = (int64_t)oracle_random_below(&self->random, SEGMENT_ROWS + 1);
    }
}

/* ---- one layer ---- */

static pst_pattern pattern_of(const caller *self, uint32_t unit)
{
    return (pst_pattern){.seed = 11, .key = unit, .step = &self->words[0]};
}

/* What comes next in the stream writes where the layer's tensors were. */
static void reuse(caller *self, uint32_t block)
{
    CHECK_OK(pst_device_fill(self->device, self->blocks[block],
                             (uint8_t)oracle_random_below(&self->random, 256), BLOCK_BYTES,
                             self->stream));
}

static pst_status forward(caller *self, uint32_t unit)
{
    const uint32_t block = unit % BLOCKS;
    const pst_pattern pattern = pattern_of(self, unit);
    call source;
    const pst_status status = pst_ticket_take(self->pool, self->stream, &self->tickets[unit]);
    if (status != PST_OK)
        return status;
    place(self, block, unit, &source);
    if (pst_group_fill(self->device, self->group, &source.buffers, &pattern, self->stream) !=
            PST_OK ||
        pst_ticket_stash(self->tickets[unit], self->group, &source.buffers, NULL, self->stream) !=
            PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    memset(&source, 0xa5, sizeof(source));
    reuse(self, block);
    return PST_OK;
}

static void backward(caller *self, uint32_t unit)
{
    const uint32_t block = (unit + 1) % BLOCKS;
    const pst_pattern pattern = pattern_of(self, unit);
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    call destination;
    options.tail = PST_TAIL_ZERO_ALL;
    options.failed = PST_FAILED_ZERO;
    place(self, block, unit, &destination);
    CHECK_OK(pst_ticket_restore(self->tickets[unit], self->group, &destination.buffers, &options,
                                self->stream));
    CHECK_OK(pst_group_verify(self->device, self->group, &destination.buffers, &pattern, 0,
                              &self->words[1], self->stream));
    CHECK_OK(pst_ticket_give(self->tickets[unit], self->stream));
    memset(&destination, 0xa5, sizeof(destination));
    reuse(self, block);
}

/* The whole step as the schedule has it: `ahead` micro-batches go forward before the first goes
 * back. */
static void enqueue_step(caller *self, uint32_t micro_batches, uint32_t ahead, uint32_t layers)
{
    for (uint32_t i = 0; i < micro_batches + ahead; i++) {
        for (uint32_t layer = 0; i < micro_batches && layer < layers; layer++)
            CHECK_OK(forward(self, i * layers + layer));
        for (uint32_t layer = layers; i >= ahead && layer > 0; layer--)
            backward(self, (i - ahead) * layers + layer - 1);
    }
    CHECK_OK(pst_pool_step(self->pool, self->stream));
}

/* Captures a step with memory of its own; the description is gone before the first replay. */
static void run_step(caller *self, uint32_t micro_batches, uint32_t ahead, uint32_t layers,
                     uint32_t replays)
{
    pst_graph *graph = NULL;
    pst_pool_status status;
    make_group(self);
    allocate(self);
    CHECK_OK(pst_graph_begin(self->device, self->stream));
    enqueue_step(self, micro_batches, ahead, layers);
    CHECK_OK(pst_graph_end(self->device, self->stream, &graph));
    CHECK_OK(pst_group_destroy(self->group));
    for (uint32_t replay = 0; replay < replays && !psti_test_failed(); replay++) {
        change_counts(self);
        self->words[0] = replay * 1000;
        CHECK_OK(pst_graph_launch(graph, self->stream));
        CHECK_OK(pst_stream_synchronize(self->device, self->stream));
        CHECK_EQ(self->words[1], 0);
        CHECK_OK(pst_pool_poll(self->pool, &status));
        CHECK_EQ(status.step_valid, 1);
        CHECK_EQ(status.in_use[0], 0);
        CHECK(status.step_demand >= (uint64_t)layers * (ahead + 1));
    }
    CHECK_OK(pst_graph_destroy(graph));
    poison_and_free(self);
}

/* malloc'd memory is device memory on the CPU. */
#define CALLERS(name) \
    CONF_DEFINE(Callers, name, 1u << CONF_HOST | 1u << CONF_LAZY | 1u << CONF_SIMT)

CALLERS(MemoryAnewInEachCapturedStep)
{
    CONF_EACH_MODE (mode) {
        enum { LAYERS = 5 };
        static caller self;
        set_up(&self, conf, mode, LAYERS, mode);
        for (uint32_t step = 0; step < 1 + conf_cases(conf, 20) && !psti_test_failed(); step++)
            run_step(&self, 1, 0, LAYERS, 3);
        if (psti_test_failed())
            return;
        tear_down(&self);
    }
}

/* Not captured the memory can go even sooner: once the stream has passed the stash. */
CALLERS(MemoryAnewForEachLayer)
{
    enum { LAYERS = 6 };
    static caller self;
    set_up(&self, conf, PST_POOL_ORDERED, LAYERS, 3);
    make_group(&self);
    for (uint32_t step = 0; step < 1 + conf_cases(conf, 10) && !psti_test_failed(); step++) {
        change_counts(&self);
        self.words[0] = step;
        for (uint32_t i = 0; i < 2 * LAYERS && !psti_test_failed(); i++) {
            allocate(&self);
            if (i < LAYERS)
                CHECK_OK(forward(&self, i));
            else
                backward(&self, 2 * LAYERS - 1 - i);
            CHECK_OK(pst_stream_synchronize(self.device, self.stream));
            poison_and_free(&self);
        }
        CHECK_EQ(self.words[1], 0);
        CHECK_OK(pst_pool_step(self.pool, self.stream));
    }
    CHECK_OK(pst_group_destroy(self.group));
    tear_down(&self);
}

/* 32 micro-batches of which 4 are in flight need 4 tickets a layer, not 32. */
CALLERS(OneForwardOneBackwardNeedsItsPeakOfTickets)
{
    enum { AHEAD = 3, LAYERS = PSTI_UNDER_TSAN ? 1 : 2, PEAK = (AHEAD + 1) * LAYERS };
    enum { MICRO_BATCHES = PSTI_UNDER_TSAN ? 12 : 32 };
    CONF_EACH_MODE (mode) {
        static caller self;
        set_up(&self, conf, mode, PEAK, 7);
        run_step(&self, MICRO_BATCHES, AHEAD, LAYERS, 2);
        run_step(&self, MICRO_BATCHES, AHEAD, LAYERS, 1);
        run_step(&self, MICRO_BATCHES / 2, 0, LAYERS, 1);
        if (psti_test_failed())
            return;
        tear_down(&self);
    }
}

/* One less is too few: the forward pass of the first that is in flight besides says so. */
CALLERS(LessThanThePeakOfTicketsIsBusy)
{
    enum { PEAK = 4 };
    static caller self;
    pst_graph *graph = NULL;
    set_up(&self, conf, PST_POOL_ORDERED, PEAK - 1, 7);
    make_group(&self);
    allocate(&self);
    CHECK_OK(pst_graph_begin(self.device, self.stream));
    for (uint32_t unit = 0; unit < PEAK; unit++)
        CHECK_STATUS(forward(&self, unit), unit < PEAK - 1 ? PST_OK : PST_E_BUSY);
    for (uint32_t unit = 0; unit < PEAK - 1; unit++)
        backward(&self, unit);
    CHECK_OK(pst_graph_end(self.device, self.stream, &graph));
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_group_destroy(self.group));
    poison_and_free(&self);
    tear_down(&self);
}

/* The check itself: with one byte or the counts changed on the way it counts what differs. */
CALLERS(WhatDiffersIsSeen)
{
    static caller self;
    call there;
    set_up(&self, conf, PST_POOL_ORDERED, 1, 1);
    make_group(&self);
    allocate(&self);
    change_counts(&self);
    const pst_pattern pattern = pattern_of(&self, 1);
    place(&self, 0, 1, &there);
    CHECK_OK(pst_group_fill(self.device, self.group, &there.buffers, &pattern, self.stream));
    CHECK_OK(pst_stream_synchronize(self.device, self.stream));
    *(unsigned char *)there.bases[0] ^= 1;
    CHECK_OK(pst_group_verify(self.device, self.group, &there.buffers, &pattern, PST_VERIFY_ANY,
                              &self.words[1], self.stream));
    CHECK_OK(pst_stream_synchronize(self.device, self.stream));
    CHECK_EQ(self.words[1], 1);
    CHECK_OK(pst_group_destroy(self.group));
    poison_and_free(&self);
    tear_down(&self);
}
