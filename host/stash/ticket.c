/* Tickets: stash, restore, release, demote and promote, as checked launches. */
#include "host/base/structs.h"
#include "host/stash/stash.h"

#include <inttypes.h>
#include <string.h>

#include "host/base/nvtx.h"
#include "kernels/core/stream.h"

static uint64_t record_bytes(const pst_pool *pool, uint32_t num_counts, uint64_t table_pages)
{
    const uint64_t tables = pool->view.max_pages[PSTI_TIER_HOST] ? 2 : 1;
    return sizeof(psti_ticket_record) + num_counts * sizeof(int64_t) +
           tables * table_pages * sizeof(uint32_t);
}

/* Pages of the group at capacity, or all that the pool can have. */
static uint64_t table_length(const pst_pool *pool, const pst_group *group)
{
    const uint64_t pages = psti_pages_of_tiles(group->max_tiles, pool->view.page_shift);
    const uint64_t most = (uint64_t)pool->view.max_pages[0] + pool->view.max_pages[1];
    return psti_min_u64(pages, most);
}

pst_status pst_ticket_bytes(const pst_pool *pool, const pst_group *group, uint64_t *bytes_out)
{
    PSTI_CHECK(pool && group && bytes_out, PST_E_INVALID, "pool, group or bytes_out is NULL");
    *bytes_out = record_bytes(pool, group->num_counts, table_length(pool, group));
    return PST_OK;
}

static void free_parts(pst_ticket *ticket)
{
    pst_device_free(ticket->pool->device, ticket->record);
    psti_free(ticket->shape);
    psti_free(ticket);
}

static pst_status make_record(pst_ticket *ticket, uint64_t bytes)
{
    pst_pool *pool = ticket->pool;
    psti_ticket_record header = {.num_counts = ticket->shape->num_counts,
                                 .table_pages = ticket->table_pages};
    void *memory = NULL;
    PSTI_TRY(pst_device_alloc(pool->device, (size_t)bytes, &memory));
    ticket->record = memory;
    PSTI_TRY(pst_device_fill(pool->device, memory, 0, (size_t)bytes, pool->stream));
    PSTI_TRY(psti_pool_copy(pool, memory, &header, sizeof(header)));
    PSTI_TRY(psti_pool_take_index(pool, (uint64_t)(uintptr_t)memory, &ticket->index));
    const pst_status status =
        psti_pool_copy(pool, &ticket->record->index, &ticket->index, sizeof(ticket->index));
    if (status != PST_OK)
        psti_pool_drop_index(pool, ticket->index);
    return status;
}

pst_status pst_ticket_create(pst_pool *pool, const pst_group *group, pst_ticket **ticket_out)
{
    PSTI_CHECK(pool && group && ticket_out, PST_E_INVALID, "pool, group or ticket_out is NULL");
    PSTI_CHECK(group->device == pool->device, PST_E_INVALID, "pool and group of two devices");
    PSTI_TRY(psti_pool_usable(pool));
    pst_ticket *ticket = psti_calloc(1, sizeof(*ticket));
    pst_group *shape = psti_calloc(1, sizeof(*shape));
    if (!ticket || !shape) {
        psti_free(ticket);
        psti_free(shape);
        return PSTI_FAIL(PST_E_NOMEM, "no memory for a ticket");
    }
    *shape = *group;
    shape->dirty = NULL;
    ticket->pool = pool;
    ticket->shape = shape;
    ticket->table_pages = table_length(pool, group);
    const pst_status status =
        make_record(ticket, record_bytes(pool, shape->num_counts, ticket->table_pages));
    if (status != PST_OK) {
        free_parts(ticket);
        return status;
    }
    *ticket_out = ticket;
    return PST_OK;
}

/* What the device says of the ticket in the pool's epoch, after all work enqueued so far. Of the pool
 * only the word that nobody writes meanwhile: in a concurrent pool others may be at work. */
static pst_status read_record(const pst_ticket *ticket, psti_ticket_record *record_out)
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
static pst_status vacate(pst_ticket *ticket)
{
    psti_ticket_record record;
    PSTI_TRY(read_record(ticket, &record));
    PSTI_CHECK(record.state != PSTI_TICKET_LIVE || record.num_pages == 0, PST_E_BUSY,
               "ticket %u holds %" PRIu64 " pages: restore or release it first", ticket->index,
               record.num_pages);
    if (record.state == PSTI_TICKET_EMPTY)
        return PST_OK;
    PSTI_TRY(pst_ticket_release(ticket, ticket->pool->stream));
    return pst_stream_synchronize(ticket->pool->device, ticket->pool->stream);
}

