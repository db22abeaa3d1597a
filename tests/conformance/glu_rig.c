/* What glu_rig.h says. The reference is computed in double by the formulas of pagestash/glu.h. */
#include "tests/conformance/glu_rig.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/core/float.h"
#include "kernels/core/mix.h"

/* ---- numbers in memory ---- */

static double number_at(const glu_rig *rig, const unsigned char *at)
{
    uint16_t narrow = 0;
    float wide = 0;
    if (rig->glu.dtype == PST_GLU_FP32) {
        memcpy(&wide, at, sizeof(wide));
        return (double)wide;
    }
    memcpy(&narrow, at, sizeof(narrow));
    return (double)(rig->glu.dtype == PST_GLU_BF16 ? psti_bf16_to_float(narrow)
                                                   : psti_half_to_float(narrow));
}

static void set_number(const glu_rig *rig, unsigned char *at, float value)
{
    const uint16_t narrow =
        rig->glu.dtype == PST_GLU_BF16 ? psti_float_to_bf16(value) : psti_float_to_half(value);
    if (rig->glu.dtype == PST_GLU_FP32)
        memcpy(at, &value, sizeof(value));
    else
        memcpy(at, &narrow, sizeof(narrow));
}

static float random_number(oracle_random *random)
{
    return (float)oracle_random_below(random, 1u << 20) / (1u << 17) - 4.0f;
}

