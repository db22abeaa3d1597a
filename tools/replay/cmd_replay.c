/* pagestash replay: a recorded routing trace through pool, stash and restore. */
#include "tools/replay/replay.h"

static int replay_on_device(const replay_options *options, const replay_trace *trace,
                            replay_sizes *sizes, replay_order *order, replay_result *result_out)
{
    const replay_model *model = &options->model;
    replay_machine machine;
    int code = replay_open(&machine, options, trace, sizes, order);
    if (code == TOOL_OK)
        code = replay_sizes_count_pages(model, trace, machine.group, sizes);
    if (code == TOOL_OK)
        code = replay_order_predict_all(order, sizes);
    if (code == TOOL_OK)
        code = replay_sizes_choose_pages(options, sizes);
    if (code == TOOL_OK)
        code = replay_equip(&machine);
    if (code == TOOL_OK)
        code = replay_run(&machine, result_out);
    return replay_close(&machine, code);
}

int cmd_replay(int argc, char **argv)
{
    replay_options options;
    replay_trace trace;
    replay_sizes sizes;
    replay_order order = {.schedule = NULL};
    replay_result result;
    TOOL_TRY(replay_parse(argc, argv, &options));
    TOOL_TRY(replay_trace_read(&options.model, &trace));
    int code = replay_sizes_make(&options.model, &trace, NULL, 0, &sizes);
    if (code == TOOL_OK)
        code = replay_order_make(&options, &trace, &sizes, &order);
    if (code == TOOL_OK)
        code = replay_on_device(&options, &trace, &sizes, &order, &result);
    if (code == TOOL_OK)
        code = replay_report(&options, &trace, &sizes, &result);
    replay_order_free(&order);
    replay_sizes_free(&sizes);
    replay_trace_free(&trace);
    return code;
}
