/* Room plan: static plans with a proof, their files, the swap fraction and the map of a GPU's memory.
 * Uses base, trace, model, and of stash the page arithmetic of pool_layout.h. Used by arena.
 *
 * What the files of the planner share. A problem is normalised before any of them sees it: times are
 * slots 0..num_slots-1 (two tensors share a slot if and only if they are live together), sizes and
 * addresses are in units of the alignment. */
#ifndef PSTI_HOST_PLAN_H
#define PSTI_HOST_PLAN_H

#include <pagestash/plan.h>

#include "host/base/arith.h"
#include "host/base/base.h"

enum { PSTI_PLAN_ALIGN = 512, PSTI_PLAN_MAX_THREADS = 64 };
#define PSTI_PLAN_MAX_ALIGN (UINT64_C(1) << 40)

/* ---- plan_problem.c: what a problem may be ---- */

/* Fails: INVALID. Pins against each other are not looked at. */
pst_status psti_plan_check_problem(const pst_plan_problem *problem);

/* A problem with whole structs, whoever made it. */
typedef struct psti_plan_taken {
    pst_plan_problem problem;
    void *tensors, *blocks; /* owned: where the caller's have other sizes */
} psti_plan_taken;

pst_status psti_plan_take(const pst_plan_problem *given, psti_plan_taken *taken);
/* Returns status. */
pst_status psti_plan_drop(psti_plan_taken *taken, pst_status status);
/* Up to the alignment. */
uint64_t psti_plan_round(const pst_plan_problem *problem, uint64_t bytes);
/* The end of what is pinned, as given, and of what is reserved. */
uint64_t psti_plan_floor(const pst_plan_problem *problem, uint64_t pinned);

/* ---- plan_limits.c ---- */

/* Shared by all stages of one pst_plan_run. */
typedef struct psti_limits {
    uint64_t steps_left;  /* atomic */
    uint64_t memory_left; /* bytes, of one search */
    uint32_t num_threads;
    uint64_t seed;
    bool (*is_over)(void *user);
    void *user;
    bool out_of_steps, out_of_memory, over; /* atomic: why a search stopped */
} psti_limits;

bool psti_limits_over(psti_limits *limits); /* asks the caller. Threads: any */
/* Asks at every 4,096th k of a pass over all; NULL: never. */
bool psti_limits_over_at(psti_limits *limits, uint64_t k);
/* psti_sort_until the caller says that the time is over; NULL: to the end. */
bool psti_limits_sort(psti_limits *limits, uint64_t *items, uint64_t num, unsigned words);
/* Takes so many steps, or says that the search must end. Threads: any. */
bool psti_limits_take(psti_limits *limits, uint64_t steps);
/* Runs run(argument) in this thread and, as far as they can be had, in others; waits for all. */
void psti_run_threads(uint32_t num_threads, void (*run)(void *), void *argument);

/* ---- plan_items.c ---- */

/* What is placed: an item has one address and takes it in one or more intervals of slots. A tensor
 * is an item of one interval; in mode bilevel all passes of a kind are one item of many. */
typedef struct psti_items {
    uint32_t n;
    uint32_t num_slots;
    uint32_t num_streams;
    uint32_t num_intervals;
    uint32_t num_reserved;
    uint64_t unit;            /* bytes; divides all sizes, pins and reserved ranges */
    uint32_t *first;          /* [n + 1] intervals of item i: first[i] .. first[i + 1] - 1 */
    uint32_t *begin;          /* [num_intervals] slot */
    uint32_t *end;            /* [num_intervals][num_streams] slot from which a stream may follow */
    uint32_t *stream;         /* [n] */
    uint64_t *size;           /* [n] units */
    uint64_t *pin;            /* [n] units, or PST_PLAN_FREE */
    pst_plan_range *reserved; /* units, sorted, disjoint */
    uint64_t *live_size;      /* [num_slots] units */
    uint64_t *instant;        /* [num_slots] at which all of the slot live */
    uint64_t *contention;     /* [n] largest live size while it lives */
    uint64_t *length;         /* [n] instants that it lives */
    uint64_t most_live;
    uint32_t max_slot;
    uint64_t bound;    /* no placement's top is lower */
    uint64_t capacity; /* units */
    uint64_t goal;     /* units: a top that is low enough; 0: none but the lowest */
} psti_items;

/* An interval of instants with its releases, of which num_streams are given. */
typedef struct psti_interval {
    uint64_t begin;
    const uint64_t *ends;
} psti_interval;

