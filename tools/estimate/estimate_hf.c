/* Hugging Face's config.json, which anybody may have written. */
#include "tools/estimate/estimate_flags.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;
typedef pst_estimate_config config_type;

typedef struct source {
    const char *path;
    const json_t *object;
    estimate_options *options;
    estimate_model *model;
} source;

/* ---- fields ---- */

static int refuse(const source *from, const char *field, const char *allowed)
{
    const json_t *value = json_object_get(from->object, field);
    if (value == NULL)
        return tool_fail(TOOL_INPUT, "%s: %s: missing: allowed is %s", from->path, field, allowed);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    const int code = tool_fail(TOOL_INPUT, "%s: %s %.60s: allowed is %s", from->path, field,
                               text != NULL ? text : "?", allowed);
    free(text);
    return code;
}

static bool is_absent(const source *from, const char *field)
{
    const json_t *value = json_object_get(from->object, field);
    return value == NULL || json_is_null(value);
}

static int take_count(const source *from, const char *field, uint64_t fallback, uint64_t *out)
{
    const json_t *value = json_object_get(from->object, field);
    *out = fallback;
    if (is_absent(from, field))
        return TOOL_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return refuse(from, field, "an integer 0..9223372036854775807");
    *out = (uint64_t)json_integer_value(value);
    return TOOL_OK;
}

static int take_size(const source *from, const char *field, uint64_t *out)
{
    const json_t *value = json_object_get(from->object, field);
    if (!json_is_integer(value) || json_integer_value(value) < 1)
        return refuse(from, field, "an integer 1..9223372036854775807");
    *out = (uint64_t)json_integer_value(value);
    return TOOL_OK;
}

/* A size that need not be there. */
static int take_optional(const source *from, const char *field, uint64_t fallback, uint64_t *out)
{
    *out = fallback;
    return is_absent(from, field) ? TOOL_OK : take_size(from, field, out);
}

static int take_bool(const source *from, const char *field, bool fallback, bool *out)
{
    const json_t *value = json_object_get(from->object, field);
    *out = fallback;
    if (is_absent(from, field))
        return TOOL_OK;
    if (!json_is_boolean(value))
        return refuse(from, field, "true or false");
    *out = json_is_true(value);
    return TOOL_OK;
}

/* A dropout: whether there is one. */
static int take_rate(const source *from, const char *field, double fallback, bool *out)
{
    const json_t *value = json_object_get(from->object, field);
    *out = fallback > 0;
    if (is_absent(from, field))
        return TOOL_OK;
    const double rate = json_number_value(value);
    if (!json_is_number(value) || !(rate >= 0 && rate < 1))
        return refuse(from, field, "a number from 0, below 1");
    *out = rate > 0;
    return TOOL_OK;
}

/* ---- kinds of models ---- */

typedef enum bias {
    BIAS_NOTED, /* attention_bias adds one at the output too, which is not counted */
    BIAS_TAKEN, /* attention_bias has none there */
    BIAS_NEVER,
    BIAS_ALWAYS,
} bias;

typedef enum place {
    EVERY_LAYER, /* has experts, and none is dense */
    SPARSE,      /* decoder_sparse_step, without mlp_only_layers */
    FROM_FIRST,  /* first_k_dense_replace; shared experts too */
} place;

/* RMSNorm, a gated activation, heads in groups; and what else. */
typedef struct kind {
    const char *type;
    bias bias;
    pst_qk_norm qk_norm;
    uint64_t head_size;          /* where the file has none; 0: hidden_size / heads */
    const char *experts, *width; /* their keys; NULL: no experts */
    place place;
    bool has_shared_gate, has_router_bias, has_latents;
    bool asks_norm; /* use_qk_norm */
} kind;

