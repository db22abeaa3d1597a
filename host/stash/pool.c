/* A pool: its creation, and the launches that change all of it. */
#include "host/base/structs.h"
#include "host/stash/stash.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "host/base/nvtx.h"
#include "host/stash/pool_layout.h"
#include "kernels/core/mailbox.h"

const char *pst_fault_text(pst_fault fault)
{
    switch (fault) {
        PST_FAULT_LIST(PSTI_CASE_TEXT)
    }
    return "no fault of this library";
}

/* ---- launches ---- */

enum { TICKET_STALE = 2 }; /* of ticket_used: gone, but its word in the directory may not be */

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

static uint32_t find_stale(pst_pool *pool)
{
    uint32_t index = 0;
    psti_lock_take(&pool->lock);
    while (index < pool->view.max_tickets && pool->ticket_used[index] != TICKET_STALE)
        index++;
    psti_lock_give(&pool->lock);
    return index;
}

static void set_used(pst_pool *pool, uint32_t index, unsigned char used)
{
    psti_lock_take(&pool->lock);
    pool->ticket_used[index] = used;
    psti_lock_give(&pool->lock);
}

/* Before anybody follows the directory to records that are freed. */
static pst_status clear_stale(pst_pool *pool, pst_stream stream)
{
    static const uint64_t none = 0;
    const psti_device_ops *ops = pool->device->ops;
    for (uint32_t i = find_stale(pool); i < pool->view.max_tickets; i = find_stale(pool)) {
        PSTI_TRY(ops->copy(pool->device, &pool->view.tickets[i], &none, sizeof(none), stream));
        set_used(pool, i, 0);
    }
    return PST_OK;
}

/* The device has the sizes that are mapped, where a resize has failed behind its launch. */
static pst_status revive(pst_pool *pool, const psti_control_args *args, pst_stream stream)
{
    PSTI_TRY(clear_stale(pool, stream));
    return pool->device->ops->launch(pool->device, PSTI_OP_RESIZE, args, stream);
}

pst_status psti_pool_control(pst_pool *pool, psti_op op, uint32_t what, pst_stream stream)
{
    pst_device *device = pool->device;
    psti_capture_of capture;
    PSTI_TRY(psti_pool_note(pool, device->ops->capture_of(device, stream, &capture)));
    PSTI_TRY(psti_pool_note(pool, psti_hold_in(device, &capture, &pool->hold)));
    if (op == PSTI_OP_STEP && capture.id == 0)
        PSTI_TRY(psti_slab_sweep(pool, stream));
    /* a replay of a captured step says nothing of what was given back since */
    const psti_control_args args = {
        .pool = pool->view,
        .mailbox = pool->mailbox,
        .covered = capture.id ? 0 : __atomic_load_n(&pool->num_gives, __ATOMIC_RELAXED),
        .what = what,
        .num_pages = {pool->num_pages[0], pool->num_pages[1]},
    };
    const bool revives = op == PSTI_OP_RESET && what & PST_RESET_PAGES && capture.id == 0;
    if (revives && __atomic_load_n(&pool->failed, __ATOMIC_RELAXED))
        PSTI_TRY(psti_pool_note(pool, revive(pool, &args, stream)));
    if (op == PSTI_OP_CHECK && capture.id == 0)
        PSTI_TRY(psti_pool_note(pool, psti_canaries_fetch(pool, stream)));
    PSTI_TRY(psti_pool_note(pool, device->ops->launch(device, op, &args, stream)));
    if (revives)
        __atomic_store_n(&pool->failed, 0, __ATOMIC_RELAXED);
    return PST_OK;
}

/* The slab's tickets are in the directory from the start. */
static pst_status launch_slab(pst_pool *pool)
{
    const psti_slab_args args = {
        .pool = pool->view,
        .first_record = (uintptr_t)pool->slab.first,
        .record_bytes = pool->slab.record_bytes,
        .table_pages = pool->slab.table_pages,
        .num = pool->slab.num,
        .count_room = pool->slab.count_room,
    };
    if (pool->slab.num == 0)
        return PST_OK;
    memset(pool->ticket_used, 1, pool->slab.num);
    return pool->device->ops->launch(pool->device, PSTI_OP_SLAB, &args, pool->stream);
}

/* ---- create and destroy ---- */

