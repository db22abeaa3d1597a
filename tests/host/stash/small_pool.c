/* A small pool: its memory, and the letters of a GLU. Its numbers are such that float computes them without an
 * error: gates are 2, so that REGLU's output is twice the up, and the rest small integers. */
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/host/stash/small_pool.h"

static const float GATE = 2, NOBODYS = -7;

/* ---- opening and closing ---- */

static void report(const char *file, int line, const char *text)
{
    psti_test_fail(file, line, "%s", text);
}

static shape make_shape(uint64_t row_bytes)
{
    shape made = {.group = {.num_spaces = SMALL_TENSORS, .num_tensors = SMALL_TENSORS}};
    oracle_group *group = &made.group;
    for (uint32_t t = 0; t < SMALL_TENSORS; t++) {
        group->spaces[t] = (pst_row_space){.capacity = SMALL_ROWS};
        group->tensors[t] = (pst_tensor){.row_bytes = row_bytes, .space = t};
        group->at[t] = 64 + t * (SMALL_ROWS * row_bytes + 64);
    }
    group->tensors[0].written_by = PST_WRITTEN_BY_GLU;
    made.arena_bytes = group->at[SMALL_TENSORS - 1] + SMALL_ROWS * row_bytes + 64;
    return made;
}

void small_open(small_pool *self, pst_device *device, const small_kind *kind)
{
    const ls_options options = {.mode = kind->mode,
                                .num_pages = SMALL_PAGES,
                                .num_host_pages = SMALL_HOST_PAGES,
                                .scrub = kind->scrub,
                                .fails_fast = kind->fails_fast,
                                .slab_tickets = kind->lends ? SMALL_TICKETS : 0,
                                .slab_counts = SMALL_TENSORS,
                                .max_tickets = SMALL_TICKETS,
                                .report = report};
    const shape rows = make_shape(2 * SMALL_FEATURES * sizeof(float));
    const shape other = make_shape(4 * SMALL_FEATURES * sizeof(float));
    oracle_random random = oracle_random_seeded(1);
    *self = (small_pool){.kind = *kind};
    CHECK(ls_open(&self->ls, device, &options));
    self->ls.skip_checks = true; /* check is a letter */
    CHECK(ls_group_make(&self->ls, &rows, &random, &self->source));
    CHECK(ls_group_make(&self->ls, &rows, &random, &self->destination));
    CHECK(ls_group_make(&self->ls, &other, &random, &self->stranger));
    self->operands = oracle_calloc(1, sizeof(*self->operands));
    for (uint32_t place = 0; place < SMALL_TICKETS; place++)
        small_get_ticket(self, place);
}

void small_rewind(small_pool *self)
{
    ls_reset(&self->ls, PST_RESET_ALL);
    ls_resize(&self->ls, SMALL_PAGES, SMALL_HOST_PAGES);
    for (uint32_t place = SMALL_TICKETS; place-- > 0;)
        if (self->tickets[place] != UINT32_MAX)
            small_part_with(self, place);
    for (uint32_t place = 0; place < SMALL_TICKETS; place++)
        small_get_ticket(self, place);
    ls_reset(&self->ls, PST_RESET_STATISTICS);
    self->given_last = 0;
}

void small_close(small_pool *self)
{
    self->ls.replays = true;
    ls_group_free(&self->ls, &self->source);
    ls_group_free(&self->ls, &self->destination);
    ls_group_free(&self->ls, &self->stranger);
    ls_close(&self->ls);
    free(self->operands);
}

/* ---- numbers ---- */

static void put(unsigned char *at, float value)
{
    memcpy(at, &value, sizeof(value));
}

static float number_at(const unsigned char *at)
{
    float value;
    memcpy(&value, at, sizeof(value));
    return value;
}

/* Of a row gate, up, gate, up. */
void small_fill_source(small_pool *self)
{
    lockstep *ls = &self->ls;
    ls_group *source = &self->source;
    float next = (float)(ls->operation * 1024);
    for (uint32_t t = 0; t < SMALL_TENSORS; t++)
        for (uint32_t i = 0; i < SMALL_ROWS * 2 * SMALL_FEATURES; i++)
            put(source->model.image + source->model.at[t] + i * sizeof(float),
                i % 2 ? next++ : GATE);
    LS_TRY(pst_device_copy(ls->device, source->arena, source->model.image, source->arena_bytes,
                           ls->stream));
}

/* ---- GLU ---- */

