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

/* Of a team of block number `rank` of so many that share. Tiles that follow one another go to different SMs. */
PSTI_DEVICE tile_share share_among(uint32_t rank, uint32_t blocks, uint32_t tiers)
{
    return {team_in_block() * blocks + rank, blocks * teams_per_block(), tiers};
}

PSTI_DEVICE tile_share share_of_all()
{
    return share_among(blockIdx.x, gridDim.x, PSTI_BOTH_TIERS);
}

/* How many of the first `end` blocks have the link: of each round of blocks the first `width`. */
PSTI_DEVICE uint32_t linked_below(uint32_t end, uint32_t round, uint32_t width)
{
    const uint32_t rest = end % round;
    return end / round * width + (rest < width ? rest : width);
}

/* Of a ticket with so many pages, of which so many on the host. The link is slower than memory by far: few
 * SMs take all host pages, and the others all device pages. Idle SMs are dealt one block each, round after
 * round, so a block's number modulo the number of SMs stands for its SM. Where that is wrong the shares are
 * whole all the same: they follow from numbers alone. */
PSTI_DEVICE tile_share share_of(const psti_move_args &args, uint64_t pages, uint64_t host_pages)
{
    if (host_pages == 0)
        return share_of_all();
    const uint32_t sms = args.num_sms ? args.num_sms : args.all_sms;
    const uint32_t round = gridDim.x < sms ? gridDim.x : sms;
    const bool mixed = host_pages < pages;
    const uint32_t most = mixed ? round / 2 : round;
    const uint32_t width = PSTI_HOST_SMS < most ? PSTI_HOST_SMS : most;
    if (width == 0)
        return share_of_all();
    const uint32_t linked = linked_below(gridDim.x, round, width);
    const uint32_t before = linked_below(blockIdx.x, round, width);
    if (blockIdx.x % round < width)
        return share_among(before, linked, mixed ? 1u << PSTI_TIER_HOST : PSTI_BOTH_TIERS);
    return share_among(blockIdx.x - before, gridDim.x - linked, mixed ? 1u << PSTI_TIER_DEVICE : 0);
}

#endif
