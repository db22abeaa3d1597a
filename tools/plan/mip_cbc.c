/* The model in the hands of CBC, in a process of its own, so that time that is over is over. */
#include "tools/plan/mip_cbc.h"

#include "tools/common/tool.h"
#include "tools/plan/mip_model.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POLL_MILLISECONDS = 20 };
#define DEFAULT_SECONDS 60.0
#define CBC_SHARE 0.9 /* of the time: CBC looks at the clock between its steps */

#define LIBRARY "libCbcSolver.so.3" /* whose number stands for the types in mip_cbc.h */

const mip_cbc *mip_cbc_load(void)
{
    static mip_cbc functions;
    static bool is_loaded;
#define MIP_CBC_NAME(result, name, arguments) {"Cbc_" #name, &functions.name},
    const struct {
        const char *name;
        void *function;
    } wanted[] = {MIP_CBC_FUNCTIONS(MIP_CBC_NAME)};
    if (is_loaded)
        return &functions;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        tool_fail(TOOL_USAGE, "--method mip: CBC is not installed (coinor-libcbc): %s", dlerror());
        return NULL;
    }
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *symbol = dlsym(library, wanted[i].name);
        if (symbol == NULL) {
            tool_fail(TOOL_USAGE, "--method mip: %s has no %s", LIBRARY, wanted[i].name);
            return NULL;
        }
        memcpy(wanted[i].function, &symbol, sizeof(symbol));
    }
    is_loaded = true;
    return &functions;
}

