/* What layer.h says. */
#include "tests/host/linear/layer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/host/linear/matrices.h"

/* ---- tensors ---- */

layer_tensor tensor_make(uint64_t rows, uint64_t columns, pst_dtype dtype)
{
    const uint64_t bytes = rows * columns * dtype_bytes(dtype);
    layer_tensor made = {.rows = rows, .columns = columns, .dtype = dtype};
    made.base = test_memory(bytes);
    memset(made.base, 0xff, bytes);
    return made;
}

void tensor_free(layer_tensor *tensor)
{
    test_memory_free(tensor->base);
}

static uint64_t bytes_of(const layer_tensor *tensor)
{
    return tensor->rows * tensor->columns * dtype_bytes(tensor->dtype);
}

double tensor_get(const layer_tensor *tensor, uint64_t row, uint64_t column)
{
    return element_get(tensor->base, row * tensor->columns + column, tensor->dtype);
}

layer_tensor tensor_copy(const layer_tensor *tensor)
{
    layer_tensor made = tensor_make(tensor->rows, tensor->columns, tensor->dtype);
    memcpy(made.base, tensor->base, bytes_of(tensor));
    return made;
}

bool tensor_is(const layer_tensor *tensor, const layer_tensor *wanted)
{
    return memcmp(tensor->base, wanted->base, bytes_of(wanted)) == 0;
}

bool tensor_is_near(const layer_tensor *tensor, const layer_tensor *wanted, double share)
{
    double largest = 0, distance = 0;
    const unsigned char *at = tensor->base, *of = wanted->base;
    const uint64_t size = dtype_bytes(wanted->dtype), count = wanted->rows * wanted->columns;
    for (uint64_t i = 0; i < count; i++) {
        const double is = element_get(at, i, wanted->dtype);
        const double must_be = element_get(of, i, wanted->dtype);
        if (memcmp(at + i * size, of + i * size, size) != 0 && (isnan(is) || isnan(must_be)))
            return false;
        largest = fmax(largest, fabs(must_be)); /* NaN is passed over */
        distance = fmax(distance, fabs(is - must_be));
    }
    return distance <= share * largest;
}

layer_tensor tensor_draw(uint64_t rows, uint64_t columns, pst_dtype dtype, uint64_t seed)
{
    layer_tensor made = tensor_make(rows, columns, dtype);
    elements_draw(made.base, rows * columns, dtype, &seed);
    return made;
}

/* A part of a tensor. */
static layer_tensor cut(const layer_tensor *from, uint64_t row, uint64_t rows, uint64_t column,
                        uint64_t columns)
{
    layer_tensor made = tensor_make(rows, columns, from->dtype);
    const uint64_t size = dtype_bytes(from->dtype);
    for (uint64_t i = 0; i < rows; i++)
        memcpy((char *)made.base + i * columns * size,
               (const char *)from->base + ((row + i) * from->columns + column) * size,
               columns * size);
    return made;
}

/* ---- plain products ---- */

static pst_matrix matrix_of(const layer_tensor *tensor, uint64_t row, bool is_transposed)
{
    const uint64_t stride = tensor->columns * dtype_bytes(tensor->dtype);
    return (pst_matrix){.base = (char *)tensor->base + row * stride,
                        .row_stride = stride,
                        .dtype = tensor->dtype,
                        .is_transposed = is_transposed};
}

static void multiply(const layer *self, pst_matrix a, pst_matrix b, bool adds, pst_matrix d,
                     uint64_t m, uint64_t n, uint64_t k)
{
    pst_product product = PST_PRODUCT_INIT;
    product.a = a;
    product.b = b;
    product.d = d;
    if (adds)
        product.c = d;
    product.m = m;
    product.n = n;
    product.k = k;
    CHECK_OK(pst_product_run(self->device, &product, NULL));
}

