/* Communicators: what ranks exchange around a product.
 *
 * On cuda a communicator is NCCL's (2.13 or later): one that the caller has (pst_comm_adopt), or
 * one that the library makes (pst_comm_create, from 2.14 on). Which library that is,
 * PAGESTASH_NCCL_LIBRARY says, libnccl.so.2 by default. On host its ranks are threads of this
 * process, each with its own pst_comm, and an exchange is done by memcpy and additions; so what is
 * written against this can be tried without a GPU. The sums of host are formed in the order of the
 * ranks, in float32, and rounded once: the same bits on every rank, in every run; those of NCCL as
 * NCCL forms them.
 *
 * Every rank of a communicator makes the same calls in the same order. On host ranks that differ
 * in the call, the number or the type are told so, all of them with the same sentence; NCCL does
 * not compare them.
 *
 * Errors. What fails on one rank after the checks of its arguments fails on all: from then on
 * every call of the communicator answers PEER with the first cause and the rank that had it. On
 * host that is so on every rank at once; on cuda a rank has its own cause, and learns of others'
 * as far as NCCL notices them (ncclCommGetAsyncError, asked by every call) or by pst_comm_wait.
 * Nobody waits for ever: on host a call that waits for other ranks gives up after timeout_ms and
 * names those who did not come; on cuda pst_comm_wait tells that work has not ended.
 * pst_comm_abort ends it. A communicator that was adopted is its owner's to end.
 *
 * Streams. An exchange runs in the order of its stream. pst_comm_start lets it run beside what the
 * stream does next, until pst_comm_finish: on cuda on a stream of the communicator's, on host by a
 * thread of the rank's. Between the two neither may what it reads be written nor what it writes be
 * used. At most PST_COMM_MAX_STARTED are started and not finished. On cuda all exchanges, started
 * or not, go through that one stream, in the order of the calls; not between ncclGroupStart and
 * ncclGroupEnd.
 *
 * Capture. All calls that take a stream can be captured, on all ranks or on none. Graphs of host
 * exchange when they are launched: each rank launches its own, in its own thread. On cuda a
 * communicator is in one capture at a time and not used outside it meanwhile, what is started in
 * it is finished in it, what was started before is finished before, and no graph of a communicator
 * that was aborted is launched.
 *
 * Processes: a forked child has no ranks; there each call answers PEER, and destroy lets go; on
 * cuda NO_DEVICE, as all calls of the device.
 *
 * Threads: a pst_comm by one at a time, but for pst_comm_wait and pst_comm_abort: any.
 */
#ifndef PAGESTASH_COMM_H
#define PAGESTASH_COMM_H

#include <pagestash/nccl.h>

#define PST_COMM_MAX_RANKS 1024 /* of one communicator */
#define PST_COMM_MAX_STARTED 8  /* exchanges started and not finished, of one rank */

typedef struct pst_comm pst_comm; /* one rank of a communicator */

/* Names a communicator that ranks are about to make together: an ncclUniqueId, or of this process.
 * Frozen. */
typedef struct pst_comm_id {
    unsigned char bytes[128]; /* opaque; copied as they are to the other ranks */
} pst_comm_id;

/* The first three are pst_glu_dtype's. */
typedef enum pst_dtype {
    PST_DTYPE_BF16 = 0,  /* 2 bytes, the upper half of a float32 */
    PST_DTYPE_FP16 = 1,  /* 2 bytes, IEEE 754 binary16 */
    PST_DTYPE_FP32 = 2,  /* 4 bytes, IEEE 754 binary32 */
    PST_DTYPE_INT32 = 3, /* 4 bytes, signed */
    PST_DTYPE_BYTE = 4   /* is moved, never reduced */
} pst_dtype;

/* How elements of the ranks become one. */
typedef enum pst_reduction {
    PST_REDUCE_SUM = 0, /* of floats on host formed in float32 */
    PST_REDUCE_MIN = 1, /* the least of the ranks' */
    PST_REDUCE_MAX = 2  /* the largest of the ranks' */
} pst_reduction;

