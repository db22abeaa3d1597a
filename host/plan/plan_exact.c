/* The exact search from outside: the instance it works on, its threads, restarts and limits. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "host/plan/plan_exact.h"
#include "kernels/core/mix.h"

enum {
    BATCH_STEPS = 1024,
    MAX_THREADS = 64,
    SHORT_STEPS = 1000,     /* of a try of the corners, at least, */
    SHORT_DEPTH = 3,        /* and as many for each tensor */
    GROWTH_STEPS = 1 << 20, /* after which they are twice as long, and so on */
    CORNER_STEPS = 120000,
    RISE_LONG_STEPS = 40000,
    RISE_SHORT_STEPS = 40000,
    RISE_LONG_EVERY = 8,
};

/* ---- the instance ---- */

static uint64_t pin_of(const psti_exact_problem *problem, uint32_t r)
{
    return problem->pin ? problem->pin[r] : PST_PLAN_FREE;
}

/* The most that can be live at once is live in some slot after a begin and before the next end; the
 * others tell nothing new. `first` and `last` are of num_slots + 1 words, zero. */
static void keep_slots(const psti_exact_problem *problem, uint32_t *first, uint32_t *last,
                       psti_exact_instance *p)
{
    for (uint32_t r = 0; r < problem->num_tensors; r++) {
        first[problem->begin[r]] = 1;
        last[problem->end[r]] = 1;
    }
    bool ended = true;
    uint32_t kept = 0;
    for (uint32_t t = 0; t <= problem->num_slots; t++) {
        ended |= last[t] == 1;
        last[t] = kept;
        if (first[t] == 1) {
            kept += ended;
            ended = false;
        }
        first[t] = kept - 1; /* read only where something begins */
    }
    p->num_slots = kept;
    for (uint32_t r = 0; r < problem->num_tensors; r++) {
        p->begin[r] = first[problem->begin[r]];
        p->end[r] = last[problem->end[r]];
    }
}

static void scale(const psti_exact_problem *problem, uint64_t target, psti_exact_instance *p)
{
    uint64_t unit = 0;
    for (uint32_t r = 0; r < problem->num_tensors; r++) {
        unit = psti_gcd(problem->size[r], unit);
        if (pin_of(problem, r) != PST_PLAN_FREE)
            unit = psti_gcd(problem->pin[r], unit);
    }
    p->unit = unit;
    p->target = (target < PST_PLAN_MAX_BYTES ? target : PST_PLAN_MAX_BYTES) / unit;
    for (uint32_t r = 0; r < problem->num_tensors; r++) {
        p->size[r] = problem->size[r] / unit;
        p->pin[r] = PST_PLAN_FREE;
        if (pin_of(problem, r) != PST_PLAN_FREE) {
            p->pin[r] = problem->pin[r] / unit;
            p->pinned[p->num_pinned++] = r;
        }
    }
}

static uint64_t instance_bytes(const psti_exact_problem *problem)
{
    return problem->num_tensors * UINT64_C(36) + (problem->num_slots + UINT64_C(1)) * 8;
}

/* One block of memory, which the caller frees. */
static void *make_instance(const psti_exact_problem *problem, uint64_t target,
                           psti_exact_instance *p)
{
    const uint64_t n = problem->num_tensors;
    void *memory = psti_calloc(1, instance_bytes(problem));
    if (!memory)
        return NULL;
    p->num_tensors = problem->num_tensors;
    p->size = memory;
    p->pin = p->size + n;
    p->length = p->pin + n;
    p->begin = (uint32_t *)(p->length + n);
    p->end = p->begin + n;
    p->pinned = p->end + n;
    uint32_t *first = p->pinned + n;
    keep_slots(problem, first, first + problem->num_slots + 1, p);
    scale(problem, target, p);
    for (uint32_t r = 0; r < p->num_tensors; r++)
        p->length[r] =
            problem->length != NULL ? problem->length[r] : problem->end[r] - problem->begin[r];
    return memory;
}

/* Whether a tensor or the live size of a slot alone exceeds the target. */
static bool is_too_much(const psti_exact_problem *problem, uint64_t target)
{
    for (uint32_t r = 0; r < problem->num_tensors; r++) {
        const uint64_t pin = pin_of(problem, r);
        if (problem->size[r] > target || (pin != PST_PLAN_FREE && pin > target - problem->size[r]))
            return true;
    }
    return false;
}

