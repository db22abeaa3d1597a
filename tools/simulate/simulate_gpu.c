/* --gpu: what the layers of a launch line take on a GPU, by the library's model of a step. */
#include "tools/common/gpu.h"
#include "tools/simulate/simulate_command.h"

static bool has_part(const simulate_config *config, pst_step_part part)
{
    const uint64_t num_layers = config->estimate.config.num_layers;
    const uint32_t num_moe = config->moe_before[num_layers];
    return part == PST_STEP_DENSE ? num_moe < num_layers : part != PST_STEP_MOE || num_moe > 0;
}

int simulate_read_gpu(const char *text, const simulate_config *config, simulate_gpu *self)
{
    const estimate_options *estimate = &config->estimate;
    pst_step_config step = PST_STEP_CONFIG_INIT;
    self->config = config;
    TOOL_TRY(gpu_read("gpu", text, &self->gpu));
    if (estimate->gpu.node_gpus != 0) /* the launch line says it */
        self->gpu.node_gpus = estimate->gpu.node_gpus;
    step.run = &estimate->config;
    step.gpu = &self->gpu;
    step.overlaps = estimate_overlaps(estimate);
    for (int part = 0; part < PST_NUM_STEP_PARTS; part++)
        if (has_part(config, (pst_step_part)part))
            TOOL_PST(pst_step_get_times(&step, (pst_step_part)part, &self->times[part]));
    return tool_status(pst_step_get_p2p(&step, &self->p2p_ns));
}

int simulate_times_of_gpu(const void *user, const simulate_visit *layer, simulate_times *times_out)
{
    const simulate_gpu *self = user;
    const uint32_t *moe_before = self->config->moe_before;
    const uint64_t number = layer->model_layer;
    const pst_step_times *of =
        &self->times[moe_before[number + 1] > moe_before[number] ? PST_STEP_MOE : PST_STEP_DENSE];
    const pst_step_times *first = &self->times[PST_STEP_FIRST];
    const pst_step_times *last = &self->times[PST_STEP_LAST];
    *times_out = (simulate_times){.forward = of->visit_forward,
                                  .backward = of->visit_input,
                                  .weight = of->visit_weight,
                                  .recompute_ns = of->visit_forward.before +
                                                  of->visit_forward.core + of->visit_forward.after};
    if (number == 0) {
        times_out->forward.before += first->visit_forward.core;
        times_out->backward.after += first->visit_input.core;
        times_out->weight.after += first->visit_weight.core;
    }
    if (number + 1 == self->config->estimate.config.num_layers) {
        times_out->forward.after += last->visit_forward.core;
        times_out->backward.before += last->visit_input.core;
        times_out->weight.before += last->visit_weight.core;
    }
    return TOOL_OK;
}

static uint64_t reached(uint64_t rate, uint32_t per_mille)
{
    const uint64_t part = rate / 1000 * per_mille + rate % 1000 * per_mille / 1000;
    return part > 0 ? part : 1;
}

void simulate_rates_of_gpu(const simulate_gpu *self, pst_simulated_rates *rates_out)
{
    const pst_gpu *gpu = &self->gpu;
    const uint64_t memory = reached(gpu->memory_rate, gpu->memory_per_mille);
    const uint64_t host = reached(gpu->host_rate, gpu->host_per_mille);
    *rates_out = (pst_simulated_rates){
        .stash_fixed_ns = gpu->kernel_ns,
        .restore_fixed_ns = gpu->kernel_ns,
        .demote_fixed_ns = gpu->kernel_ns,
        .promote_fixed_ns = gpu->kernel_ns,
        .stash_rate = memory > 1 ? memory / 2 : 1,
        .restore_rate = memory > 1 ? memory / 2 : 1,
        .out_rate = host,
        .in_rate = host,
    };
}
