/* Policies of layers with parts that a GLU writes: taken as they are, in concurrent pools. */
#include "tests/harness.h"
#include "tests/host/policy/policy_scene.h"

static policy_scene *open_glus(uint32_t device_ns, uint32_t host_ns)
{
    policy_scene *scene = scene_open(4, 0, 1, 8, 2);
    for (uint32_t l = 0; l < 2; l++) {
        scene_set_pages(scene, 0, l, 0, 3);
        scene->layers[0][l].glu_parts = 1;
    }
    scene->simulation.mode = PST_POOL_CONCURRENT;
    scene_set_all_pages(scene, 3);
    scene_set_times(scene, (pst_times){2, 8, 2}, (pst_times){4, 16, 4});
    scene_set_rates(scene, device_ns, host_ns);
    return scene;
}

PST_TEST(PolicyGlu, PoolsAreConcurrentAndTimesThoseOfTheSimulation)
{
    static const pst_policy_objective objectives[] = {PST_POLICY_LEAST_BYTES,
                                                      PST_POLICY_LEAST_EXPOSED};
    for (uint32_t i = 0; i < 4; i++) {
        policy_scene *scene = open_glus(2, 3);
        scene->config.objective = objectives[i % 2];
        scene->config.sets = i < 2 ? PST_POLICY_SETS_FIXED : PST_POLICY_SETS_CALLERS;
        scene_solve(scene);
        const pst_policy policy = scene->policy;
        const uint64_t replayed = scene_replay(scene);
        scene_close(scene);
        CHECK(policy.fits);
        CHECK_EQ(policy.mode, PST_POOL_CONCURRENT);
        CHECK_EQ(policy.exposed_ns, replayed);
        CHECK_EQ(policy.exposed_ns % 3, 0); /* half of 6 for each that is stashed */
        CHECK(policy.exposed_bound_ns <= policy.exposed_ns);
    }
}

/* Of the caller's own sets only sources are ever there. */
PST_TEST(PolicyGlu, SetsOfTheCallersOwnAreSources)
{
    policy_scene *scene = open_glus(2, 3);
    scene->config.sets = PST_POLICY_SETS_CALLERS;
    scene->config.given = PST_POLICY_GIVEN_SETS;
    scene_solve(scene);
    const pst_policy policy = scene->policy;
    scene_close(scene);
    CHECK_EQ(policy.num_sources, 2);
    CHECK_EQ(policy.num_sets, 2);
}

/* Where device pages are few some go to the host, and the bound holds. */
PST_TEST(PolicyGlu, SharesWhereMemoryIsScarce)
{
    for (uint64_t pages = 6; pages <= 15; pages += 3) {
        policy_scene *scene = open_glus(1, 5);
        scene->simulation.num_pages[0] = pages;
        scene->config.given = PST_POLICY_GIVEN_SETS;
        scene_solve(scene);
        const pst_policy policy = scene->policy;
        const uint64_t replayed = scene_replay(scene);
        scene_close(scene);
        CHECK_MSG(policy.fits && policy.is_scarce, "%u pages", (unsigned)pages);
        CHECK(policy.num_pages <= pages && policy.num_host_pages > 0);
        CHECK(policy.exposed_bound_ns <= policy.exposed_ns);
        CHECK_EQ(policy.exposed_ns, replayed);
    }
}

/* A search with few of many micro-batches takes their bytes along, and nobody else's. */
PST_TEST(PolicyGlu, BytesOfFewMicroBatches)
{
    enum { NUM = SCENE_MAX_MICRO };
    static pst_group_usage usages[2 * NUM];
    static uint64_t glu_bytes[2 * NUM];
    policy_scene *scene = scene_open(4, 0, 1, NUM, 1);
    pst_simulated_layer *layer = &scene->layers[0][0];
    for (uint32_t m = 0; m < 2 * NUM; m++) {
        usages[m] = scene->usages[0][0][m % NUM];
        glu_bytes[m] = m < NUM ? UINT64_MAX : usages[m].payload_bytes; /* of part 0 nobody asks */
    }
    layer->num_parts = 2;
    layer->usages = usages;
    layer->glu_parts = 2;
    layer->glu_bytes = glu_bytes;
    scene->simulation.mode = PST_POOL_CONCURRENT;
    scene_set_times(scene, (pst_times){2, 8, 2}, (pst_times){4, 16, 4});
    scene_set_rates(scene, 1, 3);
    scene->simulation.num_pages[0] = 6; /* of 8 */
    scene->config.given = PST_POLICY_GIVEN_ALL & ~PST_POLICY_GIVEN_SHARES;
    scene->config.max_combinations = 1;
    scene_solve(scene);
    CHECK(scene->policy.fits && scene->policy.is_scarce);
    scene_close(scene);
}
