/* pagestash-schedule-bench: what the scheduler costs the calling thread and hides on a device. */
#include "bench/schedule/schedule_bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/json_out.h"

static json_t *times_json(const bench_times *times)
{
    json_t *object = json_object();
    json_put(&object, "median", json_number(times->median));
    json_put(&object, "min", json_number(times->min));
    json_put(&object, "max", json_number(times->max));
    json_put_whole(&object, "samples", times->samples);
    return object;
}

static void put_times(json_t **object, const char *key, const bench_times *times)
{
    json_put(object, key, times_json(times));
}

static json_t *hooks_json(const bench_hook_cost *cost)
{
    json_t *object = json_object();
    json_t *rows = json_array();
    put_times(&object, "empty_call_ns", &cost->empty);
    json_put(&object, "has_cuda_path", json_boolean(cost->has_cuda_path));
    json_put(&object, "launches_of_a_visit", json_number(cost->launches));
    json_put(&object, "records_and_waits_of_a_visit", json_number(cost->edges));
    for (int i = 0; i < BENCH_HOOK_SIZES; i++) {
        json_t *row = json_object();
        json_put_whole(&row, "num_micro_batches", cost->micro_batches[i]);
        put_times(&row, "hook_ns", &cost->planned[i]);
        put_times(&row, "paged_visit_ns", &cost->paged[i]);
        json_add(&rows, row);
    }
    json_put(&object, "rows", rows);
    return object;
}

static json_t *pure_json(const bench_pure_cost *cost)
{
    json_t *object = json_object();
    json_put_whole(&object, "visits", cost->visits);
    put_times(&object, "compile_ns_of_a_visit", &cost->compile_ns);
    put_times(&object, "policy_seconds", &cost->policy_seconds);
    json_put_whole(&object, "policy_evaluations", cost->evaluations[0]);
    put_times(&object, "scarce_policy_seconds", &cost->scarce_seconds);
    json_put_whole(&object, "scarce_policy_evaluations", cost->evaluations[1]);
    json_put(&object, "scarce_policy_fits", json_boolean(cost->fits[1]));
    return object;
}

static json_t *hidden_json(const bench_hidden *hidden)
{
    json_t *object = json_object();
    json_t *rows = json_array();
    json_put_text(&object, "device", hidden->device.name);
    json_put_text(&object, "core", hidden->core);
    json_put_whole(&object, "live_bytes", hidden->live_bytes);
    json_put_whole(&object, "visits", hidden->visits);
    put_times(&object, "core_us", &hidden->core_us);
    put_times(&object, "stash_us", &hidden->stash_us);
    put_times(&object, "restore_us", &hidden->restore_us);
    for (uint32_t i = 0; i < hidden->num_ways; i++) {
        const bench_way *way = &hidden->ways[i];
        json_t *row = json_object();
        json_put_text(&row, "way", way->name);
        put_times(&row, "eager_ms", &way->eager_ms);
        put_times(&row, "graph_ms", &way->graph_ms);
        json_put(&row, "exposed_us_of_a_visit", json_number(way->exposed_us));
        json_put(&row, "waited_us_of_a_visit", json_number(way->waited_us));
        json_put(&row, "simulated_us_of_a_visit", json_number(way->simulated_us));
        json_put(&row, "graph_nodes_of_a_visit", json_number(way->nodes));
        json_put(&row, "launch_us_of_a_visit", json_number(way->launch_us));
        json_put_whole(&row, "high_water_pages", way->high_water);
        json_put_whole(&row, "simulated_high_water_pages", way->simulated_high_water);
        json_add(&rows, row);
    }
    json_put(&object, "ways", rows);
    return object;
}

static void print_hooks(const bench_hook_cost *cost)
{
    printf("ns of the calling thread, medians; %s\n",
           cost->has_cuda_path ? "launches with their arguments as for cuda, but for the driver's"
                               : "this library was built without CUDA: launches cost nothing");
    printf("%-44s %8.1f\n", "an empty call", cost->empty.median);
    for (int i = 0; i < BENCH_HOOK_SIZES; i++) {
        printf("a hook with nothing to enqueue, %3u micro-batches %8.1f\n", cost->micro_batches[i],
               cost->planned[i].median);
        printf("a paged visit, two hooks,       %3u micro-batches %8.1f\n", cost->micro_batches[i],
               cost->paged[i].median);
    }
    printf("of a paged visit: %.2f launches, %.2f records and waits\n", cost->launches,
           cost->edges);
}

