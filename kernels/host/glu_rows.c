/* The level of gated activations that runs on any processor, and the choice among the levels. */
#include "kernels/host/glu_rows_body.h"

const psti_glu_rows *psti_glu_rows_of(psti_glu_level level)
{
    switch (level) {
    case PSTI_GLU_BASELINE:
        return &rows_of_this_level;
#if defined(__x86_64__)
    case PSTI_GLU_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? psti_glu_rows_avx2
                                                                               : NULL;
    case PSTI_GLU_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                       __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
                   ? psti_glu_rows_avx512
                   : NULL;
#endif
    default:
        return NULL;
    }
}

const psti_glu_rows *psti_glu_rows_best(void)
{
    const psti_glu_rows *rows = psti_glu_rows_of(PSTI_GLU_AVX512);
    if (rows == NULL)
        rows = psti_glu_rows_of(PSTI_GLU_AVX2);
    return rows != NULL ? rows : &rows_of_this_level;
}

float psti_glu_sum(const float sum[PSTI_GLU_SUMS])
{
    float left[PSTI_GLU_SUMS];
    memcpy(left, sum, sizeof left);
    for (uint32_t half = PSTI_GLU_SUMS / 2; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            left[i] += left[i + half];
    return left[0];
}
