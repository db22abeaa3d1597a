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

/* Values of sorted[0..n) that are below `bound`; the search begins at `near` and goes ever further. */
static uint32_t num_below(const uint64_t *sorted, uint32_t n, uint64_t bound, uint32_t near)
{
    uint32_t low = near < n ? near : n;
    uint32_t high = low;
    for (uint32_t far = 1; low > 0 && sorted[low - 1] >= bound; far *= 2) {
        high = low - 1;
        low -= far < low ? far : low;
    }
    for (uint32_t far = 1; high < n && sorted[high] < bound; far *= 2) {
        low = high + 1;
        high += far < n - high ? far : n - high;
    }
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (sorted[middle] < bound)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Gives first_begin[slot] and items->instant[slot], the first and last begin of each slot. */
static void find_slots(psti_items *items, const uint64_t *begins, uint32_t num_begins,
                       const uint64_t *ends, size_t num_ends, uint64_t *first_begin,
                       psti_limits *limits)
{
    size_t e = 0;
    for (uint32_t b = 0; b < num_begins && !psti_limits_over_at(limits, b); b++) {
        const size_t passed = e;
        while (e < num_ends && ends[e] <= begins[b])
            e++;
        if (b == 0 || e > passed)
            first_begin[items->num_slots++] = begins[b];
        items->instant[items->num_slots - 1] = begins[b];
    }
}

static bool make_slots(psti_items *items, const psti_interval *intervals, psti_limits *limits)
{
    const uint32_t n = items->num_intervals;
    const uint32_t streams = items->num_streams;
    uint64_t *begins = psti_calloc((size_t)n * 2 + 1, sizeof(*begins));
    uint64_t *ends = psti_calloc((size_t)n * streams + 1, sizeof(*ends));
    items->instant = psti_calloc((size_t)n + 1, sizeof(*items->instant));
    const bool has_memory = begins != NULL && ends != NULL && items->instant != NULL;
    if (has_memory) {
        for (uint32_t k = 0; k < n && !psti_limits_over_at(limits, k); k++) {
            begins[k] = intervals[k].begin;
            memcpy(ends + (size_t)k * streams, intervals[k].ends, streams * sizeof(*ends));
        }
        uint64_t *first_begin = begins + n;
        if (psti_limits_sort(limits, begins, n, 1) &&
            psti_limits_sort(limits, ends, (uint64_t)n * streams, 1))
            find_slots(items, begins, n, ends, (size_t)n * streams, first_begin, limits);
        for (uint32_t k = 0, near = 0; k < n && !psti_limits_over_at(limits, k); k++) {
            near = num_below(first_begin, items->num_slots, intervals[k].begin + 1, near);
            items->begin[k] = near - 1;
            for (uint32_t r = 0; r < streams; r++)
                items->end[(size_t)k * streams + r] =
                    num_below(first_begin, items->num_slots, intervals[k].ends[r], near);
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

static bool make_live_sizes(psti_items *items, psti_limits *limits)
{
    items->live_size = psti_calloc((size_t)items->num_slots + 1, sizeof(*items->live_size));
    if (items->live_size == NULL)
        return false;
    for (uint32_t i = 0; i < items->n && !psti_limits_over_at(limits, i); i++)
        for (uint32_t k = items->first[i]; k < items->first[i + 1]; k++) {
            items->live_size[items->begin[k]] += items->size[i];
            items->live_size[first_end(items, k)] -= items->size[i];
        }
    for (uint32_t slot = 0; slot < items->num_slots && !psti_limits_over_at(limits, slot); slot++) {
        items->live_size[slot] += slot > 0 ? items->live_size[slot - 1] : 0;
        if (items->live_size[slot] > items->most_live) {
            items->most_live = items->live_size[slot];
            items->max_slot = slot;
        }
    }
    return true;
}

/* Largest live size over every interval: a tree of maxima, of which the lower half is the slots. */
static bool make_contention(psti_items *items, psti_limits *limits)
{
    const size_t width = items->num_slots;
    uint64_t *tree = psti_calloc(2 * width + 1, sizeof(*tree));
    if (tree == NULL)
        return false;
    for (size_t slot = 0; slot < width && !psti_limits_over_at(limits, slot); slot++)
        tree[width + slot] = items->live_size[slot];
    for (size_t v = width; v-- > 1 && !psti_limits_over_at(limits, v);)
        tree[v] = tree[2 * v] > tree[2 * v + 1] ? tree[2 * v] : tree[2 * v + 1];
    for (uint32_t i = 0; i < items->n && !psti_limits_over_at(limits, i); i++) {
        uint64_t most = 0;
        for (uint32_t k = items->first[i]; k < items->first[i + 1]; k++) {
            size_t low = width + items->begin[k];
            size_t high = width + first_end(items, k);
            for (; low < high; low /= 2, high /= 2) {
                if (low % 2 != 0 && tree[low++] > most)
                    most = tree[low - 1];
                if (high % 2 != 0 && tree[--high] > most)
                    most = tree[high];
            }
        }
        items->contention[i] = most;
    }
    psti_free(tree);
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

uint64_t psti_items_bound(const psti_items *items)
{
    uint64_t bound = psti_items_top_for(items, items->most_live);
    for (uint32_t i = 0; i < items->n; i++)
        if (items->pin[i] != PST_PLAN_FREE && items->pin[i] + items->size[i] > bound)
            bound = items->pin[i] + items->size[i];
    return bound;
}

bool psti_items_measure(psti_items *items, const psti_interval *intervals, psti_limits *limits)
{
    if (!make_slots(items, intervals, limits))
        return false;
    if (psti_limits_over_at(limits, 0))
        return true;
    if (!make_live_sizes(items, limits))
        return false;
    if (psti_limits_over_at(limits, 0))
        return true;
    join_reserved(items);
    items->bound = psti_items_bound(items);
    return true;
}

bool psti_items_weigh(psti_items *items, psti_limits *limits)
{
    if (!make_live_sizes(items, limits) || !make_contention(items, limits))
        return false;
    items->bound = psti_items_bound(items);
    return true;
}

bool psti_items_finish(psti_items *items, const psti_interval *intervals, psti_limits *limits)
{
    if (!psti_items_measure(items, intervals, limits))
        return false;
    if (psti_limits_over_at(limits, 0))
        return true;
    if (!make_contention(items, limits))
        return false;
    for (uint32_t i = 0; i < items->n && !psti_limits_over_at(limits, i); i++)
        for (uint32_t k = items->first[i]; k < items->first[i + 1]; k++)
            items->length[i] += intervals[k].ends[0] - intervals[k].begin;
    return true;
}

/* Largest divisor of all sizes and pins, and of the reserved ranges grown to the alignment. */
static uint64_t find_unit(const pst_plan_problem *problem, psti_limits *limits)
{
    const uint64_t align = problem->align != 0 ? problem->align : PSTI_PLAN_ALIGN;
    uint64_t unit = 0;
    for (uint64_t i = 0; i < problem->num_tensors && unit != 1 && !psti_limits_over_at(limits, i);
         i++) {
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

/* What there is before any sorting. */
static void take_tensors(psti_items *items, const pst_plan_problem *problem,
                         psti_interval *intervals, psti_limits *limits)
{
    const uint32_t streams = items->num_streams;
    const uint64_t limit = problem->capacity != 0 ? problem->capacity : PST_PLAN_MAX_BYTES;
    items->unit = find_unit(problem, limits);
    items->capacity = limit / items->unit;
    items->goal = problem->capacity != 0 ? items->capacity : 0;
    for (uint32_t i = 0; i < items->n && !psti_limits_over_at(limits, i); i++) {
        const pst_plan_tensor *tensor = &problem->tensors[i];
        items->first[i + 1] = i + 1;
        if (streams > 1) /* memory that nobody writes to is none */
            items->stream[i] = tensor->stream;
        items->size[i] = psti_plan_round(problem, tensor->bytes) / items->unit;
        items->pin[i] = tensor->pin == PST_PLAN_FREE ? PST_PLAN_FREE : tensor->pin / items->unit;
        intervals[i] = (psti_interval){
            tensor->begin, streams > 1 ? problem->releases + (size_t)i * streams : &tensor->end};
    }
    psti_items_reserve(items, problem);
}

pst_status psti_items_of_problem(const pst_plan_problem *problem, bool for_search,
                                 psti_limits *limits, psti_items *items)
{
    const uint32_t n = (uint32_t)problem->num_tensors;
    const uint32_t streams = problem->num_streams > 1 ? problem->num_streams : 1;
    psti_interval *intervals = psti_calloc((size_t)n + 1, sizeof(*intervals));
    bool has_memory =
        psti_items_alloc(items, n, n, streams, problem->num_reserved) && intervals != NULL;
    if (has_memory)
        take_tensors(items, problem, intervals, limits);
    if (has_memory && !psti_limits_over_at(limits, 0))
        has_memory = for_search ? psti_items_finish(items, intervals, limits)
                                : psti_items_measure(items, intervals, limits);
    psti_free(intervals);
    PSTI_CHECK(has_memory, PST_E_NOMEM, "out of memory for a plan of %u tensors", n);
    return PST_OK;
}
