/* The ptx device, where the conformance suite meets it. */
#ifndef PAGESTASH_TESTS_CONF_PTX_H
#define PAGESTASH_TESTS_CONF_PTX_H

#include "tests/ptx/ptx_device.h"

/* One to three blocks at a time, of one to four. */
static inline void conf_ptx_vary(uint64_t seed)
{
    const ptx_options options = {.seed = seed,
                                 .resident = 1 + (uint32_t)(seed % 3),
                                 .max_blocks = 1 + (uint32_t)(seed * 5 % 4)};
    psti_ptx_configure(&options);
}

#endif
