/* Streams of an arena: which is which, what may be reused across them and when that is not safe. */
#include "tests/host/arena/arena_scene.h"

static void drop(arena_scene *self, void *address, unsigned stream)
{
    CHECK_OK(pst_arena_free(self->arena, address, stream_at(stream)));
}

PST_TEST(ArenaStream, ThePlansStreamsAreBoundInOrder)
{
    arena_scene scene = {.memory = NULL};
    void *a[4] = {NULL};
    scene_open(&scene,
               "malloc 1 512 7 0/malloc 2 512 3 512/malloc 3 512 7 1024/malloc 4 1024 3 1536");
    CHECK_EQ(ask(&scene, 512, 20, &a[0]), 0); /* 7 is 20 */
    CHECK_EQ(ask(&scene, 512, 10, &a[1]), 512);
    CHECK_EQ(ask(&scene, 512, 10, &a[2]), FALLBACK); /* 10 is 3 by now */
    check_deviations(&scene, "stream 1");
    CHECK_STR(scene_stats(&scene).first_deviation,
              "stream: iteration 0, request 3: expected tensor 3 of 512 bytes on stream 7, got 512 "
              "bytes on stream 3");
    drop(&scene, a[2], 10);
    CHECK_EQ(ask(&scene, 512, 30, &a[2]), FALLBACK); /* 7 is bound by now */
    drop(&scene, a[2], 30);
    CHECK_EQ(ask(&scene, 512, 20, &a[2]), 1024);
    CHECK_EQ(ask(&scene, 1024, 10, &a[3]), 1536);
    for (int i = 0; i < 4; i++)
        drop(&scene, a[i], i % 2 ? 10 : 20);
    scene_close(&scene);
}

PST_TEST(ArenaStream, ThereMayBeManyStreams)
{
    arena_scene scene = {.memory = NULL};
    void *address = NULL;
    scene_open(&scene, "malloc 1 512 0 0");
    for (unsigned i = 0; i < PST_ARENA_MAX_STREAMS; i++) {
        CHECK_EQ(ask(&scene, 1024, i, &address), FALLBACK);
        drop(&scene, address, i);
    }
    CHECK_EQ(ask(&scene, 512, 100, &address), FALLBACK); /* no room to bind it */
    drop(&scene, address, 100);
    CHECK_EQ(ask(&scene, 512, 63, &address), 0);
    drop(&scene, address, 100); /* and what it does counts as a use of its own */
    check_deviations(&scene, "size 64 stream 1 use 1");
    scene_close(&scene);

    scene = (arena_scene){.memory = NULL};
    scene_begin(&scene);
    char text[4096] = "";
    for (unsigned i = 0; i <= PST_ARENA_MAX_STREAMS; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "malloc %u 512 %u %u/", i, i,
                 i * 512);
    CHECK_OK(scene_plan(text, &scene.plan));
    CHECK_STATUS(pst_arena_create(NULL, scene.plan, &scene.config, &scene.arena), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "the plan has more than 64 streams"));
    scene_close(&scene);
}

/* Streams 0 and 1 share the bytes from 512 on; 3 is stream 1's alone, and 4 stream 0's. */
#define TWO_STREAMS                                                                                \
    "mark 0/malloc 1 1024 0 0/free 1/malloc 2 512 1 512/free 2/malloc 3 512 1 1024/malloc 4 2048 " \
    "0 1536/free 3/free 4"

typedef enum accident { NOTHING, EXTRA, OTHER_SIZE, MISSING } accident;

static void play_two_streams(arena_scene *self, accident what, long long second)
{
    void *address = NULL;
    void *other = NULL;
    CHECK_OK(pst_arena_iteration(self->arena));
    if (what == OTHER_SIZE || what == EXTRA) {
        CHECK_EQ(ask(self, 8192, 0, &address), FALLBACK);
        drop(self, address, 0);
    }
    if (what == NOTHING || what == EXTRA) {
        CHECK_EQ(ask(self, 1024, 0, &address), 0);
        drop(self, address, 0);
    }
    CHECK_EQ(ask(self, 512, 1, &address), second);
    drop(self, address, 1);
    CHECK_EQ(ask(self, 512, 1, &address), 1024);
    CHECK_EQ(ask(self, 2048, 0, &other), 1536);
    drop(self, address, 1);
    drop(self, other, 0);
}

