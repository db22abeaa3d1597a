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
static scene three(void)
{
    scene of;
    scene_make(&of, 0, 3, 1, 1);
    of.tensors[0] = (pst_plan_tensor){100, 0, 4, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    of.tensors[1] = (pst_plan_tensor){50, 2, 6, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    of.tensors[2] = (pst_plan_tensor){30, 4, 8, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    of.offsets[0] = 0;
    of.offsets[1] = 100;
    of.offsets[2] = 70;
    return of;
}

PST_TEST(PlanCheck, RightPlan)
{
    scene of = three();
    of.problem.tensors = of.tensors;
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

PST_TEST(PlanCheck, Overlaps)
{
    scene of = three();
    of.problem.tensors = of.tensors;
    of.offsets[1] = 99;
    expect(&of, PST_PLAN_OVERLAP, 1, 0);
    of.offsets[1] = 100;
    of.offsets[2] = 71;
    expect(&of, PST_PLAN_OVERLAP, 2, 1);
    of.offsets[2] = 149;
    expect(&of, PST_PLAN_OVERLAP, 2, 1);
    of.offsets[2] = 150;
    expect(&of, PST_PLAN_RIGHT, 0, 0);
    of.offsets[2] = 0;
    expect(&of, PST_PLAN_RIGHT, 0, 0); /* begins when the first has ended */
    of.tensors[2].begin = 3;
    expect(&of, PST_PLAN_OVERLAP, 2, 0);
}

PST_TEST(PlanCheck, OneTensorAlone)
{
    scene of = three();
    of.problem.tensors = of.tensors;
    of.problem.capacity = 150;
    expect(&of, PST_PLAN_RIGHT, 0, 0);
    of.problem.capacity = 149;
    expect(&of, PST_PLAN_TOO_HIGH, 1, 0);
    of.problem.capacity = 0;
    of.offsets[0] = PST_PLAN_MAX_BYTES - 99;
    expect(&of, PST_PLAN_TOO_HIGH, 0, 0);
    of.offsets[0] = UINT64_MAX;
    expect(&of, PST_PLAN_TOO_HIGH, 0, 0);
    of.offsets[0] = 0;
    of.tensors[1].pin = 100;
    expect(&of, PST_PLAN_RIGHT, 0, 0);
    of.tensors[1].pin = 200;
    expect(&of, PST_PLAN_MOVED_PIN, 1, 0);
    of.tensors[1].pin = PST_PLAN_FREE;
    of.problem.align = 2;
    of.offsets[2] = 69;
    expect(&of, PST_PLAN_UNALIGNED, 2, 0);
}

PST_TEST(PlanCheck, ReservedRanges)
{
    scene of = three();
    of.problem.tensors = of.tensors;
    of.problem.reserved = of.reserved;
    of.problem.num_reserved = 2;
    of.reserved[0] = (pst_plan_range){500, 600};
    of.reserved[1] = (pst_plan_range){150, 151};
    expect(&of, PST_PLAN_RIGHT, 0, 0);
    of.offsets[1] = 101;
    expect(&of, PST_PLAN_ON_RESERVED, 1, 1);
    of.offsets[1] = 599;
    expect(&of, PST_PLAN_ON_RESERVED, 1, 0);
    of.offsets[1] = 600;
    expect(&of, PST_PLAN_RIGHT, 0, 0);
}

/* Sizes count rounded up to the alignment, reserved ranges grown to it. */
PST_TEST(PlanCheck, RoundsToTheAlignment)
{
    scene of = three();
    of.problem.tensors = of.tensors;
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
    scene of = three();
    of.problem.tensors = of.tensors;
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
    of = three();
    of.problem.tensors = of.tensors;
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
    of.problem.struct_size--;
    CHECK_STATUS(pst_plan_check(&of.problem, of.offsets, &fault, NULL), PST_E_INVALID);
}
