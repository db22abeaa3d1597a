/* Asynchronous bulk copies, done late: a load at some time before its barrier says so, a store
 * in two steps, of which the first reads shared memory and the second writes, each at some time
 * before a wait that asks for it. Some blocks do nothing that no wait forces. ThreadSanitizer
 * takes a copy for an access of the thread that happens to do it, behind the one that asked for it and before who
 * waits for it. What that thread did itself before seems ordered, too: a stage that is overwritten too early may look
 * right then, and is seen by tests of bytes only. */
#ifndef PSTI_SIMT
#define PSTI_SIMT 1
#endif
#include "tests/simt/simt.h"
#include "tests/simt/simt_internal.h"

#include <stdlib.h>

/* ---- what the copies touch, which the sanitizers see ---- */

static void copy_quads(void *to, const void *from, uint32_t bytes)
{
    simt_quad *target = static_cast<simt_quad *>(to);
    const simt_quad *source = static_cast<const simt_quad *>(from);
    for (uint32_t i = 0; i < bytes / sizeof(simt_quad); i++)
        target[i] = source[i];
}

/* ---- barriers: one word in shared memory ---- */

static const uint64_t kBarrier = 0xba77;
static const uint64_t kPhase = (uint64_t)1 << 40;
static const uint64_t kArmed = (uint64_t)1 << 32; /* has had its one arrival */

SIMT_RAW static uint64_t read_barrier(const simt_block *block, const uint64_t *barrier)
{
    if (*barrier >> 48 != kBarrier)
        simt_die(block->launch, "a barrier that was not initialised in block %u", block->block_idx);
    return *barrier;
}

SIMT_RAW void simt_barrier_init(uint64_t *barrier)
{
    *barrier = kBarrier << 48;
}

/* Of a barrier that has had its arrival: the phase is over when no more bytes are to come. */
SIMT_RAW static uint64_t settled(uint64_t word)
{
    return (uint32_t)word == 0 ? (word ^ kPhase) & ~kArmed : word;
}

SIMT_RAW void simt_barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    const simt_block *block = simt_running_block();
    const uint64_t word = read_barrier(block, barrier);
    if (word & kArmed)
        simt_die(block->launch, "a second arrival in one phase of a barrier of block %u",
                 block->block_idx);
    *barrier = settled((word | kArmed) + bytes);
}

SIMT_RAW static void complete(const simt_block *block, uint64_t *barrier, uint32_t bytes)
{
    const uint64_t word = read_barrier(block, barrier);
    if ((uint32_t)word < bytes)
        simt_die(block->launch, "a load of %u bytes at a barrier of block %u that expects %u",
                 bytes, block->block_idx, (uint32_t)word);
    *barrier = settled(word - bytes);
}

/* ---- copies in flight ---- */

SIMT_RAW static void drop(simt_bulk *bulk, uint32_t at)
{
    free(bulk->copies[at].held);
    bulk->copies[at] = bulk->copies[--bulk->num_copies];
}

/* The next step of one copy. */
SIMT_RAW static void advance(simt_block *block, uint32_t at)
{
    simt_bulk *bulk = &block->bulk;
    simt_copy *copy = &bulk->copies[at];
    const uint32_t thread = copy->thread;
    simt_count(&block->slot->progress);
    SIMT_ACQUIRE(&bulk->groups[thread]);
    if (copy->barrier) {
        copy_quads(copy->to, copy->from, copy->bytes);
        SIMT_RELEASE(copy->barrier);
        complete(block, copy->barrier, copy->bytes);
        drop(bulk, at);
    } else if (!copy->held) {
        copy->held = aligned_alloc(sizeof(simt_quad), copy->bytes);
        if (!copy->held)
            simt_die(block->launch, "no memory for a bulk copy");
        copy_quads(copy->held, copy->from, copy->bytes);
        SIMT_RELEASE(&bulk->done[thread]);
    } else {
        SIMT_ACQUIRE(&bulk->done[thread]); /* behind the first step */
        copy_quads(copy->to, copy->held, copy->bytes);
        SIMT_RELEASE(&bulk->done[thread]);
        drop(bulk, at);
    }
}

/* Now and then, unless this block is a lazy one. */
SIMT_RAW static void drift(simt_block *block)
{
    simt_bulk *bulk = &block->bulk;
    while (bulk->num_copies > 0 && simt_random(&block->random, 4) < bulk->eagerness)
        advance(block, simt_random(&block->random, bulk->num_copies));
}

