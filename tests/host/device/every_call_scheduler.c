/* Cases of every_call.h: schedulers. Whatever fails, the step is aborted, and the next one is right. */
#include "tests/host/device/every_call.h"
#include "tests/host/scheduler/rig.h"

enum { LAYERS = 2, PASSES = 8 };

static rig model;
static pst_scheduler *made;
static pst_visit visit;

static void open_capturing(pst_device *device, pst_capture capture)
{
    rig_config config = RIG_CONFIG;
    config.device = device;
    config.schedule.num_stages = 1;
    config.schedule.num_micro_batches = PASSES / 2;
    config.num_layers[0] = LAYERS;
    config.num_pages = 64;
    config.scheduler.capture = capture;
    made = NULL;
    rig_open(&model, &config);
}

static void open_model(pst_device *device)
{
    open_capturing(device, PST_CAPTURE_ITERATION);
}

static void open_layers(pst_device *device)
{
    open_capturing(device, PST_CAPTURE_LAYERS);
}

static void abort_step(void)
{
    CHECK_OK(pst_scheduler_abort(model.scheduler, model.streams[0]));
}

/* Nothing that an error of CUDA's has touched is believed before the pool is reset. */
static void revive(void)
{
    const uint64_t zero = 0;
    CHECK_OK(pst_pool_reset(model.pool, PST_RESET_ALL, model.streams[0]));
    abort_step();
    CHECK_OK(
        pst_device_copy(model.device, model.mismatches, &zero, sizeof(zero), model.streams[0]));
    rig_is_right(&model);
}

static void close_model(void)
{
    pst_graph *ended = NULL;
    if (pst_graph_end(model.device, model.streams[0], &ended) == PST_OK)
        CHECK_OK(pst_graph_destroy(ended));
    if (model.scheduler)
        abort_step();
    rig_close(&model);
}

/* One whole step, whatever has become of this one. */
static void check_step(void)
{
    abort_step();
    rig_is_right(&model);
}

static const call_room steps = {open_model, NULL, revive, close_model};

/* ---- the object ---- */

static pst_status create(void)
{
    return pst_scheduler_create(&model.config.scheduler, &made);
}

static void destroy_made(void)
{
    CHECK_OK(pst_scheduler_destroy(made));
    rig_is_right(&model);
}

static void prepare_made(void)
{
    CHECK_OK(create());
}

static pst_status destroy(void)
{
    return pst_scheduler_destroy(made);
}

static pst_status set_schedule(void)
{
    return pst_scheduler_set_schedule(model.scheduler, model.schedule);
}

static pst_status get_schedule(void)
{
    pst_schedule_config config;
    return pst_scheduler_get_schedule(model.scheduler, &config);
}

static pst_status get_stats(void)
{
    pst_scheduler_stats stats;
    return pst_scheduler_get_stats(model.scheduler, &stats);
}

static pst_status get_digest(void)
{
    uint64_t digest;
    return pst_scheduler_get_digest(model.scheduler, &digest);
}

static pst_status get_ticket(void)
{
    pst_ticket ticket;
    /* a part that no GLU writes has none to give: refused before the device is asked */
    return pst_scheduler_get_ticket(model.scheduler, PST_PASS_FORWARD, 0, 0, 0, 0, &ticket, NULL) ==
                   PST_E_INVALID
               ? PST_OK
               : PST_E_ORDER;
}

/* ---- steps and hooks ---- */

static pst_status step_begin(void)
{
    return rig_begin(&model);
}

static void prepare_begun(void)
{
    CHECK_OK(step_begin());
}

static void prepare_all_passes(void)
{
    prepare_begun();
    CHECK_OK(rig_passes(&model, 0, PASSES));
}

static pst_status step_end(void)
{
    return rig_end(&model);
}

static void check_ended(void)
{
    rig_check(&model);
    rig_is_right(&model);
}

static pst_status abort_it(void)
{
    return pst_scheduler_abort(model.scheduler, model.streams[0]);
}

static pst_status forward_begin(void)
{
    return pst_scheduler_forward_begin(model.scheduler, 0, 0, 0, model.streams[0], &visit);
}

