/* Hooks at the wrong place that need a particular state: pairs, layers computed again, graphs, parts; a
 * callback that fails; and figures that tell them apart. */
#include <stdio.h>

#include "tests/host/arena/arena_scene.h"
#include "tests/host/scheduler/rig.h"

static rig_config of_pipeline(uint32_t stages, uint32_t micro_batches)
{
    rig_config config = RIG_CONFIG;
    config.schedule.num_stages = stages;
    config.schedule.num_micro_batches = micro_batches;
    return config;
}

static void recovers(rig *self)
{
    CHECK_OK(pst_scheduler_abort(self->scheduler, self->streams[0]));
    CHECK_OK(rig_step(self));
    rig_check(self);
}

/* One pass of a pair is over, the other is not: the end names it. */
PST_TEST(SchedulerMisuse, HalfAPairIsMissing)
{
    for (uint32_t half = 0; half < 2; half++) {
        rig self;
        rig_config config = of_pipeline(4, 8);
        char said[64];
        config.schedule.kind = PST_SCHEDULE_DUALPIPE;
        config.num_layers[0] = config.num_layers[1] = 2;
        rig_open(&self, &config);
        uint64_t pair = 0;
        while (!self.schedule->passes[pair].pairs)
            pair++;
        const pst_pass *one = &self.schedule->passes[pair + half];
        const pst_pass *other = &self.schedule->passes[pair + 1 - half];
        const bool is_forward = other->kind == PST_PASS_FORWARD;
        CHECK_OK(rig_begin(&self));
        CHECK_OK(rig_passes(&self, 0, pair));
        for (uint32_t n = 0; n < 2; n++)
            CHECK_OK(rig_visit(&self, one, one->kind == PST_PASS_FORWARD ? n : 1 - n, 0));
        CHECK_STATUS(pst_scheduler_step_end(self.scheduler, self.streams[0]), PST_E_ORDER);
        snprintf(said, sizeof(said), "%s of chunk %u, layer %u, micro-batch %u, is missing",
                 is_forward ? "forward" : "backward", other->chunk, is_forward ? 0 : 1,
                 other->micro_batch);
        CHECK(strstr(pst_last_message(), said) != NULL);
        recovers(&self);
        rig_close(&self);
    }
}

PST_TEST(SchedulerMisuse, ComputedAgainOnceAndItself)
{
    for (uint32_t records = 0; records < 2; records++) {
        rig self;
        rig_config config = of_pipeline(1, 1);
        pst_visit visit;
        config.records = records;
        config.keep[1] = config.keep[2] = PST_KEEP_RECOMPUTED;
        rig_open(&self, &config);
        const pst_stream stream = self.streams[0];
        pst_scheduler *const scheduler = self.scheduler;
        for (uint32_t layer = 1; layer < 3; layer++) {
            CHECK_OK(rig_begin(&self));
            CHECK_OK(rig_passes(&self, 0, 1));
            CHECK_OK(rig_visit(&self, &self.schedule->passes[1], 3, 0));
            CHECK_OK(pst_scheduler_backward_begin(scheduler, PST_PASS_BACKWARD, 0, 2, 0, stream,
                                                  &visit));
            if (layer == 2) /* its own, but twice */
                CHECK_OK(pst_scheduler_forward_begin(scheduler, 0, 2, 0, stream, &visit));
            CHECK_STATUS(pst_scheduler_forward_begin(scheduler, 0, layer, 0, stream, &visit),
                         PST_E_ORDER);
            CHECK_OK(pst_scheduler_abort(scheduler, stream));
        }
        CHECK_OK(rig_step(&self));
        rig_check(&self);
        rig_close(&self);
    }
}

PST_TEST(SchedulerMisuse, PartsOfAGraph)
{
    rig self;
    rig_config config = of_pipeline(4, 3);
    pst_visit visit;
    config.scheduler.capture = PST_CAPTURE_LAYERS;
    rig_open(&self, &config);
    CHECK_OK(rig_capture_layers(&self, 100));
    CHECK_OK(rig_begin(&self));
    CHECK_OK(pst_scheduler_forward_begin(self.scheduler, 0, 0, 0, self.streams[0], &visit));
    CHECK_STATUS(pst_scheduler_forward_part(self.scheduler, 0, 0, 0, 0, NULL, self.streams[0]),
                 PST_E_ORDER);
    CHECK_SAID("forward of layer 0, micro-batch 0: part 0: its graph was captured, so its parts "
               "leave at the end");
    recovers(&self);
    rig_close(&self);
}

