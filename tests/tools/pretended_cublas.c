/* In place of libcublas.so.13 on a pretended GPU: takes what bench/stash/gemm.c calls, and multiplies nothing.
 * A product is a launch. */
#include "pretended_gpu.h"

#include <stdio.h>

int cublasCreate_v2(void **out);
int cublasDestroy_v2(void *handle);
int cublasSetStream_v2(void *handle, void *stream);
int cublasSetSmCountTarget(void *handle, int num_sms);
int cublasGemmEx(void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha,
                 const void *a, int type_a, int lead_a, const void *b, int type_b, int lead_b,
                 const void *beta, void *c, int type_c, int lead_c, int compute, int algorithm);

enum { SUCCESS, NOT_INITIALIZED, INVALID_VALUE = 7 };

static int made; /* its address is every handle */

static int answer(const void *handle, int is_valid)
{
    return handle != &made ? NOT_INITIALIZED : is_valid ? SUCCESS : INVALID_VALUE;
}

int cublasCreate_v2(void **out)
{
    *out = &made;
    return SUCCESS;
}

int cublasDestroy_v2(void *handle)
{
    return answer(handle, 1);
}

int cublasSetStream_v2(void *handle, void *stream)
{
    (void)stream;
    return answer(handle, 1);
}

int cublasSetSmCountTarget(void *handle, int num_sms)
{
    return answer(handle, num_sms >= 0);
}

int cublasGemmEx(void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha,
                 const void *a, int type_a, int lead_a, const void *b, int type_b, int lead_b,
                 const void *beta, void *c, int type_c, int lead_c, int compute, int algorithm)
{
    const int is_valid = m > 0 && n > 0 && k > 0 && alpha && beta && a && b && c && lead_a >= m &&
                         lead_b >= k && lead_c >= m;
    char shape[80];
    (void)trans_a, (void)trans_b, (void)type_a, (void)type_b, (void)type_c, (void)compute,
        (void)algorithm;
    snprintf(shape, sizeof(shape), "%d x %d x %d", m, n, k);
    if (is_valid)
        pretended_launched("cublasGemmEx", shape);
    return answer(handle, is_valid);
}
