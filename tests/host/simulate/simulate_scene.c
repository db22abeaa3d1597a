/* The schedules, layers and page counts of simulate_scene.h. */
#include "tests/host/simulate/simulate_scene.h"

uint64_t sim_pages3(uint32_t chunk, uint32_t layer, uint32_t micro_batch)
{
    return 1 + (5 * micro_batch + 3 * layer + 7 * chunk) % 3;
}

static uint64_t round_up(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

uint64_t sim_group(uint32_t chunk, uint32_t layer, uint32_t micro_batch)
{
    const uint64_t rows = 100 + (37 * micro_batch + 53 * layer + 71 * chunk) % 97;
    const uint64_t bytes[4] = {rows * 2048, rows * 1024, (rows + 31) / 32 * 64, rows * 4};
    uint64_t stream = 0;
    for (int i = 0; i < 4; i++)
        stream += round_up(round_up(bytes[i], 16), 16384);
    return (stream + SIM_PAGE - 1) / SIM_PAGE;
}

static void make_layers(sim_scene *self, uint32_t num_chunks, const uint32_t *num_layers)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < num_chunks; c++)
        for (uint32_t l = 0; l < num_layers[c]; l++, n++) {
            self->layers[n] = (pst_simulated_layer)PST_SIMULATED_LAYER_INIT;
            self->layers[n].chunk = c;
            self->layers[n].layer = l;
            self->layers[n].usages = self->usages[n];
            self->layers[n].num_usages = 1;
            self->usages[n][0] = (pst_group_usage){SIM_PAGE, SIM_PAGE, 1};
        }
    self->config = (pst_simulation_config)PST_SIMULATION_CONFIG_INIT;
    self->config.schedules = (const pst_schedule *const *)self->schedules;
    self->config.layers = self->stage_layers;
    self->config.num_layers = self->num_layers;
    self->config.num_stages = self->num_stages;
    self->config.page_bytes = SIM_PAGE;
    self->config.num_pages[0] = UINT64_MAX;
    for (uint32_t i = 0; i < self->num_stages; i++) {
        self->stage_layers[i] = self->layers;
        self->num_layers[i] = n;
    }
}

static void open_range(sim_scene *self, const sim_shape *shape, uint32_t first, uint32_t num)
{
    uint32_t layers[16];
    memset(self, 0, sizeof(*self));
    self->shape = *shape;
    self->first_stage = first;
    self->num_stages = num;
    for (uint32_t i = 0; i < num; i++) {
        pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
        config.kind = shape->kind;
        config.num_stages = shape->p;
        config.stage = first + i;
        config.num_chunks = shape->v > 1 ? shape->v : 0;
        config.num_micro_batches = shape->m;
        config.group = shape->group;
        config.overlaps_exchange = shape->overlaps;
        CHECK_OK(pst_schedule_create(&config, &self->schedules[i]));
    }
    for (uint32_t c = 0; c < 16; c++)
        layers[c] = shape->num_layers;
    make_layers(self, shape->v ? shape->v : 1, layers);
}

void sim_open(sim_scene *self, const sim_shape *shape)
{
    open_range(self, shape, 0, shape->p);
}

void sim_open_alone(sim_scene *self, const sim_shape *shape, uint32_t stage)
{
    open_range(self, shape, stage, 1);
    self->config.alone = true;
}

void sim_open_schedule(sim_scene *self, pst_schedule *schedule, const uint32_t *num_layers)
{
    pst_schedule_info info;
    memset(self, 0, sizeof(*self));
    CHECK_OK(pst_schedule_get_info(schedule, &info));
    self->num_stages = 1;
    self->schedules[0] = schedule;
    self->shape.v = info.config.num_chunks;
    self->shape.m = info.config.num_micro_batches;
    make_layers(self, info.config.num_chunks, num_layers);
    self->config.alone = true;
}

void sim_make_list(sim_scene *self)
{
    for (uint32_t i = 0; i < self->num_stages; i++) {
        static pst_pass passes[4096];
        pst_schedule_info info;
        pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
        CHECK_OK(pst_schedule_get_info(self->schedules[i], &info));
        CHECK(info.num_passes <= 4096);
        for (uint64_t n = 0; n < info.num_passes; n++)
            CHECK_OK(pst_schedule_get_pass(self->schedules[i], n, &passes[n]));
        pst_schedule_destroy(self->schedules[i]);
        config.kind = PST_SCHEDULE_LIST;
        config.num_stages = info.config.num_stages;
        config.stage = info.config.stage;
        config.passes = passes;
        config.num_passes = info.num_passes;
        CHECK_OK(pst_schedule_create(&config, &self->schedules[i]));
    }
}

void sim_close(sim_scene *self)
{
    for (uint32_t i = 0; i < self->num_stages; i++)
        pst_schedule_destroy(self->schedules[i]);
}

void sim_set_pages(sim_scene *self, sim_pages_fn pages)
{
    for (uint32_t n = 0; n < self->num_layers[0]; n++) {
        pst_simulated_layer *layer = &self->layers[n];
        layer->num_usages = self->shape.m;
        for (uint32_t i = 0; i < self->shape.m; i++) {
            const uint64_t num = pages(layer->chunk, layer->layer, i);
            self->usages[n][i] = (pst_group_usage){num * SIM_PAGE, num * SIM_PAGE, num};
        }
    }
}

void sim_set_times(sim_scene *self, pst_times forward, pst_times backward)
{
    for (uint32_t n = 0; n < self->num_layers[0]; n++) {
        self->layers[n].forward = forward;
        self->layers[n].backward = backward;
    }
}

void sim_run(sim_scene *self)
{
    CHECK_OK(pst_simulate(&self->config, &self->simulation, self->stages));
}
