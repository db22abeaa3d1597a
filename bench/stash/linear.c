/* Tensor-parallel linears: the products and the exchanges of a call by themselves, in pieces as rings have
 * them, and together. On host the ranks are threads; on cuda there is one, which exchanges with itself. */
#include "bench/stash/measure.h"
#include "bench/stash/rig.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_RANKS = 4, MAX_MATRICES = 8 };
#define CUDA_WORKSPACE (UINT64_C(32) << 20) /* what cuBLAS advises on an H100 */

typedef struct form {
    const char *name;
    pst_linear_kind kind;
    bool is_backward;
    pst_dtype dtype;
} form;

static const form forms[] = {
    {"column forward fp32", PST_LINEAR_COLUMN, false, PST_DTYPE_FP32},
    {"row forward fp32", PST_LINEAR_ROW, false, PST_DTYPE_FP32},
    {"column backward fp32", PST_LINEAR_COLUMN, true, PST_DTYPE_FP32},
    {"row backward fp32", PST_LINEAR_ROW, true, PST_DTYPE_FP32},
    {"column forward bf16", PST_LINEAR_COLUMN, false, PST_DTYPE_BF16},
    {"row forward bf16", PST_LINEAR_ROW, false, PST_DTYPE_BF16},
};
enum { NUM_FORMS = sizeof(forms) / sizeof(forms[0]), QUICK_FORMS = 2 };

/* What is timed, in turn. */
typedef enum step {
    COPY,     /* memcpy of what is gathered, or summed */
    NOTHING,  /* an exchange of one element for each rank */
    PRODUCTS, /* whole */
    PIECES,   /* the same products in the pieces of a ring */
    EXCHANGE,
    LAYER, /* pieces 1 */
    RING,  /* pieces 0 */
    NUM_STEPS
} step;

typedef struct shared {
    const form *form;
    int num_ranks;
    pst_comm_id id;
    uint64_t tokens, in, out;
    uint32_t samples;
    pthread_barrier_t together;
    bench_series series[NUM_STEPS], hidden;
    bool has_products;
} shared;

typedef struct rank {
    shared *all;
    int number, code;
    pthread_t thread;
    pst_device *device;
    pst_stream stream;
    pst_comm *comm;
    pst_scratch *scratch;
    pst_linear *linears[2]; /* pieces 0, 1 */
    pst_linear_operands operands;
    uint64_t rows, columns, size; /* of this rank's weight */
    uint64_t wide;                /* elements of a row that ranks exchange */
    void *whole, *part;           /* what is gathered or summed, and this rank's share */
    uint64_t workspace_bytes;     /* of products */
    void *workspace;
    void *memory[MAX_MATRICES];
    int num_matrices;
} rank;

/* ---- what a rank has ---- */

static int take(rank *self, uint64_t num_elements, void **address_out)
{
    TOOL_PST(pst_device_alloc(self->device, num_elements * self->size, address_out));
    self->memory[self->num_matrices++] = *address_out;
    return tool_status(
        pst_device_fill(self->device, *address_out, 0, num_elements * self->size, self->stream));
}

static int make_linears(rank *self)
{
    const shared *all = self->all;
    for (uint32_t pieces = 0; pieces < 2 && all->has_products; pieces++) {
        pst_linear_config config = PST_LINEAR_CONFIG_INIT;
        config.kind = all->form->kind;
        config.dtype = config.weight_gradient_dtype = all->form->dtype;
        config.pieces = pieces;
        config.sequence_parallel = true;
        config.tokens = all->tokens;
        config.in_features = all->in;
        config.out_features = all->out;
        config.comm = self->comm;
        config.scratch = self->scratch;
        config.workspace_bytes = self->workspace_bytes;
        TOOL_PST(pst_linear_create(&config, &self->linears[pieces]));
    }
    return TOOL_OK;
}

static int make_matrices(rank *self)
{
    const shared *all = self->all;
    const bool is_column = all->form->kind == PST_LINEAR_COLUMN;
    const uint64_t local = all->tokens / (uint64_t)all->num_ranks;
    const uint64_t inputs = (is_column ? local : all->tokens) * self->columns;
    const uint64_t outputs = (is_column ? all->tokens : local) * self->rows;
    void *input, *weight, *input_gradient, *weight_gradient;
    pst_linear_operands *operands = &self->operands;
    TOOL_TRY(take(self, inputs, &input));
    TOOL_TRY(take(self, self->rows * self->columns, &weight));
    TOOL_TRY(take(self, outputs, &operands->output));
    TOOL_TRY(take(self, inputs, &input_gradient));
    TOOL_TRY(take(self, self->rows * self->columns, &weight_gradient));
    TOOL_TRY(take(self, all->tokens * self->wide, &self->whole));
    TOOL_TRY(take(self, local * self->wide, &self->part));
    if (self->workspace_bytes > 0)
        TOOL_TRY(take(self, self->workspace_bytes / self->size, &self->workspace));
    operands->input = input;
    operands->weight = weight;
    operands->output_gradient = operands->output; /* backward reads it, forward writes it */
    operands->input_gradient = input_gradient;
    operands->weight_gradient = weight_gradient;
    return TOOL_OK;
}

