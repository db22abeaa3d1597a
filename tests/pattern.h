/* The bytes that pagestash/pattern.h promises, computed one at a time from its formula. */
#ifndef PAGESTASH_TESTS_PATTERN_H
#define PAGESTASH_TESTS_PATTERN_H

#include <pagestash/pattern.h>

#include "kernels/core/mix.h"

static inline unsigned char pattern_byte(const pst_pattern *pattern, uint64_t step, uint32_t tensor,
                                         uint32_t segment, uint64_t offset)
{
    const uint64_t key = psti_mix(psti_mix(pattern->seed + step) + psti_mix(pattern->key) +
                                  ((uint64_t)tensor << 32) + segment);
    return (unsigned char)(psti_mix(key + offset / 8) >> 8 * (offset % 8));
}

#endif
