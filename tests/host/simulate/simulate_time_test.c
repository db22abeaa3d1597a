/* Clocks: how long a step takes and what is exposed, alone and in whole pipelines. */
#include "tests/host/simulate/simulate_scene.h"

/* Sets, streams and rule of a column. */
typedef struct column {
    uint32_t sources, destinations, streams, ahead;
    bool by_slot;
    pst_restore_rule rule;
} column;

static void set_column(sim_scene *scene, const column *from)
{
    scene->config.num_sources = from->sources;
    scene->config.num_destinations = from->destinations;
    scene->config.num_streams = from->streams;
    scene->config.ahead = from->ahead;
    scene->config.by_slot = from->by_slot;
    scene->config.rule = from->rule;
    scene->config.mode = from->streams > 1 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
}

/* Main-stream work of the tables: forward (1, 4, 1), backward (2, 8, 2). */
static void set_work(sim_scene *scene, uint64_t stash_ns, uint64_t restore_ns)
{
    sim_set_times(scene, (pst_times){1, 4, 1}, (pst_times){2, 8, 2});
    scene->config.rates.stash_fixed_ns = stash_ns;
    scene->config.rates.restore_fixed_ns = restore_ns;
}

/* ---- one rank alone ---- */

static const column alone_columns[] = {
    {1, 1, 1, 0, false, PST_RESTORE_NEXT}, {1, 1, 1, 0, false, PST_RESTORE_ASAP},
    {2, 2, 1, 0, false, PST_RESTORE_ASAP}, {2, 2, 2, 0, false, PST_RESTORE_ASAP},
    {2, 2, 1, 1, false, PST_RESTORE_ASAP}, {2, 3, 1, 0, false, PST_RESTORE_ASAP},
    {2, 2, 1, 0, true, PST_RESTORE_ASAP}};

enum { NUM_ALONE = sizeof(alone_columns) / sizeof(alone_columns[0]) };

