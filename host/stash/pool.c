#include "host/base/internal.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "host/base/nvtx.h"
#include "kernels/core/fn.h"

#define DEFAULT_TICKETS 4096u
#define MAX_TICKETS (1u << 20)
#define ALIGNMENT 256u

/* ---- size and layout: one walk counts (base NULL) or carves ---- */

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

/* The device pages lie in front, unless they have memory of their own. */
static uint64_t layout(psti_pool_view *view, unsigned char *base, bool own_pages, bool *overflow)
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

/* Bytes in front of which only pages lie: everything else is cleared at creation. */
static unsigned char *metadata_of(const psti_pool_view *view)
{
    return (unsigned char *)view->ring[PSTI_TIER_DEVICE];
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

static bool has_own_pages(const pst_pool_config *config)
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
    PSTI_CHECK(!config->memory || !has_own_pages(config), PST_E_INVALID,
               "max_pages %" PRIu64 ": memory of the caller's cannot grow", config->max_pages);
    return PST_OK;
}

static pst_status view_of(const pst_pool_config *config, psti_pool_view *view, uint64_t *bytes_out)
{
    PSTI_CHECK(config->struct_size == sizeof(*config), PST_E_INVALID,
               "struct_size %zu: use PST_POOL_CONFIG_INIT (%zu)", config->struct_size,
               sizeof(*config));
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
    *bytes_out = layout(view, NULL, has_own_pages(config), &overflow);
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
    PSTI_TRY(view_of(config, &view, &bytes));
    if (has_own_pages(config))
        bytes += config->num_pages << view.page_shift;
    *bytes_out = bytes;
    return PST_OK;
}

/* ---- launches ---- */

pst_status psti_pool_usable(const pst_pool *pool)
{
    PSTI_CHECK(!__atomic_load_n(&pool->failed, __ATOMIC_RELAXED), PST_E_CUDA,
               "an earlier CUDA error: only pst_pool_reset and pst_pool_destroy are accepted");
    return PST_OK;
}

pst_status psti_pool_note(pst_pool *pool, pst_status status)
{
    if (status == PST_E_CUDA)
        __atomic_store_n(&pool->failed, 1, __ATOMIC_RELAXED);
    return status;
}

pst_status psti_pool_launch(pst_pool *pool, psti_op op, const void *args, pst_stream stream)
{
    pst_device *device = pool->device;
    PSTI_TRY(psti_pool_note(pool, device->ops->hold(device, stream, &pool->hold)));
    return psti_pool_note(pool, device->ops->launch(device, op, args, stream));
}

pst_status psti_pool_control(pst_pool *pool, psti_op op, uint32_t what, pst_stream stream)
{
    const psti_control_args args = {
        .pool = pool->view,
        .mailbox = pool->mailbox,
        .what = what,
        .num_pages = {pool->num_pages[0], pool->num_pages[1]},
    };
    return psti_pool_launch(pool, op, &args, stream);
}

/* ---- create and destroy ---- */

static void free_parts(pst_pool *pool)
{
    pst_device *device = pool->device;
    pst_stream_destroy(device, pool->stream);
    pst_device_free_pinned(device, pool->mailbox);
    pst_device_free(device, pool->memory);
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        device->ops->span_close(device, &pool->spans[tier]);
    psti_free(pool->ticket_used);
    if (pool->lock) {
        pthread_mutex_destroy(pool->lock);
        psti_free(pool->lock);
    }
    psti_free(pool);
}

/* Addresses for the most pages of a tier, memory for the first. */
static pst_status open_tier(pst_pool *pool, uint32_t tier, uint64_t num_pages)
{
    pst_device *device = pool->device;
    psti_pool_view *view = &pool->view;
    const uint32_t shift = view->page_shift;
    if (view->max_pages[tier] == 0)
        return PST_OK;
    PSTI_TRY(device->ops->span_open(device, tier, (uint64_t)view->max_pages[tier] << shift,
                                    &pool->spans[tier]));
    view->pages[tier] = pool->spans[tier].address;
    return device->ops->span_resize(device, &pool->spans[tier], num_pages << shift);
}

