/* Room tools/simulate: the command `pagestash simulate`, and what other commands need to simulate the
 * model they were asked about. Uses tools/common, the launch lines of tools/estimate, the ledger of an
 * expert's row in host/model, the routing traces of tools/replay, the list files in
 * host/schedule/schedule_file.h, the reader of lines. This file: a plain description of what is
 * simulated (simulate_input), and the arrays of pst_simulate made of it (simulate_model).
 *
 *   simulate_input input = {...};            from flags (simulate_flags.c), or filled in by a caller
 *   simulate_model_make(&input, &model);
 *   simulate_model_fill(&model, iteration);  pages of the visits
 *   pst_simulate(&model.config, &simulation, stages);
 *   simulate_model_free(&model);
 */
#ifndef PAGESTASH_TOOLS_SIMULATE_H
#define PAGESTASH_TOOLS_SIMULATE_H

#include "host/schedule/schedule_file.h"
#include "tools/common/flags.h"
#include "tools/common/tool.h"

#define SIMULATE_ALL UINT32_MAX  /* of ranks, of chunks */
#define SIMULATE_AUTO UINT64_MAX /* pages: as many as it takes */
#define SIMULATE_MAX_STAGES 4096
#define SIMULATE_MAX_LAYERS (1u << 20)
/* Of one rank, and passes of all ranks; a visit takes about 200 bytes. */
#define SIMULATE_MOST_VISITS (1u << 27)
#define SIMULATE_MOST_PLAYED (1u << 24) /* visits of all ranks in several steps: some seconds */

/* A visit that is stashed. */
typedef struct simulate_visit {
    uint32_t rank, chunk, layer; /* layer within the chunk */
    uint32_t moe_layer;          /* how many paged layers the model has before it */
    uint64_t model_layer;        /* how many layers */
    uint32_t micro_batch;        /* of the chunk */
    uint32_t model_micro_batch;  /* of the step: where chunks are pipelines of their own, the
                                  * second one's come behind the first one's */
} simulate_visit;

/* What the visit stashes in an iteration. Returns a tool_exit, its message printed. */
typedef int (*simulate_usage_fn)(const void *user, uint64_t iteration, const simulate_visit *visit,
                                 pst_group_usage *usage_out);

/* Of one layer: NUM/DEN of the pages of its stashes go to the host. */
typedef struct simulate_offload {
    uint32_t chunk; /* SIMULATE_ALL: of every chunk */
    uint32_t layer;
    flag_fraction share;
} simulate_offload;

/* Times of the passes of a layer. A whole backward takes backward and weight together. */
typedef struct simulate_times {
    pst_times forward, backward, weight;
    uint64_t recompute_ns;
} simulate_times;

/* Times of single layers. */
typedef int (*simulate_times_fn)(const void *user, const simulate_visit *layer,
                                 simulate_times *times_out);

typedef struct simulate_input {
    pst_schedule_config schedule;     /* stage and passes are not looked at */
    const psti_schedule_lists *lists; /* kind LIST: of all ranks, and their file's name */
    const char *lists_name;
    uint32_t rank; /* SIMULATE_ALL, or the one that is simulated alone */
    /* layers: of each chunk, or num_chunk_layers is 0 and the virtual stages share model_layers,
     * earlier ones one more */
    const uint32_t *chunk_layers;
    uint32_t num_chunk_layers; /* 1: of every chunk */
    uint32_t model_layers;
    /* or they are of each virtual stage, of which there are so many */
    const uint64_t *virtual_layers;
    uint64_t num_virtual_layers;
    /* [num_moe_before + 1]: how many paged layers come before each of the model's; NULL: as
     * moe_layers says */
    const uint32_t *moe_before;
    uint64_t num_moe_before;
    bool has_no_moe;       /* whatever these say */
    flag_range moe_layers; /* of the model, which are paged; the others are planned; 0:0: all */
    const simulate_offload *offloads;
    uint32_t num_offloads;
    pst_move move;
    simulate_times times;
    simulate_times_fn get_times; /* NULL: times, of every layer */
    const void *times_user;
    simulate_usage_fn get_usage; /* NULL: visits have no pages */
    const void *usage_user;
    bool is_uniform; /* usages are the same for every micro-batch */
    /* All that goes to pst_simulate as it is: sets, rule, streams, rates, pages, ... */
    pst_simulation_config config;
} simulate_input;

/* A chunk of a stage. */
typedef struct simulate_chunk {
    uint32_t first; /* index of its layer 0 among the stage's layers */
    uint32_t num_layers;
    uint32_t num_micro_batches;
    uint32_t num_slots;
    bool *has_weight;     /* [num_micro_batches]: a weight pass stands behind its backward */
    uint64_t model_layer; /* of its layer 0: how many layers the model has before it */
} simulate_chunk;

typedef struct simulate_stage {
    uint32_t rank;
    pst_schedule *schedule;
    pst_schedule_info info;
    uint32_t num_chunks, num_layers;
    simulate_chunk *chunks;
    pst_simulated_layer *layers; /* chunk after chunk */
    pst_group_usage *usages;     /* [num_layers][num_usages] */
    uint32_t num_usages;
    uint64_t num_visits; /* of all passes */
} simulate_stage;

typedef struct simulate_model {
    const simulate_input *input;
    pst_simulation_config config; /* ready for pst_simulate; on_event is free */
    uint32_t num_stages;
    simulate_stage *stages;
    pst_chunk_order order;
    uint32_t num_virtual_stages; /* of a pipeline */
    uint64_t num_model_layers;
    /* what config points to */
    const pst_schedule **schedules;
    const pst_simulated_layer **layers;
    uint32_t *num_layers;
} simulate_model;

/* Schedules and layers; input must outlive the model. Whatever the answer, model_out is to be freed.
 * Returns a tool_exit, its message printed. */
int simulate_model_make(const simulate_input *input, simulate_model *model_out);
/* The pages of every visit of an iteration. */
int simulate_model_fill(simulate_model *model, uint64_t iteration);
void simulate_model_free(simulate_model *model);

simulate_visit simulate_make_visit(const simulate_model *model, const simulate_stage *stage,
                                   uint32_t chunk, uint32_t layer, uint32_t micro_batch);
/* Whether a restore leaves the pages where they are, for the weight pass behind it. */
bool simulate_keeps(const simulate_stage *stage, const pst_visit_key *visit);
/* The order of chunks, where it is not given that of the kind. */
pst_chunk_order simulate_chunk_order(const simulate_input *input);

#endif
