/* A set of numbers in which the next lower one is found in a step per level. */
#include <inttypes.h>

#include "host/arena/arena.h"

pst_status psti_bits_open(psti_bits *bits, uint64_t bound)
{
    uint64_t words[PSTI_BITS_LEVELS];
    uint64_t total = 0;
    uint32_t num_levels = 0;
    uint64_t count = bound + 1; /* psti_bits_below is asked of the bound, too */
    do {
        count = (count + 63) / 64;
        words[num_levels++] = count;
        total += count;
    } while (count > 1);
    uint64_t *memory = psti_calloc(total, sizeof(*memory));
    PSTI_CHECK(memory, PST_E_NOMEM, "no memory for a set of %" PRIu64 " tensors", bound);
    bits->num_levels = num_levels;
    for (uint32_t i = 0; i < num_levels; i++) {
        bits->levels[i] = memory;
        memory += words[i];
    }
    return PST_OK;
}

void psti_bits_close(psti_bits *bits)
{
    psti_free(bits->levels[0]);
    *bits = (psti_bits){0};
}

void psti_bits_set(psti_bits *bits, uint32_t number)
{
    for (uint32_t i = 0; i < bits->num_levels; i++, number /= 64) {
        uint64_t *word = &bits->levels[i][number / 64];
        const bool was_empty = *word == 0;
        *word |= UINT64_C(1) << number % 64;
        if (!was_empty)
            return;
    }
}

void psti_bits_clear(psti_bits *bits, uint32_t number)
{
    for (uint32_t i = 0; i < bits->num_levels; i++, number /= 64) {
        uint64_t *word = &bits->levels[i][number / 64];
        *word &= ~(UINT64_C(1) << number % 64);
        if (*word != 0)
            return;
    }
}

uint32_t psti_bits_below(const psti_bits *bits, uint32_t number)
{
    for (uint32_t i = 0; i < bits->num_levels; i++, number /= 64) {
        const uint64_t below = (UINT64_C(1) << number % 64) - 1;
        const uint64_t word = bits->levels[i][number / 64] & below;
        if (word == 0)
            continue;
        uint32_t found = number / 64 * 64 + 63 - (uint32_t)__builtin_clzll(word);
        while (i-- > 0)
            found = found * 64 + 63 - (uint32_t)__builtin_clzll(bits->levels[i][found]);
        return found;
    }
    return PSTI_NO_INDEX;
}
