/* The copy of host pages. */
#ifndef PSTI_HOST_COPY_H
#define PSTI_HOST_COPY_H

#include <stdint.h>
#include <string.h>

#define PSTI_STREAM_MIN_BYTES (24u << 20)

/* Sanitizers do not see streaming stores. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PSTI_SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PSTI_SANITIZED 1
#endif

#if defined(__SSE2__) && !defined(PSTI_SANITIZED)
#include <emmintrin.h>

#define PSTI_STREAM_LINE 64u
#define PSTI_STREAM_BLOCK 16384u

static inline void psti_stream_line(unsigned char *to, const unsigned char *from)
{
    __m128i *out = (__m128i *)to;
    const __m128i *in = (const __m128i *)from;
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
}

/* On Intel four streams keep more reads in flight than one; AMD writes whole lines of one stream
 * best. */
static inline uint32_t psti_num_streams(void)
{
    return __builtin_cpu_is("intel") ? 4 : 1;
}

/* One block in this many parts, a line of each in turn. */
static inline void psti_stream_block(unsigned char *to, const unsigned char *from,
                                     uint32_t num_streams)
{
    const uint32_t part = PSTI_STREAM_BLOCK / num_streams;
    for (uint32_t line = 0; line < part; line += PSTI_STREAM_LINE)
        for (uint32_t at = line; at < PSTI_STREAM_BLOCK; at += part)
            psti_stream_line(to + at, from + at);
}

/* Streaming stores do not read the lines that they overwrite. memcpy of glibc does the same, but
 * only for calls far larger than a page. Of one memcpy of 256 MiB, pieces of 256 KiB came to, on
 * a Xeon: 0.65 by memcpy, 0.84 by one stream, 0.97 by four; on an EPYC, at 512 MiB: 1.08, 1.16,
 * 0.67. An operation that moves less than 24 MiB in `total` finds its pages in the cache again
 * and is faster with memcpy: on the Xeon 1.00 against 0.79 of it at 16 MiB (bench/README.md). */
static inline void psti_copy(unsigned char *to, const unsigned char *from, uint64_t bytes,
                             uint64_t total)
{
    uint64_t at = (0 - (uintptr_t)to) % PSTI_STREAM_LINE;
    if (total < PSTI_STREAM_MIN_BYTES || bytes < at + PSTI_STREAM_BLOCK) {
        memcpy(to, from, bytes);
        return;
    }
    memcpy(to, from, at);
    const uint32_t num_streams = psti_num_streams();
    for (; bytes - at >= PSTI_STREAM_BLOCK; at += PSTI_STREAM_BLOCK)
        psti_stream_block(to + at, from + at, num_streams);
    memcpy(to + at, from + at, bytes - at);
    _mm_sfence(); /* streamed bytes must be visible before the operation is published */
}
#else
static inline void psti_copy(unsigned char *to, const unsigned char *from, uint64_t bytes,
                             uint64_t total)
{
    (void)total;
    memcpy(to, from, bytes);
}
#endif

#endif
