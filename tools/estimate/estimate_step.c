/* How long a step takes, by the library's model. */
#include "tools/estimate/estimate_report.h"

uint32_t estimate_overlaps(const estimate_options *options)
{
    return (options->overlaps_tensor ? PST_OVERLAP_TENSOR : 0) |
           (options->overlaps_gradients ? PST_OVERLAP_GRADIENTS : 0) |
           (options->overlaps_params ? PST_OVERLAP_PARAMS : 0) |
           (options->overlaps_shared_experts ? PST_OVERLAP_SHARED_EXPERTS : 0);
}

pst_status estimate_predict(const estimate_options *options, const pst_estimate_config *config,
                            pst_step_prediction *prediction_out)
{
    pst_step_config step = PST_STEP_CONFIG_INIT;
    step.run = config;
    step.gpu = &options->gpu;
    step.overlaps = estimate_overlaps(options);
    return pst_step_predict(&step, prediction_out, NULL);
}

int estimate_put_step(const estimate_options *options, json_t **tree)
{
    pst_step_prediction step;
    if (options->gpu_name == NULL) {
        json_put(tree, "step", json_null());
        return TOOL_OK;
    }
    TOOL_PST(estimate_predict(options, &options->config, &step));
    const pst_step_stage *of = &step.of_busiest;
    const double seconds = (double)step.step_ns * 1e-9 * (double)options->config.world_size;
    json_t *object = json_object();
    json_put_text(&object, "gpu", options->gpu_name);
    JSON_PUT(&object, {"step_ns", step.step_ns}, {"span_ns", step.span_ns}, {"tokens", step.tokens},
             {"tokens_per_second",
              seconds > 0.0 ? (uint64_t)((double)step.tokens / seconds) : UINT64_MAX},
             {"model_flops", step.model_flops}, {"mfu_permille", step.mfu_per_mille},
             {"stage", step.busiest}, {"products_ns", of->products_ns},
             {"memory_ns", of->memory_ns}, {"exposed_ns", of->exposed_ns},
             {"hidden_ns", of->hidden_ns}, {"bubble_ns", of->bubble_ns},
             {"gradients_ns", of->gradients_ns}, {"params_ns", of->params_ns},
             {"hidden_ends_ns", of->hidden_ends_ns}, {"optimizer_ns", of->optimizer_ns});
    json_put(tree, "step", object);
    return TOOL_OK;
}
