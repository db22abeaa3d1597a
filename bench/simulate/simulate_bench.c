/* pagestash-simulate-bench: how long pst_simulate takes and how much memory, beside a memset of 200 bytes
 * for each visit of a layer, and how long pst_policy_solve takes, which calls it. Whatever it takes, the
 * program is compiled anew each time. */
#include "bench/common/must.h"
#include "bench/common/samples.h"
#include "tools/common/flags.h"
#include "tools/common/json_out.h"
#include "tools/common/tool.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

enum { MAX_STAGES = 16, MAX_LAYERS = 61, BYTES_PER_VISIT = 200 };

#define SIMULATE_FLAGS(F)                                                       \
    F(U32, micro_batches, "N", 16, 65536, "512", "of the pipelines")            \
    F(U32, routing_steps, "N", 1, 1000000, "10000", "of one rank, pages alone") \
    F(U32, samples, "N", 1, 1000, "5", "of each row")

typedef struct options {
    SIMULATE_FLAGS(FLAG_MEMBER)
    const char *json;
} options;

static options chosen;
static json_t *rows;
static FILE *table; /* NULL when the report goes to stdout */

/* A pipeline of 1F1B. */
typedef struct scene {
    const char *name;
    uint32_t num_stages, num_micro_batches, num_layers; /* of each stage; 0: 61 in all */
    uint32_t num_streams, repeats;
    double target; /* seconds */
} scene;

static pst_schedule *schedules[MAX_STAGES];
static pst_simulated_layer layers[MAX_STAGES][MAX_LAYERS];
static const pst_simulated_layer *stage_layers[MAX_STAGES];
static uint32_t num_layers[MAX_STAGES];
static pst_stage_result results[MAX_STAGES];
static uint64_t heap_bytes;

/* At the first event all memory of a simulation is there. */
static void see_heap(void *user, const pst_simulated_event *event)
{
    const struct mallinfo2 info = mallinfo2();
    (void)user;
    (void)event;
    if (heap_bytes == 0)
        heap_bytes = info.uordblks + info.hblkhd;
}

static uint64_t open_scene(const scene *of, pst_simulation_config *config)
{
    static const pst_group_usage usage = {60000, 65536, 1};
    uint64_t visits = 0;
    *config = (pst_simulation_config)PST_SIMULATION_CONFIG_INIT;
    for (uint32_t r = 0; r < of->num_stages; r++) {
        pst_schedule_config schedule = PST_SCHEDULE_CONFIG_INIT;
        schedule.num_stages = of->num_stages;
        schedule.stage = r;
        schedule.num_micro_batches = of->num_micro_batches;
        bench_check_status(pst_schedule_create(&schedule, &schedules[r]));
        num_layers[r] = of->num_layers ? of->num_layers
                                       : 61 * (r + 1) / of->num_stages - 61 * r / of->num_stages;
        stage_layers[r] = layers[r];
        visits += 2 * (uint64_t)num_layers[r] * of->num_micro_batches;
        for (uint32_t l = 0; l < num_layers[r]; l++) {
            layers[r][l] = (pst_simulated_layer)PST_SIMULATED_LAYER_INIT;
            layers[r][l].layer = l;
            layers[r][l].usages = &usage;
            layers[r][l].num_usages = 1;
            layers[r][l].forward = (pst_times){1000, 4000, 1000};
            layers[r][l].backward = (pst_times){2000, 8000, 2000};
        }
    }
    config->num_stages = of->num_stages;
    config->schedules = (const pst_schedule *const *)schedules;
    config->layers = stage_layers;
    config->num_layers = num_layers;
    config->page_bytes = 65536;
    config->num_pages[0] = UINT64_MAX;
    config->num_streams = of->num_streams;
    config->mode = of->num_streams > 1 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    config->rates = (pst_simulated_rates){.stash_fixed_ns = 900,
                                          .restore_fixed_ns = 1200,
                                          .stash_rate = UINT64_C(1000000000000),
                                          .restore_rate = UINT64_C(1000000000000)};
    return visits;
}

static double time_memset(void *memory, size_t bytes, int value)
{
    const double begin = bench_now();
    memset(memory, value, bytes);
    __asm__ volatile("" : : "r"(memory) : "memory");
    return bench_now() - begin;
}

static void add_row(const scene *of, uint64_t visits, double seconds, double ratio, double bytes)
{
    const char *verdict = of->target <= 0.0 ? "-" : seconds <= of->target ? "met" : "missed";
    tool_progress("row", 1, 1); /* the line is free again */
    if (table != NULL)
        fprintf(table, "%-36s %9llu %9.4f %9.1f %8.1f %8.1f %7s\n", of->name,
                (unsigned long long)visits, seconds, seconds * 1e9 / (double)visits, ratio, bytes,
                verdict);
    json_t *row = json_object();
    json_put_text(&row, "name", of->name);
    json_put_whole(&row, "visits", visits);
    json_put(&row, "seconds", json_number(seconds));
    json_put(&row, "ns_per_visit", json_number(seconds * 1e9 / (double)visits));
    json_put(&row, "memset_ratio", json_number(ratio));
    json_put(&row, "bytes_per_visit", json_number(bytes));
    json_put(&row, "target_seconds", json_number(of->target));
    json_put_text(&row, "verdict", verdict);
    json_add(&rows, row);
}

