/* Stash and restore on the CPU: one "block" that does everything, by memcpy. */
#include "kernels/core/stream.h"
#include "kernels/host/copy.h"
#include "kernels/host/protocol.h"
#include "kernels/host/runners.h"

/* Calls piece() for every run of bytes that is contiguous in its page and in its segment. */
typedef struct walk {
    const psti_move_args *args;
    const int64_t *counts;
    uint64_t page_bytes;
    uint64_t cursor; /* in the byte stream */
    void (*piece)(struct walk *self, unsigned char *rows, uint64_t page, uint64_t offset,
                  uint64_t bytes);
    void *context;
} walk;

static void walk_segment(walk *self, unsigned char *rows, uint64_t bytes)
{
    while (bytes > 0) {
        const uint64_t offset = self->cursor & (self->page_bytes - 1);
        const uint64_t run = psti_min_u64(bytes, self->page_bytes - offset);
        self->piece(self, rows, self->cursor / self->page_bytes, offset, run);
        rows += run;
        bytes -= run;
        self->cursor += run;
    }
    self->cursor = psti_round_vector(self->cursor);
}

static void walk_stream(walk *self)
{
    const psti_move_args *args = self->args;
    for (uint32_t t = 0; t < args->num_tensors; t++) {
        const psti_tensor *tensor = &args->tensors[t];
        const psti_space *space = &args->spaces[tensor->space];
        self->cursor = psti_tiles_of(self->cursor) << PSTI_TILE_SHIFT;
        for (uint32_t s = 0; s < space->num_segments; s++) {
            const uint64_t rows = (uint64_t)self->counts[space->first_count + s];
            walk_segment(self, psti_segment_base(tensor, s), psti_tensor_bytes(tensor, rows));
        }
    }
}

static uint64_t pages_wanted(const psti_move_args *args, const int64_t *counts)
{
    uint64_t tiles = 0;
    for (uint32_t t = 0; t < args->num_tensors; t++) {
        const psti_tensor *tensor = &args->tensors[t];
        const psti_space *space = &args->spaces[tensor->space];
        uint64_t bytes = 0;
        for (uint32_t s = 0; s < space->num_segments; s++) {
            const uint64_t rows = (uint64_t)counts[space->first_count + s];
            bytes += psti_round_vector(psti_tensor_bytes(tensor, rows));
        }
        tiles += psti_tiles_of(bytes);
    }
    return psti_pages_of_tiles(tiles, args->pool.page_shift);
}

/* ---- stash ---- */

/* Copies the caller's counts to `counts`; false and the culprit if one is out of bounds. */
static bool read_counts(const psti_move_args *args, int64_t *counts, int64_t *culprit)
{
    for (uint32_t i = 0; i < args->num_spaces; i++) {
        const psti_space *space = &args->spaces[i];
        for (uint32_t s = 0; s < space->num_segments; s++) {
            const int64_t count = psti_user_count(space, s);
            if (!psti_count_fits(count, space->capacity)) {
                *culprit = count;
                return false;
            }
            counts[space->first_count + s] = count;
        }
    }
    return true;
}

typedef struct stash_plan {
    snapshot now;
    pst_fault fault; /* NONE: the pages of `take` can be had */
    uint64_t fault_value;
    uint64_t pages; /* wanted */
    psti_decision decision;
} stash_plan;

static stash_plan plan_stash(const psti_move_args *args, const snapshot *now)
{
    stash_plan plan = {.now = *now, .fault = PST_FAULT_NONE};
    int64_t *counts = psti_ticket_counts(args->ticket);
    int64_t culprit = 0;
    if (psti_ticket_now(args->ticket, now->epoch) == PSTI_TICKET_LIVE) {
        plan.fault = PST_FAULT_LIVE;
        return plan;
    }
    if (!read_counts(args, counts, &culprit)) {
        plan.fault = PST_FAULT_COUNT;
        plan.fault_value = (uint64_t)culprit;
        return plan;
    }
    plan.pages = pages_wanted(args, counts);
    plan.decision = psti_decide(plan.pages, now->tail[0] - now->head[0],
                                now->tail[1] - now->head[1], args->host_num, args->host_den);
    if (!plan.decision.fits || plan.pages > args->table_pages) {
        plan.fault = PST_FAULT_EXHAUSTED;
        plan.fault_value = plan.pages;
    }
    return plan;
}

