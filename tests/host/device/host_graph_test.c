/* Capture on the host device: its rules are those of CUDA. */
#include "tests/harness.h"

#include <stdio.h>

#include "host/device/host_graph.h"

static void *const untouched = (void *)(uintptr_t)1;

typedef struct scene {
    pst_device *device;
    pst_stream streams[4]; /* the first is the one that is captured */
    pst_event events[4];
    unsigned char bytes[8];
} scene;

static void open_scene(scene *self)
{
    *self = (scene){.device = NULL};
    CHECK_OK(pst_device_open("host", 0, &self->device));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(pst_stream_create(self->device, &self->streams[i]));
        CHECK_OK(pst_event_create(self->device, &self->events[i]));
    }
}

/* Everything must be free of captures by now. */
static void close_scene(scene *self)
{
    for (int i = 0; i < 4; i++) {
        CHECK_OK(pst_stream_destroy(self->device, self->streams[i]));
        CHECK_OK(pst_event_destroy(self->device, self->events[i]));
    }
    CHECK_EQ(self->device->live, 0);
    CHECK_OK(pst_device_close(self->device));
}

/* `to` waits for what `from` did so far. */
static pst_status join(const scene *self, int from, int to)
{
    const pst_status status =
        pst_event_record(self->device, self->events[from], self->streams[from]);
    return status ? status : pst_event_wait(self->device, self->events[from], self->streams[to]);
}

static pst_status fill(scene *self, int at, int stream)
{
    return pst_device_fill(self->device, &self->bytes[at], 1, 1, self->streams[stream]);
}

static void check_said(const char *text)
{
    CHECK_MSG(strstr(pst_last_message(), text) != NULL, "%s", pst_last_message());
}

/* The capture was broken by `call`: nothing can be added, the end says so, and the stream is free. */
static void check_broken(scene *self, int stream, const char *call)
{
    char said[80];
    pst_graph *graph = untouched;
    const uint32_t live = self->device->live;
    snprintf(said, sizeof(said), "the capture is invalid since %s [", call);
    CHECK_STATUS(fill(self, 7, stream), PST_E_CAPTURE);
    CHECK_SAID(said);
    CHECK_STATUS(pst_graph_end(self->device, self->streams[stream], &graph), PST_E_CAPTURE);
    CHECK_SAID(said);
    CHECK(graph == untouched);
    CHECK_EQ(self->device->live, live);
    CHECK_EQ(self->bytes[7], 0);
    CHECK_OK(fill(self, 7, stream));
    CHECK_EQ(self->bytes[7], 1);
    self->bytes[7] = 0;
}

/* ---- begin and end ---- */

/* Fault rows 32. */
PST_TEST(HostGraph, TheDefaultStreamCannotBeCaptured)
{
    scene self;
    open_scene(&self);
    CHECK_STATUS(pst_graph_begin(self.device, NULL), PST_E_CAPTURE);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(pst_event_record(self.device, self.events[0], self.streams[0]));
    CHECK_STATUS(pst_event_wait(self.device, self.events[0], NULL), PST_E_CAPTURE);
    check_said("the default stream cannot join");
    check_broken(&self, 0, "pst_event_wait");
    close_scene(&self);
}

PST_TEST(HostGraph, BeginTwiceBreaksTheFirst)
{
    scene self;
    pst_graph *graph = NULL;
    pst_graph_info info;
    open_scene(&self);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(fill(&self, 0, 0));
    CHECK_STATUS(pst_graph_begin(self.device, self.streams[0]), PST_E_CAPTURE);
    check_broken(&self, 0, "pst_graph_begin");
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(join(&self, 0, 1));
    CHECK_STATUS(pst_graph_begin(self.device, self.streams[1]), PST_E_CAPTURE); /* joined */
    check_broken(&self, 0, "pst_graph_begin");
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(fill(&self, 0, 0));
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &graph));
    CHECK_OK(pst_graph_get_info(graph, &info));
    CHECK_EQ(info.num_nodes, 1);
    CHECK_STATUS(pst_graph_get_info(graph, NULL), PST_E_INVALID);
    CHECK_OK(pst_graph_destroy(graph));
    close_scene(&self);
}

