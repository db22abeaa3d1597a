/* Copies by the machine for asynchronous bulk copies: memory to a stage of shared memory, from
 * there to memory. The first threads of up to kAskers warps ask, each by a ring of kOwn stages, which keeps
 * kAhead loads in flight and at most kOwn - kAhead stores that still read their stage: asking takes some
 * 300 cycles, so one thread is too slow for short runs.
 *
 * Chunk n of an asking thread uses stage n % kOwn of its ring. It is loaded when it is pushed, and stored
 * when chunk n + kAhead is pushed, or at the end.
 *
 * Runs at odd addresses take the same stages before any chunk does: what is aligned of run n is
 * brought to stage n % kStages, asked for by some lane of the first warp, and other warps lift it from
 * there to where it goes. */
#ifndef PSTI_CUDA_BULK_CUH
#define PSTI_CUDA_BULK_CUH

#include "kernels/cuda/paging/tiles.cuh"

struct nothing_planned {
};

/* Planned: planned_tiles, or nothing_planned. kNumAhead: of each that asks. */
template <uint32_t kNumStages, uint32_t kBytes, uint32_t kMostAskers, uint32_t kNumAhead,
          bool kIsSmall, class Planned>
struct bulk_ring {
    static const bool kSmall = kIsSmall; /* its kernels have one warp, and few registers */
    static const uint32_t kThreads = kSmall ? PSTI_WARP : PSTI_MAX_THREADS;
    static const uint32_t kStages = kNumStages;
    static const uint32_t kStageBytes = kBytes;
    static const uint32_t kAskers = kMostAskers;
    static const uint32_t kOwn = kStages / kAskers;
    static_assert((kAskers & (kAskers - 1)) == 0, "see begin");
    static const uint32_t kAhead = kNumAhead;
    static const uint32_t kRingBytes = kStages * kStageBytes; /* dynamic shared memory */
    uint64_t full[kStages]; /* mbarriers: the load of the stage has arrived */
    /* the asking threads' own; here because indexed */
    unsigned char *to[kStages];
    uint32_t bytes[kStages];
    uint64_t landed[kSmall ? 1 : kStages]; /* mbarriers: what is aligned of an odd run is there */
    odd_run odd[kSmall ? 1 : kStages];
    Planned planned[2]; /* the team's: those that are next, and those behind them */

    PSTI_DEVICE_METHOD static void assume_threads()
    {
        if (kSmall) {
            PSTI_ASSUME_ONE_WARP();
        } else {
            PSTI_ASSUME_ONE_TEAM();
        }
    }
};

typedef bulk_ring<8, PSTI_TILE_BYTES, 2, 3, false, planned_tiles> large_ring;
typedef bulk_ring<4, PSTI_TILE_BYTES / 4, 1, 3, true, nothing_planned> small_ring;

/* The first two warps have else to do, as far as there are others. */
template <class Ring> PSTI_DEVICE asking_warp asking_warp_of()
{
    if (Ring::kAskers == 1)
        return {true, 0, 1}; /* a team of one warp */
    const uint32_t warps = num_threads() / PSTI_WARP;
    const uint32_t skipped = warps > 2 ? 2 : 0;
    const uint32_t num = warps < skipped + Ring::kAskers ? 1 : Ring::kAskers;
    const uint32_t number = thread_of() / PSTI_WARP - skipped;
    return {number < num, number, num};
}

#if PSTI_HAS_BULK

