/* What the estimator refuses, and how it says so. */
#include "tests/host/estimate/estimate_models.h"

static void expect_refused(const pst_estimate_config *config, const char *text)
{
    CHECK_STATUS(pst_estimate_check(config), PST_E_INVALID);
    CHECK_MSG(strstr(pst_last_message(), text) != NULL, "'%s' lacks '%s'", pst_last_message(),
              text);
}

#define REFUSED(number, change, text)                           \
    do {                                                        \
        pst_estimate_config config = psti_estimate_run(number); \
        change;                                                 \
        expect_refused(&config, text);                          \
    } while (0)

PST_TEST(Estimate, WhatIsMissing)
{
    expect_refused(NULL, "config is NULL");
    REFUSED(1, config.struct_size--, "struct_size");
    REFUSED(1, config.num_layers = 0, "num_layers 0: must be at least 1");
    REFUSED(1, config.hidden_size = 0, "hidden_size 0");
    REFUSED(1, config.num_heads = 0, "num_heads 0");
    REFUSED(1, config.vocab_size = 0, "vocab_size 0");
    REFUSED(1, config.sequence_size = 0, "sequence_size 0");
    REFUSED(1, config.ffn_size = 0, "ffn_size 0: layer 0 is dense");
    REFUSED(1, config.num_heads = config.num_kv_heads = 8192, "head_size 0: hidden_size 4096");
    REFUSED(12, config.qk_size = 0, "qk_size 0");
    REFUSED(12, config.v_size = 0, "v_size 0");
    REFUSED(8, config.experts_per_token = 0, "experts_per_token 0");
    REFUSED(8, config.expert_ffn_size = 0, "expert_ffn_size 0");
    REFUSED(1, config.norm = (pst_norm)2, "norm 2");
    REFUSED(1, config.qk_norm = (pst_qk_norm)3, "qk_norm 3");
    REFUSED(1, config.type = (pst_train_type)3, "type 3");
    REFUSED(8, config.moe_rows = (pst_moe_rows)4, "moe_rows 4");
    REFUSED(1, config.loss = (pst_loss)3, "loss 3: allowed are");
    REFUSED(1, config.recompute = 32, "recompute 0x20");
}

PST_TEST(Estimate, WidthsAndShares)
{
    REFUSED(1, config.gradient_width = 65, "gradient_width 65: bytes per parameter, at most 64");
    REFUSED(1, config.optimizer_width = UINT64_MAX, "optimizer_width 18446744073709551615");
    REFUSED(1, config.offload_num = 1, "offload_den 0: offload_num is 1");
    REFUSED(1, (config.offload_num = 3, config.offload_den = 2), "offload_num 3 / offload_den 2");
    REFUSED(1, (config.offload_num = 3, config.offload_den = UINT64_C(1) << 32),
            "offload_num 3 / offload_den 4294967296: both at most 4294967295");
}

PST_TEST(Estimate, WhatDoesNotDivide)
{
    REFUSED(2, config.num_heads = 33, "num_heads 33: must be a multiple of tensor_parallel 2");
    REFUSED(4, config.num_kv_heads = 7, "num_heads 64: must be a multiple of num_kv_heads 7");
    REFUSED(4, config.tensor_parallel = 16,
            "world_size 32: must be a multiple of tensor_parallel 16");
    REFUSED(4, (config.num_heads = 48, config.num_kv_heads = 3),
            "num_kv_heads 3: must be a multiple of tensor_parallel 8, or divide it");
    REFUSED(4, (config.num_kv_heads = 2, config.head_size = 9),
            "num_kv_heads 2 * head_size 9 * 2: must be a multiple of tensor_parallel 8");
    REFUSED(2, config.ffn_size++, "ffn_size 11009: must be a multiple of tensor_parallel 2");
    REFUSED(2, config.padded_vocab_size = 32001, "padded_vocab_size 32001: must be a multiple");
    REFUSED(2, config.padded_vocab_size = 31998, "padded_vocab_size 31998: vocab_size is 32000");
    REFUSED(3, config.sequence_size = 4097, "sequence_size 4097: must be a multiple of context");
    REFUSED(3, config.sequence_size = 4100, "context_parallel 2 * tensor_parallel 4");
    REFUSED(3, config.world_size = 12, "world_size 12: must be a multiple of tensor_parallel 4");
    REFUSED(1, config.world_size = (UINT64_C(1) << 31) + 8, "world_size 2147483656: at most");
    REFUSED(8, config.world_size = 4, "expert_parallel 8 * pipeline_parallel 1");
    REFUSED(8, config.num_experts = 9, "num_experts 9: must be a multiple of expert_parallel 8");
    REFUSED(9, config.expert_tensor_parallel = 3, "expert_ffn_size 14336: must be a multiple");
    REFUSED(9, config.shared_ffn_size = 3, "shared_ffn_size 3: must be a multiple");
    REFUSED(2, config.global_batch = 66, "global_batch 66: must be a multiple of micro_batch 2");
    REFUSED(4, config.num_layers = 81, "num_layers 81: must be a multiple of pipeline_parallel 4");
    REFUSED(12, config.num_layers = 60, "chunk_layers: add up to 61, num_layers is 60");
}