static void free_parts(pst_pool *pool)
{
    pst_device *device = pool->device;
    psti_top_close(pool);
    psti_part_stream_destroy(device, pool->stream);
    psti_part_free_pinned(device, pool->mailbox);
    psti_part_free_pinned(device, pool->canaries_seen);
    psti_part_free(device, pool->memory);
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        device->ops->span_close(device, &pool->spans[tier]);
    psti_slab_close(pool);
    psti_free(pool->ticket_used);
    psti_lock_close(&pool->lock, PSTI_RANK_POOL);
    psti_handle_free(pool);
}

/* Addresses for the most pages of a tier, memory for the first. */
static pst_status open_tier(psti_room *room, uint32_t tier, uint64_t num_pages)
{
    pst_pool *pool = room->pool;
    pst_device *device = pool->device;
    psti_pool_view *view = &pool->view;
    const uint32_t shift = view->page_shift;
    if (view->max_pages[tier] == 0)
        return PST_OK;
    PSTI_TRY(device->ops->span_open(device, tier, (uint64_t)view->max_pages[tier] << shift,
                                    &pool->spans[tier]));
    view->pages[tier] = pool->spans[tier].address;
    return psti_pool_map(room, tier, num_pages);
}

static pst_status take_memory(pst_pool *pool, const pst_pool_config *config, uint64_t bytes)
{
    pst_device *device = pool->device;
    const bool own_pages = psti_pool_has_own_pages(config);
    psti_room room = {.pool = pool};
    void *mailbox = NULL;
    pool->ticket_used = psti_calloc(pool->view.max_tickets, 1);
    PSTI_CHECK(pool->ticket_used, PST_E_NOMEM, "no memory for a pool");
    if (config->memory)
        PSTI_TRY(psti_check_address(device, config->memory, bytes));
    else
        PSTI_TRY(psti_pool_take_block(&room, bytes,
                                      own_pages ? config->num_pages << pool->view.page_shift : 0));
    unsigned char *memory = config->memory ? config->memory : pool->memory;
    PSTI_TRY(psti_part_alloc_pinned(device, sizeof(psti_mailbox), &mailbox));
    pool->mailbox = mailbox;
    bool overflow = false;
    psti_pool_layout(&pool->view, &pool->slab, memory, own_pages, pool->canaries, &overflow);
    if (own_pages)
        PSTI_TRY(open_tier(&room, PSTI_TIER_DEVICE, config->num_pages));
    PSTI_TRY(open_tier(&room, PSTI_TIER_HOST, config->num_host_pages));
    PSTI_TRY(psti_part_stream_create(device, &pool->stream));
    /* in front of it only pages lie */
    const psti_canary *behind_pages = &pool->canaries[PSTI_PART_PAGES];
    pool->metadata =
        behind_pages->at ? behind_pages->at : (unsigned char *)pool->view.ring[PSTI_TIER_DEVICE];
    pool->metadata_bytes = bytes - (uint64_t)(pool->metadata - memory);
    PSTI_TRY(
        pst_device_fill(device, pool->metadata, 0, (size_t)pool->metadata_bytes, pool->stream));
    return psti_canaries_write(pool);
}

pst_status pst_pool_create(pst_device *device, const pst_pool_config *given, pst_pool **pool_out)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    PSTI_CHECK(given && pool_out, PST_E_INVALID, "config or pool_out is NULL");
    PSTI_TAKE(pst_pool_config, own, given);
    const pst_pool_config *config = &own;
    PSTI_RANGE("pst_pool_create");
    psti_pool_view view = {0};
    psti_slab_layout slab;
    uint64_t bytes = 0;
    PSTI_TRY(psti_pool_view_of(config, &view, &slab, &bytes));
    pst_pool *pool = psti_handle_new(sizeof(*pool), PSTI_KIND_POOL);
    PSTI_CHECK(pool, PST_E_NOMEM, "no memory for a pool");
    psti_lock_open(&pool->lock, PSTI_RANK_POOL);
    pool->device = device;
    pool->view = view;
    pool->slab = slab;
    pool->num_pages[PSTI_TIER_DEVICE] = (uint32_t)config->num_pages;
    pool->num_pages[PSTI_TIER_HOST] = (uint32_t)config->num_host_pages;
    pool->is_callers = config->memory != NULL;
    pool->make_room = config->make_room;
    pool->make_room_context = config->make_room_context;
    pst_status status = take_memory(pool, config, bytes);
    if (status == PST_OK)
        status = psti_slab_open(pool);
    if (status == PST_OK)
        status = launch_slab(pool);
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
    psti_top_open(pool);
    psti_counters_open(pool->counters);
    psti_device_retain(device, PSTI_LIVE_POOL);
    psti_log(PST_LOG_INFO, "pool of %" PRIu64 " pages, %" PRIu64 " bytes on %s", config->num_pages,
             bytes, device->info.name);
    *pool_out = pool;
    return PST_OK;
}

