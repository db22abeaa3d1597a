/* A pipeline stage, or all, with equal layers, for tests of the policy. */
#ifndef PAGESTASH_TESTS_POLICY_SCENE_H
#define PAGESTASH_TESTS_POLICY_SCENE_H

#include <pagestash/pagestash.h>

enum { SCENE_PAGE = 16384, SCENE_MAX_LAYERS = 64, SCENE_MAX_STAGES = 16, SCENE_MAX_MICRO = 64 };

/* Of one page, so that a nanosecond for 1, 2, 3, ... pages is a whole number of bytes a second. */
#define SCENE_BYTES UINT64_C(3600)

typedef struct policy_scene {
    pst_schedule *schedules[SCENE_MAX_STAGES];
    pst_simulated_layer layers[SCENE_MAX_STAGES][SCENE_MAX_LAYERS];
    const pst_simulated_layer *stage_layers[SCENE_MAX_STAGES];
    uint32_t num_layers[SCENE_MAX_STAGES];
    pst_group_usage usages[SCENE_MAX_STAGES][SCENE_MAX_LAYERS][SCENE_MAX_MICRO];
    pst_simulation_config simulation;
    pst_policy_config config;
    pst_policy policy;
    pst_layer_choice choices[SCENE_MAX_STAGES * SCENE_MAX_LAYERS];
    pst_policy_stage stages[SCENE_MAX_STAGES];
} policy_scene;

/* 1F1B; ranks first to first + num - 1 of p, alone where num is 1. 1 page a visit. */
policy_scene *scene_open(uint32_t p, uint32_t first, uint32_t num, uint32_t micro_batches,
                         uint32_t layers_per_stage);
void scene_close(policy_scene *self);
void scene_set_pages(policy_scene *self, uint32_t stage, uint32_t layer, uint32_t micro_batch,
                     uint64_t pages);
void scene_set_all_pages(policy_scene *self, uint64_t pages);
void scene_set_times(policy_scene *self, pst_times forward, pst_times backward);
/* Nanoseconds for a device page, and for a host page; 0: no time. */
void scene_set_rates(policy_scene *self, uint64_t device_ns, uint64_t host_ns);
void scene_solve(policy_scene *self);
/* The choice in force, simulated anew: exposed time of the worst stage, UINT64_MAX where something
 * spilled, was displaced or failed with the policy's pages. */
uint64_t scene_replay(const policy_scene *self);

#endif
