/* Where a step breaks off: captures that end, calls of the driver that fail, memory that runs out, other
 * streams; and that hooks take no memory. */
#include "tests/host/scheduler/rig.h"
#include "tests/lazy/lazy_device.h"

/* ---- memory ---- */

PST_TEST(SchedulerEdges, NoHookAllocates)
{
    for (uint32_t i = 0; i < 16; i++) {
        rig self;
        rig_config config = rig_first_of_four(8);
        config.schedule.kind = i & 1 ? PST_SCHEDULE_ZB_H1 : PST_SCHEDULE_1F1B;
        config.own = i & 2;
        config.defers = i & 4 ? 50 : 0;
        config.scheduler.measures = i & 8;
        config.num_parts = 2;
        config.announces = 50;
        config.keep[1] = PST_KEEP_SWAPPED;
        config.keep[2] = PST_KEEP_RECOMPUTED;
        config.policy[1].swap_tokens = 5;
        rig_open(&self, &config);
        CHECK_OK(rig_begin(&self));
        psti_fail_allocation_after(0);
        const pst_status status = rig_passes(&self, 0, self.schedule->num_passes);
        psti_fail_allocation_after(-1);
        CHECK_MSG(status == PST_OK, "case %u: %s", i, pst_last_message());
        CHECK_OK(rig_end(&self));
        rig_check(&self);
        rig_close(&self);
    }
}

/* step_begin compiles another number of micro-batches, or leaves all as it was. */
PST_TEST(SchedulerEdges, AllocationsOfOtherNumbersFail)
{
    rig self;
    const rig_config config = rig_first_of_four(8);
    pst_step_options options = PST_STEP_OPTIONS_INIT;
    rig_open(&self, &config);
    options.num_micro_batches = 11;
    uint32_t failures = 0;
    for (pst_status status = PST_E_NOMEM; status != PST_OK; failures++) {
        psti_fail_allocation_after((long)failures);
        status = pst_scheduler_step_begin(self.scheduler, &options, self.streams[0]);
        psti_fail_allocation_after(-1);
        CHECK(status == PST_OK || status == PST_E_NOMEM);
        if (status != PST_OK)
            rig_is_right(&self); /* of 8, as before */
    }
    CHECK(failures > 5);
    CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
    rig_is_right(&self);
    rig_close(&self);
}

/* ---- calls of the driver ---- */

PST_TEST(SchedulerEdges, CallsOfCreateFail)
{
    rig self;
    rig_config config = rig_first_of_four(3);
    config.num_layers[0] = 2;
    rig_make_lazy(&config, true);
    rig_open(&self, &config);
    CHECK_OK(pst_scheduler_destroy(self.scheduler));
    self.scheduler = NULL;
    const uint32_t live = self.device->live;
    uint32_t failures = 0;
    while (!self.scheduler && failures < 1000) {
        lazy_fail_at(self.device, failures + 1);
        const pst_status status = pst_scheduler_create(&self.config.scheduler, &self.scheduler);
        lazy_fail_at(self.device, 0);
        CHECK_EQ(status == PST_OK, self.scheduler != NULL);
        if (status == PST_OK)
            break;
        CHECK_STATUS(status, PST_E_CUDA);
        CHECK_EQ(self.device->live, live);
        CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, self.streams[0]));
        failures++;
    }
    CHECK(failures > 0);
    rig_is_right(&self);
    rig_close(&self);
}

PST_TEST(SchedulerEdges, AnotherScheduleIsRefusedWhole)
{
    rig self;
    rig_config config = rig_first_of_four(3);
    pst_schedule *schedule = NULL;
    pst_schedule_config other = config.schedule;
    pst_graph *graph = NULL, *empty = NULL, *later = NULL;
    rig_make_lazy(&config, true);
    rig_open(&self, &config);
    other.num_micro_batches = 2;
    CHECK_OK(pst_schedule_create(&other, &schedule));
    CHECK_OK(rig_capture(&self, &graph));
    CHECK_OK(pst_graph_begin(self.device, self.streams[1]));
    CHECK_STATUS(pst_scheduler_set_schedule(self.scheduler, schedule), PST_E_CAPTURE);
    CHECK_STATUS(pst_graph_end(self.device, self.streams[1], &empty), PST_E_CAPTURE);
    lazy_fail_at(self.device, 1);
    CHECK_STATUS(pst_scheduler_set_schedule(self.scheduler, schedule), PST_E_CUDA);
    CHECK_OK(pst_graph_launch(graph, self.streams[0]));
    rig_check(&self);
    CHECK_OK(rig_capture(&self, &later));
    CHECK_OK(pst_graph_launch(later, self.streams[0]));
    rig_check(&self);
    rig_is_right(&self);
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_graph_destroy(later));
    pst_schedule_destroy(schedule);
    rig_close(&self);
}

