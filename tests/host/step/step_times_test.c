/* From work to nanoseconds: the roofline, transfers by hand, and what hides them. */
#include "host/step/step.h"
#include "tests/host/estimate/estimate_models.h"
#include "tests/host/estimate/estimate_random.h"

#include <string.h>

/* In functions that return something. */
static void expect_ok(pst_status status)
{
    CHECK_MSG(status == PST_OK, "%s", pst_last_message());
}

/* A byte and a FLOP a nanosecond are easily counted; nothing is lost. */
static pst_gpu plain(void)
{
    pst_gpu gpu = PST_GPU_INIT;
    gpu.flops = gpu.fp8_flops = gpu.fp32_flops = 1000000000;
    gpu.memory_rate = gpu.link_rate = gpu.network_rate = gpu.host_rate = 1000000000;
    gpu.node_gpus = 8;
    gpu.product_per_mille = gpu.fp8_per_mille = gpu.expert_per_mille = 1000;
    gpu.attention_forward_per_mille = gpu.attention_backward_per_mille = 1000;
    gpu.memory_per_mille = gpu.link_per_mille = gpu.network_per_mille = 1000;
    gpu.host_per_mille = 1000;
    return gpu;
}

static pst_estimate_config small(void)
{
    pst_estimate_config run = PST_ESTIMATE_CONFIG_INIT;
    run.num_layers = 2;
    run.hidden_size = 8;
    run.num_heads = 2;
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

static psti_step step_of(const pst_estimate_config *run, const pst_gpu *gpu, uint32_t overlaps)
{
    pst_step_config config = PST_STEP_CONFIG_INIT;
    psti_step step = {.tokens = 0};
    config.run = run;
    config.gpu = gpu;
    config.overlaps = overlaps;
    expect_ok(psti_step_open(&config, true, &step));
    return step;
}

PST_TEST(StepTimes, RoundsUp)
{
    CHECK_EQ(psti_step_ns(0, 7, 1000), 0);
    CHECK_EQ(psti_step_ns(7, 7000000000, 1000), 1);
    CHECK_EQ(psti_step_ns(8, 7000000000, 1000), 2);
    CHECK_EQ(psti_step_ns(7, 7000000000, 500), 2);
    CHECK_EQ(psti_step_ns(UINT64_MAX - 1, 1000000000, 1000), UINT64_MAX - 1);
    CHECK_EQ(psti_step_ns(UINT64_MAX - 1, 1, 1), UINT64_MAX);
    CHECK_EQ(psti_step_ns(UINT64_MAX, UINT64_MAX, 1000), UINT64_MAX);
}

/* The longer of both, and the kernel. */
PST_TEST(StepTimes, Roofline)
{
    const pst_estimate_config run = small();
    pst_gpu gpu = plain();
    gpu.kernel_ns = 5;
    gpu.attention_forward_per_mille = 500;
    gpu.attention_backward_per_mille = 250;
    gpu.expert_per_mille = 100;
    gpu.memory_per_mille = 200;
    const psti_step step = step_of(&run, &gpu, 0);
    pst_step_op op = {.kind = PST_STEP_PRODUCT};
    CHECK_EQ(psti_step_op_ns(&step, &op, &(pst_step_amount){100, 10}, true), 105);
    CHECK_EQ(psti_step_op_ns(&step, &op, &(pst_step_amount){100, 30}, true), 155);
    CHECK_EQ(psti_step_op_ns(&step, &op, &(pst_step_amount){0, 0}, true), 0);
    op.kind = PST_STEP_ATTENTION;
    CHECK_EQ(psti_step_op_ns(&step, &op, &(pst_step_amount){100, 0}, true), 205);
    CHECK_EQ(psti_step_op_ns(&step, &op, &(pst_step_amount){100, 0}, false), 405);
    op.kind = PST_STEP_EXPERT_PRODUCT;
    CHECK_EQ(psti_step_op_ns(&step, &op, &(pst_step_amount){100, 0}, false), 1005);
    op.kind = PST_STEP_MEMORY;
    CHECK_EQ(psti_step_op_ns(&step, &op, &(pst_step_amount){0, 100}, false), 505);
}

/* In fp8 the rate of fp8, and of grouped products the same loss. */
PST_TEST(StepTimes, Fp8Rates)
{
    const pst_estimate_config run = small();
    pst_gpu gpu = plain();
    gpu.fp8_flops = 2000000000;
    gpu.product_per_mille = 800;
    gpu.fp8_per_mille = 400;
    gpu.expert_per_mille = 500;
    const psti_step step = step_of(&run, &gpu, 0);
    pst_step_op op = {.kind = PST_STEP_PRODUCT, .is_fp8 = true};
    CHECK_EQ(psti_step_op_ns(&step, &op, &(pst_step_amount){800, 0}, true), 1000);
    op.kind = PST_STEP_EXPERT_PRODUCT; /* 500 * 400 / 800 */
    CHECK_EQ(psti_step_op_ns(&step, &op, &(pst_step_amount){800, 0}, true), 1600);
}

static uint64_t transfer_ns(const psti_step *step, pst_transfer transfer, pst_parallel parallel,
                            uint64_t payload)
{
    const pst_estimate_op op = {
        .transfer = transfer, .parallel = parallel, .payload_bytes = payload};
    return psti_step_transfer_ns(step, &op);
}

/* Of 4 GPUs each sends 3/4; of 16 on two nodes 15/16 over 8 ways at once, and all-to-all half of it over
 * one's own. Links have 2 bytes a nanosecond here, 1 between nodes; latencies of 10 and 100. */
PST_TEST(StepTimes, Transfers)
{
    pst_estimate_config run = small();
    run.num_heads = 16;
    run.head_size = 4;
    run.num_experts = 16;
    run.experts_per_token = 1;
    run.expert_ffn_size = 4;
    run.tensor_parallel = 4;
    run.sequence_parallel = true;
    run.expert_parallel = 16;
    run.expert_tensor_parallel = 1;
    run.pipeline_parallel = 2;
    run.world_size = 32;
    run.global_batch = 4;
    pst_gpu gpu = plain();
    gpu.link_rate = 2000000000;
    gpu.link_ns = 10;
    gpu.network_ns = 100;
    gpu.kernel_ns = 1;
    psti_step step = step_of(&run, &gpu, 0);
    const pst_parallel tensor = PST_PARALLEL_TENSOR, experts = PST_PARALLEL_EXPERT;
    CHECK_EQ(transfer_ns(&step, PST_TRANSFER_ALL_GATHER, tensor, 800), 300 + 3 * 10 + 1);
    CHECK_EQ(transfer_ns(&step, PST_TRANSFER_REDUCE_SCATTER, tensor, 800), 300 + 3 * 10 + 1);
    CHECK_EQ(transfer_ns(&step, PST_TRANSFER_ALL_REDUCE, tensor, 800), 600 + 6 * 10 + 1);
    /* dense replicas: 4 GPUs, every fourth, two of a node: over two ways between them */
    CHECK_EQ(transfer_ns(&step, PST_TRANSFER_ALL_GATHER, PST_PARALLEL_REPLICA, 1600),
             600 + 2 * 10 + 100 + 1);
    CHECK_EQ(transfer_ns(&step, PST_TRANSFER_ALL_TO_ALL, experts, 1600), 800 + 100 + 1);
    CHECK_EQ(transfer_ns(&step, PST_TRANSFER_SEND, PST_PARALLEL_PIPELINE, 500), 500 + 100 + 1);
    gpu.node_gpus = 64;
    step = step_of(&run, &gpu, 0);
    CHECK_EQ(transfer_ns(&step, PST_TRANSFER_ALL_TO_ALL, experts, 1600), 750 + 10 + 1);
    CHECK_EQ(transfer_ns(&step, PST_TRANSFER_SEND, PST_PARALLEL_PIPELINE, 500), 250 + 10 + 1);
    gpu.node_gpus = 1;
    step = step_of(&run, &gpu, 0);
    CHECK_EQ(transfer_ns(&step, PST_TRANSFER_ALL_GATHER, tensor, 800), 600 + 3 * 100 + 1);
}

/* 8 experts on 8 GPUs, of two nodes: 2 groups of 4 experts, of which a token has one, and 2 of its experts. So it
 * goes to one node, to the other one half of the time; and to 2 GPUs, of which one of each node is where it has
 * come in, and 6 of 8 are over links. Tokens of 4 x 8 x 2 bytes. */
PST_TEST(StepTimes, DispatchOncePerNode)
{
    pst_estimate_config run = small();
    run.num_experts = 8;
    run.experts_per_token = 2;
    run.expert_ffn_size = 4;
    run.expert_parallel = 8;
    run.world_size = 8;
    run.global_batch = 8;
    run.dispatcher = PST_DISPATCHER_FLEX;
    run.router_groups = 2;
    run.router_group_topk = 1;
    pst_gpu gpu = plain();
    gpu.node_gpus = 4;
    gpu.link_ns = 10;
    gpu.network_ns = 100;
    gpu.kernel_ns = 1;
    psti_step step = step_of(&run, &gpu, 0);
    const pst_parallel experts = PST_PARALLEL_EXPERT;
    CHECK_EQ(transfer_ns(&step, PST_TRANSFER_ALL_TO_ALL, experts, 0), 64 * 6 * 2 / 8 + 110 + 1);
    gpu.link_rate *= 4;
    step = step_of(&run, &gpu, 0);
    CHECK_EQ(transfer_ns(&step, PST_TRANSFER_ALL_TO_ALL, experts, 0), 64 / 2 + 110 + 1);
    /* of one node: to 2 of 8 GPUs, one of which it is not on */
    gpu.node_gpus = 8;
    step = step_of(&run, &gpu, 0);
    CHECK_EQ(transfer_ns(&step, PST_TRANSFER_ALL_TO_ALL, experts, 0), 64 * 7 * 2 / 8 / 4 + 10 + 1);
    /* nodes of 5 and 3: a token misses a node of 5 where its group is the other one and its experts are not in the
     * fifth: 1/2 x 3/6; the node of 3 but for 1/2 */
    gpu.node_gpus = 5;
    gpu.link_rate *= 100;
    step = step_of(&run, &gpu, 0);
    CHECK_EQ(transfer_ns(&step, PST_TRANSFER_ALL_TO_ALL, experts, 0), 38 + 110 + 1);
}

/* What DeepEP reports of its own kernels (github.com/deepseek-ai/DeepEP, docs/legacy.md of commit dd758caf4518: H800
 * with links of 160 GB/s and 400 Gb/s of network, 4,096 tokens of 7,168 elements, 8 of 256 experts on at most 4 nodes,
 * bf16 on the way back): 43, 57 and 50 GB/s of a node's copies on 2, 4 and 8 nodes. At the rates of an H100 and such
 * links these take 23 % less to 20 % more here. */
PST_TEST(StepTimes, DeepEPsOwnFigures)
{
    static const struct {
        uint64_t nodes;
        double rate, least, most;
    } rows[] = {{2, 43, 0.77, 0.78}, {4, 57, 1.16, 1.18}, {8, 50, 1.19, 1.21}};
    pst_gpu gpu = PST_GPU_INIT;
    CHECK_OK(pst_gpu_find("h100", &gpu));
    gpu.link_rate = UINT64_C(160000000000);
    gpu.link_per_mille = 1000;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pst_estimate_config run = small();
        const uint64_t nodes = rows[i].nodes, met = nodes < 4 ? nodes : 4;
        run.hidden_size = 7168;
        run.sequence_size = 4096;
        run.num_experts = 256;
        run.experts_per_token = 8;
        run.expert_ffn_size = 2048;
        run.expert_parallel = run.world_size = run.global_batch = 8 * nodes;
        run.dispatcher = PST_DISPATCHER_FLEX;
        run.router_groups = nodes;
        run.router_group_topk = met;
        const psti_step step = step_of(&run, &gpu, 0);
        const double ns =
            (double)transfer_ns(&step, PST_TRANSFER_ALL_TO_ALL, PST_PARALLEL_EXPERT, 0);
        const double measured = 4096.0 * 7168 * 2 * (double)met / rows[i].rate;
        CHECK_MSG(ns >= rows[i].least * measured && ns <= rows[i].most * measured,
                  "%d nodes: %.0f ns of %.0f", (int)nodes, ns, measured);
    }
}

