/* The report as JSON; keys are described in README.md. */
#include "bench/stash/json.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { SCHEMA_VERSION = 2 };

#define set bench_json_set
#define append bench_json_append
#define whole bench_json_whole
#define real bench_json_real

/* ---- machine ---- */

static void read_cpu(char *cpu, size_t bytes)
{
    static const char name[] = "model name";
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(cpu, bytes, "unknown");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, name, sizeof(name) - 1) == 0) {
            const char *rest = line + sizeof(name) - 1;
            rest += strspn(rest, " \t:");
            snprintf(cpu, bytes, "%.*s", (int)strcspn(rest, "\n"), rest);
            break;
        }
    if (file)
        fclose(file);
}

static json_t *machine_object(const bench_machine *machine)
{
    const pst_device_info *device = &machine->device;
    char cpu[256];
    struct utsname system = {0};
    json_t *object = json_object();
    read_cpu(cpu, sizeof(cpu));
    uname(&system);
    set(&object, "device", json_string(device->kind == PST_DEVICE_CUDA ? "cuda" : "host"));
    set(&object, "device_name", json_string(device->name));
    set(&object, "device_bytes", whole(device->total_bytes));
    set(&object, "num_sms", json_integer(device->num_sms));
    set(&object, "compute_capability", json_integer(device->compute_capability));
    set(&object, "cache_bytes", whole(machine->cache_bytes));
    set(&object, "cache_source", json_string(machine->cache_source));
    set(&object, "cpu", json_string(cpu));
    set(&object, "num_cpus", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    set(&object, "system", json_sprintf("%s %s", system.sysname, system.release));
    return object;
}

static json_t *clocks_value(const bench_machine *machine)
{
    json_t *object = json_object();
    if (!machine->has_clocks) {
        json_decref(object);
        return json_null();
    }
    set(&object, "sm_mhz", json_integer(machine->clocks.sm_mhz));
    set(&object, "memory_mhz", json_integer(machine->clocks.memory_mhz));
    set(&object, "max_sm_mhz", json_integer(machine->clocks.max_sm_mhz));
    set(&object, "max_memory_mhz", json_integer(machine->clocks.max_memory_mhz));
    return object;
}

/* ---- anchors and rows ---- */

void bench_json_set_times(json_t **object, const bench_times *seconds, uint64_t bytes)
{
    set(object, "samples", json_integer(seconds->samples));
    set(object, "seconds_min", real(seconds->min));
    set(object, "seconds_median", real(seconds->median));
    set(object, "seconds_max", real(seconds->max));
    set(object, "gbps", real(bench_gbps(bytes, seconds)));
}

static json_t *anchor_object(const bench_anchor *anchor)
{
    json_t *object = json_object();
    set(&object, "name", json_string(anchor->name));
    set(&object, "role", json_string(anchor->role));
    set(&object, "state", json_string(bench_state_name(anchor->state)));
    set(&object, "bytes", whole(anchor->bytes));
    set(&object, "num_sms", json_integer(anchor->num_sms));
    set(&object, "nodes", json_integer(anchor->nodes));
    bench_json_set_times(&object, &anchor->seconds, anchor->bytes);
    set(&object, "mismatched_bytes", whole(anchor->mismatched_bytes));
    return object;
}

static json_t *row_anchors(const bench_report *report, const bench_row *row)
{
    json_t *object = json_object();
    for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++)
        if (row->anchors[slot] != BENCH_NO_ANCHOR)
            set(&object, report->anchors[row->anchors[slot]].name,
                json_integer(row->anchors[slot]));
    return object;
}

static json_t *row_object(const bench_report *report, const bench_result *result, int op,
                          bench_state state)
{
    const bench_case *what = &result->what;
    const bench_row *row = &result->rows[state][op];
    json_t *object = json_object();
    set(&object, "op", json_string(op ? "restore" : "stash"));
    set(&object, "sweep", json_string(bench_sweep_name(what->sweep)));
    set(&object, "state", json_string(bench_state_name(state)));
    set(&object, "bytes", whole(result->bytes));
    set(&object, "capacity_bytes", whole(result->capacity_bytes));
    set(&object, "num_sms", json_integer(result->num_sms));
    set(&object, "backend", json_string(bench_backend_name(what->backend)));
    set(&object, "page_size", whole(what->page_bytes));
    set(&object, "pages", whole(result->pages));
    set(&object, "pool_bytes", whole(bench_pool_bytes(result)));
    set(&object, "copies", json_integer(result->num_copies));
    set(&object, "pattern", json_string(bench_pattern_name(what->pattern)));
    set(&object, "ring", json_string(bench_ring_name(what->ring)));
    set(&object, "tensors", json_integer(what->tensors));
    set(&object, "scales", json_boolean(what->scales));
    set(&object, "alignment", json_integer(what->alignment));
    set(&object, "nodes", whole(result->nodes[op]));
    bench_json_set_times(&object, &row->seconds, result->bytes);
    set(&object, "share_of_a0", real(bench_share_of_a0(report, result->bytes, &row->seconds)));
    set(&object, "share_of_own_copy", real(row->share_of_own_copy));
    set(&object, "own_copy",
        row->own_copy == BENCH_NO_ANCHOR ? json_null() : json_integer(row->own_copy));
    set(&object, "anchors", row_anchors(report, row));
    set(&object, "mismatched_bytes", whole(result->mismatched_bytes));
    return object;
}

