/* How large everything is that a replay needs: capacity, tensors, pages. Arithmetic only. */
#include "tools/replay/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS ((uint64_t)INT32_MAX)
enum { BUFFER_ALIGNMENT = 256, MX_BLOCK = 32 };

static void add_tensor(replay_sizes *sizes, uint64_t row_bytes, uint32_t num, uint32_t den)
{
    sizes->tensors[sizes->num_tensors++] =
        (replay_tensor){.row_bytes = row_bytes, .num = num, .den = den};
}

/* An MX tensor is kept twice: quantised along its rows, and along its columns. */
static void add_mx_tensor(replay_sizes *sizes, uint32_t width)
{
    add_tensor(sizes, width, 1, 1);
    add_tensor(sizes, (width + MX_BLOCK - 1) / MX_BLOCK, 1, 1);
    add_tensor(sizes, width, 1, 1);
    add_tensor(sizes, width, 1, MX_BLOCK);
}

/* What a grouped MoE MLP keeps for its backward pass. */
static void add_tensors(const replay_model *model, replay_sizes *sizes)
{
    const uint64_t bf16 = 2;
    if (model->dtype == REPLAY_MXFP8)
        add_mx_tensor(sizes, model->hidden_size); /* fc1 input */
    else
        add_tensor(sizes, model->hidden_size * bf16, 1, 1);
    add_tensor(sizes, 2 * model->moe_ffn_hidden_size * bf16, 1, 1); /* fc1 output: gate and up */
    if (model->dtype == REPLAY_MXFP8)
        add_mx_tensor(sizes, model->moe_ffn_hidden_size); /* activation */
    else
        add_tensor(sizes, model->moe_ffn_hidden_size * bf16, 1, 1);
    add_tensor(sizes, sizeof(float), 1, 1); /* routing probability */
}

/* The smallest factor of four decimals that gives at least `rows`. */
static double factor_for(uint64_t rows, double mean)
{
    double factor = ceil((double)rows / mean * 1e4) / 1e4;
    while (ceil(factor * mean) < (double)rows)
        factor += 1e-4;
    return factor;
}

static int choose_capacity(const replay_model *model, const replay_trace *trace,
                           replay_sizes *sizes)
{
    const char *what = model->layout == PST_ROWS_PREFIX ? "rank" : "expert";
    double capacity = (double)trace->max_count;
    if (model->capacity_factor > 0.0)
        capacity = ceil(model->capacity_factor * trace->mean_count);
    if (capacity > (double)MAX_ROWS)
        return tool_fail(TOOL_USAGE, "--capacity-factor %g: %.0f rows: allowed are at most %llu",
                         model->capacity_factor, capacity, (unsigned long long)MAX_ROWS);
    if (capacity < (double)trace->max_count_replayed)
        return tool_fail(TOOL_NO,
                         "--capacity-factor %g: %.0f rows per %s, but the trace reaches %llu: "
                         "needed is --capacity-factor %.4f",
                         model->capacity_factor, capacity, what,
                         (unsigned long long)trace->max_count_replayed,
                         factor_for(trace->max_count_replayed, trace->mean_count));
    sizes->capacity = capacity < 1.0 ? 1 : (uint64_t)capacity;
    sizes->capacity_factor = trace->mean_count > 0.0 ? capacity / trace->mean_count : 0.0;
    return TOOL_OK;
}

/* Lays the tensors of one layer out, one after the other. */
static int lay_out(const replay_trace *trace, replay_sizes *sizes)
{
    uint64_t end = 0;
    for (uint32_t t = 0; t < sizes->num_tensors; t++) {
        replay_tensor *tensor = &sizes->tensors[t];
        const uint64_t rows = (sizes->capacity * tensor->num + tensor->den - 1) / tensor->den;
        uint64_t bytes;
        if (__builtin_mul_overflow(rows * trace->num_counts, tensor->row_bytes, &bytes) ||
            __builtin_add_overflow(bytes, BUFFER_ALIGNMENT - 1, &bytes))
            return tool_fail(TOOL_NO, "tensor %u: more than 2^64 bytes", t);
        tensor->offset = end;
        if (__builtin_add_overflow(end, bytes & ~(uint64_t)(BUFFER_ALIGNMENT - 1), &end))
            return tool_fail(TOOL_NO, "tensor %u: more than 2^64 bytes", t);
    }
    sizes->set_bytes = end;
    return TOOL_OK;
}

int replay_make_group(const replay_model *model, const replay_trace *trace,
                      const replay_sizes *sizes, pst_group **group_out)
{
    const pst_row_space space = {
        .kind = (pst_rows_kind)model->layout,
        .count_type = PST_COUNT_INT32,
        .capacity = (int64_t)sizes->capacity,
        .num_segments = trace->num_counts,
    };
    pst_tensor tensors[REPLAY_MAX_TENSORS] = {0};
    for (uint32_t t = 0; t < sizes->num_tensors; t++)
        tensors[t] = (pst_tensor){
            .row_bytes = sizes->tensors[t].row_bytes,
            .num = sizes->tensors[t].num,
            .den = sizes->tensors[t].den,
        };
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = tensors;
    config.num_tensors = sizes->num_tensors;
    return tool_status(pst_group_create(&config, group_out));
}

