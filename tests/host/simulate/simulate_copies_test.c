/* What copies take: rates, MEMO's buffers, parts that leave early, demotes, and work that copies slow. */
#include "tests/host/simulate/simulate_scene.h"

static const sim_shape one_step = {.kind = PST_SCHEDULE_1F1B, .p = 1, .m = 1, .num_layers = 3};

static void set_streams(sim_scene *scene, uint32_t num_streams)
{
    scene->config.num_streams = num_streams;
    scene->config.mode = num_streams > 1 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
}

/* ---- MEMO's two buffers; the last two layers stay ---- */

static const struct {
    const char *name;
    uint32_t layers;
    uint64_t forward, backward, out, back, recompute;
    uint64_t forward_ns, backward_ns, stalls[2];
} memo[] = {
    {"M1", 8, 10, 20, 8, 8, 0, 80, 160, {0, 0}},
    {"M2", 8, 10, 20, 10, 20, 0, 80, 160, {0, 0}},
    {"M3", 8, 10, 20, 14, 14, 0, 104, 160, {24, 0}},
    {"M4", 8, 10, 20, 14, 25, 0, 104, 190, {24, 30}},
    {"M5", 32, 10, 20, 11, 11, 3, 350, 730, {30, 0}},
    {"M6", 2, 10, 20, 50, 50, 0, 20, 40, {0, 0}},
    {"M7", 3, 10, 20, 50, 50, 0, 70, 90, {40, 30}},
};

static void run_memo(sim_scene *scene, size_t row, uint32_t num_streams)
{
    sim_shape shape = one_step;
    shape.num_layers = memo[row].layers;
    sim_open_alone(scene, &shape, 0);
    set_streams(scene, num_streams);
    scene->config.rates.out_rate = 1000000000;
    scene->config.rates.in_rate = memo[row].out * 1000000000 / memo[row].back;
    for (uint32_t n = 0; n < memo[row].layers; n++) {
        scene->layers[n].keep = PST_KEEP_SWAPPED;
        scene->layers[n].swap_bytes = memo[row].out;
        scene->layers[n].recompute_ns = memo[row].recompute;
        scene->layers[n].forward.core = memo[row].forward;
        scene->layers[n].backward.core = memo[row].backward;
    }
    sim_run(scene);
}

PST_TEST(SimulateCopies, BuffersStallAsMemosDo)
{
    static sim_scene scene;
    static const uint32_t streams[] = {1, 2, 4};
    for (size_t row = 0; row < sizeof(memo) / sizeof(memo[0]); row++)
        for (int i = 0; i < 3; i++) {
            const pst_stage_result *result = &scene.stages[0];
            const uint64_t leave = memo[row].layers > 2 ? memo[row].layers - 2 : 0;
            run_memo(&scene, row, streams[i]);
            CHECK_MSG(result->exposed_forward_ns == memo[row].stalls[0] &&
                          result->exposed_backward_ns == memo[row].stalls[1] &&
                          result->end_ns == memo[row].forward_ns + memo[row].backward_ns,
                      "%s with %u streams: %llu; %llu + %llu", memo[row].name, streams[i],
                      (unsigned long long)result->end_ns,
                      (unsigned long long)result->exposed_forward_ns,
                      (unsigned long long)result->exposed_backward_ns);
            CHECK_EQ(result->recompute_ns, leave * memo[row].recompute);
            CHECK_EQ(result->link_bytes[0], leave * memo[row].out);
            CHECK_EQ(result->link_bytes[1], leave * memo[row].out);
            CHECK_EQ(result->link_busy_ns[0], leave * memo[row].out);
            CHECK_EQ(result->link_busy_ns[1], leave * memo[row].back);
            CHECK(result->swapped_host_bytes <= leave * memo[row].out);
            CHECK_EQ(result->swapped_host_bytes == 0, leave == 0);
            CHECK_EQ(result->num_tickets, 0);
            sim_close(&scene);
        }
}

