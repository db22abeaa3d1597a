/* What a config must fulfil. */
#include "host/estimate/estimate.h"

#include <inttypes.h>

#define MAX_WORLD ((uint64_t)1 << 31)
#define MAX_TURNS ((uint64_t)1 << 24)    /* a peak is found in about so many steps */
#define MAX_PARALLEL ((uint64_t)1 << 20) /* no product of three wraps */
#define MAX_TERM (((uint64_t)1 << 32) - 1)
#define MAX_ROWS ((uint64_t)1 << 31)
#define MAX_WIDTH ((uint64_t)64)

typedef struct named {
    const char *name;
    uint64_t value;
} named;

#define NAMED(field)          \
    {                         \
#field, config->field \
    }

static pst_status check_present(const named *fields, size_t num_fields)
{
    for (size_t i = 0; i < num_fields; i++)
        PSTI_CHECK(fields[i].value != 0, PST_E_INVALID, "%s 0: must be at least 1", fields[i].name);
    return PST_OK;
}

static pst_status check_multiple(named field, named of)
{
    PSTI_CHECK(field.value % of.value == 0, PST_E_INVALID,
               "%s %" PRIu64 ": must be a multiple of %s %" PRIu64, field.name, field.value,
               of.name, of.value);
    return PST_OK;
}

#define CHECK_MULTIPLE(field, of) PSTI_TRY(check_multiple((named)NAMED(field), (named)NAMED(of)))

pst_status psti_check_kinds(const pst_estimate_config *config)
{
    PSTI_CHECK(config->norm >= PST_NORM_LAYER && config->norm <= PST_NORM_RMS, PST_E_INVALID,
               "norm %d: allowed are layer and rms", (int)config->norm);
    PSTI_CHECK(config->qk_norm >= PST_QK_NORM_NONE && config->qk_norm <= PST_QK_NORM_PROJECTION,
               PST_E_INVALID, "qk_norm %d: allowed are none, head and projection",
               (int)config->qk_norm);
    PSTI_CHECK(config->type >= PST_TRAIN_BF16 && config->type <= PST_TRAIN_FP32, PST_E_INVALID,
               "type %d: allowed are bf16, fp16 and fp32", (int)config->type);
    PSTI_CHECK(config->moe_rows >= PST_MOE_BALANCED && config->moe_rows <= PST_MOE_PAGED,
               PST_E_INVALID, "moe_rows %d: allowed are balanced, capacity, worst and paged",
               (int)config->moe_rows);
    PSTI_CHECK((config->recompute & ~PST_RECOMPUTE_ALL) == 0, PST_E_INVALID,
               "recompute %#x: allowed are the bits of %#x", config->recompute, PST_RECOMPUTE_ALL);
    PSTI_CHECK(config->loss >= PST_LOSS_UNFUSED && config->loss <= PST_LOSS_COPIED, PST_E_INVALID,
               "loss %d: allowed are unfused, fused and copied", (int)config->loss);
    const named sizes[] = {NAMED(num_layers), NAMED(hidden_size), NAMED(num_heads),
                           NAMED(vocab_size), NAMED(sequence_size)};
    return check_present(sizes, sizeof(sizes) / sizeof(sizes[0]));
}

/* Of 32 bits each, so that psti_part is exact. */
static pst_status check_fraction(named num, named den)
{
    PSTI_CHECK(den.value != 0, PST_E_INVALID, "%s 0: %s is %" PRIu64, den.name, num.name,
               num.value);
    PSTI_CHECK(num.value <= MAX_TERM && den.value <= MAX_TERM, PST_E_INVALID,
               "%s %" PRIu64 " / %s %" PRIu64 ": both at most %" PRIu64, num.name, num.value,
               den.name, den.value, MAX_TERM);
    return PST_OK;
}

#define CHECK_FRACTION(num, den) PSTI_TRY(check_fraction((named)NAMED(num), (named)NAMED(den)))

static pst_status check_states(const pst_estimate_config *config)
{
    const named widths[] = {NAMED(gradient_width), NAMED(optimizer_width)};
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        PSTI_CHECK(widths[i].value <= MAX_WIDTH, PST_E_INVALID,
                   "%s %" PRIu64 ": bytes per parameter, at most %" PRIu64, widths[i].name,
                   widths[i].value, MAX_WIDTH);
    CHECK_FRACTION(offload_num, offload_den);
    PSTI_CHECK(config->offload_num <= config->offload_den, PST_E_INVALID,
               "offload_num %" PRIu64 " / offload_den %" PRIu64 ": at most 1", config->offload_num,
               config->offload_den);
    return PST_OK;
}

