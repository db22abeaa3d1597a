/* What all pictures need: the page around them, and numbers and text as JSON for their scripts. */
#ifndef PAGESTASH_TOOLS_PICTURE_H
#define PAGESTASH_TOOLS_PICTURE_H

#include <stdint.h>
#include <stdio.h>

/* A JSON string in ASCII that cannot end a <script> either; whatever is no UTF-8 becomes '?'. */
void picture_put_text(FILE *file, const char *text);

/* As a string where JavaScript's numbers are not exact. */
void picture_put_number(FILE *file, uint64_t value);
/* ,"name":value */
void picture_put_field(FILE *file, const char *name, uint64_t value);

typedef struct picture_page {
    const char *html;                                 /* the bar, @HELP@, what stands at the foot */
    const char *script;                               /* behind view.js */
    int (*put_data)(FILE *file, const void *picture); /* one JSON object; a tool_exit */
} picture_page;

/* One HTML file that loads nothing else. A tool_exit, its message printed; what could not be written is
 * left to output_close and tool_flush. */
int picture_write(FILE *file, const picture_page *page, const void *picture);

#endif
