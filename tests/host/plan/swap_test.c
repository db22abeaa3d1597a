/* The swap fraction: worked values, every small case against a search over all fractions, and the
 * fill by tensor against all choices. */
#include <inttypes.h>

#include <pagestash/pagestash.h>

#include "host/base/base.h"
#include "tests/harness.h"
#include "tests/random.h"

#define KIB ((uint64_t)1 << 10)
#define GIB ((uint64_t)1 << 30)

/* Without limits but of what a test changes. */
static pst_swap_config ample(void)
{
    pst_swap_config config = PST_SWAP_CONFIG_INIT;
    config.input_bytes = GIB;
    config.attention_bytes = GIB;
    config.other_bytes = 14 * GIB;
    config.num_tokens = 1u << 17;
    config.link_bytes_per_second = (uint64_t)1 << 40;
    config.forward_nanoseconds = 1000000000;
    config.host_bytes = (uint64_t)1 << 50;
    config.num_layers = 32;
    return config;
}

/* ---- the shape ---- */

PST_TEST(Swap, TheModelOfSevenBillion)
{
    const pst_swap_shape shape = {.micro_batch = 1,
                                  .sequence_size = (uint64_t)1 << 20,
                                  .hidden_size = 4096,
                                  .tensor_parallel = 4,
                                  .context_parallel = 2};
    pst_swap_config config = PST_SWAP_CONFIG_INIT;
    CHECK_OK(pst_swap_model(&shape, &config));
    CHECK_EQ(config.input_bytes, GIB);
    CHECK_EQ(config.attention_bytes, GIB);
    CHECK_EQ(config.other_bytes, 14 * GIB);
    CHECK_EQ(config.num_tokens, 1 << 17);
    CHECK_EQ(config.num_layers, 0);
}

PST_TEST(Swap, ShapesByHand)
{
    pst_swap_shape shape = {
        .micro_batch = 3, .sequence_size = 10, .hidden_size = 7, .ffn_size = 5, .element_bytes = 1};
    pst_swap_config config = PST_SWAP_CONFIG_INIT;
    CHECK_OK(pst_swap_model(&shape, &config)); /* 30 tokens of 8 * 7 + 2 * 5 */
    CHECK_EQ(config.input_bytes, 210);
    CHECK_EQ(config.other_bytes, 30 * 66 - 420);
    shape.tensor_parallel = 5;
    shape.element_bytes = 4;
    CHECK_OK(pst_swap_model(&shape, &config));
    CHECK_EQ(config.attention_bytes, 6 * 7 * 4);
    CHECK_EQ(config.other_bytes, 6 * 66 * 4 - 2 * 168);
    CHECK_EQ(config.num_tokens, 6);
}

PST_TEST(Swap, BadShapes)
{
    pst_swap_config config = PST_SWAP_CONFIG_INIT;
    pst_swap_shape shape = {.micro_batch = 1,
                            .sequence_size = 12,
                            .hidden_size = 8,
                            .tensor_parallel = 4,
                            .context_parallel = 2};
    CHECK_STATUS(pst_swap_model(&shape, &config), PST_E_INVALID);
    CHECK_SAID("sequence_size 12: must be a multiple of tensor_parallel * context_parallel, 8 [");
    shape = (pst_swap_shape){.micro_batch = 1, .hidden_size = 8};
    CHECK_STATUS(pst_swap_model(&shape, &config), PST_E_INVALID);
    shape = (pst_swap_shape){.sequence_size = 1, .hidden_size = 8};
    CHECK_STATUS(pst_swap_model(&shape, &config), PST_E_INVALID);
    CHECK_SAID("micro_batch 0: must be at least 1 [");
    shape = (pst_swap_shape){.micro_batch = 1, .sequence_size = 1};
    CHECK_STATUS(pst_swap_model(&shape, &config), PST_E_INVALID);
    CHECK_SAID("hidden_size 0: must be at least 1 [");
    shape = (pst_swap_shape){
        .micro_batch = 1, .sequence_size = (uint64_t)1 << 32, .hidden_size = 1u << 25};
    CHECK_OK(pst_swap_model(&shape, &config)); /* 16 * 2 * 2^57: just 2^62 */
    CHECK_EQ(config.input_bytes, (uint64_t)1 << 58);
    shape.micro_batch = 2;
    CHECK_STATUS(pst_swap_model(&shape, &config), PST_E_INVALID);
    CHECK_SAID(
        "micro_batch 2, sequence_size 4294967296, hidden_size 33554432, ffn_size 134217728: more "
        "than 2^62 bytes");
    CHECK_EQ(config.num_tokens, (uint64_t)1 << 32);
    shape.hidden_size = (uint64_t)1 << 63;
    CHECK_STATUS(pst_swap_model(&shape, &config), PST_E_INVALID);
    CHECK_STATUS(pst_swap_model(NULL, &config), PST_E_INVALID);
}

