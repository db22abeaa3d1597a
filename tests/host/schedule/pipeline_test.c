/* The order of a pipeline's passes: lists written by hand, closed forms, and whole pipelines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/schedule/pipeline.h"
#include "tests/harness.h"

static psti_pipeline stage_of(uint64_t p, uint64_t stage, uint64_t m, uint64_t v, uint64_t group,
                              bool overlaps)
{
    return psti_pipeline_1f1b(&(psti_pipeline_shape){p, stage, m, v, group, overlaps});
}

/* As "F0 B0", with chunks as "F0.0 B1.0". */
static void expect(psti_pipeline pipeline, const char *order)
{
    char text[512] = "";
    const bool has_chunks = pipeline.num_chunks > 1;
    psti_pipeline_pass pass;
    for (size_t end = 0; psti_pipeline_next(&pipeline, &pass) && end < sizeof(text) - 8;) {
        const char kind = pass.kind == PST_PASS_FORWARD ? 'F' : 'B';
        if (has_chunks)
            end += (size_t)sprintf(text + end, "%c%u.", kind, (unsigned)pass.chunk);
        else
            text[end++] = kind;
        end += (size_t)sprintf(text + end, "%u ", (unsigned)pass.micro_batch);
    }
    CHECK_STR(text, order);
}

