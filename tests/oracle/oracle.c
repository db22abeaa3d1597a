/* The oracle's pool and tickets. */
#include "tests/oracle/oracle.h"

#include <stdlib.h>
#include <string.h>

uint32_t oracle_id(uint32_t tier, uint64_t page)
{
    return (uint32_t)page + (tier ? 0x80000000u : 0);
}

static uint32_t tier_of(uint32_t id)
{
    return id >= 0x80000000u;
}

/* ---- the list of free ids ---- */

static uint32_t take_first(oracle_pool *pool, uint32_t tier)
{
    const uint32_t id = pool->free_ids[tier][0];
    pool->num_free[tier]--;
    memmove(pool->free_ids[tier], pool->free_ids[tier] + 1,
            pool->num_free[tier] * sizeof(uint32_t));
    return id;
}

static void put_last(oracle_pool *pool, uint32_t id)
{
    const uint32_t tier = tier_of(id);
    if (pool->num_free[tier] == pool->num_pages[tier])
        abort();
    pool->free_ids[tier][pool->num_free[tier]++] = id;
}

static void forget_ticket(oracle_ticket *ticket)
{
    free(ticket->counts);
    free(ticket->ids);
    free(ticket->table);
    free(ticket->bytes);
    free(ticket->is_live);
    *ticket = (oracle_ticket){
        .state = ORACLE_EMPTY, .host_num = ticket->host_num, .host_den = ticket->host_den};
}

static void fill_free_lists(oracle_pool *pool)
{
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++)
        for (pool->num_free[tier] = 0; pool->num_free[tier] < pool->num_pages[tier];)
            put_last(pool, oracle_id(tier, pool->num_free[tier]));
}

oracle_pool *oracle_pool_create(uint64_t page_bytes, uint64_t num_pages, uint64_t num_host_pages,
                                uint32_t max_tickets)
{
    oracle_pool *pool = oracle_calloc(1, sizeof(*pool));
    pool->page_bytes = page_bytes;
    pool->num_pages[0] = num_pages;
    pool->num_pages[1] = num_host_pages;
    pool->num_tickets = max_tickets;
    pool->tickets = oracle_calloc(max_tickets, sizeof(*pool->tickets));
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++)
        pool->free_ids[tier] = oracle_calloc(pool->num_pages[tier], sizeof(uint32_t));
    oracle_reset(pool, PST_RESET_ALL);
    return pool;
}

void oracle_pool_destroy(oracle_pool *pool)
{
    if (!pool)
        return;
    for (uint32_t i = 0; i < pool->num_tickets; i++)
        forget_ticket(&pool->tickets[i]);
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++)
        free(pool->free_ids[tier]);
    free(pool->tickets);
    free(pool->demands);
    free(pool);
}

/* ---- status ---- */

void oracle_fault(oracle_pool *pool, pst_fault fault, uint32_t ticket, uint64_t wanted)
{
    pst_pool_status *status = &pool->status;
    status->flags |= 1u << fault;
    status->step_valid = 0;
    if (status->num_faults++ != 0)
        return;
    status->fault_state = 2;
    status->fault = fault;
    status->fault_ticket = ticket;
    status->fault_wanted = wanted;
    status->fault_free[0] = pool->num_free[0];
    status->fault_free[1] = pool->num_free[1];
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t in_use(const oracle_pool *pool, uint32_t tier)
{
    return pool->num_pages[tier] - pool->num_free[tier];
}

static void note_marks(oracle_pool *pool)
{
    uint64_t demand = in_use(pool, 0) + in_use(pool, 1);
    for (uint32_t i = 0; i < pool->num_tickets; i++)
        if (pool->tickets[i].state == ORACLE_FAILED)
            demand += pool->tickets[i].num_pages;
    pool->step_demand = larger(pool->step_demand, demand);
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++)
        pool->step_high[tier] = larger(pool->step_high[tier], in_use(pool, tier));
}

