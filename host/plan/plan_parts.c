/* Parts of a problem that follow each other: each is a problem of its own, and parts that are the same
 * are solved once. Nothing lives from one into the next but what lasts to the end, such as weights. That
 * goes to the bottom in the order of its begins, and a part stands on all of it that has begun before the
 * part ends: what a plan has below an item that is there throughout the part could as well stand above.
 * Of an item that begins within the part that is not so, and the part may stand higher than it must. */
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

static bool lasts(const psti_parts *parts, uint32_t item)
{
    const psti_items *items = parts->items;
    const uint32_t *ends = items->end + (size_t)item * items->num_streams;
    bool right = parts->may_go_down;
    for (uint32_t r = 0; right && r < items->num_streams; r++)
        right = ends[r] == items->num_slots;
    return right;
}

/* Its address is that of the stack at the bottom. */
static bool is_below(const psti_parts *parts, uint32_t item)
{
    return parts->items->begin[item] < parts->until && lasts(parts, item);
}

static psti_part *part_of(const psti_parts *parts, uint32_t item)
{
    return &parts->list[parts->part_of[parts->items->begin[item]]];
}

static bool may_go_down(const psti_items *items, psti_limits *limits)
{
    bool right = items->num_reserved == 0;
    for (uint32_t i = 0; i < items->n && right; i++)
        right = items->pin[i] == PST_PLAN_FREE && !psti_limits_over_at(limits, i);
    return right;
}

/* Numbers the parts in part_of[slot], which is the furthest end of what begins there. */
static uint32_t number_parts(uint32_t *part_of, uint32_t num_slots)
{
    uint32_t until = 0;
    uint32_t num = 0;
    for (uint32_t slot = 0; slot < num_slots; slot++) {
        num += slot >= until;
        until = part_of[slot] > until ? part_of[slot] : until;
        part_of[slot] = num - 1;
    }
    return num;
}

/* At all slots across which nothing lives but what lasts. */
static void find_parts(psti_parts *parts, psti_limits *limits)
{
    const psti_items *items = parts->items;
    parts->may_go_down = may_go_down(items, limits);
    for (uint32_t i = 0; i < items->n && !psti_limits_over_at(limits, i); i++) {
        uint32_t *furthest = &parts->part_of[items->begin[i]];
        if (!lasts(parts, i) && last_end(items, i) > *furthest)
            *furthest = last_end(items, i);
    }
    parts->num = number_parts(parts->part_of, items->num_slots);
}

/* Makes one part of this one and all that follow, in which what lasts is an item like others. */
static void join_from(psti_parts *parts, uint32_t p)
{
    parts->num = p + 1;
    parts->list[p].end = parts->items->num_slots;
    parts->list[p].like = p;
    parts->until = p > 0 ? parts->list[p].begin : 1;
    for (uint32_t slot = parts->list[p].begin; slot < parts->items->num_slots; slot++)
        parts->part_of[slot] = p;
}

/* The first part that with all that follow is hardly larger than the largest. Only one in which
 * something begins that lasts: at the others a problem ends, and nothing is lost there. */
static uint32_t choose_last(psti_parts *parts, psti_limits *limits)
{
    const psti_items *items = parts->items;
    uint64_t largest = 0;
    uint64_t left = items->n;
    for (uint32_t i = 0; i < items->n && !psti_limits_over_at(limits, i); i++) {
        part_of(parts, i)->num++;
        part_of(parts, i)->has_lasting |= items->begin[i] > 0 && lasts(parts, i);
    }
    for (uint32_t p = 0; p < parts->num; p++)
        largest = parts->list[p].num > largest ? parts->list[p].num : largest;
    for (uint32_t p = 0; p < parts->num; p++) {
        if (parts->list[p].has_lasting && 4 * left <= 5 * largest)
            return p;
        left -= parts->list[p].num;
    }
    return parts->num - 1;
}

static void bound_parts(psti_parts *parts, psti_limits *limits)
{
    const psti_items *items = parts->items;
    for (uint32_t slot = items->num_slots; slot-- > 0;)
        parts->list[parts->part_of[slot]].begin = slot;
    for (uint32_t p = 0; p < parts->num; p++)
        parts->list[p].end = p + 1 < parts->num ? parts->list[p + 1].begin : items->num_slots;
    join_from(parts, choose_last(parts, limits));
}

/* Sorts the items by part, each part's in their order, as long as there is time; and on what a part
 * stands. */
