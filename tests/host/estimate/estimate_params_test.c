/* Parameters option by option, and what a GPU holds of them. */
#include "tests/host/estimate/estimate_models.h"

/* By hand: h 4, 2 heads of 2, f 8, 16 words; LayerNorm. A layer has 16 * 4 + 2 * 4 * 8 weights and
 * two norms of 8, a final norm of 8, the matrix of 64. */
PST_TEST(EstimateParams, EveryOptionAddsItsOwn)
{
    pst_estimate_config config = psti_model("tiny");
    pst_estimate_params params;
    config.ffn_size = 8;
    config.vocab_size = 16;
    config.is_tied = true;
#define EXPECT_TOTAL(words)                              \
    CHECK_OK(pst_estimate_get_params(&config, &params)); \
    CHECK_EQ(params.total, words)
    EXPECT_TOTAL(64 + 64 + 16 + 8 + 64);
    config.is_tied = false;
    EXPECT_TOTAL(216 + 64);
    config.max_positions = 3;
    EXPECT_TOTAL(280 + 12);
    config.has_qkv_bias = true;
    EXPECT_TOTAL(292 + 12);
    config.has_linear_bias = true;
    EXPECT_TOTAL(292 + 12 + 4 + 8 + 4);
    config.is_gated = true;
    EXPECT_TOTAL(320 + 32 + 8);
    config.qk_norm = PST_QK_NORM_HEAD;
    EXPECT_TOTAL(360 + 8);
    config.qk_norm = PST_QK_NORM_PROJECTION;
    EXPECT_TOTAL(360 + 16);
    config.num_kv_heads = 1; /* 16 weights, 4 biases and 4 words of norms less */
    EXPECT_TOTAL(376 - 24);
    config.norm = PST_NORM_RMS; /* 3 norms of 4, and 4 + 2 */
    EXPECT_TOTAL(352 - 18);
    config.has_linear_bias = config.has_qkv_bias = false;
    EXPECT_TOTAL(334 - 8 - 4 - 16 - 4);
    config.num_experts = 3; /* 96 of the dense block leave */
    config.experts_per_token = 2;
    config.expert_ffn_size = 2;
    EXPECT_TOTAL(302 - 96 + 3 * 24 + 12);
    CHECK_EQ(params.active, 290 - 24);
    config.shared_ffn_size = 1;
    config.has_shared_gate = true;
    EXPECT_TOTAL(290 + 12 + 4);
    config.qk_norm = PST_QK_NORM_NONE; /* 6 of norms and 48 of attention leave */
    config.kv_rank = 3;
    config.qk_size = 2;
    config.qk_position_size = 1;
    config.v_size = 5;
    EXPECT_TOTAL(306 - 54 + 4 * 4 + 3 + 4 * 6 + 3 * 14 + 10 * 4);
    config.q_rank = 2; /* 4 * 6 become 4 * 2 + 2 + 2 * 6 */
    EXPECT_TOTAL(377 - 24 + 22);
#undef EXPECT_TOTAL
}

/* By hand: h 4, 3 experts of f 2, one of them met; a router of 12. */
PST_TEST(EstimateParams, LatentAndBiasedExperts)
{
    pst_estimate_config config = psti_model("tiny");
    pst_estimate_params params;
    config.num_experts = 3;
    config.experts_per_token = 1;
    config.expert_ffn_size = 2;
    config.norm = PST_NORM_RMS;
    CHECK_OK(pst_estimate_get_params(&config, &params));
    CHECK_EQ(params.moe_layer, 64 + 8 + 12 + 3 * 16);
    config.latent_size = 3; /* two projections of 12, experts of 3 to 2 to 3 */
    CHECK_OK(pst_estimate_get_params(&config, &params));
    CHECK_EQ(params.moe_layer, 64 + 8 + 12 + 24 + 3 * 12);
    CHECK_EQ(params.experts, 36);
    CHECK_EQ(params.total - params.active, 24);
    config.has_linear_bias =
        true; /* attention 12 + 4, router 3, projections 3 + 4, experts 2 + 3 */
    CHECK_OK(pst_estimate_get_params(&config, &params));
    CHECK_EQ(params.moe_layer, 64 + 8 + 12 + 24 + 36 + 16 + 3 + 7 + 3 * 5);
    CHECK_EQ(params.experts, 51);
    CHECK_EQ(params.total - params.active, 2 * 17);
    config.is_gated = true;
    CHECK_OK(pst_estimate_get_params(&config, &params));
    CHECK_EQ(params.experts, 51 + 3 * (6 + 2));
    config.latent_size = 0;
    CHECK_OK(pst_estimate_get_params(&config, &params));
    CHECK_EQ(params.experts, 3 * (3 * 4 * 2 + 2 * 2 + 4));
    config.kv_rank = 1; /* latent attention: a bias of the last matrix */
    config.qk_size = config.v_size = 1;
    const uint64_t attention = 4 * 1 + 1 + 4 * 2 + 1 * 4 + 2 * 4 + 4;
    CHECK_OK(pst_estimate_get_params(&config, &params));
    CHECK_EQ(params.moe_layer, attention + 8 + 12 + 3 + params.experts);
}

