/* Room tools/top: the command that watches pools of running jobs. Uses tools/common, and of the library the
 * form of the files (host/stash/top_file.h). This file: what was read of a folder. */
#ifndef PAGESTASH_TOOL_TOP_H
#define PAGESTASH_TOOL_TOP_H

#include "host/stash/top_file.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum top_state {
    TOP_RUNS,
    TOP_NOT_POLLED, /* the pool is there, pst_pool_poll was not called yet */
    TOP_DEAD,       /* its process has ended without destroying it */
    TOP_ELSEWHERE,  /* of another machine, boot or PID namespace: its process cannot be seen */
    TOP_UNREADABLE, /* no such file as we know: another version, cut off, not ours to read */
} top_state;

typedef struct top_pool {
    char name[256]; /* of the file */
    top_state state;
    bool was_polled; /* the first poll is whole */
    bool has_age;    /* by this boot's clock */
    uint64_t age_ns; /* since the poll */
    psti_top_file file;
} top_pool;

typedef struct top_list {
    top_pool *pools; /* by process and number of the pool */
    size_t num;
} top_list;

/* Reads all files of the folder. Returns a tool_exit; what cannot be read is a row. */
int top_read(const char *folder, top_list *list_out);
void top_free(top_list *list);
/* Removes the files of dead processes. Returns a tool_exit. */
int top_prune(const char *folder, const top_list *list);

const char *top_state_name(top_state state); /* "runs", ... */

/* A table of at most 100 columns. */
void top_print(const char *folder, const top_list *list);
int top_write_json(const char *folder, const top_list *list, const char *path);

/* Shows the table again every `seconds` until Ctrl-C or, where standard input is a terminal, q or its end. */
int top_watch(const char *folder, double seconds);

#endif
