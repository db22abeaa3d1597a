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
            any ? loads : 0,
            any ? stores : 0,
            any ? head + first * PSTI_VECTOR_BYTES : 0,
            any ? head + stores * PSTI_VECTOR_BYTES : 0};
}

/* In the run, of byte number `edge` of those that go one by one. */
PSTI_DEVICE uint32_t edge_at(const shifted_run &r, uint32_t edge)
{
    return edge < r.low ? edge : r.high + (edge - r.low);
}

/* By a whole warp: 16 of the 32 bytes of this lane's vector and of the next lane's, behind which
 * for the last lane comes what the first one has of `next`. */
PSTI_DEVICE psti_vector shift_vector(psti_vector mine, psti_vector next, uint32_t shift)
{
    const bool by_two = (shift & 8) != 0, by_one = (shift & 4) != 0;
    const uint32_t bits = shift % 4 * 8, lane = lane_of();
    const uint32_t behind = (lane + 1) % PSTI_WARP;
    const uint32_t v[5] = {mine.x, mine.y, mine.z, mine.w, 0};
    const uint32_t n[4] = {lane ? mine.x : next.x, lane ? mine.y : next.y, lane ? mine.z : next.z,
                           lane ? mine.w : next.w};
    uint32_t all[8], w[5];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        all[i] = v[i];
        all[4 + i] = psti_shuffle_u32(n[i], behind);
    }
#pragma unroll
    for (uint32_t i = 0; i < 5; i++) {
        const uint32_t here = by_two ? all[i + 2] : all[i];
        const uint32_t after = by_two ? all[i + 3 < 8 ? i + 3 : 7] : all[i + 1];
        w[i] = by_one ? after : here;
    }
    return {(uint32_t)(((uint64_t)w[1] << 32 | w[0]) >> bits),
            (uint32_t)(((uint64_t)w[2] << 32 | w[1]) >> bits),
            (uint32_t)(((uint64_t)w[3] << 32 | w[2]) >> bits),
            (uint32_t)(((uint64_t)w[4] << 32 | w[3]) >> bits)};
}

/* A run by the whole team; kUnroll loads of each thread are in flight. Nothing outside of the run
 * is read or written. */
template <bool kStreaming, uint32_t kUnroll>
PSTI_DEVICE void copy_shifted(unsigned char *to, const unsigned char *from, uint32_t bytes,
                              uint64_t policy)
{
    const shifted_run r = shift_run(to, from, bytes);
    const uint32_t lane = lane_of(), warp = thread_of() / PSTI_WARP;
    const uint32_t num_edges = r.low + (bytes - r.high);
#pragma unroll 1
    for (uint32_t w = r.first + warp * kUnroll * PSTI_WARP + lane; w - lane < r.stores;
         w += kUnroll * num_threads()) {
        const uint32_t at = r.head + w * PSTI_VECTOR_BYTES;
        psti_vector held[kUnroll + 1] = {};
#pragma unroll
        for (uint32_t u = 0; u <= kUnroll; u++)
            if (w + u * PSTI_WARP < r.loads && (u < kUnroll || lane == 0))
                held[u] = psti_load_vector(
                    from + (at - r.shift) + u * PSTI_WARP * PSTI_VECTOR_BYTES, policy);
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; u++) {
            const psti_vector word = shift_vector(held[u], held[u + 1], r.shift);
            unsigned char *target = to + at + u * PSTI_WARP * PSTI_VECTOR_BYTES;
            if (w + u * PSTI_WARP >= r.stores)
                continue;
            if (kStreaming)
                psti_store_vector_streaming(target, word);
            else
                psti_store_vector(target, word);
        }
    }
#pragma unroll 1
    for (uint32_t e = thread_of(); e < num_edges; e += num_threads())
        to[edge_at(r, e)] = from[edge_at(r, e)];
}

#endif
