/* The argument path of a launch: a group's tensors at the caller's addresses. */
#include "host/base/structs.h"
#include "host/stash/stash.h"

#include <inttypes.h>
#include <string.h>

/* What is the pool's: both tiers' pages, of a pool that can grow up to what it can have, and the
 * metadata. */
enum { OWN_RANGES = PSTI_TIERS + 1 };

typedef struct page_ranges {
    uintptr_t first[OWN_RANGES];
    uintptr_t bytes[OWN_RANGES];
} page_ranges;

static page_ranges ranges_of(const pst_pool *pool)
{
    page_ranges ranges = {{0, 0, 0}, {0, 0, 0}};
    if (pool) {
        ranges.first[PSTI_TIERS] = (uintptr_t)pool->metadata;
        ranges.bytes[PSTI_TIERS] = (uintptr_t)pool->metadata_bytes;
    }
    for (uint32_t tier = 0; pool && tier < PSTI_TIERS; tier++) {
        ranges.first[tier] = (uintptr_t)pool->view.pages[tier];
        ranges.bytes[tier] = (uintptr_t)pool->view.max_pages[tier] << pool->view.page_shift;
    }
    return ranges;
}

static bool meets(const page_ranges *ranges, uint32_t range, uintptr_t base, uint64_t reach)
{
    return base - ranges->first[range] < ranges->bytes[range] ||
           ranges->first[range] - base < (ranges->bytes[range] ? reach : 0);
}

static bool lies_in(const page_ranges *ranges, const void *base, uint64_t reach)
{
    return meets(ranges, 0, (uintptr_t)base, reach) || meets(ranges, 1, (uintptr_t)base, reach) ||
           meets(ranges, 2, (uintptr_t)base, reach);
}

bool psti_lies_in_pool(const pst_pool *pool, const void *base, uint64_t reach)
{
    const page_ranges ranges = ranges_of(pool);
    return lies_in(&ranges, base, reach);
}

pst_status psti_check_address(pst_device *device, const void *address, uint64_t bytes)
{
    if (bytes == 0 || !psti_is_check_mode())
        return PST_OK;
    return device->ops->check_address(device, address, bytes);
}

pst_status psti_place_counts(pst_device *device, const pst_buffers *buffers, const char *what,
                             uint32_t i, psti_space *space)
{
    const void *counts = buffers->counts[i];
    const size_t bytes = space->count_kind == PSTI_COUNT_INT32 ? 4 : 8;
    PSTI_CHECK(counts, PST_E_INVALID, "%s: counts[%u] is NULL", what, i);
    PSTI_CHECK((uintptr_t)counts % bytes == 0, PST_E_INVALID,
               "%s: counts[%u] at %p: must be aligned to %zu", what, i, counts, bytes);
    if (space->count_kind != PSTI_COUNT_VALUE) {
        const size_t num = space->num_summed ? space->num_summed : space->num_segments;
        space->counts = (uintptr_t)counts;
        return psti_check_address(device, counts, num * bytes);
    }
    const int64_t count = *(const int64_t *)counts;
    PSTI_CHECK(count >= 0 && count <= space->capacity, PST_E_INVALID,
               "%s: count %" PRId64 " of space %u: allowed are 0 to %" PRId64, what, count, i,
               space->capacity);
    space->counts = (uint64_t)count;
    return PST_OK;
}

static pst_status place_spaces(pst_device *device, const pst_group *group,
                               const pst_buffers *buffers, const char *what, psti_placing *placing)
{
    memcpy(placing->spaces, group->spaces, group->num_spaces * sizeof(*placing->spaces));
    for (uint32_t i = 0; buffers->capacities && i < group->num_spaces; i++) {
        const int64_t capacity = buffers->capacities[i];
        PSTI_CHECK(capacity >= 0, PST_E_INVALID,
                   "%s: capacities[%u] %" PRId64 ": allowed are 0 and above", what, i, capacity);
        if (capacity)
            placing->spaces[i].capacity = capacity;
    }
    if (!placing->with_counts)
        return PST_OK;
    PSTI_CHECK(buffers->counts, PST_E_INVALID, "%s: counts is NULL", what);
    for (uint32_t i = 0; i < group->num_spaces; i++)
        PSTI_TRY(psti_place_counts(device, buffers, what, i, &placing->spaces[i]));
    return PST_OK;
}

