/* The page pool: pages of one size, an id ring that says which are free, and a status block.
 *
 * All state lives on the device and is changed by kernels only; the host keeps no copy. One pool
 * serves tensors of every dtype and width.
 *
 * Ordered pools (the default) want their operations ordered by one stream or by events; page ids
 * are then a function of history. Overlapping operations are detected: the pool sets
 * PST_FLAG_ORDER and refuses work until pst_pool_reset. Concurrent pools take stash, restore,
 * release, demote and promote from several streams at once. In both, operations on one ticket
 * are ordered, and reset, step and check run alone.
 *
 * Threads: the functions below may be called from any thread; enqueueing calls on one stream come
 * from one thread at a time. destroy must not race with any other use.
 */
#ifndef PAGESTASH_POOL_H
#define PAGESTASH_POOL_H

#include <pagestash/device.h>

#define PST_PAGE_BYTES_DEFAULT (256u * 1024u)
#define PST_PAGE_BYTES_MIN (16u * 1024u)
#define PST_PAGE_BYTES_MAX (4u * 1024u * 1024u)

typedef struct pst_pool pst_pool;

typedef enum pst_pool_mode { PST_POOL_ORDERED = 0, PST_POOL_CONCURRENT = 1 } pst_pool_mode;

typedef struct pst_pool_config {
    size_t struct_size;
    uint64_t page_bytes;  /* power of two, 16 KiB to 4 MiB; 0: 256 KiB */
    uint64_t num_pages;   /* 1 to 2^31 - 1 */
    pst_pool_mode mode;   /* default: ordered */
    uint32_t max_tickets; /* tickets that exist at once, at most 2^20; 0: 4096 */
    void *memory;         /* device memory of the caller's, at least pst_pool_bytes, aligned to 256,
                            * alive until destroy; NULL: the pool allocates its own */
    uint64_t memory_bytes;   /* size of memory; 0 when memory is NULL */
    uint64_t num_host_pages; /* pinned host memory that the device reads and writes in place: what a
                              * stash takes when device pages run out; 0 to 2^31 - 1 */
    uint64_t max_pages; /* what pst_pool_resize can go up to; addresses, ring and owner words are
                              * reserved for so many; 0: num_pages. 0 where memory is given */
    uint64_t max_host_pages; /* 0: num_host_pages */
    bool scrub; /* clears a page whenever it is freed, so that no later holder can read it: by
                              * restore, release, reset, a resize to fewer, demote and promote */
    uint8_t padding[7]; /* 0 */
} pst_pool_config;

#define PST_POOL_CONFIG_INIT PST_INIT(pst_pool_config)

/* Sticky flags of the status block: one bit per kind of fault, bit (1 << fault). */
/* X(name, value, text) */
#define PST_FAULT_LIST(X)                                                                \
    X(PST_FAULT_NONE, 0, "none")                                                         \
    X(PST_FAULT_EXHAUSTED, 1, "stash wanted more pages than are free")                   \
    X(PST_FAULT_COUNT, 2, "stash read a row count below 0 or above the capacity")        \
    X(PST_FAULT_LIVE, 3, "stash into a ticket that is still live")                       \
    X(PST_FAULT_EMPTY, 4, "restore, release or move of a ticket that holds nothing")     \
    X(PST_FAULT_FAILED, 5, "restore or move of a ticket whose stash failed")             \
    X(PST_FAULT_DESTINATION, 6, "restore into a group too small for the live rows")      \
    X(PST_FAULT_DAMAGED, 7, "a page id or record is not what the pool gave out")         \
    X(PST_FAULT_ORDER, 8, "operations of an ordered pool, or of one ticket, overlapped") \
    X(PST_FAULT_CHECK, 9, "pst_pool_check found pages lost or owned twice")              \
    X(PST_FAULT_MOVED, 10, "demote or promote of a ticket with no page left to move")

typedef enum pst_fault {
#define PST_FAULT_ENUM(name, value, text) name = value,
    PST_FAULT_LIST(PST_FAULT_ENUM)
#undef PST_FAULT_ENUM
} pst_fault;

#define PST_FLAG_ORDER (1u << PST_FAULT_ORDER)

/* The status block: lies on the device in this form, and is published by pst_pool_step. It has 256
 * bytes for ever; new figures take reserved words, which read as 0 until then. Index 0 of the pairs
 * is device pages, 1 host pages. */
