/* What a stage needs, which one needs most, and how long a step takes: --fit, --search and what-if stand on
 * this. */
#include "host/base/arith.h"
#include "tools/estimate/estimate_flags.h"

#include <stdio.h>
#include <string.h>

/* The flag of the largest size or number, which is why something exceeds what can be counted; beside a config.json
 * of those that were given. */
static estimate_id largest_of(const estimate_options *options)
{
    const pst_estimate_config *config = &options->config;
    estimate_id largest = ESTIMATE_num_layers;
    for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++)
        if (estimate_rows[id].member != NULL && estimate_rows[id].type == ESTIMATE_IS_WHOLE &&
            estimate_rows[id].kind != ESTIMATE_NO_FLAG &&
            (options->line->file == NULL || estimate_has(options->line, id) ||
             id == ESTIMATE_world_size) &&
            estimate_value(config, id) > estimate_value(config, largest))
            largest = id;
    return largest;
}

/* No flag replaced it. */
static bool counts(const pst_estimate_config *config, uint64_t number)
{
    for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++)
        if (estimate_rows[id].member != NULL && estimate_rows[id].type == ESTIMATE_IS_WHOLE &&
            estimate_value(config, id) == number)
            return true;
    return false;
}

/* The key of the config.json whose number counts and is the largest, if it is above *value_out, or NULL. */
static const char *largest_key(const estimate_options *options, uint64_t *value_out,
                               char text[ESTIMATE_WORD])
{
    char word[ESTIMATE_WORD];
    const char *largest = NULL;
    for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++) {
        const char *key = estimate_key(&estimate_rows[id], options->line->file, word);
        const json_int_t number =
            key != NULL ? json_integer_value(json_object_get(options->line->file, key)) : 0;
        if (number > 0 && (uint64_t)number > *value_out &&
            counts(&options->config, (uint64_t)number)) {
            *value_out = (uint64_t)number;
            largest = strcpy(text, key);
        }
    }
    /* the one that only counts as a factor */
    const json_t *shared = json_object_get(options->line->file, "n_shared_experts");
    if (options->config.shared_ffn_size <= *value_out || !json_is_integer(shared) ||
        estimate_has(options->line, ESTIMATE_moe_shared_expert_intermediate_size))
        return largest;
    *value_out = (uint64_t)json_integer_value(shared);
    return "n_shared_experts";
}

int estimate_refuse_largest(const estimate_options *options, uint64_t overhead_bytes,
                            const char *why)
{
    estimate_id id = largest_of(options);
    uint64_t value = estimate_value(&options->config, id);
    if (overhead_bytes > value) {
        id = ESTIMATE_overhead;
        value = overhead_bytes;
    }
    char text[ESTIMATE_WORD];
    const char *key = largest_key(options, &value, text);
    if (key != NULL)
        return tool_fail(TOOL_INPUT, "%.80s (%s) %llu: %s", key, options->hf_config,
                         (unsigned long long)value, why);
    return tool_fail(TOOL_USAGE, "--%s %llu: %s", estimate_flag(id), (unsigned long long)value,
                     why);
}

int estimate_too_much(const estimate_options *options, const char *figure)
{
    char why[96];
    snprintf(why, sizeof(why), "%s: more than 2^63 - 1", figure);
    return estimate_refuse_largest(
        options, options->has_overhead ? options->reserve.overhead_bytes : 0, why);
}

int estimate_status(const estimate_options *options, pst_status status)
{
    static const char ours[] = "config: "; /* what the library calls it, and no flag does */
    const char *text = tool_last_message();
    if (status != PST_E_INVALID)
        return tool_status(status);
    return estimate_refuse_largest(
        options, 0, text + (strncmp(text, ours, strlen(ours)) == 0 ? strlen(ours) : 0));
}

pst_status estimate_measure(const pst_estimate_config *config, uint64_t stage,
                            const estimate_reserve *reserve, estimate_stage *stage_out)
{
    TOOL_TRY(pst_estimate_get_memory(config, stage, stage_out->live, &stage_out->memory));
    TOOL_TRY(pst_estimate_get_traffic(config, stage, &stage_out->traffic));
    stage_out->wire_bytes = 0;
    for (uint32_t i = 0; i < stage_out->traffic.num_ops; i++)
        if (stage_out->traffic.ops[i].transfer != PST_TRANSFER_RECEIVE)
            stage_out->wire_bytes =
                psti_plus(stage_out->wire_bytes, stage_out->traffic.ops[i].wire_bytes);
    const uint64_t peak = stage_out->memory.peak_bytes;
    stage_out->reserve_bytes = estimate_reserve_of(reserve, peak);
    stage_out->peak_bytes = psti_plus(peak, stage_out->reserve_bytes);
    return PST_OK;
}

pst_status estimate_peak_of(const pst_estimate_config *config, const estimate_reserve *reserve,
                            estimate_peak *peak_out)
{
    estimate_peak peak = {.stage = 0};
    for (uint64_t i = 0; i < config->pipeline_parallel; i++) {
        estimate_stage stage = {.live = NULL};
        TOOL_TRY(estimate_measure(config, i, reserve, &stage));
        if (i == 0 || stage.peak_bytes > peak.bytes) {
            peak.stage = i;
            peak.bytes = stage.peak_bytes;
            peak.reserve_bytes = stage.reserve_bytes;
        }
        peak.wire_bytes = stage.wire_bytes > peak.wire_bytes ? stage.wire_bytes : peak.wire_bytes;
    }
    *peak_out = peak;
    return PST_OK;
}

uint32_t estimate_overlaps(const estimate_options *options)
{
    return (options->overlaps_tensor ? PST_OVERLAP_TENSOR : 0) |
           (options->overlaps_gradients ? PST_OVERLAP_GRADIENTS : 0) |
           (options->overlaps_params ? PST_OVERLAP_PARAMS : 0) |
           (options->overlaps_shared_experts ? PST_OVERLAP_SHARED_EXPERTS : 0);
}

pst_status estimate_predict(const estimate_options *options, const pst_estimate_config *config,
                            pst_step_prediction *prediction_out)
{
    pst_step_config step = PST_STEP_CONFIG_INIT;
    step.run = config;
    step.gpu = &options->gpu;
    step.overlaps = estimate_overlaps(options);
    return pst_step_predict(&step, prediction_out, NULL);
}
