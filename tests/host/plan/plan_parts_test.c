/* Parts that share no instant: found, planned as if they were alone, and once where they are the same. */
#include "tests/harness.h"
#include "tests/host/plan/plan_instance.h"
#include "tests/host/plan/plan_scene.h"

#include <stdlib.h>

/* Plans, and passes the plan through the judge. */
static void run_and_check(scene *of, const pst_plan_config *config)
{
    pst_plan_fault fault;
    uint64_t peak;
    CHECK_OK(pst_plan_run(&of->problem, config, of->offsets, &of->plan));
    CHECK_OK(pst_plan_check(&of->problem, of->offsets, &fault, &peak));
    CHECK_EQ(fault.kind, PST_PLAN_RIGHT);
    CHECK_EQ(peak, of->plan.peak);
}

/* Appends the tensors of another scene, `after` instants later. */
static void append(scene *of, const scene *more, uint64_t after)
{
    const uint64_t n = of->problem.num_tensors;
    const uint32_t streams = of->problem.num_streams;
    for (uint64_t i = 0; i < more->problem.num_tensors; i++) {
        of->tensors[n + i] = more->tensors[i];
        of->tensors[n + i].begin += after;
        of->tensors[n + i].end += after;
        for (uint32_t r = 0; r < streams && streams > 1; r++)
            of->releases[(n + i) * streams + r] = more->releases[i * streams + r] + after;
    }
    of->problem.num_tensors += more->problem.num_tensors;
}

enum { PARTS = 6, SPAN = 20 };