/* Rank r's part of a weight. */
static layer_tensor weight_of(const layer *self, int r)
{
    const layer_form *form = &self->form;
    const uint64_t ranks = (uint64_t)form->num_ranks, rank = (uint64_t)r;
    if (form->kind == PST_LINEAR_COLUMN)
        return cut(&self->all_weight, rank * form->out / ranks, form->out / ranks, 0, form->in);
    return cut(&self->all_weight, 0, form->out, rank * form->in / ranks, form->in / ranks);
}

/* Rank r's columns of what is whole in the rows: COLUMN's output, ROW's input. */
static layer_tensor columns_of(const layer *self, const layer_tensor *all, int r)
{
    const uint64_t columns = all->columns / (uint64_t)self->form.num_ranks;
    return cut(all, 0, all->rows, (uint64_t)r * columns, columns);
}

/* The sum over ranks in their order, in float32, rounded once; `rows` from `row` of it. */
static void add_ranks(const layer_tensor *parts, int num_ranks, uint64_t row, layer_tensor *to)
{
    for (uint64_t i = 0; i < to->rows * to->columns; i++) {
        const uint64_t at = row * to->columns + i;
        float sum = (float)element_get(parts[0].base, at, parts[0].dtype);
        for (int r = 1; r < num_ranks; r++)
            sum += (float)element_get(parts[r].base, at, parts[r].dtype);
        element_set(to->base, i, to->dtype, sum);
    }
}

/* Of one rank, the whole product of which the results are parts or sums. */
static layer_tensor whole_product(const layer *self, int r, bool is_backward, uint64_t tokens)
{
    const layer_form *form = &self->form;
    layer_tensor weight = weight_of(self, r);
    layer_tensor from = columns_of(self, is_backward ? &self->all_gradient : &self->all_input, r);
    layer_tensor made =
        tensor_make(from.rows, is_backward ? weight.columns : weight.rows, form->dtype);
    for (uint64_t row = 0; row < from.rows; row += tokens)
        multiply(self, matrix_of(&from, row, false), matrix_of(&weight, 0, !is_backward), false,
                 matrix_of(&made, row, false), tokens, made.columns, from.columns);
    tensor_free(&weight);
    tensor_free(&from);
    return made;
}

static void want_sum(const layer *self, bool is_backward, layer_tensor *to)
{
    layer_tensor parts[SCENE_RANKS] = {{.base = NULL}};
    const int num_ranks = self->form.num_ranks;
    for (int r = 0; r < num_ranks; r++)
        parts[r] = whole_product(self, r, is_backward, self->all_input.rows);
    add_ranks(parts, num_ranks, self->form.sequence_parallel ? (uint64_t)self->rank * to->rows : 0,
              to);
    for (int r = 0; r < num_ranks; r++)
        tensor_free(&parts[r]);
}

/* The ring: the chunk of rank r begins with rank r + 1 and ends with r, half after half. */
static void want_ring(const layer *self, layer_tensor *to)
{
    const layer_form *form = &self->form;
    const uint64_t tokens = form->tokens, first = (tokens + 1) / 2;
    for (int i = 1; i <= form->num_ranks; i++) {
        const int r = (self->rank + i) % form->num_ranks;
        layer_tensor weight = weight_of(self, r), input = columns_of(self, &self->all_input, r);
        const uint64_t row = (uint64_t)self->rank * tokens;
        multiply(self, matrix_of(&input, row, false), matrix_of(&weight, 0, true), i > 1,
                 matrix_of(to, 0, false), first, form->out, input.columns);
        if (tokens > first)
            multiply(self, matrix_of(&input, row + first, false), matrix_of(&weight, 0, true),
                     i > 1, matrix_of(to, first, false), tokens - first, form->out, input.columns);
        tensor_free(&weight);
        tensor_free(&input);
    }
}

/* Products of this rank with what all ranks have: in pieces where the layer's are. */
static void want_products(const layer *self, const layer_tensor *from, bool is_backward,
                          bool in_pieces, layer_tensor *to)
{
    const uint64_t tokens = in_pieces ? self->form.tokens : from->rows;
    for (uint64_t row = 0; row < from->rows; row += tokens)
        multiply(self, matrix_of(from, row, false), matrix_of(&self->weight, 0, !is_backward),
                 false, matrix_of(to, row, false), tokens, to->columns, from->columns);
}

