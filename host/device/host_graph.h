/* Capture on the host device: a list of calls in the order they were made, which is one of the
 * orders that its edges allow. Streams join a capture by waiting for an event recorded in it, and
 * must be joined back to the origin before it ends. What must not be called is what CUDA forbids
 * (device.h has the list), and breaks the capture as there. */
#ifndef PSTI_HOST_GRAPH_H
#define PSTI_HOST_GRAPH_H

#include "host/device/device.h"

typedef enum psti_node_kind {
    PSTI_NODE_LAUNCH,
    PSTI_NODE_COPY,
    PSTI_NODE_FILL,
    PSTI_NODE_CALL,
    PSTI_NODE_RECORD,
    PSTI_NODE_WAIT
} psti_node_kind;

typedef struct psti_node {
    psti_node_kind kind;
    psti_op op;
    psti_function *function;
    uint8_t value;
    void *args; /* owned */
    void *to;
    const void *from;
    size_t bytes;
    pst_event event;
} psti_node;

typedef struct psti_node_list {
    psti_node *nodes;
    size_t num_nodes, nodes_capacity;
    psti_hold **holds;
    size_t num_holds, holds_capacity;
} psti_node_list;

typedef struct psti_capture {
    uint64_t id; /* from 1 */
    pst_stream origin;
    pst_stream streams; /* all that joined, the origin too, by next_captured */
    psti_node_list *list;
    bool failed;           /* no memory for a call */
    const char *broken_by; /* atomic: the first call that a capture forbids, or NULL */
    struct psti_capture *next;
    struct psti_capture *next_here; /* of the thread that began it, and must end it */
} psti_capture;

struct CUstream_st {
    psti_capture *captured; /* NULL: work runs at once */
    uint64_t position;      /* grows with every call recorded on this stream */
    uint64_t joined_at;     /* position that another stream has waited for */
    pst_stream next_captured;
    void *above; /* of a device that is made on top of a host device; NULL on the host device */
};

struct CUevent_st {
    uint64_t nanoseconds; /* atomic: time of the last record, 0: never */
    uint64_t capture_id;  /* of the capture it was recorded in, 0: none */
    pst_stream stream;    /* alive as long as that capture */
    uint64_t position;    /* of that stream, after the record */
    void *above;          /* as a stream's */
};

_Static_assert(sizeof(struct CUstream_st) <= 56 && sizeof(struct CUevent_st) <= 56,
               "a slot has 64 bytes, the last 8 are for the list of free ones");

/* Captures that are open now; the caller serialises with the device's lock. */
typedef struct psti_captures {
    psti_capture *first;
    uint64_t count; /* ever begun */
} psti_captures;

pst_status psti_capture_begin(psti_captures *captures, pst_stream stream);
/* Ends the capture. *list_out is the graph; where it fails, NULL or what is to be freed of it, by
 * then without the lock, since objects are told. */
pst_status psti_capture_end(psti_captures *captures, pst_stream stream, psti_node_list **list_out);
/* The stream joins the capture that the event was recorded in. */
pst_status psti_capture_join(const psti_captures *captures, pst_stream stream, pst_event event);
/* The event is recorded as the place that the stream's capture has reached. */
pst_status psti_capture_mark(pst_stream stream, pst_event event);
pst_status psti_capture_append(pst_stream stream, const psti_node *node);
/* The open capture of that number, or NULL. */
psti_capture *psti_capture_find(const psti_captures *captures, uint64_t id);
pst_status psti_capture_hold(psti_capture *captured, psti_hold *hold);
/* What follows is refused, and the end too. */
void psti_capture_break(psti_capture *captured, const char *call);
/* All that are open; whether there was one. */
bool psti_captures_break(psti_captures *captures, const char *call);
/* CAPTURE where the calling thread has captures, on any host device, and breaks them. */
pst_status psti_capture_forbids(const char *call);
void psti_nodes_free(psti_node_list *list); /* NULL is allowed */

#endif
