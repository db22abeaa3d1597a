/* What linear_rank.h says. */
#include "bench/stash/linear_rank.h"

#include <errno.h>
#include <math.h>
#include <time.h>

#define CUDA_WORKSPACE (UINT64_C(32) << 20) /* what cuBLAS advises on an H100 */

/* ---- what a rank has ---- */

static int take(linear_rank *self, uint64_t num_elements, void **address_out)
{
    TOOL_PST(pst_device_alloc(self->device, num_elements * self->size, address_out));
    self->memory[self->num_matrices++] = *address_out;
    return tool_status(
        pst_device_fill(self->device, *address_out, 0, num_elements * self->size, self->stream));
}

/* A paced product: waits. */
static pst_status wait_for_product(void *user, pst_device *device, const pst_product *product,
                                   pst_stream stream)
{
    const linear_rank *self = user;
    const double terms = (double)product->m * (double)product->n * (double)product->k;
    const double seconds = terms * self->all->seconds_per_term;
    struct timespec end;
    (void)device;
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double nanoseconds = (double)end.tv_nsec + (seconds - floor(seconds)) * 1e9;
    end.tv_sec += (time_t)floor(seconds) + (nanoseconds >= 1e9);
    end.tv_nsec = (long)(nanoseconds >= 1e9 ? nanoseconds - 1e9 : nanoseconds);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        continue;
    return PST_OK;
}

static int make_linears(linear_rank *self)
{
    const linear_shared *all = self->all;
    for (uint32_t pieces = 0; pieces < 2 && all->has_products; pieces++) {
        pst_linear_config config = PST_LINEAR_CONFIG_INIT;
        config.kind = all->form->kind;
        config.dtype = config.weight_gradient_dtype = all->form->dtype;
        config.pieces = pieces;
        config.sequence_parallel = true;
        config.tokens = all->tokens;
        config.in_features = all->in;
        config.out_features = all->out;
        config.comm = self->comm;
        config.scratch = self->scratch;
        config.workspace_bytes = self->workspace_bytes;
        config.product = all->is_paced ? wait_for_product : NULL;
        config.product_user = self;
        TOOL_PST(pst_linear_create(&config, &self->linears[pieces]));
    }
    return TOOL_OK;
}

static int make_matrices(linear_rank *self)
{
    const linear_shared *all = self->all;
    const bool is_column = all->form->kind == PST_LINEAR_COLUMN;
    const uint64_t local = all->tokens / (uint64_t)all->num_ranks;
    const uint64_t inputs = (is_column ? local : all->tokens) * self->columns;
    const uint64_t outputs = (is_column ? all->tokens : local) * self->rows;
    void *input, *weight, *input_gradient, *weight_gradient;
    pst_linear_operands *operands = &self->operands;
    TOOL_TRY(take(self, inputs, &input));
    TOOL_TRY(take(self, self->rows * self->columns, &weight));
    TOOL_TRY(take(self, outputs, &operands->output));
    TOOL_TRY(take(self, inputs, &input_gradient));
    TOOL_TRY(take(self, self->rows * self->columns, &weight_gradient));
    TOOL_TRY(take(self, all->tokens * self->wide, &self->whole));
    TOOL_TRY(take(self, local * self->wide, &self->part));
    if (self->workspace_bytes > 0)
        TOOL_TRY(take(self, self->workspace_bytes / self->size, &self->workspace));
    operands->input = input;
    operands->weight = weight;
    operands->output_gradient = operands->output; /* backward reads it, forward writes it */
    operands->input_gradient = input_gradient;
    operands->weight_gradient = weight_gradient;
    return TOOL_OK;
}

int bench_linear_open(linear_rank *self)
{
    const linear_shared *all = self->all;
    const bool is_column = all->form->kind == PST_LINEAR_COLUMN;
    pst_device_info info;
    pst_comm_config config = PST_COMM_CONFIG_INIT;
    config.id = all->id;
    config.num_ranks = all->num_ranks;
    config.rank = self->number;
    self->operands = (pst_linear_operands)PST_LINEAR_OPERANDS_INIT;
    TOOL_PST(pst_device_get_info(self->device, &info));
    self->workspace_bytes = info.kind == PST_DEVICE_CUDA ? CUDA_WORKSPACE : 0;
    self->size = all->form->dtype == PST_DTYPE_FP32 ? 4 : 2;
    self->rows = all->out / (uint64_t)(is_column ? all->num_ranks : 1);
    self->columns = all->in / (uint64_t)(is_column ? 1 : all->num_ranks);
    self->wide = is_column ? all->in : all->out;
    TOOL_PST(pst_stream_create(self->device, &self->stream));
    TOOL_PST(pst_comm_create(self->device, &config, &self->comm));
    TOOL_PST(pst_scratch_create(self->device, NULL, &self->scratch));
    TOOL_TRY(make_linears(self));
    return make_matrices(self);
}

int bench_linear_close(linear_rank *self)
{
    for (int i = 0; i < 2; i++)
        TOOL_PST(pst_linear_destroy(self->linears[i]));
    TOOL_PST(pst_scratch_destroy(self->scratch));
    TOOL_PST(pst_comm_destroy(self->comm));
    for (int i = 0; i < self->num_matrices; i++)
        TOOL_PST(pst_device_free(self->device, self->memory[i]));
    return tool_status(pst_stream_destroy(self->device, self->stream));
}

