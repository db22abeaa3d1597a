/* One list of what a layer keeps: the estimator, a derived trace and the swap fraction agree. */
#include <pagestash/estimate.h>
#include <pagestash/swap.h>
#include <pagestash/trace.h>

#include "host/model/ledger.h"
#include "tests/harness.h"

/* Of a layer with sizes that no rounding changes, on 4 x 2 GPUs. */
PST_TEST(Ledger, TheModelsAgree)
{
    pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;
    config.num_layers = config.global_batch = 1;
    config.hidden_size = 4096;
    config.num_heads = 32;
    config.ffn_size = 3 * 4096;
    config.vocab_size = 50257;
    config.sequence_size = 131072;
    config.tensor_parallel = 4;
    config.context_parallel = 2;
    config.sequence_parallel = config.has_flash_attention = true;
    config.recompute = PST_RECOMPUTE_GATHER;
    config.type = PST_TRAIN_BF16;
    pst_estimate_ledger ledger;
    CHECK_OK(pst_estimate_get_ledger(&config, false, &ledger));
    uint64_t statistics = 0;
    for (uint32_t i = 0; i < ledger.num_entries; i++)
        if (strstr(ledger.entries[i].name, ".stat") || strstr(ledger.entries[i].name, ".lse"))
            statistics += ledger.entries[i].bytes;

    const pst_swap_shape shape = {.micro_batch = 1,
                                  .sequence_size = 131072,
                                  .hidden_size = 4096,
                                  .ffn_size = 3 * 4096,
                                  .tensor_parallel = 4,
                                  .context_parallel = 2};
    pst_swap_config swap = PST_SWAP_CONFIG_INIT;
    CHECK_OK(pst_swap_model(&shape, &swap));
    CHECK_EQ(swap.input_bytes + swap.attention_bytes + swap.other_bytes, ledger.bytes - statistics);

    /* what one more layer adds to a trace between forward and backward */
    uint64_t most[2];
    for (uint32_t i = 0; i < 2; i++) {
        pst_trace_derivation from = PST_TRACE_DERIVATION_INIT;
        pst_trace_summary summary;
        pst_trace *trace = NULL;
        from.full = true;
        from.ffn_size = 3 * 4096;
        from.num_layers = 2 + i;
        CHECK_OK(pst_trace_derive(&from, &trace));
        CHECK_OK(pst_trace_get_summary(trace, 512, &summary));
        pst_trace_destroy(trace);
        most[i] = summary.most_live_bytes;
    }
    CHECK_EQ(most[1] - most[0], ledger.bytes);
}
