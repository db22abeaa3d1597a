/* Restore and release on the CPU. */
#include "kernels/host/protocol.h"
#include "kernels/host/runners.h"
#include "kernels/host/walk.h"

/* What stands in the way of copying, PST_FAULT_NONE if nothing does. */
static pst_fault restore_verdict(const psti_move_args *args, uint32_t epoch)
{
    psti_ticket_record *ticket = args->ticket;
    const int64_t *counts = psti_ticket_counts(ticket);
    const psti_ticket_state state = psti_ticket_now(ticket, epoch);
    if (state == PSTI_TICKET_EMPTY)
        return PST_FAULT_EMPTY;
    if (args->flags & PSTI_MOVE_RELEASE)
        return PST_FAULT_NONE;
    if (state == PSTI_TICKET_FAILED)
        return PST_FAULT_FAILED;
    if (ticket->form != args->form)
        return PST_FAULT_FORM;
    for (uint32_t i = 0; i < args->num_spaces; i++) {
        const psti_space *space = &args->spaces[i];
        for (uint32_t s = 0; s < space->num_segments; s++)
            if (!psti_count_fits(counts[space->first_count + s], space->capacity))
                return PST_FAULT_DESTINATION;
    }
    const uint64_t pages = pages_wanted(args, counts);
    const bool whole = pages == ticket->num_pages && pages <= args->table_pages;
    return whole ? PST_FAULT_NONE : PST_FAULT_DAMAGED;
}

static unsigned char *restore_page(walk *self, uint64_t page, bool is_first)
{
    const psti_pool_view *pool = &self->args->pool;
    const uint32_t *epoch = self->context;
    const uint32_t id = psti_ticket_table(self->args->ticket, self->args->count_room)[page];
    if (psti_id_in_range(pool, id) && psti_load_relaxed_u64(psti_owner_of(pool, id)) ==
                                          psti_owner_word(self->args->ticket_index, *epoch, page))
        return psti_page_address(pool, id);
    if (is_first) /* once per page */
        psti_record_fault(pool, PST_FAULT_DAMAGED, self->args->ticket_index, id);
    return NULL;
}

static void restore_piece(walk *self, psti_rows *rows, uint64_t page, uint64_t offset,
                          uint64_t bytes)
{
    const unsigned char *from = restore_page(self, page, offset == 0);
    if (from && rows)
        psti_copy_out(rows, from + offset, bytes,
                      self->args->ticket->num_pages << self->args->pool.page_shift);
}

/* Up to which of the space's rows of count i an earlier restore may have left something. */
static uint64_t dirty_of(const psti_move_args *args, const psti_space *space, uint32_t i)
{
    if (!args->dirty || args->flags & PSTI_MOVE_ZERO_ALL)
        return (uint64_t)space->capacity;
    return psti_dirty_rows(args->dirty[i], space->capacity);
}

/* Clears rows [live, dirty). counts: of the ticket; NULL: nothing is live, and all up to the capacity
 * is dirty. */
static void clear_rows(const psti_move_args *args, const int64_t *counts)
{
    for (uint32_t t = 0; t < args->num_tensors; t++) {
        const psti_tensor *tensor = &args->tensors[t];
        const psti_space *space = &args->spaces[tensor->space];
        for (uint32_t s = 0; tensor->base && s < space->num_segments; s++) {
            const uint32_t i = space->first_count + s;
            const uint64_t last = counts ? dirty_of(args, space, i) : (uint64_t)space->capacity;
            const uint64_t live = counts ? psti_tensor_rows(tensor, (uint64_t)counts[i]) : 0;
            const uint64_t dirty = psti_tensor_rows(tensor, last);
            if (dirty <= live)
                continue;
            psti_rows rows = rows_at(tensor, psti_row_address(tensor, s, live), dirty - live, 0);
            psti_zero_rows(&rows, (dirty - live) * tensor->row_bytes);
        }
    }
}

/* counts: of the ticket; NULL: everything was cleared. */
static void update_dirty(const psti_move_args *args, const int64_t *counts)
{
    for (uint32_t i = 0; args->dirty && i < args->num_counts; i++) {
        const uint64_t live = counts ? (uint64_t)counts[i] : 0;
        const bool cleared = !counts || args->flags & PSTI_MOVE_ZERO;
        args->dirty[i] = cleared ? live : psti_max_u64(args->dirty[i], live);
    }
}

