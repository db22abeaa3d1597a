#include "tools/plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Groups that are only measured need bases, which nobody reads. */
static _Alignas(256) unsigned char no_base[256];

static int make_shape(pst_device *device, const replay_options *options, const replay_trace *trace,
                      const replay_plan *plan, pst_group **group_out)
{
    const pst_row_space space = {
        .kind = (pst_rows_kind)options->layout,
        .count_type = PST_COUNT_INT32,
        .capacity = (int64_t)plan->capacity,
        .num_segments = trace->num_counts,
    };
    pst_tensor tensors[REPLAY_MAX_TENSORS] = {0};
    for (uint32_t t = 0; t < plan->num_tensors; t++)
        tensors[t] = (pst_tensor){.base = no_base,
                                  .row_bytes = plan->tensors[t].row_bytes,
                                  .num = plan->tensors[t].num,
                                  .den = plan->tensors[t].den};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = tensors;
    config.num_tensors = plan->num_tensors;
    return tool_status(pst_group_create(device, &config, group_out));
}

static int measure(const replay_options *options, const replay_trace *trace, replay_plan *plan)
{
    pst_device *device = NULL;
    pst_group *group = NULL;
    TOOL_PST(pst_device_open("host", 0, &device));
    int code = make_shape(device, options, trace, plan, &group);
    if (code == TOOL_OK)
        code = replay_plan_pages(options, trace, group, plan);
    pst_group_destroy(group);
    pst_device_close(device);
    return code;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The pages of every iteration, ascending, and how many both tiers are to hold. */
static int sum_pages(const plan_options *options, const replay_plan *plan, uint64_t **demands_out,
                     plan_budget *budget)
{
    uint64_t *demands = calloc(plan->iterations + 1, sizeof(*demands));
    if (demands == NULL)
        return tool_fail(TOOL_NO, "out of memory for %llu iterations",
                         (unsigned long long)plan->iterations);
    *demands_out = demands;
    for (uint64_t i = 0; i < plan->iterations; i++)
        for (uint32_t slot = 0; slot < plan->slots; slot++)
            demands[i] += plan->pages[i * plan->slots + slot];
    qsort(demands, plan->iterations, sizeof(*demands), by_value);
    const double place = ceil(options->quantile * (double)plan->iterations);
    const uint64_t index = place < 1.0 ? 0 : (uint64_t)place - 1;
    budget->iterations = plan->iterations;
    budget->demand_max = demands[plan->iterations - 1];
    budget->demand_quantile = demands[index < plan->iterations ? index : plan->iterations - 1];
    const double pages = ceil(options->headroom * (double)budget->demand_quantile);
    if (pages > (double)((1u << 31) - 1))
        return tool_fail(TOOL_USAGE, "--headroom %g: %.0f pages: allowed are at most 2147483647",
                         options->headroom, pages);
    budget->total_pages = pages < 1.0 ? 1 : (uint64_t)pages;
    return TOOL_OK;
}

/* What may be swapped: the layers' kept tensors, by tokens, within what the link hides. */
static int plan_swap(const plan_options *options, plan_budget *budget,
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
    config->max_tokens = budget->swap.num;
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
        pool.page_bytes = options->replay.page_bytes;
        pool.num_pages = budget->total_pages;
        pool.max_tickets = num_slots;
        config.pool = &pool;
        config.demand_pages = demands;
        config.num_demands = (uint32_t)budget->iterations;
        config.total_pages = budget->total_pages;
    }
    TOOL_TRY(plan_swap(options, budget, &config));
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
        .page_bytes = options->replay.page_bytes,
    };
    if (options->replay.routing == NULL)
        return make_map(job, NULL, 0, budget);
    replay_options model = options->replay;
    model.host_pages = 0;
    replay_trace trace;
    replay_plan plan = {0};
    uint64_t *demands = NULL;
    TOOL_TRY(replay_trace_load(&model, &trace));
    int code = replay_plan_make(&model, &trace, &plan);
    if (code == TOOL_OK)
        code = measure(&model, &trace, &plan);
    if (code == TOOL_OK)
        code = sum_pages(options, &plan, &demands, budget);
    if (code == TOOL_OK)
        code = make_map(job, demands, plan.slots, budget);
    free(demands);
    replay_plan_free(&plan);
    replay_trace_free(&trace);
    return code;
}
