/* Exact search over a whole problem, with a ladder of targets between the bound and the best
 * placement, and over windows around what stands highest, with all else where it is. */
#include "host/base/table.h"
#include "host/plan/plan.h"

#include <stdlib.h>
#include <string.h>

enum {
    WINDOW_MIN = 48, /* items of a window; doubled where it fails */
    WINDOW_MAX = 384,
    NEAR = 64, /* part of a bound by which a goal may exceed it and is nearly the same */
};
#define SLICE_WINDOW (UINT64_C(1) << 16) /* steps of a question */

/* A problem for psti_exact_search, cut out of items. */
typedef struct cutting {
    const psti_items *items;
    uint64_t target; /* what is fixed above it is in nobody's way */
    bool is_denied;  /* memory, not steps, ended a search of it */
    psti_exact_problem problem;
    uint32_t *begin, *end, *item; /* item: UINT32_MAX for a reserved range */
    uint64_t *size, *pin, *length, *address;
} cutting;

static bool cutting_open(cutting *of, const psti_items *items, uint32_t max_tensors)
{
    const size_t n = (size_t)max_tensors + 1;
    *of = (cutting){.items = items,
                    .begin = psti_calloc(n, sizeof(*of->begin)),
                    .end = psti_calloc(n, sizeof(*of->end)),
                    .item = psti_calloc(n, sizeof(*of->item)),
                    .size = psti_calloc(n, sizeof(*of->size)),
                    .pin = psti_calloc(n, sizeof(*of->pin)),
                    .length = psti_calloc(n, sizeof(*of->length)),
                    .address = psti_calloc(n, sizeof(*of->address))};
    return of->begin != NULL && of->end != NULL && of->item != NULL && of->size != NULL &&
           of->pin != NULL && of->length != NULL && of->address != NULL;
}

static void cutting_close(cutting *of)
{
    psti_free(of->begin);
    psti_free(of->end);
    psti_free(of->item);
    psti_free(of->size);
    psti_free(of->pin);
    psti_free(of->length);
    psti_free(of->address);
}

static void cutting_begin(cutting *of, uint32_t num_slots, uint64_t target)
{
    of->target = target;
    of->problem =
        (psti_exact_problem){0, num_slots, of->begin, of->end, of->size, of->pin, of->length};
}

static void cutting_add(cutting *of, uint32_t item, uint32_t begin, uint32_t end, uint64_t size,
                        uint64_t pin)
{
    if (pin != PST_PLAN_FREE && pin >= of->target)
        return;
    if (pin != PST_PLAN_FREE && size > of->target - pin)
        size = of->target - pin;
    const uint32_t k = of->problem.num_tensors++;
    of->item[k] = item;
    of->begin[k] = begin;
    of->end[k] = end;
    of->size[k] = size;
    of->pin[k] = pin;
    of->length[k] = item != UINT32_MAX ? of->items->length[item] : 1;
}

static void cutting_add_reserved(cutting *of)
{
    const psti_items *items = of->items;
    for (uint32_t r = 0; r < items->num_reserved; r++)
        cutting_add(of, UINT32_MAX, 0, of->problem.num_slots,
                    items->reserved[r].end - items->reserved[r].begin, items->reserved[r].begin);
}

typedef struct searcher {
    const psti_items *items;
    psti_limits *limits;
    psti_best *best;
    uint64_t *bound;
    uint64_t goal; /* a peak that is low enough */
    cutting whole, window;
    psti_pair *ranks; /* [n]: how unlike an item is, and its number */
    bool *is_free;    /* [n] */
    bool no_memory;
} searcher;

psti_verdict psti_search_slice(const psti_exact_problem *problem, uint64_t target, uint64_t steps,
                               psti_limits *limits, uint64_t *offsets, bool *is_denied)
{
    psti_limits slice = *limits;
    const uint64_t most =
        steps > UINT64_MAX / limits->num_threads ? UINT64_MAX : steps * limits->num_threads;
    const uint64_t given = most < slice.steps_left ? most : slice.steps_left;
    slice.steps_left = given;
    slice.out_of_memory = false;
    const psti_verdict verdict = psti_exact_search(problem, target, &slice, offsets);
    limits->steps_left -= given - slice.steps_left;
    limits->over |= slice.over;
    limits->out_of_memory |= slice.out_of_memory;
    limits->out_of_steps |= slice.out_of_steps && limits->steps_left == 0;
    *is_denied |= slice.out_of_memory && slice.steps_left > 0 && !slice.over;
    return verdict;
}

