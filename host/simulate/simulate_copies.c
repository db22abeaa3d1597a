/* Operations of side streams and of GLUs: what the pool would count (kernels/host/stash.c, restore.c,
 * migrate.c), and how long each takes. */
#include "host/simulate/simulate.h"

#include "kernels/core/pool.h"

static uint64_t ns_of(uint64_t bytes, uint64_t rate)
{
    if (bytes == 0 || rate == 0)
        return 0;
    if (bytes < UINT64_C(1) << 33 && rate < UINT64_C(1) << 62)
        return (bytes * UINT64_C(1000000000) + rate - 1) / rate;
    return psti_fraction(bytes, UINT64_C(1000000000), rate);
}

static uint64_t free_pages(const psti_sim_rank *rank, uint32_t tier)
{
    return rank->num_pages[tier] - rank->result.in_use[tier];
}

static void raise_marks(psti_sim_rank *rank)
{
    pst_stage_result *result = &rank->result;
    for (uint32_t tier = 0; tier < 2; tier++)
        result->high_water[tier] = psti_sim_later(result->high_water[tier], result->in_use[tier]);
    result->demand_high_water = psti_sim_later(
        result->demand_high_water, result->in_use[0] + result->in_use[1] + rank->failed_wanted);
}

static void record_fault(psti_sim_rank *rank, psti_sim_copy *copy, pst_fault fault, uint64_t wanted)
{
    pst_stage_result *result = &rank->result;
    copy->fault = fault;
    if (result->num_faults++ > 0)
        return;
    result->fault = fault;
    result->fault_visit = psti_sim_key(rank, &rank->program->visits[copy->op->visit]);
    result->fault_wanted = wanted;
    for (uint32_t tier = 0; tier < 2; tier++)
        result->fault_free[tier] = free_pages(rank, tier);
}

static const pst_group_usage *usage_of(const psti_sim_rank *rank, const psti_sim_layer *layer,
                                       const psti_visit *visit, uint32_t part)
{
    const uint32_t micro_batch = rank->schedule->passes[visit->pass].micro_batch;
    return &layer->usages[(size_t)part * layer->num_usages +
                          (layer->num_usages == 1 ? 0 : micro_batch)];
}

/* Live bytes in device and host pages of a ticket. */
static void split_bytes(const psti_sim_rank *rank, const psti_sim_ticket *ticket,
                        const pst_group_usage *usage, uint64_t bytes_out[2])
{
    const uint64_t page_bytes = rank->all->config.page_bytes;
    uint64_t stream = ticket->host * page_bytes, host = usage->payload_bytes;
    bytes_out[0] = usage->payload_bytes;
    bytes_out[1] = 0;
    if (ticket->host == 0 || usage->stream_bytes == 0)
        return;
    if (ticket->last_is_host)
        stream -= psti_min(stream, ticket->pages * page_bytes - usage->stream_bytes);
    if (stream < usage->stream_bytes)
        host = (uint64_t)((psti_wide)usage->payload_bytes * stream / usage->stream_bytes);
    bytes_out[0] = usage->payload_bytes - host;
    bytes_out[1] = host;
}

/* Of a stash (direction 0) or restore (1) that did not fail. */
static void time_copy(psti_sim_rank *rank, psti_sim_copy *copy, const uint64_t bytes[2],
                      uint32_t direction)
{
    const pst_simulated_rates *rates = &rank->all->config.rates;
    const uint64_t device_ns =
        ns_of(bytes[0], direction == 0 ? rates->stash_rate : rates->restore_rate);
    const uint64_t link_ns = ns_of(bytes[1], direction == 0 ? rates->out_rate : rates->in_rate);
    copy->ns = psti_sim_after(psti_sim_after(copy->ns, device_ns), link_ns);
    rank->result.link_busy_ns[direction] = psti_plus(rank->result.link_busy_ns[direction], link_ns);
    rank->result.link_bytes[direction] = psti_plus(rank->result.link_bytes[direction], bytes[1]);
}

/* A rate of half as much per byte. */
static uint64_t half_ns(uint64_t bytes, uint64_t rate)
{
    return (ns_of(bytes, rate) + 1) / 2;
}

