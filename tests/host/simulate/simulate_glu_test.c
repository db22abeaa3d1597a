/* Parts that a GLU writes: times by hand, and the pages of a pool that real activations have used. */
#include "tests/host/scheduler/scheduler_glu.h"
#include "tests/host/simulate/simulate_scene.h"

#include "host/scheduler/scheduler.h"
#include "tests/random.h"

/* Three layers of one page, one after the other on one rank; the last stays in place. A page takes 8 ns
 * to stash and to restore, and 16 over the link. */
static void open_shape(sim_scene *scene, const sim_shape *shape, uint32_t streams,
                       bool in_call_order)
{
    sim_open_alone(scene, shape, 0);
    sim_set_times(scene, (pst_times){1, 4, 1}, (pst_times){2, 8, 2});
    scene->config.num_sources = 1;
    scene->config.num_streams = streams;
    scene->config.mode = PST_POOL_CONCURRENT;
    scene->config.in_call_order = in_call_order;
    scene->config.page_bytes = SIM_PAGE;
    scene->config.rates = (pst_simulated_rates){
        .stash_fixed_ns = 100,
        .restore_fixed_ns = 100,
        .stash_rate = UINT64_C(1000000000) * SIM_PAGE / 8,
        .restore_rate = UINT64_C(1000000000) * SIM_PAGE / 8,
        .out_rate = UINT64_C(1000000000) * SIM_PAGE / 16,
        .in_rate = UINT64_C(1000000000) * SIM_PAGE / 16,
    };
    for (uint32_t l = 0; l < 3; l++) {
        scene->layers[l].glu_parts = 1;
        scene->layers[l].num_usages = shape->m;
        for (uint32_t m = 1; m < shape->m; m++)
            scene->usages[l][m] = scene->usages[l][0];
    }
}

static void open_three(sim_scene *scene, uint32_t streams, bool in_call_order)
{
    const sim_shape shape = {.kind = PST_SCHEDULE_1F1B, .p = 1, .m = 1, .v = 1, .num_layers = 3};
    open_shape(scene, &shape, streams, in_call_order);
}

static void expect_times(const sim_scene *scene, uint64_t end, uint64_t forward, uint64_t backward)
{
    const pst_stage_result *result = &scene->stages[0];
    CHECK_EQ(result->end_ns, end);
    CHECK_EQ(result->exposed_forward_ns, forward);
    CHECK_EQ(result->exposed_backward_ns, backward);
    CHECK_EQ(result->busy_ns, end - forward - backward);
    CHECK_EQ(result->stash_busy_ns + result->restore_busy_ns, 0);
    CHECK_EQ(result->num_faults, 0);
    CHECK_EQ(result->restored, 0);
}

PST_TEST(SimulateGlu, TimesByHand)
{
    static const uint64_t half[] = {SIM_PAGE / 2};
    static sim_scene scene;
    for (uint32_t way = 0; way < 6; way++) {
        const uint32_t streams = 1u << way % 3;
        open_three(&scene, streams, way >= 3);
        sim_run(&scene);
        expect_times(&scene, 2 * (6 + 4) + 6 + 3 * 12, 8, 0);
        CHECK_EQ(scene.stages[0].high_water[0], 2); /* freed in the backward, not ahead */
        CHECK_EQ(scene.stages[0].high_water_bounds[0], 2);
        CHECK_EQ(scene.stages[0].high_water_bounds[1], 2);
        for (uint32_t l = 0; l < 3; l++)
            scene.layers[l].glu_bytes = half;
        sim_run(&scene);
        expect_times(&scene, 2 * (6 + 4 + 2) + 6 + 3 * 12 + 2 * 4, 12, 8);
        sim_close(&scene);
    }
}

/* Written over the link by the forward, and back before it is read: layer 1 from 43 to 59, layer 0 to 75. */
PST_TEST(SimulateGlu, PromotesTakeTheLink)
{
    static sim_scene scene;
    for (uint32_t way = 0; way < 4; way++) {
        open_three(&scene, way % 2 ? 4 : 2, way >= 2);
        scene.config.num_pages[1] = 8;
        for (uint32_t l = 0; l < 3; l++)
            scene.layers[l].policy = (pst_layer_policy){.host_num = 1, .host_den = 1};
        sim_run(&scene);
        expect_times(&scene, 2 * (6 + 16) + 6 + 3 * 12, 32, 0);
        const pst_stage_result *result = &scene.stages[0];
        CHECK_EQ(result->high_water[1], 2);
        CHECK_EQ(result->offloaded_pages, 2);
        CHECK_EQ(result->promoted_pages, 2);
        CHECK_EQ(result->link_bytes[0], 2 * SIM_PAGE);
        CHECK_EQ(result->link_bytes[1], 2 * SIM_PAGE);
        CHECK_EQ(result->link_busy_ns[1], 32);
        CHECK_EQ(result->order_is_simulated, way < 2);
        scene.config.num_pages[0] = 0; /* nowhere to go: read over the link */
        sim_run(&scene);
        expect_times(&scene, 2 * (6 + 16) + 6 + 3 * 12 + 32, 32, 32);
        CHECK_EQ(scene.stages[0].stranded_pages, 2);
        sim_close(&scene);
    }
}

