/* Gaps found among taken addresses, against trying all of them. */
#include "tests/harness.h"
#include "tests/host/plan/plan_scene.h"

enum { TOP = 64 };

/* Lowest, or tightest, address by trying all. */
static uint64_t naive_find(const scene *of, uint64_t item, const bool *is_placed, bool best_fit)
{
    bool taken[TOP] = {false};
    for (uint64_t k = 0; k < of->problem.num_tensors; k++)
        for (uint64_t at = 0; is_placed[k] && scene_conflict(of, item, k) && at < TOP; at++)
            taken[at] |= at >= of->offsets[k] && at < of->offsets[k] + of->tensors[k].bytes;
    for (uint32_t r = 0; r < of->problem.num_reserved; r++)
        for (uint64_t at = of->reserved[r].begin; at < of->reserved[r].end; at++)
            taken[at] = true;
    uint64_t best = UINT64_MAX;
    uint64_t best_gap = UINT64_MAX;
    for (uint64_t at = 0; at < TOP;) {
        uint64_t end = at;
        while (end < TOP && !taken[end])
            end++;
        const uint64_t gap = end == TOP ? UINT64_MAX - at : end - at;
        if (gap >= of->tensors[item].bytes &&
            (best == UINT64_MAX || (best_fit && gap < best_gap && end != TOP))) {
            best = at;
            best_gap = gap;
        }
        at = end + 1;
    }
    return best;
}

static void run_case(uint64_t seed, bool has_streams, bool has_reserved)
{
    scene of;
    scene_make(&of, seed, 12, 10, 4);
    if (has_streams)
        scene_add_streams(&of, seed, 10);
    of.problem.reserved = of.reserved;
    of.problem.num_reserved = has_reserved ? 2 : 0;
    of.reserved[0] = (pst_plan_range){3, 5};
    of.reserved[1] = (pst_plan_range){5, 7};
    bool is_placed[12] = {false};
    psti_items items;
    CHECK_OK(psti_items_of_problem(&of.problem, true, NULL, &items));
    psti_room *room = psti_room_open(&items);
    uint32_t pinned;
    CHECK(room != NULL && psti_room_reset(room, &pinned) == PSTI_ROOM_READY);
    for (uint32_t i = 0; i < 12; i++) {
        const bool best_fit = (seed + i) % 3 == 0;
        of.offsets[i] = psti_room_find(room, i, best_fit) * items.unit;
        const uint64_t want = naive_find(&of, i, is_placed, best_fit);
        CHECK_MSG(of.offsets[i] == want, "seed %llu: tensor %u at %llu, not %llu",
                  (unsigned long long)seed, i, (unsigned long long)of.offsets[i],
                  (unsigned long long)want);
        CHECK(psti_room_take(room, i, of.offsets[i] / items.unit));
        is_placed[i] = true;
    }
    psti_room_close(room);
    psti_items_free(&items);
}

PST_TEST(PlanRoom, FindsWhatTryingAllFinds)
{
    for (uint64_t seed = 0; seed < 2000 && !psti_test_failed(); seed++)
        run_case(seed, false, seed % 4 == 0);
}

PST_TEST(PlanRoom, OfSeveralStreams)
{
    for (uint64_t seed = 0; seed < 2000 && !psti_test_failed(); seed++)
        run_case(seed, true, seed % 4 == 0);
}

/* So many slots that the tree has several levels; some tensors live long, most do not. */
PST_TEST(PlanRoom, OverManySlots)
{
    enum { N = 3000, TALL = 4096 };
    static pst_plan_tensor tensors[N];
    static uint64_t at[N];
    pst_plan_problem problem = PST_PLAN_PROBLEM_INIT;
    uint64_t random = 7;
    for (uint32_t i = 0; i < N; i++) {
        const uint64_t begin = scene_random(&random, N);
        const uint64_t length = scene_random(&random, i % 20 == 0 ? N : 12);
        tensors[i] = (pst_plan_tensor){1 + scene_random(&random, 4),
                                       begin,
                                       begin + 1 + length,
                                       PST_PLAN_FREE,
                                       0,
                                       PST_PLAN_NO_BLOCK};
    }
    problem.tensors = tensors;
    problem.num_tensors = N;
    problem.align = 1;
    psti_items items;
    CHECK_OK(psti_items_of_problem(&problem, true, NULL, &items));
    psti_room *room = psti_room_open(&items);
    uint32_t pinned;
    CHECK(room != NULL && psti_room_reset(room, &pinned) == PSTI_ROOM_READY);
    CHECK(items.num_slots > 1024);
    for (uint32_t i = 0; i < N; i++) {
        bool taken[TALL] = {false};
        for (uint32_t k = 0; k < i; k++)
            if (tensors[k].begin < tensors[i].end && tensors[i].begin < tensors[k].end)
                memset(taken + at[k], true, tensors[k].bytes);
        uint64_t lowest = 0;
        for (uint64_t free = 0; free < tensors[i].bytes; lowest++)
            free = taken[lowest] ? 0 : free + 1;
        at[i] = psti_room_find(room, i, false);
        CHECK_MSG(at[i] == lowest - tensors[i].bytes, "tensor %u at %llu", i,
                  (unsigned long long)at[i]);
        CHECK(psti_room_take(room, i, at[i]));
    }
    psti_room_close(room);
    psti_items_free(&items);
}

PST_TEST(PlanRoom, PinsThatOverlap)
{
    scene of;
    scene_make(&of, 3, 3, 1, 1);
    of.tensors[0] = (pst_plan_tensor){8, 0, 4, 8, 0, PST_PLAN_NO_BLOCK};
    of.tensors[1] = (pst_plan_tensor){8, 2, 6, 15, 0, PST_PLAN_NO_BLOCK};
    of.tensors[2] = (pst_plan_tensor){8, 4, 8, 8, 0, PST_PLAN_NO_BLOCK};
    psti_items items;
    CHECK_OK(psti_items_of_problem(&of.problem, true, NULL, &items));
    psti_room *room = psti_room_open(&items);
    uint32_t pinned = 9;
    CHECK_EQ(psti_room_reset(room, &pinned), PSTI_ROOM_TAKEN);
    CHECK_EQ(pinned, 1);
    items.pin[1] = 16;
    CHECK_EQ(psti_room_reset(room, &pinned), PSTI_ROOM_READY);
    psti_room_close(room);
    psti_items_free(&items);
}
