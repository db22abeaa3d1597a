/* Buffers of experts, static and paged, against the reference's table and exact figures. */
#include <pagestash/pool.h>

#include "tests/host/estimate/estimate_models.h"

typedef struct row {
    int run;
    uint64_t live, balanced, worst, row_bytes;
    uint64_t static_3_2, static_2, paged_2, paged_worst; /* hundredths of a GiB */
    uint64_t balanced_tenths, worst_tenths;
} row;

static uint64_t in_gib(uint64_t bytes, uint64_t parts)
{
    return (bytes * parts + (1u << 29)) >> 30;
}

/* 97.51 GiB, where the reference prints 97.52: its exact bytes are the same as below. */
PST_TEST(EstimateMoe, TableOfTheReference)
{
    static const row rows[] = {
        {8, 32, 8192, 32768, 94212, 3450, 4600, 2687, 2843, 230, 920},
        {10, 48, 32768, 262144, 8708, 1913, 2551, 1481, 1716, 128, 1020},
        {11, 84, 16384, 262144, 17412, 3348, 4464, 2533, 3080, 223, 3571},
        {12, 60, 32768, 1048576, 26628, 7314, 9751, 5613, 9364, 488, 15602},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const row *of = &rows[i];
        pst_estimate_config config = psti_estimate_run(of->run);
        pst_estimate_moe moe;
        config.capacity_num = 3;
        config.capacity_den = 2;
        CHECK_OK(pst_estimate_get_moe(&config, of->live, &moe));
        CHECK_EQ(in_gib(moe.capacity_bytes, 100), of->static_3_2);
        config.capacity_num = 4;
        CHECK_OK(pst_estimate_get_moe(&config, of->live, &moe));
        CHECK(moe.balanced_rows == of->balanced && moe.capacity_rows == 2 * of->balanced);
        CHECK(moe.worst_rows == of->worst && moe.row_bytes == of->row_bytes);
        CHECK_EQ(in_gib(moe.capacity_bytes, 100), of->static_2);
        CHECK_EQ(in_gib(moe.paged_bytes, 100), of->paged_2);
        CHECK_EQ(in_gib(moe.worst_working_bytes + moe.pages_bytes, 100), of->paged_worst);
        CHECK_EQ(in_gib(moe.balanced_bytes, 10), of->balanced_tenths);
        CHECK_EQ(in_gib(moe.worst_bytes, 10), of->worst_tenths);
    }
}

PST_TEST(EstimateMoe, ExactBytes)
{
    pst_estimate_config config = psti_estimate_run(12);
    pst_estimate_moe moe;
    config.capacity_num = 2;
    CHECK_OK(pst_estimate_get_moe(&config, 60, &moe));
    CHECK_EQ(moe.balanced_bytes, 60 * 872546304ll);
    CHECK_EQ(moe.capacity_bytes, 104705556480);
    CHECK_EQ(moe.paged_bytes, 60272672768);
    CHECK_EQ(moe.worst_bytes, 1675288903680);
    CHECK_EQ(moe.num_pages, 33792);
    CHECK_EQ(moe.table_bytes, 8 * (60 * 1024 + 33792));
    config = psti_estimate_run(8);
    config.capacity_num = 3;
    config.capacity_den = 2;
    CHECK_OK(pst_estimate_get_moe(&config, 32, &moe));
    CHECK_EQ(moe.capacity_bytes, 37045665792);
    CHECK_EQ(moe.paged_bytes, 28427573760);
}

/* A third of 8192 rows is 2730.67; headroom 4/3 of 3 layers' 8192 rows fills 327.68 pages of 100. */
PST_TEST(EstimateMoe, Rounding)
{
    pst_estimate_config config = psti_estimate_run(8);
    pst_estimate_moe moe;
    config.capacity_den = 3;
    config.headroom_num = 4;
    config.headroom_den = 3;
    config.page_rows = 100;
    CHECK_OK(pst_estimate_get_moe(&config, 3, &moe));
    CHECK_EQ(moe.capacity_rows, 2730);
    CHECK_EQ(moe.num_pages, 328);
    CHECK_EQ(moe.pages_bytes, 32800 * 94212ll);
    CHECK_EQ(moe.table_bytes, 8 * (3 * 28 + 328));
}

