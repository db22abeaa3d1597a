/* The lazy device itself: its orders are those that CUDA allows, all of them and no others. */
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

static void watch(void *context, const lazy_seen *seen)
{
    scene *self = context;
    if (seen->runs && self->num_runs < LOG)
        self->runs[self->num_runs++] = *seen;
    else if (!seen->runs && self->num_calls < LOG)
        self->calls[self->num_calls++] = *seen;
}

static void note_report(void *context, const char *text)
{
    scene *self = context;
    snprintf(self->said, sizeof(self->said), "%s", text);
}

static void open_scene(scene *self, uint64_t seed, bool eager)
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
static void close_scene(scene *self)
{
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_STR(self->said, "");
    for (int i = 0; i < STREAMS; i++) {
        CHECK_OK(pst_stream_destroy(self->device, self->streams[i]));
        CHECK_OK(pst_event_destroy(self->device, self->events[i]));
    }
    CHECK_OK(pst_device_close(self->device));
}

static void fill(scene *self, int at, uint8_t value, int stream)
{
    CHECK_OK(pst_device_fill(self->device, &self->bytes[at], value, 1, self->streams[stream]));
}

static void copy(scene *self, int to, int from, int stream)
{
    CHECK_OK(pst_device_copy(self->device, &self->bytes[to], &self->bytes[from], 1,
                             self->streams[stream]));
}

static void record(scene *self, int event, int stream)
{
    CHECK_OK(pst_event_record(self->device, self->events[event], self->streams[stream]));
}

static void wait_for(scene *self, int event, int stream)
{
    CHECK_OK(pst_event_wait(self->device, self->events[event], self->streams[stream]));
}

static void synchronize(scene *self, int stream)
{
    CHECK_OK(pst_stream_synchronize(self->device, self->streams[stream]));
}

/* ---- whose turn it is ---- */

PST_TEST(Lazy, NothingRunsBeforeSomebodySynchronizes)
{
    scene self;
    open_scene(&self, 1, false);
    fill(&self, 0, 1, 0);
    fill(&self, 1, 2, 0);
    CHECK_EQ(self.bytes[0], 0);
    CHECK_EQ(lazy_pending(self.device), 2);
    CHECK_EQ(lazy_run(self.device, 1), 1);
    CHECK_EQ(self.bytes[0], 1);
    CHECK_EQ(self.bytes[1], 0);
    CHECK_EQ(lazy_run(self.device, 5), 1);
    CHECK_EQ(self.bytes[1], 2);
    CHECK_EQ(lazy_pending(self.device), 0);
    close_scene(&self);
}

PST_TEST(Lazy, EagerRunsAtOnce)
{
    scene self;
    open_scene(&self, 1, true);
    fill(&self, 0, 1, 0);
    CHECK_EQ(self.bytes[0], 1);
    record(&self, 0, 0);
    wait_for(&self, 0, 1);
    copy(&self, 1, 0, 1);
    CHECK_EQ(self.bytes[1], 1);
    CHECK_EQ(lazy_pending(self.device), 0);
    close_scene(&self);
}

/* Bit i: the i-th node that ran was of stream 1. Streams keep their own order. */
static uint32_t order_of(uint64_t seed)
{
    scene self;
    uint32_t order = 0;
    size_t next[2] = {0, 0};
    open_scene(&self, seed, false);
    for (int i = 0; i < 6; i++)
        fill(&self, i, 1, i % 2);
    pst_device_synchronize(self.device);
    for (size_t i = 0; i < 6 && self.num_runs == 6; i++) {
        const uint32_t stream = self.runs[i].stream_index - 1;
        order |= stream << i;
        if (self.runs[i].to != &self.bytes[2 * next[stream]++ + stream])
            psti_test_fail(__FILE__, __LINE__, "seed %d: not in order", (int)seed);
    }
    if (self.num_runs != 6)
        psti_test_fail(__FILE__, __LINE__, "%d nodes ran", (int)self.num_runs);
    close_scene(&self);
    return order;
}

PST_TEST(Lazy, EveryOrderOfTwoStreamsOccursAndASeedRepeatsIt)
{
    bool seen[64] = {false};
    int num = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const uint32_t order = order_of(seed);
        CHECK_EQ(order_of(seed), order);
        num += !seen[order];
        seen[order] = true;
    }
    CHECK_EQ(num, 20); /* 6 over 3 */
}

