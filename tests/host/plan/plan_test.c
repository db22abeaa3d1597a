/* pst_plan_run against an oracle that tries every placement, and what it refuses. */
#include "tests/harness.h"
#include "tests/host/plan/plan_scene.h"

static pst_status run(scene *of, const pst_plan_config *config)
{
    return pst_plan_run(&of->problem, config, of->offsets, &of->plan);
}

/* Runs, and passes the plan through the judge. */
static void run_and_check(scene *of, const pst_plan_config *config)
{
    pst_plan_fault fault;
    uint64_t peak;
    CHECK_OK(run(of, config));
    CHECK(of->plan.status != PST_PLAN_IMPOSSIBLE);
    CHECK_OK(pst_plan_check(&of->problem, of->offsets, &fault, &peak));
    CHECK_EQ(fault.kind, PST_PLAN_RIGHT);
    CHECK_EQ(peak, of->plan.peak);
    CHECK(of->plan.lower_bound >= of->plan.most_live_bytes &&
          of->plan.mode_bound >= of->plan.lower_bound);
    CHECK(of->plan.peak >= of->plan.mode_bound);
    CHECK_EQ(of->plan.status == PST_PLAN_OPTIMAL, of->plan.peak == of->plan.mode_bound);
}

static void compare_with_brute_force(uint64_t seed, uint32_t n, bool has_pin, bool has_reserved)
{
    scene of;
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    scene_make(&of, seed, n, 5, 4);
    of.problem.reserved = of.reserved;
    of.reserved[0] = (pst_plan_range){2, 3};
    of.problem.num_reserved = has_reserved;
    if (has_pin)
        of.tensors[0].pin = has_reserved ? 3 : seed % 4;
    const uint64_t optimum = scene_optimum(&of);
    run_and_check(&of, &config);
    CHECK_MSG(of.plan.peak == optimum && of.plan.status == PST_PLAN_OPTIMAL,
              "seed %llu, %u tensors: peak %llu %s, optimum %llu", (unsigned long long)seed, n,
              (unsigned long long)of.plan.peak, pst_plan_status_name(of.plan.status),
              (unsigned long long)optimum);
    if (optimum < 2)
        return;
    of.problem.capacity = optimum;
    run_and_check(&of, &config);
    CHECK_EQ(of.plan.peak, optimum);
    of.problem.capacity = optimum - 1;
    CHECK_OK(run(&of, &config));
    CHECK_EQ(of.plan.status, PST_PLAN_IMPOSSIBLE);
}

PST_TEST(Plan, EqualsBruteForce)
{
    for (uint64_t seed = 0; seed < 3000 && !psti_test_failed(); seed++)
        compare_with_brute_force(seed, (uint32_t)(seed % 7), false, false);
}

/* Sizes far apart, so that large ones need what small ones leave: only the order that takes the fullest
 * instant first, then sizes, proves these without a search. */
PST_TEST(Plan, TheFullestInstantFirstIsAnOrder)
{
    enum { N = 50 };
    for (uint64_t seed = 14; seed <= 15; seed++) {
        scene of;
        scene_make(&of, 0, N, N, 1);
        uint64_t state = seed;
        for (uint32_t i = 0; i < N; i++) {
            pst_plan_tensor *t = &of.tensors[i];
            t->begin = psti_mix_next(&state) % N;
            t->end = t->begin + 1 + psti_mix_next(&state) % (i % 4 != 0 ? N - t->begin : 8);
            t->end = t->end < N ? t->end : N;
            t->bytes = (UINT64_C(1) << psti_mix_next(&state) % 16) + 1;
        }
        pst_plan_config config = PST_PLAN_CONFIG_INIT;
        config.max_steps = UINT64_C(1) * N * PSTI_NUM_PASSES;
        run_and_check(&of, &config);
        CHECK_EQ(of.plan.status, PST_PLAN_OPTIMAL);
        CHECK_EQ(of.plan.stage, PST_STAGE_PORTFOLIO);
    }
}

PST_TEST(Plan, EqualsBruteForceWithPinsAndReservedRanges)
{
    for (uint64_t seed = 0; seed < 1500 && !psti_test_failed(); seed++)
        compare_with_brute_force(seed, 1 + (uint32_t)(seed % 5), seed % 3 != 0, seed % 2 == 0);
}

