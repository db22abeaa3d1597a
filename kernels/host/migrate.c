/* Demote and promote on the CPU. */
#include "kernels/host/copy.h"
#include "kernels/host/protocol.h"
#include "kernels/host/runners.h"

#include "kernels/core/migrate.h"

typedef struct migration {
    const psti_move_args *args;
    uint32_t epoch;
    uint64_t quota;
    uint64_t moved, candidates;
} migration;

static pst_fault migrate_verdict(const psti_move_args *args, uint32_t epoch)
{
    const psti_ticket_record *ticket = args->ticket;
    const psti_ticket_state state = psti_ticket_now(ticket, epoch);
    if (state == PSTI_TICKET_EMPTY)
        return PST_FAULT_EMPTY;
    if (state == PSTI_TICKET_FAILED)
        return PST_FAULT_FAILED;
    return ticket->num_pages <= args->table_pages ? PST_FAULT_NONE : PST_FAULT_DAMAGED;
}

/* Takes the pages that the ticket's are to move to, by whoever may write pool state; `moving` says
 * per place which one it is, if any. */
static void take_targets(migration *self, uint32_t *moving)
{
    const psti_move_args *args = self->args;
    const psti_pool_view *pool = &args->pool;
    const uint32_t from = psti_migrate_from(args->flags), to = psti_migrate_to(args->flags);
    const uint32_t *table = psti_ticket_table(args->ticket, args->count_room);
    const uint64_t head = psti_load_relaxed_u64(&pool->state->head[to]);
    self->quota = psti_migrate_quota(args->budget, psti_free_pages(pool->state, to));
    for (uint64_t page = 0; page < args->ticket->num_pages; page++) {
        const uint64_t mine = psti_owner_word(args->ticket_index, self->epoch, page);
        moving[page] = PSTI_ID_NONE;
        if (!psti_may_migrate(pool, table[page], from, mine) || self->candidates++ >= self->quota)
            continue;
        const uint32_t id = psti_migrate_target(pool, to, head, self->candidates - 1);
        if (psti_id_in_range(pool, id) &&
            psti_cas_relaxed_u64(psti_owner_of(pool, id), 0, mine) == 0)
            moving[page] = id;
        else
            psti_record_fault(pool, PST_FAULT_DAMAGED, args->ticket_index, id);
    }
    const uint64_t taken = psti_min_u64(self->candidates, self->quota);
    psti_store_relaxed_u64(&pool->state->head[to], head + taken);
    psti_raise_marks(pool->state);
}

static void copy_pages(const migration *self, const uint32_t *moving)
{
    const psti_move_args *args = self->args;
    const psti_pool_view *pool = &args->pool;
    const uint32_t *table = psti_ticket_table(args->ticket, args->count_room);
    const uint64_t page_bytes = (uint64_t)1 << pool->page_shift;
    for (uint64_t page = 0; page < args->ticket->num_pages; page++) {
        if (moving[page] == PSTI_ID_NONE)
            continue;
        psti_copy(psti_page_address(pool, moving[page]), psti_page_address(pool, table[page]),
                  page_bytes, page_bytes * psti_min_u64(self->candidates, self->quota));
        if (pool->scrubs)
            scrub_page(pool, table[page]);
    }
}

/* The pages that were left are free; by whoever may write pool state. */
static void free_sources(migration *self, const uint32_t *moving)
{
    const psti_move_args *args = self->args;
    const psti_pool_view *pool = &args->pool;
    const uint32_t from = psti_migrate_from(args->flags);
    uint32_t *table = psti_ticket_table(args->ticket, args->count_room);
    uint64_t tail = psti_load_relaxed_u64(&pool->state->tail[from]);
    for (uint64_t page = 0; page < args->ticket->num_pages; page++) {
        const uint64_t mine = psti_owner_word(args->ticket_index, self->epoch, page);
        if (moving[page] == PSTI_ID_NONE)
            continue;
        if (psti_cas_relaxed_u64(psti_owner_of(pool, table[page]), mine, 0) == mine)
            pool->ring[from][tail++ & pool->ring_mask[from]] = table[page];
        else
            psti_record_fault(pool, PST_FAULT_DAMAGED, args->ticket_index, table[page]);
        table[page] = moving[page];
        self->moved++;
    }
    psti_store_relaxed_u64(&pool->state->tail[from], tail);
    psti_count_migrated(args, args->ticket, self->moved, self->candidates);
}

static void migrate(migration *self)
{
    const psti_move_args *args = self->args;
    psti_pool_state *state = args->pool.state;
    uint32_t *moving = psti_ticket_moving(args->ticket, args->count_room, args->table_pages);
    if (args->pool.concurrent)
        psti_lock(state);
    take_targets(self, moving);
    if (args->pool.concurrent)
        psti_unlock(state);
    copy_pages(self, moving);
    if (args->pool.concurrent)
        psti_lock(state);
    free_sources(self, moving);
    if (args->pool.concurrent)
        psti_unlock(state);
    if (self->candidates == 0 && args->ticket->num_pages > 0 && args->budget == 0)
        psti_record_fault(&args->pool, PST_FAULT_MOVED, args->ticket_index, 0);
}

void psti_host_migrate(const void *opaque)
{
    const psti_move_args *args = opaque;
    const snapshot now = read_state(args);
    migration self = {.args = args, .epoch = now.epoch};
    if (refused(args, &now) || !claim(args, &now))
        return;
    const pst_fault verdict = migrate_verdict(args, now.epoch);
    if (verdict == PST_FAULT_NONE)
        migrate(&self);
    else
        psti_record_fault(&args->pool, verdict, args->ticket_index, 0);
    publish(args, &now);
}
