/* The table of an estimate: what can be asked, by which flag, where it goes, what a config.json calls
 * it. Reading a launch line and a config.json, help, messages, the report and tests go by it. */
#ifndef PAGESTASH_TOOL_ESTIMATE_TABLE_H
#define PAGESTASH_TOOL_ESTIMATE_TABLE_H

/* Of --offload-modules, from the lowest bit of PST_OFFLOAD. */
#define ESTIMATE_OFFLOADED \
    "attn_norm|qkv_linear|core_attn|attn_proj|mlp_norm|expert_fc1|moe_act|fused_group_mlp"

/* Of --recompute-modules, from the lowest bit of PST_RECOMPUTE, of which two have flags of their own. */
#define ESTIMATE_MODULES "|layernorm||core_attn|moe_act|mlp|moe|shared_experts|mla_up_proj"

/* Rows, by their groups, in the order of the help and of the report.
 *   FLAG(flag, group, kind, help): a flag that a function reads
 *   OPTION(flag, group, kind, member, default, help): sets a member of estimate_options
 *   SETS(flag, group, kind, member, default, words, help): sets a member of pst_estimate_config
 *   FEEDS(flag, group, kind, member, words, help): a function sets it, by the flag
 *   FIELD(member, group, type, words): no one flag is the member's
 * flag: --flag, with dashes for underscores. kind: an estimate_kind, with what it takes where that is
 * the flag's own. words: of CHOICE and WORDS the values as reports name them, if not as the flag does;
 * else keys of a config.json, of which the first counts. default: where neither the model nor a flag
 * says anything; 0: none. */
