/* Saved tensors that go to host memory and come back, as Megatron-LM's fine-grained activation offloading
 * has them (fine_grained_activation_offload.py): by parts of a layer, each of which is sent when its
 * forward is done and fetched when the backward of the part behind it begins. The last layer before a
 * backward stays. */
#include "host/estimate/estimate.h"

#include <string.h>

#define MIN_ELEMENTS ((uint64_t)1 << 20) /* min_offloaded_tensor_size */

/* Where norms are apart from the matrices behind them. */
typedef enum norms { ANY, APART, TOGETHER } norms;

static const struct {
    const char *tensor;
    uint32_t part;
    norms norms;
} parts[] = {
    {"norm1.in", PST_OFFLOAD_ATTENTION_NORM, APART},
    {"norm1.in", PST_OFFLOAD_QKV, TOGETHER},
    {"qkv.in", PST_OFFLOAD_QKV, ANY},
    {"q_down.out", PST_OFFLOAD_QKV, ANY},
    {"q_up.in", PST_OFFLOAD_QKV, ANY},
    {"kv_down.out", PST_OFFLOAD_QKV, ANY},
    {"kv_up.in", PST_OFFLOAD_QKV, ANY},
    {"q", PST_OFFLOAD_CORE, ANY},
    {"k", PST_OFFLOAD_CORE, ANY},
    {"v", PST_OFFLOAD_CORE, ANY},
    {"softmax.out", PST_OFFLOAD_CORE, ANY},
    {"softmax.dropped", PST_OFFLOAD_CORE, ANY},
    {"attention.out", PST_OFFLOAD_CORE, ANY},
    {"proj.in", PST_OFFLOAD_PROJ, ANY},
    {"norm2.in", PST_OFFLOAD_MLP_NORM, APART},
    {"expert.fc1.in", PST_OFFLOAD_EXPERT_FC1 | PST_OFFLOAD_EXPERTS, ANY},
    {"expert.fc1.out", PST_OFFLOAD_ACTIVATION | PST_OFFLOAD_EXPERTS, ANY},
    {"expert.activation.out", PST_OFFLOAD_EXPERTS, ANY},
    {"expert.fc2.in", PST_OFFLOAD_EXPERTS, ANY},
};

/* The bit of the part that offloads the tensor, or 0. */
static uint32_t part_of(const pst_estimate_config *config, const char *tensor, bool is_moe)
{
    const bool is_first = strcmp(tensor, "norm1.in") == 0;
    const norms has = (is_first ? config->kv_rank != 0 : is_moe) ? APART : TOGETHER;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const uint32_t bits = parts[i].part & config->offload_modules;
        if (bits != 0 && strcmp(tensor, parts[i].tensor) == 0 &&
            (parts[i].norms == ANY || parts[i].norms == has))
            return bits & (0 - bits);
    }
    return 0;
}

psti_offload psti_offload_of(const pst_estimate_config *config, bool is_moe)
{
    psti_offload sum = {0};
    uint64_t part_bytes[8] = {0};
    if (config->offload_modules == 0)
        return sum;
    const psti_ledger layer = psti_ledger_of(config, psti_split_of(config), is_moe);
    for (uint32_t i = 0; i < layer.num_tensors; i++) {
        const psti_kept *tensor = &layer.tensors[i];
        const uint32_t bit = part_of(config, tensor->name, is_moe);
        if (bit == 0 || tensor->bytes < psti_times(MIN_ELEMENTS, psti_element_bytes(config)))
            continue;
        uint64_t *part = &part_bytes[__builtin_ctz(bit)];
        *part = psti_plus(*part, tensor->bytes);
        sum.bytes = psti_plus(sum.bytes, tensor->bytes);
        sum.largest_part = *part > sum.largest_part ? *part : sum.largest_part;
    }
    return sum;
}