static pst_status take_memory(pst_pool *pool, const pst_pool_config *config, uint64_t bytes)
{
    pst_device *device = pool->device;
    void *memory = config->memory;
    void *mailbox = NULL;
    pool->ticket_used = psti_calloc(pool->view.max_tickets, 1);
    pool->lock = psti_calloc(1, sizeof(pthread_mutex_t));
    PSTI_CHECK(pool->ticket_used && pool->lock, PST_E_NOMEM, "no memory for a pool");
    pthread_mutex_init(pool->lock, NULL);
    if (!memory) {
        PSTI_TRY(pst_device_alloc(device, (size_t)bytes, &memory));
        pool->memory = memory;
    }
    PSTI_TRY(pst_device_alloc_pinned(device, sizeof(psti_mailbox), &mailbox));
    pool->mailbox = mailbox;
    bool overflow = false;
    layout(&pool->view, memory, has_own_pages(config), &overflow);
    if (has_own_pages(config))
        PSTI_TRY(open_tier(pool, PSTI_TIER_DEVICE, config->num_pages));
    PSTI_TRY(open_tier(pool, PSTI_TIER_HOST, config->num_host_pages));
    PSTI_TRY(pst_stream_create(device, &pool->stream));
    const size_t pages_bytes = (size_t)(metadata_of(&pool->view) - (unsigned char *)memory);
    return pst_device_fill(device, metadata_of(&pool->view), 0, (size_t)bytes - pages_bytes,
                           pool->stream);
}

pst_status pst_pool_create(pst_device *device, const pst_pool_config *config, pst_pool **pool_out)
{
    PSTI_CHECK(device && config && pool_out, PST_E_INVALID, "device, config or pool_out is NULL");
    PSTI_RANGE("pst_pool_create");
    psti_pool_view view = {0};
    uint64_t bytes = 0;
    PSTI_TRY(view_of(config, &view, &bytes));
    pst_pool *pool = psti_calloc(1, sizeof(*pool));
    PSTI_CHECK(pool, PST_E_NOMEM, "no memory for a pool");
    pool->device = device;
    pool->view = view;
    pool->num_pages[PSTI_TIER_DEVICE] = (uint32_t)config->num_pages;
    pool->num_pages[PSTI_TIER_HOST] = (uint32_t)config->num_host_pages;
    pool->is_callers = config->memory != NULL;
    pst_status status = take_memory(pool, config, bytes);
    if (status == PST_OK) /* from none */
        status = psti_pool_control(pool, PSTI_OP_RESIZE, 0, pool->stream);
    if (status == PST_OK)
        status = pst_pool_reset(pool, PST_RESET_ALL, pool->stream);
    if (status == PST_OK)
        status = pst_stream_synchronize(device, pool->stream);
    if (status != PST_OK) {
        free_parts(pool);
        return status;
    }
    psti_device_retain(device);
    psti_log(PST_LOG_INFO, "pool of %" PRIu64 " pages, %" PRIu64 " bytes on %s", config->num_pages,
             bytes, device->info.name);
    *pool_out = pool;
    return PST_OK;
}

pst_status pst_pool_destroy(pst_pool *pool)
{
    if (!pool)
        return PST_OK;
    const uint32_t graphs = psti_hold_count(pool->device, &pool->hold);
    pthread_mutex_lock(pool->lock);
    const uint32_t tickets = pool->num_tickets;
    pthread_mutex_unlock(pool->lock);
    PSTI_CHECK(graphs == 0 && tickets == 0, PST_E_BUSY,
               "%u tickets and %u captured graphs hold this pool", tickets, graphs);
    const pst_status status = pst_device_synchronize(pool->device);
    if (status != PST_OK && status != PST_E_CUDA)
        return status;
    psti_device_release(pool->device);
    free_parts(pool);
    return PST_OK;
}

/* ---- tickets' directory ---- */

pst_status psti_pool_copy(const pst_pool *pool, void *to, const void *from, size_t bytes)
{
    PSTI_TRY(pst_device_copy(pool->device, to, from, bytes, pool->stream));
    return pst_stream_synchronize(pool->device, pool->stream);
}

