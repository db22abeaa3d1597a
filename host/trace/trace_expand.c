/* From one layer profiled to N, several micro-batches, and the order of a pipeline. */
#include <inttypes.h>
#include <string.h>

#include "host/base/structs.h"
#include "host/trace/trace.h"

#define MAX_LAYERS (1u << 20)
#define MAX_MICRO_BATCHES (1u << 20)
#define MAX_STAGES (1u << 20)

typedef struct expander {
    const pst_trace *trace;
    const pst_trace_expansion *how;
    psti_profile profile;
    psti_tape tape;
    uint32_t layers, num_flights;
    uint64_t *ids;        /* [num_flights][layers][num_tensors] of the new trace */
    uint64_t *event_at;   /* by row: a mark's event, dense */
    uint8_t *recorded_in; /* by row: the part where what a wait waits for was recorded, or NEVER */
    uint64_t num_events;
    uint32_t layer, micro_batch; /* of what is being written; layer 0 outside */
} expander;

static uint64_t *id_of(const expander *self, uint64_t tensor, uint32_t layer)
{
    const uint64_t flight = self->micro_batch % self->num_flights;
    return &self->ids[(flight * self->layers + layer) * self->profile.num_tensors + tensor];
}

static bool is_layers(psti_part part)
{
    return part == PSTI_FORWARD || part == PSTI_BACKWARD;
}

/* Every layer has its own. */
static bool is_own(const psti_profile_tensor *tensor)
{
    return is_layers((psti_part)tensor->born) || tensor->born_run != 0;
}

/* ---- which of the new tensors a row means ---- */

/* An input, in the layer in work: what the layer before it left, in the direction of the chain. */
static uint64_t input_id(const expander *self, uint64_t tensor)
{
    const psti_profile_tensor *input = &self->profile.tensors[tensor];
    const uint32_t first = input->is_forward_chain ? 0 : self->layers - 1;
    if (self->layer == first)
        return *id_of(self, tensor, 0);
    return *id_of(self, input->partner,
                  input->is_forward_chain ? self->layer - 1 : self->layer + 1);
}

/* The layer whose tensor is meant outside, where only one of a chain is left. */
static uint32_t last_layer(const expander *self, const psti_profile_tensor *output)
{
    return output->born == PSTI_BACKWARD ? 0 : self->layers - 1;
}

/* In rows that are there for each layer: what is not the layer's in work, or another's. */
static bool is_once(const expander *self, const psti_profile_tensor *tensor)
{
    if (!is_own(tensor))
        return self->layer != 0;
    return tensor->partner != PSTI_MAP_NONE && self->layer != last_layer(self, tensor);
}

/* Writes the row once for every tensor that it means. */
static void write_for(expander *self, const psti_profile_row *from, pst_trace_request *row)
{
    const psti_profile_tensor *tensor = &self->profile.tensors[from->tensor];
    const bool is_inside = is_layers((psti_part)from->part) || from->run != 0;
    const bool is_born_inside = is_own(tensor);
    row->id = *id_of(self, from->tensor, is_born_inside ? self->layer : 0);
    if (is_inside && tensor->is_input)
        row->id = input_id(self, from->tensor);
    else if (from->run != 0 && is_once(self, tensor))
        return;
    if (is_inside || !is_born_inside) {
        psti_tape_add(&self->tape, row);
        return;
    }
    if (tensor->partner != PSTI_MAP_NONE) {
        row->id = *id_of(self, from->tensor, last_layer(self, tensor));
        psti_tape_add(&self->tape, row);
        return;
    }
    for (uint32_t i = 0; i < self->layers; i++) {
        const uint32_t layer = tensor->born == PSTI_BACKWARD ? self->layers - 1 - i : i;
        row->id = *id_of(self, from->tensor, layer);
        psti_tape_add(&self->tape, row);
    }
}

/* What is never freed is there once. */
static bool is_left_out(const expander *self, uint64_t tensor)
{
    return self->micro_batch > 0 && self->profile.tensors[tensor].dies == PSTI_NEVER;
}

/* Bytes for as many layers as there are now, 1 to the most that a trace may have. */
static uint64_t grown(const expander *self, uint64_t bytes, uint64_t grow)
{
    const psti_wide now = (psti_wide)bytes + (psti_wide)grow * self->layers;
    const psti_wide less = (psti_wide)grow * self->profile.num_layers;
    if (now <= less)
        return 1;
    return now - less < PST_TRACE_MAX_BYTES ? (uint64_t)(now - less) : PST_TRACE_MAX_BYTES;
}

