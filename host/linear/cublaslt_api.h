/* What of cublasLt.h is used, and how it is found. tests/host/linear/cublaslt_test.c compares it with
 * that file where it is installed. cuBLAS's enums have no negative values: unsigned is the type that
 * they are compatible with. */
#ifndef PSTI_HOST_CUBLASLT_API_H
#define PSTI_HOST_CUBLASLT_API_H

#include <pagestash/device.h>

#include "host/base/base.h"

#ifndef PSTI_CUBLASLT_TYPES /* where the header's own types have these names */
typedef struct cublasLtContext *psti_lt_handle;
typedef struct psti_lt_desc_opaque *psti_lt_desc;
typedef struct psti_lt_layout_opaque *psti_lt_layout;
typedef struct psti_lt_preference_opaque *psti_lt_preference;
typedef struct psti_lt_algo {
    uint64_t data[8];
} psti_lt_algo;
typedef struct psti_lt_found {
    psti_lt_algo algo;
    size_t workspaceSize;
    unsigned state;
    float wavesCount;
    int reserved[4];
} psti_lt_found;
#endif

/* X(name, value): ours is PSTI_LT_name, theirs CUBLASLT_name */
#define PSTI_LT_VALUES(X)                    \
    X(MATRIX_LAYOUT_BATCH_COUNT, 5)          \
    X(MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6) \
    X(MATMUL_DESC_TRANSA, 3)                 \
    X(MATMUL_DESC_TRANSB, 4)                 \
    X(MATMUL_DESC_EPILOGUE, 7)               \
    X(MATMUL_DESC_BIAS_POINTER, 8)           \
    X(MATMUL_DESC_BIAS_BATCH_STRIDE, 10)     \
    X(MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)    \
    X(MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)  \
    X(MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)  \
    X(MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)  \
    X(MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)  \
    X(MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)  \
    X(EPILOGUE_BIAS, 4)                      \
    X(REDUCTION_SCHEME_NONE, 0)              \
    X(REDUCTION_SCHEME_COMPUTE_TYPE, 2)

enum {
#define PSTI_LT_VALUE(name, value) PSTI_LT_##name = (value),
    PSTI_LT_VALUES(PSTI_LT_VALUE)
#undef PSTI_LT_VALUE
};

/* X(name, value): ours is PSTI_CUBLAS_name, theirs CUBLAS_name */
#define PSTI_CUBLAS_VALUES(X)   \
    X(STATUS_SUCCESS, 0)        \
    X(STATUS_ALLOC_FAILED, 3)   \
    X(STATUS_ARCH_MISMATCH, 8)  \
    X(STATUS_NOT_SUPPORTED, 15) \
    X(OP_N, 0)                  \
    X(OP_T, 1)                  \
    X(COMPUTE_32F, 68)

enum {
#define PSTI_CUBLAS_VALUE(name, value) PSTI_CUBLAS_##name = (value),
    PSTI_CUBLAS_VALUES(PSTI_CUBLAS_VALUE)
#undef PSTI_CUBLAS_VALUE
};

enum { PSTI_CUDA_R_32F = 0, PSTI_CUDA_R_16F = 2, PSTI_CUDA_R_16BF = 14 };

typedef size_t psti_lt_get_version(void);
typedef const char *psti_lt_get_status_name(unsigned status);
typedef unsigned psti_lt_create(psti_lt_handle *handle_out);
typedef unsigned psti_lt_destroy(psti_lt_handle handle);
typedef unsigned psti_lt_desc_create(psti_lt_desc *desc_out, unsigned compute, unsigned scale_type);
typedef unsigned psti_lt_desc_destroy(psti_lt_desc desc);
typedef unsigned psti_lt_desc_set(psti_lt_desc desc, unsigned attribute, const void *value,
                                  size_t bytes);
typedef unsigned psti_lt_layout_create(psti_lt_layout *layout_out, unsigned type, uint64_t rows,
                                       uint64_t columns, int64_t lead);
typedef unsigned psti_lt_layout_destroy(psti_lt_layout layout);
typedef unsigned psti_lt_layout_set(psti_lt_layout layout, unsigned attribute, const void *value,
                                    size_t bytes);
typedef unsigned psti_lt_preference_create(psti_lt_preference *preference_out);
typedef unsigned psti_lt_preference_destroy(psti_lt_preference preference);
typedef unsigned psti_lt_preference_set(psti_lt_preference preference, unsigned attribute,
                                        const void *value, size_t bytes);
typedef unsigned psti_lt_get_heuristic(psti_lt_handle handle, psti_lt_desc desc, psti_lt_layout a,
                                       psti_lt_layout b, psti_lt_layout c, psti_lt_layout d,
                                       psti_lt_preference preference, int wanted,
                                       psti_lt_found found[], int *num_found_out);
typedef unsigned psti_lt_matmul(psti_lt_handle handle, psti_lt_desc desc, const void *alpha,
                                const void *a, psti_lt_layout a_layout, const void *b,
                                psti_lt_layout b_layout, const void *beta, const void *c,
                                psti_lt_layout c_layout, void *d, psti_lt_layout d_layout,
                                const psti_lt_algo *algo, void *workspace, size_t workspace_bytes,
                                pst_stream stream);

/* X(name, symbol) */
#define PSTI_LT_FUNCTIONS(X)                                \
    X(get_version, cublasLtGetVersion)                      \
    X(get_status_name, cublasLtGetStatusName)               \
    X(create, cublasLtCreate)                               \
    X(destroy, cublasLtDestroy)                             \
    X(desc_create, cublasLtMatmulDescCreate)                \
    X(desc_destroy, cublasLtMatmulDescDestroy)              \
    X(desc_set, cublasLtMatmulDescSetAttribute)             \
    X(layout_create, cublasLtMatrixLayoutCreate)            \
    X(layout_destroy, cublasLtMatrixLayoutDestroy)          \
    X(layout_set, cublasLtMatrixLayoutSetAttribute)         \
    X(preference_create, cublasLtMatmulPreferenceCreate)    \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy)  \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute) \
    X(get_heuristic, cublasLtMatmulAlgoGetHeuristic)        \
    X(matmul, cublasLtMatmul)

typedef struct psti_cublaslt {
#define PSTI_LT_MEMBER(name, symbol) psti_lt_##name *name;
    PSTI_LT_FUNCTIONS(PSTI_LT_MEMBER)
#undef PSTI_LT_MEMBER
} psti_cublaslt;

/* ---- cublaslt_find.c ---- */

/* The cuBLASLt that PAGESTASH_CUBLASLT_LIBRARY names. Fails: UNSUPPORTED. */
pst_status psti_cublaslt_find(psti_cublaslt *lt_out);

#endif
