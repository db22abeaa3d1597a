/* An arena over the test's own memory, and its plan in a few words. */
#ifndef PAGESTASH_TESTS_ARENA_SCENE_H
#define PAGESTASH_TESTS_ARENA_SCENE_H

#include "tests/harness.h"

#include <stdio.h>
#include <stdlib.h>

#include <pagestash/pagestash.h>

#include "host/device/device.h"

enum { SCENE_BYTES = 1 << 20 };

typedef struct arena_scene {
    unsigned char *memory;
    pst_arena_config config;
    pst_plan_file *plan;
    pst_arena *arena;
    long allocs_left;   /* of the fallback; below 0: any number */
    uint64_t num_owned; /* by the fallback */
    pst_status on_free; /* what it answers */
    void *blocks[26];   /* of scene_tell */
} arena_scene;

/* Streams of a program: any pointers. */
static inline pst_stream stream_at(unsigned index)
{
    return (pst_stream)(uintptr_t)(0x1000 + 16 * index);
}

static inline pst_status scene_alloc(void *user, size_t bytes, void **address_out)
{
    arena_scene *self = user;
    if (self->allocs_left == 0)
        return PSTI_FAIL(PST_E_DEVICE_NOMEM, "%zu bytes wanted", bytes);
    self->allocs_left--;
    self->num_owned++;
    *address_out = aligned_alloc(512, (bytes + 511) & ~(size_t)511);
    return *address_out ? PST_OK : PST_E_DEVICE_NOMEM;
}

static inline pst_status scene_free(void *user, void *address)
{
    arena_scene *self = user;
    self->num_owned--;
    free(address);
    return self->on_free;
}

/* "malloc id size stream offset" and so on: rows of a plan file, ' ' for ',' and '/' for a line. */
static inline pst_status scene_plan(const char *text, pst_plan_file **plan_out)
{
    static const char *const ops[] = {"malloc", "free", "mark", "use"};
    pst_plan_row rows[256];
    uint64_t count = 0;
    for (const char *at = text; *at; count++) {
        unsigned long long id = 0, bytes = 0, stream = 0, offset = 0;
        char op[8] = "";
        int used = 0;
        sscanf(at, " %7s %llu %llu %llu %llu%n", op, &id, &bytes, &stream, &offset, &used);
        pst_plan_row *row = &rows[count];
        *row = (pst_plan_row){.line = count + 1, .id = id};
        while (row->op < 3 && strcmp(op, ops[row->op]) != 0)
            row->op++;
        if (row->op == PST_PLAN_OP_MALLOC) {
            row->bytes = bytes;
            row->stream = (uint32_t)stream;
            row->offset = offset;
        } else if (row->op == PST_PLAN_OP_USE) {
            row->stream = (uint32_t)bytes;
        }
        at += strcspn(at, "/");
        at += *at == '/';
    }
    return pst_plan_file_make(rows, count, plan_out);
}

/* Before scene_open the config can be changed. */
static inline void scene_begin(arena_scene *self)
{
    *self = (arena_scene){.allocs_left = -1, .config = PST_ARENA_CONFIG_INIT};
    self->memory = aligned_alloc(4096, SCENE_BYTES);
    self->config.mode = PST_ARENA_MEMORY;
    self->config.memory = self->memory;
    self->config.memory_bytes = SCENE_BYTES;
    self->config.fallback_alloc = scene_alloc;
    self->config.fallback_free = scene_free;
    self->config.user = self;
    CHECK(self->memory);
}

static inline void scene_open(arena_scene *self, const char *text)
{
    if (!self->memory)
        scene_begin(self);
    CHECK_OK(scene_plan(text, &self->plan));
    CHECK_OK(pst_arena_create(NULL, self->plan, &self->config, &self->arena));
}

static inline void scene_close(arena_scene *self)
{
    CHECK_OK(pst_arena_destroy(self->arena));
    CHECK_EQ(self->num_owned, 0);
    pst_plan_file_destroy(self->plan);
    free(self->memory);
}

