/* One configuration: stash, restore and a plain copy of the same bytes, sample by sample in turn, so
 * that each finds its memory as the others left it. Checked byte for byte before and after. */
#include "bench.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xa5, SEED = 1 };

/* On cuda written before every sample: it takes the operands out of the cache, and keeps the
 * device busy until the operation and its events are enqueued. */
#define FLUSH_BYTES ((size_t)256 << 20)

typedef struct bench {
    pst_device *device;
    bool is_host;
    int num_sms;
    pst_stream stream;
    pst_event begin, end;
    pst_pool *pool;
    pst_group *group;
    pst_ticket *ticket;
    unsigned char *arena;
    uint64_t arena_bytes;
    uint64_t live_bytes;
    void *counts;
    unsigned char *plain[2]; /* of live_bytes: what the plain copy copies */
    unsigned char *flush;
    uint64_t *mismatches; /* pinned */
} bench;

typedef pst_status (*operation)(bench *self);

static pst_status run_copy(bench *self)
{
    if (!self->is_host)
        return pst_device_copy(self->device, self->plain[1], self->plain[0], self->live_bytes,
                               self->stream);
    memcpy(self->plain[1], self->plain[0], self->live_bytes);
    return PST_OK;
}

static pst_status run_stash(bench *self)
{
    pst_stash_options options = PST_STASH_OPTIONS_INIT;
    options.launch.num_sms = self->num_sms;
    return pst_ticket_stash(self->ticket, self->group, &options, self->stream);
}

static pst_status run_restore(bench *self)
{
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    options.launch.num_sms = self->num_sms;
    return pst_ticket_restore(self->ticket, self->group, &options, self->stream);
}

/* ---- set-up ---- */

static int make_buffers(bench *self, const bench_shape *shape)
{
    const size_t counts_bytes = shape->num_counts * sizeof(shape->counts[0]);
    void *memory = NULL;
    BENCH_PST(pst_device_alloc(self->device, self->arena_bytes, &memory));
    self->arena = memory;
    BENCH_PST(pst_device_alloc(self->device, counts_bytes, &self->counts));
    BENCH_PST(pst_device_copy(self->device, self->counts, shape->counts, counts_bytes, NULL));
    for (int i = 0; i < 2; i++) {
        BENCH_PST(pst_device_alloc(self->device, self->live_bytes, &memory));
        self->plain[i] = memory;
    }
    if (!self->is_host) {
        BENCH_PST(pst_device_alloc(self->device, FLUSH_BYTES, &memory));
        self->flush = memory;
    }
    BENCH_PST(pst_device_alloc_pinned(self->device, sizeof(uint64_t), &memory));
    self->mismatches = memory;
    BENCH_PST(pst_stream_create(self->device, &self->stream));
    BENCH_PST(pst_event_create(self->device, &self->begin));
    BENCH_PST(pst_event_create(self->device, &self->end));
    return bench_status(pst_device_synchronize(self->device));
}

static int make_group(bench *self, bench_shape *shape)
{
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    shape->space.counts = self->counts;
    for (uint32_t t = 0; t < shape->num_tensors; t++)
        shape->tensors[t].base = self->arena + shape->offsets[t];
    config.spaces = &shape->space;
    config.num_spaces = 1;
    config.tensors = shape->tensors;
    config.num_tensors = shape->num_tensors;
    return bench_status(pst_group_create(self->device, &config, &self->group));
}

/* The pool has just the pages that are wanted, so that every page is in use in every sample. */
static int make_pool(bench *self, const bench_shape *shape, uint64_t page_bytes)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    pst_group_usage usage;
    BENCH_PST(pst_group_measure(self->group, shape->counts, page_bytes, &usage));
    config.page_bytes = page_bytes;
    config.num_pages = usage.pages;
    config.max_tickets = 1;
    BENCH_PST(pst_pool_create(self->device, &config, &self->pool));
    return bench_status(pst_ticket_create(self->pool, self->group, &self->ticket));
}

static uint64_t live_bytes(const bench_shape *shape)
{
    uint64_t rows = 0, bytes = 0;
    for (uint32_t i = 0; i < shape->num_counts; i++)
        rows += (uint64_t)shape->counts[i];
    for (uint32_t t = 0; t < shape->num_tensors; t++)
        bytes += rows * shape->tensors[t].row_bytes;
    return bytes;
}

/* Random bytes, 1 MiB of them over and over. */
static int fill_plain(bench *self)
{
    enum { WORDS = 1 << 17 };
    uint64_t *words = malloc(WORDS * sizeof(*words));
    if (words == NULL)
        return bench_fail(BENCH_NO, "out of memory");
    uint64_t x = 88172645463325252u; /* xorshift64, Marsaglia 2003 */
    for (size_t i = 0; i < WORDS; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        words[i] = x;
    }
    pst_status status = PST_OK;
    for (uint64_t at = 0; at < self->live_bytes && status == PST_OK; at += WORDS * sizeof(*words)) {
        const uint64_t left = self->live_bytes - at, most = WORDS * sizeof(*words);
        status = pst_device_copy(self->device, self->plain[0] + at, words,
                                 left < most ? left : most, self->stream);
    }
    if (status == PST_OK)
        status =
            pst_device_fill(self->device, self->plain[1], POISON, self->live_bytes, self->stream);
    if (status == PST_OK)
        status = pst_device_synchronize(self->device);
    free(words);
    return bench_status(status);
}

