/* Ring arithmetic, ownership, decisions, faults and the lock: what host and GPU kernels share. */
#ifndef PSTI_CORE_POOL_H
#define PSTI_CORE_POOL_H

#include "kernels/core/fn.h"
#include "kernels/core/layout.h"

/* Which pages a stash takes: its first `lead` places get host pages, the next take[device] device
 * pages, the others host pages. */
typedef struct psti_decision {
    uint64_t take[PSTI_TIERS];
    uint64_t lead;
    uint64_t displaced; /* places that prefer a host page and get a device page */
    bool fits;          /* otherwise nothing is taken */
} psti_decision;

/* Of the places the first floor(wanted * num / den) prefer host pages, the others device pages
 * (0/0: all). Where the preferred tier is out the other serves; where both are, nothing is
 * taken. */
PSTI_FN psti_decision psti_decide(uint64_t wanted, uint64_t free_device, uint64_t free_host,
                                  uint32_t num, uint32_t den)
{
    psti_decision decision = {{0, 0}, 0, 0, false};
    decision.fits = wanted <= free_device || wanted - free_device <= free_host;
    if (!decision.fits)
        wanted = 0;
    const uint64_t preferred = den ? wanted * num / den : 0;
    decision.lead = psti_min_u64(preferred, free_host);
    decision.displaced = preferred - decision.lead;
    decision.take[PSTI_TIER_DEVICE] = psti_min_u64(wanted - decision.lead, free_device);
    decision.take[PSTI_TIER_HOST] = wanted - decision.take[PSTI_TIER_DEVICE];
    return decision;
}

/* What the owner word of the page is that stands at place `page` of a ticket's table: never 0, and
 * within an epoch different for each place of each ticket. The factor keeps an old word from being
 * that of a place near by in one of the next epochs, should a reset ever leave it. */
PSTI_FN uint64_t psti_owner_word(uint32_t ticket_index, uint32_t epoch, uint64_t page)
{
    const uint32_t place = epoch * 0x9e3779b1u + (uint32_t)page;
    return (uint64_t)place << 32 | (ticket_index + 1u);
}

PSTI_FN uint32_t psti_id_tier(uint32_t id)
{
    return id >> 31;
}

PSTI_FN uint32_t psti_id_index(uint32_t id)
{
    return id & PSTI_ID_INDEX_MASK;
}

PSTI_FN bool psti_id_in_range(const psti_pool_view *pool, uint32_t id)
{
    return psti_id_index(id) < pool->max_pages[psti_id_tier(id)];
}

PSTI_FN uint64_t *psti_owner_of(const psti_pool_view *pool, uint32_t id)
{
    return &pool->owner[psti_id_tier(id)][psti_id_index(id)];
}

PSTI_FN unsigned char *psti_page_address(const psti_pool_view *pool, uint32_t id)
{
    return pool->pages[psti_id_tier(id)] + ((uint64_t)psti_id_index(id) << pool->page_shift);
}

/* Whether a reset of a pool that scrubs clears this page: also a free one where operations that
 * were refused may have written into it. */
PSTI_FN bool psti_is_dirty(const psti_pool_view *pool, uint32_t id)
{
    const uint64_t owner = psti_load_relaxed_u64(psti_owner_of(pool, id));
    return owner != PSTI_OWNER_ABSENT &&
           (owner != PSTI_OWNER_FREE ||
            psti_load_relaxed_u32(&pool->state->refuse) & PSTI_REFUSES_ORDER);
}

/* The id for place `page` of a stash with this decision, beginning at the given heads. */
PSTI_FN uint32_t psti_ring_id(const psti_pool_view *pool, const uint64_t head[PSTI_TIERS],
                              const psti_decision *decision, uint64_t page)
{
    const uint64_t from_device = decision->take[PSTI_TIER_DEVICE];
    if (page < decision->lead)
        return pool->ring[1][(head[1] + page) & pool->ring_mask[1]];
    if (page < decision->lead + from_device)
        return pool->ring[0][(head[0] + page - decision->lead) & pool->ring_mask[0]];
    return pool->ring[1][(head[1] + page - from_device) & pool->ring_mask[1]];
}

