/* From a launch line to options. */
#include "tools/estimate/estimate_flags.h"

#include "tools/common/gpu.h"
#include "tools/common/json_in.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HF_BYTES ((size_t)1 << 20)
#define LEAST_MEMORY ((uint64_t)1 << 20) /* 80 without GiB is below */

/* ---- notes ---- */

void estimate_note(json_t **notes, const char *format, ...)
{
    char *line = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&line, format, arguments) >= 0)
        tool_clean(line);
    else
        line = NULL;
    va_end(arguments);
    json_add(notes, line != NULL ? json_text(line) : NULL);
    free(line);
}

void estimate_warn(const json_t *notes, const char *what)
{
    for (size_t i = 0; i < json_array_size(notes); i++)
        (void)tool_fail(TOOL_OK, "%s%s", what, json_string_value(json_array_get(notes, i)));
}

void estimate_free(estimate_options *options)
{
    free((void *)options->config.chunk_layers);
    options->config.chunk_layers = NULL;
    if (options->line != NULL)
        json_decref(options->line->file);
    free(options->line);
    options->line = NULL;
    json_decref(options->assumptions);
    json_decref(options->warnings);
    json_decref(options->unmodelled);
    json_decref(options->matters);
}

/* ---- what is asked for ---- */

/* Of each pair one at a time. A picture's figures are of another model than those of --compat. */
static const estimate_id exclusive[][2] = {
    {ESTIMATE_fit, ESTIMATE_search},
    {ESTIMATE_fit, ESTIMATE_timeline},
    {ESTIMATE_fit, ESTIMATE_compat},
    {ESTIMATE_search, ESTIMATE_timeline},
    {ESTIMATE_search, ESTIMATE_compat},
    {ESTIMATE_search, ESTIMATE_routing},
    {ESTIMATE_timeline, ESTIMATE_compat},
    {ESTIMATE_json, ESTIMATE_timeline},
    {ESTIMATE_json, ESTIMATE_compat},
    {ESTIMATE_html, ESTIMATE_compat},
    {ESTIMATE_preset, ESTIMATE_hf_config},
    {ESTIMATE_bf16, ESTIMATE_fp16},
    {ESTIMATE_bf16, ESTIMATE_fp32},
    {ESTIMATE_fp16, ESTIMATE_fp32},
    {ESTIMATE_moe_load_cv, ESTIMATE_routing},
    {ESTIMATE_moe_expert_capacity_factor, ESTIMATE_moe_expert_rank_capacity_factor},
    {ESTIMATE_num_layers_per_virtual_pipeline_stage, ESTIMATE_num_virtual_stages_per_pipeline_rank},
    {ESTIMATE_decoder_first_pipeline_num_layers, ESTIMATE_pipeline_model_parallel_layout},
    {ESTIMATE_decoder_last_pipeline_num_layers, ESTIMATE_pipeline_model_parallel_layout},
    {ESTIMATE_account_for_embedding_in_pipeline_split, ESTIMATE_pipeline_model_parallel_layout},
    {ESTIMATE_account_for_loss_in_pipeline_split, ESTIMATE_pipeline_model_parallel_layout},
    {ESTIMATE_num_layers_per_virtual_pipeline_stage, ESTIMATE_pipeline_model_parallel_layout},
};

static int check_exclusive(const estimate_line *line)
{
    for (size_t i = 0; i < sizeof(exclusive) / sizeof(exclusive[0]); i++) {
        const estimate_id a = exclusive[i][0], b = exclusive[i][1];
        if (!estimate_has(line, a) || !estimate_has(line, b))
            continue;
        const char *of_a = a == ESTIMATE_json ? "" : estimate_text(line, a);
        const char *of_b = estimate_text(line, b);
        return tool_fail(TOOL_USAGE, "--%s%s%.80s and --%s%s%.80s: one of them at a time",
                         estimate_flag(a), *of_a ? " " : "", of_a, estimate_flag(b),
                         *of_b ? " " : "", of_b);
    }
    return TOOL_OK;
}

