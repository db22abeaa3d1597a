/* Pages of live tickets that change their tier. */
#include "tests/conformance/conf.h"

#include "kernels/core/pool.h"

enum { ROWS = 16, ROW_BYTES = 8192, FULL = 8 /* pages of a group at capacity */ };

static bool set_up(conf_pair *self, const conf_run *conf, const ls_options *options)
{
    const shape like = conf_prefix_shape(1, ROWS, ROW_BYTES);
    return conf_pair_open(self, conf, options, &like, NULL, 3);
}

static ls_options pages(pst_pool_mode mode, uint64_t device_pages, uint64_t host_pages)
{
    ls_options options = conf_options(mode, device_pages, 1);
    options.num_host_pages = host_pages;
    options.max_host_pages = host_pages + 1;
    return options;
}

static void stash_pages(conf_pair *self, int ticket, int64_t num_pages)
{
    conf_pair_stash(self, ticket, num_pages * ROWS / FULL);
}

static void restore(conf_pair *self, int ticket, pst_restore_pages kind)
{
    conf_pair_restore(self, ticket, kind, PST_TAIL_UNTOUCHED);
}

CONFORMANCE(Migrate, ThereAndBackAgain)
{
    CONF_EACH_MODE (mode) {
        static conf_pair self;
        const ls_options options = pages(mode, FULL, FULL);
        if (!set_up(&self, conf, &options))
            return;
        stash_pages(&self, 0, FULL);
        ls_demote(&self.ls, self.tickets[0], 0);
        CHECK_EQ(self.ls.oracle->status.demoted_pages, FULL);
        CHECK_EQ(self.ls.oracle->num_free[0], FULL);
        stash_pages(&self, 1, FULL); /* where the first was */
        restore(&self, 1, PST_RESTORE_CONSUME);
        ls_promote(&self.ls, self.tickets[0], 0);
        CHECK_EQ(self.ls.oracle->status.promoted_pages, FULL);
        restore(&self, 0, PST_RESTORE_CONSUME);
        CHECK_EQ(self.ls.oracle->status.num_faults, 0);
        CHECK_EQ(self.ls.oracle->status.stranded_pages, 0);
        ls_step(&self.ls); /* which tells the most that was in use */
        conf_pair_close(&self);
    }
}

/* More pages than a team of any backend takes at once: what goes from one round to the next, and from
 * warp to warp, counts. In the last round some warps have all they can take, one a part, others none. */
CONFORMANCE(Migrate, MorePagesThanATeamTakesAtOnce)
{
    enum { MANY = 700 };
    CONF_EACH_MODE (mode) {
        static conf_pair self;
        const ls_options options = pages(mode, MANY, MANY);
        const shape like = conf_prefix_shape(1, MANY, 2 * ROW_BYTES);
        if (!conf_pair_open(&self, conf, &options, &like, NULL, 2))
            return;
        conf_pair_stash(&self, 0, MANY - 40);
        ls_demote(&self.ls, self.tickets[0], MANY - 50);
        conf_pair_stash(&self, 1, MANY - 88); /* where the first was */
        restore(&self, 1, PST_RESTORE_CONSUME);
        ls_promote(&self.ls, self.tickets[0], 0);
        CHECK_EQ(self.ls.oracle->status.promoted_pages, MANY - 50);
        restore(&self, 0, PST_RESTORE_CONSUME);
        CHECK_EQ(self.ls.oracle->status.num_faults, 0);
        ls_step(&self.ls);
        conf_pair_close(&self);
    }
}

/* Under a budget an SM has one block, of several teams: what one of them waits for is its own affair. */
CONFORMANCE(Migrate, UnderABudget)
{
    CONF_EACH_MODE (mode) {
        static conf_pair self;
        const ls_options options = pages(mode, FULL, FULL);
        if (!set_up(&self, conf, &options))
            return;
        self.ls.num_sms = 1;
        stash_pages(&self, 0, FULL);
        ls_demote(&self.ls, self.tickets[0], 0);
        ls_promote(&self.ls, self.tickets[0], 3);
        restore(&self, 0, PST_RESTORE_CONSUME);
        CHECK_EQ(self.ls.oracle->status.demoted_pages, FULL);
        CHECK_EQ(self.ls.oracle->status.promoted_pages, 3);
        CHECK_EQ(self.ls.oracle->status.num_faults, 0);
        conf_pair_close(&self);
    }
}

