/* How the blocks of a launch share the tiles of its pages, for share_test.c. */
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

/* What each of `grid` blocks says, in shares_out. num_sms 0: all_sms of the device. */
void simt_shares(uint32_t grid, uint32_t num_sms, uint32_t all_sms, uint64_t pages,
                 uint64_t host_pages, simt_share *shares_out);

#ifdef __cplusplus
}
#endif

#endif
