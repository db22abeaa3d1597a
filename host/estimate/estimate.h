/* Room estimate: parameters, memory and communication of a training run, from its shape; pure.
 * Uses base, schedule, model, and of stash the page arithmetic of pool_layout.h. Used by programs,
 * through estimate.h of the public headers. */
#ifndef PSTI_HOST_ESTIMATE_H
#define PSTI_HOST_ESTIMATE_H

#include <pagestash/estimate.h>

#include "host/base/arith.h"
#include "host/base/base.h"
#include "host/model/ledger.h"
#include "host/schedule/pipeline.h"

/* ---- estimate.c ---- */

/* Checks, and fills in what a zero stands for. */
pst_status psti_estimate_open(const pst_estimate_config *given, pst_estimate_config *config_out);

/* The functions below take an opened config, but for those of estimate_rules.c. */

bool psti_estimate_has_moe(const pst_estimate_config *config, uint64_t layer);
/* GPUs that hold the same dense parameters, context parallel ones too; and the same experts. */
uint64_t psti_estimate_dense_group(const pst_estimate_config *config);
uint64_t psti_estimate_expert_group(const pst_estimate_config *config);
uint64_t psti_num_micro_batches(const pst_estimate_config *config);

/* Layers first to first + num_layers - 1 of the model, num_moe of them with experts; behind them
 * depths of multi-token prediction, each with a layer of the last layer's kind. */
typedef struct psti_chunk {
    uint64_t first, num_layers, num_moe;
    uint64_t num_mtp, num_mtp_moe; /* depths, and those with experts: all or none */
} psti_chunk;

/* Whether the last layer has experts. */
bool psti_ends_with_moe(const pst_estimate_config *config);
/* Depths of multi-token prediction of a stage: none but of the last. */
uint64_t psti_num_mtp(const pst_estimate_config *config, uint64_t stage);
/* Whether first and last stage have copies of the embedding: a tied matrix, or for multi-token
 * prediction. */
bool psti_copies_embedding(const pst_estimate_config *config);
psti_chunk psti_chunk_of(const pst_estimate_config *config, uint64_t stage, uint64_t chunk);
pst_status psti_estimate_check_stage(const pst_estimate_config *config, uint64_t stage);

/* ---- estimate_rules.c ---- */

/* In this order, with what zeros stand for filled in between: values on their own; what no product
 * of the split may exceed; all the rest. fault: written where they fail. */
pst_status psti_check_kinds(const pst_estimate_config *config, pst_estimate_fault *fault);
pst_status psti_check_split_limits(const pst_estimate_config *config, pst_estimate_fault *fault);
pst_status psti_check_rules(const pst_estimate_config *config, pst_estimate_fault *fault);

/* ---- estimate_modules.c ---- */

/* Parameters of a layer, whole or of one GPU, and of them those in routed experts; none with
 * experts if the model has none. */
typedef struct psti_words {
    uint64_t all, experts;
} psti_words;

psti_words psti_layer_words(const pst_estimate_config *config, bool is_moe, bool is_whole);
/* Of what a GPU of the stage has outside the layers. */
uint64_t psti_outside_words(const pst_estimate_config *config, uint64_t stage);

/* Of a stage's layers with distinct shapes of weights: one empty gradient each. */
uint64_t psti_empty_gradients(const pst_estimate_config *config, const pst_estimate_states *states);

/* Weights of a stage's linears whose products are in fp8: elements, and bytes in fp8; of both those of
 * routed experts. All 0 without fp8. */
typedef struct psti_linears {
    uint64_t words, expert_words, fp8_bytes, expert_fp8_bytes;
} psti_linears;

/* states: its numbers of layers are read. */
psti_linears psti_linears_of(const pst_estimate_config *config, uint64_t stage,
                             const pst_estimate_states *states);
psti_linears psti_layer_linears(const pst_estimate_config *config, bool is_moe);

/* ---- estimate_sharding.c ---- */

bool psti_shards_gradients(const pst_estimate_config *config);
bool psti_shards_weights(const pst_estimate_config *config);
/* Weights of a stage that are whole for a time, beside those of the states. */
uint64_t psti_gathered_bytes(const pst_estimate_config *config, uint64_t stage,
                             const pst_estimate_states *states);
/* Gradients that are whole while a layer's backward runs, at most, less the layers' saved tensors that
 * are gone by then. */
uint64_t psti_whole_gradients(const pst_estimate_config *config, uint64_t stage,
                              const pst_estimate_states *states);
/* How often an iteration gathers weights, and reduces gradients. */
typedef struct psti_collectives {
    uint64_t gathers, reductions;
} psti_collectives;

psti_collectives psti_collectives_of(const pst_estimate_config *config);

/* ---- estimate_offload.c ---- */

/* Of one layer: what goes to host memory, and the most that does at once. */
typedef struct psti_offload {
    uint64_t bytes, largest_part;
} psti_offload;

psti_offload psti_offload_of(const pst_estimate_config *config, bool is_moe);

/* ---- estimate_memory.c ---- */

