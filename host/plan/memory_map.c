/* One GPU's memory, shared by a plan, pages of MoE layers, swapped layers and others. */
#include <inttypes.h>
#include <string.h>

#include <pagestash/memory_map.h>

#include "host/base/arith.h"
#include "host/base/base.h"
#include "host/base/structs.h"
#include "host/base/table.h"

#define MAX_BYTES (UINT64_C(1) << 61)
#define MAX_ALIGN (UINT64_C(1) << 30)
#define MAX_PAGES (UINT64_C(0x7fffffff))

/* Numbers of device pages, `first` to `last`, between which the pool's device bytes only rise. */
typedef struct segment {
    uint64_t first, last;
    uint64_t first_bytes; /* of a pool with `first` device pages */
} segment;

enum { MAX_SEGMENTS = 80 };

typedef struct planner {
    pst_memory_map_config config; /* align is not 0 */
    uint64_t block_tokens, first_block, last_block;
    pst_pool_config pool;
    uint64_t page_bytes;  /* 0: no pool */
    uint64_t total_pages; /* 0: no pool */
    uint64_t *demands;    /* rising */
    uint64_t *above;      /* above[i]: sum of demands i.. */
    segment segments[MAX_SEGMENTS];
    uint32_t num_segments;
} planner;

/* ---- checks ---- */

