/* A launch line, read word by word. argp, which the other commands use, cannot do it: it knows
 * neither underscores for dashes, nor flags of many values, nor what to do with flags of others. */
#include "host/base/arith.h"
#include "tools/common/output.h"
#include "tools/common/parse.h"
#include "tools/estimate/estimate_flags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 96, MAX_DIGITS = 18 };

/* Two names for one flag. */
static const struct {
    const char *name;
    estimate_id id;
    bool is_launcher; /* only before the script */
} aliases[] = {
    {"encoder-num-layers", ESTIMATE_num_layers, false},
    {"encoder-seq-length", ESTIMATE_seq_length, false},
    {"N", ESTIMATE_nnodes, true},
    {"nodes", ESTIMATE_nnodes, true},
    {"num-nodes", ESTIMATE_nnodes, true},
    {"num-gpus", ESTIMATE_nproc_per_node, true},
    {"ntasks-per-node", ESTIMATE_nproc_per_node, true},
};

/* Flags of launchers that have a value; those not listed have none. */
static const char launcher_values[] =
    "m|local-addr|local-ranks-filter|log-dir|logs-specs|master-addr|master-port|max-restarts|"
    "module|monitor-interval|n|node-rank|np|rdzv-backend|rdzv-conf|rdzv-endpoint|rdzv-id|redirects|"
    "role|start-method|tee";

static const char launchers[] = "accelerate|deepspeed|env|mpiexec|mpirun|ncu|nohup|nsys|numactl|"
                                "python|srun|taskset|torchrun|uv";

typedef struct reader {
    int argc, at; /* at: the next word */
    char **argv;
    estimate_line *line;
    bool is_launcher, has_script;
    const char *launcher; /* its first word */
    json_t *seen;         /* flags that do not count, each with the number of its note */
    json_t *unknown, *twice;
    estimate_options *options;
} reader;

/* ---- words ---- */

/* -1, -.5 and -1e-5 are values. */
static bool is_flag(const char *word)
{
    if (word[0] != '-' || word[1] == '\0' || strcmp(word, "--") == 0)
        return false;
    return !((word[1] >= '0' && word[1] <= '9') || word[1] == '.');
}

/* The name with dashes, without those in front, and what follows an equals sign or NULL. */
static const char *split_word(const char *word, char name[NAME_BYTES])
{
    word += strspn(word, "-");
    size_t length = strcspn(word, "=");
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    length = length < NAME_BYTES - 1 ? length : NAME_BYTES - 1;
    for (size_t i = 0; i < length; i++)
        name[i] = (char)(word[i] == '_' ? '-' : word[i]);
    name[length] = '\0';
    return value;
}

static bool is_launcher_word(const char *word)
{
    const char *slash = strrchr(word, '/');
    const char *base = slash != NULL ? slash + 1 : word;
    if (parse_choice(base, launchers, NULL) || strncmp(base, "python3", 7) == 0)
        return true;
    /* VAR=value */
    const size_t length = strcspn(word, "=");
    return word[length] == '=' && length > 0 &&
           strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == length;
}

static bool is_script(const char *word)
{
    const size_t length = strlen(word);
    return length > 3 && strcmp(word + length - 3, ".py") == 0;
}

/* ---- flags ---- */

static estimate_id find_flag(const reader *self, const char *name)
{
    for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++)
        if (estimate_rows[id].kind != ESTIMATE_NO_FLAG && strcmp(name, estimate_flag(id)) == 0)
            return id;
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
        if (strcmp(name, aliases[i].name) == 0 && (self->is_launcher || !aliases[i].is_launcher))
            return aliases[i].id;
    return ESTIMATE_NUM_ROWS;
}

/* ---- values ---- */

