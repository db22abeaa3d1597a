/* Pairs of operations, one of which stands still (pause.h), at every access, on the kernels of simt
 * and on those of the host. Either ORDER is set, or both are as if one had come after the other. */
#include "tests/simt/pause.h"

#if !PSTI_UNDER_TSAN

static const struct {
    const char *name;
    void (*first)(pause *self), (*second)(pause *self);
    uint32_t before; /* tickets that are live, bits */
    uint32_t after;  /* when nothing was a fault */
    uint32_t faults; /* flags that one after the other may set, too */
} pairs[] = {
    {"stash beside a stash", stash_0, stash_1, 0, 3, 0},
    {"stash beside a restore", stash_0, restore_1, 2, 1, 0},
    {"restore beside a stash", restore_0, stash_1, 1, 2, 0},
    {"restore beside a restore", restore_0, restore_1, 3, 0, 0},
    {"migration beside a restore", demote_0, restore_1, 3, 1, 0},
    {"migration beside a migration", demote_0, demote_1, 3, 3, 0},
    {"restore beside a migration", restore_0, demote_1, 3, 2, 0},
    {"two stashes of a ticket", stash_0, stash_0_again, 0, 1, SAME_TICKET},
    {"restore and release of a ticket", restore_0, release_0, 1, 0, SAME_TICKET},
    {"restore and stash of a ticket", restore_0, stash_0_again, 1, 1, SAME_TICKET},
    {"migration and restore of a ticket", demote_0, restore_0, 1, 0, SAME_TICKET},
    {"restore and migration of a ticket", restore_0, demote_0, 1, 0, SAME_TICKET},
};

/* What live tickets have is what some stash gave them. */
static void check_tickets(pause *self, uint32_t live, const char *name)
{
    for (int t = 0; t < NUM_TICKETS; t++) {
        if (!(live >> t & 1))
            continue;
        memset(self->b.rows[2], POISON, ROWS * ROW_BYTES);
        CHECK_OK(restore_rows(&self->b, t, 2));
        CHECK_MSG(holds(self, 2, 0x11) || (t == 0 && holds(self, 2, 0x10)),
                  "%s, access %u: ticket %d has lost its rows", name, self->target, t);
    }
    const pst_pool_status end = status_of(&self->b);
    CHECK_EQ(end.in_use[0] + end.in_use[1], 0);
    CHECK_EQ(end.check_errors, 0);
}

static void check_pair(pause *self, size_t i, uint32_t *noticed)
{
    const char *name = pairs[i].name;
    const pst_pool_status status = status_of(&self->b);
    const uint32_t live = live_tickets(self);
    if (status.flags & PST_FLAG_ORDER) {
        ++*noticed;
        return;
    }
    CHECK_MSG((status.flags & ~pairs[i].faults) == 0 && status.check_errors == 0,
              "%s, access %u: flags are %x, %u errors", name, self->target, status.flags,
              status.check_errors);
    for (int t = 0; t < NUM_TICKETS; t++) {
        const bool restored = pairs[i].before >> t & ~(pairs[i].after >> t) & 1;
        CHECK_MSG(holds(self, 2 + t, POISON) || holds(self, 2 + t, 0x10 + t),
                  "%s, access %u: ticket %d was restored in part", name, self->target, t);
        CHECK_MSG(status.flags || !restored || holds(self, 2 + t, 0x10 + t),
                  "%s, access %u: the restore of ticket %d is lost", name, self->target, t);
    }
    CHECK_MSG(status.flags || live == pairs[i].after, "%s, access %u: live are %x", name,
              self->target, live);
    check_tickets(self, live, name);
}

/* False: there are not so many accesses. */
static bool try_pair(pause *self, size_t i, uint32_t target, uint32_t *noticed)
{
    self->seed = 1 + 31 * i + target;
    configure(self, OUTER);
    pst_pool_reset(self->b.pool, PST_RESET_ALL, NULL);
    if (pairs[i].before & 1)
        stash_0(self);
    if (pairs[i].before & 2)
        stash_1(self);
    memset(self->b.rows[2], POISON, ROWS * ROW_BYTES);
    memset(self->b.rows[3], POISON, ROWS * ROW_BYTES);
    arm(self, in_protocol, target, pairs[i].second);
    pairs[i].first(self);
    disarm(self);
    if (self->num_acted == 0)
        return false;
    check_pair(self, i, noticed);
    return !psti_test_failed();
}

static void try_pairs(bool is_simt, pst_pool_mode mode, uint32_t blocks)
{
    pause self;
    open_pause(&self, is_simt, mode, blocks);
    /* in short every second access */
    const uint32_t step = mode == PST_POOL_ORDERED && blocks > 1 && psti_test_cases(2) != 2 ? 2 : 1;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        uint32_t noticed = 0, tried = 0;
        for (uint32_t target = 0; try_pair(&self, i, target, &noticed); target += step)
            tried++;
        if (psti_test_failed())
            return;
        const bool is_proper = mode == PST_POOL_CONCURRENT && !pairs[i].faults;
        CHECK_MSG(tried > 4 && (is_proper ? noticed == 0 : noticed > 0 && noticed < tried),
                  "%s: noticed at %u of %u accesses", pairs[i].name, noticed, tried);
    }
    close_bench(&self.b);
}

PST_TEST(Pause, AtEveryAccessOfAnOrderedPool)
{
    try_pairs(true, PST_POOL_ORDERED, 1);
    try_pairs(true, PST_POOL_ORDERED, 2);
}

PST_TEST(Pause, AtEveryAccessOfAConcurrentPool)
{
    try_pairs(true, PST_POOL_CONCURRENT, 1);
    try_pairs(true, PST_POOL_CONCURRENT, 2);
}

PST_TEST(Pause, AtEveryAccessOfAnOrderedPoolOnTheHost)
{
    try_pairs(false, PST_POOL_ORDERED, 1);
}

PST_TEST(Pause, AtEveryAccessOfAConcurrentPoolOnTheHost)
{
    try_pairs(false, PST_POOL_CONCURRENT, 1);
}

#endif
