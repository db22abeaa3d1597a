/* Gated activations for AVX-512. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include "kernels/host/glu_rows_body.h"

const psti_glu_rows *const psti_glu_rows_avx512 = &rows_of_this_level;
#else
#include "kernels/host/glu_rows.h"

const psti_glu_rows *const psti_glu_rows_avx512 = NULL;
#endif