static void want_weight(layer *self, const layer_tensor *gradient, const layer_tensor *input)
{
    layer_tensor *to = &self->wanted_weight;
    uint64_t seed = 9;
    elements_draw(to->base, to->rows * to->columns, to->dtype, &seed);
    multiply(self, matrix_of(gradient, 0, true), matrix_of(input, 0, false), self->form.accumulates,
             matrix_of(to, 0, false), to->rows, to->columns, input->rows);
}

static void want_column(layer *self)
{
    const bool gathers = self->form.sequence_parallel && self->form.num_ranks > 1;
    want_products(self, &self->all_input, false, gathers && self->form.pieces == 0, &self->wanted);
    want_sum(self, true, &self->wanted_input);
    want_weight(self, &self->output_gradient, &self->all_input);
}

static void want_row(layer *self)
{
    const bool gathers = self->form.sequence_parallel && self->form.num_ranks > 1;
    if (gathers && self->form.pieces == 0)
        want_ring(self, &self->wanted);
    else
        want_sum(self, false, &self->wanted);
    want_products(self, &self->all_gradient, true, gathers && self->form.pieces == 0,
                  &self->wanted_input);
    want_weight(self, &self->all_gradient, &self->input);
}

/* ---- the layer ---- */

static layer_tensor same(const layer_tensor *as)
{
    return tensor_make(as->rows, as->columns, as->dtype);
}

/* The share of a rank: some rows of it, or all. */
static layer_tensor rows_of(const layer *self, const layer_tensor *all)
{
    const uint64_t tokens = self->form.tokens;
    if (!self->form.sequence_parallel)
        return cut(all, 0, all->rows, 0, all->columns);
    return cut(all, (uint64_t)self->rank * tokens, tokens, 0, all->columns);
}

void layer_open(layer *self, const layer_form *form, int rank, pst_device *device)
{
    const uint64_t all = form->tokens * (uint64_t)form->num_ranks;
    const bool is_column = form->kind == PST_LINEAR_COLUMN;
    *self = (layer){.form = *form, .rank = rank, .device = device};
    self->all_input = tensor_draw(all, form->in, form->dtype, 1);
    self->all_weight = tensor_draw(form->out, form->in, form->dtype, 2);
    self->all_gradient = tensor_draw(all, form->out, form->dtype, 3);
    self->weight = weight_of(self, rank);
    self->input =
        is_column ? rows_of(self, &self->all_input) : columns_of(self, &self->all_input, rank);
    self->output_gradient = is_column ? columns_of(self, &self->all_gradient, rank)
                                      : rows_of(self, &self->all_gradient);
    self->output = same(&self->output_gradient);
    self->input_gradient = same(&self->input);
    self->weight_gradient = tensor_make(self->weight.rows, self->weight.columns, form->of_gradient);
    self->gathered = same(&self->all_input);
    self->wanted = same(&self->output);
    self->wanted_input = same(&self->input);
    self->wanted_weight = same(&self->weight_gradient);
    if (is_column)
        want_column(self);
    else
        want_row(self);
    layer_clear(self);
}

void layer_close(layer *self)
{
    layer_tensor *const all[] = {&self->all_input,    &self->all_weight,     &self->all_gradient,
                                 &self->input,        &self->weight,         &self->output_gradient,
                                 &self->output,       &self->input_gradient, &self->weight_gradient,
                                 &self->gathered,     &self->wanted,         &self->wanted_input,
                                 &self->wanted_weight};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        tensor_free(all[i]);
}

pst_linear_config layer_config(const layer *self, pst_comm *comm, pst_scratch *scratch)
{
    const layer_form *form = &self->form;
    pst_linear_config config = PST_LINEAR_CONFIG_INIT;
    config.kind = form->kind;
    config.dtype = form->dtype;
    config.weight_gradient_dtype = form->of_gradient;
    config.pieces = form->pieces;
    config.sequence_parallel = form->sequence_parallel;
    config.tokens = form->tokens * (uint64_t)form->num_ranks;
    config.in_features = form->in;
    config.out_features = form->out;
    config.comm = comm;
    config.scratch = scratch;
    return config;
}

