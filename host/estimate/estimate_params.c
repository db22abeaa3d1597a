/* Parameters, and the bytes of weights, gradients and optimizer states. */
#include <string.h>

#include "host/base/structs.h"
#include "host/estimate/estimate.h"

/* Parameters by what they are divided among. */
typedef struct shape {
    uint64_t sharded;    /* tensor parallel GPUs */
    uint64_t replicated; /* no one */
    uint64_t experts;    /* expert parallel and expert tensor parallel GPUs */
} shape;

static uint64_t whole(shape of)
{
    return PSTI_SUM(of.sharded, of.replicated, of.experts);
}

static shape add(shape a, shape b)
{
    return (shape){.sharded = psti_plus(a.sharded, b.sharded),
                   .replicated = psti_plus(a.replicated, b.replicated),
                   .experts = psti_plus(a.experts, b.experts)};
}

static shape repeat(uint64_t times, shape of)
{
    return (shape){.sharded = psti_times(times, of.sharded),
                   .replicated = psti_times(times, of.replicated),
                   .experts = psti_times(times, of.experts)};
}

static shape grouped_attention(const pst_estimate_config *config)
{
    const uint64_t h = config->hidden_size;
    const uint64_t q = psti_times(config->num_heads, config->head_size);
    const uint64_t kv = psti_times(config->num_kv_heads, config->head_size);
    const uint64_t qkv = PSTI_SUM(q, kv, kv);
    shape sum = {.sharded = psti_plus(psti_times(h, qkv), psti_times(q, h))};
    if (config->has_linear_bias || config->has_qkv_bias)
        sum.sharded = psti_plus(sum.sharded, qkv);
    if (config->has_linear_bias)
        sum.replicated = h;
    const uint64_t spans[] = {
        [PST_QK_NORM_NONE] = 0,
        [PST_QK_NORM_HEAD] = psti_times(2, config->head_size),
        [PST_QK_NORM_PROJECTION] = psti_plus(q, kv),
    };
    sum.replicated =
        psti_plus(sum.replicated, psti_times(psti_norm_words(config), spans[config->qk_norm]));
    return sum;
}

/* Of its matrices only the last has a bias. */
static shape latent_attention(const pst_estimate_config *config)
{
    const uint64_t h = config->hidden_size;
    const uint64_t q_rank = config->q_rank, kv_rank = config->kv_rank;
    const uint64_t norm = psti_norm_words(config);
    const uint64_t qk = psti_plus(config->qk_size, config->qk_position_size);
    return (shape){
        .replicated = PSTI_SUM(psti_times(h, q_rank), psti_times(norm, q_rank),
                               psti_times(h, psti_plus(kv_rank, config->qk_position_size)),
                               psti_times(norm, kv_rank), config->has_linear_bias ? h : 0),
        .sharded = PSTI_SUM(
            PSTI_PRODUCT(q_rank ? q_rank : h, config->num_heads, qk),
            PSTI_PRODUCT(kv_rank, config->num_heads, psti_plus(config->qk_size, config->v_size)),
            PSTI_PRODUCT(config->num_heads, config->v_size, h)),
    };
}

/* Attention and the layer's two norms. */
static shape attention(const pst_estimate_config *config)
{
    shape sum = config->kv_rank ? latent_attention(config) : grouped_attention(config);
    sum.replicated =
        psti_plus(sum.replicated, PSTI_PRODUCT(2, psti_norm_words(config), config->hidden_size));
    return sum;
}

/* Matrices of a feed-forward block: one or two in, one out. */
static uint64_t matrices(const pst_estimate_config *config)
{
    return config->is_gated ? 3 : 2;
}

static shape dense_layer(const pst_estimate_config *config)
{
    const uint64_t h = config->hidden_size, f = config->ffn_size;
    shape mlp = {.sharded = PSTI_PRODUCT(matrices(config), h, f)};
    if (config->has_linear_bias) {
        mlp.sharded = psti_plus(mlp.sharded, psti_times(matrices(config) - 1, f));
        mlp.replicated = h;
    }
    return add(attention(config), mlp);
}