/* A matrix of queries, keys and values is cut into equal parts, also where these cut heads. */
static pst_status check_kv_heads(const pst_estimate_config *config)
{
    const uint64_t heads = config->num_kv_heads, tensor = config->tensor_parallel;
    PSTI_CHECK(heads % tensor == 0 || tensor % heads == 0, PST_E_INVALID,
               "num_kv_heads %" PRIu64 ": must be a multiple of tensor_parallel %" PRIu64
               ", or divide it",
               heads, tensor);
    const uint64_t keys = PSTI_PRODUCT(2, heads, config->head_size);
    PSTI_CHECK(keys == PSTI_TOO_MUCH || keys % tensor == 0, PST_E_INVALID,
               "num_kv_heads %" PRIu64 " * head_size %" PRIu64
               " * 2: must be a multiple of tensor_parallel %" PRIu64,
               heads, config->head_size, tensor);
    return PST_OK;
}

static pst_status check_attention(const pst_estimate_config *config)
{
    CHECK_MULTIPLE(num_heads, tensor_parallel);
    if (config->kv_rank == 0) {
        PSTI_CHECK(config->head_size != 0, PST_E_INVALID,
                   "head_size 0: hidden_size %" PRIu64 " is below num_heads %" PRIu64,
                   config->hidden_size, config->num_heads);
        CHECK_MULTIPLE(num_heads, num_kv_heads);
        PSTI_TRY(check_kv_heads(config));
        PSTI_CHECK(config->q_rank == 0, PST_E_INVALID,
                   "q_rank %" PRIu64 ": kv_rank is 0, and it belongs to latent attention",
                   config->q_rank);
        return PST_OK;
    }
    const named sizes[] = {NAMED(qk_size), NAMED(v_size)};
    PSTI_TRY(check_present(sizes, sizeof(sizes) / sizeof(sizes[0])));
    PSTI_CHECK(config->qk_norm == PST_QK_NORM_NONE, PST_E_INVALID,
               "qk_norm %d: must be none, kv_rank %" PRIu64 ": latent attention has its own norms",
               (int)config->qk_norm, config->kv_rank);
    PSTI_CHECK(!config->has_qkv_bias, PST_E_INVALID,
               "has_qkv_bias: latent attention (kv_rank %" PRIu64 ") has no such biases here",
               config->kv_rank);
    return PST_OK;
}

/* Terms of products and quotients that then cannot wrap, or become 0. */
static pst_status check_rows(const pst_estimate_config *config)
{
    const named sizes[] = {NAMED(num_experts), NAMED(page_rows), NAMED(row_multiple)};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        PSTI_CHECK(sizes[i].value <= MAX_ROWS, PST_E_INVALID, "%s %" PRIu64 ": at most %" PRIu64,
                   sizes[i].name, sizes[i].value, MAX_ROWS);
    CHECK_FRACTION(capacity_num, capacity_den);
    CHECK_FRACTION(headroom_num, headroom_den);
    PSTI_CHECK(config->headroom_num >= config->headroom_den, PST_E_INVALID,
               "headroom_num %" PRIu64 " / headroom_den %" PRIu64 ": must be at least 1",
               config->headroom_num, config->headroom_den);
    return PST_OK;
}

static pst_status check_pages_glu(const pst_estimate_config *config)
{
    if (!psti_pages_glu(config))
        return PST_OK;
    PSTI_CHECK(config->is_gated, PST_E_INVALID, "pages_glu: needs is_gated");
    PSTI_CHECK(config->fuses_activation, PST_E_INVALID, "pages_glu: needs fuses_activation");
    PSTI_CHECK(!config->saves_inputs_fp8, PST_E_INVALID, "pages_glu: not with saves_inputs_fp8");
    return PST_OK;
}

