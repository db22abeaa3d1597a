/* Products of matrices, as the linear layers of linear.h want them.
 *
 *   D (m, n) = A (m, k) * B (k, n) + C
 *
 * added up in float32 and rounded once. On cuda it is cuBLASLt's, which is loaded at run time; on host the
 * system's CBLAS (OpenBLAS, one thread per caller), or plain C where there is none. A caller's own function
 * takes its place in a linear layer: fp8, Transformer Engine's, a grouped product.
 *
 * PAGESTASH_BLAS names the library of host; "none" is the plain one.
 */
#ifndef PAGESTASH_PRODUCT_H
#define PAGESTASH_PRODUCT_H

#include <pagestash/comm.h>
#include <pagestash/group.h>

/* Element (i, j) lies at base + i * row_stride + j * size; of a transposed one at
 * base + j * row_stride + i * size. Frozen. */
typedef struct pst_matrix {
    void *base;             /* device memory, aligned to an element */
    uint64_t row_stride;    /* bytes; 0: every row is the same one, of C only (a bias) */
    uint64_t expert_stride; /* bytes from one expert's to the next's; 0: the same for all */
    pst_dtype dtype;        /* BF16, FP16 or FP32 */
    bool is_transposed;     /* of A and B */
    uint8_t padding[3];     /* 0 */
} pst_matrix;

/* Which of a product's rows are counted on the device, per expert. */
typedef enum pst_live {
    PST_LIVE_ALL = 0,
    PST_LIVE_M = 1, /* rows of A, C and D: others are neither read nor written */
    PST_LIVE_K = 2  /* columns of A and rows of B: others are not read. With none D is C, or 0 */
} pst_live;

typedef struct pst_product {
    size_t struct_size;
    uint64_t m, n, k;
    pst_matrix a, b, c,
        d; /* a and b have one dtype, c and d one, which may be FP32 where that of a is
                            * not. c.base NULL: no C. c and d may be one */
    uint32_t num_experts; /* products of this form, one behind the other; 0: 1 */
    pst_live live;
    const void
        *counts; /* with PST_LIVE_M and _K: num_experts signed counts on the device; one that is
                         * negative or above m (k) counts as 0 */
    pst_count_type count_type; /* INT32 or INT64 */
    uint32_t padding;          /* 0 */
} pst_product;

#define PST_PRODUCT_INIT PST_INIT(pst_product)

/* A caller's function: enqueues the product on `stream`. On host it is called when the work runs, so at
 * each launch of a graph, and does it. */
typedef pst_status pst_product_function(void *user, pst_device *device, const pst_product *product,
                                        pst_stream stream);

PST_BEGIN_DECLS

/* Enqueues a product; can be captured. On cuda the first of a form on a device chooses an algorithm and
 * allocates a workspace of 32 MiB per stream.
 * Fails: INVALID (a field), UNSUPPORTED (cuda: no cuBLASLt can be loaded, or counts: cuBLASLt has no
 * product of counted rows), CAPTURE (cuda: the first on this stream would allocate), NOMEM,
 * DEVICE_NOMEM, CUDA. */
PST_API pst_status pst_product_run(pst_device *device, const pst_product *product,
                                   pst_stream stream);

PST_END_DECLS

#endif
