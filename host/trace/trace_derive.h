/* What the two files of the derived trace share. */
#ifndef PSTI_HOST_TRACE_DERIVE_H
#define PSTI_HOST_TRACE_DERIVE_H

#include "host/trace/trace.h"

#define PSTI_NO_ID UINT64_MAX

/* Bytes, rounded up. The letters are those of docs/formats.md. */
typedef struct psti_sizes {
    uint64_t b, b2, b3, g, f, st, lse;    /* B, 2B, 3B, G, F, ST, LSE */
    uint64_t r_b, r_3b, r_g, r_f;         /* of the recomputed tokens; 0: none are */
    uint64_t d_qkv, d_proj, d_fc, d_bias; /* gradients of weights */
    uint64_t d_norm, d_head;
    uint64_t logits, logits_fp32;
    uint64_t tokens_8, tokens_4; /* 8 and 4 bytes for each token */
} psti_sizes;

/* What a layer's forward leaves for its backward, in mode full; PSTI_NO_ID: nothing. */
typedef struct psti_skeleton {
    uint64_t mean[2], rstd[2], norm[2];
    uint64_t q, k, v, attention, lse, residual, fc1, gelu;
} psti_skeleton;

extern const psti_skeleton psti_nothing_kept;

typedef struct psti_deriver {
    psti_tape tape;
    psti_sizes size;
    bool is_full, is_ring;
} psti_deriver;

uint64_t psti_take(psti_deriver *self, uint64_t bytes);
void psti_give(psti_deriver *self, uint64_t id);     /* PSTI_NO_ID is allowed */
void psti_brief(psti_deriver *self, uint64_t bytes); /* taken and given back */

/* Returns the output, which in MEMO's mode takes the place of the input. */
uint64_t psti_layer_forward(psti_deriver *self, uint64_t input, psti_skeleton *kept);
/* Gives back the incoming gradient, returns the outgoing one. */
uint64_t psti_layer_backward(psti_deriver *self, uint64_t incoming, const psti_skeleton *kept);

#endif
