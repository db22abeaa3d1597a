/* Three MoE layers whose gated activations page as they compute: router, exchange, products, GLU, and back.
 * All layers share one set of static buffers; what the backward needs of a layer is in its ticket. The
 * gradients are those of layers that keep everything, to the bit. Products are plain loops, so this runs on
 * the host device. */
#include <pagestash/pagestash.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { LAYERS = 3, TOKENS = 64, HIDDEN = 16, EXPERTS = 4, TOP_K = 2, F = 24 };
enum { CAPACITY = TOKENS, ROWS = EXPERTS * CAPACITY }; /* any expert may get every token */

/* Weights, and their gradients, which have the same form. */
typedef struct weights {
    float router[HIDDEN][EXPERTS];
    float first[EXPERTS][HIDDEN][2 * F];
    float second[EXPERTS][F][HIDDEN];
} weights;

/* Static buffers: a slab of rows for each expert. */
typedef struct buffers {
    float rows[ROWS][HIDDEN];     /* what the experts read */
    float gates_ups[ROWS][2 * F]; /* of the first product: the GLU's input */
    float hidden[ROWS][F];        /* of the GLU */
    int64_t counts[EXPERTS];      /* rows of each expert */
} buffers;

/* What a layer keeps in any case: small, and of no more tokens than there are. */
typedef struct routing {
    float input[TOKENS][HIDDEN];
    float probs[TOKENS][EXPERTS]; /* softmax */
    float probability[ROWS];      /* of the rows: a launch that restores it could not read it */
    int row_of[TOKENS][TOP_K];
    int expert_of[TOKENS][TOP_K];
} routing;

typedef struct model {
    pst_device *device;
    pst_pool *pool;
    pst_group *group; /* rows, gates_ups */
    weights weights[LAYERS], gradients[LAYERS];
    routing routing[LAYERS];
    buffers *buffers[LAYERS]; /* all the same where pages are used */
    pst_ticket tickets[LAYERS];
    float rows_gradient[ROWS][HIDDEN], hidden_gradient[ROWS][F];
    float gates_ups_gradient[ROWS][2 * F], probability_gradient[ROWS];
} model;

static float random_weight(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (1 << 24) - 0.5f;
}

/* ---- forward ---- */

/* Softmax of the scores, and of each token the rows of its best experts: the exchange. */
static void route(const weights *w, routing *r, buffers *b)
{
    memset(b->counts, 0, sizeof(b->counts));
    for (int t = 0; t < TOKENS; t++) {
        float sum = 0;
        for (int e = 0; e < EXPERTS; e++) {
            float score = 0;
            for (int h = 0; h < HIDDEN; h++)
                score += r->input[t][h] * w->router[h][e];
            r->probs[t][e] = expf(score);
            sum += r->probs[t][e];
        }
        for (int e = 0; e < EXPERTS; e++)
            r->probs[t][e] /= sum;
        for (int k = 0; k < TOP_K; k++) {
            int best = -1;
            for (int e = 0; e < EXPERTS; e++)
                if ((k == 0 || e != r->expert_of[t][0]) &&
                    (best < 0 || r->probs[t][e] > r->probs[t][best]))
                    best = e;
            const int row = best * CAPACITY + (int)b->counts[best]++;
            r->expert_of[t][k] = best;
            r->row_of[t][k] = row;
            r->probability[row] = r->probs[t][best];
            memcpy(b->rows[row], r->input[t], sizeof(b->rows[row]));
        }
    }
}

/* Calls body(row, expert) for every live row. */
#define EACH_ROW(counts, row, expert)                \
    for (int expert = 0; expert < EXPERTS; expert++) \
        for (int row = expert * CAPACITY; row < expert * CAPACITY + (counts)[expert]; row++)

static void first_product(const weights *w, buffers *b)
{
    EACH_ROW(b->counts, row, e)
    for (int f = 0; f < 2 * F; f++) {
        b->gates_ups[row][f] = 0;
        for (int h = 0; h < HIDDEN; h++)
            b->gates_ups[row][f] += b->rows[row][h] * w->first[e][h][f];
    }
}

static pst_buffers layer_at(void *const *bases, const void *const *counts)
{
    pst_buffers at = PST_BUFFERS_INIT;
    at.bases = bases;
    at.counts = counts;
    return at;
}

