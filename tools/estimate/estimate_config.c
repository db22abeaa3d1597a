/* The resolved configuration of an estimate, field by field, as text and as JSON. */
#include "tools/estimate/estimate_report.h"

#include <stdio.h>
#include <string.h>

typedef enum kind {
    WHOLE,
    SWITCH,
    NORM,
    QK_NORM,
    TYPE,
    LOSS,
    ROWS,
    RECOMPUTE,
} kind;

typedef struct field {
    const char *group, *key;
    kind kind;
    size_t offset;
} field;

#define FIELD(group, kind, member)                                  \
    {                                                               \
        group, #member, kind, offsetof(pst_estimate_config, member) \
    }

static const field fields[] = {
    FIELD("model", WHOLE, num_layers),
    FIELD("model", WHOLE, hidden_size),
    FIELD("model", WHOLE, num_heads),
    FIELD("model", WHOLE, num_kv_heads),
    FIELD("model", WHOLE, head_size),
    FIELD("model", WHOLE, ffn_size),
    FIELD("model", WHOLE, vocab_size),
    FIELD("model", WHOLE, padded_vocab_size),
    FIELD("model", WHOLE, vocab_multiple),
    FIELD("model", WHOLE, max_positions),
    FIELD("model", NORM, norm),
    FIELD("model", QK_NORM, qk_norm),
    FIELD("model", SWITCH, is_gated),
    FIELD("model", SWITCH, has_linear_bias),
    FIELD("model", SWITCH, has_qkv_bias),
    FIELD("model", SWITCH, is_tied),
    FIELD("model", WHOLE, mtp_layers),
    FIELD("latent attention", WHOLE, q_rank),
    FIELD("latent attention", WHOLE, kv_rank),
    FIELD("latent attention", WHOLE, qk_size),
    FIELD("latent attention", WHOLE, qk_position_size),
    FIELD("latent attention", WHOLE, v_size),
    FIELD("experts", WHOLE, num_experts),
    FIELD("experts", WHOLE, experts_per_token),
    FIELD("experts", WHOLE, expert_ffn_size),
    FIELD("experts", WHOLE, shared_ffn_size),
    FIELD("experts", SWITCH, has_shared_gate),
    FIELD("experts", SWITCH, has_router_bias),
    FIELD("experts", WHOLE, latent_size),
    FIELD("split", WHOLE, world_size),
    FIELD("split", WHOLE, tensor_parallel),
    FIELD("split", WHOLE, pipeline_parallel),
    FIELD("split", WHOLE, virtual_stages),
    FIELD("split", WHOLE, context_parallel),
    FIELD("split", WHOLE, expert_parallel),
    FIELD("split", WHOLE, expert_tensor_parallel),
    FIELD("split", SWITCH, sequence_parallel),
    FIELD("split", SWITCH, distributed_optimizer),
    FIELD("split", WHOLE, micro_batch_group_size),
    FIELD("split", SWITCH, overlaps_exchange),
    FIELD("batch", WHOLE, sequence_size),
    FIELD("batch", WHOLE, micro_batch),
    FIELD("batch", WHOLE, global_batch),
    FIELD("batch", TYPE, type),
    FIELD("batch", WHOLE, gradient_width),
    FIELD("batch", WHOLE, optimizer_width),
    FIELD("batch", WHOLE, offload_num),
    FIELD("batch", WHOLE, offload_den),
    FIELD("saved", RECOMPUTE, recompute),
    FIELD("saved", WHOLE, recompute_layers),
    FIELD("saved", SWITCH, has_flash_attention),
    FIELD("saved", SWITCH, has_hidden_dropout),
    FIELD("saved", SWITCH, has_attention_dropout),
    FIELD("saved", SWITCH, fuses_activation),
    FIELD("saved", SWITCH, copies_attention),
    FIELD("saved", LOSS, loss),
    FIELD("saved", SWITCH, saves_inputs_fp8),
    FIELD("saved", SWITCH, applies_probs_late),
    FIELD("expert rows", ROWS, moe_rows),
    FIELD("expert rows", WHOLE, capacity_num),
    FIELD("expert rows", WHOLE, capacity_den),
    FIELD("expert rows", SWITCH, caps_each_expert),
    FIELD("expert rows", WHOLE, row_multiple),
    FIELD("expert rows", WHOLE, page_rows),
    FIELD("expert rows", WHOLE, page_bytes),
    FIELD("expert rows", WHOLE, headroom_num),
    FIELD("expert rows", WHOLE, headroom_den),
};
enum { NUM_FIELDS = sizeof(fields) / sizeof(fields[0]), LINE_WIDTH = 96 };

static const void *at(const pst_estimate_config *config, const field *of)
{
    return (const char *)config + of->offset;
}

