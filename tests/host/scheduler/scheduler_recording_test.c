/* The recorded step: what it waits for on a device that works late, and what it refuses. */
#include "tests/host/scheduler/rig.h"
#include "tests/lazy/lazy_device.h"

static void is_right_late(const rig_config *given, uint32_t seeds)
{
    for (uint32_t seed = 1; seed <= seeds; seed++) {
        const lazy_options options = {.seed = seed};
        rig_config config = *given;
        rig self;
        config.seed = seed;
        config.records = true;
        config.mode = PST_POOL_CONCURRENT;
        CHECK_OK(pst_device_open("host", 0, &config.device));
        lazy_make(config.device, &options);
        rig_open(&self, &config);
        CHECK_OK(rig_step(&self));
        rig_check(&self);
        rig_close(&self);
        if (psti_test_failed())
            return;
    }
}

/* A restore takes the set out of which another visit is still stashed. */
PST_TEST(SchedulerRecording, RingWaitsForTheStashBefore)
{
    rig_config config = RIG_CONFIG;
    config.schedule.num_stages = 3;
    config.schedule.num_micro_batches = 5;
    config.num_layers[0] = 1;
    config.scheduler.one_ring = true;
    config.scheduler.num_sources = 1;
    is_right_late(&config, 30);
}

PST_TEST(SchedulerRecording, BuffersWaitForTheSwapBefore)
{
    rig_config config = RIG_CONFIG;
    config.schedule.num_stages = 3;
    config.schedule.num_micro_batches = 5;
    config.num_layers[0] = 1;
    config.keep[0] = PST_KEEP_SWAPPED;
    config.policy[0].swap_tokens = RIG_TOKENS;
    is_right_late(&config, 60);
}

PST_TEST(SchedulerRecording, PairsOnTwoStreams)
{
    for (uint32_t own = 0; own < 2; own++) {
        rig_config config = RIG_CONFIG;
        config.schedule.kind = PST_SCHEDULE_DUALPIPE;
        config.schedule.num_stages = 4;
        config.schedule.num_micro_batches = 8;
        config.num_layers[0] = config.num_layers[1] = 1;
        config.two_streams = 1;
        config.own = own;
        config.scheduler.max_slots = 16;
        config.scheduler.num_sources = config.scheduler.num_destinations = 1;
        is_right_late(&config, 20);
    }
}

PST_TEST(SchedulerRecording, WhatIsNoOrder)
{
    rig self;
    rig_config config = RIG_CONFIG;
    pst_visit visit;
    config.schedule.num_micro_batches = 2;
    config.records = true;
    rig_open(&self, &config);
    const pst_stream stream = self.streams[0];
    CHECK_OK(rig_begin(&self));
    CHECK_STATUS(rig_end(&self), PST_E_ORDER);
    CHECK_SAID("end of the step: nothing was recorded");
    CHECK_OK(pst_scheduler_abort(self.scheduler, stream));
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_visit(&self, &self.schedule->passes[0], 0, 0));
    CHECK_STATUS(pst_scheduler_forward_begin(self.scheduler, 0, 2, 0, stream, &visit), PST_E_ORDER);
    CHECK_SAID("forward of layer 2, micro-batch 0: layer 1 of that pass comes next");
    CHECK_OK(pst_scheduler_abort(self.scheduler, stream));
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_visit(&self, &self.schedule->passes[0], 0, 0));
    CHECK_STATUS(rig_end(&self), PST_E_ORDER);
    CHECK_SAID("end of the step: forward of layer 1, micro-batch 0 is missing");
    CHECK_OK(pst_scheduler_abort(self.scheduler, stream));
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}

/* Without the pipeline only 1F1B is sure to be what other numbers of micro-batches run. */
PST_TEST(SchedulerRecording, OtherKindsAreListsUnlessThePipelineIsKnown)
{
    for (uint32_t known = 0; known < 2; known++) {
        rig self;
        rig_config config = RIG_CONFIG;
        pst_schedule_config found = PST_SCHEDULE_CONFIG_INIT;
        config.schedule.kind = PST_SCHEDULE_ZB_H1;
        config.schedule.num_stages = 2;
        config.schedule.num_micro_batches = 6;
        config.records = true;
        config.scheduler.num_stages = known ? 2 : 0;
        rig_open(&self, &config);
        CHECK_OK(rig_step(&self));
        rig_check(&self);
        CHECK_OK(pst_scheduler_get_schedule(self.scheduler, &found));
        CHECK_EQ(found.kind, known ? PST_SCHEDULE_ZB_H1 : PST_SCHEDULE_LIST);
        rig_close(&self);
    }
}
