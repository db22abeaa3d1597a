/* The judge of plans finds each kind of fault, and no other. */
#include "tests/harness.h"
#include "tests/host/plan/plan_scene.h"

static void expect(const scene *of, pst_plan_fault_kind kind, uint64_t tensor, uint64_t other)
{
    pst_plan_fault fault;
    CHECK_OK(pst_plan_check(&of->problem, of->offsets, &fault, NULL));
    CHECK_EQ(fault.kind, kind);
    CHECK_EQ(fault.tensor, tensor);
    CHECK_EQ(fault.other, other);
}

/* Two tensors that live together, one above the other, and a third that follows them. */
static void three(scene *of)
{
    static const uint64_t offsets[] = {0, 100, 70};
    scene_make(of, 0, 3, 1, 1);
    of->tensors[0] = (pst_plan_tensor){100, 0, 4, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    of->tensors[1] = (pst_plan_tensor){50, 2, 6, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    of->tensors[2] = (pst_plan_tensor){30, 4, 8, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    memcpy(of->offsets, offsets, sizeof(offsets));
}

PST_TEST(PlanCheck, RightPlan)
{
    scene of;
    three(&of);
    pst_plan_fault fault;
    uint64_t peak = 0;
    CHECK_OK(pst_plan_check(&of.problem, of.offsets, &fault, &peak));
    CHECK_EQ(fault.kind, PST_PLAN_RIGHT);
    CHECK_EQ(peak, 150);
    of.problem.num_tensors = 0;
    CHECK_OK(pst_plan_check(&of.problem, NULL, &fault, &peak));
    CHECK_EQ(fault.kind, PST_PLAN_RIGHT);
    CHECK_EQ(peak, 0);
}

/* What is not given is as in three().
 * Fault rows 58. */
PST_TEST(PlanCheck, EachFault)
{
    static const struct {
        uint64_t offsets[3], capacity, align, pin; /* of the second tensor; 0: none */
        pst_plan_range reserved[2];
        pst_plan_fault fault;
    } cases[] = {
        {{0, 99, 70}, .fault = {PST_PLAN_OVERLAP, 1, 0}},
        {{0, 100, 71}, .fault = {PST_PLAN_OVERLAP, 2, 1}},
        {{0, 100, 149}, .fault = {PST_PLAN_OVERLAP, 2, 1}},
        {{0, 100, 150}, .fault = {PST_PLAN_RIGHT, 0, 0}},
        {{0, 100, 0}, .fault = {PST_PLAN_RIGHT, 0, 0}}, /* begins when the first has ended */
        {{0, 100, 70}, .capacity = 150, .fault = {PST_PLAN_RIGHT, 0, 0}},
        {{0, 100, 70}, .capacity = 149, .fault = {PST_PLAN_TOO_HIGH, 1, 0}},
        {{PST_PLAN_MAX_BYTES - 99, 100, 70}, .fault = {PST_PLAN_TOO_HIGH, 0, 0}},
        {{UINT64_MAX, 100, 70}, .fault = {PST_PLAN_TOO_HIGH, 0, 0}},
        {{0, 100, 70}, .pin = 100, .fault = {PST_PLAN_RIGHT, 0, 0}},
        {{0, 100, 70}, .pin = 200, .fault = {PST_PLAN_MOVED_PIN, 1, 0}},
        {{0, 100, 69}, .align = 2, .fault = {PST_PLAN_UNALIGNED, 2, 0}},
        {{0, 100, 70}, .reserved = {{500, 600}, {150, 151}}, .fault = {PST_PLAN_RIGHT, 0, 0}},
        {{0, 101, 70}, .reserved = {{500, 600}, {150, 151}}, .fault = {PST_PLAN_ON_RESERVED, 1, 1}},
        {{0, 599, 70}, .reserved = {{500, 600}, {150, 151}}, .fault = {PST_PLAN_ON_RESERVED, 1, 0}},
        {{0, 600, 70}, .reserved = {{500, 600}, {150, 151}}, .fault = {PST_PLAN_RIGHT, 0, 0}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases) && !psti_test_failed(); i++) {
        scene of;
        three(&of);
        memcpy(of.offsets, cases[i].offsets, sizeof(cases[i].offsets));
        of.problem.capacity = cases[i].capacity;
        of.problem.align = cases[i].align ? cases[i].align : 1;
        of.tensors[1].pin = cases[i].pin ? cases[i].pin : PST_PLAN_FREE;
        of.problem.reserved = cases[i].reserved;
        of.problem.num_reserved = cases[i].reserved[0].end > 0 ? 2 : 0;
        expect(&of, cases[i].fault.kind, cases[i].fault.tensor, cases[i].fault.other);
        CHECK_MSG(!psti_test_failed(), "case %zu", i);
    }
    scene of;
    three(&of);
    of.offsets[2] = 0;
    of.tensors[2].begin = 3; /* while the first lives */
    expect(&of, PST_PLAN_OVERLAP, 2, 0);
}

/* Sizes count rounded up to the alignment, reserved ranges grown to it. */
PST_TEST(PlanCheck, RoundsToTheAlignment)
{
    scene of;
    three(&of);
    of.problem.align = 0;
    of.problem.num_tensors = 1;
    pst_plan_fault fault;
    uint64_t peak = 0;
    CHECK_OK(pst_plan_check(&of.problem, of.offsets, &fault, &peak));
    CHECK_EQ(fault.kind, PST_PLAN_RIGHT);
    CHECK_EQ(peak, 512);
    of.problem.capacity = 511;
    expect(&of, PST_PLAN_TOO_HIGH, 0, 0);
    of.problem.capacity = 512;
    expect(&of, PST_PLAN_RIGHT, 0, 0);
    of.problem.reserved = of.reserved;
    of.problem.num_reserved = 1;
    of.reserved[0] = (pst_plan_range){511, 600};
    expect(&of, PST_PLAN_ON_RESERVED, 0, 0);
    of.reserved[0] = (pst_plan_range){512, 600};
    expect(&of, PST_PLAN_RIGHT, 0, 0);
    of.reserved[0] = (pst_plan_range){0, 1};
    expect(&of, PST_PLAN_ON_RESERVED, 0, 0);
}

/* Against the definition, on random placements of several streams. */
PST_TEST(PlanCheck, AgreesWithTheDefinition)
{
    uint32_t right = 0;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        scene of;
        uint64_t state = seed;
        scene_make(&of, seed, 5, 8, 4);
        if (seed % 2 == 1)
            scene_add_streams(&of, seed, 8);
        bool is_right = true;
        for (uint64_t i = 0; i < 5; i++) {
            of.offsets[i] = scene_random(&state, 12);
            for (uint64_t k = 0; k < i; k++)
                is_right = is_right && (!scene_conflict(&of, i, k) ||
                                        of.offsets[k] + of.tensors[k].bytes <= of.offsets[i] ||
                                        of.offsets[i] + of.tensors[i].bytes <= of.offsets[k]);
        }
        pst_plan_fault fault;
        CHECK_OK(pst_plan_check(&of.problem, of.offsets, &fault, NULL));
        CHECK_MSG((fault.kind == PST_PLAN_RIGHT) == is_right, "seed %llu",
                  (unsigned long long)seed);
        right += is_right;
    }
    CHECK(right > 200 && right < 3800);
}

PST_TEST(PlanCheck, RefusesBadProblems)
{
    scene of;
    three(&of);
    pst_plan_fault fault;
    const struct {
        uint64_t bytes, begin, end, pin;
    } bad[] = {
        {0, 0, 1, PST_PLAN_FREE},
        {PST_PLAN_MAX_BYTES + 1, 0, 1, PST_PLAN_FREE},
        {UINT64_MAX, 0, 1, PST_PLAN_FREE},
        {1, 1, 1, PST_PLAN_FREE},
        {1, 2, 1, PST_PLAN_FREE},
        {2, 0, 1, PST_PLAN_MAX_BYTES - 1},
        {PST_PLAN_MAX_BYTES - 50, 0, 1, PST_PLAN_FREE}, /* the sum */
    };
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
        of.tensors[0] = (pst_plan_tensor){bad[k].bytes,     bad[k].begin, bad[k].end, bad[k].pin, 0,
                                          PST_PLAN_NO_BLOCK};
        CHECK_STATUS(pst_plan_check(&of.problem, of.offsets, &fault, NULL), PST_E_INVALID);
    }
    three(&of);
    of.problem.align = 3;
    CHECK_STATUS(pst_plan_check(&of.problem, of.offsets, &fault, NULL), PST_E_INVALID);
    of.problem.align = 1;
    of.problem.num_streams = 2;
    CHECK_STATUS(pst_plan_check(&of.problem, of.offsets, &fault, NULL), PST_E_INVALID);
    scene_add_streams(&of, 1, 8);
    of.releases[0] = of.tensors[0].end - 1;
    CHECK_STATUS(pst_plan_check(&of.problem, of.offsets, &fault, NULL), PST_E_INVALID);
    of.releases[0] = of.tensors[0].end;
    of.tensors[2].stream = SCENE_STREAMS;
    CHECK_STATUS(pst_plan_check(&of.problem, of.offsets, &fault, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_plan_check(&of.problem, of.offsets, NULL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_plan_check(NULL, of.offsets, &fault, NULL), PST_E_INVALID);
    CHECK_SAID("pst_plan_problem is NULL [");
    three(&of);
    of.problem.struct_size--;
    CHECK_STATUS(pst_plan_check(&of.problem, of.offsets, &fault, NULL), PST_E_INVALID);
    CHECK_SAID("struct_size 87: pst_plan_problem has ");
    three(&of);
    of.problem.tensor_bytes--;
    of.problem.num_tensors = UINT64_MAX;
    CHECK_STATUS(pst_plan_check(&of.problem, of.offsets, &fault, NULL), PST_E_INVALID);
    CHECK_SAID("tensor_bytes 39: pst_plan_tensor has ");
    of.problem.tensor_bytes++;
    CHECK_STATUS(pst_plan_check(&of.problem, of.offsets, &fault, NULL), PST_E_INVALID);
    CHECK_SAID("18446744073709551615 tensors: allowed are at most 67108864, ");
    three(&of);
    of.problem.num_blocks = PST_PLAN_MAX_TENSORS + 1;
    CHECK_STATUS(pst_plan_check(&of.problem, of.offsets, &fault, NULL), PST_E_INVALID);
    CHECK_SAID("67108865 blocks: allowed are at most 67108864, ");
}