PST_TEST(Lazy, AMissingWaitShowsForSomeSeed)
{
    for (int waits = 0; waits < 2; waits++) {
        int wrong = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            scene self;
            open_scene(&self, seed, false);
            fill(&self, 0, 7, 0);
            record(&self, 0, 0);
            if (waits)
                wait_for(&self, 0, 1);
            copy(&self, 1, 0, 1);
            synchronize(&self, 1);
            wrong += self.bytes[1] != 7;
            close_scene(&self);
        }
        CHECK_MSG(waits ? wrong == 0 : wrong > SEEDS / 10 && wrong < SEEDS, "%d wrong", wrong);
    }
}

PST_TEST(Lazy, TheDefaultStreamIsAStreamLikeOthers)
{
    int first = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        scene self;
        open_scene(&self, seed, false);
        fill(&self, 0, 7, 0);
        CHECK_OK(pst_device_copy(self.device, &self.bytes[1], &self.bytes[0], 1, NULL));
        CHECK_OK(pst_stream_synchronize(self.device, NULL));
        first += self.bytes[1] == 0;
        close_scene(&self);
    }
    CHECK(first > 0 && first < SEEDS);
}

/* ---- events ---- */

PST_TEST(Lazy, AWaitTakesTheLastRecordBeforeItsCall)
{
    scene self;
    open_scene(&self, 1, false);
    lazy_hold_back(self.device, self.streams[2], true);
    wait_for(&self, 0, 1); /* never recorded: it does not wait */
    fill(&self, 0, 1, 0);
    record(&self, 0, 0);
    wait_for(&self, 0, 1);
    copy(&self, 1, 0, 1);
    record(&self, 0, 2); /* cannot run: who waits from here on waits for it */
    synchronize(&self, 1);
    CHECK_EQ(self.bytes[1], 1);
    wait_for(&self, 0, 1);
    CHECK_STATUS(pst_stream_synchronize(self.device, self.streams[1]), PST_E_CUDA);
    CHECK_STR(self.said, "no stream can go on: stream 3 is held back; stream 2 waits for a record "
                         "or launch in stream 3");
    CHECK_STATUS(pst_event_synchronize(self.device, self.events[0]), PST_E_CUDA);
    self.said[0] = '\0';
    lazy_hold_back(self.device, self.streams[2], false);
    CHECK_OK(pst_event_synchronize(self.device, self.events[0]));
    synchronize(&self, 1);
    close_scene(&self);
}

PST_TEST(Lazy, ElapsedWantsBothPassed)
{
    scene self;
    double seconds = 0;
    open_scene(&self, 1, false);
    record(&self, 0, 0);
    record(&self, 1, 0);
    CHECK_STATUS(pst_event_elapsed(self.device, self.events[0], self.events[1], &seconds),
                 PST_E_CUDA);
    synchronize(&self, 0);
    CHECK_OK(pst_event_elapsed(self.device, self.events[0], self.events[1], &seconds));
    CHECK(seconds >= 0);
    close_scene(&self);
}

PST_TEST(Lazy, WhatWasEnqueuedOutlivesItsStreamAndItsEvent)
{
    scene self;
    pst_stream stream = NULL;
    pst_event event = NULL;
    open_scene(&self, 1, false);
    CHECK_OK(pst_stream_create(self.device, &stream));
    CHECK_OK(pst_event_create(self.device, &event));
    CHECK_OK(pst_device_fill(self.device, &self.bytes[0], 5, 1, stream));
    CHECK_OK(pst_event_record(self.device, event, stream));
    CHECK_OK(pst_event_wait(self.device, event, self.streams[0]));
    copy(&self, 1, 0, 0);
    CHECK_OK(pst_stream_destroy(self.device, stream));
    CHECK_OK(pst_event_destroy(self.device, event));
    CHECK_STATUS(pst_stream_synchronize(self.device, stream), PST_E_INVALID);
    CHECK_STATUS(pst_device_fill(self.device, &self.bytes[0], 5, 1, stream), PST_E_INVALID);
    CHECK_STATUS(pst_event_record(self.device, event, self.streams[0]), PST_E_INVALID);
    synchronize(&self, 0);
    CHECK_EQ(self.bytes[1], 5);
    close_scene(&self);
}

/* ---- graphs ---- */

/* bytes 0 = 1; beside each other 1 = [0] and 2 = 9; then 3 = [1]. fork_late: the second stream forks
 * behind the first fill, as it must. */
static pst_graph *capture_diamond(scene *self, bool forks_late)
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

