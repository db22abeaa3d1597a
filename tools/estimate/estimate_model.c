/* What flags say of the model, over Megatron's defaults, a preset or a config.json. */
#include "tools/estimate/estimate_flags.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

/* ---- what the model begins with ---- */

static void begin_plain(pst_estimate_config *config)
{
    config->has_linear_bias = true;
    config->is_tied = true;
    config->has_hidden_dropout = true;
    config->has_attention_dropout = true;
}

static int begin(const estimate_line *line, estimate_model *model, estimate_options *options)
{
    const char *preset = estimate_text(line, ESTIMATE_F_PRESET);
    const char *file = estimate_text(line, ESTIMATE_F_HF_CONFIG);
    if (preset != NULL)
        return estimate_preset(preset, model);
    if (file != NULL)
        return estimate_hf(line, options, model);
    begin_plain(&model->config);
    return TOOL_OK;
}

/* ---- dense parts ---- */

static int check_given(const estimate_line *line, const estimate_model *model)
{
    static const estimate_flag needed[] = {ESTIMATE_F_NUM_LAYERS, ESTIMATE_F_HIDDEN_SIZE,
                                           ESTIMATE_F_NUM_ATTENTION_HEADS};
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]) && model->source == NULL; i++)
        if (!estimate_has(line, needed[i]))
            return tool_fail(TOOL_USAGE, "--%s: missing: give it, or --preset, or --hf-config",
                             estimate_flag_table[needed[i]].name);
    return TOOL_OK;
}

static int take_attention(const estimate_line *line, estimate_model *model,
                          estimate_options *options)
{
    pst_estimate_config *config = &model->config;
    if (estimate_has(line, ESTIMATE_F_NUM_QUERY_GROUPS) && model->source == NULL &&
        !estimate_has(line, ESTIMATE_F_GROUP_QUERY_ATTENTION))
        TOOL_TRY(estimate_note(&options->assumptions, "--num-query-groups does not count without "
                                                      "--group-query-attention"));
    else
        estimate_take_number(line, ESTIMATE_F_NUM_QUERY_GROUPS, &config->num_kv_heads);
    if (config->num_kv_heads == 0) {
        config->num_kv_heads = config->num_heads;
        if (estimate_has(line, ESTIMATE_F_GROUP_QUERY_ATTENTION))
            TOOL_TRY(estimate_note(&options->assumptions,
                                   "--num-query-groups %llu, as many as heads; earlier releases of "
                                   "Megatron-LM take 1",
                                   (ull)config->num_kv_heads));
    }
    const bool has_latents =
        config->kv_rank != 0 || estimate_has(line, ESTIMATE_F_MULTI_LATENT_ATTENTION);
    if (config->head_size == 0 && config->hidden_size % config->num_heads != 0 && !has_latents)
        return estimate_refuse(line,
                               "hidden_size %llu: must be a multiple of num_heads %llu, where "
                               "head_size is not given",
                               (ull)config->hidden_size, (ull)config->num_heads);
    if (config->head_size == 0)
        config->head_size = config->hidden_size / config->num_heads;
    if (estimate_has(line, ESTIMATE_F_QK_LAYERNORM))
        config->qk_norm = PST_QK_NORM_HEAD;
    config->qk_norm = (pst_qk_norm)estimate_choice(line, ESTIMATE_F_QK_NORM, (int)config->qk_norm);
    return TOOL_OK;
}

static int take_latents(const estimate_line *line, estimate_model *model, estimate_options *options)
{
    pst_estimate_config *config = &model->config;
    if (!estimate_has(line, ESTIMATE_F_MULTI_LATENT_ATTENTION) && config->kv_rank == 0)
        return TOOL_OK;
    if (config->kv_rank == 0) {
        config->kv_rank = 32;
        config->qk_size = config->v_size = 128;
        config->qk_position_size = 64;
        if (!estimate_has(line, ESTIMATE_F_QK_LAYERNORM))
            TOOL_TRY(estimate_note(&options->assumptions, "--multi-latent-attention: its latents "
                                                          "have norms, as with --qk-layernorm"));
    }
    estimate_take_fields(line, ESTIMATE_OF_LATENTS, config);
    config->qk_norm = (pst_qk_norm)estimate_choice(line, ESTIMATE_F_QK_NORM, (int)PST_QK_NORM_NONE);
    return TOOL_OK;
}

static int take_ffn(const estimate_line *line, estimate_model *model)
{
    pst_estimate_config *config = &model->config;
    const bool swiglu = estimate_has(line, ESTIMATE_F_SWIGLU);
    config->is_gated = config->is_gated || estimate_has(line, ESTIMATE_F_QUICK_GEGLU);
    const uint64_t hidden = config->hidden_size;
    if (hidden > INT64_MAX / 16)
        return estimate_refuse(line, "hidden_size %llu: at most %llu", (ull)hidden,
                               (ull)(INT64_MAX / 16));
    if (model->source == NULL)
        config->ffn_size = swiglu ? hidden * 8 / 3 / 64 * 64 : 4 * hidden;
    estimate_take_number(line, ESTIMATE_F_FFN_HIDDEN_SIZE, &config->ffn_size);
    return TOOL_OK;
}

