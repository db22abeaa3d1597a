/* The goals, and the worst figure of this run for each. */
#include "bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

enum { STASH, RESTORE, NUM_OPS };

typedef struct goals {
    const bench_report *report;
    bool is_host;
} goals;

typedef struct figure {
    double value; /* NaN: not measured */
    char where[160];
} figure;

/* The worse of two: the larger if most is wanted small. */
static void worsen(figure *worst, double value, bool small_is_good, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void worsen(figure *worst, double value, bool small_is_good, const char *format, ...)
{
    va_list arguments;
    if (isnan(value) ||
        (!isnan(worst->value) && (small_is_good ? value <= worst->value : value >= worst->value)))
        return;
    worst->value = value;
    va_start(arguments, format);
    vsnprintf(worst->where, sizeof(worst->where), format, arguments);
    va_end(arguments);
}

static figure nothing(void)
{
    return (figure){.value = (double)NAN};
}

/* Prints a goal; missing: what it would take, where nothing was measured. */
static void print_goal(const char *id, const char *what, const figure *worst, bool small_is_good,
                       double target, const char *missing)
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
    figure least = nothing();
    char what[64], missing[64];
    for (size_t i = 0; i < report->num_results; i++) {
        const bench_result *result = &report->results[i];
        if (!has_defaults(&result->what) || result->what.bytes < low * BENCH_MIB ||
            result->what.bytes >= high * BENCH_MIB)
            continue;
        for (int op = 0; op < NUM_OPS; op++)
            worsen(&least, bench_share_of_a0(report, result->bytes, cold(result, op)), false,
                   "%s of %" PRIu64 " MiB", op_name(op), result->what.bytes / BENCH_MIB);
    }
    snprintf(what, sizeof(what), "share of A0, %" PRIu64 " MiB%s", low,
             high == UINT32_MAX ? " and more" : "");
    snprintf(missing, sizeof(missing), "sweep bytes has no %" PRIu64 " MiB in this run", low);
    print_goal("G1", what, &least, false, target, missing);
}

static bool is_usual(const bench_result *result)
{
    return result->what.bytes >= 64 * BENCH_MIB && result->what.alignment == 16 &&
           result->what.page_bytes >= 64 * BENCH_KIB && result->bytes > 0;
}

static void print_g2(const goals *self)
{
    const bench_report *report = self->report;
    figure most = nothing();
    for (size_t i = 0; i < report->num_results; i++) {
        const bench_result *result = &report->results[i];
        for (int op = 0; op < NUM_OPS && is_usual(result); op++)
            worsen(&most, 1.0 / result->rows[BENCH_COLD][op].share_of_own_copy, true,
                   "%s, %s, %" PRIu64 " MiB, %s, %d SMs", op_name(op),
                   bench_sweep_name(result->what.sweep), result->what.bytes / BENCH_MIB,
                   bench_backend_name(result->what.backend), result->num_sms);
    }
    print_goal("G2", "seconds over own contiguous copy, 64 MiB and more", &most, true, 1.03,
               "no configuration of 64 MiB and more");
}

static void print_h1(const goals *self)
{
    const bench_report *report = self->report;
    figure of_a0 = nothing(), of_own = nothing();
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
                worsen(&of_a0, bench_share_of_a0(report, result->bytes, &row->seconds), false, "%s",
                       where);
                worsen(&of_own, row->share_of_own_copy, false, "%s", where);
            }
    }
    print_goal("H1", "host: share of A0, a memcpy; 64 MiB and more", &of_a0, false, 0.9, missing);
    print_goal("H1", "host: share of memcpy of the same bytes", &of_own, false, 0.9, missing);
}

/* ---- G3: nodes ---- */

static void print_g3(const goals *self)
{
    const bench_report *report = self->report;
    const figure peers = nothing();
    figure nodes = nothing();
    for (size_t i = 0; i < report->num_results; i++)
        worsen(&nodes, (double)(report->results[i].nodes[0] + report->results[i].nodes[1]), true,
               "one stash, one restore");
    print_goal("G3", "times the speed of the Triton peer", &peers, false, 1.3,
               "bench/peers/run.py does");
    print_goal("G3", "graph nodes of a layer", &nodes, true, 2, "no configuration");
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
    figure fewest = nothing(), least = nothing();
    for (size_t i = 0; i < report->num_results; i++) {
        const bench_result *result = &report->results[i];
        const bench_case *what = &result->what;
        if (what->sweep != BENCH_SWEEP_NUM_SMS)
            continue;
        if (isnan(fewest.value))
            worsen(&fewest, INFINITY, true, "no budget came to 0.9");
        if (lesser_share(report, result) >= 0.9)
            worsen(&fewest, result->num_sms, false, "%s", bench_backend_name(what->backend));
        const bench_result *ldg = find_budget(report, PST_BACKEND_LDG, what->num_sms);
        for (int op = 0; op < NUM_OPS; op++)
            if (what->backend == PST_BACKEND_BULK && ldg && result->num_sms <= 32)
                worsen(&least, cold(ldg, op)->median / cold(result, op)->median, false,
                       "%s with %d SMs", op_name(op), result->num_sms);
    }
    print_goal("G4", "SMs that suffice for 0.9 of A0", &fewest, true, 48, "sweep num_sms");
    print_goal("G4", "speed of bulk over ldg, up to 32 SMs", &least, false, 1.0,
               "sweep num_sms with bulk");
}

/* ---- G5: GEMM ---- */

