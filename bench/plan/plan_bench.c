/* pagestash-plan-bench: how long plans with a proof take, beside what others were measured at.
 * The times of others (docs/planner.md) come from a machine of the same size, not from this run. */
#include "bench/common/must.h"
#include "bench/common/samples.h"
#include "bench/plan/tilings.h"
#include "tools/common/flags.h"
#include "tools/common/json_out.h"
#include "tools/common/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLES = 5, MAX_TILES = 1000, CAPACITY = 1048576, TILING_SIDE = 1 << 20 };
#define SHORT_SECONDS 0.5 /* of a run that is repeated for its median */

#define PLAN_FLAGS(F)                                                                           \
    F(U32, threads, "N", 1, 256, "2", "of the planner")                                         \
    F(U32, tilings, "N", 0, 100000, "20", "seeds of tilings of 100, 300 and 1,000")             \
    F(FACTOR, deadline, "SECONDS", 0, 1000000, "60", "of each run")                             \
    F(TEXT, minimalloc, "FOLDER", 0, 0, "tests/data/minimalloc", "with MiniMalloc's instances") \
    F(TEXT, instance, "FILE", 0, 0, "-", "one more instance in MiniMalloc's format; -: none")

typedef struct options {
    PLAN_FLAGS(FLAG_MEMBER)
    const char *json;
} options;

static options chosen;
static json_t *rows;
static FILE *table; /* NULL when the report goes to stdout */

static bool is_over(void *deadline)
{
    return bench_now() > *(const double *)deadline;
}

/* A line of the table. */
static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (table != NULL) {
        vfprintf(table, format, arguments);
        fflush(table);
    }
    va_end(arguments);
}

/* One instance. target and others: seconds; 0: none. */
typedef struct instance {
    const char *name;
    const pst_plan_tensor *tensors;
    uint64_t num_tensors, align, capacity;
    double target, minimalloc, supermalloc;
    bool has_times, sweeps; /* sweeps: over seeds and threads too */
} instance;

static double run_once(const instance *of, uint64_t seed, uint32_t threads, uint64_t *offsets,
                       pst_plan *plan)
{
    pst_plan_problem problem = PST_PLAN_PROBLEM_INIT;
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    problem.tensors = of->tensors;
    problem.num_tensors = of->num_tensors;
    problem.align = of->align;
    problem.capacity = of->capacity;
    double deadline = bench_now() + chosen.deadline;
    config.num_threads = threads;
    config.seed = seed;
    config.is_over = is_over;
    config.user = &deadline;
    const double begin = bench_now();
    bench_check_status(pst_plan_run(&problem, &config, offsets, plan));
    const double seconds = bench_now() - begin;
    pst_plan_fault fault;
    uint64_t peak;
    problem.capacity = 0;
    bench_check_status(pst_plan_check(&problem, offsets, &fault, &peak));
    if (fault.kind != PST_PLAN_RIGHT || peak != plan->peak)
        exit(tool_fail(TOOL_NO, "a plan is wrong"));
    return seconds;
}

static double gap_percent(const pst_plan *plan)
{
    return 100.0 * (double)(plan->peak - plan->lower_bound) / (double)plan->lower_bound;
}

static void add_row(const instance *of, const pst_plan *plan, double seconds)
{
    const char *status = pst_plan_status_name(plan->status);
    const char *verdict = of->target <= 0.0                                           ? "-"
                          : plan->status == PST_PLAN_OPTIMAL && seconds <= of->target ? "met"
                                                                                      : "missed";
    say("%-26s %7llu  %-8s %-9s %11.6f s", of->name, (unsigned long long)of->num_tensors, status,
        pst_plan_stage_name(plan->stage), seconds);
    if (of->target > 0.0)
        say("  target %.4g s %s", of->target, verdict);
    if (of->minimalloc > 0.0)
        say("  (MiniMalloc %.2f, SuperMalloc %.2f)", of->minimalloc, of->supermalloc);
    if (plan->status == PST_PLAN_FEASIBLE)
        say("  +%.4f %%", gap_percent(plan));
    say("\n");
    json_t *row = json_object();
    json_put_text(&row, "name", of->name);
    json_put_whole(&row, "tensors", of->num_tensors);
    json_put_text(&row, "status", status);
    json_put_text(&row, "stage", pst_plan_stage_name(plan->stage));
    json_put_whole(&row, "peak", plan->peak);
    json_put_whole(&row, "lower_bound", plan->lower_bound);
    json_put(&row, "seconds", json_number(seconds));
    json_put(&row, "target_seconds", json_number(of->target));
    json_put_text(&row, "verdict", verdict);
    json_add(&rows, row);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Processor time of the whole process, of 20 seeds. */
static void run_seeds(const instance *of, uint32_t threads, uint64_t *offsets)
{
    enum { SEEDS = 20 };
    double seconds[SEEDS];
    unsigned proved = 0;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        pst_plan plan;
        const clock_t begin = clock();
        (void)run_once(of, seed, threads, offsets, &plan);
        seconds[seed] = (double)(clock() - begin) / CLOCKS_PER_SEC;
        proved += plan.status == PST_PLAN_OPTIMAL;
    }
    qsort(seconds, SEEDS, sizeof(*seconds), by_value);
    const double median = seconds[SEEDS / 2];
    const double p90 = seconds[SEEDS * 9 / 10 - 1];
    say("%-26s %u threads: %u of %u seeds proved, processor time median %.3f s, p90 %.3f, longest "
        "%.3f, target %.3f %s\n",
        of->name, threads, proved, SEEDS, median, p90, seconds[SEEDS - 1], 2 * median,
        p90 <= 2 * median ? "met" : "missed");
    json_t *row = json_object();
    json_put_text(&row, "name", of->name);
    json_put_whole(&row, "seeds", SEEDS);
    json_put_whole(&row, "seed_threads", threads);
    json_put_whole(&row, "proved", proved);
    json_put(&row, "median_cpu_seconds", json_number(median));
    json_put(&row, "p90_cpu_seconds", json_number(p90));
    json_put(&row, "longest_cpu_seconds", json_number(seconds[SEEDS - 1]));
    json_add(&rows, row);
}

