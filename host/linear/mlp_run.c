/* The calls of a block: each step has in scratch what it needs, and no longer. */
#include "host/linear/mlp.h"

#include <string.h>

#include "host/base/nvtx.h"
#include "host/base/structs.h"

/* The GLU of a call: what it is launched with. */
typedef struct glu_launch {
    const pst_mlp *mlp;
    const pst_mlp_operands *operands;
    const pst_group *group;
    void *bases[PST_MAX_TENSORS];
    int64_t count;         /* of a dense block */
    const void *counts[1]; /* without a ticket */
    pst_buffers buffers;
    pst_glu_operands rows;
} glu_launch;

/* hidden: where the GLU's input lies; NULL: in pages. */
static pst_status place_glu(const pst_mlp *mlp, const pst_mlp_operands *operands, void *hidden,
                            void *activation, glu_launch *launch)
{
    const bool has_ticket = operands->ticket.id != 0;
    launch->mlp = mlp;
    launch->operands = operands;
    launch->group = has_ticket ? operands->group : mlp->group;
    launch->count = (int64_t)mlp->up->config.tokens;
    launch->counts[0] = mlp->num_experts ? operands->counts : &launch->count;
    launch->buffers = (pst_buffers)PST_BUFFERS_INIT;
    launch->buffers.counts = launch->counts;
    if (has_ticket) {
        PSTI_TAKE(pst_buffers, given, operands->buffers);
        launch->buffers = given;
        memcpy(launch->bases, given.bases, launch->group->num_tensors * sizeof(void *));
    }
    launch->buffers.struct_size = sizeof(launch->buffers);
    launch->buffers.bases = launch->bases;
    launch->bases[launch->group->glu_tensor] = hidden;
    launch->rows = (pst_glu_operands)PST_GLU_OPERANDS_INIT;
    launch->rows.output.base = activation;
    launch->rows.probability = operands->probability;
    return PST_OK;
}

/* ---- forward ---- */

static pst_status check_forward_glu(const pst_mlp *mlp, psti_stage *stage,
                                    const pst_mlp_operands *operands, void *hidden)
{
    glu_launch launch;
    void *activation = NULL;
    PSTI_TRY(psti_stage_lease(stage, PSTI_LENT_ACTIVATION, mlp->activation_bytes, &activation));
    PSTI_TRY(place_glu(mlp, operands, hidden, activation, &launch));
    PSTI_TRY(psti_glu_check_forward(mlp->up->device, &mlp->glu, operands->ticket, launch.group,
                                    &launch.buffers, &launch.rows, operands->stash));
    return psti_stage_release(stage, PSTI_LENT_ACTIVATION);
}

static pst_status forward_up(const pst_mlp *mlp, psti_stage *stage,
                             const pst_mlp_operands *operands, void *hidden)
{
    pst_linear_operands up = PST_LINEAR_OPERANDS_INIT;
    up.input = operands->input;
    up.weight = operands->up_weight;
    up.output = hidden;
    up.gathered = operands->gathered;
    return psti_column_forward(mlp->up, stage, &up);
}

static pst_status forward_glu(const pst_mlp *mlp, psti_stage *stage,
                              const pst_mlp_operands *operands, void *hidden, void **activation_out)
{
    glu_launch launch;
    PSTI_TRY(psti_stage_lease(stage, PSTI_LENT_ACTIVATION, mlp->activation_bytes, activation_out));
    PSTI_TRY(place_glu(mlp, operands, hidden, *activation_out, &launch));
    return pst_glu_forward(mlp->up->device, &mlp->glu, operands->ticket, launch.group,
                           &launch.buffers, &launch.rows, operands->stash, stage->stream);
}

static pst_status forward(const pst_mlp *mlp, psti_stage *stage, const pst_mlp_operands *operands)
{
    pst_linear_operands down = PST_LINEAR_OPERANDS_INIT;
    void *hidden = operands->hidden, *activation = NULL;
    if (!hidden)
        PSTI_TRY(psti_stage_lease(stage, PSTI_LENT_HIDDEN, mlp->hidden_bytes, &hidden));
    PSTI_TRY(check_forward_glu(mlp, stage, operands, hidden));
    PSTI_TRY(forward_up(mlp, stage, operands, hidden));
    PSTI_TRY(forward_glu(mlp, stage, operands, hidden, &activation));
    PSTI_TRY(psti_stage_release(stage, PSTI_LENT_HIDDEN));
    down.input = activation;
    down.weight = operands->down_weight;
    down.output = operands->output;
    return psti_row_forward(mlp->down, stage, &down);
}

pst_status pst_mlp_forward(pst_mlp *mlp, const pst_mlp_operands *operands, pst_stream stream)
{
    psti_stage stage;
    PSTI_CHECK_HANDLE(mlp, MLP);
    PSTI_CHECK(operands, PST_E_INVALID, "operands is NULL");
    PSTI_TAKE(pst_mlp_operands, own, operands);
    PSTI_TRY(psti_mlp_check(mlp, &own, false));
    PSTI_RANGE("pst_mlp_forward");
    PSTI_TRY(psti_stage_begin(&stage, mlp->up, "pst_mlp_forward", stream));
    stage.counts = own.counts;
    return psti_stage_end(&stage, forward(mlp, &stage, &own));
}

