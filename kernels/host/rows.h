/* The copy between a page, where bytes follow one another, and rows with gaps between them. */
#ifndef PSTI_HOST_ROWS_H
#define PSTI_HOST_ROWS_H

#include <stdbool.h>

#include "kernels/host/copy.h"

/* Bytes of one segment, which follow one another in the stream: where the next one is. */
typedef struct psti_rows {
    unsigned char *row;
    uint64_t in_row; /* below row_bytes */
    uint64_t row_bytes, row_stride;
} psti_rows;

/* The next bytes, as far as they are in one row, at most `bytes`. */
static inline unsigned char *psti_next_run(psti_rows *rows, uint64_t bytes, uint64_t *run)
{
    unsigned char *at = rows->row + rows->in_row;
    const uint64_t left = rows->row_bytes - rows->in_row;
    if (bytes < left) {
        *run = bytes;
        rows->in_row += bytes;
    } else {
        *run = left;
        rows->in_row = 0;
        rows->row += rows->row_stride;
    }
    return at;
}

static inline void psti_gather_runs(unsigned char *to, psti_rows *from, uint64_t bytes)
{
    uint64_t run;
    for (; bytes > 0; to += run, bytes -= run) {
        const unsigned char *at = psti_next_run(from, bytes, &run);
        memcpy(to, at, run);
    }
}

static inline void psti_scatter_runs(psti_rows *to, const unsigned char *from, uint64_t bytes)
{
    uint64_t run;
    for (; bytes > 0; from += run, bytes -= run) {
        unsigned char *at = psti_next_run(to, bytes, &run);
        memcpy(at, from, run);
    }
}

static inline void psti_zero_rows(psti_rows *rows, uint64_t bytes)
{
    uint64_t run;
    for (; bytes > 0; bytes -= run) {
        unsigned char *at = psti_next_run(rows, bytes, &run);
        memset(at, 0, run);
    }
}

#ifdef PSTI_STREAM_LINE

/* Goes on by `bytes`, which are `num` rows and `rest`. */
static inline void psti_skip_rows(psti_rows *rows, uint64_t num, uint64_t rest)
{
    rows->row += num * rows->row_stride;
    rows->in_row += rest;
    if (rows->in_row >= rows->row_bytes) {
        rows->in_row -= rows->row_bytes;
        rows->row += rows->row_stride;
    }
}

/* A place in the rows, as it is kept in registers. */
typedef struct psti_place {
    unsigned char *at;
    uint64_t left; /* bytes of the row */
} psti_place;

static inline void psti_gather_line(unsigned char *to, psti_place *from, uint64_t row_bytes,
                                    uint64_t gap)
{
    unsigned char line[PSTI_STREAM_LINE];
    uint64_t run;
    if (from->left >= PSTI_STREAM_LINE) {
        psti_stream_line(to, from->at);
        from->at += PSTI_STREAM_LINE;
        from->left -= PSTI_STREAM_LINE;
        return;
    }
    const bool is_wide = (row_bytes | from->left) % 16 == 0;
    for (uint64_t at = 0; at < PSTI_STREAM_LINE; at += run) {
        if (from->left == 0)
            *from = (psti_place){from->at + gap, row_bytes};
        if (is_wide) {
            run = 16;
            _mm_storeu_si128((__m128i *)(line + at), _mm_loadu_si128((const __m128i *)from->at));
        } else {
            run = PSTI_STREAM_LINE - at < from->left ? PSTI_STREAM_LINE - at : from->left;
            memcpy(line + at, from->at, run);
        }
        from->at += run;
        from->left -= run;
    }
    psti_stream_line(to, line);
}

/* So many bytes from each place, which its row has. */
static inline __attribute__((always_inline)) void
psti_gather_lines(unsigned char *to, psti_place *from, uint32_t num, uint32_t part, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += PSTI_STREAM_LINE) {
#pragma GCC unroll 4
        for (uint32_t i = 0; i < num; i++)
            psti_stream_line(to + i * part + at, from[i].at + at);
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < num; i++) {
        from[i].at += bytes;
        from[i].left -= bytes;
    }
}