static void write_malloc(expander *self, const psti_profile_row *from, pst_trace_request *row)
{
    if (is_left_out(self, from->tensor))
        return;
    row->bytes = grown(self, row->bytes, self->profile.tensors[from->tensor].grow);
    row->id = self->tape.num_ids++;
    *id_of(self, from->tensor, self->layer) = row->id;
    psti_tape_add(&self->tape, row);
}

/* ---- events ---- */

/* The number of an event recorded in a part: each layer of each micro-batch has its own. */
static uint64_t event_id(const expander *self, uint64_t event, psti_part recorded, bool is_inside)
{
    const uint64_t outside = recorded == PSTI_FORWARD ? self->layers - 1 : 0;
    const uint64_t layer = is_inside ? self->layer : outside;
    const uint64_t unit = !is_layers(recorded)       ? 0
                          : recorded == PSTI_FORWARD ? 1 + layer
                                                     : 1 + self->layers + layer;
    return (self->micro_batch * (1 + 2 * (uint64_t)self->layers) + unit) * self->num_events + event;
}

static void write_mark(expander *self, uint64_t index, pst_trace_request *row)
{
    const psti_profile_row *from = &self->profile.rows[index];
    const bool is_inside = is_layers((psti_part)from->part);
    const psti_part recorded = (psti_part)self->recorded_in[index];
    if (row->tag == PST_TAG_USE || row->tag == PST_TAG_GROW) {
        if (!is_left_out(self, from->tensor))
            write_for(self, from, row);
        return;
    }
    if (row->tag != PST_TAG_SYNC && recorded == PSTI_NEVER)
        return; /* waits for what was recorded before the profile */
    if (row->tag != PST_TAG_SYNC)
        row->id = event_id(self, self->event_at[index], recorded, is_inside);
    psti_tape_add(&self->tape, row);
}

/* Numbers the events, and says for each wait where the last record before it stands. */
static pst_status find_events(expander *self)
{
    const psti_profile *profile = &self->profile;
    psti_map numbers = {NULL, 0, 0};
    psti_map records = {NULL, 0, 0}; /* event: part of the last record */
    pst_status status = PST_OK;
    for (uint64_t i = 0; i < profile->num_rows && status == PST_OK; i++) {
        const pst_trace_request *row = profile->rows[i].row;
        const bool is_record = row->tag == PST_TAG_RECORD;
        if (row->op != PST_TRACE_MARK || (!is_record && row->tag != PST_TAG_WAIT))
            continue;
        if (psti_map_get(&numbers, row->id) == PSTI_MAP_NONE)
            status = psti_map_set(&numbers, row->id, numbers.num_keys);
        if (status == PST_OK && is_record)
            status = psti_map_set(&records, row->id, profile->rows[i].part);
        const uint64_t part = psti_map_get(&records, row->id);
        self->event_at[i] = psti_map_get(&numbers, row->id);
        self->recorded_in[i] = (uint8_t)(part == PSTI_MAP_NONE ? PSTI_NEVER : part);
    }
    self->num_events = numbers.num_keys;
    psti_map_free(&numbers);
    psti_map_free(&records);
    return status;
}

/* ---- the order ---- */

static uint8_t phase_of(const psti_profile_row *from)
{
    const uint8_t phase = from->row->phase;
    if (from->part == PSTI_FORWARD)
        return PST_PHASE_FORWARD;
    if (from->part == PSTI_BACKWARD)
        return phase == PST_PHASE_WEIGHT ? PST_PHASE_WEIGHT : PST_PHASE_BACKWARD;
    return phase == PST_PHASE_NONE ? PST_PHASE_OTHER : phase;
}

/* The layer of a row of one that is as it was, before or behind those in work. */
static uint32_t beside(const expander *self, const pst_trace_request *row)
{
    const uint32_t first = self->profile.num_before;
    if (first == 0 || row->layer == PST_TRACE_NONE || row->layer < first)
        return first == 0 ? PST_TRACE_NONE : row->layer;
    return row->layer - self->profile.num_layers + self->layers;
}

