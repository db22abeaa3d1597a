/* Bytes in memory, given to a reader all at once or in pieces. */
#ifndef PAGESTASH_TESTS_FUZZ_PIECES_H
#define PAGESTASH_TESTS_FUZZ_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PIECE = 61 };

typedef struct memory {
    const uint8_t *data;
    size_t left, piece; /* piece 0: all at once */
} memory;

static inline void require(bool condition)
{
    if (!condition)
        abort();
}

static inline ptrdiff_t read_memory(void *source, void *buffer, size_t bytes)
{
    memory *from = (memory *)source;
    size_t length = from->left < bytes ? from->left : bytes;
    if (from->piece != 0 && length > from->piece)
        length = from->piece;
    memcpy(buffer, from->data, length);
    from->data += length;
    from->left -= length;
    return (ptrdiff_t)length;
}

static inline uint64_t fold(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x100000001b3);
}

#endif
