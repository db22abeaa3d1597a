/* Room stash: pools of pages, groups of tensors, tickets, and the launches that move live rows.
 * Uses base and device. Used by comm. Rooms that only compute (plan, estimate) may use
 * pool_layout.h, which needs no device. */
#ifndef PSTI_HOST_STASH_H
#define PSTI_HOST_STASH_H

#include <pagestash/ticket.h>

#include "host/device/device.h"

/* ---- group.c ---- */

struct pst_group {
    pst_device *device;
    psti_hold *hold; /* behind the group: a group is const to the calls that hold it */
    uint32_t num_tensors;
    uint32_t num_spaces;
    uint32_t num_counts;
    bool has_counts; /* no counts pointer is NULL */
    bool is_aligned; /* every segment begins at a multiple of 16 */
    uint64_t *dirty; /* on the device, num_counts words */
    uint64_t max_tiles;
    psti_space spaces[PSTI_MAX_SPACES];
    psti_tensor tensors[PSTI_MAX_TENSORS];
};

/* NULL, or what differs in tensors or row spaces ("tensor 3 has 4 bytes per row, not 8"), written
 * to the buffer. Counts, bases, strides and capacities may differ. */
const char *psti_group_difference(const pst_group *a, const pst_group *b, char *buffer,
                                  size_t buffer_bytes);

/* ---- launch.c ---- */

/* Of one launch of stash or restore. */
typedef struct psti_launch {
    uint32_t num_sms; /* 0: all */
    uint32_t backend; /* a pst_backend; auto only on the host device */
    uint32_t flags;   /* of psti_move_args */
} psti_launch;

pst_status psti_launch_make(const pst_device *device, const pst_group *group,
                            const pst_launch_options *options, psti_launch *launch_out);

/* ---- pool.c ---- */

struct pst_pool {
    pst_device *device;
    psti_hold hold;
    psti_pool_view view;
    uint32_t num_pages[PSTI_TIERS]; /* as of the last resize */
    psti_span spans[PSTI_TIERS];    /* pages with memory of their own */
    bool is_callers;                /* memory */
    uint32_t failed; /* atomic: a CUDA error happened, only reset and destroy are accepted */
    uint32_t num_tickets;
    uint32_t num_ops; /* atomic */
    void *memory;     /* NULL when the caller's */
    psti_mailbox *mailbox;
    pst_stream stream; /* for synchronous calls */
    unsigned char *ticket_used;
    void *lock; /* pthread_mutex_t of num_tickets and ticket_used */
};

pst_status psti_pool_usable(const pst_pool *pool);
/* Returns status; PST_E_CUDA marks the pool as failed. */
pst_status psti_pool_note(pst_pool *pool, pst_status status);
/* Launches reset, resize, step or check. */
pst_status psti_pool_control(pst_pool *pool, psti_op op, uint32_t what, pst_stream stream);
/* Holds and launches. */
pst_status psti_pool_launch(pst_pool *pool, psti_op op, const void *args, pst_stream stream);
pst_status psti_pool_take_index(pst_pool *pool, uint64_t record, uint32_t *index_out);
pst_status psti_pool_drop_index(pst_pool *pool, uint32_t index);
/* Copies device memory to or from the host and waits. */
pst_status psti_pool_copy(const pst_pool *pool, void *to, const void *from, size_t bytes);

/* ---- ticket.c ---- */

struct pst_ticket {
    pst_pool *pool;
    psti_hold hold;
    psti_ticket_record *record; /* on the device */
    uint32_t index;
    uint32_t host_num, host_den; /* of stashes enqueued from now on */
    uint64_t table_pages;
    pst_group *shape; /* a copy without device memory */
};

#endif
