/* pagestash estimate --fit: whether every stage fits, and how much more would. */
#include "host/base/arith.h"
#include "tools/estimate/estimate_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEQUENCE_STEP = 128 };
#define MAX_MICRO_BATCH (UINT64_C(1) << 16)
#define MAX_SEQUENCE (UINT64_C(1) << 32)

typedef struct fit {
    const estimate_options *options;
    uint64_t num_stages;
    uint64_t *needed; /* of each stage, overhead included */
    estimate_peak peak;
    uint64_t micro_batch, sequence, sequence_step; /* 0: none fits */
} fit;

/* What cannot be run, or counted, does not fit. Fails: NOMEM. */
static pst_status check_fit(const fit *self, const pst_estimate_config *config, bool *fits_out)
{
    estimate_peak peak = {.bytes = 0};
    const pst_status status = estimate_peak_of(config, self->options->overhead_bytes, NULL, &peak);
    *fits_out = status == PST_OK && peak.bytes <= self->options->memory_bytes;
    return status == PST_E_INVALID ? PST_OK : status;
}

/* Every one is tried, from the top: with more sequences to a micro-batch there are fewer of those
 * in flight, and what an interleaved schedule holds can fall. */
static pst_status find_micro_batch(fit *self)
{
    pst_estimate_config config = self->options->config;
    const uint64_t replicas = config.world_size / config.tensor_parallel /
                              config.pipeline_parallel / config.context_parallel;
    const uint64_t sequences = config.global_batch / replicas;
    uint64_t candidate = sequences < MAX_MICRO_BATCH ? sequences : MAX_MICRO_BATCH;
    for (; candidate > 0; candidate--) {
        bool fits = false;
        if (sequences % candidate != 0)
            continue;
        config.micro_batch = candidate;
        TOOL_TRY(check_fit(self, &config, &fits));
        if (fits)
            break;
    }
    self->micro_batch = candidate;
    return PST_OK;
}

static uint64_t common_multiple(uint64_t a, uint64_t b)
{
    return a / psti_gcd(a, b) * b;
}

/* By halves: `fitting` steps fit, and one step more than is returned does not. */
static pst_status find_sequence(fit *self)
{
    pst_estimate_config config = self->options->config;
    const uint64_t parts =
        config.context_parallel * (config.sequence_parallel ? config.tensor_parallel : 1);
    const uint64_t even = common_multiple(parts, SEQUENCE_STEP);
    const uint64_t step = config.sequence_size % even == 0 ? even : parts;
    const uint64_t most = config.max_positions ? config.max_positions : MAX_SEQUENCE;
    uint64_t fitting = 0, above = most / step + 1;
    while (above - fitting > 1) {
        const uint64_t middle = fitting + (above - fitting) / 2;
        bool fits = false;
        config.sequence_size = middle * step;
        TOOL_TRY(check_fit(self, &config, &fits));
        if (fits)
            fitting = middle;
        else
            above = middle;
    }
    self->sequence = fitting * step;
    self->sequence_step = step;
    return PST_OK;
}

static pst_status fill(fit *self)
{
    const estimate_options *options = self->options;
    TOOL_TRY(
        estimate_peak_of(&options->config, options->overhead_bytes, self->needed, &self->peak));
    TOOL_TRY(find_micro_batch(self));
    return find_sequence(self);
}

/* ---- */

static json_t *tree_of(const fit *self)
{
    const estimate_options *options = self->options;
    const pst_estimate_config *config = &options->config;
    json_t *object = json_begin("estimate", 1), *stages = json_array();
    for (uint64_t i = 0; i < self->num_stages; i++)
        json_add(&stages,
                 ESTIMATE_OBJECT({"stage", i}, {"needed_bytes", self->needed[i]},
                                 {"margin_bytes", options->memory_bytes - self->needed[i]}));
    json_put_text(&object, "mode", "fit");
    json_put(&object, "fits", json_boolean(self->peak.bytes <= options->memory_bytes));
    JSON_PUT(&object, {"memory_bytes", options->memory_bytes},
             {"overhead_bytes", options->overhead_bytes}, {"heaviest_stage", self->peak.stage},
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
    ESTIMATE_TRY(&options->config, pst_estimate_check(&options->config));
    fit self = {.options = options, .num_stages = options->config.pipeline_parallel};
    self.needed = calloc(self.num_stages, sizeof(*self.needed));
    if (self.needed == NULL)
        return tool_fail(TOOL_NO, "--fit: out of memory");
    int code = estimate_status(&options->config, fill(&self));
    if (code == TOOL_OK)
        code = answer(&self);
    free(self.needed);
    return code;
}
