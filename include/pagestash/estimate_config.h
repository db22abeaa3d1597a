/* What an estimate is of: the model, how it is split over GPUs, the batch, and what its layers save.
 * estimate.h has the functions. */
#ifndef PAGESTASH_ESTIMATE_CONFIG_H
#define PAGESTASH_ESTIMATE_CONFIG_H

#include <pagestash/status.h>

#define PST_ESTIMATE_MAX_LAYERS 4096u /* of a model */

/* Which norm layers have. */
typedef enum pst_norm {
    PST_NORM_LAYER = 0, /* LayerNorm: scale and bias */
    PST_NORM_RMS = 1    /* RMSNorm: scale alone */
} pst_norm;

/* What the norms of queries and keys span. */
typedef enum pst_qk_norm {
    PST_QK_NORM_NONE = 0,   /* there are none */
    PST_QK_NORM_HEAD,       /* each head by itself */
    PST_QK_NORM_PROJECTION, /* all heads together */
} pst_qk_norm;

/* Width of weights, and of gradients and optimizer states by default. */
typedef enum pst_train_type {
    PST_TRAIN_BF16 = 0, /* gradients in fp32: 2 + 4 + 12 bytes per parameter */
    PST_TRAIN_FP16,     /* 2 + 2 + 16 */
    PST_TRAIN_FP32,     /* 4 + 4 + 8 */
} pst_train_type;

/* What the loss keeps of the logits, beside those of the matrix, of which one loss at a time has any. */
typedef enum pst_loss {
    PST_LOSS_UNFUSED = 0, /* a copy in fp32 */
    PST_LOSS_FUSED,       /* nothing, as Transformer Engine's; each loss has the matrix's logits */
    PST_LOSS_COPIED,      /* two copies in fp32, as Megatron-LM of 2023, and its own fusion, where
                           * compiled functions do not write over what they are given */
} pst_loss;

/* Products of Transformer Engine's linears in fp8, by what a scale is for; each keeps its input in fp8,
 * in the one layout that its backward reads. */
typedef enum pst_fp8 {
    PST_FP8_NONE = 0,   /* products in the type of the weights */
    PST_FP8_TENSORWISE, /* a tensor: current or delayed scaling */
    PST_FP8_BLOCKWISE,  /* 128 elements, of a weight 128 x 128: 4 bytes */
    PST_FP8_MXFP8,      /* 32 elements: 1 byte */
} pst_fp8;

/* What GPUs with the same parameters divide among them, and who gathers it again. A unit is a layer. */
typedef enum pst_sharding {
    PST_SHARDING_NONE = 0, /* the optimizer, with distributed_optimizer */
    /* Megatron-FSDP: gradients too (optim_grads), weights too (optim_grads_params). What is in no unit
     * is gathered once and stays */
    PST_SHARDING_GRADIENTS,
    PST_SHARDING_WEIGHTS, /* optim_grads_params */
    /* PyTorch's FSDP2, where a unit is the embedding or the output matrix too: weights are gathered by
     * a forward and stay until the backward (ZeRO-2), or are gathered for each of them (ZeRO-3) */
    PST_SHARDING_TORCH_GRADIENTS,
    PST_SHARDING_TORCH_WEIGHTS, /* ZeRO-3 */
} pst_sharding;

/* How many rows an expert layer's buffers hold on a GPU. */
typedef enum pst_moe_rows {
    PST_MOE_BALANCED = 0, /* those of an even router */
    PST_MOE_CAPACITY,     /* capacity_num / capacity_den times as many, rounded down */
    PST_MOE_WORST,        /* the most that any router can send: none is dropped */
    PST_MOE_PAGED,        /* balanced, in pages; the layer at work has buffers of the capacity.
                           * Not allowed with recompute_layers, which leaves nothing to page */
} pst_moe_rows;

/* How tokens reach their experts. */
typedef enum pst_dispatcher {
    PST_DISPATCHER_ALLTOALL = 0, /* a row for each of a token's experts */
    /* DeepEP, HybridEP: a token once for each GPU that has experts of its own; between nodes once for
     * each node, whose GPUs hand it on */
    PST_DISPATCHER_FLEX
} pst_dispatcher;

/* What the backward pass computes anew instead of saving it; bits can be combined. */
#define PST_RECOMPUTE_GATHER 1u     /* with sequence_parallel: gathers inputs again */
#define PST_RECOMPUTE_NORM 2u       /* outputs of the layer's two norms */
#define PST_RECOMPUTE_ACTIVATION 4u /* every activation function */
#define PST_RECOMPUTE_ATTENTION 8u  /* scores and softmax */
#define PST_RECOMPUTE_EXPERTS 16u   /* that of routed experts */
#define PST_RECOMPUTE_MLP 32u       /* a dense block, of its input */
#define PST_RECOMPUTE_MOE 64u       /* router and experts, of their input; not with PST_MOE_PAGED */
#define PST_RECOMPUTE_SHARED 128u   /* shared experts, of theirs */
#define PST_RECOMPUTE_LATENT 256u   /* queries, keys and values, of latent attention's latents */
#define PST_RECOMPUTE_ALL 511u      /* all of the above */

