/* Room kernels/core: plain C that gcc, g++ and nvcc compile alike. Uses nothing but the public
 * headers. Used by all kernels and by the host. This file: every struct that host and device share. */
#ifndef PSTI_CORE_LAYOUT_H
#define PSTI_CORE_LAYOUT_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include <pagestash/pool.h>

#define PSTI_TILE_BYTES 16384u /* the unit of copying; a page is a whole number of tiles */
#define PSTI_TILE_SHIFT 14
#define PSTI_VECTOR_BYTES 16u /* segments of the byte stream start at multiples of this */

#define PSTI_TIERS 2
#define PSTI_TIER_DEVICE 0
#define PSTI_TIER_HOST 1

/* A page id: index within its tier, top bit set for host pages. In memory that teams share its type
 * is this name, which tests/model gives another meaning. */
typedef uint32_t psti_page_id;
#define PSTI_ID_HOST_BIT 0x80000000u
#define PSTI_ID_INDEX_MASK 0x7fffffffu
#define PSTI_ID_NONE 0xffffffffu /* out of range in both tiers */

#define PSTI_SKETCH_BUCKETS 512u
#define PSTI_QUANTILES 4u /* of the status block */

#define PSTI_OWNER_FREE 0u
#define PSTI_OWNER_ABSENT UINT64_MAX /* no memory is mapped there; nobody takes or frees it */

#define PSTI_MAX_TENSORS 64
#define PSTI_MAX_SPACES 8
#define PSTI_MAX_SEGMENTS 1024

/* How the counts of a space are read. */
#define PSTI_COUNT_INT32 0u
#define PSTI_COUNT_INT64 1u
#define PSTI_COUNT_VALUE 2u /* `counts` is the count itself */

/* Where row counts lie; those of all spaces are numbered through, first_count onwards. A sum has
 * one number, as a prefix has. */
typedef struct psti_space {
    uint64_t counts;  /* device address, or the count */
    int64_t capacity; /* rows, of one segment */
    uint32_t num_segments;
    uint32_t first_count;
    uint32_t count_kind;
    uint32_t num_summed; /* counts that are added up to one; 0: no sum */
} psti_space;
static_assert(sizeof(psti_space) == 32, "psti_space");

typedef struct psti_tensor {
    unsigned char *base; /* NULL: a restore leaves it in the pages */
    uint64_t row_bytes;
    uint64_t row_stride;     /* bytes, at least row_bytes */
    uint64_t segment_stride; /* bytes */
    uint32_t num, den;
    uint32_t space;
    uint32_t rounds_down;
} psti_tensor;
static_assert(sizeof(psti_tensor) == 48, "psti_tensor");

/* The state line. free pages of a tier = tail - head; both only grow (slot = value & ring_mask), so
 * no value ever comes back. in use = num_pages - free.
 * Ordered pools: written by the last block of a launch, or by nobody. Concurrent pools: written by
 * whoever holds the lock. */
typedef struct psti_pool_state {
    uint64_t launch; /* ordered pools: see psti_launch_of */
    uint64_t head[PSTI_TIERS];
    uint64_t tail[PSTI_TIERS];
    uint64_t failed_wanted; /* pages wanted by tickets that are FAILED now */
    uint64_t step_high[PSTI_TIERS];
    uint64_t step_demand; /* most of (in use + failed_wanted) in this step */
    uint64_t arrive;      /* done blocks of a control launch */
    uint32_t num_pages[PSTI_TIERS];
    uint32_t epoch;
    uint32_t refuse; /* PSTI_REFUSES_*: nothing is done */
    uint32_t lock_next;
    uint32_t lock_serving;
    uint64_t reserved;
    uint64_t covered; /* largest of all steps */
} psti_pool_state;
static_assert(sizeof(psti_pool_state) == 120, "psti_pool_state");
static_assert(sizeof(pst_pool_status) == 256, "the status block is 256 bytes");

#define PSTI_REFUSES_ORDER 1u /* until a reset of the pages; each operation is a fault */
#define PSTI_REFUSES_SCHEDULE \
    2u /* until the step ends, or a reset of faults or pages; no more faults */

typedef enum psti_ticket_state {
    PSTI_TICKET_EMPTY = 0,
    PSTI_TICKET_LIVE = 1,
    PSTI_TICKET_FAILED = 2
} psti_ticket_state;

/* A ticket's record: this header, count_room int64 counts, table_pages int32 page ids; in pools
 * that have a host tier table_pages ids more: where pages that change their tier are going.
 * LIVE and FAILED mean something only while epoch is the pool's. Written by the one block that
 * commits an operation. Kernels take index, count_room and table_pages from their arguments, so
 * that a damaged record cannot lead them astray; here they are for check and reset. */
