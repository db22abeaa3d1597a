/* Gated activations for AVX2 with FMA. */
#if defined(__AVX2__) && defined(__FMA__)
#include "kernels/host/glu_rows_body.h"

const psti_glu_rows *const psti_glu_rows_avx2 = &rows_of_this_level;
#else
#include "kernels/host/glu_rows.h"

const psti_glu_rows *const psti_glu_rows_avx2 = NULL;
#endif
