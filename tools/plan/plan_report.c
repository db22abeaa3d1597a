/* What plan says at its end: figures as text and JSON, and in one line what is wrong. */
#include "tools/common/json_out.h"
#include "tools/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA_VERSION = 1, PROOF_SHOWN = 3 };
#define LATE_FACTOR 1.1 /* of a deadline: within it a run has held it */

typedef unsigned long long wide;

static double gap(uint64_t peak, uint64_t bound)
{
    return bound == 0 ? 0.0 : (double)(peak - bound) / (double)bound;
}

static bool has_plan(const plan_job *job)
{
    return job->plan.status != PST_PLAN_IMPOSSIBLE;
}

static bool is_too_high(const plan_job *job)
{
    return job->problem.capacity != 0 && has_plan(job) && job->plan.peak > job->problem.capacity;
}

static bool is_live(const plan_job *job, uint64_t k, uint64_t instant)
{
    return job->tensors[k].begin <= instant && instant < job->tensors[k].end;
}

/* ---- figures */

static void add_bytes_or_none(metric_list *list, const char *key, bool is_there, uint64_t bytes)
{
    if (is_there)
        metrics_add_bytes(list, key, bytes);
    else
        metrics_add_text(list, key, NULL);
}

/* Where the deadline is shorter than what the first plan of all takes. */
static bool is_late(const plan_job *job)
{
    return job->seconds > job->options->deadline * LATE_FACTOR;
}

static void collect_plan(const plan_job *job, metric_list *list)
{
    const pst_plan *plan = &job->plan;
    const bool is_mip = job->options->method == PLAN_MIP;
    const char *ended_by = plan->end == PST_PLAN_END_OVER && plan_is_interrupted()
                               ? "interrupt"
                               : pst_plan_end_name((pst_plan_end)plan->end);
    metrics_add_text(list, "trace", job->path);
    metrics_add_text(list, "status", pst_plan_status_name(plan->status));
    add_bytes_or_none(list, "peak", has_plan(job), plan->peak);
    metrics_add_bytes(list, "lower_bound", plan->lower_bound);
    metrics_add_rare(list, "gap", has_plan(job) ? gap(plan->peak, plan->lower_bound) : NAN);
    metrics_add_text(list, "mode", job->options->mode == PST_PLAN_BILEVEL ? "bilevel" : "flat");
    metrics_add_text(list, "method", is_mip ? "mip" : "search");
    metrics_add_text(list, "stage", job->is_mip ? "mip" : pst_plan_stage_name(plan->stage));
    metrics_add_count(list, "seed", plan->seed);
    metrics_add_count(list, "steps", plan->steps);
    metrics_add_rare(list, "seconds", job->seconds);
    metrics_add_text(list, "ended_by", ended_by);
    if (plan->end == PST_PLAN_END_OVER && !plan_is_interrupted() && is_late(job))
        metrics_add_rare(list, "late_seconds", job->seconds - job->options->deadline);
    metrics_add_bool(list, "checked", has_plan(job));
    metrics_add_bytes(list, "mode_bound", plan->mode_bound);
    if (job->has_flat) {
        metrics_add_bytes(list, "flat_peak", job->flat.peak);
        metrics_add_text(list, "flat_status", pst_plan_status_name(job->flat.status));
        metrics_add_rare(list, "cost_over_flat", gap(plan->peak, job->flat.peak));
    }
    metrics_add_count(list, "tensors", job->problem.num_tensors);
    metrics_add_count(list, "align", job->problem.align);
    metrics_add_bytes(list, "capacity", job->problem.capacity);
    if (is_mip || job->options->mode != PST_PLAN_FLAT)
        return;
    metrics_add_count(list, "parts", plan->num_parts);
    metrics_add_count(list, "different_parts", plan->num_kinds);
    if (plan->num_periods == 0)
        return;
    metrics_add_count(list, "periods", plan->num_periods);
    metrics_add_count(list, "period_tensors", plan->period_tensors);
    metrics_add_count(list, "period_begin", plan->period_begin);
}

