/* Measured copy rates over SM budgets, and the SM budget that a time window asks for. */
#include <pagestash/budget.h>
#include <pagestash/pattern.h>

#include "host/base/structs.h"
#include "host/stash/stash.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "host/base/nvtx.h"

static pst_status check_kind(pst_copy_op op, pst_backend backend)
{
    PSTI_CHECK(op == PST_COPY_STASH || op == PST_COPY_RESTORE, PST_E_INVALID,
               "op %d: allowed are stash and restore", (int)op);
    PSTI_CHECK(backend >= PST_BACKEND_AUTO && backend <= PST_BACKEND_SQUEEZE, PST_E_INVALID,
               "backend %d: allowed are auto, ldg, bulk and squeeze", (int)backend);
    return PST_OK;
}

/* ---- choose ---- */

static pst_status check_rates(const pst_copy_rates *rates)
{
    PSTI_TRY(check_kind(rates->op, rates->backend));
    PSTI_CHECK(isfinite(rates->fixed_seconds) && rates->fixed_seconds >= 0, PST_E_INVALID,
               "fixed_seconds %g: must be finite and not negative", rates->fixed_seconds);
    PSTI_CHECK(rates->num_points >= 1 && rates->num_points <= PST_MAX_COPY_RATES, PST_E_INVALID,
               "num_points %u: allowed are 1 to %d", rates->num_points, PST_MAX_COPY_RATES);
    int previous = 0;
    for (uint32_t i = 0; i < rates->num_points; i++) {
        const pst_copy_rate *point = &rates->points[i];
        PSTI_CHECK(point->num_sms > previous, PST_E_INVALID,
                   "point %u: num_sms %d: must be above %d%s", i, point->num_sms, previous,
                   i ? ", that of the point before" : "");
        PSTI_CHECK(isfinite(point->bytes_per_second) && point->bytes_per_second >= 1, PST_E_INVALID,
                   "point %u: bytes_per_second %g: must be finite and at least 1", i,
                   point->bytes_per_second);
        previous = point->num_sms;
    }
    return PST_OK;
}

/* num_sms is at least 1 and not beyond the last point. */
static double rate_of(const pst_copy_rates *rates, int num_sms)
{
    pst_copy_rate below = {.num_sms = 0, .bytes_per_second = 0};
    for (const pst_copy_rate *point = rates->points;; point++) {
        const double rate = point->bytes_per_second > below.bytes_per_second
                                ? point->bytes_per_second
                                : below.bytes_per_second;
        if (num_sms == point->num_sms)
            return rate;
        if (num_sms < point->num_sms) {
            const double share =
                (double)(num_sms - below.num_sms) / (double)(point->num_sms - below.num_sms);
            return below.bytes_per_second + (rate - below.bytes_per_second) * share;
        }
        below = (pst_copy_rate){.num_sms = point->num_sms, .bytes_per_second = rate};
    }
}

static double predict(const pst_copy_rates *rates, uint64_t bytes, int num_sms)
{
    return rates->fixed_seconds + (double)bytes / rate_of(rates, num_sms);
}

/* The fewest SMs that are predicted to take no longer than `seconds`; `most` are. */
static int fewest(const pst_copy_rates *rates, uint64_t bytes, double seconds, int most)
{
    int least = 1;
    while (least < most) {
        const int middle = least + (most - least) / 2;
        if (predict(rates, bytes, middle) <= seconds)
            most = middle;
        else
            least = middle + 1;
    }
    return least;
}

pst_status pst_copy_rates_choose_sms(const pst_copy_rates *rates, uint64_t bytes, double seconds,
                                     pst_copy_choice *choice_out)
{
    PSTI_CHECK(rates && choice_out, PST_E_INVALID, "rates or choice_out is NULL");
    PSTI_TRY(check_rates(rates));
    PSTI_CHECK(isfinite(seconds) && seconds > 0, PST_E_INVALID,
               "seconds %g: must be finite and above 0", seconds);
    const int most = rates->points[rates->num_points - 1].num_sms;
    const double shortest = predict(rates, bytes, most);
    const bool fits = shortest <= seconds;
    const int num_sms = fewest(rates, bytes, fits ? seconds : shortest, most);
    *choice_out = (pst_copy_choice){
        .num_sms = num_sms, .seconds = predict(rates, bytes, num_sms), .fits = fits};
    return PST_OK;
}

/* ---- calibrate ---- */

enum { DEFAULT_REPETITIONS = 9, MAX_REPETITIONS = 100, ROW_BYTES = 4096 };

#define MIB ((uint64_t)1 << 20)
#define MAX_BYTES (MIB << 20)
#define FLUSH_BYTES ((size_t)(256 * MIB))

/* What is measured with, and how. */
typedef struct rig {
    pst_device *device;
    pst_device_info info;
    pst_calibrate_config config; /* without zeros */
    pst_stream stream;
    pst_event begin, end;
    pst_pool *pool;
    pst_group *group;
    pst_ticket ticket;
    void *rows;
    void *count; /* one int64 */
    /* On cuda written before every sample: it takes rows and pages out of the cache, and keeps the
     * device busy until the operation and its events are enqueued. */
    void *flush;
} rig;

