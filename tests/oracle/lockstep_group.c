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
        const size_t size = group->spaces[i].count_type == PST_COUNT_INT32 ? 4 : 8;
        at += (oracle_num_inputs(&group->spaces[i]) * size + 7) / 8 * 8;
    }
    return at;
}

/* ---- buffers ---- */

const pst_buffers *ls_at(ls_group *group)
{
    const oracle_group *model = &group->model;
    ls_call *call = &group->call;
    bool capacities = false, row_strides = false, segment_strides = false;
    *call = (ls_call){.buffers = PST_BUFFERS_INIT};
    for (uint32_t t = 0; t < model->num_tensors; t++) {
        call->bases[t] = model->at[t] == ORACLE_NOWHERE ? NULL : group->arena + model->at[t];
        call->row_strides[t] = model->row_strides[t];
        call->segment_strides[t] = model->segment_strides[t];
        row_strides |= model->row_strides[t] != 0;
        segment_strides |= model->segment_strides[t] != 0;
    }
    for (uint32_t i = 0; i < model->num_spaces; i++) {
        call->host_counts[i] = group->values[oracle_first_input(model, i)];
        call->capacities[i] = model->capacities[i];
        capacities |= model->capacities[i] != 0;
        if (group->counts && model->spaces[i].count_type == PST_COUNT_HOST)
            call->counts[i] = &call->host_counts[i];
        else if (group->counts)
            call->counts[i] = group->counts + counts_offset(model, i);
    }
    call->buffers.bases = call->bases;
    call->buffers.counts = group->counts ? call->counts : NULL;
    call->buffers.capacities = capacities ? call->capacities : NULL;
    call->buffers.row_strides = row_strides ? call->row_strides : NULL;
    call->buffers.segment_strides = segment_strides ? call->segment_strides : NULL;
    return &call->buffers;
}

void ls_forget_call(ls_group *group)
{
    memset(&group->call, 0xa5, sizeof(group->call));
}

pst_status ls_enqueue_stash(pst_ticket ticket, ls_group *source, pst_stream stream)
{
    const pst_status status = pst_ticket_stash(ticket, source->group, ls_at(source), NULL, stream);
    ls_forget_call(source);
    return status;
}

pst_status ls_enqueue_restore(pst_ticket ticket, ls_group *destination,
                              const pst_restore_options *options, pst_stream stream)
{
    const pst_status status =
        pst_ticket_restore(ticket, destination->group, ls_at(destination), options, stream);
    ls_forget_call(destination);
    return status;
}

pst_restore_options ls_restore_options(const ls_group *destination, pst_restore_pages pages,
                                       pst_restore_tail tail)
{
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    options.pages = pages;
    options.tail = tail;
    options.dirty =
        destination->model.names_dirty || tail == PST_TAIL_ZERO ? destination->dirty : NULL;
    return options;
}

/* ---- groups ---- */

static void allocate(lockstep *ls, ls_group *made, bool with_counts)
{
    void *arena = NULL;
    void *counts = NULL;
    made->counts_bytes = counts_offset(&made->model, made->model.num_spaces);
    LS_TRY(pst_device_alloc(ls->device, made->arena_bytes, &arena));
    if (with_counts)
        LS_TRY(pst_device_alloc(ls->device, made->counts_bytes, &counts));
    made->arena = arena;
    made->counts = counts;
    made->values = oracle_calloc(oracle_all_inputs(&made->model), sizeof(int64_t));
    made->packed = oracle_calloc(made->counts_bytes, 1);
    made->model.image = oracle_calloc(made->arena_bytes, 1);
    made->model.dirty = oracle_calloc(oracle_num_counts(&made->model), sizeof(uint64_t));
}

bool ls_group_make(lockstep *ls, const shape *from, oracle_random *random, ls_group *made)
{
    *made = (ls_group){.arena_bytes = from->arena_bytes, .model = from->group};
    oracle_group *model = &made->model;
    allocate(ls, made, !from->without_counts);
    if (ls->failed)
        return false;
    for (uint32_t i = 0; i < oracle_num_counts(model); i++)
        model->dirty[i] = from->tail_is_zero ? 0 : ORACLE_ALL_DIRTY;
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = model->spaces;
    config.num_spaces = model->num_spaces;
    config.tensors = model->tensors;
    config.num_tensors = model->num_tensors;
    LS_TRY(pst_group_create(&config, &made->group));
    LS_TRY(pst_dirty_create(ls->device, made->group, from->tail_is_zero, &made->dirty));
    ls_group_fill(ls, made, random);
    if (made->counts)
        ls_group_set_counts(ls, made, made->values);
    return !ls->failed;
}