static pst_status check_experts(const pst_estimate_config *config)
{
    if (config->num_experts == 0) {
        PSTI_CHECK(config->expert_parallel == 1 && config->is_moe == NULL, PST_E_INVALID,
                   "expert_parallel %" PRIu64 "%s: num_experts is 0", config->expert_parallel,
                   config->is_moe ? " and is_moe" : "");
        return PST_OK;
    }
    const named sizes[] = {NAMED(experts_per_token), NAMED(expert_ffn_size)};
    PSTI_TRY(check_present(sizes, sizeof(sizes) / sizeof(sizes[0])));
    PSTI_TRY(check_rows(config));
    PSTI_TRY(check_pages_glu(config));
    PSTI_CHECK(config->moe_rows != PST_MOE_PAGED || config->recompute_layers == 0, PST_E_INVALID,
               "moe_rows paged: recompute_layers %" PRIu64 " leaves no rows to page",
               config->recompute_layers);
    PSTI_CHECK(config->experts_per_token <= config->num_experts, PST_E_INVALID,
               "experts_per_token %" PRIu64 ": num_experts is %" PRIu64, config->experts_per_token,
               config->num_experts);
    CHECK_MULTIPLE(num_experts, expert_parallel);
    CHECK_MULTIPLE(expert_ffn_size, expert_tensor_parallel);
    CHECK_MULTIPLE(shared_ffn_size, tensor_parallel);
    PSTI_CHECK(!config->has_linear_bias || config->expert_tensor_parallel == 1, PST_E_INVALID,
               "has_linear_bias with num_experts %" PRIu64 ": expert_tensor_parallel %" PRIu64
               " must be 1",
               config->num_experts, config->expert_tensor_parallel);
    PSTI_CHECK(!config->has_linear_bias || config->shared_ffn_size == 0, PST_E_INVALID,
               "has_linear_bias: shared experts (shared_ffn_size %" PRIu64 ") have no biases here",
               config->shared_ffn_size);
    PSTI_CHECK(config->tensor_parallel == 1 || config->sequence_parallel, PST_E_INVALID,
               "num_experts %" PRIu64 " and tensor_parallel %" PRIu64 ": need sequence_parallel",
               config->num_experts, config->tensor_parallel);
    return PST_OK;
}

pst_status psti_check_split_limits(const pst_estimate_config *config)
{
    const named sizes[] = {NAMED(tensor_parallel), NAMED(pipeline_parallel),
                           NAMED(context_parallel), NAMED(expert_parallel),
                           NAMED(expert_tensor_parallel)};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        PSTI_CHECK(sizes[i].value <= MAX_PARALLEL, PST_E_INVALID,
                   "%s %" PRIu64 ": at most %" PRIu64, sizes[i].name, sizes[i].value, MAX_PARALLEL);
    return PST_OK;
}

static pst_status check_world(const pst_estimate_config *config)
{
    const uint64_t dense =
        config->tensor_parallel * config->pipeline_parallel * config->context_parallel;
    PSTI_CHECK(config->world_size <= MAX_WORLD, PST_E_INVALID,
               "world_size %" PRIu64 ": at most %" PRIu64, config->world_size, MAX_WORLD);
    PSTI_CHECK(config->world_size % dense == 0, PST_E_INVALID,
               "world_size %" PRIu64 ": must be a multiple of tensor_parallel %" PRIu64
               " * pipeline_parallel %" PRIu64 " * context_parallel %" PRIu64,
               config->world_size, config->tensor_parallel, config->pipeline_parallel,
               config->context_parallel);
    const uint64_t experts =
        config->expert_tensor_parallel * config->expert_parallel * config->pipeline_parallel;
    PSTI_CHECK(config->num_experts == 0 || config->world_size % experts == 0, PST_E_INVALID,
               "world_size %" PRIu64 ": must be a multiple of expert_tensor_parallel %" PRIu64
               " * expert_parallel %" PRIu64 " * pipeline_parallel %" PRIu64,
               config->world_size, config->expert_tensor_parallel, config->expert_parallel,
               config->pipeline_parallel);
    const uint64_t replicas = config->world_size / dense;
    const uint64_t step = psti_times(config->micro_batch, replicas);
    PSTI_CHECK(step != PSTI_TOO_MUCH, PST_E_INVALID,
               "micro_batch %" PRIu64 ": with data parallel %" PRIu64 " exceeds 64 bits",
               config->micro_batch, replicas);
    PSTI_CHECK(config->global_batch % step == 0, PST_E_INVALID,
               "global_batch %" PRIu64 ": must be a multiple of micro_batch %" PRIu64
               " * data parallel %" PRIu64,
               config->global_batch, config->micro_batch, replicas);
    return PST_OK;
}

