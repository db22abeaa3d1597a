/* What flags say of the model, over Megatron's defaults, a preset or a config.json. */
#include "host/base/arith.h"
#include "tools/common/json_in.h"
#include "tools/estimate/estimate_flags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

enum { VOCABULARY_BYTES = 64 << 20 };

/* ---- published models ---- */

/* RMSNorm, gated, no biases, not tied, no dropout. */
#define LLAMA(layers, hidden, heads, kv_heads, head, ffn, words)                               \
    .num_layers = (layers), .hidden_size = (hidden), .num_heads = (heads),                     \
    .num_kv_heads = (kv_heads), .head_size = (head), .ffn_size = (ffn), .vocab_size = (words), \
    .norm = PST_NORM_RMS, .is_gated = true
#define EXPERTS(num, per_token, ffn) \
    .num_experts = (num), .experts_per_token = (per_token), .expert_ffn_size = (ffn)
/* LayerNorm, biases, tied, learned positions, dropout. */
#define GPT(layers, hidden, heads, head, ffn, words, positions, gated)                           \
    .num_layers = (layers), .hidden_size = (hidden), .num_heads = (heads),                       \
    .num_kv_heads = (heads), .head_size = (head), .ffn_size = (ffn), .vocab_size = (words),      \
    .max_positions = (positions), .is_gated = (gated), .has_linear_bias = true, .is_tied = true, \
    .has_hidden_dropout = true, .has_attention_dropout = true

#define SIZED .struct_size = sizeof(pst_estimate_config)
static const struct {
    const char *name;
    pst_estimate_config config;
    const char *layers; /* which have experts; NULL: all, if there are any */
} presets[] = {
    {"gpt2-124m", {SIZED, GPT(12, 768, 12, 64, 3072, 50257, 1024, false)}, NULL},
    {"gpt-345m", {SIZED, GPT(24, 1024, 16, 64, 4096, 50257, 1024, false)}, NULL},
    {"gpt3-175b", {SIZED, GPT(96, 12288, 96, 128, 49152, 51200, 2048, false)}, NULL},
    {"pr482-gpt", {SIZED, GPT(32, 4096, 32, 128, 10880, 50304, 2048, true)}, NULL},
    {"llama2-7b", {SIZED, LLAMA(32, 4096, 32, 32, 128, 11008, 32000)}, NULL},
    {"llama2-13b", {SIZED, LLAMA(40, 5120, 40, 40, 128, 13824, 32000)}, NULL},
    {"llama2-70b", {SIZED, LLAMA(80, 8192, 64, 8, 128, 28672, 32000)}, NULL},
    {"mixtral-8x7b", {SIZED, LLAMA(32, 4096, 32, 8, 128, 0, 32000), EXPERTS(8, 2, 14336)}, NULL},
    {"qwen3-30b-a3b",
     {SIZED, LLAMA(48, 2048, 32, 4, 128, 0, 151936), EXPERTS(128, 8, 768),
      .qk_norm = PST_QK_NORM_HEAD},
     NULL},
    {"qwen3-235b-a22b",
     {SIZED, LLAMA(94, 4096, 64, 4, 128, 0, 151936), EXPERTS(128, 8, 1536),
      .qk_norm = PST_QK_NORM_HEAD},
     NULL},
    {"deepseek-v3",
     {SIZED, LLAMA(61, 7168, 128, 128, 56, 18432, 129280), EXPERTS(256, 8, 2048), .q_rank = 1536,
      .kv_rank = 512, .qk_size = 128, .qk_position_size = 64, .v_size = 128,
      .shared_ffn_size = 2048, .has_router_bias = true, .router_groups = 8, .router_group_topk = 4},
     "([0]*3+[1]*58)"},
};
enum { NUM_PRESETS = sizeof(presets) / sizeof(presets[0]) };

static int take_preset(estimate_options *options)
{
    char allowed[256] = "";
    int i = 0;
    for (; i < NUM_PRESETS && strcmp(options->preset, presets[i].name) != 0; i++) {
        const size_t length = strlen(allowed);
        snprintf(allowed + length, sizeof(allowed) - length, "%s%s", i > 0 ? ", " : "",
                 presets[i].name);
    }
    if (i == NUM_PRESETS)
        return tool_fail(TOOL_USAGE, "--preset %.80s: allowed are %s", options->preset, allowed);
    options->config = presets[i].config;
    options->model_positions =
        presets[i].config.max_positions != 0 ? presets[i].config.max_positions : 4096;
    return presets[i].layers == NULL ? TOOL_OK : estimate_moe_layers(presets[i].layers, options);
}

/* ---- where it begins ---- */

