/* What goes by the rows of the table: values, names, messages in the words of who is asked, the help, the
 * configuration in the report. And flags that do not count here: those of Megatron-LM, as estimate_known.txt lists
 * them, and misspelt ones. */
#include "tools/common/help.h"
#include "tools/common/near.h"
#include "tools/common/parse.h"
#include "tools/estimate/estimate_flags.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "estimate_known.h" /* made by CMake of estimate_known.txt */

#define AT(member) offsetof(pst_estimate_config, member)
/* A kind, the type of a member that it sets, and what the help says that it takes. */
#define OF_SWITCH ESTIMATE_SWITCH, ESTIMATE_IS_SWITCH, NULL
#define OF_OFF ESTIMATE_OFF, ESTIMATE_IS_SWITCH, NULL
#define OF_COUNT ESTIMATE_COUNT, ESTIMATE_IS_WHOLE, "N"
#define OF_STAGE ESTIMATE_COUNT, ESTIMATE_IS_WHOLE, "STAGE"
#define OF_POSITIVE ESTIMATE_POSITIVE, ESTIMATE_IS_WHOLE, "N"
#define OF_DECIMAL ESTIMATE_DECIMAL, ESTIMATE_IS_SWITCH, "X" /* whether it is above 0 */
#define OF_RATIO ESTIMATE_RATIO, ESTIMATE_IS_WHOLE, "X"
#define OF_BYTES ESTIMATE_BYTES, ESTIMATE_IS_WHOLE, "BYTES"
#define OF_SIZE ESTIMATE_SIZE, ESTIMATE_IS_WHOLE, "BYTES"
#define OF_CHOICE(words) ESTIMATE_CHOICE, ESTIMATE_IS_CHOICE, words
#define OF_EITHER(words) ESTIMATE_CHOICE, ESTIMATE_IS_SWITCH, words
#define OF_TEXT(what) ESTIMATE_TEXT, ESTIMATE_IS_LAYERS, what
#define OF_WORDS ESTIMATE_WORDS, ESTIMATE_IS_BITS, "NAME..."
#define OF_JSON ESTIMATE_JSON, ESTIMATE_IS_NONE, "FILE"

