#include "tools/common/flags.h"
#include "tools/common/parse.h"
#include "tools/common/tool.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST_KEY = 256 }; /* argp's own are characters */

/* What is allowed, in words; for the message about a wrong value. */
static error_t refuse(const flag *entry, const char *value)
{
    char allowed[96];
    switch (entry->kind) {
    case FLAG_U32:
    case FLAG_U64:
        snprintf(allowed, sizeof(allowed), "an integer %llu..%llu", (unsigned long long)entry->min,
                 (unsigned long long)entry->max);
        break;
    case FLAG_FACTOR:
        snprintf(allowed, sizeof(allowed), "a number above 0, at most %llu",
                 (unsigned long long)entry->max);
        break;
    case FLAG_SIZE:
        snprintf(allowed, sizeof(allowed),
                 "a size, %llu..%llu bytes, with KiB, MiB, GiB or without",
                 (unsigned long long)entry->min, (unsigned long long)entry->max);
        break;
    case FLAG_POWER_OF_2:
        snprintf(allowed, sizeof(allowed), "a power of two, %llu%s to %llu KiB",
                 (unsigned long long)(entry->min < 1024 ? entry->min : entry->min >> 10),
                 entry->min < 1024 ? "" : " KiB", (unsigned long long)entry->max >> 10);
        break;
    case FLAG_RANGE:
        snprintf(allowed, sizeof(allowed), "A:B, integers with A < B");
        break;
    case FLAG_FRACTION:
        snprintf(allowed, sizeof(allowed), "NUM/DEN, integers with NUM <= DEN and 1 <= DEN <= %llu",
                 (unsigned long long)UINT32_MAX);
        break;
    default:
        snprintf(allowed, sizeof(allowed), "%s", entry->argument);
    }
    tool_fail(TOOL_USAGE, "--%s %.80s: allowed is %s", entry->name, value, allowed);
    return EINVAL;
}

static bool take_u32(const flag *entry, const char *text, uint32_t *out)
{
    uint64_t value;
    if (!parse_u64(text, entry->min, entry->max, &value))
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool take_power_of_2(const flag *entry, const char *text, uint64_t *out)
{
    uint64_t value;
    if (!parse_size(text, entry->min, entry->max, &value) || (value & (value - 1)) != 0)
        return false;
    *out = value;
    return true;
}

static error_t take_flag(const flag *entry, const char *text, void *options)
{
    void *place = (char *)options + entry->offset;
    bool right = true;
    switch (entry->kind) {
    case FLAG_TEXT:
        *(const char **)place = text;
        break;
    case FLAG_SWITCH:
        *(bool *)place = true;
        break;
    case FLAG_U32:
        right = take_u32(entry, text, place);
        break;
    case FLAG_U64:
        right = parse_u64(text, entry->min, entry->max, place);
        break;
    case FLAG_FACTOR:
        right = parse_factor(text, (double)entry->max, place);
        break;
    case FLAG_SIZE:
        right = parse_size(text, entry->min, entry->max, place);
        break;
    case FLAG_POWER_OF_2:
        right = take_power_of_2(entry, text, place);
        break;
    case FLAG_RANGE:
        right = parse_range(text, place, (uint64_t *)place + 1);
        break;
    case FLAG_FRACTION:
        right = parse_fraction(text, place, (uint32_t *)place + 1);
        break;
    case FLAG_CHOICE:
        right = parse_choice(text, entry->argument, place);
        break;
    }
    return right ? 0 : refuse(entry, text);
}

enum { NUM_GROUPS = sizeof(((flag_table *)NULL)->groups) / sizeof(flag_group) };

/* What argp hands through. */
typedef struct parsing {
    const flag_table *table;
    char *options;
} parsing;

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    const parsing *self = state->input;
    int index = key - FIRST_KEY;
    for (int i = 0; i < NUM_GROUPS && index >= 0; i++) {
        const flag_group *group = &self->table->groups[i];
        if (index < group->num_flags)
            return take_flag(&group->flags[index], argument, self->options + group->base);
        index -= group->num_flags;
    }
    switch (key) {
    case ARGP_KEY_INIT:
        state->err_stream = NULL; /* one line, not the advice that argp adds to it */
        return 0;
    case ARGP_KEY_ARG:
        tool_fail(TOOL_USAGE, "%s: argument \"%.80s\": allowed are options only",
                  self->table->command, argument);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The last entry is empty. */
static void list_flags(const flag_table *table, struct argp_option *list)
{
    int num = 0;
    for (int i = 0; i < NUM_GROUPS; i++)
        for (int k = 0; k < table->groups[i].num_flags; k++) {
            const flag *entry = &table->groups[i].flags[k];
            list[num] = (struct argp_option){
                .name = entry->name,
                .key = FIRST_KEY + num,
                .arg = entry->argument,
                .doc = entry->help,
                .group = num + 1, /* else argp sorts them by name */
            };
            num++;
        }
}

int flags_parse(const flag_table *table, int argc, char **argv, void *options)
{
    size_t num_flags = 0;
    for (int i = 0; i < NUM_GROUPS; i++)
        num_flags += (size_t)table->groups[i].num_flags;
    struct argp_option *list = calloc(num_flags + 1, sizeof(*list));
    if (list == NULL)
        return tool_fail(TOOL_NO, "out of memory for %zu flags", num_flags);
    list_flags(table, list);
    const struct argp parser = {.options = list, .parser = parse_option, .doc = table->doc};
    parsing self = {table, options};
    const error_t error = argp_parse(&parser, argc, argv, 0, NULL, &self);
    free(list);
    return error == 0 ? TOOL_OK : TOOL_USAGE;
}
