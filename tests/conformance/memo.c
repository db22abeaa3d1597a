/* Memory, data, pool and scheduler of the small model of dense and MoE layers. */
#include "tests/conformance/memo.h"

#include <stdlib.h>

#include "kernels/core/mix.h"

/* ---- memory ---- */

static unsigned char *take(memo *self, uint64_t bytes)
{
    unsigned char *taken = self->block ? self->block + self->used_bytes : NULL;
    self->used_bytes += (bytes + 255) & ~UINT64_C(255);
    return taken;
}

/* Without a block yet it counts the bytes. */
static void place(memo *self)
{
    const uint64_t m = self->num_micro_batches, visits = m * self->wish.num_layers;
    self->used_bytes = 0;
    self->data_bytes = m * MEMO_INPUT + visits * (MEMO_EXPERTS + sizeof(int64_t));
    self->answer_bytes =
        visits * MEMO_DENSE + m * MEMO_INPUT + self->wish.num_layers * sizeof(uint64_t);
    self->data = take(self, self->data_bytes);
    self->hidden = take(self, m * MEMO_INPUT);
    self->inputs = take(self, visits * MEMO_INPUT);
    self->kept = take(self, visits * MEMO_DENSE);
    self->planned = take(self, visits * MEMO_DENSE);
    self->work = take(self, MEMO_DENSE);
    self->attention = take(self, MEMO_PLANES * MEMO_INPUT);
    self->turned = take(self, MEMO_INPUT);
    self->answers = take(self, self->answer_bytes);
    self->gradient = self->answers ? self->answers + visits * MEMO_DENSE : NULL;
    self->rows = (int64_t *)(void *)take(self, (MEMO_PLANES + 1) * sizeof(int64_t));
    for (uint32_t i = 0; i < 2; i++)
        self->rounding[i] = take(self, MEMO_DENSE);
    for (uint32_t i = 0; i < self->wish.num_sets; i++) {
        self->sources[i] = take(self, MEMO_EXPERTS);
        self->destinations[i] = take(self, MEMO_EXPERTS);
        self->source_counts[i] = (int64_t *)(void *)take(self, sizeof(int64_t));
    }
}

static void write_to_device(memo *self, void *to, const void *from, size_t bytes)
{
    CHECK_OK(pst_device_copy(self->device, to, from, bytes, self->stream));
    CHECK_OK(pst_stream_synchronize(self->device, self->stream));
}

static void open_memory(memo *self)
{
    void *block = NULL;
    int64_t rows[MEMO_PLANES + 1];
    for (int64_t i = 0; i <= MEMO_PLANES; i++)
        rows[i] = i * MEMO_TOKENS;
    place(self);
    self->block_bytes = self->used_bytes;
    CHECK_OK(pst_device_alloc(self->device, (size_t)self->block_bytes, &block));
    self->block = block;
    CHECK_OK(pst_device_fill(self->device, block, 0xee, (size_t)self->block_bytes, self->stream));
    place(self);
    write_to_device(self, self->rows, rows, sizeof(rows));
    self->image = calloc(1, self->data_bytes);
    self->found = calloc(1, self->answer_bytes);
    self->wanted = calloc(1, self->answer_bytes);
}

/* ---- data ---- */

/* Also none, and all. */
int64_t memo_rows(const memo *self, uint64_t step, uint32_t layer, uint32_t micro_batch)
{
    uint64_t state = self->wish.seed * 1000 + step * 100 +
                     layer * UINT64_C(10) * MEMO_MICRO_BATCHES + micro_batch;
    return (int64_t)(psti_mix_next(&state) % (MEMO_ROWS + 1));
}

static void draw(uint64_t *state, unsigned char *to, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)(1 + psti_mix_next(state) % 255);
}

/* Rows of an MoE layer; behind the live ones zeros, as in what is restored. */
static void draw_experts(uint64_t *state, unsigned char *to, int64_t rows)
{
    static const int64_t share[MEMO_TENSORS] = {1, 4, 10};
    memset(to, 0, MEMO_EXPERTS);
    for (uint32_t t = 0; t < MEMO_TENSORS; t++) {
        draw(state, to, (uint64_t)(rows / share[t]) * MEMO_ROW);
        to += MEMO_ROWS / share[t] * MEMO_ROW;
    }
}

void memo_new_data(memo *self)
{
    uint64_t state = self->wish.seed << 32 | self->num_steps;
    for (uint32_t m = 0; m < self->num_micro_batches; m++) {
        draw(&state, memo_tokens(self, self->image, m), MEMO_INPUT);
        for (uint32_t l = 0; l < self->wish.num_layers; l++) {
            const int64_t rows = memo_rows(self, self->num_steps, l, m);
            draw_experts(&state, memo_experts(self, self->image, l, m), rows);
            memcpy(memo_count(self, self->image, l, m), &rows, sizeof(rows));
        }
    }
    self->num_steps++;
    write_to_device(self, self->data, self->image, self->data_bytes);
}

