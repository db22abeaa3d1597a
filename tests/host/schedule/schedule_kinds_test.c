/* Schedules of the library's kinds against lists, figures and closed forms of the literature. */
#include "tests/host/schedule/schedule_scene.h"

/* ---- lists ---- */

static const struct {
    shape of;
    uint32_t stage;
    const char *list;
} lists[] = {
    /* S1 */
    {{PST_SCHEDULE_GPIPE, 4, 6, 0, 0, false}, 0, "F0 F1 F2 F3 F4 F5 B0 B1 B2 B3 B4 B5"},
    /* S1 */
    {{PST_SCHEDULE_GPIPE, 4, 6, 0, 0, false}, 3, "F0 F1 F2 F3 F4 F5 B0 B1 B2 B3 B4 B5"},
    /* S3 */
    {{PST_SCHEDULE_1F1B, 1, 4, 0, 0, false}, 0, "F0 B0 F1 B1 F2 B2 F3 B3"},
    /* S4 */
    {{PST_SCHEDULE_1F1B, 4, 8, 0, 0, false}, 0, "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"},
    /* S4 */
    {{PST_SCHEDULE_1F1B, 4, 8, 0, 0, false}, 3, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"},
    /* S5 */
    {{PST_SCHEDULE_1F1B, 4, 2, 0, 0, false}, 0, "F0 F1 B0 B1"},
    /* S5 */
    {{PST_SCHEDULE_1F1B, 4, 2, 0, 0, false}, 3, "F0 B0 F1 B1"},
    /* S7 */
    {{PST_SCHEDULE_INTERLEAVED, 2, 5, 2, 3, false},
     0,
     "F0.0 F0.1 F0.2 F1.0 F1.1 F1.2 B1.0 F0.3 B1.1 F0.4 B1.2 F1.3 B0.0 F1.4 B0.1 B0.2 B1.3 B1.4 "
     "B0.3 B0.4"},
    /* S7 */
    {{PST_SCHEDULE_INTERLEAVED, 2, 5, 2, 3, false},
     1,
     "F0.0 F0.1 F0.2 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F0.3 B0.0 F0.4 B0.1 F1.3 B0.2 F1.4 B1.3 B1.4 "
     "B0.3 B0.4"},
    /* S8 */
    {{PST_SCHEDULE_INTERLEAVED, 4, 8, 2, 4, false},
     0,
     "F0.0 F0.1 F0.2 F0.3 F1.0 F1.1 F1.2 F1.3 F0.4 F0.5 F0.6 B1.0 F0.7 B1.1 F1.4 B1.2 F1.5 B1.3 "
     "F1.6 B0.0 F1.7 B0.1 B0.2 B0.3 B1.4 B1.5 B1.6 B1.7 B0.4 B0.5 B0.6 B0.7"},
    /* S8 */
    {{PST_SCHEDULE_INTERLEAVED, 4, 8, 2, 4, false},
     3,
     "F0.0 F0.1 F0.2 F0.3 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 F0.4 B0.0 F0.5 B0.1 F0.6 B0.2 "
     "F0.7 B0.3 F1.4 B1.4 F1.5 B1.5 F1.6 B1.6 F1.7 B1.7 B0.4 B0.5 B0.6 B0.7"},
    /* S9 */
    {{PST_SCHEDULE_INTERLEAVED, 4, 8, 2, 4, true},
     0,
     "F0.0 F0.1 F0.2 F0.3 F1.0 F1.1 F1.2 F1.3 F0.4 F0.5 F0.6 F0.7 B1.0 F1.4 B1.1 F1.5 B1.2 F1.6 "
     "B1.3 F1.7 B0.0 B0.1 B0.2 B0.3 B1.4 B1.5 B1.6 B1.7 B0.4 B0.5 B0.6 B0.7"},
    /* S9 */
    {{PST_SCHEDULE_INTERLEAVED, 4, 8, 2, 4, true},
     3,
     "F0.0 F0.1 F0.2 F0.3 F1.0 F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 F0.4 B1.3 F0.5 B0.0 F0.6 B0.1 F0.7 "
     "B0.2 F1.4 B0.3 F1.5 B1.4 F1.6 B1.5 F1.7 B1.6 B1.7 B0.4 B0.5 B0.6 B0.7"},
    /* S12 */
    {{PST_SCHEDULE_ZB_H1, 4, 8, 0, 0, false},
     0,
     "F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 F6 B3 W3 F7 B4 W4 B5 W5 B6 W6 B7 W7"},
    /* S12 */
    {{PST_SCHEDULE_ZB_H1, 4, 8, 0, 0, false},
     3,
     "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 W5 W6 W7"},
    /* S13 */
    {{PST_SCHEDULE_ZB_H1, 4, 3, 0, 0, false}, 0, "F0 F1 F2 B0 W0 B1 W1 B2 W2"},
    /* S13 */
    {{PST_SCHEDULE_ZB_H1, 4, 3, 0, 0, false}, 3, "F0 B0 F1 B1 F2 B2 W0 W1 W2"},
    /* S14 */
    {{PST_SCHEDULE_ZB_H2, 4, 8, 0, 0, false},
     0,
     "F0 F1 F2 F3 F4 F5 F6 B0 W0 F7 B1 W1 B2 W2 B3 W3 B4 W4 B5 W5 B6 W6 B7 W7"},
    /* S14 */
    {{PST_SCHEDULE_ZB_H2, 4, 8, 0, 0, false},
     3,
     "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 W0 F7 B7 W1 W2 W3 W4 W5 W6 W7"},
    /* S16 */
    {{PST_SCHEDULE_ZB_V, 4, 8, 2, 0, false},
     0,
     "F0.0 F0.1 F0.2 F0.3 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 B0.0 W1.0 B0.1 W1.1 B0.2 W1.2 "
     "B0.3 W1.3 W0.0 F0.4 W0.1 F0.5 W0.2 F0.6 W0.3 F0.7 F1.4 B1.4 F1.5 B1.5 F1.6 B1.6 F1.7 B1.7 "
     "B0.4 W1.4 B0.5 W1.5 B0.6 W1.6 B0.7 W1.7 W0.4 W0.5 W0.6 W0.7"},
    /* S16 */
    {{PST_SCHEDULE_ZB_V, 4, 8, 2, 0, false},
     3,
     "F0.0 F1.0 F0.1 F1.1 F0.2 F1.2 F0.3 F1.3 B1.0 B0.0 B1.1 B0.1 B1.2 B0.2 B1.3 B0.3 W1.0 W0.0 "
     "W1.1 W0.1 W1.2 W0.2 W1.3 W0.3 F0.4 F1.4 F0.5 F1.5 F0.6 F1.6 F0.7 F1.7 B1.4 B0.4 B1.5 B0.5 "
     "B1.6 B0.6 B1.7 B0.7 W1.4 W0.4 W1.5 W0.5 W1.6 W0.6 W1.7 W0.7"},
    /* S18 */
    {{PST_SCHEDULE_DUALPIPE, 4, 8, 2, 0, false},
     0,
     "F0.0 F0.1 F0.2 F1.0 B1.0 W1.0 F1.1 F0.3 BW1.1 F1.2 BW0.0 BW1.2 F1.3 BW0.1 BW1.3 B0.2 W0.2 "
     "B0.3 W0.3"},
    /* S18 */
    {{PST_SCHEDULE_DUALPIPE, 4, 8, 2, 0, false},
     3,
     "F1.0 F1.1 F1.2 F0.0 B0.0 W0.0 F0.1 F1.3 BW0.1 F0.2 BW1.0 BW0.2 F0.3 BW1.1 BW0.3 B1.2 W1.2 "
     "B1.3 W1.3"},
    /* no forward is left before weights are due by their lag */
    {{PST_SCHEDULE_ZB_H1, 4, 3, 0, 0, false}, 2, "F0 F1 B0 F2 B1 W0 B2 W1 W2"},
    {{PST_SCHEDULE_ZB_H2, 4, 4, 0, 0, false}, 1, "F0 F1 F2 F3 B0 W0 B1 W1 B2 W2 B3 W3"},
    {{PST_SCHEDULE_ZB_H2, 4, 4, 0, 0, false}, 2, "F0 F1 F2 B0 F3 B1 W0 B2 W1 B3 W2 W3"},
};

PST_TEST(Schedule, Lists)
{
    char text[2048];
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        pst_schedule *schedule = schedule_of(&lists[i].of, lists[i].stage);
        CHECK(schedule != NULL);
        text_of(schedule, text, sizeof(text));
        pst_schedule_destroy(schedule);
        CHECK_STR(text, lists[i].list);
    }
}

