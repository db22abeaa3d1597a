/* Hooks that do not follow the schedule, steps that are given up, and steps that keep nothing. */
#include "tests/host/scheduler/rig.h"
#include "tests/lazy/lazy_device.h"

static rig_config one_f_one_b(uint32_t stages, uint32_t stage, uint32_t micro_batches)
{
    rig_config config = RIG_CONFIG;
    config.schedule.num_stages = stages;
    config.schedule.stage = stage;
    config.schedule.num_micro_batches = micro_batches;
    return config;
}

/* A device that counts what is enqueued. */
static void count_calls(rig_config *config)
{
    const lazy_options options = {.eager = true};
    CHECK_OK(pst_device_open("host", 0, &config->device));
    lazy_make(config->device, &options);
}

static pst_status begin(rig *self, pst_pass_kind kind, uint32_t layer, uint32_t micro_batch)
{
    return kind == PST_PASS_FORWARD
               ? pst_scheduler_forward_begin(self->scheduler, 0, layer, micro_batch,
                                             self->streams[0], &self->visit)
               : pst_scheduler_backward_begin(self->scheduler, kind, 0, layer, micro_batch,
                                              self->streams[0], &self->visit);
}

static pst_status end(rig *self, pst_pass_kind kind, uint32_t layer, uint32_t micro_batch)
{
    return kind == PST_PASS_FORWARD ? pst_scheduler_forward_end(self->scheduler, 0, layer,
                                                                micro_batch, NULL, self->streams[0])
                                    : pst_scheduler_backward_end(self->scheduler, kind, 0, layer,
                                                                 micro_batch, self->streams[0]);
}

/* The step is broken, nothing of it is left after an abort, and the next one is right. */
static void recovers(rig *self, uint64_t num_aborted)
{
    pst_scheduler_stats stats;
    CHECK_STATUS(begin(self, PST_PASS_FORWARD, 0, 0), PST_E_ORDER);
    CHECK_STATUS(pst_scheduler_step_end(self->scheduler, self->streams[0]), PST_E_ORDER);
    CHECK_STATUS(pst_scheduler_step_begin(self->scheduler, NULL, self->streams[0]), PST_E_ORDER);
    CHECK_OK(pst_scheduler_abort(self->scheduler, self->streams[0]));
    CHECK_OK(pst_scheduler_get_stats(self->scheduler, &stats));
    CHECK_EQ(stats.aborted_steps, num_aborted);
    const pst_pool_status status = rig_status(self);
    CHECK_EQ(status.in_use[0] + status.in_use[1], 0);
    CHECK_EQ(status.check_errors, 0);
    CHECK_OK(rig_step(self));
    rig_check(self);
}

PST_TEST(SchedulerOrder, AnotherVisitIsNamed)
{
    rig self;
    rig_config config = one_f_one_b(4, 0, 8);
    count_calls(&config);
    rig_open(&self, &config);
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_passes(&self, 0, 2));
    const uint64_t calls = lazy_calls(self.device);
    CHECK_STATUS(begin(&self, PST_PASS_BACKWARD, 2, 1), PST_E_ORDER);
    CHECK_SAID("backward of layer 2, micro-batch 1: the schedule's visit 8 is forward of layer 0, "
               "micro-batch 2; 1F1B, 8 micro-batches");
    CHECK_EQ(lazy_calls(self.device), calls);
    recovers(&self, 1);
    rig_close(&self);
}

