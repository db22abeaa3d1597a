/* The judge of plans shares nothing with the planner but the check of a problem's fields: a sweep
 * over the begins that holds each tensor against all that are live then. Time n * (most live). */
#include "host/plan/plan.h"

#include <stdlib.h>

/* A tensor whose bytes some stream may not reuse yet. */
typedef struct live {
    uint64_t begin, tensor;
    uint64_t lo, hi;   /* addresses */
    uint64_t released; /* to all streams */
} live;

static int by_begin(const void *a, const void *b)
{
    const live *x = a;
    const live *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
                                : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static uint64_t release_of(const pst_plan_problem *problem, uint64_t tensor, uint32_t stream)
{
    return problem->num_streams > 1 ? problem->releases[tensor * problem->num_streams + stream]
                                    : problem->tensors[tensor].end;
}

/* What can be said of one tensor alone. */
static pst_plan_fault judge_one(const pst_plan_problem *problem, uint64_t i, uint64_t offset)
{
    const pst_plan_tensor *tensor = &problem->tensors[i];
    const uint64_t bytes = psti_plan_round(problem, tensor->bytes);
    const uint64_t top = problem->capacity != 0 ? problem->capacity : PST_PLAN_MAX_BYTES;
    if (offset > top || bytes > top - offset)
        return (pst_plan_fault){PST_PLAN_TOO_HIGH, i, 0};
    if (tensor->pin != PST_PLAN_FREE && tensor->pin != offset)
        return (pst_plan_fault){PST_PLAN_MOVED_PIN, i, 0};
    if (psti_plan_round(problem, offset) != offset)
        return (pst_plan_fault){PST_PLAN_UNALIGNED, i, 0};
    for (uint32_t r = 0; r < problem->num_reserved; r++)
        if (psti_plan_round(problem, problem->reserved[r].begin + 1) <= offset + bytes &&
            offset < problem->reserved[r].end)
            return (pst_plan_fault){PST_PLAN_ON_RESERVED, i, r};
    return (pst_plan_fault){PST_PLAN_RIGHT, 0, 0};
}

/* Holds the next tensor against the live ones, drops those that nobody waits for, and adds it. */
static pst_plan_fault judge_pairs(const pst_plan_problem *problem, live self, live *lives,
                                  uint64_t *num_lives)
{
    const uint32_t stream = problem->tensors[self.tensor].stream;
    uint64_t kept = 0;
    for (uint32_t r = 0; r < (problem->num_streams > 1 ? problem->num_streams : 1); r++)
        if (release_of(problem, self.tensor, r) > self.released)
            self.released = release_of(problem, self.tensor, r);
    for (uint64_t k = 0; k < *num_lives; k++) {
        const live other = lives[k];
        lives[kept] = other;
        kept += other.released > self.begin;
        if (other.lo < self.hi && self.lo < other.hi &&
            self.begin < release_of(problem, other.tensor, stream))
            return (pst_plan_fault){PST_PLAN_OVERLAP, self.tensor, other.tensor};
    }
    lives[kept] = self;
    *num_lives = kept + 1;
    return (pst_plan_fault){PST_PLAN_RIGHT, 0, 0};
}

static pst_status judge(const pst_plan_problem *problem, const uint64_t *offsets,
                        pst_plan_fault *fault_out, uint64_t *peak_out)
{
    PSTI_TRY(psti_plan_check_problem(problem));
    PSTI_CHECK(fault_out != NULL && (offsets != NULL || problem->num_tensors == 0), PST_E_INVALID,
               "offsets or fault_out is NULL");
    const uint64_t n = problem->num_tensors;
    live *lives = psti_calloc(n + 1, sizeof(*lives)); /* at the front; behind, what comes */
    PSTI_CHECK(lives != NULL, PST_E_NOMEM, "out of memory for %llu tensors", (unsigned long long)n);
    pst_plan_fault fault = {PST_PLAN_RIGHT, 0, 0};
    uint64_t num_lives = 0;
    uint64_t peak = 0;
    for (uint64_t i = 0; i < n && fault.kind == PST_PLAN_RIGHT; i++) {
        const uint64_t top = offsets[i] + psti_plan_round(problem, problem->tensors[i].bytes);
        lives[i] = (live){problem->tensors[i].begin, i, offsets[i], top, 0};
        fault = judge_one(problem, i, offsets[i]);
        if (fault.kind == PST_PLAN_RIGHT && top > peak)
            peak = top;
    }
    if (fault.kind == PST_PLAN_RIGHT)
        qsort(lives, n, sizeof(*lives), by_begin);
    for (uint64_t k = 0; k < n && fault.kind == PST_PLAN_RIGHT; k++)
        fault = judge_pairs(problem, lives[k], lives, &num_lives);
    psti_free(lives);
    *fault_out = fault;
    if (peak_out != NULL)
        *peak_out = peak;
    return PST_OK;
}

pst_status pst_plan_check(const pst_plan_problem *problem, const uint64_t *offsets,
                          pst_plan_fault *fault_out, uint64_t *peak_out)
{
    psti_plan_taken taken;
    PSTI_TRY(psti_plan_take(problem, &taken));
    return psti_plan_drop(&taken, judge(&taken.problem, offsets, fault_out, peak_out));
}
