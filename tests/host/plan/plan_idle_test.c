/* Idle ranges of a plan, by hand and against a map of bytes. */
#include <inttypes.h>

#include <pagestash/pagestash.h>

#include "host/base/base.h"
#include "tests/harness.h"
#include "tests/random.h"

enum { ARENA = 40, INSTANTS = 12, MAX_TENSORS = 12, MAX_RANGES = 64 };

static pst_plan_problem problem_of(const pst_plan_tensor *tensors, uint64_t num_tensors)
{
    pst_plan_problem problem = PST_PLAN_PROBLEM_INIT;
    problem.tensors = tensors;
    problem.num_tensors = num_tensors;
    problem.align = 1;
    return problem;
}

PST_TEST(PlanIdle, ByHand)
{
    static const pst_plan_tensor tensors[] = {
        {.bytes = 500, .begin = 0, .end = 4},   /* 0..512 */
        {.bytes = 1024, .begin = 2, .end = 6},  /* 1024..2048 */
        {.bytes = 1000, .begin = 5, .end = 9}}; /* 0..1024 */
    static const uint64_t offsets[] = {0, 1024, 0};
    static const pst_plan_range spans[] = {{0, 2}, {4, 5}, {0, 9}, {9, 20}, {5, 6}};
    static const pst_plan_range wanted[] = {{512, 3072},  {0, 1024}, {2048, 3072},
                                            {2048, 3072}, {0, 3072}, {2048, 3072}};
    static const uint64_t wanted_firsts[] = {0, 1, 3, 4, 5, 6};
    pst_plan_problem problem = problem_of(tensors, 3);
    problem.align = 0;
    uint64_t firsts[6];
    pst_plan_range ranges[6];
    CHECK_OK(pst_plan_idle(&problem, offsets, 3072, spans, 5, firsts, NULL, 0));
    CHECK_EQ(firsts[5], 6);
    memset(firsts, 0, sizeof(firsts));
    CHECK_OK(pst_plan_idle(&problem, offsets, 3072, spans, 5, firsts, ranges, 6));
    CHECK(memcmp(firsts, wanted_firsts, sizeof(firsts)) == 0);
    CHECK(memcmp(ranges, wanted, sizeof(ranges)) == 0);
    const pst_plan_range reserved[] = {{700, 700}, {2100, 2600}}; /* none, and 2048..3072 */
    problem.reserved = reserved;
    problem.num_reserved = 2;
    CHECK_OK(pst_plan_idle(&problem, offsets, 3072, spans, 1, firsts, ranges, 6));
    CHECK_EQ(firsts[1], 1);
    CHECK_EQ(ranges[0].begin, 512);
    CHECK_EQ(ranges[0].end, 2048);
}

typedef struct instance {
    pst_plan_tensor tensors[MAX_TENSORS];
    uint64_t offsets[MAX_TENSORS];
    uint64_t releases[2 * MAX_TENSORS];
    pst_plan_range reserved[1];
    pst_plan_problem problem;
} instance;

/* The offsets need not be a plan: the ranges are right for any. */
static void make_instance(instance *self, uint64_t *seed)
{
    const uint64_t num = random_below(seed, MAX_TENSORS + 1);
    for (uint64_t i = 0; i < num; i++) {
        const uint64_t begin = random_below(seed, INSTANTS);
        const uint64_t end = begin + 1 + random_below(seed, INSTANTS - begin);
        self->tensors[i] = (pst_plan_tensor){
            1 + random_below(seed, 9), begin, end, PST_PLAN_FREE, (uint32_t)random_below(seed, 2),
            PST_PLAN_NO_BLOCK};
        self->offsets[i] = random_below(seed, ARENA + 4);
        for (int r = 0; r < 2; r++)
            self->releases[2 * i + (uint64_t)r] = end + random_below(seed, 3);
    }
    self->problem = problem_of(self->tensors, num);
    if (random_below(seed, 2)) {
        self->problem.num_streams = 2;
        self->problem.releases = self->releases;
    }
    if (random_below(seed, 3) == 0) {
        const uint64_t begin = random_below(seed, ARENA);
        self->reserved[0] = (pst_plan_range){begin, begin + random_below(seed, 5)};
        self->problem.reserved = self->reserved;
        self->problem.num_reserved = 1;
    }
}

static bool is_taken(const instance *self, uint64_t byte, const pst_plan_range *span)
{
    const pst_plan_problem *problem = &self->problem;
    if (problem->num_reserved && byte >= self->reserved[0].begin && byte < self->reserved[0].end)
        return true;
    for (uint64_t i = 0; i < problem->num_tensors; i++) {
        const pst_plan_tensor *tensor = &self->tensors[i];
        if (byte < self->offsets[i] || byte >= self->offsets[i] + tensor->bytes)
            continue;
        uint64_t end = tensor->end;
        if (problem->num_streams == 2)
            for (int r = 0; r < 2; r++)
                if (self->releases[2 * i + (uint64_t)r] > end)
                    end = self->releases[2 * i + (uint64_t)r];
        for (uint64_t t = span->begin; t < span->end; t++)
            if (t >= tensor->begin && t < end)
                return true;
    }
    return false;
}

