/* Programs of random lists: the check accepts each, and so does a brute force that knows nothing of it. */
#include <stdio.h>

#include "tests/host/program/program_brute.h"

PST_TEST(ProgramRandom, EveryListIsRight)
{
    uint64_t seed = 14;
    uint32_t refused = 0;
    const uint32_t cases = psti_test_cases(10000);
    static scene s;
    for (uint32_t n = 0; n < cases; n++) {
        const uint64_t start = seed;
        CHECK_OK(scene_random(&s, &seed));
        const pst_status status = psti_program_make(&s.config, &s.program);
        if (status == PST_E_INVALID && s.config.forward_alias) {
            refused++;
            scene_close(&s);
            continue;
        }
        CHECK_OK(status);
        CHECK_MSG(psti_program_check(&s.config, s.program) == PST_OK, "seed %llu: %s",
                  (unsigned long long)start, pst_last_message());
        if (n % 10 == 0) {
            const char *fault = brute_check(&s.config, s.program);
            CHECK_MSG(!fault, "seed %llu: %s", (unsigned long long)start, fault);
        }
        scene_close(&s);
    }
    CHECK(refused * 5 < cases);
}
