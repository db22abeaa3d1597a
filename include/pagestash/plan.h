/* Static plans: an address for every tensor of an iteration, computed ahead (dynamic storage
 * allocation: rectangles of fixed time and height, placed so that the top is lowest).
 *
 *   pst_plan_problem problem = PST_PLAN_PROBLEM_INIT;   tensors, alignment, pins, reserved ranges
 *   pst_plan_config config = PST_PLAN_CONFIG_INIT;      mode, seed, budgets, threads
 *   pst_plan_run(&problem, &config, offsets, &plan);
 *   pst_plan_check(&problem, offsets, &fault, &peak);   trusts nothing that the planner did
 *
 * Pure: no device, clock or files. With one thread the same problem, seed and step budget give the
 * same plan, unless is_over ended the search; with several, the exact search may find another plan
 * of the same peak first. Threads: any.
 */
#ifndef PAGESTASH_PLAN_H
#define PAGESTASH_PLAN_H

#include <pagestash/status.h>

#define PST_PLAN_FREE UINT64_MAX               /* a tensor that is not pinned */
#define PST_PLAN_NO_BLOCK UINT32_MAX           /* of a tensor that is in no layer pass */
#define PST_PLAN_MAX_TENSORS (1u << 26)        /* of a problem */
#define PST_PLAN_MAX_STREAMS 16                /* of a problem */
#define PST_PLAN_MAX_BYTES (UINT64_C(1) << 62) /* sum of all sizes, and every address */

/* Live at the instants begin..end-1. */
typedef struct pst_plan_tensor {
    uint64_t bytes;      /* at least 1 */
    uint64_t begin, end; /* begin < end */
    uint64_t pin;        /* the address it must get, or PST_PLAN_FREE */
    uint32_t stream;     /* below num_streams */
    uint32_t block;      /* of mode bilevel: the layer pass it lives and dies in, or NO_BLOCK */
} pst_plan_tensor;

#define PST_PLAN_TENSOR_INIT                         \
    {                                                \
        0, 0, 0, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK \
    }

/* Frozen. */
typedef struct pst_plan_range {
    uint64_t begin, end; /* addresses, half-open */
} pst_plan_range;

/* A layer pass of mode bilevel. Passes of one kind get the same address, and their tensors, in
 * order, the same addresses within. */
typedef struct pst_plan_block {
    uint64_t begin, end; /* instants; all of its tensors lie within */
    uint32_t kind;       /* passes of a kind have as many tensors, of the same sizes and lives
                          * relative to begin, in the order of `tensors` */
    uint32_t padding;    /* 0 */
} pst_plan_block;

/* The tensors to place, and what bounds their addresses. */
typedef struct pst_plan_problem {
    size_t struct_size;
    const pst_plan_tensor *tensors; /* num_tensors of them, in any order */
    uint64_t num_tensors;           /* at most PST_PLAN_MAX_TENSORS */
    uint32_t tensor_bytes;          /* sizeof(pst_plan_tensor), set by _INIT */
    uint32_t block_bytes;           /* sizeof(pst_plan_block), set by _INIT */
    uint64_t align;                 /* of addresses and sizes, a power of two; 0: 512 */
    uint64_t capacity;              /* addresses there are: a plan within them is low enough, and
                                     * ends the search; 0: no limit, the lowest plan is looked for */
    const pst_plan_range *reserved; /* addresses that no tensor may touch */
    uint32_t num_reserved;          /* 0 with reserved NULL */
    uint32_t num_streams;           /* 0 and 1: one */
    const uint64_t *releases;     /* of several streams: [num_tensors][num_streams], see trace.h; a
                                * tensor of stream r may follow i if its begin is not below
                                * releases[i * num_streams + r] */
    const pst_plan_block *blocks; /* mode bilevel */
    uint32_t num_blocks;          /* 0 with blocks NULL */
    uint32_t padding;             /* 0 */
} pst_plan_problem;

