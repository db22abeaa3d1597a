/* What travels beside a product: no rank waits for another one's product before it begins its next one, and what
 * was started has come before the product ends. The products' function waits for both, and looks. */
#include <pagestash/scratch.h>

#include <string.h>
#include <time.h>

#include "tests/host/linear/layer.h"

enum { RANKS = 4, MAX_CALLS = 2 * RANKS, WAIT_MS = 200000 };

typedef struct watch {
    rank_of_test *self;
    layer layer;
    pst_scratch *scratch;
    void (*look)(struct watch *watch, int call); /* in the product of that number, behind it */
    int num_calls, wanted_calls;
    const float *gathered, *sums[MAX_CALLS]; /* in scratch */
} watch;

/* Until rank 0 has begun so many products, for WAIT_MS at most. An exchange that kept a rank from its next
 * product until all have come to it would keep rank 0 from that. */
static void wait_for_first(rank_of_test *self, int num_calls)
{
    const int *begun = self->arg;
    const struct timespec rest = {0, 100000};
    int waits = 0;
    while (__atomic_load_n(begun, __ATOMIC_ACQUIRE) < num_calls && waits++ < 10 * WAIT_MS)
        nanosleep(&rest, NULL);
    RANK_CHECK(__atomic_load_n(begun, __ATOMIC_ACQUIRE) >= num_calls);
}

static pst_status multiply(void *user, pst_device *device, const pst_product *product,
                           pst_stream stream)
{
    watch *of = user;
    rank_of_test *self = of->self;
    const int call = of->num_calls++;
    RANK_CHECK(call < MAX_CALLS);
    if (of->look && self->rank == 0)
        __atomic_add_fetch((int *)self->arg, 1, __ATOMIC_RELEASE);
    else if (of->look && call + 1 < of->wanted_calls)
        wait_for_first(self, call + 2);
    if (!of->look)
        of->sums[call % MAX_CALLS] = product->c.base;
    RANK_OK(pst_product_run(device, product, stream));
    RANK_OK(pst_comm_wait(self->comm, stream, WAIT_MS));
    if (of->look)
        of->look(of, call);
    return PST_OK;
}

static bool is_written(const float *memory, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &memory[i], sizeof(bits));
        if (bits == UINT32_MAX)
            return false;
    }
    return true;
}

/* The address of a name's buffer, which never moves, and which no longer holds what was there. */
static const float *clear_scratch(watch *of, const char *name, uint64_t bytes)
{
    rank_of_test *self = of->self;
    pst_lease lease = {0};
    RANK_OK(pst_scratch_lease(of->scratch, name, bytes, "test", self->stream, &lease));
    const float *address = lease.address;
    memset(lease.address, 0xff, bytes);
    RANK_OK(pst_scratch_release(of->scratch, &lease, "test", self->stream));
    return address;
}

static layer_form form_of(pst_linear_kind kind)
{
    return (layer_form){.num_ranks = RANKS,
                        .kind = kind,
                        .dtype = PST_DTYPE_FP32,
                        .of_gradient = PST_DTYPE_FP32,
                        .sequence_parallel = true,
                        .tokens = 4,
                        .in = 16,
                        .out = 32};
}

static uint64_t bytes_of(const layer_tensor *tensor)
{
    return tensor->rows * tensor->columns * sizeof(float);
}

static pst_linear *open_watch(watch *of, rank_of_test *self, pst_linear_kind kind)
{
    const layer_form form = form_of(kind);
    pst_linear *linear = NULL;
    *of = (watch){.self = self};
    layer_open(&of->layer, &form, self->rank, self->device);
    RANK_OK(pst_scratch_create(self->device, NULL, &of->scratch));
    pst_linear_config config = layer_config(&of->layer, self->comm, of->scratch);
    config.product = multiply;
    config.product_user = of;
    RANK_OK(pst_linear_create(&config, &linear));
    return linear;
}

/* Of so many products in the next call, which rank 0 is the first to come to. */
static void begin(watch *of, void (*look)(watch *of, int call), int wanted_calls)
{
    of->look = look;
    of->num_calls = 0;
    of->wanted_calls = wanted_calls;
    if (of->self->rank != 0)
        wait_for_first(of->self, 1);
}

static void close_watch(watch *of, pst_linear *linear)
{
    rank_of_test *self = of->self;
    RANK_CHECK(of->num_calls == of->wanted_calls);
    RANK_OK(pst_linear_destroy(linear));
    RANK_OK(pst_scratch_destroy(of->scratch));
    layer_close(&of->layer);
}

/* ---- rings that gather ---- */

