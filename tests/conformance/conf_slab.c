/* Tickets that a pool lends: who gets which, when, and in what state. */
#include "tests/conformance/conf.h"

#include <stdlib.h>

enum { ROWS = 16, ROW_BYTES = 4096, FULL = 4 /* pages of a group at capacity */ };

static bool set_up(conf_pair *self, const conf_run *conf, pst_pool_mode mode, uint64_t lent)
{
    const shape like = conf_prefix_shape(1, ROWS, ROW_BYTES);
    ls_options options = conf_options(mode, 40, lent);
    options.num_host_pages = 4;
    options.slab_tickets = (uint32_t)lent;
    if (!conf_pair_open(self, conf, &options, &like, NULL, 0))
        return false;
    self->tickets[0] = ls_ticket_take(&self->ls, false);
    return !self->ls.failed;
}

/* In a pool that lends so many tickets, of which the first is taken. */
#define SLAB(name, lent) CONF_BOTH_MODES(CONFORMANCE, Slab, name, set_up, lent)

SLAB(GivenBackATicketIsTakenAgainAtOnce, 1)
{
    lockstep *ls = &self->ls;
    for (int again = 0; again < 5; again++) {
        const pst_ticket old = ls->tickets[self->tickets[0]];
        CHECK_EQ(ls_ticket_take(ls, true), UINT32_MAX); /* there is one only */
        if (again % 2)
            ls_set_offload(ls, self->tickets[0], 1, 1); /* is not the next owner's */
        conf_pair_stash(self, 0, again * 4);
        conf_pair_restore(self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
        const uint32_t index = self->tickets[0];
        ls_ticket_give(ls, index);
        self->tickets[0] = ls_ticket_take(ls, false);
        CHECK_EQ(self->tickets[0], index);
        CHECK(ls->tickets[index].id != old.id);
    }
    CHECK_EQ(ls->oracle->status.flags, 0);
}

/* A handle of an earlier owner, everywhere. */
static void use_stale(conf_pair *self, pst_ticket stale)
{
    lockstep *ls = &self->ls;
    CHECK_STATUS(ls_enqueue_stash(stale, &self->source, ls->stream), PST_E_INVALID);
    CHECK_STATUS(ls_enqueue_restore(stale, &self->destination, NULL, ls->stream), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_release(stale, ls->stream), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_demote(stale, NULL, ls->stream), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_promote(stale, NULL, ls->stream), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_set_offload(stale, 0, 1), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_give(stale, ls->stream), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_destroy(stale), PST_E_INVALID);
    CHECK_EQ(pst_ticket_index(stale), UINT32_MAX);
}

/* Fault rows 21. */
SLAB(StaleHandlesAreInvalid, 1)
{
    lockstep *ls = &self->ls;
    pst_ticket owners[4];
    for (int i = 0; i < 4; i++) {
        owners[i] = ls->tickets[self->tickets[0]];
        ls_ticket_give(ls, self->tickets[0]);
        self->tickets[0] = ls_ticket_take(ls, false);
        conf_pair_stash(self, 0, 3 + i);
        for (int old = 0; old <= i; old++)
            use_stale(self, owners[old]);
        use_stale(self, (pst_ticket){.id = owners[i].id + 1});
        use_stale(self, (pst_ticket){.id = UINT64_MAX});
        conf_pair_restore(self, 0, PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED);
    }
    CHECK_STATUS(pst_ticket_destroy(ls->tickets[self->tickets[0]]), PST_E_INVALID);
    const uint32_t made = ls_ticket_make(ls, &self->source);
    CHECK_STATUS(pst_ticket_give(ls->tickets[made], ls->stream), PST_E_INVALID);
    CHECK_OK(pst_ticket_give((pst_ticket){0}, ls->stream));
    CHECK_OK(pst_ticket_destroy((pst_ticket){0}));
}

/* ---- what an owner leaves behind ---- */

static void leave_stashed(conf_pair *self)
{
    conf_pair_stash(self, 0, ROWS);
}

static void leave_kept(conf_pair *self)
{
    conf_pair_stash(self, 0, ROWS);
    conf_pair_restore(self, 0, PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED);
}

static void leave_moved(conf_pair *self)
{
    conf_pair_stash(self, 0, ROWS);
    ls_demote(&self->ls, self->tickets[0], 2);
}

static void leave_failed(conf_pair *self)
{
    conf_pair_stash(self, 0, ROWS + 1);
}

/* Consumed into rows of another length: the ticket stays live. */
static void leave_after_another_form(conf_pair *self)
{
    lockstep *ls = &self->ls;
    const shape other = conf_prefix_shape(1, ROWS, ROW_BYTES / 2);
    ls_group stranger;
    ls_group_make(ls, &other, &self->random, &stranger);
    conf_pair_stash(self, 0, ROWS);
    ls_restore(ls, self->tickets[0], &stranger, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    ls_group_free(ls, &stranger);
}

static void leave_after_too_small_a_destination(conf_pair *self)
{
    conf_pair_stash(self, 0, ROWS);
    self->destination.model.capacities[0] = ROWS - 1;
    conf_pair_restore(self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    self->destination.model.capacities[0] = 0;
}

/* A second stash of another form finds it live, and so does the restore that would fit it. */
static void leave_after_two_forms(conf_pair *self)
{
    lockstep *ls = &self->ls;
    const shape other = conf_prefix_shape(1, ROWS, ROW_BYTES / 2);
    const int64_t rows = 5;
    ls_group stranger;
    ls_group_make(ls, &other, &self->random, &stranger);
    ls_group_set_counts(ls, &stranger, &rows);
    conf_pair_stash(self, 0, ROWS);
    ls_stash(ls, self->tickets[0], &stranger);
    ls_restore(ls, self->tickets[0], &stranger, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    ls_group_free(ls, &stranger);
}

/* The first stash fails, so that the second is what it holds, and the first one's form not. */
static void leave_after_a_failure_and_another_form(conf_pair *self)
{
    lockstep *ls = &self->ls;
    const shape other = conf_prefix_shape(1, ROWS, ROW_BYTES / 2);
    const int64_t rows = 5;
    ls_group stranger;
    ls_group_make(ls, &other, &self->random, &stranger);
    ls_group_set_counts(ls, &stranger, &rows);
    conf_pair_stash(self, 0, -1);
    ls_stash(ls, self->tickets[0], &stranger);
    conf_pair_restore(self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    ls_group_free(ls, &stranger);
}

/* One form and less room. */
static void leave_after_two_capacities(conf_pair *self)
{
    conf_pair_stash(self, 0, ROWS);
    self->source.model.capacities[0] = self->destination.model.capacities[0] = 3;
    conf_pair_stash(self, 0, 2);
    conf_pair_restore(self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    self->source.model.capacities[0] = self->destination.model.capacities[0] = 0;
}

static void (*const leave[])(conf_pair *self) = {
    leave_stashed,
    leave_kept,
    leave_moved,
    leave_failed,
    leave_after_another_form,
    leave_after_too_small_a_destination,
    leave_after_two_forms,
    leave_after_a_failure_and_another_form,
    leave_after_two_capacities,
};

/* Whatever it was: nothing is held afterwards, that is no fault, and the next owner begins anew. */
/* Fault rows 20. */
SLAB(GivingBackFreesWhatIsHeld, 1)
{
    lockstep *ls = &self->ls;
    const uint32_t step = psti_test_step(5);
    for (size_t i = 0; i < 2 * sizeof(leave) / sizeof(leave[0]); i += step) {
        ls->by_graph = i % 2;
        leave[i / 2](self);
        ls->by_graph = false;
        const uint32_t faults = ls->oracle->status.num_faults;
        ls_ticket_give(ls, self->tickets[0]);
        CHECK_EQ(ls->oracle->num_free[0], 40);
        CHECK_EQ(ls->words.status.num_faults, faults);
        self->tickets[0] = ls_ticket_take(ls, false);
        conf_pair_stash(self, 0, 7);
        conf_pair_restore(self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
        CHECK_MSG(ls->words.status.num_faults == faults && !ls->failed, "after way %zu", i);
        ls_reset(ls, PST_RESET_FAULTS);
    }
}

/* The check goes through the directory: tickets that it does not find hold pages that are nobody's. */
SLAB(AllAreInTheDirectory, 4)
{
    lockstep *ls = &self->ls;
    uint32_t tickets[4] = {self->tickets[0]};
    const int64_t rows = ROWS;
    for (int i = 1; i < 4; i++)
        tickets[i] = ls_ticket_take(ls, false);
    ls_group_set_counts(ls, &self->source, &rows);
    for (int i = 0; i < 4; i++)
        ls_stash(ls, tickets[i], &self->source);
    ls_check(ls);
    CHECK_EQ(ls->oracle->num_free[0], 40 - 4 * FULL);
}

/* ---- forms ---- */

/* Groups of several forms, one after the other, through one ticket that has room for all. */
CONFORMANCE(Slab, OneTicketServesGroupsOfManyForms)
{
    enum { FORMS = 6 };
    static lockstep ls;
    CONF_EACH_MODE (mode) {
        oracle_random random = oracle_random_seeded(mode + 3u);
        ls_group groups[FORMS];
        ls_options options = conf_options(mode, 200, 0);
        options.slab_tickets = 2;
        options.slab_counts = PST_MAX_SEGMENTS;
        if (!ls_open(&ls, conf->device, &options))
            return;
        const uint32_t ticket = ls_ticket_take(&ls, false);
        for (uint32_t i = 0; i < FORMS; i++) {
            shape like;
            do
                shape_make(&random, (shape_theme)oracle_random_below(&random, SHAPE_THEMES), 20000,
                           &like);
            while (oracle_num_counts(&like.group) > PST_MAX_SEGMENTS);
            ls_group_make(&ls, &like, &random, &groups[i]);
        }
        for (uint32_t i = 0; i < FORMS * FORMS && !ls.failed; i += psti_test_step(5)) {
            ls_group *source = &groups[i % FORMS], *other = &groups[i / FORMS];
            ls_group_random_counts(&ls, source, COUNTS_RANDOM, &random);
            ls_stash(&ls, ticket, source);
            ls_restore(&ls, ticket, other, PST_RESTORE_CONSUME, PST_TAIL_ZERO_ALL);
            CHECK_EQ(ls.oracle->tickets[ticket].state,
                     source == other ? ORACLE_EMPTY : ORACLE_LIVE);
            if (source != other)
                ls_restore(&ls, ticket, source, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
        }
        CHECK_EQ(ls.oracle->status.flags, 1u << PST_FAULT_FORM);
        for (uint32_t i = 0; i < FORMS; i++)
            ls_group_free(&ls, &groups[i]);
        ls_close(&ls);
    }
}

/* ---- streams and graphs ---- */

static void wait_for(conf_pair *self, pst_stream stream)
{
    CHECK_OK(pst_stream_synchronize(self->ls.device, stream));
}

SLAB(OtherStreamsWaitForAStep, 2)
{
    lockstep *ls = &self->ls;
    pst_stream other;
    pst_ticket borrowed = {0};
    CHECK_OK(pst_stream_create(ls->device, &other));
    const uint32_t second = ls_ticket_take(ls, false);
    ls_stash(ls, second, &self->source);
    ls_step(ls); /* before it is given: covers nothing */
    ls_ticket_give(ls, second);
    CHECK_STATUS(pst_ticket_take(ls->pool, other, &borrowed), PST_E_BUSY);
    ls_step(ls);
    CHECK_OK(pst_ticket_take(ls->pool, other, &borrowed));
    CHECK_EQ(pst_ticket_index(borrowed), second);
    CHECK_EQ(ls_ticket_take(ls, true), UINT32_MAX);
    CHECK_OK(pst_ticket_give(borrowed, other));
    CHECK_EQ(ls_ticket_take(ls, true), UINT32_MAX);
    CHECK_OK(pst_ticket_take(ls->pool, other, &borrowed)); /* its own at once */
    CHECK_OK(pst_ticket_give(borrowed, other));
    wait_for(self, other);
    CHECK_OK(pst_stream_destroy(ls->device, other));
    CHECK_EQ(ls->oracle->status.flags, 0);
}

/* Taken and given within a capture, the same ticket serves again and again; outside it is there
 * again when the graph is gone, and what the last replay left in it is nobody's fault. */
SLAB(TakenWithinACapture, 2)
{
    lockstep *ls = &self->ls;
    const int64_t rows = ROWS - 2;
    uint32_t first = UINT32_MAX;
    pst_ticket taken = {0}, outside = {0};
    ls_group_set_counts(ls, &self->source, &rows);
    conf_graph_begin(ls);
    for (int again = 0; again < 4; again++) {
        CHECK_OK(pst_ticket_take(ls->pool, ls->stream, &taken));
        CHECK(again == 0 || pst_ticket_index(taken) == first);
        first = pst_ticket_index(taken);
        CHECK_OK(ls_enqueue_stash(taken, &self->source, ls->stream));
        if (again < 3) {
            CHECK_OK(ls_enqueue_restore(taken, &self->destination, NULL, ls->stream));
            CHECK_OK(pst_ticket_give(taken, ls->stream));
        }
    }
    pst_graph *graph = conf_graph_end(ls);
    CHECK_STATUS(pst_ticket_take(ls->pool, ls->stream, &outside), PST_E_BUSY);
    for (int replay = 0; replay < 2; replay++) {
        ls_group_fill(ls, &self->source, &self->random);
        LS_TRY(pst_graph_launch(graph, ls->stream));
        oracle_stash(ls->oracle, first, &self->source.model, self->source.values);
        oracle_restore(ls->oracle, first, &self->destination.model, PST_RESTORE_CONSUME,
                       PST_TAIL_UNTOUCHED);
        ls_group_compare(ls, &self->destination);
        LS_TRY(pst_ticket_release(taken, ls->stream)); /* each replay leaves it live */
    }
    LS_TRY(pst_graph_launch(graph, ls->stream));
    wait_for(self, ls->stream);
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_ticket_give(taken, ls->stream)); /* was never given back in the capture */
    CHECK_OK(pst_ticket_take(ls->pool, ls->stream, &outside));
    CHECK_EQ(pst_ticket_index(outside), first);
    CHECK_OK(ls_enqueue_stash(outside, &self->source, ls->stream));
    CHECK_OK(ls_enqueue_restore(outside, &self->destination, NULL, ls->stream));
    CHECK_OK(pst_ticket_give(outside, ls->stream));
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    CHECK_EQ(ls->words.status.num_faults, 0);
    LS_TRY(pst_pool_reset(ls->pool, PST_RESET_ALL, ls->stream));
    oracle_reset(ls->oracle, PST_RESET_ALL);
}

/* The graph gives the ticket back in the capture, but its last replay was cut off: whatever that
 * left is gone before the next owner's first stash. */
SLAB(ReturnedByAGraphThatIsDestroyed, 2)
{
    lockstep *ls = &self->ls;
    const int64_t rows = ROWS;
    pst_ticket taken = {0}, next = {0};
    ls_group_set_counts(ls, &self->source, &rows);
    CHECK_OK(pst_ticket_take(ls->pool, ls->stream, &taken));
    const uint32_t index = pst_ticket_index(taken);
    conf_graph_begin(ls); /* the stash alone, in a graph of its own */
    CHECK_OK(ls_enqueue_stash(taken, &self->source, ls->stream));
    pst_graph *stash = conf_graph_end(ls);
    conf_graph_begin(ls);
    CHECK_OK(ls_enqueue_restore(taken, &self->destination, NULL, ls->stream));
    CHECK_OK(pst_ticket_give(taken, ls->stream));
    pst_graph *restore = conf_graph_end(ls);
    LS_TRY(pst_graph_launch(stash, ls->stream)); /* and the restore never runs */
    wait_for(self, ls->stream);
    CHECK_STATUS(pst_ticket_take(ls->pool, ls->stream, &next), PST_E_BUSY);
    CHECK_OK(pst_graph_destroy(restore));
    CHECK_STATUS(pst_ticket_take(ls->pool, ls->stream, &next), PST_E_BUSY);
    CHECK_OK(pst_graph_destroy(stash));
    CHECK_OK(pst_ticket_take(ls->pool, ls->stream, &next));
    CHECK_EQ(pst_ticket_index(next), index);
    ls_group_fill(ls, &self->source, &self->random);
    CHECK_OK(ls_enqueue_stash(next, &self->source, ls->stream));
    CHECK_OK(ls_enqueue_restore(next, &self->destination, NULL, ls->stream));
    oracle_stash(ls->oracle, index, &self->source.model, self->source.values);
    oracle_restore(ls->oracle, index, &self->destination.model, PST_RESTORE_CONSUME,
                   PST_TAIL_UNTOUCHED);
    ls_group_compare(ls, &self->destination);
    CHECK_OK(pst_ticket_give(next, ls->stream));
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    CHECK_EQ(ls->words.status.num_faults, 0);
    LS_TRY(pst_pool_reset(ls->pool, PST_RESET_ALL, ls->stream));
    oracle_reset(ls->oracle, PST_RESET_ALL);
}
