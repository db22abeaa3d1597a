/* Copies of runs at any address by the kernels' own code, for shift_test.c. */
#ifndef PSTI_TESTS_SIMT_SHIFT_H
#define PSTI_TESTS_SIMT_SHIFT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIMT_MOST_LIFTED 16384 /* bytes */

typedef struct simt_run {
    unsigned char *to;
    const unsigned char *from;
    uint32_t bytes;
    uint32_t stashes; /* else restores */
    uint32_t lifts;   /* 0: not; else group lifts - 1 of the team does, or the only one */
    uint32_t alone;   /* 0: not; else warp alone - 1 of the team copies */
} simt_run;

/* All of them, in one launch of one block. Returns how many accesses of 16 bytes were not aligned
 * or reached out of their run. */
uint32_t simt_copy_runs(const simt_run *runs, uint32_t num, uint32_t threads);

#ifdef __cplusplus
}
#endif

#endif
