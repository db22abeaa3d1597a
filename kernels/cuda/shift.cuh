/* Copies between addresses of any alignment, 16 bytes at a time: the loads are aligned and shifted
 * until the stores are. */
#ifndef PSTI_CUDA_SHIFT_CUH
#define PSTI_CUDA_SHIFT_CUH

#include "kernels/cuda/block.cuh"

#include "kernels/core/fn.h"
#include "kernels/core/layout.h"

/* What a run of bytes comes to. Vector w of the target has bytes head + 16 w to head + 16 w + 15 of
 * the run, and these lie in vectors w and w + 1 of the source, from byte `shift` on. Bytes in front
 * of `low` and from `high` on go one by one, at most 31 each: a vector there would reach out of the
 * run. Where there are no vectors, all do. */
struct shifted_run {
    uint32_t head, shift;
    uint32_t first, loads, stores; /* vectors: from, and up to */
    uint32_t low, high;
};

PSTI_DEVICE shifted_run shift_run(const unsigned char *to, const unsigned char *from,
                                  uint32_t bytes)
{
    const uint32_t head = (uint32_t)(0 - (uint64_t)to) % PSTI_VECTOR_BYTES;
    const uint32_t shift = (uint32_t)((uint64_t)from + head) % PSTI_VECTOR_BYTES;
    const uint32_t first = head < shift ? 1 : 0;
    const uint32_t loads = bytes + shift < head ? 0 : (bytes + shift - head) / PSTI_VECTOR_BYTES;
    const uint32_t stores = loads > first ? loads - (shift ? 1 : 0) : 0;
    const bool any = stores > first;
    return {head,
            shift,
            first,
            any ? loads : first,
            any ? stores : first,
            any ? head + first * PSTI_VECTOR_BYTES : bytes / 2,
            any ? head + stores * PSTI_VECTOR_BYTES : bytes / 2};
}

/* In the run, where vector w of the source begins. */
PSTI_DEVICE uint32_t source_at(const shifted_run &r, uint32_t w)
{
    return r.head + w * PSTI_VECTOR_BYTES - r.shift;
}

/* 16 of 32 bytes, from bit number 32 kWords + bits on. */
template <uint32_t kWords> PSTI_DEVICE psti_vector shift_words(const uint32_t all[8], uint32_t bits)
{
    const uint32_t *w = all + kWords; /* of kWords 3 and bits 0 the last one does not count */
    return {psti_funnel(w[0], w[1], bits), psti_funnel(w[1], w[2], bits),
            psti_funnel(w[2], w[3], bits), psti_funnel(w[3], w[4], bits)};
}

/* By a whole warp: of this lane's vector and the next lane's, behind which for the last lane comes
 * what the first one has of `next`. */
template <uint32_t kWords>
PSTI_DEVICE psti_vector shift_vector(psti_vector mine, psti_vector next, uint32_t bits)
{
    const uint32_t lane = lane_of(), behind = (lane + 1) % PSTI_WARP;
    const uint32_t n[4] = {next.x, next.y, next.z, next.w};
    uint32_t all[8] = {mine.x, mine.y, mine.z, mine.w};
#pragma unroll
    for (uint32_t i = 0; i <= kWords; i++)
        all[4 + i] = psti_shuffle_u32(lane ? all[i] : n[i], behind);
    return shift_words<kWords>(all, bits);
}

template <bool kStreaming> PSTI_DEVICE void store_shifted(unsigned char *to, psti_vector word)
{
    if (kStreaming)
        psti_store_vector_streaming(to, word);
    else
        psti_store_vector(to, word);
}

/* The single bytes of a run, by one warp: lane n of it has one in front and one behind. */
struct run_edges {
    uint32_t low, high;