/* A block of the page, in parts as in psti_stream_block, each with its place in the rows; `skip`
 * rows and `rest` bytes are a part. Ends with the last part's place. As many lines as all rows have
 * left are copied without looking. */
static inline __attribute__((always_inline)) void
psti_gather_block(unsigned char *to, psti_rows *from, uint32_t num, uint64_t skip, uint64_t rest)
{
    const uint32_t part = PSTI_STREAM_BLOCK / num;
    const uint64_t row_bytes = from->row_bytes, gap = from->row_stride - row_bytes;
    psti_place place[4];
    for (uint32_t i = 0; i < num; i++) {
        place[i] = (psti_place){from->row + from->in_row, row_bytes - from->in_row};
        psti_skip_rows(from, skip, rest);
    }
    for (uint32_t line = 0; line < part;) {
        uint64_t least = part - line;
#pragma GCC unroll 4
        for (uint32_t i = 0; i < num; i++) {
            if (place[i].left == 0)
                place[i] = (psti_place){place[i].at + gap, row_bytes};
            least = place[i].left < least ? place[i].left : least;
        }
        if (least < PSTI_STREAM_LINE) {
            for (uint32_t i = 0; i < num; i++)
                psti_gather_line(to + i * part + line, &place[i], row_bytes, gap);
            line += PSTI_STREAM_LINE;
            continue;
        }
        least = least / PSTI_STREAM_LINE * PSTI_STREAM_LINE;
        psti_gather_lines(to + line, place, num, part, least);
        line += (uint32_t)least;
    }
}

/* Whole lines of the page are written past the cache. num: streams, 4 or 1. */
static inline void psti_gather_streams(unsigned char *to, psti_rows *from, uint64_t bytes,
                                       uint32_t num)
{
    uint64_t at = (0 - (uintptr_t)to) % PSTI_STREAM_LINE;
    at = bytes < at ? bytes : at;
    psti_gather_runs(to, from, at);
    const uint64_t skip = PSTI_STREAM_BLOCK / num / from->row_bytes;
    const uint64_t rest = PSTI_STREAM_BLOCK / num % from->row_bytes;
    for (; bytes - at >= PSTI_STREAM_BLOCK; at += PSTI_STREAM_BLOCK) {
        if (num == 4)
            psti_gather_block(to + at, from, 4, skip, rest);
        else
            psti_gather_block(to + at, from, 1, skip, rest);
    }
    psti_gather_runs(to + at, from, bytes - at);
    _mm_sfence();
}

static inline void psti_gather(unsigned char *to, psti_rows *from, uint64_t bytes, uint64_t total)
{
    if (total < PSTI_STREAM_MIN_BYTES || from->row_bytes < PSTI_STREAM_LINE)
        psti_gather_runs(to, from, bytes);
    else
        psti_gather_streams(to, from, bytes, psti_num_streams());
}

/* Small and mostly whole vectors: a call of memcpy would take longer than the bytes. */
static inline void psti_copy_edge(unsigned char *to, const unsigned char *from, uint64_t bytes)
{
    uint64_t at = 0;
    for (; bytes - at >= 16; at += 16)
        _mm_storeu_si128((__m128i *)(to + at), _mm_loadu_si128((const __m128i *)(from + at)));
    if (at < bytes)
        memcpy(to + at, from + at, bytes - at);
}

/* Bytes of one row: lines that belong to it alone are written past the cache, others are not. */
static inline void psti_stream_run(unsigned char *to, const unsigned char *from, uint64_t bytes)
{
    uint64_t at = (0 - (uintptr_t)to) % PSTI_STREAM_LINE;
    if (bytes < at + PSTI_STREAM_LINE) {
        psti_copy_edge(to, from, bytes);
        return;
    }
    psti_copy_edge(to, from, at);
    for (; bytes - at >= PSTI_STREAM_LINE; at += PSTI_STREAM_LINE)
        psti_stream_line(to + at, from + at);
    psti_copy_edge(to + at, from + at, bytes - at);
}

