/* Kernels that try the machine out, for simt_test.c and simt_bulk_test.c. Each function launches
 * and says what came out; the C++ is in simt_selftest.cc and simt_bulk_selftest.cc. */
#ifndef PSTI_TESTS_SIMT_SELFTEST_H
#define PSTI_TESTS_SIMT_SELFTEST_H

#include "tests/simt/simt_machine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rounds of write, barrier, read what another thread wrote, barrier. Returns wrong reads. */
uint64_t simt_try_barriers(const simt_config *config, uint32_t grid, uint32_t block,
                           uint32_t rounds);

/* The same by teams, each with memory and a number of rounds of its own, and by the whole block in the end. */
uint64_t simt_try_teams(const simt_config *config, uint32_t grid, uint32_t block, uint32_t rounds);

/* Shuffles by every distance and mask and from every lane, and __syncwarp. Returns wrong values. */
uint64_t simt_try_warps(const simt_config *config, uint32_t block);

/* Shared memory as a block finds it. Returns words that an earlier block left behind. */
uint64_t simt_try_shared(const simt_config *config, uint32_t grid, uint32_t launches);

/* The same of dynamic shared memory, `words` of 8 bytes; and words that a block did not keep. */
uint64_t simt_try_dynamic(const simt_config *config, uint32_t grid, uint32_t words);

/* Wrong thread and block numbers. */
uint64_t simt_try_indices(const simt_config *config, uint32_t grid, uint32_t block);

/* Sum of 0 .. n-1 by partial sums of blocks, added up by the last block to end. */
uint64_t simt_try_last_block(const simt_config *config, uint32_t grid, uint32_t n);

/* The first block to arrive decides, the others spin until it has. Returns what they saw summed up:
 * grid * value; *leader_out is the block that led. */
uint64_t simt_try_first_arrival(const simt_config *config, uint32_t grid, uint64_t value,
                                uint32_t *leader_out);

/* Order in which threads of one block passed, as block_idx * 256 + thread, grid * block of them. */
void simt_try_order(const simt_config *config, uint32_t grid, uint32_t block, uint32_t *order);

/* Counts blocks that run now in *active, raises *most, and spins until `meet` have been there. */
typedef struct simt_crowd {
    uint32_t active, most, seen, meet;
} simt_crowd;
void simt_try_crowd(const simt_config *config, uint32_t grid, simt_crowd *crowd);

/* One plain increment of *word by one thread of each block. */
void simt_try_plain_add(const simt_config *config, uint32_t grid, uint64_t *word);

/* ---- bulk copies ---- */

/* Copies `bytes` by a ring of stages. A careless one waits for one store too few before it loads a
 * stage again. Returns how many chunks were written before their store, not loaded when their
 * barrier was over, or wrong in the end. `to` is to hold zeros, `from` none. */
uint64_t simt_try_ring(const simt_config *config, uint32_t grid, int careless, unsigned char *to,
                       const unsigned char *from, uint32_t bytes);

/* Phases and bytes of barriers. Returns wrong answers. */
uint64_t simt_try_bulk_barriers(const simt_config *config);

/* The functions below look at some places of memory and say of each what it holds. */
typedef enum simt_content {
    SIMT_BEFORE, /* what was there before the copy */
    SIMT_FIRST,  /* what the source was when the copy was asked for */
    SIMT_SECOND, /* what the source became later */
    SIMT_MIXED,
    SIMT_NUM_CONTENTS
} simt_content;

#define SIMT_MAX_PLACES 8
typedef simt_content simt_places[SIMT_MAX_PLACES];

/* 0: memory after a store and wait_read, which lets the stage change; 1: after wait_all. */
void simt_try_late_store(const simt_config *config, simt_places places);

/* 0: a stage while its load is not waited for; 1: when its barrier is over. */
void simt_try_late_load(const simt_config *config, simt_places places);

/* Stores 0 | 1 2 | 3 4 in three committed groups and 5 in none; wait_read<1>; all stages change;
 * wait_all. 0 to 5: memory then; 6: of store 5, committed and waited for. */
void simt_try_groups(const simt_config *config, simt_places places);

/* 0: memory after a store in a group, an empty group, wait_read<1>, a change of the stage and
 * wait_all. */
void simt_try_empty_group(const simt_config *config, simt_places places);

/* 0: memory after a store by one thread, committed, and wait_all by another for a store of its own;
 * 1: and by the first. 2: of the other's store, when 0 was looked at. */
void simt_try_groups_of_threads(const simt_config *config, simt_places places);

/* ---- scenarios ---- */

/* Runs `scenario` in a new process of this program, which starts with the function below. Returns
 * its wait status; simt_report gets what it wrote to stderr, cut off. */
int simt_run_scenario(const char *scenario);
extern char simt_report[1 << 16];

/* In this process; 0 if simt_bulk_scenarios.cc has none of that name. */
int simt_run_bulk_scenario(const char *name);

/* Ends with exit code 0. */
int simt_scenario_ends_well(const char *scenario);

/* Ends otherwise, and its line says `words` and the seed. */
int simt_scenario_aborts(const char *scenario, const char *words);

#define CHECK_ABORTS(scenario, words)                                                         \
    CHECK_MSG(simt_scenario_aborts(scenario, words), "%s: no \"%s\" in: %s", scenario, words, \
              simt_report)

#ifdef __cplusplus
} /* extern "C" */

template <class Args, void (*kKernel)(const Args &)>
static void simt_launch_kernel(const simt_config *config, uint32_t grid, uint32_t block,
                               const Args &args)
{
    simt_launch(
        config, grid, block, [](void *ctx) { kKernel(*static_cast<const Args *>(ctx)); },
        const_cast<Args *>(&args));
}
#endif

#endif
