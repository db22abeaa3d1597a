/* Arenas: creation in every mode, what is refused, planned memory, figures, threads. */
#include "tests/host/arena/arena_scene.h"

#include <pthread.h>

#define SMALL "mark 0/malloc 1 1024 0 512/malloc 2 512 0 2048/free 1/free 2"

static void create_fails(pst_device *device, const pst_plan_file *plan,
                         const pst_arena_config *config, pst_status status, const char *said)
{
    pst_arena *arena = NULL;
    CHECK_STATUS(pst_arena_create(device, plan, config, &arena), status);
    CHECK(arena == NULL);
    CHECK_MSG(strstr(pst_last_message(), said), "\"%s\", not \"%s\"", pst_last_message(), said);
}

PST_TEST(Arena, CreateChecksEveryField)
{
    arena_scene scene;
    pst_device *device = NULL;
    pst_plan_file *crooked = NULL;
    scene_begin(&scene);
    CHECK_OK(scene_plan(SMALL, &scene.plan));
    CHECK_OK(pst_device_open("host", 0, &device));
    const pst_arena_config good = scene.config;
#define REFUSED(field, value, said)                                   \
    do {                                                              \
        pst_arena_config config = good;                               \
        config.field = value;                                         \
        create_fails(NULL, scene.plan, &config, PST_E_INVALID, said); \
    } while (0)
    REFUSED(struct_size, 8, "struct_size 8: pst_arena_config has ");
    REFUSED(mode, (pst_arena_mode)3, "mode 3: allowed are alloc, memory and reserve");
    REFUSED(mode, PST_ARENA_ALLOC, "device is NULL: allowed in mode memory only");
    REFUSED(mode, PST_ARENA_RESERVE, "device is NULL: allowed in mode memory only");
    REFUSED(fallback_free, NULL, "fallback_alloc and fallback_free: give both or none");
    REFUSED(align, 8, "align 8: allowed are powers of two, 16 to 2 MiB");
    REFUSED(align, 768, "align 768: allowed are powers of two, 16 to 2 MiB");
    REFUSED(align, 4 << 20, "align 4194304: allowed are powers of two, 16 to 2 MiB");
    REFUSED(align, 1024, "tensor 1, line 2: offset 512: allowed are multiples of align, 1024");
    REFUSED(lookahead, 4097, "lookahead 4097: allowed are up to 4096");
    REFUSED(memory, NULL, "must be aligned to 512");
    REFUSED(memory, scene.memory + 256, "must be aligned to 512");
    REFUSED(memory_bytes, 2559, "memory_bytes 2559: the plan needs 2560");
#undef REFUSED
    CHECK_STATUS(pst_arena_create(NULL, scene.plan, &good, NULL), PST_E_INVALID);
    create_fails(NULL, scene.plan, NULL, PST_E_INVALID, "device is NULL");
    CHECK_OK(scene_plan("malloc 1 1024 0 16", &crooked));
    create_fails(device, crooked, NULL, PST_E_INVALID, "tensor 1, line 1: offset 16");
    pst_plan_file_destroy(crooked);
    CHECK_EQ(device->live, 0);
    CHECK_OK(pst_device_close(device));
    scene_close(&scene); /* never created: nothing to destroy */
}

/* Two iterations, with data in the blocks. */
static void use_small(pst_arena *arena, bool is_planned)
{
    pst_arena_stats stats;
    for (int i = 0; i < 2; i++) {
        unsigned char *a = NULL;
        unsigned char *b = NULL;
        CHECK_OK(pst_arena_iteration(arena));
        CHECK_OK(pst_arena_malloc(arena, 1024, (void **)&a, NULL));
        CHECK_OK(pst_arena_malloc(arena, 500, (void **)&b, NULL));
        CHECK_OK(pst_arena_get_stats(arena, &stats));
        if (is_planned) {
            CHECK_EQ(a - (unsigned char *)stats.base, 512);
            CHECK_EQ(b - (unsigned char *)stats.base, 2048);
            CHECK_EQ((uintptr_t)stats.base % 512, 0);
        }
        memset(a, 1, 1024);
        memset(b, 2, 500);
        CHECK(pst_arena_owns(arena, a) && pst_arena_owns(arena, b));
        CHECK(!pst_arena_owns(arena, a + 512) && !pst_arena_owns(arena, NULL));
        CHECK_STATUS(pst_arena_destroy(arena), PST_E_BUSY);
        CHECK(strstr(pst_last_message(), "2 blocks of the arena are live"));
        CHECK_OK(pst_arena_free(arena, b, NULL));
        CHECK_OK(pst_arena_free(arena, a, NULL));
        CHECK(!pst_arena_owns(arena, a));
    }
}

