/* What one switch would do to the stage that needs most. */
#include "tools/estimate/estimate_figures.h"
#include "tools/estimate/estimate_flags.h"

/* ---- what a switch needs to make sense ---- */

static bool is_split(const pst_estimate_config *config)
{
    return config->tensor_parallel > 1;
}

static bool is_gathered(const pst_estimate_config *config)
{
    return config->sequence_parallel && is_split(config);
}

static bool is_gated(const pst_estimate_config *config)
{
    return config->is_gated;
}

static bool has_wide_gradients(const pst_estimate_config *config)
{
    return config->type == PST_TRAIN_BF16 && config->gradient_width > 2;
}

static bool has_experts(const pst_estimate_config *config)
{
    return config->num_experts != 0;
}

static bool keeps_activation(const pst_estimate_config *config)
{
    return has_experts(config) && (config->recompute & PST_RECOMPUTE_ACTIVATION) == 0;
}

static bool has_spare_capacity(const pst_estimate_config *config)
{
    return has_experts(config) && config->capacity_num > config->capacity_den;
}

/* ---- changes of more than one field: whether they change anything ---- */

static bool layers_again(pst_estimate_config *config)
{
    const bool is_new = config->recompute_layers == 0;
    config->recompute_layers = 1;
    if (config->moe_rows == PST_MOE_PAGED) /* which has nothing to page then */
        config->moe_rows = PST_MOE_CAPACITY;
    return is_new;
}

static bool offload(pst_estimate_config *config)
{
    const bool is_new = config->offload_den == 0 || config->offload_num < config->offload_den;
    config->offload_num = config->offload_den = 1;
    return is_new;
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

/* ---- the switches ---- */

/* Sets, or adds or takes away bits of, one field, where it makes sense; or `turn` does it. */
typedef struct whatif {
    const char *change;
    enum { SET, ADD, DROP } how;
    int field;
    uint64_t value;
    bool (*makes_sense)(const pst_estimate_config *config); /* NULL: always */
    bool (*turn)(pst_estimate_config *config);
} whatif;

#define FIELD(member) ESTIMATE_INDEX_##member
#define SELECTIVE "--recompute-granularity selective --recompute-modules "
static const whatif whatifs[ESTIMATE_NUM_WHATIFS] = {
    {"--tp-recompute-allgather 1", ADD, FIELD(recompute), PST_RECOMPUTE_GATHER, is_gathered, NULL},
    {"--tp-recompute-allgather 0", DROP, FIELD(recompute), PST_RECOMPUTE_GATHER, is_gathered, NULL},
    {SELECTIVE "layernorm", ADD, FIELD(recompute), PST_RECOMPUTE_NORM, NULL, NULL},
    {"--recompute-activation-function", ADD, FIELD(recompute), PST_RECOMPUTE_ACTIVATION, NULL,
     NULL},
    {SELECTIVE "moe_act", ADD, FIELD(recompute), PST_RECOMPUTE_EXPERTS, keeps_activation, NULL},
    {SELECTIVE "core_attn", ADD, FIELD(recompute), PST_RECOMPUTE_ATTENTION, NULL, NULL},
    {"--recompute-granularity full --recompute-num-layers 1", .turn = layers_again},
    {"fused gated activation", SET, FIELD(fuses_activation), true, is_gated, NULL},
    {"--activation-func-fp8-input-store", SET, FIELD(saves_inputs_fp8), true, NULL, NULL},
    {"--cross-entropy-loss-fusion", SET, FIELD(loss), PST_LOSS_FUSED, NULL, NULL},
    {"--use-flash-attn", SET, FIELD(has_flash_attention), true, NULL, NULL},
    {"--sequence-parallel", SET, FIELD(sequence_parallel), true, is_split, NULL},
    {"--use-distributed-optimizer", SET, FIELD(distributed_optimizer), true, NULL, NULL},
    {"--grad-reduce-in-bf16", SET, FIELD(gradient_width), 2, has_wide_gradients, NULL},
    {"--optimizer-cpu-offload", .turn = offload},
    {"--moe-probs act", SET, FIELD(applies_probs_late), false, has_experts, NULL},
    {"--moe-buffer balanced", SET, FIELD(moe_rows), PST_MOE_BALANCED, has_experts, NULL},
    {"--moe-buffer capacity", SET, FIELD(moe_rows), PST_MOE_CAPACITY, has_spare_capacity, NULL},
    {"--moe-buffer worst", SET, FIELD(moe_rows), PST_MOE_WORST, has_experts, NULL},
    {"--moe-buffer paged", SET, FIELD(moe_rows), PST_MOE_PAGED, has_experts, NULL},
    {"--moe-buffer paged, working buffer for the worst routing", .turn = paged_worst_rows},
    {"no virtual pipeline stages", .turn = plain_pipeline},
    {"half of --micro-batch-size", .turn = halve_micro_batch},
};

/* False: it is turned already, or makes no sense here. */
static bool turn(const whatif *of, pst_estimate_config *config)
{
    if (of->turn != NULL)
        return of->turn(config);
    const estimate_field *field = &estimate_field_table[of->field];
    const uint64_t before = estimate_field_value(config, field);
    const uint64_t after = of->how == SET   ? of->value
                           : of->how == ADD ? before | of->value
                                            : before & ~of->value;
    const bool makes_sense = of->makes_sense == NULL || of->makes_sense(config);
    estimate_set_field(config, field, after);
    return makes_sense && after != before;
}

/* What saves most comes first; of equals the one that was tried first. */
static void insert(estimate_figures *figures, estimate_whatif gain)
{
    uint32_t at = figures->num_whatifs++;
    for (; at > 0 && figures->whatifs[at - 1].saved_bytes < gain.saved_bytes; at--)
        figures->whatifs[at] = figures->whatifs[at - 1];
    figures->whatifs[at] = gain;
}

/* Adds nothing where the switch does not go with the rest of the run, or saves nothing. */
static int try_one(estimate_figures *figures, const whatif *of)
{
    const estimate_stage *before = &figures->stages[figures->heaviest];
    pst_estimate_config config = figures->options->config;
    estimate_stage after = {.peak_bytes = 0};
    if (!turn(of, &config))
        return TOOL_OK;
    const pst_status status = estimate_measure(&config, figures->heaviest, 0, &after);
    if (status == PST_E_INVALID || after.peak_bytes > INT64_MAX || after.wire_bytes > INT64_MAX)
        return TOOL_OK;
    TOOL_PST(status);
    const int64_t saved_bytes = (int64_t)before->memory.peak_bytes - (int64_t)after.peak_bytes;
    if (saved_bytes > 0)
        insert(figures, (estimate_whatif){of->change, saved_bytes,
                                          (int64_t)after.wire_bytes - (int64_t)before->wire_bytes});
    return TOOL_OK;
}

int estimate_find_whatifs(estimate_figures *figures)
{
    for (int i = 0; i < ESTIMATE_NUM_WHATIFS; i++)
        TOOL_TRY(try_one(figures, &whatifs[i]));
    return TOOL_OK;
}
