/* What a GPU holds beside torch's tensors. */
#include "host/estimate/estimate.h"

#define MIB (UINT64_C(1) << 20)

/* Measured by others: a context on an H100 with what torch loads, and what an all-to-all of 8 of them adds
 * (github.com/NVIDIA/nccl/issues/1685: 1.06 GB before the first one, 4.34 GB after it); a group of two A100,
 * and of more (issues/964: 544 and 688 MB). */
enum { CONTEXT_MIB = 1011, ALL_TO_ALL_MIB = 3128, PAIR_MIB = 519, GROUP_MIB = 656 };

pst_status pst_estimate_get_reserve(const pst_estimate_config *given, uint64_t *bytes_out)
{
    static const pst_parallel kinds[] = {PST_PARALLEL_TENSOR,  PST_PARALLEL_CONTEXT,
                                         PST_PARALLEL_REPLICA, PST_PARALLEL_PIPELINE,
                                         PST_PARALLEL_EXPERT,  PST_PARALLEL_EXPERT_REPLICA};
    pst_estimate_config config;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(bytes_out, PST_E_INVALID, "bytes_out is NULL");
    uint64_t mib = CONTEXT_MIB;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i] >= PST_PARALLEL_EXPERT && config.num_experts == 0)
            continue;
        const uint64_t size = psti_group_of(&config, kinds[i], 0).size;
        if (size > 1)
            mib += kinds[i] == PST_PARALLEL_EXPERT ? ALL_TO_ALL_MIB
                   : size == 2                     ? PAIR_MIB
                                                   : GROUP_MIB;
    }
    *bytes_out = mib * MIB;
    return PST_OK;
}
