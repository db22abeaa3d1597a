/* The CUDA device: with device_cuda_span.c what of host/ calls CUDA. Streams, events and graphs are
 * CUDA's own, so a program's cudaStream_t works as a pst_stream. */
#include "host/device/device_cuda.h"

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

/* Translates an error, with CUDA's own name, and clears it where it is not sticky. */
static pst_status translate(cudaError_t error, const char *call, int line)
{
    cudaGetLastError();
    pst_status status = PST_E_CUDA;
    if (error == cudaErrorMemoryAllocation)
        status = PST_E_DEVICE_NOMEM;
    else if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver)
        status = PST_E_NO_DEVICE;
    else if (error >= cudaErrorStreamCaptureUnsupported &&
             error <= cudaErrorStreamCaptureWrongThread)
        status = PST_E_CAPTURE;
    return psti_fail(status, __FILE__, line, "%s: %s (%s)", call, cudaGetErrorName(error),
                     cudaGetErrorString(error));
}

#define TRY_CUDA(call)                                 \
    do {                                               \
        const cudaError_t error_ = (call);             \
        if (error_ != cudaSuccess)                     \
            return translate(error_, #call, __LINE__); \
    } while (0)

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
    TRY_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
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
    TRY_CUDA(error);
    *address_out = address;
    return PST_OK;
}

static pst_status cuda_free(pst_device *device, void *address)
{
    PSTI_ON(device);
    TRY_CUDA(cudaFree(address));
    return PST_OK;
}

static pst_status cuda_alloc_pinned(pst_device *device, size_t bytes, void **address_out)
{
    PSTI_ON(device);
    void *address = NULL;
    TRY_CUDA(psti_allocation_fails()
                 ? cudaErrorMemoryAllocation
                 : cudaHostAlloc(&address, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
    memset(address, 0, bytes);
    *address_out = address;
    return PST_OK;
}

static pst_status cuda_free_pinned(pst_device *device, void *address)
{
    PSTI_ON(device);
    TRY_CUDA(cudaFreeHost(address));
    return PST_OK;
}

static pst_status cuda_copy(pst_device *device, void *to, const void *from, size_t bytes,
                            pst_stream stream)
{
    PSTI_ON(device);
    TRY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    return PST_OK;
}

static pst_status cuda_fill(pst_device *device, void *to, uint8_t value, size_t bytes,
                            pst_stream stream)
{
    PSTI_ON(device);
    TRY_CUDA(cudaMemsetAsync(to, value, bytes, stream));
    return PST_OK;
}

static pst_status cuda_synchronize(pst_device *device)
{
    PSTI_ON(device);
    TRY_CUDA(cudaDeviceSynchronize());
    return PST_OK;
}

/* ---- streams and events ---- */

static pst_status cuda_stream_create(pst_device *device, pst_stream *stream_out)
{
    PSTI_ON(device);
    cudaStream_t stream = NULL;
    TRY_CUDA(psti_allocation_fails() ? cudaErrorMemoryAllocation
                                     : cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    *stream_out = stream;
    return PST_OK;
}

static pst_status cuda_stream_destroy(pst_device *device, pst_stream stream)
{
    PSTI_ON(device);
    TRY_CUDA(cudaStreamDestroy(stream));
    return PST_OK;
}

static pst_status cuda_stream_synchronize(pst_device *device, pst_stream stream)
{
    PSTI_ON(device);
    TRY_CUDA(cudaStreamSynchronize(stream));
    return PST_OK;
}

static pst_status cuda_event_create(pst_device *device, pst_event *event_out)
{
    PSTI_ON(device);
    cudaEvent_t event = NULL;
    TRY_CUDA(psti_allocation_fails() ? cudaErrorMemoryAllocation : cudaEventCreate(&event));
    *event_out = event;
    return PST_OK;
}

static pst_status cuda_event_destroy(pst_device *device, pst_event event)
{
    PSTI_ON(device);
    TRY_CUDA(cudaEventDestroy(event));
    return PST_OK;
}

/* CUDA refuses the external flags outside capture. */
static pst_status may_be_external(pst_stream stream, bool external, bool *capturing_out)
{
    enum cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    if (stream && external)
        TRY_CUDA(cudaStreamIsCapturing(stream, &capturing));
    *capturing_out = capturing == cudaStreamCaptureStatusActive;
    return PST_OK;
}

static pst_status cuda_event_record(pst_device *device, pst_event event, pst_stream stream,
                                    bool external)
{
    PSTI_ON(device);
    bool capturing = false;
    PSTI_TRY(may_be_external(stream, external, &capturing));
    TRY_CUDA(cudaEventRecordWithFlags(
        event, stream, capturing ? cudaEventRecordExternal : cudaEventRecordDefault));
    return PST_OK;
}

static pst_status cuda_event_wait(pst_device *device, pst_event event, pst_stream stream,
                                  bool external)
{
    PSTI_ON(device);
    bool capturing = false;
    PSTI_TRY(may_be_external(stream, external, &capturing));
    TRY_CUDA(cudaStreamWaitEvent(stream, event,
                                 capturing ? cudaEventWaitExternal : cudaEventWaitDefault));
    return PST_OK;
}

static pst_status cuda_event_synchronize(pst_device *device, pst_event event)
{
    PSTI_ON(device);
    TRY_CUDA(cudaEventSynchronize(event));
    return PST_OK;
}

static pst_status cuda_event_elapsed(pst_device *device, pst_event begin, pst_event end,
                                     double *seconds_out)
{
    PSTI_ON(device);
    float milliseconds = 0.0f;
    TRY_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
    *seconds_out = (double)milliseconds * 1e-3;
    return PST_OK;
}

/* ---- graphs ---- */

static pst_status cuda_graph_begin(pst_device *device, pst_stream stream)
{
    PSTI_ON(device);
    TRY_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    return PST_OK;
}

static pst_status count_nodes(cudaGraph_t graph, pst_graph_info *info)
{
    size_t num_nodes = 0;
    TRY_CUDA(cudaGraphGetNodes(graph, NULL, &num_nodes));
    cudaGraphNode_t *nodes = psti_calloc(num_nodes + 1, sizeof(*nodes));
    PSTI_CHECK(nodes, PST_E_NOMEM, "no memory for %zu nodes of a graph", num_nodes);
    cudaError_t error = cudaGraphGetNodes(graph, nodes, &num_nodes);
    uint64_t num_kernels = 0;
    for (size_t i = 0; i < num_nodes && error == cudaSuccess; i++) {
        enum cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
        error = cudaGraphNodeGetType(nodes[i], &type);
        num_kernels += type == cudaGraphNodeTypeKernel;
    }
    psti_free(nodes);
    TRY_CUDA(error);
    info->num_nodes = num_nodes;
    info->num_kernels = num_kernels;
    return PST_OK;
}

static pst_status cuda_graph_end(pst_device *device, pst_stream stream, pst_graph *graph)
{
    PSTI_ON(device);
    cudaGraph_t captured = NULL;
    cudaGraphExec_t executable = NULL;
    TRY_CUDA(cudaStreamEndCapture(stream, &captured));
    pst_status status = count_nodes(captured, &graph->info);
    if (status == PST_OK) {
        const cudaError_t error = cudaGraphInstantiate(&executable, captured, 0);
        if (error != cudaSuccess)
            status = translate(error, "cudaGraphInstantiate", __LINE__);
    }
    cudaGraphDestroy(captured);
    graph->state = executable;
    return status;
}

static pst_status cuda_graph_launch(pst_graph *graph, pst_stream stream)
{
    PSTI_ON(graph->device);
    TRY_CUDA(cudaGraphLaunch(graph->state, stream));
    return PST_OK;
}

static void cuda_graph_destroy(pst_graph *graph)
{
    PSTI_ON(graph->device);
    cudaGraphExecDestroy(graph->state);
}

static pst_status cuda_capture_of(pst_device *device, pst_stream stream,
                                  psti_capture_of *capture_out)
{
    PSTI_ON(device);
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    cudaGraph_t graph = NULL;
    *capture_out = (psti_capture_of){.id = 0};
    if (!stream)
        return PST_OK;
    TRY_CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, NULL, NULL, NULL));
    if (status == cudaStreamCaptureStatusActive)
        *capture_out = (psti_capture_of){.id = id, .graph = graph};
    return PST_OK;
}

/* Runs on a thread of the driver's and must not call CUDA. */
static void CUDART_CB let_go(void *opaque)
{
    psti_hold_drop(opaque);
}

static pst_status cuda_hold(pst_device *device, const psti_capture_of *capture, psti_hold *hold)
{
    PSTI_ON(device);
    cudaUserObject_t object = NULL;
    psti_hold_add(hold);
    cudaError_t error =
        cudaUserObjectCreate(&object, hold, let_go, 1, cudaUserObjectNoDestructorSync);
    if (error != cudaSuccess) {
        let_go(hold);
    } else {
        error = cudaGraphRetainUserObject(capture->graph, object, 1, cudaGraphUserObjectMove);
        if (error != cudaSuccess)
            cudaUserObjectRelease(object, 1);
    }
    TRY_CUDA(error);
    __atomic_store_n(&hold->last_capture, capture->id, __ATOMIC_RELAXED);
    return PST_OK;
}

static pst_status cuda_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    PSTI_ON(device);
    const cuda_state *state = state_of(device);
    const cudaError_t error = psti_cuda_launch(&state->budget, state->launch, op, args, stream);
    if (error != cudaSuccess)
        return translate(error, psti_op_name(op), __LINE__);
    return PST_OK;
}