/* Digits, perhaps a point, at most 18 of them: in lowest terms. */
static bool read_decimal(const char *text, estimate_given *given)
{
    static const char digits[] = "0123456789";
    const size_t before = strspn(text, digits), point = text[before] == '.';
    const size_t behind = strspn(text + before + point, digits), length = before + point + behind;
    uint64_t num = 0, den = 1;
    if (text[length] != '\0' || before + behind == 0 || before + behind > MAX_DIGITS)
        return false;
    for (size_t i = 0; i < length; i++)
        num = text[i] == '.' ? num : num * 10 + (uint64_t)(text[i] - '0');
    for (size_t i = 0; i < behind; i++)
        den *= 10;
    const uint64_t common = psti_gcd(num, den);
    given->num = num / common;
    given->den = den / common;
    return true;
}

/* Up to 2^63 - 1, with KiB, MiB or GiB also of a decimal number; rounds down. 128 bits hold 18 digits
 * times a GiB. */
static bool read_size(const char *text, estimate_given *given)
{
    char digits[MAX_DIGITS + 2];
    const size_t length = strspn(text, ".0123456789");
    int unit = 0;
    if (parse_size(text, 0, INT64_MAX, &given->num))
        return true;
    if (length >= sizeof(digits) || !parse_choice(text + length, "KiB|MiB|GiB", &unit))
        return false;
    snprintf(digits, sizeof(digits), "%.*s", (int)length, text);
    if (!read_decimal(digits, given))
        return false;
    const psti_wide bytes = ((psti_wide)given->num << 10 * (unit + 1)) / given->den;
    given->num = (uint64_t)bytes;
    return bytes <= INT64_MAX;
}

/* Below 0 the one is another convention, which the resolver names, and the other is none. */
static bool may_be_negative(const estimate_row *row)
{
    return row == &estimate_rows[ESTIMATE_moe_paged_stash_buffer_size_factor_cuda] ||
           row == &estimate_rows[ESTIMATE_moe_expert_capacity_factor];
}

static bool is_value(const estimate_row *row, estimate_given *given)
{
    const char *text = given->text;
    int index = 0;
    switch (row->kind) {
    case ESTIMATE_COUNT:
    case ESTIMATE_POSITIVE:
        return parse_u64(text, row->kind == ESTIMATE_POSITIVE, INT64_MAX, &given->num);
    case ESTIMATE_DECIMAL:
        return read_decimal(text, given);
    case ESTIMATE_RATIO:
        text += may_be_negative(row) && *text == '-';
        return read_decimal(text, given) && given->num <= UINT32_MAX && given->den <= UINT32_MAX;
    case ESTIMATE_BYTES:
    case ESTIMATE_SIZE:
        return read_size(text, given) && (given->num > 0 || row->kind == ESTIMATE_BYTES);
    case ESTIMATE_CHOICE:
        if (!parse_choice(text, row->argument, &index))
            return false;
        given->num = (uint64_t)index;
        return true;
    default:
        return *text != '\0';
    }
}

static int read_value(const estimate_row *row, const char *flag, estimate_given *given)
{
    static const char *const allowed[] = {
        [ESTIMATE_COUNT] = "an integer 0..9223372036854775807",
        [ESTIMATE_POSITIVE] = "an integer 1..9223372036854775807",
        [ESTIMATE_DECIMAL] = "a number as 1.25, of at most 18 digits",
        [ESTIMATE_RATIO] = "a number as 1.25, of at most 9 digits",
        [ESTIMATE_BYTES] = "bytes, as 65536, 64KiB or 23.7GiB",
        [ESTIMATE_SIZE] = "bytes from 1, as 65536, 64KiB or 23.7GiB",
        [ESTIMATE_TEXT] = "a text that is not empty",
        [ESTIMATE_WORDS] = "a text that is not empty"};
    if (row->kind == ESTIMATE_JSON)
        return output_check(flag, given->text);
    if (is_value(row, given))
        return TOOL_OK;
    return tool_fail(TOOL_USAGE, "--%s %.80s: allowed is %s", flag, given->text,
                     row->kind == ESTIMATE_CHOICE ? row->argument : allowed[row->kind]);
}

