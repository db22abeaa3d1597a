/* The model in CBC's hands (COIN-OR branch and cut, through its C interface). */
#include "tools/plan/mip_model.h"

#include "tools/common/tool.h"

#ifdef PAGESTASH_HAVE_CBC

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include <Cbc_C_Interface.h>

/* Columns: M, the boxes' addresses, the pairs' binaries. */
static void add_columns(const mip_model *model, Cbc_Model *cbc)
{
    const double upper = (double)model->upper;
    Cbc_addCol(cbc, "M", model->is_cut ? (double)model->load : 0.0, upper, 1.0, 0, 0, NULL, NULL);
    for (uint32_t i = 0; i < model->num_boxes; i++) {
        const bool is_free = model->pin[i] == PST_PLAN_FREE;
        Cbc_addCol(cbc, "", is_free ? 0.0 : (double)model->pin[i],
                   is_free ? upper : (double)model->pin[i], 0.0, 0, 0, NULL, NULL);
    }
    for (uint32_t k = 0; k < model->num_pairs; k++)
        Cbc_addCol(cbc, "", 0.0, 1.0, 0.0, 1, 0, NULL, NULL);
}

static void add_rows(const mip_model *model, Cbc_Model *cbc)
{
    const double big = (double)model->upper;
    for (uint32_t i = 0; i < model->num_tensors; i++) {
        const int columns[] = {0, 1 + (int)i};
        const double factors[] = {1.0, -1.0};
        Cbc_addRow(cbc, "", 2, columns, factors, 'G', (double)model->size[i]);
    }
    for (uint32_t k = 0; k < model->num_pairs; k++) {
        const uint32_t i = model->pairs[k].first;
        const uint32_t j = model->pairs[k].second;
        const int columns[] = {1 + (int)i, 1 + (int)j, (int)(1 + model->num_boxes + k)};
        const double below[] = {-1.0, 1.0, big};
        const double above[] = {1.0, -1.0, -big};
        Cbc_addRow(cbc, "", 3, columns, below, 'G', (double)model->size[i]);
        Cbc_addRow(cbc, "", 3, columns, above, 'G', (double)model->size[j] - big);
    }
}

/* The least whole number of units that the solver's bound, a sum of roundings, can mean. */
static uint64_t whole_bound(const mip_model *model, const Cbc_Model *cbc)
{
    const double found = Cbc_getBestPossibleObjValue((Cbc_Model *)cbc);
    const double bound = ceil(found - 1e-6 * fmax(1.0, fabs(found)));
    uint64_t units = model->load;
    if (bound > (double)units && bound <= (double)model->upper)
        units = (uint64_t)bound;
    return units;
}

static int take_answer(const mip_model *model, Cbc_Model *cbc, uint64_t *addresses,
                       mip_result *result)
{
    const double *best = Cbc_bestSolution(cbc);
    if (best == NULL && Cbc_isProvenOptimal(cbc)) /* without binaries */
        best = Cbc_getColSolution(cbc);
    uint64_t peak = 0;
    *result = (mip_result){.num_pairs = model->num_pairs, .num_models = 1};
    if (Cbc_isProvenInfeasible(cbc)) {
        result->status = MIP_IMPOSSIBLE;
        return TOOL_OK;
    }
    if (best == NULL || !mip_model_settle(model, best + 1, addresses, &peak)) {
        result->status = MIP_TIMEOUT;
        result->bound = model->load * model->unit;
        return TOOL_OK;
    }
    const uint64_t bound = whole_bound(model, cbc);
    result->bound = (bound < peak ? bound : peak) * model->unit;
    result->peak = peak * model->unit;
    result->status = result->bound == result->peak ? MIP_OPTIMAL : MIP_FEASIBLE;
    return TOOL_OK;
}

static int solve(const mip_model *model, const mip_options *options, uint64_t *offsets,
                 mip_result *result_out)
{
    uint64_t *addresses = calloc(model->num_boxes, sizeof(*addresses));
    Cbc_Model *cbc = Cbc_newModel();
    if (addresses == NULL || cbc == NULL) {
        free(addresses);
        return tool_fail(TOOL_NO, "mip: out of memory for %u tensors", model->num_tensors);
    }
    Cbc_setLogLevel(cbc, 0);
    Cbc_setParameter(cbc, "log", "0");
    Cbc_setParameter(cbc, "timeMode", "elapsed");
    Cbc_setMaximumSeconds(cbc, options->seconds > 0 ? options->seconds : 60.0);
    add_columns(model, cbc);
    add_rows(model, cbc);
    Cbc_solve(cbc);
    const int code = take_answer(model, cbc, addresses, result_out);
    if (result_out->peak > 0)
        for (uint32_t i = 0; i < model->num_tensors; i++)
            offsets[i] = addresses[i] * model->unit;
    Cbc_deleteModel(cbc);
    free(addresses);
    return code;
}

int mip_solve(const pst_plan_problem *problem, const mip_options *options, uint64_t *offsets,
              mip_result *result_out)
{
    mip_model model;
    int code = mip_model_make(problem, options, &model);
    if (code == TOOL_OK && (uint64_t)model.load > model.upper)
        *result_out =
            (mip_result){.status = MIP_IMPOSSIBLE, .num_pairs = model.num_pairs, .num_models = 1};
    else if (code == TOOL_OK)
        code = solve(&model, options, offsets, result_out);
    mip_model_free(&model);
    return code;
}

#else

int mip_solve(const pst_plan_problem *problem, const mip_options *options, uint64_t *offsets,
              mip_result *result_out)
{
    (void)problem;
    (void)options;
    (void)offsets;
    (void)result_out;
    return tool_fail(TOOL_USAGE, "--method mip: built without CBC: allowed is to write the model");
}

#endif
