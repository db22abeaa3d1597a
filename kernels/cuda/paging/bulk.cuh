/* Copies by the machine for asynchronous bulk copies: memory to a stage of shared memory, from
 * there to memory. The first thread of a block asks. A ring of stages keeps
 * kAhead loads in flight and at most kStages - kAhead stores that still read their stage.
 *
 * Chunk n uses stage n % kStages. It is loaded when it is pushed, and stored when chunk n + kAhead
 * is pushed, or at the end.
 *
 * Runs at odd addresses take the same stages before any chunk does: what is aligned of run n is
 * brought to stage n % kStages, asked for by some lane of the first warp, and other warps lift it from
 * there to where it goes. */
#ifndef PSTI_CUDA_BULK_CUH
#define PSTI_CUDA_BULK_CUH

#include "kernels/cuda/copy.cuh"

struct no_runs {
};

/* Runs: tile_runs, or no_runs. */
template <uint32_t kNumStages, uint32_t kBytes, uint32_t kNumAhead, bool kIsSmall, class Runs>
struct bulk_ring {
    static const bool kSmall = kIsSmall; /* its kernels have one warp, and few registers */
    static const uint32_t kThreads = kSmall ? PSTI_WARP : PSTI_MAX_THREADS;
    static const uint32_t kStages = kNumStages;
    static const uint32_t kStageBytes = kBytes;
    static const uint32_t kAhead = kNumAhead;
    static const uint32_t kRingBytes = kStages * kStageBytes; /* dynamic shared memory */
    uint64_t full[kStages]; /* mbarriers: the load of the stage has arrived */
    /* the asking thread's own; here because indexed */
    unsigned char *to[kStages];
    uint32_t bytes[kStages];
    uint64_t landed[kSmall ? 1 : kStages]; /* mbarriers: what is aligned of an odd run is there */
    odd_run odd[kSmall ? 1 : kStages];
    Runs runs; /* the team's */

    PSTI_DEVICE_METHOD static void assume_threads()
    {
        if (kSmall) {
            PSTI_ASSUME_ONE_WARP();
        } else {
            PSTI_ASSUME_ONE_TEAM();
        }
    }
};

typedef bulk_ring<8, PSTI_TILE_BYTES, 6, false, tile_runs> large_ring;
typedef bulk_ring<4, PSTI_TILE_BYTES / 4, 3, true, no_runs> small_ring;

#if PSTI_HAS_BULK

