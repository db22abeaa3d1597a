/* Tensors of several segments, of many tiles each: tiles that lie within one, that straddle two or more, up to
 * more than a batch of runs has room for, that begin at addresses of all kinds; what a restore clears behind each;
 * both tiers of pages. */
#include "tests/conformance/conf.h"

enum { SEGMENTS = 6 };

typedef struct segment_case {
    const char *name;
    uint32_t segments;
    int64_t capacity;
    uint64_t row_bytes;
    uint64_t offset; /* of the base from a multiple of 16 */
    uint64_t apart;  /* bytes between the segments */
    int64_t few[SEGMENTS], many[SEGMENTS];
} segment_case;

static const segment_case cases[] = {
    {"whole tiles", 5, 40, 4096, 0, 0, {0, 8, 0, 4, 0}, {40, 0, 8, 33, 40}},
    {"ends between multiples of 16", 4, 100, 1000, 0, 0, {1, 0, 99, 17}, {100, 3, 77, 50}},
    {"bases that 4 divides", 3, 20, 4096, 4, 0, {0, 3, 20}, {20, 20, 9}},
    {"bases of all kinds", 4, 24, 4096, 0, 7, {24, 0, 0, 1}, {24, 23, 20, 24}},
    {"100 tiles each", 2, 400, 4096, 0, 0, {3, 0}, {400, 397}},
    {"shorter than a tile", 6, 50, 112, 0, 0, {0, 0, 1, 50, 0, 2}, {50, 49, 0, 50, 31, 50}},
};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

/* Beside it, in tiles behind it, a tensor that is one run. */
static shape make_shape(const segment_case *from)
{
    const uint64_t stride = (uint64_t)from->capacity * from->row_bytes + from->apart;
    shape made = {.group = {.num_spaces = 2, .num_tensors = 2}};
    oracle_group *group = &made.group;
    group->spaces[0] = (pst_row_space){.kind = PST_ROWS_SEGMENTS,
                                       .count_type = PST_COUNT_INT32,
                                       .capacity = from->capacity,
                                       .num_segments = from->segments};
    group->spaces[1] = (pst_row_space){.capacity = 9};
    group->tensors[0] = (pst_tensor){.row_bytes = from->row_bytes};
    group->tensors[1] = (pst_tensor){.row_bytes = 4096, .space = 1};
    group->segment_strides[0] = stride;
    group->at[0] = 64 + from->offset;
    group->at[1] = (group->at[0] + from->segments * stride + 79) / 16 * 16;
    made.arena_bytes = (size_t)(group->at[1] + UINT64_C(9) * 4096 + 64);
    return made;
}

static void stash(conf_pair *self, const segment_case *from, const int64_t *rows)
{
    int64_t counts[SEGMENTS + 1];
    memcpy(counts, rows, from->segments * sizeof(counts[0]));
    counts[from->segments] = 9;
    ls_group_fill(&self->ls, &self->source, &self->random);
    ls_group_set_counts(&self->ls, &self->source, counts);
    ls_stash(&self->ls, self->tickets[0], &self->source);
}

static void restore_many(conf_pair *self)
{
    conf_pair_restore(self, 0, PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED);
    conf_pair_restore(self, 0, PST_RESTORE_CONSUME, PST_TAIL_ZERO);
}

/* What is stashed behind restore_many: so there is something to clear. */
static void restore_few(conf_pair *self)
{
    ls_restore(&self->ls, self->tickets[0], &self->destination, PST_RESTORE_KEEP, PST_TAIL_ZERO);
    conf_pair_restore(self, 0, PST_RESTORE_CONSUME, PST_TAIL_ZERO_ALL);
    CHECK_EQ(self->ls.oracle->status.flags, 0);
}

static void try_case(const conf_run *conf, const segment_case *from, pst_pool_mode mode,
                     bool spills)
{
    static conf_pair self;
    const shape like = make_shape(from);
    const uint64_t most = (uint64_t)from->capacity * from->row_bytes * from->segments;
    ls_options options =
        conf_options(mode, spills ? (most >> 17) + 1 : 240, (uint64_t)(from - cases));
    options.num_host_pages = spills ? 240 : 0;
    options.page_bytes = mode == PST_POOL_CONCURRENT ? 16384 : 65536;
    conf_vary(conf, options.seed + mode);
    if (!conf_pair_open(&self, conf, &options, &like, NULL, 1))
        return;
    self.destination.model.names_dirty = true;
    stash(&self, from, from->many);
    restore_many(&self);
    stash(&self, from, from->few);
    restore_few(&self);
    CHECK(spills == (self.ls.oracle->status.spilled_pages > 0));
    conf_pair_close(&self);
}

CONFORMANCE(Segments, OfManyTiles)
{
    for (uint32_t i = 0; i < CASES && !psti_test_failed(); i++)
        CONF_EACH_MODE (mode) {
            try_case(conf, &cases[i], mode, false);
            CHECK_MSG(!psti_test_failed(), "%s", cases[i].name);
        }
}

