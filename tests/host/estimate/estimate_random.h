/* Configurations of the estimator, drawn by a number: small models, any split, every switch. */
#ifndef PAGESTASH_TESTS_ESTIMATE_RANDOM_H
#define PAGESTASH_TESTS_ESTIMATE_RANDOM_H

#include <pagestash/estimate.h>

#include "tests/harness.h"

enum { PSTI_RANDOM_LAYERS = 48 };

typedef struct psti_random_run {
    uint64_t state; /* of the generator */
    pst_estimate_config config;
    bool is_moe[PSTI_RANDOM_LAYERS];
    uint64_t chunk_layers[PSTI_RANDOM_LAYERS];
} psti_random_run;

uint64_t psti_random_below(uint64_t *state, uint64_t limit);
/* Into run, whose state is drawn from: a config that passes its checks. */
void psti_draw_run(psti_random_run *run);

/* Every member of a config, in the order of its rows. */
typedef struct psti_field {
    const char *name;
    size_t offset, bytes;
    bool is_whole; /* a uint64_t; others are switches, choices, bits and lists */
} psti_field;

extern const psti_field psti_fields[];
extern const size_t psti_num_fields;
/* "name=value"; false: there is no such field. */
bool psti_change_field(pst_estimate_config *config, const char *change);
bool psti_field_is_zero(const pst_estimate_config *config, const char *change);
uint64_t *psti_field_of(pst_estimate_config *config, size_t index);

#endif
