/* Runs a trace: captures an iteration once, replays it with the counts of each step. */
#include "tools/replay/replay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static pst_pattern pattern_of(const replay_machine *machine, uint32_t place)
{
    return (pst_pattern){
        .seed = machine->options->seed,
        .key = place,
        .step = (const uint64_t *)machine->control + place / machine->trace->layers,
    };
}

const int32_t *replay_counts_of(const replay_machine *machine, uint32_t place)
{
    const uint64_t *steps = machine->control;
    const int32_t *counts = (const int32_t *)(steps + machine->options->model.num_micro_batches);
    return counts + (size_t)place * machine->trace->num_counts;
}

/* The layer writes its source: poison first, so that what a stash reads too late differs. */
static int enqueue_forward(const replay_machine *machine, const pst_visit_key *key)
{
    const replay_sizes *sizes = machine->sizes;
    const uint32_t place = replay_order_place(machine->order, key);
    const pst_pattern pattern = pattern_of(machine, place);
    pst_visit visit;
    TOOL_PST(pst_scheduler_forward_begin(machine->scheduler, key->chunk, key->layer,
                                         key->micro_batch, machine->stream, &visit));
    void *source = machine->sources[visit.set];
    void *counts_of_set = machine->source_counts[visit.set];
    const replay_bases bases = replay_bases_in(sizes, source);
    const void *counts = counts_of_set;
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = bases.at;
    buffers.counts = &counts;
    TOOL_PST(pst_device_fill(machine->device, source, REPLAY_POISON_SOURCE, sizes->set_bytes,
                             machine->stream));
    TOOL_PST(pst_device_copy(machine->device, counts_of_set, replay_counts_of(machine, place),
                             machine->trace->num_counts * sizeof(int32_t), machine->stream));
    TOOL_PST(pst_group_fill(machine->device, machine->group, &buffers, &pattern, machine->stream));
    return tool_status(pst_scheduler_forward_end(machine->scheduler, key->chunk, key->layer,
                                                 key->micro_batch, NULL, machine->stream));
}

/* What is behind the live rows of what a backward reads. */
static uint8_t tail_of(const replay_machine *machine, const pst_visit *visit)
{
    if (visit->in_place)
        return REPLAY_POISON_SOURCE;
    return machine->options->tail == PST_TAIL_ZERO ? 0 : REPLAY_POISON_DESTINATION;
}

/* The layer reads what was kept, and poisons it: what a restore does not write stays so. */
static int enqueue_backward(const replay_machine *machine, const pst_visit_key *key)
{
    const replay_sizes *sizes = machine->sizes;
    const uint32_t place = replay_order_place(machine->order, key);
    const pst_pattern pattern = pattern_of(machine, place);
    pst_visit visit;
    TOOL_PST(pst_scheduler_backward_begin(machine->scheduler, key->kind, key->chunk, key->layer,
                                          key->micro_batch, machine->stream, &visit));
    const bool is_source = visit.in_place || machine->num_destinations == 0;
    void *base = is_source ? machine->sources[visit.set] : machine->destinations[visit.set];
    const replay_bases bases = replay_bases_in(sizes, base);
    const void *counts = replay_counts_of(machine, place);
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = bases.at;
    buffers.counts = &counts;
    TOOL_PST(pst_group_verify(machine->device, machine->group, &buffers, &pattern,
                              tail_of(machine, &visit), machine->mismatches, machine->stream));
    if (!is_source && machine->options->tail == PST_TAIL_UNTOUCHED)
        TOOL_PST(pst_device_fill(machine->device, base, REPLAY_POISON_DESTINATION, sizes->set_bytes,
                                 machine->stream));
    return tool_status(pst_scheduler_backward_end(machine->scheduler, key->kind, key->chunk,
                                                  key->layer, key->micro_batch, machine->stream));
}

/* All layers of a pass, up or down. */
static int enqueue_pass(const replay_machine *machine, const pst_pass *pass)
{
    const uint32_t layers = machine->order->chunks[pass->chunk].num_layers;
    for (uint32_t i = 0; i < layers; i++) {
        const bool is_forward = pass->kind == PST_PASS_FORWARD;
        const pst_visit_key key = {.kind = pass->kind,
                                   .chunk = pass->chunk,
                                   .layer = is_forward ? i : layers - 1 - i,
                                   .micro_batch = pass->micro_batch};
        TOOL_TRY(is_forward ? enqueue_forward(machine, &key) : enqueue_backward(machine, &key));
    }
    return TOOL_OK;
}

/* Both ways, so that nothing is under way while the pool is looked at. */
static int check_pool(const replay_machine *machine)
{
    for (uint32_t i = 0; i < machine->options->streams; i++) {
        TOOL_PST(pst_event_record(machine->device, machine->edge, machine->stream));
        TOOL_PST(pst_event_wait(machine->device, machine->edge, machine->sides[i]));
        TOOL_PST(pst_event_record(machine->device, machine->edge, machine->sides[i]));
        TOOL_PST(pst_event_wait(machine->device, machine->edge, machine->stream));
    }
    TOOL_PST(pst_pool_check(machine->pool, machine->stream));
    TOOL_PST(pst_event_record(machine->device, machine->edge, machine->stream));
    for (uint32_t i = 0; i < machine->options->streams; i++)
        TOOL_PST(pst_event_wait(machine->device, machine->edge, machine->sides[i]));
    return TOOL_OK;
}

