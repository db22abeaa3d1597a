/* The table of an estimate: what can be asked, by which flag, where it goes, what a config.json calls
 * it. Reading a launch line and a config.json, help, messages, the report and tests go by it. */
#ifndef PAGESTASH_TOOL_ESTIMATE_TABLE_H
#define PAGESTASH_TOOL_ESTIMATE_TABLE_H

/* Of --offload-modules, from the lowest bit of PST_OFFLOAD. */
#define ESTIMATE_OFFLOADED \
    "attn_norm|qkv_linear|core_attn|attn_proj|mlp_norm|expert_fc1|moe_act|fused_group_mlp"

/* Rows, by their groups, in the order of the help and of the report.
 *   FLAG(group, kind, flag, argument, help): a flag that a function reads
 *   OPTION(group, kind, flag, member, default, argument, help): sets a member of estimate_options
 *   SETS(group, kind, flag, type, member, default, words, argument, help): sets a member of
 *     pst_estimate_config
 *   FEEDS(group, kind, flag, type, member, words, argument, help): a function sets it, by the flag
 *   FIELD(group, type, member, words): no one flag is the member's
 * flag: --flag, with dashes for underscores. words: of CHOICE and BITS the values as reports name
 * them; else keys of a config.json, of which the first counts. default: where neither the model nor a
 * flag says anything; 0: none. */
