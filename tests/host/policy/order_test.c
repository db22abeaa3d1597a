/* The order of choices, the sum of bytes, what is missing, dense layers. */
#include "tests/harness.h"
#include "tests/host/policy/policy_scene.h"

#define MIB (UINT64_C(1) << 20)

/* Copies that take longer than a layer's core: sets and rule decide what is exposed. */
static policy_scene *open_slow(uint32_t p, uint32_t micro)
{
    policy_scene *scene = scene_open(p, 0, 1, micro, 4);
    scene_set_times(scene, (pst_times){1, 4, 1}, (pst_times){2, 8, 2});
    scene_set_rates(scene, 6, 6);
    scene->config.set_bytes = MIB;
    return scene;
}

/* ---- the two orders ---- */

PST_TEST(PolicyOrder, LeastBytesExposeNoMoreThanNext)
{
    for (uint32_t p = 1; p <= 4; p += 3) {
        policy_scene *scene = open_slow(p, 8);
        scene_solve(scene);
        const pst_policy policy = scene->policy;
        const uint64_t replayed = scene_replay(scene);
        scene_close(scene);
        CHECK(policy.fits && !policy.is_scarce && policy.next_exposed_ns > 0);
        CHECK_EQ(policy.num_sets, 1);
        CHECK(policy.exposed_ns <= policy.next_exposed_ns);
        CHECK(policy.total_bytes < policy.next_total_bytes);
        CHECK_EQ(replayed, policy.exposed_ns);
    }
}

PST_TEST(PolicyOrder, LeastExposedPaysWithSets)
{
    policy_scene *scene = open_slow(4, 8);
    scene->config.objective = PST_POLICY_LEAST_EXPOSED;
    scene_solve(scene);
    const pst_policy policy = scene->policy;
    const uint64_t replayed = scene_replay(scene);
    scene_close(scene);
    CHECK(policy.fits && policy.is_optimal);
    CHECK_EQ(policy.exposed_ns, 0);
    CHECK_EQ(replayed, 0);
    CHECK(policy.num_sets > 1);
}

/* T13 of the schedules' vectors: with 2 + 2 sets 10 are exposed with one stream, none with two. */
PST_TEST(PolicyOrder, StreamsAreChosenForTheSetsThatAreGiven)
{
    policy_scene *scene = open_slow(4, 8);
    scene->config.objective = PST_POLICY_LEAST_EXPOSED;
    scene->config.given = PST_POLICY_GIVEN_SETS | PST_POLICY_GIVEN_STREAMS;
    scene_solve(scene);
    const pst_policy one = scene->policy;
    scene->config.given = PST_POLICY_GIVEN_SETS;
    scene_solve(scene);
    const pst_policy two = scene->policy;
    scene_close(scene);
    CHECK_EQ(one.num_streams, 1);
    CHECK_EQ(one.exposed_ns, 4); /* with one restore ahead */
    CHECK_EQ(one.ahead, 1);
    CHECK_EQ(two.exposed_ns, 0);
    CHECK_EQ(two.num_streams, 2);
}

/* ---- sets of the caller's own ---- */

/* Under rule NEXT: two at the turn of 1F1B, one without a pipeline, as counted of Megatron-LM. */
PST_TEST(PolicyOrder, SetsOfTheCallersOwnCountWhileTheyAreUsed)
{
    for (uint32_t p = 1; p <= 4; p += 3) {
        policy_scene *scene = open_slow(p, 8);
        scene->simulation.rule = PST_RESTORE_NEXT;
        scene->config.sets = PST_POLICY_SETS_CALLERS;
        scene->config.given = PST_POLICY_GIVEN_RULE;
        scene_solve(scene);
        const pst_policy policy = scene->policy;
        scene_close(scene);
        CHECK_EQ(policy.num_sets, p == 1 ? 1 : 2);
        CHECK_EQ(policy.sets_bytes, policy.num_sets * MIB);
    }
}

/* A forward that takes a set frees the source that was there: there are never more than both rings
 * have. */
PST_TEST(PolicyOrder, StashedSourcesOfTheCallersOwnAreGivenBack)
{
    policy_scene *scene = open_slow(4, 8);
    scene->simulation.num_sources = scene->simulation.num_destinations = 2;
    scene->config.sets = PST_POLICY_SETS_CALLERS;
    scene->config.given = PST_POLICY_GIVEN_RULE | PST_POLICY_GIVEN_SETS;
    scene_solve(scene);
    const pst_policy policy = scene->policy;
    scene_close(scene);
    CHECK_MSG(policy.num_sets >= 2 && policy.num_sets <= 4, "%u sets", policy.num_sets);
}