/* Of what a GLU stashes or restores: bytes of its own, which it has read anyway or reads where they are,
 * and bytes beside them. */
static void time_glu(psti_sim_rank *rank, const psti_visit *visit, psti_sim_copy *copy,
                     uint64_t bytes[2], uint32_t direction)
{
    const psti_sim_layer *layer = psti_sim_layer_of(rank, visit);
    const pst_group_usage *usage = usage_of(rank, layer, visit, copy->part);
    uint64_t own = bytes[0];
    copy->ns = 0; /* there is a launch anyway */
    if (layer->glu_bytes && usage->payload_bytes > 0)
        own = (uint64_t)((psti_wide)bytes[0] * layer->glu_bytes[usage - layer->usages] /
                         usage->payload_bytes);
    bytes[0] -= own;
    time_copy(rank, copy, bytes, direction);
    if (direction == 0)
        copy->ns = psti_sim_after(copy->ns, half_ns(own, rank->all->config.rates.stash_rate));
}

static void forget_failure(psti_sim_rank *rank, const psti_sim_ticket *ticket)
{
    if (ticket->state == PSTI_SIM_FAILED)
        rank->failed_wanted -= ticket->pages;
}

static void take_pages(psti_sim_rank *rank, const psti_sim_layer *layer, psti_sim_ticket *ticket,
                       psti_sim_copy *copy)
{
    pst_stage_result *result = &rank->result;
    const psti_decision decision = psti_decide(
        ticket->pages, free_pages(rank, 0), free_pages(rank, 1), layer->host_num, layer->host_den);
    ticket->host = 0;
    ticket->last_is_host = false;
    if (!decision.fits) {
        record_fault(rank, copy, PST_FAULT_EXHAUSTED, ticket->pages);
        ticket->state = PSTI_SIM_FAILED;
        rank->failed_wanted += ticket->pages;
        return;
    }
    ticket->state = PSTI_SIM_LIVE;
    ticket->host = (uint32_t)decision.take[PSTI_TIER_HOST];
    ticket->last_is_host = decision.take[PSTI_TIER_HOST] > decision.lead ||
                           (ticket->host > 0 && ticket->host == ticket->pages);
    for (uint32_t tier = 0; tier < 2; tier++) {
        copy->pages[tier] = decision.take[tier];
        result->in_use[tier] += decision.take[tier];
    }
    result->spilled_pages += decision.take[PSTI_TIER_HOST] - decision.lead;
    result->offloaded_pages += decision.lead;
    result->displaced_pages += decision.displaced;
}

static void stash(psti_sim_rank *rank, const psti_visit *visit, psti_sim_ticket *ticket,
                  psti_sim_copy *copy)
{
    const psti_sim_layer *layer = psti_sim_layer_of(rank, visit);
    const pst_group_usage *usage = usage_of(rank, layer, visit, copy->part);
    uint64_t bytes[2];
    copy->ns = psti_sim_is_glu(copy->op) ? 0 : rank->all->config.rates.stash_fixed_ns;
    if (ticket->state == PSTI_SIM_LIVE) {
        record_fault(rank, copy, PST_FAULT_LIVE, 0);
        return;
    }
    const psti_sim_ticket before = *ticket;
    ticket->pages = (uint32_t)usage->pages;
    take_pages(rank, layer, ticket, copy);
    forget_failure(rank, &before);
    raise_marks(rank);
    if (copy->fault != PST_FAULT_NONE)
        return;
    split_bytes(rank, ticket, usage, bytes);
    if (psti_sim_is_glu(copy->op))
        time_glu(rank, visit, copy, bytes, 0);
    else
        time_copy(rank, copy, bytes, 0);
}

