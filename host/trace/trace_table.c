#include <inttypes.h>
#include <string.h>

#include "host/trace/trace.h"

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

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t key)
{
    key += UINT64_C(0x9e3779b97f4a7c15);
    key = (key ^ (key >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    key = (key ^ (key >> 27)) * UINT64_C(0x94d049bb133111eb);
    return key ^ (key >> 31);
}

/* The slot of the key, or the empty one where it belongs. */
static psti_map_slot *find(const psti_map *map, uint64_t key)
{
    const uint64_t mask = map->num_slots - 1;
    uint64_t at = mix(key) & mask;
    while (map->slots[at].value_plus_1 != 0 && map->slots[at].key != key)
        at = (at + 1) & mask;
    return &map->slots[at];
}

uint64_t psti_map_get(const psti_map *map, uint64_t key)
{
    if (map->num_slots == 0)
        return PSTI_MAP_NONE;
    return find(map, key)->value_plus_1 - 1;
}

static pst_status enlarge(psti_map *map)
{
    psti_map larger = {.num_slots = map->num_slots == 0 ? 64 : map->num_slots * 2,
                       .num_keys = map->num_keys};
    larger.slots = psti_calloc((size_t)larger.num_slots, sizeof(*larger.slots));
    PSTI_CHECK(larger.slots != NULL, PST_E_NOMEM, "out of memory for %" PRIu64 " ids",
               larger.num_slots);
    for (uint64_t i = 0; i < map->num_slots; i++)
        if (map->slots[i].value_plus_1 != 0)
            *find(&larger, map->slots[i].key) = map->slots[i];
    psti_map_free(map);
    *map = larger;
    return PST_OK;
}

pst_status psti_map_set(psti_map *map, uint64_t key, uint64_t value)
{
    if (map->num_keys >= map->num_slots / 4 * 3)
        PSTI_TRY(enlarge(map));
    psti_map_slot *slot = find(map, key);
    map->num_keys += slot->value_plus_1 == 0;
    *slot = (psti_map_slot){key, value + 1};
    return PST_OK;
}

void psti_map_free(psti_map *map)
{
    psti_free(map->slots);
    *map = (psti_map){NULL, 0, 0};
}
