/* The passes of a step on the simulator: every chunk of a stage is one of its layers. */
#include <inttypes.h>

#include "host/step/step.h"

#define MOST_CHUNKS (1u << 20)

/* ---- chunks ---- */

uint64_t psti_step_add_pass(pst_step_pass *sum, const pst_step_pass *pass, uint64_t times)
{
    sum->products_ns = psti_plus(sum->products_ns, psti_times(times, pass->products_ns));
    sum->memory_ns = psti_plus(sum->memory_ns, psti_times(times, pass->memory_ns));
    sum->exposed_ns = psti_plus(sum->exposed_ns, psti_times(times, pass->exposed_ns));
    sum->hidden_ns = psti_plus(sum->hidden_ns, psti_times(times, pass->hidden_ns));
    return psti_times(times, PSTI_SUM(pass->products_ns, pass->memory_ns, pass->exposed_ns));
}

static void add_part(psti_step_chunk *self, const pst_step_times *part, uint64_t times)
{
    self->forward_ns =
        psti_plus(self->forward_ns, psti_step_add_pass(&self->work, &part->forward, times));
    self->input_ns =
        psti_plus(self->input_ns, psti_step_add_pass(&self->work, &part->input, times));
    self->weight_ns =
        psti_plus(self->weight_ns, psti_step_add_pass(&self->work, &part->weight, times));
}

static psti_step_chunk chunk_of(const psti_step_run *self, uint32_t stage, uint32_t number)
{
    const psti_chunk of = psti_chunk_of(&self->step->run, stage, number);
    const uint64_t num_moe = of.num_moe + of.num_mtp_moe;
    psti_step_chunk made = {.num_layers = of.num_layers + of.num_mtp, .begin_ns = PSTI_TOO_MUCH};
    add_part(&made, &self->parts[PST_STEP_DENSE], made.num_layers - num_moe);
    add_part(&made, &self->parts[PST_STEP_MOE], num_moe);
    add_part(&made, &self->parts[PST_STEP_FIRST], stage == 0 && number == 0);
    add_part(&made, &self->parts[PST_STEP_LAST],
             stage == self->num_stages - 1 && number == self->num_chunks - 1);
    return made;
}

/* Only of parts that the model has: it need not have sizes of the others. */
static pst_status make_parts(psti_step_run *self)
{
    const pst_estimate_config *config = &self->step->run;
    bool has[PST_NUM_STEP_PARTS] = {[PST_STEP_FIRST] = true, [PST_STEP_LAST] = true};
    for (uint64_t i = 0; i < config->num_layers; i++)
        has[psti_estimate_has_moe(config, i) ? PST_STEP_MOE : PST_STEP_DENSE] = true;
    for (int part = 0; part < PST_NUM_STEP_PARTS; part++) {
        pst_step_work work;
        if (!has[part])
            continue;
        PSTI_TRY(psti_step_work_of(self->step, (pst_step_part)part, &work));
        self->flops[part] = psti_step_model_flops(self->step, (pst_step_part)part, &work);
        PSTI_TRY(psti_step_times_of(self->step, (pst_step_part)part, &self->parts[part]));
    }
    return PST_OK;
}

/* ---- the simulation ---- */

static pst_status make_schedule(const psti_step_run *self, uint32_t stage,
                                uint32_t num_micro_batches, pst_schedule **schedule_out)
{
    const pst_estimate_config *config = &self->step->run;
    pst_schedule_config of = PST_SCHEDULE_CONFIG_INIT;
    of.kind = self->step->config.schedule;
    of.num_stages = self->num_stages;
    of.stage = stage;
    of.num_micro_batches = num_micro_batches;
    if (self->num_chunks > 1) {
        of.kind = PST_SCHEDULE_INTERLEAVED;
        of.num_chunks = self->num_chunks;
        of.group = (uint32_t)config->micro_batch_group_size;
        of.overlaps_exchange = config->overlaps_exchange;
    }
    return pst_schedule_create(&of, schedule_out);
}