PST_TEST(Lazy, AGraphRunsInAnyOrderOfItsEdges)
{
    for (int forks_late = 0; forks_late < 2; forks_late++) {
        int wrong = 0, copy_first = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            scene self;
            open_scene(&self, seed, false);
            pst_graph *graph = capture_diamond(&self, forks_late);
            CHECK(graph);
            CHECK_EQ(graph->info.num_nodes, 4);
            CHECK_OK(pst_graph_launch(graph, self.streams[2]));
            copy(&self, 4, 3, 2); /* behind the whole graph */
            CHECK_EQ(lazy_pending(self.device), 6);
            synchronize(&self, 2);
            wrong += self.bytes[4] != 1;
            CHECK_EQ(self.bytes[2], 9);
            CHECK_EQ(self.num_runs, 7);
            CHECK_EQ(self.runs[0].kind, LAZY_GRAPH_BEGIN);
            CHECK_EQ(self.runs[5].kind, LAZY_GRAPH_END);
            CHECK_EQ(self.runs[6].kind, LAZY_COPY);
            for (int i = 1; i < 5; i++)
                copy_first += self.runs[i].node == 1 && self.runs[i].captured_on == 2 && i == 2;
            CHECK_OK(pst_graph_destroy(graph));
            close_scene(&self);
        }
        CHECK_MSG(forks_late ? wrong == 0 : wrong > SEEDS / 10 && wrong < SEEDS, "%d wrong", wrong);
        CHECK(copy_first > SEEDS / 10 && copy_first < SEEDS);
    }
}

PST_TEST(Lazy, OtherStreamsRunBesideAGraph)
{
    bool seen[5] = {false};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        scene self;
        int before = 0;
        open_scene(&self, seed, false);
        pst_graph *graph = capture_diamond(&self, true);
        CHECK_OK(pst_graph_launch(graph, self.streams[0]));
        fill(&self, 8, 1, 1);
        CHECK_OK(pst_device_synchronize(self.device));
        for (size_t i = 0; i < self.num_runs && self.runs[i].to != &self.bytes[8]; i++)
            before += self.runs[i].graph && self.runs[i].kind < LAZY_GRAPH;
        seen[before] = true;
        CHECK_OK(pst_graph_destroy(graph));
        close_scene(&self);
    }
    for (int i = 0; i < 5; i++)
        CHECK_MSG(seen[i], "never with %d nodes before it", i);
}

PST_TEST(Lazy, CapturesFollowTheRulesOfTheHostDevice)
{
    scene self;
    pst_graph *graph = NULL;
    open_scene(&self, 1, false);
    record(&self, 2, 2);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    record(&self, 0, 0);
    wait_for(&self, 0, 1);
    fill(&self, 0, 1, 1); /* not joined back */
    CHECK_STATUS(pst_graph_end(self.device, self.streams[1], &graph), PST_E_CAPTURE);
    CHECK_STATUS(pst_graph_end(self.device, self.streams[0], &graph), PST_E_CAPTURE);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_STATUS(pst_stream_synchronize(self.device, self.streams[1]), PST_E_CAPTURE);
    CHECK_STATUS(pst_graph_end(self.device, self.streams[0], &graph), PST_E_CAPTURE);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_STATUS(pst_event_wait(self.device, self.events[2], self.streams[0]), PST_E_CAPTURE);
    CHECK_STATUS(pst_graph_end(self.device, self.streams[0], &graph), PST_E_CAPTURE);
    CHECK(!graph);
    graph = capture_diamond(&self, true);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_STATUS(pst_graph_launch(graph, self.streams[0]), PST_E_UNSUPPORTED);
    CHECK_STATUS(pst_device_free(self.device, &self), PST_E_CAPTURE);
    pst_graph *none = NULL;
    CHECK_STATUS(pst_graph_end(self.device, self.streams[0], &none), PST_E_CAPTURE);
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_EQ(self.num_runs, 0);
    close_scene(&self);
}

/* One graph copies byte 0 to 1 and records; the other waits, if it does, and copies 1 to 2. */
static void capture_two(scene *self, bool waits, pst_graph *graphs[2])
{
    CHECK_OK(pst_graph_begin(self->device, self->streams[0]));
    copy(self, 1, 0, 0);
    CHECK_OK(pst_event_record_external(self->device, self->events[0], self->streams[0]));
    CHECK_OK(pst_graph_end(self->device, self->streams[0], &graphs[0]));
    CHECK_OK(pst_graph_begin(self->device, self->streams[1]));
    if (waits)
        CHECK_OK(pst_event_wait_external(self->device, self->events[0], self->streams[1]));
    copy(self, 2, 1, 1);
    CHECK_OK(pst_event_record_external(self->device, self->events[1], self->streams[1]));
    CHECK_OK(pst_graph_end(self->device, self->streams[1], &graphs[1]));
}

