/* The memory requests of a GPT, from the shapes of its tensors: scripts of requests, run layer by
 * layer. What a layer keeps are the entries of its ledger (host/model); what comes and goes within
 * a pass stands here. docs/formats.md lists all of it in order. */
#include <inttypes.h>

#include "host/base/arith.h"
#include "host/base/structs.h"
#include "host/model/ledger.h"
#include "host/trace/trace.h"

#define MAX_BYTES (UINT64_C(1) << 62)
enum { ROUND = 512, VOCABULARY_UNIT = 128, FUSED_VOCABULARY = 512 };

/* ---- the tensors, each with its bytes in fill_bytes; one of 0 bytes is never requested ---- */

#define ENTRY(name) (from->full ? psti_ledger_bytes(&layer, name) : 0)
#define RING(bytes) (from->context_parallel > 1 ? (bytes) : 0)
#define AGAIN(bytes) psti_fraction(bytes, num_again, from->alpha_den)

/* clang-format off */
/* From forward to backward: of a layer its output and statistics, then what else its ledger has; of
 * a micro-batch the tokens' ids, positions and labels. */
#define KEPT(T) \
    T(OUTPUT, b) T(MEAN_1, st) T(RSTD_1, st) T(MEAN_2, st) T(RSTD_2, st) \
    T(NORM_1, ENTRY("qkv.in")) T(Q, ENTRY("q")) T(K, ENTRY("k")) T(V, ENTRY("v")) \
    T(ATTENTION, ENTRY("proj.in")) T(LSE, from->full ? lse : 0) T(RESIDUAL, ENTRY("norm2.in")) \
    T(NORM_2, ENTRY("fc1.in")) T(FC1, ENTRY("fc1.out")) T(GELU, ENTRY("fc2.in")) \
    T(IDS, tokens_8) T(POSITIONS, tokens_8) T(LABELS, tokens_8)

/* Within a pass: of a layer's forward, of its ring of contexts, recomputed, of its backward, of
 * that ring, gradients of weights; before the layers, and after them. */
#define PASSING(T) \
    T(GATHER, g) T(QKV, b3) T(PROJECTION, g) T(SCATTER, b) T(BIAS, b) T(GELU_SUM, f) \
    T(SEND, RING(b2)) T(RECEIVE, RING(b2)) T(OUTPUT_0, RING(b)) T(LSE_0, RING(lse)) \
    T(OUTPUT_1, RING(b)) T(LSE_1, RING(lse)) T(MERGED, RING(b2)) T(CORRECTION, RING(lse)) \
    T(AGAIN_B, AGAIN(b)) T(AGAIN_G, AGAIN(g)) T(AGAIN_3B, AGAIN(b3)) T(AGAIN_F, AGAIN(f)) \
    T(D_GELU, f) T(D_FC1, f) T(D_BIAS, 2 * ffn / tp) T(D_INPUT, g) T(D_NORM, b) T(D_RESIDUAL, b) \
    T(D_ATTENTION, b) T(D_SOFTMAX, lse) T(DQ_FP32, b2) T(DQ, b) T(DK, b) T(DV, b) T(D_QKV, b3) \
    T(KV, RING(b2)) T(KV_RECEIVED, RING(b2)) T(DKV_RECEIVED, RING(b2)) T(DKV, RING(b2)) \
    T(W_QKV, psti_times(6 * h, h) / tp) T(W_PROJECTION, psti_times(2 * h, h) / tp) \
    T(W_FC, psti_times(2 * ffn, h) / tp) T(W_NORM, 2 * h) T(W_WORDS, psti_times(2 * h, words)) \
    T(WORDS, g) T(PLACES, g) T(SUM, g) \
    T(FINAL_MEAN, st) T(FINAL_RSTD, st) T(FINAL_NORM, b) T(LOGITS, logits) T(CAST, logits_fp32) \
    T(TARGETS, tokens_8) T(EXPONENTIALS, logits_fp32) T(D_CAST, logits_fp32) T(LOSS, tokens_4) \
    T(D_LOGITS, logits) T(D_GATHER, g) T(GRADIENT, b)
/* clang-format on */

#define NAME(name, bytes) name,
#define BYTES(name, bytes) [name] = bytes,
enum tensor {
    NOTHING,
    INPUT, /* the output of the layer before */
    KEPT(NAME) NUM_KEPT,
    PASSING(NAME) NUM_TENSORS
};

/* ---- the scripts: a tensor is requested, or with a minus given back ---- */