/* Adds to a statistic, without waiting for what it was. */
PSTI_FN void psti_count(uint64_t *statistic, uint64_t more)
{
    if (more)
        psti_add_relaxed_u64(statistic, more);
}

/* What a stash with this decision adds to the statistics. By whoever may write pool state. */
PSTI_FN void psti_count_pages(pst_pool_status *status, const psti_decision *decision)
{
    psti_count(&status->spilled_pages, decision->take[PSTI_TIER_HOST] - decision->lead);
    psti_count(&status->offloaded_pages, decision->lead);
    psti_count(&status->displaced_pages, decision->displaced);
}

/* A launch word counts the operations that have ended, in its low 16 bits and by twos, modulo 2^16.
 * On the CPU it is odd while one is written. On the GPU the rest says who of the next one has
 * arrived: 16 bits how many teams, above them 32 bits of the sum of their numbers. */
#define PSTI_MAX_TEAMS 0xffffu /* of a launch */

PSTI_FN uint64_t psti_launch_of(uint64_t word)
{
    return word & 0xffff;
}

/* What so many teams with one number add to the launch word. */
PSTI_FN uint64_t psti_arrival(uint32_t number, uint32_t teams)
{
    return (uint64_t)(number * teams) << 32 | teams << 16;
}

PSTI_FN uint32_t psti_teams_arrived(uint64_t word)
{
    return (uint32_t)word >> 16;
}

/* What tells the operations on a ticket apart: the launch number that all blocks of one launch
 * read, and the number that the host gave the operation. Two operations may read the same launch
 * number when they overlap, but never have the same op. */
PSTI_FN uint64_t psti_launch_word(uint64_t launch, uint32_t op)
{
    return launch << 32 | op;
}

/* The leader's decision for the other blocks. */
PSTI_FN uint64_t psti_ready_word(uint64_t launch, uint32_t op, uint32_t copies)
{
    return psti_launch_word(launch, op) << 1 | copies;
}

/* Summed over the teams of a launch, in the high half of the launch word. The factor keeps launch and
 * op from making up for each other. lost: the team took the step for lost; teams of one launch
 * that disagree about it must not add up. */
PSTI_FN uint32_t psti_launch_number(uint64_t launch, uint32_t op, uint32_t lost)
{
    return (uint32_t)launch * 0x9e3779b1u + op + (lost ? 0x85ebca6bu : 0);
}

PSTI_FN int64_t *psti_ticket_counts(psti_ticket_record *ticket)
{
    return (int64_t *)(ticket + 1);
}

PSTI_FN psti_page_id *psti_ticket_table(psti_ticket_record *ticket, uint32_t count_room)
{
    return (psti_page_id *)(psti_ticket_counts(ticket) + count_room);
}

/* Per place of the table the page that it is going to get, or none. */
PSTI_FN psti_page_id *psti_ticket_moving(psti_ticket_record *ticket, uint32_t count_room,
                                         uint64_t table_pages)
{
    return psti_ticket_table(ticket, count_room) + table_pages;
}

/* Ordered pools: the record's ready word says what the teams that copied could not have, how many
 * pages and the id of one. The last team records that, for a stash may not change step_valid
 * before. */
PSTI_FN void psti_note_damage(psti_ticket_record *ticket, uint32_t id)
{
    const uint64_t one = (uint64_t)1 << 32;
    if (psti_cas_relaxed_u64(&ticket->ready, 0, one | id) != 0)
        psti_add_relaxed_u64(&ticket->ready, one);
}

PSTI_FN uint64_t psti_damage_count(uint64_t ready)
{
    return ready >> 32;
}

PSTI_FN uint32_t psti_damage_id(uint64_t ready)
{
    return (uint32_t)ready;
}

PSTI_FN uint64_t psti_free_pages(const psti_pool_state *state, uint32_t tier)
{
    const uint64_t head = psti_load_relaxed_u64(&state->head[tier]);
    return psti_load_relaxed_u64(&state->tail[tier]) - head;
}

