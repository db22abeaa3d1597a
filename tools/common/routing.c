#include "tools/common/routing.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_KEYS = 2, SHOWN_BYTES = 40, FIELD_NAME_BYTES = 32 };

struct routing_reader {
    const char *name;
    routing_read_fn read;
    void *source;
    bool at_end;          /* the source has nothing more */
    uint64_t line;        /* number of the line in work */
    size_t begin, end;    /* unread bytes of buffer */
    uint32_t num_experts; /* 0 until the header was read */
    uint32_t *counts;
    uint64_t num_rows;
    uint64_t step, layer; /* of the last row */
    uint64_t num_layers;  /* of a step; 0 while the first step is read */
    char message[512];
    char buffer[ROUTING_LINE_BYTES + 1]; /* a longest line and its newline */
};

typedef struct field {
    const char *text;
    size_t length;
} field;

routing_reader *routing_open(const char *name, routing_read_fn read, void *source)
{
    routing_reader *reader = malloc(sizeof(*reader));
    if (reader == NULL)
        return NULL;
    memset(reader, 0, offsetof(routing_reader, buffer));
    reader->name = name;
    reader->read = read;
    reader->source = source;
    return reader;
}

void routing_close(routing_reader *reader)
{
    if (reader != NULL)
        free(reader->counts);
    free(reader);
}

const char *routing_message(const routing_reader *reader)
{
    return reader->message;
}

__attribute__((format(printf, 2, 3))) static routing_result bad(routing_reader *reader,
                                                                const char *format, ...)
{
    const int used = snprintf(reader->message, sizeof(reader->message),
                              "%.200s:%llu: ", reader->name, (unsigned long long)reader->line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->message + used, sizeof(reader->message) - (size_t)used, format, arguments);
    va_end(arguments);
    return ROUTING_BAD;
}

/* The field as it may be printed: clipped, and everything odd as '?'. */
static const char *shown(field value, char out[SHOWN_BYTES + 4])
{
    const size_t length = value.length < SHOWN_BYTES ? value.length : SHOWN_BYTES;
    for (size_t i = 0; i < length; i++) {
        const char c = value.text[i];
        out[i] = c >= ' ' && c <= '~' ? c : '?';
    }
    strcpy(out + length, value.length > length ? "..." : "");
    return out;
}

static const char *field_name(uint32_t index, char out[FIELD_NAME_BYTES])
{
    if (index < NUM_KEYS)
        strcpy(out, index == 0 ? "step" : "layer");
    else
        snprintf(out, FIELD_NAME_BYTES, "e%lu", (unsigned long)(index - NUM_KEYS));
    return out;
}

/* Makes room at the end of the buffer and reads once. */
static routing_result refill(routing_reader *reader)
{
    if (reader->begin > 0) {
        memmove(reader->buffer, reader->buffer + reader->begin, reader->end - reader->begin);
        reader->end -= reader->begin;
        reader->begin = 0;
    }
    const ptrdiff_t got = reader->read(reader->source, reader->buffer + reader->end,
                                       sizeof(reader->buffer) - reader->end);
    if (got < 0)
        return bad(reader, "cannot be read: %s", strerror((int)-got));
    reader->at_end = got == 0;
    reader->end += (size_t)got;
    return ROUTING_ROW;
}

static field without_line_end(routing_reader *reader, size_t length)
{
    field line = {reader->buffer + reader->begin, length};
    if (line.length > 0 && line.text[line.length - 1] == '\r')
        line.length--;
    if (reader->line == 1 && line.length >= 3 && memcmp(line.text, "\xef\xbb\xbf", 3) == 0) {
        line.text += 3;
        line.length -= 3;
    }
    return line;
}

