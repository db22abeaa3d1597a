// Calls share_of of the kernels in every block of a launch.
#define PSTI_SIMT 1
#include "tests/simt/simt.h"

#include "kernels/cuda/paging/tiles.cuh"

#include "tests/simt/share.h"
#include "tests/simt/simt_selftest.h"

static_assert(PSTI_TIER_DEVICE == 0 && PSTI_TIER_HOST == 1, "as share_test.c has them");

struct share_args {
    const psti_move_args *move;
    uint64_t pages, host_pages;
    simt_share *shares;
};

PSTI_KERNEL(share_kernel, share_args, args)
{
    const tile_share share = share_of(*args.move, args.pages, args.host_pages);
    if (threadIdx.x == 0)
        args.shares[blockIdx.x] = {share.first, share.stride, share.tiers};
}

void simt_shares(uint32_t grid, uint32_t num_sms, uint32_t all_sms, uint64_t pages,
                 uint64_t host_pages, simt_share *shares_out)
{
    static psti_move_args move;
    const simt_config config = simt_complete(nullptr);
    move.num_sms = num_sms;
    move.all_sms = all_sms;
    simt_launch_kernel<share_args, share_kernel>(&config, grid, PSTI_WARP,
                                                 {&move, pages, host_pages, shares_out});
}
