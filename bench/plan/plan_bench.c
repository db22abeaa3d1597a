/* pagestash-plan-bench: how long plans with a proof take, beside what others were measured at.
 *
 *   pagestash-plan-bench [--threads N] [--tilings N] [--deadline S] [--json FILE] MINIMALLOC_FOLDER
 *
 * Times of others (docs/planner.md) were measured on a machine of the same size, not in this run. */
#include "bench/plan/tilings.h"

#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <pagestash/pagestash.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SAMPLES = 5, MAX_TILES = 1000, CAPACITY = 1048576, TILING_SIDE = 1 << 20 };
#define SHORT_SECONDS 0.5 /* of a run that is repeated for its median */

typedef struct options {
    unsigned threads, tilings;
    double deadline;
    const char *json, *folder;
} options;

static const options *chosen;
static json_t *rows;

static void stop(const char *what)
{
    fprintf(stderr, "pagestash-plan-bench: %s\n", what);
    exit(1);
}

static void *need(void *memory)
{
    if (memory == NULL)
        stop("out of memory");
    return memory;
}

static void check(pst_status status)
{
    if (status != PST_OK)
        stop(pst_last_message());
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool is_over(void *deadline)
{
    return now() > *(const double *)deadline;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One instance. target and others: seconds; 0: none. */
typedef struct instance {
    const char *name;
    const pst_plan_tensor *tensors;
    uint64_t num_tensors, align, capacity;
    double target, minimalloc, supermalloc;
    bool has_times;
} instance;

static double run_once(const instance *of, uint64_t *offsets, pst_plan *plan)
{
    pst_plan_problem problem = PST_PLAN_PROBLEM_INIT;
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    problem.tensors = of->tensors;
    problem.num_tensors = of->num_tensors;
    problem.align = of->align;
    problem.capacity = of->capacity;
    double deadline = now() + chosen->deadline;
    config.num_threads = chosen->threads;
    config.is_over = is_over;
    config.user = &deadline;
    const double begin = now();
    check(pst_plan_run(&problem, &config, offsets, plan));
    const double seconds = now() - begin;
    pst_plan_fault fault;
    uint64_t peak;
    problem.capacity = 0;
    check(pst_plan_check(&problem, offsets, &fault, &peak));
    if (fault.kind != PST_PLAN_RIGHT || peak != plan->peak)
        stop("a plan is wrong");
    return seconds;
}

static void add_row(const instance *of, const pst_plan *plan, double seconds)
{
    const char *status = pst_plan_status_name(plan->status);
    const char *verdict = of->target <= 0.0                                           ? "-"
                          : plan->status == PST_PLAN_OPTIMAL && seconds <= of->target ? "met"
                                                                                      : "missed";
    printf("%-26s %7llu  %-8s %-9s %11.6f s", of->name, (unsigned long long)of->num_tensors, status,
           pst_plan_stage_name(plan->stage), seconds);
    if (of->target > 0.0)
        printf("  target %.4g s %s", of->target, verdict);
    if (of->minimalloc > 0.0)
        printf("  (MiniMalloc %.2f, SuperMalloc %.2f)", of->minimalloc, of->supermalloc);
    putchar('\n');
    fflush(stdout);
    json_t *row = need(json_pack("{s:s,s:I,s:s,s:s,s:I,s:I,s:f,s:f,s:s}", "name", of->name,
                                 "tensors", (json_int_t)of->num_tensors, "status", status, "stage",
                                 pst_plan_stage_name(plan->stage), "peak", (json_int_t)plan->peak,
                                 "lower_bound", (json_int_t)plan->lower_bound, "seconds", seconds,
                                 "target_seconds", of->target, "verdict", verdict));
    if (json_array_append_new(rows, row) != 0)
        stop("out of memory");
}

static void run(const instance *of)
{
    uint64_t *offsets = need(calloc(of->num_tensors + 1, sizeof(*offsets)));
    double samples[SAMPLES];
    pst_plan plan;
    int num = 0;
    do
        samples[num] = run_once(of, offsets, &plan);
    while (samples[num++] < SHORT_SECONDS && num < SAMPLES);
    qsort(samples, (size_t)num, sizeof(samples[0]), by_value);
    add_row(of, &plan, samples[num / 2]);
    free(offsets);
}

/* ---- instances */

static void run_trace(instance of, pst_trace *trace)
{
    const pst_trace_tensor *from = pst_trace_tensors(trace);
    of.num_tensors = pst_trace_num_tensors(trace);
    pst_plan_tensor *tensors = need(calloc(of.num_tensors + 1, sizeof(*tensors)));
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

static ptrdiff_t read_file(void *file, void *buffer, size_t bytes)
{
    const size_t got = fread(buffer, 1, bytes, file);
    return got == 0 && ferror((FILE *)file) ? -EIO : (ptrdiff_t)got;
}

static void run_minimalloc(void)
{
    static const struct {
        char letter;
        double minimalloc, supermalloc;
    } files[] = {{'A', 3.90, 0.20}, {'C', 0.49, 0.13}, {'E', 4.15, 0.35},
                 {'G', 0.86, 0.06}, {'I', 2.89, 0.08}, {'K', 0.43, 0.02}};
    for (int capacity = 1; capacity >= 0; capacity--)
        for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++) {
            char path[4096];
            char name[32];
            snprintf(path, sizeof(path), "%s/%c.1048576.csv", chosen->folder, files[k].letter);
            snprintf(name, sizeof(name), "%c %s", files[k].letter,
                     capacity ? "at capacity" : "no capacity");
            FILE *file = fopen(path, "re");
            if (file == NULL)
                stop(path);
            pst_trace_config config = PST_TRACE_CONFIG_INIT;
            config.format = PST_TRACE_MINIMALLOC;
            config.name = path;
            pst_trace *trace;
            check(pst_trace_read(&config, read_file, file, &trace));
            fclose(file);
            run_trace((instance){.name = name,
                                 .has_times = true,
                                 .align = 1,
                                 .capacity = capacity ? CAPACITY : 0,
                                 .target = capacity ? 0.3 : 1.0,
                                 .minimalloc = capacity ? files[k].minimalloc : 0.0,
                                 .supermalloc = capacity ? files[k].supermalloc : 0.0},
                      trace);
            pst_trace_destroy(trace);
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
        check(pst_trace_derive(&derivation, &trace));
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
        const double seconds = run_once(&of, offsets, &plan);
        proved += plan.status == PST_PLAN_OPTIMAL;
        met += plan.status == PST_PLAN_OPTIMAL && seconds <= target;
        worst = seconds > worst ? seconds : worst;
    }
    printf("tilings of %-4u             %u of %u proved, %u within %g s, longest %.3f s\n", n,
           proved, num_seeds, met, target, worst);
    fflush(stdout);
    json_t *row = need(json_pack("{s:s,s:i,s:i,s:i,s:i,s:f,s:f}", "name", "tilings", "tensors",
                                 (int)n, "instances", (int)num_seeds, "proved", (int)proved, "met",
                                 (int)met, "target_seconds", target, "longest_seconds", worst));
    if (json_array_append_new(rows, row) != 0)
        stop("out of memory");
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
    char *text = need(malloc((size_t)(ROWS + 1) * ROW_BYTES));
    const size_t bytes = write_rows(text);
    double samples[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        text_source source = {text, bytes};
        pst_trace_reader *reader;
        pst_trace_request request;
        const double begin = now();
        check(pst_trace_reader_open(&config, read_text, &source, &reader));
        for (uint64_t k = 0; k < ROWS; k++)
            check(pst_trace_reader_next(reader, &request));
        pst_trace_reader_close(reader);
        samples[i] = now() - begin;
    }
    free(text);
    qsort(samples, SAMPLES, sizeof(samples[0]), by_value);
    const double rate = ROWS / samples[SAMPLES / 2];
    printf("trace reader               %.2f million rows per second, target 1 %s\n", rate / 1e6,
           rate >= 1e6 ? "met" : "missed");
    json_t *row = need(json_pack("{s:s,s:i,s:f,s:f}", "name", "trace reader", "rows", ROWS,
                                 "rows_per_second", rate, "target_rows_per_second", 1e6));
    if (json_array_append_new(rows, row) != 0)
        stop("out of memory");
}

/* ---- options */

static error_t parse(int key, char *argument, struct argp_state *state)
{
    options *out = state->input;
    char *end = NULL;
    switch (key) {
    case 't':
        out->threads = (unsigned)strtoul(argument, &end, 10);
        break;
    case 'n':
        out->tilings = (unsigned)strtoul(argument, &end, 10);
        break;
    case 'd':
        out->deadline = strtod(argument, &end);
        break;
    case 'j':
        out->json = argument;
        break;
    case ARGP_KEY_ARG:
        if (out->folder != NULL)
            return ARGP_ERR_UNKNOWN;
        out->folder = argument;
        break;
    case ARGP_KEY_END:
        if (out->folder == NULL)
            argp_error(state, "a folder with MiniMalloc's instances is missing");
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    if (end != NULL && (*end != '\0' || end == argument || *argument == '-'))
        argp_error(state, "\"%s\": allowed is a number", argument);
    return 0;
}

static void write_json(void)
{
    json_t *report = need(json_pack("{s:i,s:s,s:i,s:f,s:o}", "schema_version", 1, "command",
                                    "pagestash-plan-bench", "threads", (int)chosen->threads,
                                    "deadline", chosen->deadline, "rows", rows));
    if (json_dump_file(report, chosen->json, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0)
        stop(chosen->json);
    json_decref(report);
}

int main(int argc, char **argv)
{
    static const struct argp_option list[] = {
        {"threads", 't', "N", 0, "of the planner (2)", 0},
        {"tilings", 'n', "N", 0, "seeds of tilings of 100 and 300; a tenth of them of 1,000 (20)",
         0},
        {"deadline", 'd', "SECONDS", 0, "of each run (60)", 0},
        {"json", 'j', "FILE", 0, "write the figures as JSON, too", 0},
        {0},
    };
    static const struct argp parser = {
        list, parse, "MINIMALLOC_FOLDER", "Times of plans with a proof.", NULL, NULL, NULL};
    options given = {.threads = 2, .tilings = 20, .deadline = 60.0};
    argp_err_exit_status = 2;
    argp_parse(&parser, argc, argv, 0, NULL, &given);
    chosen = &given;
    rows = need(json_array());
    run_reader();
    run_derived();
    run_minimalloc();
    run_tilings(100, given.tilings, 5.0);
    run_tilings(300, given.tilings, 60.0);
    run_tilings(1000, (given.tilings + 9) / 10, 60.0);
    if (given.json != NULL)
        write_json();
    return 0;
}
