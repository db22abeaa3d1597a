/* Products on host. Those of 16-bit types go through blocks of float32 of fixed sizes, which lie
 * on the stack: so nothing can run out when a graph is launched. */
#include <string.h>

#include "host/linear/linear.h"
#include "kernels/core/float.h"

enum { ROWS = 64, COLUMNS = 128, DEPTH = 256 };

/* What is enqueued: looked up and checked, so that it cannot fail. */
typedef struct host_product {
    pst_product product;
    psti_gemm_function *multiply;
} host_product;

/* The product of one expert: m and k are its live ones. */
typedef struct one_product {
    uint32_t m, n, k;
    const pst_matrix *a, *b, *c, *d;
    const unsigned char *a_base, *b_base, *c_base; /* c_base NULL: no C */
    unsigned char *d_base;
    psti_gemm_function *multiply;
} one_product;

/* ---- 16-bit types ---- */

static float to_float(uint16_t bits, pst_dtype dtype)
{
    return dtype == PST_DTYPE_BF16 ? psti_bf16_to_float(bits) : psti_half_to_float(bits);
}

static uint16_t from_float(float value, pst_dtype dtype)
{
    return dtype == PST_DTYPE_BF16 ? psti_float_to_bf16(value) : psti_float_to_half(value);
}

static void widen_row(const uint16_t *from, uint32_t count, pst_dtype dtype, float *to)
{
    if (dtype == PST_DTYPE_BF16)
        for (uint32_t i = 0; i < count; i++)
            to[i] = psti_bf16_to_float(from[i]);
    else
        for (uint32_t i = 0; i < count; i++)
            to[i] = psti_half_to_float(from[i]);
}

/* A block of the stored matrix, packed. */
static void widen(const pst_matrix *matrix, const unsigned char *base, uint32_t row, uint32_t rows,
                  uint32_t column, uint32_t columns, float *to)
{
    for (uint32_t i = 0; i < rows; i++) {
        const unsigned char *from = base + (uint64_t)(row + i) * matrix->row_stride;
        widen_row((const uint16_t *)(const void *)from + column, columns, matrix->dtype,
                  to + (size_t)i * columns);
    }
}

/* A block whose place and size are as the product has them. Returns how far its stored rows are
 * apart. */
