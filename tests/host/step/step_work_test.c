/* FLOPs and bytes of single operations, by hand, and of published models, by their parameters. */
#include "host/step/step.h"
#include "tests/host/estimate/estimate_models.h"
#include "tests/host/estimate/estimate_random.h"

#include <string.h>

/* In functions that return something. */
static void expect_ok(pst_status status)
{
    CHECK_MSG(status == PST_OK, "%s", pst_last_message());
}

/* Four tokens, hidden size 8, two heads of 4 with one of keys and values, a gated block 16 wide, bf16. */
static pst_estimate_config small(void)
{
    pst_estimate_config run = PST_ESTIMATE_CONFIG_INIT;
    run.num_layers = 2;
    run.hidden_size = 8;
    run.num_heads = 2;
    run.num_kv_heads = 1;
    run.ffn_size = 16;
    run.vocab_size = 32;
    run.vocab_multiple = 1;
    run.norm = PST_NORM_RMS;
    run.is_gated = true;
    run.fuses_activation = true;
    run.has_flash_attention = true;
    run.loss = PST_LOSS_FUSED;
    run.sequence_size = 4;
    return run;
}

static pst_step_work work_of(const pst_estimate_config *run, pst_step_part part)
{
    pst_step_config config = PST_STEP_CONFIG_INIT;
    pst_step_work work = {.num_ops = 0};
    config.run = run;
    expect_ok(pst_step_get_work(&config, part, &work));
    return work;
}

typedef struct expected {
    const char *name;
    uint64_t forward_flops, input_flops, weight_flops;
    uint64_t forward_bytes, input_bytes, weight_bytes;
} expected;

static void expect_ops(const pst_step_work *work, const expected *of, uint32_t num)
{
    CHECK_EQ(work->num_ops, num);
    for (uint32_t i = 0; i < num && i < work->num_ops; i++) {
        const pst_step_op *op = &work->ops[i];
        CHECK_STR(op->name, of[i].name);
        const bool is_same =
            op->forward.flops == of[i].forward_flops && op->input.flops == of[i].input_flops &&
            op->weight.flops == of[i].weight_flops && op->forward.bytes == of[i].forward_bytes &&
            op->input.bytes == of[i].input_bytes && op->weight.bytes == of[i].weight_bytes;
        CHECK_MSG(is_same, "%s: %llu %llu %llu FLOPs, %llu %llu %llu bytes", op->name,
                  (unsigned long long)op->forward.flops, (unsigned long long)op->input.flops,
                  (unsigned long long)op->weight.flops, (unsigned long long)op->forward.bytes,
                  (unsigned long long)op->input.bytes, (unsigned long long)op->weight.bytes);
    }
}

/* A product of r x i and i x o: 2 r i o FLOPs three times; bytes 2 (ri + io + ro), the same, and
 * 2 (ri + ro) + 8 io, the gradient being read and written in fp32. */
PST_TEST(StepWork, SmallLlama)
{
    const pst_estimate_config run = small();
    const expected layer[] = {
        {"norm1", 0, 0, 0, 128, 192, 0}, /* 2 and 3 times 4 tokens of 8 */
        {"attention.qkv", 1024, 1024, 1024, 448, 448, 1216},
        {"attention.rope", 0, 0, 0, 192, 192, 0}, /* three heads of 4, read and written */
        /* 2 heads * 4 tokens * 4 positions * (4 + 4), and (3 * 4 + 2 * 4) backward */
        {"attention.core", 256, 640, 0, 192, 384, 0},
        {"attention.proj", 512, 512, 512, 256, 256, 640},
        {"attention.residual", 0, 0, 0, 192, 192, 0},
        {"norm2", 0, 0, 0, 128, 192, 0},
        {"mlp.fc1", 2048, 2048, 2048, 832, 832, 2368},
        {"mlp.activation", 0, 0, 0, 384, 640, 0}, /* of 16 wide: reads 2, writes 1; 3 and 2 */
        {"mlp.fc2", 1024, 1024, 1024, 448, 448, 1216},
        {"mlp.residual", 0, 0, 0, 192, 192, 0},
    };
    const expected last[] = {
        {"final_norm", 0, 0, 0, 128, 192, 0},
        {"output", 2048, 2048, 2048, 832, 832, 2368},
        {"loss", 0, 0, 0, 768, 0, 0}, /* 3 passes over 4 x 32 logits */
    };
    const expected first[] = {{"embedding", 0, 0, 0, 128, 0, 320}};
    const pst_step_work work = work_of(&run, PST_STEP_DENSE);
    const pst_step_work behind = work_of(&run, PST_STEP_LAST);
    const pst_step_work before = work_of(&run, PST_STEP_FIRST);
    expect_ops(&work, layer, sizeof(layer) / sizeof(layer[0]));
    expect_ops(&behind, last, sizeof(last) / sizeof(last[0]));
    expect_ops(&before, first, 1);
    CHECK_EQ(work.forward_flops, 1024 + 256 + 512 + 2048 + 1024);
    CHECK_EQ(work.backward_flops, 2 * (1024 + 512 + 2048 + 1024) + 640);
    CHECK_EQ(work.again_flops, 0);
}

