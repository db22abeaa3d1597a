/* Figures of a command: one list becomes text and JSON. */
#ifndef PAGESTASH_METRICS_H
#define PAGESTASH_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { METRICS_MAX = 64 };

typedef enum metric_kind {
    METRIC_BYTES,
    METRIC_COUNT,
    METRIC_REAL,
    METRIC_RARE, /* a real number of what need not happen at all */
    METRIC_TEXT, /* NULL: none */
    METRIC_BOOL,
} metric_kind;

typedef struct metric {
    const char *key;
    metric_kind kind;
    uint64_t whole;
    const char *text;
    double real;    /* NAN: could not be measured; of a METRIC_RARE: did not happen */
    bool is_hidden; /* does not apply: in JSON alone */
} metric;

typedef struct metric_list {
    metric items[METRICS_MAX];
    size_t num;
} metric_list;

void metrics_add_bytes(metric_list *list, const char *key, uint64_t bytes);
void metrics_add_count(metric_list *list, const char *key, uint64_t count);
void metrics_add_real(metric_list *list, const char *key, double real);
void metrics_add_rare(metric_list *list, const char *key, double real);
void metrics_add_text(metric_list *list, const char *key, const char *text);
void metrics_add_bool(metric_list *list, const char *key, bool value);

/* What was added from `begin` on does not apply: text leaves it out, as it does a METRIC_RARE that did not happen. */
void metrics_hide(metric_list *list, size_t begin);

/* "18.75 MiB" */
const char *metrics_human(uint64_t bytes, char out[32]);
/* "key in words: value" */
void metrics_print(const metric *item);
void metrics_print_all(const metric_list *list);

#endif
