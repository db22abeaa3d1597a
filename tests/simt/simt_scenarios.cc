/* What must be caught: each scenario is a wrong kernel, run in a process of its own because it ends
 * in abort() or in a report of ThreadSanitizer. */
#define PSTI_SIMT 1
#include "tests/simt/simt.h"

#include "kernels/core/fn.h"
#include "tests/simt/simt_selftest.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

struct planted {
    uint32_t flag;
    uint32_t ready;
    uint64_t word;
    uint64_t words[SIMT_MAX_BLOCKS];
    alignas(16) unsigned char bytes[64];
};

struct row_of_words {
    uint64_t word[SIMT_MAX_THREADS];
};

/* Not reached by thread 3. */
PSTI_KERNEL(missing_thread, planted, args)
{
    if (threadIdx.x == 3 && !args.flag)
        return;
    __syncthreads();
}

PSTI_KERNEL(two_barriers, planted, args)
{
    if (threadIdx.x % 2 == args.flag)
        __syncthreads();
    else
        __syncthreads();
}

PSTI_KERNEL(missing_lane, planted, args)
{
    if (threadIdx.x != args.flag + 7)
        (void)psti_shuffle_xor_u64(threadIdx.x, 1);
    __syncthreads();
}

PSTI_KERNEL(misaligned, planted, args)
{
    if (threadIdx.x == 5)
        psti_store_vector(const_cast<unsigned char *>(args.bytes) + 4, {1, 2, 3, 4});
}

/* Right only where block 0 is sure to get a slot. */
PSTI_KERNEL(leader_by_number, planted, args)
{
    planted *all = const_cast<planted *>(&args);
    if (threadIdx.x != 0)
        return;
    if (blockIdx.x == 0)
        psti_store_release_u32(&all->ready, 1);
    while (!psti_load_acquire_u32(&all->ready))
        PSTI_PAUSE();
}

/* A thread waits for one that waits for it at the barrier. */
PSTI_KERNEL(spin_across_barrier, planted, args)
{
    planted *all = const_cast<planted *>(&args);
    if (threadIdx.x == 0)
        while (!psti_load_acquire_u32(&all->ready))
            PSTI_PAUSE();
    __syncthreads();
    psti_store_release_u32(&all->ready, 1);
}

PSTI_KERNEL(nested_launch, planted, args)
{
    simt_launch(
        nullptr, 1, 32, [](void *) {}, const_cast<planted *>(&args));
}

PSTI_KERNEL(neighbours, planted, args)
{
    PSTI_SHARED(row_of_words, row);
    row.word[threadIdx.x] = threadIdx.x;
    if (!args.flag)
        __syncthreads();
    const uint64_t found = row.word[blockDim.x - 1 - threadIdx.x];
    psti_add_acq_rel_u64(const_cast<uint64_t *>(&args.word), found);
}

/* Teams meet each for itself: what another one wrote is not there. */
PSTI_KERNEL(neighbour_teams, planted, args)
{
    PSTI_SHARED(row_of_words, row);
    row.word[threadIdx.x] = threadIdx.x;
    PSTI_SYNC_TEAM();
    const uint32_t other = threadIdx.x ^ (args.flag ? SIMT_TEAM_THREADS : 1);
    psti_add_acq_rel_u64(const_cast<uint64_t *>(&args.word), row.word[other]);
}

/* One thread of the second team does not come. */
PSTI_KERNEL(missing_in_team, planted, args)
{
    if (threadIdx.x != SIMT_TEAM_THREADS + 3 + args.flag)
        PSTI_SYNC_TEAM();
}

/* A shuffle hands over values, not memory. */
PSTI_KERNEL(shuffle_as_barrier, planted, args)
{
    PSTI_SHARED(row_of_words, row);
    row.word[threadIdx.x] = threadIdx.x;
    uint64_t found = psti_shuffle_xor_u64(1, 1);
    found += row.word[threadIdx.x ^ 1];
    psti_add_acq_rel_u64(const_cast<uint64_t *>(&args.word), found);
}

PSTI_KERNEL(syncwarp_as_barrier, planted, args)
{
    PSTI_SHARED(row_of_words, row);
    row.word[threadIdx.x] = threadIdx.x;
    __syncwarp();
    psti_add_acq_rel_u64(const_cast<uint64_t *>(&args.word), row.word[threadIdx.x ^ 1]);
}

/* Blocks share a word that nothing guards, though one slot runs them one after the other. */
PSTI_KERNEL(unguarded_blocks, planted, args)
{
    if (threadIdx.x == 0)
        ++const_cast<planted *>(&args)->word;
}

PSTI_KERNEL(relaxed_arrival, planted, args)
{
    planted *all = const_cast<planted *>(&args);
    if (threadIdx.x != 0)
        return;
    all->words[blockIdx.x] = blockIdx.x;
    if (__atomic_fetch_add(&all->ready, 1, __ATOMIC_RELAXED) + 1 == gridDim.x)
        for (uint32_t i = 0; i < gridDim.x; i++)
            all->word += all->words[i];
}

template <void (*kKernel)(const planted &), uint32_t kThreads = 64>
static void run(uint32_t residency, bool flag)
{
    static planted args;
    simt_config config = {};
    config.residency = residency;
    config.spin_limit = 2000;
    args.flag = flag;
    for (config.seed = 1; config.seed < 9; config.seed++) {
        args.ready = 0;
        simt_launch(
            &config, kThreads > 64 ? 1 : 4, kThreads,
            [](void *ctx) { kKernel(*static_cast<planted *>(ctx)); }, &args);
    }
}

