/* Ranks that wait for each other: the literature's makespans, several steps, and lists that deadlock. */
#include "tests/host/simulate/simulate_scene.h"

#include <stdio.h>

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
