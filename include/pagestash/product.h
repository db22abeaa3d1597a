/* Products of matrices, as tensor-parallel layers want them.
 *
 *   D (m, n) = A (m, k) * B (k, n) + C
 *
 * added up in float32 and rounded once. On host it is the system's CBLAS (OpenBLAS), or plain C
 * where there is none. Devices of cuda have no products yet (UNSUPPORTED).
 *
 * PAGESTASH_BLAS names the library of host; "none" is the plain one, "auto" what is found first
 * of libopenblas.so.0, libcblas.so.3 and libblas.so.3. A product of host is of the thread that
 * runs it: of OpenBLAS the library asks, once, for one thread in the whole process. So its bits
 * depend on nothing that runs beside it; those of another library are others.
 */
#ifndef PAGESTASH_PRODUCT_H
#define PAGESTASH_PRODUCT_H

#include <pagestash/comm.h>
#include <pagestash/group.h>

/* Element (i, j) lies at base + i * row_stride + j * size; of a transposed one at
 * base + j * row_stride + i * size. Frozen. */
typedef struct pst_matrix {
    void *base;          /* device memory, aligned to an element; NULL where there is no element */
    uint64_t row_stride; /* bytes; 0: every row is the same one, of C only (a bias) */
    uint64_t
        expert_stride;  /* bytes from one expert's to the next's; 0: the same for all, but of D */
    pst_dtype dtype;    /* BF16, FP16 or FP32 */
    bool is_transposed; /* of A and B */
    uint8_t padding[3]; /* 0 */
} pst_matrix;

/* Which of a product's rows are counted on the device, per expert. */
typedef enum pst_live {
    PST_LIVE_ALL = 0,
    PST_LIVE_M = 1, /* rows of A, C and D: others are neither read nor written */
    PST_LIVE_K = 2  /* columns of A and rows of B: others are not read. With none D is C, or 0 */
} pst_live;

typedef struct pst_product {
    size_t struct_size;
    uint64_t m, n, k; /* each at most 2^31 - 1; with m or n 0 there is nothing to do */
    /* a and b have one dtype; c and d have that one, or both FP32. c.base NULL: no C. d may be
     * c, and else overlaps nothing that is read. */
    pst_matrix a, b, c, d;
    uint32_t num_experts; /* products of this form, one behind the other; 0: 1 */
    pst_live live;
    /* With PST_LIVE_M and _K: num_experts signed counts on the device; one that is negative or
     * above m (k) counts as 0. */
    const void *counts;
    pst_count_type count_type; /* INT32 or INT64 */
    uint32_t padding;          /* 0 */
} pst_product;

#define PST_PRODUCT_INIT PST_INIT(pst_product)

PST_BEGIN_DECLS

/* Enqueues a product; can be captured.
 * Fails: INVALID (a field), UNSUPPORTED (PAGESTASH_BLAS names no CBLAS; a device of cuda), CAPTURE,
 * NOMEM. */
PST_API pst_status pst_product_run(pst_device *device, const pst_product *product,
                                   pst_stream stream);

PST_END_DECLS

#endif
