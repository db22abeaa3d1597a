/* From flags to a configuration without zeros that mean something else. */
#include "tools/estimate/estimate_flags.h"

#include <string.h>

#include "host/base/arith.h"

typedef unsigned long long ull;

enum { SEARCHED_MICRO_BATCHES = 8 };

/* ---- the split ---- */

static void take_world(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    if (config->expert_tensor_parallel == 0)
        config->expert_tensor_parallel = config->tensor_parallel;
    if (config->micro_batch_group_size == 0)
        config->micro_batch_group_size = config->pipeline_parallel;
    const uint64_t stages = config->pipeline_parallel;
    const uint64_t dense = PSTI_PRODUCT(config->tensor_parallel, stages, config->context_parallel);
    const uint64_t experts =
        PSTI_PRODUCT(config->expert_tensor_parallel, stages, config->expert_parallel);
    if (config->world_size == 0 &&
        (estimate_has(line, ESTIMATE_nnodes) || estimate_has(line, ESTIMATE_nproc_per_node)))
        config->world_size = psti_times(estimate_number(line, ESTIMATE_nnodes, 1),
                                        estimate_number(line, ESTIMATE_nproc_per_node, 1));
    if (config->world_size != 0)
        return;
    config->world_size =
        config->num_experts != 0 ? psti_times(dense / psti_gcd(dense, experts), experts) : dense;
    estimate_note(&options->assumptions, "--world-size %llu, smallest valid world size",
                  (ull)config->world_size);
}

/* At least as many micro-batches as stages, without which a pipeline never fills; a search, of many splits, takes
 * 8 micro-batches for each GPU, as Megatron-LM's own runs of Mixtral have (1,024 on 128; tests/data/measured). */
static void take_batch(estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    if (config->global_batch != 0)
        return;
    const uint64_t dense =
        PSTI_PRODUCT(config->tensor_parallel, config->pipeline_parallel, config->context_parallel);
    const uint64_t group = config->virtual_stages > 1 ? config->micro_batch_group_size : 1;
    const uint64_t each = options->mode == ESTIMATE_SEARCH
                              ? psti_times(SEARCHED_MICRO_BATCHES, dense)
                              : psti_times(psti_div_up(config->pipeline_parallel, group), group);
    config->global_batch = PSTI_PRODUCT(config->micro_batch, each, config->world_size / dense);
    estimate_note(&options->assumptions, "--global-batch-size %llu: %llu micro-batch%s each",
                  (ull)config->global_batch, (ull)each, each > 1 ? "es" : "");
}

/* ---- training ---- */

static void take_type(const estimate_line *line, estimate_options *options)
{
    const bool is_published = options->model != NULL;
    const bool is_bf16 = estimate_has(line, ESTIMATE_bf16);
    const bool is_fp16 = estimate_has(line, ESTIMATE_fp16);
    const bool is_given = is_bf16 || is_fp16 || estimate_has(line, ESTIMATE_fp32);
    options->config.type = is_bf16 || (is_published && !is_given) ? PST_TRAIN_BF16
                           : is_fp16                              ? PST_TRAIN_FP16
                                                                  : PST_TRAIN_FP32;
    if (!is_given)
        estimate_note(&options->assumptions,
                      is_published ? "--bf16" : "fp32: neither --bf16 nor --fp16 was given");
}

/* Masters and moments of precision-aware Adam. Where weights are bf16 and masters fp32, only the
 * half of a master that its weight has not is kept. */
static uint64_t aware_width(const estimate_line *line, pst_train_type type)
{
    static const uint64_t moment_bytes[] = {4, 2, 2, 1};
    const bool is_half = estimate_number(line, ESTIMATE_main_params_dtype, 0) == 1;
    const uint64_t master = is_half || type == PST_TRAIN_BF16 ? 2 : 4;
    return master + moment_bytes[estimate_number(line, ESTIMATE_exp_avg_dtype, 0)] +
           moment_bytes[estimate_number(line, ESTIMATE_exp_avg_sq_dtype, 0)];
}

static int check_aware(const estimate_line *line)
{
    static const estimate_id ids[] = {ESTIMATE_main_grads_dtype, ESTIMATE_main_params_dtype,
                                      ESTIMATE_exp_avg_dtype, ESTIMATE_exp_avg_sq_dtype};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
        if (estimate_number(line, ids[i], 0) != 0 &&
            !estimate_has(line, ESTIMATE_use_precision_aware_optimizer))
            return estimate_refuse_flag(line, ids[i], "needs --use-precision-aware-optimizer");
    return TOOL_OK;
}