/* One rank of a communicator to be made. */
typedef struct pst_comm_config {
    size_t struct_size;
    pst_comm_id id;      /* from pst_comm_make_id of one of the ranks */
    int num_ranks;       /* 1 to PST_COMM_MAX_RANKS */
    int rank;            /* of the caller: 0 to num_ranks - 1 */
    uint32_t timeout_ms; /* how long a call waits for other ranks, or for NCCL; 0: ten minutes */
    uint32_t padding;    /* 0 */
} pst_comm_config;

#define PST_COMM_CONFIG_INIT PST_INIT(pst_comm_config)

/* What goes where, with r a rank and `count` elements. */
typedef enum pst_exchange_kind {
    PST_EXCHANGE_ALL_GATHER = 0,     /* `to` is num_ranks * count: rank r's `from` at r * count */
    PST_EXCHANGE_REDUCE_SCATTER = 1, /* `from` is num_ranks * count: the r-th part goes to rank r */
    /* both have count elements; `to` is the reduction over all ranks */
    PST_EXCHANGE_ALL_REDUCE = 2,
    PST_EXCHANGE_ALL_TO_ALL_V = 3, /* counts and offsets per rank; count is 0 */
    PST_EXCHANGE_SHIFT = 4 /* `from` goes to rank + 1, `to` comes from rank - 1, as a ring */
} pst_exchange_kind;

/* One exchange. `from` and `to` are device memory, aligned to an element, and do not overlap;
 * but those of ALL_REDUCE may be the same, `from` of ALL_GATHER may be its own part of `to`, and
 * `to` of REDUCE_SCATTER its own part of `from`. */
typedef struct pst_exchange {
    size_t struct_size;
    pst_exchange_kind kind;  /* what goes where; it says what `count` is */
    pst_dtype dtype;         /* of the elements of both sides */
    pst_reduction reduction; /* of the two that reduce; else 0 */
    uint32_t padding;        /* 0 */
    const void *from;        /* read; NULL where it has no element */
    void *to;                /* written; NULL where it has no element */
    uint64_t count;          /* elements, see the kinds; 0 is allowed and exchanges nothing */
    /* ALL_TO_ALL_V: arrays of num_ranks in host memory, elements; else NULL. They are read by
     * the call that enqueues: a captured graph keeps them. What a rank sends to another is what
     * that one receives. */
    const uint64_t *send_counts;
    const uint64_t *send_offsets;    /* where in `from` the elements for each rank begin */
    const uint64_t *receive_counts;  /* how many come from each rank */
    const uint64_t *receive_offsets; /* where in `to` the elements of each rank begin */
} pst_exchange;

#define PST_EXCHANGE_INIT PST_INIT(pst_exchange)

/* What a communicator is and has exchanged. */
typedef struct pst_comm_info {
    int num_ranks;          /* of the communicator */
    int rank;               /* this one, from 0 */
    uint64_t num_exchanges; /* enqueued, without those of replays */
    uint64_t sent_bytes;    /* to others, of those; of ALL_REDUCE what a ring would send */
} pst_comm_info;

PST_BEGIN_DECLS

/* One rank makes it and gives it to the others by whatever means they have. Fails: INVALID,
 * UNSUPPORTED (cuda: no NCCL can be loaded), CUDA. */
PST_API pst_status pst_comm_make_id(pst_device *device, pst_comm_id *id_out);

/* Called by every rank, with the same id and number; returns when all have. Ranks of host may have
 * a device each or share one, ranks of cuda have one each.
 * Fails: INVALID (num_ranks, rank, id; a rank twice; another number of ranks than the others'),
 * PEER (not all came in time, on host who; NCCL failed meanwhile), NOMEM, UNSUPPORTED (cuda: no
 * NCCL, or too old a one), CAPTURE, CUDA. */
PST_API pst_status pst_comm_create(pst_device *device, const pst_comm_config *config,
                                   pst_comm **comm_out);

