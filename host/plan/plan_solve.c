/* All stages over the parts of a problem. Their highest placement decides, so it is always the highest
 * part that goes one stage, or one round of the search, further. A part may stand on more than it must:
 * if that keeps it too high, it becomes one with all that follow. */
#include "host/plan/plan.h"

#include <stdlib.h>

/* That a question may take, of merged tensors and in the first round of the search; there one of merged
 * tensors gets a quarter, since it is asked about as often as one of the ladder. */
#define STEPS_MERGED (UINT64_C(1) << 16)
#define STEPS_FIRST (UINT64_C(1) << 21)
/* Of a part that may stand on more than it must: it has one round only. */
#define STEPS_RAISED (UINT64_C(1) << 16)

/* What comes next for a part. */
typedef enum level { FIRST_ORDER, ALL_ORDERS, MERGED, SEARCH, EXHAUSTED } level;

/* A part that is not like one before it. */
typedef struct work {
    uint32_t part;
    uint64_t peak;  /* of the highest that are like it; UINT64_MAX: not placed */
    uint64_t bound; /* of this part alone, counted from its floor */
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

static const psti_part *part_of(const solver *of, const work *at)
{
    return &of->parts.list[at->part];
}

static uint64_t floor_of(const solver *of, const work *at)
{
    return of->parts.list[part_of(of, at)->highest].floor;
}

/* What it stands on in any plan. */
static uint64_t sure_floor_of(const solver *of, const work *at)
{
    return of->parts.list[part_of(of, at)->highest].sure_floor;
}

static bool is_raised(const solver *of, const work *at)
{
    return floor_of(of, at) > sure_floor_of(of, at);
}

static bool search_merged(const solver *of, const work *at, const psti_items *items, uint64_t steps,
                          psti_best *best)
{
    const uint64_t goal = goal_of(of) - floor_of(of, at);
    return items->n > PSTI_WHOLE_MAX || psti_search_merged(items, goal, steps, of->limits, best);
}

static bool run_search(solver *of, work *at, const psti_items *items, psti_best *best)
{
    pst_plan_stage prover = PST_STAGE_BOUND;
    const bool right = psti_search(items, goal_of(of) - floor_of(of, at), of->limits, best,
                                   &at->bound, &at->steps, &prover);
    if (at->bound + sure_floor_of(of, at) > of->answer->bound) {
        of->answer->bound = at->bound + sure_floor_of(of, at);
        of->answer->prover = prover;
    }
    if (at->steps == 0 || is_raised(of, at))
        at->level = EXHAUSTED;
    return right;
}

static bool may_search(const psti_items *items)
{
    return items->num_streams == 1 && items->num_intervals == items->n;
}

static bool run_level(solver *of, work *at, const psti_items *items, psti_best *best)
{
    const uint64_t goal = goal_of(of) - floor_of(of, at);
    at->bound = at->bound > items->bound ? at->bound : items->bound;
    switch (at->level) {
    case FIRST_ORDER:
        at->level = ALL_ORDERS;
        return psti_place_first(items, of->limits, best);
    case ALL_ORDERS:
        at->level = may_search(items) ? MERGED : EXHAUSTED;
        return psti_place_in_orders(items, goal, of->limits, best);
    case MERGED:
        at->level = SEARCH;
        return search_merged(of, at, items, STEPS_MERGED, best);
    case SEARCH:
        return search_merged(of, at, items, at->steps / 4, best) && run_search(of, at, items, best);
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
            *address = part[k] + from->floor;
        else
            part[k] = *address - from->floor;
    }
}

/* One stage, or one round of the search, of one part. The first order of several that became one may be
 * worse than what they had. */
static bool advance_cut(solver *of, work *at)
{
    const uint32_t num = part_of(of, at)->num;
    const uint64_t floor = floor_of(of, at);
    psti_items items;
    psti_best best = {.peak = at->peak - floor, .stage = at->stage};
    best.address = psti_calloc((size_t)num + 1, sizeof(*best.address));
    bool right = psti_parts_cut(&of->parts, at->part, of->limits, &items) && best.address != NULL;
    if (right) {
        move_addresses(of, at->part, best.address, false);
        right = run_level(of, at, &items, &best);
    }
    if (right && best.peak + floor <= at->peak) {
        move_addresses(of, at->part, best.address, true);
        at->peak = best.peak + floor;
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

/* The parts that are like others. */
static void fill_in(const solver *of)
{
    uint64_t *address = of->answer->best.address;
    for (uint32_t p = 0; p < of->parts.num; p++) {
        const psti_part *part = &of->parts.list[p];
        const psti_part *like = &of->parts.list[part->like];
        for (uint32_t k = 0; k < part->num && like != part; k++)
            address[of->parts.members[part->first + k]] =
                address[of->parts.members[like->first + k]] - like->floor + part->floor;
    }
}

/* It cannot come down, or has not, and might if it stood on what it must. */
static bool is_kept_high(const solver *of, const work *at)
{
    return is_raised(of, at) &&
           (at->level == EXHAUSTED || at->bound + floor_of(of, at) > goal_of(of));
}

/* The first of the parts that are like this one, stand too high and might come down. */
static uint32_t first_too_high(const solver *of, const work *at)
{
    const uint64_t height = at->peak - floor_of(of, at);
    const psti_part *part = part_of(of, at);
    while (part->like != at->part || part->floor == part->sure_floor ||
           part->floor + height <= goal_of(of))
        part++;
    return (uint32_t)(part - of->parts.list);
}

static uint64_t top_of(const solver *of, const psti_part *part)
{
    uint64_t top = part->floor;
    for (uint32_t k = 0; k < part->num; k++) {
        const uint32_t i = of->parts.members[part->first + k];
        const uint64_t end = of->answer->best.address[i] + of->parts.items->size[i];
        top = end > top ? end : top;
    }
    return top;
}

/* This part and all that follow begin anew as one, from the placement that there is. */
static void join(solver *of, const work *at)
{
    const pst_plan_stage stage = at->stage;
    const uint32_t last = first_too_high(of, at);
    uint32_t num = 0;
    fill_in(of);
    for (uint32_t k = 0; k < of->num_works; k++)
        of->works[k].peak -= floor_of(of, &of->works[k]);
    psti_parts_join(&of->parts, last);
    for (uint32_t k = 0; k < of->num_works; k++)
        if (of->works[k].part < last) {
            of->works[num] = of->works[k];
            of->works[num].peak += floor_of(of, &of->works[num]);
            num++;
        }
    of->works[num++] = (work){.part = last,
                              .peak = top_of(of, &of->parts.list[last]),
                              .steps = STEPS_FIRST,
                              .stage = stage};
    of->num_works = num;
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
        const bool has_more = at->level != EXHAUSTED || is_raised(of, at);
        *has_more_out = *has_more_out || has_more;
        if (is_kept_high(of, at)) {
            join(of, at);
            break;
        }
        if (!advance(of, at))
            return false;
        reached = at->peak > reached ? at->peak : reached;
    }
    return true;
}

static bool solver_open(solver *of, const psti_items *items)
{
    uint32_t num = 0;
    if (!psti_parts_open(&of->parts, items, of->answer->best.address, of->limits))
        return false;
    for (uint32_t p = 0; p < of->parts.num; p++)
        num += of->parts.list[p].like == p;
    of->works = psti_calloc((size_t)num + 1, sizeof(*of->works));
    if (of->works == NULL)
        return false;
    for (uint32_t p = 0; p < of->parts.num; p++)
        if (of->parts.list[p].like == p) {
            work *at = &of->works[of->num_works++];
            *at = (work){.part = p, .peak = UINT64_MAX};
            at->steps = is_raised(of, at) ? STEPS_RAISED : STEPS_FIRST;
        }
    return true;
}

static void report(const solver *of)
{
    psti_answer *answer = of->answer;
    answer->best.peak = of->works[0].peak;
    answer->best.stage = of->works[0].stage;
    answer->num_parts = of->parts.num;
    answer->num_kinds = of->num_works;
    answer->period = psti_parts_period(&of->parts);
}

static bool solve(solver *of)
{
    bool has_more = true;
    for (uint32_t k = 0; k < of->num_works; k++)
        if (!advance(of, &of->works[k]))
            return false;
    while (has_more && may_go_on(of))
        if (!sweep(of, &has_more))
            return false;
    of->answer->is_exhausted = !has_more;
    qsort(of->works, of->num_works, sizeof(*of->works), by_peak);
    fill_in(of);
    report(of);
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
