/* Bytes in memory as a source for readers: all at once, or in pieces of any size. */
#ifndef PAGESTASH_TESTS_BYTES_H
#define PAGESTASH_TESTS_BYTES_H

#include <stddef.h>
#include <string.h>

typedef struct byte_source {
    const char *data;
    size_t left, piece; /* most bytes of one read; 0: as many as are asked for */
    int error;          /* what the read after the last byte gives */
} byte_source;

static inline ptrdiff_t read_bytes(void *source, void *buffer, size_t room)
{
    byte_source *from = (byte_source *)source;
    size_t length = from->left < room ? from->left : room;
    if (from->piece != 0 && length > from->piece)
        length = from->piece;
    if (length == 0)
        return -from->error;
    memcpy(buffer, from->data, length);
    from->data += length;
    from->left -= length;
    return (ptrdiff_t)length;
}

#endif
