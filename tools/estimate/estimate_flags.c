/* From a launch line to options. */
#include "tools/estimate/estimate_flags.h"
#include "host/base/arith.h"
#include "tools/common/parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIGITS 18
#define GIB (UINT64_C(1) << 30)

/* ---- notes ---- */

static int add_line(estimate_notes *notes, char *line)
{
    char **lines = realloc(notes->lines, (notes->num_lines + 1) * sizeof(*lines));
    if (line == NULL || lines == NULL) {
        free(line);
        notes->lines = lines != NULL ? lines : notes->lines;
        return tool_fail(TOOL_NO, "out of memory for a note");
    }
    notes->lines = lines;
    notes->lines[notes->num_lines++] = line;
    return TOOL_OK;
}

int estimate_note(estimate_notes *notes, const char *format, ...)
{
    char *line = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&line, &bytes);
    if (stream != NULL) {
        va_list arguments;
        va_start(arguments, format);
        vfprintf(stream, format, arguments);
        va_end(arguments);
        fclose(stream);
    }
    for (char *at = line; at != NULL && *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = '?'; /* a word of the command line may hold anything; a note is one line */
    return add_line(notes, line);
}

void estimate_free_notes(estimate_notes *notes)
{
    for (size_t i = 0; i < notes->num_lines; i++)
        free(notes->lines[i]);
    free(notes->lines);
    *notes = (estimate_notes){.lines = NULL};
}

void estimate_free(estimate_options *options)
{
    free((void *)options->config.is_moe);
    free((void *)options->config.chunk_layers);
    options->config.is_moe = NULL;
    options->config.chunk_layers = NULL;
    estimate_free_notes(&options->assumptions);
    estimate_free_notes(&options->warnings);
    estimate_free_notes(&options->unmodelled);
}

/* ---- values ---- */

bool estimate_decimal(const char *text, uint64_t *num_out, uint64_t *den_out)
{
    uint64_t num = 0, den = 1;
    int digits = 0;
    bool has_point = false;
    for (; *text != '\0'; text++) {
        if (*text == '.' && !has_point) {
            has_point = true;
            continue;
        }
        if (*text < '0' || *text > '9' || ++digits > MAX_DIGITS)
            return false;
        num = num * 10 + (uint64_t)(*text - '0');
        den *= has_point ? 10 : 1;
    }
    if (digits == 0)
        return false;
    const uint64_t common = psti_gcd(num, den);
    *num_out = num / common;
    *den_out = den / common;
    return true;
}

/* Rounds down; 128 bits hold 18 digits times a GiB. */
bool estimate_size(const char *text, uint64_t *bytes_out)
{
    __extension__ typedef unsigned __int128 wide;
    static const char *const units[] = {"", "KiB", "MiB", "GiB"};
    char digits[MAX_DIGITS + 2];
    uint64_t num, den;
    const size_t length = strspn(text, ".0123456789");
    for (unsigned i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(text + length, units[i]) != 0)
            continue;
        if (parse_size(text, 0, INT64_MAX, bytes_out))
            return true;
        snprintf(digits, sizeof(digits), "%.*s", (int)length, text);
        if (i == 0 || length >= sizeof(digits) || !estimate_decimal(digits, &num, &den))
            return false;
        const wide bytes = ((wide)num << 10 * i) / den;
        *bytes_out = (uint64_t)bytes;
        return bytes <= INT64_MAX;
    }
    return false;
}

void estimate_take_number(const estimate_line *line, estimate_flag id, uint64_t *out)
{
    const char *text = estimate_text(line, id);
    if (text != NULL)
        (void)estimate_size(text, out);
}

void estimate_take_decimal(const estimate_line *line, estimate_flag id, uint64_t *num_out,
                           uint64_t *den_out)
{
    const char *text = estimate_text(line, id);
    if (text != NULL)
        (void)estimate_decimal(text, num_out, den_out);
}

int estimate_choice(const estimate_line *line, estimate_flag id, int fallback)
{
    int index = fallback;
    if (estimate_has(line, id))
        (void)parse_choice(estimate_text(line, id), estimate_flag_table[id].argument, &index);
    return index;
}

/* ---- what is asked for ---- */

/* Of each pair one at a time. A picture's figures are of another model than those of --compat. */
#define PAIR(a, b)                     \
    {                                  \
        ESTIMATE_F_##a, ESTIMATE_F_##b \
    }
static const estimate_flag exclusive[][2] = {
    PAIR(FIT, SEARCH),
    PAIR(FIT, TIMELINE),
    PAIR(FIT, COMPAT),
    PAIR(SEARCH, TIMELINE),
    PAIR(SEARCH, COMPAT),
    PAIR(TIMELINE, COMPAT),
    PAIR(JSON, TIMELINE),
    PAIR(JSON, COMPAT),
    PAIR(HTML, COMPAT),
    PAIR(PRESET, HF_CONFIG),
    PAIR(BF16, FP16),
    PAIR(BF16, FP32),
    PAIR(FP16, FP32),
    PAIR(MOE_LOAD_CV, ROUTING),
    PAIR(MOE_EXPERT_CAPACITY_FACTOR, MOE_RANK_CAPACITY_FACTOR),
    PAIR(LAYERS_PER_VIRTUAL, VIRTUAL_STAGES),
    PAIR(FIRST_LAYERS, LAYOUT),
    PAIR(LAST_LAYERS, LAYOUT),
    PAIR(ACCOUNT_EMBEDDING, LAYOUT),
    PAIR(ACCOUNT_LOSS, LAYOUT),
    PAIR(LAYERS_PER_VIRTUAL, LAYOUT),
};
#undef PAIR

