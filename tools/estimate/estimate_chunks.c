/* Which layers have experts, and how many layers each chunk of each pipeline stage has. */
#include "tools/common/parse.h"
#include "tools/estimate/estimate_flags.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ITEMS = 1 << 16, MAX_NESTING = 17, MAX_DIGITS = 7 };

typedef unsigned long long ull;

/* Letters of a pattern, repetitions written out. */
typedef struct pattern {
    const char *text;
    char items[MAX_ITEMS];
    size_t num;
} pattern;

/* Which tokens may follow which: '^' is the begin, '*' a repetition, of a letter or of what stands in
 * brackets. */
typedef struct grammar {
    const char *letters, *ends; /* the last token is one of these */
    size_t nesting;
    char tight; /* no blanks behind it */
    struct {
        const char *last, *next;
    } rows[5];
} grammar;

/* Sums of lists, as Python has them, and stages as Megatron-LM has them. */
static const grammar list_grammar = {
    .letters = "01",
    .ends = "])*",
    .nesting = MAX_NESTING,
    .rows = {{"^(+", "(["}, {"[", "01]"}, {"01", ",]"}, {",", "01"}, {"])*", "*+)"}}};
static const grammar layout_grammar = {
    .letters = "EtmL|",
    .ends = "EtmL|,*",
    .nesting = 1,
    .tight = ')',
    .rows = {{"^(,", "EtmL|,()"}, {"EtmL|*", "EtmL|,()*"}, {")", "*"}}};

/* "3" of "*3": so often the items from first on. */
static bool repeat(pattern *self, size_t first, const char **at)
{
    *at += strspn(*at, " ");
    const size_t length = strspn(*at, "0123456789"), num = self->num - first;
    const size_t factor = strtoul(*at, NULL, 10);
    *at += length;
    if (length == 0 || length > MAX_DIGITS || factor > MAX_ITEMS ||
        num * factor > MAX_ITEMS - first)
        return false;
    self->num = first + num * factor;
    for (size_t i = first + num; i < self->num; i++)
        self->items[i] = self->items[i - num];
    return true;
}

static bool write_out(pattern *self, const grammar *of)
{
    size_t begins[MAX_NESTING], depth = 0, first = 0, row = 0;
    char last = '^';
    for (const char *at = self->text;; row = 0) {
        at += last != of->tight ? strspn(at, " ") : 0;
        if (*at == '\0')
            return depth == 0 && strchr(of->ends, last) != NULL &&
                   (last != ',' || at[-1] == ','); /* no blanks behind a comma at the end */
        while (strchr(of->rows[row].last, last) == NULL)
            row++;
        if (strchr(of->rows[row].next, *at) == NULL)
            return false;
        last = *at++;
        const bool opens = strchr("([", last) != NULL, closes = strchr(")]", last) != NULL;
        const bool is_letter = strchr(of->letters, last) != NULL;
        if ((opens && depth == of->nesting) || (closes && depth == 0) ||
            (is_letter && self->num == MAX_ITEMS) || (last == '*' && !repeat(self, first, &at)))
            return false;
        if (opens)
            begins[depth++] = self->num;
        if (closes)
            first = begins[--depth];
        if (is_letter)
            self->items[first = self->num++] = last;
    }
}

/* ---- --moe-layer-freq ---- */

void estimate_use_layers(estimate_options *options)
{
    const bool are_all = memchr(options->is_moe, false, options->config.num_layers) == NULL;
    options->config.is_moe = are_all ? NULL : options->is_moe;
}

int estimate_moe_layers(const char *text, estimate_options *options)
{
    const uint64_t num_layers = options->config.num_layers;
    pattern self = {.text = text};
    uint64_t every = 0;
    if (num_layers > PST_ESTIMATE_MAX_LAYERS)
        return tool_fail(TOOL_USAGE, "--num-layers %llu: at most %u", (ull)num_layers,
                         PST_ESTIMATE_MAX_LAYERS);
    const bool is_number = parse_u64(text, 1, INT64_MAX, &every);
    if (!is_number && !write_out(&self, &list_grammar))
        return tool_fail(
            TOOL_USAGE,
            "--moe-layer-freq %.80s: allowed is an integer from 1, or lists of 0 and 1 "
            "as ([0]*3+[1]*58)",
            text);
    if (!is_number && self.num != num_layers)
        return tool_fail(TOOL_USAGE, "--moe-layer-freq %.80s: %llu layers, --num-layers is %llu",
                         text, (ull)self.num, (ull)num_layers);
    for (uint64_t i = 0; i < num_layers; i++)
        options->is_moe[i] = is_number ? i % every == 0 : self.items[i] == '1';
    estimate_use_layers(options);
    return TOOL_OK;
}

/* ---- --pipeline-model-parallel-layout ---- */

static int refuse_multiple(const char *what, uint64_t value, const char *of, uint64_t unit)
{
    return tool_fail(TOOL_USAGE, "%s %llu: must be a multiple of %s %llu", what, (ull)value, of,
                     (ull)unit);
}

