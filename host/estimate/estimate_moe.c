/* The expert layers of a GPU: static buffers, or pages. */
#include <string.h>

#include "host/base/structs.h"
#include "host/estimate/estimate.h"
#include "host/stash/pool_layout.h"

#include <inttypes.h>

#define MAX_LIVE ((uint64_t)1 << 20) /* tickets of a pool */

/* Pages of rows of so many live layers, evenly routed, with the headroom. */
static uint64_t row_pages(const pst_estimate_config *config, uint64_t live_layers, uint64_t rows)
{
    return psti_div_up(PSTI_PRODUCT(config->headroom_num, live_layers, rows),
                       psti_times(config->headroom_den, config->page_rows));
}

/* The layer at work: what it saves for a row, and the row that comes in and the one that leaves,
 * as one place. */
static uint64_t working_bytes(const pst_estimate_config *config, uint64_t rows)
{
    const uint64_t row = psti_plus(
        psti_row_bytes(config), psti_times(psti_element_bytes(config), psti_routed_size(config)));
    return psti_times(rows, row);
}

/* The largest power of two that divides the size, at most that one. */
static uint64_t alignment(uint64_t bytes, uint64_t most)
{
    const uint64_t bit = bytes & (0 - bytes);
    return bit < most ? bit : most;
}

/* What a layer's byte stream may take beside its rows: for each segment that has rows, and for each
 * layer that has. */
typedef struct gaps {
    uint64_t segment_bytes, layer_bytes;
} gaps;

static gaps gaps_of(const pst_estimate_config *config)
{
    const psti_ledger row = psti_ledger_of_expert_row(config);
    gaps sum = {0};
    for (uint32_t i = 0; i < row.num_tensors; i++) {
        const uint64_t unit = alignment(row.tensors[i].bytes, PSTI_TILE_BYTES);
        sum.segment_bytes += unit < PSTI_VECTOR_BYTES ? PSTI_VECTOR_BYTES - unit : 0;
        sum.layer_bytes += PSTI_TILE_BYTES - (unit < PSTI_VECTOR_BYTES ? PSTI_VECTOR_BYTES : unit);
    }
    return sum;
}

/* The most pages that R rows can take, however they are spread over L layers of E experts. With n
 * rows of b bytes in a segment, and the formula of group.h:
 *   roundup(n b, 16) - n b      is at most 16 - g, where g is the power of two in b, below 16
 *   roundup(bytes_t, tile)      adds at most tile - g, where g is that power from 16 to a tile, as
 *                               bytes_t is a multiple of it
 *   roundup(stream, page)       adds at most page - tile, as the stream is whole tiles
 * and nothing where there are no rows, that is but for L layers and min(R, L E) segments.
 * So the pages of all layers are at most R (sum of b) and these, over a page; and being whole, at
 * most that rounded down. */
static uint64_t pool_pages(const pst_estimate_config *config, const pst_estimate_moe *moe,
                           uint64_t page_bytes)
{
    const uint64_t balanced = psti_times(moe->live_layers, moe->balanced_rows);
    const uint64_t rows =
        psti_div_down(psti_times(config->headroom_num, balanced), config->headroom_den);
    const uint64_t experts =
        psti_times(moe->live_layers, config->num_experts / config->expert_parallel);
    const gaps gap = gaps_of(config);
    const uint64_t bytes =
        PSTI_SUM(psti_times(rows, moe->row_bytes),
                 psti_times(rows < experts ? rows : experts, gap.segment_bytes),
                 psti_times(moe->live_layers, gap.layer_bytes + page_bytes - PSTI_TILE_BYTES));
    return psti_div_down(bytes, page_bytes);
}

static pst_status add_pool(const pst_estimate_config *config, pst_estimate_moe *moe)
{
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    uint32_t page_shift = 0;
    PSTI_TRY(psti_page_shift(config->page_bytes, &page_shift));
    if (moe->live_layers == 0)
        return PST_OK;
    moe->pool_pages = pool_pages(config, moe, (uint64_t)1 << page_shift);
    PSTI_CHECK(moe->pool_pages <= INT32_MAX, PST_E_INVALID,
               "page_bytes %" PRIu64 ": %" PRIu64 " live layers need %" PRIu64
               " such pages, a pool has at most %d",
               (uint64_t)1 << page_shift, moe->live_layers, moe->pool_pages, INT32_MAX);
    pool.page_bytes = config->page_bytes;
    pool.num_pages = moe->pool_pages;
    pool.max_tickets = (uint32_t)moe->live_layers;
    return pst_pool_bytes(&pool, &moe->pool_bytes);
}