PST_TEST(Arena, EveryModeServesThePlan)
{
    pst_device *device = NULL;
    pst_plan_file *plan = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(scene_plan(SMALL, &plan));
    for (int mode = PST_ARENA_ALLOC; mode <= PST_ARENA_RESERVE; mode++) {
        pst_arena *arena = NULL;
        pst_arena_stats stats;
        pst_arena_config config = PST_ARENA_CONFIG_INIT;
        config.mode = (pst_arena_mode)mode;
        config.memory = mode == PST_ARENA_MEMORY ? aligned_alloc(512, 4096) : NULL;
        config.memory_bytes = 4096;
        CHECK_OK(pst_arena_create(device, plan, &config, &arena));
        CHECK_STATUS(pst_device_close(device), PST_E_BUSY);
        CHECK_OK(pst_arena_get_stats(arena, &stats));
        CHECK_EQ(stats.arena_bytes, 2560);
        CHECK_EQ(stats.backed_bytes, mode == PST_ARENA_RESERVE ? 0 : 2560);
        use_small(arena, true);
        CHECK_OK(pst_arena_get_stats(arena, &stats));
        CHECK_EQ(stats.backed_bytes, 2560);
        CHECK_EQ(stats.requests, 4);
        CHECK_EQ(stats.planned, 4);
        CHECK_EQ(stats.iterations, 2);
        CHECK_EQ(stats.planned_bytes, 0);
        CHECK_EQ(stats.planned_peak_bytes, 1536);
        CHECK_EQ(stats.taken_peak_bytes, 0);
        CHECK_OK(pst_arena_destroy(arena));
        free(config.memory);
    }
    pst_plan_file_destroy(plan);
    CHECK_OK(pst_device_close(device));
}

PST_TEST(Arena, WithoutAPlanTheDeviceServes)
{
    pst_device *device = NULL;
    pst_plan_file *empty = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(scene_plan("", &empty));
    for (int i = 0; i < 2; i++) {
        pst_arena *arena = NULL;
        pst_arena_stats stats;
        CHECK_OK(pst_arena_create(device, i ? empty : NULL, NULL, &arena));
        use_small(arena, false);
        CHECK_OK(pst_arena_get_stats(arena, &stats));
        CHECK(stats.base == NULL && stats.arena_bytes == 0 && stats.planned == 0);
        CHECK_EQ(stats.deviations[PST_DEVIATION_EXTRA], i ? 4 : 0);
        CHECK_EQ(stats.fallback_allocs, 2);
        CHECK_EQ(stats.fallback_peak_bytes, 1536);
        CHECK_EQ(stats.fallback_bytes, 0);
        CHECK_EQ(stats.taken_bytes, 1536);
        CHECK_OK(pst_arena_trim(arena));
        CHECK_OK(pst_arena_get_stats(arena, &stats));
        CHECK_EQ(stats.taken_bytes, 0);
        CHECK_EQ(device->live, 1);
        CHECK_OK(pst_arena_destroy(arena));
    }
    pst_plan_file_destroy(empty);
    CHECK_OK(pst_device_close(device));
}

