/* pagestash-plan-bench: how long plans take, over seeds and threads, beside what others were measured at.
 * The times of others (docs/planner.md) come from a machine of the same size, not from this run. */
#include "bench/plan/plan_bench.h"
#include "bench/plan/tilings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TILES = 1000, CAPACITY = 1048576, TILING_SIDE = 1 << 20 };
/* Beneath a row "on weights": so many weights and so many states, and how long one takes to be made. */
enum { NUM_LASTING = 100, LASTING_BYTES = 4096, INIT_TIME = 20 };

/* ---- instances */

/* The tensors of a trace, `after` later, behind those that there are. Returns when the last one ends. */
static uint64_t take_trace(const pst_trace *trace, bool has_times, uint64_t after,
                           pst_plan_tensor *tensors)
{
    const pst_trace_tensor *from = pst_trace_tensors(trace);
    uint64_t last = 0;
    for (uint64_t i = 0; i < pst_trace_num_tensors(trace); i++) {
        tensors[i] = (pst_plan_tensor){.bytes = from[i].bytes,
                                       .begin = has_times ? from[i].begin_time : from[i].begin,
                                       .end = has_times ? from[i].end_time : from[i].end,
                                       .pin = PST_PLAN_FREE,
                                       .block = PST_PLAN_NO_BLOCK};
        tensors[i].begin += after;
        tensors[i].end += after;
        last = tensors[i].end > last ? tensors[i].end : last;
    }
    return last;
}

static void run_trace(instance of, const pst_trace *trace)
{
    of.num_tensors = pst_trace_num_tensors(trace);
    pst_plan_tensor *tensors = bench_need(calloc(of.num_tensors + 1, sizeof(*tensors)));
    take_trace(trace, of.has_times, 0, tensors);
    of.tensors = tensors;
    run(&of);
    free(tensors);
}

/* An instance in MiniMalloc's format. */
static pst_trace *open_file(const char *path)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        exit(tool_fail(TOOL_INPUT, "%s: %s", path, strerror(errno)));
    pst_trace_config config = PST_TRACE_CONFIG_INIT;
    config.format = PST_TRACE_MINIMALLOC;
    config.name = path;
    pst_trace *trace;
    bench_check_status(pst_trace_read(&config, tool_read, (void *)&file, &trace));
    close(file);
    return trace;
}

/* MiniMalloc's instance of a letter, or W. */
static pst_trace *open_letter(char letter)
{
    char path[4096];
    if (letter == 'W')
        return open_file(chosen.step);
    snprintf(path, sizeof(path), "%s/%c.1048576.csv", chosen.minimalloc, letter);
    return open_file(path);
}

/* Beside a peer: its capacity; 0: the peak that was proved here. */
static void run_beside(const instance *of, uint64_t capacity)
{
    uint64_t *offsets = bench_need(calloc(of->num_tensors + 1, sizeof(*offsets)));
    bench_series open = {.num = 0};
    bench_series capped = {.num = 0};
    instance within = *of;
    pst_plan plan;
    unsigned proved = 0;
    unsigned met = 0;
    for (uint64_t seed = 0; seed < chosen.seeds; seed++) {
        bench_series_add(&open, run_once(of, seed, 1, offsets, &plan).cpu);
        proved += plan.status == PST_PLAN_OPTIMAL;
        within.capacity = capacity != 0 ? capacity : plan.peak;
        bench_series_add(&capped, run_once(&within, seed, 1, offsets, &plan).cpu);
        met += plan.status != PST_PLAN_IMPOSSIBLE && plan.peak <= within.capacity;
    }
    free(offsets);
    const peer_result peer = peer_run(of, within.capacity);
    const double ours = bench_summary(&capped).median;
    say("%-26s %7llu  %2u of %u proved %9.6f; at capacity %2u of %u %9.6f\n"
        "    MiniMalloc %s %9.6f, %.1f times\n",
        of->name, (unsigned long long)of->num_tensors, proved, open.num,
        bench_summary(&open).median, met, open.num, ours, peer.is_met ? "met" : "not met", peer.cpu,
        peer.cpu / ours);
    json_t *row = json_object();
    json_put_text(&row, "name", of->name);
    json_put_whole(&row, "tensors", of->num_tensors);
    json_put_whole(&row, "capacity", within.capacity);
    json_put_whole(&row, "runs", open.num);
    json_put_whole(&row, "proved", proved);
    json_put(&row, "cpu_seconds_no_capacity", json_number(bench_summary(&open).median));
    json_put_whole(&row, "met", met);
    json_put(&row, "cpu_seconds", json_number(ours));
    json_put_text(&row, "peer", peer.is_met ? "met" : "not met");
    json_put(&row, "peer_cpu_seconds", json_number(peer.cpu));
    json_add(&rows, row);
}

