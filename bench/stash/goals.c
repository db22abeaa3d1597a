/* The goals, and the worst figure of this run for each. */
#include "bench/stash/goals.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

enum { STASH, RESTORE, NUM_OPS };

typedef struct goals {
    const bench_report *report;
    bool is_host;
} goals;

void bench_worsen(bench_figure *worst, double value, bool small_is_good, const char *format, ...)
{
    bench_figure found = {.value = value};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(found.where, sizeof(found.where), format, arguments);
    va_end(arguments);
    const bool is_first = isnan(worst->value);
    const bool is_worse = small_is_good ? value > worst->value : value < worst->value;
    if (!isnan(value) && (is_first || is_worse))
        *worst = found;
}

bench_figure bench_no_figure(void)
{
    return (bench_figure){.value = (double)NAN};
}

void bench_print_goal(const char *id, const char *what, const bench_figure *worst,
                      bool small_is_good, double target, const char *missing)
{
    if (isnan(worst->value)) {
        printf("%-3s %-52s not measured here: %s\n", id, what, missing);
        return;
    }
    const bool reached = small_is_good ? worst->value <= target : worst->value >= target;
    printf("%-3s %-52s %8.3f (%s %.3g) %-7s %s\n", id, what, worst->value,
           small_is_good ? "<=" : ">=", target, reached ? "reached" : "missed", worst->where);
}

static const char *op_name(int op)
{
    return op == STASH ? "stash" : "restore";
}

static const bench_times *cold(const bench_result *result, int op)
{
    return &result->rows[BENCH_COLD][op].seconds;
}

/* ---- G1, G2, H1: shares of plain copies ---- */

static bool has_defaults(const bench_case *what)
{
    return (what->sweep == BENCH_SWEEP_BYTES || what->sweep == BENCH_SWEEP_CUSTOM) &&
           what->backend == PST_BACKEND_AUTO && what->num_sms == 0;
}

static void print_g1(const goals *self, uint64_t low, uint64_t high, double target)
{
    const bench_report *report = self->report;
    bench_figure least = bench_no_figure();
    char what[64], missing[64];
    for (size_t i = 0; i < report->num_results; i++) {
        const bench_result *result = &report->results[i];
        if (!has_defaults(&result->what) || result->what.bytes < low * BENCH_MIB ||
            result->what.bytes >= high * BENCH_MIB)
            continue;
        for (int op = 0; op < NUM_OPS; op++)
            bench_worsen(&least, bench_share_of_a0(report, result->bytes, cold(result, op)), false,
                         "%s of %" PRIu64 " MiB", op_name(op), result->what.bytes / BENCH_MIB);
    }
    snprintf(what, sizeof(what), "share of A0, %" PRIu64 " MiB%s", low,
             high == UINT32_MAX ? " and more" : "");
    snprintf(missing, sizeof(missing), "sweep bytes has no %" PRIu64 " MiB in this run", low);
    bench_print_goal("G1", what, &least, false, target, missing);
}

static bool is_usual(const bench_result *result)
{
    return result->what.bytes >= 64 * BENCH_MIB && result->what.alignment == 16 &&
           result->what.page_bytes >= 64 * BENCH_KIB && result->bytes > 0;
}

static void print_g2(const goals *self)
{
    const bench_report *report = self->report;
    bench_figure most = bench_no_figure();
    for (size_t i = 0; i < report->num_results; i++) {
        const bench_result *result = &report->results[i];
        for (int op = 0; op < NUM_OPS && is_usual(result); op++)
            bench_worsen(&most, 1.0 / result->rows[BENCH_COLD][op].share_of_own_copy, true,
                         "%s, %s, %" PRIu64 " MiB, %s, %d SMs", op_name(op),
                         bench_sweep_name(result->what.sweep), result->what.bytes / BENCH_MIB,
                         bench_backend_name(result->what.backend), result->num_sms);
    }
    bench_print_goal("G2", "seconds over own contiguous copy, 64 MiB and more", &most, true, 1.03,
                     "no configuration of 64 MiB and more");
}

static void print_h1(const goals *self)
{
    const bench_report *report = self->report;
    bench_figure of_a0 = bench_no_figure(), of_own = bench_no_figure();
    const char *missing =
        self->is_host ? "no configuration of 64 MiB and more" : "for the host device";
    for (size_t i = 0; i < report->num_results && self->is_host; i++) {
        const bench_result *result = &report->results[i];
        for (int op = 0; op < NUM_OPS && is_usual(result); op++)
            for (int state = 0; state < BENCH_NUM_STATES; state++) {
                const bench_row *row = &result->rows[state][op];
                char where[80];
                snprintf(where, sizeof(where), "%s, %s, %" PRIu64 " MiB, %s", op_name(op),
                         bench_sweep_name(result->what.sweep), result->what.bytes / BENCH_MIB,
                         bench_state_name((bench_state)state));
                bench_worsen(&of_a0, bench_share_of_a0(report, result->bytes, &row->seconds), false,
                             "%s", where);
                bench_worsen(&of_own, row->share_of_own_copy, false, "%s", where);
            }
    }
    bench_print_goal("H1", "host: share of A0, a memcpy; 64 MiB and more", &of_a0, false, 0.9,
                     missing);
    bench_print_goal("H1", "host: share of memcpy of the same bytes", &of_own, false, 0.9, missing);
}

