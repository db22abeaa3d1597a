/* Products that the device counts: what is live, and elements as float32. */
#ifndef PSTI_CORE_PRODUCT_H
#define PSTI_CORE_PRODUCT_H

#include <pagestash/product.h>

#include "kernels/core/float.h"
#include "kernels/core/layout.h"

/* Of `all` rows or terms of an expert, where `live` is what is counted. */
PSTI_FN uint32_t psti_product_live(const psti_product_args *args, uint32_t expert, uint32_t live,
                                   uint32_t all)
{
    if (args->live != live)
        return all;
    const int64_t count = args->count_type == PST_COUNT_INT64
                              ? ((const int64_t *)args->counts)[expert]
                              : ((const int32_t *)args->counts)[expert];
    return count < 0 || count > (int64_t)all ? 0 : (uint32_t)count;
}

PSTI_FN unsigned char *psti_product_base(const psti_product_matrix *matrix, uint32_t expert)
{
    return matrix->base ? matrix->base + expert * matrix->expert_stride : matrix->base;
}

PSTI_FN float psti_product_get(const unsigned char *at, uint32_t dtype)
{
    if (dtype == PST_DTYPE_FP32)
        return *(const float *)(const void *)at;
    const uint16_t bits = *(const uint16_t *)(const void *)at;
    return dtype == PST_DTYPE_BF16 ? psti_bf16_to_float(bits) : psti_half_to_float(bits);
}

PSTI_FN void psti_product_put(unsigned char *at, uint32_t dtype, float value)
{
    if (dtype == PST_DTYPE_FP32)
        *(float *)(void *)at = value;
    else
        *(uint16_t *)(void *)at =
            dtype == PST_DTYPE_BF16 ? psti_float_to_bf16(value) : psti_float_to_half(value);
}

/* The end of a sum: C is added, and what there is now is rounded. */
PSTI_FN void psti_product_store(const psti_product_args *args, uint32_t expert, uint32_t i,
                                uint32_t j, float sum)
{
    const psti_product_matrix *c = &args->c, *d = &args->d;
    if (c->base)
        sum += psti_product_get(
            psti_product_base(c, expert) + i * c->row_stride + j * c->column_stride, args->of_d);
    psti_product_put(psti_product_base(d, expert) + i * d->row_stride + j * d->column_stride,
                     args->of_d, sum);
}

#endif