/* figures: end of the main stream, exposed forward, exposed backward. */
static const struct {
    const char *name;
    uint32_t p, r, m, layers, stash_ns, restore_ns;
    uint64_t figures[NUM_ALONE][3];
} alone_rows[] = {
    {"T1",
     1,
     0,
     1,
     8,
     1,
     1,
     {{144, 0, 0}, {144, 0, 0}, {144, 0, 0}, {144, 0, 0}, {144, 0, 0}, {144, 0, 0}, {144, 0, 0}}},
    {"T2",
     1,
     0,
     1,
     8,
     3,
     3,
     {{151, 7, 0}, {151, 7, 0}, {144, 0, 0}, {144, 0, 0}, {144, 0, 0}, {144, 0, 0}, {144, 0, 0}}},
    {"T3",
     1,
     0,
     1,
     8,
     6,
     6,
     {{186, 28, 14},
      {184, 28, 12},
      {144, 0, 0},
      {144, 0, 0},
      {144, 0, 0},
      {144, 0, 0},
      {144, 0, 0}}},
    {"T4",
     1,
     0,
     1,
     8,
     9,
     12,
     {{249, 49, 56},
      {241, 49, 48},
      {160, 16, 0},
      {160, 16, 0},
      {160, 16, 0},
      {160, 16, 0},
      {160, 16, 0}}},
    {"T5",
     1,
     0,
     1,
     8,
     15,
     15,
     {{312, 91, 77},
      {301, 91, 66},
      {204, 52, 8},
      {204, 52, 8},
      {204, 52, 8},
      {196, 52, 0},
      {204, 52, 8}}},
    {"T6",
     1,
     0,
     4,
     4,
     1,
     1,
     {{288, 0, 0}, {288, 0, 0}, {288, 0, 0}, {288, 0, 0}, {288, 0, 0}, {288, 0, 0}, {288, 0, 0}}},
    {"T7",
     1,
     0,
     4,
     4,
     3,
     3,
     {{300, 12, 0}, {300, 12, 0}, {288, 0, 0}, {288, 0, 0}, {288, 0, 0}, {288, 0, 0}, {288, 0, 0}}},
    {"T8",
     1,
     0,
     4,
     4,
     6,
     6,
     {{360, 48, 24},
      {352, 48, 16},
      {288, 0, 0},
      {288, 0, 0},
      {288, 0, 0},
      {288, 0, 0},
      {288, 0, 0}}},
    {"T9",
     1,
     0,
     4,
     4,
     9,
     12,
     {{468, 84, 96},
      {436, 84, 64},
      {304, 16, 0},
      {304, 16, 0},
      {304, 16, 0},
      {304, 16, 0},
      {304, 16, 0}}},
    {"T10",
     1,
     0,
     4,
     4,
     15,
     15,
     {{576, 156, 132},
      {532, 156, 88},
      {352, 64, 0},
      {352, 64, 0},
      {352, 64, 0},
      {352, 64, 0},
      {352, 64, 0}}},
    {"T11",
     4,
     0,
     8,
     4,
     1,
     1,
     {{576, 0, 0}, {576, 0, 0}, {576, 0, 0}, {576, 0, 0}, {576, 0, 0}, {576, 0, 0}, {576, 0, 0}}},
    {"T12",
     4,
     0,
     8,
     4,
     3,
     3,
     {{618, 27, 15},
      {603, 27, 0},
      {576, 0, 0},
      {576, 0, 0},
      {576, 0, 0},
      {577, 1, 0},
      {576, 0, 0}}},
    {"T13",
     4,
     0,
     8,
     4,
     6,
     6,
     {{783, 108, 99},
      {736, 110, 50},
      {586, 10, 0},
      {576, 0, 0},
      {580, 4, 0},
      {592, 16, 0},
      {586, 10, 0}}},
    {"T14",
     4,
     0,
     8,
     4,
     9,
     12,
     {{1071, 189, 306},
      {993, 217, 200},
      {688, 112, 0},
      {632, 56, 0},
      {688, 68, 44},
      {700, 124, 0},
      {688, 112, 0}}},
    {"T15",
     4,
     0,
     8,
     4,
     15,
     15,
     {{1359, 351, 432},
      {1261, 394, 291},
      {948, 278, 94},
      {798, 188, 34},
      {933, 203, 154},
      {948, 353, 19},
      {975, 278, 121}}},
    {"T16",
     4,
     3,
     8,
     4,
     1,
     1,
     {{576, 0, 0}, {576, 0, 0}, {576, 0, 0}, {576, 0, 0}, {576, 0, 0}, {576, 0, 0}, {576, 0, 0}}},
    {"T17",
     4,
     3,
     8,
     4,
     3,
     3,
     {{600, 24, 0}, {600, 24, 0}, {576, 0, 0}, {576, 0, 0}, {576, 0, 0}, {576, 0, 0}, {576, 0, 0}}},
    {"T18",
     4,
     3,
     8,
     4,
     6,
     6,
     {{720, 96, 48},
      {704, 96, 32},
      {576, 0, 0},
      {576, 0, 0},
      {576, 0, 0},
      {576, 0, 0},
      {576, 0, 0}}},
    {"T19",
     4,
     3,
     8,
     4,
     9,
     12,
     {{936, 168, 192},
      {872, 168, 128},
      {608, 32, 0},
      {608, 32, 0},
      {608, 32, 0},
      {608, 32, 0},
      {608, 32, 0}}},
    {"T20",
     4,
     3,
     8,
     4,
     15,
     15,
     {{1152, 312, 264},
      {1064, 312, 176},
      {704, 128, 0},
      {704, 128, 0},
      {704, 128, 0},
      {704, 128, 0},
      {704, 128, 0}}},
};

static void check_alone(const char *name, uint32_t i, const sim_scene *scene,
                        const uint64_t figures[3])
{
    const pst_stage_result *result = &scene->stages[0];
    CHECK_MSG(result->end_ns == figures[0] && result->exposed_forward_ns == figures[1] &&
                  result->exposed_backward_ns == figures[2],
              "%s, column %u: %llu; %llu+%llu, not %llu; %llu+%llu", name, i,
              (unsigned long long)result->end_ns, (unsigned long long)result->exposed_forward_ns,
              (unsigned long long)result->exposed_backward_ns, (unsigned long long)figures[0],
              (unsigned long long)figures[1], (unsigned long long)figures[2]);
    CHECK_EQ(scene->simulation.makespan_ns, result->end_ns);
    CHECK_EQ(result->span_ns, result->end_ns);
    CHECK_EQ(result->bubble_ns, 0);
    CHECK_EQ(result->busy_ns + result->exposed_forward_ns + result->exposed_backward_ns,
             result->end_ns);
}

PST_TEST(SimulateTime, AloneStallsAsTheTableSays)
{
    static sim_scene scene;
    for (size_t row = 0; row < sizeof(alone_rows) / sizeof(alone_rows[0]); row++)
        for (uint32_t i = 0; i < NUM_ALONE; i++) {
            const sim_shape shape = {.kind = PST_SCHEDULE_1F1B,
                                     .p = alone_rows[row].p,
                                     .m = alone_rows[row].m,
                                     .num_layers = alone_rows[row].layers};
            sim_open_alone(&scene, &shape, alone_rows[row].r);
            set_work(&scene, alone_rows[row].stash_ns, alone_rows[row].restore_ns);
            set_column(&scene, &alone_columns[i]);
            sim_run(&scene);
            check_alone(alone_rows[row].name, i, &scene, alone_rows[row].figures[i]);
            sim_close(&scene);
        }
}

