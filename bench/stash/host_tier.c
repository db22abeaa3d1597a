/* The pinned tier: a group that is stashed into it and restored, as a whole and in part, beside
 * plain copies of as many bytes. Everything is sampled in turn; the ids of a pool go round, so
 * that all of its memory is used. */
#include "bench/stash/link.h"
#include "bench/stash/measure.h"

#include <inttypes.h>
#include <stdio.h>

enum { SAMPLES = 31, QUICK_SAMPLES = 21 };
enum { POOLS = 2, RIGS = POOLS + 1, PARTS = POOLS, MAX_VARIANTS = 8 };
/* Beyond the live bytes for what the rounding to tiles and pages adds. */
enum { SPARE_PAGES = 4 };

/* A stash and its restore. */
typedef struct variant {
    uint32_t num, den;
    int num_sms;
    pst_graph *graphs[2];
    bench_series series[2];
    uint64_t pinned_pages;
    uint64_t mismatched_bytes;
} variant;

typedef struct tier_rig {
    bench_rig rig;
    bool is_open;
    variant variants[MAX_VARIANTS];
    uint32_t num;
} tier_rig;

typedef struct host_tier {
    tier_rig rigs[RIGS]; /* the pools, and one for the parts of a mixed stash */
    bench_link link;
    uint64_t left; /* bytes of the host's memory that may still be taken */
    bool quick;
} host_tier;

static const bench_slot operations[2] = {BENCH_STASH, BENCH_RESTORE};

/* ---- variants ---- */

static int record(const tier_rig *self, variant *added)
{
    const bench_copy *copy = &self->rig.copies[0];
    bench_rig rig = self->rig;
    rig.what.num_sms = added->num_sms;
    TOOL_PST(pst_ticket_set_offload(copy->ticket, added->num, added->den));
    for (int op = 0; op < 2; op++)
        BENCH_RECORD(&rig.timer, bench_rig_enqueue(&rig, copy, operations[op]), &added->graphs[op]);
    return TOOL_OK;
}

/* That the pages are where they were asked to be: a stash may take the other tier. */
static int check_tiers(const bench_rig *rig, variant *added)
{
    const uint64_t wanted = rig->pages * added->num / added->den;
    pst_pool_status status;
    TOOL_TRY(bench_replay(&rig->timer, added->graphs[0]));
    TOOL_PST(pst_pool_step(rig->pool, rig->timer.stream));
    TOOL_TRY(bench_replay(&rig->timer, added->graphs[1]));
    TOOL_PST(pst_pool_poll(rig->pool, &status));
    added->pinned_pages = status.in_use[1];
    if (status.in_use[1] == wanted && status.in_use[0] == rig->pages - wanted)
        return TOOL_OK;
    return tool_fail(TOOL_NO,
                     "offload %u/%u of %" PRIu64 " pages: %" PRIu64 " on the host and %" PRIu64
                     " on the device",
                     added->num, added->den, rig->pages, status.in_use[1], status.in_use[0]);
}

static int check(tier_rig *self, variant *added)
{
    bench_copy *copy = &self->rig.copies[0];
    pst_graph *usual[2];
    for (int op = 0; op < 2; op++) {
        usual[op] = copy->graphs[operations[op]];
        copy->graphs[operations[op]] = added->graphs[op];
    }
    const int code = bench_check(&self->rig, self->num, &added->mismatched_bytes);
    for (int op = 0; op < 2; op++)
        copy->graphs[operations[op]] = usual[op];
    TOOL_TRY(code);
    return check_tiers(&self->rig, added);
}

static int add(tier_rig *self, uint32_t num, uint32_t den, int num_sms)
{
    variant *added = &self->variants[self->num];
    if (num_sms >= self->rig.machine->device.num_sms)
        return TOOL_OK;
    *added = (variant){.num = num, .den = den, .num_sms = num_sms};
    self->num++;
    TOOL_TRY(record(self, added));
    return check(self, added);
}

/* For the parts: half of the group in either tier; for a pool: all of it on the host, and half. */
static int add_variants(tier_rig *self, bool is_parts, bool quick)
{
    static const int budgets[] = {2, 4, 8, 16, 0}, quick_budgets[] = {4, 8, 0}, few[] = {8, 0};
    const int *all = quick ? quick_budgets : budgets;
    for (int i = 0; !is_parts && (i == 0 || all[i - 1]); i++)
        TOOL_TRY(add(self, 1, 1, all[i]));
    for (int i = 0; i < 2; i++) {
        TOOL_TRY(add(self, 1, is_parts ? 1 : 2, few[i]));
        if (is_parts)
            TOOL_TRY(add(self, 0, 1, few[i]));
    }
    return TOOL_OK;
}

/* ---- pools ---- */

/* Once round the ids, so that no sample is the first to touch a page. */
static int touch_pages(const tier_rig *self)
{
    const bench_rig *rig = &self->rig;
    const uint64_t all = rig->what.host_bytes / rig->what.page_bytes;
    for (uint64_t pages = 0; pages < all; pages += rig->pages)
        for (int op = 0; op < 2; op++)
            TOOL_TRY(bench_replay(&rig->timer, self->variants[0].graphs[op]));
    return TOOL_OK;
}