/* X(n) of a layer, out and back, in closed form: (n - 2) max(0, X - T). */
PST_TEST(SimulateCopies, BuffersStallInClosedForm)
{
    static sim_scene scene;
    for (uint32_t n = 1; n <= 12; n++)
        for (uint64_t out = 1; out < 30; out += 7) {
            sim_shape shape = one_step;
            shape.num_layers = n;
            sim_open_alone(&scene, &shape, 0);
            scene.config.rates.out_rate = scene.config.rates.in_rate = 1000000000;
            for (uint32_t i = 0; i < n; i++) {
                scene.layers[i].keep = PST_KEEP_SWAPPED;
                scene.layers[i].swap_bytes = out;
                scene.layers[i].forward.core = 10;
                scene.layers[i].backward.core = 20;
            }
            sim_run(&scene);
            const uint64_t leave = n > 2 ? n - 2 : 0;
            CHECK_EQ(scene.stages[0].exposed_forward_ns, leave * (out > 10 ? out - 10 : 0));
            CHECK_EQ(scene.stages[0].exposed_backward_ns, leave * (out > 20 ? out - 20 : 0));
            sim_close(&scene);
        }
}

/* What a weights' pass reads again is copied in again, and stays in host memory until then. */
PST_TEST(SimulateCopies, BuffersAreReadTwiceWhereBackwardsAreSplit)
{
    static sim_scene scene;
    const sim_shape shape = {.kind = PST_SCHEDULE_ZB_H1, .p = 2, .m = 4, .num_layers = 4};
    sim_open_alone(&scene, &shape, 0);
    for (uint32_t n = 0; n < 4; n++) {
        scene.layers[n].keep = PST_KEEP_SWAPPED;
        scene.layers[n].swap_bytes = 100;
    }
    sim_run(&scene);
    const pst_stage_result *result = &scene.stages[0];
    CHECK_EQ(result->stashed, 4 * 4);
    CHECK_EQ(result->link_bytes[0], 4 * 4 * 100);
    CHECK_EQ(result->link_bytes[1], 2 * 4 * 4 * 100);
    CHECK_EQ(result->swapped_host_bytes, 2 * 4 * 100);
    sim_close(&scene);
}

/* ---- parts ---- */

/* Three layers, one source: two stashes that the next forward waits for. */
static uint64_t exposed_by_parts(uint64_t first_ns, uint64_t second_ns, uint32_t num_streams)
{
    static sim_scene scene;
    sim_open_alone(&scene, &one_step, 0);
    set_streams(&scene, num_streams);
    scene.config.num_sources = 1;
    scene.config.rates.stash_fixed_ns = 3;
    for (uint32_t n = 0; n < 3; n++) {
        scene.layers[n].num_parts = 2;
        scene.layers[n].part_ns[0] = first_ns;
        scene.layers[n].part_ns[1] = second_ns;
        scene.layers[n].forward = (pst_times){1, 10, 1};
        scene.usages[n][1] = scene.usages[n][0];
    }
    sim_run(&scene);
    const uint64_t exposed = scene.stages[0].exposed_forward_ns;
    if (scene.stages[0].high_water[0] != 4 || scene.stages[0].num_tickets != 6)
        psti_test_fail(__FILE__, __LINE__, "pages of two layers of two parts");
    sim_close(&scene);
    return exposed;
}

PST_TEST(SimulateCopies, PartsThatAreAnnouncedLeaveEarly)
{
    static const uint32_t streams[] = {1, 2, 4};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(exposed_by_parts(0, 0, streams[i]), 2 * (6 - 2)); /* after and before hide 2 */
        CHECK_EQ(exposed_by_parts(4, 0, streams[i]), 2 * (3 - 2));
        CHECK_EQ(exposed_by_parts(0, 4, streams[i]), 2 * (3 - 2));
        CHECK_EQ(exposed_by_parts(4, 2, streams[i]), 0);
        CHECK_EQ(exposed_by_parts(10, 9, streams[i]),
                 2 * (5 - 2)); /* the second at 9, then the first */
        CHECK_EQ(exposed_by_parts(9, 10, streams[i]), 2 * (5 - 2));
    }
}

