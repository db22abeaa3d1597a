/* MEMO's model: which tensors meet, in which units, and the LP file. */
#include "tools/plan/mip_model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "host/base/arith.h"
#include "tools/common/tool.h"

#define MAX_UNITS (UINT64_C(1) << 40) /* so that doubles tell addresses apart */

/* What finding the pairs needs of a tensor. */
typedef struct life {
    uint64_t begin, end; /* end: when the last stream may reuse it */
    uint32_t tensor;
} life;

static int compare_lives(const void *left, const void *right)
{
    const life *a = left;
    const life *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

/* ---- boxes ---- */

/* The problem's tensors, then its reserved ranges, all in bytes. */
static int take_boxes(const pst_plan_problem *problem, mip_model *model)
{
    const uint64_t up = (problem->align ? problem->align : 512) - 1;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < model->num_boxes; i++) {
        const bool is_tensor = i < model->num_tensors;
        const pst_plan_range *range = is_tensor ? NULL : &problem->reserved[i - model->num_tensors];
        uint64_t bytes = is_tensor ? problem->tensors[i].bytes : 0;
        if (!is_tensor && range->begin < range->end)
            bytes = range->end - (range->begin & ~up);
        if (bytes > PST_PLAN_MAX_BYTES - sum)
            return tool_fail(TOOL_USAGE, "mip: more than 2^62 bytes");
        model->size[i] = (bytes + up) & ~up;
        model->pin[i] = is_tensor ? problem->tensors[i].pin : range->begin & ~up;
        sum += model->size[i];
    }
    return TOOL_OK;
}

/* In units from here on. */
static int scale(const pst_plan_problem *problem, const mip_options *options, mip_model *model)
{
    uint64_t unit = 0;
    uint64_t upper = 0;
    uint64_t pinned = 0; /* above the highest pin there is room for all others */
    for (uint32_t i = 0; i < model->num_boxes; i++) {
        const uint64_t top = model->pin[i] + model->size[i];
        unit = psti_gcd(unit, model->size[i]);
        if (model->pin[i] == PST_PLAN_FREE) {
            upper += model->size[i];
            continue;
        }
        unit = psti_gcd(unit, model->pin[i]);
        pinned = top > pinned ? top : pinned;
    }
    upper += pinned;
    if (options->upper_bytes > 0 && options->upper_bytes < upper)
        upper = options->upper_bytes;
    if (problem->capacity > 0 && problem->capacity < upper)
        upper = problem->capacity;
    model->unit = unit ? unit : 1;
    model->upper = upper / model->unit;
    if (model->upper > MAX_UNITS)
        return tool_fail(TOOL_USAGE,
                         "mip: addresses up to %" PRIu64 " units of %" PRIu64
                         " bytes: allowed are 2^40, which the solver can tell apart",
                         model->upper, model->unit);
    for (uint32_t i = 0; i < model->num_boxes; i++) {
        model->size[i] /= model->unit;
        if (model->pin[i] == PST_PLAN_FREE)
            continue;
        model->pin[i] /= model->unit;
        /* the large constant must exceed what it switches off */
        if (i >= model->num_tensors && model->pin[i] < model->upper &&
            model->size[i] > model->upper - model->pin[i])
            model->size[i] = model->upper - model->pin[i];
    }
    return TOOL_OK;
}

/* ---- pairs ---- */

/* Whether both can need the same bytes: neither begins after the other released them. */
static bool meet(const pst_plan_problem *problem, uint32_t a, uint32_t b)
{
    const pst_plan_tensor *first = &problem->tensors[a];
    const pst_plan_tensor *second = &problem->tensors[b];
    const uint64_t streams = problem->num_streams;
    if (streams <= 1)
        return first->begin < second->end && second->begin < first->end;
    return second->begin < problem->releases[a * streams + second->stream] &&
           first->begin < problem->releases[b * streams + first->stream];
}

static bool add_pair(mip_model *model, uint32_t first, uint32_t second)
{
    if (model->num_pairs == MIP_MAX_PAIRS)
        return false;
    model->pairs[model->num_pairs++] = (mip_pair){first, second};
    return true;
}

