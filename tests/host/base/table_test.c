/* The hash table: keys of any value, growth, collisions, removal, and want of memory. */
#include "host/base/table.h"
#include "tests/harness.h"

#include <stdlib.h>

enum { MANY = 3000, HOMES = 64 };

PST_TEST(Table, EmptyMapHoldsNothing)
{
    psti_map map = {NULL, 0, 0};
    CHECK_EQ(psti_map_get(&map, 0), PSTI_MAP_NONE);
    psti_map_remove(&map, 0);
    CHECK_OK(psti_map_set(&map, 0, 0)); /* key and value 0 are like any other */
    CHECK_EQ(psti_map_get(&map, 0), 0);
    CHECK_EQ(psti_map_get(&map, 1), PSTI_MAP_NONE);
    CHECK_OK(psti_map_set(&map, 0, PSTI_MAP_NONE - 1));
    CHECK_EQ(psti_map_get(&map, 0), PSTI_MAP_NONE - 1);
    CHECK_EQ(map.num_keys, 1);
    psti_map_remove(&map, 0);
    CHECK_EQ(psti_map_get(&map, 0), PSTI_MAP_NONE);
    CHECK_EQ(map.num_keys, 0);
    psti_map_free(&map);
    CHECK_EQ(psti_map_get(&map, 0), PSTI_MAP_NONE);
}

PST_TEST(Table, GrowsAndShrinksAsKeysComeAndGo)
{
    psti_map map = {NULL, 0, 0};
    for (uint64_t i = 0; i < MANY; i++)
        CHECK_OK(psti_map_set(&map, i * 512, i));
    CHECK_EQ(map.num_keys, MANY);
    CHECK(map.num_keys <= map.num_slots / 4 * 3);
    for (uint64_t i = 0; i < MANY; i += 3)
        psti_map_remove(&map, i * 512);
    for (uint64_t i = 0; i < MANY; i++)
        CHECK_EQ(psti_map_get(&map, i * 512), i % 3 == 0 ? PSTI_MAP_NONE : i);
    CHECK_EQ(map.num_keys, MANY / 3 * 2);
    psti_map_free(&map);
}

/* Keys that begin at the same of 64 slots, the last one, so that they wrap round to the first; one
 * after another is removed while others of the next homes stand among them. */
PST_TEST(Table, RemovalKeepsWhatCollided)
{
    enum { KEYS = 12 };
    for (int gone = 0; gone < KEYS; gone++) {
        psti_map map = {NULL, 0, 0};
        uint64_t keys[KEYS];
        int num = 0;
        for (uint64_t key = 0; num < KEYS; key++) {
            const uint64_t home = psti_map_home(&(psti_map){.num_slots = HOMES}, key);
            if (home == (num % 3 == 2 ? 0 : HOMES - 1))
                keys[num++] = key;
        }
        for (int i = 0; i < KEYS; i++)
            CHECK_OK(psti_map_set(&map, keys[i], (uint64_t)i));
        CHECK_EQ(map.num_slots, HOMES);
        psti_map_remove(&map, keys[gone]);
        for (int i = 0; i < KEYS; i++)
            CHECK_EQ(psti_map_get(&map, keys[i]), i == gone ? PSTI_MAP_NONE : (uint64_t)i);
        psti_map_free(&map);
    }
}

PST_TEST(Table, WantOfMemoryLeavesTheMapAsItWas)
{
    psti_map map = {NULL, 0, 0};
    psti_fail_allocation_after(0);
    CHECK_STATUS(psti_map_set(&map, 5, 6), PST_E_NOMEM);
    psti_fail_allocation_after(-1);
    CHECK_EQ(psti_map_get(&map, 5), PSTI_MAP_NONE);
    for (uint64_t i = 0; i < HOMES / 4 * 3; i++)
        CHECK_OK(psti_map_set(&map, i, i));
    psti_fail_allocation_after(0);
    CHECK_STATUS(psti_map_set(&map, HOMES, 1), PST_E_NOMEM);
    psti_fail_allocation_after(-1);
    CHECK_EQ(map.num_keys, HOMES / 4 * 3);
    for (uint64_t i = 0; i < HOMES / 4 * 3; i++)
        CHECK_EQ(psti_map_get(&map, i), i);
    CHECK_OK(psti_map_set(&map, HOMES, 1));
    CHECK_EQ(psti_map_get(&map, HOMES), 1);
    psti_map_free(&map);
}

