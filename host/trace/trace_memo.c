/* MEMO's lines (SIGMOD 2025): "malloc id size", "free id" or "free id size". */
#include "host/trace/trace.h"

static pst_status next(pst_trace_reader *reader, pst_trace_request *request_out)
{
    psti_lines *lines = reader->lines;
    psti_field line;
    psti_field op = {NULL, 0};
    psti_field id = {NULL, 0};
    psti_field size = {NULL, 0};
    PSTI_TRY(psti_lines_next(lines, &line));
    psti_field_cut(&line, ' ', &op);
    psti_field_cut(&line, ' ', &id);
    psti_field_cut(&line, ' ', &size);
    const bool is_malloc = psti_field_is(op, "malloc");
    if (!is_malloc && !psti_field_is(op, "free"))
        return psti_field_bad(lines, "op", op, "malloc or free");
    *request_out = psti_trace_row(lines->line, is_malloc ? PST_TRACE_MALLOC : PST_TRACE_FREE);
    PSTI_TRY(psti_field_number(lines, "id", id, 0, PST_TRACE_MAX_BYTES, &request_out->id));
    if (is_malloc || size.text != NULL)
        PSTI_TRY(psti_field_number(lines, "size", size, is_malloc, PST_TRACE_MAX_BYTES,
                                   &request_out->bytes));
    return psti_fields_end(lines, line, ' ', 3, "a line of at most 3 fields, one space between");
}

const psti_trace_kind psti_trace_by_memo = {.next = next, .state_bytes = 1, .has_lines = true};