#define PST_PLAN_PROBLEM_INIT \
    PST_INIT_2(pst_plan_problem, tensor_bytes, pst_plan_tensor, block_bytes, pst_plan_block)

/* Whether all tensors are placed as one problem. */
typedef enum pst_plan_mode {
    PST_PLAN_FLAT = 0,    /* as one */
    PST_PLAN_BILEVEL = 1, /* MEMO's two levels (SIGMOD 2025, section 4.2) */
} pst_plan_mode;

/* How long and with what the planner searches. */
typedef struct pst_plan_config {
    size_t struct_size;
    pst_plan_mode mode;          /* default: flat */
    uint64_t seed;               /* of the search; the same gives the same plan */
    uint64_t max_steps;          /* of all stages together; 0: 2^40 */
    uint64_t max_memory_bytes;   /* of the search; 0: 1 GiB */
    uint32_t num_threads;        /* 0: 1; at most 64 */
    bool (*is_over)(void *user); /* asked now and then, by any thread: true ends the search with
                                  * the best plan so far; behind the check of pins. NULL: never */
    void *user;                  /* argument of is_over */
} pst_plan_config;

#define PST_PLAN_CONFIG_INIT PST_INIT(pst_plan_config)

/* Behind is_over a run still stacks what is not placed and gives its memory back: about so many nanoseconds
 * a tensor (docs/planner.md). Who has a deadline lets is_over be true so much earlier. */
#define PST_PLAN_FINISH_NS 8

/* What is known of the plan. */
typedef enum pst_plan_status {
    PST_PLAN_OPTIMAL = 0, /* no plan (of this mode) has a lower peak */
    PST_PLAN_FEASIBLE,    /* right, and no proof that it is the best */
    PST_PLAN_IMPOSSIBLE,  /* no plan stays within the capacity; the offsets mean nothing */
} pst_plan_status;

/* Which part of the planner found the plan. */
typedef enum pst_plan_stage {
    PST_STAGE_PORTFOLIO = 0, /* one of the ordered placements */
    PST_STAGE_REPAIR,        /* a repaired order */
    PST_STAGE_SEARCH,        /* exact search of the whole */
    PST_STAGE_WINDOW,        /* exact search of windows around the peak */
    PST_STAGE_BOUND,         /* none: the bound alone exceeds the capacity */
    PST_NUM_STAGES           /* how many parts there are */
} pst_plan_stage;

/* What ended a plan's search. */
typedef enum pst_plan_end {
    PST_PLAN_END_PROVED = 0, /* the proof: optimal, or impossible */
    PST_PLAN_END_FITS,       /* a capacity was given, and the plan stays within it */
    PST_PLAN_END_OVER,       /* is_over */
    PST_PLAN_END_STEPS,      /* max_steps */
    PST_PLAN_END_MEMORY,     /* max_memory_bytes */
    PST_PLAN_END_STAGES, /* all stages are done: of several streams, of mode bilevel, and of more
                              * than 65,536 tensors that hang together not all can be tried */
    PST_NUM_PLAN_ENDS    /* how many there are */
} pst_plan_end;

/* What the planner found, and what it proved. */
typedef struct pst_plan {
    pst_plan_status status; /* what is known of it */
    pst_plan_stage stage;   /* that found the offsets, or proved that there are none */
    uint64_t peak;          /* highest address in use; 0 where impossible */
    uint64_t lower_bound;   /* no plan in mode flat has a lower peak */
    uint64_t mode_bound;    /* no plan in this mode has a lower peak; at least lower_bound */
    uint64_t bound_instant; /* what is live then proves lower_bound, if most_live_bytes equals it */
    uint64_t most_live_bytes; /* most bytes live at once, sizes rounded up; at least, where is_over
                               * ended it before they were summed */
    uint64_t seed;            /* pst_plan_config.seed */
    uint64_t steps;           /* done */
    bool out_of_steps, out_of_memory, is_over; /* the same as end */
    uint8_t end;                               /* pst_plan_end: what ended the search */
    uint32_t num_parts;   /* of mode flat: nothing but what lives throughout lives in two of them */
    uint32_t num_kinds;   /* of parts; those of a kind are the same, and so are their plans */
    uint32_t num_periods; /* parts that repeat: so often, or 0, */
    uint64_t period_begin, period_tensors; /* from this instant on, each of so many tensors */
} pst_plan;

