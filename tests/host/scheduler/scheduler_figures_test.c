/* Times and counts of a scheduler: what they are of, and of what not. */
#include "tests/host/scheduler/rig.h"
#include "tests/lazy/lazy_device.h"

typedef struct waits_seen {
    uint32_t stream_index;
    bool is_behind_wait;
    uint32_t waits, unmeasured;
} waits_seen;

static void watch_waits(void *context, const lazy_seen *seen)
{
    waits_seen *all = context;
    if (seen->runs || seen->stream_index != all->stream_index)
        return;
    all->waits += seen->kind == LAZY_WAIT;
    all->unmeasured += all->is_behind_wait && seen->kind != LAZY_RECORD;
    all->is_behind_wait = seen->kind == LAZY_WAIT;
}

/* Restores that the callback put off are among the times, too. */
PST_TEST(SchedulerFigures, LateRestoresAreMeasured)
{
    rig self;
    rig_config config = rig_first_of_four(4);
    waits_seen all = {.stream_index = 1};
    config.own = true;
    config.defers = 100;
    config.scheduler.measures = true;
    config.mode = PST_POOL_CONCURRENT;
    rig_make_lazy(&config, false);
    rig_open(&self, &config);
    CHECK_OK(rig_begin(&self));
    lazy_watch(self.device, watch_waits, &all);
    CHECK_OK(rig_passes(&self, 0, self.schedule->num_passes));
    lazy_watch(self.device, NULL, NULL);
    CHECK_OK(rig_end(&self));
    rig_check(&self);
    CHECK(all.waits > 20);
    CHECK_EQ(all.unmeasured, 0);
    rig_close(&self);
}

/* Every source is a set of its own, so only backwards wait. */
PST_TEST(SchedulerFigures, TimesByDirection)
{
    rig self;
    rig_config config = rig_first_of_four(2);
    pst_scheduler_stats stats;
    config.scheduler.num_sources = 8;
    config.scheduler.keeps_nothing = true;
    config.scheduler.measures = true;
    config.mode = PST_POOL_CONCURRENT;
    rig_make_lazy(&config, false);
    rig_open(&self, &config);
    rig_is_right(&self);
    CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
    CHECK_EQ(stats.exposed_forward_ns, 0);
    CHECK(stats.exposed_backward_ns > 0);
    CHECK_EQ(stats.worst.kind, PST_PASS_BACKWARD);
    rig_close(&self);
}

/* Measured on one device call that fails: later steps are measured all the same. */
PST_TEST(SchedulerFigures, FiguresOfItsOwnStepsOnly)
{
    rig self;
    rig_config config = rig_first_of_four(8);
    pst_scheduler_stats stats;
    config.num_pages = 21;
    config.scheduler.measures = true;
    rig_make_lazy(&config, true);
    rig_open(&self, &config);
    const uint64_t before = lazy_calls(self.device);
    CHECK_OK(rig_step(&self));
    const uint64_t calls = lazy_calls(self.device) - before;
    CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
    CHECK_EQ(stats.lost_steps, 1);
    CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
    CHECK_EQ(stats.lost_steps, 1);
    CHECK_EQ(stats.measured_steps, 1);
    lazy_fail_at(self.device, calls); /* the last one writes the word of the step */
    CHECK_STATUS(rig_step(&self), PST_E_CUDA);
    CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
    for (uint32_t step = 0; step < 2; step++)
        CHECK_OK(rig_step(&self));
    CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
    CHECK_EQ(stats.measured_steps, 3);
    CHECK_OK(pst_scheduler_destroy(self.scheduler));
    CHECK_OK(pst_scheduler_create(&self.config.scheduler, &self.scheduler));
    CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
    CHECK_EQ(stats.lost_steps, 0);
    rig_close(&self);
}