    PSTI_DEVICE_METHOD void load(const shifted_run &r, const unsigned char *from, uint32_t bytes)
    {
        low = psti_load_byte_if(lane_of() < r.low, from + lane_of());
        high = psti_load_byte_if(lane_of() < bytes - r.high, from + r.high + lane_of());
    }
    PSTI_DEVICE_METHOD void store(const shifted_run &r, unsigned char *to, uint32_t bytes) const
    {
        psti_store_byte_if(lane_of() < r.low, to + lane_of(), low);
        psti_store_byte_if(lane_of() < bytes - r.high, to + r.high + lane_of(), high);
    }
};

/* The vectors of a run that are one warp's, of which kAhead are on their way while one is shifted. */
template <bool kStreaming, uint32_t kAhead> struct shifted_part {
    static const uint32_t kRound = PSTI_WARP * PSTI_VECTOR_BYTES;
    unsigned char *target;       /* this lane's next vector: where it goes */
    const unsigned char *source; /* and where the one that it begins in lies */
    int32_t loads, stores;       /* how many from there on are the warp's */
    uint64_t policy;
    psti_vector held[kAhead + 1];

    PSTI_DEVICE_METHOD void load(uint32_t round)
    {
        psti_vector &v = held[round % (kAhead + 1)];
        v = {0, 0, 0, 0};
        if ((int32_t)(round * PSTI_WARP) < loads)
            v = psti_load_vector(source + round * kRound, policy);
    }

    template <uint32_t kWords> PSTI_DEVICE_METHOD void copy(uint32_t bits)
    {
        const int32_t lane = (int32_t)lane_of();
#pragma unroll 1
        while (stores + lane > 0) {
#pragma unroll
            for (uint32_t k = 0; k <= kAhead; k++) {
                const int32_t done = (int32_t)(k * PSTI_WARP);
                load(k + kAhead);
                const psti_vector word =
                    shift_vector<kWords>(held[k], held[(k + 1) % (kAhead + 1)], bits);
                if (done < stores)
                    store_shifted<kStreaming>(target + k * kRound, word);
                if (done + (int32_t)PSTI_WARP >= stores + lane)
                    return;
            }
            loads -= (int32_t)((kAhead + 1) * PSTI_WARP);
            stores -= (int32_t)((kAhead + 1) * PSTI_WARP);
            source += (kAhead + 1) * kRound;
            target += (kAhead + 1) * kRound;
        }
    }
};

/* By the team, or one warp alone: one warp has the edges and waits for memory, not the same one each time. */
PSTI_DEVICE void copy_edges(const shifted_run &run, unsigned char *to, const unsigned char *from,
                            uint32_t bytes, bool alone)
{
    const uint32_t number = (uint32_t)((uint64_t)from >> PSTI_TILE_SHIFT) * 0x9e3779b1u >> 29;
    run_edges edges = {0, 0};
    if (!alone && thread_of() / PSTI_WARP != number % (num_threads() / PSTI_WARP))
        return;
    edges.load(run, from, bytes);
    edges.store(run, to, bytes);
}

/* A run by the whole team, where each warp has a part of its vectors, or by one warp alone. Nothing outside of the run
 * is read or written. kEdgesLast: which takes registers; else they are waited for while the first vectors are on their
 * way. */
