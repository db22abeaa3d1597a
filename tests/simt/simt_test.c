/* The machine of tests/simt itself. */
#include "tests/harness.h"

#include "tests/simt/simt_selftest.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

static simt_config with(uint64_t seed, uint32_t residency)
{
    simt_config config = {0};
    config.seed = seed;
    config.residency = residency;
    return config;
}

PST_TEST(Simt, ThreadsAndBlocksHaveTheirNumbers)
{
    static const uint32_t shapes[][2] = {{1, 1}, {1, 256}, {7, 33}, {5, 64}, {3, 32}};
    for (uint32_t residency = 1; residency <= 3; residency++)
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            const simt_config config = with(i + 1, residency);
            CHECK_EQ(simt_try_indices(&config, shapes[i][0], shapes[i][1]), 0);
        }
}

PST_TEST(Simt, BarriersHoldAllThreadsOfABlock)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const simt_config config = with(seed, 1 + (uint32_t)seed % 3);
        CHECK_EQ(simt_try_barriers(&config, 4, 32u * (1 + (uint32_t)seed % 3), 10), 0);
    }
}

PST_TEST(Simt, TeamsMeetEachForItself)
{
    static const uint32_t blocks[] = {64, 256, 512, 1024};
    for (uint64_t seed = 0; seed < 4; seed++) {
        const simt_config config = with(1 + seed, 2);
        CHECK_EQ(simt_try_teams(&config, PSTI_UNDER_TSAN ? 1 : 5, blocks[seed], 5), 0);
    }
}

PST_TEST(Simt, ShufflesGiveWhatTheGpuGives)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        const simt_config config = with(seed, 2);
        CHECK_EQ(simt_try_warps(&config, 32), 0);
        CHECK_EQ(simt_try_warps(&config, 256), 0);
    }
}

PST_TEST(Simt, SharedMemoryIsPoisonedAtBlockStart)
{
    for (uint32_t residency = 1; residency <= 2; residency++) {
        const simt_config config = with(1, residency);
        CHECK_EQ(simt_try_shared(&config, 5, 3), 0);
    }
}

PST_TEST(Simt, DynamicSharedMemoryIsPoisonedAtBlockStart)
{
    for (uint32_t residency = 1; residency <= 2; residency++) {
        const simt_config config = with(1, residency);
        for (uint32_t words = 1; words <= 16384; words *= 4)
            CHECK_EQ(simt_try_dynamic(&config, 5, words), 0);
        CHECK_EQ(simt_try_dynamic(&config, 5, 77), 0); /* fewer than before */
    }
}

PST_TEST(Simt, LastBlockSeesAllOthers)
{
    for (uint64_t seed = 1; seed <= psti_test_cases(60); seed++) {
        const simt_config config = with(seed, 1 + (uint32_t)seed % 2);
        const uint32_t n = 1000 + (uint32_t)seed;
        CHECK_EQ(simt_try_last_block(&config, 1 + (uint32_t)seed % 6, n),
                 (uint64_t)n * (n - 1) / 2);
    }
}

PST_TEST(Simt, FirstArrivalLeadsWithOneSlot)
{
    uint32_t leaders = 0; /* set of bits */
    for (uint64_t seed = 1; seed <= 40; seed++) {
        for (uint32_t residency = 1; residency <= 2; residency++) {
            const simt_config config = with(seed, residency);
            uint32_t leader = UINT32_MAX;
            CHECK_EQ(simt_try_first_arrival(&config, 4, 100 + seed, &leader), 4 * (100 + seed));
            CHECK(leader < 4);
            leaders |= 1u << leader;
        }
    }
    CHECK_EQ(leaders, 15);
}

PST_TEST(Simt, OneSlotAndOneSeedMakeOneOrder)
{
    enum { GRID = 3, BLOCK = 64 };
    uint32_t order[3][GRID * BLOCK];
    const simt_config one = with(11, 1);
    const simt_config two = with(12, 1);
    simt_try_order(&one, GRID, BLOCK, order[0]);
    simt_try_order(&one, GRID, BLOCK, order[1]);
    simt_try_order(&two, GRID, BLOCK, order[2]);
    CHECK(memcmp(order[0], order[1], sizeof(order[0])) == 0);
    CHECK(memcmp(order[0], order[2], sizeof(order[0])) != 0);
}

/* ---- residency ---- */

typedef struct crowd_call {
    simt_config config;
    simt_crowd *crowd;
} crowd_call;

static void *join_crowd(void *opaque)
{
    crowd_call *call = opaque;
    for (uint64_t i = 0; i < 10; i++) {
        call->config.seed += 3;
        simt_try_crowd(&call->config, 5, call->crowd);
    }
    return NULL;
}

