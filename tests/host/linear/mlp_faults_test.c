/* Blocks: what is refused, and that nothing was enqueued then. */
#include <pagestash/pagestash.h>

#include <stdio.h>

#include "host/base/base.h"
#include "tests/host/linear/block.h"

static const block_form dense = {.dtype = PST_DTYPE_FP32,
                                 .of_gradient = PST_DTYPE_FP32,
                                 .sequence_parallel = true,
                                 .has_probability = true,
                                 .tokens = 4,
                                 .hidden = 8,
                                 .features = 16};

static bool said(const char *text)
{
    return strstr(pst_last_message(), text) != NULL;
}

#define REFUSES(call, status, text)                                                              \
    do {                                                                                         \
        RANK_STATUS(call, status);                                                               \
        if (!said(text))                                                                         \
            psti_test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", pst_last_message(), \
                           text);                                                                \
    } while (0)

/* ---- creation ---- */

typedef struct block_configs {
    pst_mlp_config config;
    pst_linear_config up, down;
    pst_glu glu;
} block_configs;

static block_configs configs_of(const block *of)
{
    block_configs made = {.up = of->up, .down = of->down, .glu = of->glu};
    made.config = (pst_mlp_config)PST_MLP_CONFIG_INIT;
    return made;
}

static pst_status create(block_configs *with, pst_mlp **mlp_out)
{
    with->config.up = &with->up;
    with->config.down = &with->down;
    with->config.glu = &with->glu;
    return pst_mlp_create(&with->config, mlp_out);
}

#define REFUSES_CONFIG(change, text)                      \
    do {                                                  \
        block_configs bad = configs_of(&of);              \
        change;                                           \
        REFUSES(create(&bad, &mlp), PST_E_INVALID, text); \
    } while (0)

static void refuse_configs(rank_of_test *self)
{
    block of;
    pst_mlp *mlp = NULL;
    pst_scratch *scratch = NULL;
    pst_linear_bytes bytes;
    block_open(&of, &dense, self);
    block_configs good = configs_of(&of);
    RANK_OK(pst_scratch_create(self->device, NULL, &scratch));
    REFUSES(pst_mlp_create(NULL, &mlp), PST_E_INVALID, "config or mlp_out is NULL");
    REFUSES(create(&good, NULL), PST_E_INVALID, "config or mlp_out is NULL");
    good.config.glu = NULL;
    REFUSES(pst_mlp_create(&good.config, &mlp), PST_E_INVALID, "up, down or glu is NULL");
    REFUSES_CONFIG(bad.up.pieces = 2, "pieces 2");
    REFUSES_CONFIG(bad.down.padding[3] = 4, "padding[3] 4: must be 0");
    REFUSES_CONFIG(bad.down.in_features = 0, "in_features 0");
    REFUSES_CONFIG(bad.glu.struct_size = 4, "struct_size 4: pst_glu has 32 bytes");
    REFUSES_CONFIG(bad.up.kind = PST_LINEAR_ROW, "up, down: kinds 1 and 1: must be column");
    REFUSES_CONFIG(bad.down.dtype = PST_DTYPE_BF16, "up, down: dtypes 2 and 0: must be one");
    REFUSES_CONFIG(bad.down.tokens++, "up, down: tokens 4 and 5: must be as many");
    REFUSES_CONFIG(bad.up.out_features++, "up.out_features 33: must be twice down.in_features 16");
    REFUSES_CONFIG(bad.down.sequence_parallel = false, "sequence_parallel 1 and 0: must be the");
    REFUSES_CONFIG(bad.down.comm = NULL, "up, down: comm: must be the same");
    REFUSES_CONFIG(bad.down.scratch = scratch, "up, down: scratch: must be the same");
    REFUSES_CONFIG(bad.down.workspace_bytes = 8,
                   "up, down: workspace_bytes 0 and 8: must be as many");
    REFUSES_CONFIG(bad.glu.dtype = PST_GLU_BF16, "glu: dtype 0: the layers have 2");
    REFUSES_CONFIG(bad.glu.kind = (pst_glu_kind)9, "glu: kind 9");
    REFUSES_CONFIG(bad.glu.interleave = 32, "glu: F 16: must be a multiple of interleave 32");
    REFUSES_CONFIG(bad.config.num_experts = 2, "experts are of one rank without sequence parallel");
    REFUSES_CONFIG(bad.config.num_experts = 1025, "num_experts 1025: allowed are 0 to 1024");
    REFUSES_CONFIG(bad.config.num_experts = 2; bad.config.count_type = PST_COUNT_HOST,
                                               "count_type 2: allowed are int32 and int64");
    RANK_CHECK(mlp == NULL);
    REFUSES(pst_mlp_get_bytes(NULL, &bytes), PST_E_INVALID, "mlp is NULL");
    REFUSES(pst_mlp_get_bytes(of.mlp, NULL), PST_E_INVALID, "bytes_out is NULL");
    RANK_OK(pst_mlp_destroy(NULL));
    REFUSES(pst_mlp_destroy((pst_mlp *)of.scratch), PST_E_INVALID, "pst_scratch, not a pst_mlp");
    RANK_OK(pst_scratch_destroy(scratch));
    block_close(&of);
}

PST_TEST(MlpFaults, LayersThatDoNotFitAreRefused)
{
    ranks_run(1, 0, refuse_configs, NULL);
}

static void starve(rank_of_test *self)
{
    block of;
    pst_mlp *mlp = NULL;
    pst_status status = PST_E_NOMEM;
    block_open(&of, &dense, self);
    block_configs good = configs_of(&of);
    for (long n = 0; status != PST_OK && n < 30; n++) {
        psti_fail_allocation_after(n);
        status = create(&good, &mlp);
        psti_fail_allocation_after(-1);
        RANK_CHECK(status == PST_OK || (status == PST_E_NOMEM && n < 29));
    }
    RANK_OK(pst_mlp_destroy(mlp));
    block_close(&of);
}

PST_TEST(MlpFaults, WithoutMemoryThereIsNoBlock)
{
    ranks_run(1, 0, starve, NULL);
}

/* ---- operands ---- */

static uint64_t num_exchanges(rank_of_test *self)
{
    pst_comm_info info;
    RANK_OK(pst_comm_get_info(self->comm, &info));
    return info.num_exchanges;
}

/* Neither ranks nor memory have noticed. */
static void check_untouched(rank_of_test *self, const block *of, uint64_t exchanges_before)
{
    pst_scratch_info scratch;
    RANK_OK(pst_scratch_get_info(of->scratch, &scratch));
    RANK_CHECK(num_exchanges(self) == exchanges_before && scratch.num_live == 0);
    RANK_CHECK(((const unsigned char *)of->found.output.base)[0] == 0xff);
    RANK_CHECK(((const unsigned char *)of->found.input_gradient.base)[0] == 0xff);
}

#define REFUSES_OPERANDS(call, change, text)                                      \
    do {                                                                          \
        pst_mlp_operands bad = of.operands;                                       \
        const uint64_t before = num_exchanges(self);                              \
        change;                                                                   \
        REFUSES(pst_mlp_##call(of.mlp, &bad, self->stream), PST_E_INVALID, text); \
        check_untouched(self, &of, before);                                       \
    } while (0)

static void refuse_plain(rank_of_test *self)
{
    block of;
    block_open(&of, &dense, self);
    block_clear(&of, &of.found);
    block_set_pages(&of, false);
    REFUSES(pst_mlp_forward(NULL, &of.operands, NULL), PST_E_INVALID, "mlp is NULL");
    REFUSES(pst_mlp_backward(of.mlp, NULL, NULL), PST_E_INVALID, "operands is NULL");
    REFUSES_OPERANDS(forward, bad.struct_size = 4, "struct_size 4: pst_mlp_operands has 192");
    REFUSES_OPERANDS(forward, bad.padding[0] = 9, "padding[0] 9: must be 0");
    REFUSES_OPERANDS(forward, bad.input = NULL, "input is NULL");
    REFUSES_OPERANDS(forward, bad.up_weight = NULL, "up_weight is NULL");
    REFUSES_OPERANDS(forward, bad.down_weight = NULL, "down_weight is NULL");
    REFUSES_OPERANDS(forward, bad.output = NULL, "output is NULL");
    REFUSES_OPERANDS(forward, bad.hidden = NULL, "hidden is NULL");
    REFUSES_OPERANDS(forward, bad.hidden = (char *)bad.hidden + 4, "must be aligned to 16");
    REFUSES_OPERANDS(forward, bad.output = bad.hidden, "overlaps output at 0x");
    REFUSES_OPERANDS(forward, bad.counts = of.narrow, "of experts only");
    REFUSES_OPERANDS(forward, bad.group = of.group, "must be NULL where there is no ticket");
    REFUSES_OPERANDS(forward, bad.probability_gradient = bad.probability,
                     "probability_gradient: must be NULL in forward");
    REFUSES_OPERANDS(forward, bad.probability.base = (char *)bad.probability.base + 2,
                     "probability at 0x");
    REFUSES_OPERANDS(backward, bad.padding[6] = 9, "padding[6] 9: must be 0");
    REFUSES_OPERANDS(backward, bad.output_gradient = NULL, "output_gradient is NULL");
    REFUSES_OPERANDS(backward, bad.input = NULL, "input is NULL");
    REFUSES_OPERANDS(backward, bad.up_weight = NULL, "up_weight is NULL");
    REFUSES_OPERANDS(backward, bad.down_weight = NULL, "down_weight is NULL");
    REFUSES_OPERANDS(backward, bad.hidden = NULL, "hidden is NULL");
    REFUSES_OPERANDS(backward, bad.down_weight_gradient = bad.up_weight_gradient, "overlaps up_");
    REFUSES_OPERANDS(backward, bad.probability_gradient = bad.probability, "overlap");
    block_close(&of);
}

static void refuse_pages(rank_of_test *self)
{
    block of;
    pst_buffers buffers;
    void *bases[2];
    block_open(&of, &dense, self);
    block_clear(&of, &of.found);
    block_set_pages(&of, true);
    buffers = of.buffers;
    buffers.bases = bases;
    bases[0] = of.other.base;
    bases[1] = of.between.base;
    const int64_t capacity = 5;
    const uint64_t strides[2] = {0, 256};
    REFUSES_OPERANDS(forward, bad.hidden = of.between.base, "with a ticket it is in scratch and");
    REFUSES_OPERANDS(forward, bad.group = NULL, "group is NULL");
    REFUSES_OPERANDS(forward, bad.buffers = NULL, "buffers is NULL");
    REFUSES_OPERANDS(forward, bad.ticket.id = UINT64_MAX, "destroyed, given back or never made");
    REFUSES_OPERANDS(forward, bad.buffers = &buffers, "the GLU's is in scratch, it must be NULL");
    bases[1] = NULL;
    buffers.row_strides = strides;
    REFUSES_OPERANDS(backward, bad.buffers = &buffers, "row stride 256: a row between the layers");
    buffers.row_strides = NULL;
    buffers.capacities = &capacity;
    REFUSES_OPERANDS(forward, bad.buffers = &buffers, "1 segments of 5 rows: must be 1 of 4");
    buffers.capacities = NULL;
    bases[0] = NULL;
    REFUSES_OPERANDS(forward, bad.buffers = &buffers, "source: bases[0] is NULL");
    REFUSES_OPERANDS(backward, bad.buffers = &buffers, "buffers: bases[0] is NULL");
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    options.tail = PST_TAIL_ZERO_ALL;
    REFUSES_OPERANDS(backward, bad.restore = &options, "tail 2: in pst_glu_backward allowed is");
    block_close(&of);
}

PST_TEST(MlpFaults, WrongOperandsAreRefusedBeforeAnythingIsEnqueued)
{
    ranks_run(1, 0, refuse_plain, NULL);
    ranks_run(1, 0, refuse_pages, NULL);
}

static void refuse_ranks(rank_of_test *self)
{
    block of;
    block_open(&of, &dense, self);
    block_clear(&of, &of.found);
    block_set_pages(&of, false);
    REFUSES_OPERANDS(forward, bad.probability.base = (char *)bad.probability.base + 2,
                     "probability at 0x");
    REFUSES_OPERANDS(backward, bad.probability.row_stride = 2, "probability");
    block_close(&of);
}

PST_TEST(MlpFaults, ARefusalOfTheGluComesBeforeTheFirstExchange)
{
    ranks_run(2, 0, refuse_ranks, NULL);
}

static void refuse_experts(rank_of_test *self)
{
    const block_form form = {.dtype = PST_DTYPE_BF16,
                             .of_gradient = PST_DTYPE_BF16,
                             .num_experts = BLOCK_EXPERTS,
                             .tokens = 4,
                             .hidden = 8,
                             .features = 16};
    block of;
    block_open(&of, &form, self);
    block_clear(&of, &of.found);
    block_set_pages(&of, true);
    REFUSES_OPERANDS(forward, bad.counts = NULL, "experts need them");
    REFUSES_OPERANDS(forward, bad.gathered = of.gathered.base, "of blocks with sequence parallel");
    const uint64_t strides[2] = {0, 512};
    pst_buffers buffers = of.buffers;
    buffers.segment_strides = strides;
    REFUSES_OPERANDS(forward, bad.buffers = &buffers, "3 segments of 4 rows: must be 3 of 4, pack");
    block_close(&of);
}

PST_TEST(MlpFaults, ExpertsNeedCountsAndPackedRows)
{
    ranks_run(1, 0, refuse_experts, NULL);
}
