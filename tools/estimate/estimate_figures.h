/* Everything the report of an estimate shows, worked out once: text and JSON only write it. */
#ifndef PAGESTASH_TOOL_ESTIMATE_FIGURES_H
#define PAGESTASH_TOOL_ESTIMATE_FIGURES_H

#include "tools/estimate/estimate.h"

__extension__ typedef unsigned __int128 estimate_wide;

/* One switch turned: the stage that needed most, before and after. */
typedef struct estimate_whatif {
    const char *change;       /* as flags */
    int64_t saved_bytes;      /* of the peak of that stage */
    int64_t extra_wire_bytes; /* of one GPU of that stage, in an iteration */
} estimate_whatif;

enum { ESTIMATE_NUM_WHATIFS = 23, ESTIMATE_NUM_LAYER_KINDS = 2 };

/* A kind of transfer over all GPUs. */
typedef struct estimate_total {
    const pst_estimate_op *op; /* of one stage that has it */
    uint64_t num_transfers;    /* collectives, each counted once; or messages */
    estimate_wide wire_bytes;
} estimate_total;

typedef struct estimate_figures {
    const estimate_options *options;
    pst_estimate_params params;
    uint64_t num_stages, num_chunks, ranks_per_stage, num_micro_batches;
    estimate_stage *stages;
    uint64_t *chunk_words; /* behind the stages' pointers */
    uint64_t heaviest;     /* stage */
    bool has_part[PST_NUM_ESTIMATE_PARTS];
    pst_estimate_modules modules[PST_NUM_ESTIMATE_PARTS];
    pst_estimate_ledger ledgers[ESTIMATE_NUM_LAYER_KINDS]; /* dense, with experts */
    bool has_linears;
    pst_estimate_linears linears; /* of the dense layers of the stage that needs most */
    uint64_t moe_stage;           /* whose expert layers are shown: most of them live */
    pst_estimate_moe moe;         /* with has_part[PST_ESTIMATE_MOE] */
    uint32_t num_totals;
    estimate_total totals[PST_ESTIMATE_MAX_OPS];
    estimate_wide wire_bytes; /* of all GPUs */
    uint32_t num_whatifs;     /* those that change something */
    estimate_whatif whatifs[ESTIMATE_NUM_WHATIFS];
} estimate_figures;

/* TOOL_NO: out of memory. TOOL_USAGE: a figure exceeds what can be counted. Free it in any case. */
int estimate_figures_init(estimate_figures *figures, const estimate_options *options);
void estimate_figures_free(estimate_figures *figures);

/* estimate_whatif.c */
int estimate_find_whatifs(estimate_figures *figures);

#endif