/* A graph lets go of pool and tickets one after the other. */
static uint32_t wait_for_slab(const pst_pool *pool)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};
    uint32_t held = psti_slab_num_held(pool);
    for (int i = 0; i < 50 && held && pool->device->info.kind == PST_DEVICE_CUDA; i++) {
        clock_nanosleep(CLOCK_MONOTONIC, 0, &millisecond, NULL);
        held = psti_slab_num_held(pool);
    }
    return held;
}

static pst_status check_unused(pst_pool *pool)
{
    const uint32_t graphs = psti_hold_count(pool->device, &pool->hold);
    const uint32_t held = graphs ? 0 : wait_for_slab(pool);
    psti_lock_take(&pool->lock);
    const uint32_t tickets = pool->num_tickets + psti_slab_num_taken(pool);
    psti_lock_give(&pool->lock);
    PSTI_CHECK(graphs == 0 && tickets == 0, PST_E_BUSY,
               "%u tickets and %u captured graphs hold this pool", tickets, graphs);
    PSTI_CHECK(held == 0, PST_E_BUSY, "graphs just destroyed still hold %u tickets", held);
    return PST_OK;
}

static pst_status look_at_canaries(pst_pool *pool)
{
    if (!pool->canaries_seen)
        return PST_OK;
    PSTI_TRY(psti_canaries_fetch(pool, pool->stream));
    PSTI_TRY(pst_stream_synchronize(pool->device, pool->stream));
    return psti_canaries_compare(pool);
}

pst_status pst_pool_destroy(pst_pool *pool)
{
    if (!pool)
        return PST_OK;
    PSTI_CHECK_HANDLE(pool, POOL);
    PSTI_TRY(check_unused(pool)); /* before others are kept out */
    PSTI_TRY(psti_handle_close(pool));
    pst_status status = check_unused(pool);
    if (status == PST_OK)
        status = pst_device_synchronize(pool->device);
    if (status == PST_OK)
        status = look_at_canaries(pool);
    if (!psti_is_gone(status)) {
        psti_handle_reopen(pool);
        return status;
    }
    psti_device_release(pool->device, PSTI_LIVE_POOL);
    free_parts(pool);
    return status == PST_E_DAMAGED ? status : PST_OK;
}

/* ---- tickets' directory ---- */

pst_status psti_pool_copy(const pst_pool *pool, void *to, const void *from, size_t bytes)
{
    PSTI_TRY(pst_device_copy(pool->device, to, from, bytes, pool->stream));
    return pst_stream_synchronize(pool->device, pool->stream);
}

/* Of a ticket that is no more. Where CUDA fails the index is not used again before a reset revives the pool;
 * with another status the ticket is there as before. */
static pst_status drop_word(pst_pool *pool, uint32_t index)
{
    const uint64_t none = 0;
    const pst_status status =
        psti_pool_note(pool, psti_pool_copy(pool, &pool->view.tickets[index], &none, sizeof(none)));
    if (status != PST_OK && status != PST_E_CUDA)
        return status;
    psti_lock_take(&pool->lock);
    pool->ticket_used[index] = status == PST_OK ? 0 : TICKET_STALE;
    pool->num_tickets--;
    psti_lock_give(&pool->lock);
    return status;
}

pst_status psti_pool_take_index(pst_pool *pool, uint64_t record, uint32_t *index_out)
{
    uint32_t index = 0;
    psti_lock_take(&pool->lock);
    while (index < pool->view.max_tickets && pool->ticket_used[index])
        index++;
    const bool found = index < pool->view.max_tickets;
    if (found) {
        pool->ticket_used[index] = 1;
        pool->num_tickets++;
    }
    psti_lock_give(&pool->lock);
    PSTI_CHECK(found, PST_E_INVALID, "the pool has max_tickets %u already", pool->view.max_tickets);
    const pst_status status =
        psti_pool_copy(pool, &pool->view.tickets[index], &record, sizeof(record));
    if (status == PST_OK) {
        *index_out = index;
        return PST_OK;
    }
    /* it may have arrived all the same, and its record will be freed */
    const pst_status dropped = drop_word(pool, index);
    if (dropped != PST_OK && dropped != PST_E_CUDA) {
        psti_lock_take(&pool->lock);
        pool->ticket_used[index] = TICKET_STALE;
        pool->num_tickets--;
        psti_lock_give(&pool->lock);
    }
    return status;
}

