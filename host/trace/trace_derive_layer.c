/* The memory requests of a transformer layer. */
#include "host/trace/trace_derive.h"

uint64_t psti_take(psti_deriver *self, uint64_t bytes)
{
    return psti_tape_malloc(&self->tape, bytes);
}

void psti_give(psti_deriver *self, uint64_t id)
{
    if (id != PSTI_NO_ID)
        psti_tape_free(&self->tape, id);
}

const psti_skeleton psti_nothing_kept = {{PSTI_NO_ID, PSTI_NO_ID},
                                         {PSTI_NO_ID, PSTI_NO_ID},
                                         {PSTI_NO_ID, PSTI_NO_ID},
                                         PSTI_NO_ID,
                                         PSTI_NO_ID,
                                         PSTI_NO_ID,
                                         PSTI_NO_ID,
                                         PSTI_NO_ID,
                                         PSTI_NO_ID,
                                         PSTI_NO_ID,
                                         PSTI_NO_ID};

/* In mode full a request; else it lies in MEMO's buffers. */
static uint64_t keep(psti_deriver *self, uint64_t bytes)
{
    return self->is_full ? psti_take(self, bytes) : PSTI_NO_ID;
}

void psti_brief(psti_deriver *self, uint64_t bytes)
{
    psti_give(self, psti_take(self, bytes));
}

/* ---- forward ---- */

/* Two steps around the ring: the block of keys and values of another rank comes while our own is
 * worked on; the two outputs are merged in fp32. */
static void ring_forward(psti_deriver *self, psti_skeleton *kept)
{
    const psti_sizes *size = &self->size;
    const uint64_t send = psti_take(self, size->b2);
    const uint64_t receive = psti_take(self, size->b2);
    const uint64_t output_0 = psti_take(self, size->b);
    const uint64_t lse_0 = psti_take(self, size->lse);
    const uint64_t output_1 = psti_take(self, size->b);
    const uint64_t lse_1 = psti_take(self, size->lse);
    psti_give(self, send);
    psti_give(self, receive);
    const uint64_t sum = psti_take(self, size->b2);
    psti_give(self, output_0);
    psti_give(self, output_1);
    const uint64_t correction = psti_take(self, size->lse);
    kept->attention = keep(self, size->b);
    kept->lse = keep(self, size->lse);
    psti_give(self, lse_0);
    psti_give(self, lse_1);
    psti_give(self, correction);
    psti_give(self, sum);
}

static void attention_forward(psti_deriver *self, psti_skeleton *kept)
{
    const psti_sizes *size = &self->size;
    kept->mean[0] = psti_take(self, size->st);
    kept->rstd[0] = psti_take(self, size->st);
    kept->norm[0] = keep(self, size->b);
    const uint64_t gathered = psti_take(self, size->g);
    const uint64_t qkv = psti_take(self, size->b3);
    psti_give(self, gathered);
    kept->q = keep(self, size->b);
    kept->k = keep(self, size->b);
    kept->v = keep(self, size->b);
    psti_give(self, qkv);
    if (self->is_ring) {
        ring_forward(self, kept);
    } else {
        kept->attention = keep(self, size->b);
        kept->lse = keep(self, size->lse);
    }
    const uint64_t projected = psti_take(self, size->g);
    const uint64_t scattered = psti_take(self, size->b);
    psti_give(self, projected);
    const uint64_t biased = psti_take(self, size->b);
    kept->residual = keep(self, size->b);
    psti_give(self, scattered);
    psti_give(self, biased);
}

/* The output of the layer, which takes the place of its input. */
static uint64_t mlp_forward(psti_deriver *self, psti_skeleton *kept)
{
    const psti_sizes *size = &self->size;
    kept->mean[1] = psti_take(self, size->st);
    kept->rstd[1] = psti_take(self, size->st);
    kept->norm[1] = keep(self, size->b);
    const uint64_t gathered = psti_take(self, size->g);
    kept->fc1 = keep(self, size->f);
    psti_give(self, gathered);
    const uint64_t sum = psti_take(self, size->f);
    kept->gelu = keep(self, size->f);
    psti_give(self, sum);
    const uint64_t projected = psti_take(self, size->g);
    const uint64_t scattered = psti_take(self, size->b);
    psti_give(self, projected);
    const uint64_t biased = psti_take(self, size->b);
    const uint64_t output = psti_take(self, size->b);
    psti_give(self, scattered);
    psti_give(self, biased);
    return output;
}

static void give_norms(psti_deriver *self, const psti_skeleton *kept, int norm)
{
    psti_give(self, kept->mean[norm]);
    psti_give(self, kept->rstd[norm]);
}

uint64_t psti_layer_forward(psti_deriver *self, uint64_t input, psti_skeleton *kept)
{
    attention_forward(self, kept);
    const uint64_t output = mlp_forward(self, kept);
    if (!self->is_full) {
        give_norms(self, kept, 0);
        give_norms(self, kept, 1);
        psti_give(self, input);
        *kept = psti_nothing_kept;
    }
    return output;
}

/* ---- backward ---- */