static int take_mode(const estimate_line *line, estimate_options *options)
{
    static const estimate_id modes[] = {[ESTIMATE_FIT] = ESTIMATE_fit,
                                        [ESTIMATE_SEARCH] = ESTIMATE_search,
                                        [ESTIMATE_TIMELINE] = ESTIMATE_timeline,
                                        [ESTIMATE_PR482] = ESTIMATE_compat};
    TOOL_TRY(check_exclusive(line));
    for (estimate_mode mode = ESTIMATE_FIT; mode <= ESTIMATE_PR482; mode++)
        if (estimate_has(line, modes[mode]))
            options->mode = mode;
    for (int i = 0; i < ESTIMATE_NUM_WAYS; i++)
        options->keeps[i] = estimate_has(line, estimate_ways[i].id);
    options->pr482_logit_bytes = 9 + estimate_number(line, ESTIMATE_compat_logit_bytes, 1);
    options->has_load_cv = estimate_has(line, ESTIMATE_moe_load_cv);
    options->load_cv_num = line->flags[ESTIMATE_moe_load_cv].num;
    options->load_cv_den = options->has_load_cv ? line->flags[ESTIMATE_moe_load_cv].den : 1;
    if (!estimate_has(line, ESTIMATE_gpus_per_node))
        options->gpus_per_node =
            estimate_number(line, ESTIMATE_nproc_per_node, options->gpus_per_node);
    if (options->html != NULL && strcmp(options->html, "-") == 0)
        return estimate_refuse_flag(line, ESTIMATE_html,
                                    "stdout is the report's: allowed is a file");
    if (estimate_has(line, ESTIMATE_compat_logit_bytes) && options->mode != ESTIMATE_PR482)
        return estimate_refuse_flag(line, ESTIMATE_compat_logit_bytes, "needs --compat pr482");
    return TOOL_OK;
}

/* A node of so many GPUs where a flag says it. Buffers of what runs beside products are not counted. */
static int take_gpu(const estimate_line *line, estimate_options *options)
{
    if (options->gpu_name == NULL && options->mode == ESTIMATE_SEARCH) {
        options->gpu_name = "h100";
        estimate_note(&options->assumptions, "times on an h100: say --gpu");
    }
    if (options->gpu_name != NULL)
        TOOL_TRY(gpu_read("gpu", options->gpu_name, &options->gpu));
    options->takes_gpu_memory = options->gpu_name != NULL && options->gpu.memory_bytes != 0 &&
                                !estimate_has(line, ESTIMATE_gpu_memory);
    if (options->takes_gpu_memory)
        options->memory_bytes = options->gpu.memory_bytes;
    if (options->memory_bytes < LEAST_MEMORY)
        return estimate_refuse_flag(line,
                                    options->takes_gpu_memory ? ESTIMATE_gpu : ESTIMATE_gpu_memory,
                                    "less than 1MiB of memory: a size as 80GiB has its unit");
    if (options->reserve.overhead_bytes != 0 && options->reserve.overhead_bytes < LEAST_MEMORY)
        return estimate_refuse_flag(line, ESTIMATE_overhead,
                                    "less than 1MiB, and not 0: a size as 2GiB has its unit");
    if (estimate_has(line, ESTIMATE_gpus_per_node) || estimate_has(line, ESTIMATE_nproc_per_node))
        options->gpu.node_gpus =
            options->gpus_per_node < UINT32_MAX ? (uint32_t)options->gpus_per_node : UINT32_MAX;
    if (options->overlaps_tensor)
        estimate_note(&options->unmodelled, "--tp-comm-overlap");
    if (options->overlaps_shared_experts)
        estimate_note(&options->unmodelled, "--moe-shared-expert-overlap");
    return TOOL_OK;
}

/* A model of several parts is counted as its text's. */
static int resolve(estimate_line *line, estimate_options *options)
{
    const char *path = estimate_text(line, ESTIMATE_hf_config);
    json_t *root = NULL;
    if (path == NULL)
        return estimate_resolve(line, options);
    TOOL_TRY(json_read(path, HF_BYTES, &root));
    json_t *text = json_object_get(root, "text_config");
    line->file = json_incref(json_is_object(text) ? text : root);
    if (json_is_object(text)) {
        json_t *tied = json_object_get(root, "tie_word_embeddings");
        if (tied != NULL && json_object_get(text, "tie_word_embeddings") == NULL)
            (void)json_object_set(text, "tie_word_embeddings", tied);
        estimate_note(&options->assumptions,
                      "text_config of %s alone: its other parts are not counted", path);
    }
    const int code = estimate_resolve(line, options);
    json_decref(root);
    return code;
}

int estimate_parse(int argc, char **argv, estimate_options *options)
{
    estimate_line *line = calloc(1, sizeof(*line));
    *options = (estimate_options){.config = PST_ESTIMATE_CONFIG_INIT,
                                  .assumptions = json_array(),
                                  .warnings = json_array(),
                                  .unmodelled = json_array(),
                                  .matters = json_array(),
                                  .line = line};
    if (line == NULL)
        return tool_fail(TOOL_NO, "out of memory for a launch line");
    TOOL_TRY(estimate_read_line(argc, argv, line, options));
    estimate_take_options(line, options);
    TOOL_TRY(take_mode(line, options));
    TOOL_TRY(take_gpu(line, options));
    TOOL_TRY(resolve(line, options));
    if (options->assumptions == NULL || options->warnings == NULL || options->unmodelled == NULL ||
        options->matters == NULL)
        return tool_fail(TOOL_NO, "out of memory for a note");
    estimate_warn(options->warnings, "");
    return TOOL_OK;
}
