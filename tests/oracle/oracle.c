/* The oracle's pool: free pages, steps, status. */
#include "tests/oracle/oracle_parts.h"

#include <stdlib.h>
#include <string.h>

uint32_t oracle_id(uint32_t tier, uint64_t page)
{
    return (uint32_t)page + (tier ? 0x80000000u : 0);
}

uint32_t oracle_tier_of(uint32_t id)
{
    return id >= 0x80000000u;
}

/* ---- the list of free ids ---- */

uint32_t oracle_take_first(oracle_pool *pool, uint32_t tier)
{
    const uint32_t id = pool->free_ids[tier][0];
    pool->num_free[tier]--;
    memmove(pool->free_ids[tier], pool->free_ids[tier] + 1,
            pool->num_free[tier] * sizeof(uint32_t));
    return id;
}

void oracle_put_last(oracle_pool *pool, uint32_t id)
{
    const uint32_t tier = oracle_tier_of(id);
    if (pool->num_free[tier] == pool->num_pages[tier])
        abort();
    pool->free_ids[tier][pool->num_free[tier]++] = id;
}

void oracle_empty(oracle_ticket *ticket)
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
            oracle_put_last(pool, oracle_id(tier, pool->num_free[tier]));
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
        oracle_empty(&pool->tickets[i]);
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

void oracle_note_marks(oracle_pool *pool)
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
    oracle_note_marks(pool);
    *published = *status;
    status->step_valid = 1;
    pool->is_stale = false;
}

void oracle_expect(oracle_pool *pool, uint64_t found, uint64_t expected)
{
    if (found == expected)
        return;
    const bool is_first = pool->status.fault_state == 0;
    oracle_fault(pool, PST_FAULT_SCHEDULE, UINT32_MAX, found);
    if (is_first) {
        pool->status.fault_free[0] = expected;
        pool->status.fault_free[1] = 0;
    }
    pool->is_stale = true;
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
    oracle_note_marks(pool);
}

void oracle_reset(oracle_pool *pool, uint32_t what)
{
    if (what & (PST_RESET_PAGES | PST_RESET_FAULTS))
        pool->is_stale = false;
    if (what & PST_RESET_PAGES) {
        for (uint32_t i = 0; i < pool->num_tickets; i++)
            oracle_empty(&pool->tickets[i]);
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
            oracle_put_last(pool, oracle_id(tier, page));
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
