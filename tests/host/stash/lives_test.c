/* Objects are made and destroyed by some threads while others stash and restore: in pools of their own on
 * the same device and on devices of their own, and in a pool that both use. ThreadSanitizer watches in
 * tsan.host. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness.h"

#include <pagestash/pagestash.h>

#include "host/device/device.h"
#include "tests/host/comm/comm_scene.h"
#include "tests/host/scheduler/rig.h"
#include "tests/lazy/lazy_device.h"

enum { ROWS = 8, ROW = 4096, BYTES = ROWS * ROW };

typedef struct lives {
    bool is_lazy;
    pst_device *device;     /* of most of them */
    pst_pool *pool;         /* in which tickets come and go beside a worker's */
    pst_group *group;       /* ROWS rows */
    pst_stream stream;      /* on which lent tickets of that pool come and go */
    pst_pool *polled;       /* a worker's own, which others poll */
    pthread_barrier_t open; /* all workers have opened */
    uint32_t
        num_making; /* atomic: threads that still make and destroy; the workers end after them */
    uint32_t rounds;
} lives;

#define LIVES_OK(call)                                                                          \
    do {                                                                                        \
        const pst_status lives_s = (call);                                                      \
        if (lives_s != PST_OK)                                                                  \
            psti_test_fail(__FILE__, __LINE__, "%s is %s: %s", #call, pst_status_name(lives_s), \
                           pst_last_message());                                                 \
    } while (0)

static pst_device *open_device(bool is_lazy, uint64_t seed)
{
    pst_device *device = NULL;
    const lazy_options options = {.seed = seed};
    LIVES_OK(pst_device_open("host", 0, &device));
    if (is_lazy && device)
        lazy_make(device, &options);
    return device;
}

static pst_pool *open_pool(pst_device *device, pst_pool_mode mode, uint64_t max_pages)
{
    pst_pool *pool = NULL;
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = PST_PAGE_BYTES_MIN;
    config.num_pages = 4;
    config.num_host_pages = 4;
    config.max_pages = max_pages;
    config.mode = mode;
    config.slab_tickets = 4;
    LIVES_OK(pst_pool_create(device, &config, &pool));
    return pool;
}

/* ---- who stashes and restores ---- */

typedef struct worker {
    lives *all;
    pst_device *device; /* NULL: one of its own */
    pst_pool *pool;     /* NULL: one of its own */
    pst_pool_mode mode;
    int32_t count;
    pst_stream stream;
    pst_ticket ticket;
    pthread_t thread;
    unsigned char rows[BYTES];
} worker;

static pst_status there_and_back(worker *self)
{
    void *const bases[1] = {self->rows};
    const void *const counts[1] = {&self->count};
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = bases;
    buffers.counts = counts;
    PSTI_TRY(pst_ticket_stash(self->ticket, self->all->group, &buffers, NULL, self->stream));
    PSTI_TRY(pst_device_fill(self->device, self->rows, 0xdd, BYTES, self->stream));
    PSTI_TRY(pst_ticket_restore(self->ticket, self->all->group, &buffers, NULL, self->stream));
    return PST_OK;
}

static pst_status there_and_back_by_graph(worker *self)
{
    pst_graph *graph = NULL;
    PSTI_TRY(pst_graph_begin(self->device, self->stream));
    PSTI_TRY(there_and_back(self));
    PSTI_TRY(pst_graph_end(self->device, self->stream, &graph));
    PSTI_TRY(pst_graph_launch(graph, self->stream));
    PSTI_TRY(pst_stream_synchronize(self->device, self->stream));
    return pst_graph_destroy(graph);
}

static void work_once(worker *self, uint32_t round)
{
    pst_pool_status status = {.check_errors = UINT32_MAX};
    const int value = (int)(round % 200);
    self->count = 1 + (int32_t)(round % ROWS);
    memset(self->rows, value, BYTES);
    /* what the others do waits for their device, of which no stream may be captured meanwhile */
    const bool captures = self->device != self->all->device && round % 4 == 1;
    LIVES_OK(captures ? there_and_back_by_graph(self) : there_and_back(self));
    LIVES_OK(pst_stream_synchronize(self->device, self->stream));
    for (int at = 0; at < BYTES; at += 64)
        CHECK_EQ(self->rows[at], at < self->count * ROW ? value : 0xdd);
    if (self->pool == self->all->pool || round % 4 != 0) /* a check runs alone */
        return;
    LIVES_OK(pst_pool_check(self->pool, self->stream));
    LIVES_OK(pst_pool_step(self->pool, self->stream));
    LIVES_OK(pst_stream_synchronize(self->device, self->stream));
    LIVES_OK(pst_pool_poll(self->pool, &status));
    CHECK_EQ(status.check_errors + status.num_faults, 0);
}

