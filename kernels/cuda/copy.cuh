/* Copies inside one tile. Pages are aligned to 16 everywhere; rows may have any address, so the
 * width follows the rows. */
#ifndef PSTI_CUDA_COPY_CUH
#define PSTI_CUDA_COPY_CUH

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/shift.cuh"

#include "kernels/core/layout.h"
#include "kernels/core/stream.h"

/* policy: psti_evict_first, for what is loaded: nobody reads it again soon. kStreaming: stores go
 * into pages, which are not read soon either; else they come from pages. So the rows are the source
 * where kStreaming, else the destination. */

/* Rows with gaps between them, less than a tile each. */
struct row_span {
    unsigned char *first; /* row */
    uint64_t stride;
    uint32_t row_bytes;
    uint32_t skip; /* bytes of the first row that are not meant */
};

PSTI_DEVICE uint64_t alignment_of(const row_span &span)
{
    return (uint64_t)span.first | span.stride | span.row_bytes;
}

/* As words, which they are aligned to. */
template <class Word> struct row_words {
    unsigned char *first;
    uint64_t stride;
    uint32_t per_row, skip, inverse;

    PSTI_DEVICE_METHOD void open(const row_span &span)
    {
        first = span.first;
        stride = span.stride;
        per_row = span.row_bytes / (uint32_t)sizeof(Word);
        skip = span.skip / (uint32_t)sizeof(Word);
        inverse = psti_row_inverse(per_row);
    }
    PSTI_DEVICE_METHOD Word *at(uint32_t w) const
    {
        const uint32_t row = psti_row_of(w + skip, inverse);
        return (Word *)(first + row * stride) + (w + skip - row * per_row);
    }
};

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

/* By the whole block, between addresses that 16 divides. Four loads are in flight before the first store: 16 KiB per
 * block of 256 threads. */
template <bool kStreaming>
PSTI_DEVICE void copy_aligned(unsigned char *to, const unsigned char *from, uint32_t bytes,
                              uint64_t policy)
{
    const uint32_t kUnroll = 4, num_words = bytes / PSTI_VECTOR_BYTES;
    const uint32_t whole = num_words * PSTI_VECTOR_BYTES;
    const psti_vector *source = (const psti_vector *)from;
    psti_vector *target = (psti_vector *)to;
    uint32_t w = thread_of();
    for (; w + (kUnroll - 1) * num_threads() < num_words; w += kUnroll * num_threads()) {
        psti_vector held[kUnroll];
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; u++)
            held[u] = load_word(source + w + u * num_threads(), policy);
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; u++)
            store_word<kStreaming>(target + w + u * num_threads(), held[u]);
    }
    for (; w < num_words; w += num_threads())
        store_word<kStreaming>(target + w, load_word(source + w, policy));
    if (whole + thread_of() < bytes) /* fewer than 16 bytes are left */
        to[whole + thread_of()] = from[whole + thread_of()];
}

/* Rows may have any address; the side of the page has one too behind a row of odd length. */
PSTI_DEVICE uint64_t alignment_of(const unsigned char *to, const unsigned char *from)
{
    return (uint64_t)to | (uint64_t)from;
}

/* By the whole block, between a page and rows with gaps; kUnroll loads are in flight. */
template <bool kStreaming, class Word, uint32_t kUnroll>
PSTI_DEVICE void copy_rows_as(unsigned char *page, const row_span &span, uint32_t bytes,
                              uint64_t policy)
{
    const uint32_t num_words = bytes / (uint32_t)sizeof(Word);
    Word *packed = (Word *)page;
    row_words<Word> rows;
    rows.open(span);
    uint32_t w = thread_of();
    for (; kUnroll > 1 && w + (kUnroll - 1) * num_threads() < num_words;
         w += kUnroll * num_threads()) {
        Word held[kUnroll];
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; u++) {
            const uint32_t word = w + u * num_threads();
            held[u] = load_word(kStreaming ? rows.at(word) : packed + word, policy);
        }
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; u++) {
            const uint32_t word = w + u * num_threads();
            store_word<kStreaming>(kStreaming ? packed + word : rows.at(word), held[u]);
        }
    }
#pragma unroll 1
    for (; w < num_words; w += num_threads())
        store_word<kStreaming>(kStreaming ? packed + w : rows.at(w),
                               load_word(kStreaming ? rows.at(w) : packed + w, policy));
}