typedef struct pst_pool_status {
    uint32_t flags;             /* sticky: bit (1 << fault) for every fault seen since reset */
    int32_t step_valid;         /* 1, or 0 when something failed in the step that was closed */
    uint32_t fault_state;       /* 0 no fault, 1 being written, 2 the first fault stands below */
    uint32_t fault;             /* pst_fault of the first fault */
    uint32_t fault_ticket;      /* pst_ticket_index of its ticket; UINT32_MAX: none */
    uint32_t num_faults;        /* all faults since reset, not only the first */
    uint64_t fault_wanted;      /* EXHAUSTED: pages it wanted; COUNT: the count, two's complement;
                                 * DAMAGED: the page id, 0 when it is the record; CHECK: how many
                                 * pages are wrong; else 0 */
    uint64_t fault_free[2];     /* pages free then */
    uint64_t high_water[2];     /* most pages in use at once since reset of the statistics */
    uint64_t demand_high_water; /* the same, had no stash failed for want of pages */
    uint64_t step_demand;       /* the same, of the step that was closed */
    uint64_t spilled_pages;     /* device pages wanted and taken from the host tier */
    uint64_t in_use[2];         /* pages in use at publication */
    uint64_t steps;             /* number of pst_pool_step since creation */
    uint64_t checks;            /* number of pst_pool_check since creation */
    uint32_t epoch;             /* bumped by reset of the pages */
    uint32_t check_errors;      /* found by the last check */
    uint64_t offloaded_pages;   /* host pages wanted (pst_ticket_set_offload) and got */
    uint64_t displaced_pages;   /* host pages wanted and taken from the device tier */
    uint64_t demoted_pages;     /* moved to the host by pst_ticket_demote */
    uint64_t promoted_pages;    /* moved to the device by pst_ticket_promote */
    uint64_t stranded_pages;    /* that either was to move and found no free page for */
    uint32_t struct_bytes;      /* 256: what the library that made the pool took it to have */
    uint32_t version;           /* of that library, as pst_version has it */
    uint64_t reserved[6];
    uint64_t demand_quantiles[4]; /* pages: upper ends, within 1/16, of p50, p90, p99, p999 of
                                   * step_demand since reset of the statistics */
} pst_pool_status;

/* Shares of the steps: the indices of demand_quantiles, and all. */
typedef enum pst_steps_share {
    PST_STEPS_P50 = 0,
    PST_STEPS_P90 = 1,
    PST_STEPS_P99 = 2,
    PST_STEPS_P999 = 3,
    PST_STEPS_ALL = 4
} pst_steps_share;

/* What pst_pool_reset resets; bits can be combined. */
#define PST_RESET_PAGES 1u      /* all pages free; every ticket reads as empty */
#define PST_RESET_FAULTS 2u     /* flags, first fault, fault count, step_valid */
#define PST_RESET_STATISTICS 4u /* high-water marks, quantiles, the counts of pages */
#define PST_RESET_ALL 7u

PST_BEGIN_DECLS

/* Device bytes that a pool of this config takes at first: pages, rings, owner words, state. It is
 * the walk that carves them. (Where max_pages is above num_pages the pages are mapped on their own,
 * in units of the device, mostly 2 MiB.) Fails: INVALID. */
PST_API pst_status pst_pool_bytes(const pst_pool_config *config, uint64_t *bytes_out);

/* Makes a pool and waits until it is ready.
 * pre: not while capturing; device outlives the pool.
 * Host pages are on the GPU's NUMA node and in huge pages where the system lets them be, and at
 * most 7/8 of the memory that it has available are taken.
 * Fails: INVALID, NOMEM (also of host pages; message: bytes wanted and available), DEVICE_NOMEM
 * (message: bytes wanted and free), UNSUPPORTED (max_pages: no virtual memory), CUDA. */
PST_API pst_status pst_pool_create(pst_device *device, const pst_pool_config *config,
                                   pst_pool **pool_out);

/* Waits for the device and frees the pool. NULL is allowed.
 * Fails: BUSY while tickets or captured graphs hold the pool; the message says how many. */
PST_API pst_status pst_pool_destroy(pst_pool *pool);

/* Changes the number of device and host pages, up to max_pages and max_host_pages: waits for the
 * device, maps or unmaps memory, tells the pool.
 * pre: not while capturing, and no other call for this pool at the same time.
 * More pages: addresses, live tickets and captured graphs stay as they are, a replay finds the new
 * pages free. Fewer: every ticket reads as empty afterwards, as after a reset of the pages; refused
 * while a ticket holds pages or a captured graph holds the pool.
 * Fails: INVALID (the message has the bounds), BUSY (fewer), UNSUPPORTED (memory of the caller's),
 * NOMEM, DEVICE_NOMEM, CUDA. After a failure the pool is as before. */
PST_API pst_status pst_pool_resize(pst_pool *pool, uint64_t num_pages, uint64_t num_host_pages);

/* Resets what the bits say. One launch; can be captured.
 * pre: no other operation of the pool overlaps.
 * Pages: rings are refilled in order and the epoch bumped, so that old tickets read as empty;
 * an ORDER refusal ends. A reset of the pages also revives a pool after PST_E_CUDA, if the device
 * still works. */
PST_API pst_status pst_pool_reset(pst_pool *pool, uint32_t what, pst_stream stream);

/* Closes a step: folds the step's high-water marks and its demand into the status block,
 * publishes the block to a pinned mailbox for pst_pool_poll, and sets step_valid to 1 again. One
 * launch; can be captured. */
PST_API pst_status pst_pool_step(pst_pool *pool, pst_stream stream);

/* The status most recently published, without synchronising: it may be one step old while the
 * device is busy; synchronise the stream first for the last one. Threads: any.
 * Fails: INVALID, AGAIN (no step has been published yet). */
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
 * words and page tables, for tests and debugging. */
PST_API pst_status pst_pool_check(pst_pool *pool, pst_stream stream);

/* Device address of step_valid (int32): 1, or 0 once anything failed in this step, after
 * pst_nccl_agree on any rank. For the caller's own all-reduce, or to gate an optimizer on the
 * device. Valid until destroy. */
PST_API int32_t *pst_pool_step_valid(pst_pool *pool);

/* "stash wanted more pages than are free" and so on; static storage. */
PST_API const char *pst_fault_text(pst_fault fault);

PST_END_DECLS

#endif
