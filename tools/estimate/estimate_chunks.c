/* How many layers each chunk of each pipeline stage has. */
#include "tools/common/parse.h"
#include "tools/estimate/estimate_flags.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LAYOUT = 1 << 16 }; /* letters, repetitions written out */

typedef unsigned long long ull;

static int refuse_multiple(const char *what, uint64_t value, const char *of, uint64_t unit)
{
    return tool_fail(TOOL_USAGE, "%s %llu: must be a multiple of %s %llu", what, (ull)value, of,
                     (ull)unit);
}

/* The configuration's, zeros; NULL is TOOL_NO. */
static uint64_t *make_chunks(pst_estimate_config *config)
{
    const uint64_t num = config->pipeline_parallel * config->virtual_stages;
    uint64_t *chunks = calloc(num > 0 ? num : 1, sizeof(*chunks));
    config->chunk_layers = chunks;
    if (chunks == NULL)
        (void)tool_fail(TOOL_NO, "out of memory for %llu chunks", (ull)num);
    return chunks;
}

/* ---- --pipeline-model-parallel-layout ---- */

typedef struct layout {
    const char *text;
    char letters[MAX_LAYOUT];
    size_t num;
    uint64_t chunks, layers, mtp, last_mtp; /* last_mtp: in the last chunk */
} layout;

static int refuse_layout(const layout *self, const char *why)
{
    return tool_fail(
        TOOL_USAGE,
        "--pipeline-model-parallel-layout %.80s: %s: allowed are stages of E, t, m and "
        "L with | between them, as Et*3|(tt|)*29,m|L",
        self->text, why);
}

/* "*3" behind the letters from first on. */
static bool take_times(layout *self, const char **at, size_t first, bool is_needed)
{
    if (**at != '*')
        return !is_needed;
    char digits[8] = "";
    uint64_t factor;
    const size_t length = strspn(*at + 1, "0123456789");
    if (length >= sizeof(digits))
        return false;
    memcpy(digits, *at + 1, length);
    const size_t num = self->num - first;
    if (!parse_u64(digits, 0, MAX_LAYOUT, &factor) || num * factor > MAX_LAYOUT - first)
        return false;
    self->num = first + num * factor;
    for (size_t i = first + num; i < self->num; i++)
        self->letters[i] = self->letters[i - num];
    *at += 1 + length;
    return true;
}

static bool write_out(layout *self)
{
    size_t open = SIZE_MAX; /* where the bracket's letters begin */
    for (const char *at = self->text; *at != '\0';) {
        const char letter = *at++;
        const size_t first = letter == ')' ? open : self->num;
        if (letter == ',')
            continue;
        if (letter == '(' && open == SIZE_MAX) {
            open = self->num;
            continue;
        }
        if (letter == ')' && open != SIZE_MAX)
            open = SIZE_MAX;
        else if (strchr("EtmL|", letter) == NULL || self->num == MAX_LAYOUT)
            return false;
        else
            self->letters[self->num++] = letter;
        if (!take_times(self, &at, first, letter == ')'))
            return false;
    }
    return open == SIZE_MAX && self->num > 0;
}

static int count_letters(layout *self)
{
    if (self->letters[0] != 'E' || self->letters[self->num - 1] != 'L')
        return refuse_layout(self, "it must begin with E and end with L");
    self->chunks = 1;
    for (size_t i = 0; i < self->num; i++) {
        const char letter = self->letters[i];
        if ((letter == 'E' && i > 0) || (letter == 'L' && i < self->num - 1))
            return refuse_layout(self, "E and L stand once");
        if (letter == 't' && self->mtp > 0)
            return refuse_layout(self, "no t may follow m");
        self->chunks += letter == '|';
        self->layers += letter == 't';
        self->mtp += letter == 'm';
        self->last_mtp = letter == '|' ? 0 : self->last_mtp + (letter == 'm');
    }
    return TOOL_OK;
}