static void prepare_visit(void)
{
    prepare_begun();
    CHECK_OK(forward_begin());
    CHECK_OK(pst_device_copy(model.device, model.sources[0][visit.set].count, model.counts,
                             sizeof(int32_t), model.streams[0]));
}

static pst_status forward_part(void)
{
    return pst_scheduler_forward_part(model.scheduler, 0, 0, 0, 0, NULL, model.streams[0]);
}

static pst_status forward_end(void)
{
    return pst_scheduler_forward_end(model.scheduler, 0, 0, 0, NULL, model.streams[0]);
}

/* The first forward; its backward comes next. */
static void prepare_backward(void)
{
    prepare_begun();
    CHECK_OK(rig_passes(&model, 0, 1));
}

static pst_status backward_begin(void)
{
    return pst_scheduler_backward_begin(model.scheduler, PST_PASS_BACKWARD, 0, LAYERS - 1, 0,
                                        model.streams[0], &visit);
}

static void prepare_backward_visit(void)
{
    prepare_backward();
    CHECK_OK(backward_begin());
}

static pst_status backward_end(void)
{
    return pst_scheduler_backward_end(model.scheduler, PST_PASS_BACKWARD, 0, LAYERS - 1, 0,
                                      model.streams[0]);
}

/* ---- captures of layers ---- */

static const call_room captures = {open_layers, NULL, NULL, close_model};

static void begin_capture(void)
{
    CHECK_OK(pst_graph_begin(model.device, model.streams[0]));
}

static pst_status capture_begin(void)
{
    return pst_scheduler_layer_capture_begin(model.scheduler, PST_PASS_FORWARD, 0, 0, 0, NULL,
                                             model.streams[0], &visit);
}

static void prepare_captured(void)
{
    begin_capture();
    CHECK_OK(capture_begin());
}

static pst_status capture_end(void)
{
    return pst_scheduler_layer_capture_end(model.scheduler, PST_PASS_FORWARD, 0, 0, 0,
                                           model.streams[0]);
}

static const call_case cases[] = {
    {"pst_scheduler_create", &steps, NULL, create, destroy_made, CALL_FAILS},
    {"pst_scheduler_destroy", &steps, prepare_made, destroy, NULL, CALL_GIVES},
    {"pst_scheduler_step_begin", &steps, NULL, step_begin, check_step, CALL_BREAKS},
    {"pst_scheduler_step_end", &steps, prepare_all_passes, step_end, check_ended, CALL_BREAKS},
    {"pst_scheduler_abort", &steps, prepare_visit, abort_it, check_step, CALL_FAILS},
    {"pst_scheduler_forward_begin", &steps, prepare_begun, forward_begin, check_step, CALL_BREAKS},
    {"pst_scheduler_forward_part", &steps, prepare_visit, forward_part, check_step, CALL_BREAKS},
    {"pst_scheduler_forward_end", &steps, prepare_visit, forward_end, check_step, CALL_BREAKS},
    {"pst_scheduler_backward_begin", &steps, prepare_backward, backward_begin, check_step,
     CALL_BREAKS},
    {"pst_scheduler_backward_end", &steps, prepare_backward_visit, backward_end, check_step,
     CALL_BREAKS},
    {"pst_scheduler_get_ticket", &steps, NULL, get_ticket, NULL, CALL_NONE},
    {"pst_scheduler_layer_capture_begin", &captures, begin_capture, capture_begin, NULL,
     CALL_FAILS},
    {"pst_scheduler_layer_capture_end", &captures, prepare_captured, capture_end, NULL, CALL_FAILS},
    {"pst_scheduler_set_schedule", &steps, NULL, set_schedule, check_step, CALL_FAILS},
    {"pst_scheduler_get_schedule_sized", &steps, NULL, get_schedule, NULL, CALL_NONE},
    {"pst_scheduler_get_stats_sized", &steps, NULL, get_stats, NULL, CALL_NONE},
    {"pst_scheduler_get_digest", &steps, NULL, get_digest, NULL, CALL_NONE},
};

const call_table scheduler_calls = {cases, sizeof(cases) / sizeof(cases[0])};