/* ---- whole pipelines ---- */

static const column rank_columns[] = {{1, 1, 1, 0, false, PST_RESTORE_NEXT},
                                      {2, 2, 1, 0, false, PST_RESTORE_ASAP},
                                      {2, 2, 2, 0, false, PST_RESTORE_ASAP}};

enum { NUM_RANK_COLUMNS = sizeof(rank_columns) / sizeof(rank_columns[0]) };

static const struct {
    const char *name;
    sim_shape shape;
    uint32_t stash_ns, restore_ns, p2p_ns;
    struct {
        uint64_t makespan;
        uint64_t stalls[4];
    } figures[NUM_RANK_COLUMNS];
} rank_rows[] = {
    {"X1",
     {PST_SCHEDULE_1F1B, 4, 8, 1, 0, 4, false},
     0,
     0,
     0,
     {{792, {0, 0, 0, 0}}, {792, {0, 0, 0, 0}}, {792, {0, 0, 0, 0}}}},
    {"X2",
     {PST_SCHEDULE_1F1B, 4, 8, 1, 0, 4, false},
     3,
     3,
     0,
     {{840, {27, 24, 42, 24}}, {792, {0, 0, 0, 0}}, {792, {0, 0, 0, 0}}}},
    {"X3",
     {PST_SCHEDULE_1F1B, 4, 8, 1, 0, 4, false},
     6,
     6,
     0,
     {{1035, {156, 144, 198, 144}}, {792, {10, 0, 0, 0}}, {792, {0, 0, 0, 0}}}},
    {"X4",
     {PST_SCHEDULE_1F1B, 4, 8, 1, 0, 4, false},
     9,
     12,
     0,
     {{1377, {381, 360, 468, 360}}, {881, {109, 69, 77, 32}}, {836, {56, 32, 32, 32}}}},
    {"X5",
     {PST_SCHEDULE_1F1B, 4, 8, 1, 0, 4, false},
     6,
     6,
     10,
     {{1159, {156, 144, 189, 144}}, {952, {10, 0, 0, 0}}, {952, {0, 0, 0, 0}}}},
    {"X6",
     {PST_SCHEDULE_1F1B, 2, 4, 1, 0, 8, false},
     0,
     0,
     0,
     {{720, {0, 0}}, {720, {0, 0}}, {720, {0, 0}}}},
    {"X7",
     {PST_SCHEDULE_1F1B, 2, 4, 1, 0, 8, false},
     3,
     3,
     0,
     {{758, {35, 28}}, {720, {0, 0}}, {720, {0, 0}}}},
    {"X8",
     {PST_SCHEDULE_1F1B, 2, 4, 1, 0, 8, false},
     6,
     6,
     0,
     {{939, {190, 168}}, {720, {10, 0}}, {720, {0, 0}}}},
    {"X9",
     {PST_SCHEDULE_1F1B, 2, 4, 1, 0, 8, false},
     9,
     12,
     0,
     {{1263, {463, 420}}, {813, {109, 64}}, {800, {72, 64}}}},
    {"X10",
     {PST_SCHEDULE_1F1B, 2, 4, 1, 0, 8, false},
     6,
     6,
     10,
     {{979, {181, 168}}, {760, {10, 0}}, {760, {0, 0}}}},
    {"X11",
     {PST_SCHEDULE_INTERLEAVED, 4, 8, 2, 4, 2, false},
     0,
     0,
     0,
     {{684, {0, 0, 0, 0}}, {684, {0, 0, 0, 0}}, {684, {0, 0, 0, 0}}}},
    {"X12",
     {PST_SCHEDULE_INTERLEAVED, 4, 8, 2, 4, 2, false},
     3,
     3,
     0,
     {{719, {38, 16, 43, 28}}, {684, {0, 0, 0, 0}}, {684, {0, 0, 0, 0}}}},
    {"X13",
     {PST_SCHEDULE_INTERLEAVED, 4, 8, 2, 4, 2, false},
     6,
     6,
     0,
     {{882, {160, 96, 196, 134}}, {694, {0, 0, 0, 10}}, {684, {0, 0, 0, 0}}}},
    {"X14",
     {PST_SCHEDULE_INTERLEAVED, 4, 8, 2, 4, 2, false},
     9,
     12,
     0,
     {{1188, {316, 248, 468, 320}}, {741, {76, 3, 35, 36}}, {706, {58, 0, 0, 0}}}},
    {"X15",
     {PST_SCHEDULE_INTERLEAVED, 4, 8, 2, 4, 2, false},
     6,
     6,
     10,
     {{991, {120, 96, 181, 132}}, {824, {0, 0, 0, 10}}, {824, {0, 0, 0, 0}}}},
    {"X16",
     {PST_SCHEDULE_GPIPE, 4, 8, 1, 0, 4, false},
     0,
     0,
     0,
     {{792, {0, 0, 0, 0}}, {792, {0, 0, 0, 0}}, {792, {0, 0, 0, 0}}}},
    {"X17",
     {PST_SCHEDULE_GPIPE, 4, 8, 1, 0, 4, false},
     3,
     3,
     0,
     {{835, {31, 24, 24, 27}}, {792, {0, 0, 0, 0}}, {792, {0, 0, 0, 0}}}},
    {"X18",
     {PST_SCHEDULE_GPIPE, 4, 8, 1, 0, 4, false},
     6,
     6,
     0,
     {{1041, {172, 144, 144, 167}}, {802, {10, 0, 0, 0}}, {792, {0, 0, 0, 0}}}},
    {"X19",
     {PST_SCHEDULE_GPIPE, 4, 8, 1, 0, 4, false},
     9,
     12,
     0,
     {{1410, {409, 360, 360, 434}}, {916, {112, 32, 32, 32}}, {892, {88, 32, 32, 32}}}},
    {"X20",
     {PST_SCHEDULE_GPIPE, 4, 8, 1, 0, 4, false},
     6,
     6,
     10,
     {{1101, {172, 144, 144, 167}}, {862, {10, 0, 0, 0}}, {852, {0, 0, 0, 0}}}},
};

