/* Runs one launch of PTX on one SM and says when everything happens. It is a model: PTX is not
 * SASS, and no figure of it was measured on a GPU. It is a function of its arguments: the same in
 * every run. */
#ifndef PSTI_TESTS_PTX_CLOCK_RUN_H
#define PSTI_TESTS_PTX_CLOCK_RUN_H

#include "tests/ptx/clock_memory.h"
#include "tests/ptx/ptx_warp.h"

struct clock_range {
    uint64_t address, bytes;
};

/* A launch, and what of memory is what. */
struct clock_launch {
    const ptx_kernel *kernel = nullptr;
    uint32_t num_blocks = 1, threads = 32, dynamic_bytes = 0;
    uint32_t resident = 1;   /* blocks that the SM holds at a time */
    uint32_t active_sms = 1; /* that share the DRAM */
    const void *args = nullptr;
    int traced = -1; /* number of the warp of the first block whose instructions go to stderr */
    std::vector<clock_range>
        sources; /* rows of a stash, pages of a restore: loads from there are a tile's */
    std::vector<clock_range> targets; /* likewise stores; none: tiles are what is loaded */
    std::vector<clock_range> beside;  /* in DRAM, too, and nobody's tile */
};

/* Cycles from the first block's first instruction; 0 where nothing of the kind happened. */
struct clock_report {
    double cycles = 0;         /* of the launch */
    double first_load = 0;     /* the first load of a tile was issued */
    double last_store = 0;     /* likewise the last store of a tile */
    double after_store = 0;    /* from there to the end */
    uint32_t trips_before = 0; /* dependent loads and atomics before the first load of a tile */
    uint32_t trips_after = 0;  /* behind the last store of a tile, of the last block */
    uint32_t membars_before = 0, membars_after = 0;
    uint32_t trips = 0, membars = 0; /* of the launch, along the longest chain */
    double tile_cycles = 0; /* of the SM, from one tile to the next: middle half of the launch */
    double duty = 0;        /* share of a warp's time in which a load of a tile is in flight */
    uint64_t instructions = 0, slots = 0; /* of warps */
    uint64_t tile_bytes = 0;              /* stored */
    const char *picked = "none";          /* of a move: the backend that auto is */
};

clock_report clock_run(const clock_table &table, const clock_launch &launch);

/* Blocks that an SM holds, by threads, registers per thread and shared memory. */
uint32_t clock_resident(const clock_table &table, uint32_t threads, uint32_t registers,
                        uint32_t shared_bytes);

#endif
