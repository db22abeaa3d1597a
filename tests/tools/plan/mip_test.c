/* mip_test FOLDER: the mixed-integer program against brute force, MEMO's example and a layer's
 * forward; the written file read back by the solver. Prints nothing if all is right. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/random.h"
#include "tools/common/tool.h"
#include "tools/plan/mip.h"
#include "tools/plan/mip_cbc.h"
#include "tools/plan/plan.h"

#define EXPECT(condition, ...)                              \
    do {                                                    \
        if (!(condition)) {                                 \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
            fprintf(stderr, __VA_ARGS__);                   \
            fputc('\n', stderr);                            \
            exit(1);                                        \
        }                                                   \
    } while (0)

enum { MAX_TENSORS = 32, INSTANTS = 8, SKIPPED = 77 };
#define MIB ((uint64_t)1 << 20)

static pst_plan_problem problem_of(const pst_plan_tensor *tensors, uint64_t num_tensors,
                                   uint64_t align)
{
    pst_plan_problem problem = PST_PLAN_PROBLEM_INIT;
    problem.tensors = tensors;
    problem.num_tensors = num_tensors;
    problem.align = align;
    return problem;
}

static uint64_t up(uint64_t value, uint64_t align)
{
    return (value + align - 1) / align * align;
}

static bool meet(const pst_plan_problem *problem, uint64_t a, uint64_t b)
{
    const pst_plan_tensor *s = &problem->tensors[a];
    const pst_plan_tensor *t = &problem->tensors[b];
    if (problem->num_streams <= 1)
        return s->begin < t->end && t->begin < s->end;
    return t->begin < problem->releases[2 * a + t->stream] &&
           s->begin < problem->releases[2 * b + s->stream];
}

/* ---- brute force: every order, each tensor as low as it goes ---- */

static uint64_t lowest(const pst_plan_problem *problem, const uint64_t *offsets, const bool *placed,
                       uint64_t tensor)
{
    const uint64_t bytes = up(problem->tensors[tensor].bytes, problem->align);
    uint64_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint64_t i = 0; i < problem->num_tensors; i++) {
            const uint64_t top = offsets[i] + up(problem->tensors[i].bytes, problem->align);
            if (placed[i] && meet(problem, i, tensor) && offset < top &&
                offsets[i] < offset + bytes) {
                offset = top;
                moved = true;
            }
        }
        for (uint32_t i = 0; i < problem->num_reserved; i++)
            if (offset < problem->reserved[i].end && problem->reserved[i].begin < offset + bytes) {
                offset = up(problem->reserved[i].end, problem->align);
                moved = true;
            }
    }
    return offset;
}

static uint64_t brute_force(const pst_plan_problem *problem, uint64_t *offsets, bool *placed,
                            uint64_t left, uint64_t peak, uint64_t best)
{
    if (left == 0)
        return peak < best ? peak : best;
    for (uint64_t i = 0; i < problem->num_tensors; i++) {
        if (placed[i])
            continue;
        offsets[i] = lowest(problem, offsets, placed, i);
        const uint64_t top = offsets[i] + up(problem->tensors[i].bytes, problem->align);
        placed[i] = true;
        best = brute_force(problem, offsets, placed, left - 1, top > peak ? top : peak, best);
        placed[i] = false;
    }
    return best;
}

/* The peak; pinned tensors come first. */
static uint64_t best_peak(const pst_plan_problem *problem)
{
    uint64_t offsets[MAX_TENSORS] = {0};
    bool placed[MAX_TENSORS] = {false};
    uint64_t left = problem->num_tensors;
    uint64_t peak = 0;
    for (uint64_t i = 0; i < problem->num_tensors; i++)
        if (problem->tensors[i].pin != PST_PLAN_FREE) {
            offsets[i] = problem->tensors[i].pin;
            placed[i] = true;
            left--;
            const uint64_t top = offsets[i] + up(problem->tensors[i].bytes, problem->align);
            peak = top > peak ? top : peak;
        }
    return brute_force(problem, offsets, placed, left, peak, UINT64_MAX);
}

/* ---- checks of an answer ---- */