/* Instances one after the other in time, of which nothing lives between. */
static instance take_letters(const char *letters, instance of)
{
    pst_plan_tensor *tensors = NULL;
    uint64_t last = 0;
    for (const char *letter = letters; *letter != '\0'; letter++) {
        pst_trace *trace = open_letter(*letter);
        const uint64_t num = of.num_tensors + pst_trace_num_tensors(trace);
        tensors = bench_need(realloc(tensors, (num + 1) * sizeof(*tensors)));
        last = take_trace(trace, true, last, tensors + of.num_tensors);
        of.num_tensors = num;
        pst_trace_destroy(trace);
    }
    of.tensors = tensors;
    of.align = 1;
    return of;
}

/* Puts beneath it what lasts to its end, made at different times, each beside a temporary that goes before
 * the next one comes: weights before all else, and states of an optimizer at the end of the first copy. */
static void add_weights(instance *of, uint64_t num_of_first)
{
    const uint64_t before = (uint64_t)NUM_LASTING * INIT_TIME;
    const uint64_t num = of->num_tensors + 4 * (uint64_t)NUM_LASTING;
    pst_plan_tensor *tensors =
        bench_need(realloc((void *)of->tensors, (num + 1) * sizeof(*tensors)));
    uint64_t first_end = 0;
    uint64_t end = 0;
    for (uint64_t i = 0; i < of->num_tensors; i++) {
        tensors[i].begin += before;
        tensors[i].end += before;
        end = tensors[i].end > end ? tensors[i].end : end;
        first_end = i < num_of_first ? end : first_end;
    }
    for (uint64_t k = 0; k < 2 * (uint64_t)NUM_LASTING; k++) {
        const uint64_t begin =
            k < NUM_LASTING ? k * INIT_TIME : first_end - before + (k - NUM_LASTING) * INIT_TIME;
        pst_plan_tensor lasting = {LASTING_BYTES, begin, end, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
        tensors[of->num_tensors++] = lasting;
        lasting.end = begin + INIT_TIME / 2;
        tensors[of->num_tensors++] = lasting;
    }
    of->tensors = tensors;
}

/* `on_weights`: what is beneath is no part. */
static double run_letters(const char *letters, bool on_weights, instance of)
{
    of = take_letters(letters, of);
    if (on_weights)
        add_weights(&of, of.num_tensors / strlen(letters));
    const double seconds = run(&of);
    free((void *)of.tensors);
    return seconds;
}

/* What instances in a row cost, against their sum, and against the sum of those that differ. */
static void run_row(const char *letters, bool on_weights)
{
    double all = 0.0;
    double different = 0.0;
    double alone = 0.0;
    char name[32];
    for (const char *letter = letters; *letter != '\0'; letter++) {
        if (letter == letters || *letter != letter[-1]) { /* of copies one is measured */
            snprintf(name, sizeof(name), "%c alone", *letter);
            alone = run_letters((char[]){*letter, '\0'}, false, (instance){.name = name});
            different += alone;
        }
        all += alone;
    }
    snprintf(name, sizeof(name), "%s %s", letters, on_weights ? "on weights" : "in a row");
    const double seconds = run_letters(letters, on_weights, (instance){.name = name});
    say("%-26s %.2f times the processor time of its parts, target 1.2 %s; %.2f times of those that "
        "differ\n",
        name, seconds / all, seconds <= 1.2 * all ? "met" : "missed", seconds / different);
    json_t *row = json_object();
    json_put_text(&row, "name", name);
    json_put(&row, "times_its_parts", json_number(seconds / all));
    json_put(&row, "times_its_different_parts", json_number(seconds / different));
    json_put(&row, "target_times", json_number(1.2));
    json_add(&rows, row);
}

static void run_rows(void)
{
    static const char *const lists[] = {"EEEE", "AAAA", "HHHH", "GACEK", "WWWWWWWWWW"};
    for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++)
        run_row(lists[k], false);
    run_row("HHHHHHHHHH", true);
    run_row("WWWWWWWWWW", true);
}