PST_TEST(ArenaStream, SharedBytesAreBelievedOnlyInStep)
{
    arena_scene scene = {.memory = NULL};
    scene_open(&scene, TWO_STREAMS);
    play_two_streams(&scene, NOTHING, 512);
    check_deviations(&scene, "");
    play_two_streams(&scene, EXTRA, 512);
    check_deviations(&scene, "size 1");
    /* 512 bytes on stream 1 are planned twice: the first time is meant, and that is not certain */
    play_two_streams(&scene, MISSING, FALLBACK);
    play_two_streams(&scene, NOTHING, 512); /* in step again */
    scene_close(&scene);

    scene = (arena_scene){.memory = NULL};
    scene_open(&scene, "mark 0/malloc 1 1024 0 0/free 1/malloc 2 512 1 512/free 2/malloc 3 1536 1 "
                       "1024/free 3");
    void *address = NULL;
    CHECK_EQ(ask(&scene, 1024, 0, &address), 0);
    drop(&scene, address, 0);
    CHECK_EQ(ask(&scene, 1536, 1, &address), 1024); /* nothing but stream 1's */
    drop(&scene, address, 1);
    CHECK_EQ(ask(&scene, 512, 1, &address), FALLBACK);
    drop(&scene, address, 1);
    check_deviations(&scene, "order 2 blocked 1");
    CHECK_OK(pst_arena_iteration(scene.arena));
    CHECK_EQ(ask(&scene, 9999, 0, &address), FALLBACK); /* in place of 1 */
    drop(&scene, address, 0);
    CHECK_EQ(ask(&scene, 512, 1, &address), 512);
    drop(&scene, address, 1);
    check_deviations(&scene, "size 1 order 2 blocked 1");
    scene_close(&scene);
}

PST_TEST(ArenaStream, SharedBytesAreFoundBehindShorterTensors)
{
    arena_scene scene = {.memory = NULL};
    void *address = NULL;
    /* of stream 0 the first reaches beyond the second, which begins later */
    scene_open(&scene, "mark 0/malloc 1 2048 0 0/free 1/malloc 2 512 0 512/free 2/malloc 3 1024 1 "
                       "1024/free 3/malloc 4 1536 1 2048/free 4");
    CHECK_EQ(ask(&scene, 512, 0, &address), 512);
    drop(&scene, address, 0);
    CHECK_EQ(ask(&scene, 1024, 1, &address), FALLBACK);
    drop(&scene, address, 1);
    CHECK_EQ(ask(&scene, 1536, 1, &address), 2048);
    drop(&scene, address, 1);
    check_deviations(&scene, "order 1 blocked 1");
    scene_close(&scene);
}

PST_TEST(ArenaStream, WhatWasNeverToBeFreedHoldsSharedBytes)
{
    arena_scene scene = {.memory = NULL};
    void *a = NULL;
    void *b = NULL;
    scene_open(&scene, "mark 0/malloc 1 512 1 0/free 1/malloc 2 512 0 0");
    CHECK_EQ(ask(&scene, 512, 1, &b), 0);
    drop(&scene, b, 1);
    CHECK_EQ(ask(&scene, 512, 0, &a), 0);
    CHECK_OK(pst_arena_iteration(scene.arena));
    drop(&scene, a, 0);
    CHECK_EQ(ask(&scene, 512, 1, &b), FALLBACK);
    drop(&scene, b, 1);
    check_deviations(&scene, "blocked 1");
    scene_close(&scene);
}

