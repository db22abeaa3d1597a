/* Lines, fields and messages of text files, whatever pieces the caller's function reads them in. */
#include "host/base/lines.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

psti_lines *psti_lines_open(const char *name, pst_trace_read_fn read, void *source)
{
    psti_lines *lines = psti_calloc(1, sizeof(*lines));
    if (lines == NULL) {
        PSTI_FAIL(PST_E_NOMEM, "out of memory for a line of %.200s", name);
        return NULL;
    }
    lines->name = name;
    lines->read = read;
    lines->source = source;
    return lines;
}

pst_status psti_lines_bad(const psti_lines *lines, const char *format, ...)
{
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    return PSTI_FAIL(PST_E_INVALID, "%.200s:%" PRIu64 ": %s", lines->name, lines->line, text);
}

/* Makes room at the end of the buffer and reads once. */
static pst_status refill(psti_lines *lines)
{
    if (lines->begin > 0) {
        memmove(lines->buffer, lines->buffer + lines->begin, lines->end - lines->begin);
        lines->end -= lines->begin;
        lines->begin = 0;
    }
    const size_t room = sizeof(lines->buffer) - lines->end;
    const ptrdiff_t got = lines->read(lines->source, lines->buffer + lines->end, room);
    if (got < 0)
        return psti_lines_bad(lines, "cannot be read: %s", strerror((int)-got));
    if ((size_t)got > room)
        return psti_lines_bad(lines, "read gave %td bytes: allowed are at most %zu", got, room);
    lines->at_end = got == 0;
    lines->end += (size_t)got;
    return PST_OK;
}

static psti_field without_line_end(const psti_lines *lines, size_t length)
{
    psti_field line = {lines->buffer + lines->begin, length};
    if (line.length > 0 && line.text[line.length - 1] == '\r')
        line.length--;
    if (lines->line == 1 && line.length >= 3 && memcmp(line.text, "\xef\xbb\xbf", 3) == 0) {
        line.text += 3;
        line.length -= 3;
    }
    return line;
}

pst_status psti_lines_next(psti_lines *lines, psti_field *line_out)
{
    lines->line++;
    size_t scanned = 0;
    for (;;) {
        const size_t held = lines->end - lines->begin;
        const char *text = lines->buffer + lines->begin;
        const char *newline = memchr(text + scanned, '\n', held - scanned);
        const size_t length = newline != NULL ? (size_t)(newline - text) : held;
        if (length > PSTI_LINE_BYTES)
            return psti_lines_bad(lines, "line of more than %zu bytes: allowed are at most %zu",
                                  PSTI_LINE_BYTES, PSTI_LINE_BYTES);
        if (newline != NULL || (lines->at_end && held > 0)) {
            *line_out = without_line_end(lines, length);
            lines->begin += length + (newline != NULL ? 1 : 0);
            return PST_OK;
        }
        if (lines->at_end)
            return PST_E_AGAIN;
        scanned = held;
        PSTI_TRY(refill(lines));
    }
}

bool psti_field_cut(psti_field *line, char separator, psti_field *out)
{
    if (line->text == NULL)
        return false;
    const char *end = memchr(line->text, separator, line->length);
    out->text = line->text;
    out->length = end != NULL ? (size_t)(end - line->text) : line->length;
    line->length -= out->length + (end != NULL ? 1 : 0);
    line->text = end != NULL ? end + 1 : NULL;
    return true;
}

bool psti_field_is(psti_field field, const char *text)
{
    return field.length == strlen(text) && memcmp(field.text, text, field.length) == 0;
}

bool psti_field_word(psti_field field, const char *const *words, int first, int end, uint8_t *out)
{
    for (int i = first; i < end; i++)
        if (field.text != NULL && psti_field_is(field, words[i])) {
            *out = (uint8_t)i;
            return true;
        }
    return false;
}

