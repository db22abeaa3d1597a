/* Whole steps through the hooks, on the host device. */
#include "tests/host/scheduler/rig.h"

static rig_config one_f_one_b(uint32_t stages, uint32_t stage, uint32_t micro_batches)
{
    rig_config config = RIG_CONFIG;
    config.schedule.num_stages = stages;
    config.schedule.stage = stage;
    config.schedule.num_micro_batches = micro_batches;
    return config;
}

PST_TEST(Scheduler, StepOf1F1B)
{
    rig self;
    const rig_config config = one_f_one_b(4, 0, 8);
    rig_open(&self, &config);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    CHECK_EQ(rig_status(&self).high_water[0], 30); /* P3 of the vectors */
    rig_close(&self);
}