/* Gradients in fp16 have an fp32 copy beside the optimizer's; those in bf16 only while it steps. */
static int take_widths(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    const bool is_fp32 = config->type == PST_TRAIN_FP32, is_bf16 = config->type == PST_TRAIN_BF16;
    const bool is_wide =
        is_fp32 || (is_bf16 ? !estimate_has(line, ESTIMATE_grad_reduce_in_bf16)
                            : estimate_has(line, ESTIMATE_accumulate_allreduce_grads_in_fp32));
    const char *optimizer = estimate_text(line, ESTIMATE_optimizer);
    TOOL_TRY(check_aware(line));
    config->gradient_width = is_wide ? 4 : 2;
    config->optimizer_width = is_fp32 ? 8 : is_wide || is_bf16 ? 12 : 16;
    if (estimate_has(line, ESTIMATE_use_precision_aware_optimizer) && !is_fp32) {
        if (estimate_number(line, ESTIMATE_main_grads_dtype, 0) == 1)
            config->gradient_width = 2;
        config->optimizer_width = aware_width(line, config->type);
    }
    if (optimizer == NULL || strcmp(optimizer, "adam") == 0)
        return TOOL_OK;
    if (strcmp(optimizer, "sgd") == 0 || strcmp(optimizer, "lion") == 0) {
        config->optimizer_width -= 4; /* one moment instead of two */
        return TOOL_OK;
    }
    estimate_note(&options->unmodelled, "--optimizer %.80s (counted as adam)", optimizer);
    estimate_note(&options->matters, "--optimizer %.80s (counted as adam)", optimizer);
    estimate_take_effect(options, ESTIMATE_OTHER_STATES);
    return TOOL_OK;
}

static int take_training(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    const estimate_given *fraction = &line->flags[ESTIMATE_optimizer_offload_fraction];
    take_type(line, options);
    TOOL_TRY(take_widths(line, options));
    if (!estimate_has(line, ESTIMATE_optimizer_cpu_offload))
        return TOOL_OK;
    config->offload_num = fraction->text != NULL ? fraction->num : 1;
    config->offload_den = fraction->text != NULL ? fraction->den : 1;
    return config->offload_num <= config->offload_den
               ? TOOL_OK
               : estimate_refuse_flag(line, ESTIMATE_optimizer_offload_fraction, "allowed is 0..1");
}

/* ---- what is narrowed, shared among replicas, or sent to host memory ---- */

/* Of a flag of many words one of num_more + 1. */
static const char *word_at(const estimate_given *given, int i)
{
    return i == 0 ? given->text : given->more[i - 1];
}

static void take_fp8(const estimate_line *line, pst_estimate_config *config)
{
    static const pst_fp8 recipes[] = {PST_FP8_TENSORWISE, PST_FP8_TENSORWISE, PST_FP8_BLOCKWISE,
                                      PST_FP8_MXFP8};
    if (estimate_has(line, ESTIMATE_fp8_format))
        config->fp8 = recipes[estimate_number(line, ESTIMATE_fp8_recipe, 0)];
}

/* Gradients have the type of the weights, and with fp8 are bf16, unless the flag says otherwise. The
 * masters are not the weights, in fp32 either. */
static void take_megatron(const estimate_line *line, pst_estimate_config *config)
{
    enum { NO_SHARD, OPTIM, OPTIM_GRADS, ALL };
    enum { FP32, BF16, FP16, AUTO };
    const uint64_t strategy = estimate_number(line, ESTIMATE_data_parallel_sharding_strategy, ALL);
    const uint64_t gradients = estimate_number(line, ESTIMATE_megatron_fsdp_main_grads_dtype, AUTO);
    const bool is_wide = config->type == PST_TRAIN_FP32 && !config->keeps_fp8_weights;
    config->distributed_optimizer = strategy != NO_SHARD;
    config->sharding = strategy == ALL           ? PST_SHARDING_WEIGHTS
                       : strategy == OPTIM_GRADS ? PST_SHARDING_GRADIENTS
                                                 : PST_SHARDING_NONE;
    config->gradient_width = gradients == FP32 || (gradients == AUTO && is_wide) ? 4 : 2;
    config->optimizer_width = 12;
    config->doubles_buffers =
        estimate_has(line, ESTIMATE_fsdp_double_buffer) || estimate_has(line, ESTIMATE_use_nccl_ub);
}

