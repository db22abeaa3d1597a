/* Pools that are too small, at every tensor of a group, with one tier and with two. */
#include "tests/conformance/conf.h"

#include <stdlib.h>

enum {
    TENSORS = PSTI_UNDER_TSAN ? 3 : 6,
    ROWS = 16,
    ROW_BYTES = 4096 /* four tiles each */
};

static bool set_up(conf_pair *self, const conf_run *conf, const ls_options *options)
{
    const shape like = conf_prefix_shape(TENSORS, ROWS, ROW_BYTES);
    return conf_pair_open(self, conf, options, &like, NULL, 2);
}

static unsigned char *pages_now(conf_pair *self, uint32_t tier)
{
    lockstep *ls = &self->ls;
    const psti_pool_view *view = &ls->pool->view;
    const size_t bytes = (size_t)view->max_pages[tier] << view->page_shift;
    unsigned char *memory = malloc(bytes + 1);
    if (!memory)
        abort();
    if (bytes)
        LS_TRY(pst_device_copy(ls->device, memory, view->pages[tier], bytes, ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    return memory;
}

/* A stash that fails has taken nothing: neither pages nor their bytes. */
static void stash_in_vain(conf_pair *self)
{
    unsigned char *before[PSTI_TIERS];
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        before[tier] = pages_now(self, tier);
    ls_group_fill(&self->ls, &self->source, &self->random);
    ls_stash(&self->ls, self->tickets[0], &self->source);
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        unsigned char *after = pages_now(self, tier);
        const psti_pool_view *view = &self->ls.pool->view;
        if (memcmp(before[tier], after, (size_t)view->max_pages[tier] << view->page_shift) != 0)
            ls_fail(&self->ls, __FILE__, __LINE__, "a stash that failed wrote to pages");
        free(before[tier]);
        free(after);
    }
}

/* One pool size: fills it with what fits, fails, and works again when there is room. */
static void try_size(const conf_run *conf, pst_pool_mode mode, uint64_t pages, uint64_t host_pages)
{
    static conf_pair self;
    ls_options options = conf_options(mode, pages, pages);
    options.num_host_pages = host_pages;
    const int64_t full = ROWS;
    const uint64_t all = pages + host_pages;
    if (!set_up(&self, conf, &options))
        return;
    const uint32_t second = self.tickets[1];
    ls_group_set_counts(&self.ls, &self.source, &full);
    stash_in_vain(&self);
    CHECK_EQ(self.ls.oracle->status.fault, PST_FAULT_EXHAUSTED);
    CHECK_EQ(self.ls.oracle->status.fault_wanted, TENSORS * 4);
    CHECK_EQ(self.ls.oracle->status.fault_free[0], pages);
    CHECK_EQ(self.ls.oracle->status.fault_free[1], host_pages);
    ls_reset(&self.ls, PST_RESET_FAULTS);
    const int64_t fits = (int64_t)(all / TENSORS * 4); /* four rows a tile */
    ls_group_set_counts(&self.ls, &self.source, &fits);
    ls_stash(&self.ls, second, &self.source);
    CHECK_EQ(self.ls.oracle->status.flags, 0);
    ls_step(&self.ls);
    CHECK_EQ(self.ls.published.demand_high_water, TENSORS * 4 + all / TENSORS * TENSORS);
    ls_restore(&self.ls, second, &self.destination, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    conf_pair_close(&self);
}

/* Fault rows 22. */
CONFORMANCE(Exhaustion, PoolTooSmallForAnyTensor)
{
    CONF_EACH_MODE (mode)
        for (uint64_t pages = 1; pages < TENSORS * 4 && !psti_test_failed();
             pages += psti_test_step(3))
            try_size(conf, mode, pages, 0);
}

/* Fault rows 24. */
CONFORMANCE(Exhaustion, BothTiersTooSmall)
{
    CONF_EACH_MODE (mode)
        for (uint64_t pages = 1; pages < TENSORS * 4 - 1 && !psti_test_failed(); pages += 3)
            for (uint64_t host = 1; host + pages < TENSORS * 4 && !psti_test_failed(); host += 5)
                try_size(conf, mode, pages, host);
}

/* Page by page from the host tier, wherever the device pages end.
 * Fault rows 23. */
CONFORMANCE(Exhaustion, HostPagesServeWhatTheDeviceCannot)
{
    CONF_EACH_MODE (mode)
        for (uint64_t pages = 1; pages < TENSORS * 4 && !psti_test_failed();
             pages += psti_test_step(3)) {
            static conf_pair self;
            const int64_t full = ROWS;
            ls_options options = conf_options(mode, pages, pages);
            options.num_host_pages = TENSORS * 4 - pages;
            options.first_counter = UINT32_MAX - 3;
            if (!set_up(&self, conf, &options))
                return;
            ls_group_set_counts(&self.ls, &self.source, &full);
            for (int again = 0; again < 3; again++) {
                ls_stash(&self.ls, self.tickets[0], &self.source);
                ls_restore(&self.ls, self.tickets[0], &self.destination, PST_RESTORE_CONSUME,
                           PST_TAIL_UNTOUCHED);
            }
            ls_step(&self.ls);
            CHECK_EQ(self.ls.published.flags, 0);
            CHECK_EQ(self.ls.published.spilled_pages, 3 * options.num_host_pages);
            CHECK_EQ(self.ls.published.high_water[0], pages);
            CHECK_EQ(self.ls.published.high_water[1], options.num_host_pages);
            conf_pair_close(&self);
        }
}

/* demand_high_water of one step with failures is the pool that has none. */
CONFORMANCE(Exhaustion, DemandTellsTheSizeThatSuffices)
{
    enum { LAYERS = 5 };
    uint64_t pages = 3;
    for (int attempt = 0; attempt < 2; attempt++) {
        ls_options options = conf_options(PST_POOL_ORDERED, pages, pages);
        const shape like = conf_prefix_shape(TENSORS, ROWS, ROW_BYTES);
        oracle_random random = oracle_random_seeded(7);
        lockstep ls;
        ls_group source;
        uint32_t tickets[LAYERS];
        if (!ls_open(&ls, conf->device, &options))
            return;
        ls_group_make(&ls, &like, &random, &source);
        for (uint32_t i = 0; i < LAYERS; i++) {
            tickets[i] = ls_ticket_make(&ls, &source);
            ls_group_random_counts(&ls, &source, COUNTS_RANDOM, &random);
            ls_stash(&ls, tickets[i], &source);
        }
        for (uint32_t i = LAYERS; i > 0; i--)
            ls_restore(&ls, tickets[i - 1], &source, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
        ls_step(&ls);
        CHECK_EQ(ls.published.step_valid, attempt);
        pages = ls.published.demand_high_water;
        ls_group_free(&ls, &source);
        ls_close(&ls);
    }
}

/* A reset of the pages after a failed step does not forget how much was wanted. */
CONFORMANCE(Exhaustion, DemandOutlivesAResetOfThePages)
{
    static conf_pair self;
    const int64_t full = ROWS;
    const ls_options options = conf_options(PST_POOL_ORDERED, 5, 0);
    if (!set_up(&self, conf, &options))
        return;
    ls_group_set_counts(&self.ls, &self.source, &full);
    ls_stash(&self.ls, self.tickets[0], &self.source);
    ls_reset(&self.ls, PST_RESET_PAGES | PST_RESET_FAULTS);
    ls_step(&self.ls);
    CHECK_EQ(self.ls.published.demand_high_water, TENSORS * 4);
    CHECK_EQ(self.ls.published.step_valid, 1);
    conf_pair_close(&self);
}