static void run(const instance *of)
{
    uint64_t *offsets = bench_need(calloc(of->num_tensors + 1, sizeof(*offsets)));
    bench_series series = {.num = 0};
    double seconds;
    pst_plan plan;
    do {
        seconds = run_once(of, 0, chosen.threads, offsets, &plan);
        bench_series_add(&series, seconds);
    } while (seconds < SHORT_SECONDS && series.num < SAMPLES);
    add_row(of, &plan, bench_summary(&series).median);
    for (uint32_t threads = 1; of->sweeps && threads <= 2; threads++)
        run_seeds(of, threads, offsets);
    free(offsets);
}

/* ---- instances */

static void run_trace(instance of, pst_trace *trace)
{
    const pst_trace_tensor *from = pst_trace_tensors(trace);
    of.num_tensors = pst_trace_num_tensors(trace);
    pst_plan_tensor *tensors = bench_need(calloc(of.num_tensors + 1, sizeof(*tensors)));
    for (uint64_t i = 0; i < of.num_tensors; i++)
        tensors[i] = (pst_plan_tensor){.bytes = from[i].bytes,
                                       .begin = of.has_times ? from[i].begin_time : from[i].begin,
                                       .end = of.has_times ? from[i].end_time : from[i].end,
                                       .pin = PST_PLAN_FREE,
                                       .block = PST_PLAN_NO_BLOCK};
    of.tensors = tensors;
    run(&of);
    free(tensors);
}

static void run_file(const char *path, instance of)
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
    of.has_times = true;
    of.align = 1;
    run_trace(of, trace);
    pst_trace_destroy(trace);
}

/* D and J are only asked for without a capacity: their optimum is not known. */
static void run_minimalloc(void)
{
    static const struct {
        char letter;
        bool is_open;
        double minimalloc, supermalloc;
    } files[] = {{'A', false, 3.90, 0.20}, {'C', false, 0.49, 0.13}, {'E', false, 4.15, 0.35},
                 {'G', false, 0.86, 0.06}, {'H', false, 0.0, 0.0},   {'I', false, 2.89, 0.08},
                 {'K', false, 0.43, 0.02}, {'D', true, 0.0, 0.0},    {'J', true, 0.0, 0.0}};
    for (int capacity = 1; capacity >= 0; capacity--)
        for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++) {
            if (files[k].is_open && capacity)
                continue;
            char path[4096];
            char name[32];
            snprintf(path, sizeof(path), "%s/%c.1048576.csv", chosen.minimalloc, files[k].letter);
            snprintf(name, sizeof(name), "%c %s", files[k].letter,
                     capacity ? "at capacity" : "no capacity");
            run_file(path, (instance){.name = name,
                                      .capacity = capacity ? CAPACITY : 0,
                                      .target = files[k].is_open ? 0.0
                                                : capacity       ? 0.3
                                                                 : 1.0,
                                      .minimalloc = capacity ? files[k].minimalloc : 0.0,
                                      .supermalloc = capacity ? files[k].supermalloc : 0.0,
                                      .sweeps = !files[k].is_open && !capacity});
        }
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
};

