/* Flags of what is narrowed, shared among replicas, or sent to host memory. */
#include "tools/estimate/estimate_flags.h"

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

static int take_module(const estimate_line *line, const char *name, pst_estimate_config *config)
{
    return estimate_add_bit(name, ESTIMATE_OFFLOADED, &config->offload_modules)
               ? TOOL_OK
               : estimate_refuse_flag(line, ESTIMATE_offload_modules,
                                      "allowed are names of " ESTIMATE_OFFLOADED);
}

static int take_offloading(const estimate_line *line, pst_estimate_config *config)
{
    const estimate_given *modules = &line->flags[ESTIMATE_offload_modules];
    if (!estimate_has(line, ESTIMATE_fine_grained_activation_offloading))
        return TOOL_OK;
    if (modules->text == NULL)
        return estimate_refuse_flag(line, ESTIMATE_fine_grained_activation_offloading,
                                    "needs --offload-modules");
    TOOL_TRY(take_module(line, modules->text, config));
    for (int i = 0; i < modules->num_more; i++)
        TOOL_TRY(take_module(line, modules->more[i], config));
    return TOOL_OK;
}

int estimate_take_sharing(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
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
