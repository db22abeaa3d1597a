/* Several side streams: the order of time against the order of the calls, bounds, and timelines. */
#include "tests/host/simulate/simulate_scene.h"
#include "tests/random.h"

#include <stdlib.h>

static const pst_schedule_kind kinds[] = {
    PST_SCHEDULE_1F1B, PST_SCHEDULE_INTERLEAVED, PST_SCHEDULE_GPIPE,     PST_SCHEDULE_ZB_H1,
    PST_SCHEDULE_ZB_V, PST_SCHEDULE_DUALPIPE,    PST_SCHEDULE_DUALPIPE_V};

static sim_shape random_shape(uint64_t *seed)
{
    sim_shape shape = {.kind = kinds[random_below(seed, sizeof(kinds) / sizeof(kinds[0]))], .v = 1};
    shape.p = 2 * (1 + (uint32_t)random_below(seed, 2));
    shape.m = shape.p * (2 + (uint32_t)random_below(seed, 3));
    shape.num_layers = 1 + (uint32_t)random_below(seed, 4);
    if (shape.kind != PST_SCHEDULE_1F1B && shape.kind != PST_SCHEDULE_GPIPE &&
        shape.kind != PST_SCHEDULE_ZB_H1)
        shape.v = 2;
    return shape;
}

static void random_layers(sim_scene *scene, uint64_t *seed)
{
    for (uint32_t n = 0; n < scene->num_layers[0]; n++) {
        pst_simulated_layer *layer = &scene->layers[n];
        layer->forward = (pst_times){random_below(seed, 4), 4 + random_below(seed, 9), 1};
        layer->backward = (pst_times){2, random_below(seed, 20), random_below(seed, 3)};
        layer->backward_input = (pst_times){1, random_below(seed, 10), 1};
        layer->backward_weight = (pst_times){0, random_below(seed, 10), 0};
        layer->num_parts = 1 + (uint32_t)random_below(seed, 3);
        layer->num_usages = scene->shape.m;
        for (uint32_t i = 0; i < layer->num_parts * scene->shape.m; i++) {
            const uint64_t pages = random_below(seed, 5);
            scene->usages[n][i] = (pst_group_usage){pages * SIM_PAGE, pages * SIM_PAGE, pages};
        }
        for (uint32_t part = 0; part < layer->num_parts; part++)
            layer->part_ns[part] = random_below(seed, 2) ? random_below(seed, 5) : 0;
        if (random_below(seed, 9) == 0)
            layer->keep = (pst_keep)(2 + random_below(seed, 2));
        layer->recompute_ns = random_below(seed, 9);
    }
}

static void random_config(sim_scene *scene, uint64_t *seed)
{
    pst_simulation_config *config = &scene->config;
    config->num_sources = 1 + (uint32_t)random_below(seed, 3);
    config->num_destinations = 1 + (uint32_t)random_below(seed, 3);
    config->ahead = (uint32_t)random_below(seed, 3);
    config->by_slot = random_below(seed, 4) == 0;
    config->p2p_ns = random_below(seed, 10);
    config->alone = random_below(seed, 3) == 0;
    config->mode = PST_POOL_CONCURRENT;
    config->rates.stash_fixed_ns = random_below(seed, 12);
    config->rates.restore_fixed_ns = random_below(seed, 16);
    config->rates.stash_rate = config->rates.restore_rate = 20000000000000; /* 3.3 ns per page */
    config->steps = 1 + (uint32_t)random_below(seed, 2);
}

static void random_tiers(sim_scene *scene, uint64_t *seed)
{
    scene->config.num_pages[0] = 1 + random_below(seed, 60);
    scene->config.num_pages[1] = 1 + random_below(seed, 30);
    scene->config.interference_per_mille =
        random_below(seed, 2) ? (uint32_t)random_below(seed, 900) : 0;
    for (uint32_t n = 0; n < scene->num_layers[0]; n++) {
        pst_layer_policy *policy = &scene->layers[n].policy;
        policy->host_den = (uint32_t)random_below(seed, 4);
        policy->host_num = (uint32_t)random_below(seed, policy->host_den + 1);
        if (scene->config.num_streams > 1 && random_below(seed, 2))
            policy->move = PST_MOVE_DEMOTE;
    }
}

