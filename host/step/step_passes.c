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

/* num_again: of them, those whose backward runs again what it has to. */
static void add_part(psti_step_chunk *self, const pst_step_times *part, uint64_t num,
                     uint64_t num_again)
{
    self->forward_ns =
        psti_plus(self->forward_ns, psti_step_add_pass(&self->work, &part->forward, num));
    self->input_ns = PSTI_SUM(self->input_ns, psti_step_add_pass(&self->work, &part->input, num),
                              psti_step_add_pass(&self->work, &part->again, num_again));
    self->weight_ns =
        psti_plus(self->weight_ns, psti_step_add_pass(&self->work, &part->weight, num));
}

static psti_step_chunk chunk_of(const psti_step_run *self, uint32_t stage, uint32_t number)
{
    const pst_estimate_config *config = &self->step->run;
    const psti_chunk of = psti_chunk_of(config, stage, number);
    const uint64_t num_moe = of.num_moe + of.num_mtp_moe;
    const uint64_t num_dense = of.num_layers + of.num_mtp - num_moe;
    const bool is_first = stage == 0 && number == 0;
    const bool is_last = stage == self->num_stages - 1 && number == self->num_chunks - 1;
    psti_again again = {.num_layers = num_dense + num_moe, .num_moe = num_moe};
    if (config->recompute_layers != 0)
        again = psti_again_of(config, stage, number);
    psti_step_chunk made = {.num_layers = num_dense + num_moe};
    add_part(&made, &self->parts[PST_STEP_DENSE], num_dense, again.num_layers - again.num_moe);
    add_part(&made, &self->parts[PST_STEP_MOE], num_moe, again.num_moe);
    add_part(&made, &self->parts[PST_STEP_FIRST], is_first, is_first);
    add_part(&made, &self->parts[PST_STEP_LAST], is_last, is_last && !config->recomputes_block);
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
    const size_t i = (size_t)event->stage * self->num_chunks + event->visit.chunk;
    psti_step_chunk *of = &self->chunks[i];
    if (event->kind != PST_SIMULATED_WORK)
        return;
    of->begin_ns = psti_min(of->begin_ns, event->begin_ns);
    of->end_ns = event->end_ns > of->end_ns ? event->end_ns : of->end_ns;
    if (self->ends != NULL)
        self->ends[(4 * i + event->visit.kind) * self->num_noted + event->visit.micro_batch] =
            event->end_ns;
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

/* Whether each pass of micro-batches `first` to `first + num - 1` comes as much before that of the same one
 * of the next group. */
static bool repeats(const psti_step_run *self, uint32_t first, uint32_t num, uint32_t group,
                    uint64_t *period_ns_out)
{
    const size_t num_rows = (size_t)4 * self->num_stages * self->num_chunks;
    *period_ns_out = self->ends[first + group] - self->ends[first];
    for (size_t row = 0; row < num_rows; row++) {
        const uint64_t *ends = &self->ends[row * self->num_noted];
        for (uint32_t i = first; i < first + num && ends[first] != 0; i++)
            if (ends[i + group] - ends[i] != *period_ns_out)
                return false;
    }
    return true;
}

/* Stages run the same passes for a group of micro-batches after the other, and what they wait for lies not
 * further back than those that are in flight. So where so many all come the same time later than a group
 * before, all others will: a step has their times of a shorter one, and of this period for each group more. */
static pst_status extend(psti_step_run *self, uint32_t few, uint32_t most, uint32_t group,
                         bool *is_extended_out)
{
    const size_t num_rows = (size_t)4 * self->num_stages * self->num_chunks;
    const uint64_t num_groups = (self->num_micro_batches - few) / group;
    uint64_t period_ns = 0;
    self->num_noted = few;
    self->ends = psti_calloc(num_rows * few, sizeof(*self->ends));
    PSTI_CHECK(self->ends, PST_E_NOMEM, "no memory for %u stages", self->num_stages);
    PSTI_TRY(simulate(self, few));
    *is_extended_out = repeats(self, 2 * most, 2 * most + group, group, &period_ns);
    if (!*is_extended_out)
        return PST_OK;
    const uint64_t more_ns = psti_times(num_groups, period_ns);
    self->span_ns = psti_plus(self->span_ns, more_ns);
    for (uint32_t s = 0; s < self->num_stages; s++) {
        uint64_t work_ns = 0;
        for (uint32_t c = 0; c < self->num_chunks; c++) {
            psti_step_chunk *of = &self->chunks[s * self->num_chunks + c];
            of->end_ns = of->end_ns == 0 ? 0 : psti_plus(of->end_ns, more_ns); /* 0: no layer */
            work_ns = PSTI_SUM(work_ns, of->forward_ns, of->input_ns, of->weight_ns);
        }
        self->results[s].bubble_ns += more_ns - psti_times(psti_times(num_groups, group), work_ns);
    }
    return PST_OK;
}

pst_status psti_step_run_passes(psti_step_run *self, bool is_whole)
{
    const uint32_t stages = self->num_stages;
    const uint32_t group =
        self->num_chunks > 1 ? (uint32_t)self->step->run.micro_batch_group_size : 1;
    const uint32_t most = group > stages ? group : stages;
    const uint32_t few = 8 * most + self->num_micro_batches % group;
    bool is_extended = false;
    PSTI_TRY(make_parts(self));
    make_layers(self);
    if (!is_whole && self->num_micro_batches / 2 > few)
        PSTI_TRY(extend(self, few, most, group, &is_extended));
    psti_free(self->ends);
    self->ends = NULL;
    return is_extended ? PST_OK : simulate(self, self->num_micro_batches);
}

/* ---- all of it ---- */

void psti_step_run_close(psti_step_run *self)
{
    for (uint32_t s = 0; self->schedules != NULL && s < self->num_stages; s++)
        pst_schedule_destroy(self->schedules[s]);
    psti_free(self->ends);
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
