#include "report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_bytes(metric_list *list, const char *key, uint64_t bytes)
{
    list->items[list->num++] = (metric){.key = key, .kind = METRIC_BYTES, .whole = bytes};
}

static void add_count(metric_list *list, const char *key, uint64_t count)
{
    list->items[list->num++] = (metric){.key = key, .kind = METRIC_COUNT, .whole = count};
}

static void add_real(metric_list *list, const char *key, double real)
{
    list->items[list->num++] = (metric){.key = key, .kind = METRIC_REAL, .real = real};
}

static double ratio(double part, double whole)
{
    return whole > 0.0 ? part / whole : NAN;
}

static uint64_t shortfall_pages(const replay_plan *plan, const replay_result *result)
{
    const pst_pool_status *status = &result->status;
    const bool is_short = (status->flags & (1u << PST_FAULT_EXHAUSTED)) != 0 &&
                          status->demand_high_water > plan->num_pages;
    return is_short ? status->demand_high_water - plan->num_pages : 0;
}

/* What keeps the activations when pages are used: the pool, its tickets, and the buffers that all
 * layers share. */
static uint64_t stash_memory_bytes(const replay_result *result)
{
    return result->pool_bytes + result->ticket_bytes + result->buffer_bytes;
}

static void collect(const replay_options *options, const replay_plan *plan,
                    const replay_result *result, metric_list *list)
{
    const double live = (double)plan->live_bytes_total;
    const double copied = live / 1e9;
    /* With a fault, fewer bytes were moved than were live. */
    const bool is_whole = result->status.num_faults == 0;
    const double page_bytes = (double)result->status.high_water[0] * (double)options->page_bytes;
    const double waste =
        is_whole ? ratio(page_bytes, (double)plan->high_water_live_bytes) - 1.0 : NAN;
    const double mean = plan->iterations > 0 ? live / (double)plan->iterations : 0.0;

    add_count(list, "iterations", plan->iterations);
    add_count(list, "capacity_rows", plan->capacity);
    add_real(list, "capacity_factor", plan->capacity_factor);
    add_bytes(list, "static_bytes", plan->static_bytes);
    add_bytes(list, "live_bytes_mean", (uint64_t)llround(mean));
    add_bytes(list, "live_bytes_max", plan->live_bytes_max);
    add_bytes(list, "pool_bytes", result->pool_bytes);
    add_bytes(list, "ticket_bytes", result->ticket_bytes);
    add_bytes(list, "buffer_bytes", result->buffer_bytes);
    add_count(list, "num_pages", plan->num_pages);
    add_count(list, "predicted_pages", plan->high_water_pages);
    add_count(list, "high_water_pages", result->status.high_water[0]);
    add_real(list, "waste_ratio", waste);
    add_count(list, "faults", result->status.num_faults);
    add_count(list, "shortfall_pages", shortfall_pages(plan, result));
    add_count(list, "leaked_pages", result->leaked_pages);
    add_count(list, "launches_per_layer", result->launches_per_layer);
    add_real(list, "stash_seconds", result->stash_seconds);
    add_real(list, "restore_seconds", result->restore_seconds);
    add_real(list, "copy_seconds", result->copy_seconds);
    add_real(list, "stash_gb_per_s", is_whole ? ratio(copied, result->stash_seconds) : NAN);
    add_real(list, "restore_gb_per_s", is_whole ? ratio(copied, result->restore_seconds) : NAN);
    add_real(list, "copy_gb_per_s", ratio(copied, result->copy_seconds));
    add_real(list, "stash_share_of_copy",
             is_whole && live > 0.0 ? ratio(result->copy_seconds, result->stash_seconds) : NAN);
    add_real(list, "restore_share_of_copy",
             is_whole && live > 0.0 ? ratio(result->copy_seconds, result->restore_seconds) : NAN);
    add_count(list, "mismatched_bytes", result->mismatched_bytes);
}

