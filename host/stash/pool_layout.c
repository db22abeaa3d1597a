/* Sizes of pages and pools: pure arithmetic, which needs no device. */
#include "host/stash/pool_layout.h"
#include "host/base/structs.h"

#include <inttypes.h>

#define DEFAULT_TICKETS 4096u
#define MAX_TICKETS (1u << 20)
#define MAX_COUNTS ((uint32_t)PST_MAX_SPACES * PST_MAX_SEGMENTS)
#define DEFAULT_COUNTS 64u
#define ALIGNMENT 256u

_Static_assert(PSTI_CANARY_BYTES % ALIGNMENT == 0, "behind a canary the next part is aligned");

typedef struct walk {
    unsigned char *base;
    psti_canary *canaries;
    uint64_t used, canary_room;
    bool overflow;
} walk;

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

static void *carve(walk *self, psti_part part, uint64_t count, uint64_t size)
{
    uint64_t bytes = 0, end = 0;
    const uint64_t at = self->used;
    self->overflow |= __builtin_mul_overflow(count, size, &bytes) ||
                      __builtin_add_overflow(bytes, ALIGNMENT - 1, &end) ||
                      __builtin_add_overflow(at, end & ~(uint64_t)(ALIGNMENT - 1), &self->used) ||
                      __builtin_add_overflow(self->used, self->canary_room, &self->used);
    if (!self->base || self->overflow)
        return NULL;
    if (self->canary_room)
        self->canaries[part] = (psti_canary){self->base + at + bytes, self->used - at - bytes};
    return self->base + at;
}

uint64_t psti_canary_room(void)
{
    return psti_env_check_mode() ? PSTI_CANARY_BYTES : 0;
}

static uint32_t ring_slots(uint32_t pages)
{
    uint32_t slots = 1;
    while (slots < pages)
        slots *= 2;
    return slots;
}

uint64_t psti_record_bytes(const psti_pool_view *view, uint32_t count_room, uint64_t table_pages)
{
    const uint64_t tables = view->max_pages[PSTI_TIER_HOST] ? 2 : 1;
    return sizeof(psti_ticket_record) + count_room * sizeof(int64_t) +
           tables * table_pages * sizeof(uint32_t);
}

static const psti_part ring_parts[PSTI_TIERS] = {PSTI_PART_RING, PSTI_PART_HOST_RING};
static const psti_part owner_parts[PSTI_TIERS] = {PSTI_PART_OWNER, PSTI_PART_HOST_OWNER};

uint64_t psti_pool_layout(psti_pool_view *view, psti_slab_layout *slab, unsigned char *base,
                          bool own_pages, psti_canary *canaries, bool *overflow)
{
    walk self = {.base = base, .canaries = canaries, .canary_room = psti_canary_room()};
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        const uint32_t pages = view->max_pages[tier];
        const uint32_t slots = ring_slots(pages);
        view->ring_mask[tier] = slots - 1;
        if (tier == PSTI_TIER_DEVICE && !own_pages)
            view->pages[tier] =
                carve(&self, PSTI_PART_PAGES, pages, (uint64_t)1 << view->page_shift);
        view->ring[tier] = carve(&self, ring_parts[tier], slots, sizeof(uint32_t));
        view->owner[tier] = carve(&self, owner_parts[tier], pages, sizeof(uint64_t));
    }
    view->seen = carve(&self, PSTI_PART_SEEN, (uint64_t)view->max_pages[0] + view->max_pages[1],
                       sizeof(uint32_t));
    view->sketch = carve(&self, PSTI_PART_SKETCH, PSTI_SKETCH_BUCKETS, sizeof(uint32_t));
    view->tickets = carve(&self, PSTI_PART_TICKETS, view->max_tickets, sizeof(uint64_t));
    slab->record_bytes = round_up(psti_record_bytes(view, slab->count_room, slab->table_pages));
    slab->first = slab->num ? carve(&self, PSTI_PART_SLAB, slab->num, slab->record_bytes) : NULL;
    view->state = carve(&self, PSTI_PART_STATE, 1, sizeof(psti_pool_state));
    view->status = carve(&self, PSTI_PART_STATUS, 1, sizeof(pst_pool_status));
    *overflow = self.overflow;
    return self.used;
}

pst_status psti_page_shift(uint64_t page_bytes, uint32_t *shift_out)
{
    if (page_bytes == 0)
        page_bytes = PST_PAGE_BYTES_DEFAULT;
    PSTI_CHECK(page_bytes >= PST_PAGE_BYTES_MIN && page_bytes <= PST_PAGE_BYTES_MAX &&
                   (page_bytes & (page_bytes - 1)) == 0,
               PST_E_INVALID, "page_bytes %" PRIu64 ": allowed are powers of two, %u to %u",
               page_bytes, PST_PAGE_BYTES_MIN, PST_PAGE_BYTES_MAX);
    *shift_out = (uint32_t)__builtin_ctzll(page_bytes);
    return PST_OK;
}

bool psti_pool_has_own_pages(const pst_pool_config *config)
{
    return config->max_pages > config->num_pages;
}

/* 0 stands for num. */
static pst_status check_most(const char *name, uint64_t num, uint64_t most, uint32_t *pages_out)
{
    PSTI_CHECK(most == 0 || (most >= num && most <= INT32_MAX), PST_E_INVALID,
               "%s %" PRIu64 ": allowed are 0 and %" PRIu64 " to %d", name, most, num, INT32_MAX);
    *pages_out = (uint32_t)(most ? most : num);
    return PST_OK;
}

