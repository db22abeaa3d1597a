/* Copies inside one tile. Pages are aligned to 16 everywhere; rows may have any address, so the
 * width follows the rows. */
#ifndef PSTI_CUDA_COPY_CUH
#define PSTI_CUDA_COPY_CUH

#include "kernels/cuda/block.cuh"

#include "kernels/core/layout.h"

/* policy: psti_evict_first, for what is loaded: nobody reads it again soon. kStreaming: stores go
 * into pages, which are not read soon either; else they come from pages. So the rows are the source
 * where kStreaming, else the destination. */

PSTI_DEVICE psti_vector load_word(const psti_vector *at, uint64_t policy)
{
    return psti_load_vector(at, policy);
}
PSTI_DEVICE uint32_t load_word(const uint32_t *at, uint64_t)
{
    return *at;
}
PSTI_DEVICE unsigned char load_word(const unsigned char *at, uint64_t)
{
    return *at;
}
template <bool kStreaming> PSTI_DEVICE void store_word(psti_vector *at, psti_vector word)
{
    if (kStreaming)
        psti_store_vector_streaming(at, word);
    else
        psti_store_vector(at, word);
}
template <bool kStreaming> PSTI_DEVICE void store_word(uint32_t *at, uint32_t word)
{
    *at = word;
}
template <bool kStreaming> PSTI_DEVICE void store_word(unsigned char *at, unsigned char word)
{
    *at = word;
}

/* By the whole block. Four loads are in flight before the first store: 16 KiB per block of 256
 * threads with 16-byte words. */
template <bool kStreaming, class Word>
PSTI_DEVICE void copy_words(unsigned char *to, const unsigned char *from, uint32_t num_words,
                            uint64_t policy)
{
    const uint32_t kUnroll = 4;
    const Word *source = (const Word *)from;
    Word *target = (Word *)to;
    uint32_t w = threadIdx.x;
    for (; w + (kUnroll - 1) * blockDim.x < num_words; w += kUnroll * blockDim.x) {
        Word held[kUnroll];
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; u++)
            held[u] = load_word(source + w + u * blockDim.x, policy);
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; u++)
            store_word<kStreaming>(target + w + u * blockDim.x, held[u]);
    }
    for (; w < num_words; w += blockDim.x)
        store_word<kStreaming>(target + w, load_word(source + w, policy));
}

template <bool kStreaming, class Word>
PSTI_DEVICE void copy_run_as(unsigned char *to, const unsigned char *from, uint32_t bytes,
                             uint64_t policy)
{
    const uint32_t num_words = bytes / (uint32_t)sizeof(Word);
    const uint32_t whole = num_words * (uint32_t)sizeof(Word);
    copy_words<kStreaming, Word>(to, from, num_words, policy);
    if (whole + threadIdx.x < bytes) /* fewer than 16 bytes are left */
        to[whole + threadIdx.x] = from[whole + threadIdx.x];
}

/* Of the rows, the side that may be unaligned. */
template <bool kStreaming>
PSTI_DEVICE uint64_t rows_address(const unsigned char *to, const unsigned char *from)
{
    return (uint64_t)(kStreaming ? from : to);
}

template <bool kStreaming>
PSTI_DEVICE void copy_run(unsigned char *to, const unsigned char *from, uint32_t bytes,
                          uint64_t policy)
{
    const uint64_t address = rows_address<kStreaming>(to, from);
    if (address % sizeof(psti_vector) == 0)
        copy_run_as<kStreaming, psti_vector>(to, from, bytes, policy);
    else if (address % sizeof(uint32_t) == 0)
        copy_run_as<kStreaming, uint32_t>(to, from, bytes, policy);
    else
        copy_run_as<kStreaming, unsigned char>(to, from, bytes, policy);
}

/* By one thread: at most 16 bytes. */
template <bool kStreaming>
PSTI_DEVICE void copy_piece(unsigned char *to, const unsigned char *from, uint32_t bytes,
                            uint64_t policy)
{
    const uint64_t address = rows_address<kStreaming>(to, from);
    uint32_t at = 0;
    if (address % sizeof(psti_vector) == 0 && bytes == sizeof(psti_vector)) {
        store_word<kStreaming>((psti_vector *)to, psti_load_vector(from, policy));
        return;
    }
    if (address % sizeof(uint32_t) == 0)
        for (; at + sizeof(uint32_t) <= bytes; at += sizeof(uint32_t))
            *(uint32_t *)(to + at) = *(const uint32_t *)(from + at);
    for (; at < bytes; at++)
        to[at] = from[at];
}

/* Copies by the threads themselves. */
template <bool kStreaming> struct direct_copier {
    static const bool kAsync = false;
    uint64_t policy;
    PSTI_DEVICE_METHOD void open()
    {
        policy = psti_evict_first();
    }
    PSTI_DEVICE_METHOD void run(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        copy_run<kStreaming>(to, from, bytes, policy);
    }
    PSTI_DEVICE_METHOD void piece(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        copy_piece<kStreaming>(to, from, bytes, policy);
    }
    PSTI_DEVICE_METHOD void close()
    {
    }
};

/* Of rows that are not aligned to 16, where registers are dearer than time. */
template <bool kStreaming>
PSTI_DEVICE void copy_narrow(unsigned char *to, const unsigned char *from, uint32_t bytes)
{
    uint32_t whole = 0;
    if (rows_address<kStreaming>(to, from) % sizeof(uint32_t) == 0) {
        whole = bytes / (uint32_t)sizeof(uint32_t);
#pragma unroll 1
        for (uint32_t w = threadIdx.x; w < whole; w += blockDim.x)
            ((uint32_t *)to)[w] = ((const uint32_t *)from)[w];
    }
#pragma unroll 1
    for (uint32_t b = whole * 4 + threadIdx.x; b < bytes; b += blockDim.x)
        to[b] = from[b];
}

/* By the whole block. */
PSTI_DEVICE void clear_tile(unsigned char *to)
{
    const psti_vector zero = {0, 0, 0, 0};
#pragma unroll 1
    for (uint32_t at = threadIdx.x * PSTI_VECTOR_BYTES; at < PSTI_TILE_BYTES;
         at += blockDim.x * PSTI_VECTOR_BYTES)
        psti_store_vector(to + at, zero);
}

/* Clears by the whole block: bytes up to alignment, vectors, the bytes left. */
PSTI_DEVICE void zero_run(unsigned char *to, uint32_t bytes)
{
    const psti_vector zero = {0, 0, 0, 0};
    const uint32_t misaligned = (uint32_t)((uint64_t)to % sizeof(psti_vector));
    const uint32_t head = misaligned ? (uint32_t)sizeof(psti_vector) - misaligned : 0;
    if (head >= bytes) {
        if (threadIdx.x < bytes)
            to[threadIdx.x] = 0;
        return;
    }
    const uint32_t num_words = (bytes - head) / (uint32_t)sizeof(psti_vector);
    const uint32_t whole = head + num_words * (uint32_t)sizeof(psti_vector);
    if (threadIdx.x < head)
        to[threadIdx.x] = 0;
    for (uint32_t w = threadIdx.x; w < num_words; w += blockDim.x)
        psti_store_vector(to + head + w * sizeof(psti_vector), zero);
    if (whole + threadIdx.x < bytes)
        to[whole + threadIdx.x] = 0;
}

#endif
