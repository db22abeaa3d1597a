/* Devices, and the streams, events and graphs of a device.
 *
 * A device is "host" (this process's memory; always there) or "cuda". Everything below works on
 * both, so a program can be tried without a GPU. On cuda a pst_stream is a cudaStream_t and a
 * pst_event a cudaEvent_t: a program's own streams and captures pass as they are, and the
 * functions below are only needed by programs that want both devices.
 *
 * On host, work enqueued on a stream is done before the call returns, and a captured graph is the
 * recorded list of calls. Streams of host still matter: capture works per stream, and events order
 * threads that use different streams. A stream or event of host that is another device's, or was
 * destroyed, is INVALID. (Of a destroyed one's address a later one may be made, but late; with
 * PAGESTASH_CHECK=1 never. On cuda it is the driver who knows them.)
 *
 * While a stream is being captured, every device forbids what CUDA does where the capture was begun
 * with cudaStreamCaptureModeThreadLocal. Such a call answers CAPTURE and does nothing, and breaks the
 * capture: what is enqueued into it afterwards answers CAPTURE too, and so does pst_graph_end.
 *   - by the thread that began the capture: device_alloc, device_alloc_pinned, device_free,
 *     device_free_pinned, device_synchronize, stream_synchronize, event_synchronize, event_elapsed;
 *     so also to make what has device memory
 *   - by any thread: device_synchronize of the device, and so to destroy or resize a pool and to
 *     destroy a ticket; of a stream that is captured, the origin or one that joined,
 *     stream_synchronize, stream_destroy and graph_begin; of an event whose last record is in a
 *     capture, synchronize and elapsed, also after that capture
 *   - waits that would join two captures, or a capture and what is outside it: a captured stream
 *     waits for an event recorded elsewhere, or the default stream for one recorded in a capture
 *   - graph_end by another thread, or of a stream that joined
 * On cuda a stream that the program made without cudaStreamNonBlocking also forbids, while it is
 * captured, all use of the default stream; streams of this library are non-blocking on all devices.
 *
 * Processes: after a fork the child may use devices that the parent opened on host, with memory of its
 * own, and its pools, if no other thread was inside a call of theirs; on cuda each call of the child
 * answers NO_DEVICE, and destroys nothing of the parent's.
 *
 * Threads: a device may be used by any number of threads; a stream by one at a time.
 */
#ifndef PAGESTASH_DEVICE_H
#define PAGESTASH_DEVICE_H

#include <pagestash/status.h>

typedef struct pst_device pst_device;   /* an open device, of pst_device_open */
typedef struct pst_graph pst_graph;     /* an executable graph */
typedef struct CUstream_st *pst_stream; /* NULL: the default stream, which cannot be captured */
typedef struct CUevent_st *pst_event;   /* on cuda a cudaEvent_t */

#define PST_DEVICE_NAMES "auto|host|cuda" /* what pst_device_open takes */

/* Where memory lies and work runs. */
typedef enum pst_device_kind {
    PST_DEVICE_HOST = 0, /* this process's memory and threads */
    PST_DEVICE_CUDA = 1  /* a GPU of NVIDIA */
} pst_device_kind;

/* How a launch of stash or restore copies. */
typedef enum pst_backend {
    PST_BACKEND_AUTO = 0, /* PAGESTASH_BACKEND if that is set; else LDG, or BULK where there is one
                           * and each tensor of the group has one segment, packed, at an address that
                           * 16 does not divide. A GLU is LDG */
    PST_BACKEND_LDG = 1,  /* 16-byte loads and stores by many threads */
    PST_BACKEND_BULK = 2, /* asynchronous bulk copies through a ring of 128 KiB of shared memory, by
                           * one block per SM; from compute capability 9.0 */
    PST_BACKEND_SQUEEZE = 3 /* bulk, through a ring of 16 KiB: finds room on an SM beside a kernel
                             * that leaves little */
} pst_backend;

/* What a device is. */
typedef struct pst_device_info {
    pst_device_kind kind;   /* which of the two it is */
    char name[128];         /* the GPU's, or "host"; ends in 0 */
    int index;              /* as given to pst_device_open */
    int num_sms;            /* 1 on host */
    int compute_capability; /* 90 for 9.0; 0 on host */
    uint32_t backends;      /* set of bits 1 << pst_backend that can be asked for; 0 on host */
    uint64_t total_bytes;   /* memory of the device */
    uint64_t free_bytes;    /* what an allocation can hope for now */
} pst_device_info;

/* Frozen. */
typedef struct pst_graph_info {
    uint64_t num_nodes;   /* all */
    uint64_t num_kernels; /* kernel launches */
} pst_graph_info;

PST_BEGIN_DECLS

/* Opens a device: name is "host", "cuda", or "auto" (cuda if there is one, else host); index picks
 * one of several GPUs and is 0 on host.
 * Fails: INVALID (unknown name, index, environment), NO_DEVICE, UNSUPPORTED (cuda asked of a
 * library built without), NOMEM, CUDA. */
