/* Gated activations as checked launches, which with a ticket also are its stash or its restore. */
#include <pagestash/glu.h>

#include <inttypes.h>
#include <string.h>

#include "host/base/nvtx.h"
#include "host/base/structs.h"
#include "host/stash/stash.h"

#define MAX_FEATURES INT32_MAX

static pst_status check_glu(const pst_glu *glu)
{
    const bool clamps = glu->kind == PST_GLU_CLAMPED;
    PSTI_CHECK(glu->kind >= PST_GLU_SWIGLU && glu->kind <= PST_GLU_CLAMPED, PST_E_INVALID,
               "glu: kind %d: allowed are 0 to %d", (int)glu->kind, (int)PST_GLU_CLAMPED);
    PSTI_CHECK(glu->dtype >= PST_GLU_BF16 && glu->dtype <= PST_GLU_FP32, PST_E_INVALID,
               "glu: dtype %d: allowed are bf16, fp16 and fp32", (int)glu->dtype);
    PSTI_CHECK(glu->interleave <= 1 || glu->interleave == PSTI_GLU_BLOCK, PST_E_INVALID,
               "glu: interleave %u: allowed are 0, 1 and 32", glu->interleave);
    PSTI_CHECK(clamps ? glu->limit > 0 : glu->limit == 0, PST_E_INVALID,
               "glu: limit %g: must be %s", (double)glu->limit,
               clamps ? "above 0" : "0 but for clamped");
    PSTI_CHECK(clamps ? glu->alpha - glu->alpha == 0 : glu->alpha == 0, PST_E_INVALID,
               "glu: alpha %g: must be %s", (double)glu->alpha,
               clamps ? "finite" : "0 but for clamped");
    PSTI_CHECK(clamps ? glu->bias - glu->bias == 0 : glu->bias == 0, PST_E_INVALID,
               "glu: bias %g: must be %s", (double)glu->bias,
               clamps ? "finite" : "0 but for clamped");
    return PST_OK;
}

enum { NUM_OPERANDS = 5 };

/* From the first byte of an operand's first row to the last of its last. */
typedef struct extent {
    const char *what; /* for messages */
    uintptr_t base;
    uint64_t bytes;
    bool is_written;
} extent;

/* One launch while it is made. */
typedef struct glu_call {
    pst_device *device;
    pst_glu glu;
    pst_glu_operands operands;
    psti_ticket *ticket; /* NULL: none */
    const pst_group *group;
    uint64_t size; /* bytes of an element */
    uint64_t reaches[PSTI_MAX_TENSORS];
    extent extents[NUM_OPERANDS];
    uint32_t num_extents;
    psti_glu_args args;
} glu_call;

static pst_status check_input(const glu_call *call, uint64_t *features_out)
{
    const uint32_t t = call->group->glu_tensor;
    PSTI_CHECK(t != PSTI_NO_TENSOR, PST_E_INVALID,
               "group: no tensor is written by a GLU (written_by)");
    const uint64_t row_bytes = call->group->tensors[t].row_bytes;
    const uint64_t features = row_bytes / (2 * call->size);
    const uint32_t block = call->glu.interleave ? call->glu.interleave : 1;
    PSTI_CHECK(row_bytes % (2 * call->size) == 0 && features <= MAX_FEATURES, PST_E_INVALID,
               "tensor %u: row_bytes %" PRIu64 ": must be 2 F elements of %" PRIu64
               " bytes, F up to %d",
               t, row_bytes, call->size, MAX_FEATURES);
    PSTI_CHECK(features % block == 0, PST_E_INVALID,
               "tensor %u: F %" PRIu64 ": must be a multiple of interleave %u", t, features, block);
    *features_out = features;
    return PST_OK;
}

pst_status psti_glu_check_form(const pst_glu *glu, uint64_t features)
{
    const uint32_t block = glu->interleave ? glu->interleave : 1;
    PSTI_TRY(check_glu(glu));
    PSTI_CHECK(features % block == 0, PST_E_INVALID,
               "glu: F %" PRIu64 ": must be a multiple of interleave %u", features, block);
    return PST_OK;
}