/* A part that only the weights' pass reads is restored for that alone. */
PST_TEST(SimulateCopies, PartsAreRestoredForWhoReadsThem)
{
    static sim_scene scene;
    const sim_shape shape = {.kind = PST_SCHEDULE_ZB_H1, .p = 2, .m = 4, .num_layers = 2};
    static const struct {
        uint32_t uses[2];
        uint64_t restored_parts;
    } cases[] = {{{0, 0}, 4}, {{PST_USE_BACKWARD, PST_USE_WEIGHT}, 2}, {{PST_USE_BACKWARD, 3}, 3}};
    for (int i = 0; i < 3; i++) {
        sim_open_alone(&scene, &shape, 0);
        scene.config.rates.restore_fixed_ns = 1;
        for (uint32_t n = 0; n < 2; n++) {
            scene.layers[n].num_parts = 2;
            scene.usages[n][1] = scene.usages[n][0];
            scene.layers[n].uses[0] = cases[i].uses[0];
            scene.layers[n].uses[1] = cases[i].uses[1];
        }
        sim_run(&scene);
        CHECK_EQ(scene.stages[0].stashed, 8);
        CHECK_EQ(scene.stages[0].restore_busy_ns, 8 * cases[i].restored_parts);
        CHECK_EQ(scene.stages[0].in_use[0], 0);
        sim_close(&scene);
    }
}

/* ---- rates ---- */

/* Half of four pages goes to the host: the last page is not full, and lies on the device. */
PST_TEST(SimulateCopies, BytesTakeTheTimeOfTheirTier)
{
    static sim_scene scene;
    const sim_shape shape = {.kind = PST_SCHEDULE_1F1B, .p = 2, .m = 2, .num_layers = 1};
    sim_open_alone(&scene, &shape, 0);
    scene.config.num_pages[1] = UINT64_MAX;
    scene.config.rates = (pst_simulated_rates){.stash_fixed_ns = 5,
                                               .restore_fixed_ns = 7,
                                               .stash_rate = 1000000000,
                                               .restore_rate = 2000000000,
                                               .out_rate = 500000000,
                                               .in_rate = 250000000};
    scene.config.num_sources = 1;
    scene.config.num_destinations = 1;
    scene.config.keeps_nothing = true;
    scene.layers[0].policy.host_num = 1;
    scene.layers[0].policy.host_den = 2;
    scene.usages[0][0] = (pst_group_usage){
        .payload_bytes = 3 * SIM_PAGE + 1001, .stream_bytes = 3 * SIM_PAGE + 1001, .pages = 4};
    sim_run(&scene);
    const uint64_t host = 2 * SIM_PAGE, device = SIM_PAGE + 1001;
    const pst_stage_result *result = &scene.stages[0];
    CHECK_EQ(result->stashed, 2);
    CHECK_EQ(result->stash_busy_ns, 2 * (5 + device + 2 * host));
    CHECK_EQ(result->restore_busy_ns, 2 * (7 + (device + 1) / 2 + 4 * host));
    CHECK_EQ(result->link_bytes[0], 2 * host);
    CHECK_EQ(result->link_bytes[1], 2 * host);
    CHECK_EQ(result->link_busy_ns[0], 2 * 2 * host);
    CHECK_EQ(result->link_busy_ns[1], 2 * 4 * host);
    CHECK_EQ(result->offloaded_pages, 4);
    scene.usages[0][0].payload_bytes = SIM_PAGE; /* live bytes lie evenly in the stream */
    sim_run(&scene);
    CHECK_EQ(result->link_bytes[0],
             2 * ((uint64_t)SIM_PAGE * (2 * SIM_PAGE) / (3 * SIM_PAGE + 1001)));
    scene.usages[0][0].payload_bytes = 3 * SIM_PAGE + 1001;
    scene.layers[0].policy.host_num = 2; /* all of it, with the page that is not full */
    sim_run(&scene);
    CHECK_EQ(result->link_bytes[0], 2 * (host + device));
    CHECK_EQ(result->stash_busy_ns, 2 * (5 + 2 * (host + device)));
    sim_close(&scene);
}

