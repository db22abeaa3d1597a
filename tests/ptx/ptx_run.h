/* Runs a launch of PTX with warps, blocks and asynchronous copies in an order that a seed decides. */
#ifndef PSTI_TESTS_PTX_PTX_RUN_H
#define PSTI_TESTS_PTX_PTX_RUN_H

#include "tests/ptx/ptx_warp.h"

struct ptx_launch {
    const ptx_kernel *kernel = nullptr;
    uint32_t num_blocks = 1, threads = 32, dynamic_bytes = 0;
    uint32_t resident = 2; /* blocks at a time */
    const void *args = nullptr;
    uint64_t args_bytes = 0;
    uint64_t seed = 1;
    const ptx_memory *memory = nullptr; /* NULL: global memory is not looked at */
    uint64_t limit = 16000000;          /* steps of warps without the end of a block: a deadlock */
    unsigned char *reached = nullptr; /* of each instruction: becomes 1 where a lane executes it */
};

/* Whatever goes wrong ends the process with one line, which names the seed. Returns the steps. */
uint64_t ptx_run(const ptx_launch &launch);

#endif
