/* Operations that overlap: against the rules, which is noticed, refused and mended by a reset; and
 * within them, in concurrent pools, in every way that blocks can follow each other. */
#include "tests/conformance/conf.h"
#include "tests/conformance/conf_simt.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { ROW_BYTES = 4096, POOL_PAGES = 64, SECONDS = 30 };

typedef struct scene {
    lockstep ls;
    oracle_random random;
    ls_group groups[2];
    uint32_t tickets[2];
} scene;

static bool set_up(scene *self, const conf_run *conf, pst_pool_mode mode, int64_t rows)
{
    ls_options options = conf_options(mode, POOL_PAGES, 0);
    options.num_host_pages = POOL_PAGES;
    const shape like = conf_prefix_shape(2, rows, ROW_BYTES);
    self->random = oracle_random_seeded(2);
    if (!ls_open(&self->ls, conf->device, &options))
        return false;
    for (int i = 0; i < 2; i++) {
        ls_group_make(&self->ls, &like, &self->random, &self->groups[i]);
        ls_group_set_counts(&self->ls, &self->groups[i], &rows);
        self->tickets[i] = ls_ticket_make(&self->ls, &self->groups[i]);
    }
    return !self->ls.failed;
}

static void tear_down(scene *self)
{
    for (int i = 0; i < 2; i++)
        ls_group_free(&self->ls, &self->groups[i]);
    ls_close(&self->ls);
}

/* After an overlap: what the pool refuses changes nothing, and a reset of the pages mends all. */
static void refuse_and_mend(scene *self)
{
    lockstep *ls = &self->ls;
    ticket_words *words = ls->words_of;
    const uint32_t ticket = self->tickets[0];
    const pst_restore_options keep = PST_RESTORE_OPTIONS_INIT;
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    LS_TRY(ticket_words_read(ls->tickets[ticket], &words[ticket], ls->stream));
    const psti_pool_state before = ls->words.state;
    const uint32_t num_faults = ls->words.status.num_faults;
    const uint32_t state_before = words[ticket].head.state;
    CHECK_MSG(ls->words.status.flags & PST_FLAG_ORDER, "the overlap was not noticed");
    CHECK_EQ(ls->words.status.step_valid, 0);
    LS_TRY(ls_enqueue_stash(ls->tickets[ticket], &self->groups[0], ls->stream));
    LS_TRY(ls_enqueue_restore(ls->tickets[ticket], &self->groups[0], &keep, ls->stream));
    LS_TRY(pst_ticket_release(ls->tickets[ticket], ls->stream));
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    LS_TRY(ticket_words_read(ls->tickets[ticket], &words[ticket], ls->stream));
    CHECK_EQ(ls->words.status.num_faults, num_faults + 3);
    CHECK(ls->words.state.head[0] == before.head[0] && ls->words.state.tail[0] == before.tail[0]);
    CHECK_EQ(words[ticket].head.state, state_before);
    LS_TRY(pst_pool_reset(ls->pool, PST_RESET_PAGES, ls->stream)); /* ends the refusal */
    LS_TRY(pst_pool_reset(ls->pool, PST_RESET_FAULTS | PST_RESET_STATISTICS, ls->stream));
    oracle_reset(ls->oracle, PST_RESET_ALL);
    for (int i = 0; i < 2; i++) /* their restores may have been anything */
        ls_group_fill(ls, &self->groups[i], &self->random);
    ls_compare(ls);
    for (int i = 0; i < 2; i++)
        ls_stash(ls, self->tickets[i], &self->groups[i]);
    for (int i = 0; i < 2; i++)
        ls_restore(ls, self->tickets[i], &self->groups[1 - i], PST_RESTORE_CONSUME,
                   PST_TAIL_UNTOUCHED);
}

/* ---- two threads in an ordered pool ---- */

typedef struct rogue {
    scene *scene;
    int number;
    uint32_t *stop;
    uint32_t launches; /* of its graph; atomic */
    pst_status status;
} rogue;

/* A graph of the thread's own: a stash, another byte into the first row, a restore. */
static void *launch_graphs(void *opaque)
{
    rogue *self = opaque;
    lockstep *ls = &self->scene->ls;
    pst_ticket ticket = ls->tickets[self->scene->tickets[self->number]];
    ls_group *group = &self->scene->groups[self->number];
    pst_stream stream = NULL;
    pst_graph *graph = NULL;
    self->status = pst_stream_create(ls->device, &stream);
    if (self->status == PST_OK)
        self->status = pst_graph_begin(ls->device, stream);
    if (self->status == PST_OK)
        self->status = ls_enqueue_stash(ticket, group, stream);
    if (self->status == PST_OK)
        self->status =
            pst_device_fill(ls->device, group->arena + group->model.at[0], 0xcc, ROW_BYTES, stream);
    if (self->status == PST_OK)
        self->status = ls_enqueue_restore(ticket, group, NULL, stream);
    if (self->status == PST_OK)
        self->status = pst_graph_end(ls->device, stream, &graph);
    while (self->status == PST_OK && !__atomic_load_n(self->stop, __ATOMIC_ACQUIRE)) {
        self->status = pst_graph_launch(graph, stream);
        if (self->status == PST_OK)
            self->status = pst_stream_synchronize(ls->device, stream);
        __atomic_fetch_add(&self->launches, 1, __ATOMIC_RELAXED);
    }
    pst_graph_destroy(graph);
    pst_stream_destroy(ls->device, stream);
    return NULL;
}

