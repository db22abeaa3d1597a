/* Arrays that grow, arrays that are sorted, and the one hash table: from a 64-bit number to another. */
#ifndef PSTI_HOST_TABLE_H
#define PSTI_HOST_TABLE_H

#include "host/base/base.h"
#include "kernels/core/mix.h"

/* Makes room for `needed` items of `size` bytes; what is new is zero. Fails: NOMEM. */
pst_status psti_grow(void **items, uint64_t *capacity, uint64_t needed, size_t size);

typedef struct psti_pair {
    uint64_t key, value;
} psti_pair;

/* Rising; pairs by key, and those of one key by value. */
void psti_sort_numbers(uint64_t *numbers, uint64_t num);
void psti_sort_pairs(psti_pair *pairs, uint64_t num);
/* Numbers (1 word each) or pairs (2), as long as is_over, asked every 4,096 of them in each pass, says
 * no. False: it said yes; then they are in no order, some may be there twice and others not at all. */
bool psti_sort_until(uint64_t *items, uint64_t num, unsigned words, bool (*is_over)(void *user),
                     void *user);

#define PSTI_MAP_NONE UINT64_MAX /* no such key; not a value */

typedef struct psti_map_slot {
    uint64_t key, value_plus_1; /* 0: empty */
} psti_map_slot;

/* Open addressing, at most three quarters full. All zero: empty. */
typedef struct psti_map {
    psti_map_slot *slots;
    uint64_t num_slots, num_keys; /* slots: a power of two, or none */
} psti_map;

/* Adds the key or changes its value. Fails: NOMEM, and the map is as before. */
pst_status psti_map_set(psti_map *map, uint64_t key, uint64_t value);
void psti_map_remove(psti_map *map, uint64_t key); /* a key that is not there is allowed */
void psti_map_free(psti_map *map);                 /* leaves an empty map */

/* Where the search for a key begins: the high bits of a product, since the arena counts the
 * nanoseconds of psti_mix. */
static inline uint64_t psti_map_home(const psti_map *map, uint64_t key)
{
    return (key * PSTI_MIX_STEP) >> (__builtin_clzll(map->num_slots) + 1);
}

/* The slot of the key, or the empty one where it belongs; the map has slots. */
static inline psti_map_slot *psti_map_slot_of(const psti_map *map, uint64_t key)
{
    uint64_t at = psti_map_home(map, key);
    while (map->slots[at].value_plus_1 != 0 && map->slots[at].key != key)
        at = (at + 1) & (map->num_slots - 1);
    return &map->slots[at];
}

static inline uint64_t psti_map_get(const psti_map *map, uint64_t key)
{
    return map->num_slots == 0 ? PSTI_MAP_NONE : psti_map_slot_of(map, key)->value_plus_1 - 1;
}

#endif
