/* The CUDA device: with device_cuda_stream.c and device_cuda_span.c what of host/ calls CUDA. */
#include "host/device/device_cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/launch.h"

typedef struct cuda_state {
    psti_cuda_budget budget;
    psti_cuda_launch_fn launch;
    int index;
} cuda_state;

static cuda_state *state_of(const pst_device *device)
{
    return device->state;
}

pst_status psti_cuda_translate(cudaError_t error, const char *call, const char *file, int line)
{
    cudaGetLastError();
    pst_status status = PST_E_CUDA;
    if (error == cudaErrorMemoryAllocation)
        status = PST_E_DEVICE_NOMEM;
    else if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
             error == cudaErrorInitializationError) /* in a fork of a process that used CUDA */
        status = PST_E_NO_DEVICE;
    else if (error == cudaErrorInvalidResourceHandle) /* a stream or event of another device */
        status = PST_E_INVALID;
    else if ((error >= cudaErrorStreamCaptureUnsupported &&
              error <= cudaErrorStreamCaptureWrongThread) ||
             error == cudaErrorIllegalState) /* begun twice, or never */
        status = PST_E_CAPTURE;
    return psti_fail(status, file, line, "%s: %s (%s)", call, cudaGetErrorName(error),
                     cudaGetErrorString(error));
}

psti_cuda_guard psti_cuda_enter(const pst_device *device)
{
    psti_cuda_guard entered = {.previous = 0, .switched = false};
    if (cudaGetDevice(&entered.previous) == cudaSuccess &&
        entered.previous != state_of(device)->index)
        entered.switched = cudaSetDevice(state_of(device)->index) == cudaSuccess;
    return entered;
}

void psti_cuda_leave(const psti_cuda_guard *entered)
{
    if (entered->switched)
        cudaSetDevice(entered->previous);
}

/* ---- memory ---- */

static pst_status cuda_get_info(pst_device *device, pst_device_info *info)
{
    PSTI_ON(device);
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    PSTI_TRY_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    *info = device->info;
    info->free_bytes = free_bytes;
    return PST_OK;
}

static pst_status cuda_alloc(pst_device *device, size_t bytes, void **address_out)
{
    PSTI_ON(device);
    void *address = NULL;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    const cudaError_t error =
        psti_allocation_fails() ? cudaErrorMemoryAllocation : cudaMalloc(&address, bytes);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        cudaMemGetInfo(&free_bytes, &total_bytes);
        return PSTI_FAIL(PST_E_DEVICE_NOMEM, "%zu bytes wanted, %zu bytes free", bytes, free_bytes);
    }
    PSTI_TRY_CUDA(error);
    *address_out = address;
    return PST_OK;
}

static pst_status cuda_free(pst_device *device, void *address)
{
    PSTI_ON(device);
    PSTI_TRY_CUDA(cudaFree(address));
    return PST_OK;
}

