/* Bytes and nanoseconds of a choice: a simulation, and the sum of what it takes of each memory. */
#include <stdlib.h>

#include "host/base/arith.h"
#include "host/policy/policy.h"

#define REGION_ALIGN 512u

void psti_apply_option(const psti_problem *problem, const psti_place *place,
                       const psti_option *option, pst_simulated_layer *layer)
{
    if (option->is_given)
        return;
    layer->keep = option->keep;
    const pst_policy_layer *allowed = &place->allowed;
    layer->policy.host_num = option->keep == PST_KEEP_PAGED ? option->share_num : 0;
    layer->policy.host_den = layer->policy.host_num ? problem->share_den : 0;
    layer->policy.swap_tokens = option->keep == PST_KEEP_SWAPPED ? option->tokens : 0;
    layer->recompute_ns = 0;
    layer->swap_bytes = 0;
    if (option->keep == PST_KEEP_RECOMPUTED)
        layer->recompute_ns = allowed->recompute_ns;
    if (option->keep != PST_KEEP_SWAPPED)
        return;
    layer->swap_bytes = allowed->whole_bytes + allowed->token_bytes * option->tokens;
    if (allowed->num_tokens > 0)
        layer->recompute_ns = psti_fraction(
            allowed->recompute_ns, allowed->num_tokens - option->tokens, allowed->num_tokens);
}

/* ---- bytes ---- */

static bool holds_pages(const psti_stage *stage)
{
    for (uint32_t i = 0; i < stage->num_layers; i++)
        if (stage->places[i].options[stage->picks[i]].keep == PST_KEEP_PAGED)
            return true;
    return false;
}

static bool moves_something(const psti_stage *stage)
{
    for (uint32_t i = 0; i < stage->num_layers; i++)
        if (stage->picks[i] != stage->places[i].home || stage->places[i].leaves_always)
            return true;
    return false;
}

static void count_dense(const psti_stage *stage, pst_policy_stage *sum)
{
    sum->static_bytes = stage->static_bytes;
    uint64_t buffer = 0;
    for (uint32_t i = 0; i < stage->num_layers; i++) {
        const psti_place *place = &stage->places[i];
        const pst_policy_layer *allowed = &place->allowed;
        const pst_keep keep = place->options[stage->picks[i]].keep;
        if (keep != PST_KEEP_PLANNED)
            sum->static_bytes -= allowed->planned_bytes;
        const uint64_t whole = allowed->whole_bytes + allowed->token_bytes * allowed->num_tokens;
        if (keep == PST_KEEP_SWAPPED && whole > buffer)
            buffer = whole;
    }
    sum->swap_buffer_bytes = 2 * psti_round_up(buffer, REGION_ALIGN);
}

static pst_status count_pool(const psti_problem *problem, const psti_form *form,
                             const psti_stage *stage, uint64_t num_tickets, pst_policy_stage *sum)
{
    sum->pool_bytes = 0;
    if (!holds_pages(stage) || sum->num_pages[0] + sum->num_pages[1] == 0)
        return PST_OK;
    if (sum->num_pages[0] == 0) /* a pool has one at least */
        sum->num_pages[0] = 1;
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    pool.page_bytes = problem->page_bytes;
    pool.num_pages = sum->num_pages[0];
    pool.num_host_pages = sum->num_pages[1];
    pool.mode = form->mode;
    pool.max_tickets = problem->config.max_tickets ? problem->config.max_tickets
                                                   : (uint32_t)(num_tickets ? num_tickets : 1);
    return pst_pool_bytes(&pool, &sum->pool_bytes);
}

static uint64_t above(uint64_t need, uint64_t have)
{
    return need > have ? need - have : 0;
}