pst_status pst_ticket_destroy(pst_ticket *ticket)
{
    if (!ticket)
        return PST_OK;
    pst_pool *pool = ticket->pool;
    const uint32_t graphs = psti_hold_count(pool->device, &ticket->hold);
    PSTI_CHECK(graphs == 0, PST_E_BUSY, "%u captured graphs use this ticket", graphs);
    const pst_status status = vacate(ticket);
    if (status != PST_OK && status != PST_E_CUDA)
        return status;
    PSTI_TRY(psti_pool_drop_index(pool, ticket->index));
    free_parts(ticket);
    return PST_OK;
}

uint32_t pst_ticket_index(const pst_ticket *ticket)
{
    return ticket ? ticket->index : UINT32_MAX;
}

pst_status pst_ticket_set_offload(pst_ticket *ticket, uint32_t num, uint32_t den)
{
    PSTI_CHECK(ticket, PST_E_INVALID, "ticket is NULL");
    PSTI_CHECK((num == 0 || den != 0) && num <= den, PST_E_INVALID,
               "offload %u/%u: allowed are fractions from 0 to 1", num, den);
    PSTI_CHECK(num == 0 || ticket->pool->view.max_pages[PSTI_TIER_HOST] > 0, PST_E_INVALID,
               "offload %u/%u: the pool has no host pages", num, den);
    ticket->host_num = num;
    ticket->host_den = den;
    return PST_OK;
}

/* ---- enqueued operations ---- */

static pst_status check_shape(const pst_ticket *ticket, const pst_group *group, const char *what)
{
    char buffer[256];
    PSTI_CHECK(group, PST_E_INVALID, "%s is NULL", what);
    PSTI_CHECK(group->device == ticket->pool->device, PST_E_INVALID, "ticket and %s of two devices",
               what);
    const char *difference = psti_group_difference(ticket->shape, group, buffer, sizeof(buffer));
    PSTI_CHECK(!difference, PST_E_INVALID, "%s is unlike the ticket's group: %s", what, difference);
    return PST_OK;
}

/* A number for one operation, never 0. Mixed, so that the sums of the numbers of operations that
 * overlap do not come out as that of a third: the finaliser of MurmurHash3, a bijection that
 * keeps 0. */
static uint32_t next_op(pst_pool *pool)
{
    uint32_t op;
    do
        op = __atomic_add_fetch(&pool->num_ops, 1, __ATOMIC_RELAXED);
    while (op == 0);
    op = (op ^ op >> 16) * 0x85ebca6bu;
    op = (op ^ op >> 13) * 0xc2b2ae35u;
    return op ^ op >> 16;
}

static pst_status enqueue(pst_ticket *ticket, const pst_group *group, psti_op op, uint32_t flags,
                          uint64_t budget, const psti_launch *launch, pst_stream stream)
{
    pst_pool *pool = ticket->pool;
    pst_device *device = pool->device;
    psti_move_args args;
    args.pool = pool->view;
    args.ticket = ticket->record;
    args.dirty = group->dirty;
    args.max_tiles = flags & PSTI_MOVE_RELEASE && !pool->view.scrubs ? 1 : group->max_tiles;
    args.table_pages = ticket->table_pages;
    args.budget = budget;
    args.ticket_index = ticket->index;
    args.num_counts = group->num_counts;
    args.flags = flags | launch->flags;
    args.num_sms = launch->num_sms;
    args.all_sms = (uint32_t)device->info.num_sms;
    args.num_tensors = group->num_tensors;
    args.num_spaces = group->num_spaces;
    args.op = next_op(pool);
    args.backend = launch->backend;
    args.host_num = ticket->host_num;
    args.host_den = ticket->host_den;
    memcpy(args.spaces, group->spaces, sizeof(args.spaces));
    memcpy(args.tensors, group->tensors, sizeof(args.tensors));
    psti_capture_of capture;
    PSTI_TRY(psti_pool_note(pool, device->ops->capture_of(device, stream, &capture)));
    PSTI_TRY(psti_pool_note(pool, psti_hold_in(device, &capture, &pool->hold)));
    PSTI_TRY(psti_pool_note(pool, psti_hold_in(device, &capture, &ticket->hold)));
    if (group != ticket->shape)
        PSTI_TRY(psti_pool_note(pool, psti_hold_in(device, &capture, group->hold)));
    return psti_pool_note(pool, device->ops->launch(device, op, &args, stream));
}

pst_status pst_ticket_stash(pst_ticket *ticket, const pst_group *source,
                            const pst_stash_options *options, pst_stream stream)
{
    psti_launch launch;
    PSTI_CHECK(ticket, PST_E_INVALID, "ticket is NULL");
    PSTI_TAKE_OPTIONS(pst_stash_options, own, options);
    PSTI_TRY(psti_pool_usable(ticket->pool));
    PSTI_TRY(check_shape(ticket, source, "source"));
    PSTI_CHECK(source->has_counts, PST_E_INVALID, "source has a row space without counts");
    PSTI_CHECK(table_length(ticket->pool, source) <= ticket->table_pages, PST_E_INVALID,
               "source has larger capacities than the ticket's group");
    PSTI_TRY(psti_launch_make(ticket->pool->device, source, &own.launch, &launch));
    PSTI_RANGE("pst_ticket_stash");
    return enqueue(ticket, source, PSTI_OP_STASH, 0, 0, &launch, stream);
}

