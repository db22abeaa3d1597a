/* Kernels that try the machine out, for simt_test.c. Each function launches and says what came out;
 * the C++ is in simt_selftest.cc. */
#ifndef PSTI_TESTS_SIMT_SELFTEST_H
#define PSTI_TESTS_SIMT_SELFTEST_H

#include "tests/simt/simt_machine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rounds of write, barrier, read what another thread wrote, barrier. Returns wrong reads. */
uint64_t simt_try_barriers(const simt_config *config, uint32_t grid, uint32_t block,
                           uint32_t rounds);

/* Shuffles by every distance and mask, and __syncwarp. Returns wrong values. */
uint64_t simt_try_warps(const simt_config *config, uint32_t block);

/* Shared memory as a block finds it. Returns words that an earlier block left behind. */
uint64_t simt_try_shared(const simt_config *config, uint32_t grid, uint32_t launches);

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

/* Runs `scenario` in a new process of this program, which starts with the function below. Returns
 * its wait status; `text` gets what it wrote to stderr, cut off at `bytes`. */
int simt_run_scenario(const char *scenario, char *text, uint32_t bytes);

#ifdef __cplusplus
}
#endif

#endif
