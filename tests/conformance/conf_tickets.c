/* What a ticket's states allow, and what happens otherwise. */
#include "tests/conformance/conf.h"

enum { ROWS = 40, ROW_BYTES = 3000, TENSORS = 2 }; /* 16 pages at capacity */

/* A destination that lies elsewhere, and one ticket. */
static bool set_up(conf_pair *self, const conf_run *conf, pst_pool_mode mode, uint64_t num_pages)
{
    const ls_options options = conf_options(mode, num_pages, num_pages);
    const shape like = conf_prefix_shape(TENSORS, ROWS, ROW_BYTES);
    oracle_random random = oracle_random_seeded(num_pages);
    shape elsewhere;
    shape_like(&random, &like, false, &elsewhere);
    return conf_pair_open(self, conf, &options, &like, &elsewhere, 1);
}

static void set_rows(conf_pair *self, int64_t rows)
{
    ls_group_set_counts(&self->ls, &self->source, &rows);
}

static void stash_rows(conf_pair *self, int64_t rows)
{
    conf_pair_stash(self, 0, rows);
}

static void restore(conf_pair *self, pst_restore_pages pages)
{
    conf_pair_restore(self, 0, pages, PST_TAIL_UNTOUCHED);
}

/* The fault counted last, by the oracle that agrees with the device. */
static uint32_t flags_of(const conf_pair *self)
{
    return self->ls.oracle->status.flags;
}

/* In a pool of so many pages. */
#define TICKETS(name, num_pages) CONF_BOTH_MODES(CONFORMANCE, Tickets, name, set_up, num_pages)

/* Fault rows 7, 8. */
TICKETS(NoRowsOneRowAllRows, 16)
{
    static const int64_t rows[] = {0, 1, ROWS - 1, ROWS};
    for (int i = 0; i < 4; i++) {
        stash_rows(self, rows[i]);
        restore(self, PST_RESTORE_CONSUME);
        CHECK_EQ(flags_of(self), 0);
    }
}

/* Fault rows 18. */
TICKETS(KeepTwiceThenRelease, 16)
{
    stash_rows(self, 33);
    restore(self, PST_RESTORE_KEEP);
    restore(self, PST_RESTORE_KEEP);
    ls_release(&self->ls, self->tickets[0]);
    CHECK_EQ(flags_of(self), 0);
    CHECK_EQ(self->ls.oracle->num_free[0], 16);
}

TICKETS(KeepThenConsume, 16)
{
    stash_rows(self, 33);
    restore(self, PST_RESTORE_KEEP);
    restore(self, PST_RESTORE_CONSUME);
    CHECK_EQ(flags_of(self), 0);
}

/* Fault rows 17. */
TICKETS(SecondRestoreFindsNothing, 16)
{
    stash_rows(self, 33);
    restore(self, PST_RESTORE_CONSUME);
    restore(self, PST_RESTORE_CONSUME);
    CHECK_EQ(flags_of(self), 1u << PST_FAULT_EMPTY);
    ls_release(&self->ls, self->tickets[0]);
    CHECK_EQ(self->ls.oracle->status.num_faults, 2);
}

/* Without a restore, as where a graph was dropped.
 * Fault rows 19, 20. */
TICKETS(SecondReleaseFindsNothing, 16)
{
    stash_rows(self, 33);
    ls_release(&self->ls, self->tickets[0]);
    CHECK_EQ(flags_of(self), 0);
    CHECK_EQ(self->ls.oracle->num_free[0], 16);
    ls_release(&self->ls, self->tickets[0]);
    CHECK_EQ(flags_of(self), 1u << PST_FAULT_EMPTY);
    CHECK_EQ(self->ls.oracle->num_free[0], 16);
}

/* Fault rows 16. */
TICKETS(RestoreAndReleaseOfATicketNeverStashed, 4)
{
    restore(self, PST_RESTORE_KEEP);
    restore(self, PST_RESTORE_CONSUME);
    ls_release(&self->ls, self->tickets[0]);
    CHECK_EQ(flags_of(self), 1u << PST_FAULT_EMPTY);
    CHECK_EQ(self->ls.oracle->status.num_faults, 3);
}

TICKETS(StashIntoALiveTicketChangesNothing, 40)
{
    stash_rows(self, 20);
    stash_rows(self, 40);
    CHECK_EQ(flags_of(self), 1u << PST_FAULT_LIVE);
    restore(self, PST_RESTORE_CONSUME); /* the first 20 rows */
    stash_rows(self, 40);
    restore(self, PST_RESTORE_CONSUME);
    CHECK_EQ(flags_of(self), 1u << PST_FAULT_LIVE);
}

/* Fault rows 9, 10, 11. */
TICKETS(CountsOutsideTheCapacityFailTheStash, 16)
{
    static const int64_t rows[] = {ROWS + 1, -1, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        stash_rows(self, rows[i]);
        CHECK_EQ(flags_of(self), 1u << PST_FAULT_COUNT);
        CHECK_EQ(self->ls.oracle->status.fault_wanted, (uint64_t)rows[i]);
        restore(self, PST_RESTORE_CONSUME);
        CHECK_EQ(flags_of(self), 1u << PST_FAULT_COUNT | 1u << PST_FAULT_FAILED);
        ls_reset(&self->ls, PST_RESET_FAULTS);
    }
}

