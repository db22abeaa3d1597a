/* Schedules in tests: as text, measured again in the plainest way, and run by all ranks at once. */
#ifndef PAGESTASH_TESTS_SCHEDULE_SCENE_H
#define PAGESTASH_TESTS_SCHEDULE_SCENE_H

#include <stdio.h>
#include <stdlib.h>

#include "host/schedule/schedule.h"
#include "tests/harness.h"

enum { SCENE_STAGES = 16 };

typedef struct shape {
    pst_schedule_kind kind;
    uint32_t p, m, v, group;
    bool overlaps;
} shape;

static inline pst_schedule_config config_of(const shape *of, uint32_t stage)
{
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    config.kind = of->kind;
    config.num_stages = of->p;
    config.stage = stage;
    config.num_micro_batches = of->m;
    config.num_chunks = of->v;
    config.group = of->group;
    config.overlaps_exchange = of->overlaps;
    return config;
}

/* NULL: the test has failed. */
static inline pst_schedule *schedule_of(const shape *of, uint32_t stage)
{
    const pst_schedule_config config = config_of(of, stage);
    pst_schedule *schedule = NULL;
    if (pst_schedule_create(&config, &schedule) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "kind %d p %u m %u v %u: %s", of->kind, of->p, of->m,
                       of->v, pst_last_message());
    return schedule;
}

/* Passes from "F0 F1.2 B0 I1 W1", where "[" before a pass begins a pair. Answers how many. */
static inline uint64_t passes_from(const char *text, pst_pass *passes)
{
    uint64_t num = 0;
    while (*text) {
        pst_pass *pass = &passes[num++];
        *pass = (pst_pass){.pairs = *text == '['};
        text += *text == '[';
        const char *kinds = "FBIW";
        pass->kind = (pst_pass_kind)(strchr(kinds, *text++) - kinds);
        pass->micro_batch = (uint32_t)strtoul(text, (char **)(uintptr_t)&text, 10);
        if (*text == '.') {
            pass->chunk = pass->micro_batch;
            pass->micro_batch = (uint32_t)strtoul(text + 1, (char **)(uintptr_t)&text, 10);
        }
        while (*text == ' ')
            text++;
    }
    return num;
}

static inline pst_status list_of(const char *text, pst_schedule **schedule_out)
{
    pst_pass passes[256];
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    config.kind = PST_SCHEDULE_LIST;
    config.num_passes = passes_from(text, passes);
    config.passes = passes;
    return pst_schedule_create(&config, schedule_out);
}

/* As docs/scheduler.md prints lists: chunks where there are several, BW for a whole backward where
 * others are split, B for one of an input. */
static inline void text_of(const pst_schedule *schedule, char *out, size_t room)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint64_t n = 0; n < schedule->num_passes && used + 24 < room; n++) {
        const pst_pass *pass = &schedule->passes[n];
        const char *names[] = {"F", schedule->splits_backward ? "BW" : "B", "B", "W"};
        used +=
            (size_t)snprintf(out + used, room - used, "%s%s", n > 0 ? " " : "", names[pass->kind]);
        if (schedule->num_chunks > 1)
            used += (size_t)snprintf(out + used, room - used, "%u.", pass->chunk);
        used += (size_t)snprintf(out + used, room - used, "%u", pass->micro_batch);
    }
}

/* ---- measured again ---- */

/* The last backward of what the pass n begins, and how many of its chunk live meanwhile: by looking
 * at the whole list. */
static inline uint64_t end_of(const pst_schedule *schedule, uint64_t n)
{
    const pst_pass *of = &schedule->passes[n];
    uint64_t end = n;
    for (uint64_t i = n + 1; i < schedule->num_passes; i++)
        if (schedule->passes[i].chunk == of->chunk &&
            schedule->passes[i].micro_batch == of->micro_batch)
            end = i;
    return end;
}