static void check_plan(const pst_plan_problem *problem, const uint64_t *offsets, uint64_t peak,
                       uint64_t what)
{
    uint64_t top = 0;
    for (uint64_t i = 0; i < problem->num_tensors; i++) {
        const pst_plan_tensor *tensor = &problem->tensors[i];
        const uint64_t end = offsets[i] + up(tensor->bytes, problem->align);
        top = end > top ? end : top;
        EXPECT(offsets[i] % problem->align == 0, "%" PRIu64 ": tensor %" PRIu64, what, i);
        EXPECT(tensor->pin == PST_PLAN_FREE || tensor->pin == offsets[i],
               "%" PRIu64 ": pin of %" PRIu64, what, i);
        for (uint32_t r = 0; r < problem->num_reserved; r++)
            EXPECT(end <= problem->reserved[r].begin || offsets[i] >= problem->reserved[r].end,
                   "%" PRIu64 ": tensor %" PRIu64 " on a reserved range", what, i);
        for (uint64_t j = 0; j < i; j++)
            EXPECT(!meet(problem, i, j) || end <= offsets[j] ||
                       offsets[i] >= offsets[j] + up(problem->tensors[j].bytes, problem->align),
                   "%" PRIu64 ": tensors %" PRIu64 " and %" PRIu64 " overlap", what, j, i);
    }
    EXPECT(top == peak, "%" PRIu64 ": peak %" PRIu64 ", not %" PRIu64, what, peak, top);
}

static mip_result solved(const pst_plan_problem *problem, const mip_options *options,
                         uint64_t wanted, uint64_t what)
{
    uint64_t offsets[MAX_TENSORS];
    mip_result result;
    EXPECT(mip_solve(problem, options, offsets, &result) == TOOL_OK, "%" PRIu64 ": failed", what);
    EXPECT(result.status == MIP_OPTIMAL, "%" PRIu64 ": %s", what, mip_status_name(result.status));
    EXPECT(result.peak == wanted && result.bound == wanted,
           "%" PRIu64 ": peak %" PRIu64 ", bound %" PRIu64 ", not %" PRIu64, what, result.peak,
           result.bound, wanted);
    check_plan(problem, offsets, result.peak, what);
    return result;
}

/* ---- random instances ---- */

static void random_instances(void)
{
    uint64_t seed = 7;
    for (uint64_t round = 0; round < 60; round++) {
        pst_plan_tensor tensors[MAX_TENSORS];
        uint64_t releases[2 * MAX_TENSORS];
        const uint64_t align = round % 3 ? 1 : 512;
        const uint64_t num = 3 + random_below(&seed, 4);
        uint64_t pinned = round % 4 == 2 ? align * 19 : 0; /* above the reserved range */
        for (uint64_t i = 0; i < num; i++) {
            const uint64_t begin = random_below(&seed, INSTANTS - 1);
            const uint64_t end = begin + 1 + random_below(&seed, INSTANTS - begin);
            tensors[i] = (pst_plan_tensor){(1 + random_below(&seed, 9)) * (align == 1 ? 7 : 300),
                                           begin,
                                           end,
                                           PST_PLAN_FREE,
                                           (uint32_t)random_below(&seed, 2),
                                           PST_PLAN_NO_BLOCK};
            if (round % 5 == 1 && i % 2 == 0) {
                tensors[i].pin = pinned;
                pinned += up(tensors[i].bytes, align) + align * random_below(&seed, 9);
            }
            releases[2 * i] = releases[2 * i + 1] = end;
            releases[2 * i + !tensors[i].stream] += random_below(&seed, 3);
        }
        pst_plan_problem problem = problem_of(tensors, num, align);
        const pst_plan_range reserved = {align * (3 + round % 7), align * (9 + round % 11)};
        if (round % 4 == 2) {
            problem.reserved = &reserved;
            problem.num_reserved = 1;
        }
        if (round % 4 == 3) {
            problem.num_streams = 2;
            problem.releases = releases;
        }
        const mip_options options = {.without_cut = round % 2 == 1};
        const uint64_t best = best_peak(&problem);
        (void)solved(&problem, &options, best, round);
        const mip_options none = {.upper_bytes = best - 1};
        mip_result result;
        uint64_t offsets[MAX_TENSORS];
        EXPECT(mip_solve(&problem, &none, offsets, &result) == TOOL_OK &&
                   result.status == MIP_IMPOSSIBLE && result.peak == 0,
               "%" PRIu64 ": below %" PRIu64 ": %s", round, best, mip_status_name(result.status));
        problem.capacity = best;
        (void)solved(&problem, &options, best, round);
    }
}

