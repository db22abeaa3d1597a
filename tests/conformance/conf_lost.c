/* Pools that fail fast: after the first failure of a step its stashes copy and take nothing. */
#include "tests/conformance/conf.h"

#include <stdlib.h>

enum { ROWS = 16, ROW_BYTES = 4096, FULL = 4 /* pages of a group at capacity */ };

static bool set_up(conf_pair *self, const conf_run *conf, pst_pool_mode mode, uint64_t num_pages)
{
    const shape like = conf_prefix_shape(1, ROWS, ROW_BYTES);
    ls_options options = conf_options(mode, num_pages, 1);
    options.num_host_pages = 2;
    options.fails_fast = true;
    return conf_pair_open(self, conf, &options, &like, NULL, 4);
}

#define LOST(name, num_pages) CONF_BOTH_MODES(CONFORMANCE, Lost, name, set_up, num_pages)

static unsigned char *pages_now(lockstep *ls, uint32_t tier)
{
    const psti_pool_view *view = &ls->pool->view;
    const size_t bytes = (size_t)view->max_pages[tier] << view->page_shift;
    unsigned char *memory = oracle_calloc(bytes, 1);
    LS_TRY(pst_device_copy(ls->device, memory, view->pages[tier], bytes, ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    return memory;
}

/* A stash for which there is room, of which not a byte arrives. */
static void stash_in_vain(conf_pair *self, int ticket, int64_t rows)
{
    lockstep *ls = &self->ls;
    unsigned char *before[PSTI_TIERS];
    const uint64_t free_before = ls->oracle->num_free[0];
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        before[tier] = pages_now(ls, tier);
    conf_pair_stash(self, ticket, rows);
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        const psti_pool_view *view = &ls->pool->view;
        unsigned char *after = pages_now(ls, tier);
        if (memcmp(before[tier], after, (size_t)view->max_pages[tier] << view->page_shift) != 0)
            LS_FAIL("a stash of a lost step wrote to pages");
        free(before[tier]);
        free(after);
    }
    CHECK(ls->words.status.flags & 1u << PST_FAULT_LOST);
    CHECK_EQ(ls->oracle->tickets[self->tickets[ticket]].state, ORACLE_FAILED);
    CHECK_EQ(ls->oracle->num_free[0], free_before);
}

/* What a step does whose second stash fails; `rows` of the others. */
static void lose_a_step(conf_pair *self, int64_t bad_rows, uint64_t wanted)
{
    lockstep *ls = &self->ls;
    const uint64_t before = ls->oracle->status.demand_high_water;
    const uint64_t whole = FULL + wanted + FULL + FULL / 2;
    conf_pair_stash(self, 0, ROWS);
    conf_pair_stash(self, 1, bad_rows);
    stash_in_vain(self, 2, ROWS);
    stash_in_vain(self, 3, ROWS / 2);
    conf_pair_restore(self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED); /* is right all the same */
    for (int i = 1; i < 4; i++)
        conf_pair_restore(self, i, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    ls_step(ls);
    CHECK_EQ(ls->published.step_valid, 0);
    CHECK_EQ(ls->published.demand_high_water, before > whole ? before : whole);
    conf_pair_stash(self, 2, ROWS); /* another step */
    conf_pair_restore(self, 2, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    ls_step(ls);
    CHECK_EQ(ls->published.step_valid, 1);
}

LOST(AfterACountThatIsWrong, 12)
{
    lose_a_step(self, ROWS + 1, 0);
    CHECK_EQ(self->ls.published.fault, PST_FAULT_COUNT);
    lose_a_step(self, -1, 0);
}

/* Of 4 + 2 pages: the second wants 4 where 2 are left, and later 2 and none would fit. */
/* Fault rows 22. */
LOST(AfterAStashThatFoundNoPages, 4)
{
    lose_a_step(self, ROWS, FULL);
    CHECK_EQ(self->ls.published.fault, PST_FAULT_EXHAUSTED);
    lose_a_step(self, ROWS, FULL);
    ls_release(&self->ls, self->tickets[3]);
    stash_in_vain(self, 0, 0); /* not even no rows */
}

/* Whatever made step_valid 0: here a release of nothing, and an agreement with other ranks. */
LOST(WhateverMadeTheStepInvalid, 12)
{
    lockstep *ls = &self->ls;
    const int32_t invalid = 0;
    ls_release(ls, self->tickets[3]);
    stash_in_vain(self, 0, 5);
    ls_step(ls);
    ls_reset(ls, PST_RESET_FAULTS);
    LS_TRY(pst_device_copy(ls->device, pst_pool_step_valid(ls->pool), &invalid, sizeof(invalid),
                           ls->stream));
    ls->oracle->status.step_valid = 0;
    stash_in_vain(self, 0, ROWS);
    CHECK_EQ(ls->words.status.fault, PST_FAULT_LOST);
    CHECK_EQ(ls->words.status.fault_ticket, self->tickets[0]);
    CHECK_EQ(ls->words.status.fault_wanted, 0);
    CHECK_EQ(ls->words.status.fault_free[0], 12);
    ls_reset(ls, PST_RESET_FAULTS); /* begins anew, too */
    conf_pair_stash(self, 0, ROWS);
    CHECK_EQ(ls->words.status.flags, 0);
}

/* A ticket that is live, and a count that is wrong, are told as such in a lost step, too. */
LOST(OtherVerdictsComeFirst, 12)
{
    lockstep *ls = &self->ls;
    conf_pair_stash(self, 0, 7);
    ls_release(ls, self->tickets[3]);
    ls_reset(ls, PST_RESET_STATISTICS);
    conf_pair_stash(self, 0, 3);
    CHECK_EQ(ls->words.status.flags, 1u << PST_FAULT_EMPTY | 1u << PST_FAULT_LIVE);
    conf_pair_stash(self, 1, ROWS + 9);
    CHECK(ls->words.status.flags & 1u << PST_FAULT_COUNT);
    CHECK(!(ls->words.status.flags & 1u << PST_FAULT_LOST));
    conf_pair_restore(self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
}

/* Captured stashes of a step that was lost in the replay before are whole in the next. */
LOST(StepsOfReplays, 12)
{
    static const int64_t rows[] = {3, ROWS + 1, ROWS, -4, 0, ROWS};
    lockstep *ls = &self->ls;
    conf_graph_begin(ls);
    for (int i = 0; i < 2; i++)
        LS_TRY(ls_enqueue_stash(ls->tickets[self->tickets[i]],
                                i ? &self->destination : &self->source, ls->stream));
    for (int i = 0; i < 2; i++)
        LS_TRY(ls_enqueue_restore(ls->tickets[self->tickets[i]], &self->destination, NULL,
                                  ls->stream));
    LS_TRY(pst_pool_step(ls->pool, ls->stream));
    pst_graph *graph = conf_graph_end(ls);
    const int64_t good = ROWS - 1;
    ls_group_set_counts(ls, &self->destination, &good);
    for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]) && !ls->failed; n++) {
        ls_group *groups[] = {&self->source, &self->destination};
        ls_group_fill(ls, &self->source, &self->random);
        ls_group_set_counts(ls, &self->source, &rows[n]);
        LS_TRY(pst_graph_launch(graph, ls->stream));
        for (int i = 0; i < 2; i++)
            oracle_stash(ls->oracle, self->tickets[i], &groups[i]->model, groups[i]->values);
        for (int i = 0; i < 2; i++)
            oracle_restore(ls->oracle, self->tickets[i], &self->destination.model,
                           PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
        oracle_step(ls->oracle, &ls->published);
        ls_compare(ls);
        ls_group_compare(ls, &self->destination);
    }
    conf_graph_destroy(ls, graph);
}

/* Without the option the step goes on. */
CONFORMANCE(Lost, PoolsThatDoNotAskForItGoOn)
{
    static conf_pair self;
    const shape like = conf_prefix_shape(1, ROWS, ROW_BYTES);
    const ls_options options = conf_options(PST_POOL_CONCURRENT, 12, 1);
    if (!conf_pair_open(&self, conf, &options, &like, NULL, 2))
        return;
    conf_pair_stash(&self, 0, ROWS + 1);
    conf_pair_stash(&self, 1, ROWS);
    CHECK_EQ(self.ls.oracle->tickets[self.tickets[1]].state, ORACLE_LIVE);
    conf_pair_close(&self);
}