static void restore(psti_sim_rank *rank, const psti_visit *visit, psti_sim_ticket *ticket,
                    psti_sim_copy *copy)
{
    uint64_t bytes[2];
    copy->ns = psti_sim_is_glu(copy->op) ? 0 : rank->all->config.rates.restore_fixed_ns;
    if (ticket->state != PSTI_SIM_LIVE)
        record_fault(rank, copy,
                     ticket->state == PSTI_SIM_EMPTY ? PST_FAULT_EMPTY : PST_FAULT_FAILED, 0);
    if (ticket->state == PSTI_SIM_LIVE) {
        const psti_sim_layer *layer = psti_sim_layer_of(rank, visit);
        split_bytes(rank, ticket, usage_of(rank, layer, visit, copy->part), bytes);
        if (psti_sim_is_glu(copy->op))
            time_glu(rank, visit, copy, bytes, 1);
        else
            time_copy(rank, copy, bytes, 1);
        copy->pages[0] = ticket->pages - ticket->host;
        copy->pages[1] = ticket->host;
    }
    if (copy->op->keeps || copy->fault == PST_FAULT_EMPTY)
        return;
    copy->frees[0] = copy->pages[0];
    copy->frees[1] = copy->pages[1];
    forget_failure(rank, ticket);
    ticket->state = PSTI_SIM_EMPTY;
}

/* Pages of the first places of the table that are of the tier to leave, as in kernels/core/migrate.h.
 * max_pages: 0: all that are there, and none is no fault. */
static void migrate(psti_sim_rank *rank, psti_sim_ticket *ticket, psti_sim_copy *copy,
                    uint64_t max_pages, uint32_t from)
{
    const pst_simulated_rates *rates = &rank->all->config.rates;
    const uint32_t to = 1 - from;
    pst_stage_result *result = &rank->result;
    copy->ns = from == 0 ? rates->demote_fixed_ns : rates->promote_fixed_ns;
    if (ticket->state != PSTI_SIM_LIVE) {
        record_fault(rank, copy,
                     ticket->state == PSTI_SIM_EMPTY ? PST_FAULT_EMPTY : PST_FAULT_FAILED, 0);
        return;
    }
    const uint64_t there = from == 1 ? ticket->host : ticket->pages - ticket->host;
    const uint64_t asked = max_pages ? psti_min(max_pages, there) : there;
    const uint64_t moved = psti_min(asked, free_pages(rank, to));
    result->in_use[to] += moved;
    raise_marks(rank);
    copy->frees[from] = moved;
    copy->pages[to] = moved;
    result->stranded_pages += asked - moved;
    ticket->host = (uint32_t)(from == 0 ? ticket->host + moved : ticket->host - moved);
    if (from == 0)
        result->demoted_pages += moved;
    else
        result->promoted_pages += moved;
    if (moved == there && there > 0) /* the last page is the last to move */
        ticket->last_is_host = from == 0;
    const uint64_t bytes = psti_times(moved, rank->all->config.page_bytes);
    const uint64_t ns = ns_of(bytes, from == 0 ? rates->out_rate : rates->in_rate);
    copy->ns = psti_sim_after(copy->ns, ns);
    result->link_bytes[from] = psti_plus(result->link_bytes[from], bytes);
    result->link_busy_ns[from] = psti_plus(result->link_busy_ns[from], ns);
}

/* Whether a swap in is the last reading of what was swapped out. */
static bool swaps_last(const psti_sim_rank *rank, const psti_visit *visit)
{
    const pst_pass *pass = &rank->schedule->passes[visit->pass];
    const uint32_t last =
        psti_schedule_life(rank->schedule, pass->chunk, pass->micro_batch)->last_backward;
    if (last == visit->pass)
        return true;
    const uint32_t up = rank->program->num_layers[pass->chunk] - 1 - visit->layer;
    return !rank->program->visits[rank->program->first_visit[last] + up].is_restored;
}

static void swap(psti_sim_rank *rank, const psti_visit *visit, psti_sim_copy *copy,
                 uint32_t direction)
{
    const pst_simulated_rates *rates = &rank->all->config.rates;
    const uint64_t bytes = psti_sim_layer_of(rank, visit)->swap_bytes;
    copy->ns = ns_of(bytes, direction == 0 ? rates->out_rate : rates->in_rate);
    rank->result.link_bytes[direction] = psti_plus(rank->result.link_bytes[direction], bytes);
    rank->result.link_busy_ns[direction] =
        psti_plus(rank->result.link_busy_ns[direction], copy->ns);
    if (direction == 0)
        rank->swapped_bytes = psti_plus(rank->swapped_bytes, bytes);
    else if (swaps_last(rank, visit))
        rank->swapped_bytes = psti_minus(rank->swapped_bytes, bytes);
    rank->result.swapped_host_bytes =
        psti_sim_later(rank->result.swapped_host_bytes, rank->swapped_bytes);
}