PST_TEST(ArenaStream, ALateFreeHoldsSharedBytes)
{
    arena_scene scene = {.memory = NULL};
    void *a = NULL;
    void *b = NULL;
    scene_open(&scene,
               "mark 0/malloc 1 512 0 0/malloc 2 512 1 512/free 1/malloc 3 512 1 1024/malloc "
               "4 512 1 0/free 2/free 3/free 4");
    CHECK_EQ(ask(&scene, 512, 0, &a), 0);
    CHECK_EQ(ask(&scene, 512, 1, &b), 512);
    drop(&scene, b, 1);
    CHECK_EQ(ask(&scene, 512, 1, &b), 1024);
    drop(&scene, a, 0); /* stream 1 waited for stream 0 before that */
    CHECK_EQ(ask(&scene, 512, 1, &a), FALLBACK);
    check_deviations(&scene, "blocked 1 late 1 early 1");
    drop(&scene, a, 1);
    drop(&scene, b, 1);
    CHECK_OK(pst_arena_iteration(scene.arena));
    CHECK_EQ(ask(&scene, 512, 0, &a), 0);
    drop(&scene, a, 0);
    scene_close(&scene);
}

PST_TEST(ArenaStream, UsesThatThePlanKnowsAreFree)
{
    arena_scene scene = {.memory = NULL};
    void *a = NULL;
    scene_open(&scene, "mark 0/malloc 1 512 0 0/use 1 5/free 1/malloc 2 512 0 0/free 2");
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pst_arena_iteration(scene.arena));
        CHECK_EQ(ask(&scene, 512, 0, &a), 0);
        CHECK_OK(pst_arena_record_stream(scene.arena, a, stream_at(0))); /* its own */
        CHECK_OK(pst_arena_record_stream(scene.arena, a, stream_at(9))); /* 5 is 9 */
        drop(&scene, a, 0);
        CHECK_EQ(ask(&scene, 512, 0, &a), 0);
        drop(&scene, a, 0);
    }
    check_deviations(&scene, "");
    scene_close(&scene);
}

PST_TEST(ArenaStream, OtherUsesHoldTheBytesBack)
{
    for (int how = 0; how < 3; how++) {
        arena_scene scene = {.memory = NULL};
        void *a = NULL;
        void *b = NULL;
        scene_open(&scene, "mark 0/malloc 1 1024 0 0/use 1 5/free 1/malloc 2 512 0 512/free 2");
        CHECK_EQ(ask(&scene, 1024, 0, &a), 0);
        if (how == 0) { /* 9 is 5, and 8 is not */
            CHECK_OK(pst_arena_record_stream(scene.arena, a, stream_at(9)));
            CHECK_OK(pst_arena_record_stream(scene.arena, a, stream_at(8)));
        }
        if (how == 1) {
            CHECK_OK(pst_arena_record_stream(scene.arena, a, stream_at(9)));
            drop(&scene, a, 8); /* freeing is using */
        } else {
            drop(&scene, a, 0);
        }
        CHECK_STATUS(pst_arena_free(scene.arena, a, stream_at(0)), PST_E_INVALID);
        CHECK_EQ(ask(&scene, 512, 0, &b), how == 2 ? 512 : FALLBACK);
        check_deviations(&scene, how == 2 ? "" : "blocked 1 use 1");
        drop(&scene, b, 0);
        CHECK_OK(pst_arena_iteration(scene.arena));
        CHECK_EQ(ask(&scene, 1024, 0, &a), 0); /* all have been waited for */
        drop(&scene, a, 0);
        CHECK_EQ(ask(&scene, 512, 0, &a), 512);
        drop(&scene, a, 0);
        check_deviations(&scene, how == 2 ? "" : "blocked 1 use 1");
        scene_close(&scene);
    }
}

