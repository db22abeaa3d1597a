/* What --solve leaves to the policy: over all iterations it chooses what the flags leave open. */
#include "tools/simulate/simulate_command.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The layers of each iteration but the first, with usages of their own. */
typedef struct routings {
    uint64_t num;
    uint32_t num_stages;
    const pst_simulated_layer *const **all; /* [num]: [num_stages] */
    pst_simulated_layer **layers;           /* [num * num_stages] */
    pst_group_usage **usages;               /* [num * num_stages] */
} routings;

static int no_memory(uint64_t num)
{
    return tool_fail(TOOL_NO, "out of memory for %" PRIu64 " iterations of --solve", num);
}

/* As the model is filled now. */
static int copy_stage(const simulate_stage *stage, pst_simulated_layer **layers_out,
                      pst_group_usage **usages_out)
{
    const size_t num = (size_t)stage->num_layers * stage->num_usages;
    pst_simulated_layer *layers = calloc((size_t)stage->num_layers + 1, sizeof(*layers));
    pst_group_usage *usages = calloc(num + 1, sizeof(*usages));
    *layers_out = layers;
    *usages_out = usages;
    if (layers == NULL || usages == NULL)
        return no_memory(1);
    memcpy(layers, stage->layers, stage->num_layers * sizeof(*layers));
    memcpy(usages, stage->usages, num * sizeof(*usages));
    for (uint32_t l = 0; l < stage->num_layers; l++)
        if (layers[l].usages != NULL)
            layers[l].usages = usages + (size_t)l * stage->num_usages;
    return TOOL_OK;
}

static int make_routings(simulate_model *model, uint64_t num_iterations, routings *self)
{
    const uint32_t num_stages = model->num_stages;
    self->num = num_iterations - 1;
    self->num_stages = num_stages;
    self->all = calloc(self->num + 1, sizeof(*self->all));
    self->layers = calloc(self->num * num_stages + 1, sizeof(*self->layers));
    self->usages = calloc(self->num * num_stages + 1, sizeof(*self->usages));
    if (self->all == NULL || self->layers == NULL || self->usages == NULL)
        return no_memory(num_iterations);
    for (uint64_t i = 0; i < self->num; i++) {
        TOOL_TRY(simulate_model_fill(model, i + 1));
        for (uint32_t s = 0; s < num_stages; s++)
            TOOL_TRY(copy_stage(&model->stages[s], &self->layers[i * num_stages + s],
                                &self->usages[i * num_stages + s]));
        self->all[i] = (const pst_simulated_layer *const *)&self->layers[i * num_stages];
    }
    return simulate_model_fill(model, 0);
}

static void free_routings(routings *self)
{
    for (uint64_t i = 0; i < self->num * self->num_stages; i++) {
        if (self->layers != NULL)
            free(self->layers[i]);
        if (self->usages != NULL)
            free(self->usages[i]);
    }
    free((void *)self->all);
    free(self->layers);
    free(self->usages);
}

/* A layer's bytes that are not paged: one place for each slot of its chunk. */
static uint64_t planned_bytes(const simulate_job *job, const simulate_stage *stage,
                              const pst_simulated_layer *layer)
{
    const bool is_paged = layer->keep == PST_KEEP_PAGED;
    if (job->config.path == NULL)
        return 0;
    return stage->chunks[layer->chunk].num_slots *
           (is_paged ? job->config.moe_bytes : job->config.dense_bytes);
}

/* Of a stage: what no layer keeps, and what layers keep beside pages. */
static int count_static(const simulate_job *job, const simulate_stage *stage, uint64_t *bytes_out)
{
    const simulate_options *options = job->options;
    const pst_estimate_config *run = &job->config.estimate.config;
    const pst_schedule_config *schedule = &stage->info.config;
    const bool is_same =
        (schedule->kind == PST_SCHEDULE_1F1B || schedule->kind == PST_SCHEDULE_INTERLEAVED) &&
        schedule->num_stages == run->pipeline_parallel &&
        schedule->num_chunks == run->virtual_stages &&
        schedule->num_micro_batches == job->config.num_micro_batches && options->layers == NULL &&
        options->model_layers == UINT32_MAX && options->moe_layers.end == 0;
    *bytes_out = options->static_memory;
    if (job->config.path == NULL)
        return TOOL_OK;
    if (options->static_memory == 0 && !is_same)
        return tool_fail(TOOL_USAGE,
                         "--static-memory: missing: %s says it for its own sizes and "
                         "order only",
                         job->config.path);
    if (options->static_memory == 0)
        TOOL_TRY(simulate_config_rest(&job->config, stage->rank, bytes_out));
    for (uint32_t l = 0; l < stage->num_layers; l++)
        *bytes_out += planned_bytes(job, stage, &stage->layers[l]);
    return TOOL_OK;
}