/* Of so many routed experts; their biases are whole on each GPU that has them. */
static uint64_t expert_words(const pst_estimate_config *config, uint64_t num_experts)
{
    const uint64_t size = psti_routed_size(config), f = config->expert_ffn_size;
    const uint64_t biases = psti_plus(psti_times(matrices(config) - 1, f), size);
    const uint64_t weights = PSTI_PRODUCT(matrices(config), size, f);
    return psti_times(num_experts, psti_plus(weights, config->has_linear_bias ? biases : 0));
}

/* The router, the shared experts' gate, the projections to the latent size and back. */
static uint64_t around_experts(const pst_estimate_config *config)
{
    const uint64_t h = config->hidden_size, latent = config->latent_size;
    const uint64_t biases = psti_plus(config->num_experts, latent ? psti_plus(latent, h) : 0);
    return PSTI_SUM(psti_times(h, config->num_experts), config->has_shared_gate ? h : 0,
                    PSTI_PRODUCT(2, h, latent), config->has_linear_bias ? biases : 0);
}

/* With so many of the routed experts. */
static shape moe_layer(const pst_estimate_config *config, uint64_t num_experts)
{
    const shape mlp = {
        .sharded = PSTI_PRODUCT(matrices(config), config->hidden_size, config->shared_ffn_size),
        .replicated = around_experts(config),
        .experts = expert_words(config, num_experts),
    };
    return add(attention(config), mlp);
}

static uint64_t count_moe_layers(const pst_estimate_config *config)
{
    uint64_t num = 0;
    for (uint64_t i = 0; i < config->num_layers; i++)
        num += psti_estimate_has_moe(config, i);
    return num;
}

/* What stands around the layers, with a vocabulary of so many words. */
static uint64_t around(const pst_estimate_config *config, uint64_t vocab)
{
    const uint64_t h = config->hidden_size;
    return PSTI_SUM(PSTI_PRODUCT(config->is_tied ? 1 : 2, vocab, h),
                    psti_times(config->max_positions, h), psti_times(psti_norm_words(config), h));
}

/* A depth of multi-token prediction without its layer: three norms, and the projection of the
 * embedding and the hidden state. */
static shape mtp_depth(const pst_estimate_config *config)
{
    const uint64_t h = config->hidden_size;
    return (shape){.sharded = PSTI_PRODUCT(2, h, h),
                   .replicated = PSTI_PRODUCT(3, psti_norm_words(config), h)};
}

static pst_status check_size(uint64_t total, const char *what)
{
    PSTI_CHECK(total != PSTI_TOO_MUCH, PST_E_INVALID, "config: %s exceed 64 bits", what);
    return PST_OK;
}