/* Peak, order and slots of a schedule that is not forward only, in quadratic time and worse. */
static inline void measure_again(const pst_schedule *schedule)
{
    const uint64_t num = schedule->num_passes;
    uint64_t *ends = calloc(num, sizeof(*ends)); /* of forwards; else 0 */
    /* Twice that, and of a pair's first backward behind the forward that it interleaves with. */
    uint64_t *until = calloc(num, sizeof(*until));
    bool is_fifo = true, is_lifo = true;
    uint32_t peak = 0, peak_at = 0;
    for (uint64_t n = 0; n < num; n++)
        if (schedule->passes[n].kind == PST_PASS_FORWARD) {
            ends[n] = end_of(schedule, n);
            until[n] = 2 * ends[n] + (schedule->passes[ends[n]].pairs ? 3 : 0);
        }
    for (uint64_t n = 0; n < num; n++) {
        const uint32_t c = schedule->passes[n].chunk, i = schedule->passes[n].micro_batch;
        uint32_t live = 0, beside = 0, least = 0;
        for (uint64_t k = 0; k <= n && ends[n]; k++) {
            const bool lives = until[k] > 2 * n;
            const bool is_other = lives && k < n && schedule->passes[k].chunk == c;
            live += lives;
            beside += is_other;
            is_fifo &= !is_other || until[k] < until[n];
            is_lifo &= !is_other || until[k] > until[n];
            CHECK(!is_other || pst_schedule_slot(schedule, c, schedule->passes[k].micro_batch) !=
                                   pst_schedule_slot(schedule, c, i));
        }
        for (bool moves = true; moves && ends[n];) { /* the least slot that nobody has */
            moves = false;
            for (uint64_t k = 0; k < n; k++)
                moves |= until[k] > 2 * n && schedule->passes[k].chunk == c &&
                         pst_schedule_slot(schedule, c, schedule->passes[k].micro_batch) == least;
            least += moves;
        }
        if (live > peak) {
            peak = live;
            peak_at = (uint32_t)n;
        }
        uint32_t num_slots = 0;
        CHECK_OK(pst_schedule_get_slots(schedule, c, &num_slots));
        CHECK(beside < num_slots);
        if (ends[n]) {
            const psti_life *life = psti_schedule_life(schedule, c, i);
            const bool is_own = schedule->config.kind != PST_SCHEDULE_LIST &&
                                schedule->config.kind != PST_SCHEDULE_GPIPE_REVERSED;
            CHECK_EQ(life->slot, is_own ? i % num_slots : least);
            CHECK_EQ(life->forward, n);
            CHECK_EQ(life->last_backward, ends[n]);
            CHECK(schedule->passes[life->first_backward].kind == PST_PASS_BACKWARD ||
                  schedule->passes[life->first_backward].kind == PST_PASS_BACKWARD_INPUT);
        }
    }
    free(ends);
    free(until);
    CHECK_EQ(schedule->info.peak, peak);
    CHECK_EQ(schedule->info.peak_at, peak_at);
    CHECK_EQ(schedule->info.is_fifo, is_fifo);
    CHECK_EQ(schedule->info.is_lifo, is_lifo);
}

/* ---- all ranks at once ---- */

typedef struct durations {
    uint64_t forward, input, weight; /* a whole backward takes both */
    uint64_t pair;                   /* of a forward and a whole backward, both of whose results are
                                      * there at its end; 0: their sum, and each result is there
                                      * after its own time, as if the other had not run beside it */
} durations;

typedef struct stage_span {
    uint64_t begin, end, busy;
} stage_span;

/* The virtual stage of a chunk, and the pipeline that it belongs to: DualPipe has one each way. */
static inline uint32_t virtual_stage(const shape *of, uint32_t rank, uint32_t chunk)
{
    const uint32_t p = of->p;
    switch (of->kind) {
    case PST_SCHEDULE_DUALPIPE:
        return chunk == 0 ? rank : p + p - 1 - rank; /* 0..p-1, and p..2p-1 */
    case PST_SCHEDULE_DUALPIPE_V:
    case PST_SCHEDULE_ZB_V:
        return chunk == 0 ? rank : 2 * p - 1 - rank;
    default:
        return chunk * p + rank;
    }
}

typedef struct line {
    const shape *of;
    durations take;
    uint32_t num_stages, m;   /* virtual */
    uint64_t *forward, *back; /* when they ended, plus 1: [num_stages][m]; 0: not yet */
} line;

static inline uint64_t *at(uint64_t *ends, const line *all, uint32_t stage, uint32_t micro_batch)
{
    return &ends[(size_t)stage * all->m + micro_batch];
}

