/* The JSON of a command: built key by key, in this order, and written as a whole. A failed call
 * leaves no object, which json_write then says. */
#ifndef PAGESTASH_JSON_OUT_H
#define PAGESTASH_JSON_OUT_H

#include "tools/common/metrics.h"

#include <jansson.h>
#include <stdbool.h>

/* Begins with schema_version, command and version. */
json_t *json_begin(const char *command, int schema_version);
/* Text as JSON may hold it: whatever is no UTF-8 becomes '?'; null of NULL. */
json_t *json_text(const char *text);
/* null for what is no number. */
json_t *json_number(double value);
void json_put(json_t **object, const char *key, json_t *value); /* takes the value */
void json_put_text(json_t **object, const char *key, const char *text);
void json_put_whole(json_t **object, const char *key, uint64_t whole);
/* Several at once: JSON_PUT(&object, {"key", value}, {"key", value}). */
typedef struct json_whole {
    const char *key;
    uint64_t value;
} json_whole;

void json_put_wholes(json_t **object, const json_whole *items, size_t num_items);
#define JSON_PUT(object, ...)                                  \
    json_put_wholes(object, (const json_whole[]){__VA_ARGS__}, \
                    sizeof((const json_whole[]){__VA_ARGS__}) / sizeof(json_whole))
void json_add(json_t **array, json_t *value); /* takes the value */
void json_put_metrics(json_t **object, const metric_list *list);
/* Writes it to --json PATH ("-": stdout; NULL: nowhere), takes it. Returns a tool_exit. */
int json_write(json_t *object, const char *path);
/* The last member of a report that is as long as a trace: an array of objects, which are written one by one as
 * they are asked for. */
enum { JSON_ROW_FIELDS = 2 };
typedef struct json_rows {
    const char *key;
    uint64_t num;
    void (*get)(const void *user, uint64_t row, json_whole fields_out[JSON_ROW_FIELDS]);
    const void *user;
} json_rows;

/* json_write with the rows behind all else. */
int json_write_rows(json_t *object, const json_rows *rows, const char *path);
/* Whether it goes to stdout, where no text may be then. path may be NULL. */
bool json_is_stdout(const char *path);

#endif
