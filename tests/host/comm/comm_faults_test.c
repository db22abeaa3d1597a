/* Communicators of threads: ranks that fail, that are late, or do something else, and what is
 * refused. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/base/base.h"
#include "host/comm/comm.h"
#include "tests/host/base/child.h"
#include "tests/host/comm/comm_scene.h"

enum { SOON = 50 }; /* milliseconds */

/* Where some ranks wait for the others' errors: no time decides what a test sees. */
static pthread_barrier_t gate;

static void with_gate(int num_ranks, uint32_t timeout_ms, void (*body)(rank_of_test *self))
{
    pthread_barrier_init(&gate, NULL, (unsigned)num_ranks);
    ranks_run(num_ranks, timeout_ms, body, NULL);
    pthread_barrier_destroy(&gate);
}

static pst_status sum(rank_of_test *self)
{
    float value = 1;
    return pst_comm_all_reduce(self->comm, &value, &value, 1, PST_DTYPE_FP32, PST_REDUCE_SUM,
                               self->stream);
}

static bool said(const char *text)
{
    return strstr(pst_last_message(), text) != NULL;
}

/* Every later call says the same. */
static void check_ended(rank_of_test *self, const char *cause)
{
    float value = 0;
    RANK_CHECK(said(cause));
    RANK_STATUS(sum(self), PST_E_PEER);
    RANK_CHECK(said(cause));
    RANK_STATUS(pst_comm_all_gather(self->comm, &value, &value, 0, PST_DTYPE_FP32, self->stream),
                PST_E_PEER);
    RANK_STATUS(pst_comm_wait(self->comm, self->stream, 0), PST_E_PEER);
    RANK_CHECK(said(cause));
}

/* ---- ranks that do not come ---- */

static void one_is_late(rank_of_test *self)
{
    RANK_OK(sum(self));
    if (self->rank == 2) {
        ranks_expire(self, "rank 2", NULL);
    } else {
        RANK_STATUS(sum(self), PST_E_PEER);
        RANK_CHECK(said("rank 2 did not come within 600000 ms"));
    }
    pthread_barrier_wait(&gate);
    if (self->rank == 2)
        RANK_STATUS(sum(self), PST_E_PEER);
    check_ended(self, "rank 2 did not come within 600000 ms");
}

PST_TEST(CommFaults, OneIsLate)
{
    with_gate(4, SCENE_NEVER, one_is_late);
}

static void two_are_late(rank_of_test *self)
{
    if (self->rank % 2 == 1)
        RANK_STATUS(sum(self), PST_E_PEER);
    else if (self->rank == 0)
        ranks_expire(self, "ranks 0, 2", NULL);
    pthread_barrier_wait(&gate);
    if (self->rank % 2 == 0)
        RANK_STATUS(sum(self), PST_E_PEER);
    check_ended(self, "ranks 0, 2 did not come within 600000 ms");
}

PST_TEST(CommFaults, TwoAreLate)
{
    with_gate(4, SCENE_NEVER, two_are_late);
}

/* The limit is what was configured, with its half second: one rank waits, and nobody else has to be in time for
 * it. */
static void one_waits(rank_of_test *self)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (self->rank == 0)
        RANK_STATUS(sum(self), PST_E_PEER);
    clock_gettime(CLOCK_MONOTONIC, &end);
    RANK_CHECK(self->rank == 1 ||
               (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000 >=
                   5499);
    pthread_barrier_wait(&gate);
    if (self->rank == 1)
        RANK_STATUS(sum(self), PST_E_PEER);
    check_ended(self, "rank 1 did not come within 5500 ms");
}

PST_TEST(CommFaults, TheLimitOfAnExchangeIsThatOfTheConfig)
{
    with_gate(2, 5500, one_waits);
}

/* Its thread ends without a word, but for the communicator, or with it. */
static void one_dies(rank_of_test *self)
{
    if (self->rank == 1) {
        const struct timespec rest = {0, 20000000};
        ranks_await(self, "rank 1", NULL);
        nanosleep(&rest, NULL); /* then they sleep, most likely: only a wake-up tells them */
        return;                 /* and destroys it */
    }
    RANK_STATUS(sum(self), PST_E_PEER);
    check_ended(self, "rank 1 destroyed the communicator");
}

