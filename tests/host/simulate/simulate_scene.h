/* Simulations for tests: the schedules, layers and page counts that the tables are about. */
#ifndef PAGESTASH_TESTS_SIMULATE_SCENE_H
#define PAGESTASH_TESTS_SIMULATE_SCENE_H

#include "tests/harness.h"

#include <pagestash/pagestash.h>

enum { SIM_MAX_STAGES = 16, SIM_MAX_LAYERS = 64, SIM_MAX_MICRO_BATCHES = 64, SIM_PAGE = 65536 };

/* A pipeline: every stage has the same number of layers in each chunk. */
typedef struct sim_shape {
    pst_schedule_kind kind;
    uint32_t p, m, v, group;
    uint32_t num_layers; /* of each chunk */
    bool overlaps;
} sim_shape;

/* Which pages a visit takes. */
typedef uint64_t (*sim_pages_fn)(uint32_t chunk, uint32_t layer, uint32_t micro_batch);
uint64_t sim_pages3(uint32_t chunk, uint32_t layer, uint32_t micro_batch);
uint64_t sim_group(uint32_t chunk, uint32_t layer, uint32_t micro_batch);

typedef struct sim_scene {
    sim_shape shape;
    uint32_t first_stage, num_stages; /* that are simulated */
    pst_schedule *schedules[SIM_MAX_STAGES];
    pst_simulated_layer layers[SIM_MAX_LAYERS];
    const pst_simulated_layer *stage_layers[SIM_MAX_STAGES];
    uint32_t num_layers[SIM_MAX_STAGES];
    pst_group_usage usages[SIM_MAX_LAYERS][PST_MAX_PARTS * SIM_MAX_MICRO_BATCHES];
    pst_simulation_config config;
    pst_simulation simulation;
    pst_stage_result stages[SIM_MAX_STAGES];
} sim_scene;

/* All stages, or one alone: its schedule, paged layers of one page each, no times, enough pages. */
void sim_open(sim_scene *self, const sim_shape *shape);
void sim_open_alone(sim_scene *self, const sim_shape *shape, uint32_t stage);
/* One stage with the caller's list. Takes the schedule over. */
void sim_open_schedule(sim_scene *self, pst_schedule *schedule, const uint32_t *num_layers);
/* The same passes as lists, whose slots are the least that are free. */
void sim_make_list(sim_scene *self);
void sim_close(sim_scene *self);

/* Pages of every visit; full pages of SIM_PAGE bytes. */
void sim_set_pages(sim_scene *self, sim_pages_fn pages);
/* Times of every layer. */
void sim_set_times(sim_scene *self, pst_times forward, pst_times backward);
/* Runs; fails the test where it fails. */
void sim_run(sim_scene *self);

#endif