#define ESTIMATE_TABLE(FLAG, OPTION, SETS, FEEDS, FIELD)                                           \
    OPTION(preset, MODEL, TEXT("NAME"), preset, 0, "a published model; other flags change it")     \
    OPTION(hf_config, MODEL, TEXT("FILE"), hf_config, 0, "a Hugging Face config.json, likewise")   \
    SETS(num_layers, MODEL, POSITIVE, num_layers, 0, "num_hidden_layers|n_layer", "")              \
    SETS(hidden_size, MODEL, POSITIVE, hidden_size, 0, "hidden_size|n_embd", "")                   \
    SETS(num_attention_heads, MODEL, POSITIVE, num_heads, 0, "num_attention_heads|n_head", "")     \
    FLAG(group_query_attention, MODEL, SWITCH, "with --num-query-groups")                          \
    FEEDS(num_query_groups, MODEL, POSITIVE, num_kv_heads, "num_key_value_heads",                  \
          "(as many as heads)")                                                                    \
    SETS(kv_channels, MODEL, POSITIVE, head_size, 0, "head_dim",                                   \
         "of a head (hidden size / heads)")                                                        \
    SETS(ffn_hidden_size, MODEL, POSITIVE, ffn_size, 0, "intermediate_size|n_inner",               \
         "(4 * hidden size; with --swiglu 8/3 of it, down to a multiple of 64)")                   \
    FEEDS(max_position_embeddings, MODEL, POSITIVE, max_positions, "n_positions", "(seq-length)")  \
    FLAG(position_embedding_type, MODEL, CHOICE("learned_absolute|rope|yarn|mrope|relative|none"), \
         "(learned_absolute)")                                                                     \
    FLAG(no_position_embedding, MODEL, SWITCH, "as none")                                          \
    FLAG(use_rotary_position_embeddings, MODEL, SWITCH, "as rope")                                 \
    SETS(normalization, MODEL, CHOICE("LayerNorm|RMSNorm"), norm, 0, "layer|rms", "(LayerNorm)")   \
    SETS(swiglu, MODEL, SWITCH, is_gated, 0, NULL, "a gated activation")                           \
    FLAG(quick_geglu, MODEL, SWITCH, "quick-GELU gated activation")                                \
    SETS(disable_bias_linear, MODEL, OFF, has_linear_bias, 0, NULL, "")                            \
    SETS(add_qkv_bias, MODEL, SWITCH, has_qkv_bias, 0, "attention_bias", "")                       \
    FLAG(qk_layernorm, MODEL, SWITCH, "as --qk-norm head")                                         \
    FEEDS(qk_norm, MODEL, CHOICE("none|head|projection"), qk_norm, NULL,                           \
          "norms of queries and keys")                                                             \
    SETS(untie_embeddings_and_output_weights, MODEL, OFF, is_tied, 0, "tie_word_embeddings", "")   \
    SETS(vocab_size, MODEL, POSITIVE, vocab_size, 0, "vocab_size", "")                             \
    SETS(padded_vocab_size, MODEL, POSITIVE, padded_vocab_size, 0, NULL, "")                       \
    FLAG(vocab_file, MODEL, TEXT("FILE"), "a JSON object; its keys are counted")                   \
    FLAG(tokenizer_type, MODEL, TEXT("NAME"), "a vocabulary where none is given")                  \
    FLAG(tokenizer_model, MODEL, TEXT("FILE"), "whose vocabulary is not known: give --vocab-size") \
    SETS(make_vocab_size_divisible_by, MODEL, POSITIVE, vocab_multiple, 128, NULL,                 \
         "times the tensor parallel size")                                                         \
    SETS(hidden_dropout, MODEL, DECIMAL, has_hidden_dropout, 0, "resid_pdrop",                     \
         "only whether it is 0 counts (0.1)")                                                      \
    SETS(attention_dropout, MODEL, DECIMAL, has_attention_dropout, 0,                              \
         "attention_dropout|attn_pdrop", "(0.1)")                                                  \
    SETS(mtp_num_layers, MODEL, COUNT, mtp_layers, 0, NULL, "multi-token prediction (0)")          \
    FLAG(multi_latent_attention, LATENTS, SWITCH, "")                                              \
    SETS(q_lora_rank, LATENTS, POSITIVE, q_rank, 0, "q_lora_rank", "(no latent of queries)")       \
    SETS(kv_lora_rank, LATENTS, POSITIVE, kv_rank, 32, "kv_lora_rank", "")                         \
    SETS(qk_head_dim, LATENTS, POSITIVE, qk_size, 128, "qk_nope_head_dim", "")                     \
    SETS(qk_pos_emb_head_dim, LATENTS, POSITIVE, qk_position_size, 0, "qk_rope_head_dim", "(64)")  \
    SETS(v_head_dim, LATENTS, POSITIVE, v_size, 128, "v_head_dim", "")                             \
    SETS(num_experts, EXPERTS, COUNT, num_experts, 0,                                              \
         "num_local_experts|num_experts|n_routed_experts", "")                                     \
    SETS(moe_router_topk, EXPERTS, POSITIVE, experts_per_token, 2, "num_experts_per_tok", "")      \
    SETS(moe_ffn_hidden_size, EXPERTS, POSITIVE, expert_ffn_size, 0,                               \
         "moe_intermediate_size|intermediate_size", "(ffn-hidden-size)")                           \
    FEEDS(moe_layer_freq, EXPERTS, TEXT("N|LIST"), is_moe, NULL,                                   \
          "every Nth layer has experts, or as ([0]*3+[1]*58) (1)")                                 \
    SETS(moe_shared_expert_intermediate_size, EXPERTS, POSITIVE, shared_ffn_size, 0,               \
         "shared_expert_intermediate_size|n_shared_experts", "of all shared experts")              \
    SETS(moe_shared_expert_gate, EXPERTS, SWITCH, has_shared_gate, 0, NULL, "")                    \
    SETS(moe_router_enable_expert_bias, EXPERTS, SWITCH, has_router_bias, 0, NULL, "")             \
    SETS(moe_latent_size, EXPERTS, POSITIVE, latent_size, 0, NULL, "of tokens at the experts")     \
    FEEDS(moe_token_dispatcher_type, EXPERTS, CHOICE("allgather|alltoall|alltoall_seq|flex"),      \
          dispatcher, "alltoall|flex", "flex: a token once for each GPU, and for each node; else") \
    FLAG(moe_flex_dispatcher_backend, EXPERTS, CHOICE("deepep|hybridep|ncclep"), "all the same")   \
    FLAG(moe_enable_deepep, EXPERTS, SWITCH, "as --moe-flex-dispatcher-backend deepep")            \
    SETS(moe_router_num_groups, EXPERTS, POSITIVE, router_groups, 0, "n_group", "of experts")      \
    SETS(moe_router_group_topk, EXPERTS, POSITIVE, router_group_topk, 0, "topk_group",             \
         "of these groups has a token's experts; changes flex's transfers alone")                  \
    FEEDS(moe_buffer, ROWS, CHOICE("balanced|capacity|worst|paged"), moe_rows, NULL, "(balanced)") \
    FLAG(moe_expert_capacity_factor, ROWS, RATIO, "")                                              \
    FLAG(moe_pad_expert_input_to_capacity, ROWS, SWITCH, "")                                       \
    FLAG(moe_expert_rank_capacity_factor, ROWS, RATIO, "")                                         \
    FIELD(capacity_num, ROWS, WHOLE, NULL)                                                         \
    FIELD(capacity_den, ROWS, WHOLE, NULL)                                                         \
    FIELD(caps_each_expert, ROWS, SWITCH, NULL)                                                    \
    FIELD(row_multiple, ROWS, WHOLE, NULL)                                                         \
    FLAG(moe_paged_stash, ROWS, SWITCH, "as --moe-buffer paged")                                   \
    FLAG(moe_paged_stash_page_size, ROWS, POSITIVE, "rows (64)")                                   \
    SETS(page_rows, ROWS, POSITIVE, page_rows, 64, NULL, "as --moe-paged-stash-page-size")         \
    SETS(page_size, ROWS, SIZE, page_bytes, PST_PAGE_BYTES_DEFAULT, NULL, "of a page of the pool") \
    FLAG(moe_paged_stash_buffer_size_factor_cuda, ROWS, RATIO, "(1.1)")                            \
    FLAG(headroom, ROWS, RATIO,                                                                    \
         "times the pages of an even routing, as --moe-paged-stash-buffer-size-factor-cuda (1.1)") \
    FIELD(headroom_num, ROWS, WHOLE, NULL)                                                         \
    FIELD(headroom_den, ROWS, WHOLE, NULL)                                                         \
    SETS(moe_paged_glu, ROWS, SWITCH, pages_glu, 0, NULL,                                          \
         "paged: a gated activation writes its input into pages")                                  \
    FLAG(moe_load_cv, ROWS, DECIMAL, "imbalance: a coefficient of variation")                      \
    OPTION(routing, ROWS, TEXT("FILE"), routing, 0, "imbalance: a routing trace")                  \
    SETS(world_size, SPLIT, POSITIVE, world_size, 0, NULL, "GPUs (nproc-per-node * nnodes)")       \
    SETS(tensor_model_parallel_size, SPLIT, POSITIVE, tensor_parallel, 1, NULL, "")                \
    SETS(pipeline_model_parallel_size, SPLIT, POSITIVE, pipeline_parallel, 1, NULL, "")            \
    FLAG(num_layers_per_virtual_pipeline_stage, SPLIT, POSITIVE, "")                               \
    FEEDS(num_virtual_stages_per_pipeline_rank, SPLIT, POSITIVE, virtual_stages, NULL, "(1)")      \
    SETS(microbatch_group_size_per_virtual_pipeline_stage, SPLIT, POSITIVE,                        \
         micro_batch_group_size, 0, NULL, "(pipeline-model-parallel-size)")                        \
    FLAG(decoder_first_pipeline_num_layers, SPLIT, POSITIVE, "")                                   \
    FLAG(decoder_last_pipeline_num_layers, SPLIT, POSITIVE, "")                                    \
    FLAG(pipeline_model_parallel_layout, SPLIT, TEXT("STAGES"), "as Et*3|(tt|)*29,m|L")            \
    FLAG(account_for_embedding_in_pipeline_split, SPLIT, SWITCH, "")                               \
    FLAG(account_for_loss_in_pipeline_split, SPLIT, SWITCH, "")                                    \
    FIELD(chunk_layers, SPLIT, CHUNKS, NULL)                                                       \
    SETS(context_parallel_size, SPLIT, POSITIVE, context_parallel, 1, NULL, "")                    \
    FLAG(cp_comm_type, SPLIT, WORDS, "a2a: attention's output is saved twice (p2p)")               \
    SETS(expert_model_parallel_size, SPLIT, POSITIVE, expert_parallel, 1, NULL, "")                \
    SETS(expert_tensor_parallel_size, SPLIT, POSITIVE, expert_tensor_parallel, 0, NULL,            \
         "(tensor-model-parallel-size)")                                                           \
    SETS(overlap_moe_expert_parallel_comm, SPLIT, SWITCH, overlaps_exchange, 0, NULL, "")          \
    SETS(sequence_parallel, SPLIT, SWITCH, sequence_parallel, 0, NULL, "")                         \
    SETS(use_distributed_optimizer, SPLIT, SWITCH, distributed_optimizer, 0, NULL, "")             \
    FLAG(use_megatron_fsdp, SPLIT, SWITCH, "")                                                     \
    FEEDS(data_parallel_sharding_strategy, SPLIT,                                                  \
          CHOICE("no_shard|optim|optim_grads|optim_grads_params"), sharding,                       \
          "none|gradients|weights|torch_gradients|torch_weights",                                  \
          "of Megatron-FSDP (optim_grads_params)")                                                 \
    FEEDS(fsdp_double_buffer, SPLIT, SWITCH, doubles_buffers, NULL, "also --use-nccl-ub")          \
    FLAG(use_nccl_ub, SPLIT, SWITCH, "")                                                           \
    SETS(suggested_communication_unit_size, SPLIT, POSITIVE, communication_unit, 0, NULL,          \
         "parameters (10^9, or two layers)")                                                       \
    FLAG(megatron_fsdp_main_grads_dtype, SPLIT, CHOICE("fp32|bf16|fp16|auto"),                     \
         "(auto: as weights)")                                                                     \
    FLAG(use_torch_fsdp2, SPLIT, SWITCH, "")                                                       \
    FLAG(torch_fsdp2_no_reshard_after_forward, SPLIT, SWITCH, "ZeRO-2")                            \
    OPTION(tp_comm_overlap, SPLIT, SWITCH, overlaps_tensor, 0, "these four change times alone")    \
    OPTION(overlap_grad_reduce, SPLIT, SWITCH, overlaps_gradients, 0, "")                          \
    OPTION(overlap_param_gather, SPLIT, SWITCH, overlaps_params, 0, "")                            \
    OPTION(moe_shared_expert_overlap, SPLIT, SWITCH, overlaps_shared_experts, 0, "")               \
    FLAG(nproc_per_node, SPLIT, POSITIVE, "")                                                      \
    FLAG(nnodes, SPLIT, POSITIVE, "(1)")                                                           \
    OPTION(gpus_per_node, SPLIT, POSITIVE, gpus_per_node, 8, "else nproc-per-node")                \
    SETS(seq_length, BATCH, POSITIVE, sequence_size, 0, NULL, "(the model's, at most 4096)")       \
    SETS(micro_batch_size, BATCH, POSITIVE, micro_batch, 1, NULL, "")                              \
    SETS(global_batch_size, BATCH, POSITIVE, global_batch, 0, NULL,                                \
         "(a micro-batch for each stage)")                                                         \
    FLAG(bf16, BATCH, SWITCH, "")                                                                  \
    FLAG(fp16, BATCH, SWITCH, "")                                                                  \
    FLAG(fp32, BATCH, SWITCH, "neither (with a preset or config.json bf16)")                       \
    FIELD(type, BATCH, CHOICE, "bf16|fp16|fp32")                                                   \
    FLAG(optimizer, BATCH, TEXT("NAME"), "adam, sgd or lion (adam)")                               \
    FLAG(grad_reduce_in_bf16, BATCH, SWITCH, "")                                                   \
    FLAG(accumulate_allreduce_grads_in_fp32, BATCH, SWITCH, "")                                    \
    FLAG(use_precision_aware_optimizer, BATCH, SWITCH, "with these:")                              \
    FLAG(main_grads_dtype, BATCH, CHOICE("fp32|bf16"), "(fp32)")                                   \
    FLAG(main_params_dtype, BATCH, CHOICE("fp32|fp16"), "(fp32)")                                  \
    FLAG(exp_avg_dtype, BATCH, CHOICE("fp32|fp16|bf16|fp8"), "(fp32)")                             \
    FLAG(exp_avg_sq_dtype, BATCH, CHOICE("fp32|fp16|bf16|fp8"), "(fp32)")                          \
    FIELD(gradient_width, BATCH, WHOLE, NULL)                                                      \
    FIELD(optimizer_width, BATCH, WHOLE, NULL)                                                     \
    FLAG(optimizer_cpu_offload, BATCH, SWITCH, "")                                                 \
    FLAG(optimizer_offload_fraction, BATCH, RATIO, "(1.0)")                                        \
    FIELD(offload_num, BATCH, WHOLE, NULL)                                                         \
    FIELD(offload_den, BATCH, WHOLE, NULL)                                                         \
    FLAG(transformer_impl, SAVED, CHOICE("local|transformer_engine|inference_optimized"),          \
         "local: no flash attention by itself")                                                    \
    FEEDS(no_gradient_accumulation_fusion, SAVED, SWITCH, keeps_empty_gradients, NULL,             \
          "else Transformer Engine keeps an empty gradient of each shape of weights")              \
    FLAG(attention_backend, SAVED, CHOICE("flash|fused|unfused|local|auto"),                       \
         "unfused, local: scores are saved (auto)")                                                \
    FEEDS(use_flash_attn, SAVED, SWITCH, has_flash_attention, NULL, "")                            \
    FLAG(recompute_activations, SAVED, SWITCH, "selective")                                        \
    FLAG(recompute_granularity, SAVED, CHOICE("full|selective"), "")                               \
    FLAG(recompute_method, SAVED, CHOICE("uniform|block"), "(uniform)")                            \
    FEEDS(recompute_num_layers, SAVED, COUNT, recompute_layers, NULL,                              \
          "of a group; with block of a chunk, the first (1)")                                      \
    FLAG(recompute_modules, SAVED, WORDS,                                                          \
         "core_attn, layernorm, mla_up_proj, mlp, moe, moe_act, shared_experts (core_attn)")       \
    FLAG(tp_recompute_allgather, SAVED, CHOICE("0|1"),                                             \
         "gathers inputs again in the backward pass (1)")                                          \
    FLAG(recompute_activation_function, SAVED, SWITCH,                                             \
         "of every feed-forward block, not of experts alone")                                      \
    FIELD(recomputes_block, SAVED, SWITCH, NULL)                                                   \
    FIELD(recompute, SAVED, BITS,                                                                  \
          "gather|norm|activation|attention|experts|mlp|moe|shared|latent")                        \
    FLAG(fp8_format, SAVED, CHOICE("e4m3|hybrid"), "linears multiply in fp8")                      \
    FEEDS(fp8_recipe, SAVED, CHOICE("delayed|tensorwise|blockwise|mxfp8"), fp8,                    \
          "none|tensorwise|blockwise|mxfp8", "(delayed)")                                          \
    SETS(fp8_param_gather, SAVED, SWITCH, keeps_fp8_weights, 0, NULL, "weights in fp8 alone")      \
    SETS(fp8_one_layout, SAVED, SWITCH, keeps_one_layout, 0, NULL,                                 \
         "delayed, tensorwise on Blackwell: no transposed weights")                                \
    FLAG(fine_grained_activation_offloading, SAVED, SWITCH, "with --offload-modules")              \
    FEEDS(offload_modules, SAVED, WORDS, offload_modules, ESTIMATE_OFFLOADED,                      \
          "whose inputs go to host memory: attn_norm, qkv_linear, core_attn, attn_proj, "          \
          "mlp_norm, expert_fc1, moe_act, fused_group_mlp")                                        \
    FIELD(keeps_workspaces, SAVED, SWITCH, NULL)                                                   \
    SETS(no_bias_swiglu_fusion, SAVED, OFF, fuses_activation, 1, NULL, "")                         \
    SETS(activation_func_fp8_input_store, SAVED, SWITCH, saves_inputs_fp8, 0, NULL, "")            \
    SETS(moe_probs, SAVED, EITHER("act|unpermute"), applies_probs_late, 0, NULL,                   \
         "where they are applied (act)")                                                           \
    FLAG(no_create_attention_mask_in_dataloader, SAVED, SWITCH, "as is assumed")                   \
    SETS(copies_attention, SAVED, SWITCH, copies_attention, 0, NULL,                               \
         "its output is saved twice, as Megatron-LM of 2023 did")                                  \
    FLAG(cross_entropy_loss_fusion, SAVED, SWITCH, "")                                             \
    FLAG(cross_entropy_fusion_impl, SAVED, CHOICE("native|te"),                                    \
         "native: as --loss copied, te: as fused (native)")                                        \
    FEEDS(loss, SAVED, CHOICE("unfused|fused|copied"), loss, NULL,                                 \
          "copied: two copies of the logits, as Megatron-LM of 2023 had (unfused)")                \
    OPTION(gpu_memory, OUTPUT, SIZE, memory_bytes, UINT64_C(80) << 30, "of one GPU; else --gpu's") \
    OPTION(overhead, OUTPUT, BYTES, reserve.overhead_bytes, 0,                                     \
           "reserve for context and NCCL (by the groups of the split)")                            \
    FLAG(fragmentation, OUTPUT, DECIMAL, "and, of each byte of torch's tensors (0.08)")            \
    OPTION(num_sms, OUTPUT, POSITIVE, num_sms, 132, "of one GPU")                                  \
    OPTION(gpu, OUTPUT, TEXT("NAME|FILE"), gpu_name, 0,                                            \
           "predicts the time of a step on a100, h100, .., or by the rates in a file")             \
    OPTION(json, OUTPUT, JSON, json, 0, "the report as JSON, in FILE, or on stdout")               \
    OPTION(details, OUTPUT, SWITCH, shows_details, 0, "all stages, modules and transfers")         \
    OPTION(members, OUTPUT, SWITCH, lists_members, 0, "list the members of every group")           \
    FLAG(fit, OUTPUT, SWITCH, "does it fit (0) or not (1)? and what would")                        \
    FLAG(search, OUTPUT, SWITCH, "ways to split, the fastest that fits first")                     \
    OPTION(timeline, OUTPUT, STAGE, timeline_stage, UINT64_MAX, "bytes after every event, as CSV") \
    OPTION(html, OUTPUT, TEXT("FILE"), html, 0, "write a picture of a stage's memory, a web page") \
    FLAG(compat, OUTPUT, CHOICE("pr482"), "the report of a tool of 2023, as it was")               \
    FLAG(compat_logit_bytes, OUTPUT, CHOICE("9|10"), "in that report (10)")                        \
    OPTION(strict, OUTPUT, SWITCH, is_strict, 0, "unknown flags, and flags given twice, are errors")

#endif
