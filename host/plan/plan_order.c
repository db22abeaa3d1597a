/* Placements in an order. A portfolio of orders comes first; then the best of them are repaired: what
 * stands above the bound is placed earlier the next time (squeaky wheel optimisation, Joslin and
 * Clements, JAIR 10, 1999). */
#include "host/base/table.h"
#include "host/plan/plan.h"

#include "kernels/core/mix.h"

#include <string.h>

enum {
    STRIDE = 256,
    NUM_ROUNDS = 12,
    NUM_CHAINS = 8,
    FEW_ITEMS = 512, /* are placed before another thread has begun */
};

#define NOWHERE UINT64_MAX /* an address */

typedef enum key_kind {
    BY_CONTENTION,
    BY_PEAK, /* first what lives in the fullest slot, the longest first; then the rest by size */
    BY_SIZE,
    BY_DURATION,
    BY_AREA,
    BY_START,
    BY_END,
} key_kind;

/* Contention first: it ends most runs (docs/planner.md has the measurements). */
static const struct {
    key_kind keys[2];
    bool best_fit;
} passes[PSTI_NUM_PASSES] = {
    {{BY_CONTENTION, BY_DURATION}, false},
    {{BY_CONTENTION, BY_SIZE}, false},
    {{BY_CONTENTION, BY_AREA}, false},
    {{BY_PEAK, BY_DURATION}, false},
    {{BY_CONTENTION, BY_DURATION}, true},
    {{BY_CONTENTION, BY_SIZE}, true},
    {{BY_CONTENTION, BY_AREA}, true},
    {{BY_PEAK, BY_DURATION}, true},
    {{BY_DURATION, BY_SIZE}, false},
    {{BY_SIZE, BY_DURATION}, false},
    {{BY_AREA, BY_SIZE}, false},
    {{BY_START, BY_SIZE}, false},
    {{BY_END, BY_SIZE}, false},
    {{BY_DURATION, BY_SIZE}, true},
    {{BY_SIZE, BY_DURATION}, true},
    {{BY_AREA, BY_SIZE}, true},
    {{BY_START, BY_SIZE}, true},
    {{BY_END, BY_SIZE}, true},
};

static uint64_t key_of(const psti_items *items, uint32_t i, key_kind kind)
{
    uint64_t duration = 0;
    bool at_peak = false;
    for (uint32_t k = items->first[i]; k < items->first[i + 1]; k++) {
        const uint32_t end = items->end[(size_t)k * items->num_streams];
        duration += end - items->begin[k];
        at_peak |= items->begin[k] <= items->max_slot && items->max_slot < end;
    }
    switch (kind) {
    case BY_CONTENTION:
        return items->contention[i];
    case BY_PEAK:
        return at_peak ? PST_PLAN_MAX_BYTES + duration : items->size[i];
    case BY_SIZE:
        return items->size[i];
    case BY_DURATION:
        return duration;
    case BY_AREA:
        return duration > 0 && items->size[i] > UINT64_MAX / duration ? UINT64_MAX
                                                                      : items->size[i] * duration;
    case BY_START:
        return UINT32_MAX - items->begin[items->first[i]];
    case BY_END:
        return items->end[(size_t)(items->first[i + 1] - 1) * items->num_streams];
    }
    return 0;
}

/* What one thread places with. */
typedef struct bench {
    const psti_items *items;
    psti_room *room;
    uint32_t *order;   /* [n] items */
    uint64_t *address; /* [n] */
} bench;

static bool bench_open(bench *at, const psti_items *items)
{
    *at = (bench){.items = items};
    at->room = psti_room_open(items);
    at->order = psti_calloc((size_t)items->n + 1, sizeof(*at->order));
    at->address = psti_calloc((size_t)items->n + 1, sizeof(*at->address));
    return at->room != NULL && at->order != NULL && at->address != NULL;
}

static void bench_close(bench *at)
{
    psti_room_close(at->room);
    psti_free(at->order);
    psti_free(at->address);
}

typedef enum outcome { DONE, ABANDONED, OUT_OF_MEMORY } outcome;