PST_TEST(Lazy, ExternalEventsOrderGraphs)
{
    for (int waits = 0; waits < 2; waits++) {
        int wrong = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            scene self;
            pst_graph *graphs[2] = {NULL, NULL};
            open_scene(&self, seed, false);
            capture_two(&self, waits, graphs);
            for (uint8_t round = 1; round <= 3; round++) {
                fill(&self, 0, round, 0);
                CHECK_OK(pst_graph_launch(graphs[0], self.streams[0]));
                CHECK_OK(pst_graph_launch(graphs[1], self.streams[1]));
                copy(&self, 4 + round, 2, 1);
                wait_for(&self, 1, 0); /* the record that the second launch made */
            }
            synchronize(&self, 1);
            for (uint8_t round = 1; round <= 3; round++)
                wrong += self.bytes[4 + round] != round;
            CHECK_OK(pst_device_synchronize(self.device));
            CHECK_OK(pst_graph_destroy(graphs[0]));
            CHECK_OK(pst_graph_destroy(graphs[1]));
            close_scene(&self);
        }
        CHECK_MSG(waits ? wrong == 0 : wrong > SEEDS / 10, "%d wrong", wrong);
    }
}

PST_TEST(Lazy, ALaunchTakesTheRecordsBeforeIt)
{
    scene self;
    pst_graph *graphs[2] = {NULL, NULL};
    open_scene(&self, 3, false);
    capture_two(&self, true, graphs);
    fill(&self, 0, 4, 0);
    lazy_hold_back(self.device, self.streams[2], true);
    CHECK_OK(pst_graph_launch(graphs[0], self.streams[0]));
    CHECK_OK(pst_graph_launch(graphs[1], self.streams[1]));
    CHECK_OK(pst_graph_launch(graphs[0], self.streams[2])); /* cannot run */
    synchronize(&self, 1);
    CHECK_EQ(self.bytes[2], 4);
    CHECK_OK(pst_graph_launch(graphs[1], self.streams[1])); /* waits for the third launch */
    CHECK_STATUS(pst_stream_synchronize(self.device, self.streams[1]), PST_E_CUDA);
    CHECK_STR(self.said, "no stream can go on: stream 3 is held back; a graph in stream 2 waits");
    self.said[0] = '\0';
    lazy_hold_back(self.device, self.streams[2], false);
    CHECK_OK(pst_device_synchronize(self.device));
    CHECK_OK(pst_graph_destroy(graphs[0]));
    CHECK_OK(pst_graph_destroy(graphs[1]));
    close_scene(&self);
}

PST_TEST(Lazy, LaunchesOfOneGraphRunOneAfterTheOther)
{
    scene self;
    open_scene(&self, 3, false);
    pst_graph *graph = capture_diamond(&self, true);
    CHECK_OK(pst_graph_launch(graph, self.streams[0]));
    lazy_hold_back(self.device, self.streams[0], true);
    CHECK_OK(pst_graph_launch(graph, self.streams[1]));
    CHECK_EQ(lazy_run(self.device, 100), 0);
    lazy_hold_back(self.device, self.streams[0], false);
    CHECK_EQ(lazy_run(self.device, 100), 10);
    CHECK_OK(pst_graph_destroy(graph));
    close_scene(&self);
}

PST_TEST(Lazy, AGraphDestroyedBeforeItRanIsReported)
{
    scene self;
    open_scene(&self, 3, false);
    pst_graph *graph = capture_diamond(&self, true);
    CHECK_OK(pst_graph_launch(graph, self.streams[0]));
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_STR(self.said, "a graph was destroyed before it had run");
    CHECK_EQ(lazy_pending(self.device), 0);
    self.said[0] = '\0';
    pst_event event = NULL;
    CHECK_OK(pst_event_create(self.device, &event));
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(pst_event_wait_external(self.device, event, self.streams[0]));
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &graph));
    CHECK_OK(pst_event_destroy(self.device, event));
    CHECK_OK(pst_graph_launch(graph, self.streams[0]));
    CHECK_STR(self.said, "a graph was launched that records or awaits an event that was destroyed");
    self.said[0] = '\0';
    synchronize(&self, 0);
    CHECK_OK(pst_graph_destroy(graph));
    close_scene(&self);
}

