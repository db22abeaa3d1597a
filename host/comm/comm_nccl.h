/* Shared by the files of NCCL's communicators. */
#ifndef PSTI_HOST_COMM_NCCL_H
#define PSTI_HOST_COMM_NCCL_H

#include <pthread.h>

#include "host/comm/comm.h"
#include "host/comm/nccl_api.h"

struct psti_nccl_rank {
    psti_nccl nccl;
    bool is_own; /* made by the library, which may abort and destroy it */
    uint32_t timeout_ms;
    pthread_mutex_t lock; /* of each call of NCCL, and of these three */
    pst_nccl_comm comm;   /* own: NULL once aborted. Given: not touched once failed */
    bool failed;
    char cause[640];
    pst_stream side; /* of all exchanges */
    pst_event came;
    pst_event left[PST_COMM_MAX_STARTED + 1];       /* by number; the last one is of pst_comm_run */
    uint64_t captured_in[PST_COMM_MAX_STARTED + 1]; /* where that was recorded; 0: in no capture */
};

/* ---- comm_nccl.c ---- */

/* With the lock; the first cause stays. */
void psti_nccl_fail(psti_nccl_rank *self, int rank, const char *cause);
/* Until NCCL is done with `call`, which a communicator that does not block does on its own. Fails:
 * PEER. */
pst_status psti_nccl_settle(pst_comm *comm, const char *call);

/* ---- comm_nccl_open.c ---- */

void psti_nccl_close(pst_comm *comm);

#endif