/* ---- states ---- */

/* 45.5625 GiB in the paper, which counts the matrices of layers alone: 18 bytes for each parameter,
 * here without norms, and for the smaller model without what stands around the layers. */
PST_TEST(EstimateStates, GibibytesOfThePaper)
{
    pst_estimate_config config = psti_model("gpt3");
    pst_estimate_states got;
    config.has_linear_bias = false;
    config.tensor_parallel = config.pipeline_parallel = 8;
    CHECK_OK(pst_estimate_get_states(&config, 1, &got));
    CHECK_EQ(got.bytes, 729ll * (1 << 26) + 18 * 12 * 4 * 12288ll);
    config = psti_model("paper_22b");
    config.has_linear_bias = false;
    config.tensor_parallel = 8;
    CHECK_OK(pst_estimate_get_states(&config, 0, &got));
    const long long around = 51200ll / 8 + 2048 + 2; /* vectors of the hidden size */
    CHECK_EQ(got.bytes, 729ll * (1 << 26) + 18 * (48 * 4 + around) * 6144);
}

/* Widths of one's own; a share of the optimizer away, what is left rounded up. */
PST_TEST(EstimateStates, WidthsAndOffload)
{
    pst_estimate_config config = psti_estimate_run(9);
    pst_estimate_states plain, got;
    config.gradient_width = 2;
    config.optimizer_width = 7;
    CHECK_OK(pst_estimate_get_states(&config, 0, &plain));
    CHECK_EQ(plain.gradient_bytes, 2 * plain.params);
    const uint64_t dense = plain.params - plain.expert_params;
    CHECK_EQ(plain.optimizer_bytes, 7 * (dense / 2 + plain.expert_params / 2));
    CHECK_EQ(plain.host_bytes, 0);
    config.offload_den = 9; /* of nothing */
    CHECK_OK(pst_estimate_get_states(&config, 0, &got));
    CHECK_EQ(got.bytes, plain.bytes);
    config.offload_num = 4;
    CHECK_OK(pst_estimate_get_states(&config, 0, &got));
    CHECK(plain.optimizer_bytes % 9 != 0);
    CHECK_EQ(got.optimizer_bytes, plain.optimizer_bytes * 5 / 9 + 1);
    CHECK_EQ(got.host_bytes, plain.optimizer_bytes * 4 / 9);
    CHECK_EQ(got.bytes, plain.bytes - got.host_bytes);
    config.offload_num = 9;
    CHECK_OK(pst_estimate_get_states(&config, 0, &got));
    CHECK(got.optimizer_bytes == 0 && got.host_bytes == plain.optimizer_bytes);
    CHECK_EQ(got.bytes, got.weight_bytes + got.gradient_bytes);
    pst_estimate_memory memory;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK_EQ(memory.states.host_bytes, got.host_bytes);
    CHECK_EQ(memory.bytes, got.bytes + memory.saved_bytes);
}