/* One page on the device; the others, also the one that is not full, on the host. */
PST_TEST(SimulateCopies, SpilledBytesAreThoseOfThePages)
{
    static sim_scene scene;
    const sim_shape shape = {.kind = PST_SCHEDULE_1F1B, .p = 2, .m = 2, .num_layers = 1};
    sim_open_alone(&scene, &shape, 0);
    scene.config.num_pages[0] = 1;
    scene.config.num_pages[1] = UINT64_MAX;
    scene.config.keeps_nothing = true;
    scene.usages[0][0] = (pst_group_usage){3 * SIM_PAGE + 1000, 3 * SIM_PAGE + 1000, 4};
    sim_run(&scene);
    CHECK_EQ(scene.stages[0].spilled_pages, 2 * 3);
    CHECK_EQ(scene.stages[0].link_bytes[0], 2 * (2 * SIM_PAGE + 1000));
    CHECK_EQ(scene.stages[0].link_bytes[1], 2 * (2 * SIM_PAGE + 1000));
    sim_close(&scene);
}

/* A stash that fails takes its fixed time alone, and so does its restore. */
PST_TEST(SimulateCopies, FailuresTakeTheFixedTime)
{
    static sim_scene scene;
    const sim_shape shape = {.kind = PST_SCHEDULE_1F1B, .p = 2, .m = 2, .num_layers = 1};
    sim_open_alone(&scene, &shape, 0);
    scene.config.num_pages[0] = 1;
    scene.config.keeps_nothing = true;
    scene.config.rates.stash_fixed_ns = 5;
    scene.config.rates.restore_fixed_ns = 7;
    scene.config.rates.stash_rate = scene.config.rates.restore_rate = 1000000000;
    scene.usages[0][0] = (pst_group_usage){2 * SIM_PAGE, 2 * SIM_PAGE, 2};
    sim_run(&scene);
    CHECK_EQ(scene.stages[0].num_faults, 4);
    CHECK_EQ(scene.stages[0].stash_busy_ns, 10);
    CHECK_EQ(scene.stages[0].restore_busy_ns, 14);
    CHECK_EQ(scene.stages[0].high_water[0], 0);
    CHECK_EQ(scene.stages[0].demand_high_water, 2); /* each restore follows its stash */
    sim_close(&scene);
}

/* Pages that move count in both tiers until the move has ended, and go over the link whole. */
PST_TEST(SimulateCopies, DemotesMoveWholePages)
{
    static sim_scene scene;
    const sim_shape shape = {.kind = PST_SCHEDULE_1F1B, .p = 2, .m = 2, .num_layers = 1};
    for (uint64_t most = 0; most < 4; most++) {
        const uint64_t moved = most > 0 && most < 3 ? most : 3;
        sim_open_alone(&scene, &shape, 0);
        set_streams(&scene, 4);
        sim_set_times(&scene, (pst_times){0, 10000000, 0}, (pst_times){0, 10000000, 0});
        scene.config.keeps_nothing = true;
        scene.config.num_pages[1] = UINT64_MAX;
        scene.config.rates.out_rate = scene.config.rates.in_rate = 1000000000;
        scene.config.rates.demote_fixed_ns = 3;
        scene.usages[0][0] = (pst_group_usage){2 * SIM_PAGE + 5, 2 * SIM_PAGE + 5, 3};
        scene.layers[0].policy =
            (pst_layer_policy){.host_num = 1, .host_den = 1, .move = PST_MOVE_DEMOTE};
        scene.layers[0].max_demote_pages = most;
        sim_run(&scene);
        const pst_stage_result *result = &scene.stages[0];
        CHECK_EQ(result->demoted_pages, 2 * moved);
        CHECK_EQ(result->promoted_pages, 2 * moved);
        CHECK_EQ(result->link_bytes[0], 2 * moved * SIM_PAGE);
        CHECK_EQ(result->link_busy_ns[0], 2 * moved * SIM_PAGE);
        CHECK_EQ(result->offloaded_pages, 0);
        CHECK_EQ(result->in_use[0] + result->in_use[1], 0);
        CHECK(result->demand_high_water <= result->high_water_bounds[1]);
        CHECK(result->demand_high_water >= result->high_water_bounds[0]);
        sim_close(&scene);
    }
}

