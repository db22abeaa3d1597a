/* Runs a trace: captures an iteration once, replays it with the counts of each step. */
#include "tools/replay/replay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "host/schedule/pipeline.h"

static pst_event event_of(const replay_machine *machine, uint32_t slot, enum replay_time time)
{
    return machine->events[(size_t)slot * REPLAY_NUM_TIMES + time];
}

int replay_mark(const replay_machine *machine, uint32_t slot, enum replay_time time,
                pst_stream stream)
{
    return tool_status(
        pst_event_record_external(machine->device, event_of(machine, slot, time), stream));
}

static pst_pattern pattern_of(const replay_machine *machine, uint32_t slot)
{
    return (pst_pattern){
        .seed = machine->options->seed,
        .key = slot,
        .step = (const uint64_t *)machine->control + slot / machine->trace->layers,
    };
}

/* An ordered pool wants its operations one after the other, in whatever lane they are: each waits
 * for the one before. Between begin_pool_use and end_pool_use lies one slot's use of the pool. */
static bool is_chained(const replay_machine *machine)
{
    return machine->lanes > 1 && machine->options->mode == PST_POOL_ORDERED;
}

static int begin_pool_use(const replay_machine *machine, pst_stream stream)
{
    if (!is_chained(machine))
        return TOOL_OK;
    return tool_status(pst_event_wait(machine->device, machine->chain_event, stream));
}

static int end_pool_use(const replay_machine *machine, pst_stream stream)
{
    if (!is_chained(machine))
        return TOOL_OK;
    return tool_status(pst_event_record(machine->device, machine->chain_event, stream));
}

/* Lane 1 continues where lane 0 is; so does the chain. */
static int fork_lanes(const replay_machine *machine)
{
    if (machine->lanes == 1)
        return TOOL_OK;
    TOOL_TRY(end_pool_use(machine, machine->streams[0]));
    TOOL_PST(pst_event_record(machine->device, machine->lane_event, machine->streams[0]));
    return tool_status(pst_event_wait(machine->device, machine->lane_event, machine->streams[1]));
}

/* Lane 0 waits for lane 1. */
static int join_lanes(const replay_machine *machine)
{
    if (machine->lanes == 1)
        return TOOL_OK;
    TOOL_PST(pst_event_record(machine->device, machine->lane_event, machine->streams[1]));
    return tool_status(pst_event_wait(machine->device, machine->lane_event, machine->streams[0]));
}

/* Where one layer's tensors and counts are. */
typedef struct place {
    void *bases[REPLAY_MAX_TENSORS];
    const void *counts;
} place;

static place place_of(const replay_machine *machine, uint32_t slot, void *const *sets)
{
    const replay_sizes *sizes = machine->sizes;
    const uint64_t *steps = machine->control;
    const int32_t *counts = (const int32_t *)(steps + machine->options->model.num_micro_batches);
    place where = {.counts = counts + (size_t)slot * machine->trace->num_counts};
    for (uint32_t t = 0; t < sizes->num_tensors; t++)
        where.bases[t] = (char *)sets[slot % machine->lanes] + sizes->tensors[t].offset;
    return where;
}

static pst_buffers at(const place *where)
{
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = where->bases;
    buffers.counts = &where->counts;
    return buffers;
}

static pst_launch_options launch_of(const replay_machine *machine)
{
    return (pst_launch_options){
        .num_sms = (int)machine->options->num_sms,
        .backend = (pst_backend)machine->options->backend,
    };
}

static int enqueue_stash(const replay_machine *machine, uint32_t slot, pst_stream stream)
{
    pst_stash_options options = PST_STASH_OPTIONS_INIT;
    options.launch = launch_of(machine);
    const place where = place_of(machine, slot, machine->static_set);
    const pst_buffers source = at(&where);
    return tool_status(
        pst_ticket_stash(machine->tickets[slot], machine->group, &source, &options, stream));
}

static int enqueue_restore(const replay_machine *machine, uint32_t slot, pst_stream stream)
{
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    options.launch = launch_of(machine);
    options.pages = (pst_restore_pages)machine->options->restore;
    options.tail = (pst_restore_tail)machine->options->tail;
    options.dirty = machine->dirty[slot % machine->lanes];
    const place where = place_of(machine, slot, machine->working_set);
    const pst_buffers destination = at(&where);
    return tool_status(
        pst_ticket_restore(machine->tickets[slot], machine->group, &destination, &options, stream));
}