/* The piece of the next product is there when this one ends. */
static void look_for_piece(watch *of, int call)
{
    rank_of_test *self = of->self;
    const layer *of_rank = &of->layer;
    const bool is_column = of_rank->form.kind == PST_LINEAR_COLUMN;
    const layer_tensor *all = is_column ? &of_rank->all_input : &of_rank->all_gradient;
    const uint64_t piece = (uint64_t)(self->rank - call - 1 + 2 * RANKS) % RANKS;
    const uint64_t count = of_rank->form.tokens * all->columns;
    if (call < RANKS)
        RANK_CHECK(memcmp(of->gathered + piece * count, (float *)all->base + piece * count,
                          count * sizeof(float)) == 0);
}

static void gather_forward(rank_of_test *self)
{
    watch of;
    pst_linear *linear = open_watch(&of, self, PST_LINEAR_COLUMN);
    pst_linear_operands operands = layer_operands(&of.layer);
    operands.gathered = of.layer.gathered.base;
    of.gathered = of.layer.gathered.base;
    begin(&of, look_for_piece, RANKS);
    RANK_OK(pst_linear_forward(linear, &operands, self->stream));
    RANK_CHECK(tensor_is(&of.layer.output, &of.layer.wanted));
    close_watch(&of, linear);
}

PST_TEST(LinearOverlap, ColumnsForwardGathersBesideProducts)
{
    int begun = 0;
    ranks_run(RANKS, WAIT_MS, gather_forward, &begun);
}

static void gather_backward(rank_of_test *self)
{
    watch of;
    pst_linear *linear = open_watch(&of, self, PST_LINEAR_ROW);
    const pst_linear_operands operands = layer_operands(&of.layer);
    of.gathered = clear_scratch(&of, "allgather", bytes_of(&of.layer.all_gradient));
    begin(&of, look_for_piece, RANKS + 1);
    RANK_OK(pst_linear_backward(linear, &operands, self->stream));
    RANK_CHECK(tensor_is(&of.layer.input_gradient, &of.layer.wanted_input));
    close_watch(&of, linear);
}

PST_TEST(LinearOverlap, RowsBackwardGathersBesideProducts)
{
    int begun = 0;
    ranks_run(RANKS, WAIT_MS, gather_backward, &begun);
}

/* ---- the ring that sums ---- */

/* What the next half begins with has come when this one ends. */
static void look_for_sum(watch *of, int call)
{
    rank_of_test *self = of->self;
    const layer *of_rank = &of->layer;
    if (call >= 1 && call + 1 < 2 * RANKS)
        RANK_CHECK(is_written(of->sums[call + 1], of_rank->form.tokens / 2 * of_rank->form.out));
}

static void sum_forward(rank_of_test *self)
{
    watch of;
    pst_linear *linear = open_watch(&of, self, PST_LINEAR_ROW);
    const pst_linear_operands operands = layer_operands(&of.layer);
    RANK_OK(pst_linear_forward(linear, &operands, self->stream)); /* says where the sums come */
    layer_clear(&of.layer);
    clear_scratch(&of, "reduce_scatter", 2 * bytes_of(&of.layer.output));
    begin(&of, look_for_sum, 2 * RANKS);
    RANK_OK(pst_linear_forward(linear, &operands, self->stream));
    RANK_CHECK(tensor_is(&of.layer.output, &of.layer.wanted));
    close_watch(&of, linear);
}

PST_TEST(LinearOverlap, RowsForwardSumsBesideProducts)
{
    int begun = 0;
    ranks_run(RANKS, WAIT_MS, sum_forward, &begun);
}

/* ---- backward of a column ---- */

/* The first product is the input's gradient, beside the gather; the other one the weight's. */
static void look_for_backward(watch *of, int call)
{
    rank_of_test *self = of->self;
    const layer *of_rank = &of->layer;
    if (call == 0)
        RANK_CHECK(memcmp(of->gathered, of_rank->all_input.base, bytes_of(&of_rank->all_input)) ==
                   0);
    else
        RANK_CHECK(tensor_is(&of_rank->input_gradient, &of_rank->wanted_input));
}

static void column_backward(rank_of_test *self)
{
    watch of;
    pst_linear *linear = open_watch(&of, self, PST_LINEAR_COLUMN);
    const pst_linear_operands operands = layer_operands(&of.layer);
    of.gathered = clear_scratch(&of, "allgather", bytes_of(&of.layer.all_input));
    begin(&of, look_for_backward, 2);
    RANK_OK(pst_linear_backward(linear, &operands, self->stream));
    RANK_CHECK(tensor_is(&of.layer.weight_gradient, &of.layer.wanted_weight));
    close_watch(&of, linear);
}

PST_TEST(LinearOverlap, ColumnsBackwardGathersAndScattersBesideProducts)
{
    int begun = 0;
    ranks_run(RANKS, WAIT_MS, column_backward, &begun);
}
