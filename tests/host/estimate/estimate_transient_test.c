/* What comes and goes within a pass: every moment by hand where it is the one that takes most. */
#include "tests/host/estimate/estimate_models.h"

static void expect(const pst_estimate_config *config, uint64_t stage, const char *name,
                   uint64_t bytes)
{
    pst_estimate_memory memory;
    CHECK_OK(pst_estimate_get_memory(config, stage, NULL, &memory));
    CHECK_STR(memory.transient, name);
    CHECK_MSG(memory.transient_bytes == bytes, "%s: %llu, not %llu", name,
              (unsigned long long)memory.transient_bytes, (unsigned long long)bytes);
    CHECK_EQ(memory.peak_bytes, memory.bytes + memory.transient_bytes);
}

static pst_estimate_config example_of_2023(void)
{
    pst_estimate_config config = psti_model("gated_gpt");
    config.vocab_size = 50257;
    config.world_size = 8;
    config.pipeline_parallel = config.micro_batch = 2;
    config.global_batch = 512;
    config.distributed_optimizer = config.has_flash_attention = true;
    config.has_hidden_dropout = config.has_attention_dropout = true;
    config.copies_attention = true;
    config.loss = PST_LOSS_COPIED;
    return config;
}

/* Where the loss stands on the stage, no layer's
 * backward takes as much as the head held. */
PST_TEST(EstimateTransient, ExampleOf2023)
{
    const pst_estimate_config config = example_of_2023();
    expect(&config, 0, "MLP backward", 6 * 4096 * 10880 + 3 * 2 * 4096 * 4096);
    expect(&config, 1, "none", 0);
}

/* 4096 tokens, of which a GPU holds 512; 80 layers on 4 stages of 8 GPUs. */
enum { T = 4096, L = 512, H = 8192 };

PST_TEST(EstimateTransient, Mlp)
{
    enum { F = 28672 / 8 };
    pst_estimate_config config = psti_estimate_run(4);
    config.num_kv_heads = 8;
    config.ffn_size = 28672;
    expect(&config, 0, "MLP backward", 6 * T * F + 4 * T * H + 2 * L * H);
    config.is_gated = false;
    config.has_flash_attention = true;
    config.num_kv_heads = 64;
    config.ffn_size = 32768;
    config.recompute = PST_RECOMPUTE_ACTIVATION | PST_RECOMPUTE_NORM; /* product and norm anew */
    expect(&config, 0, "MLP backward", (4 + 2) * T * 4096 + 4 * T * H + 4 * L * H);
    config.pipeline_parallel = config.virtual_stages = 2; /* two more on their way */
    config.world_size = 16;
    expect(&config, 0, "MLP backward", (4 + 2) * T * 4096 + 4 * T * H + 8 * L * H);
}

PST_TEST(EstimateTransient, Attention)
{
    enum { Q = H / 8, KV = 1024 / 8 };
    pst_estimate_config config = psti_estimate_run(4);
    config.ffn_size = 8;
    expect(&config, 0, "attention backward",
           2 * T * (2 * Q + 2 * KV) + 4 * T * Q + 4 * T * H + 2 * L * H);
    config.qk_norm = PST_QK_NORM_HEAD;
    expect(&config, 0, "attention backward",
           2 * T * (3 * Q + 3 * KV) + 4 * T * Q + 4 * T * H + 2 * L * H);
    config.qk_norm = PST_QK_NORM_NONE;
    config.context_parallel = 2;
    config.world_size = 64;
    config.sequence_size = 2 * T;
    expect(&config, 0, "attention backward",
           2 * T * (2 * Q + 2 * KV) + 4 * T * Q + 4 * T * 2 * KV + 4 * T * H + 2 * L * H);
    config.context_parallel = 1;
    config.sequence_size = T;
    config.has_flash_attention = false;
    const uint64_t scores = 2ll * T * T * 8;
    expect(&config, 0, "attention backward",
           2 * T * (2 * Q + 2 * KV) + 2 * scores + 4 * T * H + 2 * L * H);
    config.recompute = PST_RECOMPUTE_ATTENTION;
    expect(&config, 0, "attention backward",
           2 * T * (2 * Q + 2 * KV) + 3 * scores + 4 * T * H + 2 * L * H);
}