template <class Ring, bool kStreaming> struct bulk_copier {
    static const bool kAsync = true;
    static const bool kIsSmall = Ring::kSmall;
    static const bool kHasRows = !kIsSmall; /* else registers are too few */
    static const bool kShifts = true;
    static const bool kLifts = !kIsSmall; /* one warp would not be faster */
    static const bool kAsks = !kIsSmall;
    static const uint32_t kMostBrought = Ring::kStages - 2; /* two groups may still read others */
    static const uint32_t kRingBytes = Ring::kRingBytes;
    typedef nothing_held held;
    Ring *ring;      /* in shared memory, as are the stages: the first dynamic bytes */
    uint32_t pushed; /* chunks, of an asking thread */
    uint32_t begun;  /* runs, of the team */
    asking_warp asker;

    PSTI_DEVICE_METHOD static unsigned char *stage_at(uint32_t stage)
    {
        return psti_dynamic_shared(0) + stage * Ring::kStageBytes;
    }

    PSTI_DEVICE_METHOD planned_tiles *planned() const
    {
        return ring->planned;
    }
    /* For who clears, behind close. */
    PSTI_DEVICE_METHOD tile_runs *runs() const
    {
        return &ring->planned[0].runs;
    }

    /* Of a chunk of the asking thread. */
    PSTI_DEVICE_METHOD uint32_t stage_of(uint32_t chunk) const
    {
        return asker.number * Ring::kOwn + chunk % Ring::kOwn;
    }

    /* Once in a launch. */
    PSTI_DEVICE_METHOD void open()
    {
        pushed = 0;
        begun = 0;
        asker = asking_warp_of<Ring>();
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
        const uint32_t stage = stage_of(chunk);
        const unsigned char *from = stage_at(stage);
        while (!psti_barrier_try_wait(&ring->full[stage], chunk / Ring::kOwn % 2))
            ;
        if (kStreaming)
            psti_bulk_store_hinted(ring->to[stage], from, ring->bytes[stage], psti_evict_first());
        else
            psti_bulk_store(ring->to[stage], from, ring->bytes[stage]);
        psti_bulk_commit();
    }

    /* Of at most kStageBytes, a multiple of 16, aligned at both ends. */
    PSTI_DEVICE_METHOD void push(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        const uint32_t stage = stage_of(pushed);
        if (pushed >= Ring::kAhead)
            store_chunk(pushed - Ring::kAhead);
        psti_bulk_wait_read<Ring::kOwn - Ring::kAhead>(); /* so the stage is free */
        ring->to[stage] = to;
        ring->bytes[stage] = bytes;
        psti_barrier_expect(&ring->full[stage], bytes);
        psti_bulk_load(stage_at(stage), from, bytes, &ring->full[stage], psti_evict_first());
        pushed++;
    }

    /* By one of the warps that ask. Of at most a tile, aligned at both ends. */
    PSTI_DEVICE_METHOD void ask(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        const uint32_t whole = bytes / PSTI_VECTOR_BYTES * PSTI_VECTOR_BYTES;
        if (lane_of() == 0 && Ring::kStageBytes == PSTI_TILE_BYTES && whole)
            push(to, from, whole);
        if (lane_of() == 0 && Ring::kStageBytes < PSTI_TILE_BYTES)
            for (uint32_t at = 0; at < whole; at += Ring::kStageBytes)
                push(to + at, from + at,
                     whole - at < Ring::kStageBytes ? whole - at : Ring::kStageBytes);
        if (whole + lane_of() < bytes)
            to[whole + lane_of()] = from[whole + lane_of()];
    }

    /* By the whole team, with the same run: one of those that ask does. */
    PSTI_DEVICE_METHOD void begin(held &, unsigned char *to, const unsigned char *from,
                                  uint32_t bytes)
    {
        if (asker.asks && (begun++ & (asker.num - 1)) == asker.number)
            ask(to, from, bytes);
    }

    PSTI_DEVICE_METHOD void end(const held &, unsigned char *, const unsigned char *, uint32_t)
    {
    }

    PSTI_DEVICE_METHOD void tile(unsigned char *to, const unsigned char *from) /* of pages */
    {
        held nothing;
        begin(nothing, to, from, PSTI_TILE_BYTES);
    }

    PSTI_DEVICE_METHOD void run(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        held nothing;
        if (!kIsSmall || alignment_of(to, from) % PSTI_VECTOR_BYTES == 0)
            begin(nothing, to, from, bytes);
        else
            copy_narrow(to, from, bytes);
    }

    /* Runs at odd addresses that are not lifted: of tiles of one run by a kernel that has few registers, and those of
     * tiles of several. */
    PSTI_DEVICE_METHOD void shift(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        copy_shifted<kStreaming, 1, false>(to, from, bytes, psti_evict_first(), false);
    }
    PSTI_DEVICE_METHOD void shift_part(unsigned char *to, const unsigned char *from, uint32_t bytes,
                                       bool alone)
    {
        copy_shifted<kStreaming, 4, false>(to, from, bytes, psti_evict_first(), alone);
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
     * n - kStages was lifted, so none reads the stage any more; the fence is between those reads and the copy. */
    PSTI_DEVICE_METHOD void bring(uint32_t n, unsigned char *to, const unsigned char *from,
                                  uint32_t bytes)
    {
        const uint32_t stage = n % Ring::kStages;
        const shifted_run r = shift_run(to, from, bytes);
        const uint32_t whole = (r.loads - r.first) * PSTI_VECTOR_BYTES;
        ring->odd[stage] = {to, from, bytes, r};
        psti_barrier_expect(&ring->landed[stage], whole);
        psti_fence_proxy_shared();
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

    /* By all, when they have met behind the last run, if chunks come to the same stages. */
    PSTI_DEVICE_METHOD void close_odd()
    {
        psti_fence_proxy_shared();
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
        if (asker.asks && lane_of() == 0) {
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
