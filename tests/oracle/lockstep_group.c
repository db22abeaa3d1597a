/* Groups in memory: what lockstep.h says of them. */
#include "tests/oracle/lockstep.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Where each space's counts lie: each begins at a multiple of 8. */
static size_t counts_offset(const oracle_group *group, uint32_t space)
{
    size_t at = 0;
    for (uint32_t i = 0; i < space; i++) {
        const size_t size = group->spaces[i].count_type == PST_COUNT_INT64 ? 8 : 4;
        at += (oracle_num_segments(&group->spaces[i]) * size + 7) / 8 * 8;
    }
    return at;
}

static void allocate(lockstep *ls, ls_group *made, bool with_counts)
{
    const uint32_t num_counts = oracle_num_counts(&made->model);
    void *arena = NULL;
    void *counts = NULL;
    made->counts_bytes = counts_offset(&made->model, made->model.num_spaces);
    LS_TRY(pst_device_alloc(ls->device, made->arena_bytes, &arena));
    if (with_counts)
        LS_TRY(pst_device_alloc(ls->device, made->counts_bytes, &counts));
    made->arena = arena;
    made->counts = counts;
    made->values = oracle_calloc(num_counts, sizeof(int64_t));
    made->packed = oracle_calloc(made->counts_bytes, 1);
    made->model.origin = arena;
    made->model.image = oracle_calloc(made->arena_bytes, 1);
    made->model.dirty = oracle_calloc(num_counts, sizeof(uint64_t));
}

bool ls_group_make(lockstep *ls, const shape *from, oracle_random *random, ls_group *made)
{
    *made = (ls_group){.arena_bytes = from->arena_bytes};
    oracle_group *model = &made->model;
    model->num_spaces = from->num_spaces;
    model->num_tensors = from->num_tensors;
    memcpy(model->spaces, from->spaces, sizeof(model->spaces));
    memcpy(model->tensors, from->tensors, sizeof(model->tensors));
    allocate(ls, made, !from->without_counts);
    if (ls->failed)
        return false;
    for (uint32_t i = 0; i < model->num_spaces && made->counts; i++)
        model->spaces[i].counts = made->counts + counts_offset(model, i);
    for (uint32_t t = 0; t < model->num_tensors; t++)
        model->tensors[t].base = made->arena + (uintptr_t)model->tensors[t].base;
    for (uint32_t i = 0; i < oracle_num_counts(model); i++)
        model->dirty[i] = from->tail_is_zero ? 0 : ORACLE_ALL_DIRTY;
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = model->spaces;
    config.num_spaces = model->num_spaces;
    config.tensors = model->tensors;
    config.num_tensors = model->num_tensors;
    config.tail_is_zero = from->tail_is_zero;
    LS_TRY(pst_group_create(ls->device, &config, &made->group));
    ls_group_fill(ls, made, random);
    if (made->counts)
        ls_group_set_counts(ls, made, made->values);
    return !ls->failed;
}

void ls_group_free(lockstep *ls, ls_group *group)
{
    if (!ls->failed) {
        LS_TRY(pst_group_destroy(group->group));
        LS_TRY(pst_device_free(ls->device, group->counts));
        LS_TRY(pst_device_free(ls->device, group->arena));
    }
    free(group->values);
    free(group->packed);
    free(group->model.image);
    free(group->model.dirty);
}

static void upload(lockstep *ls, ls_group *group)
{
    LS_TRY(pst_device_copy(ls->device, group->arena, group->model.image, group->arena_bytes,
                           ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
}

void ls_group_fill(lockstep *ls, ls_group *group, oracle_random *random)
{
    for (size_t i = 0; i < group->arena_bytes; i++)
        group->model.image[i] = (unsigned char)(oracle_random_bits(random) >> 40);
    upload(ls, group);
}

void ls_group_poison(lockstep *ls, ls_group *group, int value)
{
    memset(group->model.image, value, group->arena_bytes);
    upload(ls, group);
}

void ls_group_set_counts(lockstep *ls, ls_group *group, const int64_t *values)
{
    const oracle_group *model = &group->model;
    const uint32_t num_counts = oracle_num_counts(model);
    if (ls->failed)
        return;
    memmove(group->values, values, num_counts * sizeof(*values));
    for (uint32_t i = 0; i < model->num_spaces; i++) {
        unsigned char *at = group->packed + counts_offset(model, i);
        for (uint32_t s = 0; s < oracle_num_segments(&model->spaces[i]); s++) {
            const int64_t value = values[oracle_first_count(model, i) + s];
            const int32_t narrow = (int32_t)value;
            if (model->spaces[i].count_type == PST_COUNT_INT64)
                memcpy(at + 8 * s, &value, 8);
            else
                memcpy(at + 4 * s, &narrow, 4);
        }
    }
    LS_TRY(
        pst_device_copy(ls->device, group->counts, group->packed, group->counts_bytes, ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
}

void ls_group_random_counts(lockstep *ls, ls_group *group, counts_kind kind, oracle_random *random)
{
    shape_counts(random, group->model.spaces, group->model.num_spaces, kind, group->values);
    ls_group_set_counts(ls, group, group->values);
}

void ls_group_mark_dirty(lockstep *ls, ls_group *group)
{
    if (ls->failed)
        return;
    LS_TRY(pst_group_mark_dirty(group->group, ls->stream));
    for (uint32_t i = 0; i < oracle_num_counts(&group->model); i++)
        group->model.dirty[i] = ORACLE_ALL_DIRTY;
}

/* The tensor that an offset lies in or behind. */
static uint32_t tensor_at(const ls_group *group, size_t offset)
{
    uint32_t found = 0;
    for (uint32_t t = 0; t < group->model.num_tensors; t++)
        if ((const unsigned char *)group->model.tensors[t].base <= group->arena + offset)
            found = t;
    return found;
}

unsigned char *ls_scratch(lockstep *ls, size_t bytes)
{
    if (ls->scratch_bytes < bytes) {
        free(ls->scratch);
        ls->scratch = oracle_calloc(bytes, 1);
        ls->scratch_bytes = bytes;
    }
    return ls->scratch;
}

void ls_group_compare(lockstep *ls, ls_group *group)
{
    const unsigned char *image = group->model.image;
    if (ls->failed)
        return;
    unsigned char *found = ls_scratch(ls, group->arena_bytes);
    LS_TRY(pst_device_copy(ls->device, found, group->arena, group->arena_bytes, ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    if (ls->failed || memcmp(found, image, group->arena_bytes) == 0)
        return;
    size_t at = 0;
    while (found[at] == image[at])
        at++;
    const uint32_t t = tensor_at(group, at);
    LS_FAIL("byte %zu of the memory, %td after the base of tensor %" PRIu32
            ", is 0x%02x, the oracle has 0x%02x",
            at, group->arena + at - (unsigned char *)group->model.tensors[t].base, t, found[at],
            image[at]);
}