/* Of what all calls begin with. */
static pst_status open_call(glu_call *call, pst_device *device, const pst_glu *glu,
                            pst_ticket handle, const pst_group *group,
                            const pst_glu_operands *operands)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    PSTI_CHECK_HANDLE(group, GROUP);
    PSTI_CHECK(glu, PST_E_INVALID, "glu is NULL");
    PSTI_CHECK(operands, PST_E_INVALID, "operands is NULL");
    PSTI_TAKE(pst_glu, own_glu, glu);
    PSTI_TAKE(pst_glu_operands, own_operands, operands);
    PSTI_TRY(check_glu(&own_glu));
    call->device = device;
    call->glu = own_glu;
    call->operands = own_operands;
    call->group = group;
    call->size = own_glu.dtype == PST_GLU_FP32 ? 4 : 2;
    if (handle.id) {
        PSTI_FIND_TICKET(ticket, handle);
        PSTI_CHECK(ticket->pool->device == device, PST_E_INVALID, "ticket and device are two");
        PSTI_TRY(psti_pool_usable(ticket->pool));
        call->ticket = ticket;
    }
    psti_glu *to = &call->args.glu;
    memset(to, 0, sizeof(*to));
    to->how = (psti_activation){(uint32_t)own_glu.kind, own_glu.limit, own_glu.alpha, own_glu.bias};
    to->tensor = group->glu_tensor;
    to->dtype = (uint32_t)own_glu.dtype;
    to->interleave = own_glu.interleave;
    to->has_ticket = call->ticket != NULL;
    return check_input(call, &to->features);
}

static const pst_pool *pool_of(const glu_call *call)
{
    return call->ticket ? call->ticket->pool : NULL;
}

/* What an operand of rows has: so many elements of so many bytes each. */
typedef struct row_form {
    const char *what; /* for messages */
    uint64_t elements, size;
    bool is_written;
} row_form;

static pst_status check_rows(const glu_call *call, const pst_glu_rows *rows, const row_form *form,
                             uint64_t reach)
{
    const uint64_t row_bytes = form->elements * form->size;
    PSTI_CHECK((uintptr_t)rows->base % form->size == 0 && rows->row_stride % form->size == 0 &&
                   rows->segment_stride % form->size == 0,
               PST_E_INVALID,
               "%s at %p, row stride %" PRIu64 ", segment stride %" PRIu64
               ": must be multiples of %" PRIu64,
               form->what, rows->base, rows->row_stride, rows->segment_stride, form->size);
    PSTI_CHECK(rows->row_stride == 0 || rows->row_stride >= row_bytes, PST_E_INVALID,
               "%s: row_stride %" PRIu64 ": a row has %" PRIu64 " bytes", form->what,
               rows->row_stride, row_bytes);
    PSTI_CHECK(!psti_lies_in_pool(pool_of(call), rows->base, reach), PST_E_INVALID,
               "%s at %p: %" PRIu64 " bytes lie in the pool's memory", form->what, rows->base,
               reach);
    return psti_check_address(call->device, rows->base, reach);
}

static bool are_apart(uintptr_t a, uint64_t a_bytes, uintptr_t b, uint64_t b_bytes)
{
    return a_bytes == 0 || b_bytes == 0 || (a - b >= b_bytes && b - a >= a_bytes);
}

/* What a launch restores and what it reads or writes beside that are different memory, as are
 * its results and what a forward stashes: others do the one while it does the other. Without a
 * ticket the input is the only tensor of the group that it knows. */
static pst_status check_tensors(const glu_call *call, const extent *of)
{
    for (uint32_t t = 0; t < call->group->num_tensors; t++) {
        const uintptr_t other = (uintptr_t)call->args.move.tensors[t].base;
        if (other && (call->ticket || t == call->args.glu.tensor))
            PSTI_CHECK(are_apart(of->base, of->bytes, other, call->reaches[t]), PST_E_INVALID,
                       "%s at %p: %" PRIu64 " bytes overlap tensor %u", of->what, (void *)of->base,
                       of->bytes, t);
    }
    return PST_OK;
}

/* Results overlap neither each other nor what is read; a backward restores while it reads its
 * operands. */
static pst_status check_apart(const glu_call *call, bool restores)
{
    for (uint32_t i = 0; i < call->num_extents; i++) {
        const extent *of = &call->extents[i];
        if (of->is_written || restores)
            PSTI_TRY(check_tensors(call, of));
        for (uint32_t j = 0; j < i; j++) {
            const extent *other = &call->extents[j];
            PSTI_CHECK((!of->is_written && !other->is_written) ||
                           are_apart(of->base, of->bytes, other->base, other->bytes),
                       PST_E_INVALID, "%s at %p: %" PRIu64 " bytes overlap %s at %p", of->what,
                       (void *)of->base, of->bytes, other->what, (void *)other->base);
        }
    }
    return PST_OK;
}