PST_TEST(Lazy, HoldsAreCountedUntilTheGraphDies)
{
    scene self;
    psti_hold hold = {0};
    psti_capture_of capture;
    pst_graph *graph = NULL;
    open_scene(&self, 3, false);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(self.device->ops->capture_of(self.device, self.streams[0], &capture));
    CHECK(capture.id);
    CHECK_OK(psti_hold_in(self.device, &capture, &hold));
    CHECK_OK(psti_hold_in(self.device, &capture, &hold));
    fill(&self, 0, 1, 0);
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &graph));
    CHECK_EQ(psti_hold_count(self.device, &hold), 1);
    CHECK_OK(pst_graph_launch(graph, self.streams[0]));
    synchronize(&self, 0);
    CHECK_EQ(psti_hold_count(self.device, &hold), 1);
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_EQ(psti_hold_count(self.device, &hold), 0);
    close_scene(&self);
}

/* ---- hooks ---- */

PST_TEST(Lazy, TheCallThatIsToFailEnqueuesNothing)
{
    for (uint64_t n = 0; n <= 6; n++) {
        scene self;
        pst_status status[6];
        open_scene(&self, 3, false);
        pst_graph *graph = capture_diamond(&self, true);
        const uint64_t before = lazy_calls(self.device);
        CHECK_EQ(before, 8);
        lazy_fail_at(self.device, n);
        status[0] = pst_device_fill(self.device, &self.bytes[8], 1, 1, self.streams[0]);
        status[1] =
            pst_device_copy(self.device, &self.bytes[9], &self.bytes[8], 1, self.streams[0]);
        status[2] = pst_event_record(self.device, self.events[2], self.streams[0]);
        status[3] = pst_event_wait(self.device, self.events[2], self.streams[1]);
        status[4] = pst_graph_launch(graph, self.streams[1]);
        status[5] = pst_device_fill(self.device, &self.bytes[10], 1, 1, self.streams[1]);
        for (uint64_t i = 0; i < 6; i++)
            CHECK_STATUS(status[i], i + 1 == n ? PST_E_CUDA : PST_OK);
        CHECK_EQ(lazy_calls(self.device) - before, 6);
        CHECK_EQ(lazy_pending(self.device), n == 0 ? 10 : n == 5 ? 5 : 9);
        CHECK_OK(pst_device_synchronize(self.device));
        CHECK_EQ(self.bytes[8], n != 1);
        CHECK_EQ(self.bytes[9], n != 1 && n != 2);
        CHECK_EQ(self.bytes[3], n != 5);
        CHECK_EQ(self.bytes[10], n != 6);
        CHECK_OK(pst_graph_destroy(graph));
        close_scene(&self);
    }
}

PST_TEST(Lazy, TheWatcherSeesCallsAndRuns)
{
    static const lazy_kind expected[] = {LAZY_FILL, LAZY_RECORD, LAZY_WAIT, LAZY_COPY, LAZY_LAUNCH};
    scene self;
    pst_pool *pool = NULL;
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    open_scene(&self, 3, false);
    config.num_pages = 2;
    CHECK_OK(pst_pool_create(self.device, &config, &pool));
    self.num_calls = self.num_runs = 0;
    fill(&self, 0, 1, 0);
    record(&self, 0, 0);
    wait_for(&self, 0, 1);
    copy(&self, 1, 0, 1);
    CHECK_OK(pst_pool_step(pool, self.streams[1]));
    CHECK_EQ(self.num_calls, 5);
    CHECK_EQ(self.num_runs, 0);
    synchronize(&self, 1);
    CHECK_EQ(self.num_runs, 5); /* each has its turn only behind the one before */
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(self.calls[i].kind, expected[i]);
        CHECK_EQ(self.runs[i].kind, expected[i]);
        CHECK_EQ(self.calls[i].number, self.runs[i].number);
        CHECK_EQ(self.calls[i].stream_index, i < 2 ? 1 : 2);
        CHECK(self.calls[i].stream == self.streams[i < 2 ? 0 : 1]);
        CHECK(!self.calls[i].runs && self.runs[i].runs);
        CHECK(strlen(lazy_kind_name(expected[i])) > 0);
    }
    CHECK_EQ(self.calls[4].op, PSTI_OP_STEP);
    CHECK_EQ(self.runs[4].op, PSTI_OP_STEP);
    CHECK(self.runs[4].args && self.runs[4].args != self.calls[4].args);
    CHECK(self.calls[2].event == self.events[0]);
    CHECK_OK(pst_pool_destroy(pool));
    close_scene(&self);
}
