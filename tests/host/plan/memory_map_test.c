/* The memory map against a search over all tokens and all numbers of pages, and by hand. */
#include <inttypes.h>

#include <pagestash/pagestash.h>

#include "host/base/base.h"
#include "tests/harness.h"
#include "tests/random.h"

#define KIB ((uint64_t)1 << 10)
#define GIB ((uint64_t)1 << 30)
#define PAGE (16 * KIB)

static const pst_pool_config small_pool = {
    .struct_size = sizeof(pst_pool_config), .page_bytes = PAGE, .max_tickets = 100};

static uint64_t pool_bytes(const pst_pool_config *config, uint64_t pages, uint64_t host_pages)
{
    pst_pool_config pool = *config;
    uint64_t bytes = 0;
    pool.num_pages = pages;
    pool.num_host_pages = host_pages;
    if (pst_pool_bytes(&pool, &bytes) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    return bytes;
}

/* ---- a search over everything ---- */

typedef struct found {
    bool fits;
    uint64_t traffic, tokens, pages;
    uint64_t missing_gpu, missing_host;
} found;

static uint64_t up(uint64_t value)
{
    return (value + 511) / 512 * 512;
}

static void try_one(const pst_memory_map_config *config, uint64_t total, uint64_t tokens,
                    uint64_t pages, found *best)
{
    uint64_t end = config->static_bytes;
    uint64_t moved = 0;
    if (tokens > 0) {
        end -= config->swap_fixed_bytes + config->swap_frees_bytes * tokens / config->num_tokens;
        moved = config->swap_fixed_bytes +
                (config->swap_bytes * tokens + config->num_tokens - 1) / config->num_tokens;
        if (config->swap_buffer_bytes > 0) {
            end = up(end) + config->swap_buffer_bytes;
            end = up(end) + config->swap_buffer_bytes;
        }
    }
    if (config->pool)
        end = up(end) + pool_bytes(config->pool, pages, total - pages);
    if (config->reserve_bytes > 0)
        end = up(end) + config->reserve_bytes;
    const uint64_t host = moved + (total - pages) * PAGE;
    const bool fits_gpu = end <= config->gpu_bytes;
    const bool fits_host = host <= config->host_bytes;
    uint64_t traffic = config->pool ? config->num_demands * moved : moved;
    for (uint32_t i = 0; i < config->num_demands; i++) {
        const uint64_t demand = config->demand_pages[i] < total ? config->demand_pages[i] : total;
        traffic += demand > pages ? (demand - pages) * PAGE : 0;
    }
    if (fits_gpu && !fits_host && host - config->host_bytes < best->missing_host)
        best->missing_host = host - config->host_bytes;
    if (fits_host && !fits_gpu && end - config->gpu_bytes < best->missing_gpu)
        best->missing_gpu = end - config->gpu_bytes;
    if (!fits_gpu || !fits_host)
        return;
    const bool is_better =
        !best->fits || traffic < best->traffic ||
        (traffic == best->traffic &&
         (tokens < best->tokens || (tokens == best->tokens && pages > best->pages)));
    if (is_better) {
        best->traffic = traffic;
        best->tokens = tokens;
        best->pages = pages;
    }
    best->fits = true;
}

static found search(const pst_memory_map_config *config)
{
    found best = {.missing_gpu = PST_MEMORY_MAP_NEVER, .missing_host = PST_MEMORY_MAP_NEVER};
    uint64_t total = config->total_pages;
    for (uint32_t i = 0; i < config->num_demands && config->total_pages == 0; i++)
        total = config->demand_pages[i] > total ? config->demand_pages[i] : total;
    if (config->pool && total == 0)
        total = 1;
    const uint64_t most = config->max_tokens ? config->max_tokens : config->num_tokens;
    for (uint64_t tokens = config->min_tokens; tokens <= most; tokens++)
        if (tokens == config->num_tokens || tokens % config->block_tokens == 0)
            for (uint64_t pages = config->pool ? 1 : 0; pages <= total; pages++)
                try_one(config, total, tokens, pages, &best);
    return best;
}

static void against_search(const pst_memory_map_config *config)
{
    const found best = search(config);
    pst_memory_map map;
    CHECK_OK(pst_memory_map_make(config, &map));
    CHECK_EQ(map.fits, best.fits);
    if (!map.fits) {
        CHECK_EQ(map.missing_gpu_bytes, best.missing_gpu);
        CHECK_EQ(map.missing_host_bytes, best.missing_host);
        CHECK_EQ(map.end_bytes + map.num_pages + map.traffic_bytes, 0);
        return;
    }
    const uint64_t iterations = config->num_demands ? config->num_demands : 1;
    CHECK_EQ(map.num_tokens, best.tokens);
    CHECK_EQ(map.num_pages, best.pages);
    CHECK_EQ(map.traffic_bytes, (2 * best.traffic + iterations - 1) / iterations);
    CHECK_EQ(map.spill_pages * PAGE + iterations * map.swap_bytes, best.traffic);
    CHECK_EQ(map.end_bytes + map.spare_bytes, config->gpu_bytes);
    CHECK(map.host_bytes <= config->host_bytes);
    CHECK_EQ(map.host_bytes, map.num_host_pages * PAGE + map.swap_bytes);
    uint64_t end = 0;
    for (int i = 0; i < PST_NUM_REGIONS; i++) {
        CHECK(map.regions[i].offset >= end && map.regions[i].offset - end < 512);
        CHECK(map.regions[i].bytes == 0 || map.regions[i].offset % 512 == 0);
        end = map.regions[i].offset + map.regions[i].bytes;
    }
    CHECK_EQ(end, map.end_bytes);
}

static void make_random(pst_memory_map_config *config, uint64_t *demands, uint64_t *seed)
{
    *config = (pst_memory_map_config)PST_MEMORY_MAP_CONFIG_INIT;
    config->static_bytes = random_below(seed, 20 * PAGE);
    config->reserve_bytes = random_below(seed, 2) * random_below(seed, PAGE);
    uint64_t all = config->static_bytes + config->reserve_bytes;
    if (random_below(seed, 4) > 0) {
        const uint64_t scale = random_below(seed, 8) ? 24 : 150;
        config->pool = &small_pool;
        config->demand_pages = demands;
        config->num_demands = 1 + (uint32_t)random_below(seed, 6);
        for (uint32_t i = 0; i < config->num_demands; i++)
            demands[i] = random_below(seed, scale);
        config->total_pages = random_below(seed, 3) ? 0 : 1 + random_below(seed, scale);
        all += pool_bytes(&small_pool, scale / 2, scale / 2);
    }
    if (random_below(seed, 3) > 0) {
        config->num_tokens = 1 + random_below(seed, 20);
        config->block_tokens = 1 + random_below(seed, config->num_tokens);
        config->swap_bytes = 1 + random_below(seed, 20 * PAGE);
        config->swap_fixed_bytes =
            random_below(seed, 2) * random_below(seed, config->static_bytes / 2 + 1);
        config->swap_frees_bytes =
            random_below(seed, config->static_bytes - config->swap_fixed_bytes + 1);
        config->swap_buffer_bytes = random_below(seed, 2) * random_below(seed, PAGE);
        config->max_tokens =
            random_below(seed, 2) ? config->num_tokens : random_below(seed, config->num_tokens + 1);
        const uint64_t most = config->max_tokens ? config->max_tokens : config->num_tokens;
        const uint64_t blocks = most / config->block_tokens;
        const uint64_t block = random_below(seed, 4) ? 0 : random_below(seed, blocks + 1);
        const uint64_t fewer = random_below(seed, config->block_tokens);
        config->min_tokens = block ? block * config->block_tokens - fewer : 0;
    } else {
        config->block_tokens = 1;
    }
    config->gpu_bytes = random_below(seed, all + all / 4 + PAGE);
    config->host_bytes = random_below(seed, 3) * random_below(seed, 30 * PAGE);
}

PST_TEST(MemoryMap, AsASearchOverEverything)
{
    uint64_t seed = 11;
    int fits = 0;
    int both = 0; /* swaps and spills */
    for (int round = 0; round < 3000; round++) {
        pst_memory_map_config config;
        pst_memory_map map;
        uint64_t demands[6];
        make_random(&config, demands, &seed);
        against_search(&config);
        CHECK_MSG(!psti_test_failed(), "seed 11, round %d", round);
        CHECK_OK(pst_memory_map_make(&config, &map));
        fits += map.fits;
        both += map.fits && map.num_tokens > 0 && map.spill_pages > 0;
    }
    CHECK(fits > 500 && fits < 2500 && both > 20);
}

/* A page less on the device can take more bytes: the host tier's ring doubles. Every size of GPU
 * around each such step. */
PST_TEST(MemoryMap, WhereTheRingsDouble)
{
    pst_memory_map_config config = PST_MEMORY_MAP_CONFIG_INIT;
    const uint64_t demand = 20000;
    config.pool = &small_pool;
    config.demand_pages = &demand;
    config.num_demands = 1;
    config.block_tokens = 1;
    config.host_bytes = GIB;
    int steps = 0;
    for (uint64_t pages = 2; pages < demand; pages++) {
        const uint64_t bytes = pool_bytes(&small_pool, pages, demand - pages);
        const uint64_t fewer = pool_bytes(&small_pool, pages - 1, demand - pages + 1);
        if (fewer < bytes - PAGE + KIB && fewer > bytes - PAGE - KIB)
            continue;
        for (int more = -1; more <= 1; more++) {
            pst_memory_map map;
            config.gpu_bytes = (fewer < bytes ? bytes : fewer) + (uint64_t)(int64_t)more;
            CHECK_OK(pst_memory_map_make(&config, &map));
            uint64_t most = 0;
            for (uint64_t p = pages < 9 ? 1 : pages - 8; p < pages + 8 && p <= demand; p++)
                if (pool_bytes(&small_pool, p, demand - p) <= config.gpu_bytes)
                    most = p;
            CHECK_EQ(map.num_pages, most);
        }
        steps++;
    }
    CHECK(steps >= 4);
}

/* Room for the plan and `pages` pages beside it; each token that is swapped frees a page. */
static pst_memory_map_config tight_config(const uint64_t *demands, uint32_t num_demands,
                                          uint64_t static_pages, uint64_t tokens, uint64_t pages,
                                          uint64_t host_pages)
{
    pst_memory_map_config config = PST_MEMORY_MAP_CONFIG_INIT;
    config.pool = &small_pool;
    config.demand_pages = demands;
    config.num_demands = num_demands;
    config.static_bytes = static_pages * PAGE;
    config.host_bytes = GIB;
    config.gpu_bytes = static_pages * PAGE + pool_bytes(&small_pool, pages, host_pages);
    config.swap_bytes = config.swap_frees_bytes = tokens * PAGE;
    config.num_tokens = tokens;
    return config;
}

PST_TEST(MemoryMap, SpillsOrSwapsWhatCostsLess)
{
    /* Of 10 iterations one needs 64 pages, nine need 32; 48 fit. */
    uint64_t demands[] = {32, 32, 32, 64, 32, 32, 32, 32, 32, 32};
    pst_memory_map_config config = tight_config(demands, 10, 100, 64, 48, 16);
    pst_memory_map map;
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK(map.fits);
    CHECK_EQ(map.num_pages, 48);
    CHECK_EQ(map.num_tokens, 0); /* 16 pages once are less than a few in each iteration */
    CHECK_EQ(map.spill_pages, 16);
    CHECK_EQ(map.spilling_iterations, 1);
    CHECK_EQ(map.traffic_bytes, (2 * 16 * PAGE + 9) / 10);
    for (int i = 0; i < 10; i++)
        demands[i] = 64;
    config.swap_bytes = 32 * PAGE; /* frees twice what it moves */
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK_EQ(map.num_pages, 64);
    CHECK_EQ(map.spill_pages + map.spilling_iterations, 0);
    CHECK(map.num_tokens >= 16 && map.num_tokens <= 17);
    CHECK_EQ(map.swap_bytes, map.num_tokens * PAGE / 2);
    CHECK_EQ(map.regions[PST_REGION_STATIC].bytes, (100 - map.num_tokens) * PAGE);
    config.swap_buffer_bytes = 40 * PAGE; /* but takes more than that in buffers */
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK_EQ(map.num_pages, 48);
    CHECK_EQ(map.num_tokens, 0);
    CHECK_EQ(map.spill_pages, 160);
    CHECK_EQ(map.host_bytes, 16 * PAGE);
}

PST_TEST(MemoryMap, FewerTokensAmongEquals)
{
    const uint64_t demand = 2;
    const pst_memory_map_config config = tight_config(&demand, 1, 8, 8, 1, 1);
    pst_memory_map map;
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK_EQ(map.traffic_bytes, 2 * PAGE);
    CHECK_EQ(map.num_tokens, 0);
    CHECK_EQ(map.num_pages, 1);
}

PST_TEST(MemoryMap, SaysByHowMuch)
{
    const uint64_t demand = 10;
    pst_memory_map_config config = PST_MEMORY_MAP_CONFIG_INIT;
    pst_memory_map map;
    config.pool = &small_pool;
    config.demand_pages = &demand;
    config.num_demands = 1;
    config.static_bytes = 5 * PAGE;
    config.gpu_bytes = 5 * PAGE + pool_bytes(&small_pool, 10, 0) - 1;
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK(!map.fits);
    CHECK_EQ(map.missing_gpu_bytes, 1);
    CHECK_EQ(map.missing_host_bytes, PAGE);
    config.gpu_bytes = 5 * PAGE;
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK_EQ(map.missing_gpu_bytes, pool_bytes(&small_pool, 10, 0));
    CHECK_EQ(map.missing_host_bytes, PST_MEMORY_MAP_NEVER);
    config.swap_bytes = PAGE; /* must be swapped, and there is no host memory */
    config.num_tokens = 1;
    config.min_tokens = 1;
    config.max_tokens = 1;
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK_EQ(map.missing_gpu_bytes, PST_MEMORY_MAP_NEVER);
    CHECK_EQ(map.missing_host_bytes, PST_MEMORY_MAP_NEVER);
    config.gpu_bytes = GIB;
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK_EQ(map.missing_host_bytes, PAGE);
}

PST_TEST(MemoryMap, LargeNumbers)
{
    const uint64_t most = (uint64_t)1 << 61;
    uint64_t demands[] = {INT32_MAX, INT32_MAX};
    pst_pool_config pool = small_pool;
    pst_memory_map_config config = PST_MEMORY_MAP_CONFIG_INIT;
    pst_memory_map map;
    pool.page_bytes = PST_PAGE_BYTES_MAX;
    config.pool = &pool;
    config.demand_pages = demands;
    config.num_demands = 2;
    config.gpu_bytes = config.host_bytes = most;
    config.static_bytes = config.reserve_bytes = most;
    config.swap_bytes = config.swap_frees_bytes = config.swap_buffer_bytes = most;
    config.num_tokens = most;
    config.block_tokens = most / 65536;
    config.max_tokens = most;
    config.align = (uint64_t)1 << 30;
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK(!map.fits);
    CHECK(map.missing_gpu_bytes > most && map.missing_gpu_bytes < 2 * most);
    config.reserve_bytes = 0;
    config.swap_buffer_bytes = 0;
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK(map.fits);
    CHECK(map.num_tokens > 0 && map.num_tokens < most / 16);
    CHECK_EQ(map.num_pages + map.num_host_pages, INT32_MAX);
    CHECK_EQ(map.regions[PST_REGION_POOL].offset % config.align, 0);
    config.static_bytes = 1;
    config.swap_bytes = config.swap_frees_bytes = 0;
    config.num_tokens = config.max_tokens = config.block_tokens = 0;
    config.gpu_bytes = GIB; /* nearly all of it spills */
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK(!map.fits); /* the rings alone */
    config.gpu_bytes = 64 * GIB;
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK(map.fits);
    CHECK_EQ(map.spill_pages, 2 * map.num_host_pages);
    CHECK_EQ(map.traffic_bytes, 2 * map.num_host_pages * PST_PAGE_BYTES_MAX);
}

PST_TEST(MemoryMap, WithoutAPool)
{
    pst_memory_map_config config = PST_MEMORY_MAP_CONFIG_INIT;
    pst_memory_map map;
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK(map.fits);
    CHECK_EQ(map.end_bytes + map.host_bytes + map.num_pages + map.traffic_bytes, 0);
    config.static_bytes = 1000;
    config.gpu_bytes = 1000;
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK(map.fits);
    CHECK_EQ(map.spare_bytes, 0);
    config.gpu_bytes = 999;
    CHECK_OK(pst_memory_map_make(&config, &map));
    CHECK_EQ(map.fits, false);
    CHECK_EQ(map.missing_gpu_bytes, 1);
    CHECK_EQ(map.missing_host_bytes, PST_MEMORY_MAP_NEVER);
    CHECK_STR(pst_memory_map_region_name(PST_REGION_POOL), "pool");
    CHECK_STR(pst_memory_map_region_name(PST_NUM_REGIONS), "?");
}

/* After this change to a good one. */
#define REFUSES(change, text)                                         \
    do {                                                              \
        const uint64_t demands[] = {3, 5};                            \
        pst_memory_map_config bad = PST_MEMORY_MAP_CONFIG_INIT;       \
        pst_memory_map map = {.end_bytes = 77};                       \
        bad.pool = &small_pool;                                       \
        bad.demand_pages = demands;                                   \
        bad.num_demands = 2;                                          \
        bad.static_bytes = 100;                                       \
        bad.swap_bytes = 100;                                         \
        bad.num_tokens = 10;                                          \
        bad.change;                                                   \
        CHECK_STATUS(pst_memory_map_make(&bad, &map), PST_E_INVALID); \
        CHECK_SAID(text);                                             \
        CHECK_EQ(map.end_bytes, 77);                                  \
    } while (0)

PST_TEST(MemoryMap, BadConfigs)
{
    const uint64_t over = ((uint64_t)1 << 61) + 1;
    pst_pool_config odd = small_pool;
    odd.page_bytes = 12345;
    pst_pool_config strange = small_pool;
    strange.mode = (pst_pool_mode)2;
    REFUSES(pool = &strange, "mode 2: allowed are ordered and concurrent [");
    REFUSES(struct_size = 1, "struct_size 1: pst_memory_map_config has ");
    REFUSES(gpu_bytes = over, "gpu_bytes 2305843009213693953: allowed are up to 2^61 [");
    REFUSES(host_bytes = over, "host_bytes 2305843009213693953: allowed are up to 2^61 [");
    REFUSES(static_bytes = over, "static_bytes 2305843009213693953: allowed are up to 2^61 [");
    REFUSES(reserve_bytes = over, "reserve_bytes 2305843009213693953: allowed are up to 2^61 [");
    REFUSES(swap_bytes = over, "swap_bytes 2305843009213693953: allowed are up to 2^61 [");
    REFUSES(swap_buffer_bytes = over, "swap_buffer_bytes 2305843009213693953: allowed are up");
    REFUSES(
        swap_frees_bytes = 101,
        "swap_fixed_bytes 0, swap_frees_bytes 101: allowed are together up to static_bytes, 100 [");
    REFUSES(align = 128, "align 128: allowed are powers of two, 256 to 2^30 [");
    REFUSES(align = 768, "align 768: allowed are powers of two, 256 to 2^30 [");
    REFUSES(num_demands = 0, "num_demands 0: at least 1 with a pool, 0 without [");
    REFUSES(pool = NULL, "num_demands 2: at least 1 with a pool, 0 without [");
    REFUSES(demand_pages = NULL, "demand_pages is NULL [");
    REFUSES(pool = &odd, "page_bytes 12345: allowed are powers of two, ");
    REFUSES(total_pages = (uint64_t)1 << 31, "total_pages 2147483648: allowed are up to 2^31 - 1");
    REFUSES(num_tokens = 0, "num_tokens 0, swap_bytes 100: both or none is 0 [");
    REFUSES(num_tokens = over, "num_tokens 2305843009213693953: allowed are up to 2^61 [");
    REFUSES(block_tokens = 11, "block_tokens 11: allowed are up to num_tokens, 10 [");
    REFUSES(max_tokens = 11, "min_tokens 0, max_tokens 11: the first may not be above the second");
    REFUSES(min_tokens = 11, "min_tokens 11, max_tokens 10: the first may not be above the second");
    REFUSES(num_tokens = 65537, "block_tokens 1: more than 65536 blocks of 65537 tokens [");
    REFUSES(min_tokens = bad.max_tokens = (bad.block_tokens = 4) + 1,
            "min_tokens 5, max_tokens 5: no multiple of block_tokens, 4, lies between [");
    REFUSES(swap_bytes = bad.num_tokens = 0 * (bad.swap_frees_bytes = 1),
            "swap_frees_bytes 1, swap_fixed_bytes 0: must be 0 where swap_bytes is [");
    const uint64_t large = (uint64_t)1 << 31;
    REFUSES(demand_pages = (bad.num_demands = 1, &large),
            "demand_pages[0] 2147483648: allowed are up to 2^31 - 1 [");
    pst_memory_map_config config = PST_MEMORY_MAP_CONFIG_INIT;
    config.total_pages = 1;
    CHECK_STATUS(pst_memory_map_make(&config, NULL), PST_E_INVALID);
    pst_memory_map map;
    CHECK_STATUS(pst_memory_map_make(&config, &map), PST_E_INVALID);
    CHECK_SAID("total_pages 1: must be 0 without a pool [");
}

PST_TEST(MemoryMap, WithoutMemory)
{
    const uint64_t demand = 5;
    pst_memory_map_config config = PST_MEMORY_MAP_CONFIG_INIT;
    pst_memory_map map = {.end_bytes = 77};
    config.pool = &small_pool;
    config.demand_pages = &demand;
    config.num_demands = 1;
    for (long n = 0; n < 3; n++) {
        psti_fail_allocation_after(n);
        const pst_status status = pst_memory_map_make(&config, &map);
        psti_fail_allocation_after(-1);
        CHECK_EQ(status, n < 2 ? PST_E_NOMEM : PST_OK);
        CHECK_EQ(map.end_bytes == 77, n < 2);
    }
}