/* ---- G3: nodes ---- */

static void print_g3(const goals *self)
{
    const bench_report *report = self->report;
    const bench_figure peers = bench_no_figure();
    bench_figure nodes = bench_no_figure();
    for (size_t i = 0; i < report->num_results; i++)
        bench_worsen(&nodes, (double)(report->results[i].nodes[0] + report->results[i].nodes[1]),
                     true, "one stash, one restore");
    bench_print_goal("G3", "times the speed of the Triton peer", &peers, false, 1.3,
                     "bench/peers/run.py does; instead 0.93 of A0 suffices, see G1");
    bench_print_goal("G3", "graph nodes of a layer", &nodes, true, 2, "no configuration");
}

/* ---- G4: SM budgets ---- */

static const bench_result *find_budget(const bench_report *report, pst_backend backend, int num_sms)
{
    for (size_t i = 0; i < report->num_results; i++) {
        const bench_case *what = &report->results[i].what;
        if (what->sweep == BENCH_SWEEP_NUM_SMS && what->backend == backend &&
            what->num_sms == num_sms)
            return &report->results[i];
    }
    return NULL;
}

static double lesser_share(const bench_report *report, const bench_result *result)
{
    const double stash = bench_share_of_a0(report, result->bytes, cold(result, STASH));
    const double restore = bench_share_of_a0(report, result->bytes, cold(result, RESTORE));
    return stash < restore ? stash : restore;
}

static void print_g4(const goals *self)
{
    const bench_report *report = self->report;
    bench_figure fewest = bench_no_figure(), least = bench_no_figure();
    for (size_t i = 0; i < report->num_results; i++) {
        const bench_result *result = &report->results[i];
        const bench_case *what = &result->what;
        if (what->sweep != BENCH_SWEEP_NUM_SMS)
            continue;
        if (isnan(fewest.value))
            bench_worsen(&fewest, INFINITY, true, "no budget came to 0.9");
        if (lesser_share(report, result) >= 0.9)
            bench_worsen(&fewest, result->num_sms, false, "%s", bench_backend_name(what->backend));
        const bench_result *ldg = find_budget(report, PST_BACKEND_LDG, what->num_sms);
        for (int op = 0; op < NUM_OPS; op++)
            if (what->backend == PST_BACKEND_BULK && ldg && result->num_sms <= 32)
                bench_worsen(&least, cold(ldg, op)->median / cold(result, op)->median, false,
                             "%s with %d SMs", op_name(op), result->num_sms);
    }
    bench_print_goal("G4", "SMs that suffice for 0.9 of A0", &fewest, true, 48, "sweep num_sms");
    bench_print_goal("G4", "speed of bulk over ldg, up to 32 SMs", &least, false, 1.0,
                     "sweep num_sms with bulk");
}

/* ---- G5: GEMM ---- */

static void print_g5(const goals *self)
{
    const bench_report *report = self->report;
    const int all = report->machine.device.num_sms;
    bench_figure most = bench_no_figure();
    for (size_t i = 0; i < report->num_overlaps; i++) {
        const bench_overlap *o = &report->overlaps[i];
        if (o->gemm_sms < all)
            bench_worsen(&most,
                         o->gemm_beside.median / o->gemm_alone.median - 1.0 -
                             (double)o->num_sms / all,
                         true, "%s with %d SMs", bench_backend_name(o->backend), o->num_sms);
    }
    bench_print_goal("G5", "GEMM's slowdown beyond the stash's share of SMs", &most, true, 0.03,
                     report->no_overlap);
}

/* ---- G7, G8: spread ---- */

static double seconds_per_byte(const bench_result *result, int op)
{
    return cold(result, op)->median / (double)result->bytes;
}

static void print_spread(const goals *self, bench_sweep sweep, const char *what)
{
    const bench_report *report = self->report;
    bench_figure most = bench_no_figure();
    for (int op = 0; op < NUM_OPS; op++) {
        double low = INFINITY, high = 0.0;
        int num = 0;
        for (size_t i = 0; i < report->num_results; i++) {
            const bench_result *result = &report->results[i];
            if (result->what.sweep != sweep || result->bytes == 0)
                continue;
            low = fmin(low, seconds_per_byte(result, op));
            high = fmax(high, seconds_per_byte(result, op));
            num++;
        }
        if (num > 1)
            bench_worsen(&most, high / low - 1.0, true, "%s", op_name(op));
    }
    char missing[32];
    snprintf(missing, sizeof(missing), "sweep %s", bench_sweep_name(sweep));
    bench_print_goal("G7", what, &most, true, 0.03, missing);
}