/* Gradients are reduced in the type of the weights; masters are beside these. */
static void take_torch(const estimate_line *line, pst_estimate_config *config)
{
    const bool keeps = estimate_has(line, ESTIMATE_torch_fsdp2_no_reshard_after_forward);
    config->sharding = keeps ? PST_SHARDING_TORCH_GRADIENTS : PST_SHARDING_TORCH_WEIGHTS;
    if (config->type != PST_TRAIN_FP32)
        config->gradient_width = 2;
}

static int take_offloading(const estimate_line *line, pst_estimate_config *config)
{
    const estimate_given *modules = &line->flags[ESTIMATE_offload_modules];
    if (!estimate_has(line, ESTIMATE_fine_grained_activation_offloading))
        return TOOL_OK;
    if (modules->text == NULL)
        return estimate_refuse_flag(line, ESTIMATE_fine_grained_activation_offloading,
                                    "needs --offload-modules");
    for (int i = 0; i <= modules->num_more; i++)
        if (!estimate_add_bit(word_at(modules, i), ESTIMATE_OFFLOADED, &config->offload_modules))
            return estimate_refuse_flag(line, ESTIMATE_offload_modules,
                                        "allowed are names of " ESTIMATE_OFFLOADED);
    return TOOL_OK;
}

/* A search takes what sends least where no flag says otherwise. */
static int take_dispatcher(const estimate_line *line, estimate_options *options)
{
    enum { ALLTOALL = 1, FLEX = 3 };
    enum { DEEPEP, HYBRIDEP };
    const bool is_free =
        options->mode == ESTIMATE_SEARCH && !estimate_has(line, ESTIMATE_moe_token_dispatcher_type);
    const uint64_t type =
        estimate_number(line, ESTIMATE_moe_token_dispatcher_type, is_free ? FLEX : ALLTOALL);
    if (estimate_has(line, ESTIMATE_moe_enable_deepep) && type != FLEX)
        return estimate_refuse_flag(line, ESTIMATE_moe_enable_deepep,
                                    "needs --moe-token-dispatcher-type flex");
    if (estimate_has(line, ESTIMATE_moe_enable_deepep) &&
        estimate_number(line, ESTIMATE_moe_flex_dispatcher_backend, DEEPEP) == HYBRIDEP)
        return estimate_refuse_flag(line, ESTIMATE_moe_enable_deepep,
                                    "not with --moe-flex-dispatcher-backend hybridep");
    if (options->config.num_experts != 0)
        options->config.dispatcher = type == FLEX ? PST_DISPATCHER_FLEX : PST_DISPATCHER_ALLTOALL;
    return TOOL_OK;
}

static int take_sharing(const estimate_line *line, pst_estimate_config *config)
{
    take_fp8(line, config);
    if (estimate_has(line, ESTIMATE_use_megatron_fsdp) &&
        estimate_has(line, ESTIMATE_use_torch_fsdp2))
        return estimate_refuse_flag(line, ESTIMATE_use_torch_fsdp2, "not with --use-megatron-fsdp");
    if (estimate_has(line, ESTIMATE_use_megatron_fsdp))
        take_megatron(line, config);
    if (estimate_has(line, ESTIMATE_use_torch_fsdp2))
        take_torch(line, config);
    return take_offloading(line, config);
}

/* ---- what layers save ---- */

static int check_dropout(const estimate_line *line, estimate_id id)
{
    const estimate_given *given = &line->flags[id];
    return given->text == NULL || given->num < given->den
               ? TOOL_OK
               : estimate_refuse_flag(line, id, "allowed is 0, and above it below 1");
}

static bool is_local(const estimate_line *line)
{
    return estimate_has(line, ESTIMATE_transformer_impl) &&
           estimate_number(line, ESTIMATE_transformer_impl, 0) == 0;
}

static void take_flash(const estimate_line *line, estimate_options *options)
{
    enum { FLASH, FUSED, UNFUSED, LOCAL, AUTO };
    const uint64_t backend = estimate_number(line, ESTIMATE_attention_backend, AUTO);
    bool *flash = &options->config.has_flash_attention;
    if (backend != AUTO || estimate_has(line, ESTIMATE_use_flash_attn)) {
        *flash = backend != UNFUSED && backend != LOCAL;
        return;
    }
    *flash = !is_local(line);
    estimate_note(&options->assumptions,
                  *flash ? "flash attention, as --attention-backend auto takes it"
                         : "no flash attention, as --transformer-impl local has it");
}

static int take_full(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    config->recomputes_block = estimate_number(line, ESTIMATE_recompute_method, 0) == 1;
    config->recompute_layers = estimate_number(line, ESTIMATE_recompute_num_layers, 1);
    if (config->recompute_layers == 0 && !config->recomputes_block)
        return estimate_refuse_flag(line, ESTIMATE_recompute_num_layers,
                                    "must be above 0, but with --recompute-method block, where it "
                                    "means none");
    return TOOL_OK;
}

