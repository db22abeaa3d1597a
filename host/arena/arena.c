/* Making and ending an arena, its iterations and its figures. */
#include <inttypes.h>
#include <string.h>

#include "host/arena/arena.h"
#include "host/base/structs.h"

#define HUGE_BYTES ((uint64_t)2 << 20)
#define MIN_ALIGN 16u
#define DEFAULT_ALIGN 512u

/* ---- create ---- */

static pst_status no_fallback(void *user, size_t bytes, void **address_out)
{
    (void)user;
    (void)address_out;
    return PSTI_FAIL(PST_E_DEVICE_NOMEM, "%zu bytes that are not planned, and no fallback", bytes);
}

static pst_status device_alloc(void *user, size_t bytes, void **address_out)
{
    return psti_part_alloc(user, bytes, address_out);
}

static pst_status device_free(void *user, void *address)
{
    return psti_part_free(user, address);
}

static pst_status complete_config(pst_device *device, const pst_arena_config *given,
                                  pst_arena_config *config_out)
{
    PSTI_TAKE_OPTIONS(pst_arena_config, config, given);
    PSTI_CHECK(config.mode >= PST_ARENA_ALLOC && config.mode <= PST_ARENA_RESERVE, PST_E_INVALID,
               "mode %d: allowed are alloc, memory and reserve", (int)config.mode);
    PSTI_CHECK(device || config.mode == PST_ARENA_MEMORY, PST_E_INVALID,
               "device is NULL: allowed in mode memory only");
    PSTI_CHECK((config.fallback_alloc == NULL) == (config.fallback_free == NULL), PST_E_INVALID,
               "fallback_alloc and fallback_free: give both or none");
    if (config.align == 0)
        config.align = DEFAULT_ALIGN;
    PSTI_CHECK((config.align & (config.align - 1)) == 0 && config.align >= MIN_ALIGN &&
                   config.align <= HUGE_BYTES,
               PST_E_INVALID, "align %" PRIu64 ": allowed are powers of two, 16 to 2 MiB",
               config.align);
    PSTI_CHECK(config.lookahead <= PST_ARENA_MAX_LOOKAHEAD, PST_E_INVALID,
               "lookahead %u: allowed are up to %d", config.lookahead, PST_ARENA_MAX_LOOKAHEAD);
    if (config.lookahead == 0)
        config.lookahead = 64;
    if (config.cache_bytes == 0)
        config.cache_bytes = UINT64_C(1) << 30;
    if (!config.fallback_alloc) {
        config.fallback_alloc = device ? device_alloc : no_fallback;
        config.fallback_free = device_free;
        config.user = device;
    }
    *config_out = config;
    return PST_OK;
}

static pst_status take_memory(pst_arena *arena)
{
    const pst_arena_config *config = &arena->config;
    if (arena->bytes == 0)
        return PST_OK;
    if (config->mode == PST_ARENA_RESERVE) {
        PSTI_TRY(arena->device->ops->span_open(arena->device, PSTI_TIER_DEVICE, arena->bytes,
                                               &arena->span));
        arena->base = arena->span.address;
        return PST_OK;
    }
    unsigned char *at = config->memory;
    if (config->mode == PST_ARENA_ALLOC) {
        /* the device aligns to 256 */
        const uint64_t room = arena->bytes + config->align;
        PSTI_TRY(psti_part_alloc(arena->device, room, &arena->memory));
        at = arena->memory;
        at += -(uintptr_t)at & (config->align - 1);
    }
    PSTI_CHECK(at && (uintptr_t)at % config->align == 0, PST_E_INVALID,
               "memory %p: must be aligned to %" PRIu64, (void *)at, config->align);
    PSTI_CHECK(config->mode == PST_ARENA_ALLOC || config->memory_bytes >= arena->bytes,
               PST_E_INVALID, "memory_bytes %" PRIu64 ": the plan needs %" PRIu64,
               config->memory_bytes, arena->bytes);
    arena->base = at;
    arena->backed = arena->bytes;
    return PST_OK;
}

/* Gives back what a failed create or a destroy leaves. */
static pst_status drop(pst_arena *arena)
{
    const pst_status closed = psti_heap_close(&arena->heap);
    if (arena->span.address)
        arena->device->ops->span_close(arena->device, &arena->span);
    const pst_status freed = arena->memory ? psti_part_free(arena->device, arena->memory) : PST_OK;
    psti_arena_drop_plan(arena);
    pthread_mutex_destroy(&arena->lock);
    psti_handle_free(arena);
    return closed != PST_OK ? closed : freed;
}

