/* Transfers of an iteration, against the reference's lists. */
#include "tests/host/estimate/estimate_models.h"

typedef struct op {
    const char *name;
    uint64_t size, count, payload;
} op;

enum { MAX_OPS = 15 };

typedef struct list {
    int run;
    uint64_t stage;
    op ops[MAX_OPS];
} list;

/* Exactly these, in this order, up to the first without a name. */
static void expect_ops(const pst_estimate_config *config, uint64_t stage, const op *ops)
{
    pst_estimate_traffic traffic;
    CHECK_OK(pst_estimate_get_traffic(config, stage, &traffic));
    uint32_t num = 0;
    for (; num < MAX_OPS && ops[num].name != NULL && num < traffic.num_ops; num++) {
        const pst_estimate_op *got = &traffic.ops[num];
        CHECK_STR(got->name, ops[num].name);
        CHECK_MSG(got->group_size == ops[num].size && got->count == ops[num].count &&
                      got->payload_bytes == ops[num].payload,
                  "%s: n=%llu, %llu x %llu", got->name, (unsigned long long)got->group_size,
                  (unsigned long long)got->count, (unsigned long long)got->payload_bytes);
    }
    CHECK_EQ(traffic.num_ops, num);
    CHECK(num == MAX_OPS || ops[num].name == NULL);
}