PST_TEST(Plan, SearchRaisesTheBound)
{
    scene of;
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    scene_tight(&of);
    run_and_check(&of, &config);
    CHECK_EQ(of.plan.status, PST_PLAN_OPTIMAL);
    CHECK_EQ(of.plan.most_live_bytes, 9);
    CHECK_EQ(of.plan.lower_bound, 10);
    CHECK_EQ(of.plan.peak, 10);
    of.problem.capacity = 9;
    CHECK_OK(run(&of, &config));
    CHECK_EQ(of.plan.status, PST_PLAN_IMPOSSIBLE);
    CHECK_EQ(of.plan.stage, PST_STAGE_SEARCH);
    config.max_steps = 17; /* no time for a proof */
    CHECK_OK(run(&of, &config));
    CHECK_EQ(of.plan.status, PST_PLAN_FEASIBLE);
    CHECK(of.plan.peak > 9);
}

PST_TEST(Plan, OfSeveralStreams)
{
    uint32_t optimal = 0;
    for (uint64_t seed = 0; seed < 1000 && !psti_test_failed(); seed++) {
        scene of;
        const pst_plan_config config = PST_PLAN_CONFIG_INIT;
        scene_make(&of, seed, 5, 6, 3);
        scene_add_streams(&of, seed, 6);
        const uint64_t optimum = scene_optimum(&of);
        run_and_check(&of, &config);
        CHECK(of.plan.lower_bound <= optimum && of.plan.peak >= optimum);
        optimal += of.plan.peak == optimum;
    }
    CHECK_MSG(optimal > 900, "only %u of 1000 are optimal", optimal);
}

/* ---- what must not change the answer */

static uint64_t peak_of(scene *of)
{
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    if (run(of, &config) != PST_OK || of->plan.status != PST_PLAN_OPTIMAL)
        psti_test_fail(__FILE__, __LINE__, "not optimal: %s", pst_last_message());
    return of->plan.peak;
}

PST_TEST(Plan, Invariances)
{
    enum { N = 14, INSTANTS = 12 };
    for (uint64_t seed = 0; seed < 150 && !psti_test_failed(); seed++) {
        scene of;
        scene_make(&of, seed, N, INSTANTS, 7);
        const uint64_t peak = peak_of(&of);
        CHECK(peak >= of.plan.most_live_bytes);

        scene other;
        scene_make(&other, seed, N, INSTANTS, 7); /* renamed: the order of the tensors */
        for (uint32_t i = 0; i < N; i++)
            other.tensors[i] = of.tensors[(i * 5 + 3) % N];
        CHECK_EQ(peak_of(&other), peak);

        for (uint32_t i = 0; i < N; i++) { /* instants relabelled, their order kept */
            other.tensors[i] = of.tensors[i];
            other.tensors[i].begin = of.tensors[i].begin * of.tensors[i].begin * 1000 + 17;
            other.tensors[i].end = of.tensors[i].end * of.tensors[i].end * 1000 + 17;
        }
        CHECK_EQ(peak_of(&other), peak);

        for (uint32_t i = 0; i < N; i++) { /* mirrored in time */
            other.tensors[i].begin = INSTANTS - of.tensors[i].end;
            other.tensors[i].end = INSTANTS - of.tensors[i].begin;
        }
        CHECK_EQ(peak_of(&other), peak);

        for (uint32_t i = 0; i < N; i++) /* scaled */
            other.tensors[i].bytes = of.tensors[i].bytes * 1000003;
        CHECK_EQ(peak_of(&other), peak * 1000003);

        other.problem.num_tensors = N - 1; /* one tensor less */
        CHECK(peak_of(&other) <= peak * 1000003);
    }
}

PST_TEST(Plan, DeterministicForASeed)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        scene a;
        scene b;
        pst_plan_config config = PST_PLAN_CONFIG_INIT;
        config.seed = seed;
        config.max_steps = 20000;
        scene_make(&a, seed, 60, 40, 1000);
        scene_make(&b, seed, 60, 40, 1000);
        run_and_check(&a, &config);
        run_and_check(&b, &config);
        CHECK_EQ(memcmp(a.offsets, b.offsets, sizeof(a.offsets)), 0);
        CHECK_EQ(a.plan.steps, b.plan.steps);
        CHECK_EQ(a.plan.peak, b.plan.peak);
        config.num_threads = 3;
        config.max_steps = 0;
        run_and_check(&b, &config);
        CHECK_EQ(b.plan.status, PST_PLAN_OPTIMAL);
    }
}

