/* pagestash estimate --search: every way to split the world, the best first. */
#include "host/base/arith.h"
#include "tools/estimate/estimate_flags.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_SHOWN = 20, LEAST_TOKENS = 4096 };

#define MAX_WORLD (UINT64_C(1) << 31)
#define MAX_DIVISORS 1600 /* no number up to MAX_WORLD has more */

/* The dimensions of a split, as estimate_ways has them. */
enum { TENSOR, PIPELINE, VIRTUAL, CONTEXT, EXPERT, EXPERT_TENSOR, NUM_WAYS };

/* What is computed anew: as it was given, or where no flag said anything and that does not fit, what is cheap,
 * feed-forward blocks and experts too, or every layer. All are sets that Megatron-LM's flags can say. */
enum { AS_GIVEN, SELECTIVE, BLOCKS, FULL };
static const char *const recomputes[] = {"as given", "selective", "blocks", "full"};

typedef struct choice {
    uint64_t by[NUM_WAYS];
    uint64_t num_stage_layers, num_last_layers; /* of each stage, and of the last */
    int recompute;
    estimate_peak peak;
    uint64_t predicted_us;
} choice;

typedef struct search {
    const estimate_options *options;
    uint32_t num_divisors; /* of the world */
    uint64_t divisors[MAX_DIVISORS];
    uint64_t *layout;    /* of at most num_layers + 1 chunks */
    uint64_t num_splits; /* of which num_tried are tried, once all are counted */
    uint64_t num_tried, num_valid, num_fitting;
    bool is_counting;
    pst_estimate_fault fault; /* of the last that could not be run */
    bool is_given_valid;
    choice given;
    uint64_t optimizer_bytes; /* that sharding the optimizer would save of the first */
    uint32_t num_best;
    choice best[NUM_SHOWN + 1]; /* and room for the next */
} search;

/* ---- the order ---- */

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Below 0: a is the better one: of those that fit the fastest, of the others what needs least. No two are
 * equal. */
static int rank(const search *self, const choice *a, const choice *b)
{
    const bool a_fits = a->peak.bytes <= self->options->memory_bytes;
    int order = compare(!a_fits, b->peak.bytes > self->options->memory_bytes);
    if (order == 0 && a_fits)
        order = compare(a->predicted_us, b->predicted_us);
    if (order == 0)
        order = compare(a->peak.bytes, b->peak.bytes);
    for (int i = 0; i < NUM_WAYS && order == 0; i++)
        order = compare(a->by[i], b->by[i]);
    return order;
}

static void keep(search *self, const choice *found)
{
    uint32_t at = self->num_best;
    for (; at > 0 && rank(self, found, &self->best[at - 1]) < 0; at--)
        self->best[at] = self->best[at - 1];
    self->best[at] = *found;
    self->num_best += self->num_best < NUM_SHOWN;
}

/* ---- one split ---- */

/* Where layers do not divide, the last stage has those that are left; of several chunks of a stage the last two
 * of the model, and the last one, which has the output matrix, may have none. */
static bool divides(uint64_t layers, uint64_t stages, uint64_t virtual_stages)
{
    const uint64_t chunks = psti_times(stages, virtual_stages);
    return layers % chunks == 0 ||
           layers > psti_div_up(layers, chunks) * (chunks - (virtual_stages > 1 ? 2 : 1));
}

/* As given, else as many layers in each chunk as far as they last. */
static bool set_layers(const search *self, choice *split, pst_estimate_config *config)
{
    const uint64_t stages = split->by[PIPELINE], chunks = psti_times(stages, split->by[VIRTUAL]);
    const uint64_t each = psti_div_up(config->num_layers, chunks);
    uint64_t left = config->num_layers;
    if (config->chunk_layers == NULL) {
        if (!divides(left, stages, split->by[VIRTUAL]))
            return false;
        for (uint64_t i = 0; i < chunks; i++, left -= psti_min(each, left))
            self->layout[i] = psti_min(each, left);
        config->chunk_layers = self->layout;
    }
    split->num_stage_layers = 0;
    for (uint64_t stage = 0; stage < stages; stage++) {
        split->num_last_layers = 0;
        for (uint64_t i = stage; i < chunks; i += stages)
            split->num_last_layers += config->chunk_layers[i];
        if (split->num_last_layers > split->num_stage_layers)
            split->num_stage_layers = split->num_last_layers;
    }
    return true;
}

