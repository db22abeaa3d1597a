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

#include <pagestash/trace.h>

#define ROUTING_STEP_MAX ((UINT64_C(1) << 53) - 1) /* exact in every JSON reader */
#define ROUTING_LAYER_MAX ((UINT64_C(1) << 20) - 1)
#define ROUTING_COUNT_MAX ((UINT64_C(1) << 31) - 1)

typedef struct routing_reader routing_reader;

typedef struct routing_row {
    uint64_t line; /* counted from 1 */
    uint64_t step;
    uint32_t layer;
    uint32_t num_experts;
    const uint32_t *counts; /* num_experts values, valid until the next call */
} routing_row;

/* name appears in messages and must outlive the reader. NULL: out of memory. */
routing_reader *routing_open(const char *name, pst_trace_read_fn read, void *source);
void routing_close(routing_reader *reader); /* NULL is allowed */

/* The next row. Fails: AGAIN when the file is complete and right; INVALID, and pst_last_message says
 * file, line, field, value and what is allowed; NOMEM. After any of them the reader can only be closed. */
pst_status routing_next(routing_reader *reader, routing_row *row_out);

/* routing_file.c: every row of --routing PATH ("-": standard input), to a function that returns a tool_exit,
 * of which the first that is not TOOL_OK ends it. */
typedef int (*routing_take_fn)(void *user, const routing_row *row);
int routing_read(const char *path, routing_take_fn take, void *user);

#endif
