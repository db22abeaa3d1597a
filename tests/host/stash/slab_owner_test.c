/* An owner of a lent ticket never sees what another stashed. */
#include "tests/host/stash/slab_scene.h"

static void check_in_use(const slab_scene *self, uint64_t pages)
{
    CHECK_EQ(small_status(self->pool).in_use[0], pages);
}

/* Rows of ones, stashed outside captures. */
static void stash_ones(slab_scene *self, pst_ticket *ticket_out)
{
    CHECK_OK(pst_ticket_take(self->pool, self->a, ticket_out));
    memset(self->base.rows, 1, SMALL_BYTES);
    CHECK_OK(slab_stash(self, *ticket_out, self->a));
}

/* What the next owner stashes and restores is his own. */
static void check_next_owner(slab_scene *self)
{
    pst_ticket ticket = {0};
    CHECK_OK(pst_ticket_take(self->pool, self->a, &ticket));
    memset(self->base.rows, 2, SMALL_BYTES);
    CHECK_OK(slab_stash(self, ticket, self->a));
    memset(self->base.rows, 3, SMALL_BYTES);
    CHECK_OK(slab_restore(self, ticket, self->a));
    CHECK_EQ(self->base.rows[0], 2);
    CHECK_OK(pst_ticket_give(ticket, self->a));
}

PST_TEST(Slab, ARestoreThatWasNotEnqueuedLeavesTheReleaseToGive)
{
    slab_scene self;
    pst_graph *graph = NULL;
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    stash_ones(&self, &ticket);
    CHECK_OK(pst_graph_begin(self.device, self.b));
    psti_fail_allocation_after(0);
    CHECK_STATUS(slab_restore(&self, ticket, self.b), PST_E_NOMEM);
    psti_fail_allocation_after(-1);
    CHECK_STATUS(pst_graph_end(self.device, self.b, &graph), PST_E_NOMEM);
    CHECK_OK(pst_ticket_give(ticket, self.a));
    check_in_use(&self, 0);
    check_next_owner(&self);
    close_slab(&self);
}

/* Ends a capture so that no graph comes of it. */
static void break_capture(slab_scene *self, pst_stream stream)
{
    pst_graph *graph = NULL;
    CHECK_STATUS(pst_device_synchronize(self->device), PST_E_CAPTURE);
    CHECK_STATUS(pst_graph_end(self->device, stream, &graph), PST_E_CAPTURE);
}

PST_TEST(Slab, ARestoreThatWasOnlyCapturedLeavesTheReleaseToGive)
{
    slab_scene self;
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    stash_ones(&self, &ticket);
    CHECK_OK(pst_graph_begin(self.device, self.b));
    CHECK_OK(slab_restore(&self, ticket, self.b));
    CHECK_STATUS(pst_ticket_give(ticket, self.b), PST_E_CAPTURE);
    CHECK_SAID(
        "ticket 0 was filled outside this capture: its pages would be freed by replays only");
    break_capture(&self, self.b);
    CHECK_OK(pst_ticket_give(ticket, self.a));
    check_in_use(&self, 0);
    check_next_owner(&self);
    close_slab(&self);
}

PST_TEST(Slab, AReleaseThatWasOnlyCapturedLeavesAnotherToGive)
{
    slab_scene self;
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    stash_ones(&self, &ticket);
    CHECK_OK(pst_graph_begin(self.device, self.b));
    CHECK_OK(pst_ticket_release(ticket, self.b));
    break_capture(&self, self.b);
    CHECK_OK(pst_ticket_give(ticket, self.a));
    check_in_use(&self, 0);
    check_next_owner(&self);
    close_slab(&self);
}

/* A graph that is gone left ones in the pool's only ticket. */
static void leave_ones(slab_scene *self)
{
    pst_graph *graph = NULL;
    pst_ticket ticket = {0};
    capture_stash(self, self->a, &ticket, &graph);
    CHECK_OK(pst_ticket_give(ticket, self->a));
    memset(self->base.rows, 1, SMALL_BYTES);
    CHECK_OK(pst_graph_launch(graph, self->a));
    CHECK_OK(pst_graph_destroy(graph));
}

/* What the new owner first enqueued is never run; then he works outside the capture. He had better taken
 * another ticket, but he does not get what the graph left. */
PST_TEST(Slab, ABrokenCaptureDoesNotBringBackWhatAGraphLeft)
{
    slab_scene self;
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    leave_ones(&self);
    CHECK_OK(pst_graph_begin(self.device, self.a));
    CHECK_OK(pst_ticket_take(self.pool, self.a, &ticket));
    CHECK_OK(slab_stash(&self, ticket, self.a));
    break_capture(&self, self.a);
    memset(self.base.rows, 2, SMALL_BYTES);
    CHECK_OK(slab_stash(&self, ticket, self.a));
    memset(self.base.rows, 3, SMALL_BYTES);
    CHECK_OK(slab_restore(&self, ticket, self.a));
    CHECK_EQ(self.base.rows[0], 3);
    CHECK_EQ(small_status(self.pool).flags, 1u << PST_FAULT_LIVE | 1u << PST_FAULT_FORM);
    CHECK_OK(pst_ticket_give(ticket, self.a));
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_FAULTS, NULL));
    check_in_use(&self, 0);
    check_next_owner(&self);
    close_slab(&self);
}

/* Forward and backward captured apart: what the first stashes is not taken for what a graph left. */
PST_TEST(Slab, TwoGraphsOfOneOwnerShareATicketAfterAThird)
{
    slab_scene self;
    pst_graph *forward = NULL, *backward = NULL;
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    leave_ones(&self);
    capture_stash(&self, self.a, &ticket, &forward);
    CHECK_OK(pst_graph_begin(self.device, self.a));
    CHECK_OK(slab_restore(&self, ticket, self.a));
    CHECK_OK(pst_graph_end(self.device, self.a, &backward));
    for (int value = 2; value < 4; value++) {
        memset(self.base.rows, value, SMALL_BYTES);
        CHECK_OK(pst_graph_launch(forward, self.a));
        memset(self.base.rows, 9, SMALL_BYTES);
        CHECK_OK(pst_graph_launch(backward, self.a));
        CHECK_EQ(self.base.rows[0], value);
    }
    CHECK_OK(pst_graph_destroy(forward));
    CHECK_OK(pst_graph_destroy(backward));
    CHECK_OK(pst_ticket_give(ticket, self.a));
    close_slab(&self);
}

/* He restores what he never stashed, after such a capture: the device knows whose bytes they are. */
PST_TEST(Slab, WhatAnotherOwnerStashedIsNotRestored)
{
    slab_scene self;
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    leave_ones(&self);
    CHECK_OK(pst_graph_begin(self.device, self.a));
    CHECK_OK(pst_ticket_take(self.pool, self.a, &ticket));
    CHECK_OK(slab_stash(&self, ticket, self.a));
    break_capture(&self, self.a);
    memset(self.base.rows, 3, SMALL_BYTES);
    CHECK_OK(slab_restore(&self, ticket, self.a));
    CHECK_EQ(self.base.rows[0], 3);
    CHECK_EQ(small_status(self.pool).fault, PST_FAULT_FORM);
    CHECK_OK(pst_ticket_give(ticket, self.a));
    check_in_use(&self, 0);
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_FAULTS, NULL));
    close_slab(&self);
}