/* Whether the pass can begin, and not before when. */
static inline bool can_begin(const line *all, uint32_t rank, const pst_pass *pass, uint64_t *when)
{
    const uint32_t p = all->of->p, stage = virtual_stage(all->of, rank, pass->chunk);
    const uint32_t i = pass->micro_batch;
    const bool is_dual = all->of->kind == PST_SCHEDULE_DUALPIPE;
    const bool is_first = stage == 0 || (is_dual && stage == p);
    const bool is_last = stage == all->num_stages - 1 || (is_dual && stage == p - 1);
    const uint64_t *needs = NULL;
    if (pass->kind == PST_PASS_FORWARD)
        needs = is_first ? NULL : at(all->forward, all, stage - 1, i);
    else if (pass->kind != PST_PASS_BACKWARD_WEIGHT)
        needs = is_last ? at(all->forward, all, stage, i) : at(all->back, all, stage + 1, i);
    if (needs && *needs == 0)
        return false;
    if (needs && *needs - 1 > *when)
        *when = *needs - 1;
    return true;
}

static inline uint64_t duration(const line *all, pst_pass_kind kind)
{
    const durations *take = &all->take;
    const uint64_t of[] = {take->forward, take->input + take->weight, take->input, take->weight};
    return of[kind];
}

static inline void end_pass(line *all, uint32_t rank, const pst_pass *pass, uint64_t when)
{
    const uint32_t stage = virtual_stage(all->of, rank, pass->chunk);
    if (pass->kind != PST_PASS_BACKWARD_WEIGHT)
        *at(pass->kind == PST_PASS_FORWARD ? all->forward : all->back, all, stage,
            pass->micro_batch) = when + 1;
}

/* Runs the next pass, or the next two. False: it has to wait. */
static inline bool step(line *all, const pst_schedule *schedule, uint32_t rank, uint64_t *next,
                        stage_span *span)
{
    const pst_pass *pass = &schedule->passes[*next];
    uint64_t begin = span->end, takes = duration(all, pass->kind);
    if (!can_begin(all, rank, pass, &begin) ||
        (pass->pairs && !can_begin(all, rank, pass + 1, &begin)))
        return false;
    if (pass->pairs)
        takes = all->take.pair ? all->take.pair : takes + duration(all, pass[1].kind);
    if (*next == 0)
        span->begin = begin;
    span->end = begin + takes;
    span->busy += takes;
    for (int i = 0; i <= pass->pairs; i++)
        end_pass(all, rank, pass + i,
                 pass->pairs && all->take.pair == 0 ? begin + duration(all, pass[i].kind)
                                                    : span->end);
    *next += 1 + pass->pairs;
    return true;
}

/* The time until the last rank has ended; 0, and the test has failed, where they wait for ever. */
static inline uint64_t run_ranks(const shape *of, durations take, stage_span *spans)
{
    pst_schedule *schedules[SCENE_STAGES] = {NULL};
    uint64_t next[SCENE_STAGES] = {0}, longest = 0, left = 0;
    line all = {.of = of, .take = take, .num_stages = of->p * (of->v ? of->v : 1), .m = of->m};
    all.forward = calloc((size_t)all.num_stages * all.m, sizeof(*all.forward));
    all.back = calloc((size_t)all.num_stages * all.m, sizeof(*all.back));
    for (uint32_t r = 0; r < of->p; r++) {
        schedules[r] = schedule_of(of, r);
        spans[r] = (stage_span){0};
        left += schedules[r] ? 1 : 1000;
    }
    for (bool moves = left == of->p; moves;) {
        moves = false;
        for (uint32_t r = 0; r < of->p; r++)
            while (next[r] < schedules[r]->num_passes &&
                   step(&all, schedules[r], r, &next[r], &spans[r]))
                moves = true;
    }
    for (uint32_t r = 0; r < of->p; r++) {
        if (schedules[r] && next[r] < schedules[r]->num_passes)
            psti_test_fail(__FILE__, __LINE__, "kind %d p %u m %u: rank %u waits for ever at %llu",
                           of->kind, of->p, of->m, r, (unsigned long long)next[r]);
        longest = spans[r].end > longest ? spans[r].end : longest;
        pst_schedule_destroy(schedules[r]);
    }
    free(all.forward);
    free(all.back);
    return longest;
}

#endif
