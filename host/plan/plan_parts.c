/* Parts of a problem between which nothing lives: each is a problem of its own, and parts that are
 * the same are solved once. What lives throughout all slots is in no part: it goes to the bottom, since
 * all that any plan has below it could as well stand above. */
#include "host/base/table.h"
#include "host/plan/plan.h"

#include <string.h>

enum { NUM_GUESSES = 16 }; /* at how many parts a period has */

/* The slot from which all may follow. */
static uint32_t last_end(const psti_items *items, uint32_t item)
{
    const uint32_t *ends = items->end + (size_t)item * items->num_streams;
    uint32_t last = ends[0];
    for (uint32_t r = 1; r < items->num_streams; r++)
        last = ends[r] > last ? ends[r] : last;
    return last;
}

bool psti_parts_lives_throughout(const psti_parts *parts, uint32_t item)
{
    const psti_items *items = parts->items;
    const uint32_t *ends = items->end + (size_t)item * items->num_streams;
    bool right = parts->has_base && items->begin[item] == 0;
    for (uint32_t r = 0; right && r < items->num_streams; r++)
        right = ends[r] == items->num_slots;
    return right;
}

static bool may_go_down(const psti_items *items, psti_limits *limits)
{
    bool right = items->num_reserved == 0;
    for (uint32_t i = 0; i < items->n && right; i++)
        right = items->pin[i] == PST_PLAN_FREE && !psti_limits_over_at(limits, i);
    return right;
}

/* Numbers the parts: part_of[slot], from last[slot], the furthest end of what begins there. */
static uint32_t number_parts(uint32_t *last, uint32_t num_slots)
{
    uint32_t until = 0;
    uint32_t num = 0;
    for (uint32_t slot = 0; slot < num_slots; slot++) {
        num += slot >= until;
        until = last[slot] > until ? last[slot] : until;
        last[slot] = num - 1;
    }
    return num;
}

/* Sorts the items by part, each part's in their order, as long as there is time. */
static void sort_members(psti_parts *parts, const uint32_t *part_of, psti_limits *limits)
{
    const psti_items *items = parts->items;
    for (uint32_t slot = items->num_slots; slot-- > 0;)
        parts->list[part_of[slot]].begin = slot;
    for (uint32_t p = 0; p < parts->num; p++)
        parts->list[p].end = p + 1 < parts->num ? parts->list[p + 1].begin : items->num_slots;
    for (uint32_t i = 0; i < items->n && !psti_limits_over_at(limits, i); i++)
        if (!psti_parts_lives_throughout(parts, i))
            parts->list[part_of[items->begin[i]]].num++;
    for (uint32_t p = 1; p < parts->num; p++)
        parts->list[p].first = parts->list[p - 1].first + parts->list[p - 1].num;
    for (uint32_t p = 0; p < parts->num; p++)
        parts->list[p].num = 0;
    for (uint32_t i = 0; i < items->n && !psti_limits_over_at(limits, i); i++) {
        psti_part *part = &parts->list[part_of[items->begin[i]]];
        if (!psti_parts_lives_throughout(parts, i))
            parts->members[part->first + part->num++] = i;
    }
}

static uint64_t fold(uint64_t hash, uint64_t value)
{
    return psti_mix(hash ^ value);
}

static uint64_t hash_of(const psti_parts *parts, const psti_part *part)
{
    const psti_items *items = parts->items;
    uint64_t hash = fold(part->num, part->end - part->begin);
    for (uint32_t k = 0; k < part->num; k++) {
        const uint32_t i = parts->members[part->first + k];
        hash = fold(hash, items->size[i]);
        hash = fold(hash, items->begin[i] - part->begin);
        hash = fold(hash, last_end(items, i) - part->begin);
    }
    return hash;
}

static bool are_same(const psti_parts *parts, const psti_part *a, const psti_part *b)
{
    const psti_items *items = parts->items;
    const uint32_t streams = items->num_streams;
    const uint32_t by = b->begin - a->begin;
    bool right = a->num == b->num && a->end - a->begin == b->end - b->begin;
    for (uint32_t k = 0; k < a->num && right; k++) {
        const uint32_t x = parts->members[a->first + k];
        const uint32_t y = parts->members[b->first + k];
        right = items->size[x] == items->size[y] && items->pin[x] == items->pin[y] &&
                items->stream[x] == items->stream[y] && items->begin[x] + by == items->begin[y];
        for (uint32_t r = 0; r < streams && right; r++)
            right = items->end[(size_t)x * streams + r] + by == items->end[(size_t)y * streams + r];
    }
    return right;
}

static bool find_same(psti_parts *parts, psti_limits *limits)
{
    psti_map firsts = {NULL, 0, 0};
    bool has_memory = true;
    for (uint32_t p = 0; p < parts->num && has_memory; p++) {
        psti_part *part = &parts->list[p];
        part->like = p;
        if (psti_limits_over(limits))
            continue;
        const uint64_t hash = hash_of(parts, part);
        const uint64_t other = psti_map_get(&firsts, hash);
        if (other == PSTI_MAP_NONE)
            has_memory = psti_map_set(&firsts, hash, p) == PST_OK;
        else if (are_same(parts, part, &parts->list[other]))
            part->like = (uint32_t)other;
    }
    psti_map_free(&firsts);
    return has_memory;
}

/* A part of all items, as they are. */
static void keep_whole(psti_parts *parts)
{
    const psti_items *items = parts->items;
    psti_free(parts->members);
    parts->members = NULL;
    parts->list[0] = (psti_part){0, items->n, 0, items->num_slots, 0};
    parts->num = 1;
    parts->base = 0;
    parts->has_base = false;
}

