/* What the library must do, said in the most naive way: free pages are a list, the byte stream is
 * walked byte by byte, a ticket keeps a copy of what it stashed. Shares no code with the library,
 * on purpose: its arithmetic is its own, and it includes public headers only.
 *
 * The oracle knows one history of operations, in order. Page ids are a function of that history. */
#ifndef PAGESTASH_TESTS_ORACLE_H
#define PAGESTASH_TESTS_ORACLE_H

#include <pagestash/pagestash.h>

#define ORACLE_TIERS 2
#define ORACLE_ALL_DIRTY UINT64_MAX

/* calloc, also of nothing; aborts without memory, as everything here does. */
void *oracle_calloc(uint64_t count, size_t size);

/* ---- groups ---- */

#define ORACLE_NOWHERE UINT64_MAX

/* A group, and the buffers of the next operation with it. */
typedef struct oracle_group {
    pst_row_space spaces[PST_MAX_SPACES];
    pst_tensor tensors[PST_MAX_TENSORS];
    uint32_t num_spaces;
    uint32_t num_tensors;
    uint64_t at[PST_MAX_TENSORS]; /* where a tensor begins in the image; ORACLE_NOWHERE: no base */
    int64_t capacities[PST_MAX_SPACES];        /* as in pst_buffers; 0: the group's */
    uint64_t row_strides[PST_MAX_TENSORS];     /* the same */
    uint64_t segment_strides[PST_MAX_TENSORS]; /* the same */
    unsigned char *image; /* what the memory around the tensors must hold now */
    uint64_t *dirty;      /* rows that a restore left behind, one per count */
    bool names_dirty;     /* whether restores name the dirty words; with PST_TAIL_ZERO they do */
} oracle_group;

/* Counts that a ticket records of a space, and numbers that a stash reads for it. */
uint32_t oracle_num_segments(const pst_row_space *space);
uint32_t oracle_num_inputs(const pst_row_space *space);
uint32_t oracle_num_counts(const oracle_group *group);
uint32_t oracle_all_inputs(const oracle_group *group);
/* Position of a space's first count, or number read, among those of all spaces. */
uint32_t oracle_first_count(const oracle_group *group, uint32_t space);
uint32_t oracle_first_input(const oracle_group *group, uint32_t space);
/* The counts from what a stash reads; false: one is not allowed, and `misfit` is what the fault
 * must tell. */
bool oracle_read_counts(const oracle_group *group, const int64_t *inputs, int64_t *counts,
                        int64_t *misfit);
/* Live rows of a tensor where its row space has `rows`. */
uint64_t oracle_rows(const pst_tensor *tensor, uint64_t rows);
int64_t oracle_capacity(const oracle_group *group, uint32_t space);
/* Bytes of the rows of one segment at capacity; from one row to the next; from one segment to the
 * next. */
uint64_t oracle_segment_bytes(const oracle_group *group, uint32_t tensor);
uint64_t oracle_row_stride(const oracle_group *group, uint32_t tensor);
uint64_t oracle_stride(const oracle_group *group, uint32_t tensor);
/* Where in the image a byte lies that is the number `byte` of the rows of a segment. */
uint64_t oracle_byte_at(const oracle_group *group, uint32_t tensor, uint32_t segment,
                        uint64_t byte);
/* Whether what was stashed with one may be restored with the other. */
bool oracle_same_form(const oracle_group *a, const oracle_group *b);

/* For capacities of any size, counts NULL: at capacity. */
void oracle_measure(const oracle_group *group, const int64_t *counts, uint64_t page_bytes,
                    pst_group_usage *usage_out);

/* Calls visit for every live byte with its tensor, its place in the image (ORACLE_NOWHERE: none)
 * and its position in the byte stream; returns the stream's end. */
typedef void (*oracle_visit)(void *context, uint32_t tensor, uint64_t offset, uint64_t position);
uint64_t oracle_each_byte(const oracle_group *group, const int64_t *counts, oracle_visit visit,
                          void *context);

/* ---- pool and tickets ---- */

typedef enum oracle_ticket_state { ORACLE_EMPTY, ORACLE_LIVE, ORACLE_FAILED } oracle_ticket_state;

typedef struct oracle_ticket {
    oracle_ticket_state state;
    uint64_t num_pages; /* LIVE: held, FAILED: wanted */
    oracle_group form;  /* LIVE: the group of the stash */
    int64_t *counts;
    uint32_t *ids;        /* LIVE: as they were given out */
    uint32_t *table;      /* LIVE: as they are, perhaps damaged */
    unsigned char *bytes; /* LIVE: by position in the byte stream */
    bool *is_live;        /* LIVE: whether that position has a byte */
    uint32_t host_num,
        host_den; /* of its pages the first floor(pages * num / den) go to the host */
} oracle_ticket;

