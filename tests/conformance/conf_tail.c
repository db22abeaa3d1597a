/* Zero-filling behind the live rows: exactly [live, dirty) is cleared, and nothing beyond. The
 * image of the oracle says so of every byte; the tests check what they expect of the oracle, too. */
#include "tests/conformance/conf.h"

enum { ROWS = 64, ROW_BYTES = 1100 };

static bool set_up(conf_pair *self, const conf_run *conf, const shape *like, bool tail_is_zero,
                   uint64_t seed)
{
    const ls_options options = conf_options(PST_POOL_ORDERED, 200, seed);
    shape destination = *like;
    destination.tail_is_zero = tail_is_zero;
    if (!conf_pair_open(self, conf, &options, like, &destination, 1))
        return false;
    self->destination.model.names_dirty = true;
    ls_group_poison(&self->ls, &self->destination, 0xee);
    return !self->ls.failed;
}

/* Brings `rows` rows of 0xbb to the destination. */
static void bring(conf_pair *self, int64_t rows, pst_restore_tail tail)
{
    ls_group_poison(&self->ls, &self->source, 0xbb);
    ls_group_set_counts(&self->ls, &self->source, &rows);
    ls_stash(&self->ls, self->tickets[0], &self->source);
    ls_restore(&self->ls, self->tickets[0], &self->destination, PST_RESTORE_CONSUME, tail);
}

/* Rows of the first tensor that hold nothing but `value`, from row `first` on. */
static int64_t rows_of(const conf_pair *self, int64_t first, int value)
{
    const oracle_group *model = &self->destination.model;
    const unsigned char *base = model->image + model->at[0];
    int64_t row = first;
    for (; row < ROWS; row++)
        for (size_t byte = 0; byte < ROW_BYTES; byte++)
            if (base[(size_t)row * ROW_BYTES + byte] != value)
                return row - first;
    return row - first;
}

CONFORMANCE(Tail, ClearsOnlyWhatAnEarlierRestoreLeft)
{
    static conf_pair self;
    const shape like = conf_prefix_shape(2, ROWS, ROW_BYTES);
    if (!set_up(&self, conf, &like, true, 11))
        return;
    bring(&self, 30, PST_TAIL_ZERO);
    CHECK_EQ(rows_of(&self, 0, 0xbb), 30);
    CHECK_EQ(rows_of(&self, 30, 0xee), ROWS - 30); /* said to be zero: not touched */
    bring(&self, 12, PST_TAIL_ZERO);
    CHECK_EQ(rows_of(&self, 12, 0), 18);
    CHECK_EQ(rows_of(&self, 30, 0xee), ROWS - 30);
    bring(&self, 50, PST_TAIL_UNTOUCHED);
    bring(&self, 20, PST_TAIL_UNTOUCHED);
    CHECK_EQ(rows_of(&self, 0, 0xbb), 50);
    bring(&self, 20, PST_TAIL_ZERO);
    CHECK_EQ(rows_of(&self, 20, 0), 30);
    CHECK_EQ(rows_of(&self, 50, 0xee), ROWS - 50);
    bring(&self, 0, PST_TAIL_ZERO);
    CHECK_EQ(rows_of(&self, 0, 0), 50);
    bring(&self, ROWS, PST_TAIL_ZERO);
    bring(&self, 0, PST_TAIL_ZERO);
    CHECK_EQ(rows_of(&self, 0, 0), ROWS);
    conf_pair_close(&self);
}

CONFORMANCE(Tail, UnknownTailIsClearedUpToTheCapacityOnce)
{
    static conf_pair self;
    const shape like = conf_prefix_shape(2, ROWS, ROW_BYTES);
    if (!set_up(&self, conf, &like, false, 11))
        return;
    bring(&self, 30, PST_TAIL_UNTOUCHED);
    CHECK_EQ(rows_of(&self, 30, 0xee), ROWS - 30);
    bring(&self, 10, PST_TAIL_ZERO);
    CHECK_EQ(rows_of(&self, 10, 0), ROWS - 10);
    ls_group_poison(&self.ls, &self.destination, 0xdd);
    bring(&self, 10, PST_TAIL_ZERO);
    CHECK_EQ(rows_of(&self, 10, 0xdd), ROWS - 10);
    conf_pair_close(&self);
}

CONFORMANCE(Tail, MarkDirtyClearsUpToTheCapacityAgain)
{
    static conf_pair self;
    const shape like = conf_prefix_shape(2, ROWS, ROW_BYTES);
    if (!set_up(&self, conf, &like, true, 11))
        return;
    bring(&self, 10, PST_TAIL_ZERO);
    ls_group_mark_dirty(&self.ls, &self.destination);
    bring(&self, 11, PST_TAIL_ZERO);
    CHECK_EQ(rows_of(&self, 11, 0), ROWS - 11);
    conf_pair_close(&self);
}

