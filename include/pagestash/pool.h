/* The page pool: pages of one size, an id ring that says which are free, and a status block.
 *
 * All state lives on the device and is changed by kernels only; the host keeps no copy. One pool
 * serves tensors of every dtype and width.
 *
 * Ordered pools (the default) want their operations ordered by one stream or by events; page ids
 * are then a function of history. Overlapping operations are detected: the pool sets
 * PST_FLAG_ORDER and refuses work until pst_pool_reset. Concurrent pools take stash, restore,
 * release, demote and promote from several streams at once. In both, operations on one ticket
 * are ordered, and reset, step and check run alone. In both, too, a graph that a scheduler captured for
 * another schedule than the one of today does nothing: PST_FAULT_SCHEDULE, once, and the pool refuses
 * work without a word until the step ends.
 *
 * Threads: the functions below may be called from any thread; enqueueing calls on one stream come
 * from one thread at a time. destroy must not race with any other use.
 */
#ifndef PAGESTASH_POOL_H
#define PAGESTASH_POOL_H

#include <pagestash/device.h>

#define PST_PAGE_BYTES_DEFAULT (256u * 1024u)   /* 256 KiB */
#define PST_PAGE_BYTES_MIN (16u * 1024u)        /* 16 KiB */
#define PST_PAGE_BYTES_MAX (4u * 1024u * 1024u) /* 4 MiB */

typedef struct pst_pool pst_pool; /* made by pst_pool_create */

/* Whether operations of several streams may overlap. */
typedef enum pst_pool_mode {
    PST_POOL_ORDERED = 0,   /* all operations come in one order, by one stream or by events */
    PST_POOL_CONCURRENT = 1 /* those of different tickets may overlap */
} pst_pool_mode;

/* Asks the caller to free memory (a framework to empty its cache): so many bytes of device memory
 * (tier 0) or host memory (tier 1) are wanted and cannot be had. True: it is worth another try. Called
 * at most once per tier of a call of pst_pool_create or pst_pool_resize, in the calling thread, with no
 * lock of the library held; it may use the library, but not this pool. */
typedef bool (*pst_make_room_fn)(void *context, uint64_t bytes, uint32_t tier);

/* How many pages of what size a pool has, and where they lie. */
typedef struct pst_pool_config {
    size_t struct_size;
    uint64_t page_bytes;  /* power of two, 16 KiB to 4 MiB; 0: 256 KiB */
    uint64_t num_pages;   /* 1 to 2^31 - 1 */
    pst_pool_mode mode;   /* default: ordered */
    uint32_t max_tickets; /* tickets that exist at once, the slab's included, at most 2^20; 0: 4096,
                           * or the slab's where that has more */
    void *memory;         /* device memory of the caller's, at least pst_pool_bytes, aligned to 256,
                            * alive until destroy; NULL: the pool allocates its own */
    uint64_t memory_bytes;   /* size of memory; 0 when memory is NULL */
    uint64_t num_host_pages; /* pinned host memory that the device reads and writes in place: what a
                              * stash takes when device pages run out; 0 to 2^31 - 1 */
    uint64_t max_pages; /* what pst_pool_resize can go up to; addresses, ring and owner words are
                              * reserved for so many; 0: num_pages. 0 where memory is given */
    uint64_t max_host_pages; /* 0: num_host_pages */
    bool scrub;      /* clears a page whenever it is freed, so that no later holder can read it: by
                              * restore, release, reset, a resize to fewer, demote and promote */
    bool fails_fast; /* ends a lost step cheaply: once something failed in a step (step_valid is 0),
                      * its later stashes fail at once and copy nothing; what they wanted still counts
                      * in demand_high_water. pst_pool_step, or a reset of the faults,
                      * ends that */
    uint8_t padding[2];    /* 0 */
    uint32_t slab_tickets; /* tickets that pst_ticket_take lends, at most 2^20; 0: none */
    uint64_t slab_pages;   /* of each: pages that one stash can have; 0, or more than the pool can
                          * have: all of those. 0 without a slab */
    uint32_t slab_counts; /* of each: row counts, pst_group_num_counts, up to 8192; 0: 64. 0 without
                           * a slab */
    uint32_t padding_2;   /* 0 */
    /* Asked where memory for pages cannot be had, at creation and by pst_pool_resize; NULL: nobody. */
    pst_make_room_fn make_room;
    void *make_room_context; /* first argument of make_room */
} pst_pool_config;