void ls_group_free(lockstep *ls, ls_group *group)
{
    if (!ls->failed) {
        LS_TRY(pst_group_destroy(group->group));
        LS_TRY(pst_dirty_destroy(group->dirty));
        LS_TRY(pst_device_free(ls->device, group->counts));
        LS_TRY(pst_device_free(ls->device, group->arena));
    }
    free(group->values);
    free(group->packed);
    free(group->model.image);
    free(group->model.dirty);
}

/* Dirty words are of one place and its capacities. */
static void renew_dirty(lockstep *ls, ls_group *group)
{
    const oracle_group *model = &group->model;
    pst_row_space spaces[PST_MAX_SPACES];
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    pst_group *there = NULL;
    memcpy(spaces, model->spaces, sizeof(spaces));
    for (uint32_t i = 0; i < model->num_spaces; i++)
        if (model->capacities[i])
            spaces[i].capacity = model->capacities[i];
    pst_tensor tensors[PST_MAX_TENSORS];
    memcpy(tensors, model->tensors, sizeof(tensors));
    for (uint32_t t = 0; t < model->num_tensors; t++)
        tensors[t].row_stride = tensors[t].segment_stride = 0;
    config.spaces = spaces;
    config.num_spaces = model->num_spaces;
    config.tensors = tensors;
    config.num_tensors = model->num_tensors;
    LS_TRY(pst_group_create(&config, &there));
    LS_TRY(pst_dirty_destroy(group->dirty));
    LS_TRY(pst_dirty_create(ls->device, there, false, &group->dirty));
    LS_TRY(pst_group_destroy(there));
    for (uint32_t i = 0; i < oracle_num_counts(model); i++)
        group->model.dirty[i] = ORACLE_ALL_DIRTY;
}

void ls_group_move(lockstep *ls, ls_group *group, size_t arena_bytes, oracle_random *random)
{
    void *arena = NULL;
    if (ls->failed)
        return;
    LS_TRY(pst_device_alloc(ls->device, arena_bytes, &arena));
    LS_TRY(pst_device_fill(ls->device, group->arena, 0x99, group->arena_bytes, ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    LS_TRY(pst_device_free(ls->device, group->arena));
    group->arena = arena;
    group->arena_bytes = arena_bytes;
    free(group->model.image);
    group->model.image = oracle_calloc(arena_bytes, 1);
    ls_group_fill(ls, group, random);
    renew_dirty(ls, group);
}

static void upload(lockstep *ls, ls_group *group)
{
    if (ls->failed)
        return;
    LS_TRY(pst_device_copy(ls->device, group->arena, group->model.image, group->arena_bytes,
                           ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
}

void ls_group_fill(lockstep *ls, ls_group *group, oracle_random *random)
{
    for (size_t i = 0; i < group->arena_bytes; i += sizeof(uint64_t)) {
        const uint64_t bits = oracle_random_bits(random);
        const size_t left = group->arena_bytes - i;
        memcpy(group->model.image + i, &bits, left < sizeof(bits) ? left : sizeof(bits));
    }
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
    if (ls->failed)
        return;
    memmove(group->values, values, oracle_all_inputs(model) * sizeof(*values));
    for (uint32_t i = 0; i < model->num_spaces; i++) {
        unsigned char *at = group->packed + counts_offset(model, i);
        for (uint32_t s = 0; s < oracle_num_inputs(&model->spaces[i]); s++) {
            const int64_t value = values[oracle_first_input(model, i) + s];
            const int32_t narrow = (int32_t)value;
            if (model->spaces[i].count_type == PST_COUNT_INT32)
                memcpy(at + 4 * s, &narrow, 4);
            else
                memcpy(at + 8 * s, &value, 8);
        }
    }
    LS_TRY(
        pst_device_copy(ls->device, group->counts, group->packed, group->counts_bytes, ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
}

void ls_group_random_counts(lockstep *ls, ls_group *group, counts_kind kind, oracle_random *random)
{
    shape_counts(random, &group->model, kind, group->values);
    ls_group_set_counts(ls, group, group->values);
}

void ls_group_mark_dirty(lockstep *ls, ls_group *group)
{
    if (ls->failed)
        return;
    LS_TRY(pst_dirty_mark(group->dirty, ls->stream));
    for (uint32_t i = 0; i < oracle_num_counts(&group->model); i++)
        group->model.dirty[i] = ORACLE_ALL_DIRTY;
}

/* The tensor that an offset lies in or behind. */
static uint32_t tensor_at(const ls_group *group, size_t offset)
{
    uint32_t found = 0;
    for (uint32_t t = 0; t < group->model.num_tensors; t++)
        if (group->model.at[t] <= offset) /* ORACLE_NOWHERE is not */
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
    if (ls->failed || ls->replays)
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
            at, (ptrdiff_t)at - (ptrdiff_t)group->model.at[t], t, found[at], image[at]);
}
