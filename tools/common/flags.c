/* Reading a command line by a table of flags, with argp. */
#include "tools/common/flags.h"
#include "tools/common/help.h"
#include "tools/common/json_out.h"
#include "tools/common/near.h"
#include "tools/common/output.h"
#include "tools/common/parse.h"
#include "tools/common/tool.h"

#include <argp.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_HELP = 'h', KEY_VERSION = 'V', KEY_JSON = 256, FIRST_KEY, NAME_BYTES = 48 };
enum { NUM_GROUPS = sizeof(((flag_table *)NULL)->groups) / sizeof(flag_group) };

/* What every command takes. */
static const struct argp_option common[] = {
    {"json", KEY_JSON, "FILE", OPTION_ARG_OPTIONAL,
     "the report as JSON, in FILE, or on stdout in place of the text", 0},
    {"help", KEY_HELP, NULL, 0, "print this text", 0},
    {"version", KEY_VERSION, NULL, 0, "print the version", 0},
};
enum { NUM_COMMON = sizeof(common) / sizeof(common[0]) };

flag_asked flags_asked(const char *word)
{
    for (int i = 0; i < NUM_COMMON; i++) {
        const struct argp_option *entry = &common[i];
        const char letter[] = {'-', (char)entry->key, '\0'};
        const bool is_long = strncmp(word, "--", 2) == 0 && strcmp(word + 2, entry->name) == 0;
        if (entry->key != KEY_JSON && (is_long || strcmp(word, letter) == 0))
            return entry->key == KEY_HELP ? FLAG_ASKED_HELP : FLAG_ASKED_VERSION;
    }
    return FLAG_ASKED_NOTHING;
}

void flags_print_version(void)
{
    const int version = pst_version();
    printf("%s %d.%d.%d\n", tool_name, version / 10000, version / 100 % 100, version % 100);
}

/* The flag's name as the command line has it. */
static const char *dashed(const flag *entry, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "%s", entry->name);
    for (char *c = out; *c != '\0'; c++)
        if (*c == '_')
            *c = '-';
    return out;
}