typedef struct psti_ticket_record {
    uint32_t state;
    uint32_t epoch;
    uint32_t index;       /* in the pool's directory */
    uint32_t count_room;  /* counts that there is room for */
    uint64_t table_pages; /* length of the page table */
    uint64_t num_pages;   /* LIVE: held; FAILED: wanted */
    uint64_t launch;      /* concurrent pools: as the pool's in ordered ones */
    uint64_t ready;       /* concurrent pools: the leader's psti_ready_word; ordered pools: what a
                           * stash could not have, psti_note_damage */
    uint64_t arrive_in; /* concurrent pools: psti_launch_word of the operation that has a leader */
    uint64_t reserved;
    uint64_t num_host; /* LIVE: how many of num_pages are host pages */
    uint64_t form;     /* LIVE: mixed of the form and the handle that stashed */
} psti_ticket_record;
static_assert(sizeof(psti_ticket_record) == 80, "psti_ticket_record");

/* The pool as kernels see it. */
typedef struct psti_pool_view {
    psti_pool_state *state;
    pst_pool_status *status;
    uint64_t *tickets;           /* directory: device addresses of records, 0: none */
    uint32_t *seen;              /* scratch of check: one word per page, device then host pages */
    uint32_t *sketch;            /* counts of step_demand, see kernels/core/sketch.h */
    uint32_t *ring[PSTI_TIERS];  /* free ids, ring_mask + 1 slots */
    uint64_t *owner[PSTI_TIERS]; /* by page index: PSTI_OWNER_*, else psti_owner_word */
    unsigned char *pages[PSTI_TIERS];
    uint32_t ring_mask[PSTI_TIERS];
    uint32_t max_pages[PSTI_TIERS];
    uint32_t page_shift; /* page_bytes = 1 << page_shift */
    uint32_t max_tickets;
    uint32_t concurrent;
    uint32_t scrubs;     /* pages are cleared before they are free */
    uint32_t fails_fast; /* a stash of a step that has failed fails at once */
    uint32_t reserved;
} psti_pool_view;
static_assert(sizeof(psti_pool_view) == 128, "psti_pool_view");

#define PSTI_MOVE_KEEP 1u /* restore: the ticket stays live */
#define PSTI_MOVE_ZERO 2u /* restore: clear [live, dirty), without dirty words [live, capacity) */
#define PSTI_MOVE_RELEASE 4u /* restore: free without copying */
#define PSTI_MOVE_LOW 8u     /* priority of the launch */
#define PSTI_MOVE_HIGH 16u
#define PSTI_MOVE_PROGRAMMATIC 32u /* programmatic dependent launch */
#define PSTI_MOVE_PROMOTE 64u      /* migrate: host pages to device pages, else the other way */
#define PSTI_MOVE_ZERO_FAILED 128u /* restore: that copies nothing clears [0, capacity) */
#define PSTI_MOVE_ZERO_ALL 512u    /* with ZERO: [live, capacity), whatever the dirty words say */
#define PSTI_MOVE_QUIET 256u       /* release: of a ticket that holds nothing is no fault */

/* One launch of stash, restore or migrate. tensors is last: only num_tensors of it are filled. */
typedef struct psti_move_args {
    psti_pool_view pool;
    psti_ticket_record *ticket;
    uint64_t *dirty;    /* rows per count that restore left behind; NULL: nobody notes them */
    uint64_t max_tiles; /* tiles that there can be to do: bounds the grid */
    uint64_t table_pages;
    uint64_t budget;   /* migrate: pages at most, 0: all */
    uint64_t form;     /* stash, restore: mixed of the group's form and the ticket's handle */
    uint64_t apart;    /* a bit for each tensor, psti_lies_apart */
    uint64_t odd;      /* of those, psti_lies_odd */
    uint64_t odd_runs; /* of the others of those, psti_has_odd_runs */
    uint32_t ticket_index;
    uint32_t num_counts;   /* stash, restore: of the group, at most count_room */
    uint32_t count_room;   /* of the record: the page table lies behind so many counts */
    uint32_t max_segments; /* of a space of the group; 1: no tables of segments are needed */
    uint32_t is_plain;     /* every space of the group has one count, which is no sum */
    uint32_t
        num_looked; /* restore: counts of the ticket that are part of the look: those of a plain
                            * group in an ordered pool */
    uint32_t flags;
    uint32_t num_sms; /* 0: all */
    uint32_t all_sms; /* of the device */
    uint32_t num_tensors;
    uint32_t num_spaces;
    uint32_t op;       /* not 0; tells the pool's enqueued operations apart */
    uint32_t backend;  /* a pst_backend */
    uint32_t host_num; /* stash: the fraction of its pages that prefers the host tier */
    uint32_t host_den;
    uint32_t held_space; /* the first with several segments, whose counts a team reads at once */
    psti_space spaces[PSTI_MAX_SPACES];
    psti_tensor tensors[PSTI_MAX_TENSORS];
} psti_move_args;
static_assert(sizeof(psti_move_args) <= 4096, "one parameter block");

