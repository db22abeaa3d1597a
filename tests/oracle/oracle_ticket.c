/* What the oracle does with tickets. */
#include "tests/oracle/oracle_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- stash ---- */

static void visit_nothing(void *context, uint32_t tensor, uint64_t offset, uint64_t position)
{
    (void)context;
    (void)tensor;
    (void)offset;
    (void)position;
}

static uint64_t pages_of(const oracle_pool *pool, const oracle_group *group, const int64_t *counts)
{
    const uint64_t end = oracle_each_byte(group, counts, visit_nothing, NULL);
    return (end + pool->page_bytes - 1) / pool->page_bytes;
}

typedef struct copy {
    oracle_pool *pool;
    oracle_ticket *ticket;
    unsigned char *image;
} copy;

static void copy_in(void *context, uint32_t tensor, uint64_t offset, uint64_t position)
{
    const copy *self = context;
    (void)tensor;
    self->ticket->bytes[position] = self->image[offset];
    self->ticket->is_live[position] = true;
}

static void hold_pages(oracle_pool *pool, oracle_ticket *ticket, const oracle_group *source,
                       const int64_t *counts, uint64_t pages)
{
    const uint32_t num_counts = oracle_num_counts(source);
    ticket->state = ORACLE_LIVE;
    ticket->form = *source;
    ticket->counts = oracle_calloc(num_counts, sizeof(int64_t));
    memcpy(ticket->counts, counts, num_counts * sizeof(int64_t));
    ticket->ids = oracle_calloc(pages, sizeof(uint32_t));
    ticket->table = oracle_calloc(pages, sizeof(uint32_t));
    ticket->bytes = oracle_calloc(pages, (size_t)pool->page_bytes);
    ticket->is_live = oracle_calloc(pages, (size_t)pool->page_bytes);
    for (uint64_t page = 0; page < pages; page++) {
        const uint32_t wanted =
            ticket->host_num && (page + 1) * ticket->host_den <= pages * ticket->host_num;
        const uint32_t tier = pool->num_free[wanted] ? wanted : !wanted;
        ticket->ids[page] = oracle_take_first(pool, tier);
        ticket->table[page] = ticket->ids[page];
        pool->status.offloaded_pages += wanted && tier;
        pool->status.displaced_pages += wanted && !tier;
        pool->status.spilled_pages += !wanted && tier;
    }
    copy context = {.pool = pool, .ticket = ticket, .image = source->image};
    oracle_each_byte(source, counts, copy_in, &context);
}

/* A group whose counts are right, into a ticket that is not live. */
static void stash_counts(oracle_pool *pool, uint32_t index, const oracle_group *source,
                         const int64_t *counts)
{
    oracle_ticket *ticket = &pool->tickets[index];
    const uint64_t pages = pages_of(pool, source, counts);
    ticket->state = ORACLE_FAILED;
    ticket->num_pages = pages;
    if (pool->fails_fast && !pool->status.step_valid)
        oracle_fault(pool, PST_FAULT_LOST, index, 0);
    else if (pages > pool->num_free[0] + pool->num_free[1])
        oracle_fault(pool, PST_FAULT_EXHAUSTED, index, pages);
    else
        hold_pages(pool, ticket, source, counts, pages);
    oracle_note_marks(pool);
}

/* The pool refuses: a fault for each operation, but for a stale graph there was one already. */
static bool is_refused(oracle_pool *pool, uint32_t index)
{
    if (pool->refuses)
        oracle_fault(pool, PST_FAULT_ORDER, index, 0);
    return pool->refuses || pool->is_stale;
}

void oracle_stash(oracle_pool *pool, uint32_t index, const oracle_group *source,
                  const int64_t *inputs)
{
    oracle_ticket *ticket = &pool->tickets[index];
    int64_t misfit = 0;
    if (is_refused(pool, index))
        return;
    if (ticket->state == ORACLE_LIVE) {
        oracle_fault(pool, PST_FAULT_LIVE, index, 0);
        return;
    }
    oracle_empty(ticket);
    int64_t *counts = oracle_calloc(oracle_num_counts(source), sizeof(int64_t));
    if (oracle_read_counts(source, inputs, counts, &misfit)) {
        stash_counts(pool, index, source, counts);
    } else {
        ticket->state = ORACLE_FAILED;
        oracle_fault(pool, PST_FAULT_COUNT, index, (uint64_t)misfit);
    }
    free(counts);
}

/* ---- restore and release ---- */

/* Whether a place of the table still names the page that was given out there. */
static bool is_whole(const oracle_ticket *ticket, uint64_t page)
{
    return ticket->table[page] == ticket->ids[page];
}