static void *break_the_rules(void *opaque)
{
    rogue *self = opaque;
    lockstep *ls = &self->scene->ls;
    pst_ticket ticket = ls->tickets[self->scene->tickets[self->number]];
    ls_group *group = &self->scene->groups[self->number];
    pst_stream stream = NULL;
    self->status = pst_stream_create(ls->device, &stream);
    while (self->status == PST_OK && !__atomic_load_n(self->stop, __ATOMIC_ACQUIRE)) {
        self->status = ls_enqueue_stash(ticket, group, stream);
        if (self->status == PST_OK)
            self->status = ls_enqueue_restore(ticket, group, NULL, stream);
        if (self->status == PST_OK)
            self->status = pst_stream_synchronize(ls->device, stream);
    }
    pst_stream_destroy(ls->device, stream);
    return NULL;
}

static bool order_was_seen(lockstep *ls)
{
    uint32_t flags = 0;
    const time_t give_up = time(NULL) + SECONDS;
    while (!(flags & PST_FLAG_ORDER) && time(NULL) < give_up && !ls->failed) {
        sched_yield();
        LS_TRY(pst_device_copy(ls->device, &flags, &ls->pool->view.status->flags, sizeof(flags),
                               ls->stream));
        LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    }
    return flags & PST_FLAG_ORDER;
}

static void two_threads_are_noticed(const conf_run *conf, void *(*run)(void *opaque))
{
    static scene self;
    uint32_t stop = 0;
    rogue rogues[2];
    pthread_t threads[2];
    if (!set_up(&self, conf, PST_POOL_ORDERED, conf->is_slow ? 16 : 120))
        return;
    for (int i = 0; i < 2; i++) {
        rogues[i] = (rogue){.scene = &self, .number = i, .stop = &stop};
        CHECK_EQ(pthread_create(&threads[i], NULL, run, &rogues[i]), 0);
    }
    const bool seen = order_was_seen(&self.ls);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(rogues[i].status, PST_OK);
    }
    CHECK_MSG(seen, "not noticed within %d seconds", SECONDS);
    refuse_and_mend(&self);
    tear_down(&self);
}

/* Fault rows 30, 31. */
CONFORMANCE_OVERLAPPING(Overlap, TwoThreadsInAnOrderedPoolAreNoticed)
{
    two_threads_are_noticed(conf, break_the_rules);
}

/* Fault rows 36. */
CONFORMANCE_OVERLAPPING(Overlap, TwoGraphsOfAnOrderedPoolAreNoticed)
{
    two_threads_are_noticed(conf, launch_graphs);
}

/* Fault rows 36. */
CONFORMANCE(Overlap, TwoGraphsOfAConcurrentPoolAreRight)
{
    enum { LAUNCHES = 20 };
    static scene self;
    lockstep *ls = &self.ls;
    uint32_t stop = 0;
    rogue rogues[2];
    pthread_t threads[2];
    if (!set_up(&self, conf, PST_POOL_CONCURRENT, conf->is_slow ? 16 : 120))
        return;
    for (int i = 0; i < 2; i++) {
        rogues[i] = (rogue){.scene = &self, .number = i, .stop = &stop};
        CHECK_EQ(pthread_create(&threads[i], NULL, launch_graphs, &rogues[i]), 0);
    }
    const time_t give_up = time(NULL) + SECONDS;
    for (int i = 0; i < 2; i++)
        while (__atomic_load_n(&rogues[i].launches, __ATOMIC_RELAXED) < LAUNCHES &&
               time(NULL) < give_up)
            sched_yield();
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(rogues[i].status, PST_OK);
        CHECK(rogues[i].launches >= LAUNCHES);
        ls_group_compare(ls, &self.groups[i]); /* what came back is what was there */
    }
    LS_TRY(pst_pool_check(ls->pool, ls->stream));
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    CHECK_EQ(ls->words.status.flags, 0);
    CHECK_EQ(ls->words.state.tail[0] - ls->words.state.head[0], POOL_PAGES);
    LS_TRY(pst_pool_reset(ls->pool, PST_RESET_ALL, ls->stream)); /* where its ring stands */
    oracle_reset(ls->oracle, PST_RESET_ALL);
    tear_down(&self);
}

