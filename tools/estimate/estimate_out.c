#include "tools/estimate/estimate_out.h"
#include "tools/estimate/estimate_report.h"

#include <inttypes.h>
#include <stdio.h>

const char *estimate_bytes_text(uint64_t bytes, char text[ESTIMATE_BYTES_TEXT])
{
    if (bytes < 1u << 20)
        snprintf(text, ESTIMATE_BYTES_TEXT, "%" PRIu64 " bytes", bytes);
    else
        snprintf(text, ESTIMATE_BYTES_TEXT, "%" PRIu64 " (%.2f GiB)", bytes,
                 (double)bytes / (1 << 30));
    return text;
}

const char *estimate_recompute_text(const pst_estimate_config *config,
                                    char text[ESTIMATE_BYTES_TEXT])
{
    int used = 0;
    if (config->recompute_layers != 0) {
        snprintf(text, ESTIMATE_BYTES_TEXT, "full, groups of %" PRIu64, config->recompute_layers);
        return text;
    }
    snprintf(text, ESTIMATE_BYTES_TEXT, "none");
    for (uint32_t bit = 1; bit <= PST_RECOMPUTE_ALL; bit *= 2)
        if ((config->recompute & bit) != 0)
            used += snprintf(text + used, ESTIMATE_BYTES_TEXT - (size_t)used, "%s%s",
                             used > 0 ? ", " : "", estimate_recompute_name(bit));
    return text;
}

int estimate_stage_of(const estimate_options *options, uint64_t *stage_out)
{
    estimate_peak peak = {.stage = options->timeline_stage};
    if (options->timeline_stage == UINT64_MAX)
        TOOL_PST(estimate_peak_of(&options->config, options->overhead_bytes, &peak));
    *stage_out = peak.stage;
    return TOOL_OK;
}

void estimate_print_unmodelled(const estimate_options *options)
{
    for (size_t i = 0; i < options->unmodelled.num_lines; i++)
        printf("not counted: %s\n", options->unmodelled.lines[i]);
}

json_t *estimate_notes_value(const estimate_notes *notes)
{
    json_t *lines = json_array();
    for (size_t i = 0; i < notes->num_lines; i++)
        json_add(&lines, json_text(notes->lines[i]));
    return lines;
}

void estimate_warn_unmodelled(const estimate_options *options)
{
    for (size_t i = 0; i < options->unmodelled.num_lines; i++)
        (void)tool_fail(TOOL_OK, "not counted: %s", options->unmodelled.lines[i]);
}
