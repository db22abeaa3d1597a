/* A whole step: its passes, and what comes once behind them. */
#include <string.h>

#include "host/base/structs.h"
#include "host/step/step.h"

#define TOO_LONG (UINT64_C(1) << 62)

/* ---- what comes once per step ---- */

static const psti_step_chunk *chunks_of(const psti_step_run *self, uint32_t stage)
{
    return &self->chunks[stage * self->num_chunks];
}

/* Of `whole`, by layers. */
static uint64_t share(const psti_step_run *self, uint32_t stage, const psti_step_chunk *of,
                      uint64_t whole)
{
    uint64_t num_layers = 0;
    for (uint32_t c = 0; c < self->num_chunks; c++)
        num_layers += chunks_of(self, stage)[c].num_layers;
    return num_layers == 0 ? psti_div_up(whole, self->num_chunks)
                           : psti_fraction(whole, of->num_layers, num_layers);
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static const psti_step_chunk *next_chunk(const psti_step_run *self, uint32_t stage,
                                         const psti_step_chunk *before)
{
    const psti_step_chunk *next = NULL;
    for (uint32_t c = 0; c < self->num_chunks; c++) {
        const psti_step_chunk *of = &chunks_of(self, stage)[c];
        const bool is_later = before == NULL || of->end_ns > before->end_ns ||
                              (of->end_ns == before->end_ns && of > before);
        if (is_later && of != before && (next == NULL || of->end_ns < next->end_ns))
            next = of;
    }
    return next;
}

/* Each bucket of a chunk is reduced as soon as the last backward has made it, one after the other.
 * Returns when the last one is. */
static uint64_t reduced_at(const psti_step_run *self, uint32_t stage, const psti_step_ends *ends)
{
    uint64_t free_ns = 0;
    for (const psti_step_chunk *of = next_chunk(self, stage, NULL); of != NULL;
         of = next_chunk(self, stage, of)) {
        const uint64_t num = later(share(self, stage, of, ends->num_buckets), 1);
        const uint64_t bucket_ns = psti_div_up(share(self, stage, of, ends->reduce_ns), num);
        const uint64_t backward_ns = psti_plus(of->input_ns, of->weight_ns);
        for (uint64_t i = 1; i <= num; i++) {
            const uint64_t made = of->end_ns - psti_fraction(backward_ns, num - i, num);
            free_ns = psti_plus(later(free_ns, made), bucket_ns);
        }
    }
    return free_ns;
}

/* Parameters are gathered in the order of the first forwards, from the begin of the step. Returns by how
 * much they come too late. */
static uint64_t gathered_late(const psti_step_run *self, uint32_t stage, const psti_step_ends *ends)
{
    uint64_t now = 0, late = 0;
    for (uint32_t c = 0; c < self->num_chunks; c++) {
        const psti_step_chunk *of = &chunks_of(self, stage)[c];
        const uint64_t num = later(share(self, stage, of, ends->num_buckets), 1);
        const uint64_t bucket_ns = psti_div_up(share(self, stage, of, ends->gather_ns), num);
        for (uint64_t i = 0; i < num; i++) {
            const uint64_t wanted = psti_plus(of->begin_ns, psti_fraction(of->forward_ns, i, num));
            now = psti_plus(now, bucket_ns);
            late = later(late, now > wanted ? now - wanted : 0);
        }
    }
    return late;
}

/* So many calls of equal length, each beside a pass. Returns what is left of them. */
static uint64_t beside_passes(uint64_t all_ns, uint64_t num, uint64_t pass_ns)
{
    const uint64_t one_ns = num == 0 ? 0 : psti_div_up(all_ns, num);
    return one_ns > pass_ns ? psti_times(num, one_ns - pass_ns) : 0;
}

/* Fully sharded data parallelism fetches ahead and reduces behind, by itself. */
static void add_sharded(const psti_step_run *self, uint32_t stage, const psti_step_ends *ends,
                        pst_step_stage *of)
{
    const psti_collectives num = psti_collectives_of(&self->step->run);
    uint64_t forward_ns = 0, backward_ns = 0;
    for (uint32_t c = 0; c < self->num_chunks; c++) {
        const psti_step_chunk *one = &chunks_of(self, stage)[c];
        forward_ns = psti_plus(forward_ns, one->forward_ns);
        backward_ns = PSTI_SUM(backward_ns, one->input_ns, one->weight_ns);
    }
    of->gradients_ns = beside_passes(ends->reduce_ns, num.reductions, backward_ns);
    of->params_ns = beside_passes(ends->gather_ns, num.gathers, forward_ns);
}

static pst_status add_ends(const psti_step_run *self, uint32_t stage, pst_step_stage *of)
{
    psti_step_ends ends;
    PSTI_TRY(psti_step_ends_of(self->step, stage, &ends));
    of->gradients_ns = ends.reduce_ns;
    of->params_ns = ends.gather_ns;
    if (self->step->config.overlaps & PST_OVERLAP_GRADIENTS)
        of->gradients_ns = later(reduced_at(self, stage, &ends), of->end_ns) - of->end_ns;
    if (self->step->config.overlaps & PST_OVERLAP_PARAMS)
        of->params_ns = gathered_late(self, stage, &ends);
    if (psti_shards_gradients(&self->step->run))
        add_sharded(self, stage, &ends, of);
    of->gradients_ns = psti_min(of->gradients_ns, ends.reduce_ns);
    of->params_ns = psti_min(of->params_ns, ends.gather_ns);
    of->hidden_ends_ns =
        psti_plus(ends.reduce_ns - of->gradients_ns, ends.gather_ns - of->params_ns);
    of->gradients_ns = psti_plus(of->gradients_ns, ends.embedding_ns);
    of->optimizer_ns = ends.optimizer_ns;
    return PST_OK;
}

/* ---- sums ---- */

static uint64_t work_of(const pst_step_stage *of)
{
    return PSTI_SUM(of->products_ns, of->memory_ns, of->exposed_ns);
}

static pst_status make_stage(psti_step_run *self, uint32_t stage)
{
    pst_step_stage *of = &self->stages[stage];
    pst_step_pass sum = {.products_ns = 0};
    for (uint32_t c = 0; c < self->num_chunks; c++) {
        const psti_step_chunk *one = &chunks_of(self, stage)[c];
        psti_step_add_pass(&sum, &one->work, self->num_micro_batches);
        of->end_ns = later(of->end_ns, one->end_ns);
    }
    of->products_ns = sum.products_ns;
    of->memory_ns = sum.memory_ns;
    of->exposed_ns = sum.exposed_ns;
    of->hidden_ns = sum.hidden_ns;
    of->bubble_ns = self->results[stage].bubble_ns;
    return add_ends(self, stage, of);
}

static uint64_t model_flops(const psti_step_run *self, const psti_chunk *of)
{
    const uint64_t num_moe = of->num_moe + of->num_mtp_moe;
    const uint64_t num_dense = of->num_layers + of->num_mtp - num_moe;
    return psti_plus(psti_times(num_dense, self->flops[PST_STEP_DENSE]),
                     psti_times(num_moe, self->flops[PST_STEP_MOE]));
}

/* All stages' together, of whom each GPU has one. */
static uint64_t flops_of_gpu(const psti_step_run *self)
{
    uint64_t sum = psti_plus(self->flops[PST_STEP_FIRST], self->flops[PST_STEP_LAST]);
    for (uint32_t s = 0; s < self->num_stages; s++)
        for (uint32_t c = 0; c < self->num_chunks; c++) {
            const psti_chunk of = psti_chunk_of(&self->step->run, s, c);
            sum = psti_plus(sum, model_flops(self, &of));
        }
    return psti_fraction(PSTI_PRODUCT(3, sum), self->num_micro_batches, self->num_stages);
}

static pst_status conclude(psti_step_run *self, pst_step_prediction *prediction)
{
    const pst_estimate_config *config = &self->step->run;
    uint64_t met = 0, rest = 0;
    for (uint32_t s = 0; s < self->num_stages; s++) {
        const pst_step_stage *of = &self->stages[s];
        met = later(met, psti_plus(of->end_ns, of->gradients_ns));
        rest = later(rest, psti_plus(of->params_ns, of->optimizer_ns));
        if (work_of(of) > work_of(&self->stages[prediction->busiest]))
            prediction->busiest = s;
    }
    prediction->step_ns = psti_plus(met, rest);
    prediction->span_ns = self->span_ns;
    prediction->of_busiest = self->stages[prediction->busiest];
    prediction->model_flops = flops_of_gpu(self);
    prediction->tokens = psti_times(config->global_batch, config->sequence_size);
    PSTI_CHECK(prediction->step_ns < TOO_LONG && prediction->model_flops != PSTI_TOO_MUCH &&
                   prediction->tokens != PSTI_TOO_MUCH,
               PST_E_INVALID, "run: a step of 2^62 ns, or of 2^64 FLOPs of a GPU, and more");
    const uint64_t ideal = psti_step_ns(prediction->model_flops, self->step->gpu.flops, 1000);
    prediction->mfu_per_mille =
        (uint32_t)psti_min(psti_fraction(1000, ideal, later(prediction->step_ns, 1)), UINT32_MAX);
    return PST_OK;
}

static pst_status run_all(psti_step_run *self, bool is_whole, pst_step_prediction *prediction)
{
    PSTI_TRY(psti_step_run_passes(self, is_whole));
    for (uint32_t s = 0; s < self->num_stages; s++)
        PSTI_TRY(make_stage(self, s));
    return conclude(self, prediction);
}

pst_status psti_step_predict(const psti_step *step, bool is_whole,
                             pst_step_prediction *prediction_out, pst_step_stage *stages_out)
{
    psti_step_run self = {.num_stages = 0};
    pst_step_prediction prediction = {.step_ns = 0};
    pst_status status = psti_step_run_open(step, &self);
    if (status == PST_OK)
        status = run_all(&self, is_whole, &prediction);
    if (status == PST_OK)
        *prediction_out = prediction;
    if (status == PST_OK && stages_out != NULL)
        memcpy(stages_out, self.stages, self.num_stages * sizeof(*stages_out));
    psti_step_run_close(&self);
    return status;
}

pst_status pst_step_predict_sized(const pst_step_config *config,
                                  pst_step_prediction *prediction_out, size_t prediction_bytes,
                                  pst_step_stage *stages_out)
{
    psti_step step;
    pst_step_prediction prediction;
    PSTI_TRY(psti_step_open(config, true, &step));
    PSTI_CHECK(prediction_out, PST_E_INVALID, "prediction_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_step_prediction, prediction_bytes));
    PSTI_TRY(psti_step_predict(&step, false, &prediction, stages_out));
    memcpy(prediction_out, &prediction, prediction_bytes);
    return PST_OK;
}
