/* The resolved configuration of an estimate as JSON, every field. */
#include "tools/estimate/estimate_flags.h"
#include "tools/estimate/estimate_report.h"

static json_t *words_value(estimate_id id, uint64_t bits)
{
    json_t *list = json_array();
    char word[ESTIMATE_WORD];
    for (uint64_t i = 0; bits >> i != 0; i++)
        if ((bits >> i & 1) != 0)
            json_add(&list, json_string(estimate_word(estimate_rows[id].words, i, word)));
    return list;
}

static json_t *is_moe_value(const pst_estimate_config *config)
{
    json_t *list = config->is_moe != NULL ? json_array() : json_null();
    for (uint64_t i = 0; config->is_moe != NULL && i < config->num_layers; i++)
        json_add(&list, json_boolean(config->is_moe[i]));
    return list;
}

static json_t *field_value(const pst_estimate_config *config, estimate_id id)
{
    char word[ESTIMATE_WORD];
    const uint64_t value = estimate_value(config, id);
    const estimate_row *row = &estimate_rows[id];
    switch (row->type) {
    case ESTIMATE_IS_WHOLE:
        return json_integer((json_int_t)value);
    case ESTIMATE_IS_SWITCH:
        return json_boolean(value != 0);
    case ESTIMATE_IS_CHOICE:
        return json_string(
            estimate_word(row->words != NULL ? row->words : row->argument, value, word));
    case ESTIMATE_IS_BITS:
        return words_value(id, value);
    case ESTIMATE_IS_LAYERS:
        return is_moe_value(config);
    default:
        return config->chunk_layers == NULL
                   ? json_null()
                   : estimate_list(config->chunk_layers,
                                   config->pipeline_parallel * config->virtual_stages);
    }
}

json_t *estimate_config_value(const pst_estimate_config *config)
{
    json_t *object = json_object();
    for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++)
        if (estimate_rows[id].member != NULL)
            json_put(&object, estimate_rows[id].member, field_value(config, id));
    return object;
}