static json_t *skip_object(const bench_skip *skip)
{
    json_t *object = json_object();
    set(&object, "sweep", json_string(bench_sweep_name(skip->sweep)));
    set(&object, "configuration", json_string(skip->what));
    set(&object, "reason", json_string(skip->reason));
    return object;
}

/* ---- GEMM, pairs, call cost ---- */

static json_t *overlap_row(const bench_overlap *overlap, int all_sms)
{
    json_t *row = json_object();
    set(&row, "backend", json_string(bench_backend_name(overlap->backend)));
    set(&row, "bytes", whole(overlap->bytes));
    set(&row, "num_sms", json_integer(overlap->num_sms));
    set(&row, "gemm_num_sms", json_integer(overlap->gemm_sms));
    set(&row, "samples", json_integer(overlap->gemm_alone.samples));
    set(&row, "gemm_seconds_alone", real(overlap->gemm_alone.median));
    set(&row, "gemm_seconds_beside", real(overlap->gemm_beside.median));
    set(&row, "gemm_slowdown",
        real(overlap->gemm_beside.median / overlap->gemm_alone.median - 1.0));
    set(&row, "sm_share", real((double)overlap->num_sms / all_sms));
    set(&row, "stash_seconds_alone", real(overlap->stash_alone.median));
    set(&row, "stash_seconds_beside", real(overlap->stash_beside.median));
    set(&row, "start_seconds_alone", real(overlap->start_alone.median));
    set(&row, "start_seconds_beside", real(overlap->start_beside.median));
    set(&row, "start_delay_seconds",
        real(overlap->start_beside.median - overlap->start_alone.median));
    set(&row, "mismatched_bytes", whole(overlap->mismatched_bytes));
    return row;
}

static json_t *overlap_object(const bench_report *report)
{
    json_t *object = json_object(), *rows = json_array();
    for (size_t i = 0; i < report->num_overlaps; i++)
        append(&rows, overlap_row(&report->overlaps[i], report->machine.device.num_sms));
    set(&object, "unavailable", bench_json_text(report->no_overlap));
    set(&object, "rows", rows);
    return object;
}

static json_t *pairs_value(const bench_report *report)
{
    const bench_pairs *pairs = &report->pairs;
    json_t *object;
    if (!report->has_pairs)
        return json_null();
    object = json_object();
    set(&object, "pairs", whole(pairs->pairs));
    set(&object, "faults", whole(pairs->faults));
    set(&object, "check_errors", whole(pairs->check_errors));
    set(&object, "moved_pages", whole(pairs->moved_pages));
    set(&object, "mismatched_bytes", whole(pairs->mismatched_bytes));
    return object;
}

static json_t *call_cost_object(const bench_call_cost *cost)
{
    json_t *object = json_object(), *rows = json_array();
    for (int i = 0; i < BENCH_CALL_TENSORS && !cost->unavailable; i++) {
        json_t *row = json_object();
        set(&row, "tensors", json_integer(cost->tensors[i]));
        set(&row, "samples", json_integer(cost->ns[i].samples));
        set(&row, "ns_min", real(cost->ns[i].min));
        set(&row, "ns_median", real(cost->ns[i].median));
        set(&row, "ns_max", real(cost->ns[i].max));
        append(&rows, row);
    }
    set(&object, "unavailable", bench_json_text(cost->unavailable));
    set(&object, "goal_ns", json_integer(BENCH_CALL_TARGET_NS));
    set(&object, "rows", rows);
    return object;
}

/* ---- the whole ---- */

json_t *bench_report_object(const bench_report *report)
{
    json_t *anchors = json_array(), *rows = json_array(), *skipped = json_array();
    json_t *object = json_object();
    for (size_t i = 0; i < report->num_anchors; i++)
        append(&anchors, anchor_object(&report->anchors[i]));
    for (size_t i = 0; i < report->num_results; i++)
        for (int state = 0; state < BENCH_NUM_STATES; state++)
            for (int op = 0; op < 2; op++)
                append(&rows, row_object(report, &report->results[i], op, (bench_state)state));
    for (size_t i = 0; i < report->num_skips; i++)
        append(&skipped, skip_object(&report->skips[i]));
    set(&object, "schema_version", json_integer(SCHEMA_VERSION));
    set(&object, "machine", machine_object(&report->machine));
    set(&object, "commit", json_string(PAGESTASH_COMMIT));
    set(&object, "driver", bench_json_text(report->machine.driver));
    set(&object, "clocks", clocks_value(&report->machine));
    set(&object, "quick", json_boolean(report->quick));
    set(&object, "a0", report->a0 == BENCH_NO_ANCHOR ? json_null() : json_integer(report->a0));
    set(&object, "anchors", anchors);
    set(&object, "rows", rows);
    set(&object, "skipped", skipped);
    set(&object, "overlap", overlap_object(report));
    set(&object, "host_tier", bench_host_tier_value(report));
    set(&object, "pairs", pairs_value(report));
    set(&object, "call_cost", call_cost_object(&report->cost));
    return object;
}
