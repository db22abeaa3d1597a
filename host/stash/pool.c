/* A pool: its creation, and the launches that change all of it. */
#include "host/base/structs.h"
#include "host/stash/stash.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "host/base/nvtx.h"
#include "host/stash/pool_layout.h"
#include "kernels/core/mailbox.h"

/* Bytes in front of which only pages lie: everything else is cleared at creation. */
static unsigned char *metadata_of(const psti_pool_view *view)
{
    return (unsigned char *)view->ring[PSTI_TIER_DEVICE];
}

const char *pst_fault_text(pst_fault fault)
{
    switch (fault) {
        PST_FAULT_LIST(PSTI_CASE_TEXT)
    }
    return "no fault of this library";
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
    psti_capture_of capture;
    PSTI_TRY(psti_pool_note(pool, device->ops->capture_of(device, stream, &capture)));
    PSTI_TRY(psti_pool_note(pool, psti_hold_in(device, &capture, &pool->hold)));
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
    psti_pool_layout(&pool->view, memory, psti_pool_has_own_pages(config), &overflow);
    if (psti_pool_has_own_pages(config))
        PSTI_TRY(open_tier(pool, PSTI_TIER_DEVICE, config->num_pages));
    PSTI_TRY(open_tier(pool, PSTI_TIER_HOST, config->num_host_pages));
    PSTI_TRY(pst_stream_create(device, &pool->stream));
    const size_t pages_bytes = (size_t)(metadata_of(&pool->view) - (unsigned char *)memory);
    return pst_device_fill(device, metadata_of(&pool->view), 0, (size_t)bytes - pages_bytes,
                           pool->stream);
}

pst_status pst_pool_create(pst_device *device, const pst_pool_config *given, pst_pool **pool_out)
{
    PSTI_CHECK(device && given && pool_out, PST_E_INVALID, "device, config or pool_out is NULL");
    PSTI_TAKE(pst_pool_config, own, given);
    const pst_pool_config *config = &own;
    PSTI_RANGE("pst_pool_create");
    psti_pool_view view = {0};
    uint64_t bytes = 0;
    PSTI_TRY(psti_pool_view_of(config, &view, &bytes));
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
    psti_device_retain(device, PSTI_LIVE_POOL);
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
    psti_device_release(pool->device, PSTI_LIVE_POOL);
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

pst_status pst_pool_poll(pst_pool *pool, pst_pool_status *status_out)
{
    PSTI_CHECK(pool && status_out, PST_E_INVALID, "pool or status_out is NULL");
    for (int tries = 0; tries < 16; tries++)
        if (psti_read_mailbox(pool->mailbox, status_out))
            return PST_OK;
    return PSTI_FAIL(PST_E_AGAIN, "pst_pool_step has not run yet");
}
