/* What is live at the peak of the schedule, and all of a GPU, against the reference's tables. */
#include "host/estimate.h"
#include "tests/host/estimate_models.h"

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
    config.fuses_loss = true;
    CHECK_OK(pst_estimate_get_memory(&config, 1, NULL, &memory));
    CHECK_EQ(memory.head_bytes, 1373798400 - 4ll * 8192 * 25216);
}

PST_TEST(EstimateMemory, HeadInFp32)
{
    pst_estimate_config config = psti_estimate_run(1);
    pst_estimate_memory memory;
    config.type = PST_TRAIN_FP32;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK_EQ(memory.head_bytes, 853606400ll + 2 * 4096 * (2 * 4096 + 32000));
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

/* ---- the schedule ---- */

/* The heaviest moment of a whole iteration, by a list of its passes. */
static uint64_t heaviest(const pst_estimate_config *config, uint64_t at, const uint64_t *bytes)
{
    const uint64_t v = config->virtual_stages, group = config->interleave_group;
    const uint64_t num = config->global_batch * v;
    uint64_t warm_up = 2 * (config->pipeline_parallel - 1 - at) + (v - 1) * group;
    uint64_t now = 0, most = 0, back = 0;
    for (uint64_t n = 0; n < num; n++) {
        now += bytes[n % (group * v) / group];
        most = now > most ? now : most;
        if (n >= warm_up) {
            now -= bytes[v - 1 - back % (group * v) / group];
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
        uint64_t bytes[5], live[5], sum = 0;
        for (int j = 0; j < 5; j++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            bytes[j] = seed >> 60;
        }
        const uint64_t at = (seed >> 40) % 4;
        given.virtual_stages = i % 2 ? 2 : 5;
        given.interleave_group = 4 + (seed >> 50) % 4;
        given.global_batch = given.interleave_group * (1 + (seed >> 45) % 6);
        CHECK_OK(psti_estimate_open(&given, &config));
        CHECK_OK(psti_schedule_peak(&config, at, bytes, live));
        for (uint64_t j = 0; j < given.virtual_stages; j++)
            sum += live[j] * bytes[j];
        CHECK_EQ(sum, heaviest(&config, at, bytes));
    }
}

PST_TEST(EstimateMemory, Failures)
{
    pst_estimate_config config = psti_estimate_run(5);
    pst_estimate_memory memory = {.bytes = 7};
    uint64_t live[5] = {7};
    for (long successes = 0; successes < 2; successes++) {
        psti_fail_allocation_after(successes);
        const pst_status status = pst_estimate_get_memory(&config, 0, live, &memory);
        psti_fail_allocation_after(-1);
        CHECK_STATUS(status, PST_E_NOMEM);
    }
    CHECK_STATUS(pst_estimate_get_memory(&config, 4, live, &memory), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_memory(&config, 0, live, NULL), PST_E_INVALID);
    config.sequence_size = UINT64_C(1) << 46; /* a chunk's bytes are below 2^63, 8 of them not */
    CHECK_STATUS(pst_estimate_get_memory(&config, 0, live, &memory), PST_E_INVALID);
    config.virtual_stages = 1;
    CHECK_STATUS(pst_estimate_get_memory(&config, 0, live, &memory), PST_E_INVALID);
    CHECK(live[0] == 7 && memory.bytes == 7);
}