static int open_rank(rank *self)
{
    const shared *all = self->all;
    const bool is_column = all->form->kind == PST_LINEAR_COLUMN;
    pst_device_info info;
    pst_comm_config config = PST_COMM_CONFIG_INIT;
    config.id = all->id;
    config.num_ranks = all->num_ranks;
    config.rank = self->number;
    self->operands = (pst_linear_operands)PST_LINEAR_OPERANDS_INIT;
    TOOL_PST(pst_device_get_info(self->device, &info));
    self->workspace_bytes = info.kind == PST_DEVICE_CUDA ? CUDA_WORKSPACE : 0;
    self->size = all->form->dtype == PST_DTYPE_FP32 ? 4 : 2;
    self->rows = all->out / (uint64_t)(is_column ? all->num_ranks : 1);
    self->columns = all->in / (uint64_t)(is_column ? 1 : all->num_ranks);
    self->wide = is_column ? all->in : all->out;
    TOOL_PST(pst_stream_create(self->device, &self->stream));
    TOOL_PST(pst_comm_create(self->device, &config, &self->comm));
    TOOL_PST(pst_scratch_create(self->device, NULL, &self->scratch));
    TOOL_TRY(make_linears(self));
    return make_matrices(self);
}

static int close_rank(rank *self)
{
    for (int i = 0; i < 2; i++)
        TOOL_PST(pst_linear_destroy(self->linears[i]));
    TOOL_PST(pst_scratch_destroy(self->scratch));
    TOOL_PST(pst_comm_destroy(self->comm));
    for (int i = 0; i < self->num_matrices; i++)
        TOOL_PST(pst_device_free(self->device, self->memory[i]));
    return tool_status(pst_stream_destroy(self->device, self->stream));
}

/* ---- the parts of a call ---- */

static pst_matrix packed(const rank *self, const void *base, uint64_t columns, bool is_transposed)
{
    return (pst_matrix){.base = (void *)(uintptr_t)base,
                        .row_stride = columns * self->size,
                        .dtype = self->all->form->dtype,
                        .is_transposed = is_transposed};
}

typedef struct sizes {
    uint64_t m, n, k;
} sizes;

static pst_status multiply(const rank *self, sizes of, pst_matrix a, pst_matrix b, void *d)
{
    pst_product product = PST_PRODUCT_INIT;
    product.m = of.m;
    product.n = of.n;
    product.k = of.k;
    product.a = a;
    product.b = b;
    product.d = packed(self, d, of.n, false);
    product.workspace = self->workspace;
    product.workspace_bytes = self->workspace_bytes;
    return pst_product_run(self->device, &product, self->stream);
}

/* So many rows of the output, or of the input's gradient, from memory that has them whole. */
static pst_status multiply_rows(rank *self, uint64_t rows)
{
    const bool is_column = self->all->form->kind == PST_LINEAR_COLUMN;
    const pst_linear_operands *of = &self->operands;
    const pst_matrix weight =
        packed(self, of->weight, self->columns, !self->all->form->is_backward);
    const sizes forward = {rows, self->rows, self->columns};
    const sizes backward = {rows, self->columns, self->rows};
    if (!self->all->form->is_backward)
        return multiply(self, forward,
                        packed(self, is_column ? self->whole : of->input, self->columns, false),
                        weight, is_column ? of->output : self->whole);
    return multiply(self, backward,
                    packed(self, is_column ? of->output_gradient : self->whole, self->rows, false),
                    weight, is_column ? self->whole : of->input_gradient);
}

static pst_status multiply_weight(const rank *self)
{
    const bool is_column = self->all->form->kind == PST_LINEAR_COLUMN;
    const pst_linear_operands *of = &self->operands;
    const sizes weight = {self->rows, self->columns, self->all->tokens};
    const void *gradient = is_column ? of->output_gradient : self->whole;
    const void *input = is_column ? self->whole : of->input;
    return multiply(self, weight, packed(self, gradient, self->rows, true),
                    packed(self, input, self->columns, false), of->weight_gradient);
}