/* Sorts the ranks, and fills order from the low halves of their values. False: the time is over. */
static bool sort_ranks(psti_pair *ranks, uint32_t n, psti_limits *limits, uint32_t *order)
{
    if (!psti_limits_sort(limits, (uint64_t *)ranks, n, 2))
        return false;
    uint32_t k = 0;
    for (; k < n && !psti_limits_over_at(limits, k); k++)
        order[k] = (uint32_t)ranks[k].value;
    return k == n;
}

/* Items by the second key, then, so that it decides, by the first; both falling. */
static outcome rank_pass(const psti_items *items, uint32_t pass, psti_limits *limits,
                         uint32_t *order)
{
    const uint32_t n = items->n;
    psti_pair *ranks = psti_calloc((size_t)n + 1, sizeof(*ranks));
    if (ranks == NULL)
        return OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n && !psti_limits_over_at(limits, i); i++)
        ranks[i] = (psti_pair){~key_of(items, i, passes[pass].keys[1]), i};
    bool right = sort_ranks(ranks, n, limits, order);
    for (uint32_t k = 0; k < n && right; k++) {
        right = !psti_limits_over_at(limits, k);
        ranks[k] = (psti_pair){~key_of(items, order[k], passes[pass].keys[0]),
                               (uint64_t)k << 32 | order[k]};
    }
    right = right && sort_ranks(ranks, n, limits, order);
    psti_free(ranks);
    return right ? DONE : ABANDONED;
}

/* What the threads of a stage share. */
typedef struct stage {
    const psti_items *items;
    psti_limits *limits;
    psti_best *best;
    uint64_t goal;
    pst_plan_stage kind;
    uint32_t next;               /* atomic: job to take */
    uint32_t won;                /* atomic: the first job that reached the goal, or UINT32_MAX */
    uint32_t no_memory;          /* atomic */
    uint32_t chains[NUM_CHAINS]; /* repair: pass that each begins with */
    uint64_t peaks[PSTI_NUM_PASSES];
    uint64_t *found[PSTI_NUM_PASSES]; /* [n] addresses of each job's best */
} stage;

static bool is_abandoned(stage *of, uint32_t job, uint32_t left)
{
    return !psti_limits_take(of->limits, left < STRIDE ? left : STRIDE) ||
           __atomic_load_n(&of->won, __ATOMIC_RELAXED) < job;
}

static bool place_one(psti_room *room, const psti_items *items, uint32_t item, bool best_fit,
                      psti_best *best)
{
    best->address[item] = items->pin[item];
    if (items->pin[item] == PST_PLAN_FREE) {
        best->address[item] = psti_room_find(room, item, best_fit);
        if (!psti_room_take(room, item, best->address[item]))
            return false;
    }
    const uint64_t top = best->address[item] + items->size[item];
    best->peak = top > best->peak ? top : best->peak;
    return true;
}

/* Places in the order, until a job before this one has reached the goal. */
static outcome place_all(bench *at, bool best_fit, stage *of, uint32_t job, uint64_t *peak_out)
{
    const uint32_t n = at->items->n;
    psti_best placed = {.address = at->address};
    uint32_t item;
    if (psti_room_reset(at->room, &item) != PSTI_ROOM_READY)
        return OUT_OF_MEMORY;
    for (uint32_t k = 0; k < n; k++) {
        if (k % STRIDE == 0 && is_abandoned(of, job, n - k))
            return ABANDONED;
        if (!place_one(at->room, at->items, at->order[k], best_fit, &placed))
            return OUT_OF_MEMORY;
    }
    *peak_out = placed.peak;
    return DONE;
}

/* Keeps a job's placement if it is the job's best. */
static bool keep(stage *of, uint32_t job, const bench *at, uint64_t peak)
{
    if (peak >= of->peaks[job])
        return true;
    if (of->found[job] == NULL)
        of->found[job] = psti_calloc((size_t)of->items->n + 1, sizeof(**of->found));
    if (of->found[job] == NULL)
        return false;
    of->peaks[job] = peak;
    memcpy(of->found[job], at->address, of->items->n * sizeof(*at->address));
    if (peak > of->goal)
        return true;
    uint32_t won = __atomic_load_n(&of->won, __ATOMIC_RELAXED);
    while (job < won && !__atomic_compare_exchange_n(&of->won, &won, job, false, __ATOMIC_RELAXED,
                                                     __ATOMIC_RELAXED))
        ;
    return true;
}