/* Counts a fault; the first one is claimed by compare-and-swap and complete at state 2, which is
 * for the caller to write, behind what else there is to say: true. */
PSTI_FN bool psti_claim_fault(pst_pool_status *status, pst_fault fault, uint32_t ticket_index,
                              uint64_t wanted)
{
    psti_or_relaxed_u32(&status->flags, 1u << fault);
    psti_store_relaxed_u32((uint32_t *)&status->step_valid, 0);
    psti_add_acq_rel_u32(&status->num_faults, 1);
    if (psti_cas_acq_rel_u32(&status->fault_state, 0, 1) != 0)
        return false;
    status->fault = fault;
    status->fault_ticket = ticket_index;
    status->fault_wanted = wanted;
    return true;
}

PSTI_FN_RARE void psti_record_fault(const psti_pool_view *pool, pst_fault fault,
                                    uint32_t ticket_index, uint64_t wanted)
{
    pst_pool_status *status = pool->status;
    if (!psti_claim_fault(status, fault, ticket_index, wanted))
        return;
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        status->fault_free[tier] = psti_free_pages(pool->state, tier);
    psti_store_release_u32(&status->fault_state, 2);
}

/* Operations overlapped that must not: nothing is believed until reset. */
PSTI_FN void psti_refuse(const psti_pool_view *pool, uint32_t ticket_index)
{
    psti_or_relaxed_u32(&pool->state->refuse, PSTI_REFUSES_ORDER);
    psti_record_fault(pool, PST_FAULT_ORDER, ticket_index, 0);
}

/* PSTI_REFUSES_* of an operation with these flags, 0: it may go on. What the library itself frees
 * of a lent ticket must not stay: its next owner would find it live. */
PSTI_FN uint32_t psti_refusal_of(uint32_t refuse, uint32_t flags)
{
    return flags & PSTI_MOVE_QUIET ? refuse & PSTI_REFUSES_ORDER : refuse;
}

PSTI_FN uint32_t psti_refusal(const psti_pool_state *state, uint32_t flags)
{
    return psti_refusal_of(psti_load_relaxed_u32(&state->refuse), flags);
}

/* Marks that grow when pages are taken or wanted. By whoever may write the state line, or on a copy
 * of it. */
PSTI_FN void psti_raise_marks(psti_pool_state *state)
{
    uint64_t demand = state->failed_wanted;
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        const uint64_t in_use = state->num_pages[tier] - (state->tail[tier] - state->head[tier]);
        state->step_high[tier] = psti_max_u64(state->step_high[tier], in_use);
        demand += in_use;
    }
    state->step_demand = psti_max_u64(state->step_demand, demand);
}

/* A ticket that was FAILED no longer is: what it wanted is forgotten. */
PSTI_FN void psti_forget_failure(psti_pool_state *state, const psti_ticket_record *ticket)
{
    if (ticket->state == PSTI_TICKET_FAILED && ticket->epoch == state->epoch)
        state->failed_wanted -= ticket->num_pages;
}

/* Whether a stash fails without trying. */
PSTI_FN bool psti_is_lost(const psti_pool_view *pool)
{
    return pool->fails_fast && !psti_load_relaxed_u32((const uint32_t *)&pool->status->step_valid);
}

PSTI_FN psti_ticket_state psti_ticket_now(const psti_ticket_record *ticket, uint32_t epoch)
{
    return ticket->epoch == epoch ? (psti_ticket_state)ticket->state : PSTI_TICKET_EMPTY;
}

/* The pool's FIFO lock: only ever taken by a thread that runs. PSTI_PAUSE gives way meanwhile. */
#ifdef PSTI_PAUSE
PSTI_FN void psti_lock(psti_pool_state *state)
{
    const uint32_t mine = psti_add_acq_rel_u32(&state->lock_next, 1);
    while (psti_load_acquire_u32(&state->lock_serving) != mine)
        PSTI_PAUSE();
}

PSTI_FN void psti_unlock(psti_pool_state *state)
{
    psti_store_release_u32(&state->lock_serving, psti_load_relaxed_u32(&state->lock_serving) + 1);
}
#endif

#endif
