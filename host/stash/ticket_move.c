/* What is done with tickets: stash, restore, release, demote and promote, as checked launches. */
#include "host/base/structs.h"
#include "host/stash/stash.h"

#include <inttypes.h>

#include "host/base/nvtx.h"
#include "kernels/core/mix.h"
#include "kernels/core/stream.h"

/* A number for one operation, never 0. Mixed, so that the sums of the numbers of operations that
 * overlap do not come out as that of a third: the finaliser of MurmurHash3, a bijection that
 * keeps 0. */
uint32_t psti_next_op(pst_pool *pool)
{
    uint32_t op;
    do
        op = __atomic_add_fetch(&pool->num_ops, 1, __ATOMIC_RELAXED);
    while (op == 0);
    op = (op ^ op >> 16) * 0x85ebca6bu;
    op = (op ^ op >> 13) * 0xc2b2ae35u;
    return op ^ op >> 16;
}

void psti_move_describe(psti_move_args *args)
{
    args->max_segments = 1;
    args->held_space = 0;
    args->is_plain = args->num_spaces > 0;
    args->num_looked = 0;
    args->apart = 0;
    args->odd = 0;
    args->odd_runs = 0;
    for (uint32_t i = 0; i < args->num_spaces; i++) {
        const uint32_t num_segments = args->spaces[i].num_segments;
        if (args->max_segments == 1 && num_segments > 1)
            args->held_space = i;
        args->max_segments = num_segments > args->max_segments ? num_segments : args->max_segments;
        args->is_plain &= num_segments == 1 && args->spaces[i].num_summed == 0;
    }
    for (uint32_t t = 0; t < args->num_tensors; t++) {
        const psti_tensor *tensor = &args->tensors[t];
        const uint32_t num_segments = args->spaces[tensor->space].num_segments;
        args->apart |= (uint64_t)psti_lies_apart(tensor, num_segments) << t;
        args->odd |= (uint64_t)psti_lies_odd(tensor, num_segments) << t;
        args->odd_runs |= (uint64_t)psti_has_odd_runs(tensor, num_segments) << t;
    }
}

void psti_move_fill_group(const pst_device *device, const pst_group *group,
                          const psti_placing *placing, const psti_launch *launch,
                          psti_move_args *args)
{
    args->dirty = NULL;
    args->max_tiles = placing ? placing->max_tiles : 0;
    args->budget = 0;
    args->num_counts = group ? group->num_counts : 0;
    args->flags = launch->flags;
    args->num_sms = launch->num_sms;
    args->all_sms = (uint32_t)device->info.num_sms;
    args->num_tensors = group ? group->num_tensors : 0;
    args->num_spaces = group ? group->num_spaces : 0;
    psti_move_describe(args);
    args->backend = psti_pick_backend(device, launch, args);
}

void psti_move_fill(const psti_ticket *ticket, const pst_group *group, const psti_placing *placing,
                    const psti_launch *launch, psti_move_args *args)
{
    pst_pool *pool = ticket->pool;
    psti_move_fill_group(pool->device, group, placing, launch, args);
    if (!placing)
        args->max_tiles = ticket->table_pages << (pool->view.page_shift - PSTI_TILE_SHIFT);
    args->pool = pool->view;
    args->ticket = ticket->record;
    args->table_pages = ticket->table_pages;
    args->form = group ? psti_mix(group->form ^ ticket->lease) : 0;
    args->ticket_index = ticket->index;
    args->count_room = ticket->count_room;
    args->op = psti_next_op(pool);
    args->host_num = ticket->host_num;
    args->host_den = ticket->host_den;
}

/* What a captured graph holds: the pool, the ticket, and dirty words that it uses. */
static pst_status hold_all(psti_ticket *ticket, pst_dirty *dirty, const psti_capture_of *capture)
{
    pst_pool *pool = ticket->pool;
    if (capture->id == 0)
        return PST_OK;
    psti_slab_note_capture(ticket, capture);
    PSTI_TRY(psti_hold_in(pool->device, capture, &pool->hold));
    PSTI_TRY(psti_hold_in(pool->device, capture, &ticket->hold));
    return dirty ? psti_hold_in(pool->device, capture, &dirty->hold) : PST_OK;
}

pst_status psti_move_enqueue(psti_ticket *ticket, psti_op op, const void *args, pst_dirty *dirty,
                             const psti_capture_of *capture, pst_stream stream)
{
    pst_pool *pool = ticket->pool;
    PSTI_TRY(psti_pool_note(pool, hold_all(ticket, dirty, capture)));
    return psti_pool_note(pool, pool->device->ops->launch(pool->device, op, args, stream));
}