/* INVALID: it cannot be run, or counted. */
static pst_status fill(const search *self, pst_estimate_config *config, choice *split)
{
    const estimate_options *options = self->options;
    pst_step_prediction step;
    TOOL_TRY(estimate_apply_variation(options, config));
    estimate_reserve reserve = options->reserve;
    if (!options->has_overhead)
        TOOL_TRY(pst_estimate_get_reserve(config, &reserve.overhead_bytes));
    TOOL_TRY(estimate_peak_of(config, &reserve, &split->peak));
    if (split->peak.bytes > INT64_MAX || split->peak.wire_bytes > INT64_MAX)
        return PST_E_INVALID;
    TOOL_TRY(estimate_predict(options, config, &step));
    split->predicted_us = psti_div_up(step.step_ns, 1000);
    return PST_OK;
}

static bool frees_recompute(const pst_estimate_config *given)
{
    return given->recompute_layers == 0 && (given->recompute & ~PST_RECOMPUTE_GATHER) == 0;
}

/* Megatron-LM exchanges rows beside other work only where no experts are computed anew. */
static int most_recompute(const pst_estimate_config *given)
{
    if (!frees_recompute(given))
        return AS_GIVEN;
    return given->overlaps_exchange ? SELECTIVE : FULL;
}

static void set_recompute(pst_estimate_config *config, int recompute)
{
    if (recompute == SELECTIVE)
        config->recompute |= PST_RECOMPUTE_NORM | PST_RECOMPUTE_LATENT | PST_RECOMPUTE_EXPERTS;
    if (recompute == BLOCKS)
        config->recompute |=
            PST_RECOMPUTE_NORM | PST_RECOMPUTE_LATENT | PST_RECOMPUTE_MLP | PST_RECOMPUTE_MOE;
    if (recompute == FULL)
        config->recompute_layers = 1;
}

/* False: the layers do not go into its chunks. */
static bool set_split(const search *self, choice *split, pst_estimate_config *config)
{
    *config = self->options->config;
    for (int way = 0; way < NUM_WAYS; way++)
        estimate_set(config, estimate_ways[way].id, split->by[way]);
    config->sequence_parallel = split->by[TENSOR] > 1;
    config->micro_batch_group_size = 0;
    set_recompute(config, split->recompute);
    return set_layers(self, split, config);
}

/* With the least recomputation that fits; with most of it where none does. */
static pst_status try_split(search *self, choice *split)
{
    const int most = most_recompute(&self->options->config);
    choice found = *split;
    bool is_valid = false;
    self->num_splits += self->is_counting;
    if (self->is_counting)
        return PST_OK;
    tool_progress("split", self->num_tried++, self->num_splits);
    for (int i = AS_GIVEN; i <= most; i++) {
        pst_estimate_config config;
        split->recompute = i;
        if (!set_split(self, split, &config))
            return PST_OK;
        const pst_status status = fill(self, &config, split);
        if (status == PST_E_INVALID) {
            (void)pst_estimate_find_fault(&config, &self->fault);
            continue;
        }
        TOOL_TRY(status);
        is_valid = true;
        found = *split;
        if (found.peak.bytes <= self->options->memory_bytes)
            break;
    }
    if (!is_valid)
        return PST_OK;
    self->num_valid++;
    self->num_fitting += found.peak.bytes <= self->options->memory_bytes;
    keep(self, &found);
    return PST_OK;
}

/* ---- all of them ---- */

/* Whether a value goes with those of the dimensions before it. Tensor parallelism stays within a node, and
 * context parallelism leaves a GPU so many tokens of a sequence, for which its ring is hidden. */
static bool goes(const search *self, const choice *split, int way, uint64_t value)
{
    const pst_estimate_config *config = &self->options->config;
    const uint64_t *by = split->by;
    const uint64_t most = config->num_experts ? config->num_experts : 1;
    switch (way) {
    case TENSOR:
        return config->num_heads % value == 0 && value <= self->options->gpus_per_node;
    case PIPELINE:
        return config->world_size / by[TENSOR] % value == 0 && value <= config->num_layers;
    case VIRTUAL:
        return value == 1 || (by[PIPELINE] > 1 && divides(config->num_layers, by[PIPELINE], value));
    case CONTEXT:
        return config->world_size / by[TENSOR] / by[PIPELINE] % value == 0 &&
               (value == 1 || config->sequence_size / value >= LEAST_TOKENS);
    case EXPERT:
        return most % value == 0;
    default:
        return config->world_size / by[PIPELINE] % (by[EXPERT] * value) == 0;
    }
}