bool psti_pages(const pst_estimate_config *config)
{
    return config->num_experts != 0 && config->moe_rows == PST_MOE_PAGED;
}

bool psti_pages_glu(const pst_estimate_config *config)
{
    return psti_pages(config) && config->pages_glu;
}

uint64_t psti_glu_bytes(const pst_estimate_config *config, uint64_t rows)
{
    const psti_ledger row = psti_ledger_of_expert_row(config);
    return psti_times(rows, psti_ledger_bytes(&row, "expert.fc1.out"));
}

pst_estimate_moe psti_moe_of(const pst_estimate_config *config)
{
    const psti_split split = psti_split_of(config);
    pst_estimate_moe moe = {
        .balanced_rows = psti_moe_rows(config, &split, PST_MOE_BALANCED),
        .capacity_rows = psti_moe_rows(config, &split, PST_MOE_CAPACITY),
        .worst_rows = psti_moe_rows(config, &split, PST_MOE_WORST),
        .row_bytes = psti_row_bytes(config),
    };
    moe.working_bytes = working_bytes(config, moe.capacity_rows);
    moe.worst_working_bytes = working_bytes(config, moe.worst_rows);
    moe.backward_bytes = moe.working_bytes;
    if (psti_pages_glu(config))
        moe.backward_bytes =
            psti_minus(moe.working_bytes, psti_glu_bytes(config, moe.capacity_rows));
    return moe;
}

static void add_live(const pst_estimate_config *config, uint64_t live_layers, pst_estimate_moe *moe)
{
    const uint64_t row_bytes = moe->row_bytes;
    moe->live_layers = live_layers;
    moe->balanced_bytes = PSTI_PRODUCT(live_layers, moe->balanced_rows, row_bytes);
    moe->capacity_bytes = PSTI_PRODUCT(live_layers, moe->capacity_rows, row_bytes);
    moe->worst_bytes = PSTI_PRODUCT(live_layers, moe->worst_rows, row_bytes);
    moe->num_pages = row_pages(config, live_layers, moe->balanced_rows);
    moe->pages_bytes = PSTI_PRODUCT(moe->num_pages, config->page_rows, row_bytes);
    const uint64_t possible =
        psti_times(live_layers, psti_div_up(moe->capacity_rows, config->page_rows));
    moe->table_bytes = psti_times(8, psti_plus(possible, moe->num_pages));
    moe->paged_bytes = psti_plus(moe->working_bytes, moe->pages_bytes);
}

/* headroom is at least 1, so that the pages hold the balanced rows. */
uint64_t psti_paging_bytes(const pst_estimate_config *config, const pst_estimate_moe *of,
                           uint64_t live_layers)
{
    pst_estimate_moe moe = *of;
    if (live_layers == 0)
        return 0;
    add_live(config, live_layers, &moe);
    const uint64_t taken = psti_plus(moe.paged_bytes, moe.table_bytes);
    return taken == PSTI_TOO_MUCH ? taken : taken - moe.balanced_bytes;
}

pst_status pst_estimate_get_moe_sized(const pst_estimate_config *given, uint64_t live_layers,
                                      pst_estimate_moe *moe_out, size_t moe_bytes)
{
    pst_estimate_config config;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(moe_out, PST_E_INVALID, "moe_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_estimate_moe, moe_bytes));
    PSTI_CHECK(config.num_experts != 0, PST_E_INVALID, "num_experts 0: the model has no experts");
    PSTI_CHECK(live_layers <= MAX_LIVE, PST_E_INVALID, "live_layers %" PRIu64 ": at most %" PRIu64,
               live_layers, MAX_LIVE);
    pst_estimate_moe moe = psti_moe_of(&config);
    add_live(&config, live_layers, &moe);
    const uint64_t most = PSTI_SUM(moe.balanced_bytes, moe.capacity_bytes, moe.worst_bytes,
                                   moe.worst_working_bytes, moe.paged_bytes, moe.table_bytes);
    PSTI_CHECK(most != PSTI_TOO_MUCH, PST_E_INVALID, "config: buffers of experts exceed 64 bits");
    PSTI_TRY(add_pool(&config, &moe));
    memcpy(moe_out, &moe, moe_bytes);
    return PST_OK;
}
