/* Dense layers as tensor-parallel linears: scratch, what is saved, pages. That linears lease so much is
 * what the tests of a small model hold (tests/host/linear/llama_test.c). */
#include <pagestash/pool.h>

#include "tests/host/estimate/estimate_models.h"

/* A layer of Llama 3 405B: 8 tensor parallel GPUs, 8,192 tokens. */
static pst_estimate_config large(void)
{
    pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;
    config.num_layers = 126;
    config.hidden_size = 16384;
    config.num_heads = 128;
    config.num_kv_heads = 8;
    config.ffn_size = 53248;
    config.vocab_size = config.padded_vocab_size = 128256;
    config.norm = PST_NORM_RMS;
    config.is_gated = config.fuses_activation = config.has_flash_attention = true;
    config.world_size = config.tensor_parallel = 8;
    config.sequence_parallel = true;
    config.sequence_size = 8192;
    config.global_batch = 1;
    config.recompute = PST_RECOMPUTE_GATHER | PST_RECOMPUTE_ACTIVATION;
    return config;
}

static const pst_estimate_linear *linear(const pst_estimate_linears *of, const char *name)
{
    for (uint32_t i = 0; i < of->num_linears; i++)
        if (strcmp(of->linears[i].name, name) == 0)
            return &of->linears[i];
    psti_test_fail(__FILE__, __LINE__, "no linear %s", name);
    return &of->linears[0];
}