static pst_status check_bytes(const pst_memory_map_config *config)
{
    const struct {
        const char *name;
        uint64_t value;
    } fields[] = {
        {"gpu_bytes", config->gpu_bytes},       {"host_bytes", config->host_bytes},
        {"static_bytes", config->static_bytes}, {"reserve_bytes", config->reserve_bytes},
        {"swap_bytes", config->swap_bytes},     {"swap_buffer_bytes", config->swap_buffer_bytes},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        PSTI_CHECK(fields[i].value <= MAX_BYTES, PST_E_INVALID,
                   "%s %" PRIu64 ": allowed are up to 2^61", fields[i].name, fields[i].value);
    PSTI_CHECK(config->swap_fixed_bytes <= config->static_bytes &&
                   config->swap_frees_bytes <= config->static_bytes - config->swap_fixed_bytes,
               PST_E_INVALID,
               "swap_fixed_bytes %" PRIu64 ", swap_frees_bytes %" PRIu64
               ": allowed are together up to static_bytes, %" PRIu64,
               config->swap_fixed_bytes, config->swap_frees_bytes, config->static_bytes);
    const uint64_t align = config->align;
    PSTI_CHECK(align == 0 || ((align & (align - 1)) == 0 && align >= 256 && align <= MAX_ALIGN),
               PST_E_INVALID, "align %" PRIu64 ": allowed are powers of two, 256 to 2^30", align);
    return PST_OK;
}

/* The blocks that reach min_tokens, and those within max_tokens. The last may be a short one. */
static pst_status choose_blocks(planner *self)
{
    const pst_memory_map_config *config = &self->config;
    const uint64_t tokens = config->num_tokens;
    const uint64_t most = config->max_tokens ? config->max_tokens : tokens;
    const uint64_t block = config->block_tokens ? config->block_tokens : 1;
    PSTI_CHECK(tokens <= MAX_BYTES, PST_E_INVALID, "num_tokens %" PRIu64 ": allowed are up to 2^61",
               tokens);
    PSTI_CHECK(block <= tokens || block == 1, PST_E_INVALID,
               "block_tokens %" PRIu64 ": allowed are up to num_tokens, %" PRIu64, block, tokens);
    PSTI_CHECK(tokens == 0 || (tokens - 1) / block < PST_MEMORY_MAP_MAX_BLOCKS, PST_E_INVALID,
               "block_tokens %" PRIu64 ": more than %d blocks of %" PRIu64 " tokens", block,
               PST_MEMORY_MAP_MAX_BLOCKS, tokens);
    PSTI_CHECK(config->min_tokens <= most && most <= tokens, PST_E_INVALID,
               "min_tokens %" PRIu64 ", max_tokens %" PRIu64
               ": the first may not be above the second, nor that above num_tokens, %" PRIu64,
               config->min_tokens, most, tokens);
    self->block_tokens = block;
    self->first_block = config->min_tokens / block + (config->min_tokens % block != 0);
    self->last_block = most / block + (most == tokens && most % block != 0);
    PSTI_CHECK(self->first_block <= self->last_block, PST_E_INVALID,
               "min_tokens %" PRIu64 ", max_tokens %" PRIu64
               ": no multiple of block_tokens, %" PRIu64 ", lies between",
               config->min_tokens, most, block);
    return PST_OK;
}

static uint64_t tokens_of(const planner *self, uint64_t block)
{
    const uint64_t tokens = block * self->block_tokens;
    return tokens < self->config.num_tokens ? tokens : self->config.num_tokens;
}

static pst_status take_config(planner *self, const pst_memory_map_config *config)
{
    PSTI_TRY(check_bytes(config));
    PSTI_CHECK((config->num_tokens == 0) == (config->swap_bytes == 0), PST_E_INVALID,
               "num_tokens %" PRIu64 ", swap_bytes %" PRIu64 ": both or none is 0",
               config->num_tokens, config->swap_bytes);
    PSTI_CHECK(config->swap_bytes > 0 || config->swap_frees_bytes + config->swap_fixed_bytes == 0,
               PST_E_INVALID,
               "swap_frees_bytes %" PRIu64 ", swap_fixed_bytes %" PRIu64
               ": must be 0 where swap_bytes is",
               config->swap_frees_bytes, config->swap_fixed_bytes);
    PSTI_CHECK((config->pool != NULL) == (config->num_demands > 0), PST_E_INVALID,
               "num_demands %u: at least 1 with a pool, 0 without", config->num_demands);
    PSTI_CHECK(config->pool || config->total_pages == 0, PST_E_INVALID,
               "total_pages %" PRIu64 ": must be 0 without a pool", config->total_pages);
    PSTI_CHECK(config->num_demands == 0 || config->demand_pages, PST_E_INVALID,
               "demand_pages is NULL");
    self->config = *config;
    if (config->align == 0)
        self->config.align = 512;
    return choose_blocks(self);
}

/* ---- the pool ---- */

/* Of a checked config: both numbers are in range. */
static uint64_t pool_bytes(const planner *self, uint64_t device_pages)
{
    pst_pool_config pool = self->pool;
    uint64_t bytes = 0;
    if (self->page_bytes == 0)
        return 0;
    pool.num_pages = device_pages;
    pool.num_host_pages = self->total_pages - device_pages;
    (void)pst_pool_bytes(&pool, &bytes);
    return bytes;
}

/* The id rings have a power of two of slots, so one device page less is not always fewer bytes: the
 * host tier's ring, which lies on the device too, may double by it. Between the powers of two of
 * either tier the bytes rise with the device pages. */
static void make_segments(planner *self)
{
    const uint64_t total = self->total_pages;
    for (uint64_t first = total ? 1 : 0; first <= total;) {
        uint64_t last = total;
        for (uint64_t power = 1; power <= total; power *= 2) {
            if (power >= first && power < last)
                last = power;
            if (total - power > first && total - power - 1 < last)
                last = total - power - 1;
        }
        self->segments[self->num_segments++] = (segment){first, last, pool_bytes(self, first)};
        first = last + 1;
    }
}

static pst_status make_demands(planner *self)
{
    const pst_memory_map_config *config = &self->config;
    const uint32_t num = config->num_demands;
    self->demands = psti_calloc((size_t)num + 1, sizeof(uint64_t));
    self->above = psti_calloc((size_t)num + 1, sizeof(uint64_t));
    PSTI_CHECK(self->demands && self->above, PST_E_NOMEM, "out of memory for %u demands", num);
    uint64_t most = config->total_pages;
    for (uint32_t i = 0; i < num; i++) {
        PSTI_CHECK(config->demand_pages[i] <= MAX_PAGES, PST_E_INVALID,
                   "demand_pages[%u] %" PRIu64 ": allowed are up to 2^31 - 1", i,
                   config->demand_pages[i]);
        if (config->total_pages == 0 && config->demand_pages[i] > most)
            most = config->demand_pages[i];
    }
    PSTI_CHECK(most <= MAX_PAGES, PST_E_INVALID,
               "total_pages %" PRIu64 ": allowed are up to 2^31 - 1", most);
    self->total_pages = most ? most : 1;
    for (uint32_t i = 0; i < num; i++) /* what neither tier holds is not spilled: it fails */
        self->demands[i] = config->demand_pages[i] < self->total_pages ? config->demand_pages[i]
                                                                       : self->total_pages;
    psti_sort_numbers(self->demands, num);
    for (uint32_t i = num; i > 0; i--)
        self->above[i - 1] = self->above[i] + self->demands[i - 1];
    return PST_OK;
}

static pst_status make_pool(planner *self, const pst_pool_config *given)
{
    PSTI_TAKE(pst_pool_config, pool, given);
    self->pool = (pst_pool_config){.struct_size = sizeof(pool),
                                   .page_bytes = pool.page_bytes,
                                   .mode = pool.mode,
                                   .max_tickets = pool.max_tickets,
                                   .num_pages = 1};
    uint64_t bytes;
    PSTI_TRY(pst_pool_bytes(&self->pool, &bytes)); /* checks these fields */
    self->page_bytes = pool.page_bytes ? pool.page_bytes : PST_PAGE_BYTES_DEFAULT;
    return make_demands(self);
}

/* Pages spilled, of all iterations. */
static uint64_t spill(const planner *self, uint64_t device_pages, uint32_t *iterations_out)
{
    uint32_t low = 0;
    uint32_t high = self->config.num_demands;
    while (low < high) { /* the first demand above device_pages */
        const uint32_t middle = low + (high - low) / 2;
        if (self->demands[middle] > device_pages)
            high = middle;
        else
            low = middle + 1;
    }
    *iterations_out = self->config.num_demands - low;
    if (*iterations_out == 0)
        return 0;
    return self->above[low] - *iterations_out * device_pages;
}

/* ---- layout ---- */

static uint64_t swapped(const planner *self, uint64_t tokens)
{
    const pst_memory_map_config *config = &self->config;
    if (tokens == 0)
        return 0;
    return config->swap_fixed_bytes + psti_fraction(config->swap_bytes, tokens, config->num_tokens);
}

/* Its sums stay below 2^64: four regions of at most 2^61 and the pool's 2^54. */
static uint64_t lay_out(const planner *self, uint64_t tokens, uint64_t pool, pst_region *regions)
{
    const pst_memory_map_config *config = &self->config;
    const uint64_t freed =
        tokens ? config->swap_fixed_bytes +
                     (uint64_t)((psti_wide)config->swap_frees_bytes * tokens / config->num_tokens)
               : 0;
    const uint64_t buffer = tokens ? config->swap_buffer_bytes : 0;
    const uint64_t bytes[PST_NUM_REGIONS] = {
        [PST_REGION_STATIC] = config->static_bytes - freed,
        [PST_REGION_SWAP_BUFFER_0] = buffer,
        [PST_REGION_SWAP_BUFFER_1] = buffer,
        [PST_REGION_POOL] = pool,
        [PST_REGION_RESERVE] = config->reserve_bytes,
    };
    uint64_t end = 0;
    for (int i = 0; i < PST_NUM_REGIONS; i++) {
        if (bytes[i] > 0)
            end = (end + config->align - 1) & ~(config->align - 1);
        regions[i] = (pst_region){.offset = end, .bytes = bytes[i]};
        end += bytes[i];
    }
    return end;
}

static uint64_t end_with(const planner *self, uint64_t tokens, uint64_t pool)
{
    pst_region regions[PST_NUM_REGIONS];
    return lay_out(self, tokens, pool, regions);
}

/* The most device pages with which it fits the GPU; false if none do. */
static bool most_pages(const planner *self, uint64_t tokens, uint64_t *pages_out)
{
    const uint64_t gpu = self->config.gpu_bytes;
    for (uint32_t i = self->num_segments; i > 0; i--) {
        const segment *part = &self->segments[i - 1];
        if (end_with(self, tokens, part->first_bytes) > gpu)
            continue;
        uint64_t low = part->first;
        uint64_t high = part->last;
        while (low < high) {
            const uint64_t middle = high - (high - low) / 2;
            if (end_with(self, tokens, pool_bytes(self, middle)) <= gpu)
                low = middle;
            else
                high = middle - 1;
        }
        *pages_out = low;
        return true;
    }
    return false;
}

/* ---- the choice ---- */

/* What would do if only one of the two memories were short, for this many tokens. */
static void note_missing(const planner *self, uint64_t tokens, bool fits_gpu, uint64_t pages,
                         pst_memory_map *map)
{
    const pst_memory_map_config *config = &self->config;
    const uint64_t moved = swapped(self, tokens);
    if (fits_gpu) {
        const uint64_t host = moved + (self->total_pages - pages) * self->page_bytes;
        const uint64_t missing = host > config->host_bytes ? host - config->host_bytes : 0;
        if (missing < map->missing_host_bytes)
            map->missing_host_bytes = missing;
    }
    if (moved > config->host_bytes)
        return;
    const uint64_t least =
        self->page_bytes ? (config->host_bytes - moved) / self->page_bytes : 0; /* on the host */
    const uint64_t from = least < self->total_pages ? self->total_pages - least : 1;
    for (uint32_t i = 0; i < self->num_segments; i++) {
        const segment *part = &self->segments[i];
        if (self->total_pages && part->last < from)
            continue;
        const uint64_t pool =
            part->first >= from || !self->total_pages ? part->first_bytes : pool_bytes(self, from);
        const uint64_t end = end_with(self, tokens, pool);
        const uint64_t missing = end > config->gpu_bytes ? end - config->gpu_bytes : 0;
        if (missing < map->missing_gpu_bytes)
            map->missing_gpu_bytes = missing;
    }
}

static void set_map(const planner *self, uint64_t tokens, uint64_t pages, pst_memory_map *map)
{
    const pst_memory_map_config *config = &self->config;
    memset(map, 0, sizeof(*map));
    map->fits = true;
    map->end_bytes = lay_out(self, tokens, pool_bytes(self, pages), map->regions);
    map->spare_bytes = config->gpu_bytes - map->end_bytes;
    map->num_pages = pages;
    map->num_host_pages = self->total_pages - pages;
    map->num_tokens = tokens;
    map->swap_bytes = swapped(self, tokens);
    map->spill_pages = spill(self, pages, &map->spilling_iterations);
    map->host_bytes = map->swap_bytes + map->num_host_pages * self->page_bytes;
    const uint32_t iterations = config->num_demands ? config->num_demands : 1;
    const psti_wide spilled = (psti_wide)2 * map->spill_pages * self->page_bytes;
    map->traffic_bytes = (uint64_t)((spilled + iterations - 1) / iterations) + 2 * map->swap_bytes;
}

/* For a number of tokens the most device pages that fit are best: both the spill and the host's
 * pages only fall with them. So trying every number of token blocks finds the least traffic. */
static void choose(const planner *self, pst_memory_map *map)
{
    const pst_memory_map_config *config = &self->config;
    const uint32_t iterations = config->num_demands ? config->num_demands : 1;
    psti_wide least = 0;
    *map = (pst_memory_map){.missing_gpu_bytes = PST_MEMORY_MAP_NEVER,
                            .missing_host_bytes = PST_MEMORY_MAP_NEVER};
    for (uint64_t block = self->first_block; block <= self->last_block; block++) {
        const uint64_t tokens = tokens_of(self, block);
        uint64_t pages = 0;
        const bool fits_gpu = most_pages(self, tokens, &pages);
        const uint64_t moved = swapped(self, tokens);
        const uint64_t host = moved + (self->total_pages - pages) * self->page_bytes;
        if (!fits_gpu || host > config->host_bytes) {
            if (!map->fits)
                note_missing(self, tokens, fits_gpu, pages, map);
            continue;
        }
        uint32_t unused;
        const psti_wide traffic = (psti_wide)spill(self, pages, &unused) * self->page_bytes +
                                  (psti_wide)moved * iterations;
        if (map->fits && traffic >= least)
            continue;
        least = traffic;
        set_map(self, tokens, pages, map);
    }
}

pst_status pst_memory_map_make_sized(const pst_memory_map_config *given, pst_memory_map *map_out,
                                     size_t map_bytes)
{
    PSTI_CHECK(given && map_out, PST_E_INVALID, "config or map_out is NULL");
    PSTI_TAKE(pst_memory_map_config, config, given);
    PSTI_TRY(PSTI_CHECK_SIZE(pst_memory_map, map_bytes));
    planner self = {0};
    pst_memory_map map;
    PSTI_TRY(take_config(&self, &config));
    pst_status status = config.pool ? make_pool(&self, config.pool) : PST_OK;
    if (status == PST_OK) {
        make_segments(&self);
        choose(&self, &map);
        memcpy(map_out, &map, map_bytes);
    }
    psti_free(self.demands);
    psti_free(self.above);
    return status;
}

const char *pst_memory_map_region_name(pst_region_kind kind)
{
    static const char *const names[PST_NUM_REGIONS] = {"static", "swap buffer 0", "swap buffer 1",
                                                       "pool", "reserve"};
    return (unsigned)kind < PST_NUM_REGIONS ? names[kind] : "?";
}
