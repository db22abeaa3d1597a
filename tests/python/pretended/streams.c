/* Streams, events, and which of them are captured. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime.h"

enum { MAX_PRIORITY = -5 };

static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
static uint64_t num_kernels;

/* A stream or event; of an event the capture of its last record. */
typedef struct object {
    const void *handle;
    capture *in;
    int priority;
    unsigned flags;
    struct object *next;
} object;

static object *streams, *events;
static capture *captures;
static unsigned long long num_captures;

static object *find(object *in, const void *handle)
{
    while (in && in->handle != handle)
        in = in->next;
    return in;
}

static void add(object **to, const void *handle, unsigned flags, int priority)
{
    object *what = pretended_zeroed(sizeof(*what));
    pthread_mutex_lock(&pretended_lock);
    *what = (object){handle, NULL, priority, flags, *to};
    *to = what;
    pthread_mutex_unlock(&pretended_lock);
}

static void take_away(object **from, const void *handle)
{
    pthread_mutex_lock(&pretended_lock);
    while (*from && (*from)->handle != handle)
        from = &(*from)->next;
    object *what = *from;
    if (what)
        *from = what->next;
    free(what);
    pthread_mutex_unlock(&pretended_lock);
}

capture *pretended_capture_of(cudaStream_t stream)
{
    pthread_mutex_lock(&pretended_lock);
    const object *what = find(streams, stream);
    capture *in = what ? what->in : NULL;
    pthread_mutex_unlock(&pretended_lock);
    return in;
}

/* Of an operation of a stream: a refusal of the host device breaks the capture. */
cudaError_t pretended_enqueued(cudaStream_t stream, pst_status status)
{
    capture *in = status == PST_OK ? NULL : pretended_capture_of(stream);
    if (in)
        in->is_broken = true;
    return pretended_of_status(status);
}

/* As the driver says of calls that could block (cudaThreadExchangeStreamCaptureMode). They break
 * what is captured. */
bool pretended_is_forbidden(void)
{
    bool forbidden = false;
    pthread_mutex_lock(&pretended_lock);
    for (const capture *at = captures; at; at = at->next) {
        const bool is_ours = pthread_equal(at->thread, pthread_self());
        if (thread_mode != cudaStreamCaptureModeRelaxed && is_ours &&
            at->mode != cudaStreamCaptureModeRelaxed)
            forbidden = true;
        if (thread_mode == cudaStreamCaptureModeGlobal && at->mode == cudaStreamCaptureModeGlobal)
            forbidden = true;
    }
    for (capture *at = captures; at && forbidden; at = at->next)
        at->is_broken = true;
    pthread_mutex_unlock(&pretended_lock);
    if (forbidden && pretended_pst.device_synchronize(pretended_device()) == PST_OK)
        pretended_leave("a capture", "the host device does not know of it");
    return forbidden;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    const enum cudaStreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    const pst_status status = pretended_pst.stream_create(pretended_device(), stream);
    if (status == PST_OK)
        add(&streams, *stream, flags, priority);
    return pretended_of_status(status);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, 0, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    const pst_status status = pretended_pst.stream_destroy(pretended_device(), stream);
    if (status == PST_OK)
        take_away(&streams, stream);
    return pretended_of_status(status);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    const object *what = find(streams, stream);
    *priority = what ? what->priority : 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = MAX_PRIORITY;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return pretended_is_forbidden()
               ? pretended_answer(cudaErrorStreamCaptureUnsupported)
               : pretended_enqueued(stream,
                                    pretended_pst.stream_synchronize(pretended_device(), stream));
}