/* What was given is kept. Virtual stages are any number up to that of a stage's layers. The experts' tensor
 * parallelism is that of the rest, or none. All others divide the world. */
static pst_status try_from(search *self, choice *split, int way)
{
    const pst_estimate_config *config = &self->options->config;
    const uint64_t own[] = {split->by[TENSOR], 1};
    uint64_t num = self->num_divisors;
    if (way == NUM_WAYS)
        return try_split(self, split);
    if (self->options->keeps[way]) {
        split->by[way] = estimate_value(config, estimate_ways[way].id);
        return try_from(self, split, way + 1);
    }
    if (way == VIRTUAL)
        num = config->num_layers / split->by[PIPELINE];
    if (way == EXPERT_TENSOR)
        num = config->num_experts != 0 && own[0] > 1 ? 2 : 1;
    for (uint64_t i = 0; i < num; i++) {
        const uint64_t value = way == VIRTUAL         ? i + 1
                               : way == EXPERT_TENSOR ? own[i]
                                                      : self->divisors[i];
        if (way == EXPERT && value > 1 && value > config->num_experts)
            break;
        split->by[way] = value;
        if (goes(self, split, way, value))
            TOOL_TRY(try_from(self, split, way + 1));
    }
    return PST_OK;
}

/* ---- */

/* All in ascending order. */
static void find_divisors(search *self)
{
    const uint64_t world = self->options->config.world_size;
    for (uint64_t i = 1; i * i <= world; i++)
        if (world % i == 0)
            self->divisors[self->num_divisors++] = i;
    for (uint32_t i = self->num_divisors; i-- > 0;)
        if (self->divisors[i] * self->divisors[i] != world)
            self->divisors[self->num_divisors++] = world / self->divisors[i];
}

/* ---- what is shown ---- */

/* As --pipeline-model-parallel-layout takes it; null where each chunk has as many, or as was given. */
static json_t *layout_value(const pst_estimate_config *config, const choice *c)
{
    char text[128];
    size_t used = 0;
    const uint64_t chunks = c->by[PIPELINE] * c->by[VIRTUAL], layers = config->num_layers;
    const uint64_t each = psti_div_up(layers, chunks), full = layers / each, rest = layers % each;
    if (config->chunk_layers != NULL || layers % chunks == 0)
        return json_null();
#define ADD(...) used += (size_t)snprintf(text + used, sizeof(text) - used, __VA_ARGS__)
    ADD("Et*%" PRIu64 "|", each);
    if (full > 1)
        ADD("(t*%" PRIu64 "|)*%" PRIu64, each, full - 1);
    if (rest > 0)
        ADD("t*%" PRIu64, rest);
    ADD("%s", full + 2 == chunks ? "|" : "");
    if (config->mtp_layers > 0)
        ADD("m*%" PRIu64, config->mtp_layers);
    ADD("L");
#undef ADD
    return json_text(text);
}

static json_t *choice_value(const search *self, const choice *c)
{
    const pst_estimate_config *config = &self->options->config;
    const uint64_t memory_bytes = self->options->memory_bytes;
    const uint64_t replicas =
        config->world_size / (c->by[TENSOR] * c->by[PIPELINE] * c->by[CONTEXT]);
    json_t *object = json_object();
    for (int i = 0; i < NUM_WAYS; i++)
        json_put_whole(&object, estimate_rows[estimate_ways[i].id].member, c->by[i]);
    JSON_PUT(&object, {"data_parallel", replicas},
             {"micro_batches", config->global_batch / (config->micro_batch * replicas)},
             {"stage_layers", c->num_stage_layers}, {"last_stage_layers", c->num_last_layers},
             {"heaviest_stage", c->peak.stage}, {"needed_bytes", c->peak.bytes},
             {"margin_bytes", memory_bytes - c->peak.bytes}, {"wire_bytes", c->peak.wire_bytes},
             {"overhead_bytes", c->peak.reserve_bytes}, {"predicted_us", c->predicted_us});
    json_put(&object, "fits", json_boolean(c->peak.bytes <= memory_bytes));
    json_put_text(&object, "recompute", recomputes[c->recompute]);
    json_put(&object, "layout", layout_value(config, c));
    return object;
}

