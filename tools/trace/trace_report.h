/* What `pagestash trace` writes. */
#ifndef PAGESTASH_TRACE_REPORT_H
#define PAGESTASH_TRACE_REPORT_H

#include "tools/trace/trace_file.h"

/* Our CSV, as `--csv` reads it. */
int trace_write_csv(const pst_trace *trace, const char *path);
/* The summary, as text or as JSON, on stdout. */
int trace_print_text(const trace_source *source, const pst_trace *trace,
                     const pst_trace_summary *summary);
int trace_print_json(const trace_source *source, const pst_trace *trace,
                     const pst_trace_summary *summary);

#endif