void oracle_step(oracle_pool *pool, pst_pool_status *published)
{
    static const uint64_t per_mille[] = {500, 900, 990, 999};
    pst_pool_status *status = &pool->status;
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++) {
        status->high_water[tier] = larger(status->high_water[tier], pool->step_high[tier]);
        status->in_use[tier] = in_use(pool, tier);
        pool->step_high[tier] = 0;
    }
    status->step_demand = pool->step_demand;
    status->demand_high_water = larger(status->demand_high_water, pool->step_demand);
    oracle_demand_add(pool, pool->step_demand);
    for (int i = 0; i < 4; i++)
        status->demand_quantiles[i] = oracle_demand_quantile(pool, per_mille[i]);
    status->steps++;
    status->epoch = pool->epoch;
    pool->step_demand = 0;
    note_marks(pool);
    *published = *status;
    status->step_valid = 1;
}

static void reset_faults(pst_pool_status *status)
{
    status->struct_bytes = 256;
    status->version = (uint32_t)pst_version();
    status->flags = 0;
    status->step_valid = 1;
    status->fault_state = 0;
    status->fault = PST_FAULT_NONE;
    status->fault_ticket = UINT32_MAX;
    status->num_faults = 0;
    status->fault_wanted = 0;
    status->fault_free[0] = 0;
    status->fault_free[1] = 0;
}

static void reset_statistics(oracle_pool *pool)
{
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++) {
        pool->status.high_water[tier] = 0;
        pool->step_high[tier] = 0;
    }
    pool->status.demand_high_water = 0;
    pool->status.step_demand = 0;
    pool->status.spilled_pages = 0;
    pool->status.offloaded_pages = 0;
    pool->status.displaced_pages = 0;
    pool->status.demoted_pages = 0;
    pool->status.promoted_pages = 0;
    pool->status.stranded_pages = 0;
    memset(pool->status.demand_quantiles, 0, sizeof(pool->status.demand_quantiles));
    pool->num_demands = 0;
    pool->step_demand = 0;
    note_marks(pool);
}

void oracle_reset(oracle_pool *pool, uint32_t what)
{
    if (what & PST_RESET_PAGES) {
        for (uint32_t i = 0; i < pool->num_tickets; i++)
            forget_ticket(&pool->tickets[i]);
        fill_free_lists(pool);
        pool->refuses = false;
        pool->epoch++;
    }
    if (what & PST_RESET_FAULTS)
        reset_faults(&pool->status);
    if (what & PST_RESET_STATISTICS)
        reset_statistics(pool);
}

void oracle_resize(oracle_pool *pool, uint64_t num_pages, uint64_t num_host_pages)
{
    const uint64_t wanted[ORACLE_TIERS] = {num_pages, num_host_pages};
    const bool fewer = num_pages < pool->num_pages[0] || num_host_pages < pool->num_pages[1];
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++) {
        const uint64_t first = pool->num_pages[tier];
        uint32_t *ids = oracle_calloc(wanted[tier], sizeof(uint32_t));
        for (uint64_t i = 0; !fewer && i < pool->num_free[tier]; i++)
            ids[i] = pool->free_ids[tier][i];
        free(pool->free_ids[tier]);
        pool->free_ids[tier] = ids;
        pool->num_pages[tier] = wanted[tier];
        for (uint64_t page = first; !fewer && page < wanted[tier]; page++)
            put_last(pool, oracle_id(tier, page));
    }
    if (fewer)
        oracle_reset(pool, PST_RESET_PAGES);
}

uint64_t oracle_lost_pages(const oracle_pool *pool)
{
    uint64_t lost = in_use(pool, 0) + in_use(pool, 1);
    for (uint32_t i = 0; i < pool->num_tickets; i++)
        if (pool->tickets[i].state == ORACLE_LIVE)
            lost -= pool->tickets[i].num_pages;
    return lost;
}

void oracle_check(oracle_pool *pool)
{
    const uint64_t lost = oracle_lost_pages(pool);
    pool->status.checks++;
    pool->status.check_errors = (uint32_t)lost;
    if (lost)
        oracle_fault(pool, PST_FAULT_CHECK, UINT32_MAX, lost);
}

/* ---- stash ---- */