static pst_status set_up(pst_arena *arena, const pst_plan_file *plan)
{
    PSTI_TRY(psti_arena_take_plan(arena, plan));
    arena->first_held = PSTI_NO_INDEX;
    arena->cycle = 1;
    arena->in_step = true;
    arena->end = arena->num_entries;
    if (arena->marks[0] > 0)
        arena->end = arena->marks[0];
    else if (arena->num_marks > 1)
        arena->end = arena->marks[1];
    arena->heap.alloc = arena->config.fallback_alloc;
    arena->heap.free = arena->config.fallback_free;
    arena->heap.user = arena->config.user;
    arena->heap.limit_bytes = arena->config.cache_bytes;
    PSTI_TRY(psti_heap_open(&arena->heap));
    return take_memory(arena);
}

pst_status pst_arena_create(pst_device *device, const pst_plan_file *plan,
                            const pst_arena_config *config, pst_arena **arena_out)
{
    pst_arena_config complete;
    PSTI_CHECK(arena_out, PST_E_INVALID, "arena_out is NULL");
    if (device)
        PSTI_CHECK_HANDLE(device, DEVICE);
    if (plan)
        PSTI_CHECK_HANDLE(plan, PLAN);
    PSTI_TRY(complete_config(device, config, &complete));
    pst_arena *arena = psti_handle_new(sizeof(*arena), PSTI_KIND_ARENA);
    PSTI_CHECK(arena, PST_E_NOMEM, "no memory for an arena");
    pthread_mutex_init(&arena->lock, NULL);
    arena->device = device;
    arena->config = complete;
    const pst_status status = set_up(arena, plan);
    if (status != PST_OK) {
        drop(arena);
        return status;
    }
    if (device)
        psti_device_retain(device, PSTI_LIVE_ARENA);
    *arena_out = arena;
    psti_log(PST_LOG_INFO, "arena of %u tensors that have a place", arena->num_entries);
    return PST_OK;
}

pst_status pst_arena_destroy(pst_arena *arena)
{
    if (!arena)
        return PST_OK;
    PSTI_CHECK_HANDLE(arena, ARENA);
    pst_device *device = arena->device;
    pthread_mutex_lock(&arena->lock);
    const uint64_t live = arena->num_live + arena->heap.num_live;
    pthread_mutex_unlock(&arena->lock);
    PSTI_CHECK(live == 0, PST_E_BUSY, "%" PRIu64 " blocks of the arena are live", live);
    const pst_status status = drop(arena);
    if (device)
        psti_device_release(device, PSTI_LIVE_ARENA);
    return status;
}

/* ---- iterations and figures ---- */

pst_status pst_arena_iteration(pst_arena *arena)
{
    PSTI_CHECK_HANDLE(arena, ARENA);
    pst_status status = PST_OK;
    pthread_mutex_lock(&arena->lock);
    psti_arena_go_on(arena);
    const bool has_several = arena->num_bound > 1 || arena->has_more_streams;
    if (arena->device && has_several && !arena->config.streams_joined)
        status = pst_device_synchronize(arena->device);
    if (status == PST_OK)
        psti_arena_unhold(arena);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

pst_status pst_arena_trim(pst_arena *arena)
{
    PSTI_CHECK_HANDLE(arena, ARENA);
    pthread_mutex_lock(&arena->lock);
    const pst_status status = psti_heap_trim(&arena->heap);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

pst_status pst_arena_get_stats_sized(pst_arena *arena, pst_arena_stats *stats_out,
                                     size_t stats_bytes)
{
    PSTI_CHECK_HANDLE(arena, ARENA);
    PSTI_CHECK(stats_out, PST_E_INVALID, "stats_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_arena_stats, stats_bytes));
    pthread_mutex_lock(&arena->lock);
    pst_arena_stats stats = arena->stats;
    stats.base = arena->base;
    stats.arena_bytes = arena->bytes;
    stats.backed_bytes = arena->backed;
    stats.live = arena->num_live + arena->heap.num_live;
    stats.fallback_bytes = arena->heap.live_bytes;
    stats.fallback_peak_bytes = arena->heap.peak_bytes;
    stats.taken_bytes = arena->heap.live_bytes + arena->heap.cached_bytes;
    stats.taken_peak_bytes = arena->heap.taken_peak_bytes;
    stats.fallback_allocs = arena->heap.num_allocs;
    pthread_mutex_unlock(&arena->lock);
    memcpy(stats_out, &stats, stats_bytes);
    return PST_OK;
}
