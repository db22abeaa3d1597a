/* Routing traces: what the fields of a row may say, and in which order steps and layers come. */
#include "tools/common/routing.h"

#include "host/base/lines.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_KEYS = 2, FIELD_NAME_BYTES = 32 };

struct routing_reader {
    psti_lines *lines;
    uint32_t num_experts; /* 0 until the header was read */
    uint32_t *counts;
    uint64_t num_rows;
    uint64_t step, layer; /* of the last row */
    uint64_t num_layers;  /* of a step; 0 while the first step is read */
};

routing_reader *routing_open(const char *name, pst_trace_read_fn read, void *source)
{
    routing_reader *reader = calloc(1, sizeof(*reader));
    psti_lines *lines = psti_lines_open(name, read, source);
    if (reader == NULL || lines == NULL) {
        free(reader);
        psti_free(lines);
        return NULL;
    }
    reader->lines = lines;
    return reader;
}

void routing_close(routing_reader *reader)
{
    if (reader == NULL)
        return;
    psti_free(reader->lines);
    free(reader->counts);
    free(reader);
}

static const char *field_name(uint32_t index, char out[FIELD_NAME_BYTES])
{
    if (index < NUM_KEYS)
        strcpy(out, index == 0 ? "step" : "layer");
    else
        snprintf(out, FIELD_NAME_BYTES, "e%" PRIu32, index - NUM_KEYS);
    return out;
}

static pst_status read_header(routing_reader *reader)
{
    psti_field line = {NULL, 0};
    uint32_t num_fields = 0;
    const pst_status status = psti_lines_next(reader->lines, &line);
    if (status == PST_E_AGAIN)
        return psti_lines_bad(reader->lines,
                              "empty file: allowed is a header step,layer,e0,... and rows");
    PSTI_TRY(status);
    for (;; num_fields++) {
        psti_field value = {NULL, 0};
        char name[FIELD_NAME_BYTES];
        char at[FIELD_NAME_BYTES];
        char allowed[96];
        if (!psti_field_cut(&line, ',', &value) && num_fields > NUM_KEYS)
            break;
        if (value.text != NULL && psti_field_is(value, field_name(num_fields, name)))
            continue;
        snprintf(at, sizeof(at), "%" PRIu32 " of the header", num_fields + 1);
        snprintf(allowed, sizeof(allowed), "%s (the header is step,layer,e0,e1,...)",
                 field_name(num_fields, name));
        return psti_field_bad(reader->lines, at, value, allowed);
    }
    reader->num_experts = num_fields - NUM_KEYS;
    reader->counts = calloc(reader->num_experts, sizeof(*reader->counts));
    if (reader->counts == NULL)
        return PSTI_FAIL(PST_E_NOMEM, "out of memory for %" PRIu32 " experts", reader->num_experts);
    return PST_OK;
}

static pst_status read_fields(routing_reader *reader, psti_field line, uint64_t keys[NUM_KEYS])
{
    static const uint64_t max[NUM_KEYS + 1] = {ROUTING_STEP_MAX, ROUTING_LAYER_MAX,
                                               ROUTING_COUNT_MAX};
    const uint32_t num_fields = reader->num_experts + NUM_KEYS;
    const bool is_empty = line.length == 0;
    for (uint32_t i = 0; i < num_fields; i++) {
        const uint64_t most = max[i < NUM_KEYS ? i : NUM_KEYS];
        psti_field value = {NULL, 0};
        char name[FIELD_NAME_BYTES];
        uint64_t number = 0;
        if (is_empty || !psti_field_cut(&line, ',', &value))
            return psti_field_missing(reader->lines, field_name(i, name), (int)num_fields);
        if (!psti_field_u64(value, most, &number)) /* no name is made for what is right */
            return psti_field_number(reader->lines, field_name(i, name), value, 0, most, &number);
        if (i < NUM_KEYS)
            keys[i] = number;
        else
            reader->counts[i - NUM_KEYS] = (uint32_t)number;
    }
    return psti_fields_end(reader->lines, line, ',', (int)num_fields, NULL);
}

/* Steps rise by one, and each has layers 0 to num_layers - 1 in order. */
static pst_status check_order(routing_reader *reader, uint64_t step, uint64_t layer)
{
    if (reader->num_rows == 0 && layer == 0)
        return PST_OK;
    if (reader->num_rows == 0)
        return psti_lines_bad(reader->lines,
                              "field layer: %" PRIu64 ": allowed is 0 in the first row", layer);

    const bool is_known = reader->num_layers != 0;
    const uint64_t next_layer = reader->layer + 1;
    const bool may_go_on = !is_known || next_layer < reader->num_layers;
    const bool may_wrap = !is_known || next_layer == reader->num_layers;
    if (may_go_on && step == reader->step && layer == next_layer)
        return PST_OK;
    if (may_wrap && step == reader->step + 1 && layer == 0) {
        reader->num_layers = next_layer;
        return PST_OK;
    }

    char go_on[80] = "";
    char wrap[80] = "";
    if (may_go_on)
        snprintf(go_on, sizeof(go_on), "step %" PRIu64 " layer %" PRIu64, reader->step, next_layer);
    if (may_wrap)
        snprintf(wrap, sizeof(wrap), "step %" PRIu64 " layer 0", reader->step + 1);
    return psti_lines_bad(reader->lines,
                          "field %s: step %" PRIu64 " layer %" PRIu64 ": allowed is %s%s%s next",
                          step == reader->step ? "layer" : "step", step, layer, go_on,
                          may_go_on && may_wrap ? " or " : "", wrap);
}

static pst_status end_of_file(const routing_reader *reader)
{
    if (reader->num_rows == 0)
        return psti_lines_bad(reader->lines, "no rows: allowed is at least one");
    if (reader->num_layers != 0 && reader->layer + 1 != reader->num_layers)
        return psti_lines_bad(reader->lines,
                              "field layer: the last step ends with layer %" PRIu64
                              ": allowed is %" PRIu64,
                              reader->layer, reader->num_layers - 1);
    return PST_E_AGAIN;
}

pst_status routing_next(routing_reader *reader, routing_row *row_out)
{
    psti_field line = {NULL, 0};
    uint64_t keys[NUM_KEYS] = {0};
    if (reader->num_experts == 0)
        PSTI_TRY(read_header(reader));
    const pst_status status = psti_lines_next(reader->lines, &line);
    if (status == PST_E_AGAIN)
        return end_of_file(reader);
    PSTI_TRY(status);
    PSTI_TRY(read_fields(reader, line, keys));
    PSTI_TRY(check_order(reader, keys[0], keys[1]));
    reader->num_rows++;
    reader->step = keys[0];
    reader->layer = keys[1];
    row_out->line = reader->lines->line;
    row_out->step = reader->step;
    row_out->layer = (uint32_t)reader->layer;
    row_out->num_experts = reader->num_experts;
    row_out->counts = reader->counts;
    return PST_OK;
}
