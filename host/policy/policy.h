/* Room policy: which choice of rule, sets, page size, shares and treatments serves a step best.
 *
 * Pure: uses base, program and simulate, and the sizes of pools. Used by commands, through policy.h.
 *
 *   policy.c           what is asked, and the answer
 *   policy_problem.c   the stages with their layers, and what may become of each
 *   policy_period.c    fewer micro-batches that stand for many
 *   policy_forms.c     rule, sets, ring, ahead, streams: which there are
 *   policy_evaluate.c  bytes and nanoseconds of one choice, by simulation
 *   policy_search.c    shares and treatments of one stage: Belady's start, local search, all
 *   policy_bound.c     lifetimes, and the time that no choice is below
 *   policy_sets.c      sets of the caller's own that are in use at once
 */
#ifndef PSTI_HOST_POLICY_H
#define PSTI_HOST_POLICY_H

#include <pagestash/policy.h>

#include "host/base/base.h"
#include "host/program/program.h"

enum { PSTI_POLICY_MAX_DEN = 64 };

/* One thing that may become of a layer. Of a layer they stand in this order: planned, paged by rising
 * share, swapped by falling tokens, recomputed. */
typedef struct psti_option {
    pst_keep keep;
    uint32_t share_num; /* PAGED: of share_den */
    uint64_t tokens;    /* SWAPPED */
    bool is_given;      /* as the simulation has it */
} psti_option;

typedef struct psti_place {
    pst_policy_layer allowed;
    const psti_option *options; /* of the stage's list */
    uint32_t num_options;
    uint32_t home;        /* the option with nothing moved, swapped or recomputed; else 0 */
    bool leaves_always;   /* there is none */
    uint64_t lifetime_ns; /* shortest from forward's end to backward's begin, without copies */
} psti_place;

/* Index 0 of layers is the routing that decides: at the quantile by all its pages. */
typedef struct psti_stage {
    uint32_t index, num_layers;
    const pst_schedule *schedule;
    const pst_simulated_layer *
        *layers; /* [1 + routings][num_layers], with pages of the page size */
    /* What one stage by itself is searched with: the schedule and the layers, or those of fewer
     * micro-batches, the most demanding that follow each other. */
    const pst_schedule *searched;
    pst_schedule *shortened; /* NULL: as it is */
    const pst_simulated_layer *searched_layers;
    psti_place *places; /* [num_layers] */
    psti_option *options;
    uint64_t combinations; /* product of num_options; saturates */
    uint64_t num_visits;
    uint64_t static_bytes; /* with all planned */
    uint32_t *picks;       /* [num_layers] options in force */
} psti_stage;

/* Rule, sets, ring, ahead, streams. */
typedef struct psti_form {
    pst_restore_rule rule;
    bool one_ring;
    uint32_t num_sources, num_destinations, ahead, num_streams;
    pst_pool_mode mode;
} psti_form;

/* What an evaluation notes for each stage and routing. */
enum { PSTI_SAMPLE_PAGES = 0, PSTI_SAMPLE_HOST_PAGES, PSTI_SAMPLE_EXPOSED, PSTI_NUM_SAMPLES };

typedef struct psti_problem {
    pst_policy_config config;
    pst_simulation_config simulation;
    uint32_t num_stages, num_routings; /* the simulation's own counts, too */
    uint32_t *routings;                /* [num_routings] in the order in which stages have them */
    psti_stage *stages;
    uint64_t page_bytes;
    uint32_t share_den, most_sets;
    bool has_pairs, has_split, may_swap;
    bool has_glus; /* some part is written by a GLU, which wants a concurrent pool */
    uint64_t evaluations, max_combinations;
    uint64_t max_evaluations; /* at which the search in hand ends */
    /* Beyond these an evaluation of all routings may end early. */
    uint64_t most_total_bytes, most_exposed_ns;
    uint64_t margin_pages[2]; /* of what one stage by itself needs: other routings want them */
    uint64_t end_evaluations; /* at which all searches end */
    /* Memory of the evaluation: for each stage and routing. */
    pst_simulated_layer *scratch;               /* [most layers of all stages together] */
    const pst_simulated_layer **scratch_layers; /* [num_stages] */
    pst_stage_result *results;                  /* [num_stages] */
    uint64_t *samples;                          /* [PSTI_NUM_SAMPLES][num_stages][num_routings] */
    void **memory;                              /* all that is to be freed */
    uint32_t num_memory, room_memory;
} psti_problem;