/* Where DualPipe's passes start together. */
PST_TEST(Schedule, Pairs)
{
    static const char *const expected[4] = {"7 9 12", "6 8 10", "6 8 10", "7 9 12"};
    const shape dual = {PST_SCHEDULE_DUALPIPE, 4, 8, 2, 0, false};
    for (uint32_t r = 0; r < 4; r++) {
        pst_schedule *schedule = schedule_of(&dual, r);
        char text[128] = "";
        CHECK(schedule != NULL);
        for (uint64_t n = 0; n < schedule->num_passes; n++)
            if (schedule->passes[n].pairs)
                sprintf(text + strlen(text), "%s%u", *text ? " " : "", (unsigned)n);
        pst_schedule_destroy(schedule);
        CHECK_STR(text, expected[r]);
    }
}

/* ---- figures of the vectors S1 to S20, where every kind of pass takes 1 ---- */

static const durations ones = {1, 1, 1, 0};

static const struct {
    shape of;
    uint32_t peaks[8];
    uint32_t slots[2][4];  /* of each chunk, on the first and the last rank */
    const char *orders[2]; /* the same ranks; F: first in, first out, L: last in, first out */
    uint64_t passes, makespan, spans[2];
} vectors[] = {
#define K(kind) PST_SCHEDULE_##kind
    {{K(GPIPE), 4, 6, 1, 0, false}, {6, 6, 6, 6}, {{6}, {6}}, {"F", "F"}, 12, 27, {27, 18}},
    {{K(GPIPE_REVERSED), 4, 6, 1, 0, false},
     {6, 6, 6, 6},
     {{6}, {6}},
     {"L", "L"},
     12,
     27,
     {27, 18}},
    {{K(1F1B), 1, 4, 1, 0, false}, {1}, {{1}, {1}}, {"FL", "FL"}, 8, 12, {12, 12}},
    {{K(1F1B), 4, 8, 1, 0, false}, {4, 3, 2, 1}, {{4}, {1}}, {"F", "FL"}, 16, 33, {33, 24}},
    {{K(1F1B), 4, 2, 1, 0, false}, {2, 2, 2, 1}, {{2}, {1}}, {"F", "FL"}, 4, 15, {15, 6}},
    {{K(1F1B), 8, 16, 1, 0, false},
     {8, 7, 6, 5, 4, 3, 2, 1},
     {{8}, {1}},
     {"F", "FL"},
     32,
     69,
     {69, 48}},
    {{K(INTERLEAVED), 2, 5, 2, 3, false}, {6, 4}, {{5, 3}, {4, 2}}, {"F", "F"}, 20, 33, {33, 30}},
    {{K(INTERLEAVED), 4, 8, 2, 4, false},
     {11, 9, 7, 5},
     {{8, 4}, {5, 1}},
     {"F", "F"},
     32,
     57,
     {57, 48}},
    {{K(INTERLEAVED), 4, 8, 2, 4, true},
     {12, 10, 8, 6},
     {{8, 4}, {6, 2}},
     {"F", "F"},
     32,
     57,
     {57, 48}},
    {{K(INTERLEAVED), 4, 12, 3, 6, false},
     {19, 17, 15, 13},
     {{12, 7, 6}, {12, 6, 1}},
     {"F", "F"},
     72,
     117,
     {117, 108}},
    {{K(INTERLEAVED), 4, 8, 4, 4, false},
     {19, 17, 15, 13},
     {{8, 8, 4, 4}, {8, 5, 4, 1}},
     {"F", "F"},
     64,
     105,
     {105, 96}},
    {{K(ZB_H1), 4, 8, 1, 0, false}, {4, 4, 4, 4}, {{4}, {4}}, {"F", "F"}, 24, 27, {27, 24}},
    {{K(ZB_H1), 4, 3, 1, 0, false}, {3, 3, 3, 3}, {{3}, {3}}, {"F", "F"}, 9, 13, {13, 9}},
    {{K(ZB_H2), 4, 8, 1, 0, false}, {7, 7, 7, 7}, {{7}, {7}}, {"F", "F"}, 24, 27, {24, 24}},
    {{K(ZB_H2), 4, 12, 1, 0, false}, {7, 7, 7, 7}, {{7}, {7}}, {"F", "F"}, 36, 39, {36, 36}},
    {{K(ZB_V), 4, 8, 2, 0, false}, {8, 8, 8, 8}, {{4, 4}, {4, 4}}, {"F", "F"}, 48, 51, {51, 48}},
    {{K(ZB_V), 8, 24, 2, 0, false},
     {16, 16, 16, 16, 16, 16, 16, 16},
     {{8, 8}, {8, 8}},
     {"F", "F"},
     144,
     151,
     {151, 144}},
    {{K(DUALPIPE), 4, 8, 2, 0, false},
     {5, 5, 5, 5},
     {{4, 1}, {1, 4}},
     {"F", "F"},
     19,
     25,
     {25, 25}},
    {{K(DUALPIPE), 8, 20, 2, 0, false},
     {9, 9, 9, 9, 9, 9, 9, 9},
     {{8, 1}, {1, 8}},
     {"F", "F"},
     47,
     63,
     {63, 63}},
    {{K(DUALPIPE_V), 4, 10, 2, 0, false},
     {9, 9, 9, 9},
     {{8, 1}, {5, 4}},
     {"F", "F"},
     47,
     63,
     {63, 60}},
};

