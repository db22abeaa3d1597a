/* pagestash estimate: the memory and the traffic of a training run, before it starts. */
#include "tools/common/flags.h"
#include "tools/estimate/estimate.h"

/* What is asked for anywhere on the line. */
static flag_asked asked(int argc, char **argv)
{
    flag_asked found = FLAG_ASKED_NOTHING;
    for (int i = 1; i < argc && found == FLAG_ASKED_NOTHING; i++)
        found = flags_asked(argv[i]);
    return found;
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
        return estimate_report(options);
    }
}

int cmd_estimate(int argc, char **argv)
{
    estimate_options options;
    const flag_asked what = asked(argc, argv);
    if (what != FLAG_ASKED_NOTHING) {
        if (what == FLAG_ASKED_HELP)
            estimate_help();
        else
            flags_print_version();
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
