/* The asynchronous bulk copies of tests/simt. */
#include "tests/harness.h"

#include "tests/simt/simt_selftest.h"

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#endif
#endif

static simt_config with(uint64_t seed, uint32_t residency)
{
    simt_config config = {0};
    config.seed = seed;
    config.residency = residency;
    return config;
}

/* ---- the ring ---- */

enum { RING_BYTES = 4096, GUARD = 64 };

typedef struct ring_memory {
    _Alignas(16) unsigned char from[RING_BYTES + GUARD];
    _Alignas(16) unsigned char to[RING_BYTES + GUARD];
} ring_memory;

static ring_memory memory;

/* Returns chunks and bytes that are wrong, those behind the end included. */
static uint64_t ring(const simt_config *config, uint32_t grid, int careless, uint32_t bytes)
{
    for (uint32_t i = 0; i < sizeof(memory.from); i++)
        memory.from[i] = (unsigned char)(1 + (i * 7 + i / 256 + config->seed) % 255);
    memset(memory.to, 0, sizeof(memory.to));
    uint64_t wrong = simt_try_ring(config, grid, careless, memory.to, memory.from, bytes);
    for (uint32_t i = 0; i < sizeof(memory.to); i++)
        wrong += memory.to[i] != (i < bytes ? memory.from[i] : 0);
    return wrong;
}

PST_TEST(SimtBulk, RingCopiesEveryByte)
{
    static const uint32_t grids[] = {1, 2, 3, 7};
    static const uint32_t sizes[] = {0, 16, 64, 80, 256, 1008, 2064, RING_BYTES};
    for (uint64_t seed = 1; seed <= psti_test_cases(48); seed++)
        for (size_t g = 0; g < sizeof(grids) / sizeof(grids[0]); g++)
            for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
                const simt_config config = with(seed, 1 + (uint32_t)seed % 3);
                const uint64_t wrong = ring(&config, grids[g], 0, sizes[s]);
                CHECK_MSG(wrong == 0, "%llu wrong: seed %llu, grid %u, %u bytes",
                          (unsigned long long)wrong, (unsigned long long)seed, grids[g], sizes[s]);
            }
}

PST_TEST(SimtBulk, CarelessRingIsSometimesWrong)
{
    enum { FIVE_CHUNKS = 5 * 64 }; /* one more than there are stages */
    uint32_t wrong = 0;
    for (uint64_t seed = 1; seed <= 64; seed++) {
        const simt_config config = with(seed, 1);
        wrong += ring(&config, 1, 1, FIVE_CHUNKS) != 0;
    }
    CHECK_MSG(wrong > 0 && wrong < 64, "wrong with %u of 64 seeds", wrong);
}

PST_TEST(SimtBulk, BarrierCountsArrivalAndBytes)
{
    for (uint64_t seed = 1; seed <= 32; seed++) {
        const simt_config config = with(seed, 2);
        const uint64_t wrong = simt_try_bulk_barriers(&config);
        CHECK_MSG(wrong == 0, "%llu wrong: seed %llu", (unsigned long long)wrong,
                  (unsigned long long)seed);
    }
}

/* ---- what was seen, over the seeds ---- */

enum { SEEDS = 64 };

typedef struct tally {
    uint32_t of[SIMT_MAX_PLACES][SIMT_NUM_CONTENTS];
} tally;

static tally count(void (*try_out)(const simt_config *config, simt_places places))
{
    tally result = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const simt_config config = with(seed, 1);
        simt_places places;
        for (uint32_t i = 0; i < SIMT_MAX_PLACES; i++)
            places[i] = SIMT_MIXED;
        try_out(&config, places);
        for (uint32_t i = 0; i < SIMT_MAX_PLACES; i++)
            result.of[i][places[i]]++;
    }
    return result;
}

/* Each of the contents in `set` was seen at the place, no other was. */
static bool seen(const tally *seeds, uint32_t place, uint32_t set)
{
    for (uint32_t content = 0; content < SIMT_NUM_CONTENTS; content++)
        if ((seeds->of[place][content] > 0) != ((set >> content & 1) != 0))
            return false;
    return true;
}

#define SET(content) (1u << (content))
#define CHECK_SEEN(seeds, place, set)                                                           \
    CHECK_MSG(seen(&(seeds), place, set), "place %u: before %u, first %u, second %u, mixed %u", \
              (unsigned)(place), (seeds).of[place][SIMT_BEFORE], (seeds).of[place][SIMT_FIRST], \
              (seeds).of[place][SIMT_SECOND], (seeds).of[place][SIMT_MIXED])

PST_TEST(SimtBulk, StoreMayBeLateAfterWaitRead)
{
    const tally seeds = count(simt_try_late_store);
    CHECK_SEEN(seeds, 0, SET(SIMT_BEFORE) | SET(SIMT_FIRST));
    CHECK_SEEN(seeds, 1, SET(SIMT_FIRST));
}

PST_TEST(SimtBulk, LoadMayBeLateBeforeItsBarrier)
{
    const tally seeds = count(simt_try_late_load);
    CHECK_SEEN(seeds, 0, SET(SIMT_BEFORE) | SET(SIMT_FIRST));
    CHECK_SEEN(seeds, 1, SET(SIMT_FIRST));
}

