/* Layers whose gated activation stashes and restores with the scheduler's tickets: what it computes is
 * what it computes without pages, and the bytes beside it are those that were kept. */
#include <pagestash/glu.h>

#include "tests/harness.h"
#include "tests/host/scheduler/rig.h"
#include "tests/host/scheduler/scheduler_glu.h"
#include "tests/lazy/lazy_device.h"

static void make_late(glu_step_config *config, uint64_t seed)
{
    const lazy_options late = {.seed = seed};
    CHECK_OK(pst_device_open("host", 0, &config->device));
    lazy_make(config->device, &late);
}

static void run_steps(const glu_step_config *config)
{
    glu_step self;
    pst_graph *graph = NULL;
    glu_step_open(&self, config);
    for (uint32_t step = 0; step < 2 && !psti_test_failed(); step++) {
        CHECK_OK(glu_step_run(&self));
        glu_step_check(&self);
    }
    CHECK_OK(pst_graph_begin(self.device, self.stream));
    CHECK_OK(glu_step_run(&self));
    CHECK_OK(pst_graph_end(self.device, self.stream, &graph));
    for (uint64_t replay = 1; replay < 3 && !psti_test_failed(); replay++) {
        glu_step_draw(&self, replay);
        CHECK_OK(pst_graph_launch(graph, self.stream));
        glu_step_check(&self);
    }
    CHECK_OK(pst_graph_destroy(graph));
    glu_step_close(&self);
}

/* Pages on the device alone, written to the host by the activation, and demoted; each with one part and
 * with a second one that the scheduler stashes; eagerly and late. */
PST_TEST(SchedulerGlu, ComputesAsWithoutPages)
{
    static const uint32_t streams[] = {1, 2, 4};
    for (uint32_t i = 0; i < 36 && !psti_test_failed(); i++) {
        glu_step_config config = {.has_plain = i % 2, .num_streams = streams[i / 2 % 3]};
        const uint32_t place = i / 6 % 3;
        if (place > 0)
            config.policy = (pst_layer_policy){.host_num = 1, .host_den = place + 1};
        if (place == 2 && config.num_streams > 1)
            config.policy.move = PST_MOVE_DEMOTE;
        if (i >= 18)
            make_late(&config, i);
        run_steps(&config);
    }
}

/* What the activation wrote to the host is on the device again when its backward reads it. */
PST_TEST(SchedulerGlu, PagesComeBackAhead)
{
    for (uint32_t demotes = 0; demotes < 2; demotes++) {
        glu_step self;
        glu_step_config config = {.num_streams = 2, .watches_host = true};
        config.policy = (pst_layer_policy){.host_num = 1, .host_den = 1};
        config.policy.move = demotes ? PST_MOVE_DEMOTE : PST_MOVE_DIRECT;
        glu_step_open(&self, &config);
        CHECK_OK(glu_step_run(&self));
        glu_step_check(&self);
        CHECK(self.num_read > 0);
        CHECK_EQ(self.num_read_on_host, 0);
        CHECK(self.status.promoted_pages > 0);
        CHECK_EQ(self.status.promoted_pages,
                 demotes ? self.status.demoted_pages : self.status.offloaded_pages);
        glu_step_close(&self);
    }
}

/* A layer of nothing else takes no copy, no destination and no wait of the scheduler's. */
PST_TEST(SchedulerGlu, NothingElseIsEnqueued)
{
    glu_step self;
    pst_scheduler_stats stats;
    const glu_step_config config = {.num_streams = 2};
    glu_step_open(&self, &config);
    CHECK_OK(glu_step_run(&self));
    CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
    CHECK(stats.stashed > 0);
    CHECK_EQ(stats.restores, 0);
    CHECK_EQ(stats.waits, 2 * config.num_streams); /* the step's begin and end */
    glu_step_check(&self);
    glu_step_close(&self);
}

static pst_scheduler_config as_opened(const glu_step *self)
{
    pst_scheduler_config config = PST_SCHEDULER_CONFIG_INIT;
    config.pool = self->pool;
    config.schedule = self->schedule;
    config.layers = self->layers;
    config.num_layers = GLU_STEP_LAYERS;
    return config;
}

