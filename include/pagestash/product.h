/* Products of matrices, as tensor-parallel layers want them.
 *
 *   D (m, n) = A (m, k) * B (k, n) + C
 *
 * added up in float32 and rounded once. On host it is the system's CBLAS (OpenBLAS), or plain C
 * where there is none. On cuda it is cuBLASLt, with CUBLAS_COMPUTE_32F: no TF32, and sums that are
 * split over blocks are added in float32. Products that are counted on the device (`live`) are there
 * a kernel of the library's, which multiplies in float32 without tensor cores, and whose time
 * follows what is live; layers take a program's own in its place (pst_linear_config.product).
 *
 * PAGESTASH_CUBLASLT_LIBRARY names the library of cuda, "auto" libcublasLt.so.13 or .12, of which
 * the one that is in the process already comes first. It is loaded by a device's first product, or
 * by its first layer; that one cannot be in a capture. A product allocates no device memory, waits
 * for nothing, and asks cuBLASLt once for each form (sizes, strides, dtypes, alignments): the same
 * form gives the same bits, captured or not.
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
    /* Device memory that only this product uses while it runs, aligned to 256: with some MiB cuBLASLt
     * may split a long sum. NULL and 0: none. On host it is not used. */
    void *workspace;
    uint64_t workspace_bytes;
} pst_product;

#define PST_PRODUCT_INIT PST_INIT(pst_product)

PST_BEGIN_DECLS

/* Enqueues a product; can be captured, on cuda once the device has had one.
 * Fails: INVALID (a field), UNSUPPORTED (the library that is named or wanted is not there, or has
 * no such product), CAPTURE (on cuda: the device's first product), NOMEM, CUDA. */
PST_API pst_status pst_product_run(pst_device *device, const pst_product *product,
                                   pst_stream stream);

PST_END_DECLS

#endif