/* ---- one fraction ---- */

/* MEMO's 7B with 2^20 tokens on 8 GPUs and 2 TiB: (256 / 30 - 2) / 14 = 0.4667. */
PST_TEST(Swap, AlphaFromHostMemory)
{
    pst_swap_config config = ample();
    pst_swap_choice swap;
    config.host_bytes = 256 * GIB;
    CHECK_OK(pst_swap_choose(&config, &swap));
    CHECK_EQ(swap.limit, PST_SWAP_BY_MEMORY);
    CHECK_EQ(swap.den, 1 << 17);
    CHECK_EQ(swap.num, 61166); /* floor(2^17 * 98 / 210) */
    CHECK_EQ(1000 * swap.num / swap.den, 466);
    CHECK_EQ(swap.num_layers, 30);
    CHECK_EQ(swap.host_bytes, 30 * swap.layer_bytes);
    CHECK(swap.host_bytes <= 256 * GIB && 256 * GIB - swap.host_bytes < 30 * 120 * KIB);
    CHECK_EQ(swap.buffer_bytes, 16 * GIB);
    config.block_tokens = 4096;
    CHECK_OK(pst_swap_choose(&config, &swap));
    CHECK_EQ(swap.num, 14 * 4096);
    CHECK_EQ(swap.layer_bytes, 2 * GIB + 14 * GIB * 14 / 32);
}

/* The forward grows with the square of the length, what is kept in proportion to it: from some
 * length on all of it hides. Assumed: 24 bsh^2 + 2 bs^2h operations (causal) at 150 TFLOP/s a GPU,
 * 10 GB/s to the host; worked by hand that is from 190,800 tokens on. */
PST_TEST(Swap, FromSomeLengthOnAllIsSwapped)
{
    uint64_t previous = 0;
    uint64_t crossover = 0;
    for (uint64_t tokens = 32 * KIB; tokens <= 512 * KIB; tokens += 32 * KIB) {
        const uint64_t operations = 24 * tokens * 4096 * 4096 + 2 * tokens * tokens * 4096;
        const pst_swap_shape shape = {
            .micro_batch = 1, .sequence_size = tokens, .hidden_size = 4096, .tensor_parallel = 8};
        pst_swap_config config = PST_SWAP_CONFIG_INIT;
        pst_swap_choice swap;
        CHECK_OK(pst_swap_model(&shape, &config));
        config.link_bytes_per_second = 10000000000;
        config.forward_nanoseconds = operations / 8 / 150000;
        config.host_bytes = (uint64_t)1 << 50;
        config.num_layers = 32;
        CHECK_OK(pst_swap_choose(&config, &swap));
        const uint64_t share = 1000 * swap.num / swap.den;
        CHECK(share >= previous);
        CHECK_EQ(swap.limit == PST_SWAP_UNLIMITED, share == 1000);
        if (share == 1000 && crossover == 0)
            crossover = tokens / KIB;
        previous = share;
    }
    CHECK_EQ(crossover, 192);
}