/* Graphs of another schedule leave pages where restores and releases should have freed them. */
static bool may_refuse(const pst_pool *pool)
{
    return __atomic_load_n(&pool->expects, __ATOMIC_RELAXED);
}

static pst_status release(psti_ticket *ticket, uint32_t flags, const psti_capture_of *capture,
                          pst_stream stream)
{
    const bool scrubs = ticket->pool->view.scrubs;
    const pst_device *device = ticket->pool->device;
    const psti_launch launch = {.num_sms = scrubs ? psti_launch_sms(device, 0) : 1,
                                .backend = PST_BACKEND_LDG}; /* copies nothing */
    psti_move_args args;
    psti_move_fill(ticket, NULL, NULL, &launch, &args);
    if (!scrubs)
        args.max_tiles = 1;
    args.flags |= PSTI_MOVE_RELEASE | flags;
    PSTI_TRY(psti_move_enqueue(ticket, PSTI_OP_RESTORE, &args, NULL, capture, stream));
    const bool may_be_refused = !(flags & PSTI_MOVE_QUIET) && may_refuse(ticket->pool);
    if (!may_be_refused && (capture->id == 0 || capture->id == ticket->filled_in))
        ticket->may_hold = false;
    return PST_OK;
}

pst_status psti_ticket_clear(psti_ticket *ticket, const psti_capture_of *capture, pst_stream stream)
{
    PSTI_TRY(psti_pool_usable(ticket->pool));
    PSTI_TRY(release(ticket, PSTI_MOVE_QUIET, capture, stream));
    ticket->is_cleared = true;
    if (capture->id == 0)
        ticket->needs_release = false;
    return PST_OK;
}

/* Before every operation: whether the stream is captured, and what an earlier owner left goes. */
pst_status psti_move_begin(psti_ticket *ticket, pst_stream stream, psti_capture_of *capture)
{
    pst_device *device = ticket->pool->device;
    PSTI_TRY(psti_pool_note(ticket->pool, device->ops->capture_of(device, stream, capture)));
    /* once for each owner: where a graph of his clears it, what is in it afterwards is his */
    if (!ticket->needs_release || ticket->is_cleared)
        return PST_OK;
    return psti_ticket_clear(ticket, capture, stream);
}

pst_status psti_move_check_room(const psti_ticket *ticket, const pst_group *group,
                                const psti_placing *placing, const char *what)
{
    const uint64_t pages = psti_table_length(ticket->pool, placing->max_tiles);
    PSTI_CHECK(group->num_counts <= ticket->count_room, PST_E_INVALID,
               "%s has %u counts, ticket %u has room for %u", what, group->num_counts,
               ticket->index, ticket->count_room);
    PSTI_CHECK(pages <= ticket->table_pages, PST_E_INVALID,
               "%s has %" PRIu64 " pages at capacity, ticket %u has room for %" PRIu64, what, pages,
               ticket->index, ticket->table_pages);
    return PST_OK;
}

/* What fits this surely fits what the ticket holds then. Where something may be held already the
 * stash may find the ticket live, and what it held stays. */
void psti_move_note_stash(psti_ticket *ticket, const pst_group *group, const psti_space *spaces,
                          const psti_capture_of *capture)
{
    const bool may_hold = ticket->may_hold;
    if (!may_hold)
        ticket->filled_in = capture->id;
    else if (ticket->filled_in && ticket->filled_in != capture->id)
        ticket->filled_in = PSTI_SEVERAL_CAPTURES;
    if (may_hold && ticket->stashed_form != group->form)
        ticket->stashed_form = 0; /* of no group */
    if (!may_hold)
        ticket->stashed_form = group->form;
    for (uint32_t i = 0; i < group->num_spaces; i++)
        if (!may_hold || ticket->stashed_capacity[i] < spaces[i].capacity)
            ticket->stashed_capacity[i] = spaces[i].capacity;
    ticket->may_hold = true;
}

