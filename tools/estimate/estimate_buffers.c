/* How many rows experts' buffers hold, and how they are kept. */
#include "tools/estimate/estimate_flags.h"

static int take_capacity(const estimate_line *line, estimate_options *options)
{
    pst_estimate_config *config = &options->config;
    const bool each = estimate_has(line, ESTIMATE_moe_expert_capacity_factor);
    const bool rank = estimate_has(line, ESTIMATE_moe_expert_rank_capacity_factor);
    const estimate_id id =
        each ? ESTIMATE_moe_expert_capacity_factor : ESTIMATE_moe_expert_rank_capacity_factor;
    options->has_capacity = each || rank;
    config->capacity_num = config->capacity_den = config->row_multiple = 1;
    if (options->has_capacity) {
        config->capacity_num = line->flags[id].num;
        config->capacity_den = line->flags[id].den;
    }
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
