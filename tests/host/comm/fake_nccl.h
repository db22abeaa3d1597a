/* The communicators of tests/host/comm/fake_nccl.c. The test makes them, says what NCCL answers to each
 * and reads what it was asked. */
#ifndef PAGESTASH_TESTS_FAKE_NCCL_H
#define PAGESTASH_TESTS_FAKE_NCCL_H

#include "host/comm/nccl_api.h"

struct ncclComm {
    struct ncclComm *ranks; /* all of them, num_ranks in a row */
    int num_ranks;
    int device;
    psti_nccl_result device_result; /* of ncclCommCuDevice */
    psti_nccl_result reduce_result; /* of ncclAllReduce */
    const char *last_error;

    int num_reduces; /* that succeeded; the arguments are those of the last, successful or not */
    const void *from;
    void *to;
    size_t count;
    unsigned type, reduction;
    pst_stream stream;
};

#endif