PST_TEST(SchedulerOrder, BeginAndEndAlternate)
{
    static const struct wrong {
        bool begins;
        pst_pass_kind kind;
        uint32_t layer, micro_batch;
        const char *said;
    } wrongs[] = {
        {true, PST_PASS_FORWARD, 0, 0,
         "forward of layer 0, micro-batch 0: the schedule's visit 0 is forward of layer 0, "
         "micro-batch 0, which has begun; 1F1B, 3 micro-batches"},
        {false, PST_PASS_FORWARD, 1, 0,
         "end of forward of layer 1, micro-batch 0: the schedule's visit 0 is"},
        {true, PST_PASS_BACKWARD, 3, 0,
         "backward of layer 3, micro-batch 0: the schedule's visit 0"},
        {false, PST_PASS_BACKWARD, 0, 0,
         "end of backward of layer 0, micro-batch 0: the schedule's"},
    };
    rig self;
    const rig_config config = one_f_one_b(4, 0, 3);
    rig_open(&self, &config);
    for (uint32_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
        const struct wrong *w = &wrongs[i];
        CHECK_OK(rig_begin(&self));
        CHECK_OK(begin(&self, PST_PASS_FORWARD, 0, 0));
        CHECK_STATUS(w->begins ? begin(&self, w->kind, w->layer, w->micro_batch)
                               : end(&self, w->kind, w->layer, w->micro_batch),
                     PST_E_ORDER);
        CHECK_SAID(w->said);
        recovers(&self, i + 1);
    }
    CHECK_OK(rig_begin(&self));
    CHECK_STATUS(end(&self, PST_PASS_FORWARD, 0, 0), PST_E_ORDER);
    recovers(&self, 5);
    CHECK_STATUS(begin(&self, PST_PASS_FORWARD, 0, 0), PST_E_ORDER);
    CHECK_SAID("forward of layer 0, micro-batch 0: no step is open");
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}

PST_TEST(SchedulerOrder, BeginAndEndOnOneStream)
{
    rig self;
    const rig_config config = one_f_one_b(4, 0, 3);
    rig_open(&self, &config);
    CHECK_OK(rig_begin(&self));
    CHECK_OK(begin(&self, PST_PASS_FORWARD, 0, 0));
    CHECK_STATUS(pst_scheduler_forward_end(self.scheduler, 0, 0, 0, NULL, self.streams[1]),
                 PST_E_ORDER);
    recovers(&self, 1);
    rig_close(&self);
}

/* Everywhere within a step. */
PST_TEST(SchedulerOrder, AbortsAnywhere)
{
    rig self;
    const rig_config config = one_f_one_b(4, 1, 4);
    rig_open(&self, &config);
    for (uint64_t pass = 0; pass <= self.schedule->num_passes; pass++) {
        CHECK_OK(rig_begin(&self));
        CHECK_OK(rig_passes(&self, 0, pass));
        CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
        CHECK_EQ(rig_status(&self).in_use[0], 0);
        CHECK_OK(rig_step(&self));
        rig_check(&self);
    }
    CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0])); /* between steps */
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}

/* Fault rows 35. */
PST_TEST(SchedulerOrder, EndNamesWhatIsMissing)
{
    rig self;
    const rig_config config = one_f_one_b(4, 0, 8);
    rig_open(&self, &config);
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_passes(&self, 0, 15));
    CHECK_STATUS(pst_scheduler_step_end(self.scheduler, self.streams[0]), PST_E_ORDER);
    CHECK_SAID("end of the step: the schedule's visit 60, backward of layer 3, micro-batch 7, is "
               "missing; 1F1B, 8 micro-batches");
    recovers(&self, 1);
    CHECK_OK(rig_begin(&self));
    CHECK_STATUS(rig_begin(&self), PST_E_ORDER);
    CHECK_OK(rig_passes(&self, 0, 16));
    CHECK_OK(rig_end(&self));
    rig_check(&self);
    rig_close(&self);
}

PST_TEST(SchedulerOrder, PartsOnceAndBeforeTheEnd)
{
    rig self;
    rig_config config = one_f_one_b(4, 0, 3);
    config.num_parts = 2;
    config.announces = 50;
    rig_open(&self, &config);
    const pst_stream stream = self.streams[0];
    CHECK_OK(rig_begin(&self));
    CHECK_OK(begin(&self, PST_PASS_FORWARD, 0, 0));
    CHECK_OK(pst_scheduler_forward_part(self.scheduler, 0, 0, 0, 1, NULL, stream));
    CHECK_STATUS(pst_scheduler_forward_part(self.scheduler, 0, 0, 0, 1, NULL, stream), PST_E_ORDER);
    CHECK_SAID("forward of layer 0, micro-batch 0: part 1 was announced already");
    recovers(&self, 1);
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_visit(&self, &self.schedule->passes[0], 0, 0));
    CHECK_STATUS(pst_scheduler_forward_part(self.scheduler, 0, 0, 0, 0, NULL, stream), PST_E_ORDER);
    recovers(&self, 2);
    CHECK_OK(rig_begin(&self));
    CHECK_OK(begin(&self, PST_PASS_FORWARD, 0, 0));
    CHECK_STATUS(pst_scheduler_forward_part(self.scheduler, 0, 0, 0, 2, NULL, stream),
                 PST_E_INVALID);
    recovers(&self, 3);
    rig_close(&self);
}

