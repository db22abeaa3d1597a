/* A device that does its work late: what a missing wait does to bytes shows on it.
 *
 * It is made of an open device of the host machinery (host or simt), whose memory, captures and
 * operations it keeps. Each stream is a queue. Nodes run in the calling thread, one at a time, when
 * somebody synchronises or by lazy_run; whose turn it is, is drawn from the seed among all nodes that
 * may run, so any order that CUDA allows occurs, and the same seed gives the same order again.
 *
 * A wait takes the event's last record at the time of its own call, in the order of calls. A graph
 * has the edges of its capture; its launch is one element of its stream's queue, whose nodes run in
 * any order that the edges allow, beside those of other streams. Its external waits take the records
 * before the launch, its external records are made by the launch. Launches of one graph run one after
 * the other, as in CUDA. The NULL stream is a stream like others. To free memory waits for everything,
 * as cudaFree does; nothing else waits that need not.
 *
 * What a program must not do fails the test: synchronising where nothing can go on, destroying a
 * graph that has not run, launching one whose event was destroyed.
 *
 * Threads: any, one at a time inside. Nothing may be called from on_node. */
#ifndef PAGESTASH_TESTS_LAZY_DEVICE_H
#define PAGESTASH_TESTS_LAZY_DEVICE_H

#include <pagestash/device.h>

#include "kernels/kernels.h"

#define LAZY_KIND_LIST(X)                                                \
    X(LAUNCH, "launch")                                                  \
    X(CALL, "call")                                                      \
    X(COPY, "copy")                                                      \
    X(FILL, "fill")                                                      \
    X(RECORD, "record")                                                  \
    X(WAIT, "wait")                                                      \
    X(GRAPH, "graph")             /* the call that launches it */        \
    X(GRAPH_BEGIN, "graph begin") /* runs: what was before it has run */ \
    X(GRAPH_END, "graph end")     /* runs: what is behind it may run */

typedef enum lazy_kind {
#define LAZY_KIND_ENUM(kind, name) LAZY_##kind,
    LAZY_KIND_LIST(LAZY_KIND_ENUM)
#undef LAZY_KIND_ENUM
        LAZY_NUM_KINDS
} lazy_kind;

/* What a watcher sees: every call that enqueues, and every node that runs. Pointers are those of the
 * call; args live until the watcher returns. */
typedef struct lazy_seen {
    bool runs;     /* else it was enqueued */
    bool captured; /* enqueued into a capture */
    bool external; /* RECORD and WAIT as they were enqueued */
    lazy_kind kind;
    uint64_t number;        /* of the call, from 1; a graph's nodes have that of its launch */
    pst_stream stream;      /* of the call */
    uint32_t stream_index;  /* in the order of creation, from 1; 0: NULL */
    const pst_graph *graph; /* GRAPH*, and of nodes that run; else NULL */
    size_t node;            /* of the graph, in the order of its capture */
    uint32_t captured_on;   /* of a graph's node that runs: index of its stream then */
    psti_op op;             /* LAUNCH */
    const void *args;
    pst_event event; /* RECORD, WAIT */
    void *to;        /* COPY, FILL */
    const void *from;
    size_t bytes;
} lazy_seen;

typedef void (*lazy_watch_fn)(void *context, const lazy_seen *seen);

typedef struct lazy_options {
    uint64_t seed;
    bool eager; /* every call runs all that there is */
    lazy_watch_fn on_node;
    void *context;                                   /* of both */
    void (*report)(void *context, const char *text); /* NULL: the test fails */
} lazy_options;

PST_BEGIN_DECLS

/* Makes an open device of the host machinery lazy, until its close; nothing was enqueued yet, no
 * stream or event made. options NULL: all zero. */
void lazy_make(pst_device *device, const lazy_options *options);

/* Runs at most n nodes; how many there were that could run. A graph's begin is one, its end none. */
size_t lazy_run(pst_device *device, size_t n);
/* Nodes that have not run, those of launched graphs included. */
size_t lazy_pending(pst_device *device);
/* Another order from here on. */
void lazy_seed(pst_device *device, uint64_t seed);
void lazy_watch(pst_device *device, lazy_watch_fn on_node, void *context);

/* The n-th call from now that enqueues answers CUDA and enqueues nothing, once; 0: none does. */
void lazy_fail_at(pst_device *device, uint64_t n);
/* Calls so far that enqueue: launch, copy, fill, event_record, event_wait, graph_launch. */
uint64_t lazy_calls(pst_device *device);

/* Nothing of this stream runs until it is let go: the others run ahead of it. To synchronise with it
 * fails the test, and answers CUDA. */
void lazy_hold_back(pst_device *device, pst_stream stream, bool held);

const char *lazy_kind_name(lazy_kind kind);

PST_END_DECLS

#endif
