/* What of nccl.h is used, and how it is found. tests/host/comm/nccl_test.c compares it with that
 * file where it is installed. NCCL's enums have no negative values: unsigned is the type that they
 * are compatible with. */
#ifndef PSTI_HOST_NCCL_API_H
#define PSTI_HOST_NCCL_API_H

#include <limits.h>

#include <pagestash/comm.h>

#include "host/base/base.h"

typedef unsigned psti_nccl_result;

enum {
    PSTI_NCCL_SUCCESS = 0,
    PSTI_NCCL_INVALID_ARGUMENT = 4,
    PSTI_NCCL_INVALID_USAGE = 5,
    PSTI_NCCL_IN_PROGRESS = 7,
};
enum {
    PSTI_NCCL_UINT8 = 1,
    PSTI_NCCL_INT32 = 2,
    PSTI_NCCL_FLOAT16 = 6,
    PSTI_NCCL_FLOAT32 = 7,
    PSTI_NCCL_BFLOAT16 = 9,
};
enum { PSTI_NCCL_SUM = 0, PSTI_NCCL_MAX = 2, PSTI_NCCL_MIN = 3 };

/* That of 2.14, which all later ones take. */
typedef struct psti_nccl_config {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int undefined; /* cgaClusterSize, since 2.17 */
} psti_nccl_config;

#define PSTI_NCCL_CONFIG_INIT                                    \
    {                                                            \
        sizeof(psti_nccl_config), 0xcafebeefu, 21400, 0, INT_MIN \
    }

typedef psti_nccl_result psti_nccl_get_version(int *version_out);
typedef const char *psti_nccl_get_error_string(psti_nccl_result result);
typedef const char *psti_nccl_get_last_error(pst_nccl_comm comm);
typedef psti_nccl_result psti_nccl_comm_count(pst_nccl_comm comm, int *num_ranks_out);
typedef psti_nccl_result psti_nccl_comm_user_rank(pst_nccl_comm comm, int *rank_out);
typedef psti_nccl_result psti_nccl_comm_cu_device(pst_nccl_comm comm, int *device_out);
typedef psti_nccl_result psti_nccl_comm_get_async_error(pst_nccl_comm comm,
                                                        psti_nccl_result *error_out);
typedef psti_nccl_result psti_nccl_comm_abort(pst_nccl_comm comm);
typedef psti_nccl_result psti_nccl_comm_destroy(pst_nccl_comm comm);
typedef psti_nccl_result psti_nccl_comm_finalize(pst_nccl_comm comm);
typedef psti_nccl_result psti_nccl_group_start(void);
typedef psti_nccl_result psti_nccl_group_end(void);
typedef psti_nccl_result psti_nccl_all_gather(const void *from, void *to, size_t count,
                                              unsigned type, pst_nccl_comm comm, pst_stream stream);
typedef psti_nccl_result psti_nccl_reduce_scatter(const void *from, void *to, size_t count,
                                                  unsigned type, unsigned reduction,
                                                  pst_nccl_comm comm, pst_stream stream);
typedef psti_nccl_result psti_nccl_all_reduce(const void *from, void *to, size_t count,
                                              unsigned type, unsigned reduction, pst_nccl_comm comm,
                                              pst_stream stream);
typedef psti_nccl_result psti_nccl_send(const void *from, size_t count, unsigned type, int to_rank,
                                        pst_nccl_comm comm, pst_stream stream);
typedef psti_nccl_result psti_nccl_recv(void *to, size_t count, unsigned type, int from_rank,
                                        pst_nccl_comm comm, pst_stream stream);
/* A pst_comm_id is an ncclUniqueId. */
typedef psti_nccl_result psti_nccl_get_unique_id(pst_comm_id *id_out);
typedef psti_nccl_result psti_nccl_comm_init_rank_config(pst_nccl_comm *comm_out, int num_ranks,
                                                         pst_comm_id id, int rank,
                                                         psti_nccl_config *config);

/* X(name, symbol): of every NCCL that is taken */
#define PSTI_NCCL_FUNCTIONS(X)                     \
    X(get_version, ncclGetVersion)                 \
    X(get_error_string, ncclGetErrorString)        \
    X(get_last_error, ncclGetLastError)            \
    X(comm_count, ncclCommCount)                   \
    X(comm_user_rank, ncclCommUserRank)            \
    X(comm_cu_device, ncclCommCuDevice)            \
    X(comm_get_async_error, ncclCommGetAsyncError) \
    X(comm_abort, ncclCommAbort)                   \
    X(comm_destroy, ncclCommDestroy)               \
    X(group_start, ncclGroupStart)                 \
    X(group_end, ncclGroupEnd)                     \
    X(all_gather, ncclAllGather)                   \
    X(reduce_scatter, ncclReduceScatter)           \
    X(all_reduce, ncclAllReduce)                   \
    X(send, ncclSend)                              \
    X(recv, ncclRecv)                              \
    X(get_unique_id, ncclGetUniqueId)

/* X(name, symbol): since 2.14; NULL before */
#define PSTI_NCCL_LATER_FUNCTIONS(X)   \
    X(comm_finalize, ncclCommFinalize) \
    X(comm_init_rank_config, ncclCommInitRankConfig)

typedef struct psti_nccl {
#define PSTI_NCCL_MEMBER(name, symbol) psti_nccl_##name *name;
    PSTI_NCCL_FUNCTIONS(PSTI_NCCL_MEMBER)
    PSTI_NCCL_LATER_FUNCTIONS(PSTI_NCCL_MEMBER)
#undef PSTI_NCCL_MEMBER
} psti_nccl;

/* ---- nccl_find.c ---- */

/* The NCCL that PAGESTASH_NCCL_LIBRARY names. may_load: it need not be in the process yet.
 * Fails: UNSUPPORTED. */
pst_status psti_nccl_find(bool may_load, psti_nccl *nccl_out);

static inline bool psti_nccl_failed(psti_nccl_result result)
{
    return result != PSTI_NCCL_SUCCESS && result != PSTI_NCCL_IN_PROGRESS;
}

/* "ncclAllReduce: remote error; NCCL's last error: ..." */
void psti_nccl_explain(const psti_nccl *nccl, psti_nccl_result result, pst_nccl_comm comm,
                       const char *call, char *text, size_t bytes);
/* Fails: INVALID (NCCL says that the call is wrong), CUDA. */
pst_status psti_nccl_translate(const psti_nccl *nccl, psti_nccl_result result, pst_nccl_comm comm,
                               const char *call);
/* Whether it is of that device. Fails: INVALID, CUDA. */
pst_status psti_nccl_check_device(const psti_nccl *nccl, const pst_device *device,
                                  pst_nccl_comm comm);

#endif
