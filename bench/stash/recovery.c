/* How long a pool takes from a stash that failed to being ready again: more device pages, and a
 * reset. Wall clock of the calling thread. */
#include "bench/stash/measure.h"
#include "bench/stash/rig.h"

#include <stdio.h>

enum { PAGE = 256 << 10, FIRST_PAGES = 16, ROUNDS_KEY = 1 << 21 };

typedef struct recovery {
    bench_timer timer;
    pst_pool *pool;
    pst_group *group; /* one page more than the pool has at first */
    pst_ticket ticket;
    void *base;
    uint64_t bytes;
    uint64_t grown_pages;
} recovery;

/* False: *result says why not. */
static int make_pool(recovery *self, bench_recovery *result, bool *made_out)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = PAGE;
    config.num_pages = FIRST_PAGES;
    config.max_pages = FIRST_PAGES + self->grown_pages;
    config.max_tickets = 1;
    const pst_status status = pst_pool_create(self->timer.device, &config, &self->pool);
    *made_out = status == PST_OK;
    if (status != PST_E_UNSUPPORTED)
        return tool_status(status);
    snprintf(result->unavailable, sizeof(result->unavailable), "%s", pst_last_message());
    return TOOL_OK;
}

static int make_group(recovery *self)
{
    self->bytes = (FIRST_PAGES + 1) * (uint64_t)PAGE;
    TOOL_PST(pst_device_alloc(self->timer.device, self->bytes, &self->base));
    TOOL_TRY(bench_make_flat(self->bytes, &self->group));
    return tool_status(pst_ticket_create(self->pool, self->group, &self->ticket));
}

/* A stash that finds too few pages. */
static int fail_once(const recovery *self)
{
    const pst_buffers at = bench_flat_at(&self->base);
    pst_pool_status status;
    TOOL_PST(pst_ticket_stash(self->ticket, self->group, &at, NULL, self->timer.stream));
    TOOL_PST(pst_pool_step(self->pool, self->timer.stream));
    TOOL_PST(pst_stream_synchronize(self->timer.device, self->timer.stream));
    TOOL_PST(pst_pool_poll(self->pool, &status));
    if (status.num_faults == 1 && status.fault == PST_FAULT_EXHAUSTED)
        return TOOL_OK;
    return tool_fail(TOOL_NO, "recovery: a pool with too few pages recorded %u faults, first: %s",
                     status.num_faults, pst_fault_text((pst_fault)status.fault));
}

/* The same stash, which finds enough now. */
static int run_again(const recovery *self, uint64_t key, uint64_t *mismatched_bytes)
{
    const bench_timer *timer = &self->timer;
    const pst_buffers at = bench_flat_at(&self->base);
    TOOL_PST(pst_ticket_stash(self->ticket, self->group, &at, NULL, timer->stream));
    TOOL_PST(pst_device_fill(timer->device, self->base, BENCH_POISON, self->bytes, timer->stream));
    TOOL_PST(pst_ticket_restore(self->ticket, self->group, &at, NULL, timer->stream));
    TOOL_PST(pst_stream_synchronize(timer->device, timer->stream));
    return bench_verify_flat(timer, self->base, self->bytes, key, mismatched_bytes);
}

static int recover(const recovery *self, uint64_t key, bench_series *series,
                   uint64_t *mismatched_bytes)
{
    const bench_timer *timer = &self->timer;
    TOOL_TRY(bench_fill_flat(timer, self->base, self->bytes, key));
    TOOL_TRY(fail_once(self));
    const double begin = bench_now();
    TOOL_PST(pst_pool_resize(self->pool, FIRST_PAGES + self->grown_pages, 0));
    TOOL_PST(pst_pool_reset(self->pool, PST_RESET_ALL, timer->stream));
    TOOL_PST(pst_stream_synchronize(timer->device, timer->stream));
    bench_series_add(series, bench_now() - begin);
    TOOL_TRY(run_again(self, key, mismatched_bytes));
    return tool_status(pst_pool_resize(self->pool, FIRST_PAGES, 0));
}

static int measure(recovery *self, uint32_t samples, bench_recovery *result)
{
    pst_device *device = self->timer.device;
    bench_series series = {.num = 0};
    TOOL_TRY(make_group(self));
    for (uint32_t i = 0; i < samples; i++)
        TOOL_TRY(recover(self, ROUNDS_KEY + i, &series, &result->mismatched_bytes));
    result->seconds = bench_summary(&series);
    TOOL_PST(pst_ticket_destroy(self->ticket));
    TOOL_PST(pst_group_destroy(self->group));
    TOOL_PST(pst_pool_destroy(self->pool));
    return tool_status(pst_device_free(device, self->base));
}

int bench_measure_recovery(pst_device *device, const bench_machine *machine, bool quick,
                           uint32_t samples, bench_recovery *recovered)
{
    recovery self = {.grown_pages = 1024 * BENCH_MIB / PAGE};
    uint64_t most, free_bytes;
    bool made = false;
    TOOL_TRY(bench_timer_open(&self.timer, device));
    TOOL_TRY(bench_memory_limit(device, machine, &most, &free_bytes));
    if (self.timer.is_host && quick)
        self.grown_pages /= 16;
    recovered->grown_bytes = self.grown_pages * PAGE;
    if (recovered->grown_bytes + 2 * (uint64_t)FIRST_PAGES * PAGE > most)
        snprintf(recovered->unavailable, sizeof(recovered->unavailable),
                 "%llu bytes wanted, at most %llu of %llu bytes free",
                 (unsigned long long)recovered->grown_bytes, (unsigned long long)most,
                 (unsigned long long)free_bytes);
    else
        TOOL_TRY(make_pool(&self, recovered, &made));
    if (made)
        TOOL_TRY(measure(&self, samples, recovered));
    return bench_timer_close(&self.timer);
}
