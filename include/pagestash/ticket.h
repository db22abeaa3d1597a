/* A ticket: the device's record of one stash, for groups of any form that it has room for.
 *
 * Two ways to get one. pst_ticket_create makes one of any size, synchronously and never during
 * capture; it lives until pst_ticket_destroy. A pool made with a slab (pst_pool_config.slab_tickets)
 * lends tickets: pst_ticket_take and pst_ticket_give are cheap (under a microsecond), make no device
 * call, and are legal during capture. What is said below holds for both.
 *
 *            stash               restore (consume), release
 *   EMPTY ----------> LIVE ----------------------------------> EMPTY
 *     |                 | restore (keep), any number of times
 *     |                 +--> LIVE
 *     | stash that failed
 *     +---------------> FAILED --- restore (consume), release --> EMPTY
 *
 * The record holds the row counts of the stash, so later operations never read the caller's counts
 * again. Whatever goes wrong on the device is a fault in the pool's status block (pool.h), never an
 * error of these calls and never a trap: the operation copies nothing, or skips the damaged page,
 * step_valid becomes 0, and pages stay conserved.
 *
 *   device-side event                       what happens
 *   count below 0 or above capacity         stash fails as a whole, ticket FAILED
 *   fewer pages free than wanted            stash fails as a whole having taken nothing, FAILED
 *   the step has failed already, in a pool  the same, without trying
 *   with fails_fast
 *   stash into a LIVE ticket                nothing; the ticket keeps what it holds
 *   restore or release of an EMPTY ticket   nothing
 *   restore of a FAILED ticket              nothing is copied; consume makes it EMPTY
 *   demote or promote of an EMPTY or FAILED
 *   ticket, or with no page left to move    nothing
 *   restore with a group of another form    nothing; the ticket stays LIVE
 *   live rows beyond the destination        nothing; the ticket stays LIVE
 *   damaged page id                         that page is skipped and not freed
 *
 * Operations on one ticket must be ordered by a stream or by events, in every kind of pool.
 */
#ifndef PAGESTASH_TICKET_H
#define PAGESTASH_TICKET_H

#include <pagestash/group.h>
#include <pagestash/pool.h>

/* A number, never used twice in a process: one that was destroyed or given back is INVALID wherever
 * it is used, and can never reach another's bytes. id 0 is no ticket. Frozen. */
typedef struct pst_ticket {
    uint64_t id; /* 0: no ticket */
} pst_ticket;

/* What a restore does with the pages. */
typedef enum pst_restore_pages {
    PST_RESTORE_CONSUME = 0, /* frees them; the ticket is empty */
    PST_RESTORE_KEEP = 1     /* leaves them; the ticket stays live */
} pst_restore_pages;

/* What a restore does with rows behind the live ones. */
typedef enum pst_restore_tail {
    PST_TAIL_UNTOUCHED = 0, /* nothing */
    PST_TAIL_ZERO = 1,    /* clears the rows behind the live ones that an earlier restore into these
                           * buffers left there; needs pst_restore_options.dirty */
    PST_TAIL_ZERO_ALL = 2 /* clears every row from the live ones to the capacity */
} pst_restore_tail;

/* What a restore leaves in its destination when it copies nothing: the ticket is EMPTY or FAILED, was
 * stashed in another form or by another owner, its record is damaged, the destination is too small,
 * or the pool refuses. */
typedef enum pst_restore_failed {
    PST_FAILED_UNTOUCHED = 0, /* what was there */
    PST_FAILED_ZERO =
        1 /* all rows of every tensor with a base are cleared up to the capacity, so that
                         * a step that is not valid carries no NaN. A damaged page alone is no such
                         * case: its rows stay as they are */
} pst_restore_failed;

/* Where the GPU can run blocks of several kernels it takes those of the higher priority first. Use
 * LOW for stash (nothing waits on it) and HIGH for restore. */
typedef enum pst_priority {
    PST_PRIORITY_STREAM = 0, /* that of the stream */
    PST_PRIORITY_LOW = 1,    /* the lowest of the device */
    PST_PRIORITY_HIGH = 2    /* the highest */
} pst_priority;

/* How an operation is launched; the host device ignores it. Frozen. */
typedef struct pst_launch_options {
    int num_sms; /* SM budget: one block for each of so many SMs, so that it never is on more;
                          * 0: PAGESTASH_NUM_SMS, else all */
    pst_backend backend;   /* one of pst_device_info.backends, or auto */
    pst_priority priority; /* default: that of the stream */
    bool programmatic; /* programmatic dependent launch: the kernel may be brought up while the one
                        * before it in the stream still runs, and waits for it on the device. From
                        * compute capability 9.0; ignored before */
} pst_launch_options;

