/* cuBLASLt without a GPU, for torch: one algorithm is found, and a product is the launch of a kernel.
 *
 * Its types are declared here: cuBLAS's own headers come with 400 MB of libraries. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "pretended.h"

enum { SUCCESS = 0, ALLOC_FAILED = 3, EXECUTION_FAILED = 13 };

typedef struct algorithm { /* cublasLtMatmulAlgo_t */
    uint64_t data[8];
} algorithm;

typedef struct heuristic { /* cublasLtMatmulHeuristicResult_t */
    algorithm found;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} heuristic;

static int made(void **out)
{
    *out = calloc(1, 64);
    return *out ? SUCCESS : ALLOC_FAILED;
}

static int gone(void *what)
{
    free(what);
    return SUCCESS;
}

int cublasLtMatmulDescCreate(void **out, int compute, int scale)
{
    (void)compute, (void)scale;
    return made(out);
}

int cublasLtMatmulDescDestroy(void *what)
{
    return gone(what);
}

int cublasLtMatmulDescSetAttribute(void *what, int attribute, const void *value, size_t bytes)
{
    (void)what, (void)attribute, (void)value, (void)bytes;
    return SUCCESS;
}

int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t columns,
                               int64_t stride)
{
    (void)type, (void)rows, (void)columns, (void)stride;
    return made(out);
}

int cublasLtMatrixLayoutDestroy(void *what)
{
    return gone(what);
}

int cublasLtMatrixLayoutSetAttribute(void *what, int attribute, const void *value, size_t bytes)
{
    (void)what, (void)attribute, (void)value, (void)bytes;
    return SUCCESS;
}

int cublasLtMatmulPreferenceCreate(void **out)
{
    return made(out);
}

int cublasLtMatmulPreferenceDestroy(void *what)
{
    return gone(what);
}

int cublasLtMatmulPreferenceSetAttribute(void *what, int attribute, const void *value, size_t bytes)
{
    (void)what, (void)attribute, (void)value, (void)bytes;
    return SUCCESS;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c,
                                   void *d, void *preference, int wanted, heuristic results[],
                                   int *found)
{
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
    *found = wanted > 0;
    if (wanted > 0)
        results[0] = (heuristic){.state = SUCCESS};
    return SUCCESS;
}

int cublasLtMatmul(void *handle, void *operation, const void *alpha, const void *a, void *a_layout,
                   const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                   void *d, void *d_layout, const algorithm *chosen, void *workspace,
                   size_t workspace_bytes, void *stream)
{
    (void)handle, (void)operation, (void)alpha, (void)a, (void)a_layout, (void)b, (void)b_layout;
    (void)beta, (void)c, (void)c_layout, (void)d, (void)d_layout, (void)chosen, (void)workspace;
    (void)workspace_bytes;
    return pretended_launch(stream) ? EXECUTION_FAILED : SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}
