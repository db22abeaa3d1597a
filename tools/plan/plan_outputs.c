/* What a plan is written to: the plan file and pictures. */
#include "tools/common/output.h"
#include "tools/plan/plan.h"
#include "tools/plan/plan_picture.h"

#include <stdlib.h>

/* Addresses of all tensors of the trace; PST_PLAN_FREE for those that are not planned. */
static uint64_t *all_offsets(const plan_job *job)
{
    uint64_t *offsets = calloc(job->num_all + 1, sizeof(*offsets));
    for (uint64_t i = 0; offsets != NULL && i < job->num_all; i++)
        offsets[i] = PST_PLAN_FREE;
    for (uint64_t k = 0; offsets != NULL && k < job->problem.num_tensors; k++)
        offsets[job->which[k]] = job->offsets[k];
    return offsets;
}

static int write_plan_file(const plan_job *job, FILE *file)
{
    const pst_trace_request *rows = pst_trace_rows(job->trace);
    uint64_t *offsets = all_offsets(job);
    if (offsets == NULL || rows == NULL) {
        free(offsets);
        return tool_fail(TOOL_NO, "out of memory for a plan file of %llu tensors",
                         (unsigned long long)job->num_all);
    }
    const pst_status status =
        pst_plan_file_write(rows, pst_trace_num_rows(job->trace), offsets, output_write, file);
    free(offsets);
    return output_status(file, status);
}

static int write_picture(const plan_job *job, FILE *file,
                         int (*write)(FILE *, const plan_picture *))
{
    pst_trace_tensor *tensors = calloc(job->problem.num_tensors + 1, sizeof(*tensors));
    if (tensors == NULL)
        return tool_fail(TOOL_NO, "out of memory for a picture of %llu tensors",
                         (unsigned long long)job->problem.num_tensors);
    for (uint64_t k = 0; k < job->problem.num_tensors; k++)
        tensors[k] = job->all[job->which[k]];
    const plan_picture picture = {
        .title = job->path,
        .tensors = tensors,
        .offsets = job->offsets,
        .num_tensors = job->problem.num_tensors,
        .align = job->problem.align,
        .peak = job->plan.peak,
        .bound = job->plan.lower_bound,
    };
    const int code = write(file, &picture);
    free(tensors);
    return code;
}

static int write_html(const plan_job *job, FILE *file)
{
    return write_picture(job, file, plan_html_write);
}

static int write_perfetto(const plan_job *job, FILE *file)
{
    return write_picture(job, file, plan_perfetto_write);
}

static int write_one(const plan_job *job, const char *name, const char *path,
                     int (*write)(const plan_job *, FILE *))
{
    tool_output output;
    if (path == NULL)
        return TOOL_OK;
    TOOL_TRY(output_open(&output, name, path));
    return output_close(&output, write(job, output.file));
}

int plan_write_outputs(const plan_job *job)
{
    const plan_options *options = job->options;
    TOOL_TRY(write_one(job, "out", options->out, write_plan_file));
    TOOL_TRY(write_one(job, "html", options->html, write_html));
    return write_one(job, "perfetto", options->perfetto, write_perfetto);
}