/* A step that does not begin says nothing of the streams of the one before, which may be gone. */
PST_TEST(SchedulerEdges, BrokenBeforeItsFirstHook)
{
    rig self;
    rig_config config = rig_first_of_four(3);
    rig_make_lazy(&config, true);
    rig_open(&self, &config);
    const pst_stream stream = self.streams[0];
    CHECK_OK(pst_stream_create(self.device, &self.streams[0]));
    rig_is_right(&self);
    CHECK_OK(pst_stream_destroy(self.device, self.streams[0]));
    self.streams[0] = stream;
    lazy_fail_at(self.device, 1);
    CHECK_STATUS(rig_begin(&self), PST_E_CUDA);
    CHECK_STATUS(rig_begin(&self), PST_E_ORDER);
    CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
    rig_is_right(&self);
    rig_close(&self);
}

/* The device fails again while the broken step is given up: nothing of the scheduler is left. */
PST_TEST(SchedulerEdges, DestroyOnADeviceThatFails)
{
    rig self;
    rig_config config = rig_first_of_four(3);
    rig_make_lazy(&config, true);
    rig_open(&self, &config);
    CHECK_OK(pst_scheduler_destroy(self.scheduler));
    const uint32_t live = self.device->live;
    self.scheduler = NULL;
    CHECK_OK(pst_scheduler_create(&self.config.scheduler, &self.scheduler));
    CHECK_OK(rig_begin(&self));
    lazy_fail_at(self.device, 5);
    CHECK_STATUS(rig_passes(&self, 0, 2), PST_E_CUDA);
    lazy_fail_at(self.device, 1);
    CHECK_STATUS(pst_scheduler_destroy(self.scheduler), PST_E_CUDA);
    self.scheduler = NULL;
    CHECK_EQ(self.device->live, live);
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, self.streams[0]));
    rig_close(&self);
}

/* ---- captures ---- */

/* An abort outside of the capture does not get into it, and the step goes on. */
PST_TEST(SchedulerEdges, AbortBesideACapture)
{
    rig self;
    const rig_config config = rig_first_of_four(3);
    pst_graph *graph = NULL;
    rig_open(&self, &config);
    const pst_stream stream = self.streams[0], other = self.streams[1];
    CHECK_OK(pst_graph_begin(self.device, stream));
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_passes(&self, 0, 1));
    CHECK_STATUS(pst_scheduler_abort(self.scheduler, other), PST_E_CAPTURE);
    CHECK_SAID("end the capture first");
    CHECK_OK(rig_passes(&self, 1, self.schedule->num_passes));
    CHECK_OK(rig_end(&self));
    CHECK_OK(pst_graph_end(self.device, stream, &graph));
    CHECK_OK(pst_graph_launch(graph, stream));
    rig_check(&self);
    CHECK_OK(pst_graph_destroy(graph));
    rig_close(&self);
}

PST_TEST(SchedulerEdges, CapturesThatEndEarly)
{
    rig self;
    const rig_config config = rig_first_of_four(3);
    pst_graph *graph = NULL;
    pst_visit visit;
    rig_open(&self, &config);
    const pst_stream stream = self.streams[0];
    /* the capture ends between two passes */
    CHECK_OK(pst_graph_begin(self.device, stream));
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_passes(&self, 0, 1));
    CHECK_STATUS(pst_graph_end(self.device, stream, &graph), PST_E_CAPTURE);
    CHECK_STATUS(pst_scheduler_forward_begin(self.scheduler, 0, 0, 1, stream, &visit),
                 PST_E_CAPTURE);
    CHECK_SAID("the capture that the step began in has ended");
    CHECK_OK(pst_scheduler_abort(self.scheduler, stream));
    rig_is_right(&self);
    /* and between the hooks of a visit */
    CHECK_OK(pst_graph_begin(self.device, stream));
    CHECK_OK(rig_begin(&self));
    CHECK_OK(pst_scheduler_forward_begin(self.scheduler, 0, 0, 0, stream, &visit));
    CHECK_STATUS(pst_graph_end(self.device, stream, &graph), PST_E_CAPTURE);
    CHECK_STATUS(pst_scheduler_forward_end(self.scheduler, 0, 0, 0, NULL, stream), PST_E_CAPTURE);
    CHECK_SAID("the capture that the step began in has ended");
    CHECK_OK(pst_scheduler_abort(self.scheduler, stream));
    rig_is_right(&self);
    rig_close(&self);
}