/* Each tier's ring turns at its own number of slots. */
CONFORMANCE(Migrate, RingsOfTwoSizesTurn)
{
    enum { MANY = 30 };
    CONF_EACH_MODE (mode) {
        static conf_pair self;
        const ls_options options = pages(mode, FULL, MANY);
        const shape like = conf_prefix_shape(1, MANY, 2 * ROW_BYTES);
        if (!conf_pair_open(&self, conf, &options, &like, NULL, 1))
            return;
        for (int i = 0; i < 5; i++) {
            conf_pair_stash(&self, 0, MANY);
            restore(&self, 0, PST_RESTORE_CONSUME);
        }
        CHECK_EQ(self.ls.oracle->status.spilled_pages, 5 * (MANY - FULL));
        CHECK_EQ(self.ls.oracle->status.num_faults, 0);
        conf_pair_close(&self);
    }
}

/* Any part spilled, any share moved, into any number of free pages. */
CONFORMANCE(Migrate, EveryShareIntoEveryRoom)
{
    CONF_EACH_MODE (mode) {
        for (uint64_t on_device = 1; on_device <= FULL; on_device += PSTI_UNDER_TSAN ? 3 : 1)
            for (uint64_t room = 0; room <= 4 && !psti_test_failed(); room += 2) {
                static conf_pair self;
                const ls_options options = pages(mode, on_device, FULL - on_device + room);
                if (!set_up(&self, conf, &options))
                    return;
                stash_pages(&self, 0, FULL);
                for (uint64_t share = 1; share <= 4 && !self.ls.failed; share += 2) {
                    ls_demote(&self.ls, self.tickets[0], share);
                    restore(&self, 0, PST_RESTORE_KEEP);
                    ls_promote(&self.ls, self.tickets[0], share + 1);
                    restore(&self, 0, PST_RESTORE_KEEP);
                }
                ls_demote(&self.ls, self.tickets[0], 0);
                restore(&self, 0, PST_RESTORE_CONSUME);
                conf_pair_close(&self);
            }
    }
}

/* The rings' counters become what a concurrent pool would have in the ticket's record while the next operation runs.
 * of_record: with launch number 0, which is what records of an ordered pool have. */
static void meet_launch_word(lockstep *ls, bool of_record)
{
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    const uint64_t launch = of_record ? 0 : psti_launch_of(ls->words.state.launch);
    const uint32_t op = psti_next_op(ls->pool);
    ls->pool->num_ops--; /* the next one is this one again */
    ls_turn_rings(ls, psti_launch_word(launch, op));
}

/* An ordered pool takes no counter of pages for a word of its launch. */
CONFORMANCE(Migrate, CountersMayBeAnyWord)
{
    static conf_pair self;
    const ls_options options = pages(PST_POOL_ORDERED, FULL, FULL);
    if (!set_up(&self, conf, &options))
        return;
    lockstep *ls = &self.ls;
    for (int i = 0; i < 4; i++) {
        meet_launch_word(ls, i % 2);
        stash_pages(&self, 0, FULL);
        meet_launch_word(ls, i % 2);
        ls_demote(ls, self.tickets[0], FULL - 3);
        meet_launch_word(ls, i % 2);
        ls_promote(ls, self.tickets[0], 2);
        meet_launch_word(ls, i % 2);
        restore(&self, 0, PST_RESTORE_CONSUME);
    }
    CHECK_EQ(ls->oracle->status.num_faults, 0);
    conf_pair_close(&self);
}

/* Whatever is done to a ticket between stash and the end, in any order. */
static void any_order(conf_pair *self, uint32_t code)
{
    stash_pages(self, 0, FULL - 1);
    for (int i = 0; i < 3; i++, code /= 4)
        switch (code % 4) {
        case 0:
            ls_demote(&self->ls, self->tickets[0], 3);
            break;
        case 1:
            ls_promote(&self->ls, self->tickets[0], 2);
            break;
        case 2:
            restore(self, 0, PST_RESTORE_KEEP);
            break;
        default:
            ls_demote(&self->ls, self->tickets[0], 0);
        }
    if (code % 2)
        restore(self, 0, PST_RESTORE_CONSUME);
    else
        ls_release(&self->ls, self->tickets[0]);
}

CONFORMANCE(Migrate, EveryOrderOfOperations)
{
    CONF_EACH_MODE (mode) {
        static conf_pair self;
        ls_options options = pages(mode, FULL - 2, FULL);
        options.scrub = true;
        if (!set_up(&self, conf, &options))
            return;
        const uint32_t step = 128 / conf_cases(conf, 128);
        for (uint32_t code = 0; code < 128 && !self.ls.failed; code += step)
            any_order(&self, code);
        conf_pair_close(&self);
    }
}

