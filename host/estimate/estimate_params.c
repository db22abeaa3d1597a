/* Parameters, as sums of modules, and the bytes of weights, gradients and optimizer states. */
#include <string.h>

#include "host/base/structs.h"
#include "host/estimate/estimate.h"

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
static uint64_t mtp_depth(const pst_estimate_config *config)
{
    const uint64_t h = config->hidden_size;
    return psti_plus(PSTI_PRODUCT(2, h, h), PSTI_PRODUCT(3, psti_norm_words(config), h));
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
    const psti_words dense = psti_layer_words(&config, false, true);
    const psti_words moe = psti_layer_words(&config, true, true);
    const uint64_t met = psti_times(num_moe ? moe.experts / config.num_experts : 0,
                                    psti_times(num_moe, config.experts_per_token));
    const uint64_t dense_part = psti_times(config.num_layers - num_moe, dense.all);
    const uint64_t layers = psti_plus(dense_part, psti_times(num_moe, moe.all));
    const uint64_t rest = around(&config, config.vocab_size);
    const uint64_t embedding = psti_times(config.vocab_size, config.hidden_size);
    const uint64_t last_layer = psti_ends_with_moe(&config) ? moe.all : dense.all;
    const pst_estimate_params params = {
        .total = psti_plus(layers, rest),
        .padded = psti_plus(layers, around(&config, config.padded_vocab_size)),
        .active =
            PSTI_SUM(dense_part, psti_times(num_moe, psti_minus(moe.all, moe.experts)), met, rest),
        .experts = psti_times(num_moe, moe.experts),
        .router_bias = config.has_router_bias ? psti_times(num_moe, config.num_experts) : 0,
        .dense_layer = num_moe < config.num_layers ? dense.all : 0,
        .moe_layer = num_moe ? moe.all : 0,
        .embedding = embedding,
        .output = config.is_tied ? 0 : embedding,
        .mtp = psti_plus(mtp_depth(&config), last_layer),
        .padded_vocab = config.padded_vocab_size,
    };
    /* padded, not below total, holds every other one but these two */
    PSTI_TRY(check_size(PSTI_SUM(params.padded, params.mtp, params.router_bias), "parameters"));
    memcpy(params_out, &params, params_bytes);
    return PST_OK;
}

/* ---- states ---- */

/* GPUs that divide parameters of a kind among them: dense ones, those of experts. */
typedef struct groups {
    uint64_t dense, experts;
} groups;

static uint64_t share(const groups *of, uint64_t dense, uint64_t experts)
{
    return psti_plus(psti_div_up(dense, of->dense), psti_div_up(experts, of->experts));
}

/* Of a GPU's share, or whole. */
static uint64_t weight_bytes(const pst_estimate_config *config, uint64_t stage, const groups *of,
                             const pst_estimate_states *states)
{
    const psti_linears linears = psti_linears_of(config, stage, states);
    const uint64_t width = psti_element_bytes(config);
    const uint64_t dense = psti_minus(states->params, states->expert_params);
    if (!config->keeps_fp8_weights)
        return psti_times(width, share(of, dense, states->expert_params));
    const uint64_t dense_linears = linears.words - linears.expert_words;
    const uint64_t others = share(of, psti_minus(dense, dense_linears),
                                  psti_minus(states->expert_params, linears.expert_words));
    return psti_plus(psti_times(width, others),
                     share(of, psti_minus(linears.fp8_bytes, linears.expert_fp8_bytes),
                           linears.expert_fp8_bytes));
}

/* of: who divides parameters, where they are divided. */
static void add_bytes(const pst_estimate_config *config, uint64_t stage, const groups *of,
                      pst_estimate_states *states)
{
    const groups alone = {1, 1};
    const uint64_t dense = psti_minus(states->params, states->expert_params);
    const bool shards = config->distributed_optimizer || psti_shards_gradients(config);
    const uint64_t optimizer = psti_times(
        config->optimizer_width, share(shards ? of : &alone, dense, states->expert_params));
    const groups *gradients = psti_shards_gradients(config) ? of : &alone;
    states->weight_bytes =
        weight_bytes(config, stage, psti_shards_weights(config) ? of : &alone, states);
    states->gradient_bytes =
        psti_times(config->gradient_width, share(gradients, dense, states->expert_params));
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
    const groups of = {psti_estimate_dense_group(&config),
                       config.num_experts ? psti_estimate_expert_group(&config) : 1};
    pst_estimate_states states = {.num_layers = 0};
    for (uint64_t chunk = 0; chunk < config.virtual_stages; chunk++) {
        const psti_chunk has = psti_chunk_of(&config, stage, chunk);
        states.num_layers += has.num_layers + has.num_mtp;
        states.num_moe_layers += has.num_moe + has.num_mtp_moe;
    }
    const psti_words one = psti_layer_words(&config, false, false);
    const psti_words moe = psti_layer_words(&config, true, false);
    const uint64_t dense =
        PSTI_SUM(psti_times(states.num_layers - states.num_moe_layers, one.all),
                 psti_times(states.num_moe_layers, psti_minus(moe.all, moe.experts)),
                 psti_outside_words(&config, stage));
    states.expert_params = psti_times(states.num_moe_layers, moe.experts);
    states.params = psti_plus(dense, states.expert_params);
    add_bytes(&config, stage, &of, &states);
    PSTI_TRY(check_size(psti_plus(states.bytes, states.host_bytes), "states"));
    *states_out = states;
    return PST_OK;
}
