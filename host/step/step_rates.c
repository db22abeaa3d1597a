/* From FLOPs and bytes to nanoseconds. */
#include "host/step/step.h"

#define PER_SECOND 1000000000u

uint64_t psti_step_ns(uint64_t amount, uint64_t rate, uint32_t per_mille)
{
    const psti_wide per_second = (psti_wide)rate * per_mille;
    if (amount == PSTI_TOO_MUCH)
        return amount;
    return psti_saturate(((psti_wide)amount * PER_SECOND * 1000 + per_second - 1) / per_second);
}

static uint64_t share_of(const pst_gpu *gpu, const pst_step_op *op, bool is_forward)
{
    switch (op->kind) {
    case PST_STEP_ATTENTION:
        return is_forward ? gpu->attention_forward_per_mille : gpu->attention_backward_per_mille;
    case PST_STEP_EXPERT_PRODUCT: /* in fp8 they lose what they lose in bf16 */
        return op->is_fp8
                   ? psti_min(1000,
                              psti_div_up((uint64_t)gpu->expert_per_mille * gpu->fp8_per_mille,
                                          gpu->product_per_mille))
                   : gpu->expert_per_mille;
    default:
        return op->is_fp8 ? gpu->fp8_per_mille : gpu->product_per_mille;
    }
}

static uint64_t flops_ns(const psti_step *step, const pst_step_op *op, uint64_t flops,
                         bool is_forward)
{
    const pst_gpu *gpu = &step->gpu;
    const uint64_t rate = step->run.type == PST_TRAIN_FP32 ? gpu->fp32_flops : gpu->flops;
    return psti_step_ns(flops, op->is_fp8 ? gpu->fp8_flops : rate,
                        (uint32_t)share_of(gpu, op, is_forward));
}

uint64_t psti_step_op_ns(const psti_step *step, const pst_step_op *op,
                         const pst_step_amount *amount, bool is_forward)
{
    const pst_gpu *gpu = &step->gpu;
    if (amount->flops == 0 && amount->bytes == 0)
        return 0;
    const uint64_t computing = flops_ns(step, op, amount->flops, is_forward);
    const uint64_t moving = psti_step_ns(amount->bytes, gpu->memory_rate, gpu->memory_per_mille);
    return psti_plus(computing > moving ? computing : moving, gpu->kernel_ns);
}

/* ---- transfers ---- */

/* How a group lies over nodes, whose GPUs have consecutive ranks. */
typedef struct span {
    uint64_t size, in_node, num_nodes;
} span;

static span span_of(const psti_step *step, const pst_estimate_op *op)
{
    const pst_estimate_process_group group = psti_group_of(&step->run, op->parallel, 0);
    const uint64_t room = step->gpu.node_gpus / group.stride;
    span of = {.size = group.size};
    of.in_node = group.size < room ? group.size : room;
    of.in_node += of.in_node == 0;
    of.num_nodes = psti_div_up(of.size, of.in_node);
    return of;
}

static uint64_t link_ns(const psti_step *step, uint64_t bytes)
{
    return psti_step_ns(bytes, step->gpu.link_rate, step->gpu.link_per_mille);
}

