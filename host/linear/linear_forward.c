/* Forward of a layer: rings whose products run while the next piece travels. */
#include "host/linear/linear.h"

static uint64_t tokens_of_rank(const pst_linear *linear)
{
    return linear->config.tokens / linear->num_ranks;
}

/* ---- the ring that gathers ---- */

static pst_status multiply_piece(const pst_linear *linear, const psti_stage *stage,
                                 const psti_gather *gather, uint32_t piece)
{
    const uint64_t tokens = tokens_of_rank(linear), row = piece * tokens;
    const unsigned char *from = gather->gathered + row * gather->from_columns * linear->size;
    unsigned char *to = gather->to + row * gather->to_columns * linear->size;
    if (gather->is_backward)
        return psti_linear_multiply_back(linear, stage, from, gather->weight, to, tokens);
    return psti_linear_multiply(linear, stage, from, gather->weight, NULL, to, tokens);
}

pst_status psti_gather_copy_own(const pst_linear *linear, const psti_stage *stage,
                                const psti_gather *gather)
{
    const uint64_t bytes = tokens_of_rank(linear) * gather->from_columns * linear->size;
    unsigned char *own = gather->gathered + linear->rank * bytes;
    if (own == gather->own)
        return PST_OK;
    return linear->device->ops->copy(linear->device, own, gather->own, bytes, stage->stream);
}

pst_status psti_gather_ring(const pst_linear *linear, psti_stage *stage, const psti_gather *gather)
{
    const uint32_t num_ranks = linear->num_ranks;
    const uint64_t count = tokens_of_rank(linear) * gather->from_columns;
    const uint64_t bytes = count * linear->size;
    uint32_t piece = linear->rank;
    PSTI_TRY(psti_gather_copy_own(linear, stage, gather));
    for (uint32_t i = 0; i < num_ranks; i++) {
        const uint32_t next = (piece + num_ranks - 1) % num_ranks;
        uint64_t number = 0;
        if (i + 1 < num_ranks)
            PSTI_TRY(psti_stage_start(stage, PST_EXCHANGE_SHIFT, gather->gathered + piece * bytes,
                                      gather->gathered + next * bytes, count, &number));
        PSTI_TRY(multiply_piece(linear, stage, gather, piece));
        PSTI_TRY(psti_stage_finish(stage, number));
        piece = next;
    }
    return PST_OK;
}

/* ---- COLUMN ---- */

static pst_status gather_and_multiply(const pst_linear *linear, psti_stage *stage,
                                      const pst_linear_operands *operands,
                                      const psti_gather *gather)
{
    if (linear->config.pieces == 0)
        return psti_gather_ring(linear, stage, gather);
    PSTI_TRY(psti_stage_exchange(stage, PST_EXCHANGE_ALL_GATHER, gather->own, gather->gathered,
                                 tokens_of_rank(linear) * linear->columns));
    return psti_linear_multiply(linear, stage, gather->gathered, operands->weight, NULL,
                                operands->output, linear->config.tokens);
}

pst_status psti_column_forward(const pst_linear *linear, psti_stage *stage,
                               const pst_linear_operands *operands)
{
    void *gathered = operands->gathered;
    if (psti_linear_gathers(linear) && !gathered)
        PSTI_TRY(
            psti_stage_lease(stage, PSTI_LENT_GATHERED, linear->bytes.forward_scratch, &gathered));
    const psti_gather gather = {.own = operands->input,
                                .gathered = gathered,
                                .from_columns = linear->columns,
                                .weight = operands->weight,
                                .to = operands->output,
                                .to_columns = linear->rows};
    if (psti_linear_gathers(linear)) {
        PSTI_TRY(gather_and_multiply(linear, stage, operands, &gather));
        return psti_stage_release(stage, PSTI_LENT_GATHERED);
    }
    if (gathered)
        PSTI_TRY(psti_gather_copy_own(linear, stage, &gather));
    return psti_linear_multiply(linear, stage, operands->input, operands->weight, NULL,
                                operands->output, linear->config.tokens);
}

