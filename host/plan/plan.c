/* pst_plan_run: the stages of a plan one after another, and the names of what it reports. */
#include "host/plan/plan.h"
#include "host/base/structs.h"

#include <string.h>

static const char *const status_names[] = {"optimal", "feasible", "impossible"};
static const char *const end_names[PST_NUM_PLAN_ENDS] = {"proof", "capacity", "deadline",
                                                         "steps", "memory",   "stages"};
static const char *const stage_names[PST_NUM_STAGES] = {"portfolio", "repair", "search", "window",
                                                        "bound"};

const char *pst_plan_status_name(pst_plan_status status)
{
    return (unsigned)status <= PST_PLAN_IMPOSSIBLE ? status_names[status] : "unknown";
}

const char *pst_plan_end_name(pst_plan_end end)
{
    return (unsigned)end < PST_NUM_PLAN_ENDS ? end_names[end] : "unknown";
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

pst_status psti_plan_items(const pst_plan_problem *problem, bool for_search, psti_limits *limits,
                           psti_items *items)
{
    bool has_pin = false;
    for (uint64_t i = 0; i < problem->num_tensors && !has_pin; i++)
        has_pin = problem->tensors[i].pin != PST_PLAN_FREE;
    /* no plan may come of pins that overlap, so they are checked whatever the time is */
    PSTI_TRY(psti_items_of_problem(problem, for_search, has_pin ? NULL : limits, items));
    return has_pin ? check_pins(items) : PST_OK;
}

/* Fills the plan from what was found for the items. */
void psti_conclude(const psti_items *items, const psti_answer *answer, pst_plan *plan)
{
    plan->peak = answer->best.peak * items->unit;
    plan->lower_bound = answer->bound * items->unit;
    plan->mode_bound = plan->lower_bound;
    plan->most_live_bytes = items->most_live * items->unit;
    plan->bound_instant = items->n > 0 ? items->instant[items->max_slot] : 0;
    plan->stage = answer->best.stage;
    plan->status = plan->peak == plan->lower_bound ? PST_PLAN_OPTIMAL : PST_PLAN_FEASIBLE;
    plan->num_parts = answer->num_parts;
    plan->num_kinds = answer->num_kinds;
    plan->period_begin = answer->period.begin;
    plan->period_tensors = answer->period.num_tensors;
    plan->num_periods = answer->period.count;
    if (answer->bound > items->capacity) {
        plan->status = PST_PLAN_IMPOSSIBLE;
        plan->stage = answer->prover;
        plan->peak = 0;
    }
}

static pst_status run_stages(const psti_items *items, psti_limits *limits, uint64_t *offsets,
                             pst_plan *plan)
{
    psti_answer answer = {.bound = items->bound, .prover = PST_STAGE_BOUND};
    if (items->bound > items->capacity) {
        psti_conclude(items, &answer, plan);
        return PST_OK;
    }
    answer.best.address = offsets;
    PSTI_TRY(psti_solve(items, limits, &answer));
    psti_conclude(items, &answer, plan);
    for (uint32_t i = 0; i < items->n; i++)
        offsets[i] *= items->unit;
    return PST_OK;
}

/* The last instant at which a tensor is in anybody's way, plus 1. */
static uint64_t release_of(const pst_plan_problem *problem, uint64_t i)
{
    uint64_t last = problem->tensors[i].end;
    for (uint32_t r = 0; problem->num_streams > 1 && r < problem->num_streams; r++)
        if (problem->releases[i * problem->num_streams + r] > last)
            last = problem->releases[i * problem->num_streams + r];
    return last;
}

/* One tensor above the other, and from the bottom again, as long as the begins rise, where nothing
 * lives any more; pinned ones where they must be. Returns the end of these. */
static uint64_t stack(const pst_plan_problem *problem, uint64_t *offsets, pst_plan *plan)
{
    uint64_t top = 0;
    uint64_t pinned = 0;
    uint64_t last_begin = 0;
    uint64_t last_end = 0;
    bool is_rising = true;
    for (uint64_t i = 0; i < problem->num_tensors; i++) {
        const pst_plan_tensor *tensor = &problem->tensors[i];
        const uint64_t bytes = psti_plan_round(problem, tensor->bytes);
        if (is_rising && tensor->begin < last_begin) {
            is_rising = false;
            top = plan->peak;
        }
        if (is_rising && tensor->begin >= last_end)
            top = 0;
        last_begin = tensor->begin;
        last_end = release_of(problem, i) > last_end ? release_of(problem, i) : last_end;
        offsets[i] = tensor->pin != PST_PLAN_FREE ? tensor->pin : top;
        if (tensor->pin == PST_PLAN_FREE)
            top += bytes;
        else if (tensor->pin + bytes > pinned)
            pinned = tensor->pin + bytes;
        plan->peak = top > plan->peak ? top : plan->peak;
        if (bytes <= plan->most_live_bytes)
            continue;
        plan->most_live_bytes = bytes;
        plan->bound_instant = tensor->begin;
    }
    return pinned;
}

/* A plan before anything is sorted, so that there is one whenever the time ends, and its memory is
 * touched before. The largest tensor alone is the bound. */
static void run_early(const pst_plan_problem *problem, uint64_t *offsets, pst_plan *plan)
{
    const uint64_t pinned = stack(problem, offsets, plan);
    const uint64_t floor = psti_plan_floor(problem, pinned);
    for (uint64_t i = 0; i < problem->num_tensors && floor > 0; i++)
        offsets[i] += problem->tensors[i].pin == PST_PLAN_FREE ? floor : 0;
    plan->peak = plan->peak > 0 ? plan->peak + floor : pinned;
    plan->lower_bound = plan->mode_bound = plan->most_live_bytes;
    plan->status = plan->peak == plan->lower_bound ? PST_PLAN_OPTIMAL : PST_PLAN_FEASIBLE;
}

static pst_status run_flat(const pst_plan_problem *problem, psti_limits *limits, uint64_t *offsets,
                           pst_plan *plan)
{
    psti_items items;
    run_early(problem, offsets, plan);
    pst_status status = psti_plan_items(problem, true, limits, &items);
    if (status == PST_OK && !limits->over)
        status = run_stages(&items, limits, offsets, plan);
    psti_items_free(&items);
    return status;
}

/* The one reason, and of the flags its one. */
static pst_plan_end end_of(const psti_limits *limits, const pst_plan *plan, uint64_t capacity)
{
    if (plan->status != PST_PLAN_FEASIBLE)
        return PST_PLAN_END_PROVED;
    if (capacity != 0 && plan->peak <= capacity)
        return PST_PLAN_END_FITS;
    if (limits->over)
        return PST_PLAN_END_OVER;
    if (limits->out_of_steps)
        return PST_PLAN_END_STEPS;
    return limits->out_of_memory ? PST_PLAN_END_MEMORY : PST_PLAN_END_STAGES;
}

static pst_status run(const pst_plan_problem *problem, const pst_plan_config *config,
                      uint64_t *offsets, pst_plan *plan_out)
{
    PSTI_TRY(psti_plan_check_problem(problem));
    PSTI_TRY(check_config(config));
    PSTI_CHECK(offsets != NULL || problem->num_tensors == 0, PST_E_INVALID, "offsets is NULL");
    psti_limits limits = limits_of(config);
    const uint64_t steps = limits.steps_left;
    pst_plan plan = {.seed = config->seed};
    PSTI_TRY(config->mode == PST_PLAN_FLAT ? run_flat(problem, &limits, offsets, &plan)
                                           : psti_plan_bilevel(problem, &limits, offsets, &plan));
    plan.steps = steps - limits.steps_left;
    plan.end = (uint8_t)end_of(&limits, &plan, problem->capacity);
    plan.is_over = plan.end == PST_PLAN_END_OVER;
    plan.out_of_steps = plan.end == PST_PLAN_END_STEPS;
    plan.out_of_memory = plan.end == PST_PLAN_END_MEMORY;
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