static int check_layout(const layout *self, const estimate_line *line,
                        const pst_estimate_config *config)
{
    uint64_t stages = self->chunks / config->pipeline_parallel;
    if (self->chunks % config->pipeline_parallel != 0)
        return refuse_multiple("--pipeline-model-parallel-layout: stages", self->chunks,
                               "--pipeline-model-parallel-size", config->pipeline_parallel);
    if (self->layers != config->num_layers)
        return estimate_refuse(
            line, "--pipeline-model-parallel-layout: %llu layers (t), num_layers is %llu",
            (ull)self->layers, (ull)config->num_layers);
    if (self->mtp != config->mtp_layers)
        return tool_fail(
            TOOL_USAGE, "--pipeline-model-parallel-layout: %llu layers m, --mtp-num-layers is %llu",
            (ull)self->mtp, (ull)config->mtp_layers);
    estimate_take_number(line, ESTIMATE_F_VIRTUAL_STAGES, &stages);
    if (stages != self->chunks / config->pipeline_parallel)
        return tool_fail(TOOL_USAGE,
                         "--num-virtual-stages-per-pipeline-rank %llu: "
                         "--pipeline-model-parallel-layout has %llu",
                         (ull)stages, (ull)(self->chunks / config->pipeline_parallel));
    return TOOL_OK;
}

static int read_layout(layout *self, const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    if (!write_out(self))
        return refuse_layout(self, "not understood");
    TOOL_TRY(count_letters(self));
    TOOL_TRY(check_layout(self, line, config));
    config->virtual_stages = self->chunks / config->pipeline_parallel;
    uint64_t *chunks = make_chunks(config);
    if (chunks == NULL)
        return TOOL_NO;
    for (size_t i = 0; i < self->num; i++) {
        *chunks += self->letters[i] == 't';
        chunks += self->letters[i] == '|';
    }
    if (self->last_mtp == self->mtp)
        return TOOL_OK;
    return estimate_note(&options->unmodelled,
                         "--pipeline-model-parallel-layout: m before the last chunk (counted on "
                         "the last stage)");
}

static int take_layout(const estimate_line *line, estimate_options *options)
{
    layout *self = calloc(1, sizeof(*self));
    if (self == NULL)
        return tool_fail(TOOL_NO, "out of memory for a layout");
    self->text = estimate_text(line, ESTIMATE_F_LAYOUT);
    const int code = read_layout(self, line, options);
    free(self);
    return code;
}

/* ---- numbers of layers ---- */

static int take_virtual(const estimate_line *line, pst_estimate_config *config, uint64_t layers)
{
    uint64_t each = 0;
    estimate_take_number(line, ESTIMATE_F_VIRTUAL_STAGES, &config->virtual_stages);
    estimate_take_number(line, ESTIMATE_F_LAYERS_PER_VIRTUAL, &each);
    if (each == 0)
        return TOOL_OK;
    const uint64_t stage = layers / config->pipeline_parallel;
    if (layers % config->pipeline_parallel != 0 || stage % each != 0 || stage == 0)
        return estimate_refuse(line,
                               "num_layers %llu: must be a multiple of pipeline_parallel "
                               "%llu * --num-layers-per-virtual-pipeline-stage %llu",
                               (ull)layers, (ull)config->pipeline_parallel, (ull)each);
    config->virtual_stages = stage / each;
    return TOOL_OK;
}

/* A stage's layers over its chunks. */
static int set_stage(const pst_estimate_config *config, uint64_t *chunks, uint64_t stage,
                     uint64_t layers, const char *what)
{
    if (layers % config->virtual_stages != 0)
        return refuse_multiple(what, layers, "virtual stages", config->virtual_stages);
    for (uint64_t i = 0; i < config->virtual_stages; i++)
        chunks[i * config->pipeline_parallel + stage] = layers / config->virtual_stages;
    return TOOL_OK;
}

static int split_ends(const estimate_line *line, pst_estimate_config *config, uint64_t first,
                      uint64_t last)
{
    const uint64_t stages = config->pipeline_parallel;
    const uint64_t between = stages - (first > 0) - (last > 0);
    const uint64_t left = config->num_layers - first - last;
    if (between == 0 ? left != 0 : left % between != 0)
        return estimate_refuse(
            line,
            "num_layers %llu: %llu beside those of --decoder-first-pipeline-num-"
            "layers %llu and --decoder-last-pipeline-num-layers %llu, for %llu stages",
            (ull)config->num_layers, (ull)left, (ull)first, (ull)last, (ull)between);
    estimate_take_number(line, ESTIMATE_F_VIRTUAL_STAGES, &config->virtual_stages);
    if (config->virtual_stages > config->num_layers)
        return estimate_refuse(line,
                               "--num-virtual-stages-per-pipeline-rank %llu: num_layers is "
                               "%llu",
                               (ull)config->virtual_stages, (ull)config->num_layers);
    uint64_t *chunks = make_chunks(config);
    if (chunks == NULL)
        return TOOL_NO;
    for (uint64_t i = 0; i < stages; i++) {
        const bool is_first = i == 0 && first > 0, is_last = i == stages - 1 && last > 0;
        TOOL_TRY(set_stage(config, chunks, i,
                           is_first  ? first
                           : is_last ? last
                                     : left / between,
                           is_first  ? "--decoder-first-pipeline-num-layers"
                           : is_last ? "--decoder-last-pipeline-num-layers"
                                     : "layers of a stage in between"));
    }
    return TOOL_OK;
}

