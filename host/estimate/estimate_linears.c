/* Layers as tensor-parallel linears, and blocks of experts: scratch, what is saved, pages. */
#include <inttypes.h>
#include <string.h>

#include "host/base/structs.h"
#include "host/estimate/estimate.h"
#include "host/linear/linear_layout.h"
#include "host/stash/pool_layout.h"

#define MAX_LIVE ((uint64_t)1 << 20) /* tickets of a pool */

typedef struct linears {
    const pst_estimate_config *config;
    psti_split split;
    uint64_t tokens;
    uint32_t pieces;
    bool kept, pages;
    uint64_t hidden_bytes; /* of a dense block */
    /* of a block of experts, each with as many rows as it has room for; 0: there is none */
    uint64_t num_experts, expert_hidden_bytes;
    psti_lent_moment most;
    pst_estimate_linears out;
} linears;

static psti_linear_shape shape_of(const linears *self, pst_linear_kind kind, uint64_t in_features,
                                  uint64_t out_features)
{
    return (psti_linear_shape){.kind = kind,
                               .pieces = self->pieces,
                               .sequence_parallel = self->split.sequence,
                               .num_ranks = self->split.tensor,
                               .tokens = self->tokens,
                               .in_features = in_features,
                               .out_features = out_features,
                               .element_bytes = psti_element_bytes(self->config)};
}

/* What a layer reads again in its backward: of ROW its share of the features of every token. */
static uint64_t saved_bytes(const linears *self, const psti_linear_shape *shape)
{
    const uint64_t whole = PSTI_PRODUCT(shape->element_bytes, shape->tokens, shape->in_features);
    const bool is_row = shape->kind == PST_LINEAR_ROW;
    const bool in_parts = is_row || (shape->sequence_parallel && !self->kept);
    return in_parts ? psti_div_down(whole, shape->num_ranks) : whole;
}

static pst_estimate_linear *put(linears *self, const char *name, const psti_linear_shape *shape,
                                const psti_lent_moment *forward, const psti_lent_moment *backward,
                                int num_moments)
{
    pst_estimate_linear *of = &self->out.linears[self->out.num_linears++];
    *of = (pst_estimate_linear){.name = name,
                                .forward_scratch = psti_lent_most(forward, num_moments),
                                .backward_scratch = psti_lent_most(backward, num_moments),
                                .saved_bytes = saved_bytes(self, shape)};
    for (int i = 0; i < num_moments; i++) {
        psti_lent_widen(&self->most, &forward[i]);
        psti_lent_widen(&self->most, &backward[i]);
    }
    const uint64_t most =
        of->forward_scratch > of->backward_scratch ? of->forward_scratch : of->backward_scratch;
    if (most > self->out.scratch_bytes)
        self->out.scratch_bytes = most;
    return of;
}

static void put_linear(linears *self, const char *name, pst_linear_kind kind, uint64_t in_features,
                       uint64_t out_features)
{
    const psti_linear_shape shape = shape_of(self, kind, in_features, out_features);
    const psti_lent_moment forward = psti_linear_forward_lends(&shape, self->kept);
    const psti_lent_moment backward = psti_linear_backward_lends(&shape, self->kept);
    put(self, name, &shape, &forward, &backward, 1);
}

static void put_mlp(linears *self)
{
    const uint64_t hidden = self->config->hidden_size, ffn = self->config->ffn_size;
    const psti_linear_shape up = shape_of(self, PST_LINEAR_COLUMN, hidden, psti_times(2, ffn));
    const psti_linear_shape down = shape_of(self, PST_LINEAR_ROW, ffn, hidden);
    self->hidden_bytes = PSTI_PRODUCT(2, up.element_bytes, self->tokens, ffn / self->split.tensor);
    const psti_mlp_lends lends =
        psti_mlp_lends_of(&up, &down, self->hidden_bytes, self->kept, self->pages);
    put(self, "mlp", &up, lends.forward, lends.backward, PSTI_MLP_MOMENTS)->hidden_bytes =
        self->hidden_bytes;
}

/* Rows of an expert: with PST_MOE_WORST any may get every token, else they share those of the GPU. A block
 * at work has buffers of the capacity, also where its rows go to pages. */
static uint64_t expert_capacity(const linears *self)
{
    const pst_estimate_config *config = self->config;
    const psti_split *split = &self->split;
    const pst_moe_rows kind =
        config->moe_rows == PST_MOE_PAGED ? PST_MOE_CAPACITY : config->moe_rows;
    if (kind == PST_MOE_WORST)
        return psti_times(psti_local_tokens(config, split), split->experts);
    return psti_div_up(psti_moe_rows(config, split, kind), self->num_experts);
}

/* pst_mlp's: gated, and of one rank, which has all rows of its experts. */
static void put_experts(linears *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t size = psti_routed_size(config), ffn = config->expert_ffn_size;
    if (config->num_experts == 0 || !config->is_gated || self->split.expert_tensor > 1)
        return;
    self->num_experts = config->num_experts / self->split.experts;
    const psti_linear_shape up = {.kind = PST_LINEAR_COLUMN,
                                  .num_ranks = 1,
                                  .tokens = psti_times(self->num_experts, expert_capacity(self)),
                                  .in_features = size,
                                  .out_features = psti_times(2, ffn),
                                  .element_bytes = psti_element_bytes(config)};
    psti_linear_shape down = up;
    down.kind = PST_LINEAR_ROW;
    down.in_features = ffn;
    down.out_features = size;
    self->expert_hidden_bytes = PSTI_PRODUCT(up.element_bytes, up.tokens, up.out_features);
    const psti_mlp_lends lends =
        psti_mlp_lends_of(&up, &down, self->expert_hidden_bytes, self->kept, self->pages);
    put(self, "experts", &up, lends.forward, lends.backward, PSTI_MLP_MOMENTS)->hidden_bytes =
        self->expert_hidden_bytes;
}

