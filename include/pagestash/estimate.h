/* Estimates: the memory of a training run, worked out before it starts.
 *
 *   pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;   the model, the split, the batch
 *   pst_estimate_check(&config);                             every rule at once
 *   pst_estimate_get_params(&config, &params);               of the whole model
 *   pst_estimate_get_states(&config, stage, &states);        of each GPU of a pipeline stage
 *   pst_estimate_get_ledger(&config, is_moe, &ledger);       what one layer saves for its backward
 *   pst_estimate_get_memory(&config, stage, live, &memory);  all of a GPU, at the schedule's peak
 *   pst_estimate_get_moe(&config, live_layers, &moe);        its expert layers, kept in four ways
 *   pst_estimate_get_traffic(&config, stage, &traffic);      what a GPU sends and receives
 *   pst_estimate_get_group(&config, kind, rank, &group);     with whom
 *
 * Pure: functions of the config, in integers. A figure above 2^64 - 2 is refused, never wrapped.
 * Bytes are those of the tensors, without what an allocator adds. Threads: any.
 */
#ifndef PAGESTASH_ESTIMATE_H
#define PAGESTASH_ESTIMATE_H

#include <pagestash/status.h>

#define PST_ESTIMATE_MAX_LAYERS 4096u

typedef enum pst_norm { PST_NORM_LAYER = 0, PST_NORM_RMS = 1 } pst_norm;

/* What the norms of queries and keys span. */
typedef enum pst_qk_norm {
    PST_QK_NORM_NONE = 0,
    PST_QK_NORM_HEAD,
    PST_QK_NORM_PROJECTION,
} pst_qk_norm;

typedef enum pst_train_type {
    PST_TRAIN_BF16 = 0, /* gradients in fp32: 2 + 4 + 12 bytes per parameter */
    PST_TRAIN_FP16,     /* 2 + 2 + 16 */
    PST_TRAIN_FP32,     /* 4 + 4 + 8 */
} pst_train_type;

/* How many rows an expert layer's buffers hold on a GPU. */
typedef enum pst_moe_rows {
    PST_MOE_BALANCED = 0, /* those of a router that is even */
    PST_MOE_CAPACITY,     /* capacity_num / capacity_den times as many, rounded down */
    PST_MOE_WORST,        /* whatever the router does: none is dropped */
    PST_MOE_PAGED,        /* balanced, in pages; the layer at work has buffers of the capacity.
 * Not with recompute_layers, which leaves nothing to page */
} pst_moe_rows;

/* What the backward pass computes anew instead of saving it; bits can be combined. */
#define PST_RECOMPUTE_GATHER 1u     /* with sequence_parallel: gathers inputs again */
#define PST_RECOMPUTE_NORM 2u       /* outputs of the layer's two norms */
#define PST_RECOMPUTE_ACTIVATION 4u /* the activation function */
#define PST_RECOMPUTE_ATTENTION 8u  /* scores and softmax */
#define PST_RECOMPUTE_ALL 15u

/* Zero means none, off or absent, unless the field says what else. */
typedef struct pst_estimate_config {
    size_t struct_size;

    /* the model */
    uint64_t num_layers;
    uint64_t hidden_size;
    uint64_t num_heads;
    uint64_t num_kv_heads; /* 0: num_heads */
    uint64_t head_size;    /* 0: hidden_size / num_heads */
    uint64_t ffn_size;     /* of dense layers; may be 0 where there are none */
    uint64_t vocab_size;
    uint64_t vocab_multiple;    /* the vocabulary is padded to this times tensor_parallel; 0: 128 */
    uint64_t padded_vocab_size; /* 0: by vocab_multiple */
    uint64_t max_positions;     /* learned ones */
    pst_norm norm;
    pst_qk_norm qk_norm;
    bool is_gated; /* SwiGLU: two input matrices */
    bool has_linear_bias;
    bool has_qkv_bias;
    bool is_tied; /* one matrix for embedding and output */

    /* multi-latent attention, where kv_rank is not 0 */
    uint64_t q_rank; /* 0: queries have no latent */
    uint64_t kv_rank;
    uint64_t qk_size; /* per head, without positions */
    uint64_t qk_position_size;
    uint64_t v_size;

    /* experts, where num_experts is not 0 */
    uint64_t num_experts;
    uint64_t experts_per_token;
    uint64_t expert_ffn_size;
    uint64_t shared_ffn_size;
    bool has_shared_gate;
    bool has_router_bias;
    const bool *is_moe; /* num_layers flags; NULL: every layer, where there are experts */

    /* the split; 0: 1, unless the field says what else */
    uint64_t world_size;
    uint64_t tensor_parallel;
    uint64_t pipeline_parallel;
    uint64_t virtual_stages; /* chunks of layers per GPU */
    uint64_t context_parallel;
    uint64_t expert_parallel;
    uint64_t expert_tensor_parallel; /* 0: tensor_parallel */
    bool sequence_parallel;
    bool distributed_optimizer;
    /* pipeline_parallel * virtual_stages counts of layers in the order of the model: chunk j of
     * stage r is entry j * pipeline_parallel + r. NULL: as many in each */
    const uint64_t *chunk_layers;
    /* micro-batches that a chunk runs before the next one has its turn, where virtual_stages is
     * above 1; at least pipeline_parallel; 0: pipeline_parallel */
    uint64_t interleave_group;

    /* the batch */
    uint64_t sequence_size;
    uint64_t micro_batch;  /* 0: 1 */
    uint64_t global_batch; /* sequences */
    pst_train_type type;

    /* what layers save */
    uint32_t recompute; /* PST_RECOMPUTE bits */
    /* full recomputation: only the input of every group of so many layers of a chunk is saved */
    uint64_t recompute_layers;
    bool has_flash_attention;
    bool has_hidden_dropout;
    bool has_attention_dropout;
    bool fuses_activation;   /* a gated activation saves nothing in between */
    bool fuses_loss;         /* no logits in fp32 beside those of the matrix */
    bool saves_inputs_fp8;   /* of the activation function */
    bool applies_probs_late; /* the router's probabilities: where tokens return, not before */
    pst_moe_rows moe_rows;
    uint64_t capacity_num, capacity_den; /* 0: 1 */
    uint64_t page_rows;                  /* of a page that holds rows; 0: 64 */
    uint64_t page_bytes;                 /* of a pst_pool; 0: 256 KiB */
    uint64_t slack_num, slack_den; /* pages there are for so many balanced loads; 0/0: 11/10 */
} pst_estimate_config;