static int take_recompute(const estimate_line *line, estimate_options *options)
{
    enum { FULL, SELECTIVE, NONE };
    pst_estimate_config *config = &options->config;
    const estimate_given *modules = &line->flags[ESTIMATE_recompute_modules];
    const uint64_t granularity =
        estimate_number(line, ESTIMATE_recompute_granularity,
                        estimate_has(line, ESTIMATE_recompute_activations) ? SELECTIVE : NONE);
    if (estimate_number(line, ESTIMATE_tp_recompute_allgather, 1) == 1)
        config->recompute |= PST_RECOMPUTE_GATHER;
    if (estimate_has(line, ESTIMATE_recompute_activation_function))
        config->recompute |= PST_RECOMPUTE_ACTIVATION;
    if (granularity == FULL)
        return take_full(line, options);
    if (granularity == NONE)
        return TOOL_OK;
    for (int i = 0; i <= modules->num_more; i++) {
        const char *name = modules->text != NULL ? word_at(modules, i) : "core_attn";
        if (!estimate_add_bit(name, ESTIMATE_MODULES, &config->recompute))
            estimate_note(&options->unmodelled, "--recompute-modules %.80s", name);
    }
    return TOOL_OK;
}

/* Transformer Engine's attention by all-to-all keeps its output as heads are exchanged and as it comes
 * back, where its ring returns the one that it keeps. */
static void take_exchange(const estimate_line *line, estimate_options *options)
{
    const estimate_given *types = &line->flags[ESTIMATE_cp_comm_type];
    pst_estimate_config *config = &options->config;
    if (types->text == NULL || config->context_parallel == 1 || strcmp(types->text, "p2p") == 0)
        return;
    const bool is_twice = strcmp(types->text, "a2a") == 0;
    config->copies_attention = config->copies_attention || is_twice;
    estimate_note(&options->unmodelled, "--cp-comm-type %.80s%s: %stransfers are a ring's",
                  types->text, types->num_more > 0 ? " ..." : "",
                  is_twice ? "" : "what it saves and its ");
}

/* Megatron-LM's own fusion is compiled, and keeps more than none. */
static pst_loss loss_of(const estimate_line *line)
{
    if (!estimate_has(line, ESTIMATE_cross_entropy_loss_fusion))
        return PST_LOSS_UNFUSED;
    return estimate_number(line, ESTIMATE_cross_entropy_fusion_impl, 0) == 1 ? PST_LOSS_FUSED
                                                                             : PST_LOSS_COPIED;
}

static int take_saved(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    config->loss = (pst_loss)estimate_number(line, ESTIMATE_loss, loss_of(line));
    config->keeps_empty_gradients =
        !is_local(line) && !estimate_has(line, ESTIMATE_no_gradient_accumulation_fusion);
    config->keeps_workspaces = !is_local(line);
    TOOL_TRY(check_dropout(line, ESTIMATE_hidden_dropout));
    TOOL_TRY(check_dropout(line, ESTIMATE_attention_dropout));
    take_flash(line, options);
    take_exchange(line, options);
    TOOL_TRY(take_dispatcher(line, options));
    TOOL_TRY(take_sharing(line, &options->config));
    return take_recompute(line, options);
}

/* ---- what the estimate takes for granted, if no flag said so ---- */

static void note_expert_assumptions(const estimate_line *line, estimate_options *options)
{
    const char *dispatcher = estimate_text(line, ESTIMATE_moe_token_dispatcher_type);
    const pst_moe_rows rows = options->config.moe_rows;
    const bool is_flex = options->config.dispatcher == PST_DISPATCHER_FLEX;
    if (options->config.num_experts == 0)
        return;
    if (dispatcher == NULL)
        estimate_note(&options->assumptions, "--moe-token-dispatcher-type %s",
                      is_flex ? "flex" : "alltoall");
    if (is_flex)
        estimate_note(&options->unmodelled,
                      "--moe-token-dispatcher-type flex: buffers of DeepEP or HybridEP");
    else if (dispatcher != NULL && strncmp(dispatcher, "alltoall", 8) != 0)
        estimate_note(&options->unmodelled, "--moe-token-dispatcher-type %s (counted as alltoall)",
                      dispatcher);
    if (estimate_has(line, ESTIMATE_moe_expert_capacity_factor) && rows == PST_MOE_BALANCED)
        estimate_note(&options->assumptions,
                      "--moe-expert-capacity-factor drops no token: without "
                      "--moe-pad-expert-input-to-capacity it is only a limit");
    if (options->has_load_cv || options->routing != NULL)
        return;
    if (rows == PST_MOE_PAGED && !options->has_capacity)
        estimate_note(&options->assumptions,
                      "--moe-expert-rank-capacity-factor 1: the layer at work has buffers "
                      "for a balanced load");
    estimate_note(&options->assumptions,
                  "balanced routing: --moe-load-cv or --routing say otherwise");
}