#define ROW(name, member, words, help, group, ...) \
    {name, member, words, help, ESTIMATE_##group, __VA_ARGS__},
#define FLAG(flag, group, kind, help) \
    ROW(#flag, NULL, NULL, help, group, ESTIMATE_READ, 0, 0, OF_##kind)
#define OPTION(flag, group, kind, member, fallback, help)                                         \
    ROW(#flag, NULL, NULL, help, group, ESTIMATE_SETS_OPTION, offsetof(estimate_options, member), \
        fallback, OF_##kind)
#define SETS(flag, group, kind, member, fallback, words, help) \
    ROW(#flag, #member, words, help, group, ESTIMATE_SETS, AT(member), fallback, OF_##kind)
#define FEEDS(flag, group, kind, member, words, help) \
    ROW(#flag, #member, words, help, group, ESTIMATE_READ, AT(member), 0, OF_##kind)
#define FIELD(member, group, type, words)                                                     \
    ROW(#member, #member, words, NULL, group, ESTIMATE_READ, AT(member), 0, ESTIMATE_NO_FLAG, \
        ESTIMATE_IS_##type, NULL)
const estimate_row estimate_rows[] = {ESTIMATE_TABLE(FLAG, OPTION, SETS, FEEDS, FIELD)};

const estimate_way estimate_ways[ESTIMATE_NUM_WAYS] = {
    {ESTIMATE_tensor_model_parallel_size, "tp"},
    {ESTIMATE_pipeline_model_parallel_size, "pp"},
    {ESTIMATE_num_virtual_stages_per_pipeline_rank, "vpp"},
    {ESTIMATE_context_parallel_size, "cp"},
    {ESTIMATE_expert_model_parallel_size, "ep"},
    {ESTIMATE_expert_tensor_parallel_size, "etp"},
};

const char *estimate_flag(estimate_id id)
{
    static char names[ESTIMATE_NUM_ROWS][64];
    for (size_t i = 0; estimate_rows[id].name[i] != '\0'; i++)
        names[id][i] = estimate_rows[id].name[i] == '_' ? '-' : estimate_rows[id].name[i];
    return names[id];
}

/* ---- values ---- */

/* Of a member that is a number, whose low bytes come first on every machine with CUDA. */
static size_t width_of(estimate_type type)
{
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
                   "numbers are copied by their low bytes");
    return type == ESTIMATE_IS_WHOLE    ? sizeof(uint64_t)
           : type == ESTIMATE_IS_SWITCH ? sizeof(bool)
           : type < ESTIMATE_IS_LAYERS  ? sizeof(uint32_t)
                                        : 0;
}

uint64_t estimate_value(const pst_estimate_config *config, estimate_id id)
{
    const estimate_row *row = &estimate_rows[id];
    uint64_t value = 0;
    memcpy(&value, (const char *)config + row->offset, width_of(row->type));
    return value;
}

void estimate_set(pst_estimate_config *config, estimate_id id, uint64_t value)
{
    const estimate_row *row = &estimate_rows[id];
    const uint64_t stored = row->type == ESTIMATE_IS_SWITCH ? value != 0 : value;
    memcpy((char *)config + row->offset, &stored, width_of(row->type));
}

void estimate_take_options(const estimate_line *line, estimate_options *options)
{
    for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++) {
        const estimate_row *row = &estimate_rows[id];
        char *at = (char *)options + row->offset;
        const uint64_t number = estimate_number(line, id, row->fallback);
        const char *text = estimate_text(line, id);
        const bool is_on = text != NULL;
        if (row->use != ESTIMATE_SETS_OPTION)
            continue;
        if (row->kind == ESTIMATE_SWITCH)
            memcpy(at, &is_on, sizeof(is_on));
        else if (row->kind == ESTIMATE_TEXT || row->kind == ESTIMATE_JSON)
            memcpy(at, &text, sizeof(text));
        else
            memcpy(at, &number, sizeof(number));
    }
}

void estimate_take_fields(const estimate_line *line, pst_estimate_config *config)
{
    for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++) {
        const estimate_row *row = &estimate_rows[id];
        const bool is_unset = row->fallback != 0 && estimate_value(config, id) == 0;
        if (row->use == ESTIMATE_SETS && (estimate_has(line, id) || is_unset))
            estimate_set(config, id, estimate_number(line, id, row->fallback));
    }
}

void estimate_clear_group(pst_estimate_config *config, estimate_group group)
{
    for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++)
        if (estimate_rows[id].group == group && estimate_rows[id].member != NULL &&
            estimate_rows[id].type < ESTIMATE_IS_LAYERS)
            estimate_set(config, id, 0);
}

const char *estimate_word(const char *words, uint64_t index, char out[ESTIMATE_WORD])
{
    for (; index > 0; index--)
        words += strcspn(words, "|") + 1;
    snprintf(out, ESTIMATE_WORD, "%.*s", (int)strcspn(words, "|"), words);
    return out;
}

static bool has_keys(const estimate_row *row)
{
    return row->words != NULL && row->type != ESTIMATE_IS_CHOICE && row->type != ESTIMATE_IS_BITS;
}

const char *estimate_key(const estimate_row *row, const json_t *file, char key[ESTIMATE_WORD])
{
    for (const char *at = has_keys(row) ? row->words : ""; *at != '\0';) {
        if (json_object_get(file, estimate_word(at, 0, key)) != NULL)
            return key;
        at += strcspn(at, "|");
        at += *at == '|';
    }
    return NULL;
}

bool estimate_add_bit(const char *name, const char *words, uint32_t *bits)
{
    int index = 0;
    const bool is_one = *name != '\0' && parse_choice(name, words, &index);
    *bits |= is_one ? 1u << index : 0;
    return is_one;
}

/* ---- flags that do not count here ---- */

/* Of headings: the words of estimate_effect, and how many values a flag has. */
static const char effects[] = "harmless|memory|more|less|other",
                  arities[] = "switches|values|lists";

estimate_known estimate_find_known(const char *name)
{
    char words[2][16];
    int effect = 0, arity = 0;
    size_t length;
    for (const char *at = estimate_known_txt; *at != '\0';
         at += length + strspn(at + length, " \n")) {
        length = strcspn(at, *at == '#' ? "\n" : " \n");
        if (at[length - 1] == ':' && *at != '#') {
            (void)sscanf(at, "%15[a-z]-%15[a-z]", words[0], words[1]);
            (void)parse_choice(words[0], effects, &effect);
            (void)parse_choice(words[1], arities, &arity);
        } else if (strlen(name) == length && memcmp(at, name, length) == 0) {
            return (estimate_known){ESTIMATE_HARMLESS + (estimate_effect)effect, arity};
        }
    }
    return (estimate_known){ESTIMATE_UNKNOWN, 0};
}

void estimate_take_effect(estimate_options *options, estimate_effect effect)
{
    options->is_more |= effect == ESTIMATE_MORE_STATES || effect == ESTIMATE_OTHER_STATES;
    options->is_less |= effect == ESTIMATE_LESS_STATES || effect == ESTIMATE_OTHER_STATES;
}

const char *estimate_meant(const char *name)
{
    const char *meant = NULL;
    size_t fewest = SIZE_MAX;
    for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++)
        if (estimate_rows[id].kind != ESTIMATE_NO_FLAG)
            near_pick(name, estimate_flag(id), &fewest, &meant);
    const bool is_misspelt = meant != NULL;
    for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS && !is_misspelt; id++)
        if (estimate_rows[id].kind != ESTIMATE_NO_FLAG)
            near_pick_words(name, estimate_flag(id), &fewest, &meant);
    return meant;
}

/* ---- messages ---- */

typedef struct sentence {
    const estimate_line *line;
    FILE *out;
    bool names_file, names_flag; /* of what was given */
} sentence;