/* ---- backward ---- */

/* What the GLU's backward reads and writes in scratch. */
typedef struct glu_scratch {
    void *activation; /* NULL: nobody wants it */
    void *activation_gradient, *hidden_gradient;
} glu_scratch;

static pst_status lease_for_glu(const pst_mlp *mlp, psti_stage *stage,
                                const pst_mlp_operands *operands, glu_scratch *scratch)
{
    if (operands->down_weight_gradient)
        PSTI_TRY(psti_stage_lease(stage, PSTI_LENT_ACTIVATION, mlp->activation_bytes,
                                  &scratch->activation));
    return psti_stage_lease(stage, PSTI_LENT_HIDDEN, mlp->hidden_bytes, &scratch->hidden_gradient);
}

static pst_status place_backward(const pst_mlp *mlp, const pst_mlp_operands *operands,
                                 const glu_scratch *scratch, glu_launch *launch)
{
    PSTI_TRY(place_glu(mlp, operands, operands->hidden, scratch->activation, launch));
    launch->rows.gradient.base = scratch->activation_gradient;
    launch->rows.input_gradient.base = scratch->hidden_gradient;
    launch->rows.probability_gradient = operands->probability_gradient;
    return PST_OK;
}

static pst_status check_backward_glu(const pst_mlp *mlp, psti_stage *stage,
                                     const pst_mlp_operands *operands, glu_scratch *scratch)
{
    glu_launch launch;
    PSTI_TRY(lease_for_glu(mlp, stage, operands, scratch));
    PSTI_TRY(place_backward(mlp, operands, scratch, &launch));
    PSTI_TRY(psti_glu_check_backward(mlp->up->device, &mlp->glu, operands->ticket, launch.group,
                                     &launch.buffers, &launch.rows, operands->restore));
    PSTI_TRY(psti_stage_release(stage, PSTI_LENT_ACTIVATION));
    return psti_stage_release(stage, PSTI_LENT_HIDDEN);
}

static pst_status backward_glu(const pst_mlp *mlp, psti_stage *stage,
                               const pst_mlp_operands *operands, glu_scratch *scratch)
{
    glu_launch launch;
    PSTI_TRY(lease_for_glu(mlp, stage, operands, scratch));
    PSTI_TRY(place_backward(mlp, operands, scratch, &launch));
    PSTI_TRY(pst_glu_backward(mlp->up->device, &mlp->glu, operands->ticket, launch.group,
                              &launch.buffers, &launch.rows, operands->restore, stage->stream));
    return psti_stage_release(stage, PSTI_LENT_ACTIVATION_GRADIENT);
}

static pst_status backward_up(const pst_mlp *mlp, psti_stage *stage,
                              const pst_mlp_operands *operands, const void *hidden_gradient)
{
    pst_linear_operands up = PST_LINEAR_OPERANDS_INIT;
    up.input = operands->input;
    up.weight = operands->up_weight;
    up.gathered = operands->gathered;
    up.output_gradient = hidden_gradient;
    up.input_gradient = operands->input_gradient;
    up.weight_gradient = operands->up_weight_gradient;
    up.accumulates = operands->accumulates;
    return psti_column_backward(mlp->up, stage, &up);
}

static pst_status backward(const pst_mlp *mlp, psti_stage *stage, const pst_mlp_operands *operands)
{
    pst_linear_operands down = PST_LINEAR_OPERANDS_INIT;
    glu_scratch scratch = {.activation = NULL};
    const void *gathered = NULL;
    PSTI_TRY(psti_stage_lease(stage, PSTI_LENT_ACTIVATION_GRADIENT, mlp->activation_bytes,
                              &scratch.activation_gradient));
    PSTI_TRY(check_backward_glu(mlp, stage, operands, &scratch));
    down.weight = operands->down_weight;
    down.output_gradient = operands->output_gradient;
    down.input_gradient = scratch.activation_gradient;
    down.weight_gradient = operands->down_weight_gradient;
    down.accumulates = operands->accumulates;
    PSTI_TRY(psti_row_backward_input(mlp->down, stage, &down, &gathered));
    PSTI_TRY(backward_glu(mlp, stage, operands, &scratch));
    down.input = scratch.activation;
    PSTI_TRY(psti_row_backward_weight(mlp->down, stage, &down, gathered));
    PSTI_TRY(psti_stage_release(stage, PSTI_LENT_ACTIVATION));
    return backward_up(mlp, stage, operands, scratch.hidden_gradient);
}

pst_status pst_mlp_backward(pst_mlp *mlp, const pst_mlp_operands *operands, pst_stream stream)
{
    psti_stage stage;
    PSTI_CHECK_HANDLE(mlp, MLP);
    PSTI_CHECK(operands, PST_E_INVALID, "operands is NULL");
    PSTI_TAKE(pst_mlp_operands, own, operands);
    PSTI_TRY(psti_mlp_check(mlp, &own, true));
    PSTI_RANGE("pst_mlp_backward");
    PSTI_TRY(psti_stage_begin(&stage, mlp->up, "pst_mlp_backward", stream));
    stage.counts = own.counts;
    return psti_stage_end(&stage, backward(mlp, &stage, &own));
}
