/* Estimates: the memory of a training run, worked out before it starts.
 *
 *   pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;   the model, the split, the batch
 *   pst_estimate_check(&config);                             every rule at once
 *   pst_estimate_find_fault(&config, &fault);                which one is broken, and how
 *   pst_estimate_get_params(&config, &params);               of the whole model
 *   pst_estimate_get_states(&config, stage, &states);        of each GPU of a pipeline stage
 *   pst_estimate_get_ledger(&config, is_moe, &ledger);       what one layer saves for its backward
 *   pst_estimate_get_modules(&config, part, &modules);       its weights, products, and whose it is
 *   pst_estimate_get_memory(&config, stage, live, &memory);  all of a GPU, at the schedule's peak
 *   pst_estimate_get_timeline(&config, stage, fn, user);     the same after every pass
 *   pst_estimate_get_moe(&config, live_layers, &moe);        its expert layers, kept in four ways
 *   pst_estimate_get_linears(&config, 0, true, live, &of);   scratch and pages of linear.h's layers
 *   pst_estimate_get_traffic(&config, stage, &traffic);      what a GPU sends and receives
 *   pst_estimate_get_gaps(&config, stage, &gaps);            what is not counted, at most
 *   pst_estimate_get_reserve(&config, &bytes);               context and NCCL, beside the tensors
 *   pst_estimate_get_process_group(&config, kind, rank, &group);     with whom
 *
 * Pure: functions of the config, in integers. A figure above 2^64 - 2 is refused, never wrapped.
 * Elements of the lists, states, events, faults and process groups are frozen structs.
 * Bytes are those of the tensors alone; an allocator adds to them. Threads: any.
 */
#ifndef PAGESTASH_ESTIMATE_H
#define PAGESTASH_ESTIMATE_H

#include <pagestash/estimate_config.h>

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
    uint64_t num_layers;      /* with those of multi-token prediction */
    uint64_t num_moe_layers;  /* of num_layers */
    uint64_t params;          /* on this GPU */
    uint64_t expert_params;   /* of params, in routed experts */
    uint64_t weight_bytes;    /* as trained with, without the optimizer's copy */
    uint64_t gradient_bytes;  /* kept and reduced */
    uint64_t optimizer_bytes; /* of the GPU with most, where it is sharded */
    uint64_t bytes;           /* the sum of the three */
    uint64_t host_bytes;      /* the offloaded share of the optimizer, not in the above */
} pst_estimate_states;

/* One piece of a layer, or of what stands around the layers: a weight, the matrix product that uses
 * it, and what is saved for its backward. */
typedef struct pst_estimate_module {
    const char *name; /* static text, as "attention.qkv" */
    /* `count` weights of outputs x inputs each, such as the experts of one layer; inputs 0: a
     * vector; both 0: no weights */
    uint64_t whole_outputs, whole_inputs, whole_count;
    uint64_t outputs, inputs, count; /* on one GPU */
    bool is_product;                 /* rows x inputs times inputs x outputs, for each of count */
    uint64_t whole_rows, rows;     /* tokens of a micro-batch; of one expert, evenly routed, rounded
                                * up */
    uint64_t whole_params, params; /* with biases; of what is tied, copies */
    uint64_t whole_saved_bytes, saved_bytes; /* the tensors of the ledger that are counted here */
} pst_estimate_module;

#define PST_ESTIMATE_MAX_MODULES 32u /* never changes */

/* What of a model has its own modules. */
typedef enum pst_estimate_part {
    PST_ESTIMATE_DENSE = 0, /* a layer */
    PST_ESTIMATE_MOE,       /* a layer with experts */
    PST_ESTIMATE_OUTSIDE,   /* embeddings, final norm, output matrix, and what all depths of
                             * multi-token prediction have beside their layers. On the GPUs of the
                             * first and last stage; the vocabulary of the whole matrices is not
                             * padded */
    PST_NUM_ESTIMATE_PARTS  /* how many there are */
} pst_estimate_part;

/* Sums of a layer's are those of pst_estimate_params and of its ledger. */
typedef struct pst_estimate_modules {
    uint64_t whole_params, params;           /* sums over the modules, not divided and on one GPU */
    uint64_t whole_saved_bytes, saved_bytes; /* the same of what is saved */
    uint32_t num_modules;                    /* in the order of the forward */
    pst_estimate_module modules[PST_ESTIMATE_MAX_MODULES]; /* num_modules are used */
} pst_estimate_modules;

