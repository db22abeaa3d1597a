#include "tests/host/estimate/estimate_models.h"

static pst_estimate_config gpt(uint64_t layers, uint64_t hidden, uint64_t heads, uint64_t vocab,
                               uint64_t positions)
{
    pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;
    config.num_layers = layers;
    config.hidden_size = hidden;
    config.num_heads = heads;
    config.ffn_size = 4 * hidden;
    config.vocab_size = vocab;
    config.max_positions = positions;
    config.sequence_size = positions;
    config.has_linear_bias = true;
    config.is_tied = true;
    return config;
}

pst_estimate_config psti_model_gpt2(void)
{
    return gpt(12, 768, 12, 50257, 1024);
}

pst_estimate_config psti_model_gpt_345m(void)
{
    return gpt(24, 1024, 16, 50257, 1024);
}

pst_estimate_config psti_model_gpt3(void)
{
    return gpt(96, 12288, 96, 51200, 2048);
}

pst_estimate_config psti_model_gated_gpt(void)
{
    pst_estimate_config config = gpt(32, 4096, 32, 50304, 2048);
    config.ffn_size = 10880;
    config.is_gated = true;
    return config;
}

static pst_estimate_config llama(uint64_t layers, uint64_t hidden, uint64_t heads, uint64_t groups,
                                 uint64_t ffn)
{
    pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;
    config.num_layers = layers;
    config.hidden_size = hidden;
    config.num_heads = heads;
    config.num_kv_heads = groups;
    config.ffn_size = ffn;
    config.vocab_size = 32000;
    config.sequence_size = 4096;
    config.norm = PST_NORM_RMS;
    config.is_gated = true;
    return config;
}

pst_estimate_config psti_model_llama2_7b(void)
{
    return llama(32, 4096, 32, 32, 11008);
}

pst_estimate_config psti_model_llama2_13b(void)
{
    return llama(40, 5120, 40, 40, 13824);
}

pst_estimate_config psti_model_llama2_70b(void)
{
    return llama(80, 8192, 64, 8, 28672);
}

static void add_experts(pst_estimate_config *config, uint64_t experts, uint64_t per_token,
                        uint64_t ffn)
{
    config->num_experts = experts;
    config->experts_per_token = per_token;
    config->expert_ffn_size = ffn;
}

pst_estimate_config psti_model_mixtral_8x7b(void)
{
    pst_estimate_config config = llama(32, 4096, 32, 8, 0);
    add_experts(&config, 8, 2, 14336);
    return config;
}

static pst_estimate_config qwen3(uint64_t layers, uint64_t hidden, uint64_t heads, uint64_t ffn)
{
    pst_estimate_config config = llama(layers, hidden, heads, 4, 0);
    config.head_size = 128;
    config.vocab_size = 151936;
    config.qk_norm = PST_QK_NORM_HEAD;
    add_experts(&config, 128, 8, ffn);
    return config;
}

pst_estimate_config psti_model_qwen3_30b(void)
{
    return qwen3(48, 2048, 32, 768);
}

pst_estimate_config psti_model_qwen3_235b(void)
{
    return qwen3(94, 4096, 64, 1536);
}

pst_estimate_config psti_model_deepseek_v3(void)
{
    static bool is_moe[61];
    for (int i = 3; i < 61; i++)
        is_moe[i] = true;
    pst_estimate_config config = llama(61, 7168, 128, 128, 18432);
    config.vocab_size = 129280;
    config.q_rank = 1536;
    config.kv_rank = 512;
    config.qk_size = 128;
    config.qk_position_size = 64;
    config.v_size = 128;
    add_experts(&config, 256, 8, 2048);
    config.shared_ffn_size = 2048;
    config.has_router_bias = true;
    config.is_moe = is_moe;
    return config;
}

/* ---- runs ---- */

typedef struct split {
    uint64_t world, tensor, pipeline, virtual_stages, context, expert;
    uint64_t micro_batch, sequence, global_batch;
    pst_estimate_config (*model)(void);
} split;

static const split splits[PSTI_NUM_RUNS] = {
    {8, 1, 1, 1, 1, 1, 1, 4096, 64, psti_model_llama2_7b},
    {8, 2, 2, 1, 1, 1, 2, 4096, 64, psti_model_llama2_7b},
    {16, 4, 1, 1, 2, 1, 1, 8192, 32, psti_model_llama2_13b},
    {32, 8, 4, 1, 1, 1, 1, 4096, 16, psti_model_llama2_70b},
    {64, 8, 4, 5, 1, 1, 1, 4096, 32, psti_model_llama2_70b},
    {32, 8, 4, 1, 1, 1, 1, 8192, 4, psti_model_llama2_70b},
    {32, 8, 4, 1, 1, 1, 1, 8192, 4, psti_model_llama2_70b},
    {8, 1, 1, 1, 1, 8, 1, 4096, 64, psti_model_mixtral_8x7b},
    {16, 2, 4, 1, 1, 2, 1, 4096, 64, psti_model_mixtral_8x7b},
    {8, 1, 1, 1, 1, 8, 1, 4096, 64, psti_model_qwen3_30b},
    {256, 2, 8, 1, 1, 32, 1, 4096, 1024, psti_model_qwen3_235b},
    {1024, 1, 16, 1, 1, 64, 1, 4096, 8192, psti_model_deepseek_v3},
    {1024, 1, 16, 1, 1, 64, 1, 4096, 8192, psti_model_deepseek_v3},
    {1024, 1, 16, 1, 1, 64, 1, 4096, 8192, psti_model_deepseek_v3},
};

pst_estimate_config psti_estimate_run(int number)
{
    static const uint64_t qwen_layers[] = {11, 12, 12, 12, 12, 12, 12, 11};
    static const uint64_t deepseek_layers[] = {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1};
    const split *of = &splits[number - 1];
    pst_estimate_config config = of->model();
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
