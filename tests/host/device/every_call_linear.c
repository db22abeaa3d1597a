/* Cases of every_call.h: products, layers and blocks of one rank. */
#include "tests/host/device/every_call.h"
#include "tests/host/linear/block.h"

/* ---- products and layers ---- */

static layer rows;
static pst_linear *linear;

static const layer_form form = {.num_ranks = 1,
                                .kind = PST_LINEAR_COLUMN,
                                .dtype = PST_DTYPE_FP32,
                                .of_gradient = PST_DTYPE_FP32,
                                .sequence_parallel = true,
                                .tokens = 4,
                                .in = 16,
                                .out = 32};

static pst_status create_linear(pst_linear **linear_out)
{
    const pst_linear_config config = layer_config(&rows, call_has.comm, call_has.scratch);
    return pst_linear_create(&config, linear_out);
}

static void open_linear_room(pst_device *device)
{
    call_open_comm(device);
    CHECK_OK(pst_scratch_create(device, NULL, &call_has.scratch));
    layer_open(&rows, &form, 0, device);
    CHECK_OK(create_linear(&linear));
}

static void close_linear_room(void)
{
    CHECK_OK(pst_linear_destroy(linear));
    CHECK_OK(pst_scratch_destroy(call_has.scratch));
    layer_close(&rows);
    call_close_comm();
}

static const call_room linears = {open_linear_room, call_check_scratch, call_check_scratch,
                                  close_linear_room};

static pst_status product_run(void)
{
    pst_product product = PST_PRODUCT_INIT;
    product.m = 4;
    product.n = 32;
    product.k = 16;
    product.a = (pst_matrix){.base = rows.input.base, .row_stride = 64, .dtype = PST_DTYPE_FP32};
    product.b = (pst_matrix){
        .base = rows.weight.base, .row_stride = 64, .dtype = PST_DTYPE_FP32, .is_transposed = true};
    product.d = (pst_matrix){.base = rows.output.base, .row_stride = 128, .dtype = PST_DTYPE_FP32};
    return pst_product_run(call_has.device, &product, call_has.stream);
}

static void check_output(void)
{
    CHECK(tensor_is(&rows.output, &rows.wanted));
    call_check_scratch();
}

static pst_status linear_create(void)
{
    return create_linear((pst_linear **)&call_has.made);
}

static void destroy_made_linear(void)
{
    CHECK_OK(pst_linear_destroy(call_has.made));
}

static pst_status linear_destroy(void)
{
    pst_linear *given = linear;
    linear = NULL;
    return pst_linear_destroy(given);
}

static pst_status linear_get_bytes(void)
{
    pst_linear_bytes bytes;
    return pst_linear_get_bytes(linear, &bytes);
}

static pst_status linear_forward(void)
{
    const pst_linear_operands operands = layer_operands(&rows);
    return pst_linear_forward(linear, &operands, call_has.stream);
}

static pst_status linear_backward(void)
{
    const pst_linear_operands operands = layer_operands(&rows);
    return pst_linear_backward(linear, &operands, call_has.stream);
}

static void check_gradients(void)
{
    CHECK(tensor_is(&rows.input_gradient, &rows.wanted_input));
    CHECK(tensor_is(&rows.weight_gradient, &rows.wanted_weight));
    call_check_scratch();
}

/* ---- blocks, and the gated activation between their layers, with pages ---- */

static rank_of_test only;
static block of;
static layer_tensor activated; /* of the GLU alone */

static const block_form small_block = {.dtype = PST_DTYPE_FP32,
                                       .of_gradient = PST_DTYPE_FP32,
                                       .sequence_parallel = true,
                                       .has_probability = true,
                                       .tokens = 4,
                                       .hidden = 16,
                                       .features = 16};

static void open_block_room(pst_device *device)
{
    call_open_comm(device);
    only = (rank_of_test){
        .num_ranks = 1, .device = device, .stream = call_has.stream, .comm = call_has.comm};
    block_open(&of, &small_block, &only);
    block_set_pages(&of, true);
    block_want(&of);
    activated = tensor_make(of.rows, small_block.features, PST_DTYPE_FP32);
    call_has.scratch = of.scratch;
}

static void check_block(void)
{
    pst_pool_status status;
    call_check_scratch();
    CHECK_OK(pst_pool_check(of.pool, NULL));
    CHECK_OK(pst_pool_step(of.pool, NULL));
    CHECK_OK(pst_pool_poll(of.pool, &status));
    CHECK_EQ(status.num_faults + status.check_errors, 0);
}

static void revive_block(void)
{
    CHECK_OK(pst_pool_reset(of.pool, PST_RESET_ALL, NULL));
    check_block();
}

/* What the ticket holds is given up. */
static void close_block_room(void)
{
    CHECK_OK(pst_pool_reset(of.pool, PST_RESET_ALL, NULL));
    tensor_free(&activated);
    block_close(&of);
    call_close_comm();
}

static const call_room blocks = {open_block_room, check_block, revive_block, close_block_room};

