/* stress [OPERATIONS] [SEED]: random operations on the host device, half of them on an ordered
 * pool that is too small now and then, half by two threads on a concurrent one. Where the rows lie,
 * and how far apart, changes from call to call; half of the tickets are lent by the pool. Every
 * byte that comes back is compared, pages are conserved, and the ordered pool holds just what a
 * plain count says. On the way the numbers of operations pass 2^32 on both pools, and those that a launch word
 * counts 2^16 many times. Exit codes: 0 all well, 1 not, 2 usage. */
#include <pagestash/pagestash.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/stash/stash.h"

enum { TICKETS = 8, ROWS = 24, SEGMENTS = 3, CHECK_EVERY = 64, MOST_PAGES = 30, TENSORS = 3 };
enum { GAP = 64, MEMORY_BYTES = 4 * GAP + ROWS * (5000 + SEGMENTS * 4099 + 100 + 5 * GAP) };

/* A thread's own stream, buffers and tickets. */
typedef struct worker {
    struct stress *stress;
    pst_stream stream;
    pst_group *group;
    pst_dirty *dirty;            /* of no certain rows: what it clears is not looked at */
    pst_ticket tickets[TICKETS]; /* the first half is of the slab */
    uint64_t keys[TICKETS];      /* of the pattern that was stashed */
    uint64_t pages[TICKETS];
    enum { EMPTY, LIVE, FAILED } state[TICKETS];
    int64_t held[TICKETS][SEGMENTS + 1]; /* row counts */
    int32_t prefix;
    int64_t segments[SEGMENTS];
    uint64_t random, operations, mismatches;
    struct places {
        void *bases[TENSORS];
        const void *counts[2];
        uint64_t strides[TENSORS];
    } places; /* of one call */
    unsigned char memory[MEMORY_BYTES];
} worker;

typedef struct stress {
    pst_device *device;
    pst_pool *pool;
    bool is_alone; /* one worker: what is free is known */
    uint64_t free_pages, lost_steps, failed;
    uint32_t first_op; /* what the pool numbers operations from */
} stress;

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fputs("stress: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    exit(1);
}

static void check(pst_status status, const char *what)
{
    if (status != PST_OK)
        die("%s: %s: %s", what, pst_status_name(status), pst_last_message());
}
#define CHECK(call) check(call, #call)

/* xorshift64*, G. Marsaglia and S. Vigna. */
static uint64_t below(worker *self, uint64_t bound)
{
    self->random ^= self->random >> 12;
    self->random ^= self->random << 25;
    self->random ^= self->random >> 27;
    return (self->random * 0x2545f4914f6cdd1du >> 33) % bound;
}

static const uint64_t row_bytes[TENSORS] = {5000, 4099, 100};

static void make_group(worker *self)
{
    const pst_row_space spaces[] = {
        {.capacity = ROWS},
        {.kind = PST_ROWS_SEGMENTS,
         .count_type = PST_COUNT_INT64,
         .capacity = ROWS,
         .num_segments = SEGMENTS},
    };
    const pst_tensor tensors[TENSORS] = {{.row_bytes = row_bytes[0]},
                                         {.row_bytes = row_bytes[1], .space = 1},
                                         {.row_bytes = row_bytes[2]}};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = spaces;
    config.num_spaces = 2;
    config.tensors = tensors;
    config.num_tensors = TENSORS;
    CHECK(pst_group_create(&config, &self->group));
    CHECK(pst_dirty_create(self->stress->device, self->group, false, &self->dirty));
}

/* Other addresses and strides than in the call before. */
static pst_buffers place(worker *self)
{
    static const uint64_t rows[TENSORS] = {ROWS, SEGMENTS * ROWS, ROWS};
    pst_buffers buffers = PST_BUFFERS_INIT;
    uint64_t at = below(self, GAP);
    for (uint64_t i = 0; i < TENSORS; i++) {
        const uint64_t t = (self->operations + i) % TENSORS;
        self->places.bases[t] = self->memory + at;
        self->places.strides[t] = row_bytes[t] + below(self, 2) * below(self, GAP);
        at += rows[t] * self->places.strides[t] + below(self, GAP);
    }
    self->places.counts[0] = &self->prefix;
    self->places.counts[1] = self->segments;
    buffers.bases = self->places.bases;
    buffers.counts = self->places.counts;
    buffers.row_strides = self->places.strides;
    return buffers;
}

static void set_counts(worker *self, const int64_t *counts)
{
    self->prefix = (int32_t)counts[0];
    memcpy(self->segments, counts + 1, sizeof(self->segments));
}

/* What the device must do with the stash, where nobody else uses the pool. */
static void foresee(worker *self, uint64_t i)
{
    stress *all = self->stress;
    pst_group_usage usage;
    CHECK(pst_group_measure(self->group, self->held[i], PST_PAGE_BYTES_MIN, &usage));
    self->pages[i] = usage.pages;
    self->state[i] = LIVE;
    if (!all->is_alone)
        return;
    if (usage.pages > all->free_pages) {
        self->state[i] = FAILED;
        all->failed++;
    } else {
        all->free_pages -= usage.pages;
    }
}

