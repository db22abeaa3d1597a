/* Several threads, each with a stream and tickets of its own, in one pool. */
#include "tests/conformance/conf.h"

#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 4, TICKETS = 2, MAX_PAGES = 4096 };

/* A thread's own view: the pool is shared, the oracle is not. It knows states and bytes; which
 * pages were taken depends on the others. */
typedef struct worker {
    lockstep ls; /* device, stream and pool are borrowed */
    oracle_random random;
    ls_group source, destination;
    uint32_t tickets[TICKETS];
    uint32_t operations;
    uint64_t stashes, failures; /* for want of pages */
} worker;

static bool set_up_worker(worker *self, const lockstep *shared, uint64_t seed, uint64_t bytes)
{
    lockstep *ls = &self->ls;
    shape like, other;
    *self = (worker){.random = oracle_random_seeded(seed)};
    ls->device = shared->device;
    ls->pool = shared->pool;
    ls->options = shared->options;
    ls->options.seed = seed;
    ls->oracle = oracle_pool_create(shared->options.page_bytes, MAX_PAGES, 0, LS_MAX_TICKETS);
    LS_TRY(pst_stream_create(ls->device, &ls->stream));
    shape_make(&self->random, (shape_theme)oracle_random_below(&self->random, SHAPE_THEMES), bytes,
               &like);
    shape_like(&self->random, &like, false, &other);
    ls_group_make(ls, &like, &self->random, &self->source);
    ls_group_make(ls, &other, &self->random, &self->destination);
    for (int i = 0; i < TICKETS; i++)
        self->tickets[i] = ls_ticket_make(ls, &self->source);
    return !ls->failed;
}

static void tear_down_worker(worker *self)
{
    lockstep *ls = &self->ls;
    for (int i = 0; i < TICKETS; i++)
        ls_ticket_free(ls, self->tickets[i]);
    ls_group_free(ls, &self->source);
    ls_group_free(ls, &self->destination);
    LS_TRY(pst_stream_destroy(ls->device, ls->stream));
    oracle_pool_destroy(ls->oracle);
    free(ls->scratch);
}

/* The device's state of a ticket must be the oracle's, unless others took the pages. */
static void compare_ticket(worker *self, uint32_t ticket, bool may_fail)
{
    lockstep *ls = &self->ls;
    ticket_words *words = &ls->words_of[ticket];
    oracle_ticket *expected = &ls->oracle->tickets[ticket];
    LS_TRY(ticket_words_read(ls->tickets[ticket], words, ls->stream));
    const bool failed = words->head.state == PSTI_TICKET_FAILED;
    if (may_fail && failed && expected->state == ORACLE_LIVE) {
        const uint64_t wanted = expected->num_pages;
        oracle_release(ls->oracle, ticket);
        expected->state = ORACLE_FAILED;
        expected->num_pages = wanted;
        self->failures++;
    }
    if (words->head.state != expected->state)
        LS_FAIL("ticket %u is in state %u, not %d", ticket, words->head.state, expected->state);
    if (expected->state != ORACLE_EMPTY && words->head.num_pages != expected->num_pages)
        LS_FAIL("ticket %u has %llu pages, not %llu", ticket,
                (unsigned long long)words->head.num_pages, (unsigned long long)expected->num_pages);
}

static void stash(worker *self, uint32_t ticket)
{
    lockstep *ls = &self->ls;
    if (oracle_random_one_in(&self->random, 3))
        ls_group_fill(ls, &self->source, &self->random);
    ls_group_random_counts(ls, &self->source,
                           (counts_kind)oracle_random_below(&self->random, COUNTS_KINDS),
                           &self->random);
    if (!ls_host_counts_are_right(&self->source)) {
        if (ls_enqueue_stash(ls->tickets[ticket], &self->source, ls->stream) != PST_E_INVALID)
            LS_FAIL("a count of the host's that is wrong is not refused");
        return;
    }
    LS_TRY(ls_enqueue_stash(ls->tickets[ticket], &self->source, ls->stream));
    oracle_stash(ls->oracle, ticket, &self->source.model, self->source.values);
    self->stashes++;
    compare_ticket(self, ticket, true);
}

static void restore(worker *self, uint32_t ticket)
{
    lockstep *ls = &self->ls;
    pst_restore_options options = ls_restore_options(
        &self->destination, (pst_restore_pages)oracle_random_below(&self->random, 2),
        (pst_restore_tail)oracle_random_below(&self->random, 3));
    options.failed = (pst_restore_failed)oracle_random_below(&self->random, 2);
    LS_TRY(ls_enqueue_restore(ls->tickets[ticket], &self->destination, &options, ls->stream));
    oracle_restore_as(ls->oracle, ticket, &self->destination.model, options.pages, options.tail,
                      options.failed);
    compare_ticket(self, ticket, false);
    ls_group_compare(ls, &self->destination);
}

