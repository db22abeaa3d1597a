/* What linear_layout.h says. docs/parallel.md has the same as tables. */
#include "host/linear/linear_layout.h"

#include "host/base/arith.h"

enum { ALIGNMENT = 256 };

const char *psti_lent_name(psti_lent what)
{
    static const char *const names[PSTI_NUM_LENT] = {
#define LENT_NAME(kind, name) name,
        PSTI_LENT_LIST(LENT_NAME)
#undef LENT_NAME
    };
    return names[what];
}

uint64_t psti_lent_sum(const psti_lent_moment *moment)
{
    uint64_t sum = 0;
    for (int i = 0; i < PSTI_NUM_LENT; i++)
        sum = psti_plus(sum, moment->bytes[i]);
    return sum;
}

uint64_t psti_lent_most(const psti_lent_moment *moments, int num_moments)
{
    uint64_t most = 0;
    for (int i = 0; i < num_moments; i++) {
        const uint64_t sum = psti_lent_sum(&moments[i]);
        most = sum > most ? sum : most;
    }
    return most;
}

void psti_lent_widen(psti_lent_moment *most, const psti_lent_moment *moment)
{
    for (int i = 0; i < PSTI_NUM_LENT; i++)
        if (moment->bytes[i] > most->bytes[i])
            most->bytes[i] = moment->bytes[i];
}

/* ---- a layer ---- */

static bool gathers(const psti_linear_shape *shape)
{
    return shape->sequence_parallel && shape->num_ranks > 1;
}

/* (T, K) of COLUMN, (T, N) of ROW: what is in parts between layers. */
static uint64_t whole_bytes(const psti_linear_shape *shape)
{
    const bool is_column = shape->kind == PST_LINEAR_COLUMN;
    return PSTI_PRODUCT(shape->element_bytes, shape->tokens,
                        is_column ? shape->in_features : shape->out_features);
}

uint64_t psti_linear_gathered_bytes(const psti_linear_shape *shape)
{
    return shape->kind == PST_LINEAR_COLUMN && shape->sequence_parallel ? whole_bytes(shape) : 0;
}

psti_sum_ring psti_sum_ring_of(const psti_linear_shape *shape)
{
    const uint64_t tokens = shape->tokens / shape->num_ranks;
    const uint64_t row_bytes = psti_times(shape->out_features, shape->element_bytes);
    psti_sum_ring ring = {.num_rows = {tokens - tokens / 2, tokens / 2}};
    ring.first_row[1] = ring.num_rows[0];
    for (int half = 0; half < 2; half++)
        for (int place = 0; place < 2; place++) {
            const uint64_t bytes = psti_times(ring.num_rows[half], row_bytes);
            ring.places[half][place] = ring.bytes;
            ring.bytes =
                psti_plus(ring.bytes, psti_times(psti_div_up(bytes, ALIGNMENT), ALIGNMENT));
        }
    return ring;
}

static psti_lent_moment workspace_of(const psti_linear_shape *shape)
{
    return (psti_lent_moment){{[PSTI_LENT_WORKSPACE] = shape->workspace_bytes}};
}

psti_lent_moment psti_linear_forward_lends(const psti_linear_shape *shape, bool kept)
{
    psti_lent_moment moment = workspace_of(shape);
    if (!gathers(shape))
        return moment;
    if (shape->kind == PST_LINEAR_COLUMN)
        moment.bytes[PSTI_LENT_GATHERED] = kept ? 0 : whole_bytes(shape);
    else
        moment.bytes[PSTI_LENT_SUMS] =
            shape->pieces == 0 ? psti_sum_ring_of(shape).bytes : whole_bytes(shape);
    return moment;
}

psti_lent_moment psti_linear_backward_lends(const psti_linear_shape *shape, bool kept)
{
    psti_lent_moment moment = workspace_of(shape);
    if (!gathers(shape))
        return moment;
    const bool is_column = shape->kind == PST_LINEAR_COLUMN;
    moment.bytes[PSTI_LENT_GATHERED] = is_column && kept ? 0 : whole_bytes(shape);
    moment.bytes[PSTI_LENT_SUMS] = is_column ? whole_bytes(shape) : 0;
    return moment;
}

/* ---- a block ---- */

psti_mlp_lends psti_mlp_lends_of(const psti_linear_shape *up, const psti_linear_shape *down,
                                 uint64_t hidden_bytes, bool kept, bool pages)
{
    const uint64_t activation = hidden_bytes / 2, hidden = pages ? hidden_bytes : 0;
    psti_mlp_lends lends = {
        .forward = {psti_linear_forward_lends(up, kept), workspace_of(up),
                    psti_linear_forward_lends(down, kept)},
        .backward = {psti_linear_backward_lends(down, kept), psti_linear_backward_lends(up, kept)}};
    lends.forward[0].bytes[PSTI_LENT_HIDDEN] = lends.forward[1].bytes[PSTI_LENT_HIDDEN] = hidden;
    lends.forward[1].bytes[PSTI_LENT_ACTIVATION] = activation;
    lends.forward[2].bytes[PSTI_LENT_ACTIVATION] = activation;
    lends.backward[0].bytes[PSTI_LENT_ACTIVATION] = activation;
    lends.backward[0].bytes[PSTI_LENT_ACTIVATION_GRADIENT] = activation;
    lends.backward[0].bytes[PSTI_LENT_HIDDEN] = hidden_bytes;
    lends.backward[1].bytes[PSTI_LENT_HIDDEN] = hidden_bytes;
    return lends;
}
