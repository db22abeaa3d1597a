/* Streams of an arena: which is which, what may be reused across them and when that is not safe. */
#include "tests/host/arena/arena_scene.h"

PST_TEST(ArenaStream, ThePlansStreamsAreBoundInOrder)
{
    arena_scene scene = {.memory = NULL};
    scene_open(&scene,
               "malloc 1 512 7 0/malloc 2 512 3 512/malloc 3 512 7 1024/malloc 4 1024 3 1536");
    /* 7 is 20, then 3 is 10 */
    scene_tell(&scene, "a512/20=0 b512/10=512 c512/10=- {stream 1}");
    CHECK_STR(scene_stats(&scene).first_deviation,
              "stream: iteration 0, request 3: expected tensor 3 of 512 bytes on stream 7, got 512 "
              "bytes on stream 3");
    scene_tell(&scene, "-c/10 c512/30=- -c/30"); /* 7 is bound by now */
    scene_tell(&scene, "c512/20=1024 d1024/10=1536 -a/20 -b/10 -c/20 -d/10");
    scene_close(&scene);
}

PST_TEST(ArenaStream, ThereMayBeManyStreams)
{
    arena_scene scene = {.memory = NULL};
    char text[4096] = "";
    scene_open(&scene, "malloc 1 512 0 0");
    for (int i = 0; i < PST_ARENA_MAX_STREAMS; i++) {
        char story[32];
        snprintf(story, sizeof(story), "a1024/%d=- -a/%d", i, i);
        scene_tell(&scene, story);
    }
    /* there is no room to bind stream 100, and what it does counts as a use of its own */
    scene_tell(&scene, "a512/100=- -a/100 a512/63=0 -a/100 {size 64 stream 1 use 1}");
    scene_close(&scene);

    scene_begin(&scene);
    for (unsigned i = 0; i <= PST_ARENA_MAX_STREAMS; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "malloc %u 512 %u %u/", i, i,
                 i * 512);
    CHECK_OK(scene_plan(text, &scene.plan));
    CHECK_STATUS(pst_arena_create(NULL, scene.plan, &scene.config, &scene.arena), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "the plan has more than 64 streams"));
    scene_close(&scene);
}

PST_TEST(ArenaStream, SharedBytesAreBelievedOnlyInStep)
{
    /* streams 0 and 1 share the bytes from 512 on; 3 is stream 1's alone, and 4 stream 0's */
    scene_play("mark 0/malloc 1 1024 0 0/free 1/malloc 2 512 1 512/free 2/malloc 3 512 1 1024/"
               "malloc 4 2048 0 1536/free 3/free 4",
               ". a1024=0 -a a512/1=512 -a/1 a512/1=1024 b2048=1536 -a/1 -b {} "
               ". a8192=- -a a1024=0 -a a512/1=512 -a/1 a512/1=1024 b2048=1536 -a/1 -b {size 1} "
               /* 512 bytes on stream 1 are planned twice: which is meant is not certain */
               ". a512/1=- -a/1 a512/1=1024 b2048=1536 -a/1 -b "
               /* in step again */
               ". a1024=0 -a a512/1=512 -a/1 a512/1=1024 b2048=1536 -a/1 -b");
    scene_play("mark 0/malloc 1 1024 0 0/free 1/malloc 2 512 1 512/free 2/malloc 3 1536 1 1024/"
               "free 3",
               "a1024=0 -a a1536/1=1024 -a/1 " /* nothing but stream 1's */
               "a512/1=- -a/1 {order 2 blocked 1} "
               ". a9999=- -a " /* in place of tensor 1 */
               "a512/1=512 -a/1 {size 1 order 2 blocked 1}");
}

PST_TEST(ArenaStream, SharedBytesAreFoundBehindShorterTensors)
{
    /* of stream 0 the first reaches beyond the second, which begins later */
    scene_play("mark 0/malloc 1 2048 0 0/free 1/malloc 2 512 0 512/free 2/malloc 3 1024 1 1024/"
               "free 3/malloc 4 1536 1 2048/free 4",
               "a512=512 -a a1024/1=- -a/1 a1536/1=2048 -a/1 {order 1 blocked 1}");
}

