/* The n-th allocation fails, for every call that allocates: the call says so, gives back all
 * that it took, and leaves everything else as it was. */

#include "tests/host/stash/scene.h"

static void *const untouched = (void *)(uintptr_t)1;

PST_TEST(Memory, AnAllocationFailsAfterSoManySuccesses)
{
    psti_fail_allocation_after(1);
    void *first = psti_calloc(1, 8), *second = psti_calloc(1, 8), *third = psti_calloc(1, 8);
    psti_fail_allocation_after(-1);
    void *fourth = psti_calloc(1, 8);
    const bool right = first != NULL && second == NULL && third == NULL && fourth != NULL;
    psti_free(first);
    psti_free(fourth);
    psti_free(NULL);
    CHECK(right);
}

/* One call that allocates. Its out parameter is *out, untouched before. */
typedef struct attempt {
    const char *name;
    pst_status (*make)(small_scene *self, void **out);
    void (*unmake)(small_scene *self, void *made);
    int fewest; /* allocations that it needs at least */
} attempt;

static pst_status make_stream(small_scene *self, void **out)
{
    return pst_stream_create(self->device, (pst_stream *)out);
}

static void unmake_stream(small_scene *self, void *made)
{
    CHECK_OK(pst_stream_destroy(self->device, made));
}

static pst_status make_event(small_scene *self, void **out)
{
    return pst_event_create(self->device, (pst_event *)out);
}

static void unmake_event(small_scene *self, void *made)
{
    CHECK_OK(pst_event_destroy(self->device, made));
}

static pst_status make_memory(small_scene *self, void **out)
{
    return pst_device_alloc(self->device, 100, out);
}

static pst_status make_pinned(small_scene *self, void **out)
{
    return pst_device_alloc_pinned(self->device, 100, out);
}

static void unmake_memory(small_scene *self, void *made)
{
    CHECK_OK(pst_device_free(self->device, made));
}

static pst_status make_group(small_scene *self, void **out)
{
    return pst_group_create(&self->group_config, (pst_group **)out);
}

static void unmake_group(small_scene *self, void *made)
{
    (void)self;
    CHECK_OK(pst_group_destroy(made));
}

static pst_status make_pool(small_scene *self, void **out)
{
    return pst_pool_create(self->device, &self->pool_config, (pst_pool **)out);
}

static void unmake_pool(small_scene *self, void *made)
{
    (void)self;
    CHECK_EQ(small_status(made).check_errors, 0);
    CHECK_OK(pst_pool_destroy(made));
}

static pst_status make_slab(small_scene *self, void **out)
{
    pst_pool_config config = self->pool_config;
    config.slab_tickets = 4;
    return pst_pool_create(self->device, &config, (pst_pool **)out);
}

static pst_status make_dirty(small_scene *self, void **out)
{
    return pst_dirty_create(self->device, self->group, false, (pst_dirty **)out);
}

static void unmake_dirty(small_scene *self, void *made)
{
    (void)self;
    CHECK_OK(pst_dirty_destroy(made));
}

/* Its number stands for a pointer. */
static pst_status make_ticket(small_scene *self, void **out)
{
    pst_ticket ticket = {(uintptr_t)*out};
    const pst_status status = pst_ticket_create(self->pool, self->group, &ticket);
    *out = (void *)(uintptr_t)ticket.id;
    return status;
}

static void unmake_ticket(small_scene *self, void *made)
{
    const pst_ticket ticket = {(uintptr_t)made};
    (void)self;
    CHECK_EQ(pst_ticket_index(ticket), 1); /* no index was lost */
    CHECK_OK(pst_ticket_destroy(ticket));
}

static const attempt attempts[] = {
    {"stream", make_stream, unmake_stream, 1}, {"event", make_event, unmake_event, 1},
    {"memory", make_memory, unmake_memory, 1}, {"pinned", make_pinned, unmake_memory, 1},
    {"group", make_group, unmake_group, 1},    {"dirty", make_dirty, unmake_dirty, 2},
    {"pool", make_pool, unmake_pool, 5},       {"slab", make_slab, unmake_pool, 8},
    {"ticket", make_ticket, unmake_ticket, 2},
};

static bool is_nomem(pst_status status)
{
    return status == PST_E_NOMEM || status == PST_E_DEVICE_NOMEM;
}

