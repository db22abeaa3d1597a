/* Operations that stand still (pause.h) where it matters most: at the arrivals, of which the last
 * claims, and where a leader has decided for others. */
#include "tests/simt/pause.h"

#if !PSTI_UNDER_TSAN

/* ---- what belongs together ---- */

static void check_nothing_is_taken(pause *self, uint64_t launch)
{
    const psti_pool_state *state = state_of(self);
    CHECK(status_of(&self->b).flags & PST_FLAG_ORDER);
    CHECK_EQ(state->head[0], 0);
    CHECK_EQ(live_tickets(self), 0);
    CHECK_EQ(psti_launch_of(*launch_of(self)), launch);
    check_works(&self->b);
}

/* The blocks of two launches of one ticket, which read the same launch word, make up no launch. */
PST_TEST(Pause, HalvesOfTwoLaunchesAreNoLaunch)
{
    pause self;
    open_pause(&self, true, PST_POOL_ORDERED, 2);
    CHECK_OK(pst_pool_reset(self.b.pool, PST_RESET_ALL, NULL));
    const uint64_t launch = *launch_of(&self);
    arm(&self, is_arrival, 1, stash_0_again);
    stash_0(&self);
    disarm(&self);
    CHECK_EQ(self.num_acted, 1);
    check_nothing_is_taken(&self, launch);
    close_bench(&self.b);
}

/* The number in a launch word has 16 bits. */
PST_TEST(Pause, TheNumbersOfLaunchesComeRound)
{
    for (pst_pool_mode mode = PST_POOL_ORDERED; mode <= PST_POOL_CONCURRENT; mode++) {
        pause self;
        open_pause(&self, true, mode, 2);
        CHECK_OK(pst_pool_reset(self.b.pool, PST_RESET_ALL, NULL));
        *launch_of(&self) = 0xfffe;
        stash_0(&self);
        CHECK_EQ(*launch_of(&self), 0);
        CHECK_EQ(record_of(&self, 0)->ready, 0); /* a replay might take it for its own */
        restore_0(&self);
        CHECK_EQ(*launch_of(&self), 2);
        CHECK(holds(&self, 2, 0x10));
        CHECK_EQ(status_of(&self.b).flags, 0);
        *launch_of(&self) = 0xffff + psti_arrival(7, 3); /* what a refused launch leaves */
        CHECK_OK(pst_pool_reset(self.b.pool, PST_RESET_ALL, NULL));
        CHECK_EQ(*launch_of(&self) >> 16, 0);
        check_works(&self.b);
        close_bench(&self.b);
    }
}

/* In an ordered pool the ready word counts pages that could not be had. A stash cannot have missed
 * more than its own, whatever stands there. */
PST_TEST(Pause, ADamagedReadyWordIsNoCount)
{
    pause self;
    open_pause(&self, true, PST_POOL_ORDERED, 2);
    record_of(&self, 0)->ready = UINT64_MAX;
    stash_0(&self);
    CHECK(status_of(&self.b).flags & 1u << PST_FAULT_DAMAGED);
    CHECK_EQ(status_of(&self.b).num_faults, self.b.count);
    CHECK_EQ(record_of(&self, 0)->ready, 0);
    CHECK_EQ(live_tickets(&self), 1);
    close_bench(&self.b);
}

/* ---- counts that are another stash's ---- */

static void stash_less(pause *self)
{
    restore_rows(&self->b, 0, 3);
    self->b.count = 1;
    stash_rows(&self->b, 0, 1);
    self->b.count = 3;
}

static bool has_rows(const pause *self, int32_t rows, int value)
{
    for (int32_t row = 0; row < ROWS; row++) {
        const unsigned char *at = self->b.rows[2] + row * ROW_BYTES;
        if (at[0] != (row < rows ? value : POISON) || memcmp(at, at + 1, ROW_BYTES - 1) != 0)
            return false;
    }
    return true;
}

/* False: there are not so many accesses. */
static bool restore_beside_stash(pause *self, uint32_t target, uint32_t *noticed)
{
    configure(self, OUTER);
    pst_pool_reset(self->b.pool, PST_RESET_ALL, NULL);
    stash_0(self);
    memset(self->b.rows[2], POISON, ROWS * ROW_BYTES);
    arm(self, in_protocol, target, stash_less);
    restore_0(self);
    disarm(self);
    const uint32_t flags = status_of(&self->b).flags;
    if (self->num_acted == 0)
        return false;
    *noticed += (flags & PST_FLAG_ORDER) != 0;
    if (!(flags & PST_FLAG_ORDER) &&
        (flags & ~SAME_TICKET || !(flags || has_rows(self, 3, 0x10) || has_rows(self, 1, 0x11))))
        psti_test_fail(__FILE__, __LINE__, "access %u: flags are %x, or the rows are no stash's",
                       target, flags);
    return !psti_test_failed();
}