/* Times of a rank: what does not depend on the order of pages while there are enough. */
static void check_times(const pst_stage_result *a, const pst_stage_result *b)
{
    CHECK_EQ(a->end_ns, b->end_ns);
    CHECK_EQ(a->span_ns, b->span_ns);
    CHECK_EQ(a->busy_ns, b->busy_ns);
    CHECK_EQ(a->bubble_ns, b->bubble_ns);
    CHECK_EQ(a->recompute_ns, b->recompute_ns);
    CHECK_EQ(a->exposed_forward_ns, b->exposed_forward_ns);
    CHECK_EQ(a->exposed_backward_ns, b->exposed_backward_ns);
    CHECK_EQ(a->stash_busy_ns, b->stash_busy_ns);
    CHECK_EQ(a->restore_busy_ns, b->restore_busy_ns);
    CHECK_EQ(a->worst_ns, b->worst_ns);
    CHECK_EQ(memcmp(&a->worst, &b->worst, sizeof(a->worst)), 0);
}

static void check_bounds(const pst_stage_result *result)
{
    CHECK(result->high_water_bounds[0] <= result->demand_high_water);
    CHECK(result->demand_high_water <= result->high_water_bounds[1]);
    CHECK_EQ(result->in_use[0] + result->in_use[1], 0);
}

static void run_both_orders(sim_scene *scene, uint64_t seed)
{
    static const uint32_t streams[] = {1, 2, 4};
    static pst_stage_result before[SIM_MAX_STAGES];
    const sim_shape shape = random_shape(&seed);
    sim_open(scene, &shape);
    random_layers(scene, &seed);
    random_config(scene, &seed);
    scene->config.num_streams = streams[random_below(&seed, 3)];
    scene->config.in_call_order = true;
    sim_run(scene);
    const uint64_t makespan = scene->simulation.makespan_ns;
    for (uint32_t r = 0; r < shape.p; r++) {
        before[r] = scene->stages[r];
        check_bounds(&before[r]);
        CHECK(!before[r].order_is_simulated);
    }
    scene->config.in_call_order = false;
    sim_run(scene);
    CHECK_EQ(scene->simulation.makespan_ns, makespan);
    for (uint32_t r = 0; r < shape.p; r++) {
        check_times(&before[r], &scene->stages[r]);
        check_bounds(&scene->stages[r]);
        CHECK_EQ(scene->stages[r].order_is_simulated, scene->config.num_streams > 1);
        CHECK_EQ(before[r].high_water_bounds[0], scene->stages[r].high_water_bounds[0]);
        CHECK_EQ(before[r].high_water_bounds[1], scene->stages[r].high_water_bounds[1]);
    }
    sim_close(scene);
}

PST_TEST(SimulateOrder, TimesDoNotDependOnIt)
{
    static sim_scene scene;
    for (uint32_t i = 0; i < psti_test_cases(1000); i++) {
        run_both_orders(&scene, i);
        CHECK_MSG(!psti_test_failed(), "seed %u", i);
    }
}

