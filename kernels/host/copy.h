/* The copy of host pages. */
#ifndef PSTI_HOST_COPY_H
#define PSTI_HOST_COPY_H

#include <stdint.h>
#include <string.h>

static inline void psti_copy(unsigned char *to, const unsigned char *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
}

#endif