PST_TEST(HostGraph, EndNeedsTheOriginOfACapture)
{
    scene self;
    pst_graph *graph = untouched;
    open_scene(&self);
    CHECK_STATUS(pst_graph_end(self.device, self.streams[0], &graph), PST_E_CAPTURE);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(join(&self, 0, 1));
    CHECK_STATUS(pst_graph_end(self.device, self.streams[2], &graph), PST_E_CAPTURE);
    CHECK_STATUS(pst_graph_end(self.device, self.streams[1], &graph), PST_E_CAPTURE);
    CHECK(graph == untouched);
    check_broken(&self, 0, "pst_graph_end");
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_STATUS(pst_graph_end(self.device, self.streams[2], &graph), PST_E_CAPTURE);
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &graph)); /* no other stream is of it */
    CHECK_STATUS(pst_graph_end(self.device, self.streams[0], &graph), PST_E_CAPTURE);
    CHECK_OK(pst_graph_destroy(graph));
    close_scene(&self);
}

PST_TEST(HostGraph, AnEmptyCaptureIsAGraph)
{
    scene self;
    pst_graph *graph = NULL;
    pst_graph_info info = {.num_nodes = 9, .num_kernels = 9};
    open_scene(&self);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &graph));
    CHECK_OK(pst_graph_get_info(graph, &info));
    CHECK_EQ(info.num_nodes, 0);
    CHECK_EQ(info.num_kernels, 0);
    CHECK_OK(pst_graph_launch(graph, NULL));
    CHECK_OK(pst_graph_destroy(graph));
    close_scene(&self);
}

PST_TEST(HostGraph, ManyNodesAreKeptInOrder)
{
    enum { NODES = 1000 };
    scene self;
    pst_graph *graph = NULL;
    pst_graph_info info;
    open_scene(&self);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    for (int i = 0; i < NODES; i++)
        CHECK_OK(pst_device_fill(self.device, self.bytes, (uint8_t)i, 1 + (size_t)i % 8,
                                 self.streams[0]));
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &graph));
    CHECK_OK(pst_graph_get_info(graph, &info));
    CHECK_EQ(info.num_nodes, NODES);
    CHECK_EQ(info.num_kernels, 0);
    CHECK_EQ(self.bytes[0], 0); /* recorded instead of run */
    CHECK_OK(pst_graph_launch(graph, self.streams[2]));
    for (int i = 0; i < 8; i++)
        CHECK_EQ(self.bytes[i], (uint8_t)(NODES - 1)); /* 999 % 8 == 7: the last writes all */
    CHECK_OK(pst_graph_destroy(graph));
    close_scene(&self);
}

/* ---- joining ---- */

static void check_unjoined(scene *self)
{
    pst_graph *graph = untouched;
    const uint32_t live = self->device->live;
    CHECK_STATUS(pst_graph_end(self->device, self->streams[0], &graph), PST_E_CAPTURE);
    check_said("was not joined back");
    CHECK(graph == untouched);
    CHECK_EQ(self->device->live, live);
    for (int i = 0; i < 4; i++) { /* no capture is left: work runs at once */
        CHECK_OK(pst_stream_synchronize(self->device, self->streams[i]));
        self->bytes[i] = 0;
        CHECK_OK(fill(self, i, i));
        CHECK_EQ(self->bytes[i], 1);
    }
}

PST_TEST(HostGraph, AStreamThatIsNotJoinedBackFailsTheEnd)
{
    scene self;
    open_scene(&self);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(join(&self, 0, 1));
    check_unjoined(&self);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(join(&self, 0, 1));
    CHECK_OK(join(&self, 1, 0));
    CHECK_OK(fill(&self, 5, 1)); /* after it was joined back */
    check_unjoined(&self);
    CHECK_EQ(self.bytes[5], 0);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(join(&self, 0, 1));
    CHECK_OK(join(&self, 1, 2)); /* 1 is joined by 2, but 2 by nobody */
    check_unjoined(&self);
    close_scene(&self);
}

PST_TEST(HostGraph, JoinsMayGoThroughOtherStreams)
{
    scene self;
    pst_graph *graph = NULL;
    pst_graph_info info;
    open_scene(&self);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(join(&self, 0, 1));
    CHECK_OK(fill(&self, 1, 1));
    CHECK_OK(join(&self, 1, 2));
    CHECK_OK(fill(&self, 2, 2));
    CHECK_OK(join(&self, 2, 3));
    CHECK_OK(fill(&self, 3, 3));
    CHECK_OK(join(&self, 3, 0));
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &graph));
    CHECK_OK(pst_graph_get_info(graph, &info));
    CHECK_EQ(info.num_nodes, 3);
    CHECK_EQ(self.bytes[1] + self.bytes[2] + self.bytes[3], 0);
    CHECK_OK(pst_graph_launch(graph, self.streams[0]));
    CHECK_EQ(self.bytes[1] + self.bytes[2] + self.bytes[3], 3);
    CHECK_OK(pst_graph_destroy(graph));
    close_scene(&self);
}

