/* What is live at the peak of the schedule, and closed forms of the memory of a GPU. */
#include "host/estimate/estimate.h"
#include "tests/host/estimate/estimate_models.h"

/* Options of experts change nothing in a model without any. */
PST_TEST(EstimateMemory, OptionsOfNoExperts)
{
    pst_estimate_config config = psti_estimate_run(1);
    pst_estimate_memory before, after;
    pst_estimate_traffic traffic;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &before));
    config.moe_rows = PST_MOE_CAPACITY;
    config.caps_each_expert = true;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &after));
    CHECK_EQ(after.bytes, before.bytes);
    config.experts_per_token = config.expert_ffn_size = UINT64_MAX;
    config.capacity_num = config.capacity_den = config.row_multiple = UINT64_MAX;
    config.page_rows = config.headroom_num = config.headroom_den = config.latent_size = UINT64_MAX;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &after));
    CHECK_EQ(after.bytes, before.bytes);
    CHECK_OK(pst_estimate_get_traffic(&config, 0, &traffic));
    CHECK_EQ(traffic.num_ops, 2);
}

/* The paper's inputs only: 2sbh per layer, and one layer's ledger while it runs again. */
PST_TEST(EstimateMemory, FullRecomputation)
{
    pst_estimate_config config = psti_model("paper_22b");
    config.tensor_parallel = 8;
    config.recompute_layers = 1;
    pst_estimate_memory memory;
    pst_estimate_ledger ledger;
    CHECK_OK(pst_estimate_get_ledger(&config, false, &ledger));
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK_EQ(memory.saved_bytes, 48 * 100663296ll + 8 * 8192);
    CHECK_EQ(memory.recompute_bytes, ledger.bytes);
    CHECK_EQ(memory.bytes,
             memory.states.bytes + memory.saved_bytes + memory.head_bytes + memory.recompute_bytes);
    config.recompute_layers = 20; /* 20, 20 and 8 */
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK_EQ(memory.saved_bytes, 3 * 100663296ll + 8 * 8192);
    CHECK_EQ(memory.recompute_bytes, 20 * ledger.bytes);
}

/* First stage of the paper: layers * (1 + (p - 1) / (p v)) of saved tensors. */
PST_TEST(EstimateMemory, FirstStageOfThePaper)
{
    pst_estimate_config config = psti_model("gpt3");
    config.tensor_parallel = config.pipeline_parallel = 8;
    config.virtual_stages = 3;
    config.global_batch = 64;
    pst_estimate_memory memory;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK_EQ(memory.live_layers, 96 + 96 * 7 / 24);
}

/* The paper's 22B and 175B models on 8 and 64 GPUs. */
static pst_estimate_config of_the_paper(bool is_large)
{
    pst_estimate_config config = psti_model(is_large ? "gpt3" : "paper_22b");
    config.tensor_parallel = 8;
    config.recompute = PST_RECOMPUTE_GATHER;
    config.has_hidden_dropout = config.has_attention_dropout = true;
    if (is_large) {
        config.pipeline_parallel = 8;
        config.virtual_stages = 3;
        config.micro_batch = 1;
        config.global_batch = 64;
    }
    return config;
}

/* Layers of the first stage without what the paper leaves out: statistics of norms, and the
 * embedding's numbers of tokens and mask. */
static uint64_t first_stage_bytes(const pst_estimate_config *config)
{
    pst_estimate_memory memory = {.saved_bytes = 0};
    uint64_t live[3] = {0};
    if (pst_estimate_get_memory(config, 0, live, &memory) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    const uint64_t tokens = config->sequence_size * config->micro_batch;
    const uint64_t local = config->sequence_parallel ? tokens / 8 : tokens;
    return memory.saved_bytes - live[0] * (8 * tokens + local * config->hidden_size) -
           memory.live_layers * 2 * 8 * local;
}

/* 59.25, 9.5625, 66.84375 and 12.3515625 GiB. */
PST_TEST(EstimateMemory, GibibytesOfThePaper)
{
    static const uint64_t units[2][2] = {{7584, 1224}, {8556, 1581}}; /* of 2^23 bytes */
    for (int i = 0; i < 2; i++) {
        pst_estimate_config config = of_the_paper(i == 1);
        CHECK_EQ(first_stage_bytes(&config), units[i][0] << 23);
        config.sequence_parallel = true;
        config.recompute |= PST_RECOMPUTE_ATTENTION;
        CHECK_EQ(first_stage_bytes(&config), units[i][1] << 23);
    }
}

/* 2 stages of 16 layers with experts, 2 micro-batches in flight on the first. */
PST_TEST(EstimateMemory, LayersThatKeepRows)
{
    static const struct {
        uint32_t recompute;
        bool is_block;
        uint64_t layers, buffered;
    } runs[] = {{0, false, 0, 32},  {PST_RECOMPUTE_MOE, false, 0, 1},
                {0, false, 1, 1},   {0, false, 5, 5},
                {0, false, 40, 16}, {0, true, 5, 22},
                {0, true, 16, 1}};
    pst_estimate_config config = psti_model("mixtral_8x7b");
    config.pipeline_parallel = config.world_size = 2;
    config.sequence_size = 4096;
    config.micro_batch = 1;
    config.global_batch = 8;
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        pst_estimate_memory memory;
        config.recompute = runs[i].recompute;
        config.recomputes_block = runs[i].is_block;
        config.recompute_layers = runs[i].layers;
        CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
        CHECK_EQ(memory.live_moe_layers, 32);
        CHECK_EQ(memory.buffered_moe_layers, runs[i].buffered);
    }
}

PST_TEST(EstimateMemory, Failures)
{
    pst_estimate_config config = psti_estimate_run(5);
    pst_estimate_memory memory = {.bytes = 7};
    uint64_t live[5] = {7};
    psti_fail_allocation_after(0);
    const pst_status status = pst_estimate_get_memory(&config, 0, live, &memory);
    psti_fail_allocation_after(-1);
    CHECK_STATUS(status, PST_E_NOMEM);
    CHECK_STATUS(pst_estimate_get_memory(&config, 4, live, &memory), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_memory(&config, 0, live, NULL), PST_E_INVALID);
    config.sequence_size = UINT64_C(1) << 46; /* a chunk's bytes are below 2^63, 8 of them not */
    CHECK_STATUS(pst_estimate_get_memory(&config, 0, live, &memory), PST_E_INVALID);
    config.virtual_stages = 1;
    CHECK_STATUS(pst_estimate_get_memory(&config, 0, live, &memory), PST_E_INVALID);
    CHECK(live[0] == 7 && memory.bytes == 7);
}
