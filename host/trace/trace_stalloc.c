/* STAlloc's lines: "1 pointer size stream", "0 pointer size stream", and between them the markers
 *   iteration N          an iteration begins; ends what the other markers said
 *   phase F|B|W|O [M]    forward, backward, weight or other, of micro-batch M, until the next
 *   layer start N, layer end N */
#include <inttypes.h>
#include <stdio.h>

#include "host/trace/trace.h"

typedef struct stalloc_state {
    psti_addresses addresses;
    psti_stream_names streams;
    uint32_t layer, micro_batch; /* PST_TRACE_NONE: none */
    uint8_t phase;
    bool has_begun;
} stalloc_state;

static pst_status take_request(const psti_lines *lines, stalloc_state *state, psti_field line,
                               pst_trace_request *row)
{
    const bool is_malloc = row->op == PST_TRACE_MALLOC;
    psti_field fields[3] = {{NULL, 0}}; /* pointer, size, stream */
    uint64_t address = 0;
    uint64_t stream = 0;
    bool is_live = false;
    char text[96];
    for (int i = 0; i < 3; i++)
        psti_field_cut(&line, ' ', &fields[i]);
    PSTI_TRY(psti_fields_end(lines, line, ' ', 4, NULL));
    if (!psti_field_address(fields[0], &address))
        return psti_field_bad(lines, "pointer", fields[0], "an integer, or hexadecimal after 0x");
    PSTI_TRY(
        psti_field_number(lines, "size", fields[1], is_malloc, PST_TRACE_MAX_BYTES, &row->bytes));
    if (!psti_field_address(fields[2], &stream))
        return psti_field_bad(lines, "stream", fields[2], "an integer, or hexadecimal after 0x");
    row->stream = psti_stream_number(&state->streams, stream);
    if (row->stream == PST_TRACE_MAX_STREAMS)
        return psti_field_bad(lines, "stream", fields[2], "one of at most 64 streams");
    const uint64_t other = psti_address_line(&state->addresses, address, &is_live);
    if (is_live == is_malloc) {
        snprintf(text, sizeof(text), "%s %" PRIu64 ")",
                 is_malloc    ? "a pointer that is not live (it is since line"
                 : other == 0 ? "a live pointer (free before malloc, by line"
                              : "a live pointer (double free: freed at line",
                 other != 0 ? other : lines->line);
        return psti_field_bad(lines, "pointer", fields[0], text);
    }
    row->id = is_malloc ? lines->line : other;
    return psti_address_set(&state->addresses, address, lines->line, is_malloc);
}

static pst_status take_phase(const psti_lines *lines, stalloc_state *state, psti_field line)
{
    static const char *const words[PST_NUM_PHASES] = {"", "F", "B", "W", "O"};
    psti_field word = {NULL, 0};
    psti_field number = {NULL, 0};
    uint64_t micro_batch = PST_TRACE_NONE;
    uint8_t phase = PST_PHASE_NONE;
    psti_field_cut(&line, ' ', &word);
    if (!psti_field_word(word, words, PST_PHASE_FORWARD, PST_NUM_PHASES, &phase))
        return psti_field_bad(lines, "phase", word, "F, B, W or O");
    if (psti_field_cut(&line, ' ', &number))
        PSTI_TRY(
            psti_field_number(lines, "micro_batch", number, 0, PST_TRACE_NONE - 1, &micro_batch));
    PSTI_TRY(psti_fields_end(lines, line, ' ', 3, "phase F|B|W|O [MICRO_BATCH]"));
    state->phase = phase;
    state->micro_batch = (uint32_t)micro_batch;
    return PST_OK;
}

static pst_status take_layer(const psti_lines *lines, stalloc_state *state, psti_field line)
{
    static const char *const edges[] = {"start", "end"};
    psti_field word = {NULL, 0};
    psti_field number = {NULL, 0};
    uint64_t layer = 0;
    uint8_t edge = 0;
    psti_field_cut(&line, ' ', &word);
    psti_field_cut(&line, ' ', &number);
    if (!psti_field_word(word, edges, 0, 2, &edge))
        return psti_field_bad(lines, "layer", word, "start or end");
    const bool is_start = edge == 0;
    PSTI_TRY(psti_field_number(lines, "layer", number, 0, PST_TRACE_NONE - 1, &layer));
    PSTI_TRY(psti_fields_end(lines, line, ' ', 3, "layer start|end N"));
    if (is_start && state->layer != PST_TRACE_NONE)
        return psti_field_bad(lines, "layer", number, "no start before the end of the last layer");
    if (!is_start && state->layer != layer)
        return psti_field_bad(lines, "layer", number, "the layer that was started");
    state->layer = is_start ? (uint32_t)layer : PST_TRACE_NONE;
    return PST_OK;
}

static pst_status take_iteration(const psti_lines *lines, stalloc_state *state, psti_field line,
                                 pst_trace_request *row)
{
    psti_field number = {NULL, 0};
    psti_field_cut(&line, ' ', &number);
    PSTI_TRY(psti_field_number(lines, "iteration", number, 0, PST_TRACE_MAX_BYTES, &row->id));
    PSTI_TRY(psti_fields_end(lines, line, ' ', 2, "iteration N"));
    state->phase = PST_PHASE_NONE;
    state->layer = state->micro_batch = PST_TRACE_NONE;
    row->tag = PST_TAG_ITERATION;
    return PST_OK;
}

static pst_status next(pst_trace_reader *reader, pst_trace_request *request_out)
{
    stalloc_state *state = reader->state;
    const psti_lines *lines = reader->lines;
    psti_field line;
    psti_field op = {NULL, 0};
    if (!state->has_begun)
        state->layer = state->micro_batch = PST_TRACE_NONE;
    state->has_begun = true;
    for (;;) {
        PSTI_TRY(psti_lines_next(reader->lines, &line));
        psti_field_cut(&line, ' ', &op);
        const bool is_malloc = psti_field_is(op, "1");
        if (is_malloc || psti_field_is(op, "0")) {
            *request_out =
                psti_trace_row(lines->line, is_malloc ? PST_TRACE_MALLOC : PST_TRACE_FREE);
            request_out->phase = state->phase;
            request_out->layer = state->layer;
            request_out->micro_batch = state->micro_batch;
            return take_request(lines, state, line, request_out);
        }
        if (psti_field_is(op, "iteration")) {
            *request_out = psti_trace_row(lines->line, PST_TRACE_MARK);
            return take_iteration(lines, state, line, request_out);
        }
        if (psti_field_is(op, "phase"))
            PSTI_TRY(take_phase(lines, state, line));
        else if (psti_field_is(op, "layer"))
            PSTI_TRY(take_layer(lines, state, line));
        else
            return psti_field_bad(lines, "op", op, "1, 0, iteration, phase or layer");
    }
}

static void close_state(pst_trace_reader *reader)
{
    psti_map_free(&((stalloc_state *)reader->state)->addresses.map);
}

const psti_trace_kind psti_trace_by_stalloc = {
    .next = next, .close = close_state, .state_bytes = sizeof(stalloc_state), .has_lines = true};
