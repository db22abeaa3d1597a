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

static pst_plan plan_instances(const char *letters, uint64_t capacity, uint64_t max_steps)
{
    pst_plan_problem problem = PST_PLAN_PROBLEM_INIT;
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    pst_plan_tensor *tensors = NULL;
    pst_plan plan = {.peak = 0};
    pst_plan_fault fault = {PST_PLAN_OVERLAP, 0, 0};
    problem.num_tensors = instance_read_all(letters, &tensors);
    problem.tensors = tensors;
    problem.align = 1;
    problem.capacity = capacity;
    config.max_steps = max_steps;
    uint64_t *offsets = calloc(problem.num_tensors + 1, sizeof(*offsets));
    if (pst_plan_run(&problem, &config, offsets, &plan) != PST_OK ||
        pst_plan_check(&problem, offsets, &fault, NULL) != PST_OK || fault.kind != PST_PLAN_RIGHT)
        psti_test_fail(__FILE__, __LINE__, "%s: %s", letters, pst_last_message());
    free(offsets);
    free(tensors);
    return plan;
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