static int enqueue_release(const replay_machine *machine, uint32_t slot, pst_stream stream)
{
    if (machine->options->restore != PST_RESTORE_KEEP)
        return TOOL_OK;
    return tool_status(pst_ticket_release(machine->tickets[slot], stream));
}

/* The layer computes (fill), keeps its activations (stash), and leaves its static buffers to the
 * next one (poison). */
static int enqueue_forward(const replay_machine *machine, uint32_t slot)
{
    const uint32_t lane = slot % machine->lanes;
    const pst_stream stream = machine->streams[lane];
    const pst_pattern pattern = pattern_of(machine, slot);
    const place where = place_of(machine, slot, machine->static_set);
    const pst_buffers layer = at(&where);
    TOOL_PST(pst_group_fill(machine->device, machine->group, &layer, &pattern, stream));
    TOOL_TRY(begin_pool_use(machine, stream));
    TOOL_TRY(replay_mark(machine, slot, REPLAY_TIME_STASH_BEGIN, stream));
    TOOL_TRY(enqueue_stash(machine, slot, stream));
    TOOL_TRY(replay_mark(machine, slot, REPLAY_TIME_STASH_END, stream));
    TOOL_TRY(end_pool_use(machine, stream));
    return tool_status(pst_device_fill(machine->device, machine->static_set[lane],
                                       REPLAY_POISON_STATIC, machine->sizes->set_bytes, stream));
}

static int enqueue_backward(const replay_machine *machine, uint32_t slot)
{
    const uint32_t lane = slot % machine->lanes;
    const pst_stream stream = machine->streams[lane];
    const pst_pattern pattern = pattern_of(machine, slot);
    const bool keeps_tail = machine->options->tail == PST_TAIL_UNTOUCHED;
    if (keeps_tail)
        TOOL_PST(pst_device_fill(machine->device, machine->working_set[lane], REPLAY_POISON_WORKING,
                                 machine->sizes->set_bytes, stream));
    TOOL_TRY(begin_pool_use(machine, stream));
    TOOL_TRY(replay_mark(machine, slot, REPLAY_TIME_RESTORE_BEGIN, stream));
    TOOL_TRY(enqueue_restore(machine, slot, stream));
    TOOL_TRY(replay_mark(machine, slot, REPLAY_TIME_RESTORE_END, stream));
    TOOL_TRY(enqueue_release(machine, slot, stream));
    TOOL_TRY(end_pool_use(machine, stream));
    const place where = place_of(machine, slot, machine->working_set);
    const pst_buffers restored = at(&where);
    return tool_status(pst_group_verify(machine->device, machine->group, &restored, &pattern,
                                        keeps_tail ? REPLAY_POISON_WORKING : 0, machine->mismatches,
                                        stream));
}

/* All layers of a micro-batch, up or down. */
static int enqueue_pass(const replay_machine *machine, const psti_pipeline_pass *pass)
{
    const uint32_t layers = machine->trace->layers;
    const uint32_t first = (uint32_t)pass->micro_batch * layers;
    for (uint32_t i = 0; i < layers; i++)
        if (pass->kind == PST_PASS_FORWARD)
            TOOL_TRY(enqueue_forward(machine, first + i));
        else
            TOOL_TRY(enqueue_backward(machine, first + layers - 1 - i));
    return TOOL_OK;
}

static int check_pool(const replay_machine *machine)
{
    TOOL_TRY(join_lanes(machine));
    return tool_status(pst_pool_check(machine->pool, machine->streams[0]));
}

/* What the graph holds. The pool is checked when it is fullest and when it should be empty. */
static int enqueue_iteration(const replay_machine *machine)
{
    const uint32_t last = machine->options->model.num_micro_batches - 1;
    psti_pipeline pipeline = psti_pipeline_reversed(last + 1);
    psti_pipeline_pass pass;
    TOOL_TRY(fork_lanes(machine));
    while (psti_pipeline_next(&pipeline, &pass)) {
        TOOL_TRY(enqueue_pass(machine, &pass));
        if (pass.kind == PST_PASS_BACKWARD || pass.micro_batch != last)
            continue;
        TOOL_TRY(check_pool(machine));
        TOOL_TRY(fork_lanes(machine));
    }
    TOOL_TRY(check_pool(machine));
    return tool_status(pst_pool_step(machine->pool, machine->streams[0]));
}

/* One layer's use of the pool, alone. */
static int enqueue_layer(const replay_machine *machine)
{
    TOOL_TRY(enqueue_stash(machine, 0, machine->streams[0]));
    TOOL_TRY(enqueue_restore(machine, 0, machine->streams[0]));
    return enqueue_release(machine, 0, machine->streams[0]);
}

