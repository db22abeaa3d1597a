/* A deadline is asked for in every pass over all tensors. The clock is pretended: it counts the questions. */
#include "host/plan/plan.h"
#include "kernels/core/mix.h"
#include "tests/harness.h"

#include <stdlib.h>

enum { STRIDE = 4096, FEW = 10 * STRIDE, MANY = 2 * FEW };

static bool count(void *num)
{
    (*(uint64_t *)num)++;
    return false;
}

/* Tensors in no order that hang together, with sizes that have a divisor. */
static pst_plan_problem make(uint64_t n)
{
    pst_plan_problem problem = PST_PLAN_PROBLEM_INIT;
    pst_plan_tensor *tensors = calloc(n, sizeof(*tensors));
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t random = psti_mix(i);
        tensors[i] = (pst_plan_tensor){.bytes = 1024 * (1 + random % 7),
                                       .begin = (random >> 8) % FEW,
                                       .pin = PST_PLAN_FREE,
                                       .block = PST_PLAN_NO_BLOCK};
        tensors[i].end = tensors[i].begin + 1 + (random >> 32) % 50;
    }
    problem.tensors = tensors;
    problem.num_tensors = n;
    return problem;
}

static void plan_items(uint64_t n, uint64_t *asked)
{
    const pst_plan_problem problem = make(n);
    psti_limits limits = {.is_over = count, .user = asked};
    psti_items items;
    CHECK_OK(psti_items_of_problem(&problem, true, &limits, &items));
    psti_items_free(&items);
    free((void *)problem.tensors);
}

static void plan_first(uint64_t n, uint64_t *asked)
{
    const pst_plan_problem problem = make(n);
    uint64_t *offsets = calloc(n, sizeof(*offsets));
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    pst_plan plan;
    config.max_steps = 1;
    config.is_over = count;
    config.user = asked;
    CHECK_OK(pst_plan_run(&problem, &config, offsets, &plan));
    free(offsets);
    free((void *)problem.tensors);
}

/* Questions for every 4,096 tensors. */
static double per_stride(void (*run)(uint64_t n, uint64_t *asked))
{
    uint64_t few = 0;
    uint64_t many = 0;
    run(FEW, &few);
    run(MANY, &many);
    const uint64_t strides = (MANY - FEW) / STRIDE;
    return (double)(many - few) / (double)strides;
}

/* As often as there are passes; those over slots count for less, since there are fewer. The first plan
 * has 18 of its own, and is asked for 16 times while it places 4,096. */
PST_TEST(PlanLimits, AskedInEveryPass)
{
    const double items = per_stride(plan_items);
    const double first = per_stride(plan_first);
    CHECK_MSG(items > 18.8, "asked %.2f times for 4,096 items", items);
    CHECK_MSG(first - items > 33.9, "asked %.2f times for 4,096 of a first plan", first - items);
}
