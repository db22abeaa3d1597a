/* What paging adds to memory, and which buffers of experts are refused. */
#include "tests/host/estimate/estimate_models.h"

PST_TEST(EstimateMoe, PagedMemory)
{
    pst_estimate_config config = psti_estimate_run(12);
    pst_estimate_memory balanced, paged;
    pst_estimate_moe moe;
    config.capacity_num = 2;
    CHECK_OK(pst_estimate_get_memory(&config, 1, NULL, &balanced));
    CHECK_EQ(balanced.live_moe_layers, 60);
    config.moe_rows = PST_MOE_PAGED;
    CHECK_OK(pst_estimate_get_memory(&config, 1, NULL, &paged));
    CHECK_OK(pst_estimate_get_moe(&config, 60, &moe));
    CHECK_EQ(balanced.paging_bytes, 0);
    CHECK_EQ(paged.saved_bytes, balanced.saved_bytes);
    CHECK_EQ(paged.paging_bytes, moe.paged_bytes + moe.table_bytes - moe.balanced_bytes);
    CHECK_EQ(paged.bytes, balanced.bytes + paged.paging_bytes);
    CHECK_OK(pst_estimate_get_memory(&config, 15, NULL, &paged));
    CHECK_OK(pst_estimate_get_moe(&config, 1, &moe));
    CHECK(moe.pool_pages > 1 && paged.live_moe_layers == 1);
    CHECK_EQ(paged.paging_bytes, moe.paged_bytes + moe.table_bytes - moe.balanced_bytes);
    config = psti_estimate_run(1);
    config.moe_rows = PST_MOE_PAGED;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &paged));
    CHECK_EQ(paged.paging_bytes, 0);
}

PST_TEST(EstimateMoe, WhatIsRefused)
{
    pst_estimate_config config = psti_estimate_run(8);
    pst_estimate_moe moe = {.row_bytes = 7};
    CHECK_STATUS(pst_estimate_get_moe(&config, 1, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_moe(&config, (1 << 20) + 1, &moe), PST_E_INVALID);
    config.page_bytes = 3;
    CHECK_STATUS(pst_estimate_get_moe(&config, 1, &moe), PST_E_INVALID);
    config.page_bytes = 0;
    config.sequence_size = UINT64_C(1) << 40; /* more pages than a pool has */
    CHECK_STATUS(pst_estimate_get_moe(&config, 1 << 10, &moe), PST_E_INVALID);
    config.sequence_size = UINT64_C(1) << 47;
    CHECK_STATUS(pst_estimate_get_moe(&config, 1, &moe), PST_E_INVALID);
    config = psti_estimate_run(1);
    CHECK_STATUS(pst_estimate_get_moe(&config, 1, &moe), PST_E_INVALID);
    CHECK_EQ(moe.row_bytes, 7);
}
