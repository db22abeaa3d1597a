/* Groups: the checked description of tensors and row spaces that one launch handles. */
#include "host/base/structs.h"
#include "host/stash/stash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host/base/nvtx.h"
#include "host/stash/pool_layout.h"
#include "kernels/core/stream.h"

/* A whole group stays below this, so that sums in the kernels cannot overflow. */
#define MAX_GROUP_BYTES ((uint64_t)1 << 45)

static pst_status check_space(const pst_row_space *space, uint32_t i)
{
    const bool prefix = space->kind == PST_ROWS_PREFIX;
    PSTI_CHECK(prefix || space->kind == PST_ROWS_SEGMENTS, PST_E_INVALID,
               "space %u: kind %d: allowed are PST_ROWS_PREFIX and PST_ROWS_SEGMENTS", i,
               (int)space->kind);
    PSTI_CHECK(space->count_type == PST_COUNT_INT32 || space->count_type == PST_COUNT_INT64,
               PST_E_INVALID, "space %u: count_type %d: allowed are int32 and int64", i,
               (int)space->count_type);
    PSTI_CHECK(space->capacity >= 1, PST_E_INVALID,
               "space %u: capacity %" PRId64 ": must be at least 1", i, space->capacity);
    const uint32_t limit = prefix ? 1 : PST_MAX_SEGMENTS;
    PSTI_CHECK(space->num_segments <= limit && (prefix || space->num_segments >= 1), PST_E_INVALID,
               "space %u: num_segments %u: allowed are %u to %u", i, space->num_segments,
               prefix ? 0u : 1u, limit);
    const size_t align = space->count_type == PST_COUNT_INT64 ? 8 : 4;
    PSTI_CHECK((uintptr_t)space->counts % align == 0, PST_E_INVALID,
               "space %u: counts at %p: must be aligned to %zu", i, space->counts, align);
    return PST_OK;
}

/* Bytes of one segment at capacity; INVALID when they do not fit. */
static pst_status segment_bytes(const pst_tensor *tensor, const psti_space *space, uint32_t i,
                                uint64_t *bytes_out)
{
    const uint64_t num = tensor->den ? tensor->num : 1;
    const uint64_t den = tensor->den ? tensor->den : 1;
    uint64_t rows = 0;
    uint64_t bytes = 0;
    const bool fits = !__builtin_mul_overflow((uint64_t)space->capacity, num, &rows) &&
                      !__builtin_add_overflow(rows, den - 1, &rows) &&
                      !__builtin_mul_overflow(rows / den, tensor->row_bytes, &bytes) &&
                      bytes <= MAX_GROUP_BYTES;
    PSTI_CHECK(fits, PST_E_INVALID,
               "tensor %u: capacity %" PRId64 ", ratio %" PRIu64 "/%" PRIu64 ", row_bytes %" PRIu64
               ": above 2^45 bytes, or capacity times %" PRIu64 " above 2^64",
               i, space->capacity, num, den, tensor->row_bytes, num);
    *bytes_out = bytes;
    return PST_OK;
}

static pst_status check_tensor(const pst_tensor *tensor, uint32_t i, uint32_t num_spaces)
{
    PSTI_CHECK(tensor->base, PST_E_INVALID, "tensor %u: base is NULL", i);
    PSTI_CHECK(tensor->row_bytes >= 1, PST_E_INVALID, "tensor %u: row_bytes 0: must be at least 1",
               i);
    PSTI_CHECK(tensor->space < num_spaces, PST_E_INVALID,
               "tensor %u: space %u: the group has %u row spaces", i, tensor->space, num_spaces);
    PSTI_CHECK((tensor->num == 0) == (tensor->den == 0) && tensor->num <= tensor->den,
               PST_E_INVALID,
               "tensor %u: ratio %u/%u: allowed are 0/0 and num <= den, both above 0", i,
               tensor->num, tensor->den);
    return PST_OK;
}

