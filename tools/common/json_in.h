/* JSON files of others, which may be anything. */
#ifndef PAGESTASH_JSON_IN_H
#define PAGESTASH_JSON_IN_H

#include <jansson.h>
#include <stddef.h>

/* An object, no key twice, of at most max_bytes; the caller's. TOOL_INPUT, NULL in *root_out. */
int json_read(const char *path, size_t max_bytes, json_t **root_out);

#endif
