/* Building and writing JSON. */
#ifndef PAGESTASH_BENCH_JSON_H
#define PAGESTASH_BENCH_JSON_H

#include "bench/stash/bench.h"

#include <jansson.h>

/* Memory that runs out shows at the end: a NULL value drops the whole. */
void bench_json_set(json_t **object, const char *key, json_t *value);
void bench_json_append(json_t **array, json_t *value);
json_t *bench_json_whole(uint64_t value);
/* null for what is no number. */
json_t *bench_json_real(double value);
json_t *bench_json_text(const char *text); /* null for NULL and "" */

void bench_json_set_times(json_t **object, const bench_times *seconds, uint64_t bytes);

/* json_host.c: the sweep host; null if it was not run. */
json_t *bench_host_tier_value(const bench_report *report);

/* json_report.c: the whole report, or NULL. */
json_t *bench_report_object(const bench_report *report);

#endif