/* Other capacities and strides than the group's. */
static pst_status place_strides(const pst_group *group, const pst_buffers *buffers,
                                psti_placing *placing, uint64_t *reach)
{
    uint64_t total = 0;
    for (uint32_t t = 0; t < group->num_tensors; t++) {
        psti_tensor *tensor = &placing->tensors[t];
        const psti_space *space = &placing->spaces[tensor->space];
        uint64_t rows = buffers->row_strides ? buffers->row_strides[t] : 0;
        uint64_t segments = buffers->segment_strides ? buffers->segment_strides[t] : 0;
        if (!rows)
            rows = tensor->row_stride;
        if (!segments)
            segments = group->given_segment_stride[t];
        PSTI_TRY(psti_place_tensor(tensor, space, t, rows, segments, &total, &reach[t]));
    }
    placing->max_tiles = psti_max_tiles(placing->spaces, placing->tensors, group->num_tensors);
    return PST_OK;
}

/* A reach of 0 is of a tensor that has no rows even at capacity. */
static pst_status place_bases(pst_device *device, const pst_group *group,
                              const pst_buffers *buffers, const char *what, psti_placing *placing,
                              const uint64_t *reach)
{
    const page_ranges ranges = ranges_of(placing->pool);
    placing->skips = false;
    if (placing->reaches)
        memcpy(placing->reaches, reach, group->num_tensors * sizeof(*reach));
    for (uint32_t t = 0; t < group->num_tensors; t++) {
        unsigned char *base = buffers->bases[t];
        placing->tensors[t].base = base;
        if (placing->in_pages >> t & 1) {
            PSTI_CHECK(!base, PST_E_INVALID,
                       "%s: bases[%u] at %p: a GLU reads it in its pages, it must be NULL", what, t,
                       (void *)base);
            continue;
        }
        if (reach[t] == 0)
            continue; /* nothing is read or written there */
        if (!base) {
            placing->skips = true;
            PSTI_CHECK(placing->may_skip, PST_E_INVALID, "%s: bases[%u] is NULL", what, t);
            continue;
        }
        PSTI_CHECK(!lies_in(&ranges, base, reach[t]), PST_E_INVALID,
                   "%s: bases[%u] at %p: %" PRIu64 " bytes lie in the pool's memory", what, t,
                   (void *)base, reach[t]);
        PSTI_TRY(psti_check_address(device, base, reach[t]));
    }
    return PST_OK;
}

pst_status psti_place(pst_device *device, const pst_group *group, const pst_buffers *given,
                      const char *what, psti_placing *placing)
{
    uint64_t other_reach[PSTI_MAX_TENSORS];
    const uint64_t *reach = group->reach;
    PSTI_CHECK(given, PST_E_INVALID, "%s is NULL", what);
    PSTI_TAKE(pst_buffers, buffers, given);
    PSTI_CHECK(buffers.bases, PST_E_INVALID, "%s: bases is NULL", what);
    PSTI_TRY(place_spaces(device, group, &buffers, what, placing));
    memcpy(placing->tensors, group->tensors, group->num_tensors * sizeof(*placing->tensors));
    placing->max_tiles = group->max_tiles;
    if (buffers.capacities || buffers.row_strides || buffers.segment_strides) {
        PSTI_TRY(place_strides(group, &buffers, placing, other_reach));
        reach = other_reach;
    }
    return place_bases(device, group, &buffers, what, placing, reach);
}
