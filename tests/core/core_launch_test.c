/* kernels/core/pool.h: the numbers that tell launches apart, and decisions at the largest numbers. */
#include "tests/harness.h"

#include "kernels/core/pool.h"

#define TWO_31 ((uint64_t)1 << 31)
#define TWO_32 ((uint64_t)1 << 32)
#define TWO_63 ((uint64_t)1 << 63)

static bool fits(uint64_t wanted, uint64_t device, uint64_t host)
{
    const psti_decision decision = psti_decide(wanted, device, host, 0, 0);
    if (decision.fits &&
        (decision.take[0] + decision.take[1] != wanted || decision.take[0] > device ||
         decision.take[1] > host || (decision.take[1] > 0 && decision.take[0] != device)))
        psti_test_fail(__FILE__, __LINE__, "%llu of %llu and %llu: took %llu and %llu",
                       (unsigned long long)wanted, (unsigned long long)device,
                       (unsigned long long)host, (unsigned long long)decision.take[0],
                       (unsigned long long)decision.take[1]);
    return decision.fits;
}

PST_TEST(CoreLaunch, DecisionsUpTo64Bits)
{
    static const uint64_t edges[] = {0,          1,          TWO_31 - 1,     TWO_31,
                                     TWO_31 + 1, TWO_32 - 1, TWO_32,         TWO_63 - 1,
                                     TWO_63,     TWO_63 + 1, UINT64_MAX - 1, UINT64_MAX};
    for (int w = 0; w < 12; w++)
        for (int d = 0; d < 12; d++)
            for (int h = 0; h < 12; h++) {
                const bool expected = edges[w] <= edges[d] || edges[w] - edges[d] <= edges[h];
                CHECK_EQ(fits(edges[w], edges[d], edges[h]), expected);
            }
}

/* The high half of the launch word is the sum over a launch's teams: two operations whose teams mix
 * must not reach what one of them would reach alone. */
PST_TEST(CoreLaunch, MixedBlocksDoNotAddUp)
{
    for (uint32_t blocks = 2; blocks <= 64; blocks++)
        for (uint64_t launch = 0; launch <= 8; launch += 2)
            for (uint32_t op = 1; op <= 16; op++)
                for (uint32_t other = 1; other <= 16; other++)
                    for (uint64_t later = 0; later <= 8; later += 2) {
                        if (other == op && later == launch)
                            continue;
                        const uint32_t mine = psti_launch_number(launch, op, 0);
                        const uint32_t theirs = psti_launch_number(later, other, 0);
                        CHECK(mine != theirs);
                        CHECK((blocks - 1) * mine + theirs != blocks * mine);
                    }
}

/* Blocks of one launch that disagree about the step being lost, also beside those of another. */
PST_TEST(CoreLaunch, BlocksThatDisagreeDoNotAddUp)
{
    for (uint32_t blocks = 2; blocks <= 2048; blocks++)
        for (uint64_t launch = 0; launch <= 8; launch += 2) {
            const uint32_t keeps = psti_launch_number(launch, 7, 0);
            const uint32_t loses = psti_launch_number(launch, 7, 1);
            for (uint32_t lost = 1; lost < blocks; lost *= 2) {
                const uint32_t sum = (blocks - lost) * keeps + lost * loses;
                CHECK(sum != blocks * keeps);
                CHECK(sum != blocks * loses);
            }
            for (uint32_t other = 1; other <= 16; other++)
                for (uint64_t later = 0; later <= 8; later += 2)
                    CHECK(psti_launch_number(later, other, 0) != loses);
        }
}

PST_TEST(CoreLaunch, AWordIsANumberTeamsAndTheirSum)
{
    const uint64_t all = psti_arrival(UINT32_MAX, PSTI_MAX_TEAMS);
    uint64_t word = 0xfffe;
    for (uint32_t team = 1; team <= PSTI_MAX_TEAMS; team++) {
        word += psti_arrival(UINT32_MAX, 1);
        if (psti_teams_arrived(word) != team || psti_launch_of(word) != 0xfffe)
            psti_test_fail(__FILE__, __LINE__, "team %u: %llx", team, (unsigned long long)word);
    }
    CHECK_EQ(word, all | 0xfffe);
    CHECK_EQ(all >> 32, (uint32_t)(0 - PSTI_MAX_TEAMS)); /* modulo 2^32 */
    CHECK_EQ(psti_launch_of(0xfffe + 2), 0);             /* the numbers come round */
    CHECK_EQ(word + (psti_launch_of(0xfffe + 2) - 0xfffe - all), 0);
}

PST_TEST(CoreLaunch, WordsAreLaunchThenOp)
{
    CHECK_EQ(psti_launch_word(3, 5), 3 * TWO_32 + 5);
    CHECK_EQ(psti_launch_word(3, UINT32_MAX), 3 * TWO_32 + UINT32_MAX);
    CHECK_EQ(psti_ready_word(3, 5, 0), 6 * TWO_32 + 10);
    CHECK_EQ(psti_ready_word(3, 5, 1), 6 * TWO_32 + 11);
    CHECK_EQ(psti_launch_number(0, 9, 0), 9);
    CHECK_EQ(psti_launch_number(TWO_32, 9, 0), 9); /* 32 bits of the launch */
    CHECK_EQ(psti_launch_number(2, 9, 0) - psti_launch_number(1, 9, 0), 0x9e3779b1u);
}

PST_TEST(CoreLaunch, OwnerWordsHoldThePlaceAboveTheTicket)
{
    CHECK_EQ(psti_owner_word(0, 0, 0), 1);
    CHECK_EQ(psti_owner_word(41, 0, 7), 7 * TWO_32 + 42);
    CHECK_EQ(psti_owner_word(41, 1, 7), (0x9e3779b1 + 7) * TWO_32 + 42);
    CHECK_EQ(psti_owner_word((1u << 20) - 1, 0, INT32_MAX), INT32_MAX * TWO_32 + (1u << 20));
}