static bool add_pairs(const pst_plan_problem *problem, const life *lives, mip_model *model)
{
    for (uint32_t i = 0; i < model->num_tensors; i++)
        for (uint32_t j = i + 1; j < model->num_tensors && lives[j].begin < lives[i].end; j++)
            if (meet(problem, lives[i].tensor, lives[j].tensor) &&
                !add_pair(model, lives[i].tensor, lives[j].tensor))
                return false;
    for (uint32_t i = model->num_tensors; i < model->num_boxes; i++)
        for (uint32_t j = 0; j < model->num_tensors; j++)
            if (model->pin[i] < model->upper && !add_pair(model, j, i))
                return false;
    return true;
}

static int compare_ends(const void *left, const void *right)
{
    const uint64_t *a = left;
    const uint64_t *b = right;
    return (*a > *b) - (*a < *b);
}

/* Most units live at once: by its own life, whatever the streams. */
static void find_most_live(const pst_plan_problem *problem, const life *lives, uint64_t (*ends)[2],
                           mip_model *model)
{
    uint64_t live = 0;
    uint32_t ended = 0;
    for (uint32_t i = 0; i < model->num_tensors; i++) {
        ends[i][0] = problem->tensors[i].end;
        ends[i][1] = model->size[i];
    }
    qsort(ends, model->num_tensors, sizeof(*ends), compare_ends);
    for (uint32_t i = 0; i < model->num_tensors; i++) {
        while (ends[ended][0] <= lives[i].begin)
            live -= ends[ended++][1];
        live += model->size[lives[i].tensor];
        if (live > model->most_live)
            model->most_live = live;
    }
}

static void take_lives(const pst_plan_problem *problem, life *lives, uint32_t num_tensors)
{
    for (uint32_t i = 0; i < num_tensors; i++) {
        lives[i] = (life){problem->tensors[i].begin, problem->tensors[i].end, i};
        for (uint32_t r = 0; r < problem->num_streams && problem->num_streams > 1; r++)
            if (problem->releases[(uint64_t)i * problem->num_streams + r] > lives[i].end)
                lives[i].end = problem->releases[(uint64_t)i * problem->num_streams + r];
    }
    qsort(lives, num_tensors, sizeof(*lives), compare_lives);
}

static int make_pairs(const pst_plan_problem *problem, mip_model *model)
{
    life *lives = calloc(model->num_tensors + 1u, sizeof(*lives));
    uint64_t(*ends)[2] = calloc(model->num_tensors + 1u, sizeof(*ends));
    int code = TOOL_OK;
    if (lives == NULL || ends == NULL) {
        code = tool_fail(TOOL_NO, "mip: out of memory");
    } else {
        take_lives(problem, lives, model->num_tensors);
        find_most_live(problem, lives, ends, model);
        if (!add_pairs(problem, lives, model))
            code = tool_fail(TOOL_USAGE, "mip: more than %d pairs of tensors are live together",
                             MIP_MAX_PAIRS);
    }
    free(lives);
    free(ends);
    return code;
}

int mip_model_make(const pst_plan_problem *problem, const mip_options *options, mip_model *model)
{
    memset(model, 0, sizeof(*model));
    if (problem->num_tensors == 0 || problem->num_tensors > MIP_MAX_PAIRS)
        return tool_fail(TOOL_USAGE, "mip: %" PRIu64 " tensors: allowed are 1 to %d",
                         problem->num_tensors, MIP_MAX_PAIRS);
    model->num_tensors = (uint32_t)problem->num_tensors;
    model->num_boxes = model->num_tensors + problem->num_reserved;
    model->is_cut = !options->without_cut;
    model->size = calloc(model->num_boxes, sizeof(*model->size));
    model->pin = calloc(model->num_boxes, sizeof(*model->pin));
    model->pairs = calloc(MIP_MAX_PAIRS, sizeof(*model->pairs));
    if (model->size == NULL || model->pin == NULL || model->pairs == NULL)
        return tool_fail(TOOL_NO, "mip: out of memory for %u tensors", model->num_tensors);
    TOOL_TRY(take_boxes(problem, model));
    TOOL_TRY(scale(problem, options, model));
    return make_pairs(problem, model);
}

void mip_model_free(mip_model *model)
{
    free(model->size);
    free(model->pin);
    free(model->pairs);
    memset(model, 0, sizeof(*model));
}

/* ---- LP ---- */