PST_TEST(CommFaults, OneLeaves)
{
    ranks_run(4, SCENE_NEVER, one_dies, NULL);
}

static void one_is_gone_in_time(rank_of_test *self)
{
    for (int i = 0; i < 50; i++)
        RANK_OK(sum(self)); /* and whoever is done first leaves first */
}

PST_TEST(CommFaults, WhoIsDoneMayLeave)
{
    for (int i = 0; i < 5; i++)
        ranks_run(8, 0, one_is_gone_in_time, NULL);
}

/* ---- waiting from another thread ---- */

typedef struct watched {
    rank_of_test *rank; /* that is in an exchange */
    bool is_replayed;
} watched;

/* Rank 1 asks about rank 0, which waits for it. */
static void one_watches(rank_of_test *self)
{
    watched *shared = self->arg;
    float value = 1; /* as long as the graph */
    pst_graph *graph = NULL;
    if (shared->is_replayed) {
        RANK_OK(pst_graph_begin(self->device, self->stream));
        RANK_OK(pst_comm_all_reduce(self->comm, &value, &value, 1, PST_DTYPE_FP32, PST_REDUCE_SUM,
                                    self->stream));
        RANK_OK(pst_graph_end(self->device, self->stream, &graph));
    }
    if (self->rank == 0)
        shared->rank = self;
    pthread_barrier_wait(&gate);
    pst_comm *other = shared->rank->comm;
    if (self->rank == 1) {
        ranks_await(self, "rank 1", NULL);
        RANK_STATUS(pst_comm_wait(other, shared->rank->stream, SOON), PST_E_AGAIN);
        RANK_CHECK(
            said("an exchange has not ended after 50 ms: rank 1 did not come; pst_comm_abort"));
    }
    RANK_OK(graph ? pst_graph_launch(graph, self->stream) : sum(self));
    if (self->rank == 1)
        RANK_OK(pst_comm_wait(other, shared->rank->stream, SCENE_NEVER));
    pthread_barrier_wait(&gate);
    RANK_OK(pst_graph_destroy(graph));
}

PST_TEST(CommFaults, AWaitOfAnotherThreadSeesAnExchangeThatHangs)
{
    for (int is_replayed = 0; is_replayed < 2; is_replayed++) {
        watched shared = {NULL, is_replayed};
        pthread_barrier_init(&gate, NULL, 2);
        ranks_run(2, SCENE_NEVER, one_watches, &shared);
        pthread_barrier_destroy(&gate);
    }
}

/* ---- ranks that do something else ---- */

static void one_gathers(rank_of_test *self)
{
    float from[4] = {0}, to[16];
    if (self->rank == 3)
        RANK_STATUS(pst_comm_all_gather(self->comm, from, to, 1, PST_DTYPE_FP32, self->stream),
                    PST_E_PEER);
    else
        RANK_STATUS(sum(self), PST_E_PEER);
    check_ended(self,
                "rank 0 has all-reduce of 1 fp32, reduction 0, rank 3 has all-gather of 1 fp32");
}

PST_TEST(CommFaults, OneDoesSomethingElse)
{
    with_gate(4, 0, one_gathers);
}

static void one_has_more(rank_of_test *self)
{
    float from[4] = {0}, to[4];
    RANK_STATUS(pst_comm_all_reduce(self->comm, from, to, self->rank == 1 ? 3 : 2, PST_DTYPE_FP32,
                                    self->rank == 1 ? PST_REDUCE_MAX : PST_REDUCE_MIN,
                                    self->stream),
                PST_E_PEER);
    check_ended(self,
                "all-reduce of 2 fp32, reduction 1, rank 1 has all-reduce of 3 fp32, reduction 2");
}

PST_TEST(CommFaults, OneHasMore)
{
    with_gate(3, 0, one_has_more);
}