static void run(const scene *of)
{
    pst_simulation_config config;
    pst_simulation simulation;
    bench_series times = {.num = 0}, anchors = {.num = 0};
    const uint64_t visits = open_scene(of, &config);
    const size_t bytes = (size_t)visits * BYTES_PER_VISIT;
    const struct mallinfo2 before = mallinfo2();
    config.on_event = see_heap;
    heap_bytes = 0;
    bench_check_status(pst_simulate(&config, &simulation, results));
    const double heap = (double)heap_bytes - (double)(before.uordblks + before.hblkhd);
    config.on_event = NULL;
    void *memory = bench_need(malloc(bytes));
    time_memset(memory, bytes, 1);
    for (uint32_t i = 0; i < chosen.samples; i++) {
        const double begin = bench_now();
        for (uint32_t k = 0; k < of->repeats; k++)
            bench_check_status(pst_simulate(&config, &simulation, results));
        bench_series_add(&times, bench_now() - begin);
        double anchor = 0.0;
        for (uint32_t k = 0; k < of->repeats; k++)
            anchor += time_memset(memory, bytes, (int)k);
        bench_series_add(&anchors, anchor);
    }
    free(memory);
    add_row(of, visits * of->repeats, bench_summary(&times).median,
            bench_median_ratio(&times, &anchors), heap / (double)visits);
    for (uint32_t r = 0; r < of->num_stages; r++)
        pst_schedule_destroy(schedules[r]);
}

/* Seconds of a policy; half of the pages that it would take if it may not have all. */
static void solve(const scene *of, bool is_scarce)
{
    static pst_layer_choice choices[MAX_STAGES * MAX_LAYERS];
    pst_simulation_config simulation;
    pst_policy policy;
    bench_series times = {.num = 0}, anchors = {.num = 0};
    const uint64_t visits = open_scene(of, &simulation);
    simulation.rates.out_rate = simulation.rates.in_rate = UINT64_C(50000000000);
    simulation.num_pages[1] = UINT64_MAX;
    pst_policy_config config = PST_POLICY_CONFIG_INIT;
    config.simulation = &simulation;
    config.gpu_bytes = config.host_bytes = PST_POLICY_UNLIMITED;
    config.set_bytes = 4 * 65536;
    bench_check_status(pst_policy_solve(&config, &policy, choices, NULL));
    if (is_scarce)
        simulation.num_pages[0] = (policy.num_pages + 1) / 2;
    const size_t bytes = (size_t)visits * BYTES_PER_VISIT;
    void *memory = bench_need(malloc(bytes));
    time_memset(memory, bytes, 1);
    for (uint32_t i = 0; i < chosen.samples; i++) {
        const double begin = bench_now();
        bench_check_status(pst_policy_solve(&config, &policy, choices, NULL));
        bench_series_add(&times, bench_now() - begin);
        bench_series_add(&anchors, time_memset(memory, bytes, (int)i));
    }
    free(memory);
    add_row(of, visits, bench_summary(&times).median, bench_median_ratio(&times, &anchors), 0.0);
    for (uint32_t r = 0; r < of->num_stages; r++)
        pst_schedule_destroy(schedules[r]);
}

static void solve_all(void)
{
    const scene scenes[] = {
        {"policy, 16 ranks, 61 layers", 16, 64, 0, 1, 1, 2.0},
        {"policy, scarce", 16, 64, 0, 1, 1, 2.0},
        {"policy, 1 rank, 61 layers", 1, 64, 61, 1, 1, 0.0},
        {"policy, 1 rank, scarce", 1, 64, 61, 1, 1, 0.0},
    };
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        tool_progress("policy", i, sizeof(scenes) / sizeof(scenes[0]));
        solve(&scenes[i], i % 2 == 1);
    }
    tool_progress("policy", 1, 1);
}

static void run_all(void)
{
    const uint32_t m = chosen.micro_batches;
    const double share = (double)m / 512, steps = (double)chosen.routing_steps / 10000;
    const scene scenes[] = {
        {"16 ranks, 61 layers", 16, m, 0, 1, 1, 0.1 * share},
        {"16 ranks, 61 layers each", 16, m, 61, 1, 1, 1.0 * share},
        {"16 ranks, 61 layers, 2 streams", 16, m, 0, 2, 1, 0.0},
        {"16 ranks, 61 layers each, 2 streams", 16, m, 61, 2, 1, 0.0},
        {"1 rank, 8 micro-batches, each step", 1, 8, 61, 1, chosen.routing_steps, 5.0 * steps},
    };
    if (table != NULL)
        fprintf(table, "%-36s %9s %9s %9s %8s %8s %7s\n", "", "visits", "seconds", "ns/visit",
                "memsets", "bytes", "target");
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        tool_progress("pipeline", i, sizeof(scenes) / sizeof(scenes[0]));
        run(&scenes[i]);
    }
    solve_all();
}

static int write_report(void)
{
    json_t *report = json_begin("pagestash-simulate-bench", 1);
    json_put_whole(&report, "micro_batches", chosen.micro_batches);
    json_put_whole(&report, "routing_steps", chosen.routing_steps);
    json_put_whole(&report, "samples", chosen.samples);
    json_put(&report, "rows", rows);
    return json_write(report, chosen.json);
}

int main(int argc, char **argv)
{
#define FLAG_OPTIONS options
    static const flag flags[] = {SIMULATE_FLAGS(FLAG_ROW)};
    static const flag_table flag_list = {
        .command = "pagestash-simulate-bench",
        .doc = "Time and memory of simulations, time of policies.",
        .groups = {FLAG_GROUP(flags, 0)},
        .json = offsetof(options, json),
    };
    tool_name = "pagestash-simulate-bench";
    TOOL_TRY(flags_parse(&flag_list, argc, argv, &chosen));
    rows = json_array();
    table = chosen.json != NULL && strcmp(chosen.json, "-") == 0 ? NULL : stdout;
    run_all();
    if (chosen.json != NULL)
        TOOL_TRY(write_report());
    return tool_flush(TOOL_OK);
}
