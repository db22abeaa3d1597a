/* Cuts a profile into one layer, and what comes before, between and after its passes. */
#include <inttypes.h>

#include "host/trace/trace.h"

#define NO_TENSOR PSTI_MAP_NONE

/* Where a request stands: in which part, in which layer's, and how far from its begin. */
typedef struct spot {
    psti_part part;
    uint64_t layer, offset;
} spot;

typedef struct cutter {
    const pst_trace *trace;
    const psti_layers *layers;
    psti_profile *profile;
    uint64_t *tensor_at; /* by instant */
    uint64_t num_runs;   /* of rows that are there for each layer */
    bool is_in_run;      /* the row before is of the last of them */
} cutter;

static spot spot_of(const psti_layers *layers, uint64_t instant)
{
    const uint64_t forward_end = layers->forward + layers->num * layers->forward_length;
    const uint64_t backward_end = layers->backward + layers->num * layers->backward_length;
    spot at = {PSTI_BEFORE, 0, instant};
    if (instant >= layers->forward && instant < forward_end) {
        at.part = PSTI_FORWARD;
        at.layer = (instant - layers->forward) / layers->forward_length;
        at.offset = (instant - layers->forward) % layers->forward_length;
    } else if (instant >= layers->backward && instant < backward_end) {
        at.part = PSTI_BACKWARD;
        at.layer = layers->num - 1 - (instant - layers->backward) / layers->backward_length;
        at.offset = (instant - layers->backward) % layers->backward_length;
    } else if (instant >= backward_end) {
        at.part = PSTI_AFTER;
    } else if (instant >= forward_end) {
        at.part = PSTI_BETWEEN;
    }
    return at;
}

/* The instant of the same request in another layer. */
static uint64_t instant_in(const psti_layers *layers, const spot *at, uint64_t layer)
{
    if (at->part == PSTI_FORWARD)
        return layers->forward + layer * layers->forward_length + at->offset;
    return layers->backward + (layers->num - 1 - layer) * layers->backward_length + at->offset;
}

static spot birth_of(const cutter *self, uint64_t tensor)
{
    return spot_of(self->layers, self->trace->tensors[tensor].begin);
}

static spot death_of(const cutter *self, uint64_t tensor)
{
    const pst_trace_tensor *at = &self->trace->tensors[tensor];
    if (at->never_freed)
        return (spot){PSTI_NEVER, 0, 0};
    return spot_of(self->layers, at->end);
}

static bool is_layers(psti_part part)
{
    return part == PSTI_FORWARD || part == PSTI_BACKWARD;
}

/* Layer 0's request against that of every other layer. */
static pst_status check_alike(const cutter *self)
{
    const psti_layers *layers = self->layers;
    for (uint64_t i = 0; i < self->trace->num_requests; i++) {
        const spot at = spot_of(layers, i);
        if (!is_layers(at.part) || at.layer == 0)
            continue;
        const uint64_t first = instant_in(layers, &at, 0);
        const pst_trace_tensor *own = &self->trace->tensors[self->tensor_at[i]];
        const pst_trace_tensor *other = &self->trace->tensors[self->tensor_at[first]];
        PSTI_CHECK(own->bytes == other->bytes && own->stream == other->stream &&
                       own->tag == other->tag && (own->begin == i) == (other->begin == first),
                   PST_E_INVALID,
                   "request %" PRIu64 " of layer %" PRIu64 " is unlike request %" PRIu64
                   " of layer 0: allowed are layers that are alike",
                   i, at.layer, first);
    }
    return PST_OK;
}

/* A tensor of a layer against that of the first to come, forward layer 0, backward the last: it
 * ends where that one does, in its own layer or in the next; behind the last layer that is outside. */
static bool ends_alike(const cutter *self, uint64_t tensor)
{
    const uint64_t num = self->layers->num;
    const spot birth = birth_of(self, tensor);
    const uint64_t first = birth.part == PSTI_FORWARD ? 0 : num - 1;
    const spot own = death_of(self, tensor);
    const spot other = death_of(self, self->tensor_at[instant_in(self->layers, &birth, first)]);
    if (!is_layers(other.part))
        return own.part == other.part;
    const uint64_t step = other.layer - first; /* 0, 1 or, backward, -1 */
    if (step != 0 && step != (birth.part == PSTI_FORWARD ? 1 : UINT64_MAX))
        return false;
    if (birth.layer + step >= num)
        return !is_layers(own.part);
    return own.part == other.part && own.layer == birth.layer + step && own.offset == other.offset;
}

