/* What llama.h says: layers and steps. */
#include "tests/host/linear/llama.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/host/linear/llama_math.h"
#include "tests/host/linear/llama_model.h"

/* ---- memory, exchanges ---- */

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Bytes that are counted as those of a use. */
static void count_bytes(llama_model *self, llama_use use, int64_t bytes)
{
    llama_result *result = self->result;
    self->bytes[use] += (uint64_t)bytes;
    result->state_bytes = most(result->state_bytes, self->bytes[OF_STATES]);
    result->saved_bytes = most(result->saved_bytes, self->bytes[SAVED]);
    result->peak_bytes = most(result->peak_bytes,
                              self->bytes[OF_STATES] + self->bytes[SAVED] + self->bytes[TRANSIENT]);
}

float *llama_take(llama_model *self, llama_use use, uint64_t num_floats)
{
    const uint64_t bytes = num_floats * sizeof(float);
    float *floats = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!floats)
        abort();
    memset(floats, 0xff, bytes);
    count_bytes(self, use, (int64_t)bytes);
    return floats;
}

void llama_give(llama_model *self, llama_use use, float *floats, uint64_t num_floats)
{
    if (!floats)
        return;
    free(floats);
    count_bytes(self, use, -(int64_t)(num_floats * sizeof(float)));
}

void llama_reduce(llama_model *self, pst_exchange_kind kind, pst_reduction reduction,
                  const float *from, float *to, uint64_t count)
{
    pst_exchange exchange = PST_EXCHANGE_INIT;
    exchange.kind = kind;
    exchange.dtype = PST_DTYPE_FP32;
    exchange.reduction = reduction;
    exchange.from = from;
    exchange.to = to;
    exchange.count = count;
    OK(pst_comm_run(self->rank->comm, &exchange, self->rank->stream));
    OK(pst_stream_synchronize(self->rank->device, self->rank->stream));
}

void llama_exchange(llama_model *self, pst_exchange_kind kind, const float *from, float *to,
                    uint64_t count)
{
    llama_reduce(self, kind, PST_REDUCE_SUM, from, to, count);
}

/* ---- a layer ---- */

/* What a layer saves. */
typedef struct saved {
    float *x, *rstd1, *n1, *qkv, *out, *lse, *x2, *rstd2, *n2, *hidden;
} saved;

/* Floats of the input of a column layer: whole where the way keeps it. */
static uint64_t input_floats(const llama_model *self)
{
    return (llama_keeps(self) ? self->form.tokens : self->local) * self->form.hidden;
}

/* This rank's part. */
static float *own_part(const llama_model *self, float *input)
{
    const uint64_t part = self->local * self->form.hidden;
    return llama_keeps(self) ? input + (uint64_t)self->rank->rank * part : input;
}

static llama_attention attention_of(const llama_model *self, const saved *layer)
{
    const uint64_t size = self->form.hidden / self->form.heads;
    return (llama_attention){.tokens = self->form.tokens,
                             .heads = self->form.heads / self->num_ranks,
                             .head_size = size,
                             .qkv = layer->qkv,
                             .out = layer->out,
                             .lse = layer->lse};
}

static void forward_attention(llama_model *self, uint64_t number, saved *layer)
{
    const uint64_t h = self->form.hidden, tokens = self->form.tokens, num = self->local * h;
    const uint64_t share = tokens * h / self->num_ranks;
    layer->rstd1 = llama_take(self, SAVED, self->local);
    layer->n1 = llama_take(self, SAVED, input_floats(self));
    float *normed = own_part(self, layer->n1);
    llama_norm(layer->x, llama_weight(self, number, NORM1), self->local, h, layer->rstd1, normed);
    layer->qkv = llama_take(self, SAVED, 3 * share);
    llama_multiply(self, QKV,
                   &(llama_call){.input = normed,
                                 .weight = llama_weight(self, number, OF_QKV),
                                 .output = layer->qkv,
                                 .gathered = llama_keeps(self) ? layer->n1 : NULL});
    OK(pst_stream_synchronize(self->rank->device, self->rank->stream));
    layer->out = llama_take(self, SAVED, share);
    layer->lse = llama_take(self, SAVED, tokens * self->form.heads / self->num_ranks);
    const llama_attention of = attention_of(self, layer);
    llama_rotate(of.qkv, tokens, of.heads, of.head_size, 1);
    llama_attend(&of);
    layer->x2 = llama_take(self, SAVED, num);
    llama_multiply(self, PROJ,
                   &(llama_call){.input = layer->out,
                                 .weight = llama_weight(self, number, OF_PROJ),
                                 .output = layer->x2});
    OK(pst_stream_synchronize(self->rank->device, self->rank->stream));
    for (uint64_t i = 0; i < num; i++)
        layer->x2[i] += layer->x[i];
}