/* ---- what is watched ---- */

static memo *watching; /* one at a time: a device's functions have no room for more */

static void add_copy(memo *self, const memo_copy *copy, pst_stream stream)
{
    uint32_t side = 0;
    while (side < self->scheduler->num_streams && self->scheduler->side[side] != stream)
        side++;
    if (self->num_copies == MEMO_COPIES || side == self->scheduler->num_streams) {
        psti_test_fail(__FILE__, __LINE__, "a copy that is not one of a side stream, or too many");
        return;
    }
    self->copies[self->num_copies] = *copy;
    self->copies[self->num_copies++].side = side;
}

/* Between a buffer and pinned memory of a swapped layer. */
static void watch_swap(memo *self, const void *to, const void *from, size_t bytes,
                       pst_stream stream)
{
    for (uint32_t l = 0; l < self->wish.num_layers; l++) {
        const psti_scheduler_layer *layer = &self->scheduler->layers[l];
        const uint64_t all = layer->swap_stride * self->scheduler->num_slots[0];
        const uint64_t out = (uint64_t)((uintptr_t)to - (uintptr_t)layer->host_memory);
        const uint64_t in = (uint64_t)((uintptr_t)from - (uintptr_t)layer->host_memory);
        if (!layer->host_memory || (out >= all && in >= all))
            continue;
        const memo_copy copy = {.kind = out < all ? PST_SIMULATED_DO_SWAP_OUT
                                                  : PST_SIMULATED_DO_SWAP_IN,
                                .layer = l,
                                .slot = (uint32_t)((out < all ? out : in) / layer->swap_stride),
                                .bytes = bytes,
                                .buffer = out < all ? from : to};
        add_copy(self, &copy, stream);
    }
}

static pst_status copy_and_watch(pst_device *device, void *to, const void *from, size_t bytes,
                                 pst_stream stream)
{
    if (watching->scheduler)
        watch_swap(watching, to, from, bytes, stream);
    return watching->ops->copy(device, to, from, bytes, stream);
}

static void watch_move(memo *self, psti_op op, const psti_move_args *args, pst_stream stream)
{
    for (uint32_t s = 0; s < self->scheduler->num_seats; s++) {
        const psti_seat *seat = &self->scheduler->seats[s];
        if (self->scheduler->layers[seat->layer].keep != PST_KEEP_PAGED ||
            psti_ticket_find(self->scheduler->tickets[seat->first_ticket])->record != args->ticket)
            continue;
        const memo_copy copy = {.kind = op == PSTI_OP_STASH ? PST_SIMULATED_DO_STASH
                                                            : PST_SIMULATED_DO_RESTORE,
                                .layer = seat->layer,
                                .slot = seat->slot};
        add_copy(self, &copy, stream);
    }
}

static pst_status launch_and_watch(pst_device *device, psti_op op, const void *args,
                                   pst_stream stream)
{
    if (watching->scheduler && (op == PSTI_OP_STASH || op == PSTI_OP_RESTORE))
        watch_move(watching, op, args, stream);
    return watching->ops->launch(device, op, args, stream);
}

/* ---- open and close ---- */

static pst_group *make_group(const pst_tensor *tensors, uint32_t num_tensors, int64_t rows)
{
    const pst_row_space space = {.capacity = rows, .count_type = PST_COUNT_INT64};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    pst_group *group = NULL;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = tensors;
    config.num_tensors = num_tensors;
    if (pst_group_create(&config, &group) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    return group;
}

static void open_groups(memo *self)
{
    const pst_tensor experts[MEMO_TENSORS] = {
        {.row_bytes = MEMO_ROW},
        {.row_bytes = MEMO_ROW, .num = 1, .den = 4, .rounding = PST_ROUND_DOWN},
        {.row_bytes = MEMO_ROW, .num = 1, .den = 10, .rounding = PST_ROUND_DOWN}};
    const pst_tensor row = {.row_bytes = MEMO_HIDDEN};
    self->experts_group = make_group(experts, MEMO_TENSORS, MEMO_ROWS);
    self->rows_group = make_group(&row, 1, (int64_t)MEMO_PLANES * MEMO_TOKENS);
}

static void open_pool(memo *self)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = PST_PAGE_BYTES_MIN;
    config.num_pages = (uint64_t)self->num_micro_batches * self->wish.num_layers * MEMO_TENSORS;
    config.mode = self->wish.num_streams > 1 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    if (self->wish.is_tight) {
        config.num_pages = 1;
        for (uint64_t step = 0; step < MEMO_STEPS; step++)
            if (memo_demand(self, step) > config.num_pages)
                config.num_pages = memo_demand(self, step);
    }
    CHECK_OK(pst_pool_create(self->device, &config, &self->pool));
}

