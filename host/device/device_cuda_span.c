/* Memory that can grow in place, on a GPU: device memory by the driver's virtual memory calls, host
 * memory registered chunk by chunk. */
#include "host/device/device_cuda.h"

#include <cuda.h>
#include <inttypes.h>

#define HUGE_BYTES ((uint64_t)2 << 20)

/* What was mapped in one go, and is unmapped so. */
typedef struct chunk {
    uint64_t from, bytes;
    CUmemGenericAllocationHandle handle; /* device tier */
    struct chunk *next;                  /* below */
} chunk;

/* ---- the driver's calls, found at run time: the library does not link libcuda ---- */

typedef struct driver {
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*unreserve)(CUdeviceptr, size_t);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                            CUmemAllocationGranularity_flags);
} driver;

static pst_status find(const char *name, void *function_out)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    enum { VERSION = 12000 };
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, (void **)function_out, VERSION,
                                                               cudaEnableDefault, &found);
#else /* as of the runtime's version, which changed none of those below */
    const cudaError_t error =
        cudaGetDriverEntryPoint(name, (void **)function_out, cudaEnableDefault, &found);
#endif
    PSTI_CHECK(error == cudaSuccess && found == cudaDriverEntryPointSuccess, PST_E_UNSUPPORTED,
               "the driver has no %s, which a pool that can grow needs", name);
    return PST_OK;
}

static pst_status load(driver *d)
{
    PSTI_TRY(find("cuMemAddressReserve", &d->reserve));
    PSTI_TRY(find("cuMemAddressFree", &d->unreserve));
    PSTI_TRY(find("cuMemCreate", &d->create));
    PSTI_TRY(find("cuMemRelease", &d->release));
    PSTI_TRY(find("cuMemMap", &d->map));
    PSTI_TRY(find("cuMemUnmap", &d->unmap));
    PSTI_TRY(find("cuMemSetAccess", &d->set_access));
    return find("cuMemGetAllocationGranularity", &d->granularity);
}

static pst_status too_little(uint64_t bytes, const char *call)
{
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    return PSTI_FAIL(PST_E_DEVICE_NOMEM,
                     "%" PRIu64 " more bytes of device pages wanted, %zu bytes free: %s found none",
                     bytes, free_bytes, call);
}

static pst_status check(CUresult result, const char *call, uint64_t bytes)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return too_little(bytes, call);
    PSTI_CHECK(result == CUDA_SUCCESS, PST_E_CUDA, "%s: CUDA driver error %d", call, (int)result);
    return PST_OK;
}

static CUmemAllocationProp properties_of(const pst_device *device)
{
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->info.index}};
    return properties;
}

/* ---- device pages ---- */

static pst_status open_device_span(pst_device *device, psti_span *span, uint64_t reserved)
{
    driver d;
    size_t granularity = 0;
    CUdeviceptr address = 0;
    const CUmemAllocationProp properties = properties_of(device);
    PSTI_TRY(load(&d));
    PSTI_TRY(check(d.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                   "cuMemGetAllocationGranularity", reserved));
    reserved = (reserved + granularity - 1) / granularity * granularity;
    PSTI_TRY(check(d.reserve(&address, reserved, 0, 0, 0), "cuMemAddressReserve", reserved));
    *span = (psti_span){.address = (unsigned char *)(uintptr_t)address,
                        .reserved = reserved,
                        .granularity = granularity};
    return PST_OK;
}

static pst_status map_chunk(const pst_device *device, const driver *d, psti_span *span, chunk *c)
{
    const CUmemAllocationProp properties = properties_of(device);
    const CUmemAccessDesc access = {.location = properties.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)span->address + c->from;
    PSTI_TRY(check(d->create(&c->handle, c->bytes, &properties, 0), "cuMemCreate", c->bytes));
    pst_status status = check(d->map(at, c->bytes, 0, c->handle, 0), "cuMemMap", c->bytes);
    if (status == PST_OK) {
        status = check(d->set_access(at, c->bytes, &access, 1), "cuMemSetAccess", c->bytes);
        if (status != PST_OK)
            d->unmap(at, c->bytes);
    }
    if (status != PST_OK)
        d->release(c->handle);
    return status;
}

static void unmap_chunk(const driver *d, const psti_span *span, const chunk *c)
{
    d->unmap((CUdeviceptr)(uintptr_t)span->address + c->from, c->bytes);
    d->release(c->handle);
}