PST_TEST(SchedulerEdges, HooksInAnotherCapture)
{
    rig self;
    const rig_config config = rig_first_of_four(3);
    pst_graph *graph = NULL;
    pst_visit visit;
    rig_open(&self, &config);
    const pst_stream stream = self.streams[0], other = self.streams[1];
    CHECK_OK(pst_graph_begin(self.device, stream));
    CHECK_OK(rig_begin(&self));
    CHECK_OK(pst_graph_begin(self.device, other));
    CHECK_STATUS(pst_scheduler_forward_begin(self.scheduler, 0, 0, 0, other, &visit),
                 PST_E_CAPTURE);
    CHECK_SAID("the step began in another capture");
    CHECK_OK(pst_graph_end(self.device, other, &graph));
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_STATUS(pst_graph_end(self.device, stream, &graph), PST_E_CAPTURE);
    CHECK_OK(pst_scheduler_abort(self.scheduler, stream));
    rig_is_right(&self);
    rig_close(&self);
}

PST_TEST(SchedulerEdges, TheEndIsElsewhere)
{
    rig self;
    const rig_config config = rig_first_of_four(3);
    pst_graph *graph = NULL;
    rig_open(&self, &config);
    const pst_stream stream = self.streams[0], other = self.streams[1];
    CHECK_OK(pst_graph_begin(self.device, stream));
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_passes(&self, 0, self.schedule->num_passes));
    CHECK_STATUS(pst_scheduler_step_end(self.scheduler, other), PST_E_CAPTURE);
    CHECK_SAID("the step began in a capture, outside of this capture");
    CHECK_OK(pst_graph_end(self.device, stream, &graph));
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_scheduler_abort(self.scheduler, stream));
    rig_is_right(&self);
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_passes(&self, 0, self.schedule->num_passes));
    CHECK_OK(pst_graph_begin(self.device, other));
    CHECK_STATUS(pst_scheduler_step_end(self.scheduler, other), PST_E_CAPTURE);
    CHECK_SAID("the step began outside this capture");
    CHECK_OK(pst_graph_end(self.device, other, &graph));
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_scheduler_abort(self.scheduler, stream));
    rig_is_right(&self);
    rig_close(&self);
}

/* ---- streams ---- */

/* Work on `stream` waits for what is enqueued on `held`, which is held back already. */
static void check_waits(rig *self, pst_stream stream, pst_stream held)
{
    uint64_t *const word = &self->words[0];
    CHECK_OK(pst_device_fill(self->device, word, 0xff, sizeof(*word), stream));
    lazy_run(self->device, SIZE_MAX);
    CHECK_EQ(*word, 0);
    lazy_hold_back(self->device, held, false);
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_EQ(*word, UINT64_MAX);
    *word = 0;
}

static void work_on(rig *self, pst_stream stream)
{
    lazy_run(self->device, SIZE_MAX); /* what is enqueued so far needs no wait */
    CHECK_OK(pst_device_fill(self->device, self->words, 0, sizeof(uint64_t), stream));
    lazy_hold_back(self->device, stream, true);
}

PST_TEST(SchedulerEdges, AbortAndEndJoinOtherStreams)
{
    for (uint32_t records = 0; records < 2; records++) {
        rig self;
        rig_config config = rig_first_of_four(3);
        pst_visit visit;
        config.records = records;
        rig_make_lazy(&config, false);
        rig_open(&self, &config);
        const pst_stream stream = self.streams[0], other = self.streams[1];
        CHECK_OK(rig_begin(&self));
        CHECK_OK(pst_scheduler_forward_begin(self.scheduler, 0, 0, 0, other, &visit));
        work_on(&self, other);
        CHECK_OK(pst_scheduler_abort(self.scheduler, stream));
        check_waits(&self, stream, other);
        /* while recording, both streams of a pair */
        CHECK_OK(rig_begin(&self));
        CHECK_OK(rig_passes(&self, 0, 1));
        for (uint32_t ends = 0; ends < 2 * records; ends++) {
            CHECK_OK(pst_scheduler_forward_begin(self.scheduler, 0, 0, 1, other, &visit));
            CHECK_OK(pst_scheduler_backward_begin(self.scheduler, PST_PASS_BACKWARD, 0, 3, 0,
                                                  stream, &visit));
            work_on(&self, other);
            if (ends)
                CHECK_OK(pst_scheduler_forward_end(self.scheduler, 0, 0, 1, NULL, other));
            else
                CHECK_OK(pst_scheduler_abort(self.scheduler, stream));
            check_waits(&self, stream, other);
            CHECK_OK(pst_scheduler_abort(self.scheduler, stream));
            CHECK_OK(rig_begin(&self));
            CHECK_OK(rig_passes(&self, 0, 1));
        }
        CHECK_OK(rig_passes(&self, 1, self.schedule->num_passes));
        work_on(&self, stream);
        CHECK_OK(pst_scheduler_step_end(self.scheduler, other));
        check_waits(&self, other, stream);
        rig_check(&self);
        rig_close(&self);
    }
}