static uint64_t saved(const pst_estimate_config *config, const char *name)
{
    pst_estimate_ledger ledger;
    if (pst_estimate_get_ledger(config, false, &ledger) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    for (uint32_t i = 0; i < ledger.num_entries; i++)
        if (strcmp(ledger.entries[i].name, name) == 0)
            return ledger.entries[i].bytes;
    psti_test_fail(__FILE__, __LINE__, "no tensor %s", name);
    return 0;
}

static void check_saved(const pst_estimate_config *config, const pst_estimate_linears *of)
{
    CHECK_EQ(linear(of, "attention.qkv")->saved_bytes, saved(config, "qkv.in"));
    CHECK_EQ(linear(of, "attention.proj")->saved_bytes, saved(config, "proj.in"));
    CHECK_EQ(linear(of, "mlp")->saved_bytes, saved(config, "fc1.in"));
    CHECK_EQ(linear(of, "mlp")->hidden_bytes, saved(config, "fc1.out"));
}

PST_TEST(EstimateLinears, ALargeLayer)
{
    const uint64_t th = 2 * 8192ull * 16384, tf = 2 * 8192ull * 53248 / 8;
    pst_estimate_config config = large();
    pst_estimate_linears of;
    CHECK_OK(pst_estimate_get_linears(&config, 0, true, 126, &of));
    CHECK_EQ(of.num_linears, 4);
    CHECK_EQ(linear(&of, "attention.qkv")->forward_scratch, th);
    CHECK_EQ(linear(&of, "attention.qkv")->backward_scratch, 2 * th);
    CHECK_EQ(linear(&of, "attention.proj")->forward_scratch, 2 * th / 8);
    CHECK_EQ(linear(&of, "attention.proj")->backward_scratch, th);
    CHECK_EQ(linear(&of, "mlp")->forward_scratch, th + 2 * tf);
    CHECK_EQ(linear(&of, "mlp")->backward_scratch, 2 * th + 2 * tf);
    CHECK_EQ(linear(&of, "output")->backward_scratch, 2 * th);
    CHECK_EQ(of.scratch_bytes, 2 * th + 2 * tf);
    CHECK_EQ(of.num_buffers, 5);
    CHECK_EQ(of.buffers_bytes, 2 * th + 4 * tf);
    CHECK_EQ(of.layer_pages, 2 * tf / PST_PAGE_BYTES_DEFAULT);
    CHECK_EQ(of.pool_pages, 126 * of.layer_pages);
    CHECK(of.pool_bytes > of.pool_pages * PST_PAGE_BYTES_DEFAULT);
    check_saved(&config, &of);
    CHECK_OK(pst_estimate_get_linears(&config, 1, true, 1, &of));
    CHECK_EQ(linear(&of, "attention.proj")->forward_scratch, th);
}

PST_TEST(EstimateLinears, KeptGathersAndNoPages)
{
    const uint64_t th = 2 * 8192ull * 16384, tf = 2 * 8192ull * 53248 / 8;
    pst_estimate_config config = large();
    pst_estimate_linears of;
    config.recompute = PST_RECOMPUTE_ACTIVATION;
    CHECK_OK(pst_estimate_get_linears(&config, 0, false, 126, &of));
    check_saved(&config, &of);
    CHECK_EQ(linear(&of, "attention.qkv")->forward_scratch, 0);
    CHECK_EQ(linear(&of, "attention.qkv")->backward_scratch, th);
    CHECK_EQ(linear(&of, "mlp")->forward_scratch, tf + 2 * th / 8);
    CHECK_EQ(linear(&of, "mlp")->backward_scratch, th + 4 * tf);
    CHECK_EQ(of.layer_pages, 0);
    CHECK_EQ(of.pool_bytes, 0);
    config.sequence_parallel = false;
    CHECK_OK(pst_estimate_get_linears(&config, 0, true, 0, &of));
    check_saved(&config, &of);
    CHECK_EQ(linear(&of, "attention.qkv")->backward_scratch, 0);
    CHECK_EQ(of.scratch_bytes, 4 * tf);
    CHECK_EQ(of.pool_pages, 0);
}

PST_TEST(EstimateLinears, WithoutAGate)
{
    pst_estimate_config config = large();
    pst_estimate_linears of;
    config.is_gated = config.fuses_activation = false;
    CHECK_OK(pst_estimate_get_linears(&config, 0, true, 2, &of));
    CHECK_EQ(of.num_linears, 5);
    CHECK_EQ(linear(&of, "mlp.fc1")->saved_bytes, saved(&config, "fc1.in"));
    CHECK_EQ(linear(&of, "mlp.fc2")->hidden_bytes, 0);
    CHECK_EQ(of.pool_pages, 0);
    CHECK_EQ(of.num_buffers, 2);
}

PST_TEST(EstimateLinears, WhatIsRefused)
{
    pst_estimate_config config = large();
    pst_estimate_linears of = {.num_linears = 7};
    CHECK_STATUS(pst_estimate_get_linears(&config, 0, true, 1, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_linears(&config, 2, true, 1, &of), PST_E_INVALID);
    CHECK_SAID("pieces 2: allowed are 0, one per GPU of a tensor parallel group, and 1, whole");
    CHECK_STATUS(pst_estimate_get_linears(&config, 0, true, (1 << 20) + 1, &of), PST_E_INVALID);
    CHECK_SAID("live_layers 1048577: at most 1048576");
    config.page_bytes = PST_PAGE_BYTES_MIN;
    CHECK_STATUS(pst_estimate_get_linears(&config, 0, true, 1 << 20, &of), PST_E_INVALID);
    CHECK_SAID("page_bytes 16384: 1048576 live layers need");
    CHECK_OK(pst_estimate_get_linears(&config, 0, false, 1 << 20, &of));
    of.num_linears = 7;
    config.page_bytes = 3;
    CHECK_STATUS(pst_estimate_get_linears(&config, 0, true, 1, &of), PST_E_INVALID);
    config = large();
    config.kv_rank = config.qk_size = config.qk_position_size = config.v_size = 128;
    CHECK_STATUS(pst_estimate_get_linears(&config, 0, true, 1, &of), PST_E_UNSUPPORTED);
    CHECK_SAID("kv_rank 128: latent attention gathers latents, which linears do not");
    CHECK_EQ(of.num_linears, 7);
}
