/* Linear layers: what is refused, and what stays behind where a rank, a product or a lease fails. */
#include <pagestash/pagestash.h>

#include <pthread.h>
#include <stdio.h>

#include "host/base/base.h"
#include "tests/host/base/child.h"
#include "tests/host/linear/layer.h"

typedef struct fault_scene {
    layer layer;
    pst_scratch *scratch;
    pst_linear_config config;
    pst_linear *linear;
    pst_linear_operands operands;
} fault_scene;

static layer_form small_form(int num_ranks, pst_linear_kind kind, uint32_t pieces)
{
    return (layer_form){.num_ranks = num_ranks,
                        .kind = kind,
                        .dtype = PST_DTYPE_FP32,
                        .of_gradient = PST_DTYPE_FP32,
                        .pieces = pieces,
                        .sequence_parallel = true,
                        .tokens = 4,
                        .in = 16,
                        .out = 32};
}

static void open_scene(rank_of_test *self, fault_scene *scene, const layer_form *form)
{
    layer_form own = *form;
    if (self->created != PST_OK) {
        /* Late, on a busy machine: a layer without a communicator is of one rank, and as large. */
        psti_test_fail(__FILE__, __LINE__, "rank %d: %s", self->rank, self->message);
        own.num_ranks = 1;
    }
    layer_open(&scene->layer, &own, own.num_ranks == 1 ? 0 : self->rank, self->device);
    RANK_OK(pst_scratch_create(self->device, NULL, &scene->scratch));
    scene->config = layer_config(&scene->layer, self->comm, scene->scratch);
    scene->linear = NULL;
    scene->operands = layer_operands(&scene->layer);
}

/* Nothing is leased and no scope is open: so scratch, and behind it all else, can be destroyed. */
static void close_scene(rank_of_test *self, fault_scene *scene)
{
    pst_scratch_info info;
    RANK_OK(pst_scratch_get_info(scene->scratch, &info));
    RANK_CHECK(info.num_live == 0 && info.leased_bytes == 0);
    RANK_STATUS(pst_scratch_scope_end(scene->scratch), PST_E_ORDER);
    RANK_OK(pst_linear_destroy(scene->linear));
    RANK_OK(pst_scratch_destroy(scene->scratch));
    layer_close(&scene->layer);
}

static bool said(const char *text)
{
    return strstr(pst_last_message(), text) != NULL;
}

