/* Pieces of layers, against shapes worked out by hand and the sums of parameters and ledgers. */
#include "tests/host/estimate/estimate_models.h"
#include "tests/host/estimate/estimate_random.h"

static const pst_estimate_module *find(const pst_estimate_modules *modules, const char *name)
{
    static const pst_estimate_module none = {.name = "none"};
    for (uint32_t i = 0; i < modules->num_modules; i++)
        if (strcmp(modules->modules[i].name, name) == 0)
            return &modules->modules[i];
    return &none;
}

typedef struct line {
    const char *name;
    uint64_t whole_outputs, whole_inputs, whole_count, outputs, inputs, count;
    uint64_t whole_rows, rows, whole_params, params, whole_saved, saved;
    bool is_product;
} line;

static void expect_line(const pst_estimate_module *module, const line *of)
{
    CHECK_STR(module->name, of->name);
    CHECK_MSG(module->whole_outputs == of->whole_outputs &&
                  module->whole_inputs == of->whole_inputs &&
                  module->whole_count == of->whole_count && module->outputs == of->outputs &&
                  module->inputs == of->inputs && module->count == of->count,
              "%s: %llu x %llu, and %llu x %llu", of->name,
              (unsigned long long)module->whole_outputs, (unsigned long long)module->whole_inputs,
              (unsigned long long)module->outputs, (unsigned long long)module->inputs);
    CHECK_MSG(module->whole_rows == of->whole_rows && module->rows == of->rows,
              "%s: rows %llu, %llu", of->name, (unsigned long long)module->whole_rows,
              (unsigned long long)module->rows);
    CHECK_MSG(module->whole_params == of->whole_params && module->params == of->params,
              "%s: params %llu, %llu", of->name, (unsigned long long)module->whole_params,
              (unsigned long long)module->params);
    CHECK_MSG(module->whole_saved_bytes == of->whole_saved && module->saved_bytes == of->saved,
              "%s: saved %llu, %llu", of->name, (unsigned long long)module->whole_saved_bytes,
              (unsigned long long)module->saved_bytes);
    CHECK(module->is_product == of->is_product);
}

/* Exactly these, in this order. */
static void expect_modules(const pst_estimate_config *config, pst_estimate_part part,
                           const line *lines, uint32_t num_lines)
{
    pst_estimate_modules modules;
    CHECK_OK(pst_estimate_get_modules(config, part, &modules));
    CHECK_EQ(modules.num_modules, num_lines);
    for (uint32_t i = 0; i < num_lines && i < modules.num_modules; i++)
        expect_line(&modules.modules[i], &lines[i]);
}

#define NUM(lines) ((uint32_t)(sizeof(lines) / sizeof((lines)[0])))

/* 8192 tokens, 4096 of a context parallel GPU, of which a tensor parallel one holds 1024. */
PST_TEST(EstimateModules, Llama)
{
    enum { H = 5120, F = 13824, S = 8192, T = 4096, L = 1024 };
    static const line lines[] = {
        {"norm1", H, 0, 1, H, 0, 1, S, L, H, H, 2 * S * H + 4 * S, 2 * L * H + 4 * L, false},
        {"attention.qkv", 3 * H, H, 1, 3 * H / 4, H, 1, S, T, 3ll * H * H, 3ll * H * H / 4,
         2 * S * H, 2 * L * H, true},
        {"attention.core", 0, 0, 1, 0, 0, 1, S, T, 0, 0, 6ll * S * H + 4 * S * 40,
         6 * T * H / 4 + 4 * T * 10, false},
        {"attention.proj", H, H, 1, H, H / 4, 1, S, T, H * H, H * H / 4, 2 * S * H, 2 * T * H / 4,
         true},
        {"norm2", H, 0, 1, H, 0, 1, S, L, H, H, 2 * S * H + 4 * S, 2 * L * H + 4 * L, false},
        {"mlp.fc1", 2 * F, H, 1, F / 2, H, 1, S, T, 2 * F * H, F * H / 2, 2 * S * H, 2 * L * H,
         true},
        {"mlp.activation", 0, 0, 1, 0, 0, 1, S, T, 0, 0, 4 * S * F, T * F, false},
        {"mlp.fc2", H, F, 1, H, F / 4, 1, S, T, F * H, F * H / 4, 2 * S * F, 2 * T * F / 4, true},
    };
    static const line outside[] = {
        {"embedding", 32000, H, 1, 8064, H, 1, S, T, 32000 * H, 8064 * H, 8 * S, 8 * T, false},
        {"final_norm", H, 0, 1, H, 0, 1, S, L, H, H, 2 * S * H + 4 * S, 2 * L * H + 4 * L, false},
        {"output", 32000, H, 1, 8064, H, 1, S, T, 32000 * H, 8064 * H,
         2 * S * H + 6ll * S * 32256 + 12 * S, 2 * L * H + 6 * T * 8064 + 12 * T, true},
    };
    const pst_estimate_config config = psti_estimate_run(3);
    expect_modules(&config, PST_ESTIMATE_DENSE, lines, NUM(lines));
    expect_modules(&config, PST_ESTIMATE_OUTSIDE, outside, NUM(outside));
}

