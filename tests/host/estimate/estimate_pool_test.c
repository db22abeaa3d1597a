/* Pages of a pool for any spread of rows, against the pages that groups of such rows take. */
#include <pagestash/group.h>
#include <pagestash/pool.h>

#include "tests/host/estimate/estimate_models.h"

/* A layer's tensors as a group, and how the rows of all layers lie. */
enum { MAX_EXPERTS = 256, MAX_LIVE = 5 };

typedef struct scene {
    pst_group *group;
    uint64_t page_bytes, num_layers, num_experts, num_rows;
    int64_t rows[MAX_LIVE][MAX_EXPERTS];
} scene;

static void demand(pst_status status)
{
    if (status != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
}

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (*seed >> 33) % below;
}

static void make_group(scene *self, const uint64_t *row_bytes, uint32_t num_tensors)
{
    pst_tensor tensors[PST_MAX_TENSORS] = {{0}};
    const pst_row_space space = {.kind = PST_ROWS_SEGMENTS,
                                 .count_type = PST_COUNT_INT64,
                                 .capacity = (int64_t)self->num_rows,
                                 .num_segments = (uint32_t)self->num_experts};
    for (uint32_t i = 0; i < num_tensors; i++)
        tensors[i] = (pst_tensor){.row_bytes = row_bytes[i]};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = tensors;
    config.num_tensors = num_tensors;
    CHECK_OK(pst_group_create(&config, &self->group));
}

static uint64_t pages_of(const scene *self)
{
    uint64_t pages = 0;
    for (uint64_t i = 0; i < self->num_layers; i++) {
        pst_group_usage usage = {0};
        demand(pst_group_measure(self->group, self->rows[i], self->page_bytes, &usage));
        pages += usage.pages;
    }
    return pages;
}

/* All rows: in lumps of a size anywhere, from single rows to all at once. */
static void spread(scene *self, uint64_t *seed)
{
    const uint64_t lump = 1 + draw(seed, draw(seed, 4) == 0 ? self->num_rows : 9);
    const uint64_t layers = 1 + draw(seed, self->num_layers);
    const uint64_t experts = 1 + draw(seed, self->num_experts);
    uint64_t left = self->num_rows;
    memset(self->rows, 0, sizeof(self->rows));
    while (left > 0) {
        const uint64_t rows = lump < left ? lump : left;
        self->rows[draw(seed, layers)][draw(seed, experts)] += (int64_t)rows;
        left -= rows;
    }
}

/* Moves single rows about for as long as that takes no fewer pages. */
static uint64_t climb(scene *self, uint64_t *seed)
{
    uint64_t most = pages_of(self);
    for (int i = 0; i < 200; i++) {
        int64_t *from = &self->rows[draw(seed, self->num_layers)][draw(seed, self->num_experts)];
        int64_t *to = &self->rows[draw(seed, self->num_layers)][draw(seed, self->num_experts)];
        const int64_t rows = *from > 0 ? 1 + (int64_t)draw(seed, (uint64_t)*from) : 0;
        *from -= rows;
        *to += rows;
        const uint64_t pages = pages_of(self);
        if (pages >= most) {
            most = pages;
        } else {
            *from += rows;
            *to -= rows;
        }
    }
    return most;
}

typedef struct variant {
    int run;
    uint64_t sequence_size, page_bytes;
    uint32_t recompute;
    bool is_odd; /* rows of odd sizes, unfused, with late probabilities */
} variant;

static pst_estimate_config config_of(const variant *of)
{
    pst_estimate_config config = psti_estimate_run(of->run);
    config.sequence_size = of->sequence_size;
    config.page_bytes = of->page_bytes;
    config.recompute |= of->recompute;
    if (of->is_odd) {
        config.expert_parallel = config.num_experts > 8 ? 1 : 2;
        config.expert_ffn_size = 1001;
        config.latent_size = 333;
        config.saves_inputs_fp8 = config.applies_probs_late = true;
        config.fuses_activation = false;
        config.is_gated = false;
    }
    return config;
}

/* Row sizes by the ledger: bytes of each of the experts' tensors over the rows. */
static uint32_t sizes_of(const pst_estimate_config *config, uint64_t rows, uint64_t *row_bytes)
{
    pst_estimate_ledger ledger = {.bytes = 0};
    uint32_t num = 0;
    demand(pst_estimate_get_ledger(config, true, &ledger));
    for (uint32_t i = 0; i < ledger.num_entries; i++)
        if (strncmp(ledger.entries[i].name, "expert.", 7) == 0)
            row_bytes[num++] = ledger.entries[i].bytes / rows;
    return num;
}

/* The most pages that any spread was found to take. */
static uint64_t most_pages(scene *self, uint64_t *seed)
{
    uint64_t most = 0;
    for (int i = 0; i < 30; i++) {
        spread(self, seed);
        const uint64_t pages = i % 3 == 0 ? climb(self, seed) : pages_of(self);
        most = pages > most ? pages : most;
    }
    return most;
}

