/* Host pages go over the link, which few SMs fill: how the teams of a launch share the tiles. */
#include "tests/harness.h"

#include "tests/simt/share.h"

enum { DEVICE = 1, HOST = 2, BOTH = 3, TILES = 1000, MAX_TEAMS = 1024 };

/* Each tile of each tier is one team's. */
static bool is_whole(const simt_share *shares, uint32_t num)
{
    static uint32_t teams[2][TILES];
    memset(teams, 0, sizeof(teams));
    for (uint32_t i = 0; i < num; i++)
        for (uint32_t tile = shares[i].first; tile < TILES; tile += shares[i].stride)
            for (uint32_t tier = 0; tier < 2; tier++)
                teams[tier][tile] += shares[i].tiers >> tier & 1;
    for (uint32_t tile = 0; tile < TILES; tile++)
        if (teams[0][tile] != 1 || teams[1][tile] != 1)
            return false;
    return true;
}

PST_TEST(TileShare, EightSmsTakeTheHostPages)
{
    static const struct {
        simt_share_launch launch; /* blocks, teams of each, SMs of the budget, of the device */
        uint32_t pages, host_pages;
        uint32_t width;   /* of each round of blocks so many have the host pages */
        uint32_t theirs;  /* tiers of these */
        uint32_t of_rest; /* tiers of the other blocks */
    } cases[] = {
        {{128, 1, 0, 32}, 9, 0, 32, BOTH, 0},     /* no host pages: all blocks alike */
        {{128, 1, 0, 32}, 9, 1, 8, HOST, DEVICE}, /* four blocks on an SM: those of 8 SMs */
        {{32, 1, 0, 32}, 9, 1, 8, HOST, DEVICE},  /* one */
        {{100, 1, 0, 32}, 9, 1, 8, HOST, DEVICE}, /* SMs that have three, and some that have four */
        {{4, 1, 0, 32}, 9, 8, 2, HOST, DEVICE},   /* a small grid: no less than 8, but half */
        {{1, 1, 0, 32}, 9, 8, 1, BOTH, 0},        /* one block does all */
        {{128, 1, 0, 32}, 9, 9, 8, BOTH, 0},      /* host pages only: the rest is idle */
        {{4, 1, 0, 32}, 9, 9, 4, BOTH, 0},
        {{64, 1, 16, 32}, 9, 8, 8, HOST, DEVICE}, /* SMs of the budget, not of the device */
        /* under a budget a block owns its SM: one team, or four */
        {{16, 1, 16, 132}, 9, 8, 8, HOST, DEVICE},
        {{16, 4, 16, 132}, 9, 8, 8, HOST, DEVICE},
        {{32, 4, 32, 132}, 9, 0, 32, BOTH, 0},
        {{32, 4, 32, 132}, 9, 8, 8, HOST, DEVICE},
        {{32, 4, 32, 132}, 9, 9, 8, BOTH, 0},
        {{8, 4, 8, 132}, 9, 8, 4, HOST, DEVICE}, /* never more than half */
        {{3, 4, 8, 132}, 9, 8, 1, HOST, DEVICE}, /* fewer tiles than SMs */
        {{1, 4, 8, 132}, 9, 8, 1, BOTH, 0},
        {{1, 4, 1, 132}, 9, 9, 1, BOTH, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static simt_share shares[MAX_TEAMS];
        const simt_share_launch *launch = &cases[i].launch;
        const uint32_t grid = launch->grid, teams = launch->teams;
        const uint32_t sms = launch->num_sms ? launch->num_sms : launch->all_sms;
        uint32_t num[2] = {0, 0}, seen[2] = {0, 0}; /* blocks of the rest, linked blocks */
        for (uint32_t block = 0; block < grid; block++)
            num[block % sms < cases[i].width]++;
        simt_shares(launch, cases[i].pages, cases[i].host_pages, shares);
        for (uint32_t block = 0; block < grid; block++) {
            const bool is_linked = block % sms < cases[i].width; /* by its SM, if those are idle */
            for (uint32_t team = 0; team < teams; team++) {
                const simt_share *share = &shares[block * teams + team];
                CHECK_MSG(share->tiers == (is_linked ? cases[i].theirs : cases[i].of_rest),
                          "case %zu: team %u of block %u has tiers %u", i, team, block,
                          share->tiers);
                CHECK_EQ(share->stride, num[is_linked] * teams);
                CHECK_EQ(share->first, team * num[is_linked] + seen[is_linked]);
            }
            seen[is_linked]++;
        }
        CHECK_MSG(is_whole(shares, grid * teams), "case %zu", i);
    }
}

/* Whatever the numbers of blocks, teams and SMs are. */
PST_TEST(TileShare, EachTileOfEachTierIsOneTeams)
{
    for (uint32_t grid = 1; grid <= 64; grid++)
        for (uint32_t sms = 1; sms <= 40; sms++)
            for (uint32_t host_pages = 0; host_pages <= 9; host_pages += 3) {
                static simt_share shares[MAX_TEAMS];
                const simt_share_launch launch = {grid, 1 + sms % 2, sms % 3 ? 0 : sms, sms};
                simt_shares(&launch, 9, host_pages, shares);
                CHECK_MSG(is_whole(shares, grid * launch.teams), "%u blocks, %u SMs, %u host pages",
                          grid, sms, host_pages);
            }
}
