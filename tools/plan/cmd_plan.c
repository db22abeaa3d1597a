/* pagestash plan: an address for every tensor of a trace, with a proof. */
#include "tools/plan/mip.h"
#include "tools/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLAG_OPTIONS plan_options
static const flag flags[] = {PLAN_FLAGS(FLAG_ROW)};

static int check_options(const plan_options *options)
{
    const int num_traces = trace_file_count(&options->file);
    if (num_traces != 1)
        return tool_fail(TOOL_USAGE, "plan: %d traces: allowed is exactly one of" TRACE_FILE_FLAGS,
                         num_traces);
    if (options->gpu_memory == 0 &&
        (options->model.routing != NULL || options->swap_layers != 0 || options->host_memory != 0 ||
         options->reserve_memory != 0 || options->schedule >= 0))
        return tool_fail(TOOL_USAGE,
                         "--gpu-memory: missing: allowed is a size, which --routing, "
                         "--host-memory, --reserve-memory, --swap-layers and --schedule need");
    if (options->swap_layers != 0 &&
        (options->swap_tokens == 0 || options->link_rate == 0 || options->layer_seconds <= 0.0 ||
         options->swap_input + options->swap_attention + options->swap_other == 0))
        return tool_fail(TOOL_USAGE,
                         "--swap-layers %llu: needs --swap-input, --swap-attention, --swap-other, "
                         "--swap-tokens, --link-rate and --layer-seconds",
                         (unsigned long long)options->swap_layers);
    return replay_check_model(&options->model);
}

static int solve_by_search(plan_job *job)
{
    const plan_options *options = job->options;
    plan_watch watch;
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    config.mode = (pst_plan_mode)options->mode;
    config.seed = options->seed;
    config.max_steps = options->max_steps;
    config.max_memory_bytes = options->search_memory;
    config.num_threads = options->threads;
    config.is_over = plan_watch_is_over;
    config.user = &watch;
    plan_watch_begin(&watch, options->deadline, job->problem.num_tensors);
    const pst_status status = pst_plan_run(&job->problem, &config, job->offsets, &job->plan);
    job->seconds = plan_watch_seconds(&watch);
    plan_watch_end(&watch);
    TOOL_PST(status);
    if (config.mode == PST_PLAN_FLAT || job->plan.status == PST_PLAN_IMPOSSIBLE ||
        plan_is_interrupted())
        return TOOL_OK;
    uint64_t *offsets = calloc(job->problem.num_tensors + 1, sizeof(*offsets));
    if (offsets == NULL)
        return tool_fail(TOOL_NO, "out of memory for %llu addresses",
                         (unsigned long long)job->problem.num_tensors);
    pst_plan_problem problem = job->problem;
    problem.capacity = 0; /* the lowest, to compare with */
    config.mode = PST_PLAN_FLAT;
    plan_watch_begin(&watch, options->deadline, job->problem.num_tensors);
    const pst_status flat = pst_plan_run(&problem, &config, offsets, &job->flat);
    plan_watch_end(&watch);
    job->has_flat = flat == PST_OK;
    free(offsets);
    return tool_status(flat);
}

static int call_solver(plan_job *job, plan_watch *watch, uint64_t *offsets, mip_result *result)
{
    const plan_options *options = job->options;
    const mip_options mip = {
        .seconds_left = plan_watch_left, .user = watch, .without_cut = options->mip_no_cut};
    return options->mode == PST_PLAN_BILEVEL ? mip_bilevel(&job->problem, &mip, offsets, result)
                                             : mip_solve(&job->problem, &mip, offsets, result);
}

/* Takes the solver's plan, or where it has none in time, or a higher one, leaves the planner's first. */
static void take_answer(plan_job *job, const mip_result *result, const uint64_t *offsets)
{
    pst_plan *plan = &job->plan;
    const bool has_plan = result->status == MIP_OPTIMAL || result->status == MIP_FEASIBLE;
    plan->out_of_steps = plan->out_of_memory = false;
    plan->is_over = result->status == MIP_TIMEOUT || result->status == MIP_FEASIBLE;
    if (result->bound > plan->mode_bound)
        plan->mode_bound = result->bound;
    if (job->options->mode == PST_PLAN_FLAT)
        plan->lower_bound = plan->mode_bound;
    job->is_mip = result->status == MIP_IMPOSSIBLE || (has_plan && result->peak <= plan->peak);
    if (job->is_mip) {
        plan->peak = result->peak;
        plan->status = result->status == MIP_IMPOSSIBLE ? PST_PLAN_IMPOSSIBLE
                       : result->status == MIP_OPTIMAL  ? PST_PLAN_OPTIMAL
                                                        : PST_PLAN_FEASIBLE;
        memcpy(job->offsets, offsets, job->problem.num_tensors * sizeof(*offsets));
    }
    plan->end = plan->is_over                       ? PST_PLAN_END_OVER
                : plan->status == PST_PLAN_FEASIBLE ? PST_PLAN_END_STAGES
                                                    : PST_PLAN_END_PROVED;
}

