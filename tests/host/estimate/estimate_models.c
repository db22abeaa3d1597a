/* Published models as a table, and the runs P1 to P14. */
#include "tests/host/estimate/estimate_models.h"

#include "tests/host/estimate/estimate_random.h"

#include <stdio.h>
#include <stdlib.h>

#define GPT "has_linear_bias=1 is_tied=1 "
#define GPT3 GPT "vocab_size=51200 max_positions=2048 sequence_size=2048 "
#define LLAMA "norm=1 is_gated=1 sequence_size=4096 "
#define LLAMA2 LLAMA "vocab_size=32000 "
#define QWEN3 LLAMA "vocab_size=151936 num_kv_heads=4 head_size=128 qk_norm=1 num_experts=128 "

static const struct {
    const char *name, *fields;
} models[] = {
    {"tiny", "num_layers=1 hidden_size=4 num_heads=2 vocab_size=1 sequence_size=1"},
    {"gpt2", GPT "num_layers=12 hidden_size=768 num_heads=12 ffn_size=3072 vocab_size=50257 "
                 "max_positions=1024 sequence_size=1024"},
    {"gpt_345m", GPT "num_layers=24 hidden_size=1024 num_heads=16 ffn_size=4096 vocab_size=50257 "
                     "max_positions=1024 sequence_size=1024"},
    {"gpt3", GPT3 "num_layers=96 hidden_size=12288 num_heads=96 ffn_size=49152"},
    /* the smaller model of Korthikanti et al. */
    {"paper_22b", GPT3 "num_layers=48 hidden_size=6144 num_heads=64 ffn_size=24576 micro_batch=4"},
    {"gated_gpt", GPT "num_layers=32 hidden_size=4096 num_heads=32 ffn_size=10880 is_gated=1 "
                      "vocab_size=50304 max_positions=2048 sequence_size=2048"},
    {"llama2_7b", LLAMA2 "num_layers=32 hidden_size=4096 num_heads=32 ffn_size=11008"},
    {"llama2_13b", LLAMA2 "num_layers=40 hidden_size=5120 num_heads=40 ffn_size=13824"},
    {"llama2_70b",
     LLAMA2 "num_layers=80 hidden_size=8192 num_heads=64 num_kv_heads=8 ffn_size=28672"},
    {"mixtral_8x7b", LLAMA2 "num_layers=32 hidden_size=4096 num_heads=32 num_kv_heads=8 "
                            "num_experts=8 experts_per_token=2 expert_ffn_size=14336"},
    {"qwen3_30b", QWEN3 "num_layers=48 hidden_size=2048 num_heads=32 experts_per_token=8 "
                        "expert_ffn_size=768"},
    {"qwen3_235b", QWEN3 "num_layers=94 hidden_size=4096 num_heads=64 experts_per_token=8 "
                         "expert_ffn_size=1536"},
    {"deepseek_v3",
     LLAMA "num_layers=61 hidden_size=7168 num_heads=128 ffn_size=18432 vocab_size=129280 "
           "q_rank=1536 kv_rank=512 qk_size=128 qk_position_size=64 v_size=128 num_experts=256 "
           "experts_per_token=8 expert_ffn_size=2048 shared_ffn_size=2048 has_router_bias=1"},
};

pst_estimate_config psti_model(const char *name)
{
    static bool is_moe[61];
    pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;
    char fields[512] = "", *rest = fields, *field;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        if (strcmp(models[i].name, name) == 0)
            snprintf(fields, sizeof(fields), "%s", models[i].fields);
    if (fields[0] == '\0')
        psti_test_fail(__FILE__, __LINE__, "no model %s", name);
    while ((field = strtok_r(rest, " ", &rest)) != NULL)
        if (!psti_change_field(&config, field))
            psti_test_fail(__FILE__, __LINE__, "%s: no field for %s", name, field);
    for (int i = 3; i < 61; i++)
        is_moe[i] = true;
    if (strcmp(name, "deepseek_v3") == 0)
        config.is_moe = is_moe;
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
