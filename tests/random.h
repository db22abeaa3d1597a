/* Random numbers for tests, the same on every machine. */
#ifndef PAGESTASH_TESTS_RANDOM_H
#define PAGESTASH_TESTS_RANDOM_H

#include <stdint.h>

static inline uint64_t random_below(uint64_t *state, uint64_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth */
    return (*state >> 33) % limit;
}

#endif