/* Returns the input of the layer behind. */
static float *forward_mlp(llama_model *self, uint64_t number, saved *layer)
{
    const uint64_t h = self->form.hidden, num = self->local * h;
    layer->rstd2 = llama_take(self, SAVED, self->local);
    layer->n2 = llama_take(self, SAVED, input_floats(self));
    float *normed = own_part(self, layer->n2), *x = llama_take(self, SAVED, num);
    llama_norm(layer->x2, llama_weight(self, number, NORM2), self->local, h, layer->rstd2, normed);
    if (!llama_has_pages(self))
        layer->hidden =
            llama_take(self, SAVED, 2 * self->form.tokens * self->form.ffn / self->num_ranks);
    llama_mlp(self, &(llama_mlp_call){.layer = number,
                                      .input = normed,
                                      .up = llama_weight(self, number, OF_UP),
                                      .down = llama_weight(self, number, OF_DOWN),
                                      .output = x,
                                      .gathered = llama_keeps(self) ? layer->n2 : NULL,
                                      .hidden = layer->hidden});
    OK(pst_stream_synchronize(self->rank->device, self->rank->stream));
    for (uint64_t i = 0; i < num; i++)
        x[i] += layer->x2[i];
    return x;
}

/* dx: the gradient of what the layer gives, and then of its input. */
static void backward_mlp(llama_model *self, uint64_t number, saved *layer, float *dx)
{
    const uint64_t h = self->form.hidden, num = self->local * h;
    float *dn = llama_take(self, TRANSIENT, num);
    llama_mlp_back(self, &(llama_mlp_call){.layer = number,
                                           .input = own_part(self, layer->n2),
                                           .up = llama_weight(self, number, OF_UP),
                                           .down = llama_weight(self, number, OF_DOWN),
                                           .gathered = llama_keeps(self) ? layer->n2 : NULL,
                                           .hidden = layer->hidden,
                                           .output_gradient = dx,
                                           .input_gradient = dn,
                                           .up_gradient = llama_gradient(self, number, OF_UP),
                                           .down_gradient = llama_gradient(self, number, OF_DOWN)});
    OK(pst_stream_synchronize(self->rank->device, self->rank->stream));
    llama_norm_back(layer->x2, llama_weight(self, number, NORM2), layer->rstd2, dn, self->local, h,
                    dx, llama_gradient(self, number, NORM2));
    llama_give(self, TRANSIENT, dn, num);
    llama_give(self, SAVED, layer->hidden,
               2 * self->form.tokens * self->form.ffn / self->num_ranks);
    llama_give(self, SAVED, layer->n2, input_floats(self));
    llama_give(self, SAVED, layer->rstd2, self->local);
    llama_give(self, SAVED, layer->x2, num);
}

static void backward_qkv(llama_model *self, uint64_t number, saved *layer, const float *dqkv,
                         float *dx)
{
    const uint64_t h = self->form.hidden, num = self->local * h;
    float *dn = llama_take(self, TRANSIENT, num);
    llama_multiply_back(self, QKV,
                        &(llama_call){.input = own_part(self, layer->n1),
                                      .weight = llama_weight(self, number, OF_QKV),
                                      .gathered = llama_keeps(self) ? layer->n1 : NULL,
                                      .output_gradient = dqkv,
                                      .input_gradient = dn,
                                      .weight_gradient = llama_gradient(self, number, OF_QKV)});
    OK(pst_stream_synchronize(self->rank->device, self->rank->stream));
    llama_norm_back(layer->x, llama_weight(self, number, NORM1), layer->rstd1, dn, self->local, h,
                    dx, llama_gradient(self, number, NORM1));
    llama_give(self, TRANSIENT, dn, num);
}

static void backward_attention(llama_model *self, uint64_t number, saved *layer, float *dx)
{
    const uint64_t h = self->form.hidden, tokens = self->form.tokens;
    const uint64_t share = tokens * h / self->num_ranks;
    const llama_attention of = attention_of(self, layer);
    float *dout = llama_take(self, TRANSIENT, share);
    float *dqkv = llama_take(self, TRANSIENT, 3 * share);
    llama_multiply_back(self, PROJ,
                        &(llama_call){.input = layer->out,
                                      .weight = llama_weight(self, number, OF_PROJ),
                                      .output_gradient = dx,
                                      .input_gradient = dout,
                                      .weight_gradient = llama_gradient(self, number, OF_PROJ)});
    OK(pst_stream_synchronize(self->rank->device, self->rank->stream));
    llama_attend_back(&of, dout, dqkv);
    llama_rotate(dqkv, tokens, of.heads, of.head_size, -1);
    llama_give(self, TRANSIENT, dout, share);
    backward_qkv(self, number, layer, dqkv, dx);
    llama_give(self, TRANSIENT, dqkv, 3 * share);
    llama_give(self, SAVED, layer->lse, tokens * of.heads);
    llama_give(self, SAVED, layer->out, share);
    llama_give(self, SAVED, layer->qkv, 3 * share);
    llama_give(self, SAVED, layer->n1, input_floats(self));
    llama_give(self, SAVED, layer->rstd1, self->local);
    llama_give(self, SAVED, layer->x, self->local * h);
}

/* ---- steps ---- */