/* Of a restore that copies nothing. */
static void clear_all(const psti_move_args *args, const fused_rows *fused)
{
    if (fused)
        fused->clear(fused);
    if (!(args->flags & PSTI_MOVE_ZERO_FAILED))
        return;
    clear_rows(args, NULL);
    update_dirty(args, NULL);
}

/* Gives the ticket's pages back; the caller may write pool state. */
static void commit_free(const psti_move_args *args, uint32_t epoch)
{
    const psti_pool_view *pool = &args->pool;
    psti_ticket_record *ticket = args->ticket;
    const uint32_t *table = psti_ticket_table(ticket, args->count_room);
    if (ticket->state == PSTI_TICKET_LIVE) {
        uint64_t tail[PSTI_TIERS];
        for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
            tail[tier] = psti_load_relaxed_u64(&pool->state->tail[tier]);
        const uint64_t pages = psti_min_u64(ticket->num_pages, args->table_pages);
        for (uint64_t page = 0; page < pages; page++) {
            const uint32_t id = table[page];
            const uint64_t mine = psti_owner_word(args->ticket_index, epoch, page);
            if (!psti_id_in_range(pool, id) ||
                psti_cas_relaxed_u64(psti_owner_of(pool, id), mine, 0) != mine) {
                psti_record_fault(pool, PST_FAULT_DAMAGED, args->ticket_index, id);
                continue;
            }
            const uint32_t tier = psti_id_tier(id);
            pool->ring[tier][tail[tier]++ & pool->ring_mask[tier]] = id;
        }
        for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
            psti_store_relaxed_u64(&pool->state->tail[tier], tail[tier]);
    }
    psti_forget_failure(pool->state, ticket);
    ticket->state = PSTI_TICKET_EMPTY;
}

static void copy_restore(const psti_move_args *args, uint32_t epoch, const fused_rows *fused)
{
    const int64_t *counts = psti_ticket_counts(args->ticket);
    walk stream = {.args = args,
                   .counts = counts,
                   .page_bytes = (uint64_t)1 << args->pool.page_shift,
                   .piece = restore_piece,
                   .find = restore_page,
                   .context = &epoch,
                   .fused = fused};
    walk_stream(&stream);
    if (args->flags & PSTI_MOVE_ZERO)
        clear_rows(args, counts);
    update_dirty(args, counts);
}

static void scrub_ticket(const psti_move_args *args, uint32_t epoch)
{
    const psti_pool_view *pool = &args->pool;
    const uint32_t *table = psti_ticket_table(args->ticket, args->count_room);
    const bool holds = args->ticket->state == PSTI_TICKET_LIVE;
    const uint64_t pages = psti_min_u64(args->ticket->num_pages, args->table_pages);
    for (uint64_t page = 0; holds && page < pages; page++)
        if (psti_id_in_range(pool, table[page]) &&
            psti_load_relaxed_u64(psti_owner_of(pool, table[page])) ==
                psti_owner_word(args->ticket_index, epoch, page))
            scrub_page(pool, table[page]);
}

void psti_host_restore_with(const psti_move_args *args, const fused_rows *fused)
{
    const bool concurrent = args->pool.concurrent;
    const snapshot now = read_state(args);
    if (refused(args, &now) || (concurrent && !claim(args, &now))) {
        clear_all(args, fused);
        return;
    }
    const pst_fault verdict = restore_verdict(args, now.epoch);
    const bool is_quiet = verdict == PST_FAULT_EMPTY && args->flags & PSTI_MOVE_QUIET;
    if (verdict != PST_FAULT_NONE && !is_quiet)
        psti_record_fault(&args->pool, verdict, args->ticket_index, 0);
    if (verdict != PST_FAULT_NONE)
        clear_all(args, fused);
    else if (!(args->flags & PSTI_MOVE_RELEASE))
        copy_restore(args, now.epoch, fused);
    const bool frees = (verdict == PST_FAULT_NONE || verdict == PST_FAULT_FAILED) &&
                       !(args->flags & PSTI_MOVE_KEEP);
    if (frees && verdict == PST_FAULT_NONE && args->pool.scrubs)
        scrub_ticket(args, now.epoch);
    if (!concurrent && !claim(args, &now))
        return;
    if (frees) {
        if (concurrent)
            psti_lock(args->pool.state);
        commit_free(args, now.epoch);
        if (concurrent)
            psti_unlock(args->pool.state);
    }
    publish(args, &now);
}

void psti_host_restore(const void *args)
{
    psti_host_restore_with(args, NULL);
}