static pst_status complete_config(const pst_calibrate_config *given, const pst_device_info *info,
                                  pst_calibrate_config *config_out)
{
    PSTI_TAKE_OPTIONS(pst_calibrate_config, config, given);
    PSTI_TRY(check_kind(config.op, config.backend));
    PSTI_CHECK(config.bytes % MIB == 0 && config.bytes <= MAX_BYTES, PST_E_INVALID,
               "bytes %" PRIu64 ": allowed are multiples of 1 MiB, up to 1 TiB", config.bytes);
    PSTI_CHECK(config.repetitions <= MAX_REPETITIONS, PST_E_INVALID,
               "repetitions %u: allowed are up to %d", config.repetitions, MAX_REPETITIONS);
    PSTI_CHECK(config.backend == PST_BACKEND_AUTO || info->backends & 1u << config.backend,
               PST_E_UNSUPPORTED, "backend %s: %s has none", psti_backend_name(config.backend),
               info->name);
    if (config.bytes == 0)
        config.bytes = (info->kind == PST_DEVICE_CUDA ? 256 : 16) * MIB;
    if (config.repetitions == 0)
        config.repetitions = DEFAULT_REPETITIONS;
    *config_out = config;
    return PST_OK;
}

static pst_status make_group(rig *self)
{
    const pst_row_space space = {.count_type = PST_COUNT_INT64,
                                 .capacity = (int64_t)(self->config.bytes / ROW_BYTES)};
    const pst_tensor tensor = {.row_bytes = ROW_BYTES};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = &tensor;
    config.num_tensors = 1;
    return pst_group_create(&config, &self->group);
}

/* counts: what `buffers` points to while it is used. */
static pst_buffers rows_at(const rig *self, const void **counts)
{
    pst_buffers buffers = PST_BUFFERS_INIT;
    *counts = self->count;
    buffers.bases = &self->rows;
    buffers.counts = counts;
    return buffers;
}

static pst_status set_up(rig *self)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.num_pages = self->config.bytes / PST_PAGE_BYTES_DEFAULT;
    config.max_tickets = 1;
    PSTI_TRY(pst_device_alloc(self->device, (size_t)self->config.bytes, &self->rows));
    PSTI_TRY(pst_device_alloc(self->device, sizeof(int64_t), &self->count));
    if (self->info.kind == PST_DEVICE_CUDA)
        PSTI_TRY(pst_device_alloc(self->device, FLUSH_BYTES, &self->flush));
    PSTI_TRY(pst_stream_create(self->device, &self->stream));
    PSTI_TRY(pst_event_create(self->device, &self->begin));
    PSTI_TRY(pst_event_create(self->device, &self->end));
    PSTI_TRY(make_group(self));
    PSTI_TRY(pst_pool_create(self->device, &config, &self->pool));
    return pst_ticket_create(self->pool, self->group, &self->ticket);
}

/* Whatever it can; answers the first failure. */
static pst_status take_down(rig *self)
{
    pst_device *device = self->device;
    const pst_status statuses[] = {
        /* after a failure the ticket may hold pages */
        self->ticket.id ? pst_pool_reset(self->pool, PST_RESET_ALL, self->stream) : PST_OK,
        self->ticket.id ? pst_stream_synchronize(device, self->stream) : PST_OK,
        pst_ticket_destroy(self->ticket),
        pst_pool_destroy(self->pool),
        pst_group_destroy(self->group),
        pst_event_destroy(device, self->end),
        pst_event_destroy(device, self->begin),
        pst_stream_destroy(device, self->stream),
        pst_device_free(device, self->flush),
        pst_device_free(device, self->count),
        pst_device_free(device, self->rows),
    };
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        PSTI_TRY(statuses[i]);
    return PST_OK;
}

static pst_status copy(const rig *self, pst_copy_op op, int num_sms)
{
    const pst_launch_options launch = {.num_sms = num_sms, .backend = self->config.backend};
    const void *counts;
    const pst_buffers rows = rows_at(self, &counts);
    if (op == PST_COPY_STASH) {
        pst_stash_options options = PST_STASH_OPTIONS_INIT;
        options.launch = launch;
        return pst_ticket_stash(self->ticket, self->group, &rows, &options, self->stream);
    }
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    options.launch = launch;
    return pst_ticket_restore(self->ticket, self->group, &rows, &options, self->stream);
}

