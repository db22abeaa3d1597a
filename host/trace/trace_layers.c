/* Finds the layers of a profile, by labels or by what repeats. */
#include <inttypes.h>

#include "host/trace/trace.h"

enum { MAX_SEARCHED = 1 << 14 }; /* requests: the search takes time with their square */

#define HINT "label the layers or give their ranges"

/* ---- by labels ---- */

static bool is_layer_pass(const pst_trace_pass *pass, bool is_forward)
{
    const bool is_of_phase =
        is_forward ? pass->phase == PST_PHASE_FORWARD
                   : pass->phase == PST_PHASE_BACKWARD || pass->phase == PST_PHASE_WEIGHT;
    return is_of_phase && pass->layer != PST_TRACE_NONE;
}

/* The passes of one direction: layers one behind the other, in order or, backward, in reverse. */
typedef struct layer_run {
    const char *name;
    uint32_t num;
    uint64_t begin, second;                     /* where the first two begin */
    uint64_t first_length, length, last_length; /* of the first, of those between, of the last */
    bool is_even;                               /* those between have one length */
} layer_run;

static void end_layer(layer_run *self, uint64_t length, bool is_last)
{
    if (self->num == 1)
        self->first_length = length;
    else if (self->num == 2 && !is_last)
        self->length = length;
    else if (!is_last && self->length != length)
        self->is_even = false;
    if (is_last)
        self->last_length = length;
}

static pst_status find_run(const pst_trace *trace, bool is_forward, layer_run *found)
{
    const uint64_t step = is_forward ? 1 : UINT64_MAX; /* of the layer's number */
    const pst_trace_pass *last = NULL;
    uint64_t own = 0; /* of the layer in work */
    *found = (layer_run){.name = is_forward ? "forward" : "backward", .is_even = true};
    for (uint64_t i = 0; i < trace->num_passes; i++) {
        const pst_trace_pass *pass = &trace->passes[i];
        if (!is_layer_pass(pass, is_forward))
            continue;
        const bool goes_on =
            last != NULL && last->end == pass->begin && last->micro_batch == pass->micro_batch;
        PSTI_CHECK(last == NULL || goes_on, PST_E_INVALID,
                   "the %s of layer %u at request %" PRIu64 ": allowed is one run of all layers of "
                   "one micro-batch",
                   found->name, pass->layer, pass->begin);
        if (last == NULL || last->layer != pass->layer) {
            PSTI_CHECK(last == NULL || pass->layer == last->layer + step, PST_E_INVALID,
                       "the %s of layer %u follows that of layer %u: allowed is layer %" PRIu64,
                       found->name, pass->layer, last->layer, last->layer + step);
            if (last != NULL)
                end_layer(found, own, false);
            found->begin = last == NULL ? pass->begin : found->begin;
            found->second = found->num == 1 ? pass->begin : found->second;
            found->num++;
            own = 0;
        }
        own += pass->end - pass->begin;
        last = pass;
    }
    end_layer(found, own, true);
    return PST_OK;
}

static bool is_uniform(const layer_run *self)
{
    const bool is_inside_alike = self->is_even && self->length == self->first_length;
    return self->num > 0 && self->last_length == self->first_length &&
           (self->num <= 2 || is_inside_alike);
}

static pst_status find_labelled(const pst_trace *trace, psti_layers *all, psti_layers *inner)
{
    layer_run forward;
    layer_run backward;
    PSTI_TRY(find_run(trace, true, &forward));
    PSTI_TRY(find_run(trace, false, &backward));
    const bool has_inside = forward.num >= 3 && forward.is_even && backward.is_even;
    for (int i = 0; i < 2; i++) {
        const layer_run *at = i == 0 ? &forward : &backward;
        PSTI_CHECK(at->num > 0 && (has_inside || is_uniform(at)), PST_E_INVALID,
                   "the %s of the last layer has %" PRIu64 " requests: allowed are as many as the "
                   "first has, and at least 1",
                   at->name, at->last_length);
    }
    PSTI_CHECK(backward.num == forward.num, PST_E_INVALID,
               "%u layers backward: allowed are %u, as forward", backward.num, forward.num);
    if (is_uniform(&forward) && is_uniform(&backward))
        *all = (psti_layers){forward.num,    forward.begin,         forward.first_length,
                             backward.begin, backward.first_length, 0};
    if (has_inside)
        *inner = (psti_layers){forward.num - 2, forward.second,  forward.length,
                               backward.second, backward.length, 1};
    return PST_OK;
}

/* ---- by repetition ---- */

typedef struct repetition {
    uint64_t begin, period, slack; /* it could begin up to `slack` later */
    uint64_t num;
} repetition;

