/* The device, and kernels, which do nothing. */
#include <string.h>

#include "runtime.h"

#undef cudaGetDeviceProperties

enum { VERSION = 13000, NUM_SMS = 132 };

/* ---- kernels ---- */

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block_dim, void **arguments,
                             size_t shared, cudaStream_t stream)
{
    (void)function, (void)grid, (void)block_dim, (void)arguments, (void)shared;
    return (cudaError_t)pretended_launch(stream);
}

cudaError_t __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block_dim, void **arguments,
                               size_t shared, cudaStream_t stream)
{
    return cudaLaunchKernel(kernel, grid, block_dim, arguments, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function,
                                void **arguments)
{
    (void)function, (void)arguments;
    return (cudaError_t)pretended_launch(config->stream);
}

cudaError_t __cudaGetKernel(void **kernel, const void *function)
{
    *kernel = (void *)function;
    return cudaSuccess;
}

static _Thread_local struct {
    dim3 grid, block;
    size_t shared;
    void *stream;
} configured;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block_dim, size_t shared,
                                     struct CUstream_st *stream)
{
    configured.grid = grid;
    configured.block = block_dim;
    configured.shared = shared;
    configured.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block_dim, size_t *shared, void *stream)
{
    *grid = configured.grid;
    *block_dim = configured.block;
    *shared = configured.shared;
    *(void **)stream = configured.stream;
    return cudaSuccess;
}

void **__cudaRegisterFatBinary(void *binary)
{
    static void *handle;
    handle = binary;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device_function,
                            const char *name, int limit, uint3 *a, uint3 *b, dim3 *c, dim3 *d,
                            int *e)
{
    (void)handle, (void)host, (void)device_function, (void)name, (void)limit;
    (void)a, (void)b, (void)c, (void)d, (void)e;
}

void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int ext,
                       size_t bytes, int constant, int global)
{
    (void)handle, (void)host, (void)address, (void)name;
    (void)ext, (void)bytes, (void)constant, (void)global;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    (void)function;
    memset(attributes, 0, sizeof(*attributes));
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks_out,
                                                                   const void *function, int size,
                                                                   size_t shared, unsigned flags)
{
    (void)function, (void)size, (void)shared, (void)flags;
    *blocks_out = 4;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks_out, const void *function,
                                                          int size, size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks_out, function, size,
                                                                  shared, 0);
}

/* ---- the device ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *index)
{
    *index = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int index)
{
    return index == 0 ? cudaSuccess : pretended_answer(cudaErrorInvalidDevice);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int from, int to)
{
    (void)from, (void)to;
    *can = 0;
    return cudaSuccess;
}

/* Of a device of compute capability 9.0. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int index)
{
    if (index != 0)
        return pretended_answer(cudaErrorInvalidDevice);
    size_t free_bytes, total;
    cudaMemGetInfo(&free_bytes, &total);
    *out = (struct cudaDeviceProp){.name = "pretended GPU",
                                   .major = 9,
                                   .multiProcessorCount = NUM_SMS,
                                   .totalGlobalMem = total,
                                   .warpSize = 32,
                                   .maxThreadsPerBlock = 1024,
                                   .maxThreadsPerMultiProcessor = 2048,
                                   .maxBlocksPerMultiProcessor = 32,
                                   .maxGridSize = {0x7fffffff, 65535, 65535},
                                   .maxThreadsDim = {1024, 1024, 64},
                                   .sharedMemPerBlock = 48 << 10,
                                   .sharedMemPerBlockOptin = 227 << 10,
                                   .sharedMemPerMultiprocessor = 228 << 10,
                                   .reservedSharedMemPerBlock = 1 << 10,
                                   .regsPerBlock = 65536,
                                   .regsPerMultiprocessor = 65536,
                                   .l2CacheSize = 50 << 20,
                                   .textureAlignment = 512};
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int index)
{
    if (index != 0)
        return pretended_answer(cudaErrorInvalidDevice);
    *value = attribute == cudaDevAttrComputeCapabilityMajor         ? 9
             : attribute == cudaDevAttrMultiProcessorCount          ? NUM_SMS
             : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? 227 << 10
             : attribute == cudaDevAttrMaxThreadsPerMultiProcessor  ? 2048
             : attribute == cudaDevAttrMaxThreadsPerBlock           ? 1024
             : attribute == cudaDevAttrWarpSize                     ? 32
                                                                    : 0;
    return cudaSuccess;
}

/* There is no driver below: torch is told that it has none of its functions. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    (void)name, (void)version, (void)flags;
    *function = NULL;
    *result = cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
