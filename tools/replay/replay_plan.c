#include "tools/replay/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS ((uint64_t)INT32_MAX)
#define MAX_PAGES ((uint64_t)INT32_MAX)
enum { BUFFER_ALIGNMENT = 256, MX_BLOCK = 32 };

static void add_tensor(replay_plan *plan, uint64_t row_bytes, uint32_t num, uint32_t den)
{
    plan->tensors[plan->num_tensors++] =
        (replay_tensor){.row_bytes = row_bytes, .num = num, .den = den};
}

/* An MX tensor is kept twice: quantised along its rows, and along its columns. */
static void add_mx_tensor(replay_plan *plan, uint32_t width)
{
    add_tensor(plan, width, 1, 1);
    add_tensor(plan, (width + MX_BLOCK - 1) / MX_BLOCK, 1, 1);
    add_tensor(plan, width, 1, 1);
    add_tensor(plan, width, 1, MX_BLOCK);
}

/* What a grouped MoE MLP keeps for its backward pass. */
static void add_tensors(const replay_options *options, replay_plan *plan)
{
    const uint64_t bf16 = 2;
    if (options->dtype == REPLAY_MXFP8)
        add_mx_tensor(plan, options->hidden); /* fc1 input */
    else
        add_tensor(plan, options->hidden * bf16, 1, 1);
    add_tensor(plan, 2 * options->ffn * bf16, 1, 1); /* fc1 output: gate and up */
    if (options->dtype == REPLAY_MXFP8)
        add_mx_tensor(plan, options->ffn); /* activation */
    else
        add_tensor(plan, options->ffn * bf16, 1, 1);
    add_tensor(plan, sizeof(float), 1, 1); /* routing probability */
}

/* The smallest factor of four decimals that gives at least `rows`. */
static double factor_for(uint64_t rows, double mean)
{
    double factor = ceil((double)rows / mean * 1e4) / 1e4;
    while (ceil(factor * mean) < (double)rows)
        factor += 1e-4;
    return factor;
}

static int choose_capacity(const replay_options *options, const replay_trace *trace,
                           replay_plan *plan)
{
    const char *what = options->layout == PST_ROWS_PREFIX ? "rank" : "expert";
    double capacity = (double)trace->max_count;
    if (options->capacity_factor > 0.0)
        capacity = ceil(options->capacity_factor * trace->mean_count);
    if (capacity > (double)MAX_ROWS)
        return tool_fail(TOOL_USAGE, "--capacity-factor %g: %.0f rows: allowed are at most %llu",
                         options->capacity_factor, capacity, (unsigned long long)MAX_ROWS);
    if (capacity < (double)trace->max_count_replayed)
        return tool_fail(TOOL_NO,
                         "--capacity-factor %g: %.0f rows per %s, but the trace reaches %llu: "
                         "needed is --capacity-factor %.4f",
                         options->capacity_factor, capacity, what,
                         (unsigned long long)trace->max_count_replayed,
                         factor_for(trace->max_count_replayed, trace->mean_count));
    plan->capacity = capacity < 1.0 ? 1 : (uint64_t)capacity;
    plan->capacity_factor = trace->mean_count > 0.0 ? capacity / trace->mean_count : 0.0;
    return TOOL_OK;
}

/* Lays the tensors of one layer out, one after the other. */
static int lay_out(const replay_trace *trace, replay_plan *plan)
{
    uint64_t end = 0;
    for (uint32_t t = 0; t < plan->num_tensors; t++) {
        replay_tensor *tensor = &plan->tensors[t];
        const uint64_t rows = (plan->capacity * tensor->num + tensor->den - 1) / tensor->den;
        uint64_t bytes;
        if (__builtin_mul_overflow(rows * trace->num_counts, tensor->row_bytes, &bytes) ||
            __builtin_add_overflow(bytes, BUFFER_ALIGNMENT - 1, &bytes))
            return tool_fail(TOOL_NO, "tensor %u: more than 2^64 bytes", t);
        tensor->offset = end;
        if (__builtin_add_overflow(end, bytes & ~(uint64_t)(BUFFER_ALIGNMENT - 1), &end))
            return tool_fail(TOOL_NO, "tensor %u: more than 2^64 bytes", t);
    }
    plan->set_bytes = end;
    return TOOL_OK;
}

int replay_plan_make(const replay_options *options, const replay_trace *trace,
                     replay_plan *plan_out)
{
    memset(plan_out, 0, sizeof(*plan_out));
    const uint64_t slots = (uint64_t)options->num_micro_batches * trace->layers;
    if (slots > REPLAY_MAX_SLOTS)
        return tool_fail(TOOL_USAGE,
                         "--microbatches %u: %llu stashes are live at once: allowed are at most %u",
                         options->num_micro_batches, (unsigned long long)slots, REPLAY_MAX_SLOTS);
    plan_out->slots = (uint32_t)slots;
    plan_out->iterations = trace->steps / options->num_micro_batches;
    TOOL_TRY(choose_capacity(options, trace, plan_out));
    add_tensors(options, plan_out);
    return lay_out(trace, plan_out);
}

