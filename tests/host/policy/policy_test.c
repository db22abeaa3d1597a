/* Policies against known best ones, and against the order that policy.h promises. */
#include "tests/harness.h"
#include "tests/host/policy/policy_scene.h"

/* ---- known best shares ---- */

typedef struct share_vector {
    const char *name;
    bool is_first_of_4; /* 8 micro-batches; else one micro-batch, no pipeline */
    uint32_t layers, device_pages, host_pages, host_ns;
    uint64_t exposed_ns, quarters;
} share_vector;

static const share_vector share_vectors[] = {
    {"L1", false, 4, 8, 16, 3, 0, 0},   {"L2", false, 4, 4, 16, 3, 0, 4},
    {"L3", false, 4, 6, 16, 9, 0, 2},   {"L4", false, 5, 8, 20, 5, 0, 4},
    {"L5", false, 5, 12, 20, 12, 0, 0}, {"L6", true, 3, 24, 100, 3, 0, 4},
    {"L7", true, 3, 16, 100, 6, 76, 7}, {"L8", true, 3, 12, 100, 12, 716, 8},
};

static policy_scene *open_shares(const share_vector *vector)
{
    policy_scene *scene = vector->is_first_of_4 ? scene_open(4, 0, 1, 8, vector->layers)
                                                : scene_open(1, 0, 1, 1, vector->layers);
    scene_set_all_pages(scene, 4);
    scene_set_times(scene, (pst_times){2, 8, 2}, (pst_times){4, 16, 4});
    scene_set_rates(scene, 1, vector->host_ns);
    scene->simulation.num_sources = scene->simulation.num_destinations = 2;
    scene->simulation.num_pages[0] = vector->device_pages;
    scene->simulation.num_pages[1] = vector->host_pages;
    scene->config.objective = PST_POLICY_LEAST_EXPOSED;
    scene->config.share_den = 4;
    scene->config.given = PST_POLICY_GIVEN_ALL & ~PST_POLICY_GIVEN_SHARES;
    return scene;
}

static uint64_t sum_quarters(const policy_scene *scene)
{
    uint64_t sum = 0;
    for (uint32_t l = 0; l < scene->num_layers[0]; l++)
        sum += scene->choices[l].policy.host_num;
    return sum;
}

static void check_shares(const share_vector *vector, uint64_t max_combinations)
{
    policy_scene *scene = open_shares(vector);
    scene->config.max_combinations = max_combinations;
    scene_solve(scene);
    const pst_policy policy = scene->policy;
    const uint64_t quarters = sum_quarters(scene), replayed = scene_replay(scene);
    scene_close(scene);
    CHECK_MSG(policy.fits, "%s does not fit", vector->name);
    CHECK_MSG(policy.exposed_ns == vector->exposed_ns && quarters == vector->quarters,
              "%s: exposed %llu and %llu quarters, not %llu and %llu", vector->name,
              (unsigned long long)policy.exposed_ns, (unsigned long long)quarters,
              (unsigned long long)vector->exposed_ns, (unsigned long long)vector->quarters);
    CHECK_MSG(replayed == policy.exposed_ns, "%s: simulated anew %llu", vector->name,
              (unsigned long long)replayed);
    CHECK_MSG(policy.exposed_bound_ns <= policy.exposed_ns, "%s: bound %llu", vector->name,
              (unsigned long long)policy.exposed_bound_ns);
    CHECK_MSG(policy.num_pages <= vector->device_pages &&
                  policy.num_host_pages <= vector->host_pages,
              "%s: %llu and %llu pages", vector->name, (unsigned long long)policy.num_pages,
              (unsigned long long)policy.num_host_pages);
    CHECK_MSG(policy.is_optimal || max_combinations == 1, "%s: not optimal", vector->name);
}

PST_TEST(PolicyShares, AllTriedFindsTheKnownBest)
{
    for (size_t i = 0; i < sizeof(share_vectors) / sizeof(share_vectors[0]); i++)
        check_shares(&share_vectors[i], 0);
}

PST_TEST(PolicyShares, SearchFindsTheKnownBest)
{
    for (size_t i = 0; i < sizeof(share_vectors) / sizeof(share_vectors[0]); i++)
        check_shares(&share_vectors[i], 1);
}