static void stash(worker *self, uint64_t i)
{
    const uint32_t den = (uint32_t)below(self, 4) + 1;
    if (self->state[i] == LIVE)
        return;
    for (int c = 0; c <= SEGMENTS; c++)
        self->held[i][c] = (int64_t)below(self, below(self, 4) ? ROWS / 4 : ROWS + 1);
    set_counts(self, self->held[i]);
    self->keys[i] = ++self->operations;
    const pst_pattern pattern = {.seed = 1, .key = self->keys[i]};
    const pst_buffers source = place(self);
    CHECK(pst_group_fill(self->stress->device, self->group, &source, &pattern, self->stream));
    CHECK(pst_ticket_set_offload(self->tickets[i], (uint32_t)below(self, den + 1), den));
    CHECK(pst_ticket_stash(self->tickets[i], self->group, &source, NULL, self->stream));
    foresee(self, i);
}

static void restore(worker *self, uint64_t i, pst_restore_pages pages)
{
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    const pst_pattern pattern = {.seed = 1, .key = self->keys[i]};
    options.pages = pages;
    options.tail = (pst_restore_tail)below(self, 3);
    options.failed = (pst_restore_failed)below(self, 2);
    if (options.tail == PST_TAIL_ZERO || below(self, 2))
        options.dirty = self->dirty;
    if (self->state[i] == EMPTY)
        return;
    const bool was_live = self->state[i] == LIVE;
    const pst_buffers destination = place(self);
    memset(self->memory, 0x5a, sizeof(self->memory) / 4);
    CHECK(pst_ticket_restore(self->tickets[i], self->group, &destination, &options, self->stream));
    if (was_live) {
        set_counts(self, self->held[i]);
        CHECK(pst_group_verify(self->stress->device, self->group, &destination, &pattern,
                               options.tail == PST_TAIL_ZERO_ALL ? 0 : PST_VERIFY_ANY,
                               &self->mismatches, self->stream));
    }
    if (pages == PST_RESTORE_KEEP)
        return;
    if (was_live && self->stress->is_alone)
        self->stress->free_pages += self->pages[i];
    self->state[i] = EMPTY;
}

static void release(worker *self, uint64_t i)
{
    if (self->state[i] == EMPTY)
        return;
    CHECK(pst_ticket_release(self->tickets[i], self->stream));
    if (self->state[i] == LIVE && self->stress->is_alone)
        self->stress->free_pages += self->pages[i];
    self->state[i] = EMPTY;
}

/* Whatever it holds; another of the pool's may come back. */
static void renew(worker *self, uint64_t i)
{
    if (i >= TICKETS / 2)
        return;
    CHECK(pst_ticket_give(self->tickets[i], self->stream));
    if (self->state[i] == LIVE && self->stress->is_alone)
        self->stress->free_pages += self->pages[i];
    self->state[i] = EMPTY;
    CHECK(pst_ticket_take(self->stress->pool, self->stream, &self->tickets[i]));
}

/* As a share: one that finds nothing to move is no fault. */
static void migrate(worker *self, uint64_t i, bool promotes)
{
    pst_migrate_options options = PST_MIGRATE_OPTIONS_INIT;
    options.share = PST_MIGRATE_UP_TO;
    options.max_pages = below(self, 6) + 1;
    if (self->state[i] != LIVE)
        return;
    if (promotes)
        CHECK(pst_ticket_promote(self->tickets[i], &options, self->stream));
    else
        CHECK(pst_ticket_demote(self->tickets[i], &options, self->stream));
}

static void operate(worker *self)
{
    const uint64_t i = below(self, TICKETS);
    switch (below(self, 11)) {
    case 10:
        renew(self, i);
        break;
    case 0:
        release(self, i);
        break;
    case 1:
    case 2:
        migrate(self, i, below(self, 2));
        break;
    case 3:
        restore(self, i, PST_RESTORE_KEEP);
        break;
    case 4:
    case 5:
    case 6:
        restore(self, i, PST_RESTORE_CONSUME);
        break;
    default:
        stash(self, i);
    }
    if (self->mismatches)
        die("%" PRIu64 " bytes differ after %" PRIu64 " stashes", self->mismatches,
            self->operations);
}

/* Nothing else runs. expected_faults: bits of pst_pool_status.flags. */
static void check_pool(stress *self, pst_stream stream, uint32_t expected_faults)
{
    pst_pool_status status;
    CHECK(pst_pool_check(self->pool, stream));
    CHECK(pst_pool_step(self->pool, stream));
    CHECK(pst_stream_synchronize(self->device, stream));
    CHECK(pst_pool_poll(self->pool, &status));
    if (status.check_errors || status.flags & ~expected_faults)
        die("%u pages lost, flags %#x, the first fault: %s", status.check_errors, status.flags,
            pst_fault_text((pst_fault)status.fault));
    if (self->is_alone && status.in_use[0] + status.in_use[1] + self->free_pages != MOST_PAGES)
        die("%" PRIu64 " + %" PRIu64 " pages are in use, %" PRIu64 " of %d should be free",
            status.in_use[0], status.in_use[1], self->free_pages, MOST_PAGES);
    self->lost_steps += !status.step_valid;
}