static pst_step_times times_of(const pst_estimate_config *run, const pst_gpu *gpu,
                               uint32_t overlaps, pst_step_part part)
{
    const psti_step step = step_of(run, gpu, overlaps);
    pst_step_times times = {.visit_forward = {0}};
    expect_ok(psti_step_times_of(&step, part, &times));
    return times;
}

/* Two GPUs with sequence parallelism: a gather and a sum of 4 x 8 x 2 bytes for each of two blocks take
 * 32 each. The backward gathers both outputs' gradients, and beside its products the inputs, too, and
 * sums up theirs. */
PST_TEST(StepTimes, TensorParallelTransfers)
{
    pst_estimate_config run = small();
    pst_gpu gpu = plain();
    run.tensor_parallel = 2;
    run.sequence_parallel = true;
    run.recompute = PST_RECOMPUTE_GATHER;
    pst_step_times times = times_of(&run, &gpu, 0, PST_STEP_DENSE);
    CHECK_EQ(times.forward.exposed_ns, 4 * 32);
    CHECK_EQ(times.forward.hidden_ns, 0);
    CHECK_EQ(times.input.exposed_ns, 2 * 32);
    CHECK_EQ(times.input.hidden_ns, 4 * 32);
    /* beside products half of a transfer is left, the first of two pieces */
    times = times_of(&run, &gpu, PST_OVERLAP_TENSOR, PST_STEP_DENSE);
    CHECK_EQ(times.forward.exposed_ns, 2 * 32);
    CHECK_EQ(times.forward.hidden_ns, 2 * 32);
    /* products of nearly no time hide nearly nothing */
    gpu.flops = UINT64_C(1) << 60;
    gpu.memory_rate = UINT64_C(1) << 60;
    times = times_of(&run, &gpu, 0, PST_STEP_DENSE);
    CHECK_EQ(times.weight.products_ns, 4);
    CHECK_EQ(times.input.exposed_ns, 2 * 32 + 4 * 32 - 4);
}

