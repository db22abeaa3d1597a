/* The values of a pickle: where they are kept, and how they are looked at. */
#include <string.h>

#include "host/trace/trace.h"

enum { BLOCK_SHIFT = 13, BLOCK_WORDS = 1 << BLOCK_SHIFT };

pst_status psti_words_take(psti_words *words, uint64_t num_words, uint64_t *index_out)
{
    const uint64_t index = words->num_words == 0 ? 1 : words->num_words;
    const uint64_t end = index + num_words;
    while (words->num_blocks << BLOCK_SHIFT < end) {
        PSTI_TRY(psti_grow((void **)&words->blocks, &words->block_capacity, words->num_blocks + 1,
                           sizeof(*words->blocks)));
        uint64_t *block = psti_calloc(BLOCK_WORDS, sizeof(*block));
        PSTI_CHECK(block != NULL, PST_E_NOMEM, "out of memory for a pickle");
        words->blocks[words->num_blocks++] = block;
    }
    words->num_words = end;
    *index_out = index;
    return PST_OK;
}

uint64_t *psti_words_at(const psti_words *words, uint64_t index)
{
    return &words->blocks[index >> BLOCK_SHIFT][index & (BLOCK_WORDS - 1)];
}

void psti_words_free(psti_words *words)
{
    for (uint64_t i = 0; i < words->num_blocks; i++)
        psti_free(words->blocks[i]);
    psti_free(words->blocks);
    *words = (psti_words){NULL, 0, 0, 0};
}

static uint64_t place_of(psti_value value)
{
    return value & ((UINT64_C(1) << PSTI_PICKLE_TYPE_SHIFT) - 1);
}

pst_status psti_pickle_chunk(psti_pickle *pickle, const psti_value *values, uint64_t num_values,
                             uint64_t *chunk_out)
{
    psti_words *items = &pickle->items;
    uint64_t chunk = 0;
    if (num_values > 0) {
        PSTI_TRY(psti_words_take(items, 2 + num_values, &chunk));
        *psti_words_at(items, chunk + 1) = num_values;
    }
    for (uint64_t i = 0; i < num_values; i++)
        *psti_words_at(items, chunk + 2 + i) = values[i];
    *chunk_out = chunk;
    return PST_OK;
}

pst_status psti_pickle_add(psti_pickle *pickle, psti_value container, const psti_value *values,
                           uint64_t num_values)
{
    const psti_words *items = &pickle->items;
    const uint64_t place = place_of(container);
    uint64_t chunk = 0;
    PSTI_TRY(psti_pickle_chunk(pickle, values, num_values, &chunk));
    if (chunk == 0)
        return PST_OK;
    const uint64_t last = *psti_words_at(items, place + 1);
    *psti_words_at(items, last != 0 ? last : place) = chunk;
    *psti_words_at(items, place + 1) = chunk;
    return PST_OK;
}

psti_pickle_type psti_pickle_type_of(psti_value value)
{
    return (psti_pickle_type)(value >> PSTI_PICKLE_TYPE_SHIFT);
}

const char *psti_pickle_type_name(psti_pickle_type type)
{
    static const char *const names[] = {"nothing", "None",   "a bool",  "an int", "a float",
                                        "a str",   "a list", "a tuple", "a dict"};
    return names[type];
}

static uint64_t little_endian(const unsigned char *bytes, uint32_t num_bytes)
{
    uint64_t number = 0;
    for (uint32_t i = 0; i < num_bytes; i++)
        number |= (uint64_t)bytes[i] << (8 * i);
    return number;
}

bool psti_pickle_u64(const psti_pickle *pickle, psti_value value, uint64_t *out)
{
    const unsigned char *code = pickle->bytes + place_of(value);
    if (*code == 'K' || *code == 'M') { /* BININT1, BININT2 */
        *out = little_endian(code + 1, *code == 'K' ? 1 : 2);
        return true;
    }
    const bool is_long = *code == 0x8a; /* LONG1, else BININT: two's complement, both */
    const uint32_t num_bytes = is_long ? code[1] : 4;
    const unsigned char *digits = code + (is_long ? 2 : 1);
    if (num_bytes == 0) {
        *out = 0;
        return true;
    }
    if ((digits[num_bytes - 1] & 0x80) != 0) /* negative */
        return false;
    for (uint32_t i = 8; i < num_bytes; i++)
        if (digits[i] != 0)
            return false;
    *out = little_endian(digits, num_bytes < 8 ? num_bytes : 8);
    return true;
}

psti_field psti_pickle_text(const psti_pickle *pickle, psti_value value)
{
    const unsigned char *code = pickle->bytes + place_of(value);
    const uint32_t length_bytes = *code == 0x8c ? 1 : *code == 'X' ? 4 : 8;
    return (psti_field){(const char *)code + 1 + length_bytes,
                        (size_t)little_endian(code + 1, length_bytes)};
}

psti_cursor psti_pickle_first(const psti_pickle *pickle, psti_value container)
{
    const uint64_t place = place_of(container);
    if (psti_pickle_type_of(container) == PSTI_PICKLE_TUPLE)
        return (psti_cursor){place, 0};
    return (psti_cursor){*psti_words_at(&pickle->items, place), 0};
}

bool psti_pickle_next(const psti_pickle *pickle, psti_cursor *cursor, psti_value *out)
{
    const psti_words *items = &pickle->items;
    if (cursor->chunk != 0 && cursor->index == *psti_words_at(items, cursor->chunk + 1))
        *cursor = (psti_cursor){*psti_words_at(items, cursor->chunk), 0};
    if (cursor->chunk == 0)
        return false;
    *out = *psti_words_at(items, cursor->chunk + 2 + cursor->index++);
    return true;
}

psti_value psti_pickle_find(const psti_pickle *pickle, psti_value dict, const char *key)
{
    psti_cursor cursor = psti_pickle_first(pickle, dict);
    psti_value name;
    psti_value value;
    psti_value found = 0;
    while (psti_pickle_next(pickle, &cursor, &name) && psti_pickle_next(pickle, &cursor, &value))
        if (psti_pickle_type_of(name) == PSTI_PICKLE_TEXT &&
            psti_field_is(psti_pickle_text(pickle, name), key))
            found = value; /* python, too, keeps the last */
    return found;
}

void psti_pickle_close(psti_pickle *pickle)
{
    psti_words_free(&pickle->items);
    psti_words_free(&pickle->memo);
}