/* Latent attention and experts, 4 on each of 64 GPUs: 4096 tokens of a GPU take 8 of them each, so
 * 32768 rows for 256 experts, or from 64 GPUs for 4. */
PST_TEST(EstimateModules, DeepSeek)
{
    enum { H = 7168, A = 128, T = 4096, E = 2048, N = 32768 };
    static const line lines[] = {
        {"norm1", H, 0, 1, H, 0, 1, T, T, H, H, 2 * T * H + 4 * T, 2 * T * H + 4 * T, false},
        {"attention.q_down", 1536, H, 1, 1536, H, 1, T, T, 1536 * H, 1536 * H, 2 * T * H, 2 * T * H,
         true},
        {"attention.q_norm", 1536, 0, 1, 1536, 0, 1, T, T, 1536, 1536, 2 * T * 1536 + 4 * T,
         2 * T * 1536 + 4 * T, false},
        {"attention.q_up", 192 * A, 1536, 1, 192 * A, 1536, 1, T, T, 192 * A * 1536, 192 * A * 1536,
         2 * T * 1536, 2 * T * 1536, true},
        {"attention.kv_down", 576, H, 1, 576, H, 1, T, T, 576 * H, 576 * H, 0, 0, true},
        {"attention.kv_norm", 512, 0, 1, 512, 0, 1, T, T, 512, 512, 2 * T * 576 + 4 * T,
         2 * T * 576 + 4 * T, false},
        {"attention.kv_up", 256 * A, 512, 1, 256 * A, 512, 1, T, T, 256 * A * 512, 256 * A * 512,
         2 * T * 512, 2 * T * 512, true},
        {"attention.core", 0, 0, 1, 0, 0, 1, T, T, 0, 0, 1024 * A * T + 4 * A * T,
         1024 * A * T + 4 * A * T, false},
        {"attention.proj", H, 128 * A, 1, H, 128 * A, 1, T, T, H * 128 * A, H * 128 * A,
         256 * A * T, 256 * A * T, true},
        {"norm2", H, 0, 1, H, 0, 1, T, T, H, H, 2 * T * H + 4 * T, 2 * T * H + 4 * T, false},
        {"router", 256, H, 1, 256, H, 1, T, T, 256 * H, 256 * H,
         2 * T * H + 9 * T * 256 + 4 * T * 8 + 4 * N, 2 * T * H + 9 * T * 256 + 4 * T * 8 + 4 * N,
         true},
        {"expert.fc1", 2 * E, H, 256, 2 * E, H, 4, 128, 8192, 512ll * E * H, 8 * E * H, 2 * N * H,
         2 * N * H, true},
        {"expert.activation", 0, 0, 256, 0, 0, 4, 128, 8192, 0, 0, 4 * N * E + 4 * N,
         4 * N * E + 4 * N, false},
        {"expert.fc2", H, E, 256, H, E, 4, 128, 8192, 256ll * E * H, 4 * E * H, 2 * N * E,
         2 * N * E, true},
        {"shared.fc1", 2 * E, H, 1, 2 * E, H, 1, T, T, 2 * E * H, 2 * E * H, 0, 0, true},
        {"shared.activation", 0, 0, 1, 0, 0, 1, T, T, 0, 0, 4 * T * E, 4 * T * E, false},
        {"shared.fc2", H, E, 1, H, E, 1, T, T, E * H, E * H, 2 * T * E, 2 * T * E, true},
    };
    const pst_estimate_config config = psti_estimate_run(12);
    expect_modules(&config, PST_ESTIMATE_MOE, lines, NUM(lines));
}

