/* The one mixer of numbers, splitmix64 (Steele, Lea, Flood 2014), and the pattern of
 * pagestash/pattern.h made of it. */
#ifndef PSTI_CORE_MIX_H
#define PSTI_CORE_MIX_H

#include "kernels/core/fn.h"

#define PSTI_MIX_STEP 0x9e3779b97f4a7c15u

PSTI_FN uint64_t psti_mix_final(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

PSTI_FN uint64_t psti_mix(uint64_t x)
{
    return psti_mix_final(x + PSTI_MIX_STEP);
}

/* To 32 bits, where few cycles are what counts: the finalizer of MurmurHash3 (Appleby, public
 * domain) over a sum of products. */
PSTI_FN uint32_t psti_mix_u32(uint64_t x, uint64_t y, uint32_t number)
{
    uint32_t hash = (uint32_t)x + (uint32_t)(x >> 32) * 0x9e3779b1u;
    hash += (uint32_t)y * 0xcc9e2d51u + (uint32_t)(y >> 32) * 0x1b873593u;
    hash += (number + 1) * 0xe6546b64u;
    hash = (hash ^ (hash >> 16)) * 0x85ebca6bu;
    hash = (hash ^ (hash >> 13)) * 0xc2b2ae35u;
    return hash ^ (hash >> 16);
}

/* The next number of the stream that begins with psti_mix(seed). */
PSTI_FN uint64_t psti_mix_next(uint64_t *state)
{
    const uint64_t number = psti_mix(*state);
    *state += PSTI_MIX_STEP;
    return number;
}

PSTI_FN uint64_t psti_pattern_key(uint64_t seed, uint64_t step, uint64_t key, uint32_t tensor,
                                  uint32_t segment)
{
    return psti_mix(psti_mix(seed + step) + psti_mix(key) + ((uint64_t)tensor << 32) + segment);
}

PSTI_FN uint64_t psti_pattern_word(uint64_t segment_key, uint64_t word)
{
    return psti_mix(segment_key + word);
}

#endif
