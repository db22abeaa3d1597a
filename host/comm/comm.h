/* Shared by the files of communicators.
 *
 *   comm.c            what calls say, checked; destroy, info
 *   comm_host.c       ranks that are threads: how they meet, and what ends them
 *   comm_worker.c     their exchanges, one behind the other, and those beside a rank's own work
 *   comm_exchange.c   what is moved and summed
 *   comm_nccl.c       ranks of NCCL: exchanges, failures, waiting
 *   comm_nccl_open.c  how they are made, taken over, and let go
 *   nccl_find.c       the library, and its errors
 *   scratch.c         named buffers */
#ifndef PSTI_HOST_COMM_COMM_H
#define PSTI_HOST_COMM_COMM_H

#include <pagestash/comm.h>
#include <pagestash/scratch.h>

#include "host/base/handle.h"
#include "host/device/device.h"

typedef struct psti_host_rank psti_host_rank;
typedef struct psti_nccl_rank psti_nccl_rank;

/* What carries the bytes. Exchanges are checked, and copies of the caller's. */
typedef struct psti_comm_ops {
    pst_status (*check)(pst_comm *comm); /* PEER with the cause where it has failed */
    pst_status (*run)(pst_comm *comm, const pst_exchange *exchange, pst_stream stream);
    pst_status (*start)(pst_comm *comm, const pst_exchange *exchange, uint64_t number,
                        pst_stream stream);
    pst_status (*finish)(pst_comm *comm, uint64_t number, pst_stream stream);
    pst_status (*wait)(pst_comm *comm, pst_stream stream, uint32_t milliseconds);
    pst_status (*abort)(pst_comm *comm, const char *cause);
    void (*close)(pst_comm *comm);
} psti_comm_ops;

struct pst_comm {
    psti_handle handle;
    pst_device *device;
    psti_hold hold;
    pst_comm_info info;
    uint64_t num_started, num_finished; /* by pst_comm_start and _finish */
    const psti_comm_ops *ops;
    psti_host_rank *host; /* one of the two, by ops */
    psti_nccl_rank *nccl;
};

static inline uint64_t psti_dtype_bytes(pst_dtype dtype)
{
    static const uint8_t bytes[] = {2, 2, 4, 4, 1};
    return bytes[dtype];
}

/* ---- scratch.c ---- */

pst_device *psti_scratch_device(const pst_scratch *scratch);
/* Fails: INVALID (the operand lies in a buffer that nobody has leased: what was leased for a while
 * is taken for a tensor of one's own). */
pst_status psti_scratch_check_operand(const pst_scratch *scratch, const char *name,
                                      const void *address, uint64_t bytes);

/* ---- comm_exchange.c ---- */

/* Why the ranks' exchanges do not fit together, or false. */
bool psti_exchanges_differ(const pst_exchange *const *all, int num_ranks, char *why, size_t bytes);

/* What rank `rank` does, reading what the others gave. Between the two stages all have done the
 * first. */
void psti_exchange_first(const pst_exchange *const *all, int num_ranks, int rank);
void psti_exchange_second(const pst_exchange *const *all, int num_ranks, int rank);

/* ---- comm_host.c ---- */

typedef struct psti_group psti_group;

void psti_ranks_make_id(pst_comm_id *id_out);
pst_status psti_group_join(const pst_comm_config *config, psti_group **group_out);
void psti_group_leave(psti_group *group, int rank);
/* One exchange of this rank, when all others come to theirs. Fails: PEER. */
pst_status psti_group_exchange(psti_group *group, int rank, const pst_exchange *exchange);
/* Ends the communicator for all, unless it has ended. */
void psti_group_fail(psti_group *group, int rank, const char *cause);
/* Whether it is of a process that has forked this one. */
bool psti_group_is_parents(const psti_group *group);
/* PEER with the cause where it has ended. */
pst_status psti_group_check(psti_group *group);
/* Who has come to fewer exchanges than this rank: "rank 3", "ranks 0, 2"; "" for nobody. */
void psti_group_late(psti_group *group, int rank, char *text, size_t bytes);
/* The time of whoever waits is up, now and later: for tests, which else would depend on time. */
void psti_group_expire(psti_group *group);

/* ---- comm_worker.c ---- */

extern const psti_comm_ops psti_ranks_ops;
pst_status psti_ranks_open(pst_comm *comm, const pst_comm_config *config);
psti_group *psti_ranks_group(const pst_comm *comm);

/* ---- comm_nccl.c, comm_nccl_open.c ---- */

extern const psti_comm_ops psti_nccl_ops;
pst_status psti_nccl_make_id(pst_comm_id *id_out);
pst_status psti_nccl_open(pst_comm *comm, const pst_comm_config *config);
pst_status psti_nccl_adopt(pst_comm *comm, pst_nccl_comm given, uint32_t timeout_ms);

#endif
