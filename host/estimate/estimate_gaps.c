/* What an estimate leaves out of a run, as data: why it is a lower bound, and by how much at most. */
#include <string.h>

#include "host/base/structs.h"
#include "host/estimate/estimate.h"

typedef struct gaps {
    const pst_estimate_config *config;
    psti_split split;
    const pst_estimate_memory *memory;
    pst_estimate_gaps to;
} gaps;

static void put(gaps *self, const char *field, const char *reason, uint64_t bytes)
{
    if (bytes != 0)
        self->to.gaps[self->to.num_gaps++] = (pst_estimate_gap){field, reason, bytes};
}

static void put_routing(gaps *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t layers = self->memory->buffered_moe_layers;
    if (config->num_experts == 0 || config->moe_rows != PST_MOE_BALANCED)
        return;
    const uint64_t even = psti_moe_rows(config, &self->split, PST_MOE_BALANCED);
    const uint64_t worst = psti_moe_rows(config, &self->split, PST_MOE_WORST);
    put(self, "moe_rows", "rows beyond those of an even router",
        PSTI_PRODUCT(layers, psti_minus(worst, psti_min(worst, even)), psti_row_bytes(config)));
}

/* What is sent lies beside the rows until it has arrived, and what comes back likewise. */
static void put_exchange(gaps *self)
{
    const pst_estimate_config *config = self->config;
    if (config->num_experts == 0 || self->memory->live_moe_layers == 0 ||
        self->split.experts * self->split.expert_tensor == 1)
        return;
    put(self, "expert_parallel", "buffers of an exchange beside the experts' rows",
        PSTI_PRODUCT(2, psti_element_bytes(config), psti_sent_rows(config, &self->split),
                     psti_routed_size(config)));
}

static void put_shared_heads(gaps *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t heads = PSTI_SUM(config->num_heads, config->num_kv_heads, config->num_kv_heads);
    if (config->kv_rank != 0 || config->num_kv_heads >= config->tensor_parallel)
        return;
    put(self, "num_kv_heads", "gathered queries, keys and values that a view keeps",
        PSTI_PRODUCT(self->memory->live_layers, psti_element_bytes(config),
                     psti_tokens(config, &self->split), psti_times(heads, config->head_size)));
}

static void put_overlap(gaps *self)
{
    const pst_estimate_config *config = self->config;
    if (!config->overlaps_exchange || config->virtual_stages == 1 ||
        self->memory->states.num_moe_layers == 0)
        return;
    put(self, "overlaps_exchange", "a layer of the forward that runs beside a backward",
        psti_layer_bytes(config, true));
}

pst_status pst_estimate_get_gaps_sized(const pst_estimate_config *given, uint64_t stage,
                                       pst_estimate_gaps *gaps_out, size_t gaps_bytes)
{
    pst_estimate_config config;
    pst_estimate_memory memory;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(gaps_out, PST_E_INVALID, "gaps_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_estimate_gaps, gaps_bytes));
    PSTI_TRY(pst_estimate_get_memory(&config, stage, NULL, &memory));
    gaps self = {.config = &config, .split = psti_split_of(&config), .memory = &memory};
    put_routing(&self);
    put_exchange(&self);
    put_shared_heads(&self);
    put_overlap(&self);
    memcpy(gaps_out, &self.to, gaps_bytes);
    return PST_OK;
}