static void put_all(linears *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t hidden = config->hidden_size,
                   q = psti_times(config->num_heads, config->head_size);
    const uint64_t kv = psti_times(config->num_kv_heads, config->head_size);
    put_linear(self, "attention.qkv", PST_LINEAR_COLUMN, hidden, PSTI_SUM(q, kv, kv));
    put_linear(self, "attention.proj", PST_LINEAR_ROW, q, hidden);
    if (config->ffn_size != 0 && config->is_gated)
        put_mlp(self);
    if (config->ffn_size != 0 && !config->is_gated) {
        put_linear(self, "mlp.fc1", PST_LINEAR_COLUMN, hidden, config->ffn_size);
        put_linear(self, "mlp.fc2", PST_LINEAR_ROW, config->ffn_size, hidden);
    }
    put_experts(self);
    put_linear(self, "output", PST_LINEAR_COLUMN, hidden, config->padded_vocab_size);
    for (int i = 0; i < PSTI_NUM_LENT; i++) {
        const pst_estimate_buffer buffer = {psti_lent_name((psti_lent)i), self->most.bytes[i]};
        if (buffer.bytes > 0)
            self->out.buffers[self->out.num_buffers++] = buffer;
        self->out.buffers_bytes = psti_plus(self->out.buffers_bytes, buffer.bytes);
    }
}

/* Of all figures, each of which is then right. */
static uint64_t total_bytes(const pst_estimate_linears *of)
{
    uint64_t sum = of->buffers_bytes;
    for (uint32_t i = 0; i < of->num_linears; i++)
        sum = PSTI_SUM(sum, of->linears[i].saved_bytes, of->linears[i].hidden_bytes);
    return sum;
}

/* A hidden tensor is alone in its ticket: the formula of group.h for one tensor. */
static uint64_t pages_of(uint64_t num_segments, uint64_t hidden_bytes, uint32_t page_shift)
{
    const uint64_t vectors = psti_div_up(hidden_bytes / num_segments, PSTI_VECTOR_BYTES);
    const uint64_t bytes = PSTI_PRODUCT(num_segments, vectors, PSTI_VECTOR_BYTES);
    const uint64_t tiles = psti_div_up(bytes, PSTI_TILE_BYTES);
    return psti_div_up(psti_times(tiles, PSTI_TILE_BYTES), (uint64_t)1 << page_shift);
}

static pst_status put_pool(linears *self, uint64_t live_layers)
{
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    pst_estimate_linears *out = &self->out;
    uint32_t page_shift = 0;
    PSTI_TRY(psti_page_shift(self->config->page_bytes, &page_shift));
    if (self->pages && self->expert_hidden_bytes > 0)
        out->expert_pages = pages_of(self->num_experts, self->expert_hidden_bytes, page_shift);
    if (!self->pages || self->hidden_bytes == 0)
        return PST_OK;
    out->layer_pages = pages_of(1, self->hidden_bytes, page_shift);
    out->pool_pages = psti_times(live_layers, out->layer_pages);
    PSTI_CHECK(out->pool_pages <= INT32_MAX, PST_E_INVALID,
               "page_bytes %" PRIu64 ": %" PRIu64 " live layers need %" PRIu64
               " such pages, a pool has at most %d",
               (uint64_t)1 << page_shift, live_layers, out->pool_pages, INT32_MAX);
    if (live_layers == 0)
        return PST_OK;
    pool.page_bytes = self->config->page_bytes;
    pool.num_pages = out->pool_pages;
    pool.max_tickets = (uint32_t)live_layers;
    return pst_pool_bytes(&pool, &out->pool_bytes);
}

static pst_status check(const pst_estimate_config *config, uint32_t pieces, uint64_t live_layers)
{
    PSTI_CHECK(pieces <= 1, PST_E_INVALID,
               "pieces %u: allowed are 0, one per GPU of a tensor parallel group, and 1, whole",
               pieces);
    PSTI_CHECK(live_layers <= MAX_LIVE, PST_E_INVALID, "live_layers %" PRIu64 ": at most %" PRIu64,
               live_layers, MAX_LIVE);
    PSTI_CHECK(config->kv_rank == 0, PST_E_UNSUPPORTED,
               "kv_rank %" PRIu64 ": latent attention gathers latents, which linears do not",
               config->kv_rank);
    return PST_OK;
}

pst_status pst_estimate_get_linears_sized(const pst_estimate_config *given, uint32_t pieces,
                                          bool pages_hidden, uint64_t live_layers,
                                          pst_estimate_linears *linears_out, size_t linears_bytes)
{
    pst_estimate_config config;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(linears_out, PST_E_INVALID, "linears_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_estimate_linears, linears_bytes));
    PSTI_TRY(check(&config, pieces, live_layers));
    linears self = {.config = &config, .split = psti_split_of(&config), .pieces = pieces};
    self.tokens = psti_tokens(&config, &self.split);
    self.kept = (config.recompute & PST_RECOMPUTE_GATHER) == 0;
    self.pages = pages_hidden;
    put_all(&self);
    PSTI_CHECK(total_bytes(&self.out) != PSTI_TOO_MUCH, PST_E_INVALID,
               "config: bytes of linears exceed 64 bits");
    PSTI_TRY(put_pool(&self, live_layers));
    memcpy(linears_out, &self.out, linears_bytes);
    return PST_OK;
}
