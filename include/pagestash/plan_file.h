/* Plan files: the requests of an iteration, in order, each with the address that a planner gave it.
 *
 *   op,id,size,stream,offset
 *   mark,0,,,
 *   malloc,1,1024,0,0
 *   use,1,,2,
 *   free,1,,,
 *
 * A use row says that the plan counted on the tensor being used on another stream as well (the
 * `use` marks of a trace). docs/formats.md describes the format; arena.h replays a plan.
 *
 * Pure: no device, clock or files; bytes pass through the caller's functions. Threads: a file under
 * construction by one at a time; a finished one by any number.
 */
#ifndef PAGESTASH_PLAN_FILE_H
#define PAGESTASH_PLAN_FILE_H

#include <pagestash/plan.h>
#include <pagestash/trace.h>

/* What a row says. */
typedef enum pst_plan_op {
    PST_PLAN_OP_MALLOC = 0, /* a tensor begins, at `offset` */
    PST_PLAN_OP_FREE,       /* a tensor ends */
    PST_PLAN_OP_MARK,       /* an iteration begins */
    PST_PLAN_OP_USE,        /* a live tensor is also used on `stream` */
} pst_plan_op;

/* One row. Frozen. */
typedef struct pst_plan_row {
    uint64_t line;   /* where it stands, from 1 */
    uint64_t id;     /* of the tensor or the iteration */
    uint64_t bytes;  /* malloc: 1..PST_TRACE_MAX_BYTES; else 0, or in a free the same */
    uint64_t offset; /* malloc: the address within the plan; else 0, or in a free the same */
    uint32_t stream; /* malloc, use; as in the file */
    uint8_t op;      /* pst_plan_op */
} pst_plan_row;

typedef struct pst_plan_file pst_plan_file; /* immutable; made by pst_plan_file_read or _make */

/* Takes `bytes` bytes of text. Returns 0, or -errno on failure. */
typedef int (*pst_plan_write_fn)(void *sink, const void *text, size_t bytes);

PST_BEGIN_DECLS

/* Reads all, a line at a time, each at most 1 MiB long. name, NULL for "plan", stands in messages
 * only. Checks the form of the rows, and that ids are used for one tensor each, which is freed and
 * used while it lives; not whether tensors overlap (pst_plan_check does).
 * Fails: INVALID with file, line, field, value and what is allowed as the last message, NOMEM. */
PST_API pst_status pst_plan_file_read(const char *name, pst_trace_read_fn read, void *source,
                                      pst_plan_file **file_out);
/* The same from rows in memory, which are copied; row.line is what messages name. */
PST_API pst_status pst_plan_file_make(const pst_plan_row *rows, uint64_t num_rows,
                                      pst_plan_file **file_out);
PST_API void pst_plan_file_destroy(pst_plan_file *file); /* NULL is allowed */

/* Valid until the file is destroyed. */
PST_API uint64_t pst_plan_file_num_rows(const pst_plan_file *file);
PST_API const pst_plan_row *pst_plan_file_rows(const pst_plan_file *file);
PST_API uint64_t pst_plan_file_num_tensors(const pst_plan_file *file);
/* The end of the highest tensor, rounded up to 512. */
PST_API uint64_t pst_plan_file_bytes(const pst_plan_file *file);

/* Writes the rows of a trace (pst_trace_rows) with their addresses: offsets has one for each
 * malloc, in order. What has PST_PLAN_FREE is not planned: its rows are left out, as are all marks
 * but those of iterations and uses. A file of these rows can be read back.
 * Fails: INVALID (an offset; what write answered, with the system's text). */
PST_API pst_status pst_plan_file_write(const pst_trace_request *requests, uint64_t num_requests,
                                       const uint64_t *offsets, pst_plan_write_fn write,
                                       void *sink);

PST_END_DECLS

#endif
