/* What one switch would do to the stage that needs most. */
#include "tools/estimate/estimate_figures.h"

/* A switch: turns it in the config, or says that it is turned already. */
typedef struct whatif {
    const char *change;
    bool (*turn)(pst_estimate_config *config);
} whatif;

static bool set(bool *field, bool value)
{
    const bool is_new = *field != value;
    *field = value;
    return is_new;
}

static bool add_bit(pst_estimate_config *config, uint32_t bit)
{
    const bool is_new = (config->recompute & bit) == 0;
    config->recompute |= bit;
    return is_new;
}

static bool gather_again(pst_estimate_config *config)
{
    return config->sequence_parallel && config->tensor_parallel > 1 &&
           add_bit(config, PST_RECOMPUTE_GATHER);
}

static bool keep_gathered(pst_estimate_config *config)
{
    const bool is_new = (config->recompute & PST_RECOMPUTE_GATHER) != 0;
    config->recompute &= ~PST_RECOMPUTE_GATHER;
    return config->sequence_parallel && config->tensor_parallel > 1 && is_new;
}

static bool norm_again(pst_estimate_config *config)
{
    return add_bit(config, PST_RECOMPUTE_NORM);
}

static bool activation_again(pst_estimate_config *config)
{
    return add_bit(config, PST_RECOMPUTE_ACTIVATION);
}

static bool experts_again(pst_estimate_config *config)
{
    return config->num_experts != 0 && (config->recompute & PST_RECOMPUTE_ACTIVATION) == 0 &&
           add_bit(config, PST_RECOMPUTE_EXPERTS);
}

static bool attention_again(pst_estimate_config *config)
{
    return add_bit(config, PST_RECOMPUTE_ATTENTION);
}

static bool layers_again(pst_estimate_config *config)
{
    const bool is_new = config->recompute_layers == 0;
    config->recompute_layers = 1;
    if (config->moe_rows == PST_MOE_PAGED) /* which has nothing to page then */
        config->moe_rows = PST_MOE_CAPACITY;
    return is_new;
}

static bool fuse_activation(pst_estimate_config *config)
{
    return config->is_gated && set(&config->fuses_activation, true);
}

static bool fp8_inputs(pst_estimate_config *config)
{
    return set(&config->saves_inputs_fp8, true);
}

static bool fuse_loss(pst_estimate_config *config)
{
    const bool is_new = config->loss != PST_LOSS_FUSED;
    config->loss = PST_LOSS_FUSED;
    return is_new;
}

static bool flash(pst_estimate_config *config)
{
    return set(&config->has_flash_attention, true);
}

static bool sequence(pst_estimate_config *config)
{
    return config->tensor_parallel > 1 && set(&config->sequence_parallel, true);
}

static bool shard_optimizer(pst_estimate_config *config)
{
    return set(&config->distributed_optimizer, true);
}

static bool bf16_gradients(pst_estimate_config *config)
{
    const bool is_new = config->type == PST_TRAIN_BF16 &&
                        (config->gradient_width == 0 || config->gradient_width > 2);
    config->gradient_width = 2;
    return is_new;
}

static bool offload(pst_estimate_config *config)
{
    const bool is_new = config->offload_den == 0 || config->offload_num < config->offload_den;
    config->offload_num = config->offload_den = 1;
    return is_new;
}

static bool early_probs(pst_estimate_config *config)
{
    return config->num_experts != 0 && set(&config->applies_probs_late, false);
}

static bool rows(pst_estimate_config *config, pst_moe_rows kind)
{
    const bool is_new = config->num_experts != 0 && config->moe_rows != kind;
    config->moe_rows = kind;
    return is_new;
}

static bool balanced_rows(pst_estimate_config *config)
{
    return rows(config, PST_MOE_BALANCED);
}

static bool capacity_rows(pst_estimate_config *config)
{
    const bool is_above = config->capacity_den != 0 && config->capacity_num > config->capacity_den;
    return is_above && rows(config, PST_MOE_CAPACITY);
}

static bool worst_rows(pst_estimate_config *config)
{
    return rows(config, PST_MOE_WORST);
}

static bool paged_rows(pst_estimate_config *config)
{
    return rows(config, PST_MOE_PAGED);
}