static pst_status place_rows(glu_call *call, const pst_glu_rows *rows, const row_form *form,
                             psti_matrix *to)
{
    const uint32_t t = call->args.glu.tensor;
    const psti_space *space = &call->args.move.spaces[call->group->tensors[t].space];
    psti_tensor tensor = {.row_bytes = form->elements * form->size, .num = 1, .den = 1};
    uint64_t total = 0, reach = 0;
    if (!rows->base)
        return PST_OK;
    PSTI_TRY(check_rows(call, rows, form, 0));
    PSTI_TRY(psti_place_tensor(&tensor, space, t, rows->row_stride, 0, &total, &reach));
    reach -= (space->num_segments - 1) * tensor.segment_stride;
    PSTI_CHECK(rows->segment_stride == 0 || rows->segment_stride >= reach, PST_E_INVALID,
               "%s: segment_stride %" PRIu64 ": a segment at capacity has %" PRIu64 " bytes",
               form->what, rows->segment_stride, reach);
    total = 0;
    PSTI_TRY(psti_place_tensor(&tensor, space, t, rows->row_stride, rows->segment_stride, &total,
                               &reach));
    *to = (psti_matrix){rows->base, tensor.row_stride, tensor.segment_stride};
    call->extents[call->num_extents++] =
        (extent){form->what, (uintptr_t)rows->base, reach, form->is_written};
    return check_rows(call, rows, form, reach);
}

static pst_status place_operands(glu_call *call, bool is_backward)
{
    const pst_glu_operands *from = &call->operands;
    psti_glu *to = &call->args.glu;
    const uint64_t features = to->features;
    const row_form output = {"output", features, call->size, true};
    const row_form probability = {"probability", 1, sizeof(float), false};
    const row_form gradient = {"gradient", features, call->size, false};
    const row_form input_gradient = {"input_gradient", 2 * features, call->size, true};
    const row_form of_probability = {"probability_gradient", 1, sizeof(float), true};
    PSTI_CHECK(is_backward || from->output.base, PST_E_INVALID, "output is NULL");
    PSTI_CHECK(!is_backward || (from->gradient.base && from->input_gradient.base), PST_E_INVALID,
               "gradient or input_gradient is NULL");
    PSTI_CHECK(is_backward || (!from->gradient.base && !from->input_gradient.base &&
                               !from->probability_gradient.base),
               PST_E_INVALID, "gradients: must be NULL in forward");
    PSTI_TRY(place_rows(call, &from->output, &output, &to->output));
    PSTI_TRY(place_rows(call, &from->probability, &probability, &to->probability));
    PSTI_TRY(place_rows(call, &from->gradient, &gradient, &to->gradient));
    PSTI_TRY(place_rows(call, &from->input_gradient, &input_gradient, &to->input_gradient));
    PSTI_TRY(
        place_rows(call, &from->probability_gradient, &of_probability, &to->probability_gradient));
    return check_apart(call, is_backward && call->ticket);
}

/* Whether rows can be taken 16 bytes at a time. */
static bool is_wide(const psti_matrix *rows)
{
    return ((uintptr_t)rows->base | rows->row_stride | rows->segment_stride) % PSTI_VECTOR_BYTES ==
           0;
}

/* The input, where it is read in memory, and what follows from all addresses. */
static pst_status finish_operands(glu_call *call)
{
    psti_glu *glu = &call->args.glu;
    const psti_tensor *tensor = &call->args.move.tensors[glu->tensor];
    const psti_matrix input = {tensor->base, tensor->row_stride, tensor->segment_stride};
    PSTI_CHECK(
        !input.base ||
            (((uintptr_t)input.base | input.row_stride | input.segment_stride) % call->size == 0),
        PST_E_INVALID,
        "input at %p, row stride %" PRIu64 ", segment stride %" PRIu64
        ": must be multiples of %" PRIu64,
        (void *)input.base, input.row_stride, input.segment_stride, call->size);
    glu->is_wide = glu->features * call->size % PSTI_VECTOR_BYTES == 0 &&
                   (!input.base || is_wide(&input)) && is_wide(&glu->output) &&
                   is_wide(&glu->gradient) && is_wide(&glu->input_gradient);
    return PST_OK;
}

/* Of a GLU there is one kernel, by loads. */
static pst_status make_launch(const glu_call *call, const pst_launch_options *options,
                              psti_launch *launch)
{
    PSTI_TRY(psti_launch_make(call->device, options, launch));
    PSTI_CHECK(options->backend == PST_BACKEND_AUTO || options->backend == PST_BACKEND_LDG,
               PST_E_UNSUPPORTED, "backend %s: a GLU has auto and ldg",
               psti_backend_name(options->backend));
    if (call->device->info.backends != 0)
        launch->backend = PST_BACKEND_LDG;
    return PST_OK;
}

