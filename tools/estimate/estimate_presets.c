/* Published models. */
#include "tools/estimate/estimate_flags.h"

#include <stdio.h>
#include <string.h>

typedef struct preset {
    const char *name;
    uint64_t layers, hidden, heads, kv_heads, head_size, ffn, vocab;
    uint64_t positions; /* learned ones, of the GPT kind: LayerNorm, biases, tied */
    uint64_t experts, per_token, expert_ffn;
    bool is_gated, has_qk_norm;
} preset;

/* Where positions is 0, of the Llama kind: RMSNorm, gated, no biases, not tied, no dropout. */
static const preset presets[] = {
    {"gpt2-124m", 12, 768, 12, 12, 64, 3072, 50257, 1024, 0, 0, 0, false, false},
    {"gpt-345m", 24, 1024, 16, 16, 64, 4096, 50257, 1024, 0, 0, 0, false, false},
    {"gpt3-175b", 96, 12288, 96, 96, 128, 49152, 51200, 2048, 0, 0, 0, false, false},
    {"pr482-gpt", 32, 4096, 32, 32, 128, 10880, 50304, 2048, 0, 0, 0, true, false},
    {"llama2-7b", 32, 4096, 32, 32, 128, 11008, 32000, 0, 0, 0, 0, true, false},
    {"llama2-13b", 40, 5120, 40, 40, 128, 13824, 32000, 0, 0, 0, 0, true, false},
    {"llama2-70b", 80, 8192, 64, 8, 128, 28672, 32000, 0, 0, 0, 0, true, false},
    {"mixtral-8x7b", 32, 4096, 32, 8, 128, 0, 32000, 0, 8, 2, 14336, true, false},
    {"qwen3-30b-a3b", 48, 2048, 32, 4, 128, 0, 151936, 0, 128, 8, 768, true, true},
    {"qwen3-235b-a22b", 94, 4096, 64, 4, 128, 0, 151936, 0, 128, 8, 1536, true, true},
    {"deepseek-v3", 61, 7168, 128, 128, 56, 18432, 129280, 0, 256, 8, 2048, true, false},
};
enum { NUM_PRESETS = sizeof(presets) / sizeof(presets[0]) };

static int add_latents(pst_estimate_config *config)
{
    config->q_rank = 1536;
    config->kv_rank = 512;
    config->qk_size = 128;
    config->qk_position_size = 64;
    config->v_size = 128;
    config->shared_ffn_size = 2048;
    config->has_router_bias = true;
    return estimate_moe_layers("([0]*3+[1]*58)", config->num_layers, &config->is_moe);
}

static int fill(const preset *from, pst_estimate_config *config, estimate_model *model)
{
    const bool is_gpt = from->positions != 0;
    config->num_layers = from->layers;
    config->hidden_size = from->hidden;
    config->num_heads = from->heads;
    config->num_kv_heads = from->kv_heads;
    config->head_size = from->head_size;
    config->ffn_size = from->ffn;
    config->vocab_size = from->vocab;
    config->max_positions = from->positions;
    config->norm = is_gpt ? PST_NORM_LAYER : PST_NORM_RMS;
    config->qk_norm = from->has_qk_norm ? PST_QK_NORM_HEAD : PST_QK_NORM_NONE;
    config->is_gated = from->is_gated;
    config->has_linear_bias = is_gpt;
    config->is_tied = is_gpt;
    config->has_hidden_dropout = is_gpt;
    config->has_attention_dropout = is_gpt;
    config->num_experts = from->experts;
    config->experts_per_token = from->per_token;
    config->expert_ffn_size = from->expert_ffn;
    model->max_positions = is_gpt ? from->positions : 4096;
    model->source = from->name;
    return strcmp(from->name, "deepseek-v3") == 0 ? add_latents(config) : TOOL_OK;
}

int estimate_preset(const char *name, estimate_options *options, estimate_model *model_out)
{
    char allowed[256] = "";
    for (int i = 0; i < NUM_PRESETS; i++) {
        if (strcmp(name, presets[i].name) == 0)
            return fill(&presets[i], &options->config, model_out);
        const size_t length = strlen(allowed);
        snprintf(allowed + length, sizeof(allowed) - length, "%s%s", i > 0 ? ", " : "",
                 presets[i].name);
    }
    return tool_fail(TOOL_USAGE, "--preset %.80s: allowed are %s", name, allowed);
}
