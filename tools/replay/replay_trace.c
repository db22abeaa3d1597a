#include "tools/common/routing.h"
#include "tools/replay/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct loader {
    const replay_options *options;
    replay_trace *trace;
    uint64_t num_stored, capacity; /* slots in trace->counts */
    uint64_t total_rows;           /* of all ranks, layers replayed */
    uint64_t num_slots;            /* (step, layer) pairs that this sums over */
} loader;

static int check_experts(const loader *load, uint32_t num_experts)
{
    const replay_options *options = load->options;
    if (num_experts % options->ep != 0)
        return tool_fail(TOOL_USAGE, "--ep %u: allowed is a divisor of the trace's %u experts",
                         options->ep, num_experts);
    const uint32_t local = num_experts / options->ep;
    if (options->layout == PST_ROWS_SEGMENTS && local > PST_MAX_SEGMENTS)
        return tool_fail(TOOL_USAGE,
                         "--layout segments: a rank has %u experts: allowed are at most %d "
                         "(raise --ep)",
                         local, PST_MAX_SEGMENTS);
    return TOOL_OK;
}

static int grow(loader *load)
{
    if (load->num_stored < load->capacity)
        return TOOL_OK;
    const uint64_t capacity = load->capacity == 0 ? 64 : load->capacity * 2;
    int32_t *counts =
        reallocarray(load->trace->counts, capacity, load->trace->num_counts * sizeof(*counts));
    if (counts == NULL)
        return tool_fail(TOOL_NO, "out of memory for the counts of %llu rows of the trace",
                         (unsigned long long)capacity);
    load->trace->counts = counts;
    load->capacity = capacity;
    return TOOL_OK;
}

/* Takes our rank's counts out of a row; keeps them if its step is replayed. */
static int take_row(loader *load, const routing_row *row)
{
    const replay_options *options = load->options;
    replay_trace *trace = load->trace;
    const uint32_t local = row->num_experts / options->ep;
    const uint32_t *mine = row->counts + (size_t)options->rank * local;
    const bool is_prefix = options->layout == PST_ROWS_PREFIX;
    const bool is_replayed = row->step >= options->step_begin && row->step < options->step_end;

    for (uint32_t e = 0; e < row->num_experts; e++)
        load->total_rows += row->counts[e];
    load->num_slots++;

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
                         options->routing, (unsigned long long)row->line, options->rank * local,
                         options->rank * local + local - 1, (unsigned long long)rows, options->rank,
                         (unsigned long long)ROUTING_COUNT_MAX);
    const uint64_t count = is_prefix ? rows : largest;
    if (count > trace->max_count)
        trace->max_count = count;
    if (!is_replayed)
        return TOOL_OK;
    if (count > trace->max_count_replayed)
        trace->max_count_replayed = count;
    TOOL_TRY(grow(load));
    int32_t *counts = trace->counts + load->num_stored++ * trace->num_counts;
    if (is_prefix)
        counts[0] = (int32_t)rows;
    else
        for (uint32_t e = 0; e < local; e++)
            counts[e] = (int32_t)mine[e];
    return TOOL_OK;
}

static int read_rows(loader *load, routing_reader *reader)
{
    replay_trace *trace = load->trace;
    routing_row row;
    for (;;) {
        const pst_status status = routing_next(reader, &row);
        if (status == PST_E_AGAIN)
            return TOOL_OK;
        if (status != PST_OK)
            return tool_fail(TOOL_INPUT, "%s", pst_last_message());
        if (trace->num_experts == 0) {
            TOOL_TRY(check_experts(load, row.num_experts));
            trace->num_experts = row.num_experts;
            trace->num_counts =
                load->options->layout == PST_ROWS_PREFIX ? 1 : row.num_experts / load->options->ep;
            trace->first_step = row.step;
        }
        trace->num_steps = row.step - trace->first_step + 1;
        if (row.layer >= trace->num_layers)
            trace->num_layers = row.layer + 1;
        if (load->options->layers == 0 || row.layer < load->options->layers)
            TOOL_TRY(take_row(load, &row));
    }
}

/* What can be said only when the whole file is known. */
static int check_selection(loader *load)
{
    const replay_options *options = load->options;
    replay_trace *trace = load->trace;
    const uint64_t file_end = trace->first_step + trace->num_steps;
    const bool is_all = options->step_end == UINT64_MAX;
    const uint64_t begin = is_all ? trace->first_step : options->step_begin;
    const uint64_t end = is_all ? file_end : options->step_end;
    if (options->layers > trace->num_layers)
        return tool_fail(TOOL_USAGE, "--layers %u: allowed is 1..%u, the layers of the trace",
                         options->layers, trace->num_layers);
    if (begin < trace->first_step || end > file_end)
        return tool_fail(TOOL_USAGE, "--steps %llu:%llu: allowed is a range within %llu:%llu",
                         (unsigned long long)begin, (unsigned long long)end,
                         (unsigned long long)trace->first_step, (unsigned long long)file_end);
    trace->layers = options->layers != 0 ? options->layers : trace->num_layers;
    trace->step_begin = begin;
    trace->steps = end - begin;
    const uint64_t remainder = trace->steps % options->num_micro_batches;
    if (trace->steps < options->num_micro_batches)
        return tool_fail(TOOL_USAGE, "--microbatches %u: allowed is 1..%llu, the steps replayed",
                         options->num_micro_batches, (unsigned long long)trace->steps);
    if (remainder != 0)
        return tool_fail(TOOL_USAGE,
                         "--microbatches %u: allowed is a divisor of the %llu steps replayed "
                         "(--steps %llu:%llu would do)",
                         options->num_micro_batches, (unsigned long long)trace->steps,
                         (unsigned long long)begin, (unsigned long long)(end - remainder));
    trace->mean_count =
        (double)load->total_rows / (double)(load->num_slots * options->ep * trace->num_counts);
    return TOOL_OK;
}

int replay_trace_load(const replay_options *options, replay_trace *trace_out)
{
    memset(trace_out, 0, sizeof(*trace_out));
    const bool is_stdin = strcmp(options->routing, "-") == 0;
    int descriptor = is_stdin ? STDIN_FILENO : open(options->routing, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return tool_fail(TOOL_INPUT, "--routing %s: %s", options->routing, strerror(errno));
    routing_reader *reader =
        routing_open(is_stdin ? "standard input" : options->routing, tool_read, &descriptor);
    loader load = {.options = options, .trace = trace_out};
    int code = TOOL_NO;
    if (reader == NULL)
        tool_fail(TOOL_NO, "out of memory for the routing reader");
    else
        code = read_rows(&load, reader);
    routing_close(reader);
    if (!is_stdin)
        close(descriptor);
    if (code == TOOL_OK)
        code = check_selection(&load);
    if (code != TOOL_OK)
        replay_trace_free(trace_out);
    return code;
}

void replay_trace_free(replay_trace *trace)
{
    free(trace->counts);
    trace->counts = NULL;
}