PST_TEST(SchedulerGlu, RefusedAtCreation)
{
    glu_step self;
    pst_scheduler *scheduler = NULL;
    pst_pool_config ordered = PST_POOL_CONFIG_INIT;
    pst_pool *pool = NULL;
    const glu_step_config config = {.has_plain = true};
    glu_step_open(&self, &config);
    pst_scheduler_config made = as_opened(&self);
    ordered.num_pages = 8;
    CHECK_OK(pst_pool_create(self.device, &ordered, &pool));
    made.pool = pool;
    CHECK_STATUS(pst_scheduler_create(&made, &scheduler), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "concurrent pool"));
    made.pool = self.pool;
    self.parts[0].destinations = self.parts[0].sources;
    CHECK_STATUS(pst_scheduler_create(&made, &scheduler), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "destinations is not NULL"));
    self.parts[0].destinations = NULL;
    pst_dirty *const dirty[2] = {NULL, NULL};
    self.parts[0].dirty = dirty;
    CHECK_STATUS(pst_scheduler_create(&made, &scheduler), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "dirty is not NULL"));
    CHECK_OK(pst_pool_destroy(pool));
    glu_step_close(&self);
}

PST_TEST(SchedulerGlu, TicketsOfOpenVisitsOnly)
{
    glu_step self;
    pst_visit visit;
    pst_ticket ticket = {7};
    pst_restore_pages pages = PST_RESTORE_KEEP;
    pst_step_options evaluation = PST_STEP_OPTIONS_INIT;
    const glu_step_config config = {.has_plain = true};
    glu_step_open(&self, &config);
    pst_scheduler *s = self.scheduler;
#define GET(kind, layer, slot, part) \
    pst_scheduler_get_ticket(s, kind, 0, layer, slot, part, &ticket, &pages)
    CHECK_STATUS(GET(PST_PASS_FORWARD, 0, 0, 0), PST_E_INVALID); /* a capture of no layers */
    CHECK_OK(pst_scheduler_step_begin(s, NULL, self.stream));
    CHECK_STATUS(GET(PST_PASS_FORWARD, 0, 0, 0), PST_E_ORDER);
    CHECK_OK(pst_scheduler_forward_begin(s, 0, 0, 0, self.stream, &visit));
    CHECK_STATUS(GET(PST_PASS_FORWARD, 0, visit.slot, 1), PST_E_INVALID); /* not a GLU's */
    CHECK_STATUS(GET(PST_PASS_FORWARD, 0, visit.slot, 2), PST_E_INVALID);
    CHECK_STATUS(GET(PST_PASS_FORWARD, 1, visit.slot, 0), PST_E_ORDER);
    CHECK_STATUS(GET(PST_PASS_BACKWARD, 0, visit.slot, 0), PST_E_ORDER);
    CHECK_STATUS(GET(PST_PASS_FORWARD, 0, 99, 0), PST_E_INVALID);
    CHECK_STATUS(GET(PST_PASS_FORWARD, 9, 0, 0), PST_E_INVALID);
    CHECK_EQ(ticket.id, 7); /* no out parameter was written, and no step broken */
    CHECK_OK(GET(PST_PASS_FORWARD, 0, visit.slot, 0));
    CHECK(ticket.id != 0 && ticket.id != 7);
    CHECK_EQ(pages, PST_RESTORE_CONSUME);
    CHECK_STATUS(pst_scheduler_forward_part(s, 0, 0, 0, 0, NULL, self.stream), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "pst_glu_forward stashes it"));
    CHECK_STATUS(GET(PST_PASS_FORWARD, 0, visit.slot, 0), PST_E_ORDER); /* broken */
    CHECK_OK(pst_scheduler_abort(s, self.stream));
    evaluation.forward_only = true;
    CHECK_OK(pst_scheduler_step_begin(s, &evaluation, self.stream));
    CHECK_OK(pst_scheduler_forward_begin(s, 0, 0, 0, self.stream, &visit));
    CHECK_OK(GET(PST_PASS_FORWARD, 0, visit.slot, 0));
    CHECK_EQ(ticket.id, 0);
    CHECK_OK(pst_scheduler_forward_end(s, 0, 0, 0, NULL, self.stream));
    CHECK_OK(pst_scheduler_step_end(s, self.stream));