static void copy_out(void *context, uint32_t tensor, uint64_t offset, uint64_t position)
{
    const copy *self = context;
    (void)tensor;
    if (offset != ORACLE_NOWHERE && is_whole(self->ticket, position / self->pool->page_bytes))
        self->image[offset] = self->ticket->bytes[position];
}

static void copy_back(oracle_pool *pool, uint32_t index, oracle_group *destination)
{
    oracle_ticket *ticket = &pool->tickets[index];
    for (uint64_t page = 0; page < ticket->num_pages; page++)
        if (!is_whole(ticket, page))
            oracle_fault(pool, PST_FAULT_DAMAGED, index, ticket->table[page]);
    copy context = {.pool = pool, .ticket = ticket, .image = destination->image};
    oracle_each_byte(destination, ticket->counts, copy_out, &context);
}

/* Byte by byte: rows from `from` to `to`, but never beyond the capacity. */
static void clear_rows(oracle_group *group, uint32_t t, uint32_t segment, uint64_t from,
                       uint64_t to)
{
    const pst_tensor *tensor = &group->tensors[t];
    const uint64_t capacity = (uint64_t)oracle_capacity(group, tensor->space);
    const uint64_t end = oracle_rows(tensor, to < capacity ? to : capacity);
    const uint64_t start = oracle_byte_at(group, t, segment, 0);
    const uint64_t stride = oracle_row_stride(group, t);
    if (group->at[t] == ORACLE_NOWHERE)
        return;
    for (uint64_t row = oracle_rows(tensor, from); row < end; row++)
        for (uint64_t byte = 0; byte < tensor->row_bytes; byte++)
            group->image[start + row * stride + byte] = 0;
}

static bool names_dirty(const oracle_group *group, pst_restore_tail tail)
{
    return group->names_dirty || tail == PST_TAIL_ZERO;
}

static void treat_tails(oracle_group *group, const int64_t *counts, pst_restore_tail tail)
{
    for (uint32_t t = 0; tail != PST_TAIL_UNTOUCHED && t < group->num_tensors; t++) {
        const uint32_t space = group->tensors[t].space;
        const uint32_t first = oracle_first_count(group, space);
        for (uint32_t s = 0; s < oracle_num_segments(&group->spaces[space]); s++)
            clear_rows(group, t, s, (uint64_t)counts[first + s],
                       tail == PST_TAIL_ZERO ? group->dirty[first + s] : ORACLE_ALL_DIRTY);
    }
    for (uint32_t i = 0; names_dirty(group, tail) && i < oracle_num_counts(group); i++) {
        const uint64_t live = (uint64_t)counts[i];
        if (tail != PST_TAIL_UNTOUCHED || live > group->dirty[i])
            group->dirty[i] = live;
    }
}

void oracle_clear(oracle_group *group, pst_restore_tail tail)
{
    for (uint32_t t = 0; t < group->num_tensors; t++)
        for (uint32_t s = 0; s < oracle_num_segments(&group->spaces[group->tensors[t].space]); s++)
            clear_rows(group, t, s, 0, ORACLE_ALL_DIRTY);
    for (uint32_t i = 0; names_dirty(group, tail) && i < oracle_num_counts(group); i++)
        group->dirty[i] = 0;
}

/* Whether the rows of a ticket are within the capacities. */
static bool has_room(const oracle_group *group, const int64_t *counts)
{
    for (uint32_t i = 0; i < group->num_spaces; i++)
        for (uint32_t s = 0; s < oracle_num_segments(&group->spaces[i]); s++, counts++)
            if (*counts < 0 || *counts > oracle_capacity(group, i))
                return false;
    return true;
}

static void free_pages(oracle_pool *pool, uint32_t index)
{
    oracle_ticket *ticket = &pool->tickets[index];
    uint32_t *ids = oracle_calloc(ticket->num_pages, sizeof(uint32_t));
    uint64_t num_ids = 0;
    for (uint64_t page = 0; ticket->state == ORACLE_LIVE && page < ticket->num_pages; page++) {
        if (is_whole(ticket, page))
            ids[num_ids++] = ticket->table[page];
        else
            oracle_fault(pool, PST_FAULT_DAMAGED, index, ticket->table[page]);
    }
    for (uint64_t i = 0; i < num_ids; i++) /* after the faults, which tell what was free before */
        oracle_put_last(pool, ids[i]);
    free(ids);
    oracle_empty(ticket);
}