/* Tensors that go to host memory in the forward and come back in the backward: what parts of a layer save
 * of their input (Megatron-LM's offload_modules); bits can be combined. Of at least 2^20 elements each. A
 * norm that is part of the matrix behind it, as all are but the first of latent attention and the second
 * of a layer with experts, goes with that matrix. */
#define PST_OFFLOAD_ATTENTION_NORM 1u /* attn_norm */
#define PST_OFFLOAD_QKV 2u            /* qkv_linear */
#define PST_OFFLOAD_CORE 4u           /* core_attn */
#define PST_OFFLOAD_PROJ 8u           /* attn_proj; only with PST_OFFLOAD_CORE */
#define PST_OFFLOAD_MLP_NORM 16u      /* mlp_norm */
#define PST_OFFLOAD_EXPERT_FC1 32u    /* expert_fc1; this and the next two not with PST_MOE_PAGED */
#define PST_OFFLOAD_ACTIVATION 64u    /* moe_act: of routed experts */
#define PST_OFFLOAD_EXPERTS 128u      /* fused_group_mlp: all that routed experts save */
#define PST_OFFLOAD_ALL 255u          /* all of the above */

/* Zero means none, off or absent, unless the field says what else. */
typedef struct pst_estimate_config {
    size_t struct_size;

    /* the model */
    uint64_t num_layers;
    uint64_t hidden_size;       /* elements of a token between layers */
    uint64_t num_heads;         /* of queries */
    uint64_t num_kv_heads;      /* a multiple of tensor_parallel, or divides it; 0: num_heads */
    uint64_t head_size;         /* 0: hidden_size / num_heads */
    uint64_t ffn_size;          /* of dense layers; may be 0 where there are none */
    uint64_t vocab_size;        /* words, not padded */
    uint64_t vocab_multiple;    /* the vocabulary is padded to this times tensor_parallel; 0: 128 */
    uint64_t padded_vocab_size; /* 0: by vocab_multiple */
    uint64_t max_positions;     /* learned ones */
    pst_norm norm;              /* default: LayerNorm */
    pst_qk_norm qk_norm;        /* default: none */
    bool is_gated;              /* SwiGLU: two input matrices */
    bool has_linear_bias; /* also adds expert biases; requires expert_tensor_parallel 1. Of latent
                           * attention's matrices only the last one gets a bias */
    bool has_qkv_bias;    /* of queries, keys and values; has_linear_bias has these, too */
    bool is_tied;         /* one matrix for embedding and output */

    /* multi-latent attention, where kv_rank is not 0 */
    uint64_t q_rank;           /* 0: queries have no latent */
    uint64_t kv_rank;          /* width of the latent of keys and values */
    uint64_t qk_size;          /* per head, without positions */
    uint64_t qk_position_size; /* per head, with positions */
    uint64_t v_size;           /* per head */

    /* experts, where num_experts is not 0 */
    uint64_t num_experts;
    uint64_t experts_per_token; /* routed ones */
    uint64_t expert_ffn_size;   /* of one routed expert */
    uint64_t shared_ffn_size;   /* of all shared experts together; 0: none */
    bool has_shared_gate;       /* a gate for the shared experts */
    bool has_router_bias;       /* one word for each expert */
    /* width of a token on its way to the experts, between a projection down and one up; 0: no such
     * projections, hidden_size */
    uint64_t latent_size;
    /* depths of multi-token prediction, on the last stage: each with a layer of the last layer's
     * kind, three norms, a projection of embedding and hidden state to the hidden size, and a loss.
     * They share the output matrix and the embedding, of which the last stage has a copy unless
     * it is also the first */
    uint64_t mtp_layers;
    const bool *is_moe; /* num_layers flags; NULL: every layer if there are experts */

    /* the split; 0: 1, unless the field says what else */
    uint64_t world_size;
    uint64_t tensor_parallel;        /* GPUs that share a layer's matrices */
    uint64_t pipeline_parallel;      /* stages */
    uint64_t virtual_stages;         /* chunks of layers per GPU */
    uint64_t context_parallel;       /* GPUs that share a sequence */
    uint64_t expert_parallel;        /* GPUs that share a layer's experts */
    uint64_t expert_tensor_parallel; /* 0: tensor_parallel */
    bool sequence_parallel;          /* norms and dropouts are split over tensor_parallel, too */
    bool distributed_optimizer;      /* sharded over the GPUs with the same parameters */
    bool
        overlaps_exchange; /* with virtual_stages above 1: experts' exchanges hide behind other work.
                             * Of memory it changes nothing: one more forward comes before the first
                             * backward, but each later one runs while a backward frees as much */
    /* pipeline_parallel * virtual_stages counts of layers in the order of the model: chunk j of
     * stage r is entry j * pipeline_parallel + r. NULL: as many in each */
    const uint64_t *chunk_layers;
    /* with virtual_stages above 1: micro-batches that a chunk runs before the next chunk has its
     * turn, at least pipeline_parallel; 0: pipeline_parallel */
    uint64_t micro_batch_group_size;

    /* the batch */
    uint64_t sequence_size;
    uint64_t micro_batch;              /* 0: 1 */
    uint64_t global_batch;             /* sequences */
    pst_train_type type;               /* default: bf16 */
    uint64_t gradient_width;           /* bytes per parameter, kept and reduced; 0: by type */
    uint64_t optimizer_width;          /* the same of masters and moments; 0: by type */
    uint64_t offload_num, offload_den; /* share of the optimizer in host memory; 0/0: none */

    /* what layers save */
    uint32_t recompute; /* PST_RECOMPUTE_ bits */
    /* full recomputation: of every so many layers of a chunk only the first one's input is saved */
    uint64_t recompute_layers;
    bool has_flash_attention;   /* neither scores nor softmax are saved */
    bool has_hidden_dropout;    /* masks behind attention and MLP, and behind the embedding */
    bool has_attention_dropout; /* a mask of the scores */
    bool fuses_activation;      /* a gated activation saves nothing in between */
    bool copies_attention;      /* its output twice: a contiguous copy too */
    pst_loss loss;              /* default: unfused */
    bool saves_inputs_fp8;      /* of the activation function */
    bool applies_probs_late;    /* the router's probabilities: where tokens return, not before */
    /* the capacity is that of each expert for the tokens of each GPU, rounded up, instead of that
     * of a GPU as a whole, rounded down; padding rows are sent too */
    bool caps_each_expert;
    pst_moe_rows moe_rows;               /* default: balanced */
    uint64_t capacity_num, capacity_den; /* 0: 1 */
    uint64_t row_multiple;               /* capacity rows are rounded up to it; 0: 1 */
    uint64_t page_rows;                  /* of a page that holds rows; 0: 64 */
    uint64_t page_bytes;                 /* of a pst_pool; 0: 256 KiB */
    uint64_t headroom_num, headroom_den; /* pages for so many times the balanced rows; 0/0: 11/10 */
    /* with PST_MOE_PAGED: the experts' gated activation writes its input into pages as it computes, and
     * its backward reads it there (glu.h), so that no buffer is restored for it. Needs is_gated,
     * fuses_activation and no saves_inputs_fp8 */
    bool pages_glu;
    /* as Transformer Engine with fused accumulation of gradients: an empty gradient of each shape of a
     * layer's weights is kept, to be handed to autograd in the place of those that were added to the
     * kept ones */
    bool keeps_empty_gradients;
    /* recompute_layers is how many layers of a chunk, from its first, are run again one by one;
     * nothing of the others is, nor of multi-token prediction */
    bool recomputes_block;
    /* with fp8: the weights of its linears are kept in fp8 alone, and not in fp8 beside their own type */
    bool keeps_fp8_weights;
    /* with PST_FP8_TENSORWISE, on GPUs that multiply matrices in either layout (Blackwell): weights are
     * kept in one layout, and not transposed besides */
    bool keeps_one_layout;
    /* Megatron-FSDP's fsdp_double_buffer: weights and gradients of two units at a time, always there */
    bool doubles_buffers;
    /* Transformer Engine's, of 32 MiB + 1 KiB on Hopper and later: for products, and four more for
     * those of experts */
    bool keeps_workspaces;
    uint8_t padding[1];    /* 0 */
    pst_fp8 fp8;           /* default: none */
    pst_sharding sharding; /* default: none */
    /* of Megatron-FSDP without doubles_buffers: parameters whose gradients may be on their way, and
     * twice those that are gathered ahead; 0: 10^9, or twice a layer's, which is more */
    uint64_t communication_unit;
    uint32_t offload_modules;   /* PST_OFFLOAD_ bits */
    pst_dispatcher dispatcher;  /* default: all-to-all. Changes transfers alone */
    uint64_t router_groups;     /* of neighbouring experts, of as many each */
    uint64_t router_group_topk; /* of these groups, for all of a token's experts; 0: of any */
} pst_estimate_config;

#define PST_ESTIMATE_CONFIG_INIT PST_INIT(pst_estimate_config)

/* Why a config is refused. */
typedef struct pst_estimate_fault {
    char field[48]; /* the member at fault, as "num_heads"; empty: none, or no member alone is */
    /* one sentence, with members in braces and their values behind them, as "{num_heads} 16: must be a
     * multiple of {tensor_parallel} 3"; empty where field is */
    char reason[256];
} pst_estimate_fault;

#endif
