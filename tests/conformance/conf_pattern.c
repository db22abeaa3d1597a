/* pst_group_fill and pst_group_verify against the formula of pagestash/pattern.h, byte by byte. */
#include "tests/conformance/conf.h"
#include "tests/pattern.h"

typedef struct scene {
    lockstep ls;
    oracle_random random;
    ls_group group;
    uint64_t *step;       /* on the device */
    uint64_t *mismatches; /* on the device */
} scene;

static bool set_up(scene *self, const conf_run *conf, const shape *like, uint64_t seed)
{
    const ls_options options = conf_options(PST_POOL_ORDERED, 1, seed);
    void *words = NULL;
    if (!ls_open(&self->ls, conf->device, &options))
        return false;
    lockstep *ls = &self->ls;
    ls_group_make(ls, like, &self->random, &self->group);
    LS_TRY(pst_device_alloc(ls->device, 2 * sizeof(uint64_t), &words));
    self->step = words;
    self->mismatches = self->step + 1;
    return !ls->failed;
}

static void tear_down(scene *self)
{
    lockstep *ls = &self->ls;
    LS_TRY(pst_device_free(ls->device, self->step));
    ls_group_free(ls, &self->group);
    ls_close(ls);
}

static void put(scene *self, uint64_t *word, uint64_t value)
{
    lockstep *ls = &self->ls;
    LS_TRY(pst_device_copy(ls->device, word, &value, sizeof(value), ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
}

static unsigned char *byte_image(const scene *self, uint32_t t, uint32_t s, uint64_t i)
{
    const oracle_group *model = &self->group.model;
    return model->image + oracle_byte_at(model, t, s, i);
}

/* Rows of a segment; -1: the count, or one that is summed up, is not allowed. */
static int64_t live_rows(const scene *self, uint32_t t, uint32_t s)
{
    const oracle_group *model = &self->group.model;
    const uint32_t i = model->tensors[t].space;
    const pst_row_space *space = &model->spaces[i];
    const int64_t *values = self->group.values + oracle_first_input(model, i) + s;
    int64_t rows = 0;
    for (uint32_t n = 0; n < (space->kind == PST_ROWS_SUM ? space->num_segments : 1); n++) {
        if (values[n] < 0 || values[n] > oracle_capacity(model, i) - rows)
            return -1;
        rows += values[n];
    }
    return rows;
}

static uint64_t live_bytes(const scene *self, uint32_t t, uint32_t s)
{
    const pst_tensor *tensor = &self->group.model.tensors[t];
    return oracle_rows(tensor, (uint64_t)live_rows(self, t, s)) * tensor->row_bytes;
}

static bool counts_are_good(const scene *self, uint32_t t, uint32_t s)
{
    return live_rows(self, t, s) >= 0;
}

/* Fills, with both; where a count is bad nothing is written. */
static void fill(scene *self, const pst_pattern *pattern, uint64_t step)
{
    lockstep *ls = &self->ls;
    const oracle_group *model = &self->group.model;
    LS_TRY(pst_group_fill(ls->device, self->group.group, ls_at(&self->group), pattern, ls->stream));
    for (uint32_t t = 0; t < model->num_tensors; t++)
        for (uint32_t s = 0; s < oracle_num_segments(&model->spaces[model->tensors[t].space]); s++)
            for (uint64_t i = 0; counts_are_good(self, t, s) && i < live_bytes(self, t, s); i++)
                *byte_image(self, t, s, i) = pattern_byte(pattern, step, t, s, i);
    ls_group_compare(ls, &self->group);
}

static uint64_t verify(scene *self, const pst_pattern *pattern, int tail)
{
    lockstep *ls = &self->ls;
    uint64_t mismatches = 0;
    put(self, self->mismatches, 1000);
    LS_TRY(pst_device_copy(ls->device, self->group.arena, self->group.model.image,
                           self->group.arena_bytes, ls->stream));
    LS_TRY(pst_group_verify(ls->device, self->group.group, ls_at(&self->group), pattern, tail,
                            self->mismatches, ls->stream));
    LS_TRY(
        pst_device_copy(ls->device, &mismatches, self->mismatches, sizeof(mismatches), ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    return mismatches - 1000; /* it adds */
}

/* Changes some live bytes. */
static void spoil(scene *self, uint32_t times)
{
    const oracle_group *model = &self->group.model;
    for (uint32_t i = 0; i < times; i++) {
        const uint32_t t = (uint32_t)oracle_random_below(&self->random, model->num_tensors);
        const uint32_t s = (uint32_t)oracle_random_below(
            &self->random, oracle_num_segments(&model->spaces[model->tensors[t].space]));
        const uint64_t bytes = live_bytes(self, t, s);
        if (bytes)
            *byte_image(self, t, s, oracle_random_below(&self->random, bytes)) ^=
                (unsigned char)oracle_random_in(&self->random, 1, 255);
    }
}

/* Bytes behind the live ones, up to the capacity, that do not hold `value`. */
static uint64_t tail_bytes_unlike(const scene *self, int value)
{
    const oracle_group *model = &self->group.model;
    uint64_t found = 0;
    for (uint32_t t = 0; t < model->num_tensors; t++)
        for (uint32_t s = 0; s < oracle_num_segments(&model->spaces[model->tensors[t].space]); s++)
            for (uint64_t i = live_bytes(self, t, s); i < oracle_segment_bytes(model, t); i++)
                found += *byte_image(self, t, s, i) != value;
    return found;
}

static uint64_t bytes_unlike_pattern(const scene *self, const pst_pattern *pattern, uint64_t step)
{
    const oracle_group *model = &self->group.model;
    uint64_t found = 0;
    for (uint32_t t = 0; t < model->num_tensors; t++)
        for (uint32_t s = 0; s < oracle_num_segments(&model->spaces[model->tensors[t].space]); s++)
            for (uint64_t i = 0; i < live_bytes(self, t, s); i++)
                found += *byte_image(self, t, s, i) != pattern_byte(pattern, step, t, s, i);
    return found;
}

CONFORMANCE(Pattern, FillsAndCountsEveryByte)
{
    for (uint32_t i = 0; i < conf_cases(conf, 160) && !psti_test_failed(); i++) {
        static scene self;
        shape like;
        const uint64_t seed = conf_seed(i);
        conf_vary(conf, seed);
        self.random = oracle_random_seeded(seed);
        shape_make(&self.random, (shape_theme)(seed % SHAPE_THEMES), conf_bytes(conf, 20000),
                   &like);
        if (!set_up(&self, conf, &like, seed))
            return;
        const uint64_t step = oracle_random_bits(&self.random);
        const pst_pattern pattern = {.seed = oracle_random_bits(&self.random),
                                     .key = oracle_random_bits(&self.random),
                                     .step = seed % 3 ? self.step : NULL};
        put(&self, self.step, step);
        ls_group_random_counts(&self.ls, &self.group,
                               (counts_kind)oracle_random_below(&self.random, COUNTS_GOOD),
                               &self.random);
        fill(&self, &pattern, pattern.step ? step : 0);
        CHECK_EQ(verify(&self, &pattern, PST_VERIFY_ANY), 0);
        CHECK_EQ(verify(&self, &pattern, 0), tail_bytes_unlike(&self, 0));
        CHECK_EQ(verify(&self, &pattern, 7), tail_bytes_unlike(&self, 7));
        spoil(&self, 20);
        CHECK_EQ(verify(&self, &pattern, PST_VERIFY_ANY),
                 bytes_unlike_pattern(&self, &pattern, pattern.step ? step : 0));
        tear_down(&self);
    }
}

/* Long enough that every thread comes round several times, in rows that no step is a multiple of. */
CONFORMANCE(Pattern, RowsWithGapsAreCountedUp)
{
    static const uint64_t strides[] = {289, 290, 300, 4096};
    static scene self;
    const pst_pattern pattern = {.seed = 5, .key = 6};
    shape like = conf_prefix_shape(1, 150, 289);
    like.arena_bytes = 150 * 4096 + 128;
    for (int i = 0; i < 4; i++) {
        like.group.tensors[0].row_stride = strides[i];
        self.random = oracle_random_seeded((uint64_t)i);
        if (!set_up(&self, conf, &like, (uint64_t)i))
            return;
        const int64_t count = 149 - 40 * i;
        ls_group_set_counts(&self.ls, &self.group, &count);
        fill(&self, &pattern, 0);
        CHECK_EQ(verify(&self, &pattern, PST_VERIFY_ANY), 0);
        CHECK_EQ(verify(&self, &pattern, 7), tail_bytes_unlike(&self, 7));
        spoil(&self, 20);
        CHECK_EQ(verify(&self, &pattern, PST_VERIFY_ANY), bytes_unlike_pattern(&self, &pattern, 0));
        tear_down(&self);
    }
}

/* Nothing is written, and all bytes of the segment count as wrong. */
CONFORMANCE(Pattern, BadCountsWriteNothingAndNeverVerify)
{
    static scene self;
    const shape like = conf_segments_shape(5, 100, 33);
    const pst_pattern pattern = {.seed = 1, .key = 2};
    self.random = oracle_random_seeded(1);
    if (!set_up(&self, conf, &like, 0))
        return;
    for (int kind = COUNTS_GOOD; kind < COUNTS_KINDS; kind++) {
        uint64_t bad = 0;
        ls_group_random_counts(&self.ls, &self.group, (counts_kind)kind, &self.random);
        fill(&self, &pattern, 0);
        for (uint32_t s = 0; s < 5; s++)
            bad += counts_are_good(&self, 0, s) ? 0 : oracle_segment_bytes(&self.group.model, 0);
        CHECK(bad > 0);
        CHECK_EQ(verify(&self, &pattern, PST_VERIFY_ANY), bad);
    }
    tear_down(&self);
}

/* The same of a sum: one number that is not allowed spoils it all. */
CONFORMANCE(Pattern, BadSumsWriteNothingAndNeverVerify)
{
    static scene self;
    shape like = conf_prefix_shape(2, 100, 33);
    const pst_pattern pattern = {.seed = 1, .key = 2};
    like.group.spaces[0].kind = PST_ROWS_SUM;
    like.group.spaces[0].num_segments = 300;
    self.random = oracle_random_seeded(1);
    if (!set_up(&self, conf, &like, 0))
        return;
    for (int kind = 0; kind < COUNTS_KINDS; kind++) {
        ls_group_random_counts(&self.ls, &self.group, (counts_kind)kind, &self.random);
        fill(&self, &pattern, 0);
        CHECK_EQ(verify(&self, &pattern, PST_VERIFY_ANY), kind < COUNTS_GOOD ? 0 : 6600);
    }
    tear_down(&self);
}

/* The counts may be those that another group read: what was stashed from it, restored elsewhere. */
CONFORMANCE(Pattern, CountsOfTheSourceServeTheDestination)
{
    static scene self;
    const shape like = conf_prefix_shape(2, 50, 600);
    shape other = like;
    ls_group destination;
    const pst_pattern pattern = {.seed = 5, .key = 6};
    const int64_t rows = 31;
    self.random = oracle_random_seeded(1);
    if (!set_up(&self, conf, &like, 0))
        return;
    lockstep *ls = &self.ls;
    other.without_counts = true;
    other.arena_bytes = shape_place(&self.random, SHAPE_UNALIGNED, SHAPE_SAME_ROOM, &other.group);
    ls_group_make(ls, &other, &self.random, &destination);
    ls_group_set_counts(ls, &self.group, &rows);
    put(&self, self.mismatches, 0);
    pst_buffers buffers = *ls_at(&destination);
    CHECK_STATUS(pst_group_fill(ls->device, destination.group, &buffers, &pattern, ls->stream),
                 PST_E_INVALID);
    buffers.counts = ls_at(&self.group)->counts;
    LS_TRY(pst_group_verify(ls->device, destination.group, &buffers, &pattern, PST_VERIFY_ANY,
                            self.mismatches, ls->stream));
    uint64_t before = 0;
    LS_TRY(pst_device_copy(ls->device, &before, self.mismatches, sizeof(before), ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    CHECK(before > 2 * 31 * 600 / 2 && before <= 2 * 31 * 600); /* random bytes, all live ones */
    ls_group_free(ls, &destination);
    tear_down(&self);
}