static void collect_swap(const pst_swap_choice *swap, metric_list *list)
{
    static const char *const limits[] = {"none", "time", "memory", "impossible"};
    metrics_add_text(list, "limit", limits[swap->limit]);
    metrics_add_count(list, "num", swap->num);
    metrics_add_count(list, "den", swap->den);
    metrics_add_count(list, "layers", swap->num_layers);
    metrics_add_bytes(list, "layer_bytes", swap->layer_bytes);
    metrics_add_bytes(list, "host_bytes", swap->host_bytes);
    metrics_add_bytes(list, "buffer_bytes", swap->buffer_bytes);
    metrics_add_bytes(list, "missing_link_bytes", swap->missing_link_bytes);
    metrics_add_count(list, "missing_nanoseconds", swap->missing_nanoseconds);
    metrics_add_bytes(list, "missing_host_bytes", swap->missing_host_bytes);
}

static void collect_budget(const plan_budget *budget, metric_list *list)
{
    const pst_memory_map *map = &budget->map;
    const uint64_t gpu = map->missing_gpu_bytes, host = map->missing_host_bytes;
    metrics_add_bool(list, "fits", budget->has_policy ? budget->policy.answer.fits : map->fits);
    metrics_add_bytes(list, "gpu_bytes", budget->gpu_bytes);
    metrics_add_bytes(list, "host_bytes", budget->host_bytes);
    metrics_add_bytes(list, "static_bytes", budget->static_bytes);
    metrics_add_bytes(list, "dynamic_bytes", budget->dynamic_bytes);
    metrics_add_bytes(list, "page_bytes", budget->page_bytes);
    if (budget->has_policy) {
        plan_collect_policy(&budget->policy, list);
        return;
    }
    metrics_add_count(list, "iterations", budget->iterations);
    metrics_add_count(list, "demand_pages_quantile", budget->demand_quantile);
    metrics_add_count(list, "demand_pages_max", budget->demand_max);
    if (!map->fits) {
        add_bytes_or_none(list, "missing_gpu_bytes", gpu != PST_MEMORY_MAP_NEVER, gpu);
        add_bytes_or_none(list, "missing_host_bytes", host != PST_MEMORY_MAP_NEVER, host);
        return;
    }
    metrics_add_bytes(list, "spare_bytes", map->spare_bytes);
    metrics_add_count(list, "num_pages", map->num_pages);
    metrics_add_count(list, "num_host_pages", map->num_host_pages);
    metrics_add_count(list, "spill_pages", map->spill_pages);
    metrics_add_count(list, "spilling_iterations", map->spilling_iterations);
    metrics_add_count(list, "tokens_swapped", map->num_tokens);
    metrics_add_bytes(list, "swap_bytes", map->swap_bytes);
    metrics_add_bytes(list, "host_bytes_taken", map->host_bytes);
    metrics_add_bytes(list, "traffic_bytes", map->traffic_bytes);
}

typedef struct plan_figures {
    metric_list plan, swap, budget;
} plan_figures;

/* ---- JSON */

static void get_placement(const void *of, uint64_t k, json_whole fields_out[JSON_ROW_FIELDS])
{
    const plan_job *job = of;
    fields_out[0] = (json_whole){"id", job->all[job->which[k]].id};
    fields_out[1] = (json_whole){"offset", job->offsets[k]};
}

/* The instant and the tensors whose sizes sum to the live bytes. */
static json_t *proof(const plan_job *job)
{
    json_t *object = json_object();
    json_t *list = json_array();
    json_put_whole(&object, "instant", job->plan.bound_instant);
    json_put_whole(&object, "live_bytes", job->plan.most_live_bytes);
    for (uint64_t k = 0; k < job->problem.num_tensors; k++)
        if (is_live(job, k, job->plan.bound_instant))
            json_add(&list, json_integer((json_int_t)job->all[job->which[k]].id));
    json_put(&object, "live", list);
    return object;
}

static json_t *range_list(const pst_plan_range *ranges, uint64_t num)
{
    json_t *list = json_array();
    for (uint64_t r = 0; r < num; r++)
        json_add(&list, json_pack("[I,I]", (json_int_t)ranges[r].begin, (json_int_t)ranges[r].end));
    return list;
}

