/* MEMO's two levels (SIGMOD 2025, section 4.2). Level 1 places the tensors of one pass of each kind;
 * level 2 places a rectangle for each kind, which takes its address in all passes of the kind, among
 * the tensors that belong to no pass. */
#include "host/plan/plan.h"

#include <string.h>

enum { LITTLE = 4096 }; /* intervals */

typedef struct kind {
    uint32_t block;  /* the first pass of the kind */
    uint32_t blocks; /* how many: order[end - blocks .. end) */
    uint32_t end;
    uint32_t begin; /* its tensors: members[begin .. begin + num) of level 1 */
    uint32_t num;
    uint64_t peak, bound;
    uint64_t last_end; /* of the passes so far */
    uint64_t address;
} kind;

typedef struct bilevel {
    const pst_plan_problem *problem;
    const psti_items *flat;
    kind *kinds; /* [num_blocks], by number; blocks == 0: there is none */
    uint32_t num_kinds;
    uint32_t *order;   /* [num_blocks] blocks with tensors, by kind */
    uint32_t *first;   /* [num_blocks + 1] members of each block */
    uint32_t *members; /* [n] tensors by block, in order */
    uint64_t *within;  /* [n] units: address in the block */
    uint32_t num_loose;
    uint64_t num_after; /* intervals that were brought into slots when the time was over */
    bool is_late;       /* the time was over before something was in slots */
} bilevel;

static bool bilevel_open(bilevel *of, const pst_plan_problem *problem)
{
    const size_t n = (size_t)problem->num_tensors;
    *of = (bilevel){.problem = problem};
    of->kinds = psti_calloc((size_t)problem->num_blocks + 1, sizeof(*of->kinds));
    of->order = psti_calloc((size_t)problem->num_blocks + 1, sizeof(*of->order));
    of->first = psti_calloc((size_t)problem->num_blocks + 2, sizeof(*of->first));
    of->members = psti_calloc(n + 1, sizeof(*of->members));
    of->within = psti_calloc(n + 1, sizeof(*of->within));
    return of->kinds != NULL && of->order != NULL && of->first != NULL && of->members != NULL &&
           of->within != NULL;
}

static void bilevel_close(bilevel *of)
{
    psti_free(of->kinds);
    psti_free(of->order);
    psti_free(of->first);
    psti_free(of->members);
    psti_free(of->within);
}

/* Sorts the tensors by block. */
static void find_members(bilevel *of)
{
    const pst_plan_problem *problem = of->problem;
    for (uint32_t i = 0; i < problem->num_tensors; i++) {
        if (problem->tensors[i].block == PST_PLAN_NO_BLOCK)
            of->num_loose++;
        else
            of->first[problem->tensors[i].block + 2]++;
    }
    for (uint32_t b = 0; b < problem->num_blocks; b++)
        of->first[b + 2] += of->first[b + 1];
    for (uint32_t i = 0; i < problem->num_tensors; i++)
        if (problem->tensors[i].block != PST_PLAN_NO_BLOCK)
            of->members[of->first[problem->tensors[i].block + 1]++] = i;
}

/* Whether a block is as the first one of its kind. */
static pst_status compare(const bilevel *of, uint32_t block, uint32_t with)
{
    const pst_plan_tensor *tensors = of->problem->tensors;
    const pst_plan_block *a = &of->problem->blocks[block];
    const pst_plan_block *b = &of->problem->blocks[with];
    const uint32_t num = of->first[block + 1] - of->first[block];
    PSTI_CHECK(num == of->first[with + 1] - of->first[with], PST_E_INVALID,
               "block %u has %u tensors, block %u of the same kind %u", block, num, with,
               of->first[with + 1] - of->first[with]);
    for (uint32_t k = 0; k < num; k++) {
        const pst_plan_tensor *x = &tensors[of->members[of->first[block] + k]];
        const pst_plan_tensor *y = &tensors[of->members[of->first[with] + k]];
        PSTI_CHECK(x->bytes == y->bytes && x->begin - a->begin == y->begin - b->begin &&
                       x->end - a->begin == y->end - b->begin,
                   PST_E_INVALID, "tensor %u of block %u differs from that of block %u of its kind",
                   k, block, with);
    }
    return PST_OK;
}

