/* The exact search goes through its choices depth first, without recursion. */
#include "host/plan/plan_exact.h"

#define NO_FRAME UINT32_MAX
#define SLACK_WEIGHT 10 /* of slack as a part of the target, against choices */

/* Part of the slots, none of whose unplaced tensors lives outside. */
typedef struct range {
    uint32_t low, high;
    uint32_t parent; /* the decision whose range comes next, or NO_FRAME: all slots */
} range;

static bool is_valley(const psti_exact_state *state, uint32_t begin)
{
    const psti_exact_run *run = &state->runs[begin];
    return state->live[begin] > 0 && psti_exact_left(state, begin) > run->level &&
           psti_exact_right(state, run->end) > run->level;
}

/* Void valleys rise until something can rest there. PSTI_NONE: too much is wasted. */
static psti_verdict settle(psti_exact_state *state, const range *in)
{
    for (uint32_t begin = in->low; begin < in->high;) {
        const psti_exact_run run = state->runs[begin];
        if (run.level % 2 == 0 || !is_valley(state, begin)) {
            begin = run.end;
            continue;
        }
        const uint64_t left = psti_exact_left(state, begin);
        const uint64_t right = psti_exact_right(state, run.end);
        const uint64_t pin = psti_exact_ceiling(state, begin, run.end);
        uint64_t level = left < right ? left : right;
        if (pin != PSTI_EXACT_WALL && 2 * pin < level)
            level = 2 * pin;
        if (level == PSTI_EXACT_WALL)
            return PSTI_NONE;
        const psti_verdict verdict = psti_exact_reserve(state, 0);
        if (verdict != PSTI_FOUND)
            return verdict;
        if (!psti_exact_raise(state, begin, begin, run.end, level))
            return PSTI_NONE;
        /* the run it is part of now, or the one before that, may have become such a valley */
        if (left == level)
            begin = run.before;
        if (begin > in->low && state->cross[begin] > 0)
            begin = state->runs[begin].before;
    }
    return PSTI_FOUND;
}

static void note_dead_end(psti_exact_state *state, uint32_t begin, uint32_t side)
{
    state->sores[side == PSTI_EXACT_LEFT ? begin : state->runs[begin].end - 1] += state->sore;
    state->sore *= 1.02;
    if (state->sore < 1e100)
        return;
    for (uint32_t t = 0; t < state->instance->num_slots; t++)
        state->sores[t] *= 1e-100;
    state->sore *= 1e-100;
}

/* Which corner is decided first: the one with the least. */
static double urgency(const psti_exact_state *state, uint32_t begin, uint32_t side,
                      const psti_exact_corner *corner)
{
    if (corner->num_choices == 1)
        return 0;
    const uint32_t slot = side == PSTI_EXACT_LEFT ? begin : state->runs[begin].end - 1;
    switch (state->focus) {
    case PSTI_EXACT_FIRM:
        return corner->num_choices + (corner->void_level > 0 ? 2 : 0);
    case PSTI_EXACT_TIGHT:
        return corner->num_choices *
               (1 + SLACK_WEIGHT * (double)state->slack[slot] / (double)state->instance->target);
    case PSTI_EXACT_SORE:
        return corner->num_choices / (1 + state->sores[slot]);
    default:
        return corner->num_choices;
    }
}

/* The corner to decide now, written to the frame. PSTI_NONE: there is one without choices.
 * PSTI_STOPPED: there is no valley. */
static psti_verdict choose(psti_exact_state *state, const range *in, psti_exact_frame *frame)
{
    double least = 0;
    uint64_t least_level = 0;
    frame->begin = UINT32_MAX;
    for (uint32_t begin = in->low; begin < in->high; begin = state->runs[begin].end) {
        if (!is_valley(state, begin))
            continue;
        psti_exact_corners *corners = &state->corners[begin];
        if (!corners->is_known)
            for (uint32_t side = 0; side < PSTI_EXACT_SIDES; side++)
                corners->side[side] = psti_exact_look(state, begin, side);
        corners->is_known = true;
        for (uint32_t side = 0; side < PSTI_EXACT_SIDES; side++) {
            const psti_exact_corner *corner = &corners->side[side];
            if (corner->num_choices == 0) {
                note_dead_end(state, begin, side);
                return PSTI_NONE;
            }
            const double urgent = urgency(state, begin, side, corner);
            const uint64_t level = state->runs[begin].level;
            if (frame->begin != UINT32_MAX &&
                (urgent > least || (urgent == least && level >= least_level)))
                continue;
            least = urgent, least_level = level;
            frame->begin = begin, frame->side = side, frame->corner = *corner;
        }
    }
    return frame->begin == UINT32_MAX ? PSTI_STOPPED : PSTI_FOUND;
}

/* Slots around a run that no unplaced tensor leaves. */
static void bound(const psti_exact_state *state, psti_exact_frame *frame)
{
    uint32_t low = frame->begin, high = state->runs[frame->begin].end;
    while (state->cross[low] > 0)
        low = state->runs[low].before;
    while (state->cross[high] > 0)
        high = state->runs[high].end;
    frame->low = low, frame->high = high;
}

static uint32_t first_of(const psti_exact_state *state, const psti_exact_frame *frame)
{
    const uint32_t end = state->runs[frame->begin].end;
    return state->head[frame->side][frame->side == PSTI_EXACT_LEFT ? frame->begin : end];
}

