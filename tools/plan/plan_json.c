/* The report of a plan as JSON. */
#include "tools/common/json_out.h"
#include "tools/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>

enum { PLAN_SCHEMA_VERSION = 1 };

static json_t *placements(const plan_job *job)
{
    json_t *list = json_array();
    for (uint64_t k = 0; k < job->problem.num_tensors && list != NULL; k++) {
        json_t *entry = json_object();
        json_put_whole(&entry, "id", job->all[job->which[k]].id);
        json_put_whole(&entry, "offset", job->offsets[k]);
        json_add(&list, entry);
    }
    return list;
}

/* The instant and the tensors whose sizes sum to the load. */
static json_t *proof(const plan_job *job)
{
    json_t *object = json_object();
    json_t *list = json_array();
    json_put_whole(&object, "instant", job->plan.bound_instant);
    json_put_whole(&object, "live_bytes", job->plan.most_live_bytes);
    for (uint64_t k = 0; k < job->problem.num_tensors; k++)
        if (plan_is_live(job, k, job->plan.bound_instant))
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

static json_t *swap_object(const pst_swap_choice *swap)
{
    static const char *const limits[] = {"none", "time", "memory", "impossible"};
    json_t *object = json_object();
    json_put_text(&object, "limit", limits[swap->limit]);
    json_put_whole(&object, "num", swap->num);
    json_put_whole(&object, "den", swap->den);
    json_put_whole(&object, "layers", swap->num_layers);
    json_put_whole(&object, "layer_bytes", swap->layer_bytes);
    json_put_whole(&object, "host_bytes", swap->host_bytes);
    json_put_whole(&object, "buffer_bytes", swap->buffer_bytes);
    json_put_whole(&object, "missing_link_bytes", swap->missing_link_bytes);
    json_put_whole(&object, "missing_nanoseconds", swap->missing_nanoseconds);
    json_put_whole(&object, "missing_host_bytes", swap->missing_host_bytes);
    return object;
}

static void set_missing(json_t **object, const char *key, uint64_t bytes)
{
    json_put(object, key,
             bytes == PST_MEMORY_MAP_NEVER ? json_null() : json_integer((json_int_t)bytes));
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

static json_t *budget_object(const plan_budget *budget)
{
    const pst_memory_map *map = &budget->map;
    json_t *object = json_object();
    json_put(&object, "fits", json_boolean(map->fits));
    json_put_whole(&object, "gpu_bytes", budget->gpu_bytes);
    json_put_whole(&object, "host_bytes", budget->host_bytes);
    json_put_whole(&object, "static_bytes", budget->static_bytes);
    json_put_whole(&object, "dynamic_bytes", budget->dynamic_bytes);
    json_put_whole(&object, "page_bytes", budget->page_bytes);
    json_put_whole(&object, "iterations", budget->iterations);
    json_put_whole(&object, "demand_pages_quantile", budget->demand_quantile);
    json_put_whole(&object, "demand_pages_max", budget->demand_max);
    json_put(&object, "swap", budget->has_swap ? swap_object(&budget->swap) : json_null());
    if (!map->fits) {
        set_missing(&object, "missing_gpu_bytes", map->missing_gpu_bytes);
        set_missing(&object, "missing_host_bytes", map->missing_host_bytes);
        return object;
    }
    json_put(&object, "regions", region_list(map));
    json_put_whole(&object, "spare_bytes", map->spare_bytes);
    json_put_whole(&object, "num_pages", map->num_pages);
    json_put_whole(&object, "num_host_pages", map->num_host_pages);
    json_put_whole(&object, "spill_pages", map->spill_pages);
    json_put_whole(&object, "spilling_iterations", map->spilling_iterations);
    json_put_whole(&object, "tokens_swapped", map->num_tokens);
    json_put_whole(&object, "swap_bytes", map->swap_bytes);
    json_put_whole(&object, "host_bytes_taken", map->host_bytes);
    json_put_whole(&object, "traffic_bytes", map->traffic_bytes);
    return object;
}

static void set_plan(json_t **object, const plan_job *job)
{
    const pst_plan *plan = &job->plan;
    const bool has_plan = plan->status != PST_PLAN_IMPOSSIBLE;
    const bool is_mip = job->options->method == PLAN_MIP;
    json_put_text(object, "status", pst_plan_status_name(plan->status));
    json_put(object, "peak", has_plan ? json_integer((json_int_t)plan->peak) : json_null());
    json_put_whole(object, "lower_bound", plan->lower_bound);
    json_put(object, "gap",
             has_plan ? json_real(plan_gap(plan->peak, plan->lower_bound)) : json_null());
    json_put_text(object, "mode", job->options->mode == PST_PLAN_BILEVEL ? "bilevel" : "flat");
    json_put_text(object, "method", is_mip ? "mip" : "search");
    json_put_text(object, "stage", is_mip ? "mip" : pst_plan_stage_name(plan->stage));
    json_put_whole(object, "seed", plan->seed);
    json_put_whole(object, "steps", plan->steps);
    json_put(object, "seconds", json_real(job->seconds));
    json_put_text(object, "ended_by", is_mip ? "" : plan_ended_by(plan));
    json_put(object, "checked", json_boolean(has_plan));
    json_put_whole(object, "mode_bound", plan->mode_bound);
    if (job->has_flat) {
        json_put_whole(object, "flat_peak", job->flat.peak);
        json_put_text(object, "flat_status", pst_plan_status_name(job->flat.status));
        json_put(object, "cost_over_flat", json_real(plan_gap(plan->peak, job->flat.peak)));
    }
    json_put_whole(object, "tensors", job->problem.num_tensors);
    json_put_whole(object, "align", job->problem.align);
    json_put_whole(object, "capacity", job->problem.capacity);
}

int plan_write_json(const plan_job *job, const plan_idle *idle, uint64_t num_idle,
                    const plan_budget *budget)
{
    json_t *object = json_begin("plan", PLAN_SCHEMA_VERSION);
    json_put_text(&object, "trace", job->path);
    set_plan(&object, job);
    json_put(&object, "bound_proof", proof(job));
    if (job->options->idle != NULL)
        json_put(&object, "idle", idle_list(idle, num_idle));
    if (budget != NULL)
        json_put(&object, "memory", budget_object(budget));
    json_put(&object, "placements",
             job->plan.status != PST_PLAN_IMPOSSIBLE ? placements(job) : json_array());
    return json_write(object, job->options->json);
}
