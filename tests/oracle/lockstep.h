/* Drives the library and the oracle side by side: each function does one operation with both, then
 * compares all words of the pool, of its tickets, and every byte that may have changed.
 *
 * Threads: one at a time. The first difference is reported once, with the seed; afterwards nothing
 * is done any more. */
#ifndef PAGESTASH_TESTS_LOCKSTEP_H
#define PAGESTASH_TESTS_LOCKSTEP_H

#include "tests/oracle/oracle.h"
#include "tests/oracle/pool_words.h"
#include "tests/oracle/shapes.h"

#define LS_MAX_TICKETS 32

/* The buffers of one call, and the arrays that they point to. */
typedef struct ls_call {
    void *bases[PST_MAX_TENSORS];
    const void *counts[PST_MAX_SPACES];
    int64_t host_counts[PST_MAX_SPACES];
    int64_t capacities[PST_MAX_SPACES];
    uint64_t row_strides[PST_MAX_TENSORS];
    uint64_t segment_strides[PST_MAX_TENSORS];
    pst_buffers buffers;
} ls_call;

/* A group, memory for its tensors, and what that must hold. */
typedef struct ls_group {
    oracle_group model;
    pst_group *group;
    pst_dirty *dirty;
    unsigned char *arena; /* on the device; tensors lie at model.at */
    size_t arena_bytes;
    unsigned char *counts; /* on the device; NULL: a pure destination */
    size_t counts_bytes;
    int64_t *values;       /* what a stash reads as counts */
    unsigned char *packed; /* the same as on the device */
    ls_call call;          /* the last one */
} ls_group;

typedef void (*ls_report)(const char *file, int line, const char *text);

typedef struct ls_options {
    pst_pool_mode mode;
    uint64_t page_bytes; /* 0: 16 KiB */
    uint64_t num_pages;
    uint64_t num_host_pages; /* a second tier */
    uint64_t max_pages, max_host_pages;
    bool scrub;
    bool fails_fast;
    uint32_t slab_tickets; /* with room for any stash of the pool and slab_counts counts */
    uint32_t slab_counts;
    uint32_t max_tickets;   /* 0: LS_MAX_TICKETS */
    uint64_t first_counter; /* what the ring's counters begin with */
    uint64_t seed;          /* printed with the first difference */
    ls_report report;
} ls_options;

/* Other calls that stash and restore: with the group's buffers of this launch. */
typedef struct ls_calls {
    pst_status (*stash)(void *context, pst_ticket ticket, ls_group *source,
                        const pst_stash_options *options, pst_stream stream);
    pst_status (*restore)(void *context, pst_ticket ticket, ls_group *destination,
                          const pst_restore_options *options, pst_stream stream);
    void *context;
} ls_calls;

typedef struct lockstep {
    pst_device *device;
    pst_stream stream;
    pst_pool *pool;
    oracle_pool *oracle;
    pst_ticket tickets[LS_MAX_TICKETS]; /* by index; id 0: none */
    bool is_lent[LS_MAX_TICKETS];       /* of the slab */
    ticket_words words_of[LS_MAX_TICKETS];
    pool_words words;
    pst_pool_status published;
    ls_options options;
    uint64_t *expected;    /* pinned: what ls_expect compares with; NULL before the first */
    int num_sms;           /* of stash and restore */
    const ls_calls *calls; /* NULL: pst_ticket_stash and pst_ticket_restore */
    bool by_graph;         /* what moves rows is captured, and launched */
    bool skip_checks;      /* no pst_pool_check after each operation */
    bool replays;          /* nothing is compared: the same operations were before */
    bool check_is_loose;   /* words were damaged: check_errors and details of faults may differ */
    bool failed;
    uint64_t operation;
    unsigned char *scratch;
    size_t scratch_bytes;
} lockstep;

PST_BEGIN_DECLS

/* False where that failed. */
bool ls_open(lockstep *ls, pst_device *device, const ls_options *options);
/* Frees tickets and pool; every ticket is released first. */
void ls_close(lockstep *ls);

/* Reports a difference, once. */
__attribute__((format(printf, 4, 5))) void ls_fail(lockstep *ls, const char *file, int line,
                                                   const char *format, ...);