/* Of a rank's thread: the message has the text. */
#define RANK_REFUSES(call, status, text)                                                         \
    do {                                                                                         \
        RANK_STATUS(call, status);                                                               \
        if (!said(text))                                                                         \
            psti_test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", pst_last_message(), \
                           text);                                                                \
    } while (0)

/* ---- creation ---- */

#define REFUSES_CONFIG(change, text)                                            \
    do {                                                                        \
        pst_linear_config config = scene.config;                                \
        change;                                                                 \
        RANK_REFUSES(pst_linear_create(&config, &linear), PST_E_INVALID, text); \
    } while (0)

static void refuse_configs(rank_of_test *self)
{
    fault_scene scene;
    pst_linear *linear = NULL;
    pst_linear_bytes bytes;
    const layer_form form = small_form(1, PST_LINEAR_COLUMN, 0);
    open_scene(self, &scene, &form);
    RANK_REFUSES(pst_linear_create(NULL, &linear), PST_E_INVALID, "config is NULL");
    RANK_REFUSES(pst_linear_create(&scene.config, NULL), PST_E_INVALID, "linear_out is NULL");
    REFUSES_CONFIG(config.struct_size++, "struct_size 97: pst_linear_config has 96 bytes");
    REFUSES_CONFIG(config.padding[6] = 77, "padding[6] 77: must be 0");
    REFUSES_CONFIG(config.scratch = NULL, "scratch is NULL");
    REFUSES_CONFIG(config.comm = (pst_comm *)scene.scratch,
                   "comm is a pst_scratch, not a pst_comm");
    REFUSES_CONFIG(config.kind = (pst_linear_kind)2, "kind 2: allowed are column (0) and row (1)");
    REFUSES_CONFIG(config.dtype = PST_DTYPE_INT32, "dtype 3: allowed are bf16, fp16 and fp32");
    REFUSES_CONFIG(config.weight_gradient_dtype = PST_DTYPE_BF16,
                   "weight_gradient_dtype 0: allowed are dtype, 2, and fp32");
    REFUSES_CONFIG(config.pieces = 2, "pieces 2: allowed are 0, one per rank, and 1, whole");
    REFUSES_CONFIG(config.tokens = 0, "tokens 0, in_features 16, out_features 32: each is 1 to");
    REFUSES_CONFIG(config.in_features = UINT64_C(1) << 31, "in_features 2147483648, out_features");
    REFUSES_CONFIG(config.out_features = 0, "in_features 16, out_features 0: each is 1 to");
    REFUSES_CONFIG(config.tokens = config.in_features = INT32_MAX, "have more than 2^45 bytes");
    RANK_CHECK(linear == NULL);
    RANK_REFUSES(pst_linear_get_bytes(NULL, &bytes), PST_E_INVALID, "linear is NULL");
    RANK_OK(pst_linear_create(&scene.config, &scene.linear));
    RANK_REFUSES(pst_linear_get_bytes(scene.linear, NULL), PST_E_INVALID, "bytes_out is NULL");
    RANK_REFUSES(pst_linear_destroy((pst_linear *)scene.scratch), PST_E_INVALID, "pst_scratch");
    RANK_OK(pst_linear_destroy(NULL));
    close_scene(self, &scene);
}

PST_TEST(LinearFaults, WrongConfigsAreRefused)
{
    ranks_run(1, 0, refuse_configs, NULL);
}

static void refuse_shares(rank_of_test *self)
{
    fault_scene scene;
    pst_linear *linear = NULL;
    pst_device *device = NULL;
    pst_scratch *scratch = NULL;
    const layer_form form = small_form(self->num_ranks, PST_LINEAR_COLUMN, 0);
    open_scene(self, &scene, &form);
    RANK_OK(pst_device_open("host", 0, &device));
    RANK_OK(pst_scratch_create(device, NULL, &scratch));
    REFUSES_CONFIG(config.tokens++,
                   "tokens 17: must be a multiple of the 4 ranks with sequence parallelism");
    REFUSES_CONFIG(config.out_features++, "out_features 33: must be a multiple of the 4 ranks");
    REFUSES_CONFIG(config.kind = PST_LINEAR_ROW;
                   config.in_features--, "in_features 15: must be a multiple of the 4 ranks");
    REFUSES_CONFIG(config.scratch = scratch, "comm is of device host, scratch of device host");
    RANK_OK(pst_scratch_destroy(scratch));
    RANK_OK(pst_device_close(device));
    close_scene(self, &scene);
}

PST_TEST(LinearFaults, WhatDoesNotDivideIsRefused)
{
    ranks_run(4, 0, refuse_shares, NULL);
}

/* ---- operands ---- */

#define REFUSES_OPERANDS(call, change, text)                                            \
    do {                                                                                \
        pst_linear_operands operands = scene.operands;                                  \
        change;                                                                         \
        RANK_REFUSES(call(scene.linear, &operands, self->stream), PST_E_INVALID, text); \
    } while (0)

static void refuse_forward(rank_of_test *self)
{
    fault_scene scene;
    const layer_form form = small_form(1, PST_LINEAR_COLUMN, 0);
    open_scene(self, &scene, &form);
    RANK_OK(pst_linear_create(&scene.config, &scene.linear));
    RANK_REFUSES(pst_linear_forward(NULL, &scene.operands, NULL), PST_E_INVALID, "linear is NULL");
    RANK_REFUSES(pst_linear_forward(scene.linear, NULL, NULL), PST_E_INVALID, "operands is NULL");
    REFUSES_OPERANDS(pst_linear_forward, operands.struct_size = 8, "struct_size 8: pst_linear_op");
    REFUSES_OPERANDS(pst_linear_forward, operands.padding[0] = 1, "padding[0] 1: must be 0");
    REFUSES_OPERANDS(pst_linear_forward, operands.input = NULL, "input is NULL");
    REFUSES_OPERANDS(pst_linear_forward, operands.weight = NULL, "weight is NULL");
    REFUSES_OPERANDS(pst_linear_forward, operands.output = NULL, "output is NULL");
    REFUSES_OPERANDS(pst_linear_forward, operands.input = (const char *)operands.input + 4,
                     ": must be aligned to 16");
    REFUSES_OPERANDS(pst_linear_forward, operands.gathered = (char *)scene.layer.gathered.base + 8,
                     "gathered at 0x");
    REFUSES_OPERANDS(pst_linear_forward, operands.input = operands.output, "input at 0x");
    REFUSES_OPERANDS(pst_linear_forward, operands.gathered = operands.output,
                     "overlaps output at 0x");
    REFUSES_OPERANDS(pst_linear_forward, operands.gathered = (char *)(uintptr_t)operands.input + 16,
                     "overlaps gathered at 0x");
    RANK_CHECK(((const unsigned char *)scene.layer.output.base)[0] == 0xff);
    close_scene(self, &scene);
}

static void refuse_backward(rank_of_test *self)
{
    fault_scene scene;
    const layer_form form = small_form(1, PST_LINEAR_ROW, 0);
    open_scene(self, &scene, &form);
    RANK_OK(pst_linear_create(&scene.config, &scene.linear));
    REFUSES_OPERANDS(pst_linear_backward, operands.padding[6] = 1, "padding[6] 1: must be 0");
    REFUSES_OPERANDS(pst_linear_backward, operands.output_gradient = NULL,
                     "output_gradient is NULL");
    REFUSES_OPERANDS(pst_linear_backward, operands.weight = NULL, "weight is NULL");
    REFUSES_OPERANDS(pst_linear_backward, operands.input = NULL, "input is NULL");
    REFUSES_OPERANDS(pst_linear_backward, operands.input_gradient = operands.weight_gradient,
                     "weight_gradient at 0x");
    REFUSES_OPERANDS(pst_linear_backward,
                     operands.weight_gradient = (void *)(uintptr_t)operands.weight,
                     "overlaps weight at 0x");
    REFUSES_OPERANDS(pst_linear_backward, operands.gathered = scene.layer.gathered.base,
                     "of column linears with sequence parallelism only");
    RANK_CHECK(((const unsigned char *)scene.layer.input_gradient.base)[0] == 0xff);
    scene.operands.input_gradient = scene.operands.weight_gradient = NULL;
    scene.operands.output_gradient = NULL;
    RANK_OK(pst_linear_backward(scene.linear, &scene.operands, self->stream));
    close_scene(self, &scene);
}

PST_TEST(LinearFaults, WrongOperandsAreRefused)
{
    ranks_run(1, 0, refuse_forward, NULL);
    ranks_run(1, 0, refuse_backward, NULL);
}

/* ---- ranks that fail ---- */

static pthread_barrier_t gate;

/* One rank is refused; the others wait for it, say so, and have nothing in scratch. */
static void refuse_one(rank_of_test *self)
{
    const unsigned i = *(const unsigned *)self->arg;
    const layer_form form = small_form(4, (pst_linear_kind)(i & 1), i >> 1 & 1);
    fault_scene scene;
    pst_status (*const call)(pst_linear *, const pst_linear_operands *, pst_stream) =
        (i & 4) ? pst_linear_backward : pst_linear_forward;
    open_scene(self, &scene, &form);
    RANK_OK(pst_linear_create(&scene.config, &scene.linear));
    if (self->rank == 2) {
        scene.operands.weight = NULL;
        RANK_REFUSES(call(scene.linear, &scene.operands, self->stream), PST_E_INVALID,
                     "weight is NULL");
        ranks_expire(self, "rank 2", NULL);
    } else {
        RANK_REFUSES(call(scene.linear, &scene.operands, self->stream), PST_E_PEER,
                     "rank 2 did not come within 600000 ms");
    }
    pthread_barrier_wait(&gate);
    close_scene(self, &scene);
}

PST_TEST(LinearFaults, ARankThatIsRefusedHangsNobody)
{
    pthread_barrier_init(&gate, NULL, 4);
    for (unsigned i = 0; i < 8; i++)
        ranks_run(4, SCENE_NEVER, refuse_one, &i);
    pthread_barrier_destroy(&gate);
}

/* A product that fails at its n-th call. */
typedef struct broken_product {
    int calls, fails_at; /* from 1; 0: never */
    pst_comm *aborts;    /* then; NULL: none */
    bool has_stream;
} broken_product;

static pst_status multiply(void *user, pst_device *device, const pst_product *product,
                           pst_stream stream)
{
    broken_product *self = user;
    self->has_stream |= stream != NULL;
    if (++self->calls == self->fails_at && self->aborts)
        pst_comm_abort(self->aborts, "a product is broken on rank 1");
    if (self->calls == self->fails_at)
        return PSTI_FAIL(PST_E_UNSUPPORTED, "product %d is broken", self->calls);
    return pst_product_run(device, product, stream);
}

static int num_done; /* atomic: ranks whose call has returned, without a failure of their own */

static void break_product(rank_of_test *self)
{
    const unsigned i = *(const unsigned *)self->arg;
    layer_form form = small_form(3, (pst_linear_kind)(i & 1), i >> 1 & 1);
    broken_product product = {.fails_at = self->rank == 1 ? 1 + (int)(i >> 3 & 1) : 0,
                              .aborts = (i & 16) ? self->comm : NULL};
    fault_scene scene;
    form.in = form.out = 12;
    open_scene(self, &scene, &form);
    scene.config.product = multiply;
    scene.config.product_user = &product;
    RANK_OK(pst_linear_create(&scene.config, &scene.linear));
    const pst_status status = (i & 4)
                                  ? pst_linear_backward(scene.linear, &scene.operands, self->stream)
                                  : pst_linear_forward(scene.linear, &scene.operands, self->stream);
    if (product.fails_at && product.calls >= product.fails_at) {
        RANK_CHECK(status == PST_E_UNSUPPORTED && said("is broken [lin"));
        if (!product.aborts)
            ranks_expire(self, "rank 1", &num_done);
    } else {
        RANK_CHECK(status == PST_OK || (status == PST_E_PEER && said("rank 1")));
        __atomic_add_fetch(&num_done, 1, __ATOMIC_RELAXED);
    }
    pthread_barrier_wait(&gate);
    close_scene(self, &scene);
}

PST_TEST(LinearFaults, AProductThatFailsLeavesNothingBehind)
{
    pthread_barrier_init(&gate, NULL, 3);
    for (unsigned i = 0; i < 32; i++) {
        num_done = 0;
        ranks_run(3, SCENE_NEVER, break_product, &i);
    }
    pthread_barrier_destroy(&gate);
}

static void count_products(rank_of_test *self)
{
    const layer_form form = small_form(2, PST_LINEAR_COLUMN, 0);
    broken_product product = {.fails_at = 0};
    fault_scene scene;
    pst_graph *graph = NULL;
    open_scene(self, &scene, &form);
    scene.config.product = multiply;
    scene.config.product_user = &product;
    RANK_OK(pst_linear_create(&scene.config, &scene.linear));
    RANK_OK(pst_graph_begin(self->device, self->stream));
    RANK_OK(pst_linear_forward(scene.linear, &scene.operands, self->stream));
    RANK_OK(pst_graph_end(self->device, self->stream, &graph));
    RANK_CHECK(product.calls == 0);
    for (int replay = 1; replay < 3; replay++) {
        layer_clear(&scene.layer);
        RANK_OK(pst_graph_launch(graph, self->stream));
        RANK_CHECK(product.calls == 2 * replay && !product.has_stream);
        RANK_CHECK(tensor_is(&scene.layer.output, &scene.layer.wanted));
    }
    RANK_OK(pst_graph_destroy(graph));
    close_scene(self, &scene);
}

PST_TEST(LinearFaults, ACallersProductRunsAtEachLaunch)
{
    ranks_run(2, 0, count_products, NULL);
}

/* With pieces 0 a ring has a product for each piece, of row's forward one for each half of it. */
static void count_pieces(rank_of_test *self)
{
    for (unsigned i = 0; i < 4; i++) {
        const layer_form form = small_form(4, (pst_linear_kind)(i & 1), i >> 1);
        const bool is_row = i & 1, has_ring = i < 2;
        broken_product product = {.fails_at = 0};
        fault_scene scene;
        open_scene(self, &scene, &form);
        scene.config.product = multiply;
        scene.config.product_user = &product;
        RANK_OK(pst_linear_create(&scene.config, &scene.linear));
        RANK_OK(pst_linear_forward(scene.linear, &scene.operands, self->stream));
        RANK_CHECK(product.calls == (has_ring ? (is_row ? 8 : 4) : 1));
        product.calls = 0;
        RANK_OK(pst_linear_backward(scene.linear, &scene.operands, self->stream));
        RANK_CHECK(product.calls == (has_ring && is_row ? 5 : 2));
        close_scene(self, &scene);
    }
}

PST_TEST(LinearFaults, EachPieceIsMultipliedOnce)
{
    ranks_run(4, 200000, count_pieces, NULL);
}

/* ---- scratch ---- */

static void take_names(rank_of_test *self)
{
    const layer_form form = small_form(2, PST_LINEAR_COLUMN, 0);
    fault_scene scene;
    pst_lease lease;
    open_scene(self, &scene, &form);
    RANK_OK(pst_linear_create(&scene.config, &scene.linear));
    RANK_OK(pst_scratch_lease(scene.scratch, "allgather", 16, "somebody", self->stream, &lease));
    RANK_REFUSES(pst_linear_forward(scene.linear, &scene.operands, self->stream), PST_E_BUSY,
                 "somebody");
    RANK_CHECK(said("pst_linear_forward of a column linear"));
    RANK_REFUSES(pst_linear_backward(scene.linear, &scene.operands, self->stream), PST_E_BUSY,
                 "pst_linear_backward of a column linear");
    RANK_OK(pst_scratch_release(scene.scratch, &lease, "somebody", self->stream));
    RANK_OK(pst_linear_forward(scene.linear, &scene.operands, self->stream));
    RANK_CHECK(tensor_is(&scene.layer.output, &scene.layer.wanted));
    close_scene(self, &scene);
}

PST_TEST(LinearFaults, ANameThatIsTakenIsBusy)
{
    ranks_run(2, 0, take_names, NULL);
}

/* What was leased for a while is no tensor: once it is released, no operand may lie in it. */
static void keep_a_lease(rank_of_test *self)
{
    const layer_form form = small_form(2, PST_LINEAR_COLUMN, 0);
    fault_scene scene;
    pst_lease lease;
    open_scene(self, &scene, &form);
    RANK_OK(pst_linear_create(&scene.config, &scene.linear));
    RANK_OK(pst_scratch_lease(scene.scratch, "mine", 8 * 16 * 4, "test", self->stream, &lease));
    scene.operands.gathered = lease.address;
    RANK_OK(pst_linear_forward(scene.linear, &scene.operands, self->stream));
    RANK_OK(pst_scratch_release(scene.scratch, &lease, "the forward", self->stream));
    RANK_REFUSES(pst_linear_backward(scene.linear, &scene.operands, self->stream), PST_E_INVALID,
                 "lies in scratch 'mine', which is not leased: released by the forward");
    close_scene(self, &scene);
}

PST_TEST(LinearFaults, OperandsDoNotLieInScratchThatNobodyLeases)
{
    ranks_run(2, 0, keep_a_lease, NULL);
}

/* What a layer leases is there when it is made; trimmed, it would have to grow. */
static void trim(rank_of_test *self)
{
    layer_form form = small_form(2, PST_LINEAR_ROW, 1);
    fault_scene scene;
    pst_linear_bytes bytes = {0};
    pst_scratch_info info;
    form.tokens = 512; /* more than what memory is rounded up to */
    pst_graph *graph = NULL;
    open_scene(self, &scene, &form);
    RANK_OK(pst_linear_create(&scene.config, &scene.linear));
    RANK_OK(pst_scratch_get_info(scene.scratch, &info));
    RANK_OK(pst_linear_get_bytes(scene.linear, &bytes));
    RANK_CHECK(info.num_names == 2 && info.num_leases == 0);
    RANK_CHECK(bytes.forward_scratch == 1024 * 32 * 4);
    RANK_CHECK(info.mapped_bytes >= bytes.forward_scratch + bytes.backward_scratch);
    RANK_OK(pst_scratch_trim(scene.scratch));
    RANK_OK(pst_graph_begin(self->device, self->stream));
    RANK_STATUS(pst_linear_forward(scene.linear, &scene.operands, self->stream), PST_E_CAPTURE);
    RANK_STATUS(pst_linear_backward(scene.linear, &scene.operands, self->stream), PST_E_CAPTURE);
    RANK_OK(pst_graph_end(self->device, self->stream, &graph));
    RANK_OK(pst_graph_destroy(graph));
    close_scene(self, &scene);
}

PST_TEST(LinearFaults, ACaptureDoesNotGrowScratch)
{
    ranks_run(2, 0, trim, NULL);
}

/* ---- memory ---- */

/* Every allocation of creation fails once, and every one of a captured call. */
static void starve(rank_of_test *self)
{
    const layer_form form = small_form(1, PST_LINEAR_COLUMN, 0);
    fault_scene scene;
    pst_status status = PST_E_NOMEM;
    open_scene(self, &scene, &form);
    for (long n = 0; status != PST_OK && n < 20; n++) {
        psti_fail_allocation_after(n);
        status = pst_linear_create(&scene.config, &scene.linear);
        psti_fail_allocation_after(-1);
        RANK_CHECK(status == PST_OK || (status == PST_E_NOMEM && n < 19));
    }
    for (long n = 0, failed = 1; failed && n < 40; n++) {
        pst_graph *graph = NULL;
        RANK_OK(pst_graph_begin(self->device, self->stream));
        psti_fail_allocation_after(n);
        failed = pst_linear_forward(scene.linear, &scene.operands, self->stream) != PST_OK;
        psti_fail_allocation_after(-1);
        status = pst_graph_end(self->device, self->stream, &graph);
        RANK_CHECK(n < 39 && (failed || status == PST_OK) && (n > 0 || failed));
        RANK_OK(pst_graph_destroy(graph));
    }
    close_scene(self, &scene);
}

PST_TEST(LinearFaults, WithoutMemoryNothingIsLeft)
{
    ranks_run(1, 0, starve, NULL);
}

/* ---- PAGESTASH_CHECK=1 ---- */

/* Rank 2 has another number of features. */
static void disagree(rank_of_test *self)
{
    layer_form form = small_form(4, PST_LINEAR_COLUMN, 0);
    fault_scene scene;
    open_scene(self, &scene, &form);
    RANK_OK(pst_linear_create(&scene.config, &scene.linear));
    RANK_OK(pst_linear_forward(scene.linear, &scene.operands, self->stream));
    RANK_CHECK(tensor_is(&scene.layer.output, &scene.layer.wanted));
    RANK_OK(pst_linear_destroy(scene.linear));
    scene.linear = NULL;
    if (self->rank == 2)
        scene.config.in_features = 24;
    RANK_REFUSES(
        pst_linear_create(&scene.config, &scene.linear), PST_E_INVALID,
        "in_features: rank 0 has 16, rank 2 has 24: the ranks must make the same layers in "
        "the same order");
    scene.config.in_features = 16;
    scene.config.sequence_parallel = self->rank != 0;
    RANK_REFUSES(pst_linear_create(&scene.config, &scene.linear), PST_E_INVALID,
                 "sequence_parallel: rank 0 has 0, rank 1 has 1");
    close_scene(self, &scene);
}

/* What one rank alone would refuse, and what all refuse: each says the same. */
static void refuse_differently(rank_of_test *self)
{
    const layer_form form = small_form(4, PST_LINEAR_COLUMN, 0);
    const uint64_t odd = self->rank == 2;
    fault_scene scene;
    pst_linear *linear = NULL;
    open_scene(self, &scene, &form);
    REFUSES_CONFIG(config.tokens += odd, "tokens: rank 0 has 16, rank 2 has 17: the ranks must");
    REFUSES_CONFIG(config.out_features += odd, "out_features: rank 0 has 32, rank 2 has 33");
    REFUSES_CONFIG(config.in_features *= 1 - odd, "in_features: rank 0 has 16, rank 2 has 0");
    REFUSES_CONFIG(config.dtype = odd ? PST_DTYPE_INT32 : PST_DTYPE_FP32,
                   "dtype: rank 0 has 2, rank 2 has 3");
    REFUSES_CONFIG(config.pieces = odd ? 2 : 1, "pieces: rank 0 has 1, rank 2 has 2");
    REFUSES_CONFIG(config.tokens++, "tokens 17: must be a multiple of the 4 ranks");
    RANK_OK(pst_linear_create(&scene.config, &scene.linear)); /* the communicator is whole */
    close_scene(self, &scene);
}

PST_CHILD(linear_ranks)
{
    ranks_run(4, 200000, disagree, NULL);
    ranks_run(4, 200000, refuse_differently, NULL);
    puts(psti_test_failed() ? "failed" : "done");
}

PST_TEST(LinearFaults, RanksThatDisagreeAreToldSo)
{
    static const char *const variables[] = {"PAGESTASH_CHECK=1", NULL};
    child_result child;
    CHECK(child_run("linear_ranks", variables, &child));
    CHECK_STR(child.out, "done\n");
    CHECK(child.exited);
}
