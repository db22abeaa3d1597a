/* The copy of host pages: every alignment, and lengths around a block of streaming stores. */
#include "kernels/host/copy.h"

#include "tests/harness.h"

enum { SPACE = 5 * 16384, GUARD = 64 };

static unsigned char from[SPACE], to[SPACE];

static void fill_random(unsigned char *bytes, uint64_t seed)
{
    for (uint32_t i = 0; i < SPACE; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u; /* Knuth */
        bytes[i] = (unsigned char)(seed >> 56);
    }
}

/* Index of the first byte of `to` that is wrong after a copy to to + at, or SPACE. */
static uint32_t first_wrong(uint32_t at, uint32_t source_at, uint32_t bytes, uint64_t total)
{
    memset(to, 0xa5, SPACE);
    psti_copy(to + at, from + source_at, bytes, total);
    for (uint32_t i = 0; i < SPACE; i++) {
        const bool inside = i >= at && i < at + bytes;
        if (to[i] != (inside ? from[source_at + (i - at)] : 0xa5))
            return i;
    }
    return SPACE;
}

PST_TEST(Copy, EveryAlignmentAndLengthsAroundABlock)
{
    static const uint32_t lengths[] = {0, 1, 63, 16383, 16384, 16447, 16448, 32768, 50000, 65536};
    static const uint64_t totals[] = {0, PSTI_STREAM_MIN_BYTES - 1, PSTI_STREAM_MIN_BYTES};
    fill_random(from, 1);
    for (uint32_t at = GUARD; at < 2 * GUARD; at++)
        for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
            for (uint32_t t = 0; t < sizeof(totals) / sizeof(totals[0]); t++) {
                const uint32_t source_at = (at * 7) % GUARD;
                const uint32_t wrong = first_wrong(at, source_at, lengths[i], totals[t]);
                CHECK_MSG(wrong == SPACE, "%u bytes to offset %u, total %llu: byte %u is wrong",
                          lengths[i], at, (unsigned long long)totals[t], wrong);
            }
}

#if defined(__SSE2__) && !defined(PSTI_SANITIZED)
PST_TEST(Copy, ABlockInAnyNumberOfStreams)
{
    static unsigned char block[PSTI_STREAM_BLOCK] __attribute__((aligned(64)));
    for (uint32_t num_streams = 1; num_streams <= 4; num_streams *= 2) {
        fill_random(from, num_streams);
        psti_stream_block(block, from + 5, num_streams);
        _mm_sfence();
        CHECK(memcmp(block, from + 5, sizeof(block)) == 0);
    }
}
#endif
