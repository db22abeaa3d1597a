/* Times of a part of the model: operations on the GPU's rates, and what of the transfers nothing hides. */
#include <string.h>

#include "host/base/structs.h"
#include "host/step/step.h"

/* Where an operation stands: before the experts, in them, behind them. */
enum { BEFORE, CORE, AFTER, NUM_PLACES };

/* Of one pass, and of it what hides transfers. */
typedef struct sums {
    uint64_t products, memory, attention, shared;
    uint64_t places[NUM_PLACES];
} sums;

/* Of transfers that run one after the other. */
typedef struct traffic {
    uint64_t tensor[3], context[2], experts[2]; /* forward, backward; tensor's beside products */
    uint64_t tensor_size;
} traffic;

typedef struct passes {
    sums forward, input, weight, again;
} passes;

/* ---- operations ---- */

static void add(sums *self, const pst_step_op *op, int place, uint64_t ns)
{
    uint64_t *sum = op->kind == PST_STEP_MEMORY ? &self->memory : &self->products;
    *sum = psti_plus(*sum, ns);
    self->places[place] = psti_plus(self->places[place], ns);
    if (strcmp(op->name, "attention.core") == 0)
        self->attention = psti_plus(self->attention, ns);
    if (strncmp(op->name, "shared.", 7) == 0)
        self->shared = psti_plus(self->shared, ns);
}

static bool is_expert(const pst_step_op *op)
{
    return strncmp(op->name, "expert.", 7) == 0;
}

static passes passes_of(const psti_step *step, const pst_step_work *work)
{
    passes of = {.forward = {.products = 0}};
    int place = CORE; /* of a layer without experts everything */
    for (uint32_t i = 0; i < work->num_ops; i++)
        place = is_expert(&work->ops[i]) ? BEFORE : place;
    for (uint32_t i = 0; i < work->num_ops; i++) {
        const pst_step_op *op = &work->ops[i];
        if (place == BEFORE && is_expert(op))
            place = CORE;
        else if (place == CORE && strcmp(op->name, "combine.permute") == 0)
            place = AFTER;
        const uint64_t forward = psti_step_op_ns(step, op, &op->forward, true);
        add(&of.forward, op, place, forward);
        add(&of.again, op, place, op->is_again ? forward : 0);
        add(&of.input, op, place, psti_step_op_ns(step, op, &op->input, false));
        add(&of.weight, op, place, psti_step_op_ns(step, op, &op->weight, false));
    }
    return of;
}

/* ---- transfers ---- */

static psti_visits visits_of(const psti_step *step, pst_step_part part)
{
    const uint64_t depths = step->run.mtp_layers;
    switch (part) {
    case PST_STEP_DENSE:
        return (psti_visits){.dense = 1};
    case PST_STEP_MOE:
        return (psti_visits){.moe = 1};
    case PST_STEP_FIRST:
        return (psti_visits){.embeddings = 1};
    default:
        return (psti_visits){.heads = 1 + depths, .embeddings = depths, .mtp = depths};
    }
}

static traffic traffic_of(const psti_step *step, const psti_transfers *transfers)
{
    traffic of = {.tensor_size = step->split.tensor};
    for (uint32_t i = 0; i < transfers->num_ops; i++) {
        const pst_estimate_op *op = &transfers->ops[i];
        const psti_counts *counts = &transfers->counts[i];
        const uint64_t ns = psti_step_transfer_ns(step, op);
        uint64_t *sum = of.experts;
        if (op->parallel == PST_PARALLEL_TENSOR)
            sum = of.tensor;
        if (op->parallel == PST_PARALLEL_CONTEXT)
            sum = of.context;
        sum[0] = psti_plus(sum[0], psti_times(counts->forward, ns));
        sum[1] = psti_plus(sum[1], psti_times(counts->backward - counts->beside, ns));
        if (op->parallel == PST_PARALLEL_TENSOR)
            sum[2] = psti_plus(sum[2], psti_times(counts->beside, ns));
    }
    return of;
}

/* ---- what is exposed ---- */

typedef struct exposure {
    uint64_t blocks;  /* of tensor and context parallel GPUs */
    uint64_t experts; /* of the experts' exchange */
    uint64_t hidden;
} exposure;

static uint64_t beyond(uint64_t ns, uint64_t hides)
{
    return ns > hides ? ns - hides : 0;
}

/* In as many pieces as there are GPUs: the first one has nothing to run beside. */
static uint64_t beside_products(const psti_step *step, uint64_t ns, uint64_t products,
                                uint64_t size)
{
    const uint64_t rest = beyond(ns, products), piece = psti_div_up(ns, size);
    if (!(step->config.overlaps & PST_OVERLAP_TENSOR))
        return ns;
    return rest > piece ? rest : piece;
}

static uint64_t exchange(const psti_step *step, uint64_t ns, const sums *pass)
{
    const uint64_t all = psti_plus(pass->products, pass->memory);
    if (step->run.overlaps_exchange)
        return beyond(ns, all);
    return step->config.overlaps & PST_OVERLAP_SHARED_EXPERTS ? beyond(ns, pass->shared) : ns;
}

