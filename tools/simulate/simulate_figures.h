/* Figures of the report: of one stage, and over all. */
#ifndef PAGESTASH_SIMULATE_FIGURES_H
#define PAGESTASH_SIMULATE_FIGURES_H

#include "tools/simulate/simulate_command.h"

typedef uint64_t (*simulate_figure_fn)(const pst_stage_result *result);

/* X(name, value): simulate_NAME(result) */
#define SIMULATE_FIGURES(X)                                                                  \
    X(passes, result->num_passes)                                                            \
    X(end, result->end_ns)                                                                   \
    X(bubble, result->bubble_ns)                                                             \
    X(exposed_forward, result->exposed_forward_ns)                                           \
    X(exposed_backward, result->exposed_backward_ns)                                         \
    X(high_water, result->high_water[0])                                                     \
    X(high_water_host, result->high_water[1])                                                \
    X(demand, result->demand_high_water)                                                     \
    X(tickets, result->num_tickets)                                                          \
    X(faults, result->num_faults)                                                            \
    X(link_busy, result->link_busy_ns[0] > result->link_busy_ns[1] ? result->link_busy_ns[0] \
                                                                   : result->link_busy_ns[1])
#define SIMULATE_FIGURE_DECLARATION(name, value) \
    uint64_t simulate_##name(const pst_stage_result *result);
SIMULATE_FIGURES(SIMULATE_FIGURE_DECLARATION)

uint64_t simulate_sum(const simulate_model *model, const pst_stage_result *stages,
                      simulate_figure_fn figure);
uint64_t simulate_most(const simulate_model *model, const pst_stage_result *stages,
                       simulate_figure_fn figure);
/* Of all stages' time; of the busiest direction of any stage's link. */
double simulate_bubble_share(const simulate_model *model, const simulate_result *result);
double simulate_link_share(const simulate_model *model, const simulate_result *result);
/* The stage in which a visit waits longest for a copy; NULL: none waits. */
const pst_stage_result *simulate_worst(const simulate_model *model, const simulate_result *result,
                                       uint32_t *rank_out);

#endif
