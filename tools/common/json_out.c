/* JSON of reports, by jansson. */
#include "tools/common/json_out.h"

#include "tools/common/output.h"
#include "tools/common/tool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REAL_DIGITS = 9 };

json_t *json_text(const char *text)
{
    if (text == NULL)
        return json_null();
    json_t *value = json_string(text);
    char *copy = value == NULL ? strdup(text) : NULL;
    for (char *c = copy; c != NULL && *c != '\0'; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    if (copy != NULL)
        value = json_string(copy);
    free(copy);
    return value;
}

json_t *json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* A failed set leaves no object: the caller sees NULL at the end. */
void json_put(json_t **object, const char *key, json_t *value)
{
    if (json_object_set_new(*object, key, value) == 0)
        return;
    json_decref(*object);
    *object = NULL;
}

void json_add(json_t **array, json_t *value)
{
    if (json_array_append_new(*array, value) == 0)
        return;
    json_decref(*array);
    *array = NULL;
}

void json_put_text(json_t **object, const char *key, const char *text)
{
    json_put(object, key, json_text(text));
}

void json_put_whole(json_t **object, const char *key, uint64_t whole)
{
    json_put(object, key, json_integer((json_int_t)whole));
}

void json_put_wholes(json_t **object, const json_whole *items, size_t num_items)
{
    for (size_t i = 0; i < num_items; i++)
        json_put_whole(object, items[i].key, items[i].value);
}

json_t *json_begin(const char *command, int schema_version)
{
    char version[32];
    const int number = pst_version();
    snprintf(version, sizeof(version), "%d.%d.%d", number / 10000, number / 100 % 100,
             number % 100);
    json_t *object = json_object();
    json_put_whole(&object, "schema_version", (uint64_t)schema_version);
    json_put_text(&object, "command", command);
    json_put_text(&object, "version", version);
    return object;
}

static json_t *metric_value(const metric *item)
{
    switch (item->kind) {
    case METRIC_BYTES:
    case METRIC_COUNT:
        return json_integer((json_int_t)item->whole);
    case METRIC_TEXT:
        return json_text(item->text);
    case METRIC_BOOL:
        return json_boolean(item->whole);
    default:
        return json_number(item->real);
    }
}

void json_put_metrics(json_t **object, const metric_list *list)
{
    for (size_t i = 0; i < list->num; i++)
        json_put(object, list->items[i].key, metric_value(&list->items[i]));
}

typedef struct sink {
    char *text;
    size_t bytes, room;
    bool is_full; /* of which jansson takes no notice within a key */
} sink;

static int take(const char *part, size_t bytes, void *user)
{
    sink *self = user;
    if (!self->is_full && bytes >= self->room - self->bytes) {
        const size_t room = 2 * (self->room + bytes) + 1;
        char *text = realloc(self->text, room);
        self->is_full = text == NULL;
        self->text = text != NULL ? text : self->text;
        self->room = text != NULL ? room : self->room;
    }
    if (self->is_full)
        return -1;
    memcpy(self->text + self->bytes, part, bytes);
    self->bytes += bytes;
    self->text[self->bytes] = '\0';
    return 0;
}

/* The caller's; NULL where memory is short. */
static char *text_of(const json_t *object)
{
    sink self = {.text = NULL};
    const size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(REAL_DIGITS);
    if (object != NULL && json_dump_callback(object, take, &self, flags) == 0 && !self.is_full)
        return self.text;
    free(self.text);
    return NULL;
}

bool json_is_stdout(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

/* As jansson indents them. */
static void put_rows(FILE *file, const json_rows *rows)
{
    json_whole fields[JSON_ROW_FIELDS];
    fprintf(file, ",\n  \"%s\": [", rows->key);
    for (uint64_t row = 0; row < rows->num && !ferror(file); row++) {
        rows->get(rows->user, row, fields);
        fputs(row > 0 ? ",\n    {" : "\n    {", file);
        for (int f = 0; f < JSON_ROW_FIELDS; f++)
            fprintf(file, "%s\n      \"%s\": %" JSON_INTEGER_FORMAT, f > 0 ? "," : "",
                    fields[f].key, (json_int_t)fields[f].value);
        fputs("\n    }", file);
    }
    fputs(rows->num > 0 ? "\n  ]\n}" : "]\n}", file);
}

int json_write_rows(json_t *object, const json_rows *rows, const char *path)
{
    char *text = path != NULL ? text_of(object) : NULL;
    json_decref(object);
    if (path == NULL)
        return TOOL_OK;
    if (text == NULL)
        return tool_fail(TOOL_NO, "--json %s: out of memory", path);
    tool_output output;
    const int code = output_open(&output, "json", path);
    if (code == TOOL_OK) {
        const size_t end = rows != NULL ? strlen("\n}") : 0;
        fwrite(text, 1, strlen(text) - end, output.file);
        if (rows != NULL)
            put_rows(output.file, rows);
        fputc('\n', output.file);
    }
    free(text);
    return code == TOOL_OK ? output_close(&output, TOOL_OK) : code;
}

int json_write(json_t *object, const char *path)
{
    return json_write_rows(object, NULL, path);
}