/* Never fewer than any spread takes; and at most two more for each layer than the worst one found,
 * but where there are no rows to find it with. */
PST_TEST(EstimatePool, PagesForAnySpread)
{
    static const variant variants[] = {
        {8, 64, 0, 0, false},      {8, 64, 16384, 0, false},    {9, 64, 0, 0, false},
        {9, 16, 16384, 0, false},  {10, 64, 16384, 0, false},   {11, 64, 65536, 0, false},
        {12, 64, 16384, 0, false}, {12, 64, 4194304, 0, false}, {9, 256, 16384, 0, true},
        {9, 256, 0, 0, true},      {12, 512, 16384, 4, true},   {9, 2, 16384, 0, true},
        {12, 64, 16384, 0, true},
    };
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        const pst_estimate_config config = config_of(&variants[i]);
        uint64_t row_bytes[PST_MAX_TENSORS];
        pst_estimate_moe moe;
        scene self = {.page_bytes = config.page_bytes, .num_layers = 1 + i % MAX_LIVE};
        CHECK_OK(pst_estimate_get_moe(&config, self.num_layers, &moe));
        self.num_experts = config.num_experts / config.expert_parallel;
        self.num_rows = self.num_layers * moe.balanced_rows * 11 / 10;
        make_group(&self, row_bytes, sizes_of(&config, moe.balanced_rows, row_bytes));
        const uint64_t most = most_pages(&self, &seed);
        CHECK_MSG(most <= moe.pool_pages && moe.pool_pages <= most + 2 * self.num_layers,
                  "variant %d: %d pages of %d, %d layers", (int)i, (int)most, (int)moe.pool_pages,
                  (int)self.num_layers);
        CHECK_OK(pst_group_destroy(self.group));
    }
}

/* By hand: rows of 8192, 57,344, 28,672 and 4 bytes, of which the last pads a segment by up to 12
 * bytes, and all a layer by up to 8192, 8192, 12,288 and 16,368 bytes and all but a tile of a page.
 * 288,358 is 1.1 * 32 * 8192. */
PST_TEST(EstimatePool, AsAPool)
{
    pst_estimate_config config = psti_estimate_run(8);
    pst_estimate_moe moe;
    CHECK_OK(pst_estimate_get_moe(&config, 32, &moe));
    const uint64_t gaps = 12 + 8192 + 8192 + 12288 + 16368;
    CHECK_EQ(moe.pool_pages, (288358ull * 94212 + 32 * (gaps + 262144 - 16384)) / 262144);
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    uint64_t pool_bytes = 0;
    pool.num_pages = moe.pool_pages;
    pool.max_tickets = 32;
    CHECK_OK(pst_pool_bytes(&pool, &pool_bytes));
    CHECK_EQ(moe.pool_bytes, pool_bytes);
    config.page_bytes = PST_PAGE_BYTES_MAX;
    CHECK_OK(pst_estimate_get_moe(&config, 32, &moe));
    CHECK_EQ(moe.pool_pages, (288358ull * 94212 + 32 * (gaps + 4194304 - 16384)) / 4194304);
    CHECK_OK(pst_estimate_get_moe(&config, 0, &moe));
    CHECK(moe.pool_pages == 0 && moe.pool_bytes == 0 && moe.pages_bytes == 0);
    config.page_bytes = 3;
    CHECK_STATUS(pst_estimate_get_moe(&config, 0, &moe), PST_E_INVALID);
}

/* Rows of 666, 1001, 2002, 4 and 666 bytes on 256 experts: a segment is padded by up to 14, 15, 14,
 * 12 and 14 bytes, a layer by up to a tile less 16 bytes for each. 1689 is 1.1 * 3 * 512. */
PST_TEST(EstimatePool, ManySegments)
{
    const variant odd = {12, 64, 16384, 0, true};
    pst_estimate_config config = config_of(&odd);
    pst_estimate_moe moe;
    CHECK_OK(pst_estimate_get_moe(&config, 3, &moe));
    CHECK(moe.row_bytes == 4339 && moe.balanced_rows == 512);
    CHECK_EQ(moe.pool_pages, (1689 * 4339 + 3 * 256 * 69 + 3 * 5 * 16368) / 16384);
    config.sequence_size = 1; /* 26 rows: no more segments than that have any */
    CHECK_OK(pst_estimate_get_moe(&config, 3, &moe));
    CHECK_EQ(moe.pool_pages, (26 * 4339 + 26 * 69 + 3 * 5 * 16368) / 16384);
}

/* Of pages that the model names, and the caller gave. */
PST_TEST(EstimatePool, RefusesMorePagesThanAPoolHas)
{
    pst_estimate_config config = psti_estimate_run(12);
    pst_estimate_moe moe;
    config.page_bytes = 16384;
    CHECK_OK(pst_estimate_get_moe(&config, 1 << 14, &moe));
    CHECK_STATUS(pst_estimate_get_moe(&config, 1 << 20, &moe), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "page_bytes 16384: 1048576 live layers need ") != NULL);
}
