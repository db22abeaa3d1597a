/* Room stash: pools of pages, groups of tensors, tickets, and the launches that move live rows.
 * Uses base and device. Used by comm. Rooms that only compute (plan, estimate) may use
 * pool_layout.h, which needs no device. */
#ifndef PSTI_HOST_STASH_H
#define PSTI_HOST_STASH_H

#include <pagestash/glu.h>

#include "host/base/handle.h"
#include "host/base/lock.h"
#include "host/base/nvtx.h"
#include "host/device/device.h"
#include "host/stash/pool_layout.h"

/* ---- group.c ---- */

#define PSTI_NO_TENSOR UINT32_MAX

struct pst_group {
    psti_handle handle;
    uint32_t num_tensors;
    uint32_t num_spaces;
    uint32_t num_counts;
    uint32_t glu_tensor; /* which one a GLU writes, or none */
    uint64_t form;       /* the same for all groups of one form (group.h) */
    uint64_t max_tiles;
    psti_space spaces[PSTI_MAX_SPACES];              /* without counts */
    psti_tensor tensors[PSTI_MAX_TENSORS];           /* without bases */
    uint64_t reach[PSTI_MAX_TENSORS];                /* bytes from a base to behind the last row */
    uint64_t given_segment_stride[PSTI_MAX_TENSORS]; /* 0: packed */
};

/* Sets the strides of tensor i, 0 for packed, adds its bytes to *total, and says how far it reaches
 * from its base. Fails: INVALID. */
pst_status psti_place_tensor(psti_tensor *tensor, const psti_space *space, uint32_t i,
                             uint64_t row_stride, uint64_t segment_stride, uint64_t *total,
                             uint64_t *reach_out);
/* Tiles at capacity. */
uint64_t psti_max_tiles(const psti_space *spaces, const psti_tensor *tensors, uint32_t num_tensors);

/* ---- dirty.c ---- */

struct pst_dirty {
    psti_handle handle;
    pst_device *device;
    psti_hold hold;
    uint64_t *words; /* on the device, num_counts */
    uint32_t num_counts;
    uint64_t form;
    int64_t capacities[PSTI_MAX_SPACES];
};

/* ---- buffers.c: a group's tensors at the addresses of one launch ---- */

typedef struct psti_placing {
    psti_space *spaces;   /* to be filled: num_spaces of the group */
    psti_tensor *tensors; /* num_tensors */
    bool with_counts;     /* counts are needed; otherwise they are not looked at */
    bool may_skip;        /* a base may be NULL */
    uint64_t in_pages; /* a bit for each tensor that is read in its pages: its base must be NULL */
    const pst_pool *pool; /* no base may lie in its pages; NULL: any */
    uint64_t *reaches; /* num_tensors: bytes from a base to behind the last row; NULL: not wanted */
    /* what comes out */
    uint64_t max_tiles;
    bool skips; /* a base is NULL */
} psti_placing;

/* With PAGESTASH_CHECK=1 the device is asked about every address that a launch gets. */
pst_status psti_check_address(pst_device *device, const void *address, uint64_t bytes);

/* Whether some of so many bytes are the pool's. NULL: none are. */
bool psti_lies_in_pool(const pst_pool *pool, const void *base, uint64_t reach);

/* The counts of space i. Fails: INVALID. */
pst_status psti_place_counts(pst_device *device, const pst_buffers *buffers, const char *what,
                             uint32_t i, psti_space *space);

/* what: "source" and the like, for the messages. */
pst_status psti_place(pst_device *device, const pst_group *group, const pst_buffers *buffers,
                      const char *what, psti_placing *placing);

/* ---- launch.c ---- */

/* Of one launch of stash, restore or migrate. */
typedef struct psti_launch {
    uint32_t num_sms; /* 0: all */
    uint32_t backend; /* a pst_backend; auto: by what is moved, see psti_pick_backend */
    uint32_t flags;   /* of psti_move_args */
} psti_launch;

/* The budget of a launch that asks for so many SMs, 0: for what the environment says. 0: all. */
uint32_t psti_launch_sms(const pst_device *device, int num_sms);
pst_status psti_launch_make(const pst_device *device, const pst_launch_options *options,
                            psti_launch *launch_out);

/* args: described, with num_tensors. */
uint32_t psti_pick_backend(const pst_device *device, const psti_launch *launch,
                           const psti_move_args *args);

/* ---- tickets ---- */

#define PSTI_SEVERAL_CAPTURES UINT64_MAX

typedef struct psti_ticket {
    uint32_t slot; /* in the table of all tickets */
    uint32_t index;
    pst_pool *pool;
    psti_hold hold;
    psti_ticket_record *record; /* on the device */
    uint64_t table_pages;
    uint32_t count_room;
    uint32_t host_num, host_den; /* of stashes enqueued from now on */
    bool may_hold;      /* what was enqueued since it was empty for sure may leave pages in it */
    bool is_lent;       /* of the slab */
    bool needs_release; /* what a graph or an earlier owner left in it is released first */
    uint64_t filled_in; /* may_hold: by stashes in this capture, 0: outside, or several */
    bool is_cleared;    /* its owner has enqueued that release, perhaps into a capture */
    uint64_t lease;     /* number of the handle: what an earlier owner stashed is not this one's */
    uint64_t stashed_form; /* of the last stash that was enqueued, with its capacities */
    int64_t stashed_capacity[PSTI_MAX_SPACES];
} psti_ticket;