#undef GET
    CHECK_OK(glu_step_run(&self));
    glu_step_check(&self);
    glu_step_close(&self);
}

/* A backward that leaves the pages behind is found by the slot's next stash, and undone by an abort. */
PST_TEST(SchedulerGlu, PagesLeftBehind)
{
    glu_step self;
    pst_pool_status status;
    glu_step_config config = {.forgets = true};
    glu_step_open(&self, &config);
    CHECK_OK(glu_step_run(&self));
    CHECK_OK(pst_device_synchronize(self.device));
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.fault, PST_FAULT_LIVE);
    CHECK_EQ(status.step_valid, 0);
    CHECK_OK(pst_scheduler_abort(self.scheduler, self.stream));
    self.config.forgets = false;
    CHECK_OK(glu_step_run(&self));
    glu_step_check(&self);
    glu_step_close(&self);
}

/* An input's backward without a weight pass is the last to read; while recording nobody knows, and what
 * was kept is released behind it. */
PST_TEST(SchedulerGlu, InputBackwardAlone)
{
    static const pst_pass passes[] = {{.kind = PST_PASS_FORWARD},
                                      {.kind = PST_PASS_BACKWARD_INPUT},
                                      {.kind = PST_PASS_BACKWARD_WEIGHT},
                                      {.kind = PST_PASS_FORWARD, .micro_batch = 1},
                                      {.kind = PST_PASS_BACKWARD_INPUT, .micro_batch = 1}};
    for (uint64_t seed = 0; seed < 20 && !psti_test_failed(); seed++) {
        rig self;
        rig_config config = RIG_CONFIG;
        const lazy_options late = {.seed = seed};
        CHECK_OK(pst_device_open("host", 0, &config.device));
        lazy_make(config.device, &late);
        config.schedule.kind = PST_SCHEDULE_LIST;
        config.schedule.passes = passes;
        config.schedule.num_passes = 5;
        config.mode = PST_POOL_CONCURRENT;
        config.glus = 1;
        config.own = seed % 2;
        config.records = seed % 4 < 2;
        config.scheduler.keeps_nothing = true;
        rig_open(&self, &config);
        rig_is_right(&self);
        rig_is_right(&self);
        rig_close(&self);
    }
}

/* ---- graphs of layers ---- */

static const pst_pass alone[] = {{.kind = PST_PASS_FORWARD},
                                 {.kind = PST_PASS_BACKWARD_INPUT},
                                 {.kind = PST_PASS_FORWARD, .micro_batch = 1},
                                 {.kind = PST_PASS_BACKWARD_INPUT, .micro_batch = 1},
                                 {.kind = PST_PASS_BACKWARD_WEIGHT, .micro_batch = 1}};

static rig_config graphs_of(uint64_t num_passes)
{
    rig_config config = RIG_CONFIG;
    config.schedule.kind = PST_SCHEDULE_LIST;
    config.schedule.passes = alone;
    config.schedule.num_passes = num_passes;
    config.mode = PST_POOL_CONCURRENT;
    config.glus = 1;
    config.scheduler.capture = PST_CAPTURE_LAYERS;
    return config;
}

PST_TEST(SchedulerGlu, GraphsOfAnInputBackwardAlone)
{
    for (uint32_t i = 0; i < 4 && !psti_test_failed(); i++) {
        rig self;
        rig_config config = graphs_of(i / 2 ? 2 : 4);
        config.own = i % 2;
        rig_open(&self, &config);
        rig_is_right(&self);
        CHECK_OK(rig_capture_layers(&self, 100));
        rig_is_right(&self);
        rig_is_right(&self);
        rig_close(&self);
    }
}