/* Gives the next line without its end, or END when there is none. */
static routing_result next_line(routing_reader *reader, field *line_out)
{
    reader->line++;
    size_t scanned = 0;
    for (;;) {
        const size_t held = reader->end - reader->begin;
        const char *text = reader->buffer + reader->begin;
        const char *newline = memchr(text + scanned, '\n', held - scanned);
        const size_t length = newline != NULL ? (size_t)(newline - text) : held;
        if (length > ROUTING_LINE_BYTES)
            return bad(reader, "line of more than %zu bytes: allowed are at most %zu",
                       ROUTING_LINE_BYTES, ROUTING_LINE_BYTES);
        if (newline != NULL || (reader->at_end && held > 0)) {
            *line_out = without_line_end(reader, length);
            reader->begin += length + (newline != NULL ? 1 : 0);
            return ROUTING_ROW;
        }
        if (reader->at_end)
            return ROUTING_END;
        scanned = held;
        const routing_result result = refill(reader);
        if (result != ROUTING_ROW)
            return result;
    }
}

/* Cuts the next field off the line; false when the line has no more. */
static bool cut(field *line, field *out)
{
    if (line->text == NULL)
        return false;
    const char *comma = memchr(line->text, ',', line->length);
    out->text = line->text;
    out->length = comma != NULL ? (size_t)(comma - line->text) : line->length;
    line->length -= out->length + (comma != NULL ? 1 : 0);
    line->text = comma != NULL ? comma + 1 : NULL;
    return true;
}

static routing_result read_header(routing_reader *reader)
{
    field line = {NULL, 0};
    field value = {NULL, 0};
    const routing_result result = next_line(reader, &line);
    if (result == ROUTING_END)
        return bad(reader, "empty file: allowed is a header step,layer,e0,... and rows");
    if (result != ROUTING_ROW)
        return result;
    uint32_t num_fields = 0;
    for (; cut(&line, &value); num_fields++) {
        char name[FIELD_NAME_BYTES];
        char text[SHOWN_BYTES + 4];
        field_name(num_fields, name);
        if (value.length != strlen(name) || memcmp(value.text, name, value.length) != 0)
            return bad(reader,
                       "header field %lu: \"%s\": allowed is %s (the header is step,layer,e0,e1,"
                       "...)",
                       (unsigned long)num_fields + 1, shown(value, text), name);
    }
    if (num_fields <= NUM_KEYS)
        return bad(reader, "header field %lu: missing: the header is step,layer,e0,e1,...",
                   (unsigned long)num_fields + 1);
    reader->num_experts = num_fields - NUM_KEYS;
    reader->counts = calloc(reader->num_experts, sizeof(*reader->counts));
    if (reader->counts == NULL)
        return bad(reader, "out of memory for %lu experts", (unsigned long)reader->num_experts);
    return ROUTING_ROW;
}

static routing_result read_number(routing_reader *reader, uint32_t index, field value, uint64_t max,
                                  uint64_t *out)
{
    uint64_t number = 0;
    bool right = value.length > 0;
    for (size_t i = 0; i < value.length && right; i++) {
        const char c = value.text[i];
        right = c >= '0' && c <= '9';
        if (right) {
            number = number * 10 + (uint64_t)(c - '0');
            right = number <= max;
        }
    }
    if (!right) {
        char name[FIELD_NAME_BYTES];
        char text[SHOWN_BYTES + 4];
        return bad(reader, "field %s: \"%s\": allowed is an integer 0..%llu",
                   field_name(index, name), shown(value, text), (unsigned long long)max);
    }
    *out = number;
    return ROUTING_ROW;
}

