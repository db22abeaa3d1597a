/* A CUDA runtime without a GPU, to be linked in place of cudart: memory is the process's, streams are in
 * order because everything is done at once, captures are empty, and kernels are named and do nothing. With it
 * the real programs go as far as their first launch; what they say of the bytes then must be that they are
 * wrong. PRETENDED_LAUNCHES names the file that gets a line for each launch; with PRETENDED_NO_DEVICE there is
 * no device, with PRETENDED_NO_CODE one that no kernel was built for. */
#include <cuda_runtime_api.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_SMS = 132, MAX_KERNELS = 256 };

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

/* ---- kernels ---- */

static struct {
    const void *host;
    const char *name;
} kernels[MAX_KERNELS];
static int num_kernels;

void **__cudaRegisterFatBinary(void *binary);
char __cudaInitModule(void **handle);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *size);

void **__cudaRegisterFatBinary(void *binary)
{
    static void *handle;
    (void)binary;
    return &handle;
}

/* A build without optimisation keeps the function that calls it. */
char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *size)
{
    (void)handle, (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid,
        (void)size;
    if (num_kernels == MAX_KERNELS)
        abort();
    kernels[num_kernels].host = host;
    kernels[num_kernels++].name = name;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **args)
{
    const char *path = getenv("PRETENDED_LAUNCHES");
    FILE *file = path ? fopen(path, "a") : NULL;
    int i = 0;
    (void)args;
    while (i < num_kernels && kernels[i].host != kernel)
        i++;
    if (i == num_kernels || config->blockDim.x == 0 || config->blockDim.x > 1024)
        return cudaErrorInvalidDeviceFunction;
    if (file) {
        fprintf(file, "%s %u x %u, %zu bytes shared\n", kernels[i].name, config->gridDim.x,
                config->blockDim.x, config->dynamicSmemBytes);
        fclose(file);
    }
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *kernel)
{
    (void)kernel;
    memset(out, 0, sizeof(*out));
    if (getenv("PRETENDED_NO_CODE") != NULL)
        return cudaErrorNoKernelImageForDevice;
    out->ptxVersion = out->binaryVersion = 90;
    out->numRegs = 56;
    out->maxThreadsPerBlock = 1024;
    return cudaSuccess;
}

DONE(cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute what, int value))

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *kernel, int threads,
                                                          size_t shared)
{
    (void)kernel, (void)shared;
    *out = 1024 / (threads ? threads : 1);
    return cudaSuccess;
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
    (void)device;
    switch ((int)what) {
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *out = 227 << 10;
        break;
    case cudaDevAttrMultiProcessorCount:
        *out = NUM_SMS;
        break;
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
        *out = 1;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *out = 9;
        break;
    default:
        *out = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *low, int *high)
{
    *low = 0;
    *high = -5;
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    (void)name, (void)version, (void)flags;
    *out = NULL;
    if (result)
        *result = cudaDriverEntryPointSymbolNotFound;
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

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    *out = aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (*out)
        memset(*out, 0xa5, bytes); /* a GPU's is not cleared either */
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    return cudaMalloc(out, bytes);
}

cudaError_t cudaFree(void *memory)
{
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
    memmove(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memset(to, value, bytes);
    return cudaSuccess;
}

/* ---- streams, events, graphs ---- */

/* Of a graph only what it holds is kept, since the library waits for that to be let go. */
enum { MAX_HELD = 16 };
struct CUuserObject_st {
    cudaHostFn_t destroy;
    void *what;
    unsigned references;
};
struct CUgraph_st {
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

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *num)
{
    (void)graph, (void)nodes;
    *num = 0;
    return cudaSuccess;
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *out)
{
    (void)node;
    *out = cudaGraphNodeTypeEmpty;
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

/* What the generated code around kernels links, and pagestash does not call. */
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaGetKernel(void **kernel, const void *host);
cudaError_t __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                               void *stream);

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
    (void)grid, (void)block, (void)shared, (void)stream;
    abort();
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    (void)grid, (void)block, (void)shared, (void)stream;
    abort();
}

cudaError_t __cudaGetKernel(void **kernel, const void *host)
{
    (void)kernel, (void)host;
    abort();
}

cudaError_t __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                               void *stream)
{
    (void)kernel, (void)grid, (void)block, (void)args, (void)shared, (void)stream;
    abort();
}
