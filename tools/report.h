/* The figures of a replay: one list becomes text and JSON. */
#ifndef PAGESTASH_REPORT_H
#define PAGESTASH_REPORT_H

#include "replay.h"

enum { REPORT_SCHEMA_VERSION = 1, REPORT_MAX_METRICS = 64 };

typedef enum metric_kind {
    METRIC_BYTES,
    METRIC_COUNT,
    METRIC_REAL,
    METRIC_RARE, /* a real number of what need not happen at all */
} metric_kind;

typedef struct metric {
    const char *key;
    metric_kind kind;
    uint64_t whole;
    double real; /* NAN: could not be measured; of a METRIC_RARE: did not happen */
} metric;

typedef struct metric_list {
    metric items[REPORT_MAX_METRICS];
    size_t num;
} metric_list;

/* Writes the object to options->json: the whole of it, or nothing. */
int report_json(const replay_options *options, const replay_trace *trace,
                const replay_result *result, const metric_list *list);

#endif