static json_t *idle_list(const plan_idle *idle, uint64_t num)
{
    json_t *list = json_array();
    for (uint64_t k = 0; k < num; k++) {
        json_t *entry = json_object();
        json_put_text(&entry, "from", idle[k].from);
        json_put_text(&entry, "to", idle[k].to);
        json_put_whole(&entry, "bytes", idle[k].bytes);
        json_put(&entry, "ranges", range_list(idle[k].ranges, idle[k].num_ranges));
        json_add(&list, entry);
    }
    return list;
}

static json_t *region_list(const pst_memory_map *map)
{
    json_t *list = json_array();
    for (int region = 0; region < PST_NUM_REGIONS; region++) {
        json_t *entry = json_object();
        if (map->regions[region].bytes > 0) {
            json_put_text(&entry, "name", pst_memory_map_region_name((pst_region_kind)region));
            json_put_whole(&entry, "offset", map->regions[region].offset);
            json_put_whole(&entry, "bytes", map->regions[region].bytes);
            json_add(&list, entry);
        } else {
            json_decref(entry);
        }
    }
    return list;
}

static json_t *budget_object(const plan_budget *budget, const plan_figures *figures)
{
    json_t *object = json_object();
    json_t *swap = budget->has_swap ? json_object() : json_null();
    json_put_metrics(&object, &figures->budget);
    if (budget->has_swap)
        json_put_metrics(&swap, &figures->swap);
    if (budget->has_policy) {
        json_decref(swap);
        json_put(&object, "layers", plan_policy_layers(&budget->policy));
        return object;
    }
    json_put(&object, "swap", swap);
    if (budget->map.fits)
        json_put(&object, "regions", region_list(&budget->map));
    return object;
}

static int write_json(const plan_job *job, const plan_idle *idle, uint64_t num_idle,
                      const plan_budget *budget, const plan_figures *figures)
{
    json_t *object = json_begin("plan", SCHEMA_VERSION);
    json_put_metrics(&object, &figures->plan);
    json_put(&object, "bound_proof", proof(job));
    if (job->options->idle != NULL)
        json_put(&object, "idle", idle_list(idle, num_idle));
    if (budget != NULL)
        json_put(&object, "memory", budget_object(budget, figures));
    const json_rows placements = {"placements", has_plan(job) ? job->problem.num_tensors : 0,
                                  get_placement, job};
    return json_write_rows(object, &placements, job->options->json);
}

/* ---- text */

static void print_idle(const plan_idle *idle, uint64_t num)
{
    for (uint64_t k = 0; k < num; k++) {
        printf("idle %s:%s: %llu bytes:", idle[k].from, idle[k].to, (wide)idle[k].bytes);
        for (uint64_t r = 0; r < idle[k].num_ranges; r++)
            printf(" %llu:%llu", (wide)idle[k].ranges[r].begin, (wide)idle[k].ranges[r].end);
        putchar('\n');
    }
}

static void print_text(const plan_idle *idle, uint64_t num_idle, const plan_budget *budget,
                       const plan_figures *figures)
{
    metrics_print_all(&figures->plan);
    print_idle(idle, num_idle);
    if (budget == NULL)
        return;
    for (size_t i = 0; i < figures->swap.num; i++) {
        fputs("swap ", stdout);
        metrics_print(&figures->swap.items[i]);
    }
    metrics_print_all(&figures->budget);
    if (budget->has_policy)
        plan_print_policy_layers(&budget->policy);
    for (int i = 0; i < PST_NUM_REGIONS && budget->map.fits; i++)
        if (budget->map.regions[i].bytes > 0)
            printf("%s: at %llu, %llu bytes\n", pst_memory_map_region_name((pst_region_kind)i),
                   (wide)budget->map.regions[i].offset, (wide)budget->map.regions[i].bytes);
}

/* ---- what is wrong, in one line */