static pst_status enqueue_alone(glu_call *call, psti_op op, const psti_placing *placing,
                                const psti_launch *launch, pst_stream stream)
{
    psti_move_args *move = &call->args.move;
    const psti_tensor *input = &move->tensors[call->args.glu.tensor];
    const int64_t capacity = move->spaces[input->space].capacity;
    PSTI_CHECK(input->base || capacity == 0, PST_E_INVALID,
               "input: bases[%u] is NULL, and there is no ticket", call->args.glu.tensor);
    psti_move_fill_group(call->device, call->group, placing, launch, move);
    move->spaces[0] = move->spaces[input->space]; /* the others are nobody's */
    move->tensors[0] = *input;
    move->tensors[0].space = 0;
    move->num_spaces = 1;
    move->num_tensors = 1;
    call->args.glu.tensor = 0;
    psti_move_describe(move);
    return call->device->ops->launch(call->device, op, &call->args, stream);
}

static void init_alone(psti_move_args *move)
{
    memset(move, 0, offsetof(psti_move_args, spaces));
}

/* All checks of a forward, and what it launches. */
static pst_status make_forward(glu_call *call, pst_device *device, const pst_glu *glu,
                               pst_ticket handle, const pst_group *group, const pst_buffers *source,
                               const pst_glu_operands *operands, const pst_stash_options *options,
                               psti_placing *placing, psti_launch *launch)
{
    psti_move_args *move = &call->args.move;
    call->ticket = NULL;
    call->num_extents = 0;
    PSTI_TRY(open_call(call, device, glu, handle, group, operands));
    PSTI_TAKE_OPTIONS(pst_stash_options, own, options);
    *placing = (psti_placing){.spaces = move->spaces,
                              .tensors = move->tensors,
                              .with_counts = true,
                              .may_skip = !call->ticket,
                              .pool = pool_of(call),
                              .reaches = call->reaches};
    PSTI_TRY(psti_place(device, group, source, "source", placing));
    PSTI_TRY(place_operands(call, false));
    PSTI_TRY(finish_operands(call));
    PSTI_TRY(make_launch(call, &own.launch, launch));
    init_alone(move);
    return call->ticket ? psti_move_check_room(call->ticket, group, placing, "source") : PST_OK;
}

pst_status psti_glu_check_forward(pst_device *device, const pst_glu *glu, pst_ticket handle,
                                  const pst_group *group, const pst_buffers *source,
                                  const pst_glu_operands *operands,
                                  const pst_stash_options *options)
{
    glu_call call;
    psti_launch launch;
    psti_placing placing;
    return make_forward(&call, device, glu, handle, group, source, operands, options, &placing,
                        &launch);
}

pst_status pst_glu_forward(pst_device *device, const pst_glu *glu, pst_ticket handle,
                           const pst_group *group, const pst_buffers *source,
                           const pst_glu_operands *operands, const pst_stash_options *options,
                           pst_stream stream)
{
    glu_call call;
    psti_launch launch;
    psti_placing placing;
    psti_capture_of capture;
    psti_move_args *move = &call.args.move;
    PSTI_TRY(make_forward(&call, device, glu, handle, group, source, operands, options, &placing,
                          &launch));
    PSTI_RANGE_OF("pst_glu_forward", "GLU forward", call.ticket ? call.ticket->index : 0,
                  placing.max_tiles * PSTI_TILE_BYTES);
    if (!call.ticket)
        return enqueue_alone(&call, PSTI_OP_GLU_FORWARD, &placing, &launch, stream);
    PSTI_TRY(psti_move_begin(call.ticket, stream, &capture));
    psti_move_fill(call.ticket, group, &placing, &launch, move);
    psti_move_note_stash(call.ticket, group, move->spaces, &capture);
    return psti_move_enqueue(call.ticket, PSTI_OP_GLU_FORWARD, &call.args, NULL, &capture, stream);
}

/* The counts that say what is cleared where the ticket holds nothing. */
static pst_status place_cleared(glu_call *call, const pst_buffers *buffers)
{
    PSTI_TAKE(pst_buffers, own, buffers);
    const uint32_t i = call->group->tensors[call->args.glu.tensor].space;
    call->args.glu.has_counts = own.counts && own.counts[i];
    if (!call->args.glu.has_counts)
        return PST_OK;
    return psti_place_counts(call->device, &own, "buffers", i, &call->args.move.spaces[i]);
}

