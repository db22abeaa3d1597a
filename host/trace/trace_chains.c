/* What layers hand on: the tensors of a profile that are a layer's input and the output of the one before. */
#include <inttypes.h>

#include "host/trace/trace.h"

#define NO_TENSOR PSTI_MAP_NONE

static bool is_layers(psti_part part)
{
    return part == PSTI_FORWARD || part == PSTI_BACKWARD;
}

static bool takes_part(const psti_profile_tensor *tensor, bool is_forward, bool is_input)
{
    if (tensor->partner != NO_TENSOR)
        return false;
    const psti_part born = (psti_part)tensor->born;
    const psti_part dies = (psti_part)tensor->dies;
    if (is_forward && is_input)
        return born == PSTI_BEFORE && is_layers(dies);
    if (is_forward)
        return born == PSTI_FORWARD && (dies == PSTI_BETWEEN || dies == PSTI_AFTER);
    if (is_input)
        return (born == PSTI_BETWEEN || born == PSTI_BEFORE) && dies == PSTI_BACKWARD;
    return born == PSTI_BACKWARD && dies == PSTI_AFTER;
}

/* Whether the row makes a tensor in that run which lives beyond it. */
static bool leaves(const psti_profile *profile, const psti_profile_row *row, uint64_t run)
{
    const psti_profile_tensor *tensor = &profile->tensors[row->tensor];
    return row->row->op == PST_TRACE_MALLOC && tensor->born_run == run && tensor->death_run == 0 &&
           tensor->dies != PSTI_NEVER && tensor->partner == NO_TENSOR;
}

static void link(psti_profile *profile, uint64_t input, uint64_t output, bool is_forward)
{
    profile->tensors[input].partner = output;
    profile->tensors[output].partner = input;
    profile->tensors[input].is_input = true;
    profile->tensors[input].is_forward_chain = is_forward;
}

/* Outputs of one size form a list: `first` by size, then `next`; num_tensors ends it. Forward in the
 * order of their mallocs, backward of their frees, as gradients of weights outlive those of
 * activations; what is freed layer by layer comes last. */
static pst_status list_outputs(const psti_profile *profile, const pst_trace *trace, bool is_forward,
                               bool is_freed_by_layer, psti_map *first, uint64_t *next)
{
    const uint8_t op = is_forward ? PST_TRACE_MALLOC : PST_TRACE_FREE;
    for (uint64_t i = profile->num_rows; i-- > 0;) {
        const uint64_t tensor = profile->rows[i].tensor;
        if (profile->rows[i].row->op != op ||
            (profile->tensors[tensor].death_run != 0) != is_freed_by_layer ||
            !takes_part(&profile->tensors[tensor], is_forward, false))
            continue;
        const uint64_t behind = psti_map_get(first, trace->tensors[tensor].bytes);
        next[tensor] = behind != PSTI_MAP_NONE ? behind : profile->num_tensors;
        PSTI_TRY(psti_map_set(first, trace->tensors[tensor].bytes, tensor));
    }
    return PST_OK;
}

/* Gives each input the first output of its size. */
static pst_status pair(psti_profile *profile, const pst_trace *trace, bool is_forward,
                       psti_map *first, uint64_t *next)
{
    const uint64_t num = profile->num_tensors;
    PSTI_TRY(list_outputs(profile, trace, is_forward, true, first, next));
    PSTI_TRY(list_outputs(profile, trace, is_forward, false, first, next));
    for (uint64_t i = 0; i < num; i++) {
        const uint64_t bytes = trace->tensors[i].bytes;
        const uint64_t output = psti_map_get(first, bytes);
        if (output >= num || !takes_part(&profile->tensors[i], is_forward, true))
            continue;
        PSTI_TRY(psti_map_set(first, bytes, next[output]));
        link(profile, i, output, is_forward);
    }
    return PST_OK;
}

/* What the run of the row leaves to what follows: the first tensor of that size, else the first, else
 * NO_TENSOR. */
static uint64_t left_by(const psti_profile *profile, const pst_trace *trace, uint64_t row,
                        uint64_t bytes)
{
    const uint64_t run = profile->rows[row].run;
    uint64_t i = row;
    while (i > 0 && profile->rows[i - 1].run == run)
        i--;
    uint64_t first = NO_TENSOR;
    for (; i < profile->num_rows && profile->rows[i].run == run; i++) {
        const uint64_t tensor = profile->rows[i].tensor;
        if (!leaves(profile, &profile->rows[i], run))
            continue;
        if (trace->tensors[tensor].bytes == bytes)
            return tensor;
        first = first != NO_TENSOR ? first : tensor;
    }
    return first;
}

/* What a run of rows that are there for each layer takes from what is around it, and what of that size it
 * leaves there. */
static void pair_runs(psti_profile *profile, const pst_trace *trace)
{
    for (uint64_t i = 0; i < profile->num_rows; i++) {
        const psti_profile_row *row = &profile->rows[i];
        if (row->run == 0 || row->row->op != PST_TRACE_FREE)
            continue;
        const psti_profile_tensor *input = &profile->tensors[row->tensor];
        if (input->born_run != 0 || is_layers((psti_part)input->born))
            continue;
        const uint64_t output = left_by(profile, trace, i, trace->tensors[row->tensor].bytes);
        if (output != NO_TENSOR)
            link(profile, row->tensor, output, true);
    }
}

static pst_status pair_both(psti_profile *profile, const pst_trace *trace)
{
    psti_map first = {NULL, 0, 0};
    uint64_t *next = psti_calloc((size_t)profile->num_tensors, sizeof(*next));
    PSTI_CHECK(next != NULL, PST_E_NOMEM, "out of memory for %" PRIu64 " tensors",
               profile->num_tensors);
    pst_status status = pair(profile, trace, true, &first, next);
    psti_map_free(&first);
    if (status == PST_OK)
        status = pair(profile, trace, false, &first, next);
    psti_map_free(&first);
    psti_free(next);
    pair_runs(profile, trace);
    return status;
}

static pst_status check_inputs(const psti_profile *profile, const pst_trace *trace)
{
    for (uint64_t i = 0; i < profile->num_tensors; i++) {
        const psti_profile_tensor *tensor = &profile->tensors[i];
        const bool is_strange = tensor->born != PSTI_NEVER && !is_layers((psti_part)tensor->born) &&
                                is_layers((psti_part)tensor->dies) && !tensor->is_input;
        PSTI_CHECK(!is_strange, PST_E_INVALID,
                   "tensor %" PRIu64 " of line %" PRIu64 " comes from outside the layer, which "
                   "frees it: allowed is one whose place an output of %" PRIu64 " bytes takes",
                   trace->tensors[i].id, trace->tensors[i].line, trace->tensors[i].bytes);
    }
    return PST_OK;
}

pst_status psti_profile_link(psti_profile *profile, const pst_trace *trace)
{
    PSTI_TRY(pair_both(profile, trace));
    return check_inputs(profile, trace);
}
