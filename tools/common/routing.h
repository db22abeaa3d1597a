/* Reader of routing traces, one row per (step, layer): the rows that each expert received.
 *
 *   step,layer,e0,e1,e2,e3
 *   0,0,12,7,0,3
 *   0,1,5,5,6,6
 *   1,0,11,8,1,2
 *   1,1,4,6,5,7
 *
 * Every step lists layers 0, 1, ... in this order, all steps the same; step numbers rise by one and
 * may start anywhere. CRLF, a byte order mark and a missing final newline are accepted; nothing
 * else is: no spaces, signs, quotes or empty lines.
 *
 * Streaming: holds one line, at most 1 MiB, whatever the length of the file. No I/O of its own.
 */
#ifndef PAGESTASH_ROUTING_H
#define PAGESTASH_ROUTING_H

#include <stddef.h>
#include <stdint.h>

#define ROUTING_LINE_BYTES ((size_t)1 << 20)       /* longest line, without its newline */
#define ROUTING_STEP_MAX ((UINT64_C(1) << 53) - 1) /* exact in every JSON reader */
#define ROUTING_LAYER_MAX ((UINT64_C(1) << 20) - 1)
#define ROUTING_COUNT_MAX ((UINT64_C(1) << 31) - 1)

typedef struct routing_reader routing_reader;

/* Reads up to `bytes` bytes into buffer. Returns how many, 0 at the end, -errno on failure. */
typedef ptrdiff_t (*routing_read_fn)(void *source, void *buffer, size_t bytes);

typedef enum routing_result {
    ROUTING_ROW, /* *row_out is filled */
    ROUTING_END, /* the file is complete and right */
    ROUTING_BAD, /* routing_message says what is wrong */
} routing_result;

typedef struct routing_row {
    uint64_t line; /* counted from 1 */
    uint64_t step;
    uint32_t layer;
    uint32_t num_experts;
    const uint32_t *counts; /* num_experts values, valid until the next call */
} routing_row;

/* name appears in messages and must outlive the reader. NULL: out of memory. */
routing_reader *routing_open(const char *name, routing_read_fn read, void *source);
void routing_close(routing_reader *reader); /* NULL is allowed */

/* The next row. After END or BAD the reader can only be closed. */
routing_result routing_next(routing_reader *reader, routing_row *row_out);

/* One line: file, line, field, value, what is allowed. "" unless BAD was returned. */
const char *routing_message(const routing_reader *reader);

#endif