#define PST_POOL_CONFIG_INIT PST_INIT(pst_pool_config)

/* Sticky flags of the status block: one bit per kind of fault, bit (1 << fault). */
/* X(name, value, text) */
#define PST_FAULT_LIST(X)                                                                     \
    X(PST_FAULT_NONE, 0, "none")                                                              \
    X(PST_FAULT_EXHAUSTED, 1, "stash wanted more pages than are free")                        \
    X(PST_FAULT_COUNT, 2, "stash read a row count below 0 or above the capacity")             \
    X(PST_FAULT_LIVE, 3, "stash into a ticket that is still live")                            \
    X(PST_FAULT_EMPTY, 4, "restore, release or move of a ticket that holds nothing")          \
    X(PST_FAULT_FAILED, 5, "restore or move of a ticket whose stash failed")                  \
    X(PST_FAULT_DESTINATION, 6, "restore into buffers too small for the live rows")           \
    X(PST_FAULT_DAMAGED, 7, "a page id or record is not what the pool gave out")              \
    X(PST_FAULT_ORDER, 8, "operations of an ordered pool, or of one ticket, overlapped")      \
    X(PST_FAULT_CHECK, 9, "pst_pool_check found pages lost or owned twice")                   \
    X(PST_FAULT_MOVED, 10, "demote or promote of a ticket with no page left to move")         \
    X(PST_FAULT_FORM, 11, "restore of what was stashed in another form, or by another owner") \
    X(PST_FAULT_LOST, 12, "stash in a step that had failed already")                          \
    X(PST_FAULT_SCHEDULE, 13, "a graph of another schedule was launched")

/* What the device found wrong; recorded in the status block, answered by no call. */
typedef enum pst_fault {
#define PST_FAULT_ENUM(name, value, text) name = value,
    PST_FAULT_LIST(PST_FAULT_ENUM)
#undef PST_FAULT_ENUM
} pst_fault;

/* in pst_pool_status.flags: until a reset of the pages the pool refuses all work */
#define PST_FLAG_ORDER (1u << PST_FAULT_ORDER)

/* The status block: lies on the device in this form, and is published by pst_pool_step. It has 256
 * bytes for ever; new figures take reserved words, which read as 0 until then. Index 0 of the pairs
 * is device pages, 1 host pages. */
typedef struct pst_pool_status {
    uint32_t flags;         /* sticky: bit (1 << fault) for every fault seen since reset */
    int32_t step_valid;     /* 1, or 0 when something failed in the step that was closed */
    uint32_t fault_state;   /* 0 no fault, 1 being written, 2 the first fault stands below */
    uint32_t fault;         /* pst_fault of the first fault */
    uint32_t fault_ticket;  /* pst_ticket_index of its ticket; UINT32_MAX: none */
    uint32_t num_faults;    /* all faults since reset, not only the first */
    uint64_t fault_wanted;  /* EXHAUSTED: pages it wanted; COUNT: the count, two's complement, of a
                                 * sum the first negative one, else the partial sum that first is
                                 * above the capacity; DAMAGED: the page id, 0 when it is the record; CHECK: how many
                                 * pages are wrong; SCHEDULE: the number found; else 0 */
    uint64_t fault_free[2]; /* pages free then; SCHEDULE: the number expected, and 0 */
    uint64_t high_water[2]; /* most pages in use at once since reset of the statistics */
    uint64_t demand_high_water;   /* the same, had no stash failed for want of pages */
    uint64_t step_demand;         /* the same, of the step that was closed */
    uint64_t spilled_pages;       /* device pages wanted and taken from the host tier */
    uint64_t in_use[2];           /* pages in use at publication */
    uint64_t steps;               /* number of pst_pool_step since creation */
    uint64_t checks;              /* number of pst_pool_check since creation */
    uint32_t epoch;               /* bumped by reset of the pages */
    uint32_t check_errors;        /* found by the last check */
    uint64_t offloaded_pages;     /* host pages wanted (pst_ticket_set_offload) and got */
    uint64_t displaced_pages;     /* host pages wanted and taken from the device tier */
    uint64_t demoted_pages;       /* moved to the host by pst_ticket_demote */
    uint64_t promoted_pages;      /* moved to the device by pst_ticket_promote */
    uint64_t stranded_pages;      /* that either was to move and found no free page for */
    uint32_t struct_bytes;        /* 256: what the library that made the pool took it to have */
    uint32_t version;             /* of that library, as pst_version has it */
    uint64_t reserved[6];         /* 0 */
    uint64_t demand_quantiles[4]; /* pages: upper ends, within 1/16, of p50, p90, p99, p999 of
                                   * step_demand since reset of the statistics */
} pst_pool_status;