static void sort_members(psti_parts *parts, psti_limits *limits)
{
    const psti_items *items = parts->items;
    for (uint32_t p = 0; p < parts->num; p++)
        parts->list[p] = (psti_part){
            .begin = parts->list[p].begin, .end = parts->list[p].end, .like = parts->list[p].like};
    for (uint32_t i = 0; i < items->n && !psti_limits_over_at(limits, i); i++) {
        psti_part *part = part_of(parts, i);
        if (!is_below(parts, i)) {
            part->num++;
            continue;
        }
        part->floor += items->size[i];
        if (items->begin[i] == part->begin)
            part->sure_floor += items->size[i];
    }
    for (uint32_t p = 1; p < parts->num; p++) {
        const psti_part *before = &parts->list[p - 1];
        parts->list[p].first = before->first + before->num;
        parts->list[p].sure_floor += before->floor;
        parts->list[p].floor += before->floor;
    }
    for (uint32_t p = 0; p < parts->num; p++)
        parts->list[p].num = 0;
    for (uint32_t i = 0; i < items->n && !psti_limits_over_at(limits, i); i++) {
        psti_part *part = part_of(parts, i);
        if (!is_below(parts, i))
            parts->members[part->first + part->num++] = i;
    }
}

/* The stack at the bottom. False: no memory. */
static bool lay_below(const psti_parts *parts, psti_limits *limits)
{
    const psti_items *items = parts->items;
    uint64_t *next = psti_calloc((size_t)items->num_slots + 1, sizeof(*next));
    if (next == NULL)
        return false;
    for (uint32_t i = 0; i < items->n && !psti_limits_over_at(limits, i); i++)
        if (is_below(parts, i))
            next[items->begin[i] + 1] += items->size[i];
    for (uint32_t slot = 0; slot < items->num_slots; slot++)
        next[slot + 1] += next[slot];
    for (uint32_t i = 0; i < items->n && !psti_limits_over_at(limits, i); i++)
        if (is_below(parts, i)) {
            parts->address[i] = next[items->begin[i]];
            next[items->begin[i]] += items->size[i];
        }
    psti_free(next);
    return true;
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

/* Of parts that are the same: floors rise. */
static void find_highest(const psti_parts *parts)
{
    for (uint32_t p = 0; p < parts->num; p++)
        parts->list[parts->list[p].like].highest = p;
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
    find_highest(parts);
    return has_memory;
}

/* A part of all items, as they are. */
static void keep_whole(psti_parts *parts)
{
    const psti_items *items = parts->items;
    psti_free(parts->members);
    parts->members = NULL;
    parts->list[0] = (psti_part){.num = items->n, .end = items->num_slots};
    parts->num = 1;
    parts->until = 0;
}

bool psti_parts_open(psti_parts *parts, const psti_items *items, uint64_t *address,
                     psti_limits *limits)
{
    *parts = (psti_parts){.items = items, .address = address, .num = 1};
    parts->part_of = psti_calloc((size_t)items->num_slots + 1, sizeof(*parts->part_of));
    if (parts->part_of != NULL && items->num_intervals == items->n && !psti_limits_over(limits))
        find_parts(parts, limits);
    parts->list = psti_calloc((size_t)parts->num + 1, sizeof(*parts->list));
    parts->members = psti_calloc((size_t)items->n + 1, sizeof(*parts->members));
    bool has_memory = parts->part_of != NULL && parts->list != NULL && parts->members != NULL;
    if (has_memory && !psti_limits_over(limits)) {
        bound_parts(parts, limits);
        sort_members(parts, limits);
        has_memory = lay_below(parts, limits) && find_same(parts, limits);
    }
    const bool is_whole = parts->num == 1 && parts->list != NULL && parts->list[0].num == items->n;
    if (has_memory && (is_whole || psti_limits_over(limits))) /* late: not one after the other */
        keep_whole(parts);
    return has_memory;
}

void psti_parts_join(psti_parts *parts, uint32_t p)
{
    join_from(parts, p);
    sort_members(parts, NULL);
    find_highest(parts);
}

void psti_parts_close(psti_parts *parts)
{
    psti_free(parts->list);
    psti_free(parts->members);
    psti_free(parts->part_of);
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
}

bool psti_parts_cut(const psti_parts *parts, uint32_t p, psti_limits *limits, psti_items *cut)
{
    const psti_items *items = parts->items;
    const psti_part *part = &parts->list[p];
    const uint64_t floor = parts->list[part->highest].floor;
    if (!psti_items_alloc(cut, part->num, part->num, items->num_streams, items->num_reserved))
        return false;
    cut->num_slots = part->end - part->begin;
    cut->instant = psti_calloc((size_t)cut->num_slots + 1, sizeof(*cut->instant));
    if (cut->instant == NULL)
        return false;
    memcpy(cut->instant, items->instant + part->begin, cut->num_slots * sizeof(*cut->instant));
    memcpy(cut->reserved, items->reserved, items->num_reserved * sizeof(*cut->reserved));
    cut->unit = items->unit;
    cut->capacity = items->capacity - floor;
    cut->goal = items->goal > floor ? items->goal - floor : 0;
    for (uint32_t k = 0; k < part->num; k++)
        cut_item(parts, part, k, cut);
    return psti_items_weigh(cut, limits);
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