/* Tensors that one layer saves for its backward, for one micro-batch. */
typedef struct pst_estimate_entry {
    const char *name;     /* static text, as "expert.fc1.in" */
    uint64_t whole_bytes; /* not divided by any parallelism */
    uint64_t bytes;       /* on one GPU */
} pst_estimate_entry;

#define PST_ESTIMATE_MAX_ENTRIES 40u /* never changes */

/* What one layer saves, tensor by tensor. */
typedef struct pst_estimate_ledger {
    uint64_t whole_bytes, bytes; /* sums */
    uint32_t num_entries;        /* in the order of the forward; none of 0 bytes in both */
    pst_estimate_entry entries[PST_ESTIMATE_MAX_ENTRIES]; /* num_entries are used */
} pst_estimate_ledger;

/* Of one GPU of a pipeline stage, when it saves most, with what paging adds: just after a
 * forward. */
typedef struct pst_estimate_memory {
    pst_estimate_states states; /* weights, gradients, optimizer */
    uint64_t num_micro_batches; /* of an iteration */
    /* layers between forward and backward, each once for every micro-batch; with recompute_layers
     * only inputs of theirs are saved */
    uint64_t live_layers;
    uint64_t live_moe_layers; /* of live_layers */
    uint64_t saved_bytes;     /* by the live layers and the embedding */
    uint64_t head_bytes;      /* by final norm, output matrix and loss, on the last stage */
    uint64_t recompute_bytes; /* of the layers that full recomputation runs again */
    uint64_t paging_bytes;    /* with PST_MOE_PAGED, what that adds: see pst_estimate_moe */
    uint64_t bytes;           /* states, the four above and empty_bytes */
    uint64_t transient_bytes; /* of the moment that adds most to those */
    const char *transient;    /* static text: which, as "MLP backward"; "none" of 0 bytes */
    uint64_t peak_bytes;      /* bytes and transient_bytes */
    uint64_t empty_bytes;     /* in bytes, too: of keeps_empty_gradients */
    uint64_t cache_bytes;     /* in bytes, too: of weights in fp8 beside those of the states */
    uint64_t gathered_bytes;  /* in bytes, too: of weights of sharding that are whole for a time */
    uint64_t offloaded_bytes; /* saved in host memory, not in bytes */
    /* in bytes, too: of what is offloaded, a layer's, whose backward is next, and the part of the one
     * before it that is on its way back */
    uint64_t reload_bytes;
    uint64_t workspace_bytes; /* in bytes, too: of keeps_workspaces */
    /* of live_moe_layers, those whose experts keep rows: where layers are run again, what a group of
     * them has, or a layer at work */
    uint64_t buffered_moe_layers;
} pst_estimate_memory;

/* What a stage holds after the forward or backward of a chunk for one micro-batch. */
typedef struct pst_estimate_event {
    uint64_t number;             /* from 0 */
    bool is_backward;            /* else a forward */
    uint64_t chunk, micro_batch; /* of what has just run, from 0 */
    uint64_t live_layers;        /* as in pst_estimate_memory, after it */
    uint64_t saved_bytes;        /* by the live layers and the embedding */
    uint64_t head_bytes;         /* from the last forward of a micro-batch to its backward; once */
    uint64_t bytes;              /* states, empty gradients, saved, head and paging */
} pst_estimate_event;

/* Returns whether to go on. */
typedef bool (*pst_estimate_event_fn)(void *user, const pst_estimate_event *event);

/* Expert layers of one GPU. Static: each live layer has a buffer of so many rows. Paged: one layer
 * at work has such buffers, and all live rows are in pages. */
typedef struct pst_estimate_moe {
    uint64_t live_layers;                                 /* as given */
    uint64_t balanced_rows, capacity_rows, worst_rows;    /* that one layer receives */
    uint64_t row_bytes;                                   /* saved by the experts for each */
    uint64_t balanced_bytes, capacity_bytes, worst_bytes; /* static */
    uint64_t working_bytes;       /* of the layer at work, with capacity_rows: in, saved and out */
    uint64_t worst_working_bytes; /* with worst_rows */
    uint64_t num_pages;           /* of page_rows */
    uint64_t pages_bytes;         /* of all of them */
    uint64_t table_bytes;         /* 8 for each page, and for each that a live layer could take */
    uint64_t paged_bytes;         /* working_bytes and pages_bytes */
    /* of a pst_pool: enough for headroom times the balanced rows of all live layers, however they
     * are spread over layers and experts */
    uint64_t pool_pages;
    uint64_t pool_bytes; /* of pst_pool_bytes, with a ticket for each live layer */
    /* working_bytes in a backward: with pages_glu without the activation's input */
    uint64_t backward_bytes;
} pst_estimate_moe;

