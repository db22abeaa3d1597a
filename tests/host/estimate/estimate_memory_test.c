/* What is live at the peak of the schedule, and all of a GPU, against the reference's tables. */
#include "host/estimate/estimate.h"
#include "tests/host/estimate/estimate_models.h"

typedef struct stage {
    int run;
    uint64_t stage, live, saved, head, bytes; /* live 0: see LiveChunks */
} stage;

PST_TEST(EstimateMemory, StagesOfTheReference)
{
    static const stage stages[] = {
        {1, 0, 1, 17264836608, 853606400, 68656560128},
        {2, 0, 2, 17264934912, 0, 37480955904},
        {2, 1, 1, 8632401920, 853655552, 29702127616},
        {3, 0, 1, 6759743488, 219205632, 36273341440},
        {4, 0, 4, 11251679232, 0, 50365267968},
        {4, 1, 3, 8438661120, 0, 46948270080},
        {4, 2, 2, 5625774080, 0, 44135383040},
        {4, 3, 1, 2812887040, 117491712, 42044114944},
        {5, 0, 0, 12939542528, 0, 39015268352},
        {5, 1, 0, 11814125568, 0, 37487198208},
        {5, 2, 0, 10688970752, 0, 36362043392},
        {5, 3, 0, 9563815936, 117491712, 35757131776},
        {6, 0, 4, 45991460864, 0, 85105049600},
        {6, 1, 3, 34493399040, 0, 73003008000},
        {6, 2, 2, 22995599360, 0, 61505208320},
        {6, 3, 1, 11497799680, 234983424, 50846519296},
        {7, 0, 4, 22503358464, 0, 61616947200},
        {7, 1, 3, 16877322240, 0, 55386931200},
        {7, 2, 2, 11251548160, 0, 49761157120},
        {7, 3, 1, 5625774080, 234983424, 44974493696},
        {8, 0, 1, 31705825280, 853606400, 146070304768},
        {9, 0, 4, 15853027328, 0, 86302392320},
        {9, 1, 3, 11889672192, 0, 81552605184},
        {9, 2, 2, 7926448128, 0, 77589381120},
        {9, 3, 1, 3963224064, 426827776, 74839465984},
        {10, 0, 1, 22647701504, 3767599104, 103203316736},
        {11, 0, 8, 40738095104, 0, 60475413056},
        {11, 1, 7, 38886113280, 0, 58124497152},
        {11, 7, 1, 5092229120, 1902174208, 26731748928},
        {12, 0, 16, 96966541312, 0, 118143840256},
        {12, 1, 15, 112487301120, 0, 130937548800},
        {12, 15, 1, 1874788352, 3294691328, 15515912512},
        {13, 1, 15, 1735667220480, 0, 1754117468160},
        {14, 1, 15, 96381173760, 0, 114831421440},
    };
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
        const stage *of = &stages[i];
        const pst_estimate_config config = psti_estimate_run(of->run);
        pst_estimate_memory memory;
        uint64_t live[5] = {0};
        CHECK_OK(pst_estimate_get_memory(&config, of->stage, live, &memory));
        CHECK_MSG(memory.saved_bytes == of->saved && memory.head_bytes == of->head &&
                      memory.bytes == of->bytes && memory.recompute_bytes == 0,
                  "P%d, stage %llu: saved %llu, head %llu, all %llu", of->run,
                  (unsigned long long)of->stage, (unsigned long long)memory.saved_bytes,
                  (unsigned long long)memory.head_bytes, (unsigned long long)memory.bytes);
        CHECK(of->live == 0 || live[0] == of->live);
        CHECK(of->live == 0 || memory.live_layers == of->live * memory.states.num_layers);
    }
}

PST_TEST(EstimateMemory, LiveChunks)
{
    static const uint64_t counts[4][5] = {
        {8, 4, 4, 4, 3}, {5, 4, 4, 4, 4}, {4, 4, 4, 4, 3}, {4, 4, 4, 4, 1}};
    const pst_estimate_config config = psti_estimate_run(5);
    for (uint64_t at = 0; at < 4; at++) {
        pst_estimate_memory memory;
        uint64_t live[5], sum = 0;
        CHECK_OK(pst_estimate_get_memory(&config, at, live, &memory));
        for (int i = 0; i < 5; i++) {
            CHECK_EQ(live[i], counts[at][i]);
            sum += live[i];
        }
        CHECK_EQ(memory.live_layers, 4 * sum);
        CHECK_EQ(memory.num_micro_batches, 16);
    }
}

