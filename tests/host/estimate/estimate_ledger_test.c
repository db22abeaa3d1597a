/* What layers save, against published ledgers and closed forms (Korthikanti et al.). */
#include "tests/host/estimate/estimate_models.h"

/* ---- closed forms ---- */

/* The paper leaves statistics of norms out. */
static uint64_t without_statistics(const pst_estimate_config *config)
{
    pst_estimate_ledger ledger = {.bytes = 0};
    if (pst_estimate_get_ledger(config, false, &ledger) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    uint64_t bytes = ledger.bytes;
    for (uint32_t i = 0; i < ledger.num_entries; i++)
        if (strstr(ledger.entries[i].name, ".stat") != NULL)
            bytes -= ledger.entries[i].bytes;
    return bytes;
}

PST_TEST(EstimateLedger, ClosedForms)
{
    static const char *const models[] = {"paper_22b", "gpt3"};
    static const uint64_t bytes[][5] = {
        {7079985152, 1325400064, 884998144, 654311424, 213909504},
        {2868903936, 578813952, 358612992, 327155712, 106954752},
    };
    for (int i = 0; i < 2; i++) {
        pst_estimate_config config = psti_model(models[i]);
        config.has_hidden_dropout = config.has_attention_dropout = true;
        config.recompute = PST_RECOMPUTE_GATHER;
        CHECK_EQ(without_statistics(&config), bytes[i][0]);
        config.tensor_parallel = 8;
        CHECK_EQ(without_statistics(&config), bytes[i][1]);
        config.sequence_parallel = true;
        CHECK_EQ(without_statistics(&config), bytes[i][2]);
        config.recompute |= PST_RECOMPUTE_ATTENTION;
        CHECK_EQ(without_statistics(&config), bytes[i][4]);
        config.sequence_parallel = false;
        CHECK_EQ(without_statistics(&config), bytes[i][3]);
    }
}

/* ---- one option at a time ---- */

/* What the change adds to (or takes from) the ledger of run `number`. */
static long long gain(int number, bool is_moe, const pst_estimate_config *changed)
{
    const pst_estimate_config config = psti_estimate_run(number);
    pst_estimate_ledger before = {.bytes = 0}, after = {.bytes = 0};
    if (pst_estimate_get_ledger(&config, is_moe, &before) != PST_OK ||
        pst_estimate_get_ledger(changed, is_moe, &after) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    return (long long)after.bytes - (long long)before.bytes;
}

#define EXPECT_GAIN(number, is_moe, change, bytes)              \
    do {                                                        \
        pst_estimate_config config = psti_estimate_run(number); \
        change;                                                 \
        CHECK_EQ(gain(number, is_moe, &config), bytes);         \
    } while (0)

PST_TEST(EstimateLedger, EveryOptionSavesItsOwn)
{
    const long long t = 4096, h = 4096, f = 11008, rows = 8192, expert = 14336;
    EXPECT_GAIN(1, false, config.has_hidden_dropout = true, 2 * t * h);
    EXPECT_GAIN(1, false, config.has_attention_dropout = true, 0);
    EXPECT_GAIN(1, false, config.has_flash_attention = false, 2 * t * t * 32 - 4 * t * 32);
    EXPECT_GAIN(1, false, config.recompute |= PST_RECOMPUTE_ATTENTION, -4 * t * 32);
    EXPECT_GAIN(1, false, config.fuses_activation = false, 2 * t * f);
    EXPECT_GAIN(1, false, config.recompute |= PST_RECOMPUTE_ACTIVATION, -2 * t * f);
    EXPECT_GAIN(1, false, config.recompute |= PST_RECOMPUTE_NORM, -4 * t * h);
    EXPECT_GAIN(12, true, config.recompute |= PST_RECOMPUTE_ACTIVATION, -2 * (8 + 1) * t * 2048);
    EXPECT_GAIN(12, true, config.recompute |= PST_RECOMPUTE_EXPERTS, -2 * 8 * t * 2048);
    EXPECT_GAIN(12, false, config.recompute |= PST_RECOMPUTE_EXPERTS, 0);
    EXPECT_GAIN(1, false, config.saves_inputs_fp8 = true, -2 * t * f);
    EXPECT_GAIN(1, false, config.norm = PST_NORM_LAYER, 2 * 4 * t);
    EXPECT_GAIN(1, false, config.copies_attention = true, 2 * t * h);
    EXPECT_GAIN(12, false, config.copies_attention = true, 2 * t * 128 * 128);
    EXPECT_GAIN(1, false, config.qk_norm = PST_QK_NORM_PROJECTION, 2 * t * 8192 + 8 * t);
    EXPECT_GAIN(1, false, config.is_gated = false, -2 * t * f);
    EXPECT_GAIN(8, true, config.applies_probs_late = true, 2 * rows * h);
    EXPECT_GAIN(8, true, config.fuses_activation = false, 2 * rows * expert);
    EXPECT_GAIN(8, true, config.moe_rows = PST_MOE_WORST,
                (32768 - rows) * (2 * h + 6 * expert + 4 + 4));
    EXPECT_GAIN(
        8, true,
        (config.moe_rows = PST_MOE_CAPACITY, config.capacity_num = 3, config.capacity_den = 2),
        rows / 2 * (2 * h + 6 * expert + 4 + 4));
    EXPECT_GAIN(8, true, (config.shared_ffn_size = 64, config.has_shared_gate = true),
                6 * t * 64 + 2 * t);
}

/* Rows of the latent size go to the experts, and come back to be projected up. */
PST_TEST(EstimateLedger, LatentExperts)
{
    const long long t = 4096, h = 4096, rows = 8192;
    EXPECT_GAIN(8, true, config.latent_size = 1024, 2 * t * 1024 - 2 * rows * (h - 1024));
    EXPECT_GAIN(8, true, (config.latent_size = 1024, config.applies_probs_late = true),
                2 * t * 1024 - 2 * rows * (h - 1024) + 2 * rows * 1024);
}

/* Statistics and log-sum-exp are in fp32 as they were, an fp8 element is a byte as it was. */
PST_TEST(EstimateLedger, Fp32)
{
    const long long same = 2 * 16384 + 524288;
    EXPECT_GAIN(1, false, config.type = PST_TRAIN_FP16, 0);
    EXPECT_GAIN(1, false, config.type = PST_TRAIN_FP32, 539525120 - same);
    EXPECT_GAIN(1, false, (config.type = PST_TRAIN_FP32, config.saves_inputs_fp8 = true),
                539525120 - same - 3 * 180355072ll / 2);
    const long long router = 2 * 4 * 4096 * 8 + 4096 * 8, maps = 4 * 4096 * 2 + 4 * 8192;
    EXPECT_GAIN(8, true, config.type = PST_TRAIN_FP16, 0);
    EXPECT_GAIN(8, true, config.type = PST_TRAIN_FP32, 990806016 - same - router - maps - 4 * 8192);
}

/* Gathered inputs: two in a dense layer, three of four with latent attention and a shared expert
 * whose own input is gathered beside the router's. */
PST_TEST(EstimateLedger, GatheredInputs)
{
    const long long t = 4096, h = 4096;
    EXPECT_GAIN(2, false, config.recompute = 0, 2 * (2 * t * h));
}

PST_TEST(EstimateLedger, LatentAttentionWithoutAQueryLatent)
{
    EXPECT_GAIN(12, false, config.q_rank = 0, -4096ll * (2 * 2 * 1536 + 4));
    EXPECT_GAIN(12, false, config.q_rank = 1, -4096ll * 2 * 2 * 1535);
}