pst_linear_operands layer_operands(const layer *self)
{
    pst_linear_operands operands = PST_LINEAR_OPERANDS_INIT;
    operands.input = self->input.base;
    operands.weight = self->weight.base;
    operands.output = self->output.base;
    operands.output_gradient = self->output_gradient.base;
    operands.input_gradient = self->input_gradient.base;
    operands.weight_gradient = self->weight_gradient.base;
    operands.accumulates = self->form.accumulates;
    return operands;
}

void layer_clear(layer *self)
{
    uint64_t seed = 9;
    memset(self->output.base, 0xff, bytes_of(&self->output));
    memset(self->input_gradient.base, 0xff, bytes_of(&self->input_gradient));
    elements_draw(self->weight_gradient.base, self->weight.rows * self->weight.columns,
                  self->form.of_gradient, &seed);
}

/* ---- against double ---- */

typedef struct factors {
    const layer_tensor *a, *b;
    bool a_transposed, b_transposed;
    uint64_t row, column; /* where the result's first element is */
    const layer_tensor *found;
    int roundings;
} factors;

static double factor(const layer_tensor *of, bool is_transposed, uint64_t i, uint64_t j)
{
    return is_transposed ? tensor_get(of, j, i) : tensor_get(of, i, j);
}

static bool element_is_near(const factors *of, uint64_t i, uint64_t j, double before)
{
    const uint64_t k = of->a_transposed ? of->a->rows : of->a->columns;
    double sum = before, size = fabs(before);
    for (uint64_t q = 0; q < k; q++) {
        const double term = factor(of->a, of->a_transposed, of->row + i, q) *
                            factor(of->b, of->b_transposed, q, of->column + j);
        sum += term;
        size += fabs(term);
    }
    const double found = tensor_get(of->found, i, j);
    const double bound = size * ((double)(k + 9) * dtype_error(PST_DTYPE_FP32) +
                                 of->roundings * dtype_error(of->found->dtype));
    if (fabs(found - sum) <= bound)
        return true;
    printf("(%d, %d): %.9g, not %.9g within %.3g\n", (int)i, (int)j, found, sum, bound);
    return false;
}

static bool is_near(const factors *of, bool accumulates)
{
    uint64_t seed = 9;
    layer_tensor before = same(of->found);
    bool near = true;
    elements_draw(before.base, before.rows * before.columns, before.dtype, &seed);
    for (uint64_t i = 0; near && i < of->found->rows; i++)
        for (uint64_t j = 0; near && j < of->found->columns; j++)
            near = element_is_near(of, i, j, accumulates ? tensor_get(&before, i, j) : 0);
    tensor_free(&before);
    return near;
}

bool layer_is_near(const layer *self)
{
    const layer_form *form = &self->form;
    const bool is_column = form->kind == PST_LINEAR_COLUMN;
    const uint64_t rank = (uint64_t)self->rank;
    const uint64_t row = form->sequence_parallel ? rank * form->tokens : 0;
    const uint64_t in = is_column ? 0 : rank * self->input.columns;
    const uint64_t out = is_column ? rank * self->output.columns : 0;
    const int roundings = form->num_ranks + 1;
    const factors forward = {
        &self->all_input, &self->all_weight, false, true, is_column ? 0 : row, out,
        &self->output,    roundings};
    const factors back = {
        &self->all_gradient,   &self->all_weight, false, false, is_column ? row : 0, in,
        &self->input_gradient, roundings};
    const factors of_weight = {
        &self->all_gradient, &self->all_input, true, false, out, in, &self->weight_gradient, 1};
    return is_near(&forward, false) && is_near(&back, false) &&
           is_near(&of_weight, form->accumulates);
}