/* What is computed anew: of layers, or all of them in groups. */
static json_t *recompute_value(const pst_estimate_config *config)
{
    char text[128] = "none", word[ESTIMATE_WORD];
    size_t used = 0;
    if (config->recompute_layers != 0)
        snprintf(text, sizeof(text),
                 config->recomputes_block ? "full, the first %" PRIu64 " of each chunk"
                                          : "full, groups of %" PRIu64,
                 config->recompute_layers);
    for (uint32_t i = 0; config->recompute_layers == 0 && config->recompute >> i != 0; i++)
        if ((config->recompute >> i & 1) != 0)
            used +=
                (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", used > 0 ? ", " : "",
                                 estimate_word(estimate_rows[ESTIMATE_recompute].words, i, word));
    return json_text(text);
}

static json_t *tree_of(const search *self)
{
    const estimate_options *options = self->options;
    const pst_estimate_config *config = &options->config;
    json_t *object = json_begin("estimate", 1), *best = json_array(), *kept = json_array();
    for (uint32_t i = 0; i < self->num_best; i++)
        json_add(&best, choice_value(self, &self->best[i]));
    for (int i = 0; i < NUM_WAYS; i++)
        if (options->keeps[i])
            json_add(&kept, json_text(estimate_rows[estimate_ways[i].id].member));
    json_put_text(&object, "mode", "search");
    json_put_whole(&object, "optimizer_saving_bytes", self->optimizer_bytes);
    JSON_PUT(&object, {"memory_bytes", options->memory_bytes}, {"world_size", config->world_size},
             {"gpus_per_node", options->gpus_per_node}, {"global_batch", config->global_batch},
             {"micro_batch", config->micro_batch}, {"sequence", config->sequence_size},
             {"tried", self->num_tried}, {"valid", self->num_valid},
             {"fitting", self->num_fitting});
    json_put(&object, "recompute", recompute_value(config));
    json_put(&object, "kept", kept);
    json_put(&object, "given",
             self->is_given_valid ? choice_value(self, &self->given) : json_null());
    json_put(&object, "best", best);
    json_put(&object, "not_counted", json_incref(options->unmodelled));
    json_put(&object, "matters", json_incref(options->matters));
    return object;
}

/* What may turn the order, or whether a row fits. */
static void print_doubts(const search *self, const json_t *tree)
{
    const pst_estimate_config *config = &self->options->config;
    estimate_print_notes(tree, "not_counted", "not counted: ");
    estimate_print_notes(tree, "matters", "not counted, and it matters: ");
    if (self->optimizer_bytes > self->options->memory_bytes / 100)
        printf("--use-distributed-optimizer would save %.2f GiB of the first row\n",
               (double)self->optimizer_bytes / (1 << 30));
    if (config->num_experts != 0 && config->moe_rows == PST_MOE_BALANCED)
        puts("need GiB: at least, as experts' rows are counted as even: --moe-load-cv, --routing");
}

static void print(const search *self, const json_t *tree)
{
    const pst_estimate_config *config = &self->options->config;
    printf("%" PRIu64 " GPUs of %.2f GiB, %" PRIu64 " in a node; global batch %" PRIu64
           ", micro-batch %" PRIu64 ", sequence %" PRIu64 "\n",
           config->world_size, (double)self->options->memory_bytes / (1 << 30),
           self->options->gpus_per_node, config->global_batch, config->micro_batch,
           config->sequence_size);
    printf("kept: ");
    for (int i = 0; i < NUM_WAYS; i++)
        if (self->options->keeps[i])
            printf("--%s %" PRIu64 ", ", estimate_flag(estimate_ways[i].id),
                   estimate_value(config, estimate_ways[i].id));
    printf("recompute: %s; set: sequence parallel where tp is above 1%s\n",
           frees_recompute(config) ? "the least that fits"
                                   : json_string_value(json_object_get(tree, "recompute")),
           config->dispatcher == PST_DISPATCHER_FLEX ? ", dispatcher flex" : "");
    print_doubts(self, tree);
    printf("tried %" PRIu64 ", valid %" PRIu64 ", fitting with a reserve %" PRIu64
           "; %s first; steps on %.16s\n",
           self->num_tried, self->num_valid, self->num_fitting,
           self->num_fitting > 0 ? "the fastest that fit" : "what needs least",
           self->options->gpu_name);
    ESTIMATE_PRINT_ROWS(
        json_object_get(tree, "best"), {"tensor_parallel", "tp", AS_NUMBER, 4},
        {"pipeline_parallel", "pp", AS_NUMBER, 3}, {"virtual_stages", "vpp", AS_NUMBER, 3},
        {"context_parallel", "cp", AS_NUMBER, 3}, {"expert_parallel", "ep", AS_NUMBER, 3},
        {"expert_tensor_parallel", "etp", AS_NUMBER, 3}, {"data_parallel", "dp", AS_NUMBER, 5},
        {"micro_batches", "m", AS_NUMBER, 5}, {"predicted_us", "step ms", AS_MS, 8},
        {"needed_bytes", "need GiB", IN_GIB, 8}, {"margin_bytes", "margin", IN_GIB, 7},
        {"wire_bytes", "sent GiB", IN_GIB, 8}, {"stage_layers", "layers", AS_NUMBER, 6},
        {"last_stage_layers", "last", AS_NUMBER, 4}, {"recompute", "recompute", AS_TEXT, 9});
}

