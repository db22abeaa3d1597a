/* A launch line, read word by word. argp, which the other commands use, cannot do it: it knows
 * neither underscores for dashes, nor flags of many values, nor what to do with flags of others. */
#include "tools/common/output.h"
#include "tools/common/parse.h"
#include "tools/estimate/estimate_flags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ESTIMATE_ENTRY(id, group, name, kind, argument, help) \
    {name, argument, help, ESTIMATE_##group, ESTIMATE_##kind},
const estimate_flag_entry estimate_flag_table[ESTIMATE_NUM_FLAGS] = {
    ESTIMATE_FLAGS(ESTIMATE_ENTRY)};

enum { NAME_BYTES = 96 };

/* Two names for one flag. */
static const struct {
    const char *name;
    estimate_flag id;
    bool is_launcher; /* only before the script */
} aliases[] = {
    {"encoder-num-layers", ESTIMATE_F_NUM_LAYERS, false},
    {"encoder-seq-length", ESTIMATE_F_SEQ_LENGTH, false},
    {"N", ESTIMATE_F_NNODES, true},
    {"nodes", ESTIMATE_F_NNODES, true},
    {"num-nodes", ESTIMATE_F_NNODES, true},
    {"num-gpus", ESTIMATE_F_NPROC_PER_NODE, true},
    {"ntasks-per-node", ESTIMATE_F_NPROC_PER_NODE, true},
};

/* Flags of launchers that have a value; those not listed have none. */
static const char *const launcher_values[] = {
    "m",
    "local-addr",
    "local-ranks-filter",
    "log-dir",
    "logs-specs",
    "master-addr",
    "master-port",
    "max-restarts",
    "module",
    "monitor-interval",
    "n",
    "node-rank",
    "np",
    "rdzv-backend",
    "rdzv-conf",
    "rdzv-endpoint",
    "rdzv-id",
    "redirects",
    "role",
    "start-method",
    "tee",
};

static const char *const launchers[] = {
    "accelerate", "deepspeed", "env",    "mpiexec", "mpirun",  "ncu",      "nohup",
    "nsys",       "numactl",   "python", "srun",    "taskset", "torchrun", "uv",
};

typedef struct reader {
    int argc, at; /* at: the next word */
    char **argv;
    estimate_line *line;
    bool is_launcher, has_script;
    const char *launcher; /* its first word */
    bool *seen;           /* of flags that do not count */
    estimate_notes unknown, twice;
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

static bool is_among(const char *word, const char *const *list, size_t num)
{
    for (size_t i = 0; i < num; i++)
        if (strcmp(word, list[i]) == 0)
            return true;
    return false;
}

static bool is_launcher_word(const char *word)
{
    const char *slash = strrchr(word, '/');
    const char *base = slash != NULL ? slash + 1 : word;
    if (is_among(base, launchers, sizeof(launchers) / sizeof(launchers[0])) ||
        strncmp(base, "python3", 7) == 0)
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

static int find_flag(const reader *self, const char *name)
{
    for (int i = 0; i < ESTIMATE_NUM_FLAGS; i++)
        if (strcmp(name, estimate_flag_table[i].name) == 0)
            return i;
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
        if (strcmp(name, aliases[i].name) == 0 && (self->is_launcher || !aliases[i].is_launcher))
            return (int)aliases[i].id;
    return -1;
}

static int refuse(const estimate_flag_entry *entry, const char *value)
{
    const char *allowed = entry->argument;
    if (entry->kind == ESTIMATE_COUNT)
        allowed = "an integer 0..9223372036854775807";
    if (entry->kind == ESTIMATE_POSITIVE)
        allowed = "an integer 1..9223372036854775807";
    if (entry->kind == ESTIMATE_DECIMAL)
        allowed = "a number as 1.25, of at most 18 digits";
    if (entry->kind == ESTIMATE_RATIO)
        allowed = "a number as 1.25, of at most 9 digits";
    if (entry->kind == ESTIMATE_SIZE || entry->kind == ESTIMATE_BYTES)
        allowed = entry->kind == ESTIMATE_SIZE ? "bytes from 1, as 65536, 64KiB or 23.7GiB"
                                               : "bytes, as 65536, 64KiB or 23.7GiB";
    if (entry->kind == ESTIMATE_TEXT || entry->kind == ESTIMATE_WORDS)
        allowed = "a text that is not empty";
    return tool_fail(TOOL_USAGE, "--%s %.80s: allowed is %s", entry->name, value, allowed);
}

/* Below 0 the one is another convention, which the resolver names, and the other is none. */
static bool may_be_negative(const estimate_flag_entry *entry)
{
    return entry == &estimate_flag_table[ESTIMATE_F_MOE_PAGED_STASH_CUDA] ||
           entry == &estimate_flag_table[ESTIMATE_F_MOE_EXPERT_CAPACITY_FACTOR];
}

static int check_value(const estimate_flag_entry *entry, const char *value)
{
    uint64_t num, den;
    int index;
    bool is_right = *value != '\0';
    const char *digits = value;
    switch (entry->kind) {
    case ESTIMATE_SWITCH:
        return TOOL_OK;
    case ESTIMATE_COUNT:
    case ESTIMATE_POSITIVE:
        is_right = parse_u64(value, entry->kind == ESTIMATE_POSITIVE, INT64_MAX, &num);
        break;
    case ESTIMATE_DECIMAL:
        is_right = estimate_decimal(value, &num, &den);
        break;
    case ESTIMATE_RATIO:
        digits += may_be_negative(entry) && *value == '-';
        is_right = estimate_decimal(digits, &num, &den) && num <= UINT32_MAX && den <= UINT32_MAX;
        break;
    case ESTIMATE_BYTES:
    case ESTIMATE_SIZE:
        is_right = estimate_size(value, &num) && (num > 0 || entry->kind == ESTIMATE_BYTES);
        break;
    case ESTIMATE_CHOICE:
        is_right = parse_choice(value, entry->argument, &index);
        break;
    case ESTIMATE_TEXT:
    case ESTIMATE_WORDS:
        break;
    case ESTIMATE_JSON:
        return output_check(entry->name, value);
    }
    return is_right ? TOOL_OK : refuse(entry, value);
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

static int take_modelled(reader *self, estimate_flag id, const char *value)
{
    const estimate_flag_entry *entry = &estimate_flag_table[id];
    estimate_given *given = &self->line->flags[id];
    if (given->value != NULL)
        TOOL_TRY(estimate_note(&self->twice, "--%s", entry->name));
    *given = (estimate_given){.value = ""};
    if (entry->kind == ESTIMATE_SWITCH)
        return value == NULL ? TOOL_OK : refuse_value(entry->name, value);
    const bool is_joined = value != NULL;
    if (entry->kind == ESTIMATE_JSON && !is_joined)
        value = "-";
    TOOL_TRY(take_value(self, entry->name, &value));
    TOOL_TRY(check_value(entry, value));
    given->value = value;
    if (id == ESTIMATE_F_MOE_EXPERT_CAPACITY_FACTOR && value != NULL && *value == '-')
        given->value = NULL;
    if (entry->kind == ESTIMATE_WORDS && !is_joined) {
        given->more = &self->argv[self->at];
        given->num_more = skip_values(self);
    }
    return TOOL_OK;
}

/* What was noted of a flag that is given once more. */
static void drop_note(estimate_notes *notes, const char *name)
{
    const size_t length = strlen(name);
    for (size_t i = 0; i < notes->num_lines; i++) {
        const char *line = notes->lines[i];
        if (strncmp(line, "--", 2) != 0 || strncmp(line + 2, name, length) != 0 ||
            (line[2 + length] != ' ' && line[2 + length] != '\0'))
            continue;
        free(notes->lines[i]);
        notes->num_lines--;
        memmove(&notes->lines[i], &notes->lines[i + 1],
                (notes->num_lines - i) * sizeof(*notes->lines));
        return;
    }
}

static int take_known(reader *self, const char *name, estimate_known known, const char *value)
{
    const bool is_joined = value != NULL;
    if (self->seen[known.index])
        TOOL_TRY(estimate_note(&self->twice, "--%s", name));
    self->seen[known.index] = true;
    if (known.arity == 0 && is_joined)
        return refuse_value(name, value);
    if (known.arity == 1)
        TOOL_TRY(take_value(self, name, &value));
    const int first = self->at;
    const int num = known.arity == 2 && !is_joined ? skip_values(self) : 0;
    if (known.effect == ESTIMATE_HARMLESS)
        return TOOL_OK;
    if (value == NULL && num > 0)
        value = self->argv[first];
    drop_note(&self->options->unmodelled, name);
    return estimate_note(&self->options->unmodelled, "--%s%s%.80s%s", name, value ? " " : "",
                         value ? value : "", num > 1 ? " ..." : "");
}

static int take_launcher_flag(reader *self, const char *name, const char *value)
{
    if (value == NULL &&
        is_among(name, launcher_values, sizeof(launcher_values) / sizeof(launcher_values[0])))
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
    const int id = find_flag(self, name);
    if (id >= 0)
        return take_modelled(self, (estimate_flag)id, value);
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
    return estimate_note(&self->unknown, "%.*s", (int)(length < 80 ? length : 80), word);
}

static int take_word(reader *self, const char *word)
{
    if (self->is_launcher) {
        self->has_script = is_script(word);
        self->is_launcher = !self->has_script;
        return TOOL_OK;
    }
    if (!self->has_script && (is_script(word) || is_launcher_word(word))) {
        self->has_script = is_script(word);
        self->is_launcher = !self->has_script;
        self->launcher = word;
        return TOOL_OK;
    }
    if (strcmp(word, "--") == 0)
        return TOOL_OK;
    return tool_fail(TOOL_USAGE, "\"%.80s\" behind \"%.80s\": no flag takes it", word,
                     self->argv[self->at - 2]);
}

/* ---- what is said of them ---- */

/* One line for all names. */
static int warn(const reader *self, const estimate_notes *names, const char *what)
{
    size_t bytes = 1;
    if (names->num_lines == 0)
        return TOOL_OK;
    for (size_t i = 0; i < names->num_lines; i++)
        bytes += strlen(names->lines[i]) + 2;
    char *list = malloc(bytes);
    if (list == NULL)
        return tool_fail(TOOL_NO, "out of memory for the names of %zu flags", names->num_lines);
    char *end = list;
    for (size_t i = 0; i < names->num_lines; i++)
        end += sprintf(end, "%s%s", i > 0 ? ", " : "", names->lines[i]);
    const int code = estimate_has(self->line, ESTIMATE_F_STRICT)
                         ? tool_fail(TOOL_USAGE, "%s: %s (--strict)", what, list)
                         : estimate_note(&self->options->warnings, "%s: %s", what, list);
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
    TOOL_TRY(warn(self, &self->unknown, "unknown flags"));
    return warn(self, &self->twice, "flags given twice, of which the last counts");
}

int estimate_read_line(int argc, char **argv, estimate_line *line, estimate_options *options)
{
    bool *seen = calloc((size_t)estimate_num_known() + 1, sizeof(*seen));
    if (seen == NULL)
        return tool_fail(TOOL_NO, "out of memory for the flags");
    reader self = {
        .argc = argc, .at = 1, .argv = argv, .line = line, .seen = seen, .options = options};
    const int code = read_words(&self);
    estimate_free_notes(&self.unknown);
    estimate_free_notes(&self.twice);
    free(seen);
    return code;
}
