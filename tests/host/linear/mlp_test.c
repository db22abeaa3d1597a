/* Blocks: the bits of their layers and GLU alone, with pages and without, dense and of experts. */
#include <pagestash/pagestash.h>

#include <stdio.h>

#include "tests/host/linear/block.h"

enum { RANKS = 4 };

/* ---- with pages and without ---- */

static void check_scratch(rank_of_test *self, const block *of, uint64_t most)
{
    pst_scratch_info info;
    RANK_OK(pst_scratch_get_info(of->scratch, &info));
    RANK_CHECK(info.num_live == 0 && info.leased_bytes == 0);
    if (info.peak_leased_bytes != most)
        psti_test_fail(__FILE__, __LINE__, "rank %d: %d bytes leased, not %d", self->rank,
                       (int)info.peak_leased_bytes, (int)most);
}

/* What backward restores is overwritten in between. */
static void run_block(rank_of_test *self, block *of, bool has_pages, bool keeps)
{
    layer_tensor other = tensor_draw(of->other.rows, of->other.columns, PST_DTYPE_FP32,
                                     10 * (uint64_t)self->rank + 6);
    const uint64_t bytes = other.rows * other.columns * sizeof(float);
    block_clear(of, &of->found);
    block_set_pages(of, has_pages);
    of->operands.gathered = keeps ? of->gathered.base : NULL;
    of->operands.probability_gradient.base = NULL;
    RANK_OK(pst_mlp_forward(of->mlp, &of->operands, self->stream));
    if (has_pages)
        memset(of->other.base, 0xff, bytes);
    if (of->form.has_probability)
        of->operands.probability_gradient.base = of->found.of_probability.base;
    of->operands.input = keeps ? NULL : of->input.base;
    RANK_OK(pst_mlp_backward(of->mlp, &of->operands, self->stream));
    of->operands.input = of->input.base;
    RANK_CHECK(block_is_right(of));
    if (!of->form.num_experts) /* whose rows behind the live ones stay away */
        RANK_CHECK(tensor_is(&of->other, &other));
    memcpy(of->other.base, other.base, bytes);
    tensor_free(&other);
}

static void check_pool(rank_of_test *self, const block *of, bool holds_rows)
{
    pst_pool_status status;
    RANK_OK(pst_pool_step(of->pool, self->stream));
    RANK_OK(pst_pool_poll(of->pool, &status));
    RANK_CHECK(status.step_valid && status.num_faults == 0 && status.in_use[0] == 0 &&
               (status.high_water[0] > 0) == holds_rows);
}

/* With pages, without, and with the gathered input kept, as far as the form has that. */
static void check_block(rank_of_test *self, const block_form *form, const int64_t *counts)
{
    block of;
    const bool may_keep = form->sequence_parallel;
    block_open(&of, form, self);
    for (uint32_t e = 0; e < form->num_experts; e++) {
        of.wide[e] = counts[e];
        of.narrow[e] = (int32_t)counts[e];
    }
    block_want(&of);
    for (int way = 0; way < (may_keep ? 4 : 2); way++)
        run_block(self, &of, way % 2 == 0, way >= 2);
    check_pool(self, &of, !counts || counts[0] + counts[1] + counts[2] > 0);
    block_close(&of);
}

/* The forms in which a block can be. */
static block_form dense_form(unsigned i)
{
    return (block_form){.dtype = (i & 1) ? PST_DTYPE_BF16 : PST_DTYPE_FP32,
                        .of_gradient = PST_DTYPE_FP32,
                        .pieces = i >> 1 & 1,
                        .sequence_parallel = (i & 4) == 0,
                        .accumulates = (i & 2) != 0,
                        .has_probability = (i & 1) != 0,
                        .interleave = i == 3,
                        .tokens = i == 2 ? 3 : 4,
                        .hidden = 12,
                        .features = 24};
}

static void check_dense(rank_of_test *self)
{
    for (unsigned i = 0; i < 8 && !psti_test_failed(); i++) {
        const block_form form = dense_form(i);
        check_block(self, &form, NULL);
    }
}

PST_TEST(Mlp, ABlockIsItsLayersWithPagesAndWithout)
{
    ranks_run(1, 0, check_dense, NULL);
    ranks_run(RANKS, 200000, check_dense, NULL);
}

/* The other tensor of the block's ticket is what up has gathered: the activation's backward restores it,
 * before the first weight's gradient reads it. */
