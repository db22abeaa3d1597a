/* From flags to a configuration without zeros that mean something else. */
#include "tools/estimate/estimate_flags.h"

#include <string.h>

#include "host/base/arith.h"

typedef unsigned long long ull;

static void take_split(const estimate_line *line, pst_estimate_config *config)
{
    config->tensor_parallel = config->pipeline_parallel = config->virtual_stages = 1;
    config->context_parallel = config->expert_parallel = 1;
    estimate_take_fields(line, ESTIMATE_OF_SPLIT, config);
    if (config->expert_tensor_parallel == 0)
        config->expert_tensor_parallel = config->tensor_parallel;
    if (config->micro_batch_group_size == 0)
        config->micro_batch_group_size = config->pipeline_parallel;
}

static int take_world(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    uint64_t nodes = 1, gpus = 1;
    const uint64_t stages = config->pipeline_parallel;
    const uint64_t dense =
        psti_times(psti_times(config->tensor_parallel, stages), config->context_parallel);
    const uint64_t experts =
        psti_times(psti_times(config->expert_tensor_parallel, stages), config->expert_parallel);
    estimate_take_number(line, ESTIMATE_F_NNODES, &nodes);
    estimate_take_number(line, ESTIMATE_F_NPROC_PER_NODE, &gpus);
    if (config->world_size == 0 &&
        (estimate_has(line, ESTIMATE_F_NNODES) || estimate_has(line, ESTIMATE_F_NPROC_PER_NODE)))
        config->world_size = psti_times(nodes, gpus);
    if (config->world_size == 0) {
        config->world_size = config->num_experts != 0
                                 ? psti_times(dense / psti_gcd(dense, experts), experts)
                                 : dense;
        TOOL_TRY(estimate_note(&options->assumptions,
                               "--world-size %llu, smallest valid world size",
                               (ull)config->world_size));
    }
    return TOOL_OK;
}

/* Of a known split. Megatron's default is one micro-batch, which interleaving cannot do with. */
/* At least as many micro-batches as stages, without which a pipeline never fills. */
static int take_batch(estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    if (config->global_batch != 0)
        return TOOL_OK;
    const uint64_t dense = psti_times(
        psti_times(config->tensor_parallel, config->pipeline_parallel), config->context_parallel);
    const uint64_t group = config->virtual_stages > 1 ? config->micro_batch_group_size : 1;
    const uint64_t each = psti_times(psti_div_up(config->pipeline_parallel, group), group);
    config->global_batch =
        psti_times(psti_times(config->micro_batch, each), config->world_size / dense);
    return estimate_note(&options->assumptions, "--global-batch-size %llu: %llu micro-batch%s each",
                         (ull)config->global_batch, (ull)each, each > 1 ? "es" : "");
}

/* ---- training ---- */

static int take_type(const estimate_line *line, estimate_options *options)
{
    static const estimate_flag ids[] = {ESTIMATE_F_BF16, ESTIMATE_F_FP16, ESTIMATE_F_FP32};
    int given = -1;
    for (int i = 0; i < 3; i++)
        given = estimate_has(line, ids[i]) ? i : given;
    const bool is_published =
        estimate_has(line, ESTIMATE_F_PRESET) || estimate_has(line, ESTIMATE_F_HF_CONFIG);
    options->config.type = given >= 0     ? (pst_train_type)given
                           : is_published ? PST_TRAIN_BF16
                                          : PST_TRAIN_FP32;
    if (given >= 0)
        return TOOL_OK;
    return estimate_note(&options->assumptions,
                         is_published ? "--bf16" : "fp32: neither --bf16 nor --fp16 was given");
}

/* Masters and moments of precision-aware Adam. Where weights are bf16 and masters fp32, only the
 * half of a master that its weight has not is kept. */
static uint64_t aware_width(const estimate_line *line, pst_train_type type)
{
    static const uint64_t moment_bytes[] = {4, 2, 2, 1};
    const bool is_half = estimate_choice(line, ESTIMATE_F_MAIN_PARAMS_DTYPE, 0) == 1;
    const uint64_t master = is_half || type == PST_TRAIN_BF16 ? 2 : 4;
    return master + moment_bytes[estimate_choice(line, ESTIMATE_F_EXP_AVG_DTYPE, 0)] +
           moment_bytes[estimate_choice(line, ESTIMATE_F_EXP_AVG_SQ_DTYPE, 0)];
}

