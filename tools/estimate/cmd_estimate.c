/* pagestash estimate: the memory and the traffic of a training run, before it starts. */
#include "tools/estimate/estimate.h"

#include <string.h>

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-?") == 0)
            return true;
    return false;
}

static int run_mode(const estimate_options *options)
{
    switch (options->mode) {
    case ESTIMATE_FIT:
        return estimate_fit(options);
    case ESTIMATE_SEARCH:
        return estimate_search(options);
    case ESTIMATE_TIMELINE:
        return estimate_timeline(options);
    case ESTIMATE_PR482:
        return estimate_pr482(options);
    default:
        return options->json ? estimate_report_json(options) : estimate_report_text(options);
    }
}

int cmd_estimate(int argc, char **argv)
{
    estimate_options options;
    if (wants_help(argc, argv)) {
        estimate_help();
        return tool_flush(TOOL_OK);
    }
    int code = estimate_parse(argc, argv, &options);
    if (code == TOOL_OK && options.mode != ESTIMATE_SEARCH) /* where every split has its own */
        code = estimate_read_load(&options);
    if (code == TOOL_OK && options.html != NULL)
        code = estimate_picture(&options);
    if (code == TOOL_OK)
        code = run_mode(&options);
    estimate_free(&options);
    return tool_flush(code);
}