PST_TEST(ArenaStream, FallbackMemoryStaysWithItsStream)
{
    arena_scene scene = {.memory = NULL};
    void *a = NULL;
    void *b = NULL;
    scene_begin(&scene);
    CHECK_OK(pst_arena_create(NULL, NULL, &scene.config, &scene.arena));
    CHECK_EQ(ask(&scene, 700, 0, &a), FALLBACK);
    drop(&scene, a, 0);
    CHECK_EQ(ask(&scene, 700, 1, &b), FALLBACK);
    CHECK(a != b);
    drop(&scene, b, 1);
    CHECK_EQ(ask(&scene, 1000, 0, &b), FALLBACK); /* of the same class */
    CHECK(a == b);
    CHECK_OK(pst_arena_record_stream(scene.arena, b, stream_at(1)));
    drop(&scene, b, 0);
    CHECK_EQ(ask(&scene, 700, 0, &b), FALLBACK); /* that one is held */
    CHECK(a != b);
    drop(&scene, b, 0);
    CHECK_EQ(scene_stats(&scene).fallback_allocs, 3);
    CHECK_OK(pst_arena_iteration(scene.arena));
    void *both[2] = {NULL, NULL};
    CHECK_EQ(ask(&scene, 700, 0, &both[0]), FALLBACK);
    CHECK_EQ(ask(&scene, 700, 0, &both[1]), FALLBACK);
    CHECK((both[0] == a && both[1] == b) || (both[0] == b && both[1] == a));
    CHECK_EQ(scene_stats(&scene).fallback_allocs, 3);
    check_deviations(&scene, ""); /* without a plan there are none */
    drop(&scene, both[0], 0);
    drop(&scene, both[1], 1); /* freeing is using */
    CHECK_EQ(ask(&scene, 700, 0, &both[0]), FALLBACK);
    CHECK_EQ(ask(&scene, 700, 0, &b), FALLBACK);
    CHECK(b != both[1]);
    CHECK_EQ(scene_stats(&scene).fallback_allocs, 4);
    drop(&scene, both[0], 0);
    drop(&scene, b, 0);
    scene_close(&scene);
}

/* ---- waiting for the device ---- */

static int num_waits;
static pst_status wait_answer;

static pst_status count_wait(pst_device *device)
{
    (void)device;
    num_waits++;
    return wait_answer;
}

PST_TEST(ArenaStream, AnIterationWaitsForTheDeviceIfThereAreStreams)
{
    for (int joined = 0; joined < 2; joined++) {
        pst_device *device = NULL;
        arena_scene scene;
        void *a = NULL;
        CHECK_OK(pst_device_open("host", 0, &device));
        const psti_device_ops *ops = device->ops;
        psti_device_ops counting = *ops;
        counting.synchronize = count_wait;
        device->ops = &counting;
        scene_begin(&scene);
        scene.config.streams_joined = joined;
        num_waits = 0;
        wait_answer = PST_OK;
        CHECK_OK(scene_plan("mark 0/malloc 1 512 0 0/free 1", &scene.plan));
        CHECK_OK(pst_arena_create(device, scene.plan, &scene.config, &scene.arena));
        CHECK_EQ(ask(&scene, 512, 0, &a), 0);
        CHECK_OK(pst_arena_iteration(scene.arena));
        CHECK_EQ(num_waits, 0);
        CHECK_OK(pst_arena_record_stream(scene.arena, a, stream_at(1)));
        drop(&scene, a, 0);
        wait_answer = joined ? PST_OK : PST_E_CUDA;
        CHECK_STATUS(pst_arena_iteration(scene.arena), wait_answer);
        CHECK_EQ(num_waits, 1 - joined);
        CHECK_EQ(ask(&scene, 512, 0, &a), joined ? 0 : FALLBACK); /* still held */
        drop(&scene, a, 0);
        wait_answer = PST_OK;
        CHECK_OK(pst_arena_iteration(scene.arena));
        CHECK_EQ(ask(&scene, 512, 0, &a), 0);
        drop(&scene, a, 0);
        scene_close(&scene);
        device->ops = ops;
        CHECK_OK(pst_device_close(device));
    }
}