/* The bounds hold whatever the times are. */
PST_TEST(SimulateGlu, BoundsHold)
{
    static sim_scene scene;
    for (uint64_t ns = 0; ns < 30; ns += 3) {
        const sim_shape shape = {
            .kind = PST_SCHEDULE_1F1B, .p = 4, .m = 8, .v = 1, .num_layers = 3};
        sim_open_alone(&scene, &shape, 0);
        sim_set_pages(&scene, sim_pages3);
        sim_set_times(&scene, (pst_times){1, 4, 1}, (pst_times){2, 8, 2});
        scene.config.mode = PST_POOL_CONCURRENT;
        scene.config.rates.stash_fixed_ns = ns;
        scene.config.rates.restore_fixed_ns = 30 - ns;
        scene.layers[1].glu_parts = 1;
        sim_run(&scene);
        const pst_stage_result *result = &scene.stages[0];
        CHECK(result->order_is_simulated);
        CHECK(result->high_water_bounds[0] <= result->demand_high_water);
        CHECK(result->high_water_bounds[1] >= result->demand_high_water);
        CHECK(result->high_water_bounds[0] < result->high_water_bounds[1]);
        sim_close(&scene);
    }
}

PST_TEST(SimulateGlu, Refusals)
{
    static const uint64_t too_many[] = {SIM_PAGE + 1};
    static sim_scene scene;
    pst_simulation simulation;
    open_three(&scene, 1, false);
#define REFUSES(change, undo, text)                                                          \
    do {                                                                                     \
        change;                                                                              \
        CHECK_STATUS(pst_simulate(&scene.config, &simulation, scene.stages), PST_E_INVALID); \
        CHECK_MSG(strstr(pst_last_message(), text) != NULL, "said: %s", pst_last_message()); \
        undo;                                                                                \
    } while (0)
    REFUSES(scene.config.mode = PST_POOL_ORDERED, scene.config.mode = PST_POOL_CONCURRENT,
            "glu_parts with mode ORDERED");
    scene.config.in_call_order = true; /* a scheduler refuses it all the same */
    REFUSES(scene.config.mode = PST_POOL_ORDERED, scene.config.mode = PST_POOL_CONCURRENT,
            "glu_parts with mode ORDERED");
    scene.config.in_call_order = false;
    REFUSES(scene.layers[0].glu_parts = 2, scene.layers[0].glu_parts = 1, "it has 1 parts");
    REFUSES(scene.layers[0].part_ns[0] = 1, scene.layers[0].part_ns[0] = 0, "part_ns[0] 1: 0 for");
    REFUSES(scene.layers[0].glu_bytes = too_many, scene.layers[0].glu_bytes = NULL,
            "payload_bytes");
    REFUSES(scene.layers[0].padding_2 = 1, scene.layers[0].padding_2 = 0, "padding_2");
#undef REFUSES
    sim_run(&scene);
    sim_close(&scene);
}

PST_TEST(SimulateGlu, BytesOfEachMicroBatch)
{
    static const uint64_t bytes[] = {SIM_PAGE / 2, 0};
    static sim_scene scene;
    const sim_shape shape = {.kind = PST_SCHEDULE_1F1B, .p = 1, .m = 2, .v = 1, .num_layers = 3};
    open_shape(&scene, &shape, 1, false);
    for (uint32_t l = 0; l < 3; l++)
        scene.layers[l].glu_bytes = bytes;
    sim_run(&scene);
    const uint64_t work = 2 * 6 + 6 + 3 * 12;
    expect_times(&scene, work + 2 * (4 + 2 + 4) + work + 2 * (8 + 8), 12 + 16, 8 + 16);
    sim_close(&scene);
}

/* Copies as they were told. */
typedef struct copies {
    pst_simulated_event events[256];
    uint32_t num;
} copies;

static void note_copy(void *user, const pst_simulated_event *event)
{
    copies *all = user;
    if (event->kind >= PST_SIMULATED_DO_STASH && all->num < 256)
        all->events[all->num++] = *event;
}

