/* The plan among the other users of a GPU's memory: pages, swapping, a reserve. */
#include "tools/plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int count_pages(const replay_model *model, const replay_trace *trace, replay_sizes *sizes)
{
    pst_group *group = NULL;
    TOOL_TRY(replay_make_group(model, trace, sizes, &group));
    const int code = replay_sizes_count_pages(model, trace, group, sizes);
    pst_group_destroy(group);
    return code;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The pages of every iteration, ascending, and how many both tiers are to hold. */
static int sum_pages(const plan_options *options, const replay_sizes *sizes, uint64_t **demands_out,
                     plan_budget *budget)
{
    uint64_t *demands = calloc(sizes->iterations + 1, sizeof(*demands));
    if (demands == NULL)
        return tool_fail(TOOL_NO, "out of memory for %llu iterations",
                         (unsigned long long)sizes->iterations);
    *demands_out = demands;
    for (uint64_t i = 0; i < sizes->iterations; i++)
        for (uint32_t slot = 0; slot < sizes->slots; slot++)
            demands[i] += sizes->pages[i * sizes->slots + slot];
    qsort(demands, sizes->iterations, sizeof(*demands), by_value);
    const double place = ceil(options->quantile * (double)sizes->iterations);
    const uint64_t index = place < 1.0 ? 0 : (uint64_t)place - 1;
    budget->iterations = sizes->iterations;
    budget->demand_max = demands[sizes->iterations - 1];
    budget->demand_quantile = demands[index < sizes->iterations ? index : sizes->iterations - 1];
    return replay_scale_pages("headroom", options->headroom, budget->demand_quantile,
                              &budget->total_pages);
}

/* What may be swapped: the layers' kept tensors, by tokens, within what the link hides. */
static int choose_swap(const plan_options *options, plan_budget *budget,
                       pst_memory_map_config *config)
{
    if (options->swap_layers == 0)
        return TOOL_OK;
    pst_swap_config swap = PST_SWAP_CONFIG_INIT;
    swap.input_bytes = options->swap_input;
    swap.attention_bytes = options->swap_attention;
    swap.other_bytes = options->swap_other;
    swap.num_tokens = options->swap_tokens;
    swap.block_tokens = options->swap_block;
    swap.link_bytes_per_second = options->link_rate;
    swap.forward_nanoseconds = (uint64_t)(options->layer_seconds * 1e9);
    swap.host_bytes = options->host_memory;
    swap.num_layers = (uint32_t)options->swap_layers;
    TOOL_PST(pst_swap_choose(&swap, &budget->swap));
    budget->has_swap = true;
    if (budget->swap.num == 0)
        return TOOL_OK;
    const uint64_t layers = budget->swap.num_layers;
    const uint64_t fixed = layers * (options->swap_input + options->swap_attention);
    const uint64_t other = layers * options->swap_other;
    if (fixed + other > config->static_bytes)
        return tool_fail(
            TOOL_USAGE,
            "--swap-layers %llu: %llu bytes are kept, the static plan has %llu: allowed "
            "is what the trace holds",
            (unsigned long long)options->swap_layers, (unsigned long long)(fixed + other),
            (unsigned long long)config->static_bytes);
    config->swap_fixed_bytes = fixed;
    config->swap_bytes = other;
    config->swap_frees_bytes = other;
    config->swap_buffer_bytes = budget->swap.buffer_bytes;
    config->num_tokens = options->swap_tokens;
    config->block_tokens = options->swap_block;
    config->max_tokens = budget->swap.num; /* not 0, see above */
    return TOOL_OK;
}

static uint64_t dynamic_bytes(const plan_job *job)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < job->num_all; i++)
        bytes += job->all[i].tag == PST_TAG_DYNAMIC ? job->all[i].bytes : 0;
    return bytes;
}

static int make_map(const plan_job *job, const uint64_t *demands, uint32_t num_slots,
                    plan_budget *budget)
{
    const plan_options *options = job->options;
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    pst_memory_map_config config = PST_MEMORY_MAP_CONFIG_INIT;
    config.gpu_bytes = options->gpu_memory;
    config.host_bytes = options->host_memory;
    config.static_bytes = job->plan.peak;
    config.reserve_bytes = options->reserve_memory;
    if (demands != NULL) {
        pool.page_bytes = options->model.page_size;
        pool.num_pages = budget->total_pages;
        pool.max_tickets = num_slots;
        config.pool = &pool;
        config.demand_pages = demands;
        config.num_demands = (uint32_t)budget->iterations;
        config.total_pages = budget->total_pages;
    }
    TOOL_TRY(choose_swap(options, budget, &config));
    return tool_status(pst_memory_map_make(&config, &budget->map));
}

int plan_make_budget(const plan_job *job, plan_budget *budget)
{
    const plan_options *options = job->options;
    *budget = (plan_budget){
        .gpu_bytes = options->gpu_memory,
        .host_bytes = options->host_memory,
        .static_bytes = job->plan.peak,
        .dynamic_bytes = dynamic_bytes(job),
        .page_bytes = options->model.page_size,
    };
    if (options->schedule >= 0) {
        budget->has_policy = true;
        TOOL_TRY(plan_solve_policy(job, &budget->policy));
        budget->page_bytes = budget->policy.answer.page_bytes;
        return TOOL_OK;
    }
    if (options->model.routing == NULL)
        return make_map(job, NULL, 0, budget);
    replay_trace trace;
    replay_sizes sizes;
    uint64_t *demands = NULL;
    TOOL_TRY(replay_trace_read(&options->model, &trace));
    int code = replay_sizes_make(&options->model, &trace, NULL, 0, &sizes);
    if (code == TOOL_OK)
        code = count_pages(&options->model, &trace, &sizes);
    if (code == TOOL_OK)
        code = sum_pages(options, &sizes, &demands, budget);
    if (code == TOOL_OK)
        code = make_map(job, demands, sizes.slots, budget);
    free(demands);
    replay_sizes_free(&sizes);
    replay_trace_free(&trace);
    return code;
}

void plan_free_budget(plan_budget *budget)
{
    plan_free_policy(&budget->policy);
}
