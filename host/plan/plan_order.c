/* Placements in an order. A portfolio of orders comes first; then the best of them are repaired: what
 * stands above the bound is placed earlier the next time (squeaky wheel optimisation, Joslin and
 * Clements, JAIR 10, 1999). */
#include "host/plan/plan.h"

#include "kernels/core/mix.h"

#include <stdlib.h>
#include <string.h>

enum {
    STRIDE = 256,
    NUM_ROUNDS = 12,
    NUM_CHAINS = 8,
    FEW_ITEMS = 512, /* are placed before another thread has begun */
};

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

typedef struct ranked {
    uint64_t key[2]; /* descending */
    uint32_t item;
} ranked;

static int by_key(const void *a, const void *b)
{
    const ranked *x = a;
    const ranked *y = b;
    for (int k = 0; k < 2; k++)
        if (x->key[k] != y->key[k])
            return x->key[k] > y->key[k] ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

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
    ranked *ranks;     /* [n] */
    uint64_t *address; /* [n] */
} bench;

static bool bench_open(bench *at, const psti_items *items)
{
    *at = (bench){.items = items};
    at->room = psti_room_open(items);
    at->ranks = psti_calloc((size_t)items->n + 1, sizeof(*at->ranks));
    at->address = psti_calloc((size_t)items->n + 1, sizeof(*at->address));
    return at->room != NULL && at->ranks != NULL && at->address != NULL;
}

static void bench_close(bench *at)
{
    psti_room_close(at->room);
    psti_free(at->ranks);
    psti_free(at->address);
}

static void rank_pass(bench *at, uint32_t pass)
{
    for (uint32_t i = 0; i < at->items->n; i++)
        at->ranks[i] = (ranked){{key_of(at->items, i, passes[pass].keys[0]),
                                 key_of(at->items, i, passes[pass].keys[1])},
                                i};
    qsort(at->ranks, at->items->n, sizeof(*at->ranks), by_key);
}

typedef enum outcome { PLACED, ABANDONED, OUT_OF_MEMORY } outcome;

/* What the threads of a stage share. */
typedef struct stage {
    const psti_items *items;
    psti_limits *limits;
    psti_best *best;
    pst_plan_stage kind;
    uint32_t next;               /* atomic: job to take */
    uint32_t won;                /* atomic: the first job that reached the bound, or UINT32_MAX */
    uint32_t no_memory;          /* atomic */
    uint32_t chains[NUM_CHAINS]; /* repair: pass that each begins with */
    uint64_t peaks[PSTI_NUM_PASSES];
    uint64_t *found[PSTI_NUM_PASSES]; /* [n] addresses of each job's best */
} stage;

/* The first pass is always done, so that there is a plan. */
static bool is_abandoned(stage *of, uint32_t job, uint32_t left)
{
    const bool may_go_on = psti_limits_take(of->limits, left < STRIDE ? left : STRIDE);
    if (of->kind == PST_STAGE_PORTFOLIO && job == 0)
        return false;
    return !may_go_on || __atomic_load_n(&of->won, __ATOMIC_RELAXED) < job;
}

/* Places in the order of ranks, until a job before this one has reached the bound. */
static outcome place_all(bench *at, bool best_fit, stage *of, uint32_t job, uint64_t *peak_out)
{
    const psti_items *items = at->items;
    uint64_t peak = 0;
    uint32_t item;
    if (psti_room_reset(at->room, &item) != PSTI_ROOM_READY)
        return OUT_OF_MEMORY;
    for (uint32_t k = 0; k < items->n; k++) {
        if (k % STRIDE == 0 && is_abandoned(of, job, items->n - k))
            return ABANDONED;
        const uint32_t i = at->ranks[k].item;
        at->address[i] = items->pin[i];
        if (items->pin[i] == PST_PLAN_FREE) {
            at->address[i] = psti_room_find(at->room, i, best_fit);
            if (!psti_room_take(at->room, i, at->address[i]))
                return OUT_OF_MEMORY;
        }
        const uint64_t top = at->address[i] + items->size[i];
        peak = top > peak ? top : peak;
    }
    *peak_out = peak;
    return PLACED;
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
    if (peak > of->items->bound)
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
    rank_pass(at, job);
    const outcome result = place_all(at, passes[job].best_fit, of, job, &peak);
    if (result == PLACED && !keep(of, job, at, peak))
        return OUT_OF_MEMORY;
    return result;
}

/* Moves what stands above the bound forward by a random part of the way to the front. */
static void repair_order(bench *at, uint64_t bound, uint64_t *random)
{
    const uint32_t n = at->items->n;
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t i = at->ranks[k].item;
        uint64_t key = (uint64_t)(n - k) << 32;
        if (at->items->pin[i] == PST_PLAN_FREE && at->address[i] + at->items->size[i] > bound) {
            *random = psti_mix(*random);
            key += (uint64_t)k * (*random >> 32);
        }
        at->ranks[k].key[0] = key;
        at->ranks[k].key[1] = 0;
    }
    qsort(at->ranks, n, sizeof(*at->ranks), by_key);
}

static outcome run_chain(stage *of, uint32_t job, bench *at)
{
    const uint32_t pass = of->chains[job];
    uint64_t random = psti_mix(of->limits->seed + job);
    uint64_t peak = UINT64_MAX;
    uint64_t best = UINT64_MAX;
    uint32_t failures = 0;
    rank_pass(at, pass);
    while (failures < NUM_ROUNDS && best > of->items->bound) {
        const outcome result = place_all(at, passes[pass].best_fit, of, job, &peak);
        if (result != PLACED)
            return result;
        failures = peak < best ? 0 : failures + 1;
        best = peak < best ? peak : best;
        if (!keep(of, job, at, peak))
            return OUT_OF_MEMORY;
        repair_order(at, of->items->bound, &random);
    }
    return PLACED;
}

static void work(void *argument)
{
    stage *of = argument;
    const bool is_repair = of->kind == PST_STAGE_REPAIR;
    const uint32_t num_jobs = is_repair ? NUM_CHAINS : PSTI_NUM_PASSES;
    bench at;
    outcome result = bench_open(&at, of->items) ? PLACED : OUT_OF_MEMORY;
    while (result == PLACED) {
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

bool psti_place_in_orders(const psti_items *items, psti_limits *limits, psti_best *best)
{
    stage portfolio = {.items = items, .limits = limits, .best = best, .kind = PST_STAGE_PORTFOLIO};
    if (!run_stage(&portfolio))
        return false;
    if (best->peak <= items->bound)
        return true;
    stage repair = {.items = items, .limits = limits, .best = best, .kind = PST_STAGE_REPAIR};
    choose_chains(&repair, portfolio.peaks);
    return run_stage(&repair);
}
