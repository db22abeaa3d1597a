/* What block_checks.h says. */
#include "tests/host/linear/block_checks.h"

#include "tests/harness.h"

static block_form form_of(uint32_t num_experts, pst_dtype dtype)
{
    return (block_form){.dtype = dtype,
                        .of_gradient = PST_DTYPE_FP32,
                        .num_experts = num_experts,
                        .count_type = PST_COUNT_INT64,
                        .accumulates = true,
                        .has_probability = true,
                        .tokens = 5,
                        .hidden = 40, /* sums long enough to be split */
                        .features = 24};
}

static void open_block(pst_device *device, rank_of_test *rank, const block_form *form, block *of)
{
    static const int64_t counts[BLOCK_EXPERTS] = {4, 0, 5};
    *rank = (rank_of_test){.num_ranks = 1, .device = device};
    CHECK_OK(pst_stream_create(device, &rank->stream));
    block_open(of, form, rank);
    for (uint32_t e = 0; e < BLOCK_EXPERTS; e++)
        of->wide[e] = counts[e];
    block_want(of);
}

static void close_block(block *of, rank_of_test *rank)
{
    block_close(of);
    CHECK_OK(pst_stream_destroy(rank->device, rank->stream));
}

static void forward(block *of)
{
    of->operands.probability_gradient.base = NULL;
    CHECK_OK(pst_mlp_forward(of->mlp, &of->operands, of->rank->stream));
}

static void backward(block *of)
{
    of->operands.probability_gradient.base = of->found.of_probability.base;
    CHECK_OK(pst_mlp_backward(of->mlp, &of->operands, of->rank->stream));
}

/* With pages the scratch's peak is what the block says of it, to the byte. */
static void check_peak(const block *of, bool has_pages, uint64_t bytes)
{
    pst_scratch_info info;
    CHECK_OK(pst_scratch_get_info(of->scratch, &info));
    CHECK(!has_pages || info.peak_leased_bytes == bytes);
}

void block_check_form(pst_device *device, uint32_t num_experts, int i)
{
    const bool has_pages = i >= BLOCK_FORMS / 2;
    const block_form form = form_of(num_experts, (i & 1) ? PST_DTYPE_BF16 : PST_DTYPE_FP32);
    rank_of_test rank;
    block of;
    open_block(device, &rank, &form, &of);
    block_clear(&of, &of.found);
    block_set_pages(&of, has_pages);
    forward(&of);
    check_peak(&of, has_pages, of.bytes.forward_scratch);
    backward(&of);
    check_peak(&of, has_pages, of.bytes.backward_scratch); /* which is more */
    CHECK_OK(pst_device_synchronize(device));
    CHECK(block_is_right(&of));
    close_block(&of, &rank);
}

void block_check_graph(pst_device *device, uint32_t num_experts)
{
    const block_form form = form_of(num_experts, PST_DTYPE_FP16);
    rank_of_test rank;
    block of;
    pst_graph *graph = NULL;
    open_block(device, &rank, &form, &of);
    block_set_pages(&of, true);
    CHECK_OK(pst_graph_begin(device, rank.stream));
    forward(&of);
    backward(&of);
    CHECK_OK(pst_graph_end(device, rank.stream, &graph));
    for (int replay = 0; replay < 3; replay++) {
        block_clear(&of, &of.found);
        CHECK_OK(pst_graph_launch(graph, rank.stream));
        CHECK_OK(pst_device_synchronize(device));
        CHECK(block_is_right(&of));
    }
    CHECK_OK(pst_graph_destroy(graph));
    close_block(&of, &rank);
}