/* Two depths beside the last stage's copy of the embedding: 2048 tokens of a GPU, both halves of
 * the projection's input from all 4096. */
PST_TEST(EstimateModules, MultiTokenPrediction)
{
    enum { H = 7168, V = 129280, T = 4096, L = 2048 };
    static const line lines[] = {
        {"embedding", V, H, 1, V / 2, H, 1, T, T, V * H, V / 2 * H, 8 * T, 8 * T, false},
        {"final_norm", H, 0, 1, H, 0, 1, T, L, H, H, 2 * T * H + 4 * T, 2 * L * H + 4 * L, false},
        {"output", V, H, 1, V / 2, H, 1, T, T, V * H, V / 2 * H,
         3 * (2 * T * H + 4ll * T * V + 12 * T) + 2ll * T * V,
         3 * (2 * L * H + 2ll * T * V + 12 * T) + 1ll * T * V, true},
        {"mtp.embedding", V, H, 1, V / 2, H, 1, T, T, 0, V / 2 * H, 16 * T, 16 * T, false},
        {"mtp.norm", H, 0, 6, H, 0, 6, T, L, 6 * H, 6 * H, 6 * (2 * T * H + 4 * T),
         6 * (2 * L * H + 4 * L), false},
        {"mtp.proj", H, 2 * H, 2, H / 2, 2 * H, 2, T, T, 4 * H * H, 2 * H * H, 8 * T * H, 8 * T * H,
         true},
    };
    pst_estimate_config config = psti_estimate_run(12);
    config.tensor_parallel = config.mtp_layers = 2;
    config.recompute = 0;
    expect_modules(&config, PST_ESTIMATE_OUTSIDE, lines, NUM(lines));
}

/* ---- sums ---- */

static void expect_sums(const pst_estimate_modules *modules)
{
    pst_estimate_modules sum = {.num_modules = modules->num_modules};
    for (uint32_t i = 0; i < modules->num_modules; i++) {
        const pst_estimate_module *module = &modules->modules[i];
        sum.whole_params += module->whole_params;
        sum.params += module->params;
        sum.whole_saved_bytes += module->whole_saved_bytes;
        sum.saved_bytes += module->saved_bytes;
        for (uint32_t j = 0; j < i; j++)
            CHECK_MSG(strcmp(modules->modules[j].name, module->name) != 0, "%s: twice",
                      module->name);
    }
    CHECK_EQ(modules->whole_params, sum.whole_params);
    CHECK_EQ(modules->params, sum.params);
    CHECK_EQ(modules->whole_saved_bytes, sum.whole_saved_bytes);
    CHECK_EQ(modules->saved_bytes, sum.saved_bytes);
}

