/* The exact search: what may be placed at one end of a valley. */
#include "host/plan/plan_exact.h"

#define MAX_ITEMS 64
#define MAX_TRIES 32 /* of sums; afterwards the sum counts as possible */

uint64_t psti_exact_ceiling(const psti_exact_state *state, uint32_t begin, uint32_t end)
{
    uint64_t lowest = PSTI_EXACT_WALL;
    for (uint32_t t = begin; state->ceiling && t < end; t++)
        if (state->ceiling[t] < lowest)
            lowest = state->ceiling[t];
    return lowest;
}

/* ---- sums ---- */

typedef struct sums {
    int64_t item[MAX_ITEMS];
    int64_t above[MAX_ITEMS + 1], below[MAX_ITEMS + 1]; /* of items i and up */
    uint32_t num_items;
    uint32_t tries;
} sums;

static bool add_items(const psti_exact_state *state, uint32_t list, uint32_t slot, uint32_t without,
                      bool is_negative, sums *s)
{
    for (uint32_t r = state->head[list][slot]; r != PSTI_EXACT_NO_TENSOR;
         r = state->next[list][r]) {
        if (r == without)
            continue;
        if (s->num_items == MAX_ITEMS)
            return false;
        const int64_t size = (int64_t)state->instance->size[r];
        s->item[s->num_items++] = is_negative ? -size : size;
    }
    return true;
}

/* Whether some of the items from i on sum up to a value of low..high. At most MAX_ITEMS deep. */
static bool can_sum(sums *s, uint32_t i, int64_t low, int64_t high)
{
    if (low <= 0 && high >= 0)
        return true;
    if (s->above[i] < low || s->below[i] > high)
        return false;
    if (s->tries++ >= MAX_TRIES)
        return true;
    return can_sum(s, i + 1, low - s->item[i], high - s->item[i]) || can_sum(s, i + 1, low, high);
}

/* At the border before `slot` the floor steps down by `step` towards `side`. Up to the next tensor
 * that crosses the border, tensors that begin and end here fill both sides, but for the slack. */
static bool step_can_close(const psti_exact_state *state, uint32_t slot, uint32_t side,
                           uint64_t step, uint32_t without)
{
    const uint32_t low_slot = side == PSTI_EXACT_LEFT ? slot : slot - 1;
    const uint32_t high_slot = side == PSTI_EXACT_LEFT ? slot - 1 : slot;
    const int64_t low = (int64_t)step - (int64_t)state->slack[low_slot];
    const int64_t high = (int64_t)step + (int64_t)state->slack[high_slot];
    if (low <= 0)
        return true;
    sums s;
    s.num_items = s.tries = 0;
    if (!add_items(state, side, slot, without, false, &s) ||
        !add_items(state, !side, slot, without, true, &s))
        return true;
    int64_t all = 0;
    for (uint32_t i = 0; i < s.num_items; i++)
        all += s.item[i];
    if (low <= all && all <= high)
        return true; /* as a rule it is all or nothing */
    s.above[s.num_items] = s.below[s.num_items] = 0;
    for (uint32_t i = s.num_items; i-- > 0;) {
        s.above[i] = s.above[i + 1] + (s.item[i] > 0 ? s.item[i] : 0);
        s.below[i] = s.below[i + 1] + (s.item[i] < 0 ? s.item[i] : 0);
    }
    return can_sum(&s, 0, low, high);
}

/* The border before `slot`, with floors `left` and `right` beside it. */
static bool border_can_close(const psti_exact_state *state, uint32_t slot, uint64_t left,
                             uint64_t right, uint32_t without)
{
    return left > right ? step_can_close(state, slot, PSTI_EXACT_LEFT, left - right, without)
                        : step_can_close(state, slot, PSTI_EXACT_RIGHT, right - left, without);
}

/* ---- tensors ---- */

static bool is_same(const psti_exact_instance *p, uint32_t a, uint32_t b)
{
    return p->begin[a] == p->begin[b] && p->end[a] == p->end[b];
}