/* In one thing each, which is enough. */
static void one_differs(rank_of_test *self)
{
    float from[4] = {0}, to[4];
    const int which = *(const int *)self->arg;
    const bool is_odd = self->rank == 1;
    pst_exchange exchange = PST_EXCHANGE_INIT;
    exchange.kind = PST_EXCHANGE_ALL_REDUCE;
    exchange.dtype = is_odd && which == 1 ? PST_DTYPE_INT32 : PST_DTYPE_FP32;
    exchange.count = is_odd && which == 0 ? 3 : 2;
    exchange.reduction = is_odd && which == 2 ? PST_REDUCE_MAX : PST_REDUCE_SUM;
    exchange.from = from;
    exchange.to = to;
    RANK_STATUS(pst_comm_run(self->comm, &exchange, self->stream), PST_E_PEER);
    check_ended(self, "rank 0 has all-reduce of 2 fp32, reduction 0, rank 1 has all-reduce of ");
}

/* Fault rows 74. */
PST_TEST(CommFaults, OneDiffersInOneThing)
{
    for (int which = 0; which < 3; which++)
        ranks_run(2, 0, one_differs, &which);
}

/* While others wait, or before they begin: a start may already be refused. */
static void one_aborts_whenever(rank_of_test *self)
{
    if (self->rank == 1)
        RANK_OK(pst_comm_abort(self->comm, "now"));
    RANK_STATUS(sum(self), PST_E_PEER);
    check_ended(self, "rank 1: now");
}

static void one_aborts_late(rank_of_test *self)
{
    uint64_t number = 0;
    float from = 0, to = 0;
    pst_exchange exchange = PST_EXCHANGE_INIT;
    exchange.kind = PST_EXCHANGE_SHIFT;
    exchange.dtype = PST_DTYPE_FP32;
    exchange.count = 1;
    exchange.from = &from;
    exchange.to = &to;
    if (self->rank != 1)
        RANK_OK(pst_comm_start(self->comm, &exchange, self->stream, &number));
    if (self->rank == 0) {
        for (int i = 0; i < 10000 && !said("rank 1 did not come; pst_comm_abort ends it"); i++)
            RANK_STATUS(pst_comm_wait(self->comm, self->stream, 10), PST_E_AGAIN);
        RANK_CHECK(said("rank 1 did not come; pst_comm_abort ends it"));
    }
    pthread_barrier_wait(&gate);
    if (self->rank == 1)
        RANK_OK(pst_comm_abort(self->comm, "nothing to send"));
    else
        RANK_STATUS(pst_comm_finish(self->comm, number, self->stream), PST_E_PEER);
    RANK_STATUS(sum(self), PST_E_PEER);
    check_ended(self, "rank 1: nothing to send");
}

PST_TEST(CommFaults, OneAborts)
{
    with_gate(3, 0, one_aborts_whenever);
    with_gate(3, 0, one_aborts_late);
}

/* Floats: a copy that can be met; and of its memory what is used again, one in so many. (ThreadSanitizer looks for a
 * race in each word, among all that it found before: over the whole memory that takes many minutes.) */
enum { LONG = PSTI_UNDER_TSAN ? 1 << 18 : 2 << 20, STEP = LONG / 64 };

/* Looks at what another thread may be writing. */
__attribute__((no_sanitize("thread"))) static bool is_written(const volatile float *at)
{
    return *at != 0;
}

/* A finish that answers PEER in the middle of the copies has waited for them: the memory is the caller's. */
static void one_aborts_in_a_copy(rank_of_test *self)
{
    float *from = malloc(LONG * sizeof(float)), *to = calloc(2 * (size_t)LONG, sizeof(float));
    uint64_t number = 0;
    pst_exchange exchange = PST_EXCHANGE_INIT;
    exchange.kind = PST_EXCHANGE_ALL_GATHER;
    exchange.dtype = PST_DTYPE_FP32;
    exchange.count = LONG;
    exchange.from = from;
    exchange.to = to;
    for (int i = 0; i < LONG; i++)
        from[i] = 1;
    RANK_OK(pst_comm_start(self->comm, &exchange, self->stream, &number));
    while (!is_written(to) && psti_group_check(psti_ranks_group(self->comm)) == PST_OK)
        sched_yield(); /* the other may abort before this one's copies begin */
    RANK_OK(pst_comm_abort(self->comm, "now"));
    RANK_STATUS(pst_comm_finish(self->comm, number, self->stream), PST_E_PEER);
    for (size_t i = 0; i < LONG; i += STEP)
        from[i] = to[i] = to[LONG + i] = 0;
    RANK_OK(pst_comm_destroy(self->comm)); /* ends the thread */
    self->comm = NULL;
    for (size_t i = 0; i < 2 * (size_t)LONG && !psti_test_failed(); i += STEP)
        RANK_CHECK(to[i] == 0);
    free(from);
    free(to);
}

