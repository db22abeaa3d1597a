/* What the files of the pretended libcudart.so.13 share. */
#ifndef RUNTIME_H
#define RUNTIME_H

#include <cuda_runtime_api.h>
#include <pagestash/pagestash.h>
#include <pthread.h>
#include <stdbool.h>

#include "pretended.h"

#define PST_LIST(X)          \
    X(last_message)          \
    X(device_open)           \
    X(device_copy)           \
    X(device_fill)           \
    X(device_synchronize)    \
    X(stream_create)         \
    X(stream_destroy)        \
    X(stream_synchronize)    \
    X(event_create)          \
    X(event_destroy)         \
    X(event_record)          \
    X(event_wait)            \
    X(event_record_external) \
    X(event_wait_external)   \
    X(event_synchronize)     \
    X(event_elapsed)         \
    X(graph_begin)           \
    X(graph_end)             \
    X(graph_launch)          \
    X(graph_get_info)        \
    X(graph_destroy)

typedef struct pretended_functions {
#define MEMBER(name) __typeof__(&pst_##name) name;
    PST_LIST(MEMBER)
} pretended_functions;

typedef struct capture {
    unsigned long long id;
    pst_stream origin;
    pthread_t thread;
    enum cudaStreamCaptureMode mode;
    bool is_broken;
    uint64_t num_kernels;
    struct CUgraph_st *graph;
    struct capture *next;
} capture;

struct CUgraph_st {
    pst_graph *graph;
    uint64_t num_kernels;
    int num_owners;
    struct CUuserObject_st *objects[16];
    int num_objects;
};

struct CUgraphExec_st {
    struct CUgraph_st *of;
};

struct CUuserObject_st {
    void *what;
    cudaHostFn_t destroy;
    unsigned count;
};

extern pretended_functions pretended_pst;
extern pthread_mutex_t pretended_lock;

/* Ends the process; zeroed memory. */
void pretended_leave(const char *what, const char *why);
void *pretended_zeroed(size_t bytes);

/* The error, kept for cudaGetLastError; that of the library's status, of an operation of a stream,
 * whose capture breaks where it was refused. */
cudaError_t pretended_answer(cudaError_t error);
cudaError_t pretended_of_status(pst_status status);
cudaError_t pretended_enqueued(cudaStream_t stream, pst_status status);

/* Whether a call that could block is forbidden by captures; these break then. */
bool pretended_is_forbidden(void);

capture *pretended_capture_of(cudaStream_t stream);
void pretended_count_kernels(uint64_t count);
void pretended_let_go(struct CUgraph_st *graph);

#endif
