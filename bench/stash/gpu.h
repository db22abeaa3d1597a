/* What needs the CUDA runtime or compiler. Each function returns NULL, or what went wrong. They
 * enqueue on the current device, and what they enqueue can be captured. */
#ifndef PAGESTASH_BENCH_GPU_H
#define PAGESTASH_BENCH_GPU_H

#include <pagestash/pagestash.h>

PST_BEGIN_DECLS

enum { BENCH_PCI_BYTES = 32 };

typedef struct bench_gpu_facts {
    uint64_t l2_bytes;
    int driver_version; /* of CUDA, as 1000 major + 10 minor */
    char pci[BENCH_PCI_BYTES];
} bench_gpu_facts;

const char *bench_gpu_get_facts(int index, bench_gpu_facts *facts_out);

/* Copies of contiguous bytes, made of what stash and restore copy with. num_sms: 0 is all. */
const char *bench_gpu_copy(pst_backend backend, bool streaming, int num_sms, void *to,
                           const void *from, uint64_t bytes, pst_stream stream);
const char *bench_gpu_transform(void *to, const void *from, uint64_t bytes, pst_stream stream);

/* Device arrays of num addresses and sizes. With scratch NULL nothing is enqueued and
 * *scratch_bytes is set. */
const char *bench_gpu_batched(void *scratch, size_t *scratch_bytes, void *const *from,
                              void *const *to, const uint32_t *sizes, uint32_t num,
                              pst_stream stream);

/* The grid of the one kernel that was enqueued between begin and end, which is not run. */
typedef struct bench_grid {
    uint32_t blocks, threads, shared_bytes;
} bench_grid;

const char *bench_gpu_probe_begin(pst_stream stream);
const char *bench_gpu_probe_end(pst_stream stream, bench_grid *grid_out);

/* Kernels that do nothing: with the parameters of a stash, and without any. */
const char *bench_gpu_empty(const bench_grid *grid, pst_stream stream);
const char *bench_gpu_idle(pst_stream stream);
/* Keeps the stream busy until what is timed is enqueued behind it. */
const char *bench_gpu_hold(pst_stream stream);

PST_END_DECLS

#ifdef __CUDACC__
#define BENCH_CUDA(call)                                \
    do {                                                \
        const cudaError_t bench_cuda_error_ = (call);   \
        if (bench_cuda_error_ != cudaSuccess)           \
            return cudaGetErrorName(bench_cuda_error_); \
    } while (0)
#endif

#endif
