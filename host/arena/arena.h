/* Room arena: an allocator that replays a static plan and serves what deviates from it.
 * Uses base, device (spans), trace and plan. Used by programs, through arena.h of the public headers.
 * Everything here is called with the arena's lock held. */
#ifndef PSTI_HOST_ARENA_H
#define PSTI_HOST_ARENA_H

#include <pthread.h>

#include <pagestash/arena.h>

#include "host/base/table.h"
#include "host/device/device.h"

#define PSTI_NO_INDEX UINT32_MAX

/* ---- arena_bits.c: a set of numbers below a bound, 64 to a word, with a summary above each 64
 * words: insertion, removal and the predecessor take a step per level ---- */

enum { PSTI_BITS_LEVELS = 6 };

typedef struct psti_bits {
    uint64_t *levels[PSTI_BITS_LEVELS]; /* all in the memory of the first */
    uint32_t num_levels;
} psti_bits;

pst_status psti_bits_open(psti_bits *bits, uint64_t bound);
void psti_bits_close(psti_bits *bits);
void psti_bits_set(psti_bits *bits, uint32_t number);
void psti_bits_clear(psti_bits *bits, uint32_t number);
/* The largest number in the set below `number`; PSTI_NO_INDEX: there is none. */
uint32_t psti_bits_below(const psti_bits *bits, uint32_t number);

/* ---- arena_heap.c: allocations outside the plan, with a cache ---- */

typedef struct psti_block psti_block;

typedef struct psti_heap {
    pst_status (*alloc)(void *user, size_t bytes, void **address_out);
    pst_status (*free)(void *user, void *address);
    void *user;
    psti_map blocks;    /* all of them by address */
    psti_block **cache; /* freed blocks by size class */
    psti_block *held;   /* freed, and used on other streams than their own */
    uint64_t num_live;
    uint64_t limit_bytes, cached_bytes; /* held blocks are cached ones */
    uint64_t live_bytes, peak_bytes, taken_peak_bytes;
    uint64_t num_allocs;
} psti_heap;

pst_status psti_heap_open(psti_heap *heap);  /* after alloc, free, user and the limit were set */
pst_status psti_heap_close(psti_heap *heap); /* nothing lives; closed even after a failure */
pst_status psti_heap_malloc(psti_heap *heap, uint64_t bytes, pst_stream stream, void **address_out);
psti_block *psti_heap_find(const psti_heap *heap, const void *address); /* NULL: none that lives */
pst_status psti_heap_free(psti_heap *heap, psti_block *block);
void psti_block_record(psti_block *block, pst_stream stream);
void psti_heap_unhold(psti_heap *heap); /* all streams have passed what they had to do */
pst_status psti_heap_trim(psti_heap *heap);

/* ---- the plan as it is followed ---- */

/* A planned malloc, in the order of the plan. */
typedef struct psti_entry {
    uint64_t offset;
    uint64_t bytes; /* rounded up to the alignment */
    uint64_t uses;  /* other streams that the plan knows of, a set of bits 1 << stream */
    uint32_t slot;
    uint32_t rank;     /* in the order of offsets */
    uint32_t upper;    /* entries whose offset is below this one's end */
    uint32_t freed_at; /* how many mallocs come before its free; PSTI_NO_INDEX: it has none */
    uint32_t came;     /* the last cycle in which a request was taken for it */
    uint8_t stream;
    bool is_shared; /* an entry of another stream has bytes of it before or after */
} psti_entry;

typedef enum psti_slot_state { PSTI_SLOT_FREE, PSTI_SLOT_LIVE, PSTI_SLOT_HELD } psti_slot_state;

/* A planned address, which many entries may have in turn. */
typedef struct psti_slot {
    uint64_t offset;
    uint32_t entry; /* that lives here, or is held */
    uint32_t cycle; /* of its malloc */
    uint32_t next_held;
    uint8_t state;
    bool is_foreign; /* used on a stream that the plan does not know of: to be held */
} psti_slot;

typedef struct psti_bound {
    pst_stream stream;
    uint32_t planned; /* the plan's stream, or PSTI_NO_INDEX */
} psti_bound;

typedef struct psti_request {
    uint64_t bytes;  /* rounded up */
    uint32_t stream; /* index of bound, or PSTI_NO_INDEX: there are too many */
} psti_request;

enum { PSTI_HISTORY = 8 };

struct pst_arena {
    psti_handle handle;
    pthread_mutex_t lock;
    pst_device *device;
    pst_arena_config config; /* without zeros */
    void *memory;            /* mode ALLOC: as it was allocated */
    psti_span span;          /* mode RESERVE */
    unsigned char *base;
    uint64_t bytes, backed;

    /* the plan */
    psti_entry *entries;
    uint64_t *ids; /* of the entries, for messages */
    uint32_t *by_rank;
    psti_slot *slots;
    psti_map slot_at; /* an offset's slot */
    uint32_t *marks;  /* where iterations begin; at least one */
    uint32_t num_entries, num_slots, num_marks;
    uint32_t stream_names[PST_ARENA_MAX_STREAMS]; /* of the plan's streams, in the file */
    uint32_t num_streams;
    bool has_plan;

    /* where the program is in it */
    bool in_step;        /* no request of this iteration was taken for a later one of the plan: the
                          * program has made all the waits that the plan has before the position */
    uint32_t begin, end; /* entries of this iteration */
    uint32_t position;   /* the entry expected next */
    uint32_t num_came;   /* of this iteration */
    uint32_t num_missed; /* requests since the last that was an entry */
    uint32_t next_mark;
    uint32_t cycle;
    uint64_t num_requests; /* of this iteration */
    psti_request history[PSTI_HISTORY];
    psti_bound bound[PST_ARENA_MAX_STREAMS];
    uint64_t bound_set; /* streams of the plan that are bound */
    uint32_t num_bound, last_bound;
    bool has_more_streams; /* than there is room for */

    /* what is given out */
    uint32_t first_held;
    psti_bits used;    /* ranks of the entries that live or are held: their ranges are disjoint */
    uint64_t num_live; /* entries */
    psti_heap heap;
    pst_arena_stats stats; /* counts; the rest is filled in when asked for */
};

/* ---- arena_plan.c ---- */

pst_status psti_arena_take_plan(pst_arena *arena, const pst_plan_file *plan);
void psti_arena_drop_plan(pst_arena *arena);
/* The slot at `offset`, or NULL. */
psti_slot *psti_arena_slot(const pst_arena *arena, uint64_t offset);

/* ---- arena_serve.c ---- */

void psti_arena_unhold(pst_arena *arena); /* all streams have passed what they had to do */

/* ---- arena_follow.c ---- */

/* Index of bound; adds what is new. PSTI_NO_INDEX: there is no room. */
uint32_t psti_arena_stream(pst_arena *arena, pst_stream stream);
void psti_arena_bind(pst_arena *arena, uint32_t bound, uint32_t planned);
/* The entry that the request is taken for, which then has come; PSTI_NO_INDEX: none. Counts. */
uint32_t psti_arena_follow(pst_arena *arena, const psti_request *request);
void psti_arena_go_on(pst_arena *arena); /* to the next mark */
/* entry: PSTI_NO_INDEX if none was expected; request NULL: of a free or a use. */
void psti_arena_deviates(pst_arena *arena, pst_deviation kind, uint32_t entry,
                         const psti_request *request);

#endif