/* How a stash is launched. All zero: the defaults. */
typedef struct pst_stash_options {
    size_t struct_size;
    pst_launch_options launch; /* SM budget, backend, priority */
} pst_stash_options;

#define PST_STASH_OPTIONS_INIT PST_INIT(pst_stash_options)

/* How a restore is launched, and what it leaves. All zero: the defaults. */
typedef struct pst_restore_options {
    size_t struct_size;
    pst_launch_options launch; /* SM budget, backend, priority */
    pst_restore_pages pages;   /* consume (default): frees the pages; keep: the ticket stays live */
    pst_restore_tail tail;     /* rows behind the live ones; default: untouched */
    pst_dirty *dirty; /* of the destination's form and capacities. PST_TAIL_ZERO needs it; the other
                       * tails may name it and keep it up to date. NULL where a base is NULL */
    pst_restore_failed failed; /* where nothing was copied; default: untouched */
    uint32_t padding;          /* 0 */
} pst_restore_options;

#define PST_RESTORE_OPTIONS_INIT PST_INIT(pst_restore_options)

/* How many pages a demote or promote moves. */
typedef enum pst_migrate_share {
    PST_MIGRATE_ALL = 0,   /* every page; finding none is a fault */
    PST_MIGRATE_UP_TO = 1, /* at most max_pages, so that several calls share the work; finding none
                            * is no fault */
    PST_MIGRATE_REST = 2   /* every page that remains; finding none is no fault */
} pst_migrate_share;

/* How a demote or promote is launched, and how much it moves. All zero: the defaults. */
typedef struct pst_migrate_options {
    size_t struct_size;
    pst_launch_options launch; /* SM budget, backend, priority */
    pst_migrate_share share;   /* how many pages; default: all */
    uint64_t max_pages;        /* of PST_MIGRATE_UP_TO, at least 1; else 0 */
} pst_migrate_options;

#define PST_MIGRATE_OPTIONS_INIT PST_INIT(pst_migrate_options)

PST_BEGIN_DECLS

/* Device bytes of a ticket for groups shaped like `group`, with its canary where PAGESTASH_CHECK=1. Fails:
 * INVALID. */
PST_API pst_status pst_ticket_bytes(const pst_pool *pool, const pst_group *group,
                                    uint64_t *bytes_out);

/* Makes a ticket with room for `group`: as many counts, and its pages at capacity (or all that the
 * pool can have). Any group within that can use it.
 * Synchronous; not while capturing. Fails: INVALID (more than max_tickets), NOMEM, DEVICE_NOMEM,
 * CAPTURE, CUDA. */
PST_API pst_status pst_ticket_create(pst_pool *pool, const pst_group *group,
                                     pst_ticket *ticket_out);

/* Of a ticket that was created. Waits for the device. No ticket (id 0) is allowed.
 * Fails: BUSY while a captured graph uses the ticket, or it holds pages (release it first); INVALID
 * (a ticket of the slab); DAMAGED (PAGESTASH_CHECK=1: somebody wrote behind its record; it is destroyed all the
 * same). */
PST_API pst_status pst_ticket_destroy(pst_ticket ticket);

/* Takes a ticket of the pool's slab, for operations that are enqueued on `stream` or ordered behind
 * it. One that was given back on the same stream is taken at once (of a captured stream: one that
 * was given on that stream in the same capture); one from another stream once a step that was
 * enqueued after it was given, outside capture, has been published; one that a captured graph uses,
 * elsewhere only after the graph is destroyed.
 * How many are needed: the most that are taken at once outside graphs, with those that wait for a
 * step, and the same of each graph that exists. Before a capture that must have many, run a step and
 * wait for it.
 * Stream: no device call but the question whether it is being captured. A stream is told by its
 *         address: not cudaStreamPerThread, and none that is destroyed while its work runs.
 * Threads: any. Fails: INVALID (no slab), BUSY (none can be had; the message says how many are
 * taken, held by graphs, and waiting for a step), CAPTURE (the capture is broken), NOMEM, CUDA. */
PST_API pst_status pst_ticket_take(pst_pool *pool, pst_stream stream, pst_ticket *ticket_out);

/* Gives a ticket of the slab back; `stream` is behind everything that was enqueued with it. Whatever
 * the answer, but for INVALID and for CAPTURE of a ticket that was filled outside, the handle is
 * INVALID from here on.
 * Where what was enqueued may leave pages in it (a stash, a restore that keeps, a migration; a
 * restore that consumes into smaller capacities, or in another capture than the stash) one release is
 * enqueued, which is ordered like every operation of the pool. What the last replay of a graph leaves
 * in a ticket is released by one launch: before the next owner's first operation, or by the next
 * pst_pool_step outside capture.
 * A ticket that was filled outside capture is given back there (CAPTURE), since a captured release
 * runs only when the graph does: who frees from a finaliser, as Python does, keeps it until then.
 * Where side streams join before the capture ends, give on the stream that the next ticket is taken
 * for, after the join, and the graph needs no more tickets than are live at once.
 * No ticket (id 0) is allowed.
 * Threads: any. Fails: INVALID (a stale handle, a ticket that was created), CAPTURE (filled outside,
 * or the capture is broken), NOMEM, CUDA. */