/* What a pool is, and the memory that it holds. Index 0 of the pairs is the device tier, 1 the host
 * tier. Addresses, page shift and most pages never change while the pool exists, growth included:
 * captured graphs and others' kernels may keep them. */
typedef struct pst_pool_info {
    uint64_t page_bytes;    /* of pst_pool_config, its default filled in */
    uint32_t page_shift;    /* page_bytes = 1 << page_shift */
    uint32_t num_tickets;   /* that exist now, created and lent */
    uint32_t max_tickets;   /* pst_pool_config */
    uint32_t slab_tickets;  /* pst_pool_config */
    uint32_t slab_taken;    /* of those, lent now */
    uint32_t padding;       /* 0 */
    uint64_t num_pages[2];  /* as of the last resize */
    uint64_t max_pages[2];  /* what pst_pool_resize can go up to */
    uint64_t held_bytes[2]; /* memory behind pages, whole units of the device; the caller's memory
                                 * counts, too */
    uint64_t reserved_bytes[2]; /* addresses of pages, with memory behind them or not */
    uint64_t metadata_bytes;    /* device memory beside pages: rings, owner words, state, slab */
    const void *pages[2];       /* page i lies at pages + (i << page_shift); NULL: a tier without */
    const uint64_t *owners[2];  /* owner word of page i: 0 where the page is free; NULL as above */
} pst_pool_info;

/* Shares of the steps: the indices of demand_quantiles, and all. */
typedef enum pst_steps_share {
    PST_STEPS_P50 = 0,  /* half of them */
    PST_STEPS_P90 = 1,  /* nine in ten */
    PST_STEPS_P99 = 2,  /* 99 in 100 */
    PST_STEPS_P999 = 3, /* 999 in 1000 */
    PST_STEPS_ALL = 4   /* every one */
} pst_steps_share;

/* What pst_pool_reset resets; bits can be combined. */
#define PST_RESET_PAGES 1u      /* all pages free; every ticket reads as empty */
#define PST_RESET_FAULTS 2u     /* flags, first fault, fault count, step_valid */
#define PST_RESET_STATISTICS 4u /* high-water marks, quantiles, the counts of pages */
#define PST_RESET_ALL 7u        /* all of the above */

PST_BEGIN_DECLS

/* Device bytes that a pool of this config takes at first: pages, rings, owner words, state. It is
 * the walk that carves them. (Where max_pages is above num_pages the pages are mapped on their own,
 * in units of the device, mostly 2 MiB.) With PAGESTASH_CHECK=1 canaries count, too. Fails: INVALID. */
PST_API pst_status pst_pool_bytes(const pst_pool_config *config, uint64_t *bytes_out);

/* Makes a pool and waits until it is ready.
 * pre: not while capturing; device outlives the pool.
 * Host pages are on the GPU's NUMA node and in huge pages where the system lets them be, and at
 * most 7/8 of the memory that it has available are taken.
 * Fails: INVALID, NOMEM (also of host pages; message: bytes wanted and available), DEVICE_NOMEM
 * (message: bytes wanted and free; of both, what make_room was asked for), UNSUPPORTED (max_pages:
 * no virtual memory), CAPTURE, CUDA. */
PST_API pst_status pst_pool_create(pst_device *device, const pst_pool_config *config,
                                   pst_pool **pool_out);

/* Waits for the device and frees the pool. NULL is allowed.
 * Fails: BUSY while tickets or captured graphs hold the pool; the message says how many. DAMAGED
 * (PAGESTASH_CHECK=1; the pool is freed all the same). */
PST_API pst_status pst_pool_destroy(pst_pool *pool);

