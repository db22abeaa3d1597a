/* Hugging Face's config.json, which anybody may have written. */
#include "tools/estimate/estimate_flags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

typedef struct source {
    const char *path;
    const json_t *object;
    estimate_options *options;
    pst_estimate_config *config;
} source;

/* ---- values ---- */

static int refuse(const source *from, const char *key, const char *allowed)
{
    const json_t *value = json_object_get(from->object, key);
    if (value == NULL)
        return tool_fail(TOOL_INPUT, "%s: %s: missing: allowed is %s", from->path, key, allowed);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    const int code = tool_fail(TOOL_INPUT, "%s: %s %.60s: allowed is %s", from->path, key,
                               text != NULL ? text : "?", allowed);
    free(text);
    return code;
}

static bool is_absent(const source *from, const char *key)
{
    const json_t *value = json_object_get(from->object, key);
    return value == NULL || json_is_null(value);
}

/* What a key may be; a rate is a dropout, of which counts whether there is one. */
typedef enum value_form { FROM_0, FROM_1, SWITCH, RATE } value_form;

/* Leaves what stands there where the file says nothing. */
static int take_value(const source *from, const char *key, value_form form, uint64_t *out)
{
    static const char *const allowed[] = {"an integer 0..9223372036854775807",
                                          "an integer 1..9223372036854775807", "true or false",
                                          "a number from 0, below 1"};
    const json_t *value = json_object_get(from->object, key);
    const double number = json_number_value(value);
    const bool is_right =
        form == SWITCH ? json_is_boolean(value)
        : form == RATE ? json_is_number(value) && number >= 0 && number < 1
                       : json_is_integer(value) && json_integer_value(value) >= (json_int_t)form;
    if (is_absent(from, key))
        return TOOL_OK;
    if (!is_right)
        return refuse(from, key, allowed[form]);
    *out = form == SWITCH ? json_is_true(value)
           : form == RATE ? number > 0
                          : (uint64_t)json_integer_value(value);
    return TOOL_OK;
}

/* ---- members, by the keys of their rows ---- */

static int take_member(const source *from, estimate_id id, bool is_needed)
{
    char text[ESTIMATE_WORD];
    const estimate_row *row = &estimate_rows[id];
    const char *found = estimate_key(row, from->object, text);
    const char *key = found != NULL ? found : estimate_word(row->words, 0, text);
    uint64_t value = estimate_value(from->config, id);
    const value_form form = row->type == ESTIMATE_IS_WHOLE  ? FROM_1
                            : row->kind == ESTIMATE_DECIMAL ? RATE
                                                            : SWITCH;
    if (is_needed && is_absent(from, key))
        return refuse(from, key, "an integer 1..9223372036854775807");
    TOOL_TRY(take_value(from, key, form, &value));
    estimate_set(from->config, id, value);
    return TOOL_OK;
}

/* The first num_needed of the ids must be there. */
static int take_members(const source *from, const estimate_id *ids, size_t num, size_t num_needed)
{
    for (size_t i = 0; i < num; i++)
        TOOL_TRY(take_member(from, ids[i], i < num_needed));
    return TOOL_OK;
}

#define TAKE_MEMBERS(from, num_needed, ...)                                                 \
    TOOL_TRY(take_members((from), (const estimate_id[]){__VA_ARGS__},                       \
                          sizeof((const estimate_id[]){__VA_ARGS__}) / sizeof(estimate_id), \
                          (num_needed)))

/* ---- kinds of models ---- */

typedef enum bias {
    BIAS_NOTED, /* attention_bias adds one at the output too, which is not counted */
    BIAS_TAKEN, /* attention_bias has none there */
    BIAS_NEVER,
    BIAS_ALWAYS,
} bias;

typedef enum place {
    NO_LAYER,
    EVERY_LAYER, /* has experts, and none is dense */
    SPARSE,      /* decoder_sparse_step, without mlp_only_layers */
    FROM_FIRST,  /* first_k_dense_replace; shared experts too */
    STEPPED,     /* interleave_moe_layer_step; a shared expert as wide as the others */
} place;

