/* Multi-token prediction: what its depths add to the last stage. */
#include "tests/host/estimate/estimate_models.h"

/* What the depths add to the states of a stage. */
static pst_estimate_states added_states(const pst_estimate_config *config, uint64_t stage)
{
    pst_estimate_config plain = *config;
    pst_estimate_states before = {.params = 0}, after = {.params = 0};
    plain.mtp_layers = 0;
    if (pst_estimate_get_states(&plain, stage, &before) != PST_OK ||
        pst_estimate_get_states(config, stage, &after) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    after.num_layers -= before.num_layers;
    after.num_moe_layers -= before.num_moe_layers;
    after.params -= before.params;
    after.expert_params -= before.expert_params;
    return after;
}

/* One depth has 11,610,067,968 parameters: here all but 63 of 64 of its experts, and with it a copy
 * of the embedding. */
PST_TEST(EstimateMtp, StatesOfDeepSeek)
{
    pst_estimate_config config = psti_estimate_run(12);
    pst_estimate_params params, same;
    CHECK_OK(pst_estimate_get_params(&config, &params));
    config.mtp_layers = 2;
    CHECK_OK(pst_estimate_get_params(&config, &same));
    CHECK(same.total == params.total && same.mtp == params.mtp && same.mtp == 11610067968);
    pst_estimate_states added = added_states(&config, 15);
    const uint64_t experts = 256 * 3 * 7168ll * 2048;
    CHECK(added.num_layers == 2 && added.num_moe_layers == 2);
    CHECK_EQ(added.expert_params, 2 * experts / 64);
    CHECK_EQ(added.params, 2 * (params.mtp - experts + experts / 64) + 129280 * 7168);
    added = added_states(&config, 14);
    CHECK(added.num_layers == 0 && added.params == 0);
    config = psti_model("deepseek_v3");
    config.mtp_layers = 1; /* one stage embeds as it is */
    CHECK_EQ(added_states(&config, 0).params, params.mtp);
}

/* The projection is divided, norms are not; a tied matrix is on the last stage as it is. */
PST_TEST(EstimateMtp, StatesOfGpt)
{
    pst_estimate_config config = psti_model("gpt2");
    pst_estimate_params params;
    config.tensor_parallel = 2;
    config.pipeline_parallel = 2;
    config.mtp_layers = 3;
    CHECK_OK(pst_estimate_get_params(&config, &params));
    const uint64_t h = 768, norms = 3 * 2 * h, vectors = 4 * h + 2 * h;
    const uint64_t half = (params.dense_layer - vectors + 2 * h * h) / 2;
    CHECK_EQ(params.mtp, params.dense_layer + 2 * h * h + norms);
    const uint64_t positions = 1024 * h;
    CHECK_EQ(added_states(&config, 1).params, 3 * (half + norms + vectors) + positions);
    CHECK_EQ(added_states(&config, 0).params, 0);
    config.is_tied = false;
    CHECK_EQ(added_states(&config, 1).params,
             3 * (half + norms + vectors) + positions + 50432 * h / 2);
}

/* What the depths add to the memory of run `number`'s last stage. */
static pst_estimate_memory added_memory(const pst_estimate_config *config, uint64_t stage)
{
    pst_estimate_config plain = *config;
    pst_estimate_memory before = {.bytes = 0}, after = {.bytes = 0};
    plain.mtp_layers = 0;
    if (pst_estimate_get_memory(&plain, stage, NULL, &before) != PST_OK ||
        pst_estimate_get_memory(config, stage, NULL, &after) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    after.live_layers -= before.live_layers;
    after.live_moe_layers -= before.live_moe_layers;
    after.saved_bytes -= before.saved_bytes;
    after.head_bytes -= before.head_bytes;
    after.recompute_bytes -= before.recompute_bytes;
    return after;
}

/* Llama 7B on 2 by 2 GPUs, 8192 tokens of two sequences, of which a GPU holds half: three norms,
 * the projection's input, numbers of tokens, and a layer. */
PST_TEST(EstimateMtp, SavedByALlama)
{
    const long long t = 8192, local = 4096, h = 4096, layer = 539525120;
    pst_estimate_config config = psti_estimate_run(2);
    config.mtp_layers = 2;
    const long long depth = 3 * (2 * local * h + 4 * local) + 2 * local * 2 * h + 8 * t;
    const long long head = 2 * local * h + 4 * t * 16000 + 12 * t; /* logits in bf16 of one loss */
    pst_estimate_memory added = added_memory(&config, 1);
    CHECK_EQ(added.saved_bytes, 2 * (depth + layer));
    CHECK_EQ(added.head_bytes, 2 * head);
    CHECK(added.live_layers == 2 && added.live_moe_layers == 0);
    CHECK_EQ(added.bytes - added.states.bytes, 8632401920 + 853655552 + 2 * (depth + layer + head));
    added = added_memory(&config, 0);
    CHECK(added.saved_bytes == 0 && added.head_bytes == 0 && added.live_layers == 0);
    config.has_hidden_dropout = true; /* of the embedding, and two of the layer */
    CHECK_EQ(added_memory(&config, 1).saved_bytes, 2 * (depth + layer + 3 * local * h));
    config.has_hidden_dropout = false;
    config.recompute = 0; /* gathered: the projection's input, and two of the layer */
    CHECK_EQ(added_memory(&config, 1).saved_bytes,
             2 * (depth + layer + 2 * local * 2 * h + 2 * (2 * local * h)));
    config.recompute_layers = 1;
    added = added_memory(&config, 1);
    CHECK_EQ(added.saved_bytes, 2 * (8 * t + 2 * 2 * local * h));
    CHECK_EQ(added.head_bytes, 2 * head);
    CHECK_EQ(added.recompute_bytes, depth - 8 * t + 2 * local * 2 * h);
    config.recompute_layers = 3; /* as many layers are more */
    CHECK_EQ(added_memory(&config, 1).recompute_bytes, 0);
}

/* Behind the last chunk of an interleaved schedule, for as many micro-batches as that has. */
PST_TEST(EstimateMtp, OfTheLastChunk)
{
    static const bool is_moe[] = {false, false, false, false, false, false, false, true};
    pst_estimate_config config = psti_estimate_run(9);
    config.num_layers = 8;
    config.ffn_size = 64;
    config.is_moe = is_moe;
    config.virtual_stages = 2;
    config.mtp_layers = 3;
    uint64_t live[2];
    pst_estimate_memory memory;
    CHECK_OK(pst_estimate_get_memory(&config, 3, live, &memory));
    CHECK(live[0] == 4 && live[1] == 1);
    CHECK_EQ(memory.live_layers, 4 + 1 + 3);
    CHECK_EQ(memory.live_moe_layers, 1 + 3);
    config.overlaps_exchange = true;
    CHECK_OK(pst_estimate_get_memory(&config, 3, live, &memory));
    CHECK(live[0] == 4 && live[1] == 1);
    CHECK_EQ(memory.live_layers, 4 + 1 + 3);
    CHECK_EQ(memory.live_moe_layers, 1 + 3);
    CHECK_OK(pst_estimate_get_memory(&config, 2, live, &memory));
    CHECK_EQ(memory.live_moe_layers, 0);
}

PST_TEST(EstimateMtp, GroupOfTheEmbedding)
{
    pst_estimate_config config = psti_estimate_run(2);
    pst_estimate_process_group group;
    CHECK_STATUS(pst_estimate_get_process_group(&config, PST_PARALLEL_EMBEDDING, 1, &group),
                 PST_E_INVALID);
    config.mtp_layers = 1;
    CHECK_OK(pst_estimate_get_process_group(&config, PST_PARALLEL_EMBEDDING, 1, &group));
    CHECK(group.first == 1 && group.stride == 4 && group.size == 2);
}
