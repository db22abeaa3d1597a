/* Products that the device counts, on the CPU: each sum from its first term to its last. */
#include "kernels/host/runners.h"

#include "kernels/core/product.h"

static float sum_of(const psti_product_args *args, uint32_t expert, uint32_t i, uint32_t j,
                    uint32_t k)
{
    const psti_product_matrix *a = &args->a, *b = &args->b;
    const unsigned char *of_a = psti_product_base(a, expert) + i * a->row_stride;
    const unsigned char *of_b = psti_product_base(b, expert) + j * b->column_stride;
    float sum = 0.0f;
    for (uint32_t q = 0; q < k; q++)
        sum = psti_fma(psti_product_get(of_a + q * a->column_stride, args->dtype),
                       psti_product_get(of_b + q * b->row_stride, args->dtype), sum);
    return sum;
}

void psti_host_product(const void *opaque)
{
    const psti_product_args *args = opaque;
    for (uint32_t e = 0; e < args->num_experts; e++) {
        const uint32_t m = psti_product_live(args, e, PST_LIVE_M, args->m);
        const uint32_t k = psti_product_live(args, e, PST_LIVE_K, args->k);
        for (uint32_t i = 0; i < m; i++)
            for (uint32_t j = 0; j < args->n; j++)
                psti_product_store(args, e, i, j, sum_of(args, e, i, j, k));
    }
}
