/* Writes the picture that --html FILE asks for. */
#include "tools/common/output.h"
#include "tools/estimate/estimate_html.h"
#include "tools/estimate/estimate_out.h"

#include <inttypes.h>

int estimate_picture(const estimate_options *options)
{
    char title[128];
    uint64_t stage = 0;
    tool_output output;
    const pst_estimate_config *config = &options->config;
    TOOL_TRY(output_check("html", options->html));
    TOOL_TRY(estimate_stage_of(options, &stage));
    snprintf(title, sizeof(title), "%s%sstage %" PRIu64 " of %" PRIu64,
             options->preset != NULL ? options->preset : "", options->preset != NULL ? ", " : "",
             stage, config->pipeline_parallel);
    const estimate_html picture = {.title = title,
                                   .config = config,
                                   .stage = stage,
                                   .memory_bytes = options->memory_bytes,
                                   .overhead_bytes = options->overhead_bytes};
    TOOL_TRY(output_open(&output, "html", options->html));
    return output_close(&output, estimate_html_write(output.file, &picture));
}
