/* A pool is destroyed while other threads call it: they see all of it or none, and the destroy is refused
 * while one of them is inside. */
#include <pthread.h>
#include <sched.h>

#include "tests/host/stash/scene.h"

enum { NUM_CALLERS = 3, NUM_CALLS = 3 };

typedef struct destroy_scene {
    pst_pool *pool;
    pthread_barrier_t start;
    uint32_t num_started; /* atomic */
    uint32_t num_wrong;   /* atomic */
    uint32_t num_right;   /* atomic */
} destroy_scene;

static pst_status call_step(pst_pool *pool)
{
    return pst_pool_step(pool, NULL);
}

static pst_status call_check(pst_pool *pool)
{
    return pst_pool_check(pool, NULL);
}

static pst_status call_reset(pst_pool *pool)
{
    return pst_pool_reset(pool, PST_RESET_STATISTICS, NULL);
}

static pst_status call_poll(pst_pool *pool)
{
    pst_pool_status published;
    const pst_status status = pst_pool_poll(pool, &published);
    return status == PST_E_AGAIN ? PST_OK : status;
}

static pst_status call_ticket(pst_pool *pool)
{
    pst_ticket ticket = {0};
    const pst_status status = pst_ticket_take(pool, NULL, &ticket);
    if (status == PST_OK)
        return pst_ticket_give(ticket, NULL);
    return status == PST_E_BUSY ? PST_OK : status; /* the others have them all */
}

/* What runs alone is called by one thread, the others call the rest. */
static pst_status (*const calls[2][NUM_CALLS])(pst_pool *pool) = {
    {call_step, call_check, call_reset}, {call_poll, call_ticket, call_poll}};

static void *call_until_it_is_gone(void *arg)
{
    destroy_scene *self = arg;
    pst_status status = PST_OK;
    const bool is_first = __atomic_fetch_add(&self->num_started, 1, __ATOMIC_RELAXED) == 0;
    pthread_barrier_wait(&self->start);
    for (uint32_t i = 0; status == PST_OK; i++) {
        status = calls[!is_first][i % NUM_CALLS](self->pool);
        if (status == PST_OK)
            __atomic_fetch_add(&self->num_right, 1, __ATOMIC_RELAXED);
        sched_yield();
    }
    if (status != PST_E_INVALID)
        __atomic_fetch_add(&self->num_wrong, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* Fault rows 44. */
PST_TEST(Pool, ADestroyBesideCallsIsBusyOrEndsThem)
{
    pst_device *device = NULL;
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = PST_PAGE_BYTES_MIN;
    config.num_pages = 1;
    config.slab_tickets = 2;
    config.mode = PST_POOL_CONCURRENT;
    CHECK_OK(pst_device_open("host", 0, &device));
    for (int round = 0; round < 20; round++) {
        destroy_scene self = {.pool = NULL};
        pthread_t threads[NUM_CALLERS];
        CHECK_OK(pst_pool_create(device, &config, &self.pool));
        pthread_barrier_init(&self.start, NULL, NUM_CALLERS + 1);
        for (int i = 0; i < NUM_CALLERS; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, call_until_it_is_gone, &self), 0);
        pthread_barrier_wait(&self.start);
        while (__atomic_load_n(&self.num_right, __ATOMIC_RELAXED) < 20)
            sched_yield();
        pst_status status = pst_pool_destroy(self.pool);
        for (; status == PST_E_BUSY; status = pst_pool_destroy(self.pool))
            sched_yield();
        for (int i = 0; i < NUM_CALLERS; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&self.start);
        CHECK_EQ(status, PST_OK);
        CHECK_EQ(self.num_wrong, 0);
        CHECK_EQ(device->live, 0);
    }
    CHECK_OK(pst_device_close(device));
}

PST_TEST(Pool, IsNotDestroyedUnderACall)
{
    small_scene self;
    small_open(&self);
    psti_handle *const inside = psti_handle_enter(self.pool);
    CHECK(inside);
    CHECK_OK(pst_ticket_destroy(self.ticket));
    CHECK_STATUS(pst_pool_destroy(self.pool), PST_E_BUSY);
    CHECK_SAID("1 calls of other threads use this pst_pool [");
    CHECK_OK(pst_pool_step(self.pool, NULL)); /* as if nobody had tried */
    psti_handle_leave(&inside);
    CHECK_OK(pst_ticket_create(self.pool, self.group, &self.ticket));
    small_close(&self);
}