static void open_pool(stress *self, pst_pool_mode mode, uint64_t device_pages, uint64_t host_pages)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = PST_PAGE_BYTES_MIN;
    config.num_pages = device_pages;
    config.num_host_pages = host_pages;
    config.mode = mode;
    config.slab_tickets = 2 * (TICKETS / 2);
    CHECK(pst_pool_create(self->device, &config, &self->pool));
    self->free_pages = device_pages + host_pages;
    self->pool->num_ops = self->first_op;
}

static void close_pool(stress *self)
{
    if (self->pool->num_ops >= self->first_op)
        die("the numbers of operations have not passed 2^32, but come to %u", self->pool->num_ops);
    CHECK(pst_pool_destroy(self->pool));
}

static worker *open_worker(stress *self, uint64_t seed)
{
    worker *made = calloc(1, sizeof(*made));
    if (!made)
        die("no memory");
    made->stress = self;
    made->random = seed * 2 + 1;
    CHECK(pst_stream_create(self->device, &made->stream));
    make_group(made);
    for (int i = 0; i < TICKETS; i++)
        CHECK(i < TICKETS / 2 ? pst_ticket_take(self->pool, made->stream, &made->tickets[i])
                              : pst_ticket_create(self->pool, made->group, &made->tickets[i]));
    return made;
}

static void close_worker(worker *self)
{
    for (uint64_t i = 0; i < TICKETS; i++) {
        release(self, i);
        CHECK(i < TICKETS / 2 ? pst_ticket_give(self->tickets[i], self->stream)
                              : pst_ticket_destroy(self->tickets[i]));
    }
    CHECK(pst_dirty_destroy(self->dirty));
    CHECK(pst_group_destroy(self->group));
    CHECK(pst_stream_destroy(self->stress->device, self->stream));
    free(self);
}

static void run_ordered(stress *self, uint64_t operations, uint64_t seed)
{
    self->is_alone = true;
    open_pool(self, PST_POOL_ORDERED, MOST_PAGES * 2 / 3, MOST_PAGES - MOST_PAGES * 2 / 3);
    worker *only = open_worker(self, seed);
    const uint32_t expected = 1u << PST_FAULT_EXHAUSTED | 1u << PST_FAULT_FAILED;
    for (uint64_t n = 0; n < operations; n++) {
        operate(only);
        if (n % CHECK_EVERY == 0)
            check_pool(self, only->stream, expected);
        if (n % (CHECK_EVERY * CHECK_EVERY) == 0) {
            CHECK(pst_pool_reset(self->pool, PST_RESET_ALL, only->stream));
            memset(only->state, EMPTY, sizeof(only->state));
            self->free_pages = MOST_PAGES;
        }
    }
    check_pool(self, only->stream, expected);
    close_worker(only);
    close_pool(self);
}

static void *work(void *opaque)
{
    worker *self = opaque;
    for (int n = 0; n < CHECK_EVERY * CHECK_EVERY; n++)
        operate(self);
    return NULL;
}

/* Rounds of two threads; the pool is looked at in between. */
static void run_concurrent(stress *self, uint64_t operations, uint64_t seed)
{
    const uint64_t enough = 2 * TICKETS * 40; /* 40: more than the pages of a full group */
    self->is_alone = false;
    open_pool(self, PST_POOL_CONCURRENT, enough / 2, enough);
    worker *workers[2] = {open_worker(self, seed + 1), open_worker(self, seed + 2)};
    for (uint64_t n = 0; n < operations; n += 2 * CHECK_EVERY * CHECK_EVERY) {
        pthread_t other;
        if (pthread_create(&other, NULL, work, workers[1]) != 0)
            die("no thread");
        work(workers[0]);
        pthread_join(other, NULL);
        check_pool(self, workers[0]->stream, 0);
    }
    close_worker(workers[0]);
    close_worker(workers[1]);
    close_pool(self);
}

int main(int argc, char **argv)
{
    stress self = {0};
    char *end = NULL;
    const uint64_t operations = argc > 1 ? strtoull(argv[1], &end, 10) : 20000;
    if (argc > 3 || (argc > 1 && (*end || operations == 0))) {
        fputs("usage: stress [OPERATIONS] [SEED]\n", stderr);
        return 2;
    }
    self.first_op = UINT32_MAX - (uint32_t)(operations / 16 % UINT32_MAX);
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    CHECK(pst_device_open("host", 0, &self.device));
    run_ordered(&self, operations / 2, seed);
    run_concurrent(&self, operations - operations / 2, seed);
    CHECK(pst_device_close(self.device));
    printf("%" PRIu64 " operations, seed %" PRIu64 ": every byte right, no page lost; %" PRIu64
           " stashes failed for want of pages, %" PRIu64 " invalid steps\n",
           operations, seed, self.failed, self.lost_steps);
    return 0;
}