PST_TEST(Table, ArraysGrowByHalfAndAreZeroAtTheEnd)
{
    uint32_t *items = NULL;
    uint64_t capacity = 0;
    CHECK_OK(psti_grow((void **)&items, &capacity, 1, sizeof(*items)));
    CHECK_EQ(capacity, 16);
    items[15] = 7;
    CHECK_OK(psti_grow((void **)&items, &capacity, 17, sizeof(*items)));
    CHECK_EQ(capacity, 24);
    CHECK_EQ(items[15], 7);
    CHECK_EQ(items[23], 0);
    psti_fail_allocation_after(0);
    CHECK_STATUS(psti_grow((void **)&items, &capacity, 25, sizeof(*items)), PST_E_NOMEM);
    psti_fail_allocation_after(-1);
    CHECK_STATUS(psti_grow((void **)&items, &capacity, UINT64_MAX, sizeof(*items)), PST_E_NOMEM);
    CHECK_EQ(items[15], 7);
    psti_free(items);
}

/* ---- sorting */

static int by_both(const void *a, const void *b)
{
    const psti_pair *x = a;
    const psti_pair *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

static int by_first(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Around the number from which on digits are used; keys of few bits, of many, and alike. */
PST_TEST(Table, SortsAsQsortDoes)
{
    static const uint32_t lengths[] = {0, 1, 2, 1000, 1023, 1024, 5000};
    static psti_pair pairs[5000], want[5000];
    static uint64_t numbers[5000];
    uint64_t random = 3;
    for (uint32_t bits = 0; bits <= 64; bits += 8)
        for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
            const uint32_t num = lengths[k];
            for (uint32_t i = 0; i < num; i++) {
                random = psti_mix(random);
                want[i].key = bits > 0 ? random >> (64 - bits) : 0;
                want[i].value = i % 3 == 0 ? random : i % 7;
                numbers[i] = want[i].key;
            }
            memcpy(pairs, want, sizeof(pairs));
            qsort(want, num, sizeof(*want), by_both);
            psti_sort_pairs(pairs, num);
            psti_sort_numbers(numbers, num);
            CHECK_EQ(memcmp(pairs, want, num * sizeof(*want)), 0);
            for (uint32_t i = 0; i < num; i++)
                CHECK_EQ(numbers[i], want[i].key);
        }
}

/* A clock that is over at its n-th question. */
typedef struct asked {
    uint64_t num, until;
} asked;

static bool is_over(void *user)
{
    asked *of = user;
    return ++of->num >= of->until;
}

/* For each word one look at its bits, which begins at the second item, and two passes for each of its
 * digits: of a random word 6. */
PST_TEST(Table, SortsUntilItIsOver)
{
    enum { STRIDES = 5, NUM = STRIDES * 4096, QUESTIONS = STRIDES - 1 + 2 * 6 * STRIDES };
    static uint64_t items[2 * NUM], sorted[2 * NUM];
    for (unsigned words = 1; words <= 2; words++) {
        asked all = {0, UINT64_MAX};
        for (uint64_t i = 0; i < (uint64_t)words * NUM; i++)
            sorted[i] = psti_mix(i);
        CHECK(psti_sort_until(sorted, NUM, words, is_over, &all));
        CHECK_EQ(all.num, (uint64_t)words * QUESTIONS);
        for (uint64_t n = 1; n <= all.num; n++) {
            asked some = {0, n};
            for (uint64_t i = 0; i < (uint64_t)words * NUM; i++)
                items[i] = psti_mix(i);
            CHECK(!psti_sort_until(items, NUM, words, is_over, &some));
            CHECK_EQ(some.num, n); /* and no more */
        }
        for (uint64_t i = 0; i < NUM; i++) /* nothing that was not there */
            CHECK(bsearch(items + i * words, sorted, NUM, words * sizeof(*items), by_first) !=
                  NULL);
    }
}

PST_TEST(Table, SortsWithoutMemory)
{
    static uint64_t numbers[4000];
    for (uint64_t i = 0; i < 4000; i++)
        numbers[i] = psti_mix(i);
    psti_fail_allocation_after(0);
    psti_sort_numbers(numbers, 4000);
    psti_fail_allocation_after(-1);
    for (uint32_t i = 1; i < 4000; i++)
        CHECK(numbers[i - 1] < numbers[i]);
}