enum { FALLBACK = -1, FAILED = -2 };

/* The address within the plan, or one of the two above. */
static inline long long offset_of(const arena_scene *self, const void *address)
{
    const uintptr_t offset = (uintptr_t)address - (uintptr_t)self->memory;
    return offset < SCENE_BYTES ? (long long)offset : FALLBACK;
}

static inline long long ask(arena_scene *self, size_t bytes, unsigned stream, void **address_out)
{
    if (pst_arena_malloc(self->arena, bytes, address_out, stream_at(stream)) != PST_OK)
        return FAILED;
    return offset_of(self, *address_out);
}

static inline pst_arena_stats scene_stats(const arena_scene *self)
{
    pst_arena_stats stats;
    if (pst_arena_get_stats(self->arena, &stats) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "no figures: %s", pst_last_message());
    return stats;
}

/* "size 1 order 2": these deviations, and no others. */
static inline void check_deviations(const arena_scene *self, const char *wanted)
{
    const pst_arena_stats stats = scene_stats(self);
    char said[256] = "";
    for (int i = 0; i < PST_NUM_DEVIATIONS; i++)
        if (stats.deviations[i])
            snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s%s %llu",
                     said[0] ? " " : "", pst_deviation_name((pst_deviation)i),
                     (unsigned long long)stats.deviations[i]);
    CHECK_STR(said, wanted);
    CHECK_EQ(stats.first_deviation[0] != '\0', said[0] != '\0');
}

/* What a program asks of the arena, word by word:
 *   a512/3=0   malloc of 512 bytes on stream 3 into block a, which comes to lie at offset 0 of the
 *              plan; =- it comes from the fallback; =! it fails
 *   a+3        block a is also used on stream 3
 *   -a/3       block a is freed on stream 3
 *   .          an iteration begins
 *   {size 1}   these were the deviations so far
 * Stream 0 need not be said. */
static inline void scene_tell(arena_scene *self, const char *story)
{
    for (const char *at = story; *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, *at == '{' ? "}" : " ");
        const char *slash = memchr(at, '/', length);
        const char *equal = memchr(at, '=', length);
        const pst_stream stream = stream_at(slash ? (unsigned)strtoul(slash + 1, NULL, 10) : 0);
        const char name = *at == '-' ? at[1] : *at;
        void **block = &self->blocks[name >= 'a' && name <= 'z' ? name - 'a' : 0];
        pst_status status = PST_OK;
        if (*at == '{') {
            char wanted[256] = "";
            memcpy(wanted, at + 1, length - 1);
            check_deviations(self, wanted);
            at++;
        } else if (*at == '.') {
            status = pst_arena_iteration(self->arena);
        } else if (*at == '-') {
            status = pst_arena_free(self->arena, *block, stream);
        } else if (at[1] == '+') {
            status = pst_arena_record_stream(self->arena, *block,
                                             stream_at((unsigned)strtoul(at + 2, NULL, 10)));
        } else {
            status = pst_arena_malloc(self->arena, strtoul(at + 1, NULL, 10), block, stream);
            const long long wanted = equal[1] == '-' ? FALLBACK : strtoll(equal + 1, NULL, 10);
            CHECK_MSG((status != PST_OK) == (equal[1] == '!'), "%s: %s", at, pst_last_message());
            CHECK_MSG(status != PST_OK || offset_of(self, *block) == wanted, "%s: it is at %lld",
                      at, offset_of(self, *block));
            status = PST_OK;
        }
        CHECK_MSG(status == PST_OK && !psti_test_failed(), "%s: %s", at, pst_last_message());
        at += length;
    }
}

/* One arena over the plan, one story. */
static inline void scene_play(const char *plan, const char *story)
{
    arena_scene scene = {.memory = NULL};
    scene_open(&scene, plan);
    scene_tell(&scene, story);
    scene_close(&scene);
}

#endif
