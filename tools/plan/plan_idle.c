/* Which addresses of a plan are idle from one pass of a layer to another. */
#include "tools/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A pass as the command line names it: f3, or f3.0. */
typedef struct pass_name {
    uint8_t phase;
    uint32_t layer, micro_batch; /* PST_TRACE_NONE: the first that there is */
} pass_name;

static const char phase_letters[PST_NUM_PHASES] = {'-', 'f', 'b', 'w', '-'};

static bool parse_pass(const char *text, size_t length, pass_name *name)
{
    unsigned layer;
    unsigned micro_batch;
    char copy[32];
    char rest;
    if (length == 0 || length >= sizeof(copy))
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (copy[1] < '0' || copy[1] > '9')
        return false;
    *name = (pass_name){0, PST_TRACE_NONE, PST_TRACE_NONE};
    for (int phase = 0; phase < PST_NUM_PHASES; phase++)
        if (copy[0] == phase_letters[phase] && copy[0] != '-')
            name->phase = (uint8_t)phase;
    if (name->phase == PST_PHASE_NONE)
        return false;
    if (sscanf(copy + 1, "%9u.%9u%c", &layer, &micro_batch, &rest) == 2)
        name->micro_batch = micro_batch;
    else if (sscanf(copy + 1, "%9u%c", &layer, &rest) != 1)
        return false;
    name->layer = layer;
    return true;
}

static const pst_trace_pass *find_pass(const plan_job *job, pass_name name)
{
    const pst_trace_pass *passes = pst_trace_passes(job->trace);
    const uint64_t num = pst_trace_num_passes(job->trace);
    for (uint64_t p = 0; p < num; p++)
        if (passes[p].phase == name.phase && passes[p].layer == name.layer &&
            (name.micro_batch == PST_TRACE_NONE || passes[p].micro_batch == name.micro_batch))
            return &passes[p];
    return NULL;
}

static void name_pass(const pst_trace_pass *pass, char *out, size_t bytes)
{
    if (pass->micro_batch == PST_TRACE_NONE)
        snprintf(out, bytes, "%c%u", phase_letters[pass->phase], pass->layer);
    else
        snprintf(out, bytes, "%c%u.%u", phase_letters[pass->phase], pass->layer, pass->micro_batch);
}

static void set_span(plan_idle *idle, const pst_trace_pass *from, const pst_trace_pass *to)
{
    name_pass(from, idle->from, sizeof(idle->from));
    name_pass(to, idle->to, sizeof(idle->to));
    idle->begin = from->begin;
    idle->end = to->end;
}

static int parse_spans(const plan_job *job, plan_idle *idle, uint64_t *num)
{
    for (const char *item = job->options->idle; *item != '\0';) {
        const size_t length = strcspn(item, ",");
        const char *colon = memchr(item, ':', length);
        const pst_trace_pass *passes[2] = {NULL, NULL};
        pass_name names[2];
        if (colon != NULL && parse_pass(item, (size_t)(colon - item), &names[0]) &&
            parse_pass(colon + 1, (size_t)(item + length - colon - 1), &names[1])) {
            passes[0] = find_pass(job, names[0]);
            passes[1] = find_pass(job, names[1]);
        }
        if (passes[0] == NULL || passes[1] == NULL || passes[1]->end <= passes[0]->begin)
            return tool_fail(
                TOOL_USAGE,
                "--idle %.80s: allowed are FROM:TO,... or layers; FROM and TO are passes "
                "of the trace, f, b or w and a layer, and .MICRO_BATCH: TO not before "
                "FROM",
                item);
        set_span(&idle[(*num)++], passes[0], passes[1]);
        item += length + (item[length] == ',' ? 1 : 0);
    }
    return TOOL_OK;
}

/* The span of every forward pass that has a backward pass behind it. */
static void take_layers(const plan_job *job, plan_idle *idle, uint64_t *num)
{
    const pst_trace_pass *passes = pst_trace_passes(job->trace);
    const uint64_t num_passes = pst_trace_num_passes(job->trace);
    for (uint64_t p = 0; p < num_passes; p++) {
        if (passes[p].phase != PST_PHASE_FORWARD || passes[p].layer == PST_TRACE_NONE)
            continue;
        const pass_name back = {PST_PHASE_BACKWARD, passes[p].layer, passes[p].micro_batch};
        const pst_trace_pass *to = find_pass(job, back);
        if (to != NULL && to->end > passes[p].begin)
            set_span(&idle[(*num)++], &passes[p], to);
    }
}

static int take_ranges(const plan_job *job, plan_idle *idle, uint64_t num)
{
    for (uint64_t k = 0; k < num; k++) {
        const pst_plan_range span = {idle[k].begin, idle[k].end};
        uint64_t firsts[2];
        TOOL_PST(
            pst_plan_idle(&job->problem, job->offsets, job->plan.peak, &span, 1, firsts, NULL, 0));
        idle[k].ranges = calloc(firsts[1] + 1, sizeof(*idle[k].ranges));
        if (idle[k].ranges == NULL)
            return tool_fail(TOOL_NO, "out of memory for %llu idle ranges",
                             (unsigned long long)firsts[1]);
        TOOL_PST(pst_plan_idle(&job->problem, job->offsets, job->plan.peak, &span, 1, firsts,
                               idle[k].ranges, firsts[1]));
        idle[k].num_ranges = firsts[1];
        for (uint64_t r = 0; r < firsts[1]; r++)
            idle[k].bytes += idle[k].ranges[r].end - idle[k].ranges[r].begin;
    }
    return TOOL_OK;
}

int plan_find_idle(const plan_job *job, plan_idle **idle_out, uint64_t *num_out)
{
    const char *list = job->options->idle;
    uint64_t most = pst_trace_num_passes(job->trace) + 1;
    for (const char *c = list; *c != '\0'; c++)
        most += *c == ',';
    plan_idle *idle = calloc(most + 1, sizeof(*idle));
    if (idle == NULL)
        return tool_fail(TOOL_NO, "out of memory for %llu passes", (unsigned long long)most);
    *idle_out = idle;
    *num_out = 0;
    if (strcmp(list, "layers") == 0)
        take_layers(job, idle, num_out);
    else
        TOOL_TRY(parse_spans(job, idle, num_out));
    return take_ranges(job, idle, *num_out);
}

void plan_free_idle(plan_idle *idle, uint64_t num)
{
    for (uint64_t k = 0; k < num; k++)
        free(idle[k].ranges);
    free(idle);
}