/* Four experts of 6 on two GPUs, two for each token: 8 rows to send, 8 that arrive, 4 of each expert. */
PST_TEST(StepWork, SmallExperts)
{
    pst_estimate_config run = small();
    run.num_experts = 4;
    run.experts_per_token = 2;
    run.expert_ffn_size = 6;
    run.shared_ffn_size = 4;
    run.expert_parallel = 2;
    run.world_size = 2;
    run.global_batch = 2;
    const expected experts[] = {
        {"router", 256, 256, 256, 2 * (32 + 32 + 16), 160, 2 * 48 + 8 * 32},
        {"router.topk", 0, 0, 0, 192, 192, 0},
        {"dispatch.permute", 0, 0, 0, 448, 448, 0}, /* rows of 16 bytes: 4 + 8 + 2 * 8 */
        {"expert.fc1", 1536, 1536, 1536, 2 * (64 + 192 + 96), 704, 2 * 160 + 8 * 192},
        {"expert.activation", 0, 0, 0, 288, 480, 0},
        {"expert.fc2", 768, 768, 768, 2 * (48 + 96 + 64), 416, 2 * 112 + 8 * 96},
        {"combine.permute", 0, 0, 0, 448, 448, 0},
        {"shared.fc1", 512, 512, 512, 2 * (32 + 64 + 32), 256, 2 * 64 + 8 * 64},
        {"shared.activation", 0, 0, 0, 96, 160, 0},
        {"shared.fc2", 256, 256, 256, 2 * (16 + 32 + 32), 160, 2 * 48 + 8 * 32},
        {"mlp.residual", 0, 0, 0, 192, 192, 0},
    };
    pst_step_work work = work_of(&run, PST_STEP_MOE);
    CHECK_EQ(work.forward_flops, 1024 + 256 + 512 + 256 + 1536 + 768 + 512 + 256);
    CHECK_EQ(work.ops[10].kind, PST_STEP_EXPERT_PRODUCT);
    work.num_ops -= 7; /* attention and two norms */
    memmove(work.ops, work.ops + 7, work.num_ops * sizeof(work.ops[0]));
    expect_ops(&work, experts, sizeof(experts) / sizeof(experts[0]));
}

/* Latent attention: scores of 3 + 2 a head, values of 4; two heads. */
PST_TEST(StepWork, LatentAttention)
{
    pst_estimate_config run = small();
    run.num_kv_heads = 0;
    run.q_rank = 5;
    run.kv_rank = 6;
    run.qk_size = 3;
    run.qk_position_size = 2;
    run.v_size = 4;
    run.head_size = 7; /* of none of them */
    const pst_step_work work = work_of(&run, PST_STEP_DENSE);
    const uint64_t products = 2 * 4 * (5 * 8 + 10 * 5 + 8 * 8 + 14 * 6 + 8 * 8 + 32 * 8 + 8 * 16);
    CHECK_EQ(work.forward_flops, products + 32 * (5 + 4));
    CHECK_EQ(work.backward_flops, 2 * products + 32 * (3 * 5 + 2 * 4));
}