pst_status pst_ticket_stash(pst_ticket handle, const pst_group *group, const pst_buffers *source,
                            const pst_stash_options *options, pst_stream stream)
{
    psti_move_args args;
    psti_launch launch;
    psti_capture_of capture;
    PSTI_FIND_TICKET(ticket, handle);
    pst_pool *pool = ticket->pool;
    PSTI_CHECK_HANDLE(group, GROUP);
    PSTI_TAKE_OPTIONS(pst_stash_options, own, options);
    PSTI_TRY(psti_pool_usable(pool));
    psti_placing placing = {
        .spaces = args.spaces, .tensors = args.tensors, .with_counts = true, .pool = pool};
    PSTI_TRY(psti_place(pool->device, group, source, "source", &placing));
    PSTI_TRY(psti_move_check_room(ticket, group, &placing, "source"));
    PSTI_TRY(psti_launch_make(pool->device, &own.launch, &launch));
    PSTI_RANGE_OF("pst_ticket_stash", "stash", ticket->index, placing.max_tiles * PSTI_TILE_BYTES);
    PSTI_TRY(psti_move_begin(ticket, stream, &capture));
    psti_move_fill(ticket, group, &placing, &launch, &args);
    psti_move_note_stash(ticket, group, args.spaces, &capture);
    return psti_move_enqueue(ticket, PSTI_OP_STASH, &args, NULL, &capture, stream);
}

pst_status psti_move_check_options(const psti_ticket *ticket, const pst_group *group,
                                   const pst_restore_options *options)
{
    pst_dirty *const dirty = options->dirty;
    PSTI_CHECK(options->pages == PST_RESTORE_CONSUME || options->pages == PST_RESTORE_KEEP,
               PST_E_INVALID, "pages %d: allowed are consume and keep", (int)options->pages);
    PSTI_CHECK(options->tail >= PST_TAIL_UNTOUCHED && options->tail <= PST_TAIL_ZERO_ALL,
               PST_E_INVALID, "tail %d: allowed are untouched, zero and zero all",
               (int)options->tail);
    PSTI_CHECK(options->failed == PST_FAILED_UNTOUCHED || options->failed == PST_FAILED_ZERO,
               PST_E_INVALID, "failed %d: allowed are untouched and zero", (int)options->failed);
    PSTI_CHECK(options->padding == 0, PST_E_INVALID, "padding %u: must be 0", options->padding);
    if (!dirty) {
        PSTI_CHECK(options->tail != PST_TAIL_ZERO, PST_E_INVALID,
                   "PST_TAIL_ZERO needs dirty words; PST_TAIL_ZERO_ALL needs none");
        return PST_OK;
    }
    PSTI_CHECK_HANDLE(dirty, DIRTY);
    PSTI_CHECK(dirty->device == ticket->pool->device, PST_E_INVALID,
               "ticket and dirty of two devices");
    PSTI_CHECK(dirty->form == group->form, PST_E_INVALID,
               "dirty was made for a group of another form");
    return PST_OK;
}

/* Rows beyond a smaller capacity would be forgotten. */
static pst_status check_dirty(const pst_dirty *dirty, const pst_group *group,
                              const psti_space *spaces)
{
    for (uint32_t i = 0; dirty && i < group->num_spaces; i++)
        PSTI_CHECK(spaces[i].capacity == dirty->capacities[i], PST_E_INVALID,
                   "destination has capacity %" PRId64 " in space %u, dirty was made for %" PRId64,
                   spaces[i].capacity, i, dirty->capacities[i]);
    return PST_OK;
}

uint32_t psti_move_restore_flags(const pst_restore_options *options)
{
    return (options->pages == PST_RESTORE_KEEP ? PSTI_MOVE_KEEP : 0) |
           (options->tail != PST_TAIL_UNTOUCHED ? PSTI_MOVE_ZERO : 0) |
           (options->tail == PST_TAIL_ZERO_ALL ? PSTI_MOVE_ZERO_ALL : 0) |
           (options->failed == PST_FAILED_ZERO ? PSTI_MOVE_ZERO_FAILED : 0);
}

/* Whether what was stashed last surely fits here, so that a restore that consumes frees it. */
static bool fits_stashed(const psti_ticket *ticket, const pst_group *group,
                         const psti_space *spaces)
{
    bool fits = ticket->stashed_form == group->form;
    for (uint32_t i = 0; fits && i < group->num_spaces; i++)
        fits = spaces[i].capacity >= ticket->stashed_capacity[i];
    return fits;
}

void psti_move_note_restore(psti_ticket *ticket, const pst_group *group, const psti_space *spaces,
                            const psti_capture_of *capture)
{
    if (!may_refuse(ticket->pool) && capture->id == ticket->filled_in &&
        fits_stashed(ticket, group, spaces))
        ticket->may_hold = false;
}

