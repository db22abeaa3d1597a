/* Tickets that a pool lends to captured graphs; a pipeline of micro-batches. */
#include "tests/host/stash/counted.h"
#include "tests/host/stash/slab_scene.h"

/* ---- captures ---- */

/* Takes, stashes, restores, gives, and says which ticket it was. */
static uint32_t use_one(slab_scene *self, pst_stream stream)
{
    pst_ticket ticket = {0};
    if (pst_ticket_take(self->pool, stream, &ticket) || slab_stash(self, ticket, stream) ||
        slab_restore(self, ticket, stream)) {
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
        return UINT32_MAX;
    }
    const uint32_t index = pst_ticket_index(ticket);
    if (pst_ticket_give(ticket, stream))
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    return index;
}

PST_TEST(Slab, WithinACaptureATicketIsTakenAtOnce)
{
    slab_scene self;
    pst_graph *graph = NULL;
    open_slab(&self, 1);
    CHECK_OK(pst_graph_begin(self.device, self.a));
    for (int i = 0; i < 10; i++)
        CHECK_EQ(use_one(&self, self.a), 0);
    check_none_left(&self, self.b, 1, 0, 1, 0);
    CHECK_OK(pst_graph_end(self.device, self.a, &graph));
    check_none_left(&self, self.a, 1, 0, 1, 0); /* the stream, but not the capture */
    CHECK_OK(pst_pool_step(self.pool, self.a)); /* no step helps */
    check_none_left(&self, self.a, 1, 0, 1, 0);
    CHECK_STATUS(pst_pool_destroy(self.pool), PST_E_BUSY);
    CHECK_SAID("0 tickets and 1 captured graphs hold this pool");
    for (int i = 0; i < 3; i++)
        CHECK_OK(pst_graph_launch(graph, self.a));
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_EQ(use_one(&self, self.b), 0); /* on any stream */
    check_none_left(&self, self.a, 1, 0, 0, 1);
    close_slab(&self);
}

PST_TEST(Slab, AnotherCaptureCannotTakeIt)
{
    slab_scene self;
    pst_graph *graphs[2] = {NULL, NULL};
    open_slab(&self, 1);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pst_graph_begin(self.device, self.a));
        if (i == 0)
            CHECK_EQ(use_one(&self, self.a), 0);
        else
            check_none_left(&self, self.a, 1, 0, 1, 0);
        CHECK_OK(pst_graph_end(self.device, self.a, &graphs[i]));
    }
    CHECK_OK(pst_graph_destroy(graphs[1]));
    CHECK_OK(pst_graph_begin(self.device, self.b));
    check_none_left(&self, self.b, 1, 0, 1, 0);
    CHECK_OK(pst_graph_destroy(graphs[0]));
    CHECK_EQ(use_one(&self, self.b), 0);
    CHECK_OK(pst_graph_end(self.device, self.b, &graphs[1]));
    CHECK_OK(pst_graph_launch(graphs[1], self.b));
    CHECK_OK(pst_graph_destroy(graphs[1]));
    close_slab(&self);
}

PST_TEST(Slab, OfSeveralCapturesNoneTakesItAgain)
{
    slab_scene self;
    pst_graph *graphs[2] = {NULL, NULL};
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    CHECK_OK(pst_graph_begin(self.device, self.a));
    CHECK_OK(pst_graph_begin(self.device, self.b));
    CHECK_OK(pst_ticket_take(self.pool, self.a, &ticket));
    const pst_stream streams[] = {self.a, self.b};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(slab_stash(&self, ticket, streams[i]));
        CHECK_OK(slab_restore(&self, ticket, streams[i]));
    }
    CHECK_OK(pst_ticket_give(ticket, self.a));
    for (int i = 0; i < 2; i++)
        check_none_left(&self, streams[i], 1, 0, 1, 0);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pst_graph_end(self.device, streams[i], &graphs[i]));
        check_none_left(&self, streams[i], 1, 0, 1, 0);
        CHECK_OK(pst_graph_destroy(graphs[i]));
    }
    CHECK_EQ(use_one(&self, self.a), 0);
    close_slab(&self);
}

/* One that no operation used in a capture is no graph's. */
PST_TEST(Slab, GivenUnusedInACaptureItWaitsForAStep)
{
    slab_scene self;
    pst_graph *graph = NULL;
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    CHECK_OK(pst_graph_begin(self.device, self.a));
    CHECK_OK(pst_ticket_take(self.pool, self.a, &ticket));
    CHECK_OK(pst_ticket_give(ticket, self.a));
    check_none_left(&self, self.b, 1, 0, 0, 1);
    CHECK_OK(pst_ticket_take(self.pool, self.a, &ticket));
    CHECK_OK(pst_ticket_give(ticket, self.a));
    CHECK_OK(pst_graph_end(self.device, self.a, &graph));
    check_none_left(&self, self.a, 1, 0, 0, 1);
    CHECK_OK(pst_pool_step(self.pool, self.b));
    CHECK_EQ(use_one(&self, self.b), 0);
    CHECK_OK(pst_graph_destroy(graph));
    close_slab(&self);
}