int replay_sizes_make(const replay_model *model, const replay_trace *trace,
                      const replay_tensor *tensors, uint32_t num_tensors, replay_sizes *sizes_out)
{
    memset(sizes_out, 0, sizeof(*sizes_out));
    const uint64_t slots = (uint64_t)model->num_micro_batches * trace->layers;
    if (slots > REPLAY_MAX_SLOTS)
        return tool_fail(
            TOOL_USAGE,
            "--num-micro-batches %u: %llu layers of micro-batches: allowed are at most %u",
            model->num_micro_batches, (unsigned long long)slots, REPLAY_MAX_SLOTS);
    sizes_out->slots = (uint32_t)slots;
    sizes_out->iterations = trace->steps / model->num_micro_batches;
    TOOL_TRY(choose_capacity(model, trace, sizes_out));
    if (tensors == NULL)
        add_tensors(model, sizes_out);
    for (uint32_t i = 0; tensors != NULL && i < num_tensors; i++)
        add_tensor(sizes_out, tensors[i].row_bytes, tensors[i].num, tensors[i].den);
    return lay_out(trace, sizes_out);
}

static int measure_iteration(const replay_model *model, const replay_trace *trace,
                             const pst_group *group, uint64_t iteration, replay_sizes *sizes,
                             int64_t *counts)
{
    for (uint32_t slot = 0; slot < sizes->slots; slot++) {
        const uint64_t idx = iteration * sizes->slots + slot;
        for (uint32_t c = 0; c < trace->num_counts; c++)
            counts[c] = trace->counts[idx * trace->num_counts + c];
        pst_group_usage usage;
        TOOL_PST(pst_group_measure(group, counts, model->page_size, &usage));
        sizes->payload[idx] = usage.payload_bytes;
        sizes->pages[idx] = (uint32_t)usage.pages;
    }
    return TOOL_OK;
}

int replay_sizes_count_pages(const replay_model *model, const replay_trace *trace,
                             const pst_group *group, replay_sizes *sizes)
{
    pst_group_usage full;
    TOOL_PST(pst_group_measure(group, NULL, model->page_size, &full));
    sizes->full_bytes = full.payload_bytes;
    sizes->payload = calloc(sizes->iterations * sizes->slots, sizeof(*sizes->payload));
    int64_t *counts = calloc(trace->num_counts, sizeof(*counts));
    sizes->pages = calloc(sizes->iterations * sizes->slots, sizeof(*sizes->pages));
    if (sizes->payload == NULL || sizes->pages == NULL || counts == NULL) {
        free(counts);
        return tool_fail(TOOL_NO, "out of memory for the pages of %llu iterations",
                         (unsigned long long)sizes->iterations);
    }
    int code = TOOL_OK;
    for (uint64_t i = 0; i < sizes->iterations && code == TOOL_OK; i++)
        code = measure_iteration(model, trace, group, i, sizes, counts);
    free(counts);
    return code;
}

int replay_scale_pages(const char *name, double factor, uint64_t num_pages, uint64_t *pages_out)
{
    const double pages = ceil(factor * (double)num_pages);
    if (pages > (double)REPLAY_MAX_PAGES)
        return tool_fail(TOOL_USAGE, "--%s %g: %.0f pages: allowed are at most %u", name, factor,
                         pages, REPLAY_MAX_PAGES);
    *pages_out = pages < 1.0 ? 1 : (uint64_t)pages;
    return TOOL_OK;
}

/* The tier that takes an overflow can grow to the predicted pages. */
int replay_sizes_choose_pages(const replay_options *options, replay_sizes *sizes)
{
    uint64_t *pages = sizes->num_pages;
    uint64_t *most = sizes->max_pages;
    const uint64_t high_water = sizes->high_water_pages;
    const double headroom = options->headroom > 0.0 ? options->headroom : 1.0;
    pages[REPLAY_DEVICE] = options->pages;
    pages[REPLAY_HOST] = options->host_pages != REPLAY_NOT_GIVEN ? options->host_pages : 0;
    if (options->pages == REPLAY_NOT_GIVEN)
        TOOL_TRY(replay_scale_pages("headroom", headroom, high_water, &pages[REPLAY_DEVICE]));
    if (options->host_headroom > 0.0)
        TOOL_TRY(replay_scale_pages("host-headroom", options->host_headroom, high_water,
                                    &pages[REPLAY_HOST]));
    memcpy(most, pages, sizeof(sizes->num_pages));
    const uint64_t all = pages[REPLAY_DEVICE] + pages[REPLAY_HOST];
    const uint64_t missing = high_water > all ? high_water - all : 0;
    if (options->on_overflow == REPLAY_GROW)
        most[REPLAY_DEVICE] += missing;
    else if (options->on_overflow == REPLAY_RETRY)
        most[REPLAY_HOST] += missing;
    return TOOL_OK;
}

void replay_sizes_free(replay_sizes *sizes)
{
    free(sizes->payload);
    free(sizes->pages);
    sizes->payload = NULL;
    sizes->pages = NULL;
}