static const int8_t embedding[] = {IDS, POSITIONS, LABELS,  WORDS,  PLACES,
                                   SUM, -WORDS,    -PLACES, OUTPUT, -SUM};

static const int8_t layer_forward[] = {
    MEAN_1, RSTD_1, NORM_1, GATHER, QKV, -GATHER, Q, K, V, -QKV,
    /* another rank's keys and values come while our own are worked on; the outputs are merged */
    SEND, RECEIVE, OUTPUT_0, LSE_0, OUTPUT_1, LSE_1, -SEND, -RECEIVE, MERGED, -OUTPUT_0, -OUTPUT_1,
    CORRECTION, ATTENTION, LSE, -LSE_0, -LSE_1, -CORRECTION, -MERGED, PROJECTION, SCATTER,
    -PROJECTION, BIAS, RESIDUAL, -SCATTER, -BIAS, MEAN_2, RSTD_2, NORM_2, GATHER, FC1, -GATHER,
    GELU_SUM, GELU, -GELU_SUM, PROJECTION, SCATTER, -PROJECTION, BIAS, OUTPUT, -SCATTER, -BIAS};

/* MEMO's buffers have what is needed; the output takes the place of the input. */
static const int8_t memo_after_forward[] = {-MEAN_1, -RSTD_1, -MEAN_2, -RSTD_2, -INPUT};

/* Final norm, logits, loss, and back. Of the logits' three forms in fp32 two are there at once. */
static const int8_t head[] = {
    FINAL_MEAN, FINAL_RSTD,   FINAL_NORM, GATHER,   LOGITS,        CAST,        -LOGITS,
    TARGETS,    EXPONENTIALS, -CAST,      D_CAST,   -EXPONENTIALS, -TARGETS,    LOSS,
    D_LOGITS,   -D_CAST,      W_WORDS,    -W_WORDS, D_GATHER,      -GATHER,     -D_LOGITS,
    SCATTER,    -D_GATHER,    GRADIENT,   -SCATTER, -FINAL_NORM,   -FINAL_MEAN, -FINAL_RSTD};

static const int8_t memo_after_head[] = {-OUTPUT};

static const int8_t layer_backward[] = {
    /* what was not swapped is recomputed */
    AGAIN_B, AGAIN_G, AGAIN_3B, -AGAIN_G, -AGAIN_B, -AGAIN_3B, AGAIN_G, AGAIN_B, -AGAIN_G, -AGAIN_B,
    AGAIN_B, AGAIN_G, -AGAIN_B, -AGAIN_G, AGAIN_F, -AGAIN_F,
    /* the MLP */
    GATHER, D_GELU, W_FC, -W_FC, -GATHER, -GELU, D_FC1, D_BIAS, -D_GELU, -D_BIAS, -FC1, GATHER,
    D_INPUT, SCATTER, W_FC, -W_FC, -GATHER, -D_INPUT, -D_FC1, -NORM_2, D_NORM, W_NORM, -W_NORM,
    -SCATTER, -MEAN_2, -RSTD_2, -RESIDUAL, D_RESIDUAL, -D_NORM, -GRADIENT,
    /* attention */
    GATHER, D_ATTENTION, W_PROJECTION, -W_PROJECTION, -GATHER, KV, KV_RECEIVED, DKV_RECEIVED, DKV,
    D_SOFTMAX, DQ_FP32, DQ, DK, DV, -DQ_FP32, -D_SOFTMAX, -KV, -KV_RECEIVED, -DKV_RECEIVED, -DKV,
    -D_ATTENTION, -Q, -K, -V, -ATTENTION, -LSE, D_QKV, -DQ, -DK, -DV, GATHER, D_INPUT, SCATTER,
    W_QKV, -W_QKV, -GATHER, -D_INPUT, -D_QKV, -NORM_1, D_NORM, W_NORM, -W_NORM, -SCATTER, -MEAN_1,
    -RSTD_1, GRADIENT, -D_NORM, -D_RESIDUAL};

static const int8_t before_embedding[] = {GATHER, W_WORDS, -W_WORDS, -GATHER, -GRADIENT};
static const int8_t give_output[] = {-OUTPUT};
static const int8_t give_tokens[] = {-IDS, -POSITIONS, -LABELS, -LOSS};
static const int8_t take_gradient[] = {GRADIENT};
static const int8_t give_both[] = {-GRADIENT, -OUTPUT};

/* ---- running them ---- */