/* Where nothing takes time, the first in the list that can go on is first: the order of the calls. */
static void run_timeless(sim_scene *scene, uint64_t seed)
{
    static pst_stage_result before[SIM_MAX_STAGES];
    const sim_shape shape = random_shape(&seed);
    sim_open(scene, &shape);
    random_layers(scene, &seed);
    random_config(scene, &seed);
    scene->config.num_streams = random_below(&seed, 2) ? 2 : 4;
    random_tiers(scene, &seed);
    for (uint32_t n = 0; n < scene->num_layers[0]; n++) {
        pst_simulated_layer *layer = &scene->layers[n];
        layer->forward = layer->backward = (pst_times){0, 0, 0};
        layer->backward_input = layer->backward_weight = (pst_times){0, 0, 0};
        memset(layer->part_ns, 0, sizeof(layer->part_ns));
        layer->recompute_ns = 0;
    }
    scene->config.rates = (pst_simulated_rates){0};
    scene->config.interference_per_mille = 0;
    scene->config.alone =
        true; /* in a wait for another rank, what comes later in the list goes on */
    scene->config.in_call_order = true;
    sim_run(scene);
    memcpy(before, scene->stages, sizeof(before));
    scene->config.in_call_order = false;
    sim_run(scene);
    for (uint32_t r = 0; r < shape.p; r++) {
        CHECK(scene->stages[r].order_is_simulated);
        scene->stages[r].order_is_simulated = false;
        CHECK_EQ(memcmp(&before[r], &scene->stages[r], sizeof(before[r])), 0);
    }
    sim_close(scene);
}

PST_TEST(SimulateOrder, WithoutTimeItIsThatOfTheCalls)
{
    static sim_scene scene;
    for (uint32_t i = 0; i < psti_test_cases(1000); i++) {
        run_timeless(&scene, 3000 + i);
        CHECK_MSG(!psti_test_failed(), "seed %u", 3000 + i);
    }
}

/* One page: the restore of the first micro-batch ends when the second one's stash begins. */
PST_TEST(SimulateOrder, PagesAreFreeWhenARestoreEnds)
{
    static sim_scene scene;
    const sim_shape shape = {.kind = PST_SCHEDULE_1F1B, .p = 2, .m = 2, .num_layers = 1};
    for (uint64_t restore = 3; restore <= 5; restore++) {
        sim_open_alone(&scene, &shape, 0);
        scene.config.num_streams = 2;
        scene.config.mode = PST_POOL_CONCURRENT;
        scene.config.keeps_nothing = true;
        scene.config.num_pages[0] = 1;
        scene.config.rates.stash_fixed_ns = 3;
        scene.config.rates.restore_fixed_ns = restore;
        sim_set_times(&scene, (pst_times){0, 7, 0}, (pst_times){0, 7, 0});
        sim_run(&scene);
        CHECK_EQ(scene.stages[0].num_faults, 3 + restore > 7 ? 2 : 0);
        sim_close(&scene);
    }
}

/* Two streams, and a stash that takes long: restores of the backward come before the stashes that
 * the order of the list has in front of them. */
PST_TEST(SimulateOrder, BoundsAreReachedByExtremeTimes)
{
    static sim_scene scene;
    const sim_shape shape = {.kind = PST_SCHEDULE_1F1B, .p = 4, .m = 8, .num_layers = 4};
    uint64_t bounds[2], least = UINT64_MAX, most = 0;
    sim_open_alone(&scene, &shape, 0);
    scene.config.num_streams = 2;
    scene.config.mode = PST_POOL_CONCURRENT;
    sim_set_pages(&scene, sim_pages3);
    for (uint64_t stash = 0; stash < 40; stash += 2)
        for (uint64_t restore = 0; restore < 40; restore += 2) {
            sim_set_times(&scene, (pst_times){1, 4, 1}, (pst_times){2, 8, 2});
            scene.config.rates.stash_fixed_ns = stash;
            scene.config.rates.restore_fixed_ns = restore;
            sim_run(&scene);
            check_bounds(&scene.stages[0]);
            least = scene.stages[0].high_water[0] < least ? scene.stages[0].high_water[0] : least;
            most = scene.stages[0].high_water[0] > most ? scene.stages[0].high_water[0] : most;
        }
    bounds[0] = scene.stages[0].high_water_bounds[0];
    bounds[1] = scene.stages[0].high_water_bounds[1];
    CHECK(bounds[0] < bounds[1]);
    CHECK_EQ(most, bounds[1]);
    CHECK(least - bounds[0] <= 3); /* stashes as late as can be are not late always */
    sim_close(&scene);
}