TICKETS(FailedTicketIsForgottenByConsumeAndRelease, 15)
{
    stash_rows(self, ROWS);
    CHECK_EQ(flags_of(self), 1u << PST_FAULT_EXHAUSTED);
    restore(self, PST_RESTORE_KEEP); /* stays failed */
    restore(self, PST_RESTORE_CONSUME);
    restore(self, PST_RESTORE_CONSUME);
    CHECK_EQ(flags_of(self),
             1u << PST_FAULT_EXHAUSTED | 1u << PST_FAULT_FAILED | 1u << PST_FAULT_EMPTY);
    stash_rows(self, ROWS);
    ls_release(&self->ls, self->tickets[0]);
    stash_rows(self, ROWS);
    stash_rows(self, 1); /* over a failed one */
    restore(self, PST_RESTORE_CONSUME);
    ls_step(&self->ls);
    CHECK_EQ(self->ls.published.demand_high_water, 16);
    CHECK_EQ(self->ls.published.high_water[0], 2);
}

/* Fault rows 15. */
TICKETS(DestinationTooSmallLeavesTheTicketLive, 16)
{
    const shape small = conf_prefix_shape(TENSORS, ROWS - 7, ROW_BYTES);
    ls_group little;
    ls_group_make(&self->ls, &small, &self->random, &little);
    stash_rows(self, ROWS - 6);
    for (pst_restore_pages pages = PST_RESTORE_CONSUME; pages <= PST_RESTORE_KEEP; pages++)
        ls_restore(&self->ls, self->tickets[0], &little, pages, PST_TAIL_ZERO);
    CHECK_EQ(flags_of(self), 1u << PST_FAULT_DESTINATION);
    restore(self, PST_RESTORE_CONSUME);
    stash_rows(self, ROWS - 7);
    ls_restore(&self->ls, self->tickets[0], &little, PST_RESTORE_CONSUME, PST_TAIL_ZERO);
    CHECK_EQ(flags_of(self), 1u << PST_FAULT_DESTINATION);
    ls_group_free(&self->ls, &little);
}

TICKETS(CountsAreThoseOfTheStash, 16)
{
    stash_rows(self, 21);
    set_rows(self, -5);
    restore(self, PST_RESTORE_KEEP);
    set_rows(self, 40);
    restore(self, PST_RESTORE_CONSUME);
    CHECK_EQ(flags_of(self), 0);
}

/* A row less than whole pages, none less, and one more.
 * Fault rows 8. */
CONFORMANCE(Tickets, RowsAroundTheEndsOfPages)
{
    enum { PAGE_ROWS = 4, NUM_PAGES = 5 };
    static conf_pair self;
    CONF_EACH_MODE (mode) {
        const ls_options options = conf_options(mode, TENSORS * NUM_PAGES, mode);
        const shape like =
            conf_prefix_shape(TENSORS, PAGE_ROWS * NUM_PAGES, PST_PAGE_BYTES_MIN / PAGE_ROWS);
        if (!conf_pair_open(&self, conf, &options, &like, NULL, 1))
            return;
        for (int64_t pages = 1; pages <= NUM_PAGES && !psti_test_failed(); pages++)
            for (int64_t rows = PAGE_ROWS * pages - 1; rows <= PAGE_ROWS * pages + 1; rows++) {
                const bool fits = rows <= PAGE_ROWS * NUM_PAGES;
                stash_rows(&self, rows);
                restore(&self, PST_RESTORE_CONSUME);
                CHECK_EQ(flags_of(&self),
                         fits ? 0 : 1u << PST_FAULT_COUNT | 1u << PST_FAULT_FAILED);
            }
        conf_pair_close(&self);
    }
}

/* Fault rows 9. */
CONFORMANCE(Tickets, EverySegmentsCountIsChecked)
{
    enum { SEGMENTS = 800 }; /* a team reads 64 or 384 at once */
    static const uint32_t segments[] = {0,   1,   31,  32,  63,  64,  65,          191,
                                        192, 383, 384, 385, 767, 768, SEGMENTS - 1};
    const ls_options options = conf_options(PST_POOL_ORDERED, 200, 0);
    const shape like = conf_segments_shape(SEGMENTS, 9, 100);
    oracle_random random = oracle_random_seeded(1);
    lockstep ls;
    ls_group source;
    if (!ls_open(&ls, conf->device, &options))
        return;
    ls_group_make(&ls, &like, &random, &source);
    const uint32_t ticket = ls_ticket_make(&ls, &source);
    for (size_t i = 0; i < sizeof(segments) / sizeof(segments[0]); i++)
        for (int over = 0; over < 2; over++) {
            ls_group_random_counts(&ls, &source, COUNTS_RANDOM, &random);
            source.values[segments[i]] = over ? 10 : -1;
            ls_group_set_counts(&ls, &source, source.values);
            ls_stash(&ls, ticket, &source);
            CHECK_EQ(ls.oracle->status.fault, PST_FAULT_COUNT);
            CHECK_EQ(ls.oracle->status.fault_wanted, over ? 10 : UINT64_MAX);
            ls_reset(&ls, PST_RESET_FAULTS);
        }
    ls_group_free(&ls, &source);
    ls_close(&ls);
}