static int begin(const estimate_line *line, estimate_options *options)
{
    static const estimate_id needed[] = {ESTIMATE_num_layers, ESTIMATE_hidden_size,
                                         ESTIMATE_num_attention_heads, ESTIMATE_seq_length};
    pst_estimate_config *config = &options->config;
    options->model = options->preset != NULL ? options->preset : options->hf_config;
    if (options->preset != NULL)
        return take_preset(options);
    if (options->hf_config != NULL)
        return estimate_hf(line->file, options);
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (!estimate_has(line, needed[i]))
            return tool_fail(TOOL_USAGE, "--%s: missing: give it, or --preset, or --hf-config",
                             estimate_flag(needed[i]));
    config->has_linear_bias = config->is_tied = true;
    config->has_hidden_dropout = config->has_attention_dropout = true;
    return TOOL_OK;
}

/* ---- attention ---- */

static int take_heads(const estimate_line *line, estimate_options *options, bool has_latents)
{
    pst_estimate_config *config = &options->config;
    const bool in_groups = estimate_has(line, ESTIMATE_group_query_attention);
    if (options->model != NULL || in_groups)
        config->num_kv_heads =
            estimate_number(line, ESTIMATE_num_query_groups, config->num_kv_heads);
    else if (estimate_has(line, ESTIMATE_num_query_groups))
        estimate_note(&options->assumptions, "--num-query-groups does not count without "
                                             "--group-query-attention");
    if (config->num_kv_heads == 0) {
        config->num_kv_heads = config->num_heads;
        if (in_groups)
            estimate_note(&options->assumptions,
                          "--num-query-groups %llu, as many as heads; earlier releases of "
                          "Megatron-LM take 1",
                          (ull)config->num_kv_heads);
    }
    if (config->head_size == 0 && config->hidden_size % config->num_heads != 0 && !has_latents)
        return estimate_refuse(line,
                               "{hidden_size} %llu: must be a multiple of {num_heads} %llu, where "
                               "{head_size} is not given",
                               (ull)config->hidden_size, (ull)config->num_heads);
    if (config->head_size == 0)
        config->head_size = config->hidden_size / config->num_heads;
    if (estimate_has(line, ESTIMATE_qk_layernorm))
        config->qk_norm = PST_QK_NORM_HEAD;
    config->qk_norm = (pst_qk_norm)estimate_number(line, ESTIMATE_qk_norm, config->qk_norm);
    return TOOL_OK;
}

/* Whose norms are their own. */
static void take_latents(const estimate_line *line, estimate_options *options, bool are_new)
{
    pst_estimate_config *config = &options->config;
    config->qk_norm = (pst_qk_norm)estimate_number(line, ESTIMATE_qk_norm, PST_QK_NORM_NONE);
    if (!are_new)
        return;
    config->qk_position_size = estimate_number(line, ESTIMATE_qk_pos_emb_head_dim, 64);
    if (!estimate_has(line, ESTIMATE_qk_layernorm))
        estimate_note(&options->assumptions, "--multi-latent-attention: its latents have norms, "
                                             "as with --qk-layernorm");
}

/* ---- sizes ---- */

static int take_ffn(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    const uint64_t hidden = config->hidden_size;
    config->is_gated = config->is_gated || estimate_has(line, ESTIMATE_quick_geglu);
    if (hidden > INT64_MAX / 16)
        return estimate_refuse(line, "{hidden_size} %llu: at most %llu", (ull)hidden,
                               (ull)(INT64_MAX / 16));
    if (options->model == NULL && !estimate_has(line, ESTIMATE_ffn_hidden_size))
        config->ffn_size =
            estimate_has(line, ESTIMATE_swiglu) ? hidden * 8 / 3 / 64 * 64 : 4 * hidden;
    return TOOL_OK;
}

static int take_positions(const estimate_line *line, estimate_options *options)
{
    enum { LEARNED = 0, RELATIVE = 4 };
    pst_estimate_config *config = &options->config;
    const bool is_learned = options->model == NULL || config->max_positions != 0;
    const uint64_t type = estimate_number(line, ESTIMATE_position_embedding_type,
                                          is_learned ? LEARNED : RELATIVE + 1);
    if (config->sequence_size == 0) {
        const uint64_t most = options->model_positions;
        config->sequence_size = most != 0 ? psti_min(most, 4096) : 4096;
        estimate_note(&options->assumptions, "--seq-length %llu", (ull)config->sequence_size);
    }
    if (type != LEARNED || estimate_has(line, ESTIMATE_no_position_embedding) ||
        estimate_has(line, ESTIMATE_use_rotary_position_embeddings)) {
        config->max_positions = 0;
        if (type == RELATIVE)
            estimate_note(&options->unmodelled, "--position-embedding-type relative");
        return TOOL_OK;
    }
    config->max_positions =
        estimate_number(line, ESTIMATE_max_position_embeddings, config->max_positions);
    if (config->max_positions == 0) {
        config->max_positions = config->sequence_size;
        estimate_note(&options->assumptions, "--max-position-embeddings %llu",
                      (ull)config->max_positions);
    }
    if (config->max_positions < config->sequence_size)
        return estimate_refuse(line, "{sequence_size} %llu: {max_positions} is %llu",
                               (ull)config->sequence_size, (ull)config->max_positions);
    return TOOL_OK;
}