/* ---- limits */

static bool at_once(void *user)
{
    (*(uint32_t *)user)++;
    return true;
}

PST_TEST(Plan, LimitsLeaveAPlan)
{
    scene of;
    uint32_t asked = 0;
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    scene_make(&of, 5, 400, 200, 5000);
    config.max_steps = 1;
    run_and_check(&of, &config);
    CHECK(of.plan.out_of_steps && !of.plan.is_over && of.plan.end == PST_PLAN_END_STEPS);
    config.max_steps = 0;
    config.is_over = at_once;
    config.user = &asked;
    run_and_check(&of, &config);
    CHECK(asked > 0 && of.plan.is_over && !of.plan.out_of_steps);
}

/* True from its n-th call on. */
typedef struct countdown {
    uint64_t left, asked_late;
} countdown;

static bool is_late(void *user)
{
    countdown *of = user;
    of->asked_late += of->left == 0;
    of->left -= of->left > 0;
    return of->left == 0;
}

/* Whenever the time is over there is a right plan, which says so, and little is done any more. */
static void end_at_every_call(scene *of)
{
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    config.is_over = is_late;
    for (uint64_t n = 1; n < 400 && (n == 1 || of->plan.is_over); n += 1 + n / 4) {
        countdown left = {n, 0};
        config.user = &left;
        run_and_check(of, &config);
        CHECK_EQ(of->plan.is_over, of->plan.end == PST_PLAN_END_OVER);
        CHECK(left.left == 0 || of->plan.status == PST_PLAN_OPTIMAL);
        CHECK_MSG(left.asked_late < 40, "asked %llu times after the end",
                  (unsigned long long)left.asked_late);
    }
}

PST_TEST(Plan, MayEndAtAnyInstant)
{
    for (uint64_t seed = 0; seed < 60 && !psti_test_failed(); seed++) {
        scene of;
        scene_make(&of, seed, 40, 60, 100);
        for (uint32_t i = 0; i < 20; i++) /* a part like the others, and one between them */
            of.tensors[20 + i].begin += 100, of.tensors[20 + i].end += 100;
        if (seed % 3 == 1) {
            of.tensors[7].pin = 300;
            of.problem.reserved = of.reserved;
            of.problem.num_reserved = 1;
            of.reserved[0] = (pst_plan_range){20, 30};
        }
        end_at_every_call(&of);
    }
}

PST_TEST(Plan, MayEndAtAnyInstantOfSeveralStreams)
{
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    config.is_over = is_late;
    for (uint64_t seed = 0; seed < 12 && !psti_test_failed(); seed++) {
        scene of;
        scene_make(&of, seed, 40, 60, 100);
        scene_add_streams(&of, seed, 60);
        for (uint64_t n = 1; n < 400 && !psti_test_failed(); n += 1 + n / 3) {
            countdown left = {n, 0};
            config.user = &left;
            run_and_check(&of, &config);
            CHECK(of.plan.end == PST_PLAN_END_OVER || of.plan.end == PST_PLAN_END_STAGES ||
                  of.plan.end == PST_PLAN_END_PROVED);
        }
    }
}