/* Undoes the last sample's operation, and does it again. */
static pst_status take_sample(const rig *self, int num_sms, double *seconds_out)
{
    const pst_copy_op op = self->config.op;
    const pst_copy_op inverse = op == PST_COPY_STASH ? PST_COPY_RESTORE : PST_COPY_STASH;
    PSTI_TRY(copy(self, inverse, self->info.num_sms));
    if (self->flush)
        PSTI_TRY(pst_device_fill(self->device, self->flush, 0, FLUSH_BYTES, self->stream));
    PSTI_TRY(pst_event_record(self->device, self->begin, self->stream));
    PSTI_TRY(copy(self, op, num_sms));
    PSTI_TRY(pst_event_record(self->device, self->end, self->stream));
    PSTI_TRY(pst_event_synchronize(self->device, self->end));
    return pst_event_elapsed(self->device, self->begin, self->end, seconds_out);
}

/* An operation that failed copied nothing, and very fast. */
static pst_status check_faults(const rig *self)
{
    pst_pool_status status;
    PSTI_TRY(pst_pool_step(self->pool, self->stream));
    PSTI_TRY(pst_stream_synchronize(self->device, self->stream));
    PSTI_TRY(pst_pool_poll(self->pool, &status));
    PSTI_CHECK(status.num_faults == 0, PST_E_CUDA, "%u faults while measuring, the first: %s",
               status.num_faults, pst_fault_text((pst_fault)status.fault));
    return PST_OK;
}

static int compare(const void *left, const void *right)
{
    const double *a = left;
    const double *b = right;
    return (*a > *b) - (*a < *b);
}

static pst_status measure(const rig *self, int num_sms, double *median_out)
{
    double seconds[MAX_REPETITIONS];
    const uint32_t samples = self->config.repetitions;
    PSTI_TRY(take_sample(self, num_sms, &seconds[0])); /* warms up, and is not counted */
    for (uint32_t i = 0; i < samples; i++)
        PSTI_TRY(take_sample(self, num_sms, &seconds[i]));
    PSTI_TRY(check_faults(self));
    qsort(seconds, samples, sizeof(seconds[0]), compare);
    *median_out = (seconds[(samples - 1) / 2] + seconds[samples / 2]) / 2;
    return PST_OK;
}

static pst_status set_count(const rig *self, int64_t count)
{
    PSTI_TRY(pst_device_copy(self->device, self->count, &count, sizeof(count), self->stream));
    return pst_stream_synchronize(self->device, self->stream);
}

static pst_status add_point(const rig *self, int num_sms, pst_copy_rates *rates)
{
    double seconds = 0;
    PSTI_TRY(measure(self, num_sms, &seconds));
    PSTI_CHECK(seconds > rates->fixed_seconds, PST_E_INVALID,
               "bytes %" PRIu64 ": %g s with num_sms %d, %g s with none live: measure more",
               self->config.bytes, seconds, num_sms, rates->fixed_seconds);
    rates->points[rates->num_points++] = (pst_copy_rate){
        .num_sms = num_sms,
        .bytes_per_second = (double)self->config.bytes / (seconds - rates->fixed_seconds)};
    return PST_OK;
}

static pst_status measure_all(const rig *self, pst_copy_rates *rates)
{
    static const int budgets[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96};
    static const size_t num_budgets = sizeof(budgets) / sizeof(budgets[0]);
    static_assert(sizeof(budgets) / sizeof(budgets[0]) < PST_MAX_COPY_RATES, "and all SMs");
    const pst_pattern pattern = {.seed = 1};
    const void *counts;
    const pst_buffers rows = rows_at(self, &counts);
    const int all = self->info.num_sms;
    PSTI_TRY(set_count(self, 0));
    if (self->config.op == PST_COPY_STASH) /* what the first sample undoes */
        PSTI_TRY(copy(self, PST_COPY_STASH, all));
    PSTI_TRY(measure(self, all, &rates->fixed_seconds));
    PSTI_TRY(set_count(self, (int64_t)(self->config.bytes / ROW_BYTES)));
    PSTI_TRY(pst_group_fill(self->device, self->group, &rows, &pattern, self->stream));
    for (size_t i = 0; i < num_budgets && budgets[i] < all; i++)
        PSTI_TRY(add_point(self, budgets[i], rates));
    PSTI_TRY(add_point(self, all, rates));
    return self->config.op == PST_COPY_STASH ? pst_ticket_release(self->ticket, self->stream)
                                             : PST_OK;
}

pst_status pst_device_calibrate(pst_device *device, const pst_calibrate_config *config,
                                pst_copy_rates *rates_out)
{
    PSTI_CHECK(device && rates_out, PST_E_INVALID, "device or rates_out is NULL");
    PSTI_RANGE("pst_device_calibrate");
    rig self = {.device = device};
    PSTI_TRY(pst_device_get_info(device, &self.info));
    PSTI_TRY(complete_config(config, &self.info, &self.config));
    pst_copy_rates rates = {.op = self.config.op, .backend = self.config.backend};
    pst_status status = set_up(&self);
    if (status == PST_OK)
        status = measure_all(&self, &rates);
    const pst_status down = take_down(&self);
    if (status == PST_OK)
        status = down;
    if (status == PST_OK)
        *rates_out = rates;
    return status;
}
