/* Groups: the checked description of tensors and row spaces, without addresses. */
#include "host/base/arith.h"
#include "host/base/structs.h"
#include "host/stash/stash.h"

#include <inttypes.h>
#include <string.h>

#include "host/stash/pool_layout.h"
#include "kernels/core/mix.h"
#include "kernels/core/stream.h"

/* A whole group stays below this, so that sums in the kernels cannot overflow. */
#define MAX_GROUP_BYTES ((uint64_t)1 << 45)

static pst_status check_kind(const pst_row_space *space, uint32_t i)
{
    const bool prefix = space->kind == PST_ROWS_PREFIX;
    PSTI_CHECK(prefix || space->kind == PST_ROWS_SEGMENTS || space->kind == PST_ROWS_SUM,
               PST_E_INVALID, "space %u: kind %d: allowed are prefix, segments and sum", i,
               (int)space->kind);
    PSTI_CHECK(space->count_type >= PST_COUNT_INT32 && space->count_type <= PST_COUNT_HOST,
               PST_E_INVALID, "space %u: count_type %d: allowed are int32, int64 and host", i,
               (int)space->count_type);
    PSTI_CHECK(prefix || space->count_type != PST_COUNT_HOST, PST_E_INVALID,
               "space %u: count_type host: only of a prefix", i);
    return PST_OK;
}

static pst_status check_space(const pst_row_space *space, uint32_t i)
{
    const bool prefix = space->kind == PST_ROWS_PREFIX;
    const uint32_t limit = prefix ? 1 : PST_MAX_SEGMENTS;
    PSTI_TRY(check_kind(space, i));
    PSTI_CHECK(space->capacity >= 1, PST_E_INVALID,
               "space %u: capacity %" PRId64 ": must be at least 1", i, space->capacity);
    PSTI_CHECK(space->num_segments <= limit && (prefix || space->num_segments >= 1), PST_E_INVALID,
               "space %u: num_segments %u: allowed are %u to %u", i, space->num_segments,
               prefix ? 0u : 1u, limit);
    PSTI_CHECK(space->padding == 0, PST_E_INVALID, "space %u: padding %u: must be 0", i,
               space->padding);
    return PST_OK;
}

static pst_status check_tensor(const pst_tensor *tensor, uint32_t i, uint32_t num_spaces)
{
    PSTI_CHECK(tensor->row_bytes >= 1, PST_E_INVALID, "tensor %u: row_bytes 0: must be at least 1",
               i);
    PSTI_CHECK(tensor->space < num_spaces, PST_E_INVALID,
               "tensor %u: space %u: the group has %u row spaces", i, tensor->space, num_spaces);
    PSTI_CHECK((tensor->num == 0) == (tensor->den == 0) && tensor->num <= tensor->den,
               PST_E_INVALID,
               "tensor %u: ratio %u/%u: allowed are 0/0 and num <= den, both above 0", i,
               tensor->num, tensor->den);
    PSTI_CHECK(tensor->rounding == PST_ROUND_UP || tensor->rounding == PST_ROUND_DOWN,
               PST_E_INVALID, "tensor %u: rounding %d: allowed are up and down", i,
               (int)tensor->rounding);
    PSTI_CHECK(tensor->layout == PST_LAYOUT_PACKED, PST_E_INVALID,
               "tensor %u: layout %u: allowed is 0, packed rows", i, tensor->layout);
    PSTI_CHECK(tensor->written_by <= PST_WRITTEN_BY_GLU, PST_E_INVALID,
               "tensor %u: written_by %u: allowed are 0, by a stash, and 1, by a GLU", i,
               tensor->written_by);
    PSTI_CHECK(tensor->written_by == PST_WRITTEN_BY_STASH || tensor->num == tensor->den,
               PST_E_INVALID, "tensor %u: ratio %u/%u: of what a GLU writes it must be 1/1", i,
               tensor->num, tensor->den);
    return PST_OK;
}

