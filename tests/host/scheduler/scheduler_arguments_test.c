/* Arguments that every function of a scheduler refuses: no scheduler, no out parameter, no such place. */
#include <stdio.h>

#include "tests/host/scheduler/rig.h"

static rig_config one_stage(void)
{
    rig_config config = RIG_CONFIG;
    config.schedule.num_stages = 1;
    config.schedule.num_micro_batches = 1;
    return config;
}

static void recovers(rig *self)
{
    CHECK_OK(pst_scheduler_abort(self->scheduler, self->streams[0]));
    CHECK_OK(rig_step(self));
    rig_check(self);
}

#define REFUSES(call, said)                \
    do {                                   \
        CHECK_STATUS(call, PST_E_INVALID); \
        CHECK_SAID(said);                  \
    } while (0)

PST_TEST(SchedulerArguments, EveryFunctionWantsAScheduler)
{
    rig self;
    rig_config config = one_stage();
    pst_visit visit;
    pst_ticket ticket;
    pst_schedule_config schedule = PST_INIT(pst_schedule_config);
    pst_scheduler_stats stats;
    uint64_t digest = 0;
    rig_open(&self, &config);
    pst_scheduler *const none = NULL;
    const pst_stream stream = self.streams[0];
    static const char said[] = "self is NULL";
    REFUSES(pst_scheduler_step_begin(none, NULL, stream), said);
    REFUSES(pst_scheduler_step_end(none, stream), said);
    REFUSES(pst_scheduler_abort(none, stream), said);
    REFUSES(pst_scheduler_forward_begin(none, 0, 0, 0, stream, &visit), said);
    REFUSES(pst_scheduler_forward_part(none, 0, 0, 0, 0, NULL, stream), said);
    REFUSES(pst_scheduler_forward_end(none, 0, 0, 0, NULL, stream), said);
    REFUSES(pst_scheduler_backward_begin(none, PST_PASS_BACKWARD, 0, 0, 0, stream, &visit), said);
    REFUSES(pst_scheduler_backward_end(none, PST_PASS_BACKWARD, 0, 0, 0, stream), said);
    REFUSES(pst_scheduler_get_ticket(none, PST_PASS_FORWARD, 0, 0, 0, 0, &ticket, NULL), said);
    REFUSES(
        pst_scheduler_layer_capture_begin(none, PST_PASS_FORWARD, 0, 0, 0, NULL, stream, &visit),
        said);
    REFUSES(pst_scheduler_layer_capture_end(none, PST_PASS_FORWARD, 0, 0, 0, stream), said);
    REFUSES(pst_scheduler_set_schedule(none, self.schedule), said);
    REFUSES(pst_scheduler_get_schedule(none, &schedule), said);
    REFUSES(pst_scheduler_get_stats(none, &stats), said);
    REFUSES(pst_scheduler_get_digest(none, &digest), said);
    CHECK_OK(pst_scheduler_destroy(none));
    rig_close(&self);
}

PST_TEST(SchedulerArguments, OutParametersAreWanted)
{
    rig self;
    rig_config config = one_stage();
    uint64_t bytes = 0;
    config.scheduler.capture = PST_CAPTURE_LAYERS;
    rig_open(&self, &config);
    pst_scheduler *const scheduler = self.scheduler;
    const pst_scheduler_config *const given = &self.config.scheduler;
    const pst_stream stream = self.streams[0];
    REFUSES(pst_scheduler_create(given, NULL), "scheduler_out is NULL");
    REFUSES(pst_scheduler_bytes(given, NULL, &bytes), "an out parameter is NULL");
    REFUSES(pst_scheduler_bytes(given, &bytes, NULL), "an out parameter is NULL");
    REFUSES(pst_scheduler_get_digest(scheduler, NULL), "digest_out is NULL");
    REFUSES(pst_scheduler_get_ticket(scheduler, PST_PASS_FORWARD, 0, 0, 0, 0, NULL, NULL),
            "ticket_out is NULL");
    REFUSES(
        pst_scheduler_layer_capture_begin(scheduler, PST_PASS_FORWARD, 0, 0, 0, NULL, stream, NULL),
        "visit_out is NULL");
    CHECK_OK(rig_begin(&self));
    REFUSES(pst_scheduler_forward_begin(scheduler, 0, 0, 0, stream, NULL), "visit_out is NULL");
    recovers(&self);
    rig_close(&self);
}

/* In graphs of layers and in hooks: what is no pass, chunk, layer or slot. */
PST_TEST(SchedulerArguments, NoSuchPlace)
{
    static const struct place {
        int kind;
        uint32_t chunk, layer, slot;
        const char *said;
    } places[] = {
        {-1, 0, 0, 0, "kind -1: allowed are 0 to 3"},
        {4, 0, 0, 0, "kind 4: allowed are 0 to 3"},
        {0, 1, 0, 0, "chunk 1, layer 0, slot 0: there is no such layer or slot"},
        {0, 0, 4, 0, "chunk 0, layer 4, slot 0: there is no such layer or slot"},
        {0, 0, 0, 9, "chunk 0, layer 0, slot 9: there is no such layer or slot"},
    };
    rig self;
    rig_config config = one_stage();
    pst_visit visit;
    config.scheduler.capture = PST_CAPTURE_LAYERS;
    rig_open(&self, &config);
    const pst_stream stream = self.streams[0];
    for (uint32_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const struct place at = places[i];
        REFUSES(pst_scheduler_layer_capture_begin(self.scheduler, (pst_pass_kind)at.kind, at.chunk,
                                                  at.layer, at.slot, NULL, stream, &visit),
                at.said);
        REFUSES(pst_scheduler_layer_capture_end(self.scheduler, (pst_pass_kind)at.kind, at.chunk,
                                                at.layer, at.slot, stream),
                at.said);
    }
    for (int kind = -1; kind <= 4; kind += kind == 0 ? 4 : 1) {
        char said[64];
        snprintf(said, sizeof(said), "kind %d: allowed are the backwards, 1 to 3", kind);
        CHECK_OK(rig_begin(&self));
        REFUSES(pst_scheduler_backward_begin(self.scheduler, (pst_pass_kind)kind, 0, 0, 0, stream,
                                             &visit),
                said);
        recovers(&self);
    }
    rig_close(&self);
}

PST_TEST(SchedulerArguments, TooEarlyAndTooManyParts)
{
    rig self;
    rig_config config = one_stage();
    pst_visit visit;
    config.records = true;
    config.scheduler.capture = PST_CAPTURE_LAYERS;
    rig_open(&self, &config);
    const pst_stream stream = self.streams[0];
    CHECK_STATUS(pst_scheduler_step_end(self.scheduler, stream), PST_E_ORDER);
    CHECK_SAID("no step is open");
    CHECK_STATUS(pst_scheduler_layer_capture_begin(self.scheduler, PST_PASS_FORWARD, 0, 0, 0, NULL,
                                                   stream, &visit),
                 PST_E_ORDER);
    CHECK_SAID("no schedule yet: graphs are captured after the recorded step");
    CHECK_OK(rig_begin(&self));
    CHECK_OK(pst_scheduler_forward_begin(self.scheduler, 0, 0, 0, stream, &visit));
    REFUSES(pst_scheduler_forward_part(self.scheduler, 0, 0, 0, PST_MAX_PARTS, NULL, stream),
            "part 4: allowed are 0 to 3");
    recovers(&self);
    rig_close(&self);
}
