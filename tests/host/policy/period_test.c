/* A search with few of many micro-batches reads the usages of these, and nothing behind them. */
#include "tests/harness.h"
#include "tests/host/policy/policy_scene.h"

PST_TEST(PolicyPeriod, WhatLiesBehindTheUsagesIsNotRead)
{
    policy_scene *scene = scene_open(4, 0, 1, SCENE_MAX_MICRO, 2);
    for (uint32_t m = 0; m < SCENE_MAX_MICRO; m++) {
        scene_set_pages(scene, 0, 0, m, 1 + m); /* the last ones want most */
        scene_set_pages(scene, 0, 1, m, 1 + m);
        scene->usages[0][2][m] = (pst_group_usage){.payload_bytes = 1}; /* in no bytes: INVALID */
    }
    scene_set_times(scene, (pst_times){2, 8, 2}, (pst_times){4, 16, 4});
    scene_set_rates(scene, 1, 3);
    scene->simulation.num_pages[0] = 300; /* of more than 400: some have to leave */
    scene->config.given = PST_POLICY_GIVEN_ALL & ~PST_POLICY_GIVEN_SHARES;
    scene->config.max_combinations = 1;
    scene_solve(scene);
    CHECK(scene->policy.fits && scene->policy.is_scarce);
    scene_close(scene);
}
