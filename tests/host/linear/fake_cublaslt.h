/* What a test says to tests/host/linear/fake_cublaslt.c, and reads of it. */
#ifndef PAGESTASH_TESTS_FAKE_CUBLASLT_H
#define PAGESTASH_TESTS_FAKE_CUBLASLT_H

#include "host/linear/cublaslt_api.h"

/* Enqueues on a stream what matmul does: function and args as psti_device_ops.call has them. */
typedef unsigned fake_enqueue(void *user, pst_status (*function)(const void *args),
                              const void *args, size_t bytes, pst_stream stream);

typedef struct fake_lt {
    fake_enqueue *enqueue;
    void *user;
    /* what the calls answer, 0 unless a test says otherwise */
    unsigned create_status, layout_status, heuristic_status, found_state, matmul_status;
    bool finds_nothing;
    int creates, destroys, heuristics, matmuls, splits; /* calls; products that used workspace */
    int objects;                                        /* that live */
} fake_lt;

/* By dlsym: that of this thread. */
typedef fake_lt *fake_lt_get(void);

#endif
