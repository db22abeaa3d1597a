/* Streams and events of a host device: objects that are known by their address, so that any pointer
 * may be asked about and none is read that is not one of them. */
#ifndef PSTI_HOST_SLOTS_H
#define PSTI_HOST_SLOTS_H

#include "host/base/base.h"

enum { PSTI_SLOT_BYTES = 64, PSTI_SLOT_BLOCKS = 26, PSTI_FIRST_SLOTS = 64 };

typedef struct psti_slot_block {
    unsigned char *slots;   /* atomic; NULL: not made yet */
    unsigned char *is_used; /* atomic bytes, one per slot */
} psti_slot_block;

/* Block i has PSTI_FIRST_SLOTS << i slots and stays until the close. A slot is used again as late as
 * possible; with PAGESTASH_CHECK=1 never. */
typedef struct psti_slots {
    psti_slot_block blocks[PSTI_SLOT_BLOCKS];
    uint32_t num_blocks;          /* atomic */
    uint32_t num_last;            /* slots of the last block that were ever used */
    void *first_free, *last_free; /* a list through the ends of the slots */
    bool never_again;
} psti_slots;

void psti_slots_open(psti_slots *slots);
void psti_slots_close(psti_slots *slots);
/* A zeroed object; NULL without memory. The caller serialises take and give. */
void *psti_slots_take(psti_slots *slots);
void psti_slots_give(psti_slots *slots, void *object);

static inline size_t psti_slots_in_block(uint32_t block)
{
    return (size_t)PSTI_FIRST_SLOTS << block;
}

/* Threads: any. */
static inline bool psti_slots_has(const psti_slots *slots, const void *object)
{
    const uint32_t num_blocks = __atomic_load_n(&slots->num_blocks, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < num_blocks; i++) {
        const psti_slot_block *block = &slots->blocks[i];
        const uintptr_t offset = (uintptr_t)object - (uintptr_t)block->slots;
        if (offset < psti_slots_in_block(i) * PSTI_SLOT_BYTES)
            return offset % PSTI_SLOT_BYTES == 0 &&
                   __atomic_load_n(&block->is_used[offset / PSTI_SLOT_BYTES], __ATOMIC_RELAXED);
    }
    return false;
}

#endif
