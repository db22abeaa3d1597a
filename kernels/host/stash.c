/* Stash on the CPU: one "block" that does everything. */
#include "kernels/host/protocol.h"
#include "kernels/host/runners.h"
#include "kernels/host/walk.h"

/* Copies the caller's counts to `counts`; false and the culprit if one is out of bounds. */
static bool read_counts(const psti_move_args *args, int64_t *counts, int64_t *culprit)
{
    for (uint32_t i = 0; i < args->num_spaces; i++) {
        const psti_space *space = &args->spaces[i];
        for (uint32_t s = 0; s < space->num_segments; s++) {
            const int64_t count = psti_space_count(space, s);
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
    if (now->is_lost) {
        plan.fault = PST_FAULT_LOST;
        return plan;
    }
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
    uint32_t *table = psti_ticket_table(args->ticket, args->count_room);
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
    ticket->form = args->form;
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

static unsigned char *stash_page(walk *self, uint64_t page, bool is_first)
{
    (void)is_first; /* what a stash cannot have is recorded when it commits */
    const psti_move_args *args = self->args;
    const psti_pool_view *pool = &args->pool;
    const stash_plan *plan = self->context;
    uint32_t id;
    if (pool->concurrent)
        id = psti_ticket_table(args->ticket, args->count_room)[page];
    else
        id = psti_ring_id(pool, plan->now.head, &plan->decision, page);
    if (!psti_id_in_range(pool, id))
        return NULL;
    /* an ordered pool takes ownership after the copy: a page that has an owner is not ours */
    if (!pool->concurrent && psti_load_relaxed_u64(psti_owner_of(pool, id)) != 0)
        return NULL;
    return psti_page_address(pool, id);
}

static void stash_piece(walk *self, psti_rows *rows, uint64_t page, uint64_t offset, uint64_t bytes)
{
    const stash_plan *plan = self->context;
    unsigned char *to = stash_page(self, page, offset == 0);
    if (to)
        psti_copy_in(to + offset, rows, bytes, plan->pages << self->args->pool.page_shift);
}

static void copy_stash(const psti_move_args *args, stash_plan *plan, const fused_rows *fused)
{
    walk stream = {.args = args,
                   .counts = psti_ticket_counts(args->ticket),
                   .page_bytes = (uint64_t)1 << args->pool.page_shift,
                   .piece = stash_piece,
                   .find = stash_page,
                   .context = plan,
                   .fused = fused};
    if (plan->fault == PST_FAULT_NONE)
        walk_stream(&stream);
    else if (fused && plan->fault != PST_FAULT_COUNT)
        fused->alone(fused);
}

void psti_host_stash_with(const psti_move_args *args, const fused_rows *fused)
{
    const snapshot now = read_state(args);
    if (refused(args, &now) || (args->pool.concurrent && !claim(args, &now))) {
        if (fused)
            fused->alone(fused);
        return;
    }
    if (args->pool.concurrent) {
        psti_lock(args->pool.state);
        const snapshot locked = read_state(args);
        stash_plan plan = plan_stash(args, &locked);
        commit_stash(args, &plan);
        psti_unlock(args->pool.state);
        copy_stash(args, &plan, fused);
    } else {
        stash_plan plan = plan_stash(args, &now);
        copy_stash(args, &plan, fused);
        if (!claim(args, &now))
            return;
        commit_stash(args, &plan);
    }
    publish(args, &now);
}

void psti_host_stash(const void *args)
{
    psti_host_stash_with(args, NULL);
}
