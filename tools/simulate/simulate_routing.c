/* Pages of visits from a recorded routing trace, read and measured as `pagestash replay` does. */
#include "tools/simulate/simulate_sources.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static int count_iterations(simulate_routing *routing)
{
    routing->num_iterations = routing->trace.steps / routing->num_micro_batches;
    if (routing->is_balanced)
        routing->num_iterations = 1;
    if (routing->num_iterations == 0)
        return tool_fail(TOOL_USAGE,
                         "--micro-batches %" PRIu32 ": each takes a step of the trace: allowed are "
                         "at most its %" PRIu64 " steps",
                         routing->num_micro_batches, routing->trace.steps);
    return TOOL_OK;
}

/* Instead of a file: each visit has the rows of an even router. */
static int make_trace(simulate_routing *routing)
{
    const pst_estimate_moe *moe = &routing->config->moe;
    replay_trace *trace = &routing->trace;
    if (routing->model.layout != PST_ROWS_PREFIX)
        return tool_fail(TOOL_USAGE, "--layout segments: allowed with --routing only");
    if (moe->capacity_rows > INT32_MAX)
        return tool_fail(TOOL_USAGE, "--config %s: %" PRIu64 " rows: allowed are at most %d",
                         routing->config->path, moe->capacity_rows, INT32_MAX);
    *trace = (replay_trace){.layers = 1,
                            .steps = routing->num_micro_batches,
                            .num_counts = 1,
                            .max_count = moe->capacity_rows,
                            .max_count_replayed = moe->balanced_rows,
                            .mean_count = (double)moe->balanced_rows};
    trace->num_experts = (uint32_t)routing->config->estimate.config.num_experts;
    return TOOL_OK;
}

static int read_trace(simulate_routing *routing)
{
    const simulate_config *config = routing->config;
    if (routing->model.routing == NULL)
        return make_trace(routing);
    TOOL_TRY(replay_trace_read(&routing->model, &routing->trace));
    if (config != NULL && routing->trace.num_experts != config->estimate.config.num_experts)
        return tool_fail(TOOL_INPUT, "--routing %s: %" PRIu32 " experts: %s has %" PRIu64,
                         routing->model.routing, routing->trace.num_experts, config->path,
                         config->estimate.config.num_experts);
    return TOOL_OK;
}

int simulate_read_routing(simulate_routing *routing)
{
    const simulate_config *config = routing->config;
    routing->model.num_micro_batches = 1;
    TOOL_TRY(read_trace(routing));
    TOOL_TRY(replay_sizes_make(&routing->model, &routing->trace,
                               config != NULL ? config->tensors : NULL,
                               config != NULL ? config->num_tensors : 0, &routing->sizes));
    TOOL_TRY(replay_make_group(&routing->model, &routing->trace, &routing->sizes, &routing->group));
    routing->counts = calloc(routing->trace.num_counts, sizeof(*routing->counts));
    if (routing->counts == NULL)
        return tool_fail(TOOL_NO, "out of memory for %" PRIu32 " counts",
                         routing->trace.num_counts);
    return count_iterations(routing);
}

const int64_t *simulate_routing_counts(const simulate_routing *routing, uint64_t iteration,
                                       const simulate_visit *visit)
{
    const replay_trace *trace = &routing->trace;
    const uint64_t step = iteration * routing->num_micro_batches + visit->model_micro_batch;
    const uint64_t row = step * trace->layers + visit->moe_layer % trace->layers;
    for (uint32_t c = 0; c < trace->num_counts; c++)
        routing->counts[c] = routing->is_balanced ? (int64_t)ceil(trace->mean_count)
                                                  : trace->counts[row * trace->num_counts + c];
    return routing->counts;
}

int simulate_usage_of_routing(const void *user, uint64_t iteration, const simulate_visit *visit,
                              pst_group_usage *usage_out)
{
    const simulate_routing *routing = user;
    const int64_t *counts = simulate_routing_counts(routing, iteration, visit);
    return tool_status(
        pst_group_measure(routing->group, counts, routing->model.page_size, usage_out));
}

void simulate_free_routing(simulate_routing *routing)
{
    free(routing->counts);
    pst_group_destroy(routing->group);
    replay_sizes_free(&routing->sizes);
    replay_trace_free(&routing->trace);
}