/* hidden = SwiGLU(gates_ups) * probability; with a ticket the group's tensors go into pages. */
static void glu_forward(model *m, int layer)
{
    buffers *b = m->buffers[layer];
    void *const bases[] = {b->rows, b->gates_ups};
    const void *const counts[] = {b->counts};
    const pst_buffers at = layer_at(bases, counts);
    const pst_glu glu = {.struct_size = sizeof(glu), .kind = PST_GLU_SWIGLU, .dtype = PST_GLU_FP32};
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    operands.output.base = b->hidden;
    operands.probability.base = m->routing[layer].probability;
    CHECK(
        pst_glu_forward(m->device, &glu, m->tickets[layer], m->group, &at, &operands, NULL, NULL));
}

/* The second product, back to the tokens, and onto the input. */
static void second_product(const weights *w, const routing *r, const buffers *b,
                           float out[TOKENS][HIDDEN])
{
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HIDDEN; h++) {
            out[t][h] = r->input[t][h];
            for (int k = 0; k < TOP_K; k++)
                for (int f = 0; f < F; f++)
                    out[t][h] +=
                        b->hidden[r->row_of[t][k]][f] * w->second[r->expert_of[t][k]][f][h];
        }
}

static void forward(model *m, float x[TOKENS][HIDDEN])
{
    for (int layer = 0; layer < LAYERS; layer++) {
        memcpy(m->routing[layer].input, x, sizeof(m->routing[layer].input));
        route(&m->weights[layer], &m->routing[layer], m->buffers[layer]);
        first_product(&m->weights[layer], m->buffers[layer]);
        glu_forward(m, layer);
        second_product(&m->weights[layer], &m->routing[layer], m->buffers[layer], x);
    }
}

/* ---- backward ---- */

static void second_product_back(model *m, int layer, const int64_t counts[EXPERTS],
                                float gradient[TOKENS][HIDDEN])
{
    const routing *r = &m->routing[layer];
    for (int t = 0; t < TOKENS; t++)
        for (int k = 0; k < TOP_K; k++)
            memcpy(m->rows_gradient[r->row_of[t][k]], gradient[t], sizeof(gradient[t]));
    EACH_ROW(counts, row, e)
    for (int f = 0; f < F; f++) {
        m->hidden_gradient[row][f] = 0;
        for (int h = 0; h < HIDDEN; h++)
            m->hidden_gradient[row][f] +=
                m->rows_gradient[row][h] * m->weights[layer].second[e][f][h];
    }
}

/* gates_ups_gradient and probability_gradient; hidden once more, and rows, which with a ticket come out of
 * its pages. */
static void glu_backward(model *m, int layer)
{
    buffers *b = m->buffers[layer];
    const bool has_ticket = m->tickets[layer].id != 0;
    void *const bases[] = {b->rows, has_ticket ? NULL : b->gates_ups};
    const void *const counts[] = {b->counts};
    const pst_buffers at = layer_at(bases, counts);
    const pst_glu glu = {.struct_size = sizeof(glu), .kind = PST_GLU_SWIGLU, .dtype = PST_GLU_FP32};
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    operands.output.base = b->hidden;
    operands.probability.base = m->routing[layer].probability;
    operands.gradient.base = m->hidden_gradient;
    operands.input_gradient.base = m->gates_ups_gradient;
    operands.probability_gradient.base = m->probability_gradient;
    CHECK(
        pst_glu_backward(m->device, &glu, m->tickets[layer], m->group, &at, &operands, NULL, NULL));
}

/* Of both products' weights, and what reaches the rows. */
static void gradients_of_rows(model *m, int layer, const int64_t counts[EXPERTS])
{
    const buffers *b = m->buffers[layer];
    const weights *w = &m->weights[layer];
    weights *to = &m->gradients[layer];
    EACH_ROW(counts, row, e)
    {
        for (int f = 0; f < F; f++)
            for (int h = 0; h < HIDDEN; h++)
                to->second[e][f][h] += b->hidden[row][f] * m->rows_gradient[row][h];
        for (int h = 0; h < HIDDEN; h++) {
            m->rows_gradient[row][h] = 0;
            for (int f = 0; f < 2 * F; f++) {
                const float g = m->gates_ups_gradient[row][f];
                to->first[e][h][f] += b->rows[row][h] * g;
                m->rows_gradient[row][h] += g * w->first[e][h][f];
            }
        }
    }
}

/* Back to the tokens, and through the router. */
static void gradients_of_tokens(model *m, int layer, float gradient[TOKENS][HIDDEN])
{
    const routing *r = &m->routing[layer];
    for (int t = 0; t < TOKENS; t++) {
        float probs[EXPERTS] = {0}, sum = 0;
        for (int k = 0; k < TOP_K; k++) {
            const int row = r->row_of[t][k];
            probs[r->expert_of[t][k]] = m->probability_gradient[row];
            for (int h = 0; h < HIDDEN; h++)
                gradient[t][h] += m->rows_gradient[row][h];
        }
        for (int e = 0; e < EXPERTS; e++)
            sum += probs[e] * r->probs[t][e];
        for (int e = 0; e < EXPERTS; e++) {
            const float score = r->probs[t][e] * (probs[e] - sum);
            for (int h = 0; h < HIDDEN; h++) {
                m->gradients[layer].router[h][e] += r->input[t][h] * score;
                gradient[t][h] += m->weights[layer].router[h][e] * score;
            }
        }
    }
}