#define PST_ESTIMATE_CONFIG_INIT                                                                \
    {                                                                                           \
        sizeof(pst_estimate_config), 0u, 0u, 0u, 0u, 0u, 0u, 0u, 0u, 0u, 0u, PST_NORM_LAYER,    \
            PST_QK_NORM_NONE, false, false, false, false, 0u, 0u, 0u, 0u, 0u, 0u, 0u, 0u, 0u,   \
            false, false, NULL, 0u, 0u, 0u, 0u, 0u, 0u, 0u, false, false, NULL, 0u, 0u, 0u, 0u, \
            PST_TRAIN_BF16, 0u, 0u, false, false, false, false, false, false, false,            \
            PST_MOE_BALANCED, 0u, 0u, 0u, 0u, 0u, 0u                                            \
    }

/* Numbers of parameters. */
typedef struct pst_estimate_params {
    uint64_t total;        /* of the model as published: vocabulary not padded */
    uint64_t padded;       /* with the padded vocabulary */
    uint64_t active;       /* of total, those that one token meets */
    uint64_t experts;      /* of total, in routed experts */
    uint64_t router_bias;  /* not in total: a buffer for some, a parameter for others */
    uint64_t dense_layer;  /* one; 0 if the model has none */
    uint64_t moe_layer;    /* one; 0 if the model has none */
    uint64_t embedding;    /* not padded */
    uint64_t output;       /* not padded; 0 if tied */
    uint64_t mtp;          /* not in total: one depth of multi-token prediction */
    uint64_t padded_vocab; /* words */
} pst_estimate_params;

/* Of one GPU of a pipeline stage. */
typedef struct pst_estimate_states {
    uint64_t num_layers;
    uint64_t num_moe_layers; /* of num_layers */
    uint64_t params;
    uint64_t expert_params; /* of params, in routed experts */
    uint64_t weight_bytes;
    uint64_t gradient_bytes;
    uint64_t optimizer_bytes; /* of the GPU with most, where it is sharded */
    uint64_t bytes;           /* the sum of the three */
} pst_estimate_states;

/* Tensors that one layer saves for its backward, for one micro-batch. */
typedef struct pst_estimate_entry {
    const char *name;     /* static text, as "expert.fc1.in" */
    uint64_t whole_bytes; /* not divided by any parallelism */
    uint64_t bytes;       /* on one GPU */
} pst_estimate_entry;

#define PST_ESTIMATE_MAX_ENTRIES 40u

typedef struct pst_estimate_ledger {
    uint64_t whole_bytes, bytes; /* sums */
    uint32_t num_entries;        /* in the order of the forward; none of 0 bytes */
    pst_estimate_entry entries[PST_ESTIMATE_MAX_ENTRIES];
} pst_estimate_ledger;

/* Of one GPU of a pipeline stage, when most is saved: just after a forward. */
typedef struct pst_estimate_memory {
    pst_estimate_states states;
    uint64_t num_micro_batches; /* of an iteration */
    /* layers between forward and backward, each once for every micro-batch; with recompute_layers
     * only inputs of theirs are saved */
    uint64_t live_layers;
    uint64_t live_moe_layers; /* of live_layers */
    uint64_t saved_bytes;     /* by the live layers and the embedding */
    uint64_t head_bytes;      /* by final norm, output matrix and loss, on the last stage */
    uint64_t recompute_bytes; /* of the group that full recomputation runs again */
    uint64_t paging_bytes;    /* with PST_MOE_PAGED, what that adds: see pst_estimate_moe */
    uint64_t bytes;           /* states and the four */
} pst_estimate_memory;

/* Expert layers of one GPU. Static: each live layer has a buffer of so many rows. Paged: one layer
 * at work has such buffers, and all live rows are in pages. */
