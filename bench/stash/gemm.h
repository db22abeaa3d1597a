/* A matrix product of cuBLAS, which is loaded when it is first wanted. */
#ifndef PAGESTASH_BENCH_GEMM_H
#define PAGESTASH_BENCH_GEMM_H

#include <pagestash/pagestash.h>

typedef struct bench_gemm {
    pst_device *device;
    void *library, *handle;
    void *a, *b, *c; /* bf16, GEMM_SIZE squared */
    int (*create)(void **handle_out);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, pst_stream stream);
    int (*set_sms)(void *handle, int num_sms);
    int (*product)(void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha,
                   const void *a, int type_a, int lda, const void *b, int type_b, int ldb,
                   const void *beta, void *c, int type_c, int ldc, int compute, int algorithm);
} bench_gemm;

/* *missing_out: why there is no cuBLAS, or NULL. */
int bench_gemm_open(bench_gemm *gemm, pst_device *device, pst_stream stream,
                    const char **missing_out);
/* Enqueues one product told to leave all SMs but num_sms alone; 0: to take what it likes. */
int bench_gemm_run(const bench_gemm *gemm, int num_sms);
int bench_gemm_close(bench_gemm *gemm);

#endif