static outcome run_pass(stage *of, uint32_t job, bench *at)
{
    uint64_t peak;
    outcome result = rank_pass(at->items, job, of->limits, at->order);
    if (result == DONE)
        result = place_all(at, passes[job].best_fit, of, job, &peak);
    if (result == DONE && !keep(of, job, at, peak))
        return OUT_OF_MEMORY;
    return result;
}

/* Moves what stands above the goal forward by a random part of the way to the front. False: no memory. */
static bool repair_order(bench *at, uint64_t goal, uint64_t *random)
{
    const uint32_t n = at->items->n;
    psti_pair *ranks = psti_calloc((size_t)n + 1, sizeof(*ranks));
    if (ranks == NULL)
        return false;
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t i = at->order[k];
        uint64_t key = (uint64_t)k << 32;
        if (at->items->pin[i] == PST_PLAN_FREE && at->address[i] + at->items->size[i] > goal) {
            *random = psti_mix(*random);
            key -= (uint64_t)k * (*random >> 32);
        }
        ranks[k] = (psti_pair){key, i};
    }
    psti_sort_pairs(ranks, n);
    for (uint32_t k = 0; k < n; k++)
        at->order[k] = (uint32_t)ranks[k].value;
    psti_free(ranks);
    return true;
}

static outcome run_chain(stage *of, uint32_t job, bench *at)
{
    const uint32_t pass = of->chains[job];
    uint64_t random = psti_mix(of->limits->seed + job);
    uint64_t peak = UINT64_MAX;
    uint64_t best = UINT64_MAX;
    uint32_t failures = 0;
    outcome result = rank_pass(at->items, pass, of->limits, at->order);
    while (result == DONE && failures < NUM_ROUNDS && best > of->goal) {
        result = place_all(at, passes[pass].best_fit, of, job, &peak);
        if (result != DONE)
            return result;
        failures = peak < best ? 0 : failures + 1;
        best = peak < best ? peak : best;
        if (!keep(of, job, at, peak) || !repair_order(at, of->goal, &random))
            return OUT_OF_MEMORY;
    }
    return result;
}

static void work(void *argument)
{
    stage *of = argument;
    const bool is_repair = of->kind == PST_STAGE_REPAIR;
    const uint32_t num_jobs = is_repair ? NUM_CHAINS : PSTI_NUM_PASSES;
    bench at;
    outcome result = bench_open(&at, of->items) ? DONE : OUT_OF_MEMORY;
    while (result == DONE) {
        const uint32_t job = __atomic_fetch_add(&of->next, 1, __ATOMIC_RELAXED);
        if (job >= num_jobs || job > __atomic_load_n(&of->won, __ATOMIC_RELAXED))
            break;
        result = is_repair ? run_chain(of, job, &at) : run_pass(of, job, &at);
    }
    if (result == OUT_OF_MEMORY)
        __atomic_store_n(&of->no_memory, 1, __ATOMIC_RELAXED);
    bench_close(&at);
}

/* The first of the jobs with the lowest peak. */
static void take_best(const stage *of)
{
    for (uint32_t job = 0; job < PSTI_NUM_PASSES; job++)
        if (of->peaks[job] < of->best->peak) {
            of->best->peak = of->peaks[job];
            of->best->stage = of->kind;
            memcpy(of->best->address, of->found[job], of->items->n * sizeof(*of->best->address));
        }
}

/* The best passes, each once, the best one first. */
static void choose_chains(stage *of, const uint64_t *peaks)
{
    bool is_taken[PSTI_NUM_PASSES] = {false};
    for (uint32_t chain = 0; chain < NUM_CHAINS; chain++) {
        uint32_t best = PSTI_NUM_PASSES;
        for (uint32_t pass = 0; pass < PSTI_NUM_PASSES; pass++)
            if (!is_taken[pass] && (best == PSTI_NUM_PASSES || peaks[pass] < peaks[best]))
                best = pass;
        is_taken[best] = true;
        of->chains[chain] = best;
    }
}

static bool run_stage(stage *of)
{
    of->won = UINT32_MAX;
    for (uint32_t job = 0; job < PSTI_NUM_PASSES; job++)
        of->peaks[job] = UINT64_MAX;
    psti_run_threads(of->items->n > FEW_ITEMS ? of->limits->num_threads : 1, work, of);
    take_best(of);
    for (uint32_t job = 0; job < PSTI_NUM_PASSES; job++)
        psti_free(of->found[job]);
    return of->no_memory == 0;
}