static void print_flag(sentence *self, estimate_id id)
{
    const estimate_line *line = self->line;
    const bool is_given = estimate_has(line, id);
    char text[ESTIMATE_WORD];
    const char *key = is_given ? NULL : estimate_key(&estimate_rows[id], line->file, text);
    if (key != NULL) {
        fprintf(self->out, "%s (%s)", key, estimate_text(line, ESTIMATE_hf_config));
        self->names_file = true;
        return;
    }
    const bool is_product =
        id == ESTIMATE_world_size && !is_given &&
        (estimate_has(line, ESTIMATE_nproc_per_node) || estimate_has(line, ESTIMATE_nnodes));
    const bool is_divided = id == ESTIMATE_num_virtual_stages_per_pipeline_rank &&
                            estimate_has(line, ESTIMATE_num_layers_per_virtual_pipeline_stage);
    self->names_flag = self->names_flag || is_given || is_product || is_divided;
    if (is_product)
        fputs("--nproc-per-node * --nnodes", self->out);
    else if (is_divided)
        fputs("--num-layers-per-virtual-pipeline-stage: virtual stages", self->out);
    else
        fprintf(self->out, "%s--%s", estimate_rows[id].kind == ESTIMATE_OFF ? "no " : "",
                estimate_flag(id));
    if (!is_given && has_keys(&estimate_rows[id]) && estimate_has(line, ESTIMATE_preset))
        fprintf(self->out, " (--preset %s)", estimate_text(line, ESTIMATE_preset));
}

static void print_member(sentence *self, const char *name, size_t length)
{
    for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++) {
        const estimate_row *row = &estimate_rows[id];
        if (row->kind != ESTIMATE_NO_FLAG && row->member != NULL && strlen(row->member) == length &&
            memcmp(row->member, name, length) == 0) {
            print_flag(self, id);
            return;
        }
    }
    fwrite(name, 1, length, self->out);
}

int estimate_refuse(const estimate_line *line, const char *format, ...)
{
    char message[1024];
    char *text = NULL;
    size_t bytes = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    sentence self = {line, open_memstream(&text, &bytes), false, strstr(message, "--") != NULL};
    if (self.out == NULL)
        return tool_fail(TOOL_USAGE, "%s", message);
    for (const char *at = message; *at != '\0';) {
        const size_t length = strcspn(at, "{");
        fwrite(at, 1, length, self.out);
        at += length;
        if (*at == '\0')
            break;
        const size_t name = strcspn(++at, "}");
        print_member(&self, at, name);
        at += name + (at[name] == '}');
    }
    fclose(self.out);
    const bool is_of_file = self.names_file && !self.names_flag;
    const int code =
        tool_fail(is_of_file ? TOOL_INPUT : TOOL_USAGE, "%s", text != NULL ? text : message);
    free(text);
    return code;
}

int estimate_refuse_flag(const estimate_line *line, estimate_id id, const char *why)
{
    return tool_fail(TOOL_USAGE, "--%s %.80s: %s", estimate_flag(id), estimate_text(line, id), why);
}

/* ---- the help ---- */

static void put_help(estimate_id id)
{
    const estimate_row *row = &estimate_rows[id];
    const bool has_default =
        row->fallback != 0 && row->fallback != UINT64_MAX && row->argument != NULL;
    const int power = row->kind != ESTIMATE_SIZE ? 0 : row->fallback < 1u << 30 ? 10 : 30;
    char initial[32];
    snprintf(initial, sizeof(initial), "%llu%s", (unsigned long long)(row->fallback >> power),
             power == 0    ? ""
             : power == 10 ? "KiB"
                           : "GiB");
    help_put(&(help_row){.name = estimate_flag(id),
                         .argument = row->argument,
                         .is_optional = row->kind == ESTIMATE_JSON,
                         .help = row->help,
                         .initial = has_default ? initial : NULL});
}

void estimate_help(void)
{
    static const char doc[] =
        "Memory and traffic of a training run, before it starts. Takes a launch line of "
        "Megatron-LM "
        "as it stands, torchrun and pretrain_gpt.py included; underscores count as dashes. In "
        "brackets, what stands where a flag is not given.\v"
        "Of other flags of Megatron-LM, the report names those that change memory.";
    static const help_codes codes = {.no = "by --fit or --search, nothing fits",
                                     .file = "a bad file"};
    static const char *const titles[ESTIMATE_NUM_GROUPS] = {
        "The model:", "Multi-latent attention:", "Experts:",   "Rows of experts:", "The split:",
        "Training:",  "What layers save:",       "The report:"};
    help_begin("pagestash estimate", doc);
    for (int group = 0; group < ESTIMATE_NUM_GROUPS; group++) {
        printf("%s %s\n", group > 0 ? "\n" : "", titles[group]);
        for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++)
            if ((int)estimate_rows[id].group == group && estimate_rows[id].help != NULL)
                put_help(id);
    }
    help_put(&(help_row){.letter = 'h', .name = "help", .help = "print this text"});
    help_put(&(help_row){.letter = 'V', .name = "version", .help = "print the version"});
    help_end(doc, &codes);
}

/* ---- the configuration in the report ---- */

json_t *estimate_list(const uint64_t *words, uint64_t num)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < num; i++)
        json_add(&list, json_integer((json_int_t)words[i]));
    return list;
}

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