static int answer(const search *self)
{
    static const estimate_line nothing;
    if (self->num_valid == 0)
        return estimate_refuse(&nothing, "--search: no split can be run, as the last: %s",
                               self->fault.reason[0] != '\0' ? self->fault.reason
                                                             : "a figure exceeds 64 bits");
    json_t *tree = tree_of(self);
    if (tree == NULL)
        return tool_fail(TOOL_NO, "--search: out of memory");
    if (!json_is_stdout(self->options->json))
        print(self, tree);
    TOOL_TRY(json_write(tree, self->options->json));
    return self->num_fitting > 0 ? TOOL_OK : TOOL_NO;
}

/* What was asked for, as it stands. */
static pst_status try_given(search *self)
{
    pst_estimate_config config = self->options->config;
    if (pst_estimate_check(&config) != PST_OK)
        return PST_OK;
    for (int i = 0; i < NUM_WAYS; i++)
        self->given.by[i] = estimate_value(&config, estimate_ways[i].id);
    (void)set_layers(self, &self->given, &config);
    const pst_status status = fill(self, &config, &self->given);
    self->is_given_valid = status == PST_OK;
    return status == PST_E_INVALID ? PST_OK : status;
}

/* What it would save of the first one, where it is not set and nothing else shards. */
static pst_status try_optimizer(search *self)
{
    choice split = self->best[0];
    pst_estimate_config config;
    if (self->num_best == 0 || self->options->config.distributed_optimizer ||
        self->options->config.sharding != PST_SHARDING_NONE || !set_split(self, &split, &config))
        return PST_OK;
    config.distributed_optimizer = true;
    const pst_status status = fill(self, &config, &split);
    if (status == PST_OK && split.peak.bytes < self->best[0].peak.bytes)
        self->optimizer_bytes = self->best[0].peak.bytes - split.peak.bytes;
    return status == PST_E_INVALID ? PST_OK : status;
}

/* Counted first, which takes no time, so that the progress has an end. */
static pst_status try_all(search *self)
{
    choice split = {.by = {0}};
    self->is_counting = true;
    TOOL_TRY(try_from(self, &split, TENSOR));
    self->is_counting = false;
    TOOL_TRY(try_given(self));
    TOOL_TRY(try_from(self, &split, TENSOR));
    return try_optimizer(self);
}

int estimate_search(const estimate_options *options)
{
    const pst_estimate_config *config = &options->config;
    if (config->world_size > MAX_WORLD)
        return tool_fail(TOOL_USAGE, "--search: world size %" PRIu64 ": at most %" PRIu64,
                         config->world_size, MAX_WORLD);
    if (config->num_layers == 0 || config->num_layers > PST_ESTIMATE_MAX_LAYERS)
        return tool_fail(TOOL_USAGE, "--search: --num-layers %" PRIu64 ": allowed are 1 to %u",
                         config->num_layers, PST_ESTIMATE_MAX_LAYERS);
    search self = {.options = options};
    self.layout = calloc(config->num_layers + 1, sizeof(*self.layout));
    if (self.layout == NULL)
        return tool_fail(TOOL_NO, "--search: out of memory");
    find_divisors(&self);
    int code = tool_status(try_all(&self));
    tool_progress("split", self.num_splits, self.num_splits);
    if (code == TOOL_OK)
        code = answer(&self);
    free(self.layout);
    return code;
}