template <class Ring, bool kStreaming> struct bulk_copier {
    static const bool kAsync = true;
    static const bool kIsSmall = Ring::kSmall;
    static const bool kHasRows = !kIsSmall; /* else registers are too few */
    static const bool kShifts = true;
    static const bool kLifts = !kIsSmall;                   /* one warp would not be faster */
    static const uint32_t kMostBrought = Ring::kStages - 2; /* two groups may still read others */
    static const uint32_t kRingBytes = Ring::kRingBytes;
    typedef nothing_held held;
    Ring *ring;      /* in shared memory, as are the stages: the first dynamic bytes */
    uint32_t pushed; /* chunks, of the asking thread */

    PSTI_DEVICE_METHOD static unsigned char *stage_at(uint32_t stage)
    {
        return psti_dynamic_shared(0) + stage * Ring::kStageBytes;
    }

    PSTI_DEVICE_METHOD tile_runs *runs() const
    {
        return &ring->runs;
    }

    /* Once in a launch. */
    PSTI_DEVICE_METHOD void open()
    {
        pushed = 0;
        if (thread_of() == 0) {
            for (uint32_t stage = 0; stage < Ring::kStages; stage++)
                psti_barrier_init(&ring->full[stage]);
            psti_fence_barrier_init();
            /* what other blocks wrote by ordinary stores is copied from here on */
            psti_fence_proxy();
        }
        PSTI_SYNC_TEAM();
    }

    PSTI_DEVICE_METHOD void store_chunk(uint32_t chunk)
    {
        const uint32_t stage = chunk % Ring::kStages;
        while (!psti_barrier_try_wait(&ring->full[stage], chunk / Ring::kStages % 2))
            ;
        const unsigned char *from = stage_at(stage);
        if (kStreaming)
            psti_bulk_store_hinted(ring->to[stage], from, ring->bytes[stage], psti_evict_first());
        else
            psti_bulk_store(ring->to[stage], from, ring->bytes[stage]);
        psti_bulk_commit();
    }

    /* Of at most kStageBytes, a multiple of 16, aligned at both ends. */
    PSTI_DEVICE_METHOD void push(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        const uint32_t stage = pushed % Ring::kStages;
        if (pushed >= Ring::kAhead)
            store_chunk(pushed - Ring::kAhead);
        psti_bulk_wait_read<Ring::kStages - Ring::kAhead>(); /* so the stage is free */
        ring->to[stage] = to;
        ring->bytes[stage] = bytes;
        psti_barrier_expect(&ring->full[stage], bytes);
        psti_bulk_load(stage_at(stage), from, bytes, &ring->full[stage], psti_evict_first());
        pushed++;
    }

    /* Of at most a tile, aligned at both ends. */
    PSTI_DEVICE_METHOD void begin(held &, unsigned char *to, const unsigned char *from,
                                  uint32_t bytes)
    {
        const uint32_t whole = bytes / PSTI_VECTOR_BYTES * PSTI_VECTOR_BYTES;
        if (thread_of() == 0)
            for (uint32_t at = 0; at < whole; at += Ring::kStageBytes)
                push(to + at, from + at,
                     whole - at < Ring::kStageBytes ? whole - at : Ring::kStageBytes);
        if (whole != bytes)
            copy_tail(to, from, bytes);
    }

    PSTI_DEVICE_METHOD void end(const held &, unsigned char *, const unsigned char *, uint32_t)
    {
    }

    PSTI_DEVICE_METHOD void run(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        held nothing;
        if (alignment_of(to, from) % PSTI_VECTOR_BYTES == 0)
            begin(nothing, to, from, bytes);
        else
            copy_narrow(to, from, bytes);
    }

    /* Where runs at odd addresses are not lifted. */
    PSTI_DEVICE_METHOD void shift(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        copy_shifted<kStreaming, 1>(to, from, bytes, psti_evict_first());
    }

    PSTI_DEVICE_METHOD void open_odd()
    {
        if (thread_of() == 0) {
            for (uint32_t stage = 0; stage < Ring::kStages; stage++)
                psti_barrier_init(&ring->landed[stage]);
            psti_fence_barrier_init();
        }
        __syncwarp(); /* lanes of the first warp use them before the team meets */
    }

    /* By a lane of the first warp: run number n, of at most a tile. All threads have met since run
     * n - kStages was lifted, so none reads the stage any more. */
    PSTI_DEVICE_METHOD void bring(uint32_t n, unsigned char *to, const unsigned char *from,
                                  uint32_t bytes)
    {
        const uint32_t stage = n % Ring::kStages;
        const shifted_run r = shift_run(to, from, bytes);
        const uint32_t whole = (r.loads - r.first) * PSTI_VECTOR_BYTES;
        ring->odd[stage] = {to, from, bytes, r};
        psti_barrier_expect(&ring->landed[stage], whole);
        if (whole)
            psti_bulk_load(stage_at(stage), from + source_at(r, r.first), whole,
                           &ring->landed[stage], psti_evict_first());
    }

    /* By the same: run number n is none, nor is any behind it. */
    PSTI_DEVICE_METHOD void bring_none(uint32_t n)
    {
        ring->odd[n % Ring::kStages].bytes = 0;
        psti_barrier_expect(&ring->landed[n % Ring::kStages], 0);
    }

    /* By a lane of the first warp. */
    PSTI_DEVICE_METHOD void await(uint32_t n)
    {
        while (!psti_barrier_try_wait(&ring->landed[n % Ring::kStages], n / Ring::kStages % 2))
            ;
    }

    PSTI_DEVICE_METHOD odd_run odd_at(uint32_t n) const
    {
        return ring->odd[n % Ring::kStages];
    }

    /* By a group, which has met the first warp since that waited for run n. */
    PSTI_DEVICE_METHOD void lift(const lifting_warp &me, uint32_t n, const odd_run &odd) const
    {
        lift_run<kStreaming>(me, odd.run, odd.to, (const psti_vector *)stage_at(n % Ring::kStages));
    }

    PSTI_DEVICE_METHOD void rows(unsigned char *page, const row_span &span, uint32_t bytes)
    {
        copy_rows<kStreaming, 1>(page, span, bytes, psti_evict_first());
    }

    PSTI_DEVICE_METHOD void piece(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        copy_piece<kStreaming>(to, from, bytes, psti_evict_first());
    }

    /* All is in memory, for whoever comes after, by whatever way it reads. */
    PSTI_DEVICE_METHOD void close()
    {
        if (thread_of() == 0) {
            for (uint32_t chunk = pushed < Ring::kAhead ? 0 : pushed - Ring::kAhead;
                 chunk != pushed; chunk++)
                store_chunk(chunk);
            psti_bulk_wait_all();
            psti_fence_proxy();
        }
        PSTI_SYNC_TEAM();
    }
};

#endif /* PSTI_HAS_BULK */

#endif
