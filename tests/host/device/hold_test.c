/* Holds: what a captured graph uses, and who is told when the last graph has let go. */
#include <pthread.h>

#include "tests/host/stash/scene.h"

#include "host/device/device.h"

typedef struct told {
    psti_hold hold;
    pst_device *device;
    pst_stream other;
    uint32_t times;       /* atomic */
    uint32_t held_inside; /* by how many graphs, as seen when told */
} told;

static void note(psti_hold *hold)
{
    told *self = (told *)(void *)hold;
    __atomic_fetch_add(&self->times, 1, __ATOMIC_RELAXED);
    self->held_inside = psti_hold_count(self->device, hold);
    if (self->other) { /* the device may be used: no lock of its own is held */
        pst_graph *graph = NULL;
        CHECK_OK(pst_graph_begin(self->device, self->other));
        CHECK_OK(pst_graph_end(self->device, self->other, &graph));
        CHECK_OK(pst_graph_destroy(graph));
    }
}

static void hold_in(pst_device *device, pst_stream stream, psti_hold *hold)
{
    psti_capture_of capture;
    CHECK_OK(device->ops->capture_of(device, stream, &capture));
    CHECK(capture.id != 0);
    CHECK_OK(psti_hold_in(device, &capture, hold));
}

PST_TEST(Hold, IsToldOnceWhenTheLastGraphLetGo)
{
    pst_device *device = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
    told self = {.hold.let_go = note, .device = device};
    pst_stream streams[2] = {NULL, NULL};
    pst_graph *graphs[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pst_stream_create(device, &streams[i]));
        CHECK_OK(pst_graph_begin(device, streams[i]));
        hold_in(device, streams[i], &self.hold);
        CHECK_EQ(psti_hold_count(device, &self.hold), i + 1);
        hold_in(device, streams[0], &self.hold); /* has it already */
        hold_in(device, streams[i], &self.hold);
        CHECK_EQ(psti_hold_count(device, &self.hold), i + 1);
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(pst_graph_end(device, streams[i], &graphs[i]));
    self.other = streams[0];
    CHECK_OK(pst_graph_destroy(graphs[0]));
    CHECK_EQ(self.times, 0);
    CHECK_EQ(psti_hold_count(device, &self.hold), 1);
    CHECK_OK(pst_graph_destroy(graphs[1]));
    CHECK_EQ(self.times, 1);
    CHECK_EQ(self.held_inside, 1);
    CHECK_EQ(psti_hold_count(device, &self.hold), 0);
    for (int i = 0; i < 2; i++)
        CHECK_OK(pst_stream_destroy(device, streams[i]));
    CHECK_OK(pst_device_close(device));
}

PST_TEST(Hold, ACaptureThatFailsLetsGo)
{
    pst_device *device = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
    told self = {.hold.let_go = note, .device = device};
    pst_stream stream = NULL;
    pst_stream side = NULL;
    pst_event event = NULL;
    pst_graph *graph = NULL;
    CHECK_OK(pst_stream_create(device, &stream));
    CHECK_OK(pst_stream_create(device, &side));
    CHECK_OK(pst_stream_create(device, &self.other));
    CHECK_OK(pst_event_create(device, &event));
    CHECK_OK(pst_graph_begin(device, stream));
    CHECK_OK(pst_event_record(device, event, stream));
    CHECK_OK(pst_event_wait(device, event, side));
    hold_in(device, side, &self.hold);
    CHECK_STATUS(pst_graph_end(device, stream, &graph), PST_E_CAPTURE);
    CHECK_EQ(self.times, 1);
    CHECK_EQ(psti_hold_count(device, &self.hold), 0);
    CHECK_OK(pst_event_destroy(device, event));
    CHECK_OK(pst_stream_destroy(device, stream));
    CHECK_OK(pst_stream_destroy(device, side));
    CHECK_OK(pst_stream_destroy(device, self.other));
    CHECK_OK(pst_device_close(device));
}

/* ---- graphs that let go at the same time, as on cuda ---- */

enum { NUM_THREADS = 3, NUM_HOLDS = 3000 };

typedef struct crowd {
    psti_hold hold;
    uint32_t inside;  /* atomic: told at this moment */
    uint32_t pending; /* atomic: something to give back is left */
    uint32_t wrong;   /* atomic */
} crowd;

static void take_back(psti_hold *hold)
{
    crowd *self = (crowd *)(void *)hold;
    if (__atomic_add_fetch(&self->inside, 1, __ATOMIC_RELAXED) != 1)
        __atomic_fetch_add(&self->wrong, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&self->pending, 0, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&self->inside, 1, __ATOMIC_RELAXED);
}

static void *hold_and_drop(void *arg)
{
    crowd *self = arg;
    for (int i = 0; i < NUM_HOLDS; i++) {
        psti_hold_add(&self->hold);
        __atomic_store_n(&self->pending, 1, __ATOMIC_RELAXED);
        psti_hold_drop(&self->hold);
    }
    return NULL;
}

PST_TEST(Hold, WhatWasLeftWhileItWasHeldIsAlwaysTold)
{
    const pst_device device = {.info.kind = PST_DEVICE_HOST};
    for (int round = 0; round < 10; round++) {
        crowd self = {.hold.let_go = take_back};
        pthread_t threads[NUM_THREADS];
        for (int i = 0; i < NUM_THREADS; i++)
            pthread_create(&threads[i], NULL, hold_and_drop, &self);
        for (int i = 0; i < NUM_THREADS; i++)
            pthread_join(threads[i], NULL);
        CHECK_EQ(psti_hold_count(&device, &self.hold), 0);
        CHECK_EQ(self.hold.graphs, 0);
        CHECK_EQ(self.pending, 0);
        CHECK_EQ(self.wrong, 0);
    }
}

/* ---- how often a call asks ---- */

static const psti_device_ops *real;
static int num_queries;
static int num_holds;

static pst_status count_capture_of(pst_device *device, pst_stream stream,
                                   psti_capture_of *capture_out)
{
    num_queries++;
    return real->capture_of(device, stream, capture_out);
}

static pst_status count_hold(pst_device *device, const psti_capture_of *capture, psti_hold *hold)
{
    num_holds++;
    return real->hold(device, capture, hold);
}

PST_TEST(Hold, ALaunchAsksOnceAndHoldsOncePerGraph)
{
    small_scene scene;
    small_open(&scene);
    pst_stream stream = NULL;
    pst_graph *graph = NULL;
    CHECK_OK(pst_stream_create(scene.device, &stream));
    real = scene.device->ops;
    psti_device_ops ops = *real;
    ops.capture_of = count_capture_of;
    ops.hold = count_hold;
    scene.device->ops = &ops;
    CHECK_OK(small_stash(&scene, scene.ticket, stream));
    CHECK_OK(pst_ticket_release(scene.ticket, stream));
    CHECK_EQ(num_queries, 2);
    CHECK_EQ(num_holds, 0);
    CHECK_OK(pst_graph_begin(scene.device, stream));
    CHECK_OK(small_stash(&scene, scene.ticket, stream));
    CHECK_EQ(num_queries, 3);
    const int first = num_holds;
    CHECK_EQ(first, 2); /* pool and ticket */
    CHECK_OK(small_restore(&scene, scene.ticket, stream));
    CHECK_EQ(num_queries, 4);
    CHECK_EQ(num_holds, first);
    CHECK_OK(pst_graph_end(scene.device, stream, &graph));
    CHECK_OK(pst_graph_destroy(graph));
    scene.device->ops = real;
    CHECK_OK(pst_stream_destroy(scene.device, stream));
    small_close(&scene);
}
