/* How the modes of pagestash estimate show things. */
#include "tools/estimate/estimate_out.h"
#include "tools/estimate/estimate_flags.h"

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
    if (config->recompute_layers != 0)
        snprintf(text, ESTIMATE_BYTES_TEXT, "full, groups of %" PRIu64, config->recompute_layers);
    else if (config->recompute == 0)
        snprintf(text, ESTIMATE_BYTES_TEXT, "none");
    else
        estimate_bits_text(estimate_field_table[ESTIMATE_INDEX_recompute].words, config->recompute,
                           ", ", text, ESTIMATE_BYTES_TEXT);
    return text;
}

int estimate_stage_of(const estimate_options *options, uint64_t *stage_out)
{
    estimate_peak peak = {.stage = options->timeline_stage};
    if (options->timeline_stage == UINT64_MAX)
        TOOL_PST(estimate_peak_of(&options->config, options->overhead_bytes, NULL, &peak));
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
