/* Files that a command writes: the whole of one appears, or nothing, also where a signal ends the
 * command. One is open at a time. */
#ifndef PAGESTASH_OUTPUT_H
#define PAGESTASH_OUTPUT_H

#include <pagestash/status.h>

#include <stdio.h>
#include <sys/types.h>

typedef struct tool_output {
    const char *flag, *path;
    FILE *file;
    char *target, *temporary; /* NULL: written in place */
    mode_t mode;
} tool_output;

/* Whether --FLAG PATH can be written, asked before any work; NULL and "-" (stdout) always. */
int output_check(const char *flag, const char *path);
int output_open(tool_output *output, const char *flag, const char *path);
/* With TOOL_OK the file appears under its name, with the rights of the file that it replaces, else
 * nothing is left. Returns the code, or TOOL_OUTPUT with a message where writing failed. Stdout is left
 * open, to be flushed by tool_flush. */
int output_close(tool_output *output, int code);

/* For the library's writers: as their function, with the file as what it writes to, and as the code for
 * what they return. A write that failed is left to output_close and tool_flush, which name the file. */
int output_write(void *file, const void *text, size_t bytes);
int output_status(FILE *file, pst_status status);

#endif
