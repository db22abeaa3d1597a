/* The flags that an estimate is made of, and what the files share that read them. */
#ifndef PAGESTASH_TOOL_ESTIMATE_FLAGS_H
#define PAGESTASH_TOOL_ESTIMATE_FLAGS_H

#include "tools/estimate/estimate.h"

#include <jansson.h>

typedef enum estimate_kind {
    ESTIMATE_SWITCH,
    ESTIMATE_COUNT,    /* an integer from 0 */
    ESTIMATE_POSITIVE, /* from 1 */
    ESTIMATE_DECIMAL,  /* 1.25, exactly */
    ESTIMATE_RATIO,    /* likewise, of terms that the library takes */
    ESTIMATE_SIZE,     /* bytes, with KiB, MiB, GiB */
    ESTIMATE_CHOICE,   /* `argument` lists the alternatives */
    ESTIMATE_TEXT,
    ESTIMATE_WORDS, /* any number of values */
} estimate_kind;

/* Flags that count, in the order of the help: identifier, group, name, kind, argument, help. */
#define ESTIMATE_FLAGS(F)                                                                          \
    F(PRESET, MODEL, "preset", TEXT, "NAME", "a published model; other flags change it")           \
    F(HF_CONFIG, MODEL, "hf-config", TEXT, "FILE", "a Hugging Face config.json, likewise")         \
    F(NUM_LAYERS, MODEL, "num-layers", POSITIVE, "N", "")                                          \
    F(HIDDEN_SIZE, MODEL, "hidden-size", POSITIVE, "N", "")                                        \
    F(NUM_ATTENTION_HEADS, MODEL, "num-attention-heads", POSITIVE, "N", "")                        \
    F(GROUP_QUERY_ATTENTION, MODEL, "group-query-attention", SWITCH, NULL,                         \
      "with --num-query-groups")                                                                   \
    F(NUM_QUERY_GROUPS, MODEL, "num-query-groups", POSITIVE, "N", "(as many as heads)")            \
    F(KV_CHANNELS, MODEL, "kv-channels", POSITIVE, "N", "of a head (hidden size / heads)")         \
    F(FFN_HIDDEN_SIZE, MODEL, "ffn-hidden-size", POSITIVE, "N",                                    \
      "(4 * hidden size; with --swiglu 8/3 of it, down to a multiple of 64)")                      \
    F(SEQ_LENGTH, MODEL, "seq-length", POSITIVE, "N", "(the model's, at most 4096)")               \
    F(MAX_POSITION_EMBEDDINGS, MODEL, "max-position-embeddings", POSITIVE, "N", "(seq-length)")    \
    F(POSITION_EMBEDDING_TYPE, MODEL, "position-embedding-type", CHOICE,                           \
      "learned_absolute|rope|yarn|mrope|relative|none", "(learned_absolute)")                      \
    F(NO_POSITION_EMBEDDING, MODEL, "no-position-embedding", SWITCH, NULL, "as none")              \
    F(USE_ROTARY_POSITION_EMBEDDINGS, MODEL, "use-rotary-position-embeddings", SWITCH, NULL,       \
      "as rope")                                                                                   \
    F(NORMALIZATION, MODEL, "normalization", CHOICE, "LayerNorm|RMSNorm", "(LayerNorm)")           \
    F(SWIGLU, MODEL, "swiglu", SWITCH, NULL, "a gated activation")                                 \
    F(QUICK_GEGLU, MODEL, "quick-geglu", SWITCH, NULL, "another")                                  \
    F(DISABLE_BIAS_LINEAR, MODEL, "disable-bias-linear", SWITCH, NULL, "")                         \
    F(ADD_QKV_BIAS, MODEL, "add-qkv-bias", SWITCH, NULL, "")                                       \
    F(QK_LAYERNORM, MODEL, "qk-layernorm", SWITCH, NULL, "as --qk-norm head")                      \
    F(QK_NORM, MODEL, "qk-norm", CHOICE, "none|head|projection", "norms of queries and keys")      \
    F(UNTIE, MODEL, "untie-embeddings-and-output-weights", SWITCH, NULL, "")                       \
    F(VOCAB_SIZE, MODEL, "vocab-size", POSITIVE, "N", "")                                          \
    F(PADDED_VOCAB_SIZE, MODEL, "padded-vocab-size", POSITIVE, "N", "")                            \
    F(VOCAB_FILE, MODEL, "vocab-file", TEXT, "FILE", "a JSON object; its keys are counted")        \
    F(TOKENIZER_TYPE, MODEL, "tokenizer-type", TEXT, "NAME", "a vocabulary where none is given")   \
    F(MAKE_VOCAB_SIZE_DIVISIBLE_BY, MODEL, "make-vocab-size-divisible-by", POSITIVE, "N",          \
      "times the tensor parallel size (128)")                                                      \
    F(HIDDEN_DROPOUT, MODEL, "hidden-dropout", DECIMAL, "X", "only whether it is 0 counts (0.1)")  \
    F(ATTENTION_DROPOUT, MODEL, "attention-dropout", DECIMAL, "X", "(0.1)")                        \
    F(MULTI_LATENT_ATTENTION, MODEL, "multi-latent-attention", SWITCH, NULL, "")                   \
    F(Q_LORA_RANK, MODEL, "q-lora-rank", POSITIVE, "N", "(no latent of queries)")                  \
    F(KV_LORA_RANK, MODEL, "kv-lora-rank", POSITIVE, "N", "(32)")                                  \
    F(QK_HEAD_DIM, MODEL, "qk-head-dim", POSITIVE, "N", "(128)")                                   \
    F(QK_POS_EMB_HEAD_DIM, MODEL, "qk-pos-emb-head-dim", POSITIVE, "N", "(64)")                    \
    F(V_HEAD_DIM, MODEL, "v-head-dim", POSITIVE, "N", "(128)")                                     \
    F(NUM_EXPERTS, EXPERTS, "num-experts", COUNT, "N", "")                                         \
    F(MOE_ROUTER_TOPK, EXPERTS, "moe-router-topk", POSITIVE, "N", "(2)")                           \
    F(MOE_FFN_HIDDEN_SIZE, EXPERTS, "moe-ffn-hidden-size", POSITIVE, "N", "(ffn-hidden-size)")     \
    F(MOE_LAYER_FREQ, EXPERTS, "moe-layer-freq", TEXT, "N|LIST",                                   \
      "every Nth layer has experts, or as ([0]*3+[1]*58) (1)")                                     \
    F(MOE_SHARED_SIZE, EXPERTS, "moe-shared-expert-intermediate-size", POSITIVE, "N",              \
      "of all shared experts together")                                                            \
    F(MOE_SHARED_GATE, EXPERTS, "moe-shared-expert-gate", SWITCH, NULL, "")                        \
    F(MOE_ROUTER_ENABLE_EXPERT_BIAS, EXPERTS, "moe-router-enable-expert-bias", SWITCH, NULL, "")   \
    F(MOE_LATENT_SIZE, EXPERTS, "moe-latent-size", POSITIVE, "N", "of tokens at the experts")      \
    F(MTP_NUM_LAYERS, EXPERTS, "mtp-num-layers", COUNT, "N", "multi-token prediction (0)")         \
    F(MOE_EXPERT_CAPACITY_FACTOR, EXPERTS, "moe-expert-capacity-factor", RATIO, "X", "")           \
    F(MOE_PAD_TO_CAPACITY, EXPERTS, "moe-pad-expert-input-to-capacity", SWITCH, NULL, "")          \
    F(MOE_RANK_CAPACITY_FACTOR, EXPERTS, "moe-expert-rank-capacity-factor", RATIO, "X", "")        \
    F(MOE_TOKEN_DISPATCHER_TYPE, EXPERTS, "moe-token-dispatcher-type", CHOICE,                     \
      "allgather|alltoall|alltoall_seq|flex", "all count as alltoall")                             \
    F(OVERLAP_MOE_COMM, EXPERTS, "overlap-moe-expert-parallel-comm", SWITCH, NULL, "")             \
    F(MOE_PAGED_STASH, EXPERTS, "moe-paged-stash", SWITCH, NULL, "as --moe-buffer paged")          \
    F(MOE_PAGED_STASH_PAGE_SIZE, EXPERTS, "moe-paged-stash-page-size", POSITIVE, "N", "rows (64)") \
    F(MOE_PAGED_STASH_CUDA, EXPERTS, "moe-paged-stash-buffer-size-factor-cuda", RATIO, "X",        \
      "(1.1)")                                                                                     \
    F(MOE_BUFFER, EXPERTS, "moe-buffer", CHOICE, "balanced|capacity|worst|paged", "(balanced)")    \
    F(MOE_LOAD_CV, EXPERTS, "moe-load-cv", DECIMAL, "X", "imbalance: a coefficient of variation")  \
    F(ROUTING, EXPERTS, "routing", TEXT, "FILE", "imbalance: a routing trace")                     \
    F(PAGE_ROWS, EXPERTS, "page-rows", POSITIVE, "N", "as --moe-paged-stash-page-size")            \
    F(PAGE_BYTES, EXPERTS, "page-bytes", SIZE, "BYTES", "of a page of the pool (256KiB)")          \
    F(POOL_HEADROOM, EXPERTS, "pool-headroom", RATIO, "X",                                         \
      "pages for X balanced loads, as --moe-paged-stash-buffer-size-factor-cuda (1.1)")            \
    F(MOE_PROBS, EXPERTS, "moe-probs", CHOICE, "act|unpermute", "where they are applied (act)")    \
    F(TENSOR, PARALLEL, "tensor-model-parallel-size", POSITIVE, "N", "(1)")                        \
    F(PIPELINE, PARALLEL, "pipeline-model-parallel-size", POSITIVE, "N", "(1)")                    \
    F(CONTEXT, PARALLEL, "context-parallel-size", POSITIVE, "N", "(1)")                            \
    F(EXPERT, PARALLEL, "expert-model-parallel-size", POSITIVE, "N", "(1)")                        \
    F(EXPERT_TENSOR, PARALLEL, "expert-tensor-parallel-size", POSITIVE, "N",                       \
      "(tensor-model-parallel-size)")                                                              \
    F(SEQUENCE_PARALLEL, PARALLEL, "sequence-parallel", SWITCH, NULL, "")                          \
    F(USE_DISTRIBUTED_OPTIMIZER, PARALLEL, "use-distributed-optimizer", SWITCH, NULL, "")          \
    F(LAYERS_PER_VIRTUAL, PARALLEL, "num-layers-per-virtual-pipeline-stage", POSITIVE, "N", "")    \
    F(VIRTUAL_STAGES, PARALLEL, "num-virtual-stages-per-pipeline-rank", POSITIVE, "N", "(1)")      \
    F(INTERLEAVE_GROUP, PARALLEL, "microbatch-group-size-per-virtual-pipeline-stage", POSITIVE,    \
      "N", "(pipeline-model-parallel-size)")                                                       \
    F(FIRST_LAYERS, PARALLEL, "decoder-first-pipeline-num-layers", POSITIVE, "N", "")              \
    F(LAST_LAYERS, PARALLEL, "decoder-last-pipeline-num-layers", POSITIVE, "N", "")                \
    F(LAYOUT, PARALLEL, "pipeline-model-parallel-layout", TEXT, "STAGES", "as Et*3|(tt|)*29,m|L")  \
    F(ACCOUNT_EMBEDDING, PARALLEL, "account-for-embedding-in-pipeline-split", SWITCH, NULL, "")    \
    F(ACCOUNT_LOSS, PARALLEL, "account-for-loss-in-pipeline-split", SWITCH, NULL, "")              \
    F(WORLD_SIZE, PARALLEL, "world-size", POSITIVE, "N", "GPUs (nproc-per-node * nnodes)")         \
    F(NPROC_PER_NODE, PARALLEL, "nproc-per-node", POSITIVE, "N", "")                               \
    F(NNODES, PARALLEL, "nnodes", POSITIVE, "N", "(1)")                                            \
    F(GPUS_PER_NODE, PARALLEL, "gpus-per-node", POSITIVE, "N", "(nproc-per-node, or 8)")           \
    F(MICRO_BATCH_SIZE, TRAINING, "micro-batch-size", POSITIVE, "N", "(1)")                        \
    F(GLOBAL_BATCH_SIZE, TRAINING, "global-batch-size", POSITIVE, "N", "(one micro-batch each)")   \
    F(BF16, TRAINING, "bf16", SWITCH, NULL, "")                                                    \
    F(FP16, TRAINING, "fp16", SWITCH, NULL, "")                                                    \
    F(FP32, TRAINING, "fp32", SWITCH, NULL, "neither (with a preset or config.json bf16)")         \
    F(OPTIMIZER, TRAINING, "optimizer", TEXT, "NAME", "adam, sgd or lion (adam)")                  \
    F(GRAD_REDUCE_IN_BF16, TRAINING, "grad-reduce-in-bf16", SWITCH, NULL, "")                      \
    F(ACCUMULATE_IN_FP32, TRAINING, "accumulate-allreduce-grads-in-fp32", SWITCH, NULL, "")        \
    F(PRECISION_AWARE, TRAINING, "use-precision-aware-optimizer", SWITCH, NULL, "with these:")     \
    F(MAIN_GRADS_DTYPE, TRAINING, "main-grads-dtype", CHOICE, "fp32|bf16", "(fp32)")               \
    F(MAIN_PARAMS_DTYPE, TRAINING, "main-params-dtype", CHOICE, "fp32|fp16", "(fp32)")             \
    F(EXP_AVG_DTYPE, TRAINING, "exp-avg-dtype", CHOICE, "fp32|fp16|bf16|fp8", "(fp32)")            \
    F(EXP_AVG_SQ_DTYPE, TRAINING, "exp-avg-sq-dtype", CHOICE, "fp32|fp16|bf16|fp8", "(fp32)")      \
    F(OPTIMIZER_CPU_OFFLOAD, TRAINING, "optimizer-cpu-offload", SWITCH, NULL, "")                  \
    F(OPTIMIZER_OFFLOAD_FRACTION, TRAINING, "optimizer-offload-fraction", RATIO, "X", "(1.0)")     \
    F(TRANSFORMER_IMPL, MEMORY, "transformer-impl", CHOICE,                                        \
      "local|transformer_engine|inference_optimized", "local: no flash attention by itself")       \
    F(ATTENTION_BACKEND, MEMORY, "attention-backend", CHOICE, "flash|fused|unfused|local|auto",    \
      "unfused, local: scores are saved (auto)")                                                   \
    F(USE_FLASH_ATTN, MEMORY, "use-flash-attn", SWITCH, NULL, "")                                  \
    F(RECOMPUTE_ACTIVATIONS, MEMORY, "recompute-activations", SWITCH, NULL, "selective")           \
    F(RECOMPUTE_GRANULARITY, MEMORY, "recompute-granularity", CHOICE, "full|selective", "")        \
    F(RECOMPUTE_METHOD, MEMORY, "recompute-method", CHOICE, "uniform|block", "(uniform)")          \
    F(RECOMPUTE_NUM_LAYERS, MEMORY, "recompute-num-layers", POSITIVE, "N", "(1)")                  \
    F(RECOMPUTE_MODULES, MEMORY, "recompute-modules", WORDS, "NAME...",                            \
      "core_attn, moe_act, layernorm (core_attn)")                                                 \
    F(TP_RECOMPUTE_ALLGATHER, MEMORY, "tp-recompute-allgather", CHOICE, "0|1",                     \
      "gathers inputs again in the backward pass (1)")                                             \
    F(RECOMPUTE_ACTIVATION_FUNCTION, MEMORY, "recompute-activation-function", SWITCH, NULL,        \
      "of every feed-forward block, not of experts alone")                                         \
    F(NO_BIAS_SWIGLU_FUSION, MEMORY, "no-bias-swiglu-fusion", SWITCH, NULL, "")                    \
    F(FP8_INPUT_STORE, MEMORY, "activation-func-fp8-input-store", SWITCH, NULL, "")                \
    F(NO_LOADER_MASK, MEMORY, "no-create-attention-mask-in-dataloader", SWITCH, NULL,              \
      "as is assumed")                                                                             \
    F(CROSS_ENTROPY_LOSS_FUSION, MEMORY, "cross-entropy-loss-fusion", SWITCH, NULL, "")            \
    F(GPU_MEMORY_GIB, OUTPUT, "gpu-memory-gib", DECIMAL, "X", "of one GPU (80)")                   \
    F(OVERHEAD_GIB, OUTPUT, "overhead-gib", DECIMAL, "X", "CUDA context, NCCL (0)")                \
    F(NUM_SMS, OUTPUT, "num-sms", POSITIVE, "N", "of one GPU (132)")                               \
    F(JSON, OUTPUT, "json", SWITCH, NULL, "print JSON instead of text")                            \
    F(MEMBERS, OUTPUT, "members", SWITCH, NULL, "list the members of every group")                 \
    F(FIT, OUTPUT, "fit", SWITCH, NULL, "does it fit (0) or not (1)? and what would")              \
    F(SEARCH, OUTPUT, "search", SWITCH, NULL, "every way to split, by margin and traffic")         \
    F(TIMELINE, OUTPUT, "timeline", COUNT, "STAGE", "bytes after every event, as CSV")             \
    F(HTML, OUTPUT, "html", TEXT, "FILE", "write a picture of a stage's memory, a web page")       \
    F(COMPAT, OUTPUT, "compat", CHOICE, "pr482", "the report of a tool of 2023, as it was")        \
    F(COMPAT_LOGIT_BYTES, OUTPUT, "compat-logit-bytes", CHOICE, "9|10", "in that report (10)")     \
    F(STRICT, OUTPUT, "strict", SWITCH, NULL, "unknown flags, and flags given twice, are errors")  \
    F(HELP, OUTPUT, "help", SWITCH, NULL, "this text")