static bool write_all(int pipe, const void *bytes, size_t num)
{
    for (size_t at = 0; at < num;) {
        const ssize_t put = write(pipe, (const char *)bytes + at, num - at);
        if (put < 0 && errno != EINTR)
            return false;
        at += put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* Columns: M, the boxes' addresses, the pairs' binaries. */
static void add_columns(const mip_model *model, const mip_cbc *cbc, Cbc_Model *program)
{
    const double upper = (double)model->upper;
    cbc->addCol(program, "M", model->is_cut ? (double)model->most_live : 0.0, upper, 1.0, 0, 0,
                NULL, NULL);
    for (uint32_t i = 0; i < model->num_boxes; i++) {
        const bool is_free = model->pin[i] == PST_PLAN_FREE;
        cbc->addCol(program, "", is_free ? 0.0 : (double)model->pin[i],
                    is_free ? upper : (double)model->pin[i], 0.0, 0, 0, NULL, NULL);
    }
    for (uint32_t k = 0; k < model->num_pairs; k++)
        cbc->addCol(program, "", 0.0, 1.0, 0.0, 1, 0, NULL, NULL);
}

static void add_rows(const mip_model *model, const mip_cbc *cbc, Cbc_Model *program)
{
    const double big = (double)model->upper;
    for (uint32_t i = 0; i < model->num_tensors; i++) {
        const int columns[] = {0, 1 + (int)i};
        const double factors[] = {1.0, -1.0};
        cbc->addRow(program, "", 2, columns, factors, 'G', (double)model->size[i]);
    }
    for (uint32_t k = 0; k < model->num_pairs; k++) {
        const uint32_t i = model->pairs[k].first;
        const uint32_t j = model->pairs[k].second;
        const int columns[] = {1 + (int)i, 1 + (int)j, (int)(1 + model->num_boxes + k)};
        const double below[] = {-1.0, 1.0, big};
        const double above[] = {1.0, -1.0, -big};
        cbc->addRow(program, "", 3, columns, below, 'G', (double)model->size[i]);
        cbc->addRow(program, "", 3, columns, above, 'G', (double)model->size[j] - big);
    }
}

/* The least whole number of units that the solver's bound, a sum of roundings, can mean. */
static uint64_t whole_bound(const mip_model *model, double found)
{
    const double bound = ceil(found - 1e-6 * fmax(1.0, fabs(found)));
    uint64_t units = model->most_live;
    if (bound > (double)units && bound <= (double)model->upper)
        units = (uint64_t)bound;
    return units;
}

static void take_answer(const mip_model *model, const mip_cbc *cbc, Cbc_Model *program,
                        uint64_t *addresses, mip_result *result)
{
    const double *best = cbc->bestSolution(program);
    if (best == NULL && cbc->isProvenOptimal(program)) /* without binaries */
        best = cbc->getColSolution(program);
    uint64_t peak = 0;
    *result = (mip_result){.num_pairs = model->num_pairs, .num_models = 1};
    if (cbc->isProvenInfeasible(program)) {
        result->status = MIP_IMPOSSIBLE;
        return;
    }
    if (best == NULL || !mip_model_settle(model, best + 1, addresses, &peak)) {
        result->status = MIP_TIMEOUT;
        result->bound = model->most_live * model->unit;
        return;
    }
    const uint64_t bound = whole_bound(model, cbc->getBestPossibleObjValue(program));
    result->bound = (bound < peak ? bound : peak) * model->unit;
    result->peak = peak * model->unit;
    result->status = result->bound == result->peak ? MIP_OPTIMAL : MIP_FEASIBLE;
}

/* In the process of its own: what it found goes into the pipe, result and addresses. */
static void solve(const mip_model *model, const mip_cbc *cbc, double seconds, int pipe)
{
    uint64_t *addresses = calloc(model->num_boxes, sizeof(*addresses));
    Cbc_Model *program = cbc->newModel();
    mip_result result;
    if (addresses == NULL || program == NULL)
        return;
    cbc->setLogLevel(program, 0);
    cbc->setParameter(program, "log", "0");
    cbc->setParameter(program, "timeMode", "elapsed");
    cbc->setMaximumSeconds(program, seconds);
    add_columns(model, cbc, program);
    add_rows(model, cbc, program);
    cbc->solve(program);
    take_answer(model, cbc, program, addresses, &result);
    if (write_all(pipe, &result, sizeof(result)))
        write_all(pipe, addresses, model->num_boxes * sizeof(*addresses));
}

static double seconds_left(const mip_options *options)
{
    return options->seconds_left != NULL ? options->seconds_left(options->user) : DEFAULT_SECONDS;
}

/* Whether all bytes came before the time was over; what comes not is left as it is. */
static bool read_all(int pipe, void *bytes, size_t num, const mip_options *options)
{
    struct pollfd poll_on = {.fd = pipe, .events = POLLIN};
    for (size_t at = 0; at < num;) {
        if (seconds_left(options) <= 0.0)
            return false;
        if (poll(&poll_on, 1, POLL_MILLISECONDS) <= 0)
            continue;
        const ssize_t got = read(pipe, (char *)bytes + at, num - at);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        at += got > 0 ? (size_t)got : 0;
    }
    return true;
}

/* 0: the child, which has its own group, so that Ctrl-C is the parent's, and ends with the parent. */
static pid_t fork_solver(int pipe[2])
{
    if (pipe2(pipe, O_CLOEXEC) != 0)
        return -1;
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(TOOL_NO);
    }
    close(pipe[child == 0 ? 0 : 1]);
    return child;
}

static int take_from_child(const mip_model *model, const mip_options *options, pid_t child,
                           int pipe, uint64_t *addresses, mip_result *result)
{
    const size_t bytes = model->num_boxes * sizeof(*addresses);
    int status = 0;
    const bool has_answer = read_all(pipe, result, sizeof(*result), options) &&
                            read_all(pipe, addresses, bytes, options);
    const bool is_over = !has_answer && seconds_left(options) <= 0.0;
    if (is_over)
        kill(child, SIGKILL);
    waitpid(child, &status, 0);
    if (!has_answer && !is_over)
        return tool_fail(TOOL_NO, "mip: CBC ended without an answer (%s %d)",
                         WIFSIGNALED(status) ? "signal" : "exit code",
                         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (is_over)
        *result = (mip_result){.status = MIP_TIMEOUT,
                               .bound = model->most_live * model->unit,
                               .num_pairs = model->num_pairs,
                               .num_models = 1};
    return TOOL_OK;
}

static int solve_apart(const mip_model *model, const mip_options *options, uint64_t *offsets,
                       mip_result *result)
{
    int pipe[2] = {-1, -1};
    const mip_cbc *cbc = mip_cbc_load();
    if (cbc == NULL)
        return TOOL_USAGE;
    uint64_t *addresses = calloc(model->num_boxes, sizeof(*addresses));
    if (addresses == NULL)
        return tool_fail(TOOL_NO, "mip: out of memory for %u tensors", model->num_tensors);
    const pid_t child = fork_solver(pipe);
    if (child == 0) {
        solve(model, cbc, CBC_SHARE * seconds_left(options), pipe[1]);
        _exit(TOOL_OK);
    }
    int code = child > 0 ? take_from_child(model, options, child, pipe[0], addresses, result)
                         : tool_fail(TOOL_NO, "mip: no process for CBC: %s", strerror(errno));
    if (code == TOOL_OK && result->peak > 0)
        for (uint32_t i = 0; i < model->num_tensors; i++)
            offsets[i] = addresses[i] * model->unit;
    if (pipe[0] >= 0)
        close(pipe[0]);
    free(addresses);
    return code;
}

int mip_solve(const pst_plan_problem *problem, const mip_options *options, uint64_t *offsets,
              mip_result *result_out)
{
    mip_model model;
    int code = mip_model_make(problem, options, &model);
    if (code == TOOL_OK && (uint64_t)model.most_live > model.upper)
        *result_out =
            (mip_result){.status = MIP_IMPOSSIBLE, .num_pairs = model.num_pairs, .num_models = 1};
    else if (code == TOOL_OK)
        code = solve_apart(&model, options, offsets, result_out);
    mip_model_free(&model);
    return code;
}
