/* Pools that scrub: lockstep looks at every free page after every operation. */
#include "tests/conformance/conf.h"

enum { ROWS = 16, ROW_BYTES = 4099, TICKETS = 3 };

static bool set_up(conf_pair *self, const conf_run *conf, pst_pool_mode mode)
{
    const shape like = conf_segments_shape(3, ROWS, ROW_BYTES);
    ls_options options = conf_options(mode, 20, 1);
    options.num_host_pages = 8;
    options.max_pages = 24; /* there is no memory behind those that are not there */
    options.max_host_pages = 12;
    options.page_bytes = 32768;
    options.scrub = true;
    return conf_pair_open(self, conf, &options, &like, NULL, 3);
}

static void stash(conf_pair *self, int ticket)
{
    const int64_t rows[] = {ROWS, 3, ROWS - 1};
    ls_set_offload(&self->ls, self->tickets[ticket], 1, 3);
    ls_group_fill(&self->ls, &self->source, &self->random);
    ls_group_set_counts(&self->ls, &self->source, rows);
    ls_stash(&self->ls, self->tickets[ticket], &self->source);
}

static void restore(conf_pair *self, int ticket, pst_restore_pages pages)
{
    conf_pair_restore(self, ticket, pages, PST_TAIL_ZERO);
}

/* Fault rows 50. */
CONFORMANCE(Scrub, WhateverFreesAPageClearsIt)
{
    CONF_EACH_MODE (mode) {
        static conf_pair self;
        if (!set_up(&self, conf, mode))
            return;
        for (int i = 0; i < TICKETS; i++)
            stash(&self, i);
        restore(&self, 0, PST_RESTORE_KEEP);
        restore(&self, 0, PST_RESTORE_CONSUME);
        ls_release(&self.ls, self.tickets[1]);
        ls_demote(&self.ls, self.tickets[2], 2);
        ls_promote(&self.ls, self.tickets[2], 3);
        stash(&self, 0);
        ls_reset(&self.ls, PST_RESET_STATISTICS); /* frees nothing */
        restore(&self, 2, PST_RESTORE_KEEP);
        ls_reset(&self.ls, PST_RESET_PAGES);
        CHECK_EQ(self.ls.oracle->num_free[0], 20);
        stash(&self, 1);
        restore(&self, 1, PST_RESTORE_CONSUME);
        ls_resize(&self.ls, 10, 4); /* fewer */
        ls_reset(&self.ls, PST_RESET_PAGES);
        stash(&self, 1);
        restore(&self, 1, PST_RESTORE_CONSUME);
        CHECK_EQ(self.ls.oracle->status.num_faults, 0);
        conf_pair_close(&self);
    }
}

/* Operations that were refused may have written to free pages. */
CONFORMANCE(Scrub, FewerPagesAfterARefusalAreAllCleared)
{
    static conf_pair self;
    if (!set_up(&self, conf, PST_POOL_ORDERED))
        return;
    lockstep *ls = &self.ls;
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    ls->words.state.refuse = PSTI_REFUSES_ORDER;
    LS_TRY(pool_words_write(ls->pool, &ls->words, ls->stream));
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        LS_TRY(pst_device_fill(ls->device, ls->pool->view.pages[tier], 0x5a,
                               (uint64_t)ls->pool->num_pages[tier] << ls->pool->view.page_shift,
                               ls->stream));
    ls_resize(ls, 10, 4); /* all are looked at behind it */
    stash(&self, 0);
    restore(&self, 0, PST_RESTORE_CONSUME);
    CHECK_EQ(ls->oracle->status.num_faults, 0);
    conf_pair_close(&self);
}

/* A stash that failed held nothing; what others hold is left alone. */
CONFORMANCE(Scrub, OthersKeepTheirPages)
{
    static conf_pair self;
    if (!set_up(&self, conf, PST_POOL_ORDERED))
        return;
    for (int i = 0; i < TICKETS; i++)
        stash(&self, i);
    ls_resize(&self.ls, 20, 8);
    ls_release(&self.ls, self.tickets[1]);
    const int64_t too_many[] = {ROWS, ROWS + 1, 0};
    ls_group_set_counts(&self.ls, &self.source, too_many);
    ls_stash(&self.ls, self.tickets[1], &self.source);
    CHECK_EQ(self.ls.oracle->status.fault, PST_FAULT_COUNT);
    ls_release(&self.ls, self.tickets[1]);
    restore(&self, 0, PST_RESTORE_CONSUME);
    restore(&self, 2, PST_RESTORE_CONSUME);
    conf_pair_close(&self);
}
