/* The status block, the mailbox, and the kinds of reset. */
#include "tests/conformance/conf.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { ROWS = 32, ROW_BYTES = 2048 }; /* 4 pages at capacity */

typedef struct scene {
    lockstep ls;
    oracle_random random;
    ls_group group;
    uint32_t first, second;
} scene;

static bool set_up(scene *self, const conf_run *conf, pst_pool_mode mode, uint64_t num_pages)
{
    const ls_options options = conf_options(mode, num_pages, 0);
    const shape like = conf_prefix_shape(1, ROWS, ROW_BYTES);
    self->random = oracle_random_seeded(3);
    if (!ls_open(&self->ls, conf->device, &options))
        return false;
    ls_group_make(&self->ls, &like, &self->random, &self->group);
    self->first = ls_ticket_make(&self->ls, &self->group);
    self->second = ls_ticket_make(&self->ls, &self->group);
    return !self->ls.failed;
}

static void tear_down(scene *self)
{
    ls_group_free(&self->ls, &self->group);
    ls_close(&self->ls);
}

static void stash_rows(scene *self, uint32_t ticket, int64_t rows)
{
    ls_group_set_counts(&self->ls, &self->group, &rows);
    ls_stash(&self->ls, ticket, &self->group);
}

static void restore(scene *self, uint32_t ticket)
{
    ls_restore(&self->ls, ticket, &self->group, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
}

CONFORMANCE(Status, NothingIsPublishedBeforeTheFirstStep)
{
    static scene self;
    pst_pool_status status;
    memset(&status, 0x5a, sizeof(status));
    const pst_pool_status untouched = status;
    if (!set_up(&self, conf, PST_POOL_ORDERED, 4))
        return;
    CHECK_STATUS(pst_pool_poll(self.ls.pool, &status), PST_E_AGAIN);
    CHECK(memcmp(&status, &untouched, sizeof(status)) == 0);
    ls_step(&self.ls);
    CHECK_OK(pst_pool_poll(self.ls.pool, &status));
    CHECK_EQ(status.steps, 1);
    CHECK_EQ(status.step_valid, 1);
    CHECK_EQ(status.fault_ticket, UINT32_MAX);
    CHECK_EQ(status.fault_state, 0);
    CHECK_EQ(status.flags, 0);
    CHECK_EQ(status.struct_bytes, sizeof(status));
    CHECK_EQ(status.version, pst_version());
    tear_down(&self);
}

CONFORMANCE(Status, MarksAreThoseOfTheirStep)
{
    static scene self;
    CONF_EACH_MODE (mode) {
        if (!set_up(&self, conf, mode, 7))
            return;
        stash_rows(&self, self.first, 24);
        stash_rows(&self, self.second, 32);
        restore(&self, self.second);
        ls_step(&self.ls);
        CHECK_EQ(self.ls.published.high_water[0], 7);
        CHECK_EQ(self.ls.published.in_use[0], 3);
        CHECK_EQ(self.ls.published.step_demand, 7);
        ls_step(&self.ls);
        CHECK_EQ(self.ls.published.high_water[0], 7);
        CHECK_EQ(self.ls.published.step_demand, 3); /* what was live when it began */
        restore(&self, self.first);
        ls_reset(&self.ls, PST_RESET_STATISTICS);
        ls_step(&self.ls);
        CHECK_EQ(self.ls.published.high_water[0], 0);
        CHECK_EQ(self.ls.published.demand_high_water, 0);
        tear_down(&self);
    }
}

/* Fault rows 25. */
CONFORMANCE(Status, FirstFaultStandsUntilReset)
{
    static scene self;
    if (!set_up(&self, conf, PST_POOL_ORDERED, 5))
        return;
    stash_rows(&self, self.first, 9); /* two pages of five */
    stash_rows(&self, self.second, 32);
    restore(&self, self.second);
    restore(&self, self.second);
    ls_step(&self.ls);
    const pst_pool_status *status = &self.ls.published;
    CHECK_EQ(status->fault, PST_FAULT_EXHAUSTED);
    CHECK_EQ(status->fault_state, 2);
    CHECK_EQ(status->fault_ticket, self.second);
    CHECK_EQ(status->fault_wanted, 4);
    CHECK_EQ(status->fault_free[0], 3);
    CHECK_EQ(status->num_faults, 3);
    CHECK_EQ(status->flags,
             1u << PST_FAULT_EXHAUSTED | 1u << PST_FAULT_FAILED | 1u << PST_FAULT_EMPTY);
    CHECK_EQ(status->step_valid, 0);
    ls_step(&self.ls); /* the faults are old, this step had none */
    CHECK_EQ(status->step_valid, 1);
    CHECK_EQ(status->num_faults, 3);
    ls_reset(&self.ls, PST_RESET_FAULTS);
    ls_release(&self.ls, self.second);
    ls_step(&self.ls);
    CHECK_EQ(status->fault, PST_FAULT_EMPTY);
    CHECK_EQ(status->num_faults, 1);
    tear_down(&self);
}

CONFORMANCE(Status, StepValidCanBeReadOnTheDevice)
{
    static scene self;
    int32_t valid = -1;
    if (!set_up(&self, conf, PST_POOL_CONCURRENT, 4))
        return;
    lockstep *ls = &self.ls;
    int32_t *word = pst_pool_step_valid(ls->pool);
    CHECK(word != NULL);
    for (int32_t expected = 1; expected >= 0; expected--) {
        LS_TRY(pst_device_copy(ls->device, &valid, word, sizeof(valid), ls->stream));
        LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
        CHECK_EQ(valid, expected);
        ls_release(ls, self.first);
    }
    ls_step(ls);
    LS_TRY(pst_device_copy(ls->device, &valid, word, sizeof(valid), ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    CHECK_EQ(valid, 1);
    CHECK(pst_pool_step_valid(NULL) == NULL);
    tear_down(&self);
}

/* ---- reset ---- */

/* Fault rows 25. */
CONFORMANCE(Reset, EachKindResetsItsOwn)
{
    static scene self;
    for (uint32_t what = 1; what <= PST_RESET_ALL; what++) {
        conf_vary(conf, what); /* one block and several */
        if (!set_up(&self, conf, what % 2 ? PST_POOL_ORDERED : PST_POOL_CONCURRENT, 6))
            return;
        stash_rows(&self, self.first, 32);
        stash_rows(&self, self.second, 32);
        ls_step(&self.ls);
        ls_reset(&self.ls, what);
        const oracle_pool *now = self.ls.oracle; /* the device has been compared with it */
        CHECK_EQ(now->num_free[0], what & PST_RESET_PAGES ? 6 : 2);
        CHECK_EQ(now->status.num_faults, what & PST_RESET_FAULTS ? 0 : 1);
        CHECK_EQ(now->status.high_water[0], what & PST_RESET_STATISTICS ? 0 : 4);
        ls_check(&self.ls); /* the directory of tickets lies behind the statistics */
        ls_step(&self.ls);
        tear_down(&self);
    }
}

/* Fault rows 26. */
CONFORMANCE(Reset, OldTicketsAreEmptyAndNothingIsFreedTwice)
{
    static scene self;
    CONF_EACH_MODE (mode) {
        if (!set_up(&self, conf, mode, 9))
            return;
        for (int again = 0; again < 3; again++) {
            stash_rows(&self, self.first, 32);
            stash_rows(&self, self.second, 20);
            ls_reset(&self.ls, PST_RESET_PAGES);
            CHECK_EQ(self.ls.oracle->num_free[0], 9);
            restore(&self, self.first);
            ls_release(&self.ls, self.second);
            stash_rows(&self, self.second, 32); /* the pages that the old first held */
            restore(&self, self.first);
            restore(&self, self.second);
            CHECK_EQ(self.ls.oracle->status.flags, 1u << PST_FAULT_EMPTY);
        }
        tear_down(&self);
    }
}

CONFORMANCE(Reset, FailedTicketsAreForgottenToo)
{
    static scene self;
    if (!set_up(&self, conf, PST_POOL_ORDERED, 2))
        return;
    stash_rows(&self, self.first, 32);
    stash_rows(&self, self.second, 32);
    ls_reset(&self.ls, PST_RESET_ALL);
    ls_release(&self.ls, self.first);
    stash_rows(&self, self.second, 16);
    ls_step(&self.ls);
    CHECK_EQ(self.ls.published.demand_high_water, 2);
    tear_down(&self);
}

/* ---- the mailbox while steps are published ---- */

typedef struct poller {
    pst_pool *pool;
    uint64_t first; /* the last publication before */
    uint32_t stop;
    uint64_t polled, torn;
} poller;

/* In each publication pages in use, steps and checks tell the same number. */
static void *poll_on(void *opaque)
{
    poller *self = opaque;
    uint64_t last = 0;
    while (!__atomic_load_n(&self->stop, __ATOMIC_ACQUIRE)) {
        pst_pool_status status;
        sched_yield();
        if (pst_pool_poll(self->pool, &status) != PST_OK || status.steps == self->first)
            continue;
        __atomic_fetch_add(&self->polled, 1, __ATOMIC_RELAXED);
        self->torn += status.steps < last || status.checks != status.steps ||
                      status.in_use[0] != status.steps % 5;
        last = status.steps;
    }
    return NULL;
}

CONFORMANCE(Status, PollSeesWholePublications)
{
    const uint32_t steps = conf_cases(conf, 2000);
    static scene self;
    pthread_t thread;
    if (!set_up(&self, conf, PST_POOL_CONCURRENT, 4))
        return;
    lockstep *ls = &self.ls;
    LS_TRY(pst_pool_reset(ls->pool, PST_RESET_ALL, ls->stream));
    oracle_reset(ls->oracle, PST_RESET_ALL);
    poller poll = {.pool = ls->pool};
    const uint64_t checks = ls->oracle->status.checks;
    uint64_t step = 0;
    ls->skip_checks = true;
    for (; step < checks; step++) /* until both numbers are the same */
        LS_TRY(pst_pool_step(ls->pool, ls->stream));
    poll.first = checks;
    CHECK_EQ(pthread_create(&thread, NULL, poll_on, &poll), 0);
    /* a loaded machine may not run the poller for long: then steps go on, but not for ever */
    const time_t patience = time(NULL) + 60;
    while ((step < checks + steps || __atomic_load_n(&poll.polled, __ATOMIC_RELAXED) < 100) &&
           time(NULL) < patience && !ls->failed) {
        const int64_t rows = (int64_t)(++step % 5) * 8;
        ls_group_set_counts(ls, &self.group, &rows);
        LS_TRY(pst_ticket_release(ls->tickets[self.first], ls->stream));
        LS_TRY(ls_enqueue_stash(ls->tickets[self.first], &self.group, ls->stream));
        LS_TRY(pst_pool_check(ls->pool, ls->stream));
        LS_TRY(pst_pool_step(ls->pool, ls->stream));
    }
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    __atomic_store_n(&poll.stop, 1, __ATOMIC_RELEASE);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(poll.torn, 0);
    CHECK(poll.polled >= 100);
    LS_TRY(pst_pool_reset(ls->pool, PST_RESET_ALL, ls->stream));
    oracle_reset(ls->oracle, PST_RESET_ALL);
    tear_down(&self);
}