static pst_simulated_layer layer_of(const psti_step_chunk *of, uint32_t number)
{
    pst_simulated_layer layer = PST_SIMULATED_LAYER_INIT;
    layer.chunk = number;
    layer.keep = PST_KEEP_PLANNED;
    layer.forward.core = of->forward_ns;
    layer.backward.core = psti_plus(of->input_ns, of->weight_ns);
    layer.backward_input.core = of->input_ns;
    layer.backward_weight.core = of->weight_ns;
    return layer;
}

static void note(void *user, const pst_simulated_event *event)
{
    psti_step_run *self = user;
    psti_step_chunk *of = &self->chunks[event->stage * self->num_chunks + event->visit.chunk];
    if (event->kind != PST_SIMULATED_WORK)
        return;
    of->begin_ns = psti_min(of->begin_ns, event->begin_ns);
    of->end_ns = event->end_ns > of->end_ns ? event->end_ns : of->end_ns;
}

static pst_status make_schedules(psti_step_run *self, uint32_t num_micro_batches)
{
    for (uint32_t s = 0; s < self->num_stages; s++) {
        pst_schedule_destroy(self->schedules[s]);
        self->schedules[s] = NULL;
        PSTI_TRY(make_schedule(self, s, num_micro_batches, &self->schedules[s]));
    }
    return PST_OK;
}

static pst_status simulate(psti_step_run *self, uint32_t num_micro_batches)
{
    pst_simulation_config config = PST_SIMULATION_CONFIG_INIT;
    pst_simulation simulation;
    for (uint32_t i = 0; i < self->num_stages * self->num_chunks; i++) {
        self->chunks[i].begin_ns = PSTI_TOO_MUCH;
        self->chunks[i].end_ns = 0;
    }
    PSTI_TRY(make_schedules(self, num_micro_batches));
    config.num_stages = self->num_stages;
    config.schedules = (const pst_schedule *const *)self->schedules;
    config.layers = self->layers;
    config.num_layers = self->num_layers;
    config.p2p_ns = psti_step_p2p_ns(self->step);
    config.on_event = note;
    config.user = self;
    PSTI_TRY(pst_simulate(&config, &simulation, self->results));
    PSTI_CHECK(!simulation.deadlocked, PST_E_INVALID, "run: %s", simulation.deadlock);
    self->span_ns = simulation.makespan_ns;
    return PST_OK;
}

static void make_layers(psti_step_run *self)
{
    for (uint32_t s = 0; s < self->num_stages; s++) {
        for (uint32_t c = 0; c < self->num_chunks; c++) {
            const uint32_t i = s * self->num_chunks + c;
            self->chunks[i] = chunk_of(self, s, c);
            self->all_layers[i] = layer_of(&self->chunks[i], c);
        }
        self->layers[s] = &self->all_layers[s * self->num_chunks];
        self->num_layers[s] = self->num_chunks;
    }
}

/* ---- steps of many micro-batches ---- */

/* Figures that grow with micro-batches: the span, of chunks their ends, of stages their bubbles. */
static uint64_t *figure(psti_step_run *self, uint32_t i)
{
    const uint32_t num_chunks = self->num_stages * self->num_chunks;
    if (i == 0)
        return &self->span_ns;
    return i <= num_chunks ? &self->chunks[i - 1].end_ns
                           : &self->results[i - 1 - num_chunks].bubble_ns;
}

/* In between all stages repeat the same passes, a group of micro-batches after the other (max-plus
 * systems are periodic in the end; Baccelli et al. 1992). So three short steps, each with a group more
 * than the one before, say what a long one takes if both groups added the same to every figure. */