/* ---- open and close ---- */

static void cuda_close(pst_device *device)
{
    psti_free(device->state);
    psti_handle_free(device);
}

static const psti_device_ops cuda_ops = {
    .close = cuda_close,
    .get_info = cuda_get_info,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .alloc_pinned = cuda_alloc_pinned,
    .free_pinned = cuda_free_pinned,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .synchronize = cuda_synchronize,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_synchronize = cuda_stream_synchronize,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_synchronize = cuda_event_synchronize,
    .event_elapsed = cuda_event_elapsed,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
    .capture_of = cuda_capture_of,
    .hold = cuda_hold,
    .launch = cuda_launch,
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
    TRY_CUDA(cudaGetDeviceProperties(&properties, state->index));
    device->info.kind = PST_DEVICE_CUDA;
    device->info.index = state->index;
    device->info.num_sms = properties.multiProcessorCount;
    device->info.compute_capability = properties.major * 10 + properties.minor;
    device->info.total_bytes = properties.totalGlobalMem;
    snprintf(device->info.name, sizeof(device->info.name), "%.127s", properties.name);
    state->budget.num_sms = properties.multiProcessorCount;
    state->budget.most_shared = (int)properties.sharedMemPerBlockOptin;
    TRY_CUDA(cudaDeviceGetAttribute(&state->budget.num_domains, cudaDevAttrMemSyncDomainCount,
                                    state->index));
    TRY_CUDA(cudaDeviceGetStreamPriorityRange(&state->budget.low_priority,
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
    TRY_CUDA(cudaGetDeviceCount(&count));
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
    *device_out = device;
    return PST_OK;
}