/* One forward more before the first backward, of the first chunk's next micro-batches. */
PST_TEST(EstimateMemory, OverlappedExchange)
{
    static const uint64_t counts[4][5] = {
        {8, 4, 4, 4, 4}, {6, 4, 4, 4, 4}, {4, 4, 4, 4, 4}, {4, 4, 4, 4, 2}};
    pst_estimate_config config = psti_estimate_run(5);
    config.overlaps_exchange = true;
    for (uint64_t at = 0; at < 4; at++) {
        pst_estimate_memory memory;
        uint64_t live[5];
        CHECK_OK(pst_estimate_get_memory(&config, at, live, &memory));
        for (int i = 0; i < 5; i++)
            CHECK_MSG(live[i] == counts[at][i], "stage %d, chunk %d: %d", (int)at, i, (int)live[i]);
    }
    config = psti_estimate_run(4); /* nothing to interleave */
    config.overlaps_exchange = true;
    uint64_t live;
    pst_estimate_memory memory;
    CHECK_OK(pst_estimate_get_memory(&config, 0, &live, &memory));
    CHECK_EQ(live, 4);
}

/* The reference's example of 2023 with its right figures. */
PST_TEST(EstimateMemory, GatedWithDropout)
{
    pst_estimate_config config = psti_model_gated_gpt();
    config.tensor_parallel = config.pipeline_parallel = 2;
    config.micro_batch = 4;
    config.global_batch = 128;
    config.has_flash_attention = config.has_hidden_dropout = config.has_attention_dropout = true;
    pst_estimate_memory memory;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK(memory.saved_bytes == 26529103872 && memory.head_bytes == 0);
    CHECK_OK(pst_estimate_get_memory(&config, 1, NULL, &memory));
    CHECK(memory.saved_bytes == 13230931968 && memory.head_bytes == 1373798400);
    config.loss = PST_LOSS_FUSED;
    CHECK_OK(pst_estimate_get_memory(&config, 1, NULL, &memory));
    CHECK_EQ(memory.head_bytes, 1373798400 - 4ll * 8192 * 25216);
    config.loss = PST_LOSS_COPIED;
    CHECK_OK(pst_estimate_get_memory(&config, 1, NULL, &memory));
    CHECK_EQ(memory.head_bytes, 1373798400 + 4ll * 8192 * 25216);
}

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

PST_TEST(EstimateMemory, HeadInFp32)
{
    pst_estimate_config config = psti_estimate_run(1);
    pst_estimate_memory memory;
    config.type = PST_TRAIN_FP32;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK_EQ(memory.head_bytes, 853606400ll + 2 * 4096 * (2 * 4096 + 32000));
    config.loss = PST_LOSS_COPIED;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK_EQ(memory.head_bytes, 853606400ll + 2 * 4096 * (2 * 4096 + 3 * 32000));
    config.loss = PST_LOSS_FUSED;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK_EQ(memory.head_bytes, 853606400ll + 2 * 4096 * (2 * 4096 - 32000));
}

typedef struct old_row {
    uint64_t micro_batch, data, pipeline, tensor, hundredths; /* of a GiB */
} old_row;

/* The four runs of the tool of 2023 that our own ledger is compared with: GPT with a gated block
 * that is not fused, dropout, a contiguous copy of the attention's output and two of the logits. */
PST_TEST(EstimateMemory, RowsOf2023)
{
    static const old_row rows[] = {
        {2, 8, 1, 1, 6903}, {4, 4, 1, 2, 5560}, {2, 4, 2, 1, 4941}, {4, 1, 1, 8, 2862}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pst_estimate_config config = psti_model_gated_gpt();
        config.vocab_size = 50257;
        config.world_size = 8;
        config.tensor_parallel = rows[i].tensor;
        config.pipeline_parallel = rows[i].pipeline;
        config.micro_batch = rows[i].micro_batch;
        config.global_batch = 512;
        config.distributed_optimizer = config.has_flash_attention = true;
        config.has_hidden_dropout = config.has_attention_dropout = true;
        config.copies_attention = true;
        config.loss = PST_LOSS_COPIED;
        pst_estimate_memory memory;
        CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
        CHECK_EQ((memory.bytes * 100 + (1u << 29)) >> 30, rows[i].hundredths);
        CHECK_EQ(config.world_size, rows[i].data * rows[i].pipeline * rows[i].tensor);
    }
}

/* A short iteration never fills the pipeline. */
PST_TEST(EstimateMemory, FewMicroBatches)
{
    pst_estimate_config config = psti_estimate_run(4);
    pst_estimate_memory memory;
    uint64_t live = 0;
    config.global_batch = 2;
    CHECK_OK(pst_estimate_get_memory(&config, 0, &live, &memory));
    CHECK(live == 2 && memory.num_micro_batches == 2);
    config.global_batch = 0; /* one of each replica */
    config.world_size = 64;
    CHECK_OK(pst_estimate_get_memory(&config, 0, &live, &memory));
    CHECK(live == 1 && memory.num_micro_batches == 1);
    uint64_t chunks[5];
    config = psti_estimate_run(5);
    config.global_batch = 8; /* 4 of each chunk */
    CHECK_OK(pst_estimate_get_memory(&config, 0, chunks, &memory));
    for (int i = 0; i < 5; i++)
        CHECK_EQ(chunks[i], 4);
    CHECK_EQ(memory.live_layers, 80);
}