static psti_verdict ask(searcher *of, cutting *about, uint64_t target, uint64_t steps)
{
    const psti_verdict verdict = psti_search_slice(&about->problem, target, steps, of->limits,
                                                   about->address, &about->is_denied);
    of->no_memory |= verdict == PSTI_NO_MEMORY;
    return verdict;
}

static bool may_go_on(const searcher *of)
{
    return !of->no_memory && !of->limits->over && !of->limits->out_of_steps &&
           *of->bound < of->best->peak && of->goal < of->best->peak &&
           *of->bound <= of->items->capacity;
}

/* What is asked first: the bound, or what is low enough. */
static uint64_t first_target(const searcher *of)
{
    return *of->bound > of->goal ? *of->bound : of->goal;
}

static uint64_t top_of(const searcher *of)
{
    uint64_t top = 0;
    for (uint32_t i = 0; i < of->items->n; i++)
        if (of->best->address[i] + of->items->size[i] > top)
            top = of->best->address[i] + of->items->size[i];
    return top;
}

static void accept(searcher *of, const cutting *from, pst_plan_stage stage)
{
    for (uint32_t k = 0; k < from->problem.num_tensors; k++)
        if (from->item[k] != UINT32_MAX)
            of->best->address[from->item[k]] = from->address[k];
    of->best->peak = top_of(of);
    of->best->stage = stage;
}

static void cut_whole(searcher *of, uint64_t target)
{
    const psti_items *items = of->items;
    cutting_begin(&of->whole, items->num_slots, target);
    cutting_add_reserved(&of->whole);
    for (uint32_t i = 0; i < items->n; i++)
        cutting_add(&of->whole, i, items->begin[i], items->end[i], items->size[i], items->pin[i]);
}

/* Asks whether all fits below the target, and takes what that shows. */
static psti_verdict ask_whole(searcher *of, uint64_t target, uint64_t steps, pst_plan_stage *prover)
{
    cut_whole(of, target);
    const psti_verdict verdict = ask(of, &of->whole, target, steps);
    if (verdict == PSTI_FOUND)
        accept(of, &of->whole, PST_STAGE_SEARCH);
    if (verdict == PSTI_NONE) {
        *of->bound = target + 1;
        *prover = PST_STAGE_SEARCH;
    }
    return verdict;
}

static uint64_t next_rung(const searcher *of, uint64_t target)
{
    return target + (of->best->peak - target + 1) / 2;
}

/* Asks at the target, then, while no answer comes, ever closer to the best placement. */
static void climb(searcher *of, uint64_t target, uint64_t slice, pst_plan_stage *prover)
{
    while (may_go_on(of) && target < of->best->peak) {
        const uint64_t steps = target == *of->bound ? slice : slice / 4;
        const psti_verdict verdict = ask_whole(of, target, steps, prover);
        if (verdict == PSTI_FOUND)
            target = *of->bound + (of->best->peak - *of->bound) / 2;
        else if (verdict == PSTI_NONE)
            target = *of->bound;
        else
            target = next_rung(of, target);
    }
}

/* Asks for what is low enough, and in turns for the lowest: where they are nearly the same that is
 * found sooner, since a search ends soon in which little may be wasted. */
static void take_turns(searcher *of, uint64_t slice, pst_plan_stage *prover)
{
    bool is_for_goal = of->goal - *of->bound > *of->bound / NEAR;
    for (uint64_t steps = slice / 64; may_go_on(of) && steps < slice; is_for_goal = !is_for_goal) {
        const uint64_t target = is_for_goal ? first_target(of) : *of->bound;
        (void)ask_whole(of, target, is_for_goal ? 8 * steps : steps, prover);
        steps *= is_for_goal ? 1 : 4;
    }
}

/* The item that stands highest. */
static uint32_t highest(const searcher *of)
{
    uint32_t found = 0;
    uint64_t top = 0;
    for (uint32_t i = 0; i < of->items->n; i++)
        if (of->items->pin[i] == PST_PLAN_FREE && of->best->address[i] + of->items->size[i] > top) {
            top = of->best->address[i] + of->items->size[i];
            found = i;
        }
    return found;
}

static uint32_t apart(uint32_t a, uint32_t b)
{
    return a > b ? a - b : b - a;
}

/* Puts the items that live with `item` first, those with nearly the same life foremost: they can
 * change places with it. Returns how many. */