#define ESTIMATE_NAME(id, group, name, kind, argument, help) ESTIMATE_F_##id,
typedef enum estimate_flag { ESTIMATE_FLAGS(ESTIMATE_NAME) ESTIMATE_NUM_FLAGS } estimate_flag;
#undef ESTIMATE_NAME

typedef enum estimate_flag_group {
    ESTIMATE_MODEL,
    ESTIMATE_EXPERTS,
    ESTIMATE_PARALLEL,
    ESTIMATE_TRAINING,
    ESTIMATE_MEMORY,
    ESTIMATE_OUTPUT,
    ESTIMATE_NUM_GROUPS,
} estimate_flag_group;

typedef struct estimate_flag_entry {
    const char *name, *argument, *help;
    estimate_flag_group group;
    estimate_kind kind;
} estimate_flag_entry;

extern const estimate_flag_entry estimate_flag_table[ESTIMATE_NUM_FLAGS];

/* What a flag was given. value: NULL where it was not; "" of a switch. */
typedef struct estimate_given {
    const char *value;
    char **more; /* of ESTIMATE_WORDS, the rest */
    int num_more;
} estimate_given;

typedef struct estimate_line {
    estimate_given flags[ESTIMATE_NUM_FLAGS];
    const json_t *file; /* the model's object in the config.json, or NULL */
} estimate_line;

