/* Arrays that grow, sorting, and the hash table of numbers. */
#include "host/base/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MANY = 1024, /* items are sorted by their digits */
    MUCH_BYTES = 1 << 20,
};

pst_status psti_grow(void **items, uint64_t *capacity, uint64_t needed, size_t size)
{
    if (needed <= *capacity)
        return PST_OK;
    const uint64_t part = *capacity < MUCH_BYTES / size ? 2 : 16; /* of much, little is left over */
    uint64_t room = *capacity < 16 ? 16 : *capacity + *capacity / part;
    if (room < needed)
        room = needed;
    const bool is_possible = room <= SIZE_MAX / size;
    void *more =
        is_possible ? psti_enlarge(*items, (size_t)*capacity * size, (size_t)room * size) : NULL;
    PSTI_CHECK(more != NULL, PST_E_NOMEM, "out of memory for %" PRIu64 " items of %zu bytes", room,
               size);
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

/* Items of `words` words, the last word counting least, by one digit after another. False: no memory. */
static bool sort_by_digits(uint64_t *items, uint64_t num, unsigned words)
{
    enum { BITS = 11, DIGITS = 1 << BITS };
    uint64_t *from = items;
    uint64_t *const spare = psti_calloc((size_t)num * words, sizeof(*spare));
    uint64_t *to = spare;
    if (spare == NULL)
        return false;
    for (unsigned word = words; word-- > 0;) {
        uint64_t varied = 0;
        uint64_t rising = 1;
        for (uint64_t i = 0; i < num; i++)
            varied |= from[i * words + word] ^ from[word];
        while (rising < num && from[(rising - 1) * words + word] <= from[rising * words + word])
            rising++;
        if (rising == num) /* what counts less keeps its order */
            continue;
        for (unsigned shift = 0; shift < 64; shift += BITS) {
            uint64_t places[DIGITS] = {0};
            uint64_t place = 0;
            if ((varied >> shift) % DIGITS == 0)
                continue;
            for (uint64_t i = 0; i < num; i++)
                places[(from[i * words + word] >> shift) % DIGITS]++;
            for (unsigned digit = 0; digit < DIGITS; digit++) {
                const uint64_t count = places[digit];
                places[digit] = place;
                place += count;
            }
            for (uint64_t i = 0; i < num; i++) {
                const uint64_t at = places[(from[i * words + word] >> shift) % DIGITS]++;
                for (unsigned w = 0; w < words; w++)
                    to[at * words + w] = from[i * words + w];
            }
            uint64_t *const sorted = to;
            to = from;
            from = sorted;
        }
    }
    if (from != items)
        memcpy(items, from, (size_t)num * words * sizeof(*items));
    psti_free(spare);
    return true;
}

static void sort(void *items, uint64_t num, unsigned words,
                 int (*compare)(const void *, const void *))
{
    const size_t bytes = words * sizeof(uint64_t);
    const char *at = items;
    uint64_t sorted = 1;
    while (sorted < num && compare(at + (sorted - 1) * bytes, at + sorted * bytes) <= 0)
        sorted++;
    if (sorted < num && (num < MANY || !sort_by_digits(items, num, words)))
        qsort(items, (size_t)num, bytes, compare);
}

void psti_sort_numbers(uint64_t *numbers, uint64_t num)
{
    sort(numbers, num, 1, compare_numbers);
}

void psti_sort_pairs(psti_pair *pairs, uint64_t num)
{
    sort(pairs, num, 2, compare_pairs);
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