/* ---- ticket_table.c: all tickets of the process by number ---- */

/* A place in the table, for the ticket's whole life. Fails: NOMEM. */
pst_status psti_ticket_enlist(psti_ticket *ticket);
/* Also of one that was never enlisted. */
void psti_ticket_delist(psti_ticket *ticket);
/* A new number for the ticket; the one before is stale. Fails: NOMEM. */
pst_status psti_ticket_issue(psti_ticket *ticket, pst_ticket *issued_out);
/* False where the number is stale already. */
bool psti_ticket_revoke(const psti_ticket *ticket, pst_ticket number);
/* NULL: stale, or never issued. */
psti_ticket *psti_ticket_find(pst_ticket ticket);

/* Declares `name`, the ticket of a handle. */
#define PSTI_FIND_TICKET(name, handle)                                                   \
    psti_ticket *const name = psti_ticket_find(handle);                                  \
    PSTI_CHECK(name, PST_E_INVALID, "ticket %#llx: %s", (unsigned long long)(handle).id, \
               (handle).id ? "destroyed, given back or never made" : "none")

/* ---- slab.c: tickets that a pool lends ---- */

typedef struct psti_slab psti_slab;

/* The tickets over the records of pool->slab. Fails: NOMEM. */
pst_status psti_slab_open(pst_pool *pool);
void psti_slab_close(pst_pool *pool);
/* Outside capture: frees what graphs that are gone left in tickets that nobody has. */
pst_status psti_slab_sweep(pst_pool *pool, pst_stream stream);
/* Tickets taken, and held by captured graphs. */
uint32_t psti_slab_num_taken(const pst_pool *pool);
uint32_t psti_slab_num_held(const pst_pool *pool);
/* An operation of the ticket was enqueued into the capture, if it is one. */
void psti_slab_note_capture(psti_ticket *ticket, const psti_capture_of *capture);

/* ---- top.c: what `pagestash top` reads, with PAGESTASH_TOP ---- */

typedef struct psti_top psti_top;

/* Makes the pool's file; without one the pool works all the same, and the log says why. */
void psti_top_open(pst_pool *pool);
void psti_top_write(pst_pool *pool, const pst_pool_status *status);
void psti_top_close(pst_pool *pool);

/* ---- pool.c ---- */

struct pst_pool {
    psti_handle handle;
    pst_device *device;
    psti_hold hold;
    psti_pool_view view;
    psti_slab_layout slab;
    psti_slab *lends;               /* NULL: no slab */
    uint32_t num_pages[PSTI_TIERS]; /* as of the last resize */
    psti_span spans[PSTI_TIERS];    /* pages with memory of their own */
    bool is_callers;                /* memory */
    uint32_t failed;      /* atomic: a CUDA error happened, only reset and destroy are accepted */
    uint32_t told_faults; /* atomic: how many faults the log has been told of */
    uint32_t expects; /* atomic: psti_pool_expect was called; a restore or release may be refused */
    uint32_t num_tickets;
    uint32_t num_ops;        /* atomic */
    uint64_t num_gives;      /* atomic: tickets that were given back */
    void *memory;            /* NULL when the caller's */
    unsigned char *metadata; /* on the device, beside pages */
    uint64_t metadata_bytes;
    psti_canary canaries[PSTI_NUM_PARTS];
    uint64_t *canaries_seen; /* pinned: how they were last; NULL without PAGESTASH_CHECK=1 */
    pst_make_room_fn make_room;
    void *make_room_context;
    psti_mailbox *mailbox;
    psti_top *top;                        /* NULL: nobody watches */
    uint64_t counters[PSTI_NUM_COUNTERS]; /* of NVTX: pages in use; 0: no tool listens */
    pst_stream stream;                    /* for synchronous calls */
    unsigned char *ticket_used;
    psti_lock lock; /* of num_tickets, ticket_used, and the slab */
};

pst_status psti_pool_usable(const pst_pool *pool);
/* Returns status; PST_E_CUDA marks the pool as failed. */
pst_status psti_pool_note(pst_pool *pool, pst_status status);
/* Launches reset, resize, step or check. */
pst_status psti_pool_control(pst_pool *pool, psti_op op, uint32_t what, pst_stream stream);
/* For graphs that hold the schedule they were made for. On the device: where *word is not `expected`, the
 * fault SCHEDULE is recorded (wanted: what was found; free: expected, 0), step_valid is 0, and the pool
 * refuses every stash, restore, release, demote and promote: nothing is taken, freed, copied or counted,
 * no fault recorded, until pst_pool_step or a reset of pages or faults. Tickets keep what they held, but a
 * lent one that is given back is freed; a restore with PST_FAILED_ZERO clears its destination. One
 * launch; can be captured. From the first call on pst_ticket_give releases whatever was stashed since.
 * pre: no other operation of the pool overlaps; the device reads `word` whenever it runs.
 * Fails: INVALID, CUDA. */