static pst_status find_kinds(bilevel *of)
{
    for (uint32_t b = 0; b < of->problem->num_blocks; b++) {
        const uint32_t number = of->problem->blocks[b].kind;
        PSTI_CHECK(number < of->problem->num_blocks, PST_E_INVALID,
                   "block %u is of kind %u: allowed are 0..%u", b, number,
                   of->problem->num_blocks - 1);
        PSTI_CHECK(of->problem->blocks[b].begin < of->problem->blocks[b].end, PST_E_INVALID,
                   "block %u ends before it begins", b);
        if (of->first[b] == of->first[b + 1])
            continue;
        kind *at = &of->kinds[number];
        if (at->blocks++ == 0)
            *at = (kind){.block = b,
                         .blocks = 1,
                         .begin = of->first[b],
                         .num = of->first[b + 1] - of->first[b]};
        PSTI_TRY(compare(of, b, at->block));
        /* Passes of one kind get one address, so no two of them may run at once. */
        PSTI_CHECK(at->last_end <= of->problem->blocks[b].begin, PST_E_INVALID,
                   "block %u overlaps one of its kind before it, or is not in order of time", b);
        at->last_end = of->problem->blocks[b].end;
    }
    return PST_OK;
}

/* Sorts the blocks by kind. */
static void find_order(bilevel *of)
{
    const uint32_t num_blocks = of->problem->num_blocks;
    uint32_t num = 0;
    for (uint32_t number = 0; number < num_blocks; number++) {
        of->num_kinds += of->kinds[number].blocks > 0;
        of->kinds[number].end = num;
        num += of->kinds[number].blocks;
    }
    for (uint32_t b = 0; b < num_blocks; b++)
        if (of->first[b] < of->first[b + 1])
            of->order[of->kinds[of->problem->blocks[b].kind].end++] = b;
}

/* False: no memory. What is little beside the problem is finished whatever the time, so that what was placed
 * is not lost; else is_late is set where the time ends. */
static bool finish(bilevel *of, psti_items *items, const psti_interval *intervals,
                   psti_limits *limits)
{
    const uint64_t most = of->flat->n / 16 > LITTLE ? of->flat->n / 16 : LITTLE;
    const bool is_little = of->num_after + items->num_intervals <= most;
    of->num_after += limits->over ? items->num_intervals : 0;
    const bool has_memory = psti_items_finish(items, intervals, is_little ? NULL : limits);
    of->is_late = of->is_late || (!is_little && limits->over);
    return has_memory;
}

/* Places the tensors of one pass. */
static pst_status run_level_1(bilevel *of, kind *at, psti_limits *limits)
{
    psti_items items;
    psti_answer answer = {.bound = 0};
    uint64_t *address = psti_calloc((size_t)at->num + 1, sizeof(*address));
    psti_interval *intervals = psti_calloc((size_t)at->num + 1, sizeof(*intervals));
    bool has_memory =
        psti_items_alloc(&items, at->num, at->num, 1, 0) && address != NULL && intervals != NULL;
    pst_status status = PST_E_NOMEM;
    if (has_memory) {
        for (uint32_t k = 0; k < at->num; k++) {
            const uint32_t i = of->members[at->begin + k];
            items.first[k + 1] = k + 1;
            items.size[k] = of->flat->size[i];
            items.pin[k] = PST_PLAN_FREE;
            intervals[k] =
                (psti_interval){of->problem->tensors[i].begin, &of->problem->tensors[i].end};
        }
        has_memory = finish(of, &items, intervals, limits);
    }
    if (has_memory && of->is_late) {
        status = PST_OK;
    } else if (has_memory) {
        answer.best.address = address;
        status = psti_solve(&items, limits, &answer);
        at->peak = answer.best.peak;
        at->bound = answer.bound;
        for (uint32_t k = 0; status == PST_OK && k < at->num; k++)
            of->within[at->begin + k] = address[k];
    }
    psti_free(address);
    psti_free(intervals);
    psti_items_free(&items);
    PSTI_CHECK(has_memory, PST_E_NOMEM, "out of memory for a block of %u tensors", at->num);
    return status;
}