PST_API pst_status pst_device_open(const char *name, int index, pst_device **device_out);

/* NULL is allowed. Fails: BUSY while pools, dirty words, arenas, streams, events, graphs or
 * allocations of this device exist; the message counts each kind. */
PST_API pst_status pst_device_close(pst_device *device);

/* What the device is, and its memory now. Fails: INVALID, CUDA. */
PST_API pst_status pst_device_get_info_sized(pst_device *device, pst_device_info *info_out,
                                             size_t info_bytes);
static inline pst_status pst_device_get_info(pst_device *device, pst_device_info *info_out)
{
    return pst_device_get_info_sized(device, info_out, sizeof(pst_device_info));
}

/* `bytes` of device memory, aligned to 256. Content undefined. Synchronous.
 * Fails: INVALID (0 bytes), DEVICE_NOMEM with the bytes asked and free, CAPTURE. */
PST_API pst_status pst_device_alloc(pst_device *device, size_t bytes, void **address_out);
PST_API pst_status pst_device_free(pst_device *device, void *address); /* NULL is allowed */

/* Pinned host memory that both sides can address, aligned to 256, zeroed. */
PST_API pst_status pst_device_alloc_pinned(pst_device *device, size_t bytes, void **address_out);
PST_API pst_status pst_device_free_pinned(pst_device *device, void *address);

/* Enqueues a copy between any two places of host and device memory; a fill with one byte value.
 * Can be captured. pre: the memory lives until the stream has passed this point. */
PST_API pst_status pst_device_copy(pst_device *device, void *destination, const void *source,
                                   size_t bytes, pst_stream stream);
PST_API pst_status pst_device_fill(pst_device *device, void *destination, uint8_t value,
                                   size_t bytes, pst_stream stream);

/* Waits for all work of the device. Fails: CAPTURE, CUDA with the error of earlier asynchronous
 * work. */
PST_API pst_status pst_device_synchronize(pst_device *device);

/* A stream of its own, on cuda one that does not wait for the default stream; or the end of all
 * that was enqueued on one. Fails: INVALID, NOMEM, BUSY (destroy: a capture), CAPTURE, CUDA. */
PST_API pst_status pst_stream_create(pst_device *device, pst_stream *stream_out);
PST_API pst_status pst_stream_destroy(pst_device *device, pst_stream stream); /* NULL is allowed */
PST_API pst_status pst_stream_synchronize(pst_device *device, pst_stream stream);

/* Events that can be timed. record and wait may be captured; the external forms become nodes of
 * the graph, so that an event orders work of separately captured graphs. Outside capture they are
 * the same as record and wait. Waiting for an event never recorded does not wait. */
PST_API pst_status pst_event_create(pst_device *device, pst_event *event_out);
PST_API pst_status pst_event_destroy(pst_device *device, pst_event event); /* NULL is allowed */
PST_API pst_status pst_event_record(pst_device *device, pst_event event, pst_stream stream);
PST_API pst_status pst_event_wait(pst_device *device, pst_event event, pst_stream stream);
PST_API pst_status pst_event_record_external(pst_device *device, pst_event event,
                                             pst_stream stream);
PST_API pst_status pst_event_wait_external(pst_device *device, pst_event event, pst_stream stream);
/* Blocks the calling thread until the event's last record has been passed. Fails: CAPTURE. */
PST_API pst_status pst_event_synchronize(pst_device *device, pst_event event);
/* Seconds from one event to the other; both recorded and passed. Fails: INVALID, CAPTURE, CUDA. */
PST_API pst_status pst_event_elapsed(pst_device *device, pst_event begin, pst_event end,
                                     double *seconds_out);

/* Capture: what is enqueued on `stream` between begin and end, and on every stream joined to it by
 * event_record and event_wait, is recorded instead of run. end gives an executable graph, and is
 * called by the thread that called begin.
 * Fails: CAPTURE (begin: NULL stream or already capturing; end: not capturing, a joined stream was
 * not joined back, or a forbidden call broke the capture), NOMEM, CUDA. A failed end leaves no graph,
 * and ends the capture if `stream` is its origin and the thread is right. */
PST_API pst_status pst_graph_begin(pst_device *device, pst_stream stream);
PST_API pst_status pst_graph_end(pst_device *device, pst_stream stream, pst_graph **graph_out);
PST_API pst_status pst_graph_launch(pst_graph *graph, pst_stream stream);
PST_API pst_status pst_graph_get_info(const pst_graph *graph, pst_graph_info *info_out);
/* NULL is allowed. pre: the graph is not running. On cuda a thread of the driver lets go of what it
 * held shortly afterwards; the destroy calls wait a moment for that before they answer BUSY. */
PST_API pst_status pst_graph_destroy(pst_graph *graph);

PST_END_DECLS

#endif