/* For functions that have `ls` and return nothing. */
#define LS_FAIL(...) ls_fail(ls, __FILE__, __LINE__, __VA_ARGS__)
#define LS_TRY(call)                                                                      \
    do {                                                                                  \
        const pst_status ls_status = (call);                                              \
        if (ls_status != PST_OK)                                                          \
            LS_FAIL("%s: %s: %s", #call, pst_status_name(ls_status), pst_last_message()); \
    } while (0)

#define LS_SAME(found, expected, ...)                                                        \
    do {                                                                                     \
        const uint64_t found_ = (uint64_t)(found);                                           \
        const uint64_t expected_ = (uint64_t)(expected);                                     \
        if (found_ != expected_) {                                                           \
            char what_[128];                                                                 \
            snprintf(what_, sizeof(what_), __VA_ARGS__);                                     \
            LS_FAIL("%s is %" PRIu64 ", the oracle has %" PRIu64, what_, found_, expected_); \
            return;                                                                          \
        }                                                                                    \
    } while (0)

/* Memory on the host until the next call. */
unsigned char *ls_scratch(lockstep *ls, size_t bytes);

/* The buffers as the model says, for one call; the next one about this group overwrites them. */
const pst_buffers *ls_at(ls_group *group);
/* Everything that the last call was given is overwritten: nothing may remember it. */
void ls_forget_call(ls_group *group);
/* With the buffers as the model says; the oracle is not told. options NULL: the defaults. */
pst_status ls_enqueue_stash(pst_ticket ticket, ls_group *source, pst_stream stream);
pst_status ls_enqueue_restore(pst_ticket ticket, ls_group *destination,
                              const pst_restore_options *options, pst_stream stream);
/* Options of a restore into the group: names the dirty words where the model does. */
pst_restore_options ls_restore_options(const ls_group *destination, pst_restore_pages pages,
                                       pst_restore_tail tail);

/* Makes the group of a shape, its memory full of random bytes. */
bool ls_group_make(lockstep *ls, const shape *from, oracle_random *random, ls_group *made);
void ls_group_free(lockstep *ls, ls_group *group);
/* New random bytes everywhere in the group's memory. */
void ls_group_fill(lockstep *ls, ls_group *group, oracle_random *random);
/* One byte value everywhere. */
void ls_group_poison(lockstep *ls, ls_group *group, int value);
void ls_group_set_counts(lockstep *ls, ls_group *group, const int64_t *values);
/* Other memory, elsewhere, with other random bytes, of the model that shape_place has changed. */
void ls_group_move(lockstep *ls, ls_group *group, size_t arena_bytes, oracle_random *random);
void ls_group_random_counts(lockstep *ls, ls_group *group, counts_kind kind, oracle_random *random);
void ls_group_mark_dirty(lockstep *ls, ls_group *group);
/* The whole memory of the group against the image. */
void ls_group_compare(lockstep *ls, ls_group *group);

/* A ticket for groups like this one; UINT32_MAX when that failed. */
uint32_t ls_ticket_make(lockstep *ls, const ls_group *group);
/* BUSY where it holds pages; then it stays. */
void ls_ticket_free(lockstep *ls, uint32_t ticket);
/* One of the slab; UINT32_MAX when that failed, or, if it may, when none can be had. */
uint32_t ls_ticket_take(lockstep *ls, bool may_be_busy);
void ls_ticket_give(lockstep *ls, uint32_t ticket);

void ls_set_offload(lockstep *ls, uint32_t ticket, uint32_t num, uint32_t den);
/* Counts of the host's that are wrong, and a ticket without room, fail the call, which then does
 * nothing. */
bool ls_host_counts_are_right(const ls_group *source);
bool ls_fits(const lockstep *ls, uint32_t ticket, const ls_group *source);
void ls_stash(lockstep *ls, uint32_t ticket, ls_group *source);
void ls_restore(lockstep *ls, uint32_t ticket, ls_group *destination, pst_restore_pages pages,
                pst_restore_tail tail);
void ls_restore_as(lockstep *ls, uint32_t ticket, ls_group *destination, pst_restore_pages pages,
                   pst_restore_tail tail, pst_restore_failed failed);
void ls_release(lockstep *ls, uint32_t ticket);
void ls_demote(lockstep *ls, uint32_t ticket, uint64_t max_pages);
void ls_promote(lockstep *ls, uint32_t ticket, uint64_t max_pages);
void ls_reset(lockstep *ls, uint32_t what);
/* INVALID beyond what the pool can have, BUSY where pages in use would go: then nothing happens. */
void ls_resize(lockstep *ls, uint64_t num_pages, uint64_t num_host_pages);
/* For a lockstep that skips checks. */
void ls_check(lockstep *ls);
/* psti_pool_expect, of a word that holds `found` when the device looks. */
void ls_expect(lockstep *ls, uint64_t found, uint64_t expected);
/* Also compares what pst_pool_poll answers. */
void ls_step(lockstep *ls);

/* As if the rings had been used `head` times: slots turn with the counters. The ids in them have
 * the oracle's order, which a concurrent pool has only before its first stash. */
void ls_turn_rings(lockstep *ls, uint64_t head);

/* What each of the above does last: pst_pool_check, and all words compared. For operations made
 * otherwise (graphs), after the oracle was told. */
void ls_compare(lockstep *ls);

/* A status block as it was published, or lies on the device. */
void ls_compare_status(lockstep *ls, const pst_pool_status *found, const pst_pool_status *expected);

/* ---- lockstep_pages.c: what lies in pages; for lockstep.c ---- */

/* The byte stream in the pages of a ticket: what one device stashed, any may restore. */
void ls_compare_pages(lockstep *ls, uint32_t ticket);
/* In a pool that scrubs what is free holds nothing. */
void ls_compare_free_pages(lockstep *ls);
/* From the given page of each tier on: what lies in new pages is not known. */
void ls_clear_pages(lockstep *ls, const uint32_t *first);

PST_END_DECLS

#endif
