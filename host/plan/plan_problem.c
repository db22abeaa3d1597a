/* Which problems the planner accepts. */
#include "host/base/structs.h"
#include "host/plan/plan.h"

uint64_t psti_plan_round(const pst_plan_problem *problem, uint64_t bytes)
{
    const uint64_t align = problem->align != 0 ? problem->align : PSTI_PLAN_ALIGN;
    return (bytes + align - 1) & ~(align - 1);
}

uint64_t psti_plan_floor(const pst_plan_problem *problem, uint64_t pinned)
{
    uint64_t floor = pinned;
    for (uint32_t r = 0; r < problem->num_reserved; r++)
        if (psti_plan_round(problem, problem->reserved[r].end) > floor)
            floor = psti_plan_round(problem, problem->reserved[r].end);
    return floor;
}

static pst_status check_tensor(const pst_plan_problem *problem, uint64_t i, uint64_t *sum)
{
    const pst_plan_tensor *tensor = &problem->tensors[i];
    const unsigned long long place = i;
    PSTI_CHECK(tensor->bytes > 0 && tensor->bytes <= PST_PLAN_MAX_BYTES, PST_E_INVALID,
               "tensor %llu has %llu bytes: allowed are 1..2^62", place,
               (unsigned long long)tensor->bytes);
    PSTI_CHECK(tensor->begin < tensor->end, PST_E_INVALID,
               "tensor %llu lives from %llu to %llu: allowed is a begin below its end", place,
               (unsigned long long)tensor->begin, (unsigned long long)tensor->end);
    *sum += psti_plan_round(problem, tensor->bytes);
    PSTI_CHECK(*sum <= PST_PLAN_MAX_BYTES, PST_E_INVALID,
               "the sizes up to tensor %llu sum to more than 2^62 bytes", place);
    PSTI_CHECK(
        tensor->pin == PST_PLAN_FREE || (tensor->pin <= PST_PLAN_MAX_BYTES - tensor->bytes &&
                                         psti_plan_round(problem, tensor->pin) == tensor->pin),
        PST_E_INVALID,
        "tensor %llu is pinned at %llu: allowed are multiples of the alignment, and an end of "
        "at most 2^62",
        place, (unsigned long long)tensor->pin);
    if (problem->num_streams <= 1)
        return PST_OK;
    PSTI_CHECK(tensor->stream < problem->num_streams, PST_E_INVALID,
               "tensor %llu is of stream %u: allowed are 0..%u", place, tensor->stream,
               problem->num_streams - 1);
    for (uint32_t r = 0; r < problem->num_streams; r++) {
        const uint64_t release = problem->releases[i * problem->num_streams + r];
        PSTI_CHECK(
            release >= tensor->end, PST_E_INVALID,
            "tensor %llu is released to stream %u at %llu: allowed is its end, %llu, and later",
            place, r, (unsigned long long)release, (unsigned long long)tensor->end);
    }
    return PST_OK;
}

static pst_status check_block(const pst_plan_problem *problem, uint64_t i)
{
    const pst_plan_tensor *tensor = &problem->tensors[i];
    if (tensor->block == PST_PLAN_NO_BLOCK)
        return PST_OK;
    PSTI_CHECK(tensor->block < problem->num_blocks, PST_E_INVALID,
               "tensor %llu is of block %u: there are %u", (unsigned long long)i, tensor->block,
               problem->num_blocks);
    const pst_plan_block *block = &problem->blocks[tensor->block];
    PSTI_CHECK(tensor->begin >= block->begin && tensor->end <= block->end, PST_E_INVALID,
               "tensor %llu lives beyond its block %u", (unsigned long long)i, tensor->block);
    PSTI_CHECK(tensor->pin == PST_PLAN_FREE, PST_E_INVALID,
               "tensor %llu of block %u is pinned: allowed are pins of other tensors",
               (unsigned long long)i, tensor->block);
    return PST_OK;
}