template <bool kStreaming, uint32_t kUnroll>
PSTI_DEVICE void copy_rows(unsigned char *page, const row_span &span, uint32_t bytes,
                           uint64_t policy)
{
    const uint64_t alignment = alignment_of(span);
    if (alignment % sizeof(psti_vector) == 0)
        copy_rows_as<kStreaming, psti_vector, kUnroll>(page, span, bytes, policy);
    else if (alignment % sizeof(uint32_t) == 0)
        copy_rows_as<kStreaming, uint32_t, 1>(page, span, bytes, policy);
    else
        copy_rows_as<kStreaming, unsigned char, 1>(page, span, bytes, policy);
}

/* By one thread: at most 16 bytes. */
template <bool kStreaming>
PSTI_DEVICE void copy_piece(unsigned char *to, const unsigned char *from, uint32_t bytes,
                            uint64_t policy)
{
    const uint64_t alignment = alignment_of(to, from);
    if (alignment % sizeof(psti_vector) == 0 && bytes == sizeof(psti_vector)) {
        store_word<kStreaming>((psti_vector *)to, psti_load_vector(from, policy));
        return;
    }
    uint32_t at = 0;
    if (alignment % sizeof(uint32_t) == 0)
        for (; at + sizeof(uint32_t) <= bytes; at += sizeof(uint32_t))
            *(uint32_t *)(to + at) = *(const uint32_t *)(from + at);
#pragma unroll 1
    for (; at < bytes; at += 4) { /* four loads are on their way before their stores */
        uint32_t held = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            held |= psti_load_byte_if(at + i < bytes, from + at + i) << i * 8;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            psti_store_byte_if(at + i < bytes, to + at + i, held >> i * 8);
    }
}

/* What is in flight between begin and end. */
struct nothing_held {
    PSTI_DEVICE_METHOD void clear()
    {
    }
};

/* The bytes behind the last whole vector. */
PSTI_DEVICE void copy_tail(unsigned char *to, const unsigned char *from, uint32_t bytes)
{
    const uint32_t whole = bytes / PSTI_VECTOR_BYTES * PSTI_VECTOR_BYTES;
    if (whole + thread_of() < bytes)
        to[whole + thread_of()] = from[whole + thread_of()];
}

/* Runs of memory that make up the next few tiles of a team, of a tensor that is not one run. Beside the copier,
 * since kernels that are small have no room for it. */
struct tile_runs {
    uint64_t rows[PSTI_WARP];
    uint32_t places[PSTI_WARP + 1]; /* see run_place; behind the last one 0 */
};