/* ---- several tickets ---- */

enum { MANY = 12 };

typedef enum order { LIFO, FIFO, SHUFFLED, ORDERS } order;

static void make_order(oracle_random *random, order which, uint32_t *indices)
{
    for (uint32_t i = 0; i < MANY; i++)
        indices[i] = which == LIFO ? MANY - 1 - i : i;
    for (uint32_t i = MANY - 1; which == SHUFFLED && i > 0; i--) {
        const uint32_t other = (uint32_t)oracle_random_below(random, i + 1);
        const uint32_t index = indices[i];
        indices[i] = indices[other];
        indices[other] = index;
    }
}

/* Several steps of forward and backward: the ring is shuffled by what came before. */
static void run_order(const conf_run *conf, pst_pool_mode mode, order which)
{
    const ls_options options = conf_options(mode, 240, which);
    lockstep ls;
    ls_group sources[MANY];
    uint32_t tickets[MANY];
    uint32_t indices[MANY];
    oracle_random random = oracle_random_seeded(which);
    shape like;
    shape_make(&random, SHAPE_SEGMENTS, 60000, &like);
    if (!ls_open(&ls, conf->device, &options))
        return;
    for (uint32_t i = 0; i < MANY; i++) {
        ls_group_make(&ls, &like, &random, &sources[i]);
        tickets[i] = ls_ticket_make(&ls, &sources[i]);
    }
    for (int step = 0; step < 4; step++) {
        for (uint32_t i = 0; i < MANY; i++) {
            ls_group_random_counts(&ls, &sources[i], COUNTS_RANDOM, &random);
            ls_stash(&ls, tickets[i], &sources[i]);
        }
        make_order(&random, step == 3 ? SHUFFLED : which, indices);
        for (uint32_t i = 0; i < MANY; i++)
            ls_restore(&ls, tickets[indices[i]], &sources[0], PST_RESTORE_CONSUME,
                       (pst_restore_tail)(i % 2));
        ls_step(&ls);
    }
    CHECK_EQ(ls.published.flags, 0);
    for (uint32_t i = 0; i < MANY; i++)
        ls_group_free(&ls, &sources[i]);
    ls_close(&ls);
}

/* More tensors than a team has warps, of which each sums the segments of one. */
CONFORMANCE(Tickets, SegmentsOfManyTensors)
{
    enum { SEGMENTS = 3, CAPACITY = 5 };
    CONF_EACH_MODE (mode) {
        static conf_pair self;
        const ls_options options = conf_options(mode, 2 * MANY, mode);
        shape like = conf_prefix_shape(MANY, SEGMENTS * CAPACITY, 1040);
        like.group.spaces[0] = conf_segments_shape(SEGMENTS, CAPACITY, 1040).group.spaces[0];
        if (!conf_pair_open(&self, conf, &options, &like, NULL, 1))
            return;
        const int64_t rows[SEGMENTS] = {CAPACITY, 0, 3};
        ls_group_fill(&self.ls, &self.source, &self.random);
        ls_group_set_counts(&self.ls, &self.source, rows);
        ls_stash(&self.ls, self.tickets[0], &self.source);
        conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
        CHECK_EQ(self.ls.oracle->status.num_faults, 0);
        conf_pair_close(&self);
    }
}

CONFORMANCE(Tickets, LastStashedFirstRestored)
{
    CONF_EACH_MODE (mode)
        run_order(conf, mode, LIFO);
}

CONFORMANCE(Tickets, FirstStashedFirstRestored)
{
    CONF_EACH_MODE (mode)
        run_order(conf, mode, FIFO);
}

CONFORMANCE(Tickets, RestoredInAnyOrder)
{
    CONF_EACH_MODE (mode)
        run_order(conf, mode, SHUFFLED);
}

TICKETS(DestroyedWhileOthersAreLive, 40)
{
    const uint32_t second = ls_ticket_make(&self->ls, &self->source);
    stash_rows(self, 30);
    set_rows(self, 11);
    ls_stash(&self->ls, second, &self->source);
    CHECK_STATUS(pst_ticket_destroy(self->ls.tickets[second]), PST_E_BUSY);
    ls_release(&self->ls, second);
    ls_ticket_free(&self->ls, second);
    restore(self, PST_RESTORE_KEEP);
    CHECK_EQ(ls_ticket_make(&self->ls, &self->source), second); /* the index is used again */
    ls_restore(&self->ls, second, &self->destination, PST_RESTORE_KEEP, PST_TAIL_ZERO);
    CHECK_EQ(flags_of(self), 1u << PST_FAULT_EMPTY);
}