static double micro_batch(llama_model *self, uint64_t step, uint64_t batch)
{
    const uint64_t num_layers = self->form.layers, num = self->local * self->form.hidden;
    saved *layers = calloc(num_layers, sizeof(*layers));
    uint64_t *tokens = llama_take_tokens(self, step, batch, 0);
    float *x = llama_embed(self, tokens);
    for (uint64_t i = 0; i < num_layers; i++) {
        layers[i].x = x;
        forward_attention(self, i, &layers[i]);
        x = forward_mlp(self, i, &layers[i]);
    }
    uint64_t *labels = llama_take_tokens(self, step, batch, 1);
    float *dx = llama_take(self, TRANSIENT, num);
    const double loss = llama_head(self, x, labels, dx);
    llama_give_tokens(self, labels);
    llama_give(self, SAVED, x, num);
    for (uint64_t i = num_layers; i-- > 0;) {
        backward_mlp(self, i, &layers[i], dx);
        backward_attention(self, i, &layers[i], dx);
    }
    llama_embed_back(self, tokens, dx);
    llama_give(self, TRANSIENT, dx, num);
    llama_give_tokens(self, tokens);
    free(layers);
    return loss;
}

/* Norms are on every rank, and each has seen its part of the sequence. */
static void sum_norms(llama_model *self)
{
    const uint64_t ends = self->form.layers, h = self->form.hidden;
    for (uint64_t i = 0; i < ends; i++) {
        float *first = llama_gradient(self, i, NORM1), *second = llama_gradient(self, i, NORM2);
        llama_exchange(self, PST_EXCHANGE_ALL_REDUCE, first, first, h);
        llama_exchange(self, PST_EXCHANGE_ALL_REDUCE, second, second, h);
    }
    float *last = llama_gradient(self, ends, FINAL_NORM);
    llama_exchange(self, PST_EXCHANGE_ALL_REDUCE, last, last, h);
}

/* Adam (arXiv:1412.6980), with an epsilon that keeps rounding out of small gradients' steps. */
static void update(llama_model *self, uint64_t step)
{
    const float rate = 3e-3f, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-3f;
    const float bias1 = 1 - powf(beta1, (float)(step + 1));
    const float bias2 = 1 - powf(beta2, (float)(step + 1));
    const uint64_t num = llama_num_weights(&self->form, self->num_ranks);
    for (uint64_t i = 0; i < num; i++) {
        const float g = self->gradients[i];
        self->first[i] = beta1 * self->first[i] + (1 - beta1) * g;
        self->second[i] = beta2 * self->second[i] + (1 - beta2) * g * g;
        self->weights[i] -=
            rate * self->first[i] / bias1 / (sqrtf(self->second[i] / bias2) + epsilon);
    }
}

static void open_model(llama_model *self)
{
    float **const states[] = {&self->weights, &self->gradients, &self->first, &self->second};
    const uint64_t num = llama_num_weights(&self->form, self->num_ranks);
    for (int i = 0; i < 4; i++) {
        *states[i] = llama_take(self, OF_STATES, num);
        memset(*states[i], 0, num * sizeof(float));
    }
    llama_fill_weights(self);
    llama_open_way(self);
}

/* The weights are the result's. */
static void close_model(llama_model *self)
{
    const uint64_t num = llama_num_weights(&self->form, self->num_ranks);
    llama_close_way(self);
    llama_give(self, OF_STATES, self->gradients, num);
    llama_give(self, OF_STATES, self->first, num);
    llama_give(self, OF_STATES, self->second, num);
    self->result->weights = self->weights;
    self->result->num_weights = num;
    if (self->bytes[SAVED] != 0 || self->bytes[TRANSIENT] != 0)
        psti_test_fail(__FILE__, __LINE__, "memory stays");
}

static void run_step(llama_model *self, uint64_t step)
{
    const uint64_t batches = self->form.micro_batches;
    double loss = 0;
    memset(self->gradients, 0, llama_num_weights(&self->form, self->num_ranks) * sizeof(float));
    for (uint64_t batch = 0; batch < batches; batch++)
        loss += micro_batch(self, step, batch) / (double)batches;
    sum_norms(self);
    update(self, step);
    self->result->losses[step] = loss;
    if (self->pool)
        OK(pst_pool_step(self->pool, self->rank->stream));
}

void llama_train(rank_of_test *rank, const llama_form *form, llama_result *result)
{
    llama_model self = {.rank = rank, .form = *form, .result = result};
    pst_pool_status pages = {0};
    memset(result, 0, sizeof(*result));
    result->losses = calloc(form->steps, sizeof(*result->losses));
    self.num_ranks = (uint64_t)rank->num_ranks;
    self.local = form->tokens / self.num_ranks;
    open_model(&self);
    for (uint64_t step = 0; step < form->steps && !psti_test_failed(); step++)
        run_step(&self, step);
    if (self.pool) {
        OK(pst_stream_synchronize(rank->device, rank->stream));
        OK(pst_pool_poll(self.pool, &pages));
        result->pages = pages.high_water[0];
        if (pages.num_faults != 0)
            psti_test_fail(__FILE__, __LINE__, "%u faults of pages", pages.num_faults);
    }
    close_model(&self);
}

void llama_free(llama_result *result)
{
    free(result->losses);
    free(result->weights);
}
