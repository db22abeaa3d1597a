/* The stage that needs most. */
#include "tools/estimate/estimate.h"

uint64_t estimate_wire_bytes(const pst_estimate_traffic *traffic)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < traffic->num_ops; i++)
        if (traffic->ops[i].transfer != PST_TRANSFER_RECEIVE &&
            __builtin_add_overflow(bytes, traffic->ops[i].wire_bytes, &bytes))
            return UINT64_MAX;
    return bytes;
}

pst_status estimate_peak_of(const pst_estimate_config *config, uint64_t overhead_bytes,
                            estimate_peak *peak_out)
{
    const uint64_t num_stages = config->pipeline_parallel ? config->pipeline_parallel : 1;
    estimate_peak peak = {.stage = 0};
    for (uint64_t stage = 0; stage < num_stages; stage++) {
        pst_estimate_memory memory;
        pst_estimate_traffic traffic;
        uint64_t bytes = 0;
        TOOL_TRY(pst_estimate_get_memory(config, stage, NULL, &memory));
        TOOL_TRY(pst_estimate_get_traffic(config, stage, &traffic));
        const uint64_t wire_bytes = estimate_wire_bytes(&traffic);
        if (__builtin_add_overflow(memory.peak_bytes, overhead_bytes, &bytes))
            bytes = UINT64_MAX;
        if (stage == 0 || bytes > peak.bytes) {
            peak.stage = stage;
            peak.bytes = bytes;
        }
        peak.wire_bytes = wire_bytes > peak.wire_bytes ? wire_bytes : peak.wire_bytes;
    }
    *peak_out = peak;
    return PST_OK;
}
