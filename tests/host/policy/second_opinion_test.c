/* A second opinion on shares, from CBC: with one side stream the clocks of a program are a max-plus
 * system whose copies take times that are linear in the shares, so the least exposed time is a
 * mixed-integer program. Integers are the shares; a row for each edge of the program, and one for the
 * pages after each stash. Skipped where CBC is not installed. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "host/program/program.h"
#include "tests/harness.h"
#include "tests/host/policy/policy_scene.h"
#include "tools/plan/mip_cbc.h"

#define CBC_LIBRARY "libCbcSolver.so.3"
#define EXPOSED_WEIGHT 1000.0 /* above all shares together */

enum { DEN = 4, PAGES = 4, MAX_LAYERS = 5, MAX_SEATS = 64 };

static bool load_cbc(mip_cbc *cbc)
{
#define CBC_NAME(result, name, arguments) {"Cbc_" #name, &cbc->name},
    const struct {
        const char *name;
        void *function;
    } wanted[] = {MIP_CBC_FUNCTIONS(CBC_NAME)};
    void *library = dlopen(CBC_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        printf("CBC is not installed: no second opinion\n");
        return false;
    }
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *symbol = dlsym(library, wanted[i].name);
        memcpy(wanted[i].function, &symbol, sizeof(symbol));
    }
    return true;
}

/* ---- the program as rows ---- */

/* Columns: shares of the layers, then times. */
typedef struct rows {
    const mip_cbc *cbc;
    Cbc_Model *model;
    uint32_t num_layers, num_columns;
    uint64_t host_ns;
    int main, side;                              /* columns of their clocks */
    int events[MAX_SEATS][PSTI_NUM_EVENT_KINDS]; /* columns, 0: none yet */
    bool live[MAX_SEATS];
    uint32_t layer_of_seat[MAX_SEATS];
} rows;

static int add_time(rows *self)
{
    self->cbc->addCol(self->model, "", 0.0, 1e9, 0.0, 0, 0, NULL, NULL);
    return (int)self->num_columns++;
}

/* to >= from + fixed + rate * share; share < 0: none. */
static void add_edge(rows *self, int to, int from, double fixed, int share, double rate)
{
    const int columns[] = {to, from, share};
    const double factors[] = {1.0, -1.0, -rate};
    self->cbc->addRow(self->model, "", share < 0 ? 2 : 3, columns, factors, 'G', fixed);
}

static void advance(rows *self, int *clock, uint64_t ns, int share, double rate)
{
    const int next = add_time(self);
    add_edge(self, next, *clock, (double)ns, share, rate);
    *clock = next;
}

static void wait_for(rows *self, int *clock, int event)
{
    const int next = add_time(self);
    add_edge(self, next, *clock, 0.0, -1, 0.0);
    add_edge(self, next, event, 0.0, -1, 0.0);
    *clock = next;
}

/* Pages of all that is live: on the device at most so many, on the host likewise. */
static void add_pages(rows *self, const uint64_t num_pages[2])
{
    int columns[MAX_LAYERS];
    double host[MAX_LAYERS] = {0}, device[MAX_LAYERS];
    double live = 0.0;
    for (uint32_t seat = 0; seat < MAX_SEATS; seat++)
        if (self->live[seat]) {
            live += PAGES;
            host[self->layer_of_seat[seat]] += (double)PAGES / DEN;
        }
    for (uint32_t l = 0; l < self->num_layers; l++) {
        columns[l] = (int)l;
        device[l] = -host[l];
    }
    self->cbc->addRow(self->model, "", (int)self->num_layers, columns, device, 'L',
                      (double)num_pages[0] - live);
    self->cbc->addRow(self->model, "", (int)self->num_layers, columns, host, 'L',
                      (double)num_pages[1]);
}

static void add_operation(rows *self, const psti_program *program, const psti_operation *operation,
                          const uint64_t num_pages[2])
{
    int *clock = operation->stream == PSTI_ON_MAIN ? &self->main : &self->side;
    const uint32_t layer = program->visits[operation->visit].layer;
    const double rate = (double)PAGES / DEN * ((double)self->host_ns - 1.0);
    switch ((psti_act)operation->act) {
    case PSTI_ACT_WAIT:
        wait_for(self, clock, self->events[operation->seat][operation->event]);
        break;
    case PSTI_ACT_RECORD:
        self->events[operation->seat][operation->event] = *clock;
        break;
    case PSTI_ACT_STASH:
    case PSTI_ACT_RESTORE:
        advance(self, clock, PAGES, (int)layer, rate);
        self->layer_of_seat[operation->seat] = layer;
        self->live[operation->seat] = operation->act == PSTI_ACT_STASH;
        add_pages(self, num_pages);
        break;
    case PSTI_ACT_JOIN:
    case PSTI_ACT_DEMOTE:
    case PSTI_ACT_PROMOTE:
    case PSTI_ACT_SWAP_OUT:
    case PSTI_ACT_SWAP_IN:
    default:
        psti_test_fail(__FILE__, __LINE__, "operation %d", operation->act);
    }
}