/* Captured, and given back after the capture: as if it had been within, but for its stream. */
PST_TEST(Slab, GivenAfterACaptureItIsTheGraphs)
{
    slab_scene self;
    pst_graph *graph = NULL;
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    capture_stash(&self, self.a, &ticket, &graph);
    CHECK_OK(pst_graph_launch(graph, self.a));
    CHECK_OK(slab_restore(&self, ticket, self.a));
    CHECK_OK(pst_ticket_give(ticket, self.a));
    check_none_left(&self, self.a, 1, 0, 1, 0);
    CHECK_OK(pst_pool_step(self.pool, self.a));
    check_none_left(&self, self.b, 1, 0, 1, 0);
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_EQ(use_one(&self, self.b), 0);
    close_slab(&self);
}

/* Its graph is gone while it is still taken. */
PST_TEST(Slab, GivenAfterItsGraphItWaitsForAStep)
{
    slab_scene self;
    pst_graph *graph = NULL;
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    capture_stash(&self, self.a, &ticket, &graph);
    CHECK_OK(pst_graph_launch(graph, self.a));
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(slab_restore(&self, ticket, self.a));
    CHECK_OK(pst_ticket_give(ticket, self.a));
    check_none_left(&self, self.b, 1, 0, 0, 1);
    CHECK_EQ(use_one(&self, self.a), 0);
    close_slab(&self);
}

/* The graph's last replay comes behind the ticket's last operation. */
PST_TEST(Slab, WhatAReplayLeftBeforeItIsGivenIsReleased)
{
    slab_scene self;
    pst_graph *graph = NULL;
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    capture_stash(&self, self.a, &ticket, &graph);
    CHECK_OK(pst_graph_launch(graph, self.a));
    CHECK_OK(slab_restore(&self, ticket, self.a));
    CHECK_OK(pst_graph_launch(graph, self.a));
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_ticket_give(ticket, self.a));
    CHECK_OK(pst_ticket_take(self.pool, self.a, &ticket));
    CHECK_OK(slab_stash(&self, ticket, self.a)); /* no stash into a live ticket */
    CHECK_OK(slab_restore(&self, ticket, self.a));
    CHECK_OK(pst_ticket_give(ticket, self.a));
    close_slab(&self);
}

/* The graph's last replay comes after the ticket was given back, and leaves pages in it. */
PST_TEST(Slab, WhatTheLastReplayLeavesIsReleasedByOneLaunch)
{
    slab_scene self;
    pst_graph *graph = NULL;
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    capture_stash(&self, self.a, &ticket, &graph);
    CHECK_OK(pst_ticket_give(ticket, self.a));
    CHECK_OK(pst_graph_launch(graph, self.a));
    CHECK_OK(pst_graph_destroy(graph));
    count_calls(self.device);
    CHECK_OK(pst_ticket_take(self.pool, self.b, &ticket));
    device_calls calls = calls_since();
    CHECK_EQ(calls.launches[PSTI_OP_RESTORE], 0); /* not here: taking launches nothing */
    CHECK_OK(slab_stash(&self, ticket, self.b));
    calls = calls_since();
    CHECK_EQ(calls.launches[PSTI_OP_RESTORE], 1);
    CHECK_EQ(calls.launches[PSTI_OP_STASH], 1);
    CHECK_EQ(small_status(self.pool).in_use[0], 2);
    CHECK_OK(slab_restore(&self, ticket, self.b));
    CHECK_OK(slab_stash(&self, ticket, self.b));
    calls = calls_since();
    CHECK_EQ(calls.launches[PSTI_OP_RESTORE], 1); /* once only */
    CHECK_OK(pst_ticket_give(ticket, self.b));
    close_slab(&self);
}

/* One that nobody takes again gives its pages back at the next step that is not captured. */
PST_TEST(Slab, AStepReleasesWhatGraphsLeftInTicketsThatNobodyHas)
{
    slab_scene self;
    pst_graph *graph = NULL;
    pst_graph *other = NULL;
    pst_ticket ticket = {0}, second = {0};
    pst_pool_status status;
    open_slab(&self, 2);
    capture_stash(&self, self.a, &ticket, &graph);
    CHECK_OK(pst_ticket_give(ticket, self.a));
    CHECK_OK(pst_graph_launch(graph, self.a));
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_graph_begin(self.device, self.a));
    CHECK_OK(pst_pool_step(self.pool, self.a));
    CHECK_OK(pst_graph_end(self.device, self.a, &other));
    CHECK_OK(pst_graph_launch(other, self.a));
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.in_use[0], 2);
    CHECK_OK(pst_pool_step(self.pool, self.b));
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.in_use[0], 0);
    CHECK_OK(pst_ticket_take(self.pool, self.a, &ticket)); /* and both are anybody's */
    CHECK_OK(pst_ticket_take(self.pool, self.a, &second));
    check_none_left(&self, self.b, 2, 2, 0, 0);
    CHECK_OK(pst_ticket_give(ticket, self.a));
    CHECK_OK(pst_ticket_give(second, self.a));
    CHECK_OK(pst_graph_destroy(other));
    close_slab(&self);
}

