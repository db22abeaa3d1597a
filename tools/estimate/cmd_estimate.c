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

static int (*const modes[])(const estimate_options *options) = {
    [ESTIMATE_REPORT] = estimate_report, [ESTIMATE_FIT] = estimate_fit,
    [ESTIMATE_SEARCH] = estimate_search, [ESTIMATE_TIMELINE] = estimate_timeline,
    [ESTIMATE_PR482] = estimate_pr482,
};

/* The picture is written last, so that a run that is refused leaves none; what it refuses itself is asked before. */
static int run(const estimate_options *options)
{
    if (options->html != NULL)
        TOOL_TRY(estimate_check_picture(options));
    const int code = modes[options->mode](options);
    if (options->html != NULL && (code == TOOL_OK || code == TOOL_NO))
        TOOL_TRY(estimate_picture(options));
    return code;
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
    if (code == TOOL_OK)
        code = run(&options);
    estimate_free(&options);
    return tool_flush(code);
}
