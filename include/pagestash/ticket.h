/* A ticket: the device's record of one stash. Made before capture, one for each stash that can be
 * live at once (layers times micro-batches in flight), and reused every step.
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
 *   stash into a LIVE ticket                nothing; the ticket keeps what it holds
 *   restore or release of an EMPTY ticket   nothing
 *   restore of a FAILED ticket              nothing is copied; consume makes it EMPTY
 *   demote or promote of an EMPTY or FAILED
 *   ticket, or with no page left to move    nothing
 *   live rows beyond the destination        nothing; the ticket stays LIVE
 *   damaged page id                         that page is skipped and not freed
 *
 * Operations on one ticket must be ordered by a stream or by events, in every kind of pool.
 */
#ifndef PAGESTASH_TICKET_H
#define PAGESTASH_TICKET_H

#include <pagestash/group.h>
#include <pagestash/pool.h>

typedef struct pst_ticket pst_ticket;

typedef enum pst_restore_pages { PST_RESTORE_CONSUME = 0, PST_RESTORE_KEEP = 1 } pst_restore_pages;
typedef enum pst_restore_tail { PST_TAIL_UNTOUCHED = 0, PST_TAIL_ZERO = 1 } pst_restore_tail;

/* Where the GPU can run blocks of several kernels it takes those of the higher priority first. Use
 * LOW for stash (nothing waits on it) and HIGH for restore. */
typedef enum pst_priority {
    PST_PRIORITY_STREAM = 0, /* that of the stream */
    PST_PRIORITY_LOW = 1,    /* the lowest of the device */
    PST_PRIORITY_HIGH = 2    /* the highest */
} pst_priority;

/* How an operation is launched; the host device ignores it. Frozen. */
typedef struct pst_launch_options {
    int num_sms;         /* SM budget: as many blocks as that many SMs hold, wherever the GPU puts
                          * them; 0: PAGESTASH_NUM_SMS, else all */
    pst_backend backend; /* one of pst_device_info.backends, or auto */
    pst_priority priority;
    bool programmatic; /* programmatic dependent launch: the kernel may be brought up while the one
                        * before it in the stream still runs, and waits for it on the device. From
                        * compute capability 9.0; ignored before */
} pst_launch_options;

typedef struct pst_stash_options {
    size_t struct_size;
    pst_launch_options launch;
} pst_stash_options;

#define PST_STASH_OPTIONS_INIT PST_INIT(pst_stash_options)

typedef struct pst_restore_options {
    size_t struct_size;
    pst_launch_options launch;
    pst_restore_pages pages; /* consume (default): frees the pages; keep: the ticket stays live */
    pst_restore_tail tail;   /* zero: also clears rows behind the live ones that an earlier restore
                              * into this group left there, see pst_group_config.tail_is_zero */
} pst_restore_options;

#define PST_RESTORE_OPTIONS_INIT PST_INIT(pst_restore_options)

/* How many pages a demote or promote moves. */
typedef enum pst_migrate_share {
    PST_MIGRATE_ALL = 0,   /* every page; finding none is a fault */
    PST_MIGRATE_UP_TO = 1, /* at most max_pages, so that several calls share the work; finding none
                            * is no fault */
    PST_MIGRATE_REST = 2   /* every page that remains; finding none is no fault */
} pst_migrate_share;

typedef struct pst_migrate_options {
    size_t struct_size;
    pst_launch_options launch;
    pst_migrate_share share;
    uint64_t max_pages; /* of PST_MIGRATE_UP_TO, at least 1; else 0 */
} pst_migrate_options;

#define PST_MIGRATE_OPTIONS_INIT PST_INIT(pst_migrate_options)

PST_BEGIN_DECLS

/* Device bytes of a ticket for groups shaped like `group`. Fails: INVALID. */
PST_API pst_status pst_ticket_bytes(const pst_pool *pool, const pst_group *group,
                                    uint64_t *bytes_out);

/* Makes a ticket for groups shaped like `group` (same tensors, row spaces and capacities).
 * Synchronous; not while capturing. Fails: INVALID (group of another device, more than
 * max_tickets), NOMEM, DEVICE_NOMEM, CUDA. */
PST_API pst_status pst_ticket_create(pst_pool *pool, const pst_group *group,
                                     pst_ticket **ticket_out);

/* Waits for the device. NULL is allowed.
 * Fails: BUSY while a captured graph uses the ticket, or it holds pages (release it first). */
PST_API pst_status pst_ticket_destroy(pst_ticket *ticket);

/* Number of the ticket in its pool: what pst_pool_status.fault_ticket says. */
PST_API uint32_t pst_ticket_index(const pst_ticket *ticket);

/* Where stashes into this ticket, enqueued from now on, want to put their pages: the first
 * floor(pages * num / den) on the host, the others on the device. 0/1 is the default; 1/1 is
 * all. (The fraction of MEMO, arXiv:2407.12117, in bytes instead of tokens.) A preference: where
 * one tier is out the other serves, which the status block counts. Operations captured before
 * keep theirs.
 * pre: no other call with this ticket runs at the same time.
 * Fails: INVALID (not a fraction from 0 to 1; above 0 where the pool has no host pages). */
PST_API pst_status pst_ticket_set_offload(pst_ticket *ticket, uint32_t num, uint32_t den);

/* Copies the live rows of source into pages of the ticket's pool.
 * options: NULL for the defaults.
 * pre:     source's memory and counts stay as they are until the stream has passed this point;
 *          afterwards they may be reused.
 * Owns:    nothing.
 * Stream:  one launch, no allocation, no synchronisation; can be captured, and a replay reads the
 *          counts anew.
 * Moves:   live bytes read once and written once, whatever the capacity.
 * Fails:   INVALID (source unlike the ticket's group, no counts, launch options), UNSUPPORTED (a
 *          backend that the device lacks), CUDA. */
PST_API pst_status pst_ticket_stash(pst_ticket *ticket, const pst_group *source,
                                    const pst_stash_options *options, pst_stream stream);

/* Copies what the ticket holds back into destination, exactly the live rows; frees the pages unless
 * told to keep them. Same rules as stash.
 * pre: no other stream uses the destination meanwhile.
 * Fails: INVALID (destination unlike the ticket's group, launch options), UNSUPPORTED (backend),
 * CUDA. */
PST_API pst_status pst_ticket_restore(pst_ticket *ticket, const pst_group *destination,
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
PST_API pst_status pst_ticket_demote(pst_ticket *ticket, const pst_migrate_options *options,
                                     pst_stream stream);

/* The same from the host to the device: ahead of a restore. */
PST_API pst_status pst_ticket_promote(pst_ticket *ticket, const pst_migrate_options *options,
                                      pst_stream stream);

/* Frees the pages without copying (a pool that scrubs overwrites them).
 * Stream: one launch; can be captured. Fails: INVALID, CUDA. */
PST_API pst_status pst_ticket_release(pst_ticket *ticket, pst_stream stream);

PST_END_DECLS

#endif