/* The second stage's GLU has no work before it, and waits for the first stage until 200: what a side
 * stream stashes at 111 comes before it. */
PST_TEST(SimulateGlu, PagesAreTakenInTheOrderOfTime)
{
    static sim_scene scene;
    static copies all;
    const sim_shape shape = {.kind = PST_SCHEDULE_GPIPE, .p = 2, .m = 2, .v = 1, .num_layers = 2};
    uint32_t seen = 0;
    sim_open(&scene, &shape);
    all.num = 0;
    scene.config.mode = PST_POOL_CONCURRENT;
    scene.config.keeps_nothing = true;
    scene.config.rates.stash_fixed_ns = 10;
    scene.config.on_event = note_copy;
    scene.config.user = &all;
    scene.layers[2] = scene.layers[0]; /* of the second stage */
    scene.layers[3] = scene.layers[1];
    scene.stage_layers[1] = &scene.layers[2];
    scene.layers[0].forward.core = 100;
    scene.layers[2].glu_parts = 1;
    scene.layers[3].forward.core = 1;
    scene.layers[3].num_parts = 2;
    scene.layers[3].usages = scene.usages[3];
    scene.usages[3][0] = scene.usages[3][1] = scene.usages[0][0];
    sim_run(&scene);
    for (uint32_t i = 0; i < all.num; i++) {
        const pst_simulated_event *event = &all.events[i];
        if (event->stage == 1 && event->begin_ns == 111) {
            CHECK_EQ(event->part, 1);
            CHECK_EQ(event->in_use[0], 3);
            seen++;
        }
        for (uint32_t j = 0; j < i; j++)
            CHECK(all.events[j].stage != event->stage || all.events[j].end_ns <= event->end_ns);
    }
    CHECK_EQ(seen, 1);
    sim_close(&scene);
}

static void draw_layer(sim_scene *scene, uint32_t l, uint64_t *seed)
{
    pst_simulated_layer *layer = &scene->layers[l];
    layer->num_parts = 1 + (uint32_t)random_below(seed, 4);
    layer->glu_parts = (uint32_t)random_below(seed, 1u << layer->num_parts);
    layer->policy.host_den = 2;
    layer->policy.host_num = (uint32_t)random_below(seed, 3);
    for (uint32_t part = 0; part < layer->num_parts; part++) {
        if (!(layer->glu_parts >> part & 1))
            layer->part_ns[part] = random_below(seed, 20);
        for (uint32_t m = 0; m < scene->shape.m; m++) {
            const uint64_t pages = 1 + random_below(seed, 3);
            scene->usages[l][part * scene->shape.m + m] =
                (pst_group_usage){pages * SIM_PAGE, pages * SIM_PAGE, pages};
        }
    }
}

/* With enough pages the order of the list and that of time give one timeline, without a fault. */
PST_TEST(SimulateGlu, TimesDoNotDependOnTheOrder)
{
    static sim_scene scene;
    uint64_t seed = 3;
    for (uint32_t n = 0; n < 300 && !psti_test_failed(); n++) {
        const sim_shape shape = {
            .kind = PST_SCHEDULE_1F1B, .p = 3, .m = 5, .v = 1, .num_layers = 3};
        pst_stage_result results[2];
        uint64_t all_pages = 0;
        open_shape(&scene, &shape, 1u << n % 3, true);
        scene.config.num_sources = 1 + n % 2;
        scene.config.num_pages[1] = UINT64_MAX;
        if (n % 4) /* early parts are gone before the GLU comes */
            scene.config.rates.stash_fixed_ns = scene.config.rates.stash_rate = 0;
        sim_set_times(&scene, (pst_times){1, 20, 1}, (pst_times){2, 30, 2});
        for (uint32_t l = 0; l < 3; l++)
            draw_layer(&scene, l, &seed);
        for (uint32_t l = 0; l < 3; l++)
            for (uint32_t i = 0; i < scene.layers[l].num_parts * shape.m; i++)
                all_pages += 2 * scene.usages[l][i].pages; /* and where they are promoted */
        for (uint32_t way = 0; way < 2; way++) {
            scene.config.in_call_order = way == 0;
            sim_run(&scene);
            results[way] = scene.stages[0];
            CHECK_EQ(results[way].num_faults, 0);
            CHECK(results[way].high_water_bounds[1] <= all_pages);
        }
        CHECK_EQ(results[0].end_ns, results[1].end_ns);
        CHECK_EQ(results[0].exposed_forward_ns, results[1].exposed_forward_ns);
        CHECK_EQ(results[0].exposed_backward_ns, results[1].exposed_backward_ns);
        CHECK(results[1].high_water_bounds[1] >= results[1].demand_high_water);
        CHECK(results[1].high_water_bounds[0] <= results[1].demand_high_water);
        sim_close(&scene);
        if (psti_test_failed())
            psti_test_fail(__FILE__, __LINE__, "case %u", n);
    }
}