static void check_ends(const pst_schedule *schedule, const uint32_t *slots, const char *order)
{
    uint32_t num_slots = 0;
    for (uint32_t c = 0; c < schedule->num_chunks; c++) {
        CHECK_OK(pst_schedule_get_slots(schedule, c, &num_slots));
        CHECK_EQ(num_slots, slots[c]);
    }
    CHECK_EQ(schedule->info.is_fifo, strchr(order, 'F') != NULL);
    CHECK_EQ(schedule->info.is_lifo, strchr(order, 'L') != NULL);
}

PST_TEST(Schedule, Vectors)
{
    stage_span spans[SCENE_STAGES];
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        const shape *of = &vectors[i].of;
        for (uint32_t r = 0; r < of->p; r++) {
            pst_schedule *schedule = schedule_of(of, r);
            CHECK(schedule != NULL);
            CHECK_EQ(schedule->info.peak, vectors[i].peaks[r]);
            measure_again(schedule);
            if (r == 0)
                CHECK_EQ(schedule->num_passes, vectors[i].passes);
            if (r == 0)
                check_ends(schedule, vectors[i].slots[0], vectors[i].orders[0]);
            if (r == of->p - 1)
                check_ends(schedule, vectors[i].slots[1], vectors[i].orders[1]);
            pst_schedule_destroy(schedule);
        }
        CHECK_EQ(run_ranks(of, ones, spans), vectors[i].makespan);
        CHECK_EQ(spans[0].end - spans[0].begin, vectors[i].spans[0]);
        CHECK_EQ(spans[of->p - 1].end - spans[of->p - 1].begin, vectors[i].spans[1]);
    }
}

