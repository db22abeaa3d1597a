/* Blocks of experts lease, save and page what the estimator says, to the byte. */
#include <pagestash/pagestash.h>

#include "tests/host/linear/block.h"

enum { TOKENS = 15, HIDDEN = 12 };

/* Experts of one GPU: every token goes to one. */
typedef struct case_of {
    uint64_t capacity; /* of an expert, of BLOCK_EXPERTS */
    uint64_t features;
    pst_moe_rows rows;
    pst_dtype dtype;
} case_of;

static const case_of cases[] = {
    {5, 273, PST_MOE_BALANCED, PST_DTYPE_BF16}, /* 16,380 bytes, 16,416 with 16 for each expert */
    {7, 3, PST_MOE_CAPACITY, PST_DTYPE_BF16},   /* 4/3 of 15 rows */
    {TOKENS, 1024, PST_MOE_WORST, PST_DTYPE_BF16},
    {7, 1001, PST_MOE_PAGED, PST_DTYPE_FP32},
};

static pst_estimate_config config_of(const case_of *what)
{
    pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;
    config.num_layers = 1;
    config.hidden_size = HIDDEN;
    config.num_heads = config.num_kv_heads = 2;
    config.num_experts = BLOCK_EXPERTS;
    config.experts_per_token = 1;
    config.expert_ffn_size = what->features;
    config.vocab_size = config.padded_vocab_size = 64;
    config.norm = PST_NORM_RMS;
    config.is_gated = config.fuses_activation = config.has_flash_attention = true;
    config.sequence_size = TOKENS;
    config.world_size = config.global_batch = 1;
    config.type = what->dtype == PST_DTYPE_FP32 ? PST_TRAIN_FP32 : PST_TRAIN_BF16;
    config.moe_rows = what->rows;
    config.capacity_num = 4;
    config.capacity_den = 3;
    config.page_bytes = PST_PAGE_BYTES_MIN;
    return config;
}

static const pst_estimate_linear *experts_of(const pst_estimate_linears *of)
{
    for (uint32_t i = 0; i < of->num_linears; i++)
        if (strcmp(of->linears[i].name, "experts") == 0)
            return &of->linears[i];
    return NULL;
}

/* The hidden tensor alone in a ticket, in a pool that has just its pages. */
static void open_pages(rank_of_test *self, block *of, uint64_t num_pages)
{
    const pst_row_space space = {.kind = PST_ROWS_SEGMENTS,
                                 .count_type = PST_COUNT_INT32,
                                 .capacity = (int64_t)of->form.tokens,
                                 .num_segments = BLOCK_EXPERTS};
    const pst_tensor tensor = {.row_bytes = of->up.out_features * (of->form.dtype ? 4 : 2),
                               .written_by = PST_WRITTEN_BY_GLU};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    RANK_OK(pst_ticket_destroy(of->ticket));
    RANK_OK(pst_pool_destroy(of->pool));
    RANK_OK(pst_group_destroy(of->group));
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = &tensor;
    config.num_tensors = 1;
    pool.page_bytes = PST_PAGE_BYTES_MIN;
    pool.num_pages = num_pages;
    pool.max_tickets = 1;
    RANK_OK(pst_group_create(&config, &of->group));
    RANK_OK(pst_pool_create(self->device, &pool, &of->pool));
    RANK_OK(pst_ticket_create(of->pool, of->group, &of->ticket));
    of->bases[0] = NULL;
    block_set_pages(of, true);
}

static void check_peak(rank_of_test *self, const block *of, uint64_t wanted)
{
    pst_scratch_info info;
    RANK_OK(pst_scratch_get_info(of->scratch, &info));
    RANK_CHECK(info.peak_leased_bytes == wanted);
}

static void check_pages(rank_of_test *self, const block *of, uint64_t wanted)
{
    pst_pool_status status;
    RANK_OK(pst_pool_step(of->pool, self->stream));
    RANK_OK(pst_pool_poll(of->pool, &status));
    RANK_CHECK(status.step_valid && status.num_faults == 0 && status.in_use[0] == wanted);
}

static void run_case(rank_of_test *self, const case_of *what, bool has_pages)
{
    const block_form form = {.dtype = what->dtype,
                             .of_gradient = PST_DTYPE_FP32,
                             .num_experts = BLOCK_EXPERTS,
                             .count_type = PST_COUNT_INT32,
                             .tokens = what->capacity,
                             .hidden = HIDDEN,
                             .features = what->features};
    const pst_estimate_config config = config_of(what);
    const uint64_t size = what->dtype == PST_DTYPE_FP32 ? 4 : 2;
    pst_estimate_linears linears;
    block of;
    RANK_OK(pst_estimate_get_linears(&config, 0, has_pages, 0, &linears));
    const pst_estimate_linear *experts = experts_of(&linears);
    block_open(&of, &form, self);
    RANK_CHECK(experts->saved_bytes == of.input.rows * of.input.columns * size);
    RANK_CHECK(experts->hidden_bytes == of.between.rows * of.between.columns * size);
    for (int e = 0; e < BLOCK_EXPERTS; e++)
        of.narrow[e] = (int32_t)what->capacity;
    block_clear(&of, &of.found);
    block_set_pages(&of, false);
    if (has_pages) {
        RANK_CHECK(experts->forward_scratch == of.bytes.forward_scratch &&
                   experts->backward_scratch == of.bytes.backward_scratch);
        open_pages(self, &of, linears.expert_pages);
    }
    RANK_OK(pst_mlp_forward(of.mlp, &of.operands, self->stream));
    check_peak(self, &of, experts->forward_scratch);
    check_pages(self, &of, linears.expert_pages);
    RANK_OK(pst_mlp_backward(of.mlp, &of.operands, self->stream));
    check_peak(self, &of, linears.scratch_bytes);
    check_pages(self, &of, 0);
    block_close(&of);
}

static void run_cases(rank_of_test *self)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int has_pages = 0; has_pages < 2; has_pages++)
            run_case(self, &cases[i], has_pages);
}

PST_TEST(Experts, LeaseSaveAndPageWhatTheEstimatorSays)
{
    ranks_run(1, 0, run_cases, NULL);
}

/* Figures of blocks that there are not. */
PST_TEST(Experts, WhatIsNoBlockHasNoRow)
{
    pst_estimate_config config = config_of(&cases[2]);
    pst_estimate_linears linears;
    config.is_gated = config.fuses_activation = false;
    CHECK_OK(pst_estimate_get_linears(&config, 0, true, 0, &linears));
    CHECK(!experts_of(&linears) && linears.expert_pages == 0);
    config = config_of(&cases[2]);
    config.world_size = config.expert_tensor_parallel = 2;
    config.global_batch = 2;
    CHECK_OK(pst_estimate_get_linears(&config, 0, true, 0, &linears));
    CHECK(!experts_of(&linears) && linears.expert_pages == 0);
    config.expert_tensor_parallel = 1;
    CHECK_OK(pst_estimate_get_linears(&config, 0, true, 0, &linears));
    CHECK(experts_of(&linears) && linears.expert_pages > 0);
}
