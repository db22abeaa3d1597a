/* Opens a configuration of a step: checks it and fills in what its zeros stand for. */
#include <inttypes.h>

#include "host/base/structs.h"
#include "host/step/step.h"

/* Rates and times beyond which sums of a step could not be told apart from nonsense. */
#define MOST_RATE (UINT64_C(1) << 60)
#define MOST_NS UINT64_C(1000000000)

static pst_status check_rate(const char *name, uint64_t rate)
{
    PSTI_CHECK(rate != 0 && rate <= MOST_RATE, PST_E_INVALID,
               "gpu.%s %" PRIu64 ": allowed are 1 to %" PRIu64, name, rate, MOST_RATE);
    return PST_OK;
}

static pst_status check_share(const char *name, uint32_t per_mille)
{
    PSTI_CHECK(per_mille != 0 && per_mille <= 1000, PST_E_INVALID,
               "gpu.%s %" PRIu32 ": allowed are 1 to 1000", name, per_mille);
    return PST_OK;
}

static pst_status check_time(const char *name, uint64_t ns)
{
    PSTI_CHECK(ns <= MOST_NS, PST_E_INVALID, "gpu.%s %" PRIu64 ": at most %" PRIu64, name, ns,
               MOST_NS);
    return PST_OK;
}

#define CHECK_RATE(gpu, field) PSTI_TRY(check_rate(#field, (gpu)->field))
#define CHECK_SHARE(gpu, field) PSTI_TRY(check_share(#field, (gpu)->field))
#define CHECK_TIME(gpu, field) PSTI_TRY(check_time(#field, (gpu)->field))

static pst_status check_gpu(const psti_step *step)
{
    const pst_gpu *gpu = &step->gpu;
    CHECK_RATE(gpu, flops);
    CHECK_RATE(gpu, fp32_flops);
    CHECK_RATE(gpu, memory_rate);
    CHECK_RATE(gpu, link_rate);
    CHECK_RATE(gpu, network_rate);
    CHECK_RATE(gpu, host_rate);
    if (gpu->fp8_flops != 0)
        CHECK_RATE(gpu, fp8_flops);
    CHECK_SHARE(gpu, product_per_mille);
    CHECK_SHARE(gpu, fp8_per_mille);
    CHECK_SHARE(gpu, expert_per_mille);
    CHECK_SHARE(gpu, attention_forward_per_mille);
    CHECK_SHARE(gpu, attention_backward_per_mille);
    CHECK_SHARE(gpu, memory_per_mille);
    CHECK_SHARE(gpu, link_per_mille);
    CHECK_SHARE(gpu, network_per_mille);
    CHECK_SHARE(gpu, host_per_mille);
    CHECK_TIME(gpu, kernel_ns);
    CHECK_TIME(gpu, link_ns);
    CHECK_TIME(gpu, network_ns);
    PSTI_CHECK(gpu->node_gpus != 0, PST_E_INVALID, "gpu.node_gpus 0: at least 1");
    PSTI_CHECK(step->run.fp8 == PST_FP8_NONE || gpu->fp8_flops != 0, PST_E_INVALID,
               "gpu.fp8_flops 0: the run has products in fp8");
    return PST_OK;
}

static pst_status check_schedule(const psti_step *step)
{
    const pst_schedule_kind kind = step->config.schedule;
    const bool is_known = kind == PST_SCHEDULE_1F1B || kind == PST_SCHEDULE_GPIPE ||
                          kind == PST_SCHEDULE_GPIPE_REVERSED || kind == PST_SCHEDULE_ZB_H1 ||
                          kind == PST_SCHEDULE_ZB_H2;
    PSTI_CHECK(is_known, PST_E_UNSUPPORTED,
               "schedule %d: allowed are 1F1B (interleaved with virtual_stages), GPIPE, "
               "GPIPE_REVERSED, ZB_H1 and ZB_H2",
               (int)kind);
    PSTI_CHECK(kind == PST_SCHEDULE_1F1B || step->run.virtual_stages == 1, PST_E_UNSUPPORTED,
               "schedule %d: virtual_stages is %" PRIu64 ": allowed is 1", (int)kind,
               step->run.virtual_stages);
    return PST_OK;
}

pst_status psti_step_open(const pst_step_config *given, bool needs_gpu, psti_step *step_out)
{
    PSTI_TAKE(pst_step_config, config, given);
    psti_step step = {.config = config};
    PSTI_CHECK(config.run, PST_E_INVALID, "run is NULL");
    PSTI_TRY(psti_estimate_open(config.run, &step.run));
    PSTI_CHECK((config.overlaps & ~PST_OVERLAP_ALL) == 0, PST_E_INVALID,
               "overlaps 0x%x: allowed are bits of 0x%x", config.overlaps, PST_OVERLAP_ALL);
    PSTI_TRY(check_schedule(&step));
    if (needs_gpu) {
        PSTI_CHECK(config.gpu, PST_E_INVALID, "gpu is NULL");
        PSTI_TAKE(pst_gpu, gpu, config.gpu);
        step.gpu = gpu;
        PSTI_TRY(check_gpu(&step));
    }
    step.split = psti_split_of(&step.run);
    step.tokens = psti_tokens(&step.run, &step.split);
    step.local = psti_local_tokens(&step.run, &step.split);
    step.width = psti_element_bytes(&step.run);
    *step_out = step;
    return PST_OK;
}

pst_status psti_step_check_part(pst_step_part part)
{
    PSTI_CHECK(part >= PST_STEP_DENSE && part < PST_NUM_STEP_PARTS, PST_E_INVALID,
               "part %d: allowed are 0 to %d", (int)part, PST_NUM_STEP_PARTS - 1);
    return PST_OK;
}