void psti_sim_begin_copy(psti_sim_rank *rank, const psti_operation *op, psti_sim_copy *copy)
{
    const psti_visit *visit = &rank->program->visits[op->visit];
    psti_sim_ticket *ticket = &rank->tickets[(size_t)op->seat * rank->max_parts + copy->part];
    copy->op = op;
    switch (op->act) {
    case PSTI_ACT_STASH:
        stash(rank, visit, ticket, copy);
        rank->result.stash_busy_ns = psti_plus(rank->result.stash_busy_ns, copy->ns);
        break;
    case PSTI_ACT_GLU_STASH:
        stash(rank, visit, ticket, copy);
        break;
    case PSTI_ACT_GLU_RESTORE:
        restore(rank, visit, ticket, copy);
        break;
    case PSTI_ACT_RESTORE:
        restore(rank, visit, ticket, copy);
        rank->result.restore_busy_ns = psti_plus(rank->result.restore_busy_ns, copy->ns);
        break;
    case PSTI_ACT_DEMOTE:
        migrate(rank, ticket, copy, psti_sim_layer_of(rank, visit)->max_demote_pages, 0);
        break;
    case PSTI_ACT_PROMOTE:
        migrate(rank, ticket, copy, 0, 1);
        break;
    case PSTI_ACT_SWAP_OUT:
        swap(rank, visit, copy, 0);
        break;
    default:
        swap(rank, visit, copy, 1);
        break;
    }
}

static pst_simulated_kind kind_of(uint8_t act)
{
    switch (act) {
    case PSTI_ACT_STASH:
    case PSTI_ACT_GLU_STASH:
        return PST_SIMULATED_DO_STASH;
    case PSTI_ACT_RESTORE:
    case PSTI_ACT_GLU_RESTORE:
        return PST_SIMULATED_DO_RESTORE;
    case PSTI_ACT_DEMOTE:
        return PST_SIMULATED_DO_DEMOTE;
    case PSTI_ACT_PROMOTE:
        return PST_SIMULATED_DO_PROMOTE;
    case PSTI_ACT_SWAP_OUT:
        return PST_SIMULATED_DO_SWAP_OUT;
    default:
        return PST_SIMULATED_DO_SWAP_IN;
    }
}

void psti_sim_end_copy(psti_sim_rank *rank, const psti_sim_copy *copy, uint64_t begin, uint64_t end)
{
    pst_stage_result *result = &rank->result;
    for (uint32_t tier = 0; tier < 2; tier++)
        result->in_use[tier] -= copy->frees[tier];
    if (!psti_sim_tells(rank))
        return;
    const pst_simulated_event event = {
        .stage = rank->stage,
        .stream = (pst_simulated_stream)copy->op->stream,
        .kind = kind_of(copy->op->act),
        .visit = psti_sim_key(rank, &rank->program->visits[copy->op->visit]),
        .part = copy->part,
        .fault = copy->fault,
        .begin_ns = begin - rank->all->origin_ns,
        .end_ns = end - rank->all->origin_ns,
        .pages = {copy->pages[0], copy->pages[1]},
        .in_use = {result->in_use[0], result->in_use[1]},
    };
    rank->all->config.on_event(rank->all->config.user, &event);
}

void psti_sim_tell_main(const psti_sim_rank *rank, pst_simulated_kind kind, pst_visit_key visit,
                        uint64_t begin, uint64_t end)
{
    if (begin == end || !psti_sim_tells(rank))
        return;
    const pst_simulated_event event = {
        .stage = rank->stage,
        .stream = PST_SIMULATED_MAIN,
        .kind = kind,
        .visit = visit,
        .begin_ns = begin - rank->all->origin_ns,
        .end_ns = end - rank->all->origin_ns,
        .in_use = {rank->result.in_use[0], rank->result.in_use[1]},
    };
    rank->all->config.on_event(rank->all->config.user, &event);
}