/* 8192 / 3 rows of each of two GPUs' choices: 2730 in all, or 342 of each expert of eight. */
PST_TEST(EstimateMoe, RoomOfEachExpert)
{
    pst_estimate_config config = psti_estimate_run(8);
    pst_estimate_moe moe;
    config.capacity_den = 3;
    config.row_multiple = 128;
    CHECK_OK(pst_estimate_get_moe(&config, 1, &moe));
    CHECK_EQ(moe.capacity_rows, 2816);
    CHECK_EQ(moe.working_bytes, 2816 * (94212ll + 8192));
    CHECK(moe.balanced_rows == 8192 && moe.worst_rows == 32768);
    config.row_multiple = 0;
    config.caps_each_expert = true;
    CHECK_OK(pst_estimate_get_moe(&config, 1, &moe));
    CHECK_EQ(moe.capacity_rows, 342 * 8); /* one expert here, and eight GPUs send to it */
    config.expert_parallel = 2;
    config.expert_tensor_parallel = 2;
    config.row_multiple = 1000;
    CHECK_OK(pst_estimate_get_moe(&config, 1, &moe));
    CHECK_EQ(moe.capacity_rows, 6000); /* 342 * 4 * 2 * 2 are 5472 */
    pst_estimate_ledger ledger;
    config.moe_rows = PST_MOE_CAPACITY;
    CHECK_OK(pst_estimate_get_ledger(&config, true, &ledger));
    bool is_found = false;
    for (uint32_t i = 0; i < ledger.num_entries; i++)
        if (strcmp(ledger.entries[i].name, "expert.fc1.in") == 0) {
            CHECK_EQ(ledger.entries[i].bytes, 6000 * 8192);
            CHECK_EQ(ledger.entries[i].whole_bytes, 3000 * 8192); /* 342 * 8 are 2736 */
            is_found = true;
        }
    CHECK(is_found);
}

/* Rows on a GPU follow the options of the ledger. */
PST_TEST(EstimateMoe, RowBytes)
{
    pst_estimate_config config = psti_estimate_run(8);
    pst_estimate_moe moe;
    config.recompute |= PST_RECOMPUTE_ACTIVATION;
    CHECK_OK(pst_estimate_get_moe(&config, 1, &moe));
    CHECK_EQ(moe.row_bytes, 94212 - 2 * 14336);
    CHECK_EQ(moe.working_bytes, 8192 * (moe.row_bytes + 8192));
    config.expert_tensor_parallel = 2;
    config.expert_parallel = 4;
    CHECK_OK(pst_estimate_get_moe(&config, 1, &moe));
    CHECK_EQ(moe.row_bytes, 8192 + 2 * 14336 + 4);
    CHECK(moe.balanced_rows == 16384 && moe.worst_rows == 4096 * 4 * 2 * 2);
}

/* Beside the rows of the latent size an expert saves what it did. */
PST_TEST(EstimateMoe, LatentRows)
{
    pst_estimate_config config = psti_estimate_run(8);
    pst_estimate_moe moe;
    config.latent_size = 1024;
    CHECK_OK(pst_estimate_get_moe(&config, 1, &moe));
    CHECK_EQ(moe.row_bytes, 94212 - 2 * 3072);
    CHECK_EQ(moe.working_bytes, 8192 * (moe.row_bytes + 2 * 1024));
    config.type = PST_TRAIN_FP32;
    CHECK_OK(pst_estimate_get_moe(&config, 1, &moe));
    CHECK_EQ(moe.row_bytes, 2 * (94212 - 2 * 3072) - 4);
}

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