typedef struct pst_estimate_moe {
    uint64_t live_layers;
    uint64_t balanced_rows, capacity_rows, worst_rows;    /* that one layer receives */
    uint64_t row_bytes;                                   /* saved by the experts for each */
    uint64_t balanced_bytes, capacity_bytes, worst_bytes; /* static */
    uint64_t working_bytes;       /* of the layer at work, with capacity_rows: in, saved and out */
    uint64_t worst_working_bytes; /* with worst_rows */
    uint64_t num_pages;           /* of page_rows */
    uint64_t pages_bytes;         /* of all of them */
    uint64_t table_bytes;         /* 8 for each page, and for each that a live layer could take */
    uint64_t paged_bytes;         /* working_bytes and pages_bytes */
    uint64_t pool_pages;          /* as a pst_pool: one is partly empty for each live layer */
    uint64_t pool_bytes;          /* of pst_pool_bytes, with a ticket for each live layer */
} pst_estimate_moe;

typedef enum pst_transfer {
    PST_TRANSFER_ALL_REDUCE = 0,
    PST_TRANSFER_ALL_GATHER,
    PST_TRANSFER_REDUCE_SCATTER,
    PST_TRANSFER_ALL_TO_ALL,
    PST_TRANSFER_SEND,    /* to a neighbour */
    PST_TRANSFER_RECEIVE, /* from a neighbour */
} pst_transfer;

typedef enum pst_parallel {
    PST_PARALLEL_TENSOR = 0,
    PST_PARALLEL_CONTEXT,
    PST_PARALLEL_DATA,    /* without context parallel GPUs */
    PST_PARALLEL_REPLICA, /* GPUs with the same dense parameters: data and context parallel */
    PST_PARALLEL_PIPELINE,
    PST_PARALLEL_EXPERT,
    PST_PARALLEL_EXPERT_TENSOR,
    PST_PARALLEL_EXPERT_REPLICA, /* GPUs with the same experts */
    PST_PARALLEL_EMBEDDING,      /* first and last stage, which share a tied matrix */
    PST_NUM_PARALLELS
} pst_parallel;

/* One kind of transfer of a GPU, over an iteration. */
typedef struct pst_estimate_op {
    const char *name; /* static text, as "tp.ag.head" */
    pst_transfer transfer;
    pst_parallel parallel;
    uint64_t group_size; /* 2 between stages */
    uint64_t count;
    uint64_t payload_bytes; /* of each: the full tensor, or what one GPU sends */
    uint64_t wire_bytes;    /* of all: what a GPU sends (or receives) in a ring, rounded up */
} pst_estimate_op;

#define PST_ESTIMATE_MAX_OPS 24u

typedef struct pst_estimate_traffic {
    uint32_t num_ops; /* none of a group of 1 */
    pst_estimate_op ops[PST_ESTIMATE_MAX_OPS];
} pst_estimate_traffic;

/* Ranks first, first + stride, ...: size of them. */
typedef struct pst_estimate_group {
    uint64_t first, stride, size;
} pst_estimate_group;

PST_BEGIN_DECLS

/* Every function below checks first. Fails: INVALID (the message names the fields). */
PST_API pst_status pst_estimate_check(const pst_estimate_config *config);

PST_API pst_status pst_estimate_get_params(const pst_estimate_config *config,
                                           pst_estimate_params *params_out);

/* stage: below pipeline_parallel. The last stage has its own copy of a tied embedding. */
PST_API pst_status pst_estimate_get_states(const pst_estimate_config *config, uint64_t stage,
                                           pst_estimate_states *states_out);

/* Of a dense layer, or of one with experts; the model need not have such a layer among num_layers,
 * but its sizes. */
PST_API pst_status pst_estimate_get_ledger(const pst_estimate_config *config, bool is_moe,
                                           pst_estimate_ledger *ledger_out);

/* Schedules: 1F1B, and interleaved 1F1B where virtual_stages is above 1. live: NULL, or
 * virtual_stages words for the micro-batches of each chunk that are live then. Fails: NOMEM. */
PST_API pst_status pst_estimate_get_memory(const pst_estimate_config *config, uint64_t stage,
                                           uint64_t *live, pst_estimate_memory *memory_out);

/* live_layers: as pst_estimate_memory.live_moe_layers says, at most 2^20. Fails: INVALID (also a
 * pool of more pages than a pst_pool can have). */
PST_API pst_status pst_estimate_get_moe(const pst_estimate_config *config, uint64_t live_layers,
                                        pst_estimate_moe *moe_out);

PST_API pst_status pst_estimate_get_traffic(const pst_estimate_config *config, uint64_t stage,
                                            pst_estimate_traffic *traffic_out);

/* The group of a rank below world_size. Ranks count tensor parallel GPUs first, then context, data
 * and pipeline parallel ones; with experts: expert tensor, expert, replicas, pipeline. Of the
 * embedding: INVALID for a rank in between. */
PST_API pst_status pst_estimate_get_group(const pst_estimate_config *config, pst_parallel parallel,
                                          uint64_t rank, pst_estimate_group *group_out);

PST_END_DECLS

#endif
