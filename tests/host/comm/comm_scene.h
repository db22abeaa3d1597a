/* Ranks that are threads, for tests: each runs a body with its own device, stream and
 * communicator. */
#ifndef PAGESTASH_TESTS_COMM_SCENE_H
#define PAGESTASH_TESTS_COMM_SCENE_H

#include <pagestash/comm.h>

#include <pthread.h>

#include "tests/harness.h"

enum { SCENE_RANKS = 8 };

typedef struct rank_of_test {
    int rank, num_ranks;
    pst_device *device;
    pst_stream stream;
    pst_comm *comm; /* NULL: it was destroyed by the body */
    pst_status created;
    char message[512]; /* of pst_comm_create, where it failed */
    uint64_t random;
    void *arg;
    void (*body)(struct rank_of_test *self);
    pst_comm_config config;
    pthread_t thread;
} rank_of_test;

/* Runs body once for each rank; timeout_ms 0: the library's. */
void ranks_run(int num_ranks, uint32_t timeout_ms, void (*body)(rank_of_test *self), void *arg);

enum { SCENE_NEVER = 600000 }; /* milliseconds: a time limit that no test reaches by waiting */

/* Until each rank but those of `missing`, as psti_group_late has them ("rank 2", "ranks 0, 2"), waits for these
 * alone, or is counted in *num_done (NULL: none is). */
void ranks_await(rank_of_test *self, const char *missing, const int *num_done);
/* Then their time is up. */
void ranks_expire(rank_of_test *self, const char *missing, const int *num_done);

#define RANK_OK(call) RANK_STATUS(call, PST_OK)
/* Of a rank's thread, which goes on. */
#define RANK_STATUS(call, wanted)                                                          \
    do {                                                                                   \
        const pst_status rank_s = (call);                                                  \
        if (rank_s != (wanted))                                                            \
            psti_test_fail(__FILE__, __LINE__, "rank %d: %s is %s: %s", self->rank, #call, \
                           pst_status_name(rank_s), pst_last_message());                   \
    } while (0)
#define RANK_CHECK(condition)                                                            \
    do {                                                                                 \
        if (!(condition))                                                                \
            psti_test_fail(__FILE__, __LINE__, "rank %d: %s is false; last message: %s", \
                           self->rank, #condition, pst_last_message());                  \
    } while (0)

#endif
