/* What stands around the layers: embedding and loss, both parallel by vocabulary. */
#include <math.h>
#include <string.h>

#include "tests/host/linear/llama_math.h"
#include "tests/host/linear/llama_model.h"

/* ---- embedding ---- */

/* A sequence in which each token follows from the one before, but for a few: tokens + 1 of them. */
static uint64_t token_at(const llama_model *self, uint64_t step, uint64_t batch, uint64_t i)
{
    uint64_t token = (5 * step + 3 * batch) % self->form.vocab;
    for (uint64_t j = 1; j <= i; j++) {
        const bool jumps = (j * 7 + step + batch) % 11 == 0;
        token = (3 * token + (jumps ? 5 : 1)) % self->form.vocab;
    }
    return token;
}

uint64_t *llama_take_tokens(llama_model *self, uint64_t step, uint64_t batch, uint64_t first)
{
    uint64_t *tokens = (uint64_t *)llama_take(self, SAVED, 2 * self->form.tokens);
    for (uint64_t i = 0; i < self->form.tokens; i++)
        tokens[i] = token_at(self, step, batch, first + i);
    return tokens;
}

void llama_give_tokens(llama_model *self, uint64_t *tokens)
{
    llama_give(self, SAVED, (float *)tokens, 2 * self->form.tokens);
}

/* The row of a word in this rank's share of the vocabulary, or -1. */
static int64_t row_of(const llama_model *self, uint64_t word)
{
    const uint64_t share = self->form.vocab / self->num_ranks;
    return word / share == (uint64_t)self->rank->rank ? (int64_t)(word % share) : -1;
}

float *llama_embed(llama_model *self, const uint64_t *tokens)
{
    const uint64_t h = self->form.hidden, num = self->form.tokens * h;
    float *all = llama_take(self, TRANSIENT, num), *x = llama_take(self, SAVED, self->local * h);
    memset(all, 0, num * sizeof(*all));
    for (uint64_t i = 0; i < self->form.tokens; i++) {
        const int64_t row = row_of(self, tokens[i]);
        if (row >= 0)
            memcpy(all + i * h,
                   llama_weight(self, self->form.layers, EMBEDDING) + (uint64_t)row * h,
                   h * sizeof(*all));
    }
    llama_exchange(self, PST_EXCHANGE_REDUCE_SCATTER, all, x, self->local * h);
    llama_give(self, TRANSIENT, all, num);
    return x;
}

void llama_embed_back(llama_model *self, const uint64_t *tokens, const float *dx)
{
    const uint64_t h = self->form.hidden, num = self->form.tokens * h;
    float *all = llama_take(self, TRANSIENT, num);
    llama_exchange(self, PST_EXCHANGE_ALL_GATHER, dx, all, self->local * h);
    for (uint64_t i = 0; i < self->form.tokens; i++) {
        const int64_t row = row_of(self, tokens[i]);
        float *to =
            llama_gradient(self, self->form.layers, EMBEDDING) + (row < 0 ? 0 : row) * (int64_t)h;
        for (uint64_t j = 0; j < h && row >= 0; j++)
            to[j] += all[i * h + j];
    }
    llama_give(self, TRANSIENT, all, num);
}

/* ---- loss ---- */

/* From each token's logits, of which this rank has a share, those of all: the logarithm of the sum of
 * exponentials, and the target's. */
static void loss_words(llama_model *self, const float *logits, const uint64_t *labels, float *lse,
                       float *target)
{
    const uint64_t tokens = self->form.tokens, share = self->form.vocab / self->num_ranks;
    float *high = llama_take(self, TRANSIENT, tokens);
    for (uint64_t i = 0; i < tokens; i++) {
        high[i] = -INFINITY;
        for (uint64_t j = 0; j < share; j++)
            high[i] = fmaxf(high[i], logits[i * share + j]);
    }
    llama_reduce(self, PST_EXCHANGE_ALL_REDUCE, PST_REDUCE_MAX, high, high, tokens);
    for (uint64_t i = 0; i < tokens; i++) {
        const int64_t row = row_of(self, labels[i]);
        lse[i] = 0;
        for (uint64_t j = 0; j < share; j++)
            lse[i] += expf(logits[i * share + j] - high[i]);
        target[i] = row < 0 ? 0 : logits[i * share + (uint64_t)row];
    }
    llama_exchange(self, PST_EXCHANGE_ALL_REDUCE, lse, lse, tokens);
    llama_exchange(self, PST_EXCHANGE_ALL_REDUCE, target, target, tokens);
    for (uint64_t i = 0; i < tokens; i++)
        lse[i] = high[i] + logf(lse[i]);
    llama_give(self, TRANSIENT, high, tokens);
}

static double mean_loss(llama_model *self, const float *logits, const uint64_t *labels, float *lse)
{
    double sum = 0;
    float *target = llama_take(self, TRANSIENT, self->form.tokens);
    loss_words(self, logits, labels, lse, target);
    for (uint64_t i = 0; i < self->form.tokens; i++)
        sum += (double)lse[i] - (double)target[i];
    llama_give(self, TRANSIENT, target, self->form.tokens);
    return sum / (double)self->form.tokens;
}

/* Logits become their gradients. */
static void loss_back(const llama_model *self, float *logits, const uint64_t *labels,
                      const float *lse)
{
    const uint64_t share = self->form.vocab / self->num_ranks;
    const float scale = 1 / (float)(self->form.tokens * self->form.micro_batches);
    for (uint64_t i = 0; i < self->form.tokens; i++)
        for (uint64_t j = 0; j < share; j++) {
            const bool is_label = row_of(self, labels[i]) == (int64_t)j;
            float *logit = logits + i * share + j;
            *logit = scale * (expf(*logit - lse[i]) - (is_label ? 1.0f : 0.0f));
        }
}

double llama_head(llama_model *self, const float *x, uint64_t *labels, float *dx)
{
    const uint64_t h = self->form.hidden, ends = self->form.layers;
    const uint64_t num = self->form.tokens * self->form.vocab / self->num_ranks;
    float *rstd = llama_take(self, SAVED, self->local);
    float *normed = llama_take(self, SAVED, self->local * h);
    float *logits = llama_take(self, SAVED, num), *lse = llama_take(self, SAVED, self->form.tokens);
    llama_norm(x, llama_weight(self, ends, FINAL_NORM), self->local, h, rstd, normed);
    llama_call call = {.input = normed,
                       .weight = llama_weight(self, ends, OF_OUTPUT),
                       .output = logits,
                       .output_gradient = logits,
                       .weight_gradient = llama_gradient(self, ends, OF_OUTPUT)};
    llama_multiply(self, OUTPUT, &call);
    OK(pst_stream_synchronize(self->rank->device, self->rank->stream));
    const double loss = mean_loss(self, logits, labels, lse);
    loss_back(self, logits, labels, lse);
    call.input_gradient = llama_take(self, TRANSIENT, self->local * h);
    llama_multiply_back(self, OUTPUT, &call);
    OK(pst_stream_synchronize(self->rank->device, self->rank->stream));
    memset(dx, 0, self->local * h * sizeof(*dx));
    llama_norm_back(x, llama_weight(self, ends, FINAL_NORM), rstd, call.input_gradient, self->local,
                    h, dx, llama_gradient(self, ends, FINAL_NORM));
    llama_give(self, TRANSIENT, call.input_gradient, self->local * h);
    llama_give(self, SAVED, lse, self->form.tokens);
    llama_give(self, SAVED, logits, num);
    llama_give(self, SAVED, normed, self->local * h);
    llama_give(self, SAVED, rstd, self->local);
    return loss;
}
