/* pagestash estimate: the memory and the traffic of a training run, before it starts. Here --timeline STAGE, the
 * schedule's events as CSV, and --html FILE, a picture of them. */
#include "tools/common/flags.h"
#include "tools/common/output.h"
#include "tools/estimate/estimate.h"

#include <inttypes.h>
#include <stdio.h>

/* As given, or the heaviest. */
static int stage_of(const estimate_options *options, uint64_t *stage_out)
{
    estimate_peak peak = {.stage = options->timeline_stage};
    if (options->timeline_stage == UINT64_MAX)
        ESTIMATE_TRY(options, estimate_peak_of(&options->config, &options->reserve, &peak));
    *stage_out = peak.stage;
    return TOOL_OK;
}

static bool put_event(void *user, const pst_estimate_event *event)
{
    (void)user;
    printf("%" PRIu64 ",%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
           "\n",
           event->number, event->is_backward ? "backward" : "forward", event->chunk,
           event->micro_batch, event->live_layers, event->saved_bytes, event->head_bytes,
           event->bytes);
    return !ferror(stdout);
}

static int timeline(const estimate_options *options)
{
    uint64_t stage = 0;
    pst_estimate_memory memory;
    ESTIMATE_TRY(options, pst_estimate_check(&options->config));
    TOOL_TRY(stage_of(options, &stage));
    /* so that no event is refused behind the first lines */
    ESTIMATE_TRY(options, pst_estimate_get_memory(&options->config, stage, NULL, &memory));
    estimate_warn(options->unmodelled, "not counted: ");
    puts("event,kind,chunk,micro_batch,live_layers,saved_bytes,head_bytes,bytes");
    ESTIMATE_TRY(options, pst_estimate_get_timeline(&options->config, stage, put_event, NULL));
    return TOOL_OK;
}

static int check_picture(const estimate_options *options)
{
    pst_estimate_memory memory;
    TOOL_TRY(output_check("html", options->html));
    for (uint64_t i = 0; i < options->config.pipeline_parallel; i++)
        ESTIMATE_TRY(options, pst_estimate_get_memory(&options->config, i, NULL, &memory));
    return estimate_html_check(options);
}

static int picture(const estimate_options *options)
{
    char title[128];
    uint64_t stage = 0;
    tool_output output;
    TOOL_TRY(stage_of(options, &stage));
    snprintf(title, sizeof(title), "%s%sstage %" PRIu64 " of %" PRIu64,
             options->preset != NULL ? options->preset : "", options->preset != NULL ? ", " : "",
             stage, options->config.pipeline_parallel);
    TOOL_TRY(output_open(&output, "html", options->html));
    return output_close(&output, estimate_html_write(output.file, title, options, stage));
}

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
    [ESTIMATE_SEARCH] = estimate_search, [ESTIMATE_TIMELINE] = timeline,
    [ESTIMATE_PR482] = estimate_pr482,
};

/* The picture is written last, so that a run that is refused leaves none; what it refuses itself is asked before. */
static int run(const estimate_options *options)
{
    if (options->html != NULL)
        TOOL_TRY(check_picture(options));
    const int code = modes[options->mode](options);
    if (options->html != NULL && !tool_has_failed()) /* that it does not fit is an answer */
        TOOL_TRY(picture(options));
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
