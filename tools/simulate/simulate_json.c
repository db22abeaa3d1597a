/* A simulation as JSON; docs/formats.md has the keys. */
#include "tools/common/json_out.h"
#include "tools/simulate/simulate_figures.h"

enum { SCHEMA_VERSION = 1 };

static json_t *visit_object(const pst_visit_key *visit, uint64_t ns)
{
    static const char *const kinds[] = {"forward", "backward", "backward_input", "backward_weight"};
    json_t *object = json_object();
    json_put_text(&object, "pass", (uint32_t)visit->kind < 4 ? kinds[visit->kind] : "");
    JSON_PUT(&object, {"chunk", visit->chunk}, {"layer", visit->layer},
             {"micro_batch", visit->micro_batch}, {"waits_ns", ns});
    return object;
}

static json_t *worst_value(const pst_stage_result *result)
{
    return result->worst_ns == 0 ? json_null() : visit_object(&result->worst, result->worst_ns);
}

static json_t *fault_value(const pst_stage_result *result)
{
    if (result->num_faults == 0)
        return json_null();
    json_t *object = visit_object(&result->fault_visit, 0);
    if (object != NULL)
        json_object_del(object, "waits_ns");
    json_put_text(&object, "text", pst_fault_text(result->fault));
    JSON_PUT(&object, {"fault", result->fault}, {"wanted", result->fault_wanted},
             {"free_pages", result->fault_free[0]}, {"free_host_pages", result->fault_free[1]});
    return object;
}

static json_t *pair_array(const uint64_t values[2])
{
    json_t *array = json_array();
    json_add(&array, json_integer((json_int_t)values[0]));
    json_add(&array, json_integer((json_int_t)values[1]));
    return array;
}

