/* Every kind of schedule, form of addresses and number of streams: the bytes that come back are those
 * that were kept, on a device that works at once and on one that works late. */
#include "tests/host/scheduler/rig.h"
#include "tests/lazy/lazy_device.h"
#include "tests/random.h"
#include "tests/simt/simt_device.h"

typedef struct shape {
    const char *name;
    pst_schedule_kind kind;
    uint32_t stages, stage, micro_batches, chunks, group, layers;
} shape;

static const shape shapes[] = {
    {"1f1b first", PST_SCHEDULE_1F1B, 4, 0, 8, 1, 0, 3},
    {"1f1b last", PST_SCHEDULE_1F1B, 4, 3, 4, 1, 0, 4},
    {"1f1b few", PST_SCHEDULE_1F1B, 4, 0, 2, 1, 0, 2},
    {"one layer", PST_SCHEDULE_1F1B, 2, 0, 3, 1, 0, 1},
    {"gpipe", PST_SCHEDULE_GPIPE, 2, 0, 4, 1, 0, 3},
    {"gpipe reversed", PST_SCHEDULE_GPIPE_REVERSED, 2, 0, 4, 1, 0, 3},
    {"interleaved", PST_SCHEDULE_INTERLEAVED, 2, 1, 5, 2, 3, 3},
    {"zb-h1", PST_SCHEDULE_ZB_H1, 4, 0, 8, 1, 0, 2},
    {"zb-h2", PST_SCHEDULE_ZB_H2, 3, 1, 6, 1, 0, 2},
    {"zb-v", PST_SCHEDULE_ZB_V, 2, 0, 4, 2, 0, 2},
    {"dualpipe", PST_SCHEDULE_DUALPIPE, 4, 1, 8, 2, 0, 2},
    {"dualpipe-v", PST_SCHEDULE_DUALPIPE_V, 2, 1, 4, 2, 0, 2},
};
enum { NUM_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static rig_config config_of(const shape *s)
{
    rig_config config = RIG_CONFIG;
    config.schedule.kind = s->kind;
    config.schedule.num_stages = s->stages;
    config.schedule.stage = s->stage;
    config.schedule.num_micro_batches = s->micro_batches;
    config.schedule.num_chunks = s->chunks;
    config.schedule.group = s->group;
    for (uint32_t c = 0; c < s->chunks; c++)
        config.num_layers[c] = s->layers;
    return config;
}

/* Draws what there is to choose; has_late: a device that works late. */
static void choose(rig_config *config, uint64_t *random, bool has_late)
{
    pst_scheduler_config *scheduler = &config->scheduler;
    const bool has_pairs = config->schedule.kind >= PST_SCHEDULE_DUALPIPE;
    config->seed = random_below(random, UINT32_MAX);
    config->own = random_below(random, 2);
    config->mode = random_below(random, 3) ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    config->num_parts = 1 + (uint32_t)random_below(random, 3);
    for (uint32_t p = 0; p < config->num_parts; p++)
        config->uses[p] = (uint32_t)random_below(random, 4);
    config->two_streams = (uint32_t)random_below(random, 2);
    config->announces = (uint32_t)random_below(random, 3) * 50;
    config->defers = (uint32_t)random_below(random, 3) * 40;
    config->records = random_below(random, 4) == 0;
    for (uint32_t l = 0; l < RIG_MAX_LAYERS; l++) {
        const uint64_t drawn = random_below(random, 8);
        config->keep[l] = drawn < 5 ? PST_KEEP_PAGED : (pst_keep)(drawn - 4);
        if (has_pairs && config->keep[l] == PST_KEEP_SWAPPED)
            config->keep[l] = PST_KEEP_PAGED;
        config->policy[l].swap_tokens = random_below(random, RIG_TOKENS + 1);
        config->policy[l].holds = random_below(random, 2);
    }
    scheduler->num_sources = 1 + (uint32_t)random_below(random, 4);
    scheduler->num_destinations = 1 + (uint32_t)random_below(random, 4);
    scheduler->one_ring = !has_pairs && random_below(random, 4) == 0;
    if (scheduler->one_ring)
        scheduler->num_destinations = 0;
    scheduler->keeps_nothing = random_below(random, 8) == 0;
    scheduler->ahead = (uint32_t)random_below(random, 4);
    scheduler->max_slots = config->records ? 16 : 0;
    if (config->mode == PST_POOL_CONCURRENT)
        scheduler->num_streams = 1u << random_below(random, 3);
    config->num_host_pages = 4096;
    for (uint32_t l = 0; l < RIG_MAX_LAYERS; l++) {
        pst_layer_policy *policy = &config->policy[l];
        policy->host_den = 1 + (uint32_t)random_below(random, 4);
        policy->host_num = (uint32_t)random_below(random, policy->host_den + 1);
        if (scheduler->num_streams > 1 && random_below(random, 2))
            policy->move = PST_MOVE_DEMOTE;
        policy->promote_ahead = (uint32_t)random_below(random, 3);
    }
    if (config->schedule.kind <= PST_SCHEDULE_GPIPE_REVERSED && !scheduler->one_ring &&
        scheduler->num_streams == 1 && random_below(random, 2))
        scheduler->rule = PST_RESTORE_NEXT;
    if (config->mode == PST_POOL_CONCURRENT && random_below(random, 2))
        config->glus = (uint32_t)random_below(random, 1u << config->num_parts);
    if (has_late) {
        const lazy_options late = {.seed = config->seed};
        CHECK_OK(pst_device_open("host", 0, &config->device));
        lazy_make(config->device, &late);
    }
}

static void run(const shape *s, rig_config *config, bool captures)
{
    rig self;
    rig_open(&self, config);
    if (psti_test_failed())
        return;
    for (uint32_t step = 0; step < 2; step++)
        CHECK_MSG(rig_step(&self) == PST_OK, "%s: %s", s->name, pst_last_message());
    rig_check(&self);
    if (captures) {
        pst_graph *graph = NULL;
        CHECK_OK(rig_capture(&self, &graph));
        for (uint32_t replay = 0; replay < 3; replay++) {
            rig_set_counts(&self, config->seed + replay + 1);
            CHECK_OK(pst_graph_launch(graph, self.streams[0]));
            rig_check(&self);
        }
        CHECK_OK(pst_graph_destroy(graph));
    }
    if (psti_test_failed())
        return;
    rig_close(&self);
}

static void run_random(bool has_late, uint64_t seed, uint32_t rounds)
{
    uint64_t random = seed;
    for (uint32_t i = 0; i < rounds * NUM_SHAPES && !psti_test_failed(); i += psti_test_step(7)) {
        const shape *s = &shapes[i % NUM_SHAPES];
        rig_config config = config_of(s);
        choose(&config, &random, has_late);
        run(s, &config, i / NUM_SHAPES % 2);
        if (psti_test_failed())
            psti_test_fail(__FILE__, __LINE__, "case %u: %s", i, s->name);
    }
}

PST_TEST(SchedulerKinds, Host)
{
    run_random(false, 1, psti_test_cases(40));
}

PST_TEST(SchedulerKinds, Late)
{
    run_random(true, 2, psti_test_cases(40));
}

/* The CUDA kernels. */
PST_TEST(SchedulerKinds, Simt)
{
    uint64_t random = 5;
    for (uint32_t i = 0; i < psti_test_cases(2 * NUM_SHAPES) && !psti_test_failed(); i++) {
        rig_config config = config_of(&shapes[i % NUM_SHAPES]);
        choose(&config, &random, false);
        CHECK_OK(psti_simt_device_open(NULL, &config.device));
        run(&shapes[i % NUM_SHAPES], &config, i % 2);
    }
}

/* Graphs of layers, captured in any order, beside layers that run eagerly. */
static void run_layers(bool has_late, uint64_t seed, uint32_t rounds)
{
    uint64_t random = seed;
    for (uint32_t i = 0; i < rounds * NUM_SHAPES && !psti_test_failed(); i += psti_test_step(7)) {
        const shape *s = &shapes[i % NUM_SHAPES];
        rig_config config = config_of(s);
        rig self;
        choose(&config, &random, has_late);
        config.scheduler.capture = PST_CAPTURE_LAYERS;
        config.scheduler.one_ring = false;
        config.scheduler.rule = PST_RESTORE_ASAP;
        config.announces = 0;
        config.records = false;
        config.two_streams = 0;
        for (uint32_t l = 0; l < RIG_MAX_LAYERS; l++)
            config.policy[l].holds = false;
        rig_open(&self, &config);
        CHECK_OK(rig_step(&self));
        rig_check(&self);
        CHECK_OK(pst_device_synchronize(self.device));
        CHECK_OK(rig_capture_layers(&self, i / NUM_SHAPES % 2 ? 100 : 50));
        for (uint32_t step = 0; step < 3; step++) {
            rig_set_counts(&self, config.seed + step);
            CHECK_MSG(rig_step(&self) == PST_OK, "case %u: %s: %s", i, s->name, pst_last_message());
            rig_check(&self);
        }
        if (psti_test_failed()) {
            psti_test_fail(__FILE__, __LINE__, "case %u: %s", i, s->name);
            return;
        }
        rig_close(&self);
    }
}

PST_TEST(SchedulerLayers, Host)
{
    run_layers(false, 3, psti_test_cases(40));
}

PST_TEST(SchedulerLayers, Late)
{
    run_layers(true, 4, psti_test_cases(40));
}
