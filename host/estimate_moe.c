/* The expert layers of a GPU: static buffers, or pages. */
#include "host/estimate.h"

#include <inttypes.h>

#define MAX_LIVE ((uint64_t)1 << 20) /* tickets of a pool */

/* Rows of so many live layers, evenly routed, with the slack; of `unit`s each, rounded up. */
static uint64_t slack_units(const pst_estimate_config *config, uint64_t live_layers, uint64_t rows,
                            uint64_t row_units, uint64_t unit)
{
    const uint64_t scaled = PSTI_PRODUCT(config->slack_num, live_layers, rows, row_units);
    return psti_share(scaled, psti_times(config->slack_den, unit));
}

/* The layer at work: what it saves for a row, and the row that comes in and the one that leaves,
 * as one place. */
static uint64_t working_bytes(const pst_estimate_config *config, uint64_t rows)
{
    const uint64_t row = psti_plus(psti_row_bytes(config),
                                   psti_times(psti_element_bytes(config), config->hidden_size));
    return psti_times(rows, row);
}

static pst_status add_pool(const pst_estimate_config *config, pst_estimate_moe *moe)
{
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    const uint64_t page_bytes = config->page_bytes ? config->page_bytes : PST_PAGE_BYTES_DEFAULT;
    if (moe->live_layers == 0)
        return PST_OK;
    moe->pool_pages = psti_plus(
        slack_units(config, moe->live_layers, moe->balanced_rows, moe->row_bytes, page_bytes),
        moe->live_layers);
    pool.page_bytes = config->page_bytes;
    pool.num_pages = moe->pool_pages;
    pool.max_tickets = (uint32_t)moe->live_layers;
    return pst_pool_bytes(&pool, &moe->pool_bytes);
}

static pst_estimate_moe moe_of(const pst_estimate_config *config, uint64_t live_layers)
{
    const psti_split split = psti_split_of(config);
    const uint64_t row_bytes = psti_row_bytes(config);
    pst_estimate_moe moe = {
        .live_layers = live_layers,
        .balanced_rows = psti_moe_rows(config, &split, PST_MOE_BALANCED),
        .capacity_rows = psti_moe_rows(config, &split, PST_MOE_CAPACITY),
        .worst_rows = psti_moe_rows(config, &split, PST_MOE_WORST),
        .row_bytes = row_bytes,
    };
    moe.balanced_bytes = PSTI_PRODUCT(live_layers, moe.balanced_rows, row_bytes);
    moe.capacity_bytes = PSTI_PRODUCT(live_layers, moe.capacity_rows, row_bytes);
    moe.worst_bytes = PSTI_PRODUCT(live_layers, moe.worst_rows, row_bytes);
    moe.working_bytes = working_bytes(config, moe.capacity_rows);
    moe.worst_working_bytes = working_bytes(config, moe.worst_rows);
    moe.num_pages = slack_units(config, live_layers, moe.balanced_rows, 1, config->page_rows);
    moe.pages_bytes = PSTI_PRODUCT(moe.num_pages, config->page_rows, row_bytes);
    const uint64_t possible =
        psti_times(live_layers, psti_share(moe.capacity_rows, config->page_rows));
    moe.table_bytes = psti_times(8, psti_plus(possible, moe.num_pages));
    moe.paged_bytes = psti_plus(moe.working_bytes, moe.pages_bytes);
    return moe;
}

/* slack is at least 1, so that the pages hold the balanced rows. */
uint64_t psti_paging_bytes(const pst_estimate_config *config, uint64_t live_layers)
{
    if (live_layers == 0)
        return 0;
    const pst_estimate_moe moe = moe_of(config, live_layers);
    const uint64_t taken = psti_plus(moe.paged_bytes, moe.table_bytes);
    return taken == PSTI_TOO_MUCH ? taken : taken - moe.balanced_bytes;
}

pst_status pst_estimate_get_moe(const pst_estimate_config *given, uint64_t live_layers,
                                pst_estimate_moe *moe_out)
{
    pst_estimate_config config;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(moe_out, PST_E_INVALID, "moe_out is NULL");
    PSTI_CHECK(config.num_experts != 0, PST_E_INVALID, "num_experts 0: the model has no experts");
    PSTI_CHECK(live_layers <= MAX_LIVE, PST_E_INVALID, "live_layers %" PRIu64 ": at most %" PRIu64,
               live_layers, MAX_LIVE);
    pst_estimate_moe moe = moe_of(&config, live_layers);
    const uint64_t most = PSTI_SUM(moe.balanced_bytes, moe.capacity_bytes, moe.worst_bytes,
                                   moe.worst_working_bytes, moe.paged_bytes, moe.table_bytes);
    PSTI_CHECK(most != PSTI_TOO_MUCH, PST_E_INVALID, "config: buffers of experts exceed 64 bits");
    PSTI_TRY(add_pool(&config, &moe));
    *moe_out = moe;
    return PST_OK;
}
