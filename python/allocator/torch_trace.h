/* Writes what is asked for as an allocation trace (trace.h). The caller has a lock. */
#ifndef PAGESTASH_TORCH_TRACE_H
#define PAGESTASH_TORCH_TRACE_H

#include <pagestash/device.h>

typedef struct torch_trace torch_trace;

/* NULL, with a message in the log. */
torch_trace *torch_trace_open(const char *path);

/* After one of these failed, which the log says, nothing more is written. */
void torch_trace_malloc(torch_trace *self, int device, const void *address, uint64_t bytes,
                        pst_stream stream);
void torch_trace_free(torch_trace *self, int device, const void *address, pst_stream stream);
void torch_trace_use(torch_trace *self, int device, const void *address, pst_stream stream);
void torch_trace_mark(torch_trace *self, int device, uint64_t iteration);
void torch_trace_flush(torch_trace *self);

#endif