static uint32_t rank_neighbours(searcher *of, uint32_t item)
{
    const psti_items *items = of->items;
    uint32_t num = 0;
    for (uint32_t i = 0; i < items->n; i++)
        if (items->pin[i] == PST_PLAN_FREE && items->begin[i] < items->end[item] &&
            items->begin[item] < items->end[i])
            of->ranks[num++] = (psti_pair){(uint64_t)apart(items->begin[i], items->begin[item]) +
                                               apart(items->end[i], items->end[item]),
                                           i};
    psti_sort_pairs(of->ranks, num);
    return num;
}

/* The first `num` of the ranked items are free, all others that live with them stay. */
static void cut_window(searcher *of, uint32_t num, uint64_t target)
{
    const psti_items *items = of->items;
    uint32_t low = UINT32_MAX;
    uint32_t high = 0;
    memset(of->is_free, 0, items->n * sizeof(*of->is_free));
    for (uint32_t k = 0; k < num; k++) {
        const uint32_t i = (uint32_t)of->ranks[k].value;
        of->is_free[i] = true;
        low = items->begin[i] < low ? items->begin[i] : low;
        high = items->end[i] > high ? items->end[i] : high;
    }
    cutting_begin(&of->window, high - low, target);
    cutting_add_reserved(&of->window);
    for (uint32_t i = 0; i < items->n; i++) {
        if (items->begin[i] >= high || items->end[i] <= low)
            continue;
        const uint32_t begin = items->begin[i] > low ? items->begin[i] - low : 0;
        const uint32_t end = (items->end[i] < high ? items->end[i] : high) - low;
        cutting_add(&of->window, i, begin, end, items->size[i],
                    of->is_free[i] ? PST_PLAN_FREE : of->best->address[i]);
    }
}

/* Tries to get the highest item down. */
static bool lower_highest(searcher *of)
{
    const uint32_t item = highest(of);
    const uint32_t num = rank_neighbours(of, item);
    const uint64_t top = of->best->address[item] + of->items->size[item];
    for (uint32_t size = WINDOW_MIN; may_go_on(of); size *= 2) {
        uint64_t target = first_target(of);
        while (may_go_on(of) && target < top) {
            cut_window(of, num < size ? num : size, target);
            if (ask(of, &of->window, target, SLICE_WINDOW) == PSTI_FOUND) {
                accept(of, &of->window, PST_STAGE_WINDOW);
                return true;
            }
            target += (top - target + 1) / 2;
        }
        if (size >= num || size >= WINDOW_MAX)
            return false;
    }
    return false;
}

static bool searcher_open(searcher *of)
{
    const uint32_t n = of->items->n;
    const uint32_t num = n + of->items->num_reserved;
    of->ranks = psti_calloc((size_t)n + 1, sizeof(*of->ranks));
    of->is_free = psti_calloc((size_t)n + 1, sizeof(*of->is_free));
    const bool has_whole = cutting_open(&of->whole, of->items, num);
    const bool has_window = cutting_open(&of->window, of->items, num);
    return of->ranks != NULL && of->is_free != NULL && has_whole && has_window;
}

static void searcher_close(searcher *of)
{
    psti_free(of->ranks);
    psti_free(of->is_free);
    cutting_close(&of->whole);
    cutting_close(&of->window);
}

bool psti_search(const psti_items *items, uint64_t goal, psti_limits *limits, psti_best *best,
                 uint64_t *bound, uint64_t *steps, pst_plan_stage *prover)
{
    searcher of = {.items = items, .limits = limits, .best = best, .bound = bound, .goal = goal};
    of.no_memory = !searcher_open(&of);
    const bool is_small = items->n <= PSTI_WHOLE_MAX;
    const uint64_t steps_left = limits->steps_left;
    bool may_lower = true;
    if (is_small && goal > *bound)
        take_turns(&of, *steps, prover);
    else if (is_small)
        climb(&of, *bound, *steps, prover);
    if (is_small && goal > *bound && items->goal == 0) /* else nothing above it is wanted */
        climb(&of, next_rung(&of, goal), *steps, prover);
    while (may_go_on(&of) && may_lower)
        may_lower = lower_highest(&of);
    /* more steps help the whole only, and nothing that lacks memory */
    if (!is_small || of.whole.is_denied || limits->steps_left == steps_left)
        *steps = 0;
    else if (*steps < UINT64_MAX / 8)
        *steps *= 4;
    searcher_close(&of);
    return !of.no_memory;
}
