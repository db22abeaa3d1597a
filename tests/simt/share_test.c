/* Host pages go over the link, which few SMs fill: how the blocks of a launch share the tiles. */
#include "tests/harness.h"

#include "tests/simt/share.h"
#include "tests/simt/simt_machine.h"

enum { DEVICE = 1, HOST = 2, BOTH = 3, TILES = 1000 };

/* Each tile of each tier is one block's. */
static bool is_whole(const simt_share *shares, uint32_t grid)
{
    static uint32_t blocks[2][TILES];
    memset(blocks, 0, sizeof(blocks));
    for (uint32_t block = 0; block < grid; block++)
        for (uint32_t tile = shares[block].first; tile < TILES; tile += shares[block].stride)
            for (uint32_t tier = 0; tier < 2; tier++)
                blocks[tier][tile] += shares[block].tiers >> tier & 1;
    for (uint32_t tile = 0; tile < TILES; tile++)
        if (blocks[0][tile] != 1 || blocks[1][tile] != 1)
            return false;
    return true;
}

PST_TEST(TileShare, EightSmsTakeTheHostPages)
{
    static const struct {
        uint32_t grid, num_sms, all_sms, pages, host_pages;
        uint32_t linked;  /* blocks for the host pages */
        uint32_t theirs;  /* tiers of these */
        uint32_t of_rest; /* tiers of the other blocks */
    } cases[] = {
        {128, 0, 32, 9, 0, 128, BOTH, 0},     /* no host pages: all blocks alike */
        {128, 0, 32, 9, 1, 32, HOST, DEVICE}, /* four blocks on an SM: those of 8 SMs */
        {32, 0, 32, 9, 1, 8, HOST, DEVICE},   /* one */
        {64, 16, 32, 9, 8, 32, HOST, DEVICE}, /* SMs of the budget, not of the device */
        {32, 8, 32, 9, 8, 16, HOST, DEVICE},  /* never more than half */
        {4, 0, 32, 9, 8, 2, HOST, DEVICE},    /* a small grid: no less than 8, but half */
        {1, 0, 32, 9, 8, 1, BOTH, 0},         /* one block does all */
        {128, 0, 32, 9, 9, 32, BOTH, 0},      /* host pages only: the rest is idle */
        {4, 0, 32, 9, 9, 4, BOTH, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        simt_share shares[SIMT_MAX_BLOCKS];
        const uint32_t grid = cases[i].grid, linked = cases[i].linked;
        simt_shares(grid, cases[i].num_sms, cases[i].all_sms, cases[i].pages, cases[i].host_pages,
                    shares);
        for (uint32_t block = 0; block < grid; block++) {
            const simt_share *share = &shares[block];
            const bool is_linked = block < linked;
            CHECK_MSG(share->tiers == (is_linked ? cases[i].theirs : cases[i].of_rest),
                      "case %zu: block %u has tiers %u", i, block, share->tiers);
            CHECK_EQ(share->stride, is_linked ? linked : grid - linked);
            CHECK_EQ(share->first, is_linked ? block : block - linked);
        }
        CHECK_MSG(is_whole(shares, grid), "case %zu", i);
    }
}