static uint32_t take_block(const pst_matrix *matrix, const unsigned char *base, uint32_t row,
                           uint32_t rows, uint32_t column, uint32_t columns, float *to)
{
    if (matrix->is_transposed)
        widen(matrix, base, column, columns, row, rows, to);
    else
        widen(matrix, base, row, rows, column, columns, to);
    return matrix->is_transposed ? rows : columns;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void multiply_block(const one_product *one, uint32_t i, uint32_t rows, uint32_t j,
                           uint32_t columns, float *sums)
{
    float a[ROWS * DEPTH], b[DEPTH * COLUMNS];
    memset(sums, 0, (size_t)rows * columns * sizeof(float));
    for (uint32_t k = 0; k < one->k; k += DEPTH) {
        const uint32_t depth = least(one->k - k, DEPTH);
        const psti_gemm gemm = {.m = rows,
                                .n = columns,
                                .k = depth,
                                .a_transposed = one->a->is_transposed,
                                .b_transposed = one->b->is_transposed,
                                .a = a,
                                .b = b,
                                .d = sums,
                                .a_lead = take_block(one->a, one->a_base, i, rows, k, depth, a),
                                .b_lead = take_block(one->b, one->b_base, k, depth, j, columns, b),
                                .d_lead = columns};
        one->multiply(&gemm);
    }
}

static void store_row(const one_product *one, uint32_t i, uint32_t j, uint32_t columns,
                      const float *sums)
{
    const pst_dtype dtype = one->d->dtype;
    const uint64_t first = j * psti_dtype_bytes(dtype);
    const void *c = one->c_base ? one->c_base + i * one->c->row_stride + first : NULL;
    void *d = one->d_base + i * one->d->row_stride + first;
    if (dtype == PST_DTYPE_FP32)
        for (uint32_t q = 0; q < columns; q++)
            ((float *)d)[q] = c ? sums[q] + ((const float *)c)[q] : sums[q];
    else
        for (uint32_t q = 0; q < columns; q++) {
            const float sum = c ? sums[q] + to_float(((const uint16_t *)c)[q], dtype) : sums[q];
            ((uint16_t *)d)[q] = from_float(sum, dtype);
        }
}

static void run_16_bit(const one_product *one)
{
    float sums[ROWS * COLUMNS];
    for (uint32_t j = 0; j < one->n; j += COLUMNS)
        for (uint32_t i = 0; i < one->m; i += ROWS) {
            const uint32_t rows = least(one->m - i, ROWS);
            const uint32_t columns = least(one->n - j, COLUMNS);
            multiply_block(one, i, rows, j, columns, sums);
            for (uint32_t row = 0; row < rows; row++)
                store_row(one, i + row, j, columns, sums + (size_t)row * columns);
        }
}

/* ---- float32 ---- */

/* D becomes C, or 0. */
static void begin_sums(const one_product *one)
{
    const size_t bytes = one->n * sizeof(float);
    if (one->c_base == one->d_base)
        return;
    for (uint32_t i = 0; i < one->m; i++) {
        unsigned char *to = one->d_base + i * one->d->row_stride;
        if (one->c_base)
            memcpy(to, one->c_base + i * one->c->row_stride, bytes);
        else
            memset(to, 0, bytes);
    }
}

static uint32_t lead_of(const pst_matrix *matrix)
{
    return (uint32_t)(matrix->row_stride / sizeof(float));
}

static void run_32_bit(const one_product *one)
{
    const psti_gemm gemm = {.m = one->m,
                            .n = one->n,
                            .k = one->k,
                            .a_transposed = one->a->is_transposed,
                            .b_transposed = one->b->is_transposed,
                            .a = (const float *)(const void *)one->a_base,
                            .b = (const float *)(const void *)one->b_base,
                            .d = (float *)(void *)one->d_base,
                            .a_lead = lead_of(one->a),
                            .b_lead = lead_of(one->b),
                            .d_lead = lead_of(one->d)};
    begin_sums(one);
    if (one->k > 0)
        one->multiply(&gemm);
}

/* ---- all experts ---- */

/* Of the rows or columns that the product counts, `all` at most. */
static uint32_t live_of(const pst_product *product, uint32_t expert, uint64_t all)
{
    const int64_t count = product->count_type == PST_COUNT_INT64
                              ? ((const int64_t *)product->counts)[expert]
                              : ((const int32_t *)product->counts)[expert];
    return count < 0 || (uint64_t)count > all ? 0 : (uint32_t)count;
}

static unsigned char *base_of(const pst_matrix *matrix, uint32_t expert)
{
    return matrix->base ? (unsigned char *)matrix->base + expert * matrix->expert_stride : NULL;
}

static pst_status run(const void *args)
{
    const host_product *what = args;
    const pst_product *product = &what->product;
    one_product one = {.n = (uint32_t)product->n,
                       .a = &product->a,
                       .b = &product->b,
                       .c = &product->c,
                       .d = &product->d,
                       .multiply = what->multiply};
    for (uint32_t e = 0; e < product->num_experts; e++) {
        one.m =
            product->live == PST_LIVE_M ? live_of(product, e, product->m) : (uint32_t)product->m;
        one.k =
            product->live == PST_LIVE_K ? live_of(product, e, product->k) : (uint32_t)product->k;
        one.a_base = base_of(one.a, e);
        one.b_base = base_of(one.b, e);
        one.c_base = base_of(one.c, e);
        one.d_base = base_of(one.d, e);
        if (one.m > 0 && product->a.dtype == PST_DTYPE_FP32)
            run_32_bit(&one);
        else if (one.m > 0)
            run_16_bit(&one);
    }
    return PST_OK;
}

pst_status psti_product_enqueue_host(pst_device *device, const pst_product *product,
                                     pst_stream stream)
{
    host_product what = {.product = *product};
    PSTI_TRY(psti_blas_find(&what.multiply));
    return device->ops->call(device, run, &what, sizeof(what), stream);
}