/* What is live of a layer, or in row 0 of the embedding and the tokens: ids plus 1, or 0. */
typedef uint64_t row[NUM_KEPT];

typedef struct deriver {
    const pst_trace_derivation *from;
    psti_tape tape;
    psti_pipeline pipeline;
    uint32_t num_flights;
    row *rows; /* [num_flights][num_layers + 1]; micro-batch m uses flight m % num_flights */
    row *at;   /* in work */
    uint64_t passing[NUM_TENSORS]; /* as a row */
    uint64_t bytes[NUM_TENSORS];
} deriver;

/* What follows is of row 0 or of a layer, counted from 1, of a micro-batch. */
static void enter(deriver *self, pst_trace_phase phase, uint32_t layer, uint32_t micro_batch)
{
    const uint64_t flight = micro_batch % self->num_flights;
    const uint32_t shown = phase == PST_PHASE_OTHER ? PST_TRACE_NONE : layer - 1;
    psti_tape_label(&self->tape, phase, shown, micro_batch);
    self->at = &self->rows[flight * (self->from->num_layers + 1) + layer];
}

static uint64_t *id_of(deriver *self, int tensor)
{
    if (tensor == INPUT)
        return &self->at[-1][OUTPUT];
    return tensor < NUM_KEPT ? &self->at[0][tensor] : &self->passing[tensor];
}

static void run(deriver *self, const int8_t *script, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        uint64_t *id = id_of(self, script[i] < 0 ? -script[i] : script[i]);
        if (script[i] > 0 && self->bytes[script[i]] != 0) {
            *id = psti_tape_malloc(&self->tape, self->bytes[script[i]]) + 1;
        } else if (script[i] < 0 && *id != 0) {
            psti_tape_free(&self->tape, *id - 1);
            *id = 0;
        }
    }
}

#define RUN(self, script) run(self, script, sizeof(script))

static void run_layer_forward(deriver *self, uint32_t layer, uint32_t micro_batch)
{
    enter(self, PST_PHASE_FORWARD, layer, micro_batch);
    RUN(self, layer_forward);
    if (!self->from->full)
        RUN(self, memo_after_forward);
}

static void forward(deriver *self, uint32_t micro_batch)
{
    enter(self, PST_PHASE_OTHER, 0, micro_batch);
    RUN(self, embedding);
    for (uint32_t i = 1; i <= self->from->num_layers && self->tape.status == PST_OK; i++)
        run_layer_forward(self, i, micro_batch);
}

static void backward(deriver *self, uint32_t micro_batch)
{
    const uint32_t num_layers = self->from->num_layers;
    enter(self, PST_PHASE_OTHER, num_layers, micro_batch);
    RUN(self, head);
    if (!self->from->full)
        RUN(self, memo_after_head);
    for (uint32_t i = num_layers; i > 0 && self->tape.status == PST_OK; i--) {
        enter(self, PST_PHASE_BACKWARD, i, micro_batch);
        RUN(self, layer_backward);
    }
    enter(self, PST_PHASE_OTHER, 0, micro_batch);
    RUN(self, before_embedding);
    for (uint32_t i = 0; i <= num_layers; i++) { /* MEMO's are gone */
        enter(self, PST_PHASE_OTHER, i, micro_batch);
        RUN(self, give_output);
    }
    enter(self, PST_PHASE_OTHER, 0, micro_batch);
    RUN(self, give_tokens);
}

static void whole_model(deriver *self)
{
    psti_pipeline_pass pass;
    while (self->tape.status == PST_OK && psti_pipeline_next(&self->pipeline, &pass))
        if (pass.kind == PST_PASS_FORWARD)
            forward(self, (uint32_t)pass.micro_batch);
        else
            backward(self, (uint32_t)pass.micro_batch);
}

/* One layer by itself; what crosses its border is OTHER. */
static void one_layer(deriver *self, bool has_forward, bool has_backward)
{
    if (has_forward)
        run_layer_forward(self, 1, 0);
    enter(self, PST_PHASE_OTHER, 1, 0);
    if (has_backward) {
        RUN(self, take_gradient);
        enter(self, PST_PHASE_BACKWARD, 1, 0);
        RUN(self, layer_backward);
        enter(self, PST_PHASE_OTHER, 1, 0);
    }
    RUN(self, give_both);
}

/* ---- sizes ---- */

