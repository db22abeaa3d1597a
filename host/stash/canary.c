/* Canaries: known bytes behind the parts of a pool's metadata, with PAGESTASH_CHECK=1. */
#include "host/stash/stash.h"

/* Bytes of canaries_seen for each part. */
enum { SEEN_BYTES = 2 * PSTI_CANARY_BYTES };

static const char *const names[PSTI_NUM_PARTS] = {
#define PSTI_CANARY_NAME(name, what) what,
    PSTI_CANARY_LIST(PSTI_CANARY_NAME)
#undef PSTI_CANARY_NAME
};

/* Bytes 0x80 to 0xbf: no zeros, no ones, and others from place to place and from part to part, so that bytes
 * that were moved there show, too. */
static uint64_t word_at(uint32_t salt, uint64_t i)
{
    return UINT64_C(0x8786858483828180) + UINT64_C(0x0101010101010101) * (8 * (salt + i) % 64);
}

static unsigned char byte_of(uint64_t word, uint64_t i)
{
    return (unsigned char)(word >> (8 * i));
}

static void fill(uint64_t *canary, uint32_t salt, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes / sizeof(*canary); i++)
        canary[i] = word_at(salt, i);
}

typedef struct wrong_byte {
    unsigned at;
    unsigned char found, known;
} wrong_byte;

/* False: all bytes are right. A copy may be on its way into them: each is the canary's or the damage's at
 * any moment, so nothing is missed or made up; the sanitizer cannot know that. */
__attribute__((no_sanitize("thread"))) static bool
find_wrong(const volatile uint64_t *canary, uint32_t salt, uint64_t bytes, wrong_byte *wrong_out)
{
    for (uint64_t i = 0; i < bytes / sizeof(*canary); i++) {
        const uint64_t found = canary[i], known = word_at(salt, i);
        if (found == known)
            continue;
        const uint64_t at = (uint64_t)__builtin_ctzll(found ^ known) / 8;
        *wrong_out = (wrong_byte){(unsigned)(8 * i + at), byte_of(found, at), byte_of(known, at)};
        return true;
    }
    return false;
}

/* What compare looks at for a part: SEEN_BYTES, of which copies write those of the canary. */
static uint64_t *seen_of(const pst_pool *pool, uint32_t part)
{
    return pool->canaries_seen + part * (SEEN_BYTES / sizeof(uint64_t));
}

pst_status psti_canaries_write(pst_pool *pool)
{
    pst_device *device = pool->device;
    void *seen = NULL;
    if (psti_canary_room() == 0)
        return PST_OK;
    PSTI_TRY(psti_part_alloc_pinned(device, PSTI_NUM_PARTS * SEEN_BYTES, &seen));
    pool->canaries_seen = seen;
    for (uint32_t part = 0; part < PSTI_NUM_PARTS; part++) {
        const psti_canary *canary = &pool->canaries[part];
        fill(seen_of(pool, part), part, SEEN_BYTES);
        if (canary->at)
            PSTI_TRY(device->ops->copy(device, canary->at, seen_of(pool, part),
                                       (size_t)canary->bytes, pool->stream));
    }
    return PST_OK;
}

pst_status psti_canaries_fetch(pst_pool *pool, pst_stream stream)
{
    pst_device *device = pool->device;
    if (!pool->canaries_seen)
        return PST_OK;
    for (uint32_t part = 0; part < PSTI_NUM_PARTS; part++) {
        const psti_canary *canary = &pool->canaries[part];
        if (canary->at)
            PSTI_TRY(device->ops->copy(device, seen_of(pool, part), canary->at,
                                       (size_t)canary->bytes, stream));
    }
    return PST_OK;
}

pst_status psti_canaries_compare(const pst_pool *pool)
{
    wrong_byte wrong;
    for (uint32_t part = 0; part < PSTI_NUM_PARTS && pool->canaries_seen; part++)
        PSTI_CHECK(!find_wrong(seen_of(pool, part), part, SEEN_BYTES, &wrong), PST_E_DAMAGED,
                   "the pool's memory was overwritten behind its %s: byte %u is 0x%02x, not 0x%02x",
                   names[part], wrong.at, wrong.found, wrong.known);
    return PST_OK;
}

/* ---- tickets that were created ---- */

static unsigned char *canary_of(const psti_ticket *ticket)
{
    return (unsigned char *)ticket->record +
           psti_record_bytes(&ticket->pool->view, ticket->count_room, ticket->table_pages);
}

pst_status psti_ticket_canary_write(const psti_ticket *ticket)
{
    uint64_t canary[PSTI_CANARY_BYTES / sizeof(uint64_t)];
    if (psti_canary_room() == 0)
        return PST_OK;
    fill(canary, PSTI_NUM_PARTS, sizeof(canary));
    return psti_pool_copy(ticket->pool, canary_of(ticket), canary, sizeof(canary));
}

pst_status psti_ticket_canary_look(const psti_ticket *ticket)
{
    uint64_t canary[PSTI_CANARY_BYTES / sizeof(uint64_t)];
    wrong_byte wrong;
    if (psti_canary_room() == 0)
        return PST_OK;
    PSTI_TRY(psti_pool_copy(ticket->pool, canary, canary_of(ticket), sizeof(canary)));
    PSTI_CHECK(
        !find_wrong(canary, PSTI_NUM_PARTS, sizeof(canary), &wrong), PST_E_DAMAGED,
        "memory was overwritten behind the record of ticket %u: byte %u is 0x%02x, not 0x%02x",
        ticket->index, wrong.at, wrong.found, wrong.known);
    return PST_OK;
}