static const list lists[] = {
    {2,
     0,
     {{"tp.ag", 2, 1536, 67108864},
      {"tp.rs", 2, 1024, 67108864},
      {"tp.rs.embed", 2, 16, 67108864},
      {"tp.ag.embed_bwd", 2, 16, 67108864},
      {"pp.send", 2, 16, 33554432},
      {"pp.recv", 2, 16, 33554432},
      {"dp.rs", 2, 1, 6738673664},
      {"dp.ag", 2, 1, 3369336832}}},
    {2,
     1,
     {{"tp.ag", 2, 1536, 67108864},
      {"tp.rs", 2, 1024, 67108864},
      {"tp.ag.head", 2, 32, 67108864},
      {"tp.rs.head_dgrad", 2, 16, 67108864},
      {"tp.ar.ce_scalar", 2, 48, 32768},
      {"pp.send", 2, 16, 33554432},
      {"pp.recv", 2, 16, 33554432},
      {"dp.rs", 2, 1, 6738690048},
      {"dp.ag", 2, 1, 3369345024}}},
    {4,
     0,
     {{"tp.ag", 8, 1920, 67108864},
      {"tp.rs", 8, 1280, 67108864},
      {"tp.rs.embed", 8, 16, 67108864},
      {"tp.ag.embed_bwd", 8, 16, 67108864},
      {"pp.send", 2, 16, 8388608},
      {"pp.recv", 2, 16, 8388608}}},
    {4,
     1,
     {{"tp.ag", 8, 1920, 67108864},
      {"tp.rs", 8, 1280, 67108864},
      {"pp.send", 2, 32, 8388608},
      {"pp.recv", 2, 32, 8388608}}},
    {4,
     3,
     {{"tp.ag", 8, 1920, 67108864},
      {"tp.rs", 8, 1280, 67108864},
      {"tp.ag.head", 8, 32, 67108864},
      {"tp.rs.head_dgrad", 8, 16, 67108864},
      {"tp.ar.ce_scalar", 8, 48, 16384},
      {"pp.send", 2, 16, 8388608},
      {"pp.recv", 2, 16, 8388608}}},
    {5,
     0,
     {{"tp.ag", 8, 1920, 67108864},
      {"tp.rs", 8, 1280, 67108864},
      {"tp.rs.embed", 8, 16, 67108864},
      {"tp.ag.embed_bwd", 8, 16, 67108864},
      {"pp.send", 2, 144, 8388608},
      {"pp.recv", 2, 144, 8388608},
      {"dp.rs", 2, 1, 8691908608},
      {"dp.ag", 2, 1, 4345954304}}},
    {5,
     3,
     {{"tp.ag", 8, 1920, 67108864},
      {"tp.rs", 8, 1280, 67108864},
      {"tp.ag.head", 8, 32, 67108864},
      {"tp.rs.head_dgrad", 8, 16, 67108864},
      {"tp.ar.ce_scalar", 8, 48, 16384},
      {"pp.send", 2, 144, 8388608},
      {"pp.recv", 2, 144, 8388608},
      {"dp.rs", 2, 1, 8691941376},
      {"dp.ag", 2, 1, 4345970688}}},
    {9,
     0,
     {{"tp.ag", 2, 768, 33554432},
      {"tp.rs", 2, 512, 33554432},
      {"tp.rs.embed", 2, 32, 33554432},
      {"tp.ag.embed_bwd", 2, 32, 33554432},
      {"pp.send", 2, 32, 16777216},
      {"pp.recv", 2, 32, 16777216},
      {"dp.rs", 2, 1, 934543360},
      {"dp.ag", 2, 1, 467271680},
      {"edp.rs", 2, 1, 22548578304},
      {"edp.ag", 2, 1, 11274289152},
      {"ep.a2a", 2, 1024, 33554432}}},
    {9,
     1,
     {{"tp.ag", 2, 768, 33554432},
      {"tp.rs", 2, 512, 33554432},
      {"pp.send", 2, 64, 16777216},
      {"pp.recv", 2, 64, 16777216},
      {"dp.rs", 2, 1, 672399360},
      {"dp.ag", 2, 1, 336199680},
      {"edp.rs", 2, 1, 22548578304},
      {"edp.ag", 2, 1, 11274289152},
      {"ep.a2a", 2, 1024, 33554432}}},
    {11,
     0,
     {{"tp.ag", 2, 2112, 33554432},
      {"tp.rs", 2, 1408, 33554432},
      {"tp.rs.embed", 2, 64, 33554432},
      {"tp.ag.embed_bwd", 2, 64, 33554432},
      {"pp.send", 2, 64, 16777216},
      {"pp.recv", 2, 64, 16777216},
      {"dp.rs", 16, 1, 2837818368},
      {"dp.ag", 16, 1, 1418909184},
      {"ep.a2a", 32, 2816, 134217728}}},
    {12,
     0,
     {{"pp.send", 2, 128, 58720256},
      {"pp.recv", 2, 128, 58720256},
      {"dp.rs", 64, 1, 11640504320},
      {"dp.ag", 64, 1, 5820252160},
      {"ep.a2a", 64, 512, 469762048}}},
    {12,
     1,
     {{"pp.send", 2, 256, 58720256},
      {"pp.recv", 2, 256, 58720256},
      {"dp.rs", 64, 1, 3727949824},
      {"dp.ag", 64, 1, 1863974912},
      {"ep.a2a", 64, 2048, 469762048}}},
};

PST_TEST(EstimateTraffic, ListsOfTheReference)
{
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        const pst_estimate_config config = psti_estimate_run(lists[i].run);
        expect_ops(&config, lists[i].stage, lists[i].ops);
    }
}

/* P9's last stage has more than the others. */
PST_TEST(EstimateTraffic, LastStageWithExperts)
{
    const pst_estimate_config config = psti_estimate_run(9);
    pst_estimate_traffic traffic;
    CHECK_OK(pst_estimate_get_traffic(&config, 3, &traffic));
    CHECK_EQ(traffic.num_ops, 12);
    CHECK(traffic.ops[2].count == 64 && traffic.ops[3].count == 32);
    CHECK(traffic.ops[4].count == 96 && traffic.ops[4].payload_bytes == 16384);
    CHECK(traffic.ops[7].payload_bytes == 934559744 && traffic.ops[8].payload_bytes == 467279872);
    CHECK_STR(traffic.ops[11].name, "ep.a2a");
}

