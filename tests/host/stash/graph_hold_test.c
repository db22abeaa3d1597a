/* Graphs of the host device that use pools, groups and tickets: what they count and what they hold. */
#include <stdio.h>

#include "tests/host/stash/scene.h"

static void *const untouched = (void *)(uintptr_t)1;

typedef struct graph_scene {
    small_scene base;
    pst_dirty *dirty;
    pst_stream streams[2];
} graph_scene;

static void open_graph_scene(graph_scene *self)
{
    small_open(&self->base);
    CHECK_OK(pst_dirty_create(self->base.device, self->base.group, false, &self->dirty));
    for (int i = 0; i < 2; i++)
        CHECK_OK(pst_stream_create(self->base.device, &self->streams[i]));
}

static void close_graph_scene(graph_scene *self)
{
    for (int i = 0; i < 2; i++)
        CHECK_OK(pst_stream_destroy(self->base.device, self->streams[i]));
    CHECK_OK(pst_dirty_destroy(self->dirty));
    small_close(&self->base);
}

/* With dirty words. */
static pst_status restore_noting(const graph_scene *self, pst_stream stream)
{
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    options.dirty = self->dirty;
    return pst_ticket_restore(self->base.ticket, self->base.group, &self->base.buffers, &options,
                              stream);
}

PST_TEST(GraphHold, InfoCountsKernelsAndOtherNodes)
{
    graph_scene self;
    pst_graph *graph = NULL;
    pst_graph_info info;
    open_graph_scene(&self);
    pst_device *device = self.base.device;
    const pst_stream stream = self.streams[0];
    const pst_pattern pattern = {.seed = 1};
    uint64_t mismatches = 0;
    CHECK_OK(pst_graph_begin(device, stream));
    CHECK_OK(pst_group_fill(device, self.base.group, &self.base.buffers, &pattern, stream));
    CHECK_OK(small_stash(&self.base, self.base.ticket, stream));
    CHECK_OK(pst_device_fill(device, self.base.rows, 0, SMALL_BYTES, stream));
    CHECK_OK(pst_dirty_mark(self.dirty, stream)); /* a fill */
    CHECK_OK(restore_noting(&self, stream));
    CHECK_OK(pst_group_verify(device, self.base.group, &self.base.buffers, &pattern, PST_VERIFY_ANY,
                              &mismatches, stream));
    CHECK_OK(pst_pool_check(self.base.pool, stream));
    CHECK_OK(pst_pool_step(self.base.pool, stream));
    CHECK_OK(small_stash(&self.base, self.base.ticket, stream));
    CHECK_OK(pst_ticket_release(self.base.ticket, stream));
    CHECK_OK(pst_pool_reset(self.base.pool, PST_RESET_STATISTICS, stream));
    CHECK_OK(pst_graph_end(device, stream, &graph));
    CHECK_OK(pst_graph_get_info(graph, &info));
    CHECK_EQ(info.num_nodes, 11);
    CHECK_EQ(info.num_kernels, 9);
    for (uint64_t i = 1; i <= 5; i++) {
        pst_pool_status status;
        self.base.count = (int32_t)(5 - i); /* the replay reads it anew */
        memset(self.base.rows, 0xee, SMALL_BYTES);
        CHECK_OK(pst_graph_launch(graph, stream));
        CHECK_OK(pst_pool_poll(self.base.pool, &status));
        CHECK_EQ(status.steps, i);
        CHECK_EQ(status.num_faults, 0);
        CHECK_EQ(mismatches, 0);
        for (int at = SMALL_ROW * self.base.count; at < SMALL_BYTES; at++)
            CHECK_EQ(self.base.rows[at], 0); /* by the fill, and not restored */
        CHECK_EQ(status.step_demand, (self.base.count + 3) / 4);
    }
    CHECK_OK(pst_graph_destroy(graph));
    close_graph_scene(&self);
}

static void check_held(graph_scene *self, unsigned graphs, bool with_dirty)
{
    char expected[96];
    snprintf(expected, sizeof(expected), "%u captured graphs use this ticket", graphs);
    CHECK_STATUS(pst_ticket_destroy(self->base.ticket), PST_E_BUSY);
    CHECK_SAID(expected);
    if (with_dirty) {
        snprintf(expected, sizeof(expected), "%u captured graphs use these dirty words", graphs);
        CHECK_STATUS(pst_dirty_destroy(self->dirty), PST_E_BUSY);
        CHECK_SAID(expected);
    }
    snprintf(expected, sizeof(expected), "1 tickets and %u captured graphs hold this pool", graphs);
    CHECK_STATUS(pst_pool_destroy(self->base.pool), PST_E_BUSY);
    CHECK_SAID(expected);
}

