/* A picture of a stage's memory over its schedule. */
#ifndef PAGESTASH_ESTIMATE_HTML_H
#define PAGESTASH_ESTIMATE_HTML_H

#include <stdio.h>

#include <pagestash/estimate.h>

#define ESTIMATE_HTML_MAX_EVENTS (UINT64_C(1) << 20)

typedef struct estimate_html {
    const char *title; /* any bytes; what is no UTF-8 shows as '?' */
    const pst_estimate_config *config;
    uint64_t stage;
    uint64_t memory_bytes, overhead_bytes; /* of a GPU; context, NCCL */
} estimate_html;

/* One HTML file that loads nothing else. Returns a tool_exit, its message printed. */
int estimate_html_write(FILE *file, const estimate_html *picture);

#endif
