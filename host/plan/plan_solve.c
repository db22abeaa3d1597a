/* All stages over the parts of a problem. Their highest placement decides, so it is always the highest
 * part that goes one stage, or one round of the search, further. */
#include "host/plan/plan.h"

#include <stdlib.h>

/* That a question may take, of merged tensors and in the first round of the search; there one of merged
 * tensors gets a quarter, since it is asked about as often as one of the ladder. */
#define STEPS_MERGED (UINT64_C(1) << 16)
#define STEPS_FIRST (UINT64_C(1) << 21)

/* What comes next for a part. */
typedef enum level { FIRST_ORDER, ALL_ORDERS, MERGED, SEARCH, EXHAUSTED } level;

/* A part that is not like one before it. */
typedef struct work {
    uint32_t part;
    uint64_t peak;  /* with base */
    uint64_t bound; /* of this part alone, without base, as far as searched */
    uint64_t steps;
    level level;
    pst_plan_stage stage; /* of its placement */
} work;

typedef struct solver {
    psti_parts parts;
    psti_limits *limits;
    psti_answer *answer;
    uint64_t goal; /* of the user's; 0: none */
    work *works;
    uint32_t num_works;
} solver;

static int by_peak(const void *a, const void *b)
{
    const work *x = a;
    const work *y = b;
    if (x->peak != y->peak)
        return x->peak > y->peak ? -1 : 1;
    return (x->part > y->part) - (x->part < y->part);
}

/* A peak that is low enough. */
static uint64_t goal_of(const solver *of)
{
    return of->answer->bound > of->goal ? of->answer->bound : of->goal;
}

static bool search_merged(const solver *of, const psti_items *items, uint64_t steps,
                          psti_best *best)
{
    return items->n > PSTI_WHOLE_MAX ||
           psti_search_merged(items, goal_of(of) - of->parts.base, steps, of->limits, best);
}

static bool run_search(solver *of, work *at, const psti_items *items, psti_best *best)
{
    const uint64_t base = of->parts.base;
    pst_plan_stage prover = PST_STAGE_BOUND;
    at->bound = at->bound > items->bound ? at->bound : items->bound;
    const bool right =
        psti_search(items, goal_of(of) - base, of->limits, best, &at->bound, &at->steps, &prover);
    if (at->bound + base > of->answer->bound) {
        of->answer->bound = at->bound + base;
        of->answer->prover = prover;
    }
    if (at->steps == 0)
        at->level = EXHAUSTED;
    return right;
}

static bool may_search(const psti_items *items)
{
    return items->num_streams == 1 && items->num_intervals == items->n;
}

static bool run_level(solver *of, work *at, const psti_items *items, psti_best *best)
{
    const uint64_t goal = goal_of(of) - of->parts.base;
    switch (at->level) {
    case FIRST_ORDER:
        at->level = ALL_ORDERS;
        return psti_place_first(items, of->limits, best);
    case ALL_ORDERS:
        at->level = may_search(items) ? MERGED : EXHAUSTED;
        return psti_place_in_orders(items, goal, of->limits, best);
    case MERGED:
        at->level = SEARCH;
        return search_merged(of, items, STEPS_MERGED, best);
    case SEARCH:
        return search_merged(of, items, at->steps / 4, best) && run_search(of, at, items, best);
    case EXHAUSTED:
        break;
    }
    return true;
}

/* The part's addresses among all, and back. */
static void move_addresses(const solver *of, uint32_t p, uint64_t *part, bool is_back)
{
    const psti_part *from = &of->parts.list[p];
    for (uint32_t k = 0; k < from->num; k++) {
        uint64_t *address = &of->answer->best.address[of->parts.members[from->first + k]];
        if (is_back)
            *address = part[k] + of->parts.base;
        else
            part[k] = *address - of->parts.base;
    }
}

/* One stage, or one round of the search, of one part. */
static bool advance_cut(solver *of, work *at)
{
    const uint32_t num = of->parts.list[at->part].num;
    psti_items items;
    psti_best best = {.peak = at->peak - of->parts.base, .stage = at->stage};
    best.address = psti_calloc((size_t)num + 1, sizeof(*best.address));
    bool right = psti_parts_cut(&of->parts, at->part, &items) && best.address != NULL;
    if (right) {
        move_addresses(of, at->part, best.address, false);
        right = run_level(of, at, &items, &best);
    }
    if (right) {
        move_addresses(of, at->part, best.address, true);
        at->peak = best.peak + of->parts.base;
        at->stage = best.stage;
    }
    psti_items_free(&items);
    psti_free(best.address);
    return right;
}