/* The next decision, within the range or, where that is done, around it. PSTI_FOUND: pushed, or
 * everything is placed. PSTI_NONE: a dead end in the range. */
static psti_verdict descend(psti_exact_state *state, range *in)
{
    psti_verdict verdict = psti_exact_reserve_frame(state);
    if (verdict != PSTI_FOUND)
        return verdict;
    while (state->num_unplaced > 0) {
        verdict = settle(state, in);
        if (verdict != PSTI_FOUND)
            return verdict;
        psti_exact_frame *frame = &state->frames[state->num_frames];
        verdict = choose(state, in, frame);
        if (verdict == PSTI_NONE)
            return verdict;
        if (verdict == PSTI_FOUND) {
            bound(state, frame);
            frame->num_changes = state->num_changes;
            frame->parent = in->parent;
            frame->next = first_of(state, frame);
            frame->placed = PSTI_EXACT_NO_TENSOR;
            frame->tries_rest = frame->was_void = false;
            state->num_frames++;
            return PSTI_FOUND;
        }
        if (in->parent == NO_FRAME) {
            *in = (range){0, state->instance->num_slots, NO_FRAME};
        } else {
            const psti_exact_frame *outer = &state->frames[in->parent];
            *in = (range){outer->low, outer->high, outer->parent};
        }
    }
    return PSTI_FOUND;
}

/* Whether the top is as high as what is beside it. */
static bool is_flush(const psti_exact_state *state, uint32_t r, uint32_t begin)
{
    const psti_exact_instance *p = state->instance;
    const uint32_t end = state->runs[begin].end;
    const uint64_t top = state->runs[begin].level + 2 * p->size[r];
    return (p->begin[r] == begin && psti_exact_left(state, begin) == top) ||
           (p->end[r] == end && psti_exact_right(state, end) == top);
}

static uint32_t next_choice(const psti_exact_state *state, const psti_exact_frame *frame)
{
    uint32_t r = frame->next;
    while (r != PSTI_EXACT_NO_TENSOR && (is_flush(state, r, frame->begin) == frame->tries_rest ||
                                         !psti_exact_fits(state, r, frame->begin, frame->side)))
        r = state->next[frame->side][r];
    return r;
}

/* Makes the next choice of the last decision. PSTI_NONE: there is none left, and nothing placed. */
static psti_verdict advance(psti_exact_state *state)
{
    psti_exact_frame *frame = &state->frames[state->num_frames - 1];
    psti_exact_undo(state, frame->num_changes, frame->placed);
    frame->placed = PSTI_EXACT_NO_TENSOR;
    uint32_t r = next_choice(state, frame);
    if (r == PSTI_EXACT_NO_TENSOR && !frame->tries_rest) {
        frame->tries_rest = true;
        frame->next = first_of(state, frame);
        r = next_choice(state, frame);
    }
    if (r != PSTI_EXACT_NO_TENSOR) {
        const psti_exact_instance *p = state->instance;
        const psti_verdict verdict = psti_exact_reserve(state, p->end[r] - p->begin[r]);
        if (verdict != PSTI_FOUND)
            return verdict;
        frame->next = state->next[frame->side][r];
        frame->placed = r;
        psti_exact_place(state, r, frame->begin);
        return PSTI_FOUND;
    }
    frame->next = PSTI_EXACT_NO_TENSOR;
    if (frame->corner.void_level == 0 || frame->was_void)
        return PSTI_NONE;
    const psti_verdict verdict = psti_exact_reserve(state, 0);
    if (verdict != PSTI_FOUND)
        return verdict;
    frame->was_void = true;
    return psti_exact_raise(state, frame->begin, frame->corner.void_begin, frame->corner.void_end,
                            frame->corner.void_level)
               ? PSTI_FOUND
               : PSTI_NONE;
}

/* Out of a dead end in the slots low..high-1. Decisions about other slots did not cause it. */
static psti_verdict back_out(psti_exact_state *state, uint32_t low, uint32_t high)
{
    while (state->num_frames > 0) {
        psti_exact_frame *frame = &state->frames[state->num_frames - 1];
        if (frame->high > low && frame->low < high) {
            low = frame->low, high = frame->high;
            const psti_verdict verdict = advance(state);
            if (verdict != PSTI_NONE)
                return verdict;
        }
        psti_exact_undo(state, frame->num_changes, frame->placed);
        state->num_frames--;
    }
    return PSTI_NONE;
}

psti_verdict psti_exact_continue(psti_exact_state *state, uint64_t max_steps)
{
    for (uint64_t steps = 0; steps < max_steps; steps++, state->steps++) {
        range in = {0, state->instance->num_slots, NO_FRAME};
        if (state->num_frames > 0) {
            const psti_exact_frame *frame = &state->frames[state->num_frames - 1];
            in = (range){frame->low, frame->high, (uint32_t)(state->num_frames - 1)};
        }
        const size_t num_frames = state->num_frames;
        psti_verdict verdict = descend(state, &in);
        if (state->num_unplaced == 0 && verdict == PSTI_FOUND)
            return PSTI_FOUND;
        if (verdict == PSTI_FOUND && state->num_frames > num_frames)
            verdict = advance(state);
        if (verdict == PSTI_NONE)
            verdict = back_out(state, in.low, in.high);
        if (verdict != PSTI_FOUND)
            return verdict;
    }
    return PSTI_STOPPED;
}
