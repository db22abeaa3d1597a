/* What layers save, against the reference's ledgers and closed forms (Korthikanti et al.). */
#include "tests/host/estimate/estimate_models.h"

static const pst_estimate_entry *find(const pst_estimate_ledger *ledger, const char *name)
{
    static const pst_estimate_entry none = {"none", 0, 0};
    for (uint32_t i = 0; i < ledger->num_entries; i++)
        if (strcmp(ledger->entries[i].name, name) == 0)
            return &ledger->entries[i];
    return &none;
}

typedef struct line {
    const char *name;
    uint64_t bytes;
} line;

/* Exactly these, in this order, and their sum. */
static void expect_ledger(const pst_estimate_config *config, bool is_moe, const line *lines,
                          uint32_t num_lines, uint64_t sum)
{
    pst_estimate_ledger ledger;
    CHECK_OK(pst_estimate_get_ledger(config, is_moe, &ledger));
    for (uint32_t i = 0; i < num_lines && i < ledger.num_entries; i++) {
        CHECK_STR(ledger.entries[i].name, lines[i].name);
        CHECK_MSG(ledger.entries[i].bytes == lines[i].bytes, "%s: %llu, not %llu", lines[i].name,
                  (unsigned long long)ledger.entries[i].bytes, (unsigned long long)lines[i].bytes);
    }
    CHECK_EQ(ledger.num_entries, num_lines);
    CHECK_EQ(ledger.bytes, sum);
}

#define NUM(lines) ((uint32_t)(sizeof(lines) / sizeof((lines)[0])))

PST_TEST(EstimateLedger, Llama)
{
    static const line lines[] = {
        {"norm1.in", 33554432},    {"norm1.stat", 16384}, {"qkv.in", 33554432},
        {"q", 33554432},           {"k", 33554432},       {"v", 33554432},
        {"attention.lse", 524288}, {"proj.in", 33554432}, {"norm2.in", 33554432},
        {"norm2.stat", 16384},     {"fc1.in", 33554432},  {"fc1.out", 180355072},
        {"fc2.in", 90177536},
    };
    const pst_estimate_config config = psti_estimate_run(1);
    expect_ledger(&config, false, lines, NUM(lines), 539525120);
}

PST_TEST(EstimateLedger, Qwen)
{
    static const line lines[] = {
        {"norm1.in", 16777216},
        {"norm1.stat", 16384},
        {"qkv.in", 16777216},
        {"qk_norm.in", 37748736},
        {"qk_norm.stat", 589824},
        {"q", 33554432},
        {"k", 4194304},
        {"v", 4194304},
        {"attention.lse", 524288},
        {"proj.in", 33554432},
        {"norm2.in", 16777216},
        {"norm2.stat", 16384},
        {"moe.in", 16777216},
        {"router.logits", 2097152},
        {"router.probs", 2097152},
        {"router.map", 524288},
        {"dispatch.maps", 262144},
        {"expert.fc1.in", 134217728},
        {"expert.fc1.out", 100663296},
        {"expert.fc2.in", 50331648},
        {"expert.probs", 131072},
    };
    const pst_estimate_config config = psti_estimate_run(10);
    expect_ledger(&config, true, lines, NUM(lines), 471826432);
}

PST_TEST(EstimateLedger, DeepSeek)
{
    static const line lines[] = {
        {"q", 201326592},
        {"k", 201326592},
        {"v", 134217728},
        {"proj.in", 134217728},
        {"q_down.out", 12582912},
        {"q_up.in", 12582912},
        {"kv_down.out", 4718592},
        {"kv_up.in", 4194304},
        {"expert.fc1.in", 469762048},
        {"expert.fc1.out", 268435456},
        {"expert.fc2.in", 134217728},
        {"shared.fc1.out", 33554432},
        {"shared.fc2.in", 16777216},
        {"q_norm.stat", 16384},
        {"shared.fc1.in", 0},
    };
    const pst_estimate_config config = psti_estimate_run(12);
    pst_estimate_ledger ledger;
    CHECK_OK(pst_estimate_get_ledger(&config, false, &ledger));
    CHECK_EQ(ledger.bytes, 1395195904);
    CHECK_EQ(ledger.whole_bytes, 1395195904);
    CHECK_OK(pst_estimate_get_ledger(&config, true, &ledger));
    CHECK_EQ(ledger.bytes, 1874788352);
    for (uint32_t i = 0; i < NUM(lines); i++)
        CHECK_EQ(find(&ledger, lines[i].name)->bytes, lines[i].bytes);
}

