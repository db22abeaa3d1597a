/* MiniMalloc's CSV (ASPLOS 2023): tensors with times, in any order. Held whole. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host/trace/trace.h"

enum { ID, LOWER, UPPER, SIZE, NUM_COLUMNS, PREFIX_BYTES = 16 };

static const char *const names[NUM_COLUMNS] = {"id", "lower", "upper", "size"};

/* Set in the value of a moment at which the row is born; in others it dies. */
#define BIRTH (UINT64_C(1) << 63)

typedef struct minimalloc_state {
    pst_trace_request *rows; /* the mallocs, as they stand in the file */
    psti_pair *moments;      /* two of each row: time and row, by time once all are read */
    uint64_t num_rows, row_capacity, moment_capacity;
    uint64_t num_given;            /* moments */
    int column_of[NUM_COLUMNS];    /* of the file, from its left */
    char prefix[PREFIX_BYTES + 1]; /* letters before the number of every id */
    bool is_read;
} minimalloc_state;

static pst_status read_header(const psti_lines *lines, minimalloc_state *state, psti_field line)
{
    static const char *const allowed = "id, lower, upper and size, each once, in any order";
    bool seen[NUM_COLUMNS] = {false};
    psti_field value = {NULL, 0};
    char name[32];
    for (int i = 0; i < NUM_COLUMNS; i++) {
        uint8_t column = 0;
        if (!psti_field_cut(&line, ',', &value))
            value = (psti_field){NULL, 0};
        snprintf(name, sizeof(name), "%d of the header", i + 1);
        if (!psti_field_word(value, names, 0, NUM_COLUMNS, &column) || seen[column])
            return psti_field_bad(lines, name, value, allowed);
        seen[column] = true;
        state->column_of[i] = column;
    }
    if (psti_field_cut(&line, ',', &value))
        return psti_field_bad(lines, "5 of the header", value, allowed);
    return PST_OK;
}

/* The number of an id such as 7 or b7; the letters are the same in all rows. */
static pst_status take_id(const psti_lines *lines, minimalloc_state *state, psti_field value,
                          uint64_t *id_out)
{
    size_t letters = 0;
    while (letters < value.length && isalpha((unsigned char)value.text[letters]))
        letters++;
    const psti_field prefix = {value.text, letters};
    if (state->num_rows == 0 && letters <= PREFIX_BYTES) {
        memcpy(state->prefix, value.text, letters);
        state->prefix[letters] = '\0';
    }
    const psti_field number = {value.text + letters, value.length - letters};
    if (psti_field_is(prefix, state->prefix) && psti_field_u64(number, PST_TRACE_MAX_BYTES, id_out))
        return PST_OK;
    char allowed[128];
    snprintf(allowed, sizeof(allowed), "an integer 0..%" PRIu64 "%s%s", PST_TRACE_MAX_BYTES,
             state->prefix[0] != '\0' ? " after the letters " : "", state->prefix);
    return psti_field_bad(lines, "id", value, allowed);
}

static pst_status read_row(const psti_lines *lines, minimalloc_state *state, psti_field line)
{
    const uint64_t row = state->num_rows;
    const char *in_file[NUM_COLUMNS];
    psti_field found[NUM_COLUMNS] = {{NULL, 0}};
    psti_field fields[NUM_COLUMNS];
    uint64_t lower = 0;
    uint64_t upper = 0;
    for (int i = 0; i < NUM_COLUMNS; i++)
        in_file[i] = names[state->column_of[i]];
    PSTI_TRY(psti_fields_cut(lines, line, in_file, NUM_COLUMNS, found));
    for (int i = 0; i < NUM_COLUMNS; i++)
        fields[state->column_of[i]] = found[i];
    pst_trace_request request = psti_trace_row(lines->line, PST_TRACE_MALLOC);
    PSTI_TRY(take_id(lines, state, fields[ID], &request.id));
    PSTI_TRY(psti_field_number(lines, "lower", fields[LOWER], 0, INT64_MAX, &lower));
    PSTI_TRY(psti_field_number(lines, "upper", fields[UPPER], 0, INT64_MAX, &upper));
    PSTI_TRY(
        psti_field_number(lines, "size", fields[SIZE], 1, PST_TRACE_MAX_BYTES, &request.bytes));
    if (upper <= lower) {
        char allowed[64];
        snprintf(allowed, sizeof(allowed), "more than lower, which is %" PRIu64, lower);
        return psti_field_bad(lines, "upper", fields[UPPER], allowed);
    }
    PSTI_TRY(psti_grow((void **)&state->rows, &state->row_capacity, row + 1, sizeof(request)));
    PSTI_TRY(psti_grow((void **)&state->moments, &state->moment_capacity, 2 * row + 2,
                       sizeof(*state->moments)));
    state->rows[row] = request;
    state->moments[2 * row] = (psti_pair){lower, BIRTH | row};
    state->moments[2 * row + 1] = (psti_pair){upper, row};
    state->num_rows++;
    return PST_OK;
}

static pst_status read_all(pst_trace_reader *reader, minimalloc_state *state)
{
    psti_lines *lines = reader->lines;
    psti_field line;
    pst_status status = psti_lines_next(lines, &line);
    if (status == PST_E_AGAIN)
        return psti_lines_bad(lines, "empty file: allowed is a header id,lower,upper,size");
    PSTI_TRY(status);
    PSTI_TRY(read_header(lines, state, line));
    while ((status = psti_lines_next(lines, &line)) == PST_OK)
        PSTI_TRY(read_row(lines, state, line));
    if (status != PST_E_AGAIN)
        return status;
    psti_sort_pairs(state->moments, 2 * state->num_rows);
    state->is_read = true;
    return PST_OK;
}

/* At one time, what dies goes before what is born: lives are half-open. */
static pst_status next(pst_trace_reader *reader, pst_trace_request *request_out)
{
    minimalloc_state *state = reader->state;
    if (!state->is_read)
        PSTI_TRY(read_all(reader, state));
    if (state->num_given == 2 * state->num_rows)
        return PST_E_AGAIN;
    const psti_pair *moment = &state->moments[state->num_given++];
    *request_out = state->rows[moment->value & ~BIRTH];
    request_out->time = moment->key;
    request_out->op = (moment->value & BIRTH) != 0 ? PST_TRACE_MALLOC : PST_TRACE_FREE;
    return PST_OK;
}

static void close_state(pst_trace_reader *reader)
{
    minimalloc_state *state = reader->state;
    psti_free(state->rows);
    psti_free(state->moments);
}

const psti_trace_kind psti_trace_by_minimalloc = {
    .next = next, .close = close_state, .state_bytes = sizeof(minimalloc_state), .has_lines = true};
