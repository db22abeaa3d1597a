/* All tickets of the process by number. A number is a generation and a place; places are used again,
 * numbers never are, and the memory of the table stays. So a number that is stale or was never issued
 * is found out without reading anything that may be gone. */
#include "host/stash/stash.h"

#include <inttypes.h>

#define PLACE_BITS 24
#define CHUNK_BITS 12
#define CHUNK_PLACES (1u << CHUNK_BITS)
#define NUM_CHUNKS (1u << (PLACE_BITS - CHUNK_BITS))
#define LAST_GENERATION ((UINT64_C(1) << (64 - PLACE_BITS)) - 1)

typedef struct place {
    uint64_t id; /* atomic: the number in force, 0: none */
    psti_ticket *ticket;
    uint64_t generation; /* of the last number */
    uint32_t next_free;  /* place + 1, 0: none */
} place;

static place *chunks[NUM_CHUNKS]; /* atomic */
static psti_lock lock = PSTI_LOCK_INIT;
static uint32_t num_places;
static uint32_t first_free; /* place + 1 */

static place *place_at(uint32_t slot)
{
    place *chunk = __atomic_load_n(&chunks[slot >> CHUNK_BITS], __ATOMIC_ACQUIRE);
    return chunk ? &chunk[slot & (CHUNK_PLACES - 1)] : NULL;
}

/* One more place; with the lock. */
static pst_status add_place(uint32_t *slot_out)
{
    PSTI_CHECK(num_places < NUM_CHUNKS * CHUNK_PLACES, PST_E_NOMEM,
               "%u tickets exist in this process, more cannot", num_places);
    if (num_places % CHUNK_PLACES == 0) {
        place *chunk = psti_calloc(CHUNK_PLACES, sizeof(*chunk));
        PSTI_CHECK(chunk, PST_E_NOMEM, "no memory for the table of tickets");
        __atomic_store_n(&chunks[num_places / CHUNK_PLACES], chunk, __ATOMIC_RELEASE);
    }
    *slot_out = num_places++;
    return PST_OK;
}

static void remember(void)
{
    psti_lock_remember(&lock, PSTI_RANK_TICKETS);
}

pst_status psti_ticket_enlist(psti_ticket *ticket)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint32_t slot = 0;
    pst_status status = PST_OK;
    pthread_once(&once, remember);
    psti_lock_take(&lock);
    if (first_free) {
        slot = first_free - 1;
        first_free = place_at(slot)->next_free;
    } else {
        status = add_place(&slot);
    }
    if (status == PST_OK) {
        place_at(slot)->ticket = ticket;
        ticket->slot = slot + 1;
    }
    psti_lock_give(&lock);
    return status;
}

void psti_ticket_delist(psti_ticket *ticket)
{
    if (!ticket->slot)
        return;
    place *at = place_at(ticket->slot - 1);
    __atomic_store_n(&at->id, 0, __ATOMIC_RELEASE);
    psti_lock_take(&lock);
    at->ticket = NULL;
    if (at->generation < LAST_GENERATION) { /* else it is never used again */
        at->next_free = first_free;
        first_free = ticket->slot;
    }
    ticket->slot = 0;
    psti_lock_give(&lock);
}

pst_status psti_ticket_issue(psti_ticket *ticket, pst_ticket *issued_out)
{
    if (place_at(ticket->slot - 1)->generation == LAST_GENERATION) {
        psti_ticket_delist(ticket);
        PSTI_TRY(psti_ticket_enlist(ticket));
    }
    place *at = place_at(ticket->slot - 1);
    issued_out->id = ++at->generation << PLACE_BITS | (ticket->slot - 1);
    ticket->lease = issued_out->id;
    ticket->is_cleared = false;
    __atomic_store_n(&at->id, issued_out->id, __ATOMIC_RELEASE);
    return PST_OK;
}

bool psti_ticket_revoke(const psti_ticket *ticket, pst_ticket number)
{
    return __atomic_compare_exchange_n(&place_at(ticket->slot - 1)->id, &number.id, 0, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

psti_ticket *psti_ticket_find(pst_ticket ticket)
{
    const place *at = place_at((uint32_t)(ticket.id & ((1u << PLACE_BITS) - 1)));
    if (!at || ticket.id == 0 || __atomic_load_n(&at->id, __ATOMIC_ACQUIRE) != ticket.id)
        return NULL;
    return at->ticket;
}
