/* Two tables: the flags of an estimate, and the fields of pst_estimate_config. Reading a launch
 * line, the help, messages, the report, its JSON and the tests go by them. */
#ifndef PAGESTASH_TOOL_ESTIMATE_FIELDS_H
#define PAGESTASH_TOOL_ESTIMATE_FIELDS_H

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
    F(QUICK_GEGLU, MODEL, "quick-geglu", SWITCH, NULL, "quick-GELU gated activation")              \
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
    F(MOE_PAGED_GLU, EXPERTS, "moe-paged-glu", SWITCH, NULL,                                       \
      "paged: a gated activation writes its input into pages")                                     \
    F(MOE_LOAD_CV, EXPERTS, "moe-load-cv", DECIMAL, "X", "imbalance: a coefficient of variation")  \
    F(ROUTING, EXPERTS, "routing", TEXT, "FILE", "imbalance: a routing trace")                     \
    F(PAGE_ROWS, EXPERTS, "page-rows", POSITIVE, "N", "as --moe-paged-stash-page-size")            \
    F(PAGE_SIZE, EXPERTS, "page-size", SIZE, "BYTES", "of a page of the pool (256KiB)")            \
    F(HEADROOM, EXPERTS, "headroom", RATIO, "X",                                                   \
      "times the pages of an even routing, as --moe-paged-stash-buffer-size-factor-cuda (1.1)")    \
    F(MOE_PROBS, EXPERTS, "moe-probs", CHOICE, "act|unpermute", "where they are applied (act)")    \
    F(TENSOR, PARALLEL, "tensor-model-parallel-size", POSITIVE, "N", "(1)")                        \
    F(PIPELINE, PARALLEL, "pipeline-model-parallel-size", POSITIVE, "N", "(1)")                    \
    F(CONTEXT, PARALLEL, "context-parallel-size", POSITIVE, "N", "(1)")                            \
    F(CP_COMM_TYPE, PARALLEL, "cp-comm-type", WORDS, "NAME...",                                    \
      "a2a: attention's output is saved twice (p2p)")                                              \
    F(EXPERT, PARALLEL, "expert-model-parallel-size", POSITIVE, "N", "(1)")                        \
    F(EXPERT_TENSOR, PARALLEL, "expert-tensor-parallel-size", POSITIVE, "N",                       \
      "(tensor-model-parallel-size)")                                                              \
    F(SEQUENCE_PARALLEL, PARALLEL, "sequence-parallel", SWITCH, NULL, "")                          \
    F(USE_DISTRIBUTED_OPTIMIZER, PARALLEL, "use-distributed-optimizer", SWITCH, NULL, "")          \
    F(LAYERS_PER_VIRTUAL, PARALLEL, "num-layers-per-virtual-pipeline-stage", POSITIVE, "N", "")    \
    F(VIRTUAL_STAGES, PARALLEL, "num-virtual-stages-per-pipeline-rank", POSITIVE, "N", "(1)")      \
    F(MICRO_BATCH_GROUP_SIZE, PARALLEL, "microbatch-group-size-per-virtual-pipeline-stage",        \
      POSITIVE, "N", "(pipeline-model-parallel-size)")                                             \
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
    F(GLOBAL_BATCH_SIZE, TRAINING, "global-batch-size", POSITIVE, "N",                             \
      "(a micro-batch for each stage)")                                                            \
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
    F(NO_GRADIENT_FUSION, MEMORY, "no-gradient-accumulation-fusion", SWITCH, NULL,                 \
      "else Transformer Engine keeps an empty gradient of each shape of weights")                  \
    F(ATTENTION_BACKEND, MEMORY, "attention-backend", CHOICE, "flash|fused|unfused|local|auto",    \
      "unfused, local: scores are saved (auto)")                                                   \
    F(USE_FLASH_ATTN, MEMORY, "use-flash-attn", SWITCH, NULL, "")                                  \
    F(RECOMPUTE_ACTIVATIONS, MEMORY, "recompute-activations", SWITCH, NULL, "selective")           \
    F(RECOMPUTE_GRANULARITY, MEMORY, "recompute-granularity", CHOICE, "full|selective", "")        \
    F(RECOMPUTE_METHOD, MEMORY, "recompute-method", CHOICE, "uniform|block", "(uniform)")          \
    F(RECOMPUTE_NUM_LAYERS, MEMORY, "recompute-num-layers", COUNT, "N", "(1); 0 with block: none") \
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
    F(GPU_MEMORY, OUTPUT, "gpu-memory", SIZE, "BYTES", "of one GPU (80GiB)")                       \
    F(OVERHEAD, OUTPUT, "overhead", BYTES, "BYTES", "CUDA context, NCCL (0)")                      \
    F(NUM_SMS, OUTPUT, "num-sms", POSITIVE, "N", "of one GPU (132)")                               \
    F(JSON, OUTPUT, "json", JSON, "FILE", "the report as JSON, in FILE, or on stdout")             \
    F(MEMBERS, OUTPUT, "members", SWITCH, NULL, "list the members of every group")                 \
    F(FIT, OUTPUT, "fit", SWITCH, NULL, "does it fit (0) or not (1)? and what would")              \
    F(SEARCH, OUTPUT, "search", SWITCH, NULL, "every way to split, by margin and traffic")         \
    F(TIMELINE, OUTPUT, "timeline", COUNT, "STAGE", "bytes after every event, as CSV")             \
    F(HTML, OUTPUT, "html", TEXT, "FILE", "write a picture of a stage's memory, a web page")       \
    F(COMPAT, OUTPUT, "compat", CHOICE, "pr482", "the report of a tool of 2023, as it was")        \
    F(COMPAT_LOGIT_BYTES, OUTPUT, "compat-logit-bytes", CHOICE, "9|10", "in that report (10)")     \
    F(STRICT, OUTPUT, "strict", SWITCH, NULL, "unknown flags, and flags given twice, are errors")

