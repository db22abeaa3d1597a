/* What becomes of what a layer keeps for its backward pass. Used by the scheduler, the simulator and
 * the policy. */
#ifndef PAGESTASH_KEEP_H
#define PAGESTASH_KEEP_H

#include <pagestash/api.h>

/* Where a layer's tensors are between its forward and its backward. */
typedef enum pst_keep {
    PST_KEEP_PAGED = 0, /* stashed into pages, restored before the backward */
    /* copied to pinned host memory from one of two buffers, and back; the tokens that do not go are
     * computed again (MEMO, arXiv:2407.12117) */
    PST_KEEP_SWAPPED = 1,
    PST_KEEP_PLANNED = 2,   /* stays where the static plan put it (arena.h) */
    PST_KEEP_RECOMPUTED = 3 /* dropped, and computed again from the layer's input */
} pst_keep;

/* How pages of a stash get to the host. */
typedef enum pst_move {
    PST_MOVE_DIRECT = 0, /* the stash writes them there (pst_ticket_set_offload) */
    /* the stash writes device pages, which are then moved on a stream of their own, and moved back
     * ahead of the restore; concurrent pools with at least two streams */
    PST_MOVE_DEMOTE = 1
} pst_move;

/* Of one layer, for all its visits. All zero: everything stays on the device. Frozen. */
typedef struct pst_layer_policy {
    /* PAGED: share of a stash's pages that goes to the host, at most 1/1; 0/0: none */
    uint32_t host_num, host_den;
    pst_move move; /* how the host's share gets there */
    /* DEMOTE, and parts that a GLU writes: restores ahead of their issue for which pages are moved
     * back; 0: 1 */
    uint32_t promote_ahead;
    uint64_t swap_tokens; /* SWAPPED: the first so many tokens go, the others are recomputed */
    bool recomputes;      /* for the solver: the layer may be recomputed instead */
    /* where backward and weight passes are apart: the destination of the backward is kept for the
     * weight pass, if no other visit needs it in between */
    bool holds;
    uint8_t padding[6]; /* 0 */
} pst_layer_policy;

#endif