/* The value of a flag that has one: behind the equals sign, or the next word. */
static int take_value(reader *self, const char *name, const char **value)
{
    if (*value != NULL)
        return TOOL_OK;
    if (self->at >= self->argc || is_flag(self->argv[self->at]))
        return tool_fail(TOOL_USAGE, "--%s: needs a value, and none follows", name);
    *value = self->argv[self->at++];
    return TOOL_OK;
}

static int refuse_value(const char *name, const char *value)
{
    return tool_fail(TOOL_USAGE, "--%s=%.80s: it takes no value", name, value);
}

static int skip_values(reader *self)
{
    const int begin = self->at;
    while (self->at < self->argc && !is_flag(self->argv[self->at]))
        self->at++;
    return self->at - begin;
}

static int take_counted(reader *self, estimate_id id, const char *value)
{
    const estimate_row *row = &estimate_rows[id];
    const char *flag = estimate_flag(id);
    const bool is_joined = value != NULL;
    estimate_given *given = &self->line->flags[id];
    if (given->text != NULL)
        estimate_note(&self->twice, "--%s", flag);
    *given = (estimate_given){.text = "", .num = row->kind == ESTIMATE_SWITCH, .den = 1};
    if (row->kind == ESTIMATE_SWITCH || row->kind == ESTIMATE_OFF)
        return is_joined ? refuse_value(flag, value) : TOOL_OK;
    if (row->kind == ESTIMATE_JSON && !is_joined)
        value = "-";
    TOOL_TRY(take_value(self, flag, &value));
    given->text = value != NULL ? value : "";
    TOOL_TRY(read_value(row, flag, given));
    if (id == ESTIMATE_moe_expert_capacity_factor && given->text[0] == '-')
        given->text = NULL;
    if (row->kind == ESTIMATE_WORDS && !is_joined) {
        given->more = &self->argv[self->at];
        given->num_more = skip_values(self);
    }
    return TOOL_OK;
}

static int take_known(reader *self, const char *name, estimate_known known, const char *value)
{
    const bool is_joined = value != NULL;
    json_t **notes = &self->options->unmodelled;
    const json_int_t place = json_integer_value(json_object_get(self->seen, name));
    if (place != 0)
        estimate_note(&self->twice, "--%s", name);
    else
        json_put_whole(&self->seen, name, json_array_size(*notes) + 1);
    if (known.arity == 0 && is_joined)
        return refuse_value(name, value);
    if (known.arity == 1)
        TOOL_TRY(take_value(self, name, &value));
    const int first = self->at;
    const int num = known.arity == 2 && !is_joined ? skip_values(self) : 0;
    if (value == NULL && num > 0)
        value = self->argv[first];
    if (known.effect == ESTIMATE_HARMLESS || (value != NULL && strcmp(value, "none") == 0))
        return TOOL_OK;
    estimate_note(notes, "--%s%s%.80s%s", name, value ? " " : "", value ? value : "",
                  num > 1 ? " ..." : "");
    const size_t last = json_array_size(*notes) - 1;
    estimate_take_effect(self->options, known.effect);
    if (known.effect >= ESTIMATE_MORE_STATES && place == 0)
        estimate_note(&self->options->matters, "%s",
                      json_string_value(json_array_get(*notes, last)));
    if (place != 0) {
        (void)json_array_set(*notes, (size_t)place - 1, json_array_get(*notes, last));
        (void)json_array_remove(*notes, last);
    }
    return TOOL_OK;
}

static int take_launcher_flag(reader *self, const char *name, const char *value)
{
    if (value == NULL && parse_choice(name, launcher_values, NULL))
        TOOL_TRY(take_value(self, name, &value));
    /* python -m PROGRAM ... is as good as python program.py, if it is no launcher itself */
    if ((strcmp(name, "m") == 0 || strcmp(name, "module") == 0) && value != NULL &&
        strncmp(value, "torch.distributed", 17) != 0) {
        self->has_script = true;
        self->is_launcher = false;
    }
    return TOOL_OK;
}

