/* A pool on the lazy device, over host and over simt: each wait between a source, its stash, its restore and
 * who reads the result is needed, and all together are enough. */
#include "tests/harness.h"

#include <pagestash/pagestash.h>

#include "tests/lazy/lazy_device.h"
#include "tests/simt/simt_device.h"

enum { SEEDS = 40, ROUNDS = 3, ROWS = 1, ROW_BYTES = 16384, BYTES = ROWS * ROW_BYTES };

/* Which wait is left out. */
typedef enum missing {
    NO_WAIT,
    STASH_FOR_SOURCE,   /* the stash does not wait for what wrote its source */
    SOURCE_FOR_STASH,   /* who writes the source again does not wait for the stash */
    READER_FOR_RESTORE, /* who reads the destination does not wait for the restore */
    NUM_MISSING
} missing;

typedef struct scene {
    pst_device *device;
    pst_pool *pool;
    pst_group *group;
    pst_ticket tickets[2];
    pst_stream main, side;
    pst_event filled, stashed, restored;
    unsigned char *from, *to, *result; /* [2][BYTES], [2][BYTES], [ROUNDS][BYTES] */
} scene;

static unsigned char *take(scene *self, size_t bytes)
{
    void *memory = NULL;
    if (pst_device_alloc(self->device, bytes, &memory) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    return memory;
}

static void open_scene(scene *self, bool is_simt, uint64_t seed)
{
    const pst_row_space space = {.capacity = ROWS, .count_type = PST_COUNT_HOST};
    const pst_tensor tensor = {.row_bytes = ROW_BYTES};
    const lazy_options options = {.seed = seed};
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    pst_group_config form = PST_GROUP_CONFIG_INIT;
    *self = (scene){.device = NULL};
    CHECK_OK(is_simt ? psti_simt_device_open(NULL, &self->device)
                     : pst_device_open("host", 0, &self->device));
    lazy_make(self->device, &options);
    config.page_bytes = PST_PAGE_BYTES_MIN;
    config.num_pages = 2 * ROWS;
    config.mode = PST_POOL_CONCURRENT;
    CHECK_OK(pst_pool_create(self->device, &config, &self->pool));
    form.spaces = &space;
    form.num_spaces = 1;
    form.tensors = &tensor;
    form.num_tensors = 1;
    CHECK_OK(pst_group_create(&form, &self->group));
    for (int i = 0; i < 2; i++)
        CHECK_OK(pst_ticket_create(self->pool, self->group, &self->tickets[i]));
    CHECK_OK(pst_stream_create(self->device, &self->main));
    CHECK_OK(pst_stream_create(self->device, &self->side));
    CHECK_OK(pst_event_create(self->device, &self->filled));
    CHECK_OK(pst_event_create(self->device, &self->stashed));
    CHECK_OK(pst_event_create(self->device, &self->restored));
    self->from = take(self, 2 * BYTES);
    self->to = take(self, 2 * BYTES);
    self->result = take(self, ROUNDS * BYTES);
}

static void close_scene(scene *self)
{
    for (int i = 0; i < 2; i++)
        CHECK_OK(pst_ticket_destroy(self->tickets[i]));
    CHECK_OK(pst_group_destroy(self->group));
    CHECK_OK(pst_pool_destroy(self->pool));
    CHECK_OK(pst_stream_destroy(self->device, self->main));
    CHECK_OK(pst_stream_destroy(self->device, self->side));
    CHECK_OK(pst_event_destroy(self->device, self->filled));
    CHECK_OK(pst_event_destroy(self->device, self->stashed));
    CHECK_OK(pst_event_destroy(self->device, self->restored));
    CHECK_OK(pst_device_free(self->device, self->from));
    CHECK_OK(pst_device_free(self->device, self->to));
    CHECK_OK(pst_device_free(self->device, self->result));
    CHECK_OK(pst_device_close(self->device));
}

static void hand_over(const scene *self, pst_event event, pst_stream from, pst_stream to,
                      bool waits)
{
    CHECK_OK(pst_event_record(self->device, event, from));
    if (waits)
        CHECK_OK(pst_event_wait(self->device, event, to));
}

/* Round r's bytes are r + 1, through a stash and a restore on the side stream. */
static void run_round(scene *self, int r, missing without)
{
    const int64_t rows = ROWS;
    const void *counts[1] = {&rows};
    void *bases[1] = {self->from + r % 2 * BYTES};
    pst_buffers buffers = PST_BUFFERS_INIT;
    const pst_ticket ticket = self->tickets[r % 2];
    buffers.bases = bases;
    buffers.counts = counts;
    CHECK_OK(pst_device_fill(self->device, bases[0], (uint8_t)(r + 1), BYTES, self->main));
    hand_over(self, self->filled, self->main, self->side, without != STASH_FOR_SOURCE);
    CHECK_OK(pst_ticket_stash(ticket, self->group, &buffers, NULL, self->side));
    hand_over(self, self->stashed, self->side, self->main, without != SOURCE_FOR_STASH);
    CHECK_OK(pst_device_fill(self->device, bases[0], 0xee, BYTES, self->main));
    bases[0] = self->to + r % 2 * BYTES;
    CHECK_OK(pst_ticket_restore(ticket, self->group, &buffers, NULL, self->side));
    hand_over(self, self->restored, self->side, self->main, without != READER_FOR_RESTORE);
    CHECK_OK(pst_device_copy(self->device, self->result + r * BYTES, bases[0], BYTES, self->main));
}

/* Rounds whose bytes are wrong. */
static int run_seed(bool is_simt, uint64_t seed, missing without)
{
    scene self;
    pst_pool_status status = {.flags = 1};
    int wrong = 0;
    open_scene(&self, is_simt, seed);
    pst_device_fill(self.device, self.to, 0, 2 * BYTES, self.main);
    pst_device_synchronize(self.device);
    for (int r = 0; r < ROUNDS && !psti_test_failed(); r++)
        run_round(&self, r, without);
    pst_device_synchronize(self.device);
    for (int r = 0; r < ROUNDS; r++) {
        bool is_right = true;
        for (int i = 0; i < BYTES; i++)
            is_right = is_right && self.result[r * BYTES + i] == r + 1;
        wrong += !is_right;
    }
    pst_pool_check(self.pool, self.main);
    pst_pool_step(self.pool, self.main);
    pst_stream_synchronize(self.device, self.main);
    if (pst_pool_poll(self.pool, &status) != PST_OK || status.flags || status.in_use[0])
        psti_test_fail(__FILE__, __LINE__, "flags %u, %d pages in use", status.flags,
                       (int)status.in_use[0]);
    close_scene(&self);
    return wrong;
}

/* Fault rows 71. */
PST_TEST(LazyPool, EachWaitIsNeededAndAllAreEnough)
{
    for (int is_simt = 0; is_simt < 2; is_simt++)
        for (missing without = NO_WAIT; without < NUM_MISSING; without++) {
            const uint64_t step = is_simt ? 5 : 1; /* simt is slow */
            int wrong = 0;
            for (uint64_t seed = 0; seed < SEEDS && !psti_test_failed(); seed += step)
                wrong += run_seed(is_simt, seed, without);
            CHECK_MSG(without == NO_WAIT ? wrong == 0 : wrong > (int)(SEEDS / step / 4),
                      "without %d: %d rounds wrong", (int)without, wrong);
        }
}
