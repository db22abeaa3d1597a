/* Who communicates with whom, and what NCCL takes for it: 16 GPUs, t=2, c=2, p=2, 4 expert parallel. */
#include "tests/host/estimate/estimate_models.h"

static pst_estimate_config sixteen(void)
{
    pst_estimate_config config = psti_estimate_run(9);
    config.world_size = 16;
    config.pipeline_parallel = 2;
    config.context_parallel = 2;
    config.expert_parallel = 4;
    config.is_tied = true;
    return config;
}

PST_TEST(EstimateGroup, EveryRankOfSixteen)
{
    static const struct {
        pst_parallel parallel;
        uint64_t size, members[16]; /* group by group */
    } kinds[] = {
        {PST_PARALLEL_TENSOR, 2, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
        {PST_PARALLEL_CONTEXT, 2, {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15}},
        {PST_PARALLEL_DATA, 2, {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15}},
        {PST_PARALLEL_REPLICA, 4, {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15}},
        {PST_PARALLEL_PIPELINE, 2, {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15}},
        {PST_PARALLEL_EXPERT, 4, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
        {PST_PARALLEL_EXPERT_TENSOR, 1, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
        {PST_PARALLEL_EXPERT_REPLICA, 2, {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15}},
        {PST_PARALLEL_EMBEDDING, 2, {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15}},
    };
    const pst_estimate_config config = sixteen();
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++)
        for (uint64_t i = 0; i < 16; i++) {
            const uint64_t size = kinds[kind].size, *members = &kinds[kind].members[i - i % size];
            pst_estimate_process_group group;
            CHECK_OK(pst_estimate_get_process_group(&config, kinds[kind].parallel,
                                                    kinds[kind].members[i], &group));
            CHECK_EQ(group.size, size);
            for (uint64_t j = 0; j < size; j++)
                CHECK_EQ(group.first + j * group.stride, members[j]);
        }
}

PST_TEST(EstimateGroup, ExpertTensorParallel)
{
    pst_estimate_config config = sixteen();
    pst_estimate_process_group group;
    config.expert_tensor_parallel = 2;
    config.expert_parallel = 2;
    CHECK_OK(pst_estimate_get_process_group(&config, PST_PARALLEL_EXPERT, 13, &group));
    CHECK(group.first == 13 && group.stride == 2 && group.size == 2);
    CHECK_OK(pst_estimate_get_process_group(&config, PST_PARALLEL_EXPERT_TENSOR, 13, &group));
    CHECK(group.first == 12 && group.stride == 1 && group.size == 2);
    CHECK_OK(pst_estimate_get_process_group(&config, PST_PARALLEL_EXPERT_REPLICA, 13, &group));
    CHECK(group.first == 9 && group.stride == 4 && group.size == 2);
}

PST_TEST(EstimateGroup, WhatIsRefused)
{
    pst_estimate_config config = sixteen();
    pst_estimate_process_group group = {.size = 7};
    CHECK_STATUS(pst_estimate_get_process_group(&config, PST_PARALLEL_DATA, 0, NULL),
                 PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_process_group(&config, PST_PARALLEL_DATA, 16, &group),
                 PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_process_group(&config, PST_NUM_PARALLELS, 0, &group),
                 PST_E_INVALID);
    config.pipeline_parallel = 4;
    CHECK_OK(pst_estimate_get_process_group(&config, PST_PARALLEL_EMBEDDING, 12, &group));
    CHECK(group.first == 0 && group.stride == 12 && group.size == 2);
    CHECK_STATUS(pst_estimate_get_process_group(&config, PST_PARALLEL_EMBEDDING, 4, &group),
                 PST_E_INVALID);
    config.pipeline_parallel = 1;
    CHECK_STATUS(pst_estimate_get_process_group(&config, PST_PARALLEL_EMBEDDING, 0, &group),
                 PST_E_INVALID);
    config.pipeline_parallel = 4;
    config.is_tied = false;
    CHECK_STATUS(pst_estimate_get_process_group(&config, PST_PARALLEL_EMBEDDING, 0, &group),
                 PST_E_INVALID);
    config = psti_estimate_run(1);
    CHECK_STATUS(pst_estimate_get_process_group(&config, PST_PARALLEL_EXPERT, 0, &group),
                 PST_E_INVALID);
    CHECK_EQ(group.stride, 12);
}

/* A context; pairs and larger groups of each kind; an all-to-all of experts. */
PST_TEST(EstimateReserve, ByTheGroups)
{
    static const uint64_t mib = UINT64_C(1) << 20;
    pst_estimate_config config = sixteen();
    uint64_t bytes = 7;
    CHECK_OK(pst_estimate_get_reserve(&config, &bytes));
    CHECK_EQ(bytes, (1011 + 4 * 519 + 656 + 3128) * mib);
    config = psti_estimate_run(1);
    CHECK_OK(pst_estimate_get_reserve(&config, &bytes));
    CHECK_EQ(bytes, (1011 + 656) * mib);
    config.world_size = 1;
    CHECK_OK(pst_estimate_get_reserve(&config, &bytes));
    CHECK_EQ(bytes, 1011 * mib);
    CHECK_STATUS(pst_estimate_get_reserve(&config, NULL), PST_E_INVALID);
    config.num_layers = 0;
    CHECK_STATUS(pst_estimate_get_reserve(&config, &bytes), PST_E_INVALID);
    CHECK_EQ(bytes, 1011 * mib);
}
