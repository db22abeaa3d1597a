/* Room device: one table of functions per kind of device, and what fills it: the host's memory and
 * recorded graphs (device_host.c, host_graph.c), the CUDA runtime (device_cuda*.c, the only host files
 * that call CUDA).
 * Uses base and the launches of kernels/. Used by stash, comm and arena. */
#ifndef PSTI_HOST_DEVICE_H
#define PSTI_HOST_DEVICE_H

#include "host/base/base.h"
#include "host/base/handle.h"
#include "kernels/kernels.h"

/* ---- a graph's hold on what it uses ---- */

/* Into what a stream is being captured. Asked once by a call that enqueues, for all that it holds. */
typedef struct psti_capture_of {
    uint64_t id; /* of the capture, never used twice; 0: the stream is not captured */
    void *graph; /* cuda: the graph that grows; else NULL */
} psti_capture_of;

/* Counts captured graphs that use an object. All zero: none, and nobody is told. */
typedef struct psti_hold {
    uint32_t graphs;       /* atomic; read by psti_hold_count */
    uint64_t last_capture; /* atomic: held by it already. On cuda two captures that take turns may
                            * each hold several times, and let go as often */
    /* Told when the last graph let go, NULL: nobody. The object is still counted as held until it
     * returns; it may be told of two graphs at once. On cuda it runs on a thread of the driver's,
     * and must not call CUDA or wait for one who does. */
    void (*let_go)(struct psti_hold *hold);
} psti_hold;

/* ---- hold.c ---- */

/* Graphs that hold; on cuda it waits a moment for those just destroyed. */
uint32_t psti_hold_count(const pst_device *device, const psti_hold *hold);
/* Graphs that hold now, without the last one of which let_go tells at this moment. */
uint32_t psti_hold_users(const psti_hold *hold);
/* One graph more, one less. Called by the devices. */
void psti_hold_add(psti_hold *hold);
void psti_hold_drop(psti_hold *hold);

/* ---- memory that can grow in place ---- */

typedef struct psti_span {
    unsigned char *address; /* NULL: none */
    uint64_t reserved;      /* bytes of addresses */
    uint64_t mapped; /* bytes of memory, from the start; on cuda in multiples of granularity */
    uint64_t granularity;
    bool is_host;  /* host pages of a cuda device */
    void *state;   /* of the device's own kind */
    void *mapping; /* host memory: as it was reserved */
    size_t mapping_bytes;
} psti_span;

/* ---- span.c: the host's memory ---- */

/* Memory that the system and the control group still have. */
uint64_t psti_available_bytes(void);
pst_status psti_host_span_open(psti_span *span, uint64_t reserved);
/* Fails: NOMEM, also where that would leave the system too little. numa_node: -1 for any. */
pst_status psti_host_span_commit(psti_span *span, uint64_t from, uint64_t bytes, int numa_node);
void psti_host_span_decommit(psti_span *span, uint64_t from, uint64_t bytes);
pst_status psti_host_span_resize(psti_span *span, uint64_t bytes);
void psti_host_span_close(psti_span *span);

/* ---- the device table ---- */

/* What a host device does as part of a stream's work, in the thread that enqueues it or launches the
 * graph. args: a copy of what the call had. */
typedef pst_status psti_function(const void *args);

typedef struct psti_device_ops {
    void (*close)(pst_device *device);
    void (*in_child)(pst_device *device); /* after a fork; NULL: it goes on working there */
    pst_status (*get_info)(pst_device *device, pst_device_info *info);
    pst_status (*alloc)(pst_device *device, size_t bytes, void **address_out);
    pst_status (*free)(pst_device *device, void *address);
    pst_status (*alloc_pinned)(pst_device *device, size_t bytes, void **address_out);
    pst_status (*free_pinned)(pst_device *device, void *address);
    pst_status (*copy)(pst_device *device, void *to, const void *from, size_t bytes,
                       pst_stream stream);
    pst_status (*fill)(pst_device *device, void *to, uint8_t value, size_t bytes,
                       pst_stream stream);
    pst_status (*synchronize)(pst_device *device);
    pst_status (*stream_create)(pst_device *device, pst_stream *stream_out);
    pst_status (*stream_destroy)(pst_device *device, pst_stream stream);
    pst_status (*stream_synchronize)(pst_device *device, pst_stream stream);
    /* Whether all that was enqueued has ended. Forbidden where stream_synchronize is. */
    pst_status (*stream_query)(pst_device *device, pst_stream stream, bool *idle_out);
    pst_status (*event_create)(pst_device *device, pst_event *event_out);
    pst_status (*event_destroy)(pst_device *device, pst_event event);
    pst_status (*event_record)(pst_device *device, pst_event event, pst_stream stream,
                               bool external);
    pst_status (*event_wait)(pst_device *device, pst_event event, pst_stream stream, bool external);
    pst_status (*event_synchronize)(pst_device *device, pst_event event);
    pst_status (*event_elapsed)(pst_device *device, pst_event begin, pst_event end,
                                double *seconds_out);
    pst_status (*graph_begin)(pst_device *device, pst_stream stream);
    pst_status (*graph_end)(pst_device *device, pst_stream stream, pst_graph *graph);
    pst_status (*graph_launch)(pst_graph *graph, pst_stream stream);
    void (*graph_destroy)(pst_graph *graph);
    pst_status (*capture_of)(pst_device *device, pst_stream stream, psti_capture_of *capture_out);
    /* The graph counts in hold->graphs until it dies. pre: capture->id != 0 */
    pst_status (*hold)(pst_device *device, const psti_capture_of *capture, psti_hold *hold);
    /* Enqueues one operation; args is copied. */
    pst_status (*launch)(pst_device *device, psti_op op, const void *args, pst_stream stream);
    /* Enqueues a function with `bytes` of args, aligned to 16, which are copied. What it answers, this
     * call answers, or each launch of the graph, which ends there. NULL on cuda. */
    pst_status (*call)(pst_device *device, psti_function *function, const void *args, size_t bytes,
                       pst_stream stream);
    /* Calls a function in which the device is the current one, of libraries that go by that. */
    pst_status (*within)(pst_device *device, psti_function *function, const void *args);
    /* With PAGESTASH_CHECK=1: INVALID where a launch must not touch these bytes. As far as the device
     * can tell; what is not there is noticed, what is too short not always. bytes: at least 1. */
    pst_status (*check_address)(pst_device *device, const void *address, uint64_t bytes);
    /* Pages of a tier that can grow. Synchronous. After a failed resize the span is as before. */
    pst_status (*span_open)(pst_device *device, uint32_t tier, uint64_t reserved, psti_span *span);
    pst_status (*span_resize)(pst_device *device, psti_span *span, uint64_t bytes);
    void (*span_close)(pst_device *device, psti_span *span);
} psti_device_ops;