static void note_assumptions(const estimate_line *line, estimate_options *options)
{
    const pst_estimate_config *config = &options->config;
    json_t **assumed = &options->assumptions;
    note_expert_assumptions(line, options);
    if (!estimate_has(line, ESTIMATE_micro_batch_size))
        estimate_note(assumed, "--micro-batch-size 1");
    if (options->model != NULL && !estimate_has(line, ESTIMATE_hidden_dropout))
        estimate_note(assumed, "dropout%s, as %.200s has it",
                      config->has_hidden_dropout ? "" : " 0", options->model);
    if (config->sequence_parallel && config->tensor_parallel > 1 &&
        !estimate_has(line, ESTIMATE_tp_recompute_allgather))
        estimate_note(assumed, "--tp-recompute-allgather 1, as Megatron-LM does");
    if (!estimate_has(line, ESTIMATE_no_create_attention_mask_in_dataloader))
        estimate_note(
            assumed,
            "--no-create-attention-mask-in-dataloader: else %llu MiB more on the first and the "
            "last stage",
            (ull)(PSTI_PRODUCT(config->sequence_size, config->sequence_size, config->micro_batch) >>
                  20));
    if (options->takes_gpu_memory)
        estimate_note(assumed, "--gpu-memory %lluMiB: of --gpu %.80s",
                      (ull)(options->memory_bytes >> 20), options->gpu_name);
    else if (!estimate_has(line, ESTIMATE_gpu_memory))
        estimate_note(assumed, "--gpu-memory 80GiB");
    if (!options->has_overhead)
        estimate_note(assumed, "--overhead %lluMiB: context and NCCL, as others measured them",
                      (ull)(options->reserve.overhead_bytes >> 20));
    if (!estimate_has(line, ESTIMATE_fragmentation))
        estimate_note(assumed,
                      "--fragmentation %.2f: what torch reserves above its peak, by runs of others",
                      PST_ESTIMATE_FRAGMENTATION / 1000.0);
}

/* Of what is refused later, no overhead. */
static void take_reserve(const estimate_line *line, estimate_options *options)
{
    const estimate_given *given = &line->flags[ESTIMATE_fragmentation];
    const bool has = estimate_has(line, ESTIMATE_fragmentation);
    estimate_reserve *reserve = &options->reserve;
    options->has_overhead = estimate_has(line, ESTIMATE_overhead);
    if (!options->has_overhead)
        (void)pst_estimate_get_reserve(&options->config, &reserve->overhead_bytes);
    reserve->fragmentation_num = has ? given->num : PST_ESTIMATE_FRAGMENTATION;
    reserve->fragmentation_den = has ? given->den : 1000;
}

int estimate_resolve(const estimate_line *line, estimate_options *options)
{
    pst_estimate_fault fault;
    TOOL_TRY(estimate_take_model(line, options));
    TOOL_TRY(take_training(line, options));
    take_world(line, options);
    TOOL_TRY(estimate_chunks(line, options));
    take_batch(options);
    TOOL_TRY(take_saved(line, options));
    TOOL_TRY(estimate_take_buffers(line, options));
    take_reserve(line, options);
    note_assumptions(line, options);
    if (options->config.chunk_layers != NULL) /* which is for these numbers of stages alone */
        options->keeps[1] = options->keeps[2] = true;
    const pst_status status = pst_estimate_find_fault(&options->config, &fault);
    /* a search tries other splits; a picture is of this one */
    if (status == PST_E_INVALID && (options->mode != ESTIMATE_SEARCH || options->html != NULL))
        return estimate_refuse(line, "%s", fault.reason);
    if (status != PST_E_INVALID)
        TOOL_PST(status);
    if (estimate_has(line, ESTIMATE_timeline) &&
        options->timeline_stage >= options->config.pipeline_parallel)
        return tool_fail(TOOL_USAGE, "--timeline %llu: --pipeline-model-parallel-size is %llu",
                         (ull)options->timeline_stage, (ull)options->config.pipeline_parallel);
    return TOOL_OK;
}