/* The release that comes first may be captured, too; every replay then begins with it. */
PST_TEST(Slab, WhatAGraphLeftIsReleasedInTheNextCapture)
{
    slab_scene self;
    pst_graph *graph = NULL;
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    for (int i = 0; i < 3; i++) {
        capture_stash(&self, self.a, &ticket, &graph);
        CHECK_OK(pst_ticket_give(ticket, self.a));
        CHECK_OK(pst_graph_launch(graph, self.a));
        CHECK_EQ(small_status(self.pool).in_use[0], 2);
        CHECK_OK(pst_graph_destroy(graph));
    }
    CHECK_OK(pst_ticket_take(self.pool, self.b, &ticket));
    CHECK_OK(slab_stash(&self, ticket, self.b));
    CHECK_OK(pst_ticket_give(ticket, self.b));
    close_slab(&self);
}

/* ---- one forward, one backward ---- */

enum { MICRO_BATCHES = 32, WARM_UP = 3, PEAK = WARM_UP + 1 };

typedef struct pipeline {
    slab_scene scene;
    int32_t counts[MICRO_BATCHES];
    unsigned char rows[MICRO_BATCHES][SMALL_BYTES];
    unsigned char back[MICRO_BATCHES][SMALL_BYTES];
    pst_ticket tickets[MICRO_BATCHES];
} pipeline;

static pst_status forward(pipeline *self, int i)
{
    void *const bases[1] = {self->rows[i]};
    const void *const counts[1] = {&self->counts[i]};
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = bases;
    buffers.counts = counts;
    PSTI_TRY(pst_ticket_take(self->scene.pool, self->scene.a, &self->tickets[i]));
    return pst_ticket_stash(self->tickets[i], self->scene.base.group, &buffers, NULL,
                            self->scene.a);
}

static pst_status backward(pipeline *self, int i)
{
    void *const bases[1] = {self->back[i]};
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = bases;
    PSTI_TRY(pst_ticket_restore(self->tickets[i], self->scene.base.group, &buffers, NULL,
                                self->scene.a));
    return pst_ticket_give(self->tickets[i], self->scene.a);
}

static pst_status one_f_one_b(pipeline *self)
{
    for (int i = 0; i < MICRO_BATCHES + WARM_UP; i++) {
        if (i < MICRO_BATCHES)
            PSTI_TRY(forward(self, i));
        if (i >= WARM_UP)
            PSTI_TRY(backward(self, i - WARM_UP));
    }
    return PST_OK;
}

static void replay_pipeline(pipeline *self, pst_graph *graph, int step)
{
    for (int i = 0; i < MICRO_BATCHES; i++) {
        self->counts[i] = (i * 5 + step * 3) % (SMALL_CAPACITY + 1);
        memset(self->rows[i], i + step, SMALL_BYTES);
        memset(self->back[i], 0xcc, SMALL_BYTES);
    }
    CHECK_OK(pst_graph_launch(graph, self->scene.a));
    for (int i = 0; i < MICRO_BATCHES; i++)
        for (int at = 0; at < SMALL_BYTES; at++)
            CHECK_EQ(self->back[i][at], at < self->counts[i] * SMALL_ROW ? i + step : 0xcc);
}

PST_TEST(Slab, ACapturedPipelineNeedsItsPeakOfTickets)
{
    static pipeline self;
    pst_graph *graph = NULL;
    open_slab(&self.scene, PEAK);
    CHECK_OK(pst_graph_begin(self.scene.device, self.scene.a));
    CHECK_OK(one_f_one_b(&self));
    CHECK_OK(pst_graph_end(self.scene.device, self.scene.a, &graph));
    for (int step = 0; step < 4; step++)
        replay_pipeline(&self, graph, step);
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(one_f_one_b(&self)); /* and without a graph */
    close_slab(&self.scene);
}

PST_TEST(Slab, ACapturedPipelineNeedsNoLessThanItsPeak)
{
    static pipeline self;
    pst_graph *graph = NULL;
    open_slab(&self.scene, PEAK - 1);
    CHECK_OK(pst_graph_begin(self.scene.device, self.scene.a));
    CHECK_STATUS(one_f_one_b(&self), PST_E_BUSY);
    CHECK_SAID("of 3 tickets 3 are taken, 0 are held by graphs, 0 wait for a step");
    for (int i = 0; i < WARM_UP; i++)
        CHECK_OK(backward(&self, i));
    CHECK_OK(pst_graph_end(self.scene.device, self.scene.a, &graph));
    CHECK_OK(pst_graph_destroy(graph));
    close_slab(&self.scene);
}
