/* The lazy device itself: its orders are those that CUDA allows, all of them and no others. */
#include "tests/lazy/lazy_scene.h"

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
