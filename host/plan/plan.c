/* pst_plan_run: the stages of a plan one after another, and the names of what it reports. */
#include "host/plan/plan.h"
#include "host/base/structs.h"

#include <string.h>

static const char *const status_names[] = {"optimal", "feasible", "impossible"};
static const char *const stage_names[PST_NUM_STAGES] = {"portfolio", "repair", "search", "window",
                                                        "bound"};

const char *pst_plan_status_name(pst_plan_status status)
{
    return (unsigned)status <= PST_PLAN_IMPOSSIBLE ? status_names[status] : "unknown";
}

const char *pst_plan_stage_name(pst_plan_stage stage)
{
    return (unsigned)stage < PST_NUM_STAGES ? stage_names[stage] : "unknown";
}

static pst_status check_config(const pst_plan_config *config)
{
    PSTI_CHECK(config->mode == PST_PLAN_FLAT || config->mode == PST_PLAN_BILEVEL, PST_E_INVALID,
               "mode is %d: allowed are flat and bilevel", (int)config->mode);
    PSTI_CHECK(config->num_threads <= PSTI_PLAN_MAX_THREADS, PST_E_INVALID,
               "%u threads: allowed are at most %d", config->num_threads, PSTI_PLAN_MAX_THREADS);
    return PST_OK;
}

static psti_limits limits_of(const pst_plan_config *config)
{
    return (psti_limits){
        .steps_left = config->max_steps != 0 ? config->max_steps : UINT64_C(1) << 40,
        .memory_left = config->max_memory_bytes != 0 ? config->max_memory_bytes : UINT64_C(1) << 30,
        .num_threads = config->num_threads != 0 ? config->num_threads : 1,
        .seed = config->seed,
        .is_over = config->is_over,
        .user = config->user,
    };
}

/* Whether pins and reserved ranges go together. */
static pst_status check_pins(const psti_items *items)
{
    bool has_pin = false;
    for (uint32_t i = 0; i < items->n && !has_pin; i++)
        has_pin = items->pin[i] != PST_PLAN_FREE;
    if (!has_pin)
        return PST_OK;
    psti_room *room = psti_room_open(items);
    uint32_t item = 0;
    const psti_room_result result =
        room != NULL ? psti_room_reset(room, &item) : PSTI_ROOM_NO_MEMORY;
    psti_room_close(room);
    PSTI_CHECK(result != PSTI_ROOM_NO_MEMORY, PST_E_NOMEM, "out of memory for the pins");
    PSTI_CHECK(result != PSTI_ROOM_TAKEN, PST_E_INVALID,
               "tensor %u is pinned at %llu: that overlaps a reserved range or the pin of a tensor "
               "before it",
               item, (unsigned long long)(items->pin[item] * items->unit));
    return PST_OK;
}

pst_status psti_plan_items(const psti_items *items, psti_limits *limits, psti_best *best,
                           uint64_t *bound, pst_plan_stage *prover_out)
{
    best->peak = items->n > 0 ? UINT64_MAX : 0;
    *bound = items->bound;
    *prover_out = PST_STAGE_BOUND;
    if (items->n == 0)
        return PST_OK;
    PSTI_CHECK(psti_place_in_orders(items, limits, best), PST_E_NOMEM,
               "out of memory for a plan of %u tensors", items->n);
    if (best->peak == *bound || items->num_streams > 1 || items->num_intervals > items->n)
        return PST_OK;
    PSTI_CHECK(psti_search(items, limits, best, bound, prover_out), PST_E_NOMEM,
               "out of memory for a plan of %u tensors", items->n);
    return PST_OK;
}

/* Fills the plan from what was found for the items. */
void psti_conclude(const psti_items *items, const psti_best *best, uint64_t bound,
                   pst_plan_stage prover, pst_plan *plan)
{
    plan->peak = best->peak * items->unit;
    plan->lower_bound = bound * items->unit;
    plan->mode_bound = plan->lower_bound;
    plan->most_live_bytes = items->most_live * items->unit;
    plan->bound_instant = items->n > 0 ? items->instant[items->max_slot] : 0;
    plan->stage = best->stage;
    plan->status = plan->peak == plan->lower_bound ? PST_PLAN_OPTIMAL : PST_PLAN_FEASIBLE;
    if (bound > items->capacity) {
        plan->status = PST_PLAN_IMPOSSIBLE;
        plan->stage = prover;
        plan->peak = 0;
    }
}

static pst_status run_flat(const psti_items *items, psti_limits *limits, uint64_t *offsets,
                           pst_plan *plan)
{
    psti_best best = {.peak = UINT64_MAX};
    uint64_t bound = items->bound;
    pst_plan_stage prover = PST_STAGE_BOUND;
    if (bound > items->capacity) {
        psti_conclude(items, &best, bound, prover, plan);
        return PST_OK;
    }
    best.address = psti_calloc((size_t)items->n + 1, sizeof(*best.address));
    PSTI_CHECK(best.address != NULL, PST_E_NOMEM, "out of memory for %u addresses", items->n);
    const pst_status status = psti_plan_items(items, limits, &best, &bound, &prover);
    if (status == PST_OK) {
        psti_conclude(items, &best, bound, prover, plan);
        for (uint32_t i = 0; i < items->n && plan->status != PST_PLAN_IMPOSSIBLE; i++)
            offsets[i] = best.address[i] * items->unit;
    }
    psti_free(best.address);
    return status;
}

static pst_status run(const pst_plan_problem *problem, const pst_plan_config *config,
                      uint64_t *offsets, pst_plan *plan_out)
{
    PSTI_TRY(psti_plan_check_problem(problem));
    PSTI_TRY(check_config(config));
    PSTI_CHECK(offsets != NULL || problem->num_tensors == 0, PST_E_INVALID, "offsets is NULL");
    psti_limits limits = limits_of(config);
    const uint64_t steps = limits.steps_left;
    psti_items items;
    pst_plan plan = {.seed = config->seed};
    pst_status status = psti_items_of_problem(problem, &items);
    if (status == PST_OK)
        status = check_pins(&items);
    if (status == PST_OK)
        status = config->mode == PST_PLAN_BILEVEL
                     ? psti_plan_bilevel(problem, &items, &limits, offsets, &plan)
                     : run_flat(&items, &limits, offsets, &plan);
    psti_items_free(&items);
    PSTI_TRY(status);
    plan.steps = steps - limits.steps_left;
    plan.out_of_steps = limits.out_of_steps;
    plan.out_of_memory = limits.out_of_memory;
    plan.is_over = limits.over;
    *plan_out = plan;
    return PST_OK;
}

pst_status pst_plan_run_sized(const pst_plan_problem *problem, const pst_plan_config *config,
                              uint64_t *offsets, pst_plan *plan_out, size_t plan_bytes)
{
    psti_plan_taken taken;
    pst_plan plan = {.peak = 0};
    PSTI_CHECK(plan_out != NULL, PST_E_INVALID, "plan_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_plan, plan_bytes));
    PSTI_TAKE(pst_plan_config, whole, config);
    PSTI_TRY(psti_plan_take(problem, &taken));
    PSTI_TRY(psti_plan_drop(&taken, run(&taken.problem, &whole, offsets, &plan)));
    memcpy(plan_out, &plan, plan_bytes);
    return PST_OK;
}