/* What makes two requests alike, by instant. */
static void hash_requests(const pst_trace *trace, uint64_t *tokens)
{
    for (uint64_t i = 0; i < trace->num_tensors; i++) {
        const pst_trace_tensor *tensor = &trace->tensors[i];
        tokens[tensor->begin] = tensor->bytes << 1 | 1;
        if (!tensor->never_freed)
            tokens[tensor->end] = tensor->bytes << 1;
    }
}

static bool overlaps(const repetition *run, uint64_t begin, uint64_t end)
{
    return run->num > 0 && begin < run->begin + run->num * run->period + run->slack &&
           run->begin < end;
}

/* The repetition that covers most and does not touch `other`, of the same number of layers. */
static repetition longest(const uint64_t *tokens, uint64_t num_tokens, const repetition *other)
{
    repetition best = {0, 0, 0, 0};
    for (uint64_t period = 1; period <= num_tokens / 2; period++) {
        uint64_t run = 0;
        for (uint64_t i = 0; i + period <= num_tokens; i++) {
            const bool is_same = i + period < num_tokens && tokens[i] == tokens[i + period];
            const uint64_t num = run / period + 1;
            const uint64_t begin = i - run;
            if (!is_same && run >= period && num * period > best.num * best.period &&
                (other->num == 0 || num == other->num) && !overlaps(other, begin, i + period))
                best = (repetition){begin, period, run % period, num};
            run = is_same ? run + 1 : 0;
        }
    }
    return best;
}

/* The border between the first two layers that fewest tensors cross. */
static uint64_t best_begin(const pst_trace *trace, const repetition *run)
{
    uint64_t best = 0;
    uint64_t fewest = UINT64_MAX;
    for (uint64_t shift = 0; shift <= run->slack; shift++) {
        const uint64_t border = run->begin + shift + run->period;
        uint64_t num = 0;
        for (uint64_t i = 0; i < trace->num_tensors; i++)
            num += trace->tensors[i].begin < border && border <= trace->tensors[i].end;
        if (num < fewest) {
            fewest = num;
            best = run->begin + shift;
        }
    }
    return best;
}

static pst_status find_repetitions(const pst_trace *trace, const uint64_t *tokens,
                                   psti_layers *layers)
{
    const repetition none = {0, 0, 0, 0};
    repetition forward = longest(tokens, trace->num_requests, &none);
    PSTI_CHECK(forward.num > 0, PST_E_INVALID, "no layers that repeat: " HINT);
    repetition backward = longest(tokens, trace->num_requests, &forward);
    PSTI_CHECK(backward.num > 0, PST_E_INVALID,
               "%" PRIu64 " layers that repeat at request %" PRIu64 ", and no second run of as "
               "many: " HINT,
               forward.num, forward.begin);
    /* in a profile of several layers they are most of it; short runs are found in anything */
    PSTI_CHECK(
        2 * (forward.num * forward.period + backward.num * backward.period) >= trace->num_requests,
        PST_E_INVALID,
        "what repeats, at requests %" PRIu64 " and %" PRIu64 ", is not half of the trace: " HINT,
        forward.begin, backward.begin);
    if (backward.begin < forward.begin) {
        const repetition swap = forward;
        forward = backward;
        backward = swap;
    }
    *layers = (psti_layers){(uint32_t)forward.num, best_begin(trace, &forward),
                            forward.period,        best_begin(trace, &backward),
                            backward.period,       0};
    return PST_OK;
}

static pst_status search(const pst_trace *trace, psti_layers *layers)
{
    PSTI_CHECK(trace->num_requests <= MAX_SEARCHED, PST_E_INVALID,
               "%" PRIu64 " requests without layers: allowed are %d: " HINT, trace->num_requests,
               MAX_SEARCHED);
    uint64_t *tokens = psti_calloc((size_t)trace->num_requests, sizeof(*tokens));
    PSTI_CHECK(tokens != NULL, PST_E_NOMEM, "out of memory for %" PRIu64 " requests",
               trace->num_requests);
    hash_requests(trace, tokens);
    const pst_status status = find_repetitions(trace, tokens, layers);
    psti_free(tokens);
    return status;
}

pst_status psti_layers_find(const pst_trace *trace, psti_layers *layers_out, psti_layers *inner_out)
{
    psti_layers all = {0};
    psti_layers inner = {0};
    bool has_labels = false;
    for (uint64_t i = 0; i < trace->num_passes; i++)
        has_labels = has_labels || trace->passes[i].layer != PST_TRACE_NONE;
    PSTI_TRY(has_labels ? find_labelled(trace, &all, &inner) : search(trace, &all));
    *layers_out = all;
    *inner_out = inner;
    return PST_OK;
}