PST_TEST(EstimateLedger, SplitLayersOfTheReference)
{
    static const uint64_t dense[] = {0,         539525120, 539525120,  168992768,  140644352,
                                     140644352, 574889984, 281288704,  0,          0,
                                     0,         0,         1395195904, 1395195904, 1126760448};
    static const uint64_t moe[] = {0,         0,         0,          0,           0,
                                   0,         0,         0,          990806016,   495403008,
                                   471826432, 462929920, 1874788352, 28927787008, 1606352896};
    for (int number = 1; number <= PSTI_NUM_RUNS; number++) {
        const pst_estimate_config config = psti_estimate_run(number);
        pst_estimate_ledger ledger;
        if (dense[number] != 0) {
            CHECK_OK(pst_estimate_get_ledger(&config, false, &ledger));
            CHECK_EQ(ledger.bytes, dense[number]);
        }
        if (moe[number] != 0) {
            CHECK_OK(pst_estimate_get_ledger(&config, true, &ledger));
            CHECK_EQ(ledger.bytes, moe[number]);
        }
    }
}

/* ---- closed forms ---- */

static pst_estimate_config paper_22b(void)
{
    pst_estimate_config config = psti_model_gpt3();
    config.num_layers = 48;
    config.hidden_size = 6144;
    config.ffn_size = 24576;
    config.num_heads = 64;
    config.micro_batch = 4;
    config.has_hidden_dropout = config.has_attention_dropout = true;
    config.recompute = PST_RECOMPUTE_GATHER;
    return config;
}