/* Where experts lie: before, in and behind them, and backwards the other way around. */
PST_TEST(StepTimes, VisitsOfExperts)
{
    pst_estimate_config run = small();
    pst_gpu gpu = plain();
    run.num_experts = 4;
    run.experts_per_token = 2;
    run.expert_ffn_size = 8;
    run.shared_ffn_size = 4;
    run.expert_parallel = 2;
    run.world_size = 2;
    run.global_batch = 2;
    const pst_step_times none = times_of(&run, &gpu, 0, PST_STEP_MOE);
    /* 8 rows of 16 bytes, half of them leave, twice each way */
    CHECK_EQ(none.forward.exposed_ns, 2 * 64);
    CHECK_EQ(none.input.exposed_ns, 2 * 64);
    const pst_times *forward = &none.visit_forward;
    CHECK_EQ(forward->before + forward->core + forward->after,
             none.forward.products_ns + none.forward.memory_ns + none.forward.exposed_ns);
    const pst_times *input = &none.visit_input, *weight = &none.visit_weight;
    CHECK_EQ(input->before + input->core + input->after,
             none.input.products_ns + none.input.memory_ns + none.input.exposed_ns);
    CHECK_EQ(weight->before + weight->core + weight->after,
             none.weight.products_ns + none.weight.memory_ns);
    /* fc1: 8 rows, 8 to 16; fc2: 8 to 8; and of the activation 8 x 8 x 3 x 2 bytes */
    CHECK_EQ(forward->core, 2048 + 1024 + 384);
    CHECK_EQ(weight->core, 2432 + 1280);
    CHECK(weight->before < weight->after); /* the shared experts' come first */
    const pst_step_times shared = times_of(&run, &gpu, PST_OVERLAP_SHARED_EXPERTS, PST_STEP_MOE);
    CHECK_EQ(shared.forward.exposed_ns, 0);
    run.overlaps_exchange = true;
    const pst_step_times beside = times_of(&run, &gpu, 0, PST_STEP_MOE);
    CHECK_EQ(beside.forward.exposed_ns, 0);
    CHECK_EQ(beside.forward.hidden_ns, 2 * 64);
    CHECK_EQ(forward->after, beside.visit_forward.after + 64); /* half of the exchange */
}

