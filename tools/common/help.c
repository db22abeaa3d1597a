/* The text of --help, laid out as GNU programs do: flags on the left, words in lines on the right. */
#include "tools/common/help.h"

#include <stdio.h>
#include <string.h>

enum { LAST = 79, TEXT = 29, GAP = 3 }; /* columns */

void help_words(help_line *self, const char *text)
{
    while (*text != '\0' && *text != '\v') {
        const int length = (int)strcspn(text, " \v");
        if (self->has_words && self->column + 1 + length > self->last) {
            printf("\n%*s", self->indent, "");
            self->column = self->indent;
            self->has_words = false;
        }
        self->column += printf("%s%.*s", self->has_words ? " " : "", length, text);
        self->has_words = true;
        text += length;
        text += *text == ' ';
    }
}

void help_begin(const char *program, const char *doc)
{
    const char *slash = strrchr(program, '/');
    printf("Usage: %s [OPTION...]\n", slash != NULL ? slash + 1 : program);
    help_words(&(help_line){.last = LAST}, doc);
    fputs("\n\n", stdout);
}

void help_put(const help_row *row)
{
    help_line self = {.indent = TEXT, .last = LAST};
    self.column = row->letter != '\0' ? printf("  -%c, ", row->letter) : printf("%6s", "");
    self.column += printf("--%s", row->name);
    if (row->argument != NULL)
        self.column += printf(row->is_optional ? "[=%s]" : "=%s", row->argument);
    if (*row->help == '\0' && row->initial == NULL) {
        putchar('\n');
        return;
    }
    if (self.column > TEXT + GAP)
        self.column = printf("\n%*s", TEXT, "") - 1;
    else
        self.column += printf("%*s", self.column + 2 <= TEXT ? TEXT - self.column : GAP, "");
    help_words(&self, row->help);
    if (row->initial != NULL) {
        char initial[128];
        snprintf(initial, sizeof(initial), "(%s)", row->initial);
        help_words(&self, initial);
    }
    putchar('\n');
}

void help_put_codes(help_line *line, const help_codes *codes)
{
    char text[512];
    const char *no = codes->no, *file = codes->file, *interrupted = codes->interrupted;
    snprintf(text, sizeof(text),
             "Exit codes: 0 %s; 1 %s%smemory is out; 2 usage; 3 %s%sa file that cannot be read or "
             "written%s%s%s.",
             codes->done != NULL ? codes->done : "done", no != NULL ? no : "",
             no != NULL ? ", or " : "", file != NULL ? file : "", file != NULL ? ", or " : "",
             codes->has_device ? "; 4 device absent or failed" : "",
             interrupted != NULL ? "; 130 " : "", interrupted != NULL ? interrupted : "");
    help_words(line, text);
    putchar('\n');
}

void help_end(const char *doc, const help_codes *codes)
{
    help_line line = {.last = LAST};
    const char *below = strchr(doc, '\v');
    if (below != NULL || codes != NULL)
        putchar('\n');
    if (below != NULL)
        help_words(&line, below + 1);
    if (codes != NULL)
        help_put_codes(&line, codes);
    else if (below != NULL)
        putchar('\n');
}