/* Two parts of a layer are in one set. */
PST_TEST(PolicyOrder, PartsShareASetOfTheCallersOwn)
{
    policy_scene *scene = scene_open(1, 0, 1, 1, 3);
    pst_group_usage usages[2][1] = {{{SCENE_BYTES, SCENE_PAGE, 1}}, {{SCENE_BYTES, SCENE_PAGE, 1}}};
    for (uint32_t l = 0; l < 3; l++) {
        scene->layers[0][l].num_parts = 2;
        scene->layers[0][l].usages = usages[0];
        scene->layers[0][l].num_usages = 1;
    }
    scene->simulation.rule = PST_RESTORE_NEXT;
    scene->config.sets = PST_POLICY_SETS_CALLERS;
    scene->config.given = PST_POLICY_GIVEN_RULE;
    scene->config.set_bytes = MIB;
    scene_solve(scene);
    const pst_policy policy = scene->policy;
    scene_close(scene);
    CHECK_EQ(policy.num_sets, 1);
    CHECK_EQ(policy.num_pages, 4); /* two layers with two parts */
}

/* ---- random stages ---- */

static uint64_t below(uint64_t *seed, uint64_t bound)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % bound;
}

static policy_scene *open_random(uint64_t *seed)
{
    const uint32_t p = 1 + (uint32_t)below(seed, 4), micro = 1 + (uint32_t)below(seed, 8);
    const uint32_t layers = 1 + (uint32_t)below(seed, 5);
    policy_scene *scene = scene_open(p, (uint32_t)below(seed, p), 1, micro, layers);
    for (uint32_t l = 0; l < layers; l++) {
        pst_simulated_layer *layer = &scene->layers[0][l];
        layer->forward = (pst_times){below(seed, 4), 1 + below(seed, 8), below(seed, 4)};
        layer->backward = (pst_times){below(seed, 5), 1 + below(seed, 16), below(seed, 5)};
        for (uint32_t m = 0; m < micro; m++)
            scene_set_pages(scene, 0, l, m, 1 + below(seed, 6));
    }
    scene_set_rates(scene, 1 + below(seed, 6), 1);
    scene->config.set_bytes = below(seed, 3) * below(seed, 8) * SCENE_PAGE;
    scene->config.sets = (pst_policy_sets)below(seed, 2);
    return scene;
}

PST_TEST(PolicyOrder, NoTotalAndNoExposedTimeIsAboveNext)
{
    const uint32_t cases = psti_test_cases(300);
    for (uint64_t n = 0; n < cases; n++) {
        uint64_t seed = n * 31 + 7;
        policy_scene *scene = open_random(&seed);
        scene_solve(scene);
        const pst_policy policy = scene->policy;
        const uint64_t replayed = scene_replay(scene);
        scene_close(scene);
        CHECK_MSG(policy.fits && policy.exposed_ns <= policy.next_exposed_ns &&
                      policy.total_bytes <= policy.next_total_bytes,
                  "case %llu: exposed %llu, of NEXT %llu; total %llu, %llu", (unsigned long long)n,
                  (unsigned long long)policy.exposed_ns, (unsigned long long)policy.next_exposed_ns,
                  (unsigned long long)policy.total_bytes,
                  (unsigned long long)policy.next_total_bytes);
        CHECK_EQ(replayed, policy.exposed_ns);
    }
}

/* ---- memory ---- */

PST_TEST(PolicyOrder, BytesAddUpAndTheLimitIsExact)
{
    policy_scene *scene = open_slow(4, 8);
    const uint64_t planned[] = {5 * MIB};
    scene->config.static_bytes = planned;
    scene->config.reserve_bytes = 3 * MIB;
    scene->config.host_bytes = 0;
    scene_solve(scene);
    const pst_policy free = scene->policy;
    scene->config.gpu_bytes = free.gpu_bytes;
    scene_solve(scene);
    const pst_policy exact = scene->policy;
    scene->config.gpu_bytes = free.gpu_bytes - 1;
    scene_solve(scene);
    const pst_policy short_of = scene->policy;
    scene->config.gpu_bytes = free.gpu_bytes - 1 + short_of.missing_gpu_bytes;
    scene_solve(scene);
    const pst_policy mended = scene->policy;
    scene_close(scene);
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    uint64_t pool_bytes = 0;
    pool.page_bytes = free.page_bytes;
    pool.num_pages = free.num_pages;
    pool.mode = free.mode;
    pool.max_tickets = 16; /* 4 layers, 4 slots */
    CHECK_OK(pst_pool_bytes(&pool, &pool_bytes));
    CHECK_EQ(free.pool_bytes, pool_bytes);
    CHECK_EQ(free.gpu_bytes, 8 * MIB + free.sets_bytes + pool_bytes);
    CHECK_EQ(free.total_bytes, free.gpu_bytes - 3 * MIB);
    CHECK(exact.fits && exact.gpu_bytes == free.gpu_bytes);
    CHECK(!short_of.fits && short_of.missing_gpu_bytes > 0);
    CHECK_EQ(mended.fits, true);
}

