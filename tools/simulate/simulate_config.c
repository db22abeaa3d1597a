/* --config: a launch line in a file, read as `pagestash estimate` reads it: sizes, layers, bytes. */
#include "tools/simulate/simulate_command.h"

#include "host/model/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_BYTES = 1 << 20 };

static int refuse(const simulate_config *self, const char *why)
{
    return tool_fail(TOOL_USAGE, "--config %s: %s", self->path, why);
}

/* ---- the file ---- */

static int read_text(simulate_config *self)
{
    const bool is_stdin = strcmp(self->path, "-") == 0;
    int file = is_stdin ? STDIN_FILENO : open(self->path, O_RDONLY | O_CLOEXEC);
    size_t bytes = 0;
    ptrdiff_t got = 1;
    if (file < 0)
        return tool_fail(TOOL_INPUT, "--config %s: %s", self->path, strerror(errno));
    self->text = calloc(MAX_BYTES + 1, 1);
    while (self->text != NULL && got > 0 && bytes < MAX_BYTES) {
        got = tool_read(&file, self->text + bytes, MAX_BYTES - bytes);
        bytes += got > 0 ? (size_t)got : 0;
    }
    if (!is_stdin)
        close(file);
    if (self->text == NULL)
        return tool_fail(TOOL_NO, "out of memory for --config %s", self->path);
    if (got < 0)
        return tool_fail(TOOL_INPUT, "--config %s: %s", self->path, strerror((int)-got));
    if (bytes == MAX_BYTES || memchr(self->text, 0, bytes) != NULL)
        return tool_fail(TOOL_INPUT, "--config %s: %s", self->path,
                         bytes == MAX_BYTES ? "1 MiB or more" : "a byte that is zero");
    return TOOL_OK;
}

/* Goes over blanks, comments, and line ends with a backslash before them. */
static char *skip(char *at)
{
    for (;;) {
        at += strspn(at, " \t\r\n");
        if (*at == '#')
            at += strcspn(at, "\n");
        else if (at[0] == '\\' && at[1] == '\0')
            at++;
        else if (at[0] == '\\' && (at[1] == '\n' || (at[1] == '\r' && at[2] == '\n')))
            at += 2;
        else
            return at;
    }
}

/* Ends the word in its place, without quotes; NULL: a quote is not closed. */
static char *take_word(char *at)
{
    char *end = at;
    char quote = 0;
    for (; *at != '\0' && (quote != 0 || strchr(" \t\r\n", *at) == NULL); at++) {
        if (quote != 0 ? *at == quote : *at == '"' || *at == '\'')
            quote = quote != 0 ? 0 : *at;
        else if (at[0] == '\\' && quote == 0 && at[1] != '\0' && strchr("\r\n", at[1]) == NULL)
            *end++ = *++at;
        else if (at[0] == '\\' && quote == 0)
            break;
        else
            *end++ = *at;
    }
    if (quote != 0)
        return NULL;
    char *next = at + (*at != '\0');
    *end = '\0';
    return next;
}

static int split_words(simulate_config *self)
{
    self->words = calloc(MAX_BYTES / 2 + 2, sizeof(*self->words));
    if (self->words == NULL)
        return tool_fail(TOOL_NO, "out of memory for --config %s", self->path);
    static char name[] = "estimate";
    if (*skip(self->text) == '{')
        return tool_fail(TOOL_INPUT,
                         "--config %s: a JSON object: allowed is a launch line, which may have "
                         "--hf-config %s in it",
                         self->path, self->path);
    self->words[self->num_words++] = name;
    for (char *at = skip(self->text); *at != '\0'; at = skip(at)) {
        self->words[self->num_words++] = at;
        at = take_word(at);
        if (at == NULL)
            return tool_fail(TOOL_INPUT, "--config %s: a quote that is not closed", self->path);
    }
    return TOOL_OK;
}

/* ---- what it says ---- */

