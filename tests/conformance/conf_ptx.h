/* The ptx device, where the conformance suite meets it. */
#ifndef PAGESTASH_TESTS_CONF_PTX_H
#define PAGESTASH_TESTS_CONF_PTX_H

#include "tests/ptx/ptx_device.h"

#include "kernels/core/mix.h"

/* One to three blocks at a time, of one to four. Mixed for the reason of conf_simt_vary. */
static inline void conf_ptx_vary(uint64_t seed)
{
    const uint64_t mixed = psti_mix(seed);
    const ptx_options options = {.seed = seed,
                                 .resident = 1 + (uint32_t)(mixed % 3),
                                 .max_blocks = 1 + (uint32_t)(mixed / 3 % 4)};
    psti_ptx_configure(&options);
}

#endif