static bool advance(solver *of, work *at)
{
    if (of->parts.members != NULL)
        return advance_cut(of, at);
    psti_best best = {at->peak, of->answer->best.address, at->stage};
    const bool right = run_level(of, at, of->parts.items, &best);
    at->peak = best.peak;
    at->stage = best.stage;
    return right;
}

static bool may_go_on(const solver *of)
{
    const psti_limits *limits = of->limits;
    return !limits->over && !limits->out_of_steps && of->answer->bound <= of->parts.items->capacity;
}

/* Takes the parts further, the highest first, until one that is not the highest any more. False: no
 * memory. *has_more_out: whether anything was done. */
static bool sweep(solver *of, bool *has_more_out)
{
    uint64_t reached = 0;
    *has_more_out = false;
    qsort(of->works, of->num_works, sizeof(*of->works), by_peak);
    for (uint32_t k = 0; k < of->num_works && may_go_on(of); k++) {
        work *at = &of->works[k];
        if (at->peak <= goal_of(of) || at->peak <= reached)
            break;
        *has_more_out = *has_more_out || at->level != EXHAUSTED;
        if (!advance(of, at))
            return false;
        reached = at->peak > reached ? at->peak : reached;
    }
    return true;
}

static bool solver_open(solver *of, const psti_items *items)
{
    psti_answer *answer = of->answer;
    uint32_t num = 0;
    if (!psti_parts_open(&of->parts, items, of->limits))
        return false;
    for (uint32_t p = 0; p < of->parts.num; p++)
        num += of->parts.list[p].like == p;
    of->works = psti_calloc((size_t)num + 1, sizeof(*of->works));
    if (of->works == NULL)
        return false;
    for (uint32_t p = 0; p < of->parts.num; p++)
        if (of->parts.list[p].like == p)
            of->works[of->num_works++] = (work){.part = p, .steps = STEPS_FIRST};
    answer->num_parts = of->parts.num;
    answer->num_kinds = num;
    answer->period = psti_parts_period(&of->parts);
    return true;
}

/* What lives throughout, and the parts that are like others. */
static void fill_in(const solver *of)
{
    uint64_t *address = of->answer->best.address;
    uint64_t below = 0;
    for (uint32_t i = 0; i < of->parts.items->n && of->parts.base > 0; i++)
        if (psti_parts_lives_throughout(&of->parts, i)) {
            address[i] = below;
            below += of->parts.items->size[i];
        }
    for (uint32_t p = 0; p < of->parts.num; p++) {
        const psti_part *part = &of->parts.list[p];
        const psti_part *like = &of->parts.list[part->like];
        for (uint32_t k = 0; k < part->num && like != part; k++)
            address[of->parts.members[part->first + k]] =
                address[of->parts.members[like->first + k]];
    }
}

static bool solve(solver *of)
{
    bool has_more = true;
    for (uint32_t k = 0; k < of->num_works; k++) {
        of->works[k].peak = of->parts.base;
        if (!advance(of, &of->works[k]))
            return false;
    }
    while (has_more && may_go_on(of))
        if (!sweep(of, &has_more))
            return false;
    of->answer->is_exhausted = !has_more;
    qsort(of->works, of->num_works, sizeof(*of->works), by_peak);
    of->answer->best.peak = of->works[0].peak;
    of->answer->best.stage = of->works[0].stage;
    fill_in(of);
    return true;
}

pst_status psti_solve(const psti_items *items, psti_limits *limits, psti_answer *answer)
{
    const uint64_t *address = answer->best.address;
    *answer = (psti_answer){.bound = items->bound, .prover = PST_STAGE_BOUND};
    answer->best.address = (uint64_t *)address;
    if (items->n == 0)
        return PST_OK;
    solver of = {.limits = limits, .answer = answer, .goal = items->goal};
    const bool right = solver_open(&of, items) && solve(&of);
    psti_free(of.works);
    psti_parts_close(&of.parts);
    PSTI_CHECK(right, PST_E_NOMEM, "out of memory for a plan of %u tensors", items->n);
    return PST_OK;
}