/* Numbers the parts in `last`, [num_slots + 1] and zero; *num_below_out: how many items are in none. */
static void find_parts(psti_parts *parts, uint32_t *last, uint32_t *num_below_out,
                       psti_limits *limits)
{
    const psti_items *items = parts->items;
    parts->has_base = may_go_down(items, limits);
    for (uint32_t i = 0; i < items->n && !psti_limits_over_at(limits, i); i++) {
        const uint32_t end = last_end(items, i);
        if (psti_parts_lives_throughout(parts, i)) {
            parts->base += items->size[i];
            (*num_below_out)++;
        } else if (end > last[items->begin[i]]) {
            last[items->begin[i]] = end;
        }
    }
    parts->num = number_parts(last, items->num_slots);
}

bool psti_parts_open(psti_parts *parts, const psti_items *items, psti_limits *limits)
{
    *parts = (psti_parts){.items = items, .num = 1};
    uint32_t *last = psti_calloc((size_t)items->num_slots + 1, sizeof(*last));
    uint32_t num_below = 0;
    if (last != NULL && items->num_intervals == items->n && !psti_limits_over(limits))
        find_parts(parts, last, &num_below, limits);
    parts->list = psti_calloc((size_t)parts->num + 1, sizeof(*parts->list));
    parts->members = psti_calloc((size_t)items->n + 1, sizeof(*parts->members));
    bool has_memory = last != NULL && parts->list != NULL && parts->members != NULL;
    if (has_memory && (parts->num > 1 || num_below > 0) && !psti_limits_over(limits)) {
        sort_members(parts, last, limits);
        has_memory = find_same(parts, limits);
    } else if (has_memory) {
        keep_whole(parts);
    }
    if (has_memory && psti_limits_over(limits)) /* too late to plan one after the other */
        keep_whole(parts);
    psti_free(last);
    return has_memory;
}

void psti_parts_close(psti_parts *parts)
{
    psti_free(parts->list);
    psti_free(parts->members);
}

static void cut_item(const psti_parts *parts, const psti_part *part, uint32_t k, psti_items *cut)
{
    const psti_items *items = parts->items;
    const uint32_t i = parts->members[part->first + k];
    const uint32_t streams = items->num_streams;
    cut->first[k + 1] = k + 1;
    cut->begin[k] = items->begin[i] - part->begin;
    for (uint32_t r = 0; r < streams; r++)
        cut->end[(size_t)k * streams + r] = items->end[(size_t)i * streams + r] - part->begin;
    cut->stream[k] = items->stream[i];
    cut->size[k] = items->size[i];
    cut->pin[k] = items->pin[i];
    cut->length[k] = items->length[i];
    cut->contention[k] = items->contention[i] - parts->base;
}

bool psti_parts_cut(const psti_parts *parts, uint32_t p, psti_items *cut)
{
    const psti_items *items = parts->items;
    const psti_part *part = &parts->list[p];
    if (!psti_items_alloc(cut, part->num, part->num, items->num_streams, items->num_reserved))
        return false;
    cut->num_slots = part->end - part->begin;
    cut->live_size = psti_calloc((size_t)cut->num_slots + 1, sizeof(*cut->live_size));
    cut->instant = psti_calloc((size_t)cut->num_slots + 1, sizeof(*cut->instant));
    if (cut->live_size == NULL || cut->instant == NULL)
        return false;
    cut->unit = items->unit;
    cut->capacity = items->capacity - parts->base;
    cut->goal = items->goal > parts->base ? items->goal - parts->base : 0;
    memcpy(cut->reserved, items->reserved, items->num_reserved * sizeof(*cut->reserved));
    for (uint32_t k = 0; k < part->num; k++)
        cut_item(parts, part, k, cut);
    for (uint32_t slot = 0; slot < cut->num_slots; slot++) {
        cut->instant[slot] = items->instant[part->begin + slot];
        cut->live_size[slot] = items->live_size[part->begin + slot] - parts->base;
        if (cut->live_size[slot] > cut->most_live) {
            cut->most_live = cut->live_size[slot];
            cut->max_slot = slot;
        }
    }
    cut->bound = psti_items_bound(cut);
    return true;
}

/* ---- the period ---- */

static uint32_t num_tensors(const psti_parts *parts, uint32_t begin, uint32_t end)
{
    return parts->list[end - 1].first + parts->list[end - 1].num - parts->list[begin].first;
}

/* The longest run of parts each of which is like the one `distance` before it. */
static psti_period longest_run(const psti_parts *parts, uint32_t distance)
{
    psti_period best = {.count = 0};
    uint32_t length = 0;
    for (uint32_t p = distance; p < parts->num; p++) {
        length = parts->list[p].like == parts->list[p - distance].like ? length + 1 : 0;
        if (length < distance)
            continue;
        const uint32_t count = length / distance + 1;
        const uint32_t begin = p + 1 - length - distance;
        const uint32_t num = num_tensors(parts, begin, begin + distance);
        if ((uint64_t)num * count > (uint64_t)best.num_tensors * best.count)
            best = (psti_period){parts->items->instant[parts->list[begin].begin], num, count};
    }
    return best;
}

psti_period psti_parts_period(const psti_parts *parts)
{
    psti_period best = {.count = 0};
    uint32_t tried[NUM_GUESSES];
    uint32_t num_tried = 0;
    for (uint32_t p = 0; p < parts->num && parts->members != NULL && num_tried < NUM_GUESSES; p++) {
        const uint32_t distance = p - parts->list[p].like;
        uint32_t k = 0;
        while (k < num_tried && tried[k] != distance)
            k++;
        if (distance == 0 || k < num_tried)
            continue;
        tried[num_tried++] = distance;
        const psti_period found = longest_run(parts, distance);
        if ((uint64_t)found.num_tensors * found.count > (uint64_t)best.num_tensors * best.count)
            best = found;
    }
    return best;
}