/* Some scenes one after the other, the last three like the first three, and a tensor over all. */
static void compare_with_parts(uint64_t seed, uint64_t over_all)
{
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    scene all;
    uint64_t highest = 0;
    uint64_t most_kinds = 0;
    scene_make(&all, seed, 0, 1, 1);
    for (uint32_t p = 0; p < PARTS; p++) {
        scene part;
        scene_make(&part, seed * PARTS + p % 3, 4, 5, 4);
        const uint64_t optimum = scene_optimum(&part);
        highest = optimum > highest ? optimum : highest;
        run_and_check(&part, &config);
        most_kinds += p < 3 ? part.plan.num_kinds : 0;
        append(&all, &part, (uint64_t)p * SPAN);
    }
    if (over_all > 0) {
        all.tensors[all.problem.num_tensors++] = (pst_plan_tensor){
            over_all, 0, (uint64_t)PARTS * SPAN, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    }
    run_and_check(&all, &config);
    CHECK_MSG(all.plan.peak == highest + over_all && all.plan.status == PST_PLAN_OPTIMAL,
              "seed %llu: peak %llu, not %llu", (unsigned long long)seed,
              (unsigned long long)all.plan.peak, (unsigned long long)(highest + over_all));
    CHECK(all.plan.num_parts >= PARTS && all.plan.num_kinds <= most_kinds);
    CHECK(all.plan.num_periods >= 2 && all.plan.num_periods * all.plan.period_tensors <= 24);
}

PST_TEST(PlanParts, TheHighestDecides)
{
    for (uint64_t seed = 0; seed < 400 && !psti_test_failed(); seed++)
        compare_with_parts(seed, seed % 3);
}

PST_TEST(PlanParts, OfSeveralStreams)
{
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    uint32_t num_doubled = 0;
    for (uint64_t seed = 0; seed < 400 && !psti_test_failed(); seed++) {
        scene one;
        scene two;
        scene_make(&one, seed, 9, 12, 5);
        scene_add_streams(&one, seed, 12);
        two = one;
        two.problem.tensors = two.tensors;
        two.problem.releases = two.releases;
        append(&two, &one, 40);
        run_and_check(&one, &config);
        run_and_check(&two, &config);
        CHECK(two.plan.num_parts >= 2);
        if (two.plan.num_parts < 2 * one.plan.num_parts)
            continue; /* what lived throughout does not any more */
        num_doubled++;
        CHECK_EQ(two.plan.peak, one.plan.peak);
        for (uint32_t i = 0; i < 9; i++)
            CHECK_EQ(two.offsets[i], two.offsets[9 + i]);
    }
    CHECK_MSG(num_doubled > 200, "only %u of 400", num_doubled);
}

/* Twice the same two tensors, but for the stream of the last: it may not follow where the others may. */
PST_TEST(PlanParts, AreTheSameOnTheSameStreamsOnly)
{
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    scene of;
    scene_make(&of, 1, 0, 1, 1);
    for (uint32_t p = 0; p < 2; p++) {
        const uint64_t begin = 8 * p;
        of.tensors[2 * p] =
            (pst_plan_tensor){3, begin, begin + 2, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
        of.tensors[2 * p + 1] =
            (pst_plan_tensor){3, begin + 2, begin + 4, PST_PLAN_FREE, p, PST_PLAN_NO_BLOCK};
        const uint64_t releases[] = {begin + 2, begin + 4, begin + 4, begin + 4};
        memcpy(&of.releases[4 * p], releases, sizeof(releases));
    }
    of.problem.num_tensors = 4;
    of.problem.num_streams = 2;
    of.problem.releases = of.releases;
    run_and_check(&of, &config);
    CHECK_EQ(of.plan.num_parts, 2);
    CHECK_EQ(of.plan.num_kinds, 2);
    CHECK_EQ(of.offsets[0], of.offsets[1]);
    CHECK_EQ(of.plan.peak, 6);
}

/* Pins and reserved ranges hold in every part, and then nothing is moved below them. */
PST_TEST(PlanParts, WithPinsAndReservedRanges)
{
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    for (uint64_t seed = 0; seed < 400 && !psti_test_failed(); seed++) {
        scene of;
        scene more;
        scene_make(&of, seed, 3, 4, 3);
        scene_make(&more, seed + 1000, 3, 4, 3);
        append(&of, &more, 10);
        of.tensors[6] = (pst_plan_tensor){2, 0, 20, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
        of.problem.num_tensors = 7 - seed % 2;
        of.tensors[seed % 6].pin = seed % 5;
        of.problem.reserved = of.reserved;
        of.problem.num_reserved = seed % 3 == 0;
        of.reserved[0] = (pst_plan_range){9, 10};
        const uint64_t optimum = scene_optimum(&of);
        run_and_check(&of, &config);
        CHECK_MSG(of.plan.peak == optimum && of.plan.status == PST_PLAN_OPTIMAL,
                  "seed %llu: peak %llu, not %llu", (unsigned long long)seed,
                  (unsigned long long)of.plan.peak, (unsigned long long)optimum);
    }
}

/* ---- MiniMalloc's, one after the other: `steps` is what a plan cost */

static pst_plan plan_tensors(pst_plan_tensor *tensors, uint64_t num, uint64_t capacity,
                             uint64_t max_steps)
{
    pst_plan_problem problem = PST_PLAN_PROBLEM_INIT;
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    pst_plan plan = {.peak = 0};
    pst_plan_fault fault = {PST_PLAN_OVERLAP, 0, 0};
    problem.num_tensors = num;
    problem.tensors = tensors;
    problem.align = 1;
    problem.capacity = capacity;
    config.max_steps = max_steps;
    uint64_t *offsets = calloc(num + 1, sizeof(*offsets));
    if (pst_plan_run(&problem, &config, offsets, &plan) != PST_OK ||
        pst_plan_check(&problem, offsets, &fault, NULL) != PST_OK || fault.kind != PST_PLAN_RIGHT)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    free(offsets);
    free(tensors);
    return plan;
}

static pst_plan plan_instances(const char *letters, uint64_t capacity, uint64_t max_steps)
{
    pst_plan_tensor *tensors;
    const uint64_t num = instance_read_all(letters, &tensors);
    return plan_tensors(tensors, num, capacity, max_steps);
}

PST_TEST(PlanParts, CopiesCostAsMuchAsOne)
{
    static const char *const letters[][2] = {{"E", "EEEE"}, {"A", "AAAA"}, {"H", "HHHH"}};
    for (size_t k = 0; k < sizeof(letters) / sizeof(letters[0]); k++) {
        const pst_plan one = plan_instances(letters[k][0], 0, 0);
        const pst_plan four = plan_instances(letters[k][1], 0, 2 * one.steps);
        CHECK_EQ(one.status, PST_PLAN_OPTIMAL);
        CHECK_EQ(four.status, PST_PLAN_OPTIMAL);
        CHECK_EQ(four.peak, one.peak);
        CHECK_MSG(5 * four.steps <= 6 * one.steps, "%s: %llu steps, one alone %llu", letters[k][1],
                  (unsigned long long)four.steps, (unsigned long long)one.steps);
        CHECK_EQ(four.num_kinds, one.num_kinds);
        CHECK_EQ(four.num_periods, 4);
    }
}

PST_TEST(PlanParts, DifferentOnesCostTheirSum)
{
    static const char letters[] = "GACEK";
    uint64_t sum = 0;
    for (size_t k = 0; letters[k] != '\0'; k++)
        sum += plan_instances((char[]){letters[k], '\0'}, 0, 0).steps;
    const pst_plan all = plan_instances(letters, 0, 2 * sum);
    CHECK_EQ(all.status, PST_PLAN_OPTIMAL);
    CHECK_MSG(5 * all.steps <= 6 * sum, "%llu steps, the parts alone %llu",
              (unsigned long long)all.steps, (unsigned long long)sum);
    CHECK_EQ(all.num_periods, 0);
}

PST_TEST(PlanParts, ACapacityIsWhatIsAskedFor)
{
    static const struct {
        const char *letter;
        uint64_t most_steps;
    } instances[] = {{"D", 1 << 19}, {"J", 1 << 19}, {"K", 1 << 18}};
    for (size_t k = 0; k < sizeof(instances) / sizeof(instances[0]); k++) {
        const pst_plan plan = plan_instances(instances[k].letter, 1 << 20, instances[k].most_steps);
        CHECK_MSG(plan.peak <= 1 << 20, "%s: peak %llu", instances[k].letter,
                  (unsigned long long)plan.peak);
        CHECK_EQ(plan.end,
                 plan.status == PST_PLAN_OPTIMAL ? PST_PLAN_END_PROVED : PST_PLAN_END_FITS);
    }
    const pst_plan roomy = plan_instances("J", UINT64_C(1) << 22, 0);
    CHECK_EQ(roomy.end, PST_PLAN_END_FITS);
    CHECK(roomy.steps <= 410);
}

/* ---- a step that repeats */

PST_TEST(PlanParts, ARepeatedStepIsPlannedOnce)
{
    enum { STEPS = 50 };
    pst_trace_derivation derivation = PST_TRACE_DERIVATION_INIT;
    derivation.num_layers = 8;
    derivation.full = true;
    pst_plan plans[2];
    uint64_t num[2];
    for (int k = 0; k < 2; k++) {
        pst_trace *trace;
        pst_plan_config config = PST_PLAN_CONFIG_INIT;
        derivation.num_micro_batches = k == 0 ? 1 : STEPS;
        CHECK_OK(pst_trace_derive(&derivation, &trace));
        num[k] = instance_plan_trace(trace, &config, &plans[k]);
        pst_trace_destroy(trace);
        CHECK_EQ(plans[k].status, PST_PLAN_OPTIMAL);
    }
    CHECK_EQ(num[1], STEPS * num[0]);
    CHECK_EQ(plans[1].peak, plans[0].peak);
    CHECK(5 * plans[1].steps <= 6 * plans[0].steps);
    CHECK_EQ(plans[1].num_periods * plans[1].period_tensors, num[1]);
    CHECK_EQ(plans[1].num_periods, STEPS);
}

/* ---- what lasts to the end lies beneath the parts */

static pst_plan_tensor lasting(uint64_t bytes, uint64_t begin, uint64_t end)
{
    return (pst_plan_tensor){bytes, begin, end, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
}

/* Of one stream and instants that count as slots: asks the search alone, which knows no parts. */
static bool has_placement(const scene *of, uint64_t target)
{
    uint32_t begin[SCENE_MAX];
    uint32_t end[SCENE_MAX];
    uint64_t size[SCENE_MAX];
    uint64_t offsets[SCENE_MAX];
    psti_limits limits = {
        .steps_left = UINT64_C(1) << 24, .memory_left = UINT64_C(1) << 28, .num_threads = 1};
    psti_exact_problem problem = {
        .num_tensors = (uint32_t)of->problem.num_tensors, .begin = begin, .end = end, .size = size};
    for (uint32_t i = 0; i < problem.num_tensors; i++) {
        begin[i] = (uint32_t)of->tensors[i].begin;
        end[i] = (uint32_t)of->tensors[i].end;
        size[i] = of->tensors[i].bytes;
        problem.num_slots = end[i] > problem.num_slots ? end[i] : problem.num_slots;
    }
    const psti_verdict verdict = psti_exact_search(&problem, target, &limits, offsets);
    if (verdict != PSTI_FOUND && verdict != PSTI_NONE)
        psti_test_fail(__FILE__, __LINE__, "no answer");
    return verdict == PSTI_FOUND;
}

/* Three small parts in a row on two tensors that last, the first of which begins in the first part. */
static void make_lasting(scene *of, uint64_t seed)
{
    static const uint32_t nums[][3] = {{4, 2, 1}, {2, 3, 2}, {3, 2, 2}, {1, 2, 4}};
    uint64_t state = psti_mix(seed + 5);
    scene_make(of, seed, 0, 1, 1);
    for (uint32_t k = 0; k < 2; k++)
        of->tensors[k] =
            lasting(1 + scene_random(&state, 3), scene_random(&state, 5 + 8 * (uint64_t)k), 15);
    of->problem.num_tensors = 2;
    for (uint32_t p = 0; p < 3; p++) {
        scene part;
        scene_make(&part, seed * 3 + p - (p > 0 && seed % 3 == 0), nums[seed % 4][p], 5, 3);
        append(of, &part, 5 * (uint64_t)p);
    }
}

PST_TEST(PlanParts, OnWhatLasts)
{
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    const uint32_t num = psti_test_cases(400);
    uint32_t num_split = 0;
    for (uint64_t seed = 0; seed < num && !psti_test_failed(); seed++) {
        scene of;
        make_lasting(&of, seed);
        const uint64_t optimum = scene_optimum(&of);
        run_and_check(&of, &config);
        CHECK_MSG(of.plan.peak == optimum && of.plan.status == PST_PLAN_OPTIMAL,
                  "seed %llu: peak %llu, not %llu", (unsigned long long)seed,
                  (unsigned long long)of.plan.peak, (unsigned long long)optimum);
        num_split += of.plan.num_parts > 1;
    }
    CHECK_MSG(2 * num_split > num, "only %u of %u", num_split, num);
}

/* The first part needs more than its load, and something that lasts begins within it: whether all of it
 * must stand on that is another question than what it needs. */
PST_TEST(PlanParts, OnWhatBeginsWithinThem)
{
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    const uint32_t num = psti_test_cases(300);
    uint32_t num_joined = 0;
    for (uint64_t seed = 0; seed < num && !psti_test_failed(); seed++) {
        uint64_t state = psti_mix(seed + 3);
        scene of;
        scene more;
        scene_tight(&of);
        for (uint64_t p = 0; p < 4; p++) {
            scene_make(&more, seed * 4 + (p + 1) / 2, 4, 5, 2);
            append(&of, &more, 9 + 5 * p);
        }
        const uint64_t begin = scene_random(&state, 14);
        of.tensors[of.problem.num_tensors++] = lasting(1 + scene_random(&state, 5), begin, 29);
        run_and_check(&of, &config);
        CHECK_EQ(of.plan.status, PST_PLAN_OPTIMAL);
        CHECK_MSG(!has_placement(&of, of.plan.peak - 1), "seed %llu: %llu is not the least",
                  (unsigned long long)seed, (unsigned long long)of.plan.peak);
        num_joined += of.plan.num_parts == 3; /* tight is three */
    }
    CHECK_MSG(num_joined > num / 20 && num_joined < num, "%u of %u", num_joined, num);
}

/* Each step of several streams leaves something behind: a tensor that all of them may follow at the end. */
PST_TEST(PlanParts, OfSeveralStreamsOnWhatLasts)
{
    enum { STEPS = 4, SPAN_OF_STEP = 40, NUM = 9 };
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    uint32_t num_period = 0;
    for (uint64_t seed = 0; seed < 200 && !psti_test_failed(); seed++) {
        scene one;
        scene of;
        scene_make(&one, seed, NUM, 12, 5);
        scene_add_streams(&one, seed, 12);
        one.tensors[NUM] = lasting(1 + seed % 3, seed % 20, SPAN_OF_STEP);
        for (uint32_t r = 0; r < SCENE_STREAMS; r++)
            one.releases[NUM * SCENE_STREAMS + r] = SPAN_OF_STEP;
        one.problem.num_tensors++;
        of = one;
        of.problem.tensors = of.tensors;
        of.problem.releases = of.releases;
        for (uint64_t step = 1; step < STEPS; step++)
            append(&of, &one, SPAN_OF_STEP * step);
        for (uint64_t i = NUM; i < of.problem.num_tensors; i += NUM + 1) {
            of.tensors[i].end = (uint64_t)SPAN_OF_STEP * STEPS;
            for (uint32_t r = 0; r < SCENE_STREAMS; r++)
                of.releases[i * SCENE_STREAMS + r] = of.tensors[i].end;
        }
        run_and_check(&of, &config);
        num_period += of.plan.num_periods >= STEPS - 1;
    }
    CHECK_MSG(num_period > 100, "only %u of 200", num_period);
}

/* The same on weights: one is there first, each further one comes after a temporary has gone. */
static pst_plan plan_on_weights(const char *letters, uint64_t max_steps)
{
    enum { WEIGHTS = 3, WEIGHT = 5000, INIT = 20 };
    pst_plan_tensor *tensors;
    uint64_t end = 0;
    uint64_t num = instance_read_all(letters, &tensors);
    for (uint64_t i = 0; i < num; i++) {
        tensors[i].begin += WEIGHTS * INIT;
        tensors[i].end += WEIGHTS * INIT;
        end = tensors[i].end > end ? tensors[i].end : end;
    }
    for (uint64_t k = 0; k < WEIGHTS; k++) {
        tensors[num++] = lasting(WEIGHT, INIT * k, end);
        tensors[num++] = lasting(100 + k, INIT * k + 1, INIT * k + 9);
    }
    return plan_tensors(tensors, num, 0, max_steps);
}

PST_TEST(PlanParts, CopiesOnWeightsCostAsMuchAsOne)
{
    static const char *const letters[][2] = {{"E", "EEEE"}, {"A", "AAAA"}, {"H", "HHHHHHHHHH"}};
    static const uint32_t num_tensors[] = {215, 154, 316};
    for (size_t k = 0; k < sizeof(letters) / sizeof(letters[0]); k++) {
        const pst_plan one = plan_instances(letters[k][0], 0, 0);
        const pst_plan all = plan_on_weights(letters[k][1], 4 * one.steps);
        CHECK_EQ(all.status, PST_PLAN_OPTIMAL);
        CHECK_EQ(all.peak, one.peak + 3 * 5000);
        CHECK_MSG(5 * all.steps <= 6 * one.steps, "%s: %llu steps, one alone %llu", letters[k][1],
                  (unsigned long long)all.steps, (unsigned long long)one.steps);
        CHECK_EQ(all.num_periods, strlen(letters[k][1]));
        CHECK_EQ(all.period_tensors, num_tensors[k]);
    }
}

/* The second half of the fourth H need not stand on what begins at its end, and cannot come down as long
 * as it does: it is one with D then, and what is before stays parts. */
PST_TEST(PlanParts, OnlyWhatStandsTooHighIsJoined)
{
    enum { END = 1 << 20 };
    pst_plan_tensor *tensors;
    uint64_t num = instance_read_all("HHHHD", &tensors);
    tensors[num++] = lasting(60000, 4 * END - 10, 5 * END);
    const pst_plan plan = plan_tensors(tensors, num, 0, 1 << 18);
    CHECK_EQ(plan.num_parts, 8);
    CHECK_EQ(plan.num_kinds, 3);
    CHECK_EQ(plan.num_periods, 3);
    CHECK_EQ(plan.lower_bound, END);
}