static void against_bytes(const instance *self, const pst_plan_range *span,
                          const pst_plan_range *ranges, uint64_t num_ranges)
{
    for (uint64_t i = 1; i < num_ranges; i++)
        CHECK(ranges[i - 1].end < ranges[i].begin); /* rising, and none could be joined */
    for (uint64_t byte = 0; byte < ARENA; byte++) {
        bool is_in = false;
        for (uint64_t i = 0; i < num_ranges; i++)
            is_in |= byte >= ranges[i].begin && byte < ranges[i].end;
        CHECK_EQ(is_in, !is_taken(self, byte, span));
    }
    CHECK(num_ranges == 0 || ranges[num_ranges - 1].end <= ARENA);
}

PST_TEST(PlanIdle, AsAMapOfBytesSaysIt)
{
    uint64_t seed = 5;
    for (int round = 0; round < 400; round++) {
        static instance one;
        pst_plan_range spans[3];
        uint64_t firsts[4] = {0};
        pst_plan_range ranges[MAX_RANGES];
        make_instance(&one, &seed);
        for (int s = 0; s < 3; s++) {
            spans[s].begin = random_below(&seed, INSTANTS);
            spans[s].end = spans[s].begin + 1 + random_below(&seed, INSTANTS);
        }
        CHECK_OK(pst_plan_idle(&one.problem, one.offsets, ARENA, spans, 3, firsts, NULL, 0));
        const uint64_t count = firsts[3];
        CHECK_OK(pst_plan_idle(&one.problem, one.offsets, ARENA, spans, 3, firsts, ranges,
                               count ? count : 1));
        CHECK_EQ(firsts[3], count);
        for (int s = 0; s < 3 && !psti_test_failed(); s++)
            against_bytes(&one, &spans[s], ranges + firsts[s], firsts[s + 1] - firsts[s]);
        CHECK_MSG(!psti_test_failed(), "seed 5, round %d", round);
    }
}

PST_TEST(PlanIdle, NothingAndLargeNumbers)
{
    const uint64_t most = PST_PLAN_MAX_BYTES;
    const pst_plan_tensor tensor = {.bytes = most - 1, .begin = 0, .end = UINT64_MAX};
    const uint64_t offset = 0;
    const pst_plan_range span = {UINT64_MAX - 1, UINT64_MAX};
    pst_plan_problem problem = problem_of(&tensor, 1);
    uint64_t firsts[2] = {7, 7};
    pst_plan_range range;
    CHECK_OK(pst_plan_idle(&problem, &offset, most, &span, 1, firsts, &range, 1));
    CHECK_EQ(firsts[0], 0);
    CHECK_EQ(firsts[1], 1);
    CHECK_EQ(range.begin, most - 1);
    CHECK_EQ(range.end, most);
    problem.num_tensors = 0;
    CHECK_OK(pst_plan_idle(&problem, NULL, 0, &span, 1, firsts, NULL, 0));
    CHECK_EQ(firsts[1], 0);
    CHECK_OK(pst_plan_idle(&problem, NULL, 512, NULL, 0, firsts, NULL, 0));
    CHECK_EQ(firsts[0], 0);
}

PST_TEST(PlanIdle, BadArguments)
{
    pst_plan_tensor tensors[] = {{.bytes = 1, .begin = 0, .end = 1},
                                 {.bytes = 1, .begin = 1, .end = 2}};
    uint64_t offsets[] = {1, 3};
    pst_plan_range spans[] = {{0, 2}};
    pst_plan_problem problem = problem_of(tensors, 2);
    uint64_t firsts[] = {7, 7};
    pst_plan_range ranges[] = {{9, 9}, {9, 9}, {9, 9}};
#define REFUSED(arena, text)                                                           \
    CHECK_STATUS(pst_plan_idle(&problem, offsets, arena, spans, 1, firsts, ranges, 2), \
                 PST_E_INVALID);                                                       \
    CHECK_SAID(text)
    REFUSED(5, "capacity 2: there are 3 ranges [");
    REFUSED(PST_PLAN_MAX_BYTES + 1,
            "arena_bytes 4611686018427387905: allowed are multiples of 1 up to 2^62");
    problem.align = 4;
    REFUSED(6, "arena_bytes 6: allowed are multiples of 4 up to 2^62 [");
    problem.align = 3;
    REFUSED(6, "align 3: allowed are powers of two [");
    problem.align = 1;
    spans[0].begin = 2;
    REFUSED(5, "span 0: begin 2 is not below end 2 [");
    spans[0].begin = 0;
    tensors[1].end = 1;
    REFUSED(5, "tensor 1: begin 1 is not below end 1 [");
    tensors[1].bytes = 0;
    REFUSED(5, "tensor 1: bytes 0, offset 3: allowed are 1 to 2^62, and up to 2^62 [");
    tensors[1] = tensors[0];
    const pst_plan_range reserved = {2, 1};
    problem.reserved = &reserved;
    problem.num_reserved = 1;
    REFUSED(5, "reserved range 0: 2:1: allowed are A <= B <= 2^62 [");
    problem.num_reserved = 0;
    psti_fail_allocation_after(0);
    const pst_status status = pst_plan_idle(&problem, offsets, 5, spans, 1, firsts, ranges, 3);
    psti_fail_allocation_after(-1);
    CHECK_EQ(status, PST_E_NOMEM);
    CHECK_EQ(firsts[0] + firsts[1], 14);
    CHECK_EQ(ranges[0].begin + ranges[1].begin + ranges[2].begin, 27);
    CHECK_STATUS(pst_plan_idle(NULL, offsets, 5, spans, 1, firsts, ranges, 3), PST_E_INVALID);
    CHECK_STATUS(pst_plan_idle(&problem, offsets, 5, spans, 1, firsts, NULL, 3), PST_E_INVALID);
}
