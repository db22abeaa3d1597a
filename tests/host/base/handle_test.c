/* Handles: what is refused as one, and what happens to those that were destroyed. */
#include "host/base/handle.h"

#include <pagestash/pagestash.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/host/base/child.h"

typedef struct thing {
    psti_handle handle;
    int value;
} thing;

static pst_status use_pool(thing *pool)
{
    PSTI_CHECK_HANDLE(pool, POOL);
    return PST_OK;
}

/* Fault rows 2. */
PST_TEST(Handles, OnlyALiveHandleOfTheKindIsTaken)
{
    uint64_t words[4] = {0};
    thing *pool = psti_handle_new(sizeof(*pool), PSTI_KIND_POOL);
    thing *trace = psti_handle_new(sizeof(*trace), PSTI_KIND_TRACE);
    CHECK(pool && trace);
    CHECK_EQ(pool->value, 0);
    CHECK_OK(use_pool(pool));
    CHECK_STATUS(use_pool(NULL), PST_E_INVALID);
    CHECK_SAID("pool is NULL [");
    CHECK_STATUS(use_pool(trace), PST_E_INVALID);
    CHECK_SAID("pool is a pst_trace, not a pst_pool [");
    CHECK_STATUS(use_pool((thing *)(void *)words), PST_E_INVALID);
    CHECK_SAID("pool is no pst_pool of this library [");
    CHECK_STATUS(use_pool((thing *)(uintptr_t)8), PST_E_INVALID);
    CHECK_STATUS(use_pool((thing *)((uintptr_t)pool + 1)), PST_E_INVALID);
    CHECK_SAID("pool is no pst_pool of this library [");
    psti_handle_free(pool);
    CHECK_STATUS(use_pool(pool), PST_E_INVALID);
    CHECK_SAID("pool is a pst_pool that was destroyed [");
    psti_handle_free(trace);
    CHECK_STATUS(use_pool(trace), PST_E_INVALID);
    CHECK_SAID("pool is a pst_trace that was destroyed [");
    psti_handle_free(NULL);
}

/* While there is none no pointer can be one, and nothing is read behind it. */
PST_TEST(Handles, BeforeTheFirstNoPointerIsOne)
{
    const uint32_t mode = psti_handles;
    __atomic_store_n(&psti_handles, PSTI_HANDLES_NONE, __ATOMIC_RELAXED);
    const pst_status status = use_pool((thing *)(uintptr_t)0x123450);
    __atomic_store_n(&psti_handles, mode, __ATOMIC_RELAXED);
    CHECK_STATUS(status, PST_E_INVALID);
    CHECK_SAID("pool is no pst_pool of this library [");
}

PST_TEST(Handles, MakingOneCanFail)
{
    psti_fail_allocation_after(0);
    void *made = psti_handle_new(64, PSTI_KIND_POOL);
    psti_fail_allocation_after(-1);
    CHECK(!made);
}

