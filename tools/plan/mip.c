/* The program as a file, and two levels of programs for mode bilevel. */
#include "tools/plan/mip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/output.h"
#include "tools/common/tool.h"
#include "tools/plan/mip_model.h"

const char *mip_status_name(mip_status status)
{
    static const char *const names[] = {"optimal", "feasible", "impossible", "timeout"};
    return (unsigned)status < sizeof(names) / sizeof(names[0]) ? names[status] : "?";
}

int mip_write(const char *path, const pst_plan_problem *problem, const mip_options *options)
{
    mip_model model;
    tool_output output;
    int code = mip_model_make(problem, options, &model);
    if (code == TOOL_OK)
        code = output_open(&output, "mip-model", path);
    if (code == TOOL_OK) {
        mip_model_print(&model, output.file);
        code = output_close(&output, TOOL_OK);
    }
    mip_model_free(&model);
    return code;
}

/* ---- two levels ---- */

typedef struct levels {
    const pst_plan_problem *problem;
    const mip_options *options;
    pst_plan_tensor *tensors; /* of the model at hand */
    uint64_t *members;        /* which tensors of the problem these are */
    uint64_t *found;          /* their addresses */
    uint64_t *block_bytes;    /* of each block */
    mip_result result;
} levels;

static void take_result(levels *self, const mip_result *one)
{
    if (one->status > self->result.status)
        self->result.status = one->status;
    if (one->num_pairs > self->result.num_pairs)
        self->result.num_pairs = one->num_pairs;
    self->result.num_models++;
    self->result.peak = one->peak;
    self->result.bound = one->bound;
}

static bool has_plan(const mip_result *result)
{
    return result->status == MIP_OPTIMAL || result->status == MIP_FEASIBLE;
}

/* The block's tensors, in their order. */
static uint64_t gather(levels *self, uint32_t block)
{
    const pst_plan_problem *problem = self->problem;
    uint64_t count = 0;
    for (uint64_t i = 0; i < problem->num_tensors; i++)
        if (problem->tensors[i].block == block) {
            self->tensors[count] = problem->tensors[i];
            self->members[count++] = i;
        }
    return count;
}

/* Plans one block and gives all of its kind the same addresses within, those from 0 on. */
static int plan_kind(levels *self, uint32_t block, uint64_t *offsets)
{
    const pst_plan_problem *problem = self->problem;
    pst_plan_problem one = PST_PLAN_PROBLEM_INIT;
    mip_options options = *self->options;
    mip_result result;
    options.upper_bytes = 0;
    one.tensors = self->tensors;
    one.num_tensors = gather(self, block);
    one.align = problem->align;
    if (one.num_tensors == 0)
        return tool_fail(TOOL_USAGE, "mip: block %u has no tensors", block);
    for (uint64_t i = 0; i < one.num_tensors; i++)
        if (self->tensors[i].pin != PST_PLAN_FREE)
            return tool_fail(TOOL_USAGE, "mip: tensor %" PRIu64 " is pinned within block %u",
                             self->members[i], block);
    TOOL_TRY(mip_solve(&one, &options, self->found, &result));
    take_result(self, &result);
    if (!has_plan(&result))
        return TOOL_OK;
    const uint64_t count = one.num_tensors;
    for (uint32_t b = block; b < problem->num_blocks; b++) {
        if (problem->blocks[b].kind != problem->blocks[block].kind)
            continue;
        if (gather(self, b) != count)
            return tool_fail(TOOL_USAGE, "mip: blocks %u and %u of kind %u differ in tensors",
                             block, b, problem->blocks[b].kind);
        self->block_bytes[b] = result.peak;
        for (uint64_t i = 0; i < count; i++)
            offsets[self->members[i]] = self->found[i];
    }
    return TOOL_OK;
}

static int plan_rest(levels *self, uint64_t *offsets)
{
    const pst_plan_problem *problem = self->problem;
    pst_plan_problem rest = *problem;
    mip_result result;
    const uint64_t count = gather(self, PST_PLAN_NO_BLOCK);
    for (uint32_t b = 0; b < problem->num_blocks; b++)
        self->tensors[count + b] = (pst_plan_tensor){.bytes = self->block_bytes[b],
                                                     .begin = problem->blocks[b].begin,
                                                     .end = problem->blocks[b].end,
                                                     .pin = PST_PLAN_FREE};
    rest.tensors = self->tensors;
    rest.num_tensors = count + problem->num_blocks;
    TOOL_TRY(mip_solve(&rest, self->options, self->found, &result));
    take_result(self, &result);
    if (!has_plan(&result))
        return TOOL_OK;
    for (uint64_t i = 0; i < count; i++)
        offsets[self->members[i]] = self->found[i];
    for (uint64_t i = 0; i < problem->num_tensors; i++)
        if (problem->tensors[i].block != PST_PLAN_NO_BLOCK)
            offsets[i] += self->found[count + problem->tensors[i].block];
    return TOOL_OK;
}

static int plan_levels(levels *self, uint64_t *offsets)
{
    const pst_plan_problem *problem = self->problem;
    for (uint32_t b = 0; b < problem->num_blocks; b++) {
        if (self->block_bytes[b] == 0)
            TOOL_TRY(plan_kind(self, b, offsets));
        if (!has_plan(&self->result))
            return TOOL_OK;
    }
    return plan_rest(self, offsets);
}

int mip_bilevel(const pst_plan_problem *problem, const mip_options *options, uint64_t *offsets,
                mip_result *result_out)
{
    const uint64_t most = problem->num_tensors + problem->num_blocks;
    if (problem->num_streams > 1)
        return tool_fail(TOOL_USAGE, "mip: %u streams: two levels are for one",
                         problem->num_streams);
    for (uint64_t i = 0; i < problem->num_tensors; i++)
        if (problem->tensors[i].block != PST_PLAN_NO_BLOCK &&
            problem->tensors[i].block >= problem->num_blocks)
            return tool_fail(TOOL_USAGE, "mip: tensor %" PRIu64 ": block %u: there are %u", i,
                             problem->tensors[i].block, problem->num_blocks);
    levels self = {.problem = problem,
                   .options = options,
                   .tensors = calloc(most + 1, sizeof(pst_plan_tensor)),
                   .members = calloc(most + 1, sizeof(uint64_t)),
                   .found = calloc(most + 1, sizeof(uint64_t)),
                   .block_bytes = calloc(problem->num_blocks + 1u, sizeof(uint64_t))};
    uint64_t *planned = calloc(most + 1, sizeof(uint64_t));
    int code = TOOL_OK;
    if (!self.tensors || !self.members || !self.found || !self.block_bytes || !planned) {
        code = tool_fail(TOOL_NO, "mip: out of memory for %" PRIu64 " tensors", most);
    } else {
        code = plan_levels(&self, planned);
        if (!has_plan(&self.result))
            self.result.peak = self.result.bound = 0;
        else if (code == TOOL_OK)
            memcpy(offsets, planned, problem->num_tensors * sizeof(*offsets));
    }
    if (code == TOOL_OK)
        *result_out = self.result;
    free(self.tensors);
    free(self.members);
    free(self.found);
    free(self.block_bytes);
    free(planned);
    return code;
}