CONFORMANCE(Migrate, WhatHoldsNothingIsAFault)
{
    CONF_EACH_MODE (mode) {
        static conf_pair self;
        const ls_options options = pages(mode, FULL / 2, FULL / 4);
        if (!set_up(&self, conf, &options))
            return;
        ls_demote(&self.ls, self.tickets[0], 0);
        CHECK_EQ(self.ls.oracle->status.fault, PST_FAULT_EMPTY);
        ls_reset(&self.ls, PST_RESET_FAULTS);
        stash_pages(&self, 0, FULL);
        CHECK_EQ(self.ls.oracle->status.fault, PST_FAULT_EXHAUSTED);
        ls_reset(&self.ls, PST_RESET_FAULTS);
        ls_promote(&self.ls, self.tickets[0], 1);
        CHECK_EQ(self.ls.oracle->status.fault, PST_FAULT_FAILED);
        ls_reset(&self.ls, PST_RESET_ALL);
        ls_promote(&self.ls, self.tickets[0], 1); /* of another epoch */
        CHECK_EQ(self.ls.oracle->status.fault, PST_FAULT_EMPTY);
        conf_pair_close(&self);
    }
}

CONFORMANCE(Migrate, WhatHasMovedIsAFaultUnlessItIsAShare)
{
    CONF_EACH_MODE (mode) {
        static conf_pair self;
        const ls_options options = pages(mode, FULL, FULL);
        if (!set_up(&self, conf, &options))
            return;
        stash_pages(&self, 0, 2);
        stash_pages(&self, 1, 0);
        ls_promote(&self.ls, self.tickets[0], 3); /* of a share that came too late */
        ls_demote(&self.ls, self.tickets[1], 0);  /* no page to begin with */
        CHECK_EQ(self.ls.oracle->status.num_faults, 0);
        ls_promote(&self.ls, self.tickets[0], 0);
        CHECK_EQ(self.ls.oracle->status.fault, PST_FAULT_MOVED);
        ls_demote(&self.ls, self.tickets[0], 0);
        ls_demote(&self.ls, self.tickets[0], 0);
        CHECK_EQ(self.ls.oracle->status.num_faults, 2);
        restore(&self, 0, PST_RESTORE_CONSUME);
        conf_pair_close(&self);
    }
}

/* A captured demotion does what the counts of its replay ask for. */
CONFORMANCE(Migrate, ReplaysWithNewCounts)
{
    static conf_pair self;
    pst_graph *graph = NULL;
    ls_options options = pages(PST_POOL_ORDERED, FULL, FULL);
    options.scrub = true;
    if (!set_up(&self, conf, &options))
        return;
    lockstep *ls = &self.ls;
    pst_ticket ticket = ls->tickets[self.tickets[0]];
    CHECK_OK(pst_graph_begin(conf->device, ls->stream));
    CHECK_OK(ls_enqueue_stash(ticket, &self.source, ls->stream));
    CHECK_OK(pst_ticket_demote(ticket, NULL, ls->stream));
    CHECK_OK(ls_enqueue_restore(ticket, &self.destination, NULL, ls->stream));
    CHECK_OK(pst_graph_end(conf->device, ls->stream, &graph));
    for (int64_t num_pages = 1; num_pages <= FULL && !ls->failed; num_pages++) {
        const int64_t rows = num_pages * ROWS / FULL;
        ls_group_fill(ls, &self.source, &self.random);
        ls_group_set_counts(ls, &self.source, &rows);
        CHECK_OK(pst_graph_launch(graph, ls->stream));
        CHECK_OK(pst_stream_synchronize(conf->device, ls->stream));
        oracle_stash(ls->oracle, self.tickets[0], &self.source.model, self.source.values);
        oracle_migrate(ls->oracle, self.tickets[0], false, 0);
        oracle_restore(ls->oracle, self.tickets[0], &self.destination.model, PST_RESTORE_CONSUME,
                       PST_TAIL_UNTOUCHED);
        ls_compare(ls);
        ls_group_compare(ls, &self.destination);
    }
    CHECK_EQ(ls->oracle->status.demoted_pages, FULL * (FULL + 1) / 2);
    CHECK_OK(pst_graph_destroy(graph));
    conf_pair_close(&self);
}

CONFORMANCE(Migrate, NeedsAHostTier)
{
    static conf_pair self;
    const ls_options options = conf_options(PST_POOL_ORDERED, FULL, 1);
    if (!set_up(&self, conf, &options))
        return;
    pst_ticket ticket = self.ls.tickets[self.tickets[0]];
    CHECK_STATUS(pst_ticket_demote(ticket, NULL, self.ls.stream), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_promote(ticket, NULL, self.ls.stream), PST_E_INVALID);
    conf_pair_close(&self);
}
