/* The hash table: keys of any value, growth, collisions, removal, and want of memory. */
#include "host/base/table.h"
#include "tests/harness.h"

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
