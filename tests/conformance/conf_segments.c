/* Tensors of several segments, of many tiles each: tiles that lie within one, that straddle two or more,
 * that begin at addresses of all kinds; what a restore clears behind each; both tiers of pages. */
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
    conf_pair_restore(&self, 0, PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED);
    conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_ZERO);
    stash(&self, from, from->few);
    ls_restore(&self.ls, self.tickets[0], &self.destination, PST_RESTORE_KEEP, PST_TAIL_ZERO);
    conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_ZERO_ALL);
    CHECK_EQ(self.ls.oracle->status.flags, 0);
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