pst_status psti_plan_check_problem(const pst_plan_problem *problem)
{
    PSTI_CHECK((problem->align & (problem->align - 1)) == 0 &&
                   problem->align <= PSTI_PLAN_MAX_ALIGN,
               PST_E_INVALID, "align is %llu: allowed are powers of two up to 2^40",
               (unsigned long long)problem->align);
    PSTI_CHECK(problem->capacity <= PST_PLAN_MAX_BYTES, PST_E_INVALID,
               "capacity is %llu: allowed are at most 2^62", (unsigned long long)problem->capacity);
    PSTI_CHECK(
        problem->num_streams <= PST_PLAN_MAX_STREAMS &&
            (problem->num_streams <= 1 || problem->releases != NULL || problem->num_tensors == 0),
        PST_E_INVALID, "%u streams: allowed are at most %u, and releases of several",
        problem->num_streams, PST_PLAN_MAX_STREAMS);
    PSTI_CHECK(problem->reserved != NULL || problem->num_reserved == 0, PST_E_INVALID,
               "reserved is NULL");
    for (uint32_t r = 0; r < problem->num_reserved; r++)
        PSTI_CHECK(problem->reserved[r].begin < problem->reserved[r].end &&
                       problem->reserved[r].end <= PST_PLAN_MAX_BYTES / 2,
                   PST_E_INVALID,
                   "reserved range %u is %llu:%llu: allowed are A:B with A < B, B at most 2^61", r,
                   (unsigned long long)problem->reserved[r].begin,
                   (unsigned long long)problem->reserved[r].end);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < problem->num_tensors; i++) {
        PSTI_TRY(check_tensor(problem, i, &sum));
        PSTI_TRY(check_block(problem, i));
    }
    return PST_OK;
}

static pst_status check_arrays(const pst_plan_problem *problem)
{
    PSTI_TRY(PSTI_CHECK_SIZE_IN(pst_plan_tensor, problem, tensor_bytes));
    PSTI_TRY(PSTI_CHECK_SIZE_IN(pst_plan_block, problem, block_bytes));
    PSTI_CHECK(problem->num_tensors <= PST_PLAN_MAX_TENSORS &&
                   (problem->tensors != NULL || problem->num_tensors == 0),
               PST_E_INVALID, "%llu tensors: allowed are at most %u, and a pointer to them",
               (unsigned long long)problem->num_tensors, PST_PLAN_MAX_TENSORS);
    PSTI_CHECK(problem->num_blocks <= PST_PLAN_MAX_TENSORS &&
                   (problem->blocks != NULL || problem->num_blocks == 0),
               PST_E_INVALID, "%u blocks: allowed are at most %u, and a pointer to them",
               problem->num_blocks, PST_PLAN_MAX_TENSORS);
    return PST_OK;
}

/* An older caller's array, copied into one of whole elements. */
static pst_status widen(const void **array, uint64_t num, size_t bytes, size_t known, void **owned)
{
    if (bytes == known || *array == NULL)
        return PST_OK;
    unsigned char *copy = *owned = psti_calloc((size_t)num + 1, known);
    PSTI_CHECK(copy, PST_E_NOMEM, "no memory for %llu elements", (unsigned long long)num);
    for (uint64_t i = 0; i < num; i++)
        psti_take_element(copy + i * known, *array, i, bytes);
    *array = copy;
    return PST_OK;
}

pst_status psti_plan_take(const pst_plan_problem *given, psti_plan_taken *taken)
{
    PSTI_TAKE(pst_plan_problem, whole, given);
    PSTI_TRY(check_arrays(&whole));
    *taken = (psti_plan_taken){.problem = whole};
    const void *tensors = whole.tensors;
    const void *blocks = whole.blocks;
    pst_status status = widen(&tensors, whole.num_tensors, whole.tensor_bytes,
                              sizeof(pst_plan_tensor), &taken->tensors);
    if (status == PST_OK)
        status = widen(&blocks, whole.num_blocks, whole.block_bytes, sizeof(pst_plan_block),
                       &taken->blocks);
    taken->problem.tensors = tensors;
    taken->problem.blocks = blocks;
    return status == PST_OK ? PST_OK : psti_plan_drop(taken, status);
}

pst_status psti_plan_drop(psti_plan_taken *taken, pst_status status)
{
    psti_free(taken->tensors);
    psti_free(taken->blocks);
    return status;
}