static void write_row(expander *self, uint64_t index)
{
    const psti_profile_row *from = &self->profile.rows[index];
    const bool has_layer = is_layers((psti_part)from->part) || from->run != 0;
    pst_trace_request row = *from->row;
    row.phase = phase_of(from);
    row.layer = has_layer ? self->profile.num_before + self->layer : beside(self, from->row);
    row.micro_batch = self->micro_batch;
    if (row.op == PST_TRACE_MALLOC)
        write_malloc(self, from, &row);
    else if (row.op == PST_TRACE_FREE)
        write_for(self, from, &row);
    else
        write_mark(self, index, &row);
}

/* From `begin` to the end of the run of rows that are there for each layer, or of the part. */
static uint64_t write_run(expander *self, uint64_t begin, uint64_t end)
{
    uint64_t run_end = begin;
    while (run_end < end && self->profile.rows[run_end].run == self->profile.rows[begin].run)
        run_end++;
    for (self->layer = 0; self->layer < self->layers; self->layer++)
        for (uint64_t i = begin; i < run_end && self->tape.status == PST_OK; i++)
            write_row(self, i);
    self->layer = 0;
    return run_end;
}

static void write_part(expander *self, psti_part part)
{
    const psti_profile *profile = &self->profile;
    const uint64_t end = profile->first[part + 1];
    for (uint64_t i = profile->first[part]; i < end;)
        if (profile->rows[i].run != 0)
            i = write_run(self, i, end);
        else
            write_row(self, i++);
}

static void write_forward(expander *self)
{
    self->layer = 0;
    write_part(self, PSTI_BEFORE);
    for (; self->layer < self->layers && self->tape.status == PST_OK; self->layer++)
        write_part(self, PSTI_FORWARD);
}

static void write_backward(expander *self)
{
    self->layer = 0;
    write_part(self, PSTI_BETWEEN);
    for (self->layer = self->layers; self->layer-- > 0 && self->tape.status == PST_OK;)
        write_part(self, PSTI_BACKWARD);
    self->layer = 0;
    write_part(self, PSTI_AFTER);
}

static psti_pipeline pipeline_of(const pst_trace_expansion *how)
{
    const uint64_t num = how->num_micro_batches;
    if (how->order == PST_ORDER_SEQUENTIAL)
        return psti_pipeline_warmed_up(num, 0);
    return psti_pipeline_1f1b(&(psti_pipeline_shape){
        .num_stages = how->num_stages, .stage = how->stage, .num_micro_batches = num});
}

/* Of the iteration, where the profile begins with that. */
static void write_iteration(expander *self)
{
    const pst_trace *trace = self->trace;
    psti_rows_reader reader = {.of = &trace->rows};
    while (psti_rows_next(&reader) && reader.row.op == PST_TRACE_MARK)
        if (reader.row.tag == PST_TAG_ITERATION) {
            psti_tape_add(&self->tape, &reader.row);
            return;
        }
}

static void write_all(expander *self)
{
    write_iteration(self);
    psti_pipeline pipeline = pipeline_of(self->how);
    psti_pipeline_pass pass;
    while (self->tape.status == PST_OK && psti_pipeline_next(&pipeline, &pass)) {
        self->micro_batch = (uint32_t)pass.micro_batch;
        if (pass.kind == PST_PASS_FORWARD)
            write_forward(self);
        else
            write_backward(self);
    }
}

/* ---- the call ---- */

static void fill(uint32_t *field, uint32_t value)
{
    *field = *field != 0 ? *field : value;
}

static pst_status check(const pst_trace_expansion *how)
{
    PSTI_CHECK(how->num_layers >= 1 && how->num_layers <= MAX_LAYERS, PST_E_INVALID,
               "num_layers %u: allowed is 1..%u", how->num_layers, MAX_LAYERS);
    PSTI_CHECK(how->num_micro_batches <= MAX_MICRO_BATCHES, PST_E_INVALID,
               "num_micro_batches %u: allowed is 0..%u", how->num_micro_batches, MAX_MICRO_BATCHES);
    PSTI_CHECK(how->order == PST_ORDER_SEQUENTIAL || how->order == PST_ORDER_1F1B, PST_E_INVALID,
               "order %d: allowed are sequential and 1f1b", (int)how->order);
    if (how->order == PST_ORDER_SEQUENTIAL)
        return PST_OK;
    PSTI_CHECK(how->num_stages >= 1 && how->num_stages <= MAX_STAGES, PST_E_INVALID,
               "num_stages %u: allowed is 1..%u", how->num_stages, MAX_STAGES);
    PSTI_CHECK(how->stage < how->num_stages, PST_E_INVALID,
               "stage %u: allowed is 0..%u, below num_stages", how->stage, how->num_stages - 1);
    return PST_OK;
}