/* Paged, and the layer at work has room for whatever the router does. */
static bool paged_worst_rows(pst_estimate_config *config)
{
    const uint64_t local = config->num_experts / config->expert_parallel;
    const uint64_t most = config->experts_per_token < local ? config->experts_per_token : local;
    config->capacity_num = config->expert_parallel * most;
    config->capacity_den = config->experts_per_token;
    config->caps_each_expert = false;
    config->moe_rows = PST_MOE_PAGED;
    return config->num_experts != 0;
}

static bool plain_pipeline(pst_estimate_config *config)
{
    const bool is_new = config->virtual_stages > 1 && config->chunk_layers == NULL;
    config->virtual_stages = 1;
    config->overlaps_exchange = false;
    return is_new;
}

static bool halve_micro_batch(pst_estimate_config *config)
{
    const bool is_even = config->micro_batch % 2 == 0;
    config->micro_batch /= 2;
    return is_even;
}

static const whatif whatifs[] = {
    {"--tp-recompute-allgather 1", gather_again},
    {"--tp-recompute-allgather 0", keep_gathered},
    {"--recompute-granularity selective --recompute-modules layernorm", norm_again},
    {"--recompute-activation-function", activation_again},
    {"--recompute-granularity selective --recompute-modules moe_act", experts_again},
    {"--recompute-granularity selective --recompute-modules core_attn", attention_again},
    {"--recompute-granularity full --recompute-num-layers 1", layers_again},
    {"fused gated activation", fuse_activation},
    {"--activation-func-fp8-input-store", fp8_inputs},
    {"--cross-entropy-loss-fusion", fuse_loss},
    {"--use-flash-attn", flash},
    {"--sequence-parallel", sequence},
    {"--use-distributed-optimizer", shard_optimizer},
    {"--grad-reduce-in-bf16", bf16_gradients},
    {"--optimizer-cpu-offload", offload},
    {"--moe-probs act", early_probs},
    {"--moe-buffer balanced", balanced_rows},
    {"--moe-buffer capacity", capacity_rows},
    {"--moe-buffer worst", worst_rows},
    {"--moe-buffer paged", paged_rows},
    {"--moe-buffer paged, working buffer for the worst routing", paged_worst_rows},
    {"no virtual pipeline stages", plain_pipeline},
    {"half of --micro-batch-size", halve_micro_batch},
};
_Static_assert(sizeof(whatifs) / sizeof(whatifs[0]) == ESTIMATE_NUM_WHATIFS,
               "as many as there are");

static pst_status figures_of(const pst_estimate_config *config, uint64_t stage,
                             pst_estimate_memory *memory_out, uint64_t *wire_bytes_out)
{
    pst_estimate_traffic traffic;
    TOOL_TRY(pst_estimate_get_memory(config, stage, NULL, memory_out));
    TOOL_TRY(pst_estimate_get_traffic(config, stage, &traffic));
    *wire_bytes_out = estimate_wire_bytes(&traffic);
    return PST_OK;
}

/* Adds nothing where the switch is turned already, does not go with the rest of the run, or changes
 * neither figure. */
static int try_one(estimate_figures *figures, const whatif *of)
{
    const estimate_stage *before = &figures->stages[figures->heaviest];
    pst_estimate_config config = figures->options->config;
    pst_estimate_memory memory = {.bytes = 0};
    uint64_t wire_bytes = 0;
    if (!of->turn(&config))
        return TOOL_OK;
    const pst_status status = figures_of(&config, figures->heaviest, &memory, &wire_bytes);
    if (status == PST_E_INVALID || memory.peak_bytes > INT64_MAX || wire_bytes > INT64_MAX)
        return TOOL_OK;
    TOOL_PST(status);
    if (memory.peak_bytes == before->memory.peak_bytes && wire_bytes == before->wire_bytes)
        return TOOL_OK;
    figures->whatifs[figures->num_whatifs++] = (estimate_whatif){
        of->change, (int64_t)before->memory.peak_bytes - (int64_t)memory.peak_bytes,
        (int64_t)wire_bytes - (int64_t)before->wire_bytes};
    return TOOL_OK;
}

int estimate_find_whatifs(estimate_figures *figures)
{
    for (int i = 0; i < ESTIMATE_NUM_WHATIFS; i++)
        TOOL_TRY(try_one(figures, &whatifs[i]));
    return TOOL_OK;
}
