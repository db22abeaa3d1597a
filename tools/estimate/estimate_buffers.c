/* How many rows experts' buffers hold, how they are kept, and how far from even the experts' loads are: from a
 * coefficient of variation, or as recorded. */
#include "host/base/arith.h"
#include "tools/common/routing.h"
#include "tools/estimate/estimate_flags.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int take_capacity(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    const bool each = estimate_has(line, ESTIMATE_moe_expert_capacity_factor);
    const bool rank = estimate_has(line, ESTIMATE_moe_expert_rank_capacity_factor);
    const estimate_id id =
        each ? ESTIMATE_moe_expert_capacity_factor : ESTIMATE_moe_expert_rank_capacity_factor;
    options->has_capacity = each || rank;
    config->row_multiple = 1;
    config->capacity_num = options->has_capacity ? line->flags[id].num : 1;
    config->capacity_den = options->has_capacity ? line->flags[id].den : 1;
    if (config->capacity_num == 0)
        return estimate_refuse_flag(line, id, "must be above 0");
    config->caps_each_expert = each;
    /* padded ones always have so many rows; others no more */
    const bool is_full = estimate_has(line, ESTIMATE_moe_pad_expert_input_to_capacity) || rank ||
                         config->capacity_num < config->capacity_den;
    config->moe_rows =
        (pst_moe_rows)estimate_number(line, ESTIMATE_moe_buffer,
                                      estimate_has(line, ESTIMATE_moe_paged_stash) ? PST_MOE_PAGED
                                      : is_full ? PST_MOE_CAPACITY
                                                : PST_MOE_BALANCED);
    return TOOL_OK;
}

/* X of pages for X balanced loads. */
static int take_headroom(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    estimate_id id = ESTIMATE_moe_paged_stash_buffer_size_factor_cuda;
    const char *text = estimate_text(line, id);
    const bool is_below_0 = text != NULL && *text == '-';
    if (is_below_0)
        estimate_note(&options->unmodelled, "--%s %.80s (counted as 1.1)", estimate_flag(id), text);
    if (is_below_0 || estimate_has(line, ESTIMATE_headroom))
        id = ESTIMATE_headroom;
    options->has_headroom = estimate_has(line, id);
    config->headroom_num = options->has_headroom ? line->flags[id].num : 11;
    config->headroom_den = options->has_headroom ? line->flags[id].den : 10;
    if (config->headroom_num < config->headroom_den)
        return estimate_refuse_flag(line, id, "must be at least 1");
    return TOOL_OK;
}

int estimate_take_buffers(const estimate_line *line, estimate_options *options)
{
    static const estimate_id ids[] = {ESTIMATE_moe_buffer, ESTIMATE_moe_load_cv, ESTIMATE_routing};
    pst_estimate_config *config = &options->config;
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]) && config->num_experts == 0; i++)
        if (estimate_has(line, ids[i]))
            return estimate_refuse_flag(line, ids[i], "there are no experts (--num-experts)");
    TOOL_TRY(take_capacity(line, options));
    TOOL_TRY(take_headroom(line, options));
    if (config->moe_rows == PST_MOE_CAPACITY && !options->has_capacity && !options->has_load_cv &&
        options->routing == NULL)
        return tool_fail(TOOL_USAGE, "--moe-buffer capacity: needs --moe-expert-rank-capacity-"
                                     "factor, --moe-expert-capacity-factor, --moe-load-cv or "
                                     "--routing");
    if (!estimate_has(line, ESTIMATE_page_rows))
        config->page_rows =
            estimate_number(line, ESTIMATE_moe_paged_stash_page_size, config->page_rows);
    const uint64_t page = config->page_bytes;
    if (page < PST_PAGE_BYTES_MIN || page > PST_PAGE_BYTES_MAX || (page & (page - 1)) != 0)
        return tool_fail(TOOL_USAGE, "--page-size %.80s: allowed is a power of two, %d KiB..%d KiB",
                         estimate_text(line, ESTIMATE_page_size), PST_PAGE_BYTES_MIN >> 10,
                         PST_PAGE_BYTES_MAX >> 10);
    return TOOL_OK;
}

/* ---- loads ---- */

#define PARTS UINT64_C(1000) /* loads are rounded up to a thousandth */
#define OVERFLOWS 1e-3       /* of all loads in flight together, how often one may be too small */

typedef struct ratio {
    uint64_t num, den;
} ratio;

/* The loads of one GPU's experts against even routing, in PARTS. */
typedef struct load {
    uint64_t capacity; /* of the heaviest layer */
    uint64_t headroom; /* of all live layers together */
} load;

/* ---- a coefficient of variation ---- */

/* What a normal variable exceeds with this probability. */
static double quantile_above(double probability)
{
    double low = 0.0, high = 40.0;
    for (int i = 0; i < 100; i++) {
        const double middle = (low + high) / 2.0;
        if (erfc(middle / sqrt(2.0)) / 2.0 > probability)
            low = middle;
        else
            high = middle;
    }
    return high;
}

static uint64_t parts_of(ratio value)
{
    return psti_fraction(value.num, PARTS, value.den);
}

/* 1 + deviation in thousandths, at most worst. */
static uint64_t parts_above(double deviation, uint64_t worst)
{
    const double parts = ceil((double)PARTS * (1.0 + deviation));
    return parts >= (double)worst ? worst : (uint64_t)parts;
}