static void release(worker *self, uint32_t ticket)
{
    lockstep *ls = &self->ls;
    LS_TRY(pst_ticket_release(ls->tickets[ticket], ls->stream));
    oracle_release(ls->oracle, ticket);
    compare_ticket(self, ticket, false);
}

/* A ticket is made and destroyed while the others are at work; also one whose stash failed. */
static void renew(worker *self, uint32_t *ticket)
{
    lockstep *ls = &self->ls;
    if (ls->oracle->tickets[*ticket].state == ORACLE_LIVE)
        release(self, *ticket);
    ls_ticket_free(ls, *ticket);
    *ticket = ls_ticket_make(ls, &self->source);
}

static void *work(void *opaque)
{
    worker *self = opaque;
    for (uint32_t i = 0; i < self->operations && !self->ls.failed; i++) {
        uint32_t *place = &self->tickets[oracle_random_below(&self->random, TICKETS)];
        const uint32_t ticket = *place;
        self->ls.operation++;
        switch (oracle_random_below(&self->random, 6)) {
        case 0:
            release(self, ticket);
            break;
        case 5:
            renew(self, place);
            break;
        case 1:
        case 2:
            stash(self, ticket);
            break;
        default:
            restore(self, ticket);
        }
    }
    for (int i = 0; i < TICKETS && !self->ls.failed; i++)
        release(self, self->tickets[i]);
    return NULL;
}

static bool run_workers(lockstep *ls, worker *workers, uint32_t operations, uint64_t bytes)
{
    pthread_t threads[THREADS];
    bool ready = true;
    for (uint32_t i = 0; i < THREADS; i++)
        ready &= set_up_worker(&workers[i], ls, ls->options.seed * THREADS + i, bytes);
    if (!ready)
        return false;
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].operations = operations;
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
            abort();
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ready &= !workers[i].ls.failed;
    }
    for (uint32_t i = 0; ready && i < THREADS; i++)
        tear_down_worker(&workers[i]);
    return ready;
}

/* All pages are free again, each exactly once; marks and flags are plausible. */
static void compare_end(lockstep *ls, uint32_t flags_allowed)
{
    const pst_pool_status *status = &ls->words.status;
    LS_TRY(pst_pool_check(ls->pool, ls->stream));
    LS_TRY(pst_pool_step(ls->pool, ls->stream));
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    CHECK_EQ(pool_words_violations(ls->pool, &ls->words, NULL, 0), 0);
    CHECK_EQ(ls->words.state.tail[0] - ls->words.state.head[0], ls->options.num_pages);
    CHECK_EQ(ls->words.state.failed_wanted, 0);
    CHECK_EQ(status->check_errors, 0);
    CHECK_EQ(status->in_use[0], 0);
    CHECK_EQ(status->flags & ~flags_allowed, 0);
    CHECK(status->high_water[0] <= ls->options.num_pages);
    CHECK(status->demand_high_water >= status->high_water[0]);
}

static void run_concurrently(const conf_run *conf, uint64_t num_pages, uint32_t rounds, bool fails)
{
    uint64_t failures = 0;
    /* with few operations each the threads may not meet: more rounds, until a stash finds no page */
    const uint32_t most = fails ? 50 * rounds : rounds;
    for (uint32_t i = 0; i < most && !psti_test_failed(); i++) {
        if (i >= rounds && failures > 0)
            break;
        static worker workers[THREADS];
        const ls_options options = conf_options(PST_POOL_CONCURRENT, num_pages, conf_seed(i));
        lockstep ls;
        conf_vary(conf, conf_seed(i));
        if (!ls_open(&ls, conf->device, &options))
            return;
        if (!run_workers(&ls, workers, conf_cases(conf, 400), conf_bytes(conf, 40000)))
            return;
        const uint32_t expected = 1u << PST_FAULT_EMPTY | 1u << PST_FAULT_LIVE |
                                  1u << PST_FAULT_COUNT | 1u << PST_FAULT_FAILED |
                                  (fails ? 1u << PST_FAULT_EXHAUSTED : 0);
        compare_end(&ls, expected);
        for (uint32_t w = 0; w < THREADS; w++)
            failures += workers[w].failures;
        ls_close(&ls);
    }
    CHECK_EQ(failures > 0, fails);
}

/* Fault rows 31. */
CONFORMANCE(Threads, StashAndRestoreAtOnce)
{
    run_concurrently(conf, MAX_PAGES, 6, false);
}

CONFORMANCE(Threads, StashAndRestoreAtOnceInAPoolTooSmall)
{
    run_concurrently(conf, 12, 12, true);
}
