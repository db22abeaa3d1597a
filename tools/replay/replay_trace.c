/* What a routing file says of one rank. */
#include "tools/common/routing.h"
#include "tools/replay/replay.h"

#include <stdlib.h>
#include <string.h>

typedef struct trace_reader {
    const replay_model *model;
    replay_trace *trace;
    uint64_t num_stored, capacity; /* slots in trace->counts */
    uint64_t total_rows;           /* of all ranks, layers replayed */
    uint64_t num_slots;            /* (step, layer) pairs that this sums over */
} trace_reader;

static int check_experts(const trace_reader *self, uint32_t num_experts)
{
    const replay_model *model = self->model;
    if (num_experts % model->expert_model_parallel_size != 0)
        return tool_fail(
            TOOL_USAGE,
            "--expert-model-parallel-size %u: allowed is a divisor of the trace's %u experts",
            model->expert_model_parallel_size, num_experts);
    const uint32_t local = num_experts / model->expert_model_parallel_size;
    if (model->layout == PST_ROWS_SEGMENTS && local > PST_MAX_SEGMENTS)
        return tool_fail(TOOL_USAGE,
                         "--layout segments: a rank has %u experts: allowed are at most %d "
                         "(raise --expert-model-parallel-size)",
                         local, PST_MAX_SEGMENTS);
    return TOOL_OK;
}

static int grow(trace_reader *self)
{
    if (self->num_stored < self->capacity)
        return TOOL_OK;
    const uint64_t capacity = self->capacity == 0 ? 64 : self->capacity * 2;
    int32_t *counts =
        reallocarray(self->trace->counts, capacity, self->trace->num_counts * sizeof(*counts));
    if (counts == NULL)
        return tool_fail(TOOL_NO, "out of memory for the counts of %llu rows of the trace",
                         (unsigned long long)capacity);
    self->trace->counts = counts;
    self->capacity = capacity;
    return TOOL_OK;
}

/* Takes our rank's counts out of a row; keeps them if its step is replayed. */
static int take_row(trace_reader *self, const routing_row *row)
{
    const replay_model *model = self->model;
    replay_trace *trace = self->trace;
    const uint32_t local = row->num_experts / model->expert_model_parallel_size;
    const uint32_t *mine = row->counts + (size_t)model->expert_model_parallel_rank * local;
    const bool is_prefix = model->layout == PST_ROWS_PREFIX;
    const uint32_t rank = model->expert_model_parallel_rank;
    const bool is_all = model->steps.end == 0;
    const bool is_replayed =
        is_all || (row->step >= model->steps.begin && row->step < model->steps.end);

    for (uint32_t e = 0; e < row->num_experts; e++)
        self->total_rows += row->counts[e];
    self->num_slots++;

    uint64_t rows = 0;
    uint64_t largest = 0;
    for (uint32_t e = 0; e < local; e++) {
        rows += mine[e];
        largest = mine[e] > largest ? mine[e] : largest;
    }
    if (rows > ROUTING_COUNT_MAX)
        return tool_fail(TOOL_INPUT,
                         "%s:%llu: fields e%u to e%u: %llu rows of rank %u: allowed is at most "
                         "%llu",
                         model->routing, (unsigned long long)row->line, rank * local,
                         rank * local + local - 1, (unsigned long long)rows, rank,
                         (unsigned long long)ROUTING_COUNT_MAX);
    const uint64_t count = is_prefix ? rows : largest;
    if (count > trace->max_count)
        trace->max_count = count;
    if (!is_replayed)
        return TOOL_OK;
    if (count > trace->max_count_replayed)
        trace->max_count_replayed = count;
    TOOL_TRY(grow(self));
    int32_t *counts = trace->counts + self->num_stored++ * trace->num_counts;
    if (is_prefix)
        counts[0] = (int32_t)rows;
    else
        for (uint32_t e = 0; e < local; e++)
            counts[e] = (int32_t)mine[e];
    return TOOL_OK;
}

static int take_next(void *user, const routing_row *row)
{
    trace_reader *self = user;
    replay_trace *trace = self->trace;
    if (trace->num_experts == 0) {
        TOOL_TRY(check_experts(self, row->num_experts));
        trace->num_experts = row->num_experts;
        trace->num_counts = self->model->layout == PST_ROWS_PREFIX
                                ? 1
                                : row->num_experts / self->model->expert_model_parallel_size;
        trace->first_step = row->step;
    }
    trace->num_steps = row->step - trace->first_step + 1;
    if (row->layer >= trace->num_layers)
        trace->num_layers = row->layer + 1;
    const bool is_taken = self->model->num_layers == 0 || row->layer < self->model->num_layers;
    return is_taken ? take_row(self, row) : TOOL_OK;
}

/* What can be said only when the whole file is known. */
static int check_selection(trace_reader *self)
{
    const replay_model *model = self->model;
    replay_trace *trace = self->trace;
    const uint64_t file_end = trace->first_step + trace->num_steps;
    const bool is_all = model->steps.end == 0;
    const uint64_t begin = is_all ? trace->first_step : model->steps.begin;
    const uint64_t end = is_all ? file_end : model->steps.end;
    if (model->num_layers > trace->num_layers)
        return tool_fail(TOOL_USAGE, "--num-layers %u: allowed is 1..%u, the layers of the trace",
                         model->num_layers, trace->num_layers);
    if (begin < trace->first_step || end > file_end)
        return tool_fail(TOOL_USAGE, "--steps %llu:%llu: allowed is a range within %llu:%llu",
                         (unsigned long long)begin, (unsigned long long)end,
                         (unsigned long long)trace->first_step, (unsigned long long)file_end);
    trace->layers = model->num_layers != 0 ? model->num_layers : trace->num_layers;
    trace->step_begin = begin;
    trace->steps = end - begin;
    const uint64_t remainder = trace->steps % model->num_micro_batches;
    if (trace->steps < model->num_micro_batches)
        return tool_fail(TOOL_USAGE,
                         "--num-micro-batches %u: allowed is 1..%llu, the steps replayed",
                         model->num_micro_batches, (unsigned long long)trace->steps);
    if (remainder != 0)
        return tool_fail(TOOL_USAGE,
                         "--num-micro-batches %u: allowed is a divisor of the %llu steps replayed "
                         "(--steps %llu:%llu would do)",
                         model->num_micro_batches, (unsigned long long)trace->steps,
                         (unsigned long long)begin, (unsigned long long)(end - remainder));
    trace->mean_count =
        (double)self->total_rows /
        (double)(self->num_slots * model->expert_model_parallel_size * trace->num_counts);
    return TOOL_OK;
}

int replay_trace_read(const replay_model *model, replay_trace *trace_out)
{
    memset(trace_out, 0, sizeof(*trace_out));
    trace_reader self = {.model = model, .trace = trace_out};
    tool_clock_begin("reading the routing");
    int code = routing_read(model->routing, take_next, &self);
    tool_clock_end();
    if (code == TOOL_OK)
        code = check_selection(&self);
    if (code != TOOL_OK)
        replay_trace_free(trace_out);
    return code;
}

void replay_trace_free(replay_trace *trace)
{
    free(trace->counts);
    trace->counts = NULL;
}
