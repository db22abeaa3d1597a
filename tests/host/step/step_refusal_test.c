/* Each field of a GPU past its limits, and out parameters that are NULL. */
#include <stdio.h>

#include "host/step/step.h"
#include "tests/host/estimate/estimate_models.h"

#define REFUSES(call, said)                \
    do {                                   \
        CHECK_STATUS(call, PST_E_INVALID); \
        CHECK_SAID(said);                  \
    } while (0)

PST_TEST(StepRefusal, EachFieldOfTheGpu)
{
    const pst_estimate_config run = psti_model("llama2_7b");
    pst_gpu gpu = PST_GPU_INIT;
    pst_step_config config = PST_STEP_CONFIG_INIT;
    pst_step_prediction prediction;
    config.run = &run;
    config.gpu = &gpu;
    CHECK_OK(pst_gpu_find("h100", &gpu));
    const pst_gpu right = gpu;
    CHECK_OK(pst_step_predict(&config, &prediction, NULL));
#define WITH(field, value, said)                                                            \
    do {                                                                                    \
        gpu.field = value;                                                                  \
        REFUSES(pst_step_predict(&config, &prediction, NULL), "gpu." #field " " said ": "); \
        gpu = right;                                                                        \
    } while (0)
#define RATE(field)                                                  \
    do {                                                             \
        WITH(field, 0, "0");                                         \
        WITH(field, (UINT64_C(1) << 60) + 1, "1152921504606846977"); \
    } while (0)
#define SHARE(field)               \
    do {                           \
        WITH(field, 0, "0");       \
        WITH(field, 1001, "1001"); \
    } while (0)
    RATE(flops);
    RATE(fp32_flops);
    RATE(memory_rate);
    RATE(link_rate);
    RATE(network_rate);
    RATE(host_rate);
    SHARE(product_per_mille);
    SHARE(fp8_per_mille);
    SHARE(expert_per_mille);
    SHARE(attention_forward_per_mille);
    SHARE(attention_backward_per_mille);
    SHARE(memory_per_mille);
    SHARE(link_per_mille);
    SHARE(network_per_mille);
    SHARE(host_per_mille);
    WITH(kernel_ns, 1000000001, "1000000001");
    WITH(link_ns, 1000000001, "1000000001");
    WITH(network_ns, 1000000001, "1000000001");
    WITH(fp8_flops, (UINT64_C(1) << 60) + 1, "1152921504606846977");
    WITH(node_gpus, 0, "0");
}

PST_TEST(StepRefusal, OutParameters)
{
    const pst_estimate_config run = psti_model("llama2_7b");
    pst_gpu gpu = PST_GPU_INIT;
    pst_step_config config = PST_STEP_CONFIG_INIT;
    config.run = &run;
    config.gpu = &gpu;
    CHECK_OK(pst_gpu_find("h100", &gpu));
    REFUSES(pst_gpu_find(NULL, &gpu), "name or gpu_out is NULL");
    REFUSES(pst_gpu_find("h100", NULL), "name or gpu_out is NULL");
    REFUSES(pst_step_get_work(&config, PST_STEP_DENSE, NULL), "work_out is NULL");
    REFUSES(pst_step_get_times(&config, PST_STEP_DENSE, NULL), "times_out is NULL");
    REFUSES(pst_step_get_p2p(&config, NULL), "p2p_ns_out is NULL");
    REFUSES(pst_step_predict(&config, NULL, NULL), "prediction_out is NULL");
}