/* The configuration's, zeros. */
static int make_chunks(pst_estimate_config *config, uint64_t **chunks_out)
{
    const uint64_t num = config->pipeline_parallel * config->virtual_stages;
    config->chunk_layers = *chunks_out = calloc(num > 0 ? num : 1, sizeof(**chunks_out));
    return *chunks_out != NULL ? TOOL_OK
                               : tool_fail(TOOL_NO, "out of memory for %llu chunks", (ull)num);
}

static int refuse_layout(const pattern *self, const char *why)
{
    return tool_fail(
        TOOL_USAGE,
        "--pipeline-model-parallel-layout %.80s: %s: allowed are stages of E, t, m and "
        "L with | between them, as Et*3|(tt|)*29,m|L",
        self->text, why);
}

typedef struct letters {
    uint64_t chunks, layers, mtp, last_mtp; /* last_mtp: in the last chunk */
} letters;

static int count_letters(const pattern *self, letters *found)
{
    *found = (letters){.chunks = 1};
    if (self->items[0] != 'E' || self->items[self->num - 1] != 'L')
        return refuse_layout(self, "it must begin with E and end with L");
    for (size_t i = 0; i < self->num; i++) {
        const char letter = self->items[i];
        if ((letter == 'E' && i > 0) || (letter == 'L' && i < self->num - 1))
            return refuse_layout(self, "E and L stand once");
        if (letter == 't' && found->mtp > 0)
            return refuse_layout(self, "no t may follow m");
        found->chunks += letter == '|';
        found->layers += letter == 't';
        found->mtp += letter == 'm';
        found->last_mtp = letter == '|' ? 0 : found->last_mtp + (letter == 'm');
    }
    return TOOL_OK;
}

static int take_layout(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    pattern self = {.text = estimate_text(line, ESTIMATE_pipeline_model_parallel_layout)};
    letters found;
    if (!write_out(&self, &layout_grammar) || self.num == 0)
        return refuse_layout(&self, "not understood");
    TOOL_TRY(count_letters(&self, &found));
    const uint64_t stages = found.chunks / config->pipeline_parallel;
    if (found.chunks % config->pipeline_parallel != 0)
        return refuse_multiple("--pipeline-model-parallel-layout: stages", found.chunks,
                               "--pipeline-model-parallel-size", config->pipeline_parallel);
    if (found.layers != config->num_layers || found.mtp != config->mtp_layers)
        return estimate_refuse(line,
                               "--pipeline-model-parallel-layout: %llu layers (t), {num_layers} is "
                               "%llu; %llu layers m, {mtp_layers} is %llu",
                               (ull)found.layers, (ull)config->num_layers, (ull)found.mtp,
                               (ull)config->mtp_layers);
    if (config->virtual_stages != 0 && config->virtual_stages != stages)
        return estimate_refuse(line,
                               "{virtual_stages} %llu: --pipeline-model-parallel-layout has %llu",
                               (ull)config->virtual_stages, (ull)stages);
    config->virtual_stages = stages;
    uint64_t *chunks = NULL;
    TOOL_TRY(make_chunks(config, &chunks));
    for (size_t i = 0; i < self.num; i++) {
        *chunks += self.items[i] == 't';
        chunks += self.items[i] == '|';
    }
    if (found.last_mtp != found.mtp)
        estimate_note(&options->unmodelled,
                      "--pipeline-model-parallel-layout: m before the last chunk (counted on "
                      "the last stage)");
    return TOOL_OK;
}

/* ---- numbers of layers ---- */

static int take_virtual(const estimate_line *line, pst_estimate_config *config, uint64_t layers)
{
    const uint64_t each = estimate_number(line, ESTIMATE_num_layers_per_virtual_pipeline_stage, 0);
    const uint64_t stage = layers / config->pipeline_parallel;
    if (config->virtual_stages == 0)
        config->virtual_stages = 1;
    if (each == 0)
        return TOOL_OK;
    if (layers % config->pipeline_parallel != 0 || stage % each != 0 || stage == 0)
        return estimate_refuse(line,
                               "{num_layers} %llu: must be a multiple of {pipeline_parallel} "
                               "%llu * --num-layers-per-virtual-pipeline-stage %llu",
                               (ull)layers, (ull)config->pipeline_parallel, (ull)each);
    config->virtual_stages = stage / each;
    return TOOL_OK;
}

static bool has_accounts(const estimate_line *line)
{
    return estimate_has(line, ESTIMATE_account_for_embedding_in_pipeline_split) ||
           estimate_has(line, ESTIMATE_account_for_loss_in_pipeline_split);
}