/* Reserved ranges above the optimum, near and far, must not decide anything. */
PST_TEST(Plan, ReservedRangesAboveTheOptimum)
{
    static const uint8_t tensors[3][3] = {{4, 6, 15}, {3, 3, 15}, {3, 9, 15}};
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    scene of;
    scene_make(&of, 0, 3, 1, 1);
    for (uint32_t i = 0; i < 3; i++)
        of.tensors[i] = (pst_plan_tensor){
            tensors[i][0], tensors[i][1], tensors[i][2], PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    of.problem.reserved = of.reserved;
    of.problem.num_reserved = 2;
    of.reserved[0] = (pst_plan_range){6, 7};
    of.reserved[1] = (pst_plan_range){13, 15};
    run_and_check(&of, &config);
    CHECK_EQ(of.plan.peak, 11);
    CHECK_EQ(of.plan.status, PST_PLAN_OPTIMAL);
    of.problem.capacity = 12;
    run_and_check(&of, &config);
    CHECK(of.plan.peak <= 12);
    for (uint64_t seed = 0; seed < 600 && !psti_test_failed(); seed++) {
        uint64_t state = seed;
        scene_make(&of, seed, 4, 5, 4);
        of.problem.reserved = of.reserved;
        of.problem.num_reserved = 2;
        for (uint32_t r = 0; r < 2; r++) {
            const uint64_t at = scene_random(&state, 14);
            of.reserved[r] = (pst_plan_range){at, at + 1 + scene_random(&state, 3)};
        }
        const uint64_t optimum = scene_optimum(&of);
        run_and_check(&of, &config);
        CHECK_MSG(of.plan.peak == optimum && of.plan.status == PST_PLAN_OPTIMAL, "seed %llu",
                  (unsigned long long)seed);
    }
}

PST_TEST(Plan, SearchWithoutMemory)
{
    scene of;
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    scene_tight(&of);
    config.max_memory_bytes = 1;
    run_and_check(&of, &config);
    CHECK_EQ(of.plan.status, PST_PLAN_FEASIBLE);
    CHECK(of.plan.out_of_memory && !of.plan.out_of_steps && !of.plan.is_over);
    CHECK_EQ(of.plan.end, PST_PLAN_END_MEMORY);
    for (uint64_t bytes = 500; of.plan.status == PST_PLAN_FEASIBLE; bytes += 500) {
        CHECK(bytes < 1 << 20);
        config.max_memory_bytes = bytes;
        run_and_check(&of, &config);
    }
    CHECK_EQ(of.plan.peak, 10);
}

/* ---- bounds of the values */

PST_TEST(Plan, LargeSizes)
{
    scene of;
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    const uint64_t sizes[] = {(UINT64_C(1) << 31) - 1, UINT64_C(1) << 31, UINT64_C(1) << 32,
                              (UINT64_C(1) << 32) + 1, UINT64_C(1) << 60};
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        scene_make(&of, k, 3, 6, 1);
        for (uint32_t i = 0; i < 3; i++)
            of.tensors[i] =
                (pst_plan_tensor){sizes[k], i, i + 2, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
        run_and_check(&of, &config);
        CHECK_EQ(of.plan.peak, 2 * sizes[k]);
    }
    scene_make(&of, 0, 1, 1, 1); /* the largest and the latest */
    of.tensors[0] = (pst_plan_tensor){
        PST_PLAN_MAX_BYTES, UINT64_MAX - 1, UINT64_MAX, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    run_and_check(&of, &config);
    CHECK_EQ(of.plan.peak, PST_PLAN_MAX_BYTES);
    of.problem.align = 512;
    CHECK_OK(run(&of, &config));
    of.problem.num_tensors = 0;
    CHECK_OK(pst_plan_run(&of.problem, &config, NULL, &of.plan));
    CHECK_EQ(of.plan.peak, 0);
    CHECK_EQ(of.plan.status, PST_PLAN_OPTIMAL);
}

PST_TEST(Plan, CapacityBelowTheBound)
{
    scene of;
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    scene_make(&of, 0, 3, 1, 1);
    of.tensors[0] = (pst_plan_tensor){1024, 0, 10, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    of.tensors[1] = (pst_plan_tensor){512, 5, 10, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    of.tensors[2] = (pst_plan_tensor){512, 7, 8, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    of.problem.align = 512;
    of.problem.capacity = 2047;
    CHECK_OK(run(&of, &config));
    CHECK_EQ(of.plan.status, PST_PLAN_IMPOSSIBLE);
    CHECK_EQ(of.plan.stage, PST_STAGE_BOUND);
    CHECK_EQ(of.plan.bound_instant, 7);
    CHECK_EQ(of.plan.most_live_bytes, 2048);
    CHECK_EQ(of.plan.lower_bound, 2048);
    CHECK_EQ(of.plan.peak, 0);
    of.problem.capacity = 2048;
    run_and_check(&of, &config);
    CHECK_EQ(of.plan.peak, 2048);
}

PST_TEST(Plan, NothingIsAboveTheLastAddress)
{
    scene of;
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    scene_make(&of, 0, 2, 1, 1);
    for (uint32_t i = 0; i < 2; i++)
        of.tensors[i] =
            (pst_plan_tensor){UINT64_C(1) << 61, i, i + 2, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    run_and_check(&of, &config);
    CHECK_EQ(of.plan.peak, PST_PLAN_MAX_BYTES);
    of.problem.reserved = of.reserved;
    of.problem.num_reserved = 1;
    of.reserved[0] = (pst_plan_range){0, UINT64_C(1) << 61};
    CHECK_OK(run(&of, &config));
    CHECK_EQ(of.plan.status, PST_PLAN_IMPOSSIBLE);
}

PST_TEST(Plan, PinsThatOverlapAreRefused)
{
    scene of;
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    scene_make(&of, 0, 2, 1, 1);
    of.tensors[0] = (pst_plan_tensor){10, 0, 2, 0, 0, PST_PLAN_NO_BLOCK};
    of.tensors[1] = (pst_plan_tensor){10, 1, 3, 9, 0, PST_PLAN_NO_BLOCK};
    CHECK_STATUS(run(&of, &config), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "tensor 1 is pinned at 9") != NULL);
    uint32_t asked = 0;
    pst_plan_config late = PST_PLAN_CONFIG_INIT;
    late.is_over = at_once;
    late.user = &asked;
    for (int mode = 0; mode < 2; mode++) {
        late.mode = (pst_plan_mode)mode;
        CHECK_STATUS(run(&of, &late), PST_E_INVALID);
    }
    of.tensors[1].pin = 10;
    run_and_check(&of, &config);
    of.problem.reserved = of.reserved;
    of.problem.num_reserved = 1;
    of.reserved[0] = (pst_plan_range){19, 21};
    CHECK_STATUS(run(&of, &config), PST_E_INVALID);
}

PST_TEST(Plan, RefusesBadConfigs)
{
    scene of;
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    scene_make(&of, 0, 2, 4, 4);
    config.num_threads = 65;
    CHECK_STATUS(run(&of, &config), PST_E_INVALID);
    config.num_threads = 0;
    config.mode = (pst_plan_mode)2;
    CHECK_STATUS(run(&of, &config), PST_E_INVALID);
    config.mode = PST_PLAN_FLAT;
    CHECK_STATUS(pst_plan_run(&of.problem, &config, NULL, &of.plan), PST_E_INVALID);
    CHECK_STATUS(pst_plan_run(&of.problem, &config, of.offsets, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_plan_run(&of.problem, NULL, of.offsets, &of.plan), PST_E_INVALID);
    config.struct_size = 0;
    CHECK_STATUS(run(&of, &config), PST_E_INVALID);
}

PST_TEST(Plan, EveryAllocationMayFail)
{
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    scene of;
    scene_tight(&of); /* needs the search */
    of.tensors[0].pin = 0;
    long successes = 0;
    pst_status status = PST_E_NOMEM;
    for (; status == PST_E_NOMEM; successes++) {
        of.plan.peak = 4711;
        psti_fail_allocation_after(successes);
        status = run(&of, &config);
        psti_fail_allocation_after(-1);
        CHECK(status == PST_OK || of.plan.peak == 4711);
    }
    CHECK_OK(status);
    CHECK(successes > 20);
}

PST_TEST(Plan, Names)
{
    CHECK_STR(pst_plan_status_name(PST_PLAN_OPTIMAL), "optimal");
    CHECK_STR(pst_plan_status_name(PST_PLAN_IMPOSSIBLE), "impossible");
    CHECK_STR(pst_plan_status_name((pst_plan_status)3), "unknown");
    CHECK_STR(pst_plan_stage_name(PST_STAGE_SEARCH), "search");
    CHECK_STR(pst_plan_stage_name(PST_NUM_STAGES), "unknown");
    CHECK_STR(pst_plan_end_name(PST_PLAN_END_STAGES), "stages");
    CHECK_STR(pst_plan_end_name(PST_NUM_PLAN_ENDS), "unknown");
}