PST_TEST(HostGraph, AnEventJoinsOnlyWhatCameBeforeIt)
{
    scene self;
    open_scene(&self);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(join(&self, 0, 1));
    CHECK_OK(pst_event_record(self.device, self.events[1], self.streams[1]));
    CHECK_OK(fill(&self, 0, 1));
    CHECK_OK(pst_event_wait(self.device, self.events[1], self.streams[0]));
    check_unjoined(&self); /* the fill came after the record */
    close_scene(&self);
}

PST_TEST(HostGraph, EventsOfAnotherCaptureAreRefused)
{
    scene self;
    pst_graph *graph = NULL;
    open_scene(&self);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pst_graph_begin(self.device, self.streams[i]));
        CHECK_OK(pst_event_record(self.device, self.events[i], self.streams[i]));
    }
    CHECK_STATUS(pst_event_wait(self.device, self.events[0], self.streams[1]), PST_E_CAPTURE);
    check_said("another capture");
    for (int i = 0; i < 2; i++) /* both */
        check_broken(&self, i, "pst_event_wait");
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(pst_graph_begin(self.device, self.streams[1]));
    CHECK_STATUS(pst_event_wait(self.device, self.events[2], self.streams[1]), PST_E_CAPTURE);
    check_said("recorded outside the capture");
    check_broken(&self, 1, "pst_event_wait");
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &graph));
    CHECK_OK(pst_graph_destroy(graph));
    close_scene(&self);
}

/* The event remembers a stream that is gone: it must not be looked at. */
PST_TEST(HostGraph, AnEventMayOutliveItsCaptureAndStream)
{
    scene self;
    pst_graph *graph = NULL;
    open_scene(&self);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(join(&self, 0, 1));
    CHECK_OK(join(&self, 1, 0));
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &graph));
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_stream_destroy(self.device, self.streams[1]));
    CHECK_OK(pst_stream_destroy(self.device, self.streams[0]));
    CHECK_OK(pst_stream_create(self.device, &self.streams[0]));
    CHECK_OK(pst_stream_create(self.device, &self.streams[1]));
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(pst_event_wait(self.device, self.events[i], self.streams[2]), PST_E_CAPTURE);
        check_said("a capture that has ended");
        CHECK_OK(pst_graph_begin(self.device, self.streams[2]));
        CHECK_STATUS(pst_event_wait(self.device, self.events[i], self.streams[2]), PST_E_CAPTURE);
        check_broken(&self, 2, "pst_event_wait");
        CHECK_OK(pst_event_record(self.device, self.events[i], self.streams[3]));
        CHECK_OK(pst_event_wait(self.device, self.events[i], self.streams[2]));
    }
    close_scene(&self);
}

/* ---- external events ---- */

PST_TEST(HostGraph, ExternalEventsAreNodesAndJoinNothing)
{
    scene self;
    pst_graph *graph = NULL;
    pst_graph_info info;
    open_scene(&self);
    CHECK_OK(pst_event_record(self.device, self.events[0], self.streams[1]));
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(pst_event_wait_external(self.device, self.events[0], self.streams[0]));
    CHECK_OK(pst_event_record_external(self.device, self.events[1], self.streams[0]));
    CHECK_OK(pst_event_wait(self.device, self.events[1], self.streams[2])); /* joins nothing */
    CHECK_OK(fill(&self, 2, 2));
    CHECK_EQ(self.bytes[2], 1);
    CHECK_EQ(self.events[1]->nanoseconds, 0);
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &graph));
    CHECK_OK(pst_graph_get_info(graph, &info));
    CHECK_EQ(info.num_nodes, 2);
    CHECK_EQ(info.num_kernels, 0);
    CHECK_OK(pst_graph_launch(graph, NULL));
    const uint64_t first = self.events[1]->nanoseconds;
    CHECK(first != 0); /* recorded when the graph ran */
    self.events[1]->nanoseconds = 1;
    CHECK_OK(pst_graph_launch(graph, NULL));
    CHECK(self.events[1]->nanoseconds >= first);
    CHECK_OK(pst_graph_destroy(graph));
    close_scene(&self);
}

/* ---- launch ---- */

