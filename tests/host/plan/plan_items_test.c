/* The planner's items: slots and live bytes against a look at every instant. */
#include "tests/harness.h"
#include "tests/host/plan/plan_scene.h"

/* Slots keep exactly the conflicts; the live size is that of the busiest instant. */
static void run_case(uint64_t seed, bool has_streams)
{
    enum { N = 10, INSTANTS = 12 };
    scene of;
    scene_make(&of, seed, N, INSTANTS, 9);
    if (has_streams)
        scene_add_streams(&of, seed, INSTANTS);
    psti_items items;
    CHECK_OK(psti_items_of_problem(&of.problem, true, NULL, &items));
    CHECK(items.num_slots <= N && items.num_slots >= 1);
    const uint32_t streams = items.num_streams;
    for (uint32_t a = 0; a < N; a++)
        for (uint32_t b = 0; b < N; b++) {
            const bool share = items.begin[a] < items.end[(size_t)b * streams + items.stream[a]] &&
                               items.begin[b] < items.end[(size_t)a * streams + items.stream[b]];
            CHECK_MSG(share == scene_conflict(&of, a, b), "seed %llu: %u and %u",
                      (unsigned long long)seed, a, b);
        }
    uint64_t most_live = 0;
    for (uint64_t t = 0; t < 2 * INSTANTS; t++) {
        uint64_t live_size = 0;
        for (uint32_t i = 0; i < N; i++)
            live_size +=
                of.tensors[i].begin <= t && t < of.tensors[i].end ? of.tensors[i].bytes : 0;
        most_live = live_size > most_live ? live_size : most_live;
        if (t == items.instant[items.max_slot])
            CHECK_EQ(live_size, items.most_live * items.unit);
    }
    CHECK_EQ(most_live, items.most_live * items.unit);
    CHECK_EQ(items.bound, items.most_live);
    for (uint32_t i = 0; i < N; i++)
        CHECK(items.contention[i] >= items.size[i] && items.contention[i] <= items.most_live);
    psti_items_free(&items);
}

PST_TEST(PlanItems, SlotsKeepTheConflicts)
{
    for (uint64_t seed = 0; seed < 2000 && !psti_test_failed(); seed++)
        run_case(seed, seed % 2 == 1);
}

PST_TEST(PlanItems, UnitDividesAll)
{
    scene of;
    scene_make(&of, 1, 2, 2, 4);
    of.problem.align = 4;
    of.tensors[0].bytes = 23; /* 24 */
    of.tensors[1].bytes = 36;
    psti_items items;
    CHECK_OK(psti_items_of_problem(&of.problem, true, NULL, &items));
    CHECK_EQ(items.unit, 12);
    psti_items_free(&items);
    of.tensors[0].pin = 8;
    CHECK_OK(psti_items_of_problem(&of.problem, true, NULL, &items));
    CHECK_EQ(items.unit, 4);
    psti_items_free(&items);
    of.problem.reserved = of.reserved;
    of.problem.num_reserved = 1;
    of.reserved[0] = (pst_plan_range){21, 30}; /* grows to 20..32 */
    CHECK_OK(psti_items_of_problem(&of.problem, true, NULL, &items));
    CHECK_EQ(items.unit, 4);
    CHECK(items.reserved[0].begin == 5 && items.reserved[0].end == 8);
    psti_items_free(&items);
}

PST_TEST(PlanItems, BoundBesideReservedRanges)
{
    scene of;
    scene_make(&of, 1, 1, 1, 1);
    of.tensors[0].bytes = 10;
    of.problem.reserved = of.reserved;
    of.problem.num_reserved = 3;
    of.reserved[0] = (pst_plan_range){20, 30};
    of.reserved[1] = (pst_plan_range){0, 4};
    of.reserved[2] = (pst_plan_range){2, 6};
    psti_items items;
    CHECK_OK(psti_items_of_problem(&of.problem, true, NULL, &items));
    CHECK_EQ(items.num_reserved, 2);
    CHECK_EQ(items.bound * items.unit, 16);
    CHECK_EQ(psti_items_top_for(&items, 14 / items.unit) * items.unit, 20);
    CHECK_EQ(psti_items_top_for(&items, 16 / items.unit) * items.unit, 32);
    psti_items_free(&items);
}
