/* The memory of a pool: taken with the caller's help where there is too little, and what a pool holds. */
#include "host/base/structs.h"
#include "host/stash/stash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef pst_status (*take_fn)(pst_pool *pool, uint32_t tier, uint64_t bytes);

static const char *name_of(uint32_t tier)
{
    return tier == PSTI_TIER_DEVICE ? "device" : "host";
}

/* Asks the caller to make room for `wanted` bytes, at most once per tier, and tries again. `take`
 * leaves everything as it was when it fails. No lock is held meanwhile: a caller's allocator may use
 * the library, too. */
static pst_status take_with_help(psti_room *room, take_fn take, uint32_t tier, uint64_t bytes,
                                 uint64_t wanted)
{
    pst_pool *pool = room->pool;
    char message[PSTI_MESSAGE_BYTES];
    snprintf(message, sizeof(message), "%s", pst_last_message());
    pst_status status = take(pool, tier, bytes);
    const bool is_short = status == PST_E_NOMEM || status == PST_E_DEVICE_NOMEM;
    if (!is_short || !pool->make_room || room->asked[tier])
        return status;
    char first[PSTI_MESSAGE_BYTES];
    snprintf(first, sizeof(first), "%s", pst_last_message());
    room->asked[tier] = true;
    psti_log(PST_LOG_INFO, "make_room is asked for %" PRIu64 " bytes of %s memory", wanted,
             name_of(tier));
    if (!pool->make_room(pool->make_room_context, wanted, tier))
        return PSTI_FAIL(status,
                         "%s; make_room was asked for %" PRIu64 " bytes of %s memory and refused",
                         first, wanted, name_of(tier));
    status = take(pool, tier, bytes);
    if (status == PST_OK) /* which leaves the last message alone */
        psti_restore_message(message);
    else if (status == PST_E_NOMEM || status == PST_E_DEVICE_NOMEM) {
        snprintf(first, sizeof(first), "%s", pst_last_message());
        status = PSTI_FAIL(status,
                           "%s; make_room was asked for %" PRIu64
                           " bytes of %s memory, which was not enough",
                           first, wanted, name_of(tier));
    }
    return status;
}

static pst_status take_block(pst_pool *pool, uint32_t tier, uint64_t bytes)
{
    (void)tier;
    return psti_part_alloc(pool->device, (size_t)bytes, &pool->memory);
}

pst_status psti_pool_take_block(psti_room *room, uint64_t bytes, uint64_t bytes_to_follow)
{
    return take_with_help(room, take_block, PSTI_TIER_DEVICE, bytes, bytes + bytes_to_follow);
}

static pst_status resize_span(pst_pool *pool, uint32_t tier, uint64_t bytes)
{
    return pool->device->ops->span_resize(pool->device, &pool->spans[tier], bytes);
}

pst_status psti_pool_map(psti_room *room, uint32_t tier, uint64_t pages)
{
    const psti_span *span = &room->pool->spans[tier];
    const uint64_t bytes = pages << room->pool->view.page_shift;
    if (!span->address)
        return PST_OK;
    uint64_t more = bytes > span->mapped ? bytes - span->mapped : 0;
    if (span->granularity)
        more = (more + span->granularity - 1) / span->granularity * span->granularity;
    return take_with_help(room, resize_span, tier, bytes, more);
}

pst_status pst_pool_get_info_sized(pst_pool *pool, pst_pool_info *info_out, size_t info_bytes)
{
    PSTI_USE_HANDLE(pool, POOL);
    PSTI_CHECK(info_out, PST_E_INVALID, "info_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_pool_info, info_bytes));
    const psti_pool_view *view = &pool->view;
    pst_pool_info info = {.page_bytes = (uint64_t)1 << view->page_shift,
                          .page_shift = view->page_shift,
                          .max_tickets = view->max_tickets,
                          .metadata_bytes = pool->metadata_bytes,
                          .slab_tickets = pool->slab.num};
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        const psti_span *span = &pool->spans[tier];
        const uint64_t bytes = (uint64_t)view->max_pages[tier] << view->page_shift;
        info.num_pages[tier] = pool->num_pages[tier];
        info.max_pages[tier] = view->max_pages[tier];
        info.held_bytes[tier] = span->address ? span->mapped : bytes;
        info.reserved_bytes[tier] = span->address ? span->reserved : bytes;
        info.pages[tier] = view->pages[tier];
        info.owners[tier] = view->max_pages[tier] ? view->owner[tier] : NULL;
    }
    psti_lock_take(&pool->lock);
    info.slab_taken = psti_slab_num_taken(pool);
    info.num_tickets = pool->num_tickets + info.slab_taken;
    psti_lock_give(&pool->lock);
    memcpy(info_out, &info, info_bytes);
    return PST_OK;
}