static void expect_layer(const pst_estimate_config *config, bool is_moe,
                         pst_estimate_modules *modules)
{
    pst_estimate_params params;
    pst_estimate_ledger ledger;
    CHECK_OK(pst_estimate_get_params(config, &params));
    CHECK_OK(pst_estimate_get_ledger(config, is_moe, &ledger));
    CHECK_OK(
        pst_estimate_get_modules(config, is_moe ? PST_ESTIMATE_MOE : PST_ESTIMATE_DENSE, modules));
    const uint64_t layer = is_moe ? params.moe_layer : params.dense_layer;
    CHECK(layer == 0 || modules->whole_params == layer);
    CHECK_EQ(modules->whole_saved_bytes, ledger.whole_bytes);
    CHECK_EQ(modules->saved_bytes, ledger.bytes);
    expect_sums(modules);
}

/* Of whole layers the model's total; of divided ones those of a GPU of each stage. */
static void expect_model(const pst_estimate_config *config)
{
    const uint64_t last = (config->pipeline_parallel ? config->pipeline_parallel : 1) - 1;
    pst_estimate_modules dense = {.num_modules = 0}, moe = dense, outside;
    pst_estimate_params params;
    uint64_t whole = 0;
    if (config->ffn_size)
        expect_layer(config, false, &dense);
    if (config->num_experts)
        expect_layer(config, true, &moe);
    CHECK_OK(pst_estimate_get_modules(config, PST_ESTIMATE_OUTSIDE, &outside));
    CHECK_OK(pst_estimate_get_params(config, &params));
    expect_sums(&outside);
    for (uint64_t stage = 0; stage <= last; stage++) {
        pst_estimate_memory memory;
        CHECK_OK(pst_estimate_get_memory(config, stage, NULL, &memory));
        const pst_estimate_states *states = &memory.states;
        const uint64_t num_dense = states->num_layers - states->num_moe_layers;
        uint64_t own = num_dense * dense.params + states->num_moe_layers * moe.params;
        if (stage == 0)
            own += find(&outside, "embedding")->params + find(&outside, "positions")->params;
        if (stage == last)
            own += find(&outside, "final_norm")->params + find(&outside, "output")->params +
                   find(&outside, "mtp.embedding")->params + find(&outside, "mtp.norm")->params +
                   find(&outside, "mtp.proj")->params;
        CHECK_EQ(states->params, own);
        if (stage == last)
            CHECK_EQ(memory.head_bytes, find(&outside, "final_norm")->saved_bytes +
                                            find(&outside, "output")->saved_bytes);
        whole += num_dense * dense.whole_params + states->num_moe_layers * moe.whole_params;
    }
    CHECK_EQ(whole + outside.whole_params, params.total + config->mtp_layers * params.mtp);
}

PST_TEST(EstimateModules, AddUpToTheModel)
{
    for (int run = 1; run <= PSTI_NUM_RUNS; run++) {
        const pst_estimate_config config = psti_estimate_run(run);
        expect_model(&config);
    }
}

/* Biases, dropout, scores, other norms, a tied matrix on one and on two stages. */
PST_TEST(EstimateModules, AddUpWithBiases)
{
    pst_estimate_config config = psti_model("gated_gpt");
    config.has_attention_dropout = config.has_hidden_dropout = true;
    expect_model(&config);
    config.tensor_parallel = config.pipeline_parallel = 2;
    config.qk_norm = PST_QK_NORM_HEAD;
    expect_model(&config);
    config.qk_norm = PST_QK_NORM_PROJECTION;
    config.sequence_parallel = true;
    expect_model(&config);
}

/* Shared experts with a gate, dropout, late probabilities; latent attention without q_rank. */
PST_TEST(EstimateModules, AddUpWithExperts)
{
    pst_estimate_config config = psti_model("qwen3_30b");
    config.shared_ffn_size = 1024;
    config.has_shared_gate = config.applies_probs_late = config.has_hidden_dropout = true;
    config.tensor_parallel = config.expert_parallel = 4;
    config.sequence_parallel = true;
    config.world_size = 16;
    expect_model(&config);
    config.recompute = PST_RECOMPUTE_ALL;
    expect_model(&config);
    config.moe_rows = PST_MOE_CAPACITY;
    config.capacity_num = 1;
    config.capacity_den = 500000; /* no row on a GPU, one of all */
    expect_model(&config);
    config = psti_model("deepseek_v3");
    config.q_rank = 0;
    expect_model(&config);
    config.latent_size = 1024;
    expect_model(&config);
}