static pst_status check_lives(const cutter *self)
{
    for (uint64_t i = 0; i < self->trace->num_tensors; i++) {
        const pst_trace_tensor *tensor = &self->trace->tensors[i];
        PSTI_CHECK(!is_layers(birth_of(self, i).part) || ends_alike(self, i), PST_E_INVALID,
                   "tensor %" PRIu64 " of line %" PRIu64 " is not freed where that of the first "
                   "layer is: allowed are layers that are alike",
                   tensor->id, tensor->line);
    }
    return PST_OK;
}

enum { OUTSIDE, CUT_OUT, LIKE_IT };

/* What stands outside the layers, and is labelled with one: is that the layer that is cut out? */
static int role_of(const cutter *self, uint8_t phase, uint32_t layer)
{
    const uint32_t first = self->layers->num_before;
    if (phase != PST_PHASE_OTHER || layer < first || layer - first >= self->layers->num)
        return OUTSIDE;
    return layer == first ? CUT_OUT : LIKE_IT;
}

/* ---- which tensor a request of the profile means; NO_TENSOR: the request is left out ---- */

/* A tensor of a layer that is not cut out, freed outside the layers: the last layer's output stands
 * for that of layer 0, and what all layers leave for later is there once. */
static uint64_t stand_in(const cutter *self, uint64_t tensor)
{
    const spot birth = birth_of(self, tensor);
    const uint64_t first = self->tensor_at[instant_in(self->layers, &birth, 0)];
    const psti_part dies = death_of(self, first).part;
    const bool is_handed_on = birth.part == PSTI_FORWARD && is_layers(dies);
    return is_handed_on && birth.layer == self->layers->num - 1 ? first : NO_TENSOR;
}

/* A tensor that layer 0's backward got from layer 1's: what the last layer's backward got from
 * outside stands for it. */
static uint64_t from_outside(const cutter *self, uint64_t tensor)
{
    const spot at = death_of(self, tensor);
    if (at.part != PSTI_BACKWARD || at.layer != 0)
        return tensor;
    return self->tensor_at[instant_in(self->layers, &at, self->layers->num - 1)];
}

static uint64_t meant(const cutter *self, uint64_t tensor, psti_part part)
{
    const spot birth = birth_of(self, tensor);
    const pst_trace_tensor *at = &self->trace->tensors[tensor];
    if (!is_layers(birth.part) && role_of(self, at->phase, at->layer) == LIKE_IT)
        return NO_TENSOR;
    if (!is_layers(birth.part) || birth.layer == 0)
        return tensor;
    if (!is_layers(part))
        return stand_in(self, tensor);
    return birth.part == PSTI_BACKWARD ? from_outside(self, tensor) : tensor;
}

/* ---- the rows ---- */

/* What the row says of its tensor. */
static void note(const pst_trace_request *row, psti_profile_tensor *tensor, psti_part part,
                 uint64_t run)
{
    if (row->op == PST_TRACE_MALLOC) {
        tensor->born = (uint8_t)part;
        tensor->born_run = run;
    } else if (row->op == PST_TRACE_FREE) {
        tensor->dies = (uint8_t)part;
        tensor->death_run = run;
    } else if (row->tag == PST_TAG_GROW) {
        tensor->grow = row->bytes;
    }
}

/* `before`: the requests before the row. */
static pst_status add_row(cutter *self, const pst_trace_request *row, uint64_t before,
                          const psti_map *ids)
{
    psti_profile *profile = self->profile;
    const bool is_mark = row->op == PST_TRACE_MARK;
    const uint64_t instant = is_mark && before > 0 ? before - 1 : before;
    spot at = spot_of(self->layers, instant);
    uint64_t tensor = NO_TENSOR;
    if (is_mark && before == 0)
        at = (spot){PSTI_BEFORE, 0, 0};
    if ((is_layers(at.part) && at.layer != 0) || (is_mark && row->tag == PST_TAG_ITERATION))
        return PST_OK;
    const int role = is_layers(at.part) ? OUTSIDE : role_of(self, row->phase, row->layer);
    const bool is_each = role == CUT_OUT;
    if (role == LIKE_IT) {
        self->is_in_run = false;
        return PST_OK;
    }
    if (!is_mark || row->tag == PST_TAG_USE || row->tag == PST_TAG_GROW) {
        tensor = is_mark ? psti_map_get(ids, row->id) : self->tensor_at[instant];
        tensor = meant(self, tensor, at.part);
        if (tensor == NO_TENSOR)
            return PST_OK;
    }
    if (is_each && !self->is_in_run)
        self->num_runs++;
    self->is_in_run = is_each;
    const uint64_t run = is_each ? self->num_runs : 0;
    profile->rows[profile->num_rows++] = (psti_profile_row){row, tensor, (uint8_t)at.part, run};
    if (tensor != NO_TENSOR)
        note(row, &profile->tensors[tensor], at.part, run);
    PSTI_CHECK(tensor == NO_TENSOR || profile->tensors[tensor].born != PSTI_NEVER, PST_E_INVALID,
               "line %" PRIu64 ": tensor %" PRIu64 " is of a layer other than the first: allowed "
               "are layers that are alike",
               row->line, row->id);
    return PST_OK;
}