/* ---- what real activations do with a real pool ---- */

/* The layers of a step, by what each visit keeps. */
typedef struct as_run {
    pst_simulated_layer layers[GLU_STEP_LAYERS];
    pst_group_usage usages[GLU_STEP_LAYERS][2 * GLU_STEP_MICRO_BATCHES];
    uint64_t glu_bytes[GLU_STEP_LAYERS][2 * GLU_STEP_MICRO_BATCHES];
} as_run;

static void describe(const glu_step *step, as_run *self)
{
    memset(self, 0, sizeof(*self));
    for (uint32_t l = 0; l < GLU_STEP_LAYERS; l++) {
        pst_simulated_layer *layer = &self->layers[l];
        const pst_migrate_options *demote = &step->scheduler->layers[l].demote;
        *layer = (pst_simulated_layer)PST_SIMULATED_LAYER_INIT;
        layer->layer = l;
        layer->num_parts = step->layers[l].num_parts;
        layer->policy = step->layers[l].policy;
        layer->usages = self->usages[l];
        layer->num_usages = GLU_STEP_MICRO_BATCHES;
        layer->glu_parts = 1;
        layer->glu_bytes = self->glu_bytes[l];
        if (demote->share == PST_MIGRATE_UP_TO)
            layer->max_demote_pages = demote->max_pages;
        for (uint32_t part = 0; part < layer->num_parts; part++)
            for (uint32_t m = 0; m < GLU_STEP_MICRO_BATCHES; m++) {
                const int64_t rows = step->counts[l * GLU_STEP_MICRO_BATCHES + m];
                const uint32_t n = part * GLU_STEP_MICRO_BATCHES + m;
                CHECK_OK(pst_group_measure(step->groups[part], &rows, PST_PAGE_BYTES_MIN,
                                           &self->usages[l][n]));
                self->glu_bytes[l][n] = part ? 0 : (uint64_t)rows * GLU_STEP_INPUT;
            }
    }
}

static void simulate(const glu_step *step, const as_run *layers, pst_stage_result *result)
{
    const pst_simulated_layer *stages[] = {layers->layers};
    const pst_schedule *schedules[] = {step->schedule};
    const uint32_t num_layers[] = {GLU_STEP_LAYERS};
    pst_simulation_config config = PST_SIMULATION_CONFIG_INIT;
    pst_simulation simulation;
    config.num_stages = 1;
    config.alone = true;
    config.schedules = schedules;
    config.layers = stages;
    config.num_layers = num_layers;
    config.num_streams = step->config.num_streams;
    config.mode = PST_POOL_CONCURRENT;
    config.in_call_order = true;
    config.num_pages[0] = config.num_pages[1] = 256;
    config.page_bytes = PST_PAGE_BYTES_MIN;
    CHECK_OK(pst_simulate(&config, &simulation, result));
}

PST_TEST(SimulateGlu, PagesOfRealActivations)
{
    static as_run layers;
    uint64_t moved = 0;
    for (uint32_t i = 0; i < 18; i++) {
        glu_step step;
        pst_stage_result result;
        glu_step_config config = {.has_plain = i % 2, .num_streams = 1u << i / 2 % 3};
        const uint32_t place = i / 6;
        if (place > 0)
            config.policy = (pst_layer_policy){.host_num = place, .host_den = 3};
        if (place == 2 && config.num_streams > 1)
            config.policy.move = PST_MOVE_DEMOTE;
        glu_step_open(&step, &config);
        glu_step_draw(&step, i);
        CHECK_OK(glu_step_run(&step));
        glu_step_check(&step);
        describe(&step, &layers);
        simulate(&step, &layers, &result);
        for (uint32_t tier = 0; tier < 2; tier++)
            CHECK_EQ(result.high_water[tier], step.status.high_water[tier]);
        CHECK_EQ(result.demand_high_water, step.status.demand_high_water);
        CHECK_EQ(result.offloaded_pages, step.status.offloaded_pages);
        CHECK_EQ(result.demoted_pages, step.status.demoted_pages);
        CHECK_EQ(result.promoted_pages, step.status.promoted_pages);
        CHECK_EQ(result.stranded_pages, step.status.stranded_pages);
        CHECK_EQ(result.num_faults, 0);
        moved += result.promoted_pages;
        glu_step_close(&step);
    }
    CHECK(moved > 0);
}