/* ---- closed forms ---- */

static const uint32_t some_stages[] = {1, 2, 3, 4, 8, 16};
static const uint32_t some_batches[] = {1, 2, 3, 4, 7, 8, 16, 33};

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* What lives at most on a rank, and that all figures are right; slots are the peak with one chunk. */
static void check_peak(const shape *of, uint32_t stage, uint32_t peak)
{
    pst_schedule *schedule = schedule_of(of, stage);
    uint32_t num_slots = 0;
    CHECK(schedule != NULL);
    CHECK_OK(pst_schedule_get_slots(schedule, 0, &num_slots));
    if (schedule->num_passes <= 400)
        measure_again(schedule);
    const pst_schedule_info info = schedule->info;
    pst_schedule_destroy(schedule);
    CHECK_MSG(info.peak == peak, "kind %d p %u m %u stage %u: %u live, not %u", of->kind, of->p,
              of->m, stage, info.peak, peak);
    CHECK(info.config.num_chunks > 1 || num_slots == peak);
    CHECK_EQ(info.is_fifo, of->kind != PST_SCHEDULE_GPIPE_REVERSED || of->m == 1);
}

static void check_makespan(const shape *of, durations take, uint64_t makespan)
{
    stage_span spans[SCENE_STAGES];
    const uint64_t found = run_ranks(of, take, spans);
    CHECK_MSG(found == makespan, "kind %d p %u m %u v %u takes %llu, not %llu", of->kind, of->p,
              of->m, of->v, (unsigned long long)found, (unsigned long long)makespan);
}

