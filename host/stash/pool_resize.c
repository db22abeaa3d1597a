/* More pages or fewer, without new addresses; and how many are advised. */
#include <inttypes.h>
#include <string.h>

#include "host/base/nvtx.h"
#include "host/stash/stash.h"

static pst_status check_size(const pst_pool *pool, uint32_t tier, const char *name, uint64_t pages)
{
    const uint32_t least = tier == PSTI_TIER_DEVICE;
    PSTI_CHECK(pages >= least && pages <= pool->view.max_pages[tier], PST_E_INVALID,
               "%s %" PRIu64 ": this pool was made for %u to %u", name, pages, least,
               pool->view.max_pages[tier]);
    return PST_OK;
}

/* That nobody uses pages which would go away. */
static pst_status check_idle(const pst_pool *pool)
{
    psti_pool_state state;
    const uint32_t graphs = psti_hold_count(pool->device, &pool->hold);
    PSTI_TRY(psti_pool_copy(pool, &state, pool->view.state, sizeof(state)));
    uint64_t in_use = 0;
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        in_use += state.num_pages[tier] - (state.tail[tier] - state.head[tier]);
    PSTI_CHECK(in_use == 0 && graphs == 0, PST_E_BUSY,
               "%" PRIu64 " pages are in use, and %u captured graphs hold this pool", in_use,
               graphs);
    return PST_OK;
}

/* Memory comes before the pages that lie in it, and goes after them. */
static pst_status resize(pst_pool *pool, const uint32_t *wanted)
{
    const uint32_t old[PSTI_TIERS] = {pool->num_pages[0], pool->num_pages[1]};
    psti_room room = {.pool = pool};
    pst_status status = PST_OK;
    for (uint32_t tier = 0; tier < PSTI_TIERS && status == PST_OK; tier++)
        if (wanted[tier] > old[tier])
            status = psti_pool_map(&room, tier, wanted[tier]);
    if (status == PST_OK) {
        memcpy(pool->num_pages, wanted, sizeof(pool->num_pages));
        status = psti_pool_control(pool, PSTI_OP_RESIZE, 0, pool->stream);
        if (status == PST_OK)
            status = psti_pool_note(pool, pst_stream_synchronize(pool->device, pool->stream));
        if (status != PST_OK)
            memcpy(pool->num_pages, old, sizeof(old));
    }
    /* also gives back what the first tier got where the second got none */
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        psti_pool_map(&room, tier, pool->num_pages[tier]);
    return status;
}

pst_status pst_pool_resize(pst_pool *pool, uint64_t num_pages, uint64_t num_host_pages)
{
    PSTI_USE_HANDLE(pool, POOL);
    PSTI_RANGE("pst_pool_resize");
    PSTI_TRY(psti_pool_usable(pool));
    PSTI_CHECK(!pool->is_callers || num_pages == pool->num_pages[PSTI_TIER_DEVICE],
               PST_E_UNSUPPORTED, "memory of the caller's cannot change its size");
    PSTI_TRY(check_size(pool, PSTI_TIER_DEVICE, "num_pages", num_pages));
    PSTI_TRY(check_size(pool, PSTI_TIER_HOST, "num_host_pages", num_host_pages));
    PSTI_TRY(psti_pool_note(pool, pst_device_synchronize(pool->device)));
    const uint32_t wanted[PSTI_TIERS] = {(uint32_t)num_pages, (uint32_t)num_host_pages};
    if (wanted[0] < pool->num_pages[0] || wanted[1] < pool->num_pages[1])
        PSTI_TRY(check_idle(pool));
    PSTI_TRY(resize(pool, wanted));
    psti_log(PST_LOG_INFO, "pool has %u pages, %u host pages now", wanted[0], wanted[1]);
    return PST_OK;
}

pst_status pst_pool_recommend_pages(const pst_pool_status *status, pst_steps_share share,
                                    uint64_t *pages_out)
{
    PSTI_CHECK(status && pages_out, PST_E_INVALID, "status or pages_out is NULL");
    PSTI_CHECK(share >= PST_STEPS_P50 && share <= PST_STEPS_ALL, PST_E_INVALID,
               "share %d: allowed are PST_STEPS_P50 to PST_STEPS_ALL", (int)share);
    *pages_out =
        share == PST_STEPS_ALL ? status->demand_high_water : status->demand_quantiles[share];
    return PST_OK;
}
