/* Plan files from text: lines, fields, and what each may say on its own. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host/plan/plan_file.h"

#define LINE_BYTES ((size_t)1 << 20) /* longest line, without its newline */
#define HEADER "op,id,size,stream,offset"

enum { SHOWN_BYTES = 40 };

typedef struct reader {
    const char *name;
    pst_trace_read_fn read;
    void *source;
    uint64_t line;     /* number of the line in work */
    bool at_end;       /* the source has nothing more */
    size_t begin, end; /* unread bytes of buffer */
    char buffer[LINE_BYTES + 1];
} reader;

typedef struct field {
    const char *text;
    size_t length;
} field;

__attribute__((format(printf, 2, 3))) static pst_status bad(const reader *self, const char *format,
                                                            ...)
{
    char text[300];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    PSTI_FAIL(PST_E_INVALID, "%.200s:%" PRIu64 ": %s", self->name, self->line, text);
    return PST_E_INVALID;
}

/* The field as a message may show it: clipped, and everything odd as '?'. */
static const char *shown(field value, char out[SHOWN_BYTES + 4])
{
    const size_t length = value.length < SHOWN_BYTES ? value.length : SHOWN_BYTES;
    for (size_t i = 0; i < length; i++) {
        const char c = value.text[i];
        out[i] = c;
        if (c < ' ' || c > '~')
            out[i] = '?';
    }
    strcpy(out + length, value.length > length ? "..." : "");
    return out;
}

/* ---- lines ---- */

/* Makes room at the end of the buffer and reads once. */
static pst_status refill(reader *self)
{
    memmove(self->buffer, self->buffer + self->begin, self->end - self->begin);
    self->end -= self->begin;
    self->begin = 0;
    const ptrdiff_t got =
        self->read(self->source, self->buffer + self->end, sizeof(self->buffer) - self->end);
    if (got < 0)
        return bad(self, "cannot be read: %s", strerror((int)-got));
    self->at_end = got == 0;
    self->end += (size_t)got;
    return PST_OK;
}

static field without_line_end(const reader *self, size_t length)
{
    field line = {self->buffer + self->begin, length};
    if (line.length > 0 && line.text[line.length - 1] == '\r')
        line.length--;
    if (self->line == 1 && line.length >= 3 && memcmp(line.text, "\xef\xbb\xbf", 3) == 0) {
        line.text += 3;
        line.length -= 3;
    }
    return line;
}

/* Gives the next line without its end. AGAIN when there is none. */
static pst_status next_line(reader *self, field *line_out)
{
    size_t scanned = 0;
    self->line++;
    for (;;) {
        const size_t held = self->end - self->begin;
        const char *text = self->buffer + self->begin;
        const char *newline = memchr(text + scanned, '\n', held - scanned);
        const size_t length = newline ? (size_t)(newline - text) : held;
        if (length > LINE_BYTES)
            return bad(self, "line of more than %zu bytes: allowed are at most %zu", LINE_BYTES,
                       LINE_BYTES);
        if (newline || (self->at_end && held > 0)) {
            *line_out = without_line_end(self, length);
            self->begin += length + (newline ? 1 : 0);
            return PST_OK;
        }
        if (self->at_end)
            return PST_E_AGAIN;
        scanned = held;
        PSTI_TRY(refill(self));
    }
}

/* ---- fields ---- */

static pst_status cut(const reader *self, field line, field fields[PSTI_ROW_FIELDS])
{
    for (int i = 0; i < PSTI_ROW_FIELDS; i++) {
        if (!line.text)
            return bad(self, "field %s: missing: allowed are exactly %d fields", psti_row_fields[i],
                       PSTI_ROW_FIELDS);
        const char *comma = memchr(line.text, ',', line.length);
        fields[i] = (field){line.text, comma ? (size_t)(comma - line.text) : line.length};
        line.length -= fields[i].length + (comma ? 1 : 0);
        line.text = comma ? comma + 1 : NULL;
    }
    char text[SHOWN_BYTES + 4];
    if (line.text)
        return bad(self, "field %d: \"%s\": allowed are exactly %d fields", PSTI_ROW_FIELDS + 1,
                   shown(line, text), PSTI_ROW_FIELDS);
    return PST_OK;
}

static pst_status read_op(const reader *self, field value, uint8_t *op_out)
{
    for (unsigned op = 0; op <= PST_PLAN_OP_USE; op++)
        if (value.text && value.length == strlen(psti_plan_ops[op]) &&
            memcmp(value.text, psti_plan_ops[op], value.length) == 0) {
            *op_out = (uint8_t)op;
            return PST_OK;
        }
    char text[SHOWN_BYTES + 4];
    return bad(self, "field op: \"%s\": allowed are malloc, free, mark and use",
               shown(value, text));
}