PST_TEST(GraphHold, GraphsHoldWhatTheyUseOnceEach)
{
    graph_scene self;
    pst_graph *graphs[2] = {NULL, NULL};
    open_graph_scene(&self);
    for (int i = 0; i < 2; i++) {
        const pst_stream stream = self.streams[i];
        CHECK_OK(pst_graph_begin(self.base.device, stream));
        for (int times = 0; times < 3; times++) {
            CHECK_OK(small_stash(&self.base, self.base.ticket, stream));
            CHECK_OK(restore_noting(&self, stream));
        }
        check_held(&self, (unsigned)i + 1, true); /* while it is captured, too */
        CHECK_OK(pst_graph_end(self.base.device, stream, &graphs[i]));
        check_held(&self, (unsigned)i + 1, true);
    }
    CHECK_OK(pst_graph_destroy(graphs[0]));
    check_held(&self, 1, true);
    CHECK_OK(pst_graph_destroy(graphs[1]));
    close_graph_scene(&self);
}

PST_TEST(GraphHold, AFailedEndLetsGoOfWhatItHeld)
{
    graph_scene self;
    pst_graph *graph = untouched;
    pst_event event = NULL;
    open_graph_scene(&self);
    CHECK_OK(pst_graph_begin(self.base.device, self.streams[0]));
    CHECK_OK(pst_event_create(self.base.device, &event));
    CHECK_OK(pst_event_record(self.base.device, event, self.streams[0]));
    CHECK_OK(pst_event_wait(self.base.device, event, self.streams[1]));
    CHECK_OK(small_stash(&self.base, self.base.ticket, self.streams[1]));
    check_held(&self, 1, false);
    CHECK_STATUS(pst_graph_end(self.base.device, self.streams[0], &graph), PST_E_CAPTURE);
    CHECK(graph == untouched);
    CHECK_OK(pst_event_destroy(self.base.device, event));
    close_graph_scene(&self);
}

PST_TEST(GraphHold, CapturesThatTakeTurnsHoldOnceEach)
{
    graph_scene self;
    pst_graph *graphs[2] = {NULL, NULL};
    open_graph_scene(&self);
    for (int i = 0; i < 2; i++)
        CHECK_OK(pst_graph_begin(self.base.device, self.streams[i]));
    for (int i = 0; i < 6; i++)
        CHECK_OK(small_stash(&self.base, self.base.ticket, self.streams[i % 2]));
    for (int i = 0; i < 2; i++)
        CHECK_OK(pst_graph_end(self.base.device, self.streams[i], &graphs[i]));
    check_held(&self, 2, false);
    for (int i = 0; i < 2; i++)
        CHECK_OK(pst_graph_destroy(graphs[i]));
    close_graph_scene(&self);
}

/* Of group and arrays nothing is held: they may be gone before the graph runs. */
PST_TEST(GraphHold, GraphsHoldNothingOfADescription)
{
    graph_scene self;
    pst_graph *graph = NULL;
    pst_group *group = NULL;
    open_graph_scene(&self);
    small_scene *base = &self.base;
    const pst_stream stream = self.streams[0];
    CHECK_OK(pst_graph_begin(base->device, stream));
    CHECK_OK(pst_group_create(&base->group_config, &group)); /* during capture, too */
    CHECK_OK(pst_ticket_stash(base->ticket, group, &base->buffers, NULL, stream));
    CHECK_OK(pst_device_fill(base->device, base->rows, 0, SMALL_BYTES, stream));
    CHECK_OK(pst_ticket_restore(base->ticket, group, &base->buffers, NULL, stream));
    CHECK_OK(pst_group_destroy(group));
    base->bases[0] = NULL;
    base->counts[0] = NULL;
    CHECK_OK(pst_graph_end(base->device, stream, &graph));
    memset(base->rows, 0x77, SMALL_BYTES);
    base->count = 3;
    CHECK_OK(pst_graph_launch(graph, stream));
    for (int at = 0; at < SMALL_BYTES; at++)
        CHECK_EQ(base->rows[at], at < 3 * SMALL_ROW ? 0x77 : 0);
    CHECK_EQ(small_status(base->pool).num_faults, 0);
    CHECK_OK(pst_graph_destroy(graph));
    close_graph_scene(&self);
}
