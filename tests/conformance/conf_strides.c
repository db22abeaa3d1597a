/* Rows that lie further apart than they are long, in every combination with the ways to count them,
 * ratios, segments, host pages and bases that are not aligned. Source and destination differ. */
#include "tests/conformance/conf.h"

enum { PITCHES = 6, COUNTINGS = 5, RATIOS = 3, SEGMENTS = 5, ROWS = 70 };

/* What one number of the loop stands for. */
typedef struct combination {
    uint32_t pitch, counting, ratio;
    bool is_unaligned, spills;
} combination;

static combination combination_of(uint32_t number)
{
    combination made = {.pitch = number % PITCHES};
    number /= PITCHES;
    made.counting = number % COUNTINGS;
    number /= COUNTINGS;
    made.ratio = number % RATIOS;
    number /= RATIOS;
    made.is_unaligned = number % 2;
    made.spills = number / 2 % 2;
    return made;
}

static uint64_t pitch_of(uint32_t kind, uint64_t row_bytes)
{
    const uint64_t pitches[PITCHES] = {row_bytes,     row_bytes + 1,    (row_bytes + 40) | 1,
                                       2 * row_bytes, row_bytes + 5000, (row_bytes + 16) / 16 * 16};
    return pitches[kind];
}

static pst_row_space space_of(uint32_t counting)
{
    static const pst_row_space spaces[COUNTINGS] = {
        {.kind = PST_ROWS_PREFIX, .count_type = PST_COUNT_INT32, .capacity = ROWS},
        {.kind = PST_ROWS_SEGMENTS,
         .count_type = PST_COUNT_INT64,
         .capacity = ROWS / SEGMENTS,
         .num_segments = SEGMENTS},
        {.kind = PST_ROWS_SUM, .count_type = PST_COUNT_INT32, .capacity = ROWS, .num_segments = 33},
        {.kind = PST_ROWS_SUM, .count_type = PST_COUNT_INT64, .capacity = ROWS, .num_segments = 1},
        {.kind = PST_ROWS_PREFIX, .count_type = PST_COUNT_HOST, .capacity = ROWS},
    };
    return spaces[counting];
}

/* Rows of activations, and of scales by a ratio. The strides are the group's, or the launch's. */
static void set_pitch(const combination *of, uint32_t pitch, bool in_group, shape *made)
{
    oracle_group *group = &made->group;
    uint64_t at = of->is_unaligned ? 67 : 64;
    for (uint32_t t = 0; t < group->num_tensors; t++) {
        const uint64_t stride = pitch_of(pitch, group->tensors[t].row_bytes);
        if (in_group)
            group->tensors[t].row_stride = stride;
        else
            group->row_strides[t] = stride;
        group->at[t] = at;
        at += ROWS * stride + (of->is_unaligned ? 7 : 64);
        at = of->is_unaligned ? at : (at + 15) / 16 * 16;
    }
    made->arena_bytes = (size_t)at + 64;
}

static shape make_shape(const combination *of)
{
    shape made = {.group = {.num_spaces = 1, .num_tensors = 2}};
    made.group.spaces[0] = space_of(of->counting);
    made.group.tensors[0].row_bytes = of->is_unaligned ? 289 : 256;
    made.group.tensors[1] = (pst_tensor){.row_bytes = of->is_unaligned ? 13 : 16};
    if (of->ratio > 0) {
        made.group.tensors[1].num = 1;
        made.group.tensors[1].den = 4;
        made.group.tensors[1].rounding = of->ratio == 1 ? PST_ROUND_UP : PST_ROUND_DOWN;
    }
    set_pitch(of, of->pitch, true, &made);
    return made;
}

