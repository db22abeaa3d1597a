/* Some streams, events and bytes of a lazy device, and what it told. */
#ifndef PAGESTASH_TESTS_LAZY_SCENE_H
#define PAGESTASH_TESTS_LAZY_SCENE_H

#include "tests/harness.h"

#include <stdio.h>

#include <pagestash/pagestash.h>

#include "host/device/device.h"
#include "tests/lazy/lazy_device.h"

enum { SEEDS = 200, STREAMS = 3, LOG = 64 };

typedef struct scene {
    pst_device *device;
    pst_stream streams[STREAMS];
    pst_event events[STREAMS];
    unsigned char bytes[16];
    char said[400]; /* what was reported last */
    lazy_seen calls[LOG], runs[LOG];
    size_t num_calls, num_runs;
} scene;

static inline void watch(void *context, const lazy_seen *seen)
{
    scene *self = context;
    if (seen->runs && self->num_runs < LOG)
        self->runs[self->num_runs++] = *seen;
    else if (!seen->runs && self->num_calls < LOG)
        self->calls[self->num_calls++] = *seen;
}

static inline void note_report(void *context, const char *text)
{
    scene *self = context;
    snprintf(self->said, sizeof(self->said), "%s", text);
}

static inline void open_scene(scene *self, uint64_t seed, bool eager)
{
    *self = (scene){.device = NULL};
    CHECK_OK(pst_device_open("host", 0, &self->device));
    const lazy_options options = {
        .seed = seed, .eager = eager, .on_node = watch, .context = self, .report = note_report};
    lazy_make(self->device, &options);
    for (int i = 0; i < STREAMS; i++) {
        CHECK_OK(pst_stream_create(self->device, &self->streams[i]));
        CHECK_OK(pst_event_create(self->device, &self->events[i]));
    }
}

/* Nothing was reported. */
static inline void close_scene(scene *self)
{
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_STR(self->said, "");
    for (int i = 0; i < STREAMS; i++) {
        CHECK_OK(pst_stream_destroy(self->device, self->streams[i]));
        CHECK_OK(pst_event_destroy(self->device, self->events[i]));
    }
    CHECK_OK(pst_device_close(self->device));
}

static inline void fill(scene *self, int at, uint8_t value, int stream)
{
    CHECK_OK(pst_device_fill(self->device, &self->bytes[at], value, 1, self->streams[stream]));
}

static inline void copy(scene *self, int to, int from, int stream)
{
    CHECK_OK(pst_device_copy(self->device, &self->bytes[to], &self->bytes[from], 1,
                             self->streams[stream]));
}

static inline void record(scene *self, int event, int stream)
{
    CHECK_OK(pst_event_record(self->device, self->events[event], self->streams[stream]));
}

static inline void wait_for(scene *self, int event, int stream)
{
    CHECK_OK(pst_event_wait(self->device, self->events[event], self->streams[stream]));
}

static inline void synchronize(scene *self, int stream)
{
    CHECK_OK(pst_stream_synchronize(self->device, self->streams[stream]));
}

/* bytes 0 = 1; beside each other 1 = [0] and 2 = 9; then 3 = [1]. fork_late: the second stream forks
 * behind the first fill, as it must. */
static inline pst_graph *capture_diamond(scene *self, bool forks_late)
{
    pst_graph *graph = NULL;
    pst_graph_begin(self->device, self->streams[0]);
    if (!forks_late)
        record(self, 0, 0);
    fill(self, 0, 1, 0);
    if (forks_late)
        record(self, 0, 0);
    wait_for(self, 0, 1);
    copy(self, 1, 0, 1);
    fill(self, 2, 9, 0);
    record(self, 1, 1);
    wait_for(self, 1, 0);
    copy(self, 3, 1, 0);
    pst_graph_end(self->device, self->streams[0], &graph);
    return graph;
}

#endif