/* ---- one operation in the middle of another ---- */

typedef enum operation { STASH, RESTORE, KEEP, DEMOTE, RELEASE, OPERATIONS } operation;

/* The inner operation runs from beginning to end at one event of the outer: before or after one of
 * its blocks. */
typedef struct nesting {
    scene *scene;
    operation outer, inner;
    uint32_t inner_ticket; /* 0: that of the outer */
    uint32_t event;
    uint32_t seen; /* events so far */
} nesting;

static pst_status enqueue(scene *self, operation what, uint32_t i)
{
    lockstep *ls = &self->ls;
    pst_ticket ticket = ls->tickets[self->tickets[i]];
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    options.pages = what == KEEP ? PST_RESTORE_KEEP : PST_RESTORE_CONSUME;
    if (what == STASH)
        return ls_enqueue_stash(ticket, &self->groups[i], ls->stream);
    if (what == RELEASE)
        return pst_ticket_release(ticket, ls->stream);
    if (what == DEMOTE)
        return pst_ticket_demote(ticket, NULL, ls->stream);
    return ls_enqueue_restore(ticket, &self->groups[i], &options, ls->stream);
}

static void expect(scene *self, operation what, uint32_t i)
{
    oracle_pool *oracle = self->ls.oracle;
    ls_group *group = &self->groups[i];
    if (what == STASH)
        oracle_stash(oracle, self->tickets[i], &group->model, group->values);
    else if (what == RELEASE)
        oracle_release(oracle, self->tickets[i]);
    else if (what == DEMOTE)
        oracle_migrate(oracle, self->tickets[i], false, 0);
    else
        oracle_restore(oracle, self->tickets[i], &group->model,
                       what == KEEP ? PST_RESTORE_KEEP : PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
}

static void hook(uint32_t block, int at_start, void *user)
{
    nesting *self = user;
    lockstep *ls = &self->scene->ls;
    (void)block;
    (void)at_start;
    if (__atomic_fetch_add(&self->seen, 1, __ATOMIC_RELAXED) == self->event)
        LS_TRY(enqueue(self->scene, self->inner, self->inner_ticket));
}

/* Both tickets as the operations want them: live, or empty for a stash. */
static void prepare(nesting *self)
{
    scene *both = self->scene;
    for (uint32_t i = 0; i < 2; i++) {
        const bool wants_live =
            i == self->inner_ticket && i > 0 ? self->inner != STASH : self->outer != STASH;
        ls_group_fill(&both->ls, &both->groups[i], &both->random);
        if (wants_live)
            ls_stash(&both->ls, both->tickets[i], &both->groups[i]);
    }
}

/* Runs the outer operation with the inner at the event; false when it has no such event. */
static bool nest(nesting *self)
{
    lockstep *ls = &self->scene->ls;
    self->seen = 0;
    simt_set_block_hook(hook, self);
    LS_TRY(enqueue(self->scene, self->outer, 0));
    simt_set_block_hook(NULL, NULL);
    return self->event < self->seen;
}

/* In a concurrent pool two tickets may overlap as they like. A stash takes its pages when its
 * first block runs, the others give theirs back when the last one does. (Demote does both, in
 * rings that only another demote has to do with in the same way: no order of the two explains
 * two that overlap.) */
static void try_concurrent(scene *both, operation outer, operation inner, uint32_t seed)
{
    lockstep *ls = &both->ls;
    for (uint32_t event = 0; !ls->failed; event += psti_test_step(3)) {
        nesting self = {
            .scene = both, .outer = outer, .inner = inner, .inner_ticket = 1, .event = event};
        const simt_config config = {.seed = seed + event, .residency = 1};
        psti_simt_configure(&config);
        prepare(&self);
        const bool nested = nest(&self);
        const bool inner_first =
            outer == STASH ? event == 0 : event + 1 < self.seen; /* as far as pages go */
        for (int i = 0; i < 2; i++) {
            const bool is_inner = i == (inner_first ? 0 : 1);
            if (!is_inner || nested)
                expect(both, is_inner ? inner : outer, is_inner);
        }
        ls_compare(ls);
        ls_group_compare(ls, &both->groups[0]);
        ls_group_compare(ls, &both->groups[1]);
        for (int i = 0; i < 2 && !ls->failed; i++)
            if (ls->oracle->tickets[both->tickets[i]].state == ORACLE_LIVE)
                ls_restore(ls, both->tickets[i], &both->groups[i], PST_RESTORE_CONSUME,
                           PST_TAIL_UNTOUCHED);
        CHECK_EQ(ls->oracle->status.flags, 0);
        if (!nested) {
            CHECK(event >= 2);
            return;
        }
    }
}

CONFORMANCE_SIMT(Overlap, TicketsOfAConcurrentPoolOverlapAsTheyLike)
{
    static scene self;
    if (!set_up(&self, conf, PST_POOL_CONCURRENT, 21))
        return;
    for (uint32_t seed = 1; seed <= conf_cases(conf, 16); seed++)
        for (operation outer = STASH; outer < OPERATIONS; outer++)
            for (operation inner = STASH; inner < OPERATIONS; inner++)
                if (outer != DEMOTE || inner != DEMOTE)
                    try_concurrent(&self, outer, inner, seed);
    tear_down(&self);
}

/* Against the rules. Only before the first block and after the last is it no overlap. */
static void try_forbidden(scene *both, operation outer, operation inner, uint32_t inner_ticket)
{
    lockstep *ls = &both->ls;
    for (uint32_t event = 1; !ls->failed; event++) {
        nesting self = {.scene = both,
                        .outer = outer,
                        .inner = inner,
                        .inner_ticket = inner_ticket,
                        .event = event};
        const simt_config config = {.seed = event, .residency = 1};
        psti_simt_configure(&config);
        prepare(&self);
        if (!nest(&self) || self.seen == event + 1) {
            CHECK(event > 2 || outer == RELEASE); /* release has one block, two events */
            LS_TRY(pst_pool_reset(ls->pool, PST_RESET_ALL, ls->stream));
            oracle_reset(ls->oracle, PST_RESET_ALL);
            for (int i = 0; i < 2; i++)
                ls_group_fill(ls, &both->groups[i], &both->random);
            return;
        }
        refuse_and_mend(both);
        CHECK_MSG(!psti_test_failed(), "operation %d in %d at event %u, ticket %u", inner, outer,
                  event, inner_ticket);
    }
}

CONFORMANCE_SIMT_NO_TSAN(Overlap, OperationsOfAnOrderedPoolAreNoticed)
{
    static scene self;
    if (!set_up(&self, conf, PST_POOL_ORDERED, 21))
        return;
    for (operation outer = STASH; outer < OPERATIONS; outer++)
        for (operation inner = STASH; inner < OPERATIONS; inner++)
            for (uint32_t ticket = 0; ticket < 2; ticket++)
                try_forbidden(&self, outer, inner, ticket);
    tear_down(&self);
}

CONFORMANCE_SIMT_NO_TSAN(Overlap, OperationsOfOneTicketAreNoticed)
{
    static scene self;
    if (!set_up(&self, conf, PST_POOL_CONCURRENT, 21))
        return;
    for (operation outer = STASH; outer < OPERATIONS; outer++)
        for (operation inner = STASH; inner < OPERATIONS; inner++)
            try_forbidden(&self, outer, inner, 0);
    tear_down(&self);
}

/* With two slots the inner operation may run from beginning to end while blocks of the outer are at
 * any point, also after all of them have begun. It is noticed, or it was as good as one after the
 * other. */
static void try_with_two_slots(scene *both, operation outer, operation inner, uint32_t seed)
{
    lockstep *ls = &both->ls;
    nesting self = {
        .scene = both, .outer = outer, .inner = inner, .inner_ticket = 1, .event = seed % 8};
    const simt_config config = {.seed = seed, .residency = 2};
    prepare(&self);
    psti_simt_configure(&config);
    nest(&self);
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    for (int i = 0; i < 2; i++)
        LS_TRY(ticket_words_read(ls->tickets[both->tickets[i]], &ls->words_of[both->tickets[i]],
                                 ls->stream));
    if (!(ls->words.status.flags & PST_FLAG_ORDER)) {
        CHECK_EQ(ls->words.status.flags, 0);
        CHECK_EQ(pool_words_violations(ls->pool, &ls->words, ls->words_of, LS_MAX_TICKETS), 0);
    }
    LS_TRY(pst_pool_reset(ls->pool, PST_RESET_ALL, ls->stream));
    oracle_reset(ls->oracle, PST_RESET_ALL);
}

CONFORMANCE_SIMT_NO_TSAN(Overlap, NothingGoesUnnoticedWithTwoSlots)
{
    static scene self;
    if (!set_up(&self, conf, PST_POOL_ORDERED, 21))
        return;
    for (uint32_t seed = 1; seed <= psti_test_cases(80) && !psti_test_failed(); seed++)
        for (operation outer = STASH; outer < RELEASE; outer++)
            for (operation inner = STASH; inner < OPERATIONS && !psti_test_failed(); inner++)
                try_with_two_slots(&self, outer, inner, seed);
    tear_down(&self);
}
