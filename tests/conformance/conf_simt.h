/* The simt device, where the conformance suite meets it. */
#ifndef PAGESTASH_TESTS_CONF_SIMT_H
#define PAGESTASH_TESTS_CONF_SIMT_H

#include "tests/simt/simt_device.h"

#include "kernels/core/mix.h"

/* With the options of the environment (PSTI_SIMT_*). */
static inline pst_status conf_simt_open(pst_device **device_out)
{
    return psti_simt_device_open(NULL, device_out);
}

/* Limited residency down to one slot, one to eight blocks. Mixed: a test takes the theme of its shapes
 * and the pool's mode from the seed's remainders, and each shall meet every grid. */
static inline void conf_simt_vary(uint64_t seed, uint32_t threads)
{
    const uint64_t mixed = psti_mix(seed);
    const simt_config config = {.seed = seed,
                                .residency = 1 + (uint32_t)(mixed % 3),
                                .threads = threads,
                                .max_blocks = 1 + (uint32_t)(mixed / 3 % 8)};
    psti_simt_configure(&config);
}

#endif
