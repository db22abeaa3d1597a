/* The memory requests of a transformer, from the shapes of its tensors. */
#include <inttypes.h>

#include "host/trace/trace_derive.h"

#define MAX_BYTES (UINT64_C(1) << 62)
enum { ROUND = 512, VOCABULARY_UNIT = 128, FUSED_VOCABULARY = 512 };

/* A micro-batch between its forward and its backward. */
typedef struct trip {
    uint64_t tokens[3]; /* ids, positions, labels */
    uint64_t *outputs;  /* [layers + 1], the first of the embedding */
    psti_skeleton *layers;
} trip;

typedef struct model {
    psti_deriver base;
    const pst_trace_derivation *from;
    psti_pipeline pipeline;
    trip *flights; /* [num_flights]; micro-batch m uses m % num_flights */
    uint32_t num_flights;
} model;

/* ---- the parts of a model ---- */

static void embed(psti_deriver *self, trip *flight)
{
    const psti_sizes *size = &self->size;
    for (int i = 0; i < 3; i++)
        flight->tokens[i] = psti_take(self, size->tokens_8);
    const uint64_t words = psti_take(self, size->g);
    const uint64_t positions = psti_take(self, size->g);
    const uint64_t sum = psti_take(self, size->g);
    psti_give(self, words);
    psti_give(self, positions);
    flight->outputs[0] = psti_take(self, size->b);
    psti_give(self, sum);
}

/* Logits in three forms of fp32, two of them at once: cast, exponentials, gradient. Returns the
 * loss; the gradient of the logits in d_logits_out. */
static uint64_t cross_entropy(psti_deriver *self, uint64_t *d_logits_out)
{
    const psti_sizes *size = &self->size;
    const uint64_t logits = psti_take(self, size->logits);
    const uint64_t cast = psti_take(self, size->logits_fp32);
    psti_give(self, logits);
    const uint64_t target = psti_take(self, size->tokens_8);
    const uint64_t exponentials = psti_take(self, size->logits_fp32);
    psti_give(self, cast);
    const uint64_t gradient = psti_take(self, size->logits_fp32);
    psti_give(self, exponentials);
    psti_give(self, target);
    const uint64_t loss = psti_take(self, size->tokens_4);
    *d_logits_out = psti_take(self, size->logits);
    psti_give(self, gradient);
    return loss;
}

/* Final norm, logits, loss, and back: returns the gradient that the last layer gets. */
static uint64_t head(psti_deriver *self, uint64_t output, uint64_t *loss_out)
{
    const psti_sizes *size = &self->size;
    uint64_t d_logits = PSTI_NO_ID;
    const uint64_t mean = psti_take(self, size->st);
    const uint64_t rstd = psti_take(self, size->st);
    const uint64_t norm = psti_take(self, size->b);
    const uint64_t gathered = psti_take(self, size->g);
    *loss_out = cross_entropy(self, &d_logits);
    psti_brief(self, size->d_head);
    const uint64_t d_gathered = psti_take(self, size->g);
    psti_give(self, gathered);
    psti_give(self, d_logits);
    const uint64_t scattered = psti_take(self, size->b);
    psti_give(self, d_gathered);
    const uint64_t gradient = psti_take(self, size->b);
    psti_give(self, scattered);
    psti_give(self, norm);
    psti_give(self, mean);
    psti_give(self, rstd);
    if (!self->is_full)
        psti_give(self, output);
    return gradient;
}

static void forward(model *self, uint32_t micro_batch)
{
    psti_deriver *base = &self->base;
    trip *flight = &self->flights[micro_batch % self->num_flights];
    psti_tape_label(&base->tape, PST_PHASE_OTHER, PST_TRACE_NONE, micro_batch);
    embed(base, flight);
    for (uint32_t i = 0; i < self->from->num_layers && base->tape.status == PST_OK; i++) {
        psti_tape_label(&base->tape, PST_PHASE_FORWARD, i, micro_batch);
        flight->outputs[i + 1] = psti_layer_forward(base, flight->outputs[i], &flight->layers[i]);
    }
}

static void backward(model *self, uint32_t micro_batch)
{
    psti_deriver *base = &self->base;
    const trip *flight = &self->flights[micro_batch % self->num_flights];
    const uint32_t layers = self->from->num_layers;
    uint64_t loss = PSTI_NO_ID;
    psti_tape_label(&base->tape, PST_PHASE_OTHER, PST_TRACE_NONE, micro_batch);
    uint64_t gradient = head(base, flight->outputs[layers], &loss);
    for (uint32_t i = layers; i-- > 0 && base->tape.status == PST_OK;) {
        psti_tape_label(&base->tape, PST_PHASE_BACKWARD, i, micro_batch);
        gradient = psti_layer_backward(base, gradient, &flight->layers[i]);
    }
    psti_tape_label(&base->tape, PST_PHASE_OTHER, PST_TRACE_NONE, micro_batch);
    const uint64_t gathered = psti_take(base, base->size.g);
    psti_brief(base, base->size.d_head);
    psti_give(base, gathered);
    psti_give(base, gradient);
    for (uint32_t i = 0; i <= layers && base->is_full; i++)
        psti_give(base, flight->outputs[i]);
    for (int i = 0; i < 3; i++)
        psti_give(base, flight->tokens[i]);
    psti_give(base, loss);
}

