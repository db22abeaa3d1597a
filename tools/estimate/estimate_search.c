/* pagestash estimate --search: every way to split the world, the best first. */
#include "tools/common/json_out.h"
#include "tools/estimate/estimate_flags.h"
#include "tools/estimate/estimate_out.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_SHOWN = 20, SCHEMA_VERSION = 1 };

#define MAX_WORLD (UINT64_C(1) << 31)
#define MAX_DIVISORS 1600 /* no number up to MAX_WORLD has more */

/* The dimensions of a split, in the order that they are chosen and printed. */
enum { TENSOR, PIPELINE, VIRTUAL, CONTEXT, EXPERT, EXPERT_TENSOR, NUM_WAYS };

static const int ways[NUM_WAYS] = {
    [TENSOR] = ESTIMATE_INDEX_tensor_parallel,
    [PIPELINE] = ESTIMATE_INDEX_pipeline_parallel,
    [VIRTUAL] = ESTIMATE_INDEX_virtual_stages,
    [CONTEXT] = ESTIMATE_INDEX_context_parallel,
    [EXPERT] = ESTIMATE_INDEX_expert_parallel,
    [EXPERT_TENSOR] = ESTIMATE_INDEX_expert_tensor_parallel,
};

typedef struct choice {
    uint64_t by[NUM_WAYS];
    uint64_t num_stage_layers, num_last_layers; /* of each stage, and of the last */
    estimate_peak peak;
} choice;

typedef struct search {
    const estimate_options *options;
    uint32_t num_divisors; /* of the world */
    uint64_t divisors[MAX_DIVISORS];
    uint64_t *layout; /* num_layers words */
    uint64_t num_tried, num_valid, num_fitting;
    pst_status last; /* of the last that was tried */
    bool is_given_valid;
    estimate_peak given;
    uint32_t num_best;
    choice best[NUM_SHOWN];
} search;

/* ---- the order ---- */

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Below 0: a is the better one. No two are equal. */
static int rank(const choice *a, const choice *b)
{
    int order = compare(a->peak.bytes, b->peak.bytes);
    if (order == 0)
        order = compare(a->peak.wire_bytes, b->peak.wire_bytes);
    for (int i = 0; i < NUM_WAYS && order == 0; i++)
        order = compare(a->by[i], b->by[i]);
    return order;
}

static void keep(search *self, const choice *found)
{
    uint32_t at = self->num_best;
    while (at > 0 && rank(found, &self->best[at - 1]) < 0)
        at--;
    if (at == NUM_SHOWN)
        return;
    if (self->num_best < NUM_SHOWN)
        self->num_best++;
    memmove(&self->best[at + 1], &self->best[at],
            (self->num_best - 1 - at) * sizeof(self->best[0]));
    self->best[at] = *found;
}

/* ---- one split ---- */

/* Where layers do not divide, the last stage has the fewer ones that are left. */
static bool set_layers(const search *self, choice *split, pst_estimate_config *config)
{
    const uint64_t stages = split->by[PIPELINE], layers = config->num_layers;
    split->num_stage_layers = split->num_last_layers = layers / stages;
    config->chunk_layers = NULL;
    if (layers % stages == 0)
        return true;
    split->num_stage_layers++;
    if (layers <= split->num_stage_layers * (stages - 1))
        return false;
    split->num_last_layers = layers - split->num_stage_layers * (stages - 1);
    for (uint64_t i = 0; i + 1 < stages; i++)
        self->layout[i] = split->num_stage_layers;
    self->layout[stages - 1] = split->num_last_layers;
    config->chunk_layers = self->layout;
    return true;
}

static pst_status try_split(search *self, choice *split)
{
    pst_estimate_config config = self->options->config;
    for (int i = 0; i < NUM_WAYS; i++)
        estimate_set_field(&config, &estimate_field_table[ways[i]], split->by[i]);
    config.sequence_parallel = split->by[TENSOR] > 1;
    config.micro_batch_group_size = 0;
    self->num_tried++;
    if (!set_layers(self, split, &config))
        return PST_OK;
    self->last = estimate_apply_variation(self->options, &config);
    if (self->last == PST_OK)
        self->last = estimate_peak_of(&config, self->options->overhead_bytes, NULL, &split->peak);
    if (self->last == PST_E_INVALID)
        return PST_OK;
    TOOL_TRY(self->last);
    if (split->peak.bytes > INT64_MAX || split->peak.wire_bytes > INT64_MAX)
        return PST_OK;
    self->num_valid++;
    self->num_fitting += split->peak.bytes <= self->options->memory_bytes;
    keep(self, split);
    return PST_OK;
}