static pst_status add_rows(cutter *self, psti_map *ids)
{
    const pst_trace *trace = self->trace;
    uint64_t before = 0;
    for (uint64_t i = 0; i < trace->num_tensors; i++)
        PSTI_TRY(psti_map_set(ids, trace->tensors[i].id, i));
    const pst_trace_request *rows = pst_trace_rows(trace);
    if (rows == NULL && trace->rows.num > 0)
        return PST_E_NOMEM;
    for (uint64_t i = 0; i < trace->rows.num; i++) {
        PSTI_TRY(add_row(self, &rows[i], before, ids));
        before += rows[i].op != PST_TRACE_MARK;
    }
    return PST_OK;
}

/* What is freed in the profile, and where that is left out, leaves a tensor without an end. */
static pst_status check_ends(const cutter *self)
{
    const psti_profile *profile = self->profile;
    for (uint64_t i = 0; i < profile->num_tensors; i++) {
        const psti_profile_tensor *tensor = &profile->tensors[i];
        const pst_trace_tensor *from = &self->trace->tensors[i];
        PSTI_CHECK(tensor->born == PSTI_NEVER || tensor->dies != PSTI_NEVER || from->never_freed,
                   PST_E_INVALID,
                   "tensor %" PRIu64 " of line %" PRIu64 " is freed by a layer that did not get it "
                   "as layer 0 did: allowed are layers that are alike",
                   from->id, from->line);
    }
    return PST_OK;
}

static pst_status cut(cutter *self)
{
    const pst_trace *trace = self->trace;
    psti_profile *profile = self->profile;
    psti_map ids = {NULL, 0, 0};
    for (uint64_t i = 0; i < trace->num_tensors; i++) {
        profile->tensors[i] =
            (psti_profile_tensor){.born = PSTI_NEVER, .dies = PSTI_NEVER, .partner = NO_TENSOR};
        self->tensor_at[trace->tensors[i].begin] = i;
        if (!trace->tensors[i].never_freed)
            self->tensor_at[trace->tensors[i].end] = i;
    }
    PSTI_TRY(check_alike(self));
    PSTI_TRY(check_lives(self));
    const pst_status status = add_rows(self, &ids);
    psti_map_free(&ids);
    PSTI_TRY(status);
    PSTI_TRY(check_ends(self));
    for (int part = 0; part <= PSTI_NEVER; part++)
        profile->first[part] = profile->num_rows;
    for (uint64_t i = profile->num_rows; i-- > 0;)
        for (int part = profile->rows[i].part; part >= 0; part--)
            profile->first[part] = i;
    return psti_profile_link(profile, trace);
}

pst_status psti_profile_open(psti_profile *profile, const pst_trace *trace,
                             const psti_layers *layers)
{
    cutter self = {trace, layers, profile, NULL, 0, false};
    *profile = (psti_profile){.num_tensors = trace->num_tensors,
                              .num_layers = layers->num,
                              .num_before = layers->num_before};
    profile->rows = psti_calloc((size_t)trace->rows.num, sizeof(*profile->rows));
    profile->tensors = psti_calloc((size_t)trace->num_tensors, sizeof(*profile->tensors));
    self.tensor_at = psti_calloc((size_t)trace->num_requests, sizeof(*self.tensor_at));
    pst_status status = PST_OK;
    if (profile->rows == NULL || profile->tensors == NULL || self.tensor_at == NULL)
        status = PSTI_FAIL(PST_E_NOMEM, "out of memory for %" PRIu64 " rows", trace->rows.num);
    else
        status = cut(&self);
    psti_free(self.tensor_at);
    return status;
}

void psti_profile_close(psti_profile *profile)
{
    psti_free(profile->rows);
    psti_free(profile->tensors);
    *profile = (psti_profile){.rows = NULL};
}