/* What is saved of a micro-batch before the first layer; after the last by all that stands there,
 * and of that by the final norm. */
typedef struct psti_ends {
    uint64_t embedding, head, final_norm;
} psti_ends;

/* Copies of logits, of one loss, that are gone when the output matrix's backward begins. */
uint64_t psti_logit_copies(const pst_estimate_config *config, const psti_split *split);
psti_ends psti_ends_of(const pst_estimate_config *config, const psti_split *split);

/* Layers of a chunk that full recomputation runs again, from its first, or with depths of multi-token
 * prediction all, and those of them with experts. */
typedef struct psti_again {
    uint64_t num_layers, num_moe;
} psti_again;

psti_again psti_again_of(const pst_estimate_config *config, uint64_t stage, uint64_t chunk);

/* A chunk, with depths of multi-token prediction, and what it saves for one micro-batch. */
typedef struct psti_chunk_saved {
    uint64_t bytes; /* without what is in host memory */
    uint64_t offloaded, num_layers, num_moe;
} psti_chunk_saved;

/* Of the stage's virtual_stages chunks. Returns what the head saves for a micro-batch, on the last
 * stage. */
uint64_t psti_fill_chunks(const pst_estimate_config *config, uint64_t stage,
                          psti_chunk_saved *chunks);

/* What a stage holds after a pass, beside its states and the head. */
typedef struct psti_live {
    const pst_estimate_config *config;
    const psti_chunk_saved *chunks;
    pst_estimate_moe moe;
    uint64_t num_layers, num_moe, saved_bytes;
} psti_live;

psti_live psti_nothing_live(const pst_estimate_config *config, const psti_chunk_saved *chunks);
/* A psti_live_fn. Returns what is saved, and with PST_MOE_PAGED what paging adds. */
uint64_t psti_live_after(void *live, const psti_pipeline_pass *pass);

psti_pipeline psti_pipeline_of(const pst_estimate_config *config, uint64_t stage);

/* ---- estimate_transient.c ---- */

typedef struct psti_moment {
    const char *name; /* static text; "none" of 0 bytes */
    uint64_t bytes;
} psti_moment;

/* The moment of a stage that takes most beside memory's bytes. first: of its first chunk. */
psti_moment psti_transient_of(const pst_estimate_config *config, uint64_t stage,
                              const psti_chunk_saved *first, const pst_estimate_memory *memory);

/* ---- estimate_process_group.c ---- */

/* parallel: a group that the rank has. */
pst_estimate_process_group psti_group_of(const pst_estimate_config *config, pst_parallel parallel,
                                         uint64_t rank);

/* ---- estimate_traffic.c ---- */

/* How often a transfer runs in a forward and in a backward; of the latter, how often beside the products
 * of a matrix's gradients. */
typedef struct psti_counts {
    uint64_t forward, backward, beside;
} psti_counts;

typedef struct psti_transfers {
    uint32_t num_ops; /* none of a group of 1 */
    pst_estimate_op ops[PST_ESTIMATE_MAX_OPS];
    psti_counts counts[PST_ESTIMATE_MAX_OPS];
} psti_transfers;

/* What a GPU runs: forwards (and as many backwards) of layers, of depths of multi-token prediction
 * beside their layers, of embeddings, and of output matrices with their losses. */
typedef struct psti_visits {
    uint64_t dense, moe, mtp, embeddings, heads;
} psti_visits;

/* Of tensor, context and expert parallel GPUs; no forward runs twice. */
void psti_transfers_of(const pst_estimate_config *config, psti_visits visits, psti_transfers *to);
/* Forwards of what a layer's backward runs again, where the layer is one that does. */
void psti_transfers_again(const pst_estimate_config *config, bool is_moe, psti_transfers *to);
/* Of gradients and parameters, once per step. states: of the stage. */
void psti_transfers_of_step(const pst_estimate_config *config, uint64_t stage,
                            const pst_estimate_states *states, psti_transfers *to);

/* ---- estimate_dispatch.c ---- */

/* With PST_DISPATCHER_FLEX: so many times the chance that a token has an expert among so many neighbours,
 * rounded up. */
uint64_t psti_dispatched(const pst_estimate_config *config, uint64_t experts, uint64_t times);
/* The GPUs among which it dispatches: expert tensor parallel ones get the same tokens. */
uint64_t psti_dispatch_group(const psti_split *split);

/* ---- estimate_moe.c ---- */

/* Whether rows are paged. */
bool psti_pages(const pst_estimate_config *config);
/* Whether an activation of experts writes its input into pages, and bytes of that input. */
bool psti_pages_glu(const pst_estimate_config *config);
uint64_t psti_glu_bytes(const pst_estimate_config *config, uint64_t rows);
/* With experts: what holds of any number of live layers. */
pst_estimate_moe psti_moe_of(const pst_estimate_config *config);
/* What paging takes above the balanced rows of the live layers: buffers, spare and partly filled
 * pages, tables. of: psti_moe_of the config. */
uint64_t psti_paging_bytes(const pst_estimate_config *config, const pst_estimate_moe *of,
                           uint64_t live_layers);

#endif
