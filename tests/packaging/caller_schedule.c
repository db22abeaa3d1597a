/* Schedules, schedulers, simulations and policies for caller.c. */
#include "caller.h"

void check_schedules(void)
{
    static const pst_pass passes[2] = {{.kind = PST_PASS_FORWARD}, {.kind = PST_PASS_BACKWARD}};
    pst_schedule *schedule = NULL;
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT, found;
    config.num_micro_batches = 4;
    say("pst_schedule_config", pst_schedule_create(END(config), &schedule));
    pst_schedule_destroy(schedule);
    also("recognise", pst_schedule_recognise(passes, 2, 1, 0, &found));
    config.struct_size -= CUT;
    need("schedule", pst_schedule_create(END(config), &schedule));
    GET(pst_schedule_info, pst_schedule_get_info(schedule, out));
    pst_schedule_destroy(schedule);
}

/* ---- schedulers ---- */

static pst_status capture_with(pst_device *device, pst_scheduler *scheduler,
                               const pst_layer_buffers *own, pst_stream stream)
{
    pst_visit visit;
    pst_graph *graph = NULL;
    need("capture", pst_graph_begin(device, stream));
    const pst_status status = pst_scheduler_layer_capture_begin(scheduler, PST_PASS_FORWARD, 0, 0,
                                                                0, own, stream, &visit);
    need("capture's end", pst_graph_end(device, stream, &graph));
    need("graph", pst_graph_destroy(graph));
    return status;
}

static pst_status no_destination(void *user, const pst_visit_key *visit, uint32_t part,
                                 pst_stream stream, pst_buffers *destination_out)
{
    (void)user, (void)visit, (void)part, (void)stream, (void)destination_out;
    return PST_E_NOMEM;
}

static pst_status make_scheduler(pst_scheduler_config init, size_t config_bytes,
                                 uint32_t layer_bytes, uint32_t part_bytes, pst_scheduler **made)
{
    pst_layer *layer = put_at_end(init.layers, sizeof(pst_layer));
    layer->parts = put_at_end(init.layers->parts, sizeof(pst_part));
    init.layers = layer;
    init.struct_size = config_bytes;
    init.layer_bytes = layer_bytes;
    init.part_bytes = part_bytes;
    return pst_scheduler_create(END(init), made);
}

void check_schedulers(pst_device *device, pst_pool *pool, const pst_group *group,
                      const pst_buffers *buffers)
{
    const size_t config = sizeof(pst_scheduler_config);
    const uint32_t of_layer = sizeof(pst_layer), of_part = sizeof(pst_part);
    pst_schedule_config list = PST_SCHEDULE_CONFIG_INIT;
    pst_schedule *schedule = NULL;
    pst_scheduler *scheduler = NULL;
    pst_stream stream = NULL;
    pst_part part = {.group = group};
    pst_layer layer = {.parts = &part, .num_parts = 1};
    pst_scheduler_config init = PST_SCHEDULER_CONFIG_INIT;
    uint64_t bytes[2];
    list.num_micro_batches = 1;
    list.struct_size -= CUT;
    need("schedule", pst_schedule_create(END(list), &schedule));
    need("stream", pst_stream_create(device, &stream));
    init.pool = pool;
    init.schedule = schedule;
    init.layers = &layer;
    init.num_layers = 1;
    init.capture = PST_CAPTURE_LAYERS;
    init.destination = no_destination;
    say("pst_layer", make_scheduler(init, config - CUT, of_layer, of_part - CUT, &scheduler));
    need("destroy", pst_scheduler_destroy(scheduler));
    scheduler = NULL;
    say("pst_part", make_scheduler(init, config - CUT, of_layer - CUT, of_part, &scheduler));
    need("destroy", pst_scheduler_destroy(scheduler));
    scheduler = NULL;
    say("pst_scheduler_config",
        make_scheduler(init, config, of_layer - CUT, of_part - CUT, &scheduler));
    need("destroy", pst_scheduler_destroy(scheduler));
    init.layer_bytes -= CUT;
    init.part_bytes -= CUT;
    also("bytes", pst_scheduler_bytes(END(init), &bytes[0], &bytes[1]));
    need("scheduler",
         make_scheduler(init, config - CUT, of_layer - CUT, of_part - CUT, &scheduler));
    const pst_step_options step = PST_STEP_OPTIONS_INIT;
    say("pst_step_options", pst_scheduler_step_begin(scheduler, END(step), stream));
    need("abort", pst_scheduler_abort(scheduler, stream));
    pst_layer_buffers own = PST_LAYER_BUFFERS_INIT;
    own.buffers = &buffers;
    say("pst_layer_buffers", capture_with(device, scheduler, END(own), stream));
    GET(pst_scheduler_stats, pst_scheduler_get_stats(scheduler, out));
    pst_schedule_config found;
    num_bad += pst_scheduler_get_schedule_sized(scheduler, &found, sizeof(found) - CUT) != PST_OK;
    need("scheduler's end", pst_scheduler_destroy(scheduler));
    need("stream's end", pst_stream_destroy(device, stream));
    pst_schedule_destroy(schedule);
}