PST_TEST(PolicyOrder, WhatLeavesIsNoMoreThanItHasTo)
{
    policy_scene *scene = open_slow(4, 8);
    scene_solve(scene);
    const pst_policy free = scene->policy;
    scene->config.gpu_bytes = free.gpu_bytes - 4 * free.page_bytes;
    scene_solve(scene);
    const pst_policy scarce = scene->policy;
    const uint64_t replayed = scene_replay(scene);
    scene->config.host_bytes = 1;
    scene_solve(scene);
    const pst_policy no_host = scene->policy;
    scene_close(scene);
    CHECK(scarce.fits && scarce.is_scarce);
    CHECK(scarce.gpu_bytes <= free.gpu_bytes - 4 * free.page_bytes);
    CHECK(scarce.num_host_pages >= 4);
    CHECK_EQ(replayed, scarce.exposed_ns);
    CHECK(!no_host.fits && no_host.missing_gpu_bytes + no_host.missing_host_bytes > 0);
}

/* ---- dense layers ---- */

enum { NUM_DENSE = 4 };

/* All layers are dense: planned, swapped or recomputed; each has 8 MiB of the plan's 34, and 2 MiB that
 * it would swap. */
static policy_scene *open_dense(pst_policy_layer allowed[NUM_DENSE], uint64_t rate)
{
    static const uint64_t planned[] = {34 * MIB};
    policy_scene *scene = scene_open(1, 0, 1, 1, NUM_DENSE);
    scene_set_times(scene, (pst_times){1000, 4000, 1000}, (pst_times){2000, 8000, 2000});
    for (int l = 0; l < NUM_DENSE; l++) {
        allowed[l] = (pst_policy_layer)PST_POLICY_LAYER_INIT;
        allowed[l].treatments =
            1u << PST_KEEP_PLANNED | 1u << PST_KEEP_SWAPPED | 1u << PST_KEEP_RECOMPUTED;
        allowed[l].planned_bytes = 8 * MIB;
        allowed[l].whole_bytes = MIB;
        allowed[l].token_bytes = 1024;
        allowed[l].num_tokens = 1024;
        allowed[l].recompute_ns = 5000;
        scene->layers[0][l].keep = PST_KEEP_PLANNED;
    }
    scene->simulation.rates.out_rate = scene->simulation.rates.in_rate = rate;
    scene->config.static_bytes = planned;
    return scene;
}

/* spared: of what is needed with all planned. keeps: how many layers are of each treatment. */
static pst_policy solve_dense(uint64_t rate, uint64_t spared, uint64_t host_bytes,
                              uint32_t keeps[PST_KEEP_RECOMPUTED + 1])
{
    pst_policy_layer allowed[NUM_DENSE];
    policy_scene *scene = open_dense(allowed, rate);
    const pst_policy_layer *of_stage[] = {allowed};
    scene->config.layers = of_stage;
    scene_solve(scene);
    scene->config.gpu_bytes = scene->policy.gpu_bytes - spared;
    scene->config.host_bytes = host_bytes;
    scene_solve(scene);
    const pst_policy policy = scene->policy;
    const uint64_t replayed = scene_replay(scene);
    memset(keeps, 0, (PST_KEEP_RECOMPUTED + 1) * sizeof(*keeps));
    for (int l = 0; l < NUM_DENSE; l++)
        keeps[scene->choices[l].keep]++;
    scene_close(scene);
    if (policy.fits && replayed != policy.exposed_ns)
        psti_test_fail(__FILE__, __LINE__, "simulated anew %llu, not %llu",
                       (unsigned long long)replayed, (unsigned long long)policy.exposed_ns);
    return policy;
}

/* 2 MiB in half of a core. */
#define FAST_RATE (2 * MIB * UINT64_C(1000000000) / 2000)

PST_TEST(PolicyDense, StaysInThePlanWhileThereIsRoom)
{
    uint32_t keeps[PST_KEEP_RECOMPUTED + 1];
    const pst_policy policy = solve_dense(FAST_RATE, 0, PST_POLICY_UNLIMITED, keeps);
    CHECK(policy.fits && !policy.is_scarce);
    CHECK_EQ(keeps[PST_KEEP_PLANNED], NUM_DENSE);
    CHECK_EQ(policy.static_bytes, 34 * MIB);
    CHECK_EQ(policy.gpu_bytes, 34 * MIB);
}