/* By so many GPUs of a node at once, each with its own way out. */
static uint64_t network_ns(const psti_step *step, uint64_t bytes, uint64_t ways)
{
    return psti_step_ns(psti_div_up(bytes, ways), step->gpu.network_rate,
                        step->gpu.network_per_mille);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Each of a GPU's parts goes to another one, those of its node over the link. */
static uint64_t exchange_ns(const psti_step *step, span of, uint64_t payload)
{
    const uint64_t inside = psti_fraction(payload, of.in_node - 1, of.size);
    const uint64_t outside = psti_fraction(payload, of.size - of.in_node, of.size);
    const uint64_t latency = of.num_nodes > 1 ? step->gpu.network_ns : step->gpu.link_ns;
    return psti_plus(larger(link_ns(step, inside), network_ns(step, outside, 1)), latency);
}

/* By DeepEP and HybridEP a token goes once to each other node that has experts of its own, to the GPU of
 * the same place there, and from that one over the link to each GPU that has some. */
static uint64_t dispatch_ns(const psti_step *step, span of)
{
    const pst_estimate_config *run = &step->run;
    const uint64_t experts = run->num_experts / of.size, in_last = of.size % of.in_node;
    const uint64_t bytes = PSTI_PRODUCT(step->local, step->width, psti_routed_size(run));
    const uint64_t others = psti_minus(of.size, of.in_node); /* GPUs, beside those of a node */
    const uint64_t whole = psti_times(of.size / of.in_node, others);
    const uint64_t last = psti_times(in_last != 0, of.size - in_last);
    const uint64_t outside = psti_div_up(
        psti_plus(psti_dispatched(run, psti_times(of.in_node, experts), psti_times(bytes, whole)),
                  psti_dispatched(run, psti_times(in_last, experts), psti_times(bytes, last))),
        of.size);
    const uint64_t links = psti_dispatch_group(&step->split) - of.num_nodes;
    const uint64_t inside = psti_dispatched(run, experts, psti_times(bytes, links));
    const uint64_t latency =
        of.num_nodes > 1 ? psti_plus(step->gpu.network_ns, step->gpu.link_ns) : step->gpu.link_ns;
    return psti_plus(larger(link_ns(step, inside), network_ns(step, outside, 1)), latency);
}

/* A ring through all nodes has as many ways between two of them as it has GPUs in each. */
static uint64_t ring_ns(const psti_step *step, span of, pst_transfer transfer, uint64_t payload)
{
    const uint64_t rounds = transfer == PST_TRANSFER_ALL_REDUCE ? 2 : 1;
    const uint64_t wire = psti_fraction(payload, rounds * (of.size - 1), of.size);
    const uint64_t inside = link_ns(step, wire);
    const uint64_t outside = of.num_nodes > 1 ? network_ns(step, wire, of.in_node) : 0;
    const uint64_t latency = psti_plus(psti_times(of.size - of.num_nodes, step->gpu.link_ns),
                                       psti_times(of.num_nodes - 1, step->gpu.network_ns));
    return psti_plus(larger(inside, outside), psti_times(rounds, latency));
}

static uint64_t send_ns(const psti_step *step, span of, uint64_t payload)
{
    if (of.num_nodes > 1)
        return psti_plus(network_ns(step, payload, 1), step->gpu.network_ns);
    return psti_plus(link_ns(step, payload), step->gpu.link_ns);
}

uint64_t psti_step_transfer_ns(const psti_step *step, const pst_estimate_op *op)
{
    const span of = span_of(step, op);
    uint64_t ns = 0;
    if (op->transfer == PST_TRANSFER_ALL_TO_ALL && step->run.dispatcher == PST_DISPATCHER_FLEX)
        ns = dispatch_ns(step, of);
    else if (op->transfer == PST_TRANSFER_ALL_TO_ALL)
        ns = exchange_ns(step, of, op->payload_bytes);
    else if (op->transfer == PST_TRANSFER_SEND || op->transfer == PST_TRANSFER_RECEIVE)
        ns = send_ns(step, of, op->payload_bytes);
    else
        ns = ring_ns(step, of, op->transfer, op->payload_bytes);
    return psti_plus(ns, step->gpu.kernel_ns);
}

uint64_t psti_step_p2p_ns(const psti_step *step)
{
    const pst_estimate_op send = {
        .transfer = PST_TRANSFER_SEND,
        .parallel = PST_PARALLEL_PIPELINE,
        .payload_bytes = PSTI_PRODUCT(step->width, step->local, step->run.hidden_size),
    };
    return step->run.pipeline_parallel == 1 ? 0 : psti_step_transfer_ns(step, &send);
}