static bool find_misfit(const oracle_group *group, const int64_t *counts, int64_t *misfit)
{
    for (uint32_t i = 0; i < group->num_spaces; i++)
        for (uint32_t s = 0; s < oracle_num_segments(&group->spaces[i]); s++, counts++)
            if (*counts < 0 || *counts > group->spaces[i].capacity) {
                *misfit = *counts;
                return true;
            }
    return false;
}

static void visit_nothing(void *context, uint64_t offset, uint64_t position)
{
    (void)context;
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

static void copy_in(void *context, uint64_t offset, uint64_t position)
{
    const copy *self = context;
    self->ticket->bytes[position] = self->image[offset];
    self->ticket->is_live[position] = true;
}

static void hold_pages(oracle_pool *pool, oracle_ticket *ticket, const oracle_group *source,
                       const int64_t *counts, uint64_t pages)
{
    const uint32_t num_counts = oracle_num_counts(source);
    ticket->state = ORACLE_LIVE;
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
        ticket->ids[page] = take_first(pool, tier);
        ticket->table[page] = ticket->ids[page];
        pool->status.offloaded_pages += wanted && tier;
        pool->status.displaced_pages += wanted && !tier;
        pool->status.spilled_pages += !wanted && tier;
    }
    copy context = {.pool = pool, .ticket = ticket, .image = source->image};
    oracle_each_byte(source, counts, copy_in, &context);
}

void oracle_stash(oracle_pool *pool, uint32_t index, const oracle_group *source,
                  const int64_t *counts)
{
    oracle_ticket *ticket = &pool->tickets[index];
    int64_t misfit = 0;
    if (pool->refuses) {
        oracle_fault(pool, PST_FAULT_ORDER, index, 0);
        return;
    }
    if (ticket->state == ORACLE_LIVE) {
        oracle_fault(pool, PST_FAULT_LIVE, index, 0);
        return;
    }
    forget_ticket(ticket);
    if (find_misfit(source, counts, &misfit)) {
        ticket->state = ORACLE_FAILED;
        oracle_fault(pool, PST_FAULT_COUNT, index, (uint64_t)misfit);
        return;
    }
    const uint64_t pages = pages_of(pool, source, counts);
    ticket->num_pages = pages;
    if (pages > pool->num_free[0] + pool->num_free[1]) {
        ticket->state = ORACLE_FAILED;
        oracle_fault(pool, PST_FAULT_EXHAUSTED, index, pages);
    } else {
        hold_pages(pool, ticket, source, counts, pages);
    }
    note_marks(pool);
}

/* ---- restore and release ---- */

/* Whether a place of the table still names the page that was given out there. */
static bool is_whole(const oracle_ticket *ticket, uint64_t page)
{
    return ticket->table[page] == ticket->ids[page];
}