static int check_aware(const estimate_line *line)
{
    static const estimate_flag ids[] = {ESTIMATE_F_MAIN_GRADS_DTYPE, ESTIMATE_F_MAIN_PARAMS_DTYPE,
                                        ESTIMATE_F_EXP_AVG_DTYPE, ESTIMATE_F_EXP_AVG_SQ_DTYPE};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
        if (estimate_choice(line, ids[i], 0) != 0 &&
            !estimate_has(line, ESTIMATE_F_PRECISION_AWARE))
            return tool_fail(TOOL_USAGE, "--%s %s: needs --use-precision-aware-optimizer",
                             estimate_flag_table[ids[i]].name, estimate_text(line, ids[i]));
    return TOOL_OK;
}

/* Gradients in fp16 have an fp32 copy beside the optimizer's; those in bf16 only while it steps. */
static int take_widths(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    const bool is_fp32 = config->type == PST_TRAIN_FP32;
    const bool is_wide = is_fp32 || (config->type == PST_TRAIN_BF16
                                         ? !estimate_has(line, ESTIMATE_F_GRAD_REDUCE_IN_BF16)
                                         : estimate_has(line, ESTIMATE_F_ACCUMULATE_IN_FP32));
    const char *optimizer = estimate_text(line, ESTIMATE_F_OPTIMIZER);
    TOOL_TRY(check_aware(line));
    config->gradient_width = is_wide ? 4 : 2;
    config->optimizer_width = is_fp32 ? 8 : is_wide || config->type == PST_TRAIN_BF16 ? 12 : 16;
    if (estimate_has(line, ESTIMATE_F_PRECISION_AWARE) && !is_fp32) {
        const bool is_half = estimate_choice(line, ESTIMATE_F_MAIN_GRADS_DTYPE, 0) == 1;
        config->gradient_width = is_half ? 2 : config->gradient_width;
        config->optimizer_width = aware_width(line, config->type);
    }
    if (optimizer == NULL || strcmp(optimizer, "adam") == 0)
        return TOOL_OK;
    /* one moment instead of two */
    if (strcmp(optimizer, "sgd") == 0 || strcmp(optimizer, "lion") == 0) {
        config->optimizer_width -= 4;
        return TOOL_OK;
    }
    return estimate_note(&options->unmodelled, "--optimizer %.80s (counted as adam)", optimizer);
}

static int take_training(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    if (config->micro_batch == 0)
        config->micro_batch = 1;
    TOOL_TRY(take_type(line, options));
    TOOL_TRY(take_widths(line, options));
    if (!estimate_has(line, ESTIMATE_F_OPTIMIZER_CPU_OFFLOAD))
        return TOOL_OK;
    config->offload_num = config->offload_den = 1;
    estimate_take_decimal(line, ESTIMATE_F_OPTIMIZER_OFFLOAD_FRACTION, &config->offload_num,
                          &config->offload_den);
    if (config->offload_num > config->offload_den)
        return tool_fail(TOOL_USAGE, "--optimizer-offload-fraction %.80s: allowed is 0..1",
                         estimate_text(line, ESTIMATE_F_OPTIMIZER_OFFLOAD_FRACTION));
    return TOOL_OK;
}

/* ---- what layers save ---- */

static int take_dropout(const estimate_line *line, estimate_flag id, bool *field)
{
    uint64_t num = 0, den = 1;
    if (!estimate_has(line, id))
        return TOOL_OK;
    estimate_take_decimal(line, id, &num, &den);
    if (num >= den)
        return tool_fail(TOOL_USAGE, "--%s %.80s: allowed is 0, and above it below 1",
                         estimate_flag_table[id].name, estimate_text(line, id));
    *field = num != 0;
    return TOOL_OK;
}

static int take_flash(const estimate_line *line, estimate_options *options)
{
    enum { FLASH, FUSED, UNFUSED, LOCAL, AUTO };
    const int backend = estimate_choice(line, ESTIMATE_F_ATTENTION_BACKEND, AUTO);
    const bool is_local = estimate_choice(line, ESTIMATE_F_TRANSFORMER_IMPL, 1) == 0;
    bool *flash = &options->config.has_flash_attention;
    if (backend != AUTO || estimate_has(line, ESTIMATE_F_USE_FLASH_ATTN)) {
        *flash = backend != UNFUSED && backend != LOCAL;
        return TOOL_OK;
    }
    *flash = !is_local;
    return estimate_note(&options->assumptions,
                         is_local ? "no flash attention, as --transformer-impl local has it"
                                  : "flash attention, as --attention-backend auto takes it");
}