PST_TEST(EstimateTransient, LatentAttention)
{
    enum { A = 128, HIDDEN = 7168 };
    pst_estimate_config config = psti_estimate_run(12);
    config.num_experts = config.experts_per_token = 0;
    config.expert_parallel = 1;
    config.shared_ffn_size = 0;
    config.is_moe = NULL;
    expect(&config, 1, "attention backward",
           2 * T * A * (192 + 192 + 128 + 128 + 256) + 4 * T * A * 192 + 3 * 2 * T * HIDDEN);
}

/* 8192 balanced rows for a GPU's experts, 12288 with a capacity, in the layer at work if paged. */
PST_TEST(EstimateTransient, Experts)
{
    enum { F = 14336, HIDDEN = 4096, FROM_ROWS = 6 * F + 4 * HIDDEN + 4, ENDS = 4 * T * HIDDEN };
    pst_estimate_config config = psti_estimate_run(8);
    config.pipeline_parallel = 2;
    config.world_size = 16;
    expect(&config, 0, "expert backward", 8192ll * FROM_ROWS + ENDS);
    config.capacity_num = 3;
    config.capacity_den = 2;
    config.moe_rows = PST_MOE_PAGED;
    expect(&config, 0, "expert backward", 12288ll * FROM_ROWS + ENDS);
    config.moe_rows = PST_MOE_WORST;
    config.recompute = PST_RECOMPUTE_ACTIVATION;
    config.latent_size = 1024;
    expect(&config, 0, "expert backward", 32768ll * (6 * F + 2 * F + 4 * 1024 + 4) + ENDS);
    config.moe_rows = PST_MOE_BALANCED;
    config.recompute = 0;
    config.shared_ffn_size = 1 << 17;
    expect(&config, 0, "shared expert backward", 6ll * T * (1 << 17) + 3 * 2 * T * HIDDEN);
    config.recompute = PST_RECOMPUTE_EXPERTS; /* not of the shared one */
    expect(&config, 0, "shared expert backward", 6ll * T * (1 << 17) + 3 * 2 * T * HIDDEN);
    config.recompute = PST_RECOMPUTE_ACTIVATION;
    expect(&config, 0, "shared expert backward", 8ll * T * (1 << 17) + 3 * 2 * T * HIDDEN);
}

/* The gradients of input and matrix are in the place of the copies of the logits, where there are any. */
PST_TEST(EstimateTransient, Loss)
{
    enum { WORDS = 512000 / 8 };
    const uint64_t matrix = 2ull * WORDS * H;
    pst_estimate_config config = psti_estimate_run(4);
    config.vocab_size = 512000;
    expect(&config, 3, "loss", 4 * T * H + 2 * L * H + matrix - 4ull * T * WORDS);
    config.loss = PST_LOSS_COPIED;
    expect(&config, 3, "none", 0);
    config.loss = PST_LOSS_FUSED;
    expect(&config, 3, "loss", 4 * T * H + 2 * L * H + matrix);
    config.sequence_parallel = false;
    expect(&config, 3, "loss", 2 * T * H + matrix);
}

/* What the last stage's backward takes beyond the head, which is gone. */
PST_TEST(EstimateTransient, LayersComeAfterTheHead)
{
    pst_estimate_config config = psti_estimate_run(4);
    config.vocab_size = 1024;
    const uint64_t head = 4 * L * H + 4 * L + 6 * T * 128 + 12 * T;
    expect(&config, 3, "MLP backward", 6 * T * 3584 + 4 * T * H + 2 * L * H - head);
}

/* Gradients of two bytes are stepped in four: 16 GPUs share 6738415616 parameters. */
PST_TEST(EstimateTransient, Step)
{
    pst_estimate_config config = psti_model("llama2_7b");
    pst_estimate_memory memory;
    config.distributed_optimizer = true;
    config.sequence_size = 64;
    config.world_size = 16;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK(strcmp(memory.transient, "optimizer step") != 0);
    config.gradient_width = 2;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    const uint64_t gone = memory.bytes - memory.states.bytes;
    expect(&config, 0, "optimizer step", UINT64_C(4) * 6738415616 / 16 - gone);
    config.optimizer_width = 8; /* moments of two bytes, stepped as they are */
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK(strcmp(memory.transient, "optimizer step") != 0);
    config.optimizer_width = 0;
    config.type = PST_TRAIN_FP16; /* the copy is one of the states */
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK(strcmp(memory.transient, "optimizer step") != 0);
}

