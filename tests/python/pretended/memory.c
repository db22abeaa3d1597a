/* Memory. */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

typedef struct block {
    char *address;
    size_t bytes;
    enum cudaMemoryType type;
    bool is_registered;
    struct block *next;
} block;

static block *blocks;
static uint64_t num_mallocs, allocated_bytes, memory_bytes = (uint64_t)8 << 30;

uint64_t pretended_mallocs(void)
{
    return num_mallocs;
}

uint64_t pretended_allocated(void)
{
    return allocated_bytes;
}

void pretended_set_memory(uint64_t bytes)
{
    memory_bytes = bytes;
}

/* Filled with 0xff, NaN in all floats. */
static cudaError_t allocate(void **address, size_t bytes, enum cudaMemoryType type)
{
    const bool is_device = type == cudaMemoryTypeDevice;
    block *made = pretended_zeroed(sizeof(*made));
    *address = NULL;
    if (pretended_is_forbidden())
        return pretended_answer(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&pretended_lock);
    if (!is_device || allocated_bytes + bytes <= memory_bytes)
        *address = aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (*address) {
        memset(*address, 0xff, bytes);
        *made = (block){*address, bytes, type, false, blocks};
        blocks = made;
        allocated_bytes += is_device ? bytes : 0;
        num_mallocs += is_device;
    }
    pthread_mutex_unlock(&pretended_lock);
    return *address ? cudaSuccess : pretended_answer(cudaErrorMemoryAllocation);
}

static cudaError_t deallocate(void *address)
{
    if (!address)
        return cudaSuccess;
    if (pretended_is_forbidden())
        return pretended_answer(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&pretended_lock);
    block **at = &blocks;
    while (*at && (*at)->address != address)
        at = &(*at)->next;
    block *gone = *at;
    if (gone) {
        *at = gone->next;
        allocated_bytes -= gone->type == cudaMemoryTypeDevice ? gone->bytes : 0;
        if (!gone->is_registered)
            free(address);
    }
    pthread_mutex_unlock(&pretended_lock);
    free(gone);
    return gone ? cudaSuccess : pretended_answer(cudaErrorInvalidValue);
}

cudaError_t cudaMalloc(void **address, size_t bytes)
{
    return allocate(address, bytes, cudaMemoryTypeDevice);
}

cudaError_t cudaFree(void *address)
{
    return deallocate(address);
}

cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned flags)
{
    (void)flags;
    return allocate(address, bytes, cudaMemoryTypeHost);
}

cudaError_t cudaMallocHost(void **address, size_t bytes)
{
    return allocate(address, bytes, cudaMemoryTypeHost);
}

cudaError_t cudaFreeHost(void *address)
{
    return deallocate(address);
}

cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned flags)
{
    (void)flags;
    block *made = pretended_zeroed(sizeof(*made));
    pthread_mutex_lock(&pretended_lock);
    *made = (block){address, bytes, cudaMemoryTypeHost, true, blocks};
    blocks = made;
    pthread_mutex_unlock(&pretended_lock);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *address)
{
    return deallocate(address);
}

cudaError_t cudaMemGetInfo(size_t *free_out, size_t *total)
{
    *total = memory_bytes;
    *free_out = memory_bytes > allocated_bytes ? memory_bytes - allocated_bytes : 0;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address)
{
    const char *at = address;
    memset(attributes, 0, sizeof(*attributes));
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->hostPointer = (void *)address;
    pthread_mutex_lock(&pretended_lock);
    for (const block *in = blocks; in; in = in->next)
        if (at >= in->address && at < in->address + in->bytes) {
            attributes->type = in->type;
            attributes->devicePointer = (void *)address;
        }
    pthread_mutex_unlock(&pretended_lock);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    return bytes ? pretended_enqueued(stream, pretended_pst.device_copy(pretended_device(), to,
                                                                        from, bytes, stream))
                 : cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return bytes ? pretended_enqueued(stream,
                                      pretended_pst.device_fill(pretended_device(), to,
                                                                (uint8_t)value, bytes, stream))
                 : cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream)
{
    (void)to_device, (void)from_device;
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return pretended_is_forbidden() ? pretended_answer(cudaErrorStreamCaptureImplicit)
                                    : cudaMemcpyAsync(to, from, bytes, kind, NULL);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    return pretended_is_forbidden() ? pretended_answer(cudaErrorStreamCaptureImplicit)
                                    : cudaMemsetAsync(to, value, bytes, NULL);
}