PST_TEST(PolicyDense, IsSwappedWhereTheLinkIsFast)
{
    uint32_t keeps[PST_KEEP_RECOMPUTED + 1];
    const pst_policy policy = solve_dense(FAST_RATE, 25 * MIB, PST_POLICY_UNLIMITED, keeps);
    CHECK(policy.fits && policy.is_scarce);
    CHECK_EQ(keeps[PST_KEEP_SWAPPED], NUM_DENSE);
    CHECK_EQ(policy.static_bytes, 2 * MIB);
    CHECK_EQ(policy.swap_buffer_bytes, 4 * MIB);
    CHECK_EQ(policy.exposed_ns, 0);
    CHECK_EQ(policy.host_bytes, 4 * MIB); /* the last two stay in the buffers */
}

/* The last two are swapped in name only: they stay in their buffers. */
PST_TEST(PolicyDense, IsRecomputedWhereTheLinkIsSlowOrTheHostIsFull)
{
    uint32_t keeps[PST_KEEP_RECOMPUTED + 1];
    pst_policy policy = solve_dense(FAST_RATE / 1000, 25 * MIB, PST_POLICY_UNLIMITED, keeps);
    CHECK(policy.fits && policy.is_scarce);
    CHECK_EQ(policy.exposed_ns, 10000);
    CHECK_EQ(policy.recompute_ns, 10000);
    CHECK_EQ(keeps[PST_KEEP_RECOMPUTED], 2);
    policy = solve_dense(FAST_RATE, 25 * MIB, 0, keeps);
    CHECK(policy.fits);
    CHECK_EQ(policy.exposed_ns, 10000);
    CHECK_EQ(policy.host_bytes, 0);
    /* Room for one on the host, or for half of the tokens of two. */
    policy = solve_dense(FAST_RATE, 25 * MIB, 3 * MIB, keeps);
    CHECK(policy.fits && policy.host_bytes <= 3 * MIB);
    CHECK_EQ(policy.exposed_ns, 5000);
}

/* ---- page size and routings ---- */

/* 8 MiB and 16 KiB: 0.2 % more with pages of 32 KiB, 0.58 % with 64 KiB. */
PST_TEST(PolicyOrder, PagesRoundAtMostHalfAPercent)
{
    static const struct {
        uint64_t bytes, page_bytes;
    } layers[] = {
        {8 * MIB + 16384, 32768},
        {3 * MIB + 16384, 16384},
        {64 * 1024, 64 * 1024},
        {4 * MIB, 4 * MIB},
    };
    for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++) {
        policy_scene *scene = scene_open(1, 0, 1, 1, 2);
        for (uint32_t l = 0; l < 2; l++)
            scene->usages[0][l][0] =
                (pst_group_usage){layers[i].bytes, layers[i].bytes, layers[i].bytes / SCENE_PAGE};
        scene_solve(scene);
        const uint64_t page_bytes = scene->policy.page_bytes;
        scene_close(scene);
        CHECK_EQ(page_bytes, layers[i].page_bytes);
    }
}

PST_TEST(PolicyOrder, PagesAreEnoughForTheQuantile)
{
    policy_scene *scene = scene_open(1, 0, 1, 1, 3);
    pst_simulated_layer layers[9][3];
    pst_group_usage usages[9][3];
    const pst_simulated_layer *stages[9];
    const pst_simulated_layer *const *routings[9];
    for (uint32_t r = 0; r < 9; r++) {
        stages[r] = layers[r];
        routings[r] = &stages[r];
        for (uint32_t l = 0; l < 3; l++) {
            const uint64_t pages = 2 + r;
            usages[r][l] = (pst_group_usage){pages * SCENE_BYTES, pages * SCENE_PAGE, pages};
            layers[r][l] = scene->layers[0][l];
            layers[r][l].usages = &usages[r][l];
        }
    }
    scene->config.routings = routings;
    scene->config.num_routings = 9;
    scene->config.given = PST_POLICY_GIVEN_ALL;
    scene->simulation.num_sources = scene->simulation.num_destinations = 1;
    scene_solve(scene);
    const uint64_t all = scene->policy.num_pages;
    scene->config.quantile_per_mille = 900;
    scene_solve(scene);
    const uint64_t most = scene->policy.num_pages;
    scene_close(scene);
    CHECK_EQ(all, 20); /* two of three layers are stashed, 10 pages each in the largest routing */
    CHECK_EQ(most, 18);
}