pst_status psti_pool_drop_index(pst_pool *pool, uint32_t index)
{
    const pst_status status = drop_word(pool, index);
    return status == PST_E_CUDA ? PST_OK : status;
}

/* ---- enqueued operations ---- */

pst_status pst_pool_reset(pst_pool *pool, uint32_t what, pst_stream stream)
{
    PSTI_USE_HANDLE(pool, POOL);
    PSTI_CHECK(what != 0 && (what & ~PST_RESET_ALL) == 0, PST_E_INVALID,
               "what %u: allowed are PST_RESET_PAGES, _FAULTS, _STATISTICS and their sums", what);
    PSTI_RANGE("pst_pool_reset");
    return psti_pool_control(pool, PSTI_OP_RESET, what, stream);
}

pst_status pst_pool_step(pst_pool *pool, pst_stream stream)
{
    PSTI_USE_HANDLE(pool, POOL);
    PSTI_TRY(psti_pool_usable(pool));
    PSTI_RANGE("pst_pool_step");
    return psti_pool_control(pool, PSTI_OP_STEP, 0, stream);
}

pst_status pst_pool_check(pst_pool *pool, pst_stream stream)
{
    PSTI_USE_HANDLE(pool, POOL);
    PSTI_TRY(psti_pool_usable(pool));
    PSTI_RANGE("pst_pool_check");
    PSTI_TRY(psti_pool_control(pool, PSTI_OP_CHECK, 0, stream));
    return psti_canaries_compare(pool);
}

pst_status psti_pool_expect(pst_pool *pool, const uint64_t *word, uint64_t expected,
                            pst_stream stream)
{
    pst_device *device = pool->device;
    psti_capture_of capture;
    PSTI_CHECK(word && (uintptr_t)word % sizeof(*word) == 0, PST_E_INVALID,
               "word %p: must be aligned to %zu", (const void *)word, sizeof(*word));
    PSTI_TRY(psti_pool_usable(pool));
    PSTI_TRY(psti_check_address(device, word, sizeof(*word)));
    __atomic_store_n(&pool->expects, 1, __ATOMIC_RELAXED);
    PSTI_TRY(psti_pool_note(pool, device->ops->capture_of(device, stream, &capture)));
    PSTI_TRY(psti_pool_note(pool, psti_hold_in(device, &capture, &pool->hold)));
    const psti_expect_args args = {.pool = pool->view, .word = word, .expected = expected};
    return psti_pool_note(pool, device->ops->launch(device, PSTI_OP_EXPECT, &args, stream));
}

int32_t *pst_pool_step_valid(pst_pool *pool)
{
    return psti_handle_is(pool, PSTI_KIND_POOL) ? &pool->view.status->step_valid : NULL;
}

/* ---- mailbox ---- */

/* Of the faults that nobody has been told of yet. */
static void tell_faults(pst_pool *pool, const pst_pool_status *status)
{
    if (__atomic_load_n(&pool->told_faults, __ATOMIC_RELAXED) == status->num_faults)
        return;
    const uint32_t told =
        __atomic_exchange_n(&pool->told_faults, status->num_faults, __ATOMIC_RELAXED);
    if (status->num_faults > told)
        psti_log(PST_LOG_INFO, "pool has %u faults; the first since its reset: %s (ticket %u)",
                 status->num_faults, pst_fault_text((pst_fault)status->fault),
                 status->fault_ticket);
}

pst_status pst_pool_poll(pst_pool *pool, pst_pool_status *status_out)
{
    PSTI_USE_HANDLE(pool, POOL);
    PSTI_CHECK(status_out, PST_E_INVALID, "status_out is NULL");
    PSTI_TRY(psti_device_check_alive(pool->device));
    PSTI_TRY(psti_canaries_compare(pool));
    for (int tries = 0; tries < 16; tries++)
        if (psti_read_mailbox(pool->mailbox, status_out)) {
            tell_faults(pool, status_out);
            psti_top_write(pool, status_out);
            psti_counters_write(pool->counters, status_out->in_use);
            return PST_OK;
        }
    return PSTI_FAIL(PST_E_AGAIN, "pst_pool_step has not run yet");
}
