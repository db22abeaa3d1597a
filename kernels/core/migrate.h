/* Demote and promote: which pages of a ticket move, and what that adds up to. Places of the page
 * table that hold a page of the tier to leave move in table order, as far as the budget and the
 * free pages of the other tier go. */
#ifndef PSTI_CORE_MIGRATE_H
#define PSTI_CORE_MIGRATE_H

#include "kernels/core/pool.h"

PSTI_FN uint32_t psti_migrate_from(uint32_t flags)
{
    return flags & PSTI_MOVE_PROMOTE ? PSTI_TIER_HOST : PSTI_TIER_DEVICE;
}

PSTI_FN uint32_t psti_migrate_to(uint32_t flags)
{
    return flags & PSTI_MOVE_PROMOTE ? PSTI_TIER_DEVICE : PSTI_TIER_HOST;
}

/* Places that move at most; free: pages of the other tier. */
PSTI_FN uint64_t psti_migrate_quota(uint64_t budget, uint64_t free)
{
    return budget && budget < free ? budget : free;
}

/* Whether the page at this place is the ticket's and in this tier. */
PSTI_FN bool psti_may_migrate(const psti_pool_view *pool, uint32_t id, uint32_t tier,
                              uint64_t owner)
{
    return psti_id_tier(id) == tier && psti_id_in_range(pool, id) &&
           psti_load_relaxed_u64(psti_owner_of(pool, id)) == owner;
}

/* The free page that the candidate of this rank gets. */
PSTI_FN uint32_t psti_migrate_target(const psti_pool_view *pool, uint32_t tier, uint64_t head,
                                     uint64_t rank)
{
    return pool->ring[tier][(head + rank) & pool->ring_mask[tier]];
}

/* By whoever may write pool state: moved of the places that hold a page of the tier to leave.
 * ticket: the record, or a copy of it. */
PSTI_FN void psti_count_migrated(const psti_move_args *args, psti_ticket_record *ticket,
                                 uint64_t moved, uint64_t candidates)
{
    pst_pool_status *status = args->pool.status;
    const bool promotes = (args->flags & PSTI_MOVE_PROMOTE) != 0;
    const uint64_t asked = args->budget ? psti_min_u64(args->budget, candidates) : candidates;
    psti_count(promotes ? &status->promoted_pages : &status->demoted_pages, moved);
    psti_count(&status->stranded_pages, asked - moved);
    ticket->num_host += promotes ? 0 - moved : moved;
}

#endif