PST_TEST(Handles, PublicCallsRefuseWhatIsNone)
{
    pst_device *device = NULL;
    pst_plan_file *plan = NULL;
    pst_trace *trace = NULL;
    pst_trace_config config = PST_TRACE_CONFIG_INIT;
    const pst_trace_request rows[] = {{.op = PST_TRACE_MALLOC, .bytes = 8},
                                      {.op = PST_TRACE_FREE, .bytes = 8}};
    void *address = NULL;
    pst_trace_summary summary;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(pst_plan_file_make(NULL, 0, &plan));
    CHECK_OK(pst_trace_make(&config, rows, 2, &trace));
    CHECK_STATUS(pst_device_alloc((pst_device *)trace, 8, &address), PST_E_INVALID);
    CHECK_SAID("device is a pst_trace, not a pst_device [");
    CHECK_STATUS(pst_graph_launch((pst_graph *)device, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_graph_destroy((pst_graph *)device), PST_E_INVALID);
    CHECK_STATUS(pst_device_close((pst_device *)plan), PST_E_INVALID);
    CHECK_STATUS(pst_arena_destroy((pst_arena *)plan), PST_E_INVALID);
    CHECK_STATUS(pst_arena_trim((pst_arena *)device), PST_E_INVALID);
    CHECK(!pst_arena_owns((pst_arena *)device, device));
    CHECK_STATUS(pst_trace_get_summary((pst_trace *)plan, 0, &summary), PST_E_INVALID);
    CHECK_SAID("trace is a pst_plan_file, not a pst_trace [");
    pst_trace_destroy((pst_trace *)plan);
    pst_plan_file_destroy((pst_plan_file *)trace);
    CHECK_EQ(pst_trace_num_rows((pst_trace *)plan), 0);
    CHECK_EQ(pst_trace_stream_name(NULL, 0), PST_TRACE_NONE);
    CHECK(pst_trace_rows(NULL) == NULL);
    CHECK(pst_plan_file_rows((pst_plan_file *)trace) == NULL);
    pst_plan_file_destroy(plan);
    pst_trace_destroy(trace);
    pst_trace_destroy(trace);
    CHECK_OK(pst_device_close(device));
    CHECK_STATUS(pst_device_close(device), PST_E_INVALID);
    CHECK_SAID("device is a pst_device that was destroyed [");
}

/* ---- with PAGESTASH_CHECK=1 ---- */

PST_CHILD(handle_check_mode)
{
    enum { MANY = 5000 };
    static thing *things[MANY];
    int wrong = 0;
    for (int i = 0; i < MANY; i++) {
        things[i] = psti_handle_new(sizeof(thing), PSTI_KIND_POOL);
        wrong += use_pool(things[i]) != PST_OK;
        psti_handle_free(things[i]);
    }
    for (int i = 0; i < MANY; i++)
        wrong += use_pool(things[i]) != PST_E_INVALID;
    printf("%d wrong\n%s\n", wrong, pst_last_message());
    /* nothing is read there */
    printf("%d\n", use_pool((thing *)UINT64_C(0x5a5a5a5a5a5a5a50)));
    printf("%s\n", pst_last_message());
}

PST_TEST(Handles, CheckModeKnowsAllEverMade)
{
    static const char *const check[] = {"PAGESTASH_CHECK=1", NULL};
    static const char first[] = "0 wrong\npool is a pst_pool that was destroyed [handle_test.c:";
    child_result child;
    CHECK(child_run("handle_check_mode", check, &child) && child.exited);
    CHECK(strncmp(child.out, first, strlen(first)) == 0);
    CHECK(strstr(child.out, "]\n-1\npool is no pst_pool of this library ["));
    CHECK_STR(child.err, "");
}

/* ---- calls beside a destroy ---- */

static pst_status enter_and_close(thing *pool)
{
    PSTI_USE_HANDLE(pool, POOL);
    return psti_handle_close(pool);
}

static pst_status enter(thing *pool)
{
    PSTI_USE_HANDLE(pool, POOL);
    return PST_OK;
}

PST_TEST(Handles, ACloseWaitsForNobody)
{
    thing *pool = psti_handle_new(sizeof(*pool), PSTI_KIND_POOL);
    CHECK_STATUS(enter_and_close(pool), PST_E_BUSY);
    CHECK_SAID("1 calls of other threads use this pst_pool [");
    CHECK_OK(psti_handle_close(pool));
    CHECK_STATUS(enter(pool), PST_E_INVALID);
    CHECK_SAID("pool is being destroyed by another thread [");
    CHECK_STATUS(psti_handle_close(pool), PST_E_INVALID);
    psti_handle_reopen(pool);
    CHECK_OK(enter(pool));
    CHECK_OK(psti_handle_close(pool));
    psti_handle_free(pool);
    CHECK_STATUS(enter(pool), PST_E_INVALID);
}

enum { NUM_USERS = 3 };

typedef struct race {
    thing *pool;
    pthread_barrier_t start;
    uint32_t wrong; /* atomic */
} race;

static pst_status count_up(race *self, thing *pool)
{
    PSTI_USE_HANDLE(pool, POOL);
    if (__atomic_load_n(&pool->value, __ATOMIC_RELAXED) != 7)
        __atomic_fetch_add(&self->wrong, 1, __ATOMIC_RELAXED);
    return PST_OK;
}

static void *use_until_it_is_gone(void *arg)
{
    race *self = arg;
    pthread_barrier_wait(&self->start);
    while (count_up(self, self->pool) == PST_OK)
        sched_yield();
    return NULL;
}

/* Fault rows 44. */
PST_TEST(Handles, ThreadsBesideADestroySeeAWholeObjectOrNone)
{
    for (uint32_t round = 0; round < 5; round++) {
        race self = {.pool = psti_handle_new(sizeof(thing), PSTI_KIND_POOL)};
        pthread_t threads[NUM_USERS];
        self.pool->value = 7;
        pthread_barrier_init(&self.start, NULL, NUM_USERS + 1);
        for (int i = 0; i < NUM_USERS; i++)
            pthread_create(&threads[i], NULL, use_until_it_is_gone, &self);
        pthread_barrier_wait(&self.start);
        while (psti_handle_close(self.pool) != PST_OK)
            sched_yield();
        __atomic_store_n(&self.pool->value, 0, __ATOMIC_RELAXED);
        psti_handle_free(self.pool);
        for (int i = 0; i < NUM_USERS; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&self.start);
        CHECK_EQ(self.wrong, 0);
    }
}