/* Scratch that has no buffers yet. */
static void prepare_scratch(void)
{
    CHECK_OK(pst_mlp_destroy(of.mlp));
    of.mlp = NULL;
    CHECK_OK(pst_scratch_destroy(of.scratch));
    CHECK_OK(pst_scratch_create(call_has.device, NULL, &of.scratch));
    call_has.scratch = of.up.scratch = of.down.scratch = of.scratch;
}

static pst_status mlp_create(void)
{
    pst_mlp_config config = PST_MLP_CONFIG_INIT;
    config.up = &of.up;
    config.down = &of.down;
    config.glu = &of.glu;
    return pst_mlp_create(&config, (pst_mlp **)&call_has.made);
}

static void destroy_made_mlp(void)
{
    CHECK_OK(pst_mlp_destroy(call_has.made));
}

static pst_status mlp_destroy(void)
{
    pst_mlp *given = of.mlp;
    of.mlp = NULL;
    return pst_mlp_destroy(given);
}

static pst_status mlp_get_bytes(void)
{
    pst_linear_bytes bytes;
    return pst_mlp_get_bytes(of.mlp, &bytes);
}

static pst_status mlp_forward(void)
{
    return pst_mlp_forward(of.mlp, &of.operands, call_has.stream);
}

static pst_status mlp_backward(void)
{
    return pst_mlp_backward(of.mlp, &of.operands, call_has.stream);
}

static void prepare_backward(void)
{
    CHECK_OK(mlp_forward());
}

static void check_whole_block(void)
{
    CHECK(block_is_right(&of));
    check_block();
}

static void run_backward(void)
{
    CHECK_OK(mlp_backward());
    check_whole_block();
}

/* ---- the activation alone: zeros in, zeros out ---- */

static pst_glu_operands glu_operands(bool is_backward)
{
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    operands.output.base = activated.base;
    if (is_backward) {
        operands.gradient.base = of.input.base; /* any numbers, of as many columns */
        operands.input_gradient.base = of.between.base;
    }
    return operands;
}

static pst_status glu_forward(void)
{
    const pst_glu_operands operands = glu_operands(false);
    void *const bases[] = {of.bases[0], of.between.base};
    pst_buffers buffers = of.buffers;
    buffers.bases = bases;
    return pst_glu_forward(call_has.device, &of.glu, of.ticket, of.group, &buffers, &operands, NULL,
                           call_has.stream);
}

static pst_status glu_backward(void)
{
    const pst_glu_operands operands = glu_operands(true);
    return pst_glu_backward(call_has.device, &of.glu, of.ticket, of.group, &of.buffers, &operands,
                            NULL, call_has.stream);
}

static bool is_all(const layer_tensor *tensor, double value)
{
    for (uint64_t r = 0; r < tensor->rows; r++)
        for (uint64_t c = 0; c < tensor->columns; c++)
            if (tensor_get(tensor, r, c) != value)
                return false;
    return true;
}

static void prepare_glu(void)
{
    memset(of.between.base, 0, of.between.rows * of.between.columns * 4);
    memset(activated.base, 0xff, activated.rows * activated.columns * 4);
}

static void prepare_glu_backward(void)
{
    prepare_glu();
    CHECK_OK(glu_forward());
    memset(of.between.base, 0xff, of.between.rows * of.between.columns * 4);
}

static void check_activated(void)
{
    CHECK(is_all(&activated, 0));
    check_block();
}

static void check_gradient(void)
{
    CHECK(is_all(&of.between, 0)); /* silu'(0) times ups that are 0, silu(0) */
    check_block();
}

static const call_case cases[] = {
    {"pst_product_run", &linears, NULL, product_run, check_output, CALL_FAILS},
    /* of one rank, which gathers nothing and needs no scratch; a block does */
    {"pst_linear_create", &linears, NULL, linear_create, destroy_made_linear, CALL_NONE},
    {"pst_linear_destroy", &linears, NULL, linear_destroy, NULL, CALL_NONE},
    {"pst_linear_get_bytes", &linears, NULL, linear_get_bytes, NULL, CALL_NONE},
    {"pst_linear_forward", &linears, NULL, linear_forward, check_output, CALL_FAILS},
    {"pst_linear_backward", &linears, NULL, linear_backward, check_gradients, CALL_FAILS},
    {"pst_mlp_create", &blocks, prepare_scratch, mlp_create, destroy_made_mlp, CALL_FAILS},
    {"pst_mlp_destroy", &blocks, NULL, mlp_destroy, NULL, CALL_NONE},
    {"pst_mlp_get_bytes", &blocks, NULL, mlp_get_bytes, NULL, CALL_NONE},
    {"pst_mlp_forward", &blocks, NULL, mlp_forward, run_backward, CALL_BREAKS},
    {"pst_mlp_backward", &blocks, prepare_backward, mlp_backward, check_whole_block, CALL_BREAKS},
    {"pst_glu_forward", &blocks, prepare_glu, glu_forward, check_activated, CALL_FAILS},
    {"pst_glu_backward", &blocks, prepare_glu_backward, glu_backward, check_gradient, CALL_FAILS},
};

const call_table linear_calls = {cases, sizeof(cases) / sizeof(cases[0])};