PST_TEST(CommFaults, AFinishInVainHasWaited)
{
    for (int i = 0; i < 5; i++)
        ranks_run(2, 0, one_aborts_in_a_copy, NULL);
}

/* What was started and never finished, or finished in vain, is in nobody's way. */
static void one_aborts_started_ones(rank_of_test *self)
{
    float values[PST_COMM_MAX_STARTED] = {0};
    uint64_t numbers[PST_COMM_MAX_STARTED];
    pst_exchange exchange = PST_EXCHANGE_INIT;
    exchange.kind = PST_EXCHANGE_ALL_REDUCE;
    exchange.dtype = PST_DTYPE_FP32;
    exchange.count = 1;
    for (int i = 0; i < PST_COMM_MAX_STARTED && self->rank != 2; i++) {
        exchange.from = exchange.to = &values[i];
        RANK_OK(pst_comm_start(self->comm, &exchange, self->stream, &numbers[i]));
    }
    pthread_barrier_wait(&gate);
    if (self->rank == 2)
        RANK_OK(pst_comm_abort(self->comm, "no more"));
    pthread_barrier_wait(&gate);
    for (int i = 0; i < PST_COMM_MAX_STARTED && self->rank == 0; i++)
        RANK_STATUS(pst_comm_finish(self->comm, numbers[i], self->stream), PST_E_PEER);
    if (self->rank == 0)
        RANK_STATUS(pst_comm_start(self->comm, &exchange, self->stream, &numbers[0]), PST_E_PEER);
} /* each destroys it: rank 1 with all of them open */

PST_TEST(CommFaults, OneAbortsWhatWasStarted)
{
    with_gate(3, 0, one_aborts_started_ones);
}

/* ---- creation ---- */

