/* How a model's matrices are multiplied: by linears and blocks, or by products and exchanges in the
 * same pieces and order. */
#include <stdlib.h>
#include <string.h>

#include "tests/host/linear/llama_model.h"

static bool has_linears(const llama_model *self)
{
    return self->form.way == LLAMA_KEPT || self->form.way == LLAMA_RECOMPUTED;
}

bool llama_keeps(const llama_model *self)
{
    return self->form.way == LLAMA_KEPT || self->form.way == LLAMA_PLAIN;
}

bool llama_has_pages(const llama_model *self)
{
    return self->form.way == LLAMA_RECOMPUTED;
}

/* ---- what a way has ---- */

static void set_configs(llama_model *self)
{
    const llama_form *form = &self->form;
    const struct {
        pst_linear_kind kind;
        uint64_t in, out;
    } shapes[NUM_MATRICES] = {
        [UP] = {PST_LINEAR_COLUMN, form->hidden, 2 * form->ffn},
        [QKV] = {PST_LINEAR_COLUMN, form->hidden, 3 * form->hidden},
        [OUTPUT] = {PST_LINEAR_COLUMN, form->hidden, form->vocab},
        [PROJ] = {PST_LINEAR_ROW, form->hidden, form->hidden},
        [DOWN] = {PST_LINEAR_ROW, form->ffn, form->hidden},
    };
    for (int i = 0; i < NUM_MATRICES; i++) {
        pst_linear_config config = PST_LINEAR_CONFIG_INIT;
        config.kind = shapes[i].kind;
        config.dtype = config.weight_gradient_dtype = PST_DTYPE_FP32;
        config.pieces = form->pieces;
        config.sequence_parallel = true;
        config.tokens = form->tokens;
        config.in_features = shapes[i].in;
        config.out_features = shapes[i].out;
        config.comm = self->rank->comm;
        config.scratch = self->scratch;
        self->configs[i] = config;
    }
}

/* The hidden tensor of a layer. */
static void make_group(llama_model *self)
{
    const pst_row_space space = {.kind = PST_ROWS_PREFIX,
                                 .count_type = PST_COUNT_HOST,
                                 .capacity = (int64_t)self->form.tokens};
    const pst_tensor tensor = {.row_bytes = 8 * self->form.ffn / self->num_ranks,
                               .written_by = PST_WRITTEN_BY_GLU};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = &tensor;
    config.num_tensors = 1;
    OK(pst_group_create(&config, &self->group));
}

static void make_pool(llama_model *self)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = PST_PAGE_BYTES_MIN;
    config.num_pages = config.max_tickets = (uint32_t)self->form.layers;
    OK(pst_pool_bytes(&config, &self->result->pool_bytes));
    OK(pst_pool_create(self->rank->device, &config, &self->pool));
    self->tickets = calloc(self->form.layers, sizeof(*self->tickets));
    for (uint64_t i = 0; i < self->form.layers; i++)
        OK(pst_ticket_create(self->pool, self->group, &self->tickets[i]));
}

void llama_open_way(llama_model *self)
{
    pst_mlp_config config = PST_MLP_CONFIG_INIT;
    self->glu = (pst_glu)PST_GLU_INIT;
    self->glu.dtype = PST_GLU_FP32;
    make_group(self);
    if (has_linears(self) || self->form.way == LLAMA_ALIASED)
        OK(pst_scratch_create(self->rank->device, NULL, &self->scratch));
    set_configs(self);
    if (!has_linears(self))
        return;
    config.up = &self->configs[UP];
    config.down = &self->configs[DOWN];
    config.glu = &self->glu;
    OK(pst_mlp_create(&config, &self->mlp));
    for (int i = QKV; i <= PROJ; i++)
        OK(pst_linear_create(&self->configs[i], &self->linears[i]));
    if (llama_has_pages(self))
        make_pool(self);
}

void llama_close_way(llama_model *self)
{
    for (int i = QKV; i <= PROJ; i++)
        OK(pst_linear_destroy(self->linears[i]));
    OK(pst_mlp_destroy(self->mlp));
    for (uint64_t i = 0; i < self->form.layers && self->tickets; i++)
        OK(pst_ticket_destroy(self->tickets[i]));
    free(self->tickets);
    OK(pst_pool_destroy(self->pool));
    OK(pst_group_destroy(self->group));
    if (self->scratch)
        OK(pst_scratch_get_info(self->scratch, &self->result->scratch));
    OK(pst_scratch_destroy(self->scratch));
}

/* ---- plain products ---- */