PST_TEST(Arena, MisuseIsRefused)
{
    arena_scene scene = {.memory = NULL};
    void *address = (void *)(uintptr_t)7;
    void *other = NULL;
    pst_arena_stats stats;
    scene_open(&scene, SMALL);
    CHECK_OK(pst_arena_malloc(scene.arena, 0, &other, NULL));
    CHECK(other == NULL);
    CHECK_EQ(scene_stats(&scene).requests, 0);
    CHECK_STATUS(pst_arena_malloc(scene.arena, 8, NULL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_arena_malloc(NULL, 8, &address, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_arena_malloc(scene.arena, SIZE_MAX, &address, NULL), PST_E_DEVICE_NOMEM);
    CHECK_EQ((uintptr_t)address, 7);
    CHECK_OK(pst_arena_free(scene.arena, NULL, NULL));
    CHECK_STATUS(pst_arena_free(NULL, address, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_arena_free(scene.arena, &scene, NULL), PST_E_INVALID);
    CHECK(
        strstr(pst_last_message(), "is not live in this arena: never given out, or freed before"));
    CHECK_STATUS(pst_arena_free(scene.arena, scene.memory + 512, NULL), PST_E_INVALID);
    CHECK_EQ(ask(&scene, 1024, 0, &address), 512);
    CHECK_EQ(ask(&scene, 5000, 0, &other), FALLBACK);
    CHECK_STATUS(pst_arena_free(scene.arena, (char *)address + 16, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_arena_free(scene.arena, (char *)other + 512, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_arena_record_stream(scene.arena, &scene, NULL), PST_E_INVALID);
    CHECK_OK(pst_arena_free(scene.arena, address, stream_at(0)));
    CHECK_OK(pst_arena_free(scene.arena, other, stream_at(0)));
    CHECK_STATUS(pst_arena_free(scene.arena, address, stream_at(0)), PST_E_INVALID);
    CHECK_STATUS(pst_arena_free(scene.arena, other, stream_at(0)), PST_E_INVALID);
    CHECK_STATUS(pst_arena_record_stream(scene.arena, other, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_arena_iteration(NULL), PST_E_INVALID);
    CHECK_STATUS(pst_arena_trim(NULL), PST_E_INVALID);
    CHECK_STATUS(pst_arena_record_stream(NULL, other, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_arena_get_stats(scene.arena, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_arena_get_stats(NULL, &stats), PST_E_INVALID);
    CHECK(!pst_arena_owns(NULL, address));
    CHECK_OK(pst_arena_destroy(NULL));
    CHECK_STR(pst_deviation_name(PST_DEVIATION_USE), "use");
    CHECK_STR(pst_deviation_name((pst_deviation)-1), "unknown");
    CHECK_STR(pst_deviation_name(PST_NUM_DEVIATIONS), "unknown");
    scene_close(&scene);
}

PST_TEST(Arena, WhatLivesLongerBlocksItsBytes)
{
    scene_play("mark 0/malloc 1 1024 0 0/free 1/malloc 2 512 0 512/malloc 3 512 0 1024/free 2/"
               "free 3",
               "a1024=0 b512=- c512=1024 {blocked 1} -a -b {blocked 1 late 1} "
               /* c of the iteration before is where the second would come */
               ". a1024=0 -a b512=512 a512=- {blocked 2 late 1} -c {blocked 2 late 2} -a -b");
}

PST_TEST(Arena, WhatIsFreedBehindTheLastMarkIsNotLate)
{
    scene_play("mark 0/malloc 1 512 0 0/mark 1/free 1/mark 2",
               ". a512=0 . -a a512=0 . -a a512=0 -a {}");
}

PST_TEST(Arena, AWrongPlanOverlapsNothing)
{
    scene_play("malloc 1 1024 0 512/malloc 2 512 0 1024/malloc 3 512 0 0/malloc 4 2048 0 0",
               "a1024=512 b512=- c512=0 d2048=- {blocked 2} -a -b -c -d");
}

/* ---- mode reserve ---- */

PST_TEST(Arena, AReservedRangeIsBackedAsItIsAskedFor)
{
    pst_device *device = NULL;
    pst_plan_file *plan = NULL;
    pst_arena *arena = NULL;
    pst_arena_stats stats;
    pst_arena_config config = PST_ARENA_CONFIG_INIT;
    void *low = NULL;
    void *middle = NULL;
    void *high = NULL;
    /* more than there is, and ThreadSanitizer has fewer addresses */
    const uint64_t far = UINT64_C(1) << (PSTI_UNDER_TSAN ? 38 : 40);
    char text[128];
    config.mode = PST_ARENA_RESERVE;
    CHECK_OK(pst_device_open("host", 0, &device));
    snprintf(text, sizeof(text),
             "mark 0/malloc 1 512 0 0/malloc 2 512 0 314572800/malloc 3 512 0 %llu",
             (unsigned long long)far);
    CHECK_OK(scene_plan(text, &plan));
    CHECK_OK(pst_arena_create(device, plan, &config, &arena));
    CHECK_OK(pst_arena_malloc(arena, 512, &low, NULL));
    CHECK_OK(pst_arena_get_stats(arena, &stats));
    CHECK_EQ(stats.arena_bytes, far + 512);
    CHECK_EQ(stats.backed_bytes, 256 << 20);
    CHECK_OK(pst_arena_malloc(arena, 512, &middle, NULL));
    memset(low, 1, 512);
    memset(middle, 1, 512);
    CHECK_EQ((char *)middle - (char *)low, 300 << 20);
    CHECK_OK(pst_arena_get_stats(arena, &stats));
    CHECK_EQ(stats.backed_bytes, 512 << 20);
    CHECK_OK(pst_arena_malloc(arena, 512, &high, NULL)); /* served all the same */
    memset(high, 1, 512);
    CHECK_OK(pst_arena_get_stats(arena, &stats));
    CHECK_EQ(stats.backed_bytes, 512 << 20);
    CHECK_EQ(stats.planned, 2);
    CHECK_EQ(stats.deviations[PST_DEVIATION_NOMEM], 1);
    CHECK_OK(pst_arena_free(arena, low, NULL));
    CHECK_OK(pst_arena_free(arena, middle, NULL));
    CHECK_OK(pst_arena_free(arena, high, NULL));
    CHECK_OK(pst_arena_destroy(arena));
    pst_plan_file_destroy(plan);
    CHECK_EQ(device->live, 0);
    CHECK_OK(pst_device_close(device));
}

/* ---- memory runs out ---- */

PST_TEST(Arena, EveryAllocationMayFail)
{
    pst_device *device = NULL;
    pst_plan_file *plan = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(scene_plan("malloc 1 512 0 0/free 1/malloc 2 512 1 0/free 2", &plan));
    for (int mode = PST_ARENA_ALLOC; mode <= PST_ARENA_RESERVE; mode += 2) {
        pst_arena_config config = PST_ARENA_CONFIG_INIT;
        config.mode = (pst_arena_mode)mode;
        pst_arena *arena = NULL;
        long successes = 0;
        pst_status status = PST_E_NOMEM;
        while (status == PST_E_NOMEM || status == PST_E_DEVICE_NOMEM) {
            CHECK(arena == NULL && successes < 100 && device->live == 0);
            psti_fail_allocation_after(successes++);
            status = pst_arena_create(device, plan, &config, &arena);
            psti_fail_allocation_after(-1);
        }
        CHECK_OK(status);
        CHECK_EQ(successes, 13);
        void *address = NULL;
        for (long left = 0; left < 3; left++) {
            psti_fail_allocation_after(left);
            status = pst_arena_malloc(arena, 4096, &address, NULL); /* the fallback's */
            psti_fail_allocation_after(-1);
            CHECK_EQ(status, left == 1 ? PST_E_DEVICE_NOMEM : PST_E_NOMEM);
            CHECK(address == NULL);
        }
        CHECK_OK(pst_arena_destroy(arena));
    }
    pst_plan_file_destroy(plan);
    CHECK_OK(pst_device_close(device));
}

/* ---- threads ---- */

enum { NUM_THREADS = 4, THREAD_TURNS = 600 };

static void *work(void *scene)
{
    arena_scene *self = scene;
    unsigned char *held[4] = {NULL};
    unsigned seed = (unsigned)(uintptr_t)&held >> 4;
    for (int i = 0; i < THREAD_TURNS; i++) {
        seed = seed * 1103515245u + 12345u;
        unsigned char **at = &held[seed >> 16 & 3];
        void *address = NULL;
        if (*at) {
            for (int k = 0; k < 512; k++)
                if ((*at)[k] != (unsigned char)((uintptr_t)*at >> 9))
                    psti_test_fail(__FILE__, __LINE__, "somebody wrote into a live block");
            if (pst_arena_free(self->arena, *at, stream_at(0)))
                psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
            *at = NULL;
        } else if (pst_arena_malloc(self->arena, 512, &address, stream_at(0)) == PST_OK) {
            *at = address;
            memset(*at, (unsigned char)((uintptr_t)*at >> 9), 512);
        }
        if (i % 100 == 0 && pst_arena_iteration(self->arena))
            psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    }
    for (int i = 0; i < 4; i++)
        pst_arena_free(self->arena, held[i], stream_at(0));
    return NULL;
}

PST_TEST(Arena, ManyThreads)
{
    arena_scene scene = {.memory = NULL};
    pthread_t threads[NUM_THREADS];
    char text[4096] = "mark 0/";
    for (int i = 0; i < 60; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "malloc %d 512 0 %d/", i,
                 i % 12 * 512);
    scene_open(&scene, text);
    for (int i = 0; i < NUM_THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, work, &scene), 0);
    for (int i = 0; i < NUM_THREADS; i++)
        pthread_join(threads[i], NULL);
    const pst_arena_stats stats = scene_stats(&scene);
    CHECK(stats.planned > 0 && stats.planned < stats.requests);
    CHECK_EQ(stats.live, 0);
    scene_close(&scene);
}