CONFORMANCE(Tail, KeptTicketClearsEachTime)
{
    static conf_pair self;
    const shape like = conf_prefix_shape(1, ROWS, ROW_BYTES);
    const int64_t rows = 25;
    if (!set_up(&self, conf, &like, false, 11))
        return;
    ls_group_set_counts(&self.ls, &self.source, &rows);
    ls_stash(&self.ls, self.tickets[0], &self.source);
    for (int again = 0; again < 3; again++) {
        ls_group_poison(&self.ls, &self.destination, 0x77);
        ls_group_mark_dirty(&self.ls, &self.destination);
        ls_restore(&self.ls, self.tickets[0], &self.destination, PST_RESTORE_KEEP, PST_TAIL_ZERO);
        CHECK_EQ(rows_of(&self, 25, 0), ROWS - 25);
    }
    conf_pair_close(&self);
}

/* Up to the capacity, whatever was there, and beyond it nothing. */
CONFORMANCE(Tail, ZeroAllNeedsNoDirtyWords)
{
    static conf_pair self;
    const shape like = conf_prefix_shape(2, ROWS, ROW_BYTES);
    if (!set_up(&self, conf, &like, true, 11))
        return;
    self.destination.model.names_dirty = false;
    for (int64_t rows = 0; rows <= ROWS; rows += 16) {
        ls_group_poison(&self.ls, &self.destination, 0xee);
        bring(&self, rows, PST_TAIL_ZERO_ALL);
        CHECK_EQ(rows_of(&self, 0, 0xbb), rows);
        CHECK_EQ(rows_of(&self, rows, 0), ROWS - rows);
    }
    ls_group_poison(&self.ls, &self.destination, 0xee);
    self.destination.model.capacities[0] = 40;
    bring(&self, 10, PST_TAIL_ZERO_ALL);
    CHECK_EQ(rows_of(&self, 10, 0), 30);
    CHECK_EQ(rows_of(&self, 40, 0xee), ROWS - 40);
    conf_pair_close(&self);
}

/* Words that are named are kept up to date, but do not say how far is cleared. */
CONFORMANCE(Tail, ZeroAllKeepsDirtyWordsUpToDate)
{
    static conf_pair self;
    const shape like = conf_prefix_shape(1, ROWS, ROW_BYTES);
    if (!set_up(&self, conf, &like, true, 11))
        return;
    bring(&self, 30, PST_TAIL_ZERO_ALL);
    CHECK_EQ(rows_of(&self, 30, 0), ROWS - 30);
    ls_group_poison(&self.ls, &self.destination, 0xdd);
    bring(&self, 10, PST_TAIL_ZERO); /* what the first left */
    CHECK_EQ(rows_of(&self, 10, 0), 20);
    CHECK_EQ(rows_of(&self, 30, 0xdd), ROWS - 30);
    conf_pair_close(&self);
}

/* A restore that copies nothing leaves the dirty extents alone. */
CONFORMANCE(Tail, FaultsLeaveTheExtentsAlone)
{
    static conf_pair self;
    const shape like = conf_prefix_shape(1, ROWS, ROW_BYTES);
    if (!set_up(&self, conf, &like, true, 11))
        return;
    bring(&self, 40, PST_TAIL_UNTOUCHED);
    ls_restore(&self.ls, self.tickets[0], &self.destination, PST_RESTORE_CONSUME, PST_TAIL_ZERO);
    CHECK_EQ(rows_of(&self, 0, 0xbb), 40);
    bring(&self, 5, PST_TAIL_ZERO);
    CHECK_EQ(rows_of(&self, 5, 0), 35);
    conf_pair_close(&self);
}

CONFORMANCE(Tail, SegmentsAndRatiosHaveTheirOwnExtents)
{
    for (uint32_t i = 0; i < conf_cases(conf, 60) && !psti_test_failed(); i++) {
        static conf_pair self;
        const uint64_t seed = conf_seed(i);
        oracle_random random = oracle_random_seeded(seed);
        shape like;
        conf_vary(conf, seed);
        shape_make(&random, seed % 2 ? SHAPE_RATIOS : SHAPE_SEGMENTS, conf_bytes(conf, 30000),
                   &like);
        if (!set_up(&self, conf, &like, oracle_random_one_in(&random, 2), seed))
            return;
        for (int step = 0; step < 6; step++) {
            ls_group_random_counts(&self.ls, &self.source,
                                   (counts_kind)oracle_random_below(&random, COUNTS_GOOD), &random);
            ls_stash(&self.ls, self.tickets[0], &self.source);
            ls_restore(&self.ls, self.tickets[0], &self.destination, PST_RESTORE_CONSUME,
                       oracle_random_one_in(&random, 3) ? PST_TAIL_UNTOUCHED : PST_TAIL_ZERO);
        }
        conf_pair_close(&self);
    }
}