PST_TEST(Swap, WhatGoesWholeJustFits)
{
    pst_swap_config config = ample();
    pst_swap_choice swap;
    config.link_bytes_per_second = 2 * GIB;
    config.host_bytes = 60 * GIB;
    CHECK_OK(pst_swap_choose(&config, &swap));
    CHECK_EQ(swap.limit, PST_SWAP_BY_TIME);
    CHECK_EQ(swap.num, 0);
    CHECK_EQ(swap.layer_bytes, 2 * GIB);
    CHECK_EQ(swap.missing_nanoseconds + swap.missing_link_bytes + swap.missing_host_bytes, 0);
    config.link_bytes_per_second--;
    config.host_bytes -= 31;
    CHECK_OK(pst_swap_choose(&config, &swap));
    CHECK_EQ(swap.limit, PST_SWAP_IMPOSSIBLE);
    CHECK_EQ(swap.missing_link_bytes, 1);
    CHECK_EQ(swap.missing_nanoseconds, 1);
    CHECK_EQ(swap.missing_host_bytes, 31);
    CHECK_EQ(swap.layer_bytes + swap.host_bytes + swap.num + swap.room_bytes, 0);
    config.link_bytes_per_second = GIB; /* a second more, and host memory suffices */
    config.host_bytes = 60 * GIB;
    CHECK_OK(pst_swap_choose(&config, &swap));
    CHECK_EQ(swap.missing_nanoseconds, 1000000000);
    CHECK_EQ(swap.missing_link_bytes, GIB);
    CHECK_EQ(swap.missing_host_bytes, 0);
}

PST_TEST(Swap, TwoLayersStay)
{
    for (uint32_t layers = 0; layers <= 3; layers++) {
        pst_swap_config config = ample();
        pst_swap_choice swap;
        config.num_layers = layers;
        config.host_bytes = 0;
        config.forward_nanoseconds = 0;
        CHECK_OK(pst_swap_choose(&config, &swap));
        CHECK_EQ(swap.limit, layers <= 2 ? PST_SWAP_UNLIMITED : PST_SWAP_IMPOSSIBLE);
        CHECK_EQ(swap.num_layers, layers <= 2 ? 0 : 1);
        CHECK_EQ(swap.num + swap.host_bytes + swap.layer_bytes, 0);
        CHECK_EQ(swap.buffer_bytes, 16 * GIB);
    }
}

/* All small cases: the most tokens, in whole blocks, of which both inequalities hold as printed. */
static void against_search(const pst_swap_config *config)
{
    const uint64_t whole = config->input_bytes + config->attention_bytes;
    const uint64_t layers = config->num_layers - 2;
    uint64_t best = UINT64_MAX;
    bool all = false;
    for (uint64_t k = 0; k <= config->num_tokens; k++) {
        uint64_t bytes = whole;
        while ((bytes - whole) * config->num_tokens < config->other_bytes * k)
            bytes++;
        if (bytes * 1000000000 > config->link_bytes_per_second * config->forward_nanoseconds ||
            layers * bytes > config->host_bytes)
            break;
        all = k == config->num_tokens;
        if (all || k % config->block_tokens == 0)
            best = k;
    }
    pst_swap_choice swap;
    CHECK_OK(pst_swap_choose(config, &swap));
    CHECK_EQ(swap.limit == PST_SWAP_IMPOSSIBLE, best == UINT64_MAX);
    CHECK_EQ(swap.limit == PST_SWAP_UNLIMITED, all);
    const uint64_t link = config->link_bytes_per_second * config->forward_nanoseconds / 1000000000;
    const bool by_memory = config->host_bytes / layers < link; /* as much of both: by time */
    CHECK(all || best == UINT64_MAX || (swap.limit == PST_SWAP_BY_MEMORY) == by_memory);
    CHECK_MSG(best == UINT64_MAX || swap.num == best, "%" PRIu64 " tokens, not %" PRIu64, swap.num,
              best);
}