#define ESTIMATE_TABLE(FLAG, OPTION, SETS, FEEDS, FIELD)                                           \
    OPTION(MODEL, TEXT, preset, preset, 0, "NAME", "a published model; other flags change it")     \
    OPTION(MODEL, TEXT, hf_config, hf_config, 0, "FILE", "a Hugging Face config.json, likewise")   \
    SETS(MODEL, POSITIVE, num_layers, WHOLE, num_layers, 0, "num_hidden_layers|n_layer", "N", "")  \
    SETS(MODEL, POSITIVE, hidden_size, WHOLE, hidden_size, 0, "hidden_size|n_embd", "N", "")       \
    SETS(MODEL, POSITIVE, num_attention_heads, WHOLE, num_heads, 0, "num_attention_heads|n_head",  \
         "N", "")                                                                                  \
    FLAG(MODEL, SWITCH, group_query_attention, NULL, "with --num-query-groups")                    \
    FEEDS(MODEL, POSITIVE, num_query_groups, WHOLE, num_kv_heads, "num_key_value_heads", "N",      \
          "(as many as heads)")                                                                    \
    SETS(MODEL, POSITIVE, kv_channels, WHOLE, head_size, 0, "head_dim", "N",                       \
         "of a head (hidden size / heads)")                                                        \
    FEEDS(MODEL, POSITIVE, ffn_hidden_size, WHOLE, ffn_size, "intermediate_size|n_inner", "N",     \
          "(4 * hidden size; with --swiglu 8/3 of it, down to a multiple of 64)")                  \
    FEEDS(MODEL, POSITIVE, max_position_embeddings, WHOLE, max_positions, "n_positions", "N",      \
          "(seq-length)")                                                                          \
    FLAG(MODEL, CHOICE, position_embedding_type, "learned_absolute|rope|yarn|mrope|relative|none", \
         "(learned_absolute)")                                                                     \
    FLAG(MODEL, SWITCH, no_position_embedding, NULL, "as none")                                    \
    FLAG(MODEL, SWITCH, use_rotary_position_embeddings, NULL, "as rope")                           \
    SETS(MODEL, CHOICE, normalization, CHOICE, norm, 0, "layer|rms", "LayerNorm|RMSNorm",          \
         "(LayerNorm)")                                                                            \
    SETS(MODEL, SWITCH, swiglu, SWITCH, is_gated, 0, NULL, NULL, "a gated activation")             \
    FLAG(MODEL, SWITCH, quick_geglu, NULL, "quick-GELU gated activation")                          \
    SETS(MODEL, OFF, disable_bias_linear, SWITCH, has_linear_bias, 0, NULL, NULL, "")              \
    SETS(MODEL, SWITCH, add_qkv_bias, SWITCH, has_qkv_bias, 0, "attention_bias", NULL, "")         \
    FLAG(MODEL, SWITCH, qk_layernorm, NULL, "as --qk-norm head")                                   \
    FEEDS(MODEL, CHOICE, qk_norm, CHOICE, qk_norm, "none|head|projection", "none|head|projection", \
          "norms of queries and keys")                                                             \
    SETS(MODEL, OFF, untie_embeddings_and_output_weights, SWITCH, is_tied, 0,                      \
         "tie_word_embeddings", NULL, "")                                                          \
    SETS(MODEL, POSITIVE, vocab_size, WHOLE, vocab_size, 0, "vocab_size", "N", "")                 \
    SETS(MODEL, POSITIVE, padded_vocab_size, WHOLE, padded_vocab_size, 0, NULL, "N", "")           \
    FLAG(MODEL, TEXT, vocab_file, "FILE", "a JSON object; its keys are counted")                   \
    FLAG(MODEL, TEXT, tokenizer_type, "NAME", "a vocabulary where none is given")                  \
    FLAG(MODEL, TEXT, tokenizer_model, "FILE", "whose vocabulary is not known: give --vocab-size") \
    SETS(MODEL, POSITIVE, make_vocab_size_divisible_by, WHOLE, vocab_multiple, 128, NULL, "N",     \
         "times the tensor parallel size")                                                         \
    FEEDS(MODEL, DECIMAL, hidden_dropout, SWITCH, has_hidden_dropout, "resid_pdrop", "X",          \
          "only whether it is 0 counts (0.1)")                                                     \
    FEEDS(MODEL, DECIMAL, attention_dropout, SWITCH, has_attention_dropout,                        \
          "attention_dropout|attn_pdrop", "X", "(0.1)")                                            \
    SETS(MODEL, COUNT, mtp_num_layers, WHOLE, mtp_layers, 0, NULL, "N",                            \
         "multi-token prediction (0)")                                                             \
    FLAG(LATENTS, SWITCH, multi_latent_attention, NULL, "")                                        \
    SETS(LATENTS, POSITIVE, q_lora_rank, WHOLE, q_rank, 0, "q_lora_rank", "N",                     \
         "(no latent of queries)")                                                                 \
    SETS(LATENTS, POSITIVE, kv_lora_rank, WHOLE, kv_rank, 0, "kv_lora_rank", "N", "(32)")          \
    SETS(LATENTS, POSITIVE, qk_head_dim, WHOLE, qk_size, 0, "qk_nope_head_dim", "N", "(128)")      \
    SETS(LATENTS, POSITIVE, qk_pos_emb_head_dim, WHOLE, qk_position_size, 0, "qk_rope_head_dim",   \
         "N", "(64)")                                                                              \
    SETS(LATENTS, POSITIVE, v_head_dim, WHOLE, v_size, 0, "v_head_dim", "N", "(128)")              \
    SETS(EXPERTS, COUNT, num_experts, WHOLE, num_experts, 0,                                       \
         "num_local_experts|num_experts|n_routed_experts", "N", "")                                \
    SETS(EXPERTS, POSITIVE, moe_router_topk, WHOLE, experts_per_token, 2, "num_experts_per_tok",   \
         "N", "")                                                                                  \
    SETS(EXPERTS, POSITIVE, moe_ffn_hidden_size, WHOLE, expert_ffn_size, 0,                        \
         "moe_intermediate_size|intermediate_size", "N", "(ffn-hidden-size)")                      \
    FEEDS(EXPERTS, TEXT, moe_layer_freq, LAYERS, is_moe, NULL, "N|LIST",                           \
          "every Nth layer has experts, or as ([0]*3+[1]*58) (1)")                                 \
    SETS(EXPERTS, POSITIVE, moe_shared_expert_intermediate_size, WHOLE, shared_ffn_size, 0,        \
         "shared_expert_intermediate_size|n_shared_experts", "N", "of all shared experts")         \
    SETS(EXPERTS, SWITCH, moe_shared_expert_gate, SWITCH, has_shared_gate, 0, NULL, NULL, "")      \
    SETS(EXPERTS, SWITCH, moe_router_enable_expert_bias, SWITCH, has_router_bias, 0, NULL, NULL,   \
         "")                                                                                       \
    SETS(EXPERTS, POSITIVE, moe_latent_size, WHOLE, latent_size, 0, NULL, "N",                     \
         "of tokens at the experts")                                                               \
    FLAG(EXPERTS, CHOICE, moe_token_dispatcher_type, "allgather|alltoall|alltoall_seq|flex",       \
         "all count as alltoall")                                                                  \
    FEEDS(ROWS, CHOICE, moe_buffer, CHOICE, moe_rows, "balanced|capacity|worst|paged",             \
          "balanced|capacity|worst|paged", "(balanced)")                                           \
    FLAG(ROWS, RATIO, moe_expert_capacity_factor, "X", "")                                         \
    FLAG(ROWS, SWITCH, moe_pad_expert_input_to_capacity, NULL, "")                                 \
    FLAG(ROWS, RATIO, moe_expert_rank_capacity_factor, "X", "")                                    \
    FIELD(ROWS, WHOLE, capacity_num, NULL)                                                         \
    FIELD(ROWS, WHOLE, capacity_den, NULL)                                                         \
    FIELD(ROWS, SWITCH, caps_each_expert, NULL)                                                    \
    FIELD(ROWS, WHOLE, row_multiple, NULL)                                                         \
    FLAG(ROWS, SWITCH, moe_paged_stash, NULL, "as --moe-buffer paged")                             \
    FLAG(ROWS, POSITIVE, moe_paged_stash_page_size, "N", "rows (64)")                              \
    SETS(ROWS, POSITIVE, page_rows, WHOLE, page_rows, 64, NULL, "N",                               \
         "as --moe-paged-stash-page-size")                                                         \
    SETS(ROWS, SIZE, page_size, WHOLE, page_bytes, PST_PAGE_BYTES_DEFAULT, NULL, "BYTES",          \
         "of a page of the pool")                                                                  \
    FLAG(ROWS, RATIO, moe_paged_stash_buffer_size_factor_cuda, "X", "(1.1)")                       \
    FLAG(ROWS, RATIO, headroom, "X",                                                               \
         "times the pages of an even routing, as --moe-paged-stash-buffer-size-factor-cuda (1.1)") \
    FIELD(ROWS, WHOLE, headroom_num, NULL)                                                         \
    FIELD(ROWS, WHOLE, headroom_den, NULL)                                                         \
    SETS(ROWS, SWITCH, moe_paged_glu, SWITCH, pages_glu, 0, NULL, NULL,                            \
         "paged: a gated activation writes its input into pages")                                  \
    FLAG(ROWS, DECIMAL, moe_load_cv, "X", "imbalance: a coefficient of variation")                 \
    OPTION(ROWS, TEXT, routing, routing, 0, "FILE", "imbalance: a routing trace")                  \
    SETS(SPLIT, POSITIVE, world_size, WHOLE, world_size, 0, NULL, "N",                             \
         "GPUs (nproc-per-node * nnodes)")                                                         \
    SETS(SPLIT, POSITIVE, tensor_model_parallel_size, WHOLE, tensor_parallel, 1, NULL, "N", "")    \
    SETS(SPLIT, POSITIVE, pipeline_model_parallel_size, WHOLE, pipeline_parallel, 1, NULL, "N",    \
         "")                                                                                       \
    FLAG(SPLIT, POSITIVE, num_layers_per_virtual_pipeline_stage, "N", "")                          \
    FEEDS(SPLIT, POSITIVE, num_virtual_stages_per_pipeline_rank, WHOLE, virtual_stages, NULL, "N", \
          "(1)")                                                                                   \
    SETS(SPLIT, POSITIVE, microbatch_group_size_per_virtual_pipeline_stage, WHOLE,                 \
         micro_batch_group_size, 0, NULL, "N", "(pipeline-model-parallel-size)")                   \
    FLAG(SPLIT, POSITIVE, decoder_first_pipeline_num_layers, "N", "")                              \
    FLAG(SPLIT, POSITIVE, decoder_last_pipeline_num_layers, "N", "")                               \
    FLAG(SPLIT, TEXT, pipeline_model_parallel_layout, "STAGES", "as Et*3|(tt|)*29,m|L")            \
    FLAG(SPLIT, SWITCH, account_for_embedding_in_pipeline_split, NULL, "")                         \
    FLAG(SPLIT, SWITCH, account_for_loss_in_pipeline_split, NULL, "")                              \
    FIELD(SPLIT, CHUNKS, chunk_layers, NULL)                                                       \
    SETS(SPLIT, POSITIVE, context_parallel_size, WHOLE, context_parallel, 1, NULL, "N", "")        \
    FLAG(SPLIT, WORDS, cp_comm_type, "NAME...", "a2a: attention's output is saved twice (p2p)")    \
    SETS(SPLIT, POSITIVE, expert_model_parallel_size, WHOLE, expert_parallel, 1, NULL, "N", "")    \
    SETS(SPLIT, POSITIVE, expert_tensor_parallel_size, WHOLE, expert_tensor_parallel, 0, NULL,     \
         "N", "(tensor-model-parallel-size)")                                                      \
    SETS(SPLIT, SWITCH, overlap_moe_expert_parallel_comm, SWITCH, overlaps_exchange, 0, NULL,      \
         NULL, "")                                                                                 \
    SETS(SPLIT, SWITCH, sequence_parallel, SWITCH, sequence_parallel, 0, NULL, NULL, "")           \
    SETS(SPLIT, SWITCH, use_distributed_optimizer, SWITCH, distributed_optimizer, 0, NULL, NULL,   \
         "")                                                                                       \
    FLAG(SPLIT, SWITCH, use_megatron_fsdp, NULL, "")                                               \
    FEEDS(SPLIT, CHOICE, data_parallel_sharding_strategy, CHOICE, sharding,                        \
          "none|gradients|weights|torch_gradients|torch_weights",                                  \
          "no_shard|optim|optim_grads|optim_grads_params",                                         \
          "of Megatron-FSDP (optim_grads_params)")                                                 \
    FEEDS(SPLIT, SWITCH, fsdp_double_buffer, SWITCH, doubles_buffers, NULL, NULL,                  \
          "also --use-nccl-ub")                                                                    \
    FLAG(SPLIT, SWITCH, use_nccl_ub, NULL, "")                                                     \
    SETS(SPLIT, POSITIVE, suggested_communication_unit_size, WHOLE, communication_unit, 0, NULL,   \
         "N", "parameters (10^9, or two layers)")                                                  \
    FLAG(SPLIT, CHOICE, megatron_fsdp_main_grads_dtype, "fp32|bf16|fp16|auto",                     \
         "(auto: as weights)")                                                                     \
    FLAG(SPLIT, SWITCH, use_torch_fsdp2, NULL, "")                                                 \
    FLAG(SPLIT, SWITCH, torch_fsdp2_no_reshard_after_forward, NULL, "ZeRO-2")                      \
    OPTION(SPLIT, SWITCH, tp_comm_overlap, overlaps_tensor, 0, NULL,                               \
           "these four change times alone")                                                        \
    OPTION(SPLIT, SWITCH, overlap_grad_reduce, overlaps_gradients, 0, NULL, "")                    \
    OPTION(SPLIT, SWITCH, overlap_param_gather, overlaps_params, 0, NULL, "")                      \
    OPTION(SPLIT, SWITCH, moe_shared_expert_overlap, overlaps_shared_experts, 0, NULL, "")         \
    FLAG(SPLIT, POSITIVE, nproc_per_node, "N", "")                                                 \
    FLAG(SPLIT, POSITIVE, nnodes, "N", "(1)")                                                      \
    OPTION(SPLIT, POSITIVE, gpus_per_node, gpus_per_node, 8, "N", "else nproc-per-node")           \
    SETS(BATCH, POSITIVE, seq_length, WHOLE, sequence_size, 0, NULL, "N",                          \
         "(the model's, at most 4096)")                                                            \
    SETS(BATCH, POSITIVE, micro_batch_size, WHOLE, micro_batch, 1, NULL, "N", "")                  \
    SETS(BATCH, POSITIVE, global_batch_size, WHOLE, global_batch, 0, NULL, "N",                    \
         "(a micro-batch for each stage)")                                                         \
    FLAG(BATCH, SWITCH, bf16, NULL, "")                                                            \
    FLAG(BATCH, SWITCH, fp16, NULL, "")                                                            \
    FLAG(BATCH, SWITCH, fp32, NULL, "neither (with a preset or config.json bf16)")                 \
    FIELD(BATCH, CHOICE, type, "bf16|fp16|fp32")                                                   \
    FLAG(BATCH, TEXT, optimizer, "NAME", "adam, sgd or lion (adam)")                               \
    FLAG(BATCH, SWITCH, grad_reduce_in_bf16, NULL, "")                                             \
    FLAG(BATCH, SWITCH, accumulate_allreduce_grads_in_fp32, NULL, "")                              \
    FLAG(BATCH, SWITCH, use_precision_aware_optimizer, NULL, "with these:")                        \
    FLAG(BATCH, CHOICE, main_grads_dtype, "fp32|bf16", "(fp32)")                                   \
    FLAG(BATCH, CHOICE, main_params_dtype, "fp32|fp16", "(fp32)")                                  \
    FLAG(BATCH, CHOICE, exp_avg_dtype, "fp32|fp16|bf16|fp8", "(fp32)")                             \
    FLAG(BATCH, CHOICE, exp_avg_sq_dtype, "fp32|fp16|bf16|fp8", "(fp32)")                          \
    FIELD(BATCH, WHOLE, gradient_width, NULL)                                                      \
    FIELD(BATCH, WHOLE, optimizer_width, NULL)                                                     \
    FLAG(BATCH, SWITCH, optimizer_cpu_offload, NULL, "")                                           \
    FLAG(BATCH, RATIO, optimizer_offload_fraction, "X", "(1.0)")                                   \
    FIELD(BATCH, WHOLE, offload_num, NULL)                                                         \
    FIELD(BATCH, WHOLE, offload_den, NULL)                                                         \
    FLAG(SAVED, CHOICE, transformer_impl, "local|transformer_engine|inference_optimized",          \
         "local: no flash attention by itself")                                                    \
    FEEDS(SAVED, SWITCH, no_gradient_accumulation_fusion, SWITCH, keeps_empty_gradients, NULL,     \
          NULL, "else Transformer Engine keeps an empty gradient of each shape of weights")        \
    FLAG(SAVED, CHOICE, attention_backend, "flash|fused|unfused|local|auto",                       \
         "unfused, local: scores are saved (auto)")                                                \
    FEEDS(SAVED, SWITCH, use_flash_attn, SWITCH, has_flash_attention, NULL, NULL, "")              \
    FLAG(SAVED, SWITCH, recompute_activations, NULL, "selective")                                  \
    FLAG(SAVED, CHOICE, recompute_granularity, "full|selective", "")                               \
    FLAG(SAVED, CHOICE, recompute_method, "uniform|block", "(uniform)")                            \
    FEEDS(SAVED, COUNT, recompute_num_layers, WHOLE, recompute_layers, NULL, "N",                  \
          "of a group; with block of a chunk, the first (1)")                                      \
    FLAG(SAVED, WORDS, recompute_modules, "NAME...",                                               \
         "core_attn, layernorm, mla_up_proj, mlp, moe, moe_act, shared_experts (core_attn)")       \
    FLAG(SAVED, CHOICE, tp_recompute_allgather, "0|1",                                             \
         "gathers inputs again in the backward pass (1)")                                          \
    FLAG(SAVED, SWITCH, recompute_activation_function, NULL,                                       \
         "of every feed-forward block, not of experts alone")                                      \
    FIELD(SAVED, SWITCH, recomputes_block, NULL)                                                   \
    FIELD(SAVED, BITS, recompute,                                                                  \
          "gather|norm|activation|attention|experts|mlp|moe|shared|latent")                        \
    FLAG(SAVED, CHOICE, fp8_format, "e4m3|hybrid", "linears multiply in fp8")                      \
    FEEDS(SAVED, CHOICE, fp8_recipe, CHOICE, fp8, "none|tensorwise|blockwise|mxfp8",               \
          "delayed|tensorwise|blockwise|mxfp8", "(delayed)")                                       \
    SETS(SAVED, SWITCH, fp8_param_gather, SWITCH, keeps_fp8_weights, 0, NULL, NULL,                \
         "weights in fp8 alone")                                                                   \
    SETS(SAVED, SWITCH, fp8_one_layout, SWITCH, keeps_one_layout, 0, NULL, NULL,                   \
         "delayed, tensorwise on Blackwell: no transposed weights")                                \
    FLAG(SAVED, SWITCH, fine_grained_activation_offloading, NULL, "with --offload-modules")        \
    FEEDS(SAVED, WORDS, offload_modules, BITS, offload_modules, ESTIMATE_OFFLOADED, "NAME...",     \
          "whose inputs go to host memory: attn_norm, qkv_linear, core_attn, attn_proj, "          \
          "mlp_norm, expert_fc1, moe_act, fused_group_mlp")                                        \
    FIELD(SAVED, SWITCH, keeps_workspaces, NULL)                                                   \
    SETS(SAVED, OFF, no_bias_swiglu_fusion, SWITCH, fuses_activation, 1, NULL, NULL, "")           \
    SETS(SAVED, SWITCH, activation_func_fp8_input_store, SWITCH, saves_inputs_fp8, 0, NULL, NULL,  \
         "")                                                                                       \
    SETS(SAVED, CHOICE, moe_probs, SWITCH, applies_probs_late, 0, NULL, "act|unpermute",           \
         "where they are applied (act)")                                                           \
    FLAG(SAVED, SWITCH, no_create_attention_mask_in_dataloader, NULL, "as is assumed")             \
    SETS(SAVED, SWITCH, copies_attention, SWITCH, copies_attention, 0, NULL, NULL,                 \
         "its output is saved twice, as Megatron-LM of 2023 did")                                  \
    FLAG(SAVED, SWITCH, cross_entropy_loss_fusion, NULL, "")                                       \
    FLAG(SAVED, CHOICE, cross_entropy_fusion_impl, "native|te",                                    \
         "native: as --loss copied, te: as fused (native)")                                        \
    FEEDS(SAVED, CHOICE, loss, CHOICE, loss, "unfused|fused|copied", "unfused|fused|copied",       \
          "copied: two copies of the logits, as Megatron-LM of 2023 had (unfused)")                \
    OPTION(OUTPUT, SIZE, gpu_memory, memory_bytes, UINT64_C(80) << 30, "BYTES", "of one GPU")      \
    OPTION(OUTPUT, BYTES, overhead, overhead_bytes, 0, "BYTES",                                    \
           "reserve for context and NCCL (by the groups of the split)")                            \
    OPTION(OUTPUT, POSITIVE, num_sms, num_sms, 132, "N", "of one GPU")                             \
    OPTION(OUTPUT, TEXT, gpu, gpu_name, 0, "NAME|FILE",                                            \
           "predicts the time of a step on a100, h100, .., or by the rates in a file")             \
    OPTION(OUTPUT, JSON, json, json, 0, "FILE", "the report as JSON, in FILE, or on stdout")       \
    OPTION(OUTPUT, SWITCH, details, shows_details, 0, NULL, "all stages, modules and transfers")   \
    OPTION(OUTPUT, SWITCH, members, lists_members, 0, NULL, "list the members of every group")     \
    FLAG(OUTPUT, SWITCH, fit, NULL, "does it fit (0) or not (1)? and what would")                  \
    FLAG(OUTPUT, SWITCH, search, NULL, "ways to split, the fastest that fits first")               \
    OPTION(OUTPUT, COUNT, timeline, timeline_stage, UINT64_MAX, "STAGE",                           \
           "bytes after every event, as CSV")                                                      \
    OPTION(OUTPUT, TEXT, html, html, 0, "FILE", "write a picture of a stage's memory, a web page") \
    FLAG(OUTPUT, CHOICE, compat, "pr482", "the report of a tool of 2023, as it was")               \
    FLAG(OUTPUT, CHOICE, compat_logit_bytes, "9|10", "in that report (10)")                        \
    OPTION(OUTPUT, SWITCH, strict, is_strict, 0, NULL,                                             \
           "unknown flags, and flags given twice, are errors")

#endif
