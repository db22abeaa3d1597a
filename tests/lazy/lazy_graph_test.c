/* Captures and graphs of the lazy device: every order of their edges, beside other streams. */
#include "tests/lazy/lazy_scene.h"

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