/* Projections to the latent size are whole on each GPU, biases of experts with their expert. */
PST_TEST(EstimateStates, LatentAndBiasedExperts)
{
    pst_estimate_config config = psti_estimate_run(9), changed = config;
    pst_estimate_states before, after;
    CHECK_OK(pst_estimate_get_states(&config, 1, &before));
    changed.latent_size = 1024;
    CHECK_OK(pst_estimate_get_states(&changed, 1, &after));
    CHECK_EQ(after.expert_params, before.expert_params / 4);
    CHECK_EQ(after.params - after.expert_params,
             before.params - before.expert_params + 8 * 2 * 1024 * 4096);
    changed = config;
    changed.has_linear_bias = true;
    CHECK_OK(pst_estimate_get_states(&changed, 1, &after));
    CHECK_EQ(after.expert_params, before.expert_params + 8 * 4 * (2 * 14336 + 4096));
    CHECK_EQ(after.params - after.expert_params,
             before.params - before.expert_params + 8 * ((4096 + 2048) / 2 + 4096 + 8));
}

/* Of 6,738,415,616 parameters a third is not whole. */
PST_TEST(EstimateStates, TheFullestShare)
{
    pst_estimate_config config = psti_model("llama2_7b");
    config.distributed_optimizer = true;
    config.world_size = 3;
    pst_estimate_states got;
    CHECK_OK(pst_estimate_get_states(&config, 0, &got));
    CHECK_EQ(got.params % 3, 2);
    CHECK_EQ(got.optimizer_bytes, 12 * ((got.params + 1) / 3));
    config = psti_model("mixtral_8x7b"); /* a tiny expert in each layer */
    config.distributed_optimizer = true;
    config.world_size = 5;
    config.num_experts = config.experts_per_token = 1;
    config.expert_ffn_size = 1;
    CHECK_OK(pst_estimate_get_states(&config, 0, &got));
    CHECK_EQ(got.expert_params, 32 * 3 * 4096);
    const uint64_t dense = got.params - got.expert_params;
    CHECK(got.expert_params % 5 == 1 && dense % 5 != 0);
    CHECK_EQ(got.optimizer_bytes, 12 * (dense / 5 + 1 + got.expert_params / 5 + 1));
}

PST_TEST(EstimateStates, ATiedMatrixIsCopiedAcrossStages)
{
    pst_estimate_config config = psti_model("gpt2");
    pst_estimate_states got;
    pst_estimate_params params;
    CHECK_OK(pst_estimate_get_params(&config, &params));
    CHECK_OK(pst_estimate_get_states(&config, 0, &got));
    CHECK_EQ(got.params, params.padded);
    config.pipeline_parallel = 2;
    uint64_t sum = 0;
    for (uint64_t stage = 0; stage < 2; stage++) {
        CHECK_OK(pst_estimate_get_states(&config, stage, &got));
        CHECK_EQ(got.num_layers, 6);
        sum += got.params;
    }
    CHECK_EQ(sum, params.padded + 50304 * 768);
}

/* Chunks of the model lie in turn on the stages. */
PST_TEST(EstimateStates, ChunksInTurn)
{
    static const uint64_t layers[] = {1, 2, 3, 1, 0, 1};
    static const bool is_moe[] = {false, true, false, true, true, true, false, true};
    pst_estimate_config config = psti_model("mixtral_8x7b");
    config.num_layers = 8;
    config.ffn_size = 64;
    config.is_moe = is_moe;
    config.pipeline_parallel = 3;
    config.virtual_stages = 2;
    config.chunk_layers = layers;
    config.global_batch = 3;
    static const uint64_t all[] = {2, 2, 4}, moe[] = {0, 1, 4};
    for (uint64_t stage = 0; stage < 3; stage++) {
        pst_estimate_states got;
        CHECK_OK(pst_estimate_get_states(&config, stage, &got));
        CHECK_EQ(got.num_layers, all[stage]);
        CHECK_EQ(got.num_moe_layers, moe[stage]);
    }
    config.pipeline_parallel = 2; /* two layers each: 0, 1, 4, 5 and 2, 3, 6, 7 */
    config.global_batch = 2;
    config.chunk_layers = NULL;
    for (uint64_t stage = 0; stage < 2; stage++) {
        pst_estimate_states got;
        CHECK_OK(pst_estimate_get_states(&config, stage, &got));
        CHECK_EQ(got.num_layers, 4);
        CHECK_EQ(got.num_moe_layers, stage == 0 ? 3 : 2);
    }
}