/* Biases of experts, of the router and of both projections of a latent size. */
PST_TEST(EstimateModules, AddUpWithBiasesOfExperts)
{
    pst_estimate_config config = psti_model("mixtral_8x7b");
    config.has_linear_bias = config.copies_attention = true;
    expect_model(&config);
    config.latent_size = 1024;
    config.tensor_parallel = config.expert_parallel = 4;
    config.expert_tensor_parallel = 1;
    config.num_kv_heads = 2;
    config.sequence_parallel = true;
    expect_model(&config);
    config = psti_model("deepseek_v3");
    config.has_linear_bias = true;
    config.shared_ffn_size = 0;
    expect_model(&config);
}

PST_TEST(EstimateModules, AddUpForAnyConfig)
{
    psti_random_run run = {.state = 11};
    for (int i = 0; i < 2000; i++) {
        psti_draw_run(&run);
        expect_model(&run.config);
    }
}

/* The mask behind a block belongs to its last product. */
PST_TEST(EstimateModules, MasksBelongToTheLastProduct)
{
    pst_estimate_config config = psti_model("gated_gpt");
    pst_estimate_modules modules;
    config.has_hidden_dropout = true;
    CHECK_OK(pst_estimate_get_modules(&config, PST_ESTIMATE_DENSE, &modules));
    CHECK_EQ(find(&modules, "mlp.fc2")->saved_bytes, 2048 * (2 * 10880 + 4096));
    CHECK_EQ(find(&modules, "attention.proj")->saved_bytes, 2048 * (2 * 4096 + 4096));
    config = psti_model("mixtral_8x7b");
    config.has_hidden_dropout = true;
    CHECK_OK(pst_estimate_get_modules(&config, PST_ESTIMATE_MOE, &modules));
    CHECK_EQ(find(&modules, "expert.fc2")->saved_bytes, 8192 * 2 * 14336 + 4096 * 4096);
}

/* 8 tokens for 3 experts, each of which two take: 16 rows, 5 and a third. */
PST_TEST(EstimateModules, RowsOfAnExpertAreRoundedUp)
{
    pst_estimate_config config = psti_model("mixtral_8x7b");
    pst_estimate_modules modules;
    config.num_experts = 3;
    config.sequence_size = 8;
    CHECK_OK(pst_estimate_get_modules(&config, PST_ESTIMATE_MOE, &modules));
    CHECK_EQ(find(&modules, "expert.fc1")->rows, 6);
}

PST_TEST(EstimateModules, Refuses)
{
    pst_estimate_config config = psti_estimate_run(1);
    pst_estimate_modules modules = {.num_modules = 77};
    CHECK_STATUS(pst_estimate_get_modules(&config, PST_ESTIMATE_MOE, &modules), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_modules(&config, PST_NUM_ESTIMATE_PARTS, &modules),
                 PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_modules(&config, PST_ESTIMATE_DENSE, NULL), PST_E_INVALID);
    config.ffn_size = UINT64_MAX / config.hidden_size;
    CHECK_STATUS(pst_estimate_get_modules(&config, PST_ESTIMATE_DENSE, &modules), PST_E_INVALID);
    config = psti_estimate_run(8);
    CHECK_STATUS(pst_estimate_get_modules(&config, PST_ESTIMATE_DENSE, &modules), PST_E_INVALID);
    config.vocab_size = UINT64_MAX / config.hidden_size;
    CHECK_STATUS(pst_estimate_get_modules(&config, PST_ESTIMATE_OUTSIDE, &modules), PST_E_INVALID);
    config.hidden_size = 0;
    CHECK_STATUS(pst_estimate_get_modules(&config, PST_ESTIMATE_MOE, &modules), PST_E_INVALID);
    CHECK_EQ(modules.num_modules, 77);
}