static void add_program(rows *self, const psti_program *program, const uint64_t num_pages[2])
{
    for (uint32_t v = 0; v < program->num_visits; v++) {
        const bool is_forward = program->visits[v].kind == PST_PASS_FORWARD;
        const uint64_t unit = is_forward ? 2 : 4;
        uint32_t num = 0;
        advance(self, &self->main, unit, -1, 0.0);
        const psti_operation *operations = psti_begin_hook(program, v, &num);
        for (uint32_t i = 0; i < num; i++)
            add_operation(self, program, &operations[i], num_pages);
        advance(self, &self->main, 4 * unit, -1, 0.0);
        operations = psti_end_hook(program, v, &num);
        for (uint32_t i = 0; i < num; i++)
            add_operation(self, program, &operations[i], num_pages);
        advance(self, &self->main, unit, -1, 0.0);
    }
}

/* ---- the answer ---- */

typedef struct opinion {
    uint64_t exposed_ns, quarters;
} opinion;

static psti_program *make_program(const policy_scene *scene)
{
    psti_program_layer layers[MAX_LAYERS] = {{0}};
    for (uint32_t l = 0; l < scene->num_layers[0]; l++)
        layers[l] = (psti_program_layer){
            .keep = PST_KEEP_PAGED, .num_parts = 1, .uses = {PST_USE_BACKWARD | PST_USE_WEIGHT}};
    const psti_program_config config = {
        .schedule = scene->schedules[0],
        .num_layers = scene->num_layers,
        .layers = layers,
        .num_sources = 2,
        .num_destinations = 2,
        .num_streams = 1,
    };
    psti_program *program = NULL;
    if (psti_program_make(&config, &program) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "no program: %s", pst_last_message());
    return program;
}

static opinion ask(const mip_cbc *cbc, const policy_scene *scene, uint64_t host_ns)
{
    psti_program *program = make_program(scene);
    rows *self = calloc(1, sizeof(*self));
    self->cbc = cbc;
    self->model = cbc->newModel();
    self->num_layers = self->num_columns = scene->num_layers[0];
    self->host_ns = host_ns;
    cbc->setLogLevel(self->model, 0);
    cbc->setParameter(self->model, "log", "0");
    for (uint32_t l = 0; l < self->num_layers; l++)
        cbc->addCol(self->model, "", 0.0, DEN, 1.0, 1, 0, NULL, NULL);
    self->main = add_time(self);
    self->side = add_time(self);
    add_program(self, program, scene->simulation.num_pages);
    /* The end of the main stream, which is what is minimised. */
    cbc->addCol(self->model, "", 0.0, 1e9, EXPOSED_WEIGHT, 0, 0, NULL, NULL);
    add_edge(self, (int)self->num_columns, self->main, 0.0, -1, 0.0);
    cbc->solve(self->model);
    const double *best = cbc->bestSolution(self->model);
    if (best == NULL)
        best = cbc->getColSolution(self->model);
    opinion answer = {0};
    double work = 0.0;
    for (uint32_t v = 0; v < program->num_visits; v++)
        work += program->visits[v].kind == PST_PASS_FORWARD ? 12.0 : 24.0;
    answer.exposed_ns = (uint64_t)llround(best[self->num_columns] - work);
    for (uint32_t l = 0; l < self->num_layers; l++)
        answer.quarters += (uint64_t)llround(best[l]);
    if (!cbc->isProvenOptimal(self->model))
        psti_test_fail(__FILE__, __LINE__, "CBC has no proof");
    cbc->deleteModel(self->model);
    free(self);
    psti_program_free(program);
    return answer;
}

/* L1 to L8, and two with less memory. */
PST_TEST(PolicySecondOpinion, IsThePolicys)
{
    static const struct {
        bool is_first_of_4;
        uint32_t layers, device_pages, host_pages, host_ns;
    } cases[] = {{false, 4, 8, 16, 3},  {false, 4, 4, 16, 3},   {false, 4, 6, 16, 9},
                 {false, 5, 8, 20, 5},  {false, 5, 12, 20, 12}, {true, 3, 24, 100, 3},
                 {true, 3, 16, 100, 6}, {true, 3, 12, 100, 12}, {true, 3, 20, 100, 9},
                 {false, 5, 5, 20, 9}};
    mip_cbc cbc;
    if (!load_cbc(&cbc))
        return;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        policy_scene *scene = cases[i].is_first_of_4 ? scene_open(4, 0, 1, 8, cases[i].layers)
                                                     : scene_open(1, 0, 1, 1, cases[i].layers);
        scene_set_all_pages(scene, PAGES);
        scene_set_times(scene, (pst_times){2, 8, 2}, (pst_times){4, 16, 4});
        scene_set_rates(scene, 1, cases[i].host_ns);
        scene->simulation.num_sources = scene->simulation.num_destinations = 2;
        scene->simulation.num_pages[0] = cases[i].device_pages;
        scene->simulation.num_pages[1] = cases[i].host_pages;
        scene->config.objective = PST_POLICY_LEAST_EXPOSED;
        scene->config.share_den = DEN;
        scene->config.given = PST_POLICY_GIVEN_ALL & ~PST_POLICY_GIVEN_SHARES;
        scene_solve(scene);
        const opinion other = ask(&cbc, scene, cases[i].host_ns);
        uint64_t quarters = 0;
        for (uint32_t l = 0; l < cases[i].layers; l++)
            quarters += scene->choices[l].policy.host_num;
        const uint64_t exposed = scene->policy.exposed_ns;
        scene_close(scene);
        CHECK_MSG(other.exposed_ns == exposed && other.quarters == quarters,
                  "case %zu: exposed %llu, %llu quarters; CBC %llu, %llu", i,
                  (unsigned long long)exposed, (unsigned long long)quarters,
                  (unsigned long long)other.exposed_ns, (unsigned long long)other.quarters);
    }
}
