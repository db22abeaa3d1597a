/* Gated activations: with a ticket they stash and restore as the lockstep's own calls, and what they
 * compute is the same with pages and without. */
#include "tests/conformance/glu_rig.h"

static const pst_row_space spaces[] = {
    {.kind = PST_ROWS_PREFIX, .count_type = PST_COUNT_INT32, .capacity = 24},
    {.kind = PST_ROWS_SEGMENTS, .count_type = PST_COUNT_INT64, .capacity = 7, .num_segments = 5},
    {.kind = PST_ROWS_SUM, .count_type = PST_COUNT_INT32, .capacity = 24, .num_segments = 9},
    {.kind = PST_ROWS_SEGMENTS, .count_type = PST_COUNT_INT32, .capacity = 3, .num_segments = 40},
    {.kind = PST_ROWS_PREFIX, .count_type = PST_COUNT_HOST, .capacity = 24},
};
static const uint64_t features[] = {1, 3, 8, 40, 129, 600};
static const uint64_t features_of_32[] = {32, 96, 160, 352, 608, 64};
static const uint32_t interleaves[] = {0, 1, 32};
static const uint64_t gaps[] = {0, GLU_ROUNDED, 1, 8};

enum {
    COMBINATIONS = 3 * 3 * 6 * 6 * 5 * 4 * 2 * GLU_ODDS,
    LAUNCHES = 2 * 3 * 2, /* of each: the pool's mode, what goes to the host, few SMs */
    STEP = 339973         /* has no factor in common with these: 24 steps meet each value of each,
                           * 240 each pair */
};

static uint32_t take(uint32_t *number, uint32_t of)
{
    const uint32_t digit = *number % of;
    *number /= of;
    return digit;
}

static glu_case combination(uint32_t number)
{
    glu_case made = {.num_pages = 40, .num_host_pages = 20}; /* the most live bytes are 36 pages */
    made.dtype = (pst_glu_dtype)take(&number, 3);
    made.interleave = interleaves[take(&number, 3)];
    made.kind = (pst_glu_kind)take(&number, 6);
    const uint32_t width = take(&number, 6);
    made.features = made.interleave == 32 ? features_of_32[width] : features[width];
    made.space = spaces[take(&number, 5)];
    made.gap = gaps[take(&number, 4)];
    made.has_probability = take(&number, 2);
    made.has_extremes = !made.has_probability;
    made.odd = (glu_odd)take(&number, GLU_ODDS);
    made.is_alone = made.features % 7 == 1;
    made.front = (width + made.odd) % 3; /* 0 to 2 counts */
    return made;
}