/* How a gated activation computes: pagestash/glu.h has the formulas. Only PST_GLU_CLAMPED reads more than
 * the kind. */
typedef struct psti_activation {
    uint32_t kind; /* a pst_glu_kind */
    float limit, alpha, bias;
} psti_activation;

/* Rows beside those of a tensor, in its row space. */
typedef struct psti_matrix {
    unsigned char *base; /* NULL: there is none */
    uint64_t row_stride, segment_stride;
} psti_matrix;

#define PSTI_GLU_BLOCK 32u /* the one interleave beside 1 */

/* What a launch of a GLU has beside a move. Its input is tensor number `tensor`: (rows, 2 features). */
typedef struct psti_glu {
    psti_activation how;
    uint32_t tensor;
    uint32_t dtype;      /* a pst_glu_dtype */
    uint32_t interleave; /* 0: halves */
    uint32_t is_wide;    /* every access may be one of 16 bytes */
    uint32_t has_ticket;
    uint32_t has_counts; /* the caller's: which rows are cleared where the ticket holds none */
    uint64_t features;
    psti_matrix output, probability, gradient, input_gradient, probability_gradient;
} psti_glu;

typedef struct psti_glu_args {
    psti_move_args move; /* first: the launcher looks at it */
    psti_glu glu;
} psti_glu_args;
static_assert(sizeof(psti_glu_args) <= 4096, "one parameter block");

/* The mailbox: pinned host memory. Slot n % 2 holds publication n; sequence is 0 while it is
 * written. */
typedef struct psti_mailbox_slot {
    uint64_t sequence;
    uint64_t words[sizeof(pst_pool_status) / 8];
} psti_mailbox_slot;

typedef struct psti_mailbox {
    psti_mailbox_slot slots[2];
    uint64_t covered; /* tickets given up to this number are done with */
} psti_mailbox;

/* One launch of reset, resize, step or check. */
typedef struct psti_control_args {
    psti_pool_view pool;
    psti_mailbox *mailbox;
    uint32_t what; /* reset: PST_RESET_* */
    uint32_t
        num_pages[PSTI_TIERS]; /* resize; a reset keeps what the state says, so that it is right
                                     * in a graph that was captured before */
    uint32_t reserved;
    uint64_t covered; /* step: number of the last ticket given back before it; 0 in a capture */
} psti_control_args;

/* One launch that compares a number with what was expected. */
typedef struct psti_expect_args {
    psti_pool_view pool;
    const uint64_t *word;
    uint64_t expected;
} psti_expect_args;

/* One launch that makes the records of a slab, first to be entered in the pool's directory. */
typedef struct psti_slab_args {
    psti_pool_view pool;
    uint64_t first_record; /* device address */
    uint64_t record_bytes; /* from one record to the next */
    uint64_t table_pages;
    uint32_t num; /* they have the indices 0 to num - 1 */
    uint32_t count_room;
} psti_slab_args;

/* One launch of pattern fill or verify. */
typedef struct psti_pattern_args {
    uint64_t seed;
    uint64_t key;
    const uint64_t *step;
    uint64_t *mismatches; /* verify */
    int32_t tail;         /* verify: byte value, or -1 */
    uint32_t num_tensors;
    uint32_t num_spaces;
    uint32_t reserved;
    psti_space spaces[PSTI_MAX_SPACES];
    psti_tensor tensors[PSTI_MAX_TENSORS];
} psti_pattern_args;
static_assert(sizeof(psti_pattern_args) <= 4096, "one parameter block");

/* A matrix of a product: element (i, j) lies at base + i * row_stride + j * column_stride. */
typedef struct psti_product_matrix {
    unsigned char *base;
    uint64_t row_stride, column_stride, expert_stride; /* bytes */
} psti_product_matrix;

/* One launch of products whose sizes the device counts: see pst_product. */
typedef struct psti_product_args {
    psti_product_matrix a, b, c, d; /* c.base NULL: no C */
    const void *counts;
    uint32_t m, n, k, num_experts;
    uint32_t dtype, of_d;      /* pst_dtype */
    uint32_t live, count_type; /* pst_live, pst_count_type */
} psti_product_args;

#endif