static void try_combination(const conf_run *conf, pst_pool_mode mode, uint32_t number)
{
    static conf_pair self;
    const combination of = combination_of(number);
    const shape source = make_shape(&of);
    shape destination = source;
    ls_options options = conf_options(mode, of.spills ? 2 : 8, number);
    options.num_host_pages = of.spills ? 6 : 0;
    set_pitch(&of, (of.pitch + number) % PITCHES, false, &destination);
    if (!conf_pair_open(&self, conf, &options, &source, &destination, 1))
        return;
    lockstep *ls = &self.ls;
    for (int kind = COUNTS_RANDOM; kind < COUNTS_GOOD && !ls->failed; kind++) {
        ls_group_random_counts(ls, &self.source, (counts_kind)kind, &self.random);
        ls_stash(ls, self.tickets[0], &self.source);
        ls_group_poison(ls, &self.destination, 0xcc);
        ls_restore(ls, self.tickets[0], &self.destination, PST_RESTORE_KEEP,
                   (pst_restore_tail)(kind % 3));
        ls_group_poison(ls, &self.source, 0xdd);
        ls_restore(ls, self.tickets[0], &self.source, PST_RESTORE_CONSUME, PST_TAIL_ZERO_ALL);
        ls_group_fill(ls, &self.source, &self.random);
    }
    CHECK_EQ(ls->oracle->status.flags, 0);
    CHECK(of.spills == (ls->oracle->status.spilled_pages > 0));
    conf_pair_close(&self);
}

CONFORMANCE(Strides, EveryCombination)
{
    enum { COMBINATIONS = PITCHES * COUNTINGS * RATIOS * 4 };
    const uint32_t cases = conf_cases(conf, COMBINATIONS);
    for (uint32_t i = 0; i < cases && !psti_test_failed(); i++) {
        const uint32_t number = i * COMBINATIONS / cases + i % (COMBINATIONS / cases);
        conf_vary(conf, number);
        try_combination(conf, (pst_pool_mode)(i % 2), number);
        CHECK_MSG(!psti_test_failed(), "combination %u", number);
    }
}

/* Around a tile, and what the backends take for a run of its own: from an eighth of a tile. */
static const uint64_t long_rows[] = {2032, 2048, 2064, 5000, 16368, 16384, 16400, 20001, 40000};
enum { LONG_ROWS = sizeof(long_rows) / sizeof(long_rows[0]) };

/* One tensor of one segment, one of several; counts as they come. */
static shape make_long_shape(uint32_t number)
{
    static const uint64_t gaps[] = {16, 1, 112};
    shape made = {.group = {.num_spaces = 2, .num_tensors = 2}};
    uint64_t at = number % 2 ? 80 : 64;
    made.group.spaces[0] = (pst_row_space){.kind = PST_ROWS_PREFIX, .capacity = 11};
    made.group.spaces[1] =
        (pst_row_space){.kind = PST_ROWS_SEGMENTS, .capacity = 4, .num_segments = 3};
    for (uint32_t t = 0; t < 2; t++) {
        pst_tensor *tensor = &made.group.tensors[t];
        tensor->space = t;
        tensor->row_bytes = long_rows[(number + t * 4) % LONG_ROWS];
        tensor->row_stride = tensor->row_bytes + gaps[(number / 2 + t) % 3];
        made.group.at[t] = at;
        at += 12 * tensor->row_stride + 64;
        at = number % 3 ? (at + 15) / 16 * 16 : at + 1;
    }
    made.arena_bytes = (size_t)at + 64;
    return made;
}

CONFORMANCE(Strides, LongRows)
{
    static conf_pair self;
    const uint32_t step = PSTI_UNDER_TSAN ? psti_test_step(5) : 1; /* one thread copies much */
    for (uint32_t number = 0; number < 2 * LONG_ROWS && !psti_test_failed(); number += step) {
        const shape like = make_long_shape(number);
        const ls_options options = conf_options((pst_pool_mode)(number % 2), 64, number);
        conf_vary(conf, number);
        if (!conf_pair_open(&self, conf, &options, &like, &like, 1))
            return;
        lockstep *ls = &self.ls;
        ls_group_random_counts(ls, &self.source, number % 2 ? COUNTS_FULL : COUNTS_RANDOM,
                               &self.random);
        ls_stash(ls, self.tickets[0], &self.source);
        ls_group_poison(ls, &self.destination, 0xcc);
        ls_restore(ls, self.tickets[0], &self.destination, PST_RESTORE_CONSUME,
                   number % 4 ? PST_TAIL_ZERO_ALL : PST_TAIL_UNTOUCHED);
        CHECK_EQ(ls->oracle->status.flags, 0);
        conf_pair_close(&self);
    }
}

