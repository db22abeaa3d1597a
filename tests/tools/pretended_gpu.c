/* A CUDA runtime without a GPU, to be linked in place of cudart: memory is the process's, streams are in
 * order because everything is done at once, captures are empty, and kernels do nothing (pretended_launch.c). With
 * it the real programs go as far as their first launch; what they say of the bytes then must be that they are
 * wrong. With PRETENDED_NO_DEVICE there is no device. A process that ends at a launch anyhow (PRETENDED_UNTIL)
 * touches only the first LOOKED_AT bytes of what it fills and copies. */
#include "pretended_gpu.h"

#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_SMS = 132, LOOKED_AT = 16 << 20 };

#define DONE(declaration)   \
    cudaError_t declaration \
    {                       \
        return cudaSuccess; \
    }
#define MADE(declaration, out)                                   \
    cudaError_t declaration                                      \
    {                                                            \
        *(void **)(out) = calloc(1, 64);                         \
        return *(out) ? cudaSuccess : cudaErrorMemoryAllocation; \
    }

/* ---- the device ---- */

cudaError_t cudaGetDeviceCount(int *out)
{
    *out = getenv("PRETENDED_NO_DEVICE") == NULL;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *out)
{
    *out = 0;
    return cudaSuccess;
}

DONE(cudaSetDevice(int device))
DONE(cudaDeviceSynchronize(void))
DONE(cudaGetLastError(void))
DONE(cudaPeekAtLastError(void))

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    (void)device;
    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "pretended GPU");
    out->major = 9;
    out->multiProcessorCount = NUM_SMS;
    out->warpSize = 32;
    out->totalGlobalMem = (size_t)8 << 30;
    out->sharedMemPerBlockOptin = 227 << 10;
    out->sharedMemPerBlock = 48 << 10;
    out->maxThreadsPerBlock = 1024;
    out->canMapHostMemory = out->unifiedAddressing = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr what, int device)
{
    static const struct {
        enum cudaDeviceAttr what;
        int value;
    } known[] = {{cudaDevAttrMaxSharedMemoryPerBlockOptin, 227 << 10},
                 {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 228 << 10},
                 {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10},
                 {cudaDevAttrReservedSharedMemoryPerBlock, 1 << 10},
                 {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
                 {cudaDevAttrMaxBlocksPerMultiprocessor, 32},
                 {cudaDevAttrWarpSize, 32},
                 {cudaDevAttrL2CacheSize, 50 << 20},
                 {cudaDevAttrMultiProcessorCount, NUM_SMS},
                 {cudaDevAttrCanUseHostPointerForRegisteredMem, 1},
                 {cudaDevAttrComputeCapabilityMajor, 9}};
    (void)device;
    *out = 0;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].what == what)
            *out = known[i].value;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *out)
{
    *out = 1000 * 13;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device)
{
    (void)device;
    snprintf(out, (size_t)bytes, "0000:00:00.0");
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *low, int *high)
{
    *low = 0;
    *high = -5;
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaSuccess ? "cudaSuccess" : "pretended error";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return cudaGetErrorName(error);
}

/* ---- memory ---- */

cudaError_t cudaMemGetInfo(size_t *free_out, size_t *total_out)
{
    *free_out = *total_out = (size_t)8 << 30;
    return cudaSuccess;
}

pretended_memory pretended_held;

static size_t looked_at(size_t bytes)
{
    return pretended_is_brief() && bytes > LOOKED_AT ? LOOKED_AT : bytes;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    *out = aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (*out == NULL)
        return cudaErrorMemoryAllocation;
    memset(*out, 0xa5, looked_at(bytes)); /* a GPU's is not cleared either */
    pretended_held.allocations++;
    pretended_held.bytes += malloc_usable_size(*out);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    return cudaMalloc(out, bytes);
}

cudaError_t cudaFree(void *memory)
{
    pretended_held.allocations -= memory != NULL;
    pretended_held.bytes -= malloc_usable_size(memory);
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}

