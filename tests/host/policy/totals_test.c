/* Totals on recorded routings, beside what Megatron-LM's paged stash needs for them: pages of 64 rows in
 * a pool for each dtype and row width, one page record for all, and two static sets under 1F1B, one
 * without a pipeline (its order of stash and reload was recorded from the real manager, run). */
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/host/policy/policy_scene.h"

#define MIB 1048576.0

enum { NUM_RANKS = 8, MAX_STEPS = 300, MAX_LAYERS = 6, MAX_EXPERTS = 64, MAX_TENSORS = 6 };

typedef struct totals_case {
    const char *file;
    bool is_mx, is_pipeline; /* 1F1B, rank 0 of 4, 8 micro-batches; else each step by itself */
    uint32_t layers, experts;
    /* MiB, of a run of the real manager: live bytes at the peak, pages, a static set, the total. */
    double floor, needed, set, total;
} totals_case;

static const totals_case cases[] = {
    {"bytelm-e64-top6-l6.csv", false, true, 6, 64, 221.9, 223.2, 19.4, 262.0},
    {"bytelm-e64-top6-l6.csv", false, false, 6, 64, 53.9, 54.1, 19.4, 73.5},
    {"bytelm-e8-top2-l4.csv", false, true, 4, 8, 73.9, 75.1, 8.0, 91.2},
    {"bytelm-e8-top2-l4.csv", false, false, 4, 8, 16.2, 16.3, 8.0, 24.3},
    {"bytelm-e64-top6-l6.csv", true, true, 6, 64, 199.8, 200.9, 17.4, 235.7},
    {"bytelm-e64-top6-l6.csv", true, false, 6, 64, 48.5, 48.9, 17.4, 66.3},
    {"bytelm-e8-top2-l4.csv", true, true, 4, 8, 66.0, 66.9, 7.1, 81.2},
    {"bytelm-e8-top2-l4.csv", true, false, 4, 8, 14.4, 14.5, 7.1, 21.6},
};

enum { NUM_CASES = sizeof(cases) / sizeof(cases[0]) };

/* Hidden size 512, ffn size 256. */
typedef struct tensor {
    uint64_t row_bytes;
    uint32_t den; /* rows of the tensor: of the live rows */
} tensor;

static const tensor bf16[] = {{1024, 1}, {1024, 1}, {4, 1}};
static const tensor mx[] = {{512, 1}, {512, 32}, {1024, 1}, {256, 1}, {256, 32}, {4, 1}};

typedef struct totals {
    const totals_case *of;
    uint64_t rows[MAX_STEPS][MAX_LAYERS][NUM_RANKS];
    uint32_t num_steps;
    uint64_t most_rows;
    const tensor *tensors;
    uint32_t num_tensors;
    pst_group *group;
} totals;

static void read_rows(totals *self)
{
    char path[512], line[4096];
    const uint32_t experts = self->of->experts, each = experts / NUM_RANKS;
    snprintf(path, sizeof(path), "%s/%s", PSTI_BENCH_DATA, self->of->file);
    FILE *file = fopen(path, "r");
    CHECK_MSG(file != NULL, "cannot read %s", path);
    while (fgets(line, sizeof(line), file)) {
        char *at = line;
        if (*at == 's')
            continue;
        const uint64_t step = strtoull(at, &at, 10), layer = strtoull(at + 1, &at, 10);
        for (uint32_t e = 0; e < experts; e++) {
            uint64_t count = strtoull(at + 1, &at, 10);
            if (self->of->is_mx)
                count = (count + 31) / 32 * 32;
            self->rows[step][layer][e / each] += count;
        }
        self->num_steps = (uint32_t)step + 1;
    }
    fclose(file);
    for (uint32_t s = 0; s < self->num_steps; s++)
        for (uint32_t l = 0; l < self->of->layers; l++)
            for (uint32_t r = 0; r < NUM_RANKS; r++)
                if (self->rows[s][l][r] > self->most_rows)
                    self->most_rows = self->rows[s][l][r];
}

static void make_group(totals *self)
{
    pst_tensor tensors[MAX_TENSORS] = {0};
    for (uint32_t t = 0; t < self->num_tensors; t++)
        tensors[t] = (pst_tensor){.row_bytes = self->tensors[t].row_bytes,
                                  .num = self->tensors[t].den > 1 ? 1 : 0,
                                  .den = self->tensors[t].den > 1 ? self->tensors[t].den : 0};
    const pst_row_space space = {.kind = PST_ROWS_PREFIX, .capacity = (int64_t)self->most_rows};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = tensors;
    config.num_tensors = self->num_tensors;
    CHECK_OK(pst_group_create(&config, &self->group));
}

