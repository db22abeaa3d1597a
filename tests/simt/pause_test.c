/* One operation stands still before one of its accesses to the protocol's words, another that is
 * not ordered with it runs from another thread, and the first goes on: at every access, on the
 * kernels of simt and on those of the host. Either ORDER is set, or both are as if one had come
 * after the other. README.md says which bugs are found here. */
#include "tests/simt/overlap_scene.h"

#if !PSTI_UNDER_TSAN

#include <pthread.h>
#include <sched.h>

#include "kernels/core/pool.h"
#include "tests/simt/simt_points.h"

/* Slots: launches of one number share them, so what runs meanwhile has others. */
#define OUTER 1
#define INNER 2
#define OTHER 3
#define POISON 0xcc

typedef struct pause {
    bench b;
    bool is_simt;
    uint32_t outer_blocks, inner_blocks; /* of a launch, at most */
    uint64_t seed;
    /* when: */
    bool (*is_place)(const struct pause *self, simt_access access, const void *at);
    uint32_t target, seen; /* at the place of this number */
    bool is_armed;
    bool with_lock; /* also where it holds the lock, for what does not want it */
    /* what then: */
    void (*act)(struct pause *self);
    uint32_t num_acted;
} pause;

static psti_pool_state *state_of(const pause *self)
{
    return self->b.pool->view.state;
}

static psti_ticket_record *record_of(const pause *self, int ticket)
{
    return (psti_ticket_record *)(uintptr_t)
        self->b.pool->view.tickets[pst_ticket_index(self->b.tickets[ticket])];
}

static bool is_within(const void *at, const void *start, size_t bytes)
{
    return (uintptr_t)at - (uintptr_t)start < bytes;
}

/* ---- places ---- */

static bool in_protocol(const pause *self, simt_access access, const void *at)
{
    const psti_pool_view *view = &self->b.pool->view;
    bool is = is_within(at, view->state, sizeof(*view->state));
    for (int t = 0; t < NUM_TICKETS; t++)
        is |= is_within(at, record_of(self, t), sizeof(psti_ticket_record));
    for (uint32_t tier = 0; access == SIMT_CAS && tier < PSTI_TIERS;
         tier++) /* not the many loads */
        is |= is_within(at, view->owner[tier], view->max_pages[tier] * sizeof(uint64_t));
    return is;
}

static bool is_arrival(const pause *self, simt_access access, const void *at)
{
    return access == SIMT_ADD && at == &record_of(self, 0)->arrive_out;
}

static uint64_t *launch_of(const pause *self)
{
    return self->b.pool->view.concurrent ? &record_of(self, 0)->launch : &state_of(self)->launch;
}

static bool is_claim(const pause *self, simt_access access, const void *at)
{
    return access == SIMT_CAS && at == launch_of(self);
}

/* ---- standing still ---- */

static void configure(const pause *self, uint32_t residency)
{
    simt_options options = bench_machine(self->seed, residency);
    options.max_blocks = residency == OUTER ? self->outer_blocks : self->inner_blocks;
    if (self->is_simt)
        psti_simt_configure(&options);
}

static void *run_act(void *opaque)
{
    pause *self = opaque;
    self->act(self);
    return NULL;
}

/* Who waits for a lock of one who stands still waits for ever. */
static bool is_locked(const pause *self)
{
    return __atomic_load_n(&state_of(self)->lock_next, __ATOMIC_RELAXED) !=
           __atomic_load_n(&state_of(self)->lock_serving, __ATOMIC_RELAXED);
}

static void on_point(simt_access access, const void *at, void *user)
{
    pause *self = user;
    pthread_t thread;
    if (!self->is_armed || (is_locked(self) && !self->with_lock) ||
        !self->is_place(self, access, at) || self->seen++ != self->target)
        return;
    self->is_armed = false;
    self->num_acted++;
    configure(self, INNER);
    pthread_create(&thread, NULL, run_act, self);
    pthread_join(thread, NULL);
    configure(self, OUTER);
}

static void arm(pause *self,
                bool (*is_place)(const pause *self, simt_access access, const void *at),
                uint32_t target, void (*act)(pause *self))
{
    self->is_place = is_place;
    self->target = target;
    self->seen = 0;
    self->num_acted = 0;
    self->act = act;
    self->is_armed = true;
    simt_set_point_hook(on_point, self);
}

static void disarm(pause *self)
{
    simt_set_point_hook(NULL, NULL);
    self->is_armed = false;
}

static void open_pause(pause *self, bool is_simt, pst_pool_mode mode, uint32_t blocks)
{
    const simt_options options = bench_machine(OUTER, OUTER);
    pst_pool_config config = bench_pool(mode);
    pst_device *device = NULL;
    config.num_host_pages = 16;
    *self = (pause){.is_simt = is_simt, .outer_blocks = blocks, .inner_blocks = 2, .seed = 1};
    CHECK_EQ(is_simt ? psti_simt_device_open(&options, &device) : psti_simt_host_open(&device),
             PST_OK);
    configure(self, OUTER);
    open_bench_on(&self->b, device, &config);
    self->b.count = 3;
}

/* ---- operations ---- */

static void stash_0(pause *self)
{
    stash_rows(&self->b, 0, 0);
}

static void stash_1(pause *self)
{
    stash_rows(&self->b, 1, 1);
}

static void stash_0_again(pause *self)
{
    stash_rows(&self->b, 0, 1);
}

static void restore_0(pause *self)
{
    restore_rows(&self->b, 0, 2);
}

static void restore_1(pause *self)
{
    restore_rows(&self->b, 1, 3);
}

static void release_0(pause *self)
{
    pst_ticket_release(self->b.tickets[0], NULL);
}

static void demote_0(pause *self)
{
    pst_ticket_demote(self->b.tickets[0], NULL, NULL);
}

static void demote_1(pause *self)
{
    pst_ticket_demote(self->b.tickets[1], NULL, NULL);
}

/* ---- at every access ---- */

#define SAME_TICKET (1u << PST_FAULT_LIVE | 1u << PST_FAULT_EMPTY | 1u << PST_FAULT_MOVED)

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

static uint32_t live_tickets(const pause *self)
{
    uint32_t live = 0;
    for (int t = 0; t < NUM_TICKETS; t++)
        live |= (uint32_t)(psti_ticket_now(record_of(self, t), state_of(self)->epoch) ==
                           PSTI_TICKET_LIVE)
                << t;
    return live;
}

static bool holds(const pause *self, int group, int value)
{
    return wrong_rows(&self->b, group, value) == 0;
}

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

/* ---- what belongs together ---- */

static void check_nothing_is_taken(pause *self, uint64_t launch)
{
    const psti_pool_state *state = state_of(self);
    CHECK(status_of(&self->b).flags & PST_FLAG_ORDER);
    CHECK_EQ(state->head[0], 0);
    CHECK_EQ(live_tickets(self), 0);
    CHECK_EQ(*launch_of(self), launch);
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

/* ---- a late arrival ---- */

static uint32_t arrived(const pause *self)
{
    return (uint32_t)__atomic_load_n(&record_of(self, 0)->arrive_out, __ATOMIC_ACQUIRE);
}

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
    } else if (is_claim(self, access, at)) {
        late.is_claimed = true;
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
    arm(self, is_claim, 0, look);
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
