/* Kernels that try out asynchronous bulk copies. */
#define PSTI_SIMT 1
#include "tests/simt/simt.h"

#include "kernels/core/fn.h"
#include "tests/simt/simt_selftest.h"

#include <string.h>

/* ---- a ring of stages, as in kernels/cuda/paging/bulk.cuh ---- */

static const uint32_t kStages = 4;
static const uint32_t kStageBytes = 64;
static const uint32_t kAhead = 2;

struct barriers {
    uint64_t of[kStages];
};

struct ring_args {
    unsigned char *to;
    const unsigned char *from;
    uint32_t bytes;
    uint64_t *wrong;
};

struct chunk {
    unsigned char *to;
    const unsigned char *from;
    uint32_t bytes; /* 0: beyond the end */
    unsigned char *stage;
    uint64_t *barrier;
    uint32_t parity;
};

/* Number n of this block. */
static chunk nth_chunk(const ring_args &args, barriers &full, uint32_t n)
{
    const uint32_t at = (blockIdx.x + n * gridDim.x) * kStageBytes;
    const uint32_t left = at < args.bytes ? args.bytes - at : 0;
    unsigned char *stages = psti_dynamic_shared(kStages * kStageBytes);
    return {args.to + at,
            args.from + at,
            left < kStageBytes ? left : kStageBytes,
            stages + n % kStages * kStageBytes,
            &full.of[n % kStages],
            n / kStages % 2};
}

static bool holds_zeros(const unsigned char *at, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        if (at[i] != 0)
            return false;
    return true;
}

static uint64_t store_chunk(const chunk &c)
{
    uint64_t wrong = 0;
    while (!psti_barrier_try_wait(c.barrier, c.parity))
        ;
    wrong += memcmp(c.stage, c.from, c.bytes) != 0;
    wrong += !holds_zeros(c.to, c.bytes);
    psti_bulk_store(c.to, c.stage, c.bytes);
    psti_bulk_commit();
    return wrong;
}

/* One thread's part; `kUnread` stores may still read their stage when another chunk is loaded. */
template <uint32_t kUnread> static uint64_t copy_chunks(const ring_args &args, barriers &full)
{
    uint64_t wrong = 0;
    uint32_t stored = 0, n = 0;
    for (; nth_chunk(args, full, n).bytes > 0; n++) {
        const chunk c = nth_chunk(args, full, n);
        if (n - stored >= kAhead)
            wrong += store_chunk(nth_chunk(args, full, stored++));
        psti_bulk_wait_read<kUnread>();
        psti_barrier_expect(c.barrier, c.bytes);
        psti_bulk_load(c.stage, c.from, c.bytes, c.barrier, psti_evict_first());
    }
    while (stored < n)
        wrong += store_chunk(nth_chunk(args, full, stored++));
    psti_bulk_wait_all();
    for (uint32_t i = 0; i < n; i++) {
        const chunk c = nth_chunk(args, full, i);
        wrong += memcmp(c.to, c.from, c.bytes) != 0;
    }
    return wrong;
}

template <uint32_t kUnread> static void ring_kernel(const ring_args &args)
{
    PSTI_SHARED(barriers, full);
    if (threadIdx.x == 0) {
        for (uint32_t stage = 0; stage < kStages; stage++)
            psti_barrier_init(&full.of[stage]);
        psti_fence_barrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint64_t wrong = copy_chunks<kUnread>(args, full);
        psti_add_acq_rel_u64(args.wrong, wrong);
    }
    __syncthreads();
}

uint64_t simt_try_ring(const simt_config *config, uint32_t grid, int careless, unsigned char *to,
                       const unsigned char *from, uint32_t bytes)
{
    const uint32_t unread = kStages - kAhead;
    uint64_t wrong = 0;
    const ring_args args = {to, from, bytes, &wrong};
    if (careless)
        simt_launch_kernel<ring_args, ring_kernel<unread + 1>>(config, grid, SIMT_WARP, args);
    else
        simt_launch_kernel<ring_args, ring_kernel<unread>>(config, grid, SIMT_WARP, args);
    return wrong;
}

/* ---- what memory holds at some time ---- */

struct line {
    alignas(16) unsigned char byte[kStageBytes];
};

struct places_args {
    line *memory; /* SIMT_MAX_PLACES, all SIMT_BEFORE */
    simt_content *seen;
};

static void fill(unsigned char *at, simt_content content)
{
    memset(at, content, kStageBytes);
}

static simt_content content_of(const unsigned char *at)
{
    for (uint32_t i = 0; i < kStageBytes; i++)
        if (at[i] != at[0] || at[i] >= SIMT_MIXED)
            return SIMT_MIXED;
    return (simt_content)at[0];
}

static unsigned char *stage_at(uint32_t n)
{
    return psti_dynamic_shared(SIMT_MAX_PLACES * kStageBytes) + n * kStageBytes;
}

static void store(const places_args &args, uint32_t n)
{
    psti_bulk_store_hinted(args.memory[n].byte, stage_at(n), kStageBytes, psti_evict_first());
}

/* Stage n, filled, as a group of its own. */
static void store_filled(const places_args &args, uint32_t n, simt_content content)
{
    fill(stage_at(n), content);
    psti_fence_proxy();
    store(args, n);
    psti_bulk_commit();
}

template <void (*kKernel)(const places_args &)>
static void look(const simt_config *config, simt_content *places)
{
    line memory[SIMT_MAX_PLACES];
    memset(memory, SIMT_BEFORE, sizeof memory);
    simt_launch_kernel<places_args, kKernel>(config, 1, SIMT_WARP, {memory, places});
}