/* A communicator that the caller has and keeps, ready for a call of NCCL's. It must live until
 * pst_comm_destroy or pst_comm_abort, or until a call has answered PEER. cuda only.
 * Fails: INVALID (NULL; of another device), UNSUPPORTED (a device of host; the process has no such
 * NCCL, or too old a one), NOMEM, CAPTURE, CUDA. */
PST_API pst_status pst_comm_adopt(pst_device *device, pst_nccl_comm nccl, pst_comm **comm_out);

/* NULL is allowed. Fails: BUSY (something is started and not finished, or a graph holds it),
 * CAPTURE. On host other ranks need not have come: an exchange that they call afterwards answers
 * PEER. On cuda the library's own ends as ncclCommFinalize does, an adopted one is left alone. */
PST_API pst_status pst_comm_destroy(pst_comm *comm);

/* Enqueues an exchange. Fails: INVALID (a field; overlap), PEER, CAPTURE, NOMEM, CUDA. */
PST_API pst_status pst_comm_run(pst_comm *comm, const pst_exchange *exchange, pst_stream stream);

/* The exchange begins when `stream` gets here, and `stream` goes on. number_out: from 1.
 * Fails: as pst_comm_run; BUSY (PST_COMM_MAX_STARTED). */
PST_API pst_status pst_comm_start(pst_comm *comm, const pst_exchange *exchange, pst_stream stream,
                                  uint64_t *number_out);

/* `stream` waits until exchange `number`, and every one that was started before, has ended.
 * Fails: INVALID (a number never given), PEER, CAPTURE, CUDA. */
PST_API pst_status pst_comm_finish(pst_comm *comm, uint64_t number, pst_stream stream);

/* The same by name: enqueued in the order of `stream`. */
PST_API pst_status pst_comm_all_gather(pst_comm *comm, const void *from, void *to, uint64_t count,
                                       pst_dtype dtype, pst_stream stream);
PST_API pst_status pst_comm_reduce_scatter(pst_comm *comm, const void *from, void *to,
                                           uint64_t count, pst_dtype dtype, pst_stream stream);
PST_API pst_status pst_comm_all_reduce(pst_comm *comm, const void *from, void *to, uint64_t count,
                                       pst_dtype dtype, pst_reduction reduction, pst_stream stream);
PST_API pst_status pst_comm_all_to_all_v(pst_comm *comm, const void *from,
                                         const uint64_t *send_counts, const uint64_t *send_offsets,
                                         void *to, const uint64_t *receive_counts,
                                         const uint64_t *receive_offsets, pst_dtype dtype,
                                         pst_stream stream);

/* Blocks until all that was enqueued on `stream` so far has ended, at most `milliseconds` by the
 * monotonic clock; what was started, too. On host work is done by the call that enqueues it, or by
 * the launch of its graph: there it is an exchange that another thread is in. Fails: AGAIN (time is up; who has not come where that is
 * known, and who may end it), PEER (the communicator has failed), CAPTURE, CUDA. */
PST_API pst_status pst_comm_wait(pst_comm *comm, pst_stream stream, uint32_t milliseconds);

/* Ends all that is under way, on host on every rank, on cuda of this one (ncclCommAbort), and the
 * communicator with it: its calls answer PEER with this cause. Of an adopted communicator NCCL is
 * not told: its calls answer PEER, and its owner may abort it before or afterwards; where a call of
 * NCCL's blocks, before, because this waits for it.
 * Fails: INVALID (no cause), CUDA. */
PST_API pst_status pst_comm_abort(pst_comm *comm, const char *cause);

/* Fails: INVALID. */
PST_API pst_status pst_comm_get_info_sized(const pst_comm *comm, pst_comm_info *info_out,
                                           size_t info_bytes);
static inline pst_status pst_comm_get_info(const pst_comm *comm, pst_comm_info *info_out)
{
    return pst_comm_get_info_sized(comm, info_out, sizeof(pst_comm_info));
}

PST_END_DECLS

#endif