static pst_matrix packed(const float *base, uint64_t columns, bool is_transposed)
{
    return (pst_matrix){.base = (void *)(uintptr_t)base,
                        .row_stride = columns * sizeof(float),
                        .dtype = PST_DTYPE_FP32,
                        .is_transposed = is_transposed};
}

typedef struct sizes {
    uint64_t m, n, k;
} sizes;

/* d = a * b + c, where a and b lie as they are or as their transposes. */
static void product(llama_model *self, sizes of, pst_matrix a, pst_matrix b, const float *c,
                    float *d)
{
    pst_product product = PST_PRODUCT_INIT;
    product.m = of.m;
    product.n = of.n;
    product.k = of.k;
    product.a = a;
    product.b = b;
    if (c)
        product.c = packed(c, of.n, false);
    product.d = packed(d, of.n, false);
    OK(pst_product_run(self->rank->device, &product, self->rank->stream));
}

/* Of this rank's weight. */
static sizes sizes_of(const llama_model *self, llama_matrix matrix)
{
    const pst_linear_config *config = &self->configs[matrix];
    const bool is_column = config->kind == PST_LINEAR_COLUMN;
    return (sizes){.m = self->form.tokens,
                   .n = config->out_features / (is_column ? self->num_ranks : 1),
                   .k = config->in_features / (is_column ? 1 : self->num_ranks)};
}

/* output rows = input rows * weight^T + c */
static void forward_rows(llama_model *self, llama_matrix matrix, const float *input,
                         const float *weight, const float *c, float *output, uint64_t rows)
{
    sizes of = sizes_of(self, matrix);
    of.m = rows;
    product(self, of, packed(input, of.k, false), packed(weight, of.k, true), c, output);
}

static void backward_rows(llama_model *self, llama_matrix matrix, const float *gradient,
                          const float *weight, float *input_gradient, uint64_t rows)
{
    const sizes of = sizes_of(self, matrix);
    product(self, (sizes){rows, of.k, of.n}, packed(gradient, of.n, false),
            packed(weight, of.k, false), NULL, input_gradient);
}

static void backward_weight(llama_model *self, llama_matrix matrix, const float *gradient,
                            const float *input, float *weight_gradient)
{
    const sizes of = sizes_of(self, matrix);
    product(self, (sizes){of.n, of.k, of.m}, packed(gradient, of.n, true),
            packed(input, of.k, false), weight_gradient, weight_gradient);
}

static uint64_t rows_of_piece(const llama_model *self)
{
    return self->form.pieces == 0 ? self->local : self->form.tokens;
}

/* ---- plain column ---- */

static void gather_and_multiply(llama_model *self, llama_matrix matrix, const llama_call *call,
                                float *gathered)
{
    const sizes of = sizes_of(self, matrix);
    const uint64_t rows = rows_of_piece(self);
    llama_exchange(self, PST_EXCHANGE_ALL_GATHER, call->input, gathered, self->local * of.k);
    for (uint64_t row = 0; row < of.m; row += rows)
        forward_rows(self, matrix, gathered + row * of.k, call->weight, NULL,
                     call->output + row * of.n, rows);
}

/* Remembers where its lease was. */
static void aliased_column(llama_model *self, llama_matrix matrix, const llama_call *call)
{
    const uint64_t bytes = self->form.tokens * self->form.hidden * sizeof(float);
    pst_lease lease;
    OK(pst_scratch_lease(self->scratch, "allgather", bytes, "forward", self->rank->stream, &lease));
    self->recycled = lease.address;
    gather_and_multiply(self, matrix, call, lease.address);
    OK(pst_scratch_release(self->scratch, &lease, "forward", self->rank->stream));
}

static void plain_column(llama_model *self, llama_matrix matrix, const llama_call *call)
{
    const uint64_t count = self->form.tokens * self->form.hidden;
    if (self->form.way == LLAMA_ALIASED) {
        aliased_column(self, matrix, call);
        return;
    }
    float *own = call->gathered ? NULL : llama_take(self, TRANSIENT, count);
    gather_and_multiply(self, matrix, call, own ? own : call->gathered);
    llama_give(self, TRANSIENT, own, count);
}

static void plain_column_back(llama_model *self, llama_matrix matrix, const llama_call *call)
{
    const sizes of = sizes_of(self, matrix);
    const uint64_t count = self->form.tokens * of.k;
    float *own = NULL, *gathered = self->recycled ? self->recycled : call->gathered;
    float *sums = llama_take(self, TRANSIENT, count);
    if (!gathered) {
        gathered = own = llama_take(self, TRANSIENT, count);
        llama_exchange(self, PST_EXCHANGE_ALL_GATHER, call->input, gathered, self->local * of.k);
    }
    backward_rows(self, matrix, call->output_gradient, call->weight, sums, of.m);
    llama_exchange(self, PST_EXCHANGE_REDUCE_SCATTER, sums, call->input_gradient,
                   self->local * of.k);
    backward_weight(self, matrix, call->output_gradient, gathered, call->weight_gradient);
    llama_give(self, TRANSIENT, own, count);
    llama_give(self, TRANSIENT, sums, count);
}