static void *work(void *arg)
{
    worker *self = arg;
    const bool own_device = !self->device, own_pool = !self->pool;
    if (own_device)
        self->device = open_device(self->all->is_lazy, 11);
    if (own_pool)
        self->pool = open_pool(self->device, self->mode, 0);
    if (own_pool && self->mode == PST_POOL_CONCURRENT)
        self->all->polled = self->pool;
    LIVES_OK(pst_stream_create(self->device, &self->stream));
    LIVES_OK(pst_ticket_create(self->pool, self->all->group, &self->ticket));
    pthread_barrier_wait(&self->all->open);
    for (uint32_t n = 0; __atomic_load_n(&self->all->num_making, __ATOMIC_ACQUIRE) || n < 8; n++) {
        if (!psti_test_failed())
            work_once(self, n);
        sched_yield();
    }
    LIVES_OK(pst_ticket_destroy(self->ticket));
    LIVES_OK(pst_stream_destroy(self->device, self->stream));
    if (own_pool)
        LIVES_OK(pst_pool_destroy(self->pool));
    if (own_device)
        LIVES_OK(pst_device_close(self->device));
    return NULL;
}

/* ---- who makes and destroys ---- */

static void live_pool(lives *all, uint32_t round)
{
    pst_stream stream = NULL;
    pst_ticket created = {0}, taken = {0};
    pst_pool_status status;
    pst_pool *pool = open_pool(all->device, round % 2 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED,
                               round % 3 ? 8 : 0);
    LIVES_OK(pst_stream_create(all->device, &stream));
    LIVES_OK(pst_ticket_create(pool, all->group, &created));
    LIVES_OK(pst_ticket_take(pool, stream, &taken));
    if (round % 3)
        LIVES_OK(pst_pool_resize(pool, 8, 4));
    LIVES_OK(pst_ticket_give(taken, stream));
    LIVES_OK(pst_pool_check(pool, stream));
    LIVES_OK(pst_pool_step(pool, stream));
    LIVES_OK(pst_stream_synchronize(all->device, stream));
    LIVES_OK(pst_pool_poll(pool, &status));
    LIVES_OK(pst_ticket_destroy(created));
    LIVES_OK(pst_pool_destroy(pool));
    LIVES_OK(pst_stream_destroy(all->device, stream));
}

static void live_tickets(lives *all, uint32_t round)
{
    pst_ticket tickets[3] = {{0}};
    pst_pool_info info;
    pst_pool_status polled;
    const pst_status status = pst_pool_poll(all->polled, &polled);
    LIVES_OK(status == PST_E_AGAIN ? PST_OK : status);
    LIVES_OK(pst_ticket_take(all->pool, all->stream, &tickets[0]));
    for (int i = 1; i < 3; i++)
        LIVES_OK(pst_ticket_create(all->pool, all->group, &tickets[i]));
    LIVES_OK(pst_pool_get_info(all->pool, &info));
    LIVES_OK(pst_ticket_give(tickets[0], all->stream));
    for (uint32_t i = 1; i < 3; i++)
        LIVES_OK(pst_ticket_destroy(tickets[1 + (i + round) % 2]));
}

static void live_device(lives *all, uint32_t round)
{
    pst_event event = NULL;
    pst_stream stream = NULL;
    void *memory = NULL, *pinned = NULL;
    pst_device *device = open_device(all->is_lazy, round);
    LIVES_OK(pst_stream_create(device, &stream));
    LIVES_OK(pst_event_create(device, &event));
    LIVES_OK(pst_device_alloc(device, BYTES, &memory));
    LIVES_OK(pst_device_alloc_pinned(device, BYTES, &pinned));
    LIVES_OK(pst_device_fill(device, memory, (uint8_t)round, BYTES, stream));
    LIVES_OK(pst_device_copy(device, pinned, memory, BYTES, stream));
    LIVES_OK(pst_event_record(device, event, stream));
    LIVES_OK(pst_event_synchronize(device, event));
    if (((unsigned char *)pinned)[BYTES - 1] != (uint8_t)round)
        psti_test_fail(__FILE__, __LINE__, "the copy differs");
    LIVES_OK(pst_device_free_pinned(device, pinned));
    LIVES_OK(pst_device_free(device, memory));
    LIVES_OK(pst_event_destroy(device, event));
    LIVES_OK(pst_stream_destroy(device, stream));
    LIVES_OK(pst_device_close(device));
}

static void live_parts(lives *all, uint32_t round)
{
    pst_stream stream = NULL;
    pst_scratch *scratch = NULL;
    pst_dirty *dirty = NULL;
    pst_lease lease = {0};
    pst_ticket ticket = {0}; /* in a pool where another thread makes tickets, too */
    pst_comm *comm = NULL;
    float value = (float)round;
    pst_scratch_config scratch_config = PST_SCRATCH_CONFIG_INIT;
    pst_comm_config config = PST_COMM_CONFIG_INIT;
    scratch_config.reserve_bytes = 1 << 20;
    config.num_ranks = 1;
    LIVES_OK(pst_stream_create(all->device, &stream));
    LIVES_OK(pst_scratch_create(all->device, &scratch_config, &scratch));
    LIVES_OK(pst_scratch_lease(scratch, "rows", BYTES, "lives", stream, &lease));
    LIVES_OK(pst_device_fill(all->device, lease.address, 1, BYTES, stream));
    LIVES_OK(pst_scratch_release(scratch, &lease, "lives", stream));
    LIVES_OK(pst_dirty_create(all->device, all->group, true, &dirty));
    LIVES_OK(pst_ticket_create(all->pool, all->group, &ticket));
    LIVES_OK(pst_comm_make_id(all->device, &config.id));
    LIVES_OK(pst_comm_create(all->device, &config, &comm));
    LIVES_OK(pst_comm_all_reduce(comm, &value, &value, 1, PST_DTYPE_FP32, PST_REDUCE_SUM, stream));
    LIVES_OK(pst_stream_synchronize(all->device, stream));
    LIVES_OK(pst_comm_destroy(comm));
    LIVES_OK(pst_ticket_destroy(ticket));
    LIVES_OK(pst_dirty_destroy(dirty));
    LIVES_OK(pst_scratch_destroy(scratch));
    LIVES_OK(pst_stream_destroy(all->device, stream));
    if (value != (float)round)
        psti_test_fail(__FILE__, __LINE__, "a sum of one differs");
}