static void check_unharmed(small_scene *self, const char *what, int n, uint32_t live)
{
    CHECK_MSG(self->device->live == live, "%s, %d: %u objects, not %u", what, n, self->device->live,
              live);
    const pst_pool_status status = small_status(self->pool);
    CHECK_MSG(status.check_errors == 0 && status.num_faults == 0, "%s, %d: the pool was harmed",
              what, n);
}

static void try_until_success(small_scene *self, const attempt *what)
{
    const uint32_t live = self->device->live;
    for (int n = 0;; n++) {
        void *out = untouched;
        psti_fail_allocation_after(n);
        const pst_status status = what->make(self, &out);
        psti_fail_allocation_after(-1);
        if (status == PST_OK) {
            what->unmake(self, out);
            check_unharmed(self, what->name, n, live);
            CHECK_MSG(n >= what->fewest, "%s succeeded with %d allocations", what->name, n);
            return;
        }
        CHECK_MSG(is_nomem(status), "%s, %d: %s", what->name, n, pst_status_name(status));
        CHECK_MSG(out == untouched, "%s, %d: out parameter was written", what->name, n);
        CHECK_MSG(pst_last_message()[0] != '\0', "%s, %d: no message", what->name, n);
        check_unharmed(self, what->name, n, live);
        CHECK(n < 100);
    }
}

/* Fault rows 42. */
PST_TEST(Memory, EveryCreateCallSurvivesEveryFailure)
{
    small_scene self;
    small_open(&self);
    for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++) {
        try_until_success(&self, &attempts[i]);
        if (psti_test_failed())
            return;
    }
    small_close(&self);
}

/* Fault rows 42. */
PST_TEST(Memory, OpenSurvivesEveryFailure)
{
    for (int n = 0;; n++) {
        pst_device *device = untouched;
        psti_fail_allocation_after(n);
        const pst_status status = pst_device_open("host", 0, &device);
        psti_fail_allocation_after(-1);
        if (status == PST_OK) {
            CHECK_OK(pst_device_close(device));
            CHECK_EQ(n, 2);
            return;
        }
        CHECK_EQ(status, PST_E_NOMEM);
        CHECK(device == untouched);
        CHECK(n < 100);
    }
}

PST_TEST(Memory, WhatNeedsNoMemoryWorksWithoutAny)
{
    small_scene self;
    pst_dirty *dirty = NULL;
    pst_ticket lent = {0};
    small_configs(&self);
    self.pool_config.slab_tickets = 1;
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK_OK(pst_group_create(&self.group_config, &self.group));
    CHECK_OK(pst_ticket_create(self.pool, self.group, &self.ticket));
    CHECK_OK(pst_dirty_create(self.device, self.group, false, &dirty));
    memset(self.rows, 3, SMALL_BYTES);
    psti_fail_allocation_after(0);
    CHECK_OK(pst_ticket_take(self.pool, NULL, &lent));
    CHECK_OK(pst_ticket_give(lent, NULL));
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    memset(self.rows, 0, SMALL_BYTES);
    CHECK_OK(small_restore(&self, self.ticket, NULL));
    const pst_pool_status status = small_status(self.pool);
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, NULL));
    CHECK_OK(pst_dirty_mark(dirty, NULL));
    CHECK_OK(pst_dirty_destroy(dirty));
    small_close(&self);
    psti_fail_allocation_after(-1);
    CHECK_EQ(self.rows[SMALL_BYTES - 1], 3);
    CHECK_EQ(status.check_errors, 0);
    CHECK_EQ(status.num_faults, 0);
}

/* ---- captures ---- */

/* Enough operations for the arrays of nodes and holds to grow. */
enum { REPEATS = 30, TICKETS = 3 };

/* What a capture is made of. */
typedef struct recording {
    small_scene scene;
    pst_ticket tickets[TICKETS];
    pst_dirty *dirty;
    pst_stream stream;
} recording;

static pst_status record(const recording *self)
{
    for (int i = 0; i < REPEATS; i++) {
        for (int t = 0; t < TICKETS; t++) {
            PSTI_TRY(small_stash(&self->scene, self->tickets[t], self->stream));
            PSTI_TRY(small_restore(&self->scene, self->tickets[t], self->stream));
        }
        PSTI_TRY(pst_device_copy(self->scene.device, self->scene.rows, self->scene.rows + SMALL_ROW,
                                 16, self->stream));
        PSTI_TRY(pst_dirty_mark(self->dirty, self->stream));
    }
    return PST_OK;
}

/* A program may stop at the first failed call, or go on and look at the last. */
typedef struct course {
    bool stops;
    bool recovers; /* there is memory again after the first failure */
} course;

