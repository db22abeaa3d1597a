/* The trace that `pagestash trace` shows: from a file or derived, expanded if asked. */
#ifndef PAGESTASH_TRACE_SOURCE_H
#define PAGESTASH_TRACE_SOURCE_H

#include "tools/trace/trace_file.h"

/* What the flags below fill. */
typedef struct trace_source {
    trace_file file; /* or derive */
    bool derive;
    int part; /* a pst_trace_part */
    pst_trace_derivation derivation;
    pst_trace_expansion expansion; /* layers 0: none */
    int order;                     /* a pst_trace_order */
    uint32_t num_micro_batches;    /* of the expansion, else of the derived model */
} trace_source;

#define TRACE_SOURCE_INIT                                       \
    {                                                           \
        .derivation = PST_TRACE_DERIVATION_INIT, .expansion = { \
            .struct_size = sizeof(pst_trace_expansion)          \
        }                                                       \
    }

/* Beside those of the file; base: the offset of the trace_source in the options. */
flag_group trace_source_flags(size_t base);
/* What one flag means for another. Returns a tool_exit. */
int trace_source_check(const char *command, const trace_source *source);
/* The file as it was named, or "derived". */
const char *trace_source_name(const trace_source *source);
int trace_source_read(const trace_source *source, pst_trace **trace_out);

#endif
