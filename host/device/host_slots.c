/* Slots of one size in blocks that double and never move. */
#include "host/device/host_slots.h"

#include <string.h>

/* At the end, which a late use of an event does not write. */
static void *link_of(void *object)
{
    return (unsigned char *)object + PSTI_SLOT_BYTES - sizeof(void *);
}

void psti_slots_open(psti_slots *slots)
{
    *slots = (psti_slots){.never_again = psti_env_check_mode()};
}

void psti_slots_close(psti_slots *slots)
{
    for (uint32_t i = 0; i < slots->num_blocks; i++) {
        psti_free(slots->blocks[i].slots);
        psti_free(slots->blocks[i].is_used);
    }
    *slots = (psti_slots){.num_blocks = 0};
}

static bool add_block(psti_slots *slots)
{
    const uint32_t at = slots->num_blocks;
    if (at == PSTI_SLOT_BLOCKS)
        return false;
    psti_slot_block *block = &slots->blocks[at];
    *block = (psti_slot_block){.slots = psti_calloc(psti_slots_in_block(at), PSTI_SLOT_BYTES),
                               .is_used = psti_calloc(psti_slots_in_block(at), 1)};
    if (!block->slots || !block->is_used) {
        psti_free(block->slots);
        psti_free(block->is_used);
        return false;
    }
    slots->num_last = 0;
    __atomic_store_n(&slots->num_blocks, at + 1, __ATOMIC_RELEASE);
    return true;
}

static void mark(psti_slots *slots, const void *object, unsigned char is_used)
{
    for (uint32_t i = 0; i < slots->num_blocks; i++) {
        const psti_slot_block *block = &slots->blocks[i];
        const uintptr_t offset = (uintptr_t)object - (uintptr_t)block->slots;
        if (offset < psti_slots_in_block(i) * PSTI_SLOT_BYTES)
            __atomic_store_n(&block->is_used[offset / PSTI_SLOT_BYTES], is_used, __ATOMIC_RELAXED);
    }
}

/* One that was never used, of the last block or a new one. */
static void *take_new(psti_slots *slots)
{
    const uint32_t num = slots->num_blocks;
    if ((num == 0 || slots->num_last == psti_slots_in_block(num - 1)) && !add_block(slots))
        return NULL;
    return slots->blocks[slots->num_blocks - 1].slots + PSTI_SLOT_BYTES * slots->num_last++;
}

void *psti_slots_take(psti_slots *slots)
{
    const uint32_t num = slots->num_blocks;
    const bool has_new = num > 0 && slots->num_last < psti_slots_in_block(num - 1);
    void *object = NULL;
    if (psti_allocation_fails())
        return NULL;
    if (has_new || !slots->first_free) {
        object = take_new(slots);
    } else {
        object = slots->first_free;
        memcpy(&slots->first_free, link_of(object), sizeof(void *));
        memset(object, 0, PSTI_SLOT_BYTES);
    }
    if (object)
        mark(slots, object, 1);
    return object;
}

void psti_slots_give(psti_slots *slots, void *object)
{
    mark(slots, object, 0);
    if (slots->never_again)
        return;
    memset(object, 0, PSTI_SLOT_BYTES);
    if (slots->first_free)
        memcpy(link_of(slots->last_free), &object, sizeof(void *));
    else
        slots->first_free = object;
    slots->last_free = object;
}