static void by_one_team(const conf_run *conf, const shape *like, const int64_t *counts,
                        uint32_t seed, uint64_t pages, uint32_t threads)
{
    static conf_pair self;
    const ls_options options = conf_options((pst_pool_mode)(seed % 2), pages, seed);
    conf_vary_threads(conf, seed, threads);
    if (!conf_pair_open(&self, conf, &options, like, like, 1))
        return;
    self.ls.num_sms = 1;
    ls_group_set_counts(&self.ls, &self.source, counts);
    ls_group_fill(&self.ls, &self.source, &self.random);
    ls_stash(&self.ls, self.tickets[0], &self.source);
    conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    CHECK_EQ(self.ls.oracle->status.flags, 0);
    conf_pair_close(&self);
}

/* Packed rows at odd addresses, all of one team: as many tiles as its stages, one more, twice as many.
 * A row is no part of a tile, so the last tile is of any length. */
CONFORMANCE(Strides, OddTilesOfOneTeam)
{
    enum { TILE = 16384 };
    static const uint32_t tiles[] = {1, 2, 3, 5, 6, 7, 8, 9, 16, 17, 33};
    const uint32_t num = sizeof(tiles) / sizeof(tiles[0]);
    const uint32_t rounds =
        conf->kind == CONF_SIMT && !PSTI_UNDER_TSAN ? 3 : 1; /* of block sizes */
    const uint32_t step = PSTI_UNDER_TSAN ? psti_test_step(3) : 1;
    for (uint32_t k = 0; k < rounds * num && !psti_test_failed(); k += step) {
        const uint32_t i = k % num;
        const uint32_t row_bytes = 4099;
        shape like = {.group = {.num_spaces = 1, .num_tensors = 1}};
        const int64_t rows = (int64_t)tiles[i] * TILE / row_bytes;
        like.group.spaces[0] = (pst_row_space){.kind = PST_ROWS_PREFIX, .capacity = rows};
        like.group.tensors[0].row_bytes = row_bytes;
        like.group.at[0] = 64 + 1 + 2 * i;
        like.arena_bytes = (size_t)(like.group.at[0] + (uint64_t)rows * row_bytes + 64);
        by_one_team(conf, &like, &rows, i, 2 * tiles[i], 32 * (1 + (5 * k + 7) % 8));
    }
}

/* Tensors of three tiles and a part: aligned, odd, aligned, with gaps, odd. */
static shape make_mixed_shape(void)
{
    static const uint64_t row_bytes[] = {4096, 4099, 4096, 4000, 4099};
    shape made = {.group = {.num_spaces = 1, .num_tensors = 5}};
    uint64_t at = 64;
    made.group.spaces[0] = (pst_row_space){.kind = PST_ROWS_PREFIX, .capacity = 13};
    for (uint32_t t = 0; t < 5; t++) {
        pst_tensor *tensor = &made.group.tensors[t];
        tensor->row_bytes = row_bytes[t];
        tensor->row_stride = t == 3 ? 4112 : 0;
        made.group.at[t] = at + (t % 3 == 1 ? 3 + t : 0);
        at += 13 * 4112 + 64;
    }
    made.arena_bytes = (size_t)at + 64;
    return made;
}

