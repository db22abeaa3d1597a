/* What switches would do to the stage that needs most: one, or where no one is enough, several. */
#include "tools/estimate/estimate_flags.h"

#include <stdio.h>
#include <string.h>

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
    const bool is_new = config->recompute_layers == 0 || config->recomputes_block;
    config->recompute_layers = 1;
    config->recomputes_block = false;
    config->recompute &= PST_RECOMPUTE_GATHER | PST_RECOMPUTE_ACTIVATION; /* no modules beside it */
    if (config->moe_rows == PST_MOE_PAGED) /* which has nothing to page then */
        config->moe_rows = PST_MOE_CAPACITY;
    return is_new;
}

/* With the precision-aware optimizer, which has to be sharded. */
static bool offload(pst_estimate_config *config)
{
    const bool is_new = config->offload_den == 0 || config->offload_num < config->offload_den;
    config->offload_num = config->offload_den = 1;
    if (config->type != PST_TRAIN_FP32)
        config->optimizer_width = config->type == PST_TRAIN_BF16 ? 10 : 12;
    return is_new && config->distributed_optimizer;
}

static bool shard_and_offload(pst_estimate_config *config)
{
    const bool is_new = !config->distributed_optimizer;
    config->distributed_optimizer = true;
    return offload(config) && is_new;
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

/* Sets one field, or adds bits to it; or `turn` does it. */
typedef struct whatif {
    const char *change, *cost;
    estimate_id id;
    bool is_module; /* the value is one of Megatron-LM's modules */
    uint64_t value;
    bool (*turn)(pst_estimate_config *config);
} whatif;

#define NOTHING "no cost known"
#define SETS(change, cost, flag, value)                   \
    {                                                     \
        change, cost, ESTIMATE_##flag, false, value, NULL \
    }
/* Its modules follow, those of the run with it. */
#define AGAIN(cost, bit)                                                                         \
    {                                                                                            \
        "--recompute-granularity selective --recompute-modules", cost, ESTIMATE_recompute, true, \
            PST_RECOMPUTE_##bit, NULL                                                            \
    }
/* Megatron-LM has no such flag: it always does so, or the run's own router or release says it. */
#define OURS(cost) "pagestash's flag: " cost
static const whatif whatifs[] = {
    SETS("--tp-recompute-allgather 1", OURS("gathers twice"), recompute, PST_RECOMPUTE_GATHER),
    AGAIN("norms twice", NORM),
    SETS("--recompute-activation-function", OURS("activation functions twice"), recompute,
         PST_RECOMPUTE_ACTIVATION),
    AGAIN("experts' activation functions twice", EXPERTS),
    AGAIN("dense blocks twice", MLP),
    AGAIN("experts twice", MOE),
    AGAIN("shared experts twice", SHARED),
    AGAIN("up projections twice", LATENT),
    AGAIN("attention's scores twice", ATTENTION),
    {"--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
     "every forward twice", .turn = layers_again},
    SETS("without --no-bias-swiglu-fusion", NOTHING, no_bias_swiglu_fusion, true),
    SETS("--activation-func-fp8-input-store", "their inputs rounded to fp8",
         activation_func_fp8_input_store, true),
    SETS("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", NOTHING, loss,
         PST_LOSS_FUSED),
    SETS("--use-flash-attn", NOTHING, use_flash_attn, true),
    SETS("--sequence-parallel", NOTHING, sequence_parallel, true),
    SETS("--use-distributed-optimizer", "weights gathered in each step", use_distributed_optimizer,
         true),
    {"--grad-reduce-in-bf16", "gradients summed in bf16", .turn = narrow_gradients},
    {"--use-precision-aware-optimizer --optimizer-cpu-offload", "steps on the host",
     .turn = offload},
    {"--use-distributed-optimizer --use-precision-aware-optimizer --optimizer-cpu-offload",
     "steps on the host", .turn = shard_and_offload},
    SETS("--moe-probs act", OURS(NOTHING), moe_probs, false),
    SETS("--moe-buffer balanced", OURS("no room for uneven routing"), moe_buffer, PST_MOE_BALANCED),
    {"--moe-buffer capacity", OURS("room for the capacity alone"), .turn = capacity_rows},
    SETS("--moe-buffer paged", OURS("pages experts' rows"), moe_buffer, PST_MOE_PAGED),
    {"--moe-buffer paged, working buffer for the worst routing", OURS("pages experts' rows"),
     .turn = paged_worst_rows},
    {"no virtual pipeline stages", "a longer bubble", .turn = plain_pipeline},
    {"half of --micro-batch-size", "twice as many, smaller products", .turn = halve_micro_batch},
};

/* False: it is turned already. */
static bool turn(const whatif *of, pst_estimate_config *config)
{
    if (of->turn != NULL)
        return of->turn(config);
    const uint64_t before = estimate_value(config, of->id);
    const bool adds = estimate_rows[of->id].type == ESTIMATE_IS_BITS;
    const uint64_t after = adds ? before | of->value : of->value;
    estimate_set(config, of->id, after);
    return after != before;
}

enum { NUM_WHATIFS = sizeof(whatifs) / sizeof(whatifs[0]), MOST_TOGETHER = 3 };

/* Switches turned together, and what comes of it. */
typedef struct gain {
    const whatif *parts[MOST_TOGETHER];
    int num;
    int64_t saved_bytes, extra_wire_bytes; /* of the stage that needed most */
    uint64_t peak_bytes;                   /* of that which needs most now, reserve included */
} gain;

typedef struct whatif_run {
    const estimate_options *options;
    uint64_t stage;
    estimate_stage before; /* the stage */
    pst_status status;     /* a failure that is no answer: memory that is out */
} whatif_run;

/* False: they do not go with the run, or with each other. */
static bool measure(whatif_run *self, gain *of)
{
    const estimate_options *options = self->options;
    pst_estimate_config config = options->config;
    estimate_stage after = {.live = NULL};
    estimate_peak peak;
    for (int i = 0; i < of->num; i++)
        if (!turn(of->parts[i], &config))
            return false;
    pst_status status = estimate_measure(&config, self->stage, &options->reserve, &after);
    if (status == PST_OK)
        status = estimate_peak_of(&config, &options->reserve, &peak);
    if (status != PST_OK && status != PST_E_INVALID)
        self->status = status;
    if (status != PST_OK || after.peak_bytes > INT64_MAX || after.wire_bytes > INT64_MAX ||
        peak.bytes > INT64_MAX)
        return false;
    of->saved_bytes = (int64_t)self->before.peak_bytes - (int64_t)after.peak_bytes;
    of->extra_wire_bytes = (int64_t)after.wire_bytes - (int64_t)self->before.wire_bytes;
    of->peak_bytes = peak.bytes;
    return true;
}

/* Two that begin with the same flag would give it twice. */
static bool goes_with(const gain *some, const whatif *other)
{
    const size_t length = strcspn(other->change, " ,");
    for (int i = 0; i < some->num; i++)
        if (strncmp(some->parts[i]->change, other->change, length) == 0)
            return false;
    return true;
}

/* Adds so many of the gains from first on to found, the first that make the run fit. */
static bool add_fitting(whatif_run *self, const gain *gains, int num, int first, int more,
                        gain *found)
{
    const gain before = *found;
    if (more == 0)
        return measure(self, found) && found->peak_bytes <= self->options->memory_bytes;
    for (int i = first; i < num; i++) {
        *found = before;
        if (!goes_with(found, gains[i].parts[0]))
            continue;
        found->parts[found->num++] = gains[i].parts[0];
        if (add_fitting(self, gains, num, i + 1, more - 1, found))
            return true;
    }
    return false;
}

/* What Megatron-LM's flag calls them, and what it wants beside one. */
static void add_modules(uint64_t bits, char *change, size_t bytes)
{
    char word[ESTIMATE_WORD];
    for (uint64_t i = 0; bits >> i != 0; i++) {
        const size_t at = strlen(change);
        if ((bits >> i & 1) != 0 && *estimate_word(ESTIMATE_MODULES, i, word) != '\0')
            snprintf(change + at, bytes - at, " %s", word);
    }
    if ((bits & PST_RECOMPUTE_EXPERTS) != 0)
        strncat(change, " --moe-grouped-gemm", bytes - strlen(change) - 1);
}

static json_t *gain_value(const whatif_run *self, const gain *of)
{
    json_t *item = json_object();
    char change[512] = "", cost[256] = "";
    for (int i = 0; i < of->num; i++) {
        const size_t at = strlen(change), end = strlen(cost);
        snprintf(change + at, sizeof(change) - at, "%s%s", i > 0 ? " and " : "",
                 of->parts[i]->change);
        if (of->parts[i]->is_module)
            add_modules(self->options->config.recompute | of->parts[i]->value, change,
                        sizeof(change));
        snprintf(cost + end, sizeof(cost) - end, "%s%s", i > 0 ? "; " : "", of->parts[i]->cost);
    }
    json_put_text(&item, "change", change);
    json_put_text(&item, "cost", cost);
    json_put(&item, "saved_bytes", json_integer((json_int_t)of->saved_bytes));
    json_put(&item, "extra_wire_bytes", json_integer((json_int_t)of->extra_wire_bytes));
    json_put_whole(&item, "peak_bytes", of->peak_bytes);
    json_put(&item, "fits", json_boolean(of->peak_bytes <= self->options->memory_bytes));
    return item;
}

/* What saves most comes first; of equals the one that was tried first. */
int estimate_put_whatifs(const estimate_options *options, uint64_t stage, bool fits, json_t **tree)
{
    whatif_run self = {.options = options, .stage = stage};
    gain gains[NUM_WHATIFS], together = {.num = 0};
    int num = 0;
    ESTIMATE_TRY(options,
                 estimate_measure(&options->config, stage, &options->reserve, &self.before));
    for (int i = 0; i < NUM_WHATIFS && self.before.peak_bytes <= INT64_MAX; i++) {
        gain found = {.parts = {&whatifs[i]}, .num = 1};
        if (!measure(&self, &found) || found.saved_bytes <= 0)
            continue;
        int at = num++;
        for (; at > 0 && gains[at - 1].saved_bytes < found.saved_bytes; at--)
            gains[at] = gains[at - 1];
        gains[at] = found;
        fits = fits || found.peak_bytes <= options->memory_bytes;
    }
    json_t *list = json_array();
    for (int i = 0; i < num; i++)
        json_add(&list, gain_value(&self, &gains[i]));
    json_put(tree, "whatif", list);
    for (int several = 2; several <= MOST_TOGETHER && !fits && together.num == 0; several++)
        if (!add_fitting(&self, gains, num, 0, several, &together))
            together.num = 0;
    ESTIMATE_TRY(options, self.status);
    json_put(tree, "together", together.num > 0 ? gain_value(&self, &together) : json_null());
    return TOOL_OK;
}