PST_TEST(EstimateTransient, RefusesWhatExceeds64Bits)
{
    pst_estimate_config config = psti_estimate_run(4);
    pst_estimate_memory memory = {.bytes = 7};
    config.recompute = PST_RECOMPUTE_ATTENTION;
    config.has_flash_attention = false;
    config.sequence_size = UINT64_C(1) << 31; /* what is saved fits, not the scores */
    CHECK_STATUS(pst_estimate_get_memory(&config, 0, NULL, &memory), PST_E_INVALID);
    CHECK_EQ(memory.bytes, 7);
}

/* 16,000 words of each GPU: of 512 tokens the layers, run again one by one, leave less. */
PST_TEST(EstimateTransient, EmbeddingOfFewTokens)
{
    pst_estimate_config config = psti_estimate_run(2);
    pst_estimate_memory memory;
    config.sequence_size = 256;
    config.recompute_layers = 1;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK_STR(memory.transient, "embedding backward");
    const uint64_t hidden = 2 * 4096, tokens = 512;
    const uint64_t inputs = 16 * hidden * tokens / 2; /* of the 16 layers, halves of the tokens */
    CHECK_EQ(memory.saved_bytes, 2 * (inputs + 8 * tokens));
    CHECK_EQ(memory.transient_bytes,
             hidden * (16000 + tokens + tokens / 2) - inputs - memory.recompute_bytes);
    CHECK_OK(pst_estimate_get_memory(&config, 1, NULL, &memory)); /* which embeds nothing */
    CHECK(strcmp(memory.transient, "embedding backward") != 0);
}

/* The depth's own embedding takes less than the loss behind it. */
PST_TEST(EstimateTransient, EmbeddingOfADepth)
{
    pst_estimate_config config = psti_estimate_run(2);
    const uint64_t hidden = 2 * 4096, tokens = 512;
    config.sequence_size = 256;
    config.loss = PST_LOSS_FUSED;
    config.mtp_layers = 1;
    config.vocab_size = 256000;
    expect(&config, 1, "loss", hidden * (128000 + 2 * tokens + tokens / 2));
}

/* One of each shape: a dense layer's four, of which two are alike, and what experts add. */
PST_TEST(EstimateTransient, EmptyGradients)
{
    pst_estimate_config config = psti_estimate_run(2);
    pst_estimate_memory plain, memory;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &plain));
    CHECK_EQ(plain.empty_bytes, 0);
    config.keeps_empty_gradients = true;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    const uint64_t h = 4096, qkv = 3 * h / 2, proj = h / 2, fc = 11008 / 2;
    CHECK_EQ(memory.empty_bytes, 2 * h * (qkv + proj + 2 * fc + fc));
    CHECK_EQ(memory.bytes, plain.bytes + memory.empty_bytes);
    CHECK_EQ(memory.peak_bytes, plain.peak_bytes + memory.empty_bytes);
    config.type = PST_TRAIN_FP32;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK_EQ(memory.empty_bytes, 4 * h * (qkv + proj + 2 * fc + fc));
    config = psti_estimate_run(8); /* 8 experts of width 14336, 32 heads, 8 of keys and values */
    config.keeps_empty_gradients = true;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK_EQ(memory.empty_bytes, 2 * h * (h + 2 * 1024 + h + 2 * 14336 + 14336));
}

/* A pool is there when the optimizer steps too, without what is saved beside it. */
PST_TEST(EstimateTransient, PagesStayForTheStep)
{
    pst_estimate_config config = psti_estimate_run(8);
    pst_estimate_memory memory;
    pst_estimate_moe moe;
    config.gradient_width = 2;
    config.sequence_size = 64;
    config.moe_rows = PST_MOE_PAGED;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK_OK(pst_estimate_get_moe(&config, memory.live_moe_layers, &moe));
    CHECK_STR(memory.transient, "optimizer step");
    CHECK_EQ(memory.peak_bytes, memory.states.bytes + memory.states.optimizer_bytes / 12 * 4 +
                                    moe.paged_bytes + moe.table_bytes);
}