static int check_exclusive(const estimate_line *line)
{
    for (size_t i = 0; i < sizeof(exclusive) / sizeof(exclusive[0]); i++) {
        const estimate_flag a = exclusive[i][0], b = exclusive[i][1];
        if (!estimate_has(line, a) || !estimate_has(line, b))
            continue;
        const char *of_a = a == ESTIMATE_F_JSON ? "" : estimate_text(line, a);
        const char *of_b = estimate_text(line, b);
        return tool_fail(TOOL_USAGE, "--%s%s%.80s and --%s%s%.80s: one of them at a time",
                         estimate_flag_table[a].name, *of_a ? " " : "", of_a,
                         estimate_flag_table[b].name, *of_b ? " " : "", of_b);
    }
    return TOOL_OK;
}

static int take_mode(const estimate_line *line, estimate_options *options)
{
    static const struct {
        estimate_flag id;
        estimate_mode mode;
    } modes[] = {{ESTIMATE_F_FIT, ESTIMATE_FIT},
                 {ESTIMATE_F_SEARCH, ESTIMATE_SEARCH},
                 {ESTIMATE_F_TIMELINE, ESTIMATE_TIMELINE},
                 {ESTIMATE_F_COMPAT, ESTIMATE_PR482}};
    TOOL_TRY(check_exclusive(line));
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
        if (estimate_has(line, modes[i].id))
            options->mode = modes[i].mode;
    if (options->mode == ESTIMATE_SEARCH && estimate_has(line, ESTIMATE_F_ROUTING))
        return tool_fail(TOOL_USAGE,
                         "--search and --routing %.80s: one of them at a time (--moe-load-cv goes "
                         "with any split)",
                         estimate_text(line, ESTIMATE_F_ROUTING));
    if (estimate_has(line, ESTIMATE_F_COMPAT_LOGIT_BYTES) && options->mode != ESTIMATE_PR482)
        return tool_fail(TOOL_USAGE, "--compat-logit-bytes %s: needs --compat pr482",
                         estimate_text(line, ESTIMATE_F_COMPAT_LOGIT_BYTES));
    return TOOL_OK;
}

static int take_output(const estimate_line *line, estimate_options *options)
{
    TOOL_TRY(take_mode(line, options));
    estimate_take_number(line, ESTIMATE_F_GPU_MEMORY, &options->memory_bytes);
    estimate_take_number(line, ESTIMATE_F_OVERHEAD, &options->overhead_bytes);
    if (estimate_has(line, ESTIMATE_F_HTML) &&
        strcmp(estimate_text(line, ESTIMATE_F_HTML), "-") == 0)
        return tool_fail(TOOL_USAGE, "--html -: stdout is the report's: allowed is a file");
    options->preset = estimate_text(line, ESTIMATE_F_PRESET);
    options->hf_config = estimate_text(line, ESTIMATE_F_HF_CONFIG);
    options->routing = estimate_text(line, ESTIMATE_F_ROUTING);
    options->html = estimate_text(line, ESTIMATE_F_HTML);
    options->json = estimate_text(line, ESTIMATE_F_JSON);
    options->is_strict = estimate_has(line, ESTIMATE_F_STRICT);
    options->lists_members = estimate_has(line, ESTIMATE_F_MEMBERS);
    estimate_take_number(line, ESTIMATE_F_NPROC_PER_NODE, &options->gpus_per_node);
    estimate_take_number(line, ESTIMATE_F_GPUS_PER_NODE, &options->gpus_per_node);
    estimate_take_number(line, ESTIMATE_F_NUM_SMS, &options->num_sms);
    estimate_take_number(line, ESTIMATE_F_TIMELINE, &options->timeline_stage);
    estimate_take_number(line, ESTIMATE_F_COMPAT_LOGIT_BYTES, &options->pr482_logit_bytes);
    options->has_load_cv = estimate_has(line, ESTIMATE_F_MOE_LOAD_CV);
    estimate_take_decimal(line, ESTIMATE_F_MOE_LOAD_CV, &options->load_cv_num,
                          &options->load_cv_den);
    return TOOL_OK;
}

static int resolve(estimate_line *line, estimate_options *options)
{
    const char *path = options->hf_config;
    json_t *root = NULL;
    if (path == NULL)
        return estimate_resolve(line, options);
    TOOL_TRY(estimate_load_json(path, ESTIMATE_HF_BYTES, &root));
    json_t *text = json_object_get(root, "text_config");
    int code = TOOL_OK;
    line->file = root;
    if (json_is_object(text)) {
        line->file = text;
        json_t *tied = json_object_get(root, "tie_word_embeddings");
        if (tied != NULL && json_object_get(text, "tie_word_embeddings") == NULL)
            (void)json_object_set(text, "tie_word_embeddings", tied);
        code = estimate_note(&options->assumptions,
                             "text_config of %s alone: its other parts are not counted", path);
    }
    if (code == TOOL_OK)
        code = estimate_resolve(line, options);
    json_decref(root);
    return code;
}

int estimate_parse(int argc, char **argv, estimate_options *options)
{
    estimate_line line = {.flags = {{.value = NULL}}};
    *options = (estimate_options){
        .config = PST_ESTIMATE_CONFIG_INIT,
        .gpus_per_node = 8,
        .memory_bytes = 80 * GIB,
        .load_cv_den = 1,
        .num_sms = 132,
        .timeline_stage = UINT64_MAX,
        .pr482_logit_bytes = 10,
    };
    TOOL_TRY(estimate_read_line(argc, argv, &line, options));
    TOOL_TRY(take_output(&line, options));
    TOOL_TRY(resolve(&line, options));
    for (size_t i = 0; i < options->warnings.num_lines; i++)
        (void)tool_fail(TOOL_OK, "%s", options->warnings.lines[i]);
    return TOOL_OK;
}
