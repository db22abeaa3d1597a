/* The fallback of an arena: its cache, its sizes, and what happens when memory runs out. */
#include "tests/host/arena/arena_scene.h"

PST_TEST(ArenaHeap, TheCacheIsGivenBackBeforeMemoryRunsOut)
{
    arena_scene scene;
    void *a = NULL;
    void *b = NULL;
    scene_begin(&scene);
    CHECK_OK(pst_arena_create(NULL, NULL, &scene.config, &scene.arena));
    CHECK_EQ(ask(&scene, 1024, 0, &a), FALLBACK);
    CHECK_OK(pst_arena_free(scene.arena, a, stream_at(0)));
    scene.allocs_left = 0;
    CHECK_EQ(ask(&scene, 1024, 0, &a), FALLBACK); /* cached */
    CHECK_EQ(ask(&scene, 2048, 0, &b), FAILED);
    CHECK_EQ(scene.num_owned, 1);
    CHECK_OK(pst_arena_free(scene.arena, a, stream_at(0)));
    CHECK_EQ(ask(&scene, 2048, 0, &b), FAILED);
    CHECK_EQ(scene.num_owned, 0);
    CHECK_EQ(scene_stats(&scene).requests, 2);
    scene_close(&scene);
}

PST_TEST(ArenaHeap, TheCacheHasALimit)
{
    arena_scene scene;
    void *a[3];
    scene_begin(&scene);
    scene.config.cache_bytes = 2048;
    CHECK_OK(pst_arena_create(NULL, NULL, &scene.config, &scene.arena));
    for (int i = 0; i < 3; i++)
        CHECK_EQ(ask(&scene, 1024, 0, &a[i]), FALLBACK);
    CHECK_EQ(scene_stats(&scene).fallback_peak_bytes, 3072);
    for (int i = 0; i < 3; i++)
        CHECK_OK(pst_arena_free(scene.arena, a[i], stream_at(0)));
    CHECK_EQ(scene.num_owned, 2);
    CHECK_EQ(scene_stats(&scene).taken_bytes, 2048);
    CHECK_EQ(scene_stats(&scene).taken_peak_bytes, 3072);
    scene.on_free = PST_E_CUDA; /* what it says is passed on, and all is gone */
    CHECK_STATUS(pst_arena_trim(scene.arena), PST_E_CUDA);
    CHECK_EQ(scene.num_owned, 0);
    scene.on_free = PST_OK;
    scene_close(&scene);
}

PST_TEST(ArenaHeap, FallbackSizesComeInClasses)
{
    static const struct {
        size_t asked, taken;
    } sizes[] = {{1, 512},
                 {512, 512},
                 {513, 1024},
                 {8192, 8192},
                 {8193, 9216},
                 {(64 << 20) - 1, 64 << 20},
                 {(64 << 20) + 1, 66 << 20}};
    arena_scene scene;
    scene_begin(&scene);
    CHECK_OK(pst_arena_create(NULL, NULL, &scene.config, &scene.arena));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        void *address = NULL;
        CHECK_EQ(ask(&scene, sizes[i].asked, 0, &address), FALLBACK);
        CHECK_EQ(scene_stats(&scene).fallback_bytes, sizes[i].taken);
        CHECK_OK(pst_arena_free(scene.arena, address, stream_at(0)));
    }
    scene_close(&scene);
}

PST_TEST(ArenaHeap, ManyFallbackBlocksAreFoundAgain)
{
    enum { COUNT = 2000 };
    static void *blocks[COUNT];
    arena_scene scene;
    scene_begin(&scene);
    CHECK_OK(pst_arena_create(NULL, NULL, &scene.config, &scene.arena));
    for (int i = 0; i < COUNT; i++)
        CHECK_EQ(ask(&scene, 512, 0, &blocks[i]), FALLBACK);
    CHECK_EQ(scene_stats(&scene).live, COUNT);
    for (int i = 0; i < COUNT; i++)
        CHECK_OK(pst_arena_free(scene.arena, blocks[i * 7 % COUNT], stream_at(0)));
    CHECK_EQ(scene_stats(&scene).live, 0);
    scene_close(&scene);
}