static int take_ends(const estimate_line *line, pst_estimate_config *config)
{
    uint64_t first = 0, last = 0;
    estimate_take_number(line, ESTIMATE_F_FIRST_LAYERS, &first);
    estimate_take_number(line, ESTIMATE_F_LAST_LAYERS, &last);
    if (estimate_has(line, ESTIMATE_F_ACCOUNT_EMBEDDING) ||
        estimate_has(line, ESTIMATE_F_ACCOUNT_LOSS) ||
        estimate_has(line, ESTIMATE_F_LAYERS_PER_VIRTUAL))
        return tool_fail(TOOL_USAGE, "--decoder-first-pipeline-num-layers, "
                                     "--decoder-last-pipeline-num-layers: not with --account-for-* "
                                     "or --num-layers-per-virtual-pipeline-stage");
    if (config->pipeline_parallel < 2 || config->pipeline_parallel > config->num_layers)
        return estimate_refuse(line,
                               "--decoder-%s-pipeline-num-layers %llu: pipeline_parallel is "
                               "%llu: allowed is 2..num_layers %llu",
                               first > 0 ? "first" : "last", (ull)(first > 0 ? first : last),
                               (ull)config->pipeline_parallel, (ull)config->num_layers);
    if (first > config->num_layers || last > config->num_layers - first)
        return estimate_refuse(line,
                               "--decoder-first-pipeline-num-layers %llu and "
                               "--decoder-last-pipeline-num-layers %llu: num_layers is %llu",
                               (ull)first, (ull)last, (ull)config->num_layers);
    return split_ends(line, config, first, last);
}

static int take_accounts(const estimate_line *line, pst_estimate_config *config)
{
    const bool embedding = estimate_has(line, ESTIMATE_F_ACCOUNT_EMBEDDING);
    const bool loss = estimate_has(line, ESTIMATE_F_ACCOUNT_LOSS);
    const uint64_t layers = config->num_layers + embedding + loss;
    TOOL_TRY(take_virtual(line, config, layers));
    if (layers % config->pipeline_parallel != 0)
        return refuse_multiple("--num-layers with --account-for-*", layers,
                               "--pipeline-model-parallel-size", config->pipeline_parallel);
    const uint64_t stage = layers / config->pipeline_parallel;
    if (stage % config->virtual_stages != 0)
        return refuse_multiple("layers of a stage", stage, "--num-virtual-stages-per-pipeline-rank",
                               config->virtual_stages);
    uint64_t *chunks = make_chunks(config);
    if (chunks == NULL)
        return TOOL_NO;
    const uint64_t num = config->pipeline_parallel * config->virtual_stages;
    for (uint64_t i = 0; i < num; i++)
        chunks[i] = stage / config->virtual_stages;
    chunks[0] -= embedding;
    if (loss && chunks[num - 1] == 0)
        return estimate_refuse(line,
                               "--account-for-loss-in-pipeline-split: no layer is left for "
                               "num_layers %llu",
                               (ull)config->num_layers);
    chunks[num - 1] -= loss;
    return TOOL_OK;
}

int estimate_chunks(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    if (config->num_layers > PST_ESTIMATE_MAX_LAYERS)
        return estimate_refuse(line, "num_layers %llu: at most %u", (ull)config->num_layers,
                               PST_ESTIMATE_MAX_LAYERS);
    if (estimate_has(line, ESTIMATE_F_LAYOUT))
        return take_layout(line, options);
    if (estimate_has(line, ESTIMATE_F_FIRST_LAYERS) || estimate_has(line, ESTIMATE_F_LAST_LAYERS))
        return take_ends(line, config);
    if (estimate_has(line, ESTIMATE_F_ACCOUNT_EMBEDDING) ||
        estimate_has(line, ESTIMATE_F_ACCOUNT_LOSS))
        return take_accounts(line, config);
    return take_virtual(line, config, config->num_layers);
}
