/* Graphs of another schedule: a number that is not the expected one is a fault, and the pool refuses until
 * the step ends. */
#include "tests/conformance/conf.h"

enum { ROW_BYTES = 5000, ROWS = 40, NOW = 7 };

static bool set_up(conf_pair *self, const conf_run *conf, pst_pool_mode mode, uint64_t num_pages)
{
    const shape like = conf_prefix_shape(2, ROWS, ROW_BYTES);
    ls_options options = conf_options(mode, num_pages, 1);
    options.num_host_pages = 12;
    options.scrub = mode == PST_POOL_CONCURRENT;
    return conf_pair_open(self, conf, &options, &like, NULL, 3);
}

#define SCHEDULE(name) CONF_BOTH_MODES(CONFORMANCE, Schedule, name, set_up, 40)

/* What a pool that refuses does nothing about: ticket 0 is live, 1 empty, 2 failed. */
static void operate(conf_pair *self)
{
    lockstep *ls = &self->ls;
    conf_pair_stash(self, 1, 9);
    conf_pair_stash(self, 0, 9);
    conf_pair_stash(self, 2, 9);
    for (int ticket = 0; ticket < 3; ticket++) {
        ls_demote(ls, self->tickets[ticket], 0);
        ls_promote(ls, self->tickets[ticket], 0);
        conf_pair_restore(self, ticket, PST_RESTORE_KEEP, PST_TAIL_ZERO);
        conf_pair_restore(self, ticket, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
        ls_release(ls, self->tickets[ticket]);
    }
}

/* Tickets as operate says; no fault is left. */
static void arrange(conf_pair *self)
{
    lockstep *ls = &self->ls;
    const int64_t good = 9;
    int64_t bad = ROWS + 1;
    ls_set_offload(ls, self->tickets[0], 1, 2);
    conf_pair_stash(self, 0, 20);
    ls_group_set_counts(ls, &self->source, &bad);
    ls_stash(ls, self->tickets[2], &self->source);
    ls_group_set_counts(ls, &self->source, &good);
    ls_reset(ls, PST_RESET_FAULTS);
}

SCHEDULE(AnotherNumberIsAFaultAndThePoolRefuses)
{
    lockstep *ls = &self->ls;
    const uint64_t found = UINT64_C(3) << 40;
    arrange(self);
    ls_expect(ls, NOW, NOW);
    CHECK_EQ(ls->words.status.flags, 0);
    ls_expect(ls, found, NOW);
    CHECK_EQ(ls->words.status.flags, 1u << PST_FAULT_SCHEDULE);
    CHECK_EQ(ls->words.status.fault, PST_FAULT_SCHEDULE);
    CHECK_EQ(ls->words.status.fault_ticket, UINT32_MAX);
    CHECK_EQ(ls->words.status.fault_wanted, found);
    CHECK_EQ(ls->words.status.fault_free[0], NOW);
    CHECK_EQ(ls->words.status.fault_free[1], 0);
    CHECK_EQ(ls->words.status.step_valid, 0);
    operate(self);
    ls_expect(ls, NOW, NOW); /* ends nothing */
    operate(self);
    CHECK_EQ(ls->words.status.num_faults, 1);
    ls_expect(ls, NOW + 1, NOW);
    CHECK_EQ(ls->words.status.num_faults, 2);
    CHECK_EQ(ls->words.status.fault_wanted, found); /* the first stays */
    CHECK_EQ(ls->oracle->tickets[self->tickets[0]].state, ORACLE_LIVE);
    CHECK_EQ(ls->oracle->tickets[self->tickets[2]].state, ORACLE_FAILED);
    ls_step(ls);
    CHECK_EQ(ls->published.step_valid, 0);
    CHECK_EQ(ls->words.status.step_valid, 1);
    conf_pair_restore(self, 0, PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED);
    CHECK_EQ(ls->words.status.num_faults, 2);
    operate(self);
}

SCHEDULE(AStepOrAResetOfFaultsOrPagesEndsTheRefusal)
{
    lockstep *ls = &self->ls;
    for (uint32_t what = 0; what <= PST_RESET_ALL && !ls->failed; what++) {
        arrange(self);
        ls_expect(ls, 1, NOW);
        if (what)
            ls_reset(ls, what);
        else
            ls_step(ls);
        const bool is_over = what != PST_RESET_STATISTICS;
        conf_pair_stash(self, 1, 5);
        CHECK_EQ(ls->oracle->tickets[self->tickets[1]].state, is_over ? ORACLE_LIVE : ORACLE_EMPTY);
        ls_reset(ls, PST_RESET_ALL);
    }
}

/* Nothing is copied, so the destination is cleared if that was asked for. */
SCHEDULE(ADestinationIsClearedIfThatIsAsked)
{
    lockstep *ls = &self->ls;
    for (int failed = PST_FAILED_UNTOUCHED; failed <= PST_FAILED_ZERO; failed++) {
        arrange(self);
        ls_expect(ls, 1, NOW);
        ls_group_poison(ls, &self->destination, 0xcc);
        ls_group_mark_dirty(ls, &self->destination);
        ls_restore_as(ls, self->tickets[0], &self->destination, PST_RESTORE_CONSUME, PST_TAIL_ZERO,
                      (pst_restore_failed)failed);
        const unsigned char first = self->destination.model.image[self->destination.model.at[0]];
        CHECK_EQ(first, failed == PST_FAILED_ZERO ? 0 : 0xcc);
        ls_step(ls);
        conf_pair_restore(self, 0, PST_RESTORE_CONSUME, PST_TAIL_ZERO);
        ls_reset(ls, PST_RESET_ALL);
    }
}

/* An ORDER refusal stays: the step ends only the other. */
SCHEDULE(AnOrderRefusalStaysUntilAResetOfPages)
{
    lockstep *ls = &self->ls;
    arrange(self);
    ls->skip_checks = true;
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    ls->words.state.refuse |= PSTI_REFUSES_ORDER;
    LS_TRY(pool_words_write(ls->pool, &ls->words, ls->stream));
    ls->oracle->refuses = true;
    ls_expect(ls, 1, NOW);
    conf_pair_stash(self, 1, 5);
    CHECK(ls->words.status.flags & PST_FLAG_ORDER);
    ls_step(ls);
    ls_reset(ls, PST_RESET_FAULTS);
    conf_pair_stash(self, 1, 5);
    CHECK_EQ(ls->words.status.flags, PST_FLAG_ORDER);
    ls->skip_checks = false;
    ls_reset(ls, PST_RESET_ALL);
    conf_pair_stash(self, 1, 5);
    CHECK_EQ(ls->words.status.flags, 0);
}

/* One graph of expect, stash, restore and step, whose number becomes another one and comes back. */
SCHEDULE(AGraphOfAnotherScheduleDoesNothing)
{
    lockstep *ls = &self->ls;
    const pst_ticket ticket = ls->tickets[self->tickets[1]];
    pst_restore_options options =
        ls_restore_options(&self->destination, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    uint64_t *word = NULL;
    void *memory = NULL;
    options.failed = PST_FAILED_ZERO;
    CHECK_OK(pst_device_alloc_pinned(ls->device, sizeof(*word), &memory));
    word = memory;
    conf_graph_begin(ls);
    LS_TRY(psti_pool_expect(ls->pool, word, NOW, ls->stream));
    LS_TRY(ls_enqueue_stash(ticket, &self->source, ls->stream));
    LS_TRY(ls_enqueue_restore(ticket, &self->destination, &options, ls->stream));
    LS_TRY(pst_pool_step(ls->pool, ls->stream));
    pst_graph *graph = conf_graph_end(ls);
    CHECK_STATUS(pst_pool_resize(ls->pool, 3, 3), PST_E_BUSY); /* the graph holds the pool */
    arrange(self);
    for (uint64_t round = 0; round < 6 && !ls->failed; round++) {
        const int64_t rows = 10 + (int64_t)round;
        *word = round % 3 == 1 ? NOW + round : NOW;
        ls_group_fill(ls, &self->source, &self->random);
        ls_group_set_counts(ls, &self->source, &rows);
        ls_group_poison(ls, &self->destination, 0xcc);
        LS_TRY(pst_graph_launch(graph, ls->stream));
        oracle_expect(ls->oracle, *word, NOW);
        oracle_stash(ls->oracle, self->tickets[1], &self->source.model, self->source.values);
        oracle_restore_as(ls->oracle, self->tickets[1], &self->destination.model,
                          PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED, PST_FAILED_ZERO);
        oracle_step(ls->oracle, &ls->published);
        LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
        pst_pool_status polled;
        LS_TRY(pst_pool_poll(ls->pool, &polled));
        ls_compare_status(ls, &polled, &ls->published);
        CHECK_EQ(polled.step_valid, round % 3 != 1);
        ls_compare(ls);
        ls_group_compare(ls, &self->destination);
    }
    CHECK_EQ(ls->words.status.num_faults, 2);
    conf_pair_restore(self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED); /* was live all the time */
    CHECK_EQ(ls->words.status.num_faults, 2);
    conf_graph_destroy(ls, graph);
    CHECK_OK(pst_device_free_pinned(ls->device, memory));
}

/* Whatever of it was refused, a lent ticket holds nothing when it is lent again. */
CONFORMANCE(Schedule, ALentTicketIsFreedThatIsGivenBack)
{
    CONF_EACH_MODE (mode) {
        static conf_pair self;
        lockstep *ls = &self.ls;
        const shape like = conf_prefix_shape(2, ROWS, ROW_BYTES);
        ls_options options = conf_options(mode, 40, 1);
        options.slab_tickets = 1;
        options.slab_counts = 4;
        CHECK(conf_pair_open(&self, conf, &options, &like, NULL, 0));
        for (uint64_t round = 0; round < 4 && !ls->failed; round++) {
            self.tickets[0] = ls_ticket_take(ls, false);
            if (round == 0)
                ls_expect(ls, NOW, NOW);
            conf_pair_stash(&self, 0, 20);
            if (round != 1)
                ls_expect(ls, round, NOW);
            if (round % 2)
                conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
            else
                ls_release(ls, self.tickets[0]);
            if (round == 3)
                ls_step(ls);
            ls_ticket_give(ls, self.tickets[0]);
            ls_step(ls);
            CHECK_EQ(ls->published.in_use[0], 0);
        }
        CHECK(!ls->failed);
        conf_pair_close(&self);
    }
}

CONFORMANCE(Schedule, AWordMustBeOne)
{
    static conf_pair self;
    uint64_t words[2] = {0, 0};
    CHECK(set_up(&self, conf, PST_POOL_ORDERED, 4));
    lockstep *ls = &self.ls;
    CHECK_STATUS(psti_pool_expect(ls->pool, NULL, 0, ls->stream), PST_E_INVALID);
    CHECK_STATUS(
        psti_pool_expect(ls->pool, (const uint64_t *)((uintptr_t)words + 4), 0, ls->stream),
        PST_E_INVALID);
    ls_compare(ls);
    conf_pair_close(&self);
}