static void print_g8(const goals *self)
{
    const bench_report *report = self->report;
    bench_figure least = bench_no_figure();
    for (int op = 0; op < NUM_OPS; op++) {
        double best = INFINITY;
        for (int pass = 0; pass < 2; pass++)
            for (size_t i = 0; i < report->num_results; i++) {
                const bench_result *result = &report->results[i];
                if (result->what.sweep != BENCH_SWEEP_PAGE_SIZE)
                    continue;
                if (pass == 0)
                    best = fmin(best, cold(result, op)->median);
                else if (result->what.page_bytes >= 64 * BENCH_KIB)
                    bench_worsen(&least, best / cold(result, op)->median, false,
                                 "%s, pages of %" PRIu64 " KiB", op_name(op),
                                 result->what.page_bytes / BENCH_KIB);
            }
    }
    bench_print_goal("G8", "speed over that of the best page size, from 64 KiB", &least, false,
                     0.95, "sweep page_size");
}

/* ---- G9: what a launch costs ---- */

static void print_g9(const goals *self)
{
    const bench_report *report = self->report;
    const bench_result *one = NULL, *many = NULL;
    bench_figure empty = bench_no_figure(), tensors = bench_no_figure();
    for (size_t i = 0; i < report->num_results; i++) {
        const bench_result *result = &report->results[i];
        for (int state = 0; state < BENCH_NUM_STATES; state++) {
            const bench_row *row = &result->rows[state][STASH];
            const int node = row->anchors[BENCH_EMPTY_NODE];
            if (node != BENCH_NO_ANCHOR)
                bench_worsen(&empty,
                             (row->seconds.median - report->anchors[node].seconds.median) * 1e6,
                             true, "%s", bench_state_name((bench_state)state));
        }
        if (result->what.sweep == BENCH_SWEEP_TENSORS && result->what.tensors == 1)
            one = result;
        if (result->what.sweep == BENCH_SWEEP_TENSORS && result->what.tensors == PST_MAX_TENSORS)
            many = result;
    }
    for (int op = 0; op < NUM_OPS && one && many; op++)
        bench_worsen(&tensors, (cold(many, op)->median - cold(one, op)->median) * 1e6, true, "%s",
                     op_name(op));
    bench_print_goal("G9", "us of an empty stash over an empty node", &empty, true, 1.5,
                     "sweep pattern");
    bench_print_goal("G9", "us of 64 tensors over one of the same bytes", &tensors, true, 2.0,
                     "sweep tensors");
}

/* ---- G10: exactness ---- */

static void print_g10(const goals *self)
{
    const bench_report *report = self->report;
    const bench_pairs *pairs = &report->pairs;
    bench_figure bytes = bench_no_figure(), moved = bench_no_figure(), lost = bench_no_figure();
    char what[64];
    bench_worsen(&bytes, (double)bench_mismatches(report), true, "all checks of this run");
    if (report->has_pairs) {
        bench_worsen(&moved, (double)pairs->moved_pages, true, "ordered pool, same history twice");
        bench_worsen(&lost, (double)(pairs->check_errors + pairs->faults), true,
                     "errors and faults");
    }
    snprintf(what, sizeof(what), "pages lost after %" PRIu64 " random pairs", pairs->pairs);
    bench_print_goal("G10", "differing bytes", &bytes, true, 0, "");
    bench_print_goal("G10", "page ids that differ between replays", &moved, true, 0, "sweep pairs");
    bench_print_goal("G10", what, &lost, true, 0, "sweep pairs");
}

/* G6 of the study is T1 to T4 here. */
static void print_not_for_host(void)
{
    static const char *const ids[] = {"G1", "G2", "G3", "G4", "G5", "G7", "G8",
                                      "G9", "T1", "T2", "T3", "T4", "T5"};
    const bench_figure none = bench_no_figure();
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
        bench_print_goal(ids[i], "", &none, true, 0, "a goal of GPUs");
}

void bench_print_goals(const bench_report *report)
{
    const goals self = {.report = report,
                        .is_host = report->machine.device.kind == PST_DEVICE_HOST};
    printf("\ngoals: the worst of this run\n");
    if (self.is_host) {
        print_not_for_host();
    } else {
        print_g1(&self, 512, UINT32_MAX, 0.95);
        print_g1(&self, 256, 512, 0.93);
        print_g1(&self, 64, 256, 0.85);
        print_g1(&self, 16, 64, 0.65);
        print_g2(&self);
        print_g3(&self);
        print_g4(&self);
        print_g5(&self);
        print_spread(&self, BENCH_SWEEP_PATTERN, "spread of time over row distributions");
        print_spread(&self, BENCH_SWEEP_RING, "spread of time over orders of the ring");
        print_g8(&self);
        print_g9(&self);
        bench_print_host_goals(report);
    }
    print_g10(&self);
    print_h1(&self);
}
