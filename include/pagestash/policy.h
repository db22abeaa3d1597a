/* What shall become of what every layer keeps, so that a step fits in memory and waits least: how
 * the scheduler restores (rule, sets, ring, ahead, streams), the page size, how many device and
 * host pages, which share of each layer goes to the host, what is swapped and what is recomputed.
 *
 *   pst_policy_config config = PST_POLICY_CONFIG_INIT;
 *   config.simulation = &simulation;   schedules, layers, times, rates (simulate.h)
 *   config.gpu_bytes = ...; config.set_bytes = ...;
 *   pst_policy_solve(&config, &policy, choices, NULL);
 *
 * Memory. On each stage's GPU
 *   static + num_sets * set_bytes + pool(pages, host pages) + swap buffers + reserve <= gpu_bytes
 * and in its host memory
 *   host pages * page_bytes + swapped bytes <= host_bytes
 * where pool() is pst_pool_bytes, and static what the plan of dense tensors takes without the
 * layers that leave it. num_sets: with fixed sets num_sources + num_destinations, in use or not;
 * sets of the caller's own exist only while they are used: the most at once. The total of a
 * choice is
 *   total_bytes = num_sets * set_bytes + pool() + host pages * page_bytes
 *                 + static + swap buffers + swapped bytes
 * of the stage where it is most: what leaves for the host counts, so that moving gains nothing by
 * itself.
 *
 * Order of choices. What fits comes first, always. Exposed time is what the main stream waits for
 * copies and what recomputation takes, of the stage where it is most. Then
 *   LEAST_BYTES, the default:
 *     where some choice fits with nothing moved to the host, swapped or recomputed, of those:
 *       1. exposed time at most that of PST_RESTORE_NEXT
 *       2. least total  3. least exposed time
 *     where none does, memory is scarce, and the order is that of LEAST_EXPOSED
 *   LEAST_EXPOSED:
 *     1. least exposed time  2. fewest bytes over the link  3. least total
 * and last, in both, fewest device pages, then the choice that comes first: rule, ring, sources,
 * destinations, ahead, streams, shares. LEAST_BYTES is the default, since whatever this library
 * holds beyond what it has to is taken from batch size or context; it costs no time against what
 * others do.
 *
 * Page size: the largest at which pages take at most 0.5 % more than live bytes, over all visits;
 * the least where none does. Shares move in steps of 1 / share_den of a stash's pages.
 *
 * The answer is that of an enumeration where there are few choices, else of a local search from
 * Belady's start (what is needed last leaves first), stage by stage; it is then simulated with all
 * stages, micro-batches and routings. move, promote_ahead and holds of a layer's policy stay as the
 * simulation has them, and so does what a GLU writes (simulate.h): then every choice has a concurrent
 * pool. set_bytes is one number, so a destination counts as much as a source, though a GLU's part needs
 * none. The answer is the same always: no clock, no random numbers, one thread.
 * Pure: no device. Threads: any.
 */
#ifndef PAGESTASH_POLICY_H
#define PAGESTASH_POLICY_H

#include <pagestash/simulate.h>

#define PST_POLICY_UNLIMITED UINT64_MAX /* as gpu_bytes or host_bytes */

/* What is made least first, of choices that fit; the comment above has the order. */
typedef enum pst_policy_objective {
    PST_POLICY_LEAST_BYTES = 0,  /* bytes, as long as nothing has to leave */
    PST_POLICY_LEAST_EXPOSED = 1 /* exposed time */
} pst_policy_objective;

/* How many working sets count as memory. */
typedef enum pst_policy_sets {
    PST_POLICY_SETS_FIXED = 0,  /* named at creation: all of them, always */
    PST_POLICY_SETS_CALLERS = 1 /* the caller's own: while they are used */
} pst_policy_sets;