static uint64_t whole_of(const pst_estimate_config *config, const field *of)
{
    return *(const uint64_t *)at(config, of);
}

static const char *word_of(const pst_estimate_config *config, const field *of)
{
    static const char *const norms[] = {"layer", "rms"};
    static const char *const qk_norms[] = {"none", "head", "projection"};
    static const char *const losses[] = {"unfused", "fused", "copied"};
    switch (of->kind) {
    case NORM:
        return norms[config->norm];
    case QK_NORM:
        return qk_norms[config->qk_norm];
    case TYPE:
        return estimate_type_name(config->type);
    case LOSS:
        return losses[config->loss];
    default:
        return estimate_rows_name(config->moe_rows);
    }
}

/* ---- text: what is not zero, off or absent */

static size_t recompute_text(uint32_t bits, char *out, size_t bytes)
{
    size_t used = (size_t)snprintf(out, bytes, "recompute");
    for (uint32_t bit = 1; bit <= PST_RECOMPUTE_ALL; bit *= 2)
        if ((bits & bit) != 0)
            used += (size_t)snprintf(out + used, bytes - used, " %s", estimate_recompute_name(bit));
    return bits == 0 ? 0 : used;
}

static size_t field_text(const pst_estimate_config *config, const field *of, char *out,
                         size_t bytes)
{
    const bool is_moe = strcmp(of->group, "expert rows") != 0 || config->num_experts != 0;
    if (!is_moe || (of->kind == WHOLE && whole_of(config, of) == 0) ||
        (of->kind == SWITCH && !*(const bool *)at(config, of)) ||
        (of->kind == QK_NORM && config->qk_norm == PST_QK_NORM_NONE))
        return 0;
    if (of->kind == WHOLE)
        return (size_t)snprintf(out, bytes, "%s %llu", of->key,
                                (unsigned long long)whole_of(config, of));
    if (of->kind == SWITCH)
        return (size_t)snprintf(out, bytes, "%s", of->key);
    if (of->kind == RECOMPUTE)
        return recompute_text(config->recompute, out, bytes);
    return (size_t)snprintf(out, bytes, "%s %s", of->key, word_of(config, of));
}

void estimate_print_config(const pst_estimate_config *config)
{
    const char *group = "";
    size_t column = 0;
    for (int i = 0; i < NUM_FIELDS; i++) {
        char text[96];
        const size_t length = field_text(config, &fields[i], text, sizeof(text));
        if (length == 0)
            continue;
        if (strcmp(group, fields[i].group) != 0) {
            column = (size_t)printf("%s%s: ", *group == '\0' ? "" : "\n", fields[i].group);
            group = fields[i].group;
        } else if (column + length + 2 > LINE_WIDTH) {
            column = (size_t)printf(",\n    ") - 1;
        } else {
            column += (size_t)printf(", ");
        }
        column += (size_t)printf("%s", text);
    }
    putchar('\n');
}

/* ---- JSON: every field */

static json_t *recompute_value(uint32_t bits)
{
    json_t *list = json_array();
    for (uint32_t bit = 1; bit <= PST_RECOMPUTE_ALL; bit *= 2)
        if ((bits & bit) != 0)
            json_add(&list, json_string(estimate_recompute_name(bit)));
    return list;
}

static json_t *is_moe_value(const pst_estimate_config *config)
{
    if (config->is_moe == NULL)
        return json_null();
    json_t *list = json_array();
    for (uint64_t i = 0; i < config->num_layers; i++)
        json_add(&list, json_boolean(config->is_moe[i]));
    return list;
}

static json_t *chunks_value(const pst_estimate_config *config)
{
    if (config->chunk_layers == NULL)
        return json_null();
    json_t *list = json_array();
    for (uint64_t i = 0; i < config->pipeline_parallel * config->virtual_stages; i++)
        json_add(&list, json_integer((json_int_t)config->chunk_layers[i]));
    return list;
}

json_t *estimate_config_value(const pst_estimate_config *config)
{
    json_t *object = json_object();
    for (int i = 0; i < NUM_FIELDS; i++) {
        const field *of = &fields[i];
        if (of->kind == WHOLE)
            json_put_whole(&object, of->key, whole_of(config, of));
        else if (of->kind == SWITCH)
            json_put(&object, of->key, json_boolean(*(const bool *)at(config, of)));
        else if (of->kind == RECOMPUTE)
            json_put(&object, of->key, recompute_value(config->recompute));
        else
            json_put_text(&object, of->key, word_of(config, of));
    }
    json_put(&object, "is_moe", is_moe_value(config));
    json_put(&object, "chunk_layers", chunks_value(config));
    return object;
}