/* RMSNorm, a gated activation, heads in groups; and what else. */
typedef struct kind {
    const char *type, *not_counted;
    uint64_t head_size; /* where the file has none; 0: hidden_size / heads */
    bias bias;
    place experts;
    pst_qk_norm qk_norm;
    bool has_shared_gate, has_router_bias, has_latents;
    bool asks_norm;      /* use_qk_norm */
    bool is_gpt2;        /* which has nothing of these */
    const char *refused; /* what is not modelled of one that is known */
} kind;

static const kind kinds[] = {
    {"llama", NULL, 0, BIAS_NOTED, NO_LAYER, .has_latents = false},
    {"mistral", NULL, 0, BIAS_NEVER, NO_LAYER, .has_latents = false},
    {"mixtral", NULL, 0, BIAS_NEVER, EVERY_LAYER, .has_latents = false},
    {"qwen2", NULL, 0, BIAS_ALWAYS, NO_LAYER, .has_latents = false},
    {"qwen2_moe", NULL, 0, BIAS_ALWAYS, SPARSE, .has_shared_gate = true},
    {"qwen3", NULL, 128, BIAS_NOTED, NO_LAYER, PST_QK_NORM_HEAD, .has_latents = false},
    {"qwen3_moe", NULL, 0, BIAS_NOTED, SPARSE, PST_QK_NORM_HEAD, .has_latents = false},
    {"deepseek_v2", NULL, 0, BIAS_TAKEN, FROM_FIRST, .has_latents = true},
    {"deepseek_v3", NULL, 0, BIAS_TAKEN, FROM_FIRST, .has_latents = true, .has_router_bias = true},
    {"kimi_k2", NULL, 0, BIAS_TAKEN, FROM_FIRST, .has_latents = true, .has_router_bias = true},
    {"glm4_moe", NULL, 0, BIAS_TAKEN, FROM_FIRST, .has_router_bias = true, .asks_norm = true},
    {"olmo2", NULL, 0, BIAS_NOTED, NO_LAYER, PST_QK_NORM_PROJECTION, .has_latents = false},
    {"olmoe", NULL, 0, BIAS_NOTED, EVERY_LAYER, PST_QK_NORM_PROJECTION, .has_latents = false},
    {"gpt_oss", "biases of experts and routers, and attention's sinks", 64, BIAS_NOTED, EVERY_LAYER,
     .has_latents = false},
    {"llama4_text", "norms of queries and keys, which have no weights", 0, BIAS_NOTED, STEPPED,
     .has_latents = false},
    {"gpt2", .is_gpt2 = true},
    {"gemma2", .refused = "its two more norms in each layer"},
    {"gemma3_text", .refused = "its two more norms in each layer"},
    {"qwen3_next", .refused = "its layers of linear attention"},
};
enum { NUM_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static int take_model(const source *from)
{
    uint64_t mlp_bias = 0;
    from->config->norm = PST_NORM_RMS;
    from->config->is_gated = true;
    TAKE_MEMBERS(from, 5, ESTIMATE_num_layers, ESTIMATE_hidden_size, ESTIMATE_num_attention_heads,
                 ESTIMATE_vocab_size, ESTIMATE_ffn_hidden_size, ESTIMATE_num_query_groups,
                 ESTIMATE_kv_channels, ESTIMATE_attention_dropout, ESTIMATE_add_qkv_bias,
                 ESTIMATE_untie_embeddings_and_output_weights);
    TOOL_TRY(take_value(from, "max_position_embeddings", FROM_1, &from->options->model_positions));
    TOOL_TRY(take_value(from, "mlp_bias", SWITCH, &mlp_bias));
    if (mlp_bias != 0)
        estimate_note(&from->options->unmodelled, "mlp_bias true of %s", from->path);
    return TOOL_OK;
}

static int take_gpt2(const source *from)
{
    pst_estimate_config *config = from->config;
    config->has_linear_bias = config->is_tied = true;
    config->has_hidden_dropout = config->has_attention_dropout = true;
    TAKE_MEMBERS(from, 5, ESTIMATE_num_layers, ESTIMATE_hidden_size, ESTIMATE_num_attention_heads,
                 ESTIMATE_vocab_size, ESTIMATE_max_position_embeddings, ESTIMATE_ffn_hidden_size,
                 ESTIMATE_hidden_dropout, ESTIMATE_attention_dropout,
                 ESTIMATE_untie_embeddings_and_output_weights);
    from->options->model_positions = config->max_positions;
    if (config->hidden_size > INT64_MAX / 4)
        return refuse(from, "n_embd", "an integer below 2^61");
    if (config->ffn_size == 0)
        config->ffn_size = 4 * config->hidden_size;
    return TOOL_OK;
}

static void take_bias(const source *from, bias of)
{
    bool *has_bias = &from->config->has_qkv_bias;
    if (of == BIAS_NEVER || of == BIAS_ALWAYS)
        *has_bias = of == BIAS_ALWAYS;
    if (of == BIAS_NOTED && *has_bias)
        estimate_note(&from->options->unmodelled,
                      "attention_bias true of %s: the output's bias (those of queries, keys and "
                      "values count)",
                      from->path);
}

static int take_latents(const source *from)
{
    if (from->config->has_qkv_bias)
        return refuse(from, "attention_bias", "false, where kv_lora_rank is given");
    from->config->head_size = 0;
    TAKE_MEMBERS(from, 3, ESTIMATE_kv_lora_rank, ESTIMATE_qk_head_dim, ESTIMATE_v_head_dim,
                 ESTIMATE_q_lora_rank, ESTIMATE_qk_pos_emb_head_dim);
    return TOOL_OK;
}

/* ---- experts ---- */

typedef struct placement {
    uint64_t first, every, shift; /* layers from first, where (layer + shift) % every is 0 */
    const json_t *without;        /* an array of layers, or NULL */
} placement;

static int place_experts(const source *from, const placement *where)
{
    const uint64_t num_layers = from->config->num_layers;
    bool *is_moe = from->options->is_moe;
    for (uint64_t i = 0; i < num_layers; i++)
        is_moe[i] = i >= where->first && (i + where->shift) % where->every == 0;
    bool is_right = where->without == NULL || json_is_array(where->without);
    for (size_t i = 0; is_right && i < json_array_size(where->without); i++) {
        const json_t *layer = json_array_get(where->without, i);
        const json_int_t index = json_is_integer(layer) ? json_integer_value(layer) : -1;
        is_right = index >= 0 && (uint64_t)index < num_layers;
        if (is_right)
            is_moe[index] = false;
    }
    if (!is_right)
        return refuse(from, "mlp_only_layers", "a list of layers below num_hidden_layers");
    estimate_use_layers(from->options);
    return TOOL_OK;
}

/* In layers from first_k_dense_replace on, and shared ones. */
static int take_from_first(const source *from, placement *where)
{
    pst_estimate_config *config = from->config;
    uint64_t shared = 0;
    where->shift = 0;
    TOOL_TRY(take_value(from, "n_shared_experts", FROM_0, &shared));
    TOOL_TRY(take_value(from, "first_k_dense_replace", FROM_0, &where->first));
    TOOL_TRY(take_value(from, "moe_layer_freq", FROM_1, &where->every));
    TAKE_MEMBERS(from, 0, ESTIMATE_moe_router_num_groups, ESTIMATE_moe_router_group_topk);
    TOOL_TRY(
        take_value(from, "num_nextn_predict_layers", FROM_0, &from->options->model_mtp_layers));
    if (!__builtin_mul_overflow(shared, config->expert_ffn_size, &config->shared_ffn_size))
        return TOOL_OK;
    return tool_fail(TOOL_INPUT,
                     "%s: n_shared_experts %llu * moe_intermediate_size %llu: beyond 64 bits",
                     from->path, (ull)shared, (ull)config->expert_ffn_size);
}

static int take_experts(const source *from, const kind *of)
{
    pst_estimate_config *config = from->config;
    placement where = {.every = 1, .shift = 1};
    if (of->experts == NO_LAYER ||
        (of->experts == FROM_FIRST && is_absent(from, "n_routed_experts")))
        return TOOL_OK;
    TAKE_MEMBERS(from, 3, ESTIMATE_num_experts, ESTIMATE_moe_router_topk,
                 ESTIMATE_moe_ffn_hidden_size);
    if (of->has_shared_gate)
        TOOL_TRY(take_member(from, ESTIMATE_moe_shared_expert_intermediate_size, true));
    config->has_shared_gate = of->has_shared_gate;
    config->has_router_bias = of->has_router_bias;
    if (of->experts == EVERY_LAYER || of->experts == STEPPED)
        config->expert_ffn_size = config->ffn_size;
    if (of->experts == SPARSE)
        TOOL_TRY(take_value(from, "decoder_sparse_step", FROM_1, &where.every));
    if (of->experts == SPARSE && !is_absent(from, "mlp_only_layers"))
        where.without = json_object_get(from->object, "mlp_only_layers");
    if (of->experts == FROM_FIRST)
        TOOL_TRY(take_from_first(from, &where));
    if (of->experts == STEPPED) {
        config->shared_ffn_size = config->ffn_size;
        TOOL_TRY(take_value(from, "interleave_moe_layer_step", FROM_1, &where.every));
        TOOL_TRY(take_value(from, "intermediate_size_mlp", FROM_1, &config->ffn_size));
    }
    TOOL_TRY(place_experts(from, &where));
    if (config->is_moe == NULL && of->experts != FROM_FIRST)
        config->ffn_size = 0; /* no layer is dense */
    return TOOL_OK;
}

/* ---- the file ---- */

static int take_kind(const source *from, const kind *of)
{
    pst_estimate_config *config = from->config;
    uint64_t has_norm = 0;
    TOOL_TRY(take_model(from));
    if (config->head_size == 0)
        config->head_size = of->head_size;
    if (of->has_latents)
        TOOL_TRY(take_latents(from));
    take_bias(from, of->bias);
    if (of->asks_norm)
        TOOL_TRY(take_value(from, "use_qk_norm", SWITCH, &has_norm));
    config->qk_norm = has_norm != 0 ? PST_QK_NORM_HEAD : of->qk_norm;
    if (of->not_counted != NULL)
        estimate_note(&from->options->unmodelled, "of %s: %s", from->path, of->not_counted);
    if (config->num_layers <= PST_ESTIMATE_MAX_LAYERS)
        return take_experts(from, of);
    return tool_fail(TOOL_INPUT, "%s: num_hidden_layers %llu: at most %u", from->path,
                     (ull)config->num_layers, PST_ESTIMATE_MAX_LAYERS);
}

int estimate_hf(const json_t *object, estimate_options *options)
{
    const source from = {options->hf_config, object, options, &options->config};
    char allowed[512] = "";
    const char *type = json_string_value(json_object_get(object, "model_type"));
    for (const kind *of = kinds; of < kinds + NUM_KINDS; of++) {
        const size_t length = strlen(allowed);
        const bool is_it = type != NULL && strcmp(type, of->type) == 0;
        if (is_it && of->refused != NULL)
            return tool_fail(TOOL_INPUT, "%s: model_type \"%s\": %s are not modelled", from.path,
                             type, of->refused);
        if (is_it)
            return of->is_gpt2 ? take_gpt2(&from) : take_kind(&from, of);
        if (of->refused == NULL)
            snprintf(allowed + length, sizeof(allowed) - length, "%s%s", length > 0 ? ", " : "",
                     of->type);
    }
    return refuse(&from, "model_type", allowed);
}