static int take_positions(const estimate_line *line, estimate_model *model,
                          estimate_options *options)
{
    pst_estimate_config *config = &model->config;
    const bool has_type = estimate_has(line, ESTIMATE_F_POSITION_EMBEDDING_TYPE);
    const int type = estimate_choice(line, ESTIMATE_F_POSITION_EMBEDDING_TYPE, 0);
    if (config->sequence_size == 0) {
        if (model->source == NULL)
            return tool_fail(TOOL_USAGE, "--seq-length: missing: give it");
        const bool is_short = model->max_positions != 0 && model->max_positions < 4096;
        config->sequence_size = is_short ? model->max_positions : 4096;
        TOOL_TRY(
            estimate_note(&options->assumptions, "--seq-length %llu", (ull)config->sequence_size));
    }
    const bool is_learned = has_type ? type == 0 : model->source == NULL || config->max_positions;
    if (!is_learned || estimate_has(line, ESTIMATE_F_NO_POSITION_EMBEDDING) ||
        estimate_has(line, ESTIMATE_F_USE_ROTARY_POSITION_EMBEDDINGS)) {
        config->max_positions = 0;
        if (has_type && type == 4)
            TOOL_TRY(estimate_note(&options->unmodelled, "--position-embedding-type relative"));
        return TOOL_OK;
    }
    estimate_take_number(line, ESTIMATE_F_MAX_POSITION_EMBEDDINGS, &config->max_positions);
    if (config->max_positions == 0) {
        config->max_positions = config->sequence_size;
        TOOL_TRY(estimate_note(&options->assumptions, "--max-position-embeddings %llu",
                               (ull)config->max_positions));
    }
    if (config->max_positions < config->sequence_size)
        return estimate_refuse(line, "sequence_size %llu: max_positions is %llu",
                               (ull)config->sequence_size, (ull)config->max_positions);
    return TOOL_OK;
}

static int take_vocabulary(const estimate_line *line, estimate_model *model,
                           estimate_options *options)
{
    pst_estimate_config *config = &model->config;
    const char *tokenizer = estimate_text(line, ESTIMATE_F_TOKENIZER_TYPE);
    if (config->vocab_size == 0 && config->padded_vocab_size != 0)
        config->vocab_size = config->padded_vocab_size;
    if (config->vocab_size == 0 && estimate_has(line, ESTIMATE_F_VOCAB_FILE))
        return estimate_count_words(estimate_text(line, ESTIMATE_F_VOCAB_FILE),
                                    &config->vocab_size);
    if (config->vocab_size != 0)
        return TOOL_OK;
    const bool is_llama = tokenizer != NULL && strcmp(tokenizer, "Llama2Tokenizer") == 0;
    config->vocab_size = is_llama ? 32000 : 50257;
    return estimate_note(&options->assumptions, "--vocab-size %llu, of %s: nothing says how many",
                         (ull)config->vocab_size, is_llama ? "Llama 2" : "GPT-2");
}

/* ---- experts ---- */

static void take_experts(const estimate_line *line, estimate_model *model)
{
    pst_estimate_config *config = &model->config;
    const bool had_experts = config->num_experts != 0;
    estimate_take_number(line, ESTIMATE_F_NUM_EXPERTS, &config->num_experts);
    if (config->num_experts == 0)
        return;
    if (!had_experts) {
        config->experts_per_token = 2;
        config->expert_ffn_size = config->ffn_size;
    }
    estimate_take_fields(line, ESTIMATE_OF_EXPERTS, config);
}

/* A preset's layers do not fit another number of them. */
static int take_moe_layers(const estimate_line *line, pst_estimate_config *config,
                           uint64_t layers_before)
{
    const char *text = estimate_text(line, ESTIMATE_F_MOE_LAYER_FREQ);
    bool *is_moe = NULL;
    if (text == NULL || config->num_experts == 0) {
        if (config->is_moe == NULL || config->num_layers == layers_before)
            return TOOL_OK;
        return tool_fail(TOOL_USAGE,
                         "--num-layers %llu: the model's list of expert layers is for %llu: give "
                         "--moe-layer-freq",
                         (ull)config->num_layers, (ull)layers_before);
    }
    TOOL_TRY(estimate_moe_layers(text, config->num_layers, &is_moe));
    free((void *)config->is_moe);
    config->is_moe = is_moe;
    return TOOL_OK;
}

static int take_model(const estimate_line *line, estimate_model *model, estimate_options *options)
{
    pst_estimate_config *config = &model->config;
    const uint64_t layers_before = config->num_layers;
    TOOL_TRY(check_given(line, model));
    config->vocab_multiple = 128;
    estimate_take_fields(line, ESTIMATE_OF_MODEL, config);
    estimate_take_fields(line, ESTIMATE_OF_BATCH, config);
    if (model->mtp_layers != 0 && !estimate_has(line, ESTIMATE_F_MTP_NUM_LAYERS))
        TOOL_TRY(estimate_note(&options->assumptions,
                               "--mtp-num-layers 0: the model has %llu (num_nextn_predict_layers)",
                               (ull)model->mtp_layers));
    TOOL_TRY(take_attention(line, model, options));
    TOOL_TRY(take_latents(line, model, options));
    TOOL_TRY(take_ffn(line, model));
    TOOL_TRY(take_positions(line, model, options));
    TOOL_TRY(take_vocabulary(line, model, options));
    take_experts(line, model);
    return take_moe_layers(line, config, layers_before);
}

int estimate_take_model(const estimate_line *line, estimate_options *options)
{
    estimate_model model = {.config = PST_ESTIMATE_CONFIG_INIT};
    int code = begin(line, &model, options);
    if (code == TOOL_OK)
        code = take_model(line, &model, options);
    options->config = model.config; /* owns is_moe now, whatever happened */
    return code;
}