static uint64_t live_bytes(const totals *self, uint64_t rows)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < self->num_tensors; t++) {
        const uint32_t den = self->tensors[t].den;
        bytes += (rows + den - 1) / den * self->tensors[t].row_bytes;
    }
    return bytes;
}

static uint64_t megatron_bytes(const totals *self, uint64_t rows)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < self->num_tensors; t++) {
        const uint32_t den = self->tensors[t].den;
        bytes += ((rows + den - 1) / den + 63) / 64 * 64 * self->tensors[t].row_bytes;
    }
    return bytes;
}

/* Of all iterations and ranks, the most at once of the layers in flight: under 1F1B all of rank 0's
 * (stashed before the first restore), else all but the last, which stays. */
static double peak(const totals *self, uint64_t (*bytes)(const totals *self, uint64_t rows))
{
    const uint32_t layers = self->of->layers, micro = self->of->is_pipeline ? 8 : 1;
    const uint32_t in_flight = self->of->is_pipeline ? 4 : 1;
    uint64_t most = 0;
    for (uint32_t first = 0; first + micro <= self->num_steps; first += micro)
        for (uint32_t r = 0; r < NUM_RANKS; r++)
            for (uint32_t m = 0; m + in_flight <= micro; m++) {
                uint64_t sum = 0;
                for (uint32_t i = 0; i < in_flight; i++)
                    for (uint32_t l = 0; l < layers - (in_flight == 1 ? 1 : 0); l++)
                        sum += bytes(self, self->rows[first + m + i][l][r]);
                most = sum > most ? sum : most;
            }
    return (double)most / MIB;
}

/* ---- ours ---- */

/* One for each iteration and rank. */
typedef struct routing {
    pst_simulated_layer layers[MAX_LAYERS];
    pst_group_usage usages[MAX_LAYERS][8];
    const pst_simulated_layer *stage;
} routing;

static routing *make_routings(const totals *self, const policy_scene *scene, uint32_t *num_out)
{
    const uint32_t micro = self->of->is_pipeline ? 8 : 1;
    const uint32_t iterations = self->num_steps / micro;
    routing *routings = calloc((size_t)iterations * NUM_RANKS, sizeof(*routings));
    *num_out = iterations * NUM_RANKS;
    for (uint32_t n = 0; n < *num_out; n++)
        for (uint32_t l = 0; l < self->of->layers; l++) {
            pst_simulated_layer *layer = &routings[n].layers[l];
            *layer = scene->layers[0][l];
            layer->usages = routings[n].usages[l];
            routings[n].stage = routings[n].layers;
            for (uint32_t m = 0; m < micro; m++) {
                const uint32_t step = n / NUM_RANKS * micro + m;
                const int64_t rows = (int64_t)self->rows[step][l][n % NUM_RANKS];
                if (pst_group_measure(self->group, &rows, SCENE_PAGE, &routings[n].usages[l][m]) !=
                    PST_OK)
                    psti_test_fail(__FILE__, __LINE__, "measure: %s", pst_last_message());
            }
        }
    return routings;
}

/* Copies of an average layer take `units` of a forward's core of 4. */
static void set_rates(policy_scene *scene, const routing *routings, uint32_t num, uint64_t units)
{
    uint64_t bytes = 0, visits = 0;
    for (uint32_t n = 0; n < num; n++)
        for (uint32_t l = 0; l < scene->num_layers[0]; l++)
            for (uint32_t m = 0; m < scene->layers[0][l].num_usages; m++, visits++)
                bytes += routings[n].usages[l][m].payload_bytes;
    const uint64_t rate = bytes / (visits ? visits : 1) * UINT64_C(1000000) / units;
    scene->simulation.rates.stash_rate = scene->simulation.rates.restore_rate = rate;
}

static void solve_totals(const totals *self, policy_scene *scene, uint64_t units)
{
    uint32_t num = 0;
    routing *routings = make_routings(self, scene, &num);
    const pst_simulated_layer *const **list = calloc(num, sizeof(*list));
    for (uint32_t n = 0; n < num; n++)
        list[n] = &routings[n].stage;
    scene_set_times(scene, (pst_times){1000, 4000, 1000}, (pst_times){2000, 8000, 2000});
    set_rates(scene, routings, num, units);
    for (uint32_t l = 0; l < self->of->layers; l++)
        memcpy(scene->usages[0][l], routings[0].usages[l], sizeof(routings[0].usages[l]));
    scene->config.set_bytes = live_bytes(self, self->most_rows);
    scene->config.routings = list + 1;
    scene->config.num_routings = num - 1;
    scene_solve(scene);
    free((void *)list);
    free(routings);
}