static int take_module(estimate_options *options, const char *name)
{
    uint32_t *bits = &options->config.recompute;
    if (strcmp(name, "core_attn") == 0)
        *bits |= PST_RECOMPUTE_ATTENTION;
    else if (strcmp(name, "moe_act") == 0)
        *bits |= PST_RECOMPUTE_EXPERTS;
    else if (strcmp(name, "layernorm") == 0)
        *bits |= PST_RECOMPUTE_NORM;
    else
        return estimate_note(&options->unmodelled, "--recompute-modules %.80s", name);
    return TOOL_OK;
}

static int take_full(const estimate_line *line, estimate_options *options)
{
    uint64_t *layers = &options->config.recompute_layers;
    const bool is_block = estimate_choice(line, ESTIMATE_F_RECOMPUTE_METHOD, 0) == 1;
    *layers = 1;
    estimate_take_number(line, ESTIMATE_F_RECOMPUTE_NUM_LAYERS, layers);
    if (*layers == 0 && !is_block)
        return tool_fail(TOOL_USAGE, "--recompute-num-layers 0: must be above 0, but with "
                                     "--recompute-method block, where it means none");
    if (*layers == 0 || !is_block)
        return TOOL_OK;
    *layers = 1;
    return estimate_note(&options->unmodelled, "--recompute-method block (counted as if every "
                                               "layer were recomputed)");
}

static int take_recompute(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    const estimate_given *modules = &line->flags[ESTIMATE_F_RECOMPUTE_MODULES];
    const int granularity =
        estimate_choice(line, ESTIMATE_F_RECOMPUTE_GRANULARITY,
                        estimate_has(line, ESTIMATE_F_RECOMPUTE_ACTIVATIONS) ? 1 : -1);
    config->recompute =
        estimate_choice(line, ESTIMATE_F_TP_RECOMPUTE_ALLGATHER, 1) == 1 ? PST_RECOMPUTE_GATHER : 0;
    if (estimate_has(line, ESTIMATE_F_RECOMPUTE_ACTIVATION_FUNCTION))
        config->recompute |= PST_RECOMPUTE_ACTIVATION;
    if (granularity == 0)
        return take_full(line, options);
    if (granularity < 0)
        return TOOL_OK;
    TOOL_TRY(take_module(options, modules->value != NULL ? modules->value : "core_attn"));
    for (int i = 0; i < modules->num_more; i++)
        TOOL_TRY(take_module(options, modules->more[i]));
    return TOOL_OK;
}

/* Transformer Engine's attention by all-to-all keeps its output as heads are exchanged and as it comes
 * back, where its ring returns the one that it keeps. */
static int take_exchange(const estimate_line *line, estimate_options *options)
{
    const estimate_given *types = &line->flags[ESTIMATE_F_CP_COMM_TYPE];
    pst_estimate_config *config = &options->config;
    if (types->value == NULL || config->context_parallel == 1 || strcmp(types->value, "p2p") == 0)
        return TOOL_OK;
    config->copies_attention = strcmp(types->value, "a2a") == 0;
    return estimate_note(&options->unmodelled, "--cp-comm-type %.80s%s: %stransfers are a ring's",
                         types->value, types->num_more > 0 ? " ..." : "",
                         config->copies_attention ? "" : "what it saves and its ");
}

static int take_saved(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    config->fuses_activation = true;
    estimate_take_fields(line, ESTIMATE_OF_SAVED, config);
    config->loss = estimate_has(line, ESTIMATE_F_CROSS_ENTROPY_LOSS_FUSION) ? PST_LOSS_FUSED
                                                                            : PST_LOSS_UNFUSED;
    config->keeps_empty_gradients = estimate_choice(line, ESTIMATE_F_TRANSFORMER_IMPL, 1) != 0 &&
                                    !estimate_has(line, ESTIMATE_F_NO_GRADIENT_FUSION);
    TOOL_TRY(take_dropout(line, ESTIMATE_F_HIDDEN_DROPOUT, &config->has_hidden_dropout));
    TOOL_TRY(take_dropout(line, ESTIMATE_F_ATTENTION_DROPOUT, &config->has_attention_dropout));
    TOOL_TRY(take_flash(line, options));
    TOOL_TRY(take_exchange(line, options));
    return take_recompute(line, options);
}

/* ---- what the estimate takes for granted, if no flag said so ---- */