PST_TEST(Pipeline, Lists)
{
    expect(psti_pipeline_reversed(6), "F0 F1 F2 F3 F4 F5 B5 B4 B3 B2 B1 B0 ");
    expect(psti_pipeline_warmed_up(3, 1), "F0 F1 B0 F2 B1 B2 ");
    expect(psti_pipeline_warmed_up(0, 0), "");
    expect(stage_of(1, 0, 4, 1, 1, false), "F0 B0 F1 B1 F2 B2 F3 B3 ");
    expect(stage_of(4, 0, 8, 1, 1, false), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7 ");
    expect(stage_of(4, 3, 8, 1, 1, false), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 ");
    expect(stage_of(4, 0, 2, 1, 1, true), "F0 F1 B0 B1 ");
    /* the example in Megatron-LM's schedules.py */
    expect(stage_of(2, 0, 5, 2, 3, false),
           "F0.0 F0.1 F0.2 F1.0 F1.1 F1.2 B1.0 F0.3 B1.1 F0.4 B1.2 F1.3 B0.0 F1.4 B0.1 B0.2 B1.3 "
           "B1.4 B0.3 B0.4 ");
    expect(stage_of(2, 1, 5, 2, 3, false),
           "F0.0 F0.1 F0.2 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F0.3 B0.0 F0.4 B0.1 F1.3 B0.2 F1.4 B1.3 "
           "B1.4 B0.3 B0.4 ");
    expect(stage_of(4, 3, 8, 2, 4, false),
           "F0.0 F0.1 F0.2 F0.3 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 F0.4 B0.0 F0.5 B0.1 F0.6 "
           "B0.2 F0.7 B0.3 F1.4 B1.4 F1.5 B1.5 F1.6 B1.6 F1.7 B1.7 B0.4 B0.5 B0.6 B0.7 ");
    expect(stage_of(4, 3, 8, 2, 4, true),
           "F0.0 F0.1 F0.2 F0.3 F1.0 F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 F0.4 B1.3 F0.5 B0.0 F0.6 B0.1 "
           "F0.7 B0.2 F1.4 B0.3 F1.5 B1.4 F1.6 B1.5 F1.7 B1.6 B1.7 B0.4 B0.5 B0.6 B0.7 ");
}

/* The order that derived and expanded traces had before there was one pipeline. */
PST_TEST(Pipeline, WarmedUpIsThreePhases)
{
    for (uint64_t m = 1; m <= 9; m++)
        for (uint64_t warm_up = 0; warm_up <= 11; warm_up++) {
            psti_pipeline pipeline = psti_pipeline_warmed_up(m, warm_up);
            const uint64_t ahead = warm_up < m ? warm_up : m;
            psti_pipeline_pass pass;
            for (uint64_t step = 0; psti_pipeline_next(&pipeline, &pass); step++) {
                const uint64_t turn = step - ahead;
                const bool is_cold = step >= ahead && turn >= 2 * (m - ahead);
                const bool is_forward = step < ahead || (!is_cold && turn % 2 == 0);
                const uint64_t in_turn = is_forward ? ahead + turn / 2 : turn / 2;
                CHECK_EQ(pass.kind == PST_PASS_FORWARD, is_forward);
                CHECK_EQ(pass.micro_batch, step < ahead ? step : (is_cold ? step - m : in_turn));
            }
        }
}

/* ---- whole pipelines ---- */

enum { MOST_STAGES = 16, MOST_CHUNKS = 4, MOST_BATCHES = 33 };

/* When a forward and a backward of a virtual stage end; 0: not yet. */
typedef struct ends {
    uint64_t at[2][MOST_STAGES * MOST_CHUNKS][MOST_BATCHES];
} ends;

typedef struct rank {
    psti_pipeline pipeline;
    psti_pipeline_pass next;
    bool is_done;
    uint64_t now, live, peak;
} rank;

/* What a pass waits for, or NULL: the stage before, and where backwards begin its own forward. */
static const uint64_t *waits_for(const ends *ended, const psti_pipeline_pass *pass, uint64_t at,
                                 uint64_t last)
{
    if (pass->kind == PST_PASS_FORWARD)
        return at == 0 ? NULL : &ended->at[0][at - 1][pass->micro_batch];
    return at == last ? &ended->at[0][at][pass->micro_batch]
                      : &ended->at[1][at + 1][pass->micro_batch];
}

/* Runs passes until one has to wait: a forward takes 1, a backward 2. A chunk runs its micro-batches
 * in order, each forward and backward once. */
static void advance(rank *self, uint64_t stage, uint64_t p, ends *ended, bool *moves)
{
    while (!self->is_done) {
        const psti_pipeline_pass *pass = &self->next;
        const uint64_t at = pass->chunk * p + stage, m = pass->micro_batch;
        const bool is_forward = pass->kind == PST_PASS_FORWARD;
        const uint64_t *waits = waits_for(ended, pass, at, p * self->pipeline.num_chunks - 1);
        uint64_t *own = ended->at[!is_forward][at];
        if (waits != NULL && *waits == 0)
            return;
        CHECK(own[m] == 0 && (m == 0 || own[m - 1] != 0));
        CHECK(is_forward || ended->at[0][at][m] != 0);
        if (waits != NULL && *waits > self->now)
            self->now = *waits;
        own[m] = self->now += is_forward ? 1 : 2;
        self->live = is_forward ? self->live + 1 : self->live - 1;
        self->peak = self->live > self->peak ? self->live : self->peak;
        self->is_done = !psti_pipeline_next(&self->pipeline, &self->next);
        *moves = true;
    }
}

/* All ranks, which are to end after a span; peaks: the most passes in flight on each. */
static void run_all(uint64_t p, uint64_t m, uint64_t v, uint64_t group, bool overlaps,
                    uint64_t span, uint64_t *peaks)
{
    rank ranks[MOST_STAGES] = {{.now = 0}};
    ends *ended = calloc(1, sizeof(*ended));
    uint64_t longest = 0;
    for (uint64_t r = 0; r < p; r++) {
        ranks[r].pipeline = stage_of(p, r, m, v, group, overlaps);
        ranks[r].is_done = !psti_pipeline_next(&ranks[r].pipeline, &ranks[r].next);
    }
    for (bool moves = true; moves && !psti_test_failed();) {
        moves = false;
        for (uint64_t r = 0; r < p; r++)
            advance(&ranks[r], r, p, ended, &moves);
    }
    free(ended);
    for (uint64_t r = 0; r < p; r++) {
        CHECK(ranks[r].is_done && ranks[r].live == 0);
        CHECK_EQ(ranks[r].peak, psti_pipeline_most_live(&ranks[r].pipeline));
        peaks[r] = ranks[r].peak;
        longest = ranks[r].now > longest ? ranks[r].now : longest;
    }
    CHECK_EQ(longest, span);
}

/* Most passes in flight, and how long an iteration takes where a chunk's backward takes twice its
 * forward. */
PST_TEST(Pipeline, ClosedForms)
{
    static const uint64_t stages[] = {1, 2, 3, 4, 8, 16}, batches[] = {1, 2, 3, 4, 7, 8, 16, 33};
    uint64_t peaks[MOST_STAGES];
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 8; j++) {
            const uint64_t p = stages[i], m = batches[j];
            run_all(p, m, 1, 1, false, 3 * (m + p - 1), peaks);
            for (uint64_t r = 0; r < p; r++)
                CHECK_EQ(peaks[r], p - r < m ? p - r : m);
            for (uint64_t v = 2; v <= MOST_CHUNKS && m % p == 0; v++) {
                run_all(p, m, v, p, false, 3 * (m * v + p - 1), peaks);
                for (uint64_t r = 0; r < p; r++) {
                    const uint64_t most = 2 * (p - 1 - r) + (v - 1) * p + 1;
                    CHECK_EQ(peaks[r], most < m * v ? most : m * v);
                }
            }
        }
}

PST_TEST(Pipeline, GroupsAndOverlap)
{
    static const struct {
        uint64_t p, m, v, group, span, first_peak, last_peak;
        bool overlaps;
    } cases[] = {{2, 5, 2, 3, 33, 6, 4, false},    {4, 8, 2, 4, 57, 11, 5, false},
                 {4, 8, 2, 4, 57, 12, 6, true},    {4, 12, 3, 6, 117, 19, 13, false},
                 {4, 8, 4, 4, 105, 19, 13, false}, {8, 16, 1, 1, 69, 8, 1, false}};
    uint64_t peaks[MOST_STAGES];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run_all(cases[i].p, cases[i].m, cases[i].v, cases[i].group, cases[i].overlaps,
                cases[i].span, peaks);
        CHECK_EQ(peaks[0], cases[i].first_peak);
        CHECK_EQ(peaks[cases[i].p - 1], cases[i].last_peak);
    }
}

