/* Parameters, and the bytes of weights, gradients and optimizer states. */
#include "host/estimate.h"

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

static shape latent_attention(const pst_estimate_config *config)
{
    const uint64_t h = config->hidden_size;
    const uint64_t q_rank = config->q_rank, kv_rank = config->kv_rank;
    const uint64_t norm = psti_norm_words(config);
    const uint64_t qk = psti_plus(config->qk_size, config->qk_position_size);
    return (shape){
        .replicated = PSTI_SUM(psti_times(h, q_rank), psti_times(norm, q_rank),
                               psti_times(h, psti_plus(kv_rank, config->qk_position_size)),
                               psti_times(norm, kv_rank)),
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

/* With so many of the routed experts. */
static shape moe_layer(const pst_estimate_config *config, uint64_t num_experts)
{
    const uint64_t h = config->hidden_size;
    const shape mlp = {
        .sharded = PSTI_PRODUCT(matrices(config), h, config->shared_ffn_size),
        .replicated =
            psti_plus(psti_times(h, config->num_experts), config->has_shared_gate ? h : 0),
        .experts = PSTI_PRODUCT(matrices(config), num_experts, h, config->expert_ffn_size),
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

static uint64_t mtp_depth(const pst_estimate_config *config, shape last_layer)
{
    const uint64_t h = config->hidden_size;
    return PSTI_SUM(PSTI_PRODUCT(3, psti_norm_words(config), h), PSTI_PRODUCT(2, h, h),
                    whole(last_layer));
}

static pst_status check_size(uint64_t total, const char *what)
{
    PSTI_CHECK(total != PSTI_TOO_MUCH, PST_E_INVALID, "config: %s exceed 64 bits", what);
    return PST_OK;
}

pst_status pst_estimate_get_params(const pst_estimate_config *given,
                                   pst_estimate_params *params_out)
{
    pst_estimate_config config;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(params_out, PST_E_INVALID, "params_out is NULL");
    const uint64_t num_moe = count_moe_layers(&config);
    const shape dense = dense_layer(&config);
    const shape moe = moe_layer(&config, config.num_experts);
    const shape met = moe_layer(&config, config.experts_per_token);
    const uint64_t dense_part = psti_times(config.num_layers - num_moe, whole(dense));
    const uint64_t layers = psti_plus(dense_part, psti_times(num_moe, whole(moe)));
    const uint64_t rest = around(&config, config.vocab_size);
    const uint64_t embedding = psti_times(config.vocab_size, config.hidden_size);
    const bool ends_moe = psti_estimate_has_moe(&config, config.num_layers - 1);
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
        .mtp = mtp_depth(&config, ends_moe ? moe : dense),
        .padded_vocab = config.padded_vocab_size,
    };
    /* padded, not below total, holds every other one but these two */
    PSTI_TRY(check_size(PSTI_SUM(params.padded, params.mtp, params.router_bias), "parameters"));
    *params_out = params;
    return PST_OK;
}

/* ---- states ---- */

psti_widths psti_widths_of(pst_train_type type)
{
    static const psti_widths all[] = {
        [PST_TRAIN_BF16] = {2, 4, 12}, [PST_TRAIN_FP16] = {2, 2, 16}, [PST_TRAIN_FP32] = {4, 4, 8}};
    return all[type];
}

/* All of a stage, undivided. */
static shape stage_shape(const pst_estimate_config *config, uint64_t stage,
                         pst_estimate_states *states)
{
    const uint64_t h = config->hidden_size;
    const uint64_t matrix = psti_times(config->padded_vocab_size, h);
    const uint64_t last = config->pipeline_parallel - 1;
    shape sum = {.sharded = 0};
    for (uint64_t chunk = 0; chunk < config->virtual_stages; chunk++) {
        const psti_chunk of = psti_chunk_of(config, stage, chunk);
        states->num_layers += of.num_layers;
        states->num_moe_layers += of.num_moe;
    }
    const uint64_t num_dense = states->num_layers - states->num_moe_layers;
    sum = add(sum, repeat(num_dense, dense_layer(config)));
    sum = add(sum, repeat(states->num_moe_layers, moe_layer(config, config->num_experts)));
    if (stage == 0)
        sum = add(sum,
                  (shape){.sharded = matrix, .replicated = psti_times(config->max_positions, h)});
    if (stage == last)
        sum = add(sum, (shape){.sharded = config->is_tied && last == 0 ? 0 : matrix,
                               .replicated = psti_times(psti_norm_words(config), h)});
    return sum;
}

pst_status pst_estimate_get_states(const pst_estimate_config *given, uint64_t stage,
                                   pst_estimate_states *states_out)
{
    pst_estimate_config config;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(states_out, PST_E_INVALID, "states_out is NULL");
    PSTI_TRY(psti_estimate_check_stage(&config, stage));
    const psti_widths width = psti_widths_of(config.type);
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
    states.weight_bytes = psti_times(width.weight, states.params);
    states.gradient_bytes = psti_times(width.gradient, states.params);
    states.optimizer_bytes =
        psti_times(width.optimizer, psti_plus(psti_share(dense, dense_group),
                                              psti_share(states.expert_params, expert_group)));
    states.bytes = PSTI_SUM(states.weight_bytes, states.gradient_bytes, states.optimizer_bytes);
    PSTI_TRY(check_size(states.bytes, "states"));
    *states_out = states;
    return PST_OK;
}