/* What pst_plan_check found wrong. */
typedef enum pst_plan_fault_kind {
    PST_PLAN_RIGHT = 0,   /* nothing: it is a plan */
    PST_PLAN_OVERLAP,     /* `tensor` and `other` share an address while both live */
    PST_PLAN_UNALIGNED,   /* `tensor` */
    PST_PLAN_MOVED_PIN,   /* `tensor` */
    PST_PLAN_ON_RESERVED, /* `tensor` touches range `other` */
    PST_PLAN_TOO_HIGH,    /* `tensor` ends above the capacity or above 2^62 */
} pst_plan_fault_kind;

/* Frozen. */
typedef struct pst_plan_fault {
    pst_plan_fault_kind kind; /* what is wrong */
    uint64_t tensor, other;   /* indices, as the kind says; else 0 */
} pst_plan_fault;

PST_BEGIN_DECLS

/* offsets: num_tensors words, which are worked in, and hold the plan where one was found (status optimal
 * or feasible, also one above the capacity: then peak > capacity, and nobody knows yet whether one within
 * exists).
 * Takes host memory proportional to the tensors, and max_memory_bytes at most for the search.
 * Fails: INVALID (a field; pins that overlap each other or a reserved range; blocks that are not of
 * their kind), UNSUPPORTED (mode bilevel with several streams), NOMEM. */
PST_API pst_status pst_plan_run_sized(const pst_plan_problem *problem,
                                      const pst_plan_config *config, uint64_t *offsets,
                                      pst_plan *plan_out, size_t plan_bytes);
static inline pst_status pst_plan_run(const pst_plan_problem *problem,
                                      const pst_plan_config *config, uint64_t *offsets,
                                      pst_plan *plan_out)
{
    return pst_plan_run_sized(problem, config, offsets, plan_out, sizeof(pst_plan));
}

/* Whether the offsets are a plan: a sweep over the instants that shares no code with the planner.
 * fault_out tells the first thing wrong; peak_out, if not NULL, the highest address in use.
 * Fails: INVALID (a field of the problem), NOMEM. */
PST_API pst_status pst_plan_check(const pst_plan_problem *problem, const uint64_t *offsets,
                                  pst_plan_fault *fault_out, uint64_t *peak_out);

/* What dynamic tensors may borrow from the static plan: for each span of instants, the addresses in
 * [0, arena_bytes) that no tensor and no reserved range touches at any of its instants, rising, as
 * few ranges as can be, in units of the alignment. (STAlloc's reusable space, EuroSys 2026: a span
 * from the forward of layer i to the backward of layer j, for each pair.) Of several streams, a
 * tensor counts until all of them may reuse its bytes.
 * firsts: num_spans + 1 words; those of span s are ranges[firsts[s]] to ranges[firsts[s + 1] - 1].
 * To learn how many ranges there are, first call with capacity 0 and ranges NULL: firsts is
 * written, and firsts[num_spans] is their number. Time: n log n, and n for each span; the problem's
 * tensors are sorted once. Fails: INVALID (a field; capacity, if not 0, below the number, which the
 * message says), NOMEM. */
PST_API pst_status pst_plan_idle(const pst_plan_problem *problem, const uint64_t *offsets,
                                 uint64_t arena_bytes, const pst_plan_range *spans,
                                 uint32_t num_spans, uint64_t *firsts, pst_plan_range *ranges,
                                 uint64_t capacity);

/* Static text: "optimal", "proof", "portfolio", ... */
PST_API const char *pst_plan_status_name(pst_plan_status status);
PST_API const char *pst_plan_end_name(pst_plan_end end);
PST_API const char *pst_plan_stage_name(pst_plan_stage stage);

PST_END_DECLS

#endif
