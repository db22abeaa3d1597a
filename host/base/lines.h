/* The one reader of text files of rows: lines, fields, and messages FILE:LINE: field NAME: ... */
#ifndef PSTI_HOST_LINES_H
#define PSTI_HOST_LINES_H

#include <pagestash/trace.h>

#include "host/base/base.h"

#define PSTI_LINE_BYTES ((size_t)1 << 20) /* longest line, without its newline */

typedef struct psti_lines {
    const char *name;
    pst_trace_read_fn read;
    void *source;
    uint64_t line;     /* number of the line in work */
    size_t begin, end; /* unread bytes of buffer */
    bool at_end;       /* the source has nothing more */
    char buffer[PSTI_LINE_BYTES + 1];
} psti_lines;

typedef struct psti_field {
    const char *text; /* NULL: nothing left */
    size_t length;
} psti_field;

enum { PSTI_SHOWN_BYTES = 44 };

/* To be given to psti_free; name must outlive it. NULL: no memory, and said so. */
psti_lines *psti_lines_open(const char *name, pst_trace_read_fn read, void *source);
/* The next line without its end. Fails: AGAIN when there is none, INVALID. */
pst_status psti_lines_next(psti_lines *lines, psti_field *line_out);
/* Takes the first line, which must be the names with commas between. */
pst_status psti_lines_header(psti_lines *lines, const char *const *names, int num_names);
/* INVALID, with the message FILE:LINE: ... */
__attribute__((format(printf, 2, 3))) pst_status psti_lines_bad(const psti_lines *lines,
                                                                const char *format, ...);

/* Cuts the next field off the line; false when the line has no more. */
bool psti_field_cut(psti_field *line, char separator, psti_field *out);
bool psti_field_is(psti_field field, const char *text);
/* Which of words[first..end-1] the field is; false: none. */
bool psti_field_word(psti_field field, const char *const *words, int first, int end, uint8_t *out);
/* The number, decimal digits or, where allowed, hexadecimal after 0x. */
bool psti_field_u64(psti_field field, uint64_t max, uint64_t *out);
bool psti_field_address(psti_field field, uint64_t *out);

/* INVALID, with the message FILE:LINE: field NAME: "value": allowed is ... */
pst_status psti_field_bad(const psti_lines *lines, const char *name, psti_field field,
                          const char *allowed);
/* The number, or the message. */
pst_status psti_field_number(const psti_lines *lines, const char *name, psti_field field,
                             uint64_t min, uint64_t max, uint64_t *out);
/* The fields of a line with commas between, which are exactly these, or the message. */
pst_status psti_fields_cut(const psti_lines *lines, psti_field line, const char *const *names,
                           int num_fields, psti_field *fields_out);
/* INVALID, and the message for a line of fewer than num_fields fields. */
pst_status psti_field_missing(const psti_lines *lines, const char *name, int num_fields);
/* After num_fields fields were cut, nothing is left; or the message. allowed NULL: just so many. */
pst_status psti_fields_end(const psti_lines *lines, psti_field line, char separator, int num_fields,
                           const char *allowed);

#endif