/* As psti_gather_block, of rows that are whole lines. */
static inline __attribute__((always_inline)) void psti_scatter_block(psti_rows *to,
                                                                     const unsigned char *from,
                                                                     uint32_t num, uint64_t skip,
                                                                     uint64_t rest)
{
    const uint32_t part = PSTI_STREAM_BLOCK / num;
    psti_rows place[4];
    for (uint32_t i = 0; i < num; i++) {
        place[i] = *to;
        psti_skip_rows(to, skip, rest);
    }
    for (uint32_t line = 0; line < part; line += PSTI_STREAM_LINE) {
#pragma GCC unroll 4
        for (uint32_t i = 0; i < num; i++) {
            if (place[i].in_row == place[i].row_bytes) {
                place[i].row += place[i].row_stride;
                place[i].in_row = 0;
            }
            psti_stream_line(place[i].row + place[i].in_row, from + i * part + line);
            place[i].in_row += PSTI_STREAM_LINE;
        }
    }
}

/* Whole lines of the rows are written past the cache. num: streams, 4 or 1. */
static inline void psti_scatter_streams(psti_rows *to, const unsigned char *from, uint64_t bytes,
                                        uint32_t num)
{
    const uint64_t edges = (uintptr_t)to->row | to->in_row | to->row_bytes | to->row_stride;
    const uint64_t skip = PSTI_STREAM_BLOCK / num / to->row_bytes;
    const uint64_t rest = PSTI_STREAM_BLOCK / num % to->row_bytes;
    for (; edges % PSTI_STREAM_LINE == 0 && bytes >= PSTI_STREAM_BLOCK;
         bytes -= PSTI_STREAM_BLOCK) {
        if (num == 4)
            psti_scatter_block(to, from, 4, skip, rest);
        else
            psti_scatter_block(to, from, 1, skip, rest);
        from += PSTI_STREAM_BLOCK;
    }
    uint64_t run;
    for (; bytes > 0; from += run, bytes -= run) {
        unsigned char *at = psti_next_run(to, bytes, &run);
        psti_stream_run(at, from, run);
    }
    _mm_sfence();
}

static inline void psti_scatter(psti_rows *to, const unsigned char *from, uint64_t bytes,
                                uint64_t total)
{
    if (total < PSTI_STREAM_MIN_BYTES || to->row_bytes < 2 * PSTI_STREAM_LINE)
        psti_scatter_runs(to, from, bytes);
    else
        psti_scatter_streams(to, from, bytes, psti_num_streams());
}

#else
static inline void psti_gather(unsigned char *to, psti_rows *from, uint64_t bytes, uint64_t total)
{
    (void)total;
    psti_gather_runs(to, from, bytes);
}

static inline void psti_scatter(psti_rows *to, const unsigned char *from, uint64_t bytes,
                                uint64_t total)
{
    (void)total;
    psti_scatter_runs(to, from, bytes);
}
#endif

/* `total`: bytes of the operation, as for psti_copy. */
static inline void psti_copy_in(unsigned char *page, psti_rows *rows, uint64_t bytes,
                                uint64_t total)
{
    if (bytes <= rows->row_bytes - rows->in_row)
        psti_copy(page, rows->row + rows->in_row, bytes, total);
    else
        psti_gather(page, rows, bytes, total);
}

static inline void psti_copy_out(psti_rows *rows, const unsigned char *page, uint64_t bytes,
                                 uint64_t total)
{
    if (bytes <= rows->row_bytes - rows->in_row)
        psti_copy(rows->row + rows->in_row, page, bytes, total);
    else
        psti_scatter(rows, page, bytes, total);
}

#endif