static void backward(model *m, float gradient[TOKENS][HIDDEN])
{
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        int64_t counts[EXPERTS] = {0}; /* of this layer; the shared buffers hold another one's */
        for (int t = 0; t < TOKENS; t++)
            for (int k = 0; k < TOP_K; k++)
                counts[m->routing[layer].expert_of[t][k]]++;
        second_product_back(m, layer, counts, gradient);
        glu_backward(m, layer);
        gradients_of_rows(m, layer, counts);
        gradients_of_tokens(m, layer, gradient);
    }
}

/* ---- the two ways ---- */

static void make_group(pst_group **group_out)
{
    const pst_row_space space = {.kind = PST_ROWS_SEGMENTS,
                                 .count_type = PST_COUNT_INT64,
                                 .capacity = CAPACITY,
                                 .num_segments = EXPERTS};
    const pst_tensor tensors[] = {
        {.row_bytes = sizeof(float[HIDDEN])},
        {.row_bytes = sizeof(float[2 * F]), .written_by = PST_WRITTEN_BY_GLU},
    };
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = tensors;
    config.num_tensors = 2;
    CHECK(pst_group_create(&config, group_out));
}

static void make_pages(model *m)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = PST_PAGE_BYTES_MIN;
    config.num_pages = 18;
    config.max_tickets = LAYERS;
    CHECK(pst_pool_create(m->device, &config, &m->pool));
    for (int layer = 0; layer < LAYERS; layer++)
        CHECK(pst_ticket_create(m->pool, m->group, &m->tickets[layer]));
}

static void train(model *m, bool with_pages)
{
    static float x[TOKENS][HIDDEN], gradient[TOKENS][HIDDEN];
    static buffers all[LAYERS];
    uint32_t state = 7;
    memset(m, 0, sizeof(*m));
    CHECK(pst_device_open("host", 0, &m->device));
    make_group(&m->group);
    if (with_pages)
        make_pages(m);
    for (int layer = 0; layer < LAYERS; layer++) {
        float *w = (float *)&m->weights[layer];
        for (size_t i = 0; i < sizeof(weights) / sizeof(float); i++)
            w[i] = random_weight(&state);
        m->buffers[layer] = &all[with_pages ? 0 : layer];
    }
    for (int i = 0; i < TOKENS * HIDDEN; i++) {
        x[i / HIDDEN][i % HIDDEN] = random_weight(&state);
        gradient[i / HIDDEN][i % HIDDEN] = random_weight(&state);
    }
    memset(all, 0xff, sizeof(all)); /* NaN: nothing may be read that nobody wrote */
    forward(m, x);
    backward(m, gradient);
}

static int finish(model *m)
{
    pst_pool_status status;
    if (m->pool) {
        CHECK(pst_pool_step(m->pool, NULL));
        CHECK(pst_device_synchronize(m->device));
        CHECK(pst_pool_poll(m->pool, &status));
        printf("pages in use at most: %llu of 18, step valid: %d\n",
               (unsigned long long)status.high_water[0], status.step_valid);
        for (int layer = 0; layer < LAYERS; layer++)
            CHECK(pst_ticket_destroy(m->tickets[layer]));
        CHECK(pst_pool_destroy(m->pool));
        if (!status.step_valid || status.in_use[0])
            return 1;
    }
    CHECK(pst_group_destroy(m->group));
    CHECK(pst_device_close(m->device));
    return 0;
}

int main(void)
{
    static model kept, paged;
    train(&kept, false);
    train(&paged, true);
    const float *wanted = (const float *)kept.gradients, *found = (const float *)paged.gradients;
    size_t num_wrong = 0;
    float size = 0;
    for (size_t i = 0; i < LAYERS * sizeof(weights) / sizeof(float); i++) {
        num_wrong += wanted[i] != found[i];
        size += fabsf(wanted[i]);
    }
    printf(
        "%d layers, %d tokens: %zu gradients are other ones with pages; sum of magnitudes %.3f\n",
        LAYERS, TOKENS, num_wrong, (double)size);
    return finish(&kept) || finish(&paged) || num_wrong > 0 || !(size > 0);
}