template <bool kStreaming, uint32_t kAhead, bool kEdgesLast>
PSTI_DEVICE void copy_shifted(unsigned char *to, const unsigned char *from, uint32_t bytes,
                              uint64_t policy, bool alone)
{
    const shifted_run run = shift_run(to, from, bytes);
    const uint32_t lane = lane_of(), warp = alone ? 0 : thread_of() / PSTI_WARP;
    const uint32_t num_warps = alone ? 1 : num_threads() / PSTI_WARP;
    const uint32_t rounds = (run.stores - run.first + PSTI_WARP - 1) / PSTI_WARP;
    const int32_t most = (int32_t)((rounds + num_warps - 1) / num_warps * PSTI_WARP);
    const uint32_t first = run.first + warp * (uint32_t)most;
    const int32_t left = (int32_t)(run.stores - first);
    shifted_part<kStreaming, kAhead> part;
    part.source = from + source_at(run, first + lane);
    part.target = to + (run.head + (first + lane) * PSTI_VECTOR_BYTES);
    part.stores = (left < most ? left : most) - (int32_t)lane;
    /* and the one behind, in which the last one ends */
    part.loads = part.stores + (run.shift && left > 0 ? 1 : 0);
    part.policy = policy;
#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++)
        part.load(k);
    if (!kEdgesLast)
        copy_edges(run, to, from, bytes, alone);
    if (run.shift / 4 == 0)
        part.template copy<0>(run.shift % 4 * 8);
    else if (run.shift / 4 == 1)
        part.template copy<1>(run.shift % 4 * 8);
    else if (run.shift / 4 == 2)
        part.template copy<2>(run.shift % 4 * 8);
    else
        part.template copy<3>(run.shift % 4 * 8);
    if (kEdgesLast)
        copy_edges(run, to, from, bytes, alone);
}

/* A run that is brought to a stage of shared memory; of none the bytes are 0. */
struct odd_run {
    unsigned char *to;
    const unsigned char *from;
    uint32_t bytes;
    shifted_run run;
};

/* A warp's part in lifting runs from shared memory. All warps of a team do so but the first and, where two others are
 * left, the helper; they are two groups, if they are two at least, and each group has a run of its own. */
struct lifting_warp {
    uint32_t groups, group;
    uint32_t number; /* in the group; of a warp that does not lift none of its */
    uint32_t warps;  /* of the group */
};

PSTI_DEVICE lifting_warp lifting_warp_of()
{
    const uint32_t warps = num_threads() / PSTI_WARP;
    const uint32_t skipped = warps > 3 ? 2 : warps > 1 ? 1 : 0;
    const uint32_t groups = warps - skipped > 1 ? 2 : 1;
    const uint32_t mine = thread_of() / PSTI_WARP - skipped;
    return {groups, mine % groups, mine / groups,
            (warps - skipped - mine % groups + groups - 1) / groups};
}

/* By a group: the vectors of a run, where those of the source are from the first one on. */
template <bool kStreaming, uint32_t kWords>
PSTI_DEVICE void lift_vectors(const lifting_warp &me, const shifted_run &r, unsigned char *to,
                              const psti_vector *stage)
{
    const uint32_t kUnroll = 4, step = me.warps * PSTI_WARP;
    const uint32_t bits = r.shift % 4 * 8, behind = r.shift ? 1 : 0;
    const uint32_t num = r.stores - r.first;
    unsigned char *target = to + (r.head + r.first * PSTI_VECTOR_BYTES);
#pragma unroll 1
    for (uint32_t w = me.number * PSTI_WARP + lane_of(); w < num; w += kUnroll * step) {
        psti_vector held[kUnroll][2] = {};
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; u++)
            if (w + u * step < num) {
                held[u][0] = psti_load_shared_vector(stage + w + u * step);
                held[u][1] = psti_load_shared_vector(stage + w + u * step + behind);
            }
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; u++) {
            const psti_vector &a = held[u][0], &b = held[u][1];
            const uint32_t all[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
            if (w + u * step < num)
                store_shifted<kStreaming>(target + (w + u * step) * PSTI_VECTOR_BYTES,
                                          shift_words<kWords>(all, bits));
        }
    }
}

template <bool kStreaming>
PSTI_DEVICE void lift_run(const lifting_warp &me, const shifted_run &r, unsigned char *to,
                          const psti_vector *stage)
{
    if (r.shift / 4 == 0)
        lift_vectors<kStreaming, 0>(me, r, to, stage);
    else if (r.shift / 4 == 1)
        lift_vectors<kStreaming, 1>(me, r, to, stage);
    else if (r.shift / 4 == 2)
        lift_vectors<kStreaming, 2>(me, r, to, stage);
    else
        lift_vectors<kStreaming, 3>(me, r, to, stage);
}

#endif