/* What a GPU sends and receives. */
typedef enum pst_transfer {
    PST_TRANSFER_ALL_REDUCE = 0, /* sums, whole on every GPU */
    PST_TRANSFER_ALL_GATHER,     /* parts, whole on every GPU */
    PST_TRANSFER_REDUCE_SCATTER, /* sums, a part on every GPU */
    PST_TRANSFER_ALL_TO_ALL,     /* a part for every other GPU */
    PST_TRANSFER_SEND,           /* to a neighbour */
    PST_TRANSFER_RECEIVE,        /* from a neighbour */
} pst_transfer;

/* Which GPUs exchange with each other. */
typedef enum pst_parallel {
    PST_PARALLEL_TENSOR = 0,    /* that share a layer's matrices */
    PST_PARALLEL_CONTEXT,       /* that share a sequence */
    PST_PARALLEL_DATA,          /* without context parallel GPUs */
    PST_PARALLEL_REPLICA,       /* GPUs with the same dense parameters: data and context parallel */
    PST_PARALLEL_PIPELINE,      /* the stages */
    PST_PARALLEL_EXPERT,        /* that share a layer's experts */
    PST_PARALLEL_EXPERT_TENSOR, /* that share an expert's matrices */
    PST_PARALLEL_EXPERT_REPLICA, /* GPUs with the same experts */
    PST_PARALLEL_EMBEDDING,      /* first and last stage, if both have the embedding's matrix */
    PST_NUM_PARALLELS            /* how many there are */
} pst_parallel;

/* One kind of transfer of a GPU, over an iteration. */
typedef struct pst_estimate_op {
    const char *name;       /* static text, as "tp.ag.head" */
    pst_transfer transfer;  /* what is sent */
    pst_parallel parallel;  /* to whom */
    uint64_t group_size;    /* 2 between stages; of flex experts' times expert tensor ones */
    uint64_t count;         /* of an iteration */
    uint64_t payload_bytes; /* of each: the full tensor, or what one GPU sends */
    uint64_t wire_bytes;    /* of all: what a GPU sends (or receives) in a ring, rounded up */
} pst_estimate_op;

#define PST_ESTIMATE_MAX_OPS 32u /* never changes */

/* What a GPU of a stage sends in an iteration, kind by kind. */
typedef struct pst_estimate_traffic {
    uint32_t num_ops;                          /* none of a group of 1 */
    pst_estimate_op ops[PST_ESTIMATE_MAX_OPS]; /* num_ops are used */
} pst_estimate_traffic;

/* A matrix of a dense layer, or the output's, as a tensor-parallel linear of linear.h; or a gated MLP
 * as a whole block. Bytes on one GPU. */
typedef struct pst_estimate_linear {
    const char *name; /* static text: "attention.qkv", "attention.proj", "mlp" of a gated one, else
                       * "mlp.fc1" and "mlp.fc2", "experts", "output" */
    /* leased of scratch at one time, at most: pst_scratch_info.peak_leased_bytes of such calls */
    uint64_t forward_scratch;
    uint64_t backward_scratch; /* the same of a backward */
    uint64_t saved_bytes;      /* the input for the backward, whole where gathers are kept */
    uint64_t hidden_bytes; /* of a block, besides: what is between its layers, saved or in pages */
} pst_estimate_linear;

/* What an estimate takes for granted, and a run may exceed. */
typedef struct pst_estimate_gap {
    const char *field;  /* static text: the member of the config that it belongs to */
    const char *reason; /* static text, as "rows beyond those of an even router" */
    uint64_t bytes;     /* that a GPU of the stage may need beside, at most */
} pst_estimate_gap;

#define PST_ESTIMATE_MAX_GAPS 8u /* never changes */

/* All that an estimate takes for granted, one by one. */
typedef struct pst_estimate_gaps {
    uint32_t num_gaps; /* none of 0 bytes; above 0: the memory is at least what the estimate says */
    pst_estimate_gap gaps[PST_ESTIMATE_MAX_GAPS]; /* num_gaps are used */
} pst_estimate_gaps;

/* A buffer of scratch. */
typedef struct pst_estimate_buffer {
    const char *name; /* static text */
    uint64_t bytes;   /* the most that is leased; mapped_bytes rounds it up */
} pst_estimate_buffer;

#define PST_ESTIMATE_MAX_LINEARS 8u /* never changes */
#define PST_ESTIMATE_MAX_BUFFERS 8u /* never changes */