static void copy_out(void *context, uint64_t offset, uint64_t position)
{
    const copy *self = context;
    if (is_whole(self->ticket, position / self->pool->page_bytes))
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

/* Byte by byte: rows from `live` to `dirty`, but never beyond the capacity. */
static void clear_tail(oracle_group *group, uint32_t t, uint32_t segment, uint64_t live,
                       uint64_t dirty)
{
    const pst_tensor *tensor = &group->tensors[t];
    const uint64_t capacity = (uint64_t)group->spaces[tensor->space].capacity;
    const uint64_t start = (uint64_t)((uintptr_t)tensor->base - (uintptr_t)group->origin) +
                           segment * oracle_stride(group, t);
    const uint64_t from = oracle_rows(tensor, live) * tensor->row_bytes;
    const uint64_t to =
        oracle_rows(tensor, dirty < capacity ? dirty : capacity) * tensor->row_bytes;
    for (uint64_t byte = from; byte < to; byte++)
        group->image[start + byte] = 0;
}

static void treat_tails(oracle_group *group, const int64_t *counts, pst_restore_tail tail)
{
    for (uint32_t t = 0; tail == PST_TAIL_ZERO && t < group->num_tensors; t++) {
        const uint32_t space = group->tensors[t].space;
        const uint32_t first = oracle_first_count(group, space);
        for (uint32_t s = 0; s < oracle_num_segments(&group->spaces[space]); s++)
            clear_tail(group, t, s, (uint64_t)counts[first + s], group->dirty[first + s]);
    }
    for (uint32_t i = 0; i < oracle_num_counts(group); i++) {
        const uint64_t live = (uint64_t)counts[i];
        if (tail == PST_TAIL_ZERO || live > group->dirty[i])
            group->dirty[i] = live;
    }
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
        put_last(pool, ids[i]);
    free(ids);
    forget_ticket(ticket);
}

void oracle_restore(oracle_pool *pool, uint32_t index, oracle_group *destination,
                    pst_restore_pages pages, pst_restore_tail tail)
{
    oracle_ticket *ticket = &pool->tickets[index];
    int64_t misfit = 0;
    if (pool->refuses) {
        oracle_fault(pool, PST_FAULT_ORDER, index, 0);
        return;
    }
    if (ticket->state == ORACLE_EMPTY) {
        oracle_fault(pool, PST_FAULT_EMPTY, index, 0);
        return;
    }
    if (ticket->state == ORACLE_FAILED) {
        oracle_fault(pool, PST_FAULT_FAILED, index, 0);
    } else if (find_misfit(destination, ticket->counts, &misfit)) {
        oracle_fault(pool, PST_FAULT_DESTINATION, index, 0);
        return;
    } else {
        copy_back(pool, index, destination);
        treat_tails(destination, ticket->counts, tail);
    }
    if (pages == PST_RESTORE_CONSUME)
        free_pages(pool, index);
}

void oracle_release(oracle_pool *pool, uint32_t index)
{
    if (pool->refuses)
        oracle_fault(pool, PST_FAULT_ORDER, index, 0);
    else if (pool->tickets[index].state == ORACLE_EMPTY)
        oracle_fault(pool, PST_FAULT_EMPTY, index, 0);
    else
        free_pages(pool, index);
}

/* A page after the other; those that were left are free at the end. */
static void move_pages(oracle_pool *pool, oracle_ticket *ticket, uint32_t to, uint64_t max_pages)
{
    uint64_t *moved = to ? &pool->status.demoted_pages : &pool->status.promoted_pages;
    uint32_t *left = oracle_calloc(ticket->num_pages, sizeof(uint32_t));
    uint64_t num_left = 0, seen = 0;
    for (uint64_t page = 0; page < ticket->num_pages; page++) {
        if (tier_of(ticket->table[page]) == to || !is_whole(ticket, page))
            continue;
        if (max_pages && seen++ >= max_pages)
            break;
        if (pool->num_free[to] == 0) {
            pool->status.stranded_pages++;
            continue;
        }
        left[num_left++] = ticket->ids[page];
        ticket->ids[page] = take_first(pool, to);
        ticket->table[page] = ticket->ids[page];
        ++*moved;
    }
    note_marks(pool);
    for (uint64_t i = 0; i < num_left; i++)
        put_last(pool, left[i]);
    free(left);
}

void oracle_migrate(oracle_pool *pool, uint32_t index, bool promotes, uint64_t max_pages)
{
    oracle_ticket *ticket = &pool->tickets[index];
    const uint32_t to = promotes ? 0 : 1;
    uint64_t in_place = 0;
    if (pool->refuses) {
        oracle_fault(pool, PST_FAULT_ORDER, index, 0);
        return;
    }
    if (ticket->state != ORACLE_LIVE) {
        oracle_fault(pool, ticket->state == ORACLE_EMPTY ? PST_FAULT_EMPTY : PST_FAULT_FAILED,
                     index, 0);
        return;
    }
    for (uint64_t page = 0; page < ticket->num_pages; page++)
        in_place += tier_of(ticket->table[page]) == to || !is_whole(ticket, page);
    if (max_pages == 0 && in_place == ticket->num_pages && ticket->num_pages > 0)
        oracle_fault(pool, PST_FAULT_MOVED, index, 0);
    else
        move_pages(pool, ticket, to, max_pages);
}

void oracle_forget(oracle_pool *pool, uint32_t index)
{
    forget_ticket(&pool->tickets[index]);
    pool->tickets[index].host_num = 0;
}