/* null for what cannot be said. */
static json_t *known(uint64_t value)
{
    return value == UINT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *slots_array(const simulate_stage *stage)
{
    json_t *array = json_array();
    for (uint32_t c = 0; c < stage->num_chunks; c++)
        json_add(&array, json_integer(stage->chunks[c].num_slots));
    return array;
}

/* What others read, in this order. */
static void put_figures(json_t **object, const simulate_stage *stage,
                        const pst_stage_result *result)
{
    JSON_PUT(object, {"rank", stage->rank}, {"passes", result->num_passes},
             {"peak_in_flight", result->peak_in_flight});
    json_put(object, "slots", slots_array(stage));
    JSON_PUT(object, {"tickets", result->num_tickets}, {"kept_in_place", result->kept_in_place},
             {"high_water_pages", result->high_water[0]},
             {"high_water_host_pages", result->high_water[1]},
             {"demand_pages", result->demand_high_water}, {"spilled_pages", result->spilled_pages},
             {"offloaded_pages", result->offloaded_pages},
             {"displaced_pages", result->displaced_pages}, {"demoted_pages", result->demoted_pages},
             {"promoted_pages", result->promoted_pages}, {"stranded_pages", result->stranded_pages},
             {"faults", result->num_faults}, {"span_ns", result->span_ns},
             {"end_ns", result->end_ns}, {"exposed_forward_ns", result->exposed_forward_ns},
             {"exposed_backward_ns", result->exposed_backward_ns}, {"bubble_ns", result->bubble_ns},
             {"link_bytes", result->link_bytes[0] + result->link_bytes[1]});
}

static void put_more(json_t **object, const pst_stage_result *result)
{
    JSON_PUT(object, {"stashed", result->stashed}, {"restored", result->restored},
             {"busy_ns", result->busy_ns}, {"recompute_ns", result->recompute_ns},
             {"stash_busy_ns", result->stash_busy_ns}, {"restore_busy_ns", result->restore_busy_ns},
             {"link_out_bytes", result->link_bytes[0]}, {"link_in_bytes", result->link_bytes[1]},
             {"link_out_busy_ns", result->link_busy_ns[0]},
             {"link_in_busy_ns", result->link_busy_ns[1]},
             {"program_bytes", result->program_bytes});
    json_put(object, "conflicts", pair_array(result->conflicts));
    json_put(object, "order_is_simulated", json_boolean(result->order_is_simulated));
    json_put(object, "demand_pages_bounds", pair_array(result->high_water_bounds));
    json_put(object, "first_fault", fault_value(result));
    json_put(object, "worst", worst_value(result));
}

static void put_recommended(json_t **object, const uint64_t *ascending, uint64_t num)
{
    JSON_PUT(object, {"recommended_pages_p50", simulate_quantile(ascending, num, 500)},
             {"recommended_pages_p99", simulate_quantile(ascending, num, 990)},
             {"recommended_pages_all", simulate_quantile(ascending, num, 1000)});
}

/* demands NULL: not looked at. */
static json_t *stages_array(const simulate_model *model, const pst_stage_result *stages,
                            const simulate_result *result, const uint64_t *demands)
{
    json_t *array = json_array();
    for (uint32_t s = 0; s < model->num_stages; s++) {
        json_t *object = json_object();
        put_figures(&object, &model->stages[s], &stages[s]);
        put_more(&object, &stages[s]);
        if (demands != NULL)
            put_recommended(&object, demands + s * result->num_iterations, result->num_iterations);
        json_add(&array, object);
    }
    return array;
}

static json_t *compare_value(const simulate_model *model, const simulate_result *result)
{
    if (!result->has_next)
        return json_null();
    json_t *object = json_object();
    json_put_whole(&object, "makespan_ns", result->next.makespan_ns);
    json_put(&object, "stages", stages_array(model, result->next_stages, result, NULL));
    return object;
}

static json_t *check_value(const simulate_job *job, const simulate_result *result)
{
    if (job->options->check < 0)
        return json_null();
    json_t *object = json_object();
    JSON_PUT(&object, {"operations", result->checked_operations},
             {"differences", result->num_differences});
    return object;
}

static json_t *config_value(const simulate_job *job)
{
    const simulate_config *config = &job->config;
    if (config->path == NULL)
        return json_null();
    const pst_estimate_config *run = &config->estimate.config;
    json_t *object = json_object();
    JSON_PUT(&object, {"layers", run->num_layers},
             {"moe_layers", config->moe_before[run->num_layers]},
             {"micro_batches", config->num_micro_batches},
             {"dense_layer_bytes", config->dense_bytes}, {"moe_layer_bytes", config->moe_bytes},
             {"row_bytes", config->moe.row_bytes}, {"even_rows", config->moe.balanced_rows},
             {"capacity_rows",
              job->has_routing ? job->routing.sizes.capacity : config->moe.capacity_rows},
             {"set_bytes", job->routing.sizes.set_bytes});
    return object;
}

static json_t *choices_array(const simulate_model *model, const simulate_solution *solution)
{
    static const char *const keeps[] = {"paged", "swapped", "planned", "recomputed"};
    static const char *const moves[] = {"direct", "demote"};
    json_t *array = json_array();
    for (uint64_t i = 0; i < solution->num_choices; i++) {
        const pst_layer_choice *choice = &solution->choices[i];
        json_t *object = json_object();
        JSON_PUT(&object, {"rank", model->stages[choice->stage].rank}, {"chunk", choice->chunk},
                 {"layer", choice->layer});
        json_put_text(&object, "keep", keeps[choice->keep]);
        JSON_PUT(&object, {"host_num", choice->policy.host_num},
                 {"host_den", choice->policy.host_den});
        json_put_text(&object, "move", moves[choice->policy.move]);
        json_put_whole(&object, "recompute_ns", choice->recompute_ns);
        json_add(&array, object);
    }
    return array;
}

static json_t *policy_value(const simulate_model *model, const simulate_solution *solution)
{
    const pst_policy *policy = &solution->policy;
    if (!solution->is_asked)
        return json_null();
    json_t *object = json_object();
    json_put(&object, "fits", json_boolean(policy->fits));
    json_put(&object, "is_optimal", json_boolean(policy->is_optimal));
    json_put(&object, "is_scarce", json_boolean(policy->is_scarce));
    json_put_text(&object, "rule", policy->rule == PST_RESTORE_NEXT ? "next" : "asap");
    json_put(&object, "one_ring", json_boolean(policy->one_ring));
    JSON_PUT(&object, {"sources", policy->num_sources}, {"destinations", policy->num_destinations},
             {"ahead", policy->ahead}, {"streams", policy->num_streams}, {"sets", policy->num_sets},
             {"page_size", policy->page_bytes}, {"pages", policy->num_pages},
             {"host_pages", policy->num_host_pages}, {"exposed_ns", policy->exposed_ns},
             {"exposed_bound_ns", policy->exposed_bound_ns}, {"recompute_ns", policy->recompute_ns},
             {"static_bytes", policy->static_bytes}, {"sets_bytes", policy->sets_bytes},
             {"pool_bytes", policy->pool_bytes}, {"gpu_bytes", policy->gpu_bytes},
             {"host_bytes", policy->host_bytes}, {"total_bytes", policy->total_bytes},
             {"link_out_bytes", policy->link_bytes[0]}, {"link_in_bytes", policy->link_bytes[1]},
             {"missing_gpu_bytes", policy->missing_gpu_bytes},
             {"missing_host_bytes", policy->missing_host_bytes},
             {"evaluations", policy->evaluations});
    json_put(&object, "next_exposed_ns", known(policy->next_exposed_ns));
    json_put(&object, "next_total_bytes", known(policy->next_total_bytes));
    json_put(&object, "layers", choices_array(model, solution));
    return object;
}

int simulate_write_json(const simulate_job *job, const simulate_model *model,
                        const simulate_result *result)
{
    const pst_simulation *simulation = &result->simulation;
    const uint64_t num = result->num_iterations;
    const simulate_solution *solution = &result->solution;
    const bool fits = result->num_unfit == 0 && !simulation->deadlocked &&
                      (!solution->is_asked || solution->policy.fits);
    json_t *object = json_begin("simulate", SCHEMA_VERSION);
    json_put(&object, "options", simulate_options_json(job->options));
    json_put(&object, "config", config_value(job));
    json_put_whole(&object, "makespan_ns", simulation->makespan_ns);
    json_put(&object, "fits", json_boolean(fits));
    json_put_text(&object, "deadlock", simulation->deadlocked ? simulation->deadlock : NULL);
    json_put(&object, "bubble_share", json_number(simulate_bubble_share(model, result)));
    json_put(&object, "link_share", json_number(simulate_link_share(model, result)));
    JSON_PUT(&object, {"iterations", num}, {"iteration", result->iteration},
             {"unfit_iterations", result->num_unfit});
    put_recommended(&object, result->demands + model->num_stages * num, num);
    json_put(&object, "policy", policy_value(model, &result->solution));
    json_put(&object, "check", check_value(job, result));
    json_put(&object, "compare", compare_value(model, result));
    json_put(&object, "stages", stages_array(model, result->stages, result, result->demands));
    return json_write(object, job->options->json);
}
