/* From a trace to a problem: tensors, pins, reserved ranges, and layer passes as blocks. */
#include "host/base/arith.h"
#include "tools/common/parse.h"
#include "tools/plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* Cuts the next item off a list with commas. */
static bool next_item(const char **list, char *item, size_t item_bytes)
{
    if (*list == NULL || **list == '\0')
        return false;
    const size_t length = strcspn(*list, ",");
    const size_t kept = length < item_bytes ? length : item_bytes - 1;
    memcpy(item, *list, kept);
    item[kept] = '\0';
    *list += length + ((*list)[length] == ',' ? 1 : 0);
    return true;
}

static uint64_t count_items(const char *list)
{
    uint64_t num = list != NULL;
    for (; list != NULL && *list != '\0'; list++)
        num += *list == ',';
    return num;
}

static int take_reserved(plan_job *job)
{
    const char *list = job->options->reserve;
    char item[96];
    job->reserved = calloc(count_items(list) + 1, sizeof(*job->reserved));
    if (job->reserved == NULL)
        return tool_fail(TOOL_NO, "out of memory for the reserved ranges");
    while (next_item(&list, item, sizeof(item))) {
        pst_plan_range *range = &job->reserved[job->problem.num_reserved++];
        char *colon = strchr(item, ':');
        if (colon != NULL)
            *colon = '\0';
        if (colon == NULL || !parse_size(item, 0, PST_PLAN_MAX_BYTES, &range->begin) ||
            !parse_size(colon + 1, 1, PST_PLAN_MAX_BYTES / 2, &range->end) ||
            range->begin >= range->end)
            return tool_fail(TOOL_USAGE,
                             "--reserve %.80s: allowed are A:B,..., sizes with A < B, B at most "
                             "2^61",
                             job->options->reserve);
    }
    job->problem.reserved = job->reserved;
    return TOOL_OK;
}

static pst_plan_tensor *find_tensor(const plan_job *job, uint64_t id)
{
    for (uint64_t k = 0; k < job->problem.num_tensors; k++)
        if (job->all[job->which[k]].id == id)
            return &job->tensors[k];
    return NULL;
}

static int take_pins(const plan_job *job)
{
    const char *list = job->options->pin;
    char item[96];
    while (next_item(&list, item, sizeof(item))) {
        char *at = strchr(item, '@');
        uint64_t id;
        uint64_t offset;
        if (at != NULL)
            *at = '\0';
        if (at == NULL || !parse_u64(item, 0, UINT64_MAX, &id) ||
            !parse_size(at + 1, 0, PST_PLAN_MAX_BYTES, &offset))
            return tool_fail(
                TOOL_USAGE, "--pin %.80s: allowed are ID@OFFSET,..., OFFSET a size of at most 2^62",
                job->options->pin);
        pst_plan_tensor *tensor = find_tensor(job, id);
        if (tensor == NULL)
            return tool_fail(TOOL_USAGE, "--pin %s@%s: allowed are ids of static tensors in %.200s",
                             item, at + 1, job->path);
        tensor->pin = offset;
    }
    return TOOL_OK;
}

static int take_tensors(plan_job *job)
{
    const uint32_t streams = pst_trace_num_streams(job->trace);
    const uint64_t *releases = pst_trace_releases(job->trace);
    job->which = calloc(job->num_all + 1, sizeof(*job->which));
    job->tensors = calloc(job->num_all + 1, sizeof(*job->tensors));
    job->offsets = calloc(job->num_all + 1, sizeof(*job->offsets));
    job->releases =
        calloc(job->num_all * (releases != NULL ? streams : 0) + 1, sizeof(*job->releases));
    if (job->which == NULL || job->tensors == NULL || job->offsets == NULL || job->releases == NULL)
        return tool_fail(TOOL_NO, "out of memory for %llu tensors",
                         (unsigned long long)job->num_all);
    uint64_t num = 0;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < job->num_all; i++) {
        const pst_trace_tensor *tensor = &job->all[i];
        if (tensor->tag != PST_TAG_STATIC)
            continue;
        const bool has_times = tensor->end_time > 0; /* of the file's own */
        sum += psti_round_up(tensor->bytes, job->problem.align);
        if (tensor->bytes > PST_PLAN_MAX_BYTES || sum > PST_PLAN_MAX_BYTES)
            return tool_fail(TOOL_INPUT,
                             "%.200s:%llu: field size: %llu: allowed are 2^62 bytes of all tensors "
                             "together",
                             job->path, (unsigned long long)tensor->line,
                             (unsigned long long)tensor->bytes);
        job->which[num] = (uint32_t)i;
        job->tensors[num] =
            (pst_plan_tensor){.bytes = tensor->bytes,
                              .begin = has_times ? tensor->begin_time : tensor->begin,
                              .end = has_times ? tensor->end_time : tensor->end,
                              .pin = PST_PLAN_FREE,
                              .stream = tensor->stream,
                              .block = PST_PLAN_NO_BLOCK};
        if (releases != NULL)
            memcpy(job->releases + num * streams, releases + i * streams,
                   streams * sizeof(*releases));
        num++;
    }
    job->problem.tensors = job->tensors;
    job->problem.num_tensors = num;
    job->problem.num_streams = releases != NULL ? streams : 1;
    job->problem.releases = releases != NULL ? job->releases : NULL;
    return TOOL_OK;
}