/* layers are at most 4096, so that no product or sum of theirs wraps */
static pst_status check_layers(const pst_estimate_config *config)
{
    PSTI_CHECK(config->num_layers <= PST_ESTIMATE_MAX_LAYERS, PST_E_INVALID,
               "num_layers %" PRIu64 ": at most %u", config->num_layers, PST_ESTIMATE_MAX_LAYERS);
    PSTI_CHECK(config->mtp_layers <= PST_ESTIMATE_MAX_LAYERS, PST_E_INVALID,
               "mtp_layers %" PRIu64 ": at most %u", config->mtp_layers, PST_ESTIMATE_MAX_LAYERS);
    PSTI_CHECK(config->virtual_stages <= config->num_layers, PST_E_INVALID,
               "virtual_stages %" PRIu64 ": num_layers is %" PRIu64, config->virtual_stages,
               config->num_layers);
    PSTI_CHECK(config->virtual_stages == 1 || config->pipeline_parallel > 1, PST_E_INVALID,
               "virtual_stages %" PRIu64 ": pipeline_parallel is 1", config->virtual_stages);
    const uint64_t num_chunks = config->pipeline_parallel * config->virtual_stages;
    if (config->chunk_layers == NULL) {
        PSTI_CHECK(config->num_layers % num_chunks == 0, PST_E_INVALID,
                   "num_layers %" PRIu64 ": must be a multiple of pipeline_parallel %" PRIu64
                   " * virtual_stages %" PRIu64,
                   config->num_layers, config->pipeline_parallel, config->virtual_stages);
        return PST_OK;
    }
    uint64_t sum = 0;
    for (uint64_t i = 0; i < num_chunks; i++)
        sum = psti_plus(sum, config->chunk_layers[i]);
    PSTI_CHECK(sum == config->num_layers, PST_E_INVALID,
               "chunk_layers: add up to %" PRIu64 ", num_layers is %" PRIu64, sum,
               config->num_layers);
    return PST_OK;
}

/* Of a checked world and checked layers. */
static pst_status check_schedule(const pst_estimate_config *config)
{
    if (config->virtual_stages == 1)
        return PST_OK;
    const uint64_t group = config->micro_batch_group_size;
    PSTI_CHECK(group >= config->pipeline_parallel, PST_E_INVALID,
               "micro_batch_group_size %" PRIu64 ": pipeline_parallel is %" PRIu64, group,
               config->pipeline_parallel);
    PSTI_CHECK(psti_times(group, config->virtual_stages) <= MAX_TURNS, PST_E_INVALID,
               "micro_batch_group_size %" PRIu64 " * virtual_stages %" PRIu64 ": at most %" PRIu64,
               group, config->virtual_stages, MAX_TURNS);
    const uint64_t num = psti_num_micro_batches(config);
    PSTI_CHECK(num % group == 0, PST_E_INVALID,
               "global_batch %" PRIu64 ": its %" PRIu64
               " micro-batches must be a multiple of micro_batch_group_size %" PRIu64,
               config->global_batch, num, group);
    return PST_OK;
}

static pst_status check_sizes(const pst_estimate_config *config)
{
    PSTI_CHECK(config->padded_vocab_size >= config->vocab_size, PST_E_INVALID,
               "padded_vocab_size %" PRIu64 ": vocab_size is %" PRIu64, config->padded_vocab_size,
               config->vocab_size);
    PSTI_CHECK(config->padded_vocab_size != PSTI_TOO_MUCH, PST_E_INVALID,
               "vocab_size %" PRIu64 ": too large to be padded", config->vocab_size);
    CHECK_MULTIPLE(padded_vocab_size, tensor_parallel);
    CHECK_MULTIPLE(ffn_size, tensor_parallel);
    if (config->mtp_layers != 0) /* whose projection is cut by its outputs */
        CHECK_MULTIPLE(hidden_size, tensor_parallel);
    CHECK_MULTIPLE(sequence_size, context_parallel);
    PSTI_CHECK(config->context_parallel == 1 || config->has_flash_attention, PST_E_INVALID,
               "context_parallel %" PRIu64 ": needs has_flash_attention", config->context_parallel);
    const uint64_t part = config->sequence_size / config->context_parallel;
    PSTI_CHECK(!config->sequence_parallel || part % config->tensor_parallel == 0, PST_E_INVALID,
               "sequence_size %" PRIu64 ": must be a multiple of context_parallel %" PRIu64
               " * tensor_parallel %" PRIu64 " (sequence_parallel)",
               config->sequence_size, config->context_parallel, config->tensor_parallel);
    return PST_OK;
}

static pst_status check_dense_layers(const pst_estimate_config *config)
{
    for (uint64_t i = 0; i < config->num_layers && config->ffn_size == 0; i++)
        PSTI_CHECK(psti_estimate_has_moe(config, i), PST_E_INVALID,
                   "ffn_size 0: layer %" PRIu64 " is dense", i);
    return PST_OK;
}

pst_status psti_check_rules(const pst_estimate_config *config)
{
    PSTI_TRY(check_states(config));
    PSTI_TRY(check_attention(config));
    PSTI_TRY(check_experts(config));
    PSTI_TRY(check_world(config));
    PSTI_TRY(check_layers(config));
    PSTI_TRY(check_schedule(config));
    PSTI_TRY(check_dense_layers(config));
    return check_sizes(config);
}