/* Sums pages and live bytes of one iteration's slots. */
static int measure_iteration(const replay_options *options, const replay_trace *trace,
                             const pst_group *group, uint64_t iteration, replay_plan *plan,
                             int64_t *counts)
{
    uint64_t pages = 0;
    uint64_t bytes = 0;
    for (uint32_t slot = 0; slot < plan->slots; slot++) {
        const uint64_t idx = iteration * plan->slots + slot;
        for (uint32_t c = 0; c < trace->num_counts; c++)
            counts[c] = trace->counts[idx * trace->num_counts + c];
        pst_group_usage usage;
        TOOL_PST(pst_group_measure(group, counts, options->page_bytes, &usage));
        plan->payload[idx] = usage.payload_bytes;
        plan->pages[idx] = (uint32_t)usage.pages;
        pages += usage.pages;
        bytes += usage.payload_bytes;
    }
    plan->live_bytes_total += bytes;
    if (bytes > plan->live_bytes_max)
        plan->live_bytes_max = bytes;
    if (pages > plan->high_water_pages) {
        plan->high_water_pages = pages;
        plan->high_water_live_bytes = bytes;
    }
    return TOOL_OK;
}

/* X times the predicted pages, at least 1. */
static int scale_pages(const char *flag, double factor, const replay_plan *plan,
                       uint64_t *pages_out)
{
    const double pages = ceil(factor * (double)plan->high_water_pages);
    if (pages > (double)MAX_PAGES)
        return tool_fail(TOOL_USAGE, "--%s %g: %.0f pages: allowed are at most %llu", flag, factor,
                         pages, (unsigned long long)MAX_PAGES);
    *pages_out = pages < 1.0 ? 1 : (uint64_t)pages;
    return TOOL_OK;
}

/* The pool's pages, and how far the tier that takes an overflow can grow: to the predicted pages. */
static int choose_pages(const replay_options *options, replay_plan *plan)
{
    uint64_t *pages = plan->num_pages;
    uint64_t *most = plan->max_pages;
    const uint64_t high_water = plan->high_water_pages;
    pages[REPLAY_DEVICE] = options->pages;
    pages[REPLAY_HOST] = options->host_pages;
    if (options->pages == 0)
        TOOL_TRY(scale_pages("headroom", options->headroom > 0.0 ? options->headroom : 1.0, plan,
                             &pages[REPLAY_DEVICE]));
    if (options->host_pages == REPLAY_PAGES_BY_FACTOR)
        pages[REPLAY_HOST] = 0;
    if (options->host_headroom > 0.0)
        TOOL_TRY(scale_pages("host-headroom", options->host_headroom, plan, &pages[REPLAY_HOST]));
    memcpy(most, pages, sizeof(plan->num_pages));
    const uint64_t all = pages[REPLAY_DEVICE] + pages[REPLAY_HOST];
    const uint64_t missing = high_water > all ? high_water - all : 0;
    if (options->on_overflow == REPLAY_GROW)
        most[REPLAY_DEVICE] += missing;
    else if (options->on_overflow == REPLAY_RETRY)
        most[REPLAY_HOST] += missing;
    return TOOL_OK;
}

int replay_plan_pages(const replay_options *options, const replay_trace *trace,
                      const pst_group *group, replay_plan *plan)
{
    pst_group_usage full;
    TOOL_PST(pst_group_measure(group, NULL, options->page_bytes, &full));
    plan->static_bytes = full.payload_bytes * plan->slots;
    plan->payload = calloc(plan->iterations * plan->slots, sizeof(*plan->payload));
    int64_t *counts = calloc(trace->num_counts, sizeof(*counts));
    plan->pages = calloc(plan->iterations * plan->slots, sizeof(*plan->pages));
    if (plan->payload == NULL || plan->pages == NULL || counts == NULL) {
        free(counts);
        tool_fail(TOOL_NO, "out of memory for the plan of %llu iterations",
                  (unsigned long long)plan->iterations);
        return TOOL_NO;
    }
    int code = TOOL_OK;
    for (uint64_t i = 0; i < plan->iterations && code == TOOL_OK; i++)
        code = measure_iteration(options, trace, group, i, plan, counts);
    free(counts);
    return code == TOOL_OK ? choose_pages(options, plan) : code;
}

void replay_plan_free(replay_plan *plan)
{
    free(plan->payload);
    free(plan->pages);
    plan->payload = NULL;
    plan->pages = NULL;
}