static void commit_pages(const psti_move_args *args, const stash_plan *plan)
{
    const psti_pool_view *pool = &args->pool;
    uint32_t *table = psti_ticket_table(args->ticket, args->num_counts);
    for (uint64_t page = 0; page < plan->pages; page++) {
        const uint64_t mine = psti_owner_word(args->ticket_index, plan->now.epoch, page);
        uint32_t id = psti_ring_id(pool, plan->now.head, &plan->decision, page);
        if (!psti_id_in_range(pool, id) ||
            psti_cas_relaxed_u64(psti_owner_of(pool, id), 0, mine) != 0) {
            psti_record_fault(pool, PST_FAULT_DAMAGED, args->ticket_index, id);
            id = PSTI_ID_NONE;
        }
        table[page] = id;
    }
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        psti_store_relaxed_u64(&pool->state->head[tier],
                               plan->now.head[tier] + plan->decision.take[tier]);
    psti_count_pages(pool->status, &plan->decision);
}

/* Takes what the plan says and writes the record; the caller may write pool state. */
static void commit_stash(const psti_move_args *args, const stash_plan *plan)
{
    psti_ticket_record *ticket = args->ticket;
    psti_pool_state *state = args->pool.state;
    if (plan->fault != PST_FAULT_NONE)
        psti_record_fault(&args->pool, plan->fault, args->ticket_index, plan->fault_value);
    if (plan->fault == PST_FAULT_LIVE)
        return;
    psti_forget_failure(state, ticket);
    ticket->epoch = plan->now.epoch;
    ticket->num_pages = plan->pages;
    ticket->num_host = plan->fault == PST_FAULT_NONE ? plan->decision.take[PSTI_TIER_HOST] : 0;
    if (plan->fault == PST_FAULT_NONE) {
        ticket->state = PSTI_TICKET_LIVE;
        commit_pages(args, plan);
    } else {
        ticket->state = PSTI_TICKET_FAILED;
        state->failed_wanted += plan->pages;
    }
    psti_raise_marks(state);
}

static void stash_piece(walk *self, unsigned char *rows, uint64_t page, uint64_t offset,
                        uint64_t bytes)
{
    const psti_move_args *args = self->args;
    const psti_pool_view *pool = &args->pool;
    const stash_plan *plan = self->context;
    uint32_t id;
    if (pool->concurrent)
        id = psti_ticket_table(args->ticket, args->num_counts)[page];
    else
        id = psti_ring_id(pool, plan->now.head, &plan->decision, page);
    if (!psti_id_in_range(pool, id))
        return;
    /* an ordered pool takes ownership after the copy: a page that has an owner is not ours */
    if (!pool->concurrent && psti_load_relaxed_u64(psti_owner_of(pool, id)) != 0)
        return;
    psti_copy(psti_page_address(pool, id) + offset, rows, bytes, plan->pages << pool->page_shift);
}

static void copy_stash(const psti_move_args *args, stash_plan *plan)
{
    walk stream = {.args = args,
                   .counts = psti_ticket_counts(args->ticket),
                   .page_bytes = (uint64_t)1 << args->pool.page_shift,
                   .piece = stash_piece,
                   .context = plan};
    if (plan->fault == PST_FAULT_NONE)
        walk_stream(&stream);
}

void psti_host_stash(const void *opaque)
{
    const psti_move_args *args = opaque;
    const snapshot now = read_state(args);
    if (refused(args, &now))
        return;
    if (args->pool.concurrent) {
        if (!claim(args, &now))
            return;
        psti_lock(args->pool.state);
        const snapshot locked = read_state(args);
        stash_plan plan = plan_stash(args, &locked);
        commit_stash(args, &plan);
        psti_unlock(args->pool.state);
        copy_stash(args, &plan);
    } else {
        stash_plan plan = plan_stash(args, &now);
        copy_stash(args, &plan);
        if (!claim(args, &now))
            return;
        commit_stash(args, &plan);
    }
    publish(args, &now);
}

/* ---- restore and release ---- */

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

