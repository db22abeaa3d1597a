/* How the teams of a launch share the tiles of its pages, for share_test.c. */
#ifndef PSTI_TESTS_SIMT_SHARE_H
#define PSTI_TESTS_SIMT_SHARE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct simt_share {
    uint32_t first, stride;
    uint32_t tiers; /* bits; 0: no tiles */
} simt_share;

typedef struct simt_share_launch {
    uint32_t grid, teams;      /* of each block */
    uint32_t num_sms, all_sms; /* of the budget, 0: all those of the device */
} simt_share_launch;

/* What each team of each block says, in shares_out: those of block 0, then those of block 1. */
void simt_shares(const simt_share_launch *launch, uint64_t pages, uint64_t host_pages,
                 simt_share *shares_out);

#ifdef __cplusplus
}
#endif

#endif