static int take_flag(reader *self, const char *word)
{
    char name[NAME_BYTES];
    const char *value = split_word(word, name);
    const estimate_id id = find_flag(self, name);
    if (id != ESTIMATE_NUM_ROWS)
        return take_counted(self, id, value);
    if (self->is_launcher)
        return take_launcher_flag(self, name, value);
    const estimate_known known = estimate_find_known(name);
    if (known.effect != ESTIMATE_UNKNOWN)
        return take_known(self, name, known, value);
    const char *meant = estimate_meant(name);
    if (meant != NULL)
        return tool_fail(TOOL_USAGE, "--%s: no such flag: did you mean --%s?", name, meant);
    if (value == NULL)
        skip_values(self);
    const size_t length = strcspn(word, "=");
    estimate_note(&self->unknown, "%.*s", (int)(length < 80 ? length : 80), word);
    return TOOL_OK;
}

static int take_word(reader *self, const char *word)
{
    const bool begins =
        !self->is_launcher && !self->has_script && (is_script(word) || is_launcher_word(word));
    if (self->is_launcher || begins) {
        self->has_script = is_script(word);
        self->is_launcher = !self->has_script;
        self->launcher = begins ? word : self->launcher;
        return TOOL_OK;
    }
    if (strcmp(word, "--") == 0)
        return TOOL_OK;
    return tool_fail(TOOL_USAGE, "\"%.80s\" behind \"%.80s\": no flag takes it", word,
                     self->argv[self->at - 2]);
}

/* ---- what is said of them ---- */

/* One line for all names. */
static int warn(const reader *self, const json_t *names, const char *what)
{
    char *list = NULL;
    size_t bytes = 0;
    if (names != NULL && json_array_size(names) == 0)
        return TOOL_OK;
    FILE *stream = names != NULL ? open_memstream(&list, &bytes) : NULL;
    if (stream == NULL)
        return tool_fail(TOOL_NO, "out of memory for a note");
    for (size_t i = 0; i < json_array_size(names); i++)
        fprintf(stream, "%s%s", i > 0 ? ", " : "", json_string_value(json_array_get(names, i)));
    if (fclose(stream) != 0 || list == NULL) {
        free(list);
        return tool_fail(TOOL_NO, "out of memory for a note");
    }
    const bool is_strict = estimate_has(self->line, ESTIMATE_strict);
    if (!is_strict)
        estimate_note(&self->options->warnings, "%s: %s", what, list);
    const int code = is_strict ? tool_fail(TOOL_USAGE, "%s: %s (--strict)", what, list) : TOOL_OK;
    free(list);
    return code;
}

static int read_words(reader *self)
{
    while (self->at < self->argc) {
        const char *word = self->argv[self->at++];
        TOOL_TRY(is_flag(word) ? take_flag(self, word) : take_word(self, word));
    }
    if (self->is_launcher)
        return tool_fail(TOOL_USAGE, "\"%.80s\": no script follows, a word that ends in .py",
                         self->launcher);
    if (self->seen == NULL)
        return tool_fail(TOOL_NO, "out of memory for the flags");
    TOOL_TRY(warn(self, self->unknown, "unknown flags"));
    return warn(self, self->twice, "flags given twice, of which the last counts");
}

int estimate_read_line(int argc, char **argv, estimate_line *line, estimate_options *options)
{
    reader self = {.argc = argc,
                   .at = 1,
                   .argv = argv,
                   .line = line,
                   .seen = json_object(),
                   .options = options,
                   .unknown = json_array(),
                   .twice = json_array()};
    const int code = read_words(&self);
    json_decref(self.unknown);
    json_decref(self.twice);
    json_decref(self.seen);
    return code;
}
