/* What one switch would do to the stage that needs most. */
#include "tools/estimate/estimate_flags.h"
#include "tools/estimate/estimate_report.h"

/* ---- changes that one field does not make: whether they change anything ---- */

static bool narrow_gradients(pst_estimate_config *config)
{
    const bool is_new = config->type == PST_TRAIN_BF16 && config->gradient_width > 2;
    config->gradient_width = 2;
    return is_new;
}

/* Fewer rows than an even routing has would drop some. */
static bool capacity_rows(pst_estimate_config *config)
{
    config->moe_rows = PST_MOE_CAPACITY;
    return config->capacity_num > config->capacity_den;
}

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

/* Sets, or adds or takes away bits of, one field; or `turn` does it. */
typedef struct whatif {
    const char *change;
    enum { SET, ADD, DROP } how;
    estimate_id id;
    uint64_t value;
    bool (*turn)(pst_estimate_config *config);
} whatif;

#define SELECTIVE "--recompute-granularity selective --recompute-modules "
static const whatif whatifs[] = {
    {"--tp-recompute-allgather 1", ADD, ESTIMATE_recompute, PST_RECOMPUTE_GATHER, NULL},
    {"--tp-recompute-allgather 0", DROP, ESTIMATE_recompute, PST_RECOMPUTE_GATHER, NULL},
    {SELECTIVE "layernorm", ADD, ESTIMATE_recompute, PST_RECOMPUTE_NORM, NULL},
    {"--recompute-activation-function", ADD, ESTIMATE_recompute, PST_RECOMPUTE_ACTIVATION, NULL},
    {SELECTIVE "moe_act", ADD, ESTIMATE_recompute, PST_RECOMPUTE_EXPERTS, NULL},
    {SELECTIVE "core_attn", ADD, ESTIMATE_recompute, PST_RECOMPUTE_ATTENTION, NULL},
    {"--recompute-granularity full --recompute-num-layers 1", .turn = layers_again},
    {"fused gated activation", SET, ESTIMATE_no_bias_swiglu_fusion, true, NULL},
    {"--activation-func-fp8-input-store", SET, ESTIMATE_activation_func_fp8_input_store, true,
     NULL},
    {"--cross-entropy-loss-fusion", SET, ESTIMATE_loss, PST_LOSS_FUSED, NULL},
    {"--use-flash-attn", SET, ESTIMATE_use_flash_attn, true, NULL},
    {"--sequence-parallel", SET, ESTIMATE_sequence_parallel, true, NULL},
    {"--use-distributed-optimizer", SET, ESTIMATE_use_distributed_optimizer, true, NULL},
    {"--grad-reduce-in-bf16", .turn = narrow_gradients},
    {"--optimizer-cpu-offload", .turn = offload},
    {"--moe-probs act", SET, ESTIMATE_moe_probs, false, NULL},
    {"--moe-buffer balanced", SET, ESTIMATE_moe_buffer, PST_MOE_BALANCED, NULL},
    {"--moe-buffer capacity", .turn = capacity_rows},
    {"--moe-buffer paged", SET, ESTIMATE_moe_buffer, PST_MOE_PAGED, NULL},
    {"--moe-buffer paged, working buffer for the worst routing", .turn = paged_worst_rows},
    {"no virtual pipeline stages", .turn = plain_pipeline},
    {"half of --micro-batch-size", .turn = halve_micro_batch},
};

/* False: it is turned already. */
static bool turn(const whatif *of, pst_estimate_config *config)
{
    if (of->turn != NULL)
        return of->turn(config);
    const uint64_t before = estimate_value(config, of->id);
    const uint64_t after = of->how == SET   ? of->value
                           : of->how == ADD ? before | of->value
                                            : before & ~of->value;
    estimate_set(config, of->id, after);
    return after != before;
}

enum { NUM_WHATIFS = sizeof(whatifs) / sizeof(whatifs[0]) };

typedef struct gain {
    const char *change;
    int64_t saved_bytes, extra_wire_bytes;
} gain;

/* What the stage would save; none where the switch does not go with the rest of the run. */
static int try_one(const estimate_options *options, uint64_t stage, const whatif *of,
                   gain *gain_out)
{
    pst_estimate_config config = options->config;
    estimate_stage before = {.live = NULL}, after = {.live = NULL};
    *gain_out = (gain){of->change, 0, 0};
    if (!turn(of, &config))
        return TOOL_OK;
    TOOL_PST(estimate_measure(&options->config, stage, 0, &before));
    const pst_status status = estimate_measure(&config, stage, 0, &after);
    if (status == PST_E_INVALID || after.peak_bytes > INT64_MAX || after.wire_bytes > INT64_MAX ||
        before.peak_bytes > INT64_MAX || before.wire_bytes > INT64_MAX)
        return TOOL_OK;
    TOOL_PST(status);
    gain_out->saved_bytes = (int64_t)before.peak_bytes - (int64_t)after.peak_bytes;
    gain_out->extra_wire_bytes = (int64_t)after.wire_bytes - (int64_t)before.wire_bytes;
    return TOOL_OK;
}

/* What saves most comes first; of equals the one that was tried first. */
int estimate_whatifs(const estimate_options *options, uint64_t stage, json_t **list_out)
{
    gain gains[NUM_WHATIFS];
    int num = 0;
    for (int i = 0; i < NUM_WHATIFS; i++) {
        gain found;
        TOOL_TRY(try_one(options, stage, &whatifs[i], &found));
        if (found.saved_bytes <= 0)
            continue;
        int at = num++;
        for (; at > 0 && gains[at - 1].saved_bytes < found.saved_bytes; at--)
            gains[at] = gains[at - 1];
        gains[at] = found;
    }
    json_t *list = json_array();
    for (int i = 0; i < num; i++) {
        json_t *item = json_object();
        json_put_text(&item, "change", gains[i].change);
        json_put(&item, "saved_bytes", json_integer((json_int_t)gains[i].saved_bytes));
        json_put(&item, "extra_wire_bytes", json_integer((json_int_t)gains[i].extra_wire_bytes));
        json_add(&list, item);
    }
    *list_out = list;
    return TOOL_OK;
}
