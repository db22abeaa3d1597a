/* Writes what is asked for as an allocation trace (trace.h). The caller has a lock. */
#ifndef PAGESTASH_TORCH_TRACE_H
#define PAGESTASH_TORCH_TRACE_H

#include <pagestash/device.h>
#include <pagestash/trace.h>

typedef struct torch_trace torch_trace;

/* NULL, with a message in the log. */
torch_trace *torch_trace_open(const char *path);

/* Writes what is left. NULL is allowed. */
void torch_trace_close(torch_trace *self);

/* Of the rows from here on. PST_TRACE_NONE: no layer, no micro-batch. */
void torch_trace_label(torch_trace *self, pst_trace_phase phase, uint32_t layer,
                       uint32_t micro_batch);

/* After one of these failed, which the log says, nothing more is written. */
void torch_trace_malloc(torch_trace *self, int device, const void *address, uint64_t bytes,
                        pst_stream stream);
void torch_trace_free(torch_trace *self, int device, const void *address, pst_stream stream);
void torch_trace_use(torch_trace *self, int device, const void *address, pst_stream stream);
void torch_trace_mark(torch_trace *self, int device, uint64_t iteration);
void torch_trace_flush(torch_trace *self);

#endif