/* What may become of the layers: recomputed, where there is a time for it. */
static int allow(const simulate_job *job, const simulate_model *model, pst_policy_layer **all_out,
                 const pst_policy_layer **stages_out)
{
    const simulate_options *options = job->options;
    const bool has_ns = options->recompute_ns != UINT64_MAX;
    uint64_t num = 0;
    for (uint32_t s = 0; s < model->num_stages; s++)
        num += model->stages[s].num_layers;
    pst_policy_layer *layers = calloc(num + 1, sizeof(*layers));
    *all_out = layers;
    if (layers == NULL)
        return no_memory(1);
    for (uint32_t s = 0; s < model->num_stages; s++) {
        const simulate_stage *stage = &model->stages[s];
        stages_out[s] = layers;
        for (uint32_t l = 0; l < stage->num_layers; l++) {
            layers[l] = (pst_policy_layer)PST_POLICY_LAYER_INIT;
            const pst_keep keep = stage->layers[l].keep;
            const uint64_t planned = planned_bytes(job, stage, &stage->layers[l]);
            if ((!has_ns && options->gpu == NULL) || (keep != PST_KEEP_PAGED && planned == 0))
                continue;
            layers[l].treatments = 1u << keep | 1u << PST_KEEP_RECOMPUTED;
            layers[l].recompute_ns = has_ns ? options->recompute_ns : stage->layers[l].recompute_ns;
            layers[l].planned_bytes = keep == PST_KEEP_PLANNED ? planned : 0;
        }
        layers += stage->num_layers;
    }
    return TOOL_OK;
}

/* The model becomes what was chosen, and visits are measured in pages of the chosen size. */
static void apply(simulate_job *job, simulate_model *model, const simulate_solution *solution)
{
    const pst_policy *policy = &solution->policy;
    pst_simulation_config *config = &model->config;
    config->rule = policy->rule;
    config->one_ring = policy->one_ring;
    config->num_sources = policy->num_sources;
    config->num_destinations = policy->num_destinations;
    config->ahead = policy->ahead;
    config->num_streams = policy->num_streams;
    config->mode = policy->mode;
    config->page_bytes = policy->page_bytes;
    config->num_pages[0] = policy->num_pages > 0 ? policy->num_pages : 1;
    config->num_pages[1] = policy->num_host_pages;
    job->routing.model.page_size = policy->page_bytes;
    job->pages.page_bytes = policy->page_bytes;
    const pst_layer_choice *choice = solution->choices;
    for (uint32_t s = 0; s < model->num_stages; s++)
        for (uint32_t l = 0; l < model->stages[s].num_layers; l++, choice++) {
            pst_simulated_layer *layer = &model->stages[s].layers[l];
            layer->keep = choice->keep;
            layer->policy = choice->policy;
            layer->recompute_ns = choice->recompute_ns;
            layer->swap_bytes = choice->swap_bytes;
        }
}

static int solve(const simulate_job *job, const simulate_model *model, const routings *others,
                 const pst_policy_layer *const *layers, const uint64_t *static_bytes,
                 simulate_solution *solution)
{
    const simulate_options *options = job->options;
    pst_policy_config config = PST_POLICY_CONFIG_INIT;
    config.simulation = &model->config;
    config.layers = layers;
    config.objective = (pst_policy_objective)options->objective;
    config.sets = (pst_policy_sets)options->sets;
    config.given = options->given;
    config.gpu_bytes = options->gpu_memory;
    config.host_bytes = options->host_memory;
    config.static_bytes = static_bytes;
    config.reserve_bytes = options->reserve_memory;
    config.set_bytes =
        options->set_memory != 0 ? options->set_memory : job->routing.sizes.set_bytes;
    if (config.set_bytes == 0)
        config.set_bytes = job->config.moe.capacity_rows * job->config.moe.row_bytes;
    config.routings = others->all;
    config.num_routings = (uint32_t)others->num;
    tool_clock_begin("solving");
    const pst_status status = pst_policy_solve(&config, &solution->policy, solution->choices, NULL);
    tool_clock_end();
    return tool_status(status);
}

/* With room for all that is handed on. */
static int solve_all(simulate_job *job, simulate_model *model, const pst_policy_layer **layers,
                     uint64_t *static_bytes, simulate_solution *solution)
{
    routings others = {.num = 0};
    pst_policy_layer *all = NULL;
    int code = allow(job, model, &all, layers);
    for (uint32_t s = 0; s < model->num_stages && code == TOOL_OK; s++)
        code = count_static(job, &model->stages[s], &static_bytes[s]);
    if (code == TOOL_OK)
        code = make_routings(model, job->num_iterations, &others);
    if (code == TOOL_OK)
        code = solve(job, model, &others, layers, static_bytes, solution);
    if (code == TOOL_OK)
        apply(job, model, solution);
    free_routings(&others);
    free(all);
    return code;
}

int simulate_solve(simulate_job *job, simulate_model *model, simulate_solution *solution_out)
{
    const pst_policy_layer **layers = calloc((size_t)model->num_stages + 1, sizeof(*layers));
    uint64_t *static_bytes = calloc((size_t)model->num_stages + 1, sizeof(*static_bytes));
    *solution_out = (simulate_solution){.is_asked = true};
    for (uint32_t s = 0; s < model->num_stages; s++)
        solution_out->num_choices += model->stages[s].num_layers;
    solution_out->choices = calloc(solution_out->num_choices + 1, sizeof(*solution_out->choices));
    const bool has_all = layers != NULL && static_bytes != NULL && solution_out->choices != NULL;
    const int code =
        has_all ? solve_all(job, model, layers, static_bytes, solution_out) : no_memory(1);
    free((void *)layers);
    free(static_bytes);
    return code;
}
