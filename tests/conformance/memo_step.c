/* What the small model's layers do, with the scheduler's hooks around them and without. */
#include "tests/conformance/memo.h"

/* ---- arithmetic ---- */

static pst_status copy(const memo *self, void *to, const void *from, uint64_t bytes)
{
    return bytes ? pst_device_copy(self->device, to, from, (size_t)bytes, self->stream) : PST_OK;
}

/* An input's bytes, turned around by some. */
static pst_status turn(const memo *self, unsigned char *to, const unsigned char *from, uint64_t by)
{
    by %= MEMO_INPUT;
    MEMO_TRY(copy(self, to, from + by, MEMO_INPUT - by));
    return copy(self, to + MEMO_INPUT - by, from, by);
}

static pst_status attend(const memo *self, uint32_t l, unsigned char *to,
                         const unsigned char *input)
{
    for (uint32_t p = 0; p < self->wish.layers[l].planes; p++)
        MEMO_TRY(turn(self, to + (size_t)p * MEMO_INPUT, input, 1 + 7 * l + 131 * p));
    return PST_OK;
}

/* Where a dense layer's token rows lie. */
static unsigned char *rows_of(const memo *self, uint32_t l, unsigned char *base)
{
    return base + memo_whole_bytes(&self->wish.layers[l]);
}

/* The token-wise part, of tokens [first, MEMO_TOKENS). */
static pst_status run_tokens(const memo *self, uint32_t l, unsigned char *base, uint64_t first)
{
    const memo_layer *layer = &self->wish.layers[l];
    const unsigned char *from = layer->has_whole ? base + MEMO_INPUT : self->attention;
    const uint64_t row = memo_token_bytes(layer);
    return copy(self, rows_of(self, l, base) + first * row, from + first * row,
                (MEMO_TOKENS - first) * row);
}

static unsigned char *input_of(const memo *self, uint32_t l, uint32_t m)
{
    return memo_at(self, self->inputs, MEMO_INPUT, l, m);
}

static pst_status run_dense(const memo *self, uint32_t l, unsigned char *base,
                            const unsigned char *input)
{
    const bool has_whole = self->wish.layers[l].has_whole;
    MEMO_TRY(pst_device_fill(self->device, base, 0xdd, MEMO_DENSE, self->stream));
    if (has_whole)
        MEMO_TRY(copy(self, base, input, MEMO_INPUT));
    MEMO_TRY(attend(self, l, has_whole ? base + MEMO_INPUT : self->attention, input));
    return run_tokens(self, l, base, 0);
}

static pst_status forward_dense(const memo *self, uint32_t l, uint32_t m, unsigned char *base)
{
    unsigned char *hidden = memo_at(self, self->hidden, MEMO_INPUT, 0, m);
    MEMO_TRY(copy(self, input_of(self, l, m), hidden, MEMO_INPUT)); /* who keeps nothing whole */
    MEMO_TRY(run_dense(self, l, base, hidden));
    return turn(self, hidden, rows_of(self, l, base), l + 1);
}

/* The tokens that were dropped, once more. */
static pst_status recompute_tokens(const memo *self, uint32_t l, uint32_t m, unsigned char *base,
                                   uint64_t first)
{
    if (!self->wish.layers[l].has_whole)
        MEMO_TRY(attend(self, l, self->attention, input_of(self, l, m)));
    return run_tokens(self, l, base, first);
}

static unsigned char *answer_of(const memo *self, uint32_t l, uint32_t m)
{
    return memo_at(self, self->answers, MEMO_DENSE, l, m);
}

/* Adds to the gradient of the layer's weights: of which this is one word. */
static pst_status accumulate(const memo *self, const pst_group *group, uint32_t l,
                             void *const *bases, const void *count)
{
    const pst_pattern pattern = {.seed = 3, .key = l};
    pst_buffers buffers = PST_BUFFERS_INIT;
    uint64_t *sums =
        (uint64_t *)(void *)(self->gradient + (size_t)self->num_micro_batches * MEMO_INPUT);
    buffers.bases = bases;
    buffers.counts = &count;
    return pst_group_verify(self->device, group, &buffers, &pattern, PST_VERIFY_ANY, sums + l,
                            self->stream);
}

