/* What the plan does not serve: allocations of the device, kept after their free for the next
 * request of the same size on the same stream. */
#include <inttypes.h>
#include <string.h>

#include "host/arena/arena.h"

#define LARGE_BYTES ((uint64_t)64 << 20) /* from here sizes are multiples of the next */
#define LARGE_STEP ((uint64_t)2 << 20)
#define SMALL_STEP ((uint64_t)512)

enum { NUM_CLASSES = 512 };

struct psti_block {
    void *address;
    uint64_t bytes; /* rounded up */
    pst_stream stream;
    psti_block *cached; /* next of its class, or of the held ones */
    bool is_live;
    bool is_foreign; /* used on a stream that is not its own */
};

/* ---- sizes ---- */

/* Up to LARGE_BYTES one of eight steps to each power of two. */
static uint64_t round_up(uint64_t bytes)
{
    uint64_t step = LARGE_STEP;
    if (bytes < LARGE_BYTES) {
        step = (UINT64_C(1) << (63 - __builtin_clzll(bytes))) / 8;
        if (step < SMALL_STEP)
            step = SMALL_STEP;
    }
    return (bytes + step - 1) & ~(step - 1);
}

static uint32_t class_of(uint64_t bytes)
{
    const int log = 63 - __builtin_clzll(bytes);
    return (uint32_t)(log * 8 + (int)(bytes >> (log - 3) & 7));
}

psti_block *psti_heap_find(const psti_heap *heap, const void *address)
{
    const uint64_t found = psti_map_get(&heap->blocks, (uintptr_t)address);
    if (found == PSTI_MAP_NONE)
        return NULL;
    psti_block *block = (psti_block *)(uintptr_t)found;
    return block->is_live ? block : NULL;
}

/* ---- giving back ---- */

static pst_status release(psti_heap *heap, psti_block *block)
{
    psti_map_remove(&heap->blocks, (uintptr_t)block->address);
    const pst_status status = heap->free(heap->user, block->address);
    psti_free(block);
    return status;
}

static pst_status release_list(psti_heap *heap, psti_block **list)
{
    pst_status first = PST_OK;
    while (*list) {
        psti_block *block = *list;
        *list = block->cached;
        heap->cached_bytes -= block->bytes;
        const pst_status status = release(heap, block);
        if (first == PST_OK)
            first = status;
    }
    return first;
}

pst_status psti_heap_trim(psti_heap *heap)
{
    pst_status first = release_list(heap, &heap->held);
    for (int i = 0; i < NUM_CLASSES; i++) {
        const pst_status status = release_list(heap, &heap->cache[i]);
        if (first == PST_OK)
            first = status;
    }
    return first;
}

/* ---- malloc and free ---- */

static void count_live(psti_heap *heap, psti_block *block)
{
    block->is_live = true;
    heap->num_live++;
    heap->live_bytes += block->bytes;
    if (heap->live_bytes > heap->peak_bytes)
        heap->peak_bytes = heap->live_bytes;
    if (heap->live_bytes + heap->cached_bytes > heap->taken_peak_bytes)
        heap->taken_peak_bytes = heap->live_bytes + heap->cached_bytes;
}

static psti_block *take_cached(psti_heap *heap, uint64_t bytes, pst_stream stream)
{
    for (psti_block **link = &heap->cache[class_of(bytes)]; *link; link = &(*link)->cached) {
        psti_block *block = *link;
        if (block->bytes != bytes || block->stream != stream)
            continue;
        *link = block->cached;
        heap->cached_bytes -= bytes;
        return block;
    }
    return NULL;
}

/* NULL, and why. */
static psti_block *make_block(psti_heap *heap, uint64_t bytes, pst_stream stream,
                              pst_status *status_out)
{
    void *address = NULL;
    psti_block *block = psti_calloc(1, sizeof(*block));
    if (!block) {
        *status_out = PSTI_FAIL(PST_E_NOMEM, "no memory for a block of the fallback");
        return NULL;
    }
    pst_status status = heap->alloc(heap->user, bytes, &address);
    if (status == PST_E_DEVICE_NOMEM && heap->cached_bytes) {
        status = psti_heap_trim(heap);
        if (status == PST_OK)
            status = heap->alloc(heap->user, bytes, &address);
    }
    if (status == PST_OK) {
        status = psti_map_set(&heap->blocks, (uintptr_t)address, (uintptr_t)block);
        if (status != PST_OK)
            heap->free(heap->user, address);
    }
    if (status != PST_OK) {
        psti_free(block);
        *status_out = status;
        return NULL;
    }
    heap->num_allocs++;
    *block = (psti_block){.address = address, .bytes = bytes, .stream = stream};
    return block;
}

pst_status psti_heap_malloc(psti_heap *heap, uint64_t bytes, pst_stream stream, void **address_out)
{
    pst_status status = PST_OK;
    bytes = round_up(bytes);
    psti_block *block = take_cached(heap, bytes, stream);
    if (!block)
        block = make_block(heap, bytes, stream, &status);
    if (!block)
        return status;
    count_live(heap, block);
    *address_out = block->address;
    return PST_OK;
}

pst_status psti_heap_free(psti_heap *heap, psti_block *block)
{
    block->is_live = false;
    heap->num_live--;
    heap->live_bytes -= block->bytes;
    if (heap->limit_bytes - heap->cached_bytes < block->bytes)
        return release(heap, block);
    psti_block **list = block->is_foreign ? &heap->held : &heap->cache[class_of(block->bytes)];
    block->cached = *list;
    *list = block;
    heap->cached_bytes += block->bytes;
    return PST_OK;
}

void psti_block_record(psti_block *block, pst_stream stream)
{
    if (stream != block->stream)
        block->is_foreign = true;
}

void psti_heap_unhold(psti_heap *heap)
{
    while (heap->held) {
        psti_block *block = heap->held;
        psti_block **list = &heap->cache[class_of(block->bytes)];
        heap->held = block->cached;
        block->is_foreign = false;
        block->cached = *list;
        *list = block;
    }
}

/* ---- open and close ---- */

pst_status psti_heap_open(psti_heap *heap)
{
    heap->cache = psti_calloc(NUM_CLASSES, sizeof(*heap->cache));
    PSTI_CHECK(heap->cache, PST_E_NOMEM, "no memory for a fallback");
    return PST_OK;
}

pst_status psti_heap_close(psti_heap *heap)
{
    const pst_status status = heap->cache ? psti_heap_trim(heap) : PST_OK;
    psti_map_free(&heap->blocks);
    psti_free(heap->cache);
    *heap = (psti_heap){0};
    return status;
}