static exposure forward_exposure(const psti_step *step, const traffic *of, const sums *forward)
{
    exposure self = {.experts = exchange(step, of->experts[0], forward)};
    self.blocks =
        psti_plus(beside_products(step, of->tensor[0], forward->products, of->tensor_size),
                  beyond(of->context[0], forward->attention));
    self.hidden = psti_minus(PSTI_SUM(of->tensor[0], of->context[0], of->experts[0]),
                             psti_plus(self.blocks, self.experts));
    return self;
}

static exposure backward_exposure(const psti_step *step, const traffic *of, const passes *all)
{
    exposure self = {.experts = exchange(step, of->experts[1], &all->input)};
    self.blocks = PSTI_SUM(
        beside_products(step, of->tensor[1], all->input.products, of->tensor_size),
        beyond(of->tensor[2], all->weight.products), beyond(of->context[1], all->input.attention));
    self.hidden = psti_minus(PSTI_SUM(of->tensor[1], of->tensor[2], of->context[1], of->experts[1]),
                             psti_plus(self.blocks, self.experts));
    return self;
}

/* ---- both together ---- */

static pst_step_pass pass_of(const sums *of, const exposure *exposed)
{
    return (pst_step_pass){.products_ns = of->products,
                           .memory_ns = of->memory,
                           .exposed_ns = psti_plus(exposed->blocks, exposed->experts),
                           .hidden_ns = exposed->hidden};
}

/* Attention stands before the experts, and half of their exchange; behind them the other half. */
static pst_times visit_of(const sums *of, const exposure *exposed, bool has_experts)
{
    const uint64_t half = exposed->experts / 2;
    if (!has_experts)
        return (pst_times){.core = PSTI_SUM(of->places[CORE], exposed->blocks, exposed->experts)};
    return (pst_times){
        .before = PSTI_SUM(of->places[BEFORE], exposed->blocks, exposed->experts - half),
        .core = of->places[CORE],
        .after = psti_plus(of->places[AFTER], half),
    };
}

static pst_times backwards(pst_times forwards)
{
    return (pst_times){forwards.after, forwards.core, forwards.before};
}

static uint64_t sum_of(const pst_step_pass *pass)
{
    return PSTI_SUM(pass->products_ns, pass->memory_ns, pass->exposed_ns);
}

/* What a backward runs again of its forward. A depth of multi-token prediction beside its layer has no
 * transfers among it. */
static pst_step_pass again_of(const psti_step *step, pst_step_part part, const sums *again)
{
    psti_transfers transfers = {.num_ops = 0};
    if (part == PST_STEP_DENSE || part == PST_STEP_MOE)
        psti_transfers_again(&step->run, part == PST_STEP_MOE, &transfers);
    const traffic of = traffic_of(step, &transfers);
    const exposure exposed = forward_exposure(step, &of, again);
    return pass_of(again, &exposed);
}

pst_status psti_step_times_of(const psti_step *step, pst_step_part part, pst_step_times *times_out)
{
    static const exposure none = {0};
    const bool has_experts = part == PST_STEP_MOE;
    pst_step_work work;
    psti_transfers transfers;
    PSTI_TRY(psti_step_work_of(step, part, &work));
    psti_transfers_of(&step->run, visits_of(step, part), &transfers);
    const passes of = passes_of(step, &work);
    const traffic sent = traffic_of(step, &transfers);
    const exposure forward = forward_exposure(step, &sent, &of.forward);
    const exposure input = backward_exposure(step, &sent, &of);
    pst_step_times times = {
        .forward = pass_of(&of.forward, &forward),
        .input = pass_of(&of.input, &input),
        .weight = pass_of(&of.weight, &none),
        .again = again_of(step, part, &of.again),
        .visit_forward = visit_of(&of.forward, &forward, has_experts),
        .visit_input = backwards(visit_of(&of.input, &input, has_experts)),
        .visit_weight = backwards(visit_of(&of.weight, &none, has_experts)),
    };
    PSTI_CHECK(PSTI_SUM(sum_of(&times.forward), times.forward.hidden_ns, sum_of(&times.input),
                        times.input.hidden_ns, sum_of(&times.weight), sum_of(&times.again),
                        times.again.hidden_ns) != PSTI_TOO_MUCH,
               PST_E_INVALID, "run: nanoseconds of a micro-batch exceed 64 bits");
    *times_out = times;
    return PST_OK;
}

pst_status pst_step_get_times_sized(const pst_step_config *config, pst_step_part part,
                                    pst_step_times *times_out, size_t times_bytes)
{
    psti_step step;
    pst_step_times times = {.visit_forward = {0}};
    PSTI_TRY(psti_step_open(config, true, &step));
    PSTI_CHECK(times_out, PST_E_INVALID, "times_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_step_times, times_bytes));
    PSTI_TRY(psti_step_check_part(part));
    PSTI_TRY(psti_step_times_of(&step, part, &times));
    times.visit_input.before += psti_step_add_pass(&times.input, &times.again, 1);
    memcpy(times_out, &times, times_bytes);
    return PST_OK;
}

pst_status pst_step_get_p2p(const pst_step_config *config, uint64_t *p2p_ns_out)
{
    psti_step step;
    PSTI_TRY(psti_step_open(config, true, &step));
    PSTI_CHECK(p2p_ns_out, PST_E_INVALID, "p2p_ns_out is NULL");
    *p2p_ns_out = psti_step_p2p_ns(&step);
    return PST_OK;
}
