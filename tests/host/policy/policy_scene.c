/* Stages with equal layers, solved and simulated again. */
#include "tests/host/policy/policy_scene.h"

#include <stdlib.h>

#include "tests/harness.h"

policy_scene *scene_open(uint32_t p, uint32_t first, uint32_t num, uint32_t micro_batches,
                         uint32_t layers_per_stage)
{
    policy_scene *self = calloc(1, sizeof(*self));
    self->simulation = (pst_simulation_config)PST_SIMULATION_CONFIG_INIT;
    self->config = (pst_policy_config)PST_POLICY_CONFIG_INIT;
    for (uint32_t s = 0; s < num; s++) {
        pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
        config.kind = PST_SCHEDULE_1F1B;
        config.num_stages = p;
        config.stage = first + s;
        config.num_micro_batches = micro_batches;
        if (pst_schedule_create(&config, &self->schedules[s]) != PST_OK)
            psti_test_fail(__FILE__, __LINE__, "no schedule: %s", pst_last_message());
        self->num_layers[s] = layers_per_stage;
        self->stage_layers[s] = self->layers[s];
        for (uint32_t l = 0; l < layers_per_stage; l++) {
            self->layers[s][l] = (pst_simulated_layer)PST_SIMULATED_LAYER_INIT;
            self->layers[s][l].layer = l;
            self->layers[s][l].usages = self->usages[s][l];
            self->layers[s][l].num_usages = micro_batches;
        }
    }
    self->simulation.num_stages = num;
    self->simulation.alone = num == 1;
    self->simulation.schedules = (const pst_schedule *const *)self->schedules;
    self->simulation.layers = self->stage_layers;
    self->simulation.num_layers = self->num_layers;
    self->simulation.page_bytes = SCENE_PAGE;
    self->simulation.num_pages[0] = self->simulation.num_pages[1] = UINT64_MAX;
    self->config.simulation = &self->simulation;
    self->config.gpu_bytes = self->config.host_bytes = PST_POLICY_UNLIMITED;
    scene_set_all_pages(self, 1);
    return self;
}

void scene_close(policy_scene *self)
{
    for (uint32_t s = 0; s < self->simulation.num_stages; s++)
        pst_schedule_destroy(self->schedules[s]);
    free(self);
}

void scene_set_pages(policy_scene *self, uint32_t stage, uint32_t layer, uint32_t micro_batch,
                     uint64_t pages)
{
    self->usages[stage][layer][micro_batch] =
        (pst_group_usage){pages * SCENE_BYTES, pages * SCENE_PAGE, pages};
}

void scene_set_all_pages(policy_scene *self, uint64_t pages)
{
    for (uint32_t s = 0; s < self->simulation.num_stages; s++)
        for (uint32_t l = 0; l < self->num_layers[s]; l++)
            for (uint32_t m = 0; m < self->layers[s][l].num_usages; m++)
                scene_set_pages(self, s, l, m, pages);
}

void scene_set_times(policy_scene *self, pst_times forward, pst_times backward)
{
    for (uint32_t s = 0; s < self->simulation.num_stages; s++)
        for (uint32_t l = 0; l < self->num_layers[s]; l++) {
            self->layers[s][l].forward = forward;
            self->layers[s][l].backward = backward;
        }
}

void scene_set_rates(policy_scene *self, uint64_t device_ns, uint64_t host_ns)
{
    pst_simulated_rates *rates = &self->simulation.rates;
    const uint64_t billion = UINT64_C(1000000000);
    rates->stash_rate = rates->restore_rate = device_ns ? SCENE_BYTES * billion / device_ns : 0;
    rates->out_rate = rates->in_rate = host_ns ? SCENE_BYTES * billion / host_ns : 0;
}

void scene_solve(policy_scene *self)
{
    CHECK_OK(pst_policy_solve(&self->config, &self->policy, self->choices, self->stages));
}

static uint64_t exposed_of(const pst_stage_result *result)
{
    if (result->spilled_pages + result->displaced_pages + result->num_faults > 0)
        return UINT64_MAX;
    return result->exposed_forward_ns + result->exposed_backward_ns + result->recompute_ns;
}

/* The simulation of the choice in force; its layers lie in copy. */
static pst_simulation_config chosen(const policy_scene *self, policy_scene *copy)
{
    const pst_policy *policy = &self->policy;
    *copy = *self;
    uint32_t n = 0;
    for (uint32_t s = 0; s < self->simulation.num_stages; s++) {
        copy->stage_layers[s] = copy->layers[s];
        for (uint32_t l = 0; l < self->num_layers[s]; l++, n++) {
            copy->layers[s][l].keep = self->choices[n].keep;
            copy->layers[s][l].policy = self->choices[n].policy;
            copy->layers[s][l].recompute_ns = self->choices[n].recompute_ns;
            copy->layers[s][l].swap_bytes = self->choices[n].swap_bytes;
        }
    }
    pst_simulation_config config = self->simulation;
    config.layers = copy->stage_layers;
    config.rule = policy->rule;
    config.one_ring = policy->one_ring;
    config.num_sources = policy->num_sources;
    config.num_destinations = policy->num_destinations;
    config.ahead = policy->ahead;
    config.num_streams = policy->num_streams;
    config.mode = policy->mode;
    config.num_pages[0] = policy->num_pages;
    config.num_pages[1] = policy->num_host_pages;
    return config;
}

uint64_t scene_replay(const policy_scene *self)
{
    policy_scene *copy = calloc(1, sizeof(*copy));
    pst_stage_result results[SCENE_MAX_STAGES];
    pst_simulation simulation;
    const pst_simulation_config config = chosen(self, copy);
    uint64_t worst = 0;
    if (pst_simulate(&config, &simulation, results) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "simulate: %s", pst_last_message());
    for (uint32_t s = 0; s < config.num_stages; s++) {
        const uint64_t exposed = exposed_of(&results[s]);
        worst = exposed > worst ? exposed : worst;
    }
    free(copy);
    return worst;
}