static const char *human(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024.0 && unit < 4; unit++)
        value /= 1024.0;
    snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return out;
}

static void print_metric(const metric *item)
{
    char text[32];
    for (const char *c = item->key; *c != '\0'; c++)
        putchar(*c == '_' ? ' ' : *c);
    if (item->kind == METRIC_REAL && isnan(item->real))
        printf(": not measured\n");
    else if (item->kind == METRIC_REAL)
        printf(": %.4f\n", item->real);
    else if (item->kind == METRIC_BYTES)
        printf(": %llu (%s)\n", (unsigned long long)item->whole, human(item->whole, text));
    else
        printf(": %llu\n", (unsigned long long)item->whole);
}

static void print_memory_saved(const replay_plan *plan, const replay_result *result)
{
    char before[32];
    char after[32];
    const uint64_t bytes = stash_memory_bytes(result);
    const double saved = 1.0 - ratio((double)bytes, (double)plan->static_bytes);
    printf("memory saved: %.1f %% (static buffers %s; pool, tickets and shared buffers %s)\n",
           100.0 * saved, human(plan->static_bytes, before), human(bytes, after));
}

static void print_text(const replay_options *options, const replay_trace *trace,
                       const replay_plan *plan, const replay_result *result,
                       const metric_list *list)
{
    printf("trace: %s: steps %llu:%llu, layers 0:%u, %u experts, rank %u of %u\n", options->routing,
           (unsigned long long)trace->step_begin,
           (unsigned long long)(trace->step_begin + trace->steps), trace->layers,
           trace->num_experts, options->rank, options->ep);
    printf("device: %s\n", result->device.name);
    /* mismatched_bytes stands last in the list and in the text */
    for (size_t i = 0; i + 1 < list->num; i++)
        print_metric(&list->items[i]);
    if (result->status.num_faults == 0)
        print_memory_saved(plan, result);
    print_metric(&list->items[list->num - 1]);
}

/* One line that says what went wrong, the cause before its consequences. */
static int judge(const replay_plan *plan, const replay_result *result)
{
    const pst_pool_status *status = &result->status;
    const uint64_t missing = shortfall_pages(plan, result);
    if (missing != 0)
        return tool_fail(TOOL_NO,
                         "pool of %llu pages: %llu pages missing, --pages %llu would do; first at "
                         "%s, which wanted %llu with %llu free",
                         (unsigned long long)plan->num_pages, (unsigned long long)missing,
                         (unsigned long long)status->demand_high_water, result->fault_place,
                         (unsigned long long)status->fault_wanted,
                         (unsigned long long)status->fault_free[0]);
    if (status->num_faults != 0)
        return tool_fail(TOOL_NO, "%u faults, the first at %s: %s", status->num_faults,
                         result->fault_place, pst_fault_text((pst_fault)status->fault));
    if (result->mismatched_bytes != 0)
        return tool_fail(TOOL_NO, "%llu bytes differ from what was stashed",
                         (unsigned long long)result->mismatched_bytes);
    if (result->leaked_pages != 0)
        return tool_fail(TOOL_NO, "%llu pages in use after all were restored",
                         (unsigned long long)result->leaked_pages);
    if (status->high_water[0] != plan->high_water_pages)
        return tool_fail(TOOL_NO, "high water of %llu pages, predicted were %llu",
                         (unsigned long long)status->high_water[0],
                         (unsigned long long)plan->high_water_pages);
    return TOOL_OK;
}

int report(const replay_options *options, const replay_trace *trace, const replay_plan *plan,
           const replay_result *result)
{
    metric_list list = {.num = 0};
    collect(options, plan, result, &list);
    int code = TOOL_OK;
    if (options->json != NULL)
        code = report_json(options, trace, result, &list);
    if (options->json == NULL || strcmp(options->json, "-") != 0)
        print_text(options, trace, plan, result, &list);
    const int verdict = judge(plan, result);
    return tool_flush(code != TOOL_OK ? code : verdict);
}