DONE(cudaHostRegister(void *memory, size_t bytes, unsigned flags))
DONE(cudaHostUnregister(void *memory))

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *memory)
{
    memset(out, 0, sizeof(*out));
    out->type = cudaMemoryTypeDevice;
    out->devicePointer = out->hostPointer = (void *)(uintptr_t)memory;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind, (void)stream;
    memmove(to, from, looked_at(bytes));
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memset(to, value, looked_at(bytes));
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(to, from, bytes, kind, NULL);
}

/* ---- streams, events, graphs ---- */

/* Of a graph is kept what it holds, since the library waits for that to be let go, and its last launch. */
enum { MAX_HELD = 4096 };
struct CUuserObject_st {
    cudaHostFn_t destroy;
    void *what;
    unsigned references;
};
struct CUgraph_st {
    cudaLaunchConfig_t launch;
    unsigned num_held;
    cudaUserObject_t held[MAX_HELD];
};
struct CUgraphExec_st {
    struct CUgraph_st graph;
};
static cudaGraph_t captured; /* NULL: no stream is captured */

MADE(cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags), out)
MADE(cudaEventCreate(cudaEvent_t *out), out)
DONE(cudaStreamDestroy(cudaStream_t stream))
DONE(cudaStreamSynchronize(cudaStream_t stream))
DONE(cudaStreamQuery(cudaStream_t stream))
DONE(cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags))
DONE(cudaEventDestroy(cudaEvent_t event))
DONE(cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags))
DONE(cudaEventSynchronize(cudaEvent_t event))
DONE(cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream))

cudaError_t cudaUserObjectCreate(cudaUserObject_t *out, void *what, cudaHostFn_t destroy,
                                 unsigned count, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof(**out));
    if (*out == NULL)
        return cudaErrorMemoryAllocation;
    **out = (struct CUuserObject_st){destroy, what, count};
    return cudaSuccess;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count)
{
    object->references -= count;
    if (object->references == 0) {
        object->destroy(object->what);
        free(object);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count,
                                      unsigned flags)
{
    if (count != 1 || flags != cudaGraphUserObjectMove || graph->num_held == MAX_HELD)
        abort();
    graph->held[graph->num_held++] = object;
    return cudaSuccess;
}

static void let_go(struct CUgraph_st *graph)
{
    while (graph->num_held > 0)
        cudaUserObjectRelease(graph->held[--graph->num_held], 1);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    *out = calloc(1, sizeof(**out));
    if (*out == NULL)
        return cudaErrorMemoryAllocation;
    (*out)->graph = *graph;
    for (unsigned i = 0; i < graph->num_held; i++)
        graph->held[i]->references++;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    let_go(graph);
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    let_go(&graph->graph);
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *out, cudaEvent_t begin, cudaEvent_t end)
{
    (void)begin, (void)end;
    *out = 1;
    return cudaSuccess;
}

/* A graph with a launch is its own node. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *num)
{
    const bool has_node = graph->launch.blockDim.x > 0;
    if (nodes && *num > 0 && has_node)
        *nodes = (cudaGraphNode_t)graph;
    *num = has_node;
    return cudaSuccess;
}

void pretended_keep_node(const cudaLaunchConfig_t *config)
{
    if (captured)
        captured->launch = *config;
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *out)
{
    (void)node;
    *out = cudaGraphNodeTypeKernel;
    return cudaSuccess;
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, struct cudaKernelNodeParams *out)
{
    const cudaLaunchConfig_t *launch = &((cudaGraph_t)node)->launch;
    *out = (struct cudaKernelNodeParams){.gridDim = launch->gridDim,
                                         .blockDim = launch->blockDim,
                                         .sharedMemBytes = (unsigned)launch->dynamicSmemBytes};
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)stream, (void)mode;
    captured = calloc(1, sizeof(*captured));
    return captured ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    (void)stream;
    *out = captured;
    captured = NULL;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
    (void)stream;
    *out = captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *out,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *num)
{
    if (id)
        *id = 1;
    if (graph)
        *graph = captured;
    if (nodes)
        *nodes = NULL;
    if (edges)
        *edges = NULL;
    if (num)
        *num = 0;
    return cudaStreamIsCapturing(stream, out);
}