/* Sums and what is missing, of the pages and swapped bytes that stand in sum. */
static pst_status count_stage(const psti_problem *problem, const psti_form *form,
                              const psti_stage *stage, uint64_t num_sets, uint64_t num_tickets,
                              pst_policy_stage *sum, psti_cost *cost)
{
    const pst_policy_config *config = &problem->config;
    count_dense(stage, sum);
    PSTI_TRY(count_pool(problem, form, stage, num_tickets, sum));
    const uint64_t sets = holds_pages(stage) ? psti_times(num_sets, config->set_bytes) : 0;
    const uint64_t host_pages = psti_times(sum->num_pages[1], problem->page_bytes);
    sum->gpu_bytes = PSTI_SUM(sum->static_bytes, sets, sum->pool_bytes, sum->swap_buffer_bytes,
                              config->reserve_bytes);
    sum->host_bytes = psti_plus(host_pages, sum->swapped_bytes);
    sum->total_bytes =
        psti_minus(psti_plus(sum->gpu_bytes, sum->host_bytes), config->reserve_bytes);
    for (int tier = 0; tier < 2; tier++) {
        const uint64_t pages = above(sum->num_pages[tier], problem->simulation.num_pages[tier]);
        const uint64_t capped = psti_times(pages, problem->page_bytes);
        const uint64_t bytes = tier == 0 ? above(sum->gpu_bytes, config->gpu_bytes)
                                         : above(sum->host_bytes, config->host_bytes);
        cost->missing[tier] = bytes > capped ? bytes : capped;
    }
    cost->exposed_ns = sum->exposed_ns;
    cost->link_bytes = psti_plus(sum->link_bytes[0], sum->link_bytes[1]);
    cost->total_bytes = sum->total_bytes;
    cost->device_pages = sum->num_pages[0];
    cost->moves = moves_something(stage);
    return PST_OK;
}

/* ---- simulation ---- */

static void fill_layers(const psti_problem *problem, const psti_stage *stage,
                        const pst_simulated_layer *from, pst_simulated_layer *layers)
{
    for (uint32_t i = 0; i < stage->num_layers; i++) {
        const psti_place *place = &stage->places[i];
        layers[i] = from[i];
        psti_apply_option(problem, place, &place->options[stage->picks[i]], &layers[i]);
    }
}

static pst_simulation_config config_of(const psti_problem *problem, const psti_form *form)
{
    pst_simulation_config config = problem->simulation;
    config.rule = form->rule;
    config.one_ring = form->one_ring;
    config.num_sources = form->num_sources;
    config.num_destinations = form->num_destinations;
    config.ahead = form->ahead;
    config.num_streams = form->num_streams;
    config.mode = form->mode;
    config.num_pages[0] = config.num_pages[1] = PST_POLICY_UNLIMITED;
    config.layers = problem->scratch_layers;
    config.layer_bytes = sizeof(pst_simulated_layer);
    return config;
}

static uint64_t exposed_of(const pst_stage_result *result)
{
    return PSTI_SUM(result->exposed_forward_ns, result->exposed_backward_ns, result->recompute_ns);
}

/* With several streams the order that a GPU runs is not known: pages for the worst. */
static uint64_t device_pages_of(const pst_stage_result *result)
{
    const uint64_t both = result->high_water[0] + result->high_water[1];
    const uint64_t most = result->high_water_bounds[1];
    return result->high_water[0] + (result->order_is_simulated ? above(most, both) : 0);
}

static uint64_t *sample_of(const psti_problem *problem, uint32_t what, uint32_t stage,
                           uint32_t routing)
{
    const uint64_t at = ((uint64_t)what * problem->num_stages + stage) * problem->num_routings;
    return problem->samples + at + routing;
}

