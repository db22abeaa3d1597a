/* Functions of the pretended driver, by name: memory that grows in place, which is the process's. */
#include "pretended_gpu.h"

#include <cuda.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { GRANULARITY = 2 << 20 };

static CUresult reserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wanted,
                        unsigned long long flags)
{
    void *address =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    (void)alignment, (void)wanted, (void)flags;
    *out = (CUdeviceptr)(uintptr_t)address;
    return address != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult unreserve(CUdeviceptr address, size_t bytes)
{
    return munmap((void *)(uintptr_t)address, bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A handle is a number of bytes. */
static CUresult create(CUmemGenericAllocationHandle *out, size_t bytes,
                       const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)properties, (void)flags;
    *out = bytes;
    if (bytes % GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    pretended_held.allocations++;
    pretended_held.bytes += bytes;
    return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    pretended_held.allocations--;
    pretended_held.bytes -= handle;
    return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr at, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)flags;
    return at % GRANULARITY == 0 && offset == 0 && bytes == handle ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_INVALID_VALUE;
}

static CUresult unmap(CUdeviceptr at, size_t bytes)
{
    return mprotect((void *)(uintptr_t)at, bytes, PROT_NONE) == 0 ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t num)
{
    (void)access;
    return num == 1 && mprotect((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult granularity(size_t *out, const CUmemAllocationProp *properties,
                            CUmemAllocationGranularity_flags which)
{
    (void)properties, (void)which;
    *out = GRANULARITY;
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    static const struct {
        const char *name;
        uintptr_t function;
    } known[] = {{"cuMemAddressReserve", (uintptr_t)reserve},
                 {"cuMemAddressFree", (uintptr_t)unreserve},
                 {"cuMemCreate", (uintptr_t)create},
                 {"cuMemRelease", (uintptr_t)release},
                 {"cuMemMap", (uintptr_t)map},
                 {"cuMemUnmap", (uintptr_t)unmap},
                 {"cuMemSetAccess", (uintptr_t)set_access},
                 {"cuMemGetAllocationGranularity", (uintptr_t)granularity}};
    (void)version, (void)flags;
    *out = NULL;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].name, name) == 0)
            *out = (void *)known[i].function;
    if (result)
        *result = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
