/* What a config must fulfil. */
#include "host/estimate/estimate.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_WORLD ((uint64_t)1 << 31)
#define MAX_TURNS ((uint64_t)1 << 24)    /* a peak is found in about so many steps */
#define MAX_PARALLEL ((uint64_t)1 << 20) /* no product of three wraps */
#define MAX_TERM (((uint64_t)1 << 32) - 1)
#define MAX_ROWS ((uint64_t)1 << 31)
#define MAX_WIDTH ((uint64_t)64)
#define MAX_DISPATCHED 65536u
#define MAX_CHOSEN 8u

typedef struct named {
    const char *name;
    uint64_t value;
} named;

/* A sentence in which members of the config stand in braces. */
#define RULE(condition, ...)                                       \
    do {                                                           \
        if (!(condition))                                          \
            return refuse(fault, __FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

__attribute__((format(printf, 4, 5))) static pst_status
refuse(pst_estimate_fault *fault, const char *file, int line, const char *format, ...)
{
    char text[sizeof(fault->reason)];
    size_t length = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->reason, sizeof(fault->reason), format, arguments);
    va_end(arguments);
    const char *member = fault->reason + 1;
    snprintf(fault->field, sizeof(fault->field), "%.*s", (int)strcspn(member, "}"), member);
    for (const char *at = fault->reason; *at != '\0'; at++)
        if (*at != '{' && *at != '}')
            text[length++] = *at;
    text[length] = '\0';
    return psti_fail(PST_E_INVALID, file, line, "%s", text);
}

#define NAMED(field)          \
    {                         \
#field, config->field \
    }

static pst_status check_present(const named *fields, size_t num_fields, pst_estimate_fault *fault)
{
    for (size_t i = 0; i < num_fields; i++)
        RULE(fields[i].value != 0, "{%s} 0: must be at least 1", fields[i].name);
    return PST_OK;
}

static pst_status check_multiple(named field, named of, pst_estimate_fault *fault)
{
    RULE(field.value % of.value == 0, "{%s} %" PRIu64 ": must be a multiple of {%s} %" PRIu64,
         field.name, field.value, of.name, of.value);
    return PST_OK;
}

#define CHECK_MULTIPLE(field, of) \
    PSTI_TRY(check_multiple((named)NAMED(field), (named)NAMED(of), fault))

pst_status psti_check_kinds(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    RULE(config->norm >= PST_NORM_LAYER && config->norm <= PST_NORM_RMS,
         "{norm} %d: allowed are layer and rms", (int)config->norm);
    RULE(config->qk_norm >= PST_QK_NORM_NONE && config->qk_norm <= PST_QK_NORM_PROJECTION,
         "{qk_norm} %d: allowed are none, head and projection", (int)config->qk_norm);
    RULE(config->type >= PST_TRAIN_BF16 && config->type <= PST_TRAIN_FP32,
         "{type} %d: allowed are bf16, fp16 and fp32", (int)config->type);
    RULE(config->moe_rows >= PST_MOE_BALANCED && config->moe_rows <= PST_MOE_PAGED,
         "{moe_rows} %d: allowed are balanced, capacity, worst and paged", (int)config->moe_rows);
    RULE((config->recompute & ~PST_RECOMPUTE_ALL) == 0,
         "{recompute} %#x: allowed are the bits of %#x", config->recompute, PST_RECOMPUTE_ALL);
    RULE((config->offload_modules & ~PST_OFFLOAD_ALL) == 0,
         "{offload_modules} %#x: allowed are the bits of %#x", config->offload_modules,
         PST_OFFLOAD_ALL);
    RULE(config->dispatcher >= PST_DISPATCHER_ALLTOALL && config->dispatcher <= PST_DISPATCHER_FLEX,
         "{dispatcher} %d: allowed are alltoall and flex", (int)config->dispatcher);
    RULE(config->loss >= PST_LOSS_UNFUSED && config->loss <= PST_LOSS_COPIED,
         "{loss} %d: allowed are unfused, fused and copied", (int)config->loss);
    const named sizes[] = {NAMED(num_layers), NAMED(hidden_size), NAMED(num_heads),
                           NAMED(vocab_size), NAMED(sequence_size)};
    return check_present(sizes, sizeof(sizes) / sizeof(sizes[0]), fault);
}

static pst_status check_fp8(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    RULE(config->fp8 >= PST_FP8_NONE && config->fp8 <= PST_FP8_MXFP8,
         "{fp8} %d: allowed are none, tensorwise, blockwise and mxfp8", (int)config->fp8);
    RULE(!config->keeps_fp8_weights || config->fp8 != PST_FP8_NONE,
         "{keeps_fp8_weights}: needs {fp8}");
    return PST_OK;
}

static pst_status check_offload(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    const uint32_t experts = PST_OFFLOAD_EXPERT_FC1 | PST_OFFLOAD_ACTIVATION | PST_OFFLOAD_EXPERTS;
    const uint32_t bits = config->offload_modules;
    RULE((bits & PST_OFFLOAD_PROJ) == 0 || bits & PST_OFFLOAD_CORE,
         "{offload_modules} %#x: %#x needs %#x", bits, PST_OFFLOAD_PROJ, PST_OFFLOAD_CORE);
    RULE((bits & experts) == 0 || config->moe_rows != PST_MOE_PAGED,
         "{offload_modules} %#x: {moe_rows} is paged, and these are rows of experts", bits);
    return PST_OK;
}

static pst_status check_sharding(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    const bool is_torch = config->sharding >= PST_SHARDING_TORCH_GRADIENTS;
    RULE(config->sharding >= PST_SHARDING_NONE && config->sharding <= PST_SHARDING_TORCH_WEIGHTS,
         "{sharding} %d: allowed are none, gradients, weights, torch_gradients and torch_weights",
         (int)config->sharding);
    RULE(!is_torch || config->pipeline_parallel == 1,
         "{sharding} %d: {pipeline_parallel} %" PRIu64 " must be 1", (int)config->sharding,
         config->pipeline_parallel);
    RULE(!is_torch || config->expert_parallel == 1,
         "{sharding} %d: {expert_parallel} %" PRIu64 " must be 1", (int)config->sharding,
         config->expert_parallel);
    return PST_OK;
}

/* Of 32 bits each, so that psti_part is exact. */
static pst_status check_fraction(named num, named den, pst_estimate_fault *fault)
{
    RULE(den.value != 0, "{%s} 0: {%s} is %" PRIu64, den.name, num.name, num.value);
    RULE(num.value <= MAX_TERM && den.value <= MAX_TERM,
         "{%s} %" PRIu64 " / {%s} %" PRIu64 ": both at most %" PRIu64, num.name, num.value,
         den.name, den.value, MAX_TERM);
    return PST_OK;
}

#define CHECK_FRACTION(num, den) \
    PSTI_TRY(check_fraction((named)NAMED(num), (named)NAMED(den), fault))

static pst_status check_states(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    const named widths[] = {NAMED(gradient_width), NAMED(optimizer_width)};
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        RULE(widths[i].value <= MAX_WIDTH,
             "{%s} %" PRIu64 ": bytes per parameter, at most %" PRIu64, widths[i].name,
             widths[i].value, MAX_WIDTH);
    CHECK_FRACTION(offload_num, offload_den);
    RULE(config->offload_num <= config->offload_den,
         "{offload_num} %" PRIu64 " / {offload_den} %" PRIu64 ": at most 1", config->offload_num,
         config->offload_den);
    return PST_OK;
}

/* A matrix of queries, keys and values is cut into equal parts, also where these cut heads. */
static pst_status check_kv_heads(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    const uint64_t heads = config->num_kv_heads, tensor = config->tensor_parallel;
    RULE(heads % tensor == 0 || tensor % heads == 0,
         "{num_kv_heads} %" PRIu64 ": must be a multiple of {tensor_parallel} %" PRIu64
         ", or divide it",
         heads, tensor);
    const uint64_t keys = PSTI_PRODUCT(2, heads, config->head_size);
    RULE(keys == PSTI_TOO_MUCH || keys % tensor == 0,
         "{num_kv_heads} %" PRIu64 " * {head_size} %" PRIu64
         " * 2: must be a multiple of {tensor_parallel} %" PRIu64,
         heads, config->head_size, tensor);
    return PST_OK;
}

static pst_status check_attention(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    CHECK_MULTIPLE(num_heads, tensor_parallel);
    if (config->kv_rank == 0) {
        RULE(config->head_size != 0,
             "{head_size} 0: {hidden_size} %" PRIu64 " is below {num_heads} %" PRIu64,
             config->hidden_size, config->num_heads);
        CHECK_MULTIPLE(num_heads, num_kv_heads);
        PSTI_TRY(check_kv_heads(config, fault));
        RULE(config->q_rank == 0,
             "{q_rank} %" PRIu64 ": {kv_rank} is 0, and it belongs to latent attention",
             config->q_rank);
        return PST_OK;
    }
    const named sizes[] = {NAMED(qk_size), NAMED(v_size)};
    PSTI_TRY(check_present(sizes, sizeof(sizes) / sizeof(sizes[0]), fault));
    RULE(config->qk_norm == PST_QK_NORM_NONE,
         "{qk_norm} %d: must be none, {kv_rank} %" PRIu64 ": latent attention has its own norms",
         (int)config->qk_norm, config->kv_rank);
    RULE(!config->has_qkv_bias,
         "{has_qkv_bias}: latent attention ({kv_rank} %" PRIu64 ") has no such biases here",
         config->kv_rank);
    return PST_OK;
}

/* Terms of products and quotients that then cannot wrap, or become 0. */
static pst_status check_rows(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    const named sizes[] = {NAMED(num_experts), NAMED(page_rows), NAMED(row_multiple)};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        RULE(sizes[i].value <= MAX_ROWS, "{%s} %" PRIu64 ": at most %" PRIu64, sizes[i].name,
             sizes[i].value, MAX_ROWS);
    CHECK_FRACTION(capacity_num, capacity_den);
    CHECK_FRACTION(headroom_num, headroom_den);
    RULE(config->headroom_num >= config->headroom_den,
         "{headroom_num} %" PRIu64 " / {headroom_den} %" PRIu64 ": must be at least 1",
         config->headroom_num, config->headroom_den);
    return PST_OK;
}

static pst_status check_pages_glu(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    if (!psti_pages_glu(config))
        return PST_OK;
    RULE(config->is_gated, "{pages_glu}: needs {is_gated}");
    RULE(config->fuses_activation, "{pages_glu}: needs {fuses_activation}");
    RULE(!config->saves_inputs_fp8, "{pages_glu}: not with {saves_inputs_fp8}");
    return PST_OK;
}

/* What a router that is limited to groups needs, so that it can choose at all; and what a chance is exact with. */
static pst_status check_router(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    const uint64_t groups = config->router_groups, chosen = config->router_group_topk;
    const bool is_flex = config->dispatcher == PST_DISPATCHER_FLEX;
    RULE(!is_flex || config->num_experts <= MAX_DISPATCHED,
         "{num_experts} %" PRIu64 ": at most %u with {dispatcher} flex", config->num_experts,
         MAX_DISPATCHED);
    if (chosen == 0)
        return PST_OK;
    RULE(groups != 0, "{router_group_topk} %" PRIu64 ": {router_groups} is 0", chosen);
    CHECK_MULTIPLE(num_experts, router_groups);
    RULE(chosen <= groups, "{router_group_topk} %" PRIu64 ": {router_groups} is %" PRIu64, chosen,
         groups);
    RULE(!is_flex || chosen <= MAX_CHOSEN,
         "{router_group_topk} %" PRIu64 ": at most %u with {dispatcher} flex", chosen, MAX_CHOSEN);
    RULE(config->experts_per_token >= chosen &&
             config->experts_per_token <= config->num_experts / groups * chosen,
         "{experts_per_token} %" PRIu64 ": {router_group_topk} %" PRIu64
         " groups have at least one each, and %" PRIu64 " in all",
         config->experts_per_token, chosen, config->num_experts / groups * chosen);
    return PST_OK;
}

static pst_status check_experts(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    if (config->num_experts == 0) {
        RULE(config->expert_parallel == 1 && config->is_moe == NULL,
             "{expert_parallel} %" PRIu64 "%s: {num_experts} is 0", config->expert_parallel,
             config->is_moe ? " and {is_moe}" : "");
        return PST_OK;
    }
    const named sizes[] = {NAMED(experts_per_token), NAMED(expert_ffn_size)};
    PSTI_TRY(check_present(sizes, sizeof(sizes) / sizeof(sizes[0]), fault));
    PSTI_TRY(check_rows(config, fault));
    PSTI_TRY(check_pages_glu(config, fault));
    RULE(config->moe_rows != PST_MOE_PAGED || config->recompute_layers == 0,
         "{moe_rows} paged: {recompute_layers} %" PRIu64 " leaves no rows to page",
         config->recompute_layers);
    RULE(config->moe_rows != PST_MOE_PAGED || (config->recompute & PST_RECOMPUTE_MOE) == 0,
         "{moe_rows} paged: {recompute} %#x leaves no rows to page", config->recompute);
    RULE(config->experts_per_token <= config->num_experts,
         "{experts_per_token} %" PRIu64 ": {num_experts} is %" PRIu64, config->experts_per_token,
         config->num_experts);
    PSTI_TRY(check_router(config, fault));
    CHECK_MULTIPLE(num_experts, expert_parallel);
    CHECK_MULTIPLE(expert_ffn_size, expert_tensor_parallel);
    CHECK_MULTIPLE(shared_ffn_size, tensor_parallel);
    RULE(!config->has_linear_bias || config->expert_tensor_parallel == 1,
         "{has_linear_bias} with {num_experts} %" PRIu64 ": {expert_tensor_parallel} %" PRIu64
         " must be 1",
         config->num_experts, config->expert_tensor_parallel);
    RULE(!config->has_linear_bias || config->shared_ffn_size == 0,
         "{has_linear_bias}: shared experts ({shared_ffn_size} %" PRIu64 ") have no biases here",
         config->shared_ffn_size);
    RULE(config->tensor_parallel == 1 || config->sequence_parallel,
         "{num_experts} %" PRIu64 " and {tensor_parallel} %" PRIu64 ": need {sequence_parallel}",
         config->num_experts, config->tensor_parallel);
    return PST_OK;
}

pst_status psti_check_split_limits(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    const named sizes[] = {NAMED(tensor_parallel), NAMED(pipeline_parallel),
                           NAMED(context_parallel), NAMED(expert_parallel),
                           NAMED(expert_tensor_parallel)};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        RULE(sizes[i].value <= MAX_PARALLEL, "{%s} %" PRIu64 ": at most %" PRIu64, sizes[i].name,
             sizes[i].value, MAX_PARALLEL);
    return PST_OK;
}

static pst_status check_world(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    const uint64_t dense =
        config->tensor_parallel * config->pipeline_parallel * config->context_parallel;
    RULE(config->world_size <= MAX_WORLD, "{world_size} %" PRIu64 ": at most %" PRIu64,
         config->world_size, MAX_WORLD);
    RULE(config->world_size % dense == 0,
         "{world_size} %" PRIu64 ": must be a multiple of {tensor_parallel} %" PRIu64
         " * {pipeline_parallel} %" PRIu64 " * {context_parallel} %" PRIu64,
         config->world_size, config->tensor_parallel, config->pipeline_parallel,
         config->context_parallel);
    const uint64_t experts =
        config->expert_tensor_parallel * config->expert_parallel * config->pipeline_parallel;
    RULE(config->num_experts == 0 || config->world_size % experts == 0,
         "{world_size} %" PRIu64 ": must be a multiple of {expert_tensor_parallel} %" PRIu64
         " * {expert_parallel} %" PRIu64 " * {pipeline_parallel} %" PRIu64,
         config->world_size, config->expert_tensor_parallel, config->expert_parallel,
         config->pipeline_parallel);
    const uint64_t replicas = config->world_size / dense;
    const uint64_t step = psti_times(config->micro_batch, replicas);
    RULE(step != PSTI_TOO_MUCH,
         "{micro_batch} %" PRIu64 ": with data parallel %" PRIu64 " exceeds 64 bits",
         config->micro_batch, replicas);
    RULE(config->global_batch % step == 0,
         "{global_batch} %" PRIu64 ": must be a multiple of {micro_batch} %" PRIu64
         " * data parallel %" PRIu64,
         config->global_batch, config->micro_batch, replicas);
    return PST_OK;
}

/* layers are at most 4096, so that no product or sum of theirs wraps */
static pst_status check_layers(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    RULE(config->num_layers <= PST_ESTIMATE_MAX_LAYERS, "{num_layers} %" PRIu64 ": at most %u",
         config->num_layers, PST_ESTIMATE_MAX_LAYERS);
    RULE(config->mtp_layers <= PST_ESTIMATE_MAX_LAYERS, "{mtp_layers} %" PRIu64 ": at most %u",
         config->mtp_layers, PST_ESTIMATE_MAX_LAYERS);
    RULE(config->virtual_stages <= config->num_layers,
         "{virtual_stages} %" PRIu64 ": {num_layers} is %" PRIu64, config->virtual_stages,
         config->num_layers);
    RULE(config->virtual_stages == 1 || config->pipeline_parallel > 1,
         "{virtual_stages} %" PRIu64 ": {pipeline_parallel} is 1", config->virtual_stages);
    const uint64_t num_chunks = config->pipeline_parallel * config->virtual_stages;
    if (config->chunk_layers == NULL) {
        RULE(config->num_layers % num_chunks == 0,
             "{num_layers} %" PRIu64 ": must be a multiple of {pipeline_parallel} %" PRIu64
             " * {virtual_stages} %" PRIu64,
             config->num_layers, config->pipeline_parallel, config->virtual_stages);
        return PST_OK;
    }
    uint64_t sum = 0;
    for (uint64_t i = 0; i < num_chunks; i++)
        sum = psti_plus(sum, config->chunk_layers[i]);
    RULE(sum == config->num_layers,
         "{chunk_layers}: add up to %" PRIu64 ", {num_layers} is %" PRIu64, sum,
         config->num_layers);
    return PST_OK;
}

/* Of a checked world and checked layers. */
static pst_status check_schedule(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    if (config->virtual_stages == 1)
        return PST_OK;
    const uint64_t group = config->micro_batch_group_size;
    RULE(group >= config->pipeline_parallel,
         "{micro_batch_group_size} %" PRIu64 ": {pipeline_parallel} is %" PRIu64, group,
         config->pipeline_parallel);
    RULE(psti_times(group, config->virtual_stages) <= MAX_TURNS,
         "{micro_batch_group_size} %" PRIu64 " * {virtual_stages} %" PRIu64 ": at most %" PRIu64,
         group, config->virtual_stages, MAX_TURNS);
    const uint64_t num = psti_num_micro_batches(config);
    RULE(num % group == 0,
         "{global_batch} %" PRIu64 ": its %" PRIu64
         " micro-batches must be a multiple of {micro_batch_group_size} %" PRIu64,
         config->global_batch, num, group);
    return PST_OK;
}

static pst_status check_sizes(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    RULE(config->padded_vocab_size >= config->vocab_size,
         "{padded_vocab_size} %" PRIu64 ": {vocab_size} is %" PRIu64, config->padded_vocab_size,
         config->vocab_size);
    RULE(config->padded_vocab_size != PSTI_TOO_MUCH,
         "{vocab_size} %" PRIu64 ": too large to be padded", config->vocab_size);
    CHECK_MULTIPLE(padded_vocab_size, tensor_parallel);
    CHECK_MULTIPLE(ffn_size, tensor_parallel);
    if (config->mtp_layers != 0) /* whose projection is cut by its outputs */
        CHECK_MULTIPLE(hidden_size, tensor_parallel);
    CHECK_MULTIPLE(sequence_size, context_parallel);
    RULE(config->context_parallel == 1 || config->has_flash_attention,
         "{context_parallel} %" PRIu64 ": needs {has_flash_attention}", config->context_parallel);
    const uint64_t part = config->sequence_size / config->context_parallel;
    RULE(!config->sequence_parallel || part % config->tensor_parallel == 0,
         "{sequence_size} %" PRIu64 ": must be a multiple of {context_parallel} %" PRIu64
         " * {tensor_parallel} %" PRIu64 " ({sequence_parallel})",
         config->sequence_size, config->context_parallel, config->tensor_parallel);
    return PST_OK;
}

static pst_status check_dense_layers(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    for (uint64_t i = 0; i < config->num_layers && config->ffn_size == 0; i++)
        RULE(psti_estimate_has_moe(config, i), "{ffn_size} 0: layer %" PRIu64 " is dense", i);
    return PST_OK;
}

pst_status psti_check_rules(const pst_estimate_config *config, pst_estimate_fault *fault)
{
    PSTI_TRY(check_fp8(config, fault));
    PSTI_TRY(check_sharding(config, fault));
    PSTI_TRY(check_offload(config, fault));
    PSTI_TRY(check_states(config, fault));
    PSTI_TRY(check_attention(config, fault));
    PSTI_TRY(check_experts(config, fault));
    PSTI_TRY(check_world(config, fault));
    PSTI_TRY(check_layers(config, fault));
    PSTI_TRY(check_schedule(config, fault));
    PSTI_TRY(check_dense_layers(config, fault));
    return check_sizes(config, fault);
}