pst_status psti_pool_expect(pst_pool *pool, const uint64_t *word, uint64_t expected,
                            pst_stream stream);
pst_status psti_pool_take_index(pst_pool *pool, uint64_t record, uint32_t *index_out);
pst_status psti_pool_drop_index(pst_pool *pool, uint32_t index);
/* Copies device memory to or from the host and waits. */
pst_status psti_pool_copy(const pst_pool *pool, void *to, const void *from, size_t bytes);

/* ---- pool_memory.c ---- */

/* Of one call that takes memory: what the caller was asked for already. */
typedef struct psti_room {
    pst_pool *pool;
    bool asked[PSTI_TIERS];
} psti_room;

/* A block of device memory, pool->memory; of the bytes to follow the caller hears, too. */
pst_status psti_pool_take_block(psti_room *room, uint64_t bytes, uint64_t bytes_to_follow);
/* Puts memory behind the first `pages` of a tier that has a span, and takes it from the others. After
 * a failure the tier is as before. */
pst_status psti_pool_map(psti_room *room, uint32_t tier, uint64_t pages);

/* ---- canary.c: bytes behind the parts of the metadata that nobody writes ---- */

/* With PAGESTASH_CHECK=1, as all below; without it they do nothing. Enqueued on the pool's stream. */
pst_status psti_canaries_write(pst_pool *pool);
/* Enqueues the copies that compare looks at. */
pst_status psti_canaries_fetch(pst_pool *pool, pst_stream stream);
/* What has arrived, without waiting. Threads: any. Fails: DAMAGED, with part, byte and value. */
pst_status psti_canaries_compare(const pst_pool *pool);
/* Of a ticket that was created: PSTI_CANARY_BYTES behind its record. Both wait. */
pst_status psti_ticket_canary_write(const psti_ticket *ticket);
pst_status psti_ticket_canary_look(const psti_ticket *ticket);

/* ---- ticket.c ---- */

/* Pages of so many tiles, or all that the pool can have. */
uint64_t psti_table_length(const pst_pool *pool, uint64_t max_tiles);

/* ---- glu.c: for a block of layers, which enqueues other work before its gated activation ---- */

/* Of F features of a rank. */
pst_status psti_glu_check_form(const pst_glu *glu, uint64_t features);
/* All that pst_glu_forward and pst_glu_backward check of their arguments. */
pst_status psti_glu_check_forward(pst_device *device, const pst_glu *glu, pst_ticket ticket,
                                  const pst_group *group, const pst_buffers *source,
                                  const pst_glu_operands *operands,
                                  const pst_stash_options *options);
pst_status psti_glu_check_backward(pst_device *device, const pst_glu *glu, pst_ticket ticket,
                                   const pst_group *group, const pst_buffers *buffers,
                                   const pst_glu_operands *operands,
                                   const pst_restore_options *options);

/* ---- ticket_move.c ---- */

/* What launches that stash or restore have in common, in this order: check, begin, fill, enqueue, note. */
pst_status psti_move_check_room(const psti_ticket *ticket, const pst_group *group,
                                const psti_placing *placing, const char *what);
pst_status psti_move_check_options(const psti_ticket *ticket, const pst_group *group,
                                   const pst_restore_options *options);
/* Whether the stream is captured; and what an earlier owner left goes. */
pst_status psti_move_begin(psti_ticket *ticket, pst_stream stream, psti_capture_of *capture);
/* What the arguments have without a ticket; placing NULL: there is no group. */
void psti_move_fill_group(const pst_device *device, const pst_group *group,
                          const psti_placing *placing, const psti_launch *launch,
                          psti_move_args *args);
/* What kernels would else find out from each space and tensor. */
void psti_move_describe(psti_move_args *args);
/* The number that tells an operation from those that read the same launch number; never 0. */
uint32_t psti_next_op(pst_pool *pool);
/* All of it. */
void psti_move_fill(const psti_ticket *ticket, const pst_group *group, const psti_placing *placing,
                    const psti_launch *launch, psti_move_args *args);
uint32_t psti_move_restore_flags(const pst_restore_options *options);
/* args: of the operation, whatever that is. */
pst_status psti_move_enqueue(psti_ticket *ticket, psti_op op, const void *args, pst_dirty *dirty,
                             const psti_capture_of *capture, pst_stream stream);
/* A stash is about to be enqueued. */
void psti_move_note_stash(psti_ticket *ticket, const pst_group *group, const psti_space *spaces,
                          const psti_capture_of *capture);
/* A restore that consumes was enqueued. */
void psti_move_note_restore(psti_ticket *ticket, const pst_group *group, const psti_space *spaces,
                            const psti_capture_of *capture);

/* Frees what the ticket holds, if anything, without a fault where it holds nothing. */
pst_status psti_ticket_clear(psti_ticket *ticket, const psti_capture_of *capture,
                             pst_stream stream);

#endif