static pst_comm_config config_for(pst_device *device, int num_ranks, int rank)
{
    pst_comm_config config = PST_COMM_CONFIG_INIT;
    if (pst_comm_make_id(device, &config.id) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    config.num_ranks = num_ranks;
    config.rank = rank;
    config.timeout_ms = SOON;
    return config;
}

PST_TEST(CommFaults, NotAllCome)
{
    pst_device *device = NULL;
    pst_comm *comm = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
    pst_comm_config config = config_for(device, 3, 0);
    CHECK_STATUS(pst_comm_create(device, &config, &comm), PST_E_PEER);
    CHECK_SAID("ranks 1, 2 did not come within 50 ms");
    for (config.rank = 1; config.rank < 3; config.rank++) {
        CHECK_STATUS(pst_comm_create(device, &config, &comm), PST_E_PEER);
        CHECK_SAID("ranks 1, 2 did not come within 50 ms");
    }
    config = config_for(device, 2, 0);
    CHECK_STATUS(pst_comm_create(device, &config, &comm), PST_E_PEER);
    CHECK_STATUS(pst_comm_create(device, &config, &comm), PST_E_INVALID);
    CHECK_SAID("rank 0 of this communicator is there already");
    config.num_ranks = 3;
    config.rank = 1;
    CHECK_STATUS(pst_comm_create(device, &config, &comm), PST_E_INVALID);
    CHECK_SAID("rank 1 has num_ranks 3, others have 2");
    CHECK(!comm);
    CHECK_OK(pst_device_close(device));
}

PST_TEST(CommFaults, ConfigsAreChecked)
{
    pst_device *device = NULL;
    pst_comm *comm = NULL;
    pst_comm_id ids[2];
    CHECK_OK(pst_device_open("host", 0, &device));
    const pst_comm_config right = config_for(device, 1, 0);
    pst_comm_config config = right;
#define REFUSED(change, text)                                                 \
    do {                                                                      \
        config = right;                                                       \
        change;                                                               \
        CHECK_STATUS(pst_comm_create(device, &config, &comm), PST_E_INVALID); \
        CHECK_SAID(text);                                                     \
    } while (0)
    REFUSED(config.num_ranks = 0, "num_ranks 0: allowed are 1 to 1024");
    REFUSED(config.num_ranks = 1025, "num_ranks 1025: allowed are 1 to 1024");
    REFUSED(config.rank = 1, "rank 1: allowed are 0 to 0");
    REFUSED(config.rank = -1, "rank -1: allowed are 0 to 0");
    REFUSED(config.padding = 1, "padding 1: must be 0");
    REFUSED(memset(&config.id, 0, sizeof(config.id)), "id is all 0: pst_comm_make_id makes one");
#undef REFUSED
    CHECK_STATUS(pst_comm_create(NULL, &right, &comm), PST_E_INVALID);
    CHECK_STATUS(pst_comm_create(device, NULL, &comm), PST_E_INVALID);
    CHECK_STATUS(pst_comm_create(device, &right, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_comm_make_id(device, NULL), PST_E_INVALID);
    CHECK_OK(pst_comm_make_id(device, &ids[0]));
    CHECK_OK(pst_comm_make_id(device, &ids[1]));
    CHECK(memcmp(&ids[0], &ids[1], sizeof(ids[0])) != 0);
    CHECK_OK(pst_comm_destroy(NULL));
    CHECK_OK(pst_comm_create(device, &right, &comm));
    CHECK_STATUS(pst_device_close(device), PST_E_BUSY);
    CHECK_SAID("1 communicator");
    CHECK_OK(pst_comm_destroy(comm));
    CHECK_OK(pst_device_close(device));
}

/* ---- arguments ---- */

PST_TEST(CommFaults, ExchangesAreChecked)
{
    static float memory[64];
    static const uint64_t one = 1;
    pst_device *device = NULL;
    pst_comm *comm = NULL;
    pst_comm_info info;
    CHECK_OK(pst_device_open("host", 0, &device));
    const pst_comm_config config = config_for(device, 1, 0);
    CHECK_OK(pst_comm_create(device, &config, &comm));
    pst_exchange right = PST_EXCHANGE_INIT;
    right.kind = PST_EXCHANGE_ALL_REDUCE;
    right.dtype = PST_DTYPE_FP32;
    right.count = 8;
    right.from = memory;
    right.to = memory + 8;
    pst_exchange exchange;
    uint64_t number = 7;
#define REFUSED(change, text)                                                        \
    do {                                                                             \
        exchange = right;                                                            \
        change;                                                                      \
        CHECK_STATUS(pst_comm_run(comm, &exchange, NULL), PST_E_INVALID);            \
        CHECK_SAID(text);                                                            \
        CHECK_STATUS(pst_comm_start(comm, &exchange, NULL, &number), PST_E_INVALID); \
    } while (0)
    REFUSED(exchange.kind = (pst_exchange_kind)5, "kind 5: allowed are 0 to 4");
    REFUSED(exchange.dtype = (pst_dtype)5, "dtype 5: allowed are 0 to 4");
    REFUSED(exchange.dtype = PST_DTYPE_BYTE, "dtype byte: is moved, not reduced");
    REFUSED(exchange.reduction = (pst_reduction)3, "reduction 3: allowed are 0 to 2");
    REFUSED((exchange.kind = PST_EXCHANGE_SHIFT, exchange.reduction = PST_REDUCE_MAX),
            "reduction 2: allowed are 0 to 0");
    REFUSED(exchange.padding = 2, "padding 2: must be 0");
    REFUSED(exchange.from = NULL, "from is NULL");
    REFUSED(exchange.to = NULL, "to is NULL");
    REFUSED(exchange.to = (char *)memory + 33, "to at ");
    REFUSED(exchange.to = memory + 7, "from at ");
    REFUSED((exchange.kind = PST_EXCHANGE_SHIFT, exchange.to = memory), "from at ");
    REFUSED(exchange.count = UINT64_MAX, "from: 18446744073709551615 bytes: at most");
    REFUSED(exchange.send_counts = &one, "counts and offsets: are of all-to-all-v alone");
    REFUSED(exchange.kind = PST_EXCHANGE_ALL_TO_ALL_V,
            "all-to-all-v: the four lists must be there");
    REFUSED(exchange.struct_size = 8, "struct_size");
#undef REFUSED
    CHECK_STATUS(pst_comm_run(comm, NULL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_comm_run(NULL, &right, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_comm_run(comm, &right, (pst_stream)memory), PST_E_INVALID);
    CHECK_STATUS(pst_comm_start(comm, &right, NULL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_comm_finish(comm, 0, NULL), PST_E_INVALID);
    CHECK_EQ(number, 7);
    CHECK_OK(pst_comm_get_info(comm, &info));
    CHECK_EQ(info.num_exchanges, 0);
    CHECK_OK(pst_comm_run(comm, &right, NULL));
    exchange = right;
    exchange.count = 0;
    exchange.from = exchange.to = NULL;
    CHECK_OK(pst_comm_run(comm, &exchange, NULL));
    CHECK_OK(pst_comm_destroy(comm));
    CHECK_OK(pst_device_close(device));
}

static pst_status work(pst_device *device, pst_comm **comm)
{
    float value = 2;
    uint64_t number = 0;
    pst_exchange exchange = PST_EXCHANGE_INIT;
    const pst_comm_config config = config_for(device, 1, 0);
    pst_status status = pst_comm_create(device, &config, comm);
    exchange.kind = PST_EXCHANGE_ALL_REDUCE;
    exchange.dtype = PST_DTYPE_FP32;
    exchange.count = 1;
    exchange.from = exchange.to = &value;
    if (status == PST_OK)
        status = pst_comm_run(*comm, &exchange, NULL);
    if (status == PST_OK)
        status = pst_comm_start(*comm, &exchange, NULL, &number);
    return status == PST_OK ? pst_comm_finish(*comm, number, NULL) : status;
}

PST_TEST(CommFaults, WithoutMemory)
{
    pst_device *device = NULL;
    pst_status status = PST_E_NOMEM;
    CHECK_OK(pst_device_open("host", 0, &device));
    long n = 0;
    for (; n < 30 && status != PST_OK; n++) {
        pst_comm *comm = NULL;
        psti_fail_allocation_after(n);
        status = work(device, &comm);
        psti_fail_allocation_after(-1);
        CHECK(status == PST_OK || status == PST_E_NOMEM);
        CHECK_OK(pst_comm_destroy(comm));
    }
    CHECK_OK(status);
    CHECK(n > 5);
    CHECK_OK(pst_device_close(device));
}

/* ---- a fork ---- */

/* As in tests/host/device/fork_test.c: a child of gcc 12's AddressSanitizer may wait for ever. */
#if defined(__SANITIZE_ADDRESS__)
enum { MAY_HANG = 1 };
#else
enum { MAY_HANG = 0 };
#endif

static void fork_one(rank_of_test *self)
{
    int answer = 0;
    uint64_t number = 0;
    float from = 0, to = 0;
    pst_exchange exchange = PST_EXCHANGE_INIT;
    exchange.kind = PST_EXCHANGE_SHIFT;
    exchange.dtype = PST_DTYPE_FP32;
    exchange.count = 1;
    exchange.from = &from;
    exchange.to = &to;
    RANK_OK(pst_comm_start(self->comm, &exchange, self->stream, &number));
    RANK_OK(pst_comm_finish(self->comm, number, self->stream)); /* there is a thread */
    pthread_barrier_wait(&gate);
    if (self->rank == 0) {
        const pid_t pid = fork();
        if (pid == 0) {
            alarm(MAY_HANG ? 5 : 120);
            int wrong = sum(self) != PST_E_PEER;
            wrong += pst_comm_start(self->comm, &exchange, self->stream, &number) != PST_E_PEER;
            wrong += pst_comm_wait(self->comm, self->stream, 10) == PST_OK;
            wrong += pst_comm_destroy(self->comm) != PST_OK;
            child_end(wrong);
        }
        RANK_CHECK(waitpid(pid, &answer, 0) == pid);
        RANK_CHECK(WIFEXITED(answer) ? WEXITSTATUS(answer) == 0
                                     : MAY_HANG && WTERMSIG(answer) == SIGALRM);
    }
    RANK_OK(sum(self));
}

PST_TEST(CommFaults, AForkedChildHasNoRanks)
{
    with_gate(2, 0, fork_one);
}
