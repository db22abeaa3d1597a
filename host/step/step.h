/* Room step: how long a training step takes: FLOPs, bytes and transfers of layers on a GPU's rates, and
 * the simulator's clocks; pure. Uses base, schedule, model and estimate, and of the public calls the
 * simulator. Used by programs, through step.h of the public headers. */
#ifndef PSTI_HOST_STEP_H
#define PSTI_HOST_STEP_H

#include <pagestash/step.h>

#include "host/base/arith.h"
#include "host/base/base.h"
#include "host/estimate/estimate.h"

/* A checked config, its zeros filled in. */
typedef struct psti_step {
    pst_step_config config;
    pst_estimate_config run;
    pst_gpu gpu; /* zero where none is needed */
    psti_split split;
    uint64_t tokens, local, width; /* as the ledger has them; bytes of an element */
} psti_step;

/* ---- step_config.c ---- */

pst_status psti_step_open(const pst_step_config *given, bool needs_gpu, psti_step *step_out);
pst_status psti_step_check_part(pst_step_part part);

/* ---- step_work.c ---- */

pst_status psti_step_work_of(const psti_step *step, pst_step_part part, pst_step_work *work_out);
/* FLOPs of a forward that a model has by itself: with the mask, without what runs again. */
uint64_t psti_step_model_flops(const psti_step *step, pst_step_part part,
                               const pst_step_work *work);

/* ---- step_rates.c ---- */

/* Nanoseconds of so many units at so many a second, of which per_mille are reached; rounded up. */
uint64_t psti_step_ns(uint64_t amount, uint64_t rate, uint32_t per_mille);
/* Of an operation's FLOPs and bytes; 0 of neither. */
uint64_t psti_step_op_ns(const psti_step *step, const pst_step_op *op,
                         const pst_step_amount *amount, bool is_forward);
/* Of one call of a transfer. */
uint64_t psti_step_transfer_ns(const psti_step *step, const pst_estimate_op *op);
/* Of what a stage sends to the next one for a micro-batch. 0: there is one stage. */
uint64_t psti_step_p2p_ns(const psti_step *step);

/* ---- step_times.c ---- */

/* input and visit_input are without what runs again. */
pst_status psti_step_times_of(const psti_step *step, pst_step_part part, pst_step_times *times_out);

/* ---- step_passes.c ---- */

/* A chunk of a stage. */
typedef struct psti_step_chunk {
    uint64_t num_layers;
    pst_step_pass work; /* forward and backward of a micro-batch */
    uint64_t forward_ns, input_ns, weight_ns;
    uint64_t begin_ns, end_ns; /* of its first forward the begin, of its last backward the end */
} psti_step_chunk;

/* All passes of a step. */
typedef struct psti_step_run {
    const psti_step *step;
    uint32_t num_stages, num_chunks, num_micro_batches;
    pst_step_times parts[PST_NUM_STEP_PARTS];
    uint64_t flops[PST_NUM_STEP_PARTS];
    uint64_t span_ns;
    psti_step_chunk *chunks; /* [num_stages][num_chunks] */
    pst_schedule **schedules;
    const pst_simulated_layer **layers;
    uint32_t *num_layers;
    pst_stage_result *results;
    pst_step_stage *stages;
    pst_simulated_layer *all_layers; /* [num_stages][num_chunks] */
    uint64_t *ends; /* NULL, or of passes: [num_stages][num_chunks][pst_pass_kind][num_noted] */
    uint32_t num_noted;
} psti_step_run;

/* Returns what the added passes take of the main stream. */
uint64_t psti_step_add_pass(pst_step_pass *sum, const pst_step_pass *pass, uint64_t times);

/* Close it whatever the answer. */
pst_status psti_step_run_open(const psti_step *step, psti_step_run *run_out);
/* Simulates them; is_whole: every micro-batch, however many there are. */
pst_status psti_step_run_passes(psti_step_run *run, bool is_whole);
void psti_step_run_close(psti_step_run *run);

/* ---- step.c ---- */

/* is_whole: as above. */
pst_status psti_step_predict(const psti_step *step, bool is_whole,
                             pst_step_prediction *prediction_out, pst_step_stage *stages_out);

/* ---- step_ends.c ---- */

/* What a stage does once per step, and what of it may run beside its passes. */
typedef struct psti_step_ends {
    uint64_t reduce_ns, gather_ns; /* in num_buckets parts */
    uint64_t num_buckets;
    uint64_t embedding_ns; /* the sum of first and last stage's gradients */
    uint64_t optimizer_ns;
} psti_step_ends;

pst_status psti_step_ends_of(const psti_step *step, uint64_t stage, psti_step_ends *ends_out);

#endif