static void recompute(psti_deriver *self)
{
    const psti_sizes *size = &self->size;
    if (size->r_b == 0)
        return;
    const uint64_t norm = psti_take(self, size->r_b);
    const uint64_t gathered = psti_take(self, size->r_g);
    const uint64_t qkv = psti_take(self, size->r_3b);
    psti_give(self, gathered);
    psti_give(self, norm);
    psti_give(self, qkv);
    const uint64_t projected = psti_take(self, size->r_g);
    const uint64_t scattered = psti_take(self, size->r_b);
    psti_give(self, projected);
    psti_give(self, scattered);
    const uint64_t norm_2 = psti_take(self, size->r_b);
    const uint64_t gathered_2 = psti_take(self, size->r_g);
    psti_give(self, norm_2);
    psti_give(self, gathered_2);
    psti_brief(self, size->r_f);
}

/* Gradient of a linear layer whose input was gathered: d_output is given back. Returns the gradient
 * of what was gathered. */
static uint64_t gathered_backward(psti_deriver *self, uint64_t d_output, uint64_t weight_bytes)
{
    const psti_sizes *size = &self->size;
    const uint64_t gathered = psti_take(self, size->g);
    const uint64_t d_input = psti_take(self, size->g);
    const uint64_t scattered = psti_take(self, size->b);
    psti_brief(self, weight_bytes);
    psti_give(self, gathered);
    psti_give(self, d_input);
    psti_give(self, d_output);
    return scattered;
}

/* Gives back the incoming gradient, returns that of the residual stream. */
static uint64_t mlp_backward(psti_deriver *self, uint64_t incoming, const psti_skeleton *kept)
{
    const psti_sizes *size = &self->size;
    const uint64_t gathered = psti_take(self, size->g);
    const uint64_t d_gelu = psti_take(self, size->f);
    psti_brief(self, size->d_fc);
    psti_give(self, gathered);
    psti_give(self, kept->gelu);
    const uint64_t d_fc1 = psti_take(self, size->f);
    const uint64_t d_bias = psti_take(self, size->d_bias);
    psti_give(self, d_gelu);
    psti_give(self, d_bias);
    psti_give(self, kept->fc1);
    const uint64_t scattered = gathered_backward(self, d_fc1, size->d_fc);
    psti_give(self, kept->norm[1]);
    const uint64_t d_norm = psti_take(self, size->b);
    psti_brief(self, size->d_norm);
    psti_give(self, scattered);
    give_norms(self, kept, 1);
    psti_give(self, kept->residual);
    const uint64_t d_residual = psti_take(self, size->b);
    psti_give(self, d_norm);
    psti_give(self, incoming);
    return d_residual;
}

/* The gradient of q, k and v, packed. */
static uint64_t core_backward(psti_deriver *self, uint64_t d_attention, const psti_skeleton *kept)
{
    const psti_sizes *size = &self->size;
    uint64_t ring[4] = {PSTI_NO_ID, PSTI_NO_ID, PSTI_NO_ID,
                        PSTI_NO_ID}; /* kv packed, kv and dkv received, dkv sum */
    for (int i = 0; i < 4 && self->is_ring; i++)
        ring[i] = psti_take(self, size->b2);
    const uint64_t d_softmax = psti_take(self, size->lse);
    const uint64_t dq_fp32 = psti_take(self, size->b2);
    const uint64_t dq = psti_take(self, size->b);
    const uint64_t dk = psti_take(self, size->b);
    const uint64_t dv = psti_take(self, size->b);
    psti_give(self, dq_fp32);
    psti_give(self, d_softmax);
    for (int i = 0; i < 4; i++)
        psti_give(self, ring[i]);
    psti_give(self, d_attention);
    psti_give(self, kept->q);
    psti_give(self, kept->k);
    psti_give(self, kept->v);
    psti_give(self, kept->attention);
    psti_give(self, kept->lse);
    const uint64_t d_qkv = psti_take(self, size->b3);
    psti_give(self, dq);
    psti_give(self, dk);
    psti_give(self, dv);
    return d_qkv;
}

uint64_t psti_layer_backward(psti_deriver *self, uint64_t incoming, const psti_skeleton *kept)
{
    const psti_sizes *size = &self->size;
    recompute(self);
    const uint64_t d_residual = mlp_backward(self, incoming, kept);
    const uint64_t gathered = psti_take(self, size->g);
    const uint64_t d_attention = psti_take(self, size->b);
    psti_brief(self, size->d_proj);
    psti_give(self, gathered);
    const uint64_t d_qkv = core_backward(self, d_attention, kept);
    const uint64_t scattered = gathered_backward(self, d_qkv, size->d_qkv);
    psti_give(self, kept->norm[0]);
    const uint64_t d_norm = psti_take(self, size->b);
    psti_brief(self, size->d_norm);
    psti_give(self, scattered);
    give_norms(self, kept, 0);
    const uint64_t outgoing = psti_take(self, size->b);
    psti_give(self, d_norm);
    psti_give(self, d_residual);
    return outgoing;
}
