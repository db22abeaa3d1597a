/* What a model has beside its matrices: float32, one token after the other. */
#ifndef PAGESTASH_TESTS_LLAMA_MATH_H
#define PAGESTASH_TESTS_LLAMA_MATH_H

#include <stdint.h>

/* y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps) of each row. */
void llama_norm(const float *x, const float *weight, uint64_t rows, uint64_t columns, float *rstd,
                float *y);
/* Adds to dx and dweight. */
void llama_norm_back(const float *x, const float *weight, const float *rstd, const float *dy,
                     uint64_t rows, uint64_t columns, float *dx, float *dweight);

/* Rows of queries, keys and values of so many heads, one behind the other. */
typedef struct llama_attention {
    uint64_t tokens, heads, head_size;
    float *qkv; /* (tokens, 3 * heads * head_size) */
    float *out; /* (tokens, heads * head_size) */
    float *lse; /* (tokens, heads) */
} llama_attention;

/* Turns queries and keys by their positions, backwards where sign is -1; of gradients too. */
void llama_rotate(float *qkv, uint64_t tokens, uint64_t heads, uint64_t head_size, float sign);
/* Causal. */
void llama_attend(const llama_attention *of);
/* dqkv: overwritten. */
void llama_attend_back(const llama_attention *of, const float *dout, float *dqkv);

#endif