PST_TEST(Simt, LaunchesOfSeveralThreadsShareTheSlots)
{
    for (uint32_t residency = 1; residency <= 3; residency++) {
        simt_crowd crowd = {0};
        crowd_call calls[3];
        pthread_t threads[3];
        crowd.meet = residency; /* so many blocks do run at a time */
        for (uint32_t i = 0; i < 3; i++) {
            calls[i].config = with(1 + i, residency);
            calls[i].crowd = &crowd;
            CHECK_EQ(pthread_create(&threads[i], NULL, join_crowd, &calls[i]), 0);
        }
        for (uint32_t i = 0; i < 3; i++)
            CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK_EQ(crowd.most, residency);
        CHECK_EQ(crowd.seen, 3 * 10 * 5);
        CHECK_EQ(crowd.active, 0);
    }
}

/* ---- hooks ---- */

typedef struct hook_log {
    uint32_t started, ended, nested;
    uint32_t launch_at; /* block that is preceded by a launch, in order of start */
    uint64_t word;      /* of plain adds, by the blocks and by the nested launch */
    uint64_t word_then;
} hook_log;

static void hook(uint32_t block_idx, int at_start, void *user)
{
    hook_log *log = user;
    if (block_idx >= 6)
        log->started = 1000;
    if (!at_start) {
        log->ended++;
        return;
    }
    if (log->started++ != log->launch_at)
        return;
    const simt_config config = with(5, 1);
    simt_try_plain_add(&config, 1, &log->word);
    log->word_then = log->word;
    log->nested++;
}

/* Under TSan this also shows that a hook is ordered with the blocks of its slot: the blocks share a
 * plain word. */
PST_TEST(Simt, HookLaunchesInTheMiddleOfALaunch)
{
    for (uint32_t launch_at = 0; launch_at < 6; launch_at++) {
        hook_log log = {.launch_at = launch_at};
        const simt_config config = with(9, 1);
        simt_set_block_hook(hook, &log);
        simt_try_plain_add(&config, 6, &log.word);
        simt_set_block_hook(NULL, NULL);
        CHECK_EQ(log.started, 6);
        CHECK_EQ(log.ended, 6);
        CHECK_EQ(log.nested, 1);
        CHECK_EQ(log.word_then, launch_at + 1);
        CHECK_EQ(log.word, 7);
    }
}

/* ---- what must be caught ---- */

PST_TEST(Simt, BarrierWithoutAllThreadsIsCaught)
{
    CHECK_ABORTS("missing_thread", "deadlock in block");
    CHECK(strstr(simt_report, "of 64 threads 1 have ended, 63 wait at __syncthreads"));
    CHECK_ABORTS("two_barriers", "divergent __syncthreads");
    CHECK_ABORTS("missing_in_team", "deadlock in block");
    CHECK(strstr(simt_report, "of 512 threads 257 have ended, 255 wait at the meeting of a team"));
}

PST_TEST(Simt, WarpOperationWithoutAllLanesIsCaught)
{
    CHECK_ABORTS("missing_lane", "wait for other lanes");
}

PST_TEST(Simt, MisalignedVectorIsCaught)
{
    CHECK_ABORTS("misaligned", "misaligned 16-byte access");
}

PST_TEST(Simt, LaunchInAKernelIsCaught)
{
    CHECK_ABORTS("nested_launch", "a kernel cannot launch");
}

/* A leader chosen by number hangs where too few slots are free for it, and only there. */
PST_TEST(Simt, HangForWantOfResidencyIsCaught)
{
    CHECK_ABORTS("leader_by_number_1", "hang: the blocks in all 1 slots spin in vain");
    CHECK_ABORTS("leader_by_number_2", "hang: the blocks in all 2 slots spin in vain");
    CHECK_MSG(simt_scenario_ends_well("leader_by_number_4"), "%s", simt_report);
    CHECK_ABORTS("spin_across_barrier", "hang: ");
}

#if PSTI_UNDER_TSAN
static bool scenario_races(const char *scenario)
{
    const int status = simt_run_scenario(scenario);
    return WIFEXITED(status) && WEXITSTATUS(status) == 66 && strstr(simt_report, "data race") &&
           strstr(simt_report, "simt_scenarios.cc");
}

#define CHECK_RACES(scenario) CHECK_MSG(scenario_races(scenario), "%s: %s", scenario, simt_report)
#define CHECK_NO_RACE(scenario) \
    CHECK_MSG(simt_scenario_ends_well(scenario), "%s: %s", scenario, simt_report)

PST_TEST(Simt, TsanFindsAMissingBarrier)
{
    CHECK_NO_RACE("barrier_kept");
    CHECK_RACES("barrier_missing");
    CHECK_NO_RACE("teams_apart");
    CHECK_RACES("team_reads_another");
}

PST_TEST(Simt, TsanKnowsThatShufflesOrderNothing)
{
    CHECK_NO_RACE("syncwarp_as_barrier");
    CHECK_RACES("shuffle_as_barrier");
}

/* Though one slot runs them one after the other. */
PST_TEST(Simt, TsanKnowsThatBlocksAndLaunchesAreUnordered)
{
    CHECK_RACES("unguarded_blocks");
    CHECK_RACES("relaxed_arrival");
    CHECK_RACES("unordered_launches");
}
#endif