/* One team has the odd ones first, and then the others through the same stages. */
CONFORMANCE(Strides, OddTilesAmongOthers)
{
    const shape like = make_mixed_shape();
    const uint32_t step = PSTI_UNDER_TSAN ? psti_test_step(3) : conf->kind == CONF_PTX ? 5 : 1;
    for (uint32_t i = 0; i < 8 && !psti_test_failed(); i += step) {
        const int64_t rows = 13 - (i % 4);
        by_one_team(conf, &like, &rows, i, 64, 32 * (1 + i));
    }
}

/* Tiles of several runs at odd addresses: of segments, some of which lie at a multiple of 16, of so many that a tile is
 * crowded, beside such that are not, and of long rows with gaps; of fewer tiles than warps, and of more than are looked up at once. */
typedef struct odd_runs {
    uint32_t num_segments, capacity;
    uint64_t row_bytes, row_stride, segment_stride;
    uint64_t at;
    uint32_t few, each; /* rows of all segments but each of so many, which is full */
} odd_runs;

static shape make_odd_runs(const odd_runs *of)
{
    const uint32_t num = of->num_segments;
    shape made = {.group = {.num_spaces = 1, .num_tensors = 1}};
    made.group.spaces[0] = (pst_row_space){.kind = num ? PST_ROWS_SEGMENTS : PST_ROWS_PREFIX,
                                           .capacity = of->capacity,
                                           .num_segments = num};
    made.group.tensors[0].row_bytes = of->row_bytes;
    made.group.row_strides[0] = of->row_stride;
    made.group.segment_strides[0] = of->segment_stride;
    made.group.at[0] = of->at;
    made.arena_bytes =
        (size_t)(of->at + (num ? num * of->segment_stride : of->capacity * of->row_stride) + 64);
    return made;
}

CONFORMANCE(Strides, OddRunsOfOneTeam)
{
    enum { MOST = 48 };
    static const odd_runs shapes[] = {
        {16, 10, 4099, 4099, 40991, 65, 9, 5}, {5, 10, 4099, 4099, 40998, 64, 9, 2},
        {MOST, 24, 700, 700, 16801, 71, 1, 5}, {MOST, 24, 700, 700, 16801, 71, 1, 23},
        {MOST, 500, 40, 40, 20008, 72, 1, 24}, {20, 11, 3001, 3001, 33015, 77, 11, 1},
        {3, 20, 4100, 4117, 82345, 69, 17, 2}, {0, 70, 1025, 1031, 0, 64, 0, 1},
        {0, 300, 2048, 2065, 0, 67, 0, 1},     {7, 9, 5000, 5003, 45040, 64, 2, 4},
        {2, 2, 20001, 20003, 40007, 79, 2, 1},
    };
    const uint32_t num = sizeof(shapes) / sizeof(shapes[0]);
    const uint32_t rounds = conf->kind == CONF_SIMT && !PSTI_UNDER_TSAN ? 3 : 1;
    const uint32_t step = PSTI_UNDER_TSAN ? psti_test_step(3) : 1;
    for (uint32_t k = 0; k < rounds * num && !psti_test_failed(); k += step) {
        const odd_runs *of = &shapes[k % num];
        const shape like = make_odd_runs(of);
        int64_t counts[MOST];
        for (uint32_t s = 0; s < MOST; s++)
            counts[s] = s % of->each == 0 ? of->capacity : of->few;
        by_one_team(conf, &like, counts, k, 128, 32 * (1 + (5 * k + 7) % 8));
    }
}

