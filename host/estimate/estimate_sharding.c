/* What fully sharded data parallelism keeps whole for a time: weights that are gathered, gradients that
 * are yet to be reduced.
 *
 * Megatron-FSDP (megatron_fsdp.py, param_and_grad_buffer.py): each forward and backward of a unit gathers
 * units ahead until they have half of the suggested communication unit, which is at least 10^9 parameters
 * or two layers. A unit's gradients are whole from its backward on; before the next are reduced, those in
 * the queue are waited for until they are no more than that unit. PyTorch's FSDP2: one unit ahead; the
 * gradients of the unit in work, and of the one before as the collective reads them.
 */
#include "host/estimate/estimate.h"

#define COMMUNICATION_UNIT ((uint64_t)1000000000)

bool psti_shards_gradients(const pst_estimate_config *config)
{
    return config->sharding != PST_SHARDING_NONE;
}

bool psti_shards_weights(const pst_estimate_config *config)
{
    return config->sharding >= PST_SHARDING_WEIGHTS;
}

static bool is_torch(const pst_estimate_config *config)
{
    return config->sharding >= PST_SHARDING_TORCH_GRADIENTS;
}

/* Layers of the larger kind first. */
typedef struct units {
    uint64_t num[2], words[2], bytes[2], saved[2];
    uint64_t outside; /* words of what is in no layer */
} units;

static uint64_t layer_weight_bytes(const pst_estimate_config *config, bool is_moe, uint64_t words)
{
    const uint64_t width = psti_element_bytes(config);
    const psti_linears linears = psti_layer_linears(config, is_moe);
    if (!config->keeps_fp8_weights)
        return psti_times(width, words);
    return psti_plus(psti_times(width, psti_minus(words, linears.words)), linears.fp8_bytes);
}

static units units_of(const pst_estimate_config *config, uint64_t stage,
                      const pst_estimate_states *states)
{
    units of = {.outside = psti_outside_words(config, stage)};
    const uint64_t num[2] = {states->num_layers - states->num_moe_layers, states->num_moe_layers};
    const uint64_t dense = num[0] ? psti_layer_words(config, false, false).all : 0;
    const uint64_t moe = num[1] ? psti_layer_words(config, true, false).all : 0;
    for (int i = 0; i < 2; i++) {
        const bool is_moe = (moe > dense) == (i == 0);
        of.num[i] = num[is_moe];
        of.words[i] = is_moe ? moe : dense;
        of.saved[i] = psti_layer_bytes(config, is_moe);
        of.bytes[i] = of.num[i] ? layer_weight_bytes(config, is_moe, of.words[i]) : 0;
    }
    return of;
}

/* Of the embedding's matrix, or of the output's. */
static uint64_t end_words(const pst_estimate_config *config)
{
    return psti_times(config->padded_vocab_size / config->tensor_parallel, config->hidden_size);
}

/* Of so many units, or of all there are. */
static uint64_t first_bytes(const units *of, uint64_t num)
{
    const uint64_t large = psti_min(num, of->num[0]);
    const uint64_t rest = psti_min(num - large, of->num[1]);
    return psti_plus(psti_times(large, of->bytes[0]), psti_times(rest, of->bytes[1]));
}

static uint64_t communication_unit(const pst_estimate_config *config, const units *of)
{
    const uint64_t two = psti_times(2, of->words[0]);
    if (config->communication_unit != 0)
        return config->communication_unit;
    return two > COMMUNICATION_UNIT ? two : COMMUNICATION_UNIT;
}

/* Units that are gathered at a time, the one in work too. */
static uint64_t num_gathered(const pst_estimate_config *config, const units *of)
{
    if (config->doubles_buffers || of->words[0] == 0)
        return 2;
    return psti_plus(1, psti_div_up(communication_unit(config, of) / 2, of->words[0]));
}

uint64_t psti_gathered_bytes(const pst_estimate_config *config, uint64_t stage,
                             const pst_estimate_states *states)
{
    if (!psti_shards_weights(config))
        return 0;
    const units of = units_of(config, stage, states);
    const uint64_t outside = psti_times(psti_element_bytes(config), of.outside);
    if (config->sharding == PST_SHARDING_TORCH_WEIGHTS) {
        const uint64_t matrix = psti_times(psti_element_bytes(config), end_words(config));
        const uint64_t pair = first_bytes(&of, 2), one = psti_plus(first_bytes(&of, 1), matrix);
        return pair > one ? pair : one;
    }
    const uint64_t num = is_torch(config) ? states->num_layers : num_gathered(config, &of);
    return psti_plus(outside, first_bytes(&of, num));
}

uint64_t psti_whole_gradients(const pst_estimate_config *config, uint64_t stage,
                              const pst_estimate_states *states)
{
    if (!psti_shards_gradients(config))
        return 0;
    const units of = units_of(config, stage, states);
    const uint64_t width = config->gradient_width;
    const uint64_t one = psti_times(width, of.words[0]);
    const uint64_t before = psti_times(width, of.outside);
    if (is_torch(config)) {
        const uint64_t matrix = psti_times(width, end_words(config));
        return psti_plus(psti_times(psti_element_bytes(config), of.words[0]),
                         one > matrix ? one : matrix);
    }
    if (config->doubles_buffers)
        return psti_plus(before, psti_times(psti_min(2, states->num_layers), one));
    /* each layer that is done leaves its gradients in the queue, and frees what it saved */
    const uint64_t queued = of.words[0] ? communication_unit(config, &of) / of.words[0] + 1 : 0;
    const uint64_t left = one > of.saved[0] ? one - of.saved[0] : 0;
    return PSTI_SUM(
        before, one,
        psti_times(left, psti_min(queued, states->num_layers ? states->num_layers - 1 : 0)));
}

psti_collectives psti_collectives_of(const pst_estimate_config *config)
{
    const uint64_t passes = psti_num_micro_batches(config);
    psti_collectives of = {.gathers = 1, .reductions = psti_shards_gradients(config) ? passes : 1};
    if (psti_shards_weights(config))
        of.gathers = psti_times(config->sharding == PST_SHARDING_TORCH_GRADIENTS ? 1 : 2, passes);
    return of;
}