/* A GPU of a group has its part of heads and columns, and with context parallelism of the tokens, which
 * still look at all positions. */
PST_TEST(StepWork, IsDivided)
{
    pst_estimate_config run = small();
    run.sequence_size = 8;
    const pst_step_work whole = work_of(&run, PST_STEP_DENSE);
    run.num_kv_heads = 2;
    const pst_step_work all_heads = work_of(&run, PST_STEP_DENSE);
    run.tensor_parallel = 2;
    const pst_step_work half = work_of(&run, PST_STEP_DENSE);
    CHECK_EQ(2 * half.forward_flops, all_heads.forward_flops);
    CHECK_EQ(2 * half.backward_flops, all_heads.backward_flops);
    run = small();
    run.sequence_size = 8;
    run.context_parallel = 2;
    const pst_step_work part = work_of(&run, PST_STEP_DENSE);
    CHECK_EQ(2 * part.forward_flops, whole.forward_flops);
    CHECK_EQ(2 * part.backward_flops, whole.backward_flops);
}

/* Without flash attention scores are not skipped, and go through memory: 32 of them here, 4 and 7
 * times 2 bytes, and with dropout 5 more. */
PST_TEST(StepWork, ScoresThatAreKept)
{
    pst_estimate_config run = small();
    run.has_flash_attention = false;
    pst_step_work work = work_of(&run, PST_STEP_DENSE);
    CHECK_STR(work.ops[4].name, "attention.softmax");
    CHECK_EQ(work.ops[3].forward.flops, 512);
    CHECK_EQ(work.ops[3].input.flops, 1024);
    CHECK_EQ(work.ops[4].forward.bytes, 32 * 8);
    CHECK_EQ(work.ops[4].input.bytes, 32 * 14);
    run.has_attention_dropout = true;
    work = work_of(&run, PST_STEP_DENSE);
    CHECK_EQ(work.ops[4].forward.bytes, 32 * 13);
    CHECK_EQ(work.ops[4].input.bytes, 32 * 19);
}

/* What runs again in the backward, by name. */
static void expect_again(const pst_estimate_config *run, pst_step_part part, const char *names)
{
    const pst_step_work work = work_of(run, part);
    uint64_t flops = 0;
    for (uint32_t i = 0; i < work.num_ops; i++) {
        const pst_step_op *op = &work.ops[i];
        const bool is_named = strcmp(names, "all") == 0 || strstr(names, op->name) != NULL;
        CHECK_MSG(op->is_again == is_named, "%s with %s", op->name, names);
        flops += op->is_again ? op->forward.flops : 0;
    }
    CHECK_EQ(work.again_flops, flops);
}

PST_TEST(StepWork, Recomputation)
{
    pst_estimate_config run = small();
    expect_again(&run, PST_STEP_DENSE, "");
    run.recompute = PST_RECOMPUTE_NORM;
    expect_again(&run, PST_STEP_DENSE, "norm1 norm2");
    run.recompute = PST_RECOMPUTE_ACTIVATION;
    expect_again(&run, PST_STEP_DENSE, "mlp.activation");
    run.recompute = PST_RECOMPUTE_ATTENTION;
    expect_again(&run, PST_STEP_DENSE, "attention.core");
    run.recompute = PST_RECOMPUTE_EXPERTS;
    expect_again(&run, PST_STEP_DENSE, "");
    run.recompute = PST_RECOMPUTE_MLP;
    expect_again(&run, PST_STEP_DENSE, "mlp.fc1 mlp.activation mlp.fc2");
    run.recompute = 0;
    run.recompute_layers = 1;
    expect_again(&run, PST_STEP_DENSE, "all");
    CHECK_EQ(work_of(&run, PST_STEP_DENSE).again_flops,
             work_of(&run, PST_STEP_DENSE).forward_flops);
    CHECK_EQ(work_of(&run, PST_STEP_LAST).again_flops, 0);
    run = small();
    run.num_experts = 2;
    run.experts_per_token = 1;
    run.expert_ffn_size = run.shared_ffn_size = 4;
    run.recompute = PST_RECOMPUTE_EXPERTS;
    expect_again(&run, PST_STEP_MOE, "expert.activation");
    run.recompute = PST_RECOMPUTE_SHARED;
    expect_again(&run, PST_STEP_MOE, "shared.fc1 shared.activation shared.fc2");
    run.recompute = PST_RECOMPUTE_MOE;
    expect_again(&run, PST_STEP_MOE,
                 "router router.topk dispatch.permute expert.fc1 expert.activation expert.fc2 "
                 "combine.permute shared.fc1 shared.activation shared.fc2");
    run.q_rank = run.kv_rank = run.qk_size = run.qk_position_size = run.v_size = 2;
    run.num_kv_heads = 0;
    run.recompute = PST_RECOMPUTE_LATENT;
    expect_again(&run, PST_STEP_MOE, "attention.q_up attention.kv_up attention.rope");
}

