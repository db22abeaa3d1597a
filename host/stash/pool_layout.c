/* Sizes of pages and pools: pure arithmetic, which needs no device. */
#include "host/stash/pool_layout.h"
#include "host/base/structs.h"

#include <inttypes.h>

#define DEFAULT_TICKETS 4096u
#define MAX_TICKETS (1u << 20)
#define ALIGNMENT 256u

typedef struct walk {
    unsigned char *base;
    uint64_t used;
    bool overflow;
} walk;

static void *carve(walk *self, uint64_t count, uint64_t size)
{
    uint64_t bytes = 0;
    const uint64_t at = self->used;
    self->overflow |= __builtin_mul_overflow(count, size, &bytes) ||
                      __builtin_add_overflow(bytes, ALIGNMENT - 1, &bytes) ||
                      __builtin_add_overflow(at, bytes & ~(uint64_t)(ALIGNMENT - 1), &self->used);
    return self->base && !self->overflow ? self->base + at : NULL;
}

static uint32_t ring_slots(uint32_t pages)
{
    uint32_t slots = 1;
    while (slots < pages)
        slots *= 2;
    return slots;
}

uint64_t psti_pool_layout(psti_pool_view *view, unsigned char *base, bool own_pages, bool *overflow)
{
    walk self = {.base = base};
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        const uint32_t pages = view->max_pages[tier];
        const uint32_t slots = ring_slots(pages);
        view->ring_mask[tier] = slots - 1;
        if (tier == PSTI_TIER_DEVICE && !own_pages)
            view->pages[tier] = carve(&self, pages, (uint64_t)1 << view->page_shift);
        view->ring[tier] = carve(&self, slots, sizeof(uint32_t));
        view->owner[tier] = carve(&self, pages, sizeof(uint64_t));
    }
    view->seen = carve(&self, (uint64_t)view->max_pages[0] + view->max_pages[1], sizeof(uint32_t));
    view->sketch = carve(&self, PSTI_SKETCH_BUCKETS, sizeof(uint32_t));
    view->tickets = carve(&self, view->max_tickets, sizeof(uint64_t));
    view->state = carve(&self, 1, sizeof(psti_pool_state));
    view->status = carve(&self, 1, sizeof(pst_pool_status));
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

pst_status psti_pool_view_of(const pst_pool_config *config, psti_pool_view *view,
                             uint64_t *bytes_out)
{
    PSTI_TRY(psti_page_shift(config->page_bytes, &view->page_shift));
    PSTI_TRY(check_pages(config, view));
    PSTI_CHECK(config->mode == PST_POOL_ORDERED || config->mode == PST_POOL_CONCURRENT,
               PST_E_INVALID, "mode %d: allowed are ordered and concurrent", (int)config->mode);
    PSTI_CHECK(config->max_tickets <= MAX_TICKETS, PST_E_INVALID,
               "max_tickets %u: allowed are up to %u", config->max_tickets, MAX_TICKETS);
    view->max_tickets = config->max_tickets ? config->max_tickets : DEFAULT_TICKETS;
    view->concurrent = config->mode == PST_POOL_CONCURRENT;
    view->scrubs = config->scrub;
    PSTI_CHECK(config->memory || config->memory_bytes == 0, PST_E_INVALID,
               "memory_bytes %" PRIu64 ": must be 0 where memory is NULL", config->memory_bytes);
    bool overflow = false;
    *bytes_out = psti_pool_layout(view, NULL, psti_pool_has_own_pages(config), &overflow);
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
    uint64_t bytes = 0;
    PSTI_TAKE(pst_pool_config, whole, config);
    PSTI_TRY(psti_pool_view_of(&whole, &view, &bytes));
    if (psti_pool_has_own_pages(&whole))
        bytes += whole.num_pages << view.page_shift;
    *bytes_out = bytes;
    return PST_OK;
}