/* What the layers of a model lease of scratch and put into pages. */
typedef struct pst_estimate_linears {
    uint64_t scratch_bytes; /* of one scratch for all layers: the most that is leased at one time */
    uint64_t buffers_bytes; /* the sum of all buffers */
    uint64_t layer_pages;   /* of a dense layer's hidden tensor; 0: there is none */
    uint64_t pool_pages;    /* of those of all live layers */
    uint64_t pool_bytes;    /* of pst_pool_bytes for so many pages, a ticket for each live layer */
    uint32_t num_linears;   /* in the order of the forward */
    uint32_t num_buffers;   /* of the scratch */
    pst_estimate_linear linears[PST_ESTIMATE_MAX_LINEARS]; /* num_linears are used */
    pst_estimate_buffer buffers[PST_ESTIMATE_MAX_BUFFERS]; /* num_buffers are used */
    uint64_t
        expert_pages; /* of a layer's experts' hidden tensor with all rows live, not in pool_pages; 0:
                            * there is none */
} pst_estimate_linears;

/* Ranks first, first + stride, ...: size of them. */
typedef struct pst_estimate_process_group {
    uint64_t first, stride, size; /* ranks of the whole world */
} pst_estimate_process_group;

PST_BEGIN_DECLS

/* Every function below checks first. Fails: INVALID (the message names the fields). */
PST_API pst_status pst_estimate_check(const pst_estimate_config *config);

/* The same, for a program that has names of its own for the members. fault_out: written in any case,
 * but where it is NULL. */
PST_API pst_status pst_estimate_find_fault(const pst_estimate_config *config,
                                           pst_estimate_fault *fault_out);

/* Numbers of parameters of the model, whatever the split. */
PST_API pst_status pst_estimate_get_params_sized(const pst_estimate_config *config,
                                                 pst_estimate_params *params_out,
                                                 size_t params_bytes);
static inline pst_status pst_estimate_get_params(const pst_estimate_config *config,
                                                 pst_estimate_params *params_out)
{
    return pst_estimate_get_params_sized(config, params_out, sizeof(pst_estimate_params));
}

/* stage: below pipeline_parallel. The last stage has its own copy of a tied embedding, and of one
 * for multi-token prediction. */
PST_API pst_status pst_estimate_get_states(const pst_estimate_config *config, uint64_t stage,
                                           pst_estimate_states *states_out);

/* Of a dense layer, or of one with experts. The model needs the sizes of such a layer, but need not
 * have one among num_layers. */
PST_API pst_status pst_estimate_get_ledger_sized(const pst_estimate_config *config, bool is_moe,
                                                 pst_estimate_ledger *ledger_out,
                                                 size_t ledger_bytes);
static inline pst_status pst_estimate_get_ledger(const pst_estimate_config *config, bool is_moe,
                                                 pst_estimate_ledger *ledger_out)
{
    return pst_estimate_get_ledger_sized(config, is_moe, ledger_out, sizeof(pst_estimate_ledger));
}

/* Schedules: 1F1B, and interleaved 1F1B where virtual_stages is above 1. live: NULL, or
 * virtual_stages words for the micro-batches of each chunk that are live then. Fails: NOMEM. */
PST_API pst_status pst_estimate_get_memory_sized(const pst_estimate_config *config, uint64_t stage,
                                                 uint64_t *live, pst_estimate_memory *memory_out,
                                                 size_t memory_bytes);
static inline pst_status pst_estimate_get_memory(const pst_estimate_config *config, uint64_t stage,
                                                 uint64_t *live, pst_estimate_memory *memory_out)
{
    return pst_estimate_get_memory_sized(config, stage, live, memory_out,
                                         sizeof(pst_estimate_memory));
}

/* Every event of an iteration on a GPU of the stage, in order; the first that on_event answers
 * with false is the last. In space for the chunks alone. Fails: NOMEM. */
PST_API pst_status pst_estimate_get_timeline(const pst_estimate_config *config, uint64_t stage,
                                             pst_estimate_event_fn on_event, void *user);

/* As pst_estimate_get_ledger, the model need not have such a layer. */
PST_API pst_status pst_estimate_get_modules_sized(const pst_estimate_config *config,
                                                  pst_estimate_part part,
                                                  pst_estimate_modules *modules_out,
                                                  size_t modules_bytes);
static inline pst_status pst_estimate_get_modules(const pst_estimate_config *config,
                                                  pst_estimate_part part,
                                                  pst_estimate_modules *modules_out)
{
    return pst_estimate_get_modules_sized(config, part, modules_out, sizeof(pst_estimate_modules));
}

