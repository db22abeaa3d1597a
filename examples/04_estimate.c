/* Sizes a page pool for a training run before it starts: what every stage needs with static buffers
 * for the worst routing, and with pages. */
#include <pagestash/pagestash.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"

/* Mixtral 8x7B on 16 GPUs: 4 stages, 2 tensor and 2 expert parallel. */
static pst_estimate_config mixtral(void)
{
    pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;
    config.num_layers = 32;
    config.hidden_size = 4096;
    config.num_heads = 32;
    config.num_kv_heads = 8;
    config.vocab_size = 32000;
    config.norm = PST_NORM_RMS;
    config.is_gated = true;
    config.num_experts = 8;
    config.experts_per_token = 2;
    config.expert_ffn_size = 14336;
    config.world_size = 16;
    config.tensor_parallel = 2;
    config.pipeline_parallel = 4;
    config.expert_parallel = 2;
    config.expert_tensor_parallel = 1;
    config.sequence_parallel = true;
    config.distributed_optimizer = true;
    config.sequence_size = 4096;
    config.global_batch = 64;
    config.has_flash_attention = true;
    config.fuses_activation = true;
    return config;
}

int main(void)
{
    pst_estimate_config config = mixtral();
    uint64_t live_layers = 0;
    for (uint64_t stage = 0; stage < config.pipeline_parallel; stage++) {
        pst_estimate_memory worst, paged;
        config.moe_rows = PST_MOE_WORST;
        CHECK(pst_estimate_get_memory(&config, stage, NULL, &worst));
        config.moe_rows = PST_MOE_PAGED;
        CHECK(pst_estimate_get_memory(&config, stage, NULL, &paged));
        printf("stage %" PRIu64 ": %" PRIu64 " MiB with buffers for the worst routing, %" PRIu64
               " MiB with pages\n",
               stage, worst.peak_bytes >> 20, paged.peak_bytes >> 20);
        if (paged.live_moe_layers > live_layers)
            live_layers = paged.live_moe_layers;
    }

    pst_estimate_moe moe;
    CHECK(pst_estimate_get_moe(&config, live_layers, &moe));
    printf("a pool for %" PRIu64 " live layers: %" PRIu64 " pages, %" PRIu64 " MiB\n", live_layers,
           moe.pool_pages, moe.pool_bytes >> 20);
    return 0;
}