CONFORMANCE(Segments, OfBothTiers)
{
    for (uint32_t i = 0; i < CASES && !psti_test_failed(); i++) {
        try_case(conf, &cases[i], (pst_pool_mode)(i % 2), true);
        CHECK_MSG(!psti_test_failed(), "%s", cases[i].name);
    }
}

/* Segments that are many to a tile. */
typedef struct runs_case {
    const char *name;
    uint32_t segments;
    int64_t capacity;
    uint64_t row_bytes;
    bool full; /* every segment, at first */
} runs_case;

static const runs_case runs_cases[] = {
    {"32 runs to a tile", 300, 1, 512, true},
    {"about five", 200, 100, 64, false},
    {"8 runs to a tile, and four times that is what a batch has room for", 100, 1, 2048, true},
    {"8 runs to a tile and 9, one more than there is room left for", 331, 2, 1024, false},
    {"9 runs to a tile and 10, which are too many", 100, 1, 1824, true},
    {"ends at all addresses", 300, 60, 17, false},
    {"few that are not empty", 1000, 4, 256, false},
    {"too many to a tile behind more than a batch has room for", 302, 34, 240, false},
};
enum { RUNS_CASES = sizeof(runs_cases) / sizeof(runs_cases[0]), OTHERS = 7 };

/* The first tensor is of the space that is not the first: counts of others are read when it is planned. */
static shape make_runs_shape(const runs_case *from)
{
    shape made = {.group = {.num_spaces = 2, .num_tensors = 3}};
    oracle_group *group = &made.group;
    group->spaces[0] = (pst_row_space){.kind = PST_ROWS_SEGMENTS,
                                       .count_type = PST_COUNT_INT64,
                                       .capacity = from->capacity,
                                       .num_segments = from->segments};
    group->spaces[1] = (pst_row_space){.kind = PST_ROWS_SEGMENTS,
                                       .count_type = PST_COUNT_INT32,
                                       .capacity = 6,
                                       .num_segments = OTHERS};
    uint64_t at = 64;
    for (uint32_t t = 0; t < 3; t++) {
        const uint32_t space = t == 0;
        const uint64_t row_bytes = t == 0 ? 4096 : from->row_bytes;
        const uint64_t stride =
            ((uint64_t)group->spaces[space].capacity * row_bytes + 15) / 16 * 16;
        group->tensors[t] = (pst_tensor){.row_bytes = row_bytes, .space = space};
        group->segment_strides[t] = stride;
        group->at[t] = at;
        at += stride * group->spaces[space].num_segments + 64;
    }
    made.arena_bytes = (size_t)at;
    return made;
}

static int64_t some_rows(conf_pair *self, const runs_case *from, uint32_t segment)
{
    if (from->segments ==
        331) /* tiles of 16 KiB: 8 of 2,048 bytes, then 7 of those and two of 1,024 */
        return segment % 17 < 15 ? 2 : 1;
    if (from->segments == 302) /* 20 tiles of about three, and two of 68 */
        return segment % 151 < 40 ? from->capacity : 1;
    const uint64_t drawn = oracle_random_below(&self->random, 8);
    const uint64_t rows = oracle_random_below(&self->random, (uint64_t)from->capacity + 1);
    return from->segments == 1000 && drawn ? 0 : (int64_t)rows;
}

static void stash_runs(conf_pair *self, const runs_case *from, bool full)
{
    int64_t counts[PST_MAX_SEGMENTS + OTHERS];
    for (uint32_t s = 0; s < from->segments; s++)
        counts[s] = full ? from->capacity : some_rows(self, from, s);
    for (uint32_t s = 0; s < OTHERS; s++)
        counts[from->segments + s] = (int64_t)oracle_random_below(&self->random, 7);
    ls_group_fill(&self->ls, &self->source, &self->random);
    ls_group_set_counts(&self->ls, &self->source, counts);
    ls_stash(&self->ls, self->tickets[0], &self->source);
}

static void try_runs(const conf_run *conf, const runs_case *from, pst_pool_mode mode, bool spills)
{
    static conf_pair self;
    const shape like = make_runs_shape(from);
    ls_options options = conf_options(mode, spills ? 3 : 200, (uint64_t)(from - runs_cases));
    options.num_host_pages = spills ? 200 : 0;
    options.page_bytes = 65536;
    conf_vary(conf, options.seed + mode);
    if (!conf_pair_open(&self, conf, &options, &like, NULL, 1))
        return;
    self.destination.model.names_dirty = true;
    /* on a GPU as well a team has many tiles then */
    self.ls.num_sms = from->capacity < 4 || from->segments == 302;
    stash_runs(&self, from, from->full);
    restore_many(&self);
    stash_runs(&self, from, false);
    restore_few(&self);
    CHECK(spills == (self.ls.oracle->status.spilled_pages > 0));
    conf_pair_close(&self);
}

CONFORMANCE(Segments, OfManyRuns)
{
    for (uint32_t i = 0; i < RUNS_CASES && !psti_test_failed(); i++) {
        try_runs(conf, &runs_cases[i], (pst_pool_mode)(i % 2), i % 3 == 2);
        CHECK_MSG(!psti_test_failed(), "%s", runs_cases[i].name);
    }
}
