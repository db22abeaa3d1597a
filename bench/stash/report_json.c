/* The report as JSON; README.md describes its keys. */
#include "bench/stash/report.h"
#include "tools/common/json_out.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { SCHEMA_VERSION = 2 };

/* ---- machine ---- */

static void read_cpu(char *cpu, size_t bytes)
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(cpu, bytes, "unknown");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            const char *name = strchr(line, ':') + 1;
            name += strspn(name, " \t");
            snprintf(cpu, bytes, "%.*s", (int)strcspn(name, "\n"), name);
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
    json_put_text(&object, "device", device->kind == PST_DEVICE_CUDA ? "cuda" : "host");
    json_put_text(&object, "device_name", device->name);
    json_put_whole(&object, "device_bytes", device->total_bytes);
    json_put_whole(&object, "num_sms", (uint64_t)device->num_sms);
    json_put_whole(&object, "compute_capability", (uint64_t)device->compute_capability);
    json_put_whole(&object, "cache_bytes", machine->cache_bytes);
    json_put_text(&object, "cache_source", machine->cache_source);
    json_put_text(&object, "cpu", cpu);
    json_put(&object, "num_cpus", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    json_put(&object, "system", json_sprintf("%s %s", system.sysname, system.release));
    return object;
}

static json_t *clocks_value(const bench_machine *machine)
{
    const bench_clocks *clocks = &machine->clocks;
    if (!machine->has_clocks)
        return json_null();
    json_t *object = json_object();
    json_put_whole(&object, "sm_mhz", clocks->sm_mhz);
    json_put_whole(&object, "memory_mhz", clocks->memory_mhz);
    json_put_whole(&object, "max_sm_mhz", clocks->max_sm_mhz);
    json_put_whole(&object, "max_memory_mhz", clocks->max_memory_mhz);
    return object;
}

/* ---- anchors and rows ---- */

static const char *op_name(int op)
{
    return op ? "restore" : "stash";
}

/* null for what is "". */
static json_t *text_or_null(const char *text)
{
    return json_text(text && *text ? text : NULL);
}

static json_t *index_value(int index)
{
    return index == BENCH_NO_ANCHOR ? json_null() : json_integer(index);
}

/* Null for what was not measured. */
static void put_seconds(json_t **object, const bench_times *seconds)
{
    const double none = seconds->samples ? 0.0 : (double)NAN;
    json_put_whole(object, "samples", seconds->samples);
    json_put(object, "seconds_min", json_number(seconds->min + none));
    json_put(object, "seconds_median", json_number(seconds->median + none));
    json_put(object, "seconds_max", json_number(seconds->max + none));
}

static void put_times(json_t **object, const bench_times *seconds, uint64_t bytes)
{
    put_seconds(object, seconds);
    json_put(object, "gbps", json_number(bench_gbps(bytes, seconds)));
}

static json_t *anchor_object(const bench_anchor *anchor)
{
    json_t *object = json_object();
    json_put_text(&object, "name", anchor->name);
    json_put_text(&object, "role", anchor->role);
    json_put_text(&object, "state", bench_state_name(anchor->state));
    json_put_whole(&object, "bytes", anchor->bytes);
    json_put_whole(&object, "num_sms", (uint64_t)anchor->num_sms);
    json_put_whole(&object, "nodes", anchor->nodes);
    put_times(&object, &anchor->seconds, anchor->bytes);
    json_put_whole(&object, "mismatched_bytes", anchor->mismatched_bytes);
    return object;
}

static json_t *row_anchors(const bench_report *report, const bench_row *row)
{
    json_t *object = json_object();
    for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++)
        if (row->anchors[slot] != BENCH_NO_ANCHOR)
            json_put(&object, report->anchors[row->anchors[slot]].name,
                     json_integer(row->anchors[slot]));
    return object;
}