static void run_minimalloc(void)
{
    static const struct {
        double minimalloc, supermalloc;
        char letter;
        bool is_proved; /* within a second, also without a capacity */
    } files[] = {{3.90, 0.20, 'A', true}, {0.49, 0.13, 'C', true}, {0.0, 0.0, 'D', false},
                 {4.15, 0.35, 'E', true}, {0.86, 0.06, 'G', true}, {0.0, 0.0, 'H', true},
                 {2.89, 0.08, 'I', true}, {0.0, 0.0, 'J', false},  {0.43, 0.02, 'K', true}};
    for (int capacity = 1; capacity >= 0; capacity--)
        for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++) {
            char name[32];
            snprintf(name, sizeof(name), "%c %s", files[k].letter,
                     capacity ? "at capacity" : "no capacity");
            run_letters((char[]){files[k].letter, '\0'}, false,
                        (instance){.name = name,
                                   .capacity = capacity ? CAPACITY : 0,
                                   .target = capacity             ? 0.3
                                             : files[k].is_proved ? 1.0
                                                                  : 0.0,
                                   .minimalloc = capacity ? files[k].minimalloc : 0.0,
                                   .supermalloc = capacity ? files[k].supermalloc : 0.0,
                                   .has_tail = files[k].is_proved && !capacity});
        }
}

static void run_instance(void)
{
    if (strcmp(chosen.instance, "-") == 0)
        return;
    pst_trace *trace = open_file(chosen.instance);
    run_trace((instance){.name = "instance", .align = 1, .has_times = true}, trace);
    pst_trace_destroy(trace);
}

typedef struct shape {
    const char *name;
    double target;
    pst_trace_part part;
    unsigned layers, tp, cp, num_micro_batches, warmup;
    bool full, fused_loss;
} shape;

static const shape shapes[] = {
    {"layer forward", 0.001, PST_TRACE_LAYER_FORWARD, 32, 4, 2, 1, 0, false, false},
    {"layer backward", 0.001, PST_TRACE_LAYER_BACKWARD, 32, 4, 2, 1, 0, false, false},
    {"layer, full", 0.001, PST_TRACE_LAYER, 32, 4, 2, 1, 0, true, false},
    {"32 layers, MEMO", 0.002, PST_TRACE_MODEL, 32, 4, 2, 1, 0, false, false},
    {"80 layers, MEMO", 0.0, PST_TRACE_MODEL, 80, 4, 2, 1, 0, false, false},
    {"32 layers, MEMO, fused", 0.0, PST_TRACE_MODEL, 32, 4, 2, 1, 0, false, true},
    {"32 layers, full", 0.020, PST_TRACE_MODEL, 32, 4, 2, 1, 0, true, false},
    {"80 layers, full", 0.1, PST_TRACE_MODEL, 80, 4, 2, 1, 0, true, false},
    {"80, full, fused, tp2 cp4", 0.5, PST_TRACE_MODEL, 80, 2, 4, 1, 0, true, true},
    {"80, full, 10 in sequence", 1.0, PST_TRACE_MODEL, 80, 4, 2, 10, 0, true, false},
    {"80, full, 12, 4 in flight", 10.0, PST_TRACE_MODEL, 80, 4, 2, 12, 4, true, false},
    {"80, full, 200 in sequence", 1.0, PST_TRACE_MODEL, 80, 4, 2, 200, 0, true, false},
};