static int capture(const replay_machine *machine, int (*enqueue)(const replay_machine *machine),
                   pst_graph **graph_out)
{
    TOOL_PST(pst_graph_begin(machine->device, machine->streams[0]));
    const int code = enqueue(machine);
    if (code == TOOL_OK)
        return tool_status(pst_graph_end(machine->device, machine->streams[0], graph_out));
    pst_graph *half_done;
    if (pst_graph_end(machine->device, machine->streams[0], &half_done) == PST_OK)
        pst_graph_destroy(half_done);
    return code;
}

static int count_launches(const replay_machine *machine, uint64_t *launches_out)
{
    pst_graph *graph;
    TOOL_TRY(capture(machine, enqueue_layer, &graph));
    pst_graph_info info;
    const int code = tool_status(pst_graph_get_info(graph, &info));
    const int destroyed = tool_status(pst_graph_destroy(graph));
    if (code == TOOL_OK && destroyed == TOOL_OK)
        *launches_out = info.num_kernels;
    return code != TOOL_OK ? code : destroyed;
}

/* Gives the device the steps and counts of an iteration. */
static int copy_control(const replay_machine *machine, uint64_t iteration)
{
    const replay_trace *trace = machine->trace;
    const uint32_t num_micro_batches = machine->options->model.num_micro_batches;
    const size_t num_counts = (size_t)machine->sizes->slots * trace->num_counts;
    uint64_t *steps = machine->control_pinned;
    for (uint32_t m = 0; m < num_micro_batches; m++)
        steps[m] = trace->step_begin + iteration * num_micro_batches + m;
    memcpy(steps + num_micro_batches, trace->counts + iteration * num_counts,
           num_counts * sizeof(*trace->counts));
    return tool_status(pst_device_copy(machine->device, machine->control, machine->control_pinned,
                                       machine->control_bytes, machine->streams[0]));
}

/* The anchor: plain copies of the bytes that the stashes of this iteration moved. */
static int enqueue_copies(const replay_machine *machine, uint64_t iteration)
{
    const pst_stream stream = machine->streams[0];
    const uint64_t *payload = machine->sizes->payload + iteration * machine->sizes->slots;
    uint64_t offset = 0;
    for (uint32_t slot = 0; slot < machine->sizes->slots; slot++) {
        if (payload[slot] == 0)
            continue;
        if (offset + payload[slot] > machine->copy_target_bytes)
            offset = 0;
        TOOL_TRY(replay_mark(machine, slot, REPLAY_TIME_COPY_BEGIN, stream));
        TOOL_PST(pst_device_copy(machine->device, (char *)machine->copy_target + offset,
                                 machine->static_set[0], payload[slot], stream));
        TOOL_TRY(replay_mark(machine, slot, REPLAY_TIME_COPY_END, stream));
        offset += payload[slot];
    }
    return TOOL_OK;
}

int replay_add_time(const replay_machine *machine, uint32_t slot, enum replay_time begin,
                    double *sum)
{
    double seconds;
    TOOL_PST(pst_event_elapsed(machine->device, event_of(machine, slot, begin),
                               event_of(machine, slot, begin + 1), &seconds));
    *sum += seconds;
    return TOOL_OK;
}

static int add_times(const replay_machine *machine, uint64_t iteration, replay_result *result)
{
    const uint64_t *payload = machine->sizes->payload + iteration * machine->sizes->slots;
    for (uint32_t slot = 0; slot < machine->sizes->slots; slot++) {
        TOOL_TRY(replay_add_time(machine, slot, REPLAY_TIME_STASH_BEGIN, &result->stash_seconds));
        TOOL_TRY(
            replay_add_time(machine, slot, REPLAY_TIME_RESTORE_BEGIN, &result->restore_seconds));
        if (payload[slot] != 0)
            TOOL_TRY(replay_add_time(machine, slot, REPLAY_TIME_COPY_BEGIN, &result->copy_seconds));
    }
    return TOOL_OK;
}

static void name_fault(const replay_machine *machine, uint64_t iteration, replay_result *result)
{
    const uint32_t layers = machine->trace->layers;
    const uint32_t num_micro_batches = machine->options->model.num_micro_batches;
    for (uint32_t slot = 0; slot < machine->sizes->slots; slot++)
        if (pst_ticket_index(machine->tickets[slot]) == result->status.fault_ticket) {
            snprintf(result->fault_place, sizeof(result->fault_place),
                     "step %llu, micro-batch %u, layer %u (ticket %u)",
                     (unsigned long long)(machine->trace->step_begin +
                                          iteration * num_micro_batches + slot / layers),
                     slot / layers, slot % layers, result->status.fault_ticket);
            return;
        }
    snprintf(result->fault_place, sizeof(result->fault_place), "step %llu",
             (unsigned long long)(machine->trace->step_begin + iteration * num_micro_batches));
}

