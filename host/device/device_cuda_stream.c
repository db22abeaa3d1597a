/* Streams, events and graphs of the CUDA device. They are CUDA's own, so a program's cudaStream_t works
 * as a pst_stream. */
#include "host/device/device_cuda.h"

/* ---- streams and events ---- */

pst_status psti_cuda_stream_create(pst_device *device, pst_stream *stream_out)
{
    PSTI_ON(device);
    cudaStream_t stream = NULL;
    PSTI_TRY_CUDA(psti_allocation_fails()
                      ? cudaErrorMemoryAllocation
                      : cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    *stream_out = stream;
    return PST_OK;
}

pst_status psti_cuda_stream_destroy(pst_device *device, pst_stream stream)
{
    PSTI_ON(device);
    PSTI_TRY_CUDA(cudaStreamDestroy(stream));
    return PST_OK;
}

pst_status psti_cuda_stream_synchronize(pst_device *device, pst_stream stream)
{
    PSTI_ON(device);
    PSTI_TRY_CUDA(cudaStreamSynchronize(stream));
    return PST_OK;
}

pst_status psti_cuda_stream_query(pst_device *device, pst_stream stream, bool *idle_out)
{
    PSTI_ON(device);
    const cudaError_t error = cudaStreamQuery(stream);
    *idle_out = error == cudaSuccess;
    PSTI_TRY_CUDA(error == cudaErrorNotReady ? cudaSuccess : error);
    return PST_OK;
}

pst_status psti_cuda_event_create(pst_device *device, pst_event *event_out)
{
    PSTI_ON(device);
    cudaEvent_t event = NULL;
    PSTI_TRY_CUDA(psti_allocation_fails() ? cudaErrorMemoryAllocation : cudaEventCreate(&event));
    *event_out = event;
    return PST_OK;
}

pst_status psti_cuda_event_destroy(pst_device *device, pst_event event)
{
    PSTI_ON(device);
    PSTI_TRY_CUDA(cudaEventDestroy(event));
    return PST_OK;
}

/* CUDA refuses the external flags outside capture. */
static pst_status may_be_external(pst_stream stream, bool external, bool *capturing_out)
{
    enum cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    if (stream && external)
        PSTI_TRY_CUDA(cudaStreamIsCapturing(stream, &capturing));
    *capturing_out = capturing == cudaStreamCaptureStatusActive;
    return PST_OK;
}

pst_status psti_cuda_event_record(pst_device *device, pst_event event, pst_stream stream,
                                  bool external)
{
    PSTI_ON(device);
    bool capturing = false;
    PSTI_TRY(may_be_external(stream, external, &capturing));
    PSTI_TRY_CUDA(cudaEventRecordWithFlags(
        event, stream, capturing ? cudaEventRecordExternal : cudaEventRecordDefault));
    return PST_OK;
}

pst_status psti_cuda_event_wait(pst_device *device, pst_event event, pst_stream stream,
                                bool external)
{
    PSTI_ON(device);
    bool capturing = false;
    PSTI_TRY(may_be_external(stream, external, &capturing));
    PSTI_TRY_CUDA(cudaStreamWaitEvent(stream, event,
                                      capturing ? cudaEventWaitExternal : cudaEventWaitDefault));
    return PST_OK;
}

pst_status psti_cuda_event_synchronize(pst_device *device, pst_event event)
{
    PSTI_ON(device);
    PSTI_TRY_CUDA(cudaEventSynchronize(event));
    return PST_OK;
}

pst_status psti_cuda_event_elapsed(pst_device *device, pst_event begin, pst_event end,
                                   double *seconds_out)
{
    PSTI_ON(device);
    float milliseconds = 0.0f;
    PSTI_TRY_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
    *seconds_out = (double)milliseconds * 1e-3;
    return PST_OK;
}

/* ---- graphs ---- */

pst_status psti_cuda_graph_begin(pst_device *device, pst_stream stream)
{
    PSTI_ON(device);
    PSTI_TRY_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    return PST_OK;
}

static pst_status count_nodes(cudaGraph_t graph, pst_graph_info *info)
{
    size_t num_nodes = 0;
    PSTI_TRY_CUDA(cudaGraphGetNodes(graph, NULL, &num_nodes));
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
    PSTI_TRY_CUDA(error);
    info->num_nodes = num_nodes;
    info->num_kernels = num_kernels;
    return PST_OK;
}

pst_status psti_cuda_graph_end(pst_device *device, pst_stream stream, pst_graph *graph)
{
    PSTI_ON(device);
    cudaGraph_t captured = NULL;
    cudaGraphExec_t executable = NULL;
    PSTI_TRY_CUDA(cudaStreamEndCapture(stream, &captured));
    pst_status status = count_nodes(captured, &graph->info);
    if (status == PST_OK) {
        const cudaError_t error = cudaGraphInstantiate(&executable, captured, 0);
        if (error != cudaSuccess)
            status = psti_cuda_translate(error, "cudaGraphInstantiate", __FILE__, __LINE__);
    }
    cudaGraphDestroy(captured);
    graph->state = executable;
    return status;
}

pst_status psti_cuda_graph_launch(pst_graph *graph, pst_stream stream)
{
    PSTI_ON(graph->device);
    PSTI_TRY_CUDA(cudaGraphLaunch(graph->state, stream));
    return PST_OK;
}

void psti_cuda_graph_destroy(pst_graph *graph)
{
    PSTI_ON(graph->device);
    cudaGraphExecDestroy(graph->state);
}

#if CUDART_VERSION < 13000
#define GET_CAPTURE_INFO cudaStreamGetCaptureInfo_v3 /* that with edges, as of 13.0 */
#else
#define GET_CAPTURE_INFO cudaStreamGetCaptureInfo
#endif

pst_status psti_cuda_capture_of(pst_device *device, pst_stream stream, psti_capture_of *capture_out)
{
    PSTI_ON(device);
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    cudaGraph_t graph = NULL;
    *capture_out = (psti_capture_of){.id = 0};
    if (!stream)
        return PST_OK;
    PSTI_TRY_CUDA(GET_CAPTURE_INFO(stream, &status, &id, &graph, NULL, NULL, NULL));
    if (status == cudaStreamCaptureStatusActive)
        *capture_out = (psti_capture_of){.id = id, .graph = graph};
    return PST_OK;
}

/* Runs on a thread of the driver's and must not call CUDA. */
static void CUDART_CB let_go(void *opaque)
{
    psti_hold_drop(opaque);
}

pst_status psti_cuda_hold(pst_device *device, const psti_capture_of *capture, psti_hold *hold)
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
    PSTI_TRY_CUDA(error);
    __atomic_store_n(&hold->last_capture, capture->id, __ATOMIC_RELAXED);
    return PST_OK;
}