/* From the first byte of a segment at capacity to behind its last, and the packed stride. */
static pst_status measure_segment(const psti_tensor *tensor, const psti_space *space, uint32_t i,
                                  uint64_t *reach_out, uint64_t *packed_out)
{
    uint64_t product = 0;
    uint64_t bytes = 0;
    bool fits = !__builtin_mul_overflow((uint64_t)space->capacity, tensor->num, &product) &&
                product <= UINT64_MAX - tensor->den;
    const uint64_t rows = fits ? psti_tensor_rows(tensor, (uint64_t)space->capacity) : 0;
    fits = fits && !__builtin_mul_overflow(rows, tensor->row_stride, &bytes) &&
           bytes <= MAX_GROUP_BYTES;
    PSTI_CHECK(fits, PST_E_INVALID,
               "tensor %u: capacity %" PRId64 ", ratio %u/%u, row stride %" PRIu64
               ": above 2^45 bytes, or capacity times %u above 2^64",
               i, space->capacity, tensor->num, tensor->den, tensor->row_stride, tensor->num);
    *packed_out = bytes;
    *reach_out = rows ? bytes - tensor->row_stride + tensor->row_bytes : 0;
    return PST_OK;
}

pst_status psti_place_tensor(psti_tensor *tensor, const psti_space *space, uint32_t i,
                             uint64_t row_stride, uint64_t segment_stride, uint64_t *total,
                             uint64_t *reach_out)
{
    uint64_t segment = 0;
    uint64_t packed = 0;
    uint64_t bytes = 0;
    PSTI_CHECK(row_stride == 0 || row_stride >= tensor->row_bytes, PST_E_INVALID,
               "tensor %u: row_stride %" PRIu64 ": a row has %" PRIu64 " bytes", i, row_stride,
               tensor->row_bytes);
    tensor->row_stride = row_stride ? row_stride : tensor->row_bytes;
    PSTI_TRY(measure_segment(tensor, space, i, &segment, &packed));
    PSTI_CHECK(segment_stride == 0 || segment_stride >= segment, PST_E_INVALID,
               "tensor %u: segment_stride %" PRIu64 ": a segment at capacity has %" PRIu64 " bytes",
               i, segment_stride, segment);
    tensor->segment_stride = segment_stride ? segment_stride : packed;
    const bool fits =
        !__builtin_mul_overflow(tensor->segment_stride, (uint64_t)space->num_segments, &bytes) &&
        !__builtin_add_overflow(bytes, *total + PSTI_TILE_BYTES, total) &&
        *total <= MAX_GROUP_BYTES;
    PSTI_CHECK(fits, PST_E_INVALID, "tensor %u: the group is above 2^45 bytes", i);
    *reach_out = bytes - tensor->segment_stride + segment;
    return PST_OK;
}

static pst_status take_spaces(pst_group *group, const pst_group_config *config)
{
    for (uint32_t i = 0; i < config->num_spaces; i++) {
        pst_row_space from = {.capacity = 0};
        psti_take_element(&from, config->spaces, i, config->space_bytes);
        PSTI_TRY(check_space(&from, i));
        const bool segments = from.kind == PST_ROWS_SEGMENTS;
        group->spaces[i] =
            (psti_space){.capacity = from.capacity,
                         .num_segments = segments ? from.num_segments : 1,
                         .first_count = group->num_counts,
                         .count_kind = from.count_type == PST_COUNT_HOST    ? PSTI_COUNT_VALUE
                                       : from.count_type == PST_COUNT_INT64 ? PSTI_COUNT_INT64
                                                                            : PSTI_COUNT_INT32,
                         .num_summed = from.kind == PST_ROWS_SUM ? from.num_segments : 0};
        group->num_counts += group->spaces[i].num_segments;
    }
    return PST_OK;
}

