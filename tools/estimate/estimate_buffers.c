/* How many rows experts' buffers hold, and how they are kept. */
#include "tools/estimate/estimate_flags.h"

static int take_capacity(const estimate_line *line, pst_estimate_config *config)
{
    const bool each = estimate_has(line, ESTIMATE_F_MOE_EXPERT_CAPACITY_FACTOR);
    const bool rank = estimate_has(line, ESTIMATE_F_MOE_RANK_CAPACITY_FACTOR);
    const estimate_flag id =
        each ? ESTIMATE_F_MOE_EXPERT_CAPACITY_FACTOR : ESTIMATE_F_MOE_RANK_CAPACITY_FACTOR;
    config->capacity_num = config->capacity_den = 1;
    estimate_take_decimal(line, id, &config->capacity_num, &config->capacity_den);
    if (config->capacity_num == 0)
        return tool_fail(TOOL_USAGE, "--%s %.80s: must be above 0", estimate_flag_table[id].name,
                         estimate_text(line, id));
    config->caps_each_expert = each;
    /* padded ones always have so many rows; others no more */
    if (estimate_has(line, ESTIMATE_F_MOE_PAD_TO_CAPACITY) || rank ||
        config->capacity_num < config->capacity_den)
        config->moe_rows = PST_MOE_CAPACITY;
    return TOOL_OK;
}

/* X of pages for X balanced loads. */
static int take_headroom(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    config->headroom_num = 11;
    config->headroom_den = 10;
    estimate_flag id = ESTIMATE_F_MOE_PAGED_STASH_CUDA;
    const char *text = estimate_text(line, id);
    if (text != NULL && *text == '-') {
        TOOL_TRY(estimate_note(&options->unmodelled, "--%s %.80s (counted as 1.1)",
                               estimate_flag_table[id].name, text));
        id = ESTIMATE_F_HEADROOM;
    }
    estimate_take_decimal(line, id, &config->headroom_num, &config->headroom_den);
    if (estimate_has(line, ESTIMATE_F_HEADROOM)) {
        id = ESTIMATE_F_HEADROOM;
        estimate_take_decimal(line, id, &config->headroom_num, &config->headroom_den);
    }
    options->has_headroom = estimate_has(line, id);
    if (config->headroom_num < config->headroom_den)
        return tool_fail(TOOL_USAGE, "--%s %.80s: must be at least 1", estimate_flag_table[id].name,
                         estimate_text(line, id));
    return TOOL_OK;
}

static int check_buffers(const estimate_line *line, const estimate_options *options)
{
    static const estimate_flag ids[] = {ESTIMATE_F_MOE_BUFFER, ESTIMATE_F_MOE_LOAD_CV,
                                        ESTIMATE_F_ROUTING};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]) && options->config.num_experts == 0; i++)
        if (estimate_has(line, ids[i]))
            return tool_fail(TOOL_USAGE, "--%s %.80s: there are no experts (--num-experts)",
                             estimate_flag_table[ids[i]].name, estimate_text(line, ids[i]));
    if (options->config.moe_rows == PST_MOE_CAPACITY && !options->has_capacity &&
        !options->has_load_cv && options->routing == NULL)
        return tool_fail(TOOL_USAGE, "--moe-buffer capacity: needs --moe-expert-rank-capacity-"
                                     "factor, --moe-expert-capacity-factor, --moe-load-cv or "
                                     "--routing");
    return TOOL_OK;
}

int estimate_take_buffers(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    TOOL_TRY(take_capacity(line, config));
    if (estimate_has(line, ESTIMATE_F_MOE_PAGED_STASH))
        config->moe_rows = PST_MOE_PAGED;
    config->row_multiple = 1;
    config->page_rows = 64;
    config->page_bytes = PST_PAGE_BYTES_DEFAULT;
    estimate_take_number(line, ESTIMATE_F_MOE_PAGED_STASH_PAGE_SIZE, &config->page_rows);
    estimate_take_fields(line, ESTIMATE_OF_ROWS, config);
    options->has_capacity = estimate_has(line, ESTIMATE_F_MOE_EXPERT_CAPACITY_FACTOR) ||
                            estimate_has(line, ESTIMATE_F_MOE_RANK_CAPACITY_FACTOR);
    TOOL_TRY(check_buffers(line, options));
    TOOL_TRY(take_headroom(line, options));
    const uint64_t page = config->page_bytes;
    if (page < PST_PAGE_BYTES_MIN || page > PST_PAGE_BYTES_MAX || (page & (page - 1)) != 0)
        return tool_fail(TOOL_USAGE, "--page-size %.80s: allowed is a power of two, %d KiB..%d KiB",
                         estimate_text(line, ESTIMATE_F_PAGE_SIZE), PST_PAGE_BYTES_MIN >> 10,
                         PST_PAGE_BYTES_MAX >> 10);
    return TOOL_OK;
}
