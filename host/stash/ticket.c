/* Tickets that are created, and what is known of all without a launch. */
#include "host/base/structs.h"
#include "host/stash/stash.h"

#include <inttypes.h>

#include "kernels/core/stream.h"

uint64_t psti_table_length(const pst_pool *pool, uint64_t max_tiles)
{
    const uint64_t pages = psti_pages_of_tiles(max_tiles, pool->view.page_shift);
    const uint64_t most = (uint64_t)pool->view.max_pages[0] + pool->view.max_pages[1];
    return psti_min_u64(pages, most);
}

pst_status pst_ticket_bytes(const pst_pool *pool, const pst_group *group, uint64_t *bytes_out)
{
    PSTI_CHECK_HANDLE(pool, POOL);
    PSTI_CHECK_HANDLE(group, GROUP);
    PSTI_CHECK(bytes_out, PST_E_INVALID, "bytes_out is NULL");
    *bytes_out = psti_canary_room() + psti_record_bytes(&pool->view, group->num_counts,
                                                        psti_table_length(pool, group->max_tiles));
    return PST_OK;
}

static void free_parts(psti_ticket *ticket)
{
    psti_ticket_delist(ticket);
    psti_part_free(ticket->pool->device, ticket->record);
    psti_free(ticket);
}

static pst_status make_record(psti_ticket *ticket)
{
    pst_pool *pool = ticket->pool;
    const uint64_t bytes = psti_record_bytes(&pool->view, ticket->count_room, ticket->table_pages);
    psti_ticket_record header = {.count_room = ticket->count_room,
                                 .table_pages = ticket->table_pages};
    void *memory = NULL;
    PSTI_TRY(psti_part_alloc(pool->device, (size_t)(bytes + psti_canary_room()), &memory));
    ticket->record = memory;
    PSTI_TRY(pst_device_fill(pool->device, memory, 0, (size_t)bytes, pool->stream));
    PSTI_TRY(psti_pool_copy(pool, memory, &header, sizeof(header)));
    PSTI_TRY(psti_ticket_canary_write(ticket));
    PSTI_TRY(psti_pool_take_index(pool, (uint64_t)(uintptr_t)memory, &ticket->index));
    const pst_status status =
        psti_pool_copy(pool, &ticket->record->index, &ticket->index, sizeof(ticket->index));
    if (status != PST_OK)
        psti_pool_drop_index(pool, ticket->index);
    return status;
}

pst_status pst_ticket_create(pst_pool *pool, const pst_group *group, pst_ticket *ticket_out)
{
    PSTI_USE_HANDLE(pool, POOL);
    PSTI_CHECK_HANDLE(group, GROUP);
    PSTI_CHECK(ticket_out, PST_E_INVALID, "ticket_out is NULL");
    PSTI_TRY(psti_pool_usable(pool));
    psti_ticket *ticket = psti_calloc(1, sizeof(*ticket));
    PSTI_CHECK(ticket, PST_E_NOMEM, "no memory for a ticket");
    ticket->pool = pool;
    ticket->count_room = group->num_counts;
    ticket->table_pages = psti_table_length(pool, group->max_tiles);
    pst_ticket issued = {0};
    pst_status status = psti_ticket_enlist(ticket);
    if (status == PST_OK)
        status = make_record(ticket);
    if (status != PST_OK) {
        free_parts(ticket);
        return status;
    }
    status = psti_ticket_issue(ticket, &issued);
    if (status != PST_OK) {
        psti_pool_drop_index(pool, ticket->index);
        free_parts(ticket);
        return status;
    }
    *ticket_out = issued;
    return PST_OK;
}

/* What the device says of the ticket in the pool's epoch, after all work enqueued so far. Of the pool
 * only the word that nobody writes meanwhile: in a concurrent pool others may be at work. */
static pst_status read_record(const psti_ticket *ticket, psti_ticket_record *record_out)
{
    const pst_pool *pool = ticket->pool;
    uint32_t epoch;
    PSTI_TRY(pst_device_synchronize(pool->device));
    PSTI_TRY(psti_pool_copy(pool, record_out, ticket->record, sizeof(*record_out)));
    PSTI_TRY(psti_pool_copy(pool, &epoch, &pool->view.state->epoch, sizeof(epoch)));
    if (record_out->epoch != epoch)
        record_out->state = PSTI_TICKET_EMPTY;
    return PST_OK;
}

/* Refuses a ticket that holds pages; lets the pool forget what a failed one wanted. */
static pst_status vacate(psti_ticket *ticket)
{
    const psti_capture_of none = {.id = 0};
    pst_pool *pool = ticket->pool;
    psti_ticket_record record;
    PSTI_TRY(read_record(ticket, &record));
    PSTI_CHECK(record.state != PSTI_TICKET_LIVE || record.num_pages == 0, PST_E_BUSY,
               "ticket %u holds %" PRIu64 " pages: restore or release it first", ticket->index,
               record.num_pages);
    if (record.state == PSTI_TICKET_EMPTY)
        return PST_OK;
    PSTI_TRY(psti_pool_usable(pool));
    PSTI_TRY(psti_ticket_clear(ticket, &none, pool->stream));
    return pst_stream_synchronize(pool->device, pool->stream);
}

pst_status pst_ticket_destroy(pst_ticket handle)
{
    if (handle.id == 0)
        return PST_OK;
    PSTI_FIND_TICKET(ticket, handle);
    PSTI_CHECK(!ticket->is_lent, PST_E_INVALID,
               "ticket %u is of the slab: pst_ticket_give is for it", ticket->index);
    pst_pool *pool = ticket->pool;
    const uint32_t graphs = psti_hold_count(pool->device, &ticket->hold);
    PSTI_CHECK(graphs == 0, PST_E_BUSY, "%u captured graphs use this ticket", graphs);
    pst_status status = vacate(ticket);
    if (status == PST_OK)
        status = psti_ticket_canary_look(ticket);
    if (!psti_is_gone(status))
        return status;
    PSTI_TRY(psti_pool_drop_index(pool, ticket->index));
    free_parts(ticket);
    return status == PST_E_DAMAGED ? status : PST_OK;
}

uint32_t pst_ticket_index(pst_ticket handle)
{
    const psti_ticket *ticket = psti_ticket_find(handle);
    return ticket ? ticket->index : UINT32_MAX;
}

pst_status pst_ticket_set_offload(pst_ticket handle, uint32_t num, uint32_t den)
{
    PSTI_FIND_TICKET(ticket, handle);
    PSTI_CHECK((num == 0 || den != 0) && num <= den, PST_E_INVALID,
               "offload %u/%u: allowed are fractions from 0 to 1", num, den);
    PSTI_CHECK(num == 0 || ticket->pool->view.max_pages[PSTI_TIER_HOST] > 0, PST_E_INVALID,
               "offload %u/%u: the pool has no host pages", num, den);
    ticket->host_num = num;
    ticket->host_den = den;
    return PST_OK;
}
