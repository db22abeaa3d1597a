/* A machine that runs CUDA kernel source on the CPU.
 *
 * It has a number of residency slots, each an OS thread that lives as long as the process. The
 * blocks of a launch are started in a seeded random order as slots become free, and a block keeps
 * its slot until it ends, also while it spins. Its CUDA threads are fibers that run in a seeded
 * random order from one barrier, warp operation or pause to the next. Launches of several host
 * threads share the slots of all launches with the same residency.
 *
 * With one slot a run is a function of the seeds; with more, blocks dawdle at random barriers so
 * that they meet in more ways. What a GPU would not survive (a barrier that not all threads
 * reach, a warp operation without all lanes, blocks that wait for a block that has no slot, a
 * misaligned vector access) prints one line with the seed and aborts.
 *
 * ThreadSanitizer sees each CUDA thread as a thread of its own, and these orders only: the launch
 * call before every block, every block before the return of the launch, __syncthreads and
 * __syncwarp, and what the kernel's own atomics make. Shuffles order nothing, as on a GPU.
 */
#ifndef PSTI_TESTS_SIMT_MACHINE_H
#define PSTI_TESTS_SIMT_MACHINE_H

#include <stdint.h>

/* Bytes that vectors have read and written in memory since somebody set is_counting. */
typedef struct simt_traffic {
    int is_counting;
    uint64_t loaded, stored; /* atomic */
} simt_traffic;

#define SIMT_TEAM_THREADS 256u /* that meet together: a block, or in larger ones a part of it */
#define SIMT_MAX_TEAMS 4u
#define SIMT_MAX_THREADS (SIMT_MAX_TEAMS * SIMT_TEAM_THREADS) /* of a block */
#define SIMT_MAX_BLOCKS 256u                                  /* of a launch */
#define SIMT_MAX_SLOTS 16u
#define SIMT_WARP 32u

#ifdef __cplusplus
extern "C" {
#endif

/* A field that is 0 takes its value from the environment variable, else the default. */
typedef struct simt_config {
    uint64_t seed;      /* PSTI_SIMT_SEED, 1 */
    uint32_t residency; /* PSTI_SIMT_RESIDENCY, 2: slots */
    uint32_t threads; /* PSTI_SIMT_THREADS, 64: of a team of the library's kernels, see run_move */
    uint32_t max_blocks;    /* PSTI_SIMT_BLOCKS, 4: bounds the grids of the library's kernels */
    uint32_t num_sms;       /* PSTI_SIMT_SMS, 4 */
    uint32_t blocks_per_sm; /* PSTI_SIMT_BLOCKS_PER_SM, 2 */
    uint32_t spin_limit;    /* PSTI_SIMT_SPIN_LIMIT, 200000: pauses in vain before it is a hang */
} simt_config;

/* `config` (or all zero for NULL) with every field filled in. */
simt_config simt_complete(const simt_config *config);

/* NULL, or what is wrong with a completed configuration. */
const char *simt_config_error(const simt_config *config);

/* Runs body(ctx) in grid * block CUDA threads and returns when all have ended. config->seed is the
 * seed of this launch; only seed, residency and spin_limit matter. Threads: any, also from a hook,
 * where the blocks then run one after the other in the hook's own slot. Not from a kernel. */
void simt_launch(const simt_config *config, uint32_t grid, uint32_t block, void (*body)(void *ctx),
                 void *ctx);

/* Calls hook in the slot's OS thread before each block starts (at_start 1) and after it has ended
 * (0), for launches that begin from now on, but not for those made by a hook. TSan sees the hook
 * ordered with the blocks of its slot. NULL: no hook. */
typedef void (*simt_block_hook)(uint32_t block_idx, int at_start, void *user);
void simt_set_block_hook(simt_block_hook hook, void *user);

#ifdef __cplusplus
}
#endif

#endif