/* ---- the peak ---- */

typedef struct weights {
    uint64_t of[MOST_CHUNKS], now;
} weights;

static uint64_t weigh(void *user, const psti_pipeline_pass *pass)
{
    weights *self = user;
    const uint64_t weight = self->of[pass->chunk];
    self->now = pass->kind == PST_PASS_FORWARD ? self->now + weight : self->now - weight;
    return self->now;
}

/* Chunks of any weight, groups of any size: the peak of the first turns is that of all. */
PST_TEST(Pipeline, ThePeakOfAWholeIteration)
{
    uint64_t seed = 1;
    for (uint64_t i = 0; i < 300; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        const uint64_t group = 4 + (seed >> 50) % 4, v = i % 2 ? 2 : MOST_CHUNKS;
        psti_pipeline pipeline =
            stage_of(4, (seed >> 40) % 4, group * (1 + (seed >> 45) % 6), v, group, i % 3 == 0);
        weights all = {.of = {seed >> 60, seed >> 56 & 15, seed >> 52 & 15, seed >> 36 & 15}};
        weights again = all;
        uint64_t live[MOST_CHUNKS], sum = 0, most = 0;
        psti_pipeline_peak(&pipeline, weigh, &again, live);
        for (uint64_t j = 0; j < v; j++)
            sum += live[j] * all.of[j];
        for (psti_pipeline_pass pass; psti_pipeline_next(&pipeline, &pass);) {
            const uint64_t now = weigh(&all, &pass);
            most = now > most ? now : most;
        }
        CHECK_EQ(sum, most);
    }
}