pst_status pst_estimate_get_params_sized(const pst_estimate_config *given,
                                         pst_estimate_params *params_out, size_t params_bytes)
{
    pst_estimate_config config;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(params_out, PST_E_INVALID, "params_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_estimate_params, params_bytes));
    const uint64_t num_moe = count_moe_layers(&config);
    const shape dense = dense_layer(&config);
    const shape moe = moe_layer(&config, config.num_experts);
    const shape met = moe_layer(&config, config.experts_per_token);
    const uint64_t dense_part = psti_times(config.num_layers - num_moe, whole(dense));
    const uint64_t layers = psti_plus(dense_part, psti_times(num_moe, whole(moe)));
    const uint64_t rest = around(&config, config.vocab_size);
    const uint64_t embedding = psti_times(config.vocab_size, config.hidden_size);
    const shape last_layer = psti_ends_with_moe(&config) ? moe : dense;
    const pst_estimate_params params = {
        .total = psti_plus(layers, rest),
        .padded = psti_plus(layers, around(&config, config.padded_vocab_size)),
        .active = PSTI_SUM(dense_part, psti_times(num_moe, whole(met)), rest),
        .experts = psti_times(num_moe, moe.experts),
        .router_bias = config.has_router_bias ? psti_times(num_moe, config.num_experts) : 0,
        .dense_layer = num_moe < config.num_layers ? whole(dense) : 0,
        .moe_layer = num_moe ? whole(moe) : 0,
        .embedding = embedding,
        .output = config.is_tied ? 0 : embedding,
        .mtp = whole(add(mtp_depth(&config), last_layer)),
        .padded_vocab = config.padded_vocab_size,
    };
    /* padded, not below total, holds every other one but these two */
    PSTI_TRY(check_size(PSTI_SUM(params.padded, params.mtp, params.router_bias), "parameters"));
    memcpy(params_out, &params, params_bytes);
    return PST_OK;
}

/* ---- states ---- */

/* All of a stage, undivided. Multi-token prediction embeds tokens on the last stage too, with a
 * copy of the embedding that is the output matrix where these are tied. */
static shape stage_shape(const pst_estimate_config *config, uint64_t stage,
                         pst_estimate_states *states)
{
    const uint64_t h = config->hidden_size;
    const uint64_t matrix = psti_times(config->padded_vocab_size, h);
    const uint64_t last = config->pipeline_parallel - 1;
    shape sum = {.sharded = 0};
    for (uint64_t chunk = 0; chunk < config->virtual_stages; chunk++) {
        const psti_chunk of = psti_chunk_of(config, stage, chunk);
        states->num_layers += of.num_layers + of.num_mtp;
        states->num_moe_layers += of.num_moe + of.num_mtp_moe;
    }
    const uint64_t num_dense = states->num_layers - states->num_moe_layers;
    sum = add(sum, repeat(num_dense, dense_layer(config)));
    sum = add(sum, repeat(states->num_moe_layers, moe_layer(config, config->num_experts)));
    sum = add(sum, repeat(psti_num_mtp(config, stage), mtp_depth(config)));
    const bool embeds = stage == 0 || psti_num_mtp(config, stage) != 0;
    if (embeds)
        sum = add(sum,
                  (shape){.sharded = matrix, .replicated = psti_times(config->max_positions, h)});
    if (stage == last)
        sum = add(sum, (shape){.sharded = config->is_tied && embeds ? 0 : matrix,
                               .replicated = psti_times(psti_norm_words(config), h)});
    return sum;
}

/* owned: the parameters whose optimizer states the GPU has. */
static void add_bytes(const pst_estimate_config *config, uint64_t owned,
                      pst_estimate_states *states)
{
    const uint64_t optimizer = psti_times(config->optimizer_width, owned);
    states->weight_bytes = psti_times(psti_element_bytes(config), states->params);
    states->gradient_bytes = psti_times(config->gradient_width, states->params);
    states->optimizer_bytes =
        psti_fraction(optimizer, config->offload_den - config->offload_num, config->offload_den);
    states->host_bytes = optimizer - states->optimizer_bytes;
    states->bytes = PSTI_SUM(states->weight_bytes, states->gradient_bytes, states->optimizer_bytes);
}

pst_status pst_estimate_get_states(const pst_estimate_config *given, uint64_t stage,
                                   pst_estimate_states *states_out)
{
    pst_estimate_config config;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(states_out, PST_E_INVALID, "states_out is NULL");
    PSTI_TRY(psti_estimate_check_stage(&config, stage));
    const bool shards = config.distributed_optimizer;
    const uint64_t dense_group = shards ? psti_estimate_dense_group(&config) : 1;
    const uint64_t expert_group =
        shards && config.num_experts ? psti_estimate_expert_group(&config) : 1;
    pst_estimate_states states = {.num_layers = 0};
    const shape all = stage_shape(&config, stage, &states);
    const uint64_t dense =
        psti_plus(psti_over(all.sharded, config.tensor_parallel), all.replicated);
    states.expert_params =
        psti_over(all.experts, config.expert_parallel * config.expert_tensor_parallel);
    states.params = psti_plus(dense, states.expert_params);
    const uint64_t owned =
        psti_plus(psti_share(dense, dense_group), psti_share(states.expert_params, expert_group));
    add_bytes(&config, owned, &states);
    PSTI_TRY(check_size(psti_plus(states.bytes, states.host_bytes), "states"));
    *states_out = states;
    return PST_OK;
}