/* ---- ROW ---- */

typedef struct sum_ring {
    psti_sum_ring of;
    unsigned char *base; /* leased */
    uint64_t numbers[2]; /* of the exchange that a half waits for */
} sum_ring;

/* Half of chunk number i of the ring: of the neighbour's sum and this rank's product. */
static pst_status add_half(const pst_linear *linear, psti_stage *stage,
                           const pst_linear_operands *operands, sum_ring *ring, uint32_t i,
                           int half)
{
    const uint32_t num_ranks = linear->num_ranks;
    const uint32_t chunk = (linear->rank + 2 * num_ranks - 1 - i) % num_ranks;
    const uint64_t row = chunk * tokens_of_rank(linear) + ring->of.first_row[half];
    const uint64_t num_rows = ring->of.num_rows[half];
    const unsigned char *input =
        (const unsigned char *)operands->input + row * linear->columns * linear->size;
    unsigned char *here = ring->base + ring->of.places[half][i % 2];
    unsigned char *there = ring->base + ring->of.places[half][(i + 1) % 2];
    const bool is_last = i + 1 == num_ranks;
    unsigned char *sum = is_last ? (unsigned char *)operands->output +
                                       ring->of.first_row[half] * linear->rows * linear->size
                                 : here;
    PSTI_TRY(psti_stage_finish(stage, ring->numbers[half]));
    PSTI_TRY(psti_linear_multiply(linear, stage, input, operands->weight, i > 0 ? here : NULL, sum,
                                  num_rows));
    if (is_last)
        return PST_OK;
    return psti_stage_start(stage, PST_EXCHANGE_SHIFT, sum, there, num_rows * linear->rows,
                            &ring->numbers[half]);
}

static pst_status sum_by_ring(const pst_linear *linear, psti_stage *stage,
                              const pst_linear_operands *operands, void *scratch)
{
    sum_ring ring = {.of = psti_sum_ring_of(&linear->shape), .base = scratch};
    for (uint32_t i = 0; i < linear->num_ranks; i++)
        for (int half = 0; half < 2; half++)
            if (ring.of.num_rows[half] > 0)
                PSTI_TRY(add_half(linear, stage, operands, &ring, i, half));
    return PST_OK;
}

static pst_status multiply_and_sum(const pst_linear *linear, psti_stage *stage,
                                   const pst_linear_operands *operands, void *scratch)
{
    if (linear->config.pieces == 0)
        return sum_by_ring(linear, stage, operands, scratch);
    PSTI_TRY(psti_linear_multiply(linear, stage, operands->input, operands->weight, NULL, scratch,
                                  linear->config.tokens));
    return psti_stage_exchange(stage, PST_EXCHANGE_REDUCE_SCATTER, scratch, operands->output,
                               tokens_of_rank(linear) * linear->rows);
}

pst_status psti_row_forward(const pst_linear *linear, psti_stage *stage,
                            const pst_linear_operands *operands)
{
    const uint64_t tokens = linear->config.tokens;
    void *scratch = NULL;
    if (psti_linear_gathers(linear)) {
        PSTI_TRY(psti_stage_lease(stage, PSTI_LENT_SUMS, linear->bytes.forward_scratch, &scratch));
        PSTI_TRY(multiply_and_sum(linear, stage, operands, scratch));
        return psti_stage_release(stage, PSTI_LENT_SUMS);
    }
    PSTI_TRY(psti_linear_multiply(linear, stage, operands->input, operands->weight, NULL,
                                  operands->output, tokens));
    if (linear->num_ranks == 1)
        return PST_OK;
    return psti_stage_exchange(stage, PST_EXCHANGE_ALL_REDUCE, operands->output, operands->output,
                               tokens * linear->rows);
}
