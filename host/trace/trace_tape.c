/* Traces that are written: rows one after another, labelled as the writer says. */
#include "host/trace/trace.h"

void psti_tape_open(psti_tape *tape)
{
    *tape = (psti_tape){.status = PST_OK};
    psti_tape_label(tape, PST_PHASE_NONE, PST_TRACE_NONE, PST_TRACE_NONE);
}

void psti_tape_label(psti_tape *tape, pst_trace_phase phase, uint32_t layer, uint32_t micro_batch)
{
    tape->label.phase = (uint8_t)phase;
    tape->label.layer = layer;
    tape->label.micro_batch = micro_batch;
}

void psti_tape_add(psti_tape *tape, const pst_trace_request *row)
{
    if (tape->status == PST_OK)
        tape->status = psti_grow((void **)&tape->rows, &tape->capacity, tape->num_rows + 1,
                                 sizeof(*tape->rows));
    if (tape->status != PST_OK)
        return;
    tape->rows[tape->num_rows] = *row;
    tape->rows[tape->num_rows].line = tape->num_rows + 1;
    tape->num_rows++;
}

uint64_t psti_tape_malloc(psti_tape *tape, uint64_t bytes)
{
    pst_trace_request row = tape->label;
    row.op = PST_TRACE_MALLOC;
    row.id = tape->num_ids;
    row.bytes = bytes;
    psti_tape_add(tape, &row);
    return tape->num_ids++;
}

void psti_tape_free(psti_tape *tape, uint64_t id)
{
    pst_trace_request row = tape->label;
    row.op = PST_TRACE_FREE;
    row.id = id;
    psti_tape_add(tape, &row);
}

pst_status psti_tape_close(psti_tape *tape, const char *name, pst_trace **trace_out)
{
    pst_trace_config config = PST_TRACE_CONFIG_INIT;
    config.name = name;
    config.keep_unfreed = true;
    if (tape->status == PST_OK)
        tape->status = pst_trace_make(&config, tape->rows, tape->num_rows, trace_out);
    psti_free(tape->rows);
    tape->rows = NULL;
    return tape->status;
}