/* ---- layer passes, as blocks of mode bilevel */

static uint64_t fold(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

/* Passes with one hash have tensors of the same sizes and lives, pst_plan_run makes sure. */
static int by_hash(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;
    if (x[0] != y[0])
        return x[0] < y[0] ? -1 : 1;
    return (x[1] > y[1]) - (x[1] < y[1]);
}

static bool is_layer_pass(const pst_trace_pass *pass)
{
    return pass->layer != PST_TRACE_NONE &&
           (pass->phase == PST_PHASE_FORWARD || pass->phase == PST_PHASE_BACKWARD ||
            pass->phase == PST_PHASE_WEIGHT);
}

/* Numbers the kinds: hashes is [num_blocks][2], hash and block. */
static void number_kinds(plan_job *job, uint64_t *hashes)
{
    const uint32_t num = job->problem.num_blocks;
    qsort(hashes, num, 2 * sizeof(*hashes), by_hash);
    uint32_t kind = 0;
    for (uint32_t k = 0; k < num; k++) {
        kind += k > 0 && hashes[2 * k] != hashes[2 * (k - 1)];
        job->blocks[hashes[2 * k + 1]].kind = kind;
    }
}

static int take_blocks(plan_job *job)
{
    const uint64_t num_passes = pst_trace_num_passes(job->trace);
    const pst_trace_pass *passes = pst_trace_passes(job->trace);
    uint32_t *block_of = calloc(num_passes + 1, sizeof(*block_of));
    uint64_t *hashes = calloc(2 * num_passes + 1, sizeof(*hashes));
    job->blocks = calloc(num_passes + 1, sizeof(*job->blocks));
    if (block_of == NULL || hashes == NULL || job->blocks == NULL) {
        free(block_of);
        free(hashes);
        return tool_fail(TOOL_NO, "out of memory for %llu passes", (unsigned long long)num_passes);
    }
    uint32_t num = 0;
    for (uint64_t p = 0; p < num_passes; p++) {
        block_of[p] = is_layer_pass(&passes[p]) ? num : PST_PLAN_NO_BLOCK;
        if (block_of[p] == PST_PLAN_NO_BLOCK)
            continue;
        job->blocks[num] = (pst_plan_block){.begin = passes[p].begin, .end = passes[p].end};
        hashes[2 * num] = fold(UINT64_C(0xcbf29ce484222325), passes[p].phase);
        hashes[2 * num + 1] = num;
        num++;
    }
    for (uint64_t k = 0; k < job->problem.num_tensors; k++) {
        const pst_trace_tensor *tensor = &job->all[job->which[k]];
        const uint32_t block = block_of[tensor->first_pass];
        if (tensor->first_pass != tensor->last_pass || block == PST_PLAN_NO_BLOCK ||
            tensor->never_freed || job->tensors[k].pin != PST_PLAN_FREE)
            continue;
        job->tensors[k].block = block;
        const uint64_t from = job->blocks[block].begin;
        uint64_t *hash = &hashes[2 * block];
        *hash = fold(fold(fold(*hash, tensor->bytes), tensor->begin - from), tensor->end - from);
    }
    job->problem.blocks = job->blocks;
    job->problem.num_blocks = num;
    number_kinds(job, hashes);
    free(block_of);
    free(hashes);
    if (num == 0)
        return tool_fail(TOOL_INPUT,
                         "%.200s: --mode bilevel: no request has phase forward, backward or weight "
                         "and a layer",
                         job->path);
    return TOOL_OK;
}

#define FORMAT_ALIGN(name, word, align, text) [name] = (align),
static const uint64_t aligns[] = {PST_TRACE_FORMAT_LIST(FORMAT_ALIGN)};

int plan_read(const plan_options *options, plan_job *job)
{
    *job = (plan_job){.options = options, .problem = PST_PLAN_PROBLEM_INIT};
    const pst_trace_format format = trace_file_format(&options->file);
    job->path = options->file.paths[format];
    TOOL_TRY(trace_file_read(&options->file, &job->trace));
    job->all = pst_trace_tensors(job->trace);
    job->num_all = pst_trace_num_tensors(job->trace);
    job->problem.align = options->align != 0 ? options->align : aligns[format];
    job->problem.capacity = options->capacity;
    TOOL_TRY(take_tensors(job));
    TOOL_TRY(take_reserved(job));
    TOOL_TRY(take_pins(job));
    return options->mode == PST_PLAN_BILEVEL ? take_blocks(job) : TOOL_OK;
}

void plan_unload(plan_job *job)
{
    free(job->which);
    free(job->tensors);
    free(job->releases);
    free(job->blocks);
    free(job->reserved);
    free(job->offsets);
    pst_trace_destroy(job->trace);
}
