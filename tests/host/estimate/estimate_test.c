/* What the estimator refuses, beside the lines of tests/data/estimator/figures.txt. */
#include "tests/host/estimate/estimate_models.h"

PST_TEST(Estimate, WhatIsMissing)
{
    pst_estimate_config config = psti_estimate_run(1);
    CHECK_STATUS(pst_estimate_check(NULL), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "config is NULL") != NULL);
    config.struct_size = offsetof(pst_estimate_config, pages_glu) - 1;
    CHECK_STATUS(pst_estimate_check(&config), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "struct_size") != NULL);
}

/* ---- no figure wraps ---- */

PST_TEST(Estimate, TooMuchIsRefused)
{
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
    config = psti_model("mixtral_8x7b");
    CHECK_STATUS(pst_estimate_get_ledger(&config, false, &ledger), PST_E_INVALID);
}
