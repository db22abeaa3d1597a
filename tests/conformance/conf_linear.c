/* Blocks on devices whose memory is the process's: what is done late, and by the kernels of a GPU,
 * gives the same bits with pages and without. */
#include "tests/conformance/conf.h"
#include "tests/host/linear/block.h"

#define WITH_PRODUCTS (1u << CONF_HOST | 1u << CONF_LAZY | 1u << CONF_SIMT)
#define CONFORMANCE_PRODUCTS(suite, name) CONF_DEFINE(suite, name, WITH_PRODUCTS)

static block_form form_of(uint32_t num_experts, pst_dtype dtype)
{
    return (block_form){.dtype = dtype,
                        .of_gradient = PST_DTYPE_FP32,
                        .num_experts = num_experts,
                        .count_type = PST_COUNT_INT64,
                        .accumulates = true,
                        .has_probability = true,
                        .tokens = 5,
                        .hidden = 12,
                        .features = 24};
}

static void open_block(const conf_run *conf, rank_of_test *rank, const block_form *form, block *of)
{
    static const int64_t counts[BLOCK_EXPERTS] = {4, 0, 5};
    *rank = (rank_of_test){.num_ranks = 1, .device = conf->device};
    CHECK_OK(pst_stream_create(conf->device, &rank->stream));
    block_open(of, form, rank);
    for (uint32_t e = 0; e < form->num_experts; e++)
        of->wide[e] = counts[e];
    block_want(of);
}

static void close_block(block *of, rank_of_test *rank)
{
    block_close(of);
    CHECK_OK(pst_stream_destroy(rank->device, rank->stream));
}

static void enqueue(block *of)
{
    of->operands.probability_gradient.base = NULL;
    CHECK_OK(pst_mlp_forward(of->mlp, &of->operands, of->rank->stream));
    of->operands.probability_gradient.base = of->found.of_probability.base;
    CHECK_OK(pst_mlp_backward(of->mlp, &of->operands, of->rank->stream));
}

static void check_forms(const conf_run *conf, uint32_t num_experts)
{
    for (int i = 0; i < 4; i++) {
        const block_form form = form_of(num_experts, (i & 1) ? PST_DTYPE_BF16 : PST_DTYPE_FP32);
        rank_of_test rank;
        block of;
        conf_vary(conf, (uint64_t)i);
        open_block(conf, &rank, &form, &of);
        block_clear(&of, &of.found);
        block_set_pages(&of, i >= 2);
        enqueue(&of);
        CHECK_OK(pst_device_synchronize(conf->device));
        CHECK(block_is_right(&of));
        close_block(&of, &rank);
    }
}

CONFORMANCE_PRODUCTS(Linear, DenseBlocks)
{
    check_forms(conf, 0);
}

CONFORMANCE_PRODUCTS(Linear, BlocksOfExperts)
{
    check_forms(conf, BLOCK_EXPERTS);
}

CONFORMANCE_PRODUCTS(Linear, GraphsOfBlocks)
{
    const block_form form = form_of(BLOCK_EXPERTS, PST_DTYPE_FP16);
    rank_of_test rank;
    block of;
    pst_graph *graph = NULL;
    open_block(conf, &rank, &form, &of);
    block_set_pages(&of, true);
    CHECK_OK(pst_graph_begin(conf->device, rank.stream));
    enqueue(&of);
    CHECK_OK(pst_graph_end(conf->device, rank.stream, &graph));
    for (int replay = 0; replay < 3; replay++) {
        block_clear(&of, &of.found);
        CHECK_OK(pst_graph_launch(graph, rank.stream));
        CHECK_OK(pst_device_synchronize(conf->device));
        CHECK(block_is_right(&of));
    }
    CHECK_OK(pst_graph_destroy(graph));
    close_block(&of, &rank);
}
