/* Which tiles are a team's. */
#ifndef PSTI_CUDA_SHARE_CUH
#define PSTI_CUDA_SHARE_CUH

#include "kernels/cuda/block.cuh"

#include "kernels/core/layout.h"
#include "kernels/core/stream.h"

#define PSTI_BOTH_TIERS ((1u << PSTI_TIER_DEVICE) | (1u << PSTI_TIER_HOST))
#define PSTI_HOST_SMS 8u /* more do not make the link faster */

/* The tiles that are a block's: first, first + stride, ..., as far as they lie in these tiers
 * (bits). */
struct tile_share {
    uint32_t first, stride, tiers;
};

/* Of the team, in a share that so many blocks from `first` on have. Tiles that follow one another
 * go to different SMs. */
PSTI_DEVICE tile_share share_among(uint32_t first, uint32_t blocks, uint32_t tiers)
{
    return {team_in_block() * blocks + blockIdx.x - first, blocks * teams_per_block(), tiers};
}

PSTI_DEVICE tile_share share_of_all()
{
    return share_among(0, gridDim.x, PSTI_BOTH_TIERS);
}

/* Of a ticket with so many pages, of which so many on the host. The link is slower than memory
 * by far: the first blocks, on a few SMs, take all host pages, and the others all device pages. */
PSTI_DEVICE tile_share share_of(const psti_move_args &args, uint64_t pages, uint64_t host_pages)
{
    if (host_pages == 0)
        return share_of_all();
    const uint32_t sms = args.num_sms ? args.num_sms : args.all_sms;
    const bool mixed = host_pages < pages;
    const uint32_t most = mixed ? gridDim.x / 2 : gridDim.x;
    const uint32_t theirs = gridDim.x * PSTI_HOST_SMS / sms; /* grids are far below 2^29 */
    const uint32_t few = theirs > PSTI_HOST_SMS ? theirs : PSTI_HOST_SMS;
    const uint32_t linked = few < most ? few : most;
    if (linked == 0)
        return share_of_all();
    if (blockIdx.x < linked)
        return share_among(0, linked, mixed ? 1u << PSTI_TIER_HOST : PSTI_BOTH_TIERS);
    return share_among(linked, gridDim.x - linked, mixed ? 1u << PSTI_TIER_DEVICE : 0);
}

#endif