/* ---- the parts of a call ---- */

static pst_matrix packed(const linear_rank *self, const void *base, uint64_t columns,
                         bool is_transposed)
{
    return (pst_matrix){.base = (void *)(uintptr_t)base,
                        .row_stride = columns * self->size,
                        .dtype = self->all->form->dtype,
                        .is_transposed = is_transposed};
}

typedef struct sizes {
    uint64_t m, n, k;
} sizes;

static pst_status multiply(const linear_rank *self, sizes of, pst_matrix a, pst_matrix b, void *d)
{
    pst_product product = PST_PRODUCT_INIT;
    product.m = of.m;
    product.n = of.n;
    product.k = of.k;
    product.a = a;
    product.b = b;
    product.d = packed(self, d, of.n, false);
    product.workspace = self->workspace;
    product.workspace_bytes = self->workspace_bytes;
    if (self->all->is_paced)
        return wait_for_product((void *)(uintptr_t)self, self->device, &product, self->stream);
    return pst_product_run(self->device, &product, self->stream);
}

/* So many rows of the output, or of the input's gradient, from memory that has them whole. */
static pst_status multiply_rows(linear_rank *self, uint64_t rows)
{
    const bool is_column = self->all->form->kind == PST_LINEAR_COLUMN;
    const pst_linear_operands *of = &self->operands;
    const pst_matrix weight =
        packed(self, of->weight, self->columns, !self->all->form->is_backward);
    const sizes forward = {rows, self->rows, self->columns};
    const sizes backward = {rows, self->columns, self->rows};
    if (!self->all->form->is_backward)
        return multiply(self, forward,
                        packed(self, is_column ? self->whole : of->input, self->columns, false),
                        weight, is_column ? of->output : self->whole);
    return multiply(self, backward,
                    packed(self, is_column ? of->output_gradient : self->whole, self->rows, false),
                    weight, is_column ? self->whole : of->input_gradient);
}

static pst_status multiply_weight(const linear_rank *self)
{
    const bool is_column = self->all->form->kind == PST_LINEAR_COLUMN;
    const pst_linear_operands *of = &self->operands;
    const sizes weight = {self->rows, self->columns, self->all->tokens};
    const void *gradient = is_column ? of->output_gradient : self->whole;
    const void *input = is_column ? self->whole : of->input;
    return multiply(self, weight, packed(self, gradient, self->rows, true),
                    packed(self, input, self->columns, false), of->weight_gradient);
}

/* Pieces: of a ring that gathers one for each rank, of one that sums two; column's backward has none. */
static pst_status run_products(linear_rank *self, bool in_pieces)
{
    const linear_form *of = self->all->form;
    const bool is_column = of->kind == PST_LINEAR_COLUMN, is_backward = of->is_backward;
    const uint64_t ranks = (uint64_t)self->all->num_ranks;
    const uint64_t pieces = is_column && is_backward   ? 1
                            : is_column || is_backward ? ranks
                                                       : 2 * ranks;
    const uint64_t num = in_pieces ? pieces : 1;
    pst_status status = PST_OK;
    for (uint64_t i = 0; i < num && status == PST_OK; i++)
        status = multiply_rows(self, self->all->tokens / num);
    return status == PST_OK && is_backward ? multiply_weight(self) : status;
}

/* Forward exchanges once; column's backward gathers, and sums. */
static pst_status run_exchange(linear_rank *self, uint64_t count)
{
    const linear_form *of = self->all->form;
    const bool is_column = of->kind == PST_LINEAR_COLUMN;
    pst_status status = PST_OK;
    if (is_column || of->is_backward)
        status = pst_comm_all_gather(self->comm, self->part, self->whole, count, of->dtype,
                                     self->stream);
    if (status == PST_OK && is_column == of->is_backward)
        status = pst_comm_reduce_scatter(self->comm, self->whole, self->part, count, of->dtype,
                                         self->stream);
    return status;
}

static pst_status run_layer(linear_rank *self, uint32_t pieces)
{
    pst_linear *linear = self->linears[pieces];
    return self->all->form->is_backward ? pst_linear_backward(linear, &self->operands, self->stream)
                                        : pst_linear_forward(linear, &self->operands, self->stream);
}

pst_status bench_linear_run(linear_rank *self, linear_step what)
{
    const uint64_t count = self->all->tokens / (uint64_t)self->all->num_ranks * self->wide;
    switch (what) {
    case COPY: /* as much as one exchange leaves behind */
        for (uint64_t i = 0; i < (uint64_t)self->all->num_ranks; i++) {
            const pst_status status =
                pst_device_copy(self->device, (char *)self->whole + i * count * self->size,
                                self->part, count * self->size, self->stream);
            if (status != PST_OK)
                return status;
        }
        return PST_OK;
    case NOTHING:
        return run_exchange(self, 1);
    case PRODUCTS:
    case PIECES:
        return run_products(self, what == PIECES);
    case EXCHANGE:
        return run_exchange(self, count);
    default:
        return run_layer(self, what == LAYER);
    }
}
