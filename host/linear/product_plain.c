/* The product in plain C: each element is added up from its first term to its last. */
#include "host/linear/linear.h"

enum { COLUMNS = 128, DEPTH = 64 };

/* `depth` rows of `columns` elements of B, as they are multiplied. */
static void take_block(const psti_gemm *gemm, uint32_t k, uint32_t depth, uint32_t j,
                       uint32_t columns, float block[DEPTH][COLUMNS])
{
    for (uint32_t q = 0; q < depth; q++)
        for (uint32_t c = 0; c < columns; c++) {
            const size_t row = gemm->b_transposed ? j + c : k + q;
            const size_t column = gemm->b_transposed ? k + q : j + c;
            block[q][c] = gemm->b[row * gemm->b_lead + column];
        }
}

static void multiply_block(const psti_gemm *gemm, uint32_t k, uint32_t depth, uint32_t j,
                           uint32_t columns, float block[DEPTH][COLUMNS])
{
    const size_t of_row = gemm->a_transposed ? 1 : gemm->a_lead;
    const size_t of_term = gemm->a_transposed ? gemm->a_lead : 1;
    for (size_t i = 0; i < gemm->m; i++) {
        const float *a = gemm->a + i * of_row + k * of_term;
        float *d = gemm->d + i * gemm->d_lead + j;
        for (uint32_t q = 0; q < depth; q++) {
            const float factor = a[q * of_term];
            for (uint32_t c = 0; c < columns; c++)
                d[c] += factor * block[q][c];
        }
    }
}

void psti_gemm_plain(const psti_gemm *gemm)
{
    float block[DEPTH][COLUMNS];
    for (uint32_t j = 0; j < gemm->n; j += COLUMNS)
        for (uint32_t k = 0; k < gemm->k; k += DEPTH) {
            const uint32_t columns = gemm->n - j < COLUMNS ? gemm->n - j : COLUMNS;
            const uint32_t depth = gemm->k - k < DEPTH ? gemm->k - k : DEPTH;
            take_block(gemm, k, depth, j, columns, block);
            multiply_block(gemm, k, depth, j, columns, block);
        }
}