static void check_plain(uint32_t p, uint32_t m)
{
    static const durations take = {3, 2, 5, 0};
    for (uint32_t r = 0; r < p; r++) {
        check_peak(&(shape){K(GPIPE), p, m, 0, 0, false}, r, m);
        check_peak(&(shape){K(GPIPE_REVERSED), p, m, 0, 0, false}, r, m);
        check_peak(&(shape){K(1F1B), p, m, 0, 0, false}, r, least(p - r, m));
        check_peak(&(shape){K(ZB_H1), p, m, 0, 0, false}, r, least(p, m));
        check_peak(&(shape){K(ZB_H2), p, m, 0, 0, false}, r, least(2 * p - 1, m));
    }
    check_makespan(&(shape){K(GPIPE), p, m, 0, 0, false}, take, (m + p - 1) * 10);
    check_makespan(&(shape){K(GPIPE_REVERSED), p, m, 0, 0, false}, take, (m + p - 1) * 10);
    check_makespan(&(shape){K(1F1B), p, m, 0, 0, false}, take, (m + p - 1) * 10);
}

static void check_interleaved(uint32_t p, uint32_t m, uint32_t v, uint32_t group, bool overlaps)
{
    const shape of = {K(INTERLEAVED), p, m, v, group, overlaps};
    for (uint32_t r = 0; r < p; r++)
        check_peak(&of, r, least(2 * (p - 1 - r) + (v - 1) * group + overlaps + 1, m * v));
    if (m % p == 0 && group == p && !overlaps)
        check_makespan(&of, (durations){3, 2, 5, 0}, (uint64_t)(m * v + p - 1) * 10);
}

PST_TEST(Schedule, ClosedForms)
{
    for (size_t i = 0; i < sizeof(some_stages) / sizeof(some_stages[0]); i++)
        for (size_t j = 0; j < sizeof(some_batches) / sizeof(some_batches[0]); j++) {
            const uint32_t p = some_stages[i], m = some_batches[j];
            check_plain(p, m);
            for (uint32_t v = 2; v <= 4; v++)
                for (uint32_t group = p; group <= m; group++)
                    if (m % group == 0 || m % group >= p) {
                        check_interleaved(p, m, v, group, false);
                        check_interleaved(p, m, v, group, true);
                    }
        }
}

/* ---- the literature's figures ---- */