/* ---- all of them ---- */

/* Whether a value goes with those of the dimensions before it. */
static bool goes(const search *self, const choice *split, int way, uint64_t value)
{
    const pst_estimate_config *config = &self->options->config;
    const uint64_t *by = split->by;
    const uint64_t most = config->num_experts ? config->num_experts : 1;
    switch (way) {
    case TENSOR:
        return config->num_heads % value == 0;
    case PIPELINE:
        return config->world_size / by[TENSOR] % value == 0 && value <= config->num_layers;
    case VIRTUAL:
        return value == 1 || (by[PIPELINE] > 1 && config->num_layers % by[PIPELINE] == 0 &&
                              config->num_layers / by[PIPELINE] % value == 0);
    case CONTEXT:
        return config->world_size / by[TENSOR] / by[PIPELINE] % value == 0;
    case EXPERT:
        return most % value == 0;
    default:
        return config->world_size / by[PIPELINE] % (by[EXPERT] * value) == 0;
    }
}

/* Virtual stages are any number up to that of a stage's layers. The experts' tensor parallelism is
 * that of the rest, or none. All others divide the world. */
static pst_status try_from(search *self, choice *split, int way)
{
    const pst_estimate_config *config = &self->options->config;
    const uint64_t own[] = {split->by[TENSOR], 1};
    uint64_t num = self->num_divisors;
    if (way == NUM_WAYS)
        return try_split(self, split);
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
    uint32_t num_high = 0;
    for (uint64_t i = 1; i * i <= world; i++)
        if (world % i == 0)
            self->divisors[self->num_divisors++] = i;
    for (uint32_t i = self->num_divisors; i-- > 0;)
        if (self->divisors[i] * self->divisors[i] != world)
            self->divisors[self->num_divisors + num_high++] = world / self->divisors[i];
    self->num_divisors += num_high;
}

/* ---- what is shown ---- */

static double gib(uint64_t bytes)
{
    return (double)bytes / (1 << 30);
}

static void print_choice(const search *self, const choice *c)
{
    const pst_estimate_config *config = &self->options->config;
    const uint64_t replicas =
        config->world_size / (c->by[TENSOR] * c->by[PIPELINE] * c->by[CONTEXT]);
    const double margin = gib(self->options->memory_bytes) - gib(c->peak.bytes);
    char layers[32] = "";
    if (c->num_last_layers != c->num_stage_layers)
        snprintf(layers, sizeof(layers), " (last %" PRIu64 ")", c->num_last_layers);
    for (int i = 0; i < NUM_WAYS; i++)
        printf("%4" PRIu64 " ", c->by[i]);
    printf("%4" PRIu64 " %5" PRIu64 " %5" PRIu64 " %11.2f %11.2f %11.2f  %" PRIu64 "%s\n", replicas,
           config->global_batch / (config->micro_batch * replicas), c->peak.stage,
           gib(c->peak.bytes), margin, gib(c->peak.wire_bytes), c->num_stage_layers, layers);
}

static void print(const search *self)
{
    const pst_estimate_config *config = &self->options->config;
    char text[ESTIMATE_BYTES_TEXT];
    printf("world %" PRIu64 ", global batch %" PRIu64 ", micro-batch %" PRIu64 ", sequence %" PRIu64
           "\n",
           config->world_size, config->global_batch, config->micro_batch, config->sequence_size);
    printf("kept as given: recompute: %s\n", estimate_recompute_text(config, text));
    puts("set: sequence parallel where tp is above 1");
    if (config->chunk_layers != NULL)
        puts("left aside: the given layout of layers, which belongs to one pipeline size");
    estimate_print_unmodelled(self->options);
    printf("tried: %" PRIu64 ", valid: %" PRIu64 ", fitting %s: %" PRIu64 "\n", self->num_tried,
           self->num_valid, estimate_bytes_text(self->options->memory_bytes, text),
           self->num_fitting);
    if (self->is_given_valid)
        printf("as given: stage %" PRIu64 " needs %.2f GiB, margin %.2f GiB, wire %.2f GiB\n",
               self->given.stage, gib(self->given.bytes),
               gib(self->options->memory_bytes) - gib(self->given.bytes),
               gib(self->given.wire_bytes));
    else
        puts("as given: no valid split");
    printf("%4s %4s %4s %4s %4s %4s %4s %5s %5s %11s %11s %11s  %s\n", "tp", "pp", "vpp", "cp",
           "ep", "etp", "dp", "m", "stage", "need GiB", "margin GiB", "wire GiB", "layers");
    for (uint32_t i = 0; i < self->num_best; i++)
        print_choice(self, &self->best[i]);
}