static json_t *row_object(const bench_report *report, const bench_result *result, int op,
                          bench_state state)
{
    const bench_case *what = &result->what;
    const bench_row *row = &result->rows[state][op];
    json_t *object = json_object();
    json_put_text(&object, "op", op_name(op));
    json_put_text(&object, "sweep", bench_sweep_name(what->sweep));
    json_put_text(&object, "state", bench_state_name(state));
    json_put_whole(&object, "bytes", result->bytes);
    json_put_whole(&object, "capacity_bytes", result->capacity_bytes);
    json_put_whole(&object, "num_sms", (uint64_t)result->num_sms);
    json_put_text(&object, "backend", bench_backend_name(what->backend));
    json_put_whole(&object, "page_size", what->page_bytes);
    json_put_whole(&object, "pages", result->pages);
    json_put_whole(&object, "pool_bytes", bench_pool_bytes(result));
    json_put_whole(&object, "copies", result->num_copies);
    json_put_text(&object, "pattern", bench_pattern_name(what->pattern));
    json_put_text(&object, "ring", bench_ring_name(what->ring));
    json_put_whole(&object, "tensors", what->tensors);
    json_put(&object, "scales", json_boolean(what->scales));
    json_put_whole(&object, "alignment", what->alignment);
    json_put(&object, "row_bytes", what->row_bytes ? json_integer(what->row_bytes) : json_null());
    json_put(&object, "row_stride",
             what->row_stride ? json_integer(what->row_stride) : json_null());
    json_put_whole(&object, "nodes", result->nodes[op]);
    put_times(&object, &row->seconds, result->bytes);
    json_put(&object, "share_of_a0",
             json_number(bench_share_of_a0(report, result->bytes, &row->seconds)));
    json_put(&object, "share_of_own_copy", json_number(row->share_of_own_copy));
    json_put(&object, "own_copy", index_value(row->own_copy));
    json_put(&object, "anchors", row_anchors(report, row));
    json_put_whole(&object, "mismatched_bytes", result->mismatched_bytes);
    return object;
}

static json_t *rows_array(const bench_report *report)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < report->num_results; i++)
        for (int state = 0; state < BENCH_NUM_STATES; state++)
            for (int op = 0; op < 2; op++)
                json_add(&rows, row_object(report, &report->results[i], op, (bench_state)state));
    return rows;
}

static json_t *skipped_array(const bench_report *report)
{
    json_t *skipped = json_array();
    for (size_t i = 0; i < report->num_skips; i++) {
        const bench_skip *skip = &report->skips[i];
        json_t *object = json_object();
        json_put_text(&object, "sweep", bench_sweep_name(skip->sweep));
        json_put_text(&object, "configuration", skip->what);
        json_put_text(&object, "reason", skip->reason);
        json_add(&skipped, object);
    }
    return skipped;
}

/* ---- the pinned tier ---- */

static json_t *host_row_object(const bench_host_row *row, int op)
{
    json_t *object = json_object();
    json_put_text(&object, "op", op_name(op));
    json_put_whole(&object, "bytes", row->bytes);
    json_put_whole(&object, "pages", row->pages);
    json_put_whole(&object, "pinned_pages", row->pinned_pages);
    json_put_whole(&object, "pool_pinned_bytes", row->pool_bytes);
    json_put(&object, "part", json_boolean(row->is_part));
    json_put_whole(&object, "offload_num", row->num);
    json_put_whole(&object, "offload_den", row->den);
    json_put_whole(&object, "num_sms", (uint64_t)row->num_sms);
    put_times(&object, &row->seconds[op], row->bytes);
    json_put(&object, "share_of_engine", json_number(row->share_of_engine[op]));
    json_put(&object, "share_of_sm_copy", json_number(row->share_of_sm_copy[op]));
    json_put_whole(&object, "mismatched_bytes", row->mismatched_bytes);
    return object;
}

static json_t *recovery_object(const bench_recovery *recovery)
{
    json_t *object = json_object();
    json_put(&object, "unavailable", text_or_null(recovery->unavailable));
    json_put_whole(&object, "grown_bytes", recovery->grown_bytes);
    put_seconds(&object, &recovery->seconds);
    json_put_whole(&object, "mismatched_bytes", recovery->mismatched_bytes);
    return object;
}

static json_t *directions_object(const int *index)
{
    json_t *object = json_object();
    json_put(&object, "to_host", index_value(index[0]));
    json_put(&object, "from_host", index_value(index[1]));
    return object;
}

