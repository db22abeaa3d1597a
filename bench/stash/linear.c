/* Tensor-parallel linears: the products and the exchanges of a call by themselves, in pieces as rings have
 * them, and together. On host the ranks are threads; on cuda there is one, which exchanges with itself. */
#include "bench/stash/linear_rank.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PACE_SAMPLES = 5, PACED_TOKENS = 8 };

static const linear_form forms[] = {
    {"column forward fp32", PST_LINEAR_COLUMN, false, PST_DTYPE_FP32},
    {"row forward fp32", PST_LINEAR_ROW, false, PST_DTYPE_FP32},
    {"column backward fp32", PST_LINEAR_COLUMN, true, PST_DTYPE_FP32},
    {"row backward fp32", PST_LINEAR_ROW, true, PST_DTYPE_FP32},
    {"column forward bf16", PST_LINEAR_COLUMN, false, PST_DTYPE_BF16},
    {"row forward bf16", PST_LINEAR_ROW, false, PST_DTYPE_BF16},
};
enum { NUM_FORMS = sizeof(forms) / sizeof(forms[0]), QUICK_FORMS = 2 };

/* ---- measuring ---- */

static bool needs_product(linear_step what)
{
    return what == PRODUCTS || what == PIECES || what == LAYER || what == RING;
}

/* From when all begin to when the last one has ended. */
static int time_step(linear_rank *self, linear_step what, double *seconds_out)
{
    linear_shared *all = self->all;
    pthread_barrier_wait(&all->together);
    const double begin = bench_now();
    pst_status status = bench_linear_run(self, what);
    if (status == PST_OK)
        status = pst_stream_synchronize(self->device, self->stream);
    pthread_barrier_wait(&all->together);
    *seconds_out = bench_now() - begin;
    return tool_status(status);
}

static int sample(linear_rank *self, double seconds[NUM_STEPS])
{
    for (int i = 0; i < NUM_STEPS; i++) {
        seconds[i] = NAN;
        if (self->all->has_products || !needs_product((linear_step)i))
            TOOL_TRY(time_step(self, (linear_step)i, &seconds[i]));
    }
    return TOOL_OK;
}

/* Products take twice as long as exchanges then. Rank 0 sets it while the others wait. */
static int choose_pace(linear_rank *self)
{
    linear_shared *all = self->all;
    const double local = (double)all->out * (double)all->in / all->num_ranks;
    const double terms = (double)all->tokens * local * (all->form->is_backward ? 2 : 1);
    double seconds;
    bench_series exchanges = {0};
    for (int i = 0; i < PACE_SAMPLES; i++) {
        TOOL_TRY(time_step(self, EXCHANGE, &seconds));
        if (self->number == 0)
            bench_series_add(&exchanges, seconds);
    }
    if (self->number == 0) {
        all->pace = 2 * bench_summary(&exchanges).median;
        all->seconds_per_term = all->pace / terms;
    }
    pthread_barrier_wait(&all->together);
    return TOOL_OK;
}

/* How much of the shorter of the two is hidden behind the other. */
static double hidden_share(const double seconds[NUM_STEPS])
{
    const double product = seconds[PRODUCTS], exchange = seconds[EXCHANGE];
    return (product + exchange - seconds[RING]) / fmin(product, exchange);
}

static int measure_rank(linear_rank *self)
{
    linear_shared *all = self->all;
    double seconds[NUM_STEPS];
    if (all->is_paced)
        TOOL_TRY(choose_pace(self));
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
    linear_rank *self = arg;
    self->code = bench_linear_open(self);
    if (self->code == TOOL_OK)
        self->code = measure_rank(self);
    if (self->code == TOOL_OK)
        self->code = bench_linear_close(self);
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

static int run_ranks(pst_device *device, linear_shared *all)
{
    static linear_rank ranks[LINEAR_MAX_RANKS];
    pthread_barrier_init(&all->together, NULL, (unsigned)all->num_ranks);
    for (int i = 0; i < all->num_ranks; i++)
        ranks[i] = (linear_rank){.all = all, .number = i, .device = device};
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

static void fill_row(const linear_shared *all, bench_linear_row *row)
{
    *row = (bench_linear_row){.name = all->form->name,
                              .is_paced = all->is_paced,
                              .pace = all->is_paced ? all->pace : NAN,
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

static int measure_form(pst_device *device, linear_shared *all, bench_report *report)
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

/* Of all forms and ranks. Paced products need no processor: so the exchanges may be large. */
static int measure_forms(pst_device *device, const linear_shared *as, bool quick, int most_ranks,
                         bench_report *report)
{
    static linear_shared all;
    for (size_t i = 0; i < (quick ? QUICK_FORMS : NUM_FORMS); i++)
        for (int num_ranks = as->num_ranks; num_ranks <= most_ranks; num_ranks *= 2) {
            all = *as;
            all.form = &forms[i];
            all.num_ranks = num_ranks;
            TOOL_TRY(measure_form(device, &all, report));
            if (*report->no_linear)
                return TOOL_OK;
        }
    return TOOL_OK;
}

int bench_measure_linears(pst_device *device, bool quick, uint32_t samples, bench_report *report)
{
    pst_device_info info;
    TOOL_PST(pst_device_get_info(device, &info));
    const bool is_host = info.kind == PST_DEVICE_HOST;
    const uint64_t width = is_host ? (quick ? 64 : 512) : 4096;
    const int least = is_host ? 2 : 1, most = is_host && !quick ? LINEAR_MAX_RANKS : least;
    TOOL_TRY(try_product(device, report->no_product, sizeof(report->no_product)));
    linear_shared as = {.num_ranks = least,
                        .samples = samples,
                        .tokens = 2 * width,
                        .in = width,
                        .out = 2 * width,
                        .has_products = !*report->no_product};
    report->num_cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    TOOL_TRY(measure_forms(device, &as, quick, most, report));
    if (!is_host)
        return TOOL_OK;
    as.has_products = as.is_paced = true;
    as.tokens *= quick ? 1 : PACED_TOKENS;
    return measure_forms(device, &as, quick, most, report);
}