pst_status pst_ticket_restore(pst_ticket *ticket, const pst_group *destination,
                              const pst_restore_options *options, pst_stream stream)
{
    psti_launch launch;
    PSTI_CHECK(ticket, PST_E_INVALID, "ticket is NULL");
    PSTI_TAKE_OPTIONS(pst_restore_options, own, options);
    PSTI_CHECK(own.pages == PST_RESTORE_CONSUME || own.pages == PST_RESTORE_KEEP, PST_E_INVALID,
               "pages %d: allowed are consume and keep", (int)own.pages);
    PSTI_CHECK(own.tail == PST_TAIL_UNTOUCHED || own.tail == PST_TAIL_ZERO, PST_E_INVALID,
               "tail %d: allowed are untouched and zero", (int)own.tail);
    PSTI_TRY(psti_pool_usable(ticket->pool));
    PSTI_TRY(check_shape(ticket, destination, "destination"));
    PSTI_TRY(psti_launch_make(ticket->pool->device, destination, &own.launch, &launch));
    PSTI_RANGE("pst_ticket_restore");
    const uint32_t flags = (own.pages == PST_RESTORE_KEEP ? PSTI_MOVE_KEEP : 0) |
                           (own.tail == PST_TAIL_ZERO ? PSTI_MOVE_ZERO : 0);
    return enqueue(ticket, destination, PSTI_OP_RESTORE, flags, 0, &launch, stream);
}

pst_status pst_ticket_release(pst_ticket *ticket, pst_stream stream)
{
    PSTI_CHECK(ticket, PST_E_INVALID, "ticket is NULL");
    PSTI_TRY(psti_pool_usable(ticket->pool));
    PSTI_RANGE("pst_ticket_release");
    const psti_launch launch = {.num_sms =
                                    ticket->pool->view.scrubs ? (uint32_t)psti_env_num_sms() : 1,
                                .backend = PST_BACKEND_LDG}; /* copies nothing */
    return enqueue(ticket, ticket->shape, PSTI_OP_RESTORE, PSTI_MOVE_RELEASE, 0, &launch, stream);
}

/* What the kernels know as their budget: 0 for all. */
static pst_status budget_of(const pst_migrate_options *options, uint64_t *budget_out)
{
    const pst_migrate_share share = options->share;
    PSTI_CHECK(share >= PST_MIGRATE_ALL && share <= PST_MIGRATE_REST, PST_E_INVALID,
               "share %d: allowed are all, up to and rest", (int)share);
    PSTI_CHECK((share == PST_MIGRATE_UP_TO) == (options->max_pages > 0), PST_E_INVALID,
               "max_pages %" PRIu64 ": at least 1 with PST_MIGRATE_UP_TO, else 0",
               options->max_pages);
    *budget_out = share == PST_MIGRATE_REST ? UINT64_MAX : options->max_pages;
    return PST_OK;
}

static pst_status migrate(pst_ticket *ticket, const pst_migrate_options *options, uint32_t flags,
                          pst_stream stream)
{
    psti_launch launch;
    uint64_t budget = 0;
    PSTI_TAKE_OPTIONS(pst_migrate_options, own, options);
    PSTI_TRY(budget_of(&own, &budget));
    PSTI_TRY(psti_pool_usable(ticket->pool));
    PSTI_CHECK(ticket->pool->view.max_pages[PSTI_TIER_HOST] > 0, PST_E_INVALID,
               "the pool has no host pages");
    PSTI_TRY(psti_launch_make(ticket->pool->device, ticket->shape, &own.launch, &launch));
    return enqueue(ticket, ticket->shape, PSTI_OP_MIGRATE, flags, budget, &launch, stream);
}

pst_status pst_ticket_demote(pst_ticket *ticket, const pst_migrate_options *options,
                             pst_stream stream)
{
    PSTI_CHECK(ticket, PST_E_INVALID, "ticket is NULL");
    PSTI_RANGE("pst_ticket_demote");
    return migrate(ticket, options, 0, stream);
}

pst_status pst_ticket_promote(pst_ticket *ticket, const pst_migrate_options *options,
                              pst_stream stream)
{
    PSTI_CHECK(ticket, PST_E_INVALID, "ticket is NULL");
    PSTI_RANGE("pst_ticket_promote");
    return migrate(ticket, options, PSTI_MOVE_PROMOTE, stream);
}