static void whole_model(model *self)
{
    psti_pipeline pipeline = self->pipeline;
    psti_pass pass;
    while (self->base.tape.status == PST_OK && psti_pipeline_next(&pipeline, &pass))
        if (pass.kind == PSTI_PASS_FORWARD)
            forward(self, (uint32_t)pass.micro_batch);
        else
            backward(self, (uint32_t)pass.micro_batch);
}

/* One layer by itself; what crosses its border is OTHER. */
static void one_layer(model *self, bool has_forward, bool has_backward)
{
    psti_deriver *base = &self->base;
    psti_skeleton *kept = &self->flights[0].layers[0];
    *kept = psti_nothing_kept;
    uint64_t output = PSTI_NO_ID;
    uint64_t gradient = PSTI_NO_ID;
    if (has_forward) {
        psti_tape_label(&base->tape, PST_PHASE_FORWARD, 0, 0);
        output = psti_layer_forward(base, PSTI_NO_ID, kept);
    }
    psti_tape_label(&base->tape, PST_PHASE_OTHER, PST_TRACE_NONE, 0);
    if (has_backward) {
        gradient = psti_take(base, base->size.b);
        psti_tape_label(&base->tape, PST_PHASE_BACKWARD, 0, 0);
        gradient = psti_layer_backward(base, gradient, kept);
        psti_tape_label(&base->tape, PST_PHASE_OTHER, PST_TRACE_NONE, 0);
    }
    psti_give(base, gradient);
    psti_give(base, output);
}

/* ---- sizes ---- */

static pst_status find_sizes(const pst_trace_derivation *from, psti_sizes *size)
{
    const uint64_t ffn = from->ffn_size != 0 ? from->ffn_size : 4 * from->hidden_size;
    const uint64_t tokens =
        psti_times(from->micro_batch, from->sequence_size) / from->context_parallel;
    const uint64_t shard = tokens / from->tensor_parallel;
    const uint64_t unit = (uint64_t)VOCABULARY_UNIT * from->tensor_parallel;
    const uint64_t vocabulary = from->fused_loss ? FUSED_VOCABULARY : from->vocab_size;
    const uint64_t words = (vocabulary + unit - 1) / unit * VOCABULARY_UNIT;
    const uint64_t h = from->hidden_size;
    const uint64_t num = from->full ? 0 : from->alpha_den - from->alpha_num;
    const uint64_t b = psti_times(shard, 2 * h);
    const uint64_t f = psti_times(shard, 2 * ffn);
    *size = (psti_sizes){
        .b = b,
        .b2 = psti_times(2, b),
        .b3 = psti_times(3, b),
        .g = psti_times(from->tensor_parallel, b),
        .f = f,
        .st = psti_times(4, shard),
        .lse = psti_times(4 * (from->num_heads / from->tensor_parallel), tokens),
        .d_qkv = psti_times(6 * h, h) / from->tensor_parallel,
        .d_proj = psti_times(2 * h, h) / from->tensor_parallel,
        .d_fc = psti_times(2 * ffn, h) / from->tensor_parallel,
        .d_bias = 2 * ffn / from->tensor_parallel,
        .d_norm = 2 * h,
        .d_head = psti_times(2 * h, words),
        .logits = psti_times(psti_times(2, tokens), words),
        .logits_fp32 = psti_times(psti_times(4, tokens), words),
        .tokens_8 = psti_times(8, tokens),
        .tokens_4 = psti_times(4, tokens),
    };
    uint64_t *all = &size->b;
    for (size_t i = 0; i < sizeof(*size) / sizeof(*all); i++)
        PSTI_CHECK(all[i] <= MAX_BYTES, PST_E_INVALID,
                   "a tensor of more than 2^62 bytes: allowed are less");
    size->r_b = psti_fraction(b, num, from->alpha_den);
    size->r_3b = psti_fraction(size->b3, num, from->alpha_den);
    size->r_g = psti_fraction(size->g, num, from->alpha_den);
    size->r_f = psti_fraction(f, num, from->alpha_den);
    for (size_t i = 0; i < sizeof(*size) / sizeof(*all); i++)
        all[i] = psti_round_up(all[i], ROUND);
    return PST_OK;
}

static pst_status check_range(const char *name, uint64_t value, uint64_t min, uint64_t max)
{
    PSTI_CHECK(value >= min && value <= max, PST_E_INVALID,
               "%s %" PRIu64 ": allowed is %" PRIu64 "..%" PRIu64, name, value, min, max);
    return PST_OK;
}