/* The bound by the live bytes, its instant, and a first plan come from the planner. */
static int solve_watched(plan_job *job, plan_watch *watch)
{
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    config.mode = (pst_plan_mode)job->options->mode;
    config.max_steps = 1;
    config.is_over = plan_watch_is_over;
    config.user = watch;
    TOOL_PST(pst_plan_run(&job->problem, &config, job->offsets, &job->plan));
    uint64_t *offsets = calloc(job->problem.num_tensors + 1, sizeof(*offsets));
    if (offsets == NULL)
        return tool_fail(TOOL_NO, "out of memory for %llu addresses",
                         (unsigned long long)job->problem.num_tensors);
    mip_result result;
    const int code = call_solver(job, watch, offsets, &result);
    if (code == TOOL_OK)
        take_answer(job, &result, offsets);
    free(offsets);
    return code;
}

static int solve_by_mip(plan_job *job)
{
    plan_watch watch;
    plan_watch_begin(&watch, job->options->deadline, 0);
    const int code = solve_watched(job, &watch);
    job->seconds = plan_watch_seconds(&watch);
    plan_watch_end(&watch);
    return code;
}

/* No plan leaves the tool unchecked. */
static int check_plan(const plan_job *job)
{
    pst_plan_fault fault;
    uint64_t peak;
    pst_plan_problem problem = job->problem;
    if (job->plan.status == PST_PLAN_IMPOSSIBLE)
        return TOOL_OK;
    if (problem.capacity != 0 && job->plan.peak > problem.capacity)
        problem.capacity = 0; /* too high, which the report says */
    TOOL_PST(pst_plan_check(&problem, job->offsets, &fault, &peak));
    if (fault.kind == PST_PLAN_RIGHT && peak == job->plan.peak)
        return TOOL_OK;
    return tool_fail(
        TOOL_NO, "the plan is wrong: fault %d at tensors %llu and %llu, peak %llu, not %llu",
        (int)fault.kind, (unsigned long long)fault.tensor, (unsigned long long)fault.other,
        (unsigned long long)peak, (unsigned long long)job->plan.peak);
}

static int run(plan_job *job)
{
    const plan_options *options = job->options;
    if (options->mip_model != NULL) {
        const mip_options mip = {.without_cut = options->mip_no_cut};
        return mip_write(options->mip_model, &job->problem, &mip);
    }
    TOOL_TRY(options->method == PLAN_MIP ? solve_by_mip(job) : solve_by_search(job));
    TOOL_TRY(check_plan(job));
    plan_idle *idle = NULL;
    uint64_t num_idle = 0;
    plan_budget budget = {.gpu_bytes = 0};
    const bool has_plan = job->plan.status != PST_PLAN_IMPOSSIBLE;
    int code = TOOL_OK;
    if (has_plan && options->idle != NULL)
        code = plan_find_idle(job, &idle, &num_idle);
    if (code == TOOL_OK && has_plan && options->gpu_memory != 0)
        code = plan_make_budget(job, &budget);
    const bool is_too_high = job->problem.capacity != 0 && job->plan.peak > job->problem.capacity;
    if (code == TOOL_OK && has_plan && !is_too_high)
        code = plan_write_outputs(job);
    if (code == TOOL_OK)
        code = plan_report(job, idle, num_idle, options->gpu_memory != 0 ? &budget : NULL);
    plan_free_idle(idle, num_idle);
    plan_free_budget(&budget);
    return code;
}

int cmd_plan(int argc, char **argv)
{
    static const help_codes codes = {.no = "impossible, nothing found within the capacity",
                                     .file = "a bad trace",
                                     .interrupted = "ended by Ctrl-C, with the best so far"};
    const flag_table table = {
        .command = "plan",
        .doc =
            "Compute an address for every tensor of an allocation trace, and prove how good that "
            "is.\vSizes take the suffixes KiB, MiB, GiB.",
        .groups = {trace_file_flags(offsetof(plan_options, file)), FLAG_GROUP(flags, 0),
                   replay_model_flags(offsetof(plan_options, model))},
        .json = offsetof(plan_options, json),
        .codes = &codes,
    };
    plan_options options = {.json = NULL};
    TOOL_TRY(flags_parse(&table, argc, argv, &options));
    TOOL_TRY(check_options(&options));
    plan_job job;
    int code = plan_read(&options, &job);
    if (code == TOOL_OK)
        code = run(&job);
    plan_unload(&job);
    return code;
}