pst_status pst_ticket_restore(pst_ticket handle, const pst_group *group,
                              const pst_buffers *destination, const pst_restore_options *options,
                              pst_stream stream)
{
    psti_move_args args;
    psti_launch launch;
    psti_capture_of capture;
    PSTI_FIND_TICKET(ticket, handle);
    pst_pool *pool = ticket->pool;
    PSTI_CHECK_HANDLE(group, GROUP);
    PSTI_TAKE_OPTIONS(pst_restore_options, own, options);
    PSTI_TRY(psti_pool_usable(pool));
    PSTI_TRY(psti_move_check_options(ticket, group, &own));
    const bool keeps = own.pages == PST_RESTORE_KEEP;
    psti_placing placing = {
        .spaces = args.spaces, .tensors = args.tensors, .may_skip = keeps, .pool = pool};
    PSTI_TRY(psti_place(pool->device, group, destination, "destination", &placing));
    PSTI_CHECK(!placing.skips || !own.dirty, PST_E_INVALID,
               "a base of destination is NULL: dirty words would not tell its rows");
    PSTI_TRY(check_dirty(own.dirty, group, args.spaces));
    PSTI_CHECK(group->num_counts <= ticket->count_room, PST_E_INVALID,
               "destination has %u counts, ticket %u has room for %u", group->num_counts,
               ticket->index, ticket->count_room);
    PSTI_TRY(psti_launch_make(pool->device, &own.launch, &launch));
    PSTI_RANGE_OF("pst_ticket_restore", "restore", ticket->index,
                  placing.max_tiles * PSTI_TILE_BYTES);
    PSTI_TRY(psti_move_begin(ticket, stream, &capture));
    psti_move_fill(ticket, group, &placing, &launch, &args);
    args.flags |= psti_move_restore_flags(&own);
    args.num_looked = args.is_plain && !pool->view.concurrent ? args.num_spaces : 0;
    args.dirty = own.dirty ? own.dirty->words : NULL;
    PSTI_TRY(psti_move_enqueue(ticket, PSTI_OP_RESTORE, &args, own.dirty, &capture, stream));
    if (!keeps)
        psti_move_note_restore(ticket, group, args.spaces, &capture);
    return PST_OK;
}

/* What a ticket's page table has room for. */
static uint64_t room_bytes(const psti_ticket *ticket)
{
    return (uint64_t)ticket->table_pages << ticket->pool->view.page_shift;
}

pst_status pst_ticket_release(pst_ticket handle, pst_stream stream)
{
    psti_capture_of capture;
    PSTI_FIND_TICKET(ticket, handle);
    PSTI_TRY(psti_pool_usable(ticket->pool));
    PSTI_RANGE_OF("pst_ticket_release", "release", ticket->index, room_bytes(ticket));
    PSTI_TRY(psti_move_begin(ticket, stream, &capture));
    return release(ticket, 0, &capture, stream);
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

static pst_status migrate(psti_ticket *ticket, const pst_migrate_options *options, uint32_t flags,
                          pst_stream stream)
{
    psti_move_args args;
    psti_launch launch;
    psti_capture_of capture;
    uint64_t budget = 0;
    const pst_pool *pool = ticket->pool;
    PSTI_TAKE_OPTIONS(pst_migrate_options, own, options);
    PSTI_TRY(budget_of(&own, &budget));
    PSTI_TRY(psti_pool_usable(pool));
    PSTI_CHECK(pool->view.max_pages[PSTI_TIER_HOST] > 0, PST_E_INVALID,
               "the pool has no host pages");
    PSTI_TRY(psti_launch_make(pool->device, &own.launch, &launch));
    PSTI_TRY(psti_move_begin(ticket, stream, &capture));
    psti_move_fill(ticket, NULL, NULL, &launch, &args);
    args.flags |= flags;
    args.budget = budget;
    return psti_move_enqueue(ticket, PSTI_OP_MIGRATE, &args, NULL, &capture, stream);
}

pst_status pst_ticket_demote(pst_ticket handle, const pst_migrate_options *options,
                             pst_stream stream)
{
    PSTI_FIND_TICKET(ticket, handle);
    PSTI_RANGE_OF("pst_ticket_demote", "demote", ticket->index, room_bytes(ticket));
    return migrate(ticket, options, 0, stream);
}

pst_status pst_ticket_promote(pst_ticket handle, const pst_migrate_options *options,
                              pst_stream stream)
{
    PSTI_FIND_TICKET(ticket, handle);
    PSTI_RANGE_OF("pst_ticket_promote", "promote", ticket->index, room_bytes(ticket));
    return migrate(ticket, options, PSTI_MOVE_PROMOTE, stream);
}
