/* Room tools/common: what all commands share: options, messages, files, JSON, numbers with units.
 * Uses the public headers, argp, jansson, and host/base/lines.h for the routing reader. Used by every
 * command and every benchmark. This file: exit codes, the table's entry, one-line messages. */
#ifndef PAGESTASH_TOOL_H
#define PAGESTASH_TOOL_H

#include <pagestash/pagestash.h>

/* Every function of the tool that can fail returns one of these, its message already printed. */
enum tool_exit {
    TOOL_OK = 0,
    TOOL_NO = 1,            /* the answer is no: does not fit, bytes differ, a check failed */
    TOOL_USAGE = 2,         /* unknown flag or device, indivisible sizes, out of range */
    TOOL_INPUT = 3,         /* bad input file */
    TOOL_OUTPUT = 3,        /* a file that cannot be written */
    TOOL_DEVICE = 4,        /* the asked device is absent or failed */
    TOOL_INTERRUPTED = 130, /* by Ctrl-C, as shells say it: the answer is the best so far */
};

typedef struct tool_command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv); /* argv[0] is "pagestash NAME" */
} tool_command;

int cmd_replay(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_simulate(int argc, char **argv);
int cmd_estimate(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_env(int argc, char **argv);

/* The program's, before each message: "pagestash" unless main says otherwise. */
extern const char *tool_name;

/* Prints "pagestash: TEXT" on stderr as one line and returns code. */
int tool_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether that was called with another code than TOOL_OK. */
bool tool_has_failed(void);

/* clean.c: paths and words of a command line or the environment may hold anything; a message is one line all the same,
 * and no terminal gets a control character. */
void tool_clean(char *text);
/* Such a text on stdout. */
void tool_put(const char *text);

/* The library's last message, without the place in its source at the end; until the next call. */
const char *tool_last_message(void);

/* The exit code for a status of the library; prints the library's message unless it is PST_OK. */
int tool_status(pst_status status);

/* The same of a call that reads a file of the caller's, where INVALID is the file's fault. */
int tool_file_status(pst_status status);

/* A read function over a file descriptor (const int *): how many bytes, 0 at the end, -errno. */
ptrdiff_t tool_read(void *descriptor, void *buffer, size_t bytes);

/* Shows "WHAT DONE+1 of ALL" on stderr if that is a terminal; takes it away when DONE is ALL. */
void tool_progress(const char *what, unsigned long long done, unsigned long long all);

/* Shows "WHAT: second N" on stderr if that is a terminal, from the third second on, until tool_clock_end or tool_fail.
 * For what does not say how far it is; not beside tool_progress. Seconds count from the first of a command's clocks,
 * so that several short ones show, too. */
void tool_clock_begin(const char *what);
void tool_clock_end(void);

/* Flushes stdout. A reader that went away is no error; a full disk is. */
int tool_flush(int code);

/* Returns from the calling function when a step failed: a tool_exit, or a pst_status. */
#define TOOL_TRY(call)                     \
    do {                                   \
        const int tool_try_code_ = (call); \
        if (tool_try_code_ != TOOL_OK)     \
            return tool_try_code_;         \
    } while (0)
#define TOOL_PST(call) TOOL_TRY(tool_status(call))

#endif