/* ---- plain row ---- */

/* What a neighbour has summed is C of this rank's product, which goes on; in two halves, as the ring of
 * a row linear has them. */
static void plain_ring(llama_model *self, llama_matrix matrix, const llama_call *call)
{
    const sizes of = sizes_of(self, matrix);
    const uint64_t num_ranks = self->num_ranks, begin[] = {0, self->local - self->local / 2};
    const uint64_t rows[] = {begin[1], self->local / 2}, count = self->local * of.n;
    float *come = llama_take(self, TRANSIENT, count), *sum = llama_take(self, TRANSIENT, count);
    for (uint64_t i = 0; i < num_ranks; i++) {
        const uint64_t chunk = ((uint64_t)self->rank->rank + 2 * num_ranks - 1 - i) % num_ranks;
        const bool is_last = i + 1 == num_ranks;
        for (int half = 0; half < 2; half++) {
            const uint64_t at = begin[half] * of.n;
            forward_rows(self, matrix, call->input + (chunk * self->local + begin[half]) * of.k,
                         call->weight, i > 0 ? come + at : NULL,
                         (is_last ? call->output : sum) + at, rows[half]);
        }
        if (!is_last)
            llama_exchange(self, PST_EXCHANGE_SHIFT, sum, come, count);
    }
    llama_give(self, TRANSIENT, come, count);
    llama_give(self, TRANSIENT, sum, count);
}

static void plain_row(llama_model *self, llama_matrix matrix, const llama_call *call)
{
    const sizes of = sizes_of(self, matrix);
    if (self->form.pieces == 0) {
        plain_ring(self, matrix, call);
        return;
    }
    float *sums = llama_take(self, TRANSIENT, of.m * of.n);
    forward_rows(self, matrix, call->input, call->weight, NULL, sums, of.m);
    llama_exchange(self, PST_EXCHANGE_REDUCE_SCATTER, sums, call->output, self->local * of.n);
    llama_give(self, TRANSIENT, sums, of.m * of.n);
}

static void plain_row_back(llama_model *self, llama_matrix matrix, const llama_call *call)
{
    const sizes of = sizes_of(self, matrix);
    const uint64_t rows = rows_of_piece(self);
    float *gathered = llama_take(self, TRANSIENT, of.m * of.n);
    llama_exchange(self, PST_EXCHANGE_ALL_GATHER, call->output_gradient, gathered,
                   self->local * of.n);
    for (uint64_t row = 0; row < of.m; row += rows)
        backward_rows(self, matrix, gathered + row * of.n, call->weight,
                      call->input_gradient + row * of.k, rows);
    backward_weight(self, matrix, gathered, call->input, call->weight_gradient);
    llama_give(self, TRANSIENT, gathered, of.m * of.n);
}

/* ---- each way ---- */

static pst_linear_operands operands_of(const llama_call *call)
{
    pst_linear_operands operands = PST_LINEAR_OPERANDS_INIT;
    operands.input = call->input;
    operands.weight = call->weight;
    operands.output = call->output;
    operands.gathered = call->gathered;
    operands.output_gradient = call->output_gradient;
    operands.input_gradient = call->input_gradient;
    operands.weight_gradient = call->weight_gradient;
    operands.accumulates = true;
    return operands;
}

void llama_multiply(llama_model *self, llama_matrix matrix, const llama_call *call)
{
    const pst_linear_operands operands = operands_of(call);
    if (self->linears[matrix])
        OK(pst_linear_forward(self->linears[matrix], &operands, self->rank->stream));
    else if (self->configs[matrix].kind == PST_LINEAR_COLUMN)
        plain_column(self, matrix, call);
    else
        plain_row(self, matrix, call);
}

void llama_multiply_back(llama_model *self, llama_matrix matrix, const llama_call *call)
{
    const pst_linear_operands operands = operands_of(call);
    if (self->linears[matrix])
        OK(pst_linear_backward(self->linears[matrix], &operands, self->rank->stream));
    else if (self->configs[matrix].kind == PST_LINEAR_COLUMN)
        plain_column_back(self, matrix, call);
    else
        plain_row_back(self, matrix, call);
}

/* ---- the block ---- */

