/* The fibers of one block: who runs next, where they meet, what they share. */
#ifndef PSTI_SIMT
#define PSTI_SIMT 1
#endif
#include "tests/simt/simt.h"
#include "tests/simt/simt_internal.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#if SIMT_ASAN
#include <sanitizer/asan_interface.h>
#endif

static const uint32_t kVariableGap = 64; /* poisoned under ASan */

static __thread simt_thread *running;
simt_traffic simt_vectors;

/* A fiber may meet several OS threads in its life, so the address of `running` must not stay in a
 * register where it switches. */
SIMT_RAW __attribute__((noinline)) static void set_running(simt_thread *thread)
{
    running = thread;
}

/* ---- who runs next ---- */

/* Nobody can run. */
SIMT_RAW static void describe_stuck(const simt_block *block)
{
    char at_barrier[160] = "";
    char in_warps[64] = "";
    uint32_t num_in_warps = 0;
    const simt_meeting *barrier = &block->barrier;
    for (const simt_meeting &meeting : block->warp)
        num_in_warps += meeting.arrived;
    for (const simt_meeting &meeting : block->team)
        barrier = meeting.arrived ? &meeting : barrier;
    if (barrier->arrived)
        snprintf(at_barrier, sizeof at_barrier, ", %u wait at %s of line %d in %.100s",
                 barrier->arrived,
                 barrier == &block->barrier ? "__syncthreads" : "the meeting of a team",
                 barrier->site.line, barrier->site.file);
    if (num_in_warps)
        snprintf(in_warps, sizeof in_warps, ", %u wait for other lanes", num_in_warps);
    simt_die(block->launch, "deadlock in block %u: of %u threads %u have ended%s%s",
             block->block_idx, block->num_threads, block->num_threads - block->live, at_barrier,
             in_warps);
}

/* NULL when all have ended. */
SIMT_RAW static simt_thread *pick(simt_block *block)
{
    if (block->num_runnable == 0) {
        if (block->live == 0)
            return nullptr;
        if (block->num_spinning == 0)
            describe_stuck(block);
        uint16_t *const empty = block->runnable;
        block->runnable = block->spinning;
        block->num_runnable = block->num_spinning;
        block->spinning = empty;
        block->num_spinning = 0;
        simt_round_of_pauses(block->slot, block->launch);
    }
    const uint32_t at = simt_random(&block->random, block->num_runnable);
    const uint32_t index = block->runnable[at];
    block->runnable[at] = block->runnable[--block->num_runnable];
    return &block->threads[index];
}

/* Gives way; returns when this thread is picked again. */
SIMT_RAW static void leave(simt_thread *self)
{
    simt_thread *next = pick(self->block);
    if (next == self)
        return;
    set_running(next);
    simt_fiber_switch(&self->fiber, &next->fiber);
}

SIMT_RAW static void make_runnable(simt_block *block, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++)
        block->runnable[block->num_runnable++] = (uint16_t)i;
}

SIMT_RAW static void thread_main(simt_fiber *fiber)
{
    simt_thread *self = reinterpret_cast<simt_thread *>(fiber);
    simt_block *block = self->block;
    simt_fiber_entered(fiber);
    for (;;) {
        const simt_launch_state *launch = block->launch;
        SIMT_ACQUIRE(&launch->host->began);
        if (launch->hook)
            SIMT_ACQUIRE(&block->slot->hook_order);
        launch->body(launch->ctx);
        if (launch->hook)
            SIMT_RELEASE(&block->slot->hook_order);
        SIMT_RELEASE(&launch->host->ended);
        block->live--;
        simt_count(&block->slot->progress);
        simt_thread *next = pick(block);
        if (next) {
            set_running(next);
            simt_fiber_switch(fiber, &next->fiber);
        } else {
            simt_bulk_end(block);
            set_running(nullptr);
            simt_fiber_switch(fiber, &block->slot->fiber);
        }
    }
}

/* ---- meeting ---- */

SIMT_RAW static bool same_site(const simt_site &a, const simt_site &b)
{
    if (a.line != b.line || !a.file != !b.file)
        return false;
    return a.file == b.file || strcmp(a.file, b.file) == 0;
}

/* True for the last of `expected` threads. */
SIMT_RAW static bool come(simt_thread *self, simt_meeting *meeting, uint32_t expected,
                          simt_site site, const char *what)
{
    if (meeting->arrived == 0)
        meeting->site = site;
    else if (!same_site(meeting->site, site))
        simt_die(self->block->launch,
                 "divergent %s: thread %u of block %u comes to line %d, others wait at line %d",
                 what, self->index, self->block->block_idx, site.line, meeting->site.line);
    if (++meeting->arrived < expected)
        return false;
    meeting->arrived = 0;
    meeting->round++;
    simt_count(&self->block->slot->progress);
    return true;
}

