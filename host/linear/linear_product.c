/* The three products of a layer, by pst_product_run or the caller's function. */
#include "host/linear/linear.h"

/* A caller's function as work of a host device. */
typedef struct callers_product {
    pst_product_function *function;
    void *user;
    pst_device *device;
    pst_product product;
} callers_product;

static pst_status run_callers(const void *args)
{
    const callers_product *what = args;
    return what->function(what->user, what->device, &what->product, NULL);
}

static pst_status run(const pst_linear *linear, const psti_stage *stage, const pst_product *product)
{
    const pst_linear_config *config = &linear->config;
    if (!config->product)
        return pst_product_run(linear->device, product, stage->stream);
    if (!linear->device->ops->call)
        return config->product(config->product_user, linear->device, product, stage->stream);
    const callers_product what = {config->product, config->product_user, linear->device, *product};
    return linear->device->ops->call(linear->device, run_callers, &what, sizeof(what),
                                     stage->stream);
}

/* A packed matrix, of each expert. It is only written where the product has it as D. */
static pst_matrix packed(const pst_linear *linear, const void *base, uint64_t rows,
                         uint64_t columns, pst_dtype dtype)
{
    const uint64_t row_bytes = columns * psti_dtype_bytes(dtype);
    return (pst_matrix){.base = (void *)(uintptr_t)base,
                        .row_stride = row_bytes,
                        .expert_stride = linear->num_experts > 1 ? rows * row_bytes : 0,
                        .dtype = dtype};
}

static pst_product begin(const pst_linear *linear, const psti_stage *stage, pst_live live)
{
    pst_product product = PST_PRODUCT_INIT;
    product.num_experts = linear->num_experts;
    product.workspace = stage->leases[PSTI_LENT_WORKSPACE].address;
    product.workspace_bytes = product.workspace ? stage->linear->config.workspace_bytes : 0;
    if (linear->has_counts) {
        product.live = live;
        product.counts = stage->counts;
        product.count_type = linear->count_type;
    }
    return product;
}

pst_status psti_linear_multiply(const pst_linear *linear, const psti_stage *stage,
                                const void *input, const void *weight, const void *c, void *output,
                                uint64_t num_rows)
{
    const pst_dtype dtype = linear->config.dtype;
    pst_product product = begin(linear, stage, PST_LIVE_M);
    product.m = num_rows;
    product.n = linear->rows;
    product.k = linear->columns;
    product.a = packed(linear, input, num_rows, linear->columns, dtype);
    product.b = packed(linear, weight, linear->rows, linear->columns, dtype);
    product.b.is_transposed = true;
    product.d = packed(linear, output, num_rows, linear->rows, dtype);
    if (c)
        product.c = packed(linear, c, num_rows, linear->rows, dtype);
    return run(linear, stage, &product);
}

pst_status psti_linear_multiply_back(const pst_linear *linear, const psti_stage *stage,
                                     const void *output_gradient, const void *weight,
                                     void *input_gradient, uint64_t num_rows)
{
    const pst_dtype dtype = linear->config.dtype;
    pst_product product = begin(linear, stage, PST_LIVE_M);
    product.m = num_rows;
    product.n = linear->columns;
    product.k = linear->rows;
    product.a = packed(linear, output_gradient, num_rows, linear->rows, dtype);
    product.b = packed(linear, weight, linear->rows, linear->columns, dtype);
    product.d = packed(linear, input_gradient, num_rows, linear->columns, dtype);
    return run(linear, stage, &product);
}

pst_status psti_linear_multiply_weight(const pst_linear *linear, const psti_stage *stage,
                                       const void *output_gradient, const void *input,
                                       const pst_linear_operands *operands)
{
    const pst_dtype dtype = linear->config.dtype;
    const uint64_t tokens = linear->config.tokens;
    pst_product product = begin(linear, stage, PST_LIVE_K);
    product.m = linear->rows;
    product.n = linear->columns;
    product.k = tokens;
    product.a = packed(linear, output_gradient, tokens, linear->rows, dtype);
    product.a.is_transposed = true;
    product.b = packed(linear, input, tokens, linear->columns, dtype);
    product.d = packed(linear, operands->weight_gradient, linear->rows, linear->columns,
                       linear->config.weight_gradient_dtype);
    if (operands->accumulates)
        product.c = product.d;
    return run(linear, stage, &product);
}