static pst_status take_tensor(pst_group *group, const pst_tensor *from, uint32_t i, uint64_t *total)
{
    PSTI_TRY(check_tensor(from, i, group->num_spaces));
    const psti_space *space = &group->spaces[from->space];
    uint64_t bytes = 0;
    PSTI_TRY(segment_bytes(from, space, i, &bytes));
    const uint64_t stride = from->segment_stride ? from->segment_stride : bytes;
    uint64_t reach = 0;
    PSTI_CHECK(stride >= bytes, PST_E_INVALID,
               "tensor %u: segment_stride %" PRIu64 ": a segment at capacity has %" PRIu64 " bytes",
               i, stride, bytes);
    const bool fits = !__builtin_mul_overflow(stride, (uint64_t)space->num_segments, &reach) &&
                      !__builtin_add_overflow(reach, *total + PSTI_TILE_BYTES, total) &&
                      *total <= MAX_GROUP_BYTES;
    PSTI_CHECK(fits, PST_E_INVALID, "tensor %u: the group is above 2^45 bytes", i);
    group->tensors[i] = (psti_tensor){.base = from->base,
                                      .row_bytes = from->row_bytes,
                                      .segment_stride = stride,
                                      .num = from->den ? from->num : 1,
                                      .den = from->den ? from->den : 1,
                                      .space = from->space};
    group->is_aligned &= (uintptr_t)from->base % PSTI_VECTOR_BYTES == 0 &&
                         (space->num_segments == 1 || stride % PSTI_VECTOR_BYTES == 0);
    return PST_OK;
}