/* simt_try_NAME runs NAME_kernel. */
#define TRY(name)                                                       \
    void simt_try_##name(const simt_config *config, simt_places places) \
    {                                                                   \
        look<name##_kernel>(config, places);                            \
    }

/* ---- barriers ---- */

PSTI_KERNEL(barriers_kernel, ring_args, args)
{
    PSTI_SHARED(uint64_t, full);
    if (threadIdx.x != 0)
        return;
    unsigned char *stages = psti_dynamic_shared(3 * kStageBytes);
    const auto load = [&](uint32_t n) {
        psti_bulk_load(stages + n * kStageBytes, args.from, kStageBytes, &full, psti_evict_first());
    };
    uint64_t wrong = 0;
    psti_barrier_init(&full);
    wrong += !psti_barrier_try_wait(&full, 1); /* the phase before the first counts as over */
    wrong += psti_barrier_try_wait(&full, 0);
    psti_barrier_expect(&full, 0); /* phase 0: nothing to come */
    wrong += !psti_barrier_try_wait(&full, 0);
    wrong += psti_barrier_try_wait(&full, 1);
    psti_barrier_expect(&full, 3 * kStageBytes); /* phase 1: three loads */
    load(0);
    load(1);
    for (uint32_t i = 0; i < 10; i++)
        wrong += psti_barrier_try_wait(&full, 1);
    load(2);
    while (!psti_barrier_try_wait(&full, 1))
        ;
    for (uint32_t n = 0; n < 3; n++)
        wrong += memcmp(stages + n * kStageBytes, args.from, kStageBytes) != 0;
    psti_add_acq_rel_u64(args.wrong, wrong);
}

uint64_t simt_try_bulk_barriers(const simt_config *config)
{
    line source;
    uint64_t wrong = 0;
    fill(source.byte, SIMT_FIRST);
    simt_launch_kernel<ring_args, barriers_kernel>(config, 3, SIMT_WARP,
                                                   {nullptr, source.byte, kStageBytes, &wrong});
    return wrong;
}

/* ---- late copies ---- */

PSTI_KERNEL(late_store_kernel, places_args, args)
{
    if (threadIdx.x != 0)
        return;
    store_filled(args, 0, SIMT_FIRST);
    psti_bulk_wait_read<0>();
    args.seen[0] = content_of(args.memory[0].byte);
    fill(stage_at(0), SIMT_SECOND);
    psti_bulk_wait_all();
    args.seen[1] = content_of(args.memory[0].byte);
}

TRY(late_store)

PSTI_KERNEL(late_load_kernel, places_args, args)
{
    PSTI_SHARED(barriers, full);
    if (threadIdx.x != 0)
        return;
    for (uint32_t n = 0; n < 2; n++) {
        fill(args.memory[n].byte, SIMT_FIRST);
        fill(stage_at(n), SIMT_BEFORE);
        psti_barrier_init(&full.of[n]);
    }
    psti_fence_barrier_init();
    psti_fence_proxy();
    for (uint32_t n = 0; n < 2; n++) {
        psti_barrier_expect(&full.of[n], kStageBytes);
        psti_bulk_load(stage_at(n), args.memory[n].byte, kStageBytes, &full.of[n],
                       psti_evict_first());
    }
    args.seen[0] = content_of(stage_at(0));
    for (uint32_t n = 0; n < 2; n++)
        while (!psti_barrier_try_wait(&full.of[n], 0))
            ;
    args.seen[1] = content_of(stage_at(0));
}

TRY(late_load)

/* ---- groups ---- */

PSTI_KERNEL(groups_kernel, places_args, args)
{
    if (threadIdx.x != 0)
        return;
    for (uint32_t n = 0; n < 6; n++)
        fill(stage_at(n), SIMT_FIRST);
    psti_fence_proxy();
    for (uint32_t n = 0; n < 6; n++) {
        store(args, n);
        if (n % 2 == 0) /* 0 | 1 2 | 3 4 | and 5 in none */
            psti_bulk_commit();
    }
    psti_bulk_wait_read<1>();
    for (uint32_t n = 0; n < 6; n++)
        fill(stage_at(n), SIMT_SECOND);
    psti_bulk_wait_all();
    for (uint32_t n = 0; n < 6; n++)
        args.seen[n] = content_of(args.memory[n].byte);
    psti_bulk_commit();
    psti_bulk_wait_all();
    args.seen[6] = content_of(args.memory[5].byte);
}

TRY(groups)

PSTI_KERNEL(empty_group_kernel, places_args, args)
{
    if (threadIdx.x != 0)
        return;
    store_filled(args, 0, SIMT_FIRST);
    psti_bulk_commit();
    psti_bulk_wait_read<1>();
    fill(stage_at(0), SIMT_SECOND);
    psti_bulk_wait_all();
    args.seen[0] = content_of(args.memory[0].byte);
}

TRY(empty_group)

PSTI_KERNEL(groups_of_threads_kernel, places_args, args)
{
    if (threadIdx.x == 1) {
        store_filled(args, 0, SIMT_FIRST);
    }
    __syncwarp();
    if (threadIdx.x == 0) {
        store_filled(args, 1, SIMT_SECOND);
        psti_bulk_wait_all();
        args.seen[0] = content_of(args.memory[0].byte);
        args.seen[2] = content_of(args.memory[1].byte);
    }
    __syncwarp();
    if (threadIdx.x == 1) {
        psti_bulk_wait_all();
        args.seen[1] = content_of(args.memory[0].byte);
    }
}

TRY(groups_of_threads)
