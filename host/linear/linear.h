/* Room linear: products of matrices, and the tensor-parallel layers that are made of them.
 * Uses base and device. Used by programs, through product.h and linear.h of the public headers. */
#ifndef PSTI_HOST_LINEAR_H
#define PSTI_HOST_LINEAR_H

#include <pagestash/product.h>

#include "host/device/device.h"

/* ---- product.c ---- */

/* Bytes of an element of a matrix. */
static inline uint64_t psti_dtype_bytes(pst_dtype dtype)
{
    return dtype == PST_DTYPE_FP32 ? 4 : 2;
}

/* ---- product_host.c: products that were checked ---- */

pst_status psti_product_enqueue_host(pst_device *device, const pst_product *product,
                                     pst_stream stream);

/* ---- product_blas.c, product_plain.c: D = A * B + D, of float32 ---- */

/* Rows lie `lead` elements apart; a transposed matrix is stored as its columns. */
typedef struct psti_gemm {
    uint32_t m, n, k; /* at least 1 */
    bool a_transposed, b_transposed;
    const float *a, *b;
    float *d;
    uint32_t a_lead, b_lead, d_lead;
} psti_gemm;

typedef void psti_gemm_function(const psti_gemm *gemm);

/* The function that PAGESTASH_BLAS names. Fails: UNSUPPORTED. */
pst_status psti_blas_find(psti_gemm_function **function_out);
void psti_gemm_plain(const psti_gemm *gemm);

#endif