/* A graph keeps the pages or frees them, whatever its launch is for. */
PST_TEST(SchedulerGlu, OneGraphIsWithAWeightPassOrWithout)
{
    rig self;
    pst_schedule *with = NULL, *later = NULL;
    rig_config config = graphs_of(5);
    rig_open(&self, &config);
    rig_is_right(&self);
    CHECK_STATUS(rig_capture_layers(&self, 100), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "1 have a weight pass and 1 have none"));
    CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
    rig_close(&self);
    config = graphs_of(2);
    rig_open(&self, &config);
    rig_is_right(&self);
    CHECK_OK(rig_capture_layers(&self, 100));
    config.schedule.num_passes = 3;
    pst_pass passes[3];
    for (uint32_t i = 0; i < 3; i++)
        passes[i] = (pst_pass){.kind = alone[2 + i].kind};
    config.schedule.passes = passes;
    CHECK_OK(pst_schedule_create(&config.schedule, &with));
    CHECK_STATUS(pst_scheduler_set_schedule(self.scheduler, with), PST_E_INVALID);
    CHECK(
        strstr(pst_last_message(), "captured without a weight pass, in this schedule 1 are with"));
    config.schedule.num_passes = 2;
    CHECK_OK(pst_schedule_create(&config.schedule, &later));
    CHECK_OK(pst_scheduler_set_schedule(self.scheduler, later));
    rig_is_right(&self);
    rig_close(&self);
    pst_schedule_destroy(with);
    pst_schedule_destroy(later);
}

/* The forward's graph stashes also where nothing will read it: the hook behind it frees the pages. */
static void run_forwards(rig *self, const pst_step_options *options)
{
    const uint32_t layers = self->config.num_layers[0];
    CHECK_OK(pst_scheduler_step_begin(self->scheduler, options, self->streams[0]));
    for (uint32_t layer = 0; layer < layers && !psti_test_failed(); layer++) {
        pst_visit visit;
        pst_status status = PST_E_AGAIN;
        const pst_visit_key key = {.kind = PST_PASS_FORWARD, .layer = layer};
        CHECK_OK(
            pst_scheduler_forward_begin(self->scheduler, 0, layer, 0, self->streams[0], &visit));
        CHECK(rig_launches(self, &key, visit.slot, self->streams[0], &status));
        CHECK_OK(status);
        CHECK_OK(pst_scheduler_forward_end(self->scheduler, 0, layer, 0, NULL, self->streams[0]));
    }
    CHECK_OK(pst_scheduler_step_end(self->scheduler, self->streams[0]));
    rig_check(self);
}

PST_TEST(SchedulerGlu, GraphsOfForwardsWithoutABackward)
{
    for (uint32_t i = 0; i < 2 && !psti_test_failed(); i++) {
        rig self;
        pst_schedule *forwards = NULL, *again = NULL;
        pst_step_options evaluation = PST_STEP_OPTIONS_INIT;
        rig_config config = graphs_of(2);
        config.own = i;
        rig_open(&self, &config);
        rig_is_right(&self);
        CHECK_OK(rig_capture_layers(&self, 100));
        rig_is_right(&self);
        evaluation.forward_only = true;
        run_forwards(&self, &evaluation);
        run_forwards(&self, &evaluation);
        rig_is_right(&self);
        config.schedule.num_passes = 1;
        CHECK_OK(pst_schedule_create(&config.schedule, &forwards));
        CHECK_OK(pst_scheduler_set_schedule(self.scheduler, forwards));
        run_forwards(&self, NULL);
        run_forwards(&self, NULL);
        config.schedule.num_passes = 2;
        CHECK_OK(pst_schedule_create(&config.schedule, &again));
        CHECK_OK(pst_scheduler_set_schedule(self.scheduler, again));
        rig_is_right(&self);
        rig_close(&self);
        pst_schedule_destroy(forwards);
        pst_schedule_destroy(again);
    }
}

PST_TEST(SchedulerGlu, AsksForNoDestination)
{
    rig self;
    rig_config config = rig_first_of_four(8);
    pst_scheduler *scheduler = NULL;
    config.mode = PST_POOL_CONCURRENT;
    config.own = true;
    config.glus = 1;
    rig_open(&self, &config);
    config.scheduler = self.config.scheduler;
    config.scheduler.destination = NULL;
    CHECK_OK(pst_scheduler_create(&config.scheduler, &scheduler));
    CHECK_OK(pst_scheduler_destroy(scheduler));
    CHECK_OK(pst_scheduler_destroy(self.scheduler));
    CHECK_OK(pst_scheduler_create(&config.scheduler, &self.scheduler));
    rig_is_right(&self);
    rig_close(&self);
}
