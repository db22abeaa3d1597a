/* Lockstep: the bytes of pages, compared with the oracle's, and cleared. */
#include <inttypes.h>
#include <stdio.h>

#include "tests/oracle/lockstep.h"

static unsigned char *page_at(const lockstep *ls, uint32_t id)
{
    const psti_pool_view *view = &ls->pool->view;
    return view->pages[id >> 31] + ((size_t)(id & 0x7fffffffu) << view->page_shift);
}

void ls_compare_pages(lockstep *ls, uint32_t index)
{
    const oracle_ticket *ticket = &ls->oracle->tickets[index];
    const size_t page_bytes = (size_t)1 << ls->pool->view.page_shift;
    if (ls->replays)
        return;
    unsigned char *found = ls_scratch(ls, page_bytes);
    for (uint64_t page = 0; ticket->state == ORACLE_LIVE && page < ticket->num_pages; page++) {
        LS_TRY(pst_device_copy(ls->device, found, page_at(ls, ticket->ids[page]), page_bytes,
                               ls->stream));
        LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
        for (size_t i = 0; i < page_bytes && !ls->failed; i++) {
            const uint64_t position = page * page_bytes + i;
            if (ticket->is_live[position])
                LS_SAME(found[i], ticket->bytes[position], "byte %" PRIu64 " of the stream",
                        position);
        }
    }
}

void ls_compare_free_pages(lockstep *ls)
{
    const size_t page_bytes = (size_t)1 << ls->pool->view.page_shift;
    unsigned char *found = ls_scratch(ls, page_bytes);
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        for (uint64_t i = 0; i < ls->oracle->num_free[tier] && !ls->failed; i++) {
            const uint32_t id = ls->oracle->free_ids[tier][i];
            LS_TRY(pst_device_copy(ls->device, found, page_at(ls, id), page_bytes, ls->stream));
            LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
            for (size_t at = 0; at < page_bytes; at++)
                LS_SAME(found[at], 0, "byte %zu of free page %" PRIu32, at, id);
        }
}

void ls_clear_pages(lockstep *ls, const uint32_t *first)
{
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        for (uint32_t page = first[tier]; page < ls->pool->num_pages[tier]; page++)
            LS_TRY(pst_device_fill(ls->device, page_at(ls, oracle_id(tier, page)), 0,
                                   (size_t)1 << ls->pool->view.page_shift, ls->stream));
}