/* Rows times num, and what rounds them up, do not fit in 32 bits. */
CONFORMANCE(Strides, LargeRatios)
{
    for (uint32_t i = 0; i < 6 && !psti_test_failed(); i++) {
        static conf_pair self;
        shape like = i % 3 ? conf_segments_shape(3, 40, 640) : conf_prefix_shape(2, 40, 640);
        pst_tensor *tensor = &like.group.tensors[like.group.num_tensors - 1];
        tensor->num = i < 4 ? 1u << 30 : 1;
        tensor->den = i < 4 ? 1u << 31 : UINT32_MAX;
        tensor->rounding = i % 2 ? PST_ROUND_DOWN : PST_ROUND_UP;
        const ls_options options = conf_options((pst_pool_mode)(i % 2), 8, i);
        if (!conf_pair_open(&self, conf, &options, &like, NULL, 1))
            return;
        for (int64_t rows = 39; rows >= 0; rows -= 13) {
            const int64_t counts[] = {rows, rows / 2, 39 - rows};
            ls_group_set_counts(&self.ls, &self.source, counts);
            ls_group_fill(&self.ls, &self.source, &self.random);
            ls_stash(&self.ls, self.tickets[0], &self.source);
            conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
        }
        conf_pair_close(&self);
    }
}

/* A stride of the launch that is too small, and everything else that its arrays can have wrong. */
CONFORMANCE(Strides, WhatDoesNotFitIsInvalid)
{
    static conf_pair self;
    const shape like = conf_segments_shape(3, 8, 100);
    const ls_options options = conf_options(PST_POOL_ORDERED, 8, 0);
    if (!conf_pair_open(&self, conf, &options, &like, NULL, 1))
        return;
    oracle_group *model = &self.source.model;
    static const struct {
        uint64_t row_stride, segment_stride;
        int64_t capacity;
        bool is_good;
    } tries[] = {
        {100, 0, 0, true},   {99, 0, 0, false},
        {1, 0, 0, false},    {UINT64_MAX, 0, 0, false},
        {0, 800, 0, true},   {0, 799, 0, false},
        {101, 807, 0, true}, {101, 806, 0, false},
        {0, 0, 7, true},     {0, 0, 9, true},
        {0, 0, -1, false},   {0, 0, INT64_MAX, false},
        {0, 700, 7, true},   {UINT64_C(1) << 44, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        model->row_strides[0] = tries[i].row_stride;
        model->segment_strides[0] = tries[i].segment_stride;
        model->capacities[0] = tries[i].capacity;
        const pst_status status =
            ls_enqueue_stash(self.ls.tickets[self.tickets[0]], &self.source, self.ls.stream);
        CHECK_MSG(status == (tries[i].is_good ? PST_OK : PST_E_INVALID), "case %zu: %s: %s", i,
                  pst_status_name(status), pst_last_message());
        if (tries[i].is_good)
            CHECK_OK(pst_ticket_release(self.ls.tickets[self.tickets[0]], self.ls.stream));
    }
    ls_compare(&self.ls);
    conf_pair_close(&self);
}

/* A destination may have more room than the group says, also more pages than the ticket. */
CONFORMANCE(Strides, CapacitiesOfTheLaunch)
{
    static conf_pair self;
    const shape like = conf_prefix_shape(2, 20, 3000);
    shape large = like;
    const ls_options options = conf_options(PST_POOL_ORDERED, 40, 0);
    large.group.capacities[0] = 90;
    large.group.at[1] = large.group.at[0] + UINT64_C(90) * 3000 + 1;
    large.arena_bytes = (size_t)(large.group.at[1] + UINT64_C(90) * 3000 + 64);
    if (!conf_pair_open(&self, conf, &options, &like, &large, 1))
        return;
    conf_pair_stash(&self, 0, 20);
    conf_pair_restore(&self, 0, PST_RESTORE_KEEP, PST_TAIL_ZERO_ALL);
    self.destination.model.capacities[0] = 19;
    conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_ZERO_ALL);
    CHECK_EQ(self.ls.oracle->status.fault, PST_FAULT_DESTINATION);
    self.destination.model.capacities[0] = 0;
    conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    self.source.model.capacities[0] = 5;
    conf_pair_stash(&self, 0, 6);
    CHECK_EQ(self.ls.words.status.flags, 1u << PST_FAULT_COUNT | 1u << PST_FAULT_DESTINATION);
    conf_pair_close(&self);
}
