/* Runs the simulation of every iteration, then shows the one with most pages. */
#include "tools/simulate/simulate_command.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *left, const void *right)
{
    const uint64_t *a = left;
    const uint64_t *b = right;
    return (*a > *b) - (*a < *b);
}

uint64_t simulate_quantile(const uint64_t *ascending, uint64_t num, uint32_t per_mille)
{
    const uint64_t nearest = (num * per_mille + 999) / 1000;
    return num == 0 ? 0 : ascending[nearest == 0 ? 0 : nearest - 1];
}

static int simulate(const simulate_model *model, simulate_result *result)
{
    return tool_status(pst_simulate(&model->config, &result->simulation, result->stages));
}

/* What an iteration wants, of every stage; whether something failed. */
static void note(const simulate_model *model, simulate_result *result, uint64_t iteration)
{
    const uint64_t num = result->num_iterations;
    uint64_t most = 0;
    bool fails = false;
    for (uint32_t s = 0; s < model->num_stages; s++) {
        const uint64_t demand = result->stages[s].demand_high_water;
        result->demands[s * num + iteration] = demand;
        most = demand > most ? demand : most;
        fails = fails || result->stages[s].num_faults > 0;
    }
    result->demands[model->num_stages * num + iteration] = most;
    result->num_unfit += fails;
    if (iteration == 0 || most > result->most_demand) {
        result->most_demand = most;
        result->iteration = iteration;
    }
}

static int run_next(const simulate_model *model, simulate_result *result)
{
    pst_simulation_config config = model->config;
    config.rule = PST_RESTORE_NEXT;
    config.num_streams = 1;
    config.mode = PST_POOL_ORDERED;
    config.one_ring = config.by_slot = false;
    config.ahead = 0;
    config.keeps_nothing = false;
    if (result->solution.is_asked) /* those are of another rule */
        config.num_pages[0] = config.num_pages[1] = SIMULATE_AUTO;
    result->next_stages = calloc((size_t)model->num_stages + 1, sizeof(*result->next_stages));
    if (result->next_stages == NULL)
        return tool_fail(TOOL_NO, "out of memory for %u stages", model->num_stages);
    TOOL_PST(pst_simulate(&config, &result->next, result->next_stages));
    result->has_next = true;
    return TOOL_OK;
}

int simulate_run(const simulate_job *job, simulate_model *model, simulate_result *result_out)
{
    const uint64_t num = job->num_iterations;
    result_out->num_iterations = num; /* the rest is 0, but for the solution */
    result_out->stages = calloc(model->num_stages, sizeof(*result_out->stages));
    result_out->demands = calloc((size_t)model->num_stages + 1, num * sizeof(uint64_t));
    if (result_out->stages == NULL || result_out->demands == NULL)
        return tool_fail(TOOL_NO, "out of memory for %u stages", model->num_stages);
    for (uint64_t i = 0; i < num; i++) {
        tool_progress("iteration", i, num);
        TOOL_TRY(simulate_model_fill(model, i));
        TOOL_TRY(simulate(model, result_out));
        note(model, result_out, i);
        if (result_out->simulation.deadlocked)
            break; /* as would be all others */
    }
    tool_progress("iteration", num, num);
    if (!result_out->simulation.deadlocked && result_out->iteration + 1 != num) {
        TOOL_TRY(simulate_model_fill(model, result_out->iteration));
        TOOL_TRY(simulate(model, result_out));
    }
    for (uint32_t s = 0; s <= model->num_stages; s++)
        qsort(result_out->demands + s * num, num, sizeof(uint64_t), compare);
    return job->options->compare ? run_next(model, result_out) : TOOL_OK;
}

void simulate_free_result(simulate_result *result)
{
    free(result->solution.choices);
    free(result->stages);
    free(result->next_stages);
    free(result->demands);
    *result = (simulate_result){.num_iterations = 0};
}