/* The paper's inputs only: 2sbh per layer, and one layer's ledger while it runs again. */
PST_TEST(EstimateMemory, FullRecomputation)
{
    pst_estimate_config config = psti_model_gpt3();
    config.num_layers = 48;
    config.hidden_size = 6144;
    config.ffn_size = 24576;
    config.num_heads = 64;
    config.micro_batch = 4;
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
    config = psti_estimate_run(12); /* stage 0: three dense layers, then one with experts */
    config.recompute_layers = 3;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK_EQ(memory.saved_bytes, 16 * (2 * 58720256ll + 8 * 4096));
    CHECK_EQ(memory.recompute_bytes, 3 * 1395195904ll);
    CHECK_OK(pst_estimate_get_memory(&config, 1, NULL, &memory));
    CHECK_EQ(memory.recompute_bytes, 3 * 1874788352ll);
}

/* First stage of the paper: layers * (1 + (p - 1) / (p v)) of saved tensors. */
PST_TEST(EstimateMemory, FirstStageOfThePaper)
{
    pst_estimate_config config = psti_model_gpt3();
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
    pst_estimate_config config = psti_model_gpt3();
    config.tensor_parallel = 8;
    config.recompute = PST_RECOMPUTE_GATHER;
    config.has_hidden_dropout = config.has_attention_dropout = true;
    if (is_large) {
        config.pipeline_parallel = 8;
        config.virtual_stages = 3;
        config.micro_batch = 1;
        config.global_batch = 64;
        return config;
    }
    config.num_layers = 48;
    config.hidden_size = 6144;
    config.ffn_size = 24576;
    config.num_heads = 64;
    config.micro_batch = 4;
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

/* ---- what fusing the activation and gathering again save ---- */

typedef struct choice {
    bool is_fused, gathers_again;
    uint64_t layer, saved;
} choice;

PST_TEST(EstimateMemory, FusedAndGatheredAgain)
{
    static const choice choices[] = {{false, false, 574889984, 45991460864},
                                     {true, false, 516169728, 41293840384},
                                     {false, true, 340008960, 27200978944},
                                     {true, true, 281288704, 22503358464}};
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        pst_estimate_config config = psti_estimate_run(7);
        pst_estimate_ledger ledger;
        pst_estimate_memory memory;
        config.fuses_activation = choices[i].is_fused;
        config.recompute = choices[i].gathers_again ? PST_RECOMPUTE_GATHER : 0;
        CHECK_OK(pst_estimate_get_ledger(&config, false, &ledger));
        CHECK_EQ(ledger.bytes, choices[i].layer);
        CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
        CHECK_EQ(memory.saved_bytes, choices[i].saved);
        CHECK_EQ(memory.live_layers, 80);
    }
}

/* ---- the schedule ---- */

/* The heaviest moment of a whole iteration, by a list of its passes. */
static uint64_t heaviest(const pst_estimate_config *config, uint64_t at,
                         const psti_chunk_saved *chunks)
{
    const uint64_t v = config->virtual_stages, group = config->micro_batch_group_size;
    const uint64_t num = config->global_batch * v;
    uint64_t warm_up = 2 * (config->pipeline_parallel - 1 - at) + (v - 1) * group;
    warm_up += config->overlaps_exchange ? 1 : 0;
    uint64_t now = 0, most = 0, back = 0;
    for (uint64_t n = 0; n < num; n++) {
        now += chunks[n % (group * v) / group].bytes;
        most = now > most ? now : most;
        if (n >= warm_up) {
            now -= chunks[v - 1 - back % (group * v) / group].bytes;
            back++;
        }
    }
    return most;
}

/* Chunks of any weight, groups of any size: the peak of the first turns is that of all. */
PST_TEST(EstimateMemory, ThePeakOfAWholeIteration)
{
    uint64_t seed = 1;
    for (int i = 0; i < 300; i++) {
        pst_estimate_config given = psti_estimate_run(4), config;
        psti_chunk_saved chunks[5] = {{.bytes = 0}};
        uint64_t live[5], sum = 0;
        for (int j = 0; j < 5; j++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            chunks[j].bytes = seed >> 60;
        }
        const uint64_t at = (seed >> 40) % 4;
        given.virtual_stages = i % 2 ? 2 : 5;
        given.overlaps_exchange = i % 3 == 0;
        given.micro_batch_group_size = 4 + (seed >> 50) % 4;
        given.global_batch = given.micro_batch_group_size * (1 + (seed >> 45) % 6);
        CHECK_OK(psti_estimate_open(&given, &config));
        CHECK_OK(psti_find_peak(&config, at, chunks, live));
        for (uint64_t j = 0; j < given.virtual_stages; j++)
            sum += live[j] * chunks[j].bytes;
        CHECK_EQ(sum, heaviest(&config, at, chunks));
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