/* Fills slots, live sizes and bound from n, num_streams, first, stream, size, pin, reserved, and
 * intervals. False: out of memory. items may always be freed. Where limits are over afterwards nothing
 * of this is complete; NULL: it is completed whatever the time. */
bool psti_items_measure(psti_items *items, const psti_interval *intervals, psti_limits *limits);
/* Likewise, and contention and lengths, which a search wants. */
bool psti_items_finish(psti_items *items, const psti_interval *intervals, psti_limits *limits);
/* Live sizes, bound and contention, of slots and intervals that there are. False: out of memory. */
bool psti_items_weigh(psti_items *items, psti_limits *limits);
bool psti_items_alloc(psti_items *items, uint32_t n, uint32_t num_intervals, uint32_t num_streams,
                      uint32_t num_reserved);
void psti_items_free(psti_items *items);
/* The tensors of a checked problem, measured, or finished for a search. */
pst_status psti_items_of_problem(const pst_plan_problem *problem, bool for_search,
                                 psti_limits *limits, psti_items *items_out);
/* Takes over the reserved ranges, once the unit is known. */
void psti_items_reserve(psti_items *items, const pst_plan_problem *problem);
/* What live sizes, pins and reserved ranges say. */
uint64_t psti_items_bound(const psti_items *items);
/* The lowest top that leaves `live_size` free beside the reserved ranges. */
uint64_t psti_items_top_for(const psti_items *items, uint64_t live_size);

/* ---- plan_parts.c: what can be planned alone ---- */

typedef struct psti_part {
    uint32_t first, num; /* its items: members[first .. first + num) */
    uint32_t begin, end; /* slots */
    uint32_t like;       /* the first part that is the same, or itself */
    bool has_lasting;    /* until the last part is chosen: something that lasts begins in it */
    uint64_t floor;      /* units that it stands on: what lasts and begins before its end */
    uint64_t
        sure_floor;   /* of them what begins no later than the part, so is below it in any plan */
    uint32_t highest; /* the last of those that are like this one, the first */
} psti_part;

typedef struct psti_parts {
    const psti_items *items;
    uint64_t *address; /* [items->n] units; of what is at the bottom it is set */
    psti_part *list;   /* [num], in the order of time */
    uint32_t num;
    uint32_t *members; /* items by part; NULL: one part, which is all items as they are */
    uint32_t *part_of; /* [items->num_slots] */
    uint32_t until;    /* what begins before this slot and lasts to the end is at the bottom */
    bool may_go_down;
} psti_parts;

/* How parts repeat: as the tensors from instant `begin` on, so many, so many times. count 0: not. */
typedef struct psti_period {
    uint64_t begin;
    uint32_t num_tensors, count;
} psti_period;

/* Items of one interval each; others are one part, and so are all where the time is over. False: no
 * memory. To be closed in either case. */
bool psti_parts_open(psti_parts *parts, const psti_items *items, uint64_t *address,
                     psti_limits *limits);
void psti_parts_close(psti_parts *parts);
/* Part p and all after it become one, in which what lasts is an item like others. Addresses stay. */
void psti_parts_join(psti_parts *parts, uint32_t p);
/* The items of a part, addresses counted from its floor; capacity and goal of the highest that is like
 * it. Where limits are over afterwards its bound and contentions are not complete. False: no memory. To be
 * freed in either case. */
bool psti_parts_cut(const psti_parts *parts, uint32_t part, psti_limits *limits,
                    psti_items *cut_out);
psti_period psti_parts_period(const psti_parts *parts);

/* ---- plan_room.c: which addresses are taken when ---- */

typedef struct psti_room psti_room;

typedef enum psti_room_result {
    PSTI_ROOM_READY,
    PSTI_ROOM_TAKEN, /* an item's pin is on a reserved range or another's */
    PSTI_ROOM_NO_MEMORY,
} psti_room_result;

psti_room *psti_room_open(const psti_items *items); /* NULL: out of memory */
void psti_room_close(psti_room *room);              /* NULL is allowed */
/* Empty again, but for reserved ranges and pinned items. */
psti_room_result psti_room_reset(psti_room *room, uint32_t *item_out);
/* The lowest address that is free throughout the item's life, or with best_fit the start of the
 * smallest gap that it fits in. */
uint64_t psti_room_find(psti_room *room, uint32_t item, bool best_fit);
bool psti_room_take(psti_room *room, uint32_t item, uint64_t address); /* false: no memory */

