/* The page around a picture, made of view.html and view.js. */
#include "tools/common/picture.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "style.h" /* made by CMake of style.css, which the Python package has */
#include "tools/common/json_out.h"
#include "tools/common/tool.h"
#include "view.h" /* made by CMake of view.html and view.js */

/* JavaScript's numbers are exact up to here. */
#define MAX_EXACT (UINT64_C(1) << 53)

void picture_put_text(FILE *file, const char *text)
{
    json_t *value = json_text(text);
    char *quoted = json_dumps(value, JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
    for (const char *c = quoted != NULL ? quoted : "\"\""; *c != '\0'; c++)
        fprintf(file, strchr("<>&'", *c) != NULL ? "\\u%04x" : "%c", *c);
    free(quoted);
    json_decref(value);
}

void picture_put_number(FILE *file, uint64_t value)
{
    fprintf(file, value <= MAX_EXACT ? "%" PRIu64 : "\"%" PRIu64 "\"", value);
}

void picture_put_field(FILE *file, const char *name, uint64_t value)
{
    fprintf(file, ",\"%s\":", name);
    picture_put_number(file, value);
}

/* The page up to a marker; returns what stands behind it. */
static const char *put_up_to(FILE *file, const char *page, const char *marker)
{
    const char *at = strstr(page, marker);
    fwrite(page, 1, (size_t)(at - page), file);
    return at + strlen(marker);
}

int picture_write(FILE *file, const picture_page *page, const void *picture)
{
    const char *rest = put_up_to(file, view_html, "@STYLE@");
    fputs(style_css, file);
    rest = put_up_to(file, rest, "@BAR@");
    const char *help = put_up_to(file, page->html, "@HELP@");
    rest = put_up_to(file, rest, "@HELP@");
    fputs(help, file);
    rest = put_up_to(file, rest, "@DATA@");
    TOOL_TRY(page->put_data(file, picture));
    rest = put_up_to(file, rest, "@SCRIPT@");
    fputs(view_js, file);
    fputs(page->script, file);
    fputs(rest, file);
    return TOOL_OK;
}