/* It is in nobody's way, and no part of the peak, but larger than the large constant. */
static void high_reserved_range(void)
{
    static const pst_plan_tensor tensors[] = {{4, 0, 2, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK},
                                              {4, 1, 3, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK}};
    static const pst_plan_range reserved = {8, 1000};
    const mip_options options = {.upper_bytes = 12};
    pst_plan_problem problem = problem_of(tensors, 2, 1);
    problem.reserved = &reserved;
    problem.num_reserved = 1;
    (void)solved(&problem, &options, 8, 500);
}

/* ---- sequences of requests ---- */

typedef struct sequence {
    pst_plan_tensor tensors[MAX_TENSORS];
    uint32_t num;
    uint64_t now;
} sequence;

static uint32_t take(sequence *self, uint64_t bytes)
{
    self->tensors[self->num] =
        (pst_plan_tensor){bytes, self->now++, 0, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    return self->num++;
}

static void drop(sequence *self, uint32_t tensor)
{
    self->tensors[tensor].end = self->now++;
}

static pst_plan_problem finish(sequence *self)
{
    for (uint32_t i = 0; i < self->num; i++)
        if (self->tensors[i].end == 0)
            self->tensors[i].end = self->now;
    return problem_of(self->tensors, self->num, 512);
}

/* The example of MEMO's figure: ids 13 to 24, MiB; positive is malloc, negative free. */
static pst_plan_problem paper_example(sequence *self)
{
    static const int sizes[] = {128, 128, 256, 512, 128, 128, 256, 512, 1024, 256, 128, 512};
    static const int requests[] = {13, 14,  -14, 15, -13, 16, 17, 18,  19,  -17, -19, -18,
                                   20, -20, 21,  22, -15, 23, 24, -21, -22, -23, -24, -16};
    memset(self, 0, sizeof(*self));
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
        if (requests[i] > 0)
            (void)take(self, (uint64_t)sizes[requests[i] - 13] * MIB);
        else
            drop(self, (uint32_t)(-requests[i] - 13));
    return finish(self);
}

/* A layer's forward with tensor and context parallelism, after MEMO's settings: 23 tensors. */
static pst_plan_problem layer_forward(sequence *self)
{
    pst_trace_derivation derivation = PST_TRACE_DERIVATION_INIT;
    pst_trace *trace = NULL;
    derivation.part = PST_TRACE_LAYER_FORWARD;
    EXPECT(pst_trace_derive(&derivation, &trace) == PST_OK, "no trace of a layer");
    self->num = (uint32_t)pst_trace_num_tensors(trace);
    for (uint32_t i = 0; i < self->num; i++) {
        const pst_trace_tensor *tensor = &pst_trace_tensors(trace)[i];
        self->tensors[i] = (pst_plan_tensor){
            tensor->bytes, tensor->begin, tensor->end, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    }
    pst_trace_destroy(trace);
    return problem_of(self->tensors, self->num, 512);
}

static uint64_t most_live(const pst_plan_problem *problem)
{
    uint64_t most = 0;
    for (uint64_t i = 0; i < problem->num_tensors; i++) {
        uint64_t live = 0;
        for (uint64_t j = 0; j < problem->num_tensors; j++)
            if (problem->tensors[j].begin <= problem->tensors[i].begin &&
                problem->tensors[i].begin < problem->tensors[j].end)
                live += problem->tensors[j].bytes;
        most = live > most ? live : most;
    }
    return most;
}

static void sequences(void)
{
    static sequence self;
    const mip_options options = {0};
    const mip_options printed = {.without_cut = true};
    pst_plan_problem problem = paper_example(&self);
    EXPECT(problem.num_tensors == 12, "12 tensors");
    const mip_result result = solved(&problem, &options, 2432 * MIB, 1000);
    EXPECT(result.num_pairs == 26, "%" PRIu64 " pairs, not 26", result.num_pairs);
    (void)solved(&problem, &printed, 2432 * MIB, 1001);
    problem = layer_forward(&self);
    EXPECT(problem.num_tensors == 23, "23 tensors");
    (void)solved(&problem, &options, most_live(&problem), 1002);
}

static double one_second(void *begin)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return *(const double *)begin + 1.0 - ((double)time.tv_sec + 1e-9 * (double)time.tv_nsec);
}

static double nothing_left(void *user)
{
    (void)user;
    return 0.0;
}

/* MEMO's model of 30 tensors in a second: whatever is found is a plan, and no bound is above it. */
static void short_of_time(void)
{
    pst_plan_tensor tensors[MAX_TENSORS];
    uint64_t offsets[MAX_TENSORS];
    uint64_t seed = 1;
    for (uint64_t i = 0; i < 30; i++) {
        const uint64_t begin = random_below(&seed, 20);
        tensors[i] = (pst_plan_tensor){1 + random_below(&seed, 99),
                                       begin,
                                       begin + 1 + random_below(&seed, 20),
                                       PST_PLAN_FREE,
                                       0,
                                       PST_PLAN_NO_BLOCK};
    }
    const pst_plan_problem problem = problem_of(tensors, 30, 1);
    double begin, late = 1.0;
    mip_options options = {.seconds_left = one_second, .user = &begin, .without_cut = true};
    mip_result result;
    for (int i = 0; i < 5 && late > 0.5; i++) { /* a stall of the machine makes one late */
        begin = 0.0;
        begin = -one_second(&begin) + 1.0;
        EXPECT(mip_solve(&problem, &options, offsets, &result) == TOOL_OK, "short of time: failed");
        late = -one_second(&begin);
    }
    EXPECT(result.status != MIP_IMPOSSIBLE, "short of time: impossible");
    EXPECT(late <= 0.5, "short of time: %g s too long", late);
    EXPECT(result.bound > 0 && result.bound >= most_live(&problem), "short of time: no bound");
    if (result.status == MIP_TIMEOUT) {
        EXPECT(result.peak == 0, "short of time: a peak without a plan");
        return;
    }
    EXPECT(result.bound <= result.peak &&
               (result.bound == result.peak) == (result.status == MIP_OPTIMAL),
           "short of time: %" PRIu64 " of %" PRIu64, result.bound, result.peak);
    check_plan(&problem, offsets, result.peak, 1003);
}

static void no_time(void)
{
    const pst_plan_tensor tensors[] = {{2, 0, 2, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK},
                                       {3, 1, 3, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK}};
    const pst_plan_problem problem = problem_of(tensors, 2, 1);
    const mip_options options = {.seconds_left = nothing_left};
    uint64_t offsets[2] = {7, 7};
    mip_result result;
    EXPECT(mip_solve(&problem, &options, offsets, &result) == TOOL_OK, "no time: failed");
    EXPECT(result.status == MIP_TIMEOUT && result.peak == 0 && result.bound == 5, "no time: %d",
           (int)result.status);
    EXPECT(offsets[0] == 7 && offsets[1] == 7, "no time: offsets");
}

/* ---- two levels ---- */

/* Two layers of kind 0, one of kind 1, and one tensor across all. Within kind 0: 2 and 3 together,
 * then 4; within kind 1: 5. In between one tensor of 6 from the end of one into the next. */
static void two_levels(void)
{
    static const pst_plan_tensor tensors[] = {
        {2, 1, 3, PST_PLAN_FREE, 0, 0},  {3, 2, 3, PST_PLAN_FREE, 0, 0},
        {4, 3, 4, PST_PLAN_FREE, 0, 0},  {1, 0, 13, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK},
        {2, 5, 7, PST_PLAN_FREE, 0, 1},  {3, 6, 7, PST_PLAN_FREE, 0, 1},
        {4, 7, 8, PST_PLAN_FREE, 0, 1},  {6, 3, 6, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK},
        {5, 9, 12, PST_PLAN_FREE, 0, 2},
    };
    static const pst_plan_block blocks[] = {
        {.begin = 1, .end = 4}, {.begin = 5, .end = 8}, {.begin = 9, .end = 12, .kind = 1}};
    pst_plan_problem problem = problem_of(tensors, 9, 1);
    problem.blocks = blocks;
    problem.num_blocks = 3;
    const mip_options options = {0};
    uint64_t offsets[9];
    mip_result result;
    EXPECT(mip_bilevel(&problem, &options, offsets, &result) == TOOL_OK, "two levels failed");
    EXPECT(result.status == MIP_OPTIMAL && result.num_models == 3, "%s, %u models",
           mip_status_name(result.status), result.num_models);
    EXPECT(result.peak == 12, "peak %" PRIu64 ", not 12", result.peak); /* 1 + 6 + a block of 5 */
    check_plan(&problem, offsets, 12, 2000);
    for (int i = 1; i < 3; i++)
        EXPECT(offsets[i] - offsets[0] == offsets[4 + i] - offsets[4], "addresses within a kind");
    (void)solved(&problem, &options, 11, 2001); /* flat: a block is no rectangle */
    problem.capacity = 11;
    EXPECT(mip_bilevel(&problem, &options, offsets, &result) == TOOL_OK &&
               result.status == MIP_IMPOSSIBLE && result.peak == 0,
           "within 11: %s", mip_status_name(result.status));
}

/* ---- the file ---- */

static double solve_file(const char *path)
{
    const mip_cbc *cbc = mip_cbc_load();
    Cbc_Model *program = cbc->newModel();
    cbc->setLogLevel(program, 0);
    cbc->setParameter(program, "log", "0");
    EXPECT(cbc->readLp(program, path) == 0, "%s: the solver does not read it", path);
    cbc->solve(program);
    EXPECT(cbc->isProvenOptimal(program), "%s: not solved", path);
    const double peak = cbc->getObjValue(program);
    cbc->deleteModel(program);
    return peak;
}

static void written_file(const char *folder)
{
    static sequence self;
    char path[4096];
    const mip_options options = {0};
    pst_plan_problem problem = paper_example(&self);
    snprintf(path, sizeof(path), "%s/mip_test.lp", folder);
    EXPECT(mip_write(path, &problem, &options) == TOOL_OK, "not written");
    const double peak = solve_file(path);
    EXPECT(peak > 18.999 && peak < 19.001, "%g units of 128 MiB, not 19", peak);
    const pst_plan_range reserved = {0, 512 * MIB};
    problem.reserved = &reserved;
    problem.num_reserved = 1;
    self.tensors[3].pin = 1024 * MIB; /* the one of 512 MiB, live to the end */
    EXPECT(mip_write(path, &problem, &options) == TOOL_OK, "not written");
    const uint64_t wanted = (uint64_t)(solve_file(path) * 128 + 0.5) * MIB;
    (void)solved(&problem, &options, wanted, 3000);
    EXPECT(wanted > 2432 * MIB, "the reserved range counts");
    unlink(path);
}

/* What must be refused, with a line on stderr: silenced here. */
static void refused(void)
{
    pst_plan_tensor tensors[] = {{1, 0, 1, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK},
                                 {((uint64_t)1 << 41) + 1, 0, 1, PST_PLAN_FREE, 0, 7}};
    pst_plan_problem problem = problem_of(tensors, 2, 1);
    const mip_options options = {0};
    uint64_t offsets[2] = {5, 5};
    mip_result result;
    EXPECT(freopen("/dev/null", "w", stderr) != NULL, "no /dev/null");
    EXPECT(mip_solve(&problem, &options, offsets, &result) == TOOL_USAGE, "too many units");
    EXPECT(mip_write("/dev/null", &problem, &options) == TOOL_USAGE, "too many units");
    EXPECT(mip_bilevel(&problem, &options, offsets, &result) == TOOL_USAGE, "no such block");
    problem.num_tensors = 0;
    EXPECT(mip_solve(&problem, &options, offsets, &result) == TOOL_USAGE, "no tensors");
    problem.num_tensors = 1;
    EXPECT(mip_write("/nonexistent/x.lp", &problem, &options) == TOOL_OUTPUT, "no such folder");
    EXPECT(offsets[0] == 5 && offsets[1] == 5, "offsets are written");
}

/* Of a deadline the command keeps back what the planner needs to finish, and at most a tenth. */
static void watch_keeps_back(void)
{
    static const struct {
        double seconds, left;
        uint64_t num_tensors;
    } of[] = {{10, 10, 0},
              {10, 10 - 8e-3, 1000000},
              {0.1, 0.1 - 8e-4, 100000},
              {0.1, 0.09, 4000000},
              {0, 0, 1000}};
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        plan_watch watch;
        plan_watch_begin(&watch, of[i].seconds, of[i].num_tensors);
        plan_watch_end(&watch);
        EXPECT(fabs(watch.seconds - of[i].left) < 1e-9, "watch %zu: %g s, not %g", i, watch.seconds,
               of[i].left);
    }
}

int main(int argc, char **argv)
{
    EXPECT(argc == 2, "usage: mip_test FOLDER");
    watch_keeps_back();
    if (mip_cbc_load() == NULL) {
        puts("no CBC");
        return SKIPPED;
    }
    random_instances();
    high_reserved_range();
    sequences();
    short_of_time();
    no_time();
    two_levels();
    written_file(argv[1]);
    refused();
    return 0;
}
