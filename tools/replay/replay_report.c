/* What a replay says at its end: figures as text and JSON, and what went wrong. */
#include "tools/common/json_out.h"
#include "tools/replay/replay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SCHEMA_VERSION = 2 };

static double ratio(double part, double whole)
{
    return whole > 0.0 ? part / whole : NAN;
}

/* Pages of a tier at the end. */
static uint64_t pages_of(const replay_sizes *sizes, const replay_result *result,
                         enum replay_tier tier)
{
    return sizes->num_pages[tier] + result->grown_pages[tier];
}

static uint64_t shortfall_pages(const replay_sizes *sizes, const replay_result *result)
{
    const pst_pool_status *status = &result->status;
    const uint64_t pages =
        pages_of(sizes, result, REPLAY_DEVICE) + pages_of(sizes, result, REPLAY_HOST);
    const bool is_short =
        (status->flags & (1u << PST_FAULT_EXHAUSTED)) != 0 && status->demand_high_water > pages;
    return is_short ? status->demand_high_water - pages : 0;
}

/* What keeps the activations when pages are used: the pool, its tickets, and the buffers that all
 * layers share. */
static uint64_t stash_memory_bytes(const replay_result *result)
{
    return result->pool_bytes + result->ticket_bytes + result->buffer_bytes;
}

static bool may_grow(const replay_options *options)
{
    return options->on_overflow != REPLAY_FAIL;
}

static void collect_pages(const replay_options *options, const replay_sizes *sizes,
                          const replay_result *result, metric_list *list)
{
    const pst_pool_status *status = &result->status;
    const uint64_t host_pages = pages_of(sizes, result, REPLAY_HOST);
    metrics_add_count(list, "num_pages", sizes->num_pages[REPLAY_DEVICE]);
    const size_t grown = list->num;
    metrics_add_count(list, "grown_pages", result->grown_pages[REPLAY_DEVICE]);
    if (!may_grow(options))
        metrics_hide(list, grown);
    const size_t host = list->num;
    metrics_add_count(list, "num_host_pages", sizes->num_pages[REPLAY_HOST]);
    metrics_add_count(list, "grown_host_pages", result->grown_pages[REPLAY_HOST]);
    metrics_add_bytes(list, "host_tier_bytes", host_pages * options->model.page_size);
    metrics_add_count(list, "high_water_host_pages", status->high_water[REPLAY_HOST]);
    if (host_pages == 0)
        metrics_hide(list, host);
    metrics_add_count(list, "predicted_pages", sizes->high_water_pages);
    metrics_add_count(list, "high_water_pages", status->high_water[REPLAY_DEVICE]);
    metrics_add_count(list, "recommended_pages_p50", status->demand_quantiles[PST_STEPS_P50]);
    metrics_add_count(list, "recommended_pages_p99", status->demand_quantiles[PST_STEPS_P99]);
    metrics_add_count(list, "recommended_pages_all", status->demand_high_water);
}

static void collect_link(const replay_options *options, const replay_sizes *sizes,
                         const replay_result *result, metric_list *list)
{
    const size_t begin = list->num;
    static const char *const keys[REPLAY_NUM_RATES] = {
        "link_stash_gb_per_s", "link_restore_gb_per_s", "copy_to_host_gb_per_s",
        "copy_from_host_gb_per_s"};
    const double *rate = result->link_rate;
    metrics_add_bytes(list, "spilled_bytes", result->spilled_pages * options->model.page_size);
    metrics_add_bytes(list, "offloaded_bytes", result->offloaded_pages * options->model.page_size);
    metrics_add_bytes(list, "displaced_bytes", result->displaced_pages * options->model.page_size);
    metrics_add_bytes(list, "link_bytes", result->link_bytes);
    for (size_t i = 0; i < REPLAY_NUM_RATES; i++)
        metrics_add_rare(list, keys[i], rate[i] / 1e9);
    metrics_add_rare(list, "link_stash_share_of_copy",
                     rate[REPLAY_RATE_STASH] / rate[REPLAY_RATE_COPY_TO_HOST]);
    metrics_add_rare(list, "link_restore_share_of_copy",
                     rate[REPLAY_RATE_RESTORE] / rate[REPLAY_RATE_COPY_FROM_HOST]);
    if (pages_of(sizes, result, REPLAY_HOST) == 0)
        metrics_hide(list, begin);
}

static void collect_overflow(const replay_options *options, const replay_result *result,
                             metric_list *list)
{
    const size_t begin = list->num;
    metrics_add_count(list, "steps_retried", result->steps_retried);
    metrics_add_count(list, "steps_lost", result->steps_lost);
    metrics_add_count(list, "times_grown", result->times_grown);
    metrics_add_count(list, "graphs_captured", result->graphs_captured);
    metrics_add_rare(list, "recover_seconds_median", result->recover_median);
    metrics_add_rare(list, "recover_seconds_max", result->recover_max);
    if (!may_grow(options) && result->steps_lost == 0)
        metrics_hide(list, begin);
}