/* A graph of a swapped layer reads one buffer: a schedule that gives it the other is refused. */
PST_TEST(SchedulerMisuse, GraphOfAnotherBuffer)
{
    uint32_t refused = 0, taken = 0;
    for (uint32_t kind = 0; kind < 3; kind++)
        for (uint32_t micro_batches = 2; micro_batches < 6; micro_batches++) {
            static const pst_schedule_kind kinds[] = {
                PST_SCHEDULE_GPIPE, PST_SCHEDULE_GPIPE_REVERSED, PST_SCHEDULE_1F1B};
            rig self;
            rig_config config = of_pipeline(5, 5);
            config.num_layers[0] = 3;
            config.scheduler.capture = PST_CAPTURE_LAYERS;
            for (uint32_t l = 0; l < 3; l++) {
                config.keep[l] = PST_KEEP_SWAPPED;
                config.policy[l].swap_tokens = RIG_TOKENS;
            }
            rig_open(&self, &config);
            CHECK_OK(rig_capture_layers(&self, 100));
            self.config.schedule.kind = kinds[kind];
            rig_set_micro_batches(&self, micro_batches);
            const pst_status status = pst_scheduler_set_schedule(self.scheduler, self.schedule);
            if (status == PST_OK) {
                self.config.schedule.num_micro_batches = micro_batches;
                CHECK_OK(rig_step(&self));
                rig_check(&self);
                taken++;
            } else {
                CHECK_STATUS(status, PST_E_INVALID);
                CHECK(strstr(pst_last_message(), "its graph was captured with set") != NULL);
                refused++;
            }
            rig_close(&self);
        }
    CHECK_MSG(refused > 0 && taken > 0, "%u refused, %u taken", refused, taken);
}

/* ---- the callback ---- */

typedef struct answers {
    rig *self;
    pst_destination_fn ask; /* the rig's */
    uint32_t when, how, calls;
} answers;

/* The `when`-th call is answered badly. */
static pst_status answer(void *user, const pst_visit_key *key, uint32_t part, pst_stream stream,
                         pst_buffers *destination_out)
{
    static void *nowhere[1] = {NULL};
    answers *mine = user;
    if (++mine->calls != mine->when)
        return mine->ask(mine->self, key, part, stream, destination_out);
    if (mine->how == 0) /* for good: also when it is due */
        mine->when++;
    else if (mine->how == 1)
        return PST_OK; /* no address */
    destination_out->bases = nowhere;
    return mine->how == 0 ? PST_E_DEVICE_NOMEM : PST_OK;
}

/* Whatever the callback answers, and at whatever call, an abort leaves all whole. */
PST_TEST(SchedulerMisuse, CallbackFailsEverywhere)
{
    for (uint32_t how = 0; how < 3; how++) {
        rig self;
        rig_config config = of_pipeline(2, 3);
        answers all = {.self = &self, .how = how};
        config.own = true;
        config.num_parts = 2;
        config.num_layers[0] = 2;
        rig_open(&self, &config);
        all.ask = self.scheduler->destination;
        self.scheduler->destination = answer;
        self.scheduler->user = &all;
        pst_status status = PST_E_AGAIN;
        uint32_t failed = 0;
        for (uint32_t when = 1; status != PST_OK && when < 100; when++) {
            all.when = when;
            all.calls = 0;
            status = rig_step(&self);
            if (status == PST_OK)
                break;
            CHECK_STATUS(status, how == 0 ? PST_E_DEVICE_NOMEM : PST_E_INVALID);
            CHECK_STATUS(pst_scheduler_step_end(self.scheduler, self.streams[0]), PST_E_ORDER);
            CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
            CHECK_EQ(rig_status(&self).in_use[0], 0);
            for (uint32_t i = 0; i < 2 * self.num_layers * self.num_micro_batches; i++) {
                rig_cell *cell = &self.cell_of[i]; /* the caller frees all */
                uint32_t *const indices[] = {&cell->source, &cell->destinations[0],
                                             &cell->destinations[1]};
                for (uint32_t k = 0; k < 3; k++) {
                    if (*indices[k] != RIG_NONE)
                        self.free_cells[0][self.num_free[0]++] = *indices[k];
                    *indices[k] = RIG_NONE;
                }
            }
            failed++;
        }
        CHECK_OK(status);
        rig_check(&self);
        CHECK_MSG(failed >= 4, "%u", failed);
        rig_close(&self);
    }
}

/* ---- figures ---- */