/* What is taken as the simulation has it and not chosen: bits. */
#define PST_POLICY_GIVEN_RULE 1u        /* pst_simulation_config.rule */
#define PST_POLICY_GIVEN_SETS 2u        /* num_sources, num_destinations, one_ring */
#define PST_POLICY_GIVEN_AHEAD 4u       /* pst_simulation_config.ahead */
#define PST_POLICY_GIVEN_STREAMS 8u     /* num_streams and the pool's mode */
#define PST_POLICY_GIVEN_PAGE_BYTES 16u /* pst_simulation_config.page_bytes */
#define PST_POLICY_GIVEN_SHARES 32u     /* host shares of PAGED layers */
#define PST_POLICY_GIVEN_ALL 63u        /* everything: the solver only says what it costs */

/* What may become of a layer, beside what its simulated layer says. All zero: PAGED with a share
 * that is chosen, or as it is. */
typedef struct pst_policy_layer {
    size_t struct_size;
    uint32_t treatments; /* bits 1 << pst_keep that are allowed; 0: the simulated layer's alone */
    uint32_t padding;    /* 0 */
    /* of the stage's static bytes, in which every layer counts that may be PLANNED: gone when it is
     * something else */
    uint64_t planned_bytes;
    uint64_t whole_bytes, token_bytes, num_tokens; /* SWAPPED: as in pst_layer */
    uint64_t block_tokens;                         /* 0: 1/8 of num_tokens */
    uint64_t recompute_ns; /* of a visit, all of it; SWAPPED the part that is not swapped */
} pst_policy_layer;

#define PST_POLICY_LAYER_INIT PST_INIT(pst_policy_layer)

/* What is simulated, what may become of it, and what memory there is. */
typedef struct pst_policy_config {
    size_t struct_size;
    /* num_pages: no choice has more; UINT64_MAX: what memory allows. Usages are measured at any
     * page size: those of another are made of stream_bytes. on_event is not called. */
    const pst_simulation_config *simulation;
    /* of each stage, one for each of the simulation's; NULL: all zero */
    const pst_policy_layer *const *layers;
    uint32_t layer_bytes;           /* sizeof(pst_policy_layer), set by _INIT */
    uint32_t routing_bytes;         /* sizeof(pst_simulated_layer), set by _INIT: of routings */
    uint32_t padding;               /* 0 */
    uint32_t share_den;             /* 0: 8; at most 64 */
    pst_policy_objective objective; /* default: least bytes */
    pst_policy_sets sets;           /* default: fixed */
    uint32_t given;                 /* PST_POLICY_GIVEN_ bits */
    uint32_t max_sets;              /* sources, and destinations, at most PST_MAX_SETS; 0: 4 */
    uint64_t gpu_bytes, host_bytes; /* of a stage; 0 of the host: none; PST_POLICY_UNLIMITED */
    const uint64_t *static_bytes;   /* of each stage; NULL: none */
    uint64_t reserve_bytes;         /* of each GPU, left to others; 0: none */
    uint64_t set_bytes;             /* of one working set: a layer's tensors at capacity */
    /* Other routings of the same step, as simulation->layers, of which only usages are read;
     * together with the simulation's own, pages are enough for the quantile of them. */
    const pst_simulated_layer *const *const *routings;
    uint32_t num_routings;       /* 0 with routings NULL */
    uint32_t quantile_per_mille; /* 0: 1000, all */
    const uint64_t *page_bytes;  /* ascending; NULL: 16 KiB, 32 KiB, ... 4 MiB */
    uint32_t num_page_bytes;     /* 0 with page_bytes NULL */
    uint32_t max_tickets;        /* of the pool; 0: as many as are used */
    uint64_t max_evaluations; /* simulations of a stage; 0: 4096, fewer where schedules are long */
    /* of shares and treatments that are tried one by one; 0: 4096; 1: never, search */
    uint64_t max_combinations;
} pst_policy_config;