/* Of equal ones the first comes first, and the smaller below the larger. */
static bool is_in_order(const psti_exact_state *state, uint32_t tensor, uint32_t run, uint32_t side)
{
    const psti_exact_instance *p = state->instance;
    if (p->pin[tensor] != PST_PLAN_FREE)
        return true;
    const uint32_t prev = state->prev[side][tensor];
    if (prev != PSTI_EXACT_NO_TENSOR && is_same(p, prev, tensor) &&
        p->size[prev] == p->size[tensor] && p->pin[prev] == PST_PLAN_FREE)
        return false;
    if (state->runs[run].lid == 0)
        return true;
    const uint32_t lid = state->runs[run].lid - 1;
    return !is_same(p, lid, tensor) || p->pin[lid] != PST_PLAN_FREE ||
           p->size[lid] < p->size[tensor] || (p->size[lid] == p->size[tensor] && lid < tensor);
}

/* A tensor that lives as long as all around it may as well lie below them. (What is above it is then a
 * smaller question of its own, so that this goes with the other rules.) NO_TENSOR: there is none, or
 * the floor is not even. */
static uint32_t foundation(const psti_exact_state *state, uint32_t begin)
{
    const psti_exact_instance *p = state->instance;
    const uint32_t end = state->runs[begin].end;
    if (state->cross[begin] > 0 || state->cross[end] > 0 ||
        psti_exact_ceiling(state, begin, end) != PSTI_EXACT_WALL)
        return PSTI_EXACT_NO_TENSOR;
    uint32_t r = state->head[PSTI_EXACT_LEFT][begin];
    while (r != PSTI_EXACT_NO_TENSOR && p->end[r] != end)
        r = state->next[PSTI_EXACT_LEFT][r];
    return r;
}

bool psti_exact_fits(const psti_exact_state *state, uint32_t tensor, uint32_t begin, uint32_t side)
{
    const psti_exact_instance *p = state->instance;
    const uint32_t end = state->runs[begin].end;
    const uint32_t base = foundation(state, begin);
    if (base != PSTI_EXACT_NO_TENSOR)
        return tensor == base;
    const uint32_t first = p->begin[tensor], last = p->end[tensor];
    if (first < begin || last > end || !is_in_order(state, tensor, begin, side))
        return false;
    const uint64_t floor = psti_exact_floor(state->runs[begin].level);
    const uint64_t top = floor + p->size[tensor];
    if (p->pin[tensor] != PST_PLAN_FREE ? p->pin[tensor] != floor
                                        : psti_exact_ceiling(state, first, last) < top)
        return false;
    const uint64_t level = state->runs[begin].level;
    const uint64_t left = first == begin ? psti_exact_left(state, begin) : level;
    if (left != PSTI_EXACT_WALL &&
        !border_can_close(state, first, psti_exact_floor(left), top, tensor))
        return false;
    const uint64_t right = last == end ? psti_exact_right(state, end) : level;
    return right == PSTI_EXACT_WALL ||
           border_can_close(state, last, top, psti_exact_floor(right), tensor);
}

/* ---- voids ---- */

/* The smallest tensor that lies within the slots. */
static uint64_t smallest_within(const psti_exact_state *state, uint32_t begin, uint32_t end)
{
    const psti_exact_instance *p = state->instance;
    uint64_t smallest = PSTI_EXACT_WALL;
    for (uint32_t t = begin; t < end; t++)
        for (uint32_t r = state->head[0][t]; r != PSTI_EXACT_NO_TENSOR; r = state->next[0][r])
            if (p->end[r] <= end && p->size[r] < smallest)
                smallest = p->size[r];
    return smallest;
}

static bool any_within(const psti_exact_state *state, uint32_t list, uint32_t at, uint32_t begin,
                       uint32_t end)
{
    const psti_exact_instance *p = state->instance;
    uint32_t r = state->head[list][at];
    while (r != PSTI_EXACT_NO_TENSOR && (p->begin[r] < begin || p->end[r] > end))
        r = state->next[list][r];
    return r != PSTI_EXACT_NO_TENSOR;
}

/* From the corner on no tensor rests on the floor before the first slot where another could begin. */
static void void_slots(const psti_exact_state *state, uint32_t begin, uint32_t side,
                       psti_exact_corner *corner)
{
    const uint32_t end = state->runs[begin].end;
    uint32_t at;
    if (side == PSTI_EXACT_LEFT) {
        for (at = begin + 1; at < end && !any_within(state, side, at, begin, end); at++)
            ;
        corner->void_begin = begin, corner->void_end = at;
    } else {
        for (at = end - 1; at > begin && !any_within(state, side, at, begin, end); at--)
            ;
        corner->void_begin = at, corner->void_end = end;
    }
}