PST_TEST(SchedulerMisuse, VisitsByWhatBecomesOfThem)
{
    rig self;
    rig_config config = of_pipeline(1, 2);
    pst_scheduler_stats stats;
    config.num_layers[0] = 8;
    config.keep[0] = PST_KEEP_PLANNED;
    config.keep[1] = PST_KEEP_RECOMPUTED;
    config.keep[2] = PST_KEEP_SWAPPED;
    config.policy[2].swap_tokens = 3;
    rig_open(&self, &config);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
    CHECK_EQ(stats.steps, 1);
    CHECK_EQ(stats.visits, 16);
    CHECK_EQ(stats.planned, 2);
    CHECK_EQ(stats.recomputed, 2);
    CHECK_EQ(stats.stashed, 6); /* two sources stay of each micro-batch */
    CHECK_EQ(stats.swapped + stats.kept_in_place, 6);
    CHECK_EQ(stats.restores, 6);
    CHECK_EQ(stats.num_slots, 1);
    CHECK_EQ(stats.num_tickets, 5);
    CHECK_EQ(stats.measured_steps + stats.lost_steps + stats.aborted_steps, 0);
    rig_close(&self);
}

/* An iteration of the arena for each training step; evaluation runs none of it. */
PST_TEST(SchedulerMisuse, ArenaIterations)
{
    rig self;
    arena_scene scene = {.memory = NULL};
    rig_config config = of_pipeline(1, 2);
    pst_step_options options = PST_STEP_OPTIONS_INIT;
    pst_arena_stats stats;
    pst_visit visit;
    scene_open(&scene, "mark 0/malloc 1 512 0 0/free 1");
    CHECK_OK(pst_arena_get_stats(scene.arena, &stats));
    const uint64_t before = stats.iterations;
    config.scheduler.arena = scene.arena;
    rig_open(&self, &config);
    CHECK_OK(rig_step(&self));
    CHECK_OK(rig_step(&self));
    options.forward_only = true;
    CHECK_OK(pst_scheduler_step_begin(self.scheduler, &options, self.streams[0]));
    CHECK_STATUS(pst_scheduler_forward_begin(self.scheduler, 0, 4, 0, self.streams[0], &visit),
                 PST_E_ORDER);
    CHECK_SAID("forward of layer 4, micro-batch 0: there is no such layer");
    recovers(&self);
    CHECK_OK(pst_arena_get_stats(scene.arena, &stats));
    CHECK_EQ(stats.iterations - before, 3);
    rig_close(&self);
    scene_close(&scene);
}

/* ---- slots ---- */

PST_TEST(SchedulerMisuse, OtherNumbersNeedTheirSlots)
{
    rig self;
    const rig_config config = of_pipeline(4, 2);
    pst_step_options options = PST_STEP_OPTIONS_INIT;
    rig_open(&self, &config);
    options.num_micro_batches = 8;
    CHECK_STATUS(pst_scheduler_step_begin(self.scheduler, &options, self.streams[0]),
                 PST_E_INVALID);
    CHECK_SAID("chunk 0: the schedule needs 4 slots, 2 are allowed");
    CHECK_OK(rig_step(&self)); /* as before */
    rig_check(&self);
    rig_close(&self);
}

/* What was compiled for other numbers belongs to its schedule. */
PST_TEST(SchedulerMisuse, AnotherScheduleHasItsOwnNumbers)
{
    rig self;
    const rig_config config = of_pipeline(4, 8);
    rig_open(&self, &config);
    rig_set_micro_batches(&self, 6);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    self.config.schedule.kind = PST_SCHEDULE_ZB_H1;
    rig_set_micro_batches(&self, 8);
    CHECK_OK(pst_scheduler_set_schedule(self.scheduler, self.schedule));
    CHECK_OK(rig_step(&self));
    rig_set_micro_batches(&self, 6);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}

/* What a recorded step stashes and nobody restores for good is released by its end. */
PST_TEST(SchedulerMisuse, RecordedStepsLeaveNoPages)
{
    static const pst_pass forwards[] = {{.micro_batch = 0}, {.micro_batch = 1}};
    static const pst_pass no_weights[] = {{.micro_batch = 0},
                                          {.kind = PST_PASS_BACKWARD_INPUT, .micro_batch = 0}};
    for (uint32_t i = 0; i < 2; i++) {
        rig self;
        rig_config config = of_pipeline(1, 1);
        config.schedule = (pst_schedule_config)PST_SCHEDULE_CONFIG_INIT;
        config.schedule.kind = PST_SCHEDULE_LIST;
        config.schedule.passes = i ? no_weights : forwards;
        config.schedule.num_passes = 2;
        config.records = true;
        rig_open(&self, &config);
        if (!psti_test_failed()) {
            CHECK_OK(rig_step(&self));
            rig_check(&self);
            CHECK_OK(rig_step(&self));
            rig_check(&self);
        }
        rig_close(&self);
    }
}