/* ---- computed again ---- */

PST_TEST(SchedulerOrder, RecomputesWithinItsBackwardOnly)
{
    rig self;
    rig_config config = one_f_one_b(1, 0, 2);
    config.keep[1] = PST_KEEP_RECOMPUTED;
    rig_open(&self, &config);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_passes(&self, 0, 1));
    for (uint32_t layer = 3; layer > 1; layer--)
        CHECK_OK(rig_visit(&self, &self.schedule->passes[1], layer, 0));
    CHECK_OK(begin(&self, PST_PASS_BACKWARD, 1, 0));
    CHECK_EQ(self.visit.first_token, 0);
    CHECK_OK(begin(&self, PST_PASS_FORWARD, 1, 0));
    CHECK(!self.visit.is_live);
    CHECK_STATUS(end(&self, PST_PASS_BACKWARD, 1, 0), PST_E_ORDER);
    recovers(&self, 1);
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_passes(&self, 0, 2));
    CHECK_STATUS(begin(&self, PST_PASS_FORWARD, 1, 0), PST_E_ORDER);
    recovers(&self, 2);
    rig_close(&self);
}

/* ---- evaluation ---- */

static void evaluate(rig *self)
{
    pst_step_options options = PST_STEP_OPTIONS_INIT;
    options.forward_only = true;
    CHECK_OK(pst_scheduler_step_begin(self->scheduler, &options, self->streams[0]));
    for (uint32_t m = 0; m < 3; m++)
        for (uint32_t l = 0; l < self->config.num_layers[0]; l++) {
            CHECK_OK(begin(self, PST_PASS_FORWARD, l, m));
            CHECK(!self->visit.is_live && self->visit.set == 0);
            CHECK_OK(end(self, PST_PASS_FORWARD, l, m));
        }
    CHECK_OK(pst_scheduler_step_end(self->scheduler, self->streams[0]));
}

PST_TEST(SchedulerOrder, EvaluationTouchesNothing)
{
    rig self;
    rig_config config = one_f_one_b(4, 0, 4);
    count_calls(&config);
    rig_open(&self, &config);
    pst_graph *graph = NULL;
    pst_step_options options = PST_STEP_OPTIONS_INIT;
    CHECK_OK(rig_capture(&self, &graph));
    CHECK_OK(pst_graph_launch(graph, self.streams[0]));
    rig_check(&self);
    const uint64_t calls = lazy_calls(self.device);
    evaluate(&self);
    CHECK_EQ(lazy_calls(self.device), calls);
    CHECK_OK(pst_graph_launch(graph, self.streams[0]));
    rig_check(&self);
    self.counts[0] = RIG_CAPACITY + 1; /* a fault of the replay behind it is seen */
    evaluate(&self);
    CHECK_OK(pst_graph_launch(graph, self.streams[0]));
    pst_pool_status status;
    CHECK_OK(pst_device_synchronize(self.device));
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.fault, PST_FAULT_COUNT);
    CHECK_EQ(status.step_valid, 0);
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, self.streams[0]));
    rig_set_counts(&self, 0);
    *self.mismatches = 0; /* of the visit that was lost */
    options.forward_only = true;
    CHECK_OK(pst_scheduler_step_begin(self.scheduler, &options, self.streams[0]));
    CHECK_STATUS(begin(&self, PST_PASS_BACKWARD, 3, 0), PST_E_ORDER);
    recovers(&self, 0);
    CHECK_OK(pst_graph_destroy(graph));
    rig_close(&self);
}

