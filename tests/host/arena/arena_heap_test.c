/* The fallback of an arena: its cache, its sizes, and what happens when memory runs out. */
#include "tests/host/arena/arena_scene.h"

/* An arena without a plan. */
static void open_heap(arena_scene *self, uint64_t cache_bytes)
{
    scene_begin(self);
    self->config.cache_bytes = cache_bytes;
    CHECK_OK(pst_arena_create(NULL, NULL, &self->config, &self->arena));
}

PST_TEST(ArenaHeap, TheCacheIsGivenBackBeforeMemoryRunsOut)
{
    arena_scene scene;
    open_heap(&scene, 0);
    scene_tell(&scene, "a1024=- -a");
    scene.allocs_left = 0;
    scene_tell(&scene, "a1024=- b2048=!"); /* a was cached */
    CHECK_EQ(scene.num_owned, 1);
    scene_tell(&scene, "-a b2048=!");
    CHECK_EQ(scene.num_owned, 0);
    CHECK_EQ(scene_stats(&scene).requests, 2);
    scene_close(&scene);
}

PST_TEST(ArenaHeap, TheCacheHasALimit)
{
    arena_scene scene;
    open_heap(&scene, 2048);
    scene_tell(&scene, "a1024=- b1024=- c1024=-");
    CHECK_EQ(scene_stats(&scene).fallback_peak_bytes, 3072);
    scene_tell(&scene, "-a -b -c");
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
    open_heap(&scene, 0);
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
    open_heap(&scene, 0);
    for (int i = 0; i < COUNT; i++)
        CHECK_EQ(ask(&scene, 512, 0, &blocks[i]), FALLBACK);
    CHECK_EQ(scene_stats(&scene).live, COUNT);
    for (int i = 0; i < COUNT; i++)
        CHECK_OK(pst_arena_free(scene.arena, blocks[i * 7 % COUNT], stream_at(0)));
    CHECK_EQ(scene_stats(&scene).live, 0);
    scene_close(&scene);
}