static void print_rows(const mip_model *model, FILE *file)
{
    for (uint32_t i = 0; i < model->num_tensors; i++)
        fprintf(file, " top%u: M - A%u >= %" PRIu64 "\n", i, i, model->size[i]);
    for (uint32_t k = 0; k < model->num_pairs; k++) {
        const uint32_t i = model->pairs[k].first;
        const uint32_t j = model->pairs[k].second;
        const uint64_t big = model->upper;
        fprintf(file, " below%u_%u: A%u - A%u + %" PRIu64 " z%u_%u >= %" PRIu64 "\n", i, j, j, i,
                big, i, j, model->size[i]);
        fprintf(file, " above%u_%u: A%u - A%u - %" PRIu64 " z%u_%u >= %" PRId64 "\n", i, j, i, j,
                big, i, j, (int64_t)model->size[j] - (int64_t)big);
    }
}

void mip_model_print(const mip_model *model, FILE *file)
{
    fprintf(file,
            "\\ Static plan of %u tensors, %u pairs live together; sizes and addresses in units of "
            "%" PRIu64 " bytes\n"
            "\\ M: peak. A: addresses, in the order of the tensors%s. z: 1 if the first of a pair "
            "is above the second\n"
            "Minimize\n peak: M\nSubject To\n",
            model->num_tensors, model->num_pairs, model->unit,
            model->num_boxes > model->num_tensors ? ", then reserved ranges" : "");
    print_rows(model, file);
    fprintf(file, "Bounds\n %" PRIu64 " <= M <= %" PRIu64 "\n",
            model->is_cut ? model->most_live : 0, model->upper);
    for (uint32_t i = 0; i < model->num_boxes; i++)
        if (model->pin[i] != PST_PLAN_FREE)
            fprintf(file, " A%u = %" PRIu64 "\n", i, model->pin[i]);
    fprintf(file, "Binaries\n");
    for (uint32_t k = 0; k < model->num_pairs; k++)
        fprintf(file, " z%u_%u\n", model->pairs[k].first, model->pairs[k].second);
    fprintf(file, "End\n");
}

/* ---- from a solver's answer to a plan ---- */

typedef struct ranked {
    double address;
    uint32_t box;
} ranked;

static int compare_ranked(const void *left, const void *right)
{
    const ranked *a = left;
    const ranked *b = right;
    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    return (a->box > b->box) - (a->box < b->box);
}

/* order[]: boxes by rising address; lower[]: pairs as (rank of the upper box, the lower box). */
static bool sink(const mip_model *model, const ranked *order, const uint64_t (*lower)[2],
                 uint64_t *addresses, uint64_t *peak)
{
    uint32_t pair = 0;
    for (uint32_t rank = 0; rank < model->num_boxes; rank++) {
        const uint32_t box = order[rank].box;
        uint64_t address = 0;
        for (; pair < model->num_pairs && lower[pair][0] == rank; pair++) {
            const uint64_t top = addresses[lower[pair][1]] + model->size[lower[pair][1]];
            address = top > address ? top : address;
        }
        if (model->pin[box] != PST_PLAN_FREE) {
            if (address > model->pin[box])
                return false;
            address = model->pin[box];
        }
        addresses[box] = address;
        if (box < model->num_tensors && address + model->size[box] > *peak)
            *peak = address + model->size[box];
    }
    return true;
}

bool mip_model_settle(const mip_model *model, const double *found, uint64_t *addresses,
                      uint64_t *peak_out)
{
    ranked *order = calloc(model->num_boxes, sizeof(*order));
    uint32_t *rank = calloc(model->num_boxes, sizeof(*rank));
    uint64_t(*lower)[2] = calloc(model->num_pairs + 1u, sizeof(*lower));
    bool is_right = order != NULL && rank != NULL && lower != NULL;
    *peak_out = 0;
    if (is_right) {
        for (uint32_t i = 0; i < model->num_boxes; i++)
            order[i] = (ranked){found[i], i};
        qsort(order, model->num_boxes, sizeof(*order), compare_ranked);
        for (uint32_t i = 0; i < model->num_boxes; i++)
            rank[order[i].box] = i;
        for (uint32_t k = 0; k < model->num_pairs; k++) {
            const mip_pair *pair = &model->pairs[k];
            const bool is_below = rank[pair->first] < rank[pair->second];
            lower[k][0] = rank[is_below ? pair->second : pair->first];
            lower[k][1] = is_below ? pair->first : pair->second;
        }
        qsort(lower, model->num_pairs, sizeof(*lower), compare_ends);
        is_right = sink(model, order, (const uint64_t(*)[2])lower, addresses, peak_out);
    }
    free(order);
    free(rank);
    free(lower);
    return is_right;
}
