/* Tensors put together again to the blocks that they were cut from. */
#include <stdlib.h>
#include <string.h>

#include "bench/plan/tilings.h"
#include "host/plan/plan.h"
#include "kernels/core/mix.h"
#include "tests/harness.h"
#include "tests/host/plan/plan_instance.h"

enum { MAX_TILES = 1000, SIDE = 1 << 20, MANY_STEPS = 1 << 21, STEPS = 1 << 16 };

typedef struct tiling {
    pst_plan_problem problem;
    pst_plan_tensor tensors[MAX_TILES];
    uint64_t offsets[MAX_TILES];
} tiling;

static void make(tiling *of, uint32_t n, uint64_t seed)
{
    static tile tiles[MAX_TILES];
    of->problem = (pst_plan_problem)PST_PLAN_PROBLEM_INIT;
    of->problem.num_tensors = tilings_make(n, SIDE, SIDE, seed, tiles);
    of->problem.tensors = of->tensors;
    of->problem.align = 1;
    for (uint32_t i = 0; i < of->problem.num_tensors; i++)
        of->tensors[i] = (pst_plan_tensor){.bytes = tiles[i].top - tiles[i].bottom,
                                           .begin = tiles[i].begin,
                                           .end = tiles[i].end,
                                           .pin = PST_PLAN_FREE,
                                           .block = PST_PLAN_NO_BLOCK};
}

static void run_and_check(tiling *of, uint64_t max_steps, pst_plan *plan)
{
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    pst_plan_fault fault;
    uint64_t peak;
    config.max_steps = max_steps;
    CHECK_OK(pst_plan_run(&of->problem, &config, of->offsets, plan));
    CHECK_OK(pst_plan_check(&of->problem, of->offsets, &fault, &peak));
    CHECK_EQ(fault.kind, PST_PLAN_RIGHT);
    CHECK_EQ(peak, plan->peak);
}

static tiling current;

PST_TEST(PlanMerge, SolvesTilingsOf300)
{
    const uint32_t num = psti_test_cases(20);
    for (uint64_t seed = 0; seed < num; seed++) {
        make(&current, 300, seed);
        pst_plan plan = {.peak = 0};
        run_and_check(&current, MANY_STEPS, &plan);
        CHECK_EQ(plan.peak, SIDE);
    }
}

/* Seed 0 only if the order of merging changes; seeds 18 and 38 of 40 are never met, only neared. */
PST_TEST(PlanMerge, SolvesNearlyAllTilingsOf1000)
{
    const uint32_t num = psti_test_cases(40);
    uint32_t met = 0;
    for (uint64_t seed = 0; seed < num; seed++) {
        make(&current, 1000, seed);
        pst_plan plan = {.peak = 0};
        run_and_check(&current, MANY_STEPS, &plan);
        met += plan.peak == SIDE;
        CHECK_MSG(plan.peak <= SIDE + SIDE / 50, "seed %d: peak %llu", (int)seed,
                  (unsigned long long)plan.peak);
        CHECK(seed != 0 || plan.peak == SIDE);
    }
    CHECK_MSG(met * 4 >= num * 3, "%u of %u", met, num);
}

/* Over some seeds: MiniMalloc's instance has a plan at most so many percent above the bound. */
static void plan_instance(char letter, uint32_t num_seeds, uint64_t steps, uint64_t percent)
{
    pst_plan_tensor *tensors;
    pst_plan_problem problem = PST_PLAN_PROBLEM_INIT;
    problem.num_tensors = instance_read_all((char[]){letter, 0}, &tensors);
    problem.tensors = tensors;
    problem.align = 1;
    for (uint64_t seed = 0; seed < num_seeds; seed++) {
        pst_plan_config config = PST_PLAN_CONFIG_INIT;
        pst_plan plan = {.peak = 0};
        config.seed = seed;
        config.max_steps = steps;
        CHECK_OK(pst_plan_run(&problem, &config, current.offsets, &plan));
        CHECK_MSG(plan.peak * 100 <= plan.lower_bound * (100 + percent), "%c, seed %d: peak %llu",
                  letter, (int)seed, (unsigned long long)plan.peak);
    }
    free(tensors);
}

/* Also where half as many blocks as tensors are left. The whole takes more steps. */
PST_TEST(PlanMerge, ProvesMiniMallocsInstances)
{
    for (const char *letter = "DEGH"; *letter != 0; letter++)
        plan_instance(*letter, psti_test_cases(20), 1 << 17, 0);
}

/* The blocks of J are not placed at the bound so soon, but near it; no order comes below 20 %. */
PST_TEST(PlanMerge, ComesNearBeforeTheOtherTries)
{
    plan_instance('J', psti_test_cases(10), 200000, 12);
}

static psti_limits some_limits(void)
{
    return (psti_limits){.steps_left = MANY_STEPS, .memory_left = 64u << 20, .num_threads = 1};
}

enum { NO_PEAK = SIDE * 2 };

/* The merged search alone. NO_PEAK: it found nothing. */
static uint64_t peak_merged(const psti_items *items, psti_best *best)
{
    psti_limits limits = some_limits();
    best->peak = NO_PEAK;
    return psti_search_merged(items, items->bound, STEPS, &limits, best) ? best->peak : 0;
}

PST_TEST(PlanMerge, LeavesPinsReservedRangesAndWhatIsNotMerged)
{
    static uint64_t address[MAX_TILES];
    psti_best best = {.address = address};
    psti_items items;
    make(&current, 100, 1);
    CHECK_OK(psti_items_of_problem(&current.problem, true, NULL, &items));
    CHECK_EQ(peak_merged(&items, &best), items.bound);
    psti_items_free(&items);
    current.tensors[7].pin = 0;
    CHECK_OK(psti_items_of_problem(&current.problem, true, NULL, &items));
    CHECK_EQ(peak_merged(&items, &best), NO_PEAK);
    psti_items_free(&items);
    current.tensors[7].pin = PST_PLAN_FREE;
    const pst_plan_range reserved = {SIDE, SIDE + 1};
    current.problem.reserved = &reserved;
    current.problem.num_reserved = 1;
    CHECK_OK(psti_items_of_problem(&current.problem, true, NULL, &items));
    CHECK_EQ(peak_merged(&items, &best), NO_PEAK);
    psti_items_free(&items);
    make(&current, 100, 1);
    uint64_t state = 5;
    for (uint32_t i = 0; i < 100; i++)
        current.tensors[i].bytes = 1 + psti_mix_next(&state) % SIDE;
    CHECK_OK(psti_items_of_problem(&current.problem, true, NULL, &items));
    CHECK_EQ(peak_merged(&items, &best), NO_PEAK);
    psti_items_free(&items);
}

PST_TEST(PlanMerge, AllocationsMayFail)
{
    static uint64_t address[MAX_TILES];
    psti_best best = {.address = address};
    psti_items items;
    make(&current, 100, 1);
    CHECK_OK(psti_items_of_problem(&current.problem, true, NULL, &items));
    bool had_memory = false;
    long n = 0;
    for (; !had_memory && n < 100; n++) {
        psti_limits limits = some_limits();
        best.peak = NO_PEAK;
        psti_fail_allocation_after(n);
        had_memory = psti_search_merged(&items, items.bound, STEPS, &limits, &best);
        psti_fail_allocation_after(-1);
        CHECK_EQ(best.peak == items.bound, had_memory);
    }
    CHECK(had_memory && n > 9);
    psti_items_free(&items);
}