static void collect(const replay_options *options, const replay_sizes *sizes,
                    const replay_result *result, metric_list *list)
{
    const double live = (double)sizes->live_bytes_total;
    const double mean = ratio((double)sizes->live_bytes_sum, (double)sizes->iterations);
    const double copied = live / 1e9;
    /* With a fault, fewer bytes were moved than were live. */
    const bool is_whole = result->status.num_faults == 0;
    const double page_bytes =
        (double)result->status.demand_high_water * (double)options->model.page_size;
    const double waste =
        is_whole ? ratio(page_bytes, (double)sizes->high_water_live_bytes) - 1.0 : NAN;

    metrics_add_count(list, "iterations", sizes->iterations);
    metrics_add_count(list, "capacity_rows", sizes->capacity);
    metrics_add_real(list, "capacity_factor", sizes->capacity_factor);
    metrics_add_bytes(list, "static_bytes", sizes->static_bytes);
    metrics_add_bytes(list, "live_bytes_mean", sizes->iterations > 0 ? (uint64_t)llround(mean) : 0);
    metrics_add_bytes(list, "live_bytes_max", sizes->live_bytes_max);
    metrics_add_bytes(list, "pool_bytes", result->pool_bytes);
    metrics_add_bytes(list, "ticket_bytes", result->ticket_bytes);
    metrics_add_bytes(list, "buffer_bytes", result->buffer_bytes);
    metrics_add_count(list, "visits", result->visits);
    metrics_add_count(list, "kept_in_place", result->kept_in_place);
    metrics_add_count(list, "tickets", result->num_tickets);
    collect_pages(options, sizes, result, list);
    metrics_add_real(list, "waste_ratio", waste);
    metrics_add_count(list, "faults", result->status.num_faults);
    metrics_add_count(list, "shortfall_pages", shortfall_pages(sizes, result));
    metrics_add_count(list, "leaked_pages", result->leaked_pages);
    metrics_add_count(list, "launches_per_layer", result->launches_per_layer);
    metrics_add_real(list, "stash_seconds", result->stash_seconds);
    metrics_add_real(list, "restore_seconds", result->restore_seconds);
    metrics_add_real(list, "copy_seconds", result->copy_seconds);
    metrics_add_real(list, "stash_gb_per_s", is_whole ? ratio(copied, result->stash_seconds) : NAN);
    metrics_add_real(list, "restore_gb_per_s",
                     is_whole ? ratio(copied, result->restore_seconds) : NAN);
    metrics_add_real(list, "copy_gb_per_s", ratio(copied, result->copy_seconds));
    metrics_add_real(list, "stash_share_of_copy",
                     is_whole && live > 0.0 ? ratio(result->copy_seconds, result->stash_seconds)
                                            : NAN);
    metrics_add_real(list, "restore_share_of_copy",
                     is_whole && live > 0.0 ? ratio(result->copy_seconds, result->restore_seconds)
                                            : NAN);
    metrics_add_rare(list, "exposed_forward_seconds", result->exposed_forward_seconds);
    metrics_add_rare(list, "exposed_backward_seconds", result->exposed_backward_seconds);
    collect_link(options, sizes, result, list);
    collect_overflow(options, result, list);
    metrics_add_count(list, "mismatched_bytes", result->mismatched_bytes);
}

static void print_memory_saved(const replay_sizes *sizes, const replay_result *result)
{
    char before[32];
    char after[32];
    const uint64_t bytes = stash_memory_bytes(result);
    const double saved = 1.0 - ratio((double)bytes, (double)sizes->static_bytes);
    printf("memory saved: %.1f %% (static buffers %s; pool, tickets and shared buffers %s)\n",
           100.0 * saved, metrics_human(sizes->static_bytes, before), metrics_human(bytes, after));
}

static void print_text(const replay_options *options, const replay_trace *trace,
                       const replay_sizes *sizes, const replay_result *result,
                       const metric_list *list)
{
    fputs("trace: ", stdout);
    tool_put(options->model.routing);
    printf(": steps %llu:%llu, layers 0:%u, %u experts, rank %u of %u\n",
           (unsigned long long)trace->step_begin,
           (unsigned long long)(trace->step_begin + trace->steps), trace->layers,
           trace->num_experts, options->model.expert_model_parallel_rank,
           options->model.expert_model_parallel_size);
    printf("device: %s\n", result->device.name);
    /* mismatched_bytes stands last in the list and in the text */
    for (size_t i = 0; i + 1 < list->num; i++)
        metrics_print(&list->items[i]);
    if (result->status.num_faults == 0)
        print_memory_saved(sizes, result);
    metrics_print(&list->items[list->num - 1]);
}