/* Changes the number of device and host pages, up to max_pages and max_host_pages: waits for the
 * device, maps or unmaps memory, tells the pool.
 * pre: not while capturing, and no other call for this pool at the same time.
 * More pages: addresses, live tickets and captured graphs stay as they are, a replay finds the new
 * pages free. Fewer: every ticket reads as empty afterwards, as after a reset of the pages; refused
 * while a ticket holds pages or a captured graph holds the pool.
 * Fails: INVALID (the message has the bounds), BUSY (fewer), UNSUPPORTED (memory of the caller's),
 * NOMEM, DEVICE_NOMEM (messages as for create), CAPTURE, CUDA. After a failure the pool is as
 * before. */
PST_API pst_status pst_pool_resize(pst_pool *pool, uint64_t num_pages, uint64_t num_host_pages);

/* What the pool is and holds now. Threads: any, but not beside pst_pool_resize. Fails: INVALID. */
PST_API pst_status pst_pool_get_info_sized(pst_pool *pool, pst_pool_info *info_out,
                                           size_t info_bytes);
static inline pst_status pst_pool_get_info(pst_pool *pool, pst_pool_info *info_out)
{
    return pst_pool_get_info_sized(pool, info_out, sizeof(pst_pool_info));
}

/* Resets what the bits say. One launch; can be captured.
 * pre: no other operation of the pool overlaps.
 * Pages: rings are refilled in order and the epoch bumped, so that old tickets read as empty;
 * an ORDER refusal ends, and as with Faults one by SCHEDULE. Outside capture a reset of the pages also revives a pool after PST_E_CUDA, if
 * the device still works. */
PST_API pst_status pst_pool_reset(pst_pool *pool, uint32_t what, pst_stream stream);

/* Closes a step: folds the step's high-water marks and its demand into the status block,
 * publishes the block to a pinned mailbox for pst_pool_poll, and sets step_valid to 1 again. One
 * launch; can be captured. Ends a refusal by SCHEDULE. Outside capture also one release for each lent ticket that nobody has and
 * that a destroyed graph may have left pages in. */
PST_API pst_status pst_pool_step(pst_pool *pool, pst_stream stream);

/* The status most recently published, without synchronising: it may be one step old while the
 * device is busy; synchronise the stream first for the last one. Threads: any.
 * Fails: INVALID, AGAIN (no step has been published yet), DAMAGED (PAGESTASH_CHECK=1: what checks before
 * have brought). */
PST_API pst_status pst_pool_poll(pst_pool *pool, pst_pool_status *status_out);

/* Pages of both tiers that would have been enough for this share of the steps since the last reset
 * of the statistics, had no stash failed; 0 before the first step. Use P99 for the device pages and
 * ALL minus P99 for the host pages: of steps like these at most one in a hundred spills, and none
 * fails. Pure arithmetic. Fails: INVALID. */
PST_API pst_status pst_pool_recommend_pages(const pst_pool_status *status, pst_steps_share share,
                                            uint64_t *pages_out);

/* Checks conservation: each page is free exactly once or held by exactly one live ticket, and its
 * owner word says so. One launch; can be captured. Counts what is wrong in check_errors and records
 * a CHECK fault; read it through pst_pool_step and pst_pool_poll. Cost: a pass over rings, owner
 * words and page tables, for tests and debugging. With PAGESTASH_CHECK=1 and outside a capture it also
 * asks for the canaries, the bytes behind the parts of the pool's memory that nobody may write. (That
 * behind the record of a ticket that was created is read by pst_ticket_destroy.)
 * Fails: DAMAGED (of canaries that have arrived; the launch was enqueued), others as all that enqueue. */
PST_API pst_status pst_pool_check(pst_pool *pool, pst_stream stream);

/* Device address of step_valid (int32): 1, or 0 once anything failed in this step, after
 * pst_nccl_agree on any rank. For the caller's own all-reduce, which runs alone as pst_nccl_agree does,
 * or to gate an optimizer on the device. Valid until destroy. */
PST_API int32_t *pst_pool_step_valid(pst_pool *pool);

/* "stash wanted more pages than are free" and so on; static storage. */
PST_API const char *pst_fault_text(pst_fault fault);

PST_END_DECLS

#endif
