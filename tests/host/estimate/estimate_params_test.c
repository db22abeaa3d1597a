/* Parameters and states against published totals and the reference's vectors. */
#include "tests/host/estimate/estimate_models.h"

typedef struct total {
    pst_estimate_config (*model)(void);
    uint64_t total, padded, active, experts;
} total;

PST_TEST(EstimateParams, PublishedTotals)
{
    static const total totals[] = {
        {psti_model_gpt2, 124439808, 124475904, 124439808, 0},
        {psti_model_gpt_345m, 354823168, 354871296, 354823168, 0},
        {psti_model_gpt3, 174615846912, 174615846912, 174615846912, 0},
        {psti_model_gated_gpt, 6641991680, 6641991680, 6641991680, 0},
        {psti_model_llama2_7b, 6738415616, 6738415616, 6738415616, 0},
        {psti_model_llama2_13b, 13015864320, 13015864320, 13015864320, 0},
        {psti_model_llama2_70b, 68976648192, 68976648192, 68976648192, 0},
        {psti_model_mixtral_8x7b, 46702792704, 46702792704, 12879925248, 45097156608},
        {psti_model_qwen3_30b, 30532122624, 30532122624, 3353032704, 28991029248},
        {psti_model_qwen3_235b, 235093634560, 235093634560, 22190763520, 227096395776},
        {psti_model_deepseek_v3, 671026404352, 671026404352, 37552282624, 653908770816},
    };
    for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
        const pst_estimate_config config = totals[i].model();
        pst_estimate_params params;
        CHECK_OK(pst_estimate_get_params(&config, &params));
        CHECK_EQ(params.total, totals[i].total);
        CHECK_EQ(params.padded, totals[i].padded);
        CHECK_EQ(params.active, totals[i].active);
        CHECK_EQ(params.experts, totals[i].experts);
        CHECK_EQ(params.router_bias, config.has_router_bias ? 14848 : 0);
    }
}

/* The vocabulary is padded to 128 times t, and an explicit one is taken as it is. */
PST_TEST(EstimateParams, PaddedVocabulary)
{
    pst_estimate_config config = psti_model_gated_gpt();
    pst_estimate_params params;
    config.tensor_parallel = 2;
    CHECK_OK(pst_estimate_get_params(&config, &params));
    CHECK(params.padded_vocab == 50432 && params.padded == 6642515968);
    config.vocab_multiple = 1;
    CHECK_OK(pst_estimate_get_params(&config, &params));
    CHECK_EQ(params.padded_vocab, 50304);
    config.padded_vocab_size = 50306;
    CHECK_OK(pst_estimate_get_params(&config, &params));
    CHECK(params.padded_vocab == 50306 && params.padded == params.total + 2 * 4096);
    config = psti_estimate_run(1);
    config.num_heads = config.num_kv_heads = 1; /* of all the hidden size */
    CHECK_OK(pst_estimate_get_params(&config, &params));
    CHECK_EQ(params.total, 6738415616);
}

PST_TEST(EstimateParams, PartsOfAModel)
{
    pst_estimate_config config = psti_model_deepseek_v3();
    pst_estimate_params params;
    CHECK_OK(pst_estimate_get_params(&config, &params));
    CHECK_EQ(params.mtp, 11610067968);
    CHECK_EQ(params.active - params.embedding, 36625603584);
    CHECK_EQ(params.output, params.embedding);
    CHECK_EQ(params.total, 3 * params.dense_layer + 58 * params.moe_layer + params.embedding +
                               params.output + config.hidden_size);
    config = psti_model_gpt2();
    CHECK_OK(pst_estimate_get_params(&config, &params));
    CHECK(params.moe_layer == 0 && params.output == 0 && params.embedding == 38597376);
    CHECK_EQ(params.padded_vocab, 50304);
}

/* By hand: h 4, 2 heads of 2, f 8, 16 words; LayerNorm. A layer has 16 * 4 + 2 * 4 * 8 weights and
 * two norms of 8, a final norm of 8, the matrix of 64. */
