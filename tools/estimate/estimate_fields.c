/* The fields of a configuration as rows of a table, and those that flags set as they are. */
#include "tools/estimate/estimate_flags.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define FIELD(group, kind, member, flag, from, words) \
    {#member,                                         \
     words,                                           \
     offsetof(pst_estimate_config, member),           \
     ESTIMATE_OF_##group,                             \
     ESTIMATE_IS_##kind,                              \
     ESTIMATE_F_##flag,                               \
     ESTIMATE_##from},
const estimate_field estimate_field_table[ESTIMATE_NUM_FIELDS] = {ESTIMATE_FIELDS(FIELD)};

uint64_t estimate_field_value(const pst_estimate_config *config, const estimate_field *field)
{
    const char *at = (const char *)config + field->offset;
    uint64_t whole = 0;
    uint32_t word = 0;
    bool is_on = false;
    switch (field->kind) {
    case ESTIMATE_IS_WHOLE:
        memcpy(&whole, at, sizeof(whole));
        return whole;
    case ESTIMATE_IS_SWITCH:
        memcpy(&is_on, at, sizeof(is_on));
        return is_on;
    case ESTIMATE_IS_CHOICE:
    case ESTIMATE_IS_BITS:
        memcpy(&word, at, sizeof(word));
        return word;
    default:
        return 0;
    }
}

const char *estimate_word(const char *words, uint64_t index, char out[ESTIMATE_WORD])
{
    for (; index > 0; index--)
        words += strcspn(words, "|") + 1;
    snprintf(out, ESTIMATE_WORD, "%.*s", (int)strcspn(words, "|"), words);
    return out;
}

size_t estimate_bits_text(const char *words, uint64_t bits, const char *separator, char *out,
                          size_t bytes)
{
    size_t used = 0;
    char word[ESTIMATE_WORD];
    for (uint64_t i = 0; bits >> i != 0; i++)
        if ((bits >> i & 1) != 0)
            used += (size_t)snprintf(out + used, bytes - used, "%s%s", used > 0 ? separator : "",
                                     estimate_word(words, i, word));
    return used;
}

void estimate_set_field(pst_estimate_config *config, const estimate_field *field, uint64_t value)
{
    char *at = (char *)config + field->offset;
    const uint32_t word = (uint32_t)value;
    const bool is_on = value != 0;
    if (field->kind == ESTIMATE_IS_WHOLE)
        memcpy(at, &value, sizeof(value));
    else if (field->kind == ESTIMATE_IS_SWITCH)
        memcpy(at, &is_on, sizeof(is_on));
    else
        memcpy(at, &word, sizeof(word));
}

static uint64_t given_value(const estimate_line *line, const estimate_field *field)
{
    const estimate_kind kind = estimate_flag_table[field->flag].kind;
    uint64_t value = field->from == ESTIMATE_TAKE;
    if (kind == ESTIMATE_CHOICE)
        value = (uint64_t)estimate_choice(line, field->flag, 0);
    else if (kind != ESTIMATE_SWITCH)
        estimate_take_number(line, field->flag, &value);
    return value;
}

void estimate_take_fields(const estimate_line *line, estimate_field_group group,
                          pst_estimate_config *config)
{
    for (int i = 0; i < ESTIMATE_NUM_FIELDS; i++) {
        const estimate_field *field = &estimate_field_table[i];
        if (field->group == group && field->from != ESTIMATE_OWN && estimate_has(line, field->flag))
            estimate_set_field(config, field, given_value(line, field));
    }
}