static int compare_samples(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The quantile of a stage's samples, which are sorted. */
static uint64_t quantile(const psti_problem *problem, uint32_t what, uint32_t stage)
{
    uint64_t *samples = sample_of(problem, what, stage, 0);
    const uint32_t num = problem->num_routings;
    const uint64_t share =
        problem->config.quantile_per_mille ? problem->config.quantile_per_mille : 1000;
    const uint64_t index = psti_div_up(share * num, 1000);
    qsort(samples, num, sizeof(*samples), compare_samples);
    return samples[index ? index - 1 : 0];
}

static pst_status simulate_routing(psti_problem *problem, const psti_form *form, uint32_t routing,
                                   psti_evaluation *evaluation)
{
    pst_simulated_layer *layers = problem->scratch;
    for (uint32_t s = 0; s < problem->num_stages; s++) {
        fill_layers(problem, &problem->stages[s], problem->stages[s].layers[routing], layers);
        problem->scratch_layers[s] = layers;
        layers += problem->stages[s].num_layers;
    }
    const pst_simulation_config config = config_of(problem, form);
    pst_simulation simulation = {0};
    PSTI_TRY(pst_simulate(&config, &simulation, problem->results));
    PSTI_CHECK(!simulation.deadlocked, PST_E_INVALID, "the stages wait for each other: %s",
               simulation.deadlock);
    problem->evaluations += problem->num_stages;
    if (simulation.makespan_ns > evaluation->makespan_ns)
        evaluation->makespan_ns = simulation.makespan_ns;
    for (uint32_t s = 0; s < problem->num_stages; s++) {
        const pst_stage_result *result = &problem->results[s];
        pst_policy_stage *sum = &evaluation->stages[s];
        *sample_of(problem, PSTI_SAMPLE_PAGES, s, routing) = device_pages_of(result);
        *sample_of(problem, PSTI_SAMPLE_HOST_PAGES, s, routing) = result->high_water[1];
        *sample_of(problem, PSTI_SAMPLE_EXPOSED, s, routing) = exposed_of(result);
        if (routing > 0)
            continue;
        sum->recompute_ns = result->recompute_ns;
        sum->bubble_ns = result->bubble_ns;
        sum->swapped_bytes = result->swapped_host_bytes;
        sum->link_bytes[0] = result->link_bytes[0];
        sum->link_bytes[1] = result->link_bytes[1];
    }
    return PST_OK;
}

/* Whether this routing alone puts the choice beyond the limits. */
static bool is_beyond(const psti_problem *problem, const psti_form *form, uint32_t routing)
{
    const uint64_t share = problem->config.quantile_per_mille;
    const bool is_fixed = problem->config.sets == PST_POLICY_SETS_FIXED;
    const uint64_t num_sets = is_fixed ? (uint64_t)form->num_sources + form->num_destinations : 0;
    const uint64_t sets = psti_times(num_sets, problem->config.set_bytes);
    if (share != 0 && share != 1000)
        return false;
    for (uint32_t s = 0; s < problem->num_stages; s++) {
        const uint64_t pages = *sample_of(problem, PSTI_SAMPLE_PAGES, s, routing);
        const uint64_t total =
            PSTI_SUM(pages * problem->page_bytes, holds_pages(&problem->stages[s]) ? sets : 0,
                     problem->stages[s].static_bytes);
        if (total > problem->most_total_bytes ||
            *sample_of(problem, PSTI_SAMPLE_EXPOSED, s, routing) > problem->most_exposed_ns)
            return true;
    }
    return false;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void take_worst(psti_cost *worst, const psti_cost *cost)
{
    for (int tier = 0; tier < 2; tier++)
        worst->missing[tier] = larger(worst->missing[tier], cost->missing[tier]);
    worst->exposed_ns = larger(worst->exposed_ns, cost->exposed_ns);
    worst->link_bytes = larger(worst->link_bytes, cost->link_bytes);
    worst->total_bytes = larger(worst->total_bytes, cost->total_bytes);
    worst->device_pages = larger(worst->device_pages, cost->device_pages);
    worst->moves |= cost->moves;
}

static pst_status count_sets(const psti_problem *problem, const psti_form *form, psti_stage *stage,
                             uint64_t *num_out)
{
    *num_out = (uint64_t)form->num_sources + form->num_destinations;
    if (problem->config.sets == PST_POLICY_SETS_FIXED)
        return PST_OK;
    return psti_policy_count_sets(problem, form, stage, num_out);
}

pst_status psti_policy_evaluate(psti_problem *problem, const psti_form *form,
                                psti_evaluation *evaluation)
{
    evaluation->cost = (psti_cost){0};
    evaluation->makespan_ns = evaluation->num_sets = 0;
    for (uint32_t s = 0; s < problem->num_stages; s++)
        evaluation->stages[s] = (pst_policy_stage){0};
    evaluation->is_cut = false;
    for (uint32_t r = 0; r < problem->num_routings; r++) {
        PSTI_TRY(simulate_routing(problem, form, r, evaluation));
        evaluation->is_cut = is_beyond(problem, form, r);
        if (evaluation->is_cut)
            return PST_OK;
    }
    for (uint32_t s = 0; s < problem->num_stages; s++) {
        pst_policy_stage *sum = &evaluation->stages[s];
        sum->num_pages[0] = quantile(problem, PSTI_SAMPLE_PAGES, s);
        sum->num_pages[1] = quantile(problem, PSTI_SAMPLE_HOST_PAGES, s);
        sum->exposed_ns = quantile(problem, PSTI_SAMPLE_EXPOSED, s);
        uint64_t num_sets = 0;
        psti_cost cost = {0};
        PSTI_TRY(count_sets(problem, form, &problem->stages[s], &num_sets));
        PSTI_TRY(count_stage(problem, form, &problem->stages[s], num_sets,
                             problem->results[s].num_tickets, sum, &cost));
        evaluation->num_sets = larger(evaluation->num_sets, num_sets);
        take_worst(&evaluation->cost, &cost);
    }
    return PST_OK;
}

pst_status psti_policy_evaluate_stage(psti_problem *problem, const psti_form *form,
                                      psti_stage *stage, psti_cost *cost_out)
{
    fill_layers(problem, stage, stage->searched_layers, problem->scratch);
    problem->scratch_layers[0] = problem->scratch;
    pst_simulation_config config = config_of(problem, form);
    config.num_stages = 1;
    config.alone = true;
    config.schedules = &stage->searched;
    config.num_layers = &stage->num_layers;
    pst_simulation simulation = {0};
    pst_stage_result *result = problem->results;
    PSTI_TRY(pst_simulate(&config, &simulation, result));
    problem->evaluations++;
    uint64_t num_sets = 0;
    PSTI_TRY(count_sets(problem, form, stage, &num_sets));
    pst_policy_stage sum = {
        .num_pages = {psti_plus(device_pages_of(result), problem->margin_pages[0]),
                      psti_plus(result->high_water[1],
                                result->high_water[1] ? problem->margin_pages[1] : 0)},
        .exposed_ns = exposed_of(result),
        .swapped_bytes = result->swapped_host_bytes,
        .link_bytes = {result->link_bytes[0], result->link_bytes[1]},
    };
    *cost_out = (psti_cost){0};
    return count_stage(problem, form, stage, num_sets, result->num_tickets, &sum, cost_out);
}

/* ---- order ---- */

static int order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int order_missing(const psti_cost *a, const psti_cost *b)
{
    return order(psti_plus(a->missing[0], a->missing[1]), psti_plus(b->missing[0], b->missing[1]));
}

bool psti_cost_is_less(const psti_cost *a, const psti_cost *b)
{
    int less = order_missing(a, b);
    less = less ? less : order(a->exposed_ns, b->exposed_ns);
    less = less ? less : order(a->link_bytes, b->link_bytes);
    less = less ? less : order(a->total_bytes, b->total_bytes);
    less = less ? less : order(a->device_pages, b->device_pages);
    return less < 0;
}

bool psti_cost_has_fewer_bytes(const psti_cost *a, const psti_cost *b)
{
    int less = order_missing(a, b);
    less = less ? less : order(a->total_bytes, b->total_bytes);
    less = less ? less : order(a->exposed_ns, b->exposed_ns);
    less = less ? less : order(a->device_pages, b->device_pages);
    return less < 0;
}