/* ---- host pages ---- */

static int numa_node_of(const pst_device *device)
{
    int node = -1;
    if (cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, device->info.index) != cudaSuccess) {
        cudaGetLastError();
        return -1;
    }
    return node;
}

/* The GPU must know the host's own addresses, or chunks would not lie one behind the other. */
static pst_status open_host_span(pst_device *device, psti_span *span, uint64_t reserved)
{
    int same = 0;
    cudaDeviceGetAttribute(&same, cudaDevAttrCanUseHostPointerForRegisteredMem, device->info.index);
    PSTI_CHECK(same, PST_E_UNSUPPORTED, "%s cannot use registered memory by the host's addresses",
               device->info.name);
    PSTI_TRY(psti_host_span_open(span, reserved));
    span->granularity = HUGE_BYTES;
    span->is_host = true;
    return PST_OK;
}

static pst_status pin_chunk(const pst_device *device, psti_span *span, const chunk *c)
{
    PSTI_TRY(psti_host_span_commit(span, c->from, c->bytes, numa_node_of(device)));
    const cudaError_t error = cudaHostRegister(span->address + c->from, c->bytes,
                                               cudaHostRegisterMapped | cudaHostRegisterPortable);
    if (error == cudaSuccess)
        return PST_OK;
    cudaGetLastError();
    psti_host_span_decommit(span, c->from, c->bytes);
    return PSTI_FAIL(error == cudaErrorMemoryAllocation ? PST_E_NOMEM : PST_E_CUDA,
                     "%" PRIu64 " bytes of host pages wanted, %" PRIu64
                     " available: cudaHostRegister: %s",
                     c->bytes, psti_available_bytes(), cudaGetErrorName(error));
}

static void unpin_chunk(psti_span *span, const chunk *c)
{
    cudaHostUnregister(span->address + c->from);
    cudaGetLastError();
    psti_host_span_decommit(span, c->from, c->bytes);
}

/* ---- both ---- */

pst_status psti_cuda_span_open(pst_device *device, uint32_t tier, uint64_t reserved,
                               psti_span *span)
{
    PSTI_ON(device);
    return tier == PSTI_TIER_HOST ? open_host_span(device, span, reserved)
                                  : open_device_span(device, span, reserved);
}

static pst_status add_chunk(pst_device *device, psti_span *span, uint64_t bytes)
{
    driver d;
    chunk *c = psti_calloc(1, sizeof(*c));
    PSTI_CHECK(c, PST_E_NOMEM, "no memory for a chunk of pages");
    c->from = span->mapped;
    c->bytes = bytes;
    c->next = span->state;
    pst_status status = PST_OK;
    if (span->is_host) {
        status = pin_chunk(device, span, c);
    } else {
        status = psti_allocation_fails() ? too_little(bytes, "psti_allocation_fails") : load(&d);
        if (status == PST_OK)
            status = map_chunk(device, &d, span, c);
    }
    if (status != PST_OK) {
        psti_free(c);
        return status;
    }
    span->state = c;
    span->mapped += bytes;
    return PST_OK;
}

static void drop_chunk(psti_span *span)
{
    driver d;
    chunk *c = span->state;
    if (span->is_host)
        unpin_chunk(span, c);
    else if (load(&d) == PST_OK)
        unmap_chunk(&d, span, c);
    span->mapped = c->from;
    span->state = c->next;
    psti_free(c);
}

/* Shrinks by whole chunks: what is still wanted of one keeps it. */
pst_status psti_cuda_span_resize(pst_device *device, psti_span *span, uint64_t bytes)
{
    PSTI_ON(device);
    if (bytes > span->mapped) {
        const uint64_t more = bytes - span->mapped;
        const uint64_t rounded =
            (more + span->granularity - 1) / span->granularity * span->granularity;
        return add_chunk(device, span, rounded);
    }
    while (span->state && ((chunk *)span->state)->from >= bytes)
        drop_chunk(span);
    return PST_OK;
}

void psti_cuda_span_close(pst_device *device, psti_span *span)
{
    driver d;
    PSTI_ON(device);
    while (span->state)
        drop_chunk(span);
    if (span->is_host)
        psti_host_span_close(span);
    else if (span->address && load(&d) == PST_OK)
        d.unreserve((CUdeviceptr)(uintptr_t)span->address, span->reserved);
    *span = (psti_span){0};
}