pst_status psti_pool_take_index(pst_pool *pool, uint64_t record, uint32_t *index_out)
{
    uint32_t index = 0;
    pthread_mutex_lock(pool->lock);
    while (index < pool->view.max_tickets && pool->ticket_used[index])
        index++;
    const bool found = index < pool->view.max_tickets;
    if (found) {
        pool->ticket_used[index] = 1;
        pool->num_tickets++;
    }
    pthread_mutex_unlock(pool->lock);
    PSTI_CHECK(found, PST_E_INVALID, "the pool has max_tickets %u already", pool->view.max_tickets);
    const pst_status status =
        psti_pool_copy(pool, &pool->view.tickets[index], &record, sizeof(record));
    if (status == PST_OK) {
        *index_out = index;
        return PST_OK;
    }
    /* it may have arrived all the same, and its record will be freed */
    record = 0;
    psti_pool_copy(pool, &pool->view.tickets[index], &record, sizeof(record));
    pthread_mutex_lock(pool->lock);
    pool->ticket_used[index] = 0;
    pool->num_tickets--;
    pthread_mutex_unlock(pool->lock);
    return status;
}

pst_status psti_pool_drop_index(pst_pool *pool, uint32_t index)
{
    const uint64_t none = 0;
    const pst_status status = psti_pool_copy(pool, &pool->view.tickets[index], &none, sizeof(none));
    if (status != PST_OK && status != PST_E_CUDA)
        return status;
    pthread_mutex_lock(pool->lock);
    pool->ticket_used[index] = 0;
    pool->num_tickets--;
    pthread_mutex_unlock(pool->lock);
    return PST_OK;
}

/* ---- enqueued operations ---- */

pst_status pst_pool_reset(pst_pool *pool, uint32_t what, pst_stream stream)
{
    PSTI_CHECK(pool, PST_E_INVALID, "pool is NULL");
    PSTI_CHECK(what != 0 && (what & ~PST_RESET_ALL) == 0, PST_E_INVALID,
               "what %u: allowed are PST_RESET_PAGES, _FAULTS, _STATISTICS and their sums", what);
    PSTI_RANGE("pst_pool_reset");
    PSTI_TRY(psti_pool_control(pool, PSTI_OP_RESET, what, stream));
    if (what & PST_RESET_PAGES)
        __atomic_store_n(&pool->failed, 0, __ATOMIC_RELAXED);
    return PST_OK;
}

pst_status pst_pool_step(pst_pool *pool, pst_stream stream)
{
    PSTI_CHECK(pool, PST_E_INVALID, "pool is NULL");
    PSTI_TRY(psti_pool_usable(pool));
    PSTI_RANGE("pst_pool_step");
    return psti_pool_control(pool, PSTI_OP_STEP, 0, stream);
}

pst_status pst_pool_check(pst_pool *pool, pst_stream stream)
{
    PSTI_CHECK(pool, PST_E_INVALID, "pool is NULL");
    PSTI_TRY(psti_pool_usable(pool));
    PSTI_RANGE("pst_pool_check");
    return psti_pool_control(pool, PSTI_OP_CHECK, 0, stream);
}

int32_t *pst_pool_step_valid(pst_pool *pool)
{
    return pool ? &pool->view.status->step_valid : NULL;
}

/* ---- mailbox ---- */

/* Copies a slot; 0 when it was being written meanwhile. */
static uint64_t read_slot(const psti_mailbox_slot *slot, pst_pool_status *status)
{
    uint64_t words[sizeof(*status) / 8];
    const uint64_t before = __atomic_load_n(&slot->sequence, __ATOMIC_ACQUIRE);
    for (size_t i = 0; i < sizeof(words) / 8; i++)
        words[i] = __atomic_load_n(&slot->words[i], __ATOMIC_ACQUIRE);
    if (before == 0 || __atomic_load_n(&slot->sequence, __ATOMIC_RELAXED) != before)
        return 0;
    memcpy(status, words, sizeof(words));
    return before;
}

pst_status pst_pool_poll(pst_pool *pool, pst_pool_status *status_out)
{
    PSTI_CHECK(pool && status_out, PST_E_INVALID, "pool or status_out is NULL");
    pst_pool_status status[2];
    for (int tries = 0; tries < 16; tries++) {
        const uint64_t a = read_slot(&pool->mailbox->slots[0], &status[0]);
        const uint64_t b = read_slot(&pool->mailbox->slots[1], &status[1]);
        if (a || b) {
            *status_out = status[b > a];
            return PST_OK;
        }
        /* one slot is always whole; missing both takes two publications during this read */
    }
    return PSTI_FAIL(PST_E_AGAIN, "pst_pool_step has not run yet");
}