typedef struct restore_context {
    uint32_t epoch;
    uint64_t bad_page; /* page last recorded as damaged, so that it is recorded once */
} restore_context;

static void restore_piece(walk *self, unsigned char *rows, uint64_t page, uint64_t offset,
                          uint64_t bytes)
{
    const psti_pool_view *pool = &self->args->pool;
    restore_context *context = self->context;
    const uint32_t id = psti_ticket_table(self->args->ticket, self->args->num_counts)[page];
    if (psti_id_in_range(pool, id) &&
        psti_load_relaxed_u64(psti_owner_of(pool, id)) ==
            psti_owner_word(self->args->ticket_index, context->epoch, page)) {
        psti_copy(rows, psti_page_address(pool, id) + offset, bytes,
                  self->args->ticket->num_pages << pool->page_shift);
    } else if (context->bad_page != page) {
        psti_record_fault(pool, PST_FAULT_DAMAGED, self->args->ticket_index, id);
        context->bad_page = page;
    }
}

static void zero_tails(const psti_move_args *args, const int64_t *counts)
{
    for (uint32_t t = 0; t < args->num_tensors; t++) {
        const psti_tensor *tensor = &args->tensors[t];
        const psti_space *space = &args->spaces[tensor->space];
        for (uint32_t s = 0; s < space->num_segments; s++) {
            const uint32_t i = space->first_count + s;
            const uint64_t live = psti_tensor_bytes(tensor, (uint64_t)counts[i]);
            const uint64_t dirty =
                psti_tensor_bytes(tensor, psti_dirty_rows(args->dirty[i], space->capacity));
            if (dirty > live)
                memset(psti_segment_base(tensor, s) + live, 0, dirty - live);
        }
    }
}

static void update_dirty(const psti_move_args *args, const int64_t *counts)
{
    for (uint32_t i = 0; i < args->num_counts; i++) {
        const uint64_t live = (uint64_t)counts[i];
        args->dirty[i] = args->flags & PSTI_MOVE_ZERO ? live : psti_max_u64(args->dirty[i], live);
    }
}

/* Gives the ticket's pages back; the caller may write pool state. */
static void commit_free(const psti_move_args *args, uint32_t epoch)
{
    const psti_pool_view *pool = &args->pool;
    psti_ticket_record *ticket = args->ticket;
    const uint32_t *table = psti_ticket_table(ticket, args->num_counts);
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

static void copy_restore(const psti_move_args *args, uint32_t epoch)
{
    const int64_t *counts = psti_ticket_counts(args->ticket);
    restore_context context = {.epoch = epoch, .bad_page = UINT64_MAX};
    walk stream = {.args = args,
                   .counts = counts,
                   .page_bytes = (uint64_t)1 << args->pool.page_shift,
                   .piece = restore_piece,
                   .context = &context};
    walk_stream(&stream);
    if (args->flags & PSTI_MOVE_ZERO)
        zero_tails(args, counts);
    update_dirty(args, counts);
}

static void scrub_ticket(const psti_move_args *args, uint32_t epoch)
{
    const psti_pool_view *pool = &args->pool;
    const uint32_t *table = psti_ticket_table(args->ticket, args->num_counts);
    const bool holds = args->ticket->state == PSTI_TICKET_LIVE;
    const uint64_t pages = psti_min_u64(args->ticket->num_pages, args->table_pages);
    for (uint64_t page = 0; holds && page < pages; page++)
        if (psti_id_in_range(pool, table[page]) &&
            psti_load_relaxed_u64(psti_owner_of(pool, table[page])) ==
                psti_owner_word(args->ticket_index, epoch, page))
            scrub_page(pool, table[page]);
}

void psti_host_restore(const void *opaque)
{
    const psti_move_args *args = opaque;
    const bool concurrent = args->pool.concurrent;
    const snapshot now = read_state(args);
    if (refused(args, &now) || (concurrent && !claim(args, &now)))
        return;
    const pst_fault verdict = restore_verdict(args, now.epoch);
    if (verdict != PST_FAULT_NONE)
        psti_record_fault(&args->pool, verdict, args->ticket_index, 0);
    else if (!(args->flags & PSTI_MOVE_RELEASE))
        copy_restore(args, now.epoch);
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