PST_TEST(SimtBulk, WaitsAreForGroups)
{
    const tally seeds = count(simt_try_groups);
    for (uint32_t place = 0; place <= 2; place++)
        CHECK_SEEN(seeds, place, SET(SIMT_FIRST));
    for (uint32_t place = 3; place <= 4; place++) /* the last group: its stages changed too early */
        CHECK_SEEN(seeds, place, SET(SIMT_FIRST) | SET(SIMT_SECOND));
    CHECK_SEEN(seeds, 5, SET(SIMT_BEFORE) | SET(SIMT_FIRST) | SET(SIMT_SECOND));
    CHECK_SEEN(seeds, 6, SET(SIMT_FIRST) | SET(SIMT_SECOND));
}

PST_TEST(SimtBulk, EmptyGroupCounts)
{
    const tally seeds = count(simt_try_empty_group);
    CHECK_SEEN(seeds, 0, SET(SIMT_FIRST));
}

PST_TEST(SimtBulk, WaitsAreForTheThreadsOwnGroups)
{
    const tally seeds = count(simt_try_groups_of_threads);
    CHECK_SEEN(seeds, 0, SET(SIMT_BEFORE) | SET(SIMT_FIRST));
    CHECK_SEEN(seeds, 1, SET(SIMT_FIRST));
    CHECK_SEEN(seeds, 2, SET(SIMT_SECOND));
}

/* ---- what must be caught ---- */

PST_TEST(SimtBulk, RightUseIsNotCaught)
{
    CHECK_MSG(simt_scenario_ends_well("bulk_right_use"), "%s", simt_report);
}

PST_TEST(SimtBulk, MisalignedCopyIsCaught)
{
    const char *words = "addresses and size must be multiples of 16";
    CHECK_ABORTS("bulk_load_from_8", words);
    CHECK_ABORTS("bulk_load_to_8", words);
    CHECK_ABORTS("bulk_store_from_8", words);
    CHECK_ABORTS("bulk_store_to_8", words);
}

PST_TEST(SimtBulk, OddSizeIsCaught)
{
    CHECK_ABORTS("bulk_load_24_bytes", "a bulk copy of 24 bytes");
    CHECK_ABORTS("bulk_store_24_bytes", "a bulk copy of 24 bytes");
    CHECK_ABORTS("bulk_load_0_bytes", "a bulk copy of 0 bytes");
    CHECK_ABORTS("bulk_store_0_bytes", "a bulk copy of 0 bytes");
}

PST_TEST(SimtBulk, StageOutsideDynamicSharedMemoryIsCaught)
{
    CHECK_ABORTS("bulk_load_beyond", "16 bytes at 1024 of 1024 bytes of dynamic shared memory");
    CHECK_ABORTS("bulk_load_across", "32 bytes at 1008 of 1024 bytes of dynamic shared memory");
    CHECK_ABORTS("bulk_store_across", "32 bytes at 1008 of 1024 bytes of dynamic shared memory");
    CHECK_ABORTS("bulk_store_from_static", "bytes of dynamic shared memory");
}

PST_TEST(SimtBulk, TooManyCopiesAreCaught)
{
    CHECK_ABORTS("bulk_too_many", "more than 64 bulk copies in flight");
}

PST_TEST(SimtBulk, TooMuchDynamicSharedMemoryIsCaught)
{
    CHECK_ABORTS("dynamic_too_much", "1048576 bytes of dynamic shared memory");
    CHECK(strstr(simt_report, "at most 163840"));
    CHECK_ABORTS("dynamic_two_sizes", "of dynamic shared memory in block");
}

PST_TEST(SimtBulk, BarrierThatWasNotInitialisedIsCaught)
{
    CHECK_ABORTS("bulk_expect_at_no_barrier", "a barrier that was not initialised");
    CHECK_ABORTS("bulk_wait_at_no_barrier", "a barrier that was not initialised");
    CHECK_ABORTS("bulk_load_at_no_barrier", "a barrier that was not initialised");
}

PST_TEST(SimtBulk, SecondArrivalIsCaught)
{
    CHECK_ABORTS("bulk_second_arrival", "a second arrival in one phase of a barrier");
}

PST_TEST(SimtBulk, WrongNumberOfBytesIsCaught)
{
    CHECK_ABORTS("bulk_more_than_expected", "a load of 64 bytes at a barrier");
    CHECK(strstr(simt_report, "expects 32"));
    CHECK_ABORTS("bulk_less_than_expected", "hang: ");
}

PST_TEST(SimtBulk, CopiesInFlightAtTheEndAreCaught)
{
    CHECK_ABORTS("bulk_load_in_flight", "ended with 1 bulk copies in flight: a load");
    CHECK_ABORTS("bulk_store_in_flight", "ended with 1 bulk copies in flight: a store");
    CHECK_ABORTS("bulk_store_only_read", "ended with 1 bulk copies in flight: a store");
    CHECK_ABORTS("bulk_store_uncommitted", "in flight: a store that was not committed");
}

#if PSTI_UNDER_TSAN
PST_TEST(SimtBulk, TsanSeesWhatACopyTouches)
{
    CHECK_MSG(!simt_scenario_ends_well("bulk_unguarded"), "no race was found");
    CHECK_MSG(strstr(simt_report, "data race") && strstr(simt_report, "simt_bulk_scenarios.cc"),
              "%s", simt_report);
}
#endif

#ifdef UNDER_ASAN
PST_TEST(SimtBulk, AsanSeesWhatACopyTouches)
{
    CHECK_MSG(!simt_scenario_ends_well("bulk_beyond_memory"), "nothing was found");
    CHECK_MSG(strstr(simt_report, "global-buffer-overflow"), "%s", simt_report);
}
#endif