/* ---- plan_order.c: portfolio and repair ---- */

enum { PSTI_NUM_PASSES = 18 };

/* The best placement so far. */
typedef struct psti_best {
    uint64_t peak;     /* units; UINT64_MAX: none */
    uint64_t *address; /* [n] units */
    pst_plan_stage stage;
} psti_best;

/* The first order. Where the time is over, what is left goes above all else. False: out of memory. */
bool psti_place_first(const psti_items *items, psti_limits *limits, psti_best *best);
/* All others, and repair, from what the first one gave; until a placement's top is at most `goal`.
 * False: out of memory. */
bool psti_place_in_orders(const psti_items *items, uint64_t goal, psti_limits *limits,
                          psti_best *best);

/* ---- plan_ladder.c: exact search of the whole and of windows ---- */

enum { PSTI_WHOLE_MAX = 65536 }; /* items; larger problems are searched in windows only */

/* Improves best and *bound until they meet, best is at most goal, a limit ends it, or a round is over:
 * *steps is what a question may take in it, and in the next one; 0: there is nothing left to try.
 * One stream, one interval an item. False: out of memory. */
bool psti_search(const psti_items *items, uint64_t goal, psti_limits *limits, psti_best *best,
                 uint64_t *bound, uint64_t *steps, pst_plan_stage *prover);

/* ---- plan_solve.c ---- */

typedef struct psti_answer {
    psti_best best;                /* address: the caller's, [n]; peak 0 where there are no items */
    uint64_t bound;                /* units: at most best.peak, unless it is above the capacity */
    pst_plan_stage prover;         /* of the bound */
    bool is_exhausted;             /* no stage had anything left to try */
    uint32_t num_parts, num_kinds; /* parts that differ */
    psti_period period;
} psti_answer;

/* All stages over some items. */
pst_status psti_solve(const psti_items *items, psti_limits *limits, psti_answer *answer);

/* ---- plan_merge.c ---- */

/* Looks for a placement, at most at goal and the items' bound or else as near as it comes, of the blocks
 * that tensors seem to have been cut from; a question may take so many steps. The same items; false: out
 * of memory. */
bool psti_search_merged(const psti_items *items, uint64_t goal, uint64_t steps, psti_limits *limits,
                        psti_best *best);

/* ---- plan.c ---- */

/* psti_items_of_problem, and, as long as there is time, whether pins and reserved ranges go together. To
 * be freed in any case. */
pst_status psti_plan_items(const pst_plan_problem *problem, bool for_search, psti_limits *limits,
                           psti_items *items);
void psti_conclude(const psti_items *items, const psti_answer *answer, pst_plan *plan);

/* ---- plan_bilevel.c ---- */

pst_status psti_plan_bilevel(const pst_plan_problem *problem, psti_limits *limits,
                             uint64_t *offsets, pst_plan *plan);

/* ---- plan_exact.c: is there a placement whose top is at most `target`? ---- */

typedef struct psti_exact_problem {
    uint32_t num_tensors;
    uint32_t num_slots;
    const uint32_t *begin, *end; /* slots, half-open; begin < end <= num_slots */
    const uint64_t *size;        /* at least 1 */
    const uint64_t *pin;         /* NULL, or PST_PLAN_FREE, or the address it must get; pinned
                                  * tensors do not overlap */
    const uint64_t *length;      /* NULL, or how long each lives, for choices only; at least 1 */
} psti_exact_problem;

typedef enum psti_verdict {
    PSTI_FOUND,     /* offsets are written */
    PSTI_NONE,      /* proved: there is none */
    PSTI_STOPPED,   /* by a limit */
    PSTI_NO_MEMORY, /* of the host: PST_E_NOMEM */
} psti_verdict;

/* Deterministic for a seed and a step budget, whatever the number of threads, unless is_over or
 * another thread's luck ends it: with several threads the verdict is the same where no limit is
 * reached, the placement may be another. */
psti_verdict psti_exact_search(const psti_exact_problem *problem, uint64_t target,
                               psti_limits *limits, uint64_t *offsets);

/* ---- plan_ladder.c ---- */

/* psti_exact_search with at most so many steps for each thread. STOPPED with the limits' flags clear
 * if only those ran out. Sets *is_denied if memory was what ended it. */
psti_verdict psti_search_slice(const psti_exact_problem *problem, uint64_t target, uint64_t steps,
                               psti_limits *limits, uint64_t *offsets, bool *is_denied);

#endif
