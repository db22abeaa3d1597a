/* Ranks that wait for each other: the literature's makespans, several steps, and lists that deadlock. */
#include "tests/host/simulate/simulate_scene.h"

static const struct {
    const char *name;
    sim_shape shape;
    uint64_t makespan, spans[2]; /* of the first and of the last rank */
} rows[] = {
    {"S1", {PST_SCHEDULE_GPIPE, 4, 6, 1, 0, 1, false}, 27, {27, 18}},
    {"S2", {PST_SCHEDULE_GPIPE_REVERSED, 4, 6, 1, 0, 1, false}, 27, {27, 18}},
    {"S3", {PST_SCHEDULE_1F1B, 1, 4, 1, 0, 1, false}, 12, {12, 12}},
    {"S4", {PST_SCHEDULE_1F1B, 4, 8, 1, 0, 1, false}, 33, {33, 24}},
    {"S5", {PST_SCHEDULE_1F1B, 4, 2, 1, 0, 1, false}, 15, {15, 6}},
    {"S6", {PST_SCHEDULE_1F1B, 8, 16, 1, 0, 1, false}, 69, {69, 48}},
    {"S7", {PST_SCHEDULE_INTERLEAVED, 2, 5, 2, 3, 1, false}, 33, {33, 30}},
    {"S8", {PST_SCHEDULE_INTERLEAVED, 4, 8, 2, 4, 1, false}, 57, {57, 48}},
    {"S9", {PST_SCHEDULE_INTERLEAVED, 4, 8, 2, 4, 1, true}, 57, {57, 48}},
    {"S10", {PST_SCHEDULE_INTERLEAVED, 4, 12, 3, 6, 1, false}, 117, {117, 108}},
    {"S11", {PST_SCHEDULE_INTERLEAVED, 4, 8, 4, 4, 1, false}, 105, {105, 96}},
    {"S12", {PST_SCHEDULE_ZB_H1, 4, 8, 1, 0, 1, false}, 27, {27, 24}},
    {"S13", {PST_SCHEDULE_ZB_H1, 4, 3, 1, 0, 1, false}, 13, {13, 9}},
    {"S14", {PST_SCHEDULE_ZB_H2, 4, 8, 1, 0, 1, false}, 27, {24, 24}},
    {"S15", {PST_SCHEDULE_ZB_H2, 4, 12, 1, 0, 1, false}, 39, {36, 36}},
    {"S16", {PST_SCHEDULE_ZB_V, 4, 8, 2, 0, 1, false}, 51, {51, 48}},
    {"S17", {PST_SCHEDULE_ZB_V, 8, 24, 2, 0, 1, false}, 151, {151, 144}},
    {"S18", {PST_SCHEDULE_DUALPIPE, 4, 8, 2, 0, 1, false}, 25, {25, 25}},
    {"S19", {PST_SCHEDULE_DUALPIPE, 8, 20, 2, 0, 1, false}, 63, {63, 63}},
    {"S20", {PST_SCHEDULE_DUALPIPE_V, 4, 10, 2, 0, 1, false}, 63, {63, 60}},
};

/* One layer that nothing is kept of, F = B = W = 1. */
static void set_unit_work(sim_scene *scene)
{
    for (uint32_t n = 0; n < scene->num_layers[0]; n++) {
        pst_simulated_layer *layer = &scene->layers[n];
        layer->keep = PST_KEEP_PLANNED;
        layer->forward.core = layer->backward_input.core = layer->backward_weight.core = 1;
        layer->backward.core = 2;
    }
}

PST_TEST(SimulateRanks, MakespansAreTheLiteratures)
{
    static sim_scene scene;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        sim_open(&scene, &rows[i].shape);
        set_unit_work(&scene);
        sim_run(&scene);
        CHECK(!scene.simulation.deadlocked);
        const uint64_t first = scene.stages[0].span_ns;
        const uint64_t last = scene.stages[rows[i].shape.p - 1].span_ns;
        CHECK_MSG(scene.simulation.makespan_ns == rows[i].makespan && first == rows[i].spans[0] &&
                      last == rows[i].spans[1],
                  "%s: %llu, %llu / %llu", rows[i].name,
                  (unsigned long long)scene.simulation.makespan_ns, (unsigned long long)first,
                  (unsigned long long)last);
        sim_close(&scene);
    }
}