static int check_run(const simulate_config *self)
{
    const estimate_options *estimate = &self->estimate;
    const pst_estimate_config *run = &estimate->config;
    if (estimate->mode != ESTIMATE_REPORT || estimate->json != NULL || estimate->html != NULL)
        return refuse(self, "it asks for a report: allowed are flags of the run alone");
    if (estimate->routing != NULL)
        return refuse(self, "--routing stands in it: allowed is that beside --config");
    if (run->recompute_layers != 0)
        return refuse(self, "full recomputation, which leaves nothing to page or to plan");
    if (run->mtp_layers != 0)
        return refuse(self, "layers of multi-token prediction, which are not simulated");
    if (run->num_layers > SIMULATE_MAX_LAYERS || run->pipeline_parallel > SIMULATE_MAX_STAGES)
        return refuse(self, "more layers or stages than are simulated");
    return TOOL_OK;
}

static int take_layers(simulate_config *self)
{
    const pst_estimate_config *run = &self->estimate.config;
    self->moe_before = calloc(run->num_layers + 1, sizeof(*self->moe_before));
    if (self->moe_before == NULL)
        return tool_fail(TOOL_NO, "out of memory for --config %s", self->path);
    for (uint64_t i = 0; i < run->num_layers; i++) {
        const bool is_moe = run->num_experts != 0 && (run->is_moe == NULL || run->is_moe[i]);
        self->moe_before[i + 1] = self->moe_before[i] + is_moe;
    }
    return TOOL_OK;
}

/* A row of the experts, as the estimator's ledger has it. */
static int take_row(simulate_config *self)
{
    const psti_ledger row = psti_ledger_of_expert_row(&self->estimate.config);
    for (uint32_t i = 0; i < row.num_tensors; i++) {
        if (row.tensors[i].bytes == 0)
            continue;
        if (self->num_tensors == REPLAY_MAX_TENSORS)
            return refuse(self, "experts keep more tensors than are simulated");
        self->tensors[self->num_tensors++] =
            (replay_tensor){.row_bytes = row.tensors[i].bytes, .num = 1, .den = 1};
    }
    return TOOL_OK;
}

static int take_bytes(simulate_config *self)
{
    pst_estimate_config even = self->estimate.config;
    pst_estimate_memory memory;
    pst_estimate_ledger ledger;
    even.moe_rows = PST_MOE_BALANCED;
    TOOL_PST(pst_estimate_get_memory(&even, 0, NULL, &memory));
    self->num_micro_batches = memory.num_micro_batches;
    if (even.ffn_size != 0) { /* else there is no dense layer */
        TOOL_PST(pst_estimate_get_ledger(&even, false, &ledger));
        self->dense_bytes = ledger.bytes;
    }
    if (even.num_experts == 0)
        return TOOL_OK;
    TOOL_PST(pst_estimate_get_moe(&even, 1, &self->moe));
    TOOL_PST(pst_estimate_get_ledger(&even, true, &ledger));
    self->moe_bytes = ledger.bytes - self->moe.balanced_rows * self->moe.row_bytes;
    return take_row(self);
}

int simulate_read_config(const char *path, simulate_config *self)
{
    self->path = path;
    TOOL_TRY(read_text(self));
    TOOL_TRY(split_words(self));
    self->has_estimate = true;
    TOOL_TRY(estimate_parse(self->num_words, self->words, &self->estimate));
    TOOL_TRY(check_run(self));
    TOOL_TRY(estimate_read_load(&self->estimate));
    TOOL_TRY(take_layers(self));
    return take_bytes(self);
}

int simulate_config_rest(const simulate_config *self, uint32_t rank, uint64_t *bytes_out)
{
    pst_estimate_config even = self->estimate.config;
    pst_estimate_memory memory;
    even.moe_rows = PST_MOE_BALANCED;
    TOOL_PST(pst_estimate_get_memory(&even, rank, NULL, &memory));
    const uint64_t num_dense = memory.live_layers - memory.live_moe_layers;
    const uint64_t experts = self->moe.balanced_rows * self->moe.row_bytes;
    *bytes_out = memory.peak_bytes - num_dense * self->dense_bytes -
                 memory.live_moe_layers * (self->moe_bytes + experts);
    return TOOL_OK;
}

void simulate_free_config(simulate_config *self)
{
    if (self->has_estimate)
        estimate_free(&self->estimate);
    free(self->moe_before);
    free(self->words);
    free(self->text);
}