static pst_status read_number(const reader *self, int index, field value, uint64_t low,
                              uint64_t high, uint64_t *out)
{
    uint64_t number = 0;
    bool right = value.length > 0;
    for (size_t i = 0; i < value.length && right; i++) {
        const char c = value.text[i];
        right = c >= '0' && c <= '9' && !__builtin_mul_overflow(number, 10, &number) &&
                !__builtin_add_overflow(number, (uint64_t)(c - '0'), &number);
    }
    char text[SHOWN_BYTES + 4];
    if (!right || number < low || number > high)
        return bad(self, "field %s: \"%s\": allowed is an integer %" PRIu64 "..%" PRIu64,
                   psti_row_fields[index], shown(value, text), low, high);
    *out = number;
    return PST_OK;
}

/* Per op the fields that must be there, and those that may be. */
static const struct {
    unsigned must, may;
} shapes[] = {
    [PST_PLAN_OP_MALLOC] = {1u << PSTI_ROW_ID | 1u << PSTI_ROW_SIZE | 1u << PSTI_ROW_STREAM |
                                1u << PSTI_ROW_OFFSET,
                            0},
    [PST_PLAN_OP_FREE] = {1u << PSTI_ROW_ID,
                          1u << PSTI_ROW_SIZE | 1u << PSTI_ROW_STREAM | 1u << PSTI_ROW_OFFSET},
    [PST_PLAN_OP_MARK] = {1u << PSTI_ROW_ID, 0},
    [PST_PLAN_OP_USE] = {1u << PSTI_ROW_ID | 1u << PSTI_ROW_STREAM, 0},
};

static pst_status read_row(const reader *self, field line, pst_plan_row *row, unsigned *given_out)
{
    static const uint64_t low[PSTI_ROW_FIELDS] = {[PSTI_ROW_SIZE] = 1};
    static const uint64_t high[PSTI_ROW_FIELDS] = {[PSTI_ROW_ID] = UINT64_MAX,
                                                   [PSTI_ROW_SIZE] = PST_TRACE_MAX_BYTES,
                                                   [PSTI_ROW_STREAM] = UINT32_MAX,
                                                   [PSTI_ROW_OFFSET] = PST_PLAN_MAX_BYTES};
    field fields[PSTI_ROW_FIELDS] = {{NULL, 0}};
    uint64_t values[PSTI_ROW_FIELDS] = {0};
    unsigned given = 0;
    PSTI_TRY(cut(self, line, fields));
    *row = (pst_plan_row){.line = self->line};
    PSTI_TRY(read_op(self, fields[PSTI_ROW_OP], &row->op));
    for (int i = PSTI_ROW_ID; i < PSTI_ROW_FIELDS; i++) {
        const unsigned bit = 1u << i;
        char text[SHOWN_BYTES + 4];
        if (fields[i].length == 0 && !(shapes[row->op].must & bit))
            continue;
        if (!((shapes[row->op].must | shapes[row->op].may) & bit))
            return bad(self, "field %s: \"%s\": allowed is nothing in a row of op %s",
                       psti_row_fields[i], shown(fields[i], text), psti_plan_ops[row->op]);
        PSTI_TRY(read_number(self, i, fields[i], low[i], high[i], &values[i]));
        given |= bit;
    }
    row->id = values[PSTI_ROW_ID];
    row->bytes = values[PSTI_ROW_SIZE];
    row->stream = (uint32_t)values[PSTI_ROW_STREAM];
    row->offset = values[PSTI_ROW_OFFSET];
    *given_out = given;
    return PST_OK;
}

static pst_status read_header(reader *self)
{
    field line = {NULL, 0};
    char text[SHOWN_BYTES + 4];
    const pst_status status = next_line(self, &line);
    if (status == PST_E_AGAIN)
        return bad(self, "empty file: allowed is a header " HEADER " and rows");
    PSTI_TRY(status);
    if (line.length != strlen(HEADER) || memcmp(line.text, HEADER, line.length) != 0)
        return bad(self, "header: \"%s\": allowed is " HEADER, shown(line, text));
    return PST_OK;
}

static pst_status read_all(reader *self, psti_plan_builder *builder)
{
    field line = {NULL, 0};
    pst_plan_row row;
    unsigned given = 0;
    PSTI_TRY(read_header(self));
    for (;;) {
        const pst_status status = next_line(self, &line);
        if (status == PST_E_AGAIN)
            return PST_OK;
        PSTI_TRY(status);
        PSTI_TRY(read_row(self, line, &row, &given));
        PSTI_TRY(psti_plan_add(builder, &row, given));
    }
}

pst_status pst_plan_file_read(const char *name, pst_trace_read_fn read, void *source,
                              pst_plan_file **file_out)
{
    psti_plan_builder builder;
    PSTI_CHECK(read && file_out, PST_E_INVALID, "read or file_out is NULL");
    PSTI_TRY(psti_plan_begin(&builder, name ? name : "plan"));
    reader *self = psti_calloc(1, sizeof(*self));
    pst_status status = PST_E_NOMEM;
    if (self) {
        self->name = builder.name;
        self->read = read;
        self->source = source;
        status = read_all(self, &builder);
    } else {
        PSTI_FAIL(PST_E_NOMEM, "no memory for a line of a plan");
    }
    psti_free(self);
    psti_plan_end(&builder, status == PST_OK ? file_out : NULL);
    return status;
}
