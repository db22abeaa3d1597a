/* A pool on simt with two tickets and a few groups of rows, for operations that overlap. */
#ifndef PSTI_TESTS_SIMT_OVERLAP_SCENE_H
#define PSTI_TESTS_SIMT_OVERLAP_SCENE_H

#include "tests/harness.h"

#include <stdlib.h>

#include <pagestash/pagestash.h>

#include "host/stash/stash.h"
#include "tests/simt/simt_device.h"
#include "tests/simt/simt_machine.h"

#define ROWS 8
#define ROW_BYTES 16384
#define NUM_BUFFERS 4
#define NUM_TICKETS 2

typedef struct bench {
    pst_device *device;
    pst_pool *pool;
    pst_group *group;
    pst_ticket tickets[NUM_TICKETS];
    unsigned char *rows[NUM_BUFFERS]; /* number g is filled with 0x10 + g */
    int32_t count;
    int blocks_seen, act_at;
    void (*act)(struct bench *bench);
} bench;

static inline simt_options bench_machine(uint64_t seed, uint32_t residency)
{
    return (simt_options){.seed = seed,
                          .residency = residency,
                          .threads = 64,
                          .max_blocks = 4,
                          .num_sms = 4,
                          .blocks_per_sm = 1};
}

static inline pst_pool_config bench_pool(pst_pool_mode mode)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = ROW_BYTES;
    config.num_pages = 64;
    config.mode = mode;
    config.max_tickets = 4;
    return config;
}

/* On a device that is open, closed by close_bench. */
static inline void open_bench_on(bench *b, pst_device *device, const pst_pool_config *pool_config)
{
    *b = (bench){.count = ROWS, .device = device};
    CHECK_EQ(pst_pool_create(b->device, pool_config, &b->pool), PST_OK);
    for (int g = 0; g < NUM_BUFFERS; g++) {
        b->rows[g] = aligned_alloc(256, ROWS * ROW_BYTES);
        memset(b->rows[g], 0x10 + g, ROWS * ROW_BYTES);
    }
    const pst_row_space space = {.capacity = ROWS};
    const pst_tensor tensor = {.row_bytes = ROW_BYTES};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = &tensor;
    config.num_tensors = 1;
    CHECK_EQ(pst_group_create(&config, &b->group), PST_OK);
    for (int t = 0; t < NUM_TICKETS; t++)
        CHECK_EQ(pst_ticket_create(b->pool, b->group, &b->tickets[t]), PST_OK);
}

static inline void open_bench(bench *b, pst_pool_mode mode, uint64_t seed, uint32_t residency)
{
    const simt_options options = bench_machine(seed, residency);
    const pst_pool_config config = bench_pool(mode);
    pst_device *device = NULL;
    CHECK_EQ(psti_simt_device_open(&options, &device), PST_OK);
    open_bench_on(b, device, &config);
}

static inline void close_bench(bench *b)
{
    CHECK_EQ(pst_pool_reset(b->pool, PST_RESET_ALL, NULL), PST_OK);
    for (int t = 0; t < NUM_TICKETS; t++)
        CHECK_EQ(pst_ticket_destroy(b->tickets[t]), PST_OK);
    for (int g = 0; g < NUM_BUFFERS; g++)
        free(b->rows[g]);
    CHECK_EQ(pst_group_destroy(b->group), PST_OK);
    CHECK_EQ(pst_pool_destroy(b->pool), PST_OK);
    CHECK_EQ(pst_device_close(b->device), PST_OK);
}

static inline pst_status stash_rows(bench *b, int ticket, int from)
{
    void *base = b->rows[from];
    const void *counts = &b->count;
    pst_buffers source = PST_BUFFERS_INIT;
    source.bases = &base;
    source.counts = &counts;
    return pst_ticket_stash(b->tickets[ticket], b->group, &source, NULL, NULL);
}

static inline pst_status restore_rows(bench *b, int ticket, int to)
{
    void *base = b->rows[to];
    pst_buffers destination = PST_BUFFERS_INIT;
    destination.bases = &base;
    return pst_ticket_restore(b->tickets[ticket], b->group, &destination, NULL, NULL);
}

static inline pst_pool_status status_of(bench *b)
{
    pst_pool_status status = {0};
    pst_pool_check(b->pool, NULL);
    pst_pool_step(b->pool, NULL);
    pst_pool_poll(b->pool, &status);
    return status;
}

/* Of the rows that a stash takes. */
static inline int wrong_rows(const bench *b, int group, int value)
{
    int wrong = 0;
    for (int row = 0; row < b->count; row++) {
        const unsigned char *at = b->rows[group] + row * ROW_BYTES;
        wrong += at[0] != value || memcmp(at, at + 1, ROW_BYTES - 1) != 0;
    }
    return wrong;
}

/* A stash and a restore, with nothing in between that overlaps, are exact again. */
static inline void check_works(bench *b)
{
    memset(b->rows[2], 0, ROWS * ROW_BYTES);
    CHECK_EQ(pst_pool_reset(b->pool, PST_RESET_ALL, NULL), PST_OK);
    CHECK_EQ(stash_rows(b, 0, 0), PST_OK);
    CHECK_EQ(restore_rows(b, 0, 2), PST_OK);
    const pst_pool_status status = status_of(b);
    CHECK_EQ(status.flags, 0);
    CHECK_EQ(status.check_errors, 0);
    CHECK_EQ(wrong_rows(b, 2, 0x10), 0);
}

#endif