/* ---- timelines ---- */

typedef struct timeline {
    const sim_scene *scene;
    uint64_t ends[SIM_MAX_STAGES][PST_NUM_SIMULATED_STREAMS];
    uint64_t spent[SIM_MAX_STAGES][PST_SIMULATED_DO_SWAP_IN + 1];
    uint64_t num, failed;
} timeline;

static void follow(void *user, const pst_simulated_event *event)
{
    timeline *self = user;
    uint64_t *end = &self->ends[event->stage][event->stream];
    CHECK(event->stage < self->scene->num_stages);
    CHECK_MSG(event->begin_ns >= *end && event->end_ns >= event->begin_ns,
              "stage %u, stream %d: %llu to %llu, after %llu", event->stage, (int)event->stream,
              (unsigned long long)event->begin_ns, (unsigned long long)event->end_ns,
              (unsigned long long)*end);
    for (uint32_t tier = 0; tier < 2; tier++)
        CHECK(event->in_use[tier] <= self->scene->config.num_pages[tier]);
    CHECK_EQ(event->kind >= PST_SIMULATED_DO_STASH, event->stream != PST_SIMULATED_MAIN);
    *end = event->end_ns;
    self->spent[event->stage][event->kind] += event->end_ns - event->begin_ns;
    self->num++;
    self->failed += event->fault != PST_FAULT_NONE;
}

static void check_timeline(const timeline *self, const sim_scene *scene)
{
    uint64_t faults = 0;
    for (uint32_t r = 0; r < scene->num_stages; r++) {
        const pst_stage_result *result = &scene->stages[r];
        const uint64_t *spent = self->spent[r];
        CHECK_EQ(spent[PST_SIMULATED_WORK] + spent[PST_SIMULATED_RECOMPUTE], result->busy_ns);
        CHECK_EQ(spent[PST_SIMULATED_RECOMPUTE], result->recompute_ns);
        CHECK_EQ(spent[PST_SIMULATED_STALL],
                 result->exposed_forward_ns + result->exposed_backward_ns);
        CHECK(spent[PST_SIMULATED_BUBBLE] <= result->bubble_ns);
        CHECK_EQ(spent[PST_SIMULATED_DO_STASH], result->stash_busy_ns);
        CHECK_EQ(spent[PST_SIMULATED_DO_RESTORE], result->restore_busy_ns);
        CHECK_EQ(self->ends[r][PST_SIMULATED_MAIN], result->end_ns);
        faults += result->num_faults;
    }
    CHECK_EQ(self->failed, faults);
}

PST_TEST(SimulateOrder, TimelinesAddUp)
{
    static sim_scene scene;
    static timeline line;
    static const uint32_t streams[] = {1, 2, 4};
    uint64_t failed = 0;
    for (uint32_t i = 0; i < psti_test_cases(1000); i++) {
        uint64_t seed = 7000 + i;
        const sim_shape shape = random_shape(&seed);
        sim_open(&scene, &shape);
        random_layers(&scene, &seed);
        random_config(&scene, &seed);
        scene.config.num_streams = streams[random_below(&seed, 3)];
        scene.config.steps = 1;
        random_tiers(&scene, &seed);
        memset(&line, 0, sizeof(line));
        line.scene = &scene;
        scene.config.on_event = follow;
        scene.config.user = &line;
        sim_run(&scene);
        check_timeline(&line, &scene);
        for (uint32_t r = 0; r < shape.p; r++)
            check_bounds(&scene.stages[r]);
        failed += line.failed;
        CHECK_MSG(!psti_test_failed(), "seed %u", 7000 + i);
        sim_close(&scene);
    }
    CHECK(failed > 0);
}
