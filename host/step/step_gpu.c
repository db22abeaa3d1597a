/* The table of GPUs. docs/estimator.md has its sources. */
#include <string.h>

#include "host/base/structs.h"
#include "host/step/step.h"

#define GIGA UINT64_C(1000000000)

/* MiB, rates in 10^9 a second, shares per mille; what all have in common stands here. */
#define GPU(gpu, mib, bf16, fp8, fp32, memory, link, network, host, gpus, of_bf16, of_fp8,  \
            of_experts, of_forward, of_backward, of_memory, of_link)                        \
    {                                                                                       \
        .name = (gpu), .memory_bytes = UINT64_C(mib) << 20, .flops = (bf16)*GIGA,           \
        .fp8_flops = (fp8)*GIGA, .fp32_flops = (fp32)*GIGA, .memory_rate = (memory)*GIGA,   \
        .link_rate = (link)*GIGA, .network_rate = (network)*GIGA, .host_rate = (host)*GIGA, \
        .kernel_ns = 4000, .link_ns = 3400, .network_ns = 6000, .node_gpus = (gpus),        \
        .product_per_mille = (of_bf16), .fp8_per_mille = (of_fp8),                          \
        .expert_per_mille = (of_experts), .attention_forward_per_mille = (of_forward),      \
        .attention_backward_per_mille = (of_backward), .memory_per_mille = (of_memory),     \
        .link_per_mille = (of_link), .network_per_mille = 730, .host_per_mille = 880        \
    }

/* In the order of their release. */
static const pst_gpu table[] = {
    GPU("a100", 81920, 312000, 0, 19500, 2000, 300, 25, 31, 8, 769, 769, 704, 508, 401, 910, 780),
    GPU("h100", 81559, 989000, 1979000, 67000, 3350, 450, 50, 63, 8, 711, 627, 651, 597, 471, 910,
        820),
    GPU("h200", 143771, 989000, 1979000, 67000, 4800, 450, 50, 63, 8, 711, 650, 651, 597, 471, 910,
        820),
    GPU("b200", 183359, 2250000, 4500000, 80000, 8000, 900, 50, 63, 8, 687, 675, 426, 353, 347, 666,
        820),
    GPU("b300", 275040, 2250000, 4500000, 80000, 8000, 900, 100, 63, 8, 696, 659, 431, 353, 347,
        666, 820),
    GPU("gb200", 189471, 2500000, 5000000, 80000, 8000, 900, 50, 450, 72, 645, 640, 400, 353, 347,
        666, 820),
};

enum { NUM_GPUS = sizeof(table) / sizeof(table[0]) };

const char *pst_gpu_name(uint32_t i)
{
    return i < NUM_GPUS ? table[i].name : NULL;
}

pst_status pst_gpu_find_sized(const char *name, pst_gpu *gpu_out, size_t gpu_bytes)
{
    char known[128] = "";
    PSTI_CHECK(name && gpu_out, PST_E_INVALID, "name or gpu_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_gpu, gpu_bytes));
    for (uint32_t i = 0; i < NUM_GPUS; i++) {
        if (strcmp(name, table[i].name) == 0) {
            pst_gpu gpu = table[i];
            gpu.struct_size = gpu_bytes;
            memcpy(gpu_out, &gpu, gpu_bytes);
            return PST_OK;
        }
        strncat(known, i == 0 ? "" : ", ", sizeof(known) - strlen(known) - 1);
        strncat(known, table[i].name, sizeof(known) - strlen(known) - 1);
    }
    return PSTI_FAIL(PST_E_INVALID, "name %.64s: allowed are %s", name, known);
}
