/* The communicators of tests/host/comm/fake_nccl.c. Those that a program has made the test makes,
 * and says what NCCL answers to each, and reads what it was asked. */
#ifndef PAGESTASH_TESTS_FAKE_NCCL_H
#define PAGESTASH_TESTS_FAKE_NCCL_H

#include "host/comm/nccl_api.h"

enum { FAKE_RANKS = 4, FAKE_OPS = 2 * FAKE_RANKS };

/* How a call answers before all ranks have come to it. */
typedef enum fake_mode {
    FAKE_RETURNS = 0, /* as if it had been enqueued */
    FAKE_BLOCKS = 1,
    FAKE_POLLS = 2, /* in progress, until ncclCommGetAsyncError says otherwise */
} fake_mode;

typedef struct fake_op {
    bool is_send, is_receive; /* else an exchange of all */
    pst_exchange_kind kind;
    const void *from;
    void *to;
    size_t count;
    unsigned type, reduction;
    int peer;
} fake_op;

struct ncclComm {
    struct ncclComm *ranks; /* all of them, num_ranks in a row */
    int num_ranks, rank;
    int device;
    fake_mode mode;
    psti_nccl_result device_result; /* of ncclCommCuDevice */
    psti_nccl_result reduce_result; /* of ncclAllReduce */
    psti_nccl_result group_result;  /* of ncclGroupEnd */
    psti_nccl_result async_error;   /* of ncclCommGetAsyncError */
    const char *last_error;

    int num_reduces; /* that succeeded; the arguments are those of the last, successful or not */
    const void *from;
    void *to;
    size_t count;
    unsigned type, reduction;
    pst_stream stream; /* of the last call of any kind */

    int *num_joined; /* ranks that have come to its making; NULL: all have */
    bool is_posted;  /* its ops wait for those of the other ranks */
    bool has_ended;  /* a use of it is a crash */
    fake_op ops[FAKE_OPS];
    int num_ops;
};

typedef struct fake_counts {
    int inits, finalizes, destroys, aborts;
    psti_nccl_result finalize_result; /* of ncclCommFinalize */
} fake_counts;

/* Where exchanges are done: within the call, or, with enqueue, by what it puts on the stream, which waits
 * there for the other ranks. function and args as psti_device_ops.call has them. */
typedef struct fake_queue {
    pst_status (*enqueue)(void *user, pst_status (*function)(const void *args), const void *args,
                          size_t bytes, pst_stream stream);
    void *user;
} fake_queue;

/* All by dlsym. The device that is current in this thread, and this thread's queue. */
typedef int *fake_current_device(void);
typedef fake_queue *fake_get_queue(void);
typedef fake_counts *fake_get_counts(void);

#endif
