/* What STAlloc writes in its trace mode (EuroSys 2026):
 *   1 POINTER SIZE STREAM, 0 POINTER SIZE STREAM   its allocator gives memory out, takes it back
 *   Iteration Index : N|end                        training step N begins; the last one is over
 *   micro-batch : F|B|W                            the next forward, backward or weight half begins
 *   NAME->CLASS Layer : F-start|F-end|B-start|...  a module of an MoE layer begins, ends */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host/trace/trace.h"

enum { MAX_MODULES = 16, NAME_BYTES = 256 };

/* Beside the line of a pointer: it was given out for no bytes. */
#define IS_EMPTY (UINT64_C(1) << 61)

typedef struct module {
    char name[NAME_BYTES];
    uint64_t line;
    uint32_t layer;  /* PST_TRACE_NONE: its name has none */
    uint8_t phase;   /* in which direction it runs */
    bool is_dynamic; /* sizes within depend on the routing */
} module;

typedef struct stalloc_state {
    psti_addresses addresses;
    psti_stream_names streams;
    uint64_t iteration;              /* that the next `end` closes, plus one */
    uint32_t passes[PST_NUM_PHASES]; /* begun in this iteration */
    uint8_t phase;
    uint32_t num_modules; /* that have begun and not ended, each within the one before */
    module modules[MAX_MODULES];
} stalloc_state;

static void label(const stalloc_state *state, pst_trace_request *row)
{
    row->phase = state->phase;
    if (state->phase != PST_PHASE_NONE)
        row->micro_batch = state->passes[state->phase] - 1;
    if (state->num_modules == 0)
        return;
    const module *inner = &state->modules[state->num_modules - 1];
    row->layer = inner->layer;
    if (row->op == PST_TRACE_MALLOC && inner->is_dynamic)
        row->tag = PST_TAG_DYNAMIC;
}

/* No row where nothing is given out: no pointer, or no bytes. */
static pst_status take_request(const psti_lines *lines, stalloc_state *state, psti_field line,
                               pst_trace_request *row, bool *is_row_out)
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
    PSTI_TRY(psti_field_number(lines, "size", fields[1], 0, PST_TRACE_MAX_BYTES, &row->bytes));
    if (!psti_field_address(fields[2], &stream))
        return psti_field_bad(lines, "stream", fields[2], "an integer, or hexadecimal after 0x");
    row->stream = psti_stream_number(&state->streams, stream);
    if (row->stream == PST_TRACE_MAX_STREAMS)
        return psti_field_bad(lines, "stream", fields[2], "one of at most 64 streams");
    if (address == 0)
        return PST_OK;
    const uint64_t found = psti_address_line(&state->addresses, address, &is_live);
    const uint64_t other = found & ~IS_EMPTY;
    if (is_live == is_malloc) {
        snprintf(text, sizeof(text), "%s %" PRIu64 ")",
                 is_malloc    ? "a pointer that is not live (it is since line"
                 : other == 0 ? "a live pointer (free before malloc, by line"
                              : "a live pointer (double free: freed at line",
                 other != 0 ? other : lines->line);
        return psti_field_bad(lines, "pointer", fields[0], text);
    }
    const bool is_empty = is_malloc ? row->bytes == 0 : (found & IS_EMPTY) != 0;
    *is_row_out = !is_empty;
    row->id = is_malloc ? lines->line : other;
    return psti_address_set(&state->addresses, address, lines->line | (is_empty ? IS_EMPTY : 0),
                            is_malloc);
}

static pst_status take_iteration(const psti_lines *lines, stalloc_state *state, psti_field number,
                                 pst_trace_request *row)
{
    if (psti_field_is(number, "end"))
        row->id = state->iteration;
    else if (!psti_field_u64(number, PST_TRACE_MAX_BYTES - 1, &row->id))
        return psti_field_bad(lines, "iteration", number, "an integer 0..2^63 - 2, or end");
    state->iteration = row->id + 1;
    state->phase = PST_PHASE_NONE;
    memset(state->passes, 0, sizeof(state->passes));
    row->tag = PST_TAG_ITERATION;
    return PST_OK;
}

static const char *const phase_words[] = {"", "F", "B", "W"};
enum { NUM_PHASE_WORDS = sizeof(phase_words) / sizeof(phase_words[0]) };

static pst_status take_micro_batch(const psti_lines *lines, stalloc_state *state, psti_field word)
{
    if (!psti_field_word(word, phase_words, PST_PHASE_FORWARD, NUM_PHASE_WORDS, &state->phase))
        return psti_field_bad(lines, "micro-batch", word, "F, B or W");
    state->passes[state->phase]++;
    return PST_OK;
}

/* Of a name such as decoder.layers.3.mlp. */
static uint32_t layer_of(psti_field name)
{
    psti_field part = {NULL, 0};
    uint64_t layer = 0;
    while (psti_field_cut(&name, '.', &part))
        if (psti_field_is(part, "layers") && psti_field_cut(&name, '.', &part) &&
            psti_field_u64(part, PST_TRACE_NONE - 1, &layer))
            return (uint32_t)layer;
    return PST_TRACE_NONE;
}

static psti_field last_part(psti_field name)
{
    psti_field part = {NULL, 0};
    while (psti_field_cut(&name, '.', &part)) {
    }
    return part;
}

typedef enum module_kind { SAYS_NOTHING, IS_STATIC, IS_DYNAMIC } module_kind;

/* As STAlloc's planner has it: an MoE layer's sizes depend on the routing, but not those of its
 * router and its shared experts. */
