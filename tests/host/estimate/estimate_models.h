/* Published models, and how the runs of the estimator's tests train them. */
#ifndef PAGESTASH_TESTS_ESTIMATE_MODELS_H
#define PAGESTASH_TESTS_ESTIMATE_MODELS_H

#include <pagestash/estimate.h>

#include "tests/harness.h"

/* By the names of the table in estimate_models.c, as "llama2_7b". */
pst_estimate_config psti_model(const char *name);

/* The parallel configurations P1 to P14. */
enum { PSTI_NUM_RUNS = 14 };
pst_estimate_config psti_estimate_run(int number);
/* "P12", or a model. */
pst_estimate_config psti_estimate_named(const char *name);

#endif