static void upload(glu_rig *rig, void *device, const void *host, size_t bytes)
{
    lockstep *ls = &rig->pair.ls;
    if (ls->failed)
        return;
    LS_TRY(pst_device_copy(ls->device, device, host, bytes, ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
}

/* ---- rows ---- */

static const pst_row_space *space_of(const glu_rig *rig)
{
    return &rig->how.space;
}

static uint32_t num_segments(const glu_rig *rig)
{
    return oracle_num_segments(space_of(rig));
}

/* Live rows of a segment, as the caller's counts say. */
static int64_t rows_of(const glu_rig *rig, uint32_t segment)
{
    const oracle_group *model = &rig->pair.source.model;
    int64_t counts[2 * PST_MAX_SEGMENTS];
    int64_t misfit = 0;
    if (!oracle_read_counts(model, rig->pair.source.values, counts, &misfit))
        return 0;
    return counts[oracle_first_count(model, model->num_spaces - 1) + segment];
}

static unsigned char *row_at(const glu_rows *rows, uint32_t segment, int64_t row)
{
    return rows->host + rows->first + segment * rows->segment_stride +
           (uint64_t)row * rows->row_stride;
}

static const unsigned char *input_at(const glu_rig *rig, uint32_t segment, int64_t row,
                                     uint64_t element)
{
    const oracle_group *model = &rig->pair.source.model;
    const uint64_t row_bytes = model->tensors[rig->tensor].row_bytes;
    return model->image + oracle_byte_at(model, rig->tensor, segment,
                                         (uint64_t)row * row_bytes + element * rig->size);
}

/* Where in an input row the gate of column c stands, and the up. */
static uint64_t gate_of(const glu_rig *rig, uint64_t c)
{
    const uint64_t block = rig->glu.interleave;
    return block ? c / block * 2 * block + c % block : c;
}

static uint64_t up_of(const glu_rig *rig, uint64_t c)
{
    const uint64_t block = rig->glu.interleave;
    return gate_of(rig, c) + (block ? block : rig->how.features);
}

static uint64_t stride_of(const glu_case *how, uint64_t elements, uint64_t size)
{
    const uint64_t packed = elements * size;
    return how->gap == GLU_ROUNDED ? (packed + 15) / 16 * 16 : packed + how->gap * size;
}

static void make_rows(glu_rig *rig, glu_rows *rows, uint64_t elements, uint64_t size,
                      pst_glu_rows *operand)
{
    lockstep *ls = &rig->pair.ls;
    void *device = NULL;
    rows->row_bytes = elements * size;
    rows->row_stride = stride_of(&rig->how, elements, size);
    rows->segment_stride = (uint64_t)space_of(rig)->capacity * rows->row_stride + 16;
    rows->first += GLU_GUARDED;
    rows->bytes = (size_t)(num_segments(rig) * rows->segment_stride + 2 * GLU_GUARDED);
    rows->host = oracle_calloc(rows->bytes, 1);
    memset(rows->host, GLU_GUARD, rows->bytes);
    LS_TRY(pst_device_alloc(ls->device, rows->bytes, &device));
    rows->device = device;
    *operand = (pst_glu_rows){rows->device + rows->first, rows->row_stride, rows->segment_stride};
    upload(rig, rows->device, rows->host, rows->bytes);
}

static void free_rows(glu_rig *rig, glu_rows *rows)
{
    lockstep *ls = &rig->pair.ls;
    if (!ls->failed && rows->device)
        LS_TRY(pst_device_free(ls->device, rows->device));
    free(rows->host);
    *rows = (glu_rows){0};
}

static float random_input(glu_rig *rig)
{
    static const float extremes[] = {INFINITY, -INFINITY, 0x1p-24f,  -0x1p-15f,
                                     65504.0f, -0.0f,     0x1p-130f, 0x1p-14f};
    const bool is_one = rig->how.has_extremes && oracle_random_below(&rig->pair.random, 16) == 0;
    return is_one ? extremes[oracle_random_below(&rig->pair.random, 8)]
                  : random_number(&rig->pair.random);
}

static void fill_rows(glu_rig *rig, glu_rows *rows, uint64_t elements, bool is_wide)
{
    for (uint32_t s = 0; s < num_segments(rig); s++)
        for (int64_t r = 0; r < space_of(rig)->capacity; r++)
            for (uint64_t e = 0; e < elements; e++) {
                const float value = is_wide ? random_number(&rig->pair.random) : random_input(rig);
                if (is_wide)
                    memcpy(row_at(rows, s, r) + 4 * e, &value, sizeof(value));
                else
                    set_number(rig, row_at(rows, s, r) + e * rig->size, value);
            }
    upload(rig, rows->device, rows->host, rows->bytes);
}

static void fill_input(glu_rig *rig)
{
    ls_group *source = &rig->pair.source;
    for (uint32_t s = 0; s < num_segments(rig); s++)
        for (int64_t r = 0; r < space_of(rig)->capacity; r++)
            for (uint64_t e = 0; e < 2 * rig->how.features; e++)
                set_number(rig,
                           source->model.image + (input_at(rig, s, r, e) - source->model.image),
                           random_input(rig));
    upload(rig, source->arena, source->model.image, source->arena_bytes);
}

/* ---- calls ---- */

static pst_status forward(void *context, pst_ticket ticket, ls_group *source,
                          const pst_stash_options *options, pst_stream stream)
{
    glu_rig *rig = context;
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    operands.output = rig->operands.output;
    operands.probability = rig->operands.probability;
    return pst_glu_forward(rig->pair.ls.device, &rig->glu, ticket, source->group, ls_at(source),
                           &operands, options, stream);
}

static pst_status backward(void *context, pst_ticket ticket, ls_group *destination,
                           const pst_restore_options *options, pst_stream stream)
{
    glu_rig *rig = context;
    const bool has_ticket = ticket.id != 0;
    const uint64_t at = destination->model.at[rig->tensor];
    if (has_ticket)
        destination->model.at[rig->tensor] = ORACLE_NOWHERE;
    pst_buffers buffers = *ls_at(destination);
    if (has_ticket && !rig->gives_counts)
        buffers.counts = NULL;
    const pst_status status =
        pst_glu_backward(rig->pair.ls.device, &rig->glu, ticket, destination->group, &buffers,
                         &rig->operands, options, stream);
    destination->model.at[rig->tensor] = at;
    return status;
}

void glu_take_over(glu_rig *rig, bool takes)
{
    rig->calls = (ls_calls){forward, backward, rig};
    rig->pair.ls.calls = takes ? &rig->calls : NULL;
    /* what is read in its pages is not restored */
    rig->pair.destination.model.at[rig->tensor] =
        takes ? ORACLE_NOWHERE : rig->pair.source.model.at[rig->tensor];
}

static void call_alone(glu_rig *rig, bool is_backward)
{
    lockstep *ls = &rig->pair.ls;
    const pst_stash_options stash = PST_STASH_OPTIONS_INIT;
    const pst_restore_options restore = PST_RESTORE_OPTIONS_INIT;
    const pst_ticket none = {0};
    if (ls->failed)
        return;
    if (is_backward)
        LS_TRY(backward(rig, none, &rig->pair.source, &restore, ls->stream));
    else
        LS_TRY(forward(rig, none, &rig->pair.source, &stash, ls->stream));
    ls_forget_call(&rig->pair.source);
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
}

void glu_forward_alone(glu_rig *rig)
{
    call_alone(rig, false);
}

void glu_backward_alone(glu_rig *rig)
{
    call_alone(rig, true);
}

/* ---- a rig ---- */

/* Tensors in front of and behind the input, where there are others. */
static shape make_shape(const glu_rig *rig)
{
    const glu_case *how = &rig->how;
    shape made = {
        .group = {.num_spaces = how->front ? 2 : 1, .num_tensors = how->is_alone ? 1 : 3}};
    oracle_group *group = &made.group;
    uint64_t at = 64;
    const uint32_t space = group->num_spaces - 1;
    group->spaces[0] = (pst_row_space){.kind = how->front > 1 ? PST_ROWS_SEGMENTS : PST_ROWS_PREFIX,
                                       .capacity = 11,
                                       .num_segments = how->front};
    group->spaces[space] = how->space;
    group->tensors[0] = (pst_tensor){.row_bytes = 200};
    group->tensors[2] = (pst_tensor){.row_bytes = 36, .space = space, .num = 1, .den = 2};
    group->tensors[rig->tensor] = (pst_tensor){.row_bytes = 2 * how->features * rig->size,
                                               .space = space,
                                               .written_by = PST_WRITTEN_BY_GLU};
    if (how->gap)
        group->tensors[rig->tensor].row_stride = stride_of(how, 2 * how->features, rig->size);
    for (uint32_t t = 0; t < group->num_tensors; t++) {
        group->at[t] = at + (t == rig->tensor && how->odd == GLU_ODD_INPUT ? rig->size : 0);
        at +=
            oracle_stride(group, t) * oracle_num_segments(&group->spaces[group->tensors[t].space]);
        at = (at + 79) / 16 * 16;
    }
    made.arena_bytes = (size_t)at + 64;
    return made;
}

bool glu_open(glu_rig *rig, const conf_run *conf, pst_pool_mode mode, const glu_case *how,
              uint64_t seed)
{
    *rig = (glu_rig){.how = *how, .glu = PST_GLU_INIT, .operands = PST_GLU_OPERANDS_INIT};
    rig->glu.kind = how->kind;
    rig->glu.dtype = how->dtype;
    rig->glu.interleave = how->interleave;
    if (how->kind == PST_GLU_CLAMPED) {
        rig->glu.limit = 2.5f;
        rig->glu.alpha = 1.702f;
        rig->glu.bias = 1.0f;
    }
    rig->size = how->dtype == PST_GLU_FP32 ? 4 : 2;
    rig->tensor = how->is_alone ? 0 : 1;
    const shape source = make_shape(rig);
    ls_options options = conf_options(mode, how->num_pages, seed);
    options.num_host_pages = how->num_host_pages;
    options.scrub = how->scrub;
    if (!conf_pair_open(&rig->pair, conf, &options, &source, NULL, 2))
        return false;
    rig->output.first = how->odd == GLU_ODD_OUTPUT ? rig->size : 0;
    rig->gradient.first = how->odd == GLU_ODD_GRADIENT ? rig->size : 0;
    rig->input_gradient.first = how->odd == GLU_ODD_INPUT_GRADIENT ? rig->size : 0;
    make_rows(rig, &rig->output, how->features, rig->size, &rig->operands.output);
    make_rows(rig, &rig->gradient, how->features, rig->size, &rig->operands.gradient);
    make_rows(rig, &rig->input_gradient, 2 * how->features, rig->size,
              &rig->operands.input_gradient);
    if (how->has_probability) {
        make_rows(rig, &rig->probability, 1, 4, &rig->operands.probability);
        make_rows(rig, &rig->probability_gradient, 1, 4, &rig->operands.probability_gradient);
        fill_rows(rig, &rig->probability, 1, true);
    }
    fill_rows(rig, &rig->gradient, how->features, false);
    ls_group_random_counts(&rig->pair.ls, &rig->pair.source, COUNTS_RANDOM, &rig->pair.random);
    fill_input(rig);
    return !rig->pair.ls.failed;
}

void glu_close(glu_rig *rig)
{
    glu_take_over(rig, false);
    free_rows(rig, &rig->output);
    free_rows(rig, &rig->probability);
    free_rows(rig, &rig->gradient);
    free_rows(rig, &rig->input_gradient);
    free_rows(rig, &rig->probability_gradient);
    conf_pair_close(&rig->pair);
}

static void poison(glu_rig *rig, glu_rows *rows)
{
    if (!rows->device)
        return;
    memset(rows->host, GLU_GUARD, rows->bytes);
    upload(rig, rows->device, rows->host, rows->bytes);
}

void glu_poison(glu_rig *rig)
{
    poison(rig, &rig->output);
    poison(rig, &rig->input_gradient);
    poison(rig, &rig->probability_gradient);
}

/* ---- the reference ---- */

typedef struct reference {
    double value, by_gate, by_up;
} reference;

static void sigmoid_gate(double g, double z, double slope, double *act, double *by)
{
    const double s = 1 / (1 + exp(-z));
    *act = g * s;
    *by = s + g * slope * s * (1 - s);
}

static reference refer(const pst_glu *glu, double g, double u)
{
    const double root = sqrt(2 / M_PI);
    const double y = 2 * root * (g + 0.044715 * g * g * g);
    const double limit = (double)glu->limit;
    double act = g > 0 ? g : 0, by = g > 0 ? 1 : 0, by_u = 1;
    if (glu->kind == PST_GLU_CLAMPED) {
        by_u = u >= -limit && u <= limit ? 1 : 0;
        u = fmin(fmax(u, -limit), limit) + (double)glu->bias;
    }
    if (glu->kind == PST_GLU_SWIGLU)
        sigmoid_gate(g, g, 1, &act, &by);
    else if (glu->kind == PST_GLU_QUICK_GEGLU)
        sigmoid_gate(g, 1.702 * g, 1.702, &act, &by);
    else if (glu->kind == PST_GLU_GEGLU_TANH)
        sigmoid_gate(g, y, 2 * root * (1 + 3 * 0.044715 * g * g), &act, &by);
    else if (glu->kind == PST_GLU_CLAMPED)
        sigmoid_gate(fmin(g, limit), (double)glu->alpha * fmin(g, limit), (double)glu->alpha, &act,
                     &by);
    if (glu->kind == PST_GLU_CLAMPED && g > limit)
        by = 0;
    if (glu->kind == PST_GLU_GEGLU) {
        act = g * erfc(-g / sqrt(2)) / 2;
        by = erfc(-g / sqrt(2)) / 2 + g * exp(-g * g / 2) / sqrt(2 * M_PI);
    }
    return (reference){act * u, by == 0 ? 0 : by * u, by_u == 0 ? 0 : act};
}

/* The bounds of docs/fused.md are tested in tests/core; here they are wider. */
static bool is_near(const glu_rig *rig, double found, double wanted, double size)
{
    const double digits = rig->glu.dtype == PST_GLU_BF16   ? 0x1p-8
                          : rig->glu.dtype == PST_GLU_FP16 ? 0x1p-11
                                                           : 0x1p-21;
    const double smallest = rig->glu.dtype == PST_GLU_BF16   ? 0x1p-133
                            : rig->glu.dtype == PST_GLU_FP16 ? 0x1p-24
                                                             : 0x1p-146;
    const double largest = rig->glu.dtype == PST_GLU_FP16 ? 65536 : INFINITY;
    if (isnan(wanted) || fabs(wanted) >= largest)
        return isnan(wanted) ? isnan(found) : isinf(found) && (found > 0) == (wanted > 0);
    if (rig->glu.dtype == PST_GLU_FP16 && fabs(wanted) > 65500 && isinf(found))
        return true; /* by a last digit */
    return fabs(found - wanted) <= fabs(wanted) * digits + size * 0x1p-20 + smallest;
}

typedef struct element {
    double gate, up, probability, gradient;
    reference is;
} element;

static element element_of(const glu_rig *rig, uint32_t segment, int64_t row, uint64_t c)
{
    element made = {.probability = 1};
    float p = 1;
    if (rig->how.has_probability)
        memcpy(&p, row_at(&rig->probability, segment, row), sizeof(p));
    made.probability = (double)p;
    made.gate = number_at(rig, input_at(rig, segment, row, gate_of(rig, c)));
    made.up = number_at(rig, input_at(rig, segment, row, up_of(rig, c)));
    made.gradient = number_at(rig, row_at(&rig->gradient, segment, row) + c * rig->size);
    made.is = refer(&rig->glu, made.gate, made.up);
    return made;
}

/* ---- checks ---- */

static void download(glu_rig *rig, glu_rows *rows)
{
    lockstep *ls = &rig->pair.ls;
    if (ls->failed || !rows->device)
        return;
    LS_TRY(pst_device_copy(ls->device, rows->host, rows->device, rows->bytes, ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
}

/* Nothing but so many rows of each segment was written; NULL: none. */
static void check_guards(glu_rig *rig, glu_rows *rows, const int64_t *live, const char *what)
{
    unsigned char *is_written = oracle_calloc(rows->bytes, 1);
    for (uint32_t s = 0; live && s < num_segments(rig); s++)
        for (int64_t r = 0; r < live[s]; r++)
            memset(is_written + (row_at(rows, s, r) - rows->host), 1, (size_t)rows->row_bytes);
    for (size_t i = 0; i < rows->bytes; i++)
        CHECK_MSG(is_written[i] || rows->host[i] == GLU_GUARD, "%s: byte %zu was written", what, i);
    free(is_written);
}

static void live_rows(const glu_rig *rig, int64_t live[PST_MAX_SEGMENTS])
{
    for (uint32_t s = 0; s < num_segments(rig); s++)
        live[s] = rows_of(rig, s);
}

void glu_check_output(glu_rig *rig)
{
    int64_t live[PST_MAX_SEGMENTS];
    live_rows(rig, live);
    download(rig, &rig->output);
    check_guards(rig, &rig->output, live, "output");
    for (uint32_t s = 0; s < num_segments(rig); s++)
        for (int64_t r = 0; r < live[s]; r++)
            for (uint64_t c = 0; c < rig->how.features; c++) {
                const element at = element_of(rig, s, r, c);
                const double found = number_at(rig, row_at(&rig->output, s, r) + c * rig->size);
                const double wanted = at.is.value * at.probability;
                CHECK_MSG(is_near(rig, found, wanted, fabs(wanted)),
                          "output of segment %u, row %lld, column %llu: %g, wanted %g", s,
                          (long long)r, (unsigned long long)c, found, wanted);
                if (psti_test_failed())
                    return;
            }
}

/* The input of one column, of which something may be lost; segment 0. */
static element element_left(const glu_rig *rig, uint32_t s, int64_t r, uint64_t c,
                            glu_is_lost is_lost)
{
    element at = element_of(rig, s, r, c);
    if (is_lost) {
        const uint64_t row = (uint64_t)r * rig->input_gradient.row_bytes;
        at.gate = is_lost(row + gate_of(rig, c) * rig->size) ? 0 : at.gate;
        at.up = is_lost(row + up_of(rig, c) * rig->size) ? 0 : at.up;
        at.is = refer(&rig->glu, at.gate, at.up);
    }
    return at;
}

static void check_gradients(const glu_rig *rig, uint32_t s, int64_t r, glu_is_lost is_lost)
{
    const unsigned char *row = row_at(&rig->input_gradient, s, r);
    double sum = 0, size = 0;
    for (uint64_t c = 0; c < rig->how.features; c++) {
        const element at = element_left(rig, s, r, c, is_lost);
        const double scaled = at.gradient * at.probability;
        const double gate = number_at(rig, row + gate_of(rig, c) * rig->size);
        const double up = number_at(rig, row + up_of(rig, c) * rig->size);
        const double bound = fabs(scaled) * (4 + (isinf(at.up) ? 0 : fabs(at.up))) * 8;
        CHECK_MSG(is_near(rig, gate, scaled * at.is.by_gate, bound) &&
                      is_near(rig, up, scaled * at.is.by_up, bound),
                  "gradient of segment %u, row %lld, column %llu: %g and %g, wanted %g and %g", s,
                  (long long)r, (unsigned long long)c, gate, up, scaled * at.is.by_gate,
                  scaled * at.is.by_up);
        sum += at.gradient * at.is.value;
        size += fabs(at.gradient * at.is.value);
    }
    if (!rig->how.has_probability || !isfinite(size))
        return;
    float found = 0;
    memcpy(&found, row_at(&rig->probability_gradient, s, r), sizeof(found));
    CHECK_MSG(fabs((double)found - sum) <= size * 0x1p-18, "probability %g, wanted %g",
              (double)found, sum);
}

void glu_check_backward_without(glu_rig *rig, glu_is_lost is_lost)
{
    int64_t live[PST_MAX_SEGMENTS];
    live_rows(rig, live);
    download(rig, &rig->input_gradient);
    download(rig, &rig->probability_gradient);
    check_guards(rig, &rig->input_gradient, live, "input_gradient");
    if (rig->how.has_probability)
        check_guards(rig, &rig->probability_gradient, live, "probability_gradient");
    for (uint32_t s = 0; s < num_segments(rig) && !psti_test_failed(); s++)
        for (int64_t r = 0; r < live[s] && !psti_test_failed(); r++)
            check_gradients(rig, s, r, is_lost);
}

void glu_check_backward(glu_rig *rig)
{
    glu_check_backward_without(rig, NULL);
    glu_check_output(rig);
}

void glu_check_cleared(glu_rig *rig, const int64_t *rows)
{
    glu_rows *const all[] = {&rig->output, &rig->input_gradient, &rig->probability_gradient};
    for (uint32_t i = 0; i < 3; i++) {
        if (!all[i]->device)
            continue;
        download(rig, all[i]);
        check_guards(rig, all[i], rows, "what is cleared");
        for (uint32_t s = 0; s < num_segments(rig); s++)
            for (int64_t r = 0; r < rows[s]; r++)
                for (uint64_t b = 0; b < all[i]->row_bytes; b++)
                    CHECK_MSG(row_at(all[i], s, r)[b] == 0, "array %u: row %lld is not clear", i,
                              (long long)r);
    }
}

void glu_check_untouched(glu_rig *rig)
{
    download(rig, &rig->output);
    download(rig, &rig->input_gradient);
    check_guards(rig, &rig->output, NULL, "output");
    check_guards(rig, &rig->input_gradient, NULL, "input_gradient");
}

uint64_t glu_hash(glu_rig *rig)
{
    glu_rows *const all[] = {&rig->output, &rig->input_gradient, &rig->probability_gradient};
    uint64_t hash = 0;
    for (uint32_t i = 0; i < 3; i++) {
        download(rig, all[i]);
        for (size_t b = 0; b < all[i]->bytes; b++)
            hash = psti_mix(hash ^ all[i]->host[b]);
    }
    return hash;
}
