/* Shared by the files of the lazy device. */
#ifndef PAGESTASH_TESTS_LAZY_H
#define PAGESTASH_TESTS_LAZY_H

#include <pthread.h>

#include "host/device/host_device.h"
#include "tests/lazy/lazy_device.h"

/* One record of an event: done when its node has run. */
typedef struct lazy_mark {
    uint32_t refs;
    bool is_done;
    uint32_t stream_index; /* where it was recorded */
} lazy_mark;

/* A set of nodes of a capture. */
typedef struct lazy_nodes {
    uint32_t *nodes;
    size_t num, capacity;
} lazy_nodes;

typedef struct lazy_edge {
    uint32_t from, to;
} lazy_edge;

/* A capture that is open: what the list of the host device does not say. */
typedef struct lazy_capture {
    uint64_t id;
    lazy_edge *edges;
    size_t num_edges, edges_capacity;
    uint32_t *stream_of; /* stream_index by node */
    size_t num_nodes, nodes_capacity;
    struct lazy_capture *next;
} lazy_capture;

/* pst_graph.state of a lazy device. */
typedef struct lazy_graph {
    psti_node_list *list;
    uint32_t *first_after; /* num_nodes + 1; of `after` */
    uint32_t *after;       /* the nodes that wait for a node */
    uint32_t *num_before;
    uint32_t *stream_of;
    lazy_mark *last_launch; /* NULL: none */
} lazy_graph;

/* One launch of a graph. */
typedef struct lazy_instance {
    const pst_graph *handle;
    const lazy_graph *graph;
    uint32_t *num_before; /* that have not run */
    uint32_t *ready;      /* nodes that wait for no other node */
    size_t num_ready, num_left;
    lazy_mark **marks; /* by node, of records and waits; NULL: nothing to wait for */
    bool has_begun;
} lazy_instance;

typedef struct lazy_event {
    lazy_mark *last;         /* NULL: never recorded */
    lazy_nodes place;        /* recorded in a capture: what it waits for */
    struct lazy_event *next; /* of all ever made */
} lazy_event;

/* An element of a queue: a node, or the launch of a graph. */
typedef struct lazy_work {
    uint64_t number;
    psti_node node;
    lazy_mark *mark;         /* record: to be done at the end; graph too */
    lazy_mark *awaited;      /* NULL: nothing; of a graph its launch before */
    lazy_instance *instance; /* NULL: a node */
    bool is_external;
    struct lazy_work *next;
} lazy_work;

typedef struct lazy_queue {
    pst_stream stream;
    uint32_t index;
    bool is_closed; /* the stream was destroyed; what it has still runs */
    bool is_held;
    uint32_t weight;
    lazy_work *first, *last;
    uint64_t capture_id; /* that `place` belongs to */
    lazy_nodes place;    /* nodes of the capture that the next one waits for */
    struct lazy_queue *next;
} lazy_queue;

typedef struct lazy_device {
    pst_device *device;
    const psti_device_ops *real; /* the host device's */
    psti_device_ops ops;
    pthread_mutex_t mutex;
    lazy_options options;
    uint64_t random;
    uint64_t calls, fails_at;
    uint32_t num_streams;
    lazy_queue *queues; /* the last made first; the NULL stream's is the last */
    lazy_queue null_queue;
    lazy_event *events;
    lazy_capture *captures;
    struct lazy_device *next;
} lazy_device;

/* ---- lazy_device.c ---- */

lazy_device *lazy_lock(const pst_device *device);
/* Returns status. */
pst_status lazy_unlock(lazy_device *lazy, pst_status status);

/* pre: the stream is the device's */
static inline lazy_queue *lazy_queue_of(lazy_device *lazy, pst_stream stream)
{
    return stream ? stream->above : &lazy->null_queue;
}

/* ---- lazy_graph.c: what a capture adds to the list of the host device, and graphs ---- */

/* After a call that was captured: the node that it added, or nothing. */
void lazy_note_node(lazy_device *lazy, lazy_queue *queue, pst_stream stream);
/* After a record that is a place in the capture, and a wait for one. */
void lazy_note_mark(lazy_device *lazy, lazy_queue *queue, pst_stream stream, lazy_event *event);
void lazy_note_join(lazy_device *lazy, lazy_queue *queue, pst_stream stream,
                    const lazy_event *event);
/* The open captures are these alone. */
void lazy_drop_captures(lazy_device *lazy);
/* Takes the edges of the capture over. */
lazy_graph *lazy_graph_new(lazy_device *lazy, uint64_t capture_id, psti_node_list *list);
void lazy_graph_free(lazy_graph *graph);
/* A launch: waits take the records made so far, then its own records are made. */
lazy_instance *lazy_instance_new(lazy_device *lazy, const pst_graph *handle, uint32_t stream_index);
void lazy_instance_free(lazy_instance *instance);
/* Place in `ready` of a node that may run, drawn by `random`; -1: none. */
int64_t lazy_instance_pick(const lazy_instance *instance, uint64_t random);
/* The node at that place has run. Its number. */
uint32_t lazy_instance_done(lazy_instance *instance, size_t at);

/* ---- lazy_queue.c: queues, and whose turn it is ---- */

void lazy_push(lazy_device *lazy, lazy_queue *queue, const lazy_work *work);
/* Runs one node; false: none can run. */
bool lazy_step(lazy_device *lazy);
/* Until `queue` is empty, or `mark` is done, or (both NULL) nothing is left. */
pst_status lazy_until(lazy_device *lazy, const lazy_queue *queue, const lazy_mark *mark);
/* Those closed and empty are freed. */
void lazy_free_queues(lazy_device *lazy, bool all);
uint64_t lazy_random(lazy_device *lazy, uint64_t limit);
void lazy_see(const lazy_device *lazy, const lazy_seen *seen);
void lazy_see_node(lazy_seen *seen, const psti_node *node);
void lazy_report(const lazy_device *lazy, const char *text);

/* ---- memory, without the counter of allocations that are to fail ---- */

void *lazy_zeroed(size_t count, size_t bytes);
/* Room for one more at the end. */
void *lazy_grow(void *array, size_t num, size_t *capacity, size_t bytes);
lazy_mark *lazy_mark_new(uint32_t stream_index, uint32_t refs);
lazy_mark *lazy_mark_retain(lazy_mark *mark); /* NULL is allowed */
void lazy_mark_release(lazy_mark *mark);      /* NULL is allowed */

#endif