/* Work is done when it was enqueued. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    (void)stream;
    return pretended_is_forbidden() ? pretended_answer(cudaErrorStreamCaptureUnsupported)
                                    : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return pretended_is_forbidden()
               ? pretended_answer(cudaErrorStreamCaptureUnsupported)
               : pretended_of_status(pretended_pst.device_synchronize(pretended_device()));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    const pst_status status = pretended_pst.event_create(pretended_device(), event);
    if (status == PST_OK)
        add(&events, *event, flags, 0);
    return pretended_of_status(status);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    const pst_status status = pretended_pst.event_destroy(pretended_device(), event);
    if (status == PST_OK)
        take_away(&events, event);
    return pretended_of_status(status);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    const bool is_external = flags == cudaEventRecordExternal;
    const cudaError_t error = pretended_enqueued(
        stream, is_external ? pretended_pst.event_record_external(pretended_device(), event, stream)
                            : pretended_pst.event_record(pretended_device(), event, stream));
    capture *in = pretended_capture_of(stream);
    pthread_mutex_lock(&pretended_lock);
    object *what = find(events, event);
    if (what && error == cudaSuccess)
        what->in = is_external ? NULL : in;
    pthread_mutex_unlock(&pretended_lock);
    return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    const bool is_external = flags == cudaEventWaitExternal;
    const cudaError_t error = pretended_enqueued(
        stream, is_external ? pretended_pst.event_wait_external(pretended_device(), event, stream)
                            : pretended_pst.event_wait(pretended_device(), event, stream));
    pthread_mutex_lock(&pretended_lock);
    const object *what = find(events, event);
    object *waits = find(streams, stream);
    if (what && waits && what->in && error == cudaSuccess && !is_external)
        waits->in = what->in;
    pthread_mutex_unlock(&pretended_lock);
    return error;
}

static cudaError_t look_at(cudaEvent_t event)
{
    pthread_mutex_lock(&pretended_lock);
    const object *what = find(events, event);
    const bool is_captured = what && what->in;
    pthread_mutex_unlock(&pretended_lock);
    if (is_captured)
        return pretended_answer(cudaErrorCapturedEvent);
    return pretended_is_forbidden() ? pretended_answer(cudaErrorStreamCaptureUnsupported)
                                    : cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return look_at(event);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    const cudaError_t error = look_at(event);
    return error ? error
                 : pretended_of_status(pretended_pst.event_synchronize(pretended_device(), event));
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    double seconds = 0;
    const pst_status status = pretended_pst.event_elapsed(pretended_device(), begin, end, &seconds);
    *milliseconds = (float)(seconds * 1e3);
    return pretended_of_status(status);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    const pst_status status = pretended_pst.graph_begin(pretended_device(), stream);
    if (status != PST_OK)
        return pretended_answer(cudaErrorStreamCaptureUnsupported);
    capture *begun = pretended_zeroed(sizeof(*begun));
    pthread_mutex_lock(&pretended_lock);
    *begun = (capture){.id = ++num_captures,
                       .origin = stream,
                       .thread = pthread_self(),
                       .mode = mode,
                       .graph = pretended_zeroed(sizeof(*begun->graph)),
                       .next = captures};
    begun->graph->num_owners = 1;
    captures = begun;
    find(streams, stream)->in = begun;
    pthread_mutex_unlock(&pretended_lock);
    return cudaSuccess;
}

/* The streams that joined are nobody's again; its events stay captured ones until recorded anew. */
static void forget(capture *ended)
{
    static capture past; /* where events of captures that have ended point to */
    pthread_mutex_lock(&pretended_lock);
    for (object *at = streams; at; at = at->next)
        at->in = at->in == ended ? NULL : at->in;
    for (object *at = events; at; at = at->next)
        at->in = at->in == ended ? &past : at->in;
    for (capture **at = &captures; *at; at = &(*at)->next)
        if (*at == ended) {
            *at = ended->next;
            break;
        }
    pthread_mutex_unlock(&pretended_lock);
    free(ended);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    capture *in = pretended_capture_of(stream);
    *graph = NULL;
    if (!in || in->origin != stream)
        return pretended_answer(cudaErrorStreamCaptureUnmatched);
    struct CUgraph_st *made = in->graph;
    const pst_status status = pretended_pst.graph_end(pretended_device(), stream, &made->graph);
    made->num_kernels = in->num_kernels;
    forget(in);
    if (status == PST_OK)
        *graph = made;
    else
        pretended_let_go(made);
    return pretended_of_status(status);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    const capture *in = pretended_capture_of(stream);
    *status = !in             ? cudaStreamCaptureStatusNone
              : in->is_broken ? cudaStreamCaptureStatusInvalidated
                              : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *num_nodes)
{
    const capture *in = pretended_capture_of(stream);
    cudaStreamIsCapturing(stream, status);
    if (id)
        *id = in ? in->id : 0;
    if (graph)
        *graph = in ? in->graph : NULL;
    if (nodes)
        *nodes = NULL;
    if (edges)
        *edges = NULL;
    if (num_nodes)
        *num_nodes = 0;
    return cudaSuccess;
}

/* ---- launches ---- */

uint64_t pretended_kernels(void)
{
    return __atomic_load_n(&num_kernels, __ATOMIC_RELAXED);
}

/* PRETENDED_LEAVE_AT=N: the process ends at its N-th launch, and says so; one that fails before does not. */
static void leave_at(uint64_t launches)
{
    const char *until = getenv("PRETENDED_LEAVE_AT");
    if (!until || launches != strtoull(until, NULL, 10))
        return;
    fprintf(stderr, "pretended GPU: reached launch %llu; allocations: %llu, bytes: %llu\n",
            (unsigned long long)launches, (unsigned long long)pretended_mallocs(),
            (unsigned long long)pretended_allocated());
    _exit(1);
}

int pretended_launch(void *stream)
{
    capture *in = pretended_capture_of(stream);
    if (in && in->is_broken)
        return pretended_answer(cudaErrorStreamCaptureInvalidated);
    leave_at(1 + __atomic_fetch_add(in ? &in->num_kernels : &num_kernels, 1, __ATOMIC_RELAXED));
    return cudaSuccess;
}

void pretended_count_kernels(uint64_t count)
{
    __atomic_fetch_add(&num_kernels, count, __ATOMIC_RELAXED);
}
