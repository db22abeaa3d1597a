/* Published models. */
#include "tools/estimate/estimate_flags.h"

#include <stdio.h>
#include <string.h>

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
      .shared_ffn_size = 2048, .has_router_bias = true},
     "([0]*3+[1]*58)"},
};
enum { NUM_PRESETS = sizeof(presets) / sizeof(presets[0]) };

static int take(int preset, pst_estimate_config *config, estimate_model *model)
{
    *config = presets[preset].config;
    model->max_positions = config->max_positions != 0 ? config->max_positions : 4096;
    model->source = presets[preset].name;
    return presets[preset].layers == NULL
               ? TOOL_OK
               : estimate_moe_layers(presets[preset].layers, config->num_layers, &config->is_moe);
}

int estimate_preset(const char *name, estimate_options *options, estimate_model *model_out)
{
    char allowed[256] = "";
    for (int i = 0; i < NUM_PRESETS; i++) {
        if (strcmp(name, presets[i].name) == 0)
            return take(i, &options->config, model_out);
        const size_t length = strlen(allowed);
        snprintf(allowed + length, sizeof(allowed) - length, "%s%s", i > 0 ? ", " : "",
                 presets[i].name);
    }
    return tool_fail(TOOL_USAGE, "--preset %.80s: allowed are %s", name, allowed);
}
