/* Ranks agree on a step, by NCCL.
 *
 * The library does not link NCCL. It takes the one that made the communicator and so is in the
 * process already: the library of the name libnccl.so.2, or the one that PAGESTASH_NCCL_LIBRARY
 * names. At least NCCL 2.13. Communicators that the library makes itself are in comm.h.
 *
 * Without NCCL: all-reduce the int32 at pst_pool_step_valid by minimum, with whatever you have.
 */
#ifndef PAGESTASH_NCCL_H
#define PAGESTASH_NCCL_H

#include <pagestash/pool.h>

typedef struct ncclComm *pst_nccl_comm; /* an ncclComm_t passes as it is */

PST_BEGIN_DECLS

/* step_valid of this pool becomes the smallest of all ranks': 0 on each of them when anything
 * failed on any (the maximum of "invalid", in place). Enqueue it on every rank of comm, directly
 * before pst_pool_step, which then publishes 0 to every rank's pst_pool_poll. Whether the rank
 * itself failed is still told by num_faults, which rose, and the first fault.
 *
 * Enqueued; can be captured, on all ranks or on none.
 * pre: runs alone, like reset and step: a fault that is recorded meanwhile can be overwritten.
 * Between ncclGroupStart and ncclGroupEnd NCCL enqueues it only at the end, and for a communicator
 * that does not block some time later: wait as for NCCL's own calls before the next call on this
 * stream.
 *
 * Threads: as NCCL's own calls, one at a time per communicator.
 * Fails: INVALID (NULL; comm of another device; NCCL says that the call is wrong), UNSUPPORTED (a
 * pool on host; the process has no such NCCL, or too old a one), CUDA (NCCL failed otherwise; the
 * message has its text). Then the other ranks may wait for this one: that is the communicator's
 * owner's to end (ncclCommAbort). */
PST_API pst_status pst_nccl_agree(pst_pool *pool, pst_nccl_comm comm, pst_stream stream);

PST_END_DECLS

#endif