/* The letters are those of docs/formats.md. */
static pst_status fill_bytes(deriver *self)
{
    const pst_trace_derivation *from = self->from;
    const uint64_t h = from->hidden_size, tp = from->tensor_parallel;
    const uint64_t ffn = from->ffn_size != 0 ? from->ffn_size : 4 * h;
    const uint64_t tokens =
        psti_times(from->micro_batch, from->sequence_size / from->context_parallel);
    const uint64_t unit = VOCABULARY_UNIT * tp;
    const uint64_t vocabulary = from->fused_loss ? FUSED_VOCABULARY : from->vocab_size;
    const uint64_t words = psti_div_up(vocabulary, unit) * VOCABULARY_UNIT;
    const uint64_t num_again = from->full ? 0 : from->alpha_den - from->alpha_num;
    const psti_ledger layer = psti_ledger_of_gpt(psti_div_down(tokens, tp), h, ffn);
    const uint64_t b = psti_ledger_bytes(&layer, "norm1.in"), b2 = psti_times(2, b);
    const uint64_t b3 = psti_times(3, b), g = psti_times(tp, b);
    const uint64_t f = psti_ledger_bytes(&layer, "fc1.out");
    const uint64_t st = psti_div_down(psti_ledger_bytes(&layer, "norm1.stat"), 2);
    const uint64_t lse = psti_times(from->num_heads, psti_ledger_bytes(&layer, "attention.lse"));
    const uint64_t logits = PSTI_PRODUCT(2, tokens, words), logits_fp32 = psti_times(2, logits);
    const uint64_t tokens_8 = psti_times(8, tokens), tokens_4 = psti_times(4, tokens);
    const uint64_t all[NUM_TENSORS] = {KEPT(BYTES) PASSING(BYTES)};
    for (int i = 0; i < NUM_TENSORS; i++) {
        PSTI_CHECK(all[i] <= MAX_BYTES, PST_E_INVALID,
                   "a tensor of more than 2^62 bytes: allowed are less");
        self->bytes[i] = psti_round_up(all[i], ROUND);
    }
    return PST_OK;
}

/* What is 0 becomes MEMO's 7B model with 128K tokens on 8 devices. */
static void fill(pst_trace_derivation *from)
{
#define FILL(field, value) from->field = from->field != 0 ? from->field : (value)
    FILL(micro_batch, 1);
    FILL(sequence_size, 131072);
    FILL(hidden_size, 4096);
    FILL(num_heads, 32);
    FILL(vocab_size, 50257);
    FILL(tensor_parallel, 4);
    FILL(context_parallel, 2);
    FILL(num_layers, 32);
    if (from->alpha_num == 0 && from->alpha_den == 0) {
        from->alpha_num = 1;
        from->alpha_den = 4;
    }
    FILL(num_micro_batches, 1);
#undef FILL
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
               "%s %" PRIu64 ": allowed is a multiple of %" PRIu64, name, value, divisor);
    return PST_OK;
}

static pst_status check_derivation(const pst_trace_derivation *from)
{
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

static pst_status derive(deriver *self, pst_trace **trace_out)
{
    const pst_trace_derivation *from = self->from;
    const pst_trace_part part = from->part;
    self->pipeline = psti_pipeline_warmed_up(from->num_micro_batches, from->warmup);
    self->num_flights = (uint32_t)psti_pipeline_most_live(&self->pipeline);
    const size_t num_rows = (size_t)self->num_flights * (from->num_layers + 1);
    self->rows = psti_calloc(num_rows, sizeof(*self->rows));
    PSTI_CHECK(self->rows != NULL, PST_E_NOMEM, "out of memory for %u layers of %u micro-batches",
               from->num_layers, self->num_flights);
    if (part == PST_TRACE_MODEL)
        whole_model(self);
    else
        one_layer(self, part != PST_TRACE_LAYER_BACKWARD, part != PST_TRACE_LAYER_FORWARD);
    psti_free(self->rows);
    return psti_tape_close(&self->tape, "derived", trace_out);
}

pst_status pst_trace_derive(const pst_trace_derivation *derivation, pst_trace **trace_out)
{
    PSTI_CHECK(trace_out != NULL, PST_E_INVALID, "trace_out is NULL");
    PSTI_TAKE(pst_trace_derivation, from, derivation);
    fill(&from);
    PSTI_TRY(check_derivation(&from));
    deriver self = {.from = &from};
    PSTI_TRY(fill_bytes(&self));
    psti_tape_open(&self.tape);
    return derive(&self, trace_out);
}
