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
    uint64_t *begins; /* of each, as they come; and where the last ends */
} layer_run;

static pst_status find_run(const pst_trace *trace, bool is_forward, layer_run *found)
{
    const uint64_t step = is_forward ? 1 : UINT64_MAX; /* of the layer's number */
    const pst_trace_pass *last = NULL;
    found->name = is_forward ? "forward" : "backward";
    found->begins = psti_calloc((size_t)trace->num_passes + 1, sizeof(*found->begins));
    PSTI_CHECK(found->begins != NULL, PST_E_NOMEM, "out of memory for %" PRIu64 " passes",
               trace->num_passes);
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
            found->begins[found->num++] = pass->begin;
        }
        found->begins[found->num] = pass->end;
        last = pass;
    }
    return PST_OK;
}

static uint64_t length_of(const layer_run *self, uint32_t layer)
{
    return self->num > layer ? self->begins[layer + 1] - self->begins[layer] : 0;
}

/* Whether those that are left without so many at either end are of one length. */
static bool is_even(const layer_run *self, uint32_t ends)
{
    for (uint32_t i = ends; i + ends < self->num; i++)
        if (length_of(self, i) != length_of(self, ends))
            return false;
    return self->num > 2 * ends;
}

static pst_status choose(const layer_run *forward, const layer_run *backward, psti_layers *layers)
{
    bool is_any = false;
    for (uint32_t ends = 0; ends < PSTI_LAYERS_ENDS; ends++) {
        if (forward->num != backward->num || !is_even(forward, ends) || !is_even(backward, ends))
            continue;
        layers[ends] = (psti_layers){forward->num - 2 * ends,   forward->begins[ends],
                                     length_of(forward, ends),  backward->begins[ends],
                                     length_of(backward, ends), ends};
        is_any = true;
    }
    if (is_any)
        return PST_OK;
    for (int i = 0; i < 2; i++) {
        const layer_run *at = i == 0 ? forward : backward;
        PSTI_CHECK(is_even(at, 0), PST_E_INVALID,
                   "the %s of the last layer has %" PRIu64 " requests: allowed are as many as the "
                   "first has, and at least 1",
                   at->name, at->num > 0 ? length_of(at, at->num - 1) : 0);
    }
    return PSTI_FAIL(PST_E_INVALID, "%u layers backward: allowed are %u, as forward", backward->num,
                     forward->num);
}

static pst_status find_labelled(const pst_trace *trace, psti_layers *layers)
{
    layer_run forward = {.begins = NULL};
    layer_run backward = {.begins = NULL};
    pst_status status = find_run(trace, true, &forward);
    if (status == PST_OK)
        status = find_run(trace, false, &backward);
    if (status == PST_OK)
        status = choose(&forward, &backward, layers);
    psti_free(forward.begins);
    psti_free(backward.begins);
    return status;
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

pst_status psti_layers_find(const pst_trace *trace, psti_layers layers_out[PSTI_LAYERS_ENDS])
{
    bool has_labels = false;
    for (uint32_t ends = 0; ends < PSTI_LAYERS_ENDS; ends++)
        layers_out[ends] = (psti_layers){.num = 0};
    for (uint64_t i = 0; i < trace->num_passes; i++)
        has_labels = has_labels || trace->passes[i].layer != PST_TRACE_NONE;
    return has_labels ? find_labelled(trace, layers_out) : search(trace, &layers_out[0]);
}