static pst_status check_multiple(const char *name, uint64_t value, uint64_t divisor)
{
    PSTI_CHECK(value % divisor == 0, PST_E_INVALID,
               "%s %" PRIu64 ": allowed is a multiple of %" PRIu64 "", name, value, divisor);
    return PST_OK;
}

static pst_status check_derivation(const pst_trace_derivation *from)
{
    PSTI_CHECK(from->struct_size == sizeof(*from), PST_E_INVALID,
               "struct_size %zu: use PST_TRACE_DERIVATION_INIT (%zu)", from->struct_size,
               sizeof(*from));
    PSTI_TRY(check_range("part", from->part, 0, PST_TRACE_NUM_PARTS - 1));
    PSTI_TRY(check_range("micro_batch", from->micro_batch, 1, 1u << 30));
    PSTI_TRY(check_range("sequence_size", from->sequence_size, 1, UINT64_C(1) << 40));
    PSTI_TRY(check_range("hidden_size", from->hidden_size, 1, 1u << 24));
    PSTI_TRY(check_range("ffn_size", from->ffn_size, 0, 1u << 28));
    PSTI_TRY(check_range("num_heads", from->num_heads, 1, 1u << 24));
    PSTI_TRY(check_range("vocab_size", from->vocab_size, 1, 1u << 30));
    PSTI_TRY(check_range("tensor_parallel", from->tensor_parallel, 1, 1u << 16));
    PSTI_TRY(check_range("context_parallel", from->context_parallel, 1, 1u << 16));
    PSTI_TRY(check_range("num_layers", from->num_layers, 1, 1u << 20));
    PSTI_TRY(check_range("alpha_den", from->alpha_den, 1, UINT32_MAX));
    PSTI_TRY(check_range("alpha_num", from->alpha_num, 0, from->alpha_den));
    PSTI_TRY(check_range("num_micro_batches", from->num_micro_batches, 1, 1u << 20));
    PSTI_TRY(check_range("warmup", from->warmup, 0, 1u << 20));
    PSTI_TRY(check_multiple("sequence_size", from->sequence_size,
                            (uint64_t)from->tensor_parallel * from->context_parallel));
    PSTI_TRY(check_multiple("num_heads", from->num_heads, from->tensor_parallel));
    PSTI_TRY(check_multiple("hidden_size", from->hidden_size, from->tensor_parallel));
    return check_multiple("ffn_size", from->ffn_size, from->tensor_parallel);
}

/* ---- all together ---- */

static void close_flights(model *self)
{
    for (uint32_t i = 0; self->flights != NULL && i < self->num_flights; i++) {
        psti_free(self->flights[i].outputs);
        psti_free(self->flights[i].layers);
    }
    psti_free(self->flights);
}

static pst_status open_flights(model *self)
{
    const pst_trace_derivation *from = self->from;
    self->pipeline = psti_pipeline_warmed_up(from->num_micro_batches, from->warmup);
    const uint32_t most = (uint32_t)psti_pipeline_most_live(&self->pipeline);
    self->num_flights = most;
    self->flights = psti_calloc(most, sizeof(*self->flights));
    for (uint32_t i = 0; self->flights != NULL && i < most; i++) {
        trip *flight = &self->flights[i];
        flight->outputs = psti_calloc((size_t)from->num_layers + 1, sizeof(*flight->outputs));
        flight->layers = psti_calloc(from->num_layers, sizeof(*flight->layers));
        PSTI_CHECK(flight->outputs != NULL && flight->layers != NULL, PST_E_NOMEM,
                   "out of memory for %u layers", from->num_layers);
    }
    PSTI_CHECK(self->flights != NULL, PST_E_NOMEM, "out of memory for %u micro-batches", most);
    return PST_OK;
}

static pst_status derive(model *self, pst_trace **trace_out)
{
    const pst_trace_part part = self->from->part;
    PSTI_TRY(open_flights(self));
    if (part == PST_TRACE_MODEL)
        whole_model(self);
    else
        one_layer(self, part != PST_TRACE_LAYER_BACKWARD, part != PST_TRACE_LAYER_FORWARD);
    return psti_tape_close(&self->base.tape, "derived", trace_out);
}

pst_status pst_trace_derive(const pst_trace_derivation *derivation, pst_trace **trace_out)
{
    PSTI_CHECK(derivation != NULL && trace_out != NULL, PST_E_INVALID,
               "derivation or trace_out is NULL");
    PSTI_TRY(check_derivation(derivation));
    model self = {
        .base = {.is_full = derivation->full, .is_ring = derivation->context_parallel > 1},
        .from = derivation};
    PSTI_TRY(find_sizes(derivation, &self.base.size));
    psti_tape_open(&self.base.tape);
    const pst_status status = derive(&self, trace_out);
    close_flights(&self);
    return status;
}