/* ---- simulations and policies ---- */

static pst_status simulate(pst_simulation_config init, const pst_simulated_layer *layer,
                           size_t config_bytes, uint32_t layer_bytes)
{
    const pst_simulated_layer *layers = put_at_end(layer, sizeof(*layer));
    pst_simulation simulation;
    pst_stage_result stage;
    init.struct_size = config_bytes;
    init.layer_bytes = layer_bytes;
    init.layers = &layers;
    return pst_simulate_sized(END(init), &simulation, sizeof(simulation) - CUT, &stage,
                              sizeof(stage) - CUT);
}

static void check_policies(const pst_simulation_config *simulation)
{
    const pst_policy_layer layer = PST_POLICY_LAYER_INIT;
    const pst_policy_layer *layers = END(layer);
    pst_policy_config init = PST_POLICY_CONFIG_INIT;
    pst_layer_choice choice;
    pst_policy policy;
    pst_policy_stage stage;
    init.simulation = simulation;
    init.layers = &layers;
    init.gpu_bytes = init.host_bytes = PST_POLICY_UNLIMITED;
    init.max_sets = 1;
    init.layer_bytes -= CUT;
    init.routing_bytes -= CUT;
    say("pst_policy_config", pst_policy_solve_sized(END(init), &policy, sizeof(policy) - CUT,
                                                    &choice, &stage, sizeof(stage) - CUT));
    init.struct_size -= CUT;
    init.layer_bytes += CUT;
    say("pst_policy_layer", pst_policy_solve_sized(END(init), &policy, sizeof(policy) - CUT,
                                                   &choice, &stage, sizeof(stage) - CUT));
    init.layer_bytes -= CUT;
    GET(pst_policy,
        pst_policy_solve_sized(END(init), out, sizeof(*out), &choice, &stage, sizeof(stage) - CUT));
    GET(pst_policy_stage, pst_policy_solve_sized(END(init), &policy, sizeof(policy) - CUT, &choice,
                                                 out, sizeof(*out)));
}

void check_simulations(void)
{
    const pst_group_usage usage = {1, 16384, 1};
    pst_schedule_config list = PST_SCHEDULE_CONFIG_INIT;
    pst_schedule *made = NULL;
    pst_simulated_layer layer = PST_SIMULATED_LAYER_INIT;
    const uint32_t num_layers = 1, of_layer = sizeof(layer);
    pst_simulation_config init = PST_SIMULATION_CONFIG_INIT;
    const size_t config = sizeof(init);
    list.num_micro_batches = 1;
    list.struct_size -= CUT;
    need("schedule", pst_schedule_create(END(list), &made));
    const pst_schedule *schedule = made;
    layer.usages = &usage;
    layer.num_usages = 1;
    init.num_stages = 1;
    init.schedules = &schedule;
    init.num_layers = &num_layers;
    say("pst_simulation_config", simulate(init, &layer, config, of_layer - CUT));
    say("pst_simulated_layer", simulate(init, &layer, config - CUT, of_layer));
    init.struct_size -= CUT;
    init.layer_bytes -= CUT;
    const pst_simulated_layer *layers = END(layer);
    init.layers = &layers;
    pst_simulation simulation;
    pst_stage_result stage;
    GET(pst_simulation,
        pst_simulate_sized(END(init), out, sizeof(*out), &stage, sizeof(stage) - CUT));
    GET(pst_stage_result,
        pst_simulate_sized(END(init), &simulation, sizeof(simulation) - CUT, out, sizeof(*out)));
    check_policies(END(init));
    pst_schedule_destroy(made);
}
