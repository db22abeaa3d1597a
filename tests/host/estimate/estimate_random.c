/* Configurations of the estimator, drawn by a number or changed by name. */
#include "tests/host/estimate/estimate_random.h"

#include "tools/estimate/estimate_table.h"

#include <stddef.h>
#include <stdlib.h>

uint64_t psti_random_below(uint64_t *state, uint64_t limit)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (*state >> 33) % limit;
}

static uint64_t below(psti_random_run *run, uint64_t limit)
{
    return psti_random_below(&run->state, limit);
}

static bool flip(psti_random_run *run)
{
    return below(run, 2) == 1;
}

static uint64_t one_of(psti_random_run *run, const uint64_t *values, uint64_t num_values)
{
    return values[below(run, num_values)];
}

#define ONE_OF(run, ...)                         \
    one_of(run, (const uint64_t[]){__VA_ARGS__}, \
           sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static void draw_split(psti_random_run *run)
{
    pst_estimate_config *config = &run->config;
    config->tensor_parallel = ONE_OF(run, 0, 1, 2, 4);
    config->pipeline_parallel = ONE_OF(run, 0, 1, 2, 3, 4);
    config->virtual_stages = config->pipeline_parallel > 1 ? ONE_OF(run, 0, 1, 2, 3) : 0;
    config->context_parallel = ONE_OF(run, 0, 1, 2);
    config->sequence_parallel = flip(run);
    config->distributed_optimizer = flip(run);
    config->overlaps_exchange = flip(run);
    const uint64_t tensor = config->tensor_parallel ? config->tensor_parallel : 1;
    const uint64_t pipeline = config->pipeline_parallel ? config->pipeline_parallel : 1;
    const uint64_t context = config->context_parallel ? config->context_parallel : 1;
    const uint64_t data = ONE_OF(run, 1, 2, 3, 4);
    config->world_size = tensor * pipeline * context * data;
    config->micro_batch = ONE_OF(run, 0, 1, 2, 3);
    const uint64_t group = pipeline + (config->virtual_stages > 1 ? below(run, 3) : 0);
    config->micro_batch_group_size = group > pipeline ? group : 0;
    const uint64_t times = config->virtual_stages > 1 ? group : 1;
    config->global_batch =
        (1 + below(run, 7)) * times * data * (config->micro_batch ? config->micro_batch : 1);
}

static void draw_layers(psti_random_run *run)
{
    pst_estimate_config *config = &run->config;
    const uint64_t pipeline = config->pipeline_parallel ? config->pipeline_parallel : 1;
    const uint64_t chunks = pipeline * (config->virtual_stages ? config->virtual_stages : 1);
    config->num_layers = chunks * (1 + below(run, PSTI_RANDOM_LAYERS / chunks));
    if (flip(run))
        return;
    config->chunk_layers = run->chunk_layers;
    for (uint64_t i = 0; i < PSTI_RANDOM_LAYERS; i++)
        run->chunk_layers[i] = 0;
    for (uint64_t i = 0; i < config->num_layers; i++)
        run->chunk_layers[below(run, chunks)]++;
}

static void draw_attention(psti_random_run *run)
{
    pst_estimate_config *config = &run->config;
    config->num_heads = 4 * (1 + below(run, 3));
    config->num_kv_heads = ONE_OF(run, 0, 1, 2, 4, config->num_heads);
    config->hidden_size = config->num_heads * 8 * (1 + below(run, 4));
    config->head_size = flip(run) ? 0 : 8 * (1 + below(run, 4));
    config->has_linear_bias = flip(run);
    config->has_flash_attention = flip(run);
    config->has_attention_dropout = flip(run);
    config->copies_attention = flip(run);
    if (below(run, 3) != 0) {
        config->qk_norm = (pst_qk_norm)below(run, 3);
        config->has_qkv_bias = flip(run);
        return;
    }
    config->q_rank = ONE_OF(run, 0, 24, 40);
    config->kv_rank = 8 * (1 + below(run, 4));
    config->qk_size = 8 * (1 + below(run, 3));
    config->qk_position_size = ONE_OF(run, 0, 4, 8);
    config->v_size = 8 * (1 + below(run, 3));
}

static void draw_experts(psti_random_run *run)
{
    pst_estimate_config *config = &run->config;
    config->num_experts = ONE_OF(run, 4, 8, 12);
    config->experts_per_token = 1 + below(run, 4);
    config->expert_ffn_size = 16 * (1 + below(run, 4));
    config->expert_parallel = ONE_OF(run, 0, 1, 2, 4);
    config->expert_tensor_parallel = ONE_OF(run, 0, 1, 2);
    config->shared_ffn_size = ONE_OF(run, 0, 16, 64);
    config->has_shared_gate = flip(run);
    config->has_router_bias = flip(run);
    config->latent_size = ONE_OF(run, 0, 0, 16);
    config->applies_probs_late = flip(run);
    config->capacity_num = ONE_OF(run, 0, 1, 5, 2000);
    config->capacity_den = ONE_OF(run, 0, 1, 4, 1000);
    config->row_multiple = ONE_OF(run, 0, 1, 16);
    config->page_rows = ONE_OF(run, 0, 1, 24);
    config->page_bytes = ONE_OF(run, 0, 16384);
    if (flip(run)) {
        config->headroom_num = 100 + below(run, 100);
        config->headroom_den = 100;
    }
    if (flip(run)) {
        config->is_moe = run->is_moe;
        for (int i = 0; i < PSTI_RANDOM_LAYERS; i++)
            run->is_moe[i] = flip(run);
    }
    config->dispatcher = (pst_dispatcher)below(run, 2);
    config->router_group_topk = ONE_OF(run, 0, 0, 1, 2);
    config->router_groups = config->router_group_topk ? ONE_OF(run, 2, 4) : 0;
}

static void draw_rest(psti_random_run *run)
{
    pst_estimate_config *config = &run->config;
    config->ffn_size = 16 * below(run, 8);
    config->vocab_size = 1 + below(run, 3000);
    config->vocab_multiple = ONE_OF(run, 0, 1, 64);
    config->max_positions = ONE_OF(run, 0, 512);
    config->mtp_layers = ONE_OF(run, 0, 0, 1, 2);
    config->norm = flip(run) ? PST_NORM_RMS : PST_NORM_LAYER;
    config->is_gated = flip(run);
    config->is_tied = flip(run);
    config->sequence_size = 8 * (1 + below(run, 30));
    config->type = (pst_train_type)below(run, 3);
    config->gradient_width = ONE_OF(run, 0, 0, 2, 4);
    config->optimizer_width = ONE_OF(run, 0, 0, 6, 12);
    config->offload_den = ONE_OF(run, 0, 0, 3);
    config->offload_num = config->offload_den ? below(run, 4) : 0;
    config->recompute = (uint32_t)(flip(run) ? below(run, 16) : below(run, PST_RECOMPUTE_ALL + 1));
    config->recompute_layers = ONE_OF(run, 0, 0, 0, 1, 2, 5);
    config->recomputes_block = flip(run);
    config->has_hidden_dropout = flip(run);
    config->fuses_activation = flip(run);
    config->saves_inputs_fp8 = flip(run);
    config->loss = (pst_loss)below(run, 3);
    config->keeps_empty_gradients = flip(run);
    config->keeps_workspaces = flip(run);
    config->offload_modules = (uint32_t)ONE_OF(run, 0, 0, PST_OFFLOAD_CORE, PST_OFFLOAD_ALL);
}

static void draw_fp8(psti_random_run *run)
{
    pst_estimate_config *config = &run->config;
    config->fp8 = (pst_fp8)below(run, 4);
    config->keeps_fp8_weights = config->fp8 != PST_FP8_NONE && flip(run);
    config->keeps_one_layout = flip(run);
}

static void draw_sharding(psti_random_run *run)
{
    pst_estimate_config *config = &run->config;
    config->sharding = (pst_sharding)below(run, 5);
    config->doubles_buffers = flip(run);
    config->communication_unit = ONE_OF(run, 0, 1, 5000, 100000);
}

/* One that may not. */
static void draw_candidate(psti_random_run *run)
{
    run->config = (pst_estimate_config)PST_ESTIMATE_CONFIG_INIT;
    draw_split(run);
    draw_layers(run);
    draw_attention(run);
    draw_rest(run);
    if (flip(run))
        draw_fp8(run);
    if (flip(run))
        draw_sharding(run);
    run->config.moe_rows = (pst_moe_rows)below(run, 4); /* means nothing without experts */
    run->config.caps_each_expert = flip(run);
    run->config.pages_glu = below(run, 4) == 0;
    if (flip(run))
        draw_experts(run);
}

void psti_draw_run(psti_random_run *run)
{
    do {
        draw_candidate(run);
    } while (pst_estimate_check(&run->config) != PST_OK);
}

#define FIELD(name, ...)                                                                   \
    {#name, offsetof(pst_estimate_config, name), sizeof(((pst_estimate_config *)0)->name), \
     _Generic(((pst_estimate_config *)0)->name, uint64_t                                   \
              : true, default                                                              \
              : false)},
#define NONE(...)
#define SETS(flag, group, kind, member, ...) FIELD(member, __VA_ARGS__)
const psti_field psti_fields[] = {ESTIMATE_TABLE(NONE, NONE, SETS, SETS, FIELD)};
const size_t psti_num_fields = sizeof(psti_fields) / sizeof(psti_fields[0]);

static const psti_field *field_before(const char *change)
{
    const size_t length = strcspn(change, "=");
    for (size_t i = 0; i < psti_num_fields; i++)
        if (strlen(psti_fields[i].name) == length &&
            memcmp(psti_fields[i].name, change, length) == 0)
            return &psti_fields[i];
    return NULL;
}

bool psti_change_field(pst_estimate_config *config, const char *change)
{
    const psti_field *of = field_before(change);
    const uint64_t value = strtoull(change + strcspn(change, "=") + 1, NULL, 0);
    if (of != NULL)
        memcpy((char *)config + of->offset, &value, of->bytes); /* little-endian */
    return of != NULL;
}

bool psti_field_is_zero(const pst_estimate_config *config, const char *change)
{
    static const char zeros[sizeof(uint64_t)];
    const psti_field *of = field_before(change);
    return of != NULL && memcmp((const char *)config + of->offset, zeros, of->bytes) == 0;
}

uint64_t *psti_field_of(pst_estimate_config *config, size_t index)
{
    return (uint64_t *)(void *)((char *)config + psti_fields[index].offset);
}
