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

/* `doc` is what stands above the rows and, behind \v, below them. */
void help_begin(const char *program, const char *doc);
void help_put(const help_row *row);
void help_end(const char *doc);

#endif
