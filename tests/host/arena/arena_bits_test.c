/* The set of ranks against an array of flags. */
#include "tests/harness.h"

#include <stdlib.h>

#include "host/arena/arena.h"

static uint32_t naive_below(const bool *flags, uint32_t number)
{
    while (number-- > 0)
        if (flags[number])
            return number;
    return PSTI_NO_INDEX;
}

static void check_bound(uint32_t bound, unsigned seed)
{
    psti_bits bits;
    bool *flags = calloc(bound + 1, sizeof(*flags));
    CHECK_OK(psti_bits_open(&bits, bound));
    for (int i = 0; i < 2000; i++) {
        seed = seed * 1103515245u + 12345u;
        const uint32_t number = (seed >> 8) % bound;
        /* long stretches of one and of the other */
        flags[number] = i / 500 % 2 ? seed >> 28 == 0 : seed >> 28 != 0;
        if (flags[number])
            psti_bits_set(&bits, number);
        else
            psti_bits_clear(&bits, number);
        const uint32_t asked = (seed >> 4) % (bound + 1);
        CHECK_EQ(psti_bits_below(&bits, asked), naive_below(flags, asked));
        CHECK_EQ(psti_bits_below(&bits, bound), naive_below(flags, bound));
        CHECK_EQ(psti_bits_below(&bits, 0), PSTI_NO_INDEX);
    }
    psti_bits_close(&bits);
    free(flags);
}

PST_TEST(ArenaBits, AnswersAsAnArrayDoes)
{
    static const uint32_t bounds[] = {1, 2, 63, 64, 65, 127, 128, 4095, 4096, 4097, 5000};
    for (unsigned i = 0; i < sizeof(bounds) / sizeof(*bounds); i++)
        check_bound(bounds[i], i);
}

PST_TEST(ArenaBits, ManyLevels)
{
    const uint32_t bound = 1u << 24;
    psti_bits bits;
    CHECK_OK(psti_bits_open(&bits, bound));
    CHECK_EQ(bits.num_levels, 5);
    CHECK_EQ(psti_bits_below(&bits, bound), PSTI_NO_INDEX);
    psti_bits_set(&bits, 5);
    CHECK_EQ(psti_bits_below(&bits, bound), 5);
    psti_bits_set(&bits, bound - 1);
    CHECK_EQ(psti_bits_below(&bits, bound), bound - 1);
    CHECK_EQ(psti_bits_below(&bits, bound - 1), 5);
    psti_bits_clear(&bits, 5);
    CHECK_EQ(psti_bits_below(&bits, bound - 1), PSTI_NO_INDEX);
    psti_bits_close(&bits);
    CHECK_OK(psti_bits_open(&bits, 0)); /* a plan without tensors */
    CHECK_EQ(psti_bits_below(&bits, 0), PSTI_NO_INDEX);
    psti_bits_close(&bits);
}