static json_t *host_tier_value(const bench_host_tier *tier)
{
    if (tier->bytes == 0)
        return json_null();
    json_t *object = json_object(), *rows = json_array(), *pins = json_array();
    for (size_t i = 0; i < tier->num_rows; i++)
        for (int op = 0; op < 2; op++)
            json_add(&rows, host_row_object(&tier->rows[i], op));
    for (size_t i = 0; i < tier->num_pins; i++) {
        json_t *pin = json_object();
        json_put_whole(&pin, "bytes", tier->pins[i].bytes);
        json_put(&pin, "seconds", json_number(tier->pins[i].seconds));
        json_add(&pins, pin);
    }
    json_put_whole(&object, "bytes", tier->bytes);
    json_put(&object, "engine", directions_object(tier->engine));
    json_put(&object, "sm_copy", directions_object(tier->sm_copy));
    json_put(&object, "rows", rows);
    json_put(&object, "pin", pins);
    json_put(&object, "recovery", recovery_object(&tier->recovery));
    return object;
}

/* ---- GEMM, pairs, call cost ---- */

static json_t *overlap_row(const bench_overlap *overlap, int all_sms)
{
    json_t *row = json_object();
    json_put_text(&row, "backend", bench_backend_name(overlap->backend));
    json_put_whole(&row, "bytes", overlap->bytes);
    json_put_whole(&row, "num_sms", (uint64_t)overlap->num_sms);
    json_put_whole(&row, "gemm_num_sms", (uint64_t)overlap->gemm_sms);
    json_put_whole(&row, "samples", overlap->gemm_alone.samples);
    json_put(&row, "gemm_seconds_alone", json_number(overlap->gemm_alone.median));
    json_put(&row, "gemm_seconds_beside", json_number(overlap->gemm_beside.median));
    json_put(&row, "gemm_slowdown",
             json_number(overlap->gemm_beside.median / overlap->gemm_alone.median - 1.0));
    json_put(&row, "sm_share", json_number((double)overlap->num_sms / all_sms));
    json_put(&row, "stash_seconds_alone", json_number(overlap->stash_alone.median));
    json_put(&row, "stash_seconds_beside", json_number(overlap->stash_beside.median));
    json_put(&row, "start_seconds_alone", json_number(overlap->start_alone.median));
    json_put(&row, "start_seconds_beside", json_number(overlap->start_beside.median));
    json_put(&row, "start_delay_seconds",
             json_number(overlap->start_beside.median - overlap->start_alone.median));
    json_put_whole(&row, "mismatched_bytes", overlap->mismatched_bytes);
    return row;
}

static json_t *overlap_object(const bench_report *report)
{
    json_t *object = json_object(), *rows = json_array();
    for (size_t i = 0; i < report->num_overlaps; i++)
        json_add(&rows, overlap_row(&report->overlaps[i], report->machine.device.num_sms));
    json_put(&object, "unavailable", text_or_null(report->no_overlap));
    json_put(&object, "rows", rows);
    return object;
}

static json_t *pairs_value(const bench_report *report)
{
    const bench_pairs *pairs = &report->pairs;
    if (!report->has_pairs)
        return json_null();
    json_t *object = json_object();
    json_put_whole(&object, "pairs", pairs->pairs);
    json_put_whole(&object, "faults", pairs->faults);
    json_put_whole(&object, "check_errors", pairs->check_errors);
    json_put_whole(&object, "moved_pages", pairs->moved_pages);
    json_put_whole(&object, "mismatched_bytes", pairs->mismatched_bytes);
    return object;
}

static json_t *glu_row(const bench_glu_row *glu)
{
    json_t *row = json_object();
    json_put_text(&row, "form", glu->name);
    json_put_whole(&row, "features", glu->features);
    json_put_whole(&row, "bytes", glu->bytes);
    json_put_whole(&row, "samples", glu->forward.samples);
    json_put(&row, "memory_forward_seconds", json_number(glu->compute.median));
    json_put(&row, "stash_seconds", json_number(glu->stash.median));
    json_put(&row, "restore_seconds", json_number(glu->restore.median));
    json_put(&row, "memory_backward_seconds", json_number(glu->differentiate.median));
    json_put(&row, "forward_seconds", json_number(glu->forward.median));
    json_put(&row, "backward_seconds", json_number(glu->backward.median));
    json_put(&row, "memcpy_seconds", json_number(glu->copy.median));
    json_put(&row, "speedup", json_number(glu->speedup));
    json_put_whole(&row, "mismatched_bytes", glu->mismatched_bytes);
    return row;
}