/* ---- layers of the caller's own beside graphs of others ---- */

PST_TEST(SchedulerEdges, EagerLayersBesideGraphsHoldLittle)
{
    rig self;
    rig_config config = rig_first_of_four(8);
    uint32_t sources_now = 0, restores_now = 0, seen = 0;
    config.own = true;
    config.seed = 3;
    config.num_layers[0] = 8;
    config.scheduler.capture = PST_CAPTURE_LAYERS;
    config.scheduler.num_sources = 2;
    config.scheduler.num_destinations = 3;
    rig_open(&self, &config);
    CHECK_OK(rig_capture_layers(&self, 40));
    CHECK_OK(rig_begin(&self));
    const uint32_t cells = self.num_layers * self.num_micro_batches;
    for (uint64_t i = 0; i < self.schedule->num_passes; i++)
        for (uint32_t n = 0; n < 8; n++) {
            const pst_pass *pass = &self.schedule->passes[i];
            CHECK_OK(rig_visit(&self, pass, pass->kind == PST_PASS_FORWARD ? n : 7 - n, 0));
            uint32_t sources = 0, restores = 0;
            for (uint32_t c = 0; c < cells; c++) {
                sources += self.cell_of[c].source != RIG_NONE;
                restores += self.cell_of[c].destinations[0] != RIG_NONE;
                seen += self.cell_of[c].source != RIG_NONE;
            }
            sources_now = sources > sources_now ? sources : sources_now;
            restores_now = restores > restores_now ? restores : restores_now;
        }
    CHECK_OK(rig_end(&self));
    rig_check(&self);
    CHECK(seen > 0);
    CHECK_EQ(sources_now, 2);
    CHECK_EQ(restores_now, 3);
    rig_close(&self);
}

PST_TEST(SchedulerEdges, GraphsOfLayersAreRefused)
{
    rig self;
    rig_config config = rig_first_of_four(3);
    pst_visit visit;
    pst_graph *graph = NULL;
    pst_layer_buffers own = PST_LAYER_BUFFERS_INIT;
    config.own = true;
    config.scheduler.capture = PST_CAPTURE_LAYERS;
    rig_open(&self, &config);
    const pst_stream stream = self.streams[0];
    const pst_buffers *buffers[1] = {&self.destination_buffers[0][0]};
    pst_scheduler *const scheduler = self.scheduler;
    own.alias = 5;
    own.buffers = buffers;
    CHECK_STATUS(pst_scheduler_layer_capture_begin(scheduler, PST_PASS_FORWARD, 0, 0, 0, &own,
                                                   stream, &visit),
                 PST_E_CAPTURE);
    CHECK_SAID("the stream is not captured");
    CHECK_OK(rig_begin(&self));
    CHECK_STATUS(pst_scheduler_layer_capture_begin(scheduler, PST_PASS_FORWARD, 0, 0, 0, &own,
                                                   stream, &visit),
                 PST_E_ORDER);
    CHECK_SAID("a step is open");
    CHECK_OK(pst_scheduler_abort(scheduler, stream));
    CHECK_OK(pst_graph_begin(self.device, stream));
    CHECK_STATUS(pst_scheduler_layer_capture_begin(scheduler, PST_PASS_FORWARD, 0, 0, 9, &own,
                                                   stream, &visit),
                 PST_E_INVALID);
    CHECK_SAID("chunk 0, layer 0, slot 9: there is no such layer or slot");
    CHECK_STATUS(pst_scheduler_layer_capture_begin(scheduler, PST_PASS_FORWARD, 0, 0, 0, NULL,
                                                   stream, &visit),
                 PST_E_INVALID);
    CHECK_OK(pst_scheduler_layer_capture_begin(scheduler, PST_PASS_BACKWARD_INPUT, 0, 0, 0, &own,
                                               stream, &visit));
    own.alias = 6;
    CHECK_STATUS(pst_scheduler_layer_capture_begin(scheduler, PST_PASS_BACKWARD_WEIGHT, 0, 0, 0,
                                                   &own, stream, &visit),
                 PST_E_INVALID);
    CHECK_SAID("own->alias 6: another backward of this slot has 5");
    CHECK_OK(pst_scheduler_layer_capture_begin(scheduler, PST_PASS_BACKWARD_INPUT, 0, 0, 0, &own,
                                               stream, &visit)); /* the same once more: taken */
    CHECK_OK(pst_graph_end(self.device, stream, &graph));
    CHECK_STATUS(pst_scheduler_destroy(scheduler), PST_E_BUSY);
    CHECK_SAID("0 steps are open, and 1 captured graphs hold this scheduler");
    CHECK_OK(pst_graph_destroy(graph));
    rig_is_right(&self);
    rig_close(&self);
}
