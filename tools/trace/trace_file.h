/* Allocation traces for the commands that take one: from a file or derived, expanded if asked. */
#ifndef PAGESTASH_TRACE_FILE_H
#define PAGESTASH_TRACE_FILE_H

#include "tools/common/flags.h"
#include "tools/common/tool.h"

/* What the flags below fill. */
typedef struct trace_source {
    const char *paths[PST_TRACE_NUM_FORMATS]; /* one of them, or derive */
    uint32_t rank, device, iteration;
    bool keep_unfreed;
    bool derive;
    int part; /* a pst_trace_part */
    pst_trace_derivation derivation;
    pst_trace_expansion expansion; /* layers 0: none */
    int order;                     /* a pst_trace_order */
    uint32_t num_micro_batches;    /* of the expansion, else of the derived model */
} trace_source;

#define TRACE_SOURCE_INIT                                                           \
    {                                                                               \
        .rank = PST_TRACE_NONE, .iteration = PST_TRACE_NONE,                        \
        .derivation = PST_TRACE_DERIVATION_INIT,                                    \
        .expansion = {.struct_size = sizeof(pst_trace_expansion), .num_stages = 1}, \
        .num_micro_batches = 1                                                      \
    }

/* The flags that fill it; base: its offset in the options. */
flag_group trace_source_flags(size_t base);
/* What one flag means for another. Returns a tool_exit. */
int trace_source_check(const char *command, const trace_source *source);
/* The file as it was named, or "derived". */
const char *trace_source_name(const trace_source *source);
int trace_source_load(const trace_source *source, pst_trace **trace_out);
/* Reads the file as a stream and checks the form of every row; counts them. */
int trace_source_scan(const trace_source *source, uint64_t *num_rows_out);

/* Reads the whole of a file, "-" for stdin. Of config, format and name need not be set. What is
 * wrong with the file, or not in it, is TOOL_INPUT. */
int trace_file_load(pst_trace_format format, const char *path, const pst_trace_config *config,
                    pst_trace **trace_out);

#endif