static pst_status find_layers(const expander *self, psti_layers layers[PSTI_LAYERS_ENDS])
{
    const pst_trace_expansion *how = self->how;
    const uint64_t a = how->forward_begin;
    const uint64_t b = how->forward_end;
    const uint64_t c = how->backward_begin;
    const uint64_t d = how->backward_end;
    if (a == 0 && b == 0 && c == 0 && d == 0)
        return psti_layers_find(self->trace, layers);
    PSTI_CHECK(a < b && b <= c && c < d && d <= self->trace->num_requests, PST_E_INVALID,
               "forward %" PRIu64 ":%" PRIu64 ", backward %" PRIu64 ":%" PRIu64
               ": allowed are ranges of requests, one behind the other, up to %" PRIu64,
               a, b, c, d, self->trace->num_requests);
    layers[0] = (psti_layers){1, a, b - a, c, d - c, 0};
    return PST_OK;
}

static pst_status open_tables(expander *self)
{
    const pst_trace_expansion *how = self->how;
    const psti_pipeline pipeline = pipeline_of(how);
    const psti_profile *profile = &self->profile;
    uint64_t num_ids = 0;
    PSTI_CHECK(how->num_layers > 2 * profile->num_before, PST_E_INVALID,
               "num_layers %u: allowed are %u or more, as %u at either end are not like the others",
               how->num_layers, 2 * profile->num_before + 1, profile->num_before);
    self->layers = how->num_layers - 2 * profile->num_before;
    self->num_flights = (uint32_t)psti_pipeline_most_live(&pipeline);
    const uint64_t num_copies = (uint64_t)self->num_flights * self->layers;
    const bool is_huge = __builtin_mul_overflow(num_copies, profile->num_tensors, &num_ids);
    self->ids =
        is_huge || num_ids > SIZE_MAX ? NULL : psti_calloc((size_t)num_ids, sizeof(*self->ids));
    self->event_at = psti_calloc((size_t)profile->num_rows, sizeof(*self->event_at));
    self->recorded_in = psti_calloc((size_t)profile->num_rows, 1);
    PSTI_CHECK(self->ids != NULL && self->event_at != NULL && self->recorded_in != NULL,
               PST_E_NOMEM, "out of memory for %" PRIu64 " layers of %" PRIu64 " tensors",
               num_copies, profile->num_tensors);
    return find_events(self);
}

/* Where the layers are not alike, those further inside may be. What is said is of the most. */
static pst_status open_profile(expander *self, const psti_layers layers[PSTI_LAYERS_ENDS])
{
    psti_profile *profile = &self->profile;
    const psti_layers *most = NULL;
    for (int ends = 0; ends < PSTI_LAYERS_ENDS; ends++) {
        if (layers[ends].num == 0)
            continue;
        most = most != NULL ? most : &layers[ends];
        const pst_status status = psti_profile_open(profile, self->trace, &layers[ends]);
        if (status != PST_E_INVALID)
            return status;
        psti_profile_close(profile);
    }
    return psti_profile_open(profile, self->trace, most);
}

static pst_status expand(expander *self, pst_trace **trace_out)
{
    psti_layers layers[PSTI_LAYERS_ENDS] = {{.num = 0}};
    PSTI_TRY(find_layers(self, layers));
    PSTI_TRY(open_profile(self, layers));
    PSTI_TRY(open_tables(self));
    write_all(self);
    return psti_tape_close(&self->tape, "expanded", trace_out);
}

pst_status pst_trace_expand(const pst_trace *trace, const pst_trace_expansion *expansion,
                            pst_trace **trace_out)
{
    PSTI_CHECK_HANDLE(trace, TRACE);
    PSTI_CHECK(expansion != NULL && trace_out != NULL, PST_E_INVALID,
               "expansion or trace_out is NULL");
    PSTI_TAKE(pst_trace_expansion, how, expansion);
    fill(&how.num_layers, 1);
    fill(&how.num_micro_batches, 1);
    fill(&how.num_stages, 1);
    PSTI_TRY(check(&how));
    expander self = {.trace = trace, .how = &how};
    psti_tape_open(&self.tape);
    const pst_status status = expand(&self, trace_out);
    psti_profile_close(&self.profile);
    psti_free(self.ids);
    psti_free(self.event_at);
    psti_free(self.recorded_in);
    return status;
}
