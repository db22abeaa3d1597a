/* What a thread of the exact search keeps, and how it begins. */
#include <stdlib.h>
#include <string.h>

#include "host/plan/plan_exact.h"
#include "kernels/core/mix.h"

static psti_verdict grow(psti_exact_state *state, void **memory, size_t *max, size_t wanted,
                         size_t bytes)
{
    const psti_verdict verdict = psti_exact_grow(state->instance, memory, max, wanted, bytes);
    state->is_denied |= verdict == PSTI_STOPPED;
    return verdict;
}

psti_verdict psti_exact_reserve_frame(psti_exact_state *state)
{
    void *frames = state->frames;
    const psti_verdict verdict =
        grow(state, &frames, &state->max_frames, state->num_frames + 1, sizeof(*state->frames));
    state->frames = frames;
    return verdict;
}

psti_verdict psti_exact_reserve(psti_exact_state *state, uint64_t num_slots)
{
    /* at most five runs are set, and two more where a border opens; two changes each */
    void *changes = state->changes;
    const psti_verdict verdict =
        grow(state, &changes, &state->max_changes, state->num_changes + 16 + 4 * num_slots,
             sizeof(*state->changes));
    state->changes = changes;
    return verdict;
}

/* NULL without a base: then only the bytes are counted. */
static void *carve(unsigned char *base, uint64_t *used, uint64_t count, size_t bytes)
{
    void *memory = base ? base + *used : NULL;
    *used += (count * bytes + 7) / 8 * 8;
    return memory;
}

/* Returns how many bytes it takes. */
static uint64_t lay_out(psti_exact_state *state, unsigned char *base)
{
    const uint64_t n = state->instance->num_tensors;
    const uint64_t slots = state->instance->num_slots + UINT64_C(1);
    uint64_t used = 0;
    state->slack = carve(base, &used, slots, sizeof(uint64_t));
    state->sores = carve(base, &used, slots, sizeof(double));
    if (state->instance->num_pinned > 0)
        state->ceiling = carve(base, &used, slots, sizeof(uint64_t));
    state->runs = carve(base, &used, slots, sizeof(psti_exact_run));
    state->corners = carve(base, &used, slots, sizeof(psti_exact_corners));
    state->offset = carve(base, &used, n, sizeof(uint64_t));
    state->entries = carve(base, &used, n, sizeof(psti_exact_entry));
    state->live = carve(base, &used, slots, sizeof(uint32_t));
    state->cross = carve(base, &used, slots, sizeof(uint32_t));
    for (int side = 0; side < PSTI_EXACT_SIDES; side++) {
        state->head[side] = carve(base, &used, slots, sizeof(uint32_t));
        state->next[side] = carve(base, &used, n, sizeof(uint32_t));
        state->prev[side] = carve(base, &used, n, sizeof(uint32_t));
    }
    return used;
}

psti_verdict psti_exact_state_open(psti_exact_instance *instance, psti_exact_state *state_out)
{
    psti_exact_state state = {.instance = instance, .sore = 1};
    state.memory_bytes = lay_out(&state, NULL);
    const psti_verdict verdict = psti_exact_take(instance, state.memory_bytes, &state.memory);
    state.is_denied = verdict == PSTI_STOPPED;
    if (verdict == PSTI_FOUND)
        lay_out(&state, state.memory);
    *state_out = state;
    return verdict;
}

void psti_exact_state_close(psti_exact_state *state)
{
    psti_exact_give(state->instance, state->changes, state->max_changes * sizeof(*state->changes));
    psti_exact_give(state->instance, state->frames, state->max_frames * sizeof(*state->frames));
    psti_exact_give(state->instance, state->memory, state->memory_bytes);
}

/* ---- the beginning ---- */