static pst_estimate_config example_of_2023(void)
{
    pst_estimate_config config = psti_model_gated_gpt();
    config.tensor_parallel = config.pipeline_parallel = 2;
    config.world_size = 8;
    config.micro_batch = 4;
    config.global_batch = 256;
    config.has_flash_attention = true;
    config.distributed_optimizer = true;
    return config;
}

PST_TEST(EstimateTraffic, WithoutSequenceParallelism)
{
    static const op first[MAX_OPS] = {
        {"tp.ar", 2, 2048, 67108864}, {"tp.ar.embed", 2, 32, 67108864},
        {"pp.send", 2, 32, 67108864}, {"pp.recv", 2, 32, 67108864},
        {"dp.rs", 2, 1, 6875029504},  {"dp.ag", 2, 1, 3437514752},
        {"embed.ar", 2, 1, 413138944}};
    static const op last[MAX_OPS] = {
        {"tp.ar", 2, 2048, 67108864},      {"tp.ar.head_dgrad", 2, 32, 67108864},
        {"tp.ar.ce_scalar", 2, 96, 32768}, {"pp.send", 2, 32, 67108864},
        {"pp.recv", 2, 32, 67108864},      {"dp.rs", 2, 1, 6841507840},
        {"dp.ag", 2, 1, 3420753920},       {"embed.ar", 2, 1, 413138944}};
    const pst_estimate_config config = example_of_2023();
    expect_ops(&config, 0, first);
    expect_ops(&config, 1, last);
}

PST_TEST(EstimateTraffic, OneGpuIsSilent)
{
    pst_estimate_config config = psti_model_gpt2();
    pst_estimate_traffic traffic = {.num_ops = 7};
    CHECK_OK(pst_estimate_get_traffic(&config, 0, &traffic));
    CHECK_EQ(traffic.num_ops, 0);
}

PST_TEST(EstimateTraffic, WithoutADistributedOptimizer)
{
    static const op ops[MAX_OPS] = {{"dp.ar", 8, 1, 4 * 6738415616}};
    pst_estimate_config config = psti_estimate_run(1);
    config.distributed_optimizer = false;
    expect_ops(&config, 0, ops);
}

/* Gradients in their own width, weights in that of the type; the tied matrix too. */
PST_TEST(EstimateTraffic, GradientWidth)
{
    pst_estimate_config config = psti_model_gpt2();
    config.pipeline_parallel = 2;
    config.world_size = 4;
    config.distributed_optimizer = true;
    config.gradient_width = 2;
    const uint64_t params = 6 * 7087872 + 50304 * 768 + 1024 * 768;
    expect_ops(&config, 0,
               (op[]){{"pp.send", 2, 1, 1024 * 768 * 2},
                      {"pp.recv", 2, 1, 1024 * 768 * 2},
                      {"dp.rs", 2, 1, 2 * params},
                      {"dp.ag", 2, 1, 2 * params},
                      {"embed.ar", 2, 1, 2 * 50304 * 768},
                      {NULL, 0, 0, 0}});
    config.type = PST_TRAIN_FP32;
    config.distributed_optimizer = false;
    expect_ops(&config, 0,
               (op[]){{"pp.send", 2, 1, 1024 * 768 * 4},
                      {"pp.recv", 2, 1, 1024 * 768 * 4},
                      {"dp.ar", 2, 1, 2 * params},
                      {"embed.ar", 2, 1, 2 * 50304 * 768},
                      {NULL, 0, 0, 0}});
}