static pst_fault verdict(const oracle_ticket *ticket, const oracle_group *destination)
{
    if (ticket->state == ORACLE_EMPTY)
        return PST_FAULT_EMPTY;
    if (ticket->state == ORACLE_FAILED)
        return PST_FAULT_FAILED;
    if (!oracle_same_form(&ticket->form, destination))
        return PST_FAULT_FORM;
    return has_room(destination, ticket->counts) ? PST_FAULT_NONE : PST_FAULT_DESTINATION;
}

void oracle_restore_as(oracle_pool *pool, uint32_t index, oracle_group *destination,
                       pst_restore_pages pages, pst_restore_tail tail, pst_restore_failed failed)
{
    oracle_ticket *ticket = &pool->tickets[index];
    if (is_refused(pool, index)) {
        if (failed == PST_FAILED_ZERO)
            oracle_clear(destination, tail);
        return;
    }
    const pst_fault fault = verdict(ticket, destination);
    if (fault == PST_FAULT_NONE) {
        copy_back(pool, index, destination);
        treat_tails(destination, ticket->counts, tail);
    } else {
        oracle_fault(pool, fault, index, 0);
        if (failed == PST_FAILED_ZERO)
            oracle_clear(destination, tail);
    }
    if (pages == PST_RESTORE_CONSUME && (fault == PST_FAULT_NONE || fault == PST_FAULT_FAILED))
        free_pages(pool, index);
}

void oracle_restore(oracle_pool *pool, uint32_t index, oracle_group *destination,
                    pst_restore_pages pages, pst_restore_tail tail)
{
    oracle_restore_as(pool, index, destination, pages, tail, PST_FAILED_UNTOUCHED);
}

void oracle_release(oracle_pool *pool, uint32_t index)
{
    if (is_refused(pool, index))
        return;
    if (pool->tickets[index].state == ORACLE_EMPTY)
        oracle_fault(pool, PST_FAULT_EMPTY, index, 0);
    else
        free_pages(pool, index);
}

void oracle_give(oracle_pool *pool, uint32_t index)
{
    if (pool->tickets[index].state != ORACLE_EMPTY && pool->refuses)
        oracle_fault(pool, PST_FAULT_ORDER, index, 0);
    else if (pool->tickets[index].state != ORACLE_EMPTY)
        free_pages(pool, index);
    if (!pool->refuses)
        pool->tickets[index].host_num = 0;
}

/* A page after the other; those that were left are free at the end. */
static void move_pages(oracle_pool *pool, oracle_ticket *ticket, uint32_t to, uint64_t max_pages)
{
    uint64_t *moved = to ? &pool->status.demoted_pages : &pool->status.promoted_pages;
    uint32_t *left = oracle_calloc(ticket->num_pages, sizeof(uint32_t));
    uint64_t num_left = 0, seen = 0;
    for (uint64_t page = 0; page < ticket->num_pages; page++) {
        if (oracle_tier_of(ticket->table[page]) == to || !is_whole(ticket, page))
            continue;
        if (max_pages && seen++ >= max_pages)
            break;
        if (pool->num_free[to] == 0) {
            pool->status.stranded_pages++;
            continue;
        }
        left[num_left++] = ticket->ids[page];
        ticket->ids[page] = oracle_take_first(pool, to);
        ticket->table[page] = ticket->ids[page];
        ++*moved;
    }
    oracle_note_marks(pool);
    for (uint64_t i = 0; i < num_left; i++)
        oracle_put_last(pool, left[i]);
    free(left);
}

void oracle_migrate(oracle_pool *pool, uint32_t index, bool promotes, uint64_t max_pages)
{
    oracle_ticket *ticket = &pool->tickets[index];
    const uint32_t to = promotes ? 0 : 1;
    uint64_t in_place = 0;
    if (is_refused(pool, index))
        return;
    if (ticket->state != ORACLE_LIVE) {
        oracle_fault(pool, ticket->state == ORACLE_EMPTY ? PST_FAULT_EMPTY : PST_FAULT_FAILED,
                     index, 0);
        return;
    }
    for (uint64_t page = 0; page < ticket->num_pages; page++)
        in_place += oracle_tier_of(ticket->table[page]) == to || !is_whole(ticket, page);
    if (max_pages == 0 && in_place == ticket->num_pages && ticket->num_pages > 0)
        oracle_fault(pool, PST_FAULT_MOVED, index, 0);
    else
        move_pages(pool, ticket, to, max_pages);
}

void oracle_forget(oracle_pool *pool, uint32_t index)
{
    oracle_empty(&pool->tickets[index]);
    pool->tickets[index].host_num = 0;
}