/* Equal tensors get equal keys. */
static double key_of(const psti_exact_instance *p, uint32_t r, const psti_exact_manner *manner)
{
    uint64_t hash = psti_mix_final(manner->seed + p->begin[r]);
    hash = psti_mix_final(hash + p->end[r]);
    hash = psti_mix_final(hash + p->size[r]);
    const double chance = 1 + (double)(hash >> 32) * 0x1p-32;
    return manner->order == PSTI_EXACT_BY_LENGTH ? chance * (p->end[r] - p->begin[r]) : chance;
}

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_entries(const void *left, const void *right)
{
    const psti_exact_entry *a = left, *b = right;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    if (a->size != b->size)
        return compare(b->size, a->size);
    if (a->begin != b->begin)
        return compare(a->begin, b->begin);
    return a->end != b->end ? compare(a->end, b->end) : compare(a->tensor, b->tensor);
}

static void fill_lists(psti_exact_state *state, const psti_exact_manner *manner)
{
    const psti_exact_instance *p = state->instance;
    for (uint32_t r = 0; r < p->num_tensors; r++)
        state->entries[r] =
            (psti_exact_entry){key_of(p, r, manner), p->size[r], p->begin[r], p->end[r], r};
    qsort(state->entries, p->num_tensors, sizeof(*state->entries), compare_entries);
    for (int side = 0; side < PSTI_EXACT_SIDES; side++) {
        for (uint32_t t = 0; t <= p->num_slots; t++)
            state->head[side][t] = PSTI_EXACT_NO_TENSOR;
        for (uint32_t i = p->num_tensors; i-- > 0;) {
            const uint32_t r = state->entries[i].tensor;
            uint32_t *head = &state->head[side][psti_exact_list(p, side, r)];
            state->next[side][r] = *head;
            state->prev[side][r] = PSTI_EXACT_NO_TENSOR;
            if (*head != PSTI_EXACT_NO_TENSOR)
                state->prev[side][*head] = r;
            *head = r;
        }
    }
}

static void fill_slots(psti_exact_state *state)
{
    const psti_exact_instance *p = state->instance;
    const uint32_t slots = p->num_slots;
    memset(state->live, 0, (slots + UINT64_C(1)) * sizeof(*state->live));
    memset(state->slack, 0, (slots + UINT64_C(1)) * sizeof(*state->slack));
    for (uint32_t r = 0; r < p->num_tensors; r++) {
        state->live[p->begin[r]]++;
        state->live[p->end[r]]--;
        state->slack[p->begin[r]] += p->size[r];
        state->slack[p->end[r]] -= p->size[r];
    }
    for (uint32_t t = 1; t <= slots; t++) {
        state->live[t] += state->live[t - 1];
        state->slack[t] += state->slack[t - 1];
    }
    for (uint32_t t = 0; t < slots; t++) {
        state->slack[t] = p->target - state->slack[t];
        uint32_t begun = 0;
        for (uint32_t r = state->head[0][t]; r != PSTI_EXACT_NO_TENSOR; r = state->next[0][r])
            begun++;
        state->cross[t] = state->live[t] - begun;
    }
    state->cross[slots] = 0;
    for (uint32_t t = 0; state->ceiling && t < slots; t++)
        state->ceiling[t] = PSTI_EXACT_WALL;
    for (uint32_t i = 0; state->ceiling && i < p->num_pinned; i++) {
        const uint32_t r = p->pinned[i];
        for (uint32_t t = p->begin[r]; t < p->end[r]; t++)
            if (p->pin[r] < state->ceiling[t])
                state->ceiling[t] = p->pin[r];
    }
}

void psti_exact_reset(psti_exact_state *state, const psti_exact_manner *manner)
{
    const uint32_t slots = state->instance->num_slots;
    state->focus = manner->focus;
    state->num_unplaced = state->instance->num_tensors;
    state->num_changes = state->num_frames = 0;
    fill_lists(state, manner);
    fill_slots(state);
    memset(state->runs, 0, (slots + UINT64_C(1)) * sizeof(*state->runs));
    memset(state->corners, 0, (slots + UINT64_C(1)) * sizeof(*state->corners));
    uint32_t begin = 0;
    for (uint32_t t = 1; t <= slots; t++)
        if (state->cross[t] == 0) {
            state->runs[begin].end = t;
            state->runs[t].before = begin;
            begin = t;
        }
}