/* What has no parts, so that there is enough to do in any time. */
static const shape late_shapes[] = {
    {"20, 4 in flight", 0.0, PST_TRACE_MODEL, 80, 4, 2, 20, 4, true, false},
    {"200, 4 in flight", 0.0, PST_TRACE_MODEL, 80, 4, 2, 200, 4, true, false},
};

static pst_trace *derive(const shape *of)
{
    pst_trace_derivation derivation = PST_TRACE_DERIVATION_INIT;
    derivation.part = of->part;
    derivation.num_layers = of->layers;
    derivation.tensor_parallel = of->tp;
    derivation.context_parallel = of->cp;
    derivation.num_micro_batches = of->num_micro_batches;
    derivation.warmup = of->warmup;
    derivation.full = of->full;
    derivation.fused_loss = of->fused_loss;
    pst_trace *trace;
    bench_check_status(pst_trace_derive(&derivation, &trace));
    return trace;
}

static void run_derived(void)
{
    for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
        pst_trace *trace = derive(&shapes[k]);
        run_trace((instance){.name = shapes[k].name, .align = 512, .target = shapes[k].target},
                  trace);
        pst_trace_destroy(trace);
    }
}

static void run_deadlines(void)
{
    static const double deadlines[] = {0.1, 0.2, 0.5, 1.0};
    for (size_t k = 0; k < sizeof(late_shapes) / sizeof(late_shapes[0]); k++) {
        pst_trace *trace = derive(&late_shapes[k]);
        instance of = {.name = late_shapes[k].name, .align = 512};
        of.num_tensors = pst_trace_num_tensors(trace);
        pst_plan_tensor *tensors = bench_need(calloc(of.num_tensors + 1, sizeof(*tensors)));
        take_trace(trace, false, 0, tensors);
        pst_trace_destroy(trace);
        of.tensors = tensors;
        for (size_t d = 0; d < sizeof(deadlines) / sizeof(deadlines[0]); d++)
            run_deadline(&of, deadlines[d]);
        free(tensors);
    }
    run_passes(deadlines, sizeof(deadlines) / sizeof(deadlines[0]));
}

/* Random guillotine cuts: the optimum is the height, and nothing may be wasted. */
static void run_tilings(uint32_t n, unsigned num_seeds, double target)
{
    tile tiles[MAX_TILES];
    pst_plan_tensor tensors[MAX_TILES];
    uint64_t offsets[MAX_TILES];
    unsigned met = 0;
    unsigned proved = 0;
    double gap = 0.0;
    effort all = {0.0, 0.0};
    effort longest = {0.0, 0.0}; /* each by itself */
    for (unsigned seed = 0; seed < num_seeds; seed++) {
        const uint32_t num = tilings_make(n, TILING_SIDE, TILING_SIDE, seed, tiles);
        for (uint32_t i = 0; i < num; i++)
            tensors[i] = (pst_plan_tensor){.bytes = tiles[i].top - tiles[i].bottom,
                                           .begin = tiles[i].begin,
                                           .end = tiles[i].end,
                                           .pin = PST_PLAN_FREE,
                                           .block = PST_PLAN_NO_BLOCK};
        pst_plan plan;
        const instance of = {.tensors = tensors, .num_tensors = num, .align = 1};
        const effort taken = run_once(&of, 0, chosen.threads, offsets, &plan);
        all.cpu += taken.cpu;
        proved += plan.status == PST_PLAN_OPTIMAL;
        met += plan.status == PST_PLAN_OPTIMAL && taken.wall <= target;
        longest.wall = taken.wall > longest.wall ? taken.wall : longest.wall;
        longest.cpu = taken.cpu > longest.cpu ? taken.cpu : longest.cpu;
        gap = gap_percent(&plan) > gap ? gap_percent(&plan) : gap;
    }
    say("tilings of %-4u             %u of %u proved, %u within %g s, longest %.3f s, worst +%.2f "
        "%%\n    processor %.3f for all, longest %.3f\n",
        n, proved, num_seeds, met, target, longest.wall, gap, all.cpu, longest.cpu);
    json_t *row = json_object();
    json_put_text(&row, "name", "tilings");
    json_put_whole(&row, "tensors", n);
    json_put_whole(&row, "instances", num_seeds);
    json_put_whole(&row, "proved", proved);
    json_put_whole(&row, "met", met);
    json_put(&row, "target_seconds", json_number(target));
    json_put(&row, "longest_seconds", json_number(longest.wall));
    json_put(&row, "cpu_seconds", json_number(all.cpu));
    json_put(&row, "longest_cpu_seconds", json_number(longest.cpu));
    json_put(&row, "worst_gap_percent", json_number(gap));
    json_add(&rows, row);
}

