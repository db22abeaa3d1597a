/* The mailbox: the device publishes the status block, the host reads it without waiting for it.
 *
 * tests/model/mailbox.cc compiles this file with words and orders of a checker of memory models,
 * and says there what each order is for. */
#ifndef PSTI_CORE_MAILBOX_H
#define PSTI_CORE_MAILBOX_H

#include "kernels/core/fn.h"
#include "kernels/core/layout.h"

#include <string.h>

/* Publication n goes to slot n % 2, so a reader always has the other slot whole. One thread
 * publishes at a time. */
PSTI_FN void psti_publish_status(const pst_pool_status *status, psti_mailbox *mailbox)
{
    const uint64_t sequence = status->steps;
    psti_mailbox_slot *slot = &mailbox->slots[sequence % 2];
    const uint64_t *words = (const uint64_t *)status;
    psti_store_before_system_u64(&slot->sequence, 0);
    for (uint32_t i = 0; i < sizeof(*status) / 8; i++)
        psti_store_behind_system_u64(&slot->words[i], words[i]);
    psti_store_release_system_u64(&slot->sequence, sequence);
}

/* The largest number of all steps, by the step kernel before it publishes its status. Who reads it
 * knows that what was enqueued with the tickets given up to that number is done: the step ran
 * behind it. */
PSTI_FN void psti_publish_covered(psti_pool_state *state, uint64_t covered, psti_mailbox *mailbox)
{
    state->covered = psti_max_u64(state->covered, covered);
    psti_store_release_system_u64(&mailbox->covered, state->covered);
}

PSTI_FN uint64_t psti_read_covered(const psti_mailbox *mailbox)
{
    return psti_load_acquire_u64(&mailbox->covered);
}

/* Copies a slot; false, and no copy, when it was never written or was being written meanwhile. */
PSTI_FN bool psti_read_slot(const psti_mailbox_slot *slot, pst_pool_status *status)
{
    uint64_t words[sizeof(*status) / 8];
    const uint64_t before = psti_load_acquire_u64(&slot->sequence);
    for (uint32_t i = 0; i < sizeof(*status) / 8; i++)
        words[i] = psti_load_acquire_u64(&slot->words[i]);
    if (before == 0 || psti_load_relaxed_u64(&slot->sequence) != before)
        return false;
    memcpy(status, words, sizeof(words));
    return true;
}

/* The newer slot is read after both sequences were seen: what a reader gets is never older than
 * what it got before, however late the second slot is looked at. */
PSTI_FN bool psti_read_mailbox(const psti_mailbox *mailbox, pst_pool_status *status)
{
    const uint64_t a = psti_load_acquire_u64(&mailbox->slots[0].sequence);
    const uint64_t b = psti_load_acquire_u64(&mailbox->slots[1].sequence);
    return psti_read_slot(&mailbox->slots[b > a], status);
}

#endif
