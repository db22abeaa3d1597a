/* Copies by the machine for asynchronous bulk copies: memory to a stage of shared memory, from
 * there to memory. The first thread of a block does all the asking. A ring of stages keeps
 * kAhead loads in flight and at most kStages - kAhead stores that still read their stage.
 *
 * Chunk n uses stage n % kStages. It is loaded when it is pushed, and stored when chunk n + kAhead
 * is pushed, or at the end. */
#ifndef PSTI_CUDA_BULK_CUH
#define PSTI_CUDA_BULK_CUH

#include "kernels/cuda/copy.cuh"

struct bulk_counters {
    uint64_t policy;
    uint32_t pushed, stored; /* chunks, of the asking thread */
};

/* Counters are kept by each thread, or with the ring, which saves registers. */
template <bool kWithRing> struct kept_counters {
    typedef bulk_counters type;
};
template <> struct kept_counters<true> {
    typedef bulk_counters &type;
};

template <uint32_t kNumStages, uint32_t kBytes, uint32_t kNumAhead, bool kWithRing>
struct bulk_ring {
    typedef typename kept_counters<kWithRing>::type counters;
    static const bool kShared = kWithRing;
    static const uint32_t kStages = kNumStages;
    static const uint32_t kStageBytes = kBytes;
    static const uint32_t kAhead = kNumAhead;
    static const uint32_t kRingBytes = kStages * kStageBytes; /* dynamic shared memory */
    uint64_t full[kStages]; /* mbarriers: the load of the stage has arrived */
    bulk_counters shared;
    /* the asking thread's own; here because indexed */
    unsigned char *to[kStages];
    uint32_t bytes[kStages];
};

typedef bulk_ring<8, PSTI_TILE_BYTES, 6, false> large_ring;
typedef bulk_ring<4, PSTI_TILE_BYTES / 4, 3, true> small_ring;

#if PSTI_HAS_BULK

template <class Ring, bool kStreaming> struct bulk_copier {
    static const bool kAsync = true;
    static const bool kHasRows = !Ring::kShared; /* else registers are too few */
    Ring &ring;
    unsigned char *stages; /* kRingBytes, in shared memory */
    typename Ring::counters own;

    /* Once in a launch. */
    PSTI_DEVICE_METHOD void open()
    {
        if (!Ring::kShared || threadIdx.x == 0)
            own.policy = psti_evict_first();
        if (threadIdx.x == 0) {
            own.pushed = 0;
            own.stored = 0;
            for (uint32_t stage = 0; stage < Ring::kStages; stage++)
                psti_barrier_init(&ring.full[stage]);
            psti_fence_barrier_init();
            /* what other blocks wrote by ordinary stores is copied from here on */
            psti_fence_proxy();
        }
        __syncthreads();
    }

    /* Stores the oldest chunk that is not stored. */
    PSTI_DEVICE_METHOD void store_next()
    {
        const uint32_t stage = own.stored % Ring::kStages;
        while (!psti_barrier_try_wait(&ring.full[stage], own.stored / Ring::kStages % 2))
            ;
        const unsigned char *from = stages + stage * Ring::kStageBytes;
        if (kStreaming)
            psti_bulk_store_hinted(ring.to[stage], from, ring.bytes[stage], own.policy);
        else
            psti_bulk_store(ring.to[stage], from, ring.bytes[stage]);
        psti_bulk_commit();
        own.stored++;
    }

    /* Of at most kStageBytes, a multiple of 16, aligned at both ends. */
    PSTI_DEVICE_METHOD void push(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        const uint32_t stage = own.pushed % Ring::kStages;
        if (own.pushed - own.stored >= Ring::kAhead)
            store_next();
        psti_bulk_wait_read<Ring::kStages - Ring::kAhead>(); /* so the stage is free */
        ring.to[stage] = to;
        ring.bytes[stage] = bytes;
        psti_barrier_expect(&ring.full[stage], bytes);
        psti_bulk_load(stages + stage * Ring::kStageBytes, from, bytes, &ring.full[stage],
                       own.policy);
        own.pushed++;
    }

    PSTI_DEVICE_METHOD void run(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        if (alignment_of(to, from) % PSTI_VECTOR_BYTES != 0) {
            copy_narrow(to, from, bytes);
            return;
        }
        const uint32_t whole = bytes / PSTI_VECTOR_BYTES * PSTI_VECTOR_BYTES;
        if (threadIdx.x == 0)
            for (uint32_t at = 0; at < whole; at += Ring::kStageBytes)
                push(to + at, from + at,
                     whole - at < Ring::kStageBytes ? whole - at : Ring::kStageBytes);
        if (whole + threadIdx.x < bytes) /* fewer than 16 bytes are left */
            to[whole + threadIdx.x] = from[whole + threadIdx.x];
    }

    PSTI_DEVICE_METHOD void rows(unsigned char *page, const row_span &span, uint32_t bytes)
    {
        copy_rows<kStreaming, 1>(page, span, bytes, own.policy);
    }

    PSTI_DEVICE_METHOD void piece(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        copy_piece<kStreaming>(to, from, bytes, own.policy);
    }

    /* All is in memory, for whoever comes after, by whatever way it reads. */
    PSTI_DEVICE_METHOD void close()
    {
        if (threadIdx.x == 0) {
            while (own.stored != own.pushed)
                store_next();
            psti_bulk_wait_all();
            psti_fence_proxy();
        }
        __syncthreads();
    }
};

#endif /* PSTI_HAS_BULK */

#endif