static void check_totals(const totals *self, uint64_t units)
{
    policy_scene *scene = self->of->is_pipeline ? scene_open(4, 0, 1, 8, self->of->layers)
                                                : scene_open(1, 0, 1, 1, self->of->layers);
    solve_totals(self, scene, units);
    const pst_policy policy = scene->policy;
    scene_close(scene);
    const double ours = (double)(policy.num_pages * policy.page_bytes + policy.sets_bytes) / MIB;
    const double set = (double)live_bytes(self, self->most_rows) / MIB;
    const double theirs = peak(self, megatron_bytes) + (self->of->is_pipeline ? 2 : 1) * set;
    if (getenv("PSTI_TEST_TABLE"))
        printf("| %s %s %s | %llu | %.1f | %s%s, %u + %u, %u streams | %llu KiB | %.2f | %.2f | "
               "%.1f %% | %.2f | %llu | %llu |\n",
               self->of->is_mx ? "mx" : "bf16", self->of->experts == 8 ? "e8" : "e64",
               self->of->is_pipeline ? "1f1b" : "no pipeline", (unsigned long long)units, theirs,
               policy.rule == PST_RESTORE_NEXT ? "next" : "asap", policy.one_ring ? " ring" : "",
               policy.num_sources, policy.num_destinations, policy.num_streams,
               (unsigned long long)policy.page_bytes / 1024,
               (double)(policy.num_pages * policy.page_bytes) / MIB, ours,
               100.0 * (1.0 - ours / theirs), (double)policy.total_bytes / MIB,
               (unsigned long long)policy.exposed_ns, (unsigned long long)policy.next_exposed_ns);
    CHECK(policy.fits && !policy.is_scarce);
    CHECK_MSG(ours <= theirs, "%s: %.2f MiB, theirs %.2f", self->of->file, ours, theirs);
    CHECK_MSG(!self->of->is_pipeline || ours <= 0.97 * theirs, "%s: %.2f MiB, theirs %.2f",
              self->of->file, ours, theirs);
    CHECK_MSG(policy.exposed_ns <= policy.next_exposed_ns, "%s: exposed %llu, of NEXT %llu",
              self->of->file, (unsigned long long)policy.exposed_ns,
              (unsigned long long)policy.next_exposed_ns);
}

static totals *open_totals(const totals_case *of)
{
    totals *self = calloc(1, sizeof(*self));
    self->of = of;
    self->tensors = of->is_mx ? mx : bf16;
    self->num_tensors = of->is_mx ? 6 : 3;
    read_rows(self);
    make_group(self);
    return self;
}

static void close_totals(totals *self)
{
    pst_group_destroy(self->group);
    free(self);
}

static bool is_near(double a, double b)
{
    const double off = a > b ? a - b : b - a;
    return off < 0.101;
}

/* That these are their pages. */
PST_TEST(PolicyTotals, TheOthersPagesAreThoseOfTheRun)
{
    for (int i = 0; i < NUM_CASES; i++) {
        totals *self = open_totals(&cases[i]);
        const double set = (double)live_bytes(self, self->most_rows) / MIB;
        const double floor = peak(self, live_bytes), needed = peak(self, megatron_bytes);
        const double total = needed + (cases[i].is_pipeline ? 2 : 1) * set;
        close_totals(self);
        CHECK_MSG(is_near(set, cases[i].set) && is_near(floor, cases[i].floor) &&
                      is_near(needed, cases[i].needed) && is_near(total, cases[i].total),
                  "case %d: floor %.2f, needed %.2f, set %.2f, total %.2f", i, floor, needed, set,
                  total);
    }
}

PST_TEST(PolicyTotals, NeverAboveTheOthers)
{
    static const uint64_t units[] = {6, 3, 12};
    const uint32_t num_units = psti_test_cases(3);
    for (int i = 0; i < NUM_CASES; i++) {
        totals *self = open_totals(&cases[i]);
        for (uint32_t u = 0; u < num_units && u < 3; u++)
            check_totals(self, units[u]);
        close_totals(self);
    }
}