#define PST_POLICY_CONFIG_INIT \
    PST_INIT_2(pst_policy_config, layer_bytes, pst_policy_layer, routing_bytes, pst_simulated_layer)

/* What becomes of a layer. Frozen. */
typedef struct pst_layer_choice {
    uint32_t stage, chunk, layer; /* which layer: of this stage, chunk, and in the chunk */
    pst_keep keep;                /* what becomes of it */
    pst_layer_policy policy;      /* shares and tokens that were chosen */
    uint64_t recompute_ns;        /* of a visit */
    uint64_t swap_bytes;          /* of a visit */
} pst_layer_choice;

/* Of one stage. */
typedef struct pst_policy_stage {
    uint64_t num_pages[2]; /* device, host */
    /* of a step, as pst_stage_result has them: copies and recomputation; of it recomputation;
     * waits for other ranks */
    uint64_t exposed_ns, recompute_ns, bubble_ns;
    /* on the GPU, but swapped_bytes in host memory */
    uint64_t static_bytes, pool_bytes, swap_buffer_bytes, swapped_bytes;
    uint64_t gpu_bytes, host_bytes, total_bytes; /* needed */
    uint64_t link_bytes[2];                      /* of a step: out, in */
} pst_policy_stage;

/* The choice, as pst_scheduler_config and pst_pool_config want it, and its cost. */
typedef struct pst_policy {
    bool fits;             /* if not, the rest is the choice that misses least */
    bool is_optimal;       /* all choices were tried, or exposed_ns is at its bound */
    bool is_scarce;        /* something is moved, swapped or recomputed, since nothing else fits */
    bool one_ring;         /* pst_scheduler_config.one_ring */
    pst_restore_rule rule; /* pst_scheduler_config.rule */
    uint32_t num_sources, num_destinations, ahead, num_streams; /* as in pst_scheduler_config */
    pst_pool_mode mode;                                         /* of the pool */
    uint32_t num_sets;   /* that count, of the stage where it is most */
    uint64_t page_bytes; /* of the pool */
    /* Of the stages where each is most, as all below */
    uint64_t num_pages, num_host_pages;
    /* no choice is below the bound; 0 where stages wait for each other */
    uint64_t exposed_ns, exposed_bound_ns;
    uint64_t recompute_ns; /* part of exposed_ns */
    uint64_t makespan_ns;  /* of a step, over all stages */
    /* the terms of the sums above */
    uint64_t static_bytes, sets_bytes, pool_bytes, swap_buffer_bytes, swapped_bytes;
    uint64_t gpu_bytes, host_bytes, total_bytes; /* needed */
    uint64_t link_bytes[2];                      /* of a step: out, in */
    /* of PST_RESTORE_NEXT with nothing moved; UINT64_MAX: it cannot run this */
    uint64_t next_exposed_ns, next_total_bytes;
    uint64_t missing_gpu_bytes, missing_host_bytes; /* that would make this choice fit */
    uint64_t evaluations;                           /* simulations of a stage */
} pst_policy;

PST_BEGIN_DECLS

/* choices_out: of all layers, stage after stage, as the simulation has them. stages_out: num_stages
 * of stage_bytes each, or NULL. "Does not fit" is an answer, not a failure.
 * Fails: INVALID (stage, layer and field), NOMEM. */
PST_API pst_status pst_policy_solve_sized(const pst_policy_config *config, pst_policy *policy_out,
                                          size_t policy_bytes, pst_layer_choice *choices_out,
                                          pst_policy_stage *stages_out, size_t stage_bytes);
static inline pst_status pst_policy_solve(const pst_policy_config *config, pst_policy *policy_out,
                                          pst_layer_choice *choices_out,
                                          pst_policy_stage *stages_out)
{
    return pst_policy_solve_sized(config, policy_out, sizeof(pst_policy), choices_out, stages_out,
                                  sizeof(pst_policy_stage));
}

PST_END_DECLS

#endif