/* ---- closed forms ---- */

PST_TEST(SimulateRanks, MakespansInClosedForm)
{
    static const uint32_t ps[] = {1, 2, 3, 4, 8, 16}, ms[] = {1, 2, 3, 4, 7, 8, 16, 33};
    static sim_scene scene;
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 8; j++)
            for (int kind = 0; kind < 3; kind++) {
                static const pst_schedule_kind kinds[] = {PST_SCHEDULE_1F1B, PST_SCHEDULE_GPIPE,
                                                          PST_SCHEDULE_GPIPE_REVERSED};
                const sim_shape shape = {
                    .kind = kinds[kind], .p = ps[i], .m = ms[j], .v = 1, .num_layers = 2};
                sim_open(&scene, &shape);
                sim_set_times(&scene, (pst_times){1, 1, 1}, (pst_times){1, 2, 1});
                sim_run(&scene);
                CHECK_EQ(scene.simulation.makespan_ns, (ms[j] + ps[i] - 1) * 14);
                for (uint32_t r = 0; r < ps[i]; r++)
                    CHECK_EQ(scene.stages[r].bubble_ns, (ps[i] - 1) * 14);
                sim_close(&scene);
            }
}

PST_TEST(SimulateRanks, InterleavedMakespansInClosedForm)
{
    static sim_scene scene;
    for (uint32_t p = 2; p <= 8; p *= 2)
        for (uint32_t rounds = 1; rounds <= 3; rounds++)
            for (uint32_t v = 2; v <= 4; v++) {
                const sim_shape shape = {.kind = PST_SCHEDULE_INTERLEAVED,
                                         .p = p,
                                         .m = p * rounds,
                                         .v = v,
                                         .num_layers = 1};
                sim_open(&scene, &shape);
                sim_set_times(&scene, (pst_times){0, 3, 0}, (pst_times){0, 7, 0});
                sim_run(&scene);
                CHECK_EQ(scene.simulation.makespan_ns, (p * rounds * v + p - 1) * 10);
                sim_close(&scene);
            }
}

/* ---- steps ---- */

/* ZB-H2 leaves no bubble between steps that follow each other; 1F1B does. */
PST_TEST(SimulateRanks, StepsFollowEachOther)
{
    static sim_scene scene;
    const sim_shape shapes[] = {{PST_SCHEDULE_ZB_H2, 4, 8, 1, 0, 1, false},
                                {PST_SCHEDULE_1F1B, 4, 8, 1, 0, 1, false}};
    static const uint64_t expected[2][2] = {{27, 24}, {33, 33}};
    for (int i = 0; i < 2; i++) {
        sim_open(&scene, &shapes[i]);
        set_unit_work(&scene);
        for (uint32_t steps = 1; steps <= 4; steps++) {
            scene.config.steps = steps;
            sim_run(&scene);
            CHECK_EQ(scene.simulation.makespan_ns, expected[i][steps > 1]);
            for (uint32_t r = 0; r < 4; r++)
                CHECK_EQ(scene.stages[r].busy_ns, 24);
        }
        sim_close(&scene);
    }
}

PST_TEST(SimulateRanks, StepsAloneAreAllTheSame)
{
    static sim_scene scene;
    const sim_shape shape = {PST_SCHEDULE_1F1B, 4, 8, 1, 0, 4, false};
    pst_stage_result once;
    sim_open_alone(&scene, &shape, 0);
    sim_set_times(&scene, (pst_times){1, 4, 1}, (pst_times){2, 8, 2});
    sim_set_pages(&scene, sim_pages3);
    scene.config.rates.stash_fixed_ns = scene.config.rates.restore_fixed_ns = 15;
    sim_run(&scene);
    once = scene.stages[0];
    scene.config.steps = 3;
    sim_run(&scene);
    CHECK_EQ(memcmp(&once, &scene.stages[0], sizeof(once)), 0);
    CHECK_EQ(scene.simulation.makespan_ns, once.end_ns);
    sim_close(&scene);
}