static pst_status take_config(pst_group *group, const pst_group_config *config)
{
    PSTI_CHECK(config->spaces && config->tensors, PST_E_INVALID, "spaces or tensors is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE_IN(pst_row_space, config, space_bytes));
    PSTI_TRY(PSTI_CHECK_SIZE_IN(pst_tensor, config, tensor_bytes));
    PSTI_CHECK(config->num_spaces >= 1 && config->num_spaces <= PST_MAX_SPACES, PST_E_INVALID,
               "num_spaces %u: allowed are 1 to %d", config->num_spaces, PST_MAX_SPACES);
    PSTI_CHECK(config->num_tensors >= 1 && config->num_tensors <= PST_MAX_TENSORS, PST_E_INVALID,
               "num_tensors %u: allowed are 1 to %d", config->num_tensors, PST_MAX_TENSORS);
    group->num_spaces = config->num_spaces;
    group->num_tensors = config->num_tensors;
    group->has_counts = true;
    group->is_aligned = true;
    for (uint32_t i = 0; i < config->num_spaces; i++) {
        pst_row_space element = {.capacity = 0};
        const pst_row_space *from = &element;
        psti_take_element(&element, config->spaces, i, config->space_bytes);
        PSTI_TRY(check_space(from, i));
        const bool segments = from->kind == PST_ROWS_SEGMENTS;
        group->spaces[i] = (psti_space){.counts = from->counts,
                                        .capacity = from->capacity,
                                        .num_segments = segments ? from->num_segments : 1,
                                        .first_count = group->num_counts,
                                        .is_int64 = from->count_type == PST_COUNT_INT64};
        group->num_counts += group->spaces[i].num_segments;
        group->has_counts &= from->counts != NULL;
    }
    uint64_t total = 0;
    for (uint32_t i = 0; i < config->num_tensors; i++) {
        pst_tensor element = {.base = NULL};
        psti_take_element(&element, config->tensors, i, config->tensor_bytes);
        PSTI_TRY(take_tensor(group, &element, i, &total));
    }
    return PST_OK;
}

static void measure(const pst_group *group, const int64_t *counts, uint32_t page_shift,
                    pst_group_usage *usage)
{
    uint64_t tiles = 0;
    *usage = (pst_group_usage){0};
    for (uint32_t t = 0; t < group->num_tensors; t++) {
        const psti_tensor *tensor = &group->tensors[t];
        const psti_space *space = &group->spaces[tensor->space];
        uint64_t bytes = 0;
        for (uint32_t s = 0; s < space->num_segments; s++) {
            const int64_t rows = counts ? counts[space->first_count + s] : space->capacity;
            const uint64_t live = psti_tensor_bytes(tensor, (uint64_t)rows);
            usage->payload_bytes += live;
            bytes += psti_round_vector(live);
        }
        tiles += psti_tiles_of(bytes);
    }
    usage->stream_bytes = tiles << PSTI_TILE_SHIFT;
    usage->pages = psti_pages_of_tiles(tiles, page_shift);
}

pst_status pst_group_create(pst_device *device, const pst_group_config *config,
                            pst_group **group_out)
{
    PSTI_CHECK(device && config && group_out, PST_E_INVALID, "device, config or group_out is NULL");
    PSTI_TAKE(pst_group_config, own, config);
    pst_group *group = psti_calloc(1, sizeof(*group) + sizeof(psti_hold));
    PSTI_CHECK(group, PST_E_NOMEM, "no memory for a group");
    group->device = device;
    group->hold = (psti_hold *)(group + 1);
    pst_status status = take_config(group, &own);
    if (status != PST_OK)
        goto fail;
    pst_group_usage usage;
    measure(group, NULL, PSTI_TILE_SHIFT, &usage);
    group->max_tiles = usage.pages;
    const size_t dirty_bytes = group->num_counts * sizeof(*group->dirty);
    void *dirty = NULL;
    status = pst_device_alloc(device, dirty_bytes, &dirty);
    if (status != PST_OK)
        goto fail;
    group->dirty = dirty;
    status = pst_device_fill(device, dirty, own.tail_is_zero ? 0 : 0xff, dirty_bytes, NULL);
    if (status == PST_OK)
        status = pst_device_synchronize(device);
    if (status != PST_OK)
        goto fail;
    psti_device_retain(device, PSTI_LIVE_GROUP);
    *group_out = group;
    return PST_OK;
fail:
    pst_device_free(device, group->dirty);
    psti_free(group);
    return status;
}

pst_status pst_group_destroy(pst_group *group)
{
    if (!group)
        return PST_OK;
    const uint32_t graphs = psti_hold_count(group->device, group->hold);
    PSTI_CHECK(graphs == 0, PST_E_BUSY, "%u captured graphs use this group", graphs);
    const pst_status status = pst_device_free(group->device, group->dirty);
    if (status != PST_OK && status != PST_E_CUDA)
        return status;
    psti_device_release(group->device, PSTI_LIVE_GROUP);
    psti_free(group);
    return PST_OK;
}

pst_status pst_group_mark_dirty(pst_group *group, pst_stream stream)
{
    PSTI_CHECK(group, PST_E_INVALID, "group is NULL");
    PSTI_RANGE("pst_group_mark_dirty");
    psti_capture_of capture;
    PSTI_TRY(group->device->ops->capture_of(group->device, stream, &capture));
    PSTI_TRY(psti_hold_in(group->device, &capture, group->hold));
    return pst_device_fill(group->device, group->dirty, 0xff,
                           group->num_counts * sizeof(*group->dirty), stream);
}

uint32_t pst_group_num_counts(const pst_group *group)
{
    return group ? group->num_counts : 0;
}

static pst_status check_counts(const pst_group *group, const int64_t *counts)
{
    for (uint32_t i = 0; i < group->num_spaces; i++) {
        const psti_space *space = &group->spaces[i];
        for (uint32_t s = 0; s < space->num_segments; s++) {
            const int64_t count = counts[space->first_count + s];
            PSTI_CHECK(psti_count_fits(count, space->capacity), PST_E_INVALID,
                       "space %u: count %" PRId64 ": allowed are 0 to %" PRId64, i, count,
                       space->capacity);
        }
    }
    return PST_OK;
}

pst_status pst_group_measure(const pst_group *group, const int64_t *counts, uint64_t page_bytes,
                             pst_group_usage *usage_out)
{
    PSTI_CHECK(group && usage_out, PST_E_INVALID, "group or usage_out is NULL");
    uint32_t page_shift = 0;
    PSTI_TRY(psti_page_shift(page_bytes, &page_shift));
    if (counts)
        PSTI_TRY(check_counts(group, counts));
    measure(group, counts, page_shift, usage_out);
    return PST_OK;
}

const char *psti_group_difference(const pst_group *a, const pst_group *b, char *buffer,
                                  size_t buffer_bytes)
{
    if (a->num_spaces != b->num_spaces || a->num_tensors != b->num_tensors) {
        snprintf(buffer, buffer_bytes, "%u tensors in %u row spaces, not %u in %u", b->num_tensors,
                 b->num_spaces, a->num_tensors, a->num_spaces);
        return buffer;
    }
    for (uint32_t i = 0; i < a->num_spaces; i++)
        if (a->spaces[i].num_segments != b->spaces[i].num_segments) {
            snprintf(buffer, buffer_bytes, "space %u has %u segments, not %u", i,
                     b->spaces[i].num_segments, a->spaces[i].num_segments);
            return buffer;
        }
    for (uint32_t i = 0; i < a->num_tensors; i++) {
        const psti_tensor *x = &a->tensors[i];
        const psti_tensor *y = &b->tensors[i];
        if (x->row_bytes == y->row_bytes && x->space == y->space &&
            (uint64_t)x->num * y->den == (uint64_t)y->num * x->den)
            continue;
        snprintf(buffer, buffer_bytes,
                 "tensor %u has %" PRIu64 " bytes a row, space %u, ratio %u/%u, not %" PRIu64
                 ", %u, %u/%u",
                 i, y->row_bytes, y->space, y->num, y->den, x->row_bytes, x->space, x->num, x->den);
        return buffer;
    }
    return NULL;
}