static void print_g5(const goals *self)
{
    const bench_report *report = self->report;
    const int all = report->machine.device.num_sms;
    figure most = nothing();
    for (size_t i = 0; i < report->num_overlaps; i++) {
        const bench_overlap *o = &report->overlaps[i];
        if (o->gemm_sms < all)
            worsen(&most,
                   o->gemm_beside.median / o->gemm_alone.median - 1.0 - (double)o->num_sms / all,
                   true, "%s with %d SMs", bench_backend_name(o->backend), o->num_sms);
    }
    print_goal("G5", "GEMM's slowdown beyond the stash's share of SMs", &most, true, 0.03,
               report->no_overlap);
}

/* ---- G7, G8: spread ---- */

static void print_spread(const goals *self, bench_sweep sweep, const char *what)
{
    const bench_report *report = self->report;
    figure most = nothing();
    for (int op = 0; op < NUM_OPS; op++) {
        double low = INFINITY, high = 0.0;
        int num = 0;
        for (size_t i = 0; i < report->num_results; i++) {
            const bench_result *result = &report->results[i];
            if (result->what.sweep != sweep || result->bytes == 0)
                continue;
            low = fmin(low, cold(result, op)->median);
            high = fmax(high, cold(result, op)->median);
            num++;
        }
        if (num > 1)
            worsen(&most, high / low - 1.0, true, "%s", op_name(op));
    }
    char missing[32];
    snprintf(missing, sizeof(missing), "sweep %s", bench_sweep_name(sweep));
    print_goal("G7", what, &most, true, 0.03, missing);
}

static void print_g8(const goals *self)
{
    const bench_report *report = self->report;
    figure least = nothing();
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
                    worsen(&least, best / cold(result, op)->median, false,
                           "%s, pages of %" PRIu64 " KiB", op_name(op),
                           result->what.page_bytes / BENCH_KIB);
            }
    }
    print_goal("G8", "speed over that of the best page size, from 64 KiB", &least, false, 0.95,
               "sweep page_size");
}

/* ---- G9: what a launch costs ---- */

static void print_g9(const goals *self)
{
    const bench_report *report = self->report;
    const bench_result *one = NULL, *many = NULL;
    figure empty = nothing(), tensors = nothing();
    for (size_t i = 0; i < report->num_results; i++) {
        const bench_result *result = &report->results[i];
        for (int state = 0; state < BENCH_NUM_STATES; state++) {
            const bench_row *row = &result->rows[state][STASH];
            const int node = row->anchors[BENCH_EMPTY_NODE];
            if (node != BENCH_NO_ANCHOR)
                worsen(&empty, (row->seconds.median - report->anchors[node].seconds.median) * 1e6,
                       true, "%s", bench_state_name((bench_state)state));
        }
        if (result->what.sweep == BENCH_SWEEP_TENSORS && result->what.tensors == 1)
            one = result;
        if (result->what.sweep == BENCH_SWEEP_TENSORS && result->what.tensors == PST_MAX_TENSORS)
            many = result;
    }
    for (int op = 0; op < NUM_OPS && one && many; op++)
        worsen(&tensors, (cold(many, op)->median - cold(one, op)->median) * 1e6, true, "%s",
               op_name(op));
    print_goal("G9", "us of an empty stash over an empty node", &empty, true, 1.5, "sweep pattern");
    print_goal("G9", "us of 64 tensors over one of the same bytes", &tensors, true, 2.0,
               "sweep tensors");
}

/* ---- G10: exactness ---- */

static void print_g10(const goals *self)
{
    const bench_report *report = self->report;
    const bench_pairs *pairs = &report->pairs;
    figure bytes = nothing(), moved = nothing(), lost = nothing();
    char what[64];
    worsen(&bytes, (double)bench_mismatches(report), true, "all checks of this run");
    if (report->has_pairs) {
        worsen(&moved, (double)pairs->moved_pages, true, "ordered pool, same history twice");
        worsen(&lost, (double)(pairs->check_errors + pairs->faults), true, "errors and faults");
    }
    snprintf(what, sizeof(what), "pages lost after %" PRIu64 " random pairs", pairs->pairs);
    print_goal("G10", "differing bytes", &bytes, true, 0, "");
    print_goal("G10", "page ids that differ between replays", &moved, true, 0, "sweep pairs");
    print_goal("G10", what, &lost, true, 0, "sweep pairs");
}

void bench_print_goals(const bench_report *report)
{
    const goals self = {.report = report,
                        .is_host = report->machine.device.kind == PST_DEVICE_HOST};
    const figure none = nothing();
    printf("\ngoals: the worst of this run\n");
    if (self.is_host) {
        for (int goal = 1; goal <= 9; goal++) {
            char id[8];
            snprintf(id, sizeof(id), "G%d", goal);
            print_goal(id, "", &none, true, 0, "a goal of GPUs");
        }
    } else {
        print_g1(&self, 512, UINT32_MAX, 0.95);
        print_g1(&self, 256, 512, 0.93);
        print_g1(&self, 64, 256, 0.85);
        print_g1(&self, 16, 64, 0.65);
        print_g2(&self);
        print_g3(&self);
        print_g4(&self);
        print_g5(&self);
        print_goal("G6", "bandwidth of host pages", &none, true, 0, "pools have no host pages yet");
        print_spread(&self, BENCH_SWEEP_PATTERN, "spread of time over row distributions");
        print_spread(&self, BENCH_SWEEP_RING, "spread of time over orders of the ring");
        print_g8(&self);
        print_g9(&self);
    }
    print_g10(&self);
    print_h1(&self);
}