/* ---- lists that wait for each other ---- */

/* Passes of "F0 B1.0": kind, micro-batch or chunk.micro-batch; "[" before the first of a pair. */
static pst_schedule *list_of(const char *text, uint32_t num_stages, uint32_t stage)
{
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    pst_schedule *schedule = NULL;
    static pst_pass passes[64];
    uint32_t num = 0;
    for (const char *at = text; *at; at += *at == ' ') {
        pst_pass *pass = &passes[num++];
        *pass = (pst_pass){.pairs = *at == '['};
        at += pass->pairs;
        pass->kind = *at++ == 'F' ? PST_PASS_FORWARD : PST_PASS_BACKWARD;
        pass->micro_batch = (uint32_t)(*at++ - '0');
        if (*at == '.') {
            pass->chunk = pass->micro_batch;
            pass->micro_batch = (uint32_t)(at[1] - '0');
            at += 2;
        }
    }
    config.kind = PST_SCHEDULE_LIST;
    config.num_stages = num_stages;
    config.stage = stage;
    config.passes = passes;
    config.num_passes = num;
    if (pst_schedule_create(&config, &schedule))
        psti_test_fail(__FILE__, __LINE__, "%s: %s", text, pst_last_message());
    return schedule;
}

static void open_lists(sim_scene *scene, const char *const texts[2], uint32_t num_chunks)
{
    const sim_shape shape = {num_chunks > 1 ? PST_SCHEDULE_INTERLEAVED : PST_SCHEDULE_1F1B,
                             2,
                             2,
                             num_chunks,
                             0,
                             1,
                             false};
    sim_open(scene, &shape);
    set_unit_work(scene);
    for (uint32_t r = 0; r < 2; r++) {
        pst_schedule_destroy(scene->schedules[r]);
        scene->schedules[r] = list_of(texts[r], 2, r);
    }
}

static void run_lists(sim_scene *scene, const char *const texts[2])
{
    open_lists(scene, texts, 1);
    sim_run(scene);
    sim_close(scene);
}

