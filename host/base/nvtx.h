/* NVTX ranges on host calls, in the domain "pagestash". Empty in a build without the toolkit.
 * PSTI_RANGE(name); spans the rest of the enclosing block. */
#ifndef PSTI_HOST_NVTX_H
#define PSTI_HOST_NVTX_H

#include <stdbool.h>

#if PSTI_HAVE_NVTX
bool psti_range_begin(const char *name);
void psti_range_end(const bool *began);
#define PSTI_RANGE(name) \
    __attribute__((cleanup(psti_range_end), unused)) const bool psti_range = psti_range_begin(name)
#else
#define PSTI_RANGE(name) (void)0
#endif

#endif