static void put_peak(json_t **object, const search *self, const estimate_peak *peak)
{
    const uint64_t memory_bytes = self->options->memory_bytes;
    JSON_PUT(object, {"heaviest_stage", peak->stage}, {"needed_bytes", peak->bytes});
    json_put(object, "margin_bytes",
             json_integer((json_int_t)memory_bytes - (json_int_t)peak->bytes));
    json_put_whole(object, "wire_bytes", peak->wire_bytes);
    json_put(object, "fits", json_boolean(peak->bytes <= memory_bytes));
}

static json_t *choice_object(const search *self, const choice *c)
{
    json_t *object = json_object();
    for (int i = 0; i < NUM_WAYS; i++)
        json_put_whole(&object, estimate_field_table[ways[i]].name, c->by[i]);
    JSON_PUT(&object, {"stage_layers", c->num_stage_layers},
             {"last_stage_layers", c->num_last_layers});
    put_peak(&object, self, &c->peak);
    return object;
}

static int write_json(const search *self)
{
    const estimate_options *options = self->options;
    char text[ESTIMATE_BYTES_TEXT];
    json_t *object = json_begin("estimate", SCHEMA_VERSION);
    json_t *best = json_array(), *given = self->is_given_valid ? json_object() : json_null();
    if (self->is_given_valid)
        put_peak(&given, self, &self->given);
    for (uint32_t i = 0; i < self->num_best; i++)
        json_add(&best, choice_object(self, &self->best[i]));
    json_put_text(&object, "mode", "search");
    JSON_PUT(
        &object, {"memory_bytes", options->memory_bytes},
        {"overhead_bytes", options->overhead_bytes}, {"world_size", options->config.world_size},
        {"global_batch", options->config.global_batch},
        {"micro_batch", options->config.micro_batch}, {"sequence", options->config.sequence_size});
    json_put_text(&object, "recompute", estimate_recompute_text(&options->config, text));
    json_put(&object, "layout_left_aside", json_boolean(options->config.chunk_layers != NULL));
    JSON_PUT(&object, {"tried", self->num_tried}, {"valid", self->num_valid},
             {"fitting", self->num_fitting});
    json_put(&object, "given", given);
    json_put(&object, "best", best);
    json_put(&object, "not_counted", estimate_notes_value(&options->unmodelled));
    return json_write(object, options->json);
}

static int answer(const search *self)
{
    if (self->num_valid == 0)
        return tool_status(self->last);
    if (self->options->json != NULL)
        TOOL_TRY(write_json(self));
    if (!json_is_stdout(self->options->json))
        print(self);
    return self->num_fitting > 0 ? TOOL_OK : TOOL_NO;
}

static pst_status try_given(search *self)
{
    pst_estimate_config config = self->options->config;
    pst_status status = estimate_apply_variation(self->options, &config);
    if (status == PST_OK)
        status = estimate_peak_of(&config, self->options->overhead_bytes, NULL, &self->given);
    self->is_given_valid =
        status == PST_OK && self->given.bytes <= INT64_MAX && self->given.wire_bytes <= INT64_MAX;
    return status == PST_E_INVALID ? PST_OK : status;
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
    self.layout = calloc(config->num_layers, sizeof(*self.layout));
    if (self.layout == NULL)
        return tool_fail(TOOL_NO, "--search: out of memory");
    choice split = {.by = {0}};
    find_divisors(&self);
    const pst_status status = try_given(&self);
    int code = tool_status(status == PST_OK ? try_from(&self, &split, TENSOR) : status);
    if (code == TOOL_OK)
        code = answer(&self);
    free(self.layout);
    return code;
}