static int set_up(bench *self, const bench_case *what)
{
    bench_shape shape;
    bench_shape_of(what, &shape);
    self->arena_bytes = shape.arena_bytes;
    self->live_bytes = live_bytes(&shape);
    self->num_sms = what->num_sms;
    BENCH_TRY(make_buffers(self, &shape));
    BENCH_TRY(make_group(self, &shape));
    BENCH_TRY(make_pool(self, &shape, what->page_bytes));
    return fill_plain(self);
}

static int take_down(bench *self, int code)
{
    pst_device *device = self->device;
    const pst_status status[] = {
        pst_device_synchronize(device),
        pst_ticket_destroy(self->ticket),
        pst_pool_destroy(self->pool),
        pst_group_destroy(self->group),
        pst_event_destroy(device, self->begin),
        pst_event_destroy(device, self->end),
        pst_stream_destroy(device, self->stream),
        pst_device_free_pinned(device, self->mismatches),
        pst_device_free(device, self->flush),
        pst_device_free(device, self->plain[0]),
        pst_device_free(device, self->plain[1]),
        pst_device_free(device, self->counts),
        pst_device_free(device, self->arena),
    };
    for (size_t i = 0; i < sizeof(status) / sizeof(status[0]) && code == BENCH_OK; i++)
        code = bench_status(status[i]);
    return code;
}

/* ---- check and measure ---- */

/* Fills, stashes, poisons, restores, and adds to *mismatched_bytes what differs: the live bytes, and
 * those behind them, which must still be the poison. */
static int check(bench *self, uint64_t key, uint64_t *mismatched_bytes)
{
    const pst_pattern pattern = {.seed = SEED, .key = key, .step = NULL};
    pst_device *device = self->device;
    pst_stream stream = self->stream;
    *self->mismatches = 0;
    BENCH_PST(pst_group_fill(self->group, &pattern, stream));
    BENCH_PST(run_stash(self));
    BENCH_PST(pst_device_fill(device, self->arena, POISON, self->arena_bytes, stream));
    BENCH_PST(run_restore(self));
    BENCH_PST(
        pst_group_verify(self->group, self->group, &pattern, POISON, self->mismatches, stream));
    BENCH_PST(pst_stream_synchronize(device, stream));
    *mismatched_bytes += *self->mismatches;
    return BENCH_OK;
}

static int take_sample(bench *self, operation run, double *seconds_out)
{
    if (self->flush)
        BENCH_PST(pst_device_fill(self->device, self->flush, 0, FLUSH_BYTES, self->stream));
    BENCH_PST(pst_event_record(self->device, self->begin, self->stream));
    BENCH_PST(run(self));
    BENCH_PST(pst_event_record(self->device, self->end, self->stream));
    BENCH_PST(pst_event_synchronize(self->device, self->end));
    return bench_status(pst_event_elapsed(self->device, self->begin, self->end, seconds_out));
}

/* Median of copy[0] / seconds[0], copy[2] / seconds[1], ...: samples taken one after the other, so
 * that what else the machine does in the meantime hits both. */
static double median_share(const double *copy, const double *seconds, uint32_t samples)
{
    double shares[BENCH_MAX_SAMPLES];
    for (uint32_t i = 0; i < samples; i++)
        shares[i] = copy[2 * i] / seconds[i];
    return bench_summary(shares, samples).median;
}

static int take_samples(bench *self, uint32_t samples, bench_result *result)
{
    double copy[2 * BENCH_MAX_SAMPLES], stash[BENCH_MAX_SAMPLES], restore[BENCH_MAX_SAMPLES];
    for (uint32_t i = 0; i < samples; i++) {
        BENCH_TRY(take_sample(self, run_copy, &copy[2 * i]));
        BENCH_TRY(take_sample(self, run_stash, &stash[i]));
        BENCH_TRY(take_sample(self, run_copy, &copy[2 * i + 1]));
        BENCH_TRY(take_sample(self, run_restore, &restore[i]));
    }
    result->stash_share = median_share(copy, stash, samples);
    result->restore_share = median_share(copy + 1, restore, samples);
    result->copy = bench_summary(copy, 2 * samples);
    result->stash = bench_summary(stash, samples);
    result->restore = bench_summary(restore, samples);
    return BENCH_OK;
}

/* A stash that failed copies nothing, and very fast. */
static int check_faults(bench *self)
{
    pst_pool_status status;
    BENCH_PST(pst_pool_step(self->pool, self->stream));
    BENCH_PST(pst_stream_synchronize(self->device, self->stream));
    BENCH_PST(pst_pool_poll(self->pool, &status));
    if (status.num_faults == 0)
        return BENCH_OK;
    return bench_fail(BENCH_NO, "%u faults, the first: %s", status.num_faults,
                      pst_fault_text((pst_fault)status.fault));
}

int bench_measure(pst_device *device, const bench_case *what, uint32_t samples,
                  bench_result *result)
{
    bench self = {.device = device};
    pst_device_info info;
    BENCH_PST(pst_device_get_info(device, &info));
    self.is_host = info.kind == PST_DEVICE_HOST;
    result->what = *what;
    result->num_sms = what->num_sms ? what->num_sms : info.num_sms;
    result->mismatched_bytes = 0;
    int code = set_up(&self, what);
    result->bytes = self.live_bytes;
    if (code == BENCH_OK)
        code = check(&self, 0, &result->mismatched_bytes);
    if (code == BENCH_OK)
        code = take_samples(&self, samples, result);
    if (code == BENCH_OK)
        code = check(&self, 1, &result->mismatched_bytes);
    if (code == BENCH_OK)
        code = check_faults(&self);
    return take_down(&self, code);
}