/* Runs an iteration on the inputs that the device has. */
static int try_iteration(replay_machine *machine, uint64_t iteration, replay_result *result)
{
    const pst_stream stream = machine->streams[0];
    const pst_pool_status *status = &result->status;
    machine->before = *status;
    replay_link_predict(machine, iteration);
    if (machine->graph != NULL)
        TOOL_PST(pst_graph_launch(machine->graph, stream));
    else
        TOOL_TRY(enqueue_iteration(machine));
    TOOL_TRY(enqueue_copies(machine, iteration));
    TOOL_TRY(replay_link_copies(machine));
    TOOL_PST(pst_device_copy(machine->device, machine->mismatches_pinned, machine->mismatches,
                             sizeof(uint64_t), stream));
    TOOL_PST(pst_stream_synchronize(machine->device, stream));
    TOOL_PST(pst_pool_poll(machine->pool, &result->status));
    const uint64_t in_use = status->in_use[REPLAY_DEVICE] + status->in_use[REPLAY_HOST];
    if (in_use > result->leaked_pages)
        result->leaked_pages = in_use;
    return TOOL_OK;
}

/* Adds what an iteration measured that will not be replayed. */
static int keep_iteration(replay_machine *machine, uint64_t iteration, replay_result *result)
{
    const pst_pool_status *status = &result->status;
    const pst_pool_status *before = &machine->before;
    result->mismatched_bytes = *machine->mismatches_pinned;
    result->spilled_pages += status->spilled_pages - before->spilled_pages;
    result->offloaded_pages += status->offloaded_pages - before->offloaded_pages;
    result->displaced_pages += status->displaced_pages - before->displaced_pages;
    result->predicted_spilled += machine->predicted_spilled;
    result->predicted_offloaded += machine->predicted_offloaded;
    if (status->num_faults != 0 && result->fault_place[0] == '\0')
        name_fault(machine, iteration, result);
    TOOL_TRY(add_times(machine, iteration, result));
    if (status->step_valid != 0)
        return replay_link_sample(machine, result);
    result->steps_lost++;
    return TOOL_OK;
}

static int run_iteration(replay_machine *machine, uint64_t iteration, replay_result *result)
{
    bool again = false;
    TOOL_TRY(copy_control(machine, iteration));
    TOOL_TRY(try_iteration(machine, iteration, result));
    TOOL_TRY(replay_recover(machine, &result->status, result, &again));
    if (again)
        TOOL_TRY(try_iteration(machine, iteration, result));
    return keep_iteration(machine, iteration, result);
}

/* The sorting changes the order of what was noted. */
static void take_medians(const replay_machine *machine, replay_result *result)
{
    const uint64_t recoveries = result->steps_retried;
    for (uint32_t i = 0; i < REPLAY_NUM_RATES; i++)
        result->link_rate[i] = replay_median(machine->rates[i], machine->num_rates);
    result->recover_median = replay_median(machine->recover_seconds, recoveries);
    result->recover_max = recoveries > 0 ? machine->recover_seconds[recoveries - 1] : NAN;
}

int replay_run(replay_machine *machine, replay_result *result_out)
{
    const replay_sizes *sizes = machine->sizes;
    memset(result_out, 0, sizeof(*result_out));
    result_out->device = machine->info;
    result_out->pool_bytes = machine->pool_bytes;
    result_out->ticket_bytes = machine->ticket_bytes;
    result_out->buffer_bytes = 2 * machine->lanes * sizes->set_bytes;
    TOOL_TRY(count_launches(machine, &result_out->launches_per_layer));
    if (!machine->options->no_graph) {
        TOOL_TRY(capture(machine, enqueue_iteration, &machine->graph));
        result_out->graphs_captured++;
    }
    for (uint64_t i = 0; i < sizes->iterations; i++) {
        tool_progress("iteration", i, sizes->iterations);
        TOOL_TRY(run_iteration(machine, i, result_out));
    }
    tool_progress("iteration", sizes->iterations, sizes->iterations);
    result_out->pool_bytes +=
        result_out->grown_pages[REPLAY_DEVICE] * machine->options->model.page_size;
    take_medians(machine, result_out);
    return TOOL_OK;
}
