/* Copies the words of a pool and its tickets to the host and back, and judges them. */
#include "tests/oracle/pool_words.h"

#include <stdlib.h>
#include <string.h>

#include "tests/oracle/oracle.h"

static size_t slots_of(const pst_pool *pool, uint32_t tier)
{
    return (size_t)pool->view.ring_mask[tier] + 1;
}

void pool_words_make(const pst_pool *pool, pool_words *words)
{
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        words->ring[tier] = oracle_calloc(slots_of(pool, tier), sizeof(uint32_t));
        words->owner[tier] = oracle_calloc(pool->view.max_pages[tier], sizeof(uint64_t));
    }
}

void pool_words_free(pool_words *words)
{
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        free(words->ring[tier]);
        free(words->owner[tier]);
    }
}

/* One direction or the other. */
typedef struct transfer {
    pst_device *device;
    pst_stream stream;
    bool to_device;
    pst_status status;
} transfer;

static void move(transfer *self, void *device_words, void *host_words, size_t bytes)
{
    if (self->status == PST_OK)
        self->status =
            self->to_device
                ? pst_device_copy(self->device, device_words, host_words, bytes, self->stream)
                : pst_device_copy(self->device, host_words, device_words, bytes, self->stream);
}

static pst_status finish(const transfer *self)
{
    return self->status == PST_OK ? pst_stream_synchronize(self->device, self->stream)
                                  : self->status;
}

static pst_status move_pool(const pst_pool *pool, pool_words *words, pst_stream stream,
                            bool to_device)
{
    const psti_pool_view *view = &pool->view;
    transfer self = {pool->device, stream, to_device, PST_OK};
    move(&self, view->state, &words->state, sizeof(words->state));
    move(&self, view->status, &words->status, sizeof(words->status));
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        if (view->max_pages[tier] == 0)
            continue;
        move(&self, view->ring[tier], words->ring[tier], slots_of(pool, tier) * sizeof(uint32_t));
        move(&self, view->owner[tier], words->owner[tier],
             view->max_pages[tier] * sizeof(uint64_t));
    }
    return finish(&self);
}

pst_status pool_words_read(const pst_pool *pool, pool_words *words, pst_stream stream)
{
    return move_pool(pool, words, stream, false);
}

pst_status pool_words_write(const pst_pool *pool, const pool_words *words, pst_stream stream)
{
    pool_words written = *words;
    return move_pool(pool, &written, stream, true);
}

static const psti_ticket *find(pst_ticket ticket)
{
    const psti_ticket *found = psti_ticket_find(ticket);
    if (!found)
        abort();
    return found;
}

void ticket_words_make(pst_ticket ticket, ticket_words *words)
{
    words->num_counts = find(ticket)->count_room;
    words->table_pages = find(ticket)->table_pages;
    words->counts = oracle_calloc(words->num_counts, sizeof(int64_t));
    words->table = oracle_calloc(words->table_pages, sizeof(uint32_t));
}

void ticket_words_free(ticket_words *words)
{
    free(words->counts);
    free(words->table);
}

static pst_status move_ticket(pst_ticket handle, ticket_words *words, pst_stream stream,
                              bool to_device)
{
    const psti_ticket *ticket = find(handle);
    int64_t *counts = (int64_t *)(ticket->record + 1);
    transfer self = {ticket->pool->device, stream, to_device, PST_OK};
    move(&self, ticket->record, &words->head, sizeof(words->head));
    move(&self, counts, words->counts, words->num_counts * sizeof(int64_t));
    if (words->table_pages)
        move(&self, counts + words->num_counts, words->table,
             (size_t)words->table_pages * sizeof(uint32_t));
    return finish(&self);
}

pst_status ticket_words_read(pst_ticket ticket, ticket_words *words, pst_stream stream)
{
    return move_ticket(ticket, words, stream, false);
}

pst_status ticket_words_write(pst_ticket ticket, const ticket_words *words, pst_stream stream)
{
    ticket_words written = *words;
    return move_ticket(ticket, &written, stream, true);
}

/* ---- conservation ---- */

typedef struct census {
    const pst_pool *pool;
    const pool_words *words;
    uint32_t *met[PSTI_TIERS];
    size_t wrong;
} census;

static void meet(census *self, uint32_t id, uint64_t owner)
{
    const uint32_t tier = id >> 31;
    const uint32_t page = id & 0x7fffffffu;
    if (page >= self->pool->num_pages[tier] || self->words->owner[tier][page] != owner)
        self->wrong++;
    if (page < self->pool->num_pages[tier])
        self->met[tier][page]++;
}

/* As layout.h and pool.h say it: place in the upper half, ticket in the lower. */
static uint64_t owner_word(uint32_t index, uint32_t epoch, uint64_t page)
{
    const uint64_t place = (epoch * UINT64_C(2654435761) + page) % (UINT64_C(1) << 32);
    return (place << 32) + index + 1;
}

size_t pool_words_violations(const pst_pool *pool, const pool_words *words,
                             const ticket_words *tickets, uint32_t num_tickets)
{
    census self = {.pool = pool, .words = words};
    const psti_pool_state *state = &words->state;
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        if (state->tail[tier] - state->head[tier] > pool->num_pages[tier])
            return SIZE_MAX;
    }
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        self.met[tier] = oracle_calloc(pool->num_pages[tier], sizeof(uint32_t));
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        for (uint64_t at = state->head[tier]; at != state->tail[tier]; at++)
            meet(&self, words->ring[tier][at % slots_of(pool, tier)], 0);
    for (uint32_t i = 0; i < num_tickets; i++) {
        const psti_ticket_record *head = &tickets[i].head;
        if (head->state != PSTI_TICKET_LIVE || head->epoch != state->epoch)
            continue;
        for (uint64_t page = 0; page < head->num_pages && page < tickets[i].table_pages; page++)
            meet(&self, tickets[i].table[page], owner_word(head->index, state->epoch, page));
    }
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        for (uint32_t page = 0; page < pool->num_pages[tier]; page++)
            self.wrong += self.met[tier][page] != 1;
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        for (uint32_t page = pool->num_pages[tier]; page < pool->view.max_pages[tier]; page++)
            self.wrong += words->owner[tier][page] != UINT64_MAX; /* no memory is there */
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        free(self.met[tier]);
    return self.wrong;
}
