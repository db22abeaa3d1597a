/* Pools that grow and shrink between steps, in both tiers. */
#include "tests/conformance/conf.h"

enum { ROWS = 16, ROW_BYTES = 4096, FULL = 4 /* pages of a group at capacity */ };

static bool set_up(conf_pair *self, const conf_run *conf, const ls_options *options)
{
    const shape like = conf_prefix_shape(1, ROWS, ROW_BYTES);
    return conf_pair_open(self, conf, options, &like, NULL, 3);
}

/* Of a pool in `mode` that begins with 3 + 1 pages and can have 40 + 9. */
static ls_options growing(pst_pool_mode mode)
{
    ls_options options = conf_options(mode, 3, 1);
    options.num_host_pages = 1;
    options.max_pages = 40;
    options.max_host_pages = 9;
    return options;
}

CONFORMANCE(Resize, GrowsUnderLiveTickets)
{
    CONF_EACH_MODE (mode) {
        static conf_pair self;
        const ls_options options = growing(mode);
        if (!set_up(&self, conf, &options))
            return;
        conf_pair_stash(&self, 0, 8);    /* 2 device pages */
        conf_pair_stash(&self, 1, ROWS); /* wants 4, 1 + 1 are free */
        CHECK_EQ(self.ls.oracle->status.fault, PST_FAULT_EXHAUSTED);
        ls_resize(&self.ls, 3, 3);
        conf_pair_stash(&self, 1, ROWS); /* 1 + 3 */
        CHECK_EQ(self.ls.oracle->status.spilled_pages, 3);
        ls_resize(&self.ls, 40, 9);
        conf_pair_stash(&self, 2, ROWS); /* all on the device again */
        CHECK_EQ(self.ls.oracle->status.spilled_pages, 3);
        for (int i = 0; i < 3; i++)
            conf_pair_restore(&self, i, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
        ls_step(&self.ls);
        conf_pair_close(&self);
    }
}

CONFORMANCE(Resize, GrowsByEveryNumberOfPages)
{
    static conf_pair self;
    ls_options options = growing(PST_POOL_ORDERED);
    options.first_counter = UINT32_MAX - 5u; /* slots turn while it grows */
    if (!set_up(&self, conf, &options))
        return;
    for (uint64_t pages = 4; pages <= 40; pages += 1 + pages / 8) {
        conf_pair_stash(&self, 0, 1 + (int64_t)(pages % 8));
        ls_resize(&self.ls, pages, pages / 5 + 1);
        conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    }
    conf_pair_close(&self);
}

CONFORMANCE(Resize, ShrinksWhenNothingIsHeld)
{
    static conf_pair self;
    const ls_options options = growing(PST_POOL_ORDERED);
    if (!set_up(&self, conf, &options))
        return;
    ls_resize(&self.ls, 20, 9);
    conf_pair_stash(&self, 0, 1);
    CHECK_STATUS(pst_pool_resize(self.ls.pool, 19, 9), PST_E_BUSY);
    CHECK_MSG(strstr(pst_last_message(), "1 pages are in use, and 0 captured graphs hold"), "%s",
              pst_last_message());
    CHECK_STATUS(pst_pool_resize(self.ls.pool, 20, 0), PST_E_BUSY);
    ls_compare(&self.ls);
    conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    conf_pair_stash(&self, 1, 0); /* live, but holds nothing */
    ls_resize(&self.ls, 2, 1);
    ls_restore(&self.ls, self.tickets[1], &self.destination, PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED);
    CHECK_EQ(self.ls.oracle->status.fault, PST_FAULT_EMPTY);
    conf_pair_stash(&self, 0, ROWS); /* 2 + 1 are too few */
    ls_resize(&self.ls, 4, 0);       /* fewer of one, more of the other: as fewer */
    conf_pair_stash(&self, 0, ROWS);
    conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    ls_resize(&self.ls, 40, 9);
    conf_pair_stash(&self, 2, ROWS);
    conf_pair_restore(&self, 2, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    conf_pair_close(&self);
}

/* A graph that was captured before finds the pages, and its reset keeps the number of them. */
/* Fault rows 29. */
CONFORMANCE(Resize, GraphsStayRight)
{
    static conf_pair self;
    const ls_options options = growing(PST_POOL_ORDERED);
    pst_graph *graph = NULL;
    const int64_t rows = ROWS;
    if (!set_up(&self, conf, &options))
        return;
    lockstep *ls = &self.ls;
    ls_resize(ls, 3, 0); /* as nothing is captured yet */
    ls_group_set_counts(ls, &self.source, &rows);
    CHECK_OK(pst_graph_begin(conf->device, ls->stream));
    CHECK_OK(pst_pool_reset(ls->pool, PST_RESET_ALL, ls->stream));
    CHECK_OK(ls_enqueue_stash(ls->tickets[self.tickets[0]], &self.source, ls->stream));
    CHECK_OK(pst_graph_end(conf->device, ls->stream, &graph));
    for (uint64_t pages = 3; pages <= 4; pages++) {
        ls_resize(ls, pages, 0);
        ls_group_fill(ls, &self.source, &self.random);
        CHECK_OK(pst_graph_launch(graph, ls->stream));
        oracle_reset(ls->oracle, PST_RESET_ALL);
        oracle_stash(ls->oracle, self.tickets[0], &self.source.model, self.source.values);
        ls_compare(ls);
        CHECK_EQ(ls->words.status.num_faults, pages < 4);
    }
    CHECK_STATUS(pst_pool_resize(ls->pool, 3, 0), PST_E_BUSY);
    CHECK_MSG(strstr(pst_last_message(), "4 pages are in use, and 1 captured graphs hold"), "%s",
              pst_last_message());
    conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    CHECK_STATUS(pst_pool_resize(ls->pool, 3, 0), PST_E_BUSY);
    CHECK_OK(pst_graph_destroy(graph));
    ls_resize(ls, 3, 0);
    conf_pair_close(&self);
}

/* A ring slot that names a page without memory: nobody goes there. */
CONFORMANCE(Resize, PagesWithoutMemoryAreNotTouched)
{
    CONF_EACH_MODE (mode) {
        static conf_pair self;
        const ls_options options = growing(mode);
        if (!set_up(&self, conf, &options))
            return;
        lockstep *ls = &self.ls;
        const uint64_t slot = ls->words.state.head[0] & ls->pool->view.ring_mask[0];
        ls->words.ring[0][slot] = 39;
        LS_TRY(pool_words_write(ls->pool, &ls->words, ls->stream));
        const int64_t rows = 4;
        ls_group_set_counts(ls, &self.source, &rows);
        LS_TRY(ls_enqueue_stash(ls->tickets[0], &self.source, ls->stream));
        LS_TRY(ls_enqueue_restore(ls->tickets[0], &self.destination, NULL, ls->stream));
        LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
        CHECK_EQ(ls->words.status.fault, PST_FAULT_DAMAGED);
        CHECK_EQ(ls->words.status.fault_wanted, 39);
        CHECK_EQ(ls->words.owner[0][39], UINT64_MAX);
        LS_TRY(pst_pool_reset(ls->pool, PST_RESET_ALL, ls->stream));
        oracle_reset(ls->oracle, PST_RESET_ALL);
        ls_compare(ls);
        conf_pair_close(&self);
    }
}