PST_API pst_status pst_ticket_give(pst_ticket ticket, pst_stream stream);

/* Number of the ticket in its pool: what pst_pool_status.fault_ticket says; UINT32_MAX for a stale
 * handle. */
PST_API uint32_t pst_ticket_index(pst_ticket ticket);

/* Where stashes into this ticket, enqueued from now on, want to put their pages: the first
 * floor(pages * num / den) on the host, the others on the device. 0/1 is the default; 1/1 is
 * all. (The fraction of MEMO, arXiv:2407.12117, in bytes instead of tokens.) A preference: where
 * one tier is out the other serves, which the status block counts. Operations captured before
 * keep theirs.
 * pre: no other call with this ticket runs at the same time.
 * Fails: INVALID (not a fraction from 0 to 1; above 0 where the pool has no host pages). */
PST_API pst_status pst_ticket_set_offload(pst_ticket ticket, uint32_t num, uint32_t den);

/* Copies the live rows of source into pages of the ticket's pool.
 * group:   the description of source; it must fit the ticket (counts, pages at capacity).
 * options: NULL for the defaults.
 * pre:     source's memory and counts stay as they are until the stream has passed this point;
 *          afterwards they may be reused.
 * Owns:    nothing. A captured graph holds pool and ticket, nothing of group and source.
 * Stream:  one launch, no allocation, no synchronisation; can be captured, and a replay reads the
 *          counts anew.
 * Moves:   live bytes read once and written once, whatever the capacity.
 * Fails:   INVALID (a base or counts NULL, a base in the pool's own pages, larger than the ticket,
 *          capacities and strides as for pst_group_create, launch options), UNSUPPORTED (a backend
 *          that the device lacks), CUDA. */
PST_API pst_status pst_ticket_stash(pst_ticket ticket, const pst_group *group,
                                    const pst_buffers *source, const pst_stash_options *options,
                                    pst_stream stream);

/* Copies what the ticket holds back into destination, exactly the live rows; frees the pages unless
 * told to keep them. Same rules as stash.
 * group: of the form that was stashed, with no more counts than the ticket has room for; its pages at
 *        capacity may be more. Another form, or what another owner stashed, is PST_FAULT_FORM on the
 *        device.
 * With PST_RESTORE_KEEP a base may be NULL: that tensor is not copied and stays in the pages until
 * pst_ticket_release. With PST_RESTORE_CONSUME every tensor needs one.
 * pre: no other stream uses the destination meanwhile.
 * Fails: INVALID (as for stash; tail and dirty), UNSUPPORTED (backend), CUDA. */
PST_API pst_status pst_ticket_restore(pst_ticket ticket, const pst_group *group,
                                      const pst_buffers *destination,
                                      const pst_restore_options *options, pst_stream stream);

/* Moves device pages of a LIVE ticket to free host pages, the first places of its byte stream
 * first, and frees them: as many as options->share says, as far as free host pages go (the others
 * are counted as stranded). The ticket stays LIVE with the same bytes, and a restore reads them
 * from where they are. With PST_MIGRATE_ALL, finding no device page of a ticket that holds pages
 * is a fault. With the other shares it is none: use them in captured graphs, where an earlier
 * demote may have found no room or a stash may have spilled already.
 * options: NULL for the defaults.
 * Stream:  one launch, can be captured. Overlaps with stashes of other tickets in concurrent pools
 *          only. A small SM budget is enough: the link is the limit.
 * Moves:   every byte of the pages once over the link. The old and the new page both count as in
 *          use meanwhile, also in the high-water marks.
 * Fails:   INVALID (no host tier, share, max_pages, launch options), UNSUPPORTED (backend),
 *          CUDA. */
PST_API pst_status pst_ticket_demote(pst_ticket ticket, const pst_migrate_options *options,
                                     pst_stream stream);

/* The same from the host to the device: ahead of a restore. */
PST_API pst_status pst_ticket_promote(pst_ticket ticket, const pst_migrate_options *options,
                                      pst_stream stream);

/* Frees the pages without copying (a pool that scrubs overwrites them).
 * Stream: one launch; can be captured. Fails: INVALID, CUDA. */
PST_API pst_status pst_ticket_release(pst_ticket ticket, pst_stream stream);

PST_END_DECLS

#endif