static pst_status capture(const recording *self, const course *how, pst_graph **graph_out)
{
    PSTI_TRY(pst_graph_begin(self->scene.device, self->stream));
    pst_status status = record(self);
    if (status != PST_OK && !is_nomem(status))
        return status;
    if (status != PST_OK && how->recovers)
        psti_fail_allocation_after(-1);
    if (status != PST_OK && !how->stops) {
        status = record(self);
        if (status != PST_OK && !is_nomem(status))
            return status;
    }
    return pst_graph_end(self->scene.device, self->stream, graph_out);
}

static uint32_t graphs_of(pst_ticket ticket)
{
    return psti_ticket_find(ticket)->hold.graphs;
}

static void open_recording(recording *self)
{
    small_open(&self->scene);
    CHECK_OK(pst_stream_create(self->scene.device, &self->stream));
    CHECK_OK(pst_dirty_create(self->scene.device, self->scene.group, false, &self->dirty));
    self->tickets[0] = self->scene.ticket;
    for (int t = 1; t < TICKETS; t++)
        CHECK_OK(pst_ticket_create(self->scene.pool, self->scene.group, &self->tickets[t]));
}

static void close_recording(recording *self)
{
    for (int t = 1; t < TICKETS; t++)
        CHECK_OK(pst_ticket_destroy(self->tickets[t]));
    CHECK_OK(pst_dirty_destroy(self->dirty));
    CHECK_OK(pst_stream_destroy(self->scene.device, self->stream));
    small_close(&self->scene);
}

static void check_captures(const course *how)
{
    recording self;
    int failures = 0;
    open_recording(&self);
    const uint32_t live = self.scene.device->live;
    for (int n = 0;; n++) {
        pst_graph *graph = untouched;
        psti_fail_allocation_after(n);
        const pst_status status = capture(&self, how, &graph);
        psti_fail_allocation_after(-1);
        if (status == PST_OK) {
            CHECK_OK(pst_graph_launch(graph, self.stream));
            CHECK_OK(pst_graph_destroy(graph));
            break;
        }
        CHECK_MSG(status == PST_E_NOMEM, "%d: %s", n, pst_status_name(status));
        CHECK(graph == untouched);
        CHECK_OK(pst_stream_synchronize(self.scene.device, self.stream)); /* no capture is left */
        CHECK_EQ(self.dirty->hold.graphs + self.scene.pool->hold.graphs, 0);
        CHECK_EQ(graphs_of(self.tickets[0]) + graphs_of(self.tickets[2]), 0);
        check_unharmed(&self.scene, "capture", n, live);
        failures++;
    }
    CHECK_MSG(failures > REPEATS * TICKETS * 2, "only %d allocations", failures);
    check_unharmed(&self.scene, "capture", failures, live);
    close_recording(&self);
}

/* Fault rows 42. */
PST_TEST(Memory, CapturesSurviveEveryFailure)
{
    const course stops = {.stops = true};
    check_captures(&stops);
}

PST_TEST(Memory, CapturesThatGoOnAfterAFailureFailAtTheEnd)
{
    const course goes_on = {.stops = false};
    const course recovers = {.stops = false, .recovers = true};
    check_captures(&goes_on);
    check_captures(&recovers);
}

/* ---- memory comes back just after the graph's own allocation ---- */

static const psti_device_ops *real;

static pst_status end_with_memory(pst_device *device, pst_stream stream, pst_graph *graph)
{
    psti_fail_allocation_after(-1);
    return real->graph_end(device, stream, graph);
}

PST_TEST(Memory, ARecordedGraphIsLetGoWhereItCannotBeKept)
{
    small_scene self;
    pst_stream stream = NULL;
    pst_graph *graph = untouched;
    small_open(&self);
    CHECK_OK(pst_stream_create(self.device, &stream));
    real = self.device->ops;
    psti_device_ops ops = *real;
    ops.graph_end = end_with_memory;
    self.device->ops = &ops;
    CHECK_OK(pst_graph_begin(self.device, stream));
    CHECK_OK(small_stash(&self, self.ticket, stream));
    psti_fail_allocation_after(0);
    CHECK_STATUS(pst_graph_end(self.device, stream, &graph), PST_E_NOMEM);
    self.device->ops = real;
    CHECK(graph == untouched);
    CHECK_EQ(graphs_of(self.ticket) + self.pool->hold.graphs, 0);
    CHECK_OK(pst_stream_destroy(self.device, stream));
    small_close(&self);
}