/* Layers of the first and the last stage, where they are given. */
static int check_ends(const estimate_line *line, const pst_estimate_config *config, uint64_t first,
                      uint64_t last)
{
    const uint64_t stages = config->pipeline_parallel, layers = config->num_layers;
    if (has_accounts(line) || estimate_has(line, ESTIMATE_num_layers_per_virtual_pipeline_stage))
        return tool_fail(TOOL_USAGE, "--decoder-first-pipeline-num-layers, "
                                     "--decoder-last-pipeline-num-layers: not with --account-for-* "
                                     "or --num-layers-per-virtual-pipeline-stage");
    if (stages < 2 || stages > layers)
        return estimate_refuse(line,
                               "--decoder-%s-pipeline-num-layers %llu: {pipeline_parallel} is "
                               "%llu: allowed is 2..{num_layers} %llu",
                               first > 0 ? "first" : "last", (ull)(first > 0 ? first : last),
                               (ull)stages, (ull)layers);
    const uint64_t between = stages - (first > 0) - (last > 0);
    const bool is_less = first <= layers && last <= layers - first;
    const uint64_t left = is_less ? layers - first - last : 0;
    if (!is_less || (between == 0 ? left != 0 : left % between != 0))
        return estimate_refuse(
            line,
            "{num_layers} %llu: %llu beside those of --decoder-first-pipeline-num-layers %llu and "
            "--decoder-last-pipeline-num-layers %llu, for %llu stages",
            (ull)layers, (ull)left, (ull)first, (ull)last, (ull)between);
    if (config->virtual_stages > layers)
        return estimate_refuse(line, "{virtual_stages} %llu: {num_layers} is %llu",
                               (ull)config->virtual_stages, (ull)layers);
    return TOOL_OK;
}

static int take_ends(const estimate_line *line, pst_estimate_config *config)
{
    const uint64_t first = estimate_number(line, ESTIMATE_decoder_first_pipeline_num_layers, 0);
    const uint64_t last = estimate_number(line, ESTIMATE_decoder_last_pipeline_num_layers, 0);
    const uint64_t stages = config->pipeline_parallel;
    TOOL_TRY(check_ends(line, config, first, last));
    TOOL_TRY(take_virtual(line, config, config->num_layers));
    const uint64_t parts = config->virtual_stages > 0 ? config->virtual_stages : 1;
    uint64_t *chunks = NULL;
    TOOL_TRY(make_chunks(config, &chunks));
    const uint64_t between = stages - (first > 0) - (last > 0);
    const uint64_t each = between > 0 ? (config->num_layers - first - last) / between : 0;
    for (uint64_t i = 0; i < stages; i++) {
        const bool is_first = i == 0 && first > 0, is_last = i == stages - 1 && last > 0;
        const uint64_t layers = is_first ? first : is_last ? last : each;
        if (layers % parts != 0)
            return refuse_multiple(is_first  ? "--decoder-first-pipeline-num-layers"
                                   : is_last ? "--decoder-last-pipeline-num-layers"
                                             : "layers of a stage in between",
                                   layers, "virtual stages", parts);
        for (uint64_t j = 0; j < parts; j++)
            chunks[j * stages + i] = layers / parts;
    }
    return TOOL_OK;
}

static int take_accounts(const estimate_line *line, pst_estimate_config *config)
{
    const bool embedding = estimate_has(line, ESTIMATE_account_for_embedding_in_pipeline_split);
    const bool loss = estimate_has(line, ESTIMATE_account_for_loss_in_pipeline_split);
    const uint64_t layers = config->num_layers + embedding + loss;
    TOOL_TRY(take_virtual(line, config, layers));
    const uint64_t num = config->pipeline_parallel * config->virtual_stages;
    if (num == 0 || layers % num != 0)
        return refuse_multiple("--num-layers with --account-for-*", layers,
                               "--pipeline-model-parallel-size times virtual stages", num);
    if (loss && layers == num)
        return estimate_refuse(line,
                               "--account-for-loss-in-pipeline-split: no layer is left for "
                               "{num_layers} %llu",
                               (ull)config->num_layers);
    uint64_t *chunks = NULL;
    TOOL_TRY(make_chunks(config, &chunks));
    for (uint64_t i = 0; i < num; i++)
        chunks[i] = layers / num - (embedding && i == 0) - (loss && i == num - 1);
    return TOOL_OK;
}

int estimate_chunks(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    config->virtual_stages =
        estimate_number(line, ESTIMATE_num_virtual_stages_per_pipeline_rank, 0);
    if (config->num_layers > PST_ESTIMATE_MAX_LAYERS)
        return estimate_refuse(line, "{num_layers} %llu: at most %u", (ull)config->num_layers,
                               PST_ESTIMATE_MAX_LAYERS);
    if (estimate_has(line, ESTIMATE_pipeline_model_parallel_layout))
        return take_layout(line, options);
    if (estimate_has(line, ESTIMATE_decoder_first_pipeline_num_layers) ||
        estimate_has(line, ESTIMATE_decoder_last_pipeline_num_layers))
        return take_ends(line, config);
    return has_accounts(line) ? take_accounts(line, config)
                              : take_virtual(line, config, config->num_layers);
}
