/* Malloc and free: the planned address, or the fallback. */
#include <inttypes.h>

#include "host/arena/arena.h"

#define HUGE_BYTES ((uint64_t)2 << 20)
#define MAX_STEP ((uint64_t)256 << 20)
#define MAX_REQUEST (UINT64_C(1) << 62)

/* ---- planned memory ---- */

static void vacate(pst_arena *arena, const psti_entry *entry)
{
    arena->slots[entry->slot].state = PSTI_SLOT_FREE;
    psti_bits_clear(&arena->used, entry->rank);
}

/* Whether nothing that lives or is held overlaps, and the stream need not wait for another. Used
 * ranges are disjoint, so of those that begin below the end the highest is the one to reach in. */
static bool has_room(const pst_arena *arena, const psti_entry *entry)
{
    if (entry->is_shared && !arena->in_step)
        return false;
    const uint32_t rank = psti_bits_below(&arena->used, entry->upper);
    if (rank == PSTI_NO_INDEX)
        return true;
    const psti_entry *other = &arena->entries[arena->by_rank[rank]];
    return other->offset + other->bytes <= entry->offset;
}

/* Mode RESERVE: puts memory behind the first `bytes` bytes, in steps that keep their number low. */
static bool back(pst_arena *arena, uint64_t bytes)
{
    psti_span *span = &arena->span;
    const psti_device_ops *ops = arena->device->ops;
    const uint64_t step = arena->bytes / 64 < MAX_STEP ? arena->bytes / 64 : MAX_STEP;
    const uint64_t rounded = (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    uint64_t wanted = span->mapped + step > bytes ? span->mapped + step : bytes;
    wanted = (wanted + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    if (wanted > span->reserved)
        wanted = span->reserved;
    if (ops->span_resize(arena->device, span, wanted) != PST_OK &&
        (rounded >= wanted || ops->span_resize(arena->device, span, rounded) != PST_OK))
        return false;
    arena->backed = span->mapped < arena->bytes ? span->mapped : arena->bytes;
    return true;
}

/* The planned address, or NULL with the deviation counted. */
static void *place(pst_arena *arena, uint32_t index, const psti_request *request)
{
    const psti_entry *entry = &arena->entries[index];
    const uint64_t end = entry->offset + entry->bytes;
    if (!has_room(arena, entry)) {
        psti_arena_deviates(arena, PST_DEVIATION_BLOCKED, index, request);
        return NULL;
    }
    if (end > arena->backed && !back(arena, end)) {
        psti_arena_deviates(arena, PST_DEVIATION_NOMEM, index, request);
        return NULL;
    }
    psti_slot *slot = &arena->slots[entry->slot];
    slot->entry = index;
    slot->cycle = arena->cycle;
    slot->state = PSTI_SLOT_LIVE;
    slot->is_foreign = false;
    psti_bits_set(&arena->used, entry->rank);
    arena->num_live++;
    arena->stats.planned++;
    arena->stats.planned_bytes += entry->bytes;
    if (arena->stats.planned_bytes > arena->stats.planned_peak_bytes)
        arena->stats.planned_peak_bytes = arena->stats.planned_bytes;
    return arena->base + entry->offset;
}

static pst_status malloc_locked(pst_arena *arena, uint64_t bytes, void **address_out,
                                pst_stream stream)
{
    const uint32_t bound = psti_arena_stream(arena, stream);
    void *address = NULL;
    if (arena->has_plan) {
        const psti_request request = {.bytes = (bytes + arena->config.align - 1) &
                                               ~(arena->config.align - 1),
                                      .stream = bound};
        const uint32_t index = psti_arena_follow(arena, &request);
        if (index != PSTI_NO_INDEX)
            address = place(arena, index, &request);
    }
    if (!address)
        PSTI_TRY(psti_heap_malloc(&arena->heap, bytes, stream, &address));
    arena->stats.requests++;
    *address_out = address;
    return PST_OK;
}

pst_status pst_arena_malloc(pst_arena *arena, size_t bytes, void **address_out, pst_stream stream)
{
    PSTI_CHECK_HANDLE(arena, ARENA);
    PSTI_CHECK(address_out, PST_E_INVALID, "address_out is NULL");
    if (bytes == 0) {
        *address_out = NULL;
        return PST_OK;
    }
    PSTI_CHECK(bytes <= MAX_REQUEST, PST_E_DEVICE_NOMEM, "%zu bytes wanted: at most 2^62", bytes);
    pthread_mutex_lock(&arena->lock);
    const pst_status status = malloc_locked(arena, bytes, address_out, stream);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

/* ---- free, and use on other streams ---- */

/* The slot that lives at `address`, or NULL. */
static psti_slot *live_slot(const pst_arena *arena, const void *address)
{
    const uint64_t offset = (uint64_t)((uintptr_t)address - (uintptr_t)arena->base);
    if (offset >= arena->bytes)
        return NULL;
    psti_slot *slot = psti_arena_slot(arena, offset);
    return slot && slot->state == PSTI_SLOT_LIVE ? slot : NULL;
}

static void use_slot(pst_arena *arena, psti_slot *slot, pst_stream stream)
{
    const psti_entry *entry = &arena->entries[slot->entry];
    const uint32_t index = psti_arena_stream(arena, stream);
    const uint64_t unbound = entry->uses & ~arena->bound_set;
    uint32_t planned = index == PSTI_NO_INDEX ? PSTI_NO_INDEX : arena->bound[index].planned;
    if (planned == entry->stream)
        return;
    if (planned == PSTI_NO_INDEX && index != PSTI_NO_INDEX && unbound) {
        planned = (uint32_t)__builtin_ctzll(unbound);
        psti_arena_bind(arena, index, planned);
    }
    if (planned != PSTI_NO_INDEX && entry->uses >> planned & 1)
        return;
    slot->is_foreign = true;
    psti_arena_deviates(arena, PST_DEVIATION_USE, slot->entry, NULL);
}

/* Until the next iteration. */
static void hold(pst_arena *arena, psti_slot *slot)
{
    slot->state = PSTI_SLOT_HELD;
    slot->next_held = arena->first_held;
    arena->first_held = (uint32_t)(slot - arena->slots);
}

static void free_slot(pst_arena *arena, psti_slot *slot, pst_stream stream)
{
    const psti_entry *entry = &arena->entries[slot->entry];
    const bool is_now = slot->cycle == arena->cycle;
    const bool has_end = entry->freed_at != PSTI_NO_INDEX;
    const bool is_late = has_end && (!is_now || arena->position > entry->freed_at);
    use_slot(arena, slot, stream);
    if (is_late)
        psti_arena_deviates(arena, PST_DEVIATION_LATE, slot->entry, NULL);
    else if (has_end && arena->position < entry->freed_at)
        psti_arena_deviates(arena, PST_DEVIATION_EARLY, slot->entry, NULL);
    arena->num_live--;
    arena->stats.planned_bytes -= entry->bytes;
    if (slot->is_foreign || (entry->is_shared && (is_late || !has_end)))
        hold(arena, slot);
    else
        vacate(arena, entry);
}

static pst_status free_locked(pst_arena *arena, void *address, pst_stream stream)
{
    psti_slot *slot = live_slot(arena, address);
    if (slot) {
        free_slot(arena, slot, stream);
        return PST_OK;
    }
    psti_block *block = psti_heap_find(&arena->heap, address);
    PSTI_CHECK(block, PST_E_INVALID,
               "%p is not live in this arena: never given out, or freed before", address);
    psti_block_record(block, stream);
    return psti_heap_free(&arena->heap, block);
}

pst_status pst_arena_free(pst_arena *arena, void *address, pst_stream stream)
{
    PSTI_CHECK_HANDLE(arena, ARENA);
    if (!address)
        return PST_OK;
    pthread_mutex_lock(&arena->lock);
    const pst_status status = free_locked(arena, address, stream);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

pst_status pst_arena_record_stream(pst_arena *arena, void *address, pst_stream stream)
{
    PSTI_CHECK_HANDLE(arena, ARENA);
    pthread_mutex_lock(&arena->lock);
    psti_slot *slot = live_slot(arena, address);
    psti_block *block = slot ? NULL : psti_heap_find(&arena->heap, address);
    if (slot)
        use_slot(arena, slot, stream);
    else if (block)
        psti_block_record(block, stream);
    if (block)
        psti_arena_stream(arena, stream);
    pthread_mutex_unlock(&arena->lock);
    PSTI_CHECK(slot || block, PST_E_INVALID, "%p is not live in this arena", address);
    return PST_OK;
}

bool pst_arena_owns(pst_arena *arena, const void *address)
{
    if (!psti_handle_is(arena, PSTI_KIND_ARENA))
        return false;
    pthread_mutex_lock(&arena->lock);
    const bool found = live_slot(arena, address) || psti_heap_find(&arena->heap, address);
    pthread_mutex_unlock(&arena->lock);
    return found;
}

void psti_arena_unhold(pst_arena *arena)
{
    while (arena->first_held != PSTI_NO_INDEX) {
        psti_slot *slot = &arena->slots[arena->first_held];
        arena->first_held = slot->next_held;
        vacate(arena, &arena->entries[slot->entry]);
    }
    psti_heap_unhold(&arena->heap);
}