/* The pages did not suffice: how many would have. */
static int judge_shortfall(const replay_sizes *sizes, const replay_result *result, uint64_t missing)
{
    const pst_pool_status *status = &result->status;
    const uint64_t host_pages = pages_of(sizes, result, REPLAY_HOST);
    return tool_fail(
        TOOL_NO,
        "pool of %llu device and %llu host pages: %llu pages missing, --pages %llu "
        "would do; first at %s, which wanted %llu with %llu device and %llu host pages free%s%s",
        (unsigned long long)pages_of(sizes, result, REPLAY_DEVICE), (unsigned long long)host_pages,
        (unsigned long long)missing, (unsigned long long)(status->demand_high_water - host_pages),
        result->fault_place, (unsigned long long)status->fault_wanted,
        (unsigned long long)status->fault_free[REPLAY_DEVICE],
        (unsigned long long)status->fault_free[REPLAY_HOST],
        result->growth_failure[0] != '\0' ? "; it could not grow: " : "", result->growth_failure);
}

/* The pool must have done what arithmetic says. */
static int judge_predictions(const replay_options *options, const replay_sizes *sizes,
                             const replay_result *result)
{
    const pst_pool_status *status = &result->status;
    const bool is_same = result->spilled_pages == result->predicted_spilled &&
                         result->offloaded_pages == result->predicted_offloaded;
    const bool is_known = replay_order_is_known(options, &result->device);
    const uint64_t least = is_known ? sizes->high_water_pages : sizes->least_high_water;
    if (status->demand_high_water > sizes->high_water_pages || status->demand_high_water < least)
        return tool_fail(TOOL_NO, "high water of %llu pages, predicted were %llu",
                         (unsigned long long)status->demand_high_water,
                         (unsigned long long)sizes->high_water_pages);
    if (!is_same && is_known)
        return tool_fail(TOOL_NO,
                         "%llu pages spilled and %llu offloaded, predicted were %llu and "
                         "%llu",
                         (unsigned long long)result->spilled_pages,
                         (unsigned long long)result->offloaded_pages,
                         (unsigned long long)result->predicted_spilled,
                         (unsigned long long)result->predicted_offloaded);
    return TOOL_OK;
}

/* One line that says what went wrong, the cause before its consequences. */
static int judge(const replay_options *options, const replay_sizes *sizes,
                 const replay_result *result)
{
    const pst_pool_status *status = &result->status;
    const uint64_t missing = shortfall_pages(sizes, result);
    if (missing != 0)
        return judge_shortfall(sizes, result, missing);
    if (status->num_faults != 0)
        return tool_fail(TOOL_NO, "%u faults, the first at %s: %s", status->num_faults,
                         result->fault_place, pst_fault_text((pst_fault)status->fault));
    if (result->mismatched_bytes != 0)
        return tool_fail(TOOL_NO, "%llu bytes differ from what was stashed",
                         (unsigned long long)result->mismatched_bytes);
    if (result->leaked_pages != 0)
        return tool_fail(TOOL_NO, "%llu pages in use after all were restored",
                         (unsigned long long)result->leaked_pages);
    return judge_predictions(options, sizes, result);
}

static int write_json(const replay_options *options, const replay_trace *trace,
                      const replay_result *result, const metric_list *list)
{
    replay_options used = *options;
    used.device = result->device.kind == PST_DEVICE_CUDA ? REPLAY_ON_CUDA : REPLAY_ON_HOST;
    used.model.num_layers = trace->layers;
    used.model.steps = (flag_range){trace->step_begin, trace->step_begin + trace->steps};
    json_t *object = json_begin("replay", SCHEMA_VERSION);
    json_t *values = replay_options_json(&used);
    json_put_text(&values, "device_name", result->device.name);
    json_put_whole(&values, "num_experts", trace->num_experts);
    json_put(&object, "options", values);
    json_put_metrics(&object, list);
    return json_write(object, options->json);
}

int replay_report(const replay_options *options, const replay_trace *trace,
                  const replay_sizes *sizes, const replay_result *result)
{
    metric_list list = {.num = 0};
    collect(options, sizes, result, &list);
    int code = TOOL_OK;
    if (options->json != NULL)
        code = write_json(options, trace, result, &list);
    if (!json_is_stdout(options->json))
        print_text(options, trace, sizes, result, &list);
    const int verdict = judge(options, sizes, result);
    return tool_flush(code != TOOL_OK ? code : verdict);
}