static int note_expert_assumptions(const estimate_line *line, estimate_options *options)
{
    const char *dispatcher = estimate_text(line, ESTIMATE_F_MOE_TOKEN_DISPATCHER_TYPE);
    if (options->config.num_experts == 0)
        return TOOL_OK;
    if (dispatcher == NULL)
        TOOL_TRY(estimate_note(&options->assumptions, "--moe-token-dispatcher-type alltoall"));
    else if (strncmp(dispatcher, "alltoall", 8) != 0)
        TOOL_TRY(estimate_note(&options->unmodelled,
                               "--moe-token-dispatcher-type %s (counted as alltoall)", dispatcher));
    if (estimate_has(line, ESTIMATE_F_MOE_EXPERT_CAPACITY_FACTOR) &&
        options->config.moe_rows == PST_MOE_BALANCED)
        TOOL_TRY(estimate_note(&options->assumptions,
                               "--moe-expert-capacity-factor drops no token: without "
                               "--moe-pad-expert-input-to-capacity it is only a limit"));
    if (options->has_load_cv || options->routing != NULL)
        return TOOL_OK;
    if (options->config.moe_rows == PST_MOE_PAGED && !options->has_capacity)
        TOOL_TRY(estimate_note(&options->assumptions,
                               "--moe-expert-rank-capacity-factor 1: the layer at work has buffers "
                               "for a balanced load"));
    return estimate_note(&options->assumptions, "balanced routing: --moe-load-cv or --routing say "
                                                "otherwise");
}

static int note_assumptions(const estimate_line *line, estimate_options *options)
{
    const pst_estimate_config *config = &options->config;
    TOOL_TRY(note_expert_assumptions(line, options));
    if (!estimate_has(line, ESTIMATE_F_MICRO_BATCH_SIZE))
        TOOL_TRY(estimate_note(&options->assumptions, "--micro-batch-size 1"));
    if ((options->preset != NULL || options->hf_config != NULL) &&
        !estimate_has(line, ESTIMATE_F_HIDDEN_DROPOUT))
        TOOL_TRY(estimate_note(&options->assumptions, "dropout%s, as %.200s has it",
                               config->has_hidden_dropout ? "" : " 0",
                               options->preset ? options->preset : options->hf_config));
    if (config->sequence_parallel && config->tensor_parallel > 1 &&
        !estimate_has(line, ESTIMATE_F_TP_RECOMPUTE_ALLGATHER))
        TOOL_TRY(estimate_note(&options->assumptions,
                               "--tp-recompute-allgather 1, as Megatron-LM does"));
    if (!estimate_has(line, ESTIMATE_F_NO_LOADER_MASK))
        TOOL_TRY(estimate_note(
            &options->assumptions,
            "--no-create-attention-mask-in-dataloader: else %llu MiB more on the first and the "
            "last stage",
            (ull)(psti_times(psti_times(config->sequence_size, config->sequence_size),
                             config->micro_batch) >>
                  20)));
    if (!estimate_has(line, ESTIMATE_F_GPU_MEMORY))
        TOOL_TRY(estimate_note(&options->assumptions, "--gpu-memory 80GiB"));
    if (!estimate_has(line, ESTIMATE_F_OVERHEAD))
        TOOL_TRY(estimate_note(&options->assumptions,
                               "--overhead 0: no CUDA context, no buffers of NCCL"));
    return TOOL_OK;
}

static int take_all(const estimate_line *line, estimate_options *options)
{
    TOOL_TRY(estimate_take_model(line, options));
    take_split(line, &options->config);
    TOOL_TRY(take_training(line, options));
    TOOL_TRY(take_world(line, options));
    TOOL_TRY(estimate_chunks(line, options));
    TOOL_TRY(take_batch(options));
    TOOL_TRY(take_saved(line, options));
    TOOL_TRY(estimate_take_buffers(line, options));
    return note_assumptions(line, options);
}

int estimate_resolve(const estimate_line *line, estimate_options *options)
{
    TOOL_TRY(take_all(line, options));
    const pst_status status = pst_estimate_check(&options->config);
    /* a search tries other splits */
    if (status == PST_E_INVALID && options->mode != ESTIMATE_SEARCH)
        return estimate_refuse(line, "%s", tool_last_message());
    if (status != PST_E_INVALID)
        TOOL_PST(status);
    const uint64_t stages = options->config.pipeline_parallel;
    if (options->timeline_stage != UINT64_MAX && options->timeline_stage >= stages)
        return tool_fail(TOOL_USAGE, "--timeline %llu: --pipeline-model-parallel-size is %llu",
                         (ull)options->timeline_stage, (ull)stages);
    return TOOL_OK;
}