static pst_estimate_config paper_175b(void)
{
    pst_estimate_config config = psti_model_gpt3();
    config.has_hidden_dropout = config.has_attention_dropout = true;
    config.recompute = PST_RECOMPUTE_GATHER;
    return config;
}

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
    static pst_estimate_config (*const models[])(void) = {paper_22b, paper_175b};
    static const uint64_t bytes[][5] = {
        {7079985152, 1325400064, 884998144, 654311424, 213909504},
        {2868903936, 578813952, 358612992, 327155712, 106954752},
    };
    for (int i = 0; i < 2; i++) {
        pst_estimate_config config = models[i]();
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

/* The reference's example of 2023: gated, unfused, dropout, no sequence parallelism. Its
 * 826,933,248 per layer are with flash attention and both statistics of LayerNorm. */
PST_TEST(EstimateLedger, GatedWithDropout)
{
    pst_estimate_config config = psti_model_gated_gpt();
    config.tensor_parallel = 2;
    config.micro_batch = 4;
    config.has_flash_attention = config.has_hidden_dropout = config.has_attention_dropout = true;
    pst_estimate_ledger ledger;
    CHECK_OK(pst_estimate_get_ledger(&config, false, &ledger));
    CHECK_EQ(ledger.bytes, 826933248);
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
    pst_estimate_config config = psti_estimate_run(9);
    pst_estimate_ledger ledger;
    config.latent_size = 1024;
    config.shared_ffn_size = 64;
    config.recompute = 0;
    CHECK_OK(pst_estimate_get_ledger(&config, true, &ledger));
    CHECK_EQ(find(&ledger, "latent.up.in")->bytes, 2 * t / 2 * 1024);
    CHECK_EQ(find(&ledger, "latent.up.in")->whole_bytes, 2 * t * 1024);
    CHECK_EQ(find(&ledger, "moe.in")->bytes, 2 * t / 2 * h);
    CHECK_EQ(find(&ledger, "shared.fc1.in")->bytes, 2 * t * h);
    CHECK_EQ(find(&ledger, "expert.fc1.in")->bytes, 2 * rows / 2 * 1024);
}

/* Each GPU works with one head of two, which four share. */
PST_TEST(EstimateLedger, FewerHeadsOfKeysThanGpus)
{
    pst_estimate_config config = psti_estimate_run(4);
    pst_estimate_ledger ledger;
    config.num_kv_heads = 2;
    config.qk_norm = PST_QK_NORM_HEAD;
    CHECK_OK(pst_estimate_get_ledger(&config, false, &ledger));
    CHECK_EQ(find(&ledger, "k")->bytes, 2 * 4096 * 128);
    CHECK_EQ(find(&ledger, "v")->bytes, 2 * 4096 * 128);
    CHECK_EQ(find(&ledger, "k")->whole_bytes, 2 * 4096 * 2 * 128);
    CHECK_EQ(find(&ledger, "q")->bytes, 2 * 4096 * 8 * 128);
    CHECK_EQ(find(&ledger, "qk_norm.stat")->bytes, 4 * 4096 * 9);
}

/* The copy is named, before what it is a copy of. */
PST_TEST(EstimateLedger, AttentionOutputTwice)
{
    pst_estimate_config config = psti_estimate_run(2);
    pst_estimate_ledger ledger;
    config.copies_attention = true;
    CHECK_OK(pst_estimate_get_ledger(&config, false, &ledger));
    CHECK_STR(ledger.entries[7].name, "attention.out");
    CHECK_STR(ledger.entries[8].name, "proj.in");
    CHECK_EQ(ledger.entries[7].bytes, 2 * 4096 * 4096);
    CHECK_EQ(ledger.entries[7].whole_bytes, 4 * 4096 * 4096);
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
    pst_estimate_config config = psti_estimate_run(12);
    config.tensor_parallel = 2;
    pst_estimate_ledger fewer, more;
    CHECK_OK(pst_estimate_get_ledger(&config, true, &fewer));
    config.recompute = 0;
    CHECK_OK(pst_estimate_get_ledger(&config, true, &more));
    CHECK_EQ(more.bytes - fewer.bytes, t * (1536 + 512) + 2 * t * 7168);
    CHECK_EQ(find(&more, "shared.fc1.in")->bytes, 2 * t * 7168);
    CHECK_EQ(find(&more, "qkv.in")->bytes, t * 7168);
    CHECK_EQ(find(&more, "shared.fc1.out")->bytes, 2 * t * 2048);
    CHECK_EQ(find(&more, "shared.fc2.in")->bytes, t * 2048);
    CHECK_EQ(find(&more, "q")->bytes, 2 * t * 64 * 192);
    CHECK_EQ(find(&more, "k")->bytes, 2 * t * 64 * 192);
    CHECK_EQ(find(&more, "v")->bytes, 2 * t * 64 * 128);
    CHECK_EQ(find(&more, "proj.in")->bytes, 2 * t * 64 * 128);
    CHECK_EQ(find(&more, "attention.lse")->bytes, 4 * t * 64);
}

PST_TEST(EstimateLedger, LatentAttentionWithoutAQueryLatent)
{
    EXPECT_GAIN(12, false, config.q_rank = 0, -4096ll * (2 * 2 * 1536 + 4));
    EXPECT_GAIN(12, false, config.q_rank = 1, -4096ll * 2 * 2 * 1535);
}

PST_TEST(EstimateLedger, ExpertTensorParallel)
{
    pst_estimate_config config = psti_estimate_run(9);
    pst_estimate_ledger one, two;
    CHECK_OK(pst_estimate_get_ledger(&config, true, &one));
    config.expert_tensor_parallel = 2;
    CHECK_OK(pst_estimate_get_ledger(&config, true, &two));
    CHECK_EQ(find(&two, "expert.fc1.in")->bytes, 2 * find(&one, "expert.fc1.in")->bytes);
    CHECK_EQ(find(&two, "expert.fc1.out")->bytes, find(&one, "expert.fc1.out")->bytes);
    CHECK_EQ(two.whole_bytes, one.whole_bytes);
    CHECK_EQ(one.whole_bytes, 990806016);
}