static void page_gathered(rank_of_test *self)
{
    for (unsigned i = 0; i < 4; i += 2) {
        const block_form form = dense_form(i);
        block of;
        block_open(&of, &form, self);
        block_want(&of);
        block_clear(&of, &of.found);
        block_set_pages(&of, true);
        RANK_CHECK(of.bytes.gathered == of.rows * OTHER_BYTES);
        of.bases[0] = of.operands.gathered = of.gathered.base;
        RANK_OK(pst_mlp_forward(of.mlp, &of.operands, self->stream));
        memset(of.gathered.base, 0xff, of.bytes.gathered);
        of.operands.input = NULL;
        RANK_OK(pst_mlp_backward(of.mlp, &of.operands, self->stream));
        RANK_CHECK(block_is_right(&of));
        check_pool(self, &of, true);
        block_close(&of);
    }
}

PST_TEST(Mlp, WhatWasGatheredMayGoToPages)
{
    ranks_run(1, 0, page_gathered, NULL);
    ranks_run(RANKS, 200000, page_gathered, NULL);
}

static void check_peak(rank_of_test *self)
{
    for (unsigned i = 0; i < 8; i++) {
        const block_form form = dense_form(i);
        block of;
        block_open(&of, &form, self);
        block_set_pages(&of, true);
        RANK_OK(pst_mlp_forward(of.mlp, &of.operands, self->stream));
        check_scratch(self, &of, of.bytes.forward_scratch);
        RANK_OK(pst_mlp_backward(of.mlp, &of.operands, self->stream));
        check_scratch(self, &of,
                      of.bytes.backward_scratch > of.bytes.forward_scratch
                          ? of.bytes.backward_scratch
                          : of.bytes.forward_scratch);
        RANK_CHECK(of.bytes.gathered ==
                   (form.sequence_parallel ? of.up.tokens * 12 * (form.dtype ? 4 : 2) : 0));
        block_close(&of);
    }
}

PST_TEST(Mlp, ScratchIsAsSaid)
{
    ranks_run(1, 0, check_peak, NULL);
    ranks_run(RANKS, 200000, check_peak, NULL);
}

/* ---- experts ---- */

static void check_experts(rank_of_test *self)
{
    static const int64_t counts[][BLOCK_EXPERTS] = {{5, 5, 5}, {0, 3, 5}, {0, 0, 0}, {1, 0, 2}};
    for (unsigned i = 0; i < 16 && !psti_test_failed(); i++) {
        const block_form form = {.dtype = (i & 1) ? PST_DTYPE_BF16 : PST_DTYPE_FP32,
                                 .of_gradient =
                                     (i & 2 || !(i & 1)) ? PST_DTYPE_FP32 : PST_DTYPE_BF16,
                                 .num_experts = BLOCK_EXPERTS,
                                 .count_type = (i & 4) ? PST_COUNT_INT64 : PST_COUNT_INT32,
                                 .accumulates = (i & 8) != 0,
                                 .has_probability = (i & 2) != 0,
                                 .tokens = 5,
                                 .hidden = 12,
                                 .features = 24};
        check_block(self, &form, counts[i % 4]);
    }
}

PST_TEST(Mlp, ExpertsComputeTheirLiveRows)
{
    ranks_run(1, 0, check_experts, NULL);
}

/* ---- graphs ---- */

static void capture(rank_of_test *self)
{
    const block_form form = dense_form(*(const unsigned *)self->arg);
    block of;
    pst_graph *graph = NULL;
    block_open(&of, &form, self);
    block_want(&of);
    block_set_pages(&of, true);
    RANK_OK(pst_graph_begin(self->device, self->stream));
    RANK_OK(pst_mlp_forward(of.mlp, &of.operands, self->stream));
    RANK_OK(pst_mlp_backward(of.mlp, &of.operands, self->stream));
    RANK_OK(pst_graph_end(self->device, self->stream, &graph));
    for (int replay = 0; replay < 3; replay++) {
        block_clear(&of, &of.found);
        RANK_OK(pst_graph_launch(graph, self->stream));
        RANK_CHECK(block_is_right(&of));
    }
    RANK_OK(pst_graph_destroy(graph));
    check_pool(self, &of, true);
    block_close(&of);
}

PST_TEST(Mlp, AGraphOfABlockRunsAgain)
{
    for (unsigned i = 0; i < 4; i++)
        ranks_run(RANKS, 200000, capture, &i);
}