/* A restore of a plain group asks for the counts beside all else: those of a stash that is gone must
 * not go with the words of the next one. */
PST_TEST(Pause, ARestoreBelievesNoCountsOfAnotherStash)
{
    for (uint32_t blocks = 1; blocks <= 2; blocks++) {
        pause self;
        uint32_t noticed = 0, tried = 0;
        open_pause(&self, true, PST_POOL_ORDERED, blocks);
        while (restore_beside_stash(&self, tried, &noticed))
            tried++;
        CHECK_MSG(noticed > 0 && noticed < tried, "noticed at %u of %u", noticed, tried);
        close_bench(&self.b);
    }
}

/* ---- a late arrival ---- */

static struct {
    pause *self;
    pthread_t beside;
    uint32_t arrivals; /* of both launches */
    bool has_begun, is_claimed, has_waited;
    bool goes_on; /* atomic: the first block of the outer launch may arrive */
} late;

static void *stash_beside(void *opaque)
{
    stash_0_again(opaque);
    __atomic_store_n(&late.goes_on, true, __ATOMIC_RELEASE); /* had it not claimed */
    return NULL;
}

/* Block 0 of the outer launch stands before its arrival while a launch of one block begins, arrives
 * and claims; between that claim and the end of the commit it arrives. */
static void on_late(simt_access access, const void *at, void *user)
{
    pause *self = user;
    if (is_arrival(self, access, at) && late.arrivals++ == 0) {
        simt_set_block_hook(NULL, NULL); /* not of the launch that begins now */
        configure(self, INNER);
        late.has_begun = pthread_create(&late.beside, NULL, stash_beside, self) == 0;
        while (!__atomic_load_n(&late.goes_on, __ATOMIC_ACQUIRE))
            sched_yield();
    } else if (late.is_claimed && !late.has_waited) {
        const uint32_t before = arrived(self);
        late.has_waited = true;
        __atomic_store_n(&late.goes_on, true, __ATOMIC_RELEASE);
        while (arrived(self) == before)
            sched_yield();
    } else if (is_arrival(self, access, at)) {
        late.is_claimed = true; /* as soon as it has done this */
    }
}

/* The other blocks begin when the other launch has ended: they cannot meet it. */
static void join_beside(uint32_t block, int at_start, void *user)
{
    (void)block;
    (void)user;
    if (at_start || !late.has_begun)
        return;
    pthread_join(late.beside, NULL);
    late.has_begun = false;
    configure(late.self, OUTER);
}

static void arrive_late(pst_pool_mode mode)
{
    pause self;
    memset(&late, 0, sizeof(late));
    late.self = &self;
    open_pause(&self, true, mode, 3);
    self.inner_blocks = 1;
    CHECK_OK(pst_pool_reset(self.b.pool, PST_RESET_ALL, NULL));
    simt_set_point_hook(on_late, &self);
    simt_set_block_hook(join_beside, NULL);
    stash_0(&self);
    simt_set_point_hook(NULL, NULL);
    CHECK(late.has_waited);
    CHECK(status_of(&self.b).flags & PST_FLAG_ORDER);
    check_works(&self.b);
    close_bench(&self.b);
}

/* Else the larger launch would never end, and nobody would know. */
PST_TEST(Pause, ALateArrivalIsNotWipedOut)
{
    arrive_late(PST_POOL_ORDERED);
}

/* ---- what must be so at the claim ---- */

static void look_at_destination(pause *self)
{
    CHECK(holds(self, 2, 0x10));
}

static bool is_filled(const psti_pool_view *view, uint32_t id, int value)
{
    const unsigned char *page = psti_page_address(view, id);
    return page[0] == value && memcmp(page, page + 1, ROW_BYTES - 1) == 0;
}

/* The first pages of the ring are those that a stash, or a demotion, into a fresh pool takes. */
static void look_at_pages(const pause *self, uint32_t tier, int value)
{
    const psti_pool_view *view = &self->b.pool->view;
    for (int32_t page = 0; page < self->b.count; page++)
        CHECK_MSG(is_filled(view, view->ring[tier][page], value), "page %d", page);
}