/* A ring is hidden by attention, as far as that goes. */
PST_TEST(StepTimes, ContextParallelTransfers)
{
    pst_estimate_config run = small();
    pst_gpu gpu = plain();
    run.context_parallel = 2;
    pst_step_times times = times_of(&run, &gpu, 0, PST_STEP_DENSE);
    CHECK_EQ(times.forward.exposed_ns, 0);
    CHECK_EQ(times.forward.hidden_ns, 64); /* keys and values of two tokens */
    gpu.link_rate /= 10;
    times = times_of(&run, &gpu, 0, PST_STEP_DENSE);
    CHECK_EQ(times.forward.exposed_ns, 640 - 128);
    CHECK_EQ(times.forward.hidden_ns, 128);
}

/* Full recomputation takes a forward with its transfers once more; that of a dense block its own part. */
PST_TEST(StepTimes, Recomputation)
{
    pst_estimate_config run = small();
    const pst_gpu gpu = plain();
    pst_step_config config = PST_STEP_CONFIG_INIT;
    pst_step_times kept, again;
    run.tensor_parallel = 2;
    config.run = &run;
    config.gpu = &gpu;
    CHECK_OK(pst_step_get_times(&config, PST_STEP_DENSE, &kept));
    CHECK_EQ(kept.again.products_ns + kept.again.memory_ns + kept.again.exposed_ns, 0);
    run.recompute_layers = 1;
    CHECK_OK(pst_step_get_times(&config, PST_STEP_DENSE, &again));
    CHECK(memcmp(&again.again, &again.forward, sizeof(again.again)) == 0);
    CHECK_EQ(again.input.products_ns, kept.input.products_ns + kept.forward.products_ns);
    CHECK_EQ(again.input.exposed_ns, kept.input.exposed_ns + kept.forward.exposed_ns);
    CHECK_EQ(again.visit_input.before + again.visit_input.core,
             kept.visit_input.core + kept.visit_forward.core);
    run.recompute_layers = 0;
    run.recompute = PST_RECOMPUTE_MLP;
    CHECK_OK(pst_step_get_times(&config, PST_STEP_DENSE, &again));
    CHECK_EQ(again.again.products_ns, 1024 + 512); /* half of each product */
    CHECK_EQ(2 * again.again.exposed_ns, again.forward.exposed_ns);
}