/* Llama-2 13B, t=4, c=2: 4096 tokens of 1280 words of keys and as many of values. */
PST_TEST(EstimateTraffic, ContextParallel)
{
    const pst_estimate_config config = psti_estimate_run(3);
    pst_estimate_traffic traffic;
    CHECK_OK(pst_estimate_get_traffic(&config, 0, &traffic));
    const pst_estimate_op *forward = &traffic.ops[traffic.num_ops - 4], *backward = forward + 1;
    CHECK_STR(forward->name, "cp.ring.fwd");
    CHECK_STR(backward->name, "cp.ring.bwd");
    CHECK(forward->group_size == 2 && forward->count == 40 * 16 && backward->count == 40 * 16);
    CHECK_EQ(forward->payload_bytes, 2 * 2 * 4096 * 1280);
    CHECK_EQ(backward->payload_bytes, 2 * forward->payload_bytes);
    CHECK_EQ(forward->wire_bytes, forward->count * forward->payload_bytes);
    CHECK_EQ(traffic.ops[traffic.num_ops - 2].group_size, 4); /* data * context */
}

/* Latent attention, shared experts and expert tensor parallelism, all at once. */
PST_TEST(EstimateTraffic, ExpertTensorParallel)
{
    static const op ops[MAX_OPS] = {{"tp.ag", 2, 4 * 128 * 4, 58720256},
                                    {"tp.rs", 2, 4 * 128 * 3, 58720256},
                                    {"tp.ag.latent", 2, 4 * 128 * 2, 2 * 4096 * (1536 + 512)},
                                    {"tp.rs.latent", 2, 4 * 128, 2 * 4096 * (1536 + 512)},
                                    {"tp.ag.position", 2, 4 * 128, 2 * 4096 * 64},
                                    {"tp.rs.position", 2, 4 * 128, 2 * 4096 * 64},
                                    {"pp.send", 2, 256, 29360128},
                                    {"pp.recv", 2, 256, 29360128},
                                    {"cp.ring.fwd", 2, 4 * 128, 2 * 4096 * 64 * 320},
                                    {"cp.ring.bwd", 2, 4 * 128, 4 * 4096 * 64 * 320},
                                    {"dp.rs", 32, 1, 0},
                                    {"dp.ag", 32, 1, 0},
                                    {"ep.a2a", 32, 4 * 128 * 4, 2 * 2048 * 8 * 7168},
                                    {"etp.ag", 2, 4 * 128 * 2, 4 * 2048 * 8 * 7168},
                                    {"etp.rs", 2, 4 * 128 * 2, 4 * 2048 * 8 * 7168}};
    pst_estimate_config config = psti_estimate_run(12);
    pst_estimate_states states;
    op expected[MAX_OPS];
    config.tensor_parallel = config.context_parallel = config.expert_tensor_parallel = 2;
    config.expert_parallel = 32;
    config.sequence_size = 8192;
    config.global_batch = 2048;
    CHECK_OK(pst_estimate_get_states(&config, 1, &states));
    memcpy(expected, ops, sizeof(ops));
    expected[10].payload = 4 * (states.params - states.expert_params);
    expected[11].payload = 2 * (states.params - states.expert_params);
    expect_ops(&config, 1, expected);
}

static const pst_estimate_op *find(const pst_estimate_traffic *traffic, const char *name)
{
    static const pst_estimate_op none = {.name = "none"};
    for (uint32_t i = 0; i < traffic->num_ops; i++)
        if (strcmp(traffic->ops[i].name, name) == 0)
            return &traffic->ops[i];
    return &none;
}

/* What is dispatched has the latent size; what the router and shared experts see has not. */
PST_TEST(EstimateTraffic, LatentExperts)
{
    pst_estimate_config config = psti_estimate_run(9);
    pst_estimate_traffic traffic;
    config.latent_size = 1024;
    config.expert_tensor_parallel = 2;
    CHECK_OK(pst_estimate_get_traffic(&config, 1, &traffic));
    CHECK_EQ(find(&traffic, "ep.a2a")->payload_bytes, 33554432 / 4);
    CHECK_EQ(find(&traffic, "etp.ag")->payload_bytes, 2 * 33554432 / 4);
    CHECK_EQ(find(&traffic, "tp.ag")->payload_bytes, 33554432);
}

