/* What `pagestash trace` writes. */
#ifndef PAGESTASH_TRACE_REPORT_H
#define PAGESTASH_TRACE_REPORT_H

#include "tools/trace/trace_source.h"

/* Our CSV, as --trace reads it. */
int trace_write_csv(const pst_trace *trace, const char *path);
/* The summary: JSON where json says, and text on stdout if that is free. */
int trace_report(const trace_source *source, const pst_trace *trace,
                 const pst_trace_summary *summary, const char *json);

#endif
