/* The exact search: what a choice changes, and how it is taken back. */
#include "host/plan/plan_exact.h"

/* ---- runs ---- */

uint64_t psti_exact_left(const psti_exact_state *state, uint32_t begin)
{
    return state->cross[begin] == 0 ? PSTI_EXACT_WALL
                                    : state->runs[state->runs[begin].before].level;
}

uint64_t psti_exact_right(const psti_exact_state *state, uint32_t end)
{
    return state->cross[end] == 0 ? PSTI_EXACT_WALL : state->runs[end].level;
}

/* What is known about a valley depends on it and on the runs beside it. */
static void forget(psti_exact_state *state, uint32_t i)
{
    state->corners[i].is_known = false;
    state->corners[state->runs[i].before].is_known = false;
    state->corners[state->runs[i].end].is_known = false;
}

static psti_exact_change *note(psti_exact_state *state, uint32_t index)
{
    psti_exact_change *change = &state->changes[state->num_changes++];
    *change = (psti_exact_change){.index = index, .run = state->runs[index]};
    return change;
}

static void set_run(psti_exact_state *state, uint32_t begin, uint32_t end, uint64_t level,
                    uint32_t lid)
{
    forget(state, begin);
    note(state, begin);
    state->runs[begin].level = level;
    state->runs[begin].end = end;
    state->runs[begin].lid = lid;
    forget(state, begin);
    forget(state, end);
    note(state, end);
    state->runs[end].before = begin;
}

/* With its neighbours, where they are as high; returns where the run begins now. */
static uint32_t merge(psti_exact_state *state, uint32_t begin)
{
    const uint64_t level = state->runs[begin].level;
    uint32_t end = state->runs[begin].end;
    if (psti_exact_left(state, begin) == level) {
        begin = state->runs[begin].before;
        set_run(state, begin, end, level, 0);
    }
    if (psti_exact_right(state, end) == level) {
        end = state->runs[end].end;
        set_run(state, begin, end, level, 0);
    }
    return begin;
}

/* Slots begin..end-1 of a run get another level. */
static uint32_t lift(psti_exact_state *state, uint32_t run, uint32_t begin, uint32_t end,
                     uint64_t level, uint32_t lid)
{
    const uint64_t old = state->runs[run].level;
    const uint32_t run_end = state->runs[run].end;
    if (begin > run)
        set_run(state, run, begin, old, 0);
    if (end < run_end)
        set_run(state, end, run_end, old, 0);
    set_run(state, begin, end, level, lid);
    return merge(state, begin);
}

bool psti_exact_raise(psti_exact_state *state, uint32_t run, uint32_t begin, uint32_t end,
                      uint64_t level)
{
    const psti_exact_instance *p = state->instance;
    const uint64_t rise = psti_exact_floor(level) - psti_exact_floor(state->runs[run].level);
    for (uint32_t t = begin; t < end; t++)
        if (state->slack[t] < rise)
            return false;
    for (uint32_t t = begin; rise > 0 && t < end; t++)
        for (uint32_t r = state->head[0][t]; r != PSTI_EXACT_NO_TENSOR; r = state->next[0][r])
            if (p->end[r] <= end && p->size[r] <= rise && p->pin[r] == PST_PLAN_FREE)
                return false;
    if (rise > 0) {
        psti_exact_change *change = note(state, begin);
        change->until = end;
        change->slack_lost = rise;
        for (uint32_t t = begin; t < end; t++)
            state->slack[t] -= rise;
    }
    lift(state, run, begin, end, level, 0);
    return true;
}

/* ---- placing ---- */

static void unlink_tensor(psti_exact_state *state, uint32_t r)
{
    for (int side = 0; side < PSTI_EXACT_SIDES; side++) {
        const uint32_t prev = state->prev[side][r], next = state->next[side][r];
        if (prev == PSTI_EXACT_NO_TENSOR)
            state->head[side][psti_exact_list(state->instance, side, r)] = next;
        else
            state->next[side][prev] = next;
        if (next != PSTI_EXACT_NO_TENSOR)
            state->prev[side][next] = prev;
    }
}