/* The end of all that is placed, pinned or reserved. */
static uint64_t top_of(const psti_items *items, const psti_best *best)
{
    uint64_t top = best->peak;
    for (uint32_t r = 0; r < items->num_reserved; r++)
        if (items->reserved[r].end > top)
            top = items->reserved[r].end;
    for (uint32_t i = 0; i < items->n; i++)
        if (items->pin[i] != PST_PLAN_FREE && items->pin[i] + items->size[i] > top)
            top = items->pin[i] + items->size[i];
    return top;
}

/* Puts what is not placed above all else: one item on the other, and from there again, as long as the
 * begins rise, where none of them lives any more. */
static void stack_rest(const psti_items *items, psti_best *best)
{
    const uint64_t floor = top_of(items, best);
    uint64_t top = floor;
    uint32_t last_begin = 0;
    uint32_t last_end = 0;
    bool is_rising = items->num_intervals == items->n;
    for (uint32_t i = 0; i < items->n; i++) {
        if (best->address[i] != NOWHERE)
            continue;
        const uint32_t *ends = items->end + (size_t)i * items->num_streams;
        if (is_rising && items->begin[i] < last_begin) {
            is_rising = false;
            top = best->peak > floor ? best->peak : floor;
        }
        if (is_rising && items->begin[i] >= last_end)
            top = floor;
        last_begin = items->begin[i];
        for (uint32_t r = 0; r < items->num_streams && is_rising; r++)
            last_end = ends[r] > last_end ? ends[r] : last_end;
        best->address[i] = items->pin[i];
        if (items->pin[i] == PST_PLAN_FREE) {
            best->address[i] = top;
            top += items->size[i];
        }
        const uint64_t end = best->address[i] + items->size[i];
        best->peak = end > best->peak ? end : best->peak;
    }
}

/* Steps are counted and end nothing here, so that there is a plan. */
static bool is_time_over(psti_limits *limits, uint32_t left)
{
    (void)psti_limits_take(limits, left < STRIDE ? left : STRIDE);
    return psti_limits_over(limits);
}

static bool place_first(const psti_items *items, psti_limits *limits, psti_best *best,
                        uint32_t *order)
{
    uint32_t item;
    const outcome result = rank_pass(items, 0, limits, order);
    if (result != DONE)
        return result == ABANDONED;
    psti_room *room = psti_room_open(items);
    bool right = room != NULL && psti_room_reset(room, &item) == PSTI_ROOM_READY;
    for (uint32_t k = 0; right && k < items->n; k++) {
        if (k % STRIDE == 0 && is_time_over(limits, items->n - k))
            break;
        right = place_one(room, items, order[k], passes[0].best_fit, best);
    }
    psti_room_close(room);
    return right;
}

bool psti_place_first(const psti_items *items, psti_limits *limits, psti_best *best)
{
    bool right = true;
    best->peak = 0;
    best->stage = PST_STAGE_PORTFOLIO;
    memset(best->address, 0xff, items->n * sizeof(*best->address)); /* NOWHERE */
    if (!psti_limits_over(limits)) {
        uint32_t *order = psti_calloc((size_t)items->n + 1, sizeof(*order));
        right = order != NULL && place_first(items, limits, best, order);
        psti_free(order);
    }
    if (right && limits->over)
        stack_rest(items, best);
    return right;
}

bool psti_place_in_orders(const psti_items *items, uint64_t goal, psti_limits *limits,
                          psti_best *best)
{
    stage portfolio = {.items = items, .limits = limits, .best = best, .goal = goal, .next = 1};
    portfolio.kind = PST_STAGE_PORTFOLIO;
    const uint64_t first = best->peak;
    if (!run_stage(&portfolio))
        return false;
    if (best->peak <= goal)
        return true;
    stage repair = {.items = items, .limits = limits, .best = best, .goal = goal};
    repair.kind = PST_STAGE_REPAIR;
    portfolio.peaks[0] = first;
    choose_chains(&repair, portfolio.peaks);
    return run_stage(&repair);
}