PST_TEST(SimulateRanks, NamesPassesThatWaitForEachOther)
{
    static sim_scene scene;
    static const struct {
        const char *lists[2];
        const char *said;
    } cases[] = {
        {{"F0 B0 F1 B1", "F1 B1 F0 B0"},
         "stage 0, pass 1, backward of chunk 0, micro-batch 0: waits for backward of chunk 0, "
         "micro-batch 0 of stage 1, which is at pass 0, forward of chunk 0, micro-batch 1, and "
         "waits, too"},
        {{"F0 F1 B0 B1", "F0 B0"},
         "stage 0, pass 3, backward of chunk 0, micro-batch 1: waits for backward of chunk 0, "
         "micro-batch 1 of stage 1, which has no such pass"},
        {{"F0 B0", "F0 F1 B1 B0"},
         "stage 1, pass 1, forward of chunk 0, micro-batch 1: waits for forward of chunk 0, "
         "micro-batch 1 of stage 0, which has no such pass"},
        {{"F0 F1 B1 B0", "F1 B1 F0 B0"}, ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run_lists(&scene, cases[i].lists);
        CHECK_STR(scene.simulation.deadlock, cases[i].said);
        CHECK_EQ(scene.simulation.deadlocked, *cases[i].said != '\0');
    }
}

/* Stages that do not wait cannot be in each other's way. */
PST_TEST(SimulateRanks, AloneTheyWaitForNobody)
{
    static sim_scene scene;
    const sim_shape shape = {PST_SCHEDULE_1F1B, 4, 8, 1, 0, 1, false};
    sim_open(&scene, &shape);
    set_unit_work(&scene);
    scene.config.alone = true;
    sim_run(&scene);
    for (uint32_t r = 0; r < 4; r++) {
        CHECK_EQ(scene.stages[r].bubble_ns, 0);
        CHECK_EQ(scene.stages[r].end_ns, 24);
    }
    CHECK_EQ(scene.simulation.makespan_ns, 24);
    sim_close(&scene);
}

/* A list has no kind: its chunks lie in loops, unless the caller says how. */
PST_TEST(SimulateRanks, ListsAreToldTheOrderOfTheirChunks)
{
    static sim_scene scene;
    const sim_shape zb_v = {PST_SCHEDULE_ZB_V, 4, 8, 2, 0, 1, false};
    const sim_shape dual = {PST_SCHEDULE_DUALPIPE, 4, 8, 2, 0, 1, false};
    sim_open(&scene, &zb_v);
    set_unit_work(&scene);
    sim_make_list(&scene);
    sim_run(&scene);
    CHECK(scene.simulation.deadlocked);
    scene.config.chunk_order = PST_CHUNKS_V;
    sim_run(&scene);
    CHECK_EQ(scene.simulation.makespan_ns, 51);
    sim_close(&scene);
    sim_open(&scene, &dual);
    set_unit_work(&scene);
    sim_make_list(&scene);
    scene.config.chunk_order = PST_CHUNKS_DIRECTIONS;
    sim_run(&scene);
    CHECK_EQ(scene.simulation.makespan_ns, 25);
    sim_close(&scene);
}

/* A pair begins once both may: the forward waits for what its backward needs. */
PST_TEST(SimulateRanks, PairsBeginWhenBothMay)
{
    static sim_scene scene;
    static const char *const forward_first[2] = {"F0 [F1 B0 B1", "F0 B0 F1 B1"};
    static const char *const backward_first[2] = {"F0 [B0 F1 B1", "F0 B0 F1 B1"};
    run_lists(&scene, forward_first);
    CHECK_EQ(scene.simulation.makespan_ns, 10); /* pair 4 to 7, forward 1 on stage 1 from 5 */
    CHECK_EQ(scene.stages[0].bubble_ns, 3 + 1);
    run_lists(&scene, backward_first);
    CHECK_EQ(scene.simulation.makespan_ns, 10);
}

/* Down one stage, over and up again, forward and back. The turn is no hand-over between ranks. */
PST_TEST(SimulateRanks, ChunksHandOverInTheirOrder)
{
    static sim_scene scene;
    static const char *const there_and_back[2] = {"F0.0 F1.0 B1.0 B0.0", "F0.0 F1.0 B1.0 B0.0"};
    static const char *const turned_over[2] = {"F0.0 F1.0 B1.0 B0.0", "F1.0 F0.0 B0.0 B1.0"};
    open_lists(&scene, there_and_back, 2);
    scene.config.p2p_ns = 10;
    scene.config.chunk_order = PST_CHUNKS_V;
    sim_run(&scene);
    CHECK_EQ(scene.simulation.makespan_ns, 4 * 1 + 4 * 2 + 4 * 10);
    CHECK_EQ(scene.stages[1].bubble_ns, 12 * 1 + 40 - 6);
    scene.config.chunk_order = PST_CHUNKS_LOOPED;
    sim_run(&scene);
    CHECK_EQ(scene.simulation.makespan_ns, 4 * 1 + 4 * 2 + 6 * 10);
    sim_close(&scene);
    open_lists(&scene, turned_over, 2);
    scene.config.chunk_order = PST_CHUNKS_V;
    sim_run(&scene);
    CHECK(scene.simulation.deadlocked); /* stage 1 waits for itself */
    CHECK(strstr(scene.simulation.deadlock, "of stage 1, which is at pass 0") != NULL);
    sim_close(&scene);
}
