/* pagestash estimate --fit: whether every stage fits, and how much more would. */
#include "host/base/arith.h"
#include "tools/estimate/estimate.h"

#include <inttypes.h>
#include <stdio.h>

enum { SEQUENCE_STEP = 128 };
#define MAX_MICRO_BATCH (UINT64_C(1) << 16)
#define MAX_SEQUENCE (UINT64_C(1) << 32)

typedef struct fit {
    const estimate_options *options;
    estimate_peak peak;
    uint64_t micro_batch, sequence, sequence_step; /* 0: none fits */
    pst_status status; /* a failure that is no answer: memory that is out */
} fit;

/* What cannot be run, or counted, does not fit. */
static bool fits(fit *self, const pst_estimate_config *config)
{
    estimate_peak peak = {.bytes = 0};
    const pst_status status = estimate_peak_of(config, &self->options->reserve, &peak);
    if (status != PST_OK && status != PST_E_INVALID)
        self->status = status;
    return status == PST_OK && peak.bytes <= self->options->memory_bytes;
}

/* Every one is tried, from the top: with more sequences to a micro-batch there are fewer of those
 * in flight, and what an interleaved schedule holds can fall. */
static void find_micro_batch(fit *self)
{
    pst_estimate_config config = self->options->config;
    const uint64_t replicas = config.world_size / config.tensor_parallel /
                              config.pipeline_parallel / config.context_parallel;
    const uint64_t sequences = config.global_batch / replicas;
    for (config.micro_batch = psti_min(sequences, MAX_MICRO_BATCH); config.micro_batch > 0;
         config.micro_batch--)
        if (sequences % config.micro_batch == 0 && (fits(self, &config) || self->status != PST_OK))
            break;
    self->micro_batch = config.micro_batch;
}

/* By halves: `fitting` steps fit, and one step more than is returned does not. */
static void find_sequence(fit *self)
{
    pst_estimate_config config = self->options->config;
    const uint64_t parts =
        config.context_parallel * (config.sequence_parallel ? config.tensor_parallel : 1);
    const uint64_t even = parts / psti_gcd(parts, SEQUENCE_STEP) * SEQUENCE_STEP;
    const uint64_t step = config.sequence_size % even == 0 ? even : parts;
    const uint64_t most = config.max_positions ? config.max_positions : MAX_SEQUENCE;
    uint64_t fitting = 0, above = most / step + 1;
    while (above - fitting > 1 && self->status == PST_OK) {
        const uint64_t middle = fitting + (above - fitting) / 2;
        config.sequence_size = middle * step;
        if (fits(self, &config))
            fitting = middle;
        else
            above = middle;
    }
    self->sequence = fitting * step;
    self->sequence_step = step;
}

/* ---- */

static json_t *tree_of(const fit *self)
{
    const estimate_options *options = self->options;
    const pst_estimate_config *config = &options->config;
    json_t *object = json_begin("estimate", 1), *stages = json_array();
    for (uint64_t i = 0; i < config->pipeline_parallel; i++) {
        estimate_stage of = {.live = NULL};
        const pst_status status = estimate_measure(config, i, &options->reserve, &of);
        json_add(&stages,
                 status != PST_OK
                     ? NULL
                     : ESTIMATE_OBJECT({"stage", i}, {"needed_bytes", of.peak_bytes},
                                       {"margin_bytes", options->memory_bytes - of.peak_bytes}));
    }
    json_put_text(&object, "mode", "fit");
    json_put(&object, "fits", json_boolean(self->peak.bytes <= options->memory_bytes));
    JSON_PUT(&object, {"memory_bytes", options->memory_bytes},
             {"overhead_bytes", self->peak.reserve_bytes}, {"heaviest_stage", self->peak.stage},
             {"needed_bytes", self->peak.bytes},
             {"margin_bytes", options->memory_bytes - self->peak.bytes},
             {"micro_batch", config->micro_batch}, {"sequence", config->sequence_size},
             {"largest_micro_batch", self->micro_batch}, {"largest_sequence", self->sequence},
             {"sequence_step", self->sequence_step});
    json_put(&object, "stages", stages);
    json_put(&object, "not_counted", json_incref(options->unmodelled));
    json_put(&object, "matters", json_incref(options->matters));
    return object;
}

/* The report's first lines, and what more would fit. */
static int print(const fit *self)
{
    const pst_estimate_config *config = &self->options->config;
    json_t *tree = NULL;
    char text[160], largest[2][32] = {"none", "none"};
    TOOL_TRY(estimate_tree(self->options, &tree));
    if (self->micro_batch > 0)
        snprintf(largest[0], sizeof(largest[0]), "%" PRIu64, self->micro_batch);
    if (self->sequence > 0)
        snprintf(largest[1], sizeof(largest[1]), "%" PRIu64, self->sequence);
    snprintf(text, sizeof(text),
             "largest that fits: micro-batch %s with sequence %" PRIu64
             ", sequence %s with micro-batch %" PRIu64,
             largest[0], config->sequence_size, largest[1], config->micro_batch);
    estimate_print_summary(self->options, tree, text);
    if (self->options->shows_details)
        estimate_print_details(tree);
    json_decref(tree);
    return TOOL_OK;
}

static int answer(const fit *self)
{
    const estimate_options *options = self->options;
    if (self->peak.bytes > INT64_MAX)
        return estimate_too_much(options, "bytes of a GPU");
    if (!json_is_stdout(options->json))
        TOOL_TRY(print(self));
    TOOL_TRY(json_write(tree_of(self), options->json));
    return self->peak.bytes <= options->memory_bytes ? TOOL_OK : TOOL_NO;
}

int estimate_fit(const estimate_options *options)
{
    const pst_estimate_config *config = &options->config;
    fit self = {.options = options};
    ESTIMATE_TRY(options, pst_estimate_check(config));
    ESTIMATE_TRY(options, estimate_peak_of(config, &options->reserve, &self.peak));
    find_micro_batch(&self);
    ESTIMATE_TRY(options, self.status);
    find_sequence(&self);
    ESTIMATE_TRY(options, self.status);
    return answer(&self);
}