static module_kind kind_of(psti_field name, psti_field class_name)
{
    static const char *const dynamic_classes[] = {"ParallelMLP", "SequentialMLP"};
    static const char *const shared[] = {"shared_expert", "shared_experts"};
    static const char router[] = "Router"; /* at the end of TopKRouter */
    const size_t length = sizeof(router) - 1;
    const psti_field last = last_part(name);
    uint8_t which = 0;
    if (psti_field_word(last, shared, 0, 2, &which))
        return IS_STATIC;
    if (class_name.length >= length &&
        memcmp(class_name.text + class_name.length - length, router, length) == 0)
        return IS_STATIC;
    return psti_field_is(last, "mlp") || psti_field_word(class_name, dynamic_classes, 0, 2, &which)
               ? IS_DYNAMIC
               : SAYS_NOTHING;
}

static pst_status begin_module(const psti_lines *lines, stalloc_state *state, psti_field name,
                               uint8_t phase, module_kind kind)
{
    if (state->num_modules == MAX_MODULES || name.length >= NAME_BYTES)
        return psti_field_bad(lines, "module", name,
                              "a name of less than 256 bytes, within at most 15 others");
    module *begun = &state->modules[state->num_modules++];
    *begun = (module){.line = lines->line,
                      .layer = layer_of(name),
                      .phase = phase,
                      .is_dynamic = kind == IS_DYNAMIC};
    memcpy(begun->name, name.text, name.length);
    return PST_OK;
}

static pst_status end_module(const psti_lines *lines, stalloc_state *state, psti_field name,
                             uint8_t phase)
{
    char allowed[NAME_BYTES + 64];
    if (state->num_modules == 0)
        return psti_field_bad(lines, "module", name, "a module that has begun");
    const module *inner = &state->modules[state->num_modules - 1];
    if (!psti_field_is(name, inner->name) || phase != inner->phase) {
        snprintf(allowed, sizeof(allowed), "%s, whose %s began at line %" PRIu64, inner->name,
                 phase_words[inner->phase], inner->line);
        return psti_field_bad(lines, "module", name, allowed);
    }
    state->num_modules--;
    return PST_OK;
}

/* NAME->CLASS, and what stands behind "Layer : ". */
static pst_status take_module(const psti_lines *lines, stalloc_state *state, psti_field names,
                              psti_field edge)
{
    static const char *const edges[] = {"start", "end"};
    psti_field word = {NULL, 0};
    psti_field rest = edge;
    psti_field name = {names.text, 0};
    uint8_t phase = 0;
    uint8_t which = 0;
    while (name.length + 2 < names.length && memcmp(name.text + name.length, "->", 2) != 0)
        name.length++;
    const psti_field class_name = {names.text + name.length + 2, names.length - name.length - 2};
    if (name.length == 0 || name.length + 2 >= names.length)
        return psti_field_bad(lines, "module", names, "NAME->CLASS");
    if (!psti_field_cut(&rest, '-', &word) ||
        !psti_field_word(word, phase_words, PST_PHASE_FORWARD, NUM_PHASE_WORDS, &phase) ||
        !psti_field_word(rest, edges, 0, 2, &which))
        return psti_field_bad(lines, "layer", edge, "F, B or W, and -start or -end");
    const module_kind kind = kind_of(name, class_name);
    if (kind == SAYS_NOTHING)
        return PST_OK;
    return which == 0 ? begin_module(lines, state, name, phase, kind)
                      : end_module(lines, state, name, phase);
}

/* Takes the words off the line's begin; false: they are not there. */
static bool cut_words(psti_field *line, const char *words)
{
    const size_t length = strlen(words);
    if (line->text == NULL || line->length < length || memcmp(line->text, words, length) != 0)
        return false;
    line->text += length;
    line->length -= length;
    return true;
}

/* A line that is no request. Only an iteration is a row. */
static pst_status take_marker(const psti_lines *lines, stalloc_state *state, psti_field line,
                              pst_trace_request *row, bool *is_row_out)
{
    if (cut_words(&line, "Iteration Index : ")) {
        *is_row_out = true;
        *row = psti_trace_row(lines->line, PST_TRACE_MARK);
        return take_iteration(lines, state, line, row);
    }
    if (cut_words(&line, "micro-batch : "))
        return take_micro_batch(lines, state, line);
    psti_field first = {NULL, 0};
    psti_field_cut(&line, ' ', &first);
    if (cut_words(&line, "Layer : "))
        return take_module(lines, state, first, line);
    return psti_field_bad(lines, "op", first,
                          "1, 0, \"Iteration Index : \", \"micro-batch : \" or "
                          "\"NAME->CLASS Layer : \"");
}

static pst_status next(pst_trace_reader *reader, pst_trace_request *request_out)
{
    stalloc_state *state = reader->state;
    const psti_lines *lines = reader->lines;
    psti_field line;
    psti_field op = {NULL, 0};
    for (;;) {
        bool is_row = false;
        PSTI_TRY(psti_lines_next(reader->lines, &line));
        psti_field rest = line;
        psti_field_cut(&rest, ' ', &op);
        const bool is_malloc = psti_field_is(op, "1");
        if (is_malloc || psti_field_is(op, "0")) {
            *request_out =
                psti_trace_row(lines->line, is_malloc ? PST_TRACE_MALLOC : PST_TRACE_FREE);
            label(state, request_out);
            PSTI_TRY(take_request(lines, state, rest, request_out, &is_row));
        } else {
            PSTI_TRY(take_marker(lines, state, line, request_out, &is_row));
        }
        if (is_row)
            return PST_OK;
    }
}

static void close_state(pst_trace_reader *reader)
{
    psti_map_free(&((stalloc_state *)reader->state)->addresses.map);
}

const psti_trace_kind psti_trace_by_stalloc = {
    .next = next, .close = close_state, .state_bytes = sizeof(stalloc_state), .has_lines = true};