static inline bool estimate_has(const estimate_line *line, estimate_flag id)
{
    return line->flags[id].value != NULL;
}

static inline const char *estimate_text(const estimate_line *line, estimate_flag id)
{
    return line->flags[id].value;
}

/* Each leaves *out alone where the flag was not given. The value was checked when it was read. */
void estimate_take_number(const estimate_line *line, estimate_flag id, uint64_t *out);
void estimate_take_decimal(const estimate_line *line, estimate_flag id, uint64_t *num_out,
                           uint64_t *den_out);
/* The index of the alternative; fallback where the flag was not given. */
int estimate_choice(const estimate_line *line, estimate_flag id, int fallback);

/* Digits, perhaps a point, at most 18 of them: in lowest terms. False for anything else. */
bool estimate_decimal(const char *text, uint64_t *num_out, uint64_t *den_out);

/* estimate_known.c: flags of Megatron-LM that do not count here. */
typedef enum estimate_effect {
    ESTIMATE_UNKNOWN,
    ESTIMATE_HARMLESS,
    ESTIMATE_CHANGES_MEMORY,
} estimate_effect;

typedef struct estimate_known {
    estimate_effect effect;
    int arity; /* 0 or 1; 2: any number */
    int index; /* of its own */
} estimate_known;

estimate_known estimate_find_known(const char *name);
int estimate_num_known(void);