static planted racing;

static void *launch_unguarded(void *opaque)
{
    simt_config config = {};
    config.residency = 1;
    config.seed = *static_cast<const uint64_t *>(opaque);
    simt_launch(
        &config, 1, 32, [](void *ctx) { unguarded_blocks(*static_cast<planted *>(ctx)); }, &racing);
    return nullptr;
}

/* Two launches from two host threads that nothing orders. */
static void unordered_launches()
{
    static const uint64_t seeds[2] = {1, 2};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], nullptr, launch_unguarded, const_cast<uint64_t *>(&seeds[i]));
    for (pthread_t thread : threads)
        pthread_join(thread, nullptr);
}

static bool run_named(const char *name)
{
    const struct {
        const char *name;
        void (*run)(uint32_t residency, bool flag);
        uint32_t residency;
        bool flag;
    } scenarios[] = {
        {"missing_thread", run<missing_thread>, 2, false},
        {"two_barriers", run<two_barriers>, 2, false},
        {"missing_lane", run<missing_lane>, 2, false},
        {"misaligned", run<misaligned>, 1, false},
        {"leader_by_number_1", run<leader_by_number>, 1, false},
        {"leader_by_number_2", run<leader_by_number>, 2, false},
        {"leader_by_number_4", run<leader_by_number>, 4, false},
        {"spin_across_barrier", run<spin_across_barrier>, 2, false},
        {"nested_launch", run<nested_launch>, 2, false},
        {"barrier_kept", run<neighbours>, 2, false},
        {"barrier_missing", run<neighbours>, 2, true},
        {"teams_apart", run<neighbour_teams, 2 * SIMT_TEAM_THREADS>, 2, false},
        {"team_reads_another", run<neighbour_teams, 2 * SIMT_TEAM_THREADS>, 2, true},
        {"missing_in_team", run<missing_in_team, 2 * SIMT_TEAM_THREADS>, 2, false},
        {"shuffle_as_barrier", run<shuffle_as_barrier>, 2, false},
        {"syncwarp_as_barrier", run<syncwarp_as_barrier>, 2, false},
        {"unguarded_blocks", run<unguarded_blocks>, 1, false},
        {"relaxed_arrival", run<relaxed_arrival>, 1, false},
    };
    for (const auto &scenario : scenarios) {
        if (strcmp(name, scenario.name) == 0) {
            scenario.run(scenario.residency, scenario.flag);
            return true;
        }
    }
    if (strcmp(name, "unordered_launches") != 0)
        return simt_run_bulk_scenario(name) != 0;
    unordered_launches();
    return true;
}

/* In front of main, so that a test program need not know. */
__attribute__((constructor)) static void run_scenario_of_parent()
{
    const char *name = getenv("PSTI_SIMT_SCENARIO");
    if (!name)
        return;
    const struct rlimit no_core = {0, 0};
    unsetenv("PSTI_SIMT_SCENARIO");
    setrlimit(RLIMIT_CORE, &no_core);
    if (!run_named(name)) {
        fprintf(stderr, "no scenario %s\n", name);
        exit(3);
    }
    exit(0);
}

/* Starts this program again with the scenario in its environment. */
static int spawn_self(const char *scenario, int error_output, pid_t *child)
{
    char self[] = "/proc/self/exe";
    char *arguments[] = {self, nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, error_output, STDERR_FILENO);
    const char *options = getenv("TSAN_OPTIONS");
    const std::string before = options ? options : "";
    setenv("PSTI_SIMT_SCENARIO", scenario, 1);
    setenv("TSAN_OPTIONS", (before + " halt_on_error=0 exitcode=66 atexit_sleep_ms=0").c_str(), 1);
    const int error = posix_spawn(child, self, &actions, nullptr, arguments, environ);
    unsetenv("PSTI_SIMT_SCENARIO");
    setenv("TSAN_OPTIONS", before.c_str(), 1);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

char simt_report[1 << 16];

int simt_run_scenario(const char *scenario)
{
    int ends[2], status = -1;
    pid_t child = 0;
    simt_report[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    const int error = spawn_self(scenario, ends[1], &child);
    close(ends[1]);
    size_t filled = 0;
    char rest[512];
    for (;;) { /* to the end, or the child would wait */
        const bool fits = filled + 1 < sizeof simt_report;
        const ssize_t got =
            fits ? read(ends[0], simt_report + filled, sizeof simt_report - 1 - filled)
                 : read(ends[0], rest, sizeof rest);
        if (got <= 0)
            break;
        filled += fits ? (size_t)got : 0;
    }
    simt_report[filled] = '\0';
    close(ends[0]);
    if (error != 0 || waitpid(child, &status, 0) != child)
        return -1;
    return status;
}

int simt_scenario_ends_well(const char *scenario)
{
    const int status = simt_run_scenario(scenario);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int simt_scenario_aborts(const char *scenario, const char *words)
{
    const int status = simt_run_scenario(scenario);
    const char *line = strstr(simt_report, "simt: ");
    const bool aborted = (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) ||
                         (WIFEXITED(status) && WEXITSTATUS(status) != 0);
    return aborted && line && strstr(line, words) && strstr(line, "seed ");
}