static pst_status take_tensors(pst_group *group, const pst_group_config *config)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < config->num_tensors; i++) {
        pst_tensor from = {.row_bytes = 0};
        psti_tensor *tensor = &group->tensors[i];
        psti_take_element(&from, config->tensors, i, config->tensor_bytes);
        PSTI_TRY(check_tensor(&from, i, group->num_spaces));
        const psti_space *space = &group->spaces[from.space];
        const bool is_glu = from.written_by == PST_WRITTEN_BY_GLU;
        PSTI_CHECK(!is_glu || group->glu_tensor == PSTI_NO_TENSOR, PST_E_INVALID,
                   "tensor %u: written by a GLU, as is tensor %u: allowed is one", i,
                   group->glu_tensor);
        if (is_glu)
            group->glu_tensor = i;
        *tensor =
            (psti_tensor){.row_bytes = from.row_bytes,
                          .num = from.den ? from.num : 1,
                          .den = from.den ? from.den : 1,
                          .space = from.space,
                          .rounds_down = from.rounding == PST_ROUND_DOWN && from.num != from.den};
        PSTI_TRY(psti_place_tensor(tensor, space, i, from.row_stride, from.segment_stride, &total,
                                   &group->reach[i]));
        group->given_segment_stride[i] = from.segment_stride;
    }
    return PST_OK;
}

/* Two groups of one form have one number; of others it is different but for a chance of 2^-64. */
static uint64_t form_of(const pst_group *group)
{
    uint64_t form = psti_mix((uint64_t)group->num_spaces << 32 | group->num_tensors);
    for (uint32_t i = 0; i < group->num_spaces; i++)
        form = psti_mix(form ^ group->spaces[i].num_segments);
    for (uint32_t i = 0; i < group->num_tensors; i++) {
        const psti_tensor *tensor = &group->tensors[i];
        form = psti_mix(form ^ tensor->row_bytes);
        const uint64_t common = psti_gcd(tensor->num, tensor->den);
        form = psti_mix(form ^ (tensor->num / common << 32 | tensor->den / common));
        form = psti_mix(form ^ ((uint64_t)tensor->space << 32 | tensor->rounds_down));
    }
    return form;
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
    group->glu_tensor = PSTI_NO_TENSOR;
    PSTI_TRY(take_spaces(group, config));
    PSTI_TRY(take_tensors(group, config));
    group->max_tiles = psti_max_tiles(group->spaces, group->tensors, group->num_tensors);
    group->form = form_of(group);
    return PST_OK;
}

static void measure(const psti_space *spaces, const psti_tensor *tensors, uint32_t num_tensors,
                    const int64_t *counts, uint32_t page_shift, pst_group_usage *usage)
{
    uint64_t tiles = 0;
    *usage = (pst_group_usage){0};
    for (uint32_t t = 0; t < num_tensors; t++) {
        const psti_tensor *tensor = &tensors[t];
        const psti_space *space = &spaces[tensor->space];
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

uint64_t psti_max_tiles(const psti_space *spaces, const psti_tensor *tensors, uint32_t num_tensors)
{
    pst_group_usage usage;
    measure(spaces, tensors, num_tensors, NULL, PSTI_TILE_SHIFT, &usage);
    return usage.pages;
}

pst_status pst_group_create(const pst_group_config *config, pst_group **group_out)
{
    PSTI_CHECK(config && group_out, PST_E_INVALID, "config or group_out is NULL");
    PSTI_TAKE(pst_group_config, own, config);
    pst_group *group = psti_handle_new(sizeof(*group), PSTI_KIND_GROUP);
    PSTI_CHECK(group, PST_E_NOMEM, "no memory for a group");
    const pst_status status = take_config(group, &own);
    if (status != PST_OK) {
        psti_handle_free(group);
        return status;
    }
    *group_out = group;
    return PST_OK;
}

pst_status pst_group_destroy(pst_group *group)
{
    if (!group)
        return PST_OK;
    PSTI_CHECK_HANDLE(group, GROUP);
    psti_handle_free(group);
    return PST_OK;
}

uint32_t pst_group_num_counts(const pst_group *group)
{
    return psti_handle_is(group, PSTI_KIND_GROUP) ? group->num_counts : 0;
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
    PSTI_CHECK_HANDLE(group, GROUP);
    PSTI_CHECK(usage_out, PST_E_INVALID, "usage_out is NULL");
    uint32_t page_shift = 0;
    PSTI_TRY(psti_page_shift(page_bytes, &page_shift));
    if (counts)
        PSTI_TRY(check_counts(group, counts));
    measure(group->spaces, group->tensors, group->num_tensors, counts, page_shift, usage_out);
    return PST_OK;
}