/* Experts that are filled up receive what they have room for: 4096 * 2 / 8 * 3 / 2 of each. */
PST_TEST(EstimateTraffic, RoomOfEachExpert)
{
    pst_estimate_config config = psti_estimate_run(8);
    pst_estimate_traffic traffic;
    config.capacity_num = 3;
    config.capacity_den = 2;
    config.caps_each_expert = true;
    CHECK_OK(pst_estimate_get_traffic(&config, 0, &traffic));
    CHECK_EQ(find(&traffic, "ep.a2a")->payload_bytes, 2 * 4096 * 2 * 4096);
    config.moe_rows = PST_MOE_CAPACITY;
    CHECK_OK(pst_estimate_get_traffic(&config, 0, &traffic));
    CHECK_EQ(find(&traffic, "ep.a2a")->payload_bytes, 8 * 1536 * 2 * 4096);
    config.caps_each_expert = false;
    CHECK_OK(pst_estimate_get_traffic(&config, 0, &traffic));
    CHECK_EQ(find(&traffic, "ep.a2a")->payload_bytes, 2 * 4096 * 2 * 4096);
}

/* Latents are made of a GPU's own tokens: gradients of theirs are summed up, not the input's. */
PST_TEST(EstimateTraffic, LatentsWithoutSequenceParallel)
{
    pst_estimate_config config = psti_estimate_run(2);
    pst_estimate_traffic traffic;
    config.sequence_parallel = false;
    config.kv_rank = 256;
    config.qk_size = config.v_size = 128;
    CHECK_OK(pst_estimate_get_traffic(&config, 0, &traffic));
    CHECK_EQ(find(&traffic, "tp.ar")->count, 16 * 16 * 4);
    CHECK_EQ(find(&traffic, "tp.ar.latent")->payload_bytes, 2 * 8192 * 256);
    config.q_rank = 512;
    CHECK_OK(pst_estimate_get_traffic(&config, 0, &traffic));
    CHECK_EQ(find(&traffic, "tp.ar")->count, 16 * 16 * 3);
    CHECK_EQ(find(&traffic, "tp.ar.latent")->count, 16 * 16);
    CHECK_EQ(find(&traffic, "tp.ar.latent")->payload_bytes, 2 * 8192 * 768);
}

/* Each GPU has a quarter of a head's keys, and gathers all with the queries. */
PST_TEST(EstimateTraffic, FewerHeadsOfKeysThanGpus)
{
    pst_estimate_config config = psti_estimate_run(4);
    pst_estimate_traffic traffic;
    CHECK_OK(pst_estimate_get_traffic(&config, 1, &traffic));
    CHECK_STR(find(&traffic, "tp.ag.qkv")->name, "none");
    config.num_kv_heads = 2;
    config.recompute_layers = 1;
    CHECK_OK(pst_estimate_get_traffic(&config, 1, &traffic));
    const pst_estimate_op *gather = find(&traffic, "tp.ag.qkv");
    CHECK(gather->count == 2 * 20 * 16 && gather->payload_bytes == 2 * 4096 * 68 * 128);
    CHECK(gather->transfer == PST_TRANSFER_ALL_GATHER && gather->group_size == 8);
    const pst_estimate_op *scatter = find(&traffic, "tp.rs.qkv");
    CHECK(scatter->count == 20 * 16 && scatter->payload_bytes == 2 * 4096 * 68 * 128);
    config.context_parallel = 2;
    config.world_size = 64;
    CHECK_OK(pst_estimate_get_traffic(&config, 1, &traffic));
    CHECK_EQ(find(&traffic, "cp.ring.fwd")->payload_bytes, 2 * 2048 * 2 * 128);
}