static void print_pure(const bench_pure_cost *cost)
{
    printf("compile: %.1f ns of a visit, %llu visits\n", cost->compile_ns.median,
           (unsigned long long)cost->visits);
    printf("policy, 61 layers on 16 ranks, 64 micro-batches: %.3f s, %llu evaluations\n",
           cost->policy_seconds.median, (unsigned long long)cost->evaluations[0]);
    printf("the same with 3/4 of that memory: %.3f s, %llu evaluations, %s\n",
           cost->scarce_seconds.median, (unsigned long long)cost->evaluations[1],
           cost->fits[1] ? "fits" : "does not fit");
}

static const char *or_dash(double value, char out[16])
{
    snprintf(out, 16, isnan(value) ? "-" : "%.2f", value);
    return out;
}

static void print_hidden(const bench_hidden *hidden)
{
    printf("device: %s\nwork of a forward: %s, %.1f us; of a backward twice that\n",
           hidden->device.name, hidden->core, hidden->core_us.median);
    printf("stash alone %.1f us, restore alone %.1f us, %llu live bytes, %llu visits\n",
           hidden->stash_us.median, hidden->restore_us.median,
           (unsigned long long)hidden->live_bytes, (unsigned long long)hidden->visits);
    if (hidden->device.kind == PST_DEVICE_HOST)
        printf(
            "host runs all streams in the calling thread: nothing overlaps, and exposed is all of "
            "it\n");
    printf("%-32s %8s %8s %8s %8s %9s %6s %7s %6s\n", "way: us but for eager, graph", "eager ms",
           "graph ms", "exposed", "waited", "simulated", "nodes", "launch", "pages");
    for (uint32_t i = 0; i < hidden->num_ways; i++) {
        const bench_way *way = &hidden->ways[i];
        char waited[16], simulated[16];
        printf("%-32s %8.3f %8.3f %8.2f %8s %9s %6.2f %7.2f %6llu\n", way->name,
               way->eager_ms.median, way->graph_ms.median, way->exposed_us,
               or_dash(way->waited_us, waited), or_dash(way->simulated_us, simulated), way->nodes,
               way->launch_us, (unsigned long long)way->high_water);
    }
}

int main(int argc, char **argv)
{
#define FLAG_OPTIONS bench_options
    static const flag flags[] = {SCHEDULE_FLAGS(FLAG_ROW)};
    static const flag_table flag_rows = {
        .command = "pagestash-schedule-bench",
        .doc =
            "What hooks, compilation and policies cost on the host, and what the scheduler hides "
            "on a device, way beside way.\vExit codes: 1 if pages differ from what was simulated; "
            "2 usage; 4 device absent or failed.",
        .groups = {FLAG_GROUP(flags, 0)},
        .json = offsetof(bench_options, json),
    };
    bench_options options = {.json = NULL};
    static bench_hook_cost hooks;
    static bench_pure_cost pure;
    static bench_hidden hidden;
    tool_name = "pagestash-schedule-bench";
    TOOL_TRY(flags_parse(&flag_rows, argc, argv, &options));
    TOOL_TRY(bench_measure_hooks(&options, &hooks));
    TOOL_TRY(bench_measure_pure(&options, &pure));
    if (!options.costs)
        TOOL_TRY(bench_measure_hidden(&options, &hidden));
    if (!json_is_stdout(options.json)) {
        print_hooks(&hooks);
        print_pure(&pure);
        if (!options.costs)
            print_hidden(&hidden);
    }
    if (options.json != NULL) {
        json_t *object = json_begin("pagestash-schedule-bench", 1);
        json_put(&object, "hooks", hooks_json(&hooks));
        json_put(&object, "pure", pure_json(&pure));
        json_put(&object, "hidden", options.costs ? json_null() : hidden_json(&hidden));
        TOOL_TRY(json_write(object, options.json));
    }
    return tool_flush(TOOL_OK);
}