/* A gated activation of a tensor in memory. */
static void plain_glu(llama_model *self, float *hidden, float *activation, const float *gradient,
                      float *hidden_gradient)
{
    const pst_ticket none = {0};
    const int64_t count = (int64_t)self->form.tokens;
    const void *const counts[] = {&count};
    void *const bases[] = {hidden};
    pst_buffers buffers = PST_BUFFERS_INIT;
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    buffers.bases = bases;
    buffers.counts = counts;
    operands.output.base = activation;
    operands.gradient.base = (void *)(uintptr_t)gradient;
    operands.input_gradient.base = hidden_gradient;
    if (gradient)
        OK(pst_glu_backward(self->rank->device, &self->glu, none, self->group, &buffers, &operands,
                            NULL, self->rank->stream));
    else
        OK(pst_glu_forward(self->rank->device, &self->glu, none, self->group, &buffers, &operands,
                           NULL, self->rank->stream));
}

static void plain_mlp(llama_model *self, const llama_mlp_call *call)
{
    const uint64_t count = self->form.tokens * self->form.ffn / self->num_ranks;
    float *activation = llama_take(self, TRANSIENT, count);
    llama_multiply(self, UP,
                   &(llama_call){.input = call->input,
                                 .weight = call->up,
                                 .output = call->hidden,
                                 .gathered = call->gathered});
    plain_glu(self, call->hidden, activation, NULL, NULL);
    llama_multiply(
        self, DOWN,
        &(llama_call){.input = activation, .weight = call->down, .output = call->output});
    llama_give(self, TRANSIENT, activation, count);
}

static void plain_mlp_back(llama_model *self, const llama_mlp_call *call)
{
    const uint64_t count = self->form.tokens * self->form.ffn / self->num_ranks;
    const sizes of = sizes_of(self, DOWN);
    const uint64_t rows = rows_of_piece(self);
    float *activation = llama_take(self, TRANSIENT, count);
    float *gradient = llama_take(self, TRANSIENT, count);
    float *hidden_gradient = llama_take(self, TRANSIENT, 2 * count);
    float *gathered = llama_take(self, TRANSIENT, of.m * of.n);
    llama_exchange(self, PST_EXCHANGE_ALL_GATHER, call->output_gradient, gathered,
                   self->local * of.n);
    for (uint64_t row = 0; row < of.m; row += rows)
        backward_rows(self, DOWN, gathered + row * of.n, call->down, gradient + row * of.k, rows);
    plain_glu(self, call->hidden, activation, gradient, hidden_gradient);
    backward_weight(self, DOWN, gathered, activation, call->down_gradient);
    llama_give(self, TRANSIENT, gathered, of.m * of.n);
    llama_give(self, TRANSIENT, gradient, count);
    llama_give(self, TRANSIENT, activation, count);
    llama_multiply_back(self, UP,
                        &(llama_call){.input = call->input,
                                      .weight = call->up,
                                      .gathered = call->gathered,
                                      .output_gradient = hidden_gradient,
                                      .input_gradient = call->input_gradient,
                                      .weight_gradient = call->up_gradient});
    llama_give(self, TRANSIENT, hidden_gradient, 2 * count);
}

static pst_mlp_operands mlp_operands(const llama_mlp_call *call)
{
    pst_mlp_operands operands = PST_MLP_OPERANDS_INIT;
    operands.input = call->input;
    operands.up_weight = call->up;
    operands.down_weight = call->down;
    operands.output = call->output;
    operands.gathered = call->gathered;
    operands.hidden = call->hidden;
    operands.output_gradient = call->output_gradient;
    operands.input_gradient = call->input_gradient;
    operands.up_weight_gradient = call->up_gradient;
    operands.down_weight_gradient = call->down_gradient;
    operands.accumulates = true;
    return operands;
}

/* By the block; with a ticket where hidden is NULL. */
static void block(llama_model *self, const llama_mlp_call *call)
{
    pst_mlp_operands operands = mlp_operands(call);
    const int64_t count = (int64_t)self->form.tokens;
    const void *const counts[] = {&count};
    void *const bases[] = {NULL};
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = bases;
    buffers.counts = counts;
    if (!call->hidden) {
        operands.ticket = self->tickets[call->layer];
        operands.group = self->group;
        operands.buffers = &buffers;
    }
    if (call->output_gradient)
        OK(pst_mlp_backward(self->mlp, &operands, self->rank->stream));
    else
        OK(pst_mlp_forward(self->mlp, &operands, self->rank->stream));
}

void llama_mlp(llama_model *self, const llama_mlp_call *call)
{
    if (self->mlp)
        block(self, call);
    else
        plain_mlp(self, call);
}

void llama_mlp_back(llama_model *self, const llama_mlp_call *call)
{
    if (self->mlp)
        block(self, call);
    else
        plain_mlp_back(self, call);
}