PST_TEST(EstimateTraffic, FullRecomputationGoesForwardTwice)
{
    pst_estimate_config config = psti_estimate_run(9);
    pst_estimate_traffic traffic;
    config.recompute_layers = 1;
    CHECK_OK(pst_estimate_get_traffic(&config, 1, &traffic));
    CHECK(traffic.ops[0].count == 1024 && traffic.ops[1].count == 768);
    CHECK_EQ(traffic.ops[8].count, 1536);
    config = example_of_2023();
    config.recompute_layers = 4;
    CHECK_OK(pst_estimate_get_traffic(&config, 0, &traffic));
    CHECK(traffic.ops[0].count == 3072 && traffic.ops[1].count == 32);
    config = psti_estimate_run(3);
    config.recompute_layers = 4;
    CHECK_OK(pst_estimate_get_traffic(&config, 0, &traffic));
    CHECK(traffic.ops[traffic.num_ops - 4].count == 1280);
    CHECK(traffic.ops[traffic.num_ops - 3].count == 640);
}

/* P6 saves what it gathered. */
PST_TEST(EstimateTraffic, GatheredOnce)
{
    const pst_estimate_config config = psti_estimate_run(6);
    pst_estimate_traffic traffic;
    CHECK_OK(pst_estimate_get_traffic(&config, 3, &traffic));
    CHECK(traffic.ops[0].count == 20 * 4 * 4 && traffic.ops[1].count == 20 * 4 * 4);
    CHECK_STR(traffic.ops[2].name, "tp.ag.head");
    CHECK_EQ(traffic.ops[2].count, 4);
}

PST_TEST(EstimateTraffic, WireBytesOfARing)
{
    static const pst_transfer transfers[] = {
        PST_TRANSFER_ALL_GATHER,     PST_TRANSFER_REDUCE_SCATTER, PST_TRANSFER_ALL_GATHER,
        PST_TRANSFER_REDUCE_SCATTER, PST_TRANSFER_ALL_REDUCE,     PST_TRANSFER_SEND,
        PST_TRANSFER_RECEIVE,        PST_TRANSFER_REDUCE_SCATTER, PST_TRANSFER_ALL_GATHER};
    pst_estimate_config config = psti_estimate_run(5);
    pst_estimate_traffic traffic;
    CHECK_OK(pst_estimate_get_traffic(&config, 3, &traffic));
    CHECK_EQ(traffic.num_ops, 9);
    for (uint32_t i = 0; i < traffic.num_ops; i++) {
        const pst_estimate_op *of = &traffic.ops[i];
        const uint64_t n = of->group_size, all = of->count * of->payload_bytes;
        CHECK_EQ(of->transfer, transfers[i]);
        CHECK_EQ(of->wire_bytes, of->transfer == PST_TRANSFER_ALL_REDUCE ? 2 * (n - 1) * all / n
                                 : of->parallel == PST_PARALLEL_PIPELINE ? all
                                                                         : (n - 1) * all / n);
    }
    config = psti_estimate_run(1); /* 2/3 of 4 * 6,738,415,616, which 3 does not divide */
    config.world_size = 3;
    config.global_batch = 3;
    CHECK_OK(pst_estimate_get_traffic(&config, 0, &traffic));
    CHECK_EQ(traffic.ops[0].wire_bytes, (8 * 6738415616 + 2) / 3);
    CHECK_EQ(8 * 6738415616 % 3, 1);
}

PST_TEST(EstimateTraffic, WhatIsRefused)
{
    pst_estimate_config config = psti_estimate_run(4);
    pst_estimate_traffic traffic = {.num_ops = 7};
    CHECK_STATUS(pst_estimate_get_traffic(NULL, 0, &traffic), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_traffic(&config, 0, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_traffic(&config, 4, &traffic), PST_E_INVALID);
    config.sequence_size = UINT64_C(1) << 42; /* 2^56 bytes, 1920 times */
    CHECK_STATUS(pst_estimate_get_traffic(&config, 0, &traffic), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "tp.ag exceed 64 bits") != NULL);
    CHECK_EQ(traffic.num_ops, 7);
}
