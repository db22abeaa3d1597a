/* The text of --help. It takes no memory, so that it comes whole or fails when it is written. */
#ifndef PAGESTASH_HELP_H
#define PAGESTASH_HELP_H

#include <stdbool.h>

typedef struct help_row {
    char letter; /* '\0': none */
    const char *name;
    const char *argument; /* NULL: takes none */
    bool is_optional;     /* the argument */
    const char *help;
    const char *initial; /* NULL: no default to show */
} help_row;

/* Prints the words of text up to its end or \v, on as many lines as they take. */
typedef struct help_line {
    int column, indent,
        last; /* where it is, where a next line begins, the last that may hold a letter */
    bool has_words;
} help_line;

void help_words(help_line *line, const char *text);

/* What the exit codes of a command mean; the man pages are made of what help says of them. NULL: nothing that is
 * not so for all. */
typedef struct help_codes {
    const char *done;        /* 0 */
    const char *no;          /* 1, beside memory that is out */
    const char *file;        /* 3, beside a file that cannot be read or written */
    bool has_device;         /* 4 */
    const char *interrupted; /* 130; NULL: a signal ends it */
} help_codes;

void help_put_codes(help_line *line, const help_codes *codes);

/* `doc` is what stands above the rows and, behind \v, below them; codes come last, if any. */
void help_begin(const char *program, const char *doc);
void help_put(const help_row *row);
void help_end(const char *doc, const help_codes *codes);

#endif
