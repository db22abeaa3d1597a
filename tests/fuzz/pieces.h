/* What the fuzz targets share: bytes for readers, demands, and a hash of what was read. */
#ifndef PAGESTASH_TESTS_FUZZ_PIECES_H
#define PAGESTASH_TESTS_FUZZ_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bytes.h"

enum { MAX_PIECE = 61 };

static inline void require(bool condition)
{
    if (!condition)
        abort();
}

static inline uint64_t fold(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x100000001b3);
}

#endif
