/* pagestash simulate: what a schedule with paged layers costs, before it is run. */
#include "tools/common/output.h"
#include "tools/simulate/simulate_command.h"
#include "tools/simulate/simulate_picture.h"

static int write_list(const simulate_job *job, const simulate_model *model, FILE *file)
{
    psti_schedule_lists lists = {.passes = NULL};
    (void)job;
    pst_status status = PST_OK;
    for (uint32_t s = 0; s < model->num_stages && status == PST_OK; s++)
        status = psti_schedule_lists_add(&lists, model->stages[s].schedule);
    if (status == PST_OK)
        status = psti_schedule_write_list(&lists, output_write, file);
    psti_schedule_lists_free(&lists);
    return output_status(file, status);
}

static int write_one(const simulate_job *job, const simulate_model *model, const char *name,
                     const char *path,
                     int (*write)(const simulate_job *, const simulate_model *, FILE *))
{
    tool_output output;
    if (path == NULL)
        return TOOL_OK;
    TOOL_TRY(output_open(&output, name, path));
    return output_close(&output, write(job, model, output.file));
}

static int write_outputs(const simulate_job *job, const simulate_model *model)
{
    const simulate_options *options = job->options;
    TOOL_TRY(write_one(job, model, "list", options->list, write_list));
    TOOL_TRY(write_one(job, model, "perfetto", options->perfetto, simulate_write_perfetto));
    return write_one(job, model, "html", options->html, simulate_write_html);
}

static int run(simulate_job *job)
{
    simulate_model model;
    simulate_result result = {.num_iterations = 0};
    int code = simulate_model_make(&job->input, &model);
    if (code == TOOL_OK && job->options->solve)
        code = simulate_solve(job, &model, &result.solution);
    if (code == TOOL_OK)
        code = simulate_run(job, &model, &result);
    if (code == TOOL_OK && job->options->check >= 0 && !result.simulation.deadlocked)
        code = simulate_check(job, &model, &result);
    if (code == TOOL_OK)
        code = write_outputs(job, &model);
    if (code == TOOL_OK)
        code = simulate_report(job, &model, &result);
    simulate_free_result(&result);
    simulate_model_free(&model);
    return code;
}

int cmd_simulate(int argc, char **argv)
{
    simulate_options options;
    simulate_job job;
    TOOL_TRY(simulate_parse(argc, argv, &options));
    int code = simulate_open(&options, &job);
    if (code == TOOL_OK)
        code = run(&job);
    simulate_close(&job);
    return code;
}