/* Pieces: of a ring that gathers one for each rank, of one that sums two; column's backward has none. */
static pst_status run_products(rank *self, bool in_pieces)
{
    const form *of = self->all->form;
    const bool is_column = of->kind == PST_LINEAR_COLUMN, is_backward = of->is_backward;
    const uint64_t ranks = (uint64_t)self->all->num_ranks;
    const uint64_t pieces = is_column && is_backward   ? 1
                            : is_column || is_backward ? ranks
                                                       : 2 * ranks;
    const uint64_t num = in_pieces ? pieces : 1;
    pst_status status = PST_OK;
    for (uint64_t i = 0; i < num && status == PST_OK; i++)
        status = multiply_rows(self, self->all->tokens / num);
    return status == PST_OK && is_backward ? multiply_weight(self) : status;
}

/* Forward exchanges once; column's backward gathers, and sums. */
static pst_status run_exchange(rank *self, uint64_t count)
{
    const form *of = self->all->form;
    const bool is_column = of->kind == PST_LINEAR_COLUMN;
    pst_status status = PST_OK;
    if (is_column || of->is_backward)
        status = pst_comm_all_gather(self->comm, self->part, self->whole, count, of->dtype,
                                     self->stream);
    if (status == PST_OK && is_column == of->is_backward)
        status = pst_comm_reduce_scatter(self->comm, self->whole, self->part, count, of->dtype,
                                         self->stream);
    return status;
}

static pst_status run_layer(rank *self, uint32_t pieces)
{
    pst_linear *linear = self->linears[pieces];
    return self->all->form->is_backward ? pst_linear_backward(linear, &self->operands, self->stream)
                                        : pst_linear_forward(linear, &self->operands, self->stream);
}

static pst_status run_step(rank *self, step what)
{
    const uint64_t count = self->all->tokens / (uint64_t)self->all->num_ranks * self->wide;
    switch (what) {
    case COPY: /* as much as one exchange leaves behind */
        for (uint64_t i = 0; i < (uint64_t)self->all->num_ranks; i++) {
            const pst_status status =
                pst_device_copy(self->device, (char *)self->whole + i * count * self->size,
                                self->part, count * self->size, self->stream);
            if (status != PST_OK)
                return status;
        }
        return PST_OK;
    case NOTHING:
        return run_exchange(self, 1);
    case PRODUCTS:
    case PIECES:
        return run_products(self, what == PIECES);
    case EXCHANGE:
        return run_exchange(self, count);
    default:
        return run_layer(self, what == LAYER);
    }
}

/* ---- measuring ---- */

static bool needs_product(step what)
{
    return what == PRODUCTS || what == PIECES || what == LAYER || what == RING;
}

/* From when all begin to when the last one has ended. */
static int time_step(rank *self, step what, double *seconds_out)
{
    shared *all = self->all;
    pthread_barrier_wait(&all->together);
    const double begin = bench_now();
    pst_status status = run_step(self, what);
    if (status == PST_OK)
        status = pst_stream_synchronize(self->device, self->stream);
    pthread_barrier_wait(&all->together);
    *seconds_out = bench_now() - begin;
    return tool_status(status);
}

static int sample(rank *self, double seconds[NUM_STEPS])
{
    for (int i = 0; i < NUM_STEPS; i++) {
        seconds[i] = NAN;
        if (self->all->has_products || !needs_product((step)i))
            TOOL_TRY(time_step(self, (step)i, &seconds[i]));
    }
    return TOOL_OK;
}

/* How much of the shorter of the two is hidden behind the other. */
static double hidden_share(const double seconds[NUM_STEPS])
{
    const double product = seconds[PRODUCTS], exchange = seconds[EXCHANGE];
    return (product + exchange - seconds[RING]) / fmin(product, exchange);
}

static int measure_rank(rank *self)
{
    shared *all = self->all;
    double seconds[NUM_STEPS];
    TOOL_TRY(sample(self, seconds)); /* for the caches */
    for (uint32_t n = 0; n < all->samples; n++) {
        TOOL_TRY(sample(self, seconds));
        for (int i = 0; i < NUM_STEPS && self->number == 0; i++)
            if (!isnan(seconds[i]))
                bench_series_add(&all->series[i], seconds[i]);
        if (self->number == 0 && !isnan(seconds[RING]))
            bench_series_add(&all->hidden, hidden_share(seconds));
    }
    return TOOL_OK;
}