PST_TEST(Swap, EverySmallCase)
{
    for (uint64_t link = 1; link <= 12; link++)
        for (uint64_t host = 0; host <= 24; host++)
            for (uint64_t other = 0; other <= 7; other++)
                for (uint64_t tokens = 1; tokens <= 9; tokens += 2) {
                    pst_swap_config config = PST_SWAP_CONFIG_INIT;
                    config.input_bytes = 1;
                    config.attention_bytes = 2;
                    config.other_bytes = other;
                    config.num_tokens = tokens;
                    config.block_tokens = tokens < 3 ? 1 : 3;
                    config.link_bytes_per_second = link;
                    config.forward_nanoseconds = 999999999;
                    config.host_bytes = host;
                    config.num_layers = 4;
                    against_search(&config);
                    if (psti_test_failed())
                        return;
                }
}

PST_TEST(Swap, LargeNumbers)
{
    pst_swap_config config = ample();
    pst_swap_choice swap;
    for (int shift = 31; shift <= 61; shift++) { /* half of a layer of 2^shift + 1 + 1 */
        config.input_bytes = 1;
        config.attention_bytes = 1;
        config.other_bytes = (uint64_t)1 << shift;
        config.num_tokens = (uint64_t)1 << 62;
        config.host_bytes = UINT64_MAX;
        config.num_layers = 3;
        config.link_bytes_per_second = (config.other_bytes >> 1) + 2;
        CHECK_OK(pst_swap_choose(&config, &swap));
        CHECK_EQ(swap.limit, PST_SWAP_BY_TIME);
        CHECK_EQ(swap.num, (uint64_t)1 << 61);
        CHECK_EQ(swap.layer_bytes, config.link_bytes_per_second);
    }
    config.other_bytes = ((uint64_t)1 << 62) - 2;
    config.link_bytes_per_second = UINT64_MAX;
    config.forward_nanoseconds = UINT64_MAX;
    config.num_layers = UINT32_MAX;
    CHECK_OK(pst_swap_choose(&config, &swap)); /* 2^64 / (2^32 - 3) */
    CHECK_EQ(swap.limit, PST_SWAP_BY_MEMORY);
    CHECK_EQ(swap.layer_bytes, ((uint64_t)1 << 32) + 3);
    config.link_bytes_per_second = 1;
    config.forward_nanoseconds = 0;
    config.input_bytes = config.other_bytes;
    config.other_bytes = 0;
    config.host_bytes = 0;
    CHECK_OK(pst_swap_choose(&config, &swap)); /* what is missing is beyond 2^64 */
    CHECK_EQ(swap.limit, PST_SWAP_IMPOSSIBLE);
    CHECK_EQ(swap.missing_nanoseconds, UINT64_MAX);
    CHECK_EQ(swap.missing_host_bytes, UINT64_MAX);
    CHECK_EQ(swap.missing_link_bytes, ((uint64_t)1 << 62) - 1);
}

/* After this change to a good one. */
#define REFUSES(change, text)                                      \
    do {                                                           \
        pst_swap_config bad = ample();                             \
        pst_swap_choice swap = {.num = 77};                        \
        bad.change;                                                \
        CHECK_STATUS(pst_swap_choose(&bad, &swap), PST_E_INVALID); \
        CHECK_SAID(text);                                          \
        CHECK_EQ(swap.num, 77);                                    \
    } while (0)