SIMT_RAW static simt_copy *issue(simt_block *block, void *shared, const void *global,
                                 uint32_t bytes)
{
    simt_bulk *bulk = &block->bulk;
    const unsigned char *stage = static_cast<unsigned char *>(shared);
    if ((uintptr_t)shared % 16 || (uintptr_t)global % 16 || bytes % 16 || bytes == 0)
        simt_die(
            block->launch,
            "a bulk copy of %u bytes between %p and %p in block %u: addresses and size must be "
            "multiples of 16, the size not 0",
            bytes, shared, global, block->block_idx);
    if (stage < block->dynamic || stage + bytes > block->dynamic + bulk->dynamic_bytes)
        simt_die(block->launch,
                 "a bulk copy in block %u: %u bytes at %td of %u bytes of dynamic shared memory",
                 block->block_idx, bytes, stage - block->dynamic, bulk->dynamic_bytes);
    for (uint32_t i = 0; i < bulk->num_copies && bulk->num_copies == SIMT_MAX_COPIES; i++)
        if (bulk->copies[i].held)
            advance(block, i);
    if (bulk->num_copies == SIMT_MAX_COPIES) /* and none that has read its stage */
        simt_die(block->launch, "more than %u bulk copies in flight in block %u", SIMT_MAX_COPIES,
                 block->block_idx);
    drift(block);
    simt_copy *copy = &bulk->copies[bulk->num_copies++];
    copy->barrier = nullptr;
    copy->held = nullptr;
    copy->group = 0;
    copy->bytes = bytes;
    copy->thread = simt_thread_idx().x;
    SIMT_RELEASE(&bulk->groups[copy->thread]);
    return copy;
}

SIMT_RAW void simt_bulk_load(void *shared, const void *from, uint32_t bytes, uint64_t *barrier)
{
    simt_block *block = simt_running_block();
    simt_copy *copy = issue(block, shared, from, bytes);
    copy->to = shared;
    copy->from = from;
    copy->barrier = barrier;
}

SIMT_RAW void simt_bulk_store(void *to, const void *shared, uint32_t bytes)
{
    simt_block *block = simt_running_block();
    simt_copy *copy = issue(block, const_cast<void *>(shared), to, bytes);
    copy->to = to;
    copy->from = shared;
    copy->group = block->bulk.groups[copy->thread];
}

SIMT_RAW void simt_bulk_commit(void)
{
    simt_running_block()->bulk.groups[simt_thread_idx().x]++;
}

/* Of this thread's committed groups all but the last `pending`. */
SIMT_RAW void simt_bulk_wait(uint32_t pending, int read_only)
{
    simt_block *block = simt_running_block();
    simt_bulk *bulk = &block->bulk;
    const uint32_t thread = simt_thread_idx().x;
    const uint32_t end = bulk->groups[thread] > pending ? bulk->groups[thread] - pending : 0;
    drift(block);
    for (uint32_t at = 0; at < bulk->num_copies;) {
        const simt_copy *copy = &bulk->copies[at];
        const bool waits = !copy->barrier && copy->thread == thread && copy->group < end &&
                           !(read_only && copy->held);
        if (waits)
            advance(block, at);
        else
            at++;
    }
    SIMT_ACQUIRE(&bulk->done[thread]);
}

SIMT_RAW int simt_barrier_try_wait(uint64_t *barrier, uint32_t parity)
{
    simt_block *block = simt_running_block();
    simt_bulk *bulk = &block->bulk;
    drift(block);
    const auto over = [=]() SIMT_RAW {
        const bool is = ((read_barrier(block, barrier) & kPhase) != 0) != (parity != 0);
        if (is)
            SIMT_ACQUIRE(barrier);
        return is;
    };
    if (over())
        return 1;
    /* any load, not always one of this barrier */
    if (bulk->num_copies > 0) {
        const uint32_t first = simt_random(&block->random, bulk->num_copies);
        for (uint32_t i = 0; i < bulk->num_copies; i++) {
            const uint32_t at = (first + i) % bulk->num_copies;
            if (bulk->copies[at].barrier) {
                advance(block, at);
                break;
            }
        }
    }
    if (over())
        return 1;
    simt_pause();
    return 0;
}

/* ---- per block ---- */

SIMT_RAW void simt_bulk_begin(simt_block *block)
{
    simt_bulk *bulk = &block->bulk;
    bulk->num_copies = 0;
    bulk->dynamic_bytes = 0;
    bulk->eagerness = simt_random(&block->random, 4);
    /* volatile: as a call of memset TSan would see it */
    volatile uint32_t *groups = bulk->groups;
    for (uint32_t i = 0; i < block->num_threads; i++)
        groups[i] = 0;
}

SIMT_RAW void simt_bulk_end(const simt_block *block)
{
    const simt_bulk *bulk = &block->bulk;
    if (bulk->num_copies == 0)
        return;
    const simt_copy *first = &bulk->copies[0];
    const char *what = "a store that was not waited for";
    if (first->barrier)
        what = "a load that was not waited for";
    else if (first->group == bulk->groups[first->thread])
        what = "a store that was not committed";
    simt_die(block->launch, "block %u ended with %u bulk copies in flight: %s", block->block_idx,
             bulk->num_copies, what);
}

SIMT_RAW unsigned char *simt_dynamic(uint32_t bytes)
{
    simt_block *block = simt_running_block();
    simt_bulk *bulk = &block->bulk;
    if (bytes > SIMT_DYNAMIC_BYTES)
        simt_die(block->launch, "%u bytes of dynamic shared memory in block %u, at most %u", bytes,
                 block->block_idx, SIMT_DYNAMIC_BYTES);
    if (bulk->dynamic_bytes == 0) {
        bulk->dynamic_bytes = bytes;
        simt_poison(block->dynamic, bytes);
    } else if (bytes != 0 && bulk->dynamic_bytes != bytes) {
        simt_die(block->launch, "%u and %u bytes of dynamic shared memory in block %u",
                 bulk->dynamic_bytes, bytes, block->block_idx);
    }
    return block->dynamic;
}