PST_TEST(SimulateTime, RanksWaitForEachOtherAsTheTableSays)
{
    static sim_scene scene;
    for (size_t row = 0; row < sizeof(rank_rows) / sizeof(rank_rows[0]); row++)
        for (uint32_t i = 0; i < NUM_RANK_COLUMNS; i++) {
            sim_open(&scene, &rank_rows[row].shape);
            set_work(&scene, rank_rows[row].stash_ns, rank_rows[row].restore_ns);
            set_column(&scene, &rank_columns[i]);
            scene.config.p2p_ns = rank_rows[row].p2p_ns;
            sim_run(&scene);
            CHECK(!scene.simulation.deadlocked);
            CHECK_MSG(scene.simulation.makespan_ns == rank_rows[row].figures[i].makespan,
                      "%s, column %u: %llu", rank_rows[row].name, i,
                      (unsigned long long)scene.simulation.makespan_ns);
            for (uint32_t r = 0; r < rank_rows[row].shape.p; r++) {
                const pst_stage_result *result = &scene.stages[r];
                const uint64_t stall = result->exposed_forward_ns + result->exposed_backward_ns;
                CHECK_MSG(stall == rank_rows[row].figures[i].stalls[r],
                          "%s, column %u, stage %u: %llu", rank_rows[row].name, i, r,
                          (unsigned long long)stall);
                CHECK_EQ(result->busy_ns + stall + result->bubble_ns, scene.simulation.makespan_ns);
            }
            sim_close(&scene);
        }
}

/* ---- closed forms ---- */

static uint64_t over(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Rule NEXT without a pipeline, with the main stream's time between two cores of 2 and 4: every stash is
 * waited for, and every restore. Ours waits for nothing while a copy is not longer than a layer. */
PST_TEST(SimulateTime, StallsInClosedForm)
{
    static const column next = {1, 1, 1, 0, false, PST_RESTORE_NEXT};
    static const column ours = {2, 2, 1, 0, false, PST_RESTORE_ASAP};
    static sim_scene scene;
    for (uint32_t layers = 1; layers <= 9; layers++)
        for (uint32_t m = 1; m <= 3; m++)
            for (uint64_t stash = 0; stash <= 6; stash++)
                for (uint64_t restore = 0; restore <= 12; restore += 3) {
                    const sim_shape shape = {
                        .kind = PST_SCHEDULE_1F1B, .p = 1, .m = m, .num_layers = layers};
                    const uint64_t times = (uint64_t)m * (layers - 1);
                    sim_open_alone(&scene, &shape, 0);
                    set_work(&scene, stash, restore);
                    set_column(&scene, &next);
                    sim_run(&scene);
                    CHECK_EQ(scene.stages[0].exposed_forward_ns, times * over(stash, 2));
                    CHECK_EQ(scene.stages[0].exposed_backward_ns, times * over(restore, 4));
                    set_column(&scene, &ours);
                    scene.config.steps = 1;
                    sim_run(&scene);
                    if (m == 1) {
                        CHECK_EQ(scene.stages[0].exposed_forward_ns, 0);
                        CHECK_EQ(scene.stages[0].exposed_backward_ns, 0);
                    }
                    sim_close(&scene);
                }
}