static void reduce_once(rank_of_test *self)
{
    float value = 1;
    RANK_OK(pst_comm_all_reduce(self->comm, &value, &value, 1, PST_DTYPE_FP32, PST_REDUCE_SUM,
                                self->stream));
    RANK_CHECK(value == (float)self->num_ranks);
}

/* Every 8th time: a scheduler with its pool and a step, and two ranks, all on devices of their own. */
static void live_scheduler(lives *all, uint32_t round)
{
    if (round % 8 != 0)
        return;
    rig *model = calloc(1, sizeof(*model));
    rig_config config = RIG_CONFIG;
    config.schedule.num_stages = 1;
    config.schedule.num_micro_batches = 2;
    config.num_layers[0] = 2;
    config.num_pages = 64;
    if (all->is_lazy)
        rig_make_lazy(&config, false);
    rig_open(model, &config);
    rig_is_right(model);
    rig_close(model);
    free(model);
    ranks_run(2, 0, reduce_once, NULL);
}

typedef struct maker {
    lives *all;
    void (*live)(lives *all, uint32_t round);
    pthread_t thread;
} maker;

static void *make(void *arg)
{
    const maker *self = arg;
    pthread_barrier_wait(&self->all->open);
    for (uint32_t n = 0; n < self->all->rounds && !psti_test_failed(); n++)
        self->live(self->all, n);
    __atomic_sub_fetch(&self->all->num_making, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* ---- all at once ---- */

enum { WORKERS = 4, MAKERS = 5 };

static void run_all(lives *all)
{
    static worker workers[WORKERS];
    const worker kinds[WORKERS] = {{.device = all->device, .mode = PST_POOL_ORDERED},
                                   {.device = all->device, .mode = PST_POOL_CONCURRENT},
                                   {.device = all->device, .pool = all->pool},
                                   {.mode = PST_POOL_ORDERED}};
    maker makers[MAKERS] = {{.live = live_pool},
                            {.live = live_tickets},
                            {.live = live_device},
                            {.live = live_parts},
                            {.live = live_scheduler}};
    pthread_barrier_init(&all->open, NULL, WORKERS + MAKERS);
    all->num_making = MAKERS;
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = kinds[i];
        workers[i].all = all;
        CHECK_EQ(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < MAKERS; i++) {
        makers[i].all = all;
        CHECK_EQ(pthread_create(&makers[i].thread, NULL, make, &makers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < MAKERS; i++)
        pthread_join(makers[i].thread, NULL);
    pthread_barrier_destroy(&all->open);
}

static void run_lives(bool is_lazy, uint32_t rounds)
{
    lives all = {.is_lazy = is_lazy, .rounds = rounds};
    pst_pool_status status = {.check_errors = UINT32_MAX};
    const pst_row_space space = {.capacity = ROWS};
    const pst_tensor tensor = {.row_bytes = ROW};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.tensors = &tensor;
    config.num_spaces = config.num_tensors = 1;
    all.device = open_device(is_lazy, 7);
    CHECK_OK(pst_group_create(&config, &all.group));
    all.pool = open_pool(all.device, PST_POOL_CONCURRENT, 0);
    CHECK_OK(pst_stream_create(all.device, &all.stream));
    run_all(&all);
    CHECK_OK(pst_pool_check(all.pool, NULL));
    CHECK_OK(pst_pool_step(all.pool, NULL));
    CHECK_OK(pst_device_synchronize(all.device));
    CHECK_OK(pst_pool_poll(all.pool, &status));
    CHECK_EQ(status.check_errors + status.num_faults, 0);
    CHECK_OK(pst_pool_destroy(all.pool));
    CHECK_OK(pst_stream_destroy(all.device, all.stream));
    CHECK_OK(pst_group_destroy(all.group));
    CHECK_EQ(all.device->live, 0);
    CHECK_OK(pst_device_close(all.device));
}

PST_TEST(Lives, ObjectsComeAndGoBesideOthersOnHost)
{
    run_lives(false, psti_test_cases(1500));
}

PST_TEST(Lives, ObjectsComeAndGoBesideOthersOnLazyDevices)
{
    run_lives(true, psti_test_cases(750));
}