/* Of threads from `first` on. */
SIMT_RAW static void meet(simt_thread *self, simt_meeting *barrier, uint32_t first, uint32_t count,
                          simt_site site, const char *what)
{
    simt_block *block = self->block;
    char *order = &barrier->order[barrier->round & 1];
    SIMT_RELEASE(order);
    if (come(self, barrier, count, site, what)) {
        make_runnable(block, first, count);
        if (simt_random(&block->random, 16) == 0)
            simt_dawdle(block->slot, simt_random(&block->random, 64));
    }
    leave(self);
    SIMT_ACQUIRE(order);
}

SIMT_RAW void simt_sync_threads(const char *file, int line)
{
    simt_block *block = running->block;
    meet(running, &block->barrier, 0, block->num_threads, {file, line}, "__syncthreads");
}

SIMT_RAW void simt_sync_team(const char *file, int line)
{
    simt_block *block = running->block;
    const uint32_t team = running->index / SIMT_TEAM_THREADS, first = team * SIMT_TEAM_THREADS;
    const uint32_t others = block->num_threads - first;
    meet(running, &block->team[team], first,
         others < SIMT_TEAM_THREADS ? others : SIMT_TEAM_THREADS, {file, line},
         "meeting of a team");
}

SIMT_RAW static uint32_t lanes_of(const simt_block *block, uint32_t warp)
{
    const uint32_t rest = block->num_threads - warp * SIMT_WARP;
    return rest < SIMT_WARP ? rest : SIMT_WARP;
}

SIMT_RAW void simt_sync_warp(const char *file, int line)
{
    simt_thread *self = running;
    simt_block *block = self->block;
    const uint32_t warp = self->index / SIMT_WARP;
    simt_meeting *meeting = &block->warp[warp];
    char *order = &meeting->order[meeting->round & 1];
    SIMT_RELEASE(order);
    if (come(self, meeting, lanes_of(block, warp), {file, line}, "__syncwarp"))
        make_runnable(block, warp * SIMT_WARP, lanes_of(block, warp));
    leave(self);
    SIMT_ACQUIRE(order);
}

enum shuffle_kind { SHUFFLE_UP = 1, SHUFFLE_XOR = 2, SHUFFLE_FROM = 3 };

SIMT_RAW static void exchange(simt_thread *lanes, shuffle_kind kind)
{
    uint64_t given[SIMT_WARP];
    for (uint32_t i = 0; i < SIMT_WARP; i++)
        given[i] = lanes[i].value;
    for (uint32_t i = 0; i < SIMT_WARP; i++) {
        const uint32_t argument = lanes[i].argument;
        uint32_t from = i;
        if (kind == SHUFFLE_UP)
            from = argument <= i ? i - argument : i;
        else if (kind == SHUFFLE_XOR)
            from = (i ^ argument) % SIMT_WARP;
        else
            from = argument % SIMT_WARP;
        lanes[i].value = given[from];
    }
}

SIMT_RAW static uint64_t shuffle(shuffle_kind kind, uint64_t value, uint32_t argument)
{
    simt_thread *self = running;
    simt_block *block = self->block;
    const uint32_t warp = self->index / SIMT_WARP;
    simt_thread *lanes = &block->threads[warp * SIMT_WARP];
    if (lanes_of(block, warp) != SIMT_WARP)
        simt_die(block->launch, "a shuffle in a warp of only %u lanes", lanes_of(block, warp));
    self->value = value;
    self->argument = argument;
    if (come(self, &block->warp[warp], SIMT_WARP, {nullptr, kind}, "warp operation")) {
        exchange(lanes, kind);
        make_runnable(block, warp * SIMT_WARP, SIMT_WARP);
    }
    leave(self);
    return self->value;
}

SIMT_RAW uint64_t simt_shuffle(uint64_t value, uint32_t lane)
{
    return shuffle(SHUFFLE_FROM, value, lane);
}

SIMT_RAW uint64_t simt_shuffle_up(uint64_t value, uint32_t distance)
{
    return shuffle(SHUFFLE_UP, value, distance);
}

SIMT_RAW uint64_t simt_shuffle_xor(uint64_t value, uint32_t mask)
{
    return shuffle(SHUFFLE_XOR, value, mask);
}

SIMT_RAW void simt_pause(void)
{
    simt_block *block = running->block;
    block->spinning[block->num_spinning++] = (uint16_t)running->index;
    leave(running);
}

/* ---- what a thread knows ---- */

SIMT_RAW simt_dim3 simt_thread_idx(void)
{
    return {running->index, 0, 0};
}

SIMT_RAW simt_dim3 simt_block_idx(void)
{
    return {running->block->block_idx, 0, 0};
}

