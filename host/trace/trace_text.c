#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host/trace/trace.h"

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
    PSTI_CHECK(got >= 0, PST_E_INVALID, "%.200s:%" PRIu64 ": cannot be read: %s", lines->name,
               lines->line, strerror((int)-got));
    PSTI_CHECK((size_t)got <= room, PST_E_INVALID,
               "%.200s:%" PRIu64 ": read gave %td bytes: allowed are at most %zu", lines->name,
               lines->line, got, room);
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
        PSTI_CHECK(length <= PSTI_LINE_BYTES, PST_E_INVALID,
                   "%.200s:%" PRIu64 ": line of more than %zu bytes: allowed are at most %zu",
                   lines->name, lines->line, PSTI_LINE_BYTES, PSTI_LINE_BYTES);
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

const char *psti_field_shown(psti_field field, char out[PSTI_SHOWN_BYTES])
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
        return PSTI_FAIL(PST_E_INVALID, "%.200s:%" PRIu64 ": field %s: missing: allowed is %s",
                         lines->name, lines->line, name, allowed);
    return PSTI_FAIL(PST_E_INVALID, "%.200s:%" PRIu64 ": field %s: \"%s\": allowed is %s",
                     lines->name, lines->line, name, psti_field_shown(field, shown), allowed);
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