static pst_status cuda_alloc_pinned(pst_device *device, size_t bytes, void **address_out)
{
    PSTI_ON(device);
    void *address = NULL;
    PSTI_TRY_CUDA(
        psti_allocation_fails()
            ? cudaErrorMemoryAllocation
            : cudaHostAlloc(&address, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
    memset(address, 0, bytes);
    *address_out = address;
    return PST_OK;
}

static pst_status cuda_free_pinned(pst_device *device, void *address)
{
    PSTI_ON(device);
    PSTI_TRY_CUDA(cudaFreeHost(address));
    return PST_OK;
}

static pst_status cuda_copy(pst_device *device, void *to, const void *from, size_t bytes,
                            pst_stream stream)
{
    PSTI_ON(device);
    PSTI_TRY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    return PST_OK;
}

static pst_status cuda_fill(pst_device *device, void *to, uint8_t value, size_t bytes,
                            pst_stream stream)
{
    PSTI_ON(device);
    PSTI_TRY_CUDA(cudaMemsetAsync(to, value, bytes, stream));
    return PST_OK;
}

static pst_status cuda_synchronize(pst_device *device)
{
    PSTI_ON(device);
    PSTI_TRY_CUDA(cudaDeviceSynchronize());
    return PST_OK;
}

/* One byte; a tensor may lie in several mappings, so its ends are asked about one by one. */
static pst_status check_byte(const pst_device *device, uintptr_t at, const void *address,
                             uint64_t bytes)
{
    struct cudaPointerAttributes found = {.type = cudaMemoryTypeUnregistered};
    PSTI_TRY_CUDA(cudaPointerGetAttributes(&found, (const void *)at));
    const bool is_ours = found.type == cudaMemoryTypeDevice && found.device == device->info.index;
    const bool is_shared = found.type == cudaMemoryTypeManaged ||
                           (found.type == cudaMemoryTypeHost && found.devicePointer);
    PSTI_CHECK(is_ours || is_shared, PST_E_INVALID,
               "address %p, %" PRIu64
               " bytes: %p is neither memory of %s, device %d, nor managed or"
               " registered host memory",
               address, bytes, (const void *)at, device->info.name, device->info.index);
    return PST_OK;
}

static pst_status cuda_check_address(pst_device *device, const void *address, uint64_t bytes)
{
    PSTI_ON(device);
    const uintptr_t first = (uintptr_t)address;
    PSTI_CHECK(bytes - 1 <= UINTPTR_MAX - first, PST_E_INVALID,
               "address %p: %" PRIu64 " bytes end above all memory", address, bytes);
    PSTI_TRY(check_byte(device, first, address, bytes));
    return check_byte(device, first + (uintptr_t)(bytes - 1), address, bytes);
}

/* ---- launches ---- */

static pst_status cuda_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    PSTI_ON(device);
    const cuda_state *state = state_of(device);
    const cudaError_t error = psti_cuda_launch(&state->budget, state->launch, op, args, stream);
    if (error != cudaSuccess)
        return psti_cuda_translate(error, psti_op_name(op), __FILE__, __LINE__);
    return PST_OK;
}

static pst_status cuda_within(pst_device *device, psti_function *function, const void *args)
{
    PSTI_ON(device);
    return function(args);
}

/* ---- open and close ---- */

static void cuda_close(pst_device *device)
{
    psti_device_remove(device);
    psti_free(device->state);
    psti_handle_free(device);
}

static const psti_device_ops cuda_ops = {
    .close = cuda_close,
    .in_child = psti_device_die,
    .get_info = cuda_get_info,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .alloc_pinned = cuda_alloc_pinned,
    .free_pinned = cuda_free_pinned,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .synchronize = cuda_synchronize,
    .stream_create = psti_cuda_stream_create,
    .stream_destroy = psti_cuda_stream_destroy,
    .stream_synchronize = psti_cuda_stream_synchronize,
    .stream_query = psti_cuda_stream_query,
    .event_create = psti_cuda_event_create,
    .event_destroy = psti_cuda_event_destroy,
    .event_record = psti_cuda_event_record,
    .event_wait = psti_cuda_event_wait,
    .event_synchronize = psti_cuda_event_synchronize,
    .event_elapsed = psti_cuda_event_elapsed,
    .graph_begin = psti_cuda_graph_begin,
    .graph_end = psti_cuda_graph_end,
    .graph_launch = psti_cuda_graph_launch,
    .graph_destroy = psti_cuda_graph_destroy,
    .capture_of = psti_cuda_capture_of,
    .hold = psti_cuda_hold,
    .launch = cuda_launch,
    .within = cuda_within,
    .check_address = cuda_check_address,
    .span_open = psti_cuda_span_open,
    .span_resize = psti_cuda_span_resize,
    .span_close = psti_cuda_span_close,
};

bool psti_cuda_is_present(void)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    cudaGetLastError();
    return error == cudaSuccess && count > 0;
}

static pst_status fill_device(pst_device *device)
{
    cuda_state *state = state_of(device);
    struct cudaDeviceProp properties;
    PSTI_ON(device);
    PSTI_TRY_CUDA(cudaGetDeviceProperties(&properties, state->index));
    device->info.kind = PST_DEVICE_CUDA;
    device->info.index = state->index;
    device->info.num_sms = properties.multiProcessorCount;
    device->info.compute_capability = properties.major * 10 + properties.minor;
    device->info.total_bytes = properties.totalGlobalMem;
    snprintf(device->info.name, sizeof(device->info.name), "%.127s", properties.name);
    state->budget.num_sms = properties.multiProcessorCount;
    state->budget.most_shared = (int)properties.sharedMemPerBlockOptin;
    PSTI_TRY_CUDA(cudaDeviceGetAttribute(&state->budget.num_domains, cudaDevAttrMemSyncDomainCount,
                                         state->index));
    PSTI_TRY_CUDA(cudaDeviceGetStreamPriorityRange(&state->budget.low_priority,
                                                   &state->budget.high_priority));
    const cudaError_t error = psti_cuda_fill_budget(&state->budget);
    cudaGetLastError();
    PSTI_CHECK(error == cudaSuccess, PST_E_NO_DEVICE,
               "this library holds no code for %s, compute capability %d.%d (%s)", properties.name,
               properties.major, properties.minor, cudaGetErrorName(error));
    device->info.backends = state->budget.backends;
    return psti_backend_preset(device);
}

pst_status psti_cuda_device_open(int index, pst_device **device_out)
{
    int count = 0;
    PSTI_TRY_CUDA(cudaGetDeviceCount(&count));
    PSTI_CHECK(count > 0, PST_E_NO_DEVICE, "the driver shows no CUDA device");
    PSTI_CHECK(index < count, PST_E_INVALID, "index %d: there are %d CUDA devices", index, count);
    pst_device *device = psti_handle_new(sizeof(*device), PSTI_KIND_DEVICE);
    cuda_state *state = psti_calloc(1, sizeof(*state));
    pst_status status = PST_OK;
    if (device && state) {
        state->index = index;
        state->launch = cudaLaunchKernelExC;
        device->ops = &cuda_ops;
        device->state = state;
        status = fill_device(device);
    } else {
        status = PSTI_FAIL(PST_E_NOMEM, "no memory for a device");
    }
    if (status != PST_OK) {
        psti_free(state);
        psti_handle_free(device);
        return status;
    }
    psti_device_add(device);
    *device_out = device;
    return PST_OK;
}