bool psti_field_u64(psti_field field, uint64_t max, uint64_t *out)
{
    uint64_t number = 0;
    if (field.length == 0)
        return false;
    for (size_t i = 0; i < field.length; i++) {
        const uint64_t digit = (uint64_t)(unsigned char)field.text[i] - '0';
        if (digit > 9 || number > (UINT64_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    if (number > max)
        return false;
    *out = number;
    return true;
}

bool psti_field_address(psti_field field, uint64_t *out)
{
    if (field.length < 3 || field.length > 18 || memcmp(field.text, "0x", 2) != 0)
        return psti_field_u64(field, UINT64_MAX, out);
    uint64_t number = 0;
    for (size_t i = 2; i < field.length; i++) {
        const char c = field.text[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return false;
        number = number << 4 | (uint64_t)digit;
    }
    *out = number;
    return true;
}

/* As it may be printed: clipped, and everything odd as '?'. */
static const char *field_shown(psti_field field, char out[PSTI_SHOWN_BYTES])
{
    const size_t most = PSTI_SHOWN_BYTES - 4;
    const size_t length = field.length < most ? field.length : most;
    for (size_t i = 0; i < length; i++) {
        const char c = field.text[i];
        out[i] = c >= ' ' && c <= '~' ? c : '?';
    }
    strcpy(out + length, field.length > length ? "..." : "");
    return out;
}

pst_status psti_field_bad(const psti_lines *lines, const char *name, psti_field field,
                          const char *allowed)
{
    char shown[PSTI_SHOWN_BYTES];
    if (field.text == NULL)
        return psti_lines_bad(lines, "field %s: missing: allowed is %s", name, allowed);
    return psti_lines_bad(lines, "field %s: \"%s\": allowed is %s", name, field_shown(field, shown),
                          allowed);
}

pst_status psti_field_number(const psti_lines *lines, const char *name, psti_field field,
                             uint64_t min, uint64_t max, uint64_t *out)
{
    uint64_t number;
    if (field.text != NULL && psti_field_u64(field, max, &number) && number >= min) {
        *out = number;
        return PST_OK;
    }
    char allowed[64];
    snprintf(allowed, sizeof(allowed), "an integer %" PRIu64 "..%" PRIu64, min, max);
    return psti_field_bad(lines, name, field, allowed);
}

pst_status psti_fields_end(const psti_lines *lines, psti_field line, char separator, int num_fields,
                           const char *allowed)
{
    char name[16];
    char exactly[32];
    psti_field more;
    if (!psti_field_cut(&line, separator, &more))
        return PST_OK;
    snprintf(name, sizeof(name), "%d", num_fields + 1);
    snprintf(exactly, sizeof(exactly), "a line of %d fields", num_fields);
    return psti_field_bad(lines, name, more, allowed != NULL ? allowed : exactly);
}

pst_status psti_field_missing(const psti_lines *lines, const char *name, int num_fields)
{
    return psti_lines_bad(lines, "field %s: missing: allowed is a line of %d fields", name,
                          num_fields);
}

pst_status psti_fields_cut(const psti_lines *lines, psti_field line, const char *const *names,
                           int num_fields, psti_field *fields_out)
{
    const bool is_empty = line.length == 0;
    for (int i = 0; i < num_fields; i++)
        if (is_empty || !psti_field_cut(&line, ',', &fields_out[i]))
            return psti_field_missing(lines, names[i], num_fields);
    return psti_fields_end(lines, line, ',', num_fields, NULL);
}

pst_status psti_lines_header(psti_lines *lines, const char *const *names, int num_names)
{
    char header[128] = "";
    char allowed[192];
    char at[32];
    psti_field line = {NULL, 0};
    for (int i = 0; i < num_names; i++) {
        const size_t used = strlen(header);
        snprintf(header + used, sizeof(header) - used, "%s%s", i > 0 ? "," : "", names[i]);
    }
    const pst_status status = psti_lines_next(lines, &line);
    if (status == PST_E_AGAIN)
        return psti_lines_bad(lines, "empty file: allowed is the header %s", header);
    PSTI_TRY(status);
    for (int i = 0; i <= num_names; i++) {
        psti_field name = {NULL, 0};
        const bool is_there = psti_field_cut(&line, ',', &name);
        if (i < num_names ? is_there && psti_field_is(name, names[i]) : !is_there)
            continue;
        snprintf(at, sizeof(at), "%d of the header", i + 1);
        snprintf(allowed, sizeof(allowed), "%s (the header is %s)",
                 i < num_names ? names[i] : "no more", header);
        return psti_field_bad(lines, at, name, allowed);
    }
    return PST_OK;
}