static pst_status check_backward(const glu_call *call, const pst_restore_options *options)
{
    PSTI_CHECK(options->tail == PST_TAIL_UNTOUCHED && !options->dirty, PST_E_INVALID,
               "tail %d: in pst_glu_backward allowed is untouched, without dirty words",
               (int)options->tail);
    if (!call->ticket)
        return PST_OK;
    const psti_ticket *ticket = call->ticket;
    PSTI_TRY(psti_move_check_options(ticket, call->group, options));
    PSTI_CHECK(call->group->num_counts <= ticket->count_room, PST_E_INVALID,
               "buffers has %u counts, ticket %u has room for %u", call->group->num_counts,
               ticket->index, ticket->count_room);
    return PST_OK;
}

static pst_status enqueue_backward(glu_call *call, const psti_placing *placing,
                                   const pst_restore_options *options, const psti_launch *launch,
                                   pst_stream stream)
{
    psti_ticket *ticket = call->ticket;
    const pst_group *group = call->group;
    psti_move_args *move = &call->args.move;
    psti_capture_of capture;
    PSTI_TRY(psti_move_begin(ticket, stream, &capture));
    psti_move_fill(ticket, group, placing, launch, move);
    move->flags |= psti_move_restore_flags(options);
    move->num_looked = move->is_plain && !ticket->pool->view.concurrent ? move->num_spaces : 0;
    PSTI_TRY(psti_move_enqueue(ticket, PSTI_OP_GLU_BACKWARD, &call->args, NULL, &capture, stream));
    if (options->pages == PST_RESTORE_CONSUME)
        psti_move_note_restore(ticket, group, move->spaces, &capture);
    return PST_OK;
}

/* All checks of a backward, and what it launches; *options with what the caller's lack. */
static pst_status make_backward(glu_call *call, pst_device *device, const pst_glu *glu,
                                pst_ticket handle, const pst_group *group,
                                const pst_buffers *buffers, const pst_glu_operands *operands,
                                pst_restore_options *options, psti_placing *placing,
                                psti_launch *launch)
{
    psti_move_args *move = &call->args.move;
    call->ticket = NULL;
    call->num_extents = 0;
    PSTI_TRY(open_call(call, device, glu, handle, group, operands));
    PSTI_TRY(check_backward(call, options));
    *placing = (psti_placing){
        .spaces = move->spaces,
        .tensors = move->tensors,
        .with_counts = !call->ticket,
        .may_skip = !call->ticket || options->pages == PST_RESTORE_KEEP,
        .in_pages = call->ticket ? (uint64_t)1 << call->args.glu.tensor % PSTI_MAX_TENSORS : 0,
        .pool = pool_of(call),
        .reaches = call->reaches};
    PSTI_TRY(psti_place(device, group, buffers, "buffers", placing));
    if (call->ticket)
        PSTI_TRY(place_cleared(call, buffers));
    PSTI_TRY(place_operands(call, true));
    PSTI_TRY(finish_operands(call));
    PSTI_TRY(make_launch(call, &options->launch, launch));
    init_alone(move);
    return PST_OK;
}

pst_status psti_glu_check_backward(pst_device *device, const pst_glu *glu, pst_ticket handle,
                                   const pst_group *group, const pst_buffers *buffers,
                                   const pst_glu_operands *operands,
                                   const pst_restore_options *options)
{
    glu_call call;
    psti_launch launch;
    psti_placing placing;
    PSTI_TAKE_OPTIONS(pst_restore_options, own, options);
    return make_backward(&call, device, glu, handle, group, buffers, operands, &own, &placing,
                         &launch);
}

pst_status pst_glu_backward(pst_device *device, const pst_glu *glu, pst_ticket handle,
                            const pst_group *group, const pst_buffers *buffers,
                            const pst_glu_operands *operands, const pst_restore_options *options,
                            pst_stream stream)
{
    glu_call call;
    psti_launch launch;
    psti_placing placing;
    PSTI_TAKE_OPTIONS(pst_restore_options, own, options);
    PSTI_TRY(make_backward(&call, device, glu, handle, group, buffers, operands, &own, &placing,
                           &launch));
    PSTI_RANGE_OF("pst_glu_backward", "GLU backward", call.ticket ? call.ticket->index : 0,
                  placing.max_tiles * PSTI_TILE_BYTES);
    if (!call.ticket)
        return enqueue_alone(&call, PSTI_OP_GLU_BACKWARD, &placing, &launch, stream);
    return enqueue_backward(&call, &placing, &own, &launch, stream);
}