static const pst_glu glu = {
    .struct_size = sizeof(pst_glu), .kind = PST_GLU_REGLU, .dtype = PST_GLU_FP32, .interleave = 1};

static pst_status forward(void *context, pst_ticket ticket, ls_group *source,
                          const pst_stash_options *options, pst_stream stream)
{
    small_pool *self = context;
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    operands.output.base = self->operands->output;
    return pst_glu_forward(self->ls.device, &glu, ticket, source->group, ls_at(source), &operands,
                           options, stream);
}

static pst_status backward(void *context, pst_ticket ticket, ls_group *destination,
                           const pst_restore_options *options, pst_stream stream)
{
    small_pool *self = context;
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    pst_buffers buffers = *ls_at(destination);
    buffers.counts = NULL;
    operands.gradient.base = self->operands->gradient;
    operands.input_gradient.base = self->operands->input_gradient;
    return pst_glu_backward(self->ls.device, &glu, ticket, destination->group, &buffers, &operands,
                            options, stream);
}

static void begin(small_pool *self)
{
    small_operands *all = self->operands;
    self->calls = (ls_calls){forward, backward, self};
    self->ls.calls = &self->calls;
    for (uint32_t r = 0; r < SMALL_ROWS; r++)
        for (uint32_t i = 0; i < SMALL_FEATURES; i++) {
            all->output[r][i] = NOBODYS;
            all->gradient[r][i] = (float)(1 + r * SMALL_FEATURES + i);
            all->input_gradient[r][2 * i] = all->input_gradient[r][2 * i + 1] = NOBODYS;
        }
}

static void compare_number(lockstep *ls, float found, float expected, const char *what, uint32_t i)
{
    if (found < expected || found > expected)
        LS_FAIL("%s %u is %g, expected is %g", what, i, (double)found, (double)expected);
}

void small_glu_stash(small_pool *self, uint32_t ticket, int64_t tensors)
{
    lockstep *ls = &self->ls;
    const oracle_group *model = &self->source.model;
    small_fill_source(self);
    small_set_counts(self, tensors);
    begin(self);
    ls_stash(ls, ticket, &self->source);
    ls->calls = NULL;
    for (uint32_t i = 0; i < SMALL_ROWS * SMALL_FEATURES; i++) {
        const float up = number_at(model->image + model->at[0] + (2 * i + 1) * sizeof(float));
        compare_number(ls, self->operands->output[i / SMALL_FEATURES][i % SMALL_FEATURES],
                       tensors > 0 ? GATE * up : NOBODYS, "output", i);
    }
}

/* Whether a restore finds something of this form, and how many rows of the input. */
static bool finds_rows(const small_pool *self, uint32_t ticket, uint32_t *rows_out)
{
    const oracle_ticket *model = &self->ls.oracle->tickets[ticket];
    const bool finds = model->state == ORACLE_LIVE && !self->ls.oracle->is_stale;
    *rows_out = finds ? (uint32_t)model->counts[0] : 0;
    return finds;
}

void small_glu_restore(small_pool *self, uint32_t ticket, int64_t pages)
{
    lockstep *ls = &self->ls;
    float ups[SMALL_ROWS * SMALL_FEATURES] = {0};
    uint32_t rows = 0;
    ls_group *destination = &self->destination;
    const uint64_t at = destination->model.at[0];
    const bool finds = finds_rows(self, ticket, &rows);
    for (uint32_t i = 0; i < rows * SMALL_FEATURES; i++)
        ups[i] = number_at(ls->oracle->tickets[ticket].bytes + (2 * i + 1) * sizeof(float));
    begin(self);
    ls_group_poison(ls, destination, 0x77);
    destination->model.at[0] = ORACLE_NOWHERE; /* it is read in its pages */
    ls_restore_as(ls, ticket, destination, (pst_restore_pages)pages, PST_TAIL_UNTOUCHED,
                  PST_FAILED_ZERO);
    destination->model.at[0] = at;
    ls->calls = NULL;
    for (uint32_t i = 0; i < SMALL_ROWS * SMALL_FEATURES; i++) {
        const uint32_t row = i / SMALL_FEATURES, c = i % SMALL_FEATURES;
        const float gradient = self->operands->gradient[row][c];
        const float *found = &self->operands->input_gradient[row][2 * (size_t)c];
        const float behind = finds ? NOBODYS : 0;
        compare_number(ls, found[0], row < rows ? gradient * ups[i] : behind, "gate's gradient", i);
        compare_number(ls, found[1], row < rows ? gradient * GATE : behind, "up's gradient", i);
    }
}