PST_TEST(ArenaStream, WhatWasNeverToBeFreedHoldsSharedBytes)
{
    scene_play("mark 0/malloc 1 512 1 0/free 1/malloc 2 512 0 0",
               "b512/1=0 -b/1 a512=0 . -a b512/1=- -b/1 {blocked 1}");
}

PST_TEST(ArenaStream, ALateFreeHoldsSharedBytes)
{
    /* stream 1 waited for stream 0 before a was freed */
    scene_play("mark 0/malloc 1 512 0 0/malloc 2 512 1 512/free 1/malloc 3 512 1 1024/malloc 4 512 "
               "1 0/free 2/free 3/free 4",
               "a512=0 b512/1=512 -b/1 b512/1=1024 -a a512/1=- {blocked 1 late 1 early 1} "
               "-a/1 -b/1 . a512=0 -a");
}

PST_TEST(ArenaStream, UsesThatThePlanKnowsAreFree)
{
    /* a is used on its own stream and on 9, which is the plan's 5 */
    scene_play("mark 0/malloc 1 512 0 0/use 1 5/free 1/malloc 2 512 0 0/free 2",
               ". a512=0 a+0 a+9 -a a512=0 -a . a512=0 a+0 a+9 -a a512=0 -a {}");
}

PST_TEST(ArenaStream, OtherUsesHoldTheBytesBack)
{
    /* 9 is 5, and 8 is not; freeing is using */
    static const char *const stories[] = {
        "a1024=0 a+9 a+8 -a b512=- {blocked 1 use 1} -b . a1024=0 -a a512=512 -a {blocked 1 use 1}",
        "a1024=0 a+9 -a/8 b512=- {blocked 1 use 1} -b . a1024=0 -a a512=512 -a {blocked 1 use 1}",
        "a1024=0 -a b512=512 {} -b . a1024=0 -a a512=512 -a {}",
    };
    for (size_t i = 0; i < sizeof(stories) / sizeof(*stories); i++)
        scene_play("mark 0/malloc 1 1024 0 0/use 1 5/free 1/malloc 2 512 0 512/free 2", stories[i]);
}

PST_TEST(ArenaStream, FallbackMemoryStaysWithItsStream)
{
    arena_scene scene;
    void **block = scene.blocks;
    scene_begin(&scene);
    CHECK_OK(pst_arena_create(NULL, NULL, &scene.config, &scene.arena));
    scene_tell(&scene, "a700=- -a b700/1=- -b/1 c1000=-"); /* a and c are of the same class */
    CHECK(block[0] != block[1] && block[0] == block[2]);
    scene_tell(&scene, "c+1 -c d700=-"); /* c is held */
    CHECK(block[3] != block[0]);
    scene_tell(&scene, "-d");
    CHECK_EQ(scene_stats(&scene).fallback_allocs, 3);
    scene_tell(&scene, ". e700=- f700=- {}"); /* without a plan there are no deviations */
    CHECK((block[4] == block[0] && block[5] == block[3]) ||
          (block[4] == block[3] && block[5] == block[0]));
    CHECK_EQ(scene_stats(&scene).fallback_allocs, 3);
    scene_tell(&scene, "-e -f/1 g700=- h700=-"); /* freeing is using */
    CHECK(block[7] != block[5]);
    CHECK_EQ(scene_stats(&scene).fallback_allocs, 4);
    scene_tell(&scene, "-g -h");
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
        scene_tell(&scene, "a512=0 .");
        CHECK_EQ(num_waits, 0);
        scene_tell(&scene, "a+1 -a");
        wait_answer = joined ? PST_OK : PST_E_CUDA;
        CHECK_STATUS(pst_arena_iteration(scene.arena), wait_answer);
        CHECK_EQ(num_waits, 1 - joined);
        scene_tell(&scene, joined ? "a512=0 -a" : "a512=- -a"); /* still held */
        wait_answer = PST_OK;
        scene_tell(&scene, ". a512=0 -a");
        scene_close(&scene);
        device->ops = ops;
        CHECK_OK(pst_device_close(device));
    }
}