/* With pages and without, forward and backward, kept and consumed; and what was stashed so restored. */
static void there_and_back(glu_rig *rig)
{
    lockstep *ls = &rig->pair.ls;
    const uint32_t ticket = rig->pair.tickets[0];
    glu_take_over(rig, true);
    ls_stash(ls, ticket, &rig->pair.source);
    CHECK_EQ(ls->oracle->status.flags, 0);
    glu_check_output(rig);
    glu_backward_alone(rig);
    glu_check_backward(rig);
    const uint64_t in_memory = glu_hash(rig);
    glu_poison(rig);
    ls_group_poison(ls, &rig->pair.destination, 0xcc);
    ls_restore(ls, ticket, &rig->pair.destination, PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED);
    CHECK(glu_hash(rig) == in_memory);
    glu_take_over(rig, false);
    ls_group_poison(ls, &rig->pair.destination, 0xcc);
    ls_restore(ls, ticket, &rig->pair.destination, PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED);
    glu_take_over(rig, true);
    glu_poison(rig);
    ls_group_poison(ls, &rig->pair.destination, 0xcc);
    ls_restore(ls, ticket, &rig->pair.destination, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    CHECK(glu_hash(rig) == in_memory);
    glu_poison(rig);
    glu_forward_alone(rig);
    glu_check_output(rig);
    CHECK_EQ(ls->oracle->status.flags, 0);
}

CONFORMANCE(Glu, EveryCombination)
{
    static glu_rig rig;
    const uint32_t cases = conf_cases(conf, 240);
    for (uint32_t i = 0; i < cases && !psti_test_failed(); i++) {
        const uint32_t number = (uint32_t)((uint64_t)i * STEP % (COMBINATIONS * LAUNCHES));
        glu_case how = combination(number % COMBINATIONS);
        uint32_t launch = number / COMBINATIONS;
        const pst_pool_mode mode = (pst_pool_mode)take(&launch, 2);
        const uint32_t offload = take(&launch, 3);
        if (offload == 2)
            how.num_host_pages = 1;
        conf_vary(conf, number);
        if (!glu_open(&rig, conf, mode, &how, number + 1))
            return;
        if (offload > 0) /* 2: of all, most of which are displaced */
            ls_set_offload(&rig.pair.ls, rig.pair.tickets[0], 1, offload == 2 ? 1 : 2);
        rig.pair.ls.num_sms = conf->is_slow && take(&launch, 2) == 1 ? 2 : 0;
        there_and_back(&rig);
        CHECK_MSG(!psti_test_failed(), "combination %u", number);
        glu_close(&rig);
    }
}

/* A short walk through the kernels: each kind once, in all formats and layouts; num / den of the pages go to
 * the host. */
static void each_kind_once(const conf_run *conf, const uint64_t widths[6], uint32_t num,
                           uint32_t den)
{
    static glu_rig rig;
    const uint32_t layouts[] = {0, 1, 32, 1, 0, 32};
    for (uint32_t i = 0; i < 6 && !psti_test_failed(); i++) {
        const glu_case how = {.kind = (pst_glu_kind)i,
                              .dtype = (pst_glu_dtype)(i % 3),
                              .interleave = layouts[i],
                              .features = widths[i],
                              .space = spaces[i % 2],
                              .has_extremes = i<3, .has_probability = i> 2,
                              .is_alone = true,
                              .num_pages = 20,
                              .num_host_pages = 20};
        if (!glu_open(&rig, conf, (pst_pool_mode)(i / 2 % 2), &how, i + 1))
            return;
        if (num)
            ls_set_offload(&rig.pair.ls, rig.pair.tickets[0], num, den);
        glu_take_over(&rig, true);
        ls_stash(&rig.pair.ls, rig.pair.tickets[0], &rig.pair.source);
        glu_check_output(&rig);
        ls_restore(&rig.pair.ls, rig.pair.tickets[0], &rig.pair.destination, PST_RESTORE_CONSUME,
                   PST_TAIL_UNTOUCHED);
        glu_check_backward(&rig);
        CHECK_MSG(!psti_test_failed(), "kind %u", i);
        glu_close(&rig);
    }
}

CONFORMANCE(Glu, EachKindOnce)
{
    each_kind_once(conf, (const uint64_t[]){160, 40, 32, 3, 129, 352}, 0, 1);
}

/* More go to the host than stay, so that neither part is as long as the other. */
CONFORMANCE(Glu, PagesOfBothTiers)
{
    each_kind_once(conf, (const uint64_t[]){600, 800, 608, 403, 2051, 352}, 3, 4);
}

static glu_case plain_case(void)
{
    return (glu_case){.kind = PST_GLU_SWIGLU,
                      .dtype = PST_GLU_BF16,
                      .features = 1024,
                      .space = spaces[0],
                      .has_probability = true,
                      .num_pages = 20,
                      .num_host_pages = 2};
}

/* Rows of several pages, which begin and end in the middle of one. */
CONFORMANCE(Glu, RowsAreLongerThanPages)
{
    static glu_rig rig;
    for (uint32_t i = 0; i < 3 && !psti_test_failed(); i++) {
        glu_case how = plain_case();
        how.dtype = i == 0 ? PST_GLU_FP32 : PST_GLU_BF16;
        how.interleave = interleaves[i];
        how.features = i == 0 ? 5003 : 10016;
        how.space.capacity = 4;
        how.num_pages = 12;
        how.num_host_pages = 9;
        if (!glu_open(&rig, conf, (pst_pool_mode)(i % 2), &how, i + 1))
            return;
        ls_group_random_counts(&rig.pair.ls, &rig.pair.source, COUNTS_FULL, &rig.pair.random);
        there_and_back(&rig);
        glu_close(&rig);
    }
}

CONFORMANCE(Glu, AThousandSegments)
{
    static glu_rig rig;
    for (uint32_t i = 0; i < 2 && !psti_test_failed(); i++) {
        glu_case how = plain_case();
        how.features = i ? 12 : 8;
        how.space = (pst_row_space){.kind = PST_ROWS_SEGMENTS,
                                    .count_type = PST_COUNT_INT32,
                                    .capacity = 2,
                                    .num_segments = PST_MAX_SEGMENTS};
        how.num_pages = 60;
        how.is_alone = i;
        if (!glu_open(&rig, conf, (pst_pool_mode)i, &how, i + 1))
            return;
        there_and_back(&rig);
        glu_close(&rig);
    }
}

/* Rows of 4 bytes, in segments that begin at multiples of 16: behind most rows there is a slot in which
 * none begins, also behind the first row of a page. */
CONFORMANCE(Glu, EachRowIsTakenOnce)
{
    static glu_rig rig;
    static int64_t counts[PST_MAX_SEGMENTS];
    glu_case how = plain_case();
    how.features = 1;
    how.space = (pst_row_space){.kind = PST_ROWS_SEGMENTS,
                                .count_type = PST_COUNT_INT32,
                                .capacity = 8,
                                .num_segments = PST_MAX_SEGMENTS};
    how.is_alone = true;
    for (int round = 0; round < 2; round++) {
        for (int s = 0; s < PST_MAX_SEGMENTS; s++)
            counts[s] = s < 512 ? 8 : 1; /* the second page begins with segment 512 */
        if (round ==
            1) { /* rows of 28 bytes: the second page begins in the last one, of byte 16400 */
            how.features = 7;
            for (int s = 0; s < PST_MAX_SEGMENTS; s++)
                counts[s] = s < 144 || s == 149 ? 4 : s < 150 ? 1 : 0;
        }
        if (!glu_open(&rig, conf, PST_POOL_ORDERED, &how, 1))
            return;
        ls_group_set_counts(&rig.pair.ls, &rig.pair.source, counts);
        there_and_back(&rig);
        glu_close(&rig);
    }
}

/* ---- what goes wrong ---- */

typedef void (*glu_body)(glu_rig *rig);

static void in_both_modes(const conf_run *conf, const glu_case *how, glu_body body)
{
    static glu_rig rig;
    CONF_EACH_MODE (mode) {
        if (!glu_open(&rig, conf, mode, how, (uint64_t)mode + 1))
            return;
        body(&rig);
        if (psti_test_failed())
            return;
        glu_close(&rig);
    }
}

/* The output is as without a ticket, and no page is written: the lockstep compares them. */
static void stash_in_vain(glu_rig *rig, uint32_t ticket, pst_fault fault)
{
    lockstep *ls = &rig->pair.ls;
    glu_take_over(rig, true);
    glu_poison(rig);
    ls_stash(ls, rig->pair.tickets[ticket], &rig->pair.source);
    CHECK(ls->oracle->status.flags & 1u << fault);
    glu_check_output(rig);
    const uint64_t refused = glu_hash(rig);
    glu_poison(rig);
    glu_forward_alone(rig);
    CHECK(glu_hash(rig) == refused);
}

static void exhaust(glu_rig *rig)
{
    ls_group_random_counts(&rig->pair.ls, &rig->pair.source, COUNTS_FULL, &rig->pair.random);
    stash_in_vain(rig, 0, PST_FAULT_EXHAUSTED);
}

CONFORMANCE(Glu, AStashThatFailsComputesAllTheSame)
{
    glu_case how = plain_case();
    how.num_pages = 2;
    how.num_host_pages = 1;
    in_both_modes(conf, &how, exhaust);
}

static void fill_twice(glu_rig *rig)
{
    glu_take_over(rig, true);
    ls_stash(&rig->pair.ls, rig->pair.tickets[0], &rig->pair.source);
    stash_in_vain(rig, 0, PST_FAULT_LIVE);
}

CONFORMANCE(Glu, ALiveTicketStaysAsItIs)
{
    const glu_case how = plain_case();
    in_both_modes(conf, &how, fill_twice);
}

static void refuse(lockstep *ls)
{
    ls->skip_checks = true;
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    ls->words.state.refuse = 1;
    LS_TRY(pool_words_write(ls->pool, &ls->words, ls->stream));
    ls->oracle->refuses = true;
}

static void meet_refusal(glu_rig *rig)
{
    lockstep *ls = &rig->pair.ls;
    glu_take_over(rig, true);
    ls_stash(ls, rig->pair.tickets[1], &rig->pair.source);
    refuse(ls);
    stash_in_vain(rig, 0, PST_FAULT_ORDER);
    const int64_t rows[] = {rig->how.space.capacity};
    glu_poison(rig);
    ls_restore(ls, rig->pair.tickets[1], &rig->pair.destination, PST_RESTORE_KEEP,
               PST_TAIL_UNTOUCHED);
    glu_check_cleared(rig, rows);
    ls_reset(ls, PST_RESET_ALL);
}

CONFORMANCE(Glu, APoolThatRefusesIsNotTouched)
{
    const glu_case how = plain_case();
    in_both_modes(conf, &how, meet_refusal);
}

static void miscount(glu_rig *rig)
{
    lockstep *ls = &rig->pair.ls;
    const int64_t too_many[] = {rig->how.space.capacity + 1};
    glu_take_over(rig, true);
    ls_group_set_counts(ls, &rig->pair.source, too_many);
    ls_stash(ls, rig->pair.tickets[0], &rig->pair.source);
    CHECK(ls->oracle->status.flags & 1u << PST_FAULT_COUNT);
    glu_check_untouched(rig);
    glu_forward_alone(rig);
    glu_backward_alone(rig);
    glu_check_untouched(rig);
}

CONFORMANCE(Glu, CountsThatDoNotFitWriteNothing)
{
    const glu_case how = plain_case();
    in_both_modes(conf, &how, miscount);
}

/* Backward of a ticket that holds nothing, or failed, or of another form. */
static void clear_results(glu_rig *rig)
{
    lockstep *ls = &rig->pair.ls;
    const uint32_t ticket = rig->pair.tickets[0];
    const int64_t capacity[] = {rig->how.space.capacity}, some[] = {5}, too_many[] = {1000};
    glu_take_over(rig, true);
    for (int round = 0; round < 2; round++) { /* EMPTY, then FAILED */
        rig->gives_counts = false;
        glu_poison(rig);
        ls_restore(ls, ticket, &rig->pair.destination, PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED);
        glu_check_cleared(rig, capacity);
        rig->gives_counts = true;
        ls_group_set_counts(ls, &rig->pair.destination, some);
        glu_poison(rig);
        ls_restore(ls, ticket, &rig->pair.destination, PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED);
        glu_check_cleared(rig, some);
        ls_group_set_counts(ls, &rig->pair.destination, too_many);
        glu_poison(rig);
        ls_restore(ls, ticket, &rig->pair.destination, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
        glu_check_cleared(rig, capacity);
        ls_group_set_counts(ls, &rig->pair.source, too_many);
        ls_stash(ls, ticket, &rig->pair.source);
    }
    CHECK(ls->oracle->status.flags & 1u << PST_FAULT_EMPTY);
    CHECK(ls->oracle->status.flags & 1u << PST_FAULT_FAILED);
}

CONFORMANCE(Glu, WhatHoldsNothingHasNoGradients)
{
    glu_case how = plain_case();
    how.features = 72;
    in_both_modes(conf, &how, clear_results);
}