/* In fp8 operands have a byte and are made of what is there: read in two bytes, written in two of one. */
PST_TEST(StepWork, Fp8)
{
    pst_estimate_config run = small();
    pst_step_config config = PST_STEP_CONFIG_INIT;
    pst_step_work work;
    config.run = &run;
    run.fp8 = PST_FP8_TENSORWISE;
    CHECK_OK(pst_step_get_work(&config, PST_STEP_DENSE, &work));
    CHECK(work.ops[1].is_fp8 && strcmp(work.ops[2].name, "fp8.cast") == 0);
    CHECK_EQ(work.ops[1].forward.flops, 1024);
    CHECK_EQ(work.ops[1].forward.bytes, 32 + 128 + 2 * 64);
    CHECK_EQ(work.ops[2].forward.bytes, 4 * 32);
    CHECK_EQ(work.ops[2].input.bytes, 4 * 64);
    run.recompute = PST_RECOMPUTE_MLP; /* its casts, too, but not those of attention */
    CHECK_OK(pst_step_get_work(&config, PST_STEP_DENSE, &work));
    uint32_t num_casts = 0, num_again = 0;
    for (uint32_t i = 0; i < work.num_ops; i++) {
        num_casts += strcmp(work.ops[i].name, "fp8.cast") == 0;
        num_again += strcmp(work.ops[i].name, "fp8.cast") == 0 && work.ops[i].is_again;
    }
    CHECK(num_casts == 4 && num_again == 2);
    run.recompute = 0;
    CHECK_OK(pst_step_get_work(&config, PST_STEP_LAST, &work));
    CHECK(!work.ops[1].is_fp8);
}

/* Each depth has an embedding, norms, a projection, and the output matrix and the loss once more. */
PST_TEST(StepWork, MultiTokenPrediction)
{
    pst_estimate_config run = small();
    run.mtp_layers = 2;
    const expected last[] = {
        {"final_norm", 0, 0, 0, 128, 192, 0},
        {"output", 3 * 2048, 3 * 2048, 3 * 2048, 3 * 832, 3 * 832, 3 * 2368},
        {"loss", 0, 0, 0, 3 * 768, 0, 0},
        {"mtp.embedding", 0, 0, 0, 2 * 128, 0, 2 * 320},
        {"mtp.norm", 0, 0, 0, 6 * 128, 6 * 192, 0},
        {"mtp.proj", 2048, 2048, 2048, 2 * 2 * (64 + 128 + 32), 896, 2 * (2 * 96 + 8 * 128)},
    };
    pst_step_work work = work_of(&run, PST_STEP_LAST);
    expect_ops(&work, last, sizeof(last) / sizeof(last[0]));
    CHECK_EQ(work.again_flops, 0);
    run.recompute_layers = 1;
    work = work_of(&run, PST_STEP_LAST);
    CHECK_EQ(work.again_flops, 2048);
}

/* 2 N for each token that a model's products meet (Kaplan et al. 2020; 6 N with the backward): N without
 * the embedding and without what is no matrix. */