/* Steps rise by one, and each has layers 0 to num_layers - 1 in order. */
static routing_result check_order(routing_reader *reader, uint64_t step, uint64_t layer)
{
    if (reader->num_rows == 0 && layer == 0)
        return ROUTING_ROW;
    if (reader->num_rows == 0)
        return bad(reader, "field layer: %llu: allowed is 0 in the first row",
                   (unsigned long long)layer);

    const bool is_known = reader->num_layers != 0;
    const uint64_t next_layer = reader->layer + 1;
    const bool may_go_on = !is_known || next_layer < reader->num_layers;
    const bool may_wrap = !is_known || next_layer == reader->num_layers;
    if (may_go_on && step == reader->step && layer == next_layer)
        return ROUTING_ROW;
    if (may_wrap && step == reader->step + 1 && layer == 0) {
        reader->num_layers = next_layer;
        return ROUTING_ROW;
    }

    char go_on[80] = "";
    char wrap[80] = "";
    if (may_go_on)
        snprintf(go_on, sizeof(go_on), "step %llu layer %llu", (unsigned long long)reader->step,
                 (unsigned long long)next_layer);
    if (may_wrap)
        snprintf(wrap, sizeof(wrap), "step %llu layer 0", (unsigned long long)reader->step + 1);
    return bad(reader, "field %s: step %llu layer %llu: allowed is %s%s%s next",
               step == reader->step ? "layer" : "step", (unsigned long long)step,
               (unsigned long long)layer, go_on, may_go_on && may_wrap ? " or " : "", wrap);
}

static routing_result end_of_file(routing_reader *reader)
{
    if (reader->num_rows == 0)
        return bad(reader, "no rows: allowed is at least one");
    if (reader->num_layers != 0 && reader->layer + 1 != reader->num_layers)
        return bad(reader, "field layer: the last step ends with layer %llu: allowed is %llu",
                   (unsigned long long)reader->layer, (unsigned long long)reader->num_layers - 1);
    return ROUTING_END;
}

static routing_result read_fields(routing_reader *reader, field line, uint64_t keys[NUM_KEYS])
{
    const uint32_t num_fields = reader->num_experts + NUM_KEYS;
    field value = {NULL, 0};
    for (uint32_t i = 0; i < num_fields; i++) {
        char name[FIELD_NAME_BYTES];
        if (!cut(&line, &value))
            return bad(reader, "field %s: missing: allowed are exactly %lu fields",
                       field_name(i, name), (unsigned long)num_fields);
        const uint64_t max = i == 0   ? ROUTING_STEP_MAX
                             : i == 1 ? ROUTING_LAYER_MAX
                                      : ROUTING_COUNT_MAX;
        uint64_t number = 0;
        const routing_result result = read_number(reader, i, value, max, &number);
        if (result != ROUTING_ROW)
            return result;
        if (i < NUM_KEYS)
            keys[i] = number;
        else
            reader->counts[i - NUM_KEYS] = (uint32_t)number;
    }
    if (cut(&line, &value)) {
        char text[SHOWN_BYTES + 4];
        return bad(reader, "field %lu: \"%s\": allowed are exactly %lu fields",
                   (unsigned long)num_fields + 1, shown(value, text), (unsigned long)num_fields);
    }
    return ROUTING_ROW;
}

routing_result routing_next(routing_reader *reader, routing_row *row_out)
{
    field line = {NULL, 0};
    uint64_t keys[NUM_KEYS] = {0};
    routing_result result = ROUTING_ROW;
    if (reader->num_experts == 0)
        result = read_header(reader);
    if (result == ROUTING_ROW)
        result = next_line(reader, &line);
    if (result == ROUTING_END)
        return end_of_file(reader);
    if (result == ROUTING_ROW && line.length == 0)
        return bad(reader, "field step: empty line: allowed are exactly %lu fields",
                   (unsigned long)reader->num_experts + NUM_KEYS);
    if (result == ROUTING_ROW)
        result = read_fields(reader, line, keys);
    if (result == ROUTING_ROW)
        result = check_order(reader, keys[0], keys[1]);
    if (result != ROUTING_ROW)
        return result;
    reader->num_rows++;
    reader->step = keys[0];
    reader->layer = keys[1];
    row_out->line = reader->line;
    row_out->step = reader->step;
    row_out->layer = (uint32_t)reader->layer;
    row_out->num_experts = reader->num_experts;
    row_out->counts = reader->counts;
    return ROUTING_ROW;
}