/* Keys of the file's object. */
static int count_words(const char *path, uint64_t *words_out)
{
    json_t *root;
    TOOL_TRY(json_read(path, VOCABULARY_BYTES, &root));
    *words_out = json_object_size(root);
    json_decref(root);
    return *words_out > 0 ? TOOL_OK : tool_fail(TOOL_INPUT, "%s: an empty vocabulary", path);
}

static int take_vocabulary(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    const char *tokenizer = estimate_text(line, ESTIMATE_tokenizer_type);
    const char *model = estimate_text(line, ESTIMATE_tokenizer_model);
    if (config->vocab_size == 0)
        config->vocab_size = config->padded_vocab_size;
    if (config->vocab_size == 0 && estimate_has(line, ESTIMATE_vocab_file))
        return count_words(estimate_text(line, ESTIMATE_vocab_file), &config->vocab_size);
    if (config->vocab_size != 0)
        return TOOL_OK;
    const bool is_llama = tokenizer != NULL && strcmp(tokenizer, "Llama2Tokenizer") == 0;
    const bool is_gpt2 = tokenizer == NULL || strcmp(tokenizer, "GPT2BPETokenizer") == 0;
    config->vocab_size = is_llama ? 32000 : 50257;
    if (is_llama || (is_gpt2 && model == NULL)) {
        estimate_note(&options->assumptions, "--vocab-size %llu, of %s: nothing says how many",
                      (ull)config->vocab_size, is_llama ? "Llama 2" : "GPT-2");
        return TOOL_OK;
    }
    estimate_note(&options->warnings, "the tokenizer's vocabulary is not known: give --vocab-size");
    estimate_take_effect(options, ESTIMATE_OTHER_STATES);
    estimate_note(&options->matters,
                  "the vocabulary of --tokenizer-%s %.80s (counted as %llu words)",
                  model != NULL ? "model" : "type", model != NULL ? model : tokenizer,
                  (ull)config->vocab_size);
    return TOOL_OK;
}

/* A preset's layers do not fit another number of them. */
static int take_moe_layers(const estimate_line *line, estimate_options *options,
                           uint64_t layers_before)
{
    pst_estimate_config *config = &options->config;
    const char *text = estimate_text(line, ESTIMATE_moe_layer_freq);
    if (text != NULL && config->num_experts != 0)
        return estimate_moe_layers(text, options);
    if (config->is_moe == NULL || config->num_layers == layers_before)
        return TOOL_OK;
    return tool_fail(TOOL_USAGE,
                     "--num-layers %llu: the model's list of expert layers is for %llu: give "
                     "--moe-layer-freq",
                     (ull)config->num_layers, (ull)layers_before);
}

static void take_experts(pst_estimate_config *config)
{
    if (config->num_experts == 0)
        estimate_clear_group(config, ESTIMATE_EXPERTS);
    else if (config->expert_ffn_size == 0)
        config->expert_ffn_size = config->ffn_size;
}

int estimate_take_model(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    TOOL_TRY(begin(line, options));
    const uint64_t layers_before = config->num_layers;
    const bool had_latents = config->kv_rank != 0;
    const bool has_latents = had_latents || estimate_has(line, ESTIMATE_multi_latent_attention);
    estimate_take_fields(line, config);
    if (options->model_mtp_layers != 0 && !estimate_has(line, ESTIMATE_mtp_num_layers))
        estimate_note(&options->assumptions,
                      "--mtp-num-layers 0: the model has %llu (num_nextn_predict_layers)",
                      (ull)options->model_mtp_layers);
    if (!has_latents)
        estimate_clear_group(config, ESTIMATE_LATENTS);
    TOOL_TRY(take_heads(line, options, has_latents));
    if (has_latents)
        take_latents(line, options, !had_latents);
    TOOL_TRY(take_ffn(line, options));
    TOOL_TRY(take_positions(line, options));
    TOOL_TRY(take_vocabulary(line, options));
    take_experts(config);
    return take_moe_layers(line, options, layers_before);
}
