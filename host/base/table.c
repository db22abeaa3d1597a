/* Arrays that grow, sorting, and the hash table of numbers. */
#include "host/base/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MANY = 1024, /* items are sorted by their digits */
    BITS = 11,   /* of a digit */
    DIGITS = 1 << BITS,
    STRIDE = 4096, /* items of a pass until the next question whether it is over */
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

/* What is sorted, by one digit after another, and who is asked whether to go on. */
typedef struct sorter {
    uint64_t *from, *to; /* [num * words] */
    uint64_t num;
    unsigned words;
    bool (*is_over)(void *user);
    void *user;
} sorter;

static bool is_over(const sorter *of, uint64_t i)
{
    return i % STRIDE == 0 && of->is_over != NULL && of->is_over(of->user);
}

/* Moves the items by one digit of one word. False: it is over. */
static bool move_by_digit(sorter *of, unsigned word, unsigned shift)
{
    uint64_t places[DIGITS] = {0};
    uint64_t place = 0;
    const unsigned words = of->words;
    for (uint64_t i = 0; i < of->num; i++) {
        if (is_over(of, i))
            return false;
        places[(of->from[i * words + word] >> shift) % DIGITS]++;
    }
    for (unsigned digit = 0; digit < DIGITS; digit++) {
        const uint64_t count = places[digit];
        places[digit] = place;
        place += count;
    }
    for (uint64_t i = 0; i < of->num; i++) {
        if (is_over(of, i))
            return false;
        const uint64_t at = places[(of->from[i * words + word] >> shift) % DIGITS]++;
        for (unsigned w = 0; w < words; w++)
            of->to[at * words + w] = of->from[i * words + w];
    }
    uint64_t *const sorted = of->to;
    of->to = of->from;
    of->from = sorted;
    return true;
}

/* By a word, by as many digits as vary. False: it is over. */
static bool sort_by_word(sorter *of, unsigned word)
{
    const unsigned words = of->words;
    uint64_t varied = 0;
    bool is_rising = true;
    for (uint64_t i = 1; i < of->num; i++) {
        if (is_over(of, i))
            return false;
        varied |= of->from[i * words + word] ^ of->from[word];
        is_rising = is_rising && of->from[(i - 1) * words + word] <= of->from[i * words + word];
    }
    bool right = true; /* what counts less keeps its order where the word rises */
    for (unsigned shift = 0; shift < 64 && right && !is_rising; shift += BITS)
        right = (varied >> shift) % DIGITS == 0 || move_by_digit(of, word, shift);
    return right;
}

/* The last word counts least. False: it is over. */
static bool sort_by_digits(sorter *of)
{
    uint64_t *const items = of->from;
    const uint64_t num_words = of->num * of->words;
    bool right = true;
    for (unsigned word = of->words; word-- > 0 && right;)
        right = sort_by_word(of, word);
    for (uint64_t i = 0; i < num_words && of->from != items && right; i += STRIDE) {
        const uint64_t left = num_words - i;
        memcpy(items + i, of->from + i, (left < STRIDE ? left : STRIDE) * sizeof(*items));
        right = !is_over(of, i);
    }
    return right;
}

bool psti_sort_until(uint64_t *items, uint64_t num, unsigned words, bool (*ask)(void *user),
                     void *user)
{
    sorter of = {.from = items, .num = num, .words = words, .is_over = ask, .user = user};
    const size_t bytes = words * sizeof(*items);
    int (*const compare)(const void *, const void *) = words == 1 ? compare_numbers : compare_pairs;
    uint64_t sorted = 1;
    for (; sorted < num; sorted++) {
        if (is_over(&of, sorted))
            return false;
        if (compare(items + (sorted - 1) * words, items + sorted * words) > 0)
            break;
    }
    if (sorted >= num)
        return true;
    uint64_t *const spare = num < MANY ? NULL : psti_calloc((size_t)num * words, sizeof(*spare));
    if (spare == NULL) {
        qsort(items, (size_t)num, bytes, compare);
        return true;
    }
    of.to = spare;
    const bool right = sort_by_digits(&of);
    psti_free(spare);
    return right;
}

void psti_sort_numbers(uint64_t *numbers, uint64_t num)
{
    (void)psti_sort_until(numbers, num, 1, NULL, NULL);
}

void psti_sort_pairs(psti_pair *pairs, uint64_t num)
{
    (void)psti_sort_until((uint64_t *)pairs, num, 2, NULL, NULL);
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
