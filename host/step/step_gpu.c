/* The table of GPUs. docs/estimator.md has its sources. */
#include <string.h>

#include "host/base/structs.h"
#include "host/step/step.h"

#define TERA UINT64_C(1000000000000)
#define GIGA UINT64_C(1000000000)

#define LATENCIES .kernel_ns = 4000, .link_ns = 3400, .network_ns = 6000

/* In the order of their release. */
static const pst_gpu table[] = {
    {
        .name = "a100",
        .flops = 312 * TERA,
        .fp32_flops = 19500 * GIGA,
        .memory_rate = 2000 * GIGA,
        .link_rate = 300 * GIGA,
        .network_rate = 25 * GIGA,
        .host_rate = 31 * GIGA,
        LATENCIES,
        .node_gpus = 8,
        .product_per_mille = 769,
        .fp8_per_mille = 769,
        .expert_per_mille = 704,
        .attention_forward_per_mille = 508,
        .attention_backward_per_mille = 401,
        .memory_per_mille = 910,
        .link_per_mille = 780,
        .network_per_mille = 730,
        .host_per_mille = 880,
    },
    {
        .name = "h100",
        .flops = 989 * TERA,
        .fp8_flops = 1979 * TERA,
        .fp32_flops = 67 * TERA,
        .memory_rate = 3350 * GIGA,
        .link_rate = 450 * GIGA,
        .network_rate = 50 * GIGA,
        .host_rate = 63 * GIGA,
        LATENCIES,
        .node_gpus = 8,
        .product_per_mille = 711,
        .fp8_per_mille = 627,
        .expert_per_mille = 651,
        .attention_forward_per_mille = 597,
        .attention_backward_per_mille = 471,
        .memory_per_mille = 910,
        .link_per_mille = 820,
        .network_per_mille = 730,
        .host_per_mille = 880,
    },
    {
        .name = "h200",
        .flops = 989 * TERA,
        .fp8_flops = 1979 * TERA,
        .fp32_flops = 67 * TERA,
        .memory_rate = 4800 * GIGA,
        .link_rate = 450 * GIGA,
        .network_rate = 50 * GIGA,
        .host_rate = 63 * GIGA,
        LATENCIES,
        .node_gpus = 8,
        .product_per_mille = 711,
        .fp8_per_mille = 650,
        .expert_per_mille = 651,
        .attention_forward_per_mille = 597,
        .attention_backward_per_mille = 471,
        .memory_per_mille = 910,
        .link_per_mille = 820,
        .network_per_mille = 730,
        .host_per_mille = 880,
    },
    {
        .name = "b200",
        .flops = 2250 * TERA,
        .fp8_flops = 4500 * TERA,
        .fp32_flops = 80 * TERA,
        .memory_rate = 8000 * GIGA,
        .link_rate = 900 * GIGA,
        .network_rate = 50 * GIGA,
        .host_rate = 63 * GIGA,
        LATENCIES,
        .node_gpus = 8,
        .product_per_mille = 687,
        .fp8_per_mille = 675,
        .expert_per_mille = 426,
        .attention_forward_per_mille = 353,
        .attention_backward_per_mille = 347,
        .memory_per_mille = 666,
        .link_per_mille = 820,
        .network_per_mille = 730,
        .host_per_mille = 880,
    },
    {
        .name = "b300",
        .flops = 2250 * TERA,
        .fp8_flops = 4500 * TERA,
        .fp32_flops = 80 * TERA,
        .memory_rate = 8000 * GIGA,
        .link_rate = 900 * GIGA,
        .network_rate = 100 * GIGA,
        .host_rate = 63 * GIGA,
        LATENCIES,
        .node_gpus = 8,
        .product_per_mille = 696,
        .fp8_per_mille = 659,
        .expert_per_mille = 431,
        .attention_forward_per_mille = 353,
        .attention_backward_per_mille = 347,
        .memory_per_mille = 666,
        .link_per_mille = 820,
        .network_per_mille = 730,
        .host_per_mille = 880,
    },
    {
        .name = "gb200",
        .flops = 2500 * TERA,
        .fp8_flops = 5000 * TERA,
        .fp32_flops = 80 * TERA,
        .memory_rate = 8000 * GIGA,
        .link_rate = 900 * GIGA,
        .network_rate = 50 * GIGA,
        .host_rate = 450 * GIGA,
        LATENCIES,
        .node_gpus = 72,
        .product_per_mille = 645,
        .fp8_per_mille = 640,
        .expert_per_mille = 400,
        .attention_forward_per_mille = 353,
        .attention_backward_per_mille = 347,
        .memory_per_mille = 666,
        .link_per_mille = 820,
        .network_per_mille = 730,
        .host_per_mille = 880,
    },
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
