/* Gated activations of pieces of rows on the CPU: compiled for several instruction sets. */
#ifndef PSTI_HOST_GLU_ROWS_H
#define PSTI_HOST_GLU_ROWS_H

#include "kernels/core/glu.h"

/* Sums of a row, so many side by side: a row may be cut where a multiple of this ends. */
#define PSTI_GLU_SUMS 16u

typedef enum psti_glu_level {
    PSTI_GLU_BASELINE = 0,
    PSTI_GLU_AVX2 = 1,   /* with FMA */
    PSTI_GLU_AVX512 = 2, /* F, BW, VL and DQ */
    PSTI_NUM_GLU_LEVELS
} psti_glu_level;

/* `n` elements of one row. With `interleave` 0 gate and up lie in a run of n each; with 1 or 32,
 * which n is a multiple of, `gate` points to 2 n elements, so many of the gate and so many of up in
 * turn, and `up` is NULL. `p` is the row's probability. Addresses are aligned to the elements. */
typedef struct psti_glu_rows {
    void (*forward)(const psti_activation *how, uint32_t dtype, uint32_t interleave,
                    const void *gate, const void *up, uint64_t n, float p, void *out);
    /* The gradients lie as gate and up. `out`, or NULL, gets the bits that `forward` gives. Adds
     * gradient * value, without p, of element i to sum[i % PSTI_GLU_SUMS], in their order. */
    void (*backward)(const psti_activation *how, uint32_t dtype, uint32_t interleave,
                     const void *gate, const void *up, const void *gradient, uint64_t n, float p,
                     void *gate_gradient, void *up_gradient, void *out, float sum[PSTI_GLU_SUMS]);
} psti_glu_rows;

/* NULL where the processor or the build lacks the level. */
const psti_glu_rows *psti_glu_rows_of(psti_glu_level level);

/* The highest level that there is. */
const psti_glu_rows *psti_glu_rows_best(void);

/* In one order. */
float psti_glu_sum(const float sum[PSTI_GLU_SUMS]);

/* As compiled, NULL where the compiler was not given the instructions. */
extern const psti_glu_rows *const psti_glu_rows_avx2, *const psti_glu_rows_avx512;

#endif