/* What the graph holds. The pool is checked before the first backward and when it should be empty. */
static int enqueue_iteration(const replay_machine *machine)
{
    const replay_order *order = machine->order;
    bool is_checked = false;
    TOOL_PST(pst_scheduler_step_begin(machine->scheduler, NULL, machine->stream));
    for (uint64_t n = 0; n < order->info.num_passes; n++) {
        pst_pass pass;
        TOOL_PST(pst_schedule_get_pass(order->schedule, n, &pass));
        if (pass.kind != PST_PASS_FORWARD && !is_checked)
            TOOL_TRY(check_pool(machine));
        is_checked = is_checked || pass.kind != PST_PASS_FORWARD;
        TOOL_TRY(enqueue_pass(machine, &pass));
    }
    TOOL_TRY(check_pool(machine));
    return tool_status(pst_scheduler_step_end(machine->scheduler, machine->stream));
}

int replay_capture(const replay_machine *machine, int (*enqueue)(const replay_machine *machine),
                   pst_graph **graph_out)
{
    TOOL_PST(pst_graph_begin(machine->device, machine->stream));
    const int code = enqueue(machine);
    if (code == TOOL_OK)
        return tool_status(pst_graph_end(machine->device, machine->stream, graph_out));
    pst_graph *half_done;
    if (pst_graph_end(machine->device, machine->stream, &half_done) == PST_OK)
        pst_graph_destroy(half_done);
    return code;
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
                                       machine->control_bytes, machine->stream));
}

/* The visit that the simulator says is the first to lack pages; where it knows of none, the step. */
static void name_fault(const replay_machine *machine, uint64_t iteration, replay_result *result)
{
    const pst_stage_result *predicted = &machine->order->result;
    const uint32_t layers = machine->trace->layers;
    const uint64_t first =
        machine->trace->step_begin + iteration * machine->options->model.num_micro_batches;
    if (predicted->fault == PST_FAULT_NONE) {
        snprintf(result->fault_place, sizeof(result->fault_place), "step %llu",
                 (unsigned long long)first);
        return;
    }
    const uint32_t place = replay_order_place(machine->order, &predicted->fault_visit);
    snprintf(result->fault_place, sizeof(result->fault_place),
             "step %llu, micro-batch %u, layer %u (ticket %u)",
             (unsigned long long)(first + place / layers), place / layers, place % layers,
             result->status.fault_ticket);
}

/* Runs an iteration on the inputs that the device has. */
static int try_iteration(replay_machine *machine, uint64_t iteration, replay_result *result)
{
    const pst_stream stream = machine->stream;
    const pst_pool_status *status = &result->status;
    machine->before = *status;
    TOOL_TRY(replay_order_predict(machine->order, machine->sizes, iteration, machine->num_pages,
                                  machine->link));
    replay_link_predict(machine, iteration);
    if (machine->graph != NULL)
        TOOL_PST(pst_graph_launch(machine->graph, stream));
    else
        TOOL_TRY(enqueue_iteration(machine));
    TOOL_TRY(replay_timer_run(machine, iteration));
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
    const pst_stage_result *predicted = &machine->order->result;
    result->mismatched_bytes = *machine->mismatches_pinned;
    result->spilled_pages += status->spilled_pages - before->spilled_pages;
    result->offloaded_pages += status->offloaded_pages - before->offloaded_pages;
    result->displaced_pages += status->displaced_pages - before->displaced_pages;
    result->predicted_spilled += predicted->spilled_pages;
    result->predicted_offloaded += predicted->offloaded_pages;
    if (status->num_faults != 0 && result->fault_place[0] == '\0')
        name_fault(machine, iteration, result);
    TOOL_TRY(replay_timer_add(machine, iteration, result));
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

/* Waits of captured steps are not timed. */
static int take_exposed(const replay_machine *machine, replay_result *result)
{
    pst_scheduler_stats stats;
    result->exposed_forward_seconds = NAN;
    result->exposed_backward_seconds = NAN;
    TOOL_PST(pst_scheduler_get_stats(machine->scheduler, &stats));
    if (stats.measured_steps == 0)
        return TOOL_OK;
    result->exposed_forward_seconds = 1e-9 * (double)stats.exposed_forward_ns;
    result->exposed_backward_seconds = 1e-9 * (double)stats.exposed_backward_ns;
    return TOOL_OK;
}

int replay_run(replay_machine *machine, replay_result *result_out)
{
    const replay_sizes *sizes = machine->sizes;
    memset(result_out, 0, sizeof(*result_out));
    result_out->device = machine->info;
    result_out->pool_bytes = machine->pool_bytes;
    result_out->ticket_bytes = machine->ticket_bytes;
    result_out->buffer_bytes =
        (machine->num_sources + machine->num_destinations) * sizes->set_bytes;
    result_out->num_tickets = machine->order->num_tickets;
    result_out->visits = machine->order->visits;
    result_out->kept_in_place = machine->order->result.kept_in_place;
    TOOL_TRY(replay_timer_count_launches(machine, &result_out->launches_per_layer));
    if (!machine->options->no_graph) {
        TOOL_TRY(replay_capture(machine, enqueue_iteration, &machine->graph));
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
    return take_exposed(machine, result_out);
}
