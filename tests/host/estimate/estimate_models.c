/* Published models as a table, and the runs P1 to P14. */
#include "tests/host/estimate/estimate_models.h"

#include <stdlib.h>

typedef struct model {
    const char *name;
    uint64_t layers, hidden, heads, kv_heads, head_size, ffn, vocab;
    uint64_t positions; /* learned ones, of the GPT kind: LayerNorm, biases, tied */
    uint64_t experts, per_token, expert_ffn;
    bool is_gated;
    pst_qk_norm qk_norm;
} model;

/* Where positions is 0, of the Llama kind: RMSNorm, no biases, not tied. */
static const model models[] = {
    {"gpt2", 12, 768, 12, 0, 0, 3072, 50257, 1024, 0, 0, 0, false, 0},
    {"gpt_345m", 24, 1024, 16, 0, 0, 4096, 50257, 1024, 0, 0, 0, false, 0},
    {"gpt3", 96, 12288, 96, 0, 0, 49152, 51200, 2048, 0, 0, 0, false, 0},
    {"gated_gpt", 32, 4096, 32, 0, 0, 10880, 50304, 2048, 0, 0, 0, true, 0},
    {"llama2_7b", 32, 4096, 32, 32, 0, 11008, 32000, 0, 0, 0, 0, true, 0},
    {"llama2_13b", 40, 5120, 40, 40, 0, 13824, 32000, 0, 0, 0, 0, true, 0},
    {"llama2_70b", 80, 8192, 64, 8, 0, 28672, 32000, 0, 0, 0, 0, true, 0},
    {"mixtral_8x7b", 32, 4096, 32, 8, 0, 0, 32000, 0, 8, 2, 14336, true, 0},
    {"qwen3_30b", 48, 2048, 32, 4, 128, 0, 151936, 0, 128, 8, 768, true, PST_QK_NORM_HEAD},
    {"qwen3_235b", 94, 4096, 64, 4, 128, 0, 151936, 0, 128, 8, 1536, true, PST_QK_NORM_HEAD},
    {"deepseek_v3", 61, 7168, 128, 128, 0, 18432, 129280, 0, 256, 8, 2048, true, 0},
};

/* The paper's smaller model of 22 billion parameters, on 8 GPUs. */
static pst_estimate_config paper_22b(void)
{
    pst_estimate_config config = psti_model("gpt3");
    config.num_layers = 48;
    config.hidden_size = 6144;
    config.ffn_size = 24576;
    config.num_heads = 64;
    config.micro_batch = 4;
    return config;
}

static void add_latents(pst_estimate_config *config)
{
    static bool is_moe[61];
    for (int i = 3; i < 61; i++)
        is_moe[i] = true;
    config->q_rank = 1536;
    config->kv_rank = 512;
    config->qk_size = 128;
    config->qk_position_size = 64;
    config->v_size = 128;
    config->shared_ffn_size = 2048;
    config->has_router_bias = true;
    config->is_moe = is_moe;
}

pst_estimate_config psti_model(const char *name)
{
    pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;
    const model *of = models;
    if (strcmp(name, "paper_22b") == 0)
        return paper_22b();
    while (strcmp(of->name, name) != 0)
        if (++of == models + sizeof(models) / sizeof(models[0])) {
            psti_test_fail(__FILE__, __LINE__, "no model %s", name);
            return config;
        }
    const bool is_gpt = of->positions != 0;
    config.num_layers = of->layers;
    config.hidden_size = of->hidden;
    config.num_heads = of->heads;
    config.num_kv_heads = of->kv_heads;
    config.head_size = of->head_size;
    config.ffn_size = of->ffn;
    config.vocab_size = of->vocab;
    config.max_positions = of->positions;
    config.sequence_size = is_gpt ? of->positions : 4096;
    config.norm = is_gpt ? PST_NORM_LAYER : PST_NORM_RMS;
    config.qk_norm = of->qk_norm;
    config.is_gated = of->is_gated;
    config.has_linear_bias = config.is_tied = is_gpt;
    config.num_experts = of->experts;
    config.experts_per_token = of->per_token;
    config.expert_ffn_size = of->expert_ffn;
    if (strcmp(name, "deepseek_v3") == 0)
        add_latents(&config);
    return config;
}

/* ---- runs ---- */

typedef struct split {
    uint64_t world, tensor, pipeline, virtual_stages, context, expert;
    uint64_t micro_batch, sequence, global_batch;
    const char *model;
} split;

static const split splits[PSTI_NUM_RUNS] = {
    {8, 1, 1, 1, 1, 1, 1, 4096, 64, "llama2_7b"},
    {8, 2, 2, 1, 1, 1, 2, 4096, 64, "llama2_7b"},
    {16, 4, 1, 1, 2, 1, 1, 8192, 32, "llama2_13b"},
    {32, 8, 4, 1, 1, 1, 1, 4096, 16, "llama2_70b"},
    {64, 8, 4, 5, 1, 1, 1, 4096, 32, "llama2_70b"},
    {32, 8, 4, 1, 1, 1, 1, 8192, 4, "llama2_70b"},
    {32, 8, 4, 1, 1, 1, 1, 8192, 4, "llama2_70b"},
    {8, 1, 1, 1, 1, 8, 1, 4096, 64, "mixtral_8x7b"},
    {16, 2, 4, 1, 1, 2, 1, 4096, 64, "mixtral_8x7b"},
    {8, 1, 1, 1, 1, 8, 1, 4096, 64, "qwen3_30b"},
    {256, 2, 8, 1, 1, 32, 1, 4096, 1024, "qwen3_235b"},
    {1024, 1, 16, 1, 1, 64, 1, 4096, 8192, "deepseek_v3"},
    {1024, 1, 16, 1, 1, 64, 1, 4096, 8192, "deepseek_v3"},
    {1024, 1, 16, 1, 1, 64, 1, 4096, 8192, "deepseek_v3"},
};

pst_estimate_config psti_estimate_run(int number)
{
    static const uint64_t qwen_layers[] = {11, 12, 12, 12, 12, 12, 12, 11};
    static const uint64_t deepseek_layers[] = {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1};
    const split *of = &splits[number - 1];
    pst_estimate_config config = psti_model(of->model);
    config.world_size = of->world;
    config.tensor_parallel = of->tensor;
    config.pipeline_parallel = of->pipeline;
    config.virtual_stages = of->virtual_stages;
    config.context_parallel = of->context;
    config.expert_parallel = of->expert;
    config.expert_tensor_parallel = 1;
    config.micro_batch = of->micro_batch;
    config.sequence_size = of->sequence;
    config.global_batch = of->global_batch;
    config.sequence_parallel = true;
    config.distributed_optimizer = true;
    config.has_flash_attention = true;
    config.fuses_activation = number != 6;
    config.recompute = number == 6 ? 0 : PST_RECOMPUTE_GATHER;
    if (number == 13)
        config.moe_rows = PST_MOE_WORST;
    if (number == 14)
        config.recompute |= PST_RECOMPUTE_NORM | PST_RECOMPUTE_ACTIVATION;
    if (number == 11)
        config.chunk_layers = qwen_layers;
    if (number >= 12)
        config.chunk_layers = deepseek_layers;
    return config;
}

pst_estimate_config psti_estimate_named(const char *name)
{
    return name[0] == 'P' ? psti_estimate_run(atoi(name + 1)) : psti_model(name);
}
