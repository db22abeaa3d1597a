/* MEMO's model of a problem, in units that all its sizes and addresses are multiples of. */
#ifndef PAGESTASH_TOOLS_MIP_MODEL_H
#define PAGESTASH_TOOLS_MIP_MODEL_H

#include <stdio.h>

#include "tools/plan/mip.h"

typedef struct mip_pair {
    uint32_t first, second;
} mip_pair;

typedef struct mip_model {
    uint64_t unit;        /* bytes */
    uint32_t num_tensors; /* below M: the problem's */
    uint32_t num_boxes;   /* and the reserved ranges, pinned, behind them */
    uint64_t *size;       /* of each box, units */
    uint64_t *pin;        /* units, or PST_PLAN_FREE */
    mip_pair *pairs;      /* boxes that may not overlap */
    uint32_t num_pairs;
    uint64_t most_live; /* units, at once */
    uint64_t upper;     /* units: of M, and the large constant */
    bool is_cut;        /* M >= most_live */
} mip_model;

/* Returns a tool_exit; free it in any case. */
int mip_model_make(const pst_plan_problem *problem, const mip_options *options, mip_model *model);
void mip_model_free(mip_model *model);

/* CPLEX LP format. */
void mip_model_print(const mip_model *model, FILE *file);

/* Turns a solver's addresses (units, nearly integers) into exact ones: keeps the order of each pair
 * and lets every tensor sink. False if a pinned box is in the way then. peak_out is in units. */
bool mip_model_settle(const mip_model *model, const double *found, uint64_t *addresses,
                      uint64_t *peak_out);

#endif