typedef struct oracle_pool {
    uint64_t page_bytes;
    uint64_t num_pages[ORACLE_TIERS];
    uint32_t *free_ids[ORACLE_TIERS]; /* the next to be taken comes first */
    uint64_t num_free[ORACLE_TIERS];
    uint32_t num_tickets;
    oracle_ticket *tickets;
    bool refuses;    /* an ORDER fault happened */
    bool is_stale;   /* a SCHEDULE fault happened in this step */
    bool fails_fast; /* as in pst_pool_config */
    uint32_t epoch;
    /* The status block as it must lie on the device now. */
    pst_pool_status status;
    uint64_t step_high[ORACLE_TIERS];
    uint64_t step_demand;
    uint64_t *demands; /* step_demand of all steps since reset of the statistics, smallest first */
    uint64_t num_demands;
} oracle_pool;

oracle_pool *oracle_pool_create(uint64_t page_bytes, uint64_t num_pages, uint64_t num_host_pages,
                                uint32_t max_tickets);
void oracle_pool_destroy(oracle_pool *pool);

/* The id of page `page` of a tier. */
uint32_t oracle_id(uint32_t tier, uint64_t page);

/* inputs: what the device reads as counts. */
void oracle_stash(oracle_pool *pool, uint32_t ticket, const oracle_group *source,
                  const int64_t *inputs);
/* Writes the destination's image and, where they are named, its dirty words. */
void oracle_restore(oracle_pool *pool, uint32_t ticket, oracle_group *destination,
                    pst_restore_pages pages, pst_restore_tail tail);
/* The same, with PST_FAILED_ZERO or without. */
void oracle_restore_as(oracle_pool *pool, uint32_t ticket, oracle_group *destination,
                       pst_restore_pages pages, pst_restore_tail tail, pst_restore_failed failed);
/* What a restore that copies nothing does to its destination under PST_FAILED_ZERO. */
void oracle_clear(oracle_group *destination, pst_restore_tail tail);
void oracle_release(oracle_pool *pool, uint32_t ticket);
/* Given back: holds nothing afterwards, which is no fault if it held nothing before. A stale graph does not
 * keep it from that. */
void oracle_give(oracle_pool *pool, uint32_t ticket);
/* max_pages 0: all. */
void oracle_migrate(oracle_pool *pool, uint32_t ticket, bool promotes, uint64_t max_pages);
/* The ticket is destroyed: what a failed one wanted is wanted no more. */
void oracle_forget(oracle_pool *pool, uint32_t ticket);
void oracle_reset(oracle_pool *pool, uint32_t what);
/* More pages lie behind the free ones; fewer are as after a reset of the pages. */
void oracle_resize(oracle_pool *pool, uint64_t num_pages, uint64_t num_host_pages);
/* What pst_pool_poll answers from now on. */
void oracle_step(oracle_pool *pool, pst_pool_status *published);
/* A graph expects a number: where another is found the pool refuses until the step ends. */
void oracle_expect(oracle_pool *pool, uint64_t found, uint64_t expected);
/* Pages that are neither free nor held. */
uint64_t oracle_lost_pages(const oracle_pool *pool);
/* check_errors as pst_pool_check must count them where nothing but lost pages is wrong. */
void oracle_check(oracle_pool *pool);
void oracle_fault(oracle_pool *pool, pst_fault fault, uint32_t ticket, uint64_t wanted);

/* ---- quantiles of step_demand ---- */

/* The largest value that the library cannot tell from this demand; UINT64_MAX: there is none. */
uint64_t oracle_demand_ceiling(uint64_t demand);
void oracle_demand_add(oracle_pool *pool, uint64_t demand);
/* The ceiling of the smallest demand that at least this share of the steps stay within, but never
 * more than the largest demand. */
uint64_t oracle_demand_quantile(const oracle_pool *pool, uint64_t per_mille);

/* ---- random numbers ---- */

typedef struct oracle_random {
    uint64_t state;
} oracle_random;

oracle_random oracle_random_seeded(uint64_t seed);
uint64_t oracle_random_bits(oracle_random *random);
/* 0 <= result < bound; 0 for bound 0. */
uint64_t oracle_random_below(oracle_random *random, uint64_t bound);
/* low <= result <= high. */
uint64_t oracle_random_in(oracle_random *random, uint64_t low, uint64_t high);
bool oracle_random_one_in(oracle_random *random, uint64_t n);

#endif
