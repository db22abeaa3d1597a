/* Every kind of schedule, all stages together, with and without enough memory; no memory for the solver
 * itself. */
#include <stdlib.h>

#include "host/base/base.h"
#include "tests/harness.h"
#include "tests/host/policy/policy_scene.h"

enum { STAGES = 4, PER_CHUNK = 2 };

static const struct kind {
    pst_schedule_kind kind;
    uint32_t num_chunks, num_micro_batches;
} kinds[] = {
    {PST_SCHEDULE_1F1B, 1, 8},        {PST_SCHEDULE_1F1B, 1, 40},
    {PST_SCHEDULE_INTERLEAVED, 2, 8}, {PST_SCHEDULE_INTERLEAVED, 2, 40},
    {PST_SCHEDULE_GPIPE, 1, 8},       {PST_SCHEDULE_GPIPE_REVERSED, 1, 8},
    {PST_SCHEDULE_ZB_H1, 1, 40},      {PST_SCHEDULE_ZB_H2, 1, 8},
    {PST_SCHEDULE_ZB_V, 2, 32},       {PST_SCHEDULE_DUALPIPE, 2, 48},
    {PST_SCHEDULE_DUALPIPE_V, 2, 32},
};

static policy_scene *open_kind(const struct kind *of)
{
    policy_scene *scene = scene_open(STAGES, 0, STAGES, of->num_micro_batches, PER_CHUNK);
    for (uint32_t s = 0; s < STAGES; s++) {
        pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
        config.kind = of->kind;
        config.num_stages = STAGES;
        config.stage = s;
        config.num_micro_batches = of->num_micro_batches;
        pst_schedule_destroy(scene->schedules[s]);
        scene->schedules[s] = NULL;
        if (pst_schedule_create(&config, &scene->schedules[s]) != PST_OK)
            psti_test_fail(__FILE__, __LINE__, "no schedule: %s", pst_last_message());
        scene->num_layers[s] = of->num_chunks * PER_CHUNK;
        for (uint32_t l = 0; l < scene->num_layers[s]; l++) {
            scene->layers[s][l] = (pst_simulated_layer)PST_SIMULATED_LAYER_INIT;
            scene->layers[s][l].chunk = l / PER_CHUNK;
            scene->layers[s][l].layer = l % PER_CHUNK;
            scene->layers[s][l].usages = scene->usages[s][l];
            scene->layers[s][l].num_usages = of->num_micro_batches;
            scene->layers[s][l].forward = (pst_times){1, 4, 1};
            scene->layers[s][l].backward = (pst_times){2, 8, 2};
            scene->layers[s][l].backward_input = scene->layers[s][l].forward;
            scene->layers[s][l].backward_weight = scene->layers[s][l].forward;
            for (uint32_t m = 0; m < of->num_micro_batches; m++)
                scene_set_pages(scene, s, l, m, 2 + (5 * m + 3 * l + s) % 3);
        }
    }
    scene_set_rates(scene, 1, 2);
    scene->config.set_bytes = 5 * SCENE_PAGE;
    return scene;
}

PST_TEST(PolicyKinds, EveryKindIsSolvedAndRunsAsItSays)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        policy_scene *scene = open_kind(&kinds[i]);
        scene->config.max_evaluations = 100;
        scene->config.max_sets = 2;
        scene_solve(scene);
        const pst_policy free = scene->policy;
        const uint64_t replayed = scene_replay(scene);
        scene->simulation.num_pages[0] = free.num_pages / 2 + 1;
        scene_solve(scene);
        const pst_policy scarce = scene->policy;
        const uint64_t replayed_scarce = scene_replay(scene);
        scene_close(scene);
        CHECK_MSG(free.fits && !free.is_scarce && replayed == free.exposed_ns,
                  "kind %zu: fits %d, exposed %llu, simulated anew %llu", i, free.fits,
                  (unsigned long long)free.exposed_ns, (unsigned long long)replayed);
        CHECK_MSG(scarce.fits && scarce.num_pages <= free.num_pages / 2 + 1 &&
                      replayed_scarce == scarce.exposed_ns,
                  "kind %zu: fits %d, %llu pages, exposed %llu, simulated anew %llu", i,
                  scarce.fits, (unsigned long long)scarce.num_pages,
                  (unsigned long long)scarce.exposed_ns, (unsigned long long)replayed_scarce);
    }
}

static pst_status solve_with(policy_scene *scene, long allocations)
{
    psti_fail_allocation_after(allocations);
    const pst_status status =
        pst_policy_solve(&scene->config, &scene->policy, scene->choices, NULL);
    psti_fail_allocation_after(-1);
    return status;
}

/* Each allocation fails, or from the `every`-th on fewer and fewer of them; and that is said. */
static void check_no_memory(policy_scene *scene, long every)
{
    scene->config.given = PST_POLICY_GIVEN_ALL & ~PST_POLICY_GIVEN_SHARES;
    scene->config.share_den = 1;
    scene->config.objective = PST_POLICY_LEAST_EXPOSED;
    scene->config.sets = PST_POLICY_SETS_CALLERS;
    long num = 0, most = 1 << 20;
    while (num < most) { /* how many there are */
        const long middle = num + (most - num) / 2;
        if (solve_with(scene, middle) == PST_OK)
            most = middle;
        else
            num = middle + 1;
    }
    CHECK(num > 50 && num < 1 << 20);
    for (long n = 0; n < num; n += n < every ? (long)psti_test_step(7) : n / 4)
        CHECK_STATUS(solve_with(scene, n), PST_E_NOMEM);
    scene_close(scene);
}

PST_TEST(PolicyKinds, NoMemoryIsSaid)
{
    check_no_memory(scene_open(1, 0, 1, 1, 2), 20000);
    policy_scene *scene = scene_open(4, 0, 1, 16, 3); /* searched, and with a period */
    scene_set_times(scene, (pst_times){2, 8, 2}, (pst_times){4, 16, 4});
    scene_set_rates(scene, 1, 6);
    scene->simulation.num_pages[0] = 16;
    scene->simulation.num_pages[1] = 100;
    scene->config.max_combinations = 1;
    check_no_memory(scene, 60);
}