static int open_rig(host_tier *self, tier_rig *added, pst_device *device, const bench_case *what,
                    bench_report *report)
{
    const bool is_parts = added == &self->rigs[PARTS];
    bench_host_tier *tier = &report->host_tier;
    uint64_t bytes = what->host_bytes;
    bool skipped;
    TOOL_TRY(bench_prepare_or_skip(&added->rig, device, what, true, report, &skipped));
    if (skipped)
        return TOOL_OK;
    if (report->machine.device.kind == PST_DEVICE_HOST)
        TOOL_TRY(bench_rig_bytes(&added->rig, &bytes));
    if (bytes > self->left) {
        char reason[160];
        snprintf(reason, sizeof(reason),
                 "%" PRIu64 " bytes of the host's memory wanted, %" PRIu64
                 " left of the half that may be taken",
                 bytes, self->left);
        return bench_add_skip(report, what, reason);
    }
    self->left -= bytes;
    TOOL_TRY(bench_rig_open(&added->rig));
    added->is_open = true;
    TOOL_TRY(add_variants(added, is_parts, self->quick));
    if (!is_parts)
        tier->pins[tier->num_pins++] =
            (bench_pin){.bytes = what->host_bytes, .seconds = added->rig.pool_seconds};
    return touch_pages(added);
}

static int open_rigs(host_tier *self, pst_device *device, bench_report *report)
{
    static const uint64_t on_host[] = {64, 256}, on_cuda[] = {1024, 16384};
    const bool is_host = report->machine.device.kind == PST_DEVICE_HOST;
    const int num_pools = is_host || !self->quick ? POOLS : 1;
    const uint64_t bytes = (is_host ? 16 : self->quick ? 64 : 256) * BENCH_MIB;
    bench_case what = bench_base_case();
    what.sweep = BENCH_SWEEP_HOST;
    what.bytes = bytes;
    TOOL_TRY(bench_host_limit(&report->machine, &self->left));
    self->left -= bytes < self->left ? bytes : self->left; /* the anchors' */
    for (int i = 0; i < num_pools; i++) {
        what.host_bytes = (is_host ? on_host : on_cuda)[i] * BENCH_MIB;
        TOOL_TRY(open_rig(self, &self->rigs[i], device, &what, report));
    }
    what.bytes = bytes / 2;
    what.host_bytes = what.bytes + SPARE_PAGES * what.page_bytes;
    return open_rig(self, &self->rigs[PARTS], device, &what, report);
}

static int close_rig(tier_rig *self)
{
    if (!self->is_open)
        return TOOL_OK;
    TOOL_TRY(bench_check_faults(&self->rig));
    for (uint32_t v = 0; v < self->num; v++)
        for (int op = 0; op < 2; op++)
            TOOL_PST(pst_graph_destroy(self->variants[v].graphs[op]));
    return bench_rig_close(&self->rig, TOOL_OK);
}

/* ---- samples, rows ---- */

static int sample_rig(tier_rig *self)
{
    double seconds;
    for (uint32_t v = 0; self->is_open && v < self->num; v++)
        for (int op = 0; op < 2; op++) {
            TOOL_TRY(bench_time(&self->rig.timer, self->variants[v].graphs[op], &seconds));
            bench_series_add(&self->variants[v].series[op], seconds);
        }
    return TOOL_OK;
}

static void add_row(const host_tier *self, const tier_rig *from, const variant *of,
                    bench_host_tier *tier)
{
    const bool crosses = of->num == of->den && from != &self->rigs[PARTS];
    bench_host_row *row = &tier->rows[tier->num_rows++];
    *row =
        (bench_host_row){.bytes = from->rig.shape.live_bytes,
                         .pages = from->rig.pages,
                         .pool_bytes = from->rig.what.host_bytes,
                         .is_part = from == &self->rigs[PARTS],
                         .num = of->num,
                         .den = of->den,
                         .pinned_pages = of->pinned_pages,
                         .num_sms = of->num_sms ? of->num_sms : from->rig.machine->device.num_sms,
                         .mismatched_bytes = of->mismatched_bytes};
    for (int op = 0; op < 2; op++) {
        const bench_series none = {.num = 0}, *series = &of->series[op];
        const bench_flat_copy *best = bench_flat_best(&self->link.ways[op], 1);
        row->seconds[op] = bench_summary(series);
        row->share_of_engine[op] =
            bench_median_ratio(crosses ? &self->link.ways[op].copies[0].series : &none, series);
        row->share_of_sm_copy[op] =
            bench_median_ratio(crosses && best ? &best->series : &none, series);
    }
}

static int measure(host_tier *self, bench_report *report)
{
    bench_host_tier *tier = &report->host_tier;
    const uint32_t samples = self->quick ? QUICK_SAMPLES : SAMPLES;
    TOOL_TRY(bench_link_open(&self->link, &self->rigs[0].rig));
    for (uint32_t i = 0; i < samples; i++) {
        TOOL_TRY(bench_link_sample(&self->link));
        for (int r = 0; r < RIGS; r++)
            TOOL_TRY(sample_rig(&self->rigs[r]));
    }
    tier->bytes = self->rigs[0].rig.shape.live_bytes;
    TOOL_TRY(bench_link_report(&self->link, report));
    for (int r = 0; r < RIGS; r++)
        for (uint32_t v = 0; self->rigs[r].is_open && v < self->rigs[r].num; v++)
            add_row(self, &self->rigs[r], &self->rigs[r].variants[v], tier);
    return bench_link_close(&self->link);
}

int bench_measure_host_tier(pst_device *device, bool quick, bench_report *report)
{
    static host_tier self;
    self.quick = quick;
    TOOL_TRY(open_rigs(&self, device, report));
    if (self.rigs[0].is_open)
        TOOL_TRY(measure(&self, report));
    for (int r = 0; r < RIGS; r++)
        TOOL_TRY(close_rig(&self.rigs[r]));
    return bench_measure_recovery(device, &report->machine, quick, quick ? QUICK_SAMPLES : SAMPLES,
                                  &report->host_tier.recovery);
}
