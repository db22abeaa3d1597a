/* The resolved configuration of an estimate, field by field, as text and as JSON. */
#include "tools/estimate/estimate_flags.h"
#include "tools/estimate/estimate_report.h"

#include <stdio.h>

enum { LINE_WIDTH = 96 };

/* ---- text: what is not zero, off or absent */

static size_t field_text(const pst_estimate_config *config, const estimate_field *field, char *out,
                         size_t bytes)
{
    char word[ESTIMATE_WORD];
    const uint64_t value = estimate_field_value(config, field);
    const bool may_be_0 = field->kind == ESTIMATE_IS_CHOICE && field->flag != ESTIMATE_F_QK_NORM;
    if ((value == 0 && !may_be_0) || (field->group == ESTIMATE_OF_ROWS && config->num_experts == 0))
        return 0;
    if (field->kind == ESTIMATE_IS_BITS) {
        const size_t used = (size_t)snprintf(out, bytes, "%s ", field->name);
        return used + estimate_bits_text(field->words, value, " ", out + used, bytes - used);
    }
    if (field->kind == ESTIMATE_IS_SWITCH)
        return (size_t)snprintf(out, bytes, "%s", field->name);
    if (field->kind == ESTIMATE_IS_CHOICE)
        return (size_t)snprintf(out, bytes, "%s %s", field->name,
                                estimate_word(field->words, value, word));
    return (size_t)snprintf(out, bytes, "%s %llu", field->name, (unsigned long long)value);
}

void estimate_print_config(const pst_estimate_config *config)
{
    static const char *const titles[] = {"model", "latent attention", "experts", "split", "batch",
                                         "saved", "expert rows"};
    int group = -1;
    size_t column = 0;
    for (int i = 0; i < ESTIMATE_NUM_FIELDS; i++) {
        const estimate_field *field = &estimate_field_table[i];
        char text[96];
        const size_t length = field_text(config, field, text, sizeof(text));
        if (length == 0)
            continue;
        if (group != (int)field->group) {
            column = (size_t)printf("%s%s: ", group < 0 ? "" : "\n", titles[field->group]);
            group = (int)field->group;
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

static json_t *words_value(const estimate_field *field, uint64_t bits)
{
    json_t *list = json_array();
    char word[ESTIMATE_WORD];
    for (uint64_t i = 0; bits >> i != 0; i++)
        if ((bits >> i & 1) != 0)
            json_add(&list, json_string(estimate_word(field->words, i, word)));
    return list;
}

static json_t *is_moe_value(const pst_estimate_config *config)
{
    json_t *list = config->is_moe != NULL ? json_array() : json_null();
    for (uint64_t i = 0; config->is_moe != NULL && i < config->num_layers; i++)
        json_add(&list, json_boolean(config->is_moe[i]));
    return list;
}

static json_t *chunks_value(const pst_estimate_config *config)
{
    return config->chunk_layers == NULL
               ? json_null()
               : estimate_list_value(config->chunk_layers,
                                     config->pipeline_parallel * config->virtual_stages);
}

static json_t *field_value(const pst_estimate_config *config, const estimate_field *field)
{
    char word[ESTIMATE_WORD];
    const uint64_t value = estimate_field_value(config, field);
    switch (field->kind) {
    case ESTIMATE_IS_WHOLE:
        return json_integer((json_int_t)value);
    case ESTIMATE_IS_SWITCH:
        return json_boolean(value != 0);
    case ESTIMATE_IS_CHOICE:
        return json_string(estimate_word(field->words, value, word));
    case ESTIMATE_IS_BITS:
        return words_value(field, value);
    case ESTIMATE_IS_LAYERS:
        return is_moe_value(config);
    default:
        return chunks_value(config);
    }
}

json_t *estimate_config_value(const pst_estimate_config *config)
{
    json_t *object = json_object();
    for (int i = 0; i < ESTIMATE_NUM_FIELDS; i++)
        json_put(&object, estimate_field_table[i].name,
                 field_value(config, &estimate_field_table[i]));
    return object;
}