/* ZB-H1 has a third of 1F1B's bubble and as much in flight, ZB-H2 none within a rank. */
PST_TEST(Schedule, ZeroBubble)
{
    stage_span spans[SCENE_STAGES];
    for (uint32_t p = 1; p <= 12; p++)
        for (uint32_t m = 2 * p - 1; m <= 4 * p; m += p) {
            check_makespan(&(shape){K(ZB_H1), p, m, 0, 0, false}, ones, 3 * m + p - 1);
            check_makespan(&(shape){K(1F1B), p, m, 0, 0, false}, ones, 3 * (m + p - 1));
            run_ranks(&(shape){K(ZB_H2), p, m, 0, 0, false}, ones, spans);
            for (uint32_t r = 0; r < p; r++)
                CHECK_EQ(spans[r].end - spans[r].begin, 3 * m);
        }
}

/* ZB-V keeps as much as 1F1B, in halves, and rank r waits p - 1 - r units. */
PST_TEST(Schedule, ZeroBubbleV)
{
    stage_span spans[SCENE_STAGES];
    for (uint32_t p = 1; p <= 12; p++)
        for (uint32_t m = 2 * p; m <= 4 * p; m += 2 * p) {
            const shape of = {K(ZB_V), p, m, 2, 0, false};
            run_ranks(&of, ones, spans);
            for (uint32_t r = 0; r < p; r++) {
                CHECK_EQ(spans[r].end - spans[r].begin, 6 * m + p - 1 - r);
                check_peak(&of, r, 2 * p);
            }
        }
}

/* No limit is exceeded, no rank waits for ever, all is in order. */
PST_TEST(Schedule, LimitsOfZeroBubbleV)
{
    for (uint32_t p = 1; p <= 5; p++)
        for (uint32_t m = 1; m <= 12; m++)
            for (uint32_t limit = 1; limit <= 13; limit++)
                for (uint32_t r = 0; r < p; r++) {
                    pst_schedule_config config = config_of(&(shape){K(ZB_V), p, m, 0, 0, false}, r);
                    pst_schedule *schedule = NULL;
                    config.limit = limit;
                    CHECK_OK(pst_schedule_create(&config, &schedule));
                    CHECK(schedule->info.peak <= 2 * limit && schedule->info.is_fifo);
                    if ((p + m + limit) % 4 == 0)
                        measure_again(schedule);
                    pst_schedule_destroy(schedule);
                }
}

/* Of the ranks in the middle, which have most pairs and so least work of their own. */
static void check_bubble(const shape *of, uint32_t half, durations take)
{
    stage_span spans[SCENE_STAGES];
    const uint64_t whole = take.input + take.weight;
    const uint64_t bubble = run_ranks(of, take, spans) - spans[half - 1].busy;
    CHECK_MSG(bubble == (half - 1) * (take.pair + whole - 3 * take.weight),
              "kind %d p %u m %u: bubble %llu", of->kind, of->p, of->m, (unsigned long long)bubble);
}

static const durations settings[] = {{1, 1, 1, 3}, {2, 2, 1, 4}, {3, 3, 2, 6}};
static const uint32_t dual_shapes[][2] = {{4, 8}, {6, 12}, {8, 20}, {8, 32}};

PST_TEST(Schedule, DualPipe)
{
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 3; j++) {
            const uint32_t p = dual_shapes[i][0], m = dual_shapes[i][1];
            check_bubble(&(shape){K(DUALPIPE), p, m, 2, 0, false}, p / 2, settings[j]);
            check_bubble(&(shape){K(DUALPIPE_V), p / 2, m / 2, 2, 0, false}, p / 2, settings[j]);
        }
    for (uint32_t p = 2; p <= 16; p += 2)
        for (uint32_t m = 2 * p; m <= 2 * p + 8; m += 2)
            for (uint32_t r = 0; r < p; r++)
                check_peak(&(shape){K(DUALPIPE), p, m, 2, 0, false}, r, p + 1);
    for (uint32_t p = 1; p <= 8; p++)
        for (uint32_t m = 2 * p; m <= 2 * p + 5; m++)
            for (uint32_t r = 0; r < p; r++)
                check_peak(&(shape){K(DUALPIPE_V), p, m, 2, 0, false}, r, 2 * p + 1);
}