/* Of the stage with most expert layers in flight. */
static pst_status load_of_variation(const estimate_options *options,
                                    const pst_estimate_config *config, load *load_out)
{
    uint64_t num_live = 0, num_layers = 0;
    pst_estimate_moe moe;
    for (uint64_t stage = 0; stage < config->pipeline_parallel; stage++) {
        pst_estimate_memory memory;
        TOOL_TRY(pst_estimate_get_memory(config, stage, NULL, &memory));
        if (memory.live_moe_layers <= num_live)
            continue;
        num_live = memory.live_moe_layers;
        num_layers = memory.states.num_moe_layers;
    }
    TOOL_TRY(pst_estimate_get_moe(config, 1, &moe));
    const double variation = (double)options->load_cv_num / (double)options->load_cv_den;
    const double live = num_live > 0 ? (double)num_live : 1.0;
    const double layers = num_layers > 0 ? (double)num_layers : 1.0;
    const double deviation = quantile_above(OVERFLOWS / live) * variation;
    const uint64_t worst = parts_of((ratio){moe.worst_rows, moe.balanced_rows});
    *load_out = (load){parts_above(deviation, worst), parts_above(deviation / sqrt(layers), worst)};
    return PST_OK;
}

/* ---- a recorded trace ---- */

typedef struct trace {
    const estimate_options *options;
    uint64_t num_ranks;
    uint64_t step;
    uint64_t *sums; /* of each rank, over the layers of the step */
    uint64_t total; /* of all of them */
    ratio layer, together;
} trace;

/* Rows of a rank against the mean of all; kept if there was none as large, and never where there
 * are no rows at all. */
static void keep_largest(ratio *largest, uint64_t rows, uint64_t num_ranks, uint64_t total)
{
    const ratio found = {rows * num_ranks, total}; /* totals are below 2^63 / num_ranks */
    if ((psti_wide)found.num * largest->den > (psti_wide)largest->num * found.den)
        *largest = found;
}

static void end_step(trace *self)
{
    for (uint64_t rank = 0; rank < self->num_ranks; rank++)
        keep_largest(&self->together, self->sums[rank], self->num_ranks, self->total);
    memset(self->sums, 0, self->num_ranks * sizeof(*self->sums));
    self->total = 0;
}

static int take_row(void *user, const routing_row *row)
{
    trace *self = user;
    const uint64_t num_experts = self->options->config.num_experts;
    const uint32_t local = (uint32_t)(row->num_experts / self->num_ranks);
    uint64_t total = 0;
    if (row->num_experts != num_experts)
        return tool_fail(TOOL_INPUT,
                         "--routing %s: has %" PRIu32 " experts: --num-experts is %" PRIu64,
                         self->options->routing, row->num_experts, num_experts);
    if (row->step != self->step) /* before the first there were no rows */
        end_step(self);
    self->step = row->step;
    for (uint32_t e = 0; e < row->num_experts; e++)
        total += row->counts[e];
    self->total += total;
    if (self->total > INT64_MAX / self->num_ranks)
        return tool_fail(TOOL_INPUT, "--routing %s: more rows than 2^63 - 1",
                         self->options->routing);
    for (uint64_t rank = 0; rank < self->num_ranks; rank++) {
        uint64_t rows = 0;
        for (uint32_t e = 0; e < local; e++)
            rows += row->counts[rank * local + e];
        self->sums[rank] += rows;
        keep_largest(&self->layer, rows, self->num_ranks, total);
    }
    return TOOL_OK;
}

static int load_of_trace(const estimate_options *options, load *load_out)
{
    trace self = {.options = options,
                  .num_ranks = options->config.expert_parallel,
                  .layer = {0, 1},
                  .together = {0, 1}};
    self.sums = calloc(self.num_ranks, sizeof(*self.sums));
    if (self.sums == NULL)
        return tool_fail(TOOL_NO, "--routing %s: out of memory", options->routing);
    int code = routing_read(options->routing, take_row, &self);
    if (code == TOOL_OK)
        end_step(&self);
    if (code == TOOL_OK && self.layer.num == 0)
        code = tool_fail(TOOL_INPUT, "--routing %s: no expert received a row", options->routing);
    free(self.sums);
    *load_out = (load){parts_of(self.layer), parts_of(self.together)};
    return code;
}

/* ---- */

static void apply(const estimate_options *options, const load *of, pst_estimate_config *config)
{
    if (!options->has_capacity) {
        config->capacity_num = of->capacity;
        config->capacity_den = PARTS;
    }
    if (!options->has_headroom) {
        config->headroom_num = of->headroom;
        config->headroom_den = PARTS;
    }
}

pst_status estimate_apply_variation(const estimate_options *options, pst_estimate_config *config)
{
    load of;
    if (!options->has_load_cv)
        return PST_OK;
    TOOL_TRY(load_of_variation(options, config, &of));
    apply(options, &of, config);
    return PST_OK;
}

int estimate_read_load(estimate_options *options)
{
    load of = {0, 0};
    if (options->routing == NULL && !options->has_load_cv)
        return TOOL_OK;
    if (options->routing != NULL)
        TOOL_TRY(load_of_trace(options, &of));
    else
        ESTIMATE_TRY(options, load_of_variation(options, &options->config, &of));
    apply(options, &of, &options->config);
    estimate_note(&options->assumptions,
                  "--%s: at most %" PRIu64 ".%03" PRIu64 " of even rows in a layer, %" PRIu64
                  ".%03" PRIu64 " in all that live",
                  options->routing != NULL ? "routing" : "moe-load-cv", of.capacity / PARTS,
                  of.capacity % PARTS, of.headroom / PARTS, of.headroom % PARTS);
    return TOOL_OK;
}