static pst_status check_pages(const pst_pool_config *config, psti_pool_view *view)
{
    PSTI_CHECK(config->num_pages >= 1 && config->num_pages <= INT32_MAX, PST_E_INVALID,
               "num_pages %" PRIu64 ": allowed are 1 to %d", config->num_pages, INT32_MAX);
    PSTI_CHECK(config->num_host_pages <= INT32_MAX, PST_E_INVALID,
               "num_host_pages %" PRIu64 ": allowed are 0 to %d", config->num_host_pages,
               INT32_MAX);
    PSTI_TRY(check_most("max_pages", config->num_pages, config->max_pages,
                        &view->max_pages[PSTI_TIER_DEVICE]));
    PSTI_TRY(check_most("max_host_pages", config->num_host_pages, config->max_host_pages,
                        &view->max_pages[PSTI_TIER_HOST]));
    PSTI_CHECK(!config->memory || !psti_pool_has_own_pages(config), PST_E_INVALID,
               "max_pages %" PRIu64 ": memory of the caller's cannot grow", config->max_pages);
    return PST_OK;
}

static pst_status check_tickets(const pst_pool_config *config, psti_pool_view *view)
{
    const uint32_t num = config->slab_tickets;
    PSTI_CHECK(config->max_tickets <= MAX_TICKETS, PST_E_INVALID,
               "max_tickets %u: allowed are up to %u", config->max_tickets, MAX_TICKETS);
    const uint32_t most = config->max_tickets ? config->max_tickets : MAX_TICKETS;
    PSTI_CHECK(num <= most, PST_E_INVALID, "slab_tickets %u: allowed are up to %u%s", num, most,
               config->max_tickets ? ", max_tickets" : "");
    PSTI_CHECK(config->slab_counts <= MAX_COUNTS, PST_E_INVALID,
               "slab_counts %u: allowed are up to %u", config->slab_counts, MAX_COUNTS);
    PSTI_CHECK(num > 0 || (config->slab_pages == 0 && config->slab_counts == 0), PST_E_INVALID,
               "slab_pages %" PRIu64 ", slab_counts %u: must be 0 where slab_tickets is 0",
               config->slab_pages, config->slab_counts);
    const uint32_t least = num > DEFAULT_TICKETS ? num : DEFAULT_TICKETS;
    view->max_tickets = config->max_tickets ? config->max_tickets : least;
    return PST_OK;
}

/* No stash has more pages than the pool can have. */
static psti_slab_layout slab_of(const pst_pool_config *config, const psti_pool_view *view)
{
    const uint64_t all = (uint64_t)view->max_pages[0] + view->max_pages[1];
    const uint64_t pages = config->slab_pages;
    const psti_slab_layout slab = {
        .num = config->slab_tickets,
        .count_room = config->slab_counts ? config->slab_counts : DEFAULT_COUNTS,
        .table_pages = pages && pages < all ? pages : all,
    };
    return slab;
}

pst_status psti_pool_view_of(const pst_pool_config *config, psti_pool_view *view,
                             psti_slab_layout *slab, uint64_t *bytes_out)
{
    PSTI_TRY(psti_page_shift(config->page_bytes, &view->page_shift));
    PSTI_TRY(check_pages(config, view));
    PSTI_CHECK(config->mode == PST_POOL_ORDERED || config->mode == PST_POOL_CONCURRENT,
               PST_E_INVALID, "mode %d: allowed are ordered and concurrent", (int)config->mode);
    PSTI_TRY(check_tickets(config, view));
    PSTI_CHECK(config->padding[0] == 0 && config->padding[1] == 0 && config->padding_2 == 0,
               PST_E_INVALID, "padding %u %u, padding_2 %u: must be 0", config->padding[0],
               config->padding[1], config->padding_2);
    view->concurrent = config->mode == PST_POOL_CONCURRENT;
    view->scrubs = config->scrub;
    view->fails_fast = config->fails_fast;
    *slab = slab_of(config, view);
    PSTI_CHECK(config->memory || config->memory_bytes == 0, PST_E_INVALID,
               "memory_bytes %" PRIu64 ": must be 0 where memory is NULL", config->memory_bytes);
    bool overflow = false;
    *bytes_out =
        psti_pool_layout(view, slab, NULL, psti_pool_has_own_pages(config), NULL, &overflow);
    PSTI_CHECK(!overflow && *bytes_out <= SIZE_MAX, PST_E_INVALID,
               "num_pages %" PRIu64 ": more bytes than can be counted", config->num_pages);
    PSTI_CHECK(!config->memory || (config->memory_bytes >= *bytes_out &&
                                   (uintptr_t)config->memory % ALIGNMENT == 0),
               PST_E_INVALID,
               "memory of %" PRIu64 " bytes at %p: %" PRIu64 " bytes aligned to %u are needed",
               config->memory_bytes, config->memory, *bytes_out, ALIGNMENT);
    return PST_OK;
}

pst_status pst_pool_bytes(const pst_pool_config *config, uint64_t *bytes_out)
{
    PSTI_CHECK(config && bytes_out, PST_E_INVALID, "config or bytes_out is NULL");
    psti_pool_view view = {0};
    psti_slab_layout slab;
    uint64_t bytes = 0;
    PSTI_TAKE(pst_pool_config, whole, config);
    PSTI_TRY(psti_pool_view_of(&whole, &view, &slab, &bytes));
    if (psti_pool_has_own_pages(&whole))
        bytes += whole.num_pages << view.page_shift;
    *bytes_out = bytes;
    return PST_OK;
}
