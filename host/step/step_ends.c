/* What comes once per step: gradients are reduced, the optimizer runs, parameters are gathered. */
#include "host/step/step.h"

#include <string.h>

/* Megatron-LM's buckets have 40 million parameters, or a million for each GPU that shares them
 * (distributed_data_parallel_config.py), but without overlap there is one. */
#define BUCKET_PARAMS UINT64_C(40000000)
#define BUCKET_PARAMS_OF_GPU UINT64_C(1000000)

static void add_transfers(const psti_step *step, uint64_t stage, const pst_estimate_states *states,
                          psti_step_ends *ends)
{
    psti_transfers transfers;
    psti_transfers_of_step(&step->run, stage, states, &transfers);
    for (uint32_t i = 0; i < transfers.num_ops; i++) {
        const pst_estimate_op *op = &transfers.ops[i];
        const uint64_t ns = psti_times(op->count, psti_step_transfer_ns(step, op));
        uint64_t *sum = &ends->reduce_ns;
        if (op->transfer == PST_TRANSFER_ALL_GATHER)
            sum = &ends->gather_ns;
        else if (op->parallel == PST_PARALLEL_EMBEDDING)
            sum = &ends->embedding_ns; /* behind all others: nothing hides it */
        *sum = psti_plus(*sum, ns);
    }
}

/* Gradients are cleared and their norm is taken; of its share the optimizer reads gradients, reads and
 * writes its states, and writes weights. What is in host memory is not counted. */
static uint64_t optimizer_ns(const psti_step *step, const pst_estimate_states *states)
{
    const pst_estimate_config *run = &step->run;
    const uint64_t owned = psti_div_up(states->optimizer_bytes, run->optimizer_width);
    const uint64_t bytes =
        PSTI_SUM(psti_times(2, states->gradient_bytes), psti_times(2, states->optimizer_bytes),
                 psti_times(owned, psti_plus(run->gradient_width, step->width)));
    return psti_plus(psti_step_ns(bytes, step->gpu.memory_rate, step->gpu.memory_per_mille),
                     step->gpu.kernel_ns);
}

pst_status psti_step_ends_of(const psti_step *step, uint64_t stage, psti_step_ends *ends_out)
{
    const uint64_t of_gpus =
        psti_times(BUCKET_PARAMS_OF_GPU, psti_estimate_dense_group(&step->run));
    const uint64_t bucket = of_gpus > BUCKET_PARAMS ? of_gpus : BUCKET_PARAMS;
    pst_estimate_states states;
    psti_step_ends ends = {.reduce_ns = 0};
    PSTI_TRY(pst_estimate_get_states(&step->run, stage, &states));
    ends.num_buckets = psti_div_up(states.params, bucket);
    ends.optimizer_ns = optimizer_ns(step, &states);
    add_transfers(step, stage, &states, &ends);
    PSTI_CHECK(PSTI_SUM(ends.reduce_ns, ends.gather_ns, ends.embedding_ns, ends.optimizer_ns) !=
                   PSTI_TOO_MUCH,
               PST_E_INVALID, "run: nanoseconds of gradients exceed 64 bits");
    *ends_out = ends;
    return PST_OK;
}