static pst_status backward_dense(const memo *self, uint32_t l, uint32_t m, unsigned char *base)
{
    const memo_layer *layer = &self->wish.layers[l];
    unsigned char *gradient = memo_at(self, self->gradient, MEMO_INPUT, 0, m);
    unsigned char *rows = rows_of(self, l, base);
    void *const bases[] = {rows};
    MEMO_TRY(copy(self, answer_of(self, l, m), base,
                  memo_whole_bytes(layer) + MEMO_TOKENS * memo_token_bytes(layer)));
    MEMO_TRY(turn(self, self->turned, gradient, 3 * l + 5));
    MEMO_TRY(copy(self, self->turned + MEMO_INPUT / 2,
                  rows + MEMO_TOKENS * memo_token_bytes(layer) - MEMO_INPUT / 2, MEMO_INPUT / 2));
    MEMO_TRY(copy(self, gradient, self->turned, MEMO_INPUT));
    MEMO_TRY(accumulate(self, self->rows_group, l, bases, self->rows + layer->planes));
    return pst_device_fill(self->device, base, 0xbb, MEMO_DENSE, self->stream);
}

static pst_status forward_experts(const memo *self, uint32_t l, uint32_t m, unsigned char *base)
{
    unsigned char *hidden = memo_at(self, self->hidden, MEMO_INPUT, 0, m);
    MEMO_TRY(copy(self, base, memo_experts(self, self->data, l, m), MEMO_EXPERTS));
    MEMO_TRY(copy(self, hidden + MEMO_INPUT / 2, base, MEMO_INPUT / 2));
    MEMO_TRY(turn(self, self->turned, hidden, l + 11));
    return copy(self, hidden, self->turned, MEMO_INPUT);
}

static pst_status backward_experts(const memo *self, uint32_t l, uint32_t m, unsigned char *base)
{
    unsigned char *gradient = memo_at(self, self->gradient, MEMO_INPUT, 0, m);
    void *const bases[MEMO_TENSORS] = {base, base + (size_t)MEMO_ROWS * MEMO_ROW,
                                       base + (size_t)(MEMO_ROWS + MEMO_ROWS / 4) * MEMO_ROW};
    MEMO_TRY(copy(self, answer_of(self, l, m), base, MEMO_EXPERTS));
    MEMO_TRY(copy(self, gradient + MEMO_INPUT / 4, base + MEMO_ROW, MEMO_INPUT / 4));
    MEMO_TRY(accumulate(self, self->experts_group, l, bases, memo_count(self, self->data, l, m)));
    return pst_device_fill(self->device, base, 0xbb, MEMO_EXPERTS, self->stream);
}

static pst_status begin_pass(const memo *self, bool is_forward, uint32_t m)
{
    unsigned char *hidden = memo_at(self, self->hidden, MEMO_INPUT, 0, m);
    if (is_forward)
        return copy(self, hidden, memo_tokens(self, self->data, m), MEMO_INPUT);
    return copy(self, memo_at(self, self->gradient, MEMO_INPUT, 0, m), hidden, MEMO_INPUT);
}

static pst_status begin_answers(const memo *self)
{
    return pst_device_fill(self->device, self->answers, 0, (size_t)self->answer_bytes,
                           self->stream);
}

/* ---- with everything kept ---- */

pst_status memo_keep_all(memo *self)
{
    MEMO_TRY(begin_answers(self));
    for (uint32_t m = 0; m < self->schedule->chunks[0].num_micro_batches; m++)
        for (uint32_t i = 0; i < 2 * self->wish.num_layers; i++) {
            const bool is_forward = i < self->wish.num_layers;
            const uint32_t l = is_forward ? i : 2 * self->wish.num_layers - 1 - i;
            const bool is_paged = self->wish.layers[l].keep == PST_KEEP_PAGED;
            unsigned char *base = memo_at(self, self->kept, MEMO_DENSE, l, m);
            if (i % self->wish.num_layers == 0)
                MEMO_TRY(begin_pass(self, is_forward, m));
            if (is_forward)
                MEMO_TRY((is_paged ? forward_experts : forward_dense)(self, l, m, base));
            else
                MEMO_TRY((is_paged ? backward_experts : backward_dense)(self, l, m, base));
        }
    MEMO_TRY(copy(self, self->wanted, self->answers, self->answer_bytes));
    return pst_stream_synchronize(self->device, self->stream);
}

/* ---- with hooks ---- */

static unsigned char *dense_base(const memo *self, uint32_t l, uint32_t m, const pst_visit *said)
{
    switch (self->wish.layers[l].keep) {
    case PST_KEEP_SWAPPED:
        return self->rounding[said->set];
    case PST_KEEP_PLANNED:
        return memo_at(self, self->planned, MEMO_DENSE, l, m);
    default:
        return self->work;
    }
}