/* Four device pages. While the three of layer 1 are restored one page is free: of the three of layer 0,
 * which are on the host, one comes back, and the restore reads the others there, the last not full. */
PST_TEST(SimulateCopies, WhatIsStrandedIsReadWhereItIs)
{
    static sim_scene scene;
    sim_shape shape = one_step;
    shape.num_layers = 2;
    sim_open_alone(&scene, &shape, 0);
    set_streams(&scene, 4);
    sim_set_times(&scene, (pst_times){0, 1000000, 0}, (pst_times){0, 1000000, 0});
    scene.config.num_destinations = 1;
    scene.config.keeps_nothing = true;
    scene.config.num_pages[0] = 4;
    scene.config.num_pages[1] = UINT64_MAX;
    scene.config.rates.out_rate = scene.config.rates.in_rate = 1000000000;
    scene.config.rates.restore_fixed_ns = 1000000;
    for (uint32_t n = 0; n < 2; n++) {
        scene.usages[n][0] = (pst_group_usage){2 * SIM_PAGE + 5, 2 * SIM_PAGE + 5, 3};
        scene.layers[n].policy =
            (pst_layer_policy){.host_num = 1, .host_den = 1, .move = PST_MOVE_DEMOTE};
    }
    sim_run(&scene);
    CHECK_EQ(scene.stages[0].num_faults, 0);
    CHECK_EQ(scene.stages[0].demoted_pages, 6);
    CHECK_EQ(scene.stages[0].promoted_pages, 4);
    CHECK_EQ(scene.stages[0].stranded_pages, 2);
    CHECK_EQ(scene.stages[0].link_bytes[1], 4 * SIM_PAGE + SIM_PAGE + 5);
    sim_close(&scene);
}

/* ---- the main stream ---- */

/* Only the first of three layers is stashed, for 10 ns, beside the second's forward: of its 10 ns of work
 * the copy lets 10 * 1000 / 1500 be done, and the rest takes 4 more. */
PST_TEST(SimulateCopies, WorkIsSlowerBesideCopies)
{
    static const uint32_t streams[] = {1, 2};
    static sim_scene scene;
    for (int i = 0; i < 2; i++) {
        sim_open_alone(&scene, &one_step, 0);
        set_streams(&scene, streams[i]);
        sim_set_times(&scene, (pst_times){0, 10, 0}, (pst_times){0, 0, 0});
        scene.config.rates.stash_fixed_ns = 10;
        scene.config.interference_per_mille = 500;
        sim_run(&scene);
        CHECK_EQ(scene.stages[0].stashed, 1);
        CHECK_EQ(scene.stages[0].end_ns, 34);
        CHECK_EQ(scene.stages[0].busy_ns, 34);
        scene.config.rates.stash_fixed_ns = 1000; /* the third waits for it */
        sim_run(&scene);
        CHECK_EQ(scene.stages[0].busy_ns, 10 + 15 + 10);
        CHECK_EQ(scene.stages[0].exposed_forward_ns, 1000 - 15);
        sim_close(&scene);
    }
}

PST_TEST(SimulateCopies, RecomputationIsWorkOfTheMainStream)
{
    static sim_scene scene;
    const sim_shape shape = {.kind = PST_SCHEDULE_1F1B, .p = 4, .m = 8, .num_layers = 2};
    sim_open_alone(&scene, &shape, 0);
    sim_set_times(&scene, (pst_times){1, 4, 1}, (pst_times){2, 8, 2});
    scene.layers[1].keep = PST_KEEP_RECOMPUTED;
    scene.layers[1].recompute_ns = 6;
    scene.layers[0].recompute_ns = 1000; /* of a layer that is paged: nothing */
    sim_run(&scene);
    CHECK_EQ(scene.stages[0].recompute_ns, 8 * 6);
    CHECK_EQ(scene.stages[0].busy_ns, 8 * 2 * 18 + 8 * 6);
    CHECK_EQ(scene.stages[0].end_ns, scene.stages[0].busy_ns);
    sim_close(&scene);
}