static void link_tensor(psti_exact_state *state, uint32_t r)
{
    for (int side = 0; side < PSTI_EXACT_SIDES; side++) {
        const uint32_t prev = state->prev[side][r], next = state->next[side][r];
        if (prev == PSTI_EXACT_NO_TENSOR)
            state->head[side][psti_exact_list(state->instance, side, r)] = r;
        else
            state->next[side][prev] = r;
        if (next != PSTI_EXACT_NO_TENSOR)
            state->prev[side][next] = r;
    }
}

/* Pins above that of r, which is placed: none of them is yet. */
static void lift_ceiling(psti_exact_state *state, uint32_t r)
{
    const psti_exact_instance *p = state->instance;
    for (uint32_t t = p->begin[r]; t < p->end[r]; t++)
        state->ceiling[t] = PSTI_EXACT_WALL;
    for (uint32_t i = 0; i < p->num_pinned; i++) {
        const uint32_t q = p->pinned[i];
        if (p->pin[q] <= p->pin[r])
            continue;
        const uint32_t begin = p->begin[q] > p->begin[r] ? p->begin[q] : p->begin[r];
        const uint32_t end = p->end[q] < p->end[r] ? p->end[q] : p->end[r];
        for (uint32_t t = begin; t < end; t++)
            if (p->pin[q] < state->ceiling[t])
                state->ceiling[t] = p->pin[q];
    }
}

/* Where no tensor crosses any more, runs part. */
static void part_runs(psti_exact_state *state, uint32_t run, uint32_t begin, uint32_t end)
{
    for (uint32_t t = begin + 1; t < end; t++) {
        if (state->cross[t] > 0)
            continue;
        while (state->runs[run].end <= t)
            run = state->runs[run].end;
        const psti_exact_run whole = state->runs[run];
        if (run < t) {
            set_run(state, t, whole.end, whole.level, 0);
            set_run(state, run, t, whole.level, 0);
        }
    }
}

void psti_exact_place(psti_exact_state *state, uint32_t r, uint32_t run)
{
    const psti_exact_instance *p = state->instance;
    const uint32_t begin = p->begin[r], end = p->end[r];
    const uint64_t level = state->runs[run].level;
    state->offset[r] = psti_exact_floor(level);
    state->num_unplaced--;
    unlink_tensor(state, r);
    bool parts = false;
    for (uint32_t t = begin; t < end; t++)
        state->live[t]--;
    for (uint32_t t = begin + 1; t < end; t++)
        parts |= --state->cross[t] == 0;
    if (p->pin[r] != PST_PLAN_FREE)
        lift_ceiling(state, r);
    run = lift(state, run, begin, end, level + 2 * p->size[r], r + 1);
    if (parts)
        part_runs(state, run, begin, end);
}

static void take_back(psti_exact_state *state, uint32_t r)
{
    const psti_exact_instance *p = state->instance;
    for (uint32_t t = p->begin[r]; t < p->end[r]; t++)
        state->live[t]++;
    for (uint32_t t = p->begin[r] + 1; t < p->end[r]; t++)
        state->cross[t]++;
    for (uint32_t t = p->begin[r]; p->pin[r] != PST_PLAN_FREE && t < p->end[r]; t++)
        state->ceiling[t] = p->pin[r];
    link_tensor(state, r);
    state->num_unplaced++;
}

void psti_exact_undo(psti_exact_state *state, size_t num_changes, uint32_t tensor)
{
    while (state->num_changes > num_changes) {
        const psti_exact_change *change = &state->changes[--state->num_changes];
        if (change->until > 0) {
            for (uint32_t t = change->index; t < change->until; t++)
                state->slack[t] += change->slack_lost;
            continue;
        }
        forget(state, change->index);
        state->runs[change->index] = change->run;
        forget(state, change->index);
    }
    if (tensor != PSTI_EXACT_NO_TENSOR)
        take_back(state, tensor);
}