/* Copies by the threads themselves. */
template <bool kStreaming> struct direct_copier {
    static const bool kAsync = false;
    static const bool kIsSmall = false;
    static const bool kHasRows = true;
    static const bool kShifts = true; /* copies what begins at any address by vectors */
    static const bool kLifts = false; /* and does so from shared memory */
    static const bool kAsks = false;  /* some warps ask for copies, others are free */
    static const uint32_t kRingBytes = 0;
    static const uint32_t kUnroll = 4;
    struct held {
        psti_vector word[kUnroll];
        /* So that no word is undefined: its register would be taken longer. */
        PSTI_DEVICE_METHOD void clear()
        {
#pragma unroll
            for (uint32_t u = 0; u < kUnroll; u++)
                word[u] = psti_zero_vector();
        }
    };
    tile_runs *team_runs; /* in shared memory; a migration has none */
    uint64_t policy;

    PSTI_DEVICE_METHOD tile_runs *runs() const
    {
        return team_runs;
    }
    /* A run of at most a tile, aligned at both ends. Of a team of 256 threads a whole tile is in
     * flight. */
    PSTI_DEVICE_METHOD void begin(held &h, const unsigned char *to, const unsigned char *from,
                                  uint32_t bytes)
    {
        (void)to;
        const uint32_t first = thread_of() * PSTI_VECTOR_BYTES;
        const uint32_t step = num_threads() * PSTI_VECTOR_BYTES;
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; u++)
            if (first + u * step + PSTI_VECTOR_BYTES <= bytes)
                h.word[u] = psti_load_vector(from + first + u * step, policy);
    }
    PSTI_DEVICE_METHOD void end(const held &h, unsigned char *to, const unsigned char *from,
                                uint32_t bytes)
    {
        const uint32_t first = thread_of() * PSTI_VECTOR_BYTES;
        const uint32_t step = num_threads() * PSTI_VECTOR_BYTES;
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; u++)
            if (first + u * step + PSTI_VECTOR_BYTES <= bytes)
                store_word<kStreaming>((psti_vector *)(to + first + u * step), h.word[u]);
        const uint32_t done = kUnroll * step;
        if (done < PSTI_TILE_BYTES && done < bytes) /* a small team */
            copy_aligned<kStreaming>(to + done, from + done, bytes - done, policy);
        else if (bytes % PSTI_VECTOR_BYTES)
            copy_tail(to, from, bytes);
    }
    PSTI_DEVICE_METHOD void open()
    {
        policy = psti_evict_first();
    }
    PSTI_DEVICE_METHOD void tile(unsigned char *to, const unsigned char *from) /* of pages */
    {
        copy_aligned<kStreaming>(to, from, PSTI_TILE_BYTES, policy);
    }
    PSTI_DEVICE_METHOD void run(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        copy_aligned<kStreaming>(to, from, bytes, policy);
    }
    PSTI_DEVICE_METHOD void shift(unsigned char *to, const unsigned char *from, uint32_t bytes)
    {
        copy_shifted<kStreaming, 3, true>(to, from, bytes, policy, false);
    }
    PSTI_DEVICE_METHOD void shift_part(unsigned char *to, const unsigned char *from, uint32_t bytes,
                                       bool alone)
    {
        copy_shifted<kStreaming, 3, false>(to, from, bytes, psti_evict_first(), alone);
    }
    PSTI_DEVICE_METHOD void rows(unsigned char *page, const row_span &span, uint32_t bytes)
    {
        copy_rows<kStreaming, 2>(page, span, bytes, policy);
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
PSTI_DEVICE void copy_narrow(unsigned char *to, const unsigned char *from, uint32_t bytes)
{
    uint32_t whole = 0;
    if (alignment_of(to, from) % sizeof(uint32_t) == 0) {
        whole = bytes / (uint32_t)sizeof(uint32_t);
#pragma unroll 1
        for (uint32_t w = thread_of(); w < whole; w += num_threads())
            ((uint32_t *)to)[w] = ((const uint32_t *)from)[w];
    }
#pragma unroll 1
    for (uint32_t b = whole * 4 + thread_of(); b < bytes; b += num_threads())
        to[b] = from[b];
}

/* By the whole block. */
PSTI_DEVICE void clear_tile(unsigned char *to)
{
    const psti_vector zero = {0, 0, 0, 0};
#pragma unroll 1
    for (uint32_t at = thread_of() * PSTI_VECTOR_BYTES; at < PSTI_TILE_BYTES;
         at += num_threads() * PSTI_VECTOR_BYTES)
        psti_store_vector(to + at, zero);
}

/* Clears by the whole block: bytes up to alignment, vectors, the bytes left. */
PSTI_DEVICE void zero_run(unsigned char *to, uint32_t bytes)
{
    const psti_vector zero = {0, 0, 0, 0};
    const uint32_t misaligned = (uint32_t)((uint64_t)to % sizeof(psti_vector));
    const uint32_t head = misaligned ? (uint32_t)sizeof(psti_vector) - misaligned : 0;
    if (head >= bytes) {
        if (thread_of() < bytes)
            to[thread_of()] = 0;
        return;
    }
    const uint32_t num_words = (bytes - head) / (uint32_t)sizeof(psti_vector);
    const uint32_t whole = head + num_words * (uint32_t)sizeof(psti_vector);
    if (thread_of() < head)
        to[thread_of()] = 0;
    for (uint32_t w = thread_of(); w < num_words; w += num_threads())
        psti_store_vector(to + head + w * sizeof(psti_vector), zero);
    if (whole + thread_of() < bytes)
        to[whole + thread_of()] = 0;
}

/* By one thread: at most 16 bytes. */
PSTI_DEVICE void zero_piece(unsigned char *to, uint32_t bytes)
{
    const psti_vector zero = {0, 0, 0, 0};
    if ((uint64_t)to % sizeof(psti_vector) == 0 && bytes == sizeof(psti_vector)) {
        psti_store_vector(to, zero);
        return;
    }
    for (uint32_t i = 0; i < bytes; i++)
        to[i] = 0;
}

template <class Word> PSTI_DEVICE void zero_rows_as(const row_span &span, uint32_t bytes)
{
    row_words<Word> rows;
    rows.open(span);
#pragma unroll 1
    for (uint32_t w = thread_of(); w < bytes / (uint32_t)sizeof(Word); w += num_threads())
        store_word<false>(rows.at(w), Word());
}

PSTI_DEVICE void zero_rows(const row_span &span, uint32_t bytes)
{
    if (alignment_of(span) % sizeof(psti_vector) == 0)
        zero_rows_as<psti_vector>(span, bytes);
    else
        zero_rows_as<unsigned char>(span, bytes);
}

#endif