/* Items of level 2: the kinds in the order of their numbers, then the loose tensors. */
static void fill_level_2(const bilevel *of, psti_items *items, psti_interval *intervals)
{
    const pst_plan_problem *problem = of->problem;
    uint32_t item = 0;
    uint32_t num = 0;
    for (uint32_t number = 0; number < problem->num_blocks; number++) {
        const kind *at = &of->kinds[number];
        if (at->blocks == 0)
            continue;
        for (uint32_t k = at->end - at->blocks; k < at->end; k++) {
            const pst_plan_block *block = &problem->blocks[of->order[k]];
            intervals[num++] = (psti_interval){block->begin, &block->end};
        }
        items->size[item] = at->peak;
        items->pin[item] = PST_PLAN_FREE;
        items->first[++item] = num;
    }
    for (uint32_t i = 0; i < of->flat->n; i++) {
        if (problem->tensors[i].block != PST_PLAN_NO_BLOCK)
            continue;
        intervals[num++] = (psti_interval){problem->tensors[i].begin, &problem->tensors[i].end};
        items->size[item] = of->flat->size[i];
        items->pin[item] = of->flat->pin[i];
        items->first[++item] = num;
    }
}

/* Pass by pass, so that offsets are written from the first to the last. */
static void write_offsets(bilevel *of, const uint64_t *address, uint64_t *offsets)
{
    const pst_plan_problem *problem = of->problem;
    const uint64_t unit = of->flat->unit;
    uint32_t item = 0;
    for (uint32_t number = 0; number < problem->num_blocks; number++)
        if (of->kinds[number].blocks > 0)
            of->kinds[number].address = address[item++];
    for (uint32_t b = 0; b < problem->num_blocks; b++) {
        const kind *at = &of->kinds[problem->blocks[b].kind];
        const uint64_t *within = of->within + at->begin;
        for (uint32_t k = of->first[b]; k < of->first[b + 1]; k++)
            offsets[of->members[k]] = (at->address + within[k - of->first[b]]) * unit;
    }
    for (uint32_t i = 0; i < of->flat->n; i++)
        if (problem->tensors[i].block == PST_PLAN_NO_BLOCK)
            offsets[i] = address[item++] * unit;
}

/* is_proved: every rectangle is as low as can be. */
static void conclude(const bilevel *of, const psti_answer *answer, bool is_proved, pst_plan *plan)
{
    const uint64_t unit = of->flat->unit;
    const psti_answer flat = {
        .best = answer->best, .bound = of->flat->bound, .prover = answer->prover};
    psti_conclude(of->flat, &flat, plan);
    if (is_proved && answer->bound > of->flat->bound)
        plan->mode_bound = answer->bound * unit;
    if (plan->mode_bound / unit > of->flat->capacity) {
        plan->status = PST_PLAN_IMPOSSIBLE;
        plan->stage = answer->prover;
        plan->peak = 0;
    } else if (plan->peak == plan->mode_bound) {
        plan->status = PST_PLAN_OPTIMAL;
    }
}

static pst_status run_level_2(bilevel *of, psti_limits *limits, uint64_t *offsets, pst_plan *plan)
{
    uint32_t num_intervals = of->num_loose;
    bool is_proved = true;
    for (uint32_t number = 0; number < of->problem->num_blocks; number++) {
        num_intervals += of->kinds[number].blocks;
        is_proved = is_proved && of->kinds[number].peak == of->kinds[number].bound;
    }
    psti_items items;
    psti_answer answer = {.bound = 0};
    uint64_t *address = psti_calloc((size_t)of->flat->n + 1, sizeof(*address));
    psti_interval *intervals = psti_calloc((size_t)num_intervals + 1, sizeof(*intervals));
    bool has_memory = psti_items_alloc(&items, of->num_kinds + of->num_loose, num_intervals, 1,
                                       of->problem->num_reserved) &&
                      address != NULL && intervals != NULL;
    pst_status status = PST_OK;
    if (has_memory) {
        items.unit = of->flat->unit;
        items.capacity = of->flat->capacity;
        items.goal = of->flat->goal;
        psti_items_reserve(&items, of->problem);
        fill_level_2(of, &items, intervals);
        has_memory = finish(of, &items, intervals, limits);
    }
    if (has_memory && !of->is_late) {
        answer.best.address = address;
        status = psti_solve(&items, limits, &answer);
    }
    if (has_memory && !of->is_late && status == PST_OK) {
        conclude(of, &answer, is_proved, plan);
        if (plan->status != PST_PLAN_IMPOSSIBLE)
            write_offsets(of, address, offsets);
    }
    psti_free(address);
    psti_free(intervals);
    psti_items_free(&items);
    PSTI_CHECK(has_memory, PST_E_NOMEM, "out of memory for a plan of %u blocks",
               of->problem->num_blocks);
    return status;
}

