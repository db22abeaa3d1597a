/* Canaries: known bytes behind the parts of a pool's metadata, with PAGESTASH_CHECK=1. */
#include "host/stash/stash.h"

/* Bytes of canaries_seen for each part. */
enum { SEEN_BYTES = 2 * PSTI_CANARY_BYTES };

static const char *const names[PSTI_NUM_PARTS] = {
#define PSTI_CANARY_NAME(name, what) what,
    PSTI_CANARY_LIST(PSTI_CANARY_NAME)
#undef PSTI_CANARY_NAME
};

/* 0xc0 to 0xfc: no zeros, no ones, and other bytes from place to place and from part to part, so that
 * bytes that were moved there show, too. */
static unsigned char byte_at(uint32_t salt, uint64_t i)
{
    return (unsigned char)(0xc0 + (11 * salt + i) % 61);
}

static void fill(unsigned char *canary, uint32_t salt, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        canary[i] = byte_at(salt, i);
}

/* The first wrong byte, or `bytes`. A copy may be on its way into the bytes. Each is the canary's or the
 * damage's at any moment, so nothing is missed or made up; the sanitizer cannot know that. */
__attribute__((no_sanitize("thread"))) static uint64_t
find_wrong(const volatile unsigned char *canary, uint32_t salt, uint64_t bytes,
           unsigned char *found_out)
{
    for (uint64_t i = 0; i < bytes; i++) {
        *found_out = canary[i];
        if (*found_out != byte_at(salt, i))
            return i;
    }
    return bytes;
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
        unsigned char *written = pool->canaries_seen + (size_t)part * SEEN_BYTES;
        fill(written, part, canary->bytes);
        if (canary->at)
            PSTI_TRY(device->ops->copy(device, canary->at, written, (size_t)canary->bytes,
                                       pool->stream));
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
            PSTI_TRY(device->ops->copy(device, pool->canaries_seen + (size_t)part * SEEN_BYTES,
                                       canary->at, (size_t)canary->bytes, stream));
    }
    return PST_OK;
}

pst_status psti_canaries_compare(const pst_pool *pool)
{
    unsigned char found = 0;
    for (uint32_t part = 0; part < PSTI_NUM_PARTS && pool->canaries_seen; part++) {
        const uint64_t bytes = pool->canaries[part].bytes;
        const uint64_t wrong =
            find_wrong(pool->canaries_seen + (size_t)part * SEEN_BYTES, part, bytes, &found);
        PSTI_CHECK(wrong == bytes, PST_E_DAMAGED,
                   "the pool's memory was overwritten behind its %s: byte %u is 0x%02x, not 0x%02x",
                   names[part], (unsigned)wrong, found, byte_at(part, wrong));
    }
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
    unsigned char canary[PSTI_CANARY_BYTES];
    if (psti_canary_room() == 0)
        return PST_OK;
    fill(canary, PSTI_NUM_PARTS, sizeof(canary));
    return psti_pool_copy(ticket->pool, canary_of(ticket), canary, sizeof(canary));
}

pst_status psti_ticket_canary_look(const psti_ticket *ticket)
{
    unsigned char canary[PSTI_CANARY_BYTES];
    unsigned char found = 0;
    if (psti_canary_room() == 0)
        return PST_OK;
    PSTI_TRY(psti_pool_copy(ticket->pool, canary, canary_of(ticket), sizeof(canary)));
    const uint64_t wrong = find_wrong(canary, PSTI_NUM_PARTS, sizeof(canary), &found);
    PSTI_CHECK(
        wrong == sizeof(canary), PST_E_DAMAGED,
        "memory was overwritten behind the record of ticket %u: byte %u is 0x%02x, not 0x%02x",
        ticket->index, (unsigned)wrong, found, byte_at(PSTI_NUM_PARTS, wrong));
    return PST_OK;
}