/* Fields of pst_estimate_config, in the order of the report: group, kind, member, flag, what the
 * flag does, words.
 *   TAKE sets the field to the flag's value, or to true; TAKE_OFF to false; with OWN a function of
 *   estimate_resolve.c and the files beside it reads the flag. NONE: no one flag is the field's.
 *   words: of CHOICE and BITS the values as reports name them; else names in a config.json, of
 *   which messages show the first that is there. */
#define ESTIMATE_FIELDS(F)                                                              \
    F(MODEL, WHOLE, num_layers, NUM_LAYERS, TAKE, "num_hidden_layers|n_layer")          \
    F(MODEL, WHOLE, hidden_size, HIDDEN_SIZE, TAKE, "hidden_size|n_embd")               \
    F(MODEL, WHOLE, num_heads, NUM_ATTENTION_HEADS, TAKE, "num_attention_heads|n_head") \
    F(MODEL, WHOLE, num_kv_heads, NUM_QUERY_GROUPS, OWN, "num_key_value_heads")         \
    F(MODEL, WHOLE, head_size, KV_CHANNELS, TAKE, "head_dim")                           \
    F(MODEL, WHOLE, ffn_size, FFN_HIDDEN_SIZE, OWN, "intermediate_size|n_inner")        \
    F(MODEL, WHOLE, vocab_size, VOCAB_SIZE, TAKE, "vocab_size")                         \
    F(MODEL, WHOLE, padded_vocab_size, PADDED_VOCAB_SIZE, TAKE, NULL)                   \
    F(MODEL, WHOLE, vocab_multiple, MAKE_VOCAB_SIZE_DIVISIBLE_BY, TAKE, NULL)           \
    F(MODEL, WHOLE, max_positions, MAX_POSITION_EMBEDDINGS, OWN, "n_positions")         \
    F(MODEL, CHOICE, norm, NORMALIZATION, TAKE, "layer|rms")                            \
    F(MODEL, CHOICE, qk_norm, QK_NORM, OWN, "none|head|projection")                     \
    F(MODEL, SWITCH, is_gated, SWIGLU, TAKE, NULL)                                      \
    F(MODEL, SWITCH, has_linear_bias, DISABLE_BIAS_LINEAR, TAKE_OFF, NULL)              \
    F(MODEL, SWITCH, has_qkv_bias, ADD_QKV_BIAS, TAKE, "attention_bias")                \
    F(MODEL, SWITCH, is_tied, UNTIE, TAKE_OFF, NULL)                                    \
    F(MODEL, WHOLE, mtp_layers, MTP_NUM_LAYERS, TAKE, NULL)                             \
    F(LATENTS, WHOLE, q_rank, Q_LORA_RANK, TAKE, "q_lora_rank")                         \
    F(LATENTS, WHOLE, kv_rank, KV_LORA_RANK, TAKE, "kv_lora_rank")                      \
    F(LATENTS, WHOLE, qk_size, QK_HEAD_DIM, TAKE, "qk_nope_head_dim")                   \
    F(LATENTS, WHOLE, qk_position_size, QK_POS_EMB_HEAD_DIM, TAKE, "qk_rope_head_dim")  \
    F(LATENTS, WHOLE, v_size, V_HEAD_DIM, TAKE, "v_head_dim")                           \
    F(EXPERTS, WHOLE, num_experts, NUM_EXPERTS, OWN,                                    \
      "num_local_experts|num_experts|n_routed_experts")                                 \
    F(EXPERTS, WHOLE, experts_per_token, MOE_ROUTER_TOPK, TAKE, "num_experts_per_tok")  \
    F(EXPERTS, WHOLE, expert_ffn_size, MOE_FFN_HIDDEN_SIZE, TAKE,                       \
      "moe_intermediate_size|intermediate_size")                                        \
    F(EXPERTS, WHOLE, shared_ffn_size, MOE_SHARED_SIZE, TAKE,                           \
      "shared_expert_intermediate_size|n_shared_experts")                               \
    F(EXPERTS, SWITCH, has_shared_gate, MOE_SHARED_GATE, TAKE, NULL)                    \
    F(EXPERTS, SWITCH, has_router_bias, MOE_ROUTER_ENABLE_EXPERT_BIAS, TAKE, NULL)      \
    F(EXPERTS, WHOLE, latent_size, MOE_LATENT_SIZE, TAKE, NULL)                         \
    F(SPLIT, WHOLE, world_size, WORLD_SIZE, TAKE, NULL)                                 \
    F(SPLIT, WHOLE, tensor_parallel, TENSOR, TAKE, NULL)                                \
    F(SPLIT, WHOLE, pipeline_parallel, PIPELINE, TAKE, NULL)                            \
    F(SPLIT, WHOLE, virtual_stages, VIRTUAL_STAGES, OWN, NULL)                          \
    F(SPLIT, WHOLE, context_parallel, CONTEXT, TAKE, NULL)                              \
    F(SPLIT, WHOLE, expert_parallel, EXPERT, TAKE, NULL)                                \
    F(SPLIT, WHOLE, expert_tensor_parallel, EXPERT_TENSOR, TAKE, NULL)                  \
    F(SPLIT, SWITCH, sequence_parallel, SEQUENCE_PARALLEL, TAKE, NULL)                  \
    F(SPLIT, SWITCH, distributed_optimizer, USE_DISTRIBUTED_OPTIMIZER, TAKE, NULL)      \
    F(SPLIT, WHOLE, micro_batch_group_size, MICRO_BATCH_GROUP_SIZE, TAKE, NULL)         \
    F(SPLIT, SWITCH, overlaps_exchange, OVERLAP_MOE_COMM, TAKE, NULL)                   \
    F(BATCH, WHOLE, sequence_size, SEQ_LENGTH, TAKE, NULL)                              \
    F(BATCH, WHOLE, micro_batch, MICRO_BATCH_SIZE, TAKE, NULL)                          \
    F(BATCH, WHOLE, global_batch, GLOBAL_BATCH_SIZE, TAKE, NULL)                        \
    F(BATCH, CHOICE, type, NONE, OWN, "bf16|fp16|fp32")                                 \
    F(BATCH, WHOLE, gradient_width, NONE, OWN, NULL)                                    \
    F(BATCH, WHOLE, optimizer_width, NONE, OWN, NULL)                                   \
    F(BATCH, WHOLE, offload_num, NONE, OWN, NULL)                                       \
    F(BATCH, WHOLE, offload_den, NONE, OWN, NULL)                                       \
    F(SAVED, BITS, recompute, NONE, OWN, "gather|norm|activation|attention|experts")    \
    F(SAVED, WHOLE, recompute_layers, RECOMPUTE_NUM_LAYERS, OWN, NULL)                  \
    F(SAVED, SWITCH, has_flash_attention, USE_FLASH_ATTN, OWN, NULL)                    \
    F(SAVED, SWITCH, has_hidden_dropout, HIDDEN_DROPOUT, OWN, NULL)                     \
    F(SAVED, SWITCH, has_attention_dropout, ATTENTION_DROPOUT, OWN, NULL)               \
    F(SAVED, SWITCH, fuses_activation, NO_BIAS_SWIGLU_FUSION, TAKE_OFF, NULL)           \
    F(SAVED, SWITCH, copies_attention, CP_COMM_TYPE, OWN, NULL)                         \
    F(SAVED, CHOICE, loss, NONE, OWN, "unfused|fused|copied")                           \
    F(SAVED, SWITCH, saves_inputs_fp8, FP8_INPUT_STORE, TAKE, NULL)                     \
    F(SAVED, SWITCH, applies_probs_late, MOE_PROBS, TAKE, NULL)                         \
    F(SAVED, SWITCH, keeps_empty_gradients, NO_GRADIENT_FUSION, OWN, NULL)              \
    F(ROWS, CHOICE, moe_rows, MOE_BUFFER, TAKE, "balanced|capacity|worst|paged")        \
    F(ROWS, WHOLE, capacity_num, NONE, OWN, NULL)                                       \
    F(ROWS, WHOLE, capacity_den, NONE, OWN, NULL)                                       \
    F(ROWS, SWITCH, caps_each_expert, NONE, OWN, NULL)                                  \
    F(ROWS, WHOLE, row_multiple, NONE, OWN, NULL)                                       \
    F(ROWS, WHOLE, page_rows, PAGE_ROWS, TAKE, NULL)                                    \
    F(ROWS, WHOLE, page_bytes, PAGE_SIZE, TAKE, NULL)                                   \
    F(ROWS, WHOLE, headroom_num, NONE, OWN, NULL)                                       \
    F(ROWS, WHOLE, headroom_den, NONE, OWN, NULL)                                       \
    F(ROWS, SWITCH, pages_glu, MOE_PAGED_GLU, TAKE, NULL)                               \
    F(LISTS, LAYERS, is_moe, MOE_LAYER_FREQ, OWN, NULL)                                 \
    F(LISTS, CHUNKS, chunk_layers, NONE, OWN, NULL)

#endif