/* A rank that fails leaves the others at a barrier: it ends the program. */
static void *run_rank(void *arg)
{
    rank *self = arg;
    self->code = open_rank(self);
    if (self->code == TOOL_OK)
        self->code = measure_rank(self);
    if (self->code == TOOL_OK)
        self->code = close_rank(self);
    if (self->code != TOOL_OK)
        exit(self->code);
    return NULL;
}

/* Whether there are any, by one of one element. text: why not, or "". */
static int try_product(pst_device *device, char *text, size_t bytes)
{
    void *one = NULL;
    pst_product product = PST_PRODUCT_INIT;
    TOOL_PST(pst_device_alloc(device, 256, &one));
    product.m = product.n = product.k = 1;
    product.a = product.b = product.d =
        (pst_matrix){.base = one, .row_stride = 4, .dtype = PST_DTYPE_FP32};
    product.d.base = (char *)one + 64;
    const pst_status status = pst_product_run(device, &product, NULL);
    snprintf(text, bytes, "%s", status == PST_E_UNSUPPORTED ? pst_last_message() : "");
    TOOL_PST(pst_device_synchronize(device));
    TOOL_PST(pst_device_free(device, one));
    return status == PST_E_UNSUPPORTED ? TOOL_OK : tool_status(status);
}

static int run_ranks(pst_device *device, shared *all)
{
    static rank ranks[MAX_RANKS];
    pthread_barrier_init(&all->together, NULL, (unsigned)all->num_ranks);
    for (int i = 0; i < all->num_ranks; i++)
        ranks[i] = (rank){.all = all, .number = i, .device = device};
    for (int i = 1; i < all->num_ranks; i++)
        if (pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]) != 0)
            return tool_fail(TOOL_NO, "linear: no thread for rank %d", i);
    run_rank(&ranks[0]);
    for (int i = 1; i < all->num_ranks; i++)
        pthread_join(ranks[i].thread, NULL);
    pthread_barrier_destroy(&all->together);
    return TOOL_OK;
}

static bench_times times_of(const bench_series *series)
{
    return series->num ? bench_summary(series)
                       : (bench_times){.min = NAN, .median = NAN, .max = NAN};
}

static void fill_row(const shared *all, bench_linear_row *row)
{
    *row = (bench_linear_row){.name = all->form->name,
                              .num_ranks = (uint32_t)all->num_ranks,
                              .tokens = all->tokens,
                              .in_features = all->in,
                              .out_features = all->out,
                              .copy = times_of(&all->series[COPY]),
                              .nothing = times_of(&all->series[NOTHING]),
                              .products = times_of(&all->series[PRODUCTS]),
                              .pieces = times_of(&all->series[PIECES]),
                              .exchange = times_of(&all->series[EXCHANGE]),
                              .layer = times_of(&all->series[LAYER]),
                              .ring = times_of(&all->series[RING]),
                              .ring_ratio =
                                  bench_median_ratio(&all->series[RING], &all->series[LAYER]),
                              .hidden = all->hidden.num ? bench_summary(&all->hidden).median : NAN};
}

static int measure_form(pst_device *device, shared *all, bench_report *report)
{
    const pst_status status = pst_comm_make_id(device, &all->id);
    if (status == PST_E_UNSUPPORTED) {
        snprintf(report->no_linear, sizeof(report->no_linear), "%s", pst_last_message());
        return TOOL_OK;
    }
    TOOL_PST(status);
    TOOL_TRY(run_ranks(device, all));
    fill_row(all, &report->linears[report->num_linears++]);
    return TOOL_OK;
}

int bench_measure_linears(pst_device *device, bool quick, uint32_t samples, bench_report *report)
{
    static shared all;
    pst_device_info info;
    TOOL_PST(pst_device_get_info(device, &info));
    const bool is_host = info.kind == PST_DEVICE_HOST;
    const uint64_t width = is_host ? (quick ? 64 : 512) : 4096;
    const int least = is_host ? 2 : 1, most = is_host && !quick ? MAX_RANKS : least;
    report->num_cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    TOOL_TRY(try_product(device, report->no_product, sizeof(report->no_product)));
    for (size_t i = 0; i < (quick ? QUICK_FORMS : NUM_FORMS) && !*report->no_linear; i++)
        for (int num_ranks = least; num_ranks <= most && !*report->no_linear; num_ranks *= 2) {
            all = (shared){.form = &forms[i],
                           .num_ranks = num_ranks,
                           .samples = samples,
                           .tokens = 2 * width,
                           .in = width,
                           .out = 2 * width,
                           .has_products = !*report->no_product};
            TOOL_TRY(measure_form(device, &all, report));
        }
    return TOOL_OK;
}
