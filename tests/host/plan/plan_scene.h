/* Problems for the tests of the planner: small random ones, and an oracle that tries every
 * placement. */
#ifndef PAGESTASH_TESTS_PLAN_SCENE_H
#define PAGESTASH_TESTS_PLAN_SCENE_H

#include "host/plan/plan.h"
#include "kernels/core/mix.h"

enum { SCENE_MAX = 512, SCENE_STREAMS = 3 };

typedef struct scene {
    pst_plan_problem problem;
    pst_plan_tensor tensors[SCENE_MAX];
    uint64_t releases[SCENE_MAX * SCENE_STREAMS];
    pst_plan_range reserved[4];
    uint64_t offsets[SCENE_MAX];
    pst_plan plan;
} scene;

static inline uint64_t scene_random(uint64_t *state, uint64_t below)
{
    *state = psti_mix(*state);
    return (*state >> 16) % below;
}

/* n tensors of sizes 1..max_bytes that live within [0, instants); alignment 1. */
static inline void scene_make(scene *of, uint64_t seed, uint32_t n, uint32_t instants,
                              uint32_t max_bytes)
{
    *of = (scene){.problem = PST_PLAN_PROBLEM_INIT};
    uint64_t state = psti_mix(seed + 1);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t begin = scene_random(&state, instants);
        const uint64_t end = begin + 1 + scene_random(&state, instants - begin);
        of->tensors[i] = (pst_plan_tensor){.bytes = 1 + scene_random(&state, max_bytes),
                                           .begin = begin,
                                           .end = end,
                                           .pin = PST_PLAN_FREE,
                                           .block = PST_PLAN_NO_BLOCK};
    }
    of->problem.tensors = of->tensors;
    of->problem.num_tensors = n;
    of->problem.align = 1;
}

/* 16 tensors whose live size is 9 and whose optimum is 10. */
static inline void scene_tight(scene *of)
{
    static const uint8_t tensors[16][3] = {
        {7, 3, 4}, {7, 5, 6}, {1, 0, 1}, {3, 0, 1}, {1, 2, 5}, {8, 2, 3}, {6, 4, 5}, {1, 3, 6},
        {1, 1, 2}, {8, 6, 9}, {1, 0, 1}, {1, 0, 1}, {1, 1, 2}, {3, 0, 1}, {1, 4, 9}, {7, 1, 2},
    };
    *of = (scene){.problem = PST_PLAN_PROBLEM_INIT};
    for (uint32_t i = 0; i < 16; i++)
        of->tensors[i] = (pst_plan_tensor){.bytes = tensors[i][0],
                                           .begin = tensors[i][1],
                                           .end = tensors[i][2],
                                           .pin = PST_PLAN_FREE,
                                           .block = PST_PLAN_NO_BLOCK};
    of->problem.tensors = of->tensors;
    of->problem.num_tensors = 16;
    of->problem.align = 1;
}

/* Gives the tensors streams, and releases that may come later than the end. */
static inline void scene_add_streams(scene *of, uint64_t seed, uint32_t instants)
{
    uint64_t state = psti_mix(seed + 77);
    of->problem.num_streams = SCENE_STREAMS;
    of->problem.releases = of->releases;
    for (uint64_t i = 0; i < of->problem.num_tensors; i++) {
        of->tensors[i].stream = (uint32_t)scene_random(&state, SCENE_STREAMS);
        for (uint32_t r = 0; r < SCENE_STREAMS; r++)
            of->releases[i * SCENE_STREAMS + r] =
                of->tensors[i].end +
                (r == of->tensors[i].stream ? 0 : scene_random(&state, instants / 2 + 1));
    }
}

static inline uint64_t scene_release(const scene *of, uint64_t i, uint32_t stream)
{
    return of->problem.num_streams > 1 ? of->releases[i * of->problem.num_streams + stream]
                                       : of->tensors[i].end;
}

/* Whether two tensors may not share an address. */
static inline bool scene_conflict(const scene *of, uint64_t a, uint64_t b)
{
    const pst_plan_tensor *x = &of->tensors[a];
    const pst_plan_tensor *y = &of->tensors[b];
    if (x->begin <= y->begin)
        return y->begin < scene_release(of, a, y->stream);
    return x->begin < scene_release(of, b, x->stream);
}

static inline bool scene_may_stand(const scene *of, uint64_t i, uint64_t at)
{
    const uint64_t end = at + of->tensors[i].bytes;
    for (uint32_t r = 0; r < of->problem.num_reserved; r++)
        if (at < of->reserved[r].end && of->reserved[r].begin < end)
            return false;
    return of->tensors[i].pin == PST_PLAN_FREE || of->tensors[i].pin == at;
}

/* Whether tensors i.. can be placed with all tops at most `top`, those before i being placed. */
static inline bool scene_place(scene *of, uint64_t i, uint64_t top)
{
    if (i == of->problem.num_tensors)
        return true;
    for (uint64_t at = 0; at + of->tensors[i].bytes <= top; at++) {
        bool fits = scene_may_stand(of, i, at);
        for (uint64_t k = 0; k < i && fits; k++)
            fits = !scene_conflict(of, i, k) || of->offsets[k] + of->tensors[k].bytes <= at ||
                   at + of->tensors[i].bytes <= of->offsets[k];
        of->offsets[i] = at;
        if (fits && scene_place(of, i + 1, top))
            return true;
    }
    return false;
}

/* The lowest possible top, for alignment 1. */
static inline uint64_t scene_optimum(scene *of)
{
    uint64_t top = 0;
    while (!scene_place(of, 0, top))
        top++;
    return top;
}

#endif
