/* Published models, and how the vectors of the estimator's tests train them. */
#ifndef PAGESTASH_TESTS_ESTIMATE_MODELS_H
#define PAGESTASH_TESTS_ESTIMATE_MODELS_H

#include <pagestash/estimate.h>

#include "tests/harness.h"

pst_estimate_config psti_model_gpt2(void);
pst_estimate_config psti_model_gpt_345m(void);
pst_estimate_config psti_model_gpt3(void);
pst_estimate_config psti_model_gated_gpt(void);
pst_estimate_config psti_model_llama2_7b(void);
pst_estimate_config psti_model_llama2_13b(void);
pst_estimate_config psti_model_llama2_70b(void);
pst_estimate_config psti_model_mixtral_8x7b(void);
pst_estimate_config psti_model_qwen3_30b(void);
pst_estimate_config psti_model_qwen3_235b(void);
pst_estimate_config psti_model_deepseek_v3(void);

/* The parallel configurations P1 to P14. */
enum { PSTI_NUM_RUNS = 14 };
pst_estimate_config psti_estimate_run(int number);

#endif