PST_TEST(Swap, BadConfigs)
{
    REFUSES(struct_size = 8, "struct_size 8: pst_swap_config has ");
    REFUSES(num_tokens = 0, "num_tokens 0: must be at least 1 [");
    REFUSES(block_tokens = 131073, "block_tokens 131073: allowed are up to num_tokens, 131072 [");
    REFUSES(link_bytes_per_second = 0, "link_bytes_per_second 0: must be at least 1 [");
    REFUSES(other_bytes = (uint64_t)1 << 62, "input_bytes 1073741824, attention_bytes 1073741824, "
                                             "other_bytes 4611686018427387904: together at most");
    REFUSES(input_bytes = UINT64_MAX, "input_bytes 18446744073709551615, attention_bytes ");
    const pst_swap_config config = ample();
    CHECK_STATUS(pst_swap_choose(&config, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_swap_choose(NULL, NULL), PST_E_INVALID);
}

/* ---- by tensor ---- */

PST_TEST(Swap, DearestPerByteFirst)
{
    static const pst_swap_tensor tensors[] = {{100, 100}, {10, 50}, {200, 0},
                                              {40, 120},  {20, 60}, {50, 25}};
    uint64_t tokens[6];
    pst_swap_filled filled;
    CHECK_OK(pst_swap_fill(tensors, 6, 120, 10, 2, tokens, &filled)); /* 1, 3, 4, then 0 */
    CHECK_EQ(filled.num_whole, 3);
    CHECK_EQ(filled.fractional, 0);
    CHECK_EQ(filled.bytes, 110);
    CHECK_EQ(filled.saved_nanoseconds, 50 + 120 + 60 + 40);
    CHECK_EQ(filled.bound_nanoseconds, 50 + 120 + 60 + 50);
    static const uint64_t wanted[] = {4, 10, 0, 10, 10, 0};
    for (int i = 0; i < 6; i++)
        CHECK_EQ(tokens[i], wanted[i]);
    CHECK_OK(pst_swap_fill(tensors, 6, UINT64_MAX, 10, 0, tokens, &filled));
    CHECK_EQ(filled.num_whole, 5); /* what costs nothing stays */
    CHECK_EQ(filled.bytes, 220);
    CHECK_EQ(filled.saved_nanoseconds, 355);
    CHECK_EQ(filled.bound_nanoseconds, 355);
    CHECK_EQ(filled.fractional, UINT32_MAX);
    CHECK_EQ(tokens[2], 0);
    CHECK_OK(pst_swap_fill(tensors, 6, 0, 10, 0, tokens, &filled));
    CHECK_EQ(filled.bytes + filled.saved_nanoseconds + filled.bound_nanoseconds, 0);
    CHECK_EQ(filled.fractional, UINT32_MAX);
    CHECK_OK(pst_swap_fill(tensors, 6, 65, 10, 0, tokens, &filled)); /* 3 and 4 cost the same */
    CHECK_EQ(tokens[3], 10);
    CHECK_EQ(tokens[4], 7);
    CHECK_OK(pst_swap_fill(NULL, 0, 5, 1, 0, NULL, &filled));
    CHECK_EQ(filled.num_whole, 0);
}

/* All choices of how many tokens of each go: none saves more than the bound; in units of 1/tokens
 * of bytes and nanoseconds, so that nothing is rounded. */
static uint64_t best_choice(const pst_swap_tensor *tensors, int num, uint64_t budget,
                            uint64_t num_tokens)
{
    uint64_t best = 0;
    uint64_t choices = 1;
    for (int i = 0; i < num; i++)
        choices *= num_tokens + 1;
    for (uint64_t choice = 0; choice < choices; choice++) {
        uint64_t bytes = 0;
        uint64_t saved = 0;
        uint64_t rest = choice;
        for (int i = 0; i < num; i++, rest /= num_tokens + 1) {
            bytes += tensors[i].bytes * (rest % (num_tokens + 1));
            saved += tensors[i].recompute_nanoseconds * (rest % (num_tokens + 1));
        }
        if (bytes <= budget * num_tokens && saved > best)
            best = saved;
    }
    return best;
}

PST_TEST(Swap, NoChoiceSavesMoreThanTheBound)
{
    uint64_t seed = 3;
    int exact = 0;
    for (int round = 0; round < 200; round++) {
        enum { TOKENS = 6 };
        pst_swap_tensor tensors[4];
        uint64_t tokens[4];
        uint64_t all = 0;
        for (int i = 0; i < 4; i++) {
            tensors[i] = (pst_swap_tensor){1 + random_below(&seed, 9), random_below(&seed, 20)};
            all += tensors[i].bytes;
        }
        const uint64_t budget = random_below(&seed, all + 2);
        const uint64_t best = best_choice(tensors, 4, budget, TOKENS);
        pst_swap_filled filled;
        CHECK_OK(pst_swap_fill(tensors, 4, budget, TOKENS, 1, tokens, &filled));
        uint64_t bytes = 0; /* in units of 1/TOKENS */
        uint64_t saved = 0;
        for (int i = 0; i < 4; i++) {
            bytes += tensors[i].bytes * tokens[i];
            saved += tensors[i].recompute_nanoseconds * tokens[i];
        }
        CHECK_EQ(filled.bytes, (bytes + TOKENS - 1) / TOKENS);
        CHECK_EQ(filled.saved_nanoseconds, saved / TOKENS);
        CHECK(filled.bytes <= budget && saved <= best);
        CHECK_MSG(best <= filled.bound_nanoseconds * TOKENS, "seed 3, round %d", round);
        if (bytes != budget * TOKENS)
            continue;
        CHECK_EQ(saved, best); /* nothing was rounded: the relaxation's optimum */
        exact++;
    }
    CHECK(exact > 40);
}

PST_TEST(Swap, FillOfLargeTensors)
{
    const uint64_t half = (uint64_t)1 << 61;
    const pst_swap_tensor tensors[] = {{half, half - 1}, {half, half}};
    uint64_t tokens[2];
    pst_swap_filled filled;
    CHECK_OK(pst_swap_fill(tensors, 2, half + half / 2, UINT64_MAX, 1, tokens, &filled));
    CHECK_EQ(tokens[1], UINT64_MAX);
    CHECK_EQ(tokens[0], UINT64_MAX / 2);
    CHECK_EQ(filled.bytes, half + half / 2);
    CHECK_EQ(filled.bound_nanoseconds, half + half / 2);
    CHECK_EQ(filled.saved_nanoseconds, half + half / 2 - 1);
}

PST_TEST(Swap, BadFills)
{
    const uint64_t most = (uint64_t)1 << 62;
    pst_swap_tensor tensors[] = {{most, 1}, {1, most}};
    uint64_t tokens[] = {5, 5};
    pst_swap_filled filled = {.bytes = 77};
    CHECK_STATUS(pst_swap_fill(tensors, 2, 9, 1, 0, tokens, &filled), PST_E_INVALID);
    CHECK_SAID("tensor 1: bytes 1: more than 2^62 with those before [");
    tensors[0].bytes = 1;
    CHECK_STATUS(pst_swap_fill(tensors, 2, 9, 1, 0, tokens, &filled), PST_E_INVALID);
    CHECK_SAID("tensor 1: recompute_nanoseconds 4611686018427387904: more than 2^62 with those");
    tensors[0].bytes = 0;
    CHECK_STATUS(pst_swap_fill(tensors, 2, 9, 1, 0, tokens, &filled), PST_E_INVALID);
    CHECK_SAID("tensor 0: bytes 0: must be at least 1 [");
    tensors[0] = (pst_swap_tensor){1, 0};
    CHECK_STATUS(pst_swap_fill(tensors, 2, 9, 0, 0, tokens, &filled), PST_E_INVALID);
    CHECK_STATUS(pst_swap_fill(tensors, 2, 9, 4, 5, tokens, &filled), PST_E_INVALID);
    CHECK_SAID("block_tokens 5: allowed are up to num_tokens, 4 [");
    CHECK_STATUS(pst_swap_fill(tensors, 2, 9, 4, 5, NULL, &filled), PST_E_INVALID);
    psti_fail_allocation_after(0);
    const pst_status status = pst_swap_fill(tensors, 2, 9, 4, 1, tokens, &filled);
    psti_fail_allocation_after(-1);
    CHECK_EQ(status, PST_E_NOMEM);
    CHECK_EQ(filled.bytes, 77);
    CHECK_EQ(tokens[0] + tokens[1], 10);
}
