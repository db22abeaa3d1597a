// Asks share_of of the kernels for every team of a launch. Nothing is launched.
#define PSTI_SIMT 1
#include "tests/simt/simt.h"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
static simt_dim3 threadIdx, blockIdx, blockDim, gridDim;

#include "kernels/cuda/paging/share.cuh"

#include "tests/simt/share.h"

static_assert(PSTI_TIER_DEVICE == 0 && PSTI_TIER_HOST == 1, "as share_test.c has them");

void simt_shares(const simt_share_launch *launch, uint64_t pages, uint64_t host_pages,
                 simt_share *shares_out)
{
    static psti_move_args move;
    move.num_sms = launch->num_sms;
    move.all_sms = launch->all_sms;
    gridDim.x = launch->grid;
    blockDim.x = launch->teams * PSTI_MAX_THREADS;
    for (uint32_t block = 0; block < launch->grid; block++)
        for (uint32_t team = 0; team < launch->teams; team++) {
            blockIdx.x = block;
            threadIdx.x = team * PSTI_MAX_THREADS + 5;
            const tile_share share = share_of(move, pages, host_pages);
            *shares_out++ = {share.first, share.stride, share.tiers};
        }
}