static void run_all_tilings(void)
{
    run_tilings(100, chosen.tilings, 5.0);
    run_tilings(300, chosen.tilings, 5.0);
    run_tilings(1000, chosen.tilings, 60.0);
}

/* All instances that MiniMalloc names, copies of two, and training steps ten times in a row, a recorded
 * one and a derived one. */
static void run_peer(void)
{
    static const char *const lists[] = {"A", "C", "D", "E",    "G",    "H",
                                        "I", "J", "K", "EEEE", "HHHH", "WWWWWWWWWW"};
    if (strcmp(chosen.peer, "-") == 0)
        return;
    for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++) {
        const instance of = take_letters(lists[k], (instance){.name = lists[k]});
        run_beside(&of, lists[k][0] == 'W' ? 0 : CAPACITY);
        free((void *)of.tensors);
    }
    const shape step = {
        "80, full, 10 in sequence", 0.0, PST_TRACE_MODEL, 80, 4, 2, 10, 0, true, false};
    pst_trace *trace = derive(&step);
    instance of = {.name = step.name, .align = 512};
    of.num_tensors = pst_trace_num_tensors(trace);
    pst_plan_tensor *tensors = bench_need(calloc(of.num_tensors + 1, sizeof(*tensors)));
    take_trace(trace, false, 0, tensors);
    pst_trace_destroy(trace);
    of.tensors = tensors;
    run_beside(&of, 0);
    free(tensors);
}

static int write_report(void)
{
    json_t *report = json_begin("pagestash-plan-bench", 1);
    json_put_whole(&report, "threads", chosen.threads);
    json_put(&report, "deadline", json_number(chosen.deadline));
    json_put(&report, "rows", rows);
    return json_write(report, chosen.json);
}

int main(int argc, char **argv)
{
#define FLAG_OPTIONS options
    static const flag flags[] = {PLAN_FLAGS(FLAG_ROW)};
    static const flag_table flag_list = {
        .command = "pagestash-plan-bench",
        .doc = "Times of plans with a proof.",
        .groups = {FLAG_GROUP(flags, 0)},
        .json = offsetof(options, json),
    };
    tool_name = "pagestash-plan-bench";
    TOOL_TRY(flags_parse(&flag_list, argc, argv, &chosen));
    rows = json_array();
    table = chosen.json != NULL && strcmp(chosen.json, "-") == 0 ? NULL : stdout;
    static void (*const runs[])(void) = {run_reader,      run_derived,  run_deadlines,
                                         run_minimalloc,  run_instance, run_rows,
                                         run_all_tilings, run_peer,     run_command};
    const int num = (int)(sizeof(runs) / sizeof(runs[0]));
    for (int k = 0; k < num; k++)
        if (chosen.only == 0 || chosen.only == k + 1) {
            tool_progress("part", (unsigned)k, (unsigned)num);
            runs[k]();
        }
    tool_progress("part", 1, 1);
    if (chosen.json != NULL)
        TOOL_TRY(write_report());
    return tool_flush(TOOL_OK);
}