/* live_layers: as pst_estimate_memory.buffered_moe_layers says, at most 2^20. Fails: INVALID (also a
 * pool of more pages than a pst_pool can have). */
PST_API pst_status pst_estimate_get_moe_sized(const pst_estimate_config *config,
                                              uint64_t live_layers, pst_estimate_moe *moe_out,
                                              size_t moe_bytes);
static inline pst_status pst_estimate_get_moe(const pst_estimate_config *config,
                                              uint64_t live_layers, pst_estimate_moe *moe_out)
{
    return pst_estimate_get_moe_sized(config, live_layers, moe_out, sizeof(pst_estimate_moe));
}

/* Layers as linear.h runs them, with the block of a GPU's routed experts: pst_mlp's, so where these are
 * gated and expert_tensor_parallel is 1, and without shared ones. An expert's capacity is its share, rounded
 * up, of the rows that moe_rows gives the GPU (of PST_MOE_PAGED its capacity), with PST_MOE_WORST all tokens
 * that can be sent to one. Gathers are kept unless the config has PST_RECOMPUTE_GATHER. pieces: of
 * pst_linear_config, 0 or 1. pages_hidden: what a block has between its layers is in pages between forward
 * and backward; else saved. live_layers: dense ones, at most 2^20.
 * Fails: INVALID (also a pool of more pages than a pst_pool can have), UNSUPPORTED (latent
 * attention, whose projections gather latents). */
PST_API pst_status pst_estimate_get_linears_sized(const pst_estimate_config *config,
                                                  uint32_t pieces, bool pages_hidden,
                                                  uint64_t live_layers,
                                                  pst_estimate_linears *linears_out,
                                                  size_t linears_bytes);
static inline pst_status pst_estimate_get_linears(const pst_estimate_config *config,
                                                  uint32_t pieces, bool pages_hidden,
                                                  uint64_t live_layers,
                                                  pst_estimate_linears *linears_out)
{
    return pst_estimate_get_linears_sized(config, pieces, pages_hidden, live_layers, linears_out,
                                          sizeof(pst_estimate_linears));
}

/* Of tensors that Megatron-LM makes; CUDA, NCCL and what an allocator adds are in none. Fails: NOMEM. */
PST_API pst_status pst_estimate_get_gaps_sized(const pst_estimate_config *config, uint64_t stage,
                                               pst_estimate_gaps *gaps_out, size_t gaps_bytes);
static inline pst_status pst_estimate_get_gaps(const pst_estimate_config *config, uint64_t stage,
                                               pst_estimate_gaps *gaps_out)
{
    return pst_estimate_get_gaps_sized(config, stage, gaps_out, sizeof(pst_estimate_gaps));
}

/* What one GPU of the stage exchanges in an iteration. */
PST_API pst_status pst_estimate_get_traffic_sized(const pst_estimate_config *config, uint64_t stage,
                                                  pst_estimate_traffic *traffic_out,
                                                  size_t traffic_bytes);
static inline pst_status pst_estimate_get_traffic(const pst_estimate_config *config, uint64_t stage,
                                                  pst_estimate_traffic *traffic_out)
{
    return pst_estimate_get_traffic_sized(config, stage, traffic_out, sizeof(pst_estimate_traffic));
}

/* Thousandths of peak_bytes that torch's allocator has besides: what 18 of 19 runs of others stayed within (0.028 to
 * 0.093, median 0.053; docs/estimator.md has the source), far from the end of their GPU's memory. */
#define PST_ESTIMATE_FRAGMENTATION 80

/* Bytes of a GPU outside the framework's tensors, to be kept free: its context, and NCCL's buffers for
 * each kind of group of more than one GPU. As others measured them (docs/estimator.md has the sources),
 * so that NCCL's settings and other releases take more or less. What torch's allocator has taken and does not
 * give out comes on top: PST_ESTIMATE_FRAGMENTATION thousandths of peak_bytes. */
PST_API pst_status pst_estimate_get_reserve(const pst_estimate_config *config, uint64_t *bytes_out);

/* The ranks that `rank`, below world_size, communicates with. Ranks count tensor parallel GPUs
 * first, then context, data and pipeline parallel ones; with experts: expert tensor, expert,
 * replicas, pipeline. Of the embedding: INVALID for a rank in between. */
PST_API pst_status pst_estimate_get_process_group(const pst_estimate_config *config,
                                                  pst_parallel parallel, uint64_t rank,
                                                  pst_estimate_process_group *group_out);

PST_END_DECLS

#endif