static void run_derived(void)
{
    for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
        pst_trace_derivation derivation = PST_TRACE_DERIVATION_INIT;
        derivation.part = shapes[k].part;
        derivation.num_layers = shapes[k].layers;
        derivation.tensor_parallel = shapes[k].tp;
        derivation.context_parallel = shapes[k].cp;
        derivation.num_micro_batches = shapes[k].num_micro_batches;
        derivation.warmup = shapes[k].warmup;
        derivation.full = shapes[k].full;
        derivation.fused_loss = shapes[k].fused_loss;
        pst_trace *trace;
        bench_check_status(pst_trace_derive(&derivation, &trace));
        run_trace((instance){.name = shapes[k].name, .align = 512, .target = shapes[k].target},
                  trace);
        pst_trace_destroy(trace);
    }
}

/* Random guillotine cuts: the optimum is the height, and nothing may be wasted. */
static void run_tilings(uint32_t n, unsigned num_seeds, double target)
{
    tile tiles[MAX_TILES];
    pst_plan_tensor tensors[MAX_TILES];
    uint64_t offsets[MAX_TILES];
    unsigned met = 0;
    unsigned proved = 0;
    double worst = 0.0;
    double gap = 0.0;
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
        const double seconds = run_once(&of, 0, chosen.threads, offsets, &plan);
        proved += plan.status == PST_PLAN_OPTIMAL;
        met += plan.status == PST_PLAN_OPTIMAL && seconds <= target;
        worst = seconds > worst ? seconds : worst;
        gap = gap_percent(&plan) > gap ? gap_percent(&plan) : gap;
    }
    say("tilings of %-4u             %u of %u proved, %u within %g s, longest %.3f s, worst +%.2f "
        "%%\n",
        n, proved, num_seeds, met, target, worst, gap);
    json_t *row = json_object();
    json_put_text(&row, "name", "tilings");
    json_put_whole(&row, "tensors", n);
    json_put_whole(&row, "instances", num_seeds);
    json_put_whole(&row, "proved", proved);
    json_put_whole(&row, "met", met);
    json_put(&row, "target_seconds", json_number(target));
    json_put(&row, "longest_seconds", json_number(worst));
    json_put(&row, "worst_gap_percent", json_number(gap));
    json_add(&rows, row);
}

/* ---- the trace reader */

enum { ROWS = 1000000, ROW_BYTES = 64 };

typedef struct text_source {
    const char *text;
    size_t left;
} text_source;

static ptrdiff_t read_text(void *source, void *buffer, size_t bytes)
{
    text_source *from = source;
    const size_t got = from->left < bytes ? from->left : bytes;
    memcpy(buffer, from->text, got);
    from->text += got;
    from->left -= got;
    return (ptrdiff_t)got;
}

static size_t write_rows(char *text)
{
    size_t used = (size_t)sprintf(text, "op,id,size,stream,phase,layer,micro_batch,rank,tag\n");
    for (unsigned id = 0; id < ROWS / 2; id++)
        used += (size_t)sprintf(text + used,
                                "malloc,%u,%u,0,forward,%u,0,0,static\n"
                                "free,%u,,0,forward,%u,0,0,static\n",
                                id, id % 1000 * 512 + 512, id % 80, id, id % 80);
    return used;
}

static void run_reader(void)
{
    const pst_trace_config config = PST_TRACE_CONFIG_INIT;
    char *text = bench_need(malloc((size_t)(ROWS + 1) * ROW_BYTES));
    const size_t bytes = write_rows(text);
    bench_series series = {.num = 0};
    for (int i = 0; i < SAMPLES; i++) {
        text_source source = {text, bytes};
        pst_trace_reader *reader;
        pst_trace_request request;
        const double begin = bench_now();
        bench_check_status(pst_trace_reader_open(&config, read_text, &source, &reader));
        for (uint64_t k = 0; k < ROWS; k++)
            bench_check_status(pst_trace_reader_next(reader, &request));
        pst_trace_reader_close(reader);
        bench_series_add(&series, bench_now() - begin);
    }
    free(text);
    const double rate = ROWS / bench_summary(&series).median;
    say("trace reader               %.2f million rows per second, target 1 %s\n", rate / 1e6,
        rate >= 1e6 ? "met" : "missed");
    json_t *row = json_object();
    json_put_text(&row, "name", "trace reader");
    json_put_whole(&row, "rows", ROWS);
    json_put(&row, "rows_per_second", json_number(rate));
    json_put(&row, "target_rows_per_second", json_number(1e6));
    json_add(&rows, row);
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
    run_reader();
    run_derived();
    run_minimalloc();
    if (strcmp(chosen.instance, "-") != 0)
        run_file(chosen.instance, (instance){.name = "instance"});
    run_tilings(100, chosen.tilings, 5.0);
    run_tilings(300, chosen.tilings, 5.0);
    run_tilings(1000, chosen.tilings, 60.0);
    if (chosen.json != NULL)
        TOOL_TRY(write_report());
    return tool_flush(TOOL_OK);
}