static pst_status forward(memo *self, uint32_t l, uint32_t m)
{
    pst_visit *said = &self->said[0][l][m];
    MEMO_TRY(pst_scheduler_forward_begin(self->scheduler, 0, l, m, self->stream, said));
    if (self->wish.layers[l].keep == PST_KEEP_PAGED) {
        MEMO_TRY(copy(self, self->source_counts[said->set], memo_count(self, self->data, l, m),
                      sizeof(int64_t)));
        MEMO_TRY(forward_experts(self, l, m, self->sources[said->set]));
    } else {
        MEMO_TRY(forward_dense(self, l, m, dense_base(self, l, m, said)));
    }
    return pst_scheduler_forward_end(self->scheduler, 0, l, m, NULL, self->stream);
}

/* A RECOMPUTED layer's forward again, inside its backward. */
static pst_status recompute_layer(const memo *self, uint32_t l, uint32_t m, unsigned char *base)
{
    pst_visit again;
    MEMO_TRY(pst_scheduler_forward_begin(self->scheduler, 0, l, m, self->stream, &again));
    MEMO_TRY(run_dense(self, l, base, input_of(self, l, m)));
    return pst_scheduler_forward_end(self->scheduler, 0, l, m, NULL, self->stream);
}

static pst_status backward(memo *self, uint32_t l, uint32_t m)
{
    pst_visit *said = &self->said[1][l][m];
    const pst_keep keep = self->wish.layers[l].keep;
    MEMO_TRY(pst_scheduler_backward_begin(self->scheduler, PST_PASS_BACKWARD, 0, l, m, self->stream,
                                          said));
    if (keep == PST_KEEP_PAGED) {
        MEMO_TRY(backward_experts(
            self, l, m, (said->in_place ? self->sources : self->destinations)[said->set]));
    } else {
        unsigned char *base = dense_base(self, l, m, said);
        if (keep == PST_KEEP_RECOMPUTED)
            MEMO_TRY(recompute_layer(self, l, m, base));
        else if (said->first_token != UINT64_MAX)
            MEMO_TRY(recompute_tokens(self, l, m, base, said->first_token));
        MEMO_TRY(backward_dense(self, l, m, base));
    }
    return pst_scheduler_backward_end(self->scheduler, PST_PASS_BACKWARD, 0, l, m, self->stream);
}

pst_status memo_part_of_step(memo *self, uint32_t num_visits)
{
    pst_step_options options = PST_STEP_OPTIONS_INIT;
    const uint32_t num = self->wish.num_layers;
    options.num_micro_batches = self->schedule->chunks[0].num_micro_batches;
    self->num_copies = 0;
    MEMO_TRY(pst_pool_reset(self->pool, PST_RESET_FAULTS | PST_RESET_STATISTICS, self->stream));
    MEMO_TRY(begin_answers(self));
    MEMO_TRY(pst_scheduler_step_begin(self->scheduler, &options, self->stream));
    for (uint32_t i = 0; i < num_visits; i++) {
        const pst_pass *pass = &self->schedule->passes[i / num];
        const bool is_forward = pass->kind == PST_PASS_FORWARD;
        if (i % num == 0)
            MEMO_TRY(begin_pass(self, is_forward, pass->micro_batch));
        if (is_forward)
            MEMO_TRY(forward(self, i % num, pass->micro_batch));
        else
            MEMO_TRY(backward(self, num - 1 - i % num, pass->micro_batch));
    }
    return PST_OK;
}

pst_status memo_step(memo *self)
{
    const uint64_t visits = self->schedule->num_passes * self->wish.num_layers;
    MEMO_TRY(memo_part_of_step(self, (uint32_t)visits));
    return pst_scheduler_step_end(self->scheduler, self->stream);
}

pst_status memo_evaluate(memo *self)
{
    pst_step_options options = PST_STEP_OPTIONS_INIT;
    options.forward_only = true;
    self->num_copies = 0;
    MEMO_TRY(pst_scheduler_step_begin(self->scheduler, &options, self->stream));
    MEMO_TRY(begin_pass(self, true, 0));
    for (uint32_t l = 0; l < self->wish.num_layers; l++)
        MEMO_TRY(forward(self, l, 0));
    MEMO_TRY(pst_scheduler_step_end(self->scheduler, self->stream));
    if (self->num_copies > 0)
        psti_test_fail(__FILE__, __LINE__, "an evaluation swaps or stashes");
    return PST_OK;
}
