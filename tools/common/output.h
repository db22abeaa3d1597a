/* Files that a command writes: the whole of one appears, or nothing. */
#ifndef PAGESTASH_OUTPUT_H
#define PAGESTASH_OUTPUT_H

#include <stdio.h>

typedef struct tool_output {
    const char *flag, *path;
    FILE *file;
    char *target, *temporary; /* NULL: written in place */
} tool_output;

/* Whether --FLAG PATH can be written, asked before any work; NULL and "-" (stdout) always. */
int output_check(const char *flag, const char *path);
int output_open(tool_output *output, const char *flag, const char *path);
/* With TOOL_OK the file appears under its name, else nothing is left. Returns the code, or TOOL_NO
 * with a message where writing failed. Stdout is left open, to be flushed by tool_flush. */
int output_close(tool_output *output, int code);

#endif
