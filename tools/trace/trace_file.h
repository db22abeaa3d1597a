/* Room tools/trace: the command `pagestash trace`. Uses tools/common. Used by tools/plan. This file:
 * allocation traces from files, for the commands that take one. */
#ifndef PAGESTASH_TRACE_FILE_H
#define PAGESTASH_TRACE_FILE_H

#include "tools/common/flags.h"
#include "tools/common/tool.h"

/* What the flags below fill. */
typedef struct trace_file {
    const char *paths[PST_TRACE_NUM_FORMATS]; /* one of them */
    uint32_t rank, device, iteration;
    bool keep_unfreed;
} trace_file;

/* " --trace --memo ...", for messages. */
#define TRACE_FILE_FLAG(name, word, align, text) " --" #word
#define TRACE_FILE_FLAGS PST_TRACE_FORMAT_LIST(TRACE_FILE_FLAG)

/* base: the offset of the trace_file in the options. */
flag_group trace_file_flags(size_t base);
int trace_file_count(const trace_file *self);
/* The format of the file that is named, or PST_TRACE_NUM_FORMATS. */
pst_trace_format trace_file_format(const trace_file *self);
/* Reads the whole of it, "-" for stdin. What is wrong with the file, or not in it, is TOOL_INPUT.
 */
int trace_file_read(const trace_file *self, pst_trace **trace_out);
/* Reads the file as a stream and checks the form of every row; counts them. */
int trace_file_scan(const trace_file *self, uint64_t *num_rows_out);

#endif
