/* Our own copies of contiguous bytes, and kernels that do nothing. */
#include "bench/stash/gpu.h"

#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/paging/bulk.cuh"

namespace
{

struct plain_args {
    unsigned char *to;
    const unsigned char *from;
    uint64_t bytes;
};

template <class Copier> PSTI_DEVICE void copy_tiles(Copier &copier, const plain_args &args)
{
    const uint64_t stride = (uint64_t)num_teams() * PSTI_TILE_BYTES;
    copier.open();
    for (uint64_t at = (uint64_t)team_of() * PSTI_TILE_BYTES; at < args.bytes; at += stride) {
        const uint64_t left = args.bytes - at;
        copier.run(args.to + at, args.from + at,
                   (uint32_t)(left < PSTI_TILE_BYTES ? left : PSTI_TILE_BYTES));
    }
    copier.close();
}

template <bool kStreaming>
__global__ void __launch_bounds__(PSTI_TEAMS *PSTI_MAX_THREADS, 1)
    plain_ldg_kernel(const __grid_constant__ plain_args args)
{
    PSTI_ASSUME_TEAMS();
    direct_copier<kStreaming> copier = {};
    copy_tiles(copier, args);
}

template <class Ring, bool kStreaming>
__global__ void __launch_bounds__(Ring::kThreads)
    plain_bulk_kernel(const __grid_constant__ plain_args args)
{
#if PSTI_HAS_BULK
    Ring::assume_threads();
    PSTI_SHARED(Ring, ring);
    bulk_copier<Ring, kStreaming> copier = {&ring, 0, 0, {}};
    copy_tiles(copier, args);
#endif
}

__global__ void empty_kernel(const __grid_constant__ psti_move_args args)
{
    (void)args;
}

__global__ void idle_kernel()
{
}

/* Far more than it takes to enqueue a graph and two events: 100,000 cycles are 50 us at 2 GHz. */
__global__ void hold_kernel(long long cycles)
{
    const long long begin = clock64();
    while (clock64() - begin < cycles)
        ;
}

struct plain_copy {
    void (*kernel)(plain_args);
    unsigned threads, ring_bytes;
};

const plain_copy copies[4][2] = {
    {},
    {{plain_ldg_kernel<false>, PSTI_MAX_THREADS, 0}, {plain_ldg_kernel<true>, PSTI_MAX_THREADS, 0}},
    {{plain_bulk_kernel<large_ring, false>, large_ring::kThreads, large_ring::kRingBytes},
     {plain_bulk_kernel<large_ring, true>, large_ring::kThreads, large_ring::kRingBytes}},
    {{plain_bulk_kernel<small_ring, false>, small_ring::kThreads, small_ring::kRingBytes},
     {plain_bulk_kernel<small_ring, true>, small_ring::kThreads, small_ring::kRingBytes}}};

/* As stash and restore have it: under a budget one block for each SM, of PSTI_TEAMS without a ring. */
unsigned threads_of(const plain_copy &copy, int num_sms)
{
    return copy.threads * (num_sms && !copy.ring_bytes ? PSTI_TEAMS : 1);
}

/* As stash and restore have it: without a budget as many blocks as fit, but of a ring one per SM. */
cudaError_t blocks_of(const plain_copy &copy, int num_sms, uint64_t bytes, unsigned *blocks_out)
{
    const void *kernel = (const void *)copy.kernel;
    int device = 0, sms = num_sms, per_sm = 1;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess && sms == 0)
        error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess && copy.ring_bytes)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)copy.ring_bytes);
    else if (error == cudaSuccess && num_sms == 0)
        error =
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, (int)copy.threads, 0);
    const uint64_t tiles = (bytes + PSTI_TILE_BYTES - 1) / PSTI_TILE_BYTES;
    const uint64_t resident = (uint64_t)sms * (uint64_t)per_sm;
    *blocks_out = (unsigned)(tiles < resident ? tiles : resident);
    return error;
}

cudaError_t launch(const void *kernel, unsigned blocks, unsigned threads, size_t shared_bytes,
                   void **args, pst_stream stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return cudaLaunchKernelExC(&config, kernel, args);
}

} /* namespace */

const char *bench_gpu_get_facts(int index, bench_gpu_facts *facts_out)
{
    int l2_bytes = 0;
    BENCH_CUDA(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, index));
    BENCH_CUDA(cudaDriverGetVersion(&facts_out->driver_version));
    BENCH_CUDA(cudaDeviceGetPCIBusId(facts_out->pci, BENCH_PCI_BYTES, index));
    facts_out->l2_bytes = (uint64_t)l2_bytes;
    return NULL;
}

const char *bench_gpu_copy(pst_backend backend, bool streaming, int num_sms, void *to,
                           const void *from, uint64_t bytes, pst_stream stream)
{
    const plain_copy &copy = copies[backend][streaming];
    plain_args args = {(unsigned char *)to, (const unsigned char *)from, bytes};
    void *pointers[] = {&args};
    unsigned blocks = 0;
    BENCH_CUDA(blocks_of(copy, num_sms, bytes, &blocks));
    BENCH_CUDA(launch((const void *)copy.kernel, blocks, threads_of(copy, num_sms), copy.ring_bytes,
                      pointers, stream));
    return NULL;
}

const char *bench_gpu_probe_begin(pst_stream stream)
{
    BENCH_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    return NULL;
}

const char *bench_gpu_probe_end(pst_stream stream, bench_grid *grid_out)
{
    cudaGraph_t graph = NULL;
    cudaGraphNode_t node = NULL;
    cudaKernelNodeParams params = {};
    size_t num = 1;
    BENCH_CUDA(cudaStreamEndCapture(stream, &graph));
    cudaError_t error = cudaGraphGetNodes(graph, &node, &num);
    if (error == cudaSuccess)
        error = cudaGraphKernelNodeGetParams(node, &params);
    const cudaError_t destroyed = cudaGraphDestroy(graph);
    BENCH_CUDA(error);
    BENCH_CUDA(destroyed);
    *grid_out = {params.gridDim.x, params.blockDim.x, params.sharedMemBytes};
    return NULL;
}

const char *bench_gpu_empty(const bench_grid *grid, pst_stream stream)
{
    static psti_move_args args;
    void *pointers[] = {&args};
    BENCH_CUDA(cudaFuncSetAttribute((const void *)empty_kernel,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)grid->shared_bytes));
    BENCH_CUDA(launch((const void *)empty_kernel, grid->blocks, grid->threads, grid->shared_bytes,
                      pointers, stream));
    return NULL;
}

const char *bench_gpu_idle(pst_stream stream)
{
    BENCH_CUDA(launch((const void *)idle_kernel, 1, PSTI_WARP, 0, NULL, stream));
    return NULL;
}

const char *bench_gpu_hold(pst_stream stream)
{
    long long cycles = 100000;
    void *pointers[] = {&cycles};
    BENCH_CUDA(launch((const void *)hold_kernel, 1, 1, 0, pointers, stream));
    return NULL;
}