static pst_status extend(psti_step_run *self, uint32_t few, uint32_t group, bool *is_periodic_out)
{
    const uint32_t num = 1 + self->num_stages * (self->num_chunks + 1);
    const uint64_t more = (self->num_micro_batches - few) / group;
    uint64_t *before = psti_calloc(2 * (size_t)num, sizeof(*before));
    bool is_periodic = true;
    pst_status status = PST_OK;
    PSTI_CHECK(before, PST_E_NOMEM, "no memory for %u stages", self->num_stages);
    for (uint32_t round = 0; round < 3 && status == PST_OK && is_periodic; round++) {
        status = simulate(self, few + round * group);
        for (uint32_t i = 0; i < num && status == PST_OK; i++) {
            uint64_t *now = figure(self, i), *first = &before[2 * (size_t)i], *second = first + 1;
            if (round == 2)
                is_periodic = is_periodic && *second >= *first && *now - *second == *second - *first;
            *(round == 0 ? first : second) = round == 2 ? *second - *first : *now;
        }
    }
    for (uint32_t i = 0; i < num && status == PST_OK && is_periodic; i++)
        *figure(self, i) =
            psti_plus(*figure(self, i), psti_times(more - 2, before[2 * (size_t)i + 1]));
    psti_free(before);
    *is_periodic_out = is_periodic;
    return status;
}

pst_status psti_step_run_passes(psti_step_run *self, bool is_whole)
{
    PSTI_TRY(make_parts(self));
    make_layers(self);
    const uint32_t stages = self->num_stages;
    const uint32_t group =
        self->num_chunks > 1 ? (uint32_t)self->step->run.micro_batch_group_size : 1;
    const uint32_t few = 4 * (group > stages ? group : stages) + self->num_micro_batches % group;
    bool is_periodic = false;
    if (!is_whole && self->num_micro_batches / 4 > few)
        PSTI_TRY(extend(self, few, group, &is_periodic));
    return is_periodic ? PST_OK : simulate(self, self->num_micro_batches);
}

/* ---- all of it ---- */

void psti_step_run_close(psti_step_run *self)
{
    for (uint32_t s = 0; self->schedules != NULL && s < self->num_stages; s++)
        pst_schedule_destroy(self->schedules[s]);
    psti_free(self->chunks);
    psti_free(self->schedules);
    psti_free((void *)self->layers);
    psti_free(self->num_layers);
    psti_free(self->results);
    psti_free(self->stages);
    psti_free(self->all_layers);
}

pst_status psti_step_run_open(const psti_step *step, psti_step_run *self)
{
    const uint64_t num_micro_batches = psti_num_micro_batches(&step->run);
    const uint64_t num_chunks = psti_times(step->run.pipeline_parallel, step->run.virtual_stages);
    PSTI_CHECK(num_micro_batches <= PST_SCHEDULE_MAX_MICRO_BATCHES, PST_E_INVALID,
               "global_batch: %" PRIu64 " micro-batches: at most %u can be simulated",
               num_micro_batches, PST_SCHEDULE_MAX_MICRO_BATCHES);
    PSTI_CHECK(num_chunks <= MOST_CHUNKS, PST_E_INVALID,
               "pipeline_parallel %" PRIu64 ", virtual_stages %" PRIu64
               ": at most %u chunks can be simulated",
               step->run.pipeline_parallel, step->run.virtual_stages, MOST_CHUNKS);
    self->step = step;
    self->num_stages = (uint32_t)step->run.pipeline_parallel;
    self->num_chunks = (uint32_t)step->run.virtual_stages;
    self->num_micro_batches = (uint32_t)num_micro_batches;
    self->chunks = psti_calloc(num_chunks, sizeof(*self->chunks));
    self->schedules = psti_calloc(self->num_stages, sizeof(pst_schedule *));
    self->layers = psti_calloc(self->num_stages, sizeof(pst_simulated_layer *));
    self->num_layers = psti_calloc(self->num_stages, sizeof(*self->num_layers));
    self->results = psti_calloc(self->num_stages, sizeof(*self->results));
    self->stages = psti_calloc(self->num_stages, sizeof(*self->stages));
    self->all_layers = psti_calloc(num_chunks, sizeof(*self->all_layers));
    PSTI_CHECK(self->chunks && self->schedules && self->layers && self->num_layers &&
                   self->results && self->stages && self->all_layers,
               PST_E_NOMEM, "no memory for %u stages", self->num_stages);
    return PST_OK;
}