PST_TEST(Estimate, WhatDoesNotGoTogether)
{
    REFUSED(1, config.q_rank = 1, "q_rank 1: kv_rank is 0");
    REFUSED(1, config.expert_parallel = 2, "expert_parallel 2: num_experts is 0");
    REFUSED(8, config.experts_per_token = 9, "experts_per_token 9: num_experts is 8");
    REFUSED(9, config.sequence_parallel = false, "tensor_parallel 2: need sequence_parallel");
    REFUSED(9, (config.has_linear_bias = true, config.expert_tensor_parallel = 2),
            "has_linear_bias with num_experts 8: expert_tensor_parallel 2 must be 1");
    REFUSED(12, config.has_linear_bias = true, "has_linear_bias: shared experts");
    REFUSED(12, config.has_qkv_bias = true, "has_qkv_bias: latent attention");
    REFUSED(12, config.qk_norm = PST_QK_NORM_HEAD, "qk_norm 1: must be none");
    REFUSED(8, (config.moe_rows = PST_MOE_PAGED, config.recompute_layers = 2),
            "moe_rows paged: recompute_layers 2");
    REFUSED(8, config.headroom_num = 1, "headroom_den 0: headroom_num is 1");
    REFUSED(8, config.headroom_num = config.headroom_den = UINT64_C(1) << 32,
            "headroom_num 4294967296 / headroom_den 4294967296: both at most 4294967295");
    REFUSED(8, config.capacity_num = UINT64_C(1) << 32, "capacity_num 4294967296 / capacity_den 1");
    REFUSED(8, config.num_experts = UINT64_C(1) << 32,
            "num_experts 4294967296: at most 2147483648");
    REFUSED(8, config.page_rows = UINT64_MAX, "page_rows 18446744073709551615: at most");
    REFUSED(8, config.row_multiple = UINT64_MAX, "row_multiple 18446744073709551615: at most");
    REFUSED(8, (config.headroom_num = 9, config.headroom_den = 10),
            "headroom_num 9 / headroom_den 10");
    REFUSED(3, config.has_flash_attention = false, "context_parallel 2: needs has_flash");
    REFUSED(1, config.virtual_stages = 2, "virtual_stages 2: pipeline_parallel is 1");
    REFUSED(4, config.virtual_stages = 81, "virtual_stages 81: num_layers is 80");
    REFUSED(5, config.micro_batch_group_size = 3,
            "micro_batch_group_size 3: pipeline_parallel is 4");
    REFUSED(5, config.micro_batch_group_size = 1 << 24,
            "micro_batch_group_size 16777216 * virtual_stages 5");
    REFUSED(5, config.micro_batch_group_size = 5, "its 16 micro-batches must be a multiple");
    REFUSED(1, config.num_layers = 4097, "num_layers 4097: at most 4096");
    REFUSED(1, config.tensor_parallel = (1 << 20) + 1, "tensor_parallel 1048577: at most");
}

/* ---- no figure wraps ---- */

PST_TEST(Estimate, TooMuchIsRefused)
{
    REFUSED(1, config.vocab_size = UINT64_MAX - 1, "vocab_size 18446744073709551614: too large");
    pst_estimate_config config = psti_estimate_run(1);
    pst_estimate_params params = {.total = 7};
    pst_estimate_states states = {.bytes = 7};
    pst_estimate_ledger ledger = {.bytes = 7};
    config.ffn_size = UINT64_C(1) << 50; /* 3 * 2^62 weights in a layer */
    CHECK_OK(pst_estimate_check(&config));
    CHECK_STATUS(pst_estimate_get_params(&config, &params), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_states(&config, 0, &states), PST_E_INVALID);
    config.ffn_size = UINT64_C(1) << 44; /* 3 * 2^61 parameters, and 6 bytes and more for each */
    CHECK_STATUS(pst_estimate_get_states(&config, 0, &states), PST_E_INVALID);
    config.sequence_size = UINT64_C(1) << 58;
    CHECK_STATUS(pst_estimate_get_ledger(&config, false, &ledger), PST_E_INVALID);
    CHECK(params.total == 7 && states.bytes == 7 && ledger.bytes == 7);
    CHECK_OK(pst_estimate_get_params(&config, &params));
    config.ffn_size = 11008;
    CHECK_STATUS(pst_estimate_get_states(&config, 1, &states), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_states(&config, 0, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_params(&config, NULL), PST_E_INVALID);
    config.sequence_size = 4096;
    CHECK_OK(pst_estimate_get_ledger(&config, false, &ledger));
    CHECK_STATUS(pst_estimate_get_ledger(&config, true, &ledger), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_ledger(&config, false, NULL), PST_E_INVALID);
    config = psti_estimate_run(4); /* an eighth of it would do */
    config.sequence_size = UINT64_C(1) << 46;
    CHECK_STATUS(pst_estimate_get_ledger(&config, false, &ledger), PST_E_INVALID);
    config = psti_model_mixtral_8x7b();
    CHECK_STATUS(pst_estimate_get_ledger(&config, false, &ledger), PST_E_INVALID);
}