static json_t *glu_array(const bench_report *report)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < report->num_glus; i++)
        json_add(&rows, glu_row(&report->glus[i]));
    return rows;
}

static json_t *linear_row(const bench_linear_row *linear)
{
    json_t *row = json_object();
    json_put_text(&row, "form", linear->name);
    json_put(&row, "paced", json_boolean(linear->is_paced));
    json_put(&row, "pace_seconds", json_number(linear->pace));
    json_put_whole(&row, "ranks", linear->num_ranks);
    json_put_whole(&row, "tokens", linear->tokens);
    json_put_whole(&row, "in_features", linear->in_features);
    json_put_whole(&row, "out_features", linear->out_features);
    json_put_whole(&row, "samples", linear->exchange.samples);
    json_put(&row, "memcpy_seconds", json_number(linear->copy.median));
    json_put(&row, "one_element_seconds", json_number(linear->nothing.median));
    json_put(&row, "products_seconds", json_number(linear->products.median));
    json_put(&row, "pieces_seconds", json_number(linear->pieces.median));
    json_put(&row, "exchange_seconds", json_number(linear->exchange.median));
    json_put(&row, "layer_seconds", json_number(linear->layer.median));
    json_put(&row, "ring_seconds", json_number(linear->ring.median));
    json_put(&row, "ring_ratio", json_number(linear->ring_ratio));
    json_put(&row, "hidden", json_number(linear->hidden));
    return row;
}

static json_t *linear_object(const bench_report *report)
{
    if (report->num_cores == 0)
        return json_null();
    json_t *object = json_object(), *rows = json_array();
    for (size_t i = 0; i < report->num_linears; i++)
        json_add(&rows, linear_row(&report->linears[i]));
    json_put(&object, "unavailable",
             *report->no_linear ? json_string(report->no_linear) : json_null());
    json_put(&object, "no_product",
             *report->no_product ? json_string(report->no_product) : json_null());
    json_put_whole(&object, "cores", report->num_cores);
    json_put(&object, "rows", rows);
    return object;
}

static json_t *call_cost_object(const bench_call_cost *cost)
{
    json_t *object = json_object(), *rows = json_array();
    for (int i = 0; i < BENCH_NUM_CALLS * BENCH_CALL_TENSORS && !cost->unavailable; i++) {
        const int call = i / BENCH_CALL_TENSORS, column = i % BENCH_CALL_TENSORS;
        const bench_times *ns = &cost->ns[call][column];
        json_t *row = json_object();
        json_put_text(&row, "call", bench_call_name((bench_call)call));
        json_put_whole(&row, "tensors", cost->tensors[column]);
        json_put_whole(&row, "samples", ns->samples);
        json_put(&row, "ns_min", json_number(ns->min));
        json_put(&row, "ns_median", json_number(ns->median));
        json_put(&row, "ns_max", json_number(ns->max));
        json_add(&rows, row);
    }
    json_put(&object, "unavailable", json_text(cost->unavailable));
    json_put(&object, "rows", rows);
    return object;
}

/* ---- the whole ---- */

int bench_write_json(const bench_report *report, const char *path)
{
    json_t *anchors = json_array(), *object = json_begin("pagestash-bench", SCHEMA_VERSION);
    for (size_t i = 0; i < report->num_anchors; i++)
        json_add(&anchors, anchor_object(&report->anchors[i]));
    json_put(&object, "machine", machine_object(&report->machine));
    json_put_text(&object, "commit", PAGESTASH_COMMIT);
    json_put(&object, "driver", text_or_null(report->machine.driver));
    json_put(&object, "clocks", clocks_value(&report->machine));
    json_put(&object, "quick", json_boolean(report->quick));
    json_put(&object, "a0", index_value(report->a0));
    json_put(&object, "anchors", anchors);
    json_put(&object, "rows", rows_array(report));
    json_put(&object, "skipped", skipped_array(report));
    json_put(&object, "overlap", overlap_object(report));
    json_put(&object, "host_tier", host_tier_value(&report->host_tier));
    json_put(&object, "pairs", pairs_value(report));
    json_put(&object, "glu", glu_array(report));
    json_put(&object, "linear", linear_object(report));
    json_put(&object, "call_cost", call_cost_object(&report->cost));
    return json_write(object, path);
}