PST_TEST(StepWork, TwoForEachParameter)
{
    static const char *const names[] = {"llama2_7b", "llama2_70b", "mixtral_8x7b", "qwen3_30b",
                                        "deepseek_v3"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        pst_estimate_config run = psti_model(names[i]);
        run.sequence_size = 4096;
        pst_estimate_params params;
        CHECK_OK(pst_estimate_get_params(&run, &params));
        uint64_t vectors = run.hidden_size; /* the final norm */
        uint64_t flops = work_of(&run, PST_STEP_LAST).forward_flops;
        for (uint64_t layer = 0; layer < run.num_layers; layer++) {
            const bool is_moe = run.num_experts != 0 && (run.is_moe == NULL || run.is_moe[layer]);
            const pst_step_work work = work_of(&run, is_moe ? PST_STEP_MOE : PST_STEP_DENSE);
            pst_estimate_modules modules;
            CHECK_OK(pst_estimate_get_modules(&run, is_moe ? PST_ESTIMATE_MOE : PST_ESTIMATE_DENSE,
                                              &modules));
            for (uint32_t op = 0; op < work.num_ops; op++)
                flops += strcmp(work.ops[op].name, "attention.core") == 0
                             ? 0
                             : work.ops[op].forward.flops;
            for (uint32_t m = 0; m < modules.num_modules; m++)
                vectors += modules.modules[m].is_product ? 0 : modules.modules[m].whole_params;
        }
        const uint64_t met = params.active - params.embedding - vectors +
                             (params.padded_vocab - run.vocab_size) * run.hidden_size;
        CHECK_MSG(flops == 2 * met * run.sequence_size, "%s: %llu for %llu", names[i],
                  (unsigned long long)flops, (unsigned long long)met);
    }
}

/* Of parts, transfers are those of the traffic of a stage. */
PST_TEST(StepWork, TransfersAreTheTraffic)
{
    psti_random_run run = {.state = 41};
    for (uint32_t i = 0; i < psti_test_cases(1000); i++) {
        psti_draw_run(&run);
        run.config.recompute_layers = 0;
        pst_estimate_config config;
        pst_estimate_states states;
        pst_estimate_traffic traffic;
        psti_transfers parts[6], ends;
        if (psti_estimate_open(&run.config, &config) != PST_OK)
            continue;
        const uint64_t stage = psti_random_below(&run.state, config.pipeline_parallel);
        const uint64_t num = psti_num_micro_batches(&config), mtp = psti_num_mtp(&config, stage);
        const bool is_last = stage == config.pipeline_parallel - 1;
        CHECK_OK(pst_estimate_get_states(&config, stage, &states));
        CHECK_OK(pst_estimate_get_traffic(&config, stage, &traffic));
        const uint64_t times[] = {
            states.num_layers - states.num_moe_layers, states.num_moe_layers, stage == 0, is_last,
            states.num_layers - states.num_moe_layers, states.num_moe_layers};
        psti_transfers_of(&config, (psti_visits){.dense = 1}, &parts[0]);
        psti_transfers_of(&config, (psti_visits){.moe = 1}, &parts[1]);
        psti_transfers_of(&config, (psti_visits){.embeddings = 1}, &parts[2]);
        psti_transfers_of(&config, (psti_visits){.heads = 1 + mtp, .embeddings = mtp, .mtp = mtp},
                          &parts[3]);
        psti_transfers_again(&config, false, &parts[4]);
        psti_transfers_again(&config, true, &parts[5]);
        psti_transfers_of_step(&config, stage, &states, &ends);
        for (uint32_t op = 0; op < traffic.num_ops; op++) {
            const char *name = traffic.ops[op].name;
            uint64_t count = 0;
            for (uint32_t part = 0; part < 6; part++)
                for (uint32_t j = 0; j < parts[part].num_ops; j++) {
                    const psti_counts *of = &parts[part].counts[j];
                    CHECK(of->beside <= of->backward);
                    if (strcmp(parts[part].ops[j].name, name) == 0)
                        count += times[part] * num * (of->forward + of->backward);
                }
            for (uint32_t j = 0; j < ends.num_ops; j++)
                count += strcmp(ends.ops[j].name, name) == 0 ? ends.ops[j].count : 0;
            if (traffic.ops[op].parallel != PST_PARALLEL_PIPELINE)
                CHECK_MSG(count == traffic.ops[op].count, "%s: %llu, in all %llu", name,
                          (unsigned long long)count, (unsigned long long)traffic.ops[op].count);
        }
    }
}