static void look_at_stashed(pause *self)
{
    look_at_pages(self, PSTI_TIER_DEVICE, 0x10);
}

static void look_at_scrubbed(pause *self)
{
    look_at_destination(self);
    look_at_pages(self, PSTI_TIER_DEVICE, 0);
}

static void look_at_demoted(pause *self)
{
    look_at_pages(self, PSTI_TIER_HOST, 0x10);
    look_at_pages(self, PSTI_TIER_DEVICE, 0);
}

static void look_at_claim(pause *self, void (*operation)(pause *self), void (*look)(pause *self))
{
    arm(self, is_arrival, self->outer_blocks - 1, look);
    operation(self);
    disarm(self);
    CHECK_EQ(self->num_acted, 1);
}

/* Whoever arrives has copied, and scrubbed: from the claim on the pages can be another's. */
PST_TEST(Pause, AtTheClaimAllBytesAreWhereTheyBelong)
{
    for (pst_pool_mode mode = PST_POOL_ORDERED; mode <= PST_POOL_CONCURRENT; mode++) {
        pause self;
        open_pause(&self, true, mode, 3);
        self.b.pool->view.scrubs = 1;
        CHECK_OK(pst_pool_reset(self.b.pool, PST_RESET_ALL, NULL));
        look_at_claim(&self, stash_0, look_at_stashed);
        look_at_claim(&self, restore_0, look_at_scrubbed);
        CHECK_OK(pst_pool_reset(self.b.pool, PST_RESET_ALL, NULL));
        stash_0(&self);
        look_at_claim(&self, demote_0, look_at_demoted);
        CHECK_EQ(status_of(&self.b).flags, 0);
        close_bench(&self.b);
    }
}

/* ---- the leader's word ---- */

static bool is_after_ready(const pause *self, simt_access access, const void *at)
{
    (void)access;
    (void)at;
    return record_of(self, 0)->ready != 0;
}

static void wait_for_other(pause *self)
{
    for (int i = 0; arrived(self) == 0 && i < 1000000; i++)
        sched_yield();
    CHECK_EQ(arrived(self), 1);
}

static uint32_t num_waits; /* atomic: looks at the leader's word */

static void on_point_or_wait(simt_access access, const void *at, void *user)
{
    if (access == SIMT_LOAD && at == &record_of(user, 0)->ready)
        __atomic_fetch_add(&num_waits, 1, __ATOMIC_RELAXED);
    on_point(access, at, user);
}

static bool is_locking(const pause *self, simt_access access, const void *at)
{
    return access == SIMT_ADD && at == &state_of(self)->lock_next;
}

static void restore_when_they_wait(pause *self)
{
    while (__atomic_load_n(&num_waits, __ATOMIC_RELAXED) == 0)
        sched_yield();
    configure(self, OTHER);
    restore_0(self);
}

/* The leader has been chosen, the others wait for it, and the ticket's launch word changes. */
PST_TEST(Pause, OthersAreLetGoWhateverHappensToTheTicket)
{
    pause self;
    open_pause(&self, true, PST_POOL_CONCURRENT, 2);
    CHECK_OK(pst_pool_reset(self.b.pool, PST_RESET_ALL, NULL));
    stash_0(&self);
    num_waits = 0;
    configure(&self, INNER);
    arm(&self, is_locking, 0, restore_when_they_wait);
    simt_set_point_hook(on_point_or_wait, &self);
    stash_0_again(&self);
    disarm(&self);
    CHECK_EQ(self.num_acted, 1);
    CHECK(status_of(&self.b).flags & PST_FLAG_ORDER);
    check_works(&self.b);
    close_bench(&self.b);
}

/* As soon as the leader lets them go the other blocks have all that they need. */
PST_TEST(Pause, OthersGoOnWhileTheLeaderStands)
{
    pause self;
    open_pause(&self, true, PST_POOL_CONCURRENT, 2);
    self.with_lock = true;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pst_pool_reset(self.b.pool, PST_RESET_ALL, NULL));
        if (i == 1)
            stash_1(&self); /* so that pages have other numbers */
        configure(&self, INNER);
        arm(&self, is_after_ready, 0, wait_for_other);
        stash_0(&self);
        disarm(&self);
        CHECK_EQ(self.num_acted, 1);
        CHECK_OK(restore_rows(&self.b, 0, 2));
        CHECK(holds(&self, 2, 0x10));
        CHECK_EQ(status_of(&self.b).flags, 0);
    }
    close_bench(&self.b);
}

#endif