static uint64_t pinned_end(const pst_plan_problem *problem)
{
    uint64_t end = 0;
    for (uint64_t i = 0; i < problem->num_tensors; i++) {
        const pst_plan_tensor *tensor = &problem->tensors[i];
        if (tensor->pin != PST_PLAN_FREE &&
            tensor->pin + psti_plan_round(problem, tensor->bytes) > end)
            end = tensor->pin + psti_plan_round(problem, tensor->bytes);
    }
    return end;
}

/* A plan before anything is sorted, which stays where the time ends: tensors of a pass above each other,
 * and passes of each kind and other tensors above those. The largest tensor alone is the bound. */
static void stack_all(const bilevel *of, uint64_t *offsets, pst_plan *plan)
{
    const pst_plan_problem *problem = of->problem;
    const uint64_t pinned = pinned_end(problem), floor = psti_plan_floor(problem, pinned);
    uint64_t top = floor;
    for (uint32_t b = 0; b < problem->num_blocks; b++) {
        kind *at = &of->kinds[problem->blocks[b].kind];
        if (of->first[b] == of->first[b + 1])
            continue;
        if (b == at->block)
            at->address = top;
        uint64_t within = at->address;
        for (uint32_t k = of->first[b]; k < of->first[b + 1]; k++) {
            offsets[of->members[k]] = within;
            within += psti_plan_round(problem, problem->tensors[of->members[k]].bytes);
        }
        top = within > top ? within : top;
    }
    for (uint64_t i = 0; i < problem->num_tensors; i++) {
        const pst_plan_tensor *tensor = &problem->tensors[i];
        const uint64_t bytes = psti_plan_round(problem, tensor->bytes);
        if (bytes > plan->most_live_bytes) {
            plan->most_live_bytes = bytes;
            plan->bound_instant = tensor->begin;
        }
        if (tensor->block != PST_PLAN_NO_BLOCK)
            continue;
        offsets[i] = tensor->pin != PST_PLAN_FREE ? tensor->pin : top;
        top += tensor->pin != PST_PLAN_FREE ? 0 : bytes;
    }
    plan->peak = top > floor ? top : pinned;
    plan->lower_bound = plan->mode_bound = plan->most_live_bytes;
    plan->status = plan->peak == plan->lower_bound ? PST_PLAN_OPTIMAL : PST_PLAN_FEASIBLE;
}

static pst_status run_levels(bilevel *of, psti_limits *limits, uint64_t *offsets, pst_plan *plan)
{
    of->is_late = limits->over;
    for (uint32_t number = 0; !of->is_late && number < of->problem->num_blocks; number++)
        if (of->kinds[number].blocks > 0)
            PSTI_TRY(run_level_1(of, &of->kinds[number], limits));
    return of->is_late ? PST_OK : run_level_2(of, limits, offsets, plan);
}

static pst_status run(bilevel *of, psti_limits *limits, uint64_t *offsets, pst_plan *plan)
{
    psti_items flat;
    find_members(of);
    PSTI_TRY(find_kinds(of));
    find_order(of);
    stack_all(of, offsets, plan);
    pst_status status = psti_plan_items(of->problem, false, limits, &flat);
    of->flat = &flat;
    if (status == PST_OK)
        status = run_levels(of, limits, offsets, plan);
    of->flat = NULL;
    psti_items_free(&flat);
    return status;
}

pst_status psti_plan_bilevel(const pst_plan_problem *problem, psti_limits *limits,
                             uint64_t *offsets, pst_plan *plan)
{
    PSTI_CHECK(problem->num_streams <= 1, PST_E_UNSUPPORTED,
               "mode bilevel with %u streams: allowed is one", problem->num_streams);
    bilevel of;
    const bool has_memory = bilevel_open(&of, problem);
    const pst_status status = has_memory ? run(&of, limits, offsets, plan) : PST_OK;
    bilevel_close(&of);
    PSTI_CHECK(has_memory, PST_E_NOMEM, "out of memory for %u blocks", problem->num_blocks);
    return status;
}