/* ---- recording ---- */

PST_TEST(SchedulerRecording, EvaluationBeforeIsNotRecorded)
{
    rig self;
    rig_config config = one_f_one_b(4, 0, 8);
    pst_schedule_config found = PST_SCHEDULE_CONFIG_INIT;
    uint64_t digest;
    config.records = true;
    rig_open(&self, &config);
    CHECK_STATUS(pst_scheduler_get_schedule(self.scheduler, &found), PST_E_AGAIN);
    CHECK_STATUS(pst_scheduler_get_digest(self.scheduler, &digest), PST_E_AGAIN);
    evaluate(&self);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    CHECK_OK(pst_scheduler_get_schedule(self.scheduler, &found));
    CHECK_EQ(found.kind, PST_SCHEDULE_1F1B);
    CHECK_EQ(found.num_micro_batches, 8);
    CHECK(found.passes == NULL);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}

PST_TEST(SchedulerRecording, StartsOverAfterAbort)
{
    rig self;
    rig_config config = one_f_one_b(4, 0, 4);
    pst_schedule_config found = PST_SCHEDULE_CONFIG_INIT;
    config.records = true;
    rig_open(&self, &config);
    for (uint64_t pass = 0; pass <= self.schedule->num_passes; pass++) {
        CHECK_OK(rig_begin(&self));
        CHECK_OK(rig_passes(&self, 0, pass));
        CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
        CHECK_STATUS(pst_scheduler_get_schedule(self.scheduler, &found), PST_E_AGAIN);
    }
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_passes(&self, 0, 1));
    CHECK_STATUS(begin(&self, PST_PASS_BACKWARD, 2, 0), PST_E_ORDER);
    CHECK_SAID("backward of layer 2, micro-batch 0: its pass begins with layer 3; while recording");
    CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}

/* Of 3 micro-batches on 4 stages nobody can tell 1F1B from GPipe but who knows the pipeline. */
PST_TEST(SchedulerRecording, IsRecognised)
{
    pst_schedule_config found = PST_SCHEDULE_CONFIG_INIT;
    for (uint32_t known = 0; known < 2; known++) {
        rig self;
        rig_config config = one_f_one_b(4, 0, 3);
        pst_step_options options = PST_STEP_OPTIONS_INIT;
        config.records = true;
        config.scheduler.num_stages = known ? 4 : 0;
        rig_open(&self, &config);
        CHECK_OK(rig_step(&self));
        rig_check(&self);
        CHECK_OK(pst_scheduler_get_schedule(self.scheduler, &found));
        CHECK_EQ(found.kind, known ? PST_SCHEDULE_1F1B : PST_SCHEDULE_LIST);
        options.num_micro_batches = 12;
        self.config.records = false;
        if (known) {
            rig_set_micro_batches(&self, 12);
            CHECK_OK(rig_step(&self));
            rig_check(&self);
        } else {
            CHECK_STATUS(pst_scheduler_step_begin(self.scheduler, &options, self.streams[0]),
                         PST_E_INVALID);
            CHECK_SAID("num_micro_batches 12: the schedule has 3 micro-batches, and is a list");
            CHECK_OK(rig_step(&self));
            rig_check(&self);
        }
        rig_close(&self);
    }
}

PST_TEST(SchedulerRecording, MoreInFlightThanSlots)
{
    rig self;
    rig_config config = one_f_one_b(4, 0, 8);
    config.records = true;
    config.scheduler.max_slots = 3;
    rig_open(&self, &config);
    CHECK_OK(rig_begin(&self));
    CHECK_STATUS(rig_passes(&self, 0, 16), PST_E_INVALID);
    CHECK_SAID("chunk 0: the recorded order needs 4 slots, 3 are allowed");
    CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
    CHECK_STATUS(pst_scheduler_set_schedule(self.scheduler, self.schedule), PST_E_INVALID);
    CHECK_SAID("chunk 0: the schedule needs 4 slots, 3 are allowed");
    self.config.schedule.stage = 1;
    rig_set_micro_batches(&self, 8);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}