static const kind kinds[] = {
    {"llama", BIAS_NOTED, .experts = NULL},
    {"mistral", BIAS_NEVER, .experts = NULL},
    {"mixtral", BIAS_NEVER, .experts = "num_local_experts", .width = "intermediate_size"},
    {"qwen2", BIAS_ALWAYS, .experts = NULL},
    {"qwen2_moe", BIAS_ALWAYS, .experts = "num_experts", .width = "moe_intermediate_size",
     .place = SPARSE, .has_shared_gate = true},
    {"qwen3", BIAS_NOTED, PST_QK_NORM_HEAD, 128, .experts = NULL},
    {"qwen3_moe", BIAS_NOTED, PST_QK_NORM_HEAD, .experts = "num_experts",
     .width = "moe_intermediate_size", .place = SPARSE},
    {"deepseek_v2", BIAS_TAKEN, .experts = "n_routed_experts", .width = "moe_intermediate_size",
     .place = FROM_FIRST, .has_latents = true},
    {"deepseek_v3", BIAS_TAKEN, .experts = "n_routed_experts", .width = "moe_intermediate_size",
     .place = FROM_FIRST, .has_latents = true, .has_router_bias = true},
    {"kimi_k2", BIAS_TAKEN, .experts = "n_routed_experts", .width = "moe_intermediate_size",
     .place = FROM_FIRST, .has_latents = true, .has_router_bias = true},
    {"glm4_moe", BIAS_TAKEN, .experts = "n_routed_experts", .width = "moe_intermediate_size",
     .place = FROM_FIRST, .has_router_bias = true, .asks_norm = true},
    {"olmo2", BIAS_NOTED, PST_QK_NORM_PROJECTION, .experts = NULL},
    {"olmoe", BIAS_NOTED, PST_QK_NORM_PROJECTION, .experts = "num_experts",
     .width = "intermediate_size"},
    {"gpt2", .experts = NULL}, /* take_gpt2 */
};
enum { NUM_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* ---- sizes ---- */

static int take_layers(const source *from, const char *field)
{
    config_type *config = &from->model->config;
    TOOL_TRY(take_size(from, field, &config->num_layers));
    if (config->num_layers > PST_ESTIMATE_MAX_LAYERS)
        return tool_fail(TOOL_INPUT, "%s: %s %llu: at most %u", from->path, field,
                         (ull)config->num_layers, PST_ESTIMATE_MAX_LAYERS);
    return TOOL_OK;
}

/* RMSNorm, a gated activation, heads in groups; no biases but those of attention_bias. */
static int take_llama(const source *from)
{
    config_type *config = &from->model->config;
    bool mlp_bias;
    config->norm = PST_NORM_RMS;
    config->is_gated = true;
    TOOL_TRY(take_layers(from, "num_hidden_layers"));
    TOOL_TRY(take_size(from, "hidden_size", &config->hidden_size));
    TOOL_TRY(take_size(from, "num_attention_heads", &config->num_heads));
    TOOL_TRY(take_size(from, "vocab_size", &config->vocab_size));
    TOOL_TRY(take_size(from, "intermediate_size", &config->ffn_size));
    TOOL_TRY(take_optional(from, "num_key_value_heads", config->num_heads, &config->num_kv_heads));
    TOOL_TRY(take_optional(from, "head_dim", 0, &config->head_size));
    TOOL_TRY(take_optional(from, "max_position_embeddings", 0, &from->model->max_positions));
    TOOL_TRY(take_rate(from, "attention_dropout", 0, &config->has_attention_dropout));
    TOOL_TRY(take_bool(from, "tie_word_embeddings", false, &config->is_tied));
    TOOL_TRY(take_bool(from, "attention_bias", false, &config->has_qkv_bias));
    TOOL_TRY(take_bool(from, "mlp_bias", false, &mlp_bias));
    if (!mlp_bias)
        return TOOL_OK;
    return estimate_note(&from->options->unmodelled, "mlp_bias true of %s", from->path);
}

static int take_bias(const source *from, bias of)
{
    config_type *config = &from->model->config;
    if (of == BIAS_NEVER || of == BIAS_ALWAYS)
        config->has_qkv_bias = of == BIAS_ALWAYS;
    if (of != BIAS_NOTED || !config->has_qkv_bias)
        return TOOL_OK;
    return estimate_note(&from->options->unmodelled,
                         "attention_bias true of %s: the output's bias (those of queries, keys and "
                         "values count)",
                         from->path);
}

static int take_latents(const source *from)
{
    config_type *config = &from->model->config;
    if (config->has_qkv_bias)
        return refuse(from, "attention_bias", "false, where kv_lora_rank is given");
    config->head_size = 0;
    TOOL_TRY(take_optional(from, "q_lora_rank", 0, &config->q_rank));
    TOOL_TRY(take_size(from, "kv_lora_rank", &config->kv_rank));
    TOOL_TRY(take_size(from, "qk_nope_head_dim", &config->qk_size));
    TOOL_TRY(take_optional(from, "qk_rope_head_dim", 0, &config->qk_position_size));
    return take_size(from, "v_head_dim", &config->v_size);
}

/* ---- experts ---- */

typedef struct placement {
    uint64_t first, every, shift; /* layers from first, where (layer + shift) % every is 0 */
    const json_t *without;        /* an array of layers, or NULL */
} placement;

static int place_experts(const source *from, const placement *where)
{
    config_type *config = &from->model->config;
    bool *is_moe = calloc(config->num_layers, sizeof(*is_moe));
    if (is_moe == NULL)
        return tool_fail(TOOL_NO, "out of memory for %llu layers", (ull)config->num_layers);
    config->is_moe = is_moe;
    uint64_t num_moe = 0;
    for (uint64_t i = 0; i < config->num_layers; i++)
        is_moe[i] = i >= where->first && (i + where->shift) % where->every == 0;
    for (size_t i = 0; i < json_array_size(where->without); i++) {
        const json_t *layer = json_array_get(where->without, i);
        const json_int_t index = json_is_integer(layer) ? json_integer_value(layer) : -1;
        if (index < 0 || (uint64_t)index >= config->num_layers)
            return refuse(from, "mlp_only_layers", "a list of layers below num_hidden_layers");
        is_moe[index] = false;
    }
    for (uint64_t i = 0; i < config->num_layers; i++)
        num_moe += is_moe[i];
    if (num_moe < config->num_layers)
        return TOOL_OK;
    free(is_moe);
    config->is_moe = NULL;
    return TOOL_OK;
}

static int take_sparse_steps(const source *from)
{
    placement where = {.shift = 1};
    TOOL_TRY(take_optional(from, "decoder_sparse_step", 1, &where.every));
    if (!is_absent(from, "mlp_only_layers"))
        where.without = json_object_get(from->object, "mlp_only_layers");
    if (where.without != NULL && !json_is_array(where.without))
        return refuse(from, "mlp_only_layers", "a list of layers below num_hidden_layers");
    TOOL_TRY(place_experts(from, &where));
    if (from->model->config.is_moe == NULL)
        from->model->config.ffn_size = 0; /* no layer is dense */
    return TOOL_OK;
}

/* In layers from first_k_dense_replace on, and shared ones. */
static int take_from_first(const source *from)
{
    config_type *config = &from->model->config;
    placement where = {.first = 0};
    uint64_t shared;
    TOOL_TRY(take_count(from, "n_shared_experts", 0, &shared));
    TOOL_TRY(take_count(from, "first_k_dense_replace", 0, &where.first));
    TOOL_TRY(take_optional(from, "moe_layer_freq", 1, &where.every));
    TOOL_TRY(take_count(from, "num_nextn_predict_layers", 0, &from->model->mtp_layers));
    if (__builtin_mul_overflow(shared, config->expert_ffn_size, &config->shared_ffn_size))
        return tool_fail(TOOL_INPUT,
                         "%s: n_shared_experts %llu * moe_intermediate_size %llu: "
                         "beyond 64 bits",
                         from->path, (ull)shared, (ull)config->expert_ffn_size);
    return place_experts(from, &where);
}

static int take_experts(const source *from, const kind *of)
{
    config_type *config = &from->model->config;
    if (of->experts == NULL || (of->place == FROM_FIRST && is_absent(from, of->experts)))
        return TOOL_OK;
    TOOL_TRY(take_size(from, of->experts, &config->num_experts));
    TOOL_TRY(take_size(from, "num_experts_per_tok", &config->experts_per_token));
    TOOL_TRY(take_size(from, of->width, &config->expert_ffn_size));
    if (of->has_shared_gate)
        TOOL_TRY(take_size(from, "shared_expert_intermediate_size", &config->shared_ffn_size));
    config->has_shared_gate = of->has_shared_gate;
    config->has_router_bias = of->has_router_bias;
    if (of->place == SPARSE)
        return take_sparse_steps(from);
    if (of->place == FROM_FIRST)
        return take_from_first(from);
    config->ffn_size = 0;
    return TOOL_OK;
}

static int take_kind(const source *from, const kind *of)
{
    config_type *config = &from->model->config;
    bool has_norm = false;
    TOOL_TRY(take_llama(from));
    config->head_size = config->head_size != 0 ? config->head_size : of->head_size;
    if (of->has_latents)
        TOOL_TRY(take_latents(from));
    TOOL_TRY(take_bias(from, of->bias));
    config->qk_norm = of->qk_norm;
    if (of->asks_norm)
        TOOL_TRY(take_bool(from, "use_qk_norm", false, &has_norm));
    if (has_norm)
        config->qk_norm = PST_QK_NORM_HEAD;
    return take_experts(from, of);
}

static int take_gpt2(const source *from)
{
    config_type *config = &from->model->config;
    config->has_linear_bias = true;
    TOOL_TRY(take_layers(from, "n_layer"));
    TOOL_TRY(take_size(from, "n_embd", &config->hidden_size));
    TOOL_TRY(take_size(from, "n_head", &config->num_heads));
    TOOL_TRY(take_size(from, "vocab_size", &config->vocab_size));
    TOOL_TRY(take_size(from, "n_positions", &config->max_positions));
    from->model->max_positions = config->max_positions;
    if (config->hidden_size > INT64_MAX / 4)
        return refuse(from, "n_embd", "an integer below 2^61");
    TOOL_TRY(take_optional(from, "n_inner", 4 * config->hidden_size, &config->ffn_size));
    TOOL_TRY(take_rate(from, "resid_pdrop", 0.1, &config->has_hidden_dropout));
    TOOL_TRY(take_rate(from, "attn_pdrop", 0.1, &config->has_attention_dropout));
    return take_bool(from, "tie_word_embeddings", true, &config->is_tied);
}

/* ---- the file ---- */

static int read_object(const source *from)
{
    char allowed[256] = "";
    const char *type = json_string_value(json_object_get(from->object, "model_type"));
    for (int i = 0; i < NUM_KINDS; i++) {
        if (type != NULL && strcmp(type, kinds[i].type) == 0)
            return strcmp(type, "gpt2") == 0 ? take_gpt2(from) : take_kind(from, &kinds[i]);
        if (i > 0)
            strncat(allowed, ", ", sizeof(allowed) - strlen(allowed) - 1);
        strncat(allowed, kinds[i].type, sizeof(allowed) - strlen(allowed) - 1);
    }
    return refuse(from, "model_type", allowed);
}

int estimate_hf(const estimate_line *line, estimate_options *options, estimate_model *model_out)
{
    const source from = {estimate_text(line, ESTIMATE_F_HF_CONFIG), line->file, options, model_out};
    model_out->source = from.path;
    return read_object(&from);
}