/* What a choice costs, of one stage or of the stages where each figure is most. */
typedef struct psti_cost {
    uint64_t missing[2]; /* GPU, host; 0: it fits */
    uint64_t exposed_ns, link_bytes, total_bytes, device_pages;
    bool moves; /* something is moved, swapped or recomputed */
} psti_cost;

typedef struct psti_evaluation {
    psti_cost cost;
    uint64_t makespan_ns, num_sets;
    bool is_cut;              /* ended early: it is beyond the problem's limits */
    pst_policy_stage *stages; /* [num_stages], the caller's */
} psti_evaluation;

/* ---- policy_problem.c ---- */

/* Checks all and makes the stages, every layer at its home. free also after a failure. */
pst_status psti_problem_make(const pst_policy_config *config, psti_problem *problem);
void psti_problem_free(psti_problem *problem);
void *psti_problem_take(psti_problem *problem, uint64_t count, size_t size);

/* ---- policy_period.c ---- */

/* Sets what a stage is searched with. */
pst_status psti_policy_shorten(psti_problem *problem, psti_stage *stage);

/* ---- policy_forms.c ---- */

enum { PSTI_MAX_FORMS = 256, PSTI_MAX_NEAR = 2 };
uint32_t psti_forms_list(const psti_problem *problem, psti_form forms[PSTI_MAX_FORMS]);
/* Those that differ from `form` by one step of `ahead`. */
uint32_t psti_forms_near(const psti_problem *problem, const psti_form *form,
                         psti_form near[PSTI_MAX_NEAR]);
bool psti_forms_are_equal(const psti_form *a, const psti_form *b);
/* NEXT with as few sets as it has; false: it cannot run this. */
bool psti_form_next(const psti_problem *problem, psti_form *form_out);

/* ---- policy_evaluate.c ---- */

/* All stages with the picks in force. */
pst_status psti_policy_evaluate(psti_problem *problem, const psti_form *form,
                                psti_evaluation *evaluation);
/* One stage by itself, its own routing alone. */
pst_status psti_policy_evaluate_stage(psti_problem *problem, const psti_form *form,
                                      psti_stage *stage, psti_cost *cost_out);
/* The layer as it is with this option. */
void psti_apply_option(const psti_problem *problem, const psti_place *slot,
                       const psti_option *option, pst_simulated_layer *layer);
/* Whether a comes before b: first what misses less, then by exposed time, link bytes, total, pages. */
bool psti_cost_is_less(const psti_cost *a, const psti_cost *b);
/* The same, total before exposed time. */
bool psti_cost_has_fewer_bytes(const psti_cost *a, const psti_cost *b);

/* ---- policy_sets.c ---- */

/* Sets of the caller's own that this form has in use at once at most. */
pst_status psti_policy_count_sets(const psti_problem *problem, const psti_form *form,
                                  psti_stage *stage, uint64_t *num_out);

/* ---- policy_search.c ---- */

/* The start: from home, until it fits. */
pst_status psti_policy_start(psti_problem *problem, const psti_form *form, psti_stage *stage,
                             psti_cost *cost_out);
/* From the picks in force to better ones; all_tried_out: there are none. */
pst_status psti_policy_search(psti_problem *problem, const psti_form *form, psti_stage *stage,
                              psti_cost *cost, bool *all_tried_out);

/* ---- policy_bound.c ---- */

pst_status psti_bound_lifetimes(psti_stage *stage);
/* Of all choices that are allowed. */
pst_status psti_bound_exposed(psti_problem *problem, uint64_t *bound_out);

#endif
