/* Arrays that grow, sorting, and the hash table of numbers. */
#include "host/base/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

pst_status psti_grow(void **items, uint64_t *capacity, uint64_t needed, size_t size)
{
    if (needed <= *capacity)
        return PST_OK;
    uint64_t room = *capacity < 16 ? 16 : *capacity + *capacity / 2;
    if (room < needed)
        room = needed;
    void *more = room <= SIZE_MAX / size ? psti_calloc((size_t)room, size) : NULL;
    PSTI_CHECK(more != NULL, PST_E_NOMEM, "out of memory for %" PRIu64 " items of %zu bytes", room,
               size);
    if (*capacity > 0)
        memcpy(more, *items, (size_t)*capacity * size);
    psti_free(*items);
    *items = more;
    *capacity = room;
    return PST_OK;
}

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int compare_pairs(const void *a, const void *b)
{
    const psti_pair *x = a;
    const psti_pair *y = b;
    const int by_key = compare_numbers(&x->key, &y->key);
    return by_key != 0 ? by_key : compare_numbers(&x->value, &y->value);
}

void psti_sort_numbers(uint64_t *numbers, uint64_t num)
{
    if (num > 1)
        qsort(numbers, (size_t)num, sizeof(*numbers), compare_numbers);
}

void psti_sort_pairs(psti_pair *pairs, uint64_t num)
{
    if (num > 1)
        qsort(pairs, (size_t)num, sizeof(*pairs), compare_pairs);
}

static pst_status enlarge(psti_map *map)
{
    psti_map larger = {.num_slots = map->num_slots == 0 ? 64 : map->num_slots * 2,
                       .num_keys = map->num_keys};
    larger.slots = psti_calloc((size_t)larger.num_slots, sizeof(*larger.slots));
    PSTI_CHECK(larger.slots != NULL, PST_E_NOMEM, "out of memory for %" PRIu64 " keys",
               larger.num_slots);
    for (uint64_t i = 0; i < map->num_slots; i++)
        if (map->slots[i].value_plus_1 != 0)
            *psti_map_slot_of(&larger, map->slots[i].key) = map->slots[i];
    psti_map_free(map);
    *map = larger;
    return PST_OK;
}

pst_status psti_map_set(psti_map *map, uint64_t key, uint64_t value)
{
    if (map->num_keys >= map->num_slots / 4 * 3)
        PSTI_TRY(enlarge(map));
    psti_map_slot *slot = psti_map_slot_of(map, key);
    map->num_keys += slot->value_plus_1 == 0;
    *slot = (psti_map_slot){key, value + 1};
    return PST_OK;
}

/* Keys that stood behind it for want of room move up, so that no search ends too early. */
void psti_map_remove(psti_map *map, uint64_t key)
{
    if (psti_map_get(map, key) == PSTI_MAP_NONE)
        return;
    const uint64_t mask = map->num_slots - 1;
    uint64_t hole = (uint64_t)(psti_map_slot_of(map, key) - map->slots);
    for (uint64_t at = (hole + 1) & mask; map->slots[at].value_plus_1 != 0; at = (at + 1) & mask) {
        const uint64_t home = psti_map_home(map, map->slots[at].key);
        if (((at - home) & mask) < ((at - hole) & mask))
            continue; /* it belongs behind the hole */
        map->slots[hole] = map->slots[at];
        hole = at;
    }
    map->slots[hole].value_plus_1 = 0;
    map->num_keys--;
}

void psti_map_free(psti_map *map)
{
    psti_free(map->slots);
    *map = (psti_map){NULL, 0, 0};
}