static void describe_layers(memo *self, const pst_part *part)
{
    for (uint32_t l = 0; l < self->wish.num_layers; l++) {
        const memo_layer *from = &self->wish.layers[l];
        pst_layer *layer = &self->layers[l];
        *layer = (pst_layer){.layer = l, .keep = from->keep};
        if (from->keep == PST_KEEP_PAGED) {
            layer->num_parts = 1;
            layer->parts = part;
        }
        layer->buffers[0] = self->rounding[0];
        layer->buffers[1] = self->rounding[1];
        layer->whole_bytes = memo_whole_bytes(from);
        layer->token_bytes = memo_token_bytes(from);
        layer->num_tokens = MEMO_TOKENS;
        layer->policy.swap_tokens = from->swap_tokens;
    }
}

static void open_scheduler(memo *self)
{
    void *bases[2 * PST_MAX_SETS][MEMO_TENSORS];
    const void *counts[PST_MAX_SETS];
    pst_buffers buffers[2 * PST_MAX_SETS];
    const pst_buffers *lists[2 * PST_MAX_SETS];
    for (uint32_t i = 0; i < 2 * PST_MAX_SETS; i++) {
        const uint32_t set = i % PST_MAX_SETS;
        unsigned char *at = i < PST_MAX_SETS ? self->sources[set] : self->destinations[set];
        bases[i][0] = at;
        bases[i][1] = at + (size_t)MEMO_ROWS * MEMO_ROW;
        bases[i][2] = at + (size_t)(MEMO_ROWS + MEMO_ROWS / 4) * MEMO_ROW;
        counts[set] = self->source_counts[set];
        buffers[i] = (pst_buffers)PST_BUFFERS_INIT;
        buffers[i].bases = bases[i];
        buffers[i].counts = &counts[set];
        lists[i] = &buffers[i];
        if (set + 1 == self->wish.num_sets)
            i += PST_MAX_SETS - self->wish.num_sets;
    }
    const pst_part part = {
        .group = self->experts_group, .sources = lists, .destinations = lists + PST_MAX_SETS};
    describe_layers(self, &part);
    self->config = (pst_scheduler_config)PST_SCHEDULER_CONFIG_INIT;
    self->config.pool = self->pool;
    self->config.schedule = self->wish.records ? NULL : self->schedule;
    if (self->wish.records) { /* so that the order is recognised */
        self->config.num_stages = self->wish.schedule.num_stages;
        self->config.stage = self->wish.schedule.stage;
    }
    self->config.layers = self->layers;
    self->config.num_layers = self->wish.num_layers;
    self->config.num_sources = self->config.num_destinations = self->wish.num_sets;
    self->config.num_streams = self->wish.num_streams;
    self->config.max_slots = self->wish.max_slots;
    self->config.keeps_nothing = self->wish.keeps_nothing;
    self->config.tail = PST_TAIL_ZERO_ALL;
    CHECK_OK(pst_scheduler_create(&self->config, &self->scheduler));
    memo_check_bytes(self);
}

void memo_open(memo *self, pst_device *device, const memo_wish *wish)
{
    memset(self, 0, sizeof(*self));
    self->wish = *wish;
    self->device = device;
    self->num_micro_batches = MEMO_MICRO_BATCHES;
    CHECK_OK(pst_schedule_create(&wish->schedule, &self->schedule));
    CHECK(self->schedule->chunks[0].num_micro_batches <= MEMO_MICRO_BATCHES);
    CHECK_OK(pst_stream_create(device, &self->stream));
    open_groups(self);
    open_memory(self);
    open_pool(self);
    if (psti_test_failed())
        return;
    self->ops = device->ops;
    self->watched = *device->ops;
    self->watched.copy = copy_and_watch;
    self->watched.launch = launch_and_watch;
    device->ops = &self->watched;
    watching = self;
    open_scheduler(self);
}

void memo_close(memo *self)
{
    self->device->ops = self->ops;
    watching = NULL;
    CHECK_OK(pst_scheduler_destroy(self->scheduler));
    CHECK_OK(pst_pool_destroy(self->pool));
    CHECK_OK(pst_group_destroy(self->experts_group));
    CHECK_OK(pst_group_destroy(self->rows_group));
    pst_schedule_destroy(self->schedule);
    free(self->image);
    free(self->found);
    free(self->wanted);
    CHECK_OK(pst_stream_destroy(self->device, self->stream));
    CHECK_OK(pst_device_free(self->device, self->block));
    CHECK_EQ(self->device->live, 0);
}

bool memo_use(memo *self, uint32_t num_micro_batches)
{
    pst_schedule_config config = self->wish.schedule;
    pst_schedule *schedule = NULL;
    config.num_micro_batches = num_micro_batches;
    if (num_micro_batches > MEMO_MICRO_BATCHES || pst_schedule_create(&config, &schedule) != PST_OK)
        return false;
    const bool fits = self->scheduler->num_slots[0] >= schedule->chunks[0].num_slots;
    pst_schedule_destroy(fits ? self->schedule : schedule);
    if (fits)
        self->schedule = schedule;
    return fits;
}