SIMT_RAW simt_dim3 simt_block_dim(void)
{
    return {running->block->num_threads, 1, 1};
}

SIMT_RAW simt_dim3 simt_grid_dim(void)
{
    return {running->block->launch->grid, 1, 1};
}

SIMT_RAW simt_block *simt_running_block(void)
{
    return running->block;
}

SIMT_RAW bool simt_in_kernel(void)
{
    return running != nullptr;
}

SIMT_RAW void simt_misaligned(const void *at)
{
    simt_die(running->block->launch, "misaligned 16-byte access to %p by thread %u of block %u", at,
             running->index, running->block->block_idx);
}

/* ---- shared memory ---- */

/* Gives the variable its number and its place, the same in all blocks. */
SIMT_RAW static uint32_t place_variable(simt_variable *variable, size_t bytes)
{
    static uint32_t lock, placed, used;
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
        ;
    uint32_t number = __atomic_load_n(&variable->number, __ATOMIC_RELAXED);
    if (number == 0) {
        number = ++placed;
        variable->offset = used;
        used += (uint32_t)((bytes + kVariableGap - 1) / kVariableGap * kVariableGap) + kVariableGap;
        if (number >= SIMT_MAX_VARIABLES || used > SIMT_SHARED_BYTES)
            simt_die(nullptr, "too much shared memory: enlarge SIMT_SHARED_BYTES");
        __atomic_store_n(&variable->number, number, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    return number;
}

SIMT_RAW void simt_poison(void *memory, size_t bytes)
{
#if SIMT_ASAN
    ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
#endif
    /* volatile: as a call of memset the sanitizers would see it */
    volatile uint64_t *words = static_cast<uint64_t *>(memory);
    for (size_t i = 0; i < bytes / 8; i++)
        words[i] = simt_poison_word(i);
    for (size_t i = bytes / 8 * 8; i < bytes; i++)
        static_cast<volatile unsigned char *>(memory)[i] = (unsigned char)simt_poison_word(0);
}

SIMT_RAW void *simt_shared(simt_variable *variable, size_t bytes)
{
    simt_block *block = running->block;
    uint32_t number = __atomic_load_n(&variable->number, __ATOMIC_ACQUIRE);
    if (number == 0)
        number = place_variable(variable, bytes);
    unsigned char *memory = block->shared + variable->offset;
    if (block->variable_use[number] != block->use) {
        block->variable_use[number] = block->use;
        simt_poison(memory, bytes);
    }
    return memory;
}

/* ---- blocks ---- */

static const size_t kBlockBytes = sizeof(simt_block) + SIMT_SHARED_BYTES + SIMT_DYNAMIC_BYTES + 128;

SIMT_RAW simt_block *simt_block_create(void)
{
    void *memory = mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        simt_die(nullptr, "no memory for a block");
    simt_block *block = static_cast<simt_block *>(memory);
    block->runnable = block->lists[0];
    block->spinning = block->lists[1];
    block->shared = static_cast<unsigned char *>(memory) + (sizeof(simt_block) + 63) / 64 * 64;
    block->dynamic = block->shared + SIMT_SHARED_BYTES;
#if SIMT_ASAN
    ASAN_POISON_MEMORY_REGION(block->shared, SIMT_SHARED_BYTES + SIMT_DYNAMIC_BYTES);
#endif
    return block;
}

SIMT_RAW void simt_block_destroy(simt_block *block)
{
    for (uint32_t i = 0; i < block->num_made; i++)
        simt_fiber_destroy(&block->threads[i].fiber);
    munmap(block, kBlockBytes); /* TSan forgets what it knew of this memory */
}

SIMT_RAW void simt_block_grow(simt_block *block, uint32_t num_threads)
{
    const uint32_t first = block->num_made;
    if (first >= num_threads)
        return;
    for (uint32_t i = first; i < num_threads; i++) {
        block->threads[i].block = block;
        block->threads[i].index = i;
    }
    simt_fibers_make(&block->threads[first].fiber, sizeof(simt_thread), num_threads - first,
                     thread_main);
    block->num_made = num_threads;
}

SIMT_RAW void simt_block_run(simt_block *block, const simt_launch_state *launch, uint32_t block_idx,
                             simt_slot *slot)
{
    block->launch = launch;
    block->slot = slot;
    block->block_idx = block_idx;
    block->num_threads = launch->block;
    block->live = launch->block;
    block->num_runnable = 0;
    block->num_spinning = 0;
    block->random = psti_mix(launch->seed ^ psti_mix(block_idx));
    block->use++;
    simt_bulk_begin(block);
    simt_count(&slot->progress);
    make_runnable(block, 0, launch->block);
    simt_thread *first = pick(block);
    set_running(first);
    simt_fiber_switch(&slot->fiber, &first->fiber);
}