PST_TEST(EstimateParams, EveryOptionAddsItsOwn)
{
    pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;
    pst_estimate_params params;
    config.num_layers = 1;
    config.hidden_size = 4;
    config.num_heads = 2;
    config.ffn_size = 8;
    config.vocab_size = 16;
    config.sequence_size = 1;
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
    pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;
    pst_estimate_params params;
    config.num_layers = 1;
    config.hidden_size = 4;
    config.num_heads = 2;
    config.vocab_size = config.sequence_size = 1;
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

typedef struct state {
    int run;
    uint64_t stage, params, experts, bytes;
} state;

PST_TEST(EstimateStates, StagesOfTheReference)
{
    static const state states[] = {
        {1, 0, 6738415616, 0, 50538117120},           {2, 0, 1684668416, 0, 20216020992},
        {2, 1, 1684672512, 0, 20216070144},           {3, 0, 3254932480, 0, 29294392320},
        {4, 0, 2172977152, 0, 39113588736},           {4, 1, 2139422720, 0, 38509608960},
        {4, 2, 2139422720, 0, 38509608960},           {4, 3, 2172985344, 0, 39113736192},
        {5, 0, 2172977152, 0, 26075725824},           {5, 1, 2139422720, 0, 25673072640},
        {5, 2, 2139422720, 0, 25673072640},           {5, 3, 2172985344, 0, 26075824128},
        {8, 0, 7242780672, 5637144576, 113510873088}, {9, 0, 5870780416, 5637144576, 70449364992},
        {9, 1, 5805244416, 5637144576, 69662932992},  {9, 2, 5805244416, 5637144576, 69662932992},
        {9, 3, 5870784512, 5637144576, 70449414144},  {10, 0, 5164972032, 3623878656, 76788016128},
        {11, 0, 1539926784, 830472192, 19737317952},  {11, 1, 1340181504, 905969664, 19238383872},
        {11, 7, 1539930880, 830472192, 19737345600},  {12, 0, 3086286848, 176160768, 21177298944},
        {12, 1, 1636630528, 704643072, 18450247680},  {12, 15, 1335843840, 176160768, 10346432832},
    };
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        const pst_estimate_config config = psti_estimate_run(states[i].run);
        pst_estimate_states got;
        CHECK_OK(pst_estimate_get_states(&config, states[i].stage, &got));
        CHECK_EQ(got.params, states[i].params);
        CHECK_EQ(got.expert_params, states[i].experts);
        CHECK_EQ(got.bytes, states[i].bytes);
    }
}

PST_TEST(EstimateStates, BytesPerParameter)
{
    static const uint64_t bytes[][3] = {{2, 4, 12}, {2, 2, 16}, {4, 4, 8}};
    for (int type = PST_TRAIN_BF16; type <= PST_TRAIN_FP32; type++) {
        pst_estimate_config config = psti_estimate_run(4);
        config.type = (pst_train_type)type;
        config.distributed_optimizer = false;
        pst_estimate_states got;
        CHECK_OK(pst_estimate_get_states(&config, 0, &got));
        CHECK_EQ(got.weight_bytes, bytes[type][0] * got.params);
        CHECK_EQ(got.gradient_bytes, bytes[type][1] * got.params);
        CHECK_EQ(got.optimizer_bytes, bytes[type][2] * got.params);
        CHECK_EQ(got.bytes, got.weight_bytes + got.gradient_bytes + got.optimizer_bytes);
    }
}

/* 45.5625 GiB in the paper, which counts the matrices of layers alone: 18 bytes for each parameter,
 * here without norms, and for the smaller model without what stands around the layers. */
PST_TEST(EstimateStates, GibibytesOfThePaper)
{
    pst_estimate_config config = psti_model_gpt3();
    pst_estimate_states got;
    config.has_linear_bias = false;
    config.tensor_parallel = config.pipeline_parallel = 8;
    CHECK_OK(pst_estimate_get_states(&config, 1, &got));
    CHECK_EQ(got.bytes, 729ll * (1 << 26) + 18 * 12 * 4 * 12288ll);
    config.num_layers = 48;
    config.hidden_size = 6144;
    config.ffn_size = 24576;
    config.num_heads = 64;
    config.pipeline_parallel = 1;
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

/* A matrix of queries, keys and values is cut even where that cuts heads. */
PST_TEST(EstimateStates, FewerHeadsOfKeysThanGpus)
{
    pst_estimate_config config = psti_estimate_run(4);
    pst_estimate_states got;
    config.num_kv_heads = 2;
    CHECK_OK(pst_estimate_get_states(&config, 1, &got));
    CHECK_EQ(got.params, 2139422720 - 20 * (2 * 6 * 128 * 8192 / 8));
}

/* Of 6,738,415,616 parameters a third is not whole. */
PST_TEST(EstimateStates, TheFullestShare)
{
    pst_estimate_config config = psti_model_llama2_7b();
    config.distributed_optimizer = true;
    config.world_size = 3;
    pst_estimate_states got;
    CHECK_OK(pst_estimate_get_states(&config, 0, &got));
    CHECK_EQ(got.params % 3, 2);
    CHECK_EQ(got.optimizer_bytes, 12 * ((got.params + 1) / 3));
    config = psti_model_mixtral_8x7b(); /* a tiny expert in each layer */
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
    pst_estimate_config config = psti_model_gpt2();
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
    pst_estimate_config config = psti_model_mixtral_8x7b();
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