/* What is allowed, in words; for the message about a wrong value. */
static error_t refuse(const flag *entry, const char *value)
{
    const unsigned long long min = entry->min, max = entry->max;
    char allowed[96], name[NAME_BYTES];
    switch (entry->kind) {
    case FLAG_U32:
    case FLAG_U64:
        snprintf(allowed, sizeof(allowed), "an integer %llu..%llu", min, max);
        break;
    case FLAG_FACTOR:
        snprintf(allowed, sizeof(allowed), "a number above 0, at most %llu", max);
        break;
    case FLAG_SIZE:
        snprintf(allowed, sizeof(allowed),
                 "a size, %llu..%llu bytes, with KiB, MiB, GiB or without", min, max);
        break;
    case FLAG_POWER_OF_2:
        snprintf(allowed, sizeof(allowed), "a power of two, %llu%s to %llu KiB",
                 min < 1024 ? min : min >> 10, min < 1024 ? "" : " KiB", max >> 10);
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
    tool_fail(TOOL_USAGE, "--%s %.80s: allowed is %s", dashed(entry, name), value, allowed);
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

static bool take_value(const flag *entry, const char *text, void *place)
{
    switch (entry->kind) {
    case FLAG_TEXT:
    case FLAG_OUTPUT:
        *(const char **)place = text;
        return true;
    case FLAG_SWITCH:
        *(bool *)place = true;
        return true;
    case FLAG_U32:
        return take_u32(entry, text, place);
    case FLAG_U64:
        return parse_u64(text, entry->min, entry->max, place);
    case FLAG_FACTOR:
        return parse_factor(text, (double)entry->max, place);
    case FLAG_SIZE:
        return parse_size(text, entry->min, entry->max, place);
    case FLAG_POWER_OF_2:
        return take_power_of_2(entry, text, place);
    case FLAG_RANGE:
        return parse_range(text, place, (uint64_t *)place + 1);
    case FLAG_FRACTION:
        return parse_fraction(text, place, (uint32_t *)place + 1);
    default:
        return parse_choice(text, entry->argument, place);
    }
}

static void set_default(const flag *entry, void *place)
{
    if (entry->initial == NULL)
        return;
    if (strcmp(entry->initial, FLAG_NOT_GIVEN) == 0)
        memset(place, 0xff, entry->kind == FLAG_U64 ? sizeof(uint64_t) : sizeof(uint32_t));
    else
        (void)take_value(entry, entry->initial, place);
}

/* What argp hands through. */
typedef struct parsing {
    const flag_table *table;
    char *options;
} parsing;

/* The index-th flag of a table and its place in the options; NULL behind the last. */
static const flag *flag_at(const flag_table *table, int index, void *options, void **place)
{
    for (int i = 0; i < NUM_GROUPS; i++) {
        const flag_group *group = &table->groups[i];
        if (index < group->num_flags) {
            const flag *entry = &group->flags[index];
            *place = (char *)options + group->base + entry->offset;
            return entry;
        }
        index -= group->num_flags;
    }
    return NULL;
}

static void print_help(const flag_table *table, const char *program, void *options)
{
    void *place;
    const flag *entry;
    help_begin(program, table->doc);
    for (int i = 0; (entry = flag_at(table, i, options, &place)) != NULL; i++) {
        char name[NAME_BYTES];
        const char *initial = entry->initial;
        const bool shows = initial != NULL && *initial != '\0' && *initial != '-';
        help_put(&(help_row){.name = dashed(entry, name),
                             .argument = entry->argument,
                             .help = entry->help,
                             .initial = shows ? initial : NULL});
    }
    for (int i = 0; i < NUM_COMMON; i++)
        help_put(&(help_row){.letter = common[i].key < KEY_JSON ? (char)common[i].key : '\0',
                             .name = common[i].name,
                             .argument = common[i].arg,
                             .is_optional = (common[i].flags & OPTION_ARG_OPTIONAL) != 0,
                             .help = common[i].doc});
    help_end(table->doc, table->codes);
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    const parsing *self = state->input;
    void *place = NULL;
    const flag *entry =
        key >= FIRST_KEY ? flag_at(self->table, key - FIRST_KEY, self->options, &place) : NULL;
    switch (key) {
    case ARGP_KEY_INIT:
        state->err_stream = NULL; /* one line, not the advice that argp adds to it */
        return 0;
    case ARGP_KEY_ARG:
        tool_fail(TOOL_USAGE, "argument \"%.80s\": allowed are options only", argument);
        return EINVAL;
    case KEY_HELP:
        print_help(self->table, state->argv[0], self->options);
        exit(tool_flush(TOOL_OK));
    case KEY_VERSION:
        flags_print_version();
        exit(tool_flush(TOOL_OK));
    case KEY_JSON:
        *(const char **)(self->options + self->table->json) = argument != NULL ? argument : "-";
        return 0;
    default:
        if (entry == NULL)
            return ARGP_ERR_UNKNOWN;
        return take_value(entry, argument, place) ? 0 : refuse(entry, argument);
    }
}

/* Files can be written, and one of them at most is stdout. */
static int check_outputs(const flag_table *table, void *options)
{
    const char *json = *(const char **)((char *)options + table->json);
    char name[NAME_BYTES], first[NAME_BYTES] = "";
    void *place;
    TOOL_TRY(output_check("json", json));
    if (json != NULL && strcmp(json, "-") == 0)
        strcpy(first, "json");
    for (int i = 0;; i++) {
        const flag *entry = flag_at(table, i, options, &place);
        if (entry == NULL)
            return TOOL_OK;
        const char *path = entry->kind == FLAG_OUTPUT ? *(const char **)place : NULL;
        TOOL_TRY(output_check(dashed(entry, name), path));
        if (path == NULL || strcmp(path, "-") != 0)
            continue;
        if (*first != '\0')
            return tool_fail(TOOL_USAGE,
                             "--%s -: --%s goes to standard output: allowed is one of them", name,
                             first);
        strcpy(first, name);
    }
}

static void refuse_name(const struct argp_option *list, const char *text, size_t length)
{
    char name[NAME_BYTES];
    const char *meant = NULL;
    size_t fewest = SIZE_MAX;
    snprintf(name, sizeof(name), "%.*s", (int)length, text);
    for (; list->name != NULL; list++)
        near_pick(name, list->name, &fewest, &meant);
    tool_fail(TOOL_USAGE, "unrecognized option '--%.*s'%s%s%s", (int)length, text,
              meant != NULL ? ": did you mean --" : "", meant != NULL ? meant : "",
              meant != NULL ? "?" : "");
}

static bool needs_value(const struct argp_option *option)
{
    return option->arg != NULL && !(option->flags & OPTION_ARG_OPTIONAL);
}

/* behind: what stands behind the name in its word; follows: there is another word. */
static bool has_its_value(const struct argp_option *option, const char *behind, bool follows)
{
    if (option->arg == NULL && *behind == '=')
        tool_fail(TOOL_USAGE, "--%s%.80s: it takes no value", option->name, behind);
    else if (needs_value(option) && *behind == '\0' && !follows)
        tool_fail(TOOL_USAGE, "--%s: needs a value, and none follows", option->name);
    else
        return true;
    return false;
}

/* argp would take the beginning of a name, too; a flag has one name. */
static bool are_whole_names(const struct argp_option *list, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const struct argp_option *option = list;
        const char *name = argv[i] + 2;
        const size_t length = strcspn(name, "=");
        if (strncmp(argv[i], "--", 2) != 0)
            continue;
        while (option->name != NULL &&
               (strncmp(option->name, name, length) != 0 || option->name[length] != '\0'))
            option++;
        if (option->name == NULL) {
            refuse_name(list, name, length);
            return false;
        }
        if (!has_its_value(option, name + length, i + 1 < argc))
            return false;
        if (needs_value(option) && name[length] == '\0')
            i++; /* its value */
    }
    return true;
}

int flags_parse(const flag_table *table, int argc, char **argv, void *options)
{
    int num = 0;
    void *place;
    for (const flag *entry; (entry = flag_at(table, num, options, &place)) != NULL; num++)
        set_default(entry, place);
    struct argp_option *list = calloc((size_t)num + NUM_COMMON + 1, sizeof(*list));
    char(*names)[NAME_BYTES] = calloc((size_t)num + 1, sizeof(*names));
    error_t error = ENOMEM;
    if (list != NULL && names != NULL) {
        for (int i = 0; i < num; i++) {
            const flag *entry = flag_at(table, i, options, &place);
            list[i] = (struct argp_option){
                .name = dashed(entry, names[i]), .key = FIRST_KEY + i, .arg = entry->argument};
        }
        memcpy(list + num, common, sizeof(common));
        const struct argp parser = {.options = list, .parser = parse_option};
        parsing self = {table, options};
        error = EINVAL;
        if (are_whole_names(list, argc, argv))
            error = argp_parse(&parser, argc, argv, ARGP_NO_HELP, NULL, &self);
    }
    free(names);
    free(list);
    if (error == ENOMEM)
        return tool_fail(TOOL_NO, "out of memory for %d flags", num + NUM_COMMON);
    return error == 0 ? check_outputs(table, options) : TOOL_USAGE;
}

static json_t *json_choice(const flag *entry, int index)
{
    const char *text = entry->argument;
    for (; index > 0; index--)
        text += strcspn(text, "|") + 1;
    return index < 0 ? json_null() : json_stringn(text, strcspn(text, "|"));
}

static json_t *json_value(const flag *entry, const void *place)
{
    char text[48];
    switch (entry->kind) {
    case FLAG_TEXT:
    case FLAG_OUTPUT:
        return json_text(*(const char *const *)place);
    case FLAG_SWITCH:
        return json_boolean(*(const bool *)place);
    case FLAG_U32:
        return *(const uint32_t *)place == UINT32_MAX ? json_null()
                                                      : json_integer(*(const uint32_t *)place);
    case FLAG_FACTOR:
        return *(const double *)place > 0.0 ? json_real(*(const double *)place) : json_null();
    case FLAG_RANGE:
        snprintf(text, sizeof(text), "%" PRIu64 ":%" PRIu64, ((const flag_range *)place)->begin,
                 ((const flag_range *)place)->end);
        return json_string(text);
    case FLAG_FRACTION:
        snprintf(text, sizeof(text), "%u/%u", ((const flag_fraction *)place)->num,
                 ((const flag_fraction *)place)->den);
        return json_string(text);
    case FLAG_CHOICE:
        return json_choice(entry, *(const int *)place);
    default:
        return *(const uint64_t *)place == UINT64_MAX
                   ? json_null()
                   : json_integer((json_int_t) * (const uint64_t *)place);
    }
}

void flags_put_json(json_t **object, const flag_group *group, const void *options)
{
    for (int i = 0; i < group->num_flags; i++) {
        const flag *entry = &group->flags[i];
        const char *place = (const char *)options + group->base + entry->offset;
        json_put(object, entry->name, json_value(entry, place));
    }
}
