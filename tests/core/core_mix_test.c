/* kernels/core/mix.h: the pattern's generator is splitmix64, and its keys differ. */
#include "tests/harness.h"

#include "kernels/core/mix.h"

/* The first outputs of splitmix64 seeded with 1234567, as published with its reference code. */
PST_TEST(CoreMix, IsSplitmix64)
{
    static const uint64_t outputs[] = {6457827717110365317u, 3203168211198807973u,
                                       9817491932198370423u, 4593380528125082431u,
                                       16408922859458223821u};
    uint64_t state = 1234567;
    CHECK(psti_mix(state) == outputs[0]);
    for (uint64_t i = 0; i < 5; i++)
        CHECK(psti_mix_next(&state) == outputs[i]);
}

PST_TEST(CoreMix, KeysTellTensorsSegmentsStepsAndKeysApart)
{
    enum { KINDS = 3 * 3 * 3 * 3 };
    uint64_t keys[KINDS];
    for (uint32_t i = 0; i < KINDS; i++) {
        keys[i] = psti_pattern_key(9, i % 3, i / 3 % 3, i / 9 % 3, i / 27 % 3);
        for (uint32_t j = 0; j < i; j++)
            CHECK(keys[j] != keys[i]);
    }
    CHECK(psti_pattern_key(4, 5, 0, 0, 0) == psti_pattern_key(5, 4, 0, 0, 0)); /* their sum */
    CHECK(psti_pattern_word(keys[0], 0) != psti_pattern_word(keys[0], 1));
}
