/* Times become slots: two intervals share a slot if and only if one begins before the other is
 * released. Begins with no release between them are one slot. */
#include "host/base/table.h"
#include "host/plan/plan.h"

#include <stdlib.h>
#include <string.h>

static int by_range(const void *a, const void *b)
{
    const pst_plan_range *x = a;
    const pst_plan_range *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

bool psti_items_alloc(psti_items *items, uint32_t n, uint32_t num_intervals, uint32_t num_streams,
                      uint32_t num_reserved)
{
    *items = (psti_items){.n = n,
                          .num_intervals = num_intervals,
                          .num_streams = num_streams,
                          .num_reserved = num_reserved,
                          .unit = 1,
                          .capacity = UINT64_MAX};
    const size_t words = (size_t)num_intervals * num_streams;
    items->first = psti_calloc((size_t)n + 1, sizeof(*items->first));
    items->begin = psti_calloc((size_t)num_intervals + 1, sizeof(*items->begin));
    items->end = psti_calloc(words + 1, sizeof(*items->end));
    items->stream = psti_calloc((size_t)n + 1, sizeof(*items->stream));
    items->size = psti_calloc((size_t)n + 1, sizeof(*items->size));
    items->pin = psti_calloc((size_t)n + 1, sizeof(*items->pin));
    items->contention = psti_calloc((size_t)n + 1, sizeof(*items->contention));
    items->length = psti_calloc((size_t)n + 1, sizeof(*items->length));
    items->reserved = psti_calloc((size_t)num_reserved + 1, sizeof(*items->reserved));
    return items->first != NULL && items->begin != NULL && items->end != NULL &&
           items->stream != NULL && items->size != NULL && items->pin != NULL &&
           items->contention != NULL && items->length != NULL && items->reserved != NULL;
}

void psti_items_free(psti_items *items)
{
    psti_free(items->first);
    psti_free(items->begin);
    psti_free(items->end);
    psti_free(items->stream);
    psti_free(items->size);
    psti_free(items->pin);
    psti_free(items->contention);
    psti_free(items->length);
    psti_free(items->reserved);
    psti_free(items->live_size);
    psti_free(items->instant);
    *items = (psti_items){.n = 0};
}

/* Values of sorted[0..n) that are below `bound`. */
static uint32_t num_below(const uint64_t *sorted, uint32_t n, uint64_t bound)
{
    uint32_t low = 0;
    while (n > 0) {
        const uint32_t half = n / 2;
        if (sorted[low + half] < bound) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}

/* Gives first_begin[slot] and items->instant[slot], the first and last begin of each slot. */
static void find_slots(psti_items *items, const uint64_t *begins, uint32_t num_begins,
                       const uint64_t *ends, size_t num_ends, uint64_t *first_begin)
{
    size_t e = 0;
    for (uint32_t b = 0; b < num_begins; b++) {
        const size_t passed = e;
        while (e < num_ends && ends[e] <= begins[b])
            e++;
        if (b == 0 || e > passed)
            first_begin[items->num_slots++] = begins[b];
        items->instant[items->num_slots - 1] = begins[b];
    }
}

static bool make_slots(psti_items *items, const psti_interval *intervals)
{
    const uint32_t n = items->num_intervals;
    const uint32_t streams = items->num_streams;
    uint64_t *begins = psti_calloc((size_t)n * 2 + 1, sizeof(*begins));
    uint64_t *ends = psti_calloc((size_t)n * streams + 1, sizeof(*ends));
    items->instant = psti_calloc((size_t)n + 1, sizeof(*items->instant));
    const bool has_memory = begins != NULL && ends != NULL && items->instant != NULL;
    if (has_memory) {
        for (uint32_t k = 0; k < n; k++) {
            begins[k] = intervals[k].begin;
            memcpy(ends + (size_t)k * streams, intervals[k].ends, streams * sizeof(*ends));
        }
        psti_sort_numbers(begins, n);
        psti_sort_numbers(ends, (uint64_t)n * streams);
        uint64_t *first_begin = begins + n;
        find_slots(items, begins, n, ends, (size_t)n * streams, first_begin);
        for (uint32_t k = 0; k < n; k++) {
            items->begin[k] = num_below(first_begin, items->num_slots, intervals[k].begin + 1) - 1;
            for (uint32_t r = 0; r < streams; r++)
                items->end[(size_t)k * streams + r] =
                    num_below(first_begin, items->num_slots, intervals[k].ends[r]);
        }
    }
    psti_free(begins);
    psti_free(ends);
    return has_memory;
}

/* The slot from which some stream may follow: until then the interval is in everybody's way. */
static uint32_t first_end(const psti_items *items, uint32_t interval)
{
    const uint32_t *ends = items->end + (size_t)interval * items->num_streams;
    uint32_t first = ends[0];
    for (uint32_t r = 1; r < items->num_streams; r++)
        first = ends[r] < first ? ends[r] : first;
    return first;
}

static bool make_live_sizes(psti_items *items)
{
    items->live_size = psti_calloc((size_t)items->num_slots + 1, sizeof(*items->live_size));
    if (items->live_size == NULL)
        return false;
    for (uint32_t i = 0; i < items->n; i++)
        for (uint32_t k = items->first[i]; k < items->first[i + 1]; k++) {
            items->live_size[items->begin[k]] += items->size[i];
            items->live_size[first_end(items, k)] -= items->size[i];
        }
    for (uint32_t slot = 0; slot < items->num_slots; slot++) {
        items->live_size[slot] += slot > 0 ? items->live_size[slot - 1] : 0;
        if (items->live_size[slot] > items->most_live) {
            items->most_live = items->live_size[slot];
            items->max_slot = slot;
        }
    }
    return true;
}

/* Largest live size over every interval: a sparse table of maxima over 2^level slots. */
static bool make_contention(psti_items *items)
{
    uint32_t levels = 1;
    while (items->num_slots >> levels != 0)
        levels++;
    const size_t width = items->num_slots;
    uint64_t *table = psti_calloc(levels * width + 1, sizeof(*table));
    if (table == NULL)
        return false;
    memcpy(table, items->live_size, width * sizeof(*table));
    for (uint32_t level = 1; level < levels; level++) {
        const uint64_t *from = table + (level - 1) * width;
        const size_t half = (size_t)1 << (level - 1);
        for (size_t slot = 0; slot + 2 * half <= width; slot++)
            table[level * width + slot] =
                from[slot] > from[slot + half] ? from[slot] : from[slot + half];
    }
    for (uint32_t i = 0; i < items->n; i++)
        for (uint32_t k = items->first[i]; k < items->first[i + 1]; k++) {
            const uint32_t end = first_end(items, k);
            const uint32_t length = end - items->begin[k];
            const uint32_t level = 31 - (uint32_t)__builtin_clz(length);
            const uint64_t *row = table + level * width;
            const uint64_t a = row[items->begin[k]];
            const uint64_t b = row[end - (1u << level)];
            const uint64_t most = a > b ? a : b;
            if (most > items->contention[i])
                items->contention[i] = most;
        }
    psti_free(table);
    return true;
}

uint64_t psti_items_top_for(const psti_items *items, uint64_t live_size)
{
    uint64_t top = live_size;
    for (uint32_t r = 0; r < items->num_reserved && items->reserved[r].begin < top; r++)
        top += items->reserved[r].end - items->reserved[r].begin;
    return top;
}

/* Sorts the reserved ranges and joins those that touch. */
static void join_reserved(psti_items *items)
{
    pst_plan_range *ranges = items->reserved;
    qsort(ranges, items->num_reserved, sizeof(*ranges), by_range);
    uint32_t kept = 0;
    for (uint32_t r = 0; r < items->num_reserved; r++) {
        if (kept > 0 && ranges[r].begin <= ranges[kept - 1].end) {
            if (ranges[r].end > ranges[kept - 1].end)
                ranges[kept - 1].end = ranges[r].end;
        } else {
            ranges[kept++] = ranges[r];
        }
    }
    items->num_reserved = kept;
}

bool psti_items_finish(psti_items *items, const psti_interval *intervals)
{
    if (!make_slots(items, intervals) || !make_live_sizes(items) || !make_contention(items))
        return false;
    join_reserved(items);
    items->bound = psti_items_top_for(items, items->most_live);
    for (uint32_t i = 0; i < items->n; i++)
        for (uint32_t k = items->first[i]; k < items->first[i + 1]; k++)
            items->length[i] += intervals[k].ends[0] - intervals[k].begin;
    for (uint32_t i = 0; i < items->n; i++)
        if (items->pin[i] != PST_PLAN_FREE && items->pin[i] + items->size[i] > items->bound)
            items->bound = items->pin[i] + items->size[i];
    return true;
}

/* Largest divisor of all sizes and pins, and of the reserved ranges grown to the alignment. */
static uint64_t find_unit(const pst_plan_problem *problem)
{
    const uint64_t align = problem->align != 0 ? problem->align : PSTI_PLAN_ALIGN;
    uint64_t unit = 0;
    for (uint64_t i = 0; i < problem->num_tensors && unit != 1; i++) {
        unit = psti_gcd(unit, psti_plan_round(problem, problem->tensors[i].bytes));
        if (problem->tensors[i].pin != PST_PLAN_FREE)
            unit = psti_gcd(unit, problem->tensors[i].pin);
    }
    for (uint32_t r = 0; r < problem->num_reserved && unit != 1; r++)
        unit = psti_gcd(
            psti_gcd(unit, problem->reserved[r].begin - problem->reserved[r].begin % align),
            psti_plan_round(problem, problem->reserved[r].end));
    return unit != 0 ? unit : 1;
}

void psti_items_reserve(psti_items *items, const pst_plan_problem *problem)
{
    for (uint32_t r = 0; r < problem->num_reserved; r++)
        items->reserved[r] = (pst_plan_range){
            .begin = problem->reserved[r].begin / items->unit,
            .end = (problem->reserved[r].end + items->unit - 1) / items->unit,
        };
}

pst_status psti_items_of_problem(const pst_plan_problem *problem, psti_items *items)
{
    const uint32_t n = (uint32_t)problem->num_tensors;
    const uint32_t streams = problem->num_streams > 1 ? problem->num_streams : 1;
    psti_interval *intervals = psti_calloc((size_t)n + 1, sizeof(*intervals));
    bool has_memory = psti_items_alloc(items, n, n, streams, problem->num_reserved);
    if (intervals != NULL && has_memory) {
        items->unit = find_unit(problem);
        items->capacity =
            (problem->capacity != 0 ? problem->capacity : PST_PLAN_MAX_BYTES) / items->unit;
        for (uint32_t i = 0; i < n; i++) {
            const pst_plan_tensor *tensor = &problem->tensors[i];
            items->first[i + 1] = i + 1;
            items->stream[i] = streams > 1 ? tensor->stream : 0;
            items->size[i] = psti_plan_round(problem, tensor->bytes) / items->unit;
            items->pin[i] =
                tensor->pin == PST_PLAN_FREE ? PST_PLAN_FREE : tensor->pin / items->unit;
            intervals[i] =
                (psti_interval){tensor->begin, streams > 1 ? problem->releases + (size_t)i * streams
                                                           : &tensor->end};
        }
        psti_items_reserve(items, problem);
        has_memory = psti_items_finish(items, intervals);
    }
    has_memory = has_memory && intervals != NULL;
    psti_free(intervals);
    PSTI_CHECK(has_memory, PST_E_NOMEM, "out of memory for a plan of %u tensors", n);
    return PST_OK;
}
