/* The local search on random stages, against every share there is. */
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/host/policy/policy_scene.h"

enum { DEN = 4 };

static uint64_t below(uint64_t *seed, uint64_t bound)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % bound;
}

static policy_scene *open_random(uint64_t *seed)
{
    const uint32_t p = (uint32_t[]){1, 1, 2, 4}[below(seed, 4)];
    const uint32_t micro = p == 1 ? 1 + (uint32_t)below(seed, 2) : 2 + (uint32_t)below(seed, 5);
    const uint32_t layers = 2 + (uint32_t)below(seed, 4);
    policy_scene *scene = scene_open(p, (uint32_t)below(seed, p), 1, micro, layers);
    const bool same = below(seed, 3) == 0;
    uint64_t sum = 0;
    for (uint32_t l = 0; l < layers; l++) {
        const pst_times times = {below(seed, 4), 2 + below(seed, 12), below(seed, 4)};
        scene->layers[0][l].forward = times;
        scene->layers[0][l].backward = (pst_times){2 * times.before, 2 * times.core, times.after};
        for (uint32_t m = 0; m < micro; m++) {
            const uint64_t pages = same ? 4 : 1 + below(seed, 8);
            scene_set_pages(scene, 0, l, m, pages);
            sum += m < p ? pages : 0;
        }
    }
    scene_set_rates(scene, below(seed, 2), 1 + below(seed, 12));
    pst_simulation_config *simulation = &scene->simulation;
    simulation->num_streams = below(seed, 3) == 0 ? 2 : 1;
    simulation->mode = simulation->num_streams > 1 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    simulation->one_ring = below(seed, 4) == 0;
    simulation->num_sources = 1 + (uint32_t)below(seed, 3);
    simulation->num_destinations = simulation->one_ring ? 0 : 1 + (uint32_t)below(seed, 3);
    simulation->num_pages[0] = 1 + sum * (2 + below(seed, 6)) / 10;
    if (below(seed, 3) == 0)
        simulation->num_pages[1] = sum / 2;
    scene->config.objective = PST_POLICY_LEAST_EXPOSED;
    scene->config.share_den = DEN;
    scene->config.given = PST_POLICY_GIVEN_ALL & ~PST_POLICY_GIVEN_SHARES;
    return scene;
}

/* The least exposed time of all shares that fit; UINT64_MAX: none does. */
static uint64_t try_all(policy_scene *scene)
{
    const uint32_t layers = scene->num_layers[0];
    pst_simulation_config config = scene->simulation;
    config.num_pages[0] = config.num_pages[1] = UINT64_MAX;
    uint64_t best = UINT64_MAX;
    uint32_t num = 1;
    for (uint32_t l = 0; l < layers; l++)
        num *= DEN + 1;
    for (uint32_t n = 0; n < num; n++) {
        pst_simulation simulation;
        pst_stage_result result;
        for (uint32_t l = 0, rest = n; l < layers; l++, rest /= DEN + 1)
            scene->layers[0][l].policy =
                (pst_layer_policy){.host_num = rest % (DEN + 1), .host_den = DEN};
        if (pst_simulate(&config, &simulation, &result) != PST_OK)
            psti_test_fail(__FILE__, __LINE__, "simulate: %s", pst_last_message());
        const uint64_t host = result.high_water[1], both = host + result.high_water[0];
        uint64_t device = result.high_water[0];
        if (result.order_is_simulated && result.high_water_bounds[1] > both)
            device += result.high_water_bounds[1] - both;
        if (device == 0)
            device = 1;
        const uint64_t exposed = result.exposed_forward_ns + result.exposed_backward_ns;
        if (device <= scene->simulation.num_pages[0] && host <= scene->simulation.num_pages[1] &&
            exposed < best)
            best = exposed;
    }
    for (uint32_t l = 0; l < layers; l++)
        scene->layers[0][l].policy = (pst_layer_policy){0};
    return best;
}

PST_TEST(PolicyQuality, SearchIsCloseToTheBestAndNeverBelowTheBound)
{
    const uint32_t cases = psti_test_cases(200);
    uint32_t num_fit = 0, num_equal = 0;
    for (uint64_t n = 0; n < cases; n++) {
        uint64_t seed = n * 7919 + 1;
        policy_scene *scene = open_random(&seed);
        const uint64_t best = try_all(scene);
        scene->config.max_combinations = 1;
        scene_solve(scene);
        const pst_policy searched = scene->policy;
        scene->config.max_combinations = 0;
        scene_solve(scene);
        const pst_policy tried = scene->policy;
        scene_close(scene);
        CHECK_MSG(searched.fits == (best != UINT64_MAX) && tried.fits == searched.fits,
                  "case %llu: fits %d, %d", (unsigned long long)n, searched.fits, tried.fits);
        if (!searched.fits)
            continue;
        num_fit++;
        num_equal += searched.exposed_ns == best;
        CHECK_MSG(tried.exposed_ns == best && tried.is_optimal, "case %llu: %llu, best %llu",
                  (unsigned long long)n, (unsigned long long)tried.exposed_ns,
                  (unsigned long long)best);
        CHECK_MSG(searched.exposed_ns * 100 <= best * 102, "case %llu: %llu, best %llu",
                  (unsigned long long)n, (unsigned long long)searched.exposed_ns,
                  (unsigned long long)best);
        CHECK_MSG(tried.exposed_bound_ns <= best && searched.exposed_bound_ns <= best,
                  "case %llu: bound %llu, best %llu", (unsigned long long)n,
                  (unsigned long long)tried.exposed_bound_ns, (unsigned long long)best);
    }
    CHECK_MSG(num_fit * 2 >= cases, "%u of %u fit", num_fit, cases);
    CHECK_MSG(num_equal * 100 >= num_fit * 95, "%u of %u are the best", num_equal, num_fit);
    if (getenv("PSTI_TEST_TABLE"))
        psti_test_fail(__FILE__, __LINE__, "%u of %u fit, %u are the best", num_fit, cases,
                       num_equal);
}