void estimate_free_notes(estimate_notes *notes);

/* estimate_read.c: fills line, and the notes and modes of options that need no model. */
int estimate_read_line(int argc, char **argv, estimate_line *line, estimate_options *options);

/* What a model is before flags say otherwise. */
typedef struct estimate_model {
    pst_estimate_config config; /* is_moe is the caller's to free */
    const char *source;         /* NULL: Megatron's defaults */
    uint64_t max_positions;     /* the most the model was made for; 0: not known */
    uint64_t mtp_layers;        /* there are as published, counted only if asked for */
} estimate_model;

/* estimate_presets.c */
int estimate_preset(const char *name, estimate_model *model_out);

/* estimate_hf.c: of the line's file. Notes go to the options. model_out may own is_moe whatever
 * happened. */
int estimate_hf(const estimate_line *line, estimate_options *options, estimate_model *model_out);
#define ESTIMATE_HF_BYTES ((size_t)1 << 20)

/* estimate_layout.c: entries for num_layers layers, the caller's; NULL if all have experts. */
int estimate_moe_layers(const char *text, uint64_t num_layers, bool **is_moe_out);
/* estimate_chunks.c: layers of every chunk, and how many chunks a stage has; NULL if all have as
 * many. */
int estimate_chunks(const estimate_line *line, estimate_options *options);

/* estimate_resolve.c: the configuration, and the assumptions that it took. */
int estimate_resolve(const estimate_line *line, estimate_options *options);

/* estimate_model.c: what the flags say of the model, into the config. */
int estimate_take_model(const estimate_line *line, estimate_options *options);

/* estimate_buffers.c: of experts, into the config of a known model. */
int estimate_take_buffers(const estimate_line *line, estimate_options *options);

/* estimate_words.c: the message names fields of the configuration, and is printed with the names of
 * flags for them, or those of the config.json. TOOL_INPUT if what it says is of that file alone,
 * else TOOL_USAGE. */
int estimate_refuse(const estimate_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* estimate_file.c: an object, no key twice, of at most max_bytes; the caller's. TOOL_INPUT. */
int estimate_load_json(const char *path, size_t max_bytes, json_t **root_out);
int estimate_parse_json(const char *name, const char *text, size_t bytes, json_t **root_out);
/* Keys of a vocabulary. */
int estimate_count_words(const char *path, uint64_t *words_out);

#endif