PST_TEST(HostGraph, AGraphCannotBeLaunchedIntoACapture)
{
    scene self;
    pst_graph *inner = NULL, *outer = NULL;
    pst_graph_info info;
    open_scene(&self);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(fill(&self, 0, 0));
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &inner));
    CHECK_OK(pst_graph_begin(self.device, self.streams[1]));
    CHECK_STATUS(pst_graph_launch(inner, self.streams[1]), PST_E_UNSUPPORTED);
    CHECK_EQ(self.bytes[0], 0);
    CHECK_OK(pst_graph_launch(inner, self.streams[0])); /* another stream is free */
    CHECK_EQ(self.bytes[0], 1);
    CHECK_OK(pst_graph_end(self.device, self.streams[1], &outer));
    CHECK_OK(pst_graph_get_info(outer, &info));
    CHECK_EQ(info.num_nodes, 0);
    CHECK_OK(pst_graph_destroy(inner));
    CHECK_OK(pst_graph_destroy(outer));
    close_scene(&self);
}

PST_TEST(HostGraph, AReplayReadsMemoryAnew)
{
    scene self;
    pst_graph *graph = NULL;
    unsigned char to[8] = {0};
    open_scene(&self);
    memcpy(self.bytes, "before!", 8);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(pst_device_copy(self.device, to, self.bytes, 8, self.streams[0]));
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &graph));
    for (int i = 0; i < 3; i++) {
        snprintf((char *)self.bytes, 8, "time %d", i);
        CHECK_OK(pst_graph_launch(graph, NULL));
        CHECK(memcmp(to, self.bytes, 8) == 0);
    }
    CHECK_OK(pst_graph_destroy(graph));
    close_scene(&self);
}

PST_TEST(HostGraph, AnExternalRecordReplacesACapturedOne)
{
    pst_device *device = NULL;
    pst_stream streams[2] = {NULL, NULL};
    pst_event event = NULL;
    pst_graph *graphs[2] = {NULL, NULL};
    CHECK_OK(pst_device_open("host", 0, &device));
    for (int i = 0; i < 2; i++)
        CHECK_OK(pst_stream_create(device, &streams[i]));
    CHECK_OK(pst_event_create(device, &event));
    CHECK_OK(pst_graph_begin(device, streams[0]));
    CHECK_OK(pst_event_record(device, event, streams[0]));
    CHECK_OK(pst_graph_end(device, streams[0], &graphs[0]));
    CHECK_OK(pst_graph_begin(device, streams[0]));
    CHECK_OK(pst_event_record_external(device, event, streams[0]));
    CHECK_OK(pst_graph_end(device, streams[0], &graphs[1]));
    CHECK_OK(pst_graph_launch(graphs[1], streams[0]));
    CHECK_OK(pst_event_wait(device, event, streams[1]));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pst_graph_destroy(graphs[i]));
        CHECK_OK(pst_stream_destroy(device, streams[i]));
    }
    CHECK_OK(pst_event_destroy(device, event));
    CHECK_OK(pst_device_close(device));
}

/* ---- functions ---- */

typedef struct summand {
    int *sum;
    int number;
    pst_status answer;
} summand;

static pst_status add(const void *args)
{
    const summand *what = args;
    *what->sum += what->number;
    return what->answer == PST_OK ? PST_OK : PSTI_FAIL(what->answer, "summand %d", what->number);
}

PST_TEST(HostGraph, FunctionsRunInTurnAndEndALaunchThatFails)
{
    scene self;
    pst_graph *graph = NULL;
    int sum = 0;
    summand what = {&sum, 1, PST_OK};
    open_scene(&self);
    pst_status (*const call)(pst_device *, psti_function *, const void *, size_t, pst_stream) =
        self.device->ops->call;
    CHECK_OK(call(self.device, add, &what, sizeof(what), NULL));
    CHECK_EQ(sum, 1);
    what.answer = PST_E_UNSUPPORTED;
    CHECK_STATUS(call(self.device, add, &what, sizeof(what), self.streams[0]), PST_E_UNSUPPORTED);
    CHECK_EQ(sum, 2);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    for (what.number = 10; what.number <= 1000; what.number *= 10) {
        what.answer = what.number == 100 ? PST_E_UNSUPPORTED : PST_OK;
        CHECK_OK(call(self.device, add, &what, sizeof(what), self.streams[0]));
    }
    CHECK_EQ(sum, 2);
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &graph));
    for (int i = 1; i <= 2; i++) {
        CHECK_STATUS(pst_graph_launch(graph, self.streams[0]), PST_E_UNSUPPORTED);
        check_said("summand 100");
        CHECK_EQ(sum, 2 + 110 * i);
    }
    CHECK_OK(pst_graph_destroy(graph));
    close_scene(&self);
}