/* X(kind, one, several): what keeps a device open */
#define PSTI_LIVE_LIST(X)                                       \
    X(POOL, "pool", "pools")                                    \
    X(DIRTY, "object of dirty words", "objects of dirty words") \
    X(ARENA, "arena", "arenas")                                 \
    X(SCHEDULER, "scheduler", "schedulers")                     \
    X(SCRATCH, "scratch", "scratches")                          \
    X(COMM, "communicator", "communicators")                    \
    X(STREAM, "stream", "streams")                              \
    X(EVENT, "event", "events")                                 \
    X(GRAPH, "graph", "graphs")                                 \
    X(ALLOCATION, "allocation", "allocations")

typedef enum psti_live {
#define PSTI_LIVE_ENUM(kind, one, several) PSTI_LIVE_##kind,
    PSTI_LIVE_LIST(PSTI_LIVE_ENUM)
#undef PSTI_LIVE_ENUM
        PSTI_LIVE_PART, /* of an object that is counted itself */
    PSTI_NUM_LIVE
} psti_live;

struct pst_device {
    psti_handle handle;
    const psti_device_ops *ops;
    pst_device_info info;           /* free_bytes as of open */
    pst_backend preset;             /* what auto means, unless it is auto itself */
    uint32_t live;                  /* atomic: objects of this device, and their parts */
    uint32_t num_of[PSTI_NUM_LIVE]; /* atomic: those objects that a caller made */
    void *state;                    /* of the device's own kind */
    /* Of room linear: what products need; NULL: there was none yet. Closed with the device. */
    void *products;
    void (*close_products)(struct pst_device *device);
    struct pst_device *next; /* of those that are open */
};

struct pst_graph {
    psti_handle handle;
    pst_device *device;
    pst_graph_info info;
    void *state;
};

/* ---- device.c ---- */

void psti_device_retain(pst_device *device, psti_live kind);
void psti_device_release(pst_device *device, psti_live kind);

/* The public functions without the prefix psti_part_, for the parts of an object that is counted. */
pst_status psti_part_alloc(pst_device *device, size_t bytes, void **address_out);
pst_status psti_part_free(pst_device *device, void *address); /* NULL is allowed */
pst_status psti_part_alloc_pinned(pst_device *device, size_t bytes, void **address_out);
pst_status psti_part_free_pinned(pst_device *device, void *address); /* NULL is allowed */
pst_status psti_part_stream_create(pst_device *device, pst_stream *stream_out);
pst_status psti_part_stream_destroy(pst_device *device, pst_stream stream); /* NULL is allowed */
pst_status psti_part_event_create(pst_device *device, pst_event *event_out);
pst_status psti_part_event_destroy(pst_device *device, pst_event event); /* NULL is allowed */

/* ---- fork.c ---- */

/* A device that was opened, and before it is closed. */
void psti_device_add(pst_device *device);
void psti_device_remove(pst_device *device);
/* The in_child of a device that a child cannot use: its calls answer NO_DEVICE from now on. */
void psti_device_die(pst_device *device);
/* Before memory of the device's is read without a call of it. Fails: NO_DEVICE in such a child. */
pst_status psti_device_check_alive(const pst_device *device);

/* What is enqueued into the capture, if it is one, uses the object. */
static inline pst_status psti_hold_in(pst_device *device, const psti_capture_of *capture,
                                      psti_hold *hold)
{
    if (capture->id == 0 || __atomic_load_n(&hold->last_capture, __ATOMIC_RELAXED) == capture->id)
        return PST_OK;
    return device->ops->hold(device, capture, hold);
}

/* ---- device_host.c ---- */

/* A device whose operations run in the calling thread by `runners`; num_sms as reported. */
pst_status psti_host_device_make(const char *name, int num_sms, const psti_runners *runners,
                                 pst_device **device_out);

/* ---- the kinds of devices, in the order in which auto tries them ---- */

#define PSTI_DEVICE_LIST(X) X(cuda) X(host)

/* is_present says nothing where it is not. */
#define PSTI_DECLARE_DEVICE(name)        \
    bool psti_##name##_is_present(void); \
    pst_status psti_##name##_device_open(int index, pst_device **device_out);
PSTI_DEVICE_LIST(PSTI_DECLARE_DEVICE)
#undef PSTI_DECLARE_DEVICE

/* ---- backend.c ---- */

const char *psti_backend_name(pst_backend backend);
/* Takes PAGESTASH_BACKEND over and checks PAGESTASH_NUM_SMS. Fails: UNSUPPORTED, INVALID. */
pst_status psti_backend_preset(pst_device *device);

#endif