/* live_size: num_slots + 1 words, zero. */
static bool is_over_target(const psti_exact_instance *p, uint64_t *live_size)
{
    for (uint32_t r = 0; r < p->num_tensors; r++) {
        live_size[p->begin[r]] += p->size[r];
        live_size[p->end[r]] -= p->size[r];
    }
    for (uint32_t t = 0; t < p->num_slots; t++) {
        if (live_size[t] > p->target)
            return true;
        live_size[t + 1] += live_size[t];
    }
    return false;
}

/* ---- workers ---- */

typedef struct team {
    psti_exact_instance instance;
    psti_limits *limits;
    uint64_t *offsets;
    uint32_t num_workers;
    uint32_t is_done; /* atomic: a worker knows the answer, or a limit was reached */
    uint32_t claimed; /* atomic: somebody writes the offsets */
} team;

typedef struct worker {
    team *team;
    uint32_t index;
    psti_verdict verdict;
    bool is_denied, rose; /* rose: the rising order found it */
} worker;

static uint64_t take_steps(psti_limits *limits, uint64_t wanted)
{
    uint64_t left = __atomic_load_n(&limits->steps_left, __ATOMIC_RELAXED), taken;
    do {
        taken = left < wanted ? left : wanted;
    } while (!__atomic_compare_exchange_n(&limits->steps_left, &left, left - taken, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return taken;
}

/* Whether the search has to end here. */
static bool must_stop(team *t)
{
    if (__atomic_load_n(&t->is_done, __ATOMIC_ACQUIRE))
        return true;
    if (!t->limits->is_over || !t->limits->is_over(t->limits->user))
        return false;
    __atomic_store_n(&t->limits->over, true, __ATOMIC_RELAXED);
    __atomic_store_n(&t->is_done, 1, __ATOMIC_RELEASE);
    return true;
}

/* One of the two ways, as far as it has come. */
typedef struct way {
    psti_exact_state *corner; /* or */
    psti_exact_rise *rise;
} way;

static psti_verdict go_on(const way *w, uint64_t max_steps, uint64_t *steps_out)
{
    if (w->rise != NULL)
        return psti_exact_rise_continue(w->rise, max_steps, steps_out);
    w->corner->steps = 0;
    const psti_verdict verdict = psti_exact_continue(w->corner, max_steps);
    *steps_out = w->corner->steps;
    return verdict;
}

static bool is_denied(const way *w)
{
    return w->rise != NULL ? psti_exact_rise_is_denied(w->rise) : w->corner->is_denied;
}

/* The same way for at most max_steps. PSTI_STOPPED with *is_over_out false: they are used up. */
static psti_verdict search_slice(team *t, const way *w, uint64_t max_steps, bool *is_over_out)
{
    for (uint64_t done = 0; done < max_steps;) {
        if (must_stop(t)) {
            *is_over_out = true;
            return PSTI_STOPPED;
        }
        const uint64_t rest = max_steps - done;
        const uint64_t taken = take_steps(t->limits, rest < BATCH_STEPS ? rest : BATCH_STEPS);
        if (taken == 0) {
            __atomic_store_n(&t->limits->out_of_steps, true, __ATOMIC_RELAXED);
            __atomic_store_n(&t->is_done, 1, __ATOMIC_RELEASE);
            continue;
        }
        uint64_t steps;
        const psti_verdict verdict = go_on(w, taken, &steps);
        if (steps < taken)
            __atomic_add_fetch(&t->limits->steps_left, taken - steps, __ATOMIC_RELAXED);
        else if (steps > taken)
            (void)take_steps(t->limits, steps - taken);
        if (verdict != PSTI_STOPPED || is_denied(w))
            return verdict;
        done += steps;
    }
    return PSTI_STOPPED;
}

/* The first worker does what it would do alone, so that more of them never take longer; each of the
 * others has a seed of its own. */
static uint64_t seed_of(const worker *w)
{
    const uint64_t seed = w->team->limits->seed;
    return w->index == 0 ? seed : psti_mix(psti_mix(seed) + w->index);
}

static psti_exact_manner manner_of(uint64_t seed, uint32_t round)
{
    static const struct {
        psti_exact_order order;
        psti_exact_focus focus;
    } kinds[] = {
        {PSTI_EXACT_BY_CHANCE, PSTI_EXACT_TIGHT},  {PSTI_EXACT_BY_CHANCE, PSTI_EXACT_SORE},
        {PSTI_EXACT_BY_CHANCE, PSTI_EXACT_TIGHT},  {PSTI_EXACT_BY_CHANCE, PSTI_EXACT_FIRM},
        {PSTI_EXACT_BY_CHANCE, PSTI_EXACT_TIGHT},  {PSTI_EXACT_BY_CHANCE, PSTI_EXACT_SORE},
        {PSTI_EXACT_BY_LENGTH, PSTI_EXACT_FEWEST},
    };
    const uint32_t kind = round % (uint32_t)(sizeof(kinds) / sizeof(*kinds));
    return (psti_exact_manner){kinds[kind].order, kinds[kind].focus, seed * PSTI_MIX_STEP + round};
}

/* Short tries in changing manners, for what luck finds; and, as about a fifth of all steps, long ones
 * of a quarter of the steps so far, for what only patience proves. Were tries to grow from the start, or
 * long ones to take most steps, there would be too few short ones: the time had a heavy tail. */
typedef struct corner_search {
    uint64_t all_steps, long_steps;
    uint32_t round;
} corner_search;

static uint64_t steps_of_try(const corner_search *by, uint32_t num_tensors)
{
    const uint64_t least = SHORT_DEPTH * (uint64_t)num_tensors;
    const uint64_t short_steps =
        (least > SHORT_STEPS ? least : SHORT_STEPS) * (1 + by->all_steps / GROWTH_STEPS);
    const bool is_long = by->all_steps / 4 > short_steps && by->long_steps <= by->all_steps / 8;
    return is_long ? by->all_steps / 4 : short_steps;
}

/* Until so many steps are done. */
static psti_verdict search_corners(worker *w, psti_exact_state *state, corner_search *by,
                                   uint64_t max_steps, bool *is_over_out)
{
    const way corner = {.corner = state};
    for (const uint64_t begin = by->all_steps; by->all_steps - begin < max_steps; by->round++) {
        const psti_exact_manner manner = manner_of(seed_of(w), by->round);
        const uint64_t steps = steps_of_try(by, w->team->instance.num_tensors);
        psti_exact_reset(state, &manner);
        const psti_verdict verdict = search_slice(w->team, &corner, steps, is_over_out);
        if (verdict != PSTI_STOPPED || *is_over_out || state->is_denied)
            return verdict;
        by->long_steps += steps == by->all_steps / 4 ? steps : 0;
        by->all_steps += steps;
    }
    return PSTI_STOPPED;
}

/* Tries in rising order: long ones by area, and between them short ones in orders of their own. */
typedef struct rise_search {
    uint64_t long_steps;
    uint32_t round;
} rise_search;

static psti_verdict search_rising(worker *w, psti_exact_rise *rise, rise_search *by,
                                  bool *is_over_out)
{
    const way rising = {.rise = rise};
    const bool is_long = by->round++ % RISE_LONG_EVERY == 0;
    const uint64_t steps = is_long ? by->long_steps : RISE_SHORT_STEPS;
    const bool by_area = is_long && w->index == 0; /* once is enough */
    psti_exact_rise_reset(rise, by_area ? 0 : psti_mix(seed_of(w) + by->round) | 1);
    if (is_long)
        by->long_steps *= by->long_steps < UINT64_MAX / 4 ? 2 : 1;
    const psti_verdict verdict = search_slice(w->team, &rising, steps, is_over_out);
    w->rose = verdict == PSTI_FOUND;
    return verdict;
}

/* Both ways in turns, ever more steps for the corners, which prove more; every second worker begins
 * in rising order. */
static psti_verdict search(worker *w, psti_exact_state *state, psti_exact_rise **rise_at)
{
    psti_exact_rise *rise = *rise_at;
    corner_search corners = {.round = 0};
    uint64_t corner_steps = rise != NULL ? CORNER_STEPS : UINT64_MAX;
    rise_search rising = {.long_steps = RISE_LONG_STEPS};
    for (uint32_t turn = (w->index + 1) % 2;; turn++) {
        bool is_over = false;
        const psti_verdict verdict =
            turn % 2 == 0 || rise == NULL
                ? search_corners(w, state, &corners, corner_steps, &is_over)
                : search_rising(w, rise, &rising, &is_over);
        if (verdict != PSTI_STOPPED || is_over || state->is_denied)
            return verdict;
        if (rise != NULL && psti_exact_rise_is_denied(rise)) { /* the corners need less */
            psti_exact_rise_close(rise);
            *rise_at = rise = NULL;
            corner_steps = UINT64_MAX;
        }
        if (turn % 2 == 0 && corner_steps < UINT64_MAX / 2)
            corner_steps += corner_steps / 8;
    }
}

static void write_offsets(team *t, const psti_exact_state *state, const psti_exact_rise *rise)
{
    for (uint32_t r = 0; r < t->instance.num_tensors; r++)
        t->offsets[r] =
            (rise != NULL ? psti_exact_rise_offset(rise, r) : state->offset[r]) * t->instance.unit;
}

static void *work(void *arg)
{
    worker *w = arg;
    team *t = w->team;
    psti_exact_state state;
    psti_exact_rise *rise = NULL;
    w->verdict = psti_exact_state_open(&t->instance, &state);
    if (w->verdict == PSTI_FOUND && t->instance.num_pinned == 0)
        w->verdict = psti_exact_rise_open(&t->instance, &rise);
    if (w->verdict == PSTI_STOPPED && !state.is_denied)
        w->verdict = PSTI_FOUND; /* the corners alone */
    w->is_denied = w->verdict == PSTI_STOPPED;
    if (w->verdict == PSTI_FOUND) {
        w->verdict = search(w, &state, &rise);
        w->is_denied = state.is_denied;
    }
    if (w->verdict == PSTI_FOUND && !__atomic_exchange_n(&t->claimed, 1, __ATOMIC_ACQ_REL))
        write_offsets(t, &state, w->rose ? rise : NULL);
    if (w->verdict == PSTI_FOUND || w->verdict == PSTI_NONE)
        __atomic_store_n(&t->is_done, 1, __ATOMIC_RELEASE);
    psti_exact_rise_close(rise);
    psti_exact_state_close(&state);
    return NULL;
}

static psti_verdict conclude(const worker *workers, uint32_t num_workers, psti_limits *limits)
{
    bool stopped = false, denied = false;
    for (uint32_t i = 0; i < num_workers; i++) {
        if (workers[i].verdict == PSTI_FOUND || workers[i].verdict == PSTI_NONE)
            return workers[i].verdict;
        stopped |= workers[i].verdict == PSTI_STOPPED;
        denied |= workers[i].is_denied;
    }
    if (denied)
        __atomic_store_n(&limits->out_of_memory, true, __ATOMIC_RELAXED);
    return stopped ? PSTI_STOPPED : PSTI_NO_MEMORY;
}

/* The caller is the first worker. A thread that cannot be had leaves its part to the others. */
static psti_verdict run_team(team *t)
{
    worker workers[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    uint32_t started = 1;
    for (uint32_t i = 0; i < t->num_workers; i++)
        workers[i] = (worker){.team = t, .index = i};
    while (started < t->num_workers &&
           pthread_create(&threads[started], NULL, work, &workers[started]) == 0)
        started++;
    work(&workers[0]);
    for (uint32_t i = 1; i < started; i++)
        pthread_join(threads[i], NULL);
    return conclude(workers, started, t->limits);
}

psti_verdict psti_exact_search(const psti_exact_problem *problem, uint64_t target,
                               psti_limits *limits, uint64_t *offsets)
{
    if (problem->num_tensors == 0)
        return PSTI_FOUND;
    if (is_too_much(problem, target))
        return PSTI_NONE;
    const uint64_t bytes =
        instance_bytes(problem) + (problem->num_slots + UINT64_C(1)) * sizeof(uint64_t);
    if (limits->memory_left < bytes) {
        __atomic_store_n(&limits->out_of_memory, true, __ATOMIC_RELAXED);
        return PSTI_STOPPED;
    }
    team t = {.limits = limits, .offsets = offsets};
    t.num_workers = limits->num_threads == 0 ? 1 : limits->num_threads;
    if (t.num_workers > MAX_THREADS)
        t.num_workers = MAX_THREADS;
    uint64_t *live_size = psti_calloc(problem->num_slots + UINT64_C(1), sizeof(*live_size));
    void *memory = live_size ? make_instance(problem, target, &t.instance) : NULL;
    psti_verdict verdict = PSTI_NO_MEMORY;
    if (memory) {
        t.instance.memory_left = limits->memory_left - bytes;
        verdict = is_over_target(&t.instance, live_size) ? PSTI_NONE : run_team(&t);
    }
    psti_free(memory);
    psti_free(live_size);
    return verdict;
}