/* How far the floor beside a void rises at least, by a tensor or up to a pin. */
static uint64_t least_rise(const psti_exact_state *state, uint32_t begin, uint32_t end,
                           uint64_t floor)
{
    uint64_t rise = smallest_within(state, begin, end);
    for (uint32_t t = begin; state->ceiling && t < end; t++)
        if (state->ceiling[t] > floor && state->ceiling[t] - floor < rise)
            rise = state->ceiling[t] - floor;
    return rise;
}

/* The level at least up to which the void goes: what comes next over it rests on something beside
 * it, or is pinned. 0: it must not be. */
static uint64_t void_level(const psti_exact_state *state, uint32_t begin, uint32_t side,
                           const psti_exact_corner *corner)
{
    const uint32_t end = state->runs[begin].end;
    const uint64_t level = state->runs[begin].level, floor = psti_exact_floor(level);
    const uint64_t left = psti_exact_left(state, begin), right = psti_exact_right(state, end);
    uint64_t next = left < right ? left : right;
    const uint64_t pin = psti_exact_ceiling(state, corner->void_begin, corner->void_end);
    if (pin != PSTI_EXACT_WALL && 2 * pin < next)
        next = 2 * pin;
    if (corner->void_begin > begin || corner->void_end < end) {
        const uint64_t rise = side == PSTI_EXACT_LEFT
                                  ? least_rise(state, corner->void_end, end, floor)
                                  : least_rise(state, begin, corner->void_begin, floor);
        const uint64_t rest = rise == PSTI_EXACT_WALL ? rise : floor + rise;
        if (rest < psti_exact_floor(next) || next == PSTI_EXACT_WALL)
            next = rest == PSTI_EXACT_WALL ? rest : 2 * rest - 1;
        else if (next % 2 == 0)
            next--; /* the rest of the valley has not risen yet */
    }
    return next == PSTI_EXACT_WALL || next <= level ? 0 : next;
}

static bool may_be_void(const psti_exact_state *state, const psti_exact_corner *corner,
                        uint64_t rise)
{
    for (uint32_t t = corner->void_begin; t < corner->void_end; t++)
        if (state->slack[t] < rise)
            return false;
    const psti_exact_instance *p = state->instance;
    for (uint32_t t = corner->void_begin; t < corner->void_end; t++)
        for (uint32_t r = state->head[0][t]; r != PSTI_EXACT_NO_TENSOR; r = state->next[0][r])
            if (p->end[r] <= corner->void_end && p->size[r] <= rise && p->pin[r] == PST_PLAN_FREE)
                return false;
    return true;
}

psti_exact_corner psti_exact_look(const psti_exact_state *state, uint32_t begin, uint32_t side)
{
    psti_exact_corner corner = {0};
    if (foundation(state, begin) != PSTI_EXACT_NO_TENSOR) {
        corner.num_choices = 1;
        return corner;
    }
    const uint32_t end = state->runs[begin].end;
    const uint32_t at = side == PSTI_EXACT_LEFT ? begin : end;
    const uint64_t floor = psti_exact_floor(state->runs[begin].level);
    const uint64_t left = psti_exact_left(state, begin), right = psti_exact_right(state, end);
    const uint64_t beside = side == PSTI_EXACT_LEFT ? left : right;
    if (beside != PSTI_EXACT_WALL &&
        !step_can_close(state, at, side, psti_exact_floor(beside) - floor, PSTI_EXACT_NO_TENSOR))
        return corner;
    for (uint32_t r = state->head[side][at]; r != PSTI_EXACT_NO_TENSOR; r = state->next[side][r])
        if (psti_exact_fits(state, r, begin, side))
            corner.num_choices++;
    if (state->slack[side == PSTI_EXACT_LEFT ? begin : end - 1] == 0)
        return corner;
    void_slots(state, begin, side, &corner);
    corner.void_level = void_level(state, begin, side, &corner);
    if (corner.void_level > 0 &&
        !may_be_void(state, &corner, psti_exact_floor(corner.void_level) - floor))
        corner.void_level = 0;
    corner.num_choices += corner.void_level > 0;
    return corner;
}
