/* The tables on stdout. */
#include "bench/stash/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MIB ((double)BENCH_MIB)

static uint64_t largest_pool(const bench_report *report)
{
    uint64_t most = 0;
    for (size_t i = 0; i < report->num_results; i++) {
        const uint64_t bytes = bench_pool_bytes(&report->results[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void print_header(const bench_report *report)
{
    const bench_machine *machine = &report->machine;
    printf("device %s", machine->device.name);
    if (*machine->driver)
        printf(", driver %s", machine->driver);
    if (machine->has_clocks)
        printf(", %u of %u MHz, memory %u of %u MHz", machine->clocks.sm_mhz,
               machine->clocks.max_sm_mhz, machine->clocks.memory_mhz,
               machine->clocks.max_memory_mhz);
    printf("\ncache %.0f MiB (%s), commit %s, largest pool %.0f MiB\n",
           (double)machine->cache_bytes / MIB, machine->cache_source, PAGESTASH_COMMIT,
           (double)largest_pool(report) / MIB);
}

static void print_a0(const bench_report *report)
{
    for (size_t i = 0; i < report->num_anchors; i++) {
        const bench_anchor *anchor = &report->anchors[i];
        if (anchor->role[0] != 'a')
            continue;
        printf("%s %-24s %6.0f MiB, cold: %9.3f ms, %8.2f GB/s\n",
               (int)i == report->a0 ? "A0" : "  ", anchor->name, (double)anchor->bytes / MIB,
               anchor->seconds.median * 1e3, bench_gbps(anchor->bytes, &anchor->seconds));
    }
}

/* "0.97", or "-" for what was not measured. */
static const char *ratio(double value, char text[16])
{
    if (isnan(value))
        snprintf(text, 16, "-");
    else
        snprintf(text, 16, "%.3f", value);
    return text;
}

/* ---- what a row differs from: the base of the sweeps, or the one configuration of the command line ---- */

static bench_case base_of(const bench_report *report)
{
    const bench_case *first = &report->results[0].what;
    return first->sweep == BENCH_SWEEP_CUSTOM ? *first : bench_base_case();
}

static void print_base(const bench_case *base)
{
    printf("\nif not said otherwise: %u tensors, pages of %" PRIu64
           " KiB, rows %s, ring %s, aligned "
           "to %u,\nbackend %s, SMs ",
           base->tensors, base->page_bytes / BENCH_KIB, bench_pattern_name(base->pattern),
           bench_ring_name(base->ring), base->alignment, bench_backend_name(base->backend));
    if (base->num_sms)
        printf("%d\n", base->num_sms);
    else
        printf("all\n");
}

typedef struct difference {
    char text[128]; /* of all differences at once */
    int length;
} difference;

static void __attribute__((format(printf, 3, 4)))
differ(difference *self, bool is_so, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (is_so)
        self->length += vsnprintf(self->text + self->length,
                                  sizeof(self->text) - (size_t)self->length, format, arguments);
    va_end(arguments);
}

static difference difference_of(const bench_case *what, const bench_case *base)
{
    difference self = {.length = 0};
    differ(&self, what->tensors != base->tensors, "%u tensors ", what->tensors);
    differ(&self, what->page_bytes != base->page_bytes, "%" PRIu64 " KiB ",
           what->page_bytes / BENCH_KIB);
    differ(&self, what->row_bytes != 0, "rows %u/%u ", what->row_bytes, what->row_stride);
    differ(&self, what->pattern != base->pattern, "%s ", bench_pattern_name(what->pattern));
    differ(&self, what->ring != base->ring, "%s ", bench_ring_name(what->ring));
    differ(&self, what->alignment != base->alignment, "aligned to %u ", what->alignment);
    differ(&self, what->backend != base->backend, "%s ", bench_backend_name(what->backend));
    differ(&self, what->num_sms != base->num_sms, "%d SMs", what->num_sms);
    return self;
}

static void print_wrong_bytes(uint64_t number)
{
    if (number > 0)
        printf(" %" PRIu64 " wrong", number);
    putchar('\n');
}

static void print_row(const bench_report *report, const bench_result *result, int op,
                      bench_state state)
{
    const bench_case base = base_of(report);
    const bench_row *row = &result->rows[state][op];
    const difference differs = difference_of(&result->what, &base);
    char a0[16], own[16];
    printf("%-7s %-4s %-9s %8.2f %-22s %10.4f %8.2f %6s %6s", op ? "restore" : "stash",
           bench_state_name(state), bench_sweep_name(result->what.sweep),
           (double)result->bytes / MIB, differs.text, row->seconds.median * 1e3,
           bench_gbps(result->bytes, &row->seconds),
           ratio(bench_share_of_a0(report, result->bytes, &row->seconds), a0),
           ratio(row->share_of_own_copy, own));
    print_wrong_bytes(result->mismatched_bytes);
}

static void print_rows(const bench_report *report)
{
    if (report->num_results == 0)
        return;
    const bench_case base = base_of(report);
    print_base(&base);
    printf("%-7s %-4s %-9s %8s %-22s %10s %8s %6s %6s\n", "op", "", "sweep", "MiB", "with",
           "median ms", "GB/s", "of A0", "of own");
    for (size_t i = 0; i < report->num_results; i++)
        for (int state = 0; state < BENCH_NUM_STATES; state++)
            for (int op = 0; op < 2; op++)
                print_row(report, &report->results[i], op, (bench_state)state);
}

/* What else one could do, with the cold stash of the same configuration: columns of what was measured. */
typedef struct peer {
    const char *name;
    bench_slot slot;
    bool is_shown;
} peer;

static void print_peer_row(const bench_report *report, const bench_result *result,
                           const peer *peers, size_t num)
{
    const bench_row *row = &result->rows[BENCH_COLD][0];
    printf("%-9s %8.2f %-10s %9.4f", bench_sweep_name(result->what.sweep),
           (double)result->bytes / MIB, bench_pattern_name(result->what.pattern),
           row->seconds.median * 1e3);
    for (size_t p = 0; p < num; p++) {
        const int at = row->anchors[peers[p].slot];
        char text[16] = "-";
        if (at != BENCH_NO_ANCHOR)
            snprintf(text, sizeof(text), "%.4f", report->anchors[at].seconds.median * 1e3);
        if (peers[p].is_shown)
            printf(" %13s", text);
    }
    putchar('\n');
}

static void print_peers(const bench_report *report)
{
    const bool is_host = report->machine.device.kind == PST_DEVICE_HOST;
    peer peers[] = {{is_host ? "memcpy" : "driver copy", BENCH_DRIVER_COPY, false},
                    {"cub batched", BENCH_CUB_BATCHED, false},
                    {"full capacity", BENCH_FULL_CAPACITY, false},
                    {"empty kernel", BENCH_EMPTY_NODE, false}};
    const size_t num = sizeof(peers) / sizeof(peers[0]);
    bool is_asked = false;
    for (size_t i = 0; i < report->num_results; i++)
        for (size_t p = 0; p < num && report->results[i].what.peers; p++) {
            is_asked = true;
            peers[p].is_shown |=
                report->results[i].rows[BENCH_COLD][0].anchors[peers[p].slot] != BENCH_NO_ANCHOR;
        }
    if (!is_asked)
        return;
    printf("\n%-9s %8s %-10s %9s", "cold, ms", "MiB", "pattern", "stash");
    for (size_t p = 0; p < num; p++)
        if (peers[p].is_shown)
            printf(" %13s", peers[p].name);
    putchar('\n');
    for (size_t i = 0; i < report->num_results; i++)
        if (report->results[i].what.peers)
            print_peer_row(report, &report->results[i], peers, num);
}

static void print_overlaps(const bench_report *report)
{
    for (size_t i = 0; i < report->num_overlaps; i++) {
        const bench_overlap *o = &report->overlaps[i];
        if (i == 0)
            printf("\n%-8s %4s %9s %9s %9s %9s %9s %9s %9s\n", "overlap", "sms", "gemm sms",
                   "gemm ms", "beside", "stash ms", "beside", "start us", "beside");
        printf("%-8s %4d %9d %9.3f %9.3f %9.3f %9.3f %9.1f %9.1f\n", bench_backend_name(o->backend),
               o->num_sms, o->gemm_sms, o->gemm_alone.median * 1e3, o->gemm_beside.median * 1e3,
               o->stash_alone.median * 1e3, o->stash_beside.median * 1e3,
               o->start_alone.median * 1e6, o->start_beside.median * 1e6);
    }
    if (*report->no_overlap)
        printf("overlap with a GEMM: not measured: %s\n", report->no_overlap);
}

static void print_linears(const bench_report *report)
{
    if (*report->no_linear)
        printf("\nlinears: not measured: %s\n", report->no_linear);
    for (size_t i = 0; i < report->num_linears; i++) {
        const bench_linear_row *of = &report->linears[i];
        if (i == 0 || of->is_paced != of[-1].is_paced)
            printf("\n%-21s %5s %8s %8s %8s %8s %8s %8s %8s %6s\n",
                   of->is_paced ? "linear, paced, ms" : "linear, ms", "ranks", "memcpy", "1 elem.",
                   "products", "pieces", "exchange", "layer", "ring", "hidden");
        printf("%-21s %5u %8.3f %8.3f %8.3f %8.3f %8.3f %8.3f %8.3f %6.2f%s\n", of->name,
               of->num_ranks, of->copy.median * 1e3, of->nothing.median * 1e3,
               of->products.median * 1e3, of->pieces.median * 1e3, of->exchange.median * 1e3,
               of->layer.median * 1e3, of->ring.median * 1e3, of->hidden,
               (of->is_paced ? 1 : 2) * of->num_ranks > report->num_cores ? " *" : "");
    }
    if (report->num_linears && *report->no_product)
        printf("no products: %s\n", report->no_product);
    if (report->num_linears)
        printf("* more threads than the %u cores: each rank has one that exchanges, and one that\n"
               "  multiplies, which needs no core where it is paced\n",
               report->num_cores);
}

static void print_glus(const bench_report *report)
{
    for (size_t i = 0; i < report->num_glus; i++) {
        const bench_glu_row *g = &report->glus[i];
        if (i == 0)
            printf("\n%-25s %6s %7s %7s %7s %7s %8s %8s %9s %7s\n", "glu, ms", "MiB", "memcpy",
                   "forward", "stash", "restore", "backward", "forward*", "backward*", "speedup");
        printf("%-25s %6.1f %7.3f %7.3f %7.3f %7.3f %8.3f %8.3f %9.3f %7.2f\n", g->name,
               (double)g->bytes / (double)BENCH_MIB, g->copy.median * 1e3, g->compute.median * 1e3,
               g->stash.median * 1e3, g->restore.median * 1e3, g->differentiate.median * 1e3,
               g->forward.median * 1e3, g->backward.median * 1e3, g->speedup);
    }
    if (report->num_glus)
        printf("* with pages\n");
}

static void print_link_copies(const bench_report *report)
{
    for (size_t i = 0; i < report->num_anchors; i++) {
        const bench_anchor *anchor = &report->anchors[i];
        char budget[16];
        if (strcmp(anchor->role, "to_host") != 0 && strcmp(anchor->role, "from_host") != 0)
            continue;
        snprintf(budget, sizeof(budget), anchor->num_sms ? "%d" : "all", anchor->num_sms);
        printf("%-9s %-24s sms %4s %10.4f ms %8.2f GB/s\n", anchor->role, anchor->name, budget,
               anchor->seconds.median * 1e3, bench_gbps(anchor->bytes, &anchor->seconds));
    }
}

static void print_host_row(const bench_host_row *row, int op)
{
    char engine[16], sm_copy[16];
    printf("%-7s %5u/%u%s %7" PRIu64 " %7" PRIu64 " %8.0f %4d %10.4f %8.2f %9s %9s",
           op ? "restore" : "stash", row->num, row->den, row->is_part ? " part" : "     ",
           row->pages, row->pinned_pages, (double)row->pool_bytes / MIB, row->num_sms,
           row->seconds[op].median * 1e3, bench_gbps(row->bytes, &row->seconds[op]),
           ratio(row->share_of_engine[op], engine), ratio(row->share_of_sm_copy[op], sm_copy));
    print_wrong_bytes(row->mismatched_bytes);
}

static void print_host_tier(const bench_report *report)
{
    const bench_host_tier *tier = &report->host_tier;
    const bench_recovery *recovery = &tier->recovery;
    if (tier->bytes == 0)
        return;
    printf("\npinned tier: a group of %.2f MiB\n", (double)tier->bytes / MIB);
    print_link_copies(report);
    printf("%-7s %12s %7s %7s %8s %4s %10s %8s %9s %9s\n", "op", "offload", "pages", "pinned",
           "pool MiB", "sms", "median ms", "GB/s", "of engine", "of copy");
    for (size_t i = 0; i < tier->num_rows; i++)
        for (int op = 0; op < 2; op++)
            print_host_row(&tier->rows[i], op);
    for (size_t i = 0; i < tier->num_pins; i++)
        printf("a pool with %.0f MiB pinned: made in %.3f s\n", (double)tier->pins[i].bytes / MIB,
               tier->pins[i].seconds);
    if (recovery->seconds.samples)
        printf("recovery: %.0f MiB of device pages more, and a reset: %.3f ms\n",
               (double)recovery->grown_bytes / MIB, recovery->seconds.median * 1e3);
    if (*recovery->unavailable)
        printf("recovery: not measured: %s\n", recovery->unavailable);
}

static void print_nodes(const bench_report *report)
{
    const bench_anchor *one = NULL;
    for (size_t i = 0; i < report->num_anchors; i++) {
        const bench_anchor *anchor = &report->anchors[i];
        if (anchor->role[0] != 'n')
            continue;
        if (one)
            printf("an empty kernel node: %.2f us alone, %.2f us in a chain of %u\n",
                   one->seconds.median * 1e6,
                   (anchor->seconds.median - one->seconds.median) * 1e6 /
                       (anchor->nodes - one->nodes),
                   anchor->nodes);
        one = anchor;
    }
}

static void print_call_cost(const bench_call_cost *cost)
{
    if (cost->unavailable) {
        printf("argument path of calls: unavailable: %s\n", cost->unavailable);
        return;
    }
    printf("ns of a call on cuda, launch left out; tensors:");
    for (int i = 0; i < BENCH_CALL_TENSORS; i++)
        printf("%6u", cost->tensors[i]);
    for (int call = 0; call < BENCH_NUM_CALLS; call++) {
        printf("\n%-47s", bench_call_name((bench_call)call));
        for (int i = 0; i < BENCH_CALL_TENSORS; i++)
            printf("%6.0f", cost->ns[call][i].median);
    }
    putchar('\n');
}

void bench_print_report(const bench_report *report, const char *json_path)
{
    if (report->a0 == BENCH_NO_ANCHOR) { /* --call-cost */
        print_call_cost(&report->cost);
        return;
    }
    print_header(report);
    print_a0(report);
    print_rows(report);
    print_peers(report);
    putchar('\n');
    for (size_t i = 0; i < report->num_skips; i++)
        printf("skipped: sweep %s, %s: %s\n", bench_sweep_name(report->skips[i].sweep),
               report->skips[i].what, report->skips[i].reason);
    print_host_tier(report);
    print_overlaps(report);
    print_glus(report);
    print_linears(report);
    print_nodes(report);
    print_call_cost(&report->cost);
    printf("goals: bench/goals.py %s\n", json_path ? json_path : "FILE, with --json=FILE here");
    printf("mismatched bytes: %" PRIu64 "\n", bench_mismatches(report));
}
