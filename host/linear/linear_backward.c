/* Backward of a layer: what is exchanged travels beside a product that does not need it. */
#include "host/linear/linear.h"

/* ---- COLUMN ---- */

static pst_status start_gather(const pst_linear *linear, psti_stage *stage,
                               const pst_linear_operands *operands, const void **gathered_out,
                               uint64_t *number_out)
{
    const uint64_t count = linear->config.tokens / linear->num_ranks * linear->columns;
    void *gathered = NULL;
    PSTI_TRY(psti_stage_lease(stage, PSTI_LENT_GATHERED, count * linear->num_ranks * linear->size,
                              &gathered));
    *gathered_out = gathered;
    return psti_stage_start(stage, PST_EXCHANGE_ALL_GATHER, operands->input, gathered, count,
                            number_out);
}

/* The gradient of the whole input is scattered from scratch while the weight's is computed. */
static pst_status start_scatter(const pst_linear *linear, psti_stage *stage,
                                const pst_linear_operands *operands, const void *sums,
                                uint64_t *number_out)
{
    return psti_stage_start(stage, PST_EXCHANGE_REDUCE_SCATTER, sums, operands->input_gradient,
                            linear->config.tokens / linear->num_ranks * linear->columns,
                            number_out);
}

static pst_status column_in_pieces(const pst_linear *linear, psti_stage *stage,
                                   const pst_linear_operands *operands)
{
    const uint64_t tokens = linear->config.tokens;
    const void *input = operands->gathered;
    uint64_t gather = 0, scatter = 0;
    void *sums = NULL;
    if (operands->weight_gradient && !input)
        PSTI_TRY(start_gather(linear, stage, operands, &input, &gather));
    if (operands->input_gradient) {
        PSTI_TRY(psti_stage_lease(stage, PSTI_LENT_SUMS, tokens * linear->columns * linear->size,
                                  &sums));
        PSTI_TRY(psti_linear_multiply_back(linear, stage, operands->output_gradient,
                                           operands->weight, sums, tokens));
    }
    PSTI_TRY(psti_stage_finish(stage, gather));
    if (operands->input_gradient)
        PSTI_TRY(start_scatter(linear, stage, operands, sums, &scatter));
    if (operands->weight_gradient)
        PSTI_TRY(
            psti_linear_multiply_weight(linear, stage, operands->output_gradient, input, operands));
    PSTI_TRY(psti_stage_release(stage, PSTI_LENT_GATHERED));
    PSTI_TRY(psti_stage_finish(stage, scatter));
    return psti_stage_release(stage, PSTI_LENT_SUMS);
}

pst_status psti_column_backward(const pst_linear *linear, psti_stage *stage,
                                const pst_linear_operands *operands)
{
    const uint64_t tokens = linear->config.tokens;
    const void *input = operands->gathered ? operands->gathered : operands->input;
    uint64_t sum = 0;
    if (psti_linear_gathers(linear))
        return column_in_pieces(linear, stage, operands);
    if (operands->input_gradient)
        PSTI_TRY(psti_linear_multiply_back(linear, stage, operands->output_gradient,
                                           operands->weight, operands->input_gradient, tokens));
    if (operands->input_gradient && linear->num_ranks > 1)
        PSTI_TRY(psti_stage_start(stage, PST_EXCHANGE_ALL_REDUCE, operands->input_gradient,
                                  operands->input_gradient, tokens * linear->columns, &sum));
    if (operands->weight_gradient)
        PSTI_TRY(
            psti_linear_multiply_weight(linear, stage, operands->output_gradient, input, operands));
    return psti_stage_finish(stage, sum);
}

/* ---- ROW ---- */

/* Whether the gradient is multiplied piece by piece, as it comes. */
static bool has_ring(const pst_linear *linear, const pst_linear_operands *operands)
{
    return linear->config.pieces == 0 && operands->input_gradient;
}

static pst_status gather_gradient(const pst_linear *linear, psti_stage *stage,
                                  const pst_linear_operands *operands, void *gathered)
{
    const psti_gather gather = {.own = operands->output_gradient,
                                .gathered = gathered,
                                .from_columns = linear->rows,
                                .weight = operands->weight,
                                .to = operands->input_gradient,
                                .to_columns = linear->columns,
                                .is_backward = true};
    if (has_ring(linear, operands))
        return psti_gather_ring(linear, stage, &gather);
    return psti_stage_exchange(stage, PST_EXCHANGE_ALL_GATHER, gather.own, gathered,
                               linear->config.tokens / linear->num_ranks * linear->rows);
}

pst_status psti_row_backward_input(const pst_linear *linear, psti_stage *stage,
                                   const pst_linear_operands *operands, const void **gradient_out)
{
    const uint64_t tokens = linear->config.tokens;
    void *gathered = NULL;
    *gradient_out = operands->output_gradient;
    if (psti_linear_gathers(linear)) {
        PSTI_TRY(psti_stage_lease(stage, PSTI_LENT_GATHERED, tokens * linear->rows * linear->size,
                                  &gathered));
        *gradient_out = gathered;
        PSTI_TRY(gather_gradient(linear, stage, operands, gathered));
    }
    if (!operands->input_gradient || (gathered && has_ring(linear, operands)))
        return PST_OK;
    return psti_linear_multiply_back(linear, stage, *gradient_out, operands->weight,
                                     operands->input_gradient, tokens);
}

pst_status psti_row_backward_weight(const pst_linear *linear, psti_stage *stage,
                                    const pst_linear_operands *operands, const void *gradient)
{
    if (operands->weight_gradient)
        PSTI_TRY(psti_linear_multiply_weight(linear, stage, gradient, operands->input, operands));
    return psti_stage_release(stage, PSTI_LENT_GATHERED);
}