/* The largest of the tensors that are live at the instant. */
static void name_largest(const plan_job *job, char *out, size_t bytes)
{
    uint64_t below = UINT64_MAX;
    uint64_t last = UINT64_MAX;
    size_t used = 0;
    for (int shown = 0; shown < PROOF_SHOWN; shown++) {
        uint64_t best = UINT64_MAX;
        for (uint64_t k = 0; k < job->problem.num_tensors; k++) {
            const uint64_t size = job->tensors[k].bytes;
            const bool is_next = size < below || (size == below && k > last);
            if (is_live(job, k, job->plan.bound_instant) && is_next && last != k &&
                (best == UINT64_MAX || size > job->tensors[best].bytes))
                best = k;
        }
        if (best == UINT64_MAX)
            return;
        below = job->tensors[best].bytes;
        last = best;
        used += (size_t)snprintf(out + used, bytes - used, "%s%llu (line %llu, %llu bytes)",
                                 shown > 0 ? ", " : "", (wide)job->all[job->which[best]].id,
                                 (wide)job->all[job->which[best]].line, (wide)below);
    }
}

static int explain(const plan_job *job, const plan_budget *budget)
{
    const pst_plan *plan = &job->plan;
    char largest[256] = "";
    char gpu[48] = "no amount would do";
    if (plan->status == PST_PLAN_IMPOSSIBLE && plan->stage == PST_STAGE_BOUND) {
        name_largest(job, largest, sizeof(largest));
        return tool_fail(TOOL_NO,
                         "--capacity %llu: impossible: %llu bytes are live at instant %llu, the "
                         "largest are tensors %s; at least %llu are needed",
                         (wide)job->problem.capacity, (wide)plan->most_live_bytes,
                         (wide)plan->bound_instant, largest, (wide)plan->lower_bound);
    }
    if (plan->status == PST_PLAN_IMPOSSIBLE)
        return tool_fail(
            TOOL_NO,
            "--capacity %llu: impossible: the search proves that at least %llu bytes are "
            "needed",
            (wide)job->problem.capacity,
            (wide)(plan->mode_bound > plan->lower_bound ? plan->mode_bound : plan->lower_bound));
    if (is_too_high(job))
        return tool_fail(TOOL_NO,
                         "--capacity %llu: no plan found; the best has %llu bytes, %llu are proved "
                         "to be needed",
                         (wide)job->problem.capacity, (wide)plan->peak, (wide)plan->lower_bound);
    if (budget != NULL && budget->has_policy)
        return plan_explain_policy(job, &budget->policy);
    if (budget == NULL || budget->map.fits)
        return TOOL_OK;
    if (budget->map.missing_gpu_bytes != PST_MEMORY_MAP_NEVER)
        snprintf(gpu, sizeof(gpu), "%llu bytes more would do", (wide)budget->map.missing_gpu_bytes);
    char host[48] = "no amount would do";
    if (budget->map.missing_host_bytes != PST_MEMORY_MAP_NEVER)
        snprintf(host, sizeof(host), "%llu bytes more would do",
                 (wide)budget->map.missing_host_bytes);
    return tool_fail(
        TOOL_NO,
        "--gpu-memory %llu: does not fit: of it alone %s; of --host-memory (%llu) alone "
        "%s",
        (wide)budget->gpu_bytes, gpu, (wide)budget->host_bytes, host);
}

static bool is_cut_short(const plan_job *job)
{
    return plan_is_interrupted() && (job->plan.is_over || job->flat.is_over);
}

/* Where something is wrong, too, that has been said. */
static int explain_interrupt(const plan_job *job, int code)
{
    if (code != TOOL_OK)
        return TOOL_INTERRUPTED;
    return tool_fail(TOOL_INTERRUPTED,
                     "interrupted: the plan is the best so far, %llu bytes; %llu are proved to be "
                     "needed",
                     (wide)job->plan.peak, (wide)job->plan.lower_bound);
}

int plan_report(const plan_job *job, const plan_idle *idle, uint64_t num_idle,
                const plan_budget *budget)
{
    const char *json = job->options->json;
    plan_figures figures = {.plan = {.num = 0}};
    int code = TOOL_OK;
    collect_plan(job, &figures.plan);
    if (budget != NULL)
        collect_budget(budget, &figures.budget);
    if (budget != NULL && budget->has_swap)
        collect_swap(&budget->swap, &figures.swap);
    if (json != NULL)
        code = write_json(job, idle, num_idle, budget, &figures);
    if (!json_is_stdout(json))
        print_text(idle, num_idle, budget, &figures);
    if (code == TOOL_OK)
        code = explain(job, budget);
    return tool_flush(is_cut_short(job) ? explain_interrupt(job, code) : code);
}
